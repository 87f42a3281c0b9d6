/* attend and its gradient around a ring of ranks, each of which has a part of the sequence: one chunk, or two of
 * a zigzag sequence (plan/mesh/pieces.c). Queries stay; at step t the keys and values of the rank t before are here, and
 * what they add to the results is added. While a rank computes, what comes next arrives in the other of two
 * places of the node's scratch (ZpRing). Backward the sums of the gradients of keys and values follow them,
 * each rank's part added, and go home after the last step. Two chunks go round each by itself: one that nobody
 * sees any more does not go on.
 *
 * Where a device's streams order transfers, these are on the transfer queue's: each begins when compute has
 * come to where it is queued, and compute waits for it where it needs what it brings. Rings have groups of
 * their own, since operations of one group are queued on one stream.
 *
 * Example: 4 ranks, causal, steps 0 1 2 3. At step 1 rank 0 has the keys of rank 3, which its queries do not
 * see: it hands them on. With a window shorter than a chunk there are steps 0 and 1 only. Zigzag, rank 0 has
 * chunks 0 and 7, and at step 1 chunks 3 and 4: its chunk 7 sees both, as at every step two pairs of chunks of
 * four do. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

enum {
  KEYS,
  VALUES,
  DKEYS,
  DVALUES,
  TENSORS
}; /* tags of messages, of each chunk; peers are of one stage, whose ranks send each other no others */

enum { CHUNKS = 2 }; /* of a rank, at most */

typedef struct {
  ZxEngine *e;
  const ZpNode *n;
  const ZpSegment *s;
  ZkCall call; /* of all that the rank has, with keys and values of no chunk yet */
  ZxCut cut;   /* of its queries, where there are two chunks */
  bool back;
  int first; /* the operand q */
  int chunks;
  int64_t ranks, mine, length; /* length: of a chunk */
  char *scratch;
  ZpRing at;
  ZkView k, v;            /* as they are here at the beginning */
  bool begun[CHUNKS];     /* of each chunk of queries: its results have something */
  uint32_t steps[CHUNKS]; /* of each chunk of keys: so many of its steps have been */
} Ring;

static uint64_t bytes_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return zk_bytes((ZkElem)v->elem, n);
}

static int peer(const Ring *r, int64_t farther) {
  int64_t index = ((r->mine + farther) % r->ranks + r->ranks) % r->ranks;
  return (int)zp_group_member(&r->e->p->layout.mesh, r->e->rank, r->n->dims, index);
}

/* Messages of some tensors: each to the rank `hop` farther on, and from that as many before. */
typedef struct {
  ZxRequest request[2 * 2 * CHUNKS];
  int n;
} Hops;

static bool on_streams(const Ring *r) { return r->e->c->t->exchange != NULL; }

static void begin_hops(const Ring *r, Hops *h) {
  h->n = 0;
  if (!on_streams(r)) return;
  r->e->dev->record(r->e->env, r->e->ring_event);
  r->e->dev->stream(r->e->env, ZP_Q_P2P);
  r->e->dev->wait(r->e->env, r->e->ring_event);
}

static void add_hop(const Ring *r, Hops *h, int64_t hop, const void *from, void *to, uint64_t bytes,
                    int tag) {
  ZxComm *c = r->e->c;
  if (!on_streams(r)) {
    h->request[h->n++] = c->t->recv(c, to, bytes, peer(r, -hop), tag);
    h->request[h->n++] = c->t->send(c, from, bytes, peer(r, hop), tag);
    return;
  }
  int next = (int)((r->mine + hop + r->ranks) % r->ranks),
      last = (int)((r->mine - hop + r->ranks) % r->ranks);
  ZxMessage m[] = {{to, bytes, last, false}, {(void *)(uintptr_t)from, bytes, next, true}};
  zx_await(r->e, c->t->exchange(c, r->e->ring_group[r->n->dims], m, 2));
}

/* After the last: compute goes on. */
static void leave_hops(const Ring *r) {
  if (!on_streams(r)) return;
  r->e->dev->record(r->e->env, r->e->ring_event + 1);
  r->e->dev->stream(r->e->env, ZP_Q_COMPUTE);
}

static void end_hops(const Ring *r, const Hops *h) {
  if (on_streams(r)) r->e->dev->wait(r->e->env, r->e->ring_event + 1);
  for (int i = 0; i < h->n; i++) zx_await(r->e, h->request[i]);
}

