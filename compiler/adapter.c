/* The config of a model's adapters: what peft's adapter_config.json says, or what options do, becomes
 * config of the graph. Whatever asks for more than W + scale B A is refused by its key. */
#include "compiler/adapt.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 22, MAX_RANK = 1 << 20 };

typedef struct {
  ZgGraph *g;
  ZbArena *tmp;
  ZlDiags *d;
  const char *map;  /* where the config goes */
  const char *path; /* of the file, for messages */
} Reading;

static const char *shown(const Reading *r, const cJSON *v) {
  char *s = cJSON_PrintUnformatted(v);
  const char *text = zb_printf(r->tmp, "%.60s", s ? zb_show(s) : "?");
  cJSON_free(s);
  return text;
}

static bool refuse(const Reading *r, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(const Reading *r, const char *help, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  ZlDiag *d = zl_report(r->d, ZL_Z1012, ZL_NOWHERE, "%s: %s", r->path, text);
  if (help) zl_help(d, "%s", help);
  return false;
}

/* ---- keys ---------------------------------------------------------------------------------------------- */
typedef enum { KEPT, PATTERN, MUST, EMPTY, FREE } Meaning;
typedef struct {
  const char *key;
  Meaning meaning;
  const char *value;
} Key;

static const Key keys[] = {
#define KEY(name, meaning, value) {name, meaning, value},
#include "compiler/adapter_keys.def"
#undef KEY
};

static Key key_named(const char *name) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(keys[i].key, name)) return keys[i];
  return (Key){name, EMPTY, ""};
}

static bool is_empty(const cJSON *v) {
  return cJSON_IsNull(v) || cJSON_IsFalse(v) || ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child) ||
         (cJSON_IsString(v) && !*v->valuestring);
}

static void keep(const Reading *r, const char *key, const char *json) {
  zg_config_add(r->g, r->map, key, json);
}

/* Returns a number in as few digits as give it again. */
static const char *number_text(const Reading *r, double x) {
  const char *s = zb_printf(r->tmp, "%.15g", x);
  return strtod(s, NULL) == x ? s : zb_printf(r->tmp, "%.17g", x);
}

/* Keeps a number that must be finite; a rank a whole one of at least 1. */
static bool keep_number(const Reading *r, const char *key, const cJSON *v, bool rank) {
  double x = cJSON_IsNumber(v) ? v->valuedouble : -1;
  bool fits = cJSON_IsNumber(v) && isfinite(x) && (!rank || (x >= 1 && x <= MAX_RANK && x == floor(x)));
  if (!fits)
    return refuse(r, NULL, "`%s` is %s, and must be a %s", key, shown(r, v),
                  rank ? "whole number from 1 to 1048576" : "number");
  keep(r, key, number_text(r, x));
  return true;
}

/* A name of modules, of words with dots between; no regular expression. */
static bool is_name(const char *s) {
  static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return *s && s[strspn(s, word)] == 0 && *s != '.' && s[strlen(s) - 1] != '.' && !strstr(s, "..");
}

/* A part of a name that is a number: layers are alike here. */
static bool names_a_layer(const char *s) {
  for (; *s; s += strcspn(s, "."), s += *s == '.') {
    size_t n = strspn(s, "0123456789");
    if (n && (s[n] == '.' || !s[n])) return true;
  }
  return false;
}

static bool check_name(const Reading *r, const char *key, const char *name) {
  if (!is_name(name))
    return refuse(r, "list the names of modules: [\"q_proj\", \"v_proj\"]",
                  "`%s` has \"%.60s\", a regular expression, which is not read", key, zb_show(name));
  return !names_a_layer(name) ||
         refuse(r, "give all layers the same", "`%s` has \"%.60s\", which is of one layer: that is not done",
                key, name);
}

static bool keep_pattern(const Reading *r, const char *key, const cJSON *v) {
  if (cJSON_IsNull(v)) return true;
  if (!cJSON_IsObject(v)) return refuse(r, NULL, "`%s` is %s, not an object", key, shown(r, v));
  if ((uint32_t)cJSON_GetArraySize(v) > ZG_MAX_KEYS / 4)
    return refuse(r, "name modules by their last parts: q_proj", "`%s` has more than %d names", key,
                  ZG_MAX_KEYS / 4);
  for (const cJSON *x = v->child; x; x = x->next)
    if (!check_name(r, key, x->string) ||
        !keep_number(r, zb_printf(r->tmp, "%s.%s", key, x->string), x, !strcmp(key, "rank_pattern")))
      return false;
  return true;
}

static bool keep_targets(const Reading *r, const cJSON *v) {
  bool all = cJSON_IsString(v) && !strcmp(v->valuestring, "all-linear");
  if (cJSON_IsString(v) && !all)
    return refuse(r, "list the names of modules: [\"q_proj\", \"v_proj\"]",
                  "`target_modules` is %s, a regular expression, which is not read", shown(r, v));
  if (!all && (!cJSON_IsArray(v) || !v->child))
    return refuse(r, NULL, "`target_modules` is %s, and must list names of modules", shown(r, v));
  for (const cJSON *x = all ? NULL : v->child; x; x = x->next)
    if (!check_name(r, "target_modules", cJSON_IsString(x) ? x->valuestring : "")) return false;
  char *json = cJSON_PrintUnformatted(v);
  if (!json) zb_out_of_memory(0);
  bool fits = strlen(json) <= 255;
  if (fits) keep(r, "target_modules", json);
  cJSON_free(json);
  return fits ||
         refuse(r, "name modules by their last parts: q_proj", "`target_modules` is longer than 255 bytes");
}

