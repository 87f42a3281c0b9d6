/* Which parameters the words of a recipe mean, after `freeze`, `for` and `except`.
 *
 * A word that is a tag means the parameters that carry it; so do the tags of the standard library, whether or
 * not the model has any. Every other word, or path of words, means the parameters in whose path these stand
 * one behind the other, the numbers of iterations left out. Of `layer.*.attn.wq` these are the names:
 * layer, layer.attn, attn, attn.wq, wq. */
#include "runtime/plan/bind/bind.h"

#include <string.h>

/* Returns the part of a path up to the next point, `*` left out; its length, 0 at the end. */
static size_t next_part(const char **path) {
  const char *p = *path;
  while (*p == '.' || (*p == '*' && (!p[1] || p[1] == '.'))) p++;
  *path = p;
  return strcspn(p, ".");
}

/* Returns whether the words stand at the beginning of the path. */
static bool begins(const char *path, const ZlPath *words) {
  for (uint32_t i = 0; i < words->n; i++) {
    size_t n = next_part(&path);
    if (n != strlen(words->part[i].s) || strncmp(path, words->part[i].s, n)) return false;
    path += n;
  }
  return true;
}

static bool has_part(const char *path, const ZlPath *words) {
  for (size_t n; (n = next_part(&path)); path += n)
    if (begins(path, words)) return true;
  return false;
}

static bool is_std_tag(const char *word) {
  for (const char *const *t = zl_std_tags; *t; t++)
    if (!strcmp(*t, word)) return true;
  return false;
}

/* Returns the number of the tag that the words are, among those that some parameter carries; -1: they are
 * none. */
static int tag_of(const ZgGraph *g, const ZlPath *words) {
  uint32_t carried = 0;
  for (uint32_t i = 0; i < g->nparams; i++) carried |= g->params[i].tags;
  for (uint32_t t = 0; t < g->ntags && words->n == 1; t++)
    if (carried >> t & 1 && !strcmp(g->tags[t], words->part[0].s)) return (int)t;
  return -1;
}

/* All tags, and all names of parts, for the help; the tags, or the first of these, for the note. */
static void report(ZpBuild *b, const ZlPath *words) {
  const ZgGraph *g = b->p->graph;
  const char **known = NULL, *list = "";
  uint32_t n = 0, carried = 0;
  for (uint32_t i = 0; i < g->nparams; i++) carried |= g->params[i].tags;
  for (uint32_t t = 0; t < g->ntags; t++)
    if (carried >> t & 1) {
      list = zb_printf(b->p->arena, "%s%s`%s`", list, n ? ", " : "", g->tags[t]);
      ZB_PUSH(b->p->arena, known, n, g->tags[t]);
    }
  for (const char *const *std = zl_std_tags; *std; std++) ZB_PUSH(b->p->arena, known, n, *std);
  for (uint32_t i = 0; i < g->nparams; i++) {
    const char *path = g->params[i].path;
    for (size_t m; (m = next_part(&path)); path += m)
      ZB_PUSH(b->p->arena, known, n, zb_printf(b->p->arena, "%.*s", (int)m, path));
  }
  const ZlName *last = &words->part[words->n - 1];
  ZlDiag *e = zl_report(b->d, ZL_Z0405, words->span, "no parameter of model %s has the tag `%s`%s", g->model,
                        last->s, words->n > 1 ? ", and none has such a path" : ", or it in its path");
  zl_note(e, *list ? "tags of its parameters: %s" : "its parameters have no tags", list);
  const char *near = zb_nearest(last->s, known, n);
  if (near) zl_help(e, "did you mean `%s`?", near);
}

void zp_select(ZpBuild *b, const ZlPath *at, uint32_t n, bool *chosen) {
  const ZgGraph *g = b->p->graph;
  for (uint32_t k = 0; k < n; k++) {
    int tag = tag_of(g, &at[k]);
    bool any = tag < 0 && at[k].n == 1 && is_std_tag(at[k].part[0].s), std = any;
    for (uint32_t i = 0; i < g->nparams && !std; i++) {
      bool is = tag >= 0 ? g->params[i].tags >> tag & 1 : has_part(g->params[i].path, &at[k]);
      if (is) chosen[i] = any = true;
    }
    if (!any) report(b, &at[k]);
  }
}
