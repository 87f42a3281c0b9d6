/* state: the parameters of a model on the ranks, beside the steps that change them.
 *
 * init.c        initial values
 * load.c        parameters from weights files, under whatever names
 * save.c        parameters to one
 * finite.c      whether a run can go on from a step
 * alike.c       whether replicas hold the same (alike.h)
 * predict.c     outputs of the model, to a file
 * slices.c      what these have in common (slices.h): where a rank's values are in the whole model,
 * packed.c      those that are stored in few bits,
 * walk.c        and all of them, one after the other
 * checkpoints.h everything a run needs to go on: snapshot.c, writer.c, checkpoints.c, resume.c
 *
 * Stands on the engine, which owns the memory. */
#ifndef ZUG_EXEC_STATE_H
#define ZUG_EXEC_STATE_H

#include "base/options.h"
#include "runtime/exec/engine/engine.h"

/* Parameters from the seed, or from a weights file. All of these are collective: false on all ranks if one
 * failed; those that know why say it in `err`. */
bool zx_engine_init(ZxEngine *e, ZbErr *err);
typedef struct {
  uint64_t read, drawn; /* parameters that were in the file, and that were not */
  const char *names;    /* of those drawn, the first few */
  uint64_t extra;       /* tensors of the file that are no parameters */
  const char *first_extra;
  const char *coded; /* what was quantized, for people; NULL: nothing was */
} ZxLoaded;
/* Where parameters come from. */
typedef struct {
  const char *path;  /* a safetensors file, or a folder with shards */
  const char *names; /* which names of the graph parameters have there; NULL: their own */
  bool partial;      /* what is not there is drawn from the seed, and what else is there is left out */
  ZbTexts adapters;  /* folders with adapters' parameters: what has no place is never left out */
  const struct ZxNewWords *words; /* the model may have more words (grow.h); NULL: it may not */
} ZxFrom;
/* Not partial: it must hold exactly the model's parameters. */
bool zx_engine_load(ZxEngine *e, const ZxFrom *from, ZxLoaded *out, ZbErr *err);
/* Makes the file's temporary at its full size, and sees to it that every rank can write to it: a wrong path,
 * a full disk or a folder of one node alone is known before a long run ... */
bool zx_engine_reserve(ZxEngine *e, const char *path, ZbErr *err);
/* ... that ends with writing all parameters into it, by their owners, and giving it its name. Otherwise it
 * goes with the engine, or with the process. */
bool zx_engine_save(ZxEngine *e, ZbErr *err);

/* Outputs of an engine whose plan has them (ZpPlan.asked.outputs): of the first `samples` of its data, all outputs
 * of the model go into a safetensors file, each a tensor of its name and of f32, samples first, written by
 * the ranks that have the parts. Collective, both; the file has its name when the second returns true. */
typedef struct ZxPredict ZxPredict;
ZxPredict *zx_predict_open(ZxEngine *e, const char *path, uint64_t samples, ZbErr *err);
bool zx_predict_close(ZxPredict *t, ZbErr *err);
void zx_predict_abandon(ZxPredict *t); /* nothing is left; NULL is allowed */

/* What a step has come to: all is well; nothing of its samples is known, or its loss or its gradients are not
 * finite or what a loss is divided by is negative: nothing was updated and the run could go on; parameters or
 * states are not finite any more. */
typedef enum { ZX_SOUND, ZX_UNKNOWN, ZX_SKIPPED, ZX_BROKEN } ZxSoundness;
/* Collective, after a step, with `lost` if it is so on any rank. What is not well is said in `err`, the same
 * on all ranks. */
ZxSoundness zx_engine_sound(ZxEngine *e, const ZxStep *s, ZbErr *err);

#endif
