/* The formatter, in four steps: the pieces of the source; where lines break, and how many blanks are between
 * two tokens; columns (align.c); the text.
 *
 * Lines stay as their author broke them, but for braces: those of one line stay on it; others end their line,
 * and begin theirs. Blank lines stay too, one at a time and none beside braces. A line is indented by two
 * blanks a brace; what goes on with a statement hangs in the bracket that is open, or below the token of the
 * line above that it was below, or two blanks in. Tables that were lined up stay so. Comments stay what they
 * are. */
#include "lang/format.h"
#include "lang/parse.tab.h"

#include <string.h>

enum { HANG = 4, STEP = 2, TAB = 8 };

/* ---- pieces ---- */
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* `4GB` as "4 GB", `{ i }` as "{i}"; all others are what is written. */
static void set_text(ZbArena *a, ZlPiece *x, const char *text, uint32_t n) {
  x->text = text, x->n = n;
  if (x->kind == QUANTITY) {
    uint32_t digits = (uint32_t)strspn(text, "0123456789_.eE+-"), unit = digits;
    while (is_blank(text[unit])) unit++;
    x->text = zb_printf(a, "%.*s %.*s", (int)digits, text, (int)(n - unit), text + unit);
  } else if (x->kind == PLACE) {
    uint32_t from = 1 + (uint32_t)strspn(text + 1, " \t"), to = from + (uint32_t)strcspn(text + from, " \t}");
    x->text = zb_printf(a, "{%.*s}", (int)(to - from), text + from);
  } else return;
  x->n = (uint32_t)strlen(x->text);
}

/* Where in the source a piece is. */
typedef struct {
  uint32_t column, blanks, newlines;
} Place;

/* What is between two tokens: blanks, newlines and comments, which become pieces. */
static void add_between(ZbArena *a, ZlPieces *p, Place *at, const char *text, uint32_t n) {
  for (uint32_t i = 0; i < n;) {
    if (text[i] == '\n') {
      at->newlines += at->newlines < 2;
      at->column = at->blanks = 0;
      i++;
    } else if (text[i] != '#') {
      uint32_t wide = text[i] == '\t' ? TAB - at->column % TAB : text[i] == ' ';
      at->column += wide, at->blanks += wide;
      i++;
    } else {
      const char *end = memchr(text + i, '\n', n - i);
      uint32_t length = end ? (uint32_t)(end - text) - i : n - i, kept = length;
      while (is_blank(text[i + kept - 1])) kept--;
      ZlPiece x = {.kind = ZL_COMMENT, .text = text + i, .n = kept};
      x.column = at->column, x.blanks = at->blanks, x.newlines = at->newlines;
      ZB_PUSH(a, p->at, p->n, x);
      *at = (Place){at->column + length, 0, 0};
      i += length;
    }
  }
}

typedef struct {
  ZbArena *arena;
  ZlPieces p;
  int *body; /* of each piece: RECIPE, CLUSTER or WEIGHTS if it is in such a body, else 0 */
} Format;

static Format read_pieces(ZbArena *a, ZlSources *s, ZlDiags *d, ZlFile *f) {
  size_t n;
  const char *text = zl_source_text(s, f->id, &n);
  ZlParser ps = {.arena = a, .diags = d, .file = f, .line_start = true};
  Format w = {.arena = a};
  uint32_t nbody = 0;
  zl_scan_open(&ps, text, n);
  Place at = {0};
  for (uint32_t last = ps.pos;;) {
    int body = ps.body_depth ? ps.body : 0;
    ZlToken t = zl_scan_token(&ps);
    uint32_t from = t.kind ? t.span.start : (uint32_t)n;
    add_between(a, &w.p, &at, text + last, from - last);
    if (t.kind) {
      ZlPiece x = {.kind = t.kind, .depth = t.depth - (t.kind == '}')};
      x.column = at.column, x.blanks = at.blanks, x.newlines = at.newlines;
      set_text(a, &x, text + from, t.span.end - from);
      ZB_PUSH(a, w.p.at, w.p.n, x);
      at = (Place){at.column + t.span.end - from, 0, 0};
      last = t.span.end;
    }
    while (nbody < w.p.n) ZB_PUSH(a, w.body, nbody, body);
    if (!t.kind) break;
  }
  zl_scan_close(&ps);
  return w;
}

