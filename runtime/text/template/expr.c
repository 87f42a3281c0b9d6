/* Expressions of a template, with the binding of Jinja's own parser. */
#include "runtime/text/template/inside.h"

/* ---- nodes ----------------------------------------------------------------------------------- */
ZtNode *zt_node(ZtParser *p, ZtNodeKind kind, uint32_t line) {
  ZtNode *x = ZB_NEW(p->t->a, ZtNode);
  x->kind = kind;
  x->line = line;
  x->height = 1;
  x->name = ZB_NO_NAME;
  return x;
}

ZtNode *zt_under(ZtParser *p, ZtNode *parent, ZtNode *child) {
  if (!child || !parent) return child;
  if (child->height >= ZT_TREE_HEIGHT)
    return zt_parse_fail(p, child->line, NULL, "more than %d levels in each other", ZT_TREE_HEIGHT);
  if (parent->height <= child->height) parent->height = (uint16_t)(child->height + 1);
  return child;
}

/* Adds to the node's list; names[i] is an argument's. */
static void add(ZtParser *p, ZtNode *to, ZtNode *x, uint32_t name) {
  if (x && !zt_under(p, to, x)) return;
  uint32_t n = to->n;
  ZB_PUSH(p->t->a, to->names, n, name);
  ZB_PUSH(p->t->a, to->list, to->n, x);
}

static ZtNode *constant(ZtParser *p, uint32_t line, ZtValue v) {
  ZtNode *x = zt_node(p, ZT_CONST, line);
  x->value = v;
  return x;
}

static ZtValue literal(ZtParser *p, const char *s, size_t n) {
  ZtString *t = ZB_NEW(p->t->a, ZtString);
  *t = (ZtString){.s = s, .n = n};
  return (ZtValue){.kind = ZT_STRING, .s = t};
}

static ZtNode *two(ZtParser *p, ZtNodeKind kind, uint32_t line, ZtNode *a, ZtNode *b) {
  ZtNode *x = zt_node(p, kind, line);
  x->a = zt_under(p, x, a);
  x->b = zt_under(p, x, b);
  return x;
}

/* Counts levels of the parser itself, which calls itself. */
static bool deeper(ZtParser *p) {
  if (p->failed) return false;
  if (++p->depth <= ZT_TREE_HEIGHT) return true;
  zt_parse_fail(p, p->at->line, NULL, "more than %d levels in each other", ZT_TREE_HEIGHT);
  return false;
}

/* ---- arguments ------------------------------------------------------------------------------- */
/* Reads "(a, b, name = c)" into x. */
static void arguments(ZtParser *p, ZtNode *x) {
  bool named = false;
  zt_expect(p, ZT_LEX_SIGN, "(");
  while (!p->failed && !zt_skip(p, ZT_LEX_SIGN, ")")) {
    if (zt_is(p, ZT_LEX_SIGN, "*") || zt_is(p, ZT_LEX_SIGN, "**")) {
      zt_parse_fail(p, p->at->line, NULL, "arguments with %s are not supported", p->at->s);
      return;
    }
    uint32_t name = ZB_NO_NAME;
    if (p->at->kind == ZT_LEX_NAME && p->at[1].kind == ZT_LEX_SIGN && !strcmp(p->at[1].s, "=")) {
      name = zb_names_find(&p->t->names, p->at->s);
      if (name == ZB_NO_NAME) name = zb_names_add(p->t->a, &p->t->names, p->at->s);
      p->at += 2;
      named = true;
    } else if (named) {
      zt_parse_fail(p, p->at->line, NULL, "an argument without a name behind one with");
      return;
    }
    if (x->n == ZT_ARGUMENTS) {
      zt_parse_fail(p, p->at->line, NULL, "more than %d arguments", ZT_ARGUMENTS);
      return;
    }
    add(p, x, zt_parse_expr(p), name);
    if (!zt_is(p, ZT_LEX_SIGN, ")")) zt_expect(p, ZT_LEX_SIGN, ",");
  }
}

