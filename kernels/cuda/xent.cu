/* The two passes over the logits that cross-entropy takes: T threads a row, as in norm.cu. A part of a split
 * vocabulary begins at `start`; entries from `valid` on are padding.
 *
 * Xent_max_sums finds the maximum in the first of them (Milakov, Gimelshein 2018, "Online normalizer
 * calculation for softmax"): a thread's sum is of exponentials less the largest it has seen, and shrinks when
 * it sees a larger one.
 *
 * Xent_sums_grad makes both passes over a row before it goes on to the next. The second finds the row in the
 * cache: few rows are under way at once, each by a block of many threads, and it begins with what the first
 * has read last. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define SHORT 1024
#define RESIDENT 4       /* blocks of a multiprocessor that must have registers */
#define WIDE_THREADS 512 /* of a block that makes both passes over a row, */
#define WIDE_RESIDENT 2  /* and how many of these */

typedef struct {
  const void *z;
  const int *t;
  /* m: a result of xent_max_sums; a, b: s, p of the sums, gs, gp of the gradient; g: of both together */
  void *m, *a, *b, *dz, *g;
  int zelem, melem, aelem, belem, dzelem, gelem;
  long long n, valid, start, zs, dzs;
  bool wide;
  ZkcNest rest; /* [row]; views: z, m, t, a, b, dz, g */
} Xent;
enum { Z, M, T_, A, B, DZ, G, VIEWS };

/* Where the row's target is here; -1 if it is unknown, elsewhere or padding. */
ZK_DEVICE long long target(const Xent &x, const long long *off) {
  long long id = x.t[off[T_]];
  return id >= 0 && id >= x.start && id < x.start + x.valid ? id - x.start : -1;
}

/* E: the type of z (and dz), whose rows are wide; ANY: of any types, wide or not. */
enum { ANY = -1 };

/* Eights that a thread has under way: 64 bytes of what is read by 16. */
template <int E> constexpr int ahead = E == ZK_BF16 ? 4 : 2;

/* Eight elements as they were read: conversions wait until they are wanted, so that reads need few registers. */
template <int E> struct Eight { uint4 u[E == ZK_F32 ? 2 : 1]; };
template <> struct Eight<ANY> { float x[8]; };

/* Reads ahead<E> eights from `k` on, all under way before the first is waited for. Leaves what lies behind the row
 * as it is. */
template <int T, int E> ZK_DEVICE void load(const Xent &x, long long off, int k, Eight<E> (&z)[ahead<E>]) {
  int t = threadIdx.x % T, n = (int)x.n;
#pragma unroll
  for (int i = 0; i < ahead<E>; i++, k += 8 * T) {
    if constexpr (E == ANY)
      zkc_load_row(x.z, x.zelem, off, x.zs, x.wide, zkc_first(x.wide, k, t), zkc_step<T>(x.wide), n, 0,
                   z[i].x);
    else if (k + 8 * t < n) {
      const char *from = (const char *)x.z + (off + k + 8 * t) * (E == ZK_F32 ? 4 : 2);
#pragma unroll
      for (int j = 0; j < (E == ZK_F32 ? 2 : 1); j++) z[i].u[j] = zk_load16_here(from + 16 * j);
    }
  }
}

/* The eight as numbers. */
template <int E> ZK_DEVICE void numbers(const Eight<E> &z, float (&x)[8]) {
  if constexpr (E == ANY) {
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = z.x[j];
  } else if constexpr (E == ZK_BF16) zk_eight_bf16(z.u[0], x);
  else {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      x[4 * j] = __uint_as_float(z.u[j].x), x[4 * j + 1] = __uint_as_float(z.u[j].y);
      x[4 * j + 2] = __uint_as_float(z.u[j].z), x[4 * j + 3] = __uint_as_float(z.u[j].w);
    }
  }
}

/* Sets those of the eight that are padding, from `valid` on. */
ZK_DEVICE void pad(int first, int step, int valid, float with, float (&x)[8]) {
  if (first + 7 * step < valid) return;
#pragma unroll
  for (int j = 0; j < 8; j++)
    if (first + j * step >= valid) x[j] = with;
}

