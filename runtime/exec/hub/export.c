/* A model's parameters as a folder that other programs read. Every file is written from its beginning to its
 * end: a tensor of it at a time, and a window of that at a time, which is filled with what parameters have in
 * it. */
#define _GNU_SOURCE /* renameat2 */
#include "graph/adapter.h"
#include "runtime/exec/hub/adapter.h"
#include "runtime/exec/hub/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 1 << 24 /* elements */, COPY = 1 << 20, CONFIG_LIMIT = 1 << 26 /* bytes */ };
static const char config_name[] = "config.json", index_name[] = "model.safetensors.index.json",
                  adapter_name[] = "adapter_model.safetensors";

/* The files of a tokenizer, and of how text is made with the model. */
static const char *const copied[] = {"tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "generation_config.json",
                                     "chat_template.jinja",
                                     "merges.txt",
                                     "vocab.json",
                                     "vocab.txt",
                                     "tokenizer.model",
                                     "spiece.model"};
enum { COPIED = sizeof copied / sizeof *copied };

/* ---- what is written ---- */
typedef struct { /* a part of a parameter, in a foreign tensor */
  ZxTensorInfo own;
  uint32_t source; /* the tensor of the parameter */
  ZxPart part;
} Piece;
typedef struct {
  ZxTensorInfo info;
  Piece *piece;
  uint32_t npieces;
  uint64_t n;  /* elements */
  bool linear; /* all pieces are of a linear layer */
} Tensor;
typedef struct {
  ZbArena *a;
  const ZxMap *m;
  const ZxShards *from;
  const ZxExportOptions *o;
  char *tmp;      /* the folder that is written */
  Tensor *tensor; /* by name */
  uint32_t ntensors;
  Tensor *adapter; /* likewise, with ZX_EXPORT_MERGED */
  uint32_t nadapters;
  const char *lost; /* see zx_adapter_of */
  ZbNames names;
  uint32_t *cut; /* file i has tensors cut[i]..cut[i + 1]-1 */
  uint32_t nfiles;
  uint64_t size; /* of the window */
  float *window;
  void *rounded;
  ZxExported done;
  ZbErr *err;
} Export;

static int64_t elements(const ZxTensorInfo *t) {
  int64_t n = 1;
  for (int i = 0; i < t->nshape; i++) n *= t->shape[i];
  return n;
}

static void add_part(Export *x, const ZxTensorInfo *own, uint32_t source, const ZxPart *part) {
  uint32_t at = zb_names_find(&x->names, part->info.path);
  if (at == ZB_NO_NAME) {
    at = zb_names_add(x->a, &x->names, part->info.path);
    Tensor t = {.info = part->info, .n = (uint64_t)elements(&part->info), .linear = true};
    ZB_PUSH(x->a, x->tensor, x->ntensors, t);
  }
  Piece p = {*own, source, *part};
  ZB_PUSH(x->a, x->tensor[at].piece, x->tensor[at].npieces, p);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const Tensor *)a)->info.path, ((const Tensor *)b)->info.path);
}

static bool list_tensors(Export *x) {
  const ZgGraph *g = x->m->g;
  uint32_t used = 0;
  for (uint32_t i = 0; i < g->nparams; i++)
    for (uint32_t k = 0; k < zx_map_iterations(g, i); k++, used++) {
      ZxTensorInfo own = zx_map_own(x->a, g, i, k);
      uint32_t source = zx_shards_find(x->from, own.path);
      if (source == ZB_NO_NAME)
        return zb_fail(x->err, "give the graph that it is of", "%s has no parameter '%s' of model %s",
                       zb_show(x->from->path), own.path, g->model);
      if (!zx_shards_fits(x->from, source, &own, x->err)) return false;
      for (uint32_t p = 0; p < zx_map_parts(x->m, i); p++) {
        ZxPart part = zx_map_part(x->m, x->a, i, k, &own, p);
        add_part(x, &own, source, &part);
        x->tensor[zb_names_find(&x->names, part.info.path)].linear &= zx_pack_is_linear(g, i, &part);
      }
    }
  if (used != x->from->names.n)
    return zb_fail(x->err, "give the graph that it is of", "%s has %u tensors; model %s has %u parameters",
                   zb_show(x->from->path), x->from->names.n, g->model, used);
  qsort(x->tensor, x->ntensors, sizeof *x->tensor, by_name);
  return true;
}

