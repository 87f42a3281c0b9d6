/* What the engine's files share. They are floors: each calls those below it, and none of those above.
 *
 * beside.c      an engine in the arena of another
 * generate.c    a step of generation
 * engine.c      set-up and end; what it does collectively; setup.c what it needs of a device
 * capture.c     a step; steps that are queued once and played again
 * play.c        the program of a step, instruction by instruction
 * compute.c     an instruction of the compute queue, by
 *   node.c        one node of a local program: a kernel, or collective.c, ring.c, halo.c; nodes that are played in rounds
 *   cut.c         ... that is called once for each piece of a zigzag axis
 *   rows.c        rows of experts to and from the ranks that have them
 *   tokens.c      steps of generation: sizes of their calls, and their inputs
 *   feed.c        data into input blocks
 *   grads.c       what of a gradient is cleared, what is written first
 *   optimizer.c   norm, update
 *   averages.c    averages in the parameters' place, and back
 *   muon.c        updates that pass through whole matrices
 *   profile.c     what operations had to do, beside how long they took
 * trace.c       what was done when
 * queues.c      the other two queues, which go on while compute works; waits
 * exchange.c    how an instruction of theirs starts, and what is left to do at its end
 *   narrow.c      gradients that travel in bf16
 * nan.c         where a step has its first NaN
 * stall.c       what is said of a wait that lasts
 * fallback.c    which calls are not done in the fastest way, and what that costs
 * buffers.c     where things lie in the arena
 *
 * The room on top of this one, state/, reads it too. */
#ifndef ZUG_EXEC_ENGINE_INTERNAL_H
#define ZUG_EXEC_ENGINE_INTERNAL_H

#include "runtime/exec/engine/engine.h"
#include "runtime/plan/text.h"

/* Where a bucket lies that a running instruction uses. */
typedef struct {
  char *param, *grad; /* grad: of a backward */
  bool first_write;   /* there is nothing yet in `grad` */
} ZxHeldAt;

/* Where the parts of a running instruction lie. */
typedef struct {
  char *scratch, *saved, *inputs, *caches, *carry_in, *carry_out, *dcarry_in, *dcarry_out;
  const ZxHeldAt *held; /* per bucket of the segment */
  uint32_t mb, iter;    /* micro-batch; iteration of the repeat */
} ZxFrame;

/* The calls of a segment's lists, one a node: the plan's, with what differs from rank to rank, and the
 * pointers and the first writes of the instruction that runs. */
typedef struct {
  uint16_t axis; /* ZP_NO_AXIS: it is one call */
  int64_t size;  /* of the axis in views that have the rank's part of it */
  ZpPiece piece[ZP_PIECES];
} ZxCut;
typedef struct {
  ZkCall *of[ZP_PHASES];
  ZxCut *cut[ZP_PHASES];
} ZxCalls;

/* What a rank stores of a held bucket: its buffers of kinds PARAM, GRAD and STATE. */
typedef struct {
  const ZpBuf *of[ZP_B_STATE - ZP_B_PARAM + 1];
} ZxStored;

typedef struct {
  uint64_t from, to;
} ZxRange; /* elements of a bucket */
typedef struct {
  ZxRange *range;
  uint32_t n;
} ZxClear;

/* The parts of the plan's two blocks of scalars, which are on the device. */
typedef struct {
  double *loss;          /* the numerator of each loss */
  double *aux, *squares; /* auxiliary losses, squared norm of the gradient */
  double *denominator;   /* of each loss */
  double *sizes;         /* of parameters to whose size updates are relative, their squared norms */
  double *lost;          /* not summed; of this rank: 1 if its update left something that is not finite */
  uint64_t bytes;        /* of all of them, which lie one behind the other */
} ZxSums;
typedef struct {
  double *denominator; /* of each loss */
  float *seed;         /* 1/denominator and 1/micro-batches: see zp_seed_index */
  ZkStepState *step_state;
} ZxCount;

/* Whether steps are captured: no; once one was played; in this step; they are. */
typedef enum { ZX_CAPTURE_NEVER, ZX_CAPTURE_LATER, ZX_CAPTURE_NEXT, ZX_CAPTURED } ZxCapture;

/* Classes of steps by their sizes: each is captured for itself, but for the last one. Training has one. (tokens.c) */
enum { ZX_CLASSES = ZX_GRAPHS };

