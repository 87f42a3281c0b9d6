/* dot: every product of two tensors, as matrix products C[m, n] (+)= A[m, k] B[k, n]: f32 by the BLAS, bf16
 * by bgemm.c where the CPU multiplies it; in steps of generation all by invariant.c, and packed weights of
 * integers by packed_dot.c.
 *
 * The axes fall into four classes: batch (both operands, result), M (a and c), N (b and c), K
 * (contracted). Each class is merged into as few loops as the strides allow. If each of M, N, K is one
 * loop and the operands are f32 with unit stride somewhere, the BLAS reads and writes them in place.
 * Otherwise panels of the operands are gathered into scratch as f32 and tiles of the result are
 * scattered from there: any layout, and bf16 without bgemm.c, in bounded memory.
 *
 * Example: x[batch, seq, embed] . wq[embed, head, hd]: M = batch*seq, K = embed, N = head*hd, all in
 * place. A weight gradient x[batch, seq, embed] . g[batch, seq, ffn] contracts batch*seq; if its result
 * lies as [ffn, embed], the fastest axis is M's, and the operands swap roles. */
#include <limits.h>

#include "kernels/cpu/invariant.h"
#include "kernels/cpu/packed.h"

#define TILE_M 256
#define TILE_N 256
#define TILE_K 512

enum { A, B, C }; /* the views, in this order, of all nests */

typedef struct {
  bool trans;
  int64_t ld;
} Matrix; /* how the BLAS sees an operand */

typedef struct {
  ZkView v[3];
  ZkNest batch, m, n, k;
  int64_t nbatch, M, N, K;
  bool add;
  bool direct;                    /* the BLAS works in place */
  Matrix mat[3];                  /* if direct */
  int64_t tm, tn, mtiles, ntiles; /* tasks: nbatch * mtiles * ntiles */
  char *scratch;                  /* a Panels for each thread, if not direct */
} Dot;

/* What a thread gathers into when it cannot work in place. */
typedef struct {
  float a[TILE_M * TILE_K], b[TILE_K * TILE_N], c[TILE_M * TILE_N];
  int64_t m[TILE_M], n[TILE_N], k[TILE_K]; /* offsets of indices in one view */
  int64_t cm[TILE_M], cn[TILE_N];
} Panels;

/* Loops over the axes of views[from] that are (shared) or are not in the other operand. */
static ZkNest class_nest(const ZkView *const views[3], int from, bool shared, const ZkCall *c,
                         bool contracted) {
  ZkNest n = {.nviews = 3};
  const ZkView *v = views[from], *other = views[from == A ? B : A];
  for (int i = 0; i < v->rank; i++)
    if ((zk_axis_find(other, v->axis[i]) >= 0) == shared && zk_has(c->ax, c->nax, v->axis[i]) == contracted)
      zk_nest_add(&n, views, 3, v->axis[i], v->size[i]);
  zk_nest_merge(&n);
  return n;
}

/* A matrix of rows x cols with strides sr, sc, as the BLAS can see it. */
static bool see(int64_t rows, int64_t cols, int64_t sr, int64_t sc, Matrix *m) {
  if ((cols == 1 || sc == 1) && (rows == 1 || sr >= cols)) {
    *m = (Matrix){false, rows == 1 ? cols : sr};
  } else if ((rows == 1 || sr == 1) && (cols == 1 || sc >= rows)) {
    *m = (Matrix){true, cols == 1 ? rows : sc};
  } else {
    return false;
  }
  return m->ld <= INT_MAX;
}

static int64_t stride_of(const ZkNest *n, int view) { return n->nloops ? n->loop[n->nloops - 1].s[view] : 1; }

static bool fits_in_place(Dot *d) {
  for (int i = 0; i < 3; i++)
    if (d->v[i].elem != ZK_F32) return false;
  if (d->m.nloops > 1 || d->n.nloops > 1 || d->k.nloops > 1) return false;
  if (zk_max(d->M, zk_max(d->N, d->K)) > INT_MAX) return false;
  return see(d->M, d->K, stride_of(&d->m, A), stride_of(&d->k, A), &d->mat[A]) &&
         see(d->K, d->N, stride_of(&d->k, B), stride_of(&d->n, B), &d->mat[B]) &&
         see(d->M, d->N, stride_of(&d->m, C), stride_of(&d->n, C), &d->mat[C]) && !d->mat[C].trans;
}

