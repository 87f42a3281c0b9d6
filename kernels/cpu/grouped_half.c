/* Products of experts' rows and gradients of their weights in bf16, by the blocks of bgemm.h. A row's sums
 * are its own, so their bits do not depend on how many rows there are. */
#include "kernels/cpu/grouped.h"

#define DEPTH 2048 /* most k of a block */
#define GROUP 128  /* columns, */
#define CHUNK 256  /* and k, that are packed at a time */

static int64_t columns(int64_t n) { return zk_min(ZK_GROUP_COLUMNS, zk_up(n, ZK_PANEL)); }

/* ---- packing ------------------------------------------------------------------------------------------- */
/* Of nk of k and nx columns (b) or rows (a), at those offsets in v from `base` on, some at a time. */
typedef struct {
  const ZkView *v;
  int64_t base;
  const int64_t *x, *k;
  int64_t nx, nk;
  bool x_runs, k_runs;
} From;

static ZkPiece piece(const From *f, int64_t x0, int64_t nx, int64_t k0) {
  return (ZkPiece){(const uint16_t *)f->v->data + f->base,
                   f->x + x0,
                   f->k + k0,
                   zk_min(nx, f->nx - x0),
                   zk_min(CHUNK, f->nk - k0),
                   f->x_runs,
                   f->k_runs};
}
static void pack_b(uint16_t *to, const From *f) {
  int64_t panel = zk_up(f->nk, ZK_KUNIT) * ZK_PANEL;
  for (int64_t x0 = 0; x0 < f->nx; x0 += GROUP)
    for (int64_t k0 = 0; k0 < f->nk; k0 += CHUNK) {
      ZkPiece p = piece(f, x0, GROUP, k0);
      zk_bgemm_pack_b(&p, to + x0 / ZK_PANEL * panel + k0 * ZK_PANEL, panel);
    }
}
static void pack_a(uint16_t *to, const From *f) {
  int strip = zk_bgemm_path()->strip;
  int64_t size = zk_up(f->nk, ZK_KUNIT) * strip;
  for (int64_t x0 = 0; x0 < f->nx; x0 += ZK_MUNIT)
    for (int64_t k0 = 0; k0 < f->nk; k0 += CHUNK) {
      ZkPiece p = piece(f, x0, ZK_MUNIT, k0);
      zk_bgemm_pack_a(&p, to + x0 / strip * size + k0 * strip, strip, size);
    }
}

/* How a block sees what pack_a packed. */
static void see_packed(ZkBlock *b, const uint16_t *a) {
  int strip = zk_bgemm_path()->strip;
  b->a = a, b->a_row = ZK_KUNIT, b->a_block = ZK_KUNIT * strip, b->a_strip = b->k * strip;
}

/* The block, in parts whose columns of b stay in the second cache. */
static void multiply(ZkBlock b) {
  const ZkBgemmPath *path = zk_bgemm_path();
  int64_t n = b.n, most = zk_max(1, path->cached / zk_max(1, b.k) / ZK_PANEL) * ZK_PANEL;
  size_t size = b.c_elem == ZK_F32 ? sizeof(float) : sizeof(uint16_t);
  for (int64_t j = 0; j < n; j += most) {
    b.n = zk_min(most, n - j);
    path->block(&b);
    b.b += most / ZK_PANEL * b.b_panel;
    b.c = (char *)b.c + (size_t)most * size;
  }
}

/* ---- rows times weights -------------------------------------------------------------------------------- */
typedef struct {
  uint16_t *weight, *x;
  float *y;
} Panels;

static int64_t depth_of(int64_t k) { return zk_up(zk_ceil_div(k, zk_ceil_div(k, DEPTH)), ZK_KUNIT); }

static Panels panels(int64_t k, int64_t n, char *own) {
  Panels to = {.weight = (uint16_t *)own};
  to.x = to.weight + zk_up(k, ZK_KUNIT) * columns(n);
  to.y = (float *)(to.x + depth_of(k) * ZK_GROUP_ROWS);
  return to;
}
size_t zk_grouped_half_bytes(int64_t k, int64_t n) {
  Panels end = panels(zk_max(k, 1), n, NULL);
  return zb_round_up((size_t)(char *)(end.y + ZK_GROUP_ROWS * columns(n)), 64);
}

/* Beyond the last of k nothing may be read; rows a multiple of 4 KB apart would fall into one set of the
 * nearest cache. */
bool zk_grouped_half_reads(const ZkGroupedDot *p) {
  return p->k.step[0] == 1 && zk_rows_are_even(&p->xr, p->rows) && p->k.n % ZK_KUNIT == 0 &&
         p->xr.per_slot % 2048 != 0;
}

