/* How much a test tries: BREADTH=all in the environment, as `make nightly` sets it, asks for all that it could
 * try; a push tries a part. Scripts ask tests/scenarios/lib.sh. */
#ifndef ZUG_TESTS_BREADTH_H
#define ZUG_TESTS_BREADTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool at_night(void) {
  const char *breadth = getenv("BREADTH");
  return breadth && !strcmp(breadth, "all");
}

/* Returns how many random things to try where a push tries n: at night 17 times as many. */
static inline uint32_t breadth_many(uint32_t n) { return at_night() ? 17 * n : n; }

/* True if case i of a list is to be tried: one of `each`; at night, all. */
static inline bool breadth_tries(size_t i, size_t each) { return at_night() || i % each == 0; }

#endif
