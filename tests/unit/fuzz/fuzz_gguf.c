/* Fuzz target: any bytes as a GGUF file: its tensors, and the texts that a folder would have beside. */
#include "runtime/exec/gguf/gguf.h"
#include "tests/unit/fuzz/mend.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char path[] = "fuzz-XXXXXX.gguf";

/* Counts of tensors and keys are mended to what a small file may have: with others nothing else is looked
 * at. */
static size_t mend(uint8_t *x, size_t n, size_t most) {
  static const char head[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0};
  if (n < 24 || most < 24) return n;
  memcpy(x, head, sizeof head);
  memset(x + 9, 0, 7);
  memset(x + 17, 0, 7);
  x[8] %= 24;
  x[16] %= 32;
  return n;
}
FUZZ_MENDED_BY(mend)

static void remove_file(void) { unlink(path); }

static void read_tensor(const ZxGguf *g, uint32_t i) {
  enum { MOST = 1 << 12 };
  static float out[MOST];
  const char *format;
  ZxTensorInfo t = zx_gguf_info(g, i, &format);
  ZbErr err;
  uint64_t n = 1;
  for (int k = 0; k < t.nshape; k++) n *= (uint64_t)t.shape[k];
  uint64_t from = n > 5 ? 3 : 0, most = n - from < MOST ? n - from : MOST;
  if (!zx_gguf_read(g, i, from, most, out, &err) || !zx_gguf_read(g, i, n - most, most, out, &err))
    ZB_BUG("accepted, but: %s", err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *const texts[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "other"};
  static bool made;
  int fd = made ? -1 : mkstemps(path, 5);
  if (fd >= 0) close(fd), atexit(remove_file), made = true;
  FILE *f = made ? fopen(path, "w") : NULL;
  if (!f || fwrite(data, 1, n, f) != n || fclose(f)) return 0;
  ZbArena *a = zb_arena_new();
  ZbErr err;
  ZxGguf *g = zx_gguf_open(a, path, &err);
  for (uint32_t i = 0; g && i < zx_gguf_count(g); i++) read_tensor(g, i);
  zx_gguf_close(g);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    size_t size;
    err = (ZbErr){0};
    const char *text = zx_gguf_text(a, path, texts[i], &size, &err);
    if (text && strlen(text) != size) ZB_BUG("a text has a NUL");
    if (!text && !*err.text && i < 3) ZB_BUG("no text, and no message");
  }
  zb_arena_free(a);
  return 0;
}
