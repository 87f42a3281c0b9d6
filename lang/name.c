/* Files and names: reading a file and all it uses, and finding models and blocks.
 *
 * `use a.b` is a/b.zug in the folder of the file that says so, then in the -I folders, then in the library
 * that the tools carry. Files of that library see only that library. A file is read once, however often it
 * is used: on disk it is known by its real path. */
#include "lang/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY "<library>/" /* before the names of embedded files, in messages */

typedef struct {
  ZlFile *file;
  const char *key;    /* real path, or LIBRARY name */
  const char *folder; /* with its final slash, or "" */
  bool embedded, loading;
} Entry;

typedef struct {
  ZbArena *arena;
  ZlSources *sources;
  ZlDiags *diags;
  const ZlOptions *opt;
  ZlProgram *program;
  Entry **at;
  uint32_t n;
  bool full; /* said so */
} Loader;

/* A place where a file may be. */
typedef struct {
  const char *name, *key, *text; /* text: NULL if it is on disk and not yet read */
  size_t n;
  bool embedded;
} Candidate;

static const char *folder_of(ZbArena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? zb_strndup(a, path, (size_t)(slash - path) + 1) : "";
}

static const char *real_path(ZbArena *a, const char *path) {
  char *real = realpath(path, NULL);
  const char *key = zb_strdup(a, real ? real : path);
  free(real);
  return key;
}

static bool on_disk(Loader *l, const char *path, Candidate *out) {
  struct stat st; /* what is neither file nor folder is found, and reading it will say what it is */
  if (stat(path, &st) != 0 || S_ISDIR(st.st_mode)) return false;
  *out = (Candidate){.name = path, .key = real_path(l->arena, path)};
  return true;
}

static bool in_library(Loader *l, const char *name, Candidate *out) {
  for (const char *const *e = zl_stdlib; *e; e += 2)
    if (strcmp(e[0], name) == 0) {
      const char *shown = zb_printf(l->arena, LIBRARY "%s", name);
      *out = (Candidate){.name = shown, .key = shown, .text = e[1], .n = strlen(e[1]), .embedded = true};
      return true;
    }
  return false;
}

static bool find_file(Loader *l, const Entry *from, const char *rel, Candidate *out) {
  if (from->embedded)
    return in_library(l, zb_printf(l->arena, "%s%s", from->folder + strlen(LIBRARY), rel), out) ||
           in_library(l, rel, out);
  if (on_disk(l, zb_printf(l->arena, "%s%s", from->folder, rel), out)) return true;
  for (uint32_t i = 0; l->opt && i < l->opt->ninclude; i++)
    if (on_disk(l, zb_printf(l->arena, "%s/%s", l->opt->include[i], rel), out)) return true;
  return in_library(l, rel, out);
}

static void not_found(Loader *l, const Entry *from, const ZlUse *u, const char *rel) {
  ZlDiag *g = zl_report(l->diags, ZL_Z0005, u->path.span, "no file %s", rel);
  if (!from->embedded) zl_note(g, "looked in %s", *from->folder ? from->folder : "./");
  for (uint32_t i = 0; l->opt && i < l->opt->ninclude && !from->embedded; i++)
    zl_note(g, "looked in %s", l->opt->include[i]);
  const char **names = NULL;
  uint32_t n = 0;
  for (const char *const *e = zl_stdlib; *e; e += 2) {
    char *dotted = zb_strndup(l->arena, e[0], strlen(e[0]) - strlen(".zug"));
    for (char *p = dotted; *p; p++)
      if (*p == '/') *p = '.';
    ZB_PUSH(l->arena, names, n, (const char *)dotted);
  }
  const char *near = zb_nearest(zl_path_text(l->arena, &u->path), names, n);
  if (near) zl_help(g, "did you mean `use %s` of the library?", near);
  else zl_help(g, "name its folder with -I, or check the spelling");
}

static void circle(Loader *l, const Entry *again, const ZlUse *u) {
  ZbText chain = {0};
  bool in = false;
  for (uint32_t i = 0; i < l->n;
       i++) { /* files are added as they are entered, so those loading are the way here */
    in |= l->at[i] == again;
    if (in && l->at[i]->loading) zb_text_add(&chain, "%s -> ", l->at[i]->file->name);
  }
  ZlDiag *g = zl_report(l->diags, ZL_Z0006, u->path.span, "this `use` closes a circle");
  zl_note(g, "%s%s", chain.s, again->file->name);
  zl_help(g, "move what both need into a third file");
  zb_text_free(&chain);
}

