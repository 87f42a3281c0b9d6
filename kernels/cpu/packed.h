/* Products by packed weights (kernels/packed.h). Private to kernels/cpu.
 *
 *   packed_dot.c    a product of rows in 8 bits by weights of INTEGER codes, which is a sum of integers
 *   packed_rows.c   some rows by one panel, by the instructions that this CPU has
 *   packed_amx.c    the same of many rows, by AMX
 *   packed_half.c   products in bf16 by weights that are decoded, some at a time
 *   packed_view.c   packed views: from f32 and back
 *
 * Other products, those of other codes and those that sum over columns, such as gradients of what was
 * multiplied, are made by dot.c of decoded weights. */
#ifndef ZUG_KERNELS_CPU_PACKED_H
#define ZUG_KERNELS_CPU_PACKED_H

#include "kernels/cpu/bgemm.h"
#include "kernels/packed.h"

/* ---- packed_view.c ------------------------------------------------------------------------------------- */
/* Decodes elements k .. k + n of a panel's columns: to[i * ld + column]. */
void zk_packed_decode_panel(const ZkPacked *p, int64_t panel, int64_t k, int64_t n, float *to, int64_t ld);

/* ---- packed_rows.c ------------------------------------------------------------------------------------- */
#define ZK_PACKED_ROWS 8 /* most */

/* Rows, which zk_round_row made, by a panel: to[i][c] = sum over groups from .. to, in their order. */
typedef struct {
  const int8_t *code; /* [m][k] */
  const float *scale; /* [m][groups] */
  /* [m][groups]; where groups of weights have no zeros of their own it counts by the format's zero. */
  const int32_t *sum;
  int64_t m, k, groups; /* k, groups: from a row to the next */
} ZkRoundedRows;
void zk_packed_rows(const ZkPacked *w, int64_t panel, const ZkRoundedRows *x, int64_t from, int64_t to,
                    float sums[][ZK_COLUMNS]);

/* Rounds a row as zk_round_row does. */
void zk_packed_round(const float *x, int64_t k, int64_t group, int8_t *code, float *scale, int32_t *sum);

/* For tests: by instruction set 0 (any), 1 (AVX2), 2 (AVX-512 VNNI), 3 (that, and AMX). Returns whether this
 * CPU has it. */
bool zk_packed_rows_use(int set);
bool zk_packed_by_tiles(void); /* the set in use has AMX */

/* ---- packed_amx.c -------------------------------------------------------------------------------------- */
#define ZK_TILE_ROWS 16
bool zk_packed_tiles_here(void);
/* A thread's tiles, between which it multiplies. */
void zk_packed_tiles_begin(ZkElem e);
void zk_packed_tiles_end(void);
/* Returns the codes of a panel as bytes: where they lie, or in room for k * ZK_COLUMNS. */
const uint8_t *zk_packed_tiles_of(const ZkPacked *w, int64_t panel, uint8_t *room);
/* Of ZK_TILE_ROWS rows, or twice as many, and all chunks: chunk c is of groups bound[c] .. bound[c + 1].
 * Sums of empty ones are left as they are. */
typedef float ZkPackedSums[8][2 * ZK_TILE_ROWS][ZK_COLUMNS];
void zk_packed_tiles(const ZkPacked *w, int64_t panel, const uint8_t *codes, const ZkRoundedRows *x,
                     const int64_t *bound, int chunks, ZkPackedSums sums);

/* ---- packed_dot.c -------------------------------------------------------------------------------------- */
enum { ZK_PACKED_Y, ZK_PACKED_X }; /* views of nests */
#define ZK_PACKED_NO_EXPERT UINT16_MAX

/* Rows of x by panels of w into y. */
typedef struct {
  ZkView x, y;
  ZkPacked w;
  ZkNest batch, m, n, k; /* batch, m: views y, x; n: y; k: x */
  int64_t nbatch, M, N, groups;
  int chunks;
  int64_t bound[9]; /* groups where chunks begin, and end */
  bool add;
  uint16_t expert;      /* an axis of w that `panel` is of, not the call */
  int64_t first, panel; /* the first of the rows that `m` counts, and of w's panels */
  int8_t *code;         /* of all rows, batches one behind the other */
  float *scale;
  int32_t *sum;
  char *own; /* of each thread: a row, or a panel in bytes */
} ZkPackedProduct;
/* Fills a product whose x, y, m, chunks and expert are there. */
void zk_packed_product(ZkPackedProduct *p, const ZkView *w);
void zk_packed_multiply(const ZkEnv *env, ZkPackedProduct *p, void *scratch);
size_t zk_packed_multiply_scratch(const ZkPackedProduct *p, int threads);

/* Returns whether a call of dot is a sum of integers: its weights are packed, and summed along their
 * columns. */
bool zk_is_packed_dot(const ZkCall *call);
void zk_packed_dot(const ZkEnv *env, const ZkCall *call);
size_t zk_packed_dot_scratch(const ZkCall *call, int threads);

/* ---- packed_half.c ------------------------------------------------------------------------------------- */
/* Multiplies rows in bf16 by packed weights of any codes, over any of its axes, where this CPU multiplies
 * bf16; K > 0. False: it must be done otherwise. */
bool zk_packed_half(const ZkEnv *env, const ZkBgemm *g, void *scratch);
size_t zk_packed_half_scratch(const ZkBgemm *g, int threads); /* on any CPU */

#endif
