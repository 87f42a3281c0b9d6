/* Binding a recipe to a graph: the decisions, and those of them that later passes ask for.
 *
 * bind.c   names, sizes, the mesh, directives
 * batch.c  the global batch: micro-batches of so many samples on so many ranks
 * steps.c  the sizes of a step of generation
 * slots.c  rows of experts in a round, and which ranks have which
 * chunk.c  what is computed in chunks of rows, so that logits never exist whole
 * groups.c what is frozen, which optimizer updates what, at which rate, with which decay
^ * roles.c  how the model uses a parameter: in which products, as a table, otherwise
^ * pack.c   which parameters are stored in 8 or 4 bits
 * muon.c   which parameters are updated as which matrices
 * names.c  axes that a recipe names
 * select.c which parameters a recipe's words mean
 * zigzag.c whether positions are split zigzag
 * pad.c    whether padding an axis changes the result
 * wide.c   what computes in f32 under `compute bf16` */
#ifndef ZUG_PLAN_BIND_H
#define ZUG_PLAN_BIND_H

#include "runtime/plan/plan.h"

/* How a segment is lowered: what schedule/choose.c chooses. */
typedef struct {
  const ZpStash *stash; /* values that are stashed for backward, of any segments */
  uint32_t nstash;
  uint64_t room;  /* most bytes of scratch that a call may take; 0: any */
  bool awaits;    /* collectives are complete before the next call */
  bool saves_all; /* nothing of what the recipe recomputes is recomputed */
} ZpVariant;

/* A plan in the making: what its passes pass to each other beside the plan itself. */
typedef struct {
  const ZgGraph *g; /* as it was given; the plan may have its own */
  ZpPlan *p;
  ZlDiags *d;
  const ZpOptions *o;
  bool *recompute;      /* per region: its forward runs again in backward */
  int64_t *stage_items; /* iterations of the model's repeats on each stage; NULL: by cost */
  uint64_t limit;       /* bytes of a rank; 0: none */
  ZpVariant variant;    /* as segments are lowered */
  const ZpPlan *cuts; /* stages are cut as in this plan, which may be the same; NULL: by cost, or as listed */
  ZpDims attended;    /* dims over which the sequence of some attend is split */
  ZpDims *grad_partial; /* per parameter: dims along which its gradient may stay partial within a step */
} ZpBuild;

/* Returns the bytes that a rank may take by the recipe and the cluster; 0: no limit is known. */
uint64_t zp_limit(const ZpBuild *b);

/* Warns of f32 that spreads to products or what a repeat carries, where the recipe computes in bf16. */
void zp_warn_wide(ZpBuild *b);

/* False with reports if the recipe does not fit. */
bool zp_bind(ZpBuild *b);
/* Splits the samples of a step over ranks and micro-batches; reports if that leaves a remainder. */
void zp_bind_batch(ZpBuild *b);
/* Fills p->generating, p->pages and the sizes of axes of steps. */
void zp_bind_steps(ZpBuild *b);
/* Returns whether a step of generation has the axis; it has none of samples and time. */
bool zp_in_step(const ZpPlan *p, uint16_t axis);
/* Returns whether ranks along a mesh dimension of the recipe play steps of their own: it splits samples, and nothing
 * that a step has. */
bool zp_replicates(const ZpBuild *b, uint32_t mesh);
/* Fills ZpDim.zigzag, and p->notes.order. */
void zp_bind_zigzag(ZpBuild *b);
/* Returns the first axis of dim d's list that splits an attend, if keys were queries: one of samples or
 * heads, or the queries' own; ZG_NONE without one. */
uint32_t zp_attended_axis(const ZpPlan *p, const ZgNode *n, const ZgType *in, const ZgType *out, int d,
                          uint16_t query);
/* Sizes the slots' axes of p->layout.experts, and adds them, last, to the dims that split them. */
void zp_bind_slots(ZpBuild *b);
/* Into how many chunks the recipe cuts what has this axis, along it; 1: into none. */
int64_t zp_chunks_along(const ZpPlan *p, uint16_t axis);
/* Fills p->layout.chunk; what it says is done to p->graph. False with a report. */
bool zp_bind_chunk(ZpBuild *b);
/* Fills p->asked.frozen, optimizers, groups and group. */
void zp_bind_groups(ZpBuild *b);
/* How forward uses a parameter's value. */
typedef struct {
  bool product, table, other; /* in a product; looked up; in something else, or in uses that differ */
  uint8_t role[ZG_MAX_AXES];  /* by declared axis: ZpRole. Of a table the axis that is looked up is of rows */
  uint32_t loc;               /* of the use as a table, or of that other one */
} ZpParamUses;
void zp_param_uses(const ZgGraph *g, ZbArena *scratch, uint32_t param, ZpParamUses *u);
/* Returns whether it is a matrix in all that it is used for. */
bool zp_is_matrix(const ZgParam *q, const ZpParamUses *u);
/* Fills p->asked.packed; reports what cannot be. */
void zp_bind_packed(ZpBuild *b);
/* Fills p->layout.roles where something is updated by matrices; o: the recipe's optimizers, as in p->asked.optimizers. */
void zp_bind_matrices(ZpBuild *b, const ZlOptimizer *const *o);
/* Axes by where their sizes come from: what a directive can name. */
typedef enum { ZP_AXIS_OF_DATA, ZP_AXIS_OF_MODEL, ZP_AXIS_ANY } ZpAxisKind;
/* Returns the axis of that name. If there is none, ZG_NONE: the report says which of the kind there are, and
 * the help names one of these. */
uint32_t zp_find_axis(ZpBuild *b, ZlName name, ZpAxisKind kind);
/* "its axes are `a`, `b`": at most so many. */
void zp_note_names(ZlDiag *e, const char *what, const char *const *names, uint32_t n);
/* Marks, in chosen[parameter], those that the words mean; reports words that mean none. */
void zp_select(ZpBuild *b, const ZlPath *at, uint32_t n, bool *chosen);
/* False with a report if the entries that `pad` adds to `axis` could change the result. */
bool zp_check_pad(ZpBuild *b, const ZlBind *pad, uint16_t axis);

#endif
