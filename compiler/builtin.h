/* builtin: a call of an operation of the language, and what the files that lower such calls share.
 *
 * builtin.c    the list of operations, and how most are lowered
 * attention.c  rope and attend
 * conv.c       conv and conv_transpose
 * recurrence.c scan and linear_attend
 * operands.c   what a call gives: checks of operands, and keywords
 *
 * A mistake that has a name of its own (an axis that is missing, an index of the wrong axis) is reported by
 * these; for the rest zg_infer says why the node does not type. */
#ifndef ZUG_COMPILER_BUILTIN_H
#define ZUG_COMPILER_BUILTIN_H

#include "compiler/compose.h"

typedef struct {
  Elab *e;
  const ZlExpr *x;
  const struct Builtin *op;
  uint16_t ax[ZG_MAX_AXARG];
  int nax;
  Val arg[ZG_MAX_IN];
  ZlSpan span[ZG_MAX_IN];      /* of the arguments */
  const char *name[ZG_MAX_IN]; /* of those that a keyword gives; else NULL */
  int nargs;
} Call;

typedef struct Builtin {
  const char *name;
  uint8_t min_ax, max_ax; /* axis names */
  bool rows;              /* takes [..] */
  uint8_t min_in, max_in;
  const char *keywords; /* ",mask,scale," */
  Val (*make)(Call *c);
  uint16_t op; /* 0: several or none; its results are the call's */
} Builtin;

static inline Val poison(void) { return (Val){.kind = VAL_POISON}; }
static inline const char *axis_name(const Call *c, uint16_t a) { return c->e->g->axes[a].name; }
static inline int64_t axis_size(const Call *c, uint16_t a) { return c->e->g->axes[a].size; }

/* ---- apart.c ------------------------------------------------------------------------------------------- */
/* Gives what attention along these axes compares, if documents are kept apart; false: nothing. */
bool apart_same(Call *c, const ZgAttendAxes *ax, Val *out);
/* Give what stands in the place of position[along, table]() and of place[along](); false: they are of another axis. */
bool apart_position(Call *c, Val *out);
bool apart_place(Call *c, Val *out);
/* False, with a report, for an operation that would mix documents. */
bool apart_allows(Call *c);

/* ---- operands.c ---------------------------------------------------------------------------------------- */
ZgNode with_axes(const Call *c, ZgOp op, int nin); /* a node of the call's axis names */
const char *head(const Call *c);                   /* "dot[embed]" */
const char *operand(const Call *c, int i);         /* "the left operand", "`bias`" */
/* Where operand i got its name, if it is just a name. */
void also_declared(const Call *c, ZlDiag *d, int i);

/* These report what operand i lacks. */
bool want_axis(Call *c, int i, uint16_t axis);
bool want_axes(Call *c, int i);  /* all that the call names */
bool want_float(Call *c, int i); /* a number becomes a tensor */
bool want_index(Call *c, int i);

/* What the call gives for a keyword; NULL: nothing. */
const ZlExpr *keyword(const Call *c, const char *name);
/* False, with a report, where what it gives is wrong. */
bool number_keyword(Call *c, const char *name, double otherwise, double *out);
/* NAN where the call gives none. In a block that nobody calls, `any` will do. */
bool number_or_none(Call *c, const char *name, double any, double *out);
/* One of two words; there is no default, since the wrong one would be silent. */
bool word_keyword(Call *c, const char *name, const char *zero, const char *one, int64_t *out);
/* One of `n` words; *out stays what it is where the call does not say. */
bool choice_keyword(Call *c, const char *name, const char *const *words, int n, int *out);
bool known_keywords(Call *c); /* reports those that the operation has not */

/* ---- attention.c --------------------------------------------------------------------------------------- */
Val rope_op(Call *c);
Val attend_op(Call *c);
/* The tensor that the call gives for a keyword, if it does, as one more operand: an id or real. */
bool tensor_keyword(Call *c, const char *name, bool id);

/* ---- recurrence.c -------------------------------------------------------------------------------------- */
Val scan_op(Call *c);
Val linear_attend_op(Call *c);

/* ---- experts.c ----------------------------------------------------------------------------------------- */
Val dispatch_op(Call *c);
Val combine_op(Call *c);
/* ---- conv.c -------------------------------------------------------------------------------------------- */
Val conv_op(Call *c);

#endif
