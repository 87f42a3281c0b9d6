/* Syntax errors: one report for each mistake, and where to go on after it.
 *
 * After a report the parser waits for the made-up token RESYNC (see parse.y). It gets it before the next
 * token, at the same depth of braces as the mistake, at which a statement, directive or item can start:
 *   - a keyword that begins one (in a model only at the start of a line: there, mistakes in the middle of
 *     a line are more likely a misused keyword than the next statement)
 *   - a name at the start of a line outside parentheses, or the mistake itself if it is such a name
 *   - the closing brace of the body, or what follows a whole {...} that was skipped */
#include "lang/scan.h"
#include "lang/parse.tab.h"

#include <string.h>

static bool starts_item(int kind) {
  return kind == USE || kind == BLOCK || kind == MODEL || kind == WEIGHTS || kind == RECIPE ||
         kind == CLUSTER;
}
static bool starts_statement(int kind) {
  return kind == AXIS || kind == PARAM || kind == INPUT || kind == OUTPUT || kind == LOSS || kind == AUX ||
         kind == REPEAT || kind == IF || kind == RETURN || kind == BLOCK || kind == STATE || kind == UPDATE;
}
static bool starts_directive(int kind) {
  switch (kind) {
#define DIRECTIVE(NAME, ...) case NAME:
#define LATER DIRECTIVE
#include "lang/directives.def"
  case NUMBERED:
  case CHOSEN:
  case IGNORE:
  case FROM:
  case CONFIG:
  case DEVICE:
  case HOST:
  case LEVEL: return true;
  default: return false;
  }
}
bool zl_begins(int kind) { return starts_item(kind) || starts_statement(kind) || starts_directive(kind); }

static bool is_word(int kind) { return kind >= USE && kind <= LEVEL && kind != ARROW && kind != DOTDOT; }

static bool compares(int kind) { return kind == '<' || kind == '>' || (kind >= AT_MOST && kind <= DIFFERS); }

/* Says whether parsing can go on with `t` after a mistake under `depth` braces. */
static bool restarts(const ZlParser *ps, const ZlToken *t, uint32_t depth) {
  if (t->depth != depth) return false;
  if (depth == 0) return starts_item(t->kind) && (t->first || t->kind != BLOCK);
  if (t->kind == '}' || starts_directive(t->kind)) return true;
  return t->first && (starts_statement(t->kind) || (t->kind == IDENT && ps->parens == 0));
}

/* Skips from the mistake, ps->last, to where parsing goes on; that token is kept for the next call. */
static ZlToken resync(ZlParser *ps) {
  ZlToken t = ps->last;
  uint32_t depth = t.depth;
  bool stuck = ps->reported && t.span.start == ps->last_error; /* it was tried before */
  bool go_on = !stuck && (restarts(ps, &t, depth) || (depth && t.first && t.kind == IDENT));
  ps->reported = true;
  ps->last_error = t.span.start;
  while (!go_on && t.kind != 0 && t.depth >= depth) {
    bool closes = t.kind == '}' && t.depth == depth + 1;
    t = zl_scan_token(ps);
    go_on = restarts(ps, &t, depth) || (closes && depth && t.depth == depth);
  }
  ps->skipping = false;
  ps->parens = 0;
  if (t.kind == 0) return t;
  ps->again = t;
  ps->replay = true;
  return (ZlToken){.kind = RESYNC, .span = {t.span.file, t.span.start, t.span.start}};
}

ZlToken zl_next_token(ZlParser *ps) {
  if (ps->skipping) return resync(ps);
  ZlToken t = ps->replay ? ps->again : zl_scan_token(ps);
  ps->replay = false;
  ps->before = ps->last;
  ps->last = t;
  if (is_word(t.kind) && t.kind != AS) ps->in_use = t.kind == USE;
  return t;
}

/* ---- the report ---- */
static bool take_word(ZlExpected *e, const char *name) {
  for (int i = 0; i < e->n; i++)
    if (strcmp(e->at[i], name) == 0) {
      e->at[i] = e->at[--e->n];
      return true;
    }
  return false;
}
static bool has(const ZlExpected *e, const char *name) {
  for (int i = 0; i < e->n; i++)
    if (strcmp(e->at[i], name) == 0) return true;
  return false;
}

