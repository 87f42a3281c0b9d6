/* One field of a line of JSON (RFC 8259), found without a tree: the line is checked from its first byte to
 * its last, and only the field's text is copied. */
#include "runtime/zdata/zdata.h"

#include <string.h>

enum { DEPTH = 1000 /* of arrays and objects within each other */ };

typedef struct {
  const char *s, *end;
  ZbText *out; /* where a string goes; NULL: nowhere */
  int depth;
  uint64_t replaced;
  const char *why; /* of the first mistake */
} Json;

static bool wrong(Json *j, const char *why) {
  if (!j->why) j->why = why;
  return false;
}

static void blanks(Json *j) {
  while (j->s < j->end && (*j->s == ' ' || *j->s == '\t' || *j->s == '\n' || *j->s == '\r')) j->s++;
}

static bool next_is(Json *j, char c) {
  blanks(j);
  if (j->s == j->end || *j->s != c) return false;
  j->s++;
  return true;
}

/* ---- strings ---- */
static void put(Json *j, const char *s, size_t n) {
  if (j->out && n) zb_text_put(j->out, s, n);
}

static void put_char(Json *j, uint32_t c) {
  char u[4];
  put(j, u, zb_utf8(u, c));
}

static bool hex4(Json *j, uint32_t *out) {
  static const char digits[] = "0123456789abcdef";
  *out = 0;
  for (int i = 0; i < 4; i++, j->s++) {
    const char *at = j->s < j->end && *j->s ? strchr(digits, *j->s | (*j->s >= 'A' ? 32 : 0)) : NULL;
    if (!at) return wrong(j, "\\u is not followed by four hexadecimal digits");
    *out = *out << 4 | (uint32_t)(at - digits);
  }
  return true;
}

/* A half of a surrogate pair without the other is no character: U+FFFD. */
static bool unicode(Json *j) {
  uint32_t c, low;
  if (!hex4(j, &c)) return false;
  if (c >= 0xd800 && c < 0xdc00 && j->end - j->s >= 2 && j->s[0] == '\\' && j->s[1] == 'u') {
    const char *here = j->s;
    j->s += 2;
    if (!hex4(j, &low)) return false;
    if (low >= 0xdc00 && low < 0xe000)
      return put_char(j, 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00))), true;
    j->s = here;
  }
  if (c >= 0xd800 && c < 0xe000) {
    c = 0xfffd;
    j->replaced += j->out != NULL;
  }
  put_char(j, c);
  return true;
}

