/* lanes: who answers which query. See lanes.c. */
#ifndef ZUG_EXEC_RUN_LANES_H
#define ZUG_EXEC_RUN_LANES_H

#include "runtime/exec/run/run.h"

typedef enum {
  ZX_TOLD_NEWS,    /* what is new of a choice, for zx_copy_take: text has become sure, or it has ended */
  ZX_TOLD_RESULT,  /* a query is answered: its line, or where news are wanted a ZxSummary */
  ZX_TOLD_REFUSED, /* it cannot be asked: message, and behind a 0 byte what helps */
  ZX_TOLD_BROKEN,  /* its logits are not numbers: the same */
  ZX_TOLD_KINDS
} ZxToldKind;
/* What is known of a query beside its answers, once it is answered. */
typedef struct {
  uint32_t prompt_tokens, cached;
} ZxSummary;

typedef struct {
  uint64_t number;
  uint32_t choices;
  const ZxQuery *query; /* is sent to the ranks that answer it; NULL: they know it */
} ZxNext;

/* Where queries come from and answers go to. */
typedef struct {
  void *ctx;
  bool wants_news; /* of choices, as they come; else whole results */
  /* On rank 0. Returns whether there is a query to be asked now, which it is until `took`. */
  bool (*next)(void *ctx, ZxNext *next);
  void (*took)(void *ctx, uint32_t lane);
  bool (*take)(void *ctx, ZxToldKind kind, uint64_t number, uint32_t choice, const char *text, size_t n);
  bool (*done)(void *ctx); /* nothing is to come, nor to be taken */
  /* On all ranks that answer it: a query, from what came with it, until it is forgotten. */
  const ZxQuery *(*query)(void *ctx, uint64_t number, const char *bytes, size_t n);
  void (*forget)(void *ctx, uint64_t number, const ZxQuery *q);
  const struct ZxOpenDesk *open; /* NULL: all queries are known at the beginning */
} ZxDesk;

/* Of desks to which queries come while others are answered, on rank 0, with the same context. That the run is to stop
 * they look at themselves. */
typedef struct ZxOpenDesk {
  void (*opened)(void *ctx, uint32_t slots);       /* all lanes are there, which answer so many at once */
  void (*look)(void *ctx, const ZxCounts *counts); /* between steps: sees who comes and goes */
  bool (*leaves)(void *ctx, uint64_t *number, uint32_t *lane); /* a query to be ended: each once */
  void (*wait)(
      void *ctx); /* nothing is under way: waits until something comes, a fifth of a second at most */
  void (*lost)(void *ctx); /* a step has failed: nothing is answered any more */
} ZxOpenDesk;

typedef struct ZxLanes ZxLanes;
/* Answers all queries, on all ranks, which come to its end together. False if rank 0 could not go on, which it has
 * said. Counts are rank 0's to have. */
bool zx_run_lanes(ZxRun *r, const ZxDesk *desk, ZxCounts *counts);

/* ---- routes.c: which lane wrote the beginning of a text last ---- */
enum { ZX_BEGINNINGS = 32 };
typedef struct {
  ZxPrefix is[ZX_BEGINNINGS]; /* the text's beginnings, shorter ones first */
  uint32_t n;
} ZxRoute;
typedef struct ZxRoutes ZxRoutes;
ZxRoutes *zx_routes_new(ZbArena *a, uint32_t page); /* of so many positions */
ZxRoute zx_route_of(const ZxRoutes *x, const ZxQuery *q);
/* Returns the lane that wrote the longest beginning that is known; -1: none. */
int zx_routes_find(const ZxRoutes *x, const ZxRoute *r);
void zx_routes_note(ZxRoutes *x, const ZxRoute *r, uint32_t lane);

/* generate.c: says how many tokens there were, and how fast, unless nobody wants to know. */
void zx_run_tell(const ZxRun *r, const ZxCounts *c, uint64_t answers, double seconds);

#endif