/* Leaves what is to be written among the tensors. */
static bool choose_tensors(Export *x) {
  uint32_t n = 0;
  if (x->o->what == ZX_EXPORT_ALL) return true;
  if (!zg_has_adapters(x->m->g))
    return zb_fail(x->err, "leave out --merge",
                   "model %s has no adapters that were made by --lora or --adapter", x->m->g->model);
  for (uint32_t i = 0; i < x->ntensors; i++) {
    bool adapter = zx_is_adapter(x->tensor[i].info.path);
    if (adapter == (x->o->what == ZX_EXPORT_ADAPTERS)) x->tensor[n++] = x->tensor[i];
    else if (adapter) ZB_PUSH(x->a, x->adapter, x->nadapters, x->tensor[i]);
  }
  x->ntensors = n;
  for (uint32_t i = 0; x->nadapters && i < n && !x->lost; i++)
    x->lost = zx_adapter_lost(x->a, zx_adapter_module(x->a, x->adapter->info.path), x->tensor[i].info.path);
  bool found = n && (!x->nadapters || x->lost);
  return found || zb_fail(x->err, "take the names that adapters were made by",
                          "names %s have no matrices of adapters", x->m->names);
}

/* ---- in which format ---- */
static bool is_packed(const Export *x, const Tensor *t) { return zk_is_packed(x->o->packed) && t->linear; }

/* Fills in what a tensor is in a file: itself, or several if it is packed. Returns how many. */
static int file_tensors(const Export *x, const Tensor *t, ZxFileTensor out[ZX_PACK_TENSORS]) {
  if (is_packed(x, t)) return zx_pack_tensors(x->a, &t->info, x->o->packed, x->o->as, out);
  out[0] = (ZxFileTensor){t->info, zk_elem_info[x->o->as].file, zk_plain_bytes(x->o->as)};
  return 1;
}

static uint64_t file_bytes(const Export *x, const Tensor *t) {
  ZxFileTensor part[ZX_PACK_TENSORS];
  uint64_t all = 0;
  for (int i = 0, n = file_tensors(x, t, part); i < n; i++)
    all += part[i].bytes * (uint64_t)elements(&part[i].info);
  return all;
}

static bool check_packed(Export *x) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->ntensors; i++) {
    if (!is_packed(x, &x->tensor[i])) continue;
    if (!zx_pack_fits(&x->tensor[i].info, x->o->packed, x->err)) return false;
    n++;
  }
  x->done.packed = n;
  x->done.format = x->o->packed;
  return n || !zk_is_packed(x->o->packed) ||
         zb_fail(x->err, "leave out --weights", "names %s have no matrices [out, in] that products alone use",
                 x->m->names);
}

/* Files as full as the limit allows; a larger tensor has one of its own. */
static void cut_files(Export *x) {
  uint64_t bytes = 0;
  ZB_PUSH(x->a, x->cut, x->nfiles, 0);
  for (uint32_t i = 0; i < x->ntensors; i++) {
    uint64_t n = file_bytes(x, &x->tensor[i]);
    if (x->o->what != ZX_EXPORT_ADAPTERS && i > x->cut[x->nfiles - 1] &&
        (n > x->o->most || bytes > x->o->most - n)) {
      ZB_PUSH(x->a, x->cut, x->nfiles, i);
      bytes = 0;
    }
    bytes += n;
    x->done.bytes += n;
  }
  x->cut = zb_grow(x->a, x->cut, x->nfiles, sizeof *x->cut);
  x->cut[x->nfiles] = x->ntensors;
}

/* ---- a tensor ---- */
/* Those indices of a part that may lie in elements from..to-1 of the tensor. False: none. */
static bool narrow(const Piece *p, int64_t from, int64_t to, int64_t lo[], int64_t hi[]) {
  int axis[ZG_MAX_AXES], n = 0;
  int64_t base = p->part.first, rest = 0;
  for (int a = 0; a < p->own.nshape; a++) {
    lo[a] = 0;
    hi[a] = p->own.shape[a] - 1;
    if (a == p->part.fixed) lo[a] = hi[a] = p->part.at;
    if (a == p->part.fixed || hi[a] == 0) continue;
    int k = n++;
    for (; k > 0 && p->part.stride[axis[k - 1]] < p->part.stride[a]; k--) axis[k] = axis[k - 1];
    axis[k] = a;
    rest += hi[a] * p->part.stride[a];
  }
  for (int k = 0; k < n; k++) { /* the widest stride first */
    if (base >= to) return false;
    int64_t *l = &lo[axis[k]], *h = &hi[axis[k]], step = p->part.stride[axis[k]];
    rest -= *h * step;
    int64_t before = from - base - rest; /* to be reached by this axis */
    if (before > 0) *l = (before + step - 1) / step;
    if ((to - 1 - base) / step < *h) *h = (to - 1 - base) / step;
    if (*l != *h) return true; /* of none, too: an empty box */
    base += *l * step;
  }
  return base >= from && base < to;
}

