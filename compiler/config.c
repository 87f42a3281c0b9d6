/* The `config` of a map to foreign weights, in both directions: the values that a model gives its keys, and
 * (zc --config) the statics that a config.json gives a model. What the file says otherwise than the model is
 * an error: weights of another model would be read without one. */
#include "compiler/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values -------------------------------------------------------------------------------------------- */
static const char *list_value(Elab *e, const ZlConfigValue *v) {
  ZbText t = {0};
  bool ok = true;
  int64_t items;
  for (uint32_t k = 0; k < v->n; k++) {
    const char *one = config_value(e, &v->at[k]);
    ok &= one != NULL;
    zb_text_add(&t, "%s%s", k ? "," : "[", one ? one : "");
  }
  zb_text_add(&t, v->n ? "]" : "[]");
  if (v->expr && !v->n) ok = complain(e, ZL_Z1006, v->span, "`for` repeats nothing here") && false;
  else if (v->expr && static_int(e, v->expr, 0, ZG_MAX_ITEMS, "the number of items of a list", &items))
    zb_text_add(&t, "*%lld", (long long)items);
  else if (v->expr) ok = false;
  const char *text = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  if (strlen(text) <= 255) return ok ? text : NULL;
  complain(e, ZL_Z1006, v->span, "a list has at most 255 bytes");
  return NULL;
}

/* `infinity`, where no static is called that: JSON has no word for it, but a number beyond all. */
static bool is_infinity(const Elab *e, const ZlConfigValue *v) {
  if (v->kind != ZL_V_NUMBER || v->expr->kind != ZL_E_NAME || strcmp(v->expr->name.s, "infinity"))
    return false;
  for (uint32_t i = 0; i < e->model->nstatics; i++)
    if (!strcmp(e->model->statics[i].name.s, "infinity")) return false;
  return true;
}

const char *config_value(Elab *e, const ZlConfigValue *v) {
  Num n;
  int64_t i;
  if (v->kind == ZL_V_TEXT) return v->json;
  if (v->kind == ZL_V_NULL) return "null";
  if (v->kind == ZL_V_LIST) return list_value(e, v);
  if (is_infinity(e, v)) return "1e999";
  if (!static_eval(e, v->expr, &n)) return NULL;
  bool whole = num_is_int(n, &i);
  if (v->kind == ZL_V_BOOL) {
    if (whole && (i == 0 || i == 1)) return i ? "true" : "false";
    complain(e, ZL_Z1006, v->span, "`bool` is of 0 or 1, found %s", num_text(e->arena, n));
    return NULL;
  }
  if (whole) return zb_printf(e->arena, "%lld%s", (long long)i, v->kind == ZL_V_REAL ? ".0" : "");
  ZbText t = {0};
  zb_text_number(&t, n.v);
  const char *text = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  return text;
}

static bool same(const cJSON *a, const cJSON *b) {
  if (cJSON_IsNumber(a) && cJSON_IsNumber(b)) return a->valuedouble == b->valuedouble;
  if (!cJSON_IsArray(a) || !cJSON_IsArray(b)) return cJSON_Compare(a, b, true);
  for (a = a->child, b = b->child; a && b; a = a->next, b = b->next)
    if (!same(a, b)) return false;
  return !a && !b;
}

/* A list that goes on and on: every item is that of the list, and there are so many. */
static bool same_repeated(const cJSON *found, const cJSON *list, uint64_t items) {
  const cJSON *b = list->child;
  if (!cJSON_IsArray(found)) return false;
  for (const cJSON *a = found->child; a; a = a->next, items--) {
    if (!items || !same(a, b)) return false;
    b = b->next ? b->next : list->child;
  }
  return !items;
}

bool config_same(const cJSON *found, const char *text) {
  const char *end = strrchr(text, ']');
  bool over = end && end[1] == '*';
  cJSON *want = zb_json_parse(text, over ? (size_t)(end + 1 - text) : strlen(text), ZB_JSON_ANY, NULL);
  bool ok = want && (over ? same_repeated(found, want, strtoull(end + 2, NULL, 10)) : same(found, want));
  cJSON_Delete(want);
  return ok;
}

static bool is_null(const ZlConfigValue *v) {
  return v->kind == ZL_V_NULL || (v->kind == ZL_V_TEXT && !strcmp(v->json, "null"));
}

