/* Products of any axes, for tests that have other libraries behind them: products.c. */
#ifndef ZUG_TESTS_KERNELS_CUDA_PRODUCTS_H
#define ZUG_TESTS_KERNELS_CUDA_PRODUCTS_H

#include "tests/unit/kernels/conform.h"

/* Up to five axes of 1 to 5, each in a random class; the tensors' axes in random orders. */
void random_product(uint64_t seed);

#endif
