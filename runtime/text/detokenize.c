/* Text as tokens come: what the decoders are sure of, without the prompt, up to a stop string.
 *
 *   decoders  -> sure -> without the prompt -> text, in which stop strings are looked for -> pieces
 *
 * Stop strings are found by the automaton of Knuth, Morris and Pratt (1977), one for each: it knows how
 * much of its string the text ends with, and that much is not sent. */
#include "runtime/text/room.h"

#include <stdlib.h>

typedef struct {
  size_t at, n;   /* its bytes in `stop_bytes`, and its places in `back` */
  size_t matched; /* bytes of it that the text ends with */
} Stop;

struct ZtDetokenizer {
  const ZtTokenizer *t;
  ZtDecoding decoding;
  ZbText sure;    /* what the decoders gave for the latest token */
  ZbText prompt;  /* the end of the prompt's text that was not yet sure */
  size_t passed;  /* bytes of it that came again */
  bool in_prompt; /* more of it may come */
  bool echo;
  ZbText text;  /* of the answer; with echo of the prompt, too */
  size_t given; /* bytes of it that the caller has */
  bool ended;
  uint32_t tokens, min_tokens;
  Stop stop[ZT_STOPS];
  uint32_t nstop;
  int stopped; /* by which; -1: by none */
  ZbText stop_bytes;
  uint32_t *back; /* for each byte of the strings: how much of its string ends there that it begins with */
  size_t back_cap;
};

ZtDetokenizer *zt_detokenizer_new(const ZtTokenizer *t) {
  ZtDetokenizer *d = calloc(1, sizeof *d);
  if (!d) zb_out_of_memory(sizeof *d);
  d->t = t;
  return d;
}

void zt_detokenizer_free(ZtDetokenizer *d) {
  if (!d) return;
  zt_decoding_free(&d->decoding);
  zb_text_free(&d->sure);
  zb_text_free(&d->prompt);
  zb_text_free(&d->text);
  zb_text_free(&d->stop_bytes);
  free(d->back);
  free(d);
}

/* ---- stop strings ---- */
static size_t step(const char *s, const uint32_t *back, size_t matched, char c) {
  while (matched && s[matched] != c) matched = back[matched - 1];
  return matched + (s[matched] == c);
}

static bool add_stop(ZtDetokenizer *d, const char *s, ZbErr *err) {
  size_t n = strlen(s), at = d->stop_bytes.len;
  static const char help[] = "a stop string has a character at least, in UTF-8";
  if (!n) return zb_fail(err, help, "a stop string is empty");
  if (n > ZT_STOP_LIMIT)
    return zb_fail(err, help, "a stop string of %zu bytes; %d are the limit", n, ZT_STOP_LIMIT);
  if (zt_utf8_valid(s, n) < n) return zb_fail(err, help, "the stop string %s is not UTF-8", zb_show(s));
  zb_text_put(&d->stop_bytes, s, n);
  d->back = zt_room(d->back, at, n, sizeof *d->back, &d->back_cap);
  uint32_t *back = d->back + at;
  back[0] = 0;
  for (size_t i = 1; i < n; i++) back[i] = (uint32_t)step(s, back, back[i - 1], s[i]);
  d->stop[d->nstop++] = (Stop){.at = at, .n = n};
  return true;
}

/* Returns the stop string with which the text ends once `c` is in it, the longest of several; -1: none. */
static int find_stop(ZtDetokenizer *d, char c) {
  int found = -1;
  for (uint32_t i = 0; i < d->nstop; i++) {
    Stop *x = &d->stop[i];
    const char *s = d->stop_bytes.s + x->at;
    const uint32_t *back = d->back + x->at;
    x->matched = step(s, back, x->matched, c);
    if (x->matched < x->n) continue;
    x->matched = back[x->n - 1];
    if (d->tokens > d->min_tokens && (found < 0 || x->n > d->stop[found].n)) found = (int)i;
  }
  return found;
}

/* Counts the bytes of the text that could begin a stop string. */
static size_t held(const ZtDetokenizer *d) {
  size_t most = 0;
  for (uint32_t i = 0; i < d->nstop && !d->ended && d->stopped < 0; i++)
    if (d->stop[i].matched > most) most = d->stop[i].matched;
  return most;
}

