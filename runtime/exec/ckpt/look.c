/* Whether a checkpoint's files are what its manifest says, before anything is read from them. */
#include "runtime/exec/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "take another checkpoint with --resume-from; `zckpt list` names those that there are";

bool zx_ckpt_look_file(const ZxManifest *m, const char *dir, uint32_t file, ZbErr *err) {
  const ZxCkptFile *f = &m->c.files[file];
  ZbText path = {0};
  zb_text_add(&path, "%s/%s", dir, f->name);
  uint64_t size;
  ZbErr why = {0};
  int fd = zb_open_file(path.s, false, &size, &why);
  bool ok = fd >= 0 || zb_fail(err, help, "checkpoint %s: %s", zb_show(dir), why.text);
  if (!ok && err) err->passing = why.passing;
  if (ok && size != f->bytes)
    ok = zb_fail(err, help, "%s has %" PRIu64 " bytes; its manifest says %" PRIu64, zb_show(path.s), size,
                 f->bytes);
  char *head = ok ? malloc(f->head_bytes) : NULL;
  if (ok && !head) zb_out_of_memory(f->head_bytes);
  ok = ok && zb_read_at(fd, path.s, head, f->head_bytes, 0, err);
  if (ok && memcmp(head, f->head, f->head_bytes))
    ok = zb_fail(err, help, "%s is altered: its header is another than the manifest says", zb_show(path.s));
  free(head);
  if (fd >= 0) close(fd);
  zb_text_free(&path);
  return ok;
}

/* A copy, or a file of another checkpoint: who put it there may have meant it to be read. */
static bool look_for_others(const ZxManifest *m, const char *dir, ZbErr *err) {
  DIR *d = opendir(dir);
  if (!d) return zb_fail_errno(err, errno, help, "cannot read the folder %s", zb_show(dir));
  bool ok = true;
  for (struct dirent *x; ok && (x = readdir(d));) {
    const char *dot = strrchr(x->d_name, '.');
    bool known = !dot || strcmp(dot, ".safetensors");
    for (uint32_t i = 0; i < m->c.nfiles; i++) known |= !strcmp(x->d_name, m->c.files[i].name);
    if (!known)
      ok = zb_fail(err, "move it away", "%s/%s is none of this checkpoint's files", zb_show(dir),
                   zb_show(x->d_name));
  }
  closedir(d);
  return ok;
}

bool zx_ckpt_look(const ZxManifest *m, const char *dir, ZbErr *err) {
  for (uint32_t i = 0; i < m->c.nfiles; i++)
    if (!zx_ckpt_look_file(m, dir, i, err)) return false;
  return look_for_others(m, dir, err);
}

bool zx_ckpt_altered(const ZxManifest *m, const char *dir, uint32_t tensor, uint64_t found, ZbErr *err) {
  const ZxCkptTensor *t = &m->c.tensors[tensor];
  return zb_fail(err, help,
                 "%s/%s is altered: the checksum of tensor '%s' is %016" PRIx64
                 ", its manifest says %016" PRIx64,
                 zb_show(dir), m->c.files[t->file].name, zb_show(t->info.path), found, t->digest);
}
