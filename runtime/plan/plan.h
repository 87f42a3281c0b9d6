/* runtime/plan: stage graph + recipe -> checked programs. Pure: no MPI, no devices, no files; the same call
 * gives the same plan on a laptop and on every rank of a cluster.
 *
 * plan.c       the passes in order
 * bind.c       recipe against graph: sizes, layouts, directives; batch.c, pad.c, groups.c, select.c; bind.h
 * slots.c      how many rows of experts a round has, and how many rounds there are
 * zigzag.c     which parts of an axis a rank has
 * rate.c       learning rates
 * alike.c      what ranks hold alike
 * chunk.c      logits in chunks of rows
 * muon.c       the matrices that Muon orthogonalises, and who does it
 * local/       a segment of the graph to a local program: sharded, fused, its values at offsets; local.h
 * schedule/    local programs to stages, orders, one instruction list per stage, its buffers and ledger;
 *              schedule.h
 *              Plans of evaluations only go forward: ZpPlan.forward_only, beside
 * check/       the proofs, which share nothing with those that made the plan; check.h
 * output/      tables, for people and as JSON, traces, a page to look at (page.h), whether two plans are the same
 * time/        how long a step takes on a cluster; time.h
 * search/      the fastest recipes of a model on a cluster; search.h
 * keep.c       what is kept for backward, since memory allows
 * mesh.c       ranks and their coordinates
 * words.c      what messages and tables call things; instr.def, ledger.def
 * nodes.c      which ranks go to which node */
#ifndef ZUG_PLAN_H
#define ZUG_PLAN_H

#include "base/base.h"
#include "graph/graph.h"
#include "kernels/kernels.h" /* types only: a plan speaks in kernel calls; nothing of kernels/ is linked */
#include "lang/lang.h"

#define ZP_MAX_DIMS 8
#define ZP_MAX_GROUP 4
#define ZP_NONE UINT32_MAX
#define ZP_NO_AXIS UINT16_MAX
typedef uint32_t ZpDims; /* set of mesh dims, bit d */

/* ---- mesh ---------------------------------------------------------------------------------------------- */
/* Dims slowest-varying first. A dim split by a product (`split kv*grp over tensor`) is two dims here,
 * "tensor.kv" and "tensor.grp". pipe: the dim of `stages over`, or -1. */
typedef struct {
  const char *name;
  int64_t size;
  uint32_t directive; /* dim of the recipe it comes from */
  uint16_t *axes;     /* ordered list of the axes it splits; `else` axes last */
  uint32_t naxes;
  /* The axis that it splits zigzag, or ZP_NO_AXIS: zigzag.c; and the one that stands for it in chunks of
   * logits (ZpChunk's `up`), or ZP_NO_AXIS. */
  uint16_t zigzag, zigzag_up;
} ZpDim;
typedef struct {
  ZpDim dim[ZP_MAX_DIMS];
  int ndims, pipe;
  int64_t nranks;
} ZpMesh;
int64_t zp_coord(const ZpMesh *m, int64_t rank, int dim);
/* Rank's index within, and size of, its group along `dims`; row-major in mesh order. */
int64_t zp_group_index(const ZpMesh *m, int64_t rank, ZpDims dims);
int64_t zp_group_size(const ZpMesh *m, ZpDims dims);
/* The member of its group that has this index. */
int64_t zp_group_member(const ZpMesh *m, int64_t rank, ZpDims dims, int64_t index);
/* A number that is equal for two ranks exactly if they are in the same group along `dims`. */
int64_t zp_group_color(const ZpMesh *m, int64_t rank, ZpDims dims);
bool zp_dim_splits(const ZpDim *d, uint32_t axis); /* whether it may: it lists the axis */
static inline bool zp_dim_zigzags(const ZpDim *d, uint32_t axis) {
  return axis != ZP_NO_AXIS && d->size > 1 && (d->zigzag == axis || d->zigzag_up == axis);
}
ZpDims zp_all_dims(const ZpMesh *m); /* all but the one of pipeline stages */
int64_t zp_rank_of_stage(const ZpMesh *m, int64_t rank, int64_t stage); /* same coordinates, other stage */
/* "data x tensor" */
const char *zp_dims_text(const ZpMesh *m, ZbArena *a, ZpDims dims);

/* ---- local values and nodes ---------------------------------------------------------------------------- */
typedef struct { /* state of a value along one mesh dim */
  uint8_t kind;  /* 'R' replicated, 'S' split along axis, 'P' partial */
  uint8_t max;   /* P: maximum instead of sum */
  uint16_t axis; /* S */
} ZpState;

/* Where a value lies. offset is within that thing. */
typedef enum {
  ZP_AT_NOWHERE,  /* not materialised (inside a pointwise node, or unused) */
  ZP_AT_TEMP,     /* the stage's scratch, valid within one FWD, BWD or COUNT */
  ZP_AT_SAVED,    /* saved block of (instance, activation slot) */
  ZP_AT_INPUT,    /* input block of the activation slot: input `index` of the graph */
  ZP_AT_PARAM,    /* bucket `index` of the instance: offset in its full buffer */
  ZP_AT_GRAD,     /* the same of its gradient buffer (staged or accumulated) */
  ZP_AT_CARRY_IN, /* the tuple carried in; offset within it */
  ZP_AT_CARRY_OUT,
  ZP_AT_DCARRY_OUT, /* cotangents arriving from the next instance */
  ZP_AT_DCARRY_IN,  /* cotangents leaving to the instance before */
  ZP_AT_SEED        /* index 1: 1/micro-batches; others: of a loss, 1/denominator, see zp_seed_index */
} ZpSpace;
typedef struct {
  uint8_t space;
  uint32_t index;
  uint64_t offset; /* bytes */
} ZpLoc;

typedef struct {
  ZgType type;
  ZpState state[ZP_MAX_DIMS];
  uint8_t elem;               /* ZkElem */
  uint16_t axis[ZG_MAX_AXES]; /* memory order, slowest first */
  int64_t size[ZG_MAX_AXES];  /* local, in that order */
  uint64_t bytes;
  ZpLoc at;
  uint32_t param; /* made by PARAM: which; else ZP_NONE */
  /* Of a batched GEMM: it is a group of so many values, alike and contiguous; else 0. */
  uint8_t nmembers;
  uint32_t member[ZP_MAX_GROUP]; /* these; type, axis and size are those of each */
} ZpValue;

