/* Products of some rows by packed weights, which sum along their columns, as steps of generation have
 * them: bound by reading codes and scales, which is done where they lie, 16 bytes an access, each once for
 * up to 64 rows. Codes are decoded in registers.
 *
 * A warp has 32 columns, two panels of weights, and every so many'th UNIT of k. With lane = 4 g + t, a
 * lane reads of 32 steps of k eight, 8 t and on, of four columns, 4 g and on. These are its parts of two A
 * of mma.cuh whose rows are columns of weights, if k is counted in another order, which is that of the
 * rows' eights too. Codes less their zero are whole numbers, exact in bf16, so a group's products are
 * summed in f32 before they count by its scale; values of codes are rounded to bf16. Rows in f32 are
 * multiplied by f32 units, with weights as they are unpacked.
 *
 * K is cut into parts as N and K alone say, so that all multiprocessors work; the last block of a tile to
 * come adds up what the parts have, in their order. So the bits of a row do not depend on how many others
 * there are. */
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/packed.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define COLUMNS 32 /* of a block */
#define STEP 32    /* of k: what a warp reads at once; no longer than a group */
#define STEPS 4    /* of a unit, which begins a group */
#define UNIT (STEP * STEPS)
#define ENOUGH 256 /* blocks that fill a device */

enum { Y, X, VIEWS };
enum { CODES8, CODES4, VALUES }; /* kinds of codes */

typedef struct {
  int nloops;
  ZkcDiv div[ZKC_LOOPS];
  long long stride[ZKC_LOOPS][VIEWS];
} Loops;

typedef struct {
  Packed w;
  const void *x;
  void *y;
  int xelem, yelem;
  bool add, wide; /* wide: eights of a row can be loaded 16 bytes a time */
  unsigned M, N, K;
  unsigned pieces, tiles, parts, part,
      total; /* of columns, rows, k; part: steps of k; total: all products' */
  Loops batch, m, n, k;
  float *partial; /* [part][m][all columns] */
  unsigned *arrived;
  unsigned low[4], high[4]; /* bytes of the values of codes in bf16 */
} Rows;

/* A block's part of the work. */
typedef struct {
  unsigned product, piece, tile, part;
} Task;
ZK_DEVICE Task task_of(const Rows &p, unsigned u) {
  unsigned rest = u / p.parts, next = rest / p.tiles, product = next / p.pieces;
  return {product, next - product * p.pieces, rest - next * p.tiles, u - rest * p.parts};
}

/* ---- weights ------------------------------------------------------------------------------------------- */
/* What a lane has of S steps: codes and, by the step that begins one, groups. */
template <int KIND, int S> struct Part {
  enum { BITS = KIND == CODES8 ? 8 : 4 };
  Quad<BITS> codes[S];
  uint2 scales[S];
  unsigned zeros[S];
};

/* Where a lane reads. */
typedef struct {
  long long panel;
  int q, t;
} Lane;
ZK_DEVICE Lane lane_of(const Rows &p, const Task &task) {
  int lane = threadIdx.x % 32, g = lane / 4;
  unsigned of = (p.N + ZK_COLUMNS - 1) / ZK_COLUMNS, panel = task.piece * (COLUMNS / ZK_COLUMNS) + g / 4;
  return {(long long)task.product * of + min(panel, of - 1), g % 4, lane % 4}; /* none: the last one again */
}

ZK_DEVICE bool begins_group(const Rows &p, unsigned k) { return k % p.w.group == 0; }

template <int KIND, int S>
ZK_DEVICE void load(const Rows &p, const Lane &at, unsigned k, unsigned end, Part<KIND, S> &u) {
#pragma unroll
  for (int s = 0; s < S; s++, k += STEP) {
    if (k >= end) break;
    u.codes[s] = quad_at<Part<KIND, S>::BITS>(p.w, at.panel, k + 8 * at.t, at.q);
    if (!begins_group(p, k)) continue;
    long long group = group_at(p.w, at.panel, k) + 4 * at.q;
    u.scales[s] = *(const uint2 *)(p.w.scales + group);
    if (p.w.zeros) u.zeros[s] = *(const unsigned *)(p.w.zeros + group);
  }
}

/* a + b of two bf16 at once */
ZK_DEVICE unsigned add2(unsigned a, unsigned b) {
#ifndef ZK_EMU
  unsigned r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return r;
#else
  return zk_to_bf16x2(zk_from_bf16(a & 0xffff) + zk_from_bf16(b & 0xffff),
                      zk_from_bf16(a >> 16) + zk_from_bf16(b >> 16));
#endif
}

