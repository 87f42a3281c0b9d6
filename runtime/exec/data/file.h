/* What the files that read data share. */
#ifndef ZUG_EXEC_DATA_FILE_H
#define ZUG_EXEC_DATA_FILE_H

#include "runtime/exec/data/data.h"

enum { ZX_DATA_WINDOW = 8 << 10 /* bytes: read at once for what is small */ };

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
  ZxData **file; /* of a folder; NULL: this is a file */
  uint32_t files;
};

ZxData *zx_data_new(const char *path); /* nothing is open */
ZxData *zx_data_open_file(const char *path, ZbErr *err);
/* shards.c: */
ZxData *zx_data_open_folder(const char *path, ZbErr *err);
/* The file that sample *sample of a folder is in; it becomes the number that it has there. */
const ZxData *zx_data_file_of_sample(const ZxData *d, int64_t seq, uint64_t *sample);

#endif
