/* The models that are shipped: their texts are in the program, as the standard library is. */
#include "compiler/compiler.h"
#include "runtime/exec/answer/answer.h"

extern const char *const zx_shipped[]; /* shipped.embed.c: name and text in turn, NULL at the end */

typedef struct {
  const char *file;
  ZlProgram *program;
  ZcFamily is;
} Candidate;

/* Whether a list of words with commas between has this one. */
static bool has_word(const ZbText *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list->len ? list->s : ""; *at; at += strcspn(at, ","), at += strspn(at, ", "))
    if (strcspn(at, ",") == n && !memcmp(at, word, n)) return true;
  return false;
}

/* Adds the maps of a model_type that a file has; to *types all types that there are. */
static void look_into(ZbArena *a, ZlSources *s, const char *const *file, const char *type, Candidate **c,
                      uint32_t *nc, ZbText *types) {
  uint32_t n;
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p =
      zl_load_text(a, s, d, zb_printf(a, "<%s>", file[0]), file[1], strlen(file[1]), &(ZlOptions){0});
  if (!p || zl_errors(d)) return;
  const ZcFamily *f = zc_families(a, p, &n);
  for (uint32_t i = 0; i < n; i++) {
    if (f[i].first && !has_word(types, f[i].type))
      zb_text_add(types, "%s%s", types->len ? ", " : "", f[i].type);
    if (type && !strcmp(f[i].type, type)) {
      Candidate one = {file[0], p, f[i]};
      ZB_PUSH(a, *c, *nc, one);
    }
  }
}

static ZgGraph *compile(ZbArena *a, ZlSources *s, ZlDiags *d, const Candidate *c, const ZxFolder *f,
                        ZbTexts adapters) {
  ZcOptions o = {.model = c->is.model,
                 .config = f->path,
                 .config_text = f->config,
                 .names = c->is.names,
                 .adapters = adapters.s,
                 .nadapters = adapters.n,
                 .still = true};
  ZgGraph *g = zc_compile(a, s, d, c->program, &o);
  return zl_errors(d) ? NULL : g;
}

/* Gives the graph the numbers that it would have in a file: others compare them. */
static bool finish(ZgGraph *g, ZbErr *err) {
  ZbText t = {0};
  bool ok = zg_write(g, &t, err);
  zb_text_free(&t);
  return ok;
}

ZgGraph *zx_shipped_model(ZbArena *a, ZlSources *s, ZlDiags **d, const ZxFolder *f, ZbTexts adapters,
                          const char **names, ZbErr *err) {
  Candidate *c = NULL;
  uint32_t n = 0;
  ZbText types = {0};
  ZlDiags *first = NULL;
  const char *quoted = zb_printf(a, "\"%s\"", f->model_type ? f->model_type : "");
  for (const char *const *file = zx_shipped; *file; file += 2) /* files without the word need not be read */
    if (f->model_type && strstr(file[1], quoted)) look_into(a, s, file, f->model_type, &c, &n, &types);
  for (const char *const *file = zx_shipped; *file && !n; file += 2)
    if (strstr(file[1], "model_type")) look_into(a, s, file, NULL, &c, &n, &types);
  if (!f->model_type)
    zb_fail(err, "give the folder that has the weights, or a graph: zrun generate GRAPH.zsg --init ...",
            "%s: there is no config.json that says its model_type", zb_show(f->path));
  else if (!n)
    zb_fail(err, "write the model as a .zug with such a map, compile it, and give the graph",
            "%s: no shipped model is of model_type %s; there are %s", zb_show(f->path),
            zb_show(f->model_type), types.s);
  zb_text_free(&types);
  for (int pass = 1; pass >= 0; pass--) /* first those that are for this type, then those that are like it */
    for (uint32_t i = 0; i < n; i++) {
      ZlDiags *own = zl_diags_new(a, s);
      if (c[i].is.first != pass) continue;
      ZgGraph *g = compile(a, s, own, &c[i], f, adapters);
      if (!first || g) *d = own;
      if (!first) first = own;
      *names = c[i].is.names;
      if (g) return finish(g, err) ? g : NULL;
    }
  return NULL;
}
