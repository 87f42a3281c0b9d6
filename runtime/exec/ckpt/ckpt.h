/* ckpt: what a run leaves behind, as files. A *checkpoint* is a folder that holds everything a run needs to
 * go on, in any layout: tensors are the model's own (path, whole shape), wherever they were computed.
 *
 *   DIR/lock                             of the run that writes here
 *   DIR/step-00000400/                   a checkpoint; there are no others than complete ones under such names
 *     model-00001-of-00002.safetensors   parameters, f32, in files of a few GB
 *     model.safetensors.index.json       which tensor is in which file, as other programs read it
 *     optimizer-00001-of-00004.safetensors, optimizer.safetensors.index.json   optimizer states, f32
 *     manifest.json                      step, position in the data, what must be the same, files and checksums
 *   DIR/step-00000600.RUN.tmp/           one that is being written, or that a killed run left
 *
 * weights.c    safetensors files (weights.h)
 * contents.c   which tensors there are, in which file, at which byte
 * manifest.c   manifest.json and the indices, written and read
 * look.c       whether a checkpoint's files are what its manifest says
 * folder.c     the folders of DIR: which there are, one that is complete gets its name, old ones go
 * zckpt*.c     the program that looks at them (zckpt.h)
 *
 * Knows no ranks, no plan and no engine: state/ writes and reads checkpoints on the ranks of a run, zckpt
 * looks at them. All that may come from elsewhere is checked for size before it is read. */
#ifndef ZUG_EXEC_CKPT_H
#define ZUG_EXEC_CKPT_H

#include "runtime/exec/ckpt/weights.h"

/* ---- contents.c ---------------------------------------------------------------------------------------- */
enum { ZX_MAX_STATES = 16 }; /* optimizer states per parameter */
typedef struct {
  ZxTensorInfo info; /* path, shape */
  uint32_t file;     /* of the contents */
  uint32_t param;    /* of which it is: its values, */
  uint32_t state;    /* 0; or its state 1, 2, ... of those that there are: state[state - 1] */
  uint32_t less;     /* of a state: axes of the parameter that it has not, a bit each */
  uint64_t at, n;    /* first byte in that file; elements, f32 */
  /* Of all its values, each with its index: see zx_digest. */
  uint64_t digest;
} ZxCkptTensor;
typedef struct {
  const char *name;
  uint64_t bytes;
  const char *head; /* its first `head_bytes` bytes: the header */
  uint64_t head_bytes, head_digest;
  uint32_t first, n; /* its tensors */
} ZxCkptFile;
/* Parameters first, then of each parameter the states that it has: not all have all of them. Files in the same
 * order. */
typedef struct {
  uint32_t nparams, nstates;
  uint64_t most;                    /* bytes of tensors in a file, unless it has but one */
  const char *state[ZX_MAX_STATES]; /* "exp_avg": tensor "layer.0.w1.exp_avg" is that of "layer.0.w1" */
  uint32_t *first;                  /* per parameter, and one more: the tensor of its first state */
  ZxCkptTensor *tensors;
  uint32_t ntensors;
  ZxCkptFile *files;
  uint32_t nfiles;
  uint64_t bytes; /* of all files */
} ZxContents;
/* Puts the parameters, and their states, into files of at most `most` bytes of tensors each; a larger tensor
 * has one of its own. has: per parameter its states, bit s: states[s]; NULL: each has all. less: per parameter, and of
 * each by state, the axes that this lacks, bit i: the i-th; NULL: none lacks one. False with a message if that is more than
 * the format holds. */
bool zx_contents_make(ZbArena *a, const ZxTensorInfo *params, uint32_t n, const char *const *states,
                      uint32_t nstates, const uint32_t *has, const uint32_t *less, uint64_t most,
                      ZxContents *out, ZbErr *err);
/* How many states a parameter has; the tensor of that of this name, or ZB_NO_NAME. */
uint32_t zx_nstates_of(const ZxContents *c, uint32_t param);
uint32_t zx_state_named(const ZxContents *c, uint32_t param, const char *name);
/* The digest of values first..first+n-1 of a tensor. Those of parts add up (modulo 2^64) to that of the
 * whole, whoever computes them and in whatever order; another value, or one at another place, gives another. */
