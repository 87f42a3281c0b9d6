/* See evaluate.h. */
#include "runtime/exec/evaluate.h"

#include <inttypes.h>
#include <math.h>

static bool is_likelihood(const ZgGraph *g) {
  const ZgSegment *s = &g->segments[g->nsegments - 1]; /* which has the loss */
  for (uint32_t i = 0; i < s->nforward; i++)
    if (s->nodes[i].op == ZG_OP_XENT_SUMS) return true;
  return false;
}

bool zx_eval_open(ZxEval *v, ZxEngine *e, const ZpPlan *p, const char *data, int64_t batches, ZbErr *err) {
  uint64_t n = zx_engine_data_samples(e), each = (uint64_t)p->global_batch, have = n / each;
  *v = (ZxEval){.engine = e, .plan = p, .likelihood = is_likelihood(p->graph), .best_step = -1};
  if (!have)
    return zb_fail(err, "use more data, or `bind` a smaller batch",
                   "%s has %" PRIu64 " samples; an evaluation takes whole batches of %" PRIu64, zb_show(data),
                   n, each);
  if (batches > 0 && (uint64_t)batches > have)
    return zb_fail(err, "leave --eval-batches out to take them all",
                   "--eval-batches %" PRId64 ": %s has %" PRIu64 " whole batches of %" PRIu64 " samples",
                   batches, zb_show(data), have, each);
  v->batches = batches > 0 ? batches : (int64_t)have;
  v->left_out = n - (uint64_t)v->batches * each;
  return zx_engine_try_data(e, v->batches, err);
}

void zx_eval_tell(const ZxEval *v, const char *data, ZbText *out) {
  zb_text_add(out, "evaluation of %s: %" PRId64 " batch%s of %" PRId64 " samples", zb_show(data), v->batches,
              v->batches > 1 ? "es" : "", v->plan->global_batch);
  if (v->left_out >= (uint64_t)v->plan->global_batch)
    zb_text_add(out, "; the other %" PRIu64 " samples are left out", v->left_out);
  else if (v->left_out)
    zb_text_add(out, "; the last %" PRIu64 " samples make no whole batch and are left out", v->left_out);
  zb_text_add(out, "\n");
}

bool zx_eval_run(ZxEval *v, int64_t step, int64_t steps, ZxEvalMetrics *out, ZbErr *err) {
  double from = zb_now(), sum = 0, weight = 0, aux = 0;
  for (int64_t b = 1; b <= v->batches; b++) {
    ZxStep s;
    if (!zx_engine_step(v->engine, b, 0, &s, err)) return false;
    if (s.used_bytes != zx_engine_bytes(v->engine))
      ZB_BUG("an evaluation planned %" PRIu64 " bytes and used %" PRIu64, zx_engine_bytes(v->engine),
             s.used_bytes);
    sum += s.loss_sum;
    weight += s.tokens;
    aux += s.aux;
  }
  double loss = sum / weight; /* no number where nothing is known */
  *out = (ZxEvalMetrics){.step = step,
                         .steps = steps,
                         .batches = v->batches,
                         .loss = loss + aux / (double)v->batches,
                         .perplexity = v->likelihood ? exp(loss) : -1,
                         .tokens = weight,
                         .ms = 1e3 * (zb_now() - from)};
  if (isfinite(out->loss) && (v->best_step < 0 || out->loss < v->best)) {
    v->best = out->loss;
    v->best_step = step;
  }
  out->best = v->best;
  out->best_step = v->best_step;
  return true;
}
