/* runtime/plan: stage graph + recipe -> checked programs. Pure: no MPI, no devices, no files; the same call
 * gives the same plan on a laptop and on every rank of a cluster.
 *
 * Headers, each on those before it:
 * mesh.h       ranks and their coordinates
 * values.h     local programs: values, nodes, segments; buckets of parameters
 * program.h    stages, instruction lists, buffers, the ledger; instr.def, ledger.def
 * steps.h      what a step of generation has beside a model: axes, inputs, caches; its sizes
 * plan.h       the plan, and who makes it
 * text.h       the names of its things, tables, JSON, traces, digests
 *
 * Rooms, from the ground up; each calls only those before it (tests/scenarios/rooms.sh):
 * mesh/        coordinates, groups, parts of axes, nodes of a cluster, learning rates, names
 * meaning/     the proof that local programs compute what the graph says; meaning.h
 * check/       the other proofs, which share nothing but mesh/ with those that made the plan; check.h
 * bind/        the recipe against the graph: sizes, layouts, directives; bind.h
 * stream/      the graph of a step of generation, which makes tokens of several sequences, and its caches; stream.h
 * local/       a segment of the graph to a local program: sharded, fused, its values at offsets; local.h
 * schedule/    local programs to stages, orders, one instruction list per stage, its buffers and ledger;
 *              what is stashed for backward, since memory allows; what ranks hold alike; schedule.h
 * time/        how long a step takes on a cluster; time.h
 * output/      tables, for people and as JSON, traces, a page to look at, whether two plans are the same
 * plan.c       the passes in order
 * search/      the fastest recipes of a model on a cluster; search.h
 * zplan.c      the program */
#ifndef ZUG_PLAN_H
#define ZUG_PLAN_H

#include "kernels/optimize.h"
#include "lang/lang.h"
#include "runtime/plan/program.h"
#include "runtime/plan/steps.h"

/* ---- the plan ------------------------------------------------------------------------------------------ */
/* Learning rates: rising linearly from lr/warmup for `warmup` steps, constant for `stable` steps, and then
 * as `anneal` says: down to final*lr at step `until`, which it keeps, or as the inverse square root of the
 * step. */
typedef enum { ZP_CONSTANT, ZP_LINEAR, ZP_COSINE, ZP_SQRT, ZP_RSQRT, ZP_ANNEALS } ZpAnneal;
extern const char *const zp_anneal_text[ZP_ANNEALS];
typedef struct {
  double lr;
  int64_t warmup, stable, until;
  ZpAnneal anneal;
  double final;
} ZpRate;
double zp_rate(const ZpRate *r, int64_t step); /* of step 1, 2, ... */
/* Says where a run of so many steps and the rate's own are at odds: it ends before the warm-up or before
 * `until`, or goes on when the rate is 0. False: nowhere. */
bool zp_rate_note(const ZpRate *r, int64_t steps, ZbText *out);

