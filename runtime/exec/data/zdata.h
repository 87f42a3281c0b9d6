/* The parts of the `zdata` program. */
#ifndef ZUG_ZDATA_H
#define ZUG_ZDATA_H

#include "runtime/exec/data/data.h"

typedef struct {
  const char **file, **field;
  int nfile, nfield;
  const char *out, *tokens, *vocab, *label, *label_field;
} ZdOptions;

bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_records(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_table(const ZdOptions *o, ZbArena *a, ZbErr *err);

/* Whether the output is not this input by another path. */
bool zd_other_file(const char *in, const char *out, ZbErr *err);
/* Whether the whole text is a number of at least `least`, in decimal. */
bool zd_whole(const char *text, uint64_t least, uint64_t *out);

#endif
