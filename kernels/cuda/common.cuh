/* What .cu files share: launches, dynamic shared memory. Compiled by nvcc, and as plain C++ with
 * ZK_EMU defined, for the emulator (emu.h). */
#ifndef ZUG_KERNELS_CUDA_COMMON_CUH
#define ZUG_KERNELS_CUDA_COMMON_CUH

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <initializer_list>

#define _Noreturn [[noreturn]] /* as base.h, which is C, has it */
extern "C" {
#include "base/base.h"
#include "kernels/kernels.h"
#include "kernels/cuda/host.h"
}
#undef _Noreturn

#ifdef ZK_EMU
#include "kernels/cuda/emu.h"
#endif
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/rows.cuh"

/* ---- launches ---------------------------------------------------------------------------------------------
 *   ZK_LAUNCH(cu, call, kernel, blocks, threads, shared bytes, arguments...)
 * on the context's stream; nothing for no blocks or after an error. `call` is for the error's text and may be
 * NULL. */
#ifdef ZK_EMU
#define ZK_LAUNCH(cu, call, kernel, grid, block, bytes, ...)                                                 \
  do {                                                                                                       \
    dim3 grid_(grid);                                                                                        \
    (void)(call);                                                                                            \
    if (!(cu)->failed && grid_.x && grid_.y && grid_.z)                                                      \
      zk_emu::launch(#kernel, grid_, (block), (bytes), (cu)->stream, kernel, __VA_ARGS__);                   \
  } while (0)
#define ZK_SHARED_DYNAMIC(T, name) T *name = (T *)zk_emu::shared_dynamic()
#else
#define ZK_LAUNCH(cu, call, kernel, grid, block, bytes, ...)                                                 \
  do {                                                                                                       \
    dim3 grid_(grid);                                                                                        \
    if (!(cu)->failed && grid_.x && grid_.y && grid_.z) {                                                    \
      kernel<<<grid_, (block), (bytes), (cu)->stream>>>(__VA_ARGS__);                                        \
      cudaError_t status_ = cudaGetLastError();                                                              \
      if (status_ != cudaSuccess) zk_cuda_fail((cu), (call), #kernel, cudaGetErrorString(status_));          \
    }                                                                                                        \
  } while (0)
#define ZK_SHARED_DYNAMIC(T, name)                                                                           \
  extern __shared__ __align__(16) unsigned char zk_dynamic_[];                                               \
  T *name = (T *)zk_dynamic_
#endif

static inline ZkCuda *zk_cu(const ZkEnv *env) { return (ZkCuda *)env->device; }
/* Blocks for this many pieces of work, in kernels that go on with the next piece. */
static inline unsigned zk_blocks(const ZkCuda *cu, int64_t pieces) {
  return (unsigned)(pieces < cu->most_blocks ? pieces : cu->most_blocks);
}

#endif
