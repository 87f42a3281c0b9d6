#include "tests/unit/lang/render.h"

#include "lang/internal.h"
#include "tests/unit/lang/records.h"

#include <string.h>

#define MUCH 12000 /* bytes of a tree: those of files that try limits are not to be read */

/* The recipe as a text of its own, which must be the same again when it was read and written. */
static void put_written(const ZlRecipe *r, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZbText written = {0}, again = {0};
  zl_recipe_write(r, &written);
  zb_text_put(out, written.s, written.len);
  ZlProgram *p = zl_load_text(a, s, d, "written", written.s, written.len, NULL);
  const ZlRecipe *read = zl_recipe(p, d, r->name);
  if (read) zl_recipe_write(read, &again);
  zl_print_text(d, out);
  if (!again.s || strcmp(again.s, written.s))
    zb_text_add(out, "not the same again: %s\n", again.s ? again.s : "");
  zb_text_free(&written);
  zb_text_free(&again);
  zb_arena_free(a);
}

/* Appends the text as the formatter lays it out, or why it does not. */
static bool put_formatted(const char *path, const char *text, size_t n, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  bool good = zl_format(a, s, d, path, text, n, out);
  if (!good) zl_print_text(d, out);
  zb_arena_free(a);
  return good;
}

void render_format(const char *path, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  ZbText again = {0};
  size_t n;
  const char *text = zb_read_file(a, path, 1 << 20, &n, &err);
  if (!text) zb_text_add(out, "%s\n", err.text);
  else if (put_formatted(path, text, n, out) && put_formatted(path, out->s, out->len, &again) &&
           strcmp(again.s, out->s))
    zb_text_add(out, "but of this:\n%s", again.s);
  zb_text_free(&again);
  zb_arena_free(a);
}

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
      if (!r) continue;
      put_recipe(s, r, &tree);
      put_written(r, &tree);
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
