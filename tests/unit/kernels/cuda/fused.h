/* Fused and batched products, as cases; fused.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_JOINED_H
#define ZUG_TESTS_KERNELS_CUDA_JOINED_H

#include "tests/unit/kernels/conform.h"

typedef struct {
  const char *what;
  Case c;
  bool f32, bf16; /* fused where all tensors are of that type */
  bool two;       /* by cuBLASLt in two calls nevertheless */
} Fused;
extern const Fused fused_cases[];
extern const size_t nfused;
#define BIAS_GRAD .op = ZG_OP_DOT_BIAS_GRAD, .accumulate = true, .tol = 3e-6 /* as in reduce.c */
extern const Case bias_grad_cases[],
    batched_cases[]; /* of the batched, the last has an operand that must be copied */
extern const size_t nbias_grad, nbatched;

#endif
