/* normalize and its gradient with chains in one call, as cases; norm_joined.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_NORM_JOINED_H
#define ZUG_TESTS_KERNELS_CUDA_NORM_JOINED_H

#include "tests/unit/kernels/conform.h"

extern const Case norm_joined[];
extern const size_t nnorm_joined;

#endif