/* The value that an entry sets a static from, `key = width`, `key = bool(tied)`: the only one but for nulls. */
static const ZlConfigValue *setting(const ZlConfigEntry *c) {
  const ZlConfigValue *v = NULL;
  for (uint32_t k = 0; k < c->nvalues; k++) {
    if (is_null(&c->values[k])) continue;
    if (v) return NULL;
    v = &c->values[k];
  }
  return v && v->kind != ZL_V_LIST && v->expr && v->expr->kind == ZL_E_NAME ? v : NULL;
}

static const char *sets(const ZlConfigEntry *c) {
  const ZlConfigValue *v = setting(c);
  return v ? v->expr->name.s : NULL;
}

/* The entry's `null as VALUE`, or its `null`; NULL if it has none. */
static const ZlConfigValue *null_of(const ZlConfigEntry *c) {
  for (uint32_t k = 0; k < c->nvalues; k++)
    if (is_null(&c->values[k])) return &c->values[k];
  return NULL;
}

/* Finds what the file has under the entry's key; NULL if that is absent, or null and the entry does not say which
 * number that is. */
static bool find(Elab *e, const ZlConfigEntry *c, const cJSON **out) {
  if (!config_find(e, c, out)) return false;
  if (cJSON_IsNull(*out) && !(null_of(c) && null_of(c)->kind == ZL_V_NULL)) *out = NULL;
  return true;
}

/* ---- statics from the file ----------------------------------------------------------------------------- */
static bool take_value(Elab *e, const ZlConfigEntry *c, const cJSON *found, Num *out) {
  bool truth = setting(c)->kind == ZL_V_BOOL;
  if (cJSON_IsNull(found)) return static_eval(e, null_of(c)->expr, out);
  if (truth && cJSON_IsBool(found)) *out = num_int(cJSON_IsTrue(found));
  else if (!truth && cJSON_IsNumber(found) && found->valuedouble - found->valuedouble == 0)
    *out = num_double(found->valuedouble);
  else {
    config_fails(e, ZL_Z1009, c, "`%s` is %s, expected %s", c->key.s, config_shown(e, found),
                 truth ? "true or false" : "a number");
    return false;
  }
  return true;
}

static bool take_otherwise(Elab *e, const ZlConfigEntry *c, Num *out) {
  const ZlConfigValue *v = c->otherwise;
  if (v->expr) return static_eval(e, v->expr, out);
  if (!strcmp(v->json ? v->json : "", "true") || !strcmp(v->json ? v->json : "", "false")) {
    *out = num_int(v->json[0] == 't');
    return true;
  }
  complain(e, ZL_Z1006, v->span, "`%s` is a number, so what its absence means is one", sets(c));
  return false;
}

static bool is_given(Elab *e, const char *name) {
  const ZlWeights *w = e->config->map;
  const cJSON *found;
  for (uint32_t i = 0; i < w->nconfig; i++)
    if (sets(&w->config[i]) && !strcmp(sets(&w->config[i]), name) && find(e, &w->config[i], &found) && found)
      return true;
  return false;
}

const char *config_gives(Elab *e, const char *name) {
  return e->config && is_given(e, name) ? e->config->path : NULL;
}

/* What stands in an `if` may be missing until it is known that the condition holds. */
ConfigSays config_static(Elab *e, const char *name, Num *out) {
  if (!e->config) return CONFIG_SILENT;
  const ZlWeights *w = e->config->map;
  const ZlConfigEntry *absent = NULL, *any = NULL;
  for (uint32_t i = 0; i < w->nconfig; i++) {
    const ZlConfigEntry *c = &w->config[i];
    const cJSON *found;
    if (!sets(c) || strcmp(sets(c), name)) continue;
    if (!find(e, c, &found)) return CONFIG_FAILED;
    if (found) return take_value(e, c, found, out) ? CONFIG_SET : CONFIG_FAILED;
    if (c->otherwise && !absent) absent = c;
    if (!any && !c->cond) any = c;
  }
  if (absent) return take_otherwise(e, absent, out) ? CONFIG_SET : CONFIG_FAILED;
  if (!any) return CONFIG_SILENT;
  ZB_PUSH(e->arena, e->config->missing, e->config->nmissing, any);
  return CONFIG_FAILED;
}

