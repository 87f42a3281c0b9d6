/* Ids become a text, a token at a time: each decoder takes the bytes of a token and its end, and gives the
 * next one what no later token can change. Behind the last decoder that is text.
 *
 *   <0xE2>  held: two more bytes may make a character of it, or none
 *   <0x82>  held
 *   a       "\ufffd\ufffd", since the run of bytes is over, and "a"
 *
 * Most decoders hold a token until it ends. Fuse makes one token of all, so what follows it sees no end
 * before that of the text: Strip goes on all the same, the others hold all that comes. */
#define _GNU_SOURCE
#include "runtime/text/json.h"

#include <stdlib.h>

/* ---- reading ---- */
static ZtDec *add(ZtTokenizer *t, ZtDecKind kind) {
  ZtDec d = {.kind = kind, .text = ""};
  ZB_PUSH(t->arena, t->dec, t->ndec, d);
  return &t->dec[t->ndec - 1];
}

static bool set_text(ZtTokenizer *t, const char *part, const cJSON *o, const char *key, ZtDec *d,
                     ZbErr *err) {
  if (!zt_json_text(t, part, o, key, ZT_MUST, &d->text, err)) return false;
  d->text_n = strlen(d->text);
  return true;
}

static bool read_metaspace(ZtTokenizer *t, const cJSON *o, ZbErr *err) {
  static const char part[] = "decoder Metaspace";
  ZtDec *d = add(t, ZT_DEC_METASPACE);
  const char *scheme = NULL;
  bool prefix = true;
  if (!set_text(t, part, o, "replacement", d, err) ||
      !zt_json_text(t, part, o, "prepend_scheme", ZT_MAY, &scheme, err) ||
      !zt_json_bool(part, o, "add_prefix_space", ZT_MAY, &prefix, err))
    return false;
  d->never = scheme ? !strcmp(scheme, "never") : !prefix;
  return d->text_n || zb_fail(err, NULL, "%s: `replacement` is empty", part);
}

static bool read_one(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err) {
  if (!strcmp(type, "ByteLevel")) return add(t, ZT_DEC_BYTES);
  if (!strcmp(type, "ByteFallback")) return add(t, ZT_DEC_BYTE_FALLBACK);
  if (!strcmp(type, "Fuse")) return add(t, ZT_DEC_FUSE);
  if (!strcmp(type, "Metaspace")) return read_metaspace(t, o, err);
  if (!strcmp(type, "Replace")) {
    ZtDec *d = add(t, ZT_DEC_REPLACE);
    return set_text(t, "decoder Replace", o, "content", d, err) &&
           zt_json_pattern(t, "decoder Replace", o, &d->pattern, err);
  }
  if (!strcmp(type, "Strip")) {
    static const char part[] = "decoder Strip";
    ZtDec *d = add(t, ZT_DEC_STRIP);
    return set_text(t, part, o, "content", d, err) &&
           zt_json_count(part, o, "start", ZT_MUST, INT32_MAX, &d->start, err) &&
           zt_json_count(part, o, "stop", ZT_MUST, INT32_MAX, &d->stop, err) &&
           (d->text_n || zb_fail(err, NULL, "%s: `content` is empty", part));
  }
  if (!strcmp(type, "WordPiece")) {
    ZtDec *d = add(t, ZT_DEC_WORDPIECE);
    return set_text(t, "decoder WordPiece", o, "prefix", d, err) &&
           zt_json_bool("decoder WordPiece", o, "cleanup", ZT_MUST, &d->cleanup, err);
  }
  return zb_fail(err, NULL, "the decoder %s is not supported", zb_show(type));
}

bool zt_decoders_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  const cJSON *decoder = zt_json(root, "decoder");
  t->has_decoder = decoder;
  return zt_json_sequence(t, "decoder", decoder, "decoders", read_one, err);
}

/* ---- a row of tokens goes through decoder k ---- */
static bool take(ZtDecoding *d, uint32_t k, const char *s, size_t n); /* bytes of the token that comes in */
static bool close(ZtDecoding *d, uint32_t k);                         /* the token ends */
static bool end(ZtDecoding *d, uint32_t k);                           /* so does the row */