static ZtNode *call(ZtParser *p, ZtNode *of) {
  ZtNode *x = zt_node(p, ZT_CALL, p->at->line);
  x->a = zt_under(p, x, of);
  if (of->kind == ZT_ATTRIBUTE && !zt_method_known(of->value.s->s))
    return zt_parse_fail(p, of->line, NULL, "the method .%s() is not supported", zb_show(of->value.s->s));
  if (of->kind == ZT_NAME) ZB_PUSH(p->t->a, p->called, p->ncalled, of);
  arguments(p, x);
  return x;
}

/* ---- behind a value -------------------------------------------------------------------------- */
static ZtNode *subscript(ZtParser *p, ZtNode *of) {
  uint32_t line = p->at->line;
  ZtNode *part[3] = {NULL}, *x;
  zt_expect(p, ZT_LEX_SIGN, "[");
  uint32_t colons = 0;
  while (!p->failed && !zt_is(p, ZT_LEX_SIGN, "]")) {
    if (zt_skip(p, ZT_LEX_SIGN, ":")) {
      if (++colons > 2) return zt_parse_fail(p, line, NULL, "a slice with more than three parts");
    } else if (part[colons])
      return zt_parse_fail(p, p->at->line, NULL, "%s in an index", zt_shown_lexeme(p->at));
    else part[colons] = zt_parse_expr(p);
  }
  zt_expect(p, ZT_LEX_SIGN, "]");
  if (p->failed) return NULL;
  if (!colons && !part[0]) return zt_parse_fail(p, line, NULL, "an index that is empty");
  if (!colons) return two(p, ZT_ITEM, line, of, part[0]);
  x = zt_node(p, ZT_SLICE, line);
  x->a = zt_under(p, x, of);
  for (int i = 0; i < 3; i++) add(p, x, part[i], ZB_NO_NAME);
  return x;
}

static ZtNode *attribute(ZtParser *p, ZtNode *of) {
  ZtNode *x = zt_node(p, ZT_ATTRIBUTE, p->at->line);
  if (p->at->kind == ZT_LEX_INT) {
    ZtNode *at = constant(p, p->at->line, (ZtValue){.kind = ZT_INT, .i = p->at->i});
    p->at++;
    return two(p, ZT_ITEM, x->line, of, at);
  }
  x->a = zt_under(p, x, of);
  x->value = literal(p, p->at->s, p->at->n);
  zt_expect(p, ZT_LEX_NAME, NULL);
  return x;
}

ZtNode *zt_parse_postfix(ZtParser *p, ZtNode *x) {
  while (x && !p->failed) {
    if (zt_skip(p, ZT_LEX_SIGN, ".")) x = attribute(p, x);
    else if (zt_is(p, ZT_LEX_SIGN, "[")) x = subscript(p, x);
    else if (zt_is(p, ZT_LEX_SIGN, "(")) x = call(p, x);
    else break;
  }
  return p->failed ? NULL : x;
}

/* Filters that take the name of another, and `select` and its kind that take a test's, know it when they
 * are loaded. */
static void check_names(ZtParser *p, const ZtNode *x) {
  static const struct {
    const char *filter;
    uint32_t at;
  } takes[] = {{"select", 0}, {"reject", 0}, {"selectattr", 1}, {"rejectattr", 1}, {"map", 0}};
  for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
    const ZtNode *name =
        x->n > takes[i].at && x->names[takes[i].at] == ZB_NO_NAME ? x->list[takes[i].at] : NULL;
    if (strcmp(x->of->name, takes[i].filter) || !name || name->kind != ZT_CONST ||
        name->value.kind != ZT_STRING)
      continue;
    const char *s = name->value.s->s;
    bool map = !strcmp(takes[i].filter, "map");
    if (!(map ? zt_filter(s) : zt_test(s)))
      zt_parse_fail(p, x->line, NULL, "the %s `%s` is not supported", map ? "filter" : "test", zb_show(s));
  }
}

static ZtNode *filter(ZtParser *p, ZtNode *of) {
  ZtNode *x = zt_node(p, ZT_FILTER, p->at->line);
  x->a = zt_under(p, x, of);
  const ZtLexeme *name = p->at;
  if (!zt_expect(p, ZT_LEX_NAME, NULL)) return NULL;
  x->of = zt_filter(name->s);
  if (!x->of) return zt_parse_fail(p, name->line, NULL, "the filter `%s` is not supported", zb_show(name->s));
  if (zt_is(p, ZT_LEX_SIGN, "(")) arguments(p, x);
  if (!p->failed) check_names(p, x);
  return x;
}

