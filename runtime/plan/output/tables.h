/* The numbers behind tables of a plan: as text (show.c, explain.c) and as JSON (json.c, JSON.md). */
#ifndef ZUG_PLAN_TABLES_H
#define ZUG_PLAN_TABLES_H

#include "runtime/plan/text.h"

/* Put what `show` and `explain` say as JSON, the members of an object that the caller has begun. */
void zp_json_show(ZbJson *j, const ZpPlan *p);
void zp_json_explain(ZbJson *j, const ZpPlan *p);

/* The bytes of a rank's arena that are in use from a moment of the step on, by use. */
enum { ZP_USES = 6 };
extern const char *const zp_use_text[ZP_USES]; /* "stored", "activations", ... */
typedef struct {
  double at;
  int64_t bytes[ZP_USES];
} ZpUse;
/* Returns n moments at which that changes, in order. spans: of the step, by instruction of the stage's program; NULL
 * for one that was not reached. */
ZpUse *zp_uses(ZbArena *a, const ZpStage *st, const ZpSpan *const *spans, size_t *n);

/* The items of the compute queues of a plan that trains, in units of time (zp_item_info). */
typedef struct {
  ZbArena *a;     /* the caller's to free */
  ZpOrder *order; /* per stage: its items in the order of its queue, with their times */
  uint64_t span;
} ZpTimeline;
ZpTimeline zp_timeline(const ZpPlan *p);
/* Returns the part of its time that a stage does nothing, by the schedule alone. */
double zp_idle(const ZpTimeline *t);
/* Returns the cost of a stage as a share of the mean; 0 if nothing costs. */
double zp_stage_cost(const ZpPlan *p, uint32_t stage);

/* Counts the elements of a group of parameters, of all ranks and without padding; says whether a parameter
 * is in it. */
double zp_group_elements(const ZpPlan *p, uint32_t group);
bool zp_in_group(const ZpPlan *p, uint32_t param, uint32_t group);
/* The costs of a group, of all ranks: bytes of states; bytes that its update reads and writes in a step; FLOPs of that. */
typedef struct {
  double elements, states, moved, flops;
} ZpGroupCost;
ZpGroupCost zp_group_cost(const ZpPlan *p, uint32_t group);

/* Instances of a stage that are iterations of one repeat, one after the other: st->insts[from .. from + n). */
uint32_t zp_run_of(const ZpStage *st, uint32_t from);

/* Returns the bytes that a rank of the stage holds for values in p->programs.stashed, in all live micro-batches; and those
 * that its calls read and write less for it per step. */
uint64_t zp_stashed_bytes(const ZpPlan *p, uint32_t stage);
uint64_t zp_stashed_moves(const ZpPlan *p, uint32_t stage);

/* Lines of the ledger: what another plan keeps is of interest only beside it. */
bool zp_ledger_shows(const ZpPlan *p, int line, ZpMemory m);

/* One kind of message of the ranks of some stages, with how often a rank has part in it. */
typedef struct {
  uint64_t key; /* place in the table; rows of several stages that have the same key are alike in words */
  uint32_t from, to; /* stages */
  uint32_t next;     /* other row of the stage of the same bucket and kind of instruction, or ZP_NONE */
  uint16_t op;       /* a collective, or ZP_SEND */
  ZpDims dims;
  int64_t members;
  /* all: bytes of all of the count. Rows of experts are not as many in every round: bytes are the mean. */
  uint64_t bytes, count, all;
  uint64_t most; /* count, if one rank's experts have all rows: ZpRounds */
  const char *over, *what, *why;
  const ZpTied *tied; /* over its stages, and not over dims; else NULL */
  uint32_t hops;      /* a send: to the stage so much further, in a circle */
} ZpSent;
enum { ZP_SEND = ZG_OP_COUNT }; /* beside collectives */
typedef struct {
  ZpSent *rows;
  uint32_t n;
} ZpSents;
ZpSents zp_sents(const ZpPlan *p, ZbArena *a);
const char *zp_sent_op(uint32_t op); /* "all_gather", "send" */
/* Returns the bytes that a rank sends for it, as rings do it, which is as little as can be if all ranks send
 * alike. */
double zp_sent_bytes(const ZpSent *r);
/* All that a rank of a stage sends, and of it by each op. */
double zp_sent_of_stage(ZpSents t, uint32_t stage, double by[ZP_SEND + 1]);

/* ---- lists.c ---- */
/* A call, and what it moves: bytes that it reads and writes; of what sends, those of a whole tensor, in all rounds. */
typedef struct {
  const ZpNode *node;
  bool adds;          /* to some of its results: zp_row_adds_to */
  bool sends, beside; /* beside calls, until node->until */
  double bytes;
} ZpRow;
ZpRow zp_row(const ZpPlan *p, uint32_t segment, ZpPhase phase, uint32_t i);
bool zp_row_adds_to(const ZpPlan *p, uint32_t segment, const ZpRow *r, int i);
const char *zp_space_text(const ZpValue *v); /* where it lies: "activations", "gradient" */
/* "layer.*.attn.wq" of a parameter and of its gradient, "tokens" of an input, "%7" of others. */
void zp_value_text(const ZpPlan *p, uint32_t segment, uint32_t value, ZbText *out);
bool zp_value_cut(const ZpPlan *p, const ZpValue *v, int i); /* whether ranks have parts of its axis i */
ZpDims zp_value_partial(const ZpPlan *p, const ZpValue *v);  /* dims over which it is a partial sum */

#endif
