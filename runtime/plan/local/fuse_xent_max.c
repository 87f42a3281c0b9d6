/* Cross-entropy finds the maximum of its logits while it sums their exponentials, where the device does both
 * in one call. Logits are the largest tensor there is: a pass over them is a pass less.
 *
 * Needs and provides a node list. Where the vocabulary is split, ranks must agree on the maximum first, and
 * the two stay apart.
 *
 * Example: m = peak[v](z); s, p = xent_sums[v](z, m, t) become s, p, m = xent_max_sums[v](z, t). */
#include "runtime/plan/local/rewrite.h"

/* Returns the node that makes the maximum that sums i are given, if nobody else reads it before them; else
 * ZP_NONE. */
static uint32_t max_of(const ZpRewrite *r, uint32_t i) {
  const ZpNode *k = &r->nodes[i];
  if (k->call.op != ZG_OP_XENT_SUMS || k->call.pointwise) return ZP_NONE;
  uint32_t m = r->maker[k->in[1]];
  if (m == ZP_NONE || zp_read_between(r, m, i, k->in[1])) return ZP_NONE;
  const ZpNode *p = &r->nodes[m];
  bool same = p->in[0] == k->in[0] && p->call.nax == 1 && p->call.ax[0] == k->call.ax[0] &&
              p->call.opt[1] == k->call.opt[1];
  bool exact = zp_value(r, p->out[0])->elem == zp_value(r, p->in[0])->elem;
  return p->call.op == ZG_OP_PEAK && !p->dims && !p->call.pointwise && same && exact ? m : ZP_NONE;
}

/* Sums k with the maximum as their third result. */
static ZpNode with_max(const ZpNode *k) {
  ZpNode to = *k;
  to.in[1] = k->in[2], to.out[2] = k->in[1];
  to.call.op = ZG_OP_XENT_MAX_SUMS, to.call.nin = 2, to.call.nout = 3;
  return to;
}

void zp_fuse_xent_max(ZpRewrite *r) {
  for (uint32_t i = 0; i < r->n; i++) {
    uint32_t m = max_of(r, i);
    if (m == ZP_NONE) continue;
    ZpNode to = with_max(&r->nodes[i]);
    if (!zp_supported(r, &to)) continue;
    zp_replace(r, i, &to);
    zp_drop(r, m);
  }
  zp_compact(r);
}
