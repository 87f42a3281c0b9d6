/* Fuzz target: any text through scanner, parser, recipes and the whole compiler. It must end with a graph that
 * verifies or with messages, which print. */
#include "compiler/compiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbArena *a = zb_arena_new();
  ZlSources *sources = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, sources);
  ZlOptions none = {0};
  ZlProgram *p = zl_load_text(a, sources, d, "fuzz.zug", (const char *)data, n, &none);
  if (p && !zl_errors(d)) {
    ZlNames recipes = zl_recipe_names(p);
    for (uint32_t i = 0; i < recipes.n; i++) zl_recipe(p, d, recipes.at[i].s);
    zl_cluster(p, d, NULL);
    ZcOptions opt = {0};
    ZgGraph *g = zc_compile(a, sources, d, p, &opt);
    ZbErr err;
    if (g && !zg_verify(g, &err)) ZB_BUG("%s", err.text);
  }
  ZbText text = {0};
  zl_print_text(d, &text);
  zl_print_json(d, &text);
  zb_text_free(&text);
  zb_arena_free(a);
  return 0;
}
