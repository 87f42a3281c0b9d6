/* Which recipe a run takes of several, by the number of its ranks, and what is said when none fits. */
#include "runtime/exec/recipe.h"

#include <criterion/criterion.h>
#include <string.h>

static const char text[] = "recipe one { mesh d = 1 }\n"
                           "recipe six { mesh d = 3, t = 2 }\n"
                           "recipe sextet { mesh d = 6 }\n"
                           "recipe wrong { mesh d = 4  micro 1  micro 2 }\n";

/* Of one with that name is taken what `want` says, or what is refused has these words. */
static void takes(const char *names, int ranks, const char *want, const char *words) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZbErr err = {0};
  ZbText said = {0};
  ZlProgram *p = zl_load_text(a, s, d, "r.zug", text, strlen(text), NULL);
  const ZlRecipe *r = zx_recipe_for(p, d, a, names, ranks, &err);
  zl_print_text(d, &said);
  zb_text_add(&said, "%s", err.text);
  cr_expect_str_eq(r ? r->name : "", want, "%s: %s, %s", names, r ? r->name : "none", said.s);
  cr_expect(words ? strstr(said.s, words) != NULL : !*said.s, "%s: no '%s' in '%s'", names, words, said.s);
  if (*err.text)
    cr_expect_str_eq(err.help, "give a recipe for so many ranks too, or another number to mpirun -np");
  zb_text_free(&said);
  zb_arena_free(a);
}

Test(recipe, by_the_number_of_ranks) {
  takes("one,six,sextet", 1, "one", NULL);
  takes("one,six,sextet", 6, "six", NULL);
  takes("sextet,six", 6, "sextet", NULL); /* the first */
  takes("one,six", 2, "",
        "mpirun started 2 ranks, and there is no recipe for that: one is for 1, six is for 6 [Z0310]");
  takes("six,sextet", 1, "",
        "zrun was started alone, and there is no recipe for that: six is for 6, sextet is for 6 [Z0310]");
}

/* One alone is taken for any number, which others look at. */
Test(recipe, one_name) {
  takes("six", 2, "six", NULL);
  takes("sick", 2, "", "sick");
  takes(NULL, 1, "", "say which");
}

/* All are looked at, also behind the one that is taken. */
Test(recipe, one_of_them_is_wrong) {
  takes("one,wrong", 1, "", "micro");
  takes("one,none", 1, "", "none");
  takes("one,", 1, "", "[Z");
  takes("none,six", 7, "", "none");
  takes("none,wrong", 7, "", "micro");
}
