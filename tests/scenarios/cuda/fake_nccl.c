/* NCCL as far as zrun uses it, between processes that share a folder: messages go through mailboxes in a file
 * that all members map. As the real one: an operation holds its stream until its partners come; a send
 * returns when its receiver has all; the first transfer of a pair makes the callers themselves wait for each
 * other, and so does the first operation of members unless NCCL_RUNTIME_CONNECT is 0; a communicator that
 * does not block is ready only when asked, and so are those split from it.
 *
 * What the real one refuses, or hangs at, ends the program here: members that do not do the same, in the same
 * order, with the same sizes and types, captured or not; a communicator used while something of it goes on;
 * one ended before the graphs that have operations of it. So does one that is used on two streams at once,
 * which the real one orders by itself.
 *
 * ZUG_TEST_NCCL_FAIL=N: after N operations communicators say that a rank has failed. ZUG_TEST_NCCL_START=R:
 * rank R cannot
 * start, nor those that then look for it in vain; -1: none can, since two are on one GPU.
 * ZUG_TEST_NCCL_CAPTURE=R: rank R's tenth operation that is captured fails, and its communicator with it.
 * NCCL_COMM_BLOCKING=0, as the real one has it: no communicator blocks. ZUG_TEST_NCCL_VERSION=V: of what
 * version it is. */
#include "tests/scenarios/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/exec/comm/comm.h"

enum { RANKS = 8, SPLITS = 256, CHUNK = 16384 };

/* What a message is a part of; for transfers all but `captured` is 0. */
typedef struct {
  int kind, type, how;
  uint64_t number; /* among the communicator's collectives */
  size_t n;
  bool captured;
} Sign;
enum { ALL_REDUCE = 1, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
static const char *const kind_text[] = {"a transfer", "an all-reduce", "a reduce-scatter", "an all-gather",
                                        "a broadcast"};

typedef struct {
  _Atomic int full;
  size_t total; /* of the message */
  Sign sign;
  char data[CHUNK];
} Box;

typedef struct {
  _Atomic int arrived, connected, aborted;
  _Atomic int met[RANKS][RANKS];
  _Atomic int color[SPLITS][RANKS]; /* + 2; 0: not said yet */
  Box box[RANKS][RANKS];            /* from, to */
} Shared;

struct ncclComm {
  char name[100];
  Shared *s;
  int rank, size;
  bool blocking, connected, finalized;
  int splits;
  int busy;                         /* a communicator that does not block: how often it will still say so */
  uint64_t operations, collectives; /* members need not have as many of the others */
  cudaStream_t stream;              /* of the latest */
  _Atomic int living;               /* operations that are queued, or in a graph */
  ncclResult_t refused;             /* it could not start */
  /* a split that goes on */
  struct ncclComm **child;
  int color;
  bool arrived;
};

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

static ncclComm_t join(const char *name, int rank, int size, bool blocking) {
  ncclComm_t c = calloc(1, sizeof *c);
  ZB_ASSERT(c != NULL && size <= RANKS);
  snprintf(c->name, sizeof c->name, "%s", name);
  int fd = open(name, O_CREAT | O_RDWR, 0600);
  ZB_ASSERT(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0);
  c->s = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ZB_ASSERT(c->s != MAP_FAILED);
  close(fd);
  c->rank = rank;
  c->size = size;
  c->blocking = blocking && gpu_setting("NCCL_COMM_BLOCKING", 1);
  c->connected = !gpu_setting("NCCL_RUNTIME_CONNECT", 1);
  atomic_fetch_add(&c->s->arrived, 1);
  return c;
}

static bool here(const struct ncclComm *c) { return atomic_load(&c->s->arrived) == c->size; }

/* ---- making communicators ------------------------------------------------------------------------------ */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int n;
  snprintf(id->internal, sizeof id->internal, "nccl-%d-%d", (int)getpid(), n++);
  return ncclSuccess;
}

static const char *why = "";
static int world_rank;

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ZB_ASSERT(config->maxCTAs >= 1 && config->maxCTAs <= 32);
  long start = gpu_setting("ZUG_TEST_NCCL_START", -2);
  world_rank = rank;
  *out = join(id.internal, rank, size, config->blocking);
  if (start == -1)
    (*out)->refused = ncclInvalidUsage,
    why = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000";
  if (start == rank) (*out)->refused = ncclSystemError, why = "Call to connect failed";
  if ((*out)->refused) atomic_fetch_sub(&(*out)->s->arrived, 1); /* the others look for it */
  if (start >= -1) return ncclInProgress;
  while (config->blocking && !here(*out)) nap();
  return config->blocking ? ncclSuccess : ncclInProgress;
}

