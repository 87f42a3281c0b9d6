/* The parts of the `zckpt` program: zckpt.c has the options; show with list, verify, diff and weights have a file
 * each, and export is in hub/. All read a checkpoint in chunks (zckpt_read.c), however large its tensors are. */
#ifndef ZUG_ZCKPT_H
#define ZUG_ZCKPT_H

#include "runtime/exec/ckpt/ckpt.h"

typedef struct {
  const char **path; /* one, or two to compare */
  const char *out;   /* -o */
  int64_t top;       /* diff: rows */
  bool states, tensors;
  bool average; /* weights: the averages over steps */
  /* export */
  const char *names, *graph, *like;
  int dtype;          /* of zx_file_elems */
  int64_t shard_size; /* bytes */
  bool force, merge;
  int weights;   /* from 1: of int8, int4; 0: as they are */
  int64_t group; /* of these */
} ZsOptions;

/* Exit codes. Only diff returns ZS_DIFFERENT. */
typedef enum { ZS_OK = 0, ZS_DIFFERENT = 1, ZS_FAILED = 2 } ZsEnd;
ZsEnd zs_list(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_show(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_verify(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_diff(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_weights(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_export(const ZsOptions *o, ZbArena *a, ZbErr *err);

/* ---- reading ------------------------------------------------------------------------------------------- */
/* A checkpoint, with at most one of its files open. */
typedef struct {
  const char *dir; /* without slashes at its end */
  const ZxManifest *m;
  const char *name; /* of the open file */
  int fd;           /* -1: none */
  uint32_t file;
  ZbNames names; /* of parameters */
} ZsCkpt;
/* Reads the manifest. False with a message, which tells a folder of checkpoints from one of them. */
bool zs_open(ZsCkpt *k, ZbArena *a, const char *path, ZbErr *err);
void zs_close(ZsCkpt *k);
/* Reads a tensor in chunks: `each` is called with values first..first+n-1, at most ZS_PIECE. A tensor whose digest
 * differs from the manifest's is an error, after the last chunk; so is a file that ends before. */
enum { ZS_PIECE = 1 << 18 };
typedef bool (*ZsEach)(void *ctx, const float *x, uint64_t first, uint64_t n, ZbErr *err);
bool zs_read(ZsCkpt *k, uint32_t tensor, ZsEach each, void *ctx, ZbErr *err);
/* Reads n <= ZS_PIECE values of a tensor, from index `first`, without a check. */
bool zs_piece(ZsCkpt *k, uint32_t tensor, uint64_t first, uint64_t n, float *out, ZbErr *err);
/* Returns the index of a parameter, or ZB_NO_NAME. */
uint32_t zs_find(const ZsCkpt *k, const char *path);

#endif
