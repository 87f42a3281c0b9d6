/* CUDA kernels on the CPU, for tests: the same source, compiled as C++ with ZK_EMU defined.
 *
 * Blocks run one after another. Each thread of a block runs until it must wait (a barrier, a warp operation)
 * or returns; threads that wait keep a stack of their own, so a kernel without barriers costs little more
 * than a loop. What this finds, besides wrong results:
 *   - a barrier that some threads do not reach, or reach at another line; lanes missing from a warp operation
 *   - shared memory used before it is written: it is all ones (NaN) at the start of every block
 *   - accesses outside of shared or device memory, if built with AddressSanitizer
 *   - 16-byte accesses at odd addresses (see zk_load16 in device.cuh)
 *   - missing barriers, by running the threads in several orders: zk_cuda_emulate
 * What it does not: races that no order of whole runs between barriers shows, warps that diverge, time.
 *
 * What sources must do: launch by ZK_LAUNCH, declare shared memory by ZK_SHARED and ZK_SHARED_DYNAMIC
 * (common.cuh), and give every piece of PTX a twin under #ifdef ZK_EMU. */
#ifndef ZUG_KERNELS_CUDA_EMU_H
#define ZUG_KERNELS_CUDA_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* A test's own streams: who takes launches (`run` with `arg`, as often as it likes, then `drop`) instead of
 * having them run at once. Kernels must not run at the same time. */
extern "C" {
struct CUstream_st;
typedef void zk_emu_take(struct CUstream_st *stream, void (*run)(void *arg), void (*drop)(void *arg),
                         void *arg);
extern zk_emu_take *zk_emu_queue;
}

namespace zk_emu {

struct Place {
  const char *file;
  int line;
};

/* The thread that runs now. */
struct Now {
  dim3 thread, block, block_dim, grid_dim;
};
extern Now now;

typedef void Body(void *arg);
void run(const char *name, dim3 grid, dim3 block, size_t shared, Body *body, void *arg);
template <class... P, class... A>
void launch(const char *name, dim3 grid, dim3 block, size_t shared, CUstream_st *stream, void (*kernel)(P...),
            A... a) {
  auto body = [=] { kernel(a...); };
  auto all = [=] {
    run(
        name, grid, block, shared, [](void *f) { (*(decltype(body) *)f)(); }, (void *)&body);
  };
  if (!zk_emu_queue) return all();
  zk_emu_queue(
      stream, [](void *f) { (*(decltype(all) *)f)(); }, [](void *f) { delete (decltype(all) *)f; },
      new decltype(all)(all));
}

void barrier(Place at);
/* The lanes of `mask` meet here; then `combine` sees what each of them brought (NULL for the others),
 * once. */
typedef void Combine(void *const lane[32]);
void meet(unsigned mask, void *mine, Combine *combine, Place at);
unsigned lane(); /* of the running thread */
/* The block's shared variable that `tag` stands for, and the shared memory that the launch asked for. */
void *shared(const void *tag, size_t bytes);
void *shared_dynamic();
[[noreturn]] void stop(const char *why, Place at);

template <class T> struct Shuffle {
  T value;
  unsigned from;
};
template <class T> T shuffle(unsigned mask, T value, unsigned from, Place at) {
  Shuffle<T> mine = {value, from};
  meet(
      mask, &mine,
      [](void *const lane[32]) {
        T got[32];
        for (int i = 0; i < 32; i++) {
          const Shuffle<T> *s = (const Shuffle<T> *)lane[i];
          if (!s) continue;
          if (!lane[s->from & 31]) stop("a shuffle reads from a lane outside of its mask", {"", 0});
          got[i] = ((const Shuffle<T> *)lane[s->from & 31])->value;
        }
        for (int i = 0; i < 32; i++)
          if (lane[i]) ((Shuffle<T> *)lane[i])->value = got[i];
      },
      at);
  return mine.value;
}
static inline unsigned ballot(unsigned mask, bool p, Place at) {
  unsigned mine = p;
  meet(
      mask, &mine,
      [](void *const lane[32]) {
        unsigned all = 0;
        for (int i = 0; i < 32; i++)
          if (lane[i] && *(unsigned *)lane[i]) all |= 1u << i;
        for (int i = 0; i < 32; i++)
          if (lane[i]) *(unsigned *)lane[i] = all;
      },
      at);
  return mine;
}

} // namespace zk_emu

#define threadIdx (zk_emu::now.thread)
#define blockIdx (zk_emu::now.block)
#define blockDim (zk_emu::now.block_dim)
#define gridDim (zk_emu::now.grid_dim)

#define ZK_HERE (zk_emu::Place{__FILE__, __LINE__})
#define __syncthreads() zk_emu::barrier(ZK_HERE)
#define __syncwarp(...) ((void)zk_emu::ballot(0xffffffffu, false, ZK_HERE))
#define __shfl_xor_sync(mask, v, x) zk_emu::shuffle(mask, v, zk_emu::lane() ^ (x), ZK_HERE)
#define __shfl_sync(mask, v, from) zk_emu::shuffle(mask, v, (unsigned)(from), ZK_HERE)
#define __shfl_down_sync(mask, v, d)                                                                         \
  zk_emu::shuffle(mask, v, zk_emu::lane() + (d) < 32 ? zk_emu::lane() + (d) : zk_emu::lane(), ZK_HERE)
#define __shfl_up_sync(mask, v, d)                                                                           \
  zk_emu::shuffle(                                                                                           \
      mask, v, zk_emu::lane() >= (unsigned)(d) ? zk_emu::lane() - (unsigned)(d) : zk_emu::lane(), ZK_HERE)
#define __ballot_sync(mask, p) zk_emu::ballot(mask, p, ZK_HERE)
#define __any_sync(mask, p) (zk_emu::ballot(mask, p, ZK_HERE) != 0)
#define __all_sync(mask, p) (zk_emu::ballot(mask, p, ZK_HERE) == (mask))

/* Threads never run at once, so these need no locks. */
template <class T> T atomicAdd(T *p, T v) {
  T old = *p;
  *p = (T)(old + v);
  return old;
}
template <class T> T atomicMax(T *p, T v) {
  T old = *p;
  if (v > old) *p = v;
  return old;
}
static inline void __threadfence() {}

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  uint64_t both = (uint64_t)y << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(both >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline float __uint_as_float(unsigned u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline unsigned __float_as_uint(float f) {
  unsigned u;
  memcpy(&u, &f, 4);
  return u;
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

#endif
