/* A segment of the graph to a local program: what one rank does for it, and where its values lie.
 *
 * local.c            the passes of a segment, in order
 * cut_sequences.c    recurrences along an axis that is split, made of ones along each rank's chunk of it;
 *                    cut_linear.c, cut_conv.c, cut_nodes.c; cut.h
 * -- sharded --
 * cotangents.c       which cotangents are wanted: frozen parameters want none
 * remat.c            which forward values are kept for backward and which are made again; the count of the
 *                    denominator
 * shard.c            the sharding rule: by which dim each node is split; shard.h
 * attend.c           which ways there are to split attention's sequence; rings
 * narrow.c           ... what is gathered of keys and values that were made of less
 * halo.c             shifts along an axis that is split
 * experts.c          ... of dispatch, combine and what is between them
 * reshard.c          a value from one layout to another: collectives, slices, pads
 * -- all segments together --
 * traffic.c          how many bytes nodes move
 * buckets.c          parameters into flat buffers, and what a rank stores of them
 * -- lowered; lower.h --
 * param_grads.c      gradients of parameters are added where they are stored
 * rounds.c           what is between dispatch and combine is played in rounds
 * delay_grads.c      gradients of weights wait for norms' gradients, where these read the same
 * fuse_*.c           one call does what several nodes did; rewrite.h
 * overlap.c          async collectives overlap with calls that do not need them
 * memory.c           where every value lies
 * calls.c            the kernel call of every node, its scratch, its FLOPs
 * batch_gemms.c      GEMMs whose tensors lie contiguous become one
 * -- asked by all --
 * values.c           where the elements of a value lie: layouts, sizes, views */
#ifndef ZUG_PLAN_LOCAL_H
#define ZUG_PLAN_LOCAL_H

#include <string.h>

#include "runtime/plan/bind/bind.h"

/* ---- passes: what plan.c calls ------------------------------------------------------------------------- */
/* Recurrences along a split sequence go over chunks of it: p->graph, p->layout.lies and what is there of each
 * axis. */
void zp_cut_sequences(ZpBuild *b);
/* Returns the share of a node's FLOPs that the model needs: a recurrence in chunks does more than its own
 * tokens need. */
double zp_model_share(const ZpPlan *p, const ZpSegment *s, const ZpNode *n);
/* Local programs of all segments: values, nodes; nothing placed. False with reports. */
bool zp_shard(ZpBuild *b);
/* Templates of parameters; every slice gets its place. False with a report: in the arena of the plan that trains they
 * do not lie as steps of generation need them. */
bool zp_buckets(ZpBuild *b);
/* Fuses the nodes of all segments, places their values, makes their calls. */
void zp_lower(ZpBuild *b);
/* Shards and lowers one segment once more, as a variant says, into *to and arena `a`; the plan and its
 * buckets stay as they are. Segments do not depend on each other, so this is the same program that all of
 * them together would give. Before it is used, zp_place_inputs. False: gradients would be summed elsewhere
 * than in the buckets that the plan has. */
bool zp_lower_segment(const ZpBuild *b, uint32_t index, const ZpVariant *v, ZbArena *a, ZpSegment *to);
/* Places data inputs in the slot: those of all segments, each once. Fills p->programs.inputs. */
void zp_place_inputs(ZpPlan *p);

/* ---- cotangents.c -------------------------------------------------------------------------------------- */
/* Fills p->layout.cotangents. */
void zp_find_cotangents(ZpPlan *p);
/* Returns whether the cotangent that a sink of backward takes is wanted. */
bool zp_wants_gradient(const ZpPlan *p, const ZpCotangents *c, const ZgNode *n);

/* ---- remat.c ------------------------------------------------------------------------------------------- */
/* A graph segment in which backward recomputes every forward value that it can, but for those in
 * b->variant. */
typedef struct {
  ZgSegment *s;     /* without dead nodes */
  bool *recomputed; /* by node: it is a copy of one of forward, for backward */
  ZpStash *stashable;
  uint32_t nstashable; /* as in ZpSegment */
} ZpRemat;
ZpRemat zp_remat(const ZpBuild *b, uint32_t index);
/* Returns the sub-list that computes the loss denominator, as a segment of its own; nnodes 0 if it has
 * none. */
