/* The CPU as a device: its memory is the host's, in one mapping that asks for huge pages, and its streams are
 * trivial. */
#include "runtime/exec/device/device.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

static bool cpu_open(ZkEnv *env, int node_rank, ZbErr *err) {
  (void)node_rank;
  const char *missing = zk_cpu_take(env);
  return !missing || zb_fail(err, "raise the limit (ulimit -v), or start fewer threads or ranks",
                             "a rank cannot have %s", missing);
}
static void cpu_close(ZkEnv *env) { (void)env; }

static void *cpu_alloc(const ZkEnv *env, size_t bytes, ZbErr *err) {
  (void)env;
  void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    char text[24];
    zb_fail(err, "use more ranks, `shard params, grads, states`, `recompute` or a smaller `micro`",
            "cannot allocate the arena of %s: %s", zb_bytes(text, bytes), strerror(errno));
    return NULL;
  }
#ifdef MADV_HUGEPAGE
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

static void cpu_free(const ZkEnv *env, void *p, size_t bytes) {
  (void)env;
  munmap(p, bytes ? bytes : 1);
}

static const char *cpu_describe(const ZkEnv *env) {
  (void)env;
  return zk_cpu_describe();
}

/* Every thread copies a part of a block that no cache holds, again and again. */
enum { COPIED = 64 << 20 };
typedef struct {
  char *from, *to;
  double seconds, *rate; /* of each thread */
} Copies;

static void copy_part(void *arg, int part, int parts) {
  const Copies *c = arg;
  size_t n = COPIED / (size_t)parts, at = n * (size_t)part;
  memset(c->from + at, 1, n); /* and so touches it; what was never written is one page of zeros */
  memcpy(c->to + at, c->from + at, n);
  double start = zb_now(), t = 0;
  long done = 0;
  for (; t < c->seconds; done++, t = zb_now() - start) memcpy(c->to + at, c->from + at, n);
  c->rate[part] = 2.0 * (double)n * (double)done / t;
}

static double cpu_measure_copy(const ZkEnv *env, int ms) {
  int threads = env->pool ? zk_pool_threads(env->pool) : 1;
  double rate[threads], sum = 0;
  ZbErr err;
  char *p = cpu_alloc(env, 2 * (size_t)COPIED, &err);
  if (!p) return 0;
  Copies c = {p, p + COPIED, ms * 1e-3, rate};
  if (env->pool) zk_pool_run(env->pool, copy_part, &c);
  else copy_part(&c, 0, 1);
  cpu_free(env, p, 2 * (size_t)COPIED);
  for (int i = 0; i < threads; i++) sum += rate[i];
  return sum;
}

static void cpu_run(const ZkEnv *env, const ZkCall *call) { zk_cpu_kernel(call->op)(env, call); }

/* As PyTorch's clip_grad_norm_. */
static float clip_scale(const ZxScalars *c) {
  double scale = c->most > 0 ? c->most / (sqrt(*c->squares) + 1e-6) : 1;
  return scale > 1 ? 1 : (float)scale;
}

static bool updates(const ZxScalars *c) {
  for (int i = 0; i < c->nsums; i++)
    if (!isfinite(c->sums[i])) return false;
  bool any = !c->ndivisors;
  for (int i = 0; i < c->ndivisors; i++) {
    if (c->divisors[i] < 0) return false;
    any |= c->divisors[i] > 0;
  }
  return any;
}

static void cpu_optimize(const ZkEnv *env, const ZkOptimizer *p, const ZxScalars *clip, int64_t n, ZkFlat g,
                         ZkMaster w) {
  ZkOptimizer q = *p;
  q.scale = clip_scale(clip);
  if (updates(clip)) {
    if (!zk_cpu_optimize(env, &q, n, g, w)) *clip->lost = 1;
  } else if (zk_optimizer_info[p->kind].matrices) {
    memset(w.f32, 0, (size_t)n * sizeof *w.f32);
  }
}

static void cpu_side_factors(const ZkEnv *env, const ZkSides *p, const ZxScalars *clip, float *squares,
                             float *moments) {
  (void)env;
  zk_cpu_side_factors(p, updates(clip), squares, moments);
}

static void cpu_update(const ZkEnv *env, const ZkUpdate *p, const ZxScalars *clip, int64_t n, const float *g,
                       ZkMaster w) {
  if (updates(clip) && !zk_cpu_update_state(env, p, n, g, w)) *clip->lost = 1;
}

static void cpu_average(const ZkEnv *env, const ZxScalars *clip, int64_t n, float decay, ZkMaster w,
                        float *a) {
  if (updates(clip)) zk_cpu_average_params(env, n, decay, w, a);
}

static void cpu_sumsq(const ZkEnv *env, int64_t n, ZkFlat x, double *sum) {
  *sum += x.elem == ZK_F32 ? zk_cpu_sumsq(env, n, x.at) : zk_cpu_sumsq_bf16(env, n, x.at);
}

static void cpu_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster w, double *sum) {
  *sum += zk_cpu_sumsq_params(env, n, w);
}

