/* Whether all ranks were started alike. Ranks decide alone when they take part in what, and compute parts of one
 * result: two that were given different options or files would wait for each other for ever, or train two models at
 * once. So what they were given is listed as named facts, and the lists are compared before anything is decided by
 * them.
 *
 * same.c   the list, comparing, saying which rank differs in what
 * facts.c  what there is to compare: builds, recipes, plans, files */
#ifndef ZUG_SAME_H
#define ZUG_SAME_H

#include "runtime/exec/exec.h"

typedef enum {
  ZX_BUILD,
  ZX_OPTIONS,
  ZX_GRAPH,
  ZX_RECIPE,
  ZX_CLUSTER,
  ZX_DATA,
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
/* Collective: whether all ranks have the same facts. If not, rank 0 gets lines that say who differs from it in
 * what: "ranks 1, 3 were given another recipe: clip 1 where rank 0 has 0.5". One all-reduce where all are the same. */
bool zx_same(ZxComm *c, const ZxFacts *f, ZbText *differences);
/* The same, where they must be: rank 0 prints these lines as errors. */
bool zx_same_or_say(ZxComm *c, const ZxFacts *f);

/* The version, and a digest of the program's file; of a module's. */
void zx_build_facts(ZxFacts *f);
void zx_module_facts(ZxFacts *f, const ZxDeviceTable *device);
void zx_graph_facts(ZxFacts *f, const ZgGraph *g);
void zx_recipe_facts(ZxFacts *f, const ZlRecipe *r);
void zx_cluster_facts(ZxFacts *f, const ZlCluster *c);
void zx_plan_facts(ZxFacts *f, const ZpPlan *p);
/* Collective, both: false on ranks that found their file unreadable or damaged. Of each file that ranks of a node
 * were given one reads it all if it has at most ZX_READ_WHOLE bytes, else pieces of it; then rank 0 gets a note.
 * What the data's header says of its content is compared in any case. */
#define ZX_READ_WHOLE ((uint64_t)1 << 30)
bool zx_data_facts(ZxFacts *f, ZxComm *c, const ZxData *d, const char *path, ZbText *note, ZbErr *err);
bool zx_init_facts(ZxFacts *f, ZxComm *c, const char *path, ZbText *note, ZbErr *err);

#endif
