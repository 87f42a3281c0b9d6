/* The learning rate of a step. */
#include "runtime/exec/exec.h"

#include <math.h>

double zx_rate(const ZxRate *r, int64_t step) {
  ZB_ASSERT(step >= 1);
  if (step <= r->warmup) return r->lr * (double)step / (double)r->warmup;
  if (r->anneal == ZX_CONSTANT) return r->lr;
  double part = step >= r->until ? 1 : (double)(step - r->warmup) / (double)(r->until - r->warmup);
  double rest = r->anneal == ZX_LINEAR ? 1 - part : 0.5 * (1 + cos(M_PI * part)); /* 1 falling to 0 */
  return r->lr * (r->final + (1 - r->final) * rest);
}