/* "Attempt to use communicator before the previous operation returned ncclSuccess" */
static bool ready(const struct ncclComm *c) {
  return here(c) && !c->child && !c->busy && !c->finalized && !c->refused;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  ZB_ASSERT(!c->blocking && config->blocking && key == c->rank && c->splits < SPLITS);
  if (!ready(c)) return ncclInvalidArgument;
  *out = NULL; /* until the split is done */
  c->child = out;
  c->color = color;
  c->arrived = false;
  atomic_store(&c->s->color[c->splits][c->rank], color + 2);
  return ncclInProgress;
}

/* Whether the split has come to its end. */
static bool go_on(ncclComm_t c) {
  _Atomic int *color = c->s->color[c->splits];
  int rank = 0, size = 0;
  for (int i = 0; i < c->size; i++) {
    int other = atomic_load(&color[i]);
    if (!other) return false;
    if (other != c->color + 2) continue;
    size++;
    rank += i < c->rank;
  }
  static struct ncclComm *made; /* of the one split at a time */
  if (c->color >= 0 && !c->arrived) {
    char name[160];
    snprintf(name, sizeof name, "%s-%d-%d", c->name, c->splits, c->color);
    made = join(name, rank, size, true);
    c->arrived = true;
  }
  if (c->color >= 0 && !here(made)) return false;
  if (c->color >= 0) *c->child = made;
  c->child = NULL;
  c->splits++;
  return true;
}

static _Atomic long operations;

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state) {
  long limit = gpu_setting("ZUG_TEST_NCCL_FAIL", -1);
  *state = ncclSuccess;
  if (c->refused) *state = c->refused;
  else if (atomic_load(&c->s->aborted)) *state = ncclRemoteError;
  else if (c->busy) c->busy--, *state = ncclInProgress;
  else if (!here(c) || (c->child && !go_on(c))) *state = ncclInProgress;
  else if (limit >= 0 && c->operations && atomic_load(&operations) > limit) *state = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  if (!ready(c)) return ncclInvalidArgument;
  for (int i = 0; atomic_load(&c->living); nap()) /* the real one waits for ever */
    if (++i == 40000)
      ZB_BUG("a communicator ends before %d of its operations, or before their graph",
             atomic_load(&c->living));
  c->finalized = true;
  if (c->rank == 0) unlink(c->name);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  ZB_ASSERT(c->finalized);
  munmap(c->s, sizeof(Shared));
  free(c);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c) {
  if (atomic_load(&c->living)) ZB_BUG("a communicator ends while a graph has its operations");
  atomic_store(&c->s->aborted, 1);
  unlink(c->name);
  munmap(c->s, sizeof(Shared));
  free(c);
  return ncclSuccess;
}

/* ---- operations ---------------------------------------------------------------------------------------- */
typedef struct {
  bool send;
  int peer;
  char *p;
  size_t bytes, at;
  bool done;
} Part;

typedef struct {
  ncclComm_t comm;
  Sign sign;
  int nparts;
  Part part[2 * RANKS];
  /* a reduction: of own and what arrived at `room` */
  char *room, *out;
  const char *own;
  size_t n;
  ZkElem elem;
  ZxReduce how;
  bool begun;
} Op;

static bool sends(const Op *o, Part *p) {
  Box *b = &o->comm->s->box[o->comm->rank][p->peer];
  if (atomic_load(&b->full)) return false;
  if (p->at == p->bytes) return true; /* the last of it was taken */
  size_t n = p->bytes - p->at < CHUNK ? p->bytes - p->at : CHUNK;
  memcpy(b->data, p->p + p->at, n);
  b->total = p->bytes;
  b->sign = o->sign;
  p->at += n;
  atomic_store(&b->full, 1);
  return false;
}

static void meet(const Sign *a, const Sign *b) {
  if (a->kind != b->kind || a->number != b->number)
    ZB_BUG("%s, number %zu, meets %s, number %zu", kind_text[a->kind], (size_t)a->number, kind_text[b->kind],
           (size_t)b->number);
  if (a->type != b->type || a->how != b->how || a->n != b->n)
    ZB_BUG("%s of %zu of type %d meets one of %zu of type %d", kind_text[a->kind], a->n, a->type, b->n,
           b->type);
  if (a->captured != b->captured) ZB_BUG("%s is captured on one rank only", kind_text[a->kind]);
}

