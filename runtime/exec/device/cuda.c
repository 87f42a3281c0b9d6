/* A GPU by CUDA: one stream for each queue of the plan, one allocation for the arena, kernels of
 * kernels/cuda.
 *
 * Kernels share their context's workspaces, and those belong to one stream: all kernels that may use one run
 * on the compute queue. On the others there are copies, flat sums, and what communicators put there. */
#include "runtime/exec/device/cuda.h"

#include <stdlib.h>
#include <string.h>
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#endif

/* ---- errors: calls that only queue work cannot return them, so the first one is kept for `finish` ---- */
static void note(ZxCuda *d, cudaError_t status, const char *what, size_t bytes) {
  if (status == cudaSuccess || d->failed) return;
  d->failed = true;
  char size[32] = "";
  if (bytes) snprintf(size, sizeof size, " of %zu bytes", bytes);
  snprintf(d->failure, sizeof d->failure, "CUDA: %s%s: %s", what, size, cudaGetErrorString(status));
  cudaGetLastError(); /* kernels look at it after their launches */
}

static bool check(cudaError_t status, const char *what, ZbErr *err) {
  if (status == cudaSuccess) return true;
  cudaGetLastError();
  return zb_fail(err, "", "CUDA: %s: %s", what, cudaGetErrorString(status));
}

/* ---- the device ---- */
static bool cuda_available(ZbErr *err) {
  int n = 0;
  cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaSuccess && n > 0) return true;
  cudaGetLastError();
  return zb_fail(err, "see what nvidia-smi says, or use --device cpu", "there is no CUDA device here: %s",
                 status == cudaSuccess ? "the driver knows none" : cudaGetErrorString(status));
}

static void cuda_close(ZkEnv *env);
static void cuda_drop_graph(ZkEnv *env);
static void cuda_graph(ZkEnv *env, uint32_t n);

/* Streams of communication come first where both have work: others wait for what they bring. */
static bool make_streams(ZxCuda *d, ZbErr *err) {
  int last, first;
  if (!check(cudaDeviceGetStreamPriorityRange(&last, &first), "stream priorities", err)) return false;
  for (int q = 0; q < ZP_QUEUES; q++)
    if (!check(cudaStreamCreateWithPriority(&d->stream[q], cudaStreamNonBlocking,
                                            q == ZP_Q_COMPUTE ? last : first),
               "cudaStreamCreate", err))
      return false;
  return true;
}

static void set_kind(ZkCuda *cu, const ZkEnv *env) {
  cu->tf32 = env->tf32, cu->repeatable = env->repeatable, cu->debug = env->debug;
  cu->attend_piece = (size_t)zk_debug(&env->debug, ZK_DEBUG_ATTEND_PIECE) << 20;
}

static bool cuda_open(ZkEnv *env, int node_rank, ZbErr *err) {
  int n = 0;
  if (!check(cudaGetDeviceCount(&n), "cudaGetDeviceCount", err)) return false;
  ZxCuda *d = calloc(1, sizeof *d);
  if (!d || n < 1) {
    free(d);
    return zb_fail(err, "", "there is no CUDA device, or no memory for its tables");
  }
  d->device = node_rank % n;
  d->shared = node_rank >= n;
  if (!(d->cu = zk_cuda_new(d->device, err))) {
    free(d);
    return false;
  }
  d->cu->owner = d;
  set_kind(d->cu, env);
  env->device = d->cu;
  if (make_streams(d, err)) {
    d->cu->stream = d->stream[ZP_Q_COMPUTE];
    return true;
  }
  cuda_close(env);
  return false;
}

static bool cuda_pretend(ZkEnv *env, ZbErr *err) {
  ZxCuda *d = calloc(1, sizeof *d);
  if (!d || !(d->cu = zk_cuda_pretend())) {
    free(d);
    return zb_fail(err, "", "no memory for a CUDA context");
  }
  d->cu->owner = d;
  set_kind(d->cu, env);
  env->device = d->cu;
  return true;
}

static void cuda_close(ZkEnv *env) {
  ZxCuda *d = zx_cuda(env);
  for (int q = 0; q < ZP_QUEUES; q++)
    if (d->stream[q]) {
      cudaStreamSynchronize(d->stream[q]);
      cudaStreamDestroy(d->stream[q]);
    }
  for (uint32_t i = 0; i < ZX_GRAPHS; i++) cuda_graph(env, i), cuda_drop_graph(env);
  for (uint32_t i = 0; i < d->nevents; i++) cudaEventDestroy(d->event[i]);
  for (int q = 0; q < ZP_QUEUES; q++)
    if (d->fork[q]) cudaEventDestroy(d->fork[q]);
  zk_cuda_free(d->cu);
  free(d->event);
  free(d);
  env->device = NULL;
}

