/* Attention of a few queries with a block of keys. Each number is made by the same operations in the same
 * order whatever stands beside it: q.k in 16 sums, of every 16th feature, that are then added in pairs; p v
 * key by key. So it does not matter with which others a query is worked on, nor how many. */
#include "kernels/cpu/attend_block.h"
#include "kernels/cpu/math.h"

#define LANES ZK_BLOCK_LANES
#define CHUNK 32 /* keys whose values are used by all rows before the next */

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t Pairs __attribute__((vector_size(LANES * sizeof(float)), aligned(2), may_alias));

/* Loads a vector of f32; or of bf16 two, of every other feature. */
ZK_INLINE void load(Vector *to, const void *x, int64_t at, bool half) {
  if (half) {
    Bits both = *(const Pairs *)((const uint16_t *)x + at);
    to[0] = (Vector)(both << 16), to[1] = (Vector)(both & 0xffff0000u);
  } else {
    *to = *(const Vector *)((const float *)x + at);
  }
}

/* Fetches the line of what is soon read. */
ZK_INLINE void fetch(const void *x, int64_t at, bool half) {
  __builtin_prefetch((const char *)x + at * (half ? 2 : 4), 0, 2);
}

/* ---- every other feature ------------------------------------------------------------------------------- */
ZK_SIMD void zk_block_split(float *to, const uint16_t *x, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * LANES) {
    Vector y[2];
    load(y, x, i, true);
    *(Vector *)(to + i) = y[0], *(Vector *)(to + i + LANES) = y[1];
  }
}

void zk_block_part(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * LANES) {
    float was[2 * LANES];
    memcpy(was, x + i, sizeof was);
    for (int k = 0; k < 2 * LANES; k++) x[i + k % 2 * LANES + k / 2] = was[k];
  }
}

void zk_block_unpart(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * LANES) {
    float was[2 * LANES];
    memcpy(was, x + i, sizeof was);
    for (int k = 0; k < 2 * LANES; k++) x[i + k] = was[k % 2 * LANES + k / 2];
  }
}

/* ---- scores -------------------------------------------------------------------------------------------- */
/* x[i] and x[i + n] become one vector: parts of the first where bit n of the lane is 0, of the other where it
 * is 1, each with what lies n lanes away added. */
#define FOLD(x, i, n, low, high)                                                                             \
  x[i] = __builtin_shufflevector(x[i], x[i + n], low) + __builtin_shufflevector(x[i], x[i + n], high)
#define LOW8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31

/* x[0], lane i, becomes the sum of the lanes of x[i]. */
ZK_INLINE void fold(Vector *x) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) FOLD(x, i, 8, LOW8, HIGH8);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) FOLD(x, i, 4, LOW4, HIGH4);
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) FOLD(x, i, 2, LOW2, HIGH2);
  FOLD(x, 0, 1, LOW1, HIGH1);
}

/* Computes q.k of some rows by 16 / rows keys, for all of them at once; or key by key, as they lie in memory,
 * which is quicker where they must be read from there. */
ZK_INLINE void dots(const ZkBlock *b, int64_t row, int64_t key, const int rows, const bool half,
                    const bool once) {
  Vector sum[LANES], x[4][2], y[2];
  const int keys = LANES / rows, together = once ? 1 : keys, vectors = half ? 2 : 1;
  const float *q = b->q + row * b->H;
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) sum[i] = (Vector){0};
#pragma GCC unroll 16
  for (int first = 0; first < keys; first += together)
    for (int64_t h = 0; h < b->H; h += vectors * LANES) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++) load(&x[r][i], q + r * b->H, h + i * LANES, false);
#pragma GCC unroll 16
      for (int j = first; j < first + together; j++) {
        load(y, b->k[key + j], h, half);
        if (once && row == 0) fetch(b->k[key + j + ZK_BLOCK_AHEAD], h, half);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
          for (int i = 0; i < vectors; i++) sum[r * keys + j] += x[r][i] * y[i];
      }
    }
  fold(sum);
  for (int r = 0; r < rows; r++)
    memcpy(b->score + (row + r) * ZK_BLOCK_KEYS + key, (const float *)&sum[0] + r * keys,
           (size_t)keys * sizeof(float));
}