typedef struct {
  ZkCall call;                             /* shapes and attributes; pointers are filled by the engine */
  uint32_t in[ZK_MAX_IN], out[ZK_MAX_OUT]; /* values */
  ZpDims dims;                             /* collectives and what is local instead of one: over which */
  /* Compute: dims along which each rank has its own part of the iteration space. */
  ZpDims split;
  /* Collectives: gathered, scattered along; all_to_all: from, to. local_pad: what is not the rank's part of
   * axis is zero; ZP_NO_AXIS: only the first rank of a group keeps what it has. */
  uint16_t axis, axis2;
  /* Collectives: their blocks do not lie one behind the other in the tensor, so they are put together, or
   * taken apart, in scratch. */
  bool packs;
  /* Of what goes beside calls (zp_goes_beside): the node of the list before which it is complete; behind the
   * last: their number. What it reads and writes is its own until then. */
  uint32_t until;
  /* attend around a ring of the ranks of `dims`, and its gradient: how many ranks farther on those keys began
   * that meet the queries here, in order, the first 0. Steps at which nobody would see anything are jumped.
   * Zigzag ranks have two chunks, which go round each by itself; bit c: chunk c takes part in the step. */
  const uint32_t *steps;
  const uint8_t *chunks;
  uint32_t nsteps;
  uint64_t scratch_bytes;
  uint64_t scratch_at;  /* in the stage's scratch */
  uint32_t sink;        /* SINK nodes: attribute opt[0] of the graph node */
  uint32_t loc, region; /* of the graph node it comes from or that consumes it */
  const char *cause;    /* collectives: the rule, in words; else NULL */
  /* Between dispatch and combine: a number of the run of neighbours that is played round by round, and begins
   * with ROUND; else 0. FLOPs are those of all rounds. */
  uint32_t rounds;
  double flops;    /* of this rank, or of an attend the mean of those that share its queries, */
  double busiest;  /* and of that of them which has most */
  bool recomputed; /* recomputed in backward: its FLOPs are not the model's */
  /* The first in this list to add to a parameter's gradient, and to all of it: where there is nothing yet to
   * add to it may write instead (call.accumulate = false). With several gradients: of all, which begin
   * together and are the last results. */
  bool overwrites;
} ZpNode;

/* The node lists of a segment, in the order in which a step runs them. */
typedef enum {
  ZP_COUNT, /* the denominators of losses alone */
  ZP_FWD,
  ZP_BWD,
  ZP_PHASES
} ZpPhase;
extern const char *const zp_phase_text[ZP_PHASES]; /* "count", "forward", "backward" */
typedef struct {
  ZpNode *nodes;
  uint32_t n;
  uint64_t temp; /* bytes of its temporaries in the stage's scratch */
} ZpList;

/* The local program of one segment, the same for all its instances and all ranks of a stage. Views' `start`
 * of split axes differ from rank to rank: view.start holds only the part that does not (0), see
 * zp_view_start. */
/* clang-format off */
typedef struct {
  ZpValue *values; uint32_t nvalues;
  ZpList list[ZP_PHASES];           /* all speak of `values` */
  uint64_t saved_bytes;             /* of one instance and micro-batch */
  uint64_t kept_bytes, kept_moves;  /* of these for values in p->kept; what calls read and write less for it */
  bool saves_carry;                 /* backward reads what is carried in */
  uint64_t carry_bytes, dcarry_bytes;          /* tuple carried in; its cotangents */
  uint64_t carry_out_bytes, dcarry_out_bytes;
  uint32_t *buckets; uint32_t nbuckets;        /* templates that its instances use, ascending */
  bool has_loss;                    /* a loss_num is here */
  /* Forward + backward of one instance, all ranks of a stage, no recompute. */
  double model_flops;
  double cost;                      /* same per rank, with recompute: what `by cost` balances */
} ZpSegment;
/* clang-format on */
/* Where the parts of the scratch of an attend around a ring lie, forward or backward, in bytes from its
 * beginning: two chunks of k and v, each k's before v's; two of the sums of their gradients, f32; what is
 * made of queries, f32, where the model's type is another; the kernel's. */
typedef struct {
  uint64_t chunk[2], v; /* v: from k's */
  uint64_t sums[2], dv; /* dv: from dk's; backward */
  uint64_t queries, kernel;
  uint64_t bytes; /* without the kernel's */
} ZpRing;
static inline bool zp_is_ring(const ZpNode *n) {
  return n->dims && (n->call.op == ZG_OP_ATTEND || n->call.op == ZG_OP_ATTEND_GRAD);
}
ZpRing zp_ring(const ZpSegment *s, const ZpNode *n);
uint64_t zp_ring_bytes(const ZpSegment *s, const ZpNode *n); /* that a rank sends */
/* How many chunks a rank has, and the number of its chunk c. */
int zp_ring_chunks(const ZpMesh *m, const ZpNode *n);
int64_t zp_ring_chunk(int chunks, int64_t ranks, int64_t rank, int c);
/* Whether the mask lets queries of chunk `q` see any of the keys of chunk `k`, of `length` positions each. */
bool zp_ring_sees(const ZpNode *n, int64_t length, int64_t q, int64_t k);
/* A shift along an axis that ranks share, each of which has a part of it (shift over `dims`). */
static inline bool zp_is_halo(const ZpNode *n) { return n->dims && n->call.op == ZG_OP_SHIFT; }
/* What a shift over ranks moves: elements of a rank's part along the axis, to the rank `hop` farther on (back,
 * if that is negative), where they lie at `to`. Two parts at most, besides what stays on the rank. */
