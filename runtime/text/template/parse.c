/* Statements of a template. */
#include "runtime/text/template/inside.h"

void *zt_parse_fail(ZtParser *p, uint32_t line, const char *help, const char *fmt, ...) {
  char text[512];
  va_list ap;
  if (p->failed) return NULL;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  p->failed = true;
  zb_fail(p->err, help, "%s:%u: %s", zb_show(p->t->name), line, text);
  return NULL;
}

const char *zt_shown_lexeme(const ZtLexeme *x) {
  static _Thread_local char text[96];
  if (x->kind == ZT_LEX_END) return "the template's end";
  if (x->kind == ZT_LEX_DATA) return "text";
  snprintf(text, sizeof text, x->kind == ZT_LEX_STRING ? "the string '%.60s'" : "`%.60s`", zb_show(x->s));
  return text;
}

bool zt_is(const ZtParser *p, ZtLexKind kind, const char *s) {
  return !p->failed && p->at->kind == kind && (!s || !strcmp(p->at->s, s));
}

bool zt_skip(ZtParser *p, ZtLexKind kind, const char *s) {
  if (!zt_is(p, kind, s)) return false;
  p->at++;
  return true;
}

bool zt_expect(ZtParser *p, ZtLexKind kind, const char *s) {
  if (zt_skip(p, kind, s)) return true;
  if (p->failed) return false;
  if (s) zt_parse_fail(p, p->at->line, NULL, "%s; expected `%s`", zt_shown_lexeme(p->at), s);
  else zt_parse_fail(p, p->at->line, NULL, "%s; expected a name", zt_shown_lexeme(p->at));
  return false;
}

static void block_end(ZtParser *p) { zt_expect(p, ZT_LEX_BLOCK_END, "%}"); }

/* ---- blocks ---------------------------------------------------------------------------------- */
static void add(ZtParser *p, ZtNode *to, ZtNode *x) {
  if (x && !zt_under(p, to, x)) return;
  ZB_PUSH(p->t->a, to->list, to->n, x);
}

static ZtNode *statement(ZtParser *p);

/* Says if {% NAME comes, one of "a|b|c". */
static bool ends(const ZtParser *p, const char *until) {
  if (!until || p->at->kind != ZT_LEX_BLOCK || p->at[1].kind != ZT_LEX_NAME) return false;
  size_t n = p->at[1].n;
  for (const char *s = until; *s; s += strcspn(s, "|") + (s[strcspn(s, "|")] == '|'))
    if (strcspn(s, "|") == n && !memcmp(s, p->at[1].s, n)) return true;
  return false;
}

/* Reads until {% one of `until`, and that name, too; NULL: to the end. */
static ZtNode *block(ZtParser *p, const char *until, const char *what, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_BLOCK, p->at->line);
  while (!p->failed && !ends(p, until)) {
    if (p->at->kind == ZT_LEX_END) {
      if (until)
        zt_parse_fail(p, line, NULL, "{%% %s %%} without its end, {%% %s %%}", what,
                      strrchr(until, '|') ? strrchr(until, '|') + 1 : until);
      return x;
    }
    if (p->at->kind == ZT_LEX_DATA) {
      ZtNode *text = zt_node(p, ZT_DO_TEXT, p->at->line);
      ZtString *s = ZB_NEW(p->t->a, ZtString);
      *s = (ZtString){.s = p->at->s, .n = p->at->n};
      text->value = (ZtValue){.kind = ZT_STRING, .s = s};
      p->at++;
      add(p, x, text);
    } else if (zt_skip(p, ZT_LEX_PRINT, NULL)) {
      ZtNode *print = zt_node(p, ZT_DO_PRINT, p->at->line);
      print->a = zt_under(p, print, zt_parse_tuple(p, true));
      zt_expect(p, ZT_LEX_PRINT_END, "}}");
      add(p, x, print);
    } else {
      p->at++; /* {% */
      ZtNode *s = statement(p);
      if (!p->failed) add(p, x, s);
    }
  }
  if (!p->failed && until) p->at += 2;
  return x;
}

static ZtNode *only_block(ZtParser *p, const char *until, const char *what, uint32_t line) {
  ZtNode *x = block(p, until, what, line);
  block_end(p);
  return x;
}

