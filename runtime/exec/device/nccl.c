/* The communicator over NCCL, and the only file that knows NCCL. What starts goes to the device's current
 * stream and is done for the host (-1): the rest is the streams' and events' to order. MPI remains the
 * communicator of the host's memory, by which ranks find each other, and which ends the job.
 *
 * Why ranks cannot come to wait for each other in a circle. An operation of NCCL is a kernel that holds its
 * place on the GPU until its partners run theirs, and more than one communicator has work there at the same
 * time. NCCL's documents ("Using multiple NCCL communicators concurrently") want one order of all operations,
 * the same on all devices. There is one: plan/schedule/program.c puts all that happens anywhere at a time of
 * one history, and each rank queues its program in that order (play.c, play_in_order). Whatever an operation
 * waits for is before it in the order, wherever it is: in its own stream, in another by an event, on a
 * partner's GPU. So the first one that is not complete can always go on, if only
 *
 *   1. hosts get to it. A host waits in a step for what it has queued (an input's upload, a call that is
 *      timed), where NCCL makes a connection, and wherever CUDA waits for a device on its own: to load a
 *      kernel that runs for the first time ("Lazy Loading" in the CUDA guide), to allocate. All that is
 *      before what comes next; it ends.
 *   2. it has room on the GPU beside operations that come later but were begun before. Kernels that end by
 *      themselves give room; an operation takes at most `ctas` blocks, a fraction of the multiprocessors, so
 *      that one of each stream has. Besides, NCCL from 2.26 on begins operations in the order of their hosts
 *      (NCCL_LAUNCH_ORDER_IMPLICIT=1). In a graph there are no streams, and nothing says which kernels may
 *      run at once: there that is needed, and older ones are not captured.
 *
 *    How strict that order is in a graph depends on the driver (NCCL 2.28, getImplicitOrder): before that of
 *    CUDA 12.9 (r575) an operation begins when the one before it has ended, so that a gather waits for a
 *    scatter, and both for a receive that was posted early; from 12.9 on only their beginnings are in order.
 *    It is one order of all either way. `describe` says which.
 *
 * Connections are made at start-up all the same (NCCL_RUNTIME_CONNECT=0, `connect`): steps should not wait
 * for them, and what memory they take is known then.
 *
 * Transfers match by their order, without tags: both ends' are parts of the plan's one order. They share one
 * stream in both directions; pairs that a schedule exchanges at the same time thus go one after the other.
 *
 * Communicators belong to one queue each: the engine makes groups of nodes and of the collective queue apart,
 * each with a stream, and transfers have one of their own. So have rings, whose hops are on the transfers'
 * queue as well: they are queued with the instruction that they are of, at one place of the one order on all
 * ranks of a ring.
 *
 * NCCL's sums are not those of combine.c. The order of additions is NCCL's to choose, so bits are those of
 * MPI's communicator only up to rounding; of bf16 every partial sum that one GPU passes on is rounded: N - 1
 * times in a ring of N, up to 2^-9 of the partial sum each, where MPI's rounds once. A maximum drops a NaN
 * that only one member has, unlike MPI's: what follows (a shift before exp) meets that NaN again. */
#include "runtime/exec/comm/same.h"
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/device/cuda.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_S 180           /* for making a communicator */
#define IN_ORDER 22600        /* NCCL 2.26 has NCCL_LAUNCH_ORDER_IMPLICIT */
#define STARTS_IN_ORDER 12090 /* version of CUDA that the driver knows */

typedef struct {
  ncclComm_t comm;
  ZxGroup inner;
  int rank, size;
  const char *what; /* the last operation, for messages: */
  size_t bytes;
  int peer; /* -1: a collective */
} Group;

typedef struct {
  int color, group;
} Split; /* group: -1: this rank is in none */