typedef struct {
  struct {
    int64_t hop, from, to, count; /* count 0: nothing */
    uint64_t bytes;
  } part[2];
} ZpHalo;
ZpHalo zp_halo(const ZpNode *n);         /* of its views */
uint64_t zp_halo_bytes(const ZpNode *n); /* that a rank sends */
/* Whether the node moves data between ranks. */
static inline bool zp_sends(const ZpNode *n) {
  return n->dims && n->call.op != ZG_OP_LOCAL_SLICE && n->call.op != ZG_OP_LOCAL_PAD;
}
/* Whether it begins and, later, ends. Others need compute, or the host, in between. */
static inline bool zp_begins(const ZpNode *n) {
  uint16_t op = n->call.op;
  return n->dims && (op == ZG_OP_ALL_REDUCE || op == ZG_OP_ALL_GATHER || op == ZG_OP_REDUCE_SCATTER ||
                     op == ZG_OP_ALL_TO_ALL);
}
/* Whether compute goes on while it is under way, if the plan says so (ZpNode's `until`): not in rounds. */
static inline bool zp_goes_beside(const ZpNode *n) { return zp_begins(n) && !n->rounds; }
#define ZP_MOST_BESIDE 8 /* of a list, at the same time */
/* Elements of an axis that follow each other where they are and where they go. */
typedef struct {
  int64_t from, to, n;
} ZpPiece;
#define ZP_PIECES 2
/* ---- zigzag.c: of `length` elements that a member of a group along `dims` has of `axis`, where they lie among
 * those of all members. Returns how many pieces these are, in their order. */
int zp_pieces(const ZpMesh *m, ZpDims dims, uint16_t axis, int64_t member, int64_t length, ZpPiece *piece);
/* Of local axis `axis` of a value on `rank`: where its elements lie in all of the axis. */
int zp_view_pieces(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size,
                   ZpPiece *piece);
/* Whether some of the dims split the axis zigzag. */
bool zp_is_zigzag(const ZpMesh *m, ZpDims dims, uint16_t axis);
/* Global start of local axis `axis` of a value on `rank` (batch: within the micro-batch's samples); of two
 * pieces, of the first. */
int64_t zp_view_start(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size);

/* ---- parameters ---------------------------------------------------------------------------------------- */
typedef struct { /* one parameter inside a bucket */
  uint32_t param;
  uint64_t at, n; /* elements: offset in the full buffer, local (tensor-parallel) elements */
  int naxes;
  uint16_t axis[ZG_MAX_AXES];                    /* declared order */
  int64_t size[ZG_MAX_AXES], whole[ZG_MAX_AXES]; /* local; global with padding */
  int64_t valid[ZG_MAX_AXES];                    /* global without padding: what a checkpoint holds */
  ZpState state[ZP_MAX_DIMS];
  uint32_t group; /* of p->groups; of a frozen one 0 */
  /* Of what Muon updates, by axis: what it is of a matrix. Else all ZP_EACH. */
  uint8_t role[ZG_MAX_AXES];
} ZpSlice;
/* Of a parameter as a matrix: axes that number the matrices, those of what comes out of the product with it
 * (its rows, one axis behind the other), and those that the product sums over (its columns). */
typedef enum { ZP_EACH, ZP_ROWS, ZP_COLS } ZpRole;

/* What `shard ... over` says of the recipe's parameters. A bucket is cut over those of the dims along which
 * it would be copied otherwise. */
typedef struct {
  ZpDims over;
  unsigned what;  /* ZL_SHARD_*: states, states and gradients, or those and parameters; 0: nothing */
  bool keep;      /* parameters are gathered once a step */
  uint32_t ahead; /* of how many iterations of a repeat they are gathered before their turn */
} ZpZero;

/* When the gradients that ranks have are reduced into the shards of their owners. */
typedef enum {
  ZP_SCATTER_NEVER,          /* nothing is cut: every rank owns all */
  ZP_SCATTER_AT_END,         /* once a step, in place: accumulators are full, states are not */
  ZP_SCATTER_EACH_MICROBATCH /* out of a staged gradient: the accumulator is a shard, too */
} ZpScatter;

/* Parameters of one unit that are stored and reduced alike: one flat buffer. A template stands for all
 * iterations of its repeat. */
/* clang-format off */
typedef struct {
  const char *name;          /* "layer.*", "wte", ... */
  uint32_t segment;          /* the repeat whose iterations each have one, or ZP_NONE: one in all */
  uint32_t *users; uint32_t nusers; /* segments that use it, ascending */
  ZpSlice *slices; uint32_t nslices;
  uint64_t elems;            /* full, padded to a multiple of 16 x shards */
  ZpDims shard;              /* dims over which states, master and more of it are cut; 0: nothing is */
  ZpDims partial;            /* dims along which gradients arrive partial */
  uint32_t optimizer;        /* of p->optimizers: what updates it, unless it is frozen */
  bool frozen;               /* its parameters are not trained: no gradient, no master, no states */
  ZpDims matrices;           /* Muon's: dims over which updates are gathered, as they cut matrices */
  ZpDims replicas;           /* all (non-pipe) dims along which the parameters are replicated */
  /* What follows from that: what a step does with it. */
  bool gathers;              /* its parameters are a shard: they are gathered before use, */
  bool keeps;                /* and only once a step */
  ZpScatter scatters;
  bool republishes;          /* its parameters are full, updated by shards: a step hands these to all */
  ZpDims reduces;            /* dims over which the accumulator is all-reduced at the step's end */
} ZpBucket;
/* clang-format on */
/* Whether the gradient of a micro-batch is staged, and its accumulator is a shard; else backward adds to an
 * accumulator that is full. */
static inline bool zp_stages_grads(const ZpBucket *k) { return k->scatters == ZP_SCATTER_EACH_MICROBATCH; }

/* Whether a position of what is carried in and out of a segment has a cotangent: whether a gradient of a
 * trained parameter is made from it. One for each position. */
typedef struct {
  bool *in, *out;
} ZpCotangents;

/* ---- stages, programs ---------------------------------------------------------------------------------- */
typedef struct {         /* a bucket on a stage */
  uint32_t bucket, iter; /* template; iteration (0 for single ones) */
  uint32_t tied;         /* index into plan->tied, or ZP_NONE: copies on other stages */
  bool norm_owner;       /* its squared norm counts on this stage (the first that holds it) */
} ZpStageBucket;
/* clang-format off */
typedef struct {
  uint32_t segment, iter;
  /* Indices into the stage's `held`, in the order of the segment's `buckets`. */
  uint32_t *held; uint32_t nheld;
} ZpInst;
/* clang-format on */