static const char *cuda_describe(const ZkEnv *env) {
  ZxCuda *d = zx_cuda(env);
  int n = snprintf(d->text, sizeof d->text, "%s", zk_cuda_describe(d->cu));
#ifdef HAVE_CUBLASLT
  size_t v = cublasLtGetVersion();
  if (n > 0 && (size_t)n < sizeof d->text)
    n += snprintf(d->text + n, sizeof d->text - (size_t)n, ", cuBLASLt %zu.%zu", v / 10000, v % 10000 / 100);
#endif
#ifdef HAVE_NCCL
  if (n > 0 && (size_t)n < sizeof d->text)
    snprintf(d->text + n, sizeof d->text - (size_t)n, ", NCCL %s", zx_nccl_version());
#endif
  (void)n;
  return d->text;
}

/* ---- memory ---- */
static void cuda_memory(const ZkEnv *env, uint64_t *total, uint64_t *unused) {
  size_t f = 0, t = 0;
  note(zx_cuda(env), cudaMemGetInfo(&f, &t), "asking for the memory", 0);
  *total = t;
  *unused = f;
}

static void *cuda_alloc(const ZkEnv *env, size_t bytes, ZbErr *err) {
  ZxCuda *d = zx_cuda(env);
  void *p = NULL;
  char text[3][24];
  size_t left = 0, total = 0;
  cudaMemGetInfo(&left, &total);
  cudaError_t status = cudaMalloc(&p, bytes ? bytes : 1);
  if (status == cudaSuccess) status = cudaMemset(p, 0, bytes);
  if (status == cudaSuccess)
    status = cudaDeviceSynchronize(); /* streams of ours do not wait for the one that cleared */
  if (status == cudaSuccess) return p;
  cudaGetLastError();
  if (p) cudaFree(p);
  zb_fail(err, "", "cannot allocate the arena of %s on %s (device %d%s, %s of %s unused): %s",
          zb_bytes(text[0], bytes), d->cu->name, d->device,
          d->shared ? ", which ranks share unless each sees one of its own" : "", zb_bytes(text[1], left),
          zb_bytes(text[2], total), cudaGetErrorString(status));
  return NULL;
}

static void cuda_free(const ZkEnv *env, void *p, size_t bytes) {
  note(zx_cuda(env), cudaFree(p), "giving back the arena", bytes);
}

static void *cuda_pinned(const ZkEnv *env, size_t bytes, ZbErr *err) {
  (void)env;
  void *p = NULL;
  char text[24];
  cudaError_t status = cudaMallocHost(&p, bytes ? bytes : 1);
  if (status == cudaSuccess) return p;
  cudaGetLastError();
  zb_fail(err, "a smaller `micro` wants less; see also what `free` says, and the limit of a container",
          "cannot allocate %s of pinned host memory: %s", zb_bytes(text, bytes), cudaGetErrorString(status));
  return NULL;
}

static void cuda_unpin(const ZkEnv *env, void *p) {
  note(zx_cuda(env), cudaFreeHost(p), "giving back pinned memory", 0);
}

static void move(const ZkEnv *env, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                 const char *what) {
  if (bytes && to != from)
    note(zx_cuda(env), cudaMemcpyAsync(to, from, bytes, kind, zx_cuda_stream(env)), what, bytes);
}
static void cuda_copy(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  move(env, to, from, bytes, cudaMemcpyDeviceToDevice, "a copy");
}
static void cuda_upload(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  move(env, to, from, bytes, cudaMemcpyHostToDevice, "an upload");
}
static void cuda_download(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  move(env, to, from, bytes, cudaMemcpyDeviceToHost, "a download");
}
static void cuda_zero(const ZkEnv *env, void *p, size_t bytes) {
  if (bytes) note(zx_cuda(env), cudaMemsetAsync(p, 0, bytes, zx_cuda_stream(env)), "clearing", bytes);
}

/* ---- computing ---- */
static void on_compute(const ZkEnv *env) { ZB_ASSERT(zx_cuda(env)->current == ZP_Q_COMPUTE); }

