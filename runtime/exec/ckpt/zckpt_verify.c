/* zckpt verify: reads all of a checkpoint, and says everything that is wrong with it, not only what comes
 * first. */
#include "runtime/exec/ckpt/zckpt.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOLD = 8 /* tensors of a file that are named */, INDEX_MORE = 4 << 10 /* bytes */ };

typedef struct {
  ZsCkpt k;
  ZbArena *a;
  uint32_t wrong;
} Verify;

static void tell_wrong(Verify *v, const ZbErr *err) {
  v->wrong++;
  printf("wrong: %s\n", err->text);
}

/* ---- files and their tensors ---- */
static void verify_file(Verify *v, uint32_t file) {
  const ZxCkptFile *f = &v->k.m->c.files[file];
  ZbErr err = {0};
  uint32_t altered = 0;
  if (!zx_ckpt_look_file(v->k.m, v->k.dir, file, &err)) {
    tell_wrong(v, &err);
    return;
  }
  for (uint32_t i = f->first; i < f->first + f->n; i++)
    if (!zs_read(&v->k, i, NULL, NULL, &err) && altered++ < TOLD) tell_wrong(v, &err);
  if (altered > TOLD)
    printf("wrong: ... and %" PRIu32 " more tensors of %s/%s\n", altered - TOLD, zb_show(v->k.dir), f->name);
}

/* ---- what else is there ---- */
static bool is_copy(const char *path, const ZxCkptFile *f) {
  uint64_t size;
  int fd = zb_open_file(path, false, &size, NULL);
  char *head = malloc(f->head_bytes);
  if (!head) zb_out_of_memory(f->head_bytes);
  bool same = fd >= 0 && size == f->bytes && zb_read_at(fd, path, head, f->head_bytes, 0, NULL) &&
              !memcmp(head, f->head, f->head_bytes);
  if (fd >= 0) close(fd);
  free(head);
  return same;
}

static bool is_known(const ZxContents *c, const char *name) {
  const char *const others[] = {".", "..", "manifest.json", zx_ckpt_index_name[0], zx_ckpt_index_name[1]};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strcmp(name, others[i])) return true;
  for (uint32_t i = 0; i < c->nfiles; i++)
    if (!strcmp(name, c->files[i].name)) return true;
  return false;
}

/* Tensors that nobody knows of are wrong; what a person put beside is not. */
static void verify_other(Verify *v, const char *name) {
  const ZxContents *c = &v->k.m->c;
  const char *path = zb_printf(v->a, "%s/%s", v->k.dir, name), *dot = strrchr(name, '.');
  ZbErr err = {0};
  if (!dot || strcmp(dot, ".safetensors")) {
    printf("note: %s is none of this checkpoint's files\n", zb_show(path));
    return;
  }
  zb_fail(&err, NULL, "%s is none of this checkpoint's files", zb_show(path));
  for (uint32_t i = 0; i < c->nfiles; i++)
    if (is_copy(path, &c->files[i]))
      zb_fail(&err, NULL, "%s is a second %s", zb_show(path), c->files[i].name);
  tell_wrong(v, &err);
}

static void verify_others(Verify *v) {
  DIR *d = opendir(v->k.dir);
  for (struct dirent *x; d && (x = readdir(d));)
    if (!is_known(&v->k.m->c, x->d_name)) verify_other(v, x->d_name);
  if (d) closedir(d);
}

/* ---- indices ---- */
/* Of tensors from..to-1: the first that is not in its place, with its file. */
static bool check_map(const Verify *v, const char *name, const cJSON *map, uint32_t from, uint32_t to,
                      ZbErr *err) {
  const ZxContents *c = &v->k.m->c;
  const cJSON *x = cJSON_IsObject(map) ? map->child : NULL;
  for (uint32_t i = from; i < to; i++, x = x->next) { /* written in this order */
    const ZxCkptTensor *t = &c->tensors[i];
    const char *want = c->files[t->file].name;
    if (!x || strcmp(x->string, t->info.path))
      return zb_fail(err, NULL, "%s: '%s' stands where '%s' should", zb_show(name),
                     x ? zb_show(x->string) : "nothing", t->info.path);
    if (!cJSON_IsString(x) || strcmp(x->valuestring, want))
      return zb_fail(err, NULL, "%s: tensor '%s' is said to be in %s; it is in %s", zb_show(name),
                     t->info.path, cJSON_IsString(x) ? zb_show(x->valuestring) : "no file", want);
  }
  return !x || zb_fail(err, NULL, "%s: tensor '%s' is none of this checkpoint's", zb_show(name),
                       zb_show(x->string));
}

/* Says what of the text differs: a tensor, if that is what does. */
static bool say_difference(const Verify *v, const char *path, bool states, const char *text, size_t n,
                           const ZbText *want, ZbErr *err) {
  const ZxContents *c = &v->k.m->c;
  uint32_t from = states ? c->nparams : 0, to = states ? c->ntensors : c->nparams;
  ZbErr why;
  cJSON *root = zb_json_parse(text, n, ZB_JSON_NAMED, &why);
  if (!root) return zb_fail(err, NULL, "%s: %s", zb_show(path), why.text);
  size_t at = 0;
  while (at < n && at < want->len && text[at] == want->s[at]) at++;
  if (check_map(v, path, cJSON_GetObjectItemCaseSensitive(root, "weight_map"), from, to, err))
    zb_fail(err, NULL, "%s: byte %zu is not as it was written", zb_show(path), at);
  cJSON_Delete(root);
  return false;
}

/* An index follows from the manifest: one that is longer by more than white space is not even read. */
static void verify_index(Verify *v, bool states) {
  const char *path = zb_printf(v->a, "%s/%s", v->k.dir, zx_ckpt_index_name[states]);
  ZbErr err = {0};
  ZbText want = {0};
  size_t n;
  zx_ckpt_index(&v->k.m->c, states, &want);
  char *text = zb_read_file(v->a, path, 2 * want.len + INDEX_MORE, &n, &err);
  bool ok = text && ((n == want.len && !memcmp(text, want.s, n)) ||
                     say_difference(v, path, states, text, n, &want, &err));
  zb_text_free(&want);
  if (!ok) tell_wrong(v, &err);
}

ZsEnd zs_verify(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  Verify v = {.a = a};
  if (!zs_open(&v.k, a, o->path[0], err)) return ZS_FAILED;
  const ZxContents *c = &v.k.m->c;
  int64_t named = zx_ckpt_step(v.k.dir);
  ZbErr name = {0};
  if (named >= 0 && named != v.k.m->step &&
      !zb_fail(&name, NULL, "%s is by its manifest the checkpoint of step %" PRId64 ": a copy, or renamed",
               zb_show(v.k.dir), v.k.m->step))
    tell_wrong(&v, &name);
  for (uint32_t i = 0; i < c->nfiles; i++) verify_file(&v, i);
  verify_others(&v);
  verify_index(&v, false);
  if (c->ntensors > c->nparams) verify_index(&v, true);
  zs_close(&v.k);
  char bytes[24];
  if (v.wrong) {
    zb_fail(err, "`zckpt list` names the checkpoints that there are", "%s is not as it was written",
            zb_show(v.k.dir));
    return ZS_FAILED;
  }
  printf("%s: as it was written: step %" PRId64 ", %" PRIu32 " parameters with %s%" PRIu32
         " states each, %s in %" PRIu32 " files\n",
         zb_show(v.k.dir), v.k.m->step, c->nparams,
         c->ntensors < c->nparams * (1 + c->nstates) ? "up to " : "", c->nstates, zb_bytes(bytes, c->bytes),
         c->nfiles);
  return ZS_OK;
}