/* NODES: collectives of local programs, which instructions of compute start; it has none of its own. */
typedef enum { ZP_Q_COMPUTE, ZP_Q_P2P, ZP_Q_COLL, ZP_Q_NODES, ZP_QUEUES } ZpQueue;
extern const char *const zp_queue_text[ZP_QUEUES]; /* "compute", "p2p", "coll", "nodes" */
typedef enum {
#define I(NAME, text, queue) ZP_I_##NAME,
#include "runtime/plan/instr.def"
  ZP_INSTRS
} ZpInstrOp;
typedef struct {
  const char *text;
  ZpQueue queue;
} ZpInstrInfo;
extern const ZpInstrInfo zp_instr_info[ZP_INSTRS];
/* The list of its segment that an instruction runs; ZP_PHASES: it runs none. */
static inline ZpPhase zp_phase(ZpInstrOp op) {
  return op == ZP_I_COUNT ? ZP_COUNT : op == ZP_I_FWD ? ZP_FWD : op == ZP_I_BWD ? ZP_BWD : ZP_PHASES;
}

/* The memories of a rank. What lies in the device's is one block, the arena; what lies in the host's is one,
 * too. */
typedef enum {
  ZP_DEVICE, /* where it computes; of a CPU, the host's */
  ZP_HOST,   /* beside it: such that the device can reach it */
  ZP_MEMORIES
} ZpMemory;

/* Memory of a rank that instructions share. Rings and pools hold several of a kind, `index` tells them
 * apart. */
typedef enum {
  ZP_B_SLOT, /* activation slot: inputs, then saved blocks of all instances */
  ZP_B_RECV_ACT,
  ZP_B_SEND_ACT,
  ZP_B_RECV_GRAD,
  ZP_B_SEND_GRAD,
  ZP_B_GATHER,   /* full parameters of one bucket, compute precision */
  ZP_B_STAGING,  /* full gradients of one bucket, f32, before they are scattered */
  ZP_B_UPDATE,   /* updates of one bucket whose matrices are whole, f32: those of Muon */
  ZP_B_PARAM,    /* what a rank stores of a held bucket: parameters, and behind them their master */
  ZP_B_GRAD,     /* gradient accumulator of a held bucket */
  ZP_B_STATE,    /* optimizer state of a held bucket */
  ZP_B_BOUNDARY, /* ping-pong of carried values and cotangents between instances: index 0, 1 */
  ZP_B_SCRATCH,  /* temporaries of the running instruction */
  ZP_B_SCALARS,  /* index: ZP_SCALARS_* */
  /* Of the host's memory, where the device has its own. No instruction has them as operands: what passes
   * through is copied by LOAD, and at the beginning and end of a step. */
  ZP_B_PINNED_INPUTS,  /* of one micro-batch each, used in turn */
  ZP_B_PINNED_SCALARS, /* index: ZP_PINNED_* */
  ZP_B_SNAPSHOT,       /* what a rank writes into a checkpoint, as it was after a step */
  ZP_B_KINDS
} ZpBufKind;
/* Whether a held bucket has one of it, which lasts from step to step. */
static inline bool zp_is_stored(int kind) { return kind >= ZP_B_PARAM && kind <= ZP_B_STATE; }
enum { ZP_SCALARS_COUNT, ZP_SCALARS_SUMS };    /* loss denominators; what REDUCE_STEP adds up */
enum { ZP_PINNED_STEP_STATE, ZP_PINNED_SUMS }; /* what a step brings to the device; what it brings back */
typedef struct {
  uint8_t kind;
  uint32_t index; /* within its kind; GATHER, STAGING: within its pool */
  uint32_t pool;  /* GATHER, STAGING: bucket template; PARAM, GRAD, STATE: held bucket */
  uint64_t bytes;
  /* The ledger's to fill: in which memory it lies, and where in that. */
  uint8_t memory;
  uint64_t offset;
} ZpBuf;
enum { ZP_READ = 1, ZP_WRITE = 2 }; /* both: accumulates */
typedef struct {
  uint32_t buf;
  uint32_t mode;
  uint64_t tag;
} ZpAccess;
/* tag: what the buffer must hold when read and holds after being written: a number that names contents
 * (activation of micro-batch m, bucket b, ...). A read whose tag is not the last written is a broken plan.
 * An instruction that turns one contents into another has two accesses of the buffer, the read first. */
typedef enum {
  ZP_TAG_NOTHING, /* left over, not to be read */
  ZP_TAG_SLOT,    /* inputs and saved values of micro-batch mb */
  ZP_TAG_CARRY,   /* a = segment, b = iteration: the tuple that it takes in, micro-batch mb */
  ZP_TAG_DCARRY,  /* its cotangents */
  /* a = bucket, b = iteration: parameters. mb: 0 before OPT_STEP, 1 after: the next step's. With states
   * sharded that is the own shard alone, with which a step begins, too, and PUBLISH_PARAMS makes all of it. */
  ZP_TAG_PARAM,
  ZP_TAG_STAGED, /* a, b as before: gradient of one micro-batch mb */
  /* a, b as before: accumulated gradient after mb of its reductions (SCATTER in place, REDUCE_GRADS,
   * REDUCE_TIED). */
  ZP_TAG_GRAD,
  ZP_TAG_STATE, /* a, b as before: optimizer state */
  /* a, b as before: Muon's update. mb: 0 this rank's momentum, 1 all of it, 2 orthogonal where this rank owns
   * the matrix and else zero, 3 this rank's part of all that is orthogonal. */
  ZP_TAG_UPDATE,
  ZP_TAG_TEMP,  /* temporaries: nobody reads them later */
  ZP_TAG_COUNT, /* mb: 0 this rank's loss denominators, 1 the global ones */
  ZP_TAG_SUMS   /* mb: 0 this rank's loss sums, 1 with its norm, 2 those of the world */
} ZpTag;
static inline uint64_t zp_tag(ZpTag kind, uint32_t a, uint32_t b, uint32_t mb) {
  return (uint64_t)kind << 56 | (uint64_t)(a & 0xffff) << 40 | (uint64_t)(b & 0xffff) << 24 | (mb & 0xffffff);
}

