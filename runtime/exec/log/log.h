/* What a run says of its steps, evaluations and samples: a line each for people, metrics.jsonl for programs, and event
 * files for TensorBoard. Knows numbers only: no plan, no engine.
 *
 * log.c        hands each to all of
 *   lines.c      lines for people; terminal.c: whether they see a terminal
 *   metrics.c    metrics.jsonl
 *   events.c     event files
 * sinks.h      what these share; scalars.def, scalars.c: the list of numbers */
#ifndef ZUG_EXEC_LOG_H
#define ZUG_EXEC_LOG_H

#include "base/base.h"

/* The share of `loss` that one of several losses, one with a name, or all `aux` terms together make up. */
#define ZX_MOST_PARTS 17
typedef struct {
  const char *name;
  double value; /* not a number: nothing of it was known */
} ZxLossPart;

/* One step. What is negative (but the loss) was not measured and is left out; what is not finite is null in
 * metrics.jsonl. */
typedef struct {
  int64_t step, steps;
  bool unknown; /* nothing of its samples is known: there is no loss */
  double loss, grad_norm, lr, tokens, step_ms, predicted_ms, tokens_per_s, flops,
      peak_share; /* share of measured peak, 0..1 */
  /* Waiting in the step: of all ranks' time the share, which no rank's beginning before another's makes more than
   * 1; the mean of ranks, and the most of one. */
  double bubble, wait_ms, wait_max_ms;
  uint64_t planned_bytes, used_bytes;
  const double *epochs; /* so far, of each data file */
  uint32_t nepochs;
  ZxLossPart part[ZX_MOST_PARTS];
  uint32_t nparts;
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
  bool unknown;            /* as above */
  double loss, perplexity; /* perplexity -1: it has none */
  double tokens, ms;       /* tokens: what the first loss is divided by */
  double best;             /* the lowest loss so far, ... */
  int64_t best_step;       /* ... and after which step; -1: none was finite */
  ZxLossPart part[ZX_MOST_PARTS];
  uint32_t nparts;
} ZxEvalMetrics;

/* A text that the model wrote after a step, to one of its prompts. */
typedef struct {
  int64_t step, steps;
  uint32_t prompt; /* which, from 1, */
  bool chat;       /* it is a message, and the text an answer; else the text goes on with it */
  const char *asked, *text;
  size_t ntext;       /* bytes of it */
  int64_t tokens;     /* of the text */
  const char *finish; /* "stop", "length" or "cancelled"; */
  const char *broken; /* or why there is no text; NULL: there is one */
} ZxSampleMetrics;

typedef struct {
  const char *dir; /* NULL: no files */
  /* Of a run that goes on: the step that it does so from; 0: one that begins. */
  int64_t before;
  /* Lines for people: of every so many steps (0: of each; on a terminal of none, but one that is kept up to
   * date), of the first and of the last; or none at all. */
  int64_t print_every;
  bool quiet;
  /* What event files begin with, for people: names and texts, kept by the caller until the log is closed. */
  struct ZxLogText {
    const char *name, *text;
  } text[4];
  uint32_t ntext;
} ZxLogOptions;
typedef struct ZxLog ZxLog;
/* Fails with a message for a folder that cannot be made or written. What an earlier run left in metrics.jsonl
 * stays there until the first line of this one, and is kept as metrics.jsonl.1, .2, ... Of a run that goes on
 * lines of later steps are cut off instead: it makes those steps again. It writes an event file of its own,
 * beside those of the steps before, which tells TensorBoard from which step on it counts. All is written at
 * once. Only rank 0 opens a log. What fails in a way that may pass, as on a full disk, waits in memory for the next
 * call: `passing` is true then, and nothing is lost if that succeeds. */
ZxLog *zx_log_open(const ZxLogOptions *o, ZbErr *err);
bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err);
bool zx_log_eval(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err);
bool zx_log_sample(ZxLog *l, const ZxSampleMetrics *m, ZbErr *err);
/* On a terminal: the line that says how far the run is, there until it is erased. In between nothing is
 * printed to the standard output. NULL is allowed. */
void zx_log_draw(ZxLog *l);
void zx_log_erase(ZxLog *l);
/* Whether what goes to the standard error meanwhile comes onto that line. */
bool zx_log_on_screen(const ZxLog *l);
/* After the last step: if it has no line yet, it gets one. */
bool zx_log_end(ZxLog *l, ZbErr *err);
void zx_log_close(ZxLog *l); /* NULL is allowed */

#endif