/* Where the keys, values and sums of chunk c are at its own step number i. A single chunk is in place at first. */
static char *keys_at(const Ring *r, int c, uint32_t i) {
  if (r->chunks == 1 && !i) return r->k.data;
  return r->scratch + r->at.chunk[i & 1] + bytes_of(&r->k) / (uint64_t)r->chunks * (uint64_t)c;
}
static char *values_at(const Ring *r, int c, uint32_t i) {
  if (r->chunks == 1 && !i) return r->v.data;
  return r->scratch + r->at.chunk[i & 1] + r->at.v + bytes_of(&r->v) / (uint64_t)r->chunks * (uint64_t)c;
}
static char *dkeys_at(const Ring *r, int c, uint32_t i) {
  return r->scratch + r->at.sums[i & 1] + bytes_of(&r->call.out[1]) / (uint64_t)r->chunks * (uint64_t)c;
}
static char *dvalues_at(const Ring *r, int c, uint32_t i) {
  return r->scratch + r->at.sums[i & 1] + r->at.dv +
         bytes_of(&r->call.out[2]) / (uint64_t)r->chunks * (uint64_t)c;
}

/* A chunk of keys, or of what is like them, dense at p. */
static ZkView chunk_view(const Ring *r, const ZkView *whole, void *p, int64_t start) {
  ZkView v = *whole;
  int64_t stride = 1;
  v.data = p;
  for (int i = v.rank; i-- > 0;) {
    if (v.axis[i] == r->n->axis) v.size[i] = r->length, v.start[i] = start;
    v.stride[i] = stride;
    stride *= v.size[i];
  }
  return v;
}

/* Chunk c of what the rank has of a tensor. */
static ZkView part_view(const Ring *r, const ZkView *whole, int c) {
  ZkView v = *whole;
  for (int i = 0; i < v.rank; i++)
    if (v.axis[i] == r->n->axis) {
      v.data = zk_at(&v, c * r->length * v.stride[i]);
      v.size[i] = r->length;
      v.start[i] = 0;
    }
  return v;
}

/* To the type of `to`, which may be another. */
static const ZkPointwise same = {.nout = 1};
static ZkCall stored(ZkView from, ZkView to) {
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 1, .nout = 1, .pointwise = &same};
  if (from.elem == to.elem) c = (ZkCall){.op = ZG_OP_COPY, .nin = 1, .nout = 1};
  memset(from.start, 0, sizeof from.start);
  memset(to.start, 0, sizeof to.start);
  c.in[0] = from;
  c.out[0] = to;
  return c;
}
static void store(const Ring *r, ZkView from, ZkView to) {
  ZkCall c = stored(from, to);
  if (from.data != to.data) r->e->dev->run(r->e->env, &c);
}

/* Results that steps make in f32: the other one of attend's is so anyway. */
static int made_by(const ZkCall *c) { return c->op == ZG_OP_ATTEND_GRAD ? 3 : 1; }

bool zx_prepare_ring(ZxEngine *e, const ZkCall *call, ZbErr *err) {
  ZkCall c = *call;
  bool ok = true;
  for (int i = 0; i < made_by(call); i++) {
    c.out[i].elem = ZK_F32;
    ZkCall s = stored(c.out[i], call->out[i]);
    ok = ok && e->dev->prepare(e->env, &s, err);
  }
  for (int on = 0; on < 2; on++) {
    c.accumulate = on;
    ok = ok && e->dev->prepare(e->env, &c, err);
  }
  return ok;
}

/* What queries of chunk `own` make of the keys of chunk c, which are those of the rank `farther` before. */
static void meet(Ring *r, int own, int c, int64_t farther) {
  int64_t from = (r->mine - farther + r->ranks) % r->ranks, key = zp_ring_chunk(r->chunks, r->ranks, from, c);
  uint32_t i = r->steps[c];
  if (!zp_ring_sees(r->n, r->length, zp_ring_chunk(r->chunks, r->ranks, r->mine, own), key)) return;
  ZkCall one = r->chunks == 1 ? r->call : zx_cut_call(&r->call, &r->cut, own);
  one.in[r->first + 1] = chunk_view(r, &r->k, keys_at(r, c, i), key * r->length);
  one.in[r->first + 2] = chunk_view(r, &r->v, values_at(r, c, i), key * r->length);
  if (r->back) {
    one.out[1] = chunk_view(r, &r->call.out[1], dkeys_at(r, c, i), 0);
    one.out[2] = chunk_view(r, &r->call.out[2], dvalues_at(r, c, i), 0);
  }
  one.accumulate = r->begun[own];
  r->begun[own] = true;
  r->e->dev->run(r->e->env, &one);
}

/* Its keys and values go `hop` ranks on. */
static void hand_keys(const Ring *r, Hops *h, int c, int64_t hop) {
  uint32_t i = r->steps[c];
  uint64_t k = bytes_of(&r->k) / (uint64_t)r->chunks, v = bytes_of(&r->v) / (uint64_t)r->chunks;
  add_hop(r, h, hop, keys_at(r, c, i), keys_at(r, c, i + 1), k, TENSORS * c + KEYS);
  add_hop(r, h, hop, values_at(r, c, i), values_at(r, c, i + 1), v, TENSORS * c + VALUES);
}

