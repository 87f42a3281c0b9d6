#include "tests/unit/lang/render.h"

#include "lang/internal.h"

void render_file(const char *path, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load(a, s, d, path, NULL);
  if (p && zl_errors(d) == 0) {
    ZlNames names = zl_recipe_names(p);
    for (uint32_t i = 0; i < names.n; i++) zl_recipe(p, d, names.at[i].s);
    for (uint32_t i = 0; i < p->files[0]->nclusters; i++) zl_cluster(p, d, p->files[0]->clusters[i]->name.s);
  }
  zl_print_text(d, out);
  zb_text_add(out, "%zu errors, %zu warnings\n", zl_errors(d), zl_warnings(d));
  zb_arena_free(a);
}
