/* Between segment.c, which follows the node lists, and layout.c, which looks at one value or node. */
#ifndef ZUG_PLAN_CHECK_LOCAL_H
#define ZUG_PLAN_CHECK_LOCAL_H

#include "runtime/plan/check/check.h"

typedef struct {
  const Check *c;
  uint32_t index; /* of the segment */
  const ZpSegment *s;
  const ZgSegment *gs;
  const ZpCotangents *cotangents; /* as they are derived here */
  uint64_t temp;                  /* bytes of the list's temporaries */
} Local;

/* Checks that a value of the input block is an input that the model's segment reads, as the data is laid
 * there. */
bool zp_input_fits(const Local *l, const ZpValue *v);
/* Checks an operand that is an input: the model, too, selects by it here. */
bool zp_selects_as_the_model(const Local *l, const ZpNode *n, int operand);
/* Checks the plan's list of inputs: each has a place of its own, of its type. */
bool zp_inputs_fit(const Check *c);
/* Returns the axis along which dim d cuts values of this type, as the recipe's lists say; ZP_NONE: none. */
uint32_t zp_listed_axis(const ZpPlan *p, const ZgType *t, int d);
/* facts.c: checks the plan's inputs, parameters, micro-batches and optimizer against graph and recipe. */
bool zp_check_facts(const Check *c);
/* Tuples have the bytes of their types. */
bool zp_tuples_fit(const Local *l);
/* Returns where position k of a carried tuple begins, of those that it has; NULL: it has all. */
uint64_t zp_tuple_at(const Local *l, const ZgType *types, uint32_t k, const bool *has);
/* Value v has the sizes that the mesh leaves of its axes and lies inside its block; a group, behind each
 * other, its parts. */
bool zp_value_fits(const Local *l, uint32_t v);
bool zp_group_fits(const Local *l, uint32_t v);
bool zp_view_fits(const Local *l, uint32_t v, const ZkView *view);
/* Returns the slice of the bucket that a parameter or gradient lies in, if it fits. */
const ZpSlice *zp_slice_at(const Local *l, const ZpValue *v);
/* Returns the bytes of scratch that the device's kernel says the call takes; of a plan for no device none. */
uint64_t zp_kernel_scratch(const Local *l, const ZkCall *call);
/* NULL, or what is wrong with the axes that a call names: whoever trusts them asks this first. */
const char *zp_axes_wrong(const Local *l, const ZpNode *n);
/* NULL, or what is wrong with the operands' shapes: of a sum that is taken out, a collective, another
 * call. */
const char *zp_sink_wrong(const Local *l, const ZpNode *n);
const char *zp_collective_wrong(const Local *l, const ZpNode *n);
const char *zp_packed_wrong(const Local *l, const ZpNode *n);
bool zp_packed_fits(const Local *l, const ZpValue *v); /* order of axes and bytes */
const char *zp_sizes_wrong(const Local *l, const ZpNode *n);

#endif
