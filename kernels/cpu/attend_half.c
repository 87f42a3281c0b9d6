/* Attention's products in bf16 with f32 sums, where the CPU has instructions for it (bgemm.h). Operands are
 * packed once for a head or a tile; probabilities and their gradients are rounded to bf16 before they are
 * multiplied, as kernels for GPUs do (Dao et al. 2022).
 *
 * *Panels* are the right operand of a product as zk_bgemm_pack_b packs it; k is what a product sums over. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/bgemm.h"

#define LDP (ZK_TILE_K + 32) /* of a tile in bf16: rows must not fall into one set of the cache */

enum { ROWS, COLS, KT, VT, K, V, Q, G, QP, GP, P, DS, TURNED, PARTS };

struct ZkHalf {
  const ZkBgemmPath *path;
  int64_t K32, H32, W32, H, W; /* ..32: in whole units of k and whole panels */
  int64_t *rows, *cols;        /* offsets of a tile's rows; 0, 1, 2.. */
  uint16_t *part[PARTS];       /* KT, VT: panels of keys with k = h; K, V: panels of h with k = keys; */
};                             /* Q, G: left operands; QP, GP: panels of h with k = queries; P, DS: tiles */
                               /* [queries, LDP]; TURNED: one of them as the left operand [keys, queries] */

static int64_t up32(int64_t n) { return zk_ceil_div(n, 32) * 32; }
static int64_t up_strips(int64_t n) { return zk_ceil_div(n, ZK_MUNIT) * ZK_MUNIT; }

/* Offsets of the parts behind a ZkHalf; the bytes of all. */
static size_t layout(ZkHalfSize z, size_t at[PARTS]) {
  int64_t K32 = up32(z.K), H32 = up32(z.H), W32 = up32(z.W), queries = up32(ZK_TILE_Q);
  bool grad = z.grad;
  const int64_t elems[PARTS] = {[ROWS] = 4 * ZK_TILE_K,
                                [COLS] = 4 * zk_max(zk_max(z.H, z.W), ZK_TILE_K),
                                [KT] = K32 * H32,
                                [VT] = grad ? K32 * W32 : 0,
                                [K] = grad ? K32 * H32 : 0,
                                [V] = grad ? 0 : K32 * W32,
                                [Q] = up_strips(ZK_TILE_Q) * H32,
                                [G] = grad ? up_strips(ZK_TILE_Q) * W32 : 0,
                                [QP] = grad ? queries * H32 : 0,
                                [GP] = grad ? queries * W32 : 0,
                                [P] = ZK_TILE_Q * LDP,
                                [DS] = grad ? ZK_TILE_Q * LDP : 0,
                                [TURNED] = grad ? up_strips(ZK_TILE_K) * queries : 0};
  size_t end = zb_round_up(sizeof(ZkHalf), 64);
  for (int i = 0; i < PARTS; i++) {
    at[i] = end;
    end += zb_round_up((size_t)elems[i] * sizeof(uint16_t), 64);
  }
  return end;
}

size_t zk_half_bytes(ZkHalfSize z) {
  size_t at[PARTS];
  return layout(z, at);
}

ZkHalf *zk_half_new(char *mem, ZkHalfSize z) {
  size_t at[PARTS];
  layout(z, at);
  ZkHalf *h = (ZkHalf *)(void *)mem;
  *h = (ZkHalf){zk_bgemm_path(), up32(z.K), up32(z.H), up32(z.W), z.H, z.W, NULL, NULL, {0}};
  for (int i = 0; i < PARTS; i++) h->part[i] = (uint16_t *)(void *)(mem + at[i]);
  h->rows = (int64_t *)(void *)(mem + at[ROWS]);
  h->cols = (int64_t *)(void *)(mem + at[COLS]);
  for (int64_t i = 0; i < zk_max(zk_max(z.H, z.W), ZK_TILE_K); i++) h->cols[i] = i;
  return h;
}

bool zk_half_fits(const ZkAttend *a) {
  static const int operands[] = {ZK_AQ, ZK_AK, ZK_AV, ZK_AG};
  if (!zk_bgemm_here()) return false;
  for (int i = 0; i < (a->grad ? 4 : 3); i++) {
    int k = operands[i];
    if (a->v[k].elem != ZK_BF16 || (a->hs[k] != 1 && a->width[k] != 1)) return false;
  }
  return true;
}

/* ---- packing ------------------------------------------------------------------------------------------- */

/* Rows [from, from + n) of view k as a piece: index x along rows and k along h, or the other way round. */
static ZkPiece piece(ZkHalf *h, const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n,
                     bool rows_are_x) {
  for (int64_t i = 0; i < n; i++) h->rows[i] = i * a->ss[k];
  ZkPiece p = {.data = (const uint16_t *)a->v[k].data + off + from * a->ss[k]};
  p.x = rows_are_x ? h->rows : h->cols;
  p.k = rows_are_x ? h->cols : h->rows;
  p.nx = rows_are_x ? n : a->width[k];
  p.nk = rows_are_x ? a->width[k] : n;
  p.x_runs = !rows_are_x;
  p.k_runs = rows_are_x;
  return p;
}

static void pack_keys(ZkHalf *h, const ZkAttend *a, int view, int64_t off, int64_t from, int64_t to,
                      int turned, int plain) {
  int64_t width = up32(a->width[view]);
  for (int64_t j = from, n; j < to; j += n) {
    n = zk_min(ZK_TILE_K, to - j);
    if (turned >= 0) {
      ZkPiece p = piece(h, a, view, off, j, n, true);
      zk_bgemm_pack_b(&p, h->part[turned] + j / ZK_PANEL * ZK_PANEL * width, ZK_PANEL * width);
    }
    if (plain >= 0) {
      ZkPiece p = piece(h, a, view, off, j, n, false);
      zk_bgemm_pack_b(&p, h->part[plain] + j * ZK_PANEL, ZK_PANEL * h->K32);
    }
  }
}