#define ZP_UPDATE ZK_OPTIMIZERS /* what updates states: the last of a plan's optimizers, if it has any */
const char *zp_optimizer_text(ZkOptimizerKind kind); /* "adamw" */
enum { ZP_MOST_STATES = ZK_MOST_STATES + 1 };        /* of an optimizer */
typedef enum {
  ZP_SECOND_OFF,
  ZP_SECOND_ROWS,
  ZP_SECOND_LONGER,
  ZP_SECOND_BOTH
} ZpSecond; /* BOTH: ADAFACTOR */
typedef struct {
  ZkOptimizerKind kind;
  ZpRate rate;
  /* Its settings, in the order of its row: numbers; of words 1 or 0. */
  ZlAmount set[ZK_MOST_SETTINGS];
  int states;     /* values that it keeps of each element: those of its row, then sums of gradients */
  bool cautious;  /* decay where the step does not point away from 0 */
  int64_t every;  /* it acts in every so manieth step, on summed gradients */
  bool rms;       /* MUON: scaled to the size of AdamW's updates, else by the matrix' shape */
  int iterations; /* MUON: of what orthogonalises, */
  ZkCoefficients coefficients; /* MUON: and by which polynomials */
  bool even, snapped;          /* MUON: rows are made even before, and the norm exact afterwards */
  ZpSecond second;             /* MUON: of which sides second moments are kept */
  bool relative; /* ADAFACTOR: updates are times the root of the mean square of the parameter, or `least` */
  double least;
  double most, eps; /* ADAFACTOR: root of the mean square of an update, and what is added to squares */
  uint8_t state_elem[ZP_MOST_STATES]; /* ZkElem of each state: f32, or one with blocks */
} ZpOptimizer;
/* Returns whether it updates matrices whole, one by one. */
static inline bool zp_takes_matrices(const ZpOptimizer *o) {
  return o->kind != ZP_UPDATE && zk_optimizer_info[o->kind].matrices;
}
/* Returns whether it multiplies rows or columns of these by a number each. */
static inline bool zp_scales_sides(const ZpOptimizer *o) { return o->even || o->snapped || o->second; }
/* Parameters that one optimizer updates alike: with this multiple of its rate, and this decay; states: by
 * this. */
typedef struct {
  uint32_t optimizer;
  double rate;
  ZlAmount decay;
  const ZgUpdate *update;
} ZpGroup;
/* Fills in what an update takes of a step: the scalars of a group, as many as ZK_MOST_SCALARS. */
void zp_group_scalars(const ZpOptimizer *o, const ZpGroup *g, int64_t step, float *out);
/* Values with axis `classes` are computed in chunks of `rows`. The plan's own graph parts these rows into
 * `up`, which lies and is split as they are, and the axes numbered behind it. ZG_NO_AXIS, all three: no
 * chunks. */
typedef struct {
  uint16_t classes, rows, up;
} ZpChunk;

