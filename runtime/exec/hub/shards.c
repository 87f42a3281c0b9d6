/* Tensors by name, of one safetensors file or of a folder's shards. */
#include "runtime/exec/hub/coded.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum { INDEX_LIMIT = 1 << 28 /* bytes */, MAX_FILES = 512 /* all are open at once */ };
static const char whole_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json",
                  adapter_name[] = "adapter_model.safetensors";
static const char help[] = "copy the folder again";

/* ---- which files ---- */
static bool is_there(const char *path, bool folder) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode) == folder;
}

/* The name of a file beside the index. */
static bool is_plain(const char *s) {
  if (strlen(s) > 200 || *s == '.' || !zb_ends(s, ".safetensors")) return false;
  for (; *s; s++)
    if (*s < 32 || *s >= 127 || *s == '/') return false;
  return true;
}

typedef struct {
  ZbArena *a;
  const char **read; /* paths of what there is to read, the index first */
  uint32_t nread;
  const char *path; /* of the index; NULL: there is none */
  ZbNames tensors, files;
  uint32_t *in; /* the file of each tensor */
} Index;

static bool read_map(Index *x, const cJSON *map, ZbErr *err) {
  if (!cJSON_IsObject(map) || !map->child)
    return zb_fail(err, help, "%s has no `weight_map`", zb_show(x->path));
  for (const cJSON *k = map->child; k; k = k->next) {
    const char *file = cJSON_IsString(k) ? k->valuestring : "";
    if (!is_plain(file))
      return zb_fail(err, help,
                     "%s: tensor '%s' is said to be in '%s', which is not a safetensors file beside it",
                     zb_show(x->path), zb_show(k->string), zb_show(file));
    if (zb_names_find(&x->tensors, k->string) != ZB_NO_NAME)
      return zb_fail(err, help, "%s names tensor '%s' twice", zb_show(x->path), zb_show(k->string));
    uint32_t f = zb_names_find(&x->files, file);
    if (f == ZB_NO_NAME) f = zb_names_add(x->a, &x->files, zb_strdup(x->a, file));
    if (f >= MAX_FILES)
      return zb_fail(err, "put them into fewer, larger files", "%s names more than %d files",
                     zb_show(x->path), MAX_FILES);
    x->in = zb_grow(x->a, x->in, x->tensors.n, sizeof *x->in);
    x->in[x->tensors.n] = f;
    zb_names_add(x->a, &x->tensors, zb_strdup(x->a, k->string));
  }
  return true;
}

static bool read_index(Index *x, ZbErr *err) {
  size_t n;
  char *text = zb_read_file(x->a, x->path, INDEX_LIMIT, &n, err);
  if (!text) return false;
  ZbErr why;
  cJSON *root = zb_json_parse(text, n, ZB_JSON_NAMED, &why);
  bool ok = (root || zb_fail(err, help, "%s: %s", zb_show(x->path), why.text)) &&
            read_map(x, cJSON_GetObjectItemCaseSensitive(root, "weight_map"), err);
  cJSON_Delete(root);
  return ok;
}

static bool list(Index *x, ZbArena *a, const char *path, ZbErr *err) {
  *x = (Index){.a = a};
  const char *one = path;
  if (is_there(path, true)) {
    one = zb_printf(a, "%s/%s", path, whole_name);
    x->path = zb_printf(a, "%s/%s", path, index_name);
    if (!is_there(one, false) && !is_there(x->path, false)) one = zb_printf(a, "%s/%s", path, adapter_name);
    if (!is_there(one, false) && !is_there(x->path, false))
      return zb_fail(err, "convert what is there to safetensors", "the folder %s has neither %s nor %s",
                     zb_show(path), whole_name, index_name);
    if (is_there(one, false)) x->path = NULL;
  }
  if (!x->path) {
    ZB_PUSH(a, x->read, x->nread, one);
    return true;
  }
  if (!read_index(x, err)) return false;
  ZB_PUSH(a, x->read, x->nread, x->path);
  for (uint32_t i = 0; i < x->files.n; i++) {
    const char *file = zb_printf(a, "%s/%s", path, x->files.name[i]);
    ZB_PUSH(a, x->read, x->nread, file);
  }
  return true;
}

bool zx_shards_list(ZbArena *a, const char *path, const char ***files, uint32_t *n, ZbErr *err) {
  Index x;
  bool ok = list(&x, a, path, err);
  *files = x.read;
  *n = x.nread;
  return ok;
}

/* ---- their tensors ---- */
static bool add_file(ZxShards *s, ZbArena *a, const char *path, const char *mark, ZbErr *err) {
  ZxWeights *w = zx_weights_open(path, false, err);
  if (!w) return false;
  s->file = zb_grow(a, s->file, s->nfiles, sizeof *s->file);
  s->name = zb_grow(a, s->name, s->nfiles, sizeof *s->name);
  s->file[s->nfiles] = w;
  s->name[s->nfiles++] = path;
  for (int64_t i = 0; i < (int64_t)zx_weights_count(w); i++) {
    const char *name = zx_weights_path(w, i);
    if (*mark) name = zb_printf(a, "%s%s", mark, name);
    uint32_t other = zb_names_find(&s->names, name);
    if (other != ZB_NO_NAME)
      return zb_fail(err, help, "tensor '%s' is in %s and in %s", zb_show(name),
                     zb_show(s->name[s->at[other].file]), zb_show(path));
    uint32_t n = s->names.n;
    s->at = zb_grow(a, s->at, n, sizeof *s->at);
    s->at[n] = (ZxPlace){.file = s->nfiles - 1, .tensor = i};
    zb_names_add(a, &s->names, name);
  }
  return true;
}