typedef struct {
  ZxComm base;
  ZxComm *inner; /* of the host's memory */
  ZkEnv *env;
  int rank, size, ctas;
  ncclComm_t root; /* does not block, and is there to be split */
  Group transfers;
  int *peer, npeers; /* of transfers */
  char *room;        /* on the device, for the first transfer with each: a byte to send, one from each */
  Group *group;
  int ngroups;
  Split *split; /* all of them, to be made again */
  int nsplits;
  bool capturing; /* the operation that begins is captured */
  char text[192];
} Nccl;

static Nccl *nccl(ZxComm *c) { return (Nccl *)c; }

/* ---- errors end the job, where they are known ---- */
static const char *last_words(void) {
  const char *last = ncclGetLastError(NULL);
  return last ? last : "";
}

static _Noreturn void fail(Nccl *n, const Group *g, ncclResult_t r, const char *what) {
  char text[24], where[160] = "";
  const char *last = last_words();
  if (g && g->what && g->peer >= 0)
    snprintf(where, sizeof where, "; last here: %s of %s with rank %d", g->what, zb_bytes(text, g->bytes),
             g->peer);
  else if (g && g->what)
    snprintf(where, sizeof where, "; last here: %s of %s among %d ranks", g->what, zb_bytes(text, g->bytes),
             g->size);
  zx_say(n->rank, "error: NCCL: %s: %s%s%s%s", what, ncclGetErrorString(r), *last ? ": " : "", last, where);
  n->inner->t->abort(n->inner, 1);
}

static void check(Nccl *n, const Group *g, ncclResult_t r, const char *what) {
  if (r != ncclSuccess && r != ncclInProgress) fail(n, g, r, what);
}

/* Others may wait for a message that only leaves when this rank calls MPI ("NCCL and MPI" in NCCL's
 * guide). */
static void keep_mpi_going(Nccl *n) {
  if (n->inner->t->progress) n->inner->t->progress(n->inner);
}

/* What has become of what goes on in the background of a communicator that does not block; ncclInProgress:
 * nothing, for long. */
static ncclResult_t outcome(Nccl *n, ncclComm_t comm) {
  ncclResult_t state = ncclSuccess, asked;
  ZxWait w = {0};
  for (double from = zb_now(); zb_now() - from < LIMIT_S;) {
    if ((asked = ncclCommGetAsyncError(comm, &state)) != ncclSuccess) return asked;
    if (state != ncclInProgress) break;
    keep_mpi_going(n);
    if (zx_pause(&w, NULL) == ZX_STALLS)
      zx_say(n->rank, "note: has waited %.0f s for other ranks in NCCL", zx_stall_after());
  }
  zx_watch_moved();
  return state;
}

static void settle(Nccl *n, const Group *g, ncclComm_t comm, const char *what) {
  ncclResult_t state = outcome(n, comm);
  if (state != ncclInProgress) {
    check(n, g, state, what);
    return;
  }
  zx_say(n->rank, "error: NCCL: %s: other ranks do not answer since %d s", what, LIMIT_S);
  n->inner->t->abort(n->inner, 1);
}

static void nccl_progress(ZxComm *c) {
  Nccl *n = nccl(c);
  ncclResult_t state;
  keep_mpi_going(n);
  for (int i = -1; i < n->ngroups; i++) {
    const Group *g = i < 0 ? &n->transfers : &n->group[i];
    if (!g->comm) continue;
    check(n, g, ncclCommGetAsyncError(g->comm, &state), "asking for errors");
    check(n, g, state, "a rank or the way to it has failed");
  }
}

/* ---- groups ---- */
static ncclConfig_t config_of(bool blocking, int ctas) {
  ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
  c.blocking = blocking;
  c.maxCTAs = ctas;
  return c;
}

/* Collective over the world. Operations of the new communicator return when they are in the stream: one that
 * does not block would start a thread for each, and would have to be asked whether they are there. */
static ncclComm_t split(Nccl *n, int color) {
  ncclComm_t comm = NULL;
  ncclConfig_t config = config_of(true, n->ctas);
  const char *what = "making a communicator";
  check(n, NULL, ncclCommSplit(n->root, color < 0 ? NCCL_SPLIT_NOCOLOR : color, n->rank, &comm, &config),
        what);
  settle(n, NULL, n->root, what); /* only then it is there */
  cudaGetLastError();             /* of what NCCL tried in vain; kernels look at it after their launches */
  if (color < 0) return NULL;
  if (!comm) fail(n, NULL, ncclInternalError, what);
  settle(n, NULL, comm, what);
  return comm;
}