/* This rank's part of an output of the model, after a forward. */
typedef struct {
  uint32_t output; /* of the graph */
  const ZpValue *value;
  uint32_t mb, iter; /* micro-batch; iteration of a repeat */
  const void *data;  /* on the host, until the next one; of a plan that generates, where the device has it */
} ZxOutput;

/* A collective of a node that is under way. */
typedef struct {
  const ZpSegment *segment;
  const ZpNode *node;
  const ZkCall *call;
  ZxRequest request;
  uint32_t slot; /* of the node events */
} ZxBeside;

typedef struct ZxLook ZxLook;
typedef struct ZxSizes ZxSizes;
typedef struct ZxRows ZxRows;

struct ZxEngine {
  /* ---- what it was made of: engine.c ---- */
  ZbArena *a;
  const ZpPlan *p;
  ZxEngineOptions o;
  const ZxDeviceTable *dev; /* = o.device */
  ZkEnv *env;               /* = o.env */
  int64_t rank;
  uint32_t stage;
  const ZpStage *st;
  int64_t begin_step, begin_sample; /* steps made before this run, samples that they took */
  uint32_t nlosses;                 /* of the model */

  ZxEngine *beside; /* in whose arena this one plays, or NULL */

  /* ---- memory: setup.c, buffers.c ---- */
  char *arena;
  uint64_t arena_bytes;
  ZxStored *stored;           /* per held bucket */
  ZkDraws **draws;            /* the same, and per slice, where gradients are added up in bf16 */
  const ZpBuf *caches;        /* of a plan that generates; NULL: there are none */
  uint64_t high;              /* highest byte handed out */
  ZxSums sums;                /* in the arena */
  ZxCount count;              /* in the arena */
  char *host;                 /* what the plan has of the host's memory; NULL: nothing */
  ZkStepState *step_state;    /* on the host: what comes with a step, */
  ZxSums step_sums;           /* and its sums */
  const ZpBuf *pinned_inputs; /* the plan's `npinned` */
  uint32_t pinned_event;      /* the latest inputs' upload */
  uint32_t call_event;        /* the call just made, where the host waits for it */
  uint32_t rows_event;        /* three of them: the latest uploads of tables of rows (rows.c) */
  uint32_t ring_event;        /* two of them: before a transfer of a ring and behind it (ring.c) */
  /* Before a collective of a node; behind it, one for each that may be under way, and one. */
  uint32_t node_event;
  uint32_t staged_event; /* the first of a staged communicator */
  struct {
    uint64_t total;
    uint64_t at[4]; /* unused at first, after all calls were prepared, with the arena, with communicators */
  } device_memory_use;

  /* ---- communicators: engine.c, setup.c ---- */
  ZxComm *world;           /* of the host's memory */
  ZxComm *c;               /* of the arena's */
  const char *comm_reason; /* why that is none of the device's memory */
  bool in_order;           /* all that is queued is, in the order of the program */
  /* Groups by set of dims; -1: not made. Nodes and the collective queue have groups of their own, as they
   * have queues: each keeps its order on all ranks, but how the two interleave depends on timing and so
   * differs from rank to rank. */
  ZxGroup group[1 << ZP_MAX_DIMS], node_group[1 << ZP_MAX_DIMS];
  ZxGroup ring_group[1 << ZP_MAX_DIMS]; /* where a device's streams order transfers */
  ZxGroup *tied;                        /* per p->programs.tied */

  /* ---- outputs, where the plan has them: node.c; who takes them is state/'s to say ---- */
  bool (*take_output)(ZxEngine *e, const ZxOutput *x); /* false: e->err says why */
  void *take_ctx;
  const int32_t *source; /* of a sequence that is admitted: admit.c */
  void *output_room;     /* on the host; NULL: the device is the host */

  /* ---- the step: capture.c ---- */
  int64_t step;
  ZxStep out;
  ZbErr *err;
  bool failed;
  ZxCapture capture[ZX_CLASSES];
  uint32_t class;                /* of this step */
  const char *no_capture_reason; /* of ZX_CAPTURE_NEVER */
  bool capturing;                /* what is queued is not done now */

  /* ---- the queues: play.c, queues.c ---- */
  bool playing, polling; /* within a step: only then do the queues move; they are moving */
  bool *done;            /* per instruction */
  ZxRequest *request;    /* per instruction */
  uint32_t head[ZP_QUEUES];
  uint32_t *flight, nflight;            /* instructions under way */
  uint32_t at;                          /* the compute instruction that is played or waits; ZP_NONE: none */
  const ZpNode *node;                   /* the node of its lists that is done or waited for */
  ZxBeside beside_calls[ZP_MOST_ASYNC]; /* collectives of its list that are under way */
  uint32_t nbeside;

