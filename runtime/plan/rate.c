/* Learning rates. The shapes: linear; cosine (Loshchilov, Hutter 2017); 1 - sqrt, for the end of a stable rate
 * (Haegele et al. 2024); and the inverse square root (Vaswani et al. 2017). */
#include "runtime/plan/plan.h"

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
