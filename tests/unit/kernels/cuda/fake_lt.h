/* A cuBLASLt on the CPU, as much of it as kernels/cuda/dot_lt.c calls, to see what it tells it;
 * fake_lt_cuda.c has a CUDA runtime that goes with it.
 *
 * Four algorithms are proposed: 0 is slow; 1 computes the same bits in half the time; 2 is faster still and
 * adds in another order; 3 would be the fastest, and does not run. */
#ifndef ZUG_TESTS_KERNELS_CUDA_FAKE_LT_H
#define ZUG_TESTS_KERNELS_CUDA_FAKE_LT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/cuda.h"

enum { FAKE_LT_CACHE = 4096 };
typedef struct {
  int64_t products;                  /* computed so far */
  int last;                          /* the algorithm of the last one */
  int64_t with[1024], added, scaled; /* ... by epilogue; with another tensor added; scaled */
  int64_t tf32;                      /* descriptions that let it round operands of f32 */
  int64_t batched;                   /* ... several in one */
  int64_t odd;                       /* ... with an operand that is not at a multiple of 16 */
  int64_t misuses;                   /* calls of which the documents say that they are wrong */
  int64_t wrong;          /* of these, ones that would run and give wrong results in some version */
  int says;               /* if not 0, with what status it proposes nothing */
  bool has_no_epilogue;   /* nor the attributes of one */
  bool knows_nothing;     /* proposes nothing */
  bool knows_no_epilogue; /* ... for products with one */
  bool runs_no_epilogue;  /* and does not run them, whatever it proposed */
  uint32_t lies; /* an epilogue of which all algorithms give wrong results: without bias, or a half */
  bool first_does_not_run, runs_nothing;
  uint32_t adds_not;      /* bit i: algorithm i does not add to what is there */
  int64_t refuses_from;   /* if not 0: after so many products it runs none */
  bool last_is_slow_cold; /* algorithm 2 is the slowest where the cache has other things */
  bool refuses_captured;  /* it runs none in a stream that is captured */
  int64_t now;            /* how long products have taken */
  bool cold;              /* the cache has other things */
  bool no_memory;
  size_t memory, most_taken; /* bytes of the GPU (0: 16 GiB); the most that was taken at once */
  size_t version;            /* 0: 13.0.0 */
} FakeLt;
extern FakeLt fake_lt;
struct cublasLtContext *fake_lt_handle(void);
void fake_lt_open(ZkCuda *cu); /* gives the context this cuBLASLt, its workspace and its cache */

#endif
