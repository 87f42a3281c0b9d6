/* Words of other frameworks for what a recipe says: elsewhere.def as a table. */
#include "lang/lang.h"

#include <ctype.h>
#include <string.h>

static const struct {
  const char *word, *written;
} rows[] = {
#define SAID(word, written) {word, written},
#include "lang/elsewhere.def"
};

bool zl_same_word(const char *row, const char *word) {
  for (; *row && *word; row++, word++)
    if (*row != (*word == '-' ? '_' : tolower((unsigned char)*word))) return false;
  return !*row && !*word;
}

const char *zl_said_elsewhere(const char *word) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (zl_same_word(rows[i].word, word)) return rows[i].written;
  return NULL;
}
