/* Products of bf16 matrices: how they are cut, and by which thread.
 *
 * A product is cut into rounds. In a round the threads first pack the round's part of b, and of a if its rows
 * do not run along k, into scratch that they share; then they take tiles of the result, each tile a block of
 * at most DEPTH in k at a time: a panel block of b stays in the second cache while strips of a pass by. What
 * is summed over several blocks is summed in f32: in the result if that is f32, else in scratch. Which
 * elements of k are in a block depends on the shape alone, and blocks are added in order: the number of
 * threads and the rounds do not change a bit.
 *
 * Example: x[2048, 384] . w[384, 1536]: one round; w is packed in 48 panels (1.2 MB), x is read in place. In
 * the gradient of w, which contracts 2048, x lies across k and is packed too. Logits [1024, 768] .
 * [768, 50257] take 19 rounds of 2656 columns. */
#include "kernels/cpu/bgemm.h"

#define DEPTH 2048            /* most k of a block */
#define ROUND_ELEMS (1 << 21) /* of an operand packed in a round: 4 MB */
#define ROUND_SUMS (1 << 20)  /* of sums in scratch: 4 MB */
#define ROUND_COLS 8192       /* with these two the smallest rounds are bounded too */
#define ROUND_DEPTH (16 * DEPTH)
#define TILE_ROWS 512 /* most rows of a tile */
#define GROUP 128     /* columns of b, */
#define CHUNK 256     /* and elements of k, that are packed at a time */

/* Products of a batch with fewer multiplications are not shared: each is one thread's. */
#define SMALL_WORK ((int64_t)1 << 26)

/* ---- how a product is cut -------------------------------------------------------------------- */

typedef struct {
  int64_t depth, depths;       /* of k in a block; blocks */
  int64_t rows, cols, rdepths; /* of a round: result rows and columns, blocks of k */
  bool in_place;               /* a's rows run along k */
  bool plain;                  /* the result is a matrix of rows */
  bool sums;                   /* f32 sums lie in scratch: the result cannot hold them */
  size_t a_bytes, b_bytes, c_bytes;
} Cut;

static int64_t stride(const ZkNest *n, int view) { return n->nloops ? n->loop[n->nloops - 1].s[view] : 1; }
static bool runs(const ZkNest *n, int view) {
  return n->nloops == 0 || (n->nloops == 1 && stride(n, view) == 1);
}

static int64_t row_stride(const ZkBgemm *g, int view) { return g->m.nloops ? stride(&g->m, view) : 0; }

/* A strip whose rows lie multiples of 4 KB apart would fall into one set of the nearest cache. */
static bool reads_in_place(const ZkBgemm *g) {
  return runs(&g->k, ZK_GA) && g->m.nloops <= 1 && stride(&g->m, ZK_GA) % 2048 != 0;
}
/* The last block, if it is not a whole number of 32: what lies beyond in memory must not be read. */
static bool last_is_ragged(const ZkBgemm *g) { return g->K % ZK_KUNIT != 0; }

/* `n` in parts of at most `most`, about equal, in multiples of `unit`. */
static int64_t even_part(int64_t n, int64_t most, int64_t unit) {
  most = zk_max(unit, most / unit * unit);
  return zk_up(zk_ceil_div(n, zk_ceil_div(n, most)), unit);
}

static Cut cut(const ZkBgemm *g) {
  Cut c = {.in_place = reads_in_place(g), .plain = runs(&g->n, ZK_GC) && g->m.nloops <= 1};
  c.depth = even_part(g->K, DEPTH, ZK_KUNIT);
  c.depths = zk_ceil_div(g->K, c.depth);
  c.sums = !c.plain || (g->v[ZK_GC].elem == ZK_BF16 && c.depths > 1);
  int64_t most = zk_min(ROUND_COLS, ROUND_ELEMS / (c.depths * c.depth));
  if (most < 512) most = 1024; /* of a long k only a part */
  c.cols = even_part(g->N, most, ZK_PANEL);
  c.rdepths = zk_min(c.depths, zk_min(ROUND_DEPTH / c.depth, zk_max(1, ROUND_ELEMS / (c.cols * c.depth))));
  int64_t rows = c.in_place ? g->M : ROUND_ELEMS / (c.rdepths * c.depth);
  if (c.sums) rows = zk_min(rows, ROUND_SUMS / c.cols);
  c.rows = even_part(g->M, rows, ZK_MUNIT);
  int64_t packed = c.in_place ? last_is_ragged(g) : c.rdepths; /* blocks of a that are */
  c.a_bytes = (size_t)(packed * c.depth * c.rows) * sizeof(uint16_t);
  c.b_bytes = (size_t)(c.rdepths * c.depth * c.cols) * sizeof(uint16_t);
  c.c_bytes = c.sums ? (size_t)(c.rows * c.cols) * sizeof(float) : 0;
  return c;
}

