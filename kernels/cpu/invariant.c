/* Batch-invariant products: who computes which part, chunks of k, and their tree (invariant.h).
 *
 * A part is some rows by some columns. Its chunks are summed one after the other, in one of three ways, which
 * give the same bits:
 *
 *   across   few rows; weights whose columns lie side by side are read where they lie, sums stay in the
 *            nearest cache
 *   along    few rows; weights that lie along k are read where they lie and transposed in registers
 *   block    weights are packed into panels, some of k at a time, and all rows of the part go by
 *
 * Where there are too few parts for the threads, few rows have tasks of some chunks each, whose sums lie in
 * scratch until all are there: neighbouring chunks, so that each thread reads one run of memory.
 *
 * Example: x[1, 1024] . w[1024, 4096] in f32 on two threads: one part of 4,096 columns, hence eight tasks of
 * one chunk, each 128 rows of w of 16 KB; with w[1024, 1024] two tasks of four. x[128, 1024] . w: 32 parts of
 * 128 rows and 128 columns. */
#include "kernels/cpu/invariant.h"

#define ROWS 192                        /* most of a part, */
#define COLUMNS 128                     /* and columns of a block */
#define PIECE 256                       /* of k at once */
#define A_PIECE (PIECE + ZK_PANEL)      /* between its rows: not all in one set of the nearest cache */
#define LEVEL ((int64_t)ROWS * COLUMNS) /* sums of a part, at most */
#define TASKS 3                         /* for a thread, at least */
#define EVEN (2 << 20)                  /* bytes of weights of a task: no thread waits for it for long */
#define LONG 4096                       /* bytes of a row of weights that is read at a time, if it can be */

_Static_assert(ZK_FPANEL == ZK_PANEL, "panels of f32 and of bf16 have as many columns");

/* ---- chunks of k --------------------------------------------------------------------------------------- */

int zk_sum_chunks(const ZkView *v, const uint16_t *ax, int nax) {
  int64_t parts = 1;
  for (int i = 0; i < nax; i++) {
    int at = zk_axis_find(v, ax[i]);
    int64_t size = at < 0 ? 0 : v->size[at], whole = at < 0 ? 0 : v->whole[at];
    if (size > 0 && whole > size && whole % size == 0) parts *= whole / size;
  }
  return parts == 2 || parts == 4 || parts == 8 ? ZK_SUM_CHUNKS / (int)parts : ZK_SUM_CHUNKS;
}

int64_t zk_sum_chunk(int64_t k, int c, int chunks) {
  int64_t first = 0;
  if (c == chunks) return k;
  for (int half = chunks / 2; half; half /= 2) {
    int64_t left = k / 2;
    first += c & half ? left : 0;
    k = c & half ? k - left : left;
  }
  return first;
}
/* Returns a bound of the length of a chunk, in whole steps of any instruction. */
static int64_t longest(int64_t k, int chunks) { return zk_up(k / chunks + 1, ZK_KUNIT); }

/* ---- how a product is computed ------------------------------------------------------------------------- */

static bool runs(const ZkNest *n, int view) {
  int64_t step = 1;
  for (int i = n->nloops - 1; i >= 0; step *= n->loop[i--].n)
    if (n->loop[i].s[view] != step) return false;
  return true;
}

static bool is_half(const ZkBgemm *g) {
  return g->v[ZK_GA].elem == ZK_BF16 && g->v[ZK_GB].elem == ZK_BF16 && zk_bgemm_here();
}

typedef enum {
  BLOCK,  /* weights are packed */
  ACROSS, /* few rows read weights where they lie, side by side in n, */
  ALONG   /* or along k */
} Way;

static int64_t weight_bytes(const ZkBgemm *g) { return (int64_t)zk_plain_bytes((ZkElem)g->v[ZK_GB].elem); }

