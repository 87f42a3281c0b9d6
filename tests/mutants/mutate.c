/* mutate: the one-token changes of a C file. A test tool, see run.sh beside it.
 *
 *   mutate list SEED NAME FILE EXPANDED     a line each: KEY <tab> NAME <tab> NUMBER <tab> LINE <tab> CHANGE
 *   mutate apply NUMBER FILE EXPANDED       the changed text
 *
 * EXPANDED is what the preprocessor makes of the file: the enumerations are read there. CHANGE is the source
 * line with the change in it, `if (n {< -> <=} max)`. KEY orders the changes at random: it depends on the
 * seed, the file and the changed line, so that an edit elsewhere leaves the order of the others as it was.
 *
 * What is changed, in bodies of functions, in tables and in bodies of macros:
 *   comparisons shifted and flipped, && and ||, + and -, * and /, << and >>, & and |, with their
 *   assignments, ++ and --;
 *   conditions of `if` and `while` negated, `!` and the sign of a number dropped; `true` and `false`, 0 and
 *   1, other numbers and the one after it; an enumerator and the next of its enumeration; `break` and
 *   `continue`; a statement deleted (a call, an assignment, a jump).
 * What is not: comments, text, directives, declarations; the lengths of arrays, how much memory is asked for
 * and whether it is given back, which is for sanitizers to see; what is done where there is none
 * (zb_out_of_memory and the condition before it); assertions (ZB_ASSERT, ZB_BUG and the condition before it),
 * since no test can break what they hold. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FILE_LIMIT (64u << 20)

typedef enum { NAME, NUMBER, TEXT, MARK } Kind;
typedef struct {
  Kind kind;
  uint32_t at, len, line;
  int depth, paren; /* of braces and of parentheses around it */
  bool macro;       /* in the body of a #define */
} Token;

typedef struct {
  const char *s;
  Token *tok;
  size_t n;
} Source;

/* Bytes [at, at + len) become `with`. */
typedef struct {
  uint32_t at, len, line;
  const char *with, *said; /* said: in the listing, `before -> after` */
} Change;

typedef struct {
  ZbArena *a;
  Source src;
  Change *change;
  size_t n;
  const char **enumerator, **next; /* an enumerator and what it is exchanged with */
  size_t nenum;
} Mutate;

/* ---- tokens -------------------------------------------------------------------------------------------- */
static bool is(const Source *s, size_t i, const char *what) {
  return i < s->n && s->tok[i].len == strlen(what) && strncmp(s->s + s->tok[i].at, what, s->tok[i].len) == 0;
}

static bool among(const Source *s, size_t i, const char *const *list) {
  for (; *list; list++)
    if (is(s, i, *list)) return true;
  return false;
}

static const char *skip_space(const char *p, uint32_t *line) {
  for (;; p++) {
    if (*p == '\n') ++*line;
    else if (p[0] == '/' && p[1] == '/') {
      while (p[1] && p[1] != '\n') p++;
    } else if (p[0] == '/' && p[1] == '*') {
      for (p += 2; *p && !(p[0] == '*' && p[1] == '/'); p++)
        if (*p == '\n') ++*line;
      if (!*p) return p;
      p++;
    } else if (!isspace((unsigned char)*p) && !(p[0] == '\\' && p[1] == '\n')) return p;
  }
}

