/* Fuzz target: any bytes as a folder of shards: the index, and behind lines of `#` the files a.safetensors
 * and b.safetensors. What opens must be found or refused by name, and read; the index is also somebody's
 * config.json. */
#define _GNU_SOURCE
#include "runtime/exec/hub/hub.h"
#include "tests/unit/fuzz/mend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Mends the shards where they are. */
static size_t mend(uint8_t *x, size_t n, size_t most) {
  uint8_t *mark = memmem(x, n, "\n#\n", 3);
  size_t at = mark ? (size_t)(mark - x) + 3 : n;
  for (int i = 0; i < 2 && at < n; i++) {
    static uint8_t rest[1 << 20];
    uint8_t *end = i ? NULL : memmem(x + at, n - at, "\n#\n", 3);
    size_t size = end ? (size_t)(end - x) - at : n - at, more = n - at - size;
    if (more > sizeof rest || more > most - at) return n;
    memcpy(rest, x + at + size, more);
    size = fuzz_mend_weights(x + at, size, most - at - more);
    memcpy(x + at + size, rest, more);
    n = at + size + more;
    at += size + 3;
  }
  return n;
}
FUZZ_MENDED_BY(mend)

static const char *const names[] = {"model.safetensors.index.json", "a.safetensors", "b.safetensors"};
static char folder[] = "fuzz-hub-XXXXXX";

static void remove_folder(void) {
  char path[80];
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  rmdir(folder);
}

static bool write_file(int i, const uint8_t *data, size_t n) {
  char path[80];
  snprintf(path, sizeof path, "%s/%s", folder, names[i]);
  FILE *f = fopen(path, "w");
  return f && fwrite(data, 1, n, f) == n && !fclose(f);
}

/* The files of an input; false if one cannot be written. */
static bool write_files(const uint8_t *data, size_t n) {
  bool ok = true;
  for (int i = 0; i < 3; i++) {
    const uint8_t *end = i < 2 ? memmem(data, n, "\n#\n", 3) : NULL;
    size_t k = end ? (size_t)(end - data) : n;
    ok = write_file(i, data, k) && ok;
    size_t used = end ? k + 3 : k;
    data += used;
    n -= used;
  }
  return ok;
}

static void read_tensors(const ZxShards *s) {
  static const ZxTensorInfo want = {"w", 2, {2, 3}};
  static const ZxBox turned = {.naxes = 2, .count = {2, 3}, .stride = {3, 1}, .step = {1, 2}};
  ZbErr err;
  float out[6];
  for (uint32_t i = 0; i < s->names.n; i++) {
    if (zx_shards_find(s, s->names.name[i]) != i) ZB_BUG("a tensor is not found");
    if (zx_shards_fits(s, i, &want, &err) && !zx_box_read(s, i, &turned, out, 6, &err))
      ZB_BUG("accepted, but: %s", err.text);
  }
}

static void make_config(ZbArena *a, const uint8_t *data, size_t n) {
  ZgGraph *g = zg_graph_new(a, "M");
  zg_config_add(g, "hf", "weight_map.layers", "[1e-05, \"x\"]");
  zg_config_add(g, "hf", "metadata", "null");
  ZbErr err = {0};
  char *text = zx_config(g, "hf", ZK_F32, NULL, zb_strndup(a, (const char *)data, n), "config.json", &err);
  if (!text && !*err.text) ZB_BUG("no config, and no message");
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static bool made;
  if (!made && !mkdtemp(folder)) return 0;
  if (!made) atexit(remove_folder);
  made = true;
  ZbArena *a = zb_arena_new();
  ZxShards s;
  ZbErr err;
  if (write_files(data, n) && zx_shards_open(&s, a, folder, &err)) {
    read_tensors(&s);
    zx_shards_close(&s);
  }
  const uint8_t *end = memmem(data, n, "\n#\n", 3);
  make_config(a, data, end ? (size_t)(end - data) : n);
  zb_arena_free(a);
  return 0;
}
