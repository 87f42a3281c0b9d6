/* Devices whose calls take what plan/time says: one does them at once, one only queues them. */
#include "graph/attend.h"
#include "runtime/plan/time/internal.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

/* ---- memory: nobody touches it but calls that are not made, so none of it need be there ----------------- */
enum { ROOMS = 16 };
static struct {
  char *p;
  size_t bytes;
} room[ROOMS];
static double queued; /* seconds of calls that are not done yet */

void device_forget(void) { queued = 0; }

static void *allocate(const ZkEnv *env, size_t bytes, ZbErr *err) {
  int i = 0;
  (void)env;
  if (++machine.allocs == machine.alloc_fails) return zb_fail(err, "less", "no memory here"), NULL;
  while (i < ROOMS && room[i].p) i++;
  cr_assert(i < ROOMS && bytes > 0);
  room[i].p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(room[i].p != MAP_FAILED);
  room[i].bytes = bytes;
  return room[i].p;
}

static void release(const ZkEnv *env, void *p, size_t bytes) {
  int i = 0;
  (void)env;
  while (i < ROOMS && room[i].p != p) i++;
  cr_assert(i < ROOMS && room[i].bytes == bytes, "%zu bytes are freed that nobody has", bytes);
  munmap(p, bytes);
  room[i].p = NULL;
  machine.frees++;
}

static void check_place(const void *p, size_t bytes) {
  const char *from = p;
  int i = 0;
  while (i < ROOMS && !(room[i].p && from >= room[i].p && from + bytes <= room[i].p + room[i].bytes)) i++;
  cr_assert(i < ROOMS, "%zu bytes that nobody has", bytes);
}

static void zero(const ZkEnv *env, void *p, size_t bytes) { (void)env, check_place(p, bytes); }
static void *pinned(const ZkEnv *env, size_t bytes, ZbErr *err) {
  return (void)env, (void)err, malloc(bytes);
}
static void unpin(const ZkEnv *env, void *p) { (void)env, free(p); }
static void upload(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env, (void)from;
  check_place(to, bytes);
  if (machine.is.host_link > 0) queued += (double)bytes / machine.is.host_link;
}
static void memory(const ZkEnv *env, uint64_t *total, uint64_t *unused) {
  (void)env;
  *total = 80000000000;
  *unused = 79000000000;
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static size_t bytes_of(const ZkView *v) {
  size_t n = zk_plain_bytes((ZkElem)v->elem);
  for (int i = 0; i < v->rank; i++) n *= (size_t)v->size[i];
  return n;
}

static double attention_flops(const ZkCall *c) {
  const int64_t *size = c->in[0].size;
  return (c->op == ZG_OP_ATTEND_GRAD ? 8. : 4.) * (double)(size[0] * size[2]) *
         zg_attend_pairs(true, 0, size[1], size[1]);
}

/* Of a step of generation. */
static double step_seconds(const ZkCall *c) {
  const ZkView *x = &c->in[0], *w = &c->in[1];
  ZpStepProduct p = {.rows = (double)x->size[0],
                     .columns = (double)w->size[1],
                     .depth = (double)x->size[1],
                     .batch = 1,
                     .weights = (double)bytes_of(w),
                     .others = (double)(bytes_of(x) + bytes_of(&c->out[0])),
                     .elem = (ZkElem)w->elem};
  return zp_step_product_seconds(&machine.is, &p);
}

static double seconds_of(const ZkCall *c) {
  ZpNode node = {.call = *c};
  ZlCluster is = machine.is;
  size_t bytes = 0;
  is.flops_tf32 = 0; /* nothing is rounded to it */
  for (int i = 0; i < c->nin + c->nout; i++) {
    const ZkView *v = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
    check_place(v->data, bytes_of(v));
    bytes += bytes_of(v);
  }
  check_place(c->scratch, 1);
  if (bytes < EAGER) return machine.tiny > 0 ? machine.tiny : machine.is.launch;
  if (c->op == ZG_OP_ATTEND || c->op == ZG_OP_ATTEND_GRAD) node.busiest = attention_flops(c);
  return c->invariant ? step_seconds(c) : zp_call_seconds(&is, &node);
}

static size_t scratch(const ZkCall *c, int threads) {
  return c->op == ZG_OP_ATTEND_GRAD ? (size_t)threads * 1000 * (size_t)c->in[0].size[1] : 0;
}
static void run_here(const ZkEnv *env, const ZkCall *c) {
  cr_assert(env->pool);
  machine.runs++;
  world_compute(seconds_of(c));
}
static void run_queued(const ZkEnv *env, const ZkCall *c) {
  cr_assert(env->pool);
  machine.runs++;
  queued += seconds_of(c);
}

static bool finish(const ZkEnv *env, ZbErr *err) {
  (void)env;
  world_compute(queued);
  queued = 0;
  if (machine.is.host_link > 0) world_end_exchange();
  return ++machine.finished != machine.finish_fails || zb_fail(err, "", "the device has failed");
}

/* ---- what it is ---------------------------------------------------------------------------------------- */
static bool open_device(ZkEnv *env, int node_rank, ZbErr *err) {
  machine.opened++;
  (void)node_rank;
  return env->pool || zb_fail(err, "", "no threads");
}
static void close_device(ZkEnv *env) {
  cr_assert(env->pool);
  machine.closed++;
}
static const char *describe(const ZkEnv *env) { return (void)env, "a virtual device"; }
static void stream(ZkEnv *env, int queue) { (void)env, (void)queue; }
static ZxComm *comm_here(ZxComm *c, ZkEnv *env, const char **why) { return (void)env, (void)why, c; }
static ZxComm *comm_queued(ZxComm *c, ZkEnv *env, const char **why) {
  (void)c, (void)env, (void)why;
  machine.comms++;
  return &queued_world;
}
static void rates(const ZkEnv *env, ZkRates *out) {
  const ZlCluster *c = &machine.is;
  (void)env;
  *out = (ZkRates){c->flops_bf16, c->flops_tf32, c->flops_f32, c->hbm, 1, c->sms};
}

#define COMMON                                                                                               \
  .open = open_device, .close = close_device, .describe = describe, .scratch = scratch, .alloc = allocate,   \
  .free = release, .zero = zero, .pinned = pinned, .unpin = unpin, .upload = upload, .stream = stream,       \
  .finish = finish
const ZxDeviceTable device_here = {.name = "cpu", .host = true, .run = run_here, .comm = comm_here, COMMON};
const ZxDeviceTable device_queued = {
    .name = "gpu", .run = run_queued, .comm = comm_queued, .rates = rates, .memory = memory, COMMON};
const ZxDeviceTable *const zx_devices[] = {&device_queued, &device_here, NULL};
