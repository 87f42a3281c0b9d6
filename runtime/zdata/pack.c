/* zdata pack: texts, or ids that a tokenizer made, become one stream of tokens. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <string.h>

/* ---- ids as they are ---- */
/* An option that was given and only says something of texts; NULL: there is none. */
static const char *given_for_texts(const ZdOptions *o) {
  const struct {
    bool given;
    const char *name;
  } of[] = {{o->end, "end"},
            {o->field, "field"},
            {o->jsonl, "jsonl"},
            {o->skip_bad, "skip-bad"},
            {o->tokenizer, "tokenizer"},
            {o->threads, "threads"},
            {o->special_as_text, "special-as-text"},
            {o->apart, "apart"},
            {o->split > 0, "split"},
            {o->seed >= 0, "seed"},
            {o->shard_size, "shard-size"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if (of[i].given) return of[i].name;
  return NULL;
}

/* The same of conversations. */
static const char *given_for_chats(const ZdOptions *o) {
  return o->template  ? "chat-template"
         : o->names   ? "fields"
         : o->seq     ? "seq"
         : o->loss    ? "loss"
         : o->windows ? "windows"
                      : NULL;
}

static bool pack_ids(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataField tokens = {
      .name = "tokens", .elem = o->tokens == ZD_TOKENS_U16 ? ZX_DATA_U16 : ZX_DATA_U32, .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &tokens};
  ZdFiles fs = {.a = a};
  const char *of_texts = given_for_texts(o);
  if (of_texts)
    return zb_fail(err, "leave it out", "--%s is for texts; with --tokens ids are taken as they are",
                   of_texts);
  return zx_data_layout(&info, err) && zd_files(&fs, o, false, err) &&
         zd_copy(o, &fs, &info, (uint64_t)o->vocab, err);
}

/* ---- texts ---- */
typedef struct {
  const ZdOptions *o;
  ZdFiles fs;
  ZtTokenizer *t; /* NULL: bytes */
  int threads;
  ZdTarget to;
  ZdReader *reader;
  ZdEncoder *encoder;
  ZdSink *sink;
} Pack;

/* What GPT-2, Llama 3, Llama 2, Gemma, DeepSeek and BERT have for it; special, or else any text could spell
 * it. */
static uint32_t usual_end(const ZtTokenizer *t) {
  static const char *const usual[] = {
      "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
      "[SEP]"};
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    uint32_t id = zt_id(t, usual[i]);
    if (id != ZT_NONE && zt_special(t, id)) return id;
  }
  return ZT_NONE;
}

/* Of bytes: an id, from 256 on one that no byte has. */
static bool end_of_bytes(Pack *k, ZbErr *err) {
  uint64_t id;
  k->to.limit = 256;
  k->to.elem = ZX_DATA_U8;
  if (!k->o->end || !strcmp(k->o->end, "none")) return true;
  if (!zd_whole(k->o->end, 0, &id))
    return zb_fail(err, "--end 0, say: an id", "--end cannot be '%s'", zb_show(k->o->end));
  if (id >= UINT16_MAX)
    return zb_fail(err, "bytes are 0 to 255; the first free id is 256", "--end cannot be %" PRIu64, id);
  k->to.end = (uint32_t)id;
  if (id < k->to.limit) return true;
  k->to.limit = id + 1;
  k->to.elem = ZX_DATA_U16;
  return true;
}

static bool end_of_tokens(Pack *k, ZbErr *err) {
  const char *file = zb_show(k->o->tokenizer), *end = k->o->end;
  uint64_t id;
  k->to.limit = zt_size(k->t);
  k->to.elem = k->to.limit <= UINT16_MAX ? ZX_DATA_U16 : ZX_DATA_U32; /* the largest value means unknown */
  if (end && !strcmp(end, "none")) return true;
  if (!end && (k->to.end = usual_end(k->t)) == ZT_NONE)
    return zb_fail(err, "--end TOKEN, or --end none",
                   "%s has no token that usually ends a document: which one shall?", file);
  if (!end) return true;
  if (zd_whole(end, 0, &id)) {
    if (id >= k->to.limit)
      return zb_fail(err, "give one of its tokens", "--end %" PRIu64 ": the ids of %s are below %" PRIu64, id,
                     file, k->to.limit);
    k->to.end = (uint32_t)id;
    return true;
  }
  k->to.end = zt_id(k->t, end);
  return k->to.end != ZT_NONE || zb_fail(err, "give a token as that file writes it, or an id",
                                         "--end: %s has no token '%s'", file, zb_show(end));
}

static int threads_of(const ZdOptions *o) {
  uint32_t cpus = zb_cpus().n;
  return o->threads ? o->threads : cpus < ZD_THREADS ? (int)cpus : ZD_THREADS;
}

static bool choose(Pack *k, ZbErr *err) {
  const ZdOptions *o = k->o;
  k->to.end = ZD_NO_END;
  if (o->vocab) return zb_fail(err, "leave it out", "--vocab is for --tokens; of texts it is known");
  if (!o->tokenizer && (o->threads || o->special_as_text))
    return zb_fail(err, "leave it out", "--%s is for --tokenizer",
                   o->threads ? "threads" : "special-as-text");
  k->to.path = o->out;
  k->to.windows = o->apart ? ZX_WINDOWS_APART : ZX_WINDOWS_CUT;
  if (!zd_target_options(&k->to, o, err)) return false;
  if (!o->tokenizer) return end_of_bytes(k, err);
  k->t = zt_load(zb_file_of(k->fs.a, o->tokenizer, "tokenizer.json"), err);
  k->threads = threads_of(o);
  return k->t && end_of_tokens(k, err);
}

/* Bytes as tokens, which an end token above 255 makes two bytes wide. */
static bool put_bytes(Pack *k, const ZdPiece *p, ZbErr *err) {
  enum { WIDE = 4096 };
  if (k->to.elem == ZX_DATA_U8) return zd_sink_put(k->sink, p->text, p->n, p->begins, p->ends, err);
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
    ok = k->encoder ? zd_encode(k->encoder, &p, err) : put_bytes(k, &p, err);
    zd_progress(&progress, zd_reader_at(k->reader), zd_sink_tokens(k->sink));
  }
  ok = ok && !err->text[0] && (!k->encoder || zd_encode_end(k->encoder, err));
  zd_progress_end(&progress);
  return ok;
}

