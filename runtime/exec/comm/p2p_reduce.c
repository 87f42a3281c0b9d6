/* Reductions by messages. They exchange directly, in rounds over a staging buffer. For 3 ranks and one round
 * of 6 elements, rank 1's view:
 *
 *                 rank 0      rank 1      rank 2
 *     exchange    a0..a5      b0..b5      c0..c5      rank i receives everybody's block i
 *                             [b2 b3] <- a2 a3, c2 c3
 *     combine                 s2 = a2 + b2 + c2, ...  always in rank order: the same bits on any layout
 *     spread      s0 s1  ->   s0..s5   <- s4 s5       everybody sends its block to all (all-reduce only)
 *
 * So every element is summed by one rank, and all members get the same bits. A vector that fits is simply
 * sent whole to everybody, which is one hop instead of two.
 *
 * Rounds of a group are started in the order in which its reductions were, and every group has its own
 * staging, so groups never wait for each other. */
#include "runtime/exec/comm/p2p_reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
  STAGE_BYTES = 512 << 10, /* staging of a round */
  WHOLE_BYTES = 4 << 10,   /* vectors up to this size are sent whole, ... */
  WHOLE_TRAFFIC = 16 << 10 /* ... unless all copies together are more than this */
};

typedef enum { ALL_REDUCE, REDUCE_SCATTER } Kind;

typedef struct {
  Kind kind;
  char *in, *out;
  size_t n, started, finished; /* elements of a block (REDUCE_SCATTER) or of the vector (ALL_REDUCE) */
  ZkElem elem;
  ZxReduce reduce;
} Op;

typedef enum { IDLE, EXCHANGE, EXCHANGE_WHOLE, SPREAD } Phase;

typedef struct {
  Phase phase;
  uint64_t op;
  size_t at, n; /* the round's elements of the operation's n */
  int tag;
  char *stage; /* the others' parts, in rank order */
} Slot;

struct ZxP2p {
  const ZxP2pTransport *t;
  int rank, size;
  Op *ops; /* those not yet done, at their number % nops */
  uint64_t nops;
  uint64_t begun, next, done; /* numbers: the next to come, the first with rounds to start, the first open */
  uint32_t rounds;            /* started so far: gives tags */
  uint64_t moves;
  Slot slot[ZX_P2P_SLOTS];
  const void **part; /* one pointer a member, for combining */
};

static Op *op_at(const ZxP2p *r, uint64_t number) { return &r->ops[number % r->nops]; }
static const char *name_of(const Op *o) { return o->kind == ALL_REDUCE ? "all-reduce" : "reduce-scatter"; }

/* The staging's pages cost nothing until a reduction touches them. */
ZxP2p *zx_p2p_new(const ZxP2pTransport *t, int rank, int size) {
  ZxP2p *r = zx_need(calloc(1, sizeof *r));
  size_t others = (size_t)size - 1, least = others * 16 * sizeof(double);
  *r = (ZxP2p){.t = t, .rank = rank, .size = size, .nops = 16};
  r->ops = zx_need(calloc(r->nops, sizeof *r->ops));
  r->part = zx_need(calloc((size_t)size, sizeof *r->part));
  for (int i = 0; i < ZX_P2P_SLOTS; i++)
    r->slot[i].stage = zx_need(malloc(least > STAGE_BYTES ? least : STAGE_BYTES));
  return r;
}

void zx_p2p_free(ZxP2p *r) {
  if (!r) return;
  for (int i = 0; i < ZX_P2P_SLOTS; i++) free(r->slot[i].stage);
  free(r->part);
  free(r->ops);
  free(r);
}

/* ---- where things lie ---- */
/* Element offsets of member i's block of an all-reduce's round of n elements; i = size gives the end. */
static size_t block_at(const ZxP2p *r, size_t n, int i) {
  size_t each = zb_round_up((n + (size_t)r->size - 1) / (size_t)r->size, 16);
  size_t at = each * (size_t)i;
  return at < n ? at : n;
}

/* Where member i's part of the round begins before the exchange, at this rank, and its elements. */
static char *member_part(const ZxP2p *r, const Slot *s, int i, size_t *n) {
  const Op *o = op_at(r, s->op);
  size_t at = s->at;
  *n = s->n;
  if (o->kind == REDUCE_SCATTER) {
    at += (size_t)i * o->n;
  } else if (s->phase != EXCHANGE_WHOLE) {
    size_t from = block_at(r, s->n, i);
    *n = block_at(r, s->n, i + 1) - from;
    at += from;
  }
  return o->in + zk_bytes(o->elem, at);
}

/* The place in the staging for member i's contribution to my part of n elements. */
static char *stage_of(const ZxP2p *r, const Slot *s, int i, size_t n) {
  return s->stage + zk_bytes(op_at(r, s->op)->elem, (size_t)(i - (i > r->rank)) * n);
}

/* ---- rounds ---- */
static void post_part(ZxP2p *r, void *group, const Slot *s, bool send, void *p, size_t n, int peer) {
  const Op *o = op_at(r, s->op);
  if (n)
    r->t->post(group, (int)(s - r->slot),
               &(ZxP2pMessage){name_of(o), send, p, zk_bytes(o->elem, n), peer, s->tag});
}

static int before(const ZxP2p *r, int k) { return (r->rank + r->size - k) % r->size; }
static int after(const ZxP2p *r, int k) { return (r->rank + k) % r->size; }

