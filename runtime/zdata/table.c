/* zdata table: a CSV file becomes records of real numbers and a class. The file is read twice: first for the
 * classes and the number of columns, then for the values. */
#include "runtime/zdata/zdata.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CLASSES = 1 << 16, MAX_ROW = 64 << 20 /* bytes: more is a quote that is not closed */ };

/* ---- rows of a CSV file (RFC 4180) ---- */
typedef struct {
  FILE *f;
  const char *path; /* as messages have it */
  uint64_t line;    /* where the row begins, from 1 */
  uint64_t next;
  ZbText text;  /* all cells, each with a NUL */
  size_t *cell; /* offsets in text */
  size_t ncell, cap;
} Csv;

static void begin_cell(Csv *c) {
  if (c->ncell == c->cap) {
    c->cap = c->cap ? 2 * c->cap : 64;
    c->cell = realloc(c->cell, zb_array_bytes(c->cap, sizeof *c->cell));
    if (!c->cell) zb_out_of_memory(0);
  }
  c->cell[c->ncell++] = c->text.len;
}

static const char *cell(const Csv *c, size_t i) { return c->text.s + c->cell[i]; }

/* The next row that is not empty; false at the end of the file (err->text stays empty) or with a message. */
static bool row(Csv *c, ZbErr *err) {
  bool quoted = false, was_quoted = false, any = false;
  c->text.len = c->ncell = 0;
  c->line = c->next;
  begin_cell(c);
  for (int x; (x = getc_unlocked(c->f)) != EOF;) {
    char b = (char)x;
    if (x == '\n') c->next++;
    if (c->text.len > MAX_ROW)
      return zb_fail(err, "is a quote not closed?", "%s:%" PRIu64 ": a row of more than %d bytes", c->path,
                     c->line, MAX_ROW);
    if (!x) return zb_fail(err, NULL, "%s:%" PRIu64 ": a NUL byte: this is not text", c->path, c->line);
    if (quoted && x == '"') {
      int y = getc_unlocked(c->f);
      if (y == '"') zb_text_put(&c->text, "\"", 1);
      else {
        quoted = false;
        was_quoted = true;
        ungetc(y, c->f); /* EOF is not put back, and comes again */
      }
    } else if (quoted) zb_text_put(&c->text, &b, 1);
    else if (x == '"' && c->text.len == c->cell[c->ncell - 1] && !was_quoted) quoted = any = true;
    else if (x == ',') {
      zb_text_put(&c->text, "", 1);
      begin_cell(c);
      was_quoted = false;
      any = true;
    } else if (x == '\n' && any) {
      zb_text_put(&c->text, "", 1);
      return true;
    } else if (x == '\n') c->line = c->next;
    else if (x != '\r') {
      zb_text_put(&c->text, &b, 1);
      any = true;
    }
  }
  if (ferror(c->f)) return zb_fail(err, NULL, "cannot read %s: %s", c->path, strerror(errno));
  if (quoted) return zb_fail(err, NULL, "%s:%" PRIu64 ": a quote is not closed", c->path, c->line);
  zb_text_put(&c->text, "", 1);
  return any;
}

/* ---- what the table is ---- */
typedef struct {
  Csv csv;
  bool header;
  size_t label, ncell; /* the label's column; all columns */
  char **name;         /* of columns; NULL without a header */
  char **class;        /* sorted */
  size_t nclass;
  bool numbers;    /* all labels are whole numbers from -1: they are their own ids */
  int64_t largest; /* of these */
  uint64_t rows;
  ZbArena *a;
} Table;

static bool number(const char *s, double *out) {
  char *end;
  double x = strtod(s, &end);
  if (end == s) return false;
  while (*end == ' ' || *end == '\t') end++;
  *out = x;
  return !*end && isfinite(x);
}

static const char *column(const Table *t, size_t i) {
  return t->name ? t->name[i] : zb_printf(t->a, "%zu", i + 1);
}

/* The first row tells the number of columns, and whether it is a header: if it has anything but numbers
 * beside the label. */
static bool first_row(Table *t, const char *label, ZbErr *err) {
  Csv *c = &t->csv;
  double x;
  uint64_t at;
  if (!row(c, err)) return err->text[0] ? false : zb_fail(err, NULL, "%s is empty", c->path);
  t->ncell = c->ncell;
  t->label = zd_whole(label, 1, &at) && at <= c->ncell ? at - 1 : SIZE_MAX;
  for (size_t i = 0; i < c->ncell; i++) t->header |= i != t->label && !number(cell(c, i), &x);
  if (t->header) {
    t->name = ZB_NEWN(t->a, char *, t->ncell);
    for (size_t i = 0; i < t->ncell; i++) t->name[i] = zb_strdup(t->a, cell(c, i));
    for (size_t i = 0; i < t->ncell; i++)
      if (!strcmp(t->name[i], label)) t->label = i;
  }
  if (t->label == SIZE_MAX) {
    const char *near = t->header ? zb_nearest(label, (const char *const *)t->name, t->ncell) : NULL;
    char help[128] = "give its number, from 1";
    if (near) snprintf(help, sizeof help, "did you mean '%.80s'?", zb_show(near));
    return zb_fail(err, help, "%s has no column '%s'%s", c->path, zb_show(label),
                   t->header ? "" : ", and no first row with names");
  }
  if (t->ncell < 2) return zb_fail(err, NULL, "%s has no column beside '%s'", c->path, zb_show(label));
  return true;
}

static bool same_width(const Table *t, ZbErr *err) {
  const Csv *c = &t->csv;
  if (c->ncell == t->ncell) return true;
  return zb_fail(err, NULL, "%s:%" PRIu64 ": %zu columns, where the first row has %zu", c->path, c->line,
                 c->ncell, t->ncell);
}

