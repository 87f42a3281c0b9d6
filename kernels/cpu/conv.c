/* Convolutions as the matrix products of kernels/conv.h, whose one operand is gathered window by window:
 * never more than a panel of it.
 *
 * Panels lie as the views do: where positions are neighbours in memory rows of A are copied along them, where
 * features are, along these. Sums are f32, tiles of fixed size: the bits do not depend on the threads. */
#include "kernels/conv.h"
#include "kernels/cpu/cpu.h"

#define TILE_M 128
#define TILE_N 512
#define TILE_K 512

enum { A, B, C }; /* the views, in this order, of all nests */

/* Axes of one class: the fastest loop and those around it. */
typedef struct {
  ZkNest outer;
  ZkLoop inner;
  int64_t n;
} Span;

typedef struct {
  ZkView v[3];
  bool grad, add;
  int dims;
  ZkConvDim dim[ZG_CONV_DIMS];
  Span group, free, sum, cols; /* batched; m without positions; k without windows; n */
  int64_t windows, M, K;       /* of the phase */
  bool along_m, c_along_m;     /* panels of A, of C are rows of m */
  int64_t mtiles, ntiles, ktiles;
  float *w;      /* B of all groups in the phase, [group][k][n]; not of conv_grad */
  char *scratch; /* a Panels for each thread */
} Conv;

/* Positions that differ only along the last spatial axis, in one tile. */
typedef struct {
  int64_t a, c;            /* offsets of the first, without the spatial axes in A */
  int64_t at, n;           /* rows of the tile */
  int64_t first;           /* i along the last axis */
  int64_t p[ZG_CONV_DIMS]; /* step i along the others */
} Run;

typedef struct {
  int64_t at, n, lo, hi, off;
} Piece;

typedef struct {
  float a[TILE_M * TILE_K], c[TILE_M * TILE_N], b[TILE_K * TILE_N];
  Run run[TILE_M];
  Piece piece[TILE_M];
  int nruns;
} Panels;

/* ---- axes ---------------------------------------------------------------------------------------------- */
static bool is_named(const ZkCall *c, uint16_t axis) { return zk_has(c->ax, c->nax, axis); }

/* The axes that just these of the three have, ordered as `by` has them. */
static Span span_of(const Conv *p, const ZkCall *c, bool a, bool b, bool cc, int by) {
  const ZkView *views[3] = {&p->v[A], &p->v[B], &p->v[C]};
  Span s = {.outer = {.nviews = 3}};
  const ZkView *from = views[by];
  for (int i = 0; i < from->rank; i++) {
    uint16_t axis = from->axis[i];
    bool has[3];
    for (int k = 0; k < 3; k++) has[k] = zk_axis_find(views[k], axis) >= 0;
    if (!is_named(c, axis) && has[A] == a && has[B] == b && has[C] == cc)
      zk_nest_add(&s.outer, views, 3, axis, from->size[i]);
  }
  zk_nest_order(&s.outer, by);
  zk_nest_merge(&s.outer);
  s.n = zk_nest_count(&s.outer);
  s.inner = zk_nest_pop(&s.outer);
  return s;
}

/* Offsets of element `i` of the span; how many after it, and with it, lie along its inner loop. */
static int64_t seek(const Span *s, int64_t i, int64_t off[3]) {
  int64_t in = i % s->inner.n;
  for (int v = 0; v < 3; v++) off[v] = in * s->inner.s[v];
  if (s->outer.nloops == 0) return s->inner.n - in;
  ZkWalk w;
  zk_walk_seek(&s->outer, &w, i / s->inner.n);
  for (int v = 0; v < 3; v++) off[v] += w.off[v];
  return s->inner.n - in;
}

