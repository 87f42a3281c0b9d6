/* Private to gguf: a file's head, and blocks. */
#ifndef ZUG_EXEC_GGUF_FILE_H
#define ZUG_EXEC_GGUF_FILE_H

#include "runtime/exec/gguf/gguf.h"

/* ---- blocks.c ------------------------------------------------------------------------------------------ */
enum { ZX_GGUF_BLOCK = 256 /* elements of the largest block */, ZX_GGUF_BYTES = 256 /* no block has more */ };
typedef struct {
  const char *name;
  uint32_t number;
  uint16_t elements, bytes;                         /* of a block */
  void (*decode)(const uint8_t *block, float *out); /* NULL: not read here */
} ZxFormat;
/* Returns the format of that number, or NULL. */
const ZxFormat *zx_gguf_format(uint32_t number);
/* Returns the names of those that are read. */
const char *zx_gguf_formats(ZbArena *a);

/* ---- file.c -------------------------------------------------------------------------------------------- */
/* A value is a number, a flag or a text; or a list of these, which stays in the file. */
typedef enum {
  ZX_GGUF_U8,
  ZX_GGUF_I8,
  ZX_GGUF_U16,
  ZX_GGUF_I16,
  ZX_GGUF_U32,
  ZX_GGUF_I32,
  ZX_GGUF_F32,
  ZX_GGUF_BOOL,
  ZX_GGUF_TEXT,
  ZX_GGUF_LIST,
  ZX_GGUF_U64,
  ZX_GGUF_I64,
  ZX_GGUF_F64,
  ZX_GGUF_TYPES
} ZxGgufType;
typedef struct {
  ZxGgufType type, item; /* of a list's items */
  double number;         /* of numbers and flags */
  uint64_t n, at;        /* bytes of a text, items of a list; their first byte in the file */
} ZxValue;
typedef struct {
  uint32_t naxes;
  uint64_t axis[4]; /* the innermost first */
  const ZxFormat *format;
  uint64_t at, elements; /* first byte in the file */
} ZxGgufTensor;
typedef struct {
  ZbArena *a;
  const char *path;
  int fd;
  uint64_t size;
  ZbNames keys, names;
  ZxValue *value;       /* by key */
  ZxGgufTensor *tensor; /* by name */
} ZxGgufFile;
bool zx_gguf_file_open(ZxGgufFile *f, ZbArena *a, const char *path, ZbErr *err);
void zx_gguf_file_close(ZxGgufFile *f);
/* Returns a number, or `usual` where the key is not there; NAN: it is none. */
double zx_gguf_number(const ZxGgufFile *f, const char *key, double usual);
/* Returns a text, or `usual` where the key is not there; NULL with a message. */
const char *zx_gguf_string(const ZxGgufFile *f, const char *key, const char *usual, ZbErr *err);
/* Calls `each` for the items of a list: texts, or numbers. False with a message, or if it returns false. A
 * key that is not there has no items. */
typedef struct {
  const char *s; /* n bytes, until the next item */
  size_t n;
  double number;
} ZxItem;
typedef bool ZxEachItem(void *ctx, uint64_t i, const ZxItem *item);
bool zx_gguf_list(const ZxGgufFile *f, const char *key, bool texts, ZxEachItem *each, void *ctx, ZbErr *err);
uint64_t zx_gguf_items(const ZxGgufFile *f, const char *key);

#endif
