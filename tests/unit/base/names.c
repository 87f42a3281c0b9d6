/* Unit tests of base: names by number. */
#include "base/base.h"

#include <criterion/criterion.h>

static const char *name(ZbArena *a, uint32_t i) { return zb_printf(a, "n%u", i); }

Test(names, are_found_by_text) {
  ZbArena *a = zb_arena_new();
  ZbNames t = {0};
  cr_expect_eq(zb_names_find(&t, "n0"), ZB_NO_NAME);
  for (uint32_t i = 0; i < 1000; i++) {
    cr_expect_eq(zb_names_add(a, &t, name(a, i)), i);
    cr_expect_eq(zb_names_find(&t, name(a, i / 2)), i / 2);
    cr_expect_eq(zb_names_find(&t, name(a, i + 1)), ZB_NO_NAME);
  }
  for (uint32_t i = 0; i < 1000; i++) cr_expect_eq(zb_names_find(&t, name(a, i)), i);
  zb_arena_free(a);
}

/* A later name hides an earlier one until it is forgotten, in small tables and large ones. */
Test(names, the_latest_is_found_and_forgotten) {
  ZbArena *a = zb_arena_new();
  for (uint32_t n = 1; n < 200; n = n * 3 / 2 + 1) {
    ZbNames t = {0};
    for (int scope = 0; scope < 3; scope++)
      for (uint32_t i = 0; i < n; i++) zb_names_add(a, &t, name(a, i));
    for (uint32_t scope = 3; scope-- > 0;) {
      for (uint32_t i = 0; i < n; i++) cr_expect_eq(zb_names_find(&t, name(a, i)), scope * n + i);
      zb_names_cut(&t, scope * n);
    }
    cr_expect_eq(zb_names_find(&t, "n0"), ZB_NO_NAME);
    zb_names_cut(&t, 5); /* more than there are */
    cr_expect_eq(zb_names_add(a, &t, "again"), 0);
    cr_expect_eq(zb_names_find(&t, "again"), 0);
  }
  zb_arena_free(a);
}
