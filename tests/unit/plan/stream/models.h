/* The models that generation is tested with: every example at a small size, and small models around single
 * operations, each with a reason where it must be refused. */
#ifndef ZUG_TESTS_STREAM_MODELS_H
#define ZUG_TESTS_STREAM_MODELS_H

#include "graph/stream.h"
#include "tests/unit/compiler/load.h"

typedef struct {
  const char *name;
  const char *options;      /* of an example, as on zc's command line; NULL: it is a small model */
  const char *input, *body; /* of a small model */
  const char *refused;      /* what the message must say, or NULL */
  /* Of what is refused: the values of earlier tokens do not change with later ones, so a finer rule could let
   * it through. */
  bool causal;
} StreamModel;
extern const StreamModel stream_models[];
extern const int stream_model_count;

/* Compiles a model of the table, which must be right. */
ZgGraph *stream_model(Case *c, const StreamModel *m);
/* Compiles a small model of two repeats, with the bodies of two of the table. */
ZgGraph *stream_pair(Case *c, const StreamModel *first, const StreamModel *second);

#endif
