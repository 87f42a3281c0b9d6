/* A checkpoint's folder in a test's, of which only the manifest is there. */
#ifndef ZUG_TEST_MANIFEST_FILE_H
#define ZUG_TEST_MANIFEST_FILE_H

#include "runtime/exec/ckpt/ckpt.h"

/* Makes the folder `path`; the model has one small parameter. */
void manifest_file(ZbArena *a, const char *path, int64_t step, int64_t serial);

#endif
