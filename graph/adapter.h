/* adapter: low-rank adapters beside matrices of a model (Hu et al. 2021, LoRA), as the `peft` library
 * names them. What the adapters of a graph are is config of a map of its own, by the keys of peft's
 * adapter_config.json: it is read when the graph is made, and written when adapters are exported. A
 * pattern, "rank_pattern.q_proj", is a key for each name in it.
 *
 * A matrix W, foreign tensor MODULE.weight, has two tensors beside it, PREFIX MODULE A and PREFIX MODULE B
 * below: A of [rank, in], B of [out, rank]. With them W counts as W + scale B A. Where a graph has several
 * adapters, of which each sequence has one, all these names begin with a mark: nothing for the first, "2:"
 * for the second. */
#ifndef ZUG_ADAPTER_H
#define ZUG_ADAPTER_H

#include "graph/graph.h"

#define ZG_ADAPTER "adapter_config.json" /* the map of that config; no map of the language has a dot */
#define ZG_ADAPTER_PREFIX "base_model.model."
#define ZG_ADAPTER_A ".lora_A.weight"
#define ZG_ADAPTER_B ".lora_B.weight"
#define ZG_ADAPTER_MATRIX ".weight"

/* Returns the mark of adapter `which`, counted from 0. */
const char *zg_adapter_mark(ZbArena *a, uint32_t which);
/* Says whether a map is that of an adapter's config. */
bool zg_adapter_is(const char *map);
/* Says whether the graph has adapters of which it has the config. */
bool zg_has_adapters(const ZgGraph *g);
/* Returns the JSON of a key; NULL: it is not there. */
const char *zg_adapter_value(const ZgGraph *g, const char *mark, const char *key);
/* Says whether `name` is a module's, or its last parts: "q_proj" and "self_attn.q_proj" are of
 * "h.0.self_attn.q_proj". */
bool zg_adapter_names(const char *name, const char *module);
/* Returns the rank of a module's adapter; what B A is multiplied by: alpha / rank, or with rank-stabilised
 * LoRA (Kalajdzievski 2023) alpha / sqrt(rank). Both by the first pattern that names the module. */
int64_t zg_adapter_rank(const ZgGraph *g, const char *mark, const char *module);
double zg_adapter_scale(const ZgGraph *g, const char *mark, const char *module);
/* Returns which tags all mapped parameters carry, and no other does: a map may be of these alone, as a file of adapters is.
 * 0: it is of all, or is not whole. `mapped`: by parameter. */
uint32_t zg_tags_of_map(const ZgGraph *g, const bool *mapped);
/* Says whether matrices are [in, out], and not [out, in]. */
bool zg_adapter_transposed(const ZgGraph *g, const char *mark);

#endif
