/* Fuzz target: any bytes as a folder of quantized weights: a config.json, and behind a line of `#`
 * model.safetensors. What opens is read as a whole, and turned. */
#define _GNU_SOURCE
#include "runtime/exec/hub/hub.h"
#include "tests/unit/fuzz/mend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t mend(uint8_t *x, size_t n, size_t most) {
  uint8_t *mark = memmem(x, n, "\n#\n", 3);
  size_t at = mark ? (size_t)(mark - x) + 3 : n;
  return at + fuzz_mend_weights(x + at, n - at, most - at);
}
FUZZ_MENDED_BY(mend)

static char folder[] = "fuzz-quantized-XXXXXX";

static const char *path_of(const char *name) {
  static char path[80];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void remove_folder(void) {
  unlink(path_of("config.json"));
  unlink(path_of("model.safetensors"));
  rmdir(folder);
}

static bool write_file(const char *name, const uint8_t *data, size_t n) {
  FILE *f = fopen(path_of(name), "w");
  return f && fwrite(data, 1, n, f) == n && !fclose(f);
}

/* The box of a whole tensor that has at most so many elements: its last axis is the first here. */
static void read_tensor(const ZxShards *s, uint32_t i, const ZxTensorInfo *t) {
  enum { MOST = 1 << 16 };
  static float out[MOST];
  ZxBox b = {.naxes = t->nshape};
  int64_t stride = 1, step = 1;
  for (int k = t->nshape; k-- > 0; stride *= t->shape[k]) b.count[k] = t->shape[k], b.stride[k] = stride;
  for (int k = 0; k < t->nshape; k++) b.step[k] = step, step *= t->shape[k] < MOST ? t->shape[k] : MOST;
  ZbErr err;
  bool finite = true;
  if (stride > MOST) return;
  for (int part = 0; part < 2; part++)
    if (!zx_box_read_part(&(ZxReading){s, i, b, out, MOST}, part, 2, &finite, &err))
      ZB_BUG("accepted, but: %s", err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static bool made;
  if (!made && !mkdtemp(folder)) return 0;
  if (!made) atexit(remove_folder);
  made = true;
  const uint8_t *mark = memmem(data, n, "\n#\n", 3);
  size_t head = mark ? (size_t)(mark - data) : n, rest = mark ? head + 3 : n;
  ZbArena *a = zb_arena_new();
  ZxShards s;
  ZbErr err;
  if (write_file("config.json", data, head) && write_file("model.safetensors", data + rest, n - rest) &&
      zx_shards_open(&s, a, folder, &err)) {
    for (uint32_t i = 0; i < s.names.n; i++) {
      ZxTensorInfo t = zx_shards_info(&s, i);
      if (zx_shards_fits(&s, i, &t, &err)) read_tensor(&s, i, &t);
    }
    zx_shards_close(&s);
  }
  zb_arena_free(a);
  return 0;
}
