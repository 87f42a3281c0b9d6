/* A tokenizer for tests of shapes: ids 0 to 255 are the bytes, then pieces, then an end token. */
#ifndef ZUG_TESTS_SHAPE_TOKENS_H
#define ZUG_TESTS_SHAPE_TOKENS_H

#include "runtime/exec/shape/shape.h"

/* Makes one of n pieces; bytes of `without` ("") have no token. */
ZtTokenizer *tokens_new(const char *const *piece, uint32_t n, const char *without);
/* Returns the id of its end token, the largest. */
uint32_t tokens_end(const ZtTokenizer *t);

#endif
