/* Gathers what keys and values are computed from, if that is narrower. In latent attention (DeepSeek-AI 2024)
 * the keys of all heads are products of a few numbers that all heads share; gathering those, each rank
 * recomputes the keys of the whole sequence.
 *
 * * Bytes decide which ancestors are gathered: a value's price is its own size, or the sum of the prices of
 * the operands it is computed from, if that is less than half. The search passes only through operations on
 * each position alone, and through no product that would take longer than the bytes it saves. Values that a
 * rank computed from its own part and that nobody reads any more are removed.
 *
 * * Example: k[seq, head, hd] of dot[rank](c, up), c[seq, rank] with 16 heads of 128, rank 512: k has 2048
 * numbers per position and c 512, from which the values are computed, too. */
#include "runtime/plan/local/shard.h"

#include <string.h>

/* Most FLOPs per number saved: a device does 1000 in the time that a byte takes over a fast link. */
#define MOST_SUMMED 1024
#define DEEPEST 6 /* most operations between a value and the gathered ancestor */

/* Returns whether the node treats each element of `axis` separately. */
static bool is_apart(const ZpShard *h, const ZgNode *n, uint16_t axis) {
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  int64_t summed = 1;
  switch (n->op) {
  case ZG_OP_DOT:
    for (int i = 0; i < n->nax; i++) summed *= h->p->layout.axis_size[n->ax[i]];
    break;
  case ZG_OP_CONCAT:
  case ZG_OP_SLICE:
  case ZG_OP_RENAME:
  case ZG_OP_ROPE:
  case ZG_OP_ROTATE:
  case ZG_OP_POSITION: break;
  default:
    if (zg_op_info[n->op].kind != ZG_EW) return false;
  }
  for (int i = 0; i < n->nin; i++) in[i] = h->s->values[n->in[i]].type;
  for (int i = 0; i < n->nout; i++) out[i] = h->s->values[n->out + (uint32_t)i].type;
  return zg_axis_class(n, in, out, axis) == ZG_AXIS_PAR && summed <= MOST_SUMMED;
}

/* Fills v's state as it would be whole along dims. Returns false unless v is complete and these dims cut it
 * by `axis`. */
static bool whole_along(const ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis, ZpState *want) {
  const ZpValue *have = &h->out->values[zp_base(h, v)];
  bool split = false;
  memcpy(want, have->state, sizeof have->state);
  for (int d = 0; d < h->p->layout.mesh.ndims; d++) {
    if (have->state[d].kind == 'P') return false;
    if (!(dims >> d & 1) || have->state[d].kind != 'S') continue;
    if (have->state[d].axis != axis) return false;
    split = true;
    want[d] = (ZpState){.kind = 'R'};
  }
  return split;
}

static bool is_there(const ZpShard *h, uint32_t v, const ZpState *want) {
  for (const ZpVersion *k = h->versions[v]; k; k = k->next)
    if (k->phase == h->phase && zp_state_eq(h, h->out->values[k->value].state, want)) return true;
  return false;
}

/* Returns the bytes of v, whole along dims, starting from the part that a rank has. */
static double bytes_of(const ZpShard *h, uint32_t v, ZpDims dims) {
  return (double)h->out->values[zp_base(h, v)].bytes * (double)zp_group_size(&h->p->layout.mesh, dims);
}

/* Returns the bytes to gather until v is there whole; sets `made` if ancestors are gathered instead of v.
 * `anew`: ignores what has been gathered already. */
static double price(const ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis, int depth, bool anew,
                    bool *made) {
  const ZgNode *n = &h->s->nodes[h->s->values[v].node];
  ZpState want[ZP_MAX_DIMS];
  *made = false;
  if (!whole_along(h, v, dims, axis, want)) return 0; /* it is */
  if (!anew && is_there(h, v, want)) return 0;
  double own = bytes_of(h, v, dims), parts = 0;
  if (!is_apart(h, n, axis) || n->nout != 1 || depth == DEEPEST) return own;
  for (int i = 0; i < n->nin; i++) {
    bool any;
    parts += price(h, n->in[i], dims, axis, depth + 1, anew, &any);
  }
  *made = 2 * parts < own;
  return *made ? parts : own;
}

bool zp_made_of_less(const ZpShard *h, uint32_t v, ZpDims dims, uint16_t axis) {
  bool made;
  price(h, v, dims, axis, 0, false, &made);
  return made;
}

double zp_narrow_bytes(const ZpShard *h, uint32_t v, int d, uint16_t axis) {
  bool made;
  double own = (double)h->out->values[zp_base(h, v)].bytes;
  double bytes = price(h, v, 1u << d, axis, 0, true, &made) / (double)h->p->layout.mesh.dim[d].size;
  return made ? bytes : own;
}

/* ---- what nobody reads --------------------------------------------------------------------------------- */
static bool is_idle(const ZpNode *n, const bool *read) {
  ZgOpKind kind = zg_op_info[n->call.op].kind;
  bool idle = kind != ZG_SINK && kind != ZG_SOURCE;
  for (int i = 0; i < n->call.nout; i++) idle &= !read[n->out[i]];
  return idle;
}

void zp_drop_idle(ZpShard *h) {
  bool *read = ZB_NEWN(h->p->arena, bool, h->out->nvalues);
  for (int k = ZP_PHASES; h->narrow && k-- > 0;) {
    ZpList *l = &h->out->list[k];
    uint32_t kept = l->n;
    for (uint32_t i = l->n; i-- > 0;) {
      const ZpNode *n = &l->nodes[i];
      if (is_idle(n, read)) { /* its work is done elsewhere, but counts as the model's */
        if (!n->recomputed)
          h->out->model_flops += n->flops * (double)zp_group_size(&h->p->layout.mesh, n->split);
        continue;
      }
      for (int j = 0; j < l->nodes[i].call.nin; j++) read[l->nodes[i].in[j]] = true;
      l->nodes[--kept] = l->nodes[i];
    }
    l->n -= kept;
    if (kept) memmove(l->nodes, l->nodes + kept, l->n * sizeof *l->nodes);
  }
}