static bool is_as_said(const ZxShards *s, const Index *x, uint32_t first, ZbErr *err) {
  for (uint32_t i = 0; i < x->tensors.n; i++) {
    uint32_t t = zx_shards_find(s, x->tensors.name[i]);
    if (t == ZB_NO_NAME || s->at[t].file != first + x->in[i])
      return zb_fail(err, help, "%s: tensor '%s' is said to be in %s, which does not have it",
                     zb_show(x->path), zb_show(x->tensors.name[i]), x->files.name[x->in[i]]);
  }
  return true;
}

static bool open_gguf(ZxShards *s, ZbArena *a, ZbErr *err) {
  s->gguf = zx_gguf_open(a, s->path, err);
  for (uint32_t i = 0; s->gguf && i < zx_gguf_count(s->gguf); i++) {
    const char *format, *name = zx_gguf_info(s->gguf, i, &format).path;
    if (zb_names_find(&s->names, name) != ZB_NO_NAME)
      return zb_fail(err, help, "%s has tensor '%s' twice", zb_show(s->path), zb_show(name));
    s->at = zb_grow(a, s->at, i, sizeof *s->at);
    s->at[i] = (ZxPlace){.tensor = i};
    zb_names_add(a, &s->names, name);
  }
  return s->gguf;
}

bool zx_shards_open(ZxShards *s, ZbArena *a, const char *path, ZbErr *err) {
  *s = (ZxShards){.path = path};
  if (zx_is_gguf(path)) {
    bool is = open_gguf(s, a, err);
    if (!is) zx_shards_close(s);
    return is;
  }
  bool ok = zx_shards_add(s, a, path, "", err);
  if (ok && !zx_quantized_open(s, a, err)) zx_shards_close(s), ok = false;
  return ok;
}

bool zx_shards_add(ZxShards *s, ZbArena *a, const char *path, const char *mark, ZbErr *err) {
  Index index;
  uint32_t first = s->nfiles;
  bool ok = list(&index, a, path, err);
  const char **files = index.read;
  uint32_t n = ok ? index.nread : 0;
  if (ok && index.path) files++, n--;
  for (uint32_t i = 0; ok && i < n; i++) ok = add_file(s, a, files[i], mark, err);
  ok = ok && is_as_said(s, &index, first, err);
  if (path != s->path) s->path = zb_printf(a, "%s with %s", s->path, path);
  if (!ok) zx_shards_close(s);
  return ok;
}

void zx_shards_close(ZxShards *s) {
  for (uint32_t i = 0; i < s->nfiles; i++) zx_weights_close(s->file[i], NULL);
  s->nfiles = 0;
  zx_gguf_close(s->gguf);
  s->gguf = NULL;
}

uint32_t zx_shards_find(const ZxShards *s, const char *name) { return zb_names_find(&s->names, name); }

ZxTensorInfo zx_shards_info(const ZxShards *s, uint32_t tensor) {
  const ZxPlace *t = &s->at[tensor];
  const char *format;
  if (s->gguf) return zx_gguf_info(s->gguf, (uint32_t)t->tensor, &format);
  return t->coded ? t->coded->info : zx_weights_info(s->file[t->file], t->tensor);
}

bool zx_shards_fits(const ZxShards *s, uint32_t tensor, const ZxTensorInfo *want, ZbErr *err) {
  const ZxPlace *t = &s->at[tensor];
  ZxTensorInfo info = zx_shards_info(s, tensor);
  if (t->coded || s->gguf)
    return zx_shape_is(s->path, &info, want, "the model", "was it saved with other sizes (-D)?", err);
  return zx_weights_fits(s->file[t->file], t->tensor, want, err);
}

const char *zx_shards_uneven(const ZxShards *s, uint32_t tensor) {
  const ZxCoded *c = s->gguf ? NULL : s->at[tensor].coded;
  return c && c->uneven && c->code.bits == 4 ? c->kind : NULL;
}

void zx_shards_ahead(const ZxShards *s, uint32_t tensor) {
  const ZxPlace *t = &s->at[tensor];
  if (!s->gguf && !t->coded) zx_weights_ahead(s->file[t->file], t->tensor);
}

bool zx_shards_read(const ZxShards *s, uint32_t tensor, ZxDecoder *d, uint64_t at, uint64_t n, float *out,
                    ZbErr *err) {
  const ZxPlace *t = &s->at[tensor];
  if (s->gguf) return zx_gguf_read(s->gguf, (uint32_t)t->tensor, at, n, out, err);
  return t->coded ? zx_coded_read(t->coded, d, at, n, out, err)
                  : zx_weights_read(s->file[t->file], t->tensor, at, n, out, err);
}
