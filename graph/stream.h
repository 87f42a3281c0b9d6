/* stream: whether a model can be made token by token, and what each of its values is along time. Types and
 * operations only: no recipe, no rank. OPS.md has the rule.
 *
 * Time is the axis that an output of logits shares with an input of tokens: `index(v)[batch, S]` and
 * `[batch, S, v]`. Other names of S are those that `rename` gives it: the keys' side of attention.
 * An operation does along time what it does along an axis that is split over ranks (zg_axis_class): PAR needs
 * nothing, SUM and MAX take in later tokens, and of the pinned ones those that carry something over
 * (ZgOpInfo.carries) can go on where an earlier step ended. */
#ifndef ZUG_GRAPH_STREAM_H
#define ZUG_GRAPH_STREAM_H

#include "graph/graph.h"

/* What a value is along time; each is more than the one before, and the result of an operation that mixes no
 * tokens is the most of its operands'. */
typedef enum {
  ZG_TIMELESS,   /* has no part in it: the same for all tokens of a sequence */
  ZG_POSITIONAL, /* a function of the position alone */
  ZG_CAUSAL,     /* element i depends on tokens up to i: it is final when token i is there */
  ZG_NONCAUSAL   /* depends on later tokens, on the length, on other samples or on noise */
} ZgTime;
typedef struct {
  uint8_t time; /* ZgTime */
  /* Differs from sample to sample, if only in a length; where it is timeless, it is a sequence's own. */
  bool sample;
  const char *why; /* of NONCAUSAL: what is in the way, and its remedy or NULL, */
  const char *help;
  uint32_t loc; /* and where */
} ZgAlong;

typedef struct {
  uint32_t output, tokens; /* of the graph: what is sampled from, and what is written on */
  uint16_t batch, time, words;
  bool *names;   /* by axis: it is time, or another name of it */
  ZgAlong **of;  /* by segment and value of forward */
  bool **needed; /* by segment and value of forward: the output depends on it */
  bool *asked;   /* by input: the output depends on it */
} ZgStream;

/* Applies the rule to the forward part of a graph that is right. `output` and `tokens` name those that are
 * meant, or are NULL where there is one of each. False where the model cannot be made token by token: with
 * the operation that is in the way, and its place. `to` lives in `a`. */
bool zg_stream(const ZgGraph *g, ZbArena *a, const char *output, const char *tokens, ZgStream *to,
               ZbErr *err);

/* Counts the axes of a type that are time: 1 along tokens, 2 for a value that compares positions. */
int zg_stream_axes(const ZgStream *s, const ZgType *t);
/* Says whether a type has time itself, not only another name of it. */
static inline bool zg_stream_has_time(const ZgStream *s, const ZgType *t) { return zg_type_has(t, s->time); }

#endif
