/* Learning rates. The shapes: linear; cosine (Loshchilov, Hutter 2017); 1 - sqrt, for the end of a stable
 * rate (Haegele et al. 2024); and the inverse square root (Vaswani et al. 2017). */
#include "runtime/plan/plan.h"

#include <inttypes.h>
#include <math.h>

const char *const zp_anneal_text[ZP_ANNEALS] = {"constant", "linear", "cosine", "sqrt", "rsqrt"};

/* 1 falling to 0. */
static double rest_of(ZpAnneal a, double part) {
  return a == ZP_LINEAR ? 1 - part : a == ZP_SQRT ? 1 - sqrt(part) : 0.5 * (1 + cos(M_PI * part));
}

double zp_rate(const ZpRate *r, int64_t step) {
  ZB_ASSERT(step >= 1);
  int64_t begin = r->warmup + r->stable;
  if (step <= r->warmup) return r->lr * (double)step / (double)r->warmup;
  if (step <= begin || r->anneal == ZP_CONSTANT) return r->lr;
  if (r->anneal == ZP_RSQRT) return r->lr * sqrt((double)begin / (double)step);
  double part = step >= r->until ? 1 : (double)(step - begin) / (double)(r->until - begin);
  return r->lr * (r->final + (1 - r->final) * rest_of(r->anneal, part));
}

/* Returns the weight of step t among the steps 1 .. t, each by the square of the largest rate so far, as
 * Defazio et al. 2024 have it: rates grow in the first `warm` of these, and no more afterwards. */
static double weight_of(double warm, double t) {
  double grown = fmin(t, floor(warm)), sum = t - grown, now = t < warm ? t / warm : 1;
  if (grown > 0) sum += grown * (grown + 1) * (2 * grown + 1) / (6 * warm * warm);
  return now * now / sum;
}

void zp_group_scalars(const ZpOptimizer *o, const ZpGroup *g, int64_t step, float *out) {
  double set[ZK_MOST_SETTINGS];
  int64_t every = o->every, t = (step + every - 1) / every;
  ZkStepOf at = {.lr = zp_rate(&o->rate, step) * g->rate,
                 .decay = zl_amount_at(&g->decay, step),
                 .step = t,
                 .acts = step % every == 0,
                 .weight = weight_of((double)o->rate.warmup / (double)every, (double)t)};
  for (int i = 0; i < zk_optimizer_info[o->kind].nsettings; i++) set[i] = zl_amount_at(&o->set[i], step);
  zk_optimizer_scalars(o->kind, set, &at, out);
}

bool zp_rate_note(const ZpRate *r, int64_t steps, ZbText *out) {
  bool falls = r->anneal != ZP_CONSTANT && r->anneal != ZP_RSQRT;
  bool grows = r->warmup > steps, early = falls && r->until > steps,
       idle = falls && r->until < steps && !r->final;
  if (steps < 1 || !(grows || early || idle)) return false;
  int64_t at = grows ? r->warmup : r->until;
  zb_text_add(out, "the run has %" PRId64 " step%s, and the recipe says `%s = %" PRId64 "`: ", steps,
              steps > 1 ? "s" : "", grows ? "warmup" : "until", at);
  if (idle && !grows) zb_text_add(out, "from there on the learning rate is 0");
  else
    zb_text_add(out, "it ends while the learning rate %s, at %.2e of %.2e",
                grows                           ? "grows"
                : r->warmup + r->stable < steps ? "falls"
                                                : "has not begun to fall",
                zp_rate(r, steps), r->lr);
  return true;
}