/* The request: recipe and options, resolved against the graph. */
/* clang-format off */
typedef struct {
  const ZlRecipe *recipe;    /* for messages: its name and places */
  /* Only COUNT and FWD: for evaluation. A step is one batch; nothing is saved, and no gradients, masters or
   * optimizer states are held. */
  bool forward_only;
  const struct ZpPlan *eval_of; /* forward_only: the training plan in whose arena this one's is, or NULL */
  bool outputs;              /* forward_only: FWD makes the model's outputs, each a sink `output` */
  uint32_t batch;            /* the sample axis, or ZP_NONE */
  int64_t global_batch, nmicro; /* samples per step; micro-batches per step (M) */
  bool tf32;                 /* f32, and a device may round the operands of products to 11 bits */
  bool pins, checkpoints, repeatable; /* as ZpOptions has them, */
  size_t (*scratch)(const ZkCall *call, int threads); int threads; /* and these */
  const char *schedule;      /* "1f1b": of lang/schedules.def */
  ZpOptimizer *optimizers; uint32_t noptimizers; /* none may be there in a plan that only goes forward */
  ZpGroup *groups; uint32_t ngroups;
  uint32_t *group;           /* per parameter: of `groups` */
  bool *frozen;              /* per parameter: not trained; NULL: all are */
  ZpPacked *packed;          /* per parameter; NULL: none is */
  double clip;               /* norm that gradients are clipped to; 0: they are not */
  double average;            /* decay of the average of parameters, which is one state more; 0: none is kept */
  ZpZero zero;
} ZpAsked;
/* How the model lies on the ranks. */
typedef struct {
  ZpMesh mesh;
  /* Per axis: global; batch: samples of one micro-batch over all ranks; with padding. */
  int64_t *axis_size;
  int64_t *axis_valid;       /* the same without padding */
  uint16_t *lies;            /* per axis: in the place of which one it lies in memory; NULL: its own */
  uint16_t *experts;         /* per axis: whose slots it counts (graph/ragged.h), */
  double *load;              /* and which share of those of a pass is needed on average, over all passes */
  uint8_t (*roles)[ZG_MAX_AXES]; /* per parameter, by declared axis: ZpRole; NULL: nothing is Muon's */
  ZpChunk chunk;
  ZpCotangents *cotangents;  /* one per graph segment */
  /* By loss: dims along which its numerator, its denominator is partial. Aux sums are not. */
  ZpDims num_partial[ZG_MAX_LOSSES], den_partial[ZG_MAX_LOSSES];
  uint64_t room;             /* most bytes of scratch that a call may take (ZkCall), because of the memory limit; 0: any */
} ZpLayout;
/* The result: the programs of ranks, and the place of everything. */
typedef struct {
  ZpSegment *segments;       /* one per graph segment */
  ZpBucket *buckets; uint32_t nbuckets;
  ZpInputUse *inputs; uint32_t ninputs; /* data inputs in every state they are used in */
  ZpTied *tied; uint32_t ntied;
  const ZpStash *stashed; uint32_t nstashed; /* the best first */
  ZpVirtualStage *vstages; uint32_t nvstages; /* by number: in the order of the model */
  ZpStage *stages; uint32_t nstages;
} ZpPrograms;
/* Notes for tables and messages; nothing that runs depends on them. */
typedef struct {
  double model_flops;        /* per step, whole mesh; forward + backward, without recompute */
  double params, trained;    /* elements; of those not frozen */
  const char *order;         /* which parts of positions ranks have, and why, in words; NULL: nothing to say */
  uint32_t not_stashed;      /* values that would be stashed, too, if they fitted */
  uint64_t least;            /* arena of the fullest rank, were nothing stashed */
  double proof_seconds, meaning_seconds; /* that all proofs took, and of these the one of meaning/ */
  uint64_t async_bytes;      /* arena with async collectives, which does not fit: they are awaited; 0: it does */
} ZpNotes;
typedef struct ZpPlan {
  ZbArena *arena;
  const ZgGraph *given;      /* as the compiler made it */
  const ZgGraph *model;      /* the same, or with chunks of logits (ZpChunk) the plan's own; */
  const ZgGraph *graph;      /* and with recurrences in chunks, if these are split (local/cut_sequences.c) */
  /* The step's graph, which `model` and `graph` are then, and its sizes. NULL: the plan trains or evaluates.
   * pages[group]: how many pages a group of `stream` has. */
  const ZpStream *stream;
  ZpGenerating generating;
  int64_t *pages;
  /* The plan of what belongs to a sequence alone, for the longest source; NULL: nothing does, or this is no
   * step's. */
  const struct ZpPlan *admission;
  const struct ZpPlan *admits; /* this plan is the admission of that one's sequences; NULL: it is not */
  ZpAsked asked;
  ZpLayout layout;
  ZpPrograms programs;
  ZpNotes notes;
} ZpPlan;
/* clang-format on */

/* ---- mesh/vstages.c ------------------------------------------------------------------------------------ */
/* Returns the virtual stages of so many ranks in a pipeline, by number, with their owners and nothing
 * else. */
ZpVirtualStage *zp_place_vstages(ZbArena *a, const char *schedule, uint32_t ranks, uint32_t *n);
/* Return the neighbour before or after a virtual stage; ZP_NONE: there is none. */
uint32_t zp_vstage_before(const ZpPlan *p, uint32_t v);
uint32_t zp_vstage_after(const ZpPlan *p, uint32_t v);
/* Returns the stage whose ranks own a virtual stage; of ZP_NONE, ZP_NONE. */
uint32_t zp_owner(const ZpPlan *p, uint32_t v);
/* Returns the virtual stage that has an instance of a stage. */
const ZpVirtualStage *zp_vstage_of(const ZpPlan *p, const ZpStage *st, uint32_t inst);
/* Returns the bytes of data inputs per micro-batch, if some virtual stage of the stage reads them, else 0. */
uint64_t zp_input_bytes(const ZpPlan *p, const ZpStage *st);

/* Returns the stage whose ranks have the largest arena, the first of several; NULL: there are no stages
 * yet. */
