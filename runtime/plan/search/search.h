/* plan/search: the fastest recipes of a model on a cluster. Pure, as the plan is.
 *
 * dims.c       what is searched: mesh dims by what they do
 * space.c      axes, blocks to recompute; the recipe that says what a candidate is
 * measure.c    what local programs need and take, made once for all recipes that share them
 * bytes.c      bytes of a stage, line by line
 * closed.c     seconds of a step by a formula: to rank
 * weigh.c      all recipes of the space, the best of which are kept
 * search.c     the best of these planned and simulated; what is not among them, and why
 * found.c      the result as a table, as JSON, as a recipe with reasons
 *
 * Three sieves, each dearer and closer than the one before: bytes.c and closed.c look at every recipe that may
 * be among the best, in about a microsecond; the whole plan with its exact ledger is made of the best, and the
 * event loop plays it.
 * What is printed is the plan's and the loop's, never the formula's. */
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
  bool by_cost; /* the stages that it lists are those that `by cost` makes */
} ZpFound;

/* A layout that people know: the best recipe of its kind, or why there is none. */
typedef struct {
  const char *name;
  const ZpFound *best; /* NULL: none could be planned */
  bool fits, listed;   /* it needs more than the limit; it is among the best */
  const char *why;     /* in words, unless it is listed */
} ZpKnown;

/* What the best does that another recipe does not, and the fastest that was played of those. */
typedef struct {
  const char *dim;     /* of the mesh: ranks share experts, or a sequence */
  bool experts;        /* else a sequence */
  const ZpFound *less; /* without the dim; NULL: none */
  const ZpFound *way;  /* with it, but another way of attention */
} ZpChoice;

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
  ZpChoice choice[2];
  uint32_t nchoices;
  ZpKnown *known;
  uint32_t nknown;
  /* If nothing fits: what comes nearest, and the fewest devices on which something does; 0: not found. */
  const ZpFound *nearest;
  int64_t fewest;
  /* If there is no mesh of so many ranks at all: the next smaller number of which there is one, and so many
   * samples that every rank has some; 0: there are none. */
  int64_t fewer, samples;
  const char *refused; /* if none of the recipes can be planned, why one of them cannot; else NULL */
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
/* The text of a recipe that leaves everything open, for those who have none. What does not change a step's time
 * is as it often is. bind: sizes of data axes by their names, of which the samples and `seq` may be some. */
void zp_search_open(const ZgGraph *g, const ZlCluster *c, const ZpSize *bind, uint32_t nbind, ZbText *out);
/* A data axis of which no size is given, or NULL. */
const char *zp_search_lacks(const ZgGraph *g, const ZpSize *bind, uint32_t nbind);

/* ---- found.c ------------------------------------------------------------------------------------------- */
void zp_show_search(const ZpSearch *s, ZbText *out);
void zp_show_search_json(const ZpSearch *s, ZbText *out); /* output/JSON.md */
/* The best n of the table as a recipe file, with comments that say why: best, best_2 and so on. */
void zp_search_recipes(const ZpSearch *s, uint32_t n, ZbText *out);

#endif
