/* How far plays are from each other. Numbers are f32, and plans add up in other orders: a loss may differ by 1e-4 of
 * itself, an element of a gradient by 2e-4 of the largest of its tensor. */
#include "tests/unit/plan/random/player.h"

#include <criterion/criterion.h>
#include <math.h>

typedef struct {
  double worst;
  char *what;
} Far;

static void look(Far *f, double have, double want, double tolerance, const char *what, uint64_t a,
                 int64_t b) {
  double d = fabs(have - want) / (tolerance + 1e-30);
  if (have == want || d <= f->worst) return;
  f->worst = isfinite(d) ? d : INFINITY; /* one that is not a number is far from all */
  snprintf(f->what, sizeof(Where), "%s %llu, %lld: %g instead of %g", what, (unsigned long long)a,
           (long long)b, have, want);
}

static void look_at_losses(Far *f, const Play *y, const Play *want) {
  for (uint32_t k = 0; k < zg_losses(y->p->graph); k++) {
    look(f, y->den[k], want->den[k], 1e-4 * want->den[k], "denominator", k, 0);
    look(f, y->num[k], want->num[k], 1e-4 * fabs(want->num[k]), "loss", k, 0);
  }
  look(f, y->aux, want->aux, 1e-4 * fabs(want->aux), "aux", 0, 0);
}

static uint32_t trips(const ZpPlan *p, uint32_t bucket) {
  uint32_t segment = p->programs.buckets[bucket].segment;
  return segment == ZP_NONE ? 1 : p->graph->segments[segment].trip;
}

/* Returns a rank's gradients of a bucket, reduced over where it is partial; NULL: a rank before it has the same. */
static float *reduced(const Play *y, int r, uint32_t bucket, uint32_t iter) {
  const ZpBucket *k = &y->p->programs.buckets[bucket];
  const ZpMesh *m = &y->p->layout.mesh;
  for (int q = 0; q < r; q++)
    if (zp_group_color(m, y->rank[q].id, k->partial) == zp_group_color(m, y->rank[r].id, k->partial))
      return NULL;
  float *sum = ZB_NEWN(y->a, float, k->elems);
  for (int q = 0; q < y->nranks; q++)
    if (zp_group_color(m, y->rank[q].id, k->partial) == zp_group_color(m, y->rank[r].id, k->partial))
      for (uint64_t e = 0; e < k->elems; e++) sum[e] += y->rank[q].grad[bucket][iter][e];
  return sum;
}

static const float *whole_gradient(const Play *y, uint32_t param,
                                   uint32_t iter) { /* of one rank: its slice */
  for (uint32_t b = 0; b < y->p->programs.nbuckets; b++)
    for (uint32_t i = 0; i < y->p->programs.buckets[b].nslices; i++)
      if (y->p->programs.buckets[b].slices[i].param == param)
        return y->rank[0].grad[b][iter] + y->p->programs.buckets[b].slices[i].at;
  return NULL;
}

static double most_of(const float *x, const ZpSlice *s) {
  double most = 0;
  uint64_t n = 1;
  for (int k = 0; k < s->naxes; k++) n *= (uint64_t)s->valid[k];
  for (uint64_t e = 0; e < n; e++) most = fmax(most, fabs((double)x[e]));
  return most;
}

/* A slice of `have`, which a rank has, against the whole, or with `like` against such a slice. */
static void look_at_slice(Far *f, const Play *y, int r, const ZpSlice *s, uint32_t iter, const float *have,
                          const float *whole, const float *like) {
  const ZgParam *param = &y->p->graph->params[s->param];
  double most = 0;
  if (whole) most = most_of(whole, s);
  for (uint64_t e = 0; like && e < s->n; e++) most = fmax(most, fabs((double)like[e]));
  Walk w = walk(y->p, s->state, y->rank[r].id, s->naxes, s->axis, s->size);
  for (uint64_t e = 0; e < s->n; e++, walk_on(&w)) {
    int64_t g = walk_element(y->p, &w);
    if (g < 0 && param->state) continue; /* of added entries, which nobody reads */
    double want = like ? (double)like[e] : g < 0 ? 0 : (double)whole[g];
    look(f, (double)have[e], want, 2e-4 * most + 1e-7, param->path, iter, g);
  }
}

static void look_at_gradients(Far *f, const Play *y, const Play *one, const Play *was) {
  const ZpPlan *p = y->p;
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    for (uint32_t t = 0; t < trips(p, b) && !p->asked.forward_only; t++)
      for (int r = 0; r < y->nranks; r++) {
        const float *have = reduced(y, r, b, t), *like = was ? reduced(was, r, b, t) : NULL;
        for (uint32_t i = 0; have && i < p->programs.buckets[b].nslices; i++) {
          const ZpSlice *s = &p->programs.buckets[b].slices[i];
          look_at_slice(f, y, r, s, t, have + s->at, one ? whole_gradient(one, s->param, t) : NULL,
                        like ? like + s->at : NULL);
        }
      }
}

double play_differs(const Play *one, const Play *y, Where what) {
  Far f = {0, what};
  cr_assert(isfinite(one->num[0]) && one->den[0] > 0);
  *what = 0;
  look_at_losses(&f, y, one);
  look_at_gradients(&f, y, one, NULL);
  return f.worst;
}

static const Output *output_like(const Play *y, const Output *o) {
  for (uint32_t i = 0; i < y->nout; i++)
    if (y->out[i].sink == o->sink && y->out[i].mb == o->mb && y->out[i].rank == o->rank) return &y->out[i];
  return NULL;
}

static void look_at_outputs(Far *f, const Play *y, const Play *was) {
  for (uint32_t i = 0; i < was->nout; i++) {
    const Output *want = &was->out[i], *have = output_like(y, want);
    const ZpValue *v = &y->p->programs.segments[want->segment].values[have ? have->value : want->value];
    Walk w = walk(y->p, v->state, y->rank[want->rank].id, v->type.naxes, v->axis, v->size);
    double most = 0;
    for (uint64_t e = 0; e < v->bytes / 4; e++) most = fmax(most, fabs((double)want->data[e]));
    for (uint64_t e = 0; e < v->bytes / 4; e++, walk_on(&w))
      if (walk_element(y->p, &w) >= 0)
        look(f, have ? (double)have->data[e] : INFINITY, (double)want->data[e], 2e-4 * most + 1e-7, "output",
             want->sink, (int64_t)e);
  }
}

double play_changed(const Play *was, const Play *y, Where what) {
  Far f = {0, what};
  *what = 0;
  look_at_losses(&f, y, was);
  look_at_outputs(&f, y, was);
  look_at_gradients(&f, y, NULL, was);
  return f.worst;
}
