/* Whether all ranks were started alike. Ranks decide alone when they take part in what, and compute parts of
 * one result: two that were given different options or files would wait for each other for ever, or train two
 * models at once. So what they were given is listed as named facts, and the lists are compared before
 * anything is decided by them.
 *
 * This room knows lists of names and values. What there is to compare is in exec/facts.h. */
#ifndef ZUG_EXEC_SAME_H
#define ZUG_EXEC_SAME_H

#include "runtime/exec/comm/comm.h"

typedef enum {
  ZX_BUILD,
  ZX_OPTIONS,
  ZX_GRAPH,
  ZX_RECIPE,
  ZX_CLUSTER,
  ZX_DATA,
  ZX_EVAL_DATA,
  ZX_INIT,
  ZX_PLAN,
  ZX_MEANS
} ZxFactKind;
typedef struct {
  ZxFactKind kind;
  const char *name, *value;
} ZxFact;
typedef struct {
  ZbArena *a;
  ZxFact *fact;
  uint32_t n;
} ZxFacts;
/* Adds one. Names differ within a kind; the first facts that differ are those that are told. */
void zx_fact(ZxFacts *f, ZxFactKind kind, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Collective: whether all ranks have the same facts. If not, rank 0 gets lines that say who differs from it
 * in what: "ranks 1, 3 were given another recipe: clip 1 where rank 0 has 0.5". One all-reduce where all are
 * the same. */
bool zx_same(ZxComm *c, const ZxFacts *f, ZbText *differences);
/* The same, where they must be: rank 0 prints these lines as errors. */
bool zx_same_or_say(ZxComm *c, const ZxFacts *f);

#endif
