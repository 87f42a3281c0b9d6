/* NCCL as far as zrun uses it, between processes that share a folder: messages go through mailboxes in a file that all
 * members map. As the real one: an operation holds its stream until its partners come; a send returns when its
 * receiver has all; the first transfer of a pair makes the callers themselves wait for each other, and so does the first
 * operation of members unless NCCL_RUNTIME_CONNECT is 0; a communicator that does not block is ready only when asked,
 * and so are those split from it.
 *
 * ZUG_TEST_NCCL_FAIL=N: after N operations communicators say that a rank has failed. */
#include "tests/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/exec/comm.h"

enum { RANKS = 8, SPLITS = 256, CHUNK = 16384 };

typedef struct {
  _Atomic int full;
  size_t total; /* of the message */
  char data[CHUNK];
} Box;

typedef struct {
  _Atomic int arrived, connected;
  _Atomic int met[RANKS][RANKS];
  _Atomic int color[SPLITS][RANKS]; /* + 2; 0: not said yet */
  Box box[RANKS][RANKS];            /* from, to */
} Shared;

struct ncclComm {
  char name[100];
  Shared *s;
  int rank, size;
  bool blocking, connected;
  int splits;
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
  c->blocking = blocking;
  c->connected = !gpu_setting("NCCL_RUNTIME_CONNECT", 1);
  atomic_fetch_add(&c->s->arrived, 1);
  return c;
}

static bool here(const struct ncclComm *c) { return atomic_load(&c->s->arrived) == c->size; }

/* ---- making communicators ---- */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int n;
  snprintf(id->internal, sizeof id->internal, "nccl-%d-%d", (int)getpid(), n++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
  ZB_ASSERT(config->maxCTAs >= 1 && config->maxCTAs <= 32);
  *out = join(id.internal, rank, size, config->blocking);
  while (config->blocking && !here(*out)) nap();
  return config->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  ZB_ASSERT(!c->blocking && config->blocking && key == c->rank && here(c) && !c->child && c->splits < SPLITS);
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
  if (!here(c) || (c->child && !go_on(c))) *state = ncclInProgress;
  else if (limit >= 0 && c->blocking && atomic_load(&operations) > limit) *state = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
  ZB_ASSERT(!c->child);
  if (c->rank == 0) unlink(c->name);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
  munmap(c->s, sizeof(Shared));
  free(c);
  return ncclSuccess;
}

/* ---- operations ---- */
typedef struct {
  bool send;
  int peer;
  char *p;
  size_t bytes, at;
  bool done;
} Part;

typedef struct {
  ncclComm_t comm;
  int nparts;
  Part part[2 * RANKS];
  /* a reduction: of own and what arrived at `room` */
  char *room, *out;
  const char *own;
  size_t n;
  ZxCommElem elem;
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
  p->at += n;
  atomic_store(&b->full, 1);
  return false;
}

static bool receives(const Op *o, Part *p) {
  Box *b = &o->comm->s->box[p->peer][o->comm->rank];
  if (p->at == p->bytes) return true;
  if (!atomic_load(&b->full)) return false;
  if (b->total != p->bytes) ZB_BUG("a message of %zu bytes where %zu are expected", b->total, p->bytes);
  size_t n = p->bytes - p->at < CHUNK ? p->bytes - p->at : CHUNK;
  memcpy(p->p + p->at, b->data, n);
  p->at += n;
  atomic_store(&b->full, 0);
  return p->at == p->bytes;
}

static void reduce(const Op *o) {
  const void *part[RANKS];
  size_t bytes = o->n * zx_elem_bytes(o->elem);
  for (int i = 0; i < o->comm->size; i++) part[i] = i == o->comm->rank ? o->own : o->room + (size_t)i * bytes;
  zx_combine(o->out, part, o->comm->size, o->n, o->elem, o->how);
}

static bool go(void *arg) {
  Op *o = arg;
  bool done = true;
  if (!o->begun && !o->room && o->own && o->out != o->own) memmove(o->out, o->own, o->n); /* the own part of a gather */
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
  free(((Op *)arg)->room);
  free(arg);
}

static Op *begin(ncclComm_t c) {
  Op *o = calloc(1, sizeof *o);
  ZB_ASSERT(o != NULL && c->blocking);
  o->comm = c;
  return o;
}

static void add(Op *o, bool send, int peer, const void *p, size_t bytes) {
  ZB_ASSERT(o->nparts < 2 * RANKS);
  o->part[o->nparts++] = (Part){send, peer, (char *)(uintptr_t)p, bytes, 0, false};
}

static ncclResult_t collective(Op *o, cudaStream_t stream) {
  ncclComm_t c = o->comm;
  if (!c->connected) { /* the first one: hosts wait for each other */
    int want = c->size;
    atomic_fetch_add(&c->s->connected, 1);
    while (atomic_load(&c->s->connected) < want) nap();
    c->connected = true;
  }
  atomic_fetch_add(&operations, 1);
  gpu_push(stream, go, drop, o);
  return ncclSuccess;
}

/* Room for one part of each member; what is sent to and received from each. */
static Op *reduction(ncclComm_t c, const void *in, size_t n, ncclDataType_t type, ncclRedOp_t op, size_t step) {
  Op *o = begin(c);
  o->elem = type == ncclFloat32 ? ZX_F32 : ZX_F64;
  ZB_ASSERT(type == ncclFloat32 || type == ncclFloat64);
  size_t bytes = n * zx_elem_bytes(o->elem);
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

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t stream) {
  Op *o = reduction(c, in, n, type, op, 0);
  o->out = out;
  return collective(o, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t stream) {
  Op *o = reduction(c, in, n, type, op, n * (type == ncclFloat32 ? 4 : 8));
  o->out = out;
  return collective(o, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t bytes, ncclDataType_t type, ncclComm_t c, cudaStream_t stream) {
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
  return collective(o, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t bytes, ncclDataType_t type, int root, ncclComm_t c,
                           cudaStream_t stream) {
  ZB_ASSERT(type == ncclUint8);
  Op *o = begin(c);
  for (int i = 0; i < c->size; i++)
    if (c->rank == root && i != root) add(o, true, i, in, bytes);
  if (c->rank != root) add(o, false, root, out, bytes);
  return collective(o, stream);
}

/* ---- transfers ---- */
static Op *group;
static int depth;
static cudaStream_t group_stream;

static ncclResult_t transfer(bool send, const void *p, size_t bytes, int peer, ncclComm_t c, cudaStream_t stream) {
  ncclGroupStart();
  if (!group) group = begin(c);
  ZB_ASSERT(group->comm == c);
  group_stream = stream;
  add(group, send, peer, p, bytes);
  return ncclGroupEnd();
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream) {
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
  atomic_fetch_add(&operations, 1);
  gpu_push(group_stream, go, drop, group);
  group = NULL;
  return ncclSuccess;
}

/* ---- words ---- */
ncclResult_t ncclGetVersion(int *v) {
  *v = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char *ncclGetLastError(ncclComm_t c) { return (void)c, "this is a test"; }
const char *ncclGetErrorString(ncclResult_t r) {
  return r == ncclSuccess ? "no error" : r == ncclRemoteError ? "remote process exited or there was a network error" : "another error";
}
