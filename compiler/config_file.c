/* config.json as a file: opening it, finding a key, and what it has that no line of the map reads. */
#include "compiler/config.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FILE (16u << 20)

/* ---- opening ------------------------------------------------------------------------------------------- */
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

/* Reports why the text is no JSON object. */
static void not_json(Elab *e, const char *path, const char *text, size_t n, const char *why) {
  uint32_t line;
  const char *word = zb_json_not_finite(text, n, &line);
  ZlDiag *d;
  if (word) {
    d = zl_report(e->diags, ZL_Z1009, ZL_NOWHERE, "%s:%u: `%s` is not a number of JSON", path, line, word);
    zl_help(d,
            "write %s1e999, which every reader takes for infinity, or leave the key out if it may be absent",
            *word == '-' ? "-" : "");
    return;
  }
  zl_report(e->diags, ZL_Z1009, ZL_NOWHERE, "%s as a config: %s", path, why);
}

/* {"__float__": "Infinity"} is how transformers 5 writes that number. */
static void take_infinities(cJSON *x) {
  for (cJSON *k = x->child; k; k = k->next) {
    const cJSON *word = cJSON_GetObjectItemCaseSensitive(k, "__float__");
    if (cJSON_IsObject(k) && cJSON_GetArraySize(k) == 1 && cJSON_IsString(word)) {
      double number = strtod(word->valuestring, NULL);
      cJSON_Delete(k->child);
      k->child = NULL;
      k->type = cJSON_Number;
      k->valuedouble = number;
    } else take_infinities(k);
  }
}

bool config_open(Elab *e) {
  if (!e->opt->config) return true;
  const ZlWeights *map = map_with_config(e);
  if (!map) return false;
  size_t n;
  ZbErr err;
  const char *text = e->opt->config_text,
             *file = text ? e->opt->config : zb_file_of(e->arena, e->opt->config, "config.json"),
             *path = zb_strdup(e->arena, zb_show(file));
  if (text) n = strlen(text);
  else text = zb_read_file(e->arena, file, MAX_FILE, &n, &err);
  if (!text) {
    zl_report_unread(e->diags, ZL_Z1009, ZL_NOWHERE, &err);
    return false;
  }
  cJSON *json = zb_json_parse(text, n, ZB_JSON_NAMED, &err);
  if (!cJSON_IsObject(json)) {
    not_json(e, path, text, n, json ? "it is not a JSON object" : err.text);
    cJSON_Delete(json);
    return false;
  }
  zb_json_digits(json, text);
  take_infinities(json);
  e->config = ZB_NEW(e->arena, Config);
  *e->config = (Config){.path = path, .json = json, .map = map};
  return true;
}

void config_close(Elab *e) {
  if (e->config) cJSON_Delete(e->config->json);
}

/* ---- keys ---------------------------------------------------------------------------------------------- */
const char *config_shown(Elab *e, const cJSON *v) {
  char *s = cJSON_PrintUnformatted(v);
  enum { SHOWN = 60 };
  const char *text = s ? zb_show(s) : "?";
  text = strlen(text) > SHOWN ? zb_printf(e->arena, "%.*s...", SHOWN, text) : zb_strdup(e->arena, text);
  cJSON_free(s);
  return text;
}

ZlDiag *config_fails(Elab *e, ZlCode code, const ZlConfigEntry *c, const char *fmt, ...) {
  char text[700];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return complain(e, code, c->key.span, "%s: %s", e->config->path, text);
}

bool config_find(Elab *e, const ZlConfigEntry *c, const cJSON **out) {
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
  *out = at;
  return true;
}

/* ---- keys that nobody reads ------------------------------------------------------------------------------ */
typedef enum { HARMLESS, DOUBTFUL, COUNTS, UNKNOWN } Judged;

static bool is_plain(const cJSON *x, const char *value) {
  if (cJSON_IsNull(x) || config_same(x, value)) return true;
  if (!cJSON_IsArray(x)) return false;
  for (const cJSON *k = x->child; k; k = k->next)
    if (!config_same(k, value)) return false;
  return true;
}

static Judged judge(const char *key, const cJSON *x) {
  static const struct {
    const char *key;
    Judged judged;
    const char *value;
  } known[] = {
#define KEY(name, judged, value) {name, judged, value},
#include "compiler/config_keys.def"
#undef KEY
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].key, key))
      return known[i].judged == HARMLESS || is_plain(x, known[i].value) ? HARMLESS : known[i].judged;
  return UNKNOWN;
}

/* A key against lines of the map: one reads it, or some read what is inside. */
typedef enum { UNREAD, READ, READ_INSIDE } Reading;

static Reading reading(Elab *e, const char *key) {
  const ZlWeights *w = e->config->map;
  size_t n = strlen(key);
  Reading r = UNREAD;
  for (uint32_t i = 0; i < w->nharmless; i++)
    if (!strcmp(w->harmless[i].pattern.s, key) && cond_holds(e, w->harmless[i].cond)) return READ;
  for (uint32_t i = 0; i < w->nconfig; i++) {
    const char *s = w->config[i].key.s;
    if (strncmp(s, key, n) || (s[n] && s[n] != '.') || !cond_holds(e, w->config[i].cond)) continue;
    if (!s[n]) return READ;
    r = READ_INSIDE;
  }
  return r;
}

static void unread(Elab *e, const cJSON *object, const char *outer, int depth) {
  enum { DEEP = 8 };
  for (const cJSON *x = object->child; x; x = x->next) {
    const char *key = zb_printf(e->arena, "%s%s%s", outer, *outer ? "." : "", zb_show(x->string));
    Reading r = reading(e, key);
    Judged j = judge(key, x);
    if (r == READ_INSIDE && cJSON_IsObject(x) && depth < DEEP) unread(e, x, key, depth + 1);
    if (r == READ || (r == READ_INSIDE && (cJSON_IsObject(x) || cJSON_IsNull(x))) || j == HARMLESS) continue;
    ZlDiag *d =
        j == COUNTS
            ? zl_report(e->diags, ZL_Z1008, e->config->map->span,
                        "%s: `%s` is %s, which changes what is computed, and weights %s do not read it",
                        e->config->path, key, config_shown(e, x), e->config->map->name.s)
            : zl_report(e->diags, ZL_Z1011, e->config->map->span,
                        "%s: weights %s do not read `%s`, which is %s", e->config->path,
                        e->config->map->name.s, key, config_shown(e, x));
    if (j != COUNTS)
      zl_help(d, "if numbers depend on it, say in `config` what it must be; else `ignore %s` there", key);
  }
}

void config_unread(Elab *e) { unread(e, e->config->json, "", 0); }