/* ---- the answer ---- */
static void answer(ZtDetokenizer *d, const char *s, size_t n) {
  for (size_t i = 0; i < n && d->stopped < 0; i++) {
    zb_text_put(&d->text, &s[i], 1);
    if ((d->stopped = find_stop(d, s[i])) >= 0) d->text.len -= d->stop[d->stopped].n;
  }
}

/* Takes what has become sure: it is the prompt's while its characters are. */
static void go_on(ZtDetokenizer *d) {
  const char *s = d->sure.s;
  size_t n = d->sure.len, at = 0;
  while (d->in_prompt && at < n) {
    size_t bytes = zt_char_bytes((uint8_t)s[at]);
    d->in_prompt = zt_starts(d->prompt.s + d->passed, d->prompt.len - d->passed, s + at, bytes);
    if (!d->in_prompt) break;
    d->passed += bytes;
    at += bytes;
  }
  if (d->echo) zb_text_put(&d->text, s, at);
  answer(d, s + at, n - at);
  d->sure.len = 0;
}

/* The prompt's tokens; what of its text is not sure yet is found by ending it. */
static bool take_prompt(ZtDetokenizer *d, ZtCoder *c, const ZtWriting *w, const uint32_t *id, size_t n) {
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += zt_decoding_token(d->t, w->flags, id[i]).n;
  zt_grow_from(c, bytes);
  for (size_t i = 0; i < n; i++)
    if (!zt_decoding_put(&d->decoding, c, id[i])) return false;
  if (w->flags & ZT_ECHO) zb_text_put(&d->text, d->sure.s, d->sure.len);
  ZbErr *err = c->err;
  size_t sure = d->sure.len;
  d->prompt.len = d->sure.len = 0;
  if (!zt_decode(c, id, n, w->flags, &d->prompt, err)) return false;
  ZB_ASSERT(d->prompt.len >= sure);
  d->passed = sure;
  return true;
}

bool zt_detokenize_begin(ZtDetokenizer *d, ZtCoder *c, const ZtWriting *w, const uint32_t *prompt, size_t n,
                         ZbErr *err) {
  ZB_ASSERT(c->t == d->t);
  d->text.len = d->sure.len = d->given = d->nstop = d->tokens = d->stop_bytes.len = 0;
  zb_text_put(&d->text, "", 0);
  d->stopped = -1;
  d->in_prompt = true;
  d->ended = false;
  d->echo = w->flags & ZT_ECHO;
  d->min_tokens = w->min_tokens;
  if (w->nstop > ZT_STOPS) return zb_fail(err, NULL, "%u stop strings; %d are the limit", w->nstop, ZT_STOPS);
  for (uint32_t i = 0; i < w->nstop; i++)
    if (!add_stop(d, w->stop[i], err)) return false;
  c->err = err;
  zt_decoding_begin(&d->decoding, d->t, w->flags, &d->sure);
  return take_prompt(d, c, w, prompt, n);
}

bool zt_detokenize(ZtDetokenizer *d, ZtCoder *c, uint32_t id, ZbErr *err) {
  if (d->ended || d->stopped >= 0) return true;
  c->err = err;
  zt_grow_from(c, d->decoding.bytes + zt_decoding_token(d->t, d->decoding.flags, id).n);
  d->tokens++;
  if (!zt_decoding_put(&d->decoding, c, id)) return false;
  go_on(d);
  return true;
}

bool zt_detokenize_end(ZtDetokenizer *d, ZtCoder *c, ZbErr *err) {
  if (d->ended || d->stopped >= 0) return true;
  c->err = err;
  zt_grow_from(c, d->decoding.bytes);
  if (!zt_decoding_end(&d->decoding, c)) return false;
  go_on(d);
  d->ended = true;
  return true;
}

const char *zt_detokenized(ZtDetokenizer *d, size_t *n) {
  const char *s = d->text.s + d->given;
  *n = d->text.len - held(d) - d->given;
  d->given += *n;
  return s;
}

const char *zt_detokenized_text(const ZtDetokenizer *d, size_t *n) {
  *n = d->text.len - held(d);
  return d->text.s;
}

int zt_detokenizer_stopped(const ZtDetokenizer *d) { return d->stopped; }
