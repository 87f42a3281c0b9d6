/* The interface between the files of this room; nobody outside includes it.
 *
 * cut.c       where the model may be cut, and the cuts that leave the busiest rank least to do (program.h)
 * stages.c    segment instances to virtual stages, and these to the stages that own them
 * orders.c    in which order a rank computes: gpipe, 1f1b
 * simulate.c  when everything would happen, ignoring queues: gives all stages one global order
 * rehearse.c  how long a schedule takes by itself, and its buffers (program.h)
 * zero.c      gathers, staged gradients, reductions of a stage
 * draft.c     instructions and buffers in the making
 * updates.c   updates, and those of Muon through whole matrices
 * program.c   the instructions, their operands and waits
 * ledger.c    the arena, byte by byte
 * choose.c    how segments are lowered: with how much scratch, what is stashed for backward */
#ifndef ZUG_PLAN_SCHEDULE_H
#define ZUG_PLAN_SCHEDULE_H

#include "runtime/plan/bind/bind.h"

/* Equal buffers that micro-batches hand on to each other, the one that is free longest first. */
typedef struct {
  uint64_t bytes;   /* of the tuple; 0: nothing is carried, so there is no ring */
  uint32_t n, buf;  /* how many; the first one's number among the stage's buffers */
  uint32_t *index;  /* per micro-batch: which it gets */
  uint32_t *before; /* and which micro-batch had that before, or ZP_NONE */
} Ring;

/* A virtual stage in simulated time, and what it passes on: activations (ACT) and cotangents (GRAD). */
typedef struct {
  /* Per micro-batch: the items of its owner's order that take these in; the item behind which its slot is free; when
   * these are there, UNKNOWN until simulated. */
  uint32_t *item[2], *last;
  uint64_t *arrive[2];
  Ring slot, recv[2], send[2]; /* send: no bytes where the neighbour is on the same stage */
  bool keeps_act;              /* what arrives is read again by backward */
} Lane;
enum { ACT, GRAD };
#define UNKNOWN UINT64_MAX

/* All that is scheduled, in simulated time. */
typedef struct {
  Lane *lane;      /* per virtual stage, by number */
  ZpOrder *order;  /* per stage */
  uint64_t *begin; /* per stage: when its first item can start; before it is the prologue */
} Timeline;

/* Time units of one instance's forward, by segment; zp_item_info says how many of these other items take. */
uint64_t *zp_durations(const ZpPlan *p, ZbArena *a);
/* Orders, rings and times of all stages. */
Timeline zp_timelines(const ZpPlan *p, ZbArena *a, const uint64_t *duration);
/* Return the virtual stage from which one takes in activations (kind ACT) or cotangents (GRAD), and the one
 * that takes in what it makes; ZP_NONE: there is none. */
uint32_t zp_source(const ZpPlan *p, int kind, uint32_t v);
uint32_t zp_sink(const ZpPlan *p, int kind, uint32_t v);
/* Returns whether an instance of the stage has losses whose denominators are counted; how many of a virtual
 * stage have. */
bool zp_counts(const ZpPlan *p, const ZpStage *st, uint32_t inst);
uint32_t zp_count_insts(const ZpPlan *p, const ZpVirtualStage *v);
/* Returns whether forward of an instance divides by them, too: where it makes gradients of logits. */
bool zp_divides_forward(const ZpPlan *p, const ZpStage *st, uint32_t inst);

/* An instruction in the making. Listed by (when, rank, need, number of the draft), an order in which nothing
 * ever waits for what comes later, on any stage: see zp_program. */
typedef struct {
  ZpInstr in;
  uint64_t when;       /* twice the time; compute + 1, since it starts after what has happened by then */
  uint32_t rank, need; /* among those of one moment */
  uint32_t pos;        /* compute: position in its queue; others: first that waits for it */
  uint32_t after_pos;  /* P2P, COLL: waits for compute at this position, or ZP_NONE */
  uint32_t after;      /* COLL: waits for this draft of its queue, or ZP_NONE */
} ZpDraft;
enum { BY_TRANSFER, BY_GATHER, BY_SCATTER, BY_REDUCE, BY_TIED, BY_STEP, BY_UPDATE };

typedef struct {                 /* one bucket as FWD or BWD at some position uses it */
  uint32_t gather_buf, gather;   /* where it is gathered; who gathers it, or ZP_NONE */
  uint32_t staging_buf, staging; /* where its gradient goes; who must have emptied that, or ZP_NONE */
  bool adds;                     /* ... to what an earlier backward of the micro-batch has put there */
} Use;

