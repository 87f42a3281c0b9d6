/* One log, several sinks. */
#include "runtime/exec/log/sinks.h"

#include <stdlib.h>

struct ZxLog {
  ZxMetricsFile *metrics; /* NULL: no files */
  ZxEvents *events;
  ZxLines lines;
};

ZxLog *zx_log_open(const ZxLogOptions *o, ZbErr *err) {
  ZxLog *l = calloc(1, sizeof *l);
  if (!l) zb_out_of_memory(0);
  zx_lines_open(&l->lines, o);
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
  zx_lines_close(&l->lines);
  free(l);
}

bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err) {
  if (!zx_lines_step(&l->lines, m, err)) return false;
  if (!l->metrics) return true;
  ZbErr later; /* the first error is told */
  bool ok = zx_metrics_step(l->metrics, m, c, nclass, err);
  return zx_events_step(l->events, m, ok ? err : &later) && ok;
}

bool zx_log_eval(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err) {
  if (!zx_lines_eval(&l->lines, m, err)) return false;
  if (!l->metrics) return true;
  ZbErr later;
  bool ok = zx_metrics_eval(l->metrics, m, err);
  return zx_events_eval(l->events, m, ok ? err : &later) && ok;
}

bool zx_log_sample(ZxLog *l, const ZxSampleMetrics *m, ZbErr *err) {
  if (!zx_lines_sample(&l->lines, m, err)) return false;
  if (!l->metrics) return true;
  ZbErr later;
  bool ok = zx_metrics_sample(l->metrics, m, err);
  return zx_events_sample(l->events, m, ok ? err : &later) && ok;
}

void zx_log_draw(ZxLog *l) {
  if (l) zx_lines_draw(&l->lines);
}

void zx_log_erase(ZxLog *l) {
  if (l) zx_lines_erase(&l->lines);
}

bool zx_log_end(ZxLog *l, ZbErr *err) { return zx_lines_end(&l->lines, err); }

bool zx_log_on_screen(const ZxLog *l) { return l->lines.terminal.fd >= 0 && l->lines.terminal.errors; }