/* The eight elements of a column in pairs of bf16, in the order that comes cheapest: `order` puts a row's
 * into the same. 128 + n is 0x4300 + n in bf16, for n below 128; minus: that of 128 and the zero. */
template <int KIND, int BITS>
ZK_DEVICE void pairs_of(const Rows &p, const Quad<BITS> &x, int column, unsigned minus, unsigned (&to)[4]) {
  const unsigned w = word_of(x, 0, column);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if constexpr (KIND == CODES4) to[i] = add2((w >> 4 * i & 0x000f000f) | 0x43004300, minus);
    if constexpr (KIND == CODES8) { /* of the upper bit -128 or -256 */
      unsigned two = __byte_perm(word_of(x, i / 2, column), 0, i % 2 ? 0x4342 : 0x4140);
      to[i] = add2((two & 0x007f007f) | 0x43004300, (two & 0x00800080) ^ 0xc380c380);
    }
    if (KIND == VALUES && i % 2 == 0) { /* bytes are looked up in eight, and eight others, by 3 bits */
      unsigned four = w >> 8 * i, s = four & 0x7777, which = (four >> 1 & 0x4444) | 0x3210;
      unsigned low =
          __byte_perm(__byte_perm(p.low[0], p.low[1], s), __byte_perm(p.low[2], p.low[3], s), which);
      unsigned high =
          __byte_perm(__byte_perm(p.high[0], p.high[1], s), __byte_perm(p.high[2], p.high[3], s), which);
      to[i] = __byte_perm(low, high, 0x5140), to[i + 1] = __byte_perm(low, high, 0x7362);
    }
  }
}

template <int KIND> ZK_DEVICE void order(const uint4 &x, unsigned (&to)[4]) {
  if (KIND == CODES8) to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  if (KIND == CODES4) {
    to[0] = __byte_perm(x.x, x.y, 0x5410), to[1] = __byte_perm(x.z, x.w, 0x5410);
    to[2] = __byte_perm(x.x, x.y, 0x7632), to[3] = __byte_perm(x.z, x.w, 0x7632);
  }
  if (KIND == VALUES) {
    to[0] = __byte_perm(x.x, x.z, 0x5410), to[1] = __byte_perm(x.x, x.z, 0x7632);
    to[2] = __byte_perm(x.y, x.w, 0x5410), to[3] = __byte_perm(x.y, x.w, 0x7632);
  }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */
/* Where row m of a product begins; -1: there is none. */
ZK_DEVICE long long row_of(const Rows &p, unsigned product, unsigned m) {
  long long b[VIEWS], r[VIEWS];
  if (m >= p.M) return -1;
  zkc_seek(p.batch, product, b);
  zkc_seek(p.m, m, r);
  return b[X] + r[X];
}

ZK_DEVICE void load_eight(const Rows &p, long long row, unsigned k, float (&x)[8]) {
  long long at[VIEWS];
  if (p.wide) {
    zkc_seek(p.k, k, at);
    zk_load8(p.x, p.xelem, row + at[X], x);
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      zkc_seek(p.k, k + i, at);
      x[i] = zk_load(p.x, p.xelem, row + at[X]);
    }
  }
}
ZK_DEVICE uint4 half_eight(const Rows &p, long long row, unsigned k) {
  long long at[VIEWS];
  float x[8];
  if (row < 0) return make_uint4(0, 0, 0, 0);
  if (p.wide) {
    zkc_seek(p.k, k, at);
    return zk_load16((const unsigned short *)p.x + row + at[X]);
  }
  load_eight(p, row, k, x);
  return make_uint4(zk_to_bf16x2(x[0], x[1]), zk_to_bf16x2(x[2], x[3]), zk_to_bf16x2(x[4], x[5]),
                    zk_to_bf16x2(x[6], x[7]));
}

/* ---- results ------------------------------------------------------------------------------------------- */
ZK_DEVICE void keep(const Rows &p, unsigned product, unsigned m, unsigned n, float sum) {
  long long b[VIEWS], r[VIEWS], c[VIEWS];
  zkc_seek(p.batch, product, b);
  zkc_seek(p.m, m, r);
  zkc_seek(p.n, n, c);
  long long at = b[Y] + r[Y] + c[Y];
  zk_store(p.y, p.yelem, at, p.add ? sum + zk_load(p.y, p.yelem, at) : sum);
}

/* What a part has of a result. */
ZK_DEVICE float *partial(const Rows &p, const Task &task, unsigned part, unsigned m, unsigned n) {
  long long all = (long long)(p.total / (p.tiles * p.parts * p.pieces)) * p.N;
  return p.partial + ((long long)part * p.M + m) * all + (long long)task.product * p.N + n;
}