static bool cuda_prepare(const ZkEnv *env, const ZkCall *call, ZbErr *err) {
  if (!zk_cuda_kernel(call->op))
    return zb_fail(err, "use --device cpu", "`%s` is not among the CUDA kernels of this build",
                   zg_op_info[call->op].text);
  zk_cuda_prepare(env, call);
  const char *error = zk_cuda_error(zx_cuda(env)->cu);
  return !error || zb_fail(err, "", "CUDA: %s", error);
}

static const char *cuda_late(const ZkEnv *env) { return zk_cuda_late(zx_cuda(env)->cu); }

static void cuda_rates(const ZkEnv *env, ZkRates *out) { *out = zx_cuda(env)->cu->rates; }

static uint32_t cuda_choices(const ZkEnv *env, void *out, uint32_t most, size_t *bytes) {
  *bytes = sizeof(ZkCudaChoice);
  return zk_cuda_choices(zx_cuda(env)->cu, out, most);
}

static void cuda_choose(const ZkEnv *env, const void *choices, uint32_t n) {
  zk_cuda_choose(zx_cuda(env)->cu, choices, n);
}

static void cuda_run(const ZkEnv *env, const ZkCall *call) {
  on_compute(env);
  zk_cuda_kernel(call->op)(env, call);
}

static const double *squares_of(const ZxScalars *clip) { return clip->most > 0 ? clip->squares : NULL; }
static ZkIfSound sums_of(const ZxScalars *clip) {
  return (ZkIfSound){clip->sums, clip->nsums, clip->divisors, clip->ndivisors};
}

static void cuda_optimize(const ZkEnv *env, const ZkOptimizer *p, const ZxScalars *clip, int64_t n, ZkFlat g,
                          ZkMaster w) {
  ZkOptimizer q = *p;
  q.scale = 1;
  zk_cuda_optimize(env, &q, squares_of(clip), clip->most, n, g, w, clip->lost, sums_of(clip));
}

static void cuda_orthogonalize(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                               float *x, float *scratch) {
  on_compute(env);
  zk_cuda_orthogonalize(env, rows, cols, steps, which, x, scratch);
}

static void cuda_side_factors(const ZkEnv *env, const ZkSides *p, const ZxScalars *clip, float *squares,
                              float *moments) {
  zk_cuda_side_factors(env, p, sums_of(clip), squares, moments);
}

static void cuda_update(const ZkEnv *env, const ZkUpdate *p, const ZxScalars *clip, int64_t n, const float *g,
                        ZkMaster w) {
  zk_cuda_update_state(env, p, n, g, w, clip->lost, sums_of(clip));
}

static void cuda_average(const ZkEnv *env, const ZxScalars *clip, int64_t n, float decay, ZkMaster w,
                         float *a) {
  zk_cuda_average_params(env, n, decay, w, a, sums_of(clip));
}

static void cuda_sumsq(const ZkEnv *env, int64_t n, ZkFlat x, double *sum) {
  on_compute(env);
  if (x.elem == ZK_F32) zk_cuda_sumsq(env, n, x.at, sum, true);
  else zk_cuda_sumsq_bf16(env, n, x.at, sum);
}

static void cuda_sumsq_params(const ZkEnv *env, int64_t n, ZkMaster w, double *sum) {
  on_compute(env);
  zk_cuda_sumsq_params(env, n, w, sum, true);
}

static void cuda_digest(const ZkEnv *env, const void *p, size_t bytes, uint64_t salt, uint64_t *sum) {
  on_compute(env);
  if (bytes) zk_cuda_digest(env, p, bytes, salt, sum);
}

/* ---- streams and events ---- */
static bool cuda_events(ZkEnv *env, uint32_t n, ZbErr *err) {
  ZxCuda *d = zx_cuda(env);
  ZB_ASSERT(!d->event);
  d->event = calloc(n, sizeof *d->event);
  if (!d->event) return zb_fail(err, "", "no host memory for %u events", n);
  for (; d->nevents < n; d->nevents++)
    if (!check(cudaEventCreateWithFlags(&d->event[d->nevents], cudaEventDisableTiming), "cudaEventCreate",
               err))
      return false;
  return true;
}

static void cuda_stream(ZkEnv *env, int queue) {
  ZxCuda *d = zx_cuda(env);
  d->current = queue;
  d->cu->stream = d->stream[queue];
}

static int cuda_current(const ZkEnv *env) { return zx_cuda(env)->current; }

static void cuda_record(const ZkEnv *env, uint32_t event) {
  note(zx_cuda(env), cudaEventRecord(zx_cuda(env)->event[event], zx_cuda_stream(env)), "an event", 0);
}

