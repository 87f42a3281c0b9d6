/* Collecting messages about a source text and printing them, for people and for programs. */
#include "lang/internal.h"

#include <stdlib.h>
#include <string.h>

enum {
  MAX_KEPT = 100, /* further reports are counted, not kept: nobody reads them */
  MAX_TEXT = 2000 /* bytes of a message, a label, a note or a help */
};

typedef enum { ERROR, WARNING } Severity;
static const struct {
  const char *name;
  Severity severity;
} codes[ZL_CODE_COUNT] = {
#define E(code, severity, title) {#code, severity},
#include "lang/errors.def"
};

typedef struct {
  ZlSpan span;
  const char *text; /* "" for none */
} Label;

struct ZlDiag {
  ZlDiags *all;
  ZlCode code;
  const char *text;
  Label *labels; /* the first is the primary one */
  uint32_t nlabels;
  const char **notes, **helps;
  uint32_t nnotes, nhelps;
};

struct ZlDiags {
  ZbArena *arena;
  ZlSources *sources;
  ZlDiag **at;
  uint32_t n;
  size_t errors, warnings, dropped;
  bool passing;
  ZlDiag nowhere; /* a report that is not kept: what is added to it takes no memory */
};

ZlDiags *zl_diags_new(ZbArena *a, ZlSources *s) {
  ZlDiags *d = ZB_NEW(a, ZlDiags);
  d->arena = a;
  d->sources = s;
  d->nowhere.all = d;
  return d;
}

size_t zl_errors(const ZlDiags *d) { return d->errors; }
size_t zl_warnings(const ZlDiags *d) { return d->warnings; }
const char *zl_first_error(const ZlDiags *d) {
  for (uint32_t i = 0; i < d->n; i++)
    if (codes[d->at[i]->code].severity == ERROR) return d->at[i]->text;
  return NULL;
}
bool zl_passing(const ZlDiags *d) { return d->passing; }
bool zl_full(const ZlDiags *d) { return d->n == MAX_KEPT; }
const char *zl_code_name(ZlCode code) { return codes[code].name; }

const char *zl_explain(const char *code) {
  for (const char *const *e = zl_errors_md; *e; e += 2)
    if (strcmp(e[0], code) == 0) return e[1];
  return NULL;
}

/* ---- collecting ---- */
/* Text that a terminal and a reader of JSON can take, whatever names it holds; the end of what is very long
 * is left out. */
static const char *shown(ZbArena *a, const char *s, size_t n) {
  size_t good = 0;
  for (size_t bytes; good < n && (bytes = zb_plain(s + good, n - good)); good += bytes) {}
  if (good == n && n <= MAX_TEXT) return s;
  ZbText t = {0};
  zb_text_show(&t, s, n < MAX_TEXT ? n : MAX_TEXT);
  if (n > MAX_TEXT) zb_text_add(&t, "... (%zu bytes)", n);
  const char *clean = zb_strndup(a, t.s, t.len);
  zb_text_free(&t);
  return clean;
}

static const char *formatted(ZbArena *a, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n < 0) ZB_BUG("format '%s'", fmt);
  char *s = zb_alloc(a, (size_t)n + 1);
  vsnprintf(s, (size_t)n + 1, fmt, again);
  va_end(again);
  return shown(a, s, (size_t)n);
}
#define FORMATTED(var, arena, fmt)                                                                           \
  va_list ap;                                                                                                \
  va_start(ap, fmt);                                                                                         \
  const char *var = formatted(arena, fmt, ap);                                                               \
  va_end(ap)

static bool same_span(ZlSpan a, ZlSpan b) {
  return a.file == b.file && (a.file < 0 || (a.start == b.start && a.end == b.end));
}

static bool is_kept(const ZlDiag *g) { return g != &g->all->nowhere; }

static bool said_already(const ZlDiags *d, ZlCode code, ZlSpan span, const char *text) {
  for (uint32_t i = 0; i < d->n; i++) {
    const ZlDiag *o = d->at[i];
    if (o->code == code && same_span(o->labels[0].span, span) && strcmp(o->text, text) == 0) return true;
  }
  return false;
}