static bool receives(const Op *o, Part *p) {
  Box *b = &o->comm->s->box[p->peer][o->comm->rank];
  if (p->at == p->bytes) return true;
  if (!atomic_load(&b->full)) return false;
  meet(&o->sign, &b->sign);
  if (b->total != p->bytes) ZB_BUG("a message of %zu bytes where %zu are expected", b->total, p->bytes);
  size_t n = p->bytes - p->at < CHUNK ? p->bytes - p->at : CHUNK;
  memcpy(p->p + p->at, b->data, n);
  p->at += n;
  atomic_store(&b->full, 0);
  return p->at == p->bytes;
}

static void reduce(const Op *o) {
  const void *part[RANKS];
  size_t bytes = zk_bytes(o->elem, o->n);
  for (int i = 0; i < o->comm->size; i++) part[i] = i == o->comm->rank ? o->own : o->room + (size_t)i * bytes;
  zx_combine(o->out, part, o->comm->size, o->n, o->elem, o->how);
}

static bool go(void *arg) {
  Op *o = arg;
  bool done = true;
  /* The own part of a gather. */
  if (!o->begun && !o->room && o->own && o->out != o->own) memmove(o->out, o->own, o->n);
  o->begun = true;
  for (int i = 0; i < o->nparts; i++) {
    Part *p = &o->part[i];
    if (!p->done) p->done = p->send ? sends(o, p) : receives(o, p);
    done &= p->done;
  }
  if (!done) return false;
  if (o->room) reduce(o);
  o->begun = false; /* a graph may do it again */
  for (int i = 0; i < o->nparts; i++) o->part[i].at = 0, o->part[i].done = false;
  return true;
}

static void drop(void *arg) {
  atomic_fetch_sub(&((Op *)arg)->comm->living, 1);
  free(((Op *)arg)->room);
  free(arg);
}

static Op *begin(ncclComm_t c) {
  Op *o = calloc(1, sizeof *o);
  ZB_ASSERT(o != NULL);
  o->comm = c;
  return o;
}

/* Into the stream; a communicator that does not block says when. */
static bool poisons(ncclComm_t c, cudaStream_t stream) {
  static int n;
  enum cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream, &status);
  if (status == cudaStreamCaptureStatusActive && gpu_setting("ZUG_TEST_NCCL_CAPTURE", -1) == world_rank) n++;
  if (status != cudaStreamCaptureStatusInvalidated && n != 10) return false;
  c->refused = ncclUnhandledCudaError;
  n++;
  return true;
}

static ncclResult_t give(Op *o, cudaStream_t stream) {
  ncclComm_t c = o->comm;
  if (poisons(c, stream)) return free(o->room), free(o), c->refused;
  if (c->stream != stream && atomic_load(&c->living)) ZB_BUG("a communicator is used on two streams at once");
  c->stream = stream;
  o->sign.captured = gpu_capturing(stream);
  c->operations++;
  atomic_fetch_add(&c->living, 1);
  atomic_fetch_add(&operations, 1);
  if (!c->blocking) c->busy = 2;
  gpu_push(stream, go, drop, o);
  return c->blocking ? ncclSuccess : ncclInProgress;
}

static void add(Op *o, bool send, int peer, const void *p, size_t bytes) {
  ZB_ASSERT(o->nparts < 2 * RANKS);
  o->part[o->nparts++] = (Part){send, peer, (char *)(uintptr_t)p, bytes, 0, false};
}

static ncclResult_t collective(Op *o, int kind, size_t n, ncclDataType_t type, cudaStream_t stream) {
  ncclComm_t c = o->comm;
  o->sign = (Sign){.kind = kind, .type = (int)type, .how = (int)o->how, .number = c->collectives, .n = n};
  if (!ready(c)) return free(o->room), free(o), ncclInvalidArgument;
  if (!c->connected) { /* the first one: hosts wait for each other */
    int want = c->size;
    atomic_fetch_add(&c->s->connected, 1);
    while (atomic_load(&c->s->connected) < want) nap();
    c->connected = true;
  }
  c->collectives++;
  return give(o, stream);
}

