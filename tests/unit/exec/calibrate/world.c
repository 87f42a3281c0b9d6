/* One rank's view of its world: others do what it does, at the same time. */
#include "runtime/plan/time/internal.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Machine machine;

enum { WORLD, NEAR, FAR, GROUPS };
static struct {
  bool open;
  int level;
  double left; /* seconds, alone */
} now;
static int groups;     /* that were made */
static bool turn;      /* of a pair: who is to send */
static double full[2]; /* when the level's links have their whole burst again */

void world_forget(void) {
  memset(&now, 0, sizeof now);
  groups = 1;
  turn = true;
  full[0] = full[1] = 0;
}

/* Of 11 barriers behind two; no loop of calibrate has a multiple of 11. */
double world_noise(void) {
  uint64_t k = machine.barriers % 11;
  return machine.noisy && (k == 3 || k == 7) ? 4 : 1;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */
static int rank(ZxComm *c) { return (void)c, machine.rank; }
static int size(ZxComm *c) { return (void)c, machine.size; }
static const int *nodes(ZxComm *c) { return (void)c, machine.node; }
static int node_rank(ZxComm *c) {
  int n = 0;
  for (int i = 0; i < rank(c); i++) n += machine.node[i] == machine.node[machine.rank];
  return n;
}

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

/* Of n members; `empty`: of its start and latencies alone, as up to EAGER bytes are. */
static double exchange_seconds(int op, size_t bytes, int n, int level, bool empty) {
  ZlLevel l[2] = {machine.level[0], machine.level[1]};
  ZlCluster c = machine.is;
  ZpPlace at = {.n = n, .level = (uint32_t)level, .units = {level ? n : 1, 1}};
  c.levels = l;
  for (int i = 0; i < 2 && (empty || bytes <= EAGER); i++)
    l[i].ramp = 0, l[i].bandwidth = l[i].sums = INFINITY;
  if (op == MESSAGE) return zp_transfer_seconds(&c, (double)bytes, &at);
  return zp_collective_seconds(&c, op, (double)bytes, &at);
}

/* Sooner by what a token bucket has: as plan/time/loop.c, but that latencies move nothing. */
static double burst(int level, double moving) {
  const ZlLevel *l = &machine.level[level];
  double at = fmax(clock_now(), full[level]);
  if (!(l->burst > 0)) return 0;
  full[level] = at + moving;
  return fmin(moving, fmax(0, l->burst / l->bandwidth - (at - clock_now())));
}

static ZxRequest start(int op, size_t bytes, int n, int level) {
  double all = exchange_seconds(op, bytes, n, level, false);
  cr_assert(!now.open, "an exchange begins before another ends");
  now.open = true;
  now.level = level;
  now.left = (all - burst(level, all - exchange_seconds(op, bytes, n, level, true))) * world_noise();
  if (machine.more) now.left += machine.more(op, bytes);
  return 0;
}

static ZxRequest collective(ZxGroup g, int op, size_t bytes) {
  cr_assert((g == NEAR || g == FAR) && g < groups);
  if (members(g) == 1) return -1; /* a node of one rank, beside larger ones */
  uint32_t i = 0;
  while (i < machine.nexchanged && (machine.exchanged[i].group != g || machine.exchanged[i].op != op ||
                                    machine.exchanged[i].bytes != bytes))
    i++;
  cr_assert_lt(i, MOST_KINDS);
  if (i == machine.nexchanged) machine.exchanged[machine.nexchanged++] = (Exchanged){g, op, bytes, 0};
  machine.exchanged[i].count++;
  return start(op, bytes, members(g), g - NEAR);
}

/* Of a number, in the world: at once. Another rank may not be content, or have more. */
static ZxRequest reduce_numbers(double *x, size_t n, ZxReduce op) {
  cr_assert(!now.open);
  if (op == ZX_SUM) { /* agreement */
    cr_assert_eq(n, 1);
    if (++machine.agreed == (uint64_t)machine.others_fail) *x += 1;
    return -1;
  }
  if (n > 1) { /* digests, alike on all */
    machine.digest = *x;
    return -1;
  }
  if (*x < -1e299) { /* no rank that lacks something */
    if (machine.others_lack && !--machine.others_lack) *x = -1;
    return -1;
  }
  if (*x < 0) return -1;
  if (*x != floor(*x) && machine.slower > 1) *x *= machine.slower; /* it is seconds */
  uint32_t i = machine.nreduced++;
  cr_assert_lt(i, MOST_REDUCED);
  if (machine.replays) {
    cr_assert_eq(machine.barriers, machine.replays[i].barriers, "reduction %u", i);
    *x = fmax(*x, machine.replays[i].value);
  }
  machine.reduced[i].value = *x;
  machine.reduced[i].barriers = machine.barriers;
  return -1;
}

static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZxCommElem elem, ZxReduce op) {
  (void)c;
  if (g == WORLD) {
    cr_assert_eq(elem, ZX_F64);
    return reduce_numbers(p, n, op);
  }
  cr_assert(elem == ZX_F32 && op == ZX_SUM);
  ((volatile float *)p)[n - 1] = 0; /* it is there */
  return collective(g, ZG_OP_ALL_REDUCE, 4 * n);
}