#define LOWEST (-2e38f) /* below all logits but -infinity; a number in units of log 2, too */
#define LOG2_E 1.44269504f

/* e^(z - m), where `shift` is -m log2(e). What is rounded in `shift` is a factor of all of a row's exponentials,
 * and of their sum. */
ZK_DEVICE float weight(float z, float shift) { return zk_exp2(fmaf(z, LOG2_E, shift)); }

/* Adds eight logits to a sum of exponentials less `m`; PEAK: which is the largest so far, and grows. */
template <bool PEAK> ZK_DEVICE void add_eight(const float (&z)[8], float &m, float &sum) {
  if (PEAK) {
    float most = m;
#pragma unroll
    for (int j = 0; j < 8; j++) most = fmaxf(most, z[j]);
    sum *= zk_exp(m - most);
    m = most;
  }
  float shift = -m * LOG2_E;
#pragma unroll
  for (int j = 0; j < 8; j++) sum += weight(z[j], shift);
}

/* The sum over a row of exponentials less `m`, which all of its threads get; PEAK: less the maximum, which is
 * then in m, LOWEST if there is none. */
template <int T, int E, bool PEAK>
ZK_DEVICE float sum_row(const Xent &x, long long off, float &m, float *part) {
  const bool wide = E != ANY || x.wide;
  const int t = threadIdx.x % T, step = zkc_step<T>(wide), valid = (int)x.valid;
  float sum = 0;
  if (PEAK) m = LOWEST;
  for (int k = 0; k < valid; k += 8 * ahead<E> * T) {
    Eight<E> z[ahead<E>];
    load<T, E>(x, off, k, z);
#pragma unroll
    for (int i = 0; i < ahead<E>; i++) {
      float some[8];
      numbers<E>(z[i], some);
      pad((int)zkc_first(wide, k + 8 * i * T, t), step, valid, -INFINITY, some);
      add_eight<PEAK>(some, m, sum);
    }
  }
  if (PEAK) {
    float most = zk_block<T>(m, ZkMax(), part);
    sum *= zk_exp(m - most);
    m = most;
  }
  return zk_block<T>(sum, ZkSum(), part);
}
ZK_DEVICE float peak_of(float m) { return m == LOWEST ? -INFINITY : m; }

template <int T, int E, bool PEAK>
static __global__ void __launch_bounds__(THREADS, RESIDENT) xent_sums(const __grid_constant__ Xent x) {
  ZK_SHARED(float, part, [THREADS / 32]);
  for (long long row = (blockIdx.x * (long long)THREADS + threadIdx.x) / T; row < x.rest.count;
       row += gridDim.x * (long long)(THREADS / T)) {
    long long off[VIEWS];
    zkc_seek(x.rest, (unsigned)row, off);
    float m = PEAK ? 0 : zk_load(x.m, x.melem, off[M]), sum = sum_row<T, E, PEAK>(x, off[Z], m, part);
    if (threadIdx.x % T == 0) {
      long long at = target(x, off);
      if (PEAK) zk_store(x.m, x.melem, off[M], peak_of(m));
      zk_store(x.a, x.aelem, off[A], sum);
      zk_store(x.b, x.belem, off[B], at >= 0 ? zk_load(x.z, x.zelem, off[Z] + at * x.zs) : 0);
    }
  }
}

/* dz = exp(z - m) gs + (v == at) gp, of ahead<E> eights of a row from k on. */
template <int T, int E>
ZK_DEVICE void grad_eights(const Xent &x, const long long *off, int k, int at, float m, float gs, float gp) {
  const bool wide = E != ANY || x.wide;
  const int t = threadIdx.x % T, step = zkc_step<T>(wide), valid = (int)x.valid, n = (int)x.n;
  const float shift = -m * LOG2_E;
  Eight<E> z[ahead<E>];
  load<T, E>(x, off[Z], k, z);
#pragma unroll
  for (int i = 0; i < ahead<E>; i++) {
    int first = (int)zkc_first(wide, k + 8 * i * T, t);
    float some[8];
    if (first >= n) break;
    numbers<E>(z[i], some);
#pragma unroll
    for (int j = 0; j < 8; j++) some[j] = weight(some[j], shift) * gs;
    pad(first, step, valid, 0, some);
    if (first <= at && at <= first + 7 * step) {
#pragma unroll
      for (int j = 0; j < 8; j++)
        if (first + j * step == at) some[j] += gp;
    }
    if (E == ANY) zkc_store_row(x.dz, x.dzelem, off[DZ], x.dzs, wide, first, step, n, some);
    else zk_store8(x.dz, E, off[DZ] + first, some);
  }
}