static inline const ZpStage *zp_fullest(const ZpPlan *p) {
  const ZpStage *most = p->programs.nstages ? &p->programs.stages[0] : NULL;
  for (uint32_t s = 1; s < p->programs.nstages; s++)
    if (p->programs.stages[s].ledger.total[ZP_DEVICE] > most->ledger.total[ZP_DEVICE])
      most = &p->programs.stages[s];
  return most;
}
/* Dims over which denominators of losses are summed, and how many f64 REDUCE_STEP adds up: loss numerators,
 * aux sums, squared norm, loss denominators. Bytes of each of the two blocks of scalars. */
ZpDims zp_count_dims(const ZpPlan *p);
uint32_t zp_step_sums(const ZpPlan *p);
/* Returns how many parameters have an update relative to their size, each iteration of a repeat by itself; and how many of these
 * come before an iteration of one: their sums of squares are among a step's sums. */
uint32_t zp_sizes(const ZpPlan *p);
uint32_t zp_size_index(const ZpPlan *p, uint32_t param, uint32_t iter);
bool zp_is_relative(const ZpPlan *p, uint32_t param);
uint64_t zp_scalars_bytes(const ZpPlan *p);
/* Returns where the cotangent of a loss lies among the seeds. */
static inline uint32_t zp_seed_index(bool aux, uint32_t loss) { return aux ? 1 : loss ? 1 + loss : 0; }

typedef struct {
  /* Returns the bytes of scratch that a kernel call needs: zk_cpu_scratch with the run's threads, or that of
   * another device. */
  size_t (*scratch)(const ZkCall *call, int threads);
  int threads;
  const ZlCluster *cluster; /* or NULL */
  /* Returns whether the device does this fused or batched call (kernels.h) as one; views are filled except
   * for pointers. NULL: it has none. A pure function: every rank, and zplan, must get the same answer. */
  bool (*supports)(const ZkCall *call);
  /* The device's memory is not the host's: what goes there and comes back passes through pinned memory.
   * What it does is queued on streams, so collectives of local programs go beside its calls
   * (local/overlap.c). */
  bool pins;
  /* Checkpoints will be written: there is memory of the host's for a copy of what a rank writes. */
  bool checkpoints;
  bool repeatable;   /* every run gives the same bits: calls say so (ZkCall), and some take more scratch */
  bool forward_only; /* see ZpPlan */
  /* forward_only: a plan of the same graph, recipe and options. This one's parameters are those that it
   * stores, at the same places; all else lies where `beside` has nothing that outlives a step. */
  const struct ZpPlan *beside;
  bool outputs; /* forward_only: see ZpPlan */
  /* Makes the plan of a step of generation instead: forward_only and `outputs` are implied. NULL: it does not. */
  const ZpGenerating *generates;
  /* The plan of a step, of which this one makes what belongs to a sequence alone; see zp_plan_admission. */
  const struct ZpPlan *admits;
  /* A plan that differs in the number of micro-batches alone: this one has its stages and local programs. */
  const struct ZpPlan *lowers_as;
} ZpOptions;

/* Returns the bytes of the fullest rank's admission, beside its steps. */
static inline uint64_t zp_admission_bytes(const ZpPlan *p) {
  return p->admission ? zp_fullest(p->admission)->ledger.total[ZP_DEVICE] : 0;
}
/* Says whether parameters that the plan's graph does not read are not stored: those of a model are. */
static inline bool zp_stores_read(const ZpPlan *p) { return p->stream || p->admits; }

/* Makes and proves a plan. NULL with reports in `d` if the recipe does not fit the graph or a limit; a plan
 * that fails a proof is a bug of ours and says so (Z0999) with the counter-example. */
ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);
/* Makes the plan of what belongs to a sequence of `steps` alone, its encoder's text and keys of it, for a
 * source of `length` tokens: of the graph stream/admit.c derives, one sample, with what is kept as its
 * outputs. Of the recipe it takes all but sizes; parameters are its own. `beside`: another such plan of
 * `steps`, in whose arena this one's is; NULL: none. `o`: the options of `steps`. NULL with reports. */