/* Returns how m rows are computed. */
static Way way_of(const ZkBgemm *g, int64_t m) {
  ZkElem w = (ZkElem)g->v[ZK_GB].elem;
  bool half = is_half(g);
  if (m > ZK_FEW || (w != ZK_F32 && w != ZK_BF16)) return BLOCK;
  bool along = runs(&g->k, ZK_GB) && g->n.nloops <= 1 && (half || zk_few_columns_here());
  if (runs(&g->n, ZK_GB) && g->k.nloops <= 1 && !(along && g->N < 16)) return ACROSS;
  return along ? ALONG : BLOCK;
}

#define MOST_COLUMNS 4096
#define ALONG_COLUMNS 128
#define FEW_SUMS (2 * MOST_COLUMNS) /* most of a part of few rows */
_Static_assert(ZK_SUM_CHUNKS *ZK_FEW *ALONG_COLUMNS <= COLUMNS * PIECE, "sums of chunks lie where b does");
_Static_assert(FEW_SUMS >= ZK_FEW * 512 && FEW_SUMS <= LEVEL, "few rows have room");

static int64_t columns_of(const ZkBgemm *g, int64_t m) {
  Way way = way_of(g, m);
  if (way == ACROSS) return m <= 2 ? MOST_COLUMNS : m <= 4 ? 1024 : 512;
  return way == ALONG ? ALONG_COLUMNS : m <= ZK_FEW ? ZK_PANEL : COLUMNS;
}

/* ---- a part -------------------------------------------------------------------------------------------- */

/* How a product is cut. */
typedef struct {
  const ZkBgemm *g;
  int chunks, span;                   /* span: chunks of a task */
  int64_t first;                      /* row of the views that is row 0 */
  int64_t rows, cols, mtiles, ntiles; /* rows, cols: of a part */
  const ZkEnv *env;
  int64_t tasks, grain; /* of the parallel loop */
  float *partial;
  char *scratch;
  size_t own;
} Job;

typedef struct {
  const ZkBgemm *g;
  const int64_t *off;
  int64_t first, m0, m, n0, n, ld; /* first: row of the views that is row 0; ld: of sums */
  int chunks;
  bool half;
  Way way;
  const float *partial; /* sums of `span` chunks each that are there already, */
  int64_t apart;        /* so far apart */
  int span;
  float *level[ZK_SUM_LEVELS];
  int64_t until, cold; /* across: until where weights are asked for; the first that were not */
  char *b, *a;         /* packed */
  int64_t row[ROWS], col[MOST_COLUMNS]; /* offsets in a, in b */
} Part;

/* Offsets of k in a and b. */
typedef struct {
  int64_t a[PIECE], b[PIECE];
} Places;

static size_t level_bytes(int64_t m) {
  return (size_t)zk_max(zk_min(m, ROWS) * COLUMNS, FEW_SUMS) * sizeof(float);
}
static size_t b_bytes(int64_t k, int chunks) {
  return (size_t)COLUMNS * (size_t)zk_max(PIECE * (int64_t)sizeof(float), longest(k, chunks) * 2);
}
static size_t a_bytes(int64_t m, int64_t k, int chunks) {
  int64_t rows = zk_up(zk_min(m, ROWS), ZK_MUNIT);
  return (size_t)rows * (size_t)zk_max(A_PIECE * (int64_t)sizeof(float), longest(k, chunks) * 2);
}
static size_t own_bytes(int64_t m, int64_t k, int chunks) {
  return zb_round_up(ZK_SUM_LEVELS * level_bytes(m) + b_bytes(k, chunks) + a_bytes(m, k, chunks), 64);
}

/* Offsets of indices [from, from + n) of the nest in view va, and in vb unless b is NULL. */
static void locate(int64_t *a, int64_t *b, const ZkNest *nest, int va, int vb, int64_t from, int64_t n) {
  ZkWalk w;
  if (nest->nloops <= 1) {
    int64_t sa = nest->nloops ? nest->loop[0].s[va] : 0, sb = nest->nloops ? nest->loop[0].s[vb] : 0;
    for (int64_t i = 0; i < n; i++) a[i] = (from + i) * sa;
    for (int64_t i = 0; b && i < n; i++) b[i] = (from + i) * sb;
    return;
  }
  zk_walk_seek(nest, &w, from);
  for (int64_t i = 0; i < n; i++, zk_walk_next(nest, &w)) {
    a[i] = w.off[va];
    if (b) b[i] = w.off[vb];
  }
}

