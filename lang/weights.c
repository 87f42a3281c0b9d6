/* Maps to foreign weights (`weights hf for M { ... }`): making nodes, the promises of ast.h, printing. */
#include "lang/scan.h"

#include <string.h>

/* ---- nodes --------------------------------------------------------------------------------------------- */
ZlDim *zl_dim(ZbArena *a, ZlDimKind kind, ZlSpan span) {
  ZlDim *d = ZB_NEW(a, ZlDim);
  *d = (ZlDim){.kind = kind, .depth = 1, .span = span};
  return d;
}

/* One past the limit is enough to know: zl_check_weights reports it. */
static void dim_push(ZbArena *a, ZlDim *d, ZlDim *x) {
  if (!x) return;
  if (x->depth >= d->depth) d->depth = x->depth < ZL_MAX_NESTING ? x->depth + 1 : ZL_MAX_NESTING + 1;
  ZB_PUSH(a, d->at, d->n, x);
}

/* `a b c` is one node; what is in parentheses comes alone and stays a node of its own. */
ZlDim *zl_dim_add(ZbArena *a, ZlDimKind kind, ZlSpan span, ZlDim *x, ZlDim *y) {
  ZlDim *d = x;
  if (!y || x->kind != kind || (kind == ZL_DIM_MERGE && x->n == 1)) {
    d = zl_dim(a, kind, span);
    dim_push(a, d, x);
  }
  dim_push(a, d, y);
  d->span = span;
  return d;
}

ZlPath zl_path_joined(ZbArena *a, const ZlPath *x, const ZlPath *y) {
  ZlPath p = {.span = y->span};
  for (uint32_t i = 0; i < x->n + y->n; i++)
    ZB_PUSH(a, p.part, p.n, i < x->n ? x->part[i] : y->part[i - x->n]);
  return p;
}

ZlName zl_path_name(ZbArena *a, const ZlPath *path) { return (ZlName){zl_path_text(a, path), path->span}; }

/* ---- form ---------------------------------------------------------------------------------------------- */
static void check_dims(ZlDiags *d, const ZlMapRule *r) {
  for (uint32_t i = 0; i < r->ndims; i++)
    if (r->dims[i]->depth > ZL_MAX_NESTING)
      zl_report(d, ZL_Z0003, r->dims[i]->span, "axes are nested more than %d deep", ZL_MAX_NESTING);
}

static void check_value(ZlDiags *d, const ZlConfigValue *v) {
  if (v->expr) zl_too_deep(d, v->expr);
  for (uint32_t i = 0; i < v->n; i++) check_value(d, &v->at[i]);
}

static void check_cond(ZlDiags *d, const ZlCond *c) {
  if (!c) return;
  zl_too_deep(d, c->expr);
  if (c->depth > ZL_MAX_NESTING)
    zl_report(d, ZL_Z0003, c->expr->span, "`if` is nested more than %d deep", ZL_MAX_NESTING);
}

enum { MAX_KEY = 255 }; /* bytes: what a graph's file can hold */

static bool key_too_long(const ZlName *key) { return strlen(key->s) > MAX_KEY; }

/* No key with a value has keys inside of it. */
static void check_nested(ZlDiags *d, ZbArena *a, const ZlWeights *w, const ZbNames *keys) {
  for (uint32_t i = 0; i < w->nconfig; i++) {
    ZlName key = w->config[i].key;
    if (key_too_long(&key)) continue;
    for (const char *dot = strchr(key.s, '.'); dot; dot = strchr(dot + 1, '.')) {
      uint32_t outer = zb_names_find(keys, zb_strndup(a, key.s, (size_t)(dot - key.s)));
      if (outer == ZB_NO_NAME || w->config[i].cond || w->config[outer].cond) continue;
      ZlDiag *g =
          zl_report(d, ZL_Z0101, key.span, "config key `%s` is inside of one that has a value", key.s);
      zl_also(g, w->config[outer].key.span, "this one");
    }
  }
}

