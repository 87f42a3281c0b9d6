/* Changes gathered by what they lead to, as a list to compare. */
#ifndef ZUG_TESTS_OUTCOMES_H
#define ZUG_TESTS_OUTCOMES_H

#include "base/base.h"

typedef struct {
  const char *outcome;
  ZbText changes;
} Outcome;
typedef struct {
  ZbArena *a;
  Outcome *at; /* in the order in which they came first */
  uint32_t n;
} Outcomes;

void outcomes_note(Outcomes *o, const char *outcome, const char *change);
void outcomes_put(Outcomes *o, ZbText *out); /* a line each: OUTCOME  <- CHANGE CHANGE ...; and empties it */
/* Fails at the first line in which `got` differs from tests/unit/graph/NAME; writes that anew if REGENERATE
 * is set. */
void outcomes_compare(const char *got, const char *name);

#endif