/* Room for one part of each member; what is sent to and received from each. */
static Op *reduction(ncclComm_t c, const void *in, size_t n, ncclDataType_t type, ncclRedOp_t op,
                     size_t step) {
  Op *o = begin(c);
  o->elem = type == ncclFloat32 ? ZK_F32 : type == ncclBfloat16 ? ZK_BF16 : ZK_F64;
  ZB_ASSERT(type == ncclFloat32 || type == ncclFloat64 || type == ncclBfloat16);
  size_t bytes = zk_bytes(o->elem, n);
  o->how = op == ncclMax ? ZX_MAX : ZX_SUM;
  o->n = n;
  o->room = malloc((size_t)c->size * bytes + 1);
  ZB_ASSERT(o->room != NULL);
  for (int i = 0; i < c->size; i++) {
    if (i == c->rank) continue;
    add(o, true, i, (const char *)in + (size_t)i * step, bytes);
    add(o, false, i, o->room + (size_t)i * bytes, bytes);
  }
  o->own = (const char *)in + (size_t)c->rank * step;
  return o;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream) {
  Op *o = reduction(c, in, n, type, op, 0);
  o->out = out;
  return collective(o, ALL_REDUCE, n, type, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t stream) {
  Op *o = reduction(c, in, n, type, op, n * (type == ncclFloat32 ? 4 : 8));
  o->out = out;
  return collective(o, REDUCE_SCATTER, n, type, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t bytes, ncclDataType_t type, ncclComm_t c,
                           cudaStream_t stream) {
  ZB_ASSERT(type == ncclUint8);
  Op *o = begin(c);
  o->own = in;
  o->out = (char *)out + (size_t)c->rank * bytes;
  o->n = bytes;
  for (int i = 0; i < c->size; i++) {
    if (i == c->rank) continue;
    add(o, true, i, in, bytes);
    add(o, false, i, (char *)out + (size_t)i * bytes, bytes);
  }
  return collective(o, ALL_GATHER, bytes, type, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t bytes, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t stream) {
  ZB_ASSERT(type == ncclUint8);
  Op *o = begin(c);
  for (int i = 0; i < c->size; i++)
    if (c->rank == root && i != root) add(o, true, i, in, bytes);
  if (c->rank != root) add(o, false, root, out, bytes);
  return collective(o, BROADCAST, bytes, type, stream);
}

/* ---- transfers ----------------------------------------------------------------------------------------- */
static Op *group;
static int depth;
static cudaStream_t group_stream;

static ncclResult_t transfer(bool send, const void *p, size_t bytes, int peer, ncclComm_t c,
                             cudaStream_t stream) {
  if (!ready(c)) return ncclInvalidArgument;
  ncclGroupStart();
  if (!group) group = begin(c);
  ZB_ASSERT(group->comm == c && (!group->nparts || group_stream == stream));
  group_stream = stream;
  add(group, send, peer, p, bytes);
  return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t stream) {
  ZB_ASSERT(type == ncclUint8);
  return transfer(true, p, n, peer, c, stream);
}
ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
  ZB_ASSERT(type == ncclUint8);
  return transfer(false, p, n, peer, c, stream);
}
ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  if (--depth || !group) return ncclSuccess;
  ncclComm_t c = group->comm;
  for (int i = 0; i < group->nparts; i++) atomic_store(&c->s->met[c->rank][group->part[i].peer], 1);
  for (int i = 0; i < group->nparts; i++)
    while (!atomic_load(&c->s->met[group->part[i].peer][c->rank])) nap();
  Op *o = group;
  group = NULL;
  return give(o, group_stream);
}

/* ---- words --------------------------------------------------------------------------------------------- */
ncclResult_t ncclGetVersion(int *v) {
  *v = (int)gpu_setting("ZUG_TEST_NCCL_VERSION", NCCL_VERSION_CODE);
  return ncclSuccess;
}
const char *ncclGetLastError(ncclComm_t c) { return (void)c, *why ? why : "this is a test"; }
const char *ncclGetErrorString(ncclResult_t r) {
  switch (r) {
  case ncclSuccess: return "no error";
  case ncclUnhandledCudaError: return "unhandled cuda error";
  case ncclSystemError: return "unhandled system error";
  case ncclInvalidArgument: return "invalid argument";
  case ncclInvalidUsage: return "invalid usage";
  case ncclRemoteError: return "remote process exited or there was a network error";
  default: return "another error";
  }
}