  /* ---- compute: compute.c, feed.c, grads.c, optimizer.c ---- */
  ZxCalls *calls;    /* per segment */
  ZxHeldAt *held_at; /* of the running instruction's frame: as many as any segment of the stage has buckets */
  float *row;        /* one row of an input as the file has it */
  ZxClear **clear;   /* per segment, per bucket of it: what its backward does not set */
  const ZxClear *
      *first_user;     /* per held bucket: that of the backward which comes first in a step; NULL: none */
  bool *first_write;   /* per held bucket: no backward of this step has touched its gradient */
  ZpMatrix **matrices; /* per bucket template: those that Muon orthogonalises, of all owners */
  uint32_t *nmatrices;
  ZxScalars clip, unclipped; /* for gradients; for what is made of them */

  ZxSizes *sizes; /* of a plan that generates: tokens.c */

  ZxLook *look; /* a step is played again to look for NaNs, and updates nothing; NULL: no */

  ZxRows *
      rows; /* what ranks know of each other's rows of experts; NULL: none that they share or that a device has */

  /* ---- where time goes: profile.c ---- */
  double times[ZG_OP_COUNT + 2];
  ZxWork work[ZG_OP_COUNT + 2];
  double *predicted; /* seconds of the calls in `timed`; NULL: no cluster */
  ZxCallTime *timed; /* where calls are timed: those of all lists of segments, one after the other, ... */
  uint32_t ntimed, *timed_at; /* ... from here on for each list */
  ZpPeaks peak;

  /* ---- what was done when: trace.c ---- */
  bool tracing; /* this step is */
  ZpSpan *span;
  uint64_t nspans, spans_most;
  uint32_t *span_of; /* of the step that is traced, per instruction */

  /* ---- files: state/ ---- */
  ZbOut *save; /* reserved: rank 0's temporary, on the others a share in it */
};

/* ---- capture.c ---- */
uint64_t zx_step_state_bytes(const ZxEngine *e);
void zx_open_capture(ZxEngine *e); /* collective */
void zx_close_capture(ZxEngine *e);
void zx_step(ZxEngine *e);
/* Collective: the step just made once more, queued anew, while e->look keeps it from updating anything. */
void zx_step_again(ZxEngine *e);

/* ---- engine.c ---- */
/* An engine of the plan for this rank, with its calls; and what it keeps of the arena and of a program. */
ZxEngine *zx_engine_of(ZbArena *a, const ZpPlan *p, ZxComm *c, const ZxEngineOptions *o);
/* Adds the groups that any rank's program uses and this engine has not, in one order on all ranks. Collective. */
void zx_make_groups(ZxEngine *e);
void zx_engine_room(ZxEngine *e);

/* ---- setup.c ---- */
bool zx_open_memory(ZxEngine *e, ZbErr *err);  /* the arena, and a block to reach it through */
bool zx_open_outputs(ZxEngine *e, ZbErr *err); /* room on the host for the largest output */
bool zx_open_events(ZxEngine *e, ZbErr *err);
void zx_open_comm(ZxEngine *e);           /* collective */
void zx_connect(ZxEngine *e);             /* collective */
bool zx_prepare(ZxEngine *e, ZbErr *err); /* all calls of the stage */
void zx_settle(ZxEngine *e);              /* collective, after it */

/* ---- fallback.c ---- */
/* What it costs that ranks exchange by way of the host; that steps are queued anew. Added to a line. */
void zx_say_staged(const ZxEngine *e, const ZlCluster *c, ZbText *out);
void zx_say_queued(const ZxEngine *e, ZbText *out);
double zx_step_calls(const ZxEngine *e); /* of a step, about */

/* ---- play.c ---- */
void zx_play(ZxEngine *e);     /* queues all instructions of one step */
void zx_end_step(ZxEngine *e); /* waits for them, and takes in their sums */

/* ---- compute.c ---- */
void zx_compute(ZxEngine *e, const ZpInstr *in);

/* ---- nan.c ---- */
/* Collective, around a step that is played again (zx_step_again): begins, false if there is no memory for it;
 * ends, and says which operation made the first NaN, false if none did. */
bool zx_look_begin(ZxEngine *e);
bool zx_look_end(ZxEngine *e, ZbText *out);
void zx_look_node(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c, ZpPhase phase,
                  const ZxFrame *f);

