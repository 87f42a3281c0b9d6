/* Decoding as it is said: each decoder over the whole row of tokens, one after the other. */
#define _GNU_SOURCE
#include "tests/unit/text/plain.h"

#include "runtime/text/room.h"

#include <criterion/criterion.h>
#include <stdlib.h>

typedef struct { /* tokens in a row, as texts: what a decoder takes and gives */
  ZbText bytes;
  size_t *end, n, cap;
} Row;

/* ---- rows of tokens ---- */
static void clear(Row *r) { r->bytes.len = r->n = 0; }
static void put(Row *r, const char *s, size_t n) { zb_text_put(&r->bytes, s, n); }
static void end_token(Row *r) {
  if (r->n == r->cap) r->end = zt_room(r->end, r->n, 1, sizeof *r->end, &r->cap);
  r->end[r->n++] = r->bytes.len;
}
static const char *token_of(const Row *r, size_t i, size_t *n) {
  size_t begin = i ? r->end[i - 1] : 0;
  *n = r->end[i] - begin;
  return r->bytes.s + begin;
}

/* ---- decoders ---- */
static void by_bytes(const Row *in, Row *out) {
  ZbText raw = {0};
  for (size_t i = 0; i < in->n; i++) {
    size_t n, bytes, begin = raw.len;
    const char *s = token_of(in, i, &n);
    for (size_t at = 0; at < n; at += bytes) {
      int byte = zt_char_byte(zt_char(s + at, &bytes));
      if (byte < 0) { /* then the token is text as it is */
        raw.len = begin;
        zb_text_put(&raw, s, n);
        break;
      }
      char b = (char)byte;
      zb_text_put(&raw, &b, 1);
    }
  }
  if (raw.len) zt_utf8_repair(raw.s, raw.len, &out->bytes);
  zb_text_free(&raw);
  end_token(out);
}

/* The byte of <0xHH>; -1: it is another token. */
static int fallback_byte(const char *s, size_t n) {
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

static void end_run(ZbText *run, Row *out) {
  if (!run->len) return;
  if (zt_utf8_valid(run->s, run->len) == run->len) {
    put(out, run->s, run->len);
    end_token(out);
  } else
    for (size_t i = 0; i < run->len; i++) {
      put(out, "\xef\xbf\xbd", 3);
      end_token(out);
    }
  run->len = 0;
}

static void by_fallback(const Row *in, Row *out) {
  ZbText run = {0};
  for (size_t i = 0; i < in->n; i++) {
    size_t n;
    const char *s = token_of(in, i, &n);
    int byte = fallback_byte(s, n);
    char b = (char)byte;
    if (byte >= 0) {
      zb_text_put(&run, &b, 1);
      continue;
    }
    end_run(&run, out);
    put(out, s, n);
    end_token(out);
  }
  end_run(&run, out);
  zb_text_free(&run);
}

static void replace(const ZtDec *d, const Row *in, Row *out) {
  ZtMatcher *m = zt_matcher_new();
  for (size_t i = 0; i < in->n; i++) {
    size_t n, at = 0, begin, end;
    const char *s = token_of(in, i, &n);
    int found;
    while ((found = zt_match(d->pattern, m, s, n, at, at, &begin, &end, NULL)) > 0) {
      put(out, s + at, begin - at);
      put(out, d->text, d->text_n);
      at = end;
    }
    cr_assert(found == 0);
    put(out, s + at, n - at);
    end_token(out);
  }
  zt_matcher_free(m);
}

static void strip(const ZtDec *d, const Row *in, Row *out) {
  for (size_t i = 0; i < in->n; i++) {
    size_t n;
    const char *s = token_of(in, i, &n);
    for (uint32_t k = 0; k < d->start && zt_starts(s, n, d->text, d->text_n); k++) {
      s += d->text_n;
      n -= d->text_n;
    }
    for (uint32_t k = 0; k < d->stop && n >= d->text_n && !memcmp(s + n - d->text_n, d->text, d->text_n); k++)
      n -= d->text_n;
    put(out, s, n);
    end_token(out);
  }
}

static void metaspace(const ZtDec *d, const Row *in, Row *out) {
  for (size_t i = 0; i < in->n; i++) {
    size_t n, at = 0;
    const char *s = token_of(in, i, &n), *found;
    while ((found = memmem(s + at, n - at, d->text, d->text_n))) {
      put(out, s + at, (size_t)(found - s) - at);
      if (i || d->never) put(out, " ", 1);
      at = (size_t)(found - s) + d->text_n;
    }
    put(out, s + at, n - at);
    end_token(out);
  }
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

static void wordpiece(const ZtDec *d, const Row *in, Row *out) {
  ZbText text = {0}, spare = {0};
  for (size_t i = 0; i < in->n; i++) {
    size_t n;
    const char *s = token_of(in, i, &n);
    text.len = 0;
    bool continues = i && zt_starts(s, n, d->text, d->text_n);
    if (i && !continues) zb_text_put(&text, " ", 1);
    if (continues) zb_text_put(&text, s + d->text_n, n - d->text_n);
    else zb_text_put(&text, s, n);
    if (d->cleanup) clean_up(&text, &spare);
    put(out, text.s, text.len);
    end_token(out);
  }
  zb_text_free(&text);
  zb_text_free(&spare);
}

static void one(const ZtDec *d, const Row *in, Row *out) {
  clear(out);
  put(out, "", 0);
  switch (d->kind) {
  case ZT_DEC_BYTES: by_bytes(in, out); break;
  case ZT_DEC_BYTE_FALLBACK: by_fallback(in, out); break;
  case ZT_DEC_REPLACE: replace(d, in, out); break;
  case ZT_DEC_FUSE:
    put(out, in->bytes.s, in->bytes.len);
    end_token(out);
    break;
  case ZT_DEC_STRIP: strip(d, in, out); break;
  case ZT_DEC_METASPACE: metaspace(d, in, out); break;
  case ZT_DEC_WORDPIECE: wordpiece(d, in, out); break;
  }
}

void plain_decode(const ZtTokenizer *t, const uint32_t *id, size_t n, unsigned flags, ZbText *out) {
  Row row[2] = {0}, *in = &row[0], *to = &row[1];
  put(in, "", 0);
  for (size_t i = 0; i < n; i++) {
    if (id[i] >= t->size || !t->token[id[i]].s || (flags & ZT_SKIP_SPECIAL && zt_special(t, id[i]))) continue;
    uint32_t at = t->added_at[id[i]];
    if (!t->has_decoder && in->n) put(in, " ", 1);
    if (at) put(in, t->added[at - 1].matched, t->added[at - 1].matched_n);
    else put(in, t->token[id[i]].s, t->token[id[i]].n);
    end_token(in);
  }
  for (uint32_t i = 0; i < t->ndec; i++) {
    one(&t->dec[i], in, to);
    Row *other = in;
    in = to;
    to = other;
  }
  out->len = 0;
  zb_text_put(out, in->bytes.s, in->bytes.len);
  for (int i = 0; i < 2; i++) {
    zb_text_free(&row[i].bytes);
    free(row[i].end);
  }
}