ZlDiag *zl_report(ZlDiags *d, ZlCode code, ZlSpan span, const char *fmt, ...) {
  ZbArena *tmp = zb_arena_new();
  FORMATTED(text, tmp, fmt);
  ZlDiag *g = &d->nowhere;
  bool again = said_already(d, code, span, text);
  if (!again && codes[code].severity == ERROR) d->errors++;
  else if (!again) d->warnings++;
  if (!again && d->n == MAX_KEPT) {
    d->dropped++;
  } else if (!again) {
    g = ZB_NEW(d->arena, ZlDiag);
    *g = (ZlDiag){.all = d, .code = code, .text = zb_strdup(d->arena, text)};
    ZB_PUSH(d->arena, g->labels, g->nlabels, ((Label){span, ""}));
    ZB_PUSH(d->arena, d->at, d->n, g);
  }
  zb_arena_free(tmp);
  return g;
}

ZlDiag *zl_report_unread(ZlDiags *d, ZlCode code, ZlSpan span, const ZbErr *err) {
  ZlDiag *g = zl_report(d, code, span, "%s", err->text);
  if (*err->help) zl_help(g, "%s", err->help);
  d->passing |= err->passing;
  return g;
}

ZlDiag *zl_report_again(ZlDiags *d, ZlCode code, ZlSpan span) {
  for (uint32_t i = 0; i < d->n; i++)
    if (d->at[i]->code == code && same_span(d->at[i]->labels[0].span, span)) return &d->nowhere;
  return NULL;
}

void zl_label(ZlDiag *d, const char *fmt, ...) {
  if (!is_kept(d)) return;
  FORMATTED(text, d->all->arena, fmt);
  d->labels[0].text = text;
}

void zl_also(ZlDiag *d, ZlSpan span, const char *fmt, ...) {
  if (!is_kept(d)) return;
  FORMATTED(text, d->all->arena, fmt);
  if (span.file < 0) return;
  ZB_PUSH(d->all->arena, d->labels, d->nlabels, ((Label){span, text}));
}

void zl_note(ZlDiag *d, const char *fmt, ...) {
  if (!is_kept(d)) return;
  FORMATTED(text, d->all->arena, fmt);
  ZB_PUSH(d->all->arena, d->notes, d->nnotes, text);
}

void zl_help(ZlDiag *d, const char *fmt, ...) {
  if (!is_kept(d)) return;
  FORMATTED(text, d->all->arena, fmt);
  ZB_PUSH(d->all->arena, d->helps, d->nhelps, text);
}

void zl_help_nearest(ZlDiag *d, const char *name, const char *const *names, size_t n) {
  const char *near = zb_nearest(name, names, n);
  if (near) zl_help(d, "did you mean `%s`?", near);
}

/* ---- text: one source line with its marks ----
 * Labels of one line: all marks in one row, the text of the rightmost beside its mark, the texts of the
 * others below theirs, from right to left:
 *
 *    17 |     q = dot[embed](x, wq) + bo
 *       |         ^^^^^^^^^^^^^^^^^   -- [embed]
 *       |         [batch, seq, head, hd]
 */
#define SHOWN 160 /* columns of a source line that are shown at most */

typedef struct {
  uint32_t line, from, to; /* columns in characters, from 0; to > from */
  const char *text;
  char mark;
} Mark;

/* Returns the columns that the character at s[0..n) takes on a terminal, and its bytes. A character that is not
 * plain is shown as one `?` per byte. */
static uint32_t width_of(const char *s, uint32_t n, uint32_t *bytes) {
  static const struct {
    uint32_t from, to, width;
  } other[] = {{0x300, 0x36f, 0},     {0x1100, 0x115f, 2},  {0x200b, 0x200d, 0}, {0x20d0, 0x20ff, 0},
               {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},  {0xf900, 0xfaff, 2}, {0xfe00, 0xfe0f, 0},
               {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},  {0xffe0, 0xffe6, 2}, {0x1f300, 0x1f64f, 2},
               {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2}};
  *bytes = 1;
  if ((unsigned char)*s < 0x80) return 1;
  *bytes = (uint32_t)zb_plain(s, n);
  if (*bytes == 0) return *bytes = 1;
  uint32_t c = (unsigned char)*s & (0xffu >> (*bytes + 1));
  for (uint32_t i = 1; i < *bytes; i++) c = c << 6 | ((unsigned char)s[i] & 0x3f);
  for (size_t i = 0; i < sizeof other / sizeof *other; i++)
    if (c >= other[i].from && c <= other[i].to) return other[i].width;
  return 1;
}

/* Columns before byte `at` of a line of `len` bytes: what a caret must skip. */
static uint32_t columns(const char *line, uint32_t len, uint32_t at) {
  uint32_t c = 0, bytes;
  for (uint32_t i = 0; i < at; i += bytes) c += width_of(line + i, len - i, &bytes);
  return c;
}

