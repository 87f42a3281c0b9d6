/* What cases that are for GPUs alone ask of their back end. */
#ifndef ZUG_TESTS_GPU_BACKEND_H
#define ZUG_TESTS_GPU_BACKEND_H

#include "kernels/cuda/cuda.h"

ZkCuda *gpu_context(void); /* of this test */

#endif
