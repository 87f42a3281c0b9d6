/* A GPU made of one thread, for tests of what drives GPUs: fake_cudart.c has the CUDA runtime's calls,
 * fake_nccl.c NCCL's, fallback.c kernels that are not written yet. Kernels are those of kernels/cuda,
 * emulated.
 *
 * The thread takes work from the heads of the streams in a random order, with pauses, so what no event orders
 * happens in another order than it was enqueued. Memory of the device may be touched by that thread alone:
 * anything else that does
 * while it is idle dies of it. */
#ifndef ZUG_TESTS_CUDA_GPU_H
#define ZUG_TESTS_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>

struct CUstream_st;
/* Enqueues: `go` is called with `arg` on the GPU's thread, once all before it in the stream is done, and
 * again and again until it returns true; other streams go on in between. Where a stream is captured all that
 * happens whenever the graph is played. `drop` is called when it will not happen again. */
void gpu_push(struct CUstream_st *stream, bool (*go)(void *arg), void (*drop)(void *arg), void *arg);
bool gpu_capturing(const struct CUstream_st *stream);
/* What the environment variable says, or `otherwise`. */
long gpu_setting(const char *name, long otherwise);

#endif
