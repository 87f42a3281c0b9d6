/* A model's adapters for other programs: the config that peft reads beside them, and matrices with their
 * adapters added. Which tensors are whose is said by their names (graph/adapter.h). */
#include "runtime/exec/hub/adapter.h"

#include "graph/adapter.h"

#include <string.h>

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

bool zx_is_adapter(const char *tensor) {
  return starts(tensor, ZG_ADAPTER_PREFIX) &&
         (zb_ends(tensor, ZG_ADAPTER_A) || zb_ends(tensor, ZG_ADAPTER_B));
}

const char *zx_adapter_of(ZbArena *a, const char *tensor, const char *lost, bool second) {
  size_t n = strlen(tensor), e = strlen(ZG_ADAPTER_MATRIX);
  if (!zb_ends(tensor, ZG_ADAPTER_MATRIX)) return NULL;
  return zb_printf(a, ZG_ADAPTER_PREFIX "%s%.*s%s", lost, (int)(n - e), tensor,
                   second ? ZG_ADAPTER_B : ZG_ADAPTER_A);
}

const char *zx_adapter_module(ZbArena *a, const char *adapter) {
  const char *s = adapter + strlen(ZG_ADAPTER_PREFIX);
  return zb_strndup(a, s, strlen(s) - strlen(ZG_ADAPTER_A));
}

const char *zx_adapter_lost(ZbArena *a, const char *module, const char *tensor) {
  size_t n = strlen(tensor), e = strlen(ZG_ADAPTER_MATRIX), m = strlen(module);
  if (!zb_ends(tensor, ZG_ADAPTER_MATRIX) || !zg_adapter_names(zb_strndup(a, tensor, n - e), module))
    return NULL;
  return zb_strndup(a, module, m - (n - e));
}

/* ---- the config ---------------------------------------------------------------------------------------- */
static void put_kept(ZbJson *j, const ZgGraph *g, const char *key, const char *otherwise) {
  const char *value = zg_adapter_value(g, "", key);
  zb_json_raw(j, key, "%s", value ? value : otherwise);
}

/* The keys of a pattern, each a name with its number. */
static void put_pattern(ZbJson *j, const ZgGraph *g, const char *key) {
  size_t n = strlen(key);
  zb_json_object(j, key);
  for (uint32_t i = 0; i < g->nconfig; i++) {
    const ZgConfig *c = &g->config[i];
    if (!strcmp(c->map, ZG_ADAPTER) && starts(c->key, key) && c->key[n] == '.')
      zb_json_raw(j, c->key + n + 1, "%s", c->value);
  }
  zb_json_end(j);
}

/* Says whether the foreign model writes text, by what its config calls it. */
static bool writes_text(const ZgGraph *g, const char *names) {
  for (uint32_t i = 0; i < g->nconfig; i++)
    if (!strcmp(g->config[i].map, names) && !strcmp(g->config[i].key, "architectures"))
      return strstr(g->config[i].value, "CausalLM") || strstr(g->config[i].value, "LMHead");
  return false;
}

void zx_adapter_config(const ZgGraph *g, const char *names, const char *base, ZbText *out) {
  ZbJson j = {.text = out, .indent = "  "};
  zb_json_object(&j, NULL);
  put_pattern(&j, g, "alpha_pattern");
  if (base) zb_json_string(&j, "base_model_name_or_path", base);
  else zb_json_null(&j, "base_model_name_or_path");
  zb_json_string(&j, "bias", "none");
  put_kept(&j, g, "fan_in_fan_out", "false");
  zb_json_bool(&j, "inference_mode", true);
  put_kept(&j, g, "lora_alpha", "1");
  put_kept(&j, g, "lora_dropout", "0.0");
  zb_json_null(&j, "modules_to_save");
  zb_json_string(&j, "peft_type", "LORA");
  put_kept(&j, g, "r", "1");
  put_pattern(&j, g, "rank_pattern");
  put_kept(&j, g, "target_modules", "[]");
  if (writes_text(g, names)) zb_json_string(&j, "task_type", "CAUSAL_LM");
  else zb_json_null(&j, "task_type");
  zb_json_bool(&j, "use_dora", false);
  put_kept(&j, g, "use_rslora", "false");
  zb_json_end(&j);
  zb_text_add(out, "\n");
}

/* ---- merging ------------------------------------------------------------------------------------------- */
/* Adds scale B A to window[0..n), of one row, from column `first` on. */
static void add_to_row(const ZxPair *p, float *window, int64_t row, int64_t first, int64_t n) {
  const float *by = p->transposed ? p->a : p->b, *of = p->transposed ? p->b : p->a;
  int64_t rows = p->transposed ? p->in : p->out, columns = p->transposed ? p->out : p->in;
  enum { SOME = 1024 };
  float sum[SOME];
  for (int64_t at = 0, k; at < n; at += k) {
    k = n - at < SOME ? n - at : SOME;
    memset(sum, 0, sizeof sum);
    for (int64_t r = 0; r < p->rank; r++) {
      const float *x = of + r * columns + first + at, times = by[r * rows + row];
      for (int64_t i = 0; i < k; i++) sum[i] += times * x[i];
    }
    for (int64_t i = 0; i < k; i++) window[at + i] += (float)p->scale * sum[i];
  }
}

void zx_adapter_add(const ZxPair *p, float *window, int64_t from, int64_t n) {
  int64_t columns = p->transposed ? p->out : p->in;
  for (int64_t at = 0, k; at < n; at += k) { /* what the window has of a row */
    int64_t first = (from + at) % columns;
    k = columns - first < n - at ? columns - first : n - at;
    add_to_row(p, window + at, (from + at) / columns, first, k);
  }
}