/* dz may lie in z's memory. */
template <int T, int E>
static __global__ void __launch_bounds__(THREADS, RESIDENT) xent_grad(const __grid_constant__ Xent x) {
  for (long long row = (blockIdx.x * (long long)THREADS + threadIdx.x) / T; row < x.rest.count;
       row += gridDim.x * (long long)(THREADS / T)) {
    long long off[VIEWS];
    zkc_seek(x.rest, (unsigned)row, off);
    int at = (int)target(x, off);
    float m = zk_load(x.m, x.melem, off[M]), gs = zk_load(x.a, x.aelem, off[A]),
          gp = zk_load(x.b, x.belem, off[B]);
    for (int k = 0; k < (int)x.n; k += 8 * ahead<E> * T) grad_eights<T, E>(x, off, k, at, m, gs, gp);
  }
}

/* Both. dz may lie in z's memory: the target's logit is read before any thread goes on to the gradient. */
template <int T, int E>
static __global__ void __launch_bounds__(T == 32 ? THREADS : T, T == 32 ? RESIDENT : WIDE_RESIDENT)
    xent_sums_grad(const __grid_constant__ Xent x) {
  const int block = T == 32 ? THREADS : T, each = 8 * ahead<E> * T, n = (int)x.n;
  ZK_SHARED(float, part, [WIDE_THREADS / 32]);
  for (long long row = (blockIdx.x * (long long)block + threadIdx.x) / T; row < x.rest.count;
       row += gridDim.x * (long long)(block / T)) {
    long long off[VIEWS];
    zkc_seek(x.rest, (unsigned)row, off);
    int at = (int)target(x, off);
    float m, g = zk_load(x.g, x.gelem, off[G]), picked = 0;
    if (at >= 0 && threadIdx.x % T == 0) picked = zk_load(x.z, x.zelem, off[Z] + at * x.zs);
    if (T == 32) __syncwarp(); /* more threads meet at barriers */
    float sum = sum_row<T, E, true>(x, off[Z], m, part);
    if (threadIdx.x % T == 0) {
      zk_store(x.m, x.melem, off[M], peak_of(m));
      zk_store(x.a, x.aelem, off[A], sum);
      zk_store(x.b, x.belem, off[B], picked);
    }
    for (int k = (n - 1) / each * each; k >= 0; k -= each)
      grad_eights<T, E>(x, off, k, at, peak_of(m), g / sum, -g);
  }
}

static Xent analyse(const ZkCall *c, const ZkView *m, const ZkView *t, const ZkView *a, const ZkView *b,
                    const ZkView *dz, const ZkView *g) {
  const ZkView *z = &c->in[0], *views[] = {z, m, t, a, b, dz, g};
  uint16_t v = c->ax[0];
  Xent x = {};
  ZB_ASSERT(t->elem == ZK_I32 && zkc_size(z, v) < 1 << 30);
  x.z = z->data, x.m = m->data, x.t = (const int *)t->data, x.a = a->data, x.b = b->data, x.dz = dz->data;
  x.g = g->data, x.gelem = g->elem;
  x.zelem = z->elem, x.melem = m->elem, x.aelem = a->elem, x.belem = b->elem, x.dzelem = dz->elem;
  x.n = zkc_size(z, v);
  x.start = zkc_start(z, v);
  x.valid = c->opt[1] > 0 ? c->opt[1] - x.start : x.n;
  x.valid = x.valid < 0 ? 0 : x.valid > x.n ? x.n : x.valid;
  x.zs = zkc_stride(z, v);
  x.dzs = zkc_stride(dz, v);
  x.rest = zkc_nest(views, VIEWS, &v, 1, false);
  x.wide = zkc_wide(z, &x.rest, Z, x.n, x.zs) && zkc_wide(dz, &x.rest, DZ, x.n, x.dzs);
  return x;
}