/* ---- the file against the model ------------------------------------------------------------------------ */
static const char *wanted_text(Elab *e, const ZlConfigEntry *c) {
  ZbText t = {0};
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const char *one = config_value(e, &c->values[k]);
    zb_text_add(&t, "%s%s", k ? " or " : "", one ? one : "?");
  }
  const char *s = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  return s;
}

/* The static of a condition such as `ahead > 0` or `window`, without which the entry does not hold. */
static const char *switch_of(const ZlCond *c) {
  if (!c || c->otherwise) return NULL;
  const ZlExpr *x = c->expr;
  if (x->kind == ZL_E_BIN && (x->bin.op == ZL_MORE || x->bin.op == '-')) x = x->bin.a;
  return x->kind == ZL_E_NAME ? x->name.s : NULL;
}

static void contradiction(Elab *e, const ZlConfigEntry *c, const char *found, const char *why) {
  const char *name = sets(c), *wanted = wanted_text(e, c), *without = switch_of(c->cond);
  if (name && static_overridden(e, name)) {
    config_fails(e, ZL_Z1010, c, "`%s` is %s, the command line makes it %s", c->key.s, found, wanted);
    return;
  }
  ZlDiag *d = config_fails(e, ZL_Z1008, c, "`%s` is %s%s, model %s needs %s", c->key.s, found, why,
                           e->model->name.s, wanted);
  if (name) zl_note(d, "`%s` comes from another key of the file", name);
  else if (without && c->cond->expr->kind == ZL_E_BIN && c->cond->expr->bin.op == ZL_MORE)
    zl_help(d, "it does not with -D %s=0", without);
  else
    zl_help(d,
            "this model computes something else than the file's: write one that does, or take another file");
}

static void lacks(Elab *e, const ZlConfigEntry *c) {
  const cJSON *found;
  const char *name = sets(c);
  if (!config_find(e, c, &found)) return;
  ZlDiag *d = config_fails(e, ZL_Z1009, c,
                           found ? "`%s` is null, and weights %s do not say which `%s` that is"
                                 : "there is no `%s`, which says what `%s` is",
                           c->key.s, found ? e->config->map->name.s : name, name);
  if (found)
    zl_help(d, "give it: -D %s=0, or what null stands for; in the map: `%s = null as 0, %s`", name, c->key.s,
            name);
}

/* The entry says nothing of null, and its key is null: for some keys that is another value than none at all. */
static void check_null(Elab *e, const ZlConfigEntry *c) {
  const cJSON *found;
  if (null_of(c) || !c->otherwise || !config_find(e, c, &found) || !cJSON_IsNull(found)) return;
  if (c->otherwise->json && !strcmp(c->otherwise->json, "false")) return;
  ZlDiag *d = config_fails(e, ZL_Z1011, c, "`%s` is null, which weights %s take as if it were not there",
                           c->key.s, e->config->map->name.s);
  if (sets(c))
    zl_help(d, "say in the map what null is: `%s = %s, null` if that is so, else `null as 0, %s`", c->key.s,
            sets(c), sets(c));
}

/* Whether the file's value is value `v` of the model; true, too, where that cannot be told. */
static bool agrees(Elab *e, const ZlConfigEntry *c, const ZlConfigValue *v, const cJSON *found) {
  Num null, now;
  if (v->kind == ZL_V_NULL)
    return cJSON_IsNull(found) && setting(c) &&
           (!static_eval(e, v->expr, &null) || !static_eval(e, setting(c)->expr, &now) || null.v == now.v);
  const char *text = config_value(e, v);
  return !text || config_same(found, text);
}

static void check_entry(Elab *e, const ZlConfigEntry *c) {
  const cJSON *found;
  const char *absent = NULL;
  if (!find(e, c, &found)) return;
  if (!found && sets(c)) { /* config_static saw to it where there is no condition */
    if (c->cond && !c->otherwise && !is_given(e, sets(c))) lacks(e, c);
    else check_null(e, c);
    return;
  }
  if (!found && c->otherwise) absent = config_value(e, c->otherwise);
  if (!found && c->otherwise && !absent) return;
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const ZlConfigValue *v = &c->values[k];
    if (found ? agrees(e, c, v, found) : is_null(v)) return;
    const char *text = found ? NULL : config_value(e, v);
    if (!found && (!text || (absent && !strcmp(absent, text)))) {
      check_null(e, c);
      return;
    }
  }
  if (found) contradiction(e, c, config_shown(e, found), "");
  else if (absent) contradiction(e, c, "absent", zb_printf(e->arena, ", which means %s", absent));
  else config_fails(e, ZL_Z1009, c, "there is no `%s`, expected %s", c->key.s, wanted_text(e, c));
}