/* ---- statements ---- */
/* A value or a type may end here. */
static bool ends_value(int kind) {
  switch (kind) {
  case IDENT:
  case NUMBER:
  case STRING:
  case ELEM:
  case TRUTH:
  case UNTRUTH:
  case NOTHING:
  case ')':
  case ']': return true;
  default: return false;
  }
}

/* Whether a statement begins at x, no `}`, after token `last`. In models and maps two names without anything between
 * them are the end of one and the beginning of the next. */
static bool starts(const ZlPiece *last, const ZlPiece *x, int body, bool in_brackets) {
  if (!last || last->kind == '{' || last->kind == '}') return true;
  if (x->kind == FROM) return body == WEIGHTS;
  if (zl_begins(x->kind)) return last->kind != ELSE;
  if (!x->depth || in_brackets || body == RECIPE || body == CLUSTER) return false;
  if (x->kind == IDENT || (x->kind == PLACE && body == WEIGHTS)) return ends_value(last->kind);
  return x->kind == '(' && body == WEIGHTS && (last->kind == ']' || last->kind == STRING);
}

/* ---- blanks ---- */
/* A bracket that belongs to what is before it. In a map `[kv (a b)]` has two dims beside each other. */
static bool hugs(const ZlPiece *last, const ZlPiece *x, bool in_dims) {
  switch (last->kind) {
  case IDENT: return x->kind == '[' || !in_dims;
  case ')':
  case STRING:
  case PLACE: return x->kind == '[';
  case ELEM:
  case INDEX:
  case ']': return true;
  default: return false;
  }
}

static uint32_t blanks(const ZlPiece *last, const ZlPiece *x, int body, bool in_dims) {
  bool recipe = body == RECIPE, directives = recipe || body == CLUSTER;
  if (last->kind == '{' || x->kind == '{' || x->kind == '}') return 1;
  if (x->starts) return directives ? 3 : 2; /* two in one line */
  if (last->kind == '(' || last->kind == '[' || last->kind == '.' || last->prefix) return 0;
  if (strchr("),].:", x->kind < 128 ? x->kind : 'a')) return 0;
  if (recipe && (x->kind == '*' || last->kind == '*')) return 0; /* split kv*grp */
  if (x->kind == '(' || x->kind == '[') return !hugs(last, x, in_dims);
  return 1;
}

/* ---- lines ---- */
typedef struct {
  uint32_t at;     /* its piece */
  uint32_t line;   /* the first piece of its line, ... */
  uint32_t inside; /* ... and what it is followed by there, or ZL_NO_PIECE */
  bool dims, broken;
} Open;

typedef struct {
  Format *f;
  Open *open;
  uint32_t nopen, brackets; /* all; of these ( and [ since the last brace */
  const ZlPiece *last;      /* the last token */
  uint32_t line, above;     /* the first pieces of this line, of the one before, ... */
  uint32_t statement;       /* ... and of the line in which the statement begins */
} Walk;

static bool is_open(int kind) { return kind == '(' || kind == '[' || kind == '{'; }
static bool is_close(int kind) { return kind == ')' || kind == ']' || kind == '}'; }

/* Whether there is a newline between the braces, for each opening one. Braces match: the file has been
 * parsed. */
static bool *find_broken(const Format *f) {
  bool *broken = ZB_NEWN(f->arena, bool, f->p.n + 1);
  uint32_t *open = NULL, n = 0;
  for (uint32_t i = 0; i < f->p.n; i++) {
    const ZlPiece *x = &f->p.at[i];
    for (uint32_t k = n; x->newlines && k-- && !broken[open[k]];) broken[open[k]] = true;
    if (x->kind == '{') ZB_PUSH(f->arena, open, n, i);
    if (x->kind == '}') n--;
  }
  return broken;
}

