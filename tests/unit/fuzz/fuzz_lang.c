/* Any bytes as a source file: messages, or a graph that verifies; never a crash. Imports are looked for only
 * in the embedded library and in folders that do not exist. */
#include "compiler/compiler.h"
#include "lang/ast.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "no-such-folder/fuzz.zug", (const char *)data, n, NULL);
  if (p) {
    ZlNames names = zl_recipe_names(p);
    for (uint32_t i = 0; i < names.n; i++) zl_recipe(p, d, names.at[i].s);
    zl_cluster(p, d, NULL);
    zl_model(p, d, NULL);
    ZlNames models = zl_model_names(p);
    for (uint32_t i = 0; i < models.n && zl_errors(d) == 0; i++) {
      ZcOptions opt = {.model = models.at[i].s};
      zc_check(a, s, d, p, &opt);
      if (zl_errors(d) == 0) zc_compile(a, s, d, p, &opt);
    }
    ZbText out = {0};
    zl_print_text(d, &out);
    zl_print_json(d, &out);
    if (zl_errors(d) == 0) zl_dump(p, &out);
    zb_text_free(&out);
  }
  zb_arena_free(a);
  return 0;
}