static bool token(ZtDecoding *d, uint32_t k, const ZbText *s) {
  return take(d, k, s->s, s->len) && close(d, k);
}

/* Gives the next decoder what is whole of the bytes so far; at the end also what stands for the rest. */
static bool bytes_go_on(ZtDecoding *d, uint32_t k, bool last) {
  ZtStage *x = &d->stage[k];
  size_t open = last ? 0 : zt_utf8_open(x->run.s, x->run.len), sure = x->run.len - open;
  if (!sure) return true;
  x->made.len = 0;
  zt_utf8_repair(x->run.s, sure, &x->made);
  memmove(x->run.s, x->run.s + sure, open);
  x->run.len = open;
  return take(d, k + 1, x->made.s, x->made.len);
}

static bool by_bytes(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  size_t bytes, begin = x->run.len;
  for (size_t at = 0; at < x->held.len; at += bytes) {
    int byte = zt_char_byte(zt_char(x->held.s + at, &bytes));
    if (byte < 0) { /* then the token is text as it is */
      x->run.len = begin;
      zb_text_put(&x->run, x->held.s, x->held.len);
      break;
    }
    char b = (char)byte;
    zb_text_put(&x->run, &b, 1);
  }
  return bytes_go_on(d, k, false);
}

int zt_fallback_byte(const char *s, size_t n) {
  if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>') return -1;
  int v = 0;
  for (int i = 3; i < 5; i++) {
    const char *digits = "0123456789abcdef",
               *at = s[i] ? strchr(digits, s[i] | (s[i] >= 'A' ? 32 : 0)) : NULL;
    if (!at) return -1;
    v = 16 * v + (int)(at - digits);
  }
  return v;
}

/* A run of bytes that is UTF-8 is a token; of another each byte is one, U+FFFD. */
static bool end_run(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  bool good = !x->broken && zt_utf8_valid(x->run.s, x->run.len) == x->run.len;
  if (good && x->run.len && !token(d, k + 1, &x->run)) return false;
  for (size_t i = 0; !good && i < x->run.len; i++)
    if (!take(d, k + 1, "\xef\xbf\xbd", 3) || !close(d, k + 1)) return false;
  x->run.len = 0;
  return true;
}

static bool by_fallback(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  int byte = zt_fallback_byte(x->held.s, x->held.len);
  char b = (char)byte;
  if (byte < 0) {
    if (!end_run(d, k)) return false;
    x->broken = false;
    return token(d, k + 1, &x->held);
  }
  zb_text_put(&x->run, &b, 1);
  size_t valid = zt_utf8_valid(x->run.s, x->run.len);
  x->broken |= valid + zt_utf8_open(x->run.s, x->run.len) < x->run.len; /* whatever bytes follow */
  return !x->broken || end_run(d, k);
}

static bool replace(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  const ZtDec *dec = &d->t->dec[k];
  const char *s = x->held.s;
  size_t n = x->held.len, at = 0, begin, end;
  int found;
  x->made.len = 0;
  while ((found = zt_match(dec->pattern, d->c->matcher, s, n, at, at, &begin, &end, d->c->err)) > 0) {
    zb_text_put(&x->made, s + at, begin - at);
    zb_text_put(&x->made, dec->text, dec->text_n);
    at = end;
    if (!zt_may_grow(d->c, x->grown + x->made.len)) return false;
  }
  if (found < 0) return false;
  zb_text_put(&x->made, s + at, n - at);
  x->grown += x->made.len;
  return token(d, k + 1, &x->made);
}

/* Counts the bytes at the end of s[0..n) that are removed if a token ends so: the longest part that `most`
 * times d->text begins with. */
