/* What the files that read data share. */
#ifndef ZUG_EXEC_DATA_FILE_H
#define ZUG_EXEC_DATA_FILE_H

#include "runtime/exec/data/data.h"

enum { ZX_DATA_WINDOW = 8 << 10 /* bytes: read at once for what is small */ };

/* Which whole documents are in which window. */
typedef struct {
  uint64_t n;      /* documents, ... */
  uint64_t *start; /* ... n + 1: where each begins, and the last one ends */
  int64_t seq;     /* tokens of a window; 0: they are not arranged yet */
  int64_t row;     /* of pairs, at each multiple of it a document begins; else 0 */
  uint32_t windows;
  uint32_t *first, *doc; /* window w has documents doc[first[w]] to doc[first[w + 1] - 1], in their order */
} ZxFit;

struct ZxData {
  char *name, *path; /* as messages have it, and as it was opened */
  int fd;            /* -1: all bytes are in memory, or in other files */
  const uint8_t *bytes;
  uint64_t n;
  ZxDataInfo info;
  uint64_t end; /* of the records, in the file */
  struct {
    uint64_t at, n, end; /* end: of what was last asked for */
    uint8_t bytes[ZX_DATA_WINDOW];
  } * window;    /* of the file, as it was last read */
  ZxFit *fit;    /* of windows of whole documents; else NULL */
  ZxData **file; /* of a folder; NULL: this is a file */
  uint32_t files;
};

ZxData *zx_data_new(const char *path); /* nothing is open */
ZxData *zx_data_open_file(const char *path, ZbErr *err);
/* read.c: */
enum { ZX_TOKENS, ZX_TARGETS, ZX_DOC, ZX_PLACE, ZX_STREAM_FIELDS }; /* what a stream gives */
/* Returns value i of `p` as an id; -1: it is unknown. */
int64_t zx_data_id(const uint8_t *p, ZxDataElem e, uint64_t i);
/* Fails: token or value `at` of the field is not below the limit. */
bool zx_data_bad_id(const ZxData *d, const ZxDataField *f, uint64_t at, int64_t id, int64_t limit,
                    ZbErr *err);
/* Fails: so is `doc` or `place` of a token. */
bool zx_data_bad_place(const ZxData *d, int which, uint64_t token, uint64_t value, int64_t limit, ZbErr *err);

/* windows.c: */
/* Reads where documents begin; false with a message. */
bool zx_fit_open(ZxData *d, ZbErr *err);
void zx_fit_free(ZxFit *f); /* NULL is allowed */
/* Reads ns values from value s0 of window w on. */
bool zx_fit_read(const ZxData *d, int which, uint64_t w, int64_t s0, int64_t ns, int64_t limit, int32_t *out,
                 ZbErr *err);

/* shards.c: */
ZxData *zx_data_open_folder(const char *path, ZbErr *err);
/* The file that sample *sample of a folder is in; it becomes the number that it has there. */
const ZxData *zx_data_file_of_sample(const ZxData *d, int64_t seq, uint64_t *sample);

#endif