/* Tiles: those of the panels, or enough for the threads; the larger side is split, so that the smaller
 * operand is the one that each thread packs again. */
static void cut(Dot *d, int threads) {
  d->tm = d->direct ? zk_max(d->M, 1) : TILE_M;
  d->tn = d->direct ? zk_max(d->N, 1) : TILE_N;
  if (d->direct && threads > 1 && d->nbatch < 4 * threads && d->M * d->N * d->K > 1 << 15) {
    int64_t parts = zk_ceil_div(threads, d->nbatch);
    if (d->M >= d->N) d->tm = zk_ceil_div(zk_ceil_div(d->M, parts), 16) * 16;
    else d->tn = zk_ceil_div(zk_ceil_div(d->N, parts), 16) * 16;
  }
  d->mtiles = zk_ceil_div(d->M, d->tm);
  d->ntiles = zk_ceil_div(d->N, d->tn);
}

static Dot analyse(const ZkCall *c, int threads) {
  Dot d = {.add = c->accumulate, .v = {c->in[0], c->in[1], c->out[0]}};
  for (int i = 0; i < c->nax; i++)
    ZB_ASSERT(zk_axis_find(&d.v[A], c->ax[i]) >= 0 && zk_axis_find(&d.v[B], c->ax[i]) >= 0);
  for (int swapped = 0;; swapped++) {
    const ZkView *views[3] = {&d.v[A], &d.v[B], &d.v[C]};
    d.batch = class_nest(views, A, true, c, false);
    d.m = class_nest(views, A, false, c, false);
    d.n = class_nest(views, B, false, c, false);
    d.k = class_nest(views, B, true, c, true);
    zk_nest_order(&d.batch, C);
    zk_nest_order(&d.m, C);
    zk_nest_order(&d.n, C);
    zk_nest_order(&d.k, A);
    if (d.k.nloops > 1)
      zk_nest_order(&d.k, c->invariant && swapped ? A : B); /* or as in the second operand */
    bool n_is_fastest = d.m.nloops == 0 || (d.n.nloops > 0 && stride_of(&d.n, C) <= stride_of(&d.m, C));
    if (n_is_fastest || swapped) break;
    ZkView a = d.v[A];
    d.v[A] = d.v[B];
    d.v[B] = a;
  }
  d.nbatch = zk_nest_count(&d.batch);
  d.M = zk_nest_count(&d.m);
  d.N = zk_nest_count(&d.n);
  d.K = zk_nest_count(&d.k);
  d.direct = fits_in_place(&d);
  cut(&d, threads);
  return d;
}

/* ---- in place ------------------------------------------------------------------------------------------ */

static void run_direct(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Dot *d = arg;
  int64_t per = d->mtiles * d->ntiles;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&d->batch, &w, t / per);
    int64_t m = t % per / d->ntiles * d->tm, n = t % d->ntiles * d->tn;
    const Matrix *a = &d->mat[A], *b = &d->mat[B];
    zk_sgemm(a->trans, b->trans, zk_min(d->tm, d->M - m), zk_min(d->tn, d->N - n), d->K, 1,
             (float *)d->v[A].data + w.off[A] + m * (a->trans ? 1 : a->ld), a->ld,
             (float *)d->v[B].data + w.off[B] + n * (b->trans ? b->ld : 1), b->ld, d->add ? 1 : 0,
             (float *)d->v[C].data + w.off[C] + m * d->mat[C].ld + n, d->mat[C].ld);
  }
}

/* ---- by panels ----------------------------------------------------------------------------------------- */

/* Offsets in `view` of indices [from, from + n) of the nest. */
static void offsets(int64_t *off, const ZkNest *nest, int view, int64_t from, int64_t n) {
  ZkWalk w;
  zk_walk_seek(nest, &w, from);
  for (int64_t i = 0; i < n; i++, zk_walk_next(nest, &w)) off[i] = w.off[view];
}

