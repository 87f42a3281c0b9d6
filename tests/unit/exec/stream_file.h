/* Token files in a test's folder. */
#ifndef ZUG_TEST_STREAM_FILE_H
#define ZUG_TEST_STREAM_FILE_H

#include "runtime/exec/data/data.h"

void stream_file(const char *name, ZxDataElem elem, const void *ids, size_t n, uint64_t limit);
/* Ids 0, 1, 2, ... of one byte, in documents of these lengths; ended by 0. */
void documents_file(const char *name, const int *lengths);
/* The tokens of a sample, in the order of the file. */
bool read_tokens(const ZxData *d, int64_t seq, uint64_t sample, int64_t limit, void *out, ZbErr *err);

#endif
