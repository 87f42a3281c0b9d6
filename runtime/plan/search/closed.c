/* Seconds of a step by a formula, to rank recipes: the slowest stage's micro-batches, the pipeline filled and
 * drained once, gathers and scatters beside computation, and what is left at the end of a step. */
#include "runtime/plan/search/internal.h"

#include <math.h>

int64_t nmicro_of(const Space *x, const Candidate *c) {
  return x->batch ? x->batch / (c->micro * c->size[DIM_REPLICA] * c->size[DIM_DATA]) : 1;
}

int64_t stride_of_dim(const Space *x, const Candidate *c, Dim dim) {
  int64_t stride = 1;
  for (uint32_t i = x->norder; i-- > 0 && x->order[i] != dim;) stride *= c->size[x->order[i]];
  return stride;
}

/* A collective over the data dims of which bit k says Dim k. */
static double over(const Space *x, const Candidate *c, int op, double bytes, unsigned dims) {
  int64_t n = 1, stride = INT64_MAX;
  for (int k = 0; k < DIMS; k++) {
    if (!(dims >> k & 1) || c->size[k] < 2) continue;
    int64_t at = stride_of_dim(x, c, (Dim)k);
    n *= c->size[k];
    if (at < stride) stride = at;
  }
  if (n < 2) return 0;
  ZpPlace place = zp_place_of_dim(x->c, n, stride);
  return zp_collective_seconds(x->c, op, bytes, &place);
}

/* Both side by side: while the transfer lasts, computation is slower. */
static double beside(const ZlCluster *c, double compute, double transfer) {
  return fmax(transfer, compute + transfer * c->steal / (1 + c->steal));
}

typedef struct {
  double forward, backward; /* seconds of transfers that run beside a micro-batch's */
  double once;              /* at the beginning of a step, beside its first forward */
  double end;               /* of those that run beside the last backward, and the one that cannot */
  double least_end, after;  /* after the update */
  double optimizer;
} Moves;

static void add_bucket(const Space *x, const Candidate *c, const Layout *l, const BucketNeeds *k, uint32_t n,
                       Moves *m) {
  const unsigned data = 1u << DIM_DATA, all = data | 1u << DIM_REPLICA;
  double elem = (double)zk_elem_bytes(l->compute), elems = (double)k->elems;
  int64_t shards = k->shards ? shards_of(c) : 1;
  bool cut = shards > 1, staged = cut && c->zero >= 2;
  double mine = elems / (double)shards;
  if (cut && c->zero == 3) {
    double gather = over(x, c, ZG_OP_ALL_GATHER, elems * elem, data);
    bool once = c->keep || n <= 2;
    if (once) m->once += n * gather;
    else m->forward += n * gather, m->backward += (n - 2) * gather;
  }
  if (k->frozen) return;
  if (k->reduces) {
    double scatter = cut ? over(x, c, ZG_OP_REDUCE_SCATTER, elems * 4, data) : 0;
    double reduce = over(x, c, ZG_OP_ALL_REDUCE, mine * 4, cut ? all & ~data : all);
    if (staged) m->backward += n * scatter;
    double one = (staged ? 0 : scatter) + reduce;
    m->end += n * one;
    m->least_end = fmax(m->least_end, staged ? scatter + reduce : one);
  }
  if (cut && c->zero < 3) m->after += n * over(x, c, ZG_OP_ALL_GATHER, elems * elem, data);
  double grads = mine * 4 * (staged ? 1 : (double)shards);
  m->optimizer += n * (zp_stream_seconds(x->c, k->update * mine) + (grads + 4 * mine) / x->c->stream);
}

static Moves moves_of(const Space *x, const Candidate *c, const Layout *l, const uint32_t *count) {
  Moves m = {0};
  for (uint32_t i = 0; i < l->nbuckets; i++) {
    const BucketNeeds *k = &l->bucket[i];
    uint32_t n = k->segment != ZP_NONE ? count[k->segment] : 0;
    for (uint32_t u = 0; k->segment == ZP_NONE && u < k->nusers; u++) n |= count[k->users[u]] > 0;
    if (n) add_bucket(x, c, l, k, n, &m);
  }
  return m;
}

static double send(const Space *x, const Candidate *c, double bytes) {
  ZpPlace at = zp_place_of_dim(x->c, 2, stride_of_dim(x, c, DIM_PIPE));
  return zp_transfer_seconds(x->c, bytes, &at);
}

double closed_seconds(const Space *x, const Candidate *c, const Layout *l, const Stages *s) {
  uint32_t P = (uint32_t)c->size[DIM_PIPE];
  double M = (double)nmicro_of(x, c), sum = 0, worst = 0, tail = 0, before = 0;
  for (uint32_t k = 0; k < P; k++) {
    Moves m = moves_of(x, c, l, &s->count[k * l->nsegments]);
    double f = beside(x->c, s->forward[k], m.forward), b = beside(x->c, s->backward[k], m.backward);
    sum += f + b;
    worst = fmax(worst, f + b);
    double end = fmax(m.end - b, m.least_end) + fmin(m.end, b) * x->c->steal / (1 + x->c->steal);
    /* The first stage ends last: what the others reduce is done meanwhile. */
    double late = k ? 0 : end;
    tail = fmax(tail, late + m.after + m.optimizer);
    before = fmax(before, fmax(0, m.once - s->forward[k]) + s->counting[k] * M);
  }
  double wire = 0;
  if (P > 1) {
    const SegmentNeeds *last = &l->segment[s->last[0]];
    wire = send(x, c, (double)last->carry_out) + send(x, c, (double)last->dcarry_out);
  }
  double trips = P > 1 ? (P - 1) * (M / P + 1) * wire : 0;
  return before + M * worst + (sum - worst) + trips + tail;
}