ZgSegment *zp_count_segment(const ZpBuild *b, const ZgSegment *s);

/* ---- shard.c ------------------------------------------------------------------------------------------- */
/* Graph segment `index` into p->programs.segments[index]. partial[param] is narrowed to the dims along which
 * every contribution so far is partial. False with reports. */
bool zp_shard_segment(ZpBuild *b, uint32_t index, const ZgSegment *s, const bool *again,
                      const ZgSegment *count, ZpDims *partial);

/* ---- buckets.c ----------------------------------------------------------------------------------------- */
/* Returns where a parameter (ZP_AT_PARAM) or its gradient (ZP_AT_GRAD) lies, as the segment that uses it
 * counts buckets. */
ZpLoc zp_bucket_loc(const ZpPlan *p, const ZpSegment *s, uint32_t param, ZpSpace place);

/* ---- values.c ------------------------------------------------------------------------------------------ */
/* The layout of a set of axes: a pure function of (axis set, recipe). state: ZP_MAX_DIMS. */
void zp_layout(const ZpPlan *p, const ZgType *t, ZpState *state);
/* Local size of an axis in the given states. */
int64_t zp_local_size(const ZpPlan *p, uint16_t axis, const ZpState *state);
/* The axes of an activation as they lie in memory, slowest first: in the order of the type, but that rows of
 * experts begin with the experts and their slots. */
void zp_memory_order(const ZpPlan *p, const ZgType *t, uint16_t *axis);
/* Returns the format in which values of a type are stored, and that in which segments read a parameter: the
 * recipe's `precision compute` is read here. */
ZkElem zp_store_elem(const ZpPlan *p, const ZgType *t);
ZkElem zp_param_elem(const ZpPlan *p, uint32_t param);
/* Gives a packed parameter's value its format, order of axes and bytes: axes that number matrices, rows, columns. */
void zp_pack_value(const ZpPlan *p, ZpValue *v);
/* Returns whether a parameter is packed. */
static inline bool zp_param_packed(const ZpPlan *p, uint32_t param) {
  return p->asked.packed && p->asked.packed[param].elem != ZK_NONE;
}
/* Gives a value another format, and the bytes that it has in that. */
void zp_give_elem(ZpValue *v, ZkElem elem);
/* Axes of a parameter in the order in which it was declared, slowest first, and their local sizes. */
void zp_declared_order(const ZpPlan *p, uint32_t param, const ZpState *state, uint16_t *axis, int64_t *size);
/* Returns a value as a kernel sees it, without pointer; all those of a node's call. */
ZkView zp_view(const ZpPlan *p, const ZpValue *v);
void zp_views(const ZpPlan *p, const ZpSegment *s, ZpNode *n);

/* ---- questions of those who fuse and place ------------------------------------------------------------- */
/* Returns which output of the node the value is, or -1. */
static inline int zp_output_of(const ZpNode *n, uint32_t value) {
  for (int k = 0; k < n->call.nout; k++)
    if (n->out[k] == value) return k;
  return -1;
}
/* Returns whether the value is an input of the node. */
static inline bool zp_reads(const ZpNode *n, uint32_t value) {
  for (int k = 0; k < n->call.nin; k++)
    if (n->in[k] == value) return true;
  return false;
}
/* Returns whether they have the same axes with the same local sizes: one of two values of a type may be split
 * where the other is partial. Their memory orders may differ. */
static inline bool zp_same_space(const ZpValue *x, const ZpValue *y) {
  const ZgType *a = &x->type, *b = &y->type;
  bool same = a->naxes == b->naxes && !memcmp(a->axis, b->axis, a->naxes * sizeof *a->axis);
  for (int i = 0; same && i < a->naxes; i++)
    for (int k = 0; k < b->naxes; k++) same &= x->axis[i] != y->axis[k] || x->size[i] == y->size[k];
  return same;
}
static inline bool zp_same_layout(const ZpValue *x, const ZpValue *y) {
  size_t n = x->type.naxes;
  return x->elem == y->elem && n == y->type.naxes && !memcmp(x->axis, y->axis, n * sizeof *x->axis) &&
         !memcmp(x->size, y->size, n * sizeof *x->size);
}

#endif
