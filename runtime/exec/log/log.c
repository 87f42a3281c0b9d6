/* One log, several sinks. */
#include "runtime/exec/log/sinks.h"

#include <stdlib.h>

struct ZxLog {
  ZxMetricsFile *metrics; /* NULL: no files */
  ZxEvents *events;
  ZbText line;
};

ZxLog *zx_log_open(const ZxLogOptions *o, ZbErr *err) {
  ZxLog *l = calloc(1, sizeof *l);
  if (!l) zb_out_of_memory(0);
  if (!o->dir) return l;
  if (zb_make_folders(o->dir, "log", "give another folder with --log, or make it writable", err) &&
      (l->metrics = zx_metrics_open(o->dir, o->before, err))) {
    l->events = zx_events_open(o);
    return l;
  }
  zx_log_close(l);
  return NULL;
}

void zx_log_close(ZxLog *l) {
  if (!l) return;
  zx_metrics_close(l->metrics);
  zx_events_close(l->events);
  zb_text_free(&l->line);
  free(l);
}

bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err) {
  return zx_lines_step(&l->line, m, err) && (!l->metrics || (zx_metrics_step(l->metrics, m, c, nclass, err) &&
                                                             zx_events_step(l->events, m, err)));
}

bool zx_log_eval(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err) {
  return zx_lines_eval(&l->line, m, err) &&
         (!l->metrics || (zx_metrics_eval(l->metrics, m, err) && zx_events_eval(l->events, m, err)));
}
