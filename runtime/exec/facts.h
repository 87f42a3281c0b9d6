/* Lists what must be the same on all ranks, as facts (comm/same.h): builds, graph, recipe, cluster and plan, files.
 * Options are listed by zx_option_facts. */
#ifndef ZUG_EXEC_FACTS_H
#define ZUG_EXEC_FACTS_H

#include "lang/lang.h"
#include "runtime/exec/comm/same.h"
#include "runtime/exec/data/data.h"
#include "runtime/exec/device/device.h"
#include "runtime/plan/plan.h"

/* Adds the version and a digest of the program's file; of a module's. */
void zx_build_facts(ZxFacts *f);
void zx_module_facts(ZxFacts *f, const ZxDeviceTable *device);
void zx_graph_facts(ZxFacts *f, const ZgGraph *g);
void zx_recipe_facts(ZxFacts *f, const ZlRecipe *r);
void zx_cluster_facts(ZxFacts *f, const ZlCluster *c);
void zx_plan_facts(ZxFacts *f, const ZpPlan *p);
/* Add the contents of files. Collective, both: false on ranks that found a file unreadable or damaged. One rank per
 * node reads each file, all of it up to ZX_READ_WHOLE bytes, else samples of it; then rank 0 gets a note. Headers of
 * data files, and how these are mixed, are compared first: if they differ, all facts so far are compared and reported
 * at once, and the result is false on all ranks, without a message in `err`. */
#define ZX_READ_WHOLE ((uint64_t)1 << 30)
bool zx_data_facts(ZxFacts *f, ZxFactKind kind, ZxComm *c, const ZxMix *m, ZbText *note, ZbErr *err);
/* `path`: a safetensors file, or a folder of shards; `whose` goes before what facts are called. */
bool zx_init_facts(ZxFacts *f, ZxComm *c, const char *path, const char *whose, ZbText *note, ZbErr *err);

#endif
