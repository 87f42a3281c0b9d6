/* The list of numbers as tables. */
#include "runtime/exec/log/sinks.h"

#define ALWAYS ZX_ALWAYS
#define KNOWN ZX_KNOWN
#define BYTES ZX_BYTE_COUNT
const ZxScalar zx_step_scalars[] = {
#define STEP(member, how, tag) {#member, tag, how, offsetof(ZxMetrics, member)},
#define EVAL(member, how, tag)
#include "runtime/exec/log/scalars.def"
    {0}};
const ZxScalar zx_eval_scalars[] = {
#define STEP(member, how, tag)
#define EVAL(member, how, tag) {#member, tag, how, offsetof(ZxEvalMetrics, member)},
#include "runtime/exec/log/scalars.def"
    {0}};

bool zx_scalar(const ZxScalar *s, const void *m, double *value) {
  const void *p = (const char *)m + s->at;
  *value = s->how == ZX_BYTE_COUNT ? (double)*(const uint64_t *)p : *(const double *)p;
  return s->how != ZX_KNOWN || !(*value < 0);
}
