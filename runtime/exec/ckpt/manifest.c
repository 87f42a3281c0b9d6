/* manifest.json: what a checkpoint is of, and what its files must be. Where each tensor lies follows from the
 * list of parameters (contents.c); it is written down all the same, for people and other programs, in the
 * indices. */
#define _GNU_SOURCE
#include "runtime/exec/ckpt/ckpt.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { VERSION = 1, LIMIT = 1 << 28 /* bytes of a manifest */ };
const char *const zx_ckpt_index_name[2] = {"model.safetensors.index.json",
                                           "optimizer.safetensors.index.json"};
static const char none[] = "0000000000000000", sum_key[] = "\"checksum\":\"";

/* ---- writing ---- */
static void put_sum(ZbJson *j, const char *key, uint64_t sum) {
  zb_json_raw(j, key, "\"%016" PRIx64 "\"", sum);
}

/* Puts a string on a line of its own. */
static void put_line(ZbJson *j, int blanks, const char *key, const char *value) {
  zb_json_line(j, blanks);
  zb_json_string(j, key, value);
}

static void put_facts(ZbJson *j, const ZxManifest *m) {
  zb_json_line(j, 0);
  zb_json_object(j, "facts");
  for (uint32_t i = 0; i < m->nfacts; i++) {
    const ZxCkptFact *f = &m->facts[i];
    bool first = !i || strcmp(f->kind, f[-1].kind), last = i + 1 == m->nfacts || strcmp(f->kind, f[1].kind);
    if (first) {
      zb_json_line(j, 2);
      zb_json_object(j, f->kind);
    }
    put_line(j, 4, f->name, f->value);
    if (last) zb_json_end(j);
  }
  zb_json_end(j);
}

/* Puts the states of a parameter that does not have all of them. */
static void put_own_states(ZbJson *j, const ZxContents *c, uint32_t param) {
  zb_json_list(j, "states");
  for (uint32_t i = c->first[param]; i < c->first[param + 1]; i++)
    zb_json_string(j, NULL, c->state[c->tensors[i].state - 1]);
  zb_json_end(j);
}

/* Puts, of its states that lack axes of the parameter, which: a bit each. */
static void put_less(ZbJson *j, const ZxContents *c, uint32_t param) {
  bool any = false;
  for (uint32_t i = c->first[param]; i < c->first[param + 1]; i++) {
    if (!c->tensors[i].less) continue;
    if (!any) zb_json_object(j, "less");
    any = true;
    zb_json_int(j, c->state[c->tensors[i].state - 1], c->tensors[i].less);
  }
  if (any) zb_json_end(j);
}