ZpPlan *zp_plan_admission(ZbArena *a, const ZpPlan *steps, int64_t length, ZlDiags *d, const ZpOptions *o,
                          const ZpPlan *beside);
/* For those who weigh many recipes (search/), never for an engine: without the proofs; and the local programs
 * and buckets alone, without stages. */
ZpPlan *zp_plan_unproved(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);
ZpPlan *zp_plan_local(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);

/* Rows that a round of experts has room for, over the average, where they are split over ranks and the recipe
 * does not say (slots.c). */
#define ZP_SLOT_FACTOR 1.5
/* How often a run of a list plays its node: of what is between dispatch and combine, once a round; else
 * once. Ranks that have all experts know how many rounds their tokens' choices take: both are that. Of
 * others the tokens say it: `even` if all experts are chosen alike, `most` if one rank's experts have all
 * rows. Fewer where tokens leave choices out. */
typedef struct {
  uint64_t even, most;
} ZpRounds;
ZpRounds zp_rounds(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node);

/* ---- stream/caches.c ----------------------------------------------------------------------------------- */
/* How many bytes caches of a kind take over all iterations where real numbers are `real`: of pages in
 * `group`, of a token; of others, of a sequence, and of one position of the axes whose lengths its own values
 * have. */
uint64_t zp_cache_bytes(const ZpStream *s, ZpCacheKind kind, uint32_t group, ZkElem real);
/* Returns the bytes that a rank of a stage has for caches of a kind, of pages those in `group`. */
uint64_t zp_stage_cache_bytes(const ZpPlan *p, uint32_t stage, ZpCacheKind kind, uint32_t group);

/* ---- stream/bits.c ------------------------------------------------------------------------------------- */
/* Returns the sum for which steps of generation over ranks have other last bits than one rank's, in words; NULL: there is
 * none. */
const char *zp_other_bits(const ZpPlan *p);

/* ---- schedule/simulate.c ------------------------------------------------------------------------------- */
/* Says when every item of all stages' orders starts and ends, in units, if nothing else takes time: forward
 * waits for that of the virtual stage before, backward for that of the one after. Needs of the plan its
 * virtual stages, with their owners, and the number of micro-batches. Returns the end of the last item. */
uint64_t zp_order_clock(const ZpPlan *p, ZbArena *a, ZpOrder *order);

/* ---- buckets.c, program.c, check/ ---------------------------------------------------------------------- */
/* Fills what a bucket does, and how it is cut, from its replicas, its partial dims and p->asked.zero. */
void zp_bucket_storage(const ZpPlan *p, ZpBucket *k);
/* Returns how many states are kept of each element of a bucket: those of its optimizer, then the average. */
int zp_states(const ZpPlan *p, const ZpBucket *k);
/* Returns the state that is what the parameters are to all but the steps that train; -1: they are that themselves. */
int zp_averaged_state(const ZpPlan *p, const ZpBucket *k);
/* Returns whether its parameters are stored in their own format alone, without what is missing to f32. */
static inline bool zp_lacks_master(const ZpPlan *p, const ZpBucket *k) {
  return k->elem != ZK_F32 && (k->frozen || p->asked.forward_only);
}
/* The parts in which a bucket's elements are stored. Returns the end of those that it has, from *first on; and the format
 * of one. Above 0 are states. Values are f32, or low halves (kernels/halves.h) to rounded ones, the high. */