static void exchange(ZxP2p *r, void *group, Slot *s) {
  size_t n;
  member_part(r, s, r->rank, &n);
  for (int k = 1; k < r->size; k++)
    post_part(r, group, s, false, stage_of(r, s, before(r, k), n), n, before(r, k));
  for (int k = 1; k < r->size; k++) {
    char *p = member_part(r, s, after(r, k), &n);
    post_part(r, group, s, true, p, n, after(r, k));
  }
}

static void combine_slot(ZxP2p *r, Slot *s) {
  const Op *o = op_at(r, s->op);
  size_t n;
  char *mine = member_part(r, s, r->rank, &n);
  for (int i = 0; i < r->size; i++) r->part[i] = i == r->rank ? mine : stage_of(r, s, i, n);
  char *out = o->kind == REDUCE_SCATTER ? o->out + zk_bytes(o->elem, s->at) : mine;
  zx_combine(out, r->part, r->size, n, o->elem, o->reduce);
}

static void spread(ZxP2p *r, void *group, Slot *s) {
  size_t n;
  s->phase = SPREAD;
  for (int k = 1; k < r->size; k++) {
    char *p = member_part(r, s, before(r, k), &n);
    post_part(r, group, s, false, p, n, before(r, k));
  }
  char *mine = member_part(r, s, r->rank, &n);
  for (int k = 1; k < r->size; k++) post_part(r, group, s, true, mine, n, after(r, k));
}

/* Starts the next round of the first operation that has one. */
static void start_round(ZxP2p *r, void *group, Slot *s) {
  Op *o = op_at(r, r->next);
  size_t size = zk_plain_bytes(o->elem), others = (size_t)r->size - 1;
  size_t most = STAGE_BYTES / others / size & ~(size_t)15; /* elements of a part */
  if (!most) most = 16;
  size_t left = o->n - o->started;
  bool whole = o->n * size <= WHOLE_BYTES && o->n * size * others <= WHOLE_TRAFFIC;
  *s = (Slot){.phase = EXCHANGE, .op = r->next, .at = o->started, .stage = s->stage};
  if (o->kind == ALL_REDUCE && whole) s->phase = EXCHANGE_WHOLE;
  else if (o->kind == ALL_REDUCE) most *= (size_t)r->size;
  s->n = left < most ? left : most;
  s->tag = (int)(r->rounds++ % 16384); /* a number that any MPI takes; few are ever in flight */
  o->started += s->n;
  if (o->started == o->n) r->next++;
  exchange(r, group, s);
}

static void start_rounds(ZxP2p *r, void *group) {
  for (int i = 0; i < ZX_P2P_SLOTS && r->next < r->begun; i++)
    if (r->slot[i].phase == IDLE) start_round(r, group, &r->slot[i]);
}

static void progress_round(ZxP2p *r, void *group, Slot *s) {
  Op *o = op_at(r, s->op);
  if (!r->t->complete(group, (int)(s - r->slot), name_of(o), zk_bytes(o->elem, o->n))) return;
  r->moves++;
  if (s->phase != SPREAD) combine_slot(r, s);
  if (s->phase == EXCHANGE && o->kind == ALL_REDUCE) {
    spread(r, group, s);
    return;
  }
  o->finished += s->n;
  s->phase = IDLE;
  while (r->done < r->begun && op_at(r, r->done)->finished == op_at(r, r->done)->n) r->done++;
}

/* Rounds are started after all slots were looked at, in the order of operations: the same on all members. */
void zx_p2p_progress(ZxP2p *r, void *group) {
  for (int i = 0; i < ZX_P2P_SLOTS; i++)
    if (r->slot[i].phase != IDLE) progress_round(r, group, &r->slot[i]);
  start_rounds(r, group);
}

/* ---- operations ---- */
static uint64_t start(ZxP2p *r, void *group, Op op) {
  ZB_ASSERT(op.elem != ZK_U8 && op.n > 0 && r->size > 1);
  if (r->begun - r->done == r->nops) { /* happens while the first steps find out how many are ever open */
    Op *more = zx_need(calloc(2 * r->nops, sizeof *more));
    for (uint64_t i = r->done; i < r->begun; i++) more[i % (2 * r->nops)] = *op_at(r, i);
    free(r->ops);
    r->ops = more;
    r->nops *= 2;
  }
  *op_at(r, r->begun) = op;
  uint64_t number = r->begun++;
  start_rounds(r, group);
  return number;
}

uint64_t zx_p2p_all_reduce(ZxP2p *r, void *group, void *p, size_t n, ZkElem elem, ZxReduce reduce) {
  return start(r, group, (Op){ALL_REDUCE, .in = p, .out = p, .n = n, .elem = elem, .reduce = reduce});
}

uint64_t zx_p2p_reduce_scatter(ZxP2p *r, void *group, void *in, size_t n, ZkElem elem, ZxReduce reduce,
                               void *out) {
  return start(r, group, (Op){REDUCE_SCATTER, .in = in, .out = out, .n = n, .elem = elem, .reduce = reduce});
}

bool zx_p2p_done(const ZxP2p *r, uint64_t op) {
  return op < r->done || op_at(r, op)->finished == op_at(r, op)->n;
}
bool zx_p2p_idle(const ZxP2p *r) { return r->done == r->begun; }
uint64_t zx_p2p_moves(const ZxP2p *r) { return r->moves; }
