/* Checkpoints on the ranks of a run: written while it goes on, and read in any layout.
 *
 *   snapshot.c      what this rank has to write, and a copy of it in the host's memory, of planned size
 *   writer.c        the thread that writes such a copy
 *   checkpoints.c   one checkpoint after the other, as far as ranks must agree on it
 *   resume.c        parameters and states from a checkpoint
 *
 * A step that is to be kept copies what the rank speaks for (zx_spoken_part) and goes on; the thread writes
 * the copy into the files of a temporary folder, each rank its own bytes. When all have written, rank 0 adds
 * up the digests and writes the manifest, and the folder gets its name. Nobody waits for a disk; if one is
 * slow, the next checkpoint comes later. */
#ifndef ZUG_EXEC_CHECKPOINTS_H
#define ZUG_EXEC_CHECKPOINTS_H

#include "base/options.h"
#include "runtime/exec/ckpt/ckpt.h"
#include "runtime/exec/engine/engine.h"

/* ---- writing ------------------------------------------------------------------------------------------- */
typedef struct ZxCheckpoints ZxCheckpoints;
typedef struct {
  const char *dir;
  uint32_t keep;   /* so many complete ones stay; 0: all */
  uint64_t most;   /* bytes of tensors in a file */
  ZxManifest base; /* what all manifests of the run say */
} ZxCheckpointsOptions;
/* Collective: makes and locks the folder, removes what killed runs left there, sees to it that all ranks have
 * the same folder, and starts the thread. The plan has memory for snapshots. NULL on all ranks if one failed;
 * those that know why say it in `err`. */
ZxCheckpoints *zx_checkpoints_open(ZxEngine *e, const ZxCheckpointsOptions *o, ZbErr *err);
/* Stops writing; what is not complete is removed. NULL is allowed. */
void zx_checkpoints_close(ZxCheckpoints *c);

/* Whether one is being written: the same on all ranks. */
bool zx_checkpoints_busy(const ZxCheckpoints *c);
/* Collective, between steps, while none is being written: begins the checkpoint of the `step` steps made so
 * far. */
void zx_checkpoints_begin(ZxCheckpoints *c, int64_t step);
/* The best evaluation so far, for the checkpoint of its step and later ones; rank 0's is written. */
void zx_checkpoints_best(ZxCheckpoints *c, const ZxBest *best);
/* What this rank's thread is about: it goes through the step's reduction of maxima, and back to
 * zx_checkpoints_go_on. */
typedef struct {
  double working, failed;
} ZxCheckpointState;
ZxCheckpointState zx_checkpoints_state(const ZxCheckpoints *c);
typedef enum { ZX_CKPT_NOTHING, ZX_CKPT_SAVED, ZX_CKPT_FAILED } ZxCheckpointNews;
typedef struct {
  ZxCheckpointNews news;
  int64_t step;
  const char *path;
  uint64_t bytes, most;  /* written by all ranks; the most by one */
  double write, seconds; /* that writing took where it took longest; from its beginning to its end */
} ZxCheckpointReport;
/* Collective, with the maxima of all ranks: takes the checkpoint further. A failed one is removed; the lowest
 * rank that knows why has said it. */
ZxCheckpointReport zx_checkpoints_go_on(ZxCheckpoints *c, const ZxCheckpointState *of_all);
/* Collective: waits until none is being written. */
ZxCheckpointReport zx_checkpoints_wait(ZxCheckpoints *c);

/* ---- reading ------------------------------------------------------------------------------------------- */
typedef struct {
  uint64_t bytes, most; /* read by all ranks, the most by one */
} ZxResumed;
/* Makes the manifest list what the model has, in its order, where parameters that the checkpoint lacks begin as copies
 * of others, with their optimizer states: "NEW=OLD". False with a message if a copy is of nothing. */
bool zx_resume_copies(ZxEngine *e, const char *path, ZxManifest *m, const ZbTexts *copies, ZbErr *err);
/* Whether a checkpoint has the parameters that the run wants, in their shapes, and its optimizer states. */
bool zx_resume_fits(ZxEngine *e, const char *path, const ZxManifest *m, bool states, ZbErr *err);
/* Collective: parameters and optimizer states of a checkpoint that fits, of which `m` was read; steps count
 * from there on. False on all ranks if its files are not whole or were altered: those that know it say it in
 * `err`. */
bool zx_engine_resume(ZxEngine *e, const char *path, const ZxManifest *m, ZxResumed *out, ZbErr *err);
/* The same of parameters alone, for a run that begins with them, or evaluates them. */
bool zx_engine_take_params(ZxEngine *e, const char *path, const ZxManifest *m, ZxResumed *out, ZbErr *err);

#endif
