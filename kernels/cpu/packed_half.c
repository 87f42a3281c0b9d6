/* Products of rows in bf16 by packed weights where a step's order is not asked for: some of the result's
 * columns at a time, the weights that make them are decoded as bf16, and bgemm.c multiplies. So no matrix is
 * ever unpacked as a whole.
 *
 * Example: x[m, 4096] . w[4096, 11008] decodes 4096 x SOME weights 22 times; its gradient g . w' decodes
 * 11008 x SOME of them 8 times. */
#include "kernels/cpu/bgemm.h"
#include "kernels/cpu/packed.h"

#define SOME 512  /* of the result's columns at a time: whole panels */
#define PIECE 256 /* elements of a panel's columns at once */

static int64_t stride_of(const ZkNest *n, int view) { return n->nloops ? n->loop[0].s[view] : 0; }

/* Returns whether the second operand is a packed matrix, of which one loop is k and one n. */
static bool fits(const ZkBgemm *g) {
  const ZkView *w = &g->v[ZK_GB];
  if (!zk_is_packed((ZkElem)w->elem) || g->v[ZK_GA].elem != ZK_BF16) return false;
  if (g->nbatch != 1 || g->n.nloops != 1 || g->k.nloops != 1) return false;
  ZkPacked p = zk_packed_of(w);
  int64_t n = stride_of(&g->n, ZK_GB), k = stride_of(&g->k, ZK_GB);
  return (n == p.k && k == 1 && g->N == p.columns && g->K == p.k) ||
         (n == 1 && k == p.k && g->N == p.k && g->K == p.columns);
}

/* ---- some weights in bf16: to[k][SOME] ----------------------------------------------------------------- */
typedef struct {
  ZkPacked w;
  uint16_t *to;
  int64_t n0, n; /* columns of the result */
  bool back;     /* they run along the weights' columns, which are summed over */
} Decode;

/* Panels of forward: each is 16 columns of the result. */
static void decode_forward(void *arg, int64_t from, int64_t end, int part) {
  (void)part;
  const Decode *d = arg;
  float x[PIECE][ZK_COLUMNS];
  for (int64_t j = from; j < end; j++)
    for (int64_t k = 0, some; k < d->w.k; k += some) {
      some = zk_min(PIECE, d->w.k - k);
      zk_packed_decode_panel(&d->w, d->n0 / ZK_COLUMNS + j, k, some, x[0], ZK_COLUMNS);
      for (int64_t i = 0; i < some; i++)
        zk_run_to_bf16(d->to + (k + i) * SOME + j * ZK_COLUMNS, x[i], ZK_COLUMNS);
    }
}

/* Panels of backward: each is 16 elements of the sum. */
static void decode_back(void *arg, int64_t from, int64_t end, int part) {
  (void)part;
  const Decode *d = arg;
  float x[PIECE][ZK_COLUMNS], row[PIECE];
  for (int64_t j = from; j < end; j++)
    for (int64_t n = 0, some; n < d->n; n += some) {
      some = zk_min(PIECE, d->n - n);
      zk_packed_decode_panel(&d->w, j, d->n0 + n, some, x[0], ZK_COLUMNS);
      for (int64_t c = 0; c < zk_min(ZK_COLUMNS, d->w.columns - j * ZK_COLUMNS); c++) {
        for (int64_t i = 0; i < some; i++) row[i] = x[i][c];
        zk_run_to_bf16(d->to + (j * ZK_COLUMNS + c) * SOME + n, row, some);
      }
    }
}

/* ---- the product --------------------------------------------------------------------------------------- */
/* Returns the product of n columns from n0 on, by weights in `b`. */
static ZkBgemm part_of(const ZkBgemm *g, int64_t n0, int64_t n, uint16_t *b) {
  ZkBgemm p = *g;
  p.v[ZK_GB] = (ZkView){.data = b, .elem = ZK_BF16};
  if (g->v[ZK_GC].data) p.v[ZK_GC].data = zk_at(&g->v[ZK_GC], n0 * stride_of(&g->n, ZK_GC));
  p.n.loop[0].n = p.N = n;
  p.n.loop[0].s[ZK_GB] = 1, p.k.loop[0].s[ZK_GB] = SOME;
  return p;
}

static size_t weights_bytes(const ZkBgemm *g) {
  return zb_round_up((size_t)(g->K * SOME + ZK_COLUMNS) * sizeof(uint16_t), 64);
}

bool zk_packed_half(const ZkEnv *env, const ZkBgemm *g, void *scratch) {
  if (!fits(g) || !zk_bgemm_here()) return false;
  Decode d = {.w = zk_packed_of(&g->v[ZK_GB]), .to = scratch, .back = stride_of(&g->n, ZK_GB) == 1};
  for (; d.n0 < g->N; d.n0 += d.n) {
    d.n = zk_min(SOME, g->N - d.n0);
    zk_for(env, zk_packed_panels(d.back ? d.w.columns : d.n), 1, d.back ? decode_back : decode_forward, &d);
    ZkBgemm part = part_of(g, d.n0, d.n, d.to);
    zk_bgemm(env, &part, (char *)scratch + weights_bytes(g));
  }
  return true;
}

size_t zk_packed_half_scratch(const ZkBgemm *g, int threads) {
  if (!fits(g)) return 0;
  ZkBgemm part = part_of(g, 0, zk_min(SOME, g->N), NULL), last = part_of(g, 0, g->N % SOME, NULL);
  size_t most = zk_bgemm_scratch(&part, threads), less = last.N ? zk_bgemm_scratch(&last, threads) : 0;
  return weights_bytes(g) + (most > less ? most : less);
}
