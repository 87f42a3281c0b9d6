/* Planning for a test: a model from the source folder or from text, a recipe from text, and the plan as short
 * lines that an expectation can be written against. */
#ifndef ZUG_TESTS_LAYOUT_PLAN_H
#define ZUG_TESTS_LAYOUT_PLAN_H

#include "runtime/plan/local/local.h"
#include "tests/unit/compiler/load.h"

/* The graph of examples/NAME.zug (or of `text`, if that is not NULL) with options as on zc's command line;
 * fails the test with the messages if it does not compile. */
typedef struct {
  Case c;
  ZgGraph *g;
} Model;
Model model_open(const char *name, const char *text, const char *options);
void model_close(Model *m);

/* A recipe's body against a graph; `optimizer adamw(lr = 1e-3)` is added if it has none. */
typedef struct {
  ZbArena *a;
  ZlDiags *d;
  const ZlRecipe *r; /* NULL: the recipe itself is wrong */
  ZpPlan *p;         /* NULL: with messages */
  ZbText text;
} Plan;
Plan plan_as(const ZgGraph *g, const char *recipe, const ZpOptions *o);
Plan plan_try(const ZgGraph *g, const char *recipe);
Plan plan_of(const ZgGraph *g, const char *recipe);     /* fails the test if there is no plan */
Plan plan_bare(const ZgGraph *g, const char *recipe);   /* as plan_of, for kernels that need no scratch */
Plan plan_pinned(const ZgGraph *g, const char *recipe); /* ... and for a device with memory of its own */
Plan plan_try_pinned(const ZgGraph *g, const char *recipe);
/* ... with calls that `supports` says, and kernels of the CPU's. */
Plan plan_try_streams(const ZgGraph *g, const char *recipe, bool (*supports)(const ZkCall *call));
Plan plan_kept(const ZgGraph *g, const char *recipe); /* ... and for a run that writes checkpoints */
/* As plan_of, forward only; alone, with outputs, or in the arena of another plan of that recipe. */
Plan plan_forward(const ZgGraph *g, const char *recipe, const ZpPlan *beside);
/* Steps of generation in the arena of a plan that trains: 8 tokens of 2 sequences of 8. There may be none, with reports. */
Plan plan_try_steps(const ZgGraph *g, const char *recipe, const ZpPlan *beside);
/* As plan_of, for a device that supports what `supports` says, with kernels of the CPU's. */
Plan plan_fused(const ZgGraph *g, const char *recipe, bool (*supports)(const ZkCall *call));
bool supports_all(const ZkCall *call);        /* true */
bool supports_single(const ZkCall *call);     /* with one result: other pointwise nodes are taken apart */
bool supports_norms(const ZkCall *call);      /* normalize and its gradient with prologues and epilogues */
bool supports_norm_sums(const ZkCall *call);  /* ... and normalize_grad_sums */
bool supports_bias_grads(const ZkCall *call); /* dot_bias_grad */
bool supports_batched(const ZkCall *call);    /* batched GEMMs without epilogues */
bool supports_xent_max(const ZkCall *call);   /* xent_max_sums */
bool supports_xent_grad(const ZkCall *call);  /* xent_sums_grad */
const char *plan_messages(Plan *q);
void plan_close(Plan *q);

const ZpNode *phase_nodes(const ZpSegment *s, ZpPhase phase, uint32_t *n);
/* The segment with this label, or the `part`-th straight one if `label` is NULL. */
uint32_t segment_of(const ZpPlan *p, const char *label, uint32_t part);

/* One line a collective (local slices too), in order: "all_gather tensor: real[batch, seq, embed] seq". */
void put_collectives(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out);
/* One line a saved value, in order of making: "normalize: real[batch, seq, embed]"; of a pointwise node
 * the op that made it, "pointwise/tanh". The carried value, if it is saved, comes first: "carry". */
void put_saved(const ZpPlan *p, uint32_t segment, ZbText *out);
/* One line a pointwise node: its ops, then inputs and outputs: "mul add, 3 in, 1 out". */
void put_pointwise(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out);
/* Fails unless the text is `expect`; frees it. */
void expect_text(ZbText *got, const char *expect, const char *what);
void expect_collectives(const ZpPlan *p, const char *label, uint32_t part, ZpPhase phase, const char *expect);
void expect_saved(const ZpPlan *p, const char *label, uint32_t part, const char *expect);

/* Number of collectives `op` in a phase, over dims named `dims` ("" for any). */
uint32_t count_collectives(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZgOp op, const char *dims);
const ZpBucket *bucket_with(const ZpPlan *p, const char *param); /* fails if there is none */
/* brute.c: shapes, states, places and arena of a plan by brute force; "" or the first thing that is wrong. */
const char *plan_wrong(const ZpPlan *p, ZbArena *a);

#endif
