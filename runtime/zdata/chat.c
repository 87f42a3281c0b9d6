/* zdata pack --chat: conversations, by a model's own template, into a file that says of each token if it is learned. */
#include "runtime/zdata/zdata.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const ZdOptions *o;
  ZdFiles fs;
  ZtTokenizer *t;
  ZtCoder *coder;
  ZtChats chats;
  const ZdNames *names;
  const char *folder; /* of the tokenizer */
  uint32_t end;       /* a token behind texts, or ZT_NONE */
  ZdTarget to;
  ZdReader *reader;
  ZdSink *sink;
  ZtIds ids;              /* of a line, ... */
  ZbText learned, put;    /* ... whether each is learned, and both as the file has them */
  size_t end_of[2], ndoc; /* its documents: two of a pair */
  uint64_t longest, taught, texts;
} Chat;

/* ---- options ---- */
static bool choose(Chat *k, ZbArena *a, ZbErr *err) {
  const ZdOptions *o = k->o;
  const char *not_for = o->field             ? "field"
                        : o->vocab           ? "vocab"
                        : o->apart           ? "apart"
                        : o->special_as_text ? "special-as-text"
                        : o->threads         ? "threads"
                        : o->end             ? "end"
                                             : NULL;
  if (not_for) return zb_fail(err, "leave it out", "--%s does not go with --chat", not_for);
  if (!o->tokenizer)
    return zb_fail(err, "--tokenizer DIR, the folder of the model", "conversations need a tokenizer");
  k->names = zd_names(a, o->names, err);
  k->folder = zb_folder_of(a, o->tokenizer);
  if (!k->names || !(k->t = zt_load(zb_file_of(a, o->tokenizer, "tokenizer.json"), err)) ||
      !zt_chats_open(&k->chats, a, k->folder, o->template, zb_json_file, err) ||
      !zd_target_options(&k->to, o, err))
    return false;
  const cJSON *eos = cJSON_GetObjectItemCaseSensitive(k->chats.tokens, "eos_token");
  k->coder = zt_coder_new(k->t);
  k->end = cJSON_IsString(eos) ? zt_id(k->t, eos->valuestring) : ZT_NONE;
  k->to.path = o->out;
  k->to.end = ZD_NO_END;
  k->to.limit = zt_size(k->t);
  k->to.elem = k->to.limit <= UINT16_MAX ? ZX_DATA_U16 : ZX_DATA_U32;
  k->to.windows = (const ZxWindows[]){
      [ZD_FIT] = ZX_WINDOWS_FIT, [ZD_EACH] = ZX_WINDOWS_EACH, [ZD_PAIRS] = ZX_WINDOWS_PAIRS}[o->windows];
  return true;
}

/* ---- tokens ---- */
/* Encodes a text as a document of its own: with what the tokenizer puts before one, and the token that ends it. */
static bool encode_text(Chat *k, const char *text, size_t n, ZbErr *err) {
  if (!n) return zb_fail(err, NULL, "an empty text");
  if (!zt_encode(k->coder, text, n, ZT_AROUND | ZT_SPECIAL_AS_TEXT, &k->ids, err)) return false;
  if (k->end == ZT_NONE)
    return zb_fail(err, "tokenizer_config.json names it as `eos_token`",
                   "%s does not say which token ends a text", zb_show(k->folder));
  if (!k->ids.n || k->ids.id[k->ids.n - 1] != k->end) {
    k->ids.id = realloc(k->ids.id, (k->ids.n + 1) * sizeof *k->ids.id);
    if (!k->ids.id) zb_out_of_memory(0);
    k->ids.id[k->ids.n++] = k->end;
    k->ids.cap = k->ids.n;
  }
  for (size_t i = 0; i < k->ids.n; i++) zb_text_put(&k->learned, "\1", 1);
  return true;
}

static bool encode_messages(Chat *k, const ZdTalk *t, const cJSON *messages, ZbErr *err) {
  const ZtTemplate *template = zt_chats_template(&k->chats, t->tools);
  const ZtChat chat = {.messages = messages,
                       .tools = t->tools,
                       .documents = t->documents,
                       .more = t->more,
                       .tokens = k->chats.tokens};
  const ZtLearning how = {(ZtLearn)k->o->loss, t->from};
  if (!template) return *err = k->chats.why, false;
  return zt_template_learn(template, k->coder, &chat, &how, &k->ids, &k->learned, err);
}

/* Ends a document of the line with what was encoded last. */
static bool end_document(Chat *k, ZbErr *err) {
  size_t from = k->ndoc ? k->end_of[k->ndoc - 1] : 0, n = k->ids.n - from;
  if (k->o->seq && n > (uint64_t)k->o->seq)
    return zb_fail(err, NULL, "it has %zu tokens, and --seq is %" PRId64, n, k->o->seq);
  if (!n || !memchr(k->learned.s + from, 1, n)) return zb_fail(err, NULL, "nothing of it is learned");
  k->end_of[k->ndoc++] = k->ids.n;
  return true;
}

