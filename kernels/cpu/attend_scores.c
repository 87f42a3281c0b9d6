/* What makes a score of q.k besides its scale: a cap, a bias, and documents, which hide keys from queries.
 * Masks that are ranges of positions are left to the passes of attend_rows.c; only keys in such a range
 * are looked at here. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/math.h"

enum { NOBODY = -1, UNKNOWN = -2 }; /* keys and queries without a document: no two of them are equal */

static void load_ids(int32_t *to, const ZkView *v, int64_t off, int64_t stride, int64_t n, int32_t without) {
  const int32_t *x = (const int32_t *)v->data + off;
  for (int64_t i = 0; i < n; i++) to[i] = x[i * stride] < 0 ? without : x[i * stride];
}

/* ---- which keys ---------------------------------------------------------------------------------------- */
typedef struct {
  int32_t least, greatest;
} Range;

static Range range_of(const int32_t *ids, int64_t n) {
  Range r = {INT32_MAX, NOBODY};
  for (int64_t i = 0; i < n; i++) {
    if (ids[i] < 0) continue;
    r.least = ids[i] < r.least ? ids[i] : r.least;
    r.greatest = ids[i] > r.greatest ? ids[i] : r.greatest;
  }
  return r;
}

ZgSeen zk_attend_cut(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n, ZgSeen seen) {
  int32_t q[ZK_TILE_Q], k[ZK_TILE_K];
  Range all = {0, INT32_MAX};
  if (a->has[ZK_AIQ]) {
    load_ids(q, &a->v[ZK_AIQ], off[ZK_AIQ] + q0 * a->ss[ZK_AIQ], a->ss[ZK_AIQ], n, UNKNOWN);
    all = range_of(q, n);
  }
  int64_t nk = seen.to - seen.from, from = nk, to = 0;
  load_ids(k, &a->v[ZK_AIK], off[ZK_AIK] + seen.from * a->ss[ZK_AIK], a->ss[ZK_AIK], nk, NOBODY);
  for (int64_t at = 0; at < nk; at += ZK_GRAIN) {
    int64_t end = zk_min(nk, at + ZK_GRAIN);
    Range some = range_of(k + at, end - at);
    if (some.least > all.greatest || some.greatest < all.least) continue;
    from = zk_min(from, at);
    to = end;
  }
  return (ZgSeen){seen.from + from, seen.from + to};
}

/* ---- scores -------------------------------------------------------------------------------------------- */
/* x = cap tanh(scale x / cap), slope = 1 - tanh^2 unless NULL. */
ZK_SIMD static void capped(float *x, float *slope, float scale, float cap, int64_t n) {
  float inner = scale / cap;
#pragma omp simd
  for (int64_t k = 0; k < n; k++) {
    float t = zk_tanh(inner * x[k]);
    x[k] = cap * t;
    if (slope) slope[k] = 1 - t * t;
  }
}

ZK_SIMD static void scaled(float *x, float scale, int64_t n) {
#pragma omp simd
  for (int64_t k = 0; k < n; k++) x[k] *= scale;
}

/* -inf where the key's document is not `doc`, or where it has none if `any`. */
ZK_SIMD static void hidden(float *x, const int32_t *ids, int32_t doc, bool any, int64_t n) {
#pragma omp simd
  for (int64_t k = 0; k < n; k++) {
    bool sees = any ? ids[k] >= 0 : ids[k] == doc;
    x[k] = sees ? x[k] : -__builtin_inff();
  }
}

void zk_attend_dress(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t k0, float *score,
                     float *slope, int64_t rows, int64_t nk, int64_t ld) {
  int32_t ids[ZK_TILE_K], doc = 0;
  ZgMask mask = zk_attend_mask(a, off);
  float bias[ZK_TILE_K];
  if (a->has[ZK_AIK])
    load_ids(ids, &a->v[ZK_AIK], off[ZK_AIK] + k0 * a->ss[ZK_AIK], a->ss[ZK_AIK], nk, NOBODY);
  for (int64_t i = 0; i < rows; i++) {
    ZgSeen seen = zk_attend_span(mask, q0 + a->ahead + i, k0, nk);
    int64_t at = seen.from, n = seen.to - at;
    float *x = score + i * ld + at;
    if (n <= 0) continue;
    if (a->cap > 0) capped(x, slope ? slope + i * ld + at : NULL, a->scale, a->cap, n);
    else scaled(x, a->scale, n);
    if (a->has[ZK_AB]) {
      int64_t from = off[ZK_AB] + (q0 + i) * a->ss[ZK_AB] + (k0 + at) * a->hs[ZK_AB];
      zk_load(bias, &a->v[ZK_AB], from, a->hs[ZK_AB], n);
      zk_run_add(x, bias, n);
    }
    if (!a->has[ZK_AIK]) continue;
    if (a->has[ZK_AIQ]) load_ids(&doc, &a->v[ZK_AIQ], off[ZK_AIQ] + (q0 + i) * a->ss[ZK_AIQ], 1, 1, UNKNOWN);
    hidden(x, ids + at, doc, !a->has[ZK_AIQ], n);
  }
}

void zk_attend_slope(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t k0, float *ds,
                     const float *slope, int64_t rows, int64_t nk, int64_t ld) {
  ZgMask mask = zk_attend_mask(a, off);
  for (int64_t i = 0; i < rows; i++) {
    ZgSeen seen = zk_attend_span(mask, q0 + a->ahead + i, k0, nk);
    float *x = ds + i * ld;
    const float *y = slope + i * ld;
#pragma omp simd
    for (int64_t k = seen.from; k < seen.to; k++) x[k] *= y[k];
  }
}
