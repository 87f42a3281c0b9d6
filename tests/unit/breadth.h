/* How much of all that it could try a test tries, by the environment: BREADTH=few, as with sanitizers; what a push tries, if it is not
 * set; BREADTH=all, at night. */
#ifndef ZUG_TESTS_BREADTH_H
#define ZUG_TESTS_BREADTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum { BREADTH_FEW = -1, BREADTH_PUSH, BREADTH_ALL } Breadth;
static inline Breadth breadth(void) {
  const char *given = getenv("BREADTH");
  if (!given) return BREADTH_PUSH;
  return !strcmp(given, "all") ? BREADTH_ALL : !strcmp(given, "few") ? BREADTH_FEW : BREADTH_PUSH;
}

/* Returns how many random things to try where a push tries n: a sixth with sanitizers, 17 times as many at night. */
static inline uint32_t breadth_many(uint32_t n) {
  return breadth() == BREADTH_ALL ? 17 * n : breadth() == BREADTH_FEW ? n / 6 : n;
}

/* True if case i of a list is to be tried: one of `each` but for nights, which try all. */
static inline bool breadth_tries(size_t i, size_t each) { return breadth() == BREADTH_ALL || i % each == 0; }

#endif
