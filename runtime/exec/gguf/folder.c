/* Which files a GGUF file is as a folder of the hub. */
#include "runtime/exec/gguf/texts.h"

static const struct {
  const char *name;
  bool (*make)(const ZxGgufFile *f, ZbText *out, ZbErr *err);
} files[] = {{"config.json", zx_gguf_config},
             {"tokenizer.json", zx_gguf_tokenizer},
             {"tokenizer_config.json", zx_gguf_tokenizer_config}};

const char *zx_gguf_text(ZbArena *a, const char *path, const char *name, size_t *n, ZbErr *err) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    if (strcmp(files[i].name, name)) continue;
    ZxGgufFile f;
    ZbText t = {0};
    if (!zx_gguf_file_open(&f, a, path, err)) return NULL;
    bool ok = files[i].make(&f, &t, err);
    zx_gguf_file_close(&f);
    const char *text = ok ? zb_strndup(a, t.s, t.len) : NULL;
    *n = t.len;
    zb_text_free(&t);
    return text;
  }
  *n = 0;
  return NULL;
}