static size_t round_bytes(const Cut *c) { return zb_round_up(c->a_bytes + c->b_bytes + c->c_bytes, 64); }

/* Small products of a batch: each by one thread. */
static bool threads_share_batch(const ZkBgemm *g, int threads) {
  return threads > 1 && g->nbatch >= 2 * threads && g->M * g->N * g->K < SMALL_WORK;
}

/* ---- a round --------------------------------------------------------------------------------- */

typedef struct {
  const ZkBgemm *g;
  const ZkBgemmPath *path;
  Cut cut;
  ZkEnv env;
  int64_t off[3];                   /* of this product of the batch */
  int64_t m0, n0, k0, m, n, depths; /* k0: first block of the round */
  int64_t groups, chunks, b_units;  /* of packing */
  int64_t tm, tn, mtiles;           /* tiles */
  uint16_t *a, *b;
  float *sums;
} Round;

/* Offsets in `view` of indices [from, from + n) of the nest. */
static void locate(int64_t *off, const ZkNest *nest, int view, int64_t from, int64_t n) {
  if (nest->nloops <= 1) {
    int64_t s = nest->nloops ? nest->loop[0].s[view] : 0;
    for (int64_t i = 0; i < n; i++) off[i] = (from + i) * s;
    return;
  }
  ZkWalk w;
  zk_walk_seek(nest, &w, from);
  for (int64_t i = 0; i < n; i++, zk_walk_next(nest, &w)) off[i] = w.off[view];
}

static const uint16_t *operand(const Round *r, int view) {
  return (const uint16_t *)r->g->v[view].data + r->off[view];
}

static bool packs_a(const Round *r, int64_t block) { /* block of k, of the whole product */
  return !r->cut.in_place || (block == r->cut.depths - 1 && last_is_ragged(r->g));
}
static uint16_t *packed_a(const Round *r, int64_t block) {
  return r->a + (r->cut.in_place ? 0 : block - r->k0) * r->cut.depth * r->cut.rows;
}
static uint16_t *packed_b(const Round *r, int64_t block) {
  return r->b + (block - r->k0) * r->cut.depth * r->cut.cols;
}

/* Unit u: a chunk of k of a block, and a group of columns of b or of rows of a. */
static void pack_unit(const Round *r, int64_t u) {
  bool is_b = u < r->b_units;
  int64_t groups = is_b ? r->groups : zk_ceil_div(r->m, ZK_MUNIT);
  u -= is_b ? 0 : r->b_units;
  int64_t group = u % groups, chunk = u / groups % r->chunks, block = r->k0 + u / groups / r->chunks;
  if (!is_b && !packs_a(r, block)) return;
  int64_t width = is_b ? GROUP : ZK_MUNIT, x0 = group * width, k0 = chunk * CHUNK;
  int64_t depth = zk_min(r->cut.depth, r->g->K - block * r->cut.depth);
  int64_t x[GROUP], k[CHUNK];
  const ZkNest *nest = is_b ? &r->g->n : &r->g->m;
  int view = is_b ? ZK_GB : ZK_GA;
  ZkPiece p = {.data = operand(r, view), .x = x, .k = k, .nx = zk_min(width, (is_b ? r->n : r->m) - x0)};
  p.nk = zk_min(CHUNK, depth - k0);
  if (p.nk <= 0) return;
  p.x_runs = runs(nest, view);
  p.k_runs = runs(&r->g->k, view);
  locate(x, nest, view, (is_b ? r->n0 : r->m0) + x0, p.nx);
  locate(k, &r->g->k, view, block * r->cut.depth + k0, p.nk);
  if (is_b) {
    zk_bgemm_pack_b(&p, packed_b(r, block) + x0 * r->cut.depth + k0 * ZK_PANEL, r->cut.depth * ZK_PANEL);
  } else {
    int strip = r->path->strip;
    zk_bgemm_pack_a(&p, packed_a(r, block) + x0 * r->cut.depth + k0 * strip, strip, r->cut.depth * strip);
  }
}

static void pack_units(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  for (int64_t u = from; u < to; u++) pack_unit(arg, u);
}

