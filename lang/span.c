/* The files read so far: their text, and from a byte to its line and column. */
#include "lang/internal.h"

#include <string.h>

typedef struct {
  const char *name, *text;
  uint32_t n;
  uint32_t *lines; /* offsets at which lines start */
  uint32_t nlines;
} Source;

struct ZlSources {
  ZbArena *arena;
  Source *at;
  uint32_t n;
};

ZlSources *zl_sources_new(ZbArena *a) {
  ZlSources *s = ZB_NEW(a, ZlSources);
  s->arena = a;
  return s;
}

uint32_t zl_bom(const char *text, size_t n) { return n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; }

int32_t zl_source_add(ZlSources *s, const char *name, const char *text, size_t n) {
  ZB_ASSERT(n <= ZL_MAX_FILE);
  Source f = {.name = zb_strdup(s->arena, name), .text = text, .n = (uint32_t)n};
  ZB_PUSH(s->arena, f.lines, f.nlines, zl_bom(text, n));
  for (uint32_t i = 0; i < f.n; i++)
    if (text[i] == '\n') ZB_PUSH(s->arena, f.lines, f.nlines, i + 1);
  ZB_PUSH(s->arena, s->at, s->n, f);
  return (int32_t)s->n - 1;
}

static const Source *source(const ZlSources *s, int32_t file) {
  ZB_ASSERT(file >= 0 && (uint32_t)file < s->n);
  return &s->at[file];
}

const char *zl_source_name(const ZlSources *s, int32_t file) { return source(s, file)->name; }

const char *zl_source_text(const ZlSources *s, int32_t file, size_t *n) {
  *n = source(s, file)->n;
  return source(s, file)->text;
}

const char *zl_source_line(const ZlSources *s, int32_t file, uint32_t line, uint32_t *len) {
  const Source *f = source(s, file);
  if (line == 0 || line > f->nlines) return NULL;
  uint32_t from = f->lines[line - 1], to = line < f->nlines ? f->lines[line] - 1 : f->n;
  if (to > from && f->text[to - 1] == '\r') to--;
  *len = to - from;
  return f->text + from;
}

void zl_source_at(const ZlSources *s, int32_t file, uint32_t at, uint32_t *line, uint32_t *col) {
  const Source *f = source(s, file);
  uint32_t lo = 0, hi = f->nlines; /* the last line that starts at or before `at` */
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (f->lines[mid] <= at) lo = mid;
    else hi = mid;
  }
  *line = lo + 1;
  *col = at < f->lines[lo] ? 1 : at - f->lines[lo] + 1;
}

void zl_source_place(const ZlSources *s, ZlSpan span, uint32_t *line, uint32_t *col) {
  zl_source_at(s, span.file, span.start, line, col);
}
