/* Calls of tools in an answer. See calls.h. */
#include "runtime/exec/serve/calls.h"

#include <cjson/cJSON.h>
#include <string.h>

static const char open_mark[] = "<tool_call>", close_mark[] = "</tool_call>", python[] = "<|python_tag|>";

typedef enum { NOT, OPEN /* more must come to tell */, IS } Found;

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static size_t blanks(const char *s, size_t n, size_t at) {
  while (at < n && is_blank(s[at])) at++;
  return at;
}

/* Says whether a mark is at a place. */
static Found mark_at(const char *s, size_t n, size_t at, const char *mark) {
  size_t all = strlen(mark), have = n - at < all ? n - at : all;
  if (memcmp(s + at, mark, have) != 0) return NOT;
  return have == all ? IS : OPEN;
}

/* ---- JSON ----------------------------------------------------------------------------------------------------- */
/* Finds the end of a string, from its quote on. */
static Found string_end(const char *s, size_t n, size_t *at) {
  for (size_t i = *at + 1; i < n; i++) {
    if ((uint8_t)s[i] < 0x20) return NOT;
    if (s[i] == '\\') i++;
    else if (s[i] == '"') {
      *at = i + 1;
      return IS;
    }
  }
  return OPEN;
}

/* Finds the end of a value: an object, a list, a string, or a word. What is between brackets need only look like JSON;
 * whoever takes the call reads it for good. */
static Found value_end(const char *s, size_t n, size_t *at) {
  int depth = 0;
  size_t i = *at;
  Found f;
  while (i < n) {
    if (s[i] == '"') {
      if ((f = string_end(s, n, &i)) != IS) return f;
    } else if (s[i] == '{' || s[i] == '[') depth++, i++;
    else if (s[i] == '}' || s[i] == ']') {
      if (!depth--) return NOT;
      i++;
    } else if (is_blank(s[i]) || strchr(",:-+.0123456789eEtrufalsn", s[i])) {
      i++;
      continue; /* no value ends here unless it is a word, which calls do not have */
    } else return NOT;
    if (!depth) {
      *at = i;
      return IS;
    }
  }
  return OPEN;
}

/* Reads a member "KEY": value; *at goes behind it. */
static Found member(const char *s, size_t n, size_t *at, size_t *key, size_t *nkey, size_t *value) {
  size_t i = blanks(s, n, *at);
  Found f;
  if (i == n) return OPEN;
  if (s[i] != '"') return NOT;
  *key = i + 1;
  if ((f = string_end(s, n, &i)) != IS) return f;
  *nkey = i - 1 - *key;
  i = blanks(s, n, i);
  if (i == n) return OPEN;
  if (s[i] != ':') return NOT;
  i = blanks(s, n, i + 1);
  if (i == n) return OPEN;
  *value = i;
  if (s[i] != '"' && s[i] != '{') return NOT; /* a call has no others */
  if ((f = value_end(s, n, &i)) != IS) return f;
  *at = i;
  return IS;
}

static bool named(const char *s, size_t key, size_t nkey, const char *name) {
  return nkey == strlen(name) && !memcmp(s + key, name, nkey);
}

/* Reads the object of a call; *at goes behind it. A call has a name, and arguments that are JSON. */
static Found call_at(const char *s, size_t n, size_t *at, ZxCall *c) {
  size_t i = *at, key, nkey, value;
  Found f;
  ZbErr why;
  *c = (ZxCall){0};
  if (i == n) return OPEN;
  if (s[i++] != '{') return NOT;
  for (;;) {
    if ((f = member(s, n, &i, &key, &nkey, &value)) != IS) return f;
    if (named(s, key, nkey, "name") && s[value] == '"') c->name = value + 1, c->nname = i - value - 2;
    else if ((named(s, key, nkey, "arguments") || named(s, key, nkey, "parameters")) && s[value] == '{')
      c->arguments = value, c->narguments = i - value;
    else if (!named(s, key, nkey, "type") && !named(s, key, nkey, "id")) return NOT;
    i = blanks(s, n, i);
    if (i == n) return OPEN;
    if (s[i++] == '}') break;
    if (s[i - 1] != ',') return NOT;
  }
  if (!c->nname || !c->narguments || memchr(s + c->name, '\\', c->nname)) return NOT;
  cJSON *o = zb_json_parse(s + c->arguments, c->narguments, ZB_JSON_ANY, &why);
  cJSON_Delete(o);
  *at = i;
  return o ? IS : NOT;
}

/* ---- an answer ------------------------------------------------------------------------------------------------- */
/* Looks for a call whose mark or brace is at a place; *at goes behind it and what closes it. `bare`: it may stand
 * without a mark. `more`: what closes it may still come. */
static Found look(const char *s, size_t n, size_t *at, bool bare, ZxCall *c, bool *more) {
  size_t i = *at, after;
  Found f = mark_at(s, n, i, open_mark);
  const char *close = close_mark;
  if (f == IS) i = blanks(s, n, i + strlen(open_mark));
  else if (f == NOT && bare) {
    close = ";";
    f = mark_at(s, n, i, python);
    if (f == IS) i = blanks(s, n, i + strlen(python));
    else if (f == NOT && s[i] == '{') f = IS;
  }
  if (f != IS || (f = call_at(s, n, &i, c)) != IS) return f;
  after = blanks(s, n, i);
  f = after < n ? mark_at(s, n, after, close) : OPEN;
  *more = f == OPEN;
  *at = f == IS ? after + strlen(close) : i;
  return IS;
}

void zx_calls_read(const char *text, size_t n, bool whole, uint32_t most, ZxCalls *out) {
  size_t at = 0, from; /* text[from..at) is content that no call has cut yet */
  bool more = false;
  *out = (ZxCalls){0};
  for (from = at; at < n && !more;) {
    size_t begin = at;
    bool bare = !out->content.len && blanks(text, at, from) == at; /* nothing but blanks and calls before */
    Found f = out->ncalls < most ? look(text, n, &at, bare, &out->call[out->ncalls], &more) : NOT;
    if (f == OPEN && !whole) break;
    if (f != IS) {
      at++;
      continue;
    }
    size_t end = begin;
    while (end > from && is_blank(text[end - 1])) end--;
    zb_text_put(&out->content, text + from, end - from);
    out->ncalls++;
    if (most == 1) return;
    from = at = blanks(text, n, at);
  }
  /* Blanks before a call that may still come are not sure. */
  if (whole && !more) at = n;
  if (more) return;
  while (at > from && is_blank(text[at - 1]) && !(whole && !out->ncalls)) at--;
  zb_text_put(&out->content, text + from, at - from);
}