void zk_half_keys(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t from, int64_t to) {
  bool grad = a->grad;
  ZB_ASSERT(from % 32 == 0);
  pack_keys(h, a, ZK_AK, off[ZK_AK], from, to, KT, grad ? K : -1);
  pack_keys(h, a, ZK_AV, off[ZK_AV], from, to, grad ? VT : -1, grad ? -1 : V);
}

static void pack_queries(ZkHalf *h, const ZkAttend *a, int view, int64_t off, int64_t q0, int64_t n, int left,
                         int panels) {
  ZkPiece p = piece(h, a, view, off, q0, n, true);
  zk_bgemm_pack_a(&p, h->part[left], h->path->strip, h->path->strip * up32(a->width[view]));
  if (!a->grad) return;
  p = piece(h, a, view, off, q0, n, false);
  zk_bgemm_pack_b(&p, h->part[panels], ZK_PANEL * up32(ZK_TILE_Q));
}

void zk_half_queries(ZkHalf *h, const ZkAttend *a, const int64_t *off, int64_t q0, int64_t n) {
  pack_queries(h, a, ZK_AQ, off[ZK_AQ], q0, n, Q, QP);
  if (a->grad) pack_queries(h, a, ZK_AG, off[ZK_AG], q0, n, G, GP);
}

/* A tile of f32 [rows, nk], with zeros up to a whole unit of k. */
static void round_tile(uint16_t *to, const float *x, int64_t rows, int64_t nk, int64_t ld) {
  for (int64_t i = 0; i < rows; i++) {
    zk_run_to_bf16(to + i * LDP, x + i * ld, nk);
    for (int64_t k = nk; k < up32(nk); k++) to[i * LDP + k] = 0;
  }
}

/* ---- products ------------------------------------------------------------------------------------------ */

/* A packed left operand [m, depth] by panels of keys: scores. */
static void by_keys(const ZkHalf *h, int left, int panels, int64_t depth, int64_t m, int64_t k0, int64_t nk,
                    float *c, int64_t ld) {
  int strip = h->path->strip;
  ZkBlock b = {.a = h->part[left], .a_strip = strip * depth, .a_row = ZK_KUNIT, .a_block = ZK_KUNIT * strip};
  b.b = h->part[panels] + k0 * depth;
  b.b_panel = ZK_PANEL * depth;
  b.c = c, b.ldc = ld, b.c_elem = ZK_F32;
  b.m = m, b.n = nk, b.k = depth;
  h->path->block(&b);
}

/* A tile in bf16 [m, keys] by panels of features, of which there are `width`. */
static void by_rows(const ZkHalf *h, int tile, int panels, int64_t width, int64_t m, int64_t k0, int64_t nk,
                    float *c, bool add) {
  ZkBlock b = {.a = h->part[tile], .a_strip = h->path->strip * LDP, .a_row = LDP, .a_block = ZK_KUNIT};
  b.b = h->part[panels] + k0 * ZK_PANEL;
  b.b_panel = ZK_PANEL * h->K32;
  b.c = c, b.ldc = width, b.c_elem = ZK_F32, b.add = add;
  b.m = m, b.n = width, b.k = up32(nk);
  h->path->block(&b);
}

/* c[keys, width] += tile' [keys, queries] by panels of features with k = queries. */
static void by_queries(ZkHalf *h, int tile, int panels, int64_t width, int64_t queries, int64_t nk,
                       float *c) {
  int strip = h->path->strip;
  int64_t depth = up32(queries);
  for (int64_t i = 0; i < queries; i++) h->rows[i] = i * LDP;
  ZkPiece p = {.data = h->part[tile], .x = h->cols, .k = h->rows, .nx = nk, .nk = queries, .x_runs = true};
  zk_bgemm_pack_a(&p, h->part[TURNED], strip, strip * depth);
  ZkBlock b = {
      .a = h->part[TURNED], .a_strip = strip * depth, .a_row = ZK_KUNIT, .a_block = ZK_KUNIT * strip};
  b.b = h->part[panels];
  b.b_panel = ZK_PANEL * up32(ZK_TILE_Q);
  b.c = c, b.ldc = width, b.c_elem = ZK_F32, b.add = true;
  b.m = nk, b.n = width, b.k = depth;
  h->path->block(&b);
}

void zk_half_scores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *score, int64_t ld) {
  by_keys(h, Q, KT, h->H32, m, k0, nk, score, ld);
}

void zk_half_output(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, const float *p, int64_t ld, float *o,
                    bool add) {
  round_tile(h->part[P], p, m, nk, ld);
  by_rows(h, P, V, h->W, m, k0, nk, o, add);
}

void zk_half_dscores(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dp, int64_t ld) {
  by_keys(h, G, VT, h->W32, m, k0, nk, dp, ld);
}

void zk_half_round(ZkHalf *h, int64_t m, int64_t nk, const float *p, const float *ds, int64_t ld) {
  round_tile(h->part[P], p, m, nk, ld);
  round_tile(h->part[DS], ds, m, nk, ld);
}

void zk_half_dkeys(ZkHalf *h, int64_t m, int64_t nk, float *dk, float *dv) {
  by_queries(h, P, GP, h->W, m, nk, dv);
  by_queries(h, DS, QP, h->H, m, nk, dk);
}

void zk_half_dqueries(ZkHalf *h, int64_t m, int64_t k0, int64_t nk, float *dq, bool add) {
  by_rows(h, DS, K, h->H, m, k0, nk, dq, add);
}