static ZxGroup add(Nccl *n, ZxGroup inner, int color) {
  n->split = zx_need(realloc(n->split, zb_array_bytes((size_t)n->nsplits + 1, sizeof *n->split)));
  n->split[n->nsplits++] = (Split){color, color < 0 ? -1 : n->ngroups};
  ncclComm_t comm = split(n, color);
  if (color < 0) return -1;
  n->group = zx_need(realloc(n->group, zb_array_bytes((size_t)n->ngroups + 1, sizeof *n->group)));
  n->group[n->ngroups] = (Group){.comm = comm,
                                 .inner = inner,
                                 .rank = n->inner->t->group_rank(n->inner, inner),
                                 .size = n->inner->t->group_size(n->inner, inner),
                                 .peer = -1};
  return n->ngroups++;
}

static ZxGroup nccl_split(ZxComm *c, int color) {
  Nccl *n = nccl(c);
  ZxGroup inner = n->inner->t->split(n->inner, color);
  return add(n, inner, color);
}

/* The first transfer between two ranks makes their connection, and waits for the other's: here, where all
 * are. */
static void connect_transfers(Nccl *n) {
  Group *g = &n->transfers;
  cudaStream_t stream = zx_cuda(n->env)->stream[ZP_Q_P2P]; /* as all that follow */
  g->comm = split(n, 0);
  g->size = n->size;
  check(n, NULL, ncclGroupStart(), "connecting");
  for (int i = 0; i < n->npeers; i++) {
    check(n, NULL, ncclSend(n->room, 1, ncclUint8, n->peer[i], g->comm, stream), "connecting");
    check(n, NULL, ncclRecv(n->room + 1 + i, 1, ncclUint8, n->peer[i], g->comm, stream), "connecting");
  }
  check(n, NULL, ncclGroupEnd(), "connecting");
  settle(n, NULL, g->comm, "connecting");
  cudaGetLastError();
}

static void nccl_connect(ZxComm *c, const int *peer, int npeers) {
  Nccl *n = nccl(c);
  ZB_ASSERT(!n->room);
  n->peer = zx_need(malloc(zb_array_bytes((size_t)npeers + 1, sizeof *peer)));
  for (int i = 0; i < npeers; i++) n->peer[i] = peer[i];
  n->npeers = npeers;
  cudaError_t status = cudaMalloc((void **)&n->room, (size_t)npeers + 1);
  if (status != cudaSuccess) {
    zx_say(n->rank, "error: CUDA: no memory to connect ranks: %s", cudaGetErrorString(status));
    n->inner->t->abort(n->inner, 1);
  }
  connect_transfers(n);
}

/* ---- operations ---- */
/* Whether the step that is being captured is of no use any more. An operation would fail there, and with it
 * what its communicator is good for. */
static bool spoilt(Nccl *n) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(zx_cuda_stream(n->env), &status) != cudaSuccess) cudaGetLastError();
  n->capturing = status != cudaStreamCaptureStatusNone;
  return status == cudaStreamCaptureStatusInvalidated || (n->capturing && zx_cuda(n->env)->failed);
}

/* NULL: it is not to be begun. */
static Group *begin(ZxComm *c, ZxGroup gi, const char *what, size_t bytes) {
  Group *g = &nccl(c)->group[gi];
  g->what = what;
  g->bytes = bytes;
  return spoilt(nccl(c)) ? NULL : g;
}

static ncclDataType_t type_of(ZkElem e) {
  switch (e) {
  case ZK_F32: return ncclFloat32;
  case ZK_F64: return ncclFloat64;
  case ZK_BF16: return ncclBfloat16;
  default: break;
  }
  ZB_BUG("a reduction of bytes");
}
static ncclRedOp_t op_of(ZxReduce r) { return r == ZX_MAX ? ncclMax : ncclSum; }