static Mark mark_of(const ZlSources *s, const Label *l, bool primary) {
  Mark m = {.text = l->text, .mark = primary ? '^' : '-'};
  uint32_t col, len, end_line, end_col;
  zl_source_place(s, l->span, &m.line, &col);
  zl_source_at(s, l->span.file, l->span.end, &end_line, &end_col);
  const char *text = zl_source_line(s, l->span.file, m.line, &len);
  uint32_t from = col - 1 < len ? col - 1 : len;
  uint32_t to = end_line > m.line ? len : end_col - 1;
  if (to > len) to = len;
  if (to < from) to = from;
  if (to - from > 16 * SHOWN) to = from + 16 * SHOWN; /* further than is shown */
  m.from = columns(text, len, from);
  m.to = m.from + columns(text + from, len - from, to - from);
  if (m.to == m.from) m.to++;
  return m;
}

static void spaces(ZbText *out, uint32_t n) {
  while (n--) zb_text_put(out, " ", 1);
}

static void gutter(ZbText *out, uint32_t width, const char *what) {
  spaces(out, width);
  zb_text_add(out, " %s", what);
}

/* Part of a source line, safe for a terminal: tabs become one space, what is not plain `?`. */
static void put_line(ZbText *out, const char *text, uint32_t len, uint32_t skip, uint32_t room) {
  uint32_t c = 0, bytes;
  for (uint32_t i = 0; i < len && c < skip + room; i += bytes) {
    uint32_t before = c;
    c += width_of(text + i, len - i, &bytes);
    if (c > skip + room) break;
    if (before < skip) { /* of a wide character one half may be in sight */
      for (uint32_t k = skip; k < c; k++) zb_text_put(out, " ", 1);
      continue;
    }
    bool plain = bytes > 1 || zb_plain(text + i, 1);
    zb_text_put(out, plain ? text + i : text[i] == '\t' ? " " : "?", bytes);
  }
}