/* Length of the contiguous run that starts at off[0]. */
static int64_t run_length(const int64_t *off, int64_t n) {
  int64_t i = 1;
  while (i < n && off[i] == off[0] + i) i++;
  return i;
}

static void gather_row(float *dst, const ZkView *v, int64_t base, const int64_t *off, int64_t n) {
  if (v->elem == ZK_F32 && run_length(off, n) == 1) { /* single elements: the calls below would cost more */
    const float *x = (const float *)v->data + base;
    for (int64_t i = 0; i < n; i++) dst[i] = x[off[i]];
    return;
  }
  for (int64_t i = 0, len; i < n; i += len) {
    len = run_length(off + i, n - i);
    zk_load(dst + i, v, base + off[i], 1, len);
  }
}

static bool is_even(const int64_t *at, int64_t n, int64_t step) {
  for (int64_t i = 1; i < n; i++)
    if (at[i] != at[0] + i * step) return false;
  return true;
}

/* Gathers whole panels of packed weights: dst[k][column]. False if these are none. */
static bool gather_panels(float *dst, const ZkView *v, int64_t base, const int64_t *column, int64_t columns,
                          const int64_t *k, int64_t n) {
  ZkPacked p = zk_packed_of(v);
  int64_t first = base + column[0] + k[0], at = first / p.k;
  bool whole = at % ZK_COLUMNS == 0 && columns % ZK_COLUMNS == 0 && first % p.k + n <= p.k;
  if (!whole || !is_even(column, columns, p.k) || !is_even(k, n, 1)) return false;
  for (int64_t j = 0; j < columns; j += ZK_COLUMNS)
    zk_packed_decode_panel(&p, (at + j) / ZK_COLUMNS, first % p.k, n, dst + j, columns);
  return true;
}

/* Gathers rows x cols into dst, or its transpose where the view runs along rows. True if transposed. */
static bool gather(float *dst, const ZkView *v, int64_t base, const int64_t *row, int64_t rows,
                   const int64_t *col, int64_t cols) {
  if (zk_is_packed((ZkElem)v->elem) && rows > 0 && cols > 0) {
    if (gather_panels(dst, v, base, col, cols, row, rows)) return false;
    if (gather_panels(dst, v, base, row, rows, col, cols)) return true;
  }
  bool trans = rows > 1 && cols > 1 && row[1] - row[0] == 1;
  if (trans)
    for (int64_t j = 0; j < cols; j++) gather_row(dst + j * rows, v, base + col[j], row, rows);
  else
    for (int64_t i = 0; i < rows; i++) gather_row(dst + i * cols, v, base + row[i], col, cols);
  return trans;
}

static void scatter(const Dot *d, Panels *p, int64_t base, int64_t m, int64_t n) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0, len; j < n; j += len) {
      len = run_length(p->cn + j, n - j);
      zk_store(&d->v[C], base + p->cm[i] + p->cn[j], 1, len, p->c + i * n + j, d->add);
    }
}

static void run_panels(void *arg, int64_t from, int64_t to, int part) {
  const Dot *d = arg;
  Panels *p = (Panels *)d->scratch + part;
  int64_t per = d->mtiles * d->ntiles;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&d->batch, &w, t / per);
    int64_t m0 = t % per / d->ntiles * d->tm, n0 = t % d->ntiles * d->tn;
    int64_t m = zk_min(d->tm, d->M - m0), n = zk_min(d->tn, d->N - n0);
    offsets(p->m, &d->m, A, m0, m);
    offsets(p->n, &d->n, B, n0, n);
    offsets(p->cm, &d->m, C, m0, m);
    offsets(p->cn, &d->n, C, n0, n);
    if (d->K == 0) zk_run_fill(p->c, 0, m * n);
    for (int64_t k0 = 0; k0 < d->K; k0 += TILE_K) {
      int64_t k = zk_min(TILE_K, d->K - k0);
      offsets(p->k, &d->k, A, k0, k);
      bool ta = gather(p->a, &d->v[A], w.off[A], p->m, m, p->k, k);
      offsets(p->k, &d->k, B, k0, k);
      bool tb = gather(p->b, &d->v[B], w.off[B], p->k, k, p->n, n);
      zk_sgemm(ta, tb, m, n, k, 1, p->a, ta ? m : k, p->b, tb ? k : n, k0 > 0 ? 1 : 0, p->c, n);
    }
    scatter(d, p, w.off[C], m, n);
  }
}

