/* ragged: rows of experts, between dispatch and combine. Two axes of a type, experts and slots, are together
 * one axis of rows, sorted by expert, of which only a run knows how many each expert has. So nothing may be
 * done to such rows but to each alike, or with its own expert's weight. OPS.md has what dispatch means. */
#ifndef ZUG_RAGGED_H
#define ZUG_RAGGED_H

#include "graph/graph.h"

#define ZG_NO_AXIS UINT16_MAX

/* By axis: the experts whose slots it counts, by the graph's dispatches; ZG_NO_AXIS of all other axes. NULL
 * with a reason if an axis is that of two. In `a`. */
uint16_t *zg_slot_axes(const ZgGraph *g, ZbArena *a, ZbErr *err);
/* Notes what dispatch and combine say of that, as node n does; false with a reason if the axis is another's. */
bool zg_count_slots(const ZgGraph *g, uint16_t *experts, const ZgNode *n, ZbErr *err);
/* The slot axis of a type, or ZG_NO_AXIS. */
uint16_t zg_slot_axis(const uint16_t *experts, const ZgType *t);
/* The dispatch that value v, which has the slot axis, comes from; NULL: from none in this segment. */
const ZgNode *zg_dispatched_by(const ZgSegment *s, const uint16_t *experts, uint32_t v);
/* The ids by which rows were dispatched: operand 1 of the dispatch that value v, which has the slot axis,
 * comes from. */
uint32_t zg_route(const ZgSegment *s, const uint16_t *experts, uint32_t v);
/* Is a value a plain number, the same in every row? It has no gradient: of anything else that is a sum over
 * rows. */
bool zg_is_number(const ZgSegment *s, uint32_t v);
/* Whether node n of s (its operands are there; `out`: its results' types) leaves rows in their order, and
 * why it does not. Backward: gradients of weights sum over rows. */
bool zg_ragged_fits(const ZgGraph *g, const ZgSegment *s, const uint16_t *experts, const ZgNode *n,
                    const ZgType *out, bool backward, ZbErr *err);
/* A product of rows and their experts' weights, DOT as a model has it: which operand are the rows; -1: n is
 * none. */
int zg_grouped(const uint16_t *experts, const ZgNode *n, const ZgType *in);
/* The gradient of such a weight: rows times rows, summed over slots. */
bool zg_sums_rows(const uint16_t *experts, const ZgNode *n);

#endif
