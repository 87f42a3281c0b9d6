/* A figure as a page: page.html, with what it draws in the place of its data. */
#include "runtime/zlog/zlog.h"

#include <string.h>

extern const char *const zv_page[];
enum { COLUMNS = 2000 }; /* of which points are kept: a wide screen, and some zoom */

static void put_points(ZbJson *j, const char *key, const ZvXY *p, size_t n) {
  zb_json_list(j, key);
  for (size_t i = 0; i < n; i++) {
    zb_json_list(j, NULL);
    zb_json_rounded(j, NULL, 9, p[i].x);
    zb_json_rounded(j, NULL, 9, p[i].y);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_curve(ZbJson *j, const ZvCurve *c) {
  ZbArena *a = zb_arena_new();
  ZvXY *q;
  size_t n = zv_thin(a, c->raw, c->n, COLUMNS, &q);
  zb_json_line(j, 0);
  zb_json_object(j, NULL);
  zb_json_string(j, "name", zb_show(c->name));
  zb_json_string(j, "color", c->color);
  zb_json_string(j, "dark", c->dark);
  zb_json_string(j, "dash", c->dash);
  zb_json_bool(j, "filled", c->filled);
  put_points(j, "raw", q, n);
  put_points(j, "eval", c->eval, c->neval);
  zb_json_end(j);
  zb_arena_free(a);
}

static void put_data(ZbText *t, const ZvFigure *f) {
  ZbJson j = {.text = t, .script = true};
  zb_json_object(&j, NULL);
  zb_json_string(&j, "y", zb_show(f->y));
  zb_json_string(&j, "x", f->xlabel);
  zb_json_bool(&j, "log", f->log);
  zb_json_rounded(&j, "smooth", 6, f->smooth);
  zb_json_list(&j, "runs");
  for (size_t i = 0; i < f->n; i++) put_curve(&j, &f->curve[i]);
  zb_json_end(&j);
  zb_json_end(&j);
}

void zv_html(const ZvFigure *f, ZbText *out) {
  static const char place[] = "/*DATA*/null";
  const char *page = zv_page[1], *at = strstr(page, place);
  ZB_ASSERT(at);
  zb_text_put(out, page, (size_t)(at - page));
  put_data(out, f);
  zb_text_add(out, "%s", at + sizeof place - 1);
}
