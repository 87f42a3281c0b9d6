/* One rank's view of its world: others do what it does, at the same time. */
#include "runtime/plan/time/internal.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Machine machine;

enum { WORLD, NEAR, FAR };
static struct {
  bool open;
  double left; /* seconds of the exchanges that go on */
} now;
static int groups; /* that were made */
static bool turn;  /* of a pair: who is to send */

void world_forget(void) {
  memset(&now, 0, sizeof now);
  groups = 1;
  turn = true;
}

/* Of 13 barriers behind two; no loop of calibrate has a multiple of 13. */
double world_noise(void) {
  uint64_t k = machine.barriers % 13;
  return machine.noisy && (k == 3 || k == 7) ? 4 : 1;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */
static int rank(ZxComm *c) { return (void)c, machine.rank; }
static int size(ZxComm *c) { return (void)c, machine.size; }
static const int *nodes(ZxComm *c) { return (void)c, machine.node; }
static int node_rank(ZxComm *c) { return rank(c) - machine.node[machine.rank]; }

static bool leads(int i) { return machine.node[i] == i; }
static int members(ZxGroup g) {
  int n = 0;
  for (int i = 0; i < machine.size; i++)
    n += g == WORLD || (g == NEAR ? machine.node[i] == machine.node[machine.rank] : leads(i));
  return n;
}

/* Those of a node, and then those who lead one. */
static ZxGroup split(ZxComm *c, int color) {
  (void)c;
  int g = groups++;
  cr_assert(g == NEAR || g == FAR);
  if (g == NEAR) cr_assert_eq(color, machine.node[machine.rank]);
  else cr_assert_eq(color, leads(machine.rank) ? 0 : -1);
  return color < 0 ? -1 : g;
}
static int group_size(ZxComm *c, ZxGroup g) {
  (void)c;
  cr_assert(g >= 0 && g < groups);
  return members(g);
}

static void barrier(ZxComm *c) {
  (void)c;
  cr_assert(!now.open);
  machine.barriers++;
}

/* ---- exchanges ----------------------------------------------------------------------------------------- */
enum { MESSAGE = -1 }; /* in place of a collective's op */

static void start(int op, size_t bytes, int n, int level) {
  ZlLevel l[2] = {machine.level[0], machine.level[1]};
  ZlCluster c = machine.is;
  ZpPlace at = {.n = n, .level = (uint32_t)level, .units = {level ? n : 1, 1}};
  c.levels = l;
  for (int i = 0; i < 2 && bytes <= EAGER; i++) l[i].ramp = 0, l[i].bandwidth = l[i].sums = INFINITY;
  double seconds = op == MESSAGE ? zp_transfer_seconds(&c, (double)bytes, &at)
                                 : zp_collective_seconds(&c, op, (double)bytes, &at);
  machine.longest = fmax(machine.longest, seconds);
  now.left += seconds * world_noise();
  now.open = true;
}

static bool is_alone(ZxGroup g) {
  cr_assert((g == NEAR || g == FAR) && g < groups);
  return members(g) == 1; /* a node of one rank, where others have more */
}

/* Of a number, in the world: at once. Another rank may not be content, or have more. */
static void reduce_numbers(double *x, size_t n, ZxReduce op) {
  cr_assert(!now.open);
  if (op == ZX_SUM && ++machine.agreed == (uint64_t)machine.others_fail) *x += 1; /* agreement */
  if (op == ZX_SUM) return;
  if (n > 1) machine.digest = *x;                                                 /* alike on all */
  else if (*x > 0 && *x != floor(*x) && machine.slower > 1) *x *= machine.slower; /* it is seconds */
}

static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce op) {
  if (g == WORLD) {
    cr_assert(elem == ZK_F64 && c == &world);
    reduce_numbers(p, n, op);
    return -1;
  }
  cr_assert(elem == ZK_F32 && op == ZX_SUM);
  if (is_alone(g)) return -1;
  start(ZG_OP_ALL_REDUCE, 4 * n, members(g), g - NEAR);
  return 0;
}

static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  (void)c, (void)part, (void)out;
  if (is_alone(g)) return -1;
  start(ZG_OP_ALL_GATHER, bytes * (size_t)members(g), members(g), g - NEAR);
  return 0;
}

/* The two that are the first of their group, one after the other. */
static ZxRequest message(bool sends, size_t bytes, int peer) {
  int level = machine.node[peer] != machine.node[machine.rank];
  cr_assert(bytes <= EAGER && peer != machine.rank);
  cr_assert_eq(sends, turn == (machine.rank < peer), "both would %s", sends ? "send" : "wait");
  turn = !turn;
  start(MESSAGE, bytes, 2, level);
  return 0;
}
static ZxRequest send_message(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  (void)c, (void)p, (void)tag;
  return message(true, bytes, peer);
}
static ZxRequest receive(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)c, (void)p, (void)tag;
  return message(false, bytes, peer);
}