template <int E, bool PEAK> static void sums(ZkCuda *cu, const ZkCall *c, const Xent &x) {
  if (x.n <= SHORT)
    ZK_LAUNCH(cu, c, (xent_sums<32, E, PEAK>), zk_blocks(cu, zk_ceil_of(x.rest.count, THREADS / 32)), THREADS,
              0, x);
  else ZK_LAUNCH(cu, c, (xent_sums<THREADS, E, PEAK>), zk_blocks(cu, x.rest.count), THREADS, 0, x);
}
template <bool PEAK> static void sums_of(ZkCuda *cu, const ZkCall *c, const Xent &x) {
  if (x.wide && x.zelem == ZK_BF16) sums<ZK_BF16, PEAK>(cu, c, x);
  else if (x.wide && x.zelem == ZK_F32) sums<ZK_F32, PEAK>(cu, c, x);
  else sums<ANY, PEAK>(cu, c, x);
}
template <int E> static void grad(ZkCuda *cu, const ZkCall *c, const Xent &x) {
  if (x.n <= SHORT)
    ZK_LAUNCH(cu, c, (xent_grad<32, E>), zk_blocks(cu, zk_ceil_of(x.rest.count, THREADS / 32)), THREADS, 0,
              x);
  else ZK_LAUNCH(cu, c, (xent_grad<THREADS, E>), zk_blocks(cu, x.rest.count), THREADS, 0, x);
}

/* Rows that are under way at once are to stay in the cache, of which others need some, too: two on a
 * multiprocessor, or if they are long one. */
static unsigned wide_blocks(const ZkCuda *cu, const Xent &x) {
  int64_t rows = cu->sms, bytes = (int64_t)zk_bytes((ZkElem)x.zelem, (uint64_t)x.n);
  if (WIDE_RESIDENT * rows * bytes <= (int64_t)(cu->l2 / 3 * 2)) rows *= WIDE_RESIDENT;
  return (unsigned)(x.rest.count < rows ? x.rest.count : rows);
}
template <int E> static void both(ZkCuda *cu, const ZkCall *c, const Xent &x) {
  if (x.n <= SHORT)
    ZK_LAUNCH(cu, c, (xent_sums_grad<32, E>), zk_blocks(cu, zk_ceil_of(x.rest.count, THREADS / 32)), THREADS,
              0, x);
  else ZK_LAUNCH(cu, c, (xent_sums_grad<WIDE_THREADS, E>), wide_blocks(cu, x), WIDE_THREADS, 0, x);
}

extern "C" void zk_cuda_xent_sums(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->in[1], &c->in[2], &c->out[0], &c->out[1], &c->in[0], &c->in[1]);
  sums_of<false>(zk_cu(env), c, x);
}

extern "C" void zk_cuda_xent_max_sums(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->out[2], &c->in[1], &c->out[0], &c->out[1], &c->in[0], &c->in[1]);
  sums_of<true>(zk_cu(env), c, x);
}

extern "C" void zk_cuda_xent_grad(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->in[1], &c->in[2], &c->in[3], &c->in[4], &c->out[0], &c->in[3]);
  bool alike = x.wide && x.zelem == x.dzelem;
  if (alike && x.zelem == ZK_BF16) grad<ZK_BF16>(zk_cu(env), c, x);
  else if (alike && x.zelem == ZK_F32) grad<ZK_F32>(zk_cu(env), c, x);
  else grad<ANY>(zk_cu(env), c, x);
}

extern "C" void zk_cuda_xent_sums_grad(const ZkEnv *env, const ZkCall *c) {
  Xent x = analyse(c, &c->out[3], &c->in[1], &c->out[1], &c->out[2], &c->out[0], &c->in[2]);
  bool alike = x.wide && x.zelem == x.dzelem;
  if (alike && x.zelem == ZK_BF16) both<ZK_BF16>(zk_cu(env), c, x);
  else if (alike && x.zelem == ZK_F32) both<ZK_F32>(zk_cu(env), c, x);
  else both<ANY>(zk_cu(env), c, x);
}
