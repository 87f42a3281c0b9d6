/* Decides if a run goes on from a step: after steps whose loss or gradients are not finite, and after those
 * of which nothing is known. Notes losses that jump. */
#ifndef ZUG_EXEC_HEALTH_H
#define ZUG_EXEC_HEALTH_H

#include "runtime/exec/state/state.h"

/* After a step that is not finite: go on, but end after ZX_MOST_SKIPPED in a row; end; go on whatever comes.
 * A step of which nothing is known ends the run only with the second: every start would come to it again. */
typedef enum { ZX_ON_NAN_FEW, ZX_ON_NAN_END, ZX_ON_NAN_SKIP } ZxOnNan;
enum { ZX_MOST_SKIPPED = 3 };

typedef struct {
  ZxOnNan on_nan;
  int skipped;         /* steps that were not finite, without a sound one between them */
  int64_t unknown;     /* steps of which nothing was known, likewise */
  double mean, width;  /* of the losses of late, and how far from it they were */
  int64_t nloss, told; /* losses so far; the last step of which a jump was told */
} ZxHealth;

/* Collective, after a step: whether the run goes on. If not, `err` says why, the same on all ranks; `good` is
 * what it may go on from another time, or NULL. Otherwise `note` gets what there is to say of the step. */
bool zx_health_step(ZxHealth *h, ZxEngine *e, int64_t step, const ZxStep *s, const char *good, ZbText *note,
                    ZbErr *err);
/* The parts of it that need no engine: after a step of which zx_engine_sound said this, with `err` as it
 * left it; and of losses alone. */
bool zx_health_goes_on(ZxHealth *h, ZxSoundness sound, int64_t step, double loss, const char *good,
                       ZbText *note, ZbErr *err);
void zx_health_loss(ZxHealth *h, int64_t step, double loss, ZbText *note);

#endif
