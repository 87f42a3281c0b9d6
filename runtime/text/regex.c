/* Patterns. The library has Oniguruma with Ruby's syntax and Unicode 16; here is PCRE2. What the two take for
 * different things is translated, or refused where it cannot be:
 *
 *   \s            \p{White_Space}: PCRE2's takes U+180E too
 *   \p{L} ...     and what the library's tables have more; so \d and \w
 *   \p{Han}       by tables of our own, as [[:alpha:]] and what is negated in a class; what has none is refused
 *   [[:punct:]]   by properties, where one is known to be the same
 *   \b            by \w as the library has it
 *   X{1,3}+       (?:X{1,3})+: possessive in PCRE2 only
 *   X{,3}         X{0,3}
 *   \h, \uHHHH    a hexadecimal digit; \x{HHHH}; \v: one character, not a class
 *   (?m:          (?s: a dot takes newlines
 *   (?i:          where letters fold into others one by one: not `ss`, which is a sharp s there
 *
 * tests/data/text/classes.txt has what the library takes each class for. */
#define _GNU_SOURCE
#include "runtime/text/room.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

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
  double seconds, until; /* given; of this thread's processor time, 0: no limit */
  uint32_t calls;        /* the clock is looked at now and then only */
};

/* ---- translation ---- */
typedef struct {
  const char *s; /* what is left of the pattern */
  ZbText *out;
  size_t atom; /* where in *out the last atom begins */
  size_t open[64];
  int depth;
  bool in_class, folds, folded[64]; /* (?i: here, and outside of each open group */
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

/* The characters of a set, or all others, by their ranges. */
static void put_set_of(Translation *x, bool negated, ZtSet set) {
  uint32_t n, next = 0;
  const uint32_t *range = zt_ranges(set, &n);
  if (!x->in_class) put(x, negated ? "[^" : "[");
  bool others = negated && x->in_class;
  for (uint32_t i = 0; i < n; i++) {
    if (!others) zb_text_add(x->out, "\\x{%X}-\\x{%X}", range[2 * i], range[2 * i + 1]);
    else if (range[2 * i] > next) zb_text_add(x->out, "\\x{%X}-\\x{%X}", next, range[2 * i] - 1);
    next = range[2 * i + 1] + 1;
  }
  if (others && next <= 0x10ffff) zb_text_add(x->out, "\\x{%X}-\\x{10FFFF}", next);
  if (!x->in_class) put(x, "]");
}

/* Properties that are sets. */
static const struct {
  const char *name, *other;
  ZtSet set;
} tabled[] = {{"Alphabetic", "Alpha", ZT_SET_alpha},
              {"Uppercase", "Upper", ZT_SET_upper},
              {"Lowercase", "Lower", ZT_SET_lower},
#define X(script) {#script, #script, ZT_SET_##script},
              ZT_SCRIPTS(X)
#undef X
};

/* Properties that are the same: `newer` has what PCRE2's tables lack, ZT_NSETS where they lack nothing. */
typedef struct {
  const char *name, *other;
  ZtSet newer;
} Property;
static const Property properties[] = {
    {"L", "letter", ZT_SET_newer_L},
    {"Lu", "uppercaseletter", ZT_SET_newer_Lu},
    {"Ll", "lowercaseletter", ZT_SET_newer_Ll},
    {"Lt", "titlecaseletter", ZT_NSETS},
    {"Lm", "modifierletter", ZT_SET_newer_Lm},
    {"Lo", "otherletter", ZT_SET_newer_Lo},
    {"M", "mark", ZT_SET_newer_M},
    {"N", "number", ZT_SET_newer_N},
    {"Nd", "decimalnumber", ZT_SET_newer_Nd},
    {"Nl", "letternumber", ZT_NSETS},
    {"P", "punctuation", ZT_SET_newer_P},
    {"Pc", "connectorpunctuation", ZT_NSETS},
    {"S", "symbol", ZT_SET_newer_S},
    {"Z", "separator", ZT_NSETS},
    {"Zs", "spaceseparator", ZT_NSETS},
    {"Zl", "lineseparator", ZT_NSETS},
    {"Zp", "paragraphseparator", ZT_NSETS},
    {"Cc", "control", ZT_NSETS},
    {"White_Space", "whitespace", ZT_NSETS},
};

/* Compares as both libraries do: case, blanks, `_` and `-` do not count. */
static bool same_name(const char *a, const char *b) {
  for (;; a++, b++) {
    while (*a && strchr(" _-", *a)) a++;
    while (*b && strchr(" _-", *b)) b++;
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (!*a) return true;
  }
}

static const Property *property(const char *name) {
  for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
    if (same_name(properties[i].name, name) || same_name(properties[i].other, name)) return &properties[i];
  return NULL;
}

static ZtSet tabled_set(const char *name) {
  for (size_t i = 0; i < sizeof tabled / sizeof *tabled; i++)
    if (same_name(tabled[i].name, name) || same_name(tabled[i].other, name)) return tabled[i].set;
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
  const Property *p = property(name);
  ZtSet set = tabled_set(name);
  if (set < ZT_NSETS && x->folds) x->unsupported = "such a property in (?i";
  else if (set < ZT_NSETS) {
    put_set_of(x, negated, set);
    return;
  }
  if (!p)
    x->unsupported = "a property of which there is no table (there is one of usual categories and scripts)";
  else if (negated && x->in_class && p->newer < ZT_NSETS) x->unsupported = "a negated property in a class";
  else if (x->folds && p->name[0] == 'L' && p->name[1] && strchr("ult", p->name[1]))
    x->unsupported = "a case in (?i";
  if (x->unsupported) return;
  snprintf(braces, sizeof braces, negated && x->in_class ? "\\P{%s}" : "\\p{%s}", p->name);
  put_class(x, negated, braces, p->newer);
}

static const char word_properties[] = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

/* Between a character of \w and another one, or the end: where there is one and where there is none. */
static void put_boundary(Translation *x, bool negated) {
  static const char *const sides[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="},
                                          {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
  for (int i = 0; i < 4; i++) {
    put(x, sides[negated][i]);
    put_class(x, false, word_properties, ZT_SET_newer_w);
  }
  put(x, "))");
}

static void put_hex(Translation *x) {
  char hex[5] = "";
  memcpy(hex, x->s, strnlen(x->s, 4));
  if (strspn(hex, "0123456789abcdefABCDEF") != 4) x->unsupported = "\\u without four digits";
  else x->s += 4;
  zb_text_add(x->out, "\\x{%s}", hex);
}

/* \x{HHHH}, \xHH; s is behind the x. */
static void put_code(Translation *x) {
  static const char digits[] = "0123456789abcdefABCDEF";
  bool braces = *x->s == '{';
  size_t n = strspn(x->s + braces, digits);
  if (!n || n > (braces ? 8u : 2u) || (braces && x->s[1 + n] != '}')) x->unsupported = "\\x without digits";
  else if (!braces && strtoul(x->s, NULL, 16) > 0x7f && n == 2) x->unsupported = "a byte, \\x80 or above";
  else zb_text_add(x->out, "\\x{%.*s}", (int)n, x->s + braces);
  if (!x->unsupported) x->s += n + 2 * braces;
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
    if (negated && x->in_class) put_set_of(x, true, ZT_SET_decimal);
    else put_class(x, negated, "\\p{Nd}", ZT_SET_newer_Nd);
    break;
  case 'w':
  case 'W':
    if (negated && x->in_class) put_set_of(x, true, ZT_SET_word_in_class);
    else put_class(x, negated, word_properties, ZT_SET_newer_w);
    break;
  case 'h':
  case 'H':
    if (negated && x->in_class) put(x, "\\x{0}-/:-@G-`g-\\x{10FFFF}");
    else put_class(x, negated, "0-9A-Fa-f", ZT_NSETS);
    break;
  case 'b':
  case 'B':
    if (x->in_class) put(x, negated ? "B" : "\\x08");
    else put_boundary(x, negated);
    break;
  case 'v': put(x, "\\x0B"); break;
  case 'u': put_hex(x); break;
  case 'x': put_code(x); break;
  case 'Q':
  case 'E':
  case 'C':
  case 'N':
  case 'L':
  case 'U': /* have no meaning in Ruby */ zb_text_put(x->out, &c, 1); break;
  default:
    if ((isalpha((unsigned char)c) && !strchr("aefnrtAzZ", c)) || isdigit((unsigned char)c)) {
      x->unsupported = "such an escape";
      return;
    }
    put(x, "\\");
    zb_text_put(x->out, x->s - 1, zt_char_bytes((uint8_t)c));
    x->s += zt_char_bytes((uint8_t)c) - 1;
  }
}

/* [:punct:], inside of a class: POSIX's words mean other characters to the two libraries. */
static void put_posix(Translation *x) {
  static const struct {
    const char *name, *properties;
    ZtSet newer[2];
  } known[] = {{"ascii", "\\x00-\\x7F", {ZT_NSETS, ZT_NSETS}},
               {"blank", "\\p{Zs}\\t", {ZT_NSETS, ZT_NSETS}},
               {"cntrl", "\\p{Cc}", {ZT_NSETS, ZT_NSETS}},
               {"digit", "\\p{Nd}", {ZT_SET_newer_Nd, ZT_NSETS}},
               {"punct", "\\p{P}\\p{S}", {ZT_SET_newer_P, ZT_SET_newer_S}},
               {"space", "\\p{White_Space}", {ZT_NSETS, ZT_NSETS}},
               {"xdigit", "0-9A-Fa-f", {ZT_NSETS, ZT_NSETS}},
               {"word", word_properties, {ZT_SET_newer_w, ZT_NSETS}}};
  static const struct {
    const char *name, *properties;
    ZtSet set;
  } sets[] = {{"alpha", "", ZT_SET_alpha}, {"alnum", "\\p{Nd}", ZT_SET_alpha},
              {"upper", "", ZT_SET_upper}, {"lower", "", ZT_SET_lower},
              {"graph", "", ZT_SET_graph}, {"print", "\\p{Zs}", ZT_SET_graph}};
  bool negated = x->s[2] == '^';
  const char *end = strstr(x->s, ":]"), *name = x->s + 2 + negated;
  for (size_t i = 0; end && i < sizeof sets / sizeof *sets; i++) {
    size_t n = strlen(sets[i].name);
    if ((size_t)(end - name) != n || memcmp(name, sets[i].name, n)) continue;
    if (x->folds || (negated && *sets[i].properties)) break;
    put(x, sets[i].properties);
    if (!strcmp(sets[i].name, "alnum")) put_ranges(x, ZT_SET_newer_Nd);
    put_set_of(x, negated, sets[i].set);
    x->s = end + 2;
    return;
  }
  for (size_t i = 0; end && i < sizeof known / sizeof *known; i++) {
    size_t n = strlen(known[i].name);
    if ((size_t)(end - x->s) != n + 2 || memcmp(x->s + 2, known[i].name, n)) continue;
    put(x, known[i].properties);
    for (int k = 0; k < 2 && known[i].newer[k] < ZT_NSETS; k++) put_ranges(x, known[i].newer[k]);
    x->s = end + 2;
    return;
  }
  x->unsupported = "such a [: :]";
}

/* A letter as it is, under (?i: Oniguruma also folds it with others into one character, and one into many. */
static void put_letter(Translation *x) {
  size_t bytes = zt_char_bytes((uint8_t)*x->s);
  if (x->folds) {
    static const char *const together[] = {"ss", "ff", "fi", "fl", "st"};
    for (size_t i = 0; !x->in_class && i < sizeof together / sizeof *together; i++)
      if (!strncasecmp(x->s, together[i], 2)) x->unsupported = "letters in (?i that fold into one";
    if (bytes > 1) x->unsupported = "a letter in (?i that is not ASCII";
  }
  zb_text_put(x->out, x->s, bytes);
  x->s += bytes;
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
    else if (*x->s == '[') put_posix(x);
    else put_letter(x);
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
  bool off = false, any = false;
  for (x->s++; *x->s && strchr("im-", *x->s); x->s++) {
    any = true;
    off |= *x->s == '-';
    if (*x->s == 'i') x->folds = !off;
    zb_text_put(x->out, *x->s == 'm' ? "s" : x->s, 1);
  }
  if (any ? !strchr(":)", *x->s) || !*x->s : !*x->s || !strchr(":=!><#", *x->s))
    x->unsupported = "such a group";
  if (*x->s != ')') return;
  zb_text_put(x->out, x->s++, 1); /* (?i): up to the end of the group around it */
  x->depth--;
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
  if (*x->s == '?' && !comma) x->unsupported = "{n}?"; /* optional there, lazy here */
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
      x.folded[x.depth] = x.folds;
      x.open[x.depth++] = begin;
      put_open(&x);
      continue;
    } else if (*x.s == ')') {
      if (x.depth) {
        begin = x.open[--x.depth];
        x.folds = x.folded[x.depth];
      }
      zb_text_put(out, x.s++, 1);
    } else if (*x.s == '{' && put_repeat(&x)) continue;
    else if (strchr("?*+|", *x.s)) {
      zb_text_put(out, x.s++, 1);
      continue;
    } else put_letter(&x);
    x.atom = begin;
  }
  return x.unsupported;
}

