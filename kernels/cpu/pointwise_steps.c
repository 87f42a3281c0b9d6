/* The steps of pointwise functions, for each instruction set. A step takes the accumulator's eight vectors as
 * arguments, does its work on each and calls the next step: in optimised code that is a jump, and nothing
 * leaves its register. */
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/math.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors wider than the machine's are not passed between files */

#define V NAME(Vector)
#define TILE (8 * LANES)
#define AHEAD 2048 /* bytes before their tile, asked for: no CPU foresees many streams, or across 4 KB */
#define ALIGNED __attribute__((aligned(4 * LANES)))
#define STEP_ARGS const ZkStep *s, char *const *place, V a0, V a1, V a2, V a3, V a4, V a5, V a6, V a7
#define NEXT ((NAME(Fn) *)s[1].fn)(s + 1, place, a0, a1, a2, a3, a4, a5, a6, a7)

/* The accumulator to and from an array. Most steps are a loop over such an array: compilers turn it into
 * vector code, and where they unroll it entirely, the array is gone. */
#define PUT1(t, i) *(NAME(Floats) *)(t + LANES * i) = a##i;
#define GET1(t, i) a##i = *(const NAME(Floats) *)(t + LANES * i);
#define PUT(t) PUT1(t, 0) PUT1(t, 1) PUT1(t, 2) PUT1(t, 3) PUT1(t, 4) PUT1(t, 5) PUT1(t, 6) PUT1(t, 7)
#define GET(t) GET1(t, 0) GET1(t, 1) GET1(t, 2) GET1(t, 3) GET1(t, 4) GET1(t, 5) GET1(t, 6) GET1(t, 7)

#define h(i) zb_bf16_to_f32(((const uint16_t *)p)[i])

/* ---- the instruction sets ---- */
#define LANES 4
#define NAME(x) x##_any
#define SET "portable"
#define LEAVE (void)0
#include "kernels/cpu/pointwise_steps.h"
#undef LANES
#undef NAME
#undef SET
#undef LEAVE

/* Other compilers pass wide vectors in memory here. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ZK_WIDE
#define LEAVE __builtin_ia32_vzeroupper()
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define NAME(x) x##_v3
#define SET "x86-64-v3"
#include "kernels/cpu/pointwise_steps.h"
#undef LANES
#undef NAME
#undef SET
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define LANES 16
#define NAME(x) x##_v4
#define SET "x86-64-v4"
#include "kernels/cpu/pointwise_steps.h"
#pragma GCC pop_options

/* The same on CPUs that round to bf16 themselves; they take numbers below the normal ones for 0. */
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,avx512bf16")
#define PAIR(i, low, high)                                                                                   \
  _mm512_storeu_si512(p + 32 * i, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
static void ST_H_bf16(STEP_ARGS) {
  uint16_t *p = (uint16_t *)place[s->p];
  PAIR(0, a0, a1)
  PAIR(1, a2, a3)
  PAIR(2, a4, a5)
  PAIR(3, a6, a7)
  NEXT;
}
#pragma GCC pop_options
static const ZkPointwiseSet set_bf16 = {.name = "x86-64-v4 with bf16",
                                        .tile = TILE,
                                        .fn = fn_v4,
                                        .store_bf16 = (ZkStepFn *)ST_H_bf16,
                                        .run = run_v4};
#endif

const ZkPointwiseSet *zk_pointwise_set(int i) {
#ifdef ZK_WIDE
  bool v4 = zk_cpu_has(ZK_X86_V4);
  if (i == 1 && zk_cpu_has(ZK_X86_V3)) return &set_v3;
  if (i == 2 && v4) return &set_v4;
  if (i == 3 && v4 && __builtin_cpu_supports("avx512bf16")) return &set_bf16;
#endif
  return i == 0 ? &set_any : NULL;
}
