/* zdata: the program that makes the files that zrun trains from, and looks at them. What is in such a file is the matter
 * of exec/data (data.h, DATA.md); this room knows where it comes from.
 *
 * zdata.c     the command line; then a file a command: pack.c, records.c, table.c, show.c, check.c
 * inputs.c    which files are read: those named, and what folders hold
 * copy.c      files of ids or records, joined as they are */
#ifndef ZUG_ZDATA_H
#define ZUG_ZDATA_H

#include "runtime/exec/data/data.h"

/* ---- commands ------------------------------------------------------------------------------------------ */
/* What was given; NULL or 0 where it was not. */
typedef struct {
  const char **file, **field;
  int nfile, nfield;
  const char *out, *tokens, *vocab, *label, *label_field;
} ZdOptions;

/* Each prints what it made or found; false with a message, and nothing is left of its output. */
bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_records(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_table(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_show(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_check(const ZdOptions *o, ZbArena *a, ZbErr *err);

/* Whether the whole text is a number of at least `least`, in decimal. */
bool zd_whole(const char *text, uint64_t least, uint64_t *out);

/* ---- inputs -------------------------------------------------------------------------------------------- */
typedef struct {
  ZbArena *a;
  const char **path;
  size_t n, skipped; /* skipped: in folders, what is no text */
} ZdFiles;
/* The files named by `o`, none of which may be o->out; and where `folders`, the text files in folders, by name. */
bool zd_files(ZdFiles *fs, const ZdOptions *o, bool folders, ZbErr *err);
/* Whether the output is not this input by another path. */
bool zd_other_file(const char *in, const char *out, ZbErr *err);

/* ---- copying ------------------------------------------------------------------------------------------- */
/* Makes o->out of what is in the files, whole tokens or records of `info`. vocab: 0, or what ids must be below. */
bool zd_copy(const ZdOptions *o, ZdFiles *fs, ZxDataInfo *info, uint64_t vocab, ZbErr *err);

#endif
