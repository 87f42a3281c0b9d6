/* lanes: who answers which query. See lanes.c. */
#ifndef ZUG_EXEC_RUN_LANES_H
#define ZUG_EXEC_RUN_LANES_H

#include "runtime/exec/run/run.h"

typedef enum {
  ZX_TOLD_PIECE,  /* text of a choice that has become sure */
  ZX_TOLD_ENDED,  /* a choice has ended: its table of log-probabilities */
  ZX_TOLD_RESULT, /* a query is answered: where parts are not wanted, its line */
  ZX_TOLD_BROKEN, /* it cannot be: message, and behind a 0 byte what helps */
  ZX_TOLD_KINDS
} ZxToldKind;

/* Where queries come from and answers go to. */
typedef struct {
  void *ctx;
  bool wants_parts; /* pieces and choices, as they come; else whole results */
  /* On rank 0. Returns whether there is a query to be asked now, which it is until `took`. */
  bool (*next)(void *ctx, uint64_t *number, uint32_t *choices);
  void (*took)(void *ctx);
  bool (*take)(void *ctx, ZxToldKind kind, uint64_t number, uint32_t choice, const char *text, size_t n);
  bool (*done)(void *ctx); /* nothing is to come, nor to be taken */
  /* On all ranks that answer it: a query, until it is forgotten. */
  const ZxQuery *(*query)(void *ctx, uint64_t number);
  void (*forget)(void *ctx, uint64_t number);
} ZxDesk;

enum { ZX_LANE_COUNTS = 5 };
typedef struct {
  uint64_t of[ZX_LANE_COUNTS]; /* tokens of prompts, written, cached; draft tokens, right ones */
} ZxLaneCounts;

typedef struct ZxLanes ZxLanes;
/* Answers all queries, on all ranks, which come to its end together. False if rank 0 could not go on, which it has
 * said. Counts are rank 0's to have. */
bool zx_run_lanes(ZxRun *r, const ZxDesk *desk, ZxLaneCounts *counts);

/* generate.c: says how many tokens there were, and how fast, unless nobody wants to know. */
void zx_run_tell(const ZxRun *r, const ZxLaneCounts *c, uint64_t answers, double seconds);

#endif
