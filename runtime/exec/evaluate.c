/* See evaluate.h. */
#include "runtime/exec/evaluate.h"

#include <inttypes.h>
#include <math.h>

/* In a part of the model that has the first loss. */
static bool is_likelihood(const ZgGraph *g) {
  bool any = false;
  for (uint32_t k = 0; k < g->nsegments && !any; k++) {
    const ZgSegment *s = &g->segments[k];
    bool first = false, xent = false;
    for (uint32_t i = 0; i < s->nforward; i++) {
      first |= s->nodes[i].op == ZG_OP_LOSS_NUM && s->nodes[i].opt[0] == 0;
      xent |= s->nodes[i].op == ZG_OP_XENT_SUMS;
    }
    any = first && xent;
  }
  return any;
}

_Static_assert(ZX_MOST_PARTS > ZG_MAX_LOSSES,
               "a line has room for all losses, and for what is added to them");

uint32_t zx_loss_parts(const ZpPlan *p, const double *sum, const double *weight, double aux,
                       ZxLossPart *out) {
  const ZgGraph *g = p->graph;
  uint32_t n = 0;
  bool added = zg_has_aux(g) && zg_has_loss(g);
  for (uint32_t k = 0; k < g->nlosses; k++)
    out[n++] = (ZxLossPart){g->losses[k].name, zx_loss_part(sum[k], weight[k])};
  if (added && !n) out[n++] = (ZxLossPart){ZG_LOSS_WITHOUT_NAME, zx_loss_part(*sum, *weight)};
  if (added) out[n++] = (ZxLossPart){"aux", aux}; /* a word of the language: no loss is called that */
  return n;
}

bool zx_eval_open(ZxEval *v, ZxEngine *e, const ZpPlan *p, const char *data, int64_t batches, ZbErr *err) {
  uint64_t n = zx_engine_data_samples(e), each = (uint64_t)p->asked.global_batch, have = n / each;
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
              v->batches > 1 ? "es" : "", v->plan->asked.global_batch);
  if (v->left_out >= (uint64_t)v->plan->asked.global_batch)
    zb_text_add(out, "; the other %" PRIu64 " samples are left out", v->left_out);
  else if (v->left_out)
    zb_text_add(out, "; the last %" PRIu64 " samples make no whole batch and are left out", v->left_out);
  zb_text_add(out, "\n");
}

bool zx_eval_run(ZxEval *v, int64_t step, int64_t steps, ZxEvalMetrics *out, ZbErr *err) {
  double from = zb_now(), sum[ZG_MAX_LOSSES] = {0}, weight[ZG_MAX_LOSSES] = {0}, aux = 0;
  uint32_t n = zg_losses(v->plan->graph);
  if (!zx_engine_publish(v->engine, err)) return false;
  for (int64_t b = 1; b <= v->batches; b++) {
    ZxStep s;
    if (!zx_engine_step(v->engine, b, &s, err)) return false;
    if (s.used_bytes != zx_engine_bytes(v->engine))
      ZB_BUG("an evaluation planned %" PRIu64 " bytes and used %" PRIu64, zx_engine_bytes(v->engine),
             s.used_bytes);
    for (uint32_t k = 0; k < n; k++) sum[k] += s.loss_sum[k], weight[k] += s.weight[k];
    aux += s.aux;
  }
  if (!zx_engine_restore(v->engine, err)) return false;
  aux /= (double)v->batches;
  *out = (ZxEvalMetrics){.step = step,
                         .steps = steps,
                         .batches = v->batches,
                         .unknown = zx_unknown(n, weight),
                         .loss = zx_loss(n, sum, weight) + aux,
                         .perplexity = v->likelihood && weight[0] != 0 ? exp(sum[0] / weight[0]) : -1,
                         .tokens = weight[0],
                         .ms = 1e3 * (zb_now() - from)};
  out->nparts = zx_loss_parts(v->plan, sum, weight, aux, out->part);
  if (isfinite(out->loss) && (v->best_step < 0 || out->loss < v->best)) {
    v->best = out->loss;
    v->best_step = step;
  }
  out->best = v->best;
  out->best_step = v->best_step;
  return true;
}