/* ---- statements ------------------------------------------------------------------------------ */
static ZtNode *parse_if(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_IF, line);
  bool more = true;
  while (more && !p->failed) {
    add(p, x, zt_parse_tuple(p, false));
    block_end(p);
    add(p, x, block(p, "elif|else|endif", "if", line));
    if (p->failed) return NULL;
    more = !strcmp(p->at[-1].s, "elif");
  }
  if (!p->failed && !strcmp(p->at[-1].s, "else")) {
    block_end(p);
    add(p, x, block(p, "endif", "else", line));
  }
  block_end(p);
  return x;
}

static ZtNode *parse_for(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_FOR, line), *target = zt_parse_target(p, false), *condition = NULL,
         *other = NULL;
  add(p, x, target);
  zt_expect(p, ZT_LEX_NAME, "in");
  ZtNode *in = zt_parse_tuple(p, false);
  add(p, x, in);
  if (!p->failed) zt_note_parts(p, in);
  if (zt_skip(p, ZT_LEX_NAME, "if")) condition = zt_parse_expr(p);
  if (zt_is(p, ZT_LEX_NAME, "recursive"))
    return zt_parse_fail(p, line, NULL, "a recursive loop, which is not supported");
  block_end(p);
  p->loops++;
  add(p, x, block(p, "else|endfor", "for", line));
  p->loops--;
  if (p->failed) return NULL;
  if (!strcmp(p->at[-1].s, "else")) {
    block_end(p);
    other = block(p, "endfor", "else", line);
  }
  block_end(p);
  add(p, x, other);
  add(p, x, condition);
  return x;
}

static ZtNode *caught(ZtParser *p) { return zt_node(p, ZT_CAUGHT, p->at->line); }

static ZtNode *parse_set(ZtParser *p, uint32_t line) {
  ZtNode *target = zt_parse_target(p, true), *x;
  if (zt_skip(p, ZT_LEX_SIGN, "=")) {
    x = zt_node(p, ZT_DO_SET, line);
    x->b = zt_under(p, x, zt_parse_tuple(p, true));
    if (!p->failed) zt_note_name(p, target, x->b);
    block_end(p);
  } else {
    x = zt_node(p, ZT_DO_CATCH, line);
    if (zt_is(p, ZT_LEX_SIGN, "|")) x->c = zt_under(p, x, zt_parse_filters(p, caught(p), false));
    block_end(p);
    if (target && target->kind == ZT_MAKE_TUPLE)
      return zt_parse_fail(p, line, NULL, "a {%% set %%} block with several names");
    x->b = zt_under(p, x, only_block(p, "endset", "set", line));
  }
  x->a = zt_under(p, x, target);
  return x;
}

/* "(a, b = 1)", into a macro's parameters. */
static void parameters(ZtParser *p, ZtNode *x) {
  bool defaults = false;
  zt_expect(p, ZT_LEX_SIGN, "(");
  while (!p->failed && !zt_skip(p, ZT_LEX_SIGN, ")")) {
    uint32_t name = zt_parse_name(p), n = x->n;
    ZtNode *value = NULL;
    if (n == ZT_ARGUMENTS) {
      zt_parse_fail(p, p->at->line, NULL, "more than %d parameters", ZT_ARGUMENTS);
      return;
    }
    if (zt_skip(p, ZT_LEX_SIGN, "=")) {
      value = zt_parse_expr(p);
      defaults = true;
    } else if (defaults) zt_parse_fail(p, p->at->line, NULL, "a parameter without a default behind one with");
    ZB_PUSH(p->t->a, x->names, n, name);
    add(p, x, value);
    if (!zt_is(p, ZT_LEX_SIGN, ")")) zt_expect(p, ZT_LEX_SIGN, ",");
  }
}

static ZtNode *parse_macro(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_MACRO, line);
  x->name = zt_parse_name(p);
  parameters(p, x);
  block_end(p);
  uint32_t loops = p->loops;
  p->loops = 0;
  x->a = zt_under(p, x, only_block(p, "endmacro", "macro", line));
  p->loops = loops;
  return x;
}

static ZtNode *parse_call(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_CALL, line), *caller = zt_node(p, ZT_DO_MACRO, line);
  if (zt_is(p, ZT_LEX_SIGN, "(")) parameters(p, caller);
  ZtNode *call = zt_parse_expr(p);
  if (call && call->kind != ZT_CALL)
    return zt_parse_fail(p, line, NULL, "{%% call %%} of something that is not a call");
  x->a = zt_under(p, x, call);
  block_end(p);
  uint32_t loops = p->loops;
  p->loops = 0;
  caller->a = zt_under(p, caller, only_block(p, "endcall", "call", line));
  p->loops = loops;
  x->b = zt_under(p, x, caller);
  return x;
}