/* Adds up what warps have of 8 R rows: put(r, sums) puts a lane's of eight rows there, [row][column]. */
template <int R, class Put>
ZK_DEVICE void finish(const Rows &p, const Task &task, float *sums, unsigned *last, Put put) {
  int warp = threadIdx.x / 32;
  unsigned n = task.piece * COLUMNS + threadIdx.x % 32, m0 = task.tile * 8 * R + warp;
#pragma unroll
  for (int r = 0; r < R; r++) {
    __syncthreads(); /* the sums before are in use until here */
    put(r, &sums[warp * 8 * COLUMNS]);
    __syncthreads();
    float sum = sums[threadIdx.x];
    for (int w = 1; w < WARPS; w++) sum += sums[w * 8 * COLUMNS + threadIdx.x];
    if (m0 + 8 * r >= p.M || n >= p.N) continue;
    if (p.parts > 1) *partial(p, task, task.part, m0 + 8 * r, n) = sum;
    else keep(p, task.product, m0 + 8 * r, n, sum);
  }
  if (p.parts == 1) return;
  unsigned *arrived = p.arrived + (task.product * p.pieces + task.piece) * p.tiles + task.tile;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *last = atomicAdd(arrived, 1u) == p.parts - 1;
  __syncthreads();
  if (!*last) return;
  __threadfence();
  for (unsigned m = m0; m < min(p.M, m0 + 8 * R) && n < p.N; m += 8) {
    float sum = *partial(p, task, 0, m, n);
    for (unsigned i = 1; i < p.parts; i++) sum += *partial(p, task, i, m, n);
    keep(p, task.product, m, n, sum);
  }
  if (threadIdx.x == 0) *arrived = 0; /* as the next launch wants it */
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
/* What a lane sums: by row, column and k so far, and of the group that is under way. */
template <int R> struct Sums {
  float all[R][2][4], group[R][2][4];
  uint2 scales;
  unsigned zeros;
};

/* A group's sums count by its scales. */
template <int R> ZK_DEVICE void count_group(Sums<R> &sum) {
  const unsigned h[2] = {sum.scales.x, sum.scales.y};
#pragma unroll
  for (int j = 0; j < 2; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float scale = half_of(h[j] >> 16 * (i / 2) & 0xffff);
#pragma unroll
      for (int r = 0; r < R; r++) {
        sum.all[r][j][i] = fmaf(sum.group[r][j][i], scale, sum.all[r][j][i]);
        sum.group[r][j][i] = 0;
      }
    }
}

template <int KIND, int S, int R>
ZK_DEVICE void multiply(const Rows &p, const Lane &at, const long long (&row)[R], unsigned k, unsigned end,
                        const Part<KIND, S> &u, Sums<R> &sum) {
#pragma unroll
  for (int s = 0; s < S; s++, k += STEP) {
    if (k >= end) break;
    unsigned a[4][4];
    if (begins_group(p, k)) sum.scales = u.scales[s], sum.zeros = p.w.zeros ? u.zeros[s] : 0x08080808;
#pragma unroll
    for (int c = 0; c < 4; c++)
      pairs_of<KIND>(p, u.codes[s], c, ((sum.zeros >> 8 * c & 255) | 0xc300) * 0x10001u, a[c]);
#pragma unroll
    for (int r = 0; r < R; r++) {
      unsigned b[4];
      order<KIND>(half_eight(p, row[r], k + 8 * at.t), b);
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int h = 0; h < 4; h += 2) {
          const unsigned pairs[4] = {a[2 * j][h], a[2 * j + 1][h], a[2 * j][h + 1], a[2 * j + 1][h + 1]};
          zk_mma(sum.group[r][j], pairs, b[h], b[h + 1]);
        }
    }
    if (begins_group(p, k + STEP)) count_group(sum);
  }
}

/* All of a warp's k, from its first unit on. What comes next is read while some is multiplied: of more
 * rows less at once, since there is more to do of it. */
template <int KIND, int R>
ZK_DEVICE void multiply_all(const Rows &p, const Lane &at, const long long (&row)[R], unsigned k,
                            unsigned end, Sums<R> &sum) {
  const int S = R == 1 ? STEPS : R == 2 ? 2 : 1;
  Part<KIND, S> now, next;
  if (k < end) load(p, at, k, end, next);
#pragma unroll 1
  while (k < end) {
    unsigned then = k + S * STEP;
    if (then % UNIT == 0) then += (WARPS - 1) * UNIT;
    now = next;
    if (then < end) load(p, at, then, end, next);
    multiply(p, at, row, k, end, now, sum);
    k = then;
  }
}