static void cuda_wait(const ZkEnv *env, uint32_t event) {
  note(zx_cuda(env), cudaStreamWaitEvent(zx_cuda_stream(env), zx_cuda(env)->event[event], 0),
       "waiting for an event", 0);
}

/* "Not yet" is no error, but is left where kernels look for errors. What failed counts as done: `finish` says
 * it. */
static bool done(ZxCuda *d, cudaError_t status, const char *what) {
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  note(d, status, what, 0);
  return true;
}

static bool cuda_reached(const ZkEnv *env, uint32_t event) {
  ZxCuda *d = zx_cuda(env);
  return done(d, cudaEventQuery(d->event[event]), "work before an event");
}

static bool cuda_idle(const ZkEnv *env) {
  ZxCuda *d = zx_cuda(env);
  for (int q = 0; q < ZP_QUEUES; q++)
    if (!done(d, cudaStreamQuery(d->stream[q]), "work on a stream")) return false;
  return true;
}

/* What a kernel did wrong is known some time after it began, and in a captured step not of which. */
static bool cuda_finish(const ZkEnv *env, ZbErr *err) {
  static const char where[] =
      "with --times and CUDA_LAUNCH_BLOCKING=1 in the environment the first call that fails is named";
  ZxCuda *d = zx_cuda(env);
  for (int q = 0; q < ZP_QUEUES; q++) note(d, cudaStreamSynchronize(d->stream[q]), "work on a stream", 0);
  const char *error = zk_cuda_error(d->cu);
  if (error) return zb_fail(err, where, "CUDA: %s", error);
  return !d->failed || zb_fail(err, where, "%s", d->failure);
}

/* ---- captured steps: CUDA graphs ----
 * The compute queue's stream is the origin: others come in by an event at the beginning, and are joined by
 * one of each at the end. What captured kernels report is no error of a run: all of it is done again, by
 * replay or anew. */
static bool fork_streams(ZxCuda *d, ZbErr *err) {
  cudaStream_t origin = d->stream[ZP_Q_COMPUTE];
  if (!check(cudaEventRecord(d->fork[ZP_Q_COMPUTE], origin), "cudaEventRecord", err)) return false;
  for (int q = 0; q < ZP_QUEUES; q++)
    if (q != ZP_Q_COMPUTE &&
        !check(cudaStreamWaitEvent(d->stream[q], d->fork[ZP_Q_COMPUTE], 0), "cudaStreamWaitEvent", err))
      return false;
  return true;
}

static bool join_streams(ZxCuda *d, ZbErr *err) {
  for (int q = 0; q < ZP_QUEUES; q++)
    if (q != ZP_Q_COMPUTE &&
        (!check(cudaEventRecord(d->fork[q], d->stream[q]), "cudaEventRecord", err) ||
         !check(cudaStreamWaitEvent(d->stream[ZP_Q_COMPUTE], d->fork[q], 0), "cudaStreamWaitEvent", err)))
      return false;
  return true;
}