/* What fails while it is captured makes the capture fail; nccl_rebuild comes then.
 * With NCCL_COMM_BLOCKING=0 in the environment even these communicators do not block; the next operation
 * would be refused. */
static ZxRequest end(ZxComm *c, const Group *g, ncclResult_t r) {
  Nccl *n = nccl(c);
  ZxCuda *d = zx_cuda(n->env);
  bool failed = r != ncclSuccess && r != ncclInProgress;
  if (failed && n->capturing) {
    d->failed = true;
    snprintf(d->failure, sizeof d->failure, "NCCL: %s: %s: %s", g->what, ncclGetErrorString(r), last_words());
  } else check(n, g, r, g->what);
  if (r == ncclInProgress) settle(n, g, g->comm, g->what);
  cudaGetLastError(); /* NCCL with our CUDA runtime leaves what it asked in vain (cudaErrorLossyQuery) */
  return -1;
}

static Group *transfer(ZxComm *c, const char *what, size_t bytes, int peer) {
  Group *g = &nccl(c)->transfers;
  ZB_ASSERT(g->comm != NULL);
  g->what = what;
  g->bytes = bytes;
  g->peer = peer;
  return spoilt(nccl(c)) ? NULL : g;
}

static ZxRequest nccl_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  (void)tag;
  const Group *g = transfer(c, "send", bytes, peer);
  return g ? end(c, g, ncclSend(p, bytes, ncclUint8, peer, g->comm, zx_cuda_stream(nccl(c)->env))) : -1;
}

static ZxRequest nccl_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)tag;
  const Group *g = transfer(c, "receive", bytes, peer);
  return g ? end(c, g, ncclRecv(p, bytes, ncclUint8, peer, g->comm, zx_cuda_stream(nccl(c)->env))) : -1;
}

static ZxRequest nccl_all_reduce(ZxComm *c, ZxGroup gi, void *p, size_t n, ZkElem e, ZxReduce op) {
  const Group *g = begin(c, gi, "all-reduce", zk_bytes(e, n));
  return g ? end(c, g, ncclAllReduce(p, p, n, type_of(e), op_of(op), g->comm, zx_cuda_stream(nccl(c)->env)))
           : -1;
}

static ZxRequest nccl_all_gather(ZxComm *c, ZxGroup gi, const void *part, size_t bytes, void *out) {
  const Group *g = begin(c, gi, "all-gather", bytes);
  return g ? end(c, g, ncclAllGather(part, out, bytes, ncclUint8, g->comm, zx_cuda_stream(nccl(c)->env)))
           : -1;
}

static ZxRequest nccl_reduce_scatter(ZxComm *c, ZxGroup gi, void *in, size_t n, ZkElem e, ZxReduce op,
                                     void *out) {
  const Group *g = begin(c, gi, "reduce-scatter", zk_bytes(e, n));
  return g ? end(c, g,
                 ncclReduceScatter(in, out, n, type_of(e), op_of(op), g->comm, zx_cuda_stream(nccl(c)->env)))
           : -1;
}

/* In one group, since each send waits for its receiver. */
static ncclResult_t exchange(const Group *g, const char *in, size_t bytes, char *out, cudaStream_t stream) {
  ncclResult_t r = ncclGroupStart(), ended;
  for (int i = 0; i < g->size && (r == ncclSuccess || r == ncclInProgress); i++) {
    r = ncclSend(in + (size_t)i * bytes, bytes, ncclUint8, i, g->comm, stream);
    if (r == ncclSuccess || r == ncclInProgress)
      r = ncclRecv(out + (size_t)i * bytes, bytes, ncclUint8, i, g->comm, stream);
  }
  ended = ncclGroupEnd();
  return r == ncclSuccess || r == ncclInProgress ? ended : r;
}

static ZxRequest nccl_all_to_all(ZxComm *c, ZxGroup gi, const void *in, size_t bytes, void *out) {
  const Group *g = begin(c, gi, "all-to-all", bytes);
  return g ? end(c, g, exchange(g, in, bytes, out, zx_cuda_stream(nccl(c)->env))) : -1;
}