/* ---- cut.c ---- */
/* How a node is called that knows places, where the rank's part of an axis is two pieces of the whole; and its
 * call of piece i. */
ZxCut zx_cut(const ZxEngine *e, const ZpSegment *s, const ZpNode *n);
ZkCall zx_cut_call(const ZkCall *c, const ZxCut *cut, int i);

/* ---- node.c, collective.c, ring.c, halo.c ---- */
void zx_make_calls(ZxEngine *e); /* of the stage's segments */
/* A call as a step will make it, as far as a device may look: of pointers, how they are aligned. There is no
 * arena yet; where the parts of an instruction will begin is a multiple of 64. */
void zx_give_addresses(const ZpSegment *s, const ZpNode *n, ZkCall *c);
/* Lets the device prepare them; what it cannot do, with where that comes from. */
bool zx_prepare_calls(ZxEngine *e, ZbErr *err);
void zx_run_list(ZxEngine *e, uint32_t segment, ZpPhase phase, const ZxFrame *f);
/* A node over mesh dims, by its call with pointers; one that begins and ends (zp_begins): begins,
 * what is to be known for its end; and waits for it. */
void zx_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call);
void zx_begin_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call, ZxBeside *to);
void zx_end_collective(ZxEngine *e, const ZxBeside *x);
/* Around what groups of nodes do: their stream instead of compute's, behind what that has so far; back; and
 * compute behind it. Slots: those of collectives under way, and ZP_MOST_ASYNC for others. */
void zx_enter_nodes(ZxEngine *e);
void zx_leave_nodes(ZxEngine *e, uint32_t slot);
void zx_join_nodes(ZxEngine *e, uint32_t slot, ZxRequest r);
/* views.c: the number of an axis; elements from..from+n of it; the same tensor, dense at p; a copy. */
int zx_axis_of(const ZkView *v, uint16_t axis);
ZkView zx_slice_view(const ZkView *v, uint16_t axis, int64_t from, int64_t n);
ZkView zx_dense_view(const ZkView *v, void *p, ZkElem elem);
void zx_copy_view(ZxEngine *e, ZkView from, ZkView to);
/* halo.c: a shift along an axis of which each rank has a part (zp_is_halo). */
void zx_halo(ZxEngine *e, const ZpNode *n, const ZkCall *call);
/* ring.c: attend, or its gradient, of a sequence that ranks share (zp_is_ring). */
void zx_ring(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call);
bool zx_prepare_ring(ZxEngine *e, const ZkCall *call, ZbErr *err); /* the calls that it will make */

/* ---- rows.c: rounds, dispatch and combine over mesh dims ---- */
bool zx_open_rows(ZxEngine *e, ZbErr *err); /* at set-up, for all of them; false: no room */
void zx_close_rows(ZxEngine *e);
/* Before the first round, by its ROUND with pointers: how many rounds all rows take; one if there are none,
 * which makes zeros. */
int64_t zx_count_rounds(ZxEngine *e, const ZpNode *n, const ZkCall *c);
void zx_begin_round(ZxEngine *e, const ZkCall *c);
void zx_exchange_rows(ZxEngine *e, const ZpNode *n, const ZkCall *c);
uint64_t zx_rows_moved(const ZxEngine *e); /* bytes of the rank's rows that the last one was of */

/* ---- feed.c ---- */
bool zx_feed(ZxEngine *e, char *inputs, uint32_t mb);
bool zx_feed_all(ZxEngine *e); /* a captured step's inputs, of all micro-batches, into pinned memory */
void zx_open_inputs(ZxEngine *e);
typedef struct {
  const char *input;
  uint64_t sample; /* of the run */
  const char *file;
  uint64_t record; /* of the file */
} ZxBadInput;
/* Collective: the first sample of this step of which an input is not finite. False: there is none. */
bool zx_bad_input(ZxEngine *e, ZxBadInput *out);
/* Number, in the run, of the first sample of a value that this rank has of a micro-batch of this step. */
int64_t zx_first_sample(const ZxEngine *e, const ZpValue *v, uint32_t mb);

/* ---- grads.c ---- */
void zx_make_clears(ZxEngine *e);
void zx_begin_grads(ZxEngine *e); /* of a step: clears what no backward sets */
/* Before the backward of an instance adds to the gradient of its bucket i at `grads`: clears it as far as
 * needed if it is staged there (else `staged` is NULL); true if there is nothing in it yet. */