static bool cuda_capture(ZkEnv *env, ZbErr *err) {
  ZxCuda *d = zx_cuda(env);
  for (int q = 0; q < ZP_QUEUES; q++)
    if (!d->fork[q] &&
        !check(cudaEventCreateWithFlags(&d->fork[q], cudaEventDisableTiming), "cudaEventCreate", err))
      return false;
  if (!check(cudaStreamBeginCapture(d->stream[ZP_Q_COMPUTE], cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture", err))
    return false;
  if (fork_streams(d, err)) return d->cu->capturing = true;
  cudaGraph_t none = NULL;
  cudaStreamEndCapture(d->stream[ZP_Q_COMPUTE], &none);
  if (none) cudaGraphDestroy(none);
  cudaGetLastError();
  return false;
}

/* The first thing that went wrong while a step was captured, taken back: it is to be said once, and is not
 * the run's. */
static bool went_well(ZxCuda *d, ZbErr *err) {
  const char *kernels = zk_cuda_error(d->cu);
  bool well = !d->failed && !kernels;
  if (!well) zb_fail(err, "", "%s", d->failed ? d->failure : kernels);
  d->failed = d->cu->failed = false;
  cudaGetLastError();
  return well;
}

/* What it takes grows with its nodes, so it is looked at before it is made runnable. */
static bool fits(ZxCuda *d, const ZkEnv *env, cudaGraph_t graph, ZbErr *err) {
  size_t nodes = 0;
  int64_t most = zk_debug(&env->debug, ZK_DEBUG_GRAPH_NODES);
  if (!check(cudaGraphGetNodes(graph, NULL, &nodes), "cudaGraphGetNodes", err)) return false;
  d->nodes = nodes;
  return (int64_t)nodes <= most ||
         zb_fail(err, "", "its graph has %zu nodes, and may have %lld (--debug graph-nodes)", nodes,
                 (long long)most);
}

static bool cuda_end_capture(ZkEnv *env, ZbErr *err) {
  ZxCuda *d = zx_cuda(env);
  cudaGraph_t graph = NULL;
  d->cu->capturing = false;
  bool ok = went_well(d, err) && join_streams(d, err);
  cudaError_t status =
      cudaStreamEndCapture(d->stream[ZP_Q_COMPUTE], &graph); /* also where it is of no use any more */
  ok = ok && check(status, "cudaStreamEndCapture", err) && fits(d, env, graph, err) &&
       check(cudaGraphInstantiateWithFlags(&d->graph[d->at], graph, cudaGraphInstantiateFlagUseNodePriority),
             "cudaGraphInstantiate", err);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  if (!ok) cuda_drop_graph(env);
  return ok;
}

static void cuda_replay(const ZkEnv *env) {
  ZxCuda *d = zx_cuda(env);
  note(d, cudaGraphLaunch(d->graph[d->at], zx_cuda_stream(env)), "starting a captured step", 0);
}

static void cuda_drop_graph(ZkEnv *env) {
  ZxCuda *d = zx_cuda(env);
  if (d->graph[d->at]) cudaGraphExecDestroy(d->graph[d->at]);
  d->graph[d->at] = NULL;
}

static void cuda_graph(ZkEnv *env, uint32_t n) {
  ZB_ASSERT(n < ZX_GRAPHS);
  zx_cuda(env)->at = n;
}

static uint64_t cuda_graph_nodes(const ZkEnv *env) { return zx_cuda(env)->nodes; }

static ZxComm *cuda_comm(ZxComm *world, ZkEnv *env, const char **why) {
#ifdef HAVE_NCCL
  return zx_comm_nccl(world, env, why);
#else
  (void)world, (void)env;
  *why = "this build has no NCCL";
  return NULL;
#endif
}

const ZxDeviceTable zx_device_cuda = {
    .name = "cuda",
    .available = cuda_available,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .scratch = zk_cuda_scratch,
    .supports = zk_cuda_supports,
    .describe = cuda_describe,
    .measure_flops = zx_cuda_measure_flops,
    .measure_copy = zx_cuda_measure_copy,
    .prepare = cuda_prepare,
    .fallback = zk_cuda_fallback,
    .rates = cuda_rates,
    .late = cuda_late,
    .choices = cuda_choices,
    .choose = cuda_choose,
    .pretend = cuda_pretend,
    .run = cuda_run,
    .optimize = cuda_optimize,
    .matrix = zk_cuda_matrix,
    .orthogonalize = cuda_orthogonalize,
    .update = cuda_update,
    .side_squares = zk_cuda_side_squares,
    .side_factors = cuda_side_factors,
    .side_scale = zk_cuda_side_scale,
    .average = cuda_average,
    .swap = zk_cuda_swap_params,
    .sumsq_params = cuda_sumsq_params,
    .sumsq = cuda_sumsq,
    .add_bf16 = zk_cuda_add_bf16,
    .axpy = zk_cuda_axpy,
    .to_bf16 = zk_cuda_to_bf16,
    .from_bf16 = zk_cuda_from_bf16,
    .zero = cuda_zero,
    .copy = cuda_copy,
    .gather = zk_cuda_gather_rows,
    .add_scalar = zk_cuda_add_scalar,
    .reciprocal = zk_cuda_reciprocal,
    .digest = cuda_digest,
    .pinned = cuda_pinned,
    .unpin = cuda_unpin,
    .upload = cuda_upload,
    .download = cuda_download,
    .events = cuda_events,
    .stream = cuda_stream,
    .current = cuda_current,
    .record = cuda_record,
    .wait = cuda_wait,
    .reached = cuda_reached,
    .idle = cuda_idle,
    .finish = cuda_finish,
    .capture = cuda_capture,
    .end_capture = cuda_end_capture,
    .replay = cuda_replay,
    .drop_graph = cuda_drop_graph,
    .graph = cuda_graph,
    .graph_nodes = cuda_graph_nodes,
    .memory = cuda_memory,
    .comm = cuda_comm,
#ifndef HAVE_NCCL
    .comm_missing = "this build has no NCCL",
#endif
};