static void put_params(ZbJson *j, const ZxContents *c) {
  zb_json_line(j, 0);
  zb_json_list(j, "parameters");
  for (uint32_t i = 0; i < c->nparams; i++) {
    const ZxCkptTensor *x = &c->tensors[i];
    zb_json_line(j, 2);
    zb_json_object(j, NULL);
    zb_json_string(j, "path", x->info.path);
    zb_json_list(j, "shape");
    for (int k = 0; k < x->info.nshape; k++) zb_json_int(j, NULL, x->info.shape[k]);
    zb_json_end(j);
    if (zx_nstates_of(c, i) < c->nstates) put_own_states(j, c, i);
    put_less(j, c, i);
    zb_json_list(j, "checksums");
    put_sum(j, NULL, x->digest);
    for (uint32_t s = c->first[i]; s < c->first[i + 1]; s++) put_sum(j, NULL, c->tensors[s].digest);
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_files(ZbJson *j, const ZxContents *c) {
  zb_json_line(j, 0);
  zb_json_list(j, "files");
  for (uint32_t i = 0; i < c->nfiles; i++) {
    zb_json_line(j, 2);
    zb_json_object(j, NULL);
    zb_json_string(j, "name", c->files[i].name);
    zb_json_count(j, "bytes", c->files[i].bytes);
    put_sum(j, "header_checksum", c->files[i].head_digest);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_best(ZbJson *j, const ZxManifest *m) {
  zb_json_line(j, 0);
  zb_json_object(j, "evaluation");
  zb_json_string(j, "data", m->best.data);
  zb_json_rounded(j, "best_loss", 17, m->best.loss);
  zb_json_int(j, "best_step", m->best.step);
  zb_json_end(j);
}

static void put_manifest(ZbText *t, const ZxManifest *m) {
  const ZxContents *c = &m->c;
  ZbJson json = {.text = t}, *j = &json;
  zb_json_object(j, NULL);
  zb_json_string(j, "format", "zug checkpoint");
  zb_json_int(j, "version", VERSION);
  zb_json_string(j, "checksum", none);
  zb_json_line(j, 0);
  zb_json_int(j, "step", m->step);
  zb_json_int(j, "samples", m->samples);
  zb_json_int(j, "serial", m->serial);
  put_line(j, 0, "program", m->version);
  put_line(j, 0, "model", m->model);
  put_line(j, 0, "command", m->command);
  put_line(j, 0, "recipe", m->recipe);
  put_facts(j, m);
  if (m->best.data) put_best(j, m);
  zb_json_line(j, 0);
  zb_json_count(j, "file_limit", c->most);
  put_files(j, c);
  zb_json_line(j, 0);
  zb_json_list(j, "states");
  for (uint32_t s = 0; s < c->nstates; s++) zb_json_string(j, NULL, c->state[s]);
  zb_json_end(j);
  put_params(j, c);
  zb_json_end(j);
  zb_text_add(t, "\n");
}

/* Returns where the digits of the checksum are in text[0..n), or NULL. */
static char *sum_in(char *text, size_t n) {
  char *at = memmem(text, n, sum_key, strlen(sum_key));
  return at && n - (size_t)(at - text) >= strlen(sum_key) + 16 ? at + strlen(sum_key) : NULL;
}

bool zx_manifest_seal(char *text, size_t n) {
  char *at = sum_in(text, n), digits[17];
  if (!at) return false;
  memcpy(at, none, 16);
  snprintf(digits, sizeof digits, "%016" PRIx64, (uint64_t)XXH3_64bits(text, n));
  memcpy(at, digits, 16);
  return true;
}

static bool write_synced(const char *dir, const char *name, const ZbText *t, ZbErr *err) {
  ZbText path = {0};
  zb_text_add(&path, "%s/%s", dir, name);
  int fd = open(path.s, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  bool ok = fd >= 0 || zb_out_failed(path.s, errno, err);
  ok = ok && zb_write_at(fd, path.s, t->s, t->len, 0, err);
  if (ok && fsync(fd) < 0) ok = zb_out_failed(path.s, errno, err);
  if (fd >= 0 && close(fd) < 0 && ok) ok = zb_out_failed(path.s, errno, err);
  zb_text_free(&path);
  return ok;
}

/* How many files have parameters; those behind them have states. */
static uint32_t models_of(const ZxContents *c) {
  uint32_t n = 0;
  while (n < c->nfiles && c->files[n].first < c->nparams) n++;
  return n;
}

void zx_ckpt_index(const ZxContents *c, bool states, ZbText *t) {
  uint32_t models = models_of(c);
  uint32_t from = states ? models : 0, to = states ? c->nfiles : models;
  uint64_t bytes = 0;
  for (uint32_t f = from; f < to; f++) bytes += c->files[f].bytes - c->files[f].head_bytes;
  ZbJson j = {.text = t};
  zb_json_object(&j, NULL);
  zb_json_object(&j, "metadata");
  zb_json_count(&j, "total_size", bytes);
  zb_json_end(&j);
  zb_json_line(&j, 0);
  zb_json_object(&j, "weight_map");
  for (uint32_t f = from; f < to; f++)
    for (uint32_t i = c->files[f].first; i < c->files[f].first + c->files[f].n; i++)
      put_line(&j, 2, c->tensors[i].info.path, c->files[f].name);
  zb_json_end(&j);
  zb_json_end(&j);
  zb_text_add(t, "\n");
}

static bool write_index(const ZxContents *c, bool states, const char *dir, ZbErr *err) {
  ZbText t = {0};
  zx_ckpt_index(c, states, &t);
  bool ok = write_synced(dir, zx_ckpt_index_name[states], &t, err);
  zb_text_free(&t);
  return ok;
}

bool zx_manifest_write(const ZxManifest *m, const char *dir, ZbErr *err) {
  const ZxContents *c = &m->c;
  if (!write_index(c, false, dir, err) || (models_of(c) < c->nfiles && !write_index(c, true, dir, err)))
    return false;
  ZbText t = {0};
  put_manifest(&t, m);
  bool ok = zx_manifest_seal(t.s, t.len) && write_synced(dir, "manifest.json", &t, err);
  zb_text_free(&t);
  return ok;
}

/* ---- reading ---- */
typedef struct {
  ZbArena *a;
  const char *name; /* of the file, for messages */
  ZbErr *err;
} Reader;

static const char help[] = "`zckpt list` names the checkpoints that there are";
static bool altered(const Reader *r, const char *what) {
  return zb_fail(r->err, help, "%s: %s; is it altered, or another program's?", zb_show(r->name), what);
}

static bool get_number(const Reader *r, const cJSON *o, const char *key, int64_t *out) {
  const cJSON *x = zb_json_member(o, key);
  if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble <= 0x1p53))
    return altered(r, zb_printf(r->a, "its `%s` is not a number", key));
  *out = (int64_t)x->valuedouble;
  return true;
}

static bool get_text(const Reader *r, const cJSON *o, const char *key, const char **out) {
  const cJSON *x = zb_json_member(o, key);
  if (!cJSON_IsString(x)) return altered(r, zb_printf(r->a, "its `%s` is not text", key));
  *out = zb_strdup(r->a, x->valuestring);
  return true;
}

static bool get_digest(const cJSON *x, uint64_t *out) {
  char *end;
  if (!cJSON_IsString(x) || strlen(x->valuestring) != 16) return false;
  *out = strtoull(x->valuestring, &end, 16);
  return !*end;
}

static bool get_facts(const Reader *r, const cJSON *root, ZxManifest *m) {
  const cJSON *facts = zb_json_member(root, "facts");
  if (facts && !cJSON_IsObject(facts)) return altered(r, "its `facts` is not an object");
  for (const cJSON *k = facts ? facts->child : NULL; k; k = k->next) {
    if (!cJSON_IsObject(k)) return altered(r, "one kind of its facts is not an object");
    for (const cJSON *x = k->child; x; x = x->next) {
      if (!cJSON_IsString(x)) return altered(r, "one of its facts is not a text");
      ZxCkptFact f = {zb_strdup(r->a, k->string), zb_strdup(r->a, x->string),
                      zb_strdup(r->a, x->valuestring)};
      ZB_PUSH(r->a, m->facts, m->nfacts, f);
    }
  }
  return true;
}

/* Reads the best evaluation; a run that evaluates nothing has none. */
static bool get_best(const Reader *r, const cJSON *root, ZxBest *out) {
  const cJSON *x = zb_json_member(root, "evaluation"), *loss = zb_json_member(x, "best_loss");
  if (!x) return true;
  if (!cJSON_IsNumber(loss) || !isfinite(loss->valuedouble))
    return altered(r, "its `best_loss` is not a number");
  out->loss = loss->valuedouble;
  return get_text(r, x, "data", &out->data) && get_number(r, x, "best_step", &out->step);
}

static bool plain(const char *s) {
  if (!*s) return false;
  for (; *s; s++)
    if (*s <= 32 || *s >= 127 || *s == '"' || *s == '\\') return false;
  return true;
}

typedef struct {
  uint64_t of[1 + ZX_MAX_STATES];
} Digests;
/* Reads which of the states a parameter has: those that it lists, in their order; without a list all. */
static bool get_own_states(const cJSON *x, const char *const *state, uint32_t nstates, uint32_t *has) {
  const cJSON *list = zb_json_member(x, "states"), *k = list ? list->child : NULL;
  *has = list ? 0 : (1u << nstates) - 1;
  for (uint32_t s = 0; k && s < nstates; s++)
    if (cJSON_IsString(k) && !strcmp(k->valuestring, state[s])) *has |= 1u << s, k = k->next;
  return !k && (!list || cJSON_IsArray(list));
}

/* Reads which axes of the parameter its states lack. */
static bool get_less(const Reader *r, const cJSON *x, const char *const *state, uint32_t nstates,
                     const ZxTensorInfo *t, uint32_t *less) {
  const cJSON *list = zb_json_member(x, "less");
  bool ok = !list || cJSON_IsObject(list);
  for (const cJSON *k = list && ok ? list->child : NULL; k; k = k->next) {
    uint32_t s = 0;
    while (s < nstates && strcmp(state[s], k->string)) s++;
    ok &= s < nstates && cJSON_IsNumber(k) && k->valuedouble >= 0 && k->valuedouble < 1 << t->nshape;
    if (ok) less[s] = (uint32_t)k->valuedouble;
  }
  return ok || altered(r, zb_printf(r->a, "parameter '%s' has states of impossible shapes", t->path));
}

/* One parameter, with the digests of it and of its states. */
static bool get_param(const Reader *r, const cJSON *x, uint32_t has, ZxTensorInfo *t, Digests *digest) {
  uint64_t n = 4;
  if (!get_text(r, x, "path", &t->path)) return false;
  if (!plain(t->path)) return altered(r, "a parameter's path has other than letters in it");
  const cJSON *shape = zb_json_member(x, "shape"), *sums = zb_json_member(x, "checksums");
  for (const cJSON *k = shape ? shape->child : NULL; k; k = k->next) {
    if (t->nshape == 8 || !cJSON_IsNumber(k) || !(k->valuedouble >= 1 && k->valuedouble <= 0x1p53) ||
        !zb_mul_u64(n, (uint64_t)k->valuedouble, &n) || n > INT64_MAX / 8)
      return altered(r, zb_printf(r->a, "parameter '%s' has an impossible shape", t->path));
    t->shape[t->nshape++] = (int64_t)k->valuedouble;
  }
  const cJSON *k = cJSON_IsArray(shape) && cJSON_IsArray(sums) ? sums->child : NULL;
  for (int s = 0; s <= __builtin_popcount(has); s++, k = k->next)
    if (!k || !get_digest(k, &digest->of[s]))
      return altered(r, zb_printf(r->a, "parameter '%s' lacks its shape or a checksum", t->path));
  return true;
}

static bool get_contents(const Reader *r, const cJSON *root, ZxContents *c) {
  const char *state[ZX_MAX_STATES] = {0};
  uint32_t nstates = 0, n = 0, i = 0;
  const cJSON *params = zb_json_member(root, "parameters"), *states = zb_json_member(root, "states");
  for (const cJSON *k = states ? states->child : NULL; k; k = k->next) {
    if (nstates == ZX_MAX_STATES || !cJSON_IsString(k) || !plain(k->valuestring))
      return altered(r, "its list of optimizer states is none");
    state[nstates++] = zb_strdup(r->a, k->valuestring);
  }
  for (const cJSON *k = params ? params->child : NULL; k; k = k->next) n++;
  ZxTensorInfo *info = ZB_NEWN(r->a, ZxTensorInfo, n + 1);
  Digests *digest = ZB_NEWN(r->a, Digests, n + 1);
  uint32_t *has = ZB_NEWN(r->a, uint32_t, n + 1), *less = ZB_NEWN(r->a, uint32_t, (size_t)n * nstates + 1);
  for (const cJSON *k = params ? params->child : NULL; k; k = k->next, i++)
    if (!get_own_states(k, state, nstates, &has[i]))
      return altered(r, "a parameter's list of states is none");
    else if (!get_param(r, k, has[i], &info[i], &digest[i]) ||
             !get_less(r, k, state, nstates, &info[i], less + (size_t)i * nstates))
      return false;
  int64_t most = 0;
  if (!get_number(r, root, "file_limit", &most) ||
      !zx_contents_make(r->a, info, n, state, nstates, has, less, (uint64_t)most, c, r->err))
    return false;
  for (i = 0; i < n; i++) {
    c->tensors[i].digest = digest[i].of[0];
    for (uint32_t s = 0; s < zx_nstates_of(c, i); s++)
      c->tensors[c->first[i] + s].digest = digest[i].of[1 + s];
  }
  return true;
}

static bool get_all(const Reader *r, const cJSON *root, ZxManifest *m) {
  return get_number(r, root, "step", &m->step) && get_number(r, root, "samples", &m->samples) &&
         get_number(r, root, "serial", &m->serial) && get_text(r, root, "program", &m->version) &&
         get_text(r, root, "model", &m->model) && get_text(r, root, "command", &m->command) &&
         get_text(r, root, "recipe", &m->recipe) && get_facts(r, root, m) && get_best(r, root, &m->best) &&
         get_contents(r, root, &m->c);
}

/* The checksum is of the text with zeros in its place. */
static bool check_sum(const Reader *r, char *text, size_t n, uint64_t *sum) {
  char *at = sum_in(text, n), said[17] = "", want[17] = "";
  if (!at) return altered(r, "it has no checksum");
  memcpy(said, at, 16);
  zx_manifest_seal(text, n);
  memcpy(want, at, 16);
  *sum = strtoull(want, NULL, 16);
  return !strcmp(said, want) ||
         altered(r, zb_printf(r->a, "its checksum is %s, and it says %s", want, zb_show(said)));
}

ZxManifest *zx_manifest_read(ZbArena *a, const char *dir, ZbErr *err) {
  const char *name = zb_printf(a, "%s/manifest.json", dir);
  Reader r = {a, name, err};
  size_t n;
  ZbErr why = {0};
  char *text = zb_read_file(a, name, LIMIT, &n, &why);
  if (!text) {
    zb_fail(err, help, "%s is not a complete checkpoint: %s", zb_show(dir), why.text);
    if (err) err->passing = why.passing;
    return NULL;
  }
  ZxManifest *m = ZB_NEW(a, ZxManifest);
  static const char begin[] = "{\"format\":\"zug checkpoint\",\"version\":";
  if (strncmp(text, begin, strlen(begin)))
    return altered(&r, "it is not a manifest of a zug checkpoint"), NULL;
  long version = strtol(text + strlen(begin), NULL, 10);
  if (version != VERSION) {
    zb_fail(err, "read it with the zug that wrote it", "%s: version %ld; this zug knows version %d",
            zb_show(name), version, VERSION);
    return NULL;
  }
  if (!check_sum(&r, text, n, &m->checksum)) return NULL;
  cJSON *root = zb_json_parse(text, n, ZB_JSON_NAMED, &why);
  bool ok = root ? get_all(&r, root, m) : altered(&r, why.text);
  cJSON_Delete(root);
  return ok ? m : NULL;
}

const char *zx_manifest_fact(const ZxManifest *m, const char *kind, const char *name) {
  for (uint32_t i = 0; i < m->nfacts; i++)
    if (!strcmp(m->facts[i].kind, kind) && !strcmp(m->facts[i].name, name)) return m->facts[i].value;
  return NULL;
}
