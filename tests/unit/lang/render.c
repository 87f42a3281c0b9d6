#include "tests/unit/lang/render.h"

#include "lang/internal.h"
#include "tests/unit/lang/records.h"

#define MUCH 10000 /* bytes of a tree: those of files that try limits are not to be read */

void render_file(const char *path, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load(a, s, d, path, NULL);
  ZbText tree = {0};
  if (p && zl_errors(d) == 0) {
    zl_dump(p, &tree);
    ZlNames recipes = zl_recipe_names(p), clusters = zl_cluster_names(p);
    for (uint32_t i = 0; i < recipes.n; i++) {
      const ZlRecipe *r = zl_recipe(p, d, recipes.at[i].s);
      if (r) put_recipe(s, r, &tree);
    }
    for (uint32_t i = 0; i < clusters.n; i++) {
      const ZlCluster *c = zl_cluster(p, d, clusters.at[i].s);
      if (c) put_cluster(s, c, &tree);
    }
  }
  zl_print_text(d, out);
  zb_text_add(out, "%zu errors, %zu warnings\n", zl_errors(d), zl_warnings(d));
  if (tree.len && tree.len <= MUCH) zb_text_put(out, tree.s, tree.len);
  zb_text_free(&tree);
  zb_arena_free(a);
}
