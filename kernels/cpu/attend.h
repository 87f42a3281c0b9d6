/* What attend and its gradient share: how heads, groups and tiles of them lie. */
#ifndef ZUG_KERNELS_ATTEND_H
#define ZUG_KERNELS_ATTEND_H

#include "kernels/cpu/cpu.h"

#define ZK_TILE_Q 32  /* queries of a tile */
#define ZK_TILE_K 256 /* keys of a tile */
#define ZK_ATTEND_VIEWS 9

enum { ZK_AQ, ZK_AK, ZK_AV, ZK_AO, ZK_AL, ZK_AG, ZK_ADQ, ZK_ADK, ZK_ADV };

typedef struct {
  int nviews;
  ZkView v[ZK_ATTEND_VIEWS];
  ZkNest heads, groups; /* axes of q (not s, h) that k has; that k lacks */
  int64_t nheads, ngroups, S, H;
  int64_t ss[ZK_ATTEND_VIEWS], hs[ZK_ATTEND_VIEWS]; /* strides of s and h */
  float scale;
  bool causal;
  int64_t qtiles, ktiles;
  bool half; /* products in bf16 */
  char *scratch;
  size_t per_thread;
} ZkAttend;

ZkAttend zk_attend_new(const ZkCall *c, const ZkView *const *views, int nviews);
/* Offsets of a head and group in every view. */
void zk_attend_at(const ZkAttend *a, int64_t head, int64_t group, int64_t off[ZK_ATTEND_VIEWS]);
/* Rows [from, from + n) of a head in view k: in place if they lie along h in f32, else gathered into
 * buf. */
const float *zk_attend_rows(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, float *buf,
                            int *ld);
/* Columns [from, to) of the transpose [H, ldt] of a head in view k: products with it are a third faster
 * than with rows. `buf` is room for a tile of keys. */
void zk_attend_transpose(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t to, float *dst,
                         float *buf);
/* Stores rows of H contiguous floats. */
void zk_attend_store(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, const float *rows);
/* Keys that any of the queries before `to` sees. */
static inline int64_t zk_attend_keys(const ZkAttend *a, int64_t to) {
  return a->causal ? zk_min(to, a->S) : a->S;
}
/* Floats between rows of a transpose [H, S]. Rows a power of two apart would compete for the same cache sets.
 * */
static inline int64_t zk_attend_ldt(int64_t S) { return S + 16; }
/* Floats between rows of a tile of nk keys. */
static inline int64_t zk_attend_ld(int64_t nk) { return (nk + 15) / 16 * 16; }

/* ---- attend_half.c: the same products in bf16 ---------------------------------------------------------- */
typedef struct ZkHalf ZkHalf; /* packed operands, of one thread */
bool zk_half_fits(const ZkAttend *a);
size_t zk_half_bytes(int64_t S, int64_t H, bool grad); /* the same on every machine, since plans count them */
ZkHalf *zk_half_new(char *mem, int64_t S, int64_t H, bool grad);
/* Packs keys and values [from, to), from a multiple of 32; then queries [q0, q0 + n), and what goes with
 * them. */
void zk_half_keys(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t from, int64_t to);
void zk_half_queries(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n);
/* Of the packed queries, m of them, and keys [k0, k0 + nk): q k', p v onto o (from k0 = 0: to), g v'. */
void zk_half_scores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *score, int64_t ld);
void zk_half_output(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, const float *p, int64_t ld, float *o);
void zk_half_dscores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dp, int64_t ld);
/* Takes p and ds; then dk += ds' q and dv += p' g (rows of the tile's first key on), dq += ds k (from k0 = 0:
 * =). */
void zk_half_round(ZkHalf *h, int64_t m, int64_t nk, const float *p, const float *ds, int64_t ld);
void zk_half_dkeys(ZkHalf *h, int64_t m, int64_t nk, float *dk, float *dv);
void zk_half_dqueries(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dq);

/* ---- attend_rows.c ------------------------------------------------------------------------------------- */
typedef struct {
  bool causal;
  int64_t q0, k0, H;
  float scale;
  float *peak, *sum, *o; /* of each query so far (nothing if k0 = 0); o: rows of H */
} ZkSoften;
/* Scores [rows, nk] of queries q0.. with keys k0.. to exp(scale score - peak); rescales sum and o to the new
 * peak. */
void zk_attend_soften(const ZkSoften *s, float *score, int64_t rows, int64_t nk, int64_t ld);
typedef struct {
  bool causal;
  int64_t q0, k0;
  float scale;
  const float *l, *d; /* of each query: log of the sum of exponentials, and sum_h g o */
} ZkScoreGrad;
/* p = exp(scale score - l) in place, dp = scale p (dp - d). */
void zk_attend_score_grad(const ZkScoreGrad *s, float *score, float *dscore, int64_t rows, int64_t nk,
                          int64_t ld);
/* y[cols, rows] = transpose of x[rows, cols]. */
void zk_transpose(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols);

#endif
