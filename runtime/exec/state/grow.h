/* grow: words that a model has and the weights of its base do not: what their rows begin with. */
#ifndef ZUG_EXEC_GROW_H
#define ZUG_EXEC_GROW_H

#include "runtime/exec/hub/hub.h"
#include "runtime/exec/state/slices.h"

/* A word that begins as another one. */
typedef struct {
  uint32_t word, as;
} ZxLikeWord;
typedef struct ZxNewWords {
  ZxLikeWord *like;
  uint32_t nlike; /* all others begin as the mean of the words that are there */
} ZxNewWords;
/* Returns how many rows a table of words has in the files, where that is fewer than `want`, whose first
 * axis the words are; 0: it is not such a table, or has another shape. */
int64_t zx_rows_there(const ZxShards *s, uint32_t tensor, const ZgGraph *g, uint32_t param,
                      const ZxPart *want);
/* Fills what a slice has of rows from `there` on. False with a message. */
bool zx_fill_rows(const ZxNewWords *w, const ZxShards *s, uint32_t tensor, const ZxPart *part, int64_t there,
                  const ZxWalk *at, ZbErr *err);

#endif
