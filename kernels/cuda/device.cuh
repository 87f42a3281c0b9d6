/* Device code without includes: element access and index arithmetic. For .cu files (through common.cuh) and
 * for programs compiled at run time, which carry this text, and the names of formats before it. */
#ifndef ZUG_KERNELS_CUDA_DEVICE_CUH
#define ZUG_KERNELS_CUDA_DEVICE_CUH

#ifdef ZK_EMU
#define ZK_ALIGNED(p)                                                                                        \
  do {                                                                                                       \
    if ((size_t)(p) % 16) zk_emu::stop("16 bytes at an address that is no multiple of 16", ZK_HERE);         \
  } while (0)
#define ZK_SHARED(T, name, dims)                                                                             \
  static const char name##_tag_ = 0;                                                                         \
  T(&name) dims = *(T(*) dims)zk_emu::shared(&name##_tag_, sizeof(T dims))
#else
#define ZK_ALIGNED(p) ((void)0)
#define ZK_SHARED(T, name, dims) __shared__ T name dims
#endif
#define ZK_DEVICE static __device__ __forceinline__

/* ---- indices ------------------------------------------------------------------------------------------- */
ZK_DEVICE unsigned zkc_div(unsigned x, const ZkcDiv &d) {
  return (unsigned)(((unsigned long long)__umulhi(x, d.mul) + x) >> d.shift);
}
/* Offsets of point `at` of the nest (a ZkcNest, or one of fewer views) in its first V views. */
template <int V, class N> ZK_DEVICE void zkc_seek(const N &nest, unsigned at, long long (&off)[V]) {
#pragma unroll
  for (int v = 0; v < V; v++) off[v] = 0;
/* Mostly none or one: unrolled, this was half of a program's compile time. */
#pragma unroll 1
  for (int l = nest.nloops - 1; l > 0; l--) {
    unsigned q = zkc_div(at, nest.div[l]);
    long long i = at - q * nest.div[l].n;
#pragma unroll
    for (int v = 0; v < V; v++) off[v] += i * nest.stride[l][v];
    at = q;
  }
  if (nest.nloops > 0) { /* what is left of the slowest needs no division */
#pragma unroll
    for (int v = 0; v < V; v++) off[v] += at * nest.stride[0][v];
  }
}

/* Row and place in it of unit u. */
ZK_DEVICE unsigned zkc_row(const ZkcUnits &units, long long u, long long &at) {
  if (units.div.n) {
    unsigned row = zkc_div((unsigned)u, units.div);
    at = (unsigned)u - row * units.div.n;
    return row;
  }
  unsigned row = (unsigned)(u / units.n);
  at = u - row * units.n;
  return row;
}

/* ---- elements ------------------------------------------------------------------------------------------ */
ZK_DEVICE float zk_from_bf16(unsigned h) { return __uint_as_float(h << 16); }
/* Two at once, to nearest even; the first in the lower half. */
ZK_DEVICE unsigned zk_to_bf16x2(float lo, float hi) {
#ifndef ZK_EMU
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
#else
  unsigned h[2], u[2] = {__float_as_uint(lo), __float_as_uint(hi)};
  for (int i = 0; i < 2; i++)
    h[i] = (u[i] & 0x7fffffff) > 0x7f800000 ? 0x7fff : (u[i] + 0x7fff + (u[i] >> 16 & 1)) >> 16;
  return h[0] | h[1] << 16;
#endif
}
ZK_DEVICE unsigned short zk_to_bf16(float x) { return (unsigned short)zk_to_bf16x2(x, 0); }

ZK_DEVICE float zk_load(const void *p, int elem, long long at) {
  if (elem == ZK_BF16) return zk_from_bf16(((const unsigned short *)p)[at]);
  if (elem == ZK_I32) return (float)((const int *)p)[at];
  return ((const float *)p)[at];
}
ZK_DEVICE void zk_store(void *p, int elem, long long at, float x) {
  if (elem == ZK_BF16) ((unsigned short *)p)[at] = zk_to_bf16(x);
  else if (elem == ZK_I32) ((int *)p)[at] = (int)x;
  else ((float *)p)[at] = x;
}

ZK_DEVICE uint4 zk_load16(const void *p) {
  ZK_ALIGNED(p);
  return *(const uint4 *)p;
}
/* A load that stays where it is written: of several that are used one after the other nvcc makes each where it
 * is used, and so waits for one at a time. */
ZK_DEVICE uint4 zk_load16_here(const void *p) {
  ZK_ALIGNED(p);
#ifndef ZK_EMU
  uint4 x;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(__cvta_generic_to_global(p)));
  return x;
#else
  return *(const uint4 *)p;
#endif
}
/* In so many words: of an assignment nvcc makes four stores of 4 bytes where it cannot tell that nothing
 * reads between them what an earlier one wrote. */
ZK_DEVICE void zk_store16(void *p, uint4 x) {
  ZK_ALIGNED(p);
#ifndef ZK_EMU
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(x.x),
               "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
#else
  *(uint4 *)p = x;
#endif
}

/* Eight bf16 as numbers. */
ZK_DEVICE void zk_eight_bf16(uint4 u, float (&x)[8]) {
  const unsigned w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[2 * i] = __uint_as_float(w[i] << 16);
    x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
}
/* Eight neighbours, of f32 or bf16, that lie at a multiple of 16 bytes. */
ZK_DEVICE void zk_load8(const void *p, int elem, long long at, float (&x)[8]) {
  if (elem == ZK_BF16) zk_eight_bf16(zk_load16((const unsigned short *)p + at), x);
  else {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint4 u = zk_load16((const float *)p + at + 4 * i);
      const unsigned w[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
      for (int j = 0; j < 4; j++) x[4 * i + j] = elem == ZK_I32 ? (float)(int)w[j] : __uint_as_float(w[j]);
    }
  }
}
ZK_DEVICE void zk_store8(void *p, int elem, long long at, const float (&x)[8]) {
  if (elem == ZK_BF16) {
    uint4 u;
    u.x = zk_to_bf16x2(x[0], x[1]);
    u.y = zk_to_bf16x2(x[2], x[3]);
    u.z = zk_to_bf16x2(x[4], x[5]);
    u.w = zk_to_bf16x2(x[6], x[7]);
    zk_store16((unsigned short *)p + at, u);
  } else {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      unsigned w[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        w[j] = elem == ZK_I32 ? (unsigned)(int)x[4 * i + j] : __float_as_uint(x[4 * i + j]);
      uint4 u;
      u.x = w[0], u.y = w[1], u.z = w[2], u.w = w[3];
      zk_store16((float *)p + at + 4 * i, u);
    }
  }
}

/* 2^x, 0 where that is below 2^-126: exp2f takes two or three instructions more to get these right. */
ZK_DEVICE float zk_exp2(float x) {
#ifndef ZK_EMU
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
/* e^x, off by a rounding of x log2(e) more than expf and a fifth of its instructions. */
ZK_DEVICE float zk_exp(float x) { return zk_exp2(x * 1.44269504f); }

#endif
