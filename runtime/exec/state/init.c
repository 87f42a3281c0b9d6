/* Initial values, drawn from the seed. A value is a pure function of (seed, parameter path, index in the
 * whole parameter), so any sharding draws the same. */
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/state.h"
#include "runtime/plan/text.h"

#include <math.h>

/* Drawn again until within `cut` sigma; with two 4.6 % need more than one draw. */
static double truncated(double x, double cut, uint64_t seed, uint64_t stream, uint64_t i) {
  for (uint64_t salt = 1; !(fabs(x) <= cut); salt++) x = zb_random_normal(seed, stream + zb_mix64(salt), i);
  return x;
}

static void draw_normals(const ZxWalk *w, const ZgParam *q, uint64_t global, uint64_t n, float *at) {
  uint64_t seed = w->e->o.seed;
  const double *num = zg_init_numbers(q, w->iter);
  double x[256], cut = num[1] != 0 ? num[1] : 2;
  for (uint64_t i = 0, m; i < n; i += m) {
    m = n - i < 256 ? n - i : 256;
    zb_random_normals(seed, w->stream, global + i, m, x);
    for (uint64_t k = 0; k < m && q->init == ZG_INIT_TRUNC_NORMAL; k++)
      x[k] = truncated(x[k], cut, seed, w->stream, global + i + k);
    for (uint64_t k = 0; k < m; k++) at[i + k] = (float)(num[0] * x[k]);
  }
}

/* Initial values by position: of n elements of the whole parameter. */
static void by_position(const ZpSlice *s, const ZgParam *q, uint32_t iter, uint64_t global, uint64_t n,
                        float *at) {
  double place[ZG_MAX_AXES];
  for (uint64_t i = 0; i < n; i++) {
    uint64_t left = global + i;
    for (int a = s->naxes; a-- > 0; left /= (uint64_t)s->valid[a])
      place[a] = (double)(left % (uint64_t)s->valid[a]);
    at[i] = (float)zg_initial(q, place, iter);
  }
}

bool zx_draw_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  const ZxWalk *w = ctx;
  const ZgParam *q = &w->e->p->graph->params[w->s->param];
  if (q->formula) {
    by_position(w->s, q, w->iter, global, n, at);
    return true;
  }
  if (q->init == ZG_INIT_NORMAL || q->init == ZG_INIT_TRUNC_NORMAL) {
    draw_normals(w, q, global, n, at);
    return true;
  }
  const double *num = zg_init_numbers(q, w->iter);
  for (uint64_t i = 0; i < n; i++)
    at[i] = q->init == ZG_INIT_UNIFORM
                ? (float)(num[0] + (num[1] - num[0]) * zb_random_unit(w->e->o.seed, w->stream, global + i))
                : (float)num[0];
  return true;
}

bool zx_check_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  const ZxWalk *w = ctx;
  int64_t i = zb_not_finite(at, n);
  return i < 0 ||
         zb_fail(w->err, "its values must fit f32, below 3.4e38",
                 "the initial value of %s is %g (parameter at %s)", zx_element(w, global + (uint64_t)i),
                 zb_plain_nan((double)at[i]), zp_loc_text(w->e->p, w->e->p->graph->params[w->s->param].loc));
}

/* ---- publishing ---- */
/* Parameters of the owned shard, as they are read, to the other owners of a full copy. */
static void publish(ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  if (!k->republishes) return;
  uint16_t *rounded = zx_rounded(e, h);
  const void *own = rounded ? (void *)rounded : zx_master(e, h).f32;
  uint64_t bytes = zk_bytes((ZkElem)k->elem, to - from);
  zx_await(e, e->c->t->all_gather(e->c, e->group[k->shard], own, bytes, zx_stored(e, ZP_B_PARAM, h)));
}

/* The first step's other streams do not wait for this one. */
bool zx_publish_initial(ZxEngine *e, ZbErr *err) {
  for (uint32_t i = 0; i < e->st->nheld; i++) publish(e, &e->st->held[i]);
  return zx_agree(e->world, zx_finish(e, err));
}

static void begin_as_values(ZxEngine *e, const ZpStageBucket *h, int state) {
  uint64_t from, to;
  float *x = zx_state(e, h, state);
  zx_owned_shard(e, h, &from, &to);
  e->dev->zero(e->env, x, (to - from) * sizeof *x);
  e->dev->average(e->env, &(ZxScalars){0}, (int64_t)(to - from), 0, zx_master(e, h), x);
}

void zx_begin_average(ZxEngine *e) {
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    const ZpBucket *k = &e->p->programs.buckets[h->bucket];
    int averaged = zp_averaged_state(e->p, k);
    if (averaged >= 0) begin_as_values(e, h, 0), begin_as_values(e, h, averaged);
    if (e->p->asked.average > 0 && !zx_is_frozen(e, h)) begin_as_values(e, h, zp_states(e->p, k) - 1);
  }
}

bool zx_engine_init(ZxEngine *e, ZbErr *err) {
  ZxWalk draw = {.each = zx_draw_run, .draws = true, .err = err},
         look = {.each = zx_check_run, .fetch = true, .err = err};
  if (!zx_agree(e->world, zx_walk(e, &draw)) || !zx_agree(e->world, zx_walk(e, &look))) return false;
  zx_begin_average(e);
  return zx_publish_initial(e, err);
}
