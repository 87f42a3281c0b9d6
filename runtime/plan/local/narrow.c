/* Keys and values that are gathered may be wider than what they were made of: of latent attention (DeepSeek-AI
 * 2024) keys of all heads are products of a few numbers that all heads share. Then those are gathered, and each
 * rank makes the keys of the whole sequence again.
 *
 * Along which ancestors to gather is a question of bytes: a value's price is its own size, or the prices of the
 * operands that it is made of together, if these are less than half. Only through what is done for each position
 * by itself, and through no product that would take longer than the bytes it saves. What a rank made of its own
 * part and nobody reads then is left out.
 *
 * Example: k[seq, head, hd] of dot[rank](c, up), c[seq, rank] with 16 heads of 128, rank 512: k is 2048 numbers a
 * position and c 512, which values are made of, too. */
#include "runtime/plan/local/shard.h"

#include <string.h>

/* FLOPs for a number saved, at most: a device does 1000 in the time of a byte over a fast link. */
#define MOST_SUMMED 1024
#define DEEPEST 6 /* operations between a value and what is gathered */

/* What is done for each element of `axis` by itself. */
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

/* The state that is v's now, but whole along dims. */
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

/* Bytes of v, whole along dims, as a rank would have it of what it has now. */
static double bytes_of(const ZpShard *h, uint32_t v, ZpDims dims) {
  return (double)h->out->values[zp_base(h, v)].bytes * (double)zp_group_size(&h->p->layout.mesh, dims);
}

/* Bytes to gather so that v is there whole; `made`: not it itself, but what it is made of. `anew`: as if nothing
 * were there yet. */
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
      if (is_idle(n, read)) { /* its work is done elsewhere, and is the model's all the same */
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