static void check_map(ZlDiags *d, ZbArena *a, const ZlWeights *w) {
  ZbNames keys = {0};
  for (uint32_t i = 0; i < w->nrules; i++) {
    check_dims(d, &w->rules[i]);
    check_cond(d, w->rules[i].cond);
  }
  for (uint32_t i = 0; i < w->nignored; i++) check_cond(d, w->ignored[i].cond);
  for (uint32_t i = 0; i < w->nconfig; i++) {
    const ZlConfigEntry *c = &w->config[i];
    uint32_t before = zb_names_find(&keys, c->key.s);
    if (key_too_long(&c->key))
      zl_report(d, ZL_Z1006, c->key.span, "the config key has %zu bytes, at most %d are possible",
                strlen(c->key.s), MAX_KEY);
    else if (before != ZB_NO_NAME && !c->cond && !w->config[before].cond)
      zl_twice(d, "config key", c->key, w->config[before].key.span);
    zb_names_add(a, &keys, c->key.s);
    for (uint32_t k = 0; k < c->nvalues; k++) check_value(d, &c->values[k]);
    if (c->otherwise) check_value(d, c->otherwise);
    check_cond(d, c->cond);
  }
  check_nested(d, a, w, &keys);
}

/* The map before `w` that it is made from. */
static void find_base(ZlDiags *d, ZbArena *a, const ZlFile *f, const ZbNames *maps, ZlWeights *w) {
  if (!w->from.s) return;
  uint32_t i = zb_names_find(maps, zb_printf(a, "%s for %s", w->from.s, w->model.s));
  if (i != ZB_NO_NAME && !f->weights[i]->from.s) {
    w->base = f->weights[i];
    return;
  }
  ZlDiag *g = zl_report(d, ZL_Z0102, w->from.span,
                        i == ZB_NO_NAME ? "no weights `%s` for `%s` before these"
                                        : "weights `%s` for `%s` are made from others",
                        w->from.s, w->model.s);
  zl_help(g, "write them after the map that they are made from");
}

void zl_check_weights(ZlDiags *d, ZbArena *a, const ZlFile *f) {
  ZbNames maps = {0};
  for (uint32_t i = 0; i < f->nweights; i++) {
    const ZlWeights *w = f->weights[i];
    const char *both = zb_printf(a, "%s for %s", w->name.s, w->model.s);
    uint32_t before = zb_names_find(&maps, both);
    if (before != ZB_NO_NAME) zl_twice(d, "weights", (ZlName){both, w->span}, f->weights[before]->span);
    find_base(d, a, f, &maps, f->weights[i]);
    zb_names_add(a, &maps, both);
    if (zb_names_find(&f->model_names, w->model.s) == ZB_NO_NAME) {
      ZlDiag *g = zl_report(d, ZL_Z0106, w->model.span, "no model `%s` in %s", w->model.s, f->name);
      zl_help_nearest(g, w->model.s, f->model_names.name, f->model_names.n);
    }
    check_map(d, a, w);
  }
}

/* ---- printing ------------------------------------------------------------------------------------------ */
static void put_path(ZbText *out, const ZlPath *p) {
  for (uint32_t i = 0; i < p->n; i++) zb_text_add(out, "%s%s", i ? "." : "", p->part[i].s);
}

static void put_dim(ZbText *out, const ZlDim *d, bool inner) {
  if (d->kind == ZL_DIM_AXIS) zb_text_add(out, "%s", d->axis.s);
  if (d->kind == ZL_DIM_NUMBER) zb_text_add(out, "%lld", (long long)d->number);
  if (inner && d->n) zb_text_add(out, "(");
  for (uint32_t i = 0; i < d->n; i++) {
    if (i) zb_text_add(out, d->kind == ZL_DIM_JOIN ? " + " : " ");
    put_dim(out, d->at[i], d->n > 1);
  }
  if (inner && d->n) zb_text_add(out, ")");
}

