/* plan/search: the fastest recipes of a model on a cluster. Pure, as the plan is.
 *
 * * dims.c what is searched: mesh dims by what they do space.c axes, blocks to recompute; the recipe that
 * says what a candidate is measure.c what local programs need and take, made once for all recipes that share
 * them bytes.c bytes of a stage, line by line closed.c seconds of a step by a formula: to rank weigh.c all
 * recipes of the space, the best of which are kept search.c the best of these planned and simulated found.c
 * the result as a table, as JSON, as a recipe with reasons
 *
 * * Two sieves: bytes.c and closed.c look at every recipe that may be among the best, in about a microsecond;
 * then the best are planned, with their exact ledgers, and the event loop plays them. What is printed is the
 * plan's and the loop's, never the formula's. */
#ifndef ZUG_PLAN_SEARCH_H
#define ZUG_PLAN_SEARCH_H

#include "runtime/plan/time/time.h"

typedef struct {
  const ZlCluster *cluster;
  int64_t ranks; /* 0: all devices of the cluster */
  uint32_t keep; /* recipes in the table */
  bool whole;    /* nothing was given (zp_search_open): the order of dims is open, too */
} ZpSearchOptions;

/* A recipe that was planned and simulated. */
typedef struct {
  const ZlRecipe *recipe;
  double seconds, closed; /* of a step; by the formula that ranked it */
  uint64_t estimate;      /* of `bytes`, by which it was weighed */
  double tokens, utilization, part[ZP_T_PARTS];
  uint64_t bytes; /* of the fullest rank, which is of this stage: */
  uint32_t stage;
  uint64_t least;  /* of the fullest if nothing was kept that memory allows */
  ZpLedger ledger; /* that rank's */
  int64_t nmicro;
  uint32_t live;
} ZpFound;

typedef struct {
  const ZgGraph *graph;
  const ZlCluster *cluster;
  int64_t ranks;
  uint64_t limit;   /* bytes of a rank */
  bool limit_given; /* by the recipe; else a part of the device's memory is left to drivers and libraries */
  uint64_t meshes, recipes; /* of the space */
  uint64_t weighed, fit;    /* those that may be among the best, and of these what fits */
  uint64_t simulated;
  ZpFound *best; /* fastest first */
  uint32_t nbest;
  const ZpFound *nearest; /* if nothing fits: what comes nearest */
  const char *refused;    /* if none of the recipes can be planned, why one of them cannot; else NULL */
} ZpSearch;

/* `base` says what is common to all: binds, optimizer, precision, pads, and what of the rest is given. NULL,
 * with reports, if it cannot be searched. */
ZpSearch *zp_search(ZbArena *a, const ZgGraph *g, const ZlRecipe *base, const ZpSearchOptions *o,
                    const ZpOptions *plan, ZlDiags *d);

/* The size of a data axis. */
typedef struct {
  const char *axis;
  int64_t size;
} ZpSize;
/* The text of a recipe that leaves everything open, for those who have none. What does not change a step's
 * time is as it often is. bind: sizes of data axes by their names, of which the samples and `seq` may be
 * some. */
void zp_search_open(const ZgGraph *g, const ZlCluster *c, const ZpSize *bind, uint32_t nbind, ZbText *out);
/* Returns a data axis of which no size is given, or NULL. */
const char *zp_search_lacks(const ZgGraph *g, const ZpSize *bind, uint32_t nbind);

/* ---- found.c ------------------------------------------------------------------------------------------- */
void zp_show_search(const ZpSearch *s, ZbText *out);
void zp_show_search_json(const ZpSearch *s, ZbText *out); /* output/JSON.md */
/* The best n of the table as a recipe file, with comments that say why: best, best_2 and so on. */
void zp_search_recipes(const ZpSearch *s, uint32_t n, ZbText *out);

#endif
