/* Seconds of a step by a formula, to rank recipes: the slowest stage's micro-batches, what the schedule
 * leaves idle by its rehearsal, gathers and scatters beside computation, and what is left at the end of a
 * step. */
#include "runtime/plan/search/internal.h"

#include <math.h>
#include <string.h>

int64_t nmicro_of(const Space *x, const Candidate *c) {
  return x->batch ? x->batch / (c->micro * space_samples(c)) : 1;
}

/* ---- where groups lie ------------------------------------------------------------------------------------ */
typedef struct {
  const Space *x;
  const Candidate *c;
  const Layout *l;
  int64_t stride[DIMS]; /* ranks that one step along a dim passes */
} Step;

static void find_strides(Step *t) {
  Dim order[DIMS];
  int64_t stride = 1;
  space_order(t->x, t->c, order);
  for (uint32_t i = t->x->norder; i-- > 0; stride *= t->c->size[order[i]]) t->stride[order[i]] = stride;
}

/* Returns the place of the ranks along these dims: as many members of a level as along each of them
 * together. */
static ZpPlace place_of(const Step *t, unsigned dims) {
  const ZlCluster *c = t->x->c;
  ZpPlace at = {.n = 1};
  int64_t size = 1;
  for (int k = 0; k < DIMS; k++) at.n *= dims >> k & 1 ? t->c->size[k] : 1;
  for (at.level = 0; at.level < c->nlevels && at.level < ZP_MOST_LEVELS; at.level++) {
    int64_t units = 1;
    size *= c->levels[at.level].size;
    for (int k = 0; k < DIMS; k++) {
      int64_t n = t->c->size[k], stride = t->stride[k];
      if (dims >> k & 1 && n > 1) units *= stride >= size ? n : (n - 1) * stride / size + 1;
    }
    at.units[at.level] = units;
    if (units == 1) return at;
  }
  at.level--;
  return at;
}

static double over(const Step *t, int op, double bytes, unsigned dims) {
  ZpPlace at = place_of(t, dims);
  return at.n < 2 ? 0 : zp_collective_seconds(t->x->c, op, bytes, &at);
}

/* ---- buckets --------------------------------------------------------------------------------------------- */
/* Returns the part of a transfer by which computation beside it takes longer. */
static double lost(const ZlCluster *c) { return c->steal / (1 + c->steal); }

typedef struct {
  double forward, backward; /* seconds of transfers that run beside a micro-batch's */
  double once;              /* at the beginning of a step, beside its first forward */
  double end;               /* of those that run beside the last backward, and the one that cannot */
  double least_end;
  double optimizer;
} Moves;

/* The seconds of one bucket's communication and update. */
typedef struct {
  double gather, scatter, reduce, publish, optimizer;
  bool cut, staged;
} BucketTime;

static BucketTime time_of(const Step *t, const BucketNeeds *k) {
  const Candidate *c = t->c;
  double elem = zk_mean_bytes(k->elem), width = zk_mean_bytes(k->reduce), elems = (double)k->elems;
  unsigned over_which = c->zero ? t->x->zero & k->alike : 0;
  int64_t shards = space_shards(t->x, c, k->alike);
  BucketTime b = {.cut = shards > 1, .staged = shards > 1 && c->zero >= 2};
  double mine = elems / (double)shards;
  if (b.cut && c->zero == 3) b.gather = over(t, ZG_OP_ALL_GATHER, elems * elem, over_which);
  if (k->frozen) return b;
  if (k->partial && b.cut) b.scatter = over(t, ZG_OP_REDUCE_SCATTER, elems * width, over_which);
  if (k->partial) b.reduce = over(t, ZG_OP_ALL_REDUCE, mine * width, k->partial & ~over_which);
  if (b.cut && c->zero < 3) b.publish = over(t, ZG_OP_ALL_GATHER, elems * elem, over_which);
  double grads = mine * zk_mean_bytes(k->grad) * (b.staged ? 1 : (double)shards);
  const ZlCluster *u = t->x->c;
  b.optimizer = zp_stream_seconds(u, k->update * mine) +
                zp_stream_seconds(u, grads + zk_mean_bytes(k->grad) * mine) - u->launch;
  return b;
}

static void add_bucket(const Step *t, const BucketTime *b, uint32_t n, Moves *m) {
  if (b->gather > 0) {
    uint32_t stay = (uint32_t)t->x->base->prefetch + 1; /* of forward, for backward */
    if (t->c->keep || n <= stay) m->once += n * b->gather;
    else m->forward += n * b->gather, m->backward += (n - stay) * b->gather;
  }
  if (b->staged) m->backward += n * b->scatter;
  double one = (b->staged ? 0 : b->scatter) + b->reduce;
  m->end += n * one;
  m->least_end = fmax(m->least_end, b->scatter + b->reduce);
  m->once += n * b->publish;
  m->optimizer += n * b->optimizer;
}

static Moves moves_of(const Step *t, const BucketTime *b, const uint32_t *count) {
  Moves m = {0};
  for (uint32_t i = 0; i < t->l->nbuckets; i++) {
    const BucketNeeds *k = &t->l->bucket[i];
    uint32_t n = k->segment != ZP_NONE ? count[k->segment] : 0;
    for (uint32_t u = 0; k->segment == ZP_NONE && u < k->nusers; u++) n |= count[k->users[u]] > 0;
    if (n) add_bucket(t, &b[i], n, &m);
  }
  return m;
}

static double send(const Step *t, double bytes) {
  ZpPlace at = zp_place_of_dim(t->x->c, 2, t->stride[DIM_PIPE]);
  return zp_transfer_seconds(t->x->c, bytes, &at);
}

enum { MOST_BUCKETS = 256 };

double closed_seconds(const Space *x, const Candidate *c, const Layout *l, const Stages *s) {
  Step t = {.x = x, .c = c, .l = l};
  BucketTime some[MOST_BUCKETS],
      *bucket = l->nbuckets <= MOST_BUCKETS ? some : ZB_NEWN(x->a, BucketTime, l->nbuckets);
  uint32_t P = (uint32_t)c->size[DIM_PIPE];
  double M = (double)nmicro_of(x, c), sum = 0, worst = 0, tail = 0, before = 0;
  find_strides(&t);
  double slower = lost(t.x->c);
  for (uint32_t i = 0; i < l->nbuckets; i++) bucket[i] = time_of(&t, &l->bucket[i]);
  for (uint32_t k = 0; k < P; k++) {
    Moves m = moves_of(&t, bucket, &s->count[k * l->nsegments]);
    double f = fmax(m.forward, s->forward[k] + m.forward * slower);
    double b = fmax(m.backward, s->backward[k] + m.backward * slower);
    sum += f + b;
    worst = fmax(worst, f + b);
    double end = fmax(m.end - b, m.least_end) + fmin(m.end, b) * slower;
    /* The first stage ends last: what the others reduce is done meanwhile. */
    double late = k ? 0 : end;
    tail = fmax(tail, late + m.optimizer);
    before = fmax(before, fmax(0, m.once - s->forward[k]) + s->counting[k] * M);
  }
  double pipeline = 0;
  if (P > 1) {
    const SegmentNeeds *last = &l->segment[s->last[0]];
    const ZpRehearsal *r = rehearsal(x, P, nmicro_of(x, c), last->saves_carry);
    double wire = send(&t, (double)last->carry_out) + send(&t, (double)last->dcarry_out);
    pipeline = r->bubble * (sum - worst) / (P - 1) + r->transfers * wire / 2;
  }
  return before + M * worst + pipeline + tail;
}
