/* Fuzz target: any bytes as the manifest of a checkpoint, and behind lines of `#` as its two indices. A
 * manifest that is accepted must be of one piece, tensors within their files; such files, where they are
 * small, are then there, and zckpt verifies all. */
#define _GNU_SOURCE
#include "runtime/exec/ckpt/zckpt.h"
#include "tests/unit/fuzz/mend.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
FUZZ_MENDED_BY(fuzz_mend_manifest)

static char dir[] = "fuzz-manifest-XXXXXX";
enum { FILES = 8, BYTES = 1 << 20 /* of a file that is made */ };

static void check(const ZxManifest *m) {
  const ZxContents *c = &m->c;
  for (uint32_t i = 0; i < c->ntensors; i++) {
    const ZxCkptTensor *t = &c->tensors[i];
    if (t->file >= c->nfiles || t->param >= c->nparams || t->state > c->nstates)
      ZB_BUG("tensor %u is nowhere", i);
    const ZxCkptFile *f = &c->files[t->file];
    if (t->at < f->head_bytes || t->at > f->bytes || t->n > (f->bytes - t->at) / 4)
      ZB_BUG("%s lies outside of %s", t->info.path, f->name);
  }
  zx_manifest_fact(m, "data", "tokens");
}

static bool put(const char *name, const void *bytes, size_t n, uint64_t size) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && write(fd, bytes, n) == (ssize_t)n && ftruncate(fd, (off_t)size) == 0;
  if (fd >= 0) close(fd);
  return ok;
}

/* The files that the manifest wants, with zeros for tensors. */
static bool put_files(const ZxContents *c) {
  bool ok = c->nfiles <= FILES;
  for (uint32_t i = 0; ok && i < c->nfiles; i++)
    ok = c->files[i].bytes <= BYTES &&
         put(c->files[i].name, c->files[i].head, c->files[i].head_bytes, c->files[i].bytes);
  return ok;
}

static bool any(const char *name) { return *name; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *const names[] = {"manifest.json", "model.safetensors.index.json",
                                      "optimizer.safetensors.index.json"};
  static bool made;
  if (!made && (!mkdtemp(dir) || !freopen("/dev/null", "w", stdout))) return 0;
  made = true;
  mkdir(dir, 0700);
  for (int i = 0; i < 3; i++) {
    const uint8_t *end = i < 2 ? memmem(data, n, "\n#\n", 3) : NULL;
    size_t k = end ? (size_t)(end - data) : n;
    if (!put(names[i], data, k, k)) return 0;
    data += end ? k + 3 : k;
    n -= end ? k + 3 : k;
  }
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  const ZxManifest *m = zx_manifest_read(a, dir, &err);
  if (m) {
    check(m);
    bool there = put_files(&m->c);
    if (zx_ckpt_look(m, dir, &err) != there) ZB_BUG("files that fit: %d, but: %s", there, err.text);
    zs_verify(&(ZsOptions){.path = (const char *[]){dir}}, a, &err);
  } else if (!*err.text) ZB_BUG("no manifest, and no message");
  zb_arena_free(a);
  zb_remove_folder(dir, any, NULL);
  return 0;
}
