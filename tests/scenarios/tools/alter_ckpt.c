/* alter_ckpt CKPT PARAMETER FIRST VALUE...: gives the parameter of a checkpoint these values from number
 * FIRST on, and the manifest the digest that goes with them: a checkpoint as a run would write it that had
 * such values. */
#include "runtime/exec/ckpt/ckpt.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "alter_ckpt: %s\n", what);
  exit(1);
}

int main(int argc, char **argv) {
  need(argc > 4, "usage: alter_ckpt CKPT PARAMETER FIRST VALUE...");
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZxManifest *m = zx_manifest_read(a, argv[1], &err);
  need(m != NULL, err.text);
  ZxCkptTensor *t = NULL;
  for (uint32_t i = 0; i < m->c.nparams; i++)
    if (!strcmp(m->c.tensors[i].info.path, argv[2])) t = &m->c.tensors[i];
  need(t != NULL, "no such parameter");
  uint64_t first = strtoull(argv[3], NULL, 10), n = (uint64_t)argc - 4;
  need(n <= t->n && first <= t->n - n, "it has fewer values");
  float *x = ZB_NEWN(a, float, t->n);
  size_t bytes = t->n * sizeof *x;
  int fd = open(zb_printf(a, "%s/%s", argv[1], m->c.files[t->file].name), O_RDWR);
  need(fd >= 0 && pread(fd, x, bytes, (off_t)t->at) == (ssize_t)bytes, "its file cannot be read");
  for (uint64_t i = 0; i < n; i++) x[first + i] = strtof(argv[4 + i], NULL);
  need(pwrite(fd, x, bytes, (off_t)t->at) == (ssize_t)bytes && close(fd) == 0, "its file cannot be written");
  t->digest = zx_digest(x, 0, t->n);
  need(zx_manifest_write(m, argv[1], &err), err.text);
  zb_arena_free(a);
  return 0;
}
