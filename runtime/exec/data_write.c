/* Writes token and record files: header last, all write errors seen, in place only when complete. */
#include "runtime/exec/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct ZxDataWriter {
  char *path, *tmp;
  FILE *f;
  ZxDataInfo info;
  uint64_t bytes; /* of records so far */
  XXH3_state_t *sum;
};

/* What is there already and is no token file was not made by us: better not replace it. */
static bool may_replace(const char *path, ZbErr *err) {
  struct stat st;
  if (stat(path, &st) < 0) return true; /* creating it will say what is wrong, if anything */
  static const char help[] = "remove it, or choose another name";
  if (!S_ISREG(st.st_mode)) return zb_fail(err, help, "%s exists and is not a file", path);
  char magic[4] = "";
  FILE *f = fopen(path, "rb");
  size_t n = f ? fread(magic, 1, 4, f) : 0;
  if (f) fclose(f);
  if (st.st_size == 0 || (n == 4 && !memcmp(magic, "ZTOK", 4))) return true;
  return zb_fail(err, help, "%s exists and is not a token file: it is not replaced", path);
}

static bool write_failed(const ZxDataWriter *w, ZbErr *err) {
  return zb_fail(err, "check the free space (df) and the limits (ulimit -f)", "cannot write %s: %s", w->tmp,
                 strerror(errno));
}

static bool put_head(ZxDataWriter *w, ZbErr *err) {
  uint8_t *head = calloc(1, w->info.data_at);
  if (!head) ZB_BUG("out of host memory");
  zx_data_encode(&w->info, head);
  bool ok = fwrite(head, 1, w->info.data_at, w->f) == w->info.data_at;
  free(head);
  return ok || write_failed(w, err);
}

ZxDataWriter *zx_data_create(const char *path, const ZxDataInfo *info, ZbErr *err) {
  if (!may_replace(path, err)) return NULL;
  ZxDataWriter *w = calloc(1, sizeof *w);
  ZbText tmp = {0};
  zb_text_add(&tmp, "%s.tmp", path);
  if (!w || !(w->path = strdup(path)) || !(w->sum = XXH3_createState())) ZB_BUG("out of host memory");
  w->tmp = tmp.s;
  XXH3_64bits_reset(w->sum);
  w->info = *info;
  w->info.count = 0;
  w->info.field = calloc(info->nfield, sizeof *info->field);
  if (!w->info.field) ZB_BUG("out of host memory");
  memcpy(w->info.field, info->field, info->nfield * sizeof *info->field);
  if (!zx_data_layout(&w->info, err)) goto fail;
  w->f = fopen(w->tmp, "wbe");
  if (!w->f) {
    zb_fail(err, "check the folder and its permissions", "cannot create %s: %s", w->tmp, strerror(errno));
    goto fail;
  }
  if (put_head(w, err)) return w;
fail:
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
  else if (put_head(w, err)) {
    ok = fflush(w->f) == 0 && fsync(fileno(w->f)) == 0;
    ok = ok || write_failed(w, err);
  }
  if (fclose(w->f) != 0 && ok) ok = write_failed(w, err);
  w->f = NULL;
  if (ok && rename(w->tmp, w->path) < 0)
    ok = zb_fail(err, NULL, "cannot rename %s to %s: %s", w->tmp, w->path, strerror(errno));
  if (!ok) unlink(w->tmp);
  zx_data_abandon(w);
  return ok;
}

void zx_data_abandon(ZxDataWriter *w) {
  if (!w) return;
  if (w->f) {
    fclose(w->f);
    unlink(w->tmp);
  }
  XXH3_freeState(w->sum);
  free(w->info.field);
  free(w->path);
  free(w->tmp);
  free(w);
}