static size_t strip_may(const ZtDec *d, const char *s, size_t n) {
  size_t best = 0, m = d->text_n, limit = d->stop < n / m + 1 ? d->stop * m : n;
  for (size_t phase = 0; phase < m && limit; phase++) { /* bytes of the last copy that are there */
    size_t same = 0;
    while (same < limit && s[n - 1 - same] == d->text[(phase + m * (same / m + 1) - 1 - same) % m]) same++;
    if (same < phase) continue;
    size_t most = same - (same - phase) % m;
    if (most > best) best = most;
  }
  return best;
}

/* Gives the next decoder what is sure of the token that comes in: what it begins with is removed, and what it
 * may end with waits. */
static bool strip(ZtDecoding *d, uint32_t k, bool last) {
  ZtStage *x = &d->stage[k];
  const ZtDec *dec = &d->t->dec[k];
  const char *s = x->held.s;
  size_t n = x->held.len, m = dec->text_n;
  while (x->cut < dec->start) {
    if (!last && n < m && !memcmp(s, dec->text, n)) break;
    if (!zt_starts(s, n, dec->text, m)) x->cut = dec->start;
    else {
      x->cut++;
      s += m;
      n -= m;
    }
  }
  size_t go = x->cut < dec->start ? 0 : n - (last ? 0 : strip_may(dec, s, n));
  for (uint32_t i = 0; last && i < dec->stop && go >= m && !memcmp(s + go - m, dec->text, m); i++) go -= m;
  if (go && !take(d, k + 1, s, go)) return false;
  x->held.len = n - go;
  memmove(x->held.s, s + go, n - go);
  return true;
}

static bool metaspace(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  const ZtDec *dec = &d->t->dec[k];
  const char *s = x->held.s, *found;
  size_t n = x->held.len, at = 0;
  x->made.len = 0;
  while ((found = memmem(s + at, n - at, dec->text, dec->text_n))) {
    zb_text_put(&x->made, s + at, (size_t)(found - s) - at);
    if (x->tokens || dec->never) zb_text_put(&x->made, " ", 1);
    at = (size_t)(found - s) + dec->text_n;
  }
  zb_text_put(&x->made, s + at, n - at);
  return token(d, k + 1, &x->made);
}

/* The library's eleven replacements, one after the other, in a single token. */
static void clean_up(ZbText *s, ZbText *spare) {
  static const char *const pair[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof pair / sizeof *pair; i++) {
    size_t at = 0, n = strlen(pair[i][0]);
    const char *found;
    spare->len = 0;
    while ((found = memmem(s->s + at, s->len - at, pair[i][0], n))) {
      zb_text_put(spare, s->s + at, (size_t)(found - s->s) - at);
      zb_text_put(spare, pair[i][1], strlen(pair[i][1]));
      at = (size_t)(found - s->s) + n;
    }
    if (!at) continue;
    zb_text_put(spare, s->s + at, s->len - at);
    ZbText other = *s;
    *s = *spare;
    *spare = other;
  }
}

static bool wordpiece(ZtDecoding *d, uint32_t k) {
  ZtStage *x = &d->stage[k];
  const ZtDec *dec = &d->t->dec[k];
  bool continues = x->tokens && zt_starts(x->held.s, x->held.len, dec->text, dec->text_n);
  size_t from = continues ? dec->text_n : 0;
  x->made.len = 0;
  if (x->tokens && !continues) zb_text_put(&x->made, " ", 1);
  zb_text_put(&x->made, x->held.s + from, x->held.len - from);
  if (dec->cleanup) clean_up(&x->made, &x->run);
  return token(d, k + 1, &x->made);
}

static bool take(ZtDecoding *d, uint32_t k, const char *s, size_t n) {
  while (k < d->t->ndec && d->t->dec[k].kind == ZT_DEC_FUSE) k++;
  if (k < d->t->ndec) {
    zb_text_put(&d->stage[k].held, s, n);
    return d->t->dec[k].kind != ZT_DEC_STRIP || strip(d, k, false);
  }
  zb_text_put(d->out, s, n);
  return true;
}

