/* What a mix is made of: the shares that its text gives (shares.c), and whose turn it is (turns.c). Pure but
 * for one look at whether a file of the text's name is there. */
#ifndef ZUG_EXEC_MIX_H
#define ZUG_EXEC_MIX_H

#include "base/base.h"

/* ---- shares -------------------------------------------------------------------------------------------- */
/* Of `period` samples in a row file i gives share[i] >= 1; they have no common divisor. */
typedef struct {
  uint32_t n, period;
  const char **path;
  uint32_t *share;
  bool rounded; /* the weights want a longer period than there may be */
} ZxShares;
/* "PATH", or "PATH:WEIGHT,PATH:WEIGHT,...": see DATA.md. All of it lives in the arena; NULL with a message. */
ZxShares *zx_shares(ZbArena *a, const char *text, ZbErr *err);

/* ---- turns --------------------------------------------------------------------------------------------- */
/* Whose turn it is at positions 0, 1, 2, ... Before any position n each file had fewer than one turn more or
 * less than n * share / period: in the middle of a period too. */
typedef struct {
  uint32_t n, period;
  const uint32_t *share;
  uint8_t *file;   /* of each position of a period */
  uint16_t *nth;   /* which of the file's turns of the period that is */
  uint16_t *at;    /* the other way round: positions of file 0's turns, of file 1's, ... */
  uint32_t *first; /* where in `at` each file's begin */
} ZxTurns;
ZxTurns zx_turns(ZbArena *a, const uint32_t *share, uint32_t n, uint32_t period);
/* Whose turn position g is, and how many that file had before. In constant time. */
uint32_t zx_turn(const ZxTurns *t, uint64_t g, uint64_t *nth);
/* Turns of a file at positions below n. Logarithmic in the period. */
uint64_t zx_turns_before(const ZxTurns *t, uint32_t file, uint64_t n);

#endif
