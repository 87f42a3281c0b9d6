/* Local programs: the values and nodes of a segment as one rank has them, and the buckets that its parameters
 * are stored in. */
#ifndef ZUG_PLAN_VALUES_H
#define ZUG_PLAN_VALUES_H

#include "graph/graph.h"
#include "kernels/kernels.h" /* types only: a plan speaks in kernel calls */
#include "runtime/plan/mesh.h"

/* Returns how elements of a type are stored, where real ones are `real`. */
static inline ZkElem zp_elem_as(const ZgType *t, ZkElem real) {
  switch (t->elem) {
  case ZG_REAL: return real;
  case ZG_BF16: return ZK_BF16;
  case ZG_I32:
  case ZG_INDEX: return ZK_I32;
  default: return ZK_F32;
  }
}

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
  ZP_AT_CACHE,      /* cache `index` of the stream, of the instance: offset in the block of its caches */
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
  uint8_t summed;             /* of packed weights: as in ZkView */
  uint64_t bytes;
  ZpLoc at;
  uint32_t param; /* made by PARAM: which; else ZP_NONE */
  /* values of a batched GEMM's group, which are alike and contiguous; else 0 */
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
  /* Async collectives (zp_is_async): the node of the list that waits until they are complete; none: their
   * number. What they read and write is their own until then. */
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

/* An elementwise value of forward that is stashed for backward, which could recompute it: schedule/choose.c.
 * Per instance and micro-batch: bytes of the activation slot, and how many fewer bytes calls move. */
typedef struct {
  uint32_t segment, value; /* of the graph, without what serves frozen parameters alone */
  ZgType type;
  uint32_t loc;
  uint64_t surroundings; /* a hash of the nodes around it: values that have the same take and save the same */
  uint64_t bytes, moves;
} ZpStash;

/* The local program of one segment, the same for all its instances and all ranks of a stage. Views' `start`
 * of split axes differ from rank to rank: view.start holds only the part that does not (0), see
 * zp_view_start. */
