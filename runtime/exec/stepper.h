/* stepper: plays the scheduler's steps on this rank's engine. */
#ifndef ZUG_EXEC_STEPPER_H
#define ZUG_EXEC_STEPPER_H

#include "runtime/exec/admission.h"
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/generate/generate.h"
#include "runtime/exec/replica.h"

/* The sequences of a replica may be parted into waves, each with its own scheduler, whose steps follow each other
 * through the stages of a pipeline: while one has the second stage another has the first. A wave has its share of slots
 * and pages. */
typedef struct {
  uint32_t wave, waves;
} ZxWave;
/* Returns how many waves keep all stages busy: as many as there are, if there are so many sequences and pages. */
uint32_t zx_waves(const ZpPlan *p);
/* Returns what a plan that generates has room for in a wave. The caller adds the ids that end a text, and the length of
 * the queue. */
ZxScheduling zx_scheduling(const ZpPlan *p, ZbArena *a, ZxWave w);

typedef struct ZxStepper ZxStepper;
/* `admission`: that of the plan; NULL: it has none. NULL with a message: the model takes something besides
 * tokens, a source, documents and places. */
ZxStepper *zx_stepper_new(ZbArena *a, ZxEngine *e, const ZpPlan *p, const ZxReplica *r, ZxWave w,
                          ZxAdmission *admission, ZbErr *err);
/* Plays a step, with the other ranks of the replica. Returns logits[row][id] of its rows and of the ids that are this
 * rank's share, valid until the next step; on ranks that are not of the last stage they are nothing. NULL with a
 * message. */
const float *zx_stepper_play(ZxStepper *x, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err);
ZxShare zx_stepper_share(const ZxStepper *x);
uint64_t zx_stepper_used(const ZxStepper *x); /* bytes of the arena that steps have touched so far */

#endif
