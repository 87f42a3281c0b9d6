/* Rules of strings, numbers, and of any value: what RFC 8259 lets them be, but that numbers are of few digits and
 * strings have no U+0000. */
#include "runtime/exec/shape/grammar.h"

enum { FRACTION_DIGITS = 17, EXPONENT_DIGITS = 2 };
/* The largest integer, so that readers of 64 bits can take it. */
static const char most[] = "9223372036854775807";

/* ---- strings ---- */
static void byte_set(ZxGrammar *g, uint32_t from, const char *set, uint32_t to, bool counts) {
  for (; *set; set++) {
    ZxEdge *e = zx_edge_bytes(g, from, (uint8_t)*set, (uint8_t)*set, to);
    e->counts = counts;
  }
}

static void range(ZxGrammar *g, uint32_t from, uint8_t low, uint8_t high, uint32_t to, bool counts) {
  ZxEdge *e = zx_edge_bytes(g, from, low, high, to);
  e->counts = counts;
}

static void hex(ZxGrammar *g, uint32_t from, uint32_t to, bool counts) {
  range(g, from, '0', '9', to, counts);
  range(g, from, 'a', 'f', to, counts);
  range(g, from, 'A', 'F', to, counts);
}

/* What follows the first byte of a character of several: `rest` bytes of 80 to BF. */
typedef struct {
  uint8_t low, high, second_low, second_high, rest;
} Lead;
static const Lead leads[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
                             {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2},
                             {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
                             {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};
enum { LEADS = sizeof leads / sizeof *leads };

/* The nodes in which 0, 1 and 2 more bytes of a character are due. */
static void tails(ZxGrammar *g, uint32_t body, uint32_t rule, uint32_t tail[3]) {
  tail[0] = body;
  for (int i = 1; i < 3; i++) {
    tail[i] = zx_node(g, rule);
    range(g, tail[i], 0x80, 0xbf, tail[i - 1], i == 1);
  }
}

/* Characters as they are: from a node to the body of a string, of which they count. */
static void characters(ZxGrammar *g, uint32_t body, uint32_t rule) {
  static const uint8_t plain[][2] = {{' ', '!'}, {'#', '['}, {']', 0x7f}};
  uint32_t tail[3];
  tails(g, body, rule, tail);
  for (int i = 0; i < 3; i++) {
    ZxEdge *e = zx_edge_bytes(g, body, plain[i][0], plain[i][1], body);
    e->guard = ZX_BELOW_MAX;
    e->counts = true;
  }
  for (int i = 0; i < LEADS; i++) {
    uint32_t second = zx_node(g, rule);
    zx_edge_bytes(g, body, leads[i].low, leads[i].high, second)->guard = ZX_BELOW_MAX;
    range(g, second, leads[i].second_low, leads[i].second_high, tail[leads[i].rest - 1], leads[i].rest == 1);
  }
  g->node[body].body = true;
}

/* \u and four digits: not 0000, and of surrogates a high one before a low one. */
static void escapes(ZxGrammar *g, uint32_t body, uint32_t rule) {
  uint32_t n[14];
  for (int i = 0; i < 14; i++) n[i] = zx_node(g, rule);
  uint32_t escape = n[0], u = n[1], d = n[2], *left = n + 3 /* [i]: i digits are due; left[0] is not used */;
  zx_edge_bytes(g, body, '\\', '\\', escape)->guard = ZX_BELOW_MAX;
  byte_set(g, escape, "\"\\/bfnrt", body, true);
  zx_edge_bytes(g, escape, 'u', 'u', u);
  for (int i = 3; i > 1; i--) hex(g, left[i], left[i - 1], false);
  hex(g, left[1], body, true);
  uint32_t zero = n[7], zeros = n[8], zeros3 = n[9];
  range(g, u, '0', '0', zero, false);
  byte_set(g, u, "123456789abcABCefEF", left[3], false);
  byte_set(g, u, "dD", d, false);
  range(g, zero, '0', '0', zeros, false);
  byte_set(g, zero, "123456789abcdefABCDEF", left[2], false);
  range(g, zeros, '0', '0', zeros3, false);
  byte_set(g, zeros, "123456789abcdefABCDEF", left[1], false);
  byte_set(g, zeros3, "123456789abcdefABCDEF", body, true);
  range(g, d, '0', '7', left[2], false);
  uint32_t high = n[10], low = n[11], low_u = n[12], low_d = n[13], last = zx_node(g, rule);
  byte_set(g, d, "89abAB", high, false);
  hex(g, high, last, false);
  hex(g, last, low, false);
  range(g, low, '\\', '\\', low_u, false);
  range(g, low_u, 'u', 'u', low_d, false);
  uint32_t low_half = zx_node(g, rule);
  byte_set(g, low_d, "dD", low_half, false);
  byte_set(g, low_half, "cdefCDEF", left[2], false);
}

/* Notes what escapes may come to need once they are begun. */
static void need_strings(ZxGrammar *g) {
  for (const char *s = "\"\\u0123456789abcdef"; *s; s++) g->needs[*s / 64] |= 1ull << *s % 64;
}

static void string_body(ZxGrammar *g, uint32_t rule, uint32_t body) {
  zx_edge_bytes(g, body, '"', '"', g->rule[rule].end)->guard = ZX_FROM_MIN;
  characters(g, body, rule);
  need_strings(g);
}

uint32_t zx_string_rule(ZxLiterals *l, uint32_t min, uint32_t max) {
  ZxGrammar *g = l->g;
  for (uint32_t i = 0; i < l->nstrings; i++)
    if (l->string[i].min == min && l->string[i].max == max) return l->string[i].rule;
  uint32_t rule = zx_rule(g, min, max), body = zx_node(g, rule);
  zx_edge_bytes(g, g->rule[rule].start, '"', '"', body);
  string_body(g, rule, body);
  escapes(g, body, rule);
  struct ZxStringRule x = {min, max, rule};
  ZB_PUSH(g->a, l->string, l->nstrings, x);
  return rule;
}

/* ---- names of members ---- */
/* Where a node of a tree of names is in its character: bytes that are due, and while the second is, 1 and the number
 * of its lead in `leads`. closed: the name is whole. */
typedef struct {
  uint8_t due, lead;
  bool closed;
} Where;
/* Nodes in which bytes of a character are due that leads out of the tree. */
typedef struct {
  uint32_t body, tail[3], second[LEADS];
} Ways;

static Where behind(Where x, uint8_t b) {
  if (x.due) return (Where){.due = x.due - 1};
  for (uint8_t k = 0; k < LEADS; k++)
    if (b >= leads[k].low && b <= leads[k].high) return (Where){.due = leads[k].rest, .lead = k + 1};
  return (Where){.closed = b == '"'};
}

/* Returns where a byte leads to that no name has there; UINT32_MAX: it may not come. *counts: the character is
 * whole. */
static uint32_t way_out(const Ways *w, Where x, int b, bool *counts) {
  int low = x.lead ? leads[x.lead - 1].second_low : 0x80,
      high = x.lead ? leads[x.lead - 1].second_high : 0xbf;
  *counts = x.due ? x.due == 1 : b < 0x80;
  if (x.due) return b >= low && b <= high ? w->tail[x.due - 1] : UINT32_MAX;
  if (b < 0x80) return b >= ' ' && b != '"' && b != '\\' ? w->body : UINT32_MAX;
  for (int k = 0; k < LEADS; k++)
    if (b >= leads[k].low && b <= leads[k].high) return w->second[k];
  return UINT32_MAX;
}

/* Adds the edges that lead out of a node of the tree; x[..] becomes where its children are. */
static void leave_tree(ZxGrammar *g, const Ways *w, uint32_t node, uint32_t first, Where *x) {
  bool taken[256] = {0}, counts;
  Where here = x[node - first];
  for (uint32_t e = g->node[node].edge; e; e = g->edge[e].next) {
    taken[g->edge[e].low] = true;
    x[g->edge[e].to - first] = behind(here, g->edge[e].low);
  }
  if (here.closed) return;
  for (int b = 0; b < 256; b++) {
    uint32_t to = taken[b] ? UINT32_MAX : way_out(w, here, b, &counts);
    if (to != UINT32_MAX) range(g, node, (uint8_t)b, (uint8_t)b, to, counts);
  }
  if (!here.due && !taken['"']) zx_edge_bytes(g, node, '"', '"', g->rule[g->node[node].rule].end);
}

/* Names that are taken make a tree in front of the body: where a text leaves it, it is another name. Nothing is
 * escaped here, or a name that is taken could be written in another way; so names with a '\' need not be known. */
uint32_t zx_other_name_rule(ZxLiterals *l, const char *const *quoted, uint32_t n) {
  ZxGrammar *g = l->g;
  uint32_t rule = zx_rule(g, 0, ZX_ENDLESS);
  Ways w = {.body = zx_node(g, rule)};
  string_body(g, rule, w.body);
  tails(g, w.body, rule, w.tail);
  for (int k = 0; k < LEADS; k++) {
    w.second[k] = zx_node(g, rule);
    range(g, w.second[k], leads[k].second_low, leads[k].second_high, w.tail[leads[k].rest - 1],
          leads[k].rest == 1);
  }
  uint32_t first = zx_node(g, rule);
  zx_edge_bytes(g, g->rule[rule].start, '"', '"', first);
  for (uint32_t i = 0; i < n; i++)
    if (!strchr(quoted[i], '\\')) zx_edge_text(g, first, quoted[i] + 1, strlen(quoted[i] + 1));
  uint32_t end = g->nnodes;
  Where *x = ZB_NEWN(g->a, Where, end - first);
  for (uint32_t i = first; i < end; i++) leave_tree(g, &w, i, first, x);
  return rule;
}

/* ---- numbers ---- */
/* Adds an integer of 64 bits from a node to another: as long as its digits are those of the largest one it is told
 * apart, since with as many digits it may not become larger. */
static void add_integer(ZxGrammar *g, uint32_t rule, uint32_t from, uint32_t to) {
  enum { SAME, BELOW, ABOVE, KINDS };
  uint32_t first = zx_node(g, rule), now[KINDS], next[KINDS], n = (uint32_t)strlen(most);
  zx_edge_bytes(g, from, '-', '-', first);
  zx_edge_go(g, from, first);
  zx_edge_bytes(g, first, '0', '0', to);
  for (uint32_t i = 0; i < n; i++) {
    uint8_t digit = (uint8_t)most[i];
    for (int k = 0; k < KINDS; k++) {
      next[k] = zx_node(g, rule);
      if (k != ABOVE || i + 1 < n) zx_edge_go(g, next[k], to);
    }
    for (int k = 0; k < KINDS && i; k++)
      if (k != SAME) zx_edge_bytes(g, now[k], '0', '9', next[k]);
    uint32_t at = i ? now[SAME] : first;
    if (digit > '0' + !i) zx_edge_bytes(g, at, '0' + !i, digit - 1, next[BELOW]);
    zx_edge_bytes(g, at, digit, digit, next[SAME]);
    if (digit < '9') zx_edge_bytes(g, at, digit + 1, '9', next[ABOVE]);
    memcpy(now, next, sizeof now);
  }
}

/* Adds 1 to n digits; behind each the number may go on to `to`. */
static void add_digits(ZxGrammar *g, uint32_t rule, uint32_t from, int n, uint32_t to) {
  for (; n; n--) {
    uint32_t next = zx_node(g, rule);
    zx_edge_bytes(g, from, '0', '9', next);
    zx_edge_go(g, next, to);
    from = next;
  }
}

static void need_digits(ZxGrammar *g) {
  for (char c = '0'; c <= '9'; c++) g->needs[c / 64] |= 1ull << c % 64;
}

uint32_t zx_integer_rule(ZxLiterals *l) {
  ZxGrammar *g = l->g;
  if (l->integer) return l->integer;
  l->integer = zx_rule(g, 0, 0);
  need_digits(g);
  add_integer(g, l->integer, g->rule[l->integer].start, g->rule[l->integer].end);
  return l->integer;
}

uint32_t zx_number_rule(ZxLiterals *l) {
  ZxGrammar *g = l->g;
  if (l->number) return l->number;
  uint32_t rule = l->number = zx_rule(g, 0, 0), end = g->rule[rule].end;
  uint32_t whole = zx_node(g, rule), point = zx_node(g, rule), fraction = zx_node(g, rule),
           e = zx_node(g, rule), sign = zx_node(g, rule);
  need_digits(g);
  add_integer(g, rule, g->rule[rule].start, whole);
  zx_edge_bytes(g, whole, '.', '.', point);
  add_digits(g, rule, point, FRACTION_DIGITS, fraction);
  zx_edge_go(g, whole, fraction);
  byte_set(g, fraction, "eE", e, false);
  byte_set(g, e, "+-", sign, false);
  zx_edge_go(g, e, sign);
  add_digits(g, rule, sign, EXPONENT_DIGITS, end);
  zx_edge_go(g, fraction, end);
  return rule;
}

/* ---- any value ---- */
/* Adds a list or an object of any values: their first node is behind the bracket. */
static void add_members(ZxLiterals *l, uint32_t rule, const char *brackets) {
  ZxGrammar *g = l->g;
  uint32_t end = g->rule[rule].end, open = zx_node(g, rule), item = zx_node(g, rule), value = item,
           next = zx_node(g, rule), more = zx_node(g, rule);
  bool object = *brackets == '{';
  char first[2] = {brackets[0]}, last[2] = {brackets[1]};
  zx_edge_text_to(g, g->rule[rule].start, first, open);
  zx_edge_text_to(g, open, last, end);
  zx_edge_go(g, open, item);
  if (object) {
    uint32_t named = zx_node(g, rule), colon = zx_node(g, rule);
    zx_edge_call(g, item, zx_string_rule(l, 0, ZX_ENDLESS), named);
    zx_edge_text_to(g, named, ":", colon);
    value = zx_blank(g, colon);
  }
  zx_edge_call(g, value, zx_any_rule(l), next);
  zx_edge_text_to(g, next, last, end);
  zx_edge_text_to(g, next, ",", more);
  zx_edge_go(g, zx_blank(g, more), item);
}

uint32_t zx_any_object_rule(ZxLiterals *l) {
  if (l->any_object) return l->any_object;
  l->any_object = zx_rule(l->g, 0, 0);
  add_members(l, l->any_object, "{}");
  return l->any_object;
}

uint32_t zx_any_rule(ZxLiterals *l) {
  ZxGrammar *g = l->g;
  if (l->any) return l->any;
  uint32_t rule = l->any = zx_rule(g, 0, 0), start = g->rule[rule].start, end = g->rule[rule].end;
  zx_edge_text_to(g, start, "null", end);
  zx_edge_text_to(g, start, "true", end);
  zx_edge_text_to(g, start, "false", end);
  zx_edge_call(g, start, zx_string_rule(l, 0, ZX_ENDLESS), end);
  zx_edge_call(g, start, zx_number_rule(l), end);
  zx_edge_call(g, start, zx_any_object_rule(l), end);
  add_members(l, rule, "[]");
  return rule;
}
