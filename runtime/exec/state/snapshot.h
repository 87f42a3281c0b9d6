/* What a rank writes into a checkpoint, and the copy of it that a thread writes from. */
#ifndef ZUG_EXEC_SNAPSHOT_H
#define ZUG_EXEC_SNAPSHOT_H

#include "runtime/exec/ckpt/ckpt.h"
#include "runtime/exec/state/moments.h"
#include "runtime/exec/state/slices.h"

/* Elements from..to of a slice: values or one of the states, of one iteration; where the copy of the first
 * is. */
typedef struct {
  const ZpSlice *slice;
  uint32_t tensor; /* of the checkpoint's contents */
  uint64_t from, to;
  float *at;
} ZxPiece;
typedef struct {
  float *memory;  /* the plan's buffer for it */
  ZxPiece *piece; /* by tensor */
  uint32_t npieces;
  bool has_frozen; /* of what does not change the copy is there */
} ZxSnapshot;
/* What files call state 1, 2, ... of a bucket's elements: "exp_avg". */
const char *zx_state_name(const ZpPlan *p, const ZpBucket *k, int state);
/* The contents of this run's checkpoints. */
bool zx_contents_of(ZxEngine *e, uint64_t most, ZxContents *out, ZbErr *err);
/* The tensor of an iteration of a parameter: its values (state 0), or state 1, 2, ... */
uint32_t zx_tensor_of(const ZxEngine *e, const ZxContents *c, uint32_t param, uint32_t iter, uint32_t state);
uint32_t zx_moments_tensor(const ZxEngine *e, const ZxContents *c, const ZpStageBucket *h,
                           const ZxMoments *m);
void zx_snapshot_open(ZxEngine *e, const ZxContents *c, ZxSnapshot *out);
/* Collective: the digests of n tensors' parts on all ranks become those of the whole tensors, on all ranks;
 * `halves` is room for 2 n numbers. Exact for 2^21 ranks. */
void zx_add_digests(ZxComm *c, uint64_t *digest, uint32_t n, double *halves);
/* Collective: bytes that all ranks read or wrote, the most of one, and the longest that one took for it (may
 * be NULL). */
void zx_add_bytes(ZxComm *c, uint64_t own, double seconds, uint64_t *all, uint64_t *most, double *longest);
bool zx_snapshot_take(ZxEngine *e, ZxSnapshot *s, ZbErr *err); /* between steps */

#endif
