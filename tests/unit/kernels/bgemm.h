/* What the tests of bf16 products share. */
#ifndef ZUG_TESTS_BGEMM_H
#define ZUG_TESTS_BGEMM_H

#include <stdint.h>

#include "kernels/kernels.h"

/* Multiplies m x n x k by the path in use, in all layouts and with all kinds of result, and compares to the
 * last bit: small whole numbers, whose sums f32 holds exactly in any order. Everything ends where memory ends
 * and has marks before it. */
void exact_products(const ZkEnv *env, int64_t m, int64_t n, int64_t k);

/* From now on bf16 is multiplied by "avx512", "amx" or "f32". The test is skipped if this machine lacks it. */
void use_path(const char *name);

#endif