static void pack(Round *r, bool a, bool b) {
  const Cut *c = &r->cut;
  bool last = r->k0 + r->depths == c->depths;
  if (c->in_place && !(last && last_is_ragged(r->g))) a = false;
  r->groups = zk_ceil_div(r->n, GROUP);
  r->chunks = zk_ceil_div(c->depth, CHUNK);
  r->b_units = b ? r->depths * r->chunks * r->groups : 0;
  int64_t a_units = a ? r->depths * r->chunks * zk_ceil_div(r->m, ZK_MUNIT) : 0;
  zk_for(&r->env, r->b_units + a_units, 2, pack_units, r);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Where the block's sums go: through scratch, or not. */
static void aim(const Round *r, int64_t i, int64_t j, int64_t block, ZkBlock *x) {
  const ZkBgemm *g = r->g;
  const Cut *c = &r->cut;
  bool first = block == 0, last = block == c->depths - 1;
  float *sums = c->sums ? r->sums + i * c->cols + j : NULL;
  if (c->sums && !(c->plain && last)) {
    x->c = sums;
    x->ldc = c->cols;
    x->c_elem = ZK_F32;
    x->add = !first;
    return;
  }
  x->ldc = row_stride(g, ZK_GC);
  x->c = zk_at(&g->v[ZK_GC], r->off[ZK_GC] + (r->m0 + i) * x->ldc + r->n0 + j);
  x->c_elem = (ZkElem)g->v[ZK_GC].elem;
  x->add = g->add || !(first || c->sums);
  x->more = first ? NULL : sums;
  x->ldmore = c->cols;
}

static void tile(const Round *r, int64_t i, int64_t j) {
  const ZkBgemm *g = r->g;
  const Cut *c = &r->cut;
  int64_t strip = r->path->strip, a_row = row_stride(g, ZK_GA);
  ZkBlock x = {.m = zk_min(r->tm, r->m - i), .n = zk_min(r->tn, r->n - j), .b_panel = c->depth * ZK_PANEL};
  for (int64_t block = r->k0; block < r->k0 + r->depths; block++) {
    aim(r, i, j, block, &x);
    x.k = zk_up(zk_min(c->depth, g->K - block * c->depth), ZK_KUNIT);
    x.b = packed_b(r, block) + j * c->depth;
    if (packs_a(r, block)) {
      x.a = packed_a(r, block) + i * c->depth;
      x.a_row = ZK_KUNIT;
      x.a_block = ZK_KUNIT * strip;
      x.a_strip = c->depth * strip;
    } else {
      x.a = operand(r, ZK_GA) + (r->m0 + i) * a_row + block * c->depth;
      x.a_row = a_row;
      x.a_block = ZK_KUNIT;
      x.a_strip = a_row * strip;
    }
    r->path->block(&x);
  }
}

static void tiles(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Round *r = arg;
  for (int64_t t = from; t < to; t++) tile(r, t % r->mtiles * r->tm, t / r->mtiles * r->tn);
}

/* Tiles whose part of b fits the cache, enough of them for the threads. Neighbours share that part. */
static void multiply(Round *r) {
  int threads = zk_threads(&r->env), strip = r->path->strip;
  int64_t ntiles = zk_ceil_div(r->n, r->path->cached / r->cut.depth), want = threads > 1 ? 6 * threads : 1;
  int64_t mtiles = zk_max(zk_ceil_div(r->m, TILE_ROWS), zk_ceil_div(want, ntiles));
  r->tm = zk_max(2 * strip, zk_up(zk_ceil_div(r->m, mtiles), strip));
  r->mtiles = zk_ceil_div(r->m, r->tm);
  ntiles = zk_max(ntiles, zk_ceil_div(want, r->mtiles));
  r->tn = zk_max(2 * ZK_PANEL, zk_up(zk_ceil_div(r->n, ntiles), ZK_PANEL));
  int64_t work = r->tm * r->tn * r->cut.depth * r->depths;
  zk_for(&r->env, r->mtiles * zk_ceil_div(r->n, r->tn), zk_max(1, (1 << 20) / work), tiles, r);
}

/* ---- sums in scratch to the result ----------------------------------------------------------- */

static void store_rows(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Round *r = arg;
  const ZkBgemm *g = r->g;
  const ZkView *c = &g->v[ZK_GC];
  int64_t off[CHUNK];
  for (int64_t j = 0; j < r->n; j += CHUNK) {
    int64_t n = zk_min(CHUNK, r->n - j);
    locate(off, &g->n, ZK_GC, r->n0 + j, n);
    ZkWalk w;
    zk_walk_seek(&g->m, &w, r->m0 + from);
    for (int64_t i = from; i < to; i++, zk_walk_next(&g->m, &w))
      for (int64_t x = 0, len; x < n; x += len) {
        for (len = 1; x + len < n && off[x + len] == off[x] + len;) len++;
        zk_store(c, r->off[ZK_GC] + w.off[ZK_GC] + off[x], 1, len, r->sums + i * r->cut.cols + j + x, g->add);
      }
  }
}

/* ---- a product ------------------------------------------------------------------------------- */

static void multiply_one(Round *r) {
  const Cut *c = &r->cut;
  const ZkBgemm *g = r->g;
  int64_t a_m = -1, a_k = -1, b_n = -1, b_k = -1; /* what is packed */
  for (r->n0 = 0; r->n0 < g->N; r->n0 += c->cols)
    for (r->m0 = 0; r->m0 < g->M; r->m0 += c->rows) {
      r->n = zk_min(c->cols, g->N - r->n0);
      r->m = zk_min(c->rows, g->M - r->m0);
      for (r->k0 = 0; r->k0 < c->depths; r->k0 += c->rdepths) {
        r->depths = zk_min(c->rdepths, c->depths - r->k0);
        pack(r, a_m != r->m0 || a_k != r->k0, b_n != r->n0 || b_k != r->k0);
        a_m = r->m0, a_k = b_k = r->k0, b_n = r->n0;
        multiply(r);
      }
      if (c->sums && !c->plain) zk_for(&r->env, r->m, zk_max(1, (1 << 14) / r->n), store_rows, r);
    }
}

typedef struct {
  const ZkBgemm *g;
  const ZkEnv *env; /* whose threads share a product */
  char *scratch;
  size_t per_thread;
} Batch;

static void multiply_some(void *arg, int64_t from, int64_t to, int part) {
  const Batch *b = arg;
  Round r = {.g = b->g, .path = zk_bgemm_path(), .cut = cut(b->g), .env = *b->env};
  char *mem = b->scratch + b->per_thread * (size_t)part;
  r.b = (uint16_t *)mem;
  r.a = (uint16_t *)(mem + r.cut.b_bytes);
  r.sums = (float *)(mem + r.cut.b_bytes + r.cut.a_bytes);
  for (int64_t i = from; i < to; i++) {
    ZkWalk w;
    zk_walk_seek(&b->g->batch, &w, i);
    memcpy(r.off, w.off, sizeof r.off);
    multiply_one(&r);
  }
}

void zk_bgemm(const ZkEnv *env, const ZkBgemm *g, void *scratch) {
  static const ZkEnv alone;
  ZB_ASSERT(g->K > 0 && g->v[ZK_GA].elem == ZK_BF16 && g->v[ZK_GB].elem == ZK_BF16);
  Cut c = cut(g);
  Batch b = {.g = g, .env = env, .scratch = scratch, .per_thread = round_bytes(&c)};
  if (threads_share_batch(g, zk_threads(env))) {
    b.env = &alone;
    zk_for(env, g->nbatch, zk_max(1, (1 << 20) / (g->M * g->N * g->K)), multiply_some, &b);
  } else {
    multiply_some(&b, 0, g->nbatch, 0);
  }
}

size_t zk_bgemm_scratch(const ZkBgemm *g, int threads) {
  Cut c = cut(g);
  return round_bytes(&c) * (size_t)(threads_share_batch(g, threads) ? threads : 1);
}

/* ---- plain matrices -------------------------------------------------------------------------- */

ZkBgemm zk_bgemm_plain(int64_t m, int64_t n, int64_t k, ZkPlain a, ZkPlain b, ZkPlain c, ZkElem c_elem,
                       bool add) {
  ZkBgemm g = {.nbatch = 1, .M = m, .N = n, .K = k, .add = add};
  g.v[ZK_GA] = (ZkView){.data = a.data, .elem = ZK_BF16};
  g.v[ZK_GB] = (ZkView){.data = b.data, .elem = ZK_BF16};
  g.v[ZK_GC] = (ZkView){.data = c.data, .elem = (uint8_t)c_elem};
  ZkLoop lm = {m, {a.trans ? 1 : a.ld, 0, c.trans ? 1 : c.ld}};
  ZkLoop ln = {n, {0, b.trans ? b.ld : 1, c.trans ? c.ld : 1}};
  ZkLoop lk = {k, {a.trans ? a.ld : 1, b.trans ? 1 : b.ld, 0}};
  g.m = (ZkNest){m > 1, 3, {lm}};
  g.n = (ZkNest){n > 1, 3, {ln}};
  g.k = (ZkNest){k > 1, 3, {lk}};
  g.batch.nviews = 3;
  return g;
}