static Conv analyse(const ZkCall *c) {
  Conv p = {.grad = c->op == ZG_OP_CONV_GRAD, .add = c->accumulate};
  p.v[A] = c->in[0], p.v[B] = *zk_conv_b(c), p.v[C] = *zk_conv_c(c);
  p.dims = zk_conv_dims(c, p.dim);
  p.group = span_of(&p, c, true, true, true, B);
  p.free = span_of(&p, c, true, false, true, C);
  p.sum = span_of(&p, c, true, true, false, A);
  p.cols = span_of(&p, c, false, true, true, C);
  const ZkConvDim *last = &p.dim[p.dims - 1];
  p.along_m = p.sum.n == 1 || last->sa < p.sum.inner.s[A];
  p.c_along_m = p.cols.n == 1 || last->sc < p.cols.inner.s[C];
  return p;
}

static void set_phase(Conv *p, const ZkCall *c, int64_t phase) {
  zk_conv_phase(c, p->dim, phase);
  p->windows = 1, p->M = p->free.n;
  for (int d = 0; d < p->dims; d++) p->windows *= p->dim[d].windows, p->M *= p->dim[d].n;
  p->K = p->windows * p->sum.n;
  p->mtiles = zk_ceil_div(p->M, TILE_M);
  p->ntiles = zk_ceil_div(p->cols.n, TILE_N);
  p->ktiles = zk_ceil_div(p->K, TILE_K);
}

/* ---- panels -------------------------------------------------------------------------------------------- */
/* Window number `i` of the phase: what it shifts by along each axis; returns its offset in B. */
static int64_t window(const Conv *p, int64_t i, int64_t shift[ZG_CONV_DIMS]) {
  int64_t off = 0;
  for (int d = p->dims; d-- > 0;) {
    const ZkConvDim *q = &p->dim[d];
    int64_t j = i % q->windows;
    shift[d] = q->shift + j * q->kshift;
    off += (q->k + j * q->kstep) * q->sb;
    i /= q->windows;
  }
  return off;
}

/* Rows [from, from + n) of the phase, cut into runs. */
static void find_runs(const Conv *p, Panels *q, const int64_t group[3], int64_t from, int64_t n) {
  const ZkConvDim *last = &p->dim[p->dims - 1];
  q->nruns = 0;
  for (int64_t at = 0; at < n;) {
    Run *r = &q->run[q->nruns++];
    int64_t i = from + at, off[3];
    r->at = at, r->first = i % last->n, r->n = zk_min(last->n - r->first, n - at);
    i /= last->n;
    r->c = (last->first + r->first * last->jump) * last->sc;
    for (int d = p->dims - 1; d-- > 0;) {
      const ZkConvDim *e = &p->dim[d];
      int64_t k = i % e->n;
      r->p[d] = k * e->step;
      r->c += (e->first + k * e->jump) * e->sc;
      i /= e->n;
    }
    seek(&p->free, i, off);
    r->a = group[A] + off[A], r->c += group[C] + off[C];
    at += r->n;
  }
}

/* Where along the other axes the run is in a window shifted so: false if outside. */
static bool inside(const Conv *p, const Run *r, const int64_t *shift, int64_t *off) {
  *off = r->a;
  for (int d = 0; d < p->dims - 1; d++) {
    int64_t at = r->p[d] + shift[d];
    if (at < 0 || at >= p->dim[d].asize) return false;
    *off += at * p->dim[d].sa;
  }
  return true;
}

/* What a run is of one row of the panel: zeros, elements from lo to hi, zeros. */
static void find_pieces(const Conv *p, Panels *q, const int64_t *shift) {
  const ZkConvDim *last = &p->dim[p->dims - 1];
  for (int i = 0; i < q->nruns; i++) {
    const Run *r = &q->run[i];
    Piece *e = &q->piece[i];
    int64_t at = r->first * last->step + shift[p->dims - 1], step = last->step;
    int64_t lo = at >= 0 ? 0 : zk_min(r->n, zk_ceil_div(-at, step));
    int64_t hi = at >= last->asize ? 0 : zk_min(r->n, (last->asize - 1 - at) / step + 1);
    *e = (Piece){.at = r->at, .n = r->n};
    if (!inside(p, r, shift, &e->off) || lo >= hi) continue;
    e->lo = lo, e->hi = hi, e->off += (at + lo * step) * last->sa;
  }
}

