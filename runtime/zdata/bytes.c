/* The bytes of an input, decompressed where its name ends in .gz or .zst. Memory is that of a buffer and of
 * the window that a compressor may look back by. */
#include "runtime/zdata/zdata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { BUFFER = 256 << 10 };

struct ZdBytes {
  char *name; /* as messages have it */
  FILE *f;
  ZdPacking packing;
  uint64_t at;         /* bytes of the file so far */
  uint8_t *buffer;     /* of the file, compressed: BUFFER bytes, ... */
  size_t next, filled; /* ... of which these are to be decompressed */
  bool ended;          /* the file has no more */
  bool within;         /* a gzip member or zstd frame has begun and is not complete */
  bool any;            /* one was complete */
  z_stream gz;
  ZSTD_DStream *zst;
};

static bool ends_in(const char *s, size_t n, const char *end) {
  size_t m = strlen(end);
  return n > m && !strncmp(s + n - m, end, m);
}

ZdPacking zd_packing(const char *path) {
  size_t n = strlen(path);
  return ends_in(path, n, ".gz") ? ZD_GZIP : ends_in(path, n, ".zst") ? ZD_ZSTD : ZD_PLAIN;
}

bool zd_is_jsonl(const char *path) {
  static const size_t ending[] = {[ZD_PLAIN] = 0, [ZD_GZIP] = 3, [ZD_ZSTD] = 4};
  size_t n = strlen(path) - ending[zd_packing(path)];
  return ends_in(path, n, ".jsonl") || ends_in(path, n, ".ndjson");
}

/* ---- opening ---- */
ZdBytes *zd_bytes_of(FILE *f, const char *name, ZdPacking packing) {
  ZdBytes *b = calloc(1, sizeof *b);
  if (!b || !(b->name = strdup(zb_show(name)))) zb_out_of_memory(0);
  b->f = f;
  b->packing = packing;
  if (packing == ZD_PLAIN) return b;
  bool ok = (b->buffer = malloc(BUFFER)) != NULL;
  if (packing == ZD_GZIP)
    ok = ok && inflateInit2(&b->gz, 15 + 16) == Z_OK; /* 16: a gzip header, not zlib's */
  else ok = ok && (b->zst = ZSTD_createDStream());
  if (!ok) zb_out_of_memory(0);
  return b;
}

ZdBytes *zd_bytes_open(const char *path, ZbErr *err) {
  FILE *f = zb_open_stream(path, err);
  return f ? zd_bytes_of(f, path, zd_packing(path)) : NULL;
}

void zd_bytes_close(ZdBytes *b) {
  if (!b) return;
  if (b->packing == ZD_GZIP) inflateEnd(&b->gz);
  ZSTD_freeDStream(b->zst);
  fclose(b->f);
  free(b->buffer);
  free(b->name);
  free(b);
}

const char *zd_bytes_name(const ZdBytes *b) { return b->name; }
uint64_t zd_bytes_at(const ZdBytes *b) { return b->at; }

/* ---- reading ---- */
/* Up to `room` bytes of the file, as many unless it ends. */
static bool get(ZdBytes *b, void *out, size_t room, size_t *n, ZbErr *err) {
  *n = fread(out, 1, room, b->f);
  b->at += *n;
  b->ended = *n < room;
  return !ferror(b->f) || zb_fail(err, NULL, "cannot read %s: %s", b->name, strerror(errno));
}

static bool damaged(const ZdBytes *b, const char *why, ZbErr *err) {
  return zb_fail(err,
                 b->packing == ZD_GZIP ? "gzip -t tells the same; get it again"
                                       : "zstd -t tells the same; get it again",
                 "%s is damaged: %s", b->name, why);
}

/* One step of either decompressor, from what the buffer has into out[*n..room). */
static bool inflate_some(ZdBytes *b, uint8_t *out, size_t room, size_t *n, ZbErr *err) {
  size_t left = room - *n;
  if (!b->within && inflateReset(&b->gz) != Z_OK) ZB_BUG("inflateReset");
  b->within = true;
  b->gz.next_in = b->buffer + b->next;
  b->gz.avail_in = (uInt)(b->filled - b->next);
  b->gz.next_out = out + *n;
  b->gz.avail_out = left < (1u << 30) ? (uInt)left : 1u << 30;
  uInt before = b->gz.avail_out;
  int code = inflate(&b->gz, Z_NO_FLUSH);
  b->next = b->filled - b->gz.avail_in;
  *n += before - b->gz.avail_out;
  if (code == Z_MEM_ERROR) zb_out_of_memory(0);
  if (code == Z_STREAM_END) {
    b->within = false;
    b->any = true;
  } else if (code != Z_OK && code != Z_BUF_ERROR) /* the latter: it wants input */
    return damaged(b, b->gz.msg ? b->gz.msg : "it wants a dictionary", err);
  return true;
}

static bool zstd_some(ZdBytes *b, uint8_t *out, size_t room, size_t *n, ZbErr *err) {
  ZSTD_inBuffer from = {b->buffer, b->filled, b->next};
  ZSTD_outBuffer to = {out, room, *n};
  size_t code = ZSTD_decompressStream(b->zst, &to, &from);
  b->next = from.pos;
  *n = to.pos;
  if (ZSTD_isError(code)) return damaged(b, ZSTD_getErrorName(code), err);
  b->within = code != 0;
  b->any |= code == 0;
  return true;
}

/* After a member or frame another one may come, as gzip and zstd have it. */
static bool unpack(ZdBytes *b, uint8_t *out, size_t room, size_t *n, ZbErr *err) {
  while (*n < room) {
    if (b->next == b->filled && !b->ended) {
      b->next = 0;
      if (!get(b, b->buffer, BUFFER, &b->filled, err)) return false;
    }
    bool dry = b->next == b->filled;
    if (dry && !b->within && b->any) return true;
    if (dry && !b->within) return damaged(b, "it is empty", err);
    size_t before = *n;
    if (!(b->packing == ZD_GZIP ? inflate_some : zstd_some)(b, out, room, n, err)) return false;
    if (dry && b->within && *n == before)
      return zb_fail(err, "get it again", "%s is truncated: its compressed data end too early", b->name);
  }
  return true;
}

bool zd_bytes_read(ZdBytes *b, void *out, size_t room, size_t *n, ZbErr *err) {
  *n = 0;
  return b->packing == ZD_PLAIN ? b->ended || get(b, out, room, n, err) : unpack(b, out, room, n, err);
}
