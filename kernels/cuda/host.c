/* Loops for kernels out of views, and memory that belongs to calls. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h" /* its nests */

#include "kernels/cuda/host.h"

int zkc_find(const ZkView *v, uint16_t axis) { return zk_axis_find(v, axis); }
int64_t zkc_size(const ZkView *v, uint16_t axis) { return zk_axis_size(v, axis); }
int64_t zkc_stride(const ZkView *v, uint16_t axis) { return zk_axis_stride(v, axis); }
int64_t zkc_start(const ZkView *v, uint16_t axis) { return zk_axis_start(v, axis); }
int64_t zkc_count(const ZkView *v) { return zk_view_count(v); }

/* shift = ceil(log2 n), mul = floor(2^32 (2^shift - n) / n) + 1 */
static ZkcDiv divisor(int64_t n) {
  ZB_ASSERT(n >= 1 && n <= (int64_t)1 << 31);
  ZkcDiv d = {.n = (unsigned)n};
  while (((uint64_t)1 << d.shift) < (uint64_t)n) d.shift++;
  d.mul = (unsigned)(((((uint64_t)1 << d.shift) - (uint64_t)n) << 32) / (uint64_t)n + 1);
  return d;
}

static ZkcNest for_device(const ZkNest *n) {
  ZkcNest d = {.nloops = n->nloops};
  int64_t count = zk_nest_count(n);
  ZB_ASSERT(n->nloops <= ZKC_LOOPS && n->nviews <= ZKC_VIEWS && count < (int64_t)1 << 32);
  d.count = (unsigned)count;
  for (int l = 0; l < n->nloops && count > 0; l++) {
    d.div[l] = divisor(n->loop[l].n);
    for (int v = 0; v < n->nviews; v++) d.stride[l][v] = n->loop[l].s[v];
  }
  return d;
}

ZkcNest zkc_nest(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in) {
  ZkNest n = zk_nest(views, nviews, ax, nax, in);
  zk_nest_order(&n, 0);
  return for_device(&n);
}

ZkcNest zkc_nest_run(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in,
                     ZkcRun *run) {
  ZkNest n = zk_nest(views, nviews, ax, nax, in);
  zk_nest_order(&n, 0);
  ZkLoop l = zk_nest_pop(&n);
  *run = (ZkcRun){.n = l.n};
  for (int v = 0; v < nviews; v++) run->stride[v] = l.s[v];
  return for_device(&n);
}

ZkcRun zkc_take(ZkcNest *nest, int l) {
  ZkcRun run = {.n = nest->div[l].n};
  memcpy(run.stride, nest->stride[l], sizeof run.stride);
  nest->nloops--;
  memmove(&nest->div[l], &nest->div[l + 1], (size_t)(nest->nloops - l) * sizeof nest->div[l]);
  memmove(&nest->stride[l], &nest->stride[l + 1], (size_t)(nest->nloops - l) * sizeof nest->stride[l]);
  nest->count /= (unsigned)run.n;
  return run;
}

ZkcUnits zkc_units(int64_t rows, int64_t n) {
  ZkcUnits u = {.n = n, .total = rows * n};
  if (n > 0 && n < (int64_t)1 << 31 && u.total < (int64_t)1 << 32) u.div = divisor(n);
  return u;
}

bool zkc_aligned(const ZkView *v, const ZkcNest *nest, int k, int64_t stride) {
  int64_t bytes = (int64_t)zk_plain_bytes((ZkElem)v->elem);
  if (stride != 1 || (uintptr_t)v->data % 16 != 0) return false;
  for (int l = 0; l < nest->nloops; l++)
    if (nest->stride[l][k] * bytes % 16 != 0) return false;
  return true;
}

bool zkc_wide(const ZkView *v, const ZkcNest *nest, int k, int64_t n, int64_t stride) {
  return n % 8 == 0 && zkc_aligned(v, nest, k, stride);
}

/* ---- memos ---------------------------------------------------------------------------------------- */
/* All that a call's shapes and attributes are, in bytes: what is not used is zero. */
typedef struct {
  uint16_t op;
  uint8_t nin, nout, nax, accumulate, repeatable, invariant;
  uint16_t ax[9];
  double num[2];
  int64_t opt[2];
  uint64_t room;
  struct {
    uint8_t elem, rank, aligned;
    uint16_t axis[ZK_MAX_AXES];
    int64_t size[ZK_MAX_AXES], stride[ZK_MAX_AXES], start[ZK_MAX_AXES], whole[ZK_MAX_AXES];
  } view[ZK_MAX_IN + ZK_MAX_OUT];
  uint16_t nops, nstored, stored[ZK_POINTWISE_OUT], prologue, operand;
  ZkPointwiseOp ops[ZK_POINTWISE_MAX_OPS];
} Key;

typedef struct {
  uint64_t hash;
  Key key;
  void (*drop)(void *);
  void *memo;
  bool made;
} Memo;

struct ZkCudaMemo {
  Memo **slot;
  size_t n, cap; /* a power of two, at least twice n */
};

