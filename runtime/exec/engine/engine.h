/* engine: plays a checked plan on one rank. What it keeps, and how its files share the work, is in
 * internal.h. */
#ifndef ZUG_EXEC_ENGINE_H
#define ZUG_EXEC_ENGINE_H

#include "base/base.h"
#include "runtime/exec/comm/comm.h"
#include "runtime/exec/data/data.h"
#include "runtime/exec/device/device.h"
#include "runtime/plan/time/time.h"

/* ---- an engine and its steps --------------------------------------------------------------------------- */
typedef struct ZxEngine ZxEngine;
typedef struct {
  const ZxDeviceTable *device;
  ZkEnv *env; /* of the opened device, with the rank's threads */
  uint64_t seed;
  const ZxMix *data; /* NULL: for no steps */
  ZxOrder order;
  /* The host waits for every call, so that zx_engine_times can tell them apart, and work is counted. */
  bool times;
  const ZlCluster *cluster; /* with `times`: to predict calls by; NULL: none that says enough */
  /* Steps of which it keeps what was done when (zx_engine_spans); trace_to 0: none. */
  int64_t trace_from, trace_to;
  /* Plans whose engines share the memories, which are as large as they need (zx_engine_beside); or NULL. */
  const ZpPlan *also[2];
} ZxEngineOptions;
/* Arranges data for the plan's samples, and says whether they have what its inputs take; NULL: there are
 * none. Only such are given to an engine. */
bool zx_inputs_fit(const ZpPlan *p, ZxMix *data, ZbErr *err);
/* Makes this rank's groups, allocates its arena (exactly the planned bytes) and makes its calls out of the
 * plan's. Collective: NULL on all ranks if one failed; those that know why say it in `err`. */
ZxEngine *zx_engine_new(ZbArena *a, const ZpPlan *p, ZxComm *c, const ZxEngineOptions *o, ZbErr *err);
/* An engine of a plan that is beside the engine's own, one of `also` or one that needs no more memory, in the
 * arena of `e` and with its communicators: the two play in turns, and what one computes with is what the
 * other has stored. Of `o` it takes the data and their order. It lives in `a`, and `e` stays until it is
 * freed. Collective, as above. */
ZxEngine *zx_engine_beside(ZxEngine *e, const ZpPlan *p, ZbArena *a, const ZxEngineOptions *o, ZbErr *err);
/* Before steps of an engine that is beside another: makes whole what the other's last step has left in parts,
 * and puts averages in the parameters' place where an optimizer has them; and behind them gives the
 * parameters back. Of an engine that is beside none, nothing. Collective, both. */
bool zx_engine_publish(ZxEngine *e, ZbErr *err);
bool zx_engine_restore(ZxEngine *e, ZbErr *err);
void zx_engine_free(ZxEngine *e);
typedef struct {
  double loss, aux, grad_norm;
  double loss_sum[ZG_MAX_LOSSES], weight[ZG_MAX_LOSSES]; /* of each loss: numerator and denominator */
  double wait_ms, compute_ms;                            /* of this rank; wait_ms -1: not measured */
  uint64_t used_bytes; /* highest byte of the arena that was touched, so far */
  bool lost;           /* this rank's update left a parameter or a state that is not finite */
  bool unfed;          /* it failed for this rank's data */
} ZxStep;
/* What a loss adds to the loss of a step: not a number where nothing of it is known, which the denominator 0
 * says. The sum of them without these; not a number where nothing is known of any. */
double zx_loss_part(double sum, double weight);
double zx_loss(uint32_t n, const double *sum, const double *weight);
bool zx_unknown(uint32_t n, const double *weight); /* nothing is known of any */
/* One training step; step counts from 1. False with a message when the data are at fault. Of a plan that only
 * goes forward: its batch number `step`, which changes no parameter. */
bool zx_engine_step(ZxEngine *e, int64_t step, ZxStep *out, ZbErr *err);
/* ---- steps of generation, of a plan that generates ---- */
typedef struct {
  int64_t tokens, rows; /* of the step; at most as many as planned */
  const void *const
      *input; /* by input of the step's graph: its values of these tokens, or rows, and all of others */
} ZxTokens;
typedef struct {
  const void *data; /* [row, word], dense, until the next step */
  ZkElem elem;
} ZxLogits;
bool zx_engine_tokens(ZxEngine *e, const ZxTokens *now, ZxLogits *out, ZxStep *step, ZbErr *err);
/* Plays the admission of a sequence, whose plan is for a source of so many tokens, and puts what it makes
 * into the caches of a slot of the engine of steps. */
