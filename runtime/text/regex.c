/* Patterns. The library has Oniguruma with Ruby's syntax and Unicode 16; here is PCRE2. What the two take for
 * different things is translated:
 *
 *   \s            \p{White_Space}: PCRE2's takes U+180E too
 *   \p{L} ...     and what the library's tables have more; so \d and \w
 *   X{1,3}+       (?:X{1,3})+: possessive in PCRE2 only
 *   X{,3}         X{0,3}
 *   \h, \uHHHH    a hexadecimal digit; \x{HHHH}
 *   (?m:          (?s: a dot takes newlines
 *   [a&&b] [a[b]] are refused: PCRE2 has neither
 *
 * In a negated property inside a class ([\P{L}x]) characters younger than PCRE2's tables are missing. */
#define _GNU_SOURCE
#include "runtime/text/room.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

enum { PATTERN_LIMIT = 1 << 16 };

struct ZtPattern {
  pcre2_code *code; /* NULL: a literal text */
  const char *text;
  size_t n;
  ZtPattern *next;
};
struct ZtMatcher {
  pcre2_match_data *data;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
};

/* ---- translation ---- */
typedef struct {
  const char *s; /* what is left of the pattern */
  ZbText *out;
  size_t atom; /* where in *out the last atom begins */
  size_t open[64];
  int depth;
  bool in_class;
  const char *unsupported;
} Translation;

static void put(Translation *x, const char *s) { zb_text_put(x->out, s, strlen(s)); }

static void put_ranges(Translation *x, ZtSet set) {
  uint32_t n;
  const uint32_t *range = zt_ranges(set, &n);
  for (uint32_t i = 0; i < n; i++)
    if (!x->in_class || range[2 * i] > 0xff) /* \w takes the fractions of Latin-1, [\w] does not */
      zb_text_add(x->out, "\\x{%X}-\\x{%X}", range[2 * i], range[2 * i + 1]);
}

/* A class of PCRE2's `properties` and the ranges of `set`; ZT_NSETS: no more. */
static void put_class(Translation *x, bool negated, const char *properties, ZtSet set) {
  if (!x->in_class) put(x, negated ? "[^" : "[");
  put(x, properties);
  if (set < ZT_NSETS) put_ranges(x, set);
  if (!x->in_class) put(x, "]");
}

static ZtSet newer(const char *property) {
  for (int i = 0; i < ZT_NSETS; i++) {
    const char *name = zt_set_name((ZtSet)i);
    if (!strncmp(name, "newer_", 6) && !strcmp(name + 6, property)) return (ZtSet)i;
  }
  return ZT_NSETS;
}

/* \p{NAME}, \P{NAME}, \p{^NAME}; s is behind the p. */
static void put_property(Translation *x, bool negated) {
  char name[64], braces[80];
  size_t n = 1;
  const char *s = x->s;
  if (*s == '{') {
    s++;
    if (*s == '^') {
      negated = !negated;
      s++;
    }
    n = strcspn(s, "}");
    if (!s[n] || n >= sizeof name) n = 0;
    else x->s = s + n + 1;
  } else x->s = s + (*s != 0);
  memcpy(name, s, n);
  name[n] = 0;
  if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_ -0123456789") != n || !n)
    x->unsupported = "such a property"; /* and what is made of it below is not used */
  snprintf(braces, sizeof braces, negated && x->in_class ? "\\P{%s}" : "\\p{%s}", name);
  put_class(x, negated, braces, negated && x->in_class ? ZT_NSETS : newer(name));
}

