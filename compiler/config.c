/* The `config` of a map to foreign weights, in both directions: the values that a model gives its keys, and
 * (zc --config) the statics that a config.json gives a model. What the file says otherwise than the model is
 * an error: weights of another model would be read without one. */
#include "compiler/elab.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (16u << 20)

struct Config {
  const char *path;
  cJSON *json;
  const ZlWeights *map;
};

/* ---- values -------------------------------------------------------------------------------------------- */
/* The value as JSON; NULL and a report if it has none. */
static const char *value_text(Elab *e, const ZlConfigValue *v) {
  Num n;
  int64_t i;
  if (v->kind == ZL_V_TEXT) return v->json;
  if (v->kind == ZL_V_LIST) {
    ZbText t = {0};
    bool ok = true;
    for (uint32_t k = 0; k < v->n; k++) {
      const char *one = value_text(e, &v->at[k]);
      ok &= one != NULL;
      zb_text_add(&t, "%s%s", k ? "," : "[", one ? one : "");
    }
    zb_text_add(&t, v->n ? "]" : "[]");
    const char *text = zb_strdup(e->arena, t.s);
    zb_text_free(&t);
    if (strlen(text) <= 255) return ok ? text : NULL;
    complain(e, ZL_Z1006, v->span, "a list has at most 255 bytes");
    return NULL;
  }
  if (!static_eval(e, v->expr, &n)) return NULL;
  bool whole = num_is_int(n, &i);
  if (v->kind == ZL_V_BOOL) {
    if (whole && (i == 0 || i == 1)) return i ? "true" : "false";
    complain(e, ZL_Z1006, v->span, "`bool` is of 0 or 1, found %s", num_text(e->arena, n));
    return NULL;
  }
  if (whole) return zb_printf(e->arena, "%lld", (long long)i);
  ZbText t = {0};
  zb_text_number(&t, n.v);
  const char *text = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  return text;
}

/* Whether what the file has is the value `text`. */
static bool same_value(const cJSON *found, const char *text) {
  cJSON *want = zb_json_parse(text, strlen(text), ZB_JSON_ANY, NULL);
  bool same = want && cJSON_Compare(found, want, true);
  if (want && cJSON_IsNumber(want) && cJSON_IsNumber(found)) same = want->valuedouble == found->valuedouble;
  cJSON_Delete(want);
  return same;
}

static bool is_null(const ZlConfigValue *v) { return v->kind == ZL_V_TEXT && !strcmp(v->json, "null"); }

/* The static that the entry sets: `key = width`, `key = bool(tied)`. */
static const char *sets(const ZlConfigEntry *c) {
  const ZlConfigValue *v = &c->values[0];
  return v->expr && v->expr->kind == ZL_E_NAME && c->nvalues == 1 ? v->expr->name.s : NULL;
}

/* ---- the file ------------------------------------------------------------------------------------------ */
static const ZlWeights *map_with_config(Elab *e) {
  const ZlFile *f = e->model->file;
  const ZlWeights *map = NULL;
  ZlNames names = {0};
  for (uint32_t i = 0; i < f->nweights; i++) {
    const ZlWeights *w = f->weights[i];
    if (strcmp(w->model.s, e->model->name.s) || !w->nconfig) continue;
    ZB_PUSH(e->arena, names.at, names.n, w->name);
    if (!e->opt->names || !strcmp(e->opt->names, w->name.s)) map = w;
  }
  if (map && (names.n == 1 || e->opt->names)) return map;
  ZlDiag *d;
  if (!names.n) {
    d = zl_report(e->diags, ZL_Z1007, e->model->span, "no weights for model %s have a `config`",
                  e->model->name.s);
    zl_help(d, "add `weights hf for %s { ... config { hidden_size = ... } }`", e->model->name.s);
  } else if (e->opt->names) {
    d = zl_report(e->diags, ZL_Z1007, ZL_NOWHERE, "--names %s: no such weights with a `config` for model %s",
                  e->opt->names, e->model->name.s);
  } else {
    d = zl_report(e->diags, ZL_Z1007, ZL_NOWHERE, "model %s has %u maps with a `config`: say which",
                  e->model->name.s, names.n);
  }
  for (uint32_t i = 0; i < names.n; i++) zl_note(d, "--names %s", names.at[i].s);
  return NULL;
}