bool zx_engine_admit(ZxEngine *e, ZxEngine *steps, uint32_t slot, const int32_t *source, uint64_t *used,
                     ZbErr *err);
/* Copies a page of a group, in all layers. */
void zx_engine_copy_page(ZxEngine *e, uint32_t group, uint32_t from, uint32_t to);
/* Touches the memory that steps compute in, which the system gives when it is first touched, so that no step
 * waits for it. Weights have theirs, and caches get theirs as they fill. */
void zx_engine_touch(ZxEngine *e);

/* Before the first step: steps count on from `step`, and the next one's samples from number `samples` of the
 * data. */
void zx_engine_goes_on(ZxEngine *e, int64_t step, int64_t samples);
/* The axes of an input or output as files have them: samples, then the others as the model writes them. And
 * where these are in the memory of a value of it. */
void zx_file_axes(const ZpPlan *p, const ZgIo *io, uint16_t axes[ZG_MAX_AXES]);
void zx_axes_in_memory(const ZpPlan *p, const ZgIo *io, const ZpValue *v, int at[ZG_MAX_AXES]);
/* Values of one sample that the model takes, as zx_data_samples wants them; 0: it has no inputs. */
int64_t zx_sample_values(const ZpPlan *p);
int64_t zx_engine_samples(const ZxEngine *e, int64_t step); /* that were taken when so many steps are made */
uint64_t zx_engine_bytes(const ZxEngine *e);                /* planned, of the arena */
/* Samples that its data, of one file, have in each of its fields. */
uint64_t zx_engine_data_samples(const ZxEngine *e);
/* Reads this rank's part of the first `steps` steps' samples and drops it: false with a message where a step
 * would fail for it. */
bool zx_engine_try_data(ZxEngine *e, int64_t steps, ZbErr *err);
uint64_t zx_engine_untouched(
    const ZxEngine *e); /* of the host's memory, at start-up: what steps are going to touch */
/* Lines for people: how ranks exchange, and what that takes by the link of the cluster's device (may be NULL)
 * or its own; what of the device's memory is taken beside the arena. Nothing for the host. */
void zx_engine_tell(const ZxEngine *e, const ZlCluster *c, ZbText *out);

/* Report slow paths to people: which calls the device does not do in the fastest way, why, and at the least
 * what that costs a step, by the cluster's device (may be NULL) or its own data sheet. Nothing for the host.
 * The first for this rank's engine; the second for a stage of a plan, on a device that may be one that only
 * pretends. */
void zx_engine_fallbacks(const ZxEngine *e, const ZlCluster *c, ZbText *out);
void zx_plan_fallbacks(const ZpPlan *p, uint32_t stage, const ZxDeviceTable *dev, const ZkEnv *env,
                       const ZlCluster *c, ZbText *out);

/* ---- where time goes ----------------------------------------------------------------------------------- */
/* Seconds by op so far on this rank, indexed by ZgOp; [ZG_OP_COUNT]: optimizer, [+1]: waiting. */
const double *zx_engine_times(const ZxEngine *e);
/* With `times`, indexed alike: what that was for. FLOPs are those of products and attention; bytes those of
 * operands and results, each moved once, of a collective those of its whole tensor. `bound`: the seconds that
 * this takes at the peaks at least, each call the longer of its FLOPs and its bytes; 0: not known.
 * `predicted`: the seconds that it should have taken by the cluster; 0: there is none. */
typedef struct {
  double flops, bytes, bound, bound_by_flops, predicted;
} ZxWork;
const ZxWork *zx_engine_work(const ZxEngine *e);
/* With `times`, the calls that took the longest: of one op, from one place in the source, in one phase and
 * with results of one type. */
typedef struct {
  int op;
  bool fused; /* with a prologue or an epilogue */
  uint32_t loc;
  const char *phase; /* "forward", "backward", "count" */
  const ZgType *type;
  uint64_t calls;
  double seconds;
  ZxWork work;
} ZxCallTime;
uint32_t zx_engine_calls(const ZxEngine *e, ZxCallTime *out, uint32_t most); /* how many there are of them */
/* Between steps: times and work count from here on, against the peaks that this rank's device has. */
void zx_engine_count_anew(ZxEngine *e, const ZpPeaks *p);

/* ---- what was done when -------------------------------------------------------------------------------- */
enum { ZX_MOST_SPANS = 1 << 26 };
/* Those so far, in the order in which they began, but nodes where they ended; by zb_now. */
const ZpSpan *zx_engine_spans(const ZxEngine *e, uint64_t *n);

#endif
