#include "tests/unit/graph/outcomes.h"
#include "tests/unit/golden.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void outcomes_note(Outcomes *o, const char *outcome, const char *change) {
  uint32_t i = 0;
  while (i < o->n && strcmp(o->at[i].outcome, outcome)) i++;
  if (i == o->n) ZB_PUSH(o->a, o->at, o->n, ((Outcome){.outcome = zb_strdup(o->a, outcome)}));
  zb_text_add(&o->at[i].changes, " %s", change);
}

void outcomes_put(Outcomes *o, ZbText *out) {
  for (uint32_t i = 0; i < o->n; i++) {
    zb_text_add(out, "  %s  <-%s\n", *o->at[i].outcome ? o->at[i].outcome : "nothing", o->at[i].changes.s);
    zb_text_free(&o->at[i].changes);
  }
  o->n = 0;
}

void outcomes_compare(const char *got, const char *name) {
  ZbArena *a = zb_arena_new();
  golden_file(zb_printf(a, "%s/tests/unit/graph/%s", ZUG_SRC, name), got);
  zb_arena_free(a);
}
