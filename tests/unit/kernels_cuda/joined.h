/* Products with chains in one call, as cases; joined.c. */
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

#endif