static ZtNode *test(ZtParser *p, ZtNode *of) {
  ZtNode *x = zt_node(p, ZT_TEST, p->at->line), *outer = x;
  if (zt_skip(p, ZT_LEX_NAME, "not")) outer = zt_node(p, ZT_NOT, x->line);
  x->a = zt_under(p, x, of);
  const ZtLexeme *name = p->at;
  if (!zt_expect(p, ZT_LEX_NAME, NULL)) return NULL;
  x->of = zt_test(name->s);
  if (!x->of) return zt_parse_fail(p, name->line, NULL, "the test `%s` is not supported", zb_show(name->s));
  ZtLexKind k = p->at->kind;
  bool open = k == ZT_LEX_SIGN && strchr("([{", *p->at->s);
  if (zt_is(p, ZT_LEX_SIGN, "(")) arguments(p, x);
  else if (open || k == ZT_LEX_STRING || k == ZT_LEX_INT || k == ZT_LEX_FLOAT ||
           (k == ZT_LEX_NAME && strcmp(p->at->s, "else") && strcmp(p->at->s, "or") &&
            strcmp(p->at->s, "and"))) {
    if (zt_is(p, ZT_LEX_NAME, "is")) return zt_parse_fail(p, p->at->line, NULL, "a test of a test");
    add(p, x, zt_parse_postfix(p, zt_parse_primary(p)), ZB_NO_NAME);
  }
  if (outer != x) outer->a = zt_under(p, outer, x);
  if (!strcmp(x->of->name, "none")) zt_note_none(p, x->a);
  if (!strcmp(x->of->name, "string")) zt_note_text(p, x->a);
  return outer;
}

ZtNode *zt_parse_filters(ZtParser *p, ZtNode *x, bool first) {
  while (x && !p->failed) {
    if (first || zt_skip(p, ZT_LEX_SIGN, "|")) x = filter(p, x);
    else if (zt_skip(p, ZT_LEX_NAME, "is")) x = test(p, x);
    else if (zt_is(p, ZT_LEX_SIGN, "(")) x = call(p, x);
    else break;
    first = false;
  }
  return p->failed ? NULL : x;
}

/* ---- values ---------------------------------------------------------------------------------- */
static ZtNode *make_list(ZtParser *p) {
  ZtNode *x = zt_node(p, ZT_MAKE_LIST, p->at->line);
  zt_expect(p, ZT_LEX_SIGN, "[");
  while (!p->failed && !zt_skip(p, ZT_LEX_SIGN, "]")) {
    add(p, x, zt_parse_expr(p), ZB_NO_NAME);
    if (!zt_is(p, ZT_LEX_SIGN, "]")) zt_expect(p, ZT_LEX_SIGN, ",");
  }
  return x;
}

static ZtNode *make_dict(ZtParser *p) {
  ZtNode *x = zt_node(p, ZT_MAKE_DICT, p->at->line);
  zt_expect(p, ZT_LEX_SIGN, "{");
  while (!p->failed && !zt_skip(p, ZT_LEX_SIGN, "}")) {
    add(p, x, zt_parse_expr(p), ZB_NO_NAME);
    zt_expect(p, ZT_LEX_SIGN, ":");
    add(p, x, zt_parse_expr(p), ZB_NO_NAME);
    if (!zt_is(p, ZT_LEX_SIGN, "}")) zt_expect(p, ZT_LEX_SIGN, ",");
  }
  return x;
}

static ZtNode *string(ZtParser *p) {
  uint32_t line = p->at->line;
  ZbText t = {0};
  while (p->at->kind == ZT_LEX_STRING) {
    zb_text_put(&t, p->at->s, p->at->n);
    p->at++;
  }
  ZtNode *x = constant(p, line, literal(p, zb_strndup(p->t->a, t.len ? t.s : "", t.len), t.len));
  zb_text_free(&t);
  return x;
}