/* Most pieces are short: zk_load, memcpy and the like would cost more than what they do. */
#define SHORT 64
ZK_INLINE void load_short(float *to, const ZkView *v, int64_t off, int64_t s, int64_t n) {
  const float *x = (const float *)v->data + off;
  if (v->elem != ZK_F32 || n > SHORT) zk_load(to, v, off, s, n);
  else if (s == 1)
    for (int64_t i = 0; i < n; i++) to[i] = x[i];
  else
    for (int64_t i = 0; i < n; i++) to[i] = x[i * s];
}
ZK_INLINE void store_short(const ZkView *v, int64_t off, int64_t s, int64_t n, const float *from) {
  float *y = (float *)v->data + off;
  if (v->elem != ZK_F32 || n > SHORT) zk_store(v, off, s, n, from, false);
  else if (s == 1)
    for (int64_t i = 0; i < n; i++) y[i] = from[i];
  else
    for (int64_t i = 0; i < n; i++) y[i * s] = from[i];
}

/* Columns [k0, k0 + k) of the rows of the tile, each as a row: a[k][m]. */
ZK_SIMD static void gather_along_m(const Conv *p, Panels *q, int64_t k0, int64_t k, int64_t m) {
  const ZkConvDim *last = &p->dim[p->dims - 1];
  int64_t by = last->step * last->sa;
  for (int64_t j = 0, len; j < k; j += len) {
    int64_t shift[ZG_CONV_DIMS], from = (k0 + j) % p->sum.n;
    window(p, (k0 + j) / p->sum.n, shift);
    find_pieces(p, q, shift);
    len = zk_min(p->sum.n - from, k - j);
    for (int64_t f = 0; f < len; f++) {
      int64_t sum[3];
      seek(&p->sum, from + f, sum);
      for (int i = 0; i < q->nruns; i++) {
        const Piece *e = &q->piece[i];
        float *to = q->a + (j + f) * m + e->at;
        for (int64_t z = 0; z < e->lo; z++) to[z] = 0;
        load_short(to + e->lo, &p->v[A], e->off + sum[A], by, e->hi - e->lo);
        for (int64_t z = e->hi; z < e->n; z++) to[z] = 0;
      }
    }
  }
}

/* `n` features from number `from` on, at a place in A. */
static void load_features(const Conv *p, float *to, int64_t off, int64_t from, int64_t n) {
  for (int64_t i = 0, len, sum[3]; i < n; i += len) {
    len = zk_min(seek(&p->sum, from + i, sum), n - i);
    zk_load(to + i, &p->v[A], off + sum[A], p->sum.inner.s[A], len);
  }
}

/* The same as a[m][k]. */
static void gather_along_k(const Conv *p, Panels *q, int64_t k0, int64_t k) {
  const ZkConvDim *last = &p->dim[p->dims - 1];
  for (int64_t j = 0, len; j < k; j += len) {
    int64_t shift[ZG_CONV_DIMS], from = (k0 + j) % p->sum.n, off;
    window(p, (k0 + j) / p->sum.n, shift);
    len = zk_min(p->sum.n - from, k - j);
    for (int i = 0; i < q->nruns; i++) {
      const Run *r = &q->run[i];
      bool in = inside(p, r, shift, &off);
      for (int64_t e = 0; e < r->n; e++) {
        float *to = q->a + (r->at + e) * k + j;
        int64_t at = (r->first + e) * last->step + shift[last - p->dim];
        if (in && at >= 0 && at < last->asize) load_features(p, to, off + at * last->sa, from, len);
        else zk_run_fill(to, 0, len);
      }
    }
  }
}

static void gather(const Conv *p, Panels *q, int64_t k0, int64_t k, int64_t m) {
  if (p->along_m) gather_along_m(p, q, k0, k, m);
  else gather_along_k(p, q, k0, k);
}

