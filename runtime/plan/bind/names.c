/* Axes that a recipe names, and the names that a model has. */
#include "runtime/plan/bind/bind.h"

void zp_note_names(ZlDiag *e, const char *what, const char *const *names, uint32_t n) {
  enum { LISTED = 12 };
  ZbText list = {0};
  for (uint32_t i = 0; i < n && i < LISTED; i++) zb_text_add(&list, "%s`%s`", i ? ", " : "", names[i]);
  if (n > LISTED) zb_text_add(&list, " and %u more", n - LISTED);
  if (n) zl_note(e, "its %s are %s", what, list.s);
  zb_text_free(&list);
}

uint32_t zp_find_axis(ZpBuild *b, ZlName name, ZpAxisKind kind) {
  static const char *const kinds[] = {"data axes", "axes with a size", "axes"};
  const ZgGraph *g = b->p->graph;
  uint32_t a = zg_axis_find(g, name.s), n = 0;
  if (a != ZG_NONE) return a;
  const char **names = ZB_NEWN(b->p->arena, const char *, g->naxes);
  for (uint32_t i = 0; i < g->naxes; i++)
    if (kind == ZP_AXIS_ANY || (g->axes[i].size == 0) == (kind == ZP_AXIS_OF_DATA))
      names[n++] = g->axes[i].name;
  ZlDiag *e = zl_report(b->d, ZL_Z0304, name.span, "no axis `%s` in model %s", name.s, g->model);
  zp_note_names(e, kinds[kind], names, n);
  const char *near = zb_nearest(name.s, names, n);
  if (near) zl_help(e, "did you mean `%s`?", near);
  else if (n) zl_help(e, "name one of these, or leave `%s` out", name.s);
  else zl_help(e, "leave `%s` out", name.s);
  return ZG_NONE;
}
