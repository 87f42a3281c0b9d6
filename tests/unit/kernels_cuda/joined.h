/* Products with chains or sums in one call, as cases; joined.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_JOINED_H
#define ZUG_TESTS_KERNELS_CUDA_JOINED_H

#include "tests/unit/kernels/conform.h"

typedef struct {
  const char *what;
  Case c;
  bool f32, bf16; /* joined where all tensors are of that type */
  bool two;       /* by cuBLASLt in two calls nevertheless */
} Joined;
extern const Joined joined_cases[];
extern const size_t njoined;
#define SUMMED .op = ZG_OP_DOT_BIAS_GRAD, .accumulate = true, .tol = 3e-6 /* as in reduce.c */
extern const Case summed_cases[], stacked_cases[]; /* of the stacked, the last has an operand that must be copied */
extern const size_t nsummed, nstacked;

#endif