typedef struct {
  uint8_t op, queue;
  bool in_place; /* SCATTER_GRADS on the accumulator itself (ZeRO-1) */
  uint32_t mb;   /* micro-batch */
  uint32_t inst; /* FWD, BWD: instance of the stage */
  uint32_t held; /* bucket instructions: index into the stage's held */
  uint32_t peer; /* P2P: stage */
  uint32_t pair; /* P2P: equal on both sides, unique otherwise; cross-stage collectives: equal on all */
  ZpDims dims;   /* COLL: over which mesh dims (REDUCE_STEP: all); 0: nothing moves */
  uint16_t coll; /* COLL: ZG_OP_ALL_REDUCE, ZG_OP_REDUCE_SCATTER, ZG_OP_ALL_GATHER */
  uint32_t tied; /* REDUCE_TIED: which */
  /* P2P: what is sent; COLL: a rank's whole tensor: as gathered, or before it is reduced. */
  uint64_t bytes;
  uint32_t nwait, *wait; /* instructions of this stage that must be complete before it starts */
  uint32_t naccess;
  ZpAccess *access; /* operands: FWD carries in/out by the accesses' buffer kinds */
} ZpInstr;

/* One rank's step. Instructions of a queue start in list order: compute runs to completion, P2P and COLL only
 * start in order and may be in flight together. A step ends when all are complete. Instructions are listed
 * such that waits and queues only ever point backward. */
/* clang-format off */
typedef struct {
  ZpInstr *instrs; uint32_t ninstrs;
  uint32_t *queue[ZP_QUEUES]; uint32_t nqueue[ZP_QUEUES]; /* instruction indices in order */
  ZpBuf *bufs; uint32_t nbufs;
  uint32_t nslots, nrecv_act, nsend_act, nrecv_grad, nsend_grad, npinned; /* npinned: PINNED_INPUTS */
  uint32_t live; /* most micro-batches whose activations are held at once */
} ZpProgram;
/* clang-format on */

typedef enum {
#define L(NAME, text, memory) ZP_L_##NAME,
#include "runtime/plan/ledger.def"
  ZP_LEDGER_LINES
} ZpLedgerLine;
typedef struct {
  const char *text;
  ZpMemory memory;
} ZpLedgerInfo;
extern const ZpLedgerInfo zp_ledger_info[ZP_LEDGER_LINES];
typedef struct {
  uint64_t bytes[ZP_LEDGER_LINES];
  uint64_t total[ZP_MEMORIES]; /* of the lines of that memory; of the device's: bytes of the arena */
} ZpLedger;

/* clang-format off */
typedef struct {
  ZpInst *insts; uint32_t ninsts;
  ZpStageBucket *held;  uint32_t nheld;
  uint64_t input_bytes;             /* per slot */
  uint64_t *saved_at;               /* per instance: offset of its saved block in a slot */
  uint64_t slot_bytes, scratch_bytes, boundary_bytes;
  uint64_t recv_bytes, send_bytes;             /* activations carried in and out */
  uint64_t recv_grad_bytes, send_grad_bytes;   /* cotangents arriving and leaving */
  ZpProgram prog;
  ZpLedger ledger;
  double cost;
} ZpStage;
/* clang-format on */

/* clang-format off */
typedef struct { uint32_t bucket; uint32_t *stages; uint32_t nstages; } ZpTied;
/* at: in the input block */
typedef struct { uint32_t input; uint32_t value_segment, value; uint64_t at; } ZpInputUse;
/* clang-format on */

/* Learning rates: rising linearly from lr/warmup for `warmup` steps, constant for `stable` steps, and then as
 * `anneal` says: down to final*lr at step `until`, which it keeps, or as the inverse square root of the step. */
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

typedef enum {
  ZP_ADAMW,
  ZP_SGD,
  ZP_LION,
  ZP_MUON,
  ZP_UPDATE, /* what updates states: the last of a plan's, if it has any */
  ZP_OPTIMIZERS
} ZpOptimizerKind;
extern const char *const zp_optimizer_text[ZP_OPTIMIZERS]; /* "adamw" */
typedef struct {
  ZpOptimizerKind kind;
  ZpRate rate;
  double b1, b2, eps, momentum; /* ADAMW: the first three; LION: two; SGD, MUON: the last */
  int states;                   /* f32 values that it keeps of each element */
  bool nesterov;                /* MUON: what is orthogonalised is the gradient and the momentum after it */
  bool rms;                     /* MUON: scaled to the size of AdamW's updates, else by the matrix' shape */
  int iterations;               /* MUON: of Newton and Schulz */
  int bits;                     /* of a state of an element: 32, or 8 and a scale for each block (AdamW) */
} ZpOptimizer;
/* Parameters that one optimizer updates alike: with this multiple of its rate, and this decay; states: by
 * this. */
typedef struct {
  uint32_t optimizer;
  double rate, decay;
  const ZgUpdate *update;
} ZpGroup;
/* What has axis `classes` is computed in chunks of `rows`: these are parted, in a graph that is the plan's own,
 * into `up`, which lies and is split as they are, and the axes numbered behind it. ZG_NO_AXIS, all three: it is
 * not. */
typedef struct {
  uint16_t classes, rows, up;
} ZpChunk;

/* An elementwise value of forward that is kept for backward, though that could make it again: keep.c. Of an
 * instance and micro-batch: what it takes of an activation slot, and how much less backward moves for it. */
typedef struct {
  uint32_t segment, value; /* of the graph, without what serves frozen parameters alone */
  ZgType type;
  uint32_t loc;
  uint64_t bytes, moves;
} ZpKeep;