/* So do the sums of its gradients, where they are those of its next step. */
static void hand_sums(const Ring *r, int c, int64_t hop) {
  uint32_t i = r->steps[c];
  uint64_t dk = bytes_of(&r->call.out[1]), dv = bytes_of(&r->call.out[2]), n = (uint64_t)r->chunks;
  Hops h;
  begin_hops(r, &h);
  add_hop(r, &h, hop, dkeys_at(r, c, i), dkeys_at(r, c, i + 1), dk / n, TENSORS * c + DKEYS);
  add_hop(r, &h, hop, dvalues_at(r, c, i), dvalues_at(r, c, i + 1), dv / n, TENSORS * c + DVALUES);
  leave_hops(r);
  end_hops(r, &h);
}

/* How many ranks on the next step is that chunk c takes part in; 0: there is none. */
static int64_t hop_of(const Ring *r, int c, uint32_t i) {
  for (uint32_t j = i + 1; j < r->n->nsteps; j++)
    if (r->n->chunks[j] >> c & 1) return (int64_t)r->n->steps[j] - r->n->steps[i];
  return 0;
}

static void go_round(Ring *r) {
  for (uint32_t i = 0; i < r->n->nsteps; i++) {
    Hops hops;
    int64_t hop[CHUNKS], at = (int64_t)r->n->steps[i];
    begin_hops(r, &hops);
    for (int c = 0; c < r->chunks; c++) {
      bool here = r->n->chunks[i] >> c & 1;
      hop[c] = here ? hop_of(r, c, i) : 0;
      if (hop[c]) hand_keys(r, &hops, c, hop[c]);
    }
    leave_hops(r);
    for (int c = 0; c < r->chunks; c++)
      for (int own = 0; own < r->chunks && r->n->chunks[i] >> c & 1; own++) meet(r, own, c, at);
    end_hops(r, &hops);
    for (int c = 0; c < r->chunks; c++) {
      bool goes = hop[c] || (at && r->n->chunks[i] >> c & 1); /* home, from its last step */
      if (r->back && goes) hand_sums(r, c, hop[c] ? hop[c] : -at);
      if (goes) r->steps[c]++;
    }
  }
}

/* Two chunks begin where the others will arrive, each dense; and sums of which not all of a chunk's queries begin
 * at its first step, with zeros. */
static void begin_chunks(Ring *r) {
  for (int c = 0; c < r->chunks; c++) {
    store(r, part_view(r, &r->k, c), chunk_view(r, &r->k, keys_at(r, c, 0), 0));
    store(r, part_view(r, &r->v, c), chunk_view(r, &r->v, values_at(r, c, 0), 0));
    r->begun[c] = r->back;
  }
  for (int i = 0; r->back && i < 3; i++) {
    void *p = i ? i == 1 ? dkeys_at(r, 0, 0) : dvalues_at(r, 0, 0) : r->call.out[0].data;
    r->e->dev->zero(r->e->env, p, bytes_of(&r->call.out[i]));
  }
}

void zx_ring(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call) {
  Ring r = {.e = e,
            .n = n,
            .s = s,
            .call = *call,
            .back = n->call.op == ZG_OP_ATTEND_GRAD,
            .scratch = call->scratch};
  r.first = zg_attend_first(call->op);
  r.chunks = zp_ring_chunks(&e->p->layout.mesh, n);
  r.cut = zx_cut(e, s, n);
  r.ranks = zp_group_size(&e->p->layout.mesh, n->dims);
  r.mine = zp_group_index(&e->p->layout.mesh, e->rank, n->dims);
  r.at = zp_ring(s, n);
  r.k = call->in[r.first + 1], r.v = call->in[r.first + 2];
  for (int i = 0; i < r.k.rank; i++)
    if (r.k.axis[i] == n->axis) r.length = r.k.size[i] / r.chunks;
  r.call.scratch = r.scratch + r.at.kernel;
  ZkView *made = &r.call.out[0]; /* o, or dq */
  if (made->elem != ZK_F32) made->data = r.scratch + r.at.queries;
  made->elem = ZK_F32;
  for (int i = 1; r.back && i < 3; i++) r.call.out[i].elem = ZK_F32;
  if (r.chunks > 1) begin_chunks(&r);
  go_round(&r);
  store(&r, *made, call->out[0]);
  for (int i = 1; r.back && i < 3; i++)
    for (int c = 0; c < r.chunks; c++) {
      char *sum = i == 1 ? dkeys_at(&r, c, r.steps[c]) : dvalues_at(&r, c, r.steps[c]);
      store(&r, chunk_view(&r, &r.call.out[i], sum, 0), part_view(&r, &call->out[i], c));
    }
}
