/* A cuDNN on the CPU, as much of its backend interface as kernels/cuda/attend_cudnn.c uses: it computes the
 * graphs that it is given, operation by operation, in f32; and refuses descriptors that are not what cuDNN's
 * documents want. */
#ifndef ZUG_TESTS_KERNELS_CUDA_FAKE_DNN_H
#define ZUG_TESTS_KERNELS_CUDA_FAKE_DNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  int64_t runs;       /* graphs computed so far */
  int64_t alive;      /* descriptors */
  int64_t misuses;    /* calls of which the documents say that they are wrong */
  size_t version;     /* 0: the header's */
  int64_t fails_from; /* if not 0: after so many graphs it computes none */
  int refuses;        /* the descriptor type that it does not support, if not 0: CUDNN_BACKEND_... */
  bool own_sum; /* where a gradient adds to a sum it has another one besides: as GPUs before Hopper do */
} FakeDnn;
extern FakeDnn fake_dnn;
struct cudnnContext *fake_dnn_handle(void);

#endif
