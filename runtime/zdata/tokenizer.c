/* zdata tokenizer: a tokenizer.json from texts. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <string.h>

/* Begins as a tokenizer.json does: {"version", whatever blanks are between. */
static bool is_tokenizer(const uint8_t *head, size_t n) {
  static const char begin[] = "{\"version\"";
  size_t have = 0;
  for (size_t i = 0; i < n && have < sizeof begin - 1; i++) {
    if (head[i] == begin[have]) have++;
    else if (!strchr(" \t\r\n", head[i]) || !head[i]) return false;
  }
  return have == sizeof begin - 1;
}

static bool count_words(const ZdOptions *o, ZdFiles *fs, ZtTrainer *x, ZbErr *err) {
  ZdProgress progress = zd_progress_new(fs->bytes);
  ZdReader *r = zd_reader_new(fs, o->field ? o->field : "text", o->jsonl, o->skip_bad);
  ZdPiece p;
  bool ok = true;
  while (ok && zd_reader_next(r, &p, err)) {
    ok = zt_trainer_add(x, p.text, p.n, err);
    zd_progress(&progress, zd_reader_at(r), 0);
  }
  ok = ok && !err->text[0];
  zd_progress_end(&progress);
  const ZdCounts *c = zd_reader_counts(r);
  if (ok)
    printf("%" PRIu64 " document%s from %zu file%s\n", c->documents, c->documents == 1 ? "" : "s", fs->n,
           fs->n == 1 ? "" : "s");
  if (ok && c->bad)
    printf("note: %" PRIu64 " bad line%s left out, the first: %s\n", c->bad, c->bad == 1 ? " was" : "s were",
           c->first_bad.text);
  zd_reader_free(r);
  return ok;
}

bool zd_tokenizer(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  static const ZbKind kind = {"a tokenizer.json", is_tokenizer};
  const char *end = o->end ? o->end : "<|endoftext|>";
  uint32_t specials = strcmp(end, "none") ? 1 : 0;
  ZdFiles fs = {.a = a};
  if (!zd_files(&fs, o, true, err)) return false;
  ZtTrainer *x = zt_trainer_new();
  ZbText json = {0};
  bool ok = count_words(o, &fs, x, err) &&
            zt_trainer_finish(x, (uint32_t)o->vocab, &end, specials, &json, err) &&
            zb_write_file(o->out, &kind, json.s, json.len, err);
  if (ok)
    printf("%s: %" PRId64 " tokens%s%s\n", zb_show(o->out), o->vocab, specials ? ", the last one " : "",
           specials ? zb_show(end) : "");
  zb_text_free(&json);
  zt_trainer_free(x);
  return ok;
}
