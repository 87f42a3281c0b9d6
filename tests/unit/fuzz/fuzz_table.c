/* Fuzz target: any bytes as a file that zdata makes records or a stream of. The first says which: a table,
 * or tokens of llm.c or nanoGPT. What is made must open. */
#define _GNU_SOURCE
#include "runtime/zdata/zdata.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *in = "fuzz-table.in", out[] = "fuzz-table.bin";
  static bool quiet;
  if (!n || (!quiet && !freopen("/dev/null", "w", stdout))) return 0;
  quiet = true;
  int how = *data % 4, fd = open(in, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && write(fd, data + 1, n - 1) == (ssize_t)(n - 1);
  if (fd >= 0) close(fd);
  if (!ok) return 0;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZdOptions o = {.file = &in, .nfile = 1, .out = out, .label = how ? "1" : "kind", ZD_NOT_GIVEN};
  o.format = how == 2 ? ZD_LLMC : how == 3 ? ZD_NANOGPT : ZD_GUESS;
  ok = how < 2 ? zd_table(&o, a, &err) : zd_import(&o, a, &err);
  if (!ok && !*err.text) ZB_BUG("nothing is made, and no message");
  ZxData *d = ok ? zx_data_open(out, &err) : NULL;
  if (ok && (!d || !zx_data_verify(d, &err))) ZB_BUG("made, but: %s", err.text);
  zx_data_close(d);
  zb_arena_free(a);
  unlink(in);
  unlink(out);
  return 0;
}