static bool fill(const Export *x, const Piece *p, int64_t from, int64_t to, float *out) {
  int64_t lo[ZG_MAX_AXES], hi[ZG_MAX_AXES], stride = 1;
  if (!narrow(p, from, to, lo, hi)) return true;
  ZxBox b = {.naxes = p->own.nshape, .to = p->part.first - from};
  for (int a = b.naxes; a-- > 0; stride *= p->own.shape[a]) {
    b.count[a] = hi[a] - lo[a] + 1;
    b.stride[a] = stride;
    b.from += lo[a] * stride;
    if (a == p->part.fixed) continue;
    b.step[a] = p->part.stride[a];
    b.to += lo[a] * b.step[a];
  }
  return zx_box_read(x->from, p->source, &b, out, (uint64_t)(to - from), x->err);
}

static const Tensor *adapter_named(const Export *x, const char *name) {
  Tensor key = {.info.path = name};
  return name && x->nadapters ? bsearch(&key, x->adapter, x->nadapters, sizeof key, by_name) : NULL;
}

/* Reads A, or B turned, of a matrix; to be freed. */
static float *read_adapter(const Export *x, const Tensor *t, bool turned) {
  int64_t rows = t->info.shape[0], columns = t->info.shape[1];
  float *out = malloc(2 * t->n * sizeof *out), *as = out + t->n;
  if (!out) zb_out_of_memory(2 * t->n * sizeof *out);
  for (uint32_t i = 0; i < t->npieces; i++)
    if (!fill(x, &t->piece[i], 0, (int64_t)t->n, as)) {
      free(out);
      return NULL;
    }
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < columns; k++) out[turned ? k * rows + i : i * columns + k] = as[i * columns + k];
  return out;
}

/* Reads the adapter of a matrix. True, and pair->rank 0, if it has none. */
static bool open_pair(Export *x, const Tensor *t, ZxPair *pair) {
  const ZgGraph *g = x->m->g;
  *pair = (ZxPair){.rank = 0};
  if (!x->nadapters) return true;
  const Tensor *a = adapter_named(x, zx_adapter_of(x->a, t->info.path, x->lost, false)),
               *b = adapter_named(x, zx_adapter_of(x->a, t->info.path, x->lost, true));
  if (!a || !b) return true;
  *pair = (ZxPair){.rank = a->info.shape[0],
                   .in = a->info.shape[1],
                   .out = b->info.shape[0],
                   .transposed = zg_adapter_transposed(g, ""),
                   .scale = zg_adapter_scale(g, "", zx_adapter_module(x->a, a->info.path))};
  int64_t rows = pair->transposed ? pair->in : pair->out, columns = pair->transposed ? pair->out : pair->in;
  if (t->info.nshape != 2 || t->info.shape[0] != rows || t->info.shape[1] != columns ||
      b->info.shape[1] != pair->rank)
    return zb_fail(x->err, "compile the graph again", "'%s' is not of the shape that its adapter has",
                   t->info.path);
  pair->a = read_adapter(x, a, false);
  pair->b = pair->a ? read_adapter(x, b, true) : NULL;
  x->done.merged++;
  return pair->b;
}

/* Fills the window with elements at .. at + n of a tensor. */
static bool fill_window(const Export *x, const Tensor *t, const ZxPair *pair, uint64_t at, uint64_t n) {
  for (uint32_t i = 0; i < t->npieces; i++)
    if (!fill(x, &t->piece[i], (int64_t)at, (int64_t)(at + n), x->window)) return false;
  if (pair->rank) zx_adapter_add(pair, x->window, (int64_t)at, (int64_t)n);
  return true;
}

