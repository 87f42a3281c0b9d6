/* What the tests of kernels/cuda share beside the conformance harness. */
#ifndef ZUG_TESTS_KERNELS_CUDA_EMU_H
#define ZUG_TESTS_KERNELS_CUDA_EMU_H

#include "kernels/cuda/cuda.h"
#include "tests/unit/kernels/conform.h"

/* From now on contexts have these handles; NULL, as at first: none. */
void emu_use_blas(struct cublasLtContext *handle);
void emu_use_dnn(struct cudnnContext *handle);
void emu_use_flags(bool tf32, bool repeatable);
void emu_use_arch(int arch); /* 90, as at first, for 9.0 */

#endif