static int64_t row_stride(const ZkBgemm *g) { return g->m.nloops ? g->m.loop[0].s[ZK_GA] : 0; }

/* Returns whether rows of a lie evenly and along k, and not so that a strip of them falls into one set of the
 * nearest cache. */
static bool reads_in_place(const ZkBgemm *g) {
  int64_t apart = 4096 / (int64_t)zk_plain_bytes((ZkElem)g->v[ZK_GA].elem);
  return runs(&g->k, ZK_GA) && g->m.nloops <= 1 && (g->M == 1 || row_stride(g) % apart != 0);
}

/* Loads n elements of a row of a, as f32. */
static void load_row(const Part *p, int64_t i, const int64_t *k, int64_t n, float *to) {
  const ZkNest *nest = &p->g->k;
  const ZkView *a = &p->g->v[ZK_GA];
  int64_t base = p->off[ZK_GA] + p->row[i];
  if (nest->nloops <= 1) zk_load(to, a, base + k[0], nest->nloops ? nest->loop[0].s[ZK_GA] : 1, n);
  else
    for (int64_t j = 0; j < n; j++) to[j] = zk_get(a, base + k[j]);
}

/* The same in bf16, and zeros behind them up to a multiple of ZK_KUNIT. */
static void copy_row(const Part *p, int64_t i, const int64_t *k, int64_t n, uint16_t *to) {
  const uint16_t *a = (const uint16_t *)p->g->v[ZK_GA].data + p->off[ZK_GA] + p->row[i];
  if (runs(&p->g->k, ZK_GA)) memcpy(to, a + k[0], (size_t)n * sizeof *to);
  else
    for (int64_t j = 0; j < n; j++) to[j] = a[k[j]];
  memset(to + n, 0, (size_t)(zk_up(n, ZK_KUNIT) - n) * sizeof *to);
}

/* ---- the sums of a chunk ------------------------------------------------------------------------------- */

/* Some of k of few rows, in f32 or in pairs of bf16. */
typedef struct {
  float x[ZK_FEW][PIECE] __attribute__((aligned(64)));
  uint16_t h[ZK_FEW][PIECE] __attribute__((aligned(64)));
} FewX;

/* Returns elements k0 .. k0 + *n of all rows, as many of them as can be had at once, and how far apart rows
 * lie, in words. */
static const void *few_x(const Part *p, FewX *to, int64_t k0, int64_t *n, int64_t *apart) {
  const ZkBgemm *g = p->g;
  const ZkView *a = &g->v[ZK_GA];
  int64_t at[PIECE], row = row_stride(g), first = p->off[ZK_GA] + p->row[0] + k0;
  if (g->m.nloops <= 1 && runs(&g->k, ZK_GA)) {
    if (a->elem == ZK_F32 && !p->half) return *apart = row, (const float *)a->data + first;
    bool whole = *n % ZK_KUNIT == 0 && row % 2 == 0 && ((uintptr_t)a->data + 2 * (uintptr_t)first) % 4 == 0;
    if (p->half && whole) return *apart = row / 2, (const uint16_t *)a->data + first;
  }
  *n = zk_min(*n, PIECE);
  locate(at, NULL, &g->k, ZK_GA, 0, k0, *n);
  for (int64_t i = 0; i < p->m; i++)
    if (p->half) copy_row(p, i, at, *n, to->h[i]);
    else load_row(p, i, at, *n, to->x[i]);
  *apart = p->half ? PIECE / 2 : PIECE;
  return p->half ? (const void *)to->h : to->x;
}

static bool by_tiles(void) { return zk_bgemm_path() == &zk_bgemm_amx; }