/* Says whether one of the rows sees one of the vector of keys. */
ZK_INLINE bool seen(const ZkBlock *b, int64_t row, int rows, int64_t key) {
  for (int r = 0; r < rows; r++)
    if (b->from[row + r] < key + LANES && b->to[row + r] > key) return true;
  return false;
}

ZK_INLINE void scores_of(const ZkBlock *b, int64_t row, int64_t key, const int rows, const bool half,
                         const bool once) {
  if (!seen(b, row, rows, key)) return;
  for (int j = 0; j < rows; j++) dots(b, row, key + j * (LANES / rows), rows, half, once);
}

ZK_INLINE void scores(const ZkBlock *b, const bool half, const bool once) {
  for (int64_t key = zk_block_down(b->first); key < b->end; key += LANES) {
    int64_t row = 0;
    for (; row + 4 <= b->rows; row += 4) scores_of(b, row, key, 4, half, once);
    if (row + 2 <= b->rows) scores_of(b, row, key, 2, half, once), row += 2;
    if (row < b->rows) scores_of(b, row, key, 1, half, once);
  }
}

ZK_SIMD void zk_block_scores(ZkBlock *b) {
  if (b->half_k) scores(b, true, true);
  else if (b->rows < ZK_BLOCK_FEW) scores(b, false, true);
  else scores(b, false, false);
}

ZK_SIMD void zk_block_cap(float *x, float scale, float cap, int64_t n) {
  float each = scale / cap;
  if (cap > 0)
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = cap * zk_tanh(each * x[i]);
  else
#pragma omp simd
    for (int64_t i = 0; i < n; i++) x[i] = scale * x[i];
}

/* ---- exponentials -------------------------------------------------------------------------------------- */
ZK_INLINE float peak_of(const float *x, int64_t from, int64_t to) {
  float m[LANES], top = -1e30f;
#pragma omp simd
  for (int j = 0; j < LANES; j++) m[j] = x[from + j];
  for (int64_t i = from + LANES; i < to; i += LANES)
#pragma omp simd
    for (int j = 0; j < LANES; j++) m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
  for (int j = 0; j < LANES; j++) top = m[j] > top ? m[j] : top;
  return top;
}

ZK_SIMD void zk_block_soften(ZkBlock *b) {
  for (int64_t row = 0; row < b->rows; row++) {
    int64_t from = b->from[row], to = b->to[row], first = zk_block_down(from), end = zk_block_up(to);
    float *x = b->score + row * ZK_BLOCK_KEYS, part[LANES] = {0}, sum = 0;
    b->sum[row] = 0;
    if (to <= from) continue;
    for (int64_t i = first; i < from; i++) x[i] = -__builtin_inff();
    for (int64_t i = to; i < end; i++) x[i] = -__builtin_inff();
    float peak = peak_of(x, first, end);
    for (int64_t i = first; i < end; i += LANES)
#pragma omp simd
      for (int j = 0; j < LANES; j++) {
        float e = zk_exp(x[i + j] - peak);
        x[i + j] = e;
        part[j] += e;
      }
    for (int j = 0; j < LANES; j++) sum += part[j];
    b->peak[row] = peak, b->sum[row] = sum;
  }
}

/* ---- values -------------------------------------------------------------------------------------------- */
/* o += p v of some rows and vectors of features, key by key. */
ZK_INLINE void add_values(const ZkBlock *b, int64_t row, int64_t w, int64_t from, int64_t to, const int rows,
                          const int n, const bool half) {
  Vector sum[LANES], y[2];
  const int vectors = half ? 2 : 1;
  float *o = b->o + row * b->W + w;
  const float *p = b->score + row * ZK_BLOCK_KEYS;
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) load(&sum[r * n + i], o + r * b->W, i * LANES, false);
  for (int64_t j = from; j < to; j++)
#pragma GCC unroll 8
    for (int i = 0; i < n; i += vectors) {
      load(y, b->v[j], w + i * LANES, half);
      if (row == 0) fetch(b->v[j + ZK_BLOCK_AHEAD], w + i * LANES, half);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int e = 0; e < vectors; e++) sum[r * n + i + e] += p[r * ZK_BLOCK_KEYS + j] * y[e];
    }
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) *(Vector *)(o + r * b->W + i * LANES) = sum[r * n + i];
}