/* 8 R rows in bf16. */
template <int KIND, int R>
static __global__ void __launch_bounds__(THREADS, R <= 2 ? 2 : 1)
    packed_half(const __grid_constant__ Rows p) {
  ZK_SHARED(float, sums, [WARPS * 8 * COLUMNS]);
  ZK_SHARED(unsigned, last, [1]);
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    Task task = task_of(p, u);
    unsigned end = min(p.K, (task.part + 1) * p.part), k = task.part * p.part + threadIdx.x / 32 * UNIT;
    Sums<R> sum = {};
    long long row[R];
#pragma unroll
    for (int r = 0; r < R; r++) row[r] = row_of(p, task.product, (task.tile * R + r) * 8 + g);
    multiply_all<KIND, R>(p, lane_of(p, task), row, k, end, sum);
    finish<R>(p, task, sums, last, [&](int r, float *to) {
#pragma unroll
      for (int i = 0; i < 8; i++) to[(2 * t + i % 2) * COLUMNS + 4 * g + i / 2] = sum.all[r][i / 4][i % 4];
    });
  }
}

/* 8 R rows in f32. */
template <int BITS, int R>
static __global__ void __launch_bounds__(THREADS) packed_f32(const __grid_constant__ Rows p) {
  ZK_SHARED(float, sums, [WARPS * 8 * COLUMNS]);
  ZK_SHARED(float, value, [16]);
  ZK_SHARED(unsigned, last, [1]);
  int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  load_values(p.w, value);
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    Task task = task_of(p, u);
    Lane at = lane_of(p, task);
    unsigned end = min(p.K, (task.part + 1) * p.part), k = task.part * p.part + threadIdx.x / 32 * STEP;
    float sum[8 * R][4] = {};
    for (; k < end; k += WARPS * STEP) {
      float w[4][8];
      Quad<BITS> codes = quad_at<BITS>(p.w, at.panel, k + 8 * t, at.q);
      QuadGroup group = quad_group(p.w, at.panel, k, at.q);
#pragma unroll
      for (int c = 0; c < 4; c++) decode<BITS>(p.w, value, codes, group, c, w[c]);
#pragma unroll
      for (int r = 0; r < 8 * R; r++) {
        float x[8];
        long long row = row_of(p, task.product, task.tile * 8 * R + r);
        if (row < 0) break;
        load_eight(p, row, k + 8 * t, x);
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
          for (int c = 0; c < 4; c++) sum[r][c] = fmaf(x[i], w[c][i], sum[r][c]);
      }
    }
    finish<R>(p, task, sums, last, [&](int r, float *to) {
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
          float y = sum[8 * r + i][c];
          y += __shfl_xor_sync(0xffffffffu, y, 1);
          y += __shfl_xor_sync(0xffffffffu, y, 2);
          if (t == i % 4) to[i * COLUMNS + 4 * g + c] = y;
        }
    });
  }
}

/* ---- which calls, and how ------------------------------------------------------------------------------ */
/* The loops over axes of view `from` that are (in) or are not among w's; counts them. */
static Loops loops(const ZkView *from, const ZkView *y, const ZkView *x, const uint16_t *axes, int n, bool in,
                   unsigned *count) {
  const ZkView *views[3] = {from, y, x};
  ZkcNest nest = zkc_nest(views, 3, axes, n, in);
  Loops l = {nest.nloops, {}, {}};
  for (int i = 0; i < nest.nloops; i++) {
    l.div[i] = nest.div[i];
    l.stride[i][Y] = nest.stride[i][1], l.stride[i][X] = nest.stride[i][2];
  }
  *count = nest.count;
  return l;
}

/* Can eights of a row's elements be loaded 16 bytes a time? */
static bool is_wide(const Rows *p, const ZkView *x) {
  int64_t bytes = (int64_t)zk_plain_bytes((ZkElem)x->elem);
  const Loops *l[3] = {&p->batch, &p->m, &p->k};
  int last = p->k.nloops - 1;
  bool wide =
      (uintptr_t)p->x % 16 == 0 && last >= 0 && p->k.stride[last][X] == 1 && p->k.div[last].n % 8 == 0;
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < l[i]->nloops - (i == 2); k++) wide &= l[i]->stride[k][X] * bytes % 16 == 0;
  return wide;
}

/* Cuts k: by what the weights are, not by the rows. */
static void cut(Rows *p, unsigned products) {
  unsigned units = (unsigned)zk_ceil_of(p->K, UNIT), parts = 1;
  p->pieces = (unsigned)zk_ceil_of(p->N, COLUMNS);
  while ((int64_t)products * p->pieces * parts < ENOUGH && units / (2 * parts) >= WARPS) parts *= 2;
  p->part = (unsigned)zk_ceil_of(units, parts) * UNIT;
  p->parts = (unsigned)zk_ceil_of(p->K, p->part);
}

