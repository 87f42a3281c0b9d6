/* zckpt list and zckpt show: which checkpoints there are, and what is in one. */
#include "runtime/exec/ckpt/zckpt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* When the manifest was written, which is when the checkpoint was complete. */
static const char *written(ZbArena *a, const char *dir) {
  struct stat st;
  struct tm tm;
  char text[32] = "";
  if (stat(zb_printf(a, "%s/manifest.json", dir), &st) == 0 && localtime_r(&st.st_mtime, &tm))
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
  return zb_strdup(a, text);
}

/* ---- list ---- */
/* One line; false if it is no checkpoint to go on from. */
static bool list_one(const char *path, ZbArena *a) {
  ZbErr err = {0};
  char bytes[24];
  const ZxManifest *m = zx_manifest_read(a, path, &err);
  if (m && m->step != zx_ckpt_step(path))
    m = (zb_fail(&err, NULL, "by its manifest that of step %" PRId64 ": a copy, or renamed", m->step), NULL);
  if (m && !zx_ckpt_look(m, path, &err)) m = NULL;
  if (m)
    printf("%s  %s  step %" PRId64 ", %" PRId64 " samples  %s  model %s\n", zb_show(path), written(a, path),
           m->step, m->samples, zb_bytes(bytes, m->c.bytes), zb_show(m->model));
  else printf("%s  broken: %s\n", zb_show(path), err.text);
  return m != NULL;
}

/* What a run that writes, or was killed, has not finished. */
static void list_unfinished(const char *dir) {
  DIR *d = opendir(dir);
  for (struct dirent *x; d && (x = readdir(d));)
    if (!strncmp(x->d_name, "step-", 5) && zb_ends(x->d_name, ".tmp"))
      printf("%s/%s  unfinished: a run writes it, or was killed; the next run removes it\n", zb_show(dir),
             zb_show(x->d_name));
  if (d) closedir(d);
}

ZsEnd zs_list(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  ZxCkptEntry *list;
  const char *dir = o->path[0], *latest = NULL;
  uint32_t n = zx_ckpt_list(a, dir, &list, err);
  if (*err->text) return ZS_FAILED;
  for (uint32_t i = 0; i < n; i++)
    if (list_one(list[i].path, a)) latest = list[i].path;
  list_unfinished(dir);
  if (n && latest) return printf("the latest that is complete: %s\n", zb_show(latest)), ZS_OK;
  if (access(dir, F_OK) < 0) zb_fail_errno(err, errno, NULL, "cannot open %s", zb_show(dir));
  else
    zb_fail(err, "it should be the folder that --ckpt was given", "%s holds no%s checkpoint", zb_show(dir),
            n ? " complete" : "");
  return ZS_FAILED;
}

/* ---- show ---- */
static uint64_t values(const ZxContents *c, uint32_t from, uint32_t n) {
  uint64_t sum = 0;
  for (uint32_t i = from; i < from + n; i++) sum += c->tensors[i].n;
  return sum;
}

static void show_facts(const ZxManifest *m) {
  for (uint32_t i = 0; i < m->nfacts; i++) {
    const ZxCkptFact *f = &m->facts[i];
    if (!i || strcmp(f->kind, f[-1].kind)) printf("%s%s:", i ? "\n" : "", zb_show(f->kind));
    else printf(";");
    printf(" %s %s", zb_show(f->name), zb_show(f->value));
  }
  if (m->nfacts) printf("\n");
}

/* Each line of a text, indented. */
static void show_text(const char *text) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    ZbText line = {0};
    zb_text_show(&line, text, n);
    printf("    %s\n", line.s ? line.s : "");
    zb_text_free(&line);
    text += n + (text[n] == '\n');
  }
}

static void show_tensors(const ZxContents *c, ZbArena *a) {
  printf("parameters:\n");
  for (uint32_t i = 0; i < c->nparams; i++) {
    const ZxCkptTensor *t = &c->tensors[i];
    printf("  %s %s  %s  checksum %016" PRIx64 "\n", t->info.path, zx_shape_text(a, &t->info),
           c->files[t->file].name, t->digest);
  }
}

ZsEnd zs_show(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  ZsCkpt k;
  char bytes[24];
  if (!zs_open(&k, a, o->path[0], err)) return ZS_FAILED;
  const ZxManifest *m = k.m;
  const ZxContents *c = &m->c;
  printf("%s: step %" PRId64 ", %" PRId64 " samples; model %s; written %s by zug %s\n", zb_show(k.dir),
         m->step, m->samples, zb_show(m->model), written(a, k.dir), zb_show(m->version));
  printf("%" PRIu32 " parameters of %" PRIu64 " values; states:", c->nparams, values(c, 0, c->nparams));
  for (uint32_t s = 0; s < c->nstates; s++) printf("%s %s", s ? "," : "", c->state[s]);
  printf("%s; %s in %" PRIu32 " files:\n", c->nstates ? "" : " none", zb_bytes(bytes, c->bytes), c->nfiles);
  for (uint32_t i = 0; i < c->nfiles; i++)
    printf("  %s  %s  %" PRIu32 " tensors\n", c->files[i].name, zb_bytes(bytes, c->files[i].bytes),
           c->files[i].n);
  if (m->best.data)
    printf("best evaluation so far, of %s: loss %.6g after step %" PRId64 "\n", zb_show(m->best.data),
           m->best.loss, m->best.step);
  printf("command:\n");
  show_text(m->command);
  show_facts(m);
  printf("recipe's text:\n");
  show_text(m->recipe);
  if (o->tensors) show_tensors(c, a);
  return ZS_OK;
}
