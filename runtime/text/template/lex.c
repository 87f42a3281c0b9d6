/* A template's text becomes lexemes, with white space as transformers has it: `trim_blocks` and
 * `lstrip_blocks`. */
#include "runtime/text/template/inside.h"

#include <errno.h>
#include <stdlib.h>

typedef struct {
  ZbArena *a;
  const char *s, *name;
  size_t n, at;
  uint32_t line;
  bool line_begins; /* the last lexeme ended with a line */
  ZtLexeme *out;
  uint32_t nout;
  ZbErr *err;
} Lexer;

bool zt_blank(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

static bool fail(Lexer *x, uint32_t line, const char *what) {
  return zb_fail(x->err, NULL, "%s:%u: %s", zb_show(x->name), line, what);
}

static ZtLexeme *push(Lexer *x, ZtLexKind kind, const char *s, size_t n) {
  ZtLexeme l = {.kind = kind, .line = x->line, .s = zb_strndup(x->a, s, n), .n = n};
  ZB_PUSH(x->a, x->out, x->nout, l);
  return &x->out[x->nout - 1];
}

/* Goes on to `to`, counting lines. */
static void go(Lexer *x, size_t to) {
  for (; x->at < to; x->at++) x->line += x->s[x->at] == '\n';
}

static size_t past_blanks(const Lexer *x, size_t at) {
  size_t bytes;
  while (at < x->n && zt_blank(zt_char(x->s + at, &bytes))) at += bytes;
  return at;
}

static bool starts(const Lexer *x, size_t at, const char *with) {
  return zt_starts(x->s + at, x->n - at, with, strlen(with));
}

/* ---- text between tags ----------------------------------------------------------------------- */
/* The end of text that stands before a tag: "{%-" takes the blanks before it, and a tag other than "{{"
 * that is the first of its line those of the line. */
static size_t text_end(const Lexer *x, size_t begin, size_t end, char kind, char sign) {
  if (sign == '-') {
    size_t bytes;
    while (end > begin) {
      size_t before = zt_char_before(x->s, end);
      if (!zt_blank(zt_char(x->s + before, &bytes))) break;
      end = before;
    }
    return end;
  }
  if (sign == '+' || kind == '{') return end;
  size_t line = end;
  while (line > begin && x->s[line - 1] != '\n') line--;
  return (line > begin || x->line_begins) && past_blanks(x, line) >= end ? line : end;
}

/* Behind the end of a tag: "-%}" takes all blanks, "%}" the line's end. */
static void tag_end(Lexer *x, size_t to, char sign, bool line) {
  if (sign == '-') to = past_blanks(x, to);
  else if (line && sign != '+' && to < x->n && x->s[to] == '\n') to++;
  go(x, to);
  x->line_begins = to && x->s[to - 1] == '\n';
}

static char sign_at(const Lexer *x, size_t at) {
  return at < x->n && strchr("-+", x->s[at]) && x->s[at] ? x->s[at] : 0;
}

static bool comment(Lexer *x) {
  for (size_t at = x->at; at + 1 < x->n; at++) {
    if (x->s[at] != '#' || x->s[at + 1] != '}') continue;
    char before = at > x->at ? x->s[at - 1] : 0;
    tag_end(x, at + 2, before == '-' || before == '+' ? before : 0, true);
    return true;
  }
  return fail(x, x->line, "a comment {# without its #}");
}

/* {% raw %} at x->at, which is behind "{%"; its text is pushed. False: it is another tag. */
static bool raw(Lexer *x) {
  size_t at = past_blanks(x, x->at + (sign_at(x, x->at) != 0));
  if (!starts(x, at, "raw")) return false;
  at = past_blanks(x, at + 3);
  char sign = sign_at(x, at);
  if (sign) at++;
  if (!starts(x, at, "%}")) return false;
  uint32_t line = x->line;
  tag_end(x, at + 2, sign, false);
  for (size_t from = x->at; from < x->n; from++) {
    if (!starts(x, from, "{%")) continue;
    char first = sign_at(x, from + 2);
    size_t to = past_blanks(x, from + 2 + (first != 0));
    if (!starts(x, to, "endraw")) continue;
    to = past_blanks(x, to + 6);
    char last = sign_at(x, to);
    if (last) to++;
    if (!starts(x, to, "%}")) continue;
    size_t end = text_end(x, x->at, from, '%', first);
    if (end > x->at) push(x, ZT_LEX_DATA, x->s + x->at, end - x->at);
    tag_end(x, to + 2, last, true);
    return true;
  }
  fail(x, line, "{% raw %} without {% endraw %}");
  x->at = x->n + 1;
  return true;
}

/* ---- inside of tags -------------------------------------------------------------------------- */
static uint32_t hex(const char *s, size_t n) {
  char digits[9] = {0};
  memcpy(digits, s, n);
  for (size_t i = 0; i < n; i++)
    if (!strchr("0123456789abcdefABCDEF", digits[i]) || !digits[i]) return UINT32_MAX;
  return (uint32_t)strtoul(digits, NULL, 16);
}

/* What follows a backslash, as in Python; *at goes behind it. */
static bool escape(Lexer *x, const char *s, size_t n, size_t *at, ZbText *out) {
  static const char names[] = "ntr\\'\"abfv", means[] = "\n\t\r\\'\"\a\b\f\v";
  char c = s[(*at)++];
  const char *simple = c ? strchr(names, c) : NULL;
  if (simple) zb_text_put(out, &means[simple - names], 1);
  else if (c == '\n') return true;
  else if (c >= '0' && c <= '7') {
    uint32_t v = (uint32_t)(c - '0');
    for (int i = 0; i < 2 && *at < n && s[*at] >= '0' && s[*at] <= '7'; i++)
      v = v * 8 + (uint32_t)(s[(*at)++] - '0');
    if (!v) return fail(x, x->line, "a string with the character U+0000");
    zt_text_char(out, v);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    uint32_t v = *at + digits <= n ? hex(s + *at, digits) : UINT32_MAX;
    if (!v || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
      return fail(x, x->line, "a string with \\x, \\u or \\U that names no character");
    zt_text_char(out, v);
    *at += digits;
  } else if (c == 'N') return fail(x, x->line, "a string with \\N{..}, which is not supported");
  else { /* the backslash stays */ zb_text_put(out, "\\", 1);
    zb_text_put(out, &c, 1);
  }
  return true;
}

static bool string(Lexer *x) {
  char quote = x->s[x->at];
  size_t end = x->at + 1;
  while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
  if (end >= x->n) return fail(x, x->line, "a string without its end");
  ZbText t = {0};
  bool ok = true;
  for (size_t at = x->at + 1; ok && at < end;) {
    if (x->s[at] == '\\') {
      at++;
      ok = escape(x, x->s, end, &at, &t);
    } else zb_text_put(&t, x->s + at++, 1);
  }
  if (ok) push(x, ZT_LEX_STRING, t.len ? t.s : "", t.len);
  zb_text_free(&t);
  go(x, end + 1);
  return ok;
}

static bool word(const Lexer *x, size_t at) {
  uint8_t c = at < x->n ? (uint8_t)x->s[at] : ' ';
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c >= 128;
}

static bool digit(const Lexer *x, size_t at) { return at < x->n && x->s[at] >= '0' && x->s[at] <= '9'; }

static size_t digits(const Lexer *x, size_t at) {
  while (digit(x, at) || (at < x->n && x->s[at] == '_' && digit(x, at + 1))) at++;
  return at;
}

static bool number(Lexer *x) {
  size_t begin = x->at, end = digits(x, begin);
  bool real = false;
  int base = 10;
  if (x->s[begin] == '0' && begin + 1 < x->n && x->s[begin + 1] && strchr("xXoObB", x->s[begin + 1])) {
    base = strchr("xX", x->s[begin + 1]) ? 16 : strchr("oO", x->s[begin + 1]) ? 8 : 2;
    for (end = begin + 2; end < x->n && word(x, end); end++) {}
    begin += 2;
  } else {
    if (end < x->n && x->s[end] == '.' && digit(x, end + 1) && !(begin && x->s[begin - 1] == '.')) {
      real = true;
      end = digits(x, end + 1);
    }
    if (end < x->n && (x->s[end] == 'e' || x->s[end] == 'E')) {
      size_t sign = end + 1 + (end + 1 < x->n && (x->s[end + 1] == '-' || x->s[end + 1] == '+'));
      if (digit(x, sign)) {
        real = true;
        end = digits(x, sign);
      }
    }
  }
  ZbText t = {0};
  for (size_t i = begin; i < end; i++)
    if (x->s[i] != '_') zb_text_put(&t, x->s + i, 1);
  char *after;
  errno = 0;
  ZtLexeme *l = push(x, real ? ZT_LEX_FLOAT : ZT_LEX_INT, x->s + x->at, end - x->at);
  if (real) l->f = strtod(t.s, &after);
  else l->i = strtoll(t.len ? t.s : "?", &after, base);
  bool ok = t.len && !*after && (real || !errno);
  zb_text_free(&t);
  x->at = end;
  return ok || fail(x, x->line, "a number that is none, or is above 2^63");
}

static bool sign(Lexer *x, ZbText *open) {
  static const char *const signs[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
    if (!starts(x, x->at, signs[i])) continue;
    char c = *signs[i], want = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (strchr("([{", c)) zb_text_put(open, &c, 1);
    else if (strchr(")]}", c)) {
      if (!open->len || open->s[open->len - 1] != want) return fail(x, x->line, "a bracket that closes none");
      open->len--;
    }
    push(x, ZT_LEX_SIGN, signs[i], strlen(signs[i]));
    x->at += strlen(signs[i]);
    return true;
  }
  return zb_fail(x->err, NULL, "%s:%u: the character '%s' in an expression", zb_show(x->name), x->line,
                 zb_show(zb_strndup(x->a, x->s + x->at, zt_char_bytes((uint8_t)x->s[x->at]))));
}

/* Cuts what is between x->at and the tag's end, `end` with a sign or without. */
static bool inside(Lexer *x, const char *end, ZtLexKind kind) {
  ZbText open = {0}; /* brackets */
  bool ok = true, done = false;
  uint32_t line = x->line;
  while (ok && !done) {
    go(x, past_blanks(x, x->at));
    char s = sign_at(x, x->at);
    if (x->at >= x->n) {
      ok = zb_fail(x->err, NULL, "%s:%u: a tag without its %s", zb_show(x->name), line, end);
    } else if (!open.len && (starts(x, x->at, end) ||
                             (s && (s == '-' || kind == ZT_LEX_BLOCK_END) && starts(x, x->at + 1, end)))) {
      bool with = !starts(x, x->at, end);
      push(x, kind, end, 2);
      tag_end(x, x->at + 2 + with, with ? s : 0, kind == ZT_LEX_BLOCK_END);
      done = true;
    } else if (x->s[x->at] == '\'' || x->s[x->at] == '"') ok = string(x);
    else if (digit(x, x->at)) ok = number(x);
    else if (word(x, x->at)) {
      size_t to = x->at;
      while (word(x, to)) to++;
      push(x, ZT_LEX_NAME, x->s + x->at, to - x->at);
      x->at = to;
    } else ok = sign(x, &open);
  }
  zb_text_free(&open);
  return ok;
}

/* ---- all of it ------------------------------------------------------------------------------- */
static bool tag(Lexer *x, size_t at) {
  char kind = x->s[at + 1], s = sign_at(x, at + 2);
  size_t end = text_end(x, x->at, at, kind, s);
  if (end > x->at) push(x, ZT_LEX_DATA, x->s + x->at, end - x->at);
  go(x, at + 2);
  if (kind == '%' && raw(x)) return x->at <= x->n;
  x->at += s != 0;
  if (kind == '#') return comment(x);
  push(x, kind == '{' ? ZT_LEX_PRINT : ZT_LEX_BLOCK, x->s + at, 2);
  return inside(x, kind == '{' ? "}}" : "%}", kind == '{' ? ZT_LEX_PRINT_END : ZT_LEX_BLOCK_END);
}

/* The text with line ends as Jinja has them, and without the last. */
static void take_lines(Lexer *x, const char *s, size_t n) {
  char *out = zb_alloc(x->a, n + 1);
  size_t to = 0;
  for (size_t i = 0; i < n; i++) {
    if (s[i] != '\r') out[to++] = s[i];
    else if (i + 1 >= n || s[i + 1] != '\n') out[to++] = '\n';
  }
  if (to && out[to - 1] == '\n') to--;
  out[to] = 0;
  x->s = out;
  x->n = to;
}

ZtLexeme *zt_lex(ZbArena *a, const char *source, size_t n, const char *name, ZbErr *err) {
  Lexer x = {.a = a, .name = name, .line = 1, .line_begins = true, .err = err};
  take_lines(&x, source, n);
  bool ok = true;
  while (ok && x.at < x.n) {
    size_t at = x.at;
    while (at + 1 < x.n && !(x.s[at] == '{' && strchr("{%#", x.s[at + 1]) && x.s[at + 1])) at++;
    if (at + 1 < x.n) ok = tag(&x, at);
    else {
      push(&x, ZT_LEX_DATA, x.s + x.at, x.n - x.at);
      go(&x, x.n);
    }
  }
  push(&x, ZT_LEX_END, "", 0);
  return ok ? x.out : NULL;
}
