/* stepper: plays the scheduler's steps on this rank's engine. */
#ifndef ZUG_EXEC_STEPPER_H
#define ZUG_EXEC_STEPPER_H

#include "runtime/exec/engine/engine.h"
#include "runtime/exec/generate/generate.h"
#include "runtime/exec/replica.h"

/* Returns what a plan that generates has room for. The caller adds the ids that end a text, and the length of
 * the queue. */
ZxScheduling zx_scheduling(const ZpPlan *p, ZbArena *a);

typedef struct ZxStepper ZxStepper;
/* NULL with a message: the model takes something besides tokens, documents and places. */
ZxStepper *zx_stepper_new(ZbArena *a, ZxEngine *e, const ZpPlan *p, const ZxReplica *r, ZbErr *err);
/* Plays a step, with the other ranks of the replica. Returns logits[row][id] of its rows, valid until the next step; on
 * ranks that are not of the last stage they are nothing. NULL with a message. */
const float *zx_stepper_play(ZxStepper *x, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err);
uint64_t zx_stepper_used(const ZxStepper *x); /* bytes of the arena that steps have touched so far */

#endif
