#include "tests/unit/compiler/load.h"

#include "lang/ast.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

static Case begin(void) {
  Case c = {.a = zb_arena_new()};
  c.s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, c.s);
  return c;
}

void put_pieces(ZbText *t, const char *piece, uint32_t n) {
  for (uint32_t i = 0; i < n && *piece; i++)
    for (const char *p = piece; *p; p++)
      if (*p == '%') zb_text_add(t, "%u", i), p++;
      else zb_text_put(t, p, 1);
}

Case load_text(const char *text) {
  Case c = begin();
  c.p = zl_load_text(c.a, c.s, c.d, "test.zug", text, strlen(text), NULL);
  return c;
}

Case load_file(const char *path) {
  Case c = begin();
  c.p = zl_load(c.a, c.s, c.d, path, NULL);
  return c;
}

void set_options(Case *c, const char *options) {
  ZcDefine *defines = NULL;
  char *text = zb_strdup(c->a, options), *save = NULL;
  for (char *w = strtok_r(text, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
    if (!strcmp(w, "--apart")) {
      c->opt.apart = true;
      continue;
    }
    char *value = strtok_r(NULL, " \n", &save), *eq = strchr(value, '=');
    const char **option = !strcmp(w, "-m")         ? &c->opt.model
                          : !strcmp(w, "--config") ? &c->opt.config
                          : !strcmp(w, "--names")  ? &c->opt.names
                          : !strcmp(w, "--lora")   ? &c->opt.lora
                                                   : NULL;
    if (option) {
      *option = value;
      continue;
    }
    if (!strcmp(w, "--adapter")) {
      const char **files = ZB_NEW(c->a, const char *);
      *files = value;
      c->opt.adapters = files;
      c->opt.nadapters = 1;
      continue;
    }
    *eq = 0;
    ZcDefine d = {value, eq + 1};
    ZB_PUSH(c->a, defines, c->opt.ndefines, d);
  }
  c->opt.defines = defines;
}

ZgGraph *compile(Case *c) { return zl_errors(c->d) ? NULL : zc_compile(c->a, c->s, c->d, c->p, &c->opt); }
ZgGraph *elaborate(Case *c) { return zl_errors(c->d) ? NULL : zc_elaborate(c->a, c->s, c->d, c->p, &c->opt); }

const char *messages(Case *c) {
  zb_text_free(&c->text);
  zl_print_text(c->d, &c->text);
  return c->text.s ? c->text.s : "";
}

void done(Case *c) {
  zb_text_free(&c->text);
  zb_arena_free(c->a);
}

uint32_t count_op(const ZgSegment *s, ZgOp op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->nnodes; i++) n += s->nodes[i].op == op;
  return n;
}

const ZgParam *find_param(const ZgGraph *g, const char *path) {
  for (uint32_t i = 0; i < g->nparams; i++)
    if (!strcmp(g->params[i].path, path)) return &g->params[i];
  return NULL;
}