/* After the opening quote. */
static bool string(Json *j) {
  static const char escapes[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
  for (;;) {
    const char *from = j->s;
    while (j->s < j->end && *j->s != '"' && *j->s != '\\' && (uint8_t)*j->s >= 32) j->s++;
    put(j, from, (size_t)(j->s - from));
    if (j->s == j->end) return wrong(j, "a string is not closed");
    char c = *j->s++;
    if (c == '"') return true;
    if (c != '\\') return wrong(j, "a control character in a string");
    if (j->s == j->end) return wrong(j, "a string is not closed");
    c = *j->s++;
    const char *at = c ? strchr(escapes, c) : NULL;
    if (at) put(j, &means[at - escapes], 1);
    else if (c != 'u') return wrong(j, "an unknown escape in a string");
    else if (!unicode(j)) return false;
  }
}

/* ---- values ---- */
static bool digits(Json *j) {
  const char *from = j->s;
  while (j->s < j->end && *j->s >= '0' && *j->s <= '9') j->s++;
  return j->s > from;
}

static bool number(Json *j) {
  if (*j->s == '-') j->s++;
  const char *from = j->s;
  if (!digits(j) || (*from == '0' && j->s > from + 1))
    return wrong(j, "a value is neither text, number, list nor object");
  if (j->s < j->end && *j->s == '.') {
    j->s++;
    if (!digits(j)) return wrong(j, "a number ends too early");
  }
  if (j->s < j->end && (*j->s == 'e' || *j->s == 'E')) {
    j->s++;
    if (j->s < j->end && (*j->s == '+' || *j->s == '-')) j->s++;
    if (!digits(j)) return wrong(j, "a number ends too early");
  }
  return true;
}

static bool word(Json *j) {
  static const char *const words[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++) {
    size_t n = strlen(words[i]);
    if ((size_t)(j->end - j->s) < n || strncmp(j->s, words[i], n)) continue;
    j->s += n;
    return true;
  }
  return false;
}

static bool value(Json *j);

/* After the opening brace or bracket. */
static bool members(Json *j, bool object) {
  char close = object ? '}' : ']';
  if (++j->depth > DEPTH) return wrong(j, "lists within lists, too deep");
  if (!next_is(j, close)) do {
      if (object && !(next_is(j, '"') && string(j) && next_is(j, ':')))
        return wrong(j, "an object's name is missing");
      if (!value(j) || next_is(j, close)) break;
    } while (next_is(j, ',') || wrong(j, "a comma or an end is missing"));
  j->depth--;
  return !j->why;
}

/* A value that is not wanted. */
static bool value(Json *j) {
  ZbText *out = j->out;
  j->out = NULL;
  blanks(j);
  bool ok = j->s < j->end || wrong(j, "it ends too early");
  if (ok && !word(j)) {
    char c = *j->s;
    if (c == '"') j->s++, ok = string(j);
    else if (c == '{' || c == '[') j->s++, ok = members(j, c == '{');
    else ok = number(j);
  }
  j->out = out;
  return ok;
}

/* The next name of the object, and what it names; the latest of one name counts. */
static bool member(Json *j, const char *field, ZbText *name, ZbText *text, bool *found) {
  uint64_t before = j->replaced;
  name->len = 0;
  j->out = name;
  if (!(next_is(j, '"') && string(j) && next_is(j, ':'))) return wrong(j, "an object's name is missing");
  j->out = NULL;
  j->replaced = before;
  blanks(j);
  if (name->len != strlen(field) || memcmp(name->s ? name->s : "", field, name->len)) return value(j);
  if (j->s == j->end || *j->s != '"') {
    if (!value(j)) return false;
    return wrong(j, "the field is not text");
  }
  j->s++;
  text->len = 0;
  j->out = text;
  j->replaced = 0;
  *found = true;
  return string(j);
}

bool zd_json_names(const char *line, size_t n, ZbText *list, ZbText *text) {
  enum { MOST = 8, SHOWN = 40 };
  Json j = {.s = line, .end = line + n};
  ZbText name = {0};
  bool ok = next_is(&j, '{');
  list->len = text->len = 0;
  zb_text_add(list, "%s", "");
  zb_text_add(text, "%s", "");
  if (ok && !next_is(&j, '}'))
    for (int i = 0; ok; i++) {
      name.len = 0;
      j.out = &name;
      ok = next_is(&j, '"') && string(&j) && next_is(&j, ':');
      j.out = NULL;
      blanks(&j);
      bool is_text = ok && j.s < j.end && *j.s == '"';
      const char *shown = zb_show_n(name.s ? name.s : "", name.len < SHOWN ? name.len : SHOWN);
      if (is_text && name.len && !text->len) zb_text_put(text, name.s, name.len);
      if (ok && i < MOST) zb_text_add(list, "%s'%s'%s", i ? ", " : "", shown, is_text ? " (text)" : "");
      if (ok && i == MOST) zb_text_add(list, ", ...");
      ok = ok && value(&j);
      if (ok && next_is(&j, '}')) break;
      ok = ok && next_is(&j, ',');
    }
  blanks(&j);
  zb_text_free(&name);
  return ok && j.s == j.end;
}

bool zd_json_field(const char *line, size_t n, const char *field, ZbText *text, uint64_t *replaced,
                   const char **why) {
  Json j = {.s = line, .end = line + n};
  ZbText name = {0};
  bool found = false, ok = true;
  text->len = 0;
  if (!next_is(&j, '{')) ok = wrong(&j, "it is not a JSON object");
  if (ok && !next_is(&j, '}')) do {
      ok = member(&j, field, &name, text, &found);
      if (ok && next_is(&j, '}')) break;
    } while (ok && (ok = next_is(&j, ',') || wrong(&j, "a comma or an end is missing")));
  blanks(&j);
  if (ok && j.s != j.end) ok = wrong(&j, "something follows the object");
  if (ok && !found) ok = wrong(&j, "it has no such field");
  zb_text_free(&name);
  *replaced += ok ? j.replaced : 0;
  *why = j.why;
  return ok;
}
