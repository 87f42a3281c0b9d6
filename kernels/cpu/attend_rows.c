/* Attention's passes over tiles of scores, and transposing into tiles. Rows of a tile lie `ld` floats apart,
 * ld a multiple of LANES; entries behind those that a query sees become 0, so that passes run over whole
 * vectors and the products that follow may take the tile as it is. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/math.h"

#define LANES 16 /* floats of the widest vectors; narrower ones take several */

static inline int64_t whole(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* The vector that holds entry n. */
static inline int64_t vector_of(int64_t n) { return n / LANES * LANES; }

/* max over entries [from, n), from < n; those around become -inf up to whole vectors. */
ZK_INLINE float row_max(float *x, int64_t from, int64_t n) {
  float m[LANES], top;
  int64_t at = vector_of(from);
  for (int64_t i = at; i < from; i++) x[i] = -__builtin_inff();
  for (int64_t i = n; i < whole(n); i++) x[i] = -__builtin_inff();
#pragma omp simd
  for (int j = 0; j < LANES; j++) m[j] = x[at + j];
  for (int64_t i = at + LANES; i < n; i += LANES)
#pragma omp simd
    for (int j = 0; j < LANES; j++) m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
  top = m[0];
  for (int j = 1; j < LANES; j++) top = m[j] > top ? m[j] : top;
  return top;
}

ZK_SIMD void zk_attend_soften(const ZkSoften *s, float *score, int64_t rows, int64_t nk, int64_t ld) {
  for (int64_t i = 0; i < rows; i++) {
    float *x = score + i * ld;
    ZgSeen seen = zk_attend_span(s->mask, s->q0 + i, s->k0, nk);
    int64_t n = seen.to, at = vector_of(seen.from);
    bool first = s->first, nothing = seen.from >= n;
    for (int64_t k = 0; k < (nothing ? nk : at); k++) x[k] = 0;
    if (nothing && first) s->peak[i] = (float)ZK_ATTEND_LOW, s->sum[i] = 0;
    if (nothing) continue;
    for (int64_t k = whole(n); k < nk; k++) x[k] = 0;
    float top = s->scale * row_max(x, seen.from, n), least = first ? (float)ZK_ATTEND_LOW : s->peak[i];
    float peak = top > least ? top : least;
    float part[LANES] = {0}, sum = 0;
    for (int64_t k = at; k < n; k += LANES)
#pragma omp simd
      for (int j = 0; j < LANES; j++) {
        float e = zk_exp(s->scale * x[k + j] - peak);
        x[k + j] = e;
        part[j] += e;
      }
    for (int j = 0; j < LANES; j++) sum += part[j];
    if (first) {
      s->sum[i] = sum;
    } else {
      float shrink = zk_exp(s->peak[i] - peak), *o = s->o + i * s->W;
      s->sum[i] = s->sum[i] * shrink + sum;
      if (shrink != 1)
#pragma omp simd
        for (int64_t w = 0; w < s->W; w++) o[w] *= shrink;
    }
    s->peak[i] = peak;
  }
}

ZK_SIMD void zk_attend_score_grad(const ZkScoreGrad *s, float *score, float *dscore, int64_t rows, int64_t nk,
                                  int64_t ld) {
  for (int64_t i = 0; i < rows; i++) {
    float *p = score + i * ld, *dp = dscore + i * ld, l = s->l[i], d = s->d[i];
    float scale = s->scale, dscale = s->dscale;
    ZgSeen seen = zk_attend_span(s->mask, s->q0 + i, s->k0, nk);
    int64_t n = seen.to, at = vector_of(seen.from);
    bool nothing = seen.from >= n;
    for (int64_t k = 0; k < (nothing ? nk : at); k++) p[k] = dp[k] = 0;
    if (nothing) continue;
    for (int64_t k = at; k < seen.from; k++) p[k] = -__builtin_inff(), dp[k] = 0;
    for (int64_t k = n; k < whole(n); k++) p[k] = -__builtin_inff(), dp[k] = 0;
    for (int64_t k = at; k < n; k += LANES)
#pragma omp simd
      for (int j = 0; j < LANES; j++) {
        float e = zk_exp(scale * p[k + j] - l);
        p[k + j] = e;
        dp[k + j] = dscale * e * (dp[k + j] - d);
      }
    for (int64_t k = whole(n); k < nk; k++) p[k] = dp[k] = 0;
  }
}

/* ---- transposing --------------------------------------------------------------------------------------- */
#define SIDE 8
typedef float Row __attribute__((vector_size(SIDE * sizeof(float))));

/* y[j][i] = x[i][j] for 8 x 8 entries: 1 x 1, 2 x 2 and 4 x 4 blocks are exchanged in turn. */
ZK_INLINE void transpose8(float *y, int64_t ldy, const float *x, int64_t ldx) {
  Row r[SIDE], t[SIDE];
  for (int i = 0; i < SIDE; i++) memcpy(&r[i], x + i * ldx, sizeof r[i]);
  for (int i = 0; i < SIDE; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int i = 0; i < SIDE; i += 4)
    for (int j = i; j < i + 2; j++) {
      r[j] = __builtin_shufflevector(t[j], t[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[j + 2] = __builtin_shufflevector(t[j], t[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int j = 0; j < SIDE / 2; j++) {
    t[j] = __builtin_shufflevector(r[j], r[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    t[j + 4] = __builtin_shufflevector(r[j], r[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < SIDE; i++) memcpy(y + i * ldy, &t[i], sizeof t[i]);
}

ZK_SIMD void zk_transpose(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols) {
  int64_t r8 = rows / SIDE * SIDE, c8 = cols / SIDE * SIDE;
  for (int64_t i = 0; i < r8; i += SIDE)
    for (int64_t j = 0; j < c8; j += SIDE) transpose8(y + j * ldy + i, ldy, x + i * ldx + j, ldx);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = i < r8 ? c8 : 0; j < cols; j++) y[j * ldy + i] = x[i * ldx + j];
}