/* Of how weights begin: some ways change the matrices themselves, which are then not the folder's. */
static bool begins_plainly(const Reading *r, const cJSON *v) {
  static const char *const plain[] = {"gaussian", "default", "orthogonal", "eva"};
  bool is = !v || cJSON_IsBool(v) || cJSON_IsNull(v);
  for (size_t i = 0; !is && i < sizeof plain / sizeof *plain; i++)
    is = cJSON_IsString(v) && !strcmp(v->valuestring, plain[i]);
  return is ||
         refuse(r, "let peft save it with path_initial_model_for_weight_conversion",
                "`init_lora_weights` is %s, which is beside other weights than the model's", shown(r, v));
}

static bool keep_key(const Reading *r, const Key *k, const cJSON *v) {
  if (!strcmp(k->key, "r")) return keep_number(r, k->key, v, true);
  if (!strcmp(k->key, "target_modules")) return keep_targets(r, v);
  if (!strcmp(k->key, "use_rslora")) {
    if (!cJSON_IsBool(v)) return refuse(r, NULL, "`%s` is %s, not true or false", k->key, shown(r, v));
    keep(r, k->key, cJSON_IsTrue(v) ? "true" : "false");
    return true;
  }
  if (!strcmp(k->key, "lora_dropout") && cJSON_IsNumber(v) && !(v->valuedouble >= 0 && v->valuedouble < 1))
    return refuse(r, NULL, "`lora_dropout` is %s, and must be from 0 to less than 1", shown(r, v));
  return keep_number(r, k->key, v, false);
}

static bool take_key(const Reading *r, const cJSON *v) {
  if (!strcmp(v->string, "init_lora_weights")) return begins_plainly(r, v);
  Key k = key_named(v->string);
  switch (k.meaning) {
  case FREE: return true;
  case KEPT: return keep_key(r, &k, v);
  case PATTERN: return keep_pattern(r, k.key, v);
  case EMPTY:
    return is_empty(v) || refuse(r, "train the adapter without it", "`%s` is %s: that is not done",
                                 zb_show(k.key), shown(r, v));
  case MUST: break;
  }
  char *json = cJSON_PrintUnformatted(v);
  bool same = json && !strcmp(json, k.value);
  cJSON_free(json);
  return same || refuse(r, "train the adapter without it", "`%s` is %s, and only %s is done", k.key,
                        shown(r, v), k.value);
}

/* ---- the file ------------------------------------------------------------------------------------------ */
static bool take_all(const Reading *r, const cJSON *json) {
  static const char *const needed[] = {"peft_type", "r", "lora_alpha", "target_modules"};
  if (!cJSON_IsObject(json)) return refuse(r, NULL, "it is not a JSON object");
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (!cJSON_GetObjectItemCaseSensitive(json, needed[i]))
      return refuse(r, "give what peft's save_pretrained wrote", "the key `%s` is missing", needed[i]);
  for (const cJSON *v = json->child; v; v = v->next) {
    if (cJSON_GetObjectItemCaseSensitive(json, v->string) != v)
      return refuse(r, NULL, "the key `%s` is there twice", zb_show(v->string));
    if (!take_key(r, v)) return false;
  }
  return true;
}

static bool read_file(Reading *r, const char *path) {
  size_t n;
  ZbErr err;
  const char *file = zb_file_of(r->tmp, path, ZG_ADAPTER);
  char *text = zb_read_file(r->tmp, file, MAX_FILE, &n, &err);
  r->path = zb_strdup(r->tmp, zb_show(file));
  if (!text) {
    zl_report_unread(r->d, ZL_Z1012, ZL_NOWHERE, &err);
    return false;
  }
  cJSON *json = zb_json_parse(text, n, ZB_JSON_NAMED, &err);
  bool ok = json ? take_all(r, json) : refuse(r, NULL, "%s", err.text);
  cJSON_Delete(json);
  return ok;
}

/* ---- options ------------------------------------------------------------------------------------------- */
/* "q_proj,v_proj" as a list of JSON; "all-linear" as that. */
static cJSON *targets_of(const Reading *r, const char *text) {
  if (!strcmp(text, "all-linear")) return cJSON_CreateString(text);
  cJSON *list = cJSON_CreateArray();
  for (const char *s = text; *s;) {
    size_t n = strcspn(s, ",");
    cJSON_AddItemToArray(list, cJSON_CreateString(zb_strndup(r->tmp, s, n)));
    s += n + (s[n] == ',');
  }
  return list;
}

static bool take_options(Reading *r, const ZcOptions *opt) {
  int64_t rank = opt->rank ? opt->rank : 8;
  r->path = zb_printf(r->tmp, "--lora %s", zb_show(opt->lora));
  cJSON *targets = targets_of(r, opt->lora);
  bool ok = keep_targets(r, targets);
  cJSON_Delete(targets);
  keep(r, "r", zb_printf(r->tmp, "%lld", (long long)rank));
  keep(r, "lora_alpha", number_text(r, opt->alpha > 0 ? opt->alpha : 2.0 * (double)rank));
  keep(r, "use_rslora", "false");
  keep(r, "lora_dropout", number_text(r, opt->dropout));
  return ok;
}

bool adapter_config(ZgGraph *g, ZbArena *tmp, ZlDiags *d, const ZcOptions *opt, uint32_t which) {
  Reading r = {
      .g = g, .tmp = tmp, .d = d, .map = zb_printf(tmp, "%s" ZG_ADAPTER, zg_adapter_mark(tmp, which))};
  return opt->nadapters ? read_file(&r, opt->adapters[which]) : take_options(&r, opt);
}