/* Adds those of all features, for 1, 2 or 4 rows. */
ZK_INLINE void values_of(const ZkBlock *b, int64_t row, int64_t from, int64_t to, const int rows,
                         const bool half) {
  int64_t w = 0;
  if (from >= to) return;
  for (; rows < 4 && w + 8 * LANES <= b->W; w += 8 * LANES) add_values(b, row, w, from, to, rows, 8, half);
  for (; w + 4 * LANES <= b->W; w += 4 * LANES) add_values(b, row, w, from, to, rows, 4, half);
  for (; half && w < b->W; w += 2 * LANES) add_values(b, row, w, from, to, rows, 2, half);
  for (; !half && w < b->W; w += LANES) add_values(b, row, w, from, to, rows, 1, half);
}

/* Each is compiled once: expanded in all places that call it, it would take a minute. */
#define APART(name, rows, half)                                                                              \
  ZK_SIMD __attribute__((noinline)) static void name(const ZkBlock *b, int64_t row, int64_t from,            \
                                                     int64_t to) {                                           \
    values_of(b, row, from, to, rows, half);                                                                 \
  }
APART(values_of_1, 1, false)
APART(values_of_2, 2, false)
APART(values_of_1_half, 1, true)
APART(values_of_2_half, 2, true)

ZK_INLINE void one_row(const ZkBlock *b, int64_t row, int64_t from, int64_t to, const bool half) {
  if (half) values_of_1_half(b, row, from, to);
  else values_of_1(b, row, from, to);
}

ZK_INLINE void two_rows(const ZkBlock *b, int64_t row, int64_t from, int64_t to, const bool half) {
  if (half) values_of_2_half(b, row, from, to);
  else values_of_2(b, row, from, to);
}

/* Four rows go by twos where values are wide: then those of a key are read together, as they lie. */
ZK_INLINE void seen_by_all(const ZkBlock *b, int64_t row, int64_t from, int64_t to, const int rows,
                           const bool half) {
  if (rows == 1) one_row(b, row, from, to, half);
  else if (rows == 4 && b->W < 8 * LANES) values_of(b, row, from, to, 4, half);
  else
    for (int r = 0; r < rows; r += 2) two_rows(b, row + r, from, to, half);
}

/* Rows that see keys [from, to) of different ones go together over what all see. */
ZK_INLINE void rows_of(const ZkBlock *b, int64_t row, int64_t from, int64_t to, const int rows,
                       const bool half) {
  int64_t low = from, high = to;
  for (int r = 0; r < rows; r++) {
    low = zk_max(low, b->from[row + r]);
    high = zk_min(high, b->to[row + r]);
  }
  bool apart = low >= high;
  for (int r = 0; r < rows; r++)
    one_row(b, row + r, zk_max(from, b->from[row + r]), zk_min(to, apart ? b->to[row + r] : low), half);
  if (apart) return;
  seen_by_all(b, row, low, high, rows, half);
  for (int r = 0; r < rows; r++) one_row(b, row + r, high, zk_min(to, b->to[row + r]), half);
}

ZK_INLINE void values(const ZkBlock *b, const bool half) {
  for (int64_t from = b->first; from < b->end; from += CHUNK) {
    int64_t row = 0, to = zk_min(b->end, from + CHUNK);
    for (; row + 4 <= b->rows; row += 4) rows_of(b, row, from, to, 4, half);
    if (row + 2 <= b->rows) rows_of(b, row, from, to, 2, half), row += 2;
    if (row < b->rows) rows_of(b, row, from, to, 1, half);
  }
}

ZK_SIMD void zk_block_values(ZkBlock *b) {
  for (int64_t i = 0; i < b->rows * b->W; i++) b->o[i] = 0;
  if (b->half_v) values(b, true);
  else values(b, false);
}

ZK_SIMD void zk_block_join(float *peak, float *sum, float *o, float block_peak, float block_sum,
                           const float *block_o, int64_t n) {
  if (block_sum == 0) return;
  float top = block_peak > *peak ? block_peak : *peak;
  float old = zk_exp(*peak - top), new = zk_exp(block_peak - top);
  *sum = *sum * old + block_sum * new;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) o[i] = o[i] * old + block_o[i] * new;
  *peak = top;
}
