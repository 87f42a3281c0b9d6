/* Writes token and record files: header last, all write errors seen, in place only when complete. */
#include "runtime/exec/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct ZxDataWriter {
  char *path; /* as messages have it */
  ZbOut *out;
  FILE *f;
  ZxDataInfo info;
  uint64_t bytes; /* of records so far */
  XXH3_state_t *sum;
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

bool zx_data_put(ZxDataWriter *w, const void *bytes, size_t n, ZbErr *err) {
  if (n && fwrite(bytes, 1, n, w->f) != n) return write_failed(w, err);
  XXH3_64bits_update(w->sum, bytes, n);
  w->bytes += n;
  return true;
}

bool zx_data_finish(ZxDataWriter *w, const uint64_t *limit, ZbErr *err) {
  ZB_ASSERT(w->bytes % w->info.record_bytes == 0);
  w->info.count = w->bytes / w->info.record_bytes;
  w->info.data_sum = XXH3_64bits_digest(w->sum);
  for (uint32_t i = 0; i < w->info.nfield; i++) w->info.field[i].limit = limit[i];
  bool ok = false;
  if (fseek(w->f, 0, SEEK_SET) < 0) write_failed(w, err);
  else if (put_head(w, err)) ok = fflush(w->f) == 0 || write_failed(w, err);
  if (fclose(w->f) != 0 && ok) ok = write_failed(w, err);
  w->f = NULL;
  if (ok) {
    ok = zb_out_commit(w->out, err);
    w->out = NULL;
  }
  zx_data_abandon(w);
  return ok;
}

void zx_data_abandon(ZxDataWriter *w) {
  if (!w) return;
  if (w->f) fclose(w->f);
  zb_out_discard(w->out);
  XXH3_freeState(w->sum);
  free(w->info.field);
  free(w->path);
  free(w);
}
