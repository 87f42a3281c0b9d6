/* The words of recipes that have tables. Shared by recipe.c, optimizer.c, words.c and cluster.c. */
#ifndef ZUG_LANG_WORDS_H
#define ZUG_LANG_WORDS_H

#include "lang/internal.h"

extern const char *const zl_schedules_later[]; /* those of the field that this version lacks */

extern const char *const zl_directive_words[]; /* by ZlDirectiveKind */

/* Position of `word` among `n` words, or -1. */
int zl_word_index(const char *word, const char *const *words, int n);
/* "no recipe `x` in FILE", with the nearest; or, without a name, that there are none or several. */
void zl_report_no_such(ZlDiags *d, ZbArena *a, const char *what, const char *file, const char *name,
                       ZlNames all);

#endif