static const ZlFile *load(Loader *l, const Candidate *c, const char *text, size_t n);

static void resolve(Loader *l, const Entry *from, ZlUse *u) {
  ZbText rel = {0};
  for (uint32_t i = 0; i < u->path.n; i++) zb_text_add(&rel, "%s%s", i ? "/" : "", u->path.part[i].s);
  zb_text_add(&rel, ".zug");
  const char *name = zb_strdup(l->arena, rel.s);
  zb_text_free(&rel);

  Candidate c;
  if (!find_file(l, from, name, &c)) {
    not_found(l, from, u, name);
    return;
  }
  for (uint32_t i = 0; i < l->n; i++)
    if (strcmp(l->at[i]->key, c.key) == 0) {
      if (l->at[i]->loading) circle(l, l->at[i], u);
      u->file = l->at[i]->file;
      return;
    }
  if (l->n == ZL_MAX_FILES) {
    if (!l->full)
      zl_help(zl_report(l->diags, ZL_Z0003, u->path.span, "a program has at most %d files", ZL_MAX_FILES),
              "write small files as one");
    l->full = true;
    return;
  }
  ZbErr err;
  if (!c.text && !(c.text = zb_read_file(l->arena, c.name, ZL_MAX_FILE, &c.n, &err))) {
    zl_report_unread(l->diags, ZL_Z0004, u->path.span, &err);
    return;
  }
  u->file = load(l, &c, c.text, c.n);
}

/* Blocks get their numbers, and what is looked up by name its tables. */
static void index_blocks(Loader *l, ZlBlock *const *at, uint32_t n, ZbNames *names) {
  for (uint32_t i = 0; i < n; i++) {
    ZlBlock *b = at[i];
    b->number = l->program->nblocks++;
    zb_names_add(l->arena, names, b->name.s);
    for (uint32_t k = 0; k < b->nformals; k++) zb_names_add(l->arena, &b->formal_names, b->formals[k].name.s);
  }
}

static void index_names(Loader *l, ZlFile *f) {
  index_blocks(l, f->blocks, f->nblocks, &f->block_names);
  for (uint32_t i = 0; i < f->nuses; i++) zb_names_add(l->arena, &f->use_names, f->uses[i].alias.s);
  for (uint32_t i = 0; i < f->nrecipes; i++) zb_names_add(l->arena, &f->recipe_names, f->recipes[i]->name.s);
  for (uint32_t i = 0; i < f->nclusters; i++)
    zb_names_add(l->arena, &f->cluster_names, f->clusters[i]->name.s);
  for (uint32_t i = 0; i < f->nmodels; i++) {
    zb_names_add(l->arena, &f->model_names, f->models[i]->name.s);
    index_blocks(l, f->models[i]->blocks, f->models[i]->nblocks, &f->models[i]->block_names);
  }
}

static const ZlFile *load(Loader *l, const Candidate *c, const char *text, size_t n) {
  Entry *e = ZB_NEW(l->arena, Entry);
  *e = (Entry){.file = ZB_NEW(l->arena, ZlFile),
               .key = c->key,
               .folder = folder_of(l->arena, c->name),
               .embedded = c->embedded,
               .loading = true};
  ZB_PUSH(l->arena, l->at, l->n, e);
  ZlFile *f = e->file;
  f->id = zl_source_add(l->sources, c->name, text, n);
  f->name = zl_source_name(l->sources, f->id);
  ZB_PUSH(l->arena, l->program->files, l->program->nfiles, f);
  size_t before = zl_errors(l->diags);
  zl_parse(l->arena, l->sources, l->diags, f);
  index_names(l, f);
  if (zl_errors(l->diags) == before) zl_check_form(l->diags, l->arena, f);
  for (uint32_t i = 0; i < f->nuses; i++) resolve(l, e, &f->uses[i]);
  e->loading = false;
  return f;
}

static ZlProgram *start(ZbArena *a, ZlSources *s, ZlDiags *d, const ZlOptions *opt, const Candidate *c) {
  ZlProgram *p = ZB_NEW(a, ZlProgram);
  p->arena = a;
  p->sources = s;
  Loader l = {.arena = a, .sources = s, .diags = d, .opt = opt, .program = p};
  load(&l, c, c->text, c->n);
  return p;
}