enum { ZP_PART_ROUNDED = -1, ZP_PART_VALUES = 0 };
int zp_held_parts(const ZpPlan *p, const ZpBucket *k, int *first);
ZkElem zp_part_elem(const ZpPlan *p, const ZpBucket *k, int part);
/* Returns a slice of packed weights as kernels see it, without pointer. */
ZkView zp_packed_view(const ZpPlan *p, const ZpSlice *s);
/* Returns the format that a word of the recipe's `precision` names; f32 for NULL, and for tf32. */
ZkElem zp_precision_elem(const char *word);
/* Returns whether the plan has a parameter of the graph: a step of generation has not those that it reads nothing of. */
bool zp_has_param(const ZpPlan *p, uint32_t param);
/* Returns the parameter that lies there, or whose gradient does (ZP_AT_PARAM, ZP_AT_GRAD). */
uint32_t zp_param_at(const ZpPlan *p, const ZpSegment *s, ZpLoc at);
/* Returns whether backward of the segment needs its bucket number `k`: to add to a gradient, or to read. */
bool zp_used_back(const ZpPlan *p, const ZpSegment *s, uint32_t k);
/* Fills the program of every stage from virtual stages, instances, held buckets and the schedule. */
void zp_program(ZpPlan *p);
/* Returns the bytes that a rank stores for one held bucket of a template, each a multiple of 64. The PARAM
 * buffer holds parameters, then master (if there is one). */
uint64_t zp_param_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_master_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_grad_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_state_bytes(const ZpPlan *p, uint32_t bucket);
/* Returns the elements of a bucket that a rank speaks for: its part of those that it owns alike with
 * replicas. What a rank keeps of the host's memory for checkpoints: the values and states of these, f32. */
uint64_t zp_spoken_elems(const ZpPlan *p, uint32_t bucket);
uint64_t zp_snapshot_bytes(const ZpPlan *p, const ZpStage *st);
/* The proofs of a plan; false with the first counter-example in *err. Works on programs alone, so tests can
 * break one and see it caught. */
bool zp_check(const ZpPlan *p, ZbErr *err);
/* The proof of the local programs alone, which the other takes to be as large as they say. */
bool zp_check_segments(const ZpPlan *p, ZbErr *err);
/* The proof that these compute what the graph says, of lists that passed the one before. */
bool zp_check_meaning(const ZpPlan *p, ZbErr *err);
/* Returns how many segments it leaves out, since their axes cannot be made small enough. */
uint32_t zp_parts_unproved(const ZpPlan *p);
/* All of them, with their time in p->notes. A plan that fails is a bug of ours: reports the counter-example. */
bool zp_prove(ZpPlan *p, ZlDiags *d);

/* ---- local/traffic.c ------------------------------------------------------------------------------------- */
/* Returns a collective's whole tensor: as gathered, or before it is reduced or exchanged; around a ring, a
 * rank's keys. */
const ZpValue *zp_node_whole(const ZpSegment *s, const ZpNode *n);
/* Returns the bytes of that tensor; dispatch and combine: a rank's rows in all passes; an attend around a
 * ring and a shift: what the rank sends. */
uint64_t zp_node_bytes(const ZpSegment *s, const ZpNode *n);
/* Returns the same for a run of the list, with all passes if experts are chosen alike. */
uint64_t zp_run_bytes(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node);
/* Returns whether a call that accumulates adds to its result i. */
bool zp_adds_to(const ZpSegment *s, const ZpNode *n, int i);
/* Returns the bytes that a call reads and writes, each operand once; of a table only the rows that are looked
 * up; results that it adds to (`adds`) count twice. */
double zp_moved_bytes(const ZpSegment *s, const ZpNode *n, bool adds);

/* ---- chunk.c ------------------------------------------------------------------------------------------- */
/* Returns the axis of the largest logits that the stage keeps of a micro-batch, and their bytes; NULL: it
 * keeps none that are more than a third of its activations, or the recipe has chunks. */
const char *zp_chunk_proposal(const ZpPlan *p, const ZpStage *st, uint64_t *bytes);