static void sum_across(const Part *p, int64_t k0, int64_t k1, float *sums) {
  const ZkBgemm *g = p->g;
  int64_t apart = g->k.nloops ? g->k.loop[0].s[ZK_GB] : 0;
  FewX own;
  ZkFewRows f = {.ldw = apart, .sum = sums, .ldsum = p->ld, .m = p->m, .n = p->n, .cold = k0 == p->cold};
  for (int64_t k = k0; k < k1; k += f.k, f.add = true, f.cold = false) {
    f.k = k1 - k;
    f.x = few_x(p, &own, k, &f.k, &f.ldx);
    f.w = zk_at(&g->v[ZK_GB], p->off[ZK_GB] + p->col[0] + k * apart), f.next = zk_max(0, p->until - k - f.k);
    if (p->half) (by_tiles() ? zk_few_rows_tiles : zk_few_rows_pairs)(&f);
    else zk_few_rows(&f, (ZkElem)g->v[ZK_GB].elem);
  }
}

/* Sums all chunks, which lie `apart` in the sums then: columns are gone through from end to end. */
static void sum_along(const Part *p, float *sums, int64_t apart) {
  const ZkBgemm *g = p->g;
  FewX own;
  ZkFewColumns f = {.ldw = g->n.nloops ? g->n.loop[0].s[ZK_GB] : 0, .ldsum = p->ld, .m = p->m, .whole = g->K};
  for (int64_t j = 0; j < p->n; j += 16) {
    f.n = zk_min(16, p->n - j), f.next = p->n0 + j + 32 <= g->N;
    for (int c = 0; c < p->chunks; c++) {
      int64_t end = zk_sum_chunk(g->K, c + 1, p->chunks);
      f.sum = sums + c * apart + j, f.add = false;
      for (int64_t k = zk_sum_chunk(g->K, c, p->chunks); k < end; k += f.k, f.add = true) {
        f.k = end - k, f.from = k;
        f.x = few_x(p, &own, k, &f.k, &f.ldx);
        f.w = zk_at(&g->v[ZK_GB], p->off[ZK_GB] + p->col[j] + k);
        if (p->half) (by_tiles() ? zk_few_columns_tiles : zk_few_columns_pairs)(&f);
        else zk_few_columns(&f, (ZkElem)g->v[ZK_GB].elem);
      }
    }
  }
}

static void sum_block(const Part *p, int64_t k0, int64_t k1, float *sums) {
  const ZkBgemm *g = p->g;
  const ZkView *a = &g->v[ZK_GA], *b = &g->v[ZK_GB];
  bool in_place = a->elem == ZK_F32 && reads_in_place(g);
  Places at;
  ZkFblock x = {.b_step = ZK_FPANEL, .c = sums, .ldc = p->ld, .m = p->m, .n = p->n, .a_step = 1};
  for (int64_t k = k0; k < k1; k += PIECE, x.add = true) {
    x.k = zk_min(PIECE, k1 - k);
    locate(at.a, at.b, &g->k, ZK_GA, ZK_GB, k, x.k);
    ZkWeights w = {b, p->off[ZK_GB], at.b, p->col, x.k, p->n, runs(&g->k, ZK_GB), runs(&g->n, ZK_GB)};
    x.b = (float *)p->b, x.b_panel = zk_up(x.k, ZK_SUM_UNIT) * ZK_FPANEL;
    zk_pack_weights(&w, (float *)p->b, x.b_panel);
    x.a = (float *)p->a, x.a_row = A_PIECE;
    if (in_place) x.a = (const float *)a->data + p->off[ZK_GA] + p->row[0] + at.a[0], x.a_row = row_stride(g);
    else
      for (int64_t i = 0; i < p->m; i++) load_row(p, i, at.a, x.k, (float *)p->a + i * A_PIECE);
    x.a_strip = ZK_FSTRIP * x.a_row;
    zk_fgemm_block(&x);
  }
}

