#include "bench/plan.h"

#include <stdio.h>

#include "graph/file.h"

ZpPlan *bench_plan(ZbArena *a, const char *who, const char *graph, const char *recipe, const ZpOptions *o) {
  ZbErr err = {0};
  ZbText messages = {0};
  const char *name;
  ZgGraph *g = zg_read_file(a, graph, &err);
  if (!g) return fprintf(stderr, "%s: error: %s\n", who, err.text), NULL;
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlOptions lo = {0};
  ZlProgram *program = zl_load_named(a, s, d, recipe, &lo, &name);
  const ZlRecipe *r = program ? zl_recipe(program, d, name) : NULL;
  ZpPlan *p = r && !zl_errors(d) ? zp_plan(a, g, r, d, o) : NULL;
  zl_print_text(d, &messages);
  if (messages.s) fputs(messages.s, stderr);
  zb_text_free(&messages);
  return p;
}
