/* What zrun says at the end of a run: how fast it was, and where time went. For rank 0, on the standard
 * output. */
#ifndef ZUG_EXEC_REPORT_H
#define ZUG_EXEC_REPORT_H

#include "runtime/exec/engine/engine.h"
#include "runtime/plan/time/time.h"

enum { ZX_STEPS_KEPT = 1000 };
typedef struct {
  int64_t last;             /* the latest step, from 1 */
  int64_t made;             /* steps that this run made: one that was resumed begins later */
  double ms[ZX_STEPS_KEPT]; /* of the last ones: step k of those made, from 0, at k % ZX_STEPS_KEPT */
  int64_t known;            /* steps after the first, and sums over them, in ms; waited < 0: not measured */
  double step, waited;
} ZxStepTimes;
/* Prints the median of the steps made, the first apart; `peak`: FLOP/s of all ranks together, 0: not known. Sorts the times. */
void zx_report_speed(ZxStepTimes *t, const ZpPlan *p, double peak);
/* What was predicted beside what was measured, and which part was off. */
void zx_report_prediction(const ZxStepTimes *t, const ZpTime *predicted);
/* Time by operation in steps `from` to `to`, and what of the rank's peaks it reaches. */
void zx_report_times(const ZxEngine *e, const ZpPlan *p, const ZpPeaks *own, int64_t from, int64_t to);
double zx_tokens_per_step(const ZpPlan *p); /* samples, where there is no sequence */

#endif