/* Blocks of k one behind the other. */
void zk_grouped_half_pack(const ZkGroupedDot *p, int64_t base, int64_t n0, int64_t n, char *own) {
  Panels to = panels(p->k.n, p->n.n, own);
  int64_t depth = depth_of(p->k.n);
  for (int64_t k0 = 0; k0 < p->k.n; k0 += depth) {
    From f = {&p->w,
              base,
              p->n.at[1] + n0,
              p->k.at[1] + k0,
              n,
              zk_min(depth, p->k.n - k0),
              p->n.step[1] == 1,
              p->k.step[1] == 1};
    pack_b(to.weight + k0 * zk_up(n, ZK_PANEL), &f);
  }
}

/* `b` sees k0.. of the rows. */
static void bring_rows(const ZkGroupedDot *p, ZkBlock *b, int64_t row, int64_t k0, int64_t k, uint16_t *own) {
  int strip = zk_bgemm_path()->strip;
  int64_t at[ZK_GROUP_ROWS];
  if (p->reads_x) {
    b->a = (const uint16_t *)p->x.data + zk_row_at(&p->xr, row) + p->k.at[0][k0];
    b->a_row = p->xr.per_slot, b->a_block = ZK_KUNIT, b->a_strip = strip * b->a_row;
    return;
  }
  for (int64_t i = 0; i < b->m; i++) at[i] = zk_row_at(&p->xr, row + i);
  From f = {&p->x, 0, at, p->k.at[0] + k0, b->m, k, false, p->k.step[0] == 1};
  pack_a(own, &f);
  see_packed(b, own);
}

void zk_grouped_half_multiply(const ZkGroupedDot *p, int64_t row, int64_t m, int64_t n0, int64_t n,
                              char *own) {
  Panels to = panels(p->k.n, p->n.n, own);
  int64_t depth = depth_of(p->k.n);
  bool there = p->writes_y && depth >= p->k.n;
  ZkBlock b = {.m = m, .n = n, .c = to.y, .ldc = n, .c_elem = ZK_F32};
  if (there) {
    b.c = zk_at(&p->y, zk_row_at(&p->yr, row) + p->n.at[0][n0]);
    b.ldc = p->yr.per_slot, b.c_elem = (ZkElem)p->y.elem;
  }
  for (int64_t k0 = 0; k0 < p->k.n; k0 += depth, b.add = true) {
    int64_t k = zk_min(depth, p->k.n - k0);
    b.k = zk_up(k, ZK_KUNIT);
    b.b = to.weight + k0 * zk_up(n, ZK_PANEL), b.b_panel = b.k * ZK_PANEL;
    bring_rows(p, &b, row, k0, k, to.x);
    multiply(b);
  }
  for (int64_t i = 0; i < m && !there; i++)
    zk_places_store(&p->y, zk_row_at(&p->yr, row + i), &p->n, 0, n0, n, to.y + i * n);
}

/* ---- the gradient of weights --------------------------------------------------------------------------- */
static int64_t packed_k(int64_t k) { return zk_up(zk_min(k, ZK_OUTER_K), ZK_MUNIT); }
static int64_t packed_n(int64_t n) { return zk_up(zk_min(n, ZK_OUTER_N), ZK_PANEL); }
size_t zk_outer_half_bytes(int64_t k, int64_t n) {
  return (size_t)(ZK_OUTER_DEPTH * (packed_k(k) + packed_n(n))) * sizeof(uint16_t);
}

void zk_outer_half_add(const ZkGroupedOuter *p, const ZkOuterTile *t, int64_t row, int64_t end, char *own) {
  uint16_t *x = (uint16_t *)own, *g = x + ZK_OUTER_DEPTH * packed_k(p->x.places.n);
  ZkBlock b = {.m = t->m, .n = t->n, .c = t->c, .ldc = t->ldc, .c_elem = ZK_F32, .add = t->add, .b = g};
  for (; row < end; row += ZK_OUTER_DEPTH, b.add = true) {
    int64_t xs[ZK_OUTER_DEPTH], gs[ZK_OUTER_DEPTH], rows = zk_min(ZK_OUTER_DEPTH, end - row);
    for (int64_t i = 0; i < rows; i++)
      xs[i] = zk_row_at(&p->x.rows, row + i), gs[i] = zk_row_at(&p->g.rows, row + i);
    From fx = {&p->x.view, 0, p->x.places.at[0] + t->k0, xs, t->m, rows, p->x.places.step[0] == 1, false};
    From fg = {&p->g.view, 0, p->g.places.at[0] + t->n0, gs, t->n, rows, p->g.places.step[0] == 1, false};
    b.k = zk_up(rows, ZK_KUNIT), b.b_panel = b.k * ZK_PANEL;
    pack_a(x, &fx);
    pack_b(g, &fg);
    see_packed(&b, x);
    multiply(b);
  }
}