/* Where `s` is among the classes, or would be. */
static size_t class_at(const Table *t, const char *s) {
  size_t lo = 0, hi = t->nclass;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (strcmp(t->class[mid], s) < 0) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

static bool add_class(Table *t, const char *s, ZbErr *err) {
  size_t at = class_at(t, s);
  if (at < t->nclass && !strcmp(t->class[at], s)) return true;
  if (t->nclass == MAX_CLASSES)
    return zb_fail(err, "is it the right column?", "%s:%" PRIu64 ": more than %d different labels in '%s'",
                   t->csv.path, t->csv.line, MAX_CLASSES, zb_show(column(t, t->label)));
  ZB_PUSH(t->a, t->class, t->nclass, NULL);
  memmove(t->class + at + 1, t->class + at, (t->nclass - 1 - at) * sizeof *t->class);
  t->class[at] = zb_strdup(t->a, s);
  return true;
}

/* Classes and rows; leaves the file at its end. */
static bool survey(Table *t, ZbErr *err) {
  Csv *c = &t->csv;
  t->numbers = true;
  for (bool more = !t->header || row(c, err); more;
       more = row(c, err)) { /* without a header, row 1 is there */
    if (!same_width(t, err)) return false;
    const char *s = cell(c, t->label);
    double x;
    if (!*s)
      return zb_fail(err, NULL, "%s:%" PRIu64 ": the label is empty; -1 means unknown", c->path, c->line);
    if (!number(s, &x) || x != floor(x) || x < -1 || x >= INT32_MAX) t->numbers = false;
    else if ((int64_t)x > t->largest) t->largest = (int64_t)x;
    if (!add_class(t, s, err)) return false;
    t->rows++;
  }
  if (err->text[0]) return false;
  return t->rows || zb_fail(err, NULL, "%s has no rows but the names of its columns", c->path);
}

static bool put_row(const Table *t, ZxDataWriter *w, float *value, ZbErr *err) {
  const Csv *c = &t->csv;
  size_t n = 0;
  double x;
  if (!same_width(t, err)) return false;
  for (size_t i = 0; i < t->ncell; i++) {
    const char *s = cell(c, i);
    if (i == t->label) continue;
    if (!number(s, &x))
      return zb_fail(err, NULL, "%s:%" PRIu64 ": '%s' in column '%s' is not a number", c->path, c->line,
                     zb_show(s), zb_show(column(t, i)));
    value[n++] = (float)x;
  }
  const char *s = cell(c, t->label);
  int32_t id;
  if (t->numbers) id = (int32_t)strtod(s, NULL);
  else {
    size_t at = class_at(t, s);
    if (at == t->nclass || strcmp(t->class[at], s))
      return zb_fail(err, NULL, "%s changed while it was read", c->path);
    id = (int32_t)at;
  }
  return zx_data_put(w, value, n * sizeof *value, err) && zx_data_put(w, &id, sizeof id, err);
}

static bool write_table(Table *t, const ZdOptions *o, const ZxDataInfo *info, ZbErr *err) {
  Csv *c = &t->csv;
  float *value = ZB_NEWN(t->a, float, t->ncell);
  rewind(c->f);
  c->next = 1;
  ZxDataWriter *w = zx_data_create(o->out, info, err);
  if (!w) return false;
  bool ok = !t->header || row(c, err);
  uint64_t rows = 0;
  for (; ok && row(c, err); rows++) ok = put_row(t, w, value, err);
  ok = ok && !err->text[0];
  if (ok && rows != t->rows) ok = zb_fail(err, NULL, "%s changed while it was read", c->path);
  uint64_t limit[2] = {0, t->numbers ? (uint64_t)t->largest + 1 : t->nclass};
  if (!ok) {
    zx_data_abandon(w);
    return false;
  }
  if (!zx_data_finish(w, limit, err)) return false;
  printf("%s: %" PRIu64 " records: %s of %zu numbers, %s of %" PRIu64 " classes\n", zb_show(o->out), t->rows,
         info->field[0].name, t->ncell - 1, info->field[1].name, limit[1]);
  for (size_t i = 0; !t->numbers && i < t->nclass && i < 100; i++)
    printf("  %zu  %s\n", i, zb_show(t->class[i]));
  return true;
}

static bool name_field(ZxDataField *f, const char *name, ZbErr *err) {
  if (strlen(name) >= sizeof f->name)
    return zb_fail(err, "name it with --field and --label-field", "'%s' is too long for a field's name",
                   zb_show(name));
  strcpy(f->name, name);
  return true;
}

bool zd_table(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  if (!zb_spares("-o", o->out, o->file[0], err)) return false;
  Table t = {.csv = {.path = zb_strdup(a, zb_show(o->file[0])), .next = 1}, .a = a};
  uint64_t size; /* it is read twice, so a pipe will not do */
  int fd = zb_open_file(o->file[0], false, &size, err);
  if (fd < 0 || !(t.csv.f = fdopen(fd, "rb"))) return false;
  ZxDataField field[2] = {{.elem = ZX_DATA_F32}, {.elem = ZX_DATA_I32, .values = 1}};
  ZxDataInfo info = {.nfield = 2, .field = field};
  bool ok = first_row(&t, o->label, err) && survey(&t, err);
  field[0].values = t.ncell - 1;
  const char *label = o->label_field ? o->label_field : ok && t.name ? t.name[t.label] : "label";
  ok = ok && name_field(&field[0], o->field ? o->field : "features", err) &&
       name_field(&field[1], label, err) && zx_data_layout(&info, err) && write_table(&t, o, &info, err);
  fclose(t.csv.f);
  zb_text_free(&t.csv.text);
  free(t.csv.cell);
  return ok;
}