/* Puts one word for many: tokens that only ever stand together. */
static void summarise(ZlExpected *e) {
  static const struct {
    const char *as, *sign, *members[20];
  } groups[] = {
      {"one of `use`, `block`, `model`, `weights`, `recipe`, `cluster`",
       "cluster",
       {"use", "block", "model", "weights", "recipe", "cluster"}},
      {"a rule such as `w = \"model.w\"[a, b]`",
       "from",
       {"ignore", "from", "config", "if", "a name", "a place such as {i}"}},
      {"a value",
       "true",
       {"true", "false", "null", "a name between quotes", "not", "'-'", "'('", "'['", "a number", "a name",
        "an element type"}},
      {"a directive",
       "mesh",
       {
#define DIRECTIVE(NAME, word, ...) #word,
#define LATER DIRECTIVE
#include "lang/directives.def"
           "a directive and its number", "a directive and its word"}},
      {"one of `device`, `host`, `level`", "device", {"device", "host", "level"}},
      {"a statement",
       "param",
       {"param", "state", "update", "repeat", "if", "aux", "return", "axis", "input", "output", "loss",
        "block", "a name"}},
      {"an expression", "'-'", {"'-'", "'('", "not", "a number", "a name", "index", "an element type"}},
      {"an operator", "'+'", {"'+'", "'-'", "'*'", "'/'", "'<'", "'>'", "<=", ">=", "==", "!=", "and", "or"}},
      {"a type", "index", {"index", "an element type"}},
  };
  take_word(e, "a name with ?");  /* where a name can stand, too */
  bool operators = has(e, "'+'"); /* then '-' does not mean an expression */
  static const char *const after_name[] = {"'('", "'['", "'.'", "'='", "as"};
  for (size_t i = 0; operators && i < sizeof after_name / sizeof *after_name; i++)
    take_word(e, after_name[i]);
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    if (!has(e, groups[g].sign) || (operators && groups[g].sign[1] == '-')) continue;
    for (int i = 0; i < 20 && groups[g].members[i]; i++) take_word(e, groups[g].members[i]);
    e->at[e->n++] = groups[g].as;
  }
}

static void put_name(ZbText *out, const char *name) {
  if (name[0] == '\'') zb_text_add(out, "`%c`", name[1]);
  else if (strncmp(name, "one ", 4) == 0 || strncmp(name, "a ", 2) == 0 || strncmp(name, "an ", 3) == 0 ||
           strncmp(name, "end ", 4) == 0)
    zb_text_add(out, "%s", name);
  else zb_text_add(out, "`%s`", name);
}

/* "a name or `]`"; "" when there are too many to be of help. */
static const char *expected_text(ZlParser *ps, ZlExpected *e) {
  ZbText out = {0};
  if (e->n > 0 && e->n <= 6)
    for (int i = 0; i < e->n; i++) {
      zb_text_add(&out, "%s", i == 0 ? "expected " : i == e->n - 1 ? " or " : ", ");
      put_name(&out, e->at[i]);
    }
  const char *s = zb_strdup(ps->arena, out.s ? out.s : "");
  zb_text_free(&out);
  return s;
}

/* The mistake as the user wrote it. */
static const char *found_text(ZlParser *ps) {
  ZlSpan s = ps->last.span;
  if (ps->last.kind == 0) return "end of file";
  return zb_printf(ps->arena, "`%s`", zb_show_n(ps->text + s.start, s.end - s.start));
}

static void missing_brace(ZlParser *ps) {
  ZlSpan open = ps->open[ps->nopen - 1];
  ZlDiag *g = zl_report(ps->diags, ZL_Z0001, ps->last.span, "unexpected %s: a `}` is missing before it",
                        found_text(ps));
  zl_also(g, open, "this `{` is not closed");
  ps->brace_missing = true;
}

/* `y = 2 x` reads as `y = 2` and a statement that begins with x: the mistake is before what was found. */
static bool missing_operator(ZlParser *ps, const ZlExpected *e) {
  const ZlToken *x = &ps->before;
  if (x->kind != IDENT || x->first || ps->last.kind == IDENT || e->n != 2 || !has(e, "'='") || !has(e, "','"))
    return false;
  ZlDiag *g = zl_report(ps->diags, ZL_Z0001, x->span, "unexpected `%s`", x->name.s);
  zl_label(g, "expected an operator, or a statement such as `%s = ...`", x->name.s);
  return true;
}

/* Reports an unknown unit: `80 gb` of a cluster reads as the number 80, and a name where a line may begin. In
 * `sms 132 launch 2 us` it is a comma that is missing. */