static void cpu_zero(const ZkEnv *env, void *p, size_t bytes) {
  (void)env;
  memset(p, 0, bytes);
}
static void cpu_copy(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env;
  memcpy(to, from, bytes);
}
static void cpu_gather(const ZkEnv *env, size_t n, size_t row, const int32_t *map, const void *from,
                       void *to) {
  (void)env;
  for (size_t i = 0; i < n; i++) {
    char *at = (char *)to + i * row;
    if (map[i] < 0) memset(at, 0, row);
    else memcpy(at, (const char *)from + (size_t)map[i] * row, row);
  }
}
static void cpu_add_scalar(const ZkEnv *env, const float *x, double *sum) {
  (void)env;
  *sum += *x;
}
static void cpu_reciprocal(const ZkEnv *env, const double *x, float *y) {
  (void)env;
  *y = *x > 0 ? (float)(1 / *x) : 0;
}

/* By pieces, so that it does not depend on the number of threads; the order of a sum does not matter. */
enum { HASHED = 256 << 10 };
typedef struct {
  const char *p;
  size_t bytes;
  uint64_t salt, *sum;
} Hash;
static void hash_part(void *arg, int part, int parts) {
  const Hash *h = arg;
  uint64_t sum = 0;
  for (size_t i = (size_t)part, at; (at = i * HASHED) < h->bytes; i += (size_t)parts)
    sum += XXH3_64bits_withSeed(h->p + at, h->bytes - at < HASHED ? h->bytes - at : HASHED, h->salt + i);
  __atomic_fetch_add(h->sum, sum, __ATOMIC_RELAXED);
}
static void cpu_digest(const ZkEnv *env, const void *p, size_t bytes, uint64_t salt, uint64_t *sum) {
  Hash h = {p, bytes, salt, sum};
  if (env->pool && bytes > HASHED) zk_pool_run(env->pool, hash_part, &h);
  else hash_part(&h, 0, 1);
}

/* ---- memory that the device can reach is the host's, as all of it ---- */
static void *cpu_pinned(const ZkEnv *env, size_t bytes, ZbErr *err) {
  char text[24];
  void *p = aligned_alloc(64, zb_round_up(bytes ? bytes : 1, 64));
  (void)env;
  if (!p) zb_fail(err, "", "cannot allocate %s", zb_bytes(text, bytes));
  return p;
}
static void cpu_unpin(const ZkEnv *env, void *p) {
  (void)env;
  free(p);
}

/* ---- streams and events: a call is done when it returns, so order is kept and events are reached ------- */
static bool cpu_events(ZkEnv *env, uint32_t n, ZbErr *err) { return (void)env, (void)n, (void)err, true; }
static void cpu_stream(ZkEnv *env, int queue) { (void)env, (void)queue; }
static int cpu_current(const ZkEnv *env) { return (void)env, 0; }
static void cpu_pass(const ZkEnv *env, uint32_t event) { (void)env, (void)event; }
static bool cpu_reached(const ZkEnv *env, uint32_t event) { return (void)env, (void)event, true; }
static bool cpu_idle(const ZkEnv *env) { return (void)env, true; }
static bool cpu_finish(const ZkEnv *env, ZbErr *err) { return (void)env, (void)err, true; }

/* Its memory is the host's. */
static ZxComm *cpu_comm(ZxComm *world, ZkEnv *env, const char **why) { return (void)env, (void)why, world; }

const ZxDeviceTable zx_device_cpu = {
    .name = "cpu",
    .host = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .scratch = zk_cpu_scratch,
    .describe = cpu_describe,
    .measure_flops = zk_cpu_measure_flops,
    .measure_copy = cpu_measure_copy,
    .run = cpu_run,
    .optimize = cpu_optimize,
    .matrix = zk_cpu_matrix,
    .orthogonalize = zk_cpu_orthogonalize,
    .update = cpu_update,
    .side_squares = zk_cpu_side_squares,
    .side_factors = cpu_side_factors,
    .side_scale = zk_cpu_side_scale,
    .average = cpu_average,
    .swap = zk_cpu_swap_params,
    .sumsq_params = cpu_sumsq_params,
    .sumsq = cpu_sumsq,
    .add_bf16 = zk_cpu_add_bf16,
    .axpy = zk_cpu_axpy,
    .to_bf16 = zk_cpu_to_bf16,
    .from_bf16 = zk_cpu_from_bf16,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .gather = cpu_gather,
    .add_scalar = cpu_add_scalar,
    .reciprocal = cpu_reciprocal,
    .digest = cpu_digest,
    .pinned = cpu_pinned,
    .unpin = cpu_unpin,
    .upload = cpu_copy,
    .download = cpu_copy,
    .events = cpu_events,
    .stream = cpu_stream,
    .current = cpu_current,
    .record = cpu_pass,
    .wait = cpu_pass,
    .reached = cpu_reached,
    .idle = cpu_idle,
    .finish = cpu_finish,
    .comm = cpu_comm,
};
