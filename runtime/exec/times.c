/* What operations had to do, beside how long they took: FLOPs, bytes, and how long that takes at the device's peaks. Counted
 * only for zx_engine_times, and by nodes: of a fused chain what goes in and comes out, of a product each operand once.
 *
 * The bound of a call is the longer of its FLOPs at the rate of large products and its bytes at the rate of large copies.
 * What lies in a cache may be faster than that. */
#include "runtime/exec/engine.h"

#include <string.h>

static void add(ZxEngine *e, int op, double flops, double bytes, bool bounded) {
  ZxWork *w = &e->work[op];
  w->flops += flops;
  w->bytes += bytes;
  if (!bounded || e->peak.flops <= 0 || e->peak.bytes <= 0) return;
  double by_flops = flops / e->peak.flops, by_bytes = bytes / e->peak.bytes;
  w->bound += by_flops > by_bytes ? by_flops : by_bytes;
  if (by_flops > by_bytes) w->bound_by_flops += by_flops;
}

static double elems(const ZpValue *v) { return (double)v->bytes / (double)zk_elem_bytes((ZkElem)v->elem); }

/* A table's rows are touched once for each id, at most all of them. */
static double rows(const ZpValue *table, const ZpValue *taken) {
  double bytes = elems(taken) * (double)zk_elem_bytes((ZkElem)table->elem);
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

static double written_by(const ZpSegment *s, const ZpNode *n, int i) {
  const ZpValue *v = &s->values[n->out[i]];
  bool adds = i == 0 && n->call.accumulate;
  double bytes = adds && n->call.op == ZG_OP_LOOKUP_GRAD ? rows(v, &s->values[n->in[0]]) : (double)v->bytes;
  return adds ? 2 * bytes : bytes;
}

void zx_count_node(ZxEngine *e, const ZpSegment *s, const ZpNode *n) {
  if (!e->o.times) return;
  double bytes = 0;
  if (n->dims && n->call.op != ZG_OP_LOCAL_SLICE) { /* a collective: what travels, and no bound that is known here */
    const ZpValue *v = &s->values[n->call.op == ZG_OP_ALL_GATHER ? n->out[0] : n->in[0]];
    add(e, n->call.op, 0, (double)v->bytes, false);
    return;
  }
  for (int i = 0; i < n->call.nin; i++) bytes += read_by(s, n, i);
  for (int i = 0; i < n->call.nout; i++) bytes += written_by(s, n, i);
  add(e, n->call.op, n->flops, bytes, true);
}

static double own_elems(const ZxEngine *e, const ZpHeld *h) {
  uint64_t from, to;
  zx_own_range(e, h, &from, &to);
  return (double)(to - from);
}

void zx_count_norm(ZxEngine *e) {
  for (uint32_t i = 0; e->o.times && i < e->st->nheld; i++)
    if (zx_counts(e, &e->st->held[i])) add(e, ZG_OP_COUNT, 0, 4 * own_elems(e, &e->st->held[i]), true);
}

/* Gradients are read, parameters and states read and written, the rounded copy written. */
void zx_count_update(ZxEngine *e, const ZpHeld *h) {
  double each = 4 + 8 + 8 * e->p->states + (h->master_at != UINT64_MAX ? 2 : 0);
  if (e->o.times) add(e, ZG_OP_COUNT, 0, each * own_elems(e, h), true);
}

const double *zx_engine_times(const ZxEngine *e) { return e->times; }
const ZxWork *zx_engine_work(const ZxEngine *e) { return e->work; }

void zx_engine_count_anew(ZxEngine *e, const ZxPeaks *p) {
  memset(e->times, 0, sizeof e->times);
  memset(e->work, 0, sizeof e->work);
  e->peak = *p;
}