bool config_open(Elab *e) {
  if (!e->opt->config) return true;
  const ZlWeights *map = map_with_config(e);
  if (!map) return false;
  size_t n;
  ZbErr err;
  const char *path = zb_show(e->opt->config),
             *text = zb_read_file(e->arena, e->opt->config, MAX_FILE, &n, &err);
  if (!text) {
    zl_report_unread(e->diags, ZL_Z1009, ZL_NOWHERE, &err);
    return false;
  }
  cJSON *json = zb_json_parse(text, n, ZB_JSON_ANY, &err);
  if (!cJSON_IsObject(json)) {
    zl_report(e->diags, ZL_Z1009, ZL_NOWHERE, "%s as a config: %s", zb_strdup(e->arena, path),
              json ? "it is not a JSON object" : err.text);
    cJSON_Delete(json);
    return false;
  }
  e->config = ZB_NEW(e->arena, Config);
  *e->config = (Config){zb_strdup(e->arena, path), json, map};
  return true;
}

void config_close(Elab *e) {
  if (e->config) cJSON_Delete(e->config->json);
}

static const char *json_text(Elab *e, const cJSON *v) {
  char *s = cJSON_PrintUnformatted(v);
  enum { SHOWN = 60 };
  const char *text = s ? zb_show(s) : "?";
  text = strlen(text) > SHOWN ? zb_printf(e->arena, "%.*s...", SHOWN, text) : zb_strdup(e->arena, text);
  cJSON_free(s);
  return text;
}

