/* The tables that unicode.awk makes of unicode.txt. */
#ifndef ZUG_TEXT_UNICODE_H
#define ZUG_TEXT_UNICODE_H

#include "runtime/text/room.h"

typedef struct {
  const uint32_t *range;
  uint32_t n;
} ZtRanges;
typedef struct {
  uint32_t c, lower[2]; /* the second is 0 if there is one only */
} ZtLower;
typedef struct {
  uint32_t first, last, class;
} ZtClassRange;
typedef struct {
  uint32_t c, at, n; /* zt_decomposed[at ..] */
} ZtDecomposition;
/* All are in the order of their characters. */
extern const ZtRanges zt_set_table[ZT_NSETS];
extern const ZtLower zt_lower_table[];
extern const ZtClassRange zt_class_table[];
extern const ZtDecomposition zt_canonical_table[], zt_compatible_table[];
extern const uint32_t zt_decomposed[], zt_not_composed[];
extern const uint32_t zt_nlower, zt_nclass, zt_ncanonical, zt_ncompatible, zt_nnot_composed;

#endif