bool zx_begin_backward(ZxEngine *e, uint32_t inst, uint32_t i, const ZpAccess *staged, char *grads);

/* ---- accumulate.c ---- */
void zx_make_draws(ZxEngine *e); /* at set-up */
/* Adds a micro-batch's gradient of a whole bucket, as far as this rank accumulates it, to the sum in bf16. */
void zx_accumulate(ZxEngine *e, const ZpInstr *in, const float *all);

/* ---- optimizer.c ---- */
void zx_norm_local(ZxEngine *e); /* adds to the squared norm */
/* Plays the calls of a held bucket's OPT_STEP; update: what Muon made of its gradients, or NULL. */
void zx_optimize(ZxEngine *e, const ZpStageBucket *h, const ZkFlat *update);
/* The update of elements of a held bucket from `at` of the owned shard on, all of one group. */
ZkOptimizer zx_call_of(const ZxEngine *e, const ZpStageBucket *h, uint32_t group, uint64_t at);

/* Where, among the step's sums, a parameter's sum of squares is, to whose size updates are relative. */
double *zx_size_of(const ZxEngine *e, const ZpStageBucket *h, uint32_t param);

/* ---- averages.c ---- */
/* Lets parameters and the averages that an optimizer keeps to be used in their place change places; the device is done
 * then. */
bool zx_trade_averages(ZxEngine *e, ZbErr *err);

/* ---- tokens.c ---- */
void zx_open_sizes(ZxEngine *e); /* at set-up, of a plan that generates */
/* A step begins: its calls get their sizes. Returns whether they are to be prepared, since they have not had them
 * before. */
bool zx_begin_tokens(ZxEngine *e, const ZxTokens *now);
/* Returns where a cache lies among those of an instance of the segment; NULL: it has none that anybody uses. */
const ZpValue *zx_cache_of(const ZpSegment *g, uint32_t cache);
bool zx_feed_tokens(ZxEngine *e, char *inputs);
int zx_captured_tokens(void);          /* most of a step that is captured */
void zx_bring_logits(ZxEngine *e);     /* to the host, behind all that the step has queued */
ZxLogits zx_logits(const ZxEngine *e); /* of that step, when it is done */
/* Bytes of a transfer between stages: of a carried tuple, those of the step's tokens. */
uint64_t zx_carried_bytes(const ZxEngine *e, const ZpInstr *in);

/* ---- muon.c: MOMENTUM, ORTHOGONALIZE, OPT_STEP of what Muon updates ---- */
void zx_make_matrices(ZxEngine *e); /* at set-up */
void zx_momentum(ZxEngine *e, const ZpInstr *in);
void zx_orthogonalize(ZxEngine *e, const ZpInstr *in);
void zx_muon(ZxEngine *e, const ZpInstr *in);

/* ---- profile.c: where calls are timed, adds what one had to do ---- */
void zx_profile_open(ZxEngine *e);
/* Node i of a segment's list; adds: its call accumulates; again: in another round than the first; sent: bytes
 * of a collective. */
void zx_profile_node(ZxEngine *e, uint32_t segment, ZpPhase phase, uint32_t i, bool adds, bool again,
                     uint64_t sent, double seconds);
void zx_profile_norm(ZxEngine *e);
void zx_profile_update(ZxEngine *e, const ZpStageBucket *h);
void zx_profile_muon(ZxEngine *e, const ZpInstr *in); /* MOMENTUM, ORTHOGONALIZE */

/* ---- trace.c ---- */
bool zx_trace_room(ZxEngine *e, ZbErr *err); /* at set-up */
void zx_trace_step(ZxEngine *e);             /* a step begins */
void zx_trace_begin(ZxEngine *e, uint32_t instr);
void zx_trace_end(ZxEngine *e, uint32_t instr);
/* A collective of the running instruction's list, and bytes as ZpSpan has them. */
void zx_trace_node(ZxEngine *e, uint32_t node, uint64_t bytes, double begin, double end);

/* ---- queues.c ---- */
/* Whether all that the instruction waits for is done. */
bool zx_ready(const ZxEngine *e, uint32_t instr);
void zx_enter(ZxEngine *e, const ZpInstr *in); /* before it is queued: its stream, in order after others */
void zx_leave(ZxEngine *e, uint32_t instr);    /* after it: it is done, for those that wait for it */
void zx_complete(ZxEngine *e,
                 uint32_t instr); /* a transfer or collective is complete: what is left to do, and out */
