/* Held-out data through the model, forward only: what `zrun eval` does, and `zrun train --eval` between
 * steps.
 *
 * An evaluation is K whole batches of the plan from the beginning of the data, in their order. What is left
 * of the data makes no whole batch and is left out. Sums go over all batches before anything is divided, so
 * its loss is that of all its samples as one batch. Nothing is random: see ZpPlan.asked.forward_only. */
#ifndef ZUG_EXEC_EVALUATE_H
#define ZUG_EXEC_EVALUATE_H

#include "runtime/exec/engine/engine.h"
#include "runtime/exec/log/log.h"

typedef struct {
  ZxEngine *engine; /* of a plan that only goes forward */
  const ZpPlan *plan;
  int64_t batches;   /* of an evaluation */
  uint64_t left_out; /* samples of the data beyond them */
  bool likelihood;   /* its first loss is a mean cross-entropy, of which exp is the perplexity */
  double best;       /* the lowest loss so far */
  int64_t best_step; /* after which it was; -1: there is none */
} ZxEval;

/* Lists what each loss and the `aux` terms make up of the loss of a step, or of an evaluation, for a line
 * about it. Returns how many these are: none of one loss without a name, to which nothing is added. */
uint32_t zx_loss_parts(const ZpPlan *p, const double *sum, const double *weight, double aux, ZxLossPart *out);
/* `data`: how messages call them; batches 0: as many as they have. Reads all that evaluations will, so that
 * what is wrong with it is known before anything is trained. False, on this rank, with what is. */
bool zx_eval_open(ZxEval *v, ZxEngine *e, const ZpPlan *p, const char *data, int64_t batches, ZbErr *err);
/* A line for people: what will be evaluated. */
void zx_eval_tell(const ZxEval *v, const char *data, ZbText *out);
/* Collective: one evaluation, of parameters as they are after `step` of `steps` (0: nothing is trained).
 * False with a message when the data are at fault. */
bool zx_eval_run(ZxEval *v, int64_t step, int64_t steps, ZxEvalMetrics *out, ZbErr *err);

#endif
