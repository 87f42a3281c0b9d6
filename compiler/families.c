/* Which foreign models a file's models are, by the `model_type` of their maps. */
#include "compiler/compiler.h"
#include "lang/ast.h"

#include <string.h>

/* Adds what a JSON text such as "llama" says. */
static void add(ZbArena *a, const ZlWeights *w, const char *json, ZcFamily **out, uint32_t *n) {
  size_t len = json ? strlen(json) : 0;
  if (len < 2 || json[0] != '"' || strchr(json, '\\')) return;
  bool first = !*n || (*out)[*n - 1].model != w->model.s || (*out)[*n - 1].names != w->name.s;
  ZcFamily f = {w->model.s, w->name.s, zb_strndup(a, json + 1, len - 2), first};
  ZB_PUSH(a, *out, *n, f);
}

ZcFamily *zc_families(ZbArena *a, const ZlProgram *p, uint32_t *n) {
  const ZlFile *f = p->files[0];
  ZcFamily *out = NULL;
  *n = 0;
  for (uint32_t i = 0; i < f->nweights; i++)
    for (uint32_t k = 0; k < f->weights[i]->nconfig; k++) {
      const ZlConfigEntry *c = &f->weights[i]->config[k];
      if (strcmp(c->key.s, "model_type")) continue;
      for (uint32_t v = 0; v < c->nvalues; v++)
        if (c->values[v].kind == ZL_V_TEXT) add(a, f->weights[i], c->values[v].json, &out, n);
    }
  return out;
}