static bool write_values(const Export *x, const Tensor *t, const ZxPair *pair, int fd, const char *path) {
  for (uint64_t at = 0, n; at < t->n; at += n) {
    n = t->n - at < x->size ? t->n - at : x->size;
    if (!fill_window(x, t, pair, at, n)) return false;
    int64_t bad = zx_as(x->o->as, x->window, n, x->rounded);
    if (bad >= 0)
      return zb_fail(x->err, "take another --dtype",
                     "tensor '%s' has the value %g, which is too large for %s", t->info.path,
                     (double)x->window[bad], zk_elem_info[x->o->as].text);
    if (!zb_write(fd, path, x->rounded, zk_bytes(x->o->as, n), x->err)) return false;
  }
  return true;
}

/* Writes words, then scales, which wait in memory, and the shape. Windows are whole groups. */
static bool write_packed(const Export *x, const Tensor *t, const ZxPair *pair, int fd, const char *path) {
  uint64_t group = zk_elem_info[x->o->packed].block,
           window = x->size < group ? group : x->size / group * group;
  uint64_t bits = zk_elem_info[x->o->packed].bits, each = zk_plain_bytes(x->o->as),
           scales_n = t->n / group * each;
  char *scales = malloc(scales_n);
  if (!scales) zb_out_of_memory(scales_n);
  bool ok = true;
  for (uint64_t at = 0, n; ok && at < t->n; at += n) {
    n = t->n - at < window ? t->n - at : window;
    ok = fill_window(x, t, pair, at, n) &&
         (zx_pack_round(x->o->packed, x->o->as, x->window, n, x->rounded, scales + at / group * each) ||
          zb_fail(x->err, "take another --dtype", "tensor '%s' has values whose scale is not a number of %s",
                  t->info.path, zk_elem_info[x->o->as].text)) &&
         zb_write(fd, path, x->rounded, n * bits / 8, x->err);
  }
  ok = ok && zb_write(fd, path, scales, scales_n, x->err) &&
       zb_write(fd, path, t->info.shape, 2 * sizeof *t->info.shape, x->err);
  free(scales);
  return ok;
}

static bool write_tensor(Export *x, const Tensor *t, int fd, const char *path) {
  ZxPair pair;
  bool ok = open_pair(x, t, &pair) && (is_packed(x, t) ? write_packed : write_values)(x, t, &pair, fd, path);
  free((float *)pair.a);
  free((float *)pair.b);
  return ok;
}

/* ---- files ---- */
/* A file of the folder that is written. */
static int create(const Export *x, const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) zb_out_failed(path, errno, x->err);
  return fd;
}

static bool finish(const Export *x, int fd, const char *path, bool ok) {
  if (ok && fsync(fd) < 0) ok = zb_out_failed(path, errno, x->err);
  if (close(fd) < 0 && ok) ok = zb_out_failed(path, errno, x->err);
  return ok;
}

static bool write_text(const Export *x, const char *name, const char *text, size_t n) {
  const char *path = zb_printf(x->a, "%s/%s", x->tmp, name);
  int fd = create(x, path);
  return fd >= 0 && finish(x, fd, path, zb_write(fd, path, text, n, x->err));
}

