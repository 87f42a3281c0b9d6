/* What attend and its gradients share: how heads, groups and tiles of them lie. */
#ifndef ZUG_KERNELS_ATTEND_H
#define ZUG_KERNELS_ATTEND_H

#include "kernels/attend.h"
#include "kernels/cpu/cpu.h"

#define ZK_TILE_Q 32  /* queries of a tile */
#define ZK_TILE_K 256 /* keys of a tile */
#define ZK_GRAIN 32   /* keys to which a tile's beginning is rounded down, where it is cut */

/* The views, and documents (of queries, of keys), bias, its gradient, sinks, prefix. */
enum {
  ZK_AQ,
  ZK_AK,
  ZK_AV,
  ZK_AO,
  ZK_AL,
  ZK_AG,
  ZK_ADQ,
  ZK_ADK,
  ZK_ADV,
  ZK_AIQ,
  ZK_AIK,
  ZK_AB,
  ZK_ADB,
  ZK_AS,
  ZK_AP,
  ZK_ATTEND_VIEWS
};

typedef struct {
  bool has[ZK_ATTEND_VIEWS];
  ZkView v[ZK_ATTEND_VIEWS]; /* without axes, where the call has none */
  ZkNest heads, groups;      /* axes of q (not of positions or features) that k has; that k lacks */
  int64_t nheads, ngroups;
  int64_t Q, K, H, W;             /* queries, keys, features of both, features of values */
  int64_t ss[ZK_ATTEND_VIEWS];    /* strides of positions (of bias and its gradient: of queries) */
  int64_t hs[ZK_ATTEND_VIEWS];    /* strides of features (of bias and its gradient: of keys) */
  int64_t width[ZK_ATTEND_VIEWS]; /* features */
  float scale, cap;               /* cap 0: none */
  bool causal;
  int64_t window;
  int64_t first, ahead; /* as ZkAttention's */
  int64_t qtiles, ktiles;
  bool grad;
  bool dressed; /* scores are more than scale q.k: zk_attend_dress makes them */
  bool half;    /* products in bf16 */
  bool on;      /* results go on from what they are */
  char *scratch;
  size_t per_thread;
} ZkAttend;

ZkAttend zk_attend_new(const ZkCall *c);
/* Offsets of a head and group in every view. */
void zk_attend_at(const ZkAttend *a, int64_t head, int64_t group, int64_t off[ZK_ATTEND_VIEWS]);
/* Rows [from, from + n) of a head in view k: in place if they lie along h in f32, else gathered into
 * buf. */
const float *zk_attend_rows(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, float *buf,
                            int *ld);
/* Columns [from, to) of the transpose [features, ldt] of a head in view k: products with it are a third
 * faster than with rows. `buf` is room for a tile of keys. */
void zk_attend_transpose(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t to, float *dst,
                         float *buf);
/* Stores rows of contiguous floats, or adds them if results go on. */
void zk_attend_store(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, const float *rows);
static inline ZgMask zk_attend_mask(const ZkAttend *a, const int64_t *off) {
  int64_t prefix = a->has[ZK_AP] ? ((const int32_t *)a->v[ZK_AP].data)[off[ZK_AP]] - a->first : 0;
  return (ZgMask){a->causal, a->window, prefix};
}
/* In all of this queries count from the first one here; masks, spans and ZkSoften from the first key's place. */
/* Keys that the mask leaves to any of `n` queries from q0 on; from a multiple of ZK_GRAIN. */
static inline ZgSeen zk_attend_reach(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n) {
  ZgMask m = zk_attend_mask(a, off);
  return (ZgSeen){zg_attend_seen(m, q0 + a->ahead, a->K).from / ZK_GRAIN * ZK_GRAIN,
                  zg_attend_seen(m, q0 + a->ahead + n - 1, a->K).to};
}
/* Tiles of keys lie on one grid and are cut to what the queries see: the same tiles whoever goes over
 * them. Of `seen`, what of it lies in the tile of key k0. */
static inline ZgSeen zk_attend_tile(ZgSeen seen, int64_t k0) {
  int64_t at = k0 / ZK_TILE_K * ZK_TILE_K;
  return (ZgSeen){zk_max(seen.from, at), zk_min(seen.to, at + ZK_TILE_K)};
}
/* Floats between rows of a transpose [features, keys]. Rows a power of two apart would compete for the same
 * cache sets. */
