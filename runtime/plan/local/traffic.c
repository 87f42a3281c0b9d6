/* How many bytes nodes move: collectives between ranks, calls between memory and compute. */
#include "runtime/plan/local/local.h"

/* ---- between ranks --------------------------------------------------------------------------------------- */
const ZpValue *zp_node_whole(const ZpSegment *s, const ZpNode *n) {
  if (zp_is_ring(n)) return &s->values[n->in[zg_attend_first(n->call.op) + 1]];
  bool out = n->call.op == ZG_OP_ALL_GATHER || n->call.op == ZG_OP_DISPATCH;
  return &s->values[out ? n->out[0] : n->in[0]];
}

uint64_t zp_node_bytes(const ZpSegment *s, const ZpNode *n) {
  if (zp_is_ring(n)) return zp_ring_bytes(s, n);
  if (zp_is_halo(n)) return zp_halo_bytes(n);
  const ZpValue *v = zp_node_whole(s, n);
  if (n->call.op == ZG_OP_ROUND) return v->bytes * (uint64_t)n->call.num[0];
  if (n->call.op != ZG_OP_DISPATCH && n->call.op != ZG_OP_COMBINE) return v->bytes;
  uint64_t slots = (uint64_t)(v->size[0] * v->size[1]);
  return v->bytes / slots * (s->values[n->in[1]].bytes / sizeof(int32_t));
}

uint64_t zp_run_bytes(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node) {
  const ZpNode *n = &l->nodes[node];
  bool all = n->call.op == ZG_OP_ROUND || n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE;
  return zp_node_bytes(s, n) * (all ? 1 : zp_rounds(p, s, l, node).even);
}

/* ---- in memory ----------------------------------------------------------------------------------------- */
static double elems(const ZpValue *v) { return (double)v->bytes / zk_mean_bytes((ZkElem)v->elem); }

/* Returns the bytes of the rows of a table that are touched: one for each id, at most all. */
static double rows(const ZpValue *table, const ZpValue *taken) {
  double bytes = elems(taken) * zk_mean_bytes((ZkElem)table->elem);
  return bytes < (double)table->bytes ? bytes : (double)table->bytes;
}

static double read_by(const ZpSegment *s, const ZpNode *n, int i) {
  const ZpValue *v = &s->values[n->in[i]], *out = &s->values[n->out[0]];
  for (int k = 0; k < i; k++)
    if (n->in[k] == n->in[i]) return 0;
  switch (n->call.op) {
  case ZG_OP_LOOKUP: return i == 0 ? rows(v, out) : (double)v->bytes;
  case ZG_OP_SLICE:
  case ZG_OP_LOCAL_SLICE: return (double)out->bytes;
  default: return (double)v->bytes;
  }
}

bool zp_adds_to(const ZpSegment *s, const ZpNode *n, int i) {
  return n->call.op != ZG_OP_NORMALIZE_GRAD_SUMS || s->values[n->out[i]].at.space == ZP_AT_GRAD;
}

static double written_by(const ZpSegment *s, const ZpNode *n, bool adds, int i) {
  const ZpValue *v = &s->values[n->out[i]];
  adds &= zp_adds_to(s, n, i);
  double bytes = adds && n->call.op == ZG_OP_LOOKUP_GRAD ? rows(v, &s->values[n->in[0]]) : (double)v->bytes;
  return adds ? 2 * bytes : bytes;
}

double zp_moved_bytes(const ZpSegment *s, const ZpNode *n, bool adds) {
  double bytes = 0;
  for (int i = 0; i < n->call.nin; i++) bytes += read_by(s, n, i);
  for (int i = 0; i < n->call.nout; i++) bytes += written_by(s, n, adds, i);
  return bytes;
}