static bool encode_talk(Chat *k, const ZdTalk *t, ZbErr *err) {
  bool pairs = k->o->windows == ZD_PAIRS;
  if (pairs != (t->rejected != NULL))
    return pairs ? zb_fail(err, NULL, "--windows pairs: it has no `chosen` and `rejected`")
                 : zb_fail(err, "--windows pairs makes pairs of such lines",
                           "it is a pair, `chosen` and `rejected`");
  if (t->text) return encode_text(k, t->text, strlen(t->text), err) && end_document(k, err) && ++k->texts;
  return encode_messages(k, t, t->messages, err) && end_document(k, err) &&
         (!pairs || (encode_messages(k, t, t->rejected, err) && end_document(k, err)));
}

static bool encode(Chat *k, const ZdPiece *p, ZbErr *err) {
  ZdTalk t = {0};
  k->ids.n = k->learned.len = k->ndoc = 0;
  if (!p->begins || !p->ends)
    return zb_fail(err, "cut it into documents", "a text of more than %d bytes", ZD_PIECE);
  char *text = p->json ? NULL : strndup(p->text, p->n);
  if (text && strlen(text) < p->n) {
    free(text);
    return zb_fail(err, NULL, "a text with a NUL");
  }
  if (text) t.text = text;
  bool ok = (text || zd_talk_read(&t, k->names, p->text, p->n, err)) && encode_talk(k, &t, err);
  zd_talk_free(&t);
  free(text);
  return ok;
}

/* ---- the file ---- */
static bool put_document(Chat *k, size_t from, size_t to, ZbErr *err) {
  size_t size = zx_data_elem_bytes(k->to.elem);
  k->put.len = 0;
  for (size_t i = from; i < to; i++) {
    zb_text_put(&k->put, (const char *)&k->ids.id[i], size); /* little-endian */
    zb_text_put(&k->put, k->learned.s + i, 1);
    k->taught += (uint64_t)k->learned.s[i];
  }
  if (to - from > k->longest) k->longest = to - from;
  return zd_sink_put(k->sink, k->put.s, to - from, true, true, err);
}

static bool put(Chat *k, ZbErr *err) {
  bool ok = true;
  for (size_t i = 0; ok && i < k->ndoc; i++)
    ok = put_document(k, i ? k->end_of[i - 1] : 0, k->end_of[i], err);
  return ok;
}

static bool pack_all(Chat *k, ZbErr *err) {
  ZdProgress progress = zd_progress_new(k->fs.bytes);
  ZdPiece p;
  bool ok = true;
  while (ok && zd_reader_next(k->reader, &p, err)) {
    ZbErr why = {0};
    ok = encode(k, &p, &why) ? put(k, err) : zd_reader_bad(k->reader, &why, err);
    zd_progress(&progress, zd_reader_at(k->reader), zd_sink_tokens(k->sink));
  }
  zd_progress_end(&progress);
  return ok && !err->text[0];
}

/* Says how full windows of --seq tokens are. */
static bool tell_padding(const Chat *k, ZbErr *err) {
  if (!k->o->seq || k->o->split > 0) return true;
  ZxData *d = zx_data_open(k->o->out, err);
  int64_t seq = k->o->windows == ZD_PAIRS ? 2 * k->o->seq : k->o->seq;
  bool ok = d && zx_data_arrange(d, seq, true, err);
  ZxFilled x = ok ? zx_data_filled(d) : (ZxFilled){0};
  if (ok) printf("windows of %" PRId64 ": %" PRIu64 ", %.1f %% padding\n", seq, x.windows, 100 * x.padding);
  zx_data_close(d);
  return ok;
}

static bool finish(Chat *k, ZbErr *err) {
  const ZdCounts *c = zd_reader_counts(k->reader);
  if (!zd_sink_documents(k->sink)) {
    if (c->first_bad.text[0])
      return zb_fail(err, c->first_bad.help,
                     "nothing to pack: all %" PRIu64 " conversations are bad, the first: %s", c->bad,
                     c->first_bad.text);
    return zb_fail(err, NULL, "nothing to pack: %zu files, all empty", k->fs.n);
  }
  uint64_t tokens = zd_sink_tokens(k->sink);
  if (!zd_sink_finish(k->sink, err)) return false;
  printf(" from %zu file%s\n%" PRIu64 " tokens (%.1f %%) are learned; the longest document has %" PRIu64 "\n",
         k->fs.n, k->fs.n == 1 ? "" : "s", k->taught, 100.0 * (double)k->taught / (double)tokens, k->longest);
  if (c->bad)
    printf("note: %" PRIu64 " bad conversation%s left out, the first: %s\n", c->bad,
           c->bad == 1 ? " was" : "s were", c->first_bad.text);
  if (k->texts)
    printf("note: %" PRIu64 " document%s learned whole, without the template\n", k->texts,
           k->texts == 1 ? " is a text," : "s are texts,");
  return tell_padding(k, err);
}

bool zd_pack_chat(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  Chat k = {.o = o, .fs = {.a = a}};
  bool ok = choose(&k, a, err) && zd_files(&k.fs, o, true, err) && (k.sink = zd_sink_new(&k.to, err));
  if (ok) {
    k.reader = zd_reader_new(&k.fs, NULL, o->jsonl, o->skip_bad);
    ok = pack_all(&k, err) && finish(&k, err);
  }
  zd_reader_free(k.reader);
  zd_sink_abandon(k.sink);
  zt_chats_close(&k.chats);
  zt_coder_free(k.coder);
  zt_free(k.t);
  zt_ids_free(&k.ids);
  zb_text_free(&k.learned);
  zb_text_free(&k.put);
  return ok;
}
