/* What a run does about checkpoints: which one it goes on from, and whether that fits; when it writes one;
 * what it says of them. */
#ifndef ZUG_EXEC_SAVES_H
#define ZUG_EXEC_SAVES_H

#include "runtime/exec/comm/same.h"
#include "runtime/exec/options.h"
#include "runtime/exec/state/checkpoints.h"

/* ---- going on ------------------------------------------------------------------------------------------ */
/* Collective: the checkpoint that --resume or --resume-from asks for; *path NULL: there is none to go on
 * from, which
 * --resume takes for a beginning. False, and why in `err`, where there is one that cannot be read. */
bool zx_saves_find(ZbArena *a, ZxComm *c, const ZxOptions *o, const char **path, ZxManifest **m, ZbErr *err);
/* Says whether a run may go on from the checkpoint, by its facts: the data, their order and the seed must be the
 * same; so must the model, if `same_model`. What differs in the recipe, and in a model of the same parameters
 * (zx_resume_fits), is added to `note`. */
bool zx_saves_fit(const ZxManifest *m, const char *path, const ZxFacts *run, bool same_model, ZbText *note,
                  ZbErr *err);
/* What is written of a run into its checkpoints: facts that count. */
void zx_saves_facts(ZbArena *a, const ZxFacts *run, ZxManifest *m);

/* ---- writing ------------------------------------------------------------------------------------------- */
typedef struct {
  const ZxOptions *o;
  ZxCheckpoints *c; /* NULL: none are written */
  int rank;
  ZbArena *a;
  const char *good; /* the latest complete checkpoint, or NULL */
  double seconds;   /* that the latest one took, or 0 */
  double since;     /* the last one was begun, or the run */
  int64_t begun;    /* the step of that; before the first: of the checkpoint that was resumed, or 0 */
  /* Collective, called before a checkpoint is begun. False: it is not begun, and the run is to end. May be
   * NULL. */
  bool (*before)(void *run, int64_t step);
  void *run;
} ZxSaves;
/* What the step's reduction of maxima has of this rank's. */
enum { ZX_SAVES_FLAGS = 3 };
void zx_saves_flags(const ZxSaves *s, double flags[ZX_SAVES_FLAGS]);
/* Collective, after a step from which the run can go on, with the maxima over all ranks. False: the run is to
 * end, since a checkpoint failed or `before` said so. */
bool zx_saves_step(ZxSaves *s, int64_t step, const double flags[ZX_SAVES_FLAGS]);
/* Collective: waits for the one that is being written, if there is. */
void zx_saves_settle(ZxSaves *s);
/* Collective, after the last step of a run that ends well: its checkpoint is complete when this returns true. */
bool zx_saves_end(ZxSaves *s, int64_t step);

#endif