static uint32_t newlines_before(const Walk *w, uint32_t i, const bool *around) {
  const ZlPiece *x = &w->f->p.at[i], *before = i ? x - 1 : NULL;
  if (!before) return 1;
  bool broken = !around || *around, comment = before->kind == ZL_COMMENT;
  uint32_t least = comment, most = x->newlines;
  if (x->kind == ZL_COMMENT) return before->kind == '{' && most ? 1 : most;
  if (x->kind == '{' || (x->kind == ELSE && w->last && w->last->kind == '}')) return least;
  if (before->kind == '{') return x->kind == '}' ? 0 : broken;
  if (x->kind == '}') return broken;
  if (x->starts) {
    if (before->kind == '}' || x->depth == 0) least = broken;
    return most > least ? most : least;
  }
  return most || least;
}

static bool is_outside(const ZlPiece *x) { return x->nested == 0 && x->kind != ZL_COMMENT; }

/* Where a line begins that goes on with a statement. `next` is the token that it begins with or, if it is a
 * comment, that follows. */
static void hang(Walk *w, ZlPiece *x, const ZlPiece *next) {
  const Format *f = w->f;
  if (w->brackets) {
    const Open *o = &w->open[w->nopen - 1];
    x->anchor = x->hangs = o->inside != ZL_NO_PIECE ? o->inside : o->line;
    x->indent = o->inside == ZL_NO_PIECE && !is_close(next->kind) ? HANG : 0;
    return;
  }
  x->anchor = x->hangs = w->statement, x->indent = STEP;
  for (uint32_t i = w->above; i < w->line; i++) /* w->line is x */
    if (i > w->statement && is_outside(&f->p.at[i]) && f->p.at[i].column == x->column) {
      x->anchor = i, x->indent = 0;
      return;
    }
}

/* A comment that goes on with the one at the end of the line above, below it. */
static bool goes_on(const ZlPiece *x, const ZlPiece *before) {
  return x->kind == ZL_COMMENT && before->kind == ZL_COMMENT && x->newlines == 1 &&
         x->column == before->column && (!before->breaks || before->anchor != ZL_NO_PIECE);
}

static const ZlPiece *next_token(const Format *f, uint32_t i) {
  while (i < f->p.n && f->p.at[i].kind == ZL_COMMENT) i++;
  return i < f->p.n ? &f->p.at[i] : NULL;
}

static void begin_line(Walk *w, uint32_t i, bool in_statement) {
  ZlPiece *x = &w->f->p.at[i];
  w->above = w->line;
  w->line = i;
  x->anchor = x->hangs = ZL_NO_PIECE;
  const ZlPiece *next = next_token(w->f, i);
  if (i && goes_on(x, x - 1)) x->anchor = i - 1;
  else if (in_statement && next) hang(w, x, next);
  else
    x->indent = STEP * (next ? next->depth : 0) + (next && x->kind == ZL_COMMENT && next->kind == '}') * STEP;
}

static void open_bracket(Walk *w, uint32_t i, const bool *broken) {
  const Format *f = w->f;
  const ZlPiece *x = &f->p.at[i], *next = i + 1 < f->p.n ? x + 1 : NULL;
  Open o = {.at = i, .line = w->line, .broken = broken[i], .inside = ZL_NO_PIECE};
  o.dims = x->kind == '[' && w->last && w->last->kind == STRING;
  if (next && !next->newlines && next->kind != ZL_COMMENT) o.inside = i + 1;
  ZB_PUSH(f->arena, w->open, w->nopen, o);
  w->brackets = x->kind == '{' ? 0 : w->brackets + 1;
}

static void close_bracket(Walk *w) {
  if (w->nopen == 0) return;
  w->nopen--;
  w->brackets = 0;
  for (uint32_t k = w->nopen; k-- && w->f->p.at[w->open[k].at].kind != '{';) w->brackets++;
}

