/* Second moments of rows and columns of matrices, in checkpoints: there they are tensors with those axes of the parameter
 * along which they differ, in declared order. */
#ifndef ZUG_EXEC_MOMENTS_H
#define ZUG_EXEC_MOMENTS_H

#include "runtime/exec/ckpt/ckpt.h"
#include "runtime/exec/engine/internal.h"

/* Of the rows (side 0) or columns (1) of all matrices of a slice, as this rank's group has them. */
typedef struct {
  const ZpSlice *of;
  int side;
  uint64_t at, n, step; /* the first in the bucket's; how many; from those of a matrix to those of the next */
  ZpSlice slice;        /* as a slice of the tensor in files */
  uint32_t less;        /* axes of the parameter that it has not */
} ZxMoments;
/* Returns how many a held bucket has, in *out. */
uint32_t zx_moments_of(const ZxEngine *e, const ZpStageBucket *h, ZbArena *a, ZxMoments **out);
/* Their name, as states have one: "exp_avg_sq_row". */
const char *zx_moments_name(const ZpOptimizer *o, int side);
/* From how they are held, matrix by matrix, to how they are listed, in declared order; or back. */
void zx_order_moments(const ZxMoments *m, float *held, float *listed, bool list);
/* Returns whether this rank writes them, of those that have the same. */
bool zx_speaks_of_moments(const ZxEngine *e, const ZpStageBucket *h);
/* Those of a matrix are kept by the rank that makes its update, and are 0 on the others of its group. Collective: all have
 * all of them; and only their own again. */
void zx_share_moments(ZxEngine *e, const ZpStageBucket *h);
void zx_keep_own_moments(ZxEngine *e, const ZpStageBucket *h);

#endif
