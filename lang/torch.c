/* What words of PyTorch are called here: torch.def as tables. */
#include "lang/lang.h"

#include <string.h>

typedef struct {
  const char *word, *help;
} Row;

static const Row words[] = {
#define TORCH(word, help) {word, help},
#define TORCH_KEYWORD(word, help)
#include "lang/torch.def"
};
static const Row keywords[] = {
#define TORCH(word, help)
#define TORCH_KEYWORD(word, help) {word, help},
#include "lang/torch.def"
};

static const char *find(const Row *rows, size_t n, const char *word) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(rows[i].word, word)) return rows[i].help;
  return NULL;
}

const char *zl_torch_word(const char *word) { return find(words, sizeof words / sizeof *words, word); }
const char *zl_torch_keyword(const char *word) {
  return find(keywords, sizeof keywords / sizeof *keywords, word);
}
