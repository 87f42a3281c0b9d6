/* Files of tests/data/text, and what the tests of text ask of them. */
#ifndef ZUG_TESTS_TEXT_FILES_H
#define ZUG_TESTS_TEXT_FILES_H

#include "runtime/text/text.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>

extern const char *const text_names[6];
/* tests/data/text/NAME in the arena; the test fails if it is not there. */
char *text_file(ZbArena *a, const char *name, size_t *n);
cJSON *text_json(ZbArena *a, const char *name);
ZtTokenizer *text_tokenizer(const char *name);
/* The text is encoded to these ids; `what` is for messages. */
void text_expect(ZtCoder *c, const char *text, size_t n, unsigned flags, const uint32_t *id, size_t nids,
                 const char *what);
uint32_t *text_ids(ZbArena *a, const cJSON *list, size_t *n);

#endif