static int by_column(const void *a, const void *b) {
  const Mark *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

/* The texts of marks at[0..n) other than those already said (text ""), from right to left. */
static void put_texts(ZbText *out, const Mark *at, uint32_t n, uint32_t skip, uint32_t width) {
  for (uint32_t i = n; i-- > 0;) {
    if (!*at[i].text) continue;
    gutter(out, width, "| ");
    uint32_t col = 0;
    for (uint32_t j = 0; j < i; j++)
      if (*at[j].text && at[j].from - skip >= col && at[j].from < at[i].from) {
        spaces(out, at[j].from - skip - col);
        zb_text_put(out, "|", 1);
        col = at[j].from - skip + 1;
      }
    spaces(out, at[i].from - skip - col);
    zb_text_add(out, "%s\n", at[i].text);
  }
}

static void put_marked(ZbText *out, const ZlSources *s, int32_t file, Mark *at, uint32_t n, uint32_t width) {
  uint32_t len;
  const char *text = zl_source_line(s, file, at[0].line, &len);
  qsort(at, n, sizeof *at, by_column);
  uint32_t skip = at[0].from > SHOWN / 2 && columns(text, len, len < 16 * SHOWN ? len : 16 * SHOWN) > SHOWN
                      ? at[0].from - SHOWN / 2
                      : 0;
  zb_text_add(out, "%*u | ", (int)width, at[0].line);
  put_line(out, text, len, skip, SHOWN);
  zb_text_add(out, "\n");

  char row[SHOWN + 2];
  uint32_t end = 0;
  memset(row, ' ', sizeof row);
  for (uint32_t i = 0; i < n; i++) { /* marks that start later lie on top of those around them */
    for (uint32_t c = at[i].from - skip; c < at[i].to - skip && c <= SHOWN; c++) {
      row[c] = at[i].mark;
      if (c + 1 > end) end = c + 1;
    }
  }
  gutter(out, width, "| ");
  zb_text_put(out, row, end);
  if (*at[n - 1].text && at[n - 1].to - skip >= end) {
    zb_text_add(out, " %s", at[n - 1].text);
    at[n - 1].text = "";
  }
  zb_text_add(out, "\n");
  put_texts(out, at, n, skip, width);
}

/* ---- text: one report ---- */
static void put_file(ZbText *out, const ZlDiag *g, int32_t file, uint32_t width) {
  const ZlSources *s = g->all->sources;
  Mark *marks = NULL, *row = NULL;
  uint32_t n = 0, last = 0;
  for (uint32_t i = 0; i < g->nlabels; i++)
    if (g->labels[i].span.file == file) ZB_PUSH(g->all->arena, marks, n, mark_of(s, &g->labels[i], i == 0));
  row = ZB_NEWN(g->all->arena, Mark, n);
  gutter(out, width, "|\n");
  for (;;) { /* lines in ascending order */
    uint32_t line = UINT32_MAX, k = 0;
    for (uint32_t i = 0; i < n; i++)
      if (marks[i].line > last && marks[i].line < line) line = marks[i].line;
    if (line == UINT32_MAX) break;
    if (last && line > last + 1) zb_text_add(out, "...\n");
    for (uint32_t i = 0; i < n; i++)
      if (marks[i].line == line) row[k++] = marks[i];
    put_marked(out, s, file, row, k, width);
    last = line;
  }
}

static void print_one(const ZlDiag *g, ZbText *out) {
  const ZlSources *s = g->all->sources;
  uint32_t width = 1, line, col;
  for (uint32_t i = 0; i < g->nlabels; i++) {
    if (g->labels[i].span.file < 0) continue;
    zl_source_place(s, g->labels[i].span, &line, &col);
    uint32_t digits = (uint32_t)snprintf(NULL, 0, "%u", line);
    if (digits > width) width = digits;
  }
  zb_text_add(out, "%s[%s]: %s\n", codes[g->code].severity == ERROR ? "error" : "warning",
              codes[g->code].name, g->text);
  for (uint32_t i = 0; i < g->nlabels; i++) {
    int32_t file = g->labels[i].span.file;
    bool seen = file < 0;
    for (uint32_t j = 0; j < i; j++) seen |= g->labels[j].span.file == file;
    if (seen) continue;
    zl_source_place(s, g->labels[i].span, &line, &col);
    spaces(out, width);
    const char *name = zl_source_name(s, file);
    zb_text_add(out, "%s %s:%u:%u\n", i == 0 ? "-->" : ":::", shown(g->all->arena, name, strlen(name)), line,
                col);
    put_file(out, g, file, width);
  }
  for (uint32_t i = 0; i < g->nnotes; i++) {
    gutter(out, width, "= note: ");
    zb_text_add(out, "%s\n", g->notes[i]);
  }
  for (uint32_t i = 0; i < g->nhelps; i++) {
    gutter(out, width, "= help: ");
    zb_text_add(out, "%s\n", g->helps[i]);
  }
  zb_text_add(out, "\n");
}

void zl_print_text(const ZlDiags *d, ZbText *out) {
  for (uint32_t i = 0; i < d->n; i++) print_one(d->at[i], out);
  if (d->dropped) zb_text_add(out, "... and %zu more\n\n", d->dropped);
}

/* ---- JSON: one object a line ---- */
static void put_place(ZbJson *j, const ZlDiags *d, ZlSpan span) {
  const ZlSources *s = d->sources;
  if (span.file < 0) return;
  uint32_t line, col;
  const char *name = zl_source_name(s, span.file);
  zb_json_string(j, "file", shown(d->arena, name, strlen(name)));
  zl_source_place(s, span, &line, &col);
  zb_json_count(j, "line", line);
  zb_json_count(j, "column", col);
  zl_source_at(s, span.file, span.end, &line, &col);
  zb_json_count(j, "end_line", line);
  zb_json_count(j, "end_column", col);
}

static void put_strings(ZbJson *j, const char *key, const char **at, uint32_t n) {
  zb_json_list(j, key);
  for (uint32_t i = 0; i < n; i++) zb_json_string(j, NULL, at[i]);
  zb_json_end(j);
}

void zl_print_json(const ZlDiags *d, ZbText *out) {
  for (uint32_t i = 0; i < d->n; i++) {
    const ZlDiag *g = d->at[i];
    ZbJson j = {.text = out};
    zb_json_object(&j, NULL);
    zb_json_string(&j, "severity", codes[g->code].severity == ERROR ? "error" : "warning");
    zb_json_string(&j, "code", codes[g->code].name);
    zb_json_string(&j, "message", g->text);
    put_place(&j, d, g->labels[0].span);
    if (*g->labels[0].text) zb_json_string(&j, "label", g->labels[0].text);
    zb_json_list(&j, "also");
    for (uint32_t k = 1; k < g->nlabels; k++) {
      zb_json_object(&j, NULL);
      put_place(&j, d, g->labels[k].span);
      zb_json_string(&j, "label", g->labels[k].text);
      zb_json_end(&j);
    }
    zb_json_end(&j);
    put_strings(&j, "notes", g->notes, g->nnotes);
    put_strings(&j, "help", g->helps, g->nhelps);
    zb_json_end(&j);
    zb_text_add(out, "\n");
  }
}
