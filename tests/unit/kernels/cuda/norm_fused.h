/* normalize and its gradient with prologues and epilogues, as cases; norm_fused.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_NORM_JOINED_H
#define ZUG_TESTS_KERNELS_CUDA_NORM_JOINED_H

#include "tests/unit/kernels/conform.h"

extern const Case norm_fused[];
extern const size_t nnorm_joined;

#endif
