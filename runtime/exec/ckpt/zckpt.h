/* The parts of the `zckpt` program: zckpt.c reads the command line; show and list, verify, diff and weights
 * are files of their own, and export is one of hub/. All read a checkpoint by pieces (zckpt_read.c), however
 * large its tensors are. */
#ifndef ZUG_ZCKPT_H
#define ZUG_ZCKPT_H

#include "runtime/exec/ckpt/ckpt.h"

typedef struct {
  const char **path; /* one, or two to compare */
  const char *out;   /* -o */
  int64_t top;       /* rows of `diff` */
  bool states, tensors;
  bool average; /* of `weights`: what was averaged over the steps */
  /* of `export` */
  const char *names, *graph, *like;
  ZxAs as;
  int64_t shard_size; /* bytes */
  bool force;
} ZsOptions;

/* How a command ends, and so the program: as diff does, which others never end with ZS_DIFFERENT. */
typedef enum { ZS_OK = 0, ZS_DIFFERENT = 1, ZS_FAILED = 2 } ZsEnd;
ZsEnd zs_list(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_show(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_verify(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_diff(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_weights(const ZsOptions *o, ZbArena *a, ZbErr *err);
ZsEnd zs_export(const ZsOptions *o, ZbArena *a, ZbErr *err);

/* ---- reading ------------------------------------------------------------------------------------------- */
/* A checkpoint and its files, one of which is open at a time. */
typedef struct {
  const char *dir; /* without slashes at its end */
  const ZxManifest *m;
  const char *name; /* of the open file */
  int fd;           /* -1: none */
  uint32_t file;
  ZbNames names; /* of parameters */
} ZsCkpt;
/* Reads the manifest. False with a message, which says so if `path` is a folder of checkpoints and not one of
 * them. */
bool zs_open(ZsCkpt *k, ZbArena *a, const char *path, ZbErr *err);
void zs_close(ZsCkpt *k);
/* A tensor by pieces: each is called with its values first..first+n-1, at most ZS_PIECE. A tensor whose
 * digest is not the manifest's is an error, after the last piece; so is a file that ends before. */
enum { ZS_PIECE = 1 << 18 };
typedef bool (*ZsEach)(void *ctx, const float *x, uint64_t first, uint64_t n, ZbErr *err);
bool zs_read(ZsCkpt *k, uint32_t tensor, ZsEach each, void *ctx, ZbErr *err);
/* n <= ZS_PIECE values of a tensor, from number `first`; nothing is compared. */
bool zs_piece(ZsCkpt *k, uint32_t tensor, uint64_t first, uint64_t n, float *out, ZbErr *err);
/* The number of a parameter, or ZB_NO_NAME. */
uint32_t zs_find(const ZsCkpt *k, const char *path);

#endif