/* clang-format off */
typedef struct ZpPlan {
  ZbArena *arena;
  const ZgGraph *model;      /* the model's, or with chunks of logits (ZpChunk) the plan's own; */
  const ZgGraph *graph;      /* and with recurrences in chunks, if these are split (local/cut_sequences.c) */
  const ZlRecipe *recipe;    /* for messages: its name and places. What it asks for is resolved below */
  /* Only COUNT and FWD: for evaluation. A step is one batch; nothing is saved, and no gradients, masters or
   * optimizer states are held. */
  bool forward_only;
  const struct ZpPlan *beside; /* forward_only: the plan in whose arena this one's is, or NULL */
  bool outputs;              /* forward_only: FWD makes the model's outputs, each a sink `output` */
  ZpMesh mesh;
  /* Per axis: global; batch: samples of one micro-batch over all ranks; with padding. */
  int64_t *axis_size;
  int64_t *axis_valid;       /* the same without padding */
  uint16_t *lies;            /* per axis: in the place of which one it lies in memory; NULL: its own */
  uint16_t *experts;         /* per axis: whose slots it counts (graph/ragged.h), */
  double *filled;            /* and of those of a round the part that is needed on average, in all rounds */
  uint32_t batch;            /* the sample axis, or ZP_NONE */
  int64_t global_batch, nmicro; /* samples a step; micro-batches a step (M) */
  uint8_t compute;           /* ZK_F32, ZK_BF16 */
  uint8_t reduce;            /* in which type gradients are summed over ranks: the same */
  bool tf32;                 /* f32, and a device may round the operands of products to 11 bits */
  bool pins, checkpoints, repeatable; /* as ZpOptions has them, */
  size_t (*scratch)(const ZkCall *call, int threads); int threads; /* and these */
  const char *schedule;      /* "1f1b": one that zp_order knows */
  ZpOptimizer *optimizers; uint32_t noptimizers; /* none may be there in a plan that only goes forward */
  ZpGroup *groups; uint32_t ngroups;
  uint32_t *group;           /* per parameter: of `groups` */
  uint8_t (*roles)[ZG_MAX_AXES]; /* per parameter, by declared axis: ZpRole; NULL: nothing is Muon's */
  double clip;               /* norm that gradients are clipped to; 0: they are not */
  double average;            /* decay of the average of parameters, which is one state more; 0: none is kept */
  ZpZero zero;
  ZpChunk chunk;
  bool *frozen;              /* per parameter: not trained; NULL: all are */
  ZpCotangents *cotangents;  /* one per graph segment */
  ZpSegment *segments;       /* one per graph segment */
  ZpBucket *buckets; uint32_t nbuckets;
  ZpInputUse *inputs; uint32_t ninputs; /* data inputs in every state they are used in */
  ZpTied *tied; uint32_t ntied;
  const ZpKeep *kept; uint32_t nkept; /* the best first */
  uint32_t nleft;            /* values that would be kept, too, if they fitted */
  uint64_t least;            /* arena of the fullest rank, were nothing kept */
  uint64_t room;             /* of its scratch a call is to make do with so much (ZkCall), for the limit's sake; 0: no */
  uint64_t beside_bytes;     /* calls wait for collectives, since beside each other it would be this; 0: they need not */
  ZpStage *stages; uint32_t nstages;
  /* By loss: dims along which its numerator, its denominator is partial. Aux sums are not. */
  ZpDims num_partial[ZG_MAX_LOSSES], den_partial[ZG_MAX_LOSSES];
  double model_flops;        /* of one step, whole mesh; forward + backward, no recompute */
  double params, trained;    /* elements; of those not frozen */
  const char *order;         /* which parts of positions ranks have, and why, in words; NULL: nothing to say */
} ZpPlan;
/* clang-format on */

/* The stage whose ranks have the largest arena, the first of several; NULL: there are no stages yet. */
static inline const ZpStage *zp_fullest(const ZpPlan *p) {
  const ZpStage *most = p->nstages ? &p->stages[0] : NULL;
  for (uint32_t s = 1; s < p->nstages; s++)
    if (p->stages[s].ledger.total[ZP_DEVICE] > most->ledger.total[ZP_DEVICE]) most = &p->stages[s];
  return most;
}
/* Dims over which denominators of losses are summed, and how many f64 REDUCE_STEP adds up: loss numerators,
 * aux sums, squared norm, loss denominators. Bytes of each of the two blocks of scalars. */
ZpDims zp_count_dims(const ZpPlan *p);
uint32_t zp_step_sums(const ZpPlan *p);
uint64_t zp_scalars_bytes(const ZpPlan *p);
/* Where the cotangent of a loss lies among the seeds. */
static inline uint32_t zp_seed_index(bool aux, uint32_t loss) { return aux ? 1 : loss ? 1 + loss : 0; }

typedef struct {
  /* Returns the bytes of scratch that a kernel call needs: zk_cpu_scratch with the run's threads, or that of
   * another device. */
  size_t (*scratch)(const ZkCall *call, int threads);
  int threads;
  const ZlCluster *cluster; /* or NULL */
  /* Whether the device does this fused or batched call (kernels.h) as one; views are filled but for pointers.
   * NULL: none. A pure function: every rank, and zplan, must hear the same. */
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
  /* A plan that differs in the number of micro-batches alone: its stages are taken, and what it keeps. */
  const struct ZpPlan *keeps_as;
} ZpOptions;

/* Makes and proves a plan. NULL with reports in `d` if the recipe does not fit the graph or a limit; a plan
 * that fails a proof is a bug of ours and says so (Z0999) with the counter-example. */
ZpPlan *zp_plan(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);
/* For those who weigh many recipes (search/), never for an engine: without the proofs; and the local programs
 * and buckets alone, without stages. */
ZpPlan *zp_plan_unproved(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);
ZpPlan *zp_plan_local(ZbArena *a, const ZgGraph *g, const ZlRecipe *r, ZlDiags *d, const ZpOptions *o);

/* Rows that a round of experts has room for, over the average, where they are split over ranks and the recipe does
 * not say (slots.c). */
#define ZP_SLOT_FACTOR 1.5
/* How often a run of a list plays its node: of what is between dispatch and combine, once a round; else
 * once. Ranks that have all experts know how many rounds their tokens' choices take: both are that. Of
 * others the tokens say it: `even` if all experts are chosen alike, `most` if one rank's experts have all
 * rows. Fewer where tokens leave choices out. */
typedef struct {
  uint64_t even, most;
} ZpRounds;
ZpRounds zp_rounds(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node);

/* ---- orders.c ------------------------------------------------------------------------------------------ */
typedef struct {
  bool backward;
  uint32_t mb;
} ZpWork;
/* Compute order of `stage` of P stages and M micro-batches: 2M items. */
ZpWork *zp_order(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, uint32_t stage);
/* The schedule of that name, or NULL; of NULL: the default. */
const char *zp_schedule(const char *name);
/* Most micro-batches between their forward and the end of their backward. */
uint32_t zp_order_live(const ZpWork *w, uint32_t n);
/* When every item starts (start[stage][item]; w[stage]: its 2M items) if a forward takes 1 unit of time, a
 * backward 2 and nothing else takes any. Returns the end of the last. */
