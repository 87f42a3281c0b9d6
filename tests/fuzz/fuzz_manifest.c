/* Fuzz target: any bytes as the manifest of a checkpoint, once as they are and once with the checksum that
 * they should have, so that mutations get past it. What is accepted must be of one piece: tensors within
 * their files. */
#include "runtime/exec/ckpt/ckpt.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char key[] = "\"checksum\":\"";

static void check(const ZxManifest *m, const char *dir) {
  const ZxContents *c = &m->c;
  ZbErr err;
  for (uint32_t i = 0; i < c->ntensors; i++) {
    const ZxCkptTensor *t = &c->tensors[i];
    if (t->file >= c->nfiles || t->param >= c->nparams || t->state > c->nstates)
      ZB_BUG("tensor %u is nowhere", i);
    const ZxCkptFile *f = &c->files[t->file];
    if (t->at < f->head_bytes || t->at > f->bytes || t->n > (f->bytes - t->at) / 4)
      ZB_BUG("%s lies outside of %s", t->info.path, f->name);
  }
  zx_manifest_fact(m, "data", "tokens");
  zx_ckpt_look(m, dir, &err); /* there are no files */
}

static void try(const char *dir, const char *path, const uint8_t *bytes, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  bool ok = write(fd, bytes, n) == (ssize_t)n;
  close(fd);
  if (!ok) return;
  ZbArena *a = zb_arena_new();
  ZbErr err;
  const ZxManifest *m = zx_manifest_read(a, dir, &err);
  if (m) check(m, dir);
  zb_arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static char dir[64], path[96];
  if (!*dir) {
    strcpy(dir, "fuzz-manifest-XXXXXX");
    if (!mkdtemp(dir)) return 0;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
  }
  mkdir(dir, 0700);
  try(dir, path, data, n);
  char *mended = malloc(n + 1), digits[17];
  if (!mended) return 0;
  memcpy(mended, data, n);
  mended[n] = 0;
  char *at = strstr(mended, key);
  if (at && n - (size_t)(at - mended) >= strlen(key) + 16) {
    memset(at + strlen(key), '0', 16);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)XXH3_64bits(mended, n));
    memcpy(at + strlen(key), digits, 16);
    try(dir, path, (uint8_t *)mended, n);
  }
  free(mended);
  unlink(path);
  rmdir(dir);
  return 0;
}
