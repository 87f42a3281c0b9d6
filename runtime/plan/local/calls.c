/* The kernel call of every node: its views, the scratch it needs, the work it is.
 *
 * Needs lists that no pass changes any more but to batch GEMMs. Views have no pointers yet; those are the
 * engine's. */
#include "runtime/plan/local/lower.h"

#include <string.h>

/* Returns whether the blocks along `axis` of a tensor lie one behind the other, in the order of the other
 * one's. */
static bool in_blocks(const ZkView *whole, const ZkView *part, uint16_t axis) {
  if (memcmp(whole->axis, part->axis, whole->rank * sizeof *whole->axis) != 0) return false;
  for (int i = 0; whole->axis[i] != axis; i++)
    if (whole->size[i] != 1) return false;
  return true;
}

static int64_t size_along(const ZkView *v, uint16_t axis) {
  int i = 0;
  while (v->axis[i] != axis) i++;
  return v->size[i];
}

static bool packs(const ZpMesh *m, const ZpNode *n) {
  const ZkView *in = &n->call.in[0], *out = &n->call.out[0];
  switch (n->call.op) {
  case ZG_OP_ALL_REDUCE: return in->elem != out->elem;
  case ZG_OP_REDUCE_SCATTER:
    return in->elem != out->elem || zp_is_zigzag(m, n->dims, n->axis) || !in_blocks(in, out, n->axis);
  case ZG_OP_ALL_GATHER: return zp_is_zigzag(m, n->dims, n->axis) || !in_blocks(out, in, n->axis);
  case ZG_OP_ALL_TO_ALL: return true;
  case ZG_OP_SHIFT: return n->dims && size_along(in, n->axis) > 1 && !in_blocks(in, out, n->axis);
  default: return false;
  }
}

/* Room for the rank's own rows, for those of a round, and for where its rows are among those that travel; on
 * a device, for which rows have which slots. */
static uint64_t rows_scratch(const ZpLocal *c, const ZpNode *n) {
  const ZpValue *rows = &c->s->values[n->call.op == ZG_OP_DISPATCH ? n->out[0] : n->in[0]];
  const ZpValue *place = &c->s->values[n->in[1]];
  uint64_t row = rows->bytes / (uint64_t)(rows->size[0] * rows->size[1]),
           own = place->bytes / sizeof(int32_t);
  uint64_t slots = zp_lines(((uint64_t)(rows->size[0] * rows->size[1]) + 1) * sizeof(int32_t));
  return zp_lines(own * row) + zp_lines(rows->bytes) + 2 * zp_lines(place->bytes) +
         (c->b->o->pins ? slots : 0);
}

/* Returns the scratch in which borders that are not contiguous are put together, as sent and as received. */
static uint64_t halo_scratch(const ZpNode *n) {
  ZpHalo h = zp_halo(n);
  return n->packs ? 2 * (zp_lines(h.part[0].bytes) + zp_lines(h.part[1].bytes)) : 0;
}

/* Room to pack and unpack. */
static uint64_t collective_scratch(const ZpLocal *c, const ZpNode *n) {
  if (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE) return rows_scratch(c, n);
  if (n->call.op == ZG_OP_ROUND) /* what all ranks have, on a device; the host has it elsewhere */
    return c->b->o->pins ? zp_lines((uint64_t)n->call.num[0] * c->s->values[n->in[0]].bytes) : 0;
  if (zp_is_halo(n)) return halo_scratch(n);
  if (!n->packs) return 0;
  uint64_t in = zp_lines(c->s->values[n->in[0]].bytes), out = zp_lines(c->s->values[n->out[0]].bytes);
  bool rounds = n->call.op == ZG_OP_REDUCE_SCATTER && n->call.in[0].elem != n->call.out[0].elem;
  if (rounds) return in + 2 * out; /* a sum in f32, of twice the bytes */
  return n->call.op == ZG_OP_ALL_TO_ALL ? in + out : n->call.op == ZG_OP_ALL_GATHER ? out : in;
}

/* Returns the scratch of an attend around a ring: chunks, sums, and what its kernel needs for results in
 * f32. */
static uint64_t ring_scratch(const ZpLocal *c, const ZpNode *n) {
  ZkCall one = n->call;
  one.out[0].elem = ZK_F32;
  for (int i = 1; n->call.op == ZG_OP_ATTEND_GRAD && i < one.nout; i++) one.out[i].elem = ZK_F32;
  return zp_ring(c->s, n).bytes + (c->b->o->scratch ? zp_lines(c->b->o->scratch(&one, c->b->o->threads)) : 0);
}

/* Ranks along dims that split nothing of a call make the same one, and go on with what they got. */
static void say_how(const ZpLocal *c, ZpNode *n) {
  const ZpPlan *p = c->p;
  ZpDims same = zp_all_dims(&p->layout.mesh) & ~n->split;
  n->call.room = c->b->variant.room;
  n->call.invariant = p->stream != NULL;
  n->call.repeatable = p->asked.repeatable || zp_group_size(&p->layout.mesh, same) > 1;
}

static uint64_t kernel_scratch(const ZpLocal *c, const ZkCall *call) {
  return c->b->o->scratch ? zp_lines(c->b->o->scratch(call, c->b->o->threads)) : 0;
}

void zp_make_calls(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *k = &l->nodes[i];
    zp_views(c->p, c->s, k);
    say_how(c, k);
    bool collective = k->dims != 0 && !zp_is_ring(k);
    k->packs = collective && packs(&c->p->layout.mesh, k);
    k->scratch_bytes = zp_is_ring(k)            ? ring_scratch(c, k)
                       : collective             ? collective_scratch(c, k)
                       : zp_is_kind(k, ZG_SINK) ? 0
                                                : kernel_scratch(c, &k->call);
    uint32_t group = zp_group_of(&c->groups, k);
    if (!group) continue;
    ZkCall one = zp_batched_call(c->p, c->s, k, group);
    uint64_t together = kernel_scratch(c, &one);
    if (together > k->scratch_bytes) k->scratch_bytes = together;
  }
}

void zp_count_work(ZpLocal *c, ZpPhase phase) {
  const ZpList *l = &c->s->list[phase];
  if (phase == ZP_COUNT) return; /* it is nothing */
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *k = &l->nodes[i];
    c->s->cost += k->flops;
    double share = k->recomputed ? 0 : zp_model_share(c->p, c->s, k);
    c->s->model_flops += share * k->flops * (double)zp_group_size(&c->p->layout.mesh, k->split);
    for (int j = 0; j < k->call.nout && k->flops == 0; j++) /* memory-bound work: about 20 FLOPs an element */
      c->s->cost +=
          20.0 * (double)c->s->values[k->out[j]].bytes / zk_mean_bytes((ZkElem)c->s->values[k->out[j]].elem);
  }
}
