/* zdata pack: texts, or ids that a tokenizer made, become one stream of tokens. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <string.h>

/* ---- ids as they are ---- */
static bool pack_ids(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataField tokens = {.name = "tokens", .elem = zx_data_elem_of(o->tokens), .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &tokens};
  ZdFiles fs = {.a = a};
  uint64_t vocab = 0;
  if (tokens.elem != ZX_DATA_U16 && tokens.elem != ZX_DATA_U32)
    return zb_fail(err, "--tokens u16 or --tokens u32", "--tokens cannot be '%s'", zb_show(o->tokens));
  if (o->end || o->nfield || o->jsonl || o->skip_bad)
    return zb_fail(err, "leave it out", "--%s is for texts; with --tokens ids are taken as they are",
                   o->end      ? "end"
                   : o->nfield ? "field"
                   : o->jsonl  ? "jsonl"
                               : "skip-bad");
  if (o->vocab && !zd_whole(o->vocab, 1, &vocab))
    return zb_fail(err, "--vocab 50257, say", "--vocab cannot be '%s'", zb_show(o->vocab));
  return zx_data_layout(&info, err) && zd_files(&fs, o, false, err) && zd_copy(o, &fs, &info, vocab, err);
}

/* ---- texts ---- */
typedef struct {
  const ZdOptions *o;
  ZdFiles fs;
  uint32_t end;
  uint64_t limit; /* ids are below it */
  ZdReader *reader;
  ZdSink *sink;
} Pack;

static bool choose_end(Pack *k, ZbErr *err) {
  uint64_t id = ZD_NO_END;
  if (k->o->end && !zd_whole(k->o->end, 0, &id))
    return zb_fail(err, "--end 0, say: an id", "--end cannot be '%s'", zb_show(k->o->end));
  if (k->o->end && id >= UINT16_MAX)
    return zb_fail(err, "bytes are 0 to 255; the first free id is 256", "--end cannot be %" PRIu64, id);
  k->end = (uint32_t)id;
  k->limit = k->o->end && id >= 256 ? id + 1 : 256;
  return true;
}

/* Bytes as tokens, which an end token above 255 makes two bytes wide. */
static bool put_bytes(Pack *k, const ZdPiece *p, ZbErr *err) {
  enum { WIDE = 4096 };
  if (k->limit == 256) return zd_sink_put(k->sink, p->text, p->n, p->begins, p->ends, err);
  size_t at = 0;
  do {
    uint16_t wide[WIDE];
    size_t n = p->n - at < WIDE ? p->n - at : WIDE;
    for (size_t i = 0; i < n; i++) wide[i] = (uint8_t)p->text[at + i];
    if (!zd_sink_put(k->sink, wide, n, p->begins && !at, p->ends && at + n == p->n, err)) return false;
    at += n;
  } while (at < p->n);
  return true;
}

static bool pack_all(Pack *k, ZbErr *err) {
  ZdProgress progress = zd_progress_new(k->fs.bytes);
  ZdPiece p;
  bool ok = true;
  while (ok && zd_reader_next(k->reader, &p, err)) {
    ok = put_bytes(k, &p, err);
    zd_progress(&progress, zd_reader_at(k->reader), zd_sink_tokens(k->sink));
  }
  zd_progress_end(&progress);
  return ok && !err->text[0];
}

static void note(uint64_t n, const char *one, const char *many, const char *what, const char *more) {
  if (n) printf("note: %" PRIu64 " %s %s%s\n", n, n == 1 ? one : many, what, more);
}

static bool finish(Pack *k, ZbErr *err) {
  const ZdCounts *c = zd_reader_counts(k->reader);
  uint64_t tokens = zd_sink_tokens(k->sink), documents = zd_sink_documents(k->sink);
  if (!tokens) {
    if (c->first_bad.text[0])
      return zb_fail(err, NULL, "nothing to pack: all %" PRIu64 " lines are bad, the first: %s", c->bad,
                     c->first_bad.text);
    return zb_fail(err, k->fs.skipped ? "only text is taken from folders; name other files themselves" : NULL,
                   "nothing to pack: %zu files, all empty", k->fs.n);
  }
  bool ok = zd_sink_finish(k->sink, k->limit, err);
  k->sink = NULL;
  if (!ok) return false;
  printf("%s: %" PRIu64 " tokens of %" PRIu64 " document%s from %zu file%s", zb_show(k->o->out), tokens,
         documents, documents == 1 ? "" : "s", k->fs.n, k->fs.n == 1 ? "" : "s");
  if (k->fs.skipped) printf(", %zu that are no text left out", k->fs.skipped);
  printf("\n");
  note(c->bad, "bad line was", "bad lines were", "left out, the first: ", c->first_bad.text);
  note(c->empty, "empty document was", "empty documents were", "left out", "");
  note(c->replaced, "half of a surrogate pair was", "halves of surrogate pairs were", "replaced by U+FFFD",
       "");
  return true;
}

static bool pack_texts(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  Pack k = {.o = o, .fs = {.a = a}};
  if (o->vocab) return zb_fail(err, "leave it out", "--vocab is for --tokens; bytes have 256 ids");
  if (o->nfield > 1) return zb_fail(err, NULL, "--field is given twice");
  if (!choose_end(&k, err) || !zd_files(&k.fs, o, true, err)) return false;
  k.sink = zd_sink_new(o->out, k.limit > 256 ? ZX_DATA_U16 : ZX_DATA_U8, k.end, err);
  if (!k.sink) return false;
  k.reader = zd_reader_new(&k.fs, o->nfield ? o->field[0] : "text", o->jsonl, o->skip_bad);
  bool ok = pack_all(&k, err) && finish(&k, err);
  zd_sink_abandon(k.sink);
  zd_reader_free(k.reader);
  return ok;
}

bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  return (o->tokens ? pack_ids : pack_texts)(o, a, err);
}