static ZtNode *name(ZtParser *p) {
  static const struct {
    const char *name;
    ZtValue v;
  } known[] = {{"true", {.kind = ZT_BOOL, .b = true}},
               {"True", {.kind = ZT_BOOL, .b = true}},
               {"false", {.kind = ZT_BOOL, .b = false}},
               {"False", {.kind = ZT_BOOL, .b = false}},
               {"none", {.kind = ZT_NULL}},
               {"None", {.kind = ZT_NULL}}};
  const ZtLexeme *at = p->at++;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(at->s, known[i].name)) return constant(p, at->line, known[i].v);
  ZtNode *x = zt_node(p, ZT_NAME, at->line);
  x->name = zb_names_find(&p->t->names, at->s);
  if (x->name == ZB_NO_NAME) x->name = zb_names_add(p->t->a, &p->t->names, at->s);
  return x;
}

ZtNode *zt_parse_primary(ZtParser *p) {
  const ZtLexeme *at = p->at;
  ZtNode *x = NULL;
  if (!deeper(p)) return NULL;
  if (at->kind == ZT_LEX_NAME) x = name(p);
  else if (at->kind == ZT_LEX_STRING) x = string(p);
  else if (at->kind == ZT_LEX_INT || at->kind == ZT_LEX_FLOAT) {
    ZtValue v = {.kind = ZT_INT, .i = at->i};
    if (at->kind == ZT_LEX_FLOAT) v = (ZtValue){.kind = ZT_FLOAT, .f = at->f};
    x = constant(p, at->line, v);
    p->at++;
  } else if (zt_is(p, ZT_LEX_SIGN, "[")) x = make_list(p);
  else if (zt_is(p, ZT_LEX_SIGN, "{")) x = make_dict(p);
  else if (zt_skip(p, ZT_LEX_SIGN, "(")) {
    if (zt_skip(p, ZT_LEX_SIGN, ")")) x = zt_node(p, ZT_MAKE_TUPLE, at->line);
    else {
      x = zt_parse_tuple(p, true);
      zt_expect(p, ZT_LEX_SIGN, ")");
    }
  } else zt_parse_fail(p, at->line, NULL, "%s where a value is expected", zt_shown_lexeme(at));
  p->depth--;
  return p->failed ? NULL : x;
}

/* ---- operators ------------------------------------------------------------------------------- */
static ZtNode *unary(ZtParser *p, bool filters) {
  uint32_t line = p->at->line;
  ZtNode *x;
  if (!deeper(p)) return NULL;
  if (zt_is(p, ZT_LEX_SIGN, "-") || zt_is(p, ZT_LEX_SIGN, "+")) {
    ZtNodeKind kind = *p->at->s == '-' ? ZT_NEGATIVE : ZT_POSITIVE;
    p->at++;
    x = two(p, kind, line, unary(p, false), NULL);
  } else x = zt_parse_primary(p);
  x = zt_parse_postfix(p, x);
  if (filters) x = zt_parse_filters(p, x, false);
  p->depth--;
  return p->failed ? NULL : x;
}

/* Left to right, by levels: 0 + -, 1 ~, 2 * / // %, 3 **. */
static ZtNode *binary(ZtParser *p, int level) {
  static const struct {
    const char *sign;
    uint8_t op;
    int level;
  } ops[] = {{"+", ZT_ADD, 0},    {"-", ZT_SUB, 0}, {"*", ZT_MUL, 2}, {"/", ZT_DIV, 2},
             {"//", ZT_FLOOR, 2}, {"%", ZT_MOD, 2}, {"**", ZT_POW, 3}};
  if (level == 4) return unary(p, true);
  ZtNode *x = binary(p, level + 1);
  if (level == 1 && zt_is(p, ZT_LEX_SIGN, "~")) {
    ZtNode *list = zt_node(p, ZT_CONCAT, p->at->line);
    add(p, list, x, ZB_NO_NAME);
    while (!p->failed && zt_skip(p, ZT_LEX_SIGN, "~")) add(p, list, binary(p, 2), ZB_NO_NAME);
    return p->failed ? NULL : list;
  }
  for (bool more = true; more && !p->failed;) {
    more = false;
    for (size_t i = 0; i < sizeof ops / sizeof *ops && !more; i++) {
      if (ops[i].level != level || !zt_is(p, ZT_LEX_SIGN, ops[i].sign)) continue;
      uint32_t line = p->at++->line;
      x = two(p, ZT_ARITHMETIC, line, x, binary(p, level + 1));
      x->op = ops[i].op;
      more = true;
    }
  }
  return p->failed ? NULL : x;
}