/* Before what it holds for, the outer ones first. */
static void put_cond(ZbText *out, const ZlCond *c) {
  if (!c) return;
  put_cond(out, c->outer);
  zb_text_add(out, "if ");
  if (c->otherwise) zb_text_add(out, "not ");
  zl_put_expr(out, c->expr);
  zb_text_add(out, ": ");
}

static void put_rule(ZbText *out, const ZlMapRule *r) {
  zb_text_add(out, "  ");
  put_cond(out, r->cond);
  if (r->nours > 1) zb_text_add(out, "(");
  for (uint32_t i = 0; i < r->nours; i++) {
    if (i) zb_text_add(out, ", ");
    put_path(out, &r->ours[i]);
  }
  if (r->nours > 1) zb_text_add(out, ")");
  if (r->axis.s) zb_text_add(out, "[%s = %s]", r->axis.s, r->index.s);
  zb_text_add(out, " = \"%s\"[", r->tensor.s);
  for (uint32_t i = 0; i < r->ndims; i++) {
    if (i) zb_text_add(out, ", ");
    put_dim(out, r->dims[i], false);
  }
  zb_text_add(out, "]\n");
}

static void put_value(ZbText *out, const ZlConfigValue *v) {
  static const char *const before[] = {
      [ZL_V_REAL] = "real(", [ZL_V_BOOL] = "bool(", [ZL_V_NULL] = "null as ", [ZL_V_LIST] = "["};
  if (v->kind == ZL_V_TEXT) zb_text_add(out, "%s", v->json);
  else if (before[v->kind]) zb_text_add(out, "%s", before[v->kind]);
  for (uint32_t i = 0; i < v->n; i++) {
    if (i) zb_text_add(out, ", ");
    put_value(out, &v->at[i]);
  }
  if (v->kind == ZL_V_LIST) zb_text_add(out, v->expr ? "] for " : "]");
  if (v->expr) zl_put_expr(out, v->expr);
  if (v->kind == ZL_V_REAL || v->kind == ZL_V_BOOL) zb_text_add(out, ")");
}

static void put_entry(ZbText *out, const ZlConfigEntry *c) {
  zb_text_add(out, "    ");
  put_cond(out, c->cond);
  zb_text_add(out, "%s = ", c->key.s);
  for (uint32_t i = 0; i < c->nvalues; i++) {
    if (i) zb_text_add(out, ", ");
    put_value(out, &c->values[i]);
  }
  if (c->otherwise) {
    zb_text_add(out, " else ");
    put_value(out, c->otherwise);
  }
  zb_text_add(out, "\n");
}

void zl_put_weights(ZbText *out, const ZlWeights *w) {
  zb_text_add(out, "weights %s for %s {\n", w->name.s, w->model.s);
  if (w->from.s) zb_text_add(out, "  from %s without \"%s\"\n", w->from.s, w->without.s);
  for (uint32_t i = 0; i < w->nrules; i++) put_rule(out, &w->rules[i]);
  for (uint32_t i = 0; i < w->nignored; i++) {
    zb_text_add(out, "  ");
    put_cond(out, w->ignored[i].cond);
    zb_text_add(out, "ignore \"%s\"", w->ignored[i].pattern.s);
    if (w->ignored[i].of.s) zb_text_add(out, " as \"%s\"", w->ignored[i].of.s);
    zb_text_add(out, "\n");
  }
  bool config = w->nconfig || w->nharmless;
  if (config) zb_text_add(out, "  config {\n");
  for (uint32_t i = 0; i < w->nconfig; i++) put_entry(out, &w->config[i]);
  for (uint32_t i = 0; i < w->nharmless; i++) {
    zb_text_add(out, "    ");
    put_cond(out, w->harmless[i].cond);
    zb_text_add(out, "ignore %s\n", w->harmless[i].pattern.s);
  }
  zb_text_add(out, config ? "  }\n}\n" : "}\n");
}
