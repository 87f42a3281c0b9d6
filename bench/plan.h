/* What benchmarks do to come to a plan. */
#ifndef ZUG_TESTS_BENCH_PLAN_H
#define ZUG_TESTS_BENCH_PLAN_H

#include "runtime/plan/plan.h"

/* The plan of graph file GRAPH.zsg by recipe FILE:NAME; NULL with what is wrong on stderr, in the name of
 * program `who`. */
ZpPlan *bench_plan(ZbArena *a, const char *who, const char *graph, const char *recipe, const ZpOptions *o);

#endif