static uint32_t token_length(const char *p, Kind *kind) {
  static const char *const marks[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
                                      "<=",  ">=",  "==",  "!=", "&&", "||", "+=", "-=",
                                      "*=",  "/=",  "%=",  "&=", "|=", "^=", "##", NULL};
  const char *q = p;
  if (isalpha((unsigned char)*p) || *p == '_') {
    while (isalnum((unsigned char)*q) || *q == '_') q++;
    *kind = NAME;
  } else if (isdigit((unsigned char)*p) || (*p == '.' && isdigit((unsigned char)p[1]))) {
    for (; isalnum((unsigned char)*q) || *q == '.'; q++)
      if ((q[1] == '-' || q[1] == '+') && strchr("eEpP", *q) && !(p[1] == 'x' && strchr("eE", *q))) q++;
    *kind = NUMBER;
  } else if (*p == '"' || *p == '\'') {
    for (q++; *q && *q != *p; q++)
      if (*q == '\\' && q[1]) q++;
    if (*q) q++;
    *kind = TEXT;
  } else {
    *kind = MARK;
    for (int i = 0; marks[i]; i++)
      if (strncmp(p, marks[i], strlen(marks[i])) == 0) return (uint32_t)strlen(marks[i]);
    q++;
  }
  return (uint32_t)(q - p);
}

/* Steps over a directive, or to the body of a #define. */
static const char *directive(const char *p, uint32_t *line, bool *macro) {
  const char *q = p + 1;
  while (*q == ' ' || *q == '\t') q++;
  *macro = strncmp(q, "define", 6) == 0;
  if (*macro) {
    for (q += 6; *q == ' '; q++) {}
    while (isalnum((unsigned char)*q) || *q == '_') q++;
    if (*q == '(')
      while (*q && *q++ != ')') {}
    return q;
  }
  for (; *q && *q != '\n'; q++)
    if (q[0] == '\\' && q[1] == '\n') ++*line, q++;
  return q;
}

static Source scan(ZbArena *a, const char *s) {
  Source out = {.s = s};
  uint32_t line = 1;
  int depth = 0, paren = 0, outer = 0;
  bool macro = false;
  for (const char *p = s;;) {
    uint32_t before = line;
    const char *from = p;
    p = skip_space(p, &line);
    if (macro && line != before) { /* a line that does not end in \ ends the macro */
      for (const char *q = from; q < p && macro; q++)
        if (*q == '\n' && (q == s || q[-1] != '\\')) macro = false, depth = outer, paren = 0;
    }
    if (!*p) return out;
    if (*p == '#' && !macro) {
      outer = depth;
      p = directive(p, &line, &macro);
      continue;
    }
    Token t = {.at = (uint32_t)(p - s), .line = line, .macro = macro};
    t.len = token_length(p, &t.kind);
    if (t.kind == MARK && strchr("})]", *p)) *(*p == '}' ? &depth : &paren) -= 1;
    t.depth = depth, t.paren = paren;
    if (t.kind == MARK && strchr("{([", *p)) *(*p == '{' ? &depth : &paren) += 1;
    ZB_PUSH(a, out.tok, out.n, t);
    p += t.len;
  }
}

/* The token that closes what token i opens, or the last. */
static size_t closing(const Source *s, size_t i) {
  int open = 0;
  for (; i < s->n; i++) {
    if (is(s, i, "(") || is(s, i, "[") || is(s, i, "{")) open++;
    if ((is(s, i, ")") || is(s, i, "]") || is(s, i, "}")) && --open == 0) return i;
  }
  return s->n - 1;
}

static char *word(ZbArena *a, const Source *s, size_t i) {
  return zb_strndup(a, s->s + s->tok[i].at, s->tok[i].len);
}

/* ---- enumerations -------------------------------------------------------------------------------------- */
static void read_enums(Mutate *m, const Source *s) {
  for (size_t i = 0; i + 2 < s->n; i++) {
    if (!is(s, i, "enum")) continue;
    size_t open = is(s, i + 1, "{") ? i + 1 : i + 2;
    if (!is(s, open, "{")) continue;
    size_t first = m->nenum, close = closing(s, open), n = m->nenum;
    for (size_t k = open + 1; k < close; k++) {
      if (s->tok[k].kind != NAME || !(is(s, k - 1, "{") || is(s, k - 1, ",")) ||
          s->tok[k].paren != s->tok[open].paren)
        continue;
      ZB_PUSH(m->a, m->enumerator, n, word(m->a, s, k));
      ZB_PUSH(m->a, m->next, m->nenum, NULL);
    }
    for (size_t k = first; k < m->nenum && m->nenum - first > 1; k++)
      m->next[k] = m->enumerator[k + 1 < m->nenum ? k + 1 : k - 1];
  }
}

