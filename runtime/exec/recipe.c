/* The choice among several recipes. */
#define _GNU_SOURCE /* strchrnul */
#include "runtime/exec/recipe.h"

#include <inttypes.h>
#include <string.h>

int64_t zx_recipe_ranks(const ZlRecipe *r) {
  int64_t n = 1;
  for (uint32_t i = 0; i < r->nmesh; i++) n *= r->mesh[i].size;
  return n;
}

const char *zx_started(ZbArena *a, int ranks) {
  return ranks == 1 ? "zrun was started alone" : zb_printf(a, "mpirun started %d ranks", ranks);
}

const ZlRecipe *zx_recipe_for(ZlProgram *p, ZlDiags *d, ZbArena *a, const char *names, int ranks,
                              ZbErr *err) {
  if (!names || !strchr(names, ',')) return zl_recipe(p, d, names);
  const ZlRecipe *fits = NULL;
  ZbText sizes = {0};
  for (const char *at = names, *end; at; at = *end ? end + 1 : NULL) {
    end = strchrnul(at, ',');
    const ZlRecipe *r = zl_recipe(p, d, zb_strndup(a, at, (size_t)(end - at)));
    if (!r) continue;
    zb_text_add(&sizes, "%s%s is for %" PRId64, sizes.s ? ", " : "", r->name, zx_recipe_ranks(r));
    if (!fits && zx_recipe_ranks(r) == ranks) fits = r;
  }
  bool good = !zl_errors(d);
  if (good && !fits)
    zb_fail(err, "give a recipe for so many ranks too, or another number to mpirun -np",
            "%s, and there is no recipe for that: %s [Z0310]", zx_started(a, ranks), sizes.s);
  zb_text_free(&sizes);
  return good ? fits : NULL;
}