/* ---- muon.c -------------------------------------------------------------------------------------------- */
static inline bool zp_updates_whole(const ZpPlan *p, const ZpBucket *k) {
  return !p->asked.forward_only && !k->frozen && zp_takes_matrices(&p->asked.optimizers[k->optimizer]);
}
/* A matrix of a bucket that is updated whole. */
typedef struct {
  uint32_t slice;
  uint64_t index;     /* among those of the slice, as far as a group along `matrices` has them */
  int64_t rows, cols; /* with padding */
  double valid[2];    /* rows, columns without it */
  /* Where its second moments begin among the bucket's: those of its rows, then of its columns. */
  uint64_t moments;
  uint32_t owner; /* who orthogonalises it: of the group along the bucket's `matrices` */
} ZpMatrix;
ZpMatrix *zp_matrices(const ZpPlan *p, const ZpBucket *k, ZbArena *a, uint32_t *n);
/* Returns how large axis `i` of a slice is over such a group. */
int64_t zp_gathered_size(const ZpPlan *p, const ZpBucket *k, const ZpSlice *s, int i);
/* Returns the factor of such a matrix's update, besides the learning rate, from its sizes without padding. */
double zp_muon_scale(const ZpOptimizer *o, const ZpSlice *s);
/* Returns the bytes of an UPDATE buffer, and of the scratch of an ORTHOGONALIZE. FLOPs of the rank with most
 * to do. */
uint64_t zp_update_bytes(const ZpPlan *p, const ZpBucket *k);
uint64_t zp_orthogonal_scratch(const ZpPlan *p, const ZpBucket *k);
double zp_matrix_flops(const ZpOptimizer *o, const ZpMatrix *m);
double zp_orthogonal_flops(const ZpPlan *p, const ZpBucket *k);
/* Returns the bytes that sweeps over a matrix move beside its products; the most of a rank. */
double zp_matrix_bytes(const ZpOptimizer *o, const ZpMatrix *m);
double zp_orthogonal_bytes(const ZpPlan *p, const ZpBucket *k);
/* Returns whether second moments are kept of the rows (side 0) or columns (1) of a matrix of so many. */
bool zp_keeps_side(const ZpOptimizer *o, double rows, double cols, int side);
/* Returns how many second moments a rank has room for: of all matrices of a bucket, as its group has them. */
uint64_t zp_moments(const ZpPlan *p, const ZpBucket *k);
/* Returns where they begin, in bytes, among a bucket's states. */
uint64_t zp_moments_at(const ZpPlan *p, uint32_t bucket);

/* ---- alike.c: what ranks hold alike, bit for bit, between steps ---------------------------------------- */
/* A kind of groups of ranks: the members of one differ along `dims` alone, and for a tied bucket are on any
 * of its stages. tied: of p->programs.tied; ZP_NONE: members are on one stage. */
typedef struct {
  ZpDims dims;
  uint32_t tied;
} ZpAlike;
/* Returns the kinds whose groups have more than one rank. */
ZpAlike *zp_alike(const ZpPlan *p, ZbArena *a, uint32_t *n);
/* Returns the kind of group that holds a held bucket alike; ZP_NONE: no other rank holds it. */
uint32_t zp_alike_which(const ZpPlan *p, const ZpAlike *list, uint32_t n, const ZpStageBucket *h);
/* Returns how many ranks a group has; its member i, of the group that `rank` is in, -1: it is in none. */
int64_t zp_alike_size(const ZpPlan *p, const ZpAlike *k);
int64_t zp_alike_member(const ZpPlan *p, const ZpAlike *k, int64_t rank, int64_t i);
/* Returns whether members of a group say different numbers, said[rank * stride]. If so, raises odd[rank] (odd
 * may be NULL): a rank differs from more than half of its group, or there is no such half. */
typedef enum { ZP_EVEN, ZP_ODD_OR_NOT, ZP_ODD } ZpOdd;
bool zp_alike_odd(const ZpPlan *p, const ZpAlike *k, const uint64_t *said, uint32_t stride, ZpOdd *odd);
/* Lists what a rank of a stage holds alike in groups of kind `which`, by parameter and part, in one order on
 * all members. Returns how many there are; out may be NULL. */
typedef struct {
  const ZpStageBucket *held;
  const ZpSlice *slice;
  int part;
} ZpAlikeItem;
uint32_t zp_alike_items(const ZpPlan *p, uint32_t stage, const ZpAlike *list, uint32_t n, uint32_t which,
                        ZpAlikeItem *out);

#endif
