/* A predicted step beside a measured one. */
#ifndef ZUG_PLAN_COMPARE_H
#define ZUG_PLAN_COMPARE_H

#include "runtime/plan/plan.h"
#include "runtime/plan/time/time.h"

/* Compares t, which has spans, with `trace`, the text of a file that `zrun --trace` wrote in a run of this
 * plan. Writes the differences to `out`, and to `both` a trace of the measured steps followed by the
 * predicted one, as processes of its own. Returns false if the text is not a trace of such a run. */
bool zp_compare(const ZpPlan *p, const ZpTime *t, const char *trace, ZbText *out, ZbText *both, ZbErr *err);

#endif