/* What must be so whatever the statics are: it is asked first, so that a folder of another family is called that. */
static bool is_fixed(const ZlConfigEntry *c) {
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const ZlConfigValue *v = &c->values[k];
    if (v->expr || (v->kind != ZL_V_TEXT && v->kind != ZL_V_LIST)) return false;
    for (uint32_t i = 0; i < v->n; i++)
      if (v->at[i].expr) return false;
  }
  return !c->cond && !(c->otherwise && c->otherwise->expr);
}

bool config_family(Elab *e) {
  if (!e->config) return true;
  size_t errors = zl_errors(e->diags);
  const ZlWeights *w = e->config->map;
  for (uint32_t i = 0; i < w->nconfig; i++)
    if (is_fixed(&w->config[i]) &&
        (!strcmp(w->config[i].key.s, "architectures") || !strcmp(w->config[i].key.s, "model_type")))
      check_entry(e, &w->config[i]);
  return zl_errors(e->diags) == errors;
}

void config_check(Elab *e) {
  const ZlWeights *w = e->config ? e->config->map : NULL;
  for (uint32_t i = 0; w && i < w->nconfig; i++)
    if (cond_holds(e, w->config[i].cond)) check_entry(e, &w->config[i]);
  for (uint32_t i = 0; w && i < e->config->nmissing; i++) lacks(e, e->config->missing[i]);
  if (w) config_unread(e);
}

/* ---- what the model says ------------------------------------------------------------------------------- */
/* A whole number that the file has with a point, or as 1e6: a reader may insist on it. */
static const char *as_in_file(Elab *e, const ZlWeights *w, const ZlConfigEntry *c, const char *text) {
  const cJSON *found;
  if (!text || !setting(c) || strpbrk(text, ".eE") || !e->config || e->config->map != w ||
      !config_find(e, c, &found) || !cJSON_IsNumber(found) || !found->valuestring ||
      !strpbrk(found->valuestring, ".eE") || !config_same(found, text))
    return text;
  return zb_printf(e->arena, "%s.0", text);
}

/* The first of the entry's values that fits: `null as 0` does if the static is 0. */
static const char *written(Elab *e, const ZlWeights *w, const ZlConfigEntry *c) {
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const ZlConfigValue *v = &c->values[k];
    Num null, now;
    if (v->kind != ZL_V_NULL) return as_in_file(e, w, c, config_value(e, v));
    if (!setting(c)) {
      complain(e, ZL_Z1006, v->span, "`null as` needs a static beside it: `%s = null as 0, width`", c->key.s);
      return NULL;
    }
    if (!static_eval(e, v->expr, &null) || !static_eval(e, setting(c)->expr, &now)) return NULL;
    if (null.v == now.v) return "null";
  }
  return NULL;
}

void config_values(Elab *e) {
  const ZlFile *f = e->model->file;
  ZlSpan beyond = ZL_NOWHERE;
  for (uint32_t i = 0; i < f->nweights; i++) {
    const char *map = f->weights[i]->name.s;
    const ZlWeights *w = f->weights[i]->base && !f->weights[i]->nconfig ? f->weights[i]->base : f->weights[i];
    if (strcmp(w->model.s, e->model->name.s)) continue;
    for (uint32_t k = 0; k < w->nconfig; k++) {
      const char *text = cond_holds(e, w->config[k].cond) ? written(e, w, &w->config[k]) : NULL;
      if (text && e->g->nconfig == ZG_MAX_KEYS) beyond = w->config[k].key.span;
      if (text) zg_config_add(e->g, map, w->config[k].key.s, text);
    }
  }
  weights_most(e, e->g->nconfig, "config keys", beyond, "name those keys on which the numbers depend");
}