static bool close_by(ZtDecoding *d, uint32_t k) {
  switch (d->t->dec[k].kind) {
  case ZT_DEC_BYTES: return by_bytes(d, k);
  case ZT_DEC_BYTE_FALLBACK: return by_fallback(d, k);
  case ZT_DEC_REPLACE: return replace(d, k);
  case ZT_DEC_FUSE: return true;
  case ZT_DEC_STRIP: return strip(d, k, true) && close(d, k + 1);
  case ZT_DEC_METASPACE: return metaspace(d, k);
  case ZT_DEC_WORDPIECE: return wordpiece(d, k);
  }
  ZB_BUG("decoder %d", d->t->dec[k].kind);
}

static bool close(ZtDecoding *d, uint32_t k) {
  if (k == d->t->ndec) return true;
  ZtStage *x = &d->stage[k];
  zb_text_put(&x->held, "", 0);
  if (!close_by(d, k)) return false;
  x->held.len = x->cut = 0;
  x->tokens = true;
  return true;
}

static bool end(ZtDecoding *d, uint32_t k) {
  if (k == d->t->ndec) return true;
  ZtDecKind kind = d->t->dec[k].kind;
  if (kind == ZT_DEC_BYTE_FALLBACK && !end_run(d, k)) return false;
  if (kind == ZT_DEC_BYTES && !bytes_go_on(d, k, true)) return false;
  if ((kind == ZT_DEC_BYTES || kind == ZT_DEC_FUSE) && !close(d, k + 1)) return false; /* one token of all */
  return end(d, k + 1);
}

/* ---- ids ---- */
void zt_decoding_begin(ZtDecoding *d, const ZtTokenizer *t, unsigned flags, ZbText *out) {
  if (!d->stage && t->ndec) d->stage = calloc(t->ndec, sizeof *d->stage);
  if (!d->stage && t->ndec) zb_out_of_memory(t->ndec * sizeof *d->stage);
  for (uint32_t i = 0; i < t->ndec; i++) {
    ZtStage *x = &d->stage[i];
    x->held.len = x->run.len = x->grown = x->cut = 0;
    x->tokens = x->broken = false;
  }
  *d = (ZtDecoding){.t = t, .stage = d->stage, .flags = flags, .out = out};
}

void zt_decoding_free(ZtDecoding *d) {
  for (uint32_t i = 0; d->stage && i < d->t->ndec; i++) {
    zb_text_free(&d->stage[i].held);
    zb_text_free(&d->stage[i].run);
    zb_text_free(&d->stage[i].made);
  }
  free(d->stage);
}

ZtToken zt_decoding_token(const ZtTokenizer *t, unsigned flags, uint32_t id) {
  if (id >= t->size || !t->token[id].s || (flags & ZT_SKIP_SPECIAL && zt_special(t, id))) return (ZtToken){0};
  const ZtAdded *added = t->added_at[id] ? &t->added[t->added_at[id] - 1] : NULL;
  return added ? (ZtToken){added->matched, added->matched_n} : t->token[id];
}

bool zt_decoding_put(ZtDecoding *d, ZtCoder *c, uint32_t id) {
  ZtToken s = zt_decoding_token(d->t, d->flags, id);
  if (!s.s) return true;
  d->c = c;
  bool more = d->any;
  d->any = true;
  d->bytes += s.n;
  return (d->t->has_decoder || !more || take(d, 0, " ", 1)) && take(d, 0, s.s, s.n) && close(d, 0);
}

bool zt_decoding_end(ZtDecoding *d, ZtCoder *c) {
  d->c = c;
  return end(d, 0);
}

bool zt_decode(ZtCoder *c, const uint32_t *id, size_t n, unsigned flags, ZbText *out, ZbErr *err) {
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += zt_decoding_token(c->t, flags, id[i]).n;
  c->err = err;
  zt_grow_from(c, bytes);
  zb_text_put(out, "", 0);
  zt_decoding_begin(&c->decoding, c->t, flags, out);
  for (size_t i = 0; i < n; i++)
    if (!zt_decoding_put(&c->decoding, c, id[i])) return false;
  return zt_decoding_end(&c->decoding, c);
}
