/* Checks of attention for a shape, for tests that have more of them. */
#ifndef ZUG_TESTS_ATTEND_H
#define ZUG_TESTS_ATTEND_H

#include "tests/unit/kernels/conform.h"

typedef struct {
  const char *dims, *q, *k;
  double scale; /* less for long heads, whose scores would be so large that one key takes all */
} AttendShape;

void attend_forward(const AttendShape *shape, int mask);
/* Given the output, logarithm, q, k and v of a forward pass. */
void attend_gradient(const AttendShape *shape, int mask);

#endif