/* Columns [n0, n0 + n) of C at the rows of the tile of m, from or to q->c: c[n][m] or c[m][n]. */
ZK_SIMD static void move_c(const Conv *p, Panels *q, int64_t n0, int64_t n, int64_t m, bool load) {
  const ZkConvDim *last = &p->dim[p->dims - 1];
  int64_t along = last->jump * last->sc;
  for (int64_t j = 0, len; j < n; j += len) {
    int64_t off[3];
    len = zk_min(seek(&p->cols, n0 + j, off), n - j);
    for (int i = 0; i < q->nruns; i++) {
      const Run *r = &q->run[i];
      int64_t rows = p->c_along_m ? len : r->n, each = p->c_along_m ? r->n : len;
      int64_t between = p->c_along_m ? p->cols.inner.s[C] : along,
              by = p->c_along_m ? along : p->cols.inner.s[C];
      float *at = p->c_along_m ? q->c + j * m + r->at : q->c + r->at * n + j;
      for (int64_t e = 0; e < rows; e++, at += p->c_along_m ? m : n) {
        int64_t place = r->c + off[C] + e * between;
        if (load) load_short(at, &p->v[C], place, by, each);
        else store_short(&p->v[C], place, by, each, at);
      }
    }
  }
}

/* ---- conv and its transpose ---------------------------------------------------------------------------- */
/* Where in B row k of the phase is, without the column. */
static int64_t row_of_b(const Conv *p, int64_t k) {
  int64_t sum[3], shift[ZG_CONV_DIMS];
  seek(&p->sum, k % p->sum.n, sum);
  return sum[B] + window(p, k / p->sum.n, shift);
}

/* Some rows of w in a group: along each where its columns are neighbours in memory; else a few columns along
 * all rows, whose elements then are. */
#define PACK_K 64
#define PACK_N 16
static void pack(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Conv *p = arg;
  int64_t N = p->cols.n, blocks = zk_ceil_div(p->K, PACK_K);
  for (int64_t t = from; t < to; t++) {
    int64_t group[3], row[PACK_K], col[PACK_N][3], k0 = t % blocks * PACK_K, rows = zk_min(PACK_K, p->K - k0);
    float *w = p->w + (t / blocks * p->K + k0) * N;
    seek(&p->group, t / blocks, group);
    for (int64_t k = 0; k < rows; k++) row[k] = group[B] + row_of_b(p, k0 + k);
    if (p->cols.inner.s[B] == 1) {
      for (int64_t k = 0; k < rows; k++)
        for (int64_t n = 0, len; n < N; n += len) {
          len = seek(&p->cols, n, col[0]);
          zk_load(w + k * N + n, &p->v[B], row[k] + col[0][B], 1, len);
        }
      continue;
    }
    for (int64_t n0 = 0; n0 < N; n0 += PACK_N) {
      int64_t columns = zk_min(PACK_N, N - n0);
      for (int64_t n = 0; n < columns; n++) seek(&p->cols, n0 + n, col[n]);
      for (int64_t n = 0; n < columns; n++)
        for (int64_t k = 0; k < rows; k++) load_short(w + k * N + n0 + n, &p->v[B], row[k] + col[n][B], 1, 1);
    }
  }
}

static void run_tiles(void *arg, int64_t from, int64_t to, int part) {
  const Conv *p = arg;
  Panels *q = (Panels *)p->scratch + part;
  for (int64_t t = from; t < to; t++) {
    int64_t g = t / (p->mtiles * p->ntiles), n0 = t % p->ntiles * TILE_N,
            m0 = t / p->ntiles % p->mtiles * TILE_M;
    int64_t m = zk_min(TILE_M, p->M - m0), n = zk_min(TILE_N, p->cols.n - n0), ld = p->cols.n, group[3];
    seek(&p->group, g, group);
    find_runs(p, q, group, m0, m);
    if (p->K == 0) zk_run_fill(q->c, 0, m * n);
    for (int64_t k0 = 0; k0 < p->K; k0 += TILE_K) {
      int64_t k = zk_min(TILE_K, p->K - k0);
      const float *b = p->w + (g * p->K + k0) * ld + n0;
      float beta = k0 > 0;
      gather(p, q, k0, k, m);
      if (p->c_along_m)
        zk_sgemm(true, !p->along_m, n, m, k, 1, b, ld, q->a, p->along_m ? m : k, beta, q->c, m);
      else zk_sgemm(p->along_m, false, m, n, k, 1, q->a, p->along_m ? m : k, b, ld, beta, q->c, n);
    }
    move_c(p, q, n0, n, m, false);
  }
}

