/* runtime/exec: plays a checked plan on ranks. The rooms' seams to the outside world are tables of
 * functions, so that a device or a communicator more is a file more.
 *
 * comm/       communicators: one rank, MPI, shared memory inside a node, NCCL, the host's memory for a device's
 * device/     which devices there are, the CPU, CUDA in a module, how much memory there is
 * engine/     set-up and steps of a plan: queues, nodes, collectives, updates, what waits and why
 * state/      parameters and states: initial values, weights in safetensors files
 * data/       token and record files, and zdata, which makes them
 * same.c, facts.c   do all ranks have the same? log.c  lines for people, metrics.jsonl; die.c  the end of a job
 */
#ifndef ZUG_EXEC_H
#define ZUG_EXEC_H

#include "base/base.h"
#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

/* ---- devices ----------------------------------------------------------------------------------------------- */
/* Where a rank's arena lives and who computes on it. If that is the host, a call is done when it returns, and there are no
 * events. On other devices every call but those that say so only queues its work on the current stream, one for each of the
 * plan's queues: work of a stream is done in order, and work of another is ordered after it by an event. */
/* What an update has to do with the step's scalars: gradients, whose squared norm is `squares`, are scaled to a norm of at most
 * `most` (0: not); `lost` becomes 1 if a parameter or a state is not finite afterwards. */
typedef struct { const double *squares; float most; double *lost; } ZxScalars;
typedef struct ZxComm ZxComm;
typedef struct {
  const char *name; /* "cpu" */
  /* A device in a module has only these: how people call it, the module's file, which has the rest as zx_device_NAME, and
   * a library that machines with such a device have. */
  const char *label, *module, *driver;
  bool host;
  /* NULL: always. Whether there is one on this machine; if not, why. */
  bool (*there)(ZbErr *err);
  /* Fills env->device, and takes what libraries keep for themselves. `node_rank`: this rank's number among those of its
   * node. */
  bool (*open)(ZkEnv *env, int node_rank, ZbErr *err);
  void (*close)(ZkEnv *env);
  void *(*alloc)(const ZkEnv *env, size_t bytes, ZbErr *err); /* 64-byte aligned, zeroed; the one allocation of a run */
  void (*free)(const ZkEnv *env, void *p, size_t bytes);
  size_t (*scratch)(const ZkCall *call, int threads); /* as ZpOptions has it */
  bool (*joins)(const ZkCall *call);                  /* likewise; may be NULL */
  const char *(*describe)(const ZkEnv *env);
  /* FLOP/s of products of this type (ZK_F32, ZK_BF16), measured for about `ms`; returns when done. 0: not known. */
  double (*peak)(const ZkEnv *env, ZkElem elem, int ms);
  /* May be NULL. The same of copying large blocks, in bytes/s read and written. */
  double (*copy_peak)(const ZkEnv *env, int ms);
  /* May be NULL. At start-up, for all calls of the steps to come: makes what it needs. False if the device lacks it. */
  bool (*prepare)(const ZkEnv *env, const ZkCall *call, ZbErr *err);
  /* Computing. */
  void (*run)(const ZkEnv *env, const ZkCall *call);
  void (*adamw)(const ZkEnv *env, const ZkAdamW *p, const ZxScalars *clip, int64_t n, const float *g, float *w, float *m, float *v,
                uint16_t *w16);
  void (*sgd)(const ZkEnv *env, const ZkSgd *p, const ZxScalars *clip, int64_t n, const float *g, float *w, float *m, uint16_t *w16);
  void (*sumsq)(const ZkEnv *env, int64_t n, const float *x, double *sum); /* sum += x.x */
  void (*axpy)(const ZkEnv *env, int64_t n, float a, const float *x, float *y);
  void (*to_bf16)(const ZkEnv *env, int64_t n, const float *x, uint16_t *y);
  void (*zero)(const ZkEnv *env, void *p, size_t bytes);
  void (*copy)(const ZkEnv *env, void *to, const void *from, size_t bytes);
  void (*add_scalar)(const ZkEnv *env, const float *x, double *sum);   /* sum += x */
  void (*reciprocal)(const ZkEnv *env, const double *x, float *y);     /* y = 1/x, 0 where x is not positive */
  /* What follows is NULL for the host, but for `finish`. Memory: to the device, and from it. `from` (`to`) is memory of
   * `pinned` and stays untouched until done. */
  void *(*pinned)(const ZkEnv *env, size_t bytes, ZbErr *err);
  void (*unpin)(const ZkEnv *env, void *p);
  void (*upload)(const ZkEnv *env, void *to, const void *from, size_t bytes);
  void (*download)(const ZkEnv *env, void *to, const void *from, size_t bytes);
  /* Streams and events 0..n-1, which are made once. */
  bool (*events)(ZkEnv *env, uint32_t n, ZbErr *err);
  void (*stream)(ZkEnv *env, int queue);            /* makes that queue's stream the current one */
  int (*current)(const ZkEnv *env);
  void (*record)(const ZkEnv *env, uint32_t event); /* reached when all that the current stream has so far is done */
  void (*wait)(const ZkEnv *env, uint32_t event);   /* what the current stream gets from now on comes after it */
  bool (*reached)(const ZkEnv *env, uint32_t event);
  bool (*idle)(const ZkEnv *env);                   /* all streams have done their work */
  /* Returns when all streams have done their work. False if any of it failed: where and why. */
  bool (*finish)(const ZkEnv *env, ZbErr *err);
  /* May be NULL, all four. From `capture` on, what streams are given is not done but noted, until `captured`; at both the
   * compute queue's stream is the current one, and what others are given in between is ordered by events of that time.
   * False: it cannot be done, nothing is noted, and the step is to be queued anew. `replay` gives the current stream all
   * that was noted to do; `forget` ends it, before communicators that are used in it end. */
  bool (*capture)(ZkEnv *env, ZbErr *err);
  bool (*captured)(ZkEnv *env, ZbErr *err);
  void (*replay)(const ZkEnv *env);
  void (*forget)(ZkEnv *env);
  /* Both may be NULL. Bytes of the device's memory, and how many of them nobody has taken. */
  void (*memory)(const ZkEnv *env, uint64_t *total, uint64_t *unused);
  /* Collective: a communicator of the device's memory over the ranks of `world`, whose operations go to the current
   * stream and are complete (-1) once they are there. NULL on all ranks if there is none, and why not. */
  ZxComm *(*comm)(ZxComm *world, ZkEnv *env, const char **why);
} ZxDeviceTable;
extern const ZxDeviceTable zx_device_cpu;
extern const ZxDeviceTable zx_device_cuda; /* in a module of builds with CUDA */
extern const ZxDeviceTable *const zx_devices[]; /* NULL ends the list */
/* The device of that name, or NULL and why, unless nobody knows it; "auto" is the fastest that this build and machine have
 * (`err`: why it is not one whose driver is there). */