/* All of a chunk at once: sums of two blocks would be added. */
static void sum_half(const Part *p, int64_t k0, int64_t k1, float *sums) {
  const ZkBgemm *g = p->g;
  const uint16_t *a = (const uint16_t *)g->v[ZK_GA].data + p->off[ZK_GA];
  int strip = zk_bgemm_path()->strip, step = zk_bgemm_path()->step;
  int64_t room = zk_up(k1 - k0, ZK_KUNIT);
  bool in_place = reads_in_place(g) && (k1 - k0) % step == 0;
  Places at;
  ZkBlock x = {.a = (uint16_t *)p->a, .b = (uint16_t *)p->b, .m = p->m, .n = p->n, .c = sums, .ldc = p->ld};
  x.k = zk_up(k1 - k0, step), x.b_panel = room * ZK_PANEL, x.c_elem = ZK_F32;
  x.a_row = ZK_KUNIT, x.a_block = ZK_KUNIT * strip, x.a_strip = room * strip;
  for (int64_t k = k0; k < k1; k += PIECE) {
    int64_t nk = zk_min(PIECE, k1 - k);
    locate(at.a, at.b, &g->k, ZK_GA, ZK_GB, k, nk);
    ZkPiece pb = {
        .data = (const uint16_t *)g->v[ZK_GB].data + p->off[ZK_GB], .x = p->col, .nx = p->n, .k = at.b};
    pb.nk = nk, pb.x_runs = runs(&g->n, ZK_GB), pb.k_runs = runs(&g->k, ZK_GB);
    zk_bgemm_pack_b(&pb, (uint16_t *)p->b + (k - k0) * ZK_PANEL, x.b_panel);
    ZkPiece pa = {.data = a, .x = p->row, .nx = p->m, .k = at.a, .nk = nk, .k_runs = runs(&g->k, ZK_GA)};
    if (!in_place) zk_bgemm_pack_a(&pa, (uint16_t *)p->a + (k - k0) * strip, strip, x.a_strip);
    else if (k == k0)
      x.a = a + p->row[0] + at.a[0], x.a_row = row_stride(g), x.a_block = ZK_KUNIT,
      x.a_strip = strip * x.a_row;
  }
  zk_bgemm_path()->block(&x);
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

ZK_SIMD static void add(float *sum, const float *x, const float *y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) sum[i] = x[i] + y[i];
}

/* Computes the sum of chunks [c, c + span). Returns where it is: in `to`, or where it lay already; NULL: they
 * are empty. */
static const float *sum_tree(Part *p, int c, int span, float *to) {
  if (span == (p->partial ? p->span : 1)) {
    int64_t k0 = zk_sum_chunk(p->g->K, c, p->chunks), k1 = zk_sum_chunk(p->g->K, c + span, p->chunks);
    if (k0 == k1) return NULL;
    if (p->partial) return p->partial + c / span * p->apart;
    if (p->way == BLOCK) (p->half ? sum_half : sum_block)(p, k0, k1, to);
    else sum_across(p, k0, k1, to);
    return to;
  }
  const float *left = sum_tree(p, c, span / 2, to);
  float *other = left == to ? p->level[span == 8 ? 3 : span / 2] : to;
  const float *right = sum_tree(p, c + span / 2, span / 2, other);
  if (!left || !right) return left ? left : right;
  for (int64_t i = 0; i < p->m; i++) add(to + i * p->ld, left + i * p->ld, right + i * p->ld, p->n);
  return to;
}

static void begin(Part *p, const Job *job, const int64_t *off, int thread) {
  const ZkBgemm *g = job->g;
  char *own = job->scratch + job->own * (size_t)thread;
  p->g = g, p->off = off, p->chunks = job->chunks, p->first = job->first, p->half = is_half(g),
  p->partial = NULL;
  for (int i = 0; i < ZK_SUM_LEVELS; i++, own += level_bytes(g->M)) p->level[i] = (float *)own;
  p->b = own, p->a = own + b_bytes(g->K, p->chunks);
}

static void aim(Part *p, int64_t m0, int64_t m, int64_t n0, int64_t n) {
  ZB_ASSERT(m <= ROWS && n <= (int64_t)(sizeof p->col / sizeof *p->col));
  p->m0 = m0, p->m = m, p->n0 = n0, p->n = n, p->ld = zk_up(n, ZK_PANEL);
  p->way = way_of(p->g, m);
  locate(p->row, NULL, &p->g->m, ZK_GA, 0, p->first + m0, m);
  locate(p->col, NULL, &p->g->n, ZK_GB, 0, n0, p->way == ACROSS ? 1 : n);
  p->until = p->g->K, p->cold = 0;
}

