/* zlog plot: runs as curves. */
#include "runtime/zlog/zlog.h"

#include <strings.h>
#include <string.h>

static bool has(const uint8_t *head, size_t n, const char *begin) {
  return n >= strlen(begin) && !memcmp(head, begin, strlen(begin));
}
static bool is_picture(const uint8_t *head, size_t n) {
  return has(head, n, "<svg") || has(head, n, "<?xml") || has(head, n, "<!doctype") ||
         has(head, n, "<!DOCTYPE");
}

static bool ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && !strcasecmp(s + n - m, end);
}

ZvEnd zv_plot(const ZvOptions *o, ZbArena *a, ZbErr *err) {
  static const ZbKind kind = {"an SVG picture or an HTML page", is_picture};
  ZvRun *runs = ZB_NEWN(a, ZvRun, o->ndir);
  ZvFigure f;
  ZbText t = {0};
  bool svg = ends(o->out, ".svg");
  if (!svg && !ends(o->out, ".html")) {
    zb_fail(err, "-o curves.svg, or -o curves.html", "%s: its name ends with neither .svg nor .html",
            zb_show(o->out));
    return ZV_FAILED;
  }
  for (size_t i = 0; i < o->ndir; i++)
    if (!zv_run_read(a, o->dir[i], &o->y, 1, &runs[i], err)) return ZV_FAILED;
  if (!zv_figure(a, runs, o->ndir, o->x, o->y, o->smooth, o->log, &f, err)) return ZV_FAILED;
  if (svg) zv_svg(&f, &t);
  else zv_html(&f, &t);
  bool ok = zb_write_file(o->out, &kind, t.s, t.len, err);
  zb_text_free(&t);
  return ok ? ZV_DONE : ZV_FAILED;
}
