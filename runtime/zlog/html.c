/* A figure as a page: page.html, with what it draws in the place of its data. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <string.h>

extern const char *const zv_page[];
enum { COLUMNS = 2000 }; /* of which points are kept: a wide screen, and some zoom */

/* A string of JSON in a script: no '<', of which an end tag is made. */
static void put_string(ZbText *t, const char *s) {
  zb_text_add(t, "\"");
  for (s = zb_show(s); *s; s++)
    if (*s == '"' || *s == '\\' || *s == '<' || *s == '&') zb_text_add(t, "\\u%04x", (unsigned)*s);
    else zb_text_put(t, s, 1);
  zb_text_add(t, "\"");
}

static void put_points(ZbText *t, const char *key, const ZvXY *p, size_t n) {
  zb_text_add(t, ",\"%s\":[", key);
  for (size_t i = 0; i < n; i++) {
    zb_text_add(t, "%s[%.9g,", i ? "," : "", p[i].x);
    if (isnan(p[i].y)) zb_text_add(t, "null]");
    else zb_text_add(t, "%.9g]", p[i].y);
  }
  zb_text_add(t, "]");
}

static void put_data(ZbText *t, const ZvFigure *f) {
  ZbArena *a = zb_arena_new();
  zb_text_add(t, "{\"y\":");
  put_string(t, f->y);
  zb_text_add(t, ",\"x\":\"%s\",\"log\":%s,\"smooth\":%g,\"runs\":[", f->xlabel, f->log ? "true" : "false",
              f->smooth);
  for (size_t i = 0; i < f->n; i++) {
    const ZvCurve *c = &f->curve[i];
    ZvXY *q;
    zb_text_add(t, "%s\n{\"name\":", i ? "," : "");
    put_string(t, c->name);
    zb_text_add(t, ",\"color\":\"%s\",\"dash\":\"%s\",\"mark\":\"%s\"", c->color, c->dash, c->mark);
    size_t n = zv_thin(a, c->raw, c->n, COLUMNS, &q);
    put_points(t, "raw", q, n);
    put_points(t, "eval", c->eval, c->neval);
    zb_text_add(t, "}");
  }
  zb_text_add(t, "]}");
  zb_arena_free(a);
}

void zv_html(const ZvFigure *f, ZbText *out) {
  static const char place[] = "/*DATA*/null";
  const char *page = zv_page[1], *at = strstr(page, place);
  ZB_ASSERT(at);
  zb_text_put(out, page, (size_t)(at - page));
  put_data(out, f);
  zb_text_add(out, "%s", at + sizeof place - 1);
}
