/* What a run says of its steps: a line each for people, and metrics.jsonl for programs. */
#ifndef ZUG_EXEC_LOG_H
#define ZUG_EXEC_LOG_H

#include "base/base.h"

/* One line of metrics. What is negative (but the loss) was not measured and is left out; what is not finite
 * is null in metrics.jsonl. */
typedef struct {
  int64_t step, steps;
  double loss, grad_norm, lr, tokens, step_ms, tokens_per_s, flops,
      peak_share; /* share of measured peak, 0..1 */
  double bubble, wait_ms,
      wait_max_ms; /* waiting in the step: share of it, and time, means over all ranks; the most of one */
  uint64_t planned_bytes, used_bytes;
  const double *epochs; /* so far, of each data file */
  uint32_t nepochs;
} ZxMetrics;
/* Per rank class (pipeline stage): what differs. Times are means over its ranks, but for the most of one. */
typedef struct {
  int stage;
  uint64_t planned_bytes, used_bytes;
  double compute_ms, wait_ms, wait_max_ms;
} ZxClassMetrics;
/* Of an evaluation. */
typedef struct {
  int64_t step, steps; /* after which it is, of how many; steps 0: nothing is trained */
  int64_t batches;
  double loss, perplexity; /* perplexity -1: it has none */
  double tokens, ms;       /* tokens: what the loss is divided by */
  double best;             /* the lowest loss so far, ... */
  int64_t best_step;       /* ... and after which step; -1: none was finite */
} ZxEvalMetrics;
typedef struct ZxLog ZxLog;
/* dir NULL: no files. Fails with a message for a folder that cannot be made or written. What an earlier run
 * left in metrics.jsonl stays there until the first line of this one, and is kept as metrics.jsonl.1, .2, ...
 * Of a run that goes on after step `before` (0: one that begins) lines of later steps are cut off instead: it
 * makes those steps again. Lines are flushed. Only rank 0 opens a log. */
ZxLog *zx_log_open(const char *dir, int64_t before, ZbErr *err);
bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err);
bool zx_log_eval(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err);
void zx_log_close(ZxLog *l);

#endif
