/* One log, several sinks. */
#include "runtime/exec/log/sinks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct ZxLog {
  ZxMetricsFile *metrics; /* NULL: no files, as */
  ZxEvents *events;
  ZbText line;
};

/* Makes `dir` and what is missing above it. */
static bool make_folder(const char *dir, ZbErr *err) {
  char *path = strdup(dir);
  if (!path) zb_out_of_memory(0);
  bool ok = true;
  for (char *p = path + 1; ok; p++) {
    if (*p != '/' && *p) continue;
    char c = *p;
    *p = 0;
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
      ok = zb_fail(err, "give another folder with --log, or make it writable",
                   "cannot make the log folder %s: %s", zb_show(path), strerror(errno));
    *p = c;
    if (!c) break;
  }
  free(path);
  return ok;
}

ZxLog *zx_log_open(const ZxLogOptions *o, ZbErr *err) {
  ZxLog *l = calloc(1, sizeof *l);
  if (!l) zb_out_of_memory(0);
  if (!o->dir) return l;
  if (!*o->dir) zb_fail(err, NULL, "the log folder has no name");
  else if (make_folder(o->dir, err) && (l->metrics = zx_metrics_open(o->dir, o->before, err))) {
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