/* While an exchange goes on computation is slower: plan/time/loop.c. */
void world_compute(double seconds) {
  double work = seconds * world_noise();
  if (now.left > 0) {
    double both = fmin(work * (1 + machine.is.steal), now.left);
    clock_add(both);
    now.left -= both;
    work -= both / (1 + machine.is.steal);
    if (now.left < 1e-12) now.left = 0;
  }
  clock_add(fmax(0, work));
}

void world_end_exchange(void) {
  clock_add(now.left);
  now.left = 0;
  now.open = false;
}

static bool test(ZxComm *c, ZxRequest r) {
  (void)c;
  if (r >= 0 && now.left > 0) return false;
  if (r >= 0) now.open = false;
  return true;
}
static void wait_for(ZxComm *c, ZxRequest r) {
  (void)c;
  if (r < 0) return;
  cr_assert(now.open, "a request that there is not");
  world_end_exchange();
}

#define RANKS                                                                                                \
  .rank = rank, .size = size, .node_rank = node_rank, .nodes = nodes, .split = split,                        \
  .group_size = group_size, .barrier = barrier
static const ZxCommTable table = {.name = "virtual",
                                  RANKS,
                                  .send = send_message,
                                  .recv = receive,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .test = test,
                                  .wait = wait_for};
ZxComm world = {&table};

/* ---- a communicator of a device's memory: operations are queued, and complete for the host ------------- */
static ZxRequest queued_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce op) {
  cr_assert_neq(g, WORLD, "a number of the host's");
  return all_reduce(c, g, p, n, elem, op), -1;
}
static ZxRequest queued_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  return all_gather(c, g, part, bytes, out), -1;
}
static ZxRequest queued_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  return send_message(c, p, bytes, peer, tag), -1;
}
static ZxRequest queued_receive(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  return receive(c, p, bytes, peer, tag), -1;
}
static void end_queued(ZxComm *c) { (void)c, machine.comms--; }
static const ZxCommTable queued_table = {.name = "queued",
                                         RANKS,
                                         .send = queued_send,
                                         .recv = queued_receive,
                                         .all_reduce = queued_reduce,
                                         .all_gather = queued_gather,
                                         .test = test,
                                         .wait = wait_for,
                                         .free = end_queued};
ZxComm queued_world = {&queued_table};

/* ---- the machine --------------------------------------------------------------------------------------- */
static void make_levels(void) {
  machine.level[0] = (ZlLevel){.name.s = "node",
                               .size = members(NEAR),
                               .bandwidth = 5e9,
                               .sums = 3e9,
                               .latency = 20e-6,
                               .start = 30e-6,
                               .ramp = 50e-6};
  machine.level[1] = (ZlLevel){.name.s = "nodes",
                               .size = members(FAR),
                               .bandwidth = 1e9,
                               .sums = .8e9,
                               .latency = 70e-6,
                               .start = 110e-6,
                               .ramp = 200e-6};
}

void machine_start(bool host, int me, int n, const int *node) {
  static const ZlCluster core = {.flops_f32 = 100e9,
                                 .flops_bf16 = 280e9,
                                 .products = .8,
                                 .tile_fill = 24,
                                 .attention = .6,
                                 .attention_grad = .7,
                                 .stream = 11e9,
                                 .weights1 = 9e9,
                                 .weights8 = 7e9,
                                 .weights16 = 4e9,
                                 .weights128 = .8e9,
                                 .weights1_bf16 = 8e9,
                                 .weights8_bf16 = 5e9,
                                 .weights16_bf16 = 3e9,
                                 .weights128_bf16 = 1e9,
                                 .launch = 2e-6,
                                 .steal = .4},
                         gpu = {.flops_f32 = 60e12,
                                .flops_bf16 = 1000e12,
                                .flops_tf32 = 500e12,
                                .hbm = 3.3e12,
                                .sms = 132,
                                .products = .63,
                                .tile_fill = 128,
                                .attention = .33,
                                .attention_grad = .8,
                                .stream = 2.9e12,
                                .weights1 = 2.5e12,
                                .weights1_bf16 = 2.2e12,
                                .launch = 2e-6,
                                .steal = .18,
                                .host_link = 50e9};
  memset(&machine, 0, sizeof machine);
  machine.is = host ? core : gpu;
  machine.is.levels = machine.level;
  machine.is.nlevels = 2;
  machine.slower = 1;
  machine.rank = me;
  machine.size = n;
  for (int i = 0; i < n; i++) machine.node[i] = node[i];
  make_levels();
  device_forget();
  world_forget();
  clock_start();
}