/* ---- conv_grad ----------------------------------------------------------------------------------------- */
static void store_w(const Conv *p, const Panels *q, const int64_t group[3], int64_t k0, int64_t k, int64_t n0,
                    int64_t n) {
  for (int64_t i = 0; i < k; i++) {
    int64_t off = group[B] + row_of_b(p, k0 + i);
    for (int64_t j = 0, len, col[3]; j < n; j += len) {
      len = zk_min(seek(&p->cols, n0 + j, col), n - j);
      zk_store(&p->v[B], off + col[B], p->cols.inner.s[B], len, q->b + i * n + j, p->add);
    }
  }
}

static void run_grad_tiles(void *arg, int64_t from, int64_t to, int part) {
  const Conv *p = arg;
  Panels *q = (Panels *)p->scratch + part;
  for (int64_t t = from; t < to; t++) {
    int64_t g = t / (p->ktiles * p->ntiles), n0 = t % p->ntiles * TILE_N,
            k0 = t / p->ntiles % p->ktiles * TILE_K;
    int64_t k = zk_min(TILE_K, p->K - k0), n = zk_min(TILE_N, p->cols.n - n0), group[3];
    seek(&p->group, g, group);
    if (p->M == 0) zk_run_fill(q->b, 0, k * n);
    for (int64_t m0 = 0; m0 < p->M; m0 += TILE_M) {
      int64_t m = zk_min(TILE_M, p->M - m0);
      find_runs(p, q, group, m0, m);
      gather(p, q, k0, k, m);
      move_c(p, q, n0, n, m, true);
      zk_sgemm(!p->along_m, p->c_along_m, k, n, m, 1, q->a, p->along_m ? m : k, q->c, p->c_along_m ? m : n,
               m0 > 0, q->b, n);
    }
    store_w(p, q, group, k0, k, n0, n);
  }
}

/* ---- the ops ------------------------------------------------------------------------------------------- */
static size_t panels_bytes(int threads) { return (sizeof(Panels) + 63) / 64 * 64 * (size_t)threads; }

size_t zk_scratch_conv(const ZkCall *c, int threads) {
  const ZkView *w = &c->in[1];
  size_t packed = c->op == ZG_OP_CONV_GRAD ? 0 : (size_t)zk_view_count(w) * sizeof(float);
  return panels_bytes(threads) + packed;
}

static void convolve(const ZkEnv *env, const ZkCall *c) {
  Conv p = analyse(c);
  p.scratch = c->scratch;
  p.w = (float *)((char *)c->scratch + panels_bytes(zk_threads(env)));
  int64_t phases = zk_conv_phases(c, p.dim);
  for (int64_t i = 0; i < phases; i++) {
    set_phase(&p, c, i);
    int64_t work = zk_max(1, zk_min(p.M, TILE_M) * zk_min(p.cols.n, TILE_N) * zk_max(p.K, 1));
    int64_t grain = zk_max(1, (1 << 16) / work);
    if (p.grad) {
      zk_for(env, p.group.n * p.ktiles * p.ntiles, 1, run_grad_tiles, &p);
      continue;
    }
    zk_for(env, p.group.n * zk_ceil_div(p.K, PACK_K), zk_max(1, 1024 / zk_max(1, p.cols.n)), pack, &p);
    zk_for(env, p.group.n * p.mtiles * p.ntiles, grain, run_tiles, &p);
  }
}

void zk_cpu_conv(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }
void zk_cpu_conv_transpose(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }
void zk_cpu_conv_grad(const ZkEnv *env, const ZkCall *c) { convolve(env, c); }
