/* The words of recipes that have tables: schedules, optimizers and their settings. Shared by recipe.c,
 * words.c and cluster.c. */
#ifndef ZUG_LANG_WORDS_H
#define ZUG_LANG_WORDS_H

#include "lang/internal.h"

extern const char *const zl_schedules[];       /* those there are; end with NULL */
extern const char *const zl_schedules_later[]; /* those of the field that this version lacks */

/* Position of `word` among `n` words, or -1. */
int zl_word_index(const char *word, const char *const *words, int n);
/* Checks the name and settings of an optimizer directive. The settings come back in the order of the
 * optimizer's table, those not given with their defaults. False if something was reported. */
bool zl_optimizer_words(ZlDiags *d, ZbArena *a, const ZlDirective *o, ZlKw **kws, uint32_t *n);
/* "no recipe `x` in FILE", with the nearest; or, without a name, that there are none or several. */
void zl_report_no_such(ZlDiags *d, ZbArena *a, const char *what, const char *file, const char *name,
                       ZlNames all);

#endif
