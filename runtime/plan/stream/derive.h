/* derive: what the files share that make a step's graph, segment by segment. */
#ifndef ZUG_PLAN_STREAM_DERIVE_H
#define ZUG_PLAN_STREAM_DERIVE_H

#include "runtime/plan/stream/stream.h"

/* The forms of stream.h. */
typedef enum {
  ZP_AS_CONSTANT,
  ZP_AS_OWN,
  ZP_AS_TOKENS,
  ZP_AS_ROWS,
  ZP_AS_TABLE,
  ZP_AS_PAIRS,
  ZP_FORMS
} ZpForm;

typedef struct {
  ZpStream *to;
  ZbArena *a;
  ZgGraph *g;  /* the step's */
  bool *bound; /* by axis: it has no size, and may be there all the same */
  ZbErr *err;  /* the first thing that is wrong */
  bool failed;
  uint32_t k; /* the segment at hand, of the model and of the step */
  const ZgSegment *s;
  ZgSegment *out;
  const ZgNode *from; /* the node of the model that is being made */
} ZpDerive;

/* ---- forms.c ------------------------------------------------------------------------------------------- */
/* Begins the step's graph: the model's tables, with the axes and inputs that steps have. */
void zp_begin_step(ZpDerive *d);
/* Finds an axis of a name, or adds it. */
uint16_t zp_step_axis(ZpDerive *d, const char *name, int64_t size);
uint32_t zp_step_input(ZpDerive *d, const char *name, ZgType t);
/* Returns the type of a value of the model in a form. */
ZgType zp_form_type(const ZpDerive *d, const ZgType *t, ZpForm form);
/* Returns the axis that stands for time in a form. */
uint16_t zp_form_axis(const ZpDerive *d, ZpForm form);
/* Adds a node whose results have these types, as they must be by the type rule; returns its first result.
 * What is not set in `n` (operands but `in`, place) is that of the node at hand. */
uint32_t zp_step_node(ZpDerive *d, ZgNode n, const uint32_t *in, int nin, const ZgType *types, int ntypes);
const ZgType *zp_step_type(const ZpDerive *d, uint32_t v);
/* Repeats v along axes that it lacks; v itself, if it lacks none. */
uint32_t zp_spread(ZpDerive *d, uint32_t v, ZgType to);
/* Fails with what is in the way of the node at hand. */
void zp_derive_fail(ZpDerive *d, const char *why);

/* ---- cached.c ------------------------------------------------------------------------------------------ */
/* Returns an input of the step, in this segment. */
uint32_t zp_step_told(ZpDerive *d, uint32_t input);
/* Takes the rows of v along `from` that ids name. */
uint32_t zp_step_rows(ZpDerive *d, uint32_t v, uint16_t from, uint32_t ids, ZgType to);
/* Make what carries something over along time, of operands in the forms in which it takes them. */
uint32_t zp_step_attend(ZpDerive *d, const uint32_t *in, ZgType to);
uint32_t zp_step_recurrence(ZpDerive *d, const uint32_t *in, ZgType to);
/* Makes shifts of x: by as much as the node at hand, or with one result for each bit of `which`. */
uint32_t zp_step_shifts(ZpDerive *d, uint32_t x, uint64_t which, ZgType to);
uint32_t zp_step_conv(ZpDerive *d, uint32_t x, uint32_t w, ZgType to);
/* Returns a value of its sequence alone, of all sequences. */
uint32_t zp_step_own(ZpDerive *d, uint32_t value);
/* Returns the sequence of each token, or of each row. */
uint32_t zp_step_sequences(ZpDerive *d, ZpForm form);
/* Makes attend with keys of the sequence alone, of tokens or of rows. */
uint32_t zp_step_attend_own(ZpDerive *d, const uint32_t *in, ZpForm form, ZgType to);
/* Makes rope, by the positions of tokens. */
uint32_t zp_step_rope(ZpDerive *d, uint32_t x, ZgType to);

/* ---- admit.c ------------------------------------------------------------------------------------------- */
/* Makes to->admit of what the caches of a sequence's own values hold. */
void zp_derive_admit(ZpStream *to, ZbArena *a);

/* ---- absorb.c ------------------------------------------------------------------------------------------ */
/* Returns the model with latent attention rewritten, forward only; the model itself, if it has none. */
const ZgGraph *zp_absorb(const ZgGraph *model, ZbArena *a, const ZgStream *along);

#endif