static bool unknown_unit(ZlParser *ps, const ZlExpected *e) {
  const char *after = ps->text + ps->last.span.end;
  while (*after == ' ') after++;
  bool constant = *after >= '0' && *after <= '9';
  if (ps->before.kind != NUMBER || ps->last.kind != IDENT || ps->last.first || constant || !has(e, "device"))
    return false;
  ZlDiag *g = zl_report(ps->diags, ZL_Z0001, ps->last.span, "%s is not a unit", found_text(ps));
  zl_help(g,
          "there are `kB`, `MB`, `GB`, ..., `KiB`, ..., these per second as `GB/s`, `GFLOPS`, ..., and `s`, "
          "`ms`, `us`, `ns`");
  return true;
}

/* Returns how one writes here what is written so in other languages; NULL: nothing of that kind. */
static const char *from_elsewhere(ZlParser *ps, const ZlExpected *e) {
  const ZlToken *t = &ps->last, *before = &ps->before;
  char next = ps->text[t->span.end];
  bool sign = t->kind == '+' || t->kind == '-' || t->kind == '*' || t->kind == '/';
  if (t->kind == FOR && !ps->body_depth && has(e, "param"))
    return "depth is `repeat n as layer { ... }`; along axes operations work on whole tensors, so there are "
           "no other loops";
  if (sign && next == '=' && before->kind == IDENT && has(e, "'='")) {
    const char *rest = ps->text + t->span.end + 1;
    rest += strspn(rest, " \t");
    return zb_printf(ps->arena, "write `%s = %s %c %s`", before->name.s, before->name.s, t->kind,
                     zb_show_n(rest, strcspn(rest, " \t\r\n}#")));
  }
  if (before->kind == '[' && (t->kind == NUMBER || t->kind == ':' || t->kind == '-'))
    return "brackets hold names of axes: `slice[a, b](x, start = 0)` takes as many elements of a as b has, "
           "`lookup(x, i)` those "
           "that an index says";
  bool list = t->kind == ',' && before->kind == NUMBER && ps->parens > 1 && ps->body == RECIPE;
  if (list || ((t->kind == '(' || t->kind == '[') && before->kind == '=' && ps->body_depth))
    return "a setting is one number or word: `betas = (0.9, 0.95)` is `b1 = 0.9, b2 = 0.95`";
  if (has(e, "per"))
    return "a loss says by what it is divided: `loss ... per samples()` by the number of samples, `per "
           "known(targets)` by that of "
           "known targets";
  return NULL;
}

void zl_syntax_error(ZlParser *ps, ZlExpected *e) {
  const ZlToken *t = &ps->last;
  bool again = ps->reported && t->span.start == ps->last_error;
  ps->skipping = true;
  if (again || (t->kind == 0 && ps->brace_missing) || (ps->bad_line && !t->first)) return;
  if (ps->nopen && (t->kind == 0 || (t->first && starts_item(t->kind) && t->kind != BLOCK))) {
    missing_brace(ps);
    return;
  }
  bool slash = t->kind == '/' || t->kind == DOTDOT || t->kind == '.';
  if (ps->in_use && slash) {
    ZlDiag *g = zl_report(ps->diags, ZL_Z0007, t->span, "`use` takes names joined by single dots");
    zl_help(g, "write `use std.nn` for std/nn.zug; other folders are given with -I");
    return;
  }
  if (missing_operator(ps, e) || unknown_unit(ps, e)) return;
  bool name = has(e, "a name");
  bool equals = e->n == 1 && has(e, "'='"), after_operand = has(e, "'+'");
  const char *elsewhere = from_elsewhere(ps, e);
  const char *said = ps->body == RECIPE && ps->body_depth && has(e, "mesh") && t->kind == IDENT
                         ? zl_said_elsewhere(t->name.s)
                         : NULL;
  summarise(e);
  ZlDiag *g = zl_report(ps->diags, ZL_Z0001, t->span, "unexpected %s", found_text(ps));
  zl_label(g, "%s", expected_text(ps, e));
  bool next = t->first &&
              (starts_statement(t->kind) || starts_directive(t->kind)); /* the line before is unfinished */
  if (elsewhere) zl_help(g, "%s", elsewhere);
  else if (said) zl_help(g, "write, say, `%s`", said);
  else if (t->kind == AXIS && ps->parens) zl_help(g, "axes stand in brackets: `mean[a](x)`");
  else if (is_word(t->kind) && name && !next)
    zl_help(g, "%s is a word of the language and cannot be a name", found_text(ps));
  else if (t->kind == '*' && ps->before.kind == '*') zl_help(g, "powers are `pow(x, y)`");
  else if (compares(t->kind) && after_operand) zl_help(g, "comparisons do not chain: `a < b and b < c`");
  else if (t->kind == IDENT && equals) zl_help(g, "an assignment is written `name = value`");
}
