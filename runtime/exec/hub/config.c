/* config.json: what the graph says of it over what another folder's says. The text is made anew, keys in
 * order, as the libraries that read it write it; numbers stay as they are written: 1e-05, 10000.0. */
#include "runtime/exec/hub/hub.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* Returns NULL, and a message, if the text is no JSON. */
static cJSON *parse(const char *text, const char *name, ZbErr *err) {
  uint32_t line;
  const char *word;
  ZbErr why;
  cJSON *x = zb_json_parse(text, strlen(text), ZB_JSON_NAMED, &why);
  if (x) zb_json_digits(x, text);
  else if ((word = zb_json_not_finite(text, strlen(text), &line)))
    zb_fail(err, "write 1e999 there, which every reader takes for infinity",
            "%s:%u: %s is not a number of JSON", zb_show(name), line, word);
  else zb_fail(err, NULL, "%s as a config: %s", zb_show(name), why.text);
  return x;
}

/* ["a","b"]*5 becomes a list of five: what follows the list is the number of its items. */
static void repeat(cJSON *list, const char *times) {
  int64_t n = strtoll(times, NULL, 10), have = cJSON_GetArraySize(list);
  for (int64_t i = have; i < n; i++)
    cJSON_AddItemToArray(list, cJSON_Duplicate(cJSON_GetArrayItem(list, (int)(i % have)), true));
  while (have > n) cJSON_DeleteItemFromArray(list, (int)--have);
}

/* A value of the graph. */
static cJSON *value_of(const char *text) {
  const char *end = strrchr(text, ']');
  bool over = end && end[1] == '*';
  cJSON *x = zb_json_parse(text, over ? (size_t)(end + 1 - text) : strlen(text), ZB_JSON_ANY, NULL);
  if (x) zb_json_digits(x, text);
  if (x && over) repeat(x, end + 2);
  return x;
}

/* ---- merging ---- */
/* A number that the other folder has, too: it stays as it is written there, such as 30.0. */
static bool is_written_so(const cJSON *old, const cJSON *value) {
  return cJSON_IsNumber(old) && cJSON_IsNumber(value) && old->valuedouble == value->valuedouble;
}

/* "rope_scaling.factor": a member of an object. Takes `value`. */
static void set(cJSON *object, const char *key, cJSON *value) {
  const char *dot = strchr(key, '.');
  char *name = dot ? strndup(key, (size_t)(dot - key)) : strdup(key);
  if (!name) zb_out_of_memory(0);
  cJSON *old = cJSON_GetObjectItemCaseSensitive(object, name);
  if (dot && !cJSON_IsObject(old)) {
    cJSON *made = cJSON_CreateObject();
    if (old) cJSON_ReplaceItemInObjectCaseSensitive(object, name, made);
    else cJSON_AddItemToObject(object, name, made);
    old = made;
  }
  if (dot) set(old, dot + 1, value);
  else if (is_written_so(old, value)) cJSON_Delete(value);
  else if (old) cJSON_ReplaceItemInObjectCaseSensitive(object, name, value);
  else cJSON_AddItemToObject(object, name, value);
  free(name);
}

static bool set_all(cJSON *root, const ZgGraph *g, const char *names, ZbErr *err) {
  for (uint32_t i = 0; i < g->nconfig; i++) {
    if (strcmp(g->config[i].map, names)) continue;
    cJSON *value = value_of(g->config[i].value);
    if (!value)
      return zb_fail(err, "compile the graph again", "model %s: the value of `%s` in config.json is not JSON",
                     g->model, zb_show(g->config[i].key));
    set(root, g->config[i].key, value);
  }
  return true;
}

/* ---- writing ---- */
static void put_text(ZbText *t, const char *s) {
  cJSON *x = cJSON_CreateString(s);
  char *text = x ? cJSON_PrintUnformatted(x) : NULL;
  if (!text) zb_out_of_memory(0);
  zb_text_put(t, text, strlen(text));
  cJSON_free(text);
  cJSON_Delete(x);
}

static int by_key(const void *a, const void *b) {
  return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

static void put(ZbText *t, const cJSON *x, int depth);

static void put_members(ZbText *t, const cJSON *x, int depth) {
  int n = cJSON_GetArraySize(x), i = 0;
  const cJSON **all = calloc((size_t)n + 1, sizeof *all);
  if (!all) zb_out_of_memory(0);
  for (const cJSON *k = x->child; k; k = k->next) all[i++] = k;
  if (cJSON_IsObject(x)) qsort(all, (size_t)n, sizeof *all, by_key);
  zb_text_add(t, cJSON_IsObject(x) ? "{" : "[");
  for (i = 0; i < n; i++) {
    zb_text_add(t, "%s\n%*s", i ? "," : "", 2 * depth + 2, "");
    if (cJSON_IsObject(x)) put_text(t, all[i]->string);
    if (cJSON_IsObject(x)) zb_text_add(t, ": ");
    put(t, all[i], depth + 1);
  }
  if (n) zb_text_add(t, "\n%*s", 2 * depth, "");
  zb_text_add(t, cJSON_IsObject(x) ? "}" : "]");
  free(all);
}

static void put(ZbText *t, const cJSON *x, int depth) {
  if (cJSON_IsObject(x) || cJSON_IsArray(x)) put_members(t, x, depth);
  else if (cJSON_IsString(x)) put_text(t, x->valuestring);
  else if (cJSON_IsNumber(x)) zb_text_put(t, x->valuestring, strlen(x->valuestring));
  else zb_text_add(t, cJSON_IsTrue(x) ? "true" : cJSON_IsFalse(x) ? "false" : "null");
}

char *zx_config(const ZgGraph *g, const char *names, ZkElem as, const char *quantized, const char *like,
                const char *name, ZbErr *err) {
  static const char *const types[ZK_ELEMS] = {
      [ZK_F32] = "float32", [ZK_BF16] = "bfloat16", [ZK_F16] = "float16"};
  bool any = like != NULL;
  for (uint32_t i = 0; i < g->nconfig; i++) any |= !strcmp(g->config[i].map, names);
  if (!any) return NULL;
  cJSON *root = like ? parse(like, name, err) : cJSON_CreateObject();
  if (!root) return NULL;
  ZbText t = {0};
  bool ok = cJSON_IsObject(root) || zb_fail(err, NULL, "%s is not a JSON object", zb_show(name));
  cJSON_DeleteItemFromObjectCaseSensitive(root, "quantization_config"); /* what is written is not */
  cJSON_DeleteItemFromObjectCaseSensitive(root, "compression_config");
  if (quantized) set(root, "quantization_config", value_of(quantized));
  ok = ok && set_all(root, g, names, err);
  if (ok) { /* the first is what newer readers know, the second what older ones do */
    set(root, "dtype", cJSON_CreateString(types[as]));
    set(root, "torch_dtype", cJSON_CreateString(types[as]));
    put(&t, root, 0);
    zb_text_add(&t, "\n");
  }
  cJSON_Delete(root);
  return t.s;
}
