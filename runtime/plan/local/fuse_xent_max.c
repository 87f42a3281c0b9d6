/* Cross-entropy finds the peak of its logits while it sums their exponentials, where a device does the two in one pass
 * (kernels.h: peaked calls): logits are the largest tensor there is, and a pass over them is a pass less.
 *
 * Needs and provides a node list. Not where ranks must first agree on the peak, each having a part of the vocabulary.
 *
 * Example: m = peak[v](z); s, p = xent_sums[v](z, m, t) become s, p, m = xent_sums[v](z, t). */
#include "runtime/plan/impl.h"

/* The node before i that makes its peak and is for nobody else until then; ZP_NONE: none. */
static uint32_t peak_of(const ZpSegment *s, const ZpNode *nodes, uint32_t i) {
  const ZpNode *k = &nodes[i];
  bool given = k->call.op == ZG_OP_XENT_SUMS && k->call.nin == 3 && !k->call.chain;
  for (uint32_t m = i; given && m-- > 0;) {
    const ZpNode *p = &nodes[m];
    if (zp_output_of(p, k->in[1]) < 0) {
      if (zp_reads(p, k->in[1])) return ZP_NONE;
      continue;
    }
    bool same = p->in[0] == k->in[0] && p->call.nax == 1 && p->call.ax[0] == k->call.ax[0] && p->call.opt[1] == k->call.opt[1];
    bool exact = s->values[p->out[0]].elem == s->values[p->in[0]].elem;
    return p->call.op == ZG_OP_PEAK && !p->dims && !p->call.chain && same && exact ? m : ZP_NONE;
  }
  return ZP_NONE;
}

/* Node k with the peak as its third result. */
static ZpNode with_peak(const ZpBuild *b, const ZpSegment *s, const ZpNode *k) {
  ZpNode to = *k;
  to.in[1] = k->in[2], to.out[2] = k->in[1];
  to.call.nin = 2, to.call.nout = 3;
  zp_views(b->p, s, &to);
  return to;
}

uint32_t zp_attach_peaks(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n) {
  if (!b->o->joins) return n;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t m = peak_of(s, nodes, i);
    ZpNode to = m == ZP_NONE ? nodes[i] : with_peak(b, s, &nodes[i]);
    if (m == ZP_NONE || !b->o->joins(&to.call)) continue;
    nodes[i] = to;
    memmove(&nodes[m], &nodes[m + 1], (n - m - 1) * sizeof *nodes);
    n--, i--;
  }
  return n;
}