static void set_values(Rows *p) {
  for (int i = 0; i < 16 && p->w.table; i++) {
    unsigned q = zb_f32_to_bf16(p->w.value[i]);
    p->low[i / 4] |= (q & 255) << 8 * (i % 4), p->high[i / 4] |= q >> 8 << 8 * (i % 4);
  }
}

/* Fills p with what a product is; false if it is not one of these. */
static bool find(const ZkCall *c, Rows *p, unsigned *products) {
  int which = zk_cuda_packed_operand(c), columns = c->in[which].rank - c->in[which].summed, shared = 0;
  const ZkView *w = &c->in[which], *x = &c->in[!which], *y = &c->out[0];
  if (!zk_cuda_packed_forward(c) || (x->elem != ZK_F32 && x->elem != ZK_BF16)) return false;
  while (shared < columns && zkc_find(x, w->axis[shared]) >= 0) shared++;
  for (int i = shared; i < columns; i++)
    if (zkc_find(x, w->axis[i]) >= 0) return false;
  p->batch = loops(w, y, x, w->axis, shared, true, products);
  p->m = loops(y, y, x, w->axis, w->rank, false, &p->M);
  p->n = loops(w, y, x, w->axis + shared, columns - shared, true, &p->N);
  p->k = loops(w, y, x, w->axis + columns, w->summed, true, &p->K);
  p->x = x->data, p->y = y->data, p->xelem = x->elem, p->yelem = y->elem, p->add = c->accumulate;
  p->wide = is_wide(p, x);
  cut(p, *products);
  return *products == 1 || p->N % ZK_COLUMNS == 0;
}

extern "C" bool zk_cuda_packed_is_rows(const ZkCall *c) {
  Rows p = {};
  unsigned products, most = c->in[!zk_cuda_packed_operand(c)].elem == ZK_BF16 ? ZK_CUDA_PACKED_MOST
                                                                              : ZK_CUDA_PACKED_MOST_F32;
  return find(c, &p, &products) && p.M <= most;
}

extern "C" size_t zk_cuda_packed_rows_scratch(const ZkCall *c) {
  Rows p = {};
  unsigned products, most = c->in[!zk_cuda_packed_operand(c)].elem == ZK_BF16 ? ZK_CUDA_PACKED_MOST
                                                                              : ZK_CUDA_PACKED_MOST_F32;
  if (!find(c, &p, &products) || p.parts == 1) return 0;
  return (size_t)p.parts * (p.M < most ? p.M : most) * products * p.N * sizeof(float);
}

template <int R> static void launch(ZkCuda *cu, const ZkCall *c, Rows p, unsigned products) {
  bool half = p.xelem == ZK_BF16;
  p.tiles = (unsigned)zk_ceil_of(p.M, 8 * R);
  int64_t total = (int64_t)products * p.pieces * p.tiles * p.parts;
  ZB_ASSERT(total < (int64_t)1 << 32 && (p.parts == 1 || total / p.parts <= ZK_CUDA_ARRIVALS));
  p.total = (unsigned)total;
  unsigned blocks = zk_blocks(cu, total);
  if (!half) {
    if (p.w.bits == 8) ZK_LAUNCH(cu, c, (packed_f32 < 8, R < 2 ? R : 2 >), blocks, THREADS, 0, p);
    else ZK_LAUNCH(cu, c, (packed_f32 < 4, R < 2 ? R : 2 >), blocks, THREADS, 0, p);
  } else if (p.w.bits == 8) ZK_LAUNCH(cu, c, (packed_half<CODES8, R>), blocks, THREADS, 0, p);
  else if (p.w.table) ZK_LAUNCH(cu, c, (packed_half<VALUES, R>), blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, c, (packed_half<CODES4, R>), blocks, THREADS, 0, p);
}

extern "C" void zk_cuda_packed_rows(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Rows p = {};
  unsigned products;
  bool found = find(c, &p, &products);
  ZB_ASSERT(found);
  p.w = packed_of(&c->in[zk_cuda_packed_operand(c)]);
  p.partial = (float *)c->scratch, p.arrived = cu->arrived;
  set_values(&p);
  if (p.M == 0) return;
  if (p.M <= 8) launch<1>(cu, c, p, products);
  else if (p.M <= 16) launch<2>(cu, c, p, products);
  else if (p.M <= 32) launch<4>(cu, c, p, products);
  else launch<8>(cu, c, p, products);
}
