/* zlog: looks at the metrics that zrun --log writes. Knows metrics.jsonl, and nothing of what writes it.
 *
 * lines.c    lines of a metrics.jsonl, distrusted
 * run.c      all of one run
 * curves.c   what of runs is drawn: x, y, smoothed
 * scale.c    axes, their ticks and how numbers are written there
 * svg.c      a picture; html.c, page.html: a page that draws it itself
 * plot.c, compare.c, tail.c    the commands; main.c their options */
#ifndef ZUG_ZLOG_H
#define ZUG_ZLOG_H

#include "base/base.h"

#include <cjson/cJSON.h>

typedef enum { ZV_DONE, ZV_DIFFERS, ZV_FAILED } ZvEnd; /* exit codes */

/* ---- lines --------------------------------------------------------------------------------------------- */
enum { ZV_LINE = 1 << 20 }; /* bytes of a line at most */
typedef struct {
  const char *path; /* of metrics.jsonl, for messages */
  FILE *f;
  ZbText line;
  uint64_t number; /* of that line, from 1 */
  int64_t step;    /* of the latest line that had one; -1: none yet */
} ZvLines;
/* `dir`: a log's folder, or a file as zrun writes it there. False with a message. */
bool zv_lines_open(ZbArena *a, const char *dir, ZvLines *l, ZbErr *err);
void zv_lines_close(ZvLines *l);
/* The next line as an object of which what is used is checked: "step", where there is one, is a whole number
 * not below that of lines before. NULL at the end, which a line without a newline is too: it is being
 * written, or the run was killed in it. `err` has a message if something is wrong. To be freed by
 * cJSON_Delete. */
cJSON *zv_next(ZvLines *l, ZbErr *err);
/* A number of it: NaN for null, and where there is none. False with a message for anything else. */
bool zv_number(const ZvLines *l, const cJSON *o, const char *key, double *out, ZbErr *err);
/* Returns the name of the part of the number `loss` that `key` is: "aux" of "loss_aux"; NULL: it is none. */
const char *zv_part(const char *key, const char *loss);

/* ---- a run --------------------------------------------------------------------------------------------- */
enum { ZV_KEYS = 3 };
typedef struct {
  int64_t step;
  double y[ZV_KEYS];    /* of each key that was asked for; NaN: not there, or not finite */
  double tokens, hours; /* so far, in steps and evaluations; tokens NaN: the run does not say */
} ZvPoint;
typedef struct {
  const char *name;     /* as it was given */
  ZvPoint *step, *eval; /* eval: y of "eval_KEY" */
  size_t nstep, neval;
  int64_t steps;     /* that the run is to make; 0: not known */
  const char **part; /* keys of what its loss is made of, as its last step has them; none: it does not say */
  size_t nparts;
} ZvRun;
/* False with a message, which also has a run without steps. */
bool zv_run_read(ZbArena *a, const char *dir, const char *const *keys, int nkeys, ZvRun *r, ZbErr *err);

/* ---- curves -------------------------------------------------------------------------------------------- */
typedef enum { ZV_STEPS, ZV_TOKENS, ZV_HOURS } ZvX;
typedef struct {
  double x, y;
} ZvXY;
typedef struct {
  const char *name, *color, *dark; /* dark: its colour on a dark ground */
  const char *dash;                /* of its line, as SVG has dashes */
  bool filled;                     /* whether its circles are. 32 curves have 32 looks */
  ZvXY *raw, *smooth, *eval;
  size_t n, neval; /* n: of raw and of smooth */
} ZvCurve;
typedef struct {
  const char *y, *xlabel;
  double smooth; /* 0: not smoothed, then smooth == raw */
  bool log;      /* the y axis */
  ZvCurve *curve;
  size_t n;
} ZvFigure;
/* Exponential smoothing as TensorBoard's: weight `by` of what was before, and the beginning not drawn to 0.
 * False with a message for x that a run does not have, or where nothing can be drawn. */
bool zv_figure(ZbArena *a, const ZvRun *runs, size_t n, ZvX x, const char *y, double by, bool log,
               ZvFigure *f, ZbErr *err);
/* Fewer points with the same looks: of each of `columns` parts of the x axis the first, the lowest, the
 * highest and the last. */
size_t zv_thin(ZbArena *a, const ZvXY *p, size_t n, size_t columns, ZvXY **out);

/* ---- scales -------------------------------------------------------------------------------------------- */
enum { ZV_TICKS = 24 };
typedef struct {
  double lo, hi; /* in data */
  bool log;
  double at, size; /* in the picture: where lo is, and how far from there hi is */
  double tick[ZV_TICKS];
  char text[ZV_TICKS][24];
  int n;
} ZvScale;
/* An axis that shows lo..hi, with about `want` ticks at readable numbers. */
ZvScale zv_scale(double lo, double hi, bool log, int want);
double zv_place(const ZvScale *s, double x); /* in the picture */

/* ---- pictures ------------------------------------------------------------------------------------------ */
void zv_svg(const ZvFigure *f, ZbText *out);
void zv_html(const ZvFigure *f, ZbText *out);

/* ---- commands ------------------------------------------------------------------------------------------ */
typedef struct {
  const char **dir;
  size_t ndir;
  const char *out, *y;
  ZvX x;
  double smooth, tolerance;
  bool log, once;
  int64_t lines;
} ZvOptions;
ZvEnd zv_plot(const ZvOptions *o, ZbArena *a, ZbErr *err);
ZvEnd zv_compare(const ZvOptions *o, ZbArena *a, ZbErr *err);
ZvEnd zv_tail(const ZvOptions *o, ZbArena *a, ZbErr *err);

#endif
