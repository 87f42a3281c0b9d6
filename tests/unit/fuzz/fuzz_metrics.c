/* Fuzz target: any bytes as a metrics.jsonl. What is accepted is drawn in every way. */
#include "runtime/zlog/zlog.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char path[] = "fuzz.jsonl", *const keys[] = {"loss", "grad_norm", "lr"};
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  bool ok = write(fd, data, n) == (ssize_t)n;
  close(fd);
  ZbArena *a = zb_arena_new();
  ZvRun r;
  ZbErr err;
  for (int x = ZV_STEPS; ok && x <= ZV_HOURS; x++)
    for (int log = 0; log < 2; log++) {
      ZvFigure f;
      ZbText t = {0};
      if (!zv_run_read(a, path, keys, 3, &r, &err)) break;
      if (!zv_figure(a, &r, 1, (ZvX)x, "loss", log ? 0.9 : 0, log, &f, &err)) continue;
      zv_svg(&f, &t);
      zv_html(&f, &t);
      if (strstr(t.s, "nan ") || strstr(t.s, "\"nan") || strstr(t.s, "inf "))
        ZB_BUG("a coordinate that is not a number");
      zb_text_free(&t);
    }
  zb_arena_free(a);
  return 0;
}
