/* Files of tokens or records, joined as they are; the ids in them are looked at. */
#include "runtime/zdata/zdata.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 << 10 };

/* What is learned while values pass: per field, the largest id + 1. */
typedef struct {
  ZxDataWriter *w;
  const ZxDataInfo *info;
  uint64_t unit;   /* bytes of a whole token or record */
  uint64_t *limit; /* one a field */
  uint64_t vocab;  /* 0, or all ids must be below */
  uint64_t bytes;
} Copy;

static uint64_t largest(const uint8_t *p, const ZxDataField *f) {
  uint64_t limit = 0;
  for (uint64_t i = 0; i < f->values; i++) {
    uint32_t v = 0;
    size_t size = zx_data_elem_bytes(f->elem);
    memcpy(&v, p + i * size, size);
    bool unknown = (size == 2 && v == UINT16_MAX) || (size == 4 && v == UINT32_MAX);
    if (f->elem == ZX_DATA_I32 && v > INT32_MAX) unknown = true; /* what it is, a model will say */
    if (!unknown && v + 1ull > limit) limit = v + 1ull;
  }
  return limit;
}

static bool has_last_id(const uint8_t *p, const ZxDataField *f) {
  for (uint64_t i = 0; i < 2 * f->values; i += 2)
    if (p[i] == 0xff && p[i + 1] == 0xff) return true;
  return false;
}

static bool look(Copy *c, const uint8_t *p, uint64_t n, const char *path, ZbErr *err) {
  for (uint64_t at = 0; at < n; at += c->unit)
    for (uint32_t i = 0; i < c->info->nfield; i++) {
      const ZxDataField *f = &c->info->field[i];
      if (f->elem == ZX_DATA_F32) continue;
      uint64_t limit = largest(p + at + f->at, f);
      if (c->vocab > UINT16_MAX && f->elem == ZX_DATA_U16 && has_last_id(p + at + f->at, f))
        return zb_fail(err, "`zdata import --format nanogpt --vocab 65536` writes it as u32",
                       "%s has the id 65535, which means `unknown` in a file of u16", zb_show(path));
      if (c->vocab && limit > c->vocab)
        return zb_fail(err, "is --tokens the type that it was written with?",
                       "%s has the id %" PRIu64 "; --vocab says that ids are below %" PRIu64, zb_show(path),
                       limit - 1, c->vocab);
      if (limit > c->limit[i]) c->limit[i] = limit;
    }
  return true;
}

/* A file's whole units, a piece at a time. */
static bool copy(Copy *c, const char *path, uint8_t *piece, uint64_t room, ZbErr *err) {
  FILE *f = zb_open_stream(path, err);
  if (!f) return false;
  bool ok = true;
  size_t n = 0;
  while (ok && (n = fread(piece, 1, room, f)) > 0) {
    if (ferror(f)) break;
    if (n % c->unit)
      ok = zb_fail(err, "is it the right file, and the right type?",
                   "%s does not consist of whole %s of %" PRIu64 " bytes: %" PRIu64 " are left over",
                   zb_show(path), c->info->stream ? "tokens" : "records", c->unit, (uint64_t)(n % c->unit));
    ok = ok && look(c, piece, n, path, err) && zx_data_put(c->w, piece, n, err);
    c->bytes += n;
  }
  if (ok && ferror(f)) ok = zb_fail(err, NULL, "cannot read %s: %s", zb_show(path), strerror(errno));
  fclose(f);
  return ok;
}

/* Raw records hold no padding, but a file's have their fields at multiples of 4 bytes: refused before. */
bool zd_copy(const ZdOptions *o, ZdFiles *fs, ZxDataInfo *info, uint64_t vocab, ZbErr *err) {
  Copy c = {.info = info, .unit = info->record_bytes, .vocab = vocab};
  uint64_t room = c.unit < PIECE ? PIECE / c.unit * c.unit : c.unit;
  uint8_t *piece = malloc(room);
  c.limit = ZB_NEWN(fs->a, uint64_t, info->nfield);
  if (!piece) return zb_fail(err, NULL, "no memory for a record of %" PRIu64 " bytes", c.unit);
  c.w = zx_data_create(o->out, info, err);
  bool ok = c.w != NULL;
  for (size_t i = 0; ok && i < fs->n; i++) ok = copy(&c, fs->path[i], piece, room, err);
  free(piece);
  if (ok && !c.bytes) ok = zb_fail(err, NULL, "nothing to pack: %zu files, all empty", fs->n);
  if (ok && vocab) c.limit[0] = vocab;
  if (!ok) zx_data_abandon(c.w);
  else ok = zx_data_finish(c.w, c.limit, err);
  if (!ok) return false;
  printf("%s: %" PRIu64 " %s from %zu file%s\n", zb_show(o->out), c.bytes / c.unit,
         info->stream ? "tokens" : "records", fs->n, fs->n == 1 ? "" : "s");
  return true;
}
