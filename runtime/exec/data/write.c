/* Writes token and record files: header last, all write errors seen, in place only when complete. */
#define _GNU_SOURCE /* mkostemp */
#include "runtime/exec/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct ZxDataWriter {
  char *path; /* as messages have it */
  ZbOut *out;
  FILE *f;
  ZxDataInfo info;
  uint64_t bytes; /* of records so far */
  XXH3_state_t *sum;
  FILE *starts; /* of documents, as the file will have them: there may be more than fit into memory */
  uint64_t documents;
};

static bool write_failed(const ZxDataWriter *w, ZbErr *err) { return zb_out_failed(w->path, errno, err); }

static bool put_head(ZxDataWriter *w, ZbErr *err) {
  uint8_t *head = calloc(1, w->info.data_at);
  if (!head) zb_out_of_memory(0);
  zx_data_encode(&w->info, head);
  bool ok = fwrite(head, 1, w->info.data_at, w->f) == w->info.data_at;
  free(head);
  return ok || write_failed(w, err);
}

ZxDataWriter *zx_data_create(const char *path, const ZxDataInfo *info, ZbErr *err) {
  static const ZbKind kind = {"a token file", zx_data_is_one};
  ZxDataWriter *w = calloc(1, sizeof *w);
  if (!w || !(w->path = strdup(zb_show(path))) || !(w->sum = XXH3_createState())) zb_out_of_memory(0);
  XXH3_64bits_reset(w->sum);
  w->info = *info;
  w->info.count = 0;
  w->info.field = calloc(info->nfield, sizeof *info->field);
  if (!w->info.field) zb_out_of_memory(0);
  memcpy(w->info.field, info->field, info->nfield * sizeof *info->field);
  if (zx_data_layout(&w->info, err) && (w->out = zb_out_new(path, &kind, err))) {
    int fd = fcntl(zb_out_fd(w->out), F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || !(w->f = fdopen(fd, "wb"))) ZB_BUG("no stream for %s", w->path);
    if (put_head(w, err)) return w;
  }
  zx_data_abandon(w);
  return NULL;
}

/* Whole tokens of a stream; the largest value of u16 and of u32 means `unknown`. */
static void note_largest(ZxDataWriter *w, const void *bytes, size_t n) {
  ZxDataField *f = &w->info.field[0];
  size_t each = w->info.record_bytes;
  uint32_t most = 0; /* id + 1, which is 0 of what is unknown */
  for (size_t i = 0; f->elem == ZX_DATA_U8 && i < n; i += each)
    most = ((const uint8_t *)bytes)[i] + 1u > most ? ((const uint8_t *)bytes)[i] + 1u : most;
  for (size_t i = 0; f->elem == ZX_DATA_U16 && i + 2 <= n; i += each) {
    uint16_t v;
    memcpy(&v, (const char *)bytes + i, 2);
    v++;
    if (v > most) most = v;
  }
  for (size_t i = 0; f->elem == ZX_DATA_U32 && i + 4 <= n; i += each) {
    uint32_t v;
    memcpy(&v, (const char *)bytes + i, 4);
    if (++v > most) most = v;
  }
  if (most > f->largest) f->largest = most;
}

bool zx_data_put(ZxDataWriter *w, const void *bytes, size_t n, ZbErr *err) {
  if (w->info.stream) note_largest(w, bytes, n);
  if (n && fwrite(bytes, 1, n, w->f) != n) return write_failed(w, err);
  XXH3_64bits_update(w->sum, bytes, n);
  w->bytes += n;
  return true;
}

/* ---- documents ---- */
/* A file without a name, beside the other. */
static FILE *nameless(const ZxDataWriter *w) {
  ZbText name = {0};
  zb_text_add(&name, "%s.XXXXXX", zb_out_tmp(w->out));
  int fd = mkostemp(name.s, O_CLOEXEC);
  if (fd >= 0) unlink(name.s);
  zb_text_free(&name);
  return fd < 0 ? NULL : fdopen(fd, "w+b");
}

bool zx_data_begin_document(ZxDataWriter *w, ZbErr *err) {
  uint64_t at = w->bytes / w->info.record_bytes;
  ZB_ASSERT(w->info.stream && (w->documents || !at));
  if (!w->starts && !(w->starts = nameless(w))) return write_failed(w, err);
  w->documents++;
  return fwrite(&at, sizeof at, 1, w->starts) == 1 || write_failed(w, err);
}

/* Behind the tokens, from a multiple of 8 bytes on: the starts and their checksum. */
static bool put_documents(ZxDataWriter *w, ZbErr *err) {
  enum { PIECE = 64 << 10 };
  if (w->documents < 2) return true;
  w->info.documents = w->documents;
  static const uint8_t zeros[8];
  uint64_t end = w->info.data_at + w->bytes, left = w->documents * sizeof end;
  size_t pad = zb_round_up(end, 8) - end;
  if (fwrite(zeros, 1, pad, w->f) != pad || fflush(w->starts) != 0) return write_failed(w, err);
  rewind(w->starts);
  XXH3_64bits_reset(w->sum);
  for (size_t n; left; left -= n) {
    uint8_t piece[PIECE];
    n = left < PIECE ? left : PIECE;
    if (fread(piece, 1, n, w->starts) != n || fwrite(piece, 1, n, w->f) != n) return write_failed(w, err);
    XXH3_64bits_update(w->sum, piece, n);
  }
  uint64_t sum = XXH3_64bits_digest(w->sum);
  return fwrite(&sum, sizeof sum, 1, w->f) == 1 || write_failed(w, err);
}

bool zx_data_seal(ZxDataWriter *w, const uint64_t *limit, ZbErr *err) {
  ZB_ASSERT(w->bytes % w->info.record_bytes == 0);
  w->info.count = w->bytes / w->info.record_bytes;
  w->info.data_sum = XXH3_64bits_digest(w->sum);
  for (uint32_t i = 0; i < w->info.nfield; i++) w->info.field[i].limit = limit[i];
  bool ok = put_documents(w, err);
  if (ok && fseek(w->f, 0, SEEK_SET) < 0) ok = write_failed(w, err);
  ok = ok && put_head(w, err) && (fflush(w->f) == 0 || write_failed(w, err));
  if (fclose(w->f) != 0 && ok) ok = write_failed(w, err);
  w->f = NULL;
  if (w->starts) fclose(w->starts);
  w->starts = NULL;
  return ok;
}

bool zx_data_commit(ZxDataWriter *w, ZbErr *err) {
  bool ok = zb_out_commit(w->out, err);
  w->out = NULL;
  zx_data_abandon(w);
  return ok;
}

bool zx_data_finish(ZxDataWriter *w, const uint64_t *limit, ZbErr *err) {
  if (zx_data_seal(w, limit, err)) return zx_data_commit(w, err);
  zx_data_abandon(w);
  return false;
}

void zx_data_abandon(ZxDataWriter *w) {
  if (!w) return;
  if (w->f) fclose(w->f);
  if (w->starts) fclose(w->starts);
  zb_out_discard(w->out);
  XXH3_freeState(w->sum);
  free(w->info.field);
  free(w->path);
  free(w);
}
