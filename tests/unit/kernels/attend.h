/* Checks of attention for a shape, for tests that have more of them. */
#ifndef ZUG_TESTS_ATTEND_H
#define ZUG_TESTS_ATTEND_H

#include "tests/unit/kernels/conform.h"

typedef struct {
  const char *dims, *q, *k;
  double scale; /* less for long heads, whose scores would be so large that one key takes all */
} AttendShape;

/* What a call says besides. NULL, 0: not. */
typedef struct {
  const char *ax, *v; /* four axis arguments, and the values' axes, if they are not [s, d] and the keys' */
  int causal;
  int64_t window;
  double cap;
  const char *bias, *docs[2], *sinks; /* axes; docs[0] also of the keys, if they are the same sequence */
  const char *prefix;                 /* the axes; causal is 2 then */
  int64_t most;                       /* the longest prefix */
  int64_t run; /* length of a document, positions being the last of the ids' axes; 0: mixed ids */
  double few;  /* the largest of mixed ids, if it is not 2 */
  int f32;     /* operands that are never in bf16: 1 q, 2 k, 4 v, 8 g */
} AttendKind;

void attend_forward(const AttendShape *shape, int mask);
void attend_forward_of(const AttendShape *shape, const AttendKind *kind);
/* Given the output, logarithm, q, k and v of a forward pass. */
void attend_gradient(const AttendShape *shape, int mask);
void attend_gradient_of(const AttendShape *shape, const AttendKind *kind);

#endif
