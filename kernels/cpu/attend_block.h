/* A block of keys and some queries: what attention of a step's tokens is made of. Private to kernels/cpu. */
#ifndef ZUG_KERNELS_ATTEND_BLOCK_H
#define ZUG_KERNELS_ATTEND_BLOCK_H

#include "kernels/cpu/cpu.h"

#define ZK_BLOCK_KEYS 256
#define ZK_BLOCK_ROWS 32
#define ZK_BLOCK_FEW 8    /* rows, of fewer of which keys are read where they lie */
#define ZK_BLOCK_AHEAD 16 /* keys that are fetched ahead of those in work */
#define ZK_BLOCK_LANES 16 /* features of keys and of values are whole vectors of so many floats */

/* Queries are rows; each sees keys [from, to) of the block, to <= from: none. The bits of a row depend on
 * itself and the keys that it sees, not on the rows beside it. */
typedef struct {
  int64_t rows;
  int64_t first, end;       /* keys of the block that some row sees */
  const int32_t *from, *to; /* of each row */
  int64_t H, W;             /* features of keys and of values */
  bool half_k, half_v;      /* they are bf16, parted; else f32 */
  /* Where each key and its value lie. Keys around `first` and `end`, up to whole vectors, are any; ZK_BLOCK_AHEAD
   * behind `end`, up to whole vectors, are what is read after them. */
  const void *k[ZK_BLOCK_KEYS + ZK_BLOCK_AHEAD], *v[ZK_BLOCK_KEYS + ZK_BLOCK_AHEAD];
  const float *q; /* rows of H */
  float *score;   /* rows of ZK_BLOCK_KEYS: q.k, then exp(score - peak) */
  float *o;       /* rows of W: sums of exp(score - peak) v */
  float peak[ZK_BLOCK_ROWS], sum[ZK_BLOCK_ROWS];
} ZkBlock;

static inline int64_t zk_block_down(int64_t key) { return key / ZK_BLOCK_LANES * ZK_BLOCK_LANES; }
static inline int64_t zk_block_up(int64_t key) { return zk_block_down(key + ZK_BLOCK_LANES - 1); }

/* Features of bf16 that are whole pairs of vectors stand in another order in all that is f32: of each 32
 * first those of even number, then the others, which is how they come out of their pairs. */
static inline bool zk_block_parted(const ZkView *v, int64_t features) {
  return v->elem == ZK_BF16 && features % (2 * ZK_BLOCK_LANES) == 0;
}
/* Turns n features into f32 in that order; brings them into it; and back. */
void zk_block_split(float *to, const uint16_t *x, int64_t n);
void zk_block_part(float *x, int64_t n);
void zk_block_unpart(float *x, int64_t n);

/* Computes q.k. */
void zk_block_scores(ZkBlock *b);
/* Turns n scores into cap tanh(scale x / cap), or without a cap into scale x. */
void zk_block_cap(float *x, float scale, float cap, int64_t n);
/* Makes exponentials of scores, their peaks and sums; where a row sees nothing, its sum is 0. */
void zk_block_soften(ZkBlock *b);
void zk_block_values(ZkBlock *b);
/* Adds a block's results of a row to those of earlier blocks: peak, sum, o[n]. */
void zk_block_join(float *peak, float *sum, float *o, float block_peak, float block_sum, const float *block_o,
                   int64_t n);

#endif
