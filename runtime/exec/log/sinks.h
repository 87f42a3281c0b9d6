/* What the files of the log share: where its lines go, and the list of numbers. Each sink begins its file with the
 * first that it is given, since whether there will be one is not known before. */
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

/* ---- sinks --------------------------------------------------------------------------------------------- */
/* Lines for people, on the standard output. */
bool zx_lines_step(ZbText *room, const ZxMetrics *m, ZbErr *err);
bool zx_lines_eval(ZbText *room, const ZxEvalMetrics *m, ZbErr *err);

/* metrics.jsonl in the folder `dir`, which is there. */
typedef struct ZxMetricsFile ZxMetricsFile;
ZxMetricsFile *zx_metrics_open(const char *dir, int64_t before, ZbErr *err);
bool zx_metrics_step(ZxMetricsFile *f, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err);
bool zx_metrics_eval(ZxMetricsFile *f, const ZxEvalMetrics *m, ZbErr *err);
void zx_metrics_close(ZxMetricsFile *f);

/* An event file there. */
typedef struct ZxEvents ZxEvents;
ZxEvents *zx_events_open(const ZxLogOptions *o);
bool zx_events_step(ZxEvents *e, const ZxMetrics *m, ZbErr *err);
bool zx_events_eval(ZxEvents *e, const ZxEvalMetrics *m, ZbErr *err);
void zx_events_close(ZxEvents *e);

#endif