uint64_t zp_order_times(ZbArena *a, ZpWork *const *w, uint32_t stages, uint32_t nmicro, uint64_t **start);

/* ---- buckets.c, program.c, check/ ---------------------------------------------------------------------- */
/* Fills what a bucket does, and how it is cut, from its replicas, its partial dims and p->zero. */
void zp_bucket_storage(const ZpPlan *p, ZpBucket *k);
/* In which type what is added up of a bucket travels: the recipe's, but f32 of states' measures. Ranks, and
 * micro-batches, add to what is f32. */
ZkElem zp_reduce_elem(const ZpPlan *p, const ZpBucket *k);
/* How many states are kept of each element of a bucket: those of its optimizer, then the average. */
int zp_states(const ZpPlan *p, const ZpBucket *k);
/* Whether those of its optimizer are codes of 8 bits: ZK_BLOCK8 elements, from a multiple of that on, have
 * one scale each. Then parameters and shards begin at such a multiple. */
static inline bool zp_is_coded(const ZpPlan *p, const ZpBucket *k) {
  return !k->frozen && p->ngroups && p->optimizers[k->optimizer].bits == 8;
}
/* Bytes of the codes and scales of one state of n elements. */
static inline uint64_t zp_coded_bytes(uint64_t n) { return n + n / ZK_BLOCK8 * 4; }
/* The parameter that lies there, or whose gradient does (ZP_AT_PARAM, ZP_AT_GRAD). */
uint32_t zp_param_at(const ZpPlan *p, const ZpSegment *s, ZpLoc at);
/* Whether backward of the segment needs bucket number `k` of it: to add to a gradient, or to read. */
bool zp_used_back(const ZpPlan *p, const ZpSegment *s, uint32_t k);
/* Fills prog and the transfer sizes (recv_bytes, ...) of every stage from segments, instances, held buckets
 * and the schedule. */
void zp_program(ZpPlan *p);
/* Bytes that a rank stores for one held bucket of a template, each a multiple of 64. The PARAM buffer holds
 * parameters, then master (if there is one). */
uint64_t zp_param_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_master_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_grad_bytes(const ZpPlan *p, uint32_t bucket);
uint64_t zp_state_bytes(const ZpPlan *p, uint32_t bucket);
/* Elements of a bucket that a rank speaks for: its part of those that it owns alike with replicas. What a
 * rank keeps of the host's memory for checkpoints: the values and states of these, f32. */
uint64_t zp_spoken_elems(const ZpPlan *p, uint32_t bucket);
uint64_t zp_snapshot_bytes(const ZpPlan *p, const ZpStage *st);
/* The proofs of a plan; false with the first counter-example in *err. Works on programs alone, so tests can
 * break one and see it caught. */
bool zp_check(const ZpPlan *p, ZbErr *err);
/* The proof of the local programs alone, which the other takes to be as large as they say. */
bool zp_check_segments(const ZpPlan *p, ZbErr *err);
/* Both. A plan that fails is a bug of ours: reports the counter-example. */
bool zp_prove(const ZpPlan *p, ZlDiags *d);

/* ---- chunk.c ------------------------------------------------------------------------------------------- */
/* The axis of the largest logits that the stage keeps of a micro-batch, and their bytes; NULL: it keeps none
 * that are more than a third of its activations, or the recipe has chunks. */
const char *zp_chunk_proposal(const ZpPlan *p, const ZpStage *st, uint64_t *bytes);

/* ---- muon.c -------------------------------------------------------------------------------------------- */
static inline bool zp_is_muon(const ZpPlan *p, const ZpBucket *k) {
  return !p->forward_only && !k->frozen && p->optimizers[k->optimizer].kind == ZP_MUON;
}
/* A matrix of a bucket that Muon updates, whole. */
typedef struct {
  uint32_t slice;
  uint64_t index;     /* among those of the slice, as far as a group along `matrices` has them */
  int64_t rows, cols; /* with padding */
  uint32_t owner;     /* who orthogonalises it: of the group along the bucket's `matrices` */
} ZpMatrix;
ZpMatrix *zp_matrices(const ZpPlan *p, const ZpBucket *k, ZbArena *a, uint32_t *n);
/* How large axis `i` of a slice is over such a group. */
int64_t zp_gathered_size(const ZpPlan *p, const ZpBucket *k, const ZpSlice *s, int i);
/* What the update of such a matrix is multiplied by, beside the rate: of the sizes without padding. */
double zp_muon_scale(const ZpOptimizer *o, const ZpSlice *s);
/* Bytes of an UPDATE buffer, and of the scratch of an ORTHOGONALIZE. FLOPs of the rank with most to do. */
uint64_t zp_update_bytes(const ZpPlan *p, const ZpBucket *k);
uint64_t zp_orthogonal_scratch(const ZpPlan *p, const ZpBucket *k);
double zp_matrix_flops(const ZpOptimizer *o, const ZpMatrix *m);
double zp_orthogonal_flops(const ZpPlan *p, const ZpBucket *k);

/* ---- words.c ------------------------------------------------------------------------------------------- */
/* "layer.3": a held bucket, an instance; "FWD(layer.3, mb 1)", "SEND_ACT(mb 1)", "REDUCE_GRADS(wte)": an
 * instruction. */
void zp_held_text(const ZpPlan *p, uint32_t bucket, uint32_t iter, ZbText *out);
/* "layer", or of what is no repeat "part 2": a segment. */
void zp_segment_text(const ZpPlan *p, uint32_t segment, ZbText *out);
void zp_inst_text(const ZpPlan *p, uint32_t segment, uint32_t iter, ZbText *out);
void zp_instr_text(const ZpPlan *p, uint32_t stage, const ZpInstr *in, ZbText *out);
/* What the field calls a bucket's storage: stage 0, 1, 2 or 3 of ZeRO. */
int zp_zero_stage(const ZpBucket *k);
/* "gpt2.zug:12": a node's `loc`. */
const char *zp_loc_text(const ZpPlan *p, uint32_t loc);
/* Where the recipe says how large an axis is; its `split ... over` a mesh dim of the recipe, or NULL; where
 * that is. */