typedef struct {
  ZpPlan *p;
  ZpStage *st;
  uint32_t s;
  ZbArena *a; /* scratch */
  Lane *lane; /* per virtual stage of the plan, by number */
  const ZpOrder *order;
  ZpDraft *d;
  uint32_t nd;
  ZpBuf *bufs;
  uint32_t nbufs;
  uint32_t *comp;
  uint32_t ncomp; /* compute queue: drafts; times by position */
  uint64_t *start, *end;
  uint32_t last_work;       /* position of the last backward; without one, of the last forward */
  uint32_t count_pos;       /* position of the last COUNT, or ZP_NONE */
  uint32_t count;           /* its reduction: draft, or ZP_NONE */
  uint32_t step;            /* REDUCE_STEP: draft */
  uint32_t *item_pos;       /* per item: position of its first FWD or BWD */
  uint32_t *(*moves)[2][2]; /* by index: [ACT, GRAD][receive, send], per micro-batch: draft; NULL: none */
  bool **back;              /* per segment, per bucket of it: backward uses it */
  uint32_t *use_at;
  Use *uses;                                  /* use_at[position] + k: k-th bucket of the instance */
  uint32_t *last_bwd;                         /* per held bucket: position */
  uint32_t *reduced;                          /* per held bucket: last draft that reduces it, or ZP_NONE */
  uint32_t *phase;                            /* per held bucket: reductions of the accumulator so far */
  uint32_t *param_buf, *grad_buf, *state_buf; /* per held bucket; state_buf ZP_NONE: none */
  uint32_t boundary_buf, scratch_buf, scalars_buf; /* ZP_NONE: none */
  uint32_t update_buf, nupdate;                    /* Muon's, used in turn */
  uint32_t *turn;                 /* per held bucket that is Muon's: which of these, from 0 */
  uint32_t *gathered, *scattered; /* per held bucket: drafts of its update's collectives, or ZP_NONE */
  uint32_t npinned;
  ZpAccess *access;
  uint32_t naccess; /* of the instruction in the making */
  uint32_t *wait;
  uint32_t nwait;
} ZpBuilder;

/* draft.c: n buffers of a kind, the first one's number; a draft, its number; the tag of what a held bucket
 * has. */
uint32_t zp_gen_bufs(ZpBuilder *g, ZpBufKind kind, uint32_t pool, uint32_t n, uint64_t bytes);
uint32_t zp_gen_draft(ZpBuilder *g, ZpInstrOp op, uint64_t time, uint32_t rank, uint32_t need);
uint64_t zp_tag_held(const ZpBuilder *g, ZpTag kind, uint32_t held, uint32_t n);
/* draft.c: an instruction of the compute queue; of the one at `pos`: an operand, and what it waits for */
ZpInstr *zp_gen_compute(ZpBuilder *g, ZpInstrOp op, uint64_t start, uint64_t duration);
void zp_gen_touch(ZpBuilder *g, uint32_t buf, uint32_t mode, uint64_t tag);
void zp_gen_await(ZpBuilder *g, uint32_t pos, uint32_t id);
/* updates.c: buffers; all updates, from that time on; operands of MOMENTUM, ORTHOGONALIZE and an OPT_STEP of
 * Muon's, but for the parameters and sums */
void zp_gen_update_bufs(ZpBuilder *g);
void zp_gen_updates(ZpBuilder *g, uint64_t step);
void zp_gen_touch_muon(ZpBuilder *g, uint32_t pos, const ZpInstr *in);
/* zero.c */
bool zp_gen_uses(const ZpBuilder *g, const ZpInstr *in, uint32_t k); /* FWD, BWD: bucket k of its segment */
void zp_gen_params(ZpBuilder *g); /* uses, gathers, scatters, reductions within the stage */
uint64_t zp_gen_ready(const ZpBuilder *g, uint32_t held); /* when its gradient is reduced within the stage */
void zp_gen_tied(ZpBuilder *g, uint32_t held, uint64_t time, uint32_t pair);

/* ---- passes: what plan.c calls; choose.c --------------------------------------------------------------- */
/* Schedules the plan: stages, programs, ledger. If it does not fit, lowers segments with less scratch, then
 * with collectives awaited. False with reports. */
bool zp_fit(ZpBuild *b);
/* Recomputes nothing, with a report, if the plan takes less memory then. */
void zp_drop_recompute(ZpBuild *b);
/* Stashes what fits of the values that backward recomputes, the one first that saves most per byte. */
void zp_stash(ZpBuild *b);

/* ---- what these call; zp_program, between the two, is in plan.h ---------------------------------------- */
/* Instances to stages. False with reports. */
bool zp_stages(ZpBuild *b);
/* Bytes of a stage that has its instances and buckets: slot, scratch, boundaries. */
void zp_measure_stage(const ZpPlan *p, ZpStage *st);
/* Arena offsets of everything. False if a rank has less memory than that, which zp_report_limit then
 * reports. */
bool zp_ledger(ZpBuild *b);
void zp_report_limit(ZpBuild *b);

#endif