static uint8_t comparison(ZtParser *p) {
  static const struct {
    const char *sign;
    uint8_t op;
  } ops[] = {{"==", ZT_EQ}, {"!=", ZT_NE}, {"<", ZT_LT}, {"<=", ZT_LE}, {">", ZT_GT}, {">=", ZT_GE}};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (zt_skip(p, ZT_LEX_SIGN, ops[i].sign)) return ops[i].op;
  if (zt_skip(p, ZT_LEX_NAME, "in")) return ZT_IN;
  if (zt_is(p, ZT_LEX_NAME, "not") && p->at[1].kind == ZT_LEX_NAME && !strcmp(p->at[1].s, "in")) {
    p->at += 2;
    return ZT_NOT_IN;
  }
  return 0;
}

static ZtNode *compare(ZtParser *p) {
  ZtNode *first = binary(p, 0), *x = NULL;
  uint32_t line = p->at->line, n = 0;
  for (uint8_t op; !p->failed && (op = comparison(p));) {
    if (!x) {
      x = zt_node(p, ZT_COMPARE, line);
      add(p, x, first, ZB_NO_NAME);
    }
    ZB_PUSH(p->t->a, x->ops, n, op);
    add(p, x, binary(p, 0), ZB_NO_NAME);
  }
  for (uint32_t i = 0; x && !p->failed && i < x->n; i++)
    if (x->list[i]->kind == ZT_CONST && x->list[i]->value.kind == ZT_NULL)
      zt_note_none(p, x->list[i ? i - 1 : 1]);
  return p->failed ? NULL : x ? x : first;
}

static ZtNode *negation(ZtParser *p) {
  uint32_t line = p->at->line;
  if (!zt_skip(p, ZT_LEX_NAME, "not")) return compare(p);
  if (!deeper(p)) return NULL;
  ZtNode *x = two(p, ZT_NOT, line, negation(p), NULL);
  p->depth--;
  return x;
}

static ZtNode *both(ZtParser *p) {
  ZtNode *x = negation(p);
  while (!p->failed && zt_is(p, ZT_LEX_NAME, "and")) {
    uint32_t line = p->at++->line;
    x = two(p, ZT_AND, line, x, negation(p));
  }
  return x;
}

static ZtNode *either(ZtParser *p) {
  ZtNode *x = both(p);
  while (!p->failed && zt_is(p, ZT_LEX_NAME, "or")) {
    uint32_t line = p->at++->line;
    x = two(p, ZT_OR, line, x, both(p));
  }
  return x;
}

ZtNode *zt_parse_expr(ZtParser *p) {
  if (!deeper(p)) return NULL;
  ZtNode *x = either(p);
  while (!p->failed && zt_is(p, ZT_LEX_NAME, "if")) {
    ZtNode *choose = zt_node(p, ZT_CHOOSE, p->at++->line);
    add(p, choose, either(p), ZB_NO_NAME);
    add(p, choose, x, ZB_NO_NAME);
    add(p, choose, !p->failed && zt_skip(p, ZT_LEX_NAME, "else") ? zt_parse_expr(p) : NULL, ZB_NO_NAME);
    x = choose;
  }
  p->depth--;
  return p->failed ? NULL : x;
}

ZtNode *zt_parse_tuple(ZtParser *p, bool conditions) {
  uint32_t line = p->at->line;
  ZtNode *x = conditions ? zt_parse_expr(p) : either(p), *list = NULL;
  while (!p->failed && zt_skip(p, ZT_LEX_SIGN, ",")) {
    if (!list) {
      list = zt_node(p, ZT_MAKE_TUPLE, line);
      add(p, list, x, ZB_NO_NAME);
    }
    ZtLexKind k = p->at->kind;
    if (k == ZT_LEX_PRINT_END || k == ZT_LEX_BLOCK_END || zt_is(p, ZT_LEX_SIGN, ")")) break;
    add(p, list, conditions ? zt_parse_expr(p) : either(p), ZB_NO_NAME);
  }
  return p->failed ? NULL : list ? list : x;
}