/* ---- patterns ---- */
static pcre2_code *compile(const char *source, ZbErr *err) {
  ZbText text = {0};
  zb_text_put(&text, "", 0);
  const char *unsupported = NULL;
  if (strcmp(source, zt_cluster_pattern)) unsupported = translate(source, &text);
  else zb_text_add(&text, "%s", source);
  int code = 0;
  PCRE2_SIZE at;
  pcre2_code *out = NULL;
  pcre2_compile_context *context = pcre2_compile_context_create(NULL);
  if (!context) zb_out_of_memory(0);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  if (!unsupported)
    out = pcre2_compile((PCRE2_SPTR)text.s, text.len,
                        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                            PCRE2_USE_OFFSET_LIMIT,
                        &code, &at, context);
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

bool zt_may_be_empty(const ZtPattern *p) {
  uint32_t empty = 0;
  if (p->code) pcre2_pattern_info(p->code, PCRE2_INFO_MATCHEMPTY, &empty);
  return empty;
}

void zt_patterns_close(ZtTokenizer *t) {
  for (ZtPattern *p = t->patterns; p; p = p->next) pcre2_code_free(p->code);
}

/* ---- matching ---- */
enum { STACK_FIRST = 32 << 10, STACK_LIMIT = 8 << 20, HEAP_LIMIT_KB = 1 << 20, TRIES = 10000000 };
enum { REACH = 512 /* bytes */, CALLS = 1 << 10 /* between looks at the clock */ };

ZtMatcher *zt_matcher_new(void) {
  ZtMatcher *m = calloc(1, sizeof *m);
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

/* ---- time ----
 * Backtracking is limited from each place on where a match may begin, and a match may look at all that follows:
 * both can make the time grow with the square of a text. Nothing counts that, so the clock says when it is far
 * too much. */
static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zt_matcher_begin(ZtMatcher *m, double seconds) {
  m->seconds = seconds;
  m->until = processor_time() + seconds;
}

static bool in_time(const ZtPattern *p, const ZtMatcher *m, ZbErr *err) {
  return !m->until || processor_time() < m->until ||
         zb_fail(err, "cut the text into shorter ones, if the pattern is right",
                 "the tokenizer's regular expression %s is too slow for this text: it is not through after "
                 "%.3g s",
                 zb_show(p->text), m->seconds);
}

static int run(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, uint32_t options) {
  return pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK | options, m->data, m->context);
}

/* A match that begins within `reach` bytes of `from`, or at any place (PCRE2_UNSET). */
static int run_within(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, size_t reach) {
  pcre2_set_offset_limit(m->context, reach == PCRE2_UNSET ? reach : from + reach);
  int rc = run(p, m, s, n, from, 0);
  return rc == PCRE2_ERROR_JIT_STACKLIMIT ? run(p, m, s, n, from, PCRE2_NO_JIT) : rc;
}

/* The same at any place, with the clock looked at between reaches, each twice the one before it; *late:
 * time is up. */
static int run_in_time(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, bool *late,
                       ZbErr *err) {
  for (size_t reach = REACH;; reach *= 2) {
    bool last = n - from <= reach;
    int rc = run_within(p, m, s, n, from, last ? PCRE2_UNSET : reach);
    if (rc != PCRE2_ERROR_NOMATCH || last) return rc;
    if ((*late = !in_time(p, m, err))) return rc;
    from += reach + 1;
    while (from < n && ((uint8_t)s[from] & 0xc0) == 0x80) from++;
  }
}

int zt_match(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, size_t last,
             size_t *begin, size_t *end, ZbErr *err) {
  if (!n) return 0;
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
  while (from <= n) {
    bool late = ++m->calls % CALLS == 0 && !in_time(p, m, err);
    int rc = late ? 0 : run_in_time(p, m, s, n, from, &late, err);
    if (late) return -1;
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
      PCRE2_UCHAR why[128] = "";
      pcre2_get_error_message(rc, why, sizeof why);
      zb_fail(err, NULL, "the tokenizer's regular expression %s gives up at byte %zu of %zu: %s",
              zb_show(p->text), from, n, (const char *)why);
      return -1;
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
    if (at[1] > at[0] || at[0] != last) {
      *begin = at[0];
      *end = at[1];
      return 1;
    }
    from +=
        from < n ? zt_char_bytes((uint8_t)s[from]) : 1; /* as the library goes on: a character from here */
  }
  return 0;
}