static inline int64_t zk_attend_ldt(int64_t keys) { return keys + 16; }
/* Floats between rows of a tile of nk keys. */
static inline int64_t zk_attend_ld(int64_t nk) { return (nk + 15) / 16 * 16; }

/* ---- attend_half.c: the same products in bf16 ---------------------------------------------------------- */
typedef struct ZkHalf ZkHalf; /* packed operands, of one thread */
typedef struct {
  int64_t K, H, W;
  bool grad;
} ZkHalfSize;
bool zk_half_fits(const ZkAttend *a);
size_t zk_half_bytes(ZkHalfSize size); /* the same on every machine, since plans count them */
ZkHalf *zk_half_new(char *mem, ZkHalfSize size);
/* Packs keys and values [from, to), from a multiple of 32; then queries [q0, q0 + n), and what goes with
 * them. */
void zk_half_keys(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t from, int64_t to);
void zk_half_queries(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n);
/* Of the packed queries, m of them, and keys [k0, k0 + nk), k0 a multiple of 32: q k', p v onto o (`add`;
 * else to it), g v'. */
void zk_half_scores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *score, int64_t ld);
void zk_half_output(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, const float *p, int64_t ld, float *o,
                    bool add);
void zk_half_dscores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dp, int64_t ld);
/* Takes p and ds; then dk += ds' q and dv += p' g (rows of the tile's first key on), dq += ds k (`add`; else
 * =). */
void zk_half_round(ZkHalf *h, int64_t m, int64_t nk, const float *p, const float *ds, int64_t ld);
void zk_half_dkeys(ZkHalf *h, int64_t m, int64_t nk, float *dk, float *dv);
void zk_half_dqueries(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dq, bool add);

/* ---- attend_scores.c: cap, bias and documents ---------------------------------------------------------- */
/* Cuts the keys `seen` of a tile to those of the documents of `n` queries from q0 on, as far as their
 * least and greatest ids tell; from < to no longer holds if none is left. */
ZgSeen zk_attend_cut(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n, ZgSeen seen);
/* q.k of queries q0.. with keys k0.. to scores, in place: cap tanh(scale q.k / cap) + bias, -inf where the
 * documents differ. `slope` (NULL: not wanted) becomes 1 - tanh^2 if there is a cap. */
void zk_attend_dress(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t k0, float *score,
                     float *slope, int64_t rows, int64_t nk, int64_t ld);
/* ds times `slope`, where zk_attend_dress wrote one. */
void zk_attend_slope(const ZkAttend *a, const int64_t *off, int64_t q0, int64_t k0, float *ds,
                     const float *slope, int64_t rows, int64_t nk, int64_t ld);

/* ---- attend_rows.c ------------------------------------------------------------------------------------- */
/* Of a tile of nk keys from k0 on, those that the mask leaves to the query at position q. */
static inline ZgSeen zk_attend_span(ZgMask mask, int64_t q, int64_t k0, int64_t nk) {
  ZgSeen s = zg_attend_seen(mask, q, k0 + nk);
  s.to = zk_max(0, s.to - k0);
  s.from = zk_min(zk_max(0, s.from - k0), s.to);
  return s;
}
typedef struct {
  ZgMask mask;
  bool first;        /* nothing is in peak, sum and o */
  int64_t q0, k0, W; /* q0: counted from the first key's place */
  float scale;
  float *peak, *sum, *o; /* of each query so far; o: rows of W */
} ZkSoften;
/* Scores [rows, nk] of queries q0.. with keys k0.. to exp(scale score - peak); rescales sum and o to the new
 * peak. A row that sees nothing has ZK_ATTEND_LOW and 0. */
void zk_attend_soften(const ZkSoften *s, float *score, int64_t rows, int64_t nk, int64_t ld);
typedef struct {
  ZgMask mask;
  int64_t q0, k0;
  float scale, dscale;
  const float *l, *d; /* of each query: log of the sum of exponentials, and sum_w g o */
} ZkScoreGrad;
/* p = exp(scale score - l) in place, dp = dscale p (dp - d). */
void zk_attend_score_grad(const ZkScoreGrad *s, float *score, float *dscore, int64_t rows, int64_t nk,
                          int64_t ld);
/* y[cols, rows] = transpose of x[rows, cols]. */
void zk_transpose(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols);

#endif
