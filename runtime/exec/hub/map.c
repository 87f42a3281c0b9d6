/* What a parameter is in foreign files. The graph was verified: its records cover every parameter and every
 * tensor once. */
#include "runtime/exec/hub/hub.h"

#include <string.h>

/* ---- the parameters themselves ---- */
uint32_t zx_map_iterations(const ZgGraph *g, uint32_t param) {
  uint32_t s = g->params[param].segment;
  return s == ZG_NONE ? 1 : g->segments[s].trip;
}

static int64_t size_of(const ZgGraph *g, const ZgParam *q, int axis) {
  return g->axes[q->type.axis[q->order[axis]]].size;
}

ZxTensorInfo zx_map_own(ZbArena *a, const ZgGraph *g, uint32_t param, uint32_t iter) {
  const ZgParam *q = &g->params[param];
  ZxTensorInfo t = {.path = zg_numbered(a, q->path, iter), .nshape = q->type.naxes};
  for (int i = 0; i < t.nshape; i++) t.shape[i] = size_of(g, q, i);
  return t;
}

/* ---- opening ---- */
static bool has_map(const ZgGraph *g, const char *names) {
  for (uint32_t i = 0; i < g->nforeign; i++)
    if (!strcmp(g->foreign[i].map, names)) return true;
  return false;
}

static bool no_map(ZbArena *a, const ZgGraph *g, const char *names, ZbErr *err) {
  const char *list = "";
  for (uint32_t i = 0; i < g->nforeign; i++) {
    bool told = false;
    for (uint32_t k = 0; k < i && !told; k++) told = !strcmp(g->foreign[i].map, g->foreign[k].map);
    if (!told) list = zb_printf(a, "%s%s%s", list, *list ? ", " : "", g->foreign[i].map);
  }
  const char *help = zb_printf(a, "it has %s", list);
  if (!*list) help = zb_printf(a, "say `weights %s for %s { ... }` beside it", zb_show(names), g->model);
  return zb_fail(err, help, "model %s has no names `%s`", g->model, zb_show(names));
}

bool zx_map_open(ZxMap *m, ZbArena *a, const ZgGraph *g, const char *names, ZbErr *err) {
  *m = (ZxMap){.g = g, .names = names};
  if (!names) return true;
  if (!has_map(g, names)) return no_map(a, g, names, err);
  m->begin = ZB_NEWN(a, uint32_t, g->nparams + 2);
  m->record = ZB_NEWN(a, uint32_t, g->nforeign);
  for (uint32_t i = 0; i < g->nforeign; i++)
    if (!strcmp(g->foreign[i].map, names)) m->begin[g->foreign[i].param + 2]++;
  for (uint32_t i = 2; i < g->nparams + 2; i++) m->begin[i] += m->begin[i - 1];
  for (uint32_t i = 0; i < g->nforeign; i++) /* begin[p + 1] goes up to where p ends */
    if (!strcmp(g->foreign[i].map, names)) m->record[m->begin[g->foreign[i].param + 1]++] = i;
  return true;
}

/* ---- parts ---- */
uint32_t zx_map_parts(const ZxMap *m, uint32_t param) {
  return m->names ? m->begin[param + 1] - m->begin[param] : 1;
}

ZxPart zx_map_part(const ZxMap *m, ZbArena *a, uint32_t param, uint32_t iter, const ZxTensorInfo *own,
                   uint32_t k) {
  ZxPart p = {.info = *own, .fixed = -1};
  int64_t step = 1;
  for (int i = own->nshape; !m->names && i-- > 0; step *= own->shape[i]) p.stride[i] = step;
  if (!m->names) return p;
  const ZgForeign *f = &m->g->foreign[m->record[m->begin[param] + k]];
  p = (ZxPart){.info = {.path = zg_numbered(a, f->name, iter), .nshape = f->ndims},
               .first = f->first,
               .fixed = f->fixed,
               .at = f->at};
  memcpy(p.info.shape, f->dims, sizeof p.info.shape);
  memcpy(p.stride, f->stride, sizeof p.stride);
  return p;
}

/* `*` is any text. */
static bool matches(const char *pattern, const char *s) {
  const char *star = NULL, *back = NULL;
  for (; *s;) {
    if (*pattern == '*') {
      star = pattern++;
      back = s;
    } else if (*pattern == *s) {
      pattern++;
      s++;
    } else if (star) {
      pattern = star + 1;
      s = ++back;
    } else return false;
  }
  while (*pattern == '*') pattern++;
  return !*pattern;
}

bool zx_map_ignores(const ZxMap *m, const char *name) {
  for (uint32_t i = 0; m->names && i < m->g->nignored; i++)
    if (!strcmp(m->g->ignored[i].map, m->names) && matches(m->g->ignored[i].pattern, name)) return true;
  return false;
}

bool zx_map_copy(const ZxMap *m, uint32_t i, ZxTensorInfo *copy, ZxTensorInfo *of) {
  const ZgIgnored *x = &m->g->ignored[i];
  if (!m->names || strcmp(x->map, m->names) || !x->of) return false;
  for (uint32_t k = 0; k < m->g->nforeign; k++) {
    const ZgForeign *f = &m->g->foreign[k];
    if (strcmp(f->map, m->names) || strcmp(f->name, x->of)) continue;
    *of = (ZxTensorInfo){.path = x->of, .nshape = f->ndims};
    memcpy(of->shape, f->dims, sizeof of->shape);
    *copy = *of;
    copy->path = x->pattern;
    return true;
  }
  return false;
}