static const char *exchanged(const Mutate *m, size_t i) {
  for (size_t k = 0; k < m->nenum; k++)
    if (m->next[k] && is(&m->src, i, m->enumerator[k])) return m->next[k];
  return NULL;
}

/* ---- changes ------------------------------------------------------------------------------------------- */
static void change(Mutate *m, size_t i, const char *with) {
  const Token *t = &m->src.tok[i];
  const char *said = zb_printf(m->a, "%s -> %s", word(m->a, &m->src, i), *with ? with : "nothing");
  ZB_PUSH(m->a, m->change, m->n, ((Change){t->at, t->len, t->line, with, said}));
}

static void change_number(Mutate *m, size_t i) {
  const char *w = word(m->a, &m->src, i);
  bool hex = w[1] == 'x' || w[1] == 'X', real = !hex && strpbrk(w, ".eE");
  if (is(&m->src, i - 1, "{") && is(&m->src, i + 1, "}") && strcmp(w, "0") == 0) return; /* {0} */
  if (is(&m->src, i - 1, "-") && m->src.tok[i - 1].at + 1 == m->src.tok[i].at)
    return; /* its sign is dropped */
  if (hex || real) return change(m, i, zb_printf(m->a, "(%s + 1)", w));
  char *end;
  unsigned long long v = strtoull(w, &end, 10);
  change(m, i, zb_printf(m->a, "%llu%s", v == 1 ? 0 : v + 1, end));
  if (v == 1) change(m, i, zb_printf(m->a, "2%s", end));
}

/* Between two operands: clang-format has spaces around such a mark. */
static bool binary(const Source *s, size_t i) {
  const Token *t = &s->tok[i];
  char before = s->s[t->at - 1], after = s->s[t->at + t->len];
  return isspace((unsigned char)before) && isspace((unsigned char)after);
}

static void change_mark(Mutate *m, size_t i) {
  static const struct {
    const char *from, *to;
  } marks[] = {{"<", "<="},   {"<", ">"},   {"<=", "<"},  {"<=", ">"},  {">", ">="},  {">", "<"},
               {">=", ">"},   {">=", "<"},  {"==", "!="}, {"!=", "=="}, {"&&", "||"}, {"||", "&&"},
               {"+", "-"},    {"-", "+"},   {"*", "/"},   {"/", "*"},   {"%", "/"},   {"<<", ">>"},
               {">>", "<<"},  {"&", "|"},   {"|", "&"},   {"^", "&"},   {"+=", "-="}, {"-=", "+="},
               {"*=", "/="},  {"/=", "*="}, {"|=", "&="}, {"&=", "|="}, {"^=", "|="}, {"<<=", ">>="},
               {">>=", "<<="}};
  const Source *s = &m->src;
  for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
    if (is(s, i, marks[k].from) && binary(s, i)) change(m, i, marks[k].to);
  if (is(s, i, "++")) change(m, i, "--");
  if (is(s, i, "--")) change(m, i, "++");
  if (is(s, i, "!")) change(m, i, "");
  if (is(s, i, "-") && !binary(s, i) && i + 1 < s->n && s->tok[i + 1].kind == NUMBER) change(m, i, "");
}

/* if (x) and while (x): if (!(x)). */
static void negate(Mutate *m, size_t i) {
  const Source *s = &m->src;
  if (!is(s, i + 1, "(")) return;
  size_t end = closing(s, i + 1);
  uint32_t at = s->tok[i + 1].at, len = s->tok[end].at + 1 - at;
  ZB_PUSH(m->a, m->change, m->n,
          ((Change){at, len, s->tok[i].line, zb_printf(m->a, "(!%.*s)", (int)len, s->s + at), "( -> (!("}));
}

