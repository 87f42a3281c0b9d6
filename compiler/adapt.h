/* Private to the compiler: adapters of a model (graph/adapter.h). adapter.c makes their config, of peft's
 * file or of options; adapt.c makes them. */
#ifndef ZUG_COMPILER_ADAPT_H
#define ZUG_COMPILER_ADAPT_H

#include "compiler/compiler.h"
#include "graph/adapter.h"

/* Gives the graph the config of adapter `which` that the options ask for. False with reports. */
bool adapter_config(ZgGraph *g, ZbArena *tmp, ZlDiags *d, const ZcOptions *opt, uint32_t which);
/* Puts it beside the matrices that its config names: parameters, their places in all maps, and their
 * nodes. Of several it counts for tokens that have its number in the input `adapter`, which is made.
 * `prefix_of` says what the names of a map have lost against those that peft knows. False with reports. */
bool adapt_graph(ZgGraph *g, ZbArena *tmp, ZlDiags *d, const ZcOptions *opt, uint32_t which,
                 const char *(*prefix_of)(void *, const char *map), void *arg);

#endif
