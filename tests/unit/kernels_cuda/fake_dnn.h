/* A cuDNN on the CPU, as much of its backend interface as kernels/cuda/attend_cudnn.c uses: it computes the graphs that
 * it is given, operation by operation, in f32. */
#ifndef ZUG_TESTS_KERNELS_CUDA_FAKE_DNN_H
#define ZUG_TESTS_KERNELS_CUDA_FAKE_DNN_H

#include <stdint.h>

typedef struct {
  int64_t runs;  /* graphs computed so far */
  int64_t alive; /* descriptors */
} FakeDnn;
extern FakeDnn fake_dnn;
struct cudnnContext *fake_dnn_handle(void);

#endif
