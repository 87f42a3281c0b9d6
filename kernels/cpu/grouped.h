/* What products of rows by expert and the gradient of their weights share. Private to kernels/cpu. */
#ifndef ZUG_KERNELS_GROUPED_H
#define ZUG_KERNELS_GROUPED_H

#include "kernels/cpu/bgemm.h"
#include "kernels/cpu/fgemm.h"

/* The rows of a view: axis `slot`, or `expert` and `slot` as one. */
typedef struct {
  int64_t slots, per_expert, per_slot;
} ZkRows;
ZkRows zk_rows_of(const ZkView *v, const ZkCall *c);
int64_t zk_row_count(const ZkView *v, const ZkCall *c);
static inline int64_t zk_row_at(const ZkRows *r, int64_t i) {
  return i / r->slots * r->per_expert + i % r->slots * r->per_slot;
}
/* Between any two neighbours the same. */
static inline bool zk_rows_are_even(const ZkRows *r, int64_t n) {
  return n <= r->slots || r->per_expert == r->slots * r->per_slot;
}

/* Offsets in two views along the axes `ax`, in the order of the first. */
typedef struct {
  int64_t n, *at[2];
  int64_t step[2]; /* between neighbours, or 0 where that is not the same everywhere */
} ZkPlaces;
/* Writes 2 n offsets to room; returns what is behind them. */
int64_t *zk_places(ZkPlaces *p, const ZkView *a, const ZkView *b, const uint16_t *ax, int nax, int64_t *room);
/* The room for those of k and of n. */
static inline size_t zk_places_bytes(int64_t k, int64_t n) {
  return zb_round_up((size_t)(2 * (k + n)) * sizeof(int64_t), 64);
}
/* n elements of a view at `base` and places[from..], into `to`, and back from x. */
void zk_places_load(float *to, const ZkView *v, int64_t base, const ZkPlaces *p, int which, int64_t from,
                    int64_t n);
void zk_places_store(const ZkView *v, int64_t base, const ZkPlaces *p, int which, int64_t from, int64_t n,
                     const float *x);

/* Rows of n columns, row i at base[i] and places[from..], into panels of `unit` columns (ZK_FSTRIP or
 * ZK_FPANEL), panel apart, with zeros where there are no more: row i of the first panel at to[i unit]. Called
 * with ZK_PACK_ROWS or so at a time, so that neither what is read nor what is written leaves the nearest
 * cache. */
void zk_pack_rows(float *to, int64_t panel, int unit, const ZkView *v, const int64_t *base, int64_t rows,
                  const ZkPlaces *p, int which, int64_t from, int64_t n);
#define ZK_PACK_ROWS 16
#define ZK_PACK_COLUMNS 512 /* at most */

/* Axes of `v` that are not among ax[0..nax). */
int zk_axes_but(const ZkView *v, const uint16_t *ax, int nax, uint16_t *out);

/* The first row of an expert, which is the end of the one before. */
static inline int64_t zk_first_row(const ZkView *ends, int64_t expert) {
  int64_t step = ends->rank ? ends->stride[0] : 1;
  return expert ? ((const int32_t *)ends->data)[(expert - 1) * step] : 0;
}

/* ---- a product of rows with weights: grouped.c --------------------------------------------------------- */
#define ZK_GROUP_COLUMNS 256          /* of a result at once, */
#define ZK_GROUP_ROWS (8 * ZK_FSTRIP) /* and rows; a multiple of every strip */

typedef struct {
  ZkView x, w, ends, y;
  ZkRows xr, yr;
  ZkPlaces k, n; /* in x and w; in y and w */
  int64_t experts, rows, per_expert, parts;
  bool reads_x, writes_y; /* where they lie */
  bool half;              /* by bf16 products */
  char *scratch;
  size_t per_thread;
} ZkGroupedDot;

/* The same of a batch-invariant call, and its scratch: grouped_invariant.c. */
void zk_grouped_invariant(const ZkEnv *env, const ZkCall *c);
size_t zk_grouped_invariant_scratch(const ZkCall *c, int threads);

/* ---- the gradient of weights: grouped_outer.c ---------------------------------------------------------- */
#define ZK_OUTER_K (32 * ZK_FSTRIP) /* of a gradient at once, */
#define ZK_OUTER_N (12 * ZK_FPANEL)
#define ZK_OUTER_DEPTH 256 /* and rows */

typedef struct {
  ZkView view;
  ZkRows rows;
  ZkPlaces places; /* of its columns, in it and in w */
  bool reads;      /* rows where they lie */
} ZkOuterSide;
typedef struct {
  ZkOuterSide x, g; /* w: columns of x by columns of g */
  ZkView ends, w;
  int64_t experts, rows, per_expert, ktiles, ntiles;
  bool add, half, sums_in_place;
  char *scratch;
  size_t per_thread;
} ZkGroupedOuter;

/* A tile of the gradient of one expert, summed in c: m columns of x from k0 on, n columns of g from n0 on. */
typedef struct {
  int64_t k0, n0, m, n, ldc;
  float *c;
  bool add;
} ZkOuterTile;

/* ---- grouped_half.c: both in bf16, by the blocks of bgemm.h -------------------------------------------- */
static inline bool zk_grouped_half_here(const ZkView *a, const ZkView *b) {
  return zk_bgemm_here() && a->elem == ZK_BF16 && b->elem == ZK_BF16;
}
/* Whether rows of x are read where they lie, and what a thread packs into, in bytes. */
bool zk_grouped_half_reads(const ZkGroupedDot *p);
size_t zk_grouped_half_bytes(int64_t k, int64_t n);
/* Columns [n0, n0 + n) of the weight at `base`; then m rows from `row` on by them. */
void zk_grouped_half_pack(const ZkGroupedDot *p, int64_t base, int64_t n0, int64_t n, char *own);
void zk_grouped_half_multiply(const ZkGroupedDot *p, int64_t row, int64_t m, int64_t n0, int64_t n,
                              char *own);
/* Adds rows [row, end) to a tile. Unlike sums of f32 products its bits depend on where calls cut the rows,
 * unless at multiples of ZK_OUTER_DEPTH of an expert's. */
size_t zk_outer_half_bytes(int64_t k, int64_t n);
void zk_outer_half_add(const ZkGroupedOuter *p, const ZkOuterTile *t, int64_t row, int64_t end, char *own);

#endif