const ZxDeviceTable *zx_device(const char *name, ZbErr *err);

/* ---- communicators -------------------------------------------------------------------------------------- */
/* One world of ranks and its subgroups. All operations are non-blocking: `start` functions return a request,
 * `test` says whether it is complete and makes progress on all. Buffers must stay untouched until then.
 * Collectives of one group must be started in the same order by all its members; the plan guarantees it.
 *
 * What is moved is what is handed over: bf16 is reduced by exchanging bf16. It is summed in f32, in the order of ranks, and
 * rounded once; but by NCCL, which rounds where it adds. */
typedef enum { ZX_F32, ZX_F64, ZX_BF16, ZX_BYTES } ZxCommElem; /* what is reduced; ZX_BYTES: nothing is */
typedef enum { ZX_SUM, ZX_MAX } ZxReduce;
typedef int32_t ZxRequest; /* index into the communicator's table of requests; -1: complete */
typedef int32_t ZxGroup;   /* 0: the world */

typedef struct {
  const char *name; /* "self", "mpi" */
  const char *(*describe)(ZxComm *); /* for people; NULL: its name says it */
  int (*rank)(ZxComm *);
  int (*size)(ZxComm *);
  int (*node_rank)(ZxComm *); /* this rank's number among those of its node */
  const int *(*nodes)(ZxComm *); /* of each rank, the first rank of its node */
  /* May be NULL. Collective, before anything but the world is used: what was rank order[i] is rank i from now on. */
  void (*reorder)(ZxComm *, const int *order);
  /* Collective over the world: ranks with the same color form a group, ordered by world rank; color < 0: this
   * rank is in none and gets -1. Groups are made at start-up, in the same order on all ranks. */
  ZxGroup (*split)(ZxComm *, int color);
  int (*group_rank)(ZxComm *, ZxGroup);
  int (*group_size)(ZxComm *, ZxGroup);
  /* May be NULL. Collective, before the first send and recv: the peers that this rank will have. */
  void (*connect)(ZxComm *, const int *world_peers, int n);
  ZxRequest (*send)(ZxComm *, const void *p, size_t bytes, int world_peer, int tag);
  ZxRequest (*recv)(ZxComm *, void *p, size_t bytes, int world_peer, int tag);
  ZxRequest (*all_reduce)(ZxComm *, ZxGroup, void *p, size_t n, ZxCommElem, ZxReduce); /* in place */
  /* Member i contributes `bytes` bytes, found at `part` (which may be out + i*bytes: in place). */
  ZxRequest (*all_gather)(ZxComm *, ZxGroup, const void *part, size_t bytes, void *out);
  /* `in` holds group_size blocks of n elements; block i summed over members arrives at member i. `in` stays as it is,
   * but for its own block if that is `out`. */
  ZxRequest (*reduce_scatter)(ZxComm *, ZxGroup, void *in, size_t n, ZxCommElem, ZxReduce, void *out);
  ZxRequest (*all_to_all)(ZxComm *, ZxGroup, const void *in, size_t bytes, void *out); /* bytes per pair */
  ZxRequest (*broadcast)(ZxComm *, ZxGroup, void *p, size_t bytes, int root);
  bool (*test)(ZxComm *, ZxRequest);  /* true: complete, and the request is given back */
  void (*wait)(ZxComm *, ZxRequest);  /* tests, yields and then sleeps: never spins a core dry */
  void (*barrier)(ZxComm *);
  /* May be NULL: no. Whether all operations are complete (-1) for the host when they start, and a device's streams do the
   * rest. Ranks must then start them in one order of all. */
  bool (*only_queues)(ZxComm *);
  /* May be NULL. Why such operations cannot be captured; NULL: they can. */
  const char *(*why_uncaptured)(ZxComm *);
  /* May be NULL, both. For people: what an open request is, and whom it waits for as far as that is known: "receive of 1.2 MB
   * from rank 3". A number that grows as open requests get on. */
  void (*explain)(ZxComm *, ZxRequest, ZbText *out);
  uint64_t (*moves)(ZxComm *);
  /* May be NULL. Called now and then while a rank waits for its device: lets go on what others wait for, and ends the job if
   * what was begun has failed. */
  void (*watch)(ZxComm *);
  /* May be NULL. Collective, after a capture that failed on some rank and is forgotten: operations work again. */
  void (*anew)(ZxComm *);
  /* May be NULL: yes. Whether this rank is the first of its node to ask. */
  bool (*claim)(ZxComm *);
  /* Ends the whole job with `code`; the one place that does. Flushes nothing but stderr; unfinished files are removed. */
  void (*abort)(ZxComm *, int code) __attribute__((noreturn));
  void (*free)(ZxComm *);
} ZxCommTable;
struct ZxComm {
  const ZxCommTable *t;
};
ZxComm *zx_comm_self(void);
/* Initialises MPI (funneled). With one rank this is still MPI. `argc`, `argv` as main's. */
ZxComm *zx_comm_mpi(int *argc, char ***argv, ZbErr *err);
/* What a launcher says of this process before MPI does: its rank and how many were started; -1: nothing. */
typedef struct { int rank, size; } ZxLaunch;
ZxLaunch zx_launch(void);

