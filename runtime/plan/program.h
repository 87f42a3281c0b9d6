/* Instruction lists: the virtual stages that the model is cut into, the stages whose ranks own them and what
 * these play in a step, the buffers and the memory that takes. */
#ifndef ZUG_PLAN_PROGRAM_H
#define ZUG_PLAN_PROGRAM_H

#include "runtime/plan/values.h"

/* ---- stages, programs ---------------------------------------------------------------------------------- */
typedef struct {         /* a bucket on a stage */
  uint32_t bucket, iter; /* template; iteration (0 for single ones) */
  uint32_t tied;         /* index into plan->programs.tied, or ZP_NONE: copies on other stages */
  bool norm_owner;       /* its squared norm counts on this stage (the first that holds it) */
} ZpStageBucket;
/* clang-format off */
typedef struct {
  uint32_t segment, iter;
  /* Indices into the stage's `held`, in the order of the segment's `buckets`. */
  uint32_t *held; uint32_t nheld;
} ZpInst;
/* clang-format on */

/* A virtual stage: the model is cut into these. Its instances run as one, one micro-batch at a time. Its
 * number along the model is its place in ZpPrograms.vstages. The first takes in no bytes, and the last hands
 * on none. Neighbours on one stage hand tuples to each other in memory, others send them. */