static void note(uint64_t n, const char *one, const char *many, const char *what, const char *more) {
  if (n) printf("note: %" PRIu64 " %s %s%s\n", n, n == 1 ? one : many, what, more);
}

static bool finish(Pack *k, ZbErr *err) {
  const ZdCounts *c = zd_reader_counts(k->reader);
  uint64_t tokens = zd_sink_tokens(k->sink), documents = zd_sink_documents(k->sink);
  if (!tokens) {
    if (c->first_bad.text[0])
      return zb_fail(err, c->first_bad.help, "nothing to pack: all %" PRIu64 " lines are bad, the first: %s",
                     c->bad, c->first_bad.text);
    return zb_fail(err, k->fs.skipped ? "only text is taken from folders; name other files themselves" : NULL,
                   "nothing to pack: %zu files, all empty", k->fs.n);
  }
  if (!zd_sink_finish(k->sink, err)) return false;
  printf(" from %zu file%s", k->fs.n, k->fs.n == 1 ? "" : "s");
  if (k->fs.skipped) printf(", %zu that are no text left out", k->fs.skipped);
  printf("\n");
  note(c->bad, "bad line was", "bad lines were", "left out, the first: ", c->first_bad.text);
  note(c->documents - documents, "document was", "documents were",
       "left out: the tokenizer gives them no token", "");
  note(c->empty, "empty document was", "empty documents were", "left out", "");
  if (k->t && k->to.end != ZD_NO_END) {
    size_t n;
    const char *end = zt_token(k->t, k->to.end, &n);
    printf("note: documents end with the token %s, %" PRIu32 "\n", end ? zb_show_n(end, n) : "", k->to.end);
  }
  if (k->t) note(c->cut, "document was", "documents were", "encoded in pieces: longer than 4 MiB", "");
  if (k->t)
    note(zd_encoder_broken(k->encoder), "document was", "documents were", "no UTF-8: U+FFFD for what is none",
         "");
  note(c->replaced, "half of a surrogate pair was", "halves of surrogate pairs were", "replaced by U+FFFD",
       "");
  return true;
}

static bool pack_texts(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  Pack k = {.o = o, .fs = {.a = a}};
  bool ok = choose(&k, err) && zd_files(&k.fs, o, true, err) && (k.sink = zd_sink_new(&k.to, err));
  if (ok) {
    unsigned flags = o->special_as_text ? ZT_SPECIAL_AS_TEXT : 0;
    k.reader = zd_reader_new(&k.fs, o->field ? o->field : "text", o->jsonl, o->skip_bad);
    if (k.t) k.encoder = zd_encoder_new(k.t, flags, k.threads, k.to.elem, k.sink);
    ok = pack_all(&k, err) && finish(&k, err);
  }
  zd_encoder_free(k.encoder);
  zd_reader_free(k.reader);
  zd_sink_abandon(k.sink);
  zt_free(k.t);
  return ok;
}

bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  const char *of_chats = given_for_chats(o);
  if (of_chats && !o->chat)
    return zb_fail(err, "leave it out, or add --chat", "--%s is for --chat", of_chats);
  if (o->chat && o->tokens) return zb_fail(err, "leave one out", "--tokens does not go with --chat");
  return (o->chat ? zd_pack_chat : o->tokens ? pack_ids : pack_texts)(o, a, err);
}