/* Advances the transfer and collective queues without waiting. True if anything moved. */
bool zx_poll(ZxEngine *e);
/* Waits for a request while the queues go on; yields, then sleeps. */
void zx_await(ZxEngine *e, ZxRequest r);
/* Waits for an event of the device while the queues go on. */
void zx_await_event(ZxEngine *e, uint32_t event);
/* Waits for all that the device has to do. */
bool zx_finish(ZxEngine *e, ZbErr *err);
/* Where every call is timed: waits for the current stream while the queues go on. */
void zx_finish_call(ZxEngine *e);

/* ---- exchange.c ---- */
ZxRequest zx_start_exchange(ZxEngine *e, const ZpInstr *in);
void zx_finish_exchange(ZxEngine *e, const ZpInstr *in);

/* ---- narrow.c ---- */
/* Whether the instruction sums gradients of the bucket in bf16. */
bool zx_travels_narrow(const ZpInstr *in, const ZpBucket *k);
/* n elements of f32 to bf16, from the same byte on. */
void zx_narrow(ZxEngine *e, float *x, uint64_t n);
/* And back: to x, which begins where they do, or behind them. */
void zx_widen(ZxEngine *e, const uint16_t *half, float *x, uint64_t n);

/* ---- stall.c ---- */
/* A pause in a wait for a request, for the queues or for the device, which tells when that lasts; and what
 * comes when something has moved. */
enum { ZX_FOR_QUEUES = -2, ZX_FOR_DEVICE = -3 };
void zx_relax(ZxEngine *e, ZxWait *w, ZxRequest r);
void zx_moved(ZxEngine *e, ZxWait *w);

/* ---- buffers.c ---- */
char *zx_buf_at(ZxEngine *e, const ZpBuf *b);
/* The instruction's access of a buffer of this kind and pool (ZP_NONE: any); NULL: it has none. The buffer's
 * memory. The same, where it must have one. */
const ZpAccess *zx_find_access(const ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool);
char *zx_find_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool);
char *zx_need_buf(ZxEngine *e, const ZpInstr *in, ZpBufKind kind, uint32_t pool);
void zx_find_stored(ZxEngine *e); /* at set-up */
/* Where what is stored of a held bucket lies: its buffer of kind PARAM, GRAD or STATE. */
/* Returns where the caches of an instance lie; NULL: the plan has none. */
char *zx_caches(ZxEngine *e, uint32_t inst);
char *zx_stored(const ZxEngine *e, ZpBufKind kind, const ZpStageBucket *h);
/* "layer.3.attn.wq": the path of iteration `iter`. */
const char *zx_path(ZxEngine *e, uint32_t param, uint32_t iter);
/* The owned shard of a held bucket, what this rank updates and saves: elements from..to of the bucket, */
void zx_owned_shard(const ZxEngine *e, const ZpStageBucket *h, uint64_t *from, uint64_t *to);
/* whether it is frozen: of its values there are those that are computed with alone, */
bool zx_is_frozen(const ZxEngine *e, const ZpStageBucket *h);
/* whether these are in another format than f32, and nothing says what is missing to f32, */
bool zx_lacks_master(const ZxEngine *e, const ZpStageBucket *h);
/* its f32 values, its gradients, and whether this rank speaks for it. */
ZkMaster zx_master(const ZxEngine *e, const ZpStageBucket *h);
ZkFlat zx_grads(const ZxEngine *e, const ZpStageBucket *h);
/* its bf16 values; NULL: it has none. */
uint16_t *zx_rounded(const ZxEngine *e, const ZpStageBucket *h);
/* its state number `state` from 0 on, which is f32. */
float *zx_state(const ZxEngine *e, const ZpStageBucket *h, int state);
float *zx_moments(const ZxEngine *e, const ZpStageBucket *h); /* of rows and columns of its matrices */
/* Returns a part of the owned shard in its format: ZP_PART_ROUNDED, ZP_PART_VALUES, or a state from 1 on. */
ZkFlat zx_part(const ZxEngine *e, const ZpStageBucket *h, int part);
bool zx_is_norm_owner(const ZxEngine *e, const ZpStageBucket *h);
/* Of the owned shard, the part that this rank writes into checkpoints: every element of the model is in that
 * of exactly one rank. False: it has none. */
bool zx_spoken_part(const ZxEngine *e, const ZpStageBucket *h, uint64_t *from, uint64_t *to);

#endif