/* Stores the sums of a part. */
static void store(Part *p, const float *sums) {
  const ZkBgemm *g = p->g;
  bool side_by_side = runs(&g->n, ZK_GC);
  int64_t *col = p->col, base = p->off[ZK_GC];
  locate(p->row, NULL, &g->m, ZK_GC, 0, p->first + p->m0, p->m);
  locate(col, NULL, &g->n, ZK_GC, 0, p->n0, side_by_side ? 1 : p->n);
  for (int64_t j = 0, len; j < p->n; j += len) {
    for (len = side_by_side ? p->n : 1; j + len < p->n && col[j + len] == col[j] + len;) len++;
    for (int64_t i = 0; i < p->m; i++)
      zk_store(&g->v[ZK_GC], base + p->row[i] + col[j], 1, len, sums + i * p->ld + j, g->add);
  }
}

static void compute(Part *p) {
  if (p->way == ALONG && !p->partial) {
    p->apart = p->m * p->ld, p->span = 1;
    sum_along(p, (float *)p->b, p->apart);
    p->partial = (float *)p->b;
  }
  const float *sums = sum_tree(p, 0, p->chunks, p->level[0]);
  if (!sums) zk_run_fill(p->level[0], 0, p->m * p->ld);
  store(p, sums ? sums : p->level[0]);
}

/* ---- a product ----------------------------------------------------------------------------------------- */

/* Says which weights are asked for: a thread reads neighbouring chunks one after the other until its share of
 * the tasks ends. */
static void look_ahead(Part *p, const Job *job, int64_t task, int part) {
  int64_t each = job->chunks / job->span, i = task % each;
  int64_t first = zk_for_share(job->env, job->tasks, job->grain, part);
  int64_t end = zk_for_share(job->env, job->tasks, job->grain, part + 1);
  bool own = task >= first && task < end;
  int64_t last = own ? zk_min(end - task, each - i) : 1;
  p->until = zk_sum_chunk(p->g->K, (int)(i + last) * job->span, job->chunks);
  p->cold = own && task > first && i > 0 ? -1 : zk_sum_chunk(p->g->K, (int)i * job->span, job->chunks);
}

static void run_tasks(void *arg, int64_t from, int64_t to, int part) {
  const Job *job = arg;
  const ZkBgemm *g = job->g;
  int each = job->chunks / job->span;
  for (int64_t t = from; t < to; t++) {
    Part p;
    ZkWalk w;
    int64_t n = t / each % job->ntiles, m = t / each / job->ntiles % job->mtiles,
            b = t / each / job->ntiles / job->mtiles;
    int i = (int)(t % each);
    zk_walk_seek(&g->batch, &w, b);
    w.off[ZK_GB] += g->first_b;
    begin(&p, job, w.off, part);
    aim(&p, m * job->rows, zk_min(job->rows, g->M - m * job->rows), n * job->cols,
        zk_min(job->cols, g->N - n * job->cols));
    if (each == 1) {
      compute(&p);
      continue;
    }
    look_ahead(&p, job, t, part);
    float *to_partial = job->partial + ((b * each + i) * g->M + p.m0) * g->N + p.n0;
    const float *sums = sum_tree(&p, i * job->span, job->span, p.level[0]);
    for (int64_t r = 0; sums && r < p.m; r++)
      memcpy(to_partial + r * g->N, sums + r * p.ld, (size_t)p.n * sizeof *to_partial);
  }
}

/* Adds the sums of tasks that lie in scratch: of a row and TOGETHER columns. */
#define TOGETHER 512
static void run_combine(void *arg, int64_t from, int64_t to, int part) {
  const Job *job = arg;
  const ZkBgemm *g = job->g;
  int64_t tiles = zk_ceil_div(g->N, TOGETHER);
  for (int64_t t = from; t < to; t++) {
    Part p;
    ZkWalk w;
    int64_t n = t % tiles * TOGETHER, m = t / tiles % g->M, b = t / tiles / g->M;
    zk_walk_seek(&g->batch, &w, b);
    w.off[ZK_GB] += g->first_b;
    begin(&p, job, w.off, part);
    aim(&p, m, 1, n, zk_min(TOGETHER, g->N - n));
    p.span = job->span, p.apart = g->M * g->N;
    p.partial = job->partial + b * (job->chunks / job->span) * p.apart + m * g->N + n;
    compute(&p);
  }
}