ZlProgram *zl_load_text(ZbArena *a, ZlSources *s, ZlDiags *d, const char *name, const char *text, size_t n,
                        const ZlOptions *opt) {
  if (n > ZL_MAX_FILE) {
    zl_report(d, ZL_Z0004, ZL_NOWHERE, "%s has %zu bytes; at most %u are read", name, n, ZL_MAX_FILE);
    return NULL;
  }
  Candidate c = {.name = name, .key = real_path(a, name), .text = zb_strndup(a, text, n), .n = n};
  return start(a, s, d, opt, &c);
}

ZlProgram *zl_load(ZbArena *a, ZlSources *s, ZlDiags *d, const char *path, const ZlOptions *opt) {
  ZbErr err;
  Candidate c = {.name = path, .key = real_path(a, path)};
  c.text = zb_read_file(a, path, ZL_MAX_FILE, &c.n, &err);
  if (!c.text) {
    zl_report_unread(d, ZL_Z0004, ZL_NOWHERE, &err);
    return NULL;
  }
  return start(a, s, d, opt, &c);
}

/* ---- models ---- */
ZlNames zl_model_names(const ZlProgram *p) {
  ZlNames names = {0};
  const ZlFile *f = p->files[0];
  for (uint32_t i = 0; i < f->nmodels; i++) ZB_PUSH(p->arena, names.at, names.n, f->models[i]->name);
  return names;
}

const char *zl_names_text(ZbArena *a, ZlNames names) {
  ZbText t = {0};
  enum { LISTED = 24 };
  for (uint32_t i = 0; i < names.n && i < LISTED; i++)
    zb_text_add(&t, "%s`%s`", i ? ", " : "", names.at[i].s);
  if (names.n > LISTED) zb_text_add(&t, " and %u more", names.n - LISTED);
  const char *s = zb_strdup(a, t.s ? t.s : "");
  zb_text_free(&t);
  return s;
}

void zl_help_nearest_of(ZlDiag *d, ZbArena *a, const char *name, ZlNames names) {
  const char **at = ZB_NEWN(a, const char *, names.n);
  for (uint32_t i = 0; i < names.n; i++) at[i] = names.at[i].s;
  zl_help_nearest(d, name, at, names.n);
}

const ZlModel *zl_model(const ZlProgram *p, ZlDiags *d, const char *name) {
  const ZlFile *f = p->files[0];
  if (!name && f->nmodels == 1) return f->models[0];
  uint32_t named = name ? zb_names_find(&f->model_names, name) : ZB_NO_NAME;
  if (named != ZB_NO_NAME) return f->models[named];
  ZlNames all = zl_model_names(p);
  if (f->nmodels == 0) {
    zl_report(d, ZL_Z0106, ZL_NOWHERE, "%s has no model", f->name);
  } else if (!name) {
    ZlDiag *g = zl_report(d, ZL_Z0106, ZL_NOWHERE, "%s has %u models: say which", f->name, f->nmodels);
    zl_note(g, "it has %s", zl_names_text(p->arena, all));
  } else {
    ZlDiag *g = zl_report(d, ZL_Z0106, ZL_NOWHERE, "no model `%s` in %s", name, f->name);
    zl_note(g, "it has %s", zl_names_text(p->arena, all));
    zl_help_nearest_of(g, p->arena, name, all);
  }
  return NULL;
}

/* ---- blocks ---- */
ZlScope zl_block_scope(const ZlBlock *b) { return (ZlScope){b->file, b->model}; }
ZlScope zl_model_scope(const ZlModel *m) { return (ZlScope){m->file, m}; }

const ZlUse *zl_find_use(const ZlFile *f, const char *alias) {
  uint32_t i = zb_names_find(&f->use_names, alias);
  return i == ZB_NO_NAME ? NULL : &f->uses[i];
}

static const ZlBlock *among(ZlBlock *const *at, const ZbNames *names, const char *name) {
  uint32_t i = zb_names_find(names, name);
  return i == ZB_NO_NAME ? NULL : at[i];
}

const ZlBlock *zl_find_block(const ZlProgram *p, ZlScope scope, const ZlPath *path) {
  (void)p;
  if (path->n == 1) {
    const ZlModel *m = scope.model;
    const ZlBlock *b = m ? among(m->blocks, &m->block_names, path->part[0].s) : NULL;
    return b ? b : among(scope.file->blocks, &scope.file->block_names, path->part[0].s);
  }
  const ZlUse *u = path->n == 2 ? zl_find_use(scope.file, path->part[0].s) : NULL;
  return u && u->file ? among(u->file->blocks, &u->file->block_names, path->part[1].s) : NULL;
}

