/* Values of parameters, where a rank has them and where they are in the whole model: what this room's files
 * share. */
#ifndef ZUG_EXEC_SLICES_H
#define ZUG_EXEC_SLICES_H

#include "runtime/exec/engine/internal.h"
#include "runtime/exec/ckpt/weights.h"

/* How many iterations there are of a parameter's repeat. */
uint32_t zx_iterations(const ZxEngine *e, uint32_t param);
/* That iteration's path and whole shape, as files have them. */
ZxTensorInfo zx_tensor_info(ZxEngine *e, uint32_t param, uint32_t iter);

/* A *stretch* is contiguous in a slice, on this rank, and in the whole parameter, in declared order and
 * without padding: n elements, `local` of the slice, `global` of the parameter. */
typedef bool (*ZxStretch)(void *ctx, uint64_t global, uint64_t local, uint64_t n);
/* Calls `each` for every stretch within local elements from..to of a slice, as long as it returns true.
 * Padding is skipped (it holds zeros). Any thread may call it. */
bool zx_stretches(const ZpMesh *m, int64_t rank, const ZpSlice *s, uint64_t from, uint64_t to, ZxStretch each,
                  void *ctx);

/* A walk over the shards that this rank owns, by stretches. */
typedef struct ZxWalk ZxWalk;
struct ZxWalk {
  /* The caller's: what is done at the beginning of a slice of a parameter (may be NULL), and with each
   * stretch: n elements from `global` of the whole parameter, at `at`. False ends the walk. */
  bool (*open)(ZxWalk *);
  bool (*each)(void *walk, uint64_t global, uint64_t n, float *at);
  bool (*slice)(ZxWalk *); /* in its place, but where `draws` is true: once for all of base[0..last-first) */
  bool draws;       /* `each` does not fail and may run on all threads; `open` may say so of each slice */
  bool fetch;       /* values are read, of the shards that this rank speaks for; else written, of all */
  bool grads;       /* gradients, not values; or a state: */
  int state;        /* 1, 2, ...: not values but that optimizer state */
  ZxWeights *file;  /* load, save */
  const char *name; /* of the file */
  int64_t tensor;   /* there */
  void *ctx;
  ZbErr *err;
  /* Where it is. */
  ZxEngine *e;
  const ZpStageBucket *held;
  const ZpSlice *s;
  const char *path;
  uint64_t stream; /* of random numbers */
  uint32_t iter;
  /* Values in f32: element `first` of the slice is base[0], and `last` is the first one that is not there. */
  float *base;
  uint64_t first, last;
  float *values; /* room on the host for one shard; NULL: values are f32 and lie there */
};
bool zx_walk(ZxEngine *e, ZxWalk *w);
/* Walks elements lo .. hi of a held bucket, which are of one slice; the first one's f32 value is at `base`. */
bool zx_walk_slice(ZxEngine *e, const ZpStageBucket *h, const ZpSlice *s, uint64_t lo, uint64_t hi,
                   float *base, ZxWalk *w);
/* Clears n of w->values, by all threads. */
void zx_walk_clear(ZxEngine *e, ZxWalk *w, uint64_t n);
/* Reads elements first .. first + n of a held bucket's shard as f32, into memory of `pinned`. What is f32 there already has
 * arrived when the device is done (zx_finish). What is packed must have been gathered (zx_gather_packed). */
bool zx_fetch_values(ZxEngine *e, const ZpStageBucket *h, ZkFlat from, uint64_t first, uint64_t n, float *x,
                     ZbErr *err);
/* "layer.0.w1[3, 17]": one element of the whole parameter where the walk is. */
const char *zx_element(const ZxWalk *w, uint64_t global);

/* ---- packed.c ---- */
/* Returns how many elements of w->values zx_walk_packed needs. */
uint64_t zx_packed_room(const ZxEngine *e, const ZpStageBucket *h);
/* Walks all slices of which this rank owns something, as wholes, and rounds them into its shard. */
bool zx_walk_packed(ZxEngine *e, const ZpStageBucket *h, ZkFlat shard, ZxWalk *w);
/* Collective among the ranks of a bucket, between steps, before its values are fetched: brings packed ones together. Other
 * buckets need nothing. */
void zx_gather_packed(ZxEngine *e, const ZpStageBucket *h);
/* As zx_fetch_values, which calls it. */
bool zx_fetch_packed(ZxEngine *e, const ZpStageBucket *h, ZkFlat own, uint64_t first, uint64_t n, float *x,
                     ZbErr *err);

/* save.c: collective. Rank 0's temporary (NULL: it has none) becomes known to all ranks, that can write to
 * it. */
bool zx_share_out(ZxEngine *e, ZbOut **out, const char *option, ZbErr *err);

/* init.c: `each` of a walk that draws initial values (ctx is the walk), and of one that refuses those that
 * are not finite. */
bool zx_draw_run(void *ctx, uint64_t global, uint64_t n, float *at);
bool zx_check_run(void *ctx, uint64_t global, uint64_t n, float *at);
/* Averages of parameters, and what else begins with their values. */
void zx_begin_average(ZxEngine *e);
/* Collective. From the values of owned shards to all parameters that steps read. */
bool zx_publish_initial(ZxEngine *e, ZbErr *err);

#endif