/* ---- bf16 operands: bgemm.c where the CPU multiplies them, else by panels ------------------------------ */

static bool is_bf16(const Dot *d) {
  return d->v[A].elem == ZK_BF16 && d->v[B].elem == ZK_BF16 && d->M * d->N * d->K * d->nbatch > 0;
}

static ZkBgemm bf16_product(const Dot *d) {
  return (ZkBgemm){
      {d->v[A], d->v[B], d->v[C]}, d->batch, d->m, d->n, d->k, d->nbatch, d->M, d->N, d->K, d->add, 0};
}

/* ---- batch-invariant products -------------------------------------------------------------------------- */

/* Returns whether no operand has an axis of its own: what sizes say does not count, since a step of one token
 * computes what a step of many does. */
static bool all_shared(const ZkCall *c) {
  for (int i = 0; i < c->out[0].rank; i++)
    for (int v = 0; v < 2; v++)
      if (zk_axis_find(&c->in[v], c->out[0].axis[i]) < 0) return false;
  return true;
}

static void invariant(const ZkEnv *env, const ZkCall *c, const Dot *d) {
  ZkBgemm g = bf16_product(d);
  if (zk_is_packed_dot(c)) zk_packed_dot(env, c);
  else if (all_shared(c)) zk_reduce_dot(env, c);
  else zk_invariant(env, &g, zk_sum_chunks(&c->in[1], c->ax, c->nax), c->scratch);
}
static size_t invariant_scratch(const ZkCall *c, const Dot *d, int threads) {
  ZkBgemm g = bf16_product(d);
  if (zk_is_packed_dot(c)) return zk_packed_dot_scratch(c, threads);
  return all_shared(c) ? zk_reduce_dot_scratch(c)
                       : zk_invariant_scratch(&g, zk_sum_chunks(&c->in[1], c->ax, c->nax), threads);
}

/* ---- the op -------------------------------------------------------------------------------------------- */

void zk_cpu_dot(const ZkEnv *env, const ZkCall *c) {
  Dot d = analyse(c, zk_threads(env));
  d.scratch = c->scratch;
  if (c->invariant) {
    invariant(env, c, &d);
    return;
  }
  if (d.M == 1 && d.N == 1) {
    zk_reduce_dot(env, c);
    return;
  }
  if (is_bf16(&d) && zk_bgemm_here()) {
    ZkBgemm g = bf16_product(&d);
    zk_bgemm(env, &g, c->scratch);
    return;
  }
  ZkBgemm half = bf16_product(&d);
  if (d.M * d.N * d.K > 0 && zk_packed_half(env, &half, c->scratch)) return;
  int64_t work = zk_max(1, d.M * d.N * d.K / (d.mtiles * d.ntiles));
  zk_for(env, d.nbatch * d.mtiles * d.ntiles, zk_max(1, (1 << 16) / work), d.direct ? run_direct : run_panels,
         &d);
}

size_t zk_scratch_dot(const ZkCall *c, int threads) {
  Dot d = analyse(c, threads);
  if (c->invariant) return invariant_scratch(c, &d, threads);
  if (d.M == 1 && d.N == 1) return zk_reduce_dot_scratch(c);
  size_t panels = d.direct ? 0 : (size_t)threads * sizeof(Panels);
  ZkBgemm g = bf16_product(&d); /* a plan may be made on another machine than it runs on */
  if (!is_bf16(&d)) return (size_t)zk_max((int64_t)panels, (int64_t)zk_packed_half_scratch(&g, threads));
  return (size_t)zk_max((int64_t)panels, (int64_t)zk_bgemm_scratch(&g, threads));
}