static int64_t parts_of(const Job *j) { return j->g->nbatch * j->mtiles * j->ntiles; }
static void cut(Job *j, int64_t rows, int64_t cols) {
  j->rows = rows, j->cols = cols;
  j->mtiles = zk_ceil_div(j->g->M, rows), j->ntiles = zk_ceil_div(j->g->N, cols);
}

/* Cuts a product of few rows once more, if threads would have nothing to do, or one much more than others.
 * Neighbouring chunks are one run of memory; columns are not. */
static bool cut_few(Job *j, int threads) {
  int64_t bytes = weight_bytes(j->g), tasks = parts_of(j) * (j->chunks / j->span);
  int64_t task = j->cols * bytes * j->g->K / (j->chunks / j->span);
  if (threads == 1 || tasks >= TASKS * threads) return false;
  if (tasks >= threads && tasks % threads == 0 && task <= EVEN) return false;
  if (j->span > 1) j->span /= 2;
  else if (j->cols * bytes >= 2 * LONG || (tasks < threads && j->cols > 128)) cut(j, j->rows, j->cols / 2);
  else return false;
  return true;
}

/* Cuts the product so that all threads have something to do: that changes no bit. */
static Job plan(const ZkBgemm *g, int chunks, int threads) {
  Job j = {.g = g, .chunks = chunks, .span = chunks};
  int64_t want = threads > 1 ? TASKS * threads : 1;
  cut(&j, zk_min(zk_max(g->M, 1), ROWS), columns_of(g, g->M));
  if (way_of(g, g->M) == ACROSS) {
    while (cut_few(&j, threads)) continue;
    return j;
  }
  if (way_of(g, g->M) == ALONG) {
    while (parts_of(&j) < want && j.cols > 16) cut(&j, j.rows, j.cols / 2);
    return j;
  }
  while (parts_of(&j) < want && j.rows > 2 * ZK_FSTRIP) cut(&j, j.rows / 2, j.cols);
  while (parts_of(&j) < want && j.cols > ZK_PANEL) cut(&j, j.rows, j.cols / 2);
  return j;
}

static size_t partial_bytes(const ZkBgemm *g, int threads) {
  int64_t sums = zk_min(g->nbatch * g->N * zk_min(g->M, ZK_FEW), (int64_t)TASKS * threads * FEW_SUMS);
  return zb_round_up((size_t)(ZK_SUM_CHUNKS * sums) * sizeof(float), 64);
}

void zk_invariant_rows(const ZkEnv *env, const ZkBgemm *all, int chunks, int64_t first, int64_t rows,
                       void *scratch) {
  int threads = zk_threads(env);
  ZkBgemm g = *all;
  g.M = rows;
  Job j = plan(&g, chunks, threads);
  j.first = first, j.own = own_bytes(g.M, g.K, chunks);
  j.partial = scratch, j.scratch = (char *)scratch + partial_bytes(&g, threads);
  int64_t each = chunks / j.span, work = j.rows * j.cols * g.K / each;
  j.env = env, j.tasks = parts_of(&j) * each, j.grain = zk_max(1, (1 << 15) / zk_max(work, 1));
  zk_for(env, j.tasks, j.grain, run_tasks, &j);
  if (each > 1) zk_for(env, g.nbatch * g.M * zk_ceil_div(g.N, TOGETHER), 2, run_combine, &j);
}

void zk_invariant(const ZkEnv *env, const ZkBgemm *g, int chunks, void *scratch) {
  zk_invariant_rows(env, g, chunks, 0, g->M, scratch);
}

size_t zk_invariant_scratch(const ZkBgemm *g, int chunks, int threads) {
  return partial_bytes(g, threads) + (size_t)threads * own_bytes(g->M, g->K, chunks);
}
