/* What must be the same on all ranks, as facts (comm/same.h): builds, what is to be trained and how,
 * files. */
#ifndef ZUG_EXEC_FACTS_H
#define ZUG_EXEC_FACTS_H

#include "lang/lang.h"
#include "runtime/exec/comm/same.h"
#include "runtime/exec/data/data.h"
#include "runtime/exec/device/device.h"
#include "runtime/plan/plan.h"

/* The version, and a digest of the program's file; of a module's. */
void zx_build_facts(ZxFacts *f);
void zx_module_facts(ZxFacts *f, const ZxDeviceTable *device);
void zx_graph_facts(ZxFacts *f, const ZgGraph *g);
void zx_recipe_facts(ZxFacts *f, const ZlRecipe *r);
void zx_cluster_facts(ZxFacts *f, const ZlCluster *c);
void zx_plan_facts(ZxFacts *f, const ZpPlan *p);
/* Collective, both: false on ranks that found a file unreadable or damaged. Of each file that ranks of a node
 * were given one reads it all if it has at most ZX_READ_WHOLE bytes, else pieces of it; then rank 0 gets a
 * note. What the headers of data files say, and how these are mixed, is compared first: where that differs
 * all of f is compared and said at once, and it is false on all ranks, without a message in `err`. */
#define ZX_READ_WHOLE ((uint64_t)1 << 30)
bool zx_data_facts(ZxFacts *f, ZxFactKind kind, ZxComm *c, const ZxMix *m, ZbText *note, ZbErr *err);
/* `path`: a safetensors file, or a folder of shards. */
bool zx_init_facts(ZxFacts *f, ZxComm *c, const char *path, ZbText *note, ZbErr *err);

#endif
