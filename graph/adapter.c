/* What the config of a graph's adapters says of a module (adapter.h). */
#include "graph/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *zg_adapter_mark(ZbArena *a, uint32_t which) {
  return which ? zb_printf(a, "%u:", which + 1) : "";
}

bool zg_adapter_is(const char *map) { return !strcmp(map, ZG_ADAPTER) || zb_ends(map, ":" ZG_ADAPTER); }

/* Says whether a row of config is of the adapter with that mark. */
static bool is_of(const ZgConfig *c, const char *mark) {
  size_t n = strlen(mark);
  return !strncmp(c->map, mark, n) && !strcmp(c->map + n, ZG_ADAPTER);
}

const char *zg_adapter_value(const ZgGraph *g, const char *mark, const char *key) {
  for (uint32_t i = 0; i < g->nconfig; i++)
    if (is_of(&g->config[i], mark) && !strcmp(g->config[i].key, key)) return g->config[i].value;
  return NULL;
}

bool zg_has_adapters(const ZgGraph *g) { return zg_adapter_value(g, "", "r") != NULL; }

bool zg_adapter_names(const char *name, const char *module) {
  size_t n = strlen(name), m = strlen(module);
  return n && n <= m && !strcmp(module + m - n, name) && (n == m || module[m - n - 1] == '.');
}

/* Returns the number of a key, or of the first key PATTERN.NAME whose name is the module's. */
static double number_of(const ZgGraph *g, const char *mark, const char *key, const char *pattern,
                        const char *module) {
  const char *all = zg_adapter_value(g, mark, key);
  size_t n = strlen(pattern);
  for (uint32_t i = 0; i < g->nconfig; i++) {
    const ZgConfig *c = &g->config[i];
    if (is_of(c, mark) && !strncmp(c->key, pattern, n) && c->key[n] == '.' &&
        zg_adapter_names(c->key + n + 1, module))
      return strtod(c->value, NULL);
  }
  return all ? strtod(all, NULL) : 0;
}

int64_t zg_adapter_rank(const ZgGraph *g, const char *mark, const char *module) {
  double r = number_of(g, mark, "r", "rank_pattern", module);
  return r >= 1 && r <= INT32_MAX ? (int64_t)r : 0;
}

static bool is_true(const ZgGraph *g, const char *mark, const char *key) {
  const char *v = zg_adapter_value(g, mark, key);
  return v && !strcmp(v, "true");
}

double zg_adapter_scale(const ZgGraph *g, const char *mark, const char *module) {
  double rank = (double)zg_adapter_rank(g, mark, module);
  double alpha = number_of(g, mark, "lora_alpha", "alpha_pattern", module);
  return alpha / (is_true(g, mark, "use_rslora") ? sqrt(rank) : rank);
}

bool zg_adapter_transposed(const ZgGraph *g, const char *mark) { return is_true(g, mark, "fan_in_fan_out"); }

uint32_t zg_tags_of_map(const ZgGraph *g, const bool *mapped) {
  uint32_t all = UINT32_MAX;
  bool some = false;
  for (uint32_t i = 0; i < g->nparams; i++)
    if (mapped[i]) all &= g->params[i].tags, some = true;
  for (uint32_t i = 0; i < g->nparams; i++)
    if (!mapped[i]) all &= ~g->params[i].tags;
  return some ? all : 0;
}
