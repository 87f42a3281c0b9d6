/* The interface between the files of this room; nobody outside includes it. */
#ifndef ZUG_PLAN_TIME_INTERNAL_H
#define ZUG_PLAN_TIME_INTERNAL_H

#include "runtime/plan/time/time.h"

/* ---- kernel.c ---- */
double zp_peak(const ZpPlan *p, const ZlCluster *c);         /* of products, as the plan computes */
double zp_call_seconds(const ZlCluster *c, const ZpNode *n); /* of a node that sends nothing */
ZpTimePart zp_call_part(int op);                             /* PRODUCTS, ATTENTION or MEMORY */
double zp_attention_rate(const ZlCluster *c, ZkElem elem);   /* FLOPs a second of attention forward */
double zp_view_elems(const ZkView *v);
/* Finds batch, m, n and depth of a product, DOT. */
typedef struct {
  double m, n, depth, batch;
} ZpProduct;
ZpProduct zp_product_of(const ZkCall *k);
/* Returns the format that a product of this operand computes in: packed weights are computed with as the other. */
static inline ZkElem zp_product_elem(const ZkCall *k, int operand) {
  ZkElem e = (ZkElem)k->in[operand].elem;
  return zk_is_packed(e) ? (ZkElem)k->in[!operand].elem : e;
}

/* ---- cost.c ---- */
/* Most are over before the next begins. One that goes beside others begins when the one before it of its kind
 * is complete, and one waits until it is. */
typedef enum { PIECE_ALONE, PIECE_BESIDE, PIECE_WAITS } PieceKind;
/* A piece of an instruction without a break: compute, or one collective. */
typedef struct {
  double seconds, part[ZP_T_PARTS]; /* alone; of a collective only TENSOR */
  uint32_t level;                   /* a collective: of the links that it takes; ZP_NONE: it computes */
  uint32_t node;                    /* a collective: of its list; else ZP_NONE */
  PieceKind kind;
  uint32_t waits; /* PIECE_WAITS: for this piece, which goes beside */
} Piece;
typedef struct {
  Piece *piece;
  uint32_t n;
  double recomputed; /* seconds */
} Pieces;
typedef struct {
  double seconds;
  uint32_t level;
  bool heavy; /* takes multiprocessors from computation, and its share of the links; not if it only starts */
} Exchange;

typedef struct {
  const ZpPlan *p;
  const ZlCluster *c;
  bool spans; /* are kept */
  ZbArena *a; /* scratch */
  const ZpSegment *segment;
  const ZpList *list;     /* the one that is looked at, of this segment */
  const ZpStepLoad *load; /* what is in the step of generation; NULL: the plan trains or evaluates */
  ZpPlace **place;        /* per stage and set of dims; NULL: not asked yet */
} Cost;

Cost zp_cost_new(const ZpPlan *p, const ZlCluster *c, bool spans, ZbArena *a);
/* Returns the pieces of an instruction of the compute queue, or of a list; a list's are made once per
 * stage. */
Pieces zp_list_pieces(Cost *x, uint32_t stage, uint32_t segment, ZpPhase phase);
Pieces zp_compute_pieces(Cost *x, uint32_t stage, const ZpInstr *in); /* none that runs a list */
Exchange zp_exchange(Cost *x, uint32_t stage, const ZpInstr *in);     /* P2P, COLL */

/* ---- step.c ---- */
/* Returns the seconds of a node of a step of generation that sends nothing. */
double zp_step_call_seconds(const Cost *x, const ZpNode *n);
/* Returns which share of a value's bytes a step has that is not as large as the plan's. */
double zp_step_share(const Cost *x, const ZpValue *v);
/* Returns the same of what has all tokens, and nothing but them. */
double zp_step_tokens(const Cost *x);

/* ---- loop.c ---- */
void zp_time_loop(Cost *x, ZbArena *a, ZpTime *t);

#endif
