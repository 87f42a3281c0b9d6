/* attend and its gradient around a ring of ranks, each of which has a chunk of the sequence. Queries stay; at
 * step t the keys and values of the chunk t before are here, and what they add to the results is added. While
 * a rank computes, what comes next arrives in the other of two chunks of the node's scratch (ZpRing).
 * Backward the sums of the gradients of keys and values follow them, each rank's part added, and go home
 * after the last step.
 *
 * Example: 4 ranks, causal, steps 0 1 2 3. At step 1 rank 0 has the keys of rank 3, which its queries do not
 * see: it hands them on. With a window shorter than a chunk there are steps 0 and 1 only. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

enum {
  KEYS,
  VALUES,
  DKEYS,
  DVALUES
}; /* tags of messages; peers are of one stage, whose ranks send each other no others */

typedef struct {
  ZxEngine *e;
  const ZpNode *n;
  const ZpSegment *s;
  ZkCall call; /* of a step */
  bool back;
  int first; /* the operand q */
  int64_t ranks, mine, length;
  char *scratch;
  ZpRing at;
  ZkView k, v; /* as they are here at the beginning */
} Ring;

static uint64_t bytes_of(const ZkView *v) {
  uint64_t n = zk_elem_bytes((ZkElem)v->elem);
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return n;
}

static int peer(const Ring *r, int64_t farther) {
  int64_t index = ((r->mine + farther) % r->ranks + r->ranks) % r->ranks;
  return (int)zp_group_member(&r->e->p->mesh, r->e->rank, r->n->dims, index);
}

/* A pair of messages, of one tensor: to the rank `hop` farther on, and from that as many before. */
typedef struct {
  ZxRequest sent, got;
} Hop;
static Hop begin_hop(const Ring *r, int64_t hop, const void *from, void *to, uint64_t bytes, int tag) {
  ZxComm *c = r->e->c;
  ZxRequest got = c->t->recv(c, to, bytes, peer(r, -hop), tag);
  return (Hop){c->t->send(c, from, bytes, peer(r, hop), tag), got};
}
static void end_hop(const Ring *r, Hop h) {
  zx_await(r->e, h.got);
  zx_await(r->e, h.sent);
}

/* Chunk number i of those that pass: the first is the rank's own, the others are in scratch by turns. */
static char *keys_at(const Ring *r, uint32_t i) { return i ? r->scratch + r->at.chunk[i & 1] : r->k.data; }
static char *values_at(const Ring *r, uint32_t i) {
  return i ? r->scratch + r->at.chunk[i & 1] + r->at.v : r->v.data;
}
static char *sums_at(const Ring *r, uint32_t i) { return r->scratch + r->at.sums[i & 1]; }

static void set_start(ZkView *v, uint16_t axis, int64_t start) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) v->start[i] = start;
}

/* What queries make of the keys of step i, and these of their gradients. */
static void meet(Ring *r, uint32_t i) {
  int64_t chunk = (r->mine - (int64_t)r->n->steps[i] + r->ranks) % r->ranks;
  ZkCall *c = &r->call;
  ZkView *k = &c->in[r->first + 1], *v = k + 1;
  c->accumulate = i > 0;
  k->data = keys_at(r, i), v->data = values_at(r, i);
  set_start(k, r->n->axis, chunk * r->length);
  set_start(v, r->n->axis, chunk * r->length);
  if (r->back) c->out[1].data = sums_at(r, i), c->out[2].data = sums_at(r, i) + r->at.dv;
  if (zp_ring_sees(r->n, r->length, r->mine, chunk)) r->e->dev->run(r->e->env, c);
}

/* Sums of step i go `hop` ranks on, where they are those of the step after. */
static void hand_sums(const Ring *r, uint32_t i, int64_t hop) {
  uint64_t dk = bytes_of(&r->call.out[1]), dv = bytes_of(&r->call.out[2]);
  Hop k = begin_hop(r, hop, sums_at(r, i), sums_at(r, i + 1), dk, DKEYS);
  Hop v = begin_hop(r, hop, sums_at(r, i) + r->at.dv, sums_at(r, i + 1) + r->at.dv, dv, DVALUES);
  end_hop(r, k);
  end_hop(r, v);
}

/* f32 to the type of `to`. */
static void store(const Ring *r, ZkView from, const ZkView *to) {
  ZkPointwise same = {.nout = 1};
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 1, .nout = 1, .pointwise = &same};
  c.in[0] = from;
  c.out[0] = *to;
  if (from.data != to->data) r->e->dev->run(r->e->env, &c);
}

static void go_round(Ring *r) {
  uint32_t last = r->n->nsteps - 1;
  for (uint32_t i = 0; i <= last; i++) {
    Hop k = {-1, -1}, v = {-1, -1};
    int64_t hop = i < last ? (int64_t)r->n->steps[i + 1] - r->n->steps[i] : 0;
    if (hop) {
      k = begin_hop(r, hop, keys_at(r, i), keys_at(r, i + 1), bytes_of(&r->k), KEYS);
      v = begin_hop(r, hop, values_at(r, i), values_at(r, i + 1), bytes_of(&r->v), VALUES);
    }
    meet(r, i);
    if (!hop) continue;
    end_hop(r, k);
    end_hop(r, v);
    if (r->back) hand_sums(r, i, hop);
  }
  if (r->back && last) hand_sums(r, last, -(int64_t)r->n->steps[last]);
}

void zx_ring(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call) {
  Ring r = {.e = e,
            .n = n,
            .s = s,
            .call = *call,
            .back = n->call.op == ZG_OP_ATTEND_GRAD,
            .scratch = call->scratch};
  r.first = zg_attend_first(call->op);
  r.ranks = zp_group_size(&e->p->mesh, n->dims);
  r.mine = zp_group_index(&e->p->mesh, e->rank, n->dims);
  r.at = zp_ring(s, n);
  r.k = call->in[r.first + 1], r.v = call->in[r.first + 2];
  for (int i = 0; i < r.k.rank; i++)
    if (r.k.axis[i] == n->axis) r.length = r.k.size[i];
  r.call.scratch = r.scratch + r.at.kernel;
  ZkView *made = &r.call.out[0]; /* o, or dq */
  if (made->elem != ZK_F32) made->data = r.scratch + r.at.queries;
  made->elem = ZK_F32;
  for (int i = 1; r.back && i < 3; i++) r.call.out[i].elem = ZK_F32;
  go_round(&r);
  store(&r, *made, &call->out[0]);
  for (int i = 1; r.back && i < 3; i++) {
    ZkView sum = r.call.out[i];
    sum.data = sums_at(&r, n->nsteps > 1 ? n->nsteps : 0) + (i == 2 ? r.at.dv : 0);
    store(&r, sum, &call->out[i]);
  }
}
