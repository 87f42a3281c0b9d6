/* What the files of the log share: where its lines go, and the list of numbers. Each sink begins its file
 * with the first that it is given, since whether there will be one is not known before. */
#ifndef ZUG_EXEC_LOG_SINKS_H
#define ZUG_EXEC_LOG_SINKS_H

#include "runtime/exec/log/log.h"

/* ---- numbers: scalars.def ------------------------------------------------------------------------------ */
typedef enum { ZX_ALWAYS, ZX_KNOWN, ZX_BYTE_COUNT } ZxHow;
typedef struct {
  const char *key, *tag; /* in metrics.jsonl; in TensorBoard, or NULL */
  ZxHow how;
  size_t at; /* in ZxMetrics, ZxEvalMetrics */
} ZxScalar;
/* Both end with a NULL key. */
extern const ZxScalar zx_step_scalars[], zx_eval_scalars[];
/* Of `m`, which `list` is of; false: it was not measured. */
bool zx_scalar(const ZxScalar *s, const void *m, double *value);

/* Adds prompt and text, for people: control characters and what is no UTF-8 as \x1b, but lines as they are. */
void zx_put_sample(ZbText *t, const ZxSampleMetrics *m);

/* ---- sinks --------------------------------------------------------------------------------------------- */
/* A terminal on which a line can be kept up to date. */
typedef struct {
  int fd;      /* to ask for its size; -1: there is none */
  bool errors; /* the standard error ends there, too */
} ZxTerminal;
ZxTerminal zx_terminal_find(void);
int zx_terminal_columns(int fd); /* 0: not known */

/* Lines for people, on the standard output. On a terminal the latest step is one line that is drawn anew:
 * between zx_lines_draw and zx_lines_erase it is there. */
typedef struct {
  bool quiet;
  int64_t every; /* steps; 0: none */
  ZxTerminal terminal;
  ZbText text, live; /* what is put together; what is to be drawn */
  ZxMetrics last;    /* without epochs */
  bool any, told;    /* there was a step; the last one has a line of its own */
  double at, mean;   /* when that was; seconds a step of late, 0: not known; */
  int n;             /* so many times are in it */
  bool drawn;
} ZxLines;
void zx_lines_open(ZxLines *l, const ZxLogOptions *o);
bool zx_lines_step(ZxLines *l, const ZxMetrics *m, ZbErr *err);
bool zx_lines_eval(ZxLines *l, const ZxEvalMetrics *m, ZbErr *err);
bool zx_lines_sample(ZxLines *l, const ZxSampleMetrics *m, ZbErr *err);
void zx_lines_draw(ZxLines *l);
void zx_lines_erase(ZxLines *l);
bool zx_lines_end(ZxLines *l, ZbErr *err);
void zx_lines_close(ZxLines *l);

/* metrics.jsonl in the folder `dir`, which is there. */
typedef struct ZxMetricsFile ZxMetricsFile;
ZxMetricsFile *zx_metrics_open(const char *dir, int64_t before, ZbErr *err);
bool zx_metrics_step(ZxMetricsFile *f, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err);
bool zx_metrics_eval(ZxMetricsFile *f, const ZxEvalMetrics *m, ZbErr *err);
bool zx_metrics_sample(ZxMetricsFile *f, const ZxSampleMetrics *m, ZbErr *err);
void zx_metrics_close(ZxMetricsFile *f);

/* An event file there. */
typedef struct ZxEvents ZxEvents;
ZxEvents *zx_events_open(const ZxLogOptions *o);
bool zx_events_step(ZxEvents *e, const ZxMetrics *m, ZbErr *err);
bool zx_events_eval(ZxEvents *e, const ZxEvalMetrics *m, ZbErr *err);
bool zx_events_sample(ZxEvents *e, const ZxSampleMetrics *m, ZbErr *err);
void zx_events_close(ZxEvents *e);

#endif
