/* Log-probabilities as OpenAI's API has them, and names of tokens. */
#include "runtime/exec/serve/room.h"

#include <string.h>

/* ---- tokens ------------------------------------------------------------------------------------------------- */
/* Appends the bytes that a token stands for; where they depend on other tokens, those that it has by itself. */
static void bytes_of(const ZxWords *w, uint32_t id, ZbText *out) {
  size_t before = out->len;
  zb_text_put(out, "", 0);
  if (zt_bytes(w->coder, id, out, NULL) && out->len > before) return;
  out->len = before;
  zt_decode(w->coder, &id, 1, 0, out, NULL);
}

/* Appends a name by which clients tell tokens apart: the text; where that is not UTF-8 its bytes, `bytes:\xf0\x9f`. */
static void name_of(const ZxWords *w, uint32_t id, ZbText *out) {
  ZbText b = {0};
  bytes_of(w, id, &b);
  if (zt_utf8_valid(b.s, b.len) == b.len && !memchr(b.s, 0, b.len)) zb_text_put(out, b.s, b.len);
  else {
    zb_text_add(out, "bytes:");
    for (size_t i = 0; i < b.len; i++) zb_text_add(out, "\\x%02x", (uint8_t)b.s[i]);
  }
  zb_text_free(&b);
}

static uint64_t characters(const char *s, size_t n) {
  uint64_t all = 0;
  for (size_t i = 0; i < n; i++) all += ((uint8_t)s[i] & 0xc0) != 0x80;
  return all;
}

/* ---- log-probabilities ---------------------------------------------------------------------------------------- */
/* Returns what is known of a token; NULL: it is the first of a prompt. */
static const ZxChoice *known(const ZxAnswer *x, uint32_t i) {
  return i >= x->first ? &x->logprob[i - x->first] : NULL;
}

/* Writes the most likely tokens as an object. Of two with one name the second is named by its id: none is lost. */
static void put_top(const ZxWords *w, ZbJson *j, const ZxChoice *c) {
  ZbText names = {0}, name = {0};
  zb_json_object(j, NULL);
  for (uint32_t k = 0; k < c->ntop; k++) {
    name.len = 0;
    name_of(w, c->top[k].id, &name);
    bool twice = false;
    for (size_t at = 0; at < names.len; at += strlen(names.s + at) + 1)
      twice |= !strcmp(names.s + at, name.s ? name.s : "");
    if (twice) {
      name.len = 0;
      zb_text_add(&name, "token_id:%u", c->top[k].id);
    }
    zb_text_put(&names, name.s ? name.s : "", name.len + 1);
    zb_json_key(j, "%s", name.s ? name.s : "");
    zb_json_number(j, NULL, c->top[k].logprob);
  }
  zb_json_end(j);
  zb_text_free(&names);
  zb_text_free(&name);
}

uint64_t zx_put_logprobs(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from, uint64_t offset) {
  uint32_t to = x->n;
  ZbText t = {0};
  zb_json_object(j, "logprobs");
  zb_json_list(j, "tokens");
  for (uint32_t i = from; i < to; i++) {
    t.len = 0;
    name_of(w, x->id[i], &t);
    zb_json_string(j, NULL, t.s ? t.s : "");
  }
  zb_json_end(j);
  zb_json_list(j, "token_logprobs");
  for (uint32_t i = from; i < to; i++)
    if (known(x, i)) zb_json_number(j, NULL, known(x, i)->logprob);
    else zb_json_null(j, NULL);
  zb_json_end(j);
  zb_json_list(j, "top_logprobs");
  for (uint32_t i = from; i < to; i++)
    if (known(x, i)) put_top(w, j, known(x, i));
    else zb_json_null(j, NULL);
  zb_json_end(j);
  zb_json_list(j, "text_offset");
  for (uint32_t i = from; i < to; i++) {
    zb_json_count(j, NULL, offset);
    t.len = 0;
    bytes_of(w, x->id[i], &t);
    offset += characters(t.s, t.len);
  }
  zb_json_end(j);
  zb_json_end(j);
  zb_text_free(&t);
  return offset;
}

static void put_token(const ZxWords *w, ZbJson *j, uint32_t id, double logprob) {
  ZbText t = {0};
  zb_json_object(j, NULL);
  name_of(w, id, &t);
  zb_json_string(j, "token", t.s ? t.s : "");
  zb_json_number(j, "logprob", logprob);
  t.len = 0;
  bytes_of(w, id, &t);
  zb_json_list(j, "bytes");
  for (size_t i = 0; i < t.len; i++) zb_json_count(j, NULL, (uint8_t)t.s[i]);
  zb_json_end(j);
  zb_text_free(&t);
}

void zx_put_chat_logprobs(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from) {
  uint32_t to = x->n;
  zb_json_object(j, "logprobs");
  zb_json_list(j, "content");
  for (uint32_t i = from; i < to; i++) {
    const ZxChoice *c = known(x, i);
    if (!c) continue;
    put_token(w, j, x->id[i], c->logprob);
    zb_json_list(j, "top_logprobs");
    for (uint32_t k = 0; k < c->ntop; k++) {
      put_token(w, j, c->top[k].id, c->top[k].logprob);
      zb_json_end(j);
    }
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_end(j);
}