static ncclResult_t send_or_receive(const Group *g, const ZxMessage *m, cudaStream_t stream) {
  return m->send ? ncclSend(m->p, m->bytes, ncclUint8, m->member, g->comm, stream)
                 : ncclRecv(m->p, m->bytes, ncclUint8, m->member, g->comm, stream);
}

static ZxRequest nccl_exchange(ZxComm *c, ZxGroup gi, const ZxMessage *m, int n) {
  size_t bytes = 0;
  for (int i = 0; i < n; i++) bytes += m[i].send ? m[i].bytes : 0;
  const Group *g = begin(c, gi, "exchange", bytes);
  if (!g || !n) return -1;
  ncclResult_t r = ncclGroupStart(), ended;
  for (int i = 0; i < n && (r == ncclSuccess || r == ncclInProgress); i++)
    r = send_or_receive(g, &m[i], zx_cuda_stream(nccl(c)->env));
  ended = ncclGroupEnd();
  return end(c, g, r == ncclSuccess || r == ncclInProgress ? ended : r);
}

static ZxRequest nccl_broadcast(ZxComm *c, ZxGroup gi, void *p, size_t bytes, int root) {
  const Group *g = begin(c, gi, "broadcast", bytes);
  return g ? end(c, g, ncclBroadcast(p, p, bytes, ncclUint8, root, g->comm, zx_cuda_stream(nccl(c)->env)))
           : -1;
}

static bool nccl_test(ZxComm *c, ZxRequest r) {
  (void)c;
  ZB_ASSERT(r < 0);
  return true;
}
static void nccl_wait(ZxComm *c, ZxRequest r) { nccl_test(c, r); }

/* ---- the rest ---- */
static bool nccl_stream_ordered(ZxComm *c) { return (void)c, true; }
/* Returns why steps are not captured. On an H200 (driver 580.159, CUDA 13.0, NCCL 2.28.9), with two ranks that
 * shared it by way of sockets, the driver crashed in cuGraphUpload of such a step. Without capture GPT-2 124M
 * loses 0.6 % on that card, so nobody risks it who has not asked for it. */
static const char *nccl_capture_blocker(ZxComm *c) {
  int version = 0;
  const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  ncclGetVersion(&version);
  if (nccl(c)->size == 1) return NULL;
  if (!zk_debug(&nccl(c)->env->debug, ZK_DEBUG_NCCL_CAPTURE))
    return "a captured step of NCCL's operations crashed in the driver (--debug nccl-capture=on captures it)";
  if (version < IN_ORDER) return "NCCL keeps its operations in order in a graph from 2.26 on only";
  return order && !strcmp(order, "0")
             ? "NCCL_LAUNCH_ORDER_IMPLICIT=0 leaves its operations in no order in a graph"
             : NULL;
}

/* Of a driver older than `STARTS_IN_ORDER`, operations of a captured step follow each other to their ends. */
static bool one_by_one(void) {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess && driver < STARTS_IN_ORDER;
}
static int nccl_rank(ZxComm *c) { return nccl(c)->rank; }
static int nccl_size(ZxComm *c) { return nccl(c)->size; }
static int nccl_node_rank(ZxComm *c) { return nccl(c)->inner->t->node_rank(nccl(c)->inner); }
static const int *nccl_nodes(ZxComm *c) { return nccl(c)->inner->t->nodes(nccl(c)->inner); }
static int nccl_group_rank(ZxComm *c, ZxGroup g) { return nccl(c)->group[g].rank; }
static int nccl_group_size(ZxComm *c, ZxGroup g) { return nccl(c)->group[g].size; }
static void nccl_barrier(ZxComm *c) { nccl(c)->inner->t->barrier(nccl(c)->inner); }
static __attribute__((noreturn)) void nccl_abort(ZxComm *c, int code) {
  nccl(c)->inner->t->abort(nccl(c)->inner, code);
}

