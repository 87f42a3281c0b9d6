/* plan/search: the fastest recipes of a model on a cluster. Pure, as the plan is.
 *
 * dims.c          what is searched: mesh dims by what they do
 * space.c         axes, blocks to recompute; the recipe that says what a candidate is
 * measure.c       what local programs need and take, made once for all recipes that share them
 * bytes.c         bytes of a stage, line by line
 * closed.c        seconds of a step by a formula: to rank
 * weigh.c         all recipes of the space, the best of which are kept
 * search.c        the best of these planned and simulated
 * found.c         the result as a table, as JSON, as a recipe with reasons
 * meshes.c        recipes that generate
 * meshes_found.c  the result of that
 *
 * Two sieves: bytes.c and closed.c look at every recipe that may be among the best, in about a microsecond; then
 * the best are planned, with their exact ledgers, and the event loop plays them. The plan's and the loop's figures
 * are printed, never the formula's. Recipes that generate are few, and all are planned. */
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

/* ---- meshes.c: recipes that generate ------------------------------------------------------------------- */
enum { ZP_MOST_WEIGHTS = 8 };
/* The aim of a search. Without `latency` the recipe is sought that has an answer soonest, where so many
 * sequences are written at once. With it the one is sought that writes most tokens a second, of those that let
 * no text wait longer for its next token, with as many sequences at once as that takes. */
typedef struct {
  const ZlCluster *cluster;
  int64_t ranks;          /* 0: all devices of the cluster */
  uint32_t keep;          /* recipes in the table */
  int64_t sequences;      /* over all ranks; 0: 1, or with `latency` any number */
  int64_t prompt, answer; /* tokens of each */
  double latency;         /* seconds; 0: not asked */
  int64_t step, page;     /* as in ZpGenerating */
  const ZpSize *bind;     /* of other data axes */
  uint32_t nbind;
  bool bf16; /* what is computed in; else f32 */
  /* Formats of weights that are weighed, "int4 group 64", or "none": as is computed in. nweights = 0: none
   * alone. Of several that are as good, the first is better. */
  const char *const *weights;
  uint32_t nweights;
} ZpStepsAsked;
/* A recipe that was planned and timed. */
typedef struct {
  const ZlRecipe *recipe;
  uint32_t weights;      /* of those asked */
  int64_t replicas;      /* independent engines, each with its share of the sequences */
  int64_t sequences;     /* of all */
  bool full;             /* with a latency: no more of them fit; else more would take longer than that */
  ZpGenerationTime time; /* of all replicas together */
  uint64_t bytes;        /* of the fullest rank, which is of this stage: */
  uint32_t stage;
  ZpLedger ledger;     /* that rank's */
  const char *refused; /* why it cannot be planned, does not fit, or is too slow; else NULL */
} ZpFoundSteps;
typedef struct {
  const ZgGraph *graph;
  ZpStepsAsked asked;
  int64_t ranks;
  uint64_t limit;
  ZpFoundSteps *best, *lost; /* best first; those that are refused */
  uint32_t nbest, nlost;
  uint32_t meshes;  /* that were looked at */
  const char *none; /* why there is none, if there is none */
} ZpStepsSearch;
/* Returns NULL, with reports, if the model cannot be generated with, or the cluster lacks constants. */
ZpStepsSearch *zp_search_steps(ZbArena *a, const ZgGraph *g, const ZpStepsAsked *o, const ZpOptions *plan,
                               ZlDiags *d);
void zp_show_steps_search(const ZpStepsSearch *s, ZbText *out);
void zp_show_steps_search_json(const ZpStepsSearch *s, ZbText *out); /* output/JSON.md */
/* As zp_search_recipes. */
void zp_steps_recipes(const ZpStepsSearch *s, uint32_t n, ZbText *out);

/* Returns whether a file begins as one that a search wrote, of 16 bytes. */
bool zp_is_searched(const uint8_t *head, size_t n);

/* ---- found.c ------------------------------------------------------------------------------------------- */
void zp_show_search(const ZpSearch *s, ZbText *out);
void zp_show_search_json(const ZpSearch *s, ZbText *out); /* output/JSON.md */
/* The best n of the table as a recipe file, with comments that say why: best, best_2 and so on. */
void zp_search_recipes(const ZpSearch *s, uint32_t n, ZbText *out);

#endif
