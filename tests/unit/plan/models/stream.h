/* Data for engines of tests. */
#ifndef ZUG_TESTS_LAYOUT_STREAM_H
#define ZUG_TESTS_LAYOUT_STREAM_H

#include "runtime/exec/data/data.h"

/* A stream of 4096 tokens, 0 to 11; zx_mix_close ends it. */
ZxMix *stream_of_tokens(ZbArena *a);

#endif