/* Does a statement begin at token i? */
static bool begins(const Source *s, size_t i) {
  const Token *t = &s->tok[i];
  if (t->depth == 0 || t->paren != 0 || t->macro || i == 0) return false;
  if (is(s, i - 1, ";") || is(s, i - 1, "{") || is(s, i - 1, "}") || is(s, i - 1, "else") ||
      is(s, i - 1, ")"))
    return true;
  return is(s, i - 1, ":") && (is(s, i - 2, "default") || is(s, i - 3, "case"));
}

static void drop(Mutate *m, size_t i) {
  static const char *const jumps[] = {"return", "break", "continue", NULL};
  static const char *const then[] = {"(",  "[",  ".",  "->", "=",   "+=",  "-=", "*=", "/=",
                                     "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--", NULL};
  static const char *const words[] = {"if", "for", "while", "switch", "sizeof", "_Static_assert",
                                      /* memory that is not given back */
                                      "free", "munmap", "zb_text_free", "zb_arena_free", "cJSON_free",
                                      "cJSON_Delete", "XXH3_freeState", "hwloc_bitmap_free",
                                      "hwloc_topology_destroy", NULL};
  const Source *s = &m->src;
  const Token *t = &s->tok[i];
  if (!begins(s, i)) return;
  bool jump = among(s, i, jumps), prefix = is(s, i, "*") || is(s, i, "++") || is(s, i, "--");
  if (!jump && !prefix && (t->kind != NAME || among(s, i, words) || !among(s, i + 1, then))) return;
  size_t end = i;
  while (end < s->n && !is(s, end, ";") && !is(s, end, "}"))
    end = is(s, end, "(") || is(s, end, "[") ? closing(s, end) + 1 : end + 1;
  if (!is(s, end, ";")) return;
  if (is(s, i, "return") && t->depth == 1 && is(s, end + 1, "}")) return; /* the last of a function */
  ZbText lines = {0};
  zb_text_add(&lines, ";");
  for (uint32_t k = t->at; k < s->tok[end].at; k++)
    if (s->s[k] == '\n') zb_text_add(&lines, "\n");
  uint32_t len = s->tok[end].at + 1 - t->at;
  const char *nl = memchr(s->s + t->at, '\n', len);
  const char *said =
      zb_printf(m->a, "%.*s -> deleted", nl ? (int)(nl - s->s - t->at) : (int)len, s->s + t->at);
  ZB_PUSH(m->a, m->change, m->n, ((Change){t->at, len, t->line, zb_strdup(m->a, lines.s), said}));
  zb_text_free(&lines);
}

/* Is token i the [ of a declared array: `char s[64]`, `Arg a[2][3]`? */
static bool declares_array(const Source *s, size_t i) {
  if (!is(s, i, "[")) return false;
  size_t k = i;
  while (k > 0 && (s->tok[k - 1].paren > s->tok[i].paren || is(s, k - 1, "]") || is(s, k - 1, "["))) k--;
  if (k < 2 || s->tok[k - 1].kind != NAME) return false;
  const Token *before = &s->tok[k - 2];
  if (before->kind == NAME) return !is(s, k - 2, "return") && !is(s, k - 2, "case") && !is(s, k - 2, "else");
  return is(s, k - 2, "*") && !binary(s, k - 2);
}

/* The first token after what is not changed and begins at i, or i: an assertion, how much memory is asked
 * for, what is done where there is none. */
static size_t after_fixed(const Source *s, size_t i) {
  static const char *const allocators[] = {"ZB_NEWN", "zb_alloc", "malloc", "calloc", "realloc", NULL};
  if (among(s, i, allocators) && is(s, i + 1, "(")) return closing(s, i + 1) + 1;
  size_t k = i;
  if (is(s, i, "if") && is(s, i + 1, "(")) k = closing(s, i + 1) + 1;
  if (is(s, k, "ZB_BUG") || is(s, k, "zb_out_of_memory") || (k == i && is(s, i, "ZB_ASSERT")))
    return closing(s, k + 1) + 1;
  return i;
}

