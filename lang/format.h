/* A file as the formatter sees it: its tokens and comments with their places, and the lines they go to.
 * Shared by format.c, which says where lines break and how many blanks are between two tokens, and align.c,
 * which says in which column each of them begins. */
#ifndef ZUG_LANG_FORMAT_H
#define ZUG_LANG_FORMAT_H

#include "lang/scan.h"

#define ZL_NO_PIECE UINT32_MAX

/* A token, or a comment. */
typedef struct {
  int kind; /* the token's; ZL_COMMENT */
  const char *text;
  uint32_t n;

  /* In the source: */
  uint32_t column;   /* from 0, tabs at every eighth */
  uint32_t blanks;   /* before it, if it is not the first of its line */
  uint32_t newlines; /* before it; 2: a blank line too */

  /* As it will be: */
  uint32_t breaks; /* newlines before it: 0, 1, 2 */
  uint32_t gap;    /* blanks before it, if there is none: the least */
  uint32_t depth;  /* of braces */
  uint32_t nested; /* of ( and [ since the last brace */
  bool starts;     /* a statement, a directive, an item */
  bool prefix;     /* a minus of one operand */

  /* Of the first of a line. It begins `indent` columns right of `anchor`, a piece before it. */
  uint32_t anchor; /* ZL_NO_PIECE: right of the margin */
  uint32_t indent;
  /* The piece it hangs from: those of one are rows beside each other. ZL_NO_PIECE: from none. */
  uint32_t hangs;
} ZlPiece;
enum { ZL_COMMENT = -1 };

typedef struct {
  ZlPiece *at;
  uint32_t n;
} ZlPieces;

/* In which column each piece begins. What was lined up with its neighbours, above or below, by more blanks
 * than it needs is lined up again; other blanks too many are dropped. */
uint32_t *zl_columns(ZbArena *a, const ZlPieces *p);

#endif
