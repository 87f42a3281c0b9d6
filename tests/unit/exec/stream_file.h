/* Token files in a test's folder. */
#ifndef ZUG_TEST_STREAM_FILE_H
#define ZUG_TEST_STREAM_FILE_H

#include "runtime/exec/data/data.h"

void stream_file(const char *name, ZxDataElem elem, const void *ids, size_t n, uint64_t limit);

#endif