static const char *file_name(const Export *x, uint32_t file) {
  if (x->o->what == ZX_EXPORT_ADAPTERS) return adapter_name;
  if (x->nfiles == 1) return "model.safetensors";
  return zb_printf(x->a, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", file + 1, x->nfiles);
}

static bool write_file(Export *x, uint32_t file) {
  uint32_t from = x->cut[file], to = x->cut[file + 1];
  const char *path = zb_printf(x->a, "%s/%s", x->tmp, file_name(x, file));
  ZxFileTensor *all = ZB_NEWN(x->a, ZxFileTensor, ZX_PACK_TENSORS * (to - from));
  size_t n = 0;
  for (uint32_t i = from; i < to; i++) n += (size_t)file_tensors(x, &x->tensor[i], all + n);
  ZbText head = {0};
  uint64_t total;
  bool ok = zx_weights_head_of(&head, all, n, 8, &total, x->err);
  uint64_t len = head.len;
  int fd = ok ? create(x, path) : -1;
  ok = fd >= 0 && zb_write(fd, path, &len, 8, x->err) && zb_write(fd, path, head.s, len, x->err);
  for (uint32_t i = from; ok && i < to; i++) ok = write_tensor(x, &x->tensor[i], fd, path);
  zb_text_free(&head);
  return fd >= 0 && finish(x, fd, path, ok);
}

static bool write_index(const Export *x) {
  ZbText t = {0};
  uint64_t n = 0;
  for (uint32_t i = 0; i < x->ntensors; i++) n += x->tensor[i].n;
  ZbJson j = {.text = &t, .indent = "  "};
  zb_json_object(&j, NULL);
  zb_json_object(&j, "metadata");
  zb_json_count(&j, "total_parameters", n);
  zb_json_count(&j, "total_size", x->done.bytes);
  zb_json_end(&j);
  zb_json_object(&j, "weight_map");
  for (uint32_t f = 0; f < x->nfiles; f++)
    for (uint32_t i = x->cut[f]; i < x->cut[f + 1]; i++) {
      ZxFileTensor part[ZX_PACK_TENSORS];
      for (int k = 0, parts = file_tensors(x, &x->tensor[i], part); k < parts; k++)
        zb_json_string(&j, part[k].info.path, file_name(x, f));
    }
  zb_json_end(&j);
  zb_json_end(&j);
  zb_text_add(&t, "\n");
  bool ok = write_text(x, index_name, t.s, t.len);
  zb_text_free(&t);
  return ok;
}

static bool write_adapter_config(Export *x) {
  ZbText t = {0};
  zx_adapter_config(x->m->g, x->m->names, x->o->like, &t);
  x->done.config = write_text(x, ZG_ADAPTER, t.s, t.len);
  zb_text_free(&t);
  return x->done.config;
}

/* Returns what config.json says of packed weights; NULL: there are none. Modules of other matrices, and of copies that the
 * map knows, are as they are. */
static const char *packed_config(const Export *x) {
  const char **ignore = NULL, *name;
  uint32_t n = 0;
  ZxTensorInfo copy, of;
  if (!zk_is_packed(x->o->packed)) return NULL;
  for (uint32_t i = 0; i < x->ntensors + x->m->g->nignored; i++) {
    const Tensor *t = i < x->ntensors ? &x->tensor[i] : NULL;
    if (t && (t->linear || t->info.nshape != 2)) continue;
    if (!t && !zx_map_copy(x->m, i - x->ntensors, &copy, &of)) continue;
    name = t ? t->info.path : copy.path;
    if (zb_ends(name, ".weight"))
      ZB_PUSH(x->a, ignore, n, zb_strndup(x->a, name, strlen(name) - strlen(".weight")));
  }
  return zx_pack_config(x->a, x->o->packed, ignore, n);
}

static bool write_config(Export *x) {
  if (x->o->what == ZX_EXPORT_ADAPTERS) return write_adapter_config(x);
  const char *like = NULL, *path = NULL;
  size_t n;
  if (x->o->like) {
    path = zb_printf(x->a, "%s/%s", x->o->like, config_name);
    if (!(like = zb_read_file(x->a, path, CONFIG_LIMIT, &n, x->err))) return false;
  }
  ZbErr why = {0};
  char *text = zx_config(x->m->g, x->m->names, x->o->as, packed_config(x), like, path, &why);
  if (!text && *why.text) return zb_fail(x->err, why.help, "%s", why.text);
  bool ok = !text || write_text(x, config_name, text, strlen(text));
  x->done.config = text != NULL;
  free(text);
  return ok;
}

static bool copy_file(Export *x, const char *name) {
  const char *from = zb_printf(x->a, "%s/%s", x->o->like, name), *to = zb_printf(x->a, "%s/%s", x->tmp, name);
  struct stat st;
  if (stat(from, &st) < 0) return true;
  uint64_t size;
  int in = zb_open_file(from, false, &size, x->err);
  int out = in >= 0 ? create(x, to) : -1;
  bool ok = out >= 0;
  char *piece = malloc(COPY);
  if (!piece) zb_out_of_memory(COPY);
  for (uint64_t at = 0, k; ok && at < size; at += k) {
    k = size - at < COPY ? size - at : COPY;
    ok = zb_read_at(in, from, piece, k, at, x->err) && zb_write(out, to, piece, k, x->err);
  }
  free(piece);
  if (out >= 0) ok = finish(x, out, to, ok);
  if (in >= 0) close(in);
  x->done.copied += ok;
  return ok;
}

/* The small ones first: what is wrong with them is known before much is written. */
static bool write_files(Export *x) {
  bool ok = write_config(x);
  for (int i = 0; ok && x->o->like && i < COPIED; i++) ok = copy_file(x, copied[i]);
  for (uint32_t i = 0; ok && i < x->nfiles; i++) ok = write_file(x, i);
  return ok && (x->nfiles == 1 || write_index(x));
}

/* ---- the folder ---- */
/* A file that an export writes. */
static bool is_ours(const char *name) {
  for (int i = 0; i < COPIED; i++)
    if (!strcmp(name, copied[i])) return true;
  return !strcmp(name, config_name) || !strcmp(name, index_name) || !strcmp(name, adapter_name) ||
         !strcmp(name, ZG_ADAPTER) || (!strncmp(name, "model", 5) && zb_ends(name, ".safetensors"));
}

/* Removes an export, or what a killed one left: its files, and then the folder. */
static bool discard(const char *path, ZbErr *err) {
  struct stat st;
  return zb_remove_folder(path, is_ours, err) &&
         (lstat(path, &st) < 0 ||
          zb_fail(err, "look into it and remove it", "%s has files that no export writes", zb_show(path)));
}

/* Nothing is replaced but an export, and only if that is wanted. */
static bool may_take(const char *path, bool force, ZbErr *err) {
  struct stat st;
  if (!*path) return zb_fail(err, NULL, "a folder without a name cannot be written");
  if (lstat(path, &st) < 0) return true;
  if (!force || !S_ISDIR(st.st_mode))
    return zb_fail(err, S_ISDIR(st.st_mode) ? "give another -o, or --force" : "give another -o",
                   "%s is there already", zb_show(path));
  DIR *d = opendir(path);
  if (!d) return zb_fail_errno(err, errno, NULL, "cannot read the folder %s", zb_show(path));
  bool ok = true;
  for (struct dirent *f; ok && (f = readdir(d));)
    if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..") && !is_ours(f->d_name))
      ok = zb_fail(err, "give another -o, or move it away", "%s holds %s, which no export writes",
                   zb_show(path), zb_show(f->d_name));
  closedir(d);
  return ok;
}

static void clear(const char *tmp) { zb_clear_folder(tmp, is_ours, NULL); }

static int begin(Export *x, const char *path) {
  if (zb_tmp_remove_left(path, clear))
    return zb_fail(x->err, "wait for its end", "another export writes %s", zb_show(path)), -1;
  int fd = zb_tmp_make(path, true, 0777, &x->tmp);
  if (fd < 0) zb_out_failed(path, errno, x->err);
  return fd;
}

/* They change names where one is there already, so that there is always one of that name. */
static bool publish(const char *tmp, const char *path, int fd, ZbErr *err) {
  if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS) return zb_out_failed(tmp, errno, err);
  struct stat st;
  bool old = lstat(path, &st) == 0;
  bool ok = old ? zb_exchange(tmp, path) : renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
  if (!ok && (errno == EINVAL || errno == ENOSYS)) /* a file system that cannot */
    ok = (!old || discard(path, NULL)) && rename(tmp, path) == 0;
  else if (ok && old) return discard(tmp, err);
  return ok || zb_fail_errno(err, errno, "the export is complete in the former: rename it by hand",
                             "cannot rename %s to %s", zb_show(tmp), zb_show(path));
}