static void key_view(Key *k, int i, const ZkView *v) {
  k->view[i].elem = v->elem;
  k->view[i].rank = v->rank;
  k->view[i].aligned = v->rank == 0 || (uintptr_t)v->data % 16 == 0; /* a scalar is read alone */
  for (int a = 0; a < v->rank; a++) {
    k->view[i].axis[a] = v->axis[a];
    k->view[i].size[a] = v->size[a];
    k->view[i].stride[a] = v->stride[a];
    k->view[i].start[a] = v->start[a];
    k->view[i].whole[a] = v->whole[a];
  }
}

static void key_of(Key *k, const ZkCall *c) {
  memset(k, 0, sizeof *k);
  k->op = c->op, k->nin = c->nin, k->nout = c->nout, k->nax = c->nax, k->accumulate = c->accumulate;
  k->repeatable = c->repeatable, k->invariant = c->invariant, k->room = c->room;
  memcpy(k->ax, c->ax, c->nax * sizeof *k->ax);
  memcpy(k->num, c->num, sizeof k->num);
  memcpy(k->opt, c->opt, sizeof k->opt);
  for (int i = 0; i < c->nin + c->nout; i++) key_view(k, i, i < c->nin ? &c->in[i] : &c->out[i - c->nin]);
  if (!c->pointwise) return;
  k->nops = c->pointwise->nops, k->nstored = c->pointwise->nout, k->prologue = c->pointwise->prologue,
  k->operand = c->pointwise->operand;
  memcpy(k->stored, c->pointwise->out, c->pointwise->nout * sizeof *k->stored);
  for (int i = 0; i < c->pointwise->nops;
       i++) { /* field by field: no padding, and nothing that its op does not use */
    const ZkPointwiseOp *o = &c->pointwise->ops[i];
    k->ops[i].op = o->op, k->ops[i].a = o->a, k->ops[i].b = o->b, k->ops[i].c = o->c;
    k->ops[i].elem = o->elem, k->ops[i].num = o->num;
  }
}

static uint64_t hash_of(const Key *k) {
  /* The views and ops that are there; sizes are multiples of 8 up to padding, which is zero. */
  const unsigned char *p = (const unsigned char *)k;
  size_t views = (size_t)(k->nin + k->nout);
  size_t head = offsetof(Key, view) + views * sizeof k->view[0], tail = offsetof(Key, nops);
  uint64_t h = 0, word;
  for (size_t i = 0; i + 8 <= head; i += 8) memcpy(&word, p + i, 8), h = zb_mix64(h + word) + i;
  for (size_t i = tail; i + 8 <= offsetof(Key, ops) + k->nops * sizeof k->ops[0]; i += 8)
    memcpy(&word, p + i, 8), h = zb_mix64(h + word) + i;
  return h;
}

static Memo **find_memo(ZkCudaMemo *m, uint64_t hash, const Key *k) {
  size_t i = hash & (m->cap - 1);
  while (m->slot[i] && (m->slot[i]->hash != hash || memcmp(&m->slot[i]->key, k, sizeof *k) != 0))
    i = (i + 1) & (m->cap - 1);
  return &m->slot[i];
}

static void *allocate(size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  ZB_ASSERT(p != NULL); /* host memory, at start-up: as zb_alloc */
  return p;
}

static void grow(ZkCudaMemo *m) {
  ZkCudaMemo old = *m;
  m->cap = old.cap ? 2 * old.cap : 256;
  m->slot = allocate(m->cap * sizeof *m->slot);
  for (size_t i = 0; i < old.cap; i++)
    if (old.slot[i]) *find_memo(m, old.slot[i]->hash, &old.slot[i]->key) = old.slot[i];
  free(old.slot);
}

void *zk_cuda_memo(ZkCuda *cu, const ZkCall *call, size_t bytes, ZkCudaMake *make, void (*drop)(void *)) {
  Key k;
  key_of(&k, call);
  uint64_t hash = hash_of(&k);
  if (!cu->memos) cu->memos = allocate(sizeof *cu->memos);
  ZkCudaMemo *m = cu->memos;
  if (2 * (m->n + 1) > m->cap) grow(m);
  Memo **at = find_memo(m, hash, &k);
  if (!*at) {
    *at = allocate(sizeof **at);
    m->n++;
    **at = (Memo){.hash = hash, .key = k, .drop = drop, .memo = allocate(bytes)};
  }
  Memo *mine = *at;
  if (mine->made) return mine->memo;
  if (cu->capturing) { /* it stays as it is, and is made when the step is queued anew */
    zk_cuda_fail(cu, call, "what it needs was not prepared", "it cannot be made while a step is captured");
    return mine->memo;
  }
  mine->made = true;
  make(cu, call, mine->memo); /* which may make others, and move the slots */
  return mine->memo;
}

void zk_cuda_forget(ZkCuda *cu) {
  ZkCudaMemo *m = cu->memos;
  if (!m) return;
  for (size_t i = 0; i < m->cap; i++) {
    if (!m->slot[i]) continue;
    if (m->slot[i]->drop && m->slot[i]->made) m->slot[i]->drop(m->slot[i]->memo);
    free(m->slot[i]->memo);
    free(m->slot[i]);
  }
  free(m->slot);
  free(m);
  cu->memos = NULL;
}
