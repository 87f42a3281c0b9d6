/* Pointwise functions, as cases: pointwise_cases.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_POINTWISE_CASES_H
#define ZUG_TESTS_KERNELS_CUDA_POINTWISE_CASES_H

#include "tests/unit/kernels/conform.h"

extern const Case pointwise_cases[];
extern const size_t npointwise;

#endif