static void drop(Nccl *n, ncclComm_t comm) {
  if (!comm) return;
  check(n, NULL, ncclCommFinalize(comm), "ending a communicator");
  settle(n, NULL, comm, "ending a communicator");
  check(n, NULL, ncclCommDestroy(comm), "ending a communicator");
}

static void nccl_free(ZxComm *c) {
  Nccl *n = nccl(c);
  drop(n, n->transfers.comm);
  for (int i = n->ngroups - 1; i >= 0; i--) drop(n, n->group[i].comm);
  drop(n, n->root);
  cudaFree(n->room);
  free(n->peer);
  free(n->split);
  free(n->group);
  free(n);
}

const char *zx_nccl_version(void) {
  static char text[32];
  int v = 0;
  ncclGetVersion(&v);
  snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v % 10000 / 100, v % 100);
  return text;
}

static const char *nccl_describe(ZxComm *c) {
  Nccl *n = nccl(c);
  bool slow = n->size > 1 && one_by_one();
  snprintf(n->text, sizeof n->text, "NCCL %s (at most %d blocks each)%s", zx_nccl_version(), n->ctas,
           slow ? "; in a captured step one after the other with this driver, from r575 on side by side"
                : "");
  return n->text;
}

/* The communicator of all, or NCCL's word for why not. */
static ncclResult_t find_others(Nccl *n) {
  ZxComm *world = n->inner;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  ncclResult_t r = n->rank ? ncclSuccess : ncclGetUniqueId(&id);
  if (!zx_agree(world, r == ncclSuccess)) return r != ncclSuccess ? r : ncclRemoteError;
  world->t->wait(world, world->t->broadcast(world, 0, &id, sizeof id, 0));
  ncclConfig_t config = config_of(false, 1); /* each block has buffers, and here no use */
  r = ncclCommInitRankConfig(&n->root, n->size, id, n->rank, &config);
  return r == ncclInProgress ? outcome(n, n->root) : r;
}

/* Collective. Where NCCL cannot start (two parts of one GPU, no network, a driver that is too old), the
 * lowest rank that knows it says why. Aborting tells those that still look for this one. */
static bool start_up(Nccl *n) {
  ZxComm *world = n->inner;
  ncclResult_t r = find_others(n);
  char why[200];
  const char *last = last_words();
  snprintf(why, sizeof why, "%s%s%s",
           r == ncclInProgress ? "other ranks do not answer" : ncclGetErrorString(r), *last ? ": " : "",
           last);
  if (r != ncclSuccess && n->root) ncclCommAbort(n->root);
  int64_t first = zx_lowest(world, r == ncclSuccess ? -1 : n->rank);
  if (first < 0) return true;
  if (r == ncclSuccess && n->root) ncclCommAbort(n->root);
  if (first == n->rank) zx_say(n->rank, "note: NCCL cannot start: %s", why);
  cudaGetLastError();
  return false;
}

/* A capture that failed on some rank may have left communicators there that only say so, and others
 * elsewhere. */
static void nccl_rebuild(ZxComm *c) {
  Nccl *n = nccl(c);
  if (n->transfers.comm) ncclCommAbort(n->transfers.comm);
  for (int i = n->ngroups - 1; i >= 0; i--) ncclCommAbort(n->group[i].comm);
  ncclCommAbort(n->root);
  n->root = NULL;
  if (!start_up(n)) fail(n, NULL, ncclInternalError, "starting again");
  for (int i = 0; i < n->nsplits; i++) {
    ncclComm_t comm = split(n, n->split[i].color);
    if (comm) n->group[n->split[i].group].comm = comm;
  }
  if (n->transfers.comm) connect_transfers(n);
}