double zx_now(void); /* seconds, monotonic */
/* A wait, 0 at its beginning. One more look was in vain: pauses, shortly at first. When nothing of `c` has moved for
 * zx_patience seconds it says once that the wait stalls, and if so, when something moves. */
typedef struct { uint64_t tries, moves; double since, seen; bool told; } ZxWait;
typedef enum { ZX_WAITS, ZX_STALLS, ZX_GOES_ON } ZxWaited;
ZxWaited zx_pause(ZxWait *w, ZxComm *c);
double zx_patience(void); /* a function, since zplan loads modules without it */
/* Says why and ends the whole job. Of ranks of a node that do so at the same time one says it. */
_Noreturn void zx_die(ZxComm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Collective: true on all ranks if `ok` on all of them. */
bool zx_agree(ZxComm *c, bool ok);
/* Collective: the lowest number that a rank has; below 0: it has none. -1 if no rank has one. Exact up to 2^53. */
int64_t zx_lowest(ZxComm *c, int64_t mine);
/* Collective: whether the nodes, and the control groups there, have the `need` bytes of the host's memory that each rank is
 * going to touch. A line for people, of this rank's node, goes to `tell`. */
bool zx_check_memory(ZxComm *c, uint64_t need, ZbText *tell, ZbErr *err);

/* ---- data ------------------------------------------------------------------------------------------------------ */
/* A token file: a header and either one stream of tokens or fixed-size records with named fields (for models
 * that are not language models). Never read whole; sizes are checked against the file's own. By one thread at a time. */
typedef struct ZxData ZxData;
typedef enum { ZX_ORDER_SHUFFLED, ZX_ORDER_SEQUENTIAL } ZxOrder;
ZxData *zx_data_open(const char *path, ZbErr *err);
void zx_data_close(ZxData *d);
uint64_t zx_data_tokens(const ZxData *d);       /* 0 for records */
uint64_t zx_data_samples(const ZxData *d, int64_t seq); /* windows of seq tokens (stream), or records */
/* One field of samples. For a stream: field "tokens" is window[s0 .. s0+ns), "targets" the same shifted by
 * one; ids as i32. For records: field by name, floats for real fields, i32 for index fields. Sample g, a global
 * position 0, 1, 2, ..., is the g-th window in order, or the g-th of a permutation that is a pure function of
 * (seed, epoch): the same in every layout. Fills out[ns values] for the part s0..s0+ns of the sample's `seq`
 * values. A value outside [-1, limit) is an error that names file, position and value. limit < 0: real field; ZX_ANY_I32: whole
 * numbers, which select nothing. */
#define ZX_ANY_I32 INT64_MAX
typedef struct {
  const ZxData *data;
  ZxOrder order;
  uint64_t seed;
  int64_t seq; /* values per sample: the product of the field's axes without batch */
} ZxSampler;
/* Whether `field` exists and holds `seq` values per sample (records) or can (stream), with a helpful message. */
bool zx_data_check_field(const ZxData *d, const char *field, bool index, int64_t seq, ZbErr *err);
bool zx_data_read(const ZxSampler *s, const char *field, uint64_t g, int64_t s0, int64_t ns, int64_t limit,
                  void *out, ZbErr *err);

/* ---- weights ---------------------------------------------------------------------------------------------------- */
/* safetensors files of f32 tensors by parameter path. Writing: one rank makes the file with its header
 * (zx_weights_create), then every owner writes its runs of elements at their place; nothing is gathered. */
typedef struct ZxWeights ZxWeights;
typedef struct {
  const char *path;      /* "layer.3.attn.wq" */
  int nshape;
  int64_t shape[8];      /* declared order */
} ZxTensorInfo;
/* One rank: the file's temporary, at its full size; `tensors` in any order. Committed after all that wrote have closed it. */
ZbOut *zx_weights_create(const char *path, const ZxTensorInfo *tensors, size_t n, ZbErr *err);
ZxWeights *zx_weights_open(const char *path, bool write, ZbErr *err); /* write: `path` is the temporary's */
/* Index of a tensor; checks its shape; -1 with a message (nearest name, or found and expected shape). */
int64_t zx_weights_find(const ZxWeights *w, const ZxTensorInfo *want, ZbErr *err);
uint64_t zx_weights_count(const ZxWeights *w);
/* n elements from flat element `at` of tensor i. Reading converts F32, BF16, F16 files to f32. */
bool zx_weights_read(const ZxWeights *w, int64_t i, uint64_t at, uint64_t n, float *out, ZbErr *err);
bool zx_weights_write(ZxWeights *w, int64_t i, uint64_t at, uint64_t n, const float *in, ZbErr *err);
bool zx_weights_close(ZxWeights *w, ZbErr *err); /* fsyncs when written */

/* ---- logs --------------------------------------------------------------------------------------------------------- */
/* One line of metrics. What is negative (but the loss) was not measured and is left out; what is not finite is
 * null in metrics.jsonl. */
typedef struct {
  int64_t step, steps;
  double loss, grad_norm, lr, tokens, step_ms, tokens_per_s, flops, peak_share; /* share of measured peak, 0..1 */
  double bubble, wait_ms, wait_max_ms;    /* waiting in the step: share of it, and time, means over all ranks; the most of one */
  uint64_t planned_bytes, used_bytes;
} ZxMetrics;
/* Per rank class (pipeline stage): what differs. Times are means over its ranks, but for the most of one. */
typedef struct { int stage; uint64_t planned_bytes, used_bytes; double compute_ms, wait_ms, wait_max_ms; } ZxClassMetrics;
typedef struct ZxLog ZxLog;
/* dir NULL: no files. Fails with a message for a folder that cannot be made or written. What an earlier run left in
 * metrics.jsonl stays there until the first line of this one, and is kept as metrics.jsonl.1, .2, ... Lines are flushed.
 * Only rank 0 opens a log. */
ZxLog *zx_log_open(const char *dir, ZbErr *err);
bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err);
void zx_log_close(ZxLog *l);
/* For printing: of a NaN there is only one, without a sign. */
double zx_plain(double x);
/* "[rank 3] text" on stderr, one write call. */
void zx_say(int rank, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- the engine ----------------------------------------------------------------------------------------------------- */
typedef struct ZxEngine ZxEngine;
typedef struct {
  const ZxDeviceTable *device;
  ZkEnv *env; /* of the opened device, with the rank's threads */
  uint64_t seed;
  ZxData *data;
  ZxOrder order;
  bool times; /* the host waits for every call, so that zx_engine_times can tell them apart, and work is counted */
} ZxEngineOptions;
/* Makes this rank's groups, allocates its arena (exactly the planned bytes) and fills the calls. The plan's calls are
 * the engine's from now on. Collective: NULL on all ranks if one failed; those that know why say it in `err`. */
ZxEngine *zx_engine_new(ZbArena *a, ZpPlan *p, ZxComm *c, const ZxEngineOptions *o, ZbErr *err);
void zx_engine_free(ZxEngine *e);
/* Parameters from the seed, or from a weights file. All of these are collective: false on all ranks if one failed;
 * those that know why say it in `err`. */
bool zx_engine_init(ZxEngine *e, ZbErr *err);
bool zx_engine_load(ZxEngine *e, const char *path, ZbErr *err);
/* Makes the file's temporary at its full size, and sees to it that every rank can write to it: a wrong path, a full disk or
 * a folder of one node alone is known before a long run ... */
bool zx_engine_reserve(ZxEngine *e, const char *path, ZbErr *err);
/* ... that ends with writing all parameters into it, by their owners, and giving it its name. Otherwise it goes with the
 * engine, or with the process. */
bool zx_engine_save(ZxEngine *e, ZbErr *err);
typedef struct {
  double loss, aux, grad_norm, tokens; /* tokens: the loss denominator */
  double wait_ms, compute_ms;          /* of this rank; wait_ms -1: not measured */
  uint64_t used_bytes;                 /* highest byte of the arena that was touched, so far */
  bool lost;                           /* this rank's update left a parameter or a state that is not finite */
} ZxStep;
/* One training step at learning rate lr; step counts from 1. False with a message when the data are at fault. */
bool zx_engine_step(ZxEngine *e, int64_t step, double lr, ZxStep *out, ZbErr *err);
/* Collective, after a step, with `lost` if it is so on any rank: whether the run can go on. If not, `err` says the same on
 * all ranks: a loss without a positive denominator, or what of loss, gradients and parameters is not finite. */
bool zx_engine_sound(ZxEngine *e, const ZxStep *s, ZbErr *err);
uint64_t zx_engine_bytes(const ZxEngine *e); /* planned = allocated */
uint64_t zx_engine_untouched(const ZxEngine *e); /* of the host's memory, at start-up: what steps are going to touch */
/* Lines for people: how ranks exchange, what of the device's memory is taken beside the arena. Nothing for the host. */
void zx_engine_tell(const ZxEngine *e, ZbText *out);
/* Seconds by op so far on this rank, indexed by ZgOp; [ZG_OP_COUNT]: optimizer, [+1]: waiting. */
const double *zx_engine_times(const ZxEngine *e);
/* With `times`, indexed alike: what that was for. FLOPs are those of products and attention; bytes those of operands and
 * results, each moved once, of a collective those of its whole tensor. `bound`: the seconds that this takes at the peaks at least,
 * each call the longer of its FLOPs and its bytes; 0: not known. */
typedef struct { double flops, bytes, bound, bound_by_flops; } ZxWork;
const ZxWork *zx_engine_work(const ZxEngine *e);
/* With `times`, the calls that took the longest: of one op, from one place in the source, in one phase and with results of
 * one type. */
typedef struct {
  int op;
  bool joined; /* with a chain, in one */
  uint32_t loc;
  const char *phase; /* "forward", "backward", "count" */
  const ZgType *type;
  uint64_t calls;
  double seconds;
  ZxWork work;
} ZxCallTime;
uint32_t zx_engine_calls(const ZxEngine *e, ZxCallTime *out, uint32_t most); /* how many there are of them */
typedef struct { double flops, bytes; } ZxPeaks; /* of this rank's device, a second; 0: not known */
/* Between steps: times and work count from here on, against these peaks. */
void zx_engine_count_anew(ZxEngine *e, const ZxPeaks *p);

/* ---- learning rates ------------------------------------------------------------------------------------------------ */
typedef enum { ZX_CONSTANT, ZX_LINEAR, ZX_COSINE } ZxAnneal;
typedef struct { double lr; int64_t warmup, until; ZxAnneal anneal; double final; } ZxRate;
/* Rate of step 1, 2, ...: linear from lr/warmup, then annealed to final*lr at step `until`, constant after. */
double zx_rate(const ZxRate *r, int64_t step);

#endif