static void lay_out(Format *f) {
  const bool *broken = find_broken(f);
  Walk w = {.f = f};
  for (uint32_t i = 0; i < f->p.n; i++) {
    ZlPiece *x = &f->p.at[i];
    const Open *o = w.nopen ? &w.open[w.nopen - 1] : NULL;
    const ZlPiece *next = next_token(f, i);
    bool other = next && next->kind == ELSE && w.last && w.last->kind == '}';
    bool begins_here =
        !next || next->kind == '}' || other || starts(w.last, next, f->body[next - f->p.at], w.brackets);
    if (x->kind != ZL_COMMENT) {
      x->starts = x->kind != '}' && !other && begins_here;
      x->prefix = x->kind == '-' && !(w.last && ends_value(w.last->kind));
      if (i) x->gap = x[-1].kind == ZL_COMMENT ? 0 : blanks(w.last, x, f->body[i], o && o->dims);
    } else x->gap = 2;
    /* Inside brackets of one brace the brace is not the innermost. */
    const bool *around = NULL;
    for (uint32_t k = w.nopen; k-- && !around;)
      if (f->p.at[w.open[k].at].kind == '{') around = &w.open[k].broken;
    x->nested = w.brackets;
    x->breaks = newlines_before(&w, i, around);
    if (x->breaks) begin_line(&w, i, !begins_here);
    if (x->starts) w.statement = w.line;
    if (x->kind == ZL_COMMENT) continue;
    if (is_open(x->kind)) open_bracket(&w, i, broken);
    if (is_close(x->kind)) close_bracket(&w);
    w.last = x;
  }
}

/* ---- text ---- */
static void put_blanks(ZbText *out, uint32_t n) {
  static const char blank[] = "                                ";
  for (uint32_t part; n; n -= part) {
    part = n < sizeof blank - 1 ? n : (uint32_t)sizeof blank - 1;
    zb_text_put(out, blank, part);
  }
}

static void put_text(const Format *f, ZbText *out) {
  const uint32_t *column = zl_columns(f->arena, &f->p);
  uint32_t at = 0;
  for (uint32_t i = 0; i < f->p.n; i++) {
    const ZlPiece *x = &f->p.at[i];
    for (uint32_t k = 0; i && k < x->breaks; k++) zb_text_put(out, "\n", 1), at = 0;
    put_blanks(out, column[i] - at);
    zb_text_put(out, x->text, x->n);
    at = column[i] + x->n;
  }
  if (f->p.n) zb_text_put(out, "\n", 1);
}

/* ---- all of it ---- */
static ZlFile *add_file(ZbArena *a, ZlSources *s, const char *name, const char *text, size_t n) {
  ZlFile *f = ZB_NEW(a, ZlFile);
  f->id = zl_source_add(s, name, text, n);
  return f;
}

/* The same tokens and comments, in the same order. */
static void check_same(const Format *before, const char *name, const ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  const char *text = zb_strndup(a, out->s ? out->s : "", out->len);
  Format after = read_pieces(a, s, zl_diags_new(a, s), add_file(a, s, name, text, out->len));
  bool same = after.p.n == before->p.n;
  for (uint32_t i = 0; same && i < after.p.n; i++) {
    const ZlPiece *x = &before->p.at[i], *y = &after.p.at[i];
    same = x->kind == y->kind && x->n == y->n && !memcmp(x->text, y->text, x->n);
  }
  if (!same) ZB_BUG("%s would not be the same after formatting", name);
  zb_arena_free(a);
}

bool zl_format(ZbArena *a, ZlSources *s, ZlDiags *d, const char *name, const char *text, size_t n,
               ZbText *out) {
  if (n > ZL_MAX_FILE) {
    zl_report(d, ZL_Z0004, ZL_NOWHERE, "%s has %zu bytes; at most %u are read", name, n, ZL_MAX_FILE);
    return false;
  }
  size_t before = zl_errors(d);
  ZlFile *file = add_file(a, s, name, zb_strndup(a, text, n), n);
  zl_parse(a, s, d, file);
  if (zl_errors(d) > before) return false;
  Format f = read_pieces(a, s, d, file);
  lay_out(&f);
  put_text(&f, out);
  check_same(&f, name, out);
  return true;
}