typedef struct {
  uint32_t stage, index;                   /* the stage whose ranks own it, and its place among theirs */
  uint32_t first, ninsts;                  /* of the stage's insts */
  uint64_t carry_bytes, carry_out_bytes;   /* activations that it takes in, and hands on */
  uint64_t dcarry_bytes, dcarry_out_bytes; /* cotangents that it returns, and gets back */
  uint64_t input_bytes, slot_bytes; /* per micro-batch: data inputs; its slot, which begins with these */
} ZpVirtualStage;

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
/* Returns the list of its segment that an instruction runs; ZP_PHASES: it runs none. */
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
  ZP_B_SLOT,     /* activation slot of a virtual stage: inputs, then saved blocks of its instances */
  ZP_B_RECV_ACT, /* what a virtual stage takes in and hands on */
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
  ZP_B_CACHE, /* of a plan that generates: the caches of all its instances. It outlives steps; which of it a step
                  * reads and writes, its tables of pages and its sequences say */
  /* The host's memory, if the device has its own. No instruction has these as operands: LOAD copies through
   * them, and so do the beginning and end of a step. */
  ZP_B_PINNED_INPUTS,  /* of one micro-batch each, used in turn */
  ZP_B_PINNED_SCALARS, /* index: ZP_PINNED_* */
  ZP_B_SNAPSHOT,       /* what a rank writes into a checkpoint, as it was after a step */
  ZP_B_KINDS
} ZpBufKind;
/* Returns whether virtual stages have rings of such buffers. */
static inline bool zp_is_of_vstage(int kind) { return kind <= ZP_B_SEND_GRAD; }
/* Returns whether each held bucket has one, which lasts from step to step. */
static inline bool zp_is_stored(int kind) { return kind >= ZP_B_PARAM && kind <= ZP_B_STATE; }
enum { ZP_SCALARS_COUNT, ZP_SCALARS_SUMS };    /* loss denominators; what REDUCE_STEP adds up */
enum { ZP_PINNED_STEP_STATE, ZP_PINNED_SUMS }; /* what a step brings to the device; what it brings back */
typedef struct {
  uint8_t kind;
  uint32_t index; /* within its kind; GATHER, STAGING: within its pool */
  /* SLOT, RECV and SEND: which of the stage's virtual stages; GATHER, STAGING: bucket template; PARAM, GRAD,
   * STATE: held bucket. */
  uint32_t pool;
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
  ZP_TAG_SLOT,    /* a = which of the stage's virtual stages: inputs and saved values of micro-batch mb */
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
  /* LOAD, COUNT, FWD, BWD: virtual stage that it is of; P2P: the one that takes in the tuple, forward. */
  uint32_t vstage;
  uint32_t inst; /* COUNT, FWD, BWD: instance of the stage */
  uint32_t held; /* bucket instructions: index into the stage's held */
  uint32_t peer; /* P2P: the stage at the other end */
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
  uint32_t live; /* most micro-batches whose activations are held at once, by each of its virtual stages */
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

/* A class of ranks: those with one coordinate along the pipeline. */
/* clang-format off */
typedef struct {
  uint32_t *vstages, nvstages;      /* numbers of its virtual stages, ascending */
  ZpInst *insts; uint32_t ninsts;   /* of all of these, in the order of the model */
  ZpStageBucket *held;  uint32_t nheld;
  uint64_t *saved_at;               /* per instance: offset of its saved block in a slot of its virtual stage */
  uint64_t *cache_at, cache_bytes;  /* per instance: offset of its caches in the stage's; of all */
  uint64_t scratch_bytes, boundary_bytes;
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

/* ---- cut.c --------------------------------------------------------------------------------------------- */
/* The unit of cutting, which stays on one stage: an iteration of an outermost repeat, with the straight parts
 * after it; the first item also has those before it. */
typedef struct {
  uint32_t first; /* instance, in the order in which the model has them */
  double cost;
} ZpStageItem;
/* Returns how many items the model has. cost: per segment, of one instance. */
uint32_t zp_stage_items(const ZgGraph *g, ZbArena *a, const double *cost, ZpStageItem **items);
/* Cuts n items into stages such that the owner that has most has least, and returns what it has. owner: per
 * stage, from 0; NULL: each has its own. counts: per stage, of its items, at least one. Of cuts that are as
 * good it takes one with few items on the last stages, or on the first, which hold the most micro-batches
 * (first_least). */
double zp_cut_stages(const ZpStageItem *items, uint32_t n, uint32_t stages, const uint32_t *owner,
                     bool first_least, int64_t *counts);

/* ---- schedule/orders.c --------------------------------------------------------------------------------- */
/* A rank works on one virtual stage and one micro-batch at a time: forward, backward, or a half of backward.
 * The input half makes the cotangents that the virtual stage before waits for, the weight half gradients of
 * parameters. */
typedef enum { ZP_FORWARD, ZP_BACKWARD, ZP_INPUT_HALF, ZP_WEIGHT_HALF, ZP_ITEM_KINDS } ZpItemKind;
typedef struct {
  uint8_t kind;
  uint32_t vstage, mb; /* number along the model; micro-batch */
} ZpScheduleItem;
typedef struct {
  ZpScheduleItem *item;
  uint32_t n;
  uint64_t *start, *end; /* per item, once there is a clock */
} ZpOrder;
/* Sets of kinds: those that take in activations, those that take in cotangents, and those that come last of a
 * micro-batch, behind which its slot is free. */
enum { ZP_TAKE_ACT = 1 << ZP_FORWARD, ZP_TAKE_GRAD = 1 << ZP_BACKWARD | 1 << ZP_INPUT_HALF };
enum { ZP_FREE_SLOT = 1 << ZP_BACKWARD | 1 << ZP_WEIGHT_HALF };
static inline bool zp_item_is(const ZpScheduleItem *x, unsigned set) { return set >> x->kind & 1; }
typedef struct {
  const char *text, *letter; /* "forward", "F" */
  uint64_t units;            /* of time: as many forwards */
} ZpItemInfo;
extern const ZpItemInfo zp_item_info[ZP_ITEM_KINDS];
/* Returns the items of a rank in the order in which it computes. */
ZpOrder zp_order(ZbArena *a, const char *schedule, uint32_t ranks, uint32_t nmicro, uint32_t rank);
/* Counts the most micro-batches that are between forward and the end of backward, each of the order's virtual
 * stages for itself. */
uint32_t zp_order_live(const ZpOrder *o);

/* ---- rehearse.c: a schedule by itself ------------------------------------------------------------------ */
/* How many buffers of a kind a virtual stage has. */
typedef struct {
  uint32_t slots, recv_act, send_act, recv_grad, send_grad;
} ZpRings;
/* The result of playing a schedule on equal stages. */
typedef struct {
  double bubble;    /* in which a stage waits for others: as many times what a micro-batch takes, both ways */
  double transfers; /* that the step waits for, one after the other */
  ZpRings *rings;   /* per virtual stage, */
  uint32_t nrings;  /* of which there are so many */
} ZpRehearsal;
/* keeps: stages read again in backward what they took in. Long steps are extended from short ones. */
ZpRehearsal zp_rehearse(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, bool keeps);

#endif