ZlSpan zp_bind_span(const ZlRecipe *r, const char *axis);
const ZlSplit *zp_split(const ZpPlan *p, uint32_t directive);
ZlSpan zp_split_span(const ZpPlan *p, const ZpDim *d);
/* What the recipe says of attention over a dim, or NULL. */
const ZlAttention *zp_attention(const ZpPlan *p, const ZpDim *d);

/* ---- output/ ------------------------------------------------------------------------------------------- */
const char *zp_compute_text(const ZpPlan *p);        /* "bf16", "tf32", "f32" */
void zp_show(const ZpPlan *p, ZbText *out);          /* mesh, stages, ledger */
void zp_show_schedule(const ZpPlan *p, ZbText *out); /* the timeline of micro-batches */
void zp_show_programs(const ZpPlan *p, ZbText *out); /* every instruction */
/* The segment of that name (zp_segment_text), or ZP_NONE with those that there are; its calls, in order. */
uint32_t zp_segment_named(const ZpPlan *p, const char *name, ZbErr *err);
void zp_show_calls(const ZpPlan *p, uint32_t segment, ZbText *out);
/* Every collective and transfer: count, bytes, dims, tensor, cause. */
void zp_explain(const ZpPlan *p, ZbText *out);
/* Which ranks are on which nodes of a cluster, and what goes over the links of each level in a step. */
void zp_show_places(const ZpPlan *p, const ZlCluster *c, ZbText *out);
/* The same as JSON, with all digits: output/JSON.md. The first has what zp_show and zp_show_schedule have. */
void zp_show_json(const ZpPlan *p, ZbText *out);
void zp_show_programs_json(const ZpPlan *p, ZbText *out);
void zp_show_calls_json(const ZpPlan *p, uint32_t segment, ZbText *out);
void zp_explain_json(const ZpPlan *p, ZbText *out);
/* Bytes of an instruction that moves something: not of a collective of one rank. Else 0. */
uint64_t zp_instr_bytes(const ZpPlan *p, const ZpInstr *in);
/* Bytes of a collective node's whole tensor, as gathered, or before it is reduced or exchanged. Of dispatch
 * and combine: of a rank's rows, in all rounds. Of an attend around a ring and of a
 * shift: what the rank sends. */
uint64_t zp_node_bytes(const ZpSegment *s, const ZpNode *n);
/* Bytes that a call reads and writes, each operand once: of a table the rows that are looked up, of what it adds
 * to (`adds`) twice as many. */
double zp_moved_bytes(const ZpSegment *s, const ZpNode *n, bool adds);
/* The same as zp_node_bytes of a run of the list, with all rounds if experts are chosen alike. */
uint64_t zp_run_bytes(const ZpPlan *p, const ZpSegment *s, const ZpList *l, uint32_t node);

/* ---- trace.c: a rank's step as events ------------------------------------------------------------------ */
/* An instruction of a stage's program, from when it was started to when it was complete; or (node: not
 * ZP_NONE) the collective of a node of its list, within: as often as it was played, with the bytes of that.
 * Seconds. */
typedef struct {
  int64_t step;
  uint32_t instr, node;
  uint64_t bytes; /* of a node: as zp_node_bytes has them; of rows of experts, those of the round */
  double begin, end;
} ZpSpan;
/* What a trace file begins and ends with; between them the events of each rank, and between ranks a comma. */
extern const char zp_trace_head[], zp_trace_tail[];
bool zp_is_trace(const uint8_t *begin, size_t n); /* whether a file that begins so is one; 16 bytes suffice */
/* The events of one rank, with a comma and a newline between them. Times are `clock` later than the spans
 * say, and count from `zero`. Predicted: the same tracks, as a process of its own behind that of the rank. */
void zp_trace_events(const ZpPlan *p, int64_t rank, const ZpSpan *spans, uint64_t n, double clock,
                     double zero, bool predicted, ZbText *out);

/* ---- nodes.c: ranks on the nodes of a cluster ---------------------------------------------------------- */
/* The order in which the mesh should have the ranks that a launcher started: its rank i is to be the
 * launcher's order[i]. node[r]: which node the launcher's rank r is on, by any numbers. Groups of the dims
 * that vary fastest are on one node as far as that can be; rank 0 stays rank 0. False: the launcher's own
 * order is as good. */
bool zp_order_ranks(const ZpMesh *m, ZbArena *a, const int *node, int *order);
/* Lines on which dims are inside nodes in that order, which ranks are where, and why it is not better. One
 * node: none. */
void zp_show_nodes(const ZpMesh *m, ZbArena *a, const int *node, const int *order, ZbText *out);

/* ---- alike.c: what ranks hold alike, bit for bit, between steps ---------------------------------------- */
/* A kind of groups of ranks: the members of one differ along `dims` alone, and for a tied bucket are on any
 * of its stages. tied: of p->tied; ZP_NONE: members are on one stage. */
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
/* Returns the end of the parts of which a bucket's elements are stored, from *first on. Parts above 0 are
 * states, by their number. */
enum { ZP_PART_ROUNDED = -1, ZP_PART_VALUES = 0 };
int zp_held_parts(const ZpPlan *p, const ZpBucket *k, int *first);
/* Lists what a rank of a stage holds alike in groups of kind `which`, by parameter and part, in one order on
 * all members. Returns how many there are; out may be NULL. */
typedef struct {
  const ZpStageBucket *held;
  const ZpSlice *slice;
  int part;
} ZpAlikeItem;
uint32_t zp_alike_items(const ZpPlan *p, uint32_t stage, const ZpAlike *list, uint32_t n, uint32_t which,
                        ZpAlikeItem *out);

/* ---- digest.c ------------------------------------------------------------------------------------------ */
/* Digests of everything in a plan that no engine has touched, a part at a time: "stage 0's instructions". */
typedef void ZpEachDigest(void *ctx, const char *what, uint64_t digest);
void zp_digest(const ZpPlan *p, ZbArena *a, ZpEachDigest *each, void *ctx);

#endif