uint64_t zx_digest(const float *x, uint64_t first, uint64_t n);
/* "[3, 4]" */
const char *zx_shape_text(ZbArena *a, const ZxTensorInfo *t);

/* ---- manifest.c ---------------------------------------------------------------------------------------- */
/* What must be the same for a run to go on, or is told when it is not: "data", "tokens", "1048576". */
typedef struct {
  const char *kind, *name, *value;
} ZxCkptFact;
/* The best evaluation of a run so far. */
typedef struct {
  const char *data; /* what was evaluated, as --eval says it; NULL: there was none */
  double loss;
  int64_t step; /* after which it was */
} ZxBest;
typedef struct {
  int64_t step, samples; /* steps made; samples that they took from the data's beginning */
  int64_t serial;        /* 1 for the first checkpoint of a folder, and one more for each after it */
  const char *version, *model, *command, *recipe; /* recipe: its text */
  ZxCkptFact *facts;
  uint32_t nfacts;
  ZxBest best;
  ZxContents c;
  uint64_t checksum;
} ZxManifest;
/* Writes the indices and then manifest.json into `dir`, and syncs them. */
bool zx_manifest_write(const ZxManifest *m, const char *dir, ZbErr *err);
/* Adds the text of an index, as other programs know it: which file a parameter is in, or a state; and its file's
 * name. */
void zx_ckpt_index(const ZxContents *c, bool states, ZbText *t);
extern const char *const zx_ckpt_index_name[2];
/* Reads dir/manifest.json: NULL with a message if it is not there, altered, or of another version. */
ZxManifest *zx_manifest_read(ZbArena *a, const char *dir, ZbErr *err);
/* Puts the checksum of a manifest's text into it; false: it has no place for one. */
bool zx_manifest_seal(char *text, size_t n);
/* The value of a fact, or NULL. */
const char *zx_manifest_fact(const ZxManifest *m, const char *kind, const char *name);

/* ---- look.c -------------------------------------------------------------------------------------------- */
/* Whether the files of a checkpoint are there, no others of their kind, of the sizes and with the headers
 * that the manifest says. Reads headers only; what is in tensors shows when they are read, by their digests. */
bool zx_ckpt_look(const ZxManifest *m, const char *dir, ZbErr *err);
bool zx_ckpt_look_file(const ZxManifest *m, const char *dir, uint32_t file, ZbErr *err); /* one of them */
/* What to say of a tensor whose digest is another. Returns false. */
bool zx_ckpt_altered(const ZxManifest *m, const char *dir, uint32_t tensor, uint64_t found, ZbErr *err);

/* ---- folder.c ------------------------------------------------------------------------------------------ */
typedef struct {
  int64_t step, serial;
  const char *path; /* "DIR/step-00000400" */
} ZxCkptEntry;
/* The checkpoints of `dir`, the oldest first, by serial number. One without a readable manifest, or with that
 * of another step (a copy, or renamed), has serial 0 and so comes before all others. 0 for a folder that is
 * not there. */
uint32_t zx_ckpt_list(ZbArena *a, const char *dir, ZxCkptEntry **out, ZbErr *err);
/* "DIR/step-00000400", "DIR/step-00000400.RUN.tmp" */
const char *zx_ckpt_path(ZbArena *a, const char *dir, int64_t step);
const char *zx_ckpt_tmp(ZbArena *a, const char *dir, int64_t step, const char *run);
/* The step that the path of a checkpoint says; -1: it is no such name. */
int64_t zx_ckpt_step(const char *path);
/* Makes `dir`, with what is missing above it, and locks it for this process; the lock goes with the process.
 * A descriptor, or -1 with a message: another run has it. */
int zx_ckpt_lock(const char *dir, ZbErr *err);
/* Of the holder of the lock: removes what runs before left unfinished; how many. */
uint32_t zx_ckpt_clean(const char *dir);
/* Syncs the folder `tmp`, gives it its name, and syncs its parent. One that is there already under this name
 * is replaced, in one move. */
bool zx_ckpt_publish(const char *tmp, const char *path, ZbErr *err);
/* Removes a checkpoint, or an unfinished one: first its name, then the files that such a folder has. What
 * else is in there stays, and the folder with it. */
bool zx_ckpt_remove(const char *path, ZbErr *err);

#endif
