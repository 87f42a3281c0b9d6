/* compose: operations of the language that are several of the graph's. What they compute in between is f32,
 * whatever `real` is. Operands are tensors whose axes and element types have been checked; a poisoned one
 * gives poison. */
#ifndef ZUG_COMPILER_COMPOSE_H
#define ZUG_COMPILER_COMPOSE_H

#include "compiler/elab.h"

/* 0, 1, 2, .. along `axis` as f32, of the whole tensor. */
Val compose_place(Elab *e, ZlSpan span, uint16_t axis);
/* x repeated along axes that it lacks. */
Val compose_spread(Elab *e, ZlSpan span, Val x, const uint16_t *ax, int nax);
/* The place along `axis` into which each number falls, rounded down; none (-1) if it is outside, or no
 * number. */
Val compose_index(Elab *e, ZlSpan span, Val x, uint16_t axis);

/* The mean, in the element type of `v`; the sizes of data axes are those of the whole micro-batch. */
Val compose_mean(Elab *e, ZlSpan span, Val v, const uint16_t *ax, int nax);
/* log sum exp along v, f32: xent's sums for targets that are unknown. So it knows padding, and may be
 * split. */
Val compose_lse(Elab *e, ZlSpan span, Val z, uint16_t v);
/* Softmax and normalize over several axes at once. */
Val compose_softmax(Elab *e, ZlSpan span, Val x, const uint16_t *ax, int nax);
Val compose_normalize(Elab *e, ZlSpan span, Val x, const uint16_t *ax, int nax, bool centred, double eps);

/* ---- rope.c: rotary positions ---- */
typedef enum { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN } RopeRule;
extern const char *const rope_rules[3]; /* without ROPE_PLAIN */
/* What a call says; NAN (features: 0) where it says nothing. */
typedef struct {
  RopeRule rule;
  double base, factor, context, low, high, attention;
  int64_t features; /* so many of the first turn */
  bool beside;      /* pairs are neighbours */
  Val at;           /* positions; kind VAL_NUM: those along s */
  Val speeds;       /* a table of one's own; kind VAL_NUM: by the rule */
} RopeCall;
/* Says what a call lacks or has too much of, and fills in what it leaves out; h is the size of its
 * features. */
bool rope_check(Elab *e, ZlSpan span, RopeCall *r, int64_t h);
Val compose_rope(Elab *e, ZlSpan span, Val x, uint16_t s, uint16_t h, const RopeCall *r);

#endif