static void put_escape(Translation *x) {
  char c = x->s[1];
  bool negated = c >= 'A' && c <= 'Z';
  if (!c) {
    put(x, "\\");
    x->s++;
    return;
  }
  x->s += 2;
  switch (c) {
  case 's': put(x, "\\p{White_Space}"); break;
  case 'S': put(x, "\\P{White_Space}"); break;
  case 'p':
  case 'P': put_property(x, negated); break;
  case 'd':
  case 'D':
    put_class(x, negated, negated && x->in_class ? "\\P{Nd}" : "\\p{Nd}",
              negated && x->in_class ? ZT_NSETS : ZT_SET_newer_Nd);
    break;
  case 'w':
  case 'W':
    if (negated && x->in_class) x->unsupported = "\\W in a class";
    put_class(x, negated, "\\p{L}\\p{M}\\p{Nd}\\p{Pc}", ZT_SET_newer_w);
    break;
  case 'h':
  case 'H':
    if (negated && x->in_class) x->unsupported = "\\H in a class";
    put_class(x, negated, "0-9A-Fa-f", ZT_NSETS);
    break;
  case 'u': {
    char hex[5] = "";
    memcpy(hex, x->s, strnlen(x->s, 4));
    if (strspn(hex, "0123456789abcdefABCDEF") != 4) x->unsupported = "\\u without four digits";
    else x->s += 4;
    zb_text_add(x->out, "\\x{%s}", hex);
    break;
  }
  case 'Q':
  case 'E':
  case 'C':
  case 'N':
  case 'L':
  case 'U': /* have no meaning in Ruby */ zb_text_put(x->out, &c, 1); break;
  default:
    put(x, "\\");
    zb_text_put(x->out, x->s - 1, zt_char_bytes((uint8_t)c));
    x->s += zt_char_bytes((uint8_t)c) - 1;
  }
}

static void put_set(Translation *x) {
  put(x, "[");
  x->in_class = true;
  x->s++;
  if (*x->s == '^') {
    put(x, "^");
    x->s++;
  }
  if (*x->s == ']') { /* the first one is a character */
    put(x, "\\]");
    x->s++;
  }
  while (*x->s && *x->s != ']' && !x->unsupported) {
    if (*x->s == '\\') put_escape(x);
    else if (!strncmp(x->s, "&&", 2)) x->unsupported = "&& in a class";
    else if (*x->s == '[' && x->s[1] != ':') x->unsupported = "a class in a class";
    else if (*x->s == '[') {
      const char *end = strstr(x->s, ":]");
      if (!end) x->unsupported = "[: in a class";
      else {
        zb_text_put(x->out, x->s, (size_t)(end + 2 - x->s));
        x->s = end + 2;
      }
    } else zb_text_put(x->out, x->s++, 1);
  }
  if (*x->s) x->s++;
  put(x, "]");
  x->in_class = false;
}

/* (  (?:  (?i:  (?m)  (?<name>  (?#...)  ... */
static void put_open(Translation *x) {
  put(x, "(");
  if (*++x->s == '*') x->unsupported = "(*";
  if (*x->s != '?') return;
  put(x, "?");
  for (x->s++; *x->s && strchr("imx-", *x->s); x->s++) zb_text_put(x->out, *x->s == 'm' ? "s" : x->s, 1);
}

/* {n}, {n,}, {n,m}, {,m} behind an atom; false: it is not such. */
static bool put_repeat(Translation *x) {
  size_t low = strspn(x->s + 1, "0123456789"), high = 0;
  const char *end = x->s + 1 + low;
  bool comma = *end == ',';
  if (comma) {
    high = strspn(end + 1, "0123456789");
    end += 1 + high;
  }
  if (*end != '}' || (!low && !high)) return false;
  zb_text_add(x->out, low ? "{%.*s}" : "{0%.*s}", (int)(end - x->s - 1), x->s + 1);
  x->s = end + 1;
  if (*x->s != '+') return true;
  ZbText atom = {0};
  zb_text_put(&atom, x->out->s + x->atom, x->out->len - x->atom);
  x->out->len = x->atom;
  zb_text_add(x->out, "(?:%s)+", atom.s);
  zb_text_free(&atom);
  x->s++;
  return true;
}

/* False with what is not supported. */
static const char *translate(const char *source, ZbText *out) {
  Translation x = {.s = source, .out = out};
  while (*x.s && !x.unsupported) {
    size_t begin = out->len;
    if (*x.s == '\\') put_escape(&x);
    else if (*x.s == '[') put_set(&x);
    else if (*x.s == '(') {
      if (x.depth == 64) return "such nesting";
      x.open[x.depth++] = begin;
      put_open(&x);
      continue;
    } else if (*x.s == ')') {
      if (x.depth) begin = x.open[--x.depth];
      zb_text_put(out, x.s++, 1);
    } else if (*x.s == '{' && put_repeat(&x)) continue;
    else if (strchr("?*+|", *x.s)) {
      zb_text_put(out, x.s++, 1);
      continue;
    } else {
      size_t bytes = zt_char_bytes((uint8_t)*x.s);
      zb_text_put(out, x.s, bytes);
      x.s += bytes;
    }
    x.atom = begin;
  }
  return x.unsupported;
}

