/* A plan for people and other programs: the names of its things, tables, JSON, traces, digests. */
#ifndef ZUG_PLAN_TEXT_H
#define ZUG_PLAN_TEXT_H

#include "runtime/plan/plan.h"

/* ---- words.c ------------------------------------------------------------------------------------------- */
/* "layer.3": a held bucket, an instance; "FWD(layer.3, mb 1)", "SEND_ACT(mb 1)", "REDUCE_GRADS(wte)": an
 * instruction. */
void zp_held_text(const ZpPlan *p, uint32_t bucket, uint32_t iter, ZbText *out);
/* "layer", or of what is no repeat "part 2": a segment. */
void zp_segment_text(const ZpPlan *p, uint32_t segment, ZbText *out);
void zp_inst_text(const ZpPlan *p, uint32_t segment, uint32_t iter, ZbText *out);
void zp_instr_text(const ZpPlan *p, uint32_t stage, const ZpInstr *in, ZbText *out);
/* Returns the ZeRO stage that a bucket's storage amounts to: 0, 1, 2 or 3. */
int zp_zero_stage(const ZpBucket *k);
/* "gpt2.zug:12": a node's `loc`. */
const char *zp_loc_text(const ZpPlan *p, uint32_t loc);
/* Returns where the recipe gives the size of an axis; its `split ... over` for a mesh dim, or NULL; where
 * that is. */
ZlSpan zp_bind_span(const ZlRecipe *r, const char *axis);
const ZlSplit *zp_split(const ZpPlan *p, uint32_t directive);
ZlSpan zp_split_span(const ZpPlan *p, const ZpDim *d);
/* Returns the recipe's `attention` for a dim, or NULL. */
const ZlAttention *zp_attention(const ZpPlan *p, const ZpDim *d);

/* ---- output/ ------------------------------------------------------------------------------------------- */
const char *zp_compute_text(const ZpPlan *p);        /* "bf16", "tf32", "f32" */
void zp_show(const ZpPlan *p, ZbText *out);          /* mesh, stages, ledger */
void zp_show_schedule(const ZpPlan *p, ZbText *out); /* the timeline of micro-batches */
void zp_show_programs(const ZpPlan *p, ZbText *out); /* every instruction */
/* Returns the segment of that name (zp_segment_text), or ZP_NONE with those that there are; its calls, in
 * order. */
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
/* Returns the bytes of an instruction that moves something: not of a collective of one rank. Else 0. */
uint64_t zp_instr_bytes(const ZpPlan *p, const ZpInstr *in);

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
/* The beginning and end of a trace file; between them lie the events of each rank, separated by commas. */
extern const char zp_trace_head[], zp_trace_tail[];
bool zp_is_trace(const uint8_t *begin, size_t n); /* whether a file that begins so is one; 16 bytes suffice */
/* The events of one rank, with a comma and a newline between them. Times are `clock` later than the spans
 * say, and count from `zero`. Predicted: the same tracks, as a process of its own behind that of the rank. */
void zp_trace_events(const ZpPlan *p, int64_t rank, const ZpSpan *spans, uint64_t n, double clock,
                     double zero, bool predicted, ZbText *out);

/* ---- digest.c ------------------------------------------------------------------------------------------ */
/* Digests of everything in a plan that no engine has touched, a part at a time: "stage 0's instructions". */
typedef void ZpEachDigest(void *ctx, const char *what, uint64_t digest);
void zp_digest(const ZpPlan *p, ZbArena *a, ZpEachDigest *each, void *ctx);

#endif