static ZtNode *parse_filter(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_FILTER, line);
  x->a = zt_under(p, x, zt_parse_filters(p, caught(p), true));
  block_end(p);
  x->b = zt_under(p, x, only_block(p, "endfilter", "filter", line));
  return x;
}

static ZtNode *parse_with(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_WITH, line);
  while (!p->failed && !zt_is(p, ZT_LEX_BLOCK_END, NULL)) {
    if (x->n) zt_expect(p, ZT_LEX_SIGN, ",");
    ZtNode *target = zt_node(p, ZT_NAME, line);
    target->name = zt_parse_name(p);
    add(p, x, target);
    zt_expect(p, ZT_LEX_SIGN, "=");
    add(p, x, zt_parse_expr(p));
  }
  block_end(p);
  x->a = zt_under(p, x, only_block(p, "endwith", "with", line));
  return x;
}

static ZtNode *parse_generation(ZtParser *p, uint32_t line) {
  ZtNode *x = zt_node(p, ZT_DO_GENERATION, line);
  p->t->generates = true;
  block_end(p);
  x->a = zt_under(p, x, only_block(p, "endgeneration", "generation", line));
  return x;
}

static ZtNode *leave(ZtParser *p, uint32_t line, ZtNodeKind kind, const char *what) {
  if (!p->loops) return zt_parse_fail(p, line, NULL, "{%% %s %%} outside of a loop", what);
  block_end(p);
  return zt_node(p, kind, line);
}
static ZtNode *parse_break(ZtParser *p, uint32_t line) { return leave(p, line, ZT_DO_BREAK, "break"); }
static ZtNode *parse_continue(ZtParser *p, uint32_t line) {
  return leave(p, line, ZT_DO_CONTINUE, "continue");
}

static ZtNode *statement(ZtParser *p) {
  static const struct {
    const char *name;
    ZtNode *(*parse)(ZtParser *p, uint32_t line);
  } known[] = {{"if", parse_if},
               {"for", parse_for},
               {"set", parse_set},
               {"macro", parse_macro},
               {"call", parse_call},
               {"filter", parse_filter},
               {"with", parse_with},
               {"break", parse_break},
               {"continue", parse_continue},
               {"generation", parse_generation}};
  const ZtLexeme *at = p->at;
  if (++p->depth > ZT_TREE_HEIGHT)
    return zt_parse_fail(p, at->line, NULL, "more than %d levels in each other", ZT_TREE_HEIGHT);
  if (!zt_expect(p, ZT_LEX_NAME, NULL)) return NULL;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(at->s, known[i].name)) continue;
    ZtNode *x = known[i].parse(p, at->line);
    p->depth--;
    return p->failed ? NULL : x;
  }
  bool end = zt_starts(at->s, at->n, "end", 3) || !strcmp(at->s, "else") || !strcmp(at->s, "elif");
  return zt_parse_fail(p, at->line, NULL,
                       end ? "{%% %s %%} without its beginning" : "{%% %s %%} is not supported",
                       zb_show(at->s));
}

/* ---- all of it ------------------------------------------------------------------------------- */
/* What is called by its name is a function, or is written somewhere. */
static void check_calls(ZtParser *p) {
  for (uint32_t i = 0; i < p->ncalled; i++) {
    uint32_t name = p->called[i]->name;
    const char *s = p->t->names.name[name];
    if (p->t->written[name] || zt_function(s) || !strcmp(s, "caller")) continue;
    zt_parse_fail(p, p->called[i]->line, NULL, "the function %s() is not supported", zb_show(s));
  }
}

ZtNode *zt_parse(ZtParser *p) {
  /* At least as many as there will be names: each is a lexeme. */
  uint32_t most = 0;
  for (const ZtLexeme *x = p->at; x->kind != ZT_LEX_END; x++) most += x->kind == ZT_LEX_NAME;
  p->t->written = ZB_NEWN(p->t->a, bool, most + 1);
  ZtNode *x = block(p, NULL, NULL, 1);
  if (!p->failed) check_calls(p);
  return p->failed ? NULL : x;
}