/* ---- what is asked of messages --------------------------------------------------------------- */
/* The name of a member: m.name, m["name"], or of a variable. NULL: it is something else. */
static const char *member(const ZtParser *p, const ZtNode *x) {
  if (!x) return NULL;
  if (x->kind == ZT_NAME) return p->t->names.name[x->name];
  if (x->kind == ZT_ATTRIBUTE) return x->value.s->s;
  return x->kind == ZT_ITEM && x->b->kind == ZT_CONST && x->b->value.kind == ZT_STRING ? x->b->value.s->s
                                                                                       : NULL;
}

static bool is_content(const ZtParser *p, const ZtNode *x) {
  const char *s = member(p, x);
  return s && (!strcmp(s, "content") || (x->kind == ZT_NAME && zb_names_find(&p->contents, s) != ZB_NO_NAME));
}

void zt_note_none(ZtParser *p, const ZtNode *x) {
  const char *s = member(p, x);
  if (s && is_content(p, x)) s = "content";
  if (s && zb_names_find(&p->t->asked_none, s) == ZB_NO_NAME) zb_names_add(p->t->a, &p->t->asked_none, s);
}
void zt_note_text(ZtParser *p, const ZtNode *x) { p->t->takes_text |= is_content(p, x); }
void zt_note_parts(ZtParser *p, const ZtNode *x) { p->t->takes_parts |= is_content(p, x); }
void zt_note_name(ZtParser *p, const ZtNode *target, const ZtNode *x) {
  if (target->kind != ZT_NAME || !is_content(p, x)) return;
  zb_names_add(p->t->a, &p->contents, p->t->names.name[target->name]);
}

/* ---- what is written to ---------------------------------------------------------------------- */
uint32_t zt_parse_name(ZtParser *p) {
  static const char *const taken[] = {"true", "false", "none", "True", "False", "None", "loop",
                                      "and",  "or",    "not",  "if",   "else",  "in",   "is"};
  const ZtLexeme *at = p->at;
  if (!zt_expect(p, ZT_LEX_NAME, NULL)) return ZB_NO_NAME;
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
    if (!strcmp(at->s, taken[i])) {
      zt_parse_fail(p, at->line, NULL, "`%s` cannot be written to", at->s);
      return ZB_NO_NAME;
    }
  uint32_t name = zb_names_find(&p->t->names, at->s);
  if (name == ZB_NO_NAME) name = zb_names_add(p->t->a, &p->t->names, at->s);
  p->t->written[name] = true;
  return name;
}

static ZtNode *one_target(ZtParser *p, bool attributes) {
  if (!deeper(p)) return NULL;
  ZtNode *x;
  if (zt_skip(p, ZT_LEX_SIGN, "(")) {
    x = zt_parse_target(p, attributes);
    zt_expect(p, ZT_LEX_SIGN, ")");
  } else {
    x = zt_node(p, ZT_NAME, p->at->line);
    x->name = zt_parse_name(p);
    if (attributes && zt_skip(p, ZT_LEX_SIGN, ".")) x = attribute(p, x);
  }
  p->depth--;
  return p->failed ? NULL : x;
}

ZtNode *zt_parse_target(ZtParser *p, bool attributes) {
  uint32_t line = p->at->line;
  ZtNode *x = one_target(p, attributes), *list = NULL;
  while (!p->failed && zt_skip(p, ZT_LEX_SIGN, ",")) {
    if (!list) {
      list = zt_node(p, ZT_MAKE_TUPLE, line);
      add(p, list, x, ZB_NO_NAME);
    }
    if (p->at->kind != ZT_LEX_NAME && !zt_is(p, ZT_LEX_SIGN, "(")) break;
    if (zt_is(p, ZT_LEX_NAME, "in")) break;
    add(p, list, one_target(p, attributes), ZB_NO_NAME);
  }
  return p->failed ? NULL : list ? list : x;
}
