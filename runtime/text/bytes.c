/* The bytes that each token adds to a text, where they are its own: decoders that look at one token, or one byte, at
 * a time. What they do at the beginning and the end of a text is left out. */
#define _GNU_SOURCE
#include "runtime/text/room.h"

/* Says whether what a decoder gives is of one token alone. Behind Fuse all is one token: only Strip, which then is of the
 * text's beginning and end, leaves the middle as it is. */
static bool by_token(const ZtTokenizer *t) {
  bool fused = false;
  for (uint32_t k = 0; k < t->ndec; k++) {
    ZtDecKind kind = t->dec[k].kind;
    if (kind == ZT_DEC_WORDPIECE || (fused && kind != ZT_DEC_STRIP && kind != ZT_DEC_FUSE)) return false;
    fused |= kind == ZT_DEC_FUSE || kind == ZT_DEC_BYTES;
  }
  return t->has_decoder;
}

/* Takes the bytes of a token's characters; one that stands for none leaves it as it is. */
static void by_bytes(ZbText *s) {
  size_t n = 0, bytes;
  for (size_t at = 0; at < s->len; at += bytes)
    if (zt_char_byte(zt_char(s->s + at, &bytes)) < 0) return;
  for (size_t at = 0; at < s->len; at += bytes) s->s[n++] = (char)zt_char_byte(zt_char(s->s + at, &bytes));
  s->len = n;
}

/* Puts `text` in the place of what is found. */
static bool replace(ZtCoder *c, const ZtDec *d, ZbText *s, ZbText *made, ZbErr *err) {
  size_t at = 0, begin, end, n = s->len;
  const char *found = NULL;
  int is = 0;
  made->len = 0;
  for (;;) {
    if (d->kind == ZT_DEC_METASPACE) {
      found = memmem(s->s + at, n - at, d->text, d->text_n);
      begin = found ? (size_t)(found - s->s) : n;
      end = begin + d->text_n;
      is = found != NULL;
    } else is = zt_match(d->pattern, c->matcher, s->s, n, at, at, &begin, &end, err);
    if (is <= 0) break;
    zb_text_put(made, s->s + at, begin - at);
    if (d->kind == ZT_DEC_METASPACE) zb_text_put(made, " ", 1);
    else zb_text_put(made, d->text, d->text_n);
    at = end;
    if (made->len > ZT_GROWTH * s->len + ZT_GROWTH_MORE)
      return zb_fail(err, NULL, "a token's text grows too long");
  }
  if (is < 0) return false;
  zb_text_put(made, s->s + at, n - at);
  ZbText other = *s;
  *s = *made;
  *made = other;
  return true;
}

static void strip(const ZtDec *d, ZbText *s) {
  size_t from = 0, n = s->len, m = d->text_n;
  for (uint32_t i = 0; i < d->start && n - from >= m && !memcmp(s->s + from, d->text, m); i++) from += m;
  for (uint32_t i = 0; i < d->stop && n - from >= m && !memcmp(s->s + n - m, d->text, m); i++) n -= m;
  memmove(s->s, s->s + from, n - from);
  s->len = n - from;
}

bool zt_bytes(ZtCoder *c, uint32_t id, ZbText *out, ZbErr *err) {
  const ZtTokenizer *t = c->t;
  if (!by_token(t))
    return zb_fail(err, NULL,
                   "the texts of this tokenizer's tokens depend on each other (decoder WordPiece, or none)");
  ZtToken token = zt_decoding_token(t, ZT_SKIP_SPECIAL, id);
  ZbText s = {0}, made = {0};
  zt_grow_from(c, token.n);
  zb_text_put(&s, token.s ? token.s : "", token.n);
  bool ok = true, byte = false, fused = false;
  for (uint32_t k = 0; k < t->ndec && ok && !byte && token.s; k++) {
    const ZtDec *d = &t->dec[k];
    zb_text_put(&s, "", 0);
    if (d->kind == ZT_DEC_BYTES) by_bytes(&s);
    else if (d->kind == ZT_DEC_BYTE_FALLBACK) {
      int b = zt_fallback_byte(s.s, s.len);
      byte = b >= 0; /* what follows is of characters */
      if (byte) *s.s = (char)b, s.len = 1;
    } else if (d->kind == ZT_DEC_STRIP && !fused) strip(d, &s);
    else if (d->kind == ZT_DEC_REPLACE || d->kind == ZT_DEC_METASPACE) ok = replace(c, d, &s, &made, err);
    fused |= d->kind == ZT_DEC_FUSE || d->kind == ZT_DEC_BYTES;
  }
  if (ok) zb_text_put(out, s.s, s.len);
  zb_text_free(&s);
  zb_text_free(&made);
  return ok;
}
