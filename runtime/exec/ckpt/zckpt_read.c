/* What the commands of zckpt have in common: a checkpoint that is read piece by piece. */
#include "runtime/exec/ckpt/zckpt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening ---- */
/* The folder that --ckpt was given has checkpoints in it, and is none. */
static bool is_above(const char *dir, ZbArena *a, ZbErr *err) {
  ZxCkptEntry *list;
  struct stat st;
  if (stat(zb_printf(a, "%s/manifest.json", dir), &st) == 0) return false;
  uint32_t n = zx_ckpt_list(a, dir, &list, NULL);
  if (n)
    zb_fail(err, zb_printf(a, "the latest is %.200s", list[n - 1].path),
            "%s is not a checkpoint: it holds %" PRIu32 " of them", zb_show(dir), n);
  return n > 0;
}

bool zs_open(ZsCkpt *k, ZbArena *a, const char *path, ZbErr *err) {
  char *dir = zb_strdup(a, path);
  for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--) dir[n - 1] = 0;
  *k = (ZsCkpt){.dir = dir, .fd = -1};
  if (is_above(dir, a, err)) return false;
  k->m = zx_manifest_read(a, dir, err);
  for (uint32_t i = 0; k->m && i < k->m->c.nparams; i++)
    zb_names_add(a, &k->names, k->m->c.tensors[i].info.path);
  return k->m != NULL;
}

void zs_close(ZsCkpt *k) {
  if (k->fd >= 0) close(k->fd);
  k->fd = -1;
}

uint32_t zs_find(const ZsCkpt *k, const char *path) { return zb_names_find(&k->names, path); }

/* ---- tensors ---- */
static bool open_file(ZsCkpt *k, uint32_t file, ZbErr *err) {
  if (k->fd >= 0 && k->file == file) return true;
  zs_close(k);
  ZbText path = {0};
  uint64_t size;
  zb_text_add(&path, "%s/%s", k->dir, k->m->c.files[file].name);
  k->fd = zb_open_file(path.s, false, &size, err);
  k->file = file;
  k->name = k->m->c.files[file].name;
  zb_text_free(&path);
  return k->fd >= 0;
}

bool zs_piece(ZsCkpt *k, uint32_t tensor, uint64_t first, uint64_t n, float *out, ZbErr *err) {
  const ZxCkptTensor *t = &k->m->c.tensors[tensor];
  return open_file(k, t->file, err) &&
         zb_read_at(k->fd, k->name, out, zk_bytes(ZK_F32, n), t->at + zk_bytes(ZK_F32, first), err);
}

bool zs_read(ZsCkpt *k, uint32_t tensor, ZsEach each, void *ctx, ZbErr *err) {
  const ZxCkptTensor *t = &k->m->c.tensors[tensor];
  float *x = malloc(ZS_PIECE * sizeof *x);
  if (!x) zb_out_of_memory(ZS_PIECE * sizeof *x);
  uint64_t digest = 0;
  bool ok = true;
  for (uint64_t at = 0, n; ok && at < t->n; at += n) {
    n = t->n - at < ZS_PIECE ? t->n - at : ZS_PIECE;
    ok = zs_piece(k, tensor, at, n, x, err);
    if (ok) digest += zx_digest(x, at, n);
    ok = ok && (!each || each(ctx, x, at, n, err));
  }
  free(x);
  return ok && (digest == t->digest || zx_ckpt_altered(k->m, k->dir, tensor, digest, err));
}
