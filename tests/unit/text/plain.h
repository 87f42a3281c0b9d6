/* The text of ids, by the shortest code: what the decoders must give, however the ids come. */
#ifndef ZUG_TESTS_TEXT_PLAIN_H
#define ZUG_TESTS_TEXT_PLAIN_H

#include "runtime/text/text.h"

/* Puts the text of id[0..n) into *out. */
void plain_decode(const ZtTokenizer *t, const uint32_t *id, size_t n, unsigned flags, ZbText *out);

#endif