/* ---- patterns ---- */
static pcre2_code *compile(const char *source, ZbErr *err) {
  ZbText text = {0};
  zb_text_put(&text, "", 0);
  const char *unsupported = translate(source, &text);
  int code = 0;
  PCRE2_SIZE at;
  pcre2_code *out = NULL;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) zb_out_of_memory(0);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  if (!unsupported)
    out =
        pcre2_compile((PCRE2_SPTR)text.s, text.len,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
  pcre2_compile_context_free(context);
  zb_text_free(&text);
  if (unsupported)
    zb_fail(err, NULL, "the regular expression %s has %s, which is not supported", zb_show(source),
            unsupported);
  else if (!out) {
    PCRE2_UCHAR why[128] = "";
    pcre2_get_error_message(code, why, sizeof why);
    zb_fail(err, NULL, "the regular expression %s: %s", zb_show(source), (const char *)why);
  } else pcre2_jit_compile(out, PCRE2_JIT_COMPLETE); /* without it the interpreter does the same */
  return out;
}

ZtPattern *zt_pattern(ZtTokenizer *t, const char *source, bool literal, ZbErr *err) {
  size_t n = strlen(source);
  if (!n || n > PATTERN_LIMIT) {
    zb_fail(err, NULL, "a pattern of %zu bytes; it has 1 to %d", n, PATTERN_LIMIT);
    return NULL;
  }
  ZtPattern *p = ZB_NEW(t->arena, ZtPattern);
  *p = (ZtPattern){.text = source, .n = n, .next = t->patterns};
  if (!literal && !(p->code = compile(source, err))) return NULL;
  t->patterns = p;
  return p;
}

void zt_patterns_close(ZtTokenizer *t) {
  for (ZtPattern *p = t->patterns; p; p = p->next) pcre2_code_free(p->code);
}

/* ---- matching ---- */
enum { STACK_FIRST = 32 << 10, STACK_LIMIT = 8 << 20, HEAP_LIMIT_KB = 1 << 20, TRIES = 10000000 };

ZtMatcher *zt_matcher_new(void) {
  ZtMatcher *m = malloc(sizeof *m);
  if (!m) zb_out_of_memory(sizeof *m);
  m->data = pcre2_match_data_create(1, NULL);
  m->context = pcre2_match_context_create(NULL);
  if (!m->data || !m->context) zb_out_of_memory(0);
  m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_LIMIT, NULL); /* NULL: there is no JIT */
  if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
  pcre2_set_heap_limit(m->context, HEAP_LIMIT_KB);
  return m;
}

void zt_matcher_free(ZtMatcher *m) {
  if (!m) return;
  if (m->stack) pcre2_jit_stack_free(m->stack);
  pcre2_match_context_free(m->context);
  pcre2_match_data_free(m->data);
  free(m);
}

static int run(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, uint32_t options) {
  return pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK | options, m->data, m->context);
}

int zt_match(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, size_t *begin,
             size_t *end, ZbErr *err) {
  if (!p->code) {
    const char *at = from < n ? memmem(s + from, n - from, p->text, p->n) : NULL;
    if (!at) return 0;
    *begin = (size_t)(at - s);
    *end = *begin + p->n;
    return 1;
  }
  if (from == 0) { /* a step for each byte of a run that is given back, and still a limit */
    uint64_t limit = TRIES + 4 * (uint64_t)n;
    pcre2_set_match_limit(m->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
  }
  while (from < n) {
    int rc = run(p, m, s, n, from, 0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(p, m, s, n, from, PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
      PCRE2_UCHAR why[128] = "";
      pcre2_get_error_message(rc, why, sizeof why);
      zb_fail(err, NULL, "the tokenizer's regular expression %s gives up at byte %zu of %zu: %s",
              zb_show(p->text), from, n, (const char *)why);
      return -1;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    if (at[1] > at[0] && at[0] >= from) {
      *begin = at[0];
      *end = at[1];
      return 1;
    }
    from = at[0] > from ? at[0] : from; /* an empty match, or \K in a lookahead: a character on */
    if (from < n) from += zt_char_bytes((uint8_t)s[from]);
  }
  return 0;
}