/* clang-format off */
typedef struct {
  ZpValue *values; uint32_t nvalues;
  ZpList list[ZP_PHASES];           /* all speak of `values` */
  uint64_t saved_bytes;             /* of one instance and micro-batch */
  uint64_t stashed_bytes, stashed_moves; /* for p->programs.stashed: of these; fewer bytes that calls move */
  ZpStash *stashable; uint32_t nstashable; /* what backward recomputes, and both have in memory; unmeasured */
  uint64_t cache_bytes;             /* of one instance: its caches, of a plan that generates */
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
/* Returns how many chunks a rank has, and the number of its chunk c. */
int zp_ring_chunks(const ZpMesh *m, const ZpNode *n);
int64_t zp_ring_chunk(int chunks, int64_t ranks, int64_t rank, int c);
/* Returns whether the mask lets queries of chunk `q` see any of the keys of chunk `k`, of `length` positions
 * each. */
bool zp_ring_sees(const ZpNode *n, int64_t length, int64_t q, int64_t k);
/* A shift along an axis that ranks share, each of which has a part of it (shift over `dims`). */
static inline bool zp_is_halo(const ZpNode *n) { return n->dims && n->call.op == ZG_OP_SHIFT; }
/* The transfer of a shift over ranks: elements of a rank's part along the axis go to the rank `hop` places
 * farther on (back, if negative), where they lie at `to`. At most two parts, besides what stays on the
 * rank. */
typedef struct {
  struct {
    int64_t hop, from, to, count; /* count 0: nothing */
    uint64_t bytes;
  } part[2];
} ZpHalo;
ZpHalo zp_halo(const ZpNode *n);         /* of its views */
uint64_t zp_halo_bytes(const ZpNode *n); /* that a rank sends */
/* Returns whether the node moves data between ranks. */
static inline bool zp_sends(const ZpNode *n) {
  return n->dims && n->call.op != ZG_OP_LOCAL_SLICE && n->call.op != ZG_OP_LOCAL_PAD;
}
/* Returns whether the collective can begin now and end later. Others need compute, or the host, in
 * between. */
static inline bool zp_begins(const ZpNode *n) {
  uint16_t op = n->call.op;
  return n->dims && (op == ZG_OP_ALL_REDUCE || op == ZG_OP_ALL_GATHER || op == ZG_OP_REDUCE_SCATTER ||
                     op == ZG_OP_ALL_TO_ALL);
}
/* Returns whether compute can go on while it is under way, if the plan says so (ZpNode's `until`): not in
 * rounds. */
static inline bool zp_is_async(const ZpNode *n) { return zp_begins(n) && !n->rounds; }
#define ZP_MOST_ASYNC 8 /* of a list, at the same time */
/* Elements of an axis that follow each other where they are and where they go. */
typedef struct {
  int64_t from, to, n;
} ZpPiece;
#define ZP_PIECES 2
/* ---- mesh/pieces.c: of `length` elements that a member of a group along `dims` has of `axis`, where they lie among
 * those of all members. Returns how many pieces these are, in their order. */
int zp_pieces(const ZpMesh *m, ZpDims dims, uint16_t axis, int64_t member, int64_t length, ZpPiece *piece);
/* Finds where the elements of local axis `axis` of a value on `rank` lie in the whole axis. */
int zp_view_pieces(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size,
                   ZpPiece *piece);
/* Returns whether some of the dims split the axis zigzag. */
bool zp_is_zigzag(const ZpMesh *m, ZpDims dims, uint16_t axis);
/* Global start of local axis `axis` of a value on `rank` (batch: within the micro-batch's samples); of two
 * pieces, of the first. */
int64_t zp_view_start(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size);

/* ---- parameters ---------------------------------------------------------------------------------------- */
typedef struct { /* one parameter inside a bucket */
  uint32_t param;
  uint64_t at, n; /* elements: offset in the full buffer, local (tensor-parallel) elements */
  uint64_t takes; /* elements that it takes there: n, or more in panels (kernels/packed.h) */
  int naxes;
  uint16_t axis[ZG_MAX_AXES];                    /* declared order */
  int64_t size[ZG_MAX_AXES], whole[ZG_MAX_AXES]; /* local; global with padding */
  int64_t valid[ZG_MAX_AXES];                    /* global without padding: what a checkpoint holds */
  ZpState state[ZP_MAX_DIMS];
  uint32_t group; /* of p->asked.groups; of a frozen one 0 */
  /* per axis: its role in Muon's matrices; all ZP_EACH if another optimizer updates it */
  uint8_t role[ZG_MAX_AXES];
} ZpSlice;
/* The role of an axis if a parameter is seen as matrices: numbers the matrices; is one of the product's
 * results (rows, one axis behind the other); is summed over by the product (columns). */
typedef enum { ZP_EACH, ZP_ROWS, ZP_COLS } ZpRole;
/* How a packed parameter is stored: its rows, which are a product's results, are the columns of panels. */
typedef struct {
  uint8_t elem;              /* ZkElem; ZK_NONE: it is not packed */
  uint8_t role[ZG_MAX_AXES]; /* by declared axis */
} ZpPacked;

/* The recipe's `shard ... over`. A bucket is cut over those of the dims along which it would be copied
 * otherwise. */
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

/* Elements from..to - 1 of a bucket that OPT_STEP updates by one call, as far as a rank owns them: those of
 * one group, and gaps, which hold zeros and stay so. What Muon made of them is multiplied by `times`. */
typedef struct {
  uint64_t from, to;
  uint32_t group;
  double times;
} ZpUpdateCall;

/* Parameters of one unit that are stored and reduced alike: one flat buffer. A template stands for all
 * iterations of its repeat. */
/* clang-format off */
typedef struct {
  const char *name;          /* "layer.*", "wte", ... */
  uint32_t segment;          /* the repeat whose iterations each have one, or ZP_NONE: one in all */
  uint32_t *users; uint32_t nusers; /* segments that use it, ascending */
  ZpSlice *slices; uint32_t nslices;
  ZpUpdateCall *calls; uint32_t ncalls; /* of OPT_STEP, in order; none of what is frozen */
  uint64_t elems;            /* full, padded to a multiple of 16 x shards, or of its longest block x shards, or of its unit */
  uint8_t elem;              /* ZkElem of its parameters as segments read them; bf16: the high halves of their master */
  uint8_t grad;              /* ZkElem in which its gradients, which are f32, are added up over micro-batches */
  uint8_t reduce;            /* ZkElem in which they are summed over ranks */
  ZpDims shard;              /* dims over which states, master and more of it are cut; 0: nothing is */
  ZpDims partial;            /* dims along which gradients arrive partial */
  uint32_t optimizer;        /* of p->asked.optimizers: what updates it, unless it is frozen */
  bool frozen;               /* its parameters are not trained: no gradient, no master, no states */
  ZpDims matrices;           /* Muon's: dims over which updates are gathered, as they cut matrices */
  ZpDims replicas;           /* all (non-pipe) dims along which the parameters are replicated */
  /* Consequences of the fields above for a step: */
  bool gathers;              /* its parameters are a shard: they are gathered before use, */
  bool keeps;                /* and only once a step */
  ZpScatter scatters;
  bool republishes;          /* its parameters are full, updated by shards: a step hands these to all */
  ZpDims reduces;            /* dims over which the accumulator is all-reduced at the step's end */
} ZpBucket;
/* clang-format on */

/* Returns the slice at byte `offset` of a bucket's parameters, or of its gradients; NULL: none begins there.
 * Slices lie in ascending order, as check/arena.c checks. */
static inline const ZpSlice *zp_slice_in(const ZpBucket *k, bool grad, uint64_t offset) {
  ZkElem elem = grad ? ZK_F32 : (ZkElem)k->elem;
  uint32_t lo = 0, hi = k->nslices;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (zk_bytes(elem, k->slices[mid].at) < offset) lo = mid + 1;
    else hi = mid;
  }
  return lo < k->nslices && zk_bytes(elem, k->slices[lo].at) == offset ? &k->slices[lo] : NULL;
}
/* Returns whether the accumulator of its gradients is a shard. */
static inline bool zp_shards_grads(const ZpBucket *k) { return k->scatters == ZP_SCATTER_EACH_MICROBATCH; }
/* Returns whether a micro-batch's gradient is staged, in f32, before it is added to the accumulator; else
 * backward adds to that, which is full and f32. */
static inline bool zp_stages_grads(const ZpBucket *k) { return zp_shards_grads(k) || k->grad != ZK_F32; }
/* Returns the format in which gradients travel: what is accumulated in fewer bits than f32 as it is. */
static inline ZkElem zp_travels_as(const ZpBucket *k, bool staged) {
  return !staged && k->grad != ZK_F32 ? (ZkElem)k->grad : (ZkElem)k->reduce;
}

/* Per position of the tuples carried in and out of a segment: whether it has a cotangent, because a gradient
 * of a trained parameter is made from it. */
typedef struct {
  bool *in, *out;
} ZpCotangents;

#endif
