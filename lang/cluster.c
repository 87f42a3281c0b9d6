/* Clusters: what a machine has, from quantities as written to one record in plain units. */
#include "lang/words.h"

#include <string.h>

/* One thing that a line of a cluster may say, and where it goes. */
typedef struct {
  const char *word;
  ZlUnit unit;
  double *to;
  ZlSpan seen;
} Field;
#define NFIELDS(list) (uint32_t)(sizeof list / sizeof *list)

/* Whether files that an older `zrun calibrate` wrote say it. */
static bool is_gone(const char *line, const char *word) {
#define GONE(w, l)                                                                                           \
  if (!strcmp(word, w) && !strcmp(line, l)) return true;
#include "lang/cluster.def"
  return false;
}

static bool set_field(ZlDiags *d, ZbArena *a, const char *line, const ZlQuantity *q, Field *fields,
                      uint32_t n) {
  Field *f = fields;
  while (f < fields + n && strcmp(f->word, q->name.s) != 0) f++;
  if (f == fields + n) {
    ZlDiag *g = zl_report(d, ZL_Z0804, q->name.span, "`%s` has no `%s`", line, q->name.s);
    const char **names = ZB_NEWN(a, const char *, n);
    ZlNames all = {0};
    for (uint32_t i = 0; i < n; i++) {
      names[i] = fields[i].word;
      ZB_PUSH(a, all.at, all.n, ((ZlName){fields[i].word, ZL_NOWHERE}));
    }
    zl_note(g, "it has %s", zl_names_text(a, all));
    if (is_gone(line, q->name.s))
      zl_help(g, "times are made without it now: measure anew (zrun calibrate), or leave it out");
    else zl_help_nearest(g, q->name.s, names, n);
    return false;
  }
  if (f->seen.file >= 0) {
    zl_also(zl_report(d, ZL_Z0803, q->name.span, "`%s %s` is given twice", line, q->name.s), f->seen,
            "first here");
    return false;
  }
  f->seen = q->name.span;
  if (!zl_quantity_ok(d, q, f->unit, zb_printf(a, "`%s` of `%s`", q->name.s, line))) return false;
  *f->to = q->value;
  return true;
}

static bool level(ZlDiags *d, ZbArena *a, const ZlClusterLine *l, ZlCluster *c) {
  ZlLevel v = {.name = l->name, .size = l->size.i};
  bool ok = true;
  if (!l->size.integer || l->size.i < 1 || l->size.i > INT32_MAX) {
    zl_report(d, ZL_Z0805, l->size.span, "a level must have a whole number of members, from 1 to %d",
              INT32_MAX);
    return false;
  }
  int64_t devices = v.size;
  for (uint32_t i = 0; i < c->nlevels; i++) devices *= c->levels[i].size; /* below 2^31 each time */
  if (devices > INT32_MAX) {
    zl_report(d, ZL_Z0805, l->size.span, "with this level cluster `%s` has more than %d devices", c->name,
              INT32_MAX);
    return false;
  }
  for (uint32_t i = 0; i < c->nlevels; i++)
    if (strcmp(c->levels[i].name.s, l->name.s) == 0) {
      ZlDiag *g = zl_report(d, ZL_Z0803, l->name.span, "`level %s` is given twice", l->name.s);
      zl_also(g, c->levels[i].name.span, "first here");
      ok = false;
    }
  Field fields[] = {
#define LEVEL(field, word, unit, meaning) {word, ZL_U_##unit, &v.field, ZL_NOWHERE},
#include "lang/cluster.def"
  };
  for (uint32_t i = 0; i < l->nq; i++) ok &= set_field(d, a, "level", &l->q[i], fields, NFIELDS(fields));
  if (ok && v.bandwidth == 0) {
    zl_help(zl_report(d, ZL_Z0805, l->span, "level `%s` needs its `link`", l->name.s),
            "add, say, `link 50 GB/s`");
    ok = false;
  }
  ZB_PUSH(a, c->levels, c->nlevels, v);
  return ok;
}

static const ZlCluster *build(ZlDiags *d, ZbArena *a, const ZlClusterAst *ast) {
  ZlCluster *c = ZB_NEW(a, ZlCluster);
  *c = (ZlCluster){.name = ast->name.s, .span = ast->span};
  double memory = 0, host_memory = 0;
  Field device[] = {
      {"memory", ZL_U_BYTES, &memory, ZL_NOWHERE},
#define DEVICE(field, word, unit, meaning) {word, ZL_U_##unit, &c->field, ZL_NOWHERE},
#include "lang/cluster.def"
  };
  Field host[] = {
      {"memory", ZL_U_BYTES, &host_memory, ZL_NOWHERE},
#define HOST(field, word, unit, meaning) {word, ZL_U_##unit, &c->field, ZL_NOWHERE},
#include "lang/cluster.def"
  };
  bool ok = true;
  for (uint32_t i = 0; i < ast->n; i++) {
    const ZlClusterLine *l = &ast->at[i];
    if (l->kind == ZL_C_LEVEL) {
      ok &= level(d, a, l, c);
      continue;
    }
    for (uint32_t k = 0; k < l->nq; k++)
      ok &= l->kind == ZL_C_DEVICE ? set_field(d, a, "device", &l->q[k], device, NFIELDS(device))
                                   : set_field(d, a, "host", &l->q[k], host, NFIELDS(host));
  }
  c->device_memory = (uint64_t)memory;
  c->host_memory = (uint64_t)host_memory;
  return ok ? c : NULL;
}

ZlNames zl_cluster_names(const ZlProgram *p) {
  ZlNames names = {0};
  const ZlFile *f = p->files[0];
  for (uint32_t i = 0; i < f->nclusters; i++) ZB_PUSH(p->arena, names.at, names.n, f->clusters[i]->name);
  return names;
}

const ZlCluster *zl_cluster(ZlProgram *p, ZlDiags *d, const char *name) {
  const ZlFile *f = p->files[0];
  const ZlClusterAst *ast = !name && f->nclusters == 1 ? f->clusters[0] : NULL;
  uint32_t named = name ? zb_names_find(&f->cluster_names, name) : ZB_NO_NAME;
  if (named != ZB_NO_NAME) ast = f->clusters[named];
  if (ast) return build(d, p->arena, ast);
  zl_report_no_such(d, p->arena, "cluster", f->name, name, zl_cluster_names(p));
  return NULL;
}