bool zx_export(ZbArena *a, const ZxMap *m, const ZxShards *from, const ZxExportOptions *o, ZxExported *out,
               ZbErr *err) {
  char *path = zb_strdup(a, o->out);
  for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
  Export x = {.a = a, .m = m, .from = from, .o = o, .size = o->window ? o->window : WINDOW, .err = err};
  if (!may_take(path, o->force, err) || !list_tensors(&x) || !choose_tensors(&x) || !check_packed(&x))
    return false;
  cut_files(&x);
  int fd = begin(&x, path);
  if (fd < 0) return false;
  if (zk_is_packed(o->packed) && x.size < ZX_PACK_GROUP) x.size = ZX_PACK_GROUP;
  x.window = malloc(x.size * sizeof *x.window);
  x.rounded = malloc(x.size * sizeof *x.window);
  if (!x.window || !x.rounded) zb_out_of_memory(x.size * sizeof *x.window);
  bool ok = write_files(&x);
  free(x.window);
  free(x.rounded);
  if (ok) ok = publish(x.tmp, path, fd, err);
  else discard(x.tmp, NULL);
  close(fd);
  free(x.tmp);
  x.done.what = o->what;
  x.done.tensors = x.ntensors;
  x.done.files = x.nfiles;
  *out = x.done;
  return ok;
}