static ZlDiag *config_fails(Elab *e, ZlCode code, const ZlConfigEntry *c, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static ZlDiag *config_fails(Elab *e, ZlCode code, const ZlConfigEntry *c, const char *fmt, ...) {
  char text[700];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return complain(e, code, c->key.span, "%s: %s", e->config->path, text);
}

/* What the file has under the entry's key; NULL if that is absent or null. False, and a report, if the key is
 * there twice: readers disagree on which counts. */
static bool config_find(Elab *e, const ZlConfigEntry *c, const cJSON **out) {
  const cJSON *at = e->config->json;
  *out = NULL;
  for (const char *key = c->key.s; at && *key; key += *key == '.') {
    size_t n = strcspn(key, ".");
    const cJSON *found = NULL;
    for (const cJSON *x = cJSON_IsObject(at) ? at->child : NULL; x; x = x->next) {
      if (strlen(x->string) != n || memcmp(x->string, key, n)) continue;
      if (found) {
        config_fails(e, ZL_Z1009, c, "the key `%.*s` is there twice", (int)n, key);
        return false;
      }
      found = x;
    }
    at = found;
    key += n;
  }
  if (at && !cJSON_IsNull(at)) *out = at;
  return true;
}

/* ---- statics from the file ----------------------------------------------------------------------------- */
static bool take_value(Elab *e, const ZlConfigEntry *c, const cJSON *found, Num *out) {
  bool truth = c->values[0].kind == ZL_V_BOOL;
  if (truth && cJSON_IsBool(found)) *out = num_int(cJSON_IsTrue(found));
  else if (!truth && cJSON_IsNumber(found) && found->valuedouble - found->valuedouble == 0)
    *out = num_double(found->valuedouble);
  else {
    config_fails(e, ZL_Z1009, c, "`%s` is %s, expected %s", c->key.s, json_text(e, found),
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
    if (sets(&w->config[i]) && !strcmp(sets(&w->config[i]), name) && config_find(e, &w->config[i], &found) &&
        found)
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
    if (!config_find(e, c, &found)) return CONFIG_FAILED;
    if (found) return take_value(e, c, found, out) ? CONFIG_SET : CONFIG_FAILED;
    if (c->otherwise && !absent) absent = c;
    if (!any && !c->cond) any = c;
  }
  if (absent) return take_otherwise(e, absent, out) ? CONFIG_SET : CONFIG_FAILED;
  if (!any) return CONFIG_SILENT;
  config_fails(e, ZL_Z1009, any, "there is no `%s`, which says what `%s` is", any->key.s, name);
  return CONFIG_FAILED;
}

/* ---- the file against the model ------------------------------------------------------------------------ */
static const char *wanted_text(Elab *e, const ZlConfigEntry *c) {
  ZbText t = {0};
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const char *one = value_text(e, &c->values[k]);
    zb_text_add(&t, "%s%s", k ? " or " : "", one ? one : "?");
  }
  const char *s = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  return s;
}

static void contradiction(Elab *e, const ZlConfigEntry *c, const char *found, const char *why) {
  const char *name = sets(c), *wanted = wanted_text(e, c);
  if (name && static_overridden(e, name)) {
    config_fails(e, ZL_Z1010, c, "`%s` is %s, the command line makes it %s", c->key.s, found, wanted);
    return;
  }
  ZlDiag *d = config_fails(e, ZL_Z1008, c, "`%s` is %s%s, model %s needs %s", c->key.s, found, why,
                           e->model->name.s, wanted);
  if (name) zl_note(d, "`%s` comes from another key of the file", name);
  else
    zl_help(d,
            "this model computes something else than the file's: write one that does, or take another file");
}

static void check_entry(Elab *e, const ZlConfigEntry *c) {
  const cJSON *found;
  const char *absent = NULL;
  if (!config_find(e, c, &found)) return;
  if (!found && sets(c)) { /* config_static saw to it where there is no condition */
    if (c->cond && !c->otherwise && !is_given(e, sets(c)))
      config_fails(e, ZL_Z1009, c, "there is no `%s`, which says what `%s` is", c->key.s, sets(c));
    return;
  }
  if (!found && c->otherwise) absent = value_text(e, c->otherwise);
  if (!found && c->otherwise && !absent) return;
  for (uint32_t k = 0; k < c->nvalues; k++) {
    const char *text = value_text(e, &c->values[k]);
    if (!text || (found ? same_value(found, text) : absent && !strcmp(absent, text))) return;
    if (!found && is_null(&c->values[k])) return;
  }
  if (found) contradiction(e, c, json_text(e, found), "");
  else if (absent) contradiction(e, c, "absent", zb_printf(e->arena, ", which means %s", absent));
  else config_fails(e, ZL_Z1009, c, "there is no `%s`, expected %s", c->key.s, wanted_text(e, c));
}

void config_check(Elab *e) {
  for (uint32_t i = 0; e->config && i < e->config->map->nconfig; i++)
    if (cond_holds(e, e->config->map->config[i].cond)) check_entry(e, &e->config->map->config[i]);
}

/* ---- what the model says ------------------------------------------------------------------------------- */
void config_values(Elab *e) {
  const ZlFile *f = e->model->file;
  ZlSpan beyond = ZL_NOWHERE;
  for (uint32_t i = 0; i < f->nweights; i++) {
    const char *map = f->weights[i]->name.s;
    const ZlWeights *w = f->weights[i]->base && !f->weights[i]->nconfig ? f->weights[i]->base : f->weights[i];
    if (strcmp(w->model.s, e->model->name.s)) continue;
    for (uint32_t k = 0; k < w->nconfig; k++) {
      const char *text = cond_holds(e, w->config[k].cond) ? value_text(e, &w->config[k].values[0]) : NULL;
      if (text && e->g->nconfig == ZG_MAX_KEYS) beyond = w->config[k].key.span;
      if (text) zg_config_add(e->g, map, w->config[k].key.s, text);
    }
  }
  weights_most(e, e->g->nconfig, "config keys", beyond, "name those keys on which the numbers depend");
}