static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  size_t all = bytes * (size_t)members(g);
  (void)c, (void)((const volatile char *)part)[bytes - 1];
  ((volatile char *)out)[all - 1] = 0;
  return collective(g, ZG_OP_ALL_GATHER, all);
}

/* The two that are the first of their group, one after the other. */
static ZxRequest message(bool sends, size_t bytes, int peer, int tag) {
  int level = machine.node[peer] != machine.node[machine.rank], other = -1, n = 0;
  for (int i = 0; i < machine.size && n < 2; i++) {
    bool in = level ? leads(i) : machine.node[i] == machine.node[machine.rank];
    n += in;
    if (in && i != machine.rank) other = i;
  }
  cr_assert(peer == other && tag == 0 && bytes == 64 && bytes <= EAGER);
  cr_assert(level == 0 || leads(machine.rank));
  cr_assert_eq(sends, turn == (machine.rank < peer), "both would %s", sends ? "send" : "wait");
  turn = !turn;
  machine.messages++;
  return start(MESSAGE, bytes, 2, level);
}
static ZxRequest send_message(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  (void)c, (void)((const volatile char *)p)[bytes - 1];
  return message(true, bytes, peer, tag);
}
static ZxRequest receive(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)c;
  ((volatile char *)p)[bytes - 1] = 0;
  return message(false, bytes, peer, tag);
}

/* While both go on, each is slower: plan/time/loop.c. */
void world_compute(double seconds) {
  double work = seconds * world_noise();
  if (now.open && now.left > 0) {
    const ZlLevel *l = &machine.level[now.level];
    double both = fmin(work * (1 + l->steal), now.left / l->beside);
    clock_add(both);
    now.left -= both * l->beside;
    work -= both / (1 + l->steal);
    if (now.left < 1e-12) now.left = 0;
  }
  clock_add(fmax(0, work));
}

static bool test(ZxComm *c, ZxRequest r) {
  (void)c;
  if (r < 0) return true;
  cr_assert(r == 0 && now.open);
  if (now.left > 0) return false;
  now.open = false;
  return true;
}
static void wait_for(ZxComm *c, ZxRequest r) {
  (void)c;
  if (r < 0) return;
  cr_assert(r == 0 && now.open, "a request that there is not");
  clock_add(now.left);
  now.open = false;
}

static const ZxCommTable table = {.name = "virtual",
                                  .rank = rank,
                                  .size = size,
                                  .node_rank = node_rank,
                                  .nodes = nodes,
                                  .split = split,
                                  .group_size = group_size,
                                  .send = send_message,
                                  .recv = receive,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .test = test,
                                  .wait = wait_for,
                                  .barrier = barrier};
ZxComm world = {&table};

/* ---- the machine --------------------------------------------------------------------------------------- */
static ZlLevel within(void) {
  return (ZlLevel){.name.s = "node",
                   .bandwidth = 5e9,
                   .sums = 3e9,
                   .latency = 20e-6,
                   .start = 30e-6,
                   .ramp = 50e-6,
                   .steal = .4,
                   .beside = .7};
}

static ZlLevel between(void) {
  return (ZlLevel){.name.s = "nodes",
                   .bandwidth = 1e9,
                   .sums = .8e9,
                   .latency = 70e-6,
                   .start = 110e-6,
                   .ramp = 200e-6,
                   .steal = .15,
                   .beside = .45};
}

void machine_start(void) {
  device_forget();
  memset(&machine, 0, sizeof machine);
  machine.is = (ZlCluster){.name = "here",
                           .flops_f32 = 100e9,
                           .flops_bf16 = 280e9,
                           .products = .8,
                           .tile_fill = 24,
                           .attention = .2,
                           .attention_f32 = .6,
                           .attention_grad = .7,
                           .attention_fill = 16,
                           .stream = 11e9,
                           .cache = 4.5e6,
                           .cached = 90e9,
                           .update = 7e9,
                           .simple = 40e9,
                           .special = 6e9,
                           .launch = 2e-6,
                           .levels = machine.level,
                           .nlevels = 2};
  machine.level[0] = within();
  machine.level[1] = between();
  machine.size = 1;
  world_forget();
  clock_start();
}

void machine_ranks(int me, int n, const int *node) {
  machine_start();
  machine.rank = me;
  machine.size = n;
  for (int i = 0; i < n; i++) machine.node[i] = node[i];
  machine.level[0].size = members(NEAR);
  machine.level[1].size = members(FAR);
}