static const ZxCommTable table = {
    .name = "nccl",
    .stall_hint = "NCCL_DEBUG=INFO says more",
    .describe = nccl_describe,
    .rank = nccl_rank,
    .size = nccl_size,
    .node_rank = nccl_node_rank,
    .nodes = nccl_nodes,
    .split = nccl_split,
    .group_rank = nccl_group_rank,
    .group_size = nccl_group_size,
    .connect = nccl_connect,
    .send = nccl_send,
    .recv = nccl_recv,
    .all_reduce = nccl_all_reduce,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_to_all = nccl_all_to_all,
    .broadcast = nccl_broadcast,
    .exchange = nccl_exchange,
    .test = nccl_test,
    .wait = nccl_wait,
    .barrier = nccl_barrier,
    .stream_ordered = nccl_stream_ordered,
    .capture_blocker = nccl_capture_blocker,
    .progress = nccl_progress,
    .rebuild = nccl_rebuild,
    .abort = nccl_abort,
    .free = nccl_free,
};

/* ---- who is there ---- */
/* Ranks that share a GPU with one of a lower number, as all of them count. */
static int sharing(ZxComm *world, const ZxCuda *d, int ranks) {
  struct cudaDeviceProp p;
  enum { BYTES = sizeof p.uuid };
  char *all = zx_need(calloc((size_t)ranks, BYTES));
  memset(&p, 0, sizeof p);
  bool known = cudaGetDeviceProperties(&p, d->device) == cudaSuccess;
  world->t->wait(world, world->t->all_gather(world, 0, &p.uuid, BYTES, all));
  int n = 0;
  for (int i = 0; i < ranks; i++) {
    bool twice = false;
    for (int k = 0; k < i; k++) twice |= !memcmp(all + i * BYTES, all + k * BYTES, BYTES);
    n += twice;
  }
  free(all);
  return zx_agree(world, known) ? n : ranks;
}

/* Blocks of an operation, the same on all ranks: with one on each queue but compute's there is a quarter left
 * for other kernels. */
static int blocks(ZxComm *world, const ZxCuda *d) {
  int64_t least = zx_lowest(world, d->cu->sms / ZP_QUEUES);
  return least < 1 ? 1 : least > 32 ? 32 : (int)least;
}

/* NCCL takes settings from the environment of each rank, and waits for ever where those that choose an
 * algorithm differ. */
static void same_settings(ZxComm *world) {
  static const char *const names[] = {"NCCL_ALGO",
                                      "NCCL_PROTO",
                                      "NCCL_NTHREADS",
                                      "NCCL_BUFFSIZE",
                                      "NCCL_MIN_CTAS",
                                      "NCCL_MAX_CTAS",
                                      "NCCL_MIN_NCHANNELS",
                                      "NCCL_MAX_NCHANNELS",
                                      "NCCL_LAUNCH_ORDER_IMPLICIT",
                                      "NCCL_RUNTIME_CONNECT",
                                      NULL};
  ZxFacts f = {.a = zb_arena_new()};
  zx_fact(&f, ZX_BUILD, "NCCL", "%s", zx_nccl_version());
  for (int i = 0; names[i]; i++) {
    const char *value = getenv(names[i]);
    zx_fact(&f, ZX_OPTIONS, names[i], "%s", value ? value : "none");
  }
  bool same = zx_same_or_say(world, &f);
  zb_arena_free(f.a);
  if (same) return;
  world->t->barrier(world); /* rank 0 has said it */
  world->t->abort(world, 1);
}

ZxComm *zx_comm_nccl(ZxComm *world, ZkEnv *env, const char **why) {
  int size = world->t->size(world);
  if (size == 1 && !zk_debug(&env->debug, ZK_DEBUG_NCCL_ALONE)) return *why = "there is one rank", NULL;
  if (sharing(world, zx_cuda(env), size)) {
    *why = "NCCL wants a GPU for every rank, and some share one";
    return NULL;
  }
  Nccl *n = zx_need(calloc(1, sizeof *n));
  *n = (Nccl){.base.t = &table, .inner = world, .env = env, .rank = world->t->rank(world), .size = size};
  n->ctas = blocks(world, zx_cuda(env));
  setenv("NCCL_RUNTIME_CONNECT", "0", 0); /* see the top of this file */
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  same_settings(world);
  if (!start_up(n)) {
    free(n);
    *why = "NCCL cannot start here";
    return NULL;
  }
  add(n, 0, 0);
  return &n->base;
}