const char **zl_visible_blocks(const ZlProgram *p, ZlScope scope, ZbArena *a, uint32_t *n) {
  (void)p;
  const char **names = NULL;
  *n = 0;
  for (uint32_t i = 0; scope.model && i < scope.model->nblocks; i++)
    ZB_PUSH(a, names, *n, scope.model->blocks[i]->name.s);
  for (uint32_t i = 0; i < scope.file->nblocks; i++) ZB_PUSH(a, names, *n, scope.file->blocks[i]->name.s);
  for (uint32_t i = 0; i < scope.file->nuses; i++) {
    const ZlUse *u = &scope.file->uses[i];
    for (uint32_t k = 0; u->file && k < u->file->nblocks; k++)
      ZB_PUSH(a, names, *n, (const char *)zb_printf(a, "%s.%s", u->alias.s, u->file->blocks[k]->name.s));
  }
  return names;
}

/* A namespace's block of this name, for one who wrote the name alone. */
static const char *qualified(ZlScope scope, ZbArena *a, const char *name) {
  for (uint32_t i = 0; i < scope.file->nuses; i++) {
    const ZlUse *u = &scope.file->uses[i];
    if (u->file && among(u->file->blocks, &u->file->block_names, name))
      return zb_printf(a, "%s.%s", u->alias.s, name);
  }
  return NULL;
}

/* How to call a block of the library that has this name, in a file that does not use it; or NULL. */
static const char *library_call(ZbArena *a, const char *name) {
  for (const char *const *e = zl_stdlib; *e; e += 2) {
    const char *begins = zb_printf(a, "\nblock %s", name), *at = strstr(e[1], begins),
               *slash = strrchr(e[0], '/');
    if (!at || (at[strlen(begins)] != '(' && at[strlen(begins)] != '[')) continue;
    char *dotted = zb_strndup(a, e[0], strlen(e[0]) - strlen(".zug"));
    for (char *c = dotted; *c; c++)
      if (*c == '/') *c = '.';
    const char *last = slash ? dotted + (slash - e[0]) + 1 : dotted;
    return zb_printf(a, "`use %s as %.3s` at the top of the file, then `%.3s.%s%s`", dotted, last, last, name,
                     at[strlen(begins)] == '[' ? "[...](x)" : "(x)");
  }
  return NULL;
}

ZlDiag *zl_report_no_block(const ZlProgram *p, ZlDiags *d, ZlScope scope, const ZlPath *path,
                           const char *const *more, uint32_t nmore) {
  ZbArena *a = p->arena;
  const char *text = zl_path_text(a, path);
  if (path->n > 1 && !(path->n == 2 && zl_find_use(scope.file, path->part[0].s))) {
    ZlDiag *g = zl_report(d, ZL_Z0104, path->part[0].span, "no namespace `%s`", path->part[0].s);
    const char **uses = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < scope.file->nuses; i++) ZB_PUSH(a, uses, n, scope.file->uses[i].alias.s);
    if (zb_nearest(path->part[0].s, uses, n)) zl_help_nearest(g, path->part[0].s, uses, n);
    else zl_help(g, "add `use ... as %s` at the top of %s", path->part[0].s, scope.file->name);
    return g;
  }
  ZlDiag *g = zl_report(d, ZL_Z0103, path->span, "no block or operation `%s`", text);
  if (zl_full(d)) return g;
  uint32_t n;
  const char **names = zl_visible_blocks(p, scope, a, &n);
  for (uint32_t i = 0; i < nmore; i++) ZB_PUSH(a, names, n, more[i]);
  const char *torch = path->n == 1 ? zl_torch_word(text) : NULL;
  const char *elsewhere = path->n == 1 ? qualified(scope, a, text) : NULL;
  const char *library = path->n == 1 ? library_call(a, text) : NULL;
  if (elsewhere) zl_help(g, "did you mean `%s`?", elsewhere);
  else if (torch) zl_help(g, "%s", torch);
  else if (library) zl_help(g, "%s", library);
  else zl_help_nearest(g, text, names, n);
  return g;
}

ZlProgram *zl_load_named(ZbArena *a, ZlSources *s, ZlDiags *d, const char *spec, const ZlOptions *opt,
                         const char **name) {
  const char *colon = strrchr(spec, ':');
  *name = colon ? colon + 1 : NULL;
  ZlProgram *p = zl_load(a, s, d, colon ? zb_strndup(a, spec, (size_t)(colon - spec)) : spec, opt);
  return zl_errors(d) ? NULL : p;
}
