/* What the tests of bf16 products share. */
#ifndef ZUG_TESTS_BGEMM_H
#define ZUG_TESTS_BGEMM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Multiplies m x n x k by the path in use, in all layouts and with all kinds of result, and compares to the
 * last bit: small whole numbers, whose sums f32 holds exactly in any order. Everything ends where memory ends
 * and has marks before it. */
void exact_products(const ZkEnv *env, int64_t m, int64_t n, int64_t k);

/* From now on bf16 is multiplied by "avx512", "amx" or "f32"; if this machine lacks it the test is
 * skipped. */
void use_path(const char *name);
/* The same by what swap_path returned before; NULL: f32. */
const void *swap_path(const void *path);

/* Attention and its gradient by the path in use and by f32 products: nearly the same. */
void attention_as_by_f32(const ZkEnv *env);

#endif