static void find_changes(Mutate *m) {
  const Source *s = &m->src;
  for (size_t i = 1; i < s->n; i++) {
    const Token *t = &s->tok[i];
    if (t->depth == 0 && !t->macro) continue;
    size_t next = after_fixed(s, i);
    if (next == i && declares_array(s, i)) next = closing(s, i);
    if (next > i) {
      i = next - 1;
      continue;
    }
    if (t->kind == NUMBER) change_number(m, i);
    if (t->kind == MARK) change_mark(m, i);
    if (is(s, i, "if") || is(s, i, "while")) negate(m, i);
    if (is(s, i, "true")) change(m, i, "false");
    if (is(s, i, "false")) change(m, i, "true");
    if (is(s, i, "break")) change(m, i, "continue");
    if (is(s, i, "continue")) change(m, i, "break");
    if (t->kind == NAME && exchanged(m, i)) change(m, i, exchanged(m, i));
    drop(m, i);
  }
}

/* ---- output -------------------------------------------------------------------------------------------- */
/* The line of a change, with the change in it; what is changed beyond the line's end is not shown. */
static const char *shown(const Mutate *m, const Change *c) {
  const char *s = m->src.s, *from = s + c->at, *to = from + c->len;
  while (from > s && from[-1] != '\n') from--;
  while (*from == ' ') from++;
  bool negated = c->said[0] == '(';
  const char *rest = negated ? s + c->at + 1 : to, *end = s + c->at;
  while (*end && *end != '\n') end++;
  if (rest > end) rest = end;
  return zb_printf(m->a, "%.*s{%s}%.*s", (int)(s + c->at - from), from, c->said, (int)(end - rest), rest);
}

static void list(const Mutate *m, uint64_t seed, const char *name) {
  for (size_t i = 0; i < m->n; i++) {
    const Change *c = &m->change[i];
    const char *text = shown(m, c);
    uint64_t same = 0; /* equal lines before it in the file */
    for (size_t k = 0; k < i; k++) same += strcmp(shown(m, &m->change[k]), text) == 0;
    uint64_t key = zb_random_u64(seed, zb_stream(name) ^ zb_stream(text), same);
    printf("%016llx\t%s\t%zu\t%u\t%s\n", (unsigned long long)key, name, i, c->line, text);
  }
}

static char *slurp(ZbArena *a, const char *path) {
  ZbErr err;
  size_t n;
  char *s = zb_read_file(a, path, FILE_LIMIT, &n, &err);
  if (s) return s;
  fprintf(stderr, "mutate: %s: %s\n", path, err.text);
  exit(2);
}

int main(int argc, char **argv) {
  bool listing = argc == 6 && strcmp(argv[1], "list") == 0;
  if (!listing && !(argc == 5 && strcmp(argv[1], "apply") == 0)) {
    fprintf(stderr, "usage: mutate list SEED NAME FILE EXPANDED | apply NUMBER FILE EXPANDED\n");
    return 2;
  }
  Mutate m = {.a = zb_arena_new()};
  const char *file = argv[argc - 2];
  m.src = scan(m.a, slurp(m.a, file));
  Source expanded = scan(m.a, slurp(m.a, argv[argc - 1]));
  read_enums(&m, &expanded);
  find_changes(&m);
  unsigned long long number = strtoull(argv[2], NULL, 10);
  if (listing) list(&m, number, argv[3]);
  else if (number < m.n) {
    const Change *c = &m.change[number];
    printf("%.*s%s%s", (int)c->at, m.src.s, c->with, m.src.s + c->at + c->len);
  }
  bool known = listing || number < m.n;
  if (!known) fprintf(stderr, "mutate: %s has %zu changes\n", file, m.n);
  zb_arena_free(m.a);
  return known && !ferror(stdout) ? 0 : 2;
}
