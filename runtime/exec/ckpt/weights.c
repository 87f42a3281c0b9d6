/* safetensors files: parameters by path, read and written piecewise by their owners. Nothing here knows which
 * rank owns what. The format: 8 bytes header length, a JSON object {path: {dtype, shape, data_offsets}},
 * data. */
#include "runtime/exec/ckpt/weights.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are little-endian and read as they are");

enum { HEAD_LIMIT = 100 << 20, MAX_AXES = 8, PIECE = 16 << 10 /* elements converted at a time */ };

typedef struct {
  char *path;
  ZkElem elem; /* ZK_NONE: only its name is known */
  char dtype[12];
  int nshape;
  int64_t shape[MAX_AXES];
  uint64_t n, begin, end; /* elements; bytes of the file */
} Tensor;

struct ZxWeights {
  char *name; /* of the file, for messages */
  int fd;
  bool write;
  uint64_t count;
  Tensor *tensor; /* by path */
};

/* ---- numbers ---- */
const ZkElem zx_file_elems[ZX_FILE_ELEMS] = {ZK_F32, ZK_BF16, ZK_F16};

bool zx_is_file_elem(ZkElem e) {
  bool is = false;
  for (int i = 0; i < ZX_FILE_ELEMS; i++) is |= e == zx_file_elems[i];
  return is;
}

int64_t zx_as(ZkElem as, const float *x, uint64_t n, void *out) {
  uint16_t *half = out;
  int64_t bad = -1;
  if (as == ZK_F32) memcpy(out, x, zk_bytes(as, n));
  for (uint64_t i = 0; i < n && as != ZK_F32; i++) {
    half[i] = as == ZK_BF16 ? zb_f32_to_bf16(x[i]) : zb_f32_to_f16(x[i]);
    uint16_t infinite = as == ZK_BF16 ? 0x7f80 : 0x7c00;
    if (bad < 0 && (half[i] & 0x7fff) == infinite && isfinite(x[i])) bad = (int64_t)i;
  }
  return bad;
}

/* Returns bytes per element of a dtype, 0 if it is not known; and its format, ZK_NONE if only other programs
 * have it. */
static uint64_t dtype_bytes(const char *dtype, ZkElem *elem) {
  static const struct {
    const char *name;
    uint64_t bytes;
  } others[] = {{"I64", 8},  {"I16", 2},     {"I8", 1},      {"U64", 8},
                {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (int e = 0; e < ZK_ELEMS; e++)
    if (zk_elem_info[e].file && !strcmp(zk_elem_info[e].file, dtype))
      return zk_plain_bytes(*elem = (ZkElem)e);
  *elem = ZK_NONE;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strcmp(others[i].name, dtype)) return others[i].bytes;
  return 0;
}

/* "[3, 4]" */
static const char *shape_text(char buf[192], const int64_t *shape, int n) {
  int at = snprintf(buf, 192, "[");
  for (int i = 0; i < n; i++)
    at += snprintf(buf + at, 192 - (size_t)at, "%s%" PRId64, i ? ", " : "", shape[i]);
  snprintf(buf + at, 192 - (size_t)at, "]");
  return buf;
}

/* ---- making a file ---- */
/* A header's length, and the beginning of a JSON object. */
static bool is_weights(const uint8_t *head, size_t n) {
  uint64_t len = UINT64_MAX;
  if (n >= 9) memcpy(&len, head, 8);
  return len <= HEAD_LIMIT && head[8] == '{';
}

bool zx_weights_head_of(ZbText *t, const ZxFileTensor *tensors, size_t n, uint64_t align, uint64_t *total,
                        ZbErr *err) {
  uint64_t at = 0;
  ZbJson j = {.text = t};
  zb_json_object(&j, NULL);
  zb_json_object(&j, "__metadata__");
  zb_json_string(&j, "format", "pt");
  zb_json_end(&j);
  for (size_t i = 0; i < n; i++) {
    const ZxTensorInfo *x = &tensors[i].info;
    uint64_t bytes = tensors[i].bytes;
    ZB_ASSERT(x->nshape <= MAX_AXES);
    for (const char *s = x->path; *s; s++) ZB_ASSERT(*s > 31 && *s < 127 && *s != '"' && *s != '\\');
    zb_json_object(&j, x->path);
    zb_json_string(&j, "dtype", tensors[i].dtype);
    zb_json_list(&j, "shape");
    for (int k = 0; k < x->nshape; k++) {
      zb_json_int(&j, NULL, x->shape[k]);
      if (x->shape[k] < 0 || !zb_mul_u64(bytes, (uint64_t)x->shape[k], &bytes))
        return zb_fail(err, NULL, "tensor '%s' is too large to be written", zb_show(x->path));
    }
    zb_json_end(&j);
    zb_json_list(&j, "data_offsets");
    zb_json_count(&j, NULL, at);
    if (!zb_add_u64(at, bytes, &at) || at > INT64_MAX / 2)
      return zb_fail(err, NULL, "tensor '%s' is too large to be written", zb_show(x->path));
    zb_json_count(&j, NULL, at);
    zb_json_end(&j);
    zb_json_end(&j);
  }
  zb_json_end(&j);
  while ((t->len + 8) % align) zb_text_put(t, " ", 1);
  if (t->len > HEAD_LIMIT)
    return zb_fail(err, NULL, "the header of %zu tensors is too large for safetensors", n);
  *total = 8 + t->len + at;
  return true;
}

bool zx_weights_head_as(ZbText *t, const ZxTensorInfo *tensors, size_t n, ZkElem as, uint64_t align,
                        uint64_t *total, ZbErr *err) {
  ZxFileTensor *all = calloc(n + 1, sizeof *all);
  if (!all) zb_out_of_memory((n + 1) * sizeof *all);
  for (size_t i = 0; i < n; i++)
    all[i] = (ZxFileTensor){tensors[i], zk_elem_info[as].file, zk_plain_bytes(as)};
  bool ok = zx_weights_head_of(t, all, n, align, total, err);
  free(all);
  return ok;
}

bool zx_weights_head(ZbText *t, const ZxTensorInfo *tensors, size_t n, uint64_t *total, ZbErr *err) {
  return zx_weights_head_as(t, tensors, n, ZK_F32, 64, total, err);
}

/* Room is taken now, so that a full disk is known before a long run's results are to be saved in it. */
static bool take_room(int fd, const char *name, uint64_t total, ZbErr *err) {
  int code = posix_fallocate(fd, 0, (off_t)total);
  if (code == EOPNOTSUPP || code == EINVAL) code = ftruncate(fd, (off_t)total) < 0 ? errno : 0;
  return code ? zb_out_failed(name, code, err) : true;
}

ZbOut *zx_weights_create(const char *path, const ZxTensorInfo *tensors, size_t n, ZbErr *err) {
  static const ZbKind kind = {"a safetensors file", is_weights};
  ZbText head = {0};
  uint64_t total = 0;
  ZbOut *out = zx_weights_head(&head, tensors, n, &total, err) ? zb_out_new(path, &kind, err) : NULL;
  uint64_t len = head.len;
  if (out &&
      !(take_room(zb_out_fd(out), path, total, err) && zb_write_at(zb_out_fd(out), path, &len, 8, 0, err) &&
        zb_write_at(zb_out_fd(out), path, head.s, len, 8, err))) {
    zb_out_discard(out);
    out = NULL;
  }
  zb_text_free(&head);
  return out;
}

/* ---- reading a header ---- */
static const char bad[] = "is it a safetensors file? copy or make it again";

/* A JSON number that is an integer from 0 to 2^53. */
static bool whole(const cJSON *x, uint64_t *out) {
  if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble <= 0x1p53)) return false;
  *out = (uint64_t)x->valuedouble;
  return (double)*out == x->valuedouble;
}

/* One entry; `from` is where data begin and `size` where the file ends. */
static bool read_tensor(Tensor *t, const cJSON *x, uint64_t from, uint64_t size, const char *name,
                        ZbErr *err) {
  const cJSON *dtype = NULL, *shape = NULL, *place = NULL;
  t->path = strdup(x->string);
  if (!t->path) zb_out_of_memory(0);
  for (const cJSON *k = x->child; k; k = k->next) {
    if (!strcmp(k->string ? k->string : "", "dtype")) dtype = k;
    else if (!strcmp(k->string ? k->string : "", "shape")) shape = k;
    else if (!strcmp(k->string ? k->string : "", "data_offsets")) place = k;
  }
  uint64_t bytes, part;
  if (!cJSON_IsString(dtype) || !(bytes = dtype_bytes(dtype->valuestring, &t->elem)))
    return zb_fail(err, bad, "%s: tensor '%s' has no known dtype", name, zb_show(t->path));
  snprintf(t->dtype, sizeof t->dtype, "%s", dtype->valuestring);
  t->n = 1;
  if (!cJSON_IsArray(shape)) return zb_fail(err, bad, "%s: tensor '%s' has no shape", name, zb_show(t->path));
  for (const cJSON *k = shape->child; k; k = k->next) {
    if (t->nshape == MAX_AXES)
      return zb_fail(err, NULL, "%s: tensor '%s' has more than %d axes", name, zb_show(t->path), MAX_AXES);
    if (!whole(k, &part) || !zb_mul_u64(t->n, part, &t->n))
      return zb_fail(err, bad, "%s: tensor '%s' has an impossible shape", name, zb_show(t->path));
    t->shape[t->nshape++] = (int64_t)part;
  }
  if (!zb_mul_u64(t->n, bytes, &bytes))
    return zb_fail(err, bad, "%s: tensor '%s' has an impossible shape", name, zb_show(t->path));
  const cJSON *first = cJSON_IsArray(place) ? place->child : NULL;
  if (!first || !first->next || first->next->next || !whole(first, &t->begin) || !whole(first->next, &t->end))
    return zb_fail(err, bad, "%s: tensor '%s' has no data_offsets", name, zb_show(t->path));
  if (t->begin > t->end || t->end > size - from)
    return zb_fail(err, "the file is truncated or altered",
                   "%s: tensor '%s' lies outside of the file: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64,
                   name, zb_show(t->path), t->begin, t->end, size - from);
  if (t->end - t->begin != bytes)
    return zb_fail(err, bad, "%s: tensor '%s' has %" PRIu64 " bytes, its shape takes %" PRIu64, name,
                   zb_show(t->path), t->end - t->begin, bytes);
  t->begin += from;
  t->end += from;
  return true;
}

static int by_path(const void *a, const void *b) {
  return strcmp(((const Tensor *)a)->path, ((const Tensor *)b)->path);
}
static int by_place(const void *a, const void *b) {
  const Tensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end < y->end ? -1 : x->end > y->end;
}

/* The format wants all data to be some tensor's, and in a row: a file with a byte too many would be read with
 * all values behind it shifted. Sorts by place. */
static bool check_places(ZxWeights *w, uint64_t from, uint64_t size, ZbErr *err) {
  qsort(w->tensor, w->count, sizeof *w->tensor, by_place);
  uint64_t at = from;
  for (uint64_t i = 0; i <= w->count; i++) {
    const Tensor *t = i < w->count ? &w->tensor[i] : NULL;
    uint64_t next = t ? t->begin : size;
    if (next < at)
      return zb_fail(err, bad, "%s: tensors '%s' and '%s' overlap", w->name, zb_show(w->tensor[i - 1].path),
                     zb_show(t->path));
    if (next > at)
      return zb_fail(err, bad,
                     "%s: bytes %" PRIu64 " to %" PRIu64 " of its data are no tensor's; the data are %" PRIu64
                     " bytes",
                     w->name, at - from, next - from, size - from);
    if (t) at = t->end;
  }
  return true;
}

static bool read_tensors(ZxWeights *w, const cJSON *root, uint64_t from, uint64_t size, ZbErr *err) {
  uint64_t n = 0;
  for (const cJSON *x = root->child; x; x = x->next) n++;
  w->tensor = calloc(n ? n : 1, sizeof *w->tensor);
  if (!w->tensor) zb_out_of_memory(0);
  for (const cJSON *x = root->child; x; x = x->next) {
    if (x->string && !strcmp(x->string, "__metadata__")) continue;
    if (!cJSON_IsObject(x) || !x->string)
      return zb_fail(err, bad, "%s: an entry of its header is not a tensor", w->name);
    if (!read_tensor(&w->tensor[w->count++], x, from, size, w->name, err)) return false;
  }
  if (!check_places(w, from, size, err)) return false;
  qsort(w->tensor, w->count, sizeof *w->tensor, by_path);
  for (uint64_t i = 1; i < w->count; i++)
    if (!strcmp(w->tensor[i].path, w->tensor[i - 1].path))
      return zb_fail(err, bad, "%s: tensor '%s' appears twice", w->name, zb_show(w->tensor[i].path));
  return true;
}

static bool read_head(ZxWeights *w, uint64_t size, ZbErr *err) {
  uint64_t len;
  if (size < 8)
    return zb_fail(err, bad, "%s is not a safetensors file: it has %" PRIu64 " bytes", w->name, size);
  if (!zb_read_at(w->fd, w->name, &len, 8, 0, err)) return false;
  if (len > HEAD_LIMIT || len > size - 8)
    return zb_fail(err, bad,
                   "%s is not a safetensors file, or truncated: a header of %" PRIu64 " bytes in %" PRIu64,
                   w->name, len, size);
  char *text = malloc(len);
  if (!text && len) zb_out_of_memory(len);
  ZbErr why;
  bool ok = zb_read_at(w->fd, w->name, text, len, 8, err);
  size_t n = len;
  while (ok && n && !text[n - 1]) n--; /* some writers pad with NULs */
  cJSON *root = ok ? zb_json_parse(text, n, ZB_JSON_NAMED, &why) : NULL;
  if (ok && !root) ok = zb_fail(err, bad, "%s, header: %s", w->name, why.text);
  if (ok && !cJSON_IsObject(root)) ok = zb_fail(err, bad, "%s: its header is not a JSON object", w->name);
  ok = ok && read_tensors(w, root, 8 + len, size, err);
  cJSON_Delete(root);
  free(text);
  return ok;
}

ZxWeights *zx_weights_open(const char *path, bool write, ZbErr *err) {
  ZxWeights *w = calloc(1, sizeof *w);
  uint64_t size;
  if (!w || !(w->name = strdup(zb_show(path)))) zb_out_of_memory(0);
  w->write = write;
  w->fd = zb_open_file(path, write, &size, err);
  if (w->fd >= 0 && read_head(w, size, err)) return w;
  zx_weights_close(w, NULL);
  return NULL;
}

uint64_t zx_weights_count(const ZxWeights *w) { return w->count; }

/* ---- tensors ---- */
static int64_t not_found(const ZxWeights *w, const char *path, ZbErr *err) {
  const char **names = calloc(w->count ? w->count : 1, sizeof *names);
  if (!names) zb_out_of_memory(0);
  for (uint64_t i = 0; i < w->count; i++) names[i] = w->tensor[i].path;
  const char *near = zb_nearest(path, names, w->count);
  char help[200] = "is it the file of another model?";
  if (near) snprintf(help, sizeof help, "the nearest name in it is '%.150s'", zb_show(near));
  zb_fail(err, help, "%s has no tensor '%s'; it has %" PRIu64, w->name, zb_show(path), w->count);
  free(names);
  return -1;
}

int64_t zx_weights_at(const ZxWeights *w, const char *path) {
  Tensor key = {.path = (char *)path};
  const Tensor *t = bsearch(&key, w->tensor, w->count, sizeof *w->tensor, by_path);
  return t ? t - w->tensor : -1;
}

const char *zx_weights_path(const ZxWeights *w, int64_t i) { return w->tensor[i].path; }

bool zx_shape_is(const char *file, const ZxTensorInfo *t, const ZxTensorInfo *want, const char *whose,
                 const char *help, ZbErr *err) {
  char found[192], expected[192];
  if (t->nshape == want->nshape && !memcmp(t->shape, want->shape, sizeof *t->shape * (size_t)t->nshape))
    return true;
  return zb_fail(err, help, "%s: tensor '%s' has shape %s; %s wants %s", zb_show(file), zb_show(t->path),
                 shape_text(found, t->shape, t->nshape), whose,
                 shape_text(expected, want->shape, want->nshape));
}

ZxTensorInfo zx_weights_info(const ZxWeights *w, int64_t i) {
  const Tensor *t = &w->tensor[i];
  ZxTensorInfo out = {.path = t->path, .nshape = t->nshape};
  memcpy(out.shape, t->shape, sizeof *t->shape * (size_t)t->nshape);
  return out;
}

const char *zx_weights_dtype(const ZxWeights *w, int64_t i) { return w->tensor[i].dtype; }

bool zx_weights_fits(const ZxWeights *w, int64_t i, const ZxTensorInfo *want, ZbErr *err) {
  const Tensor *t = &w->tensor[i];
  ZxTensorInfo info = zx_weights_info(w, i);
  if (!zx_is_file_elem(t->elem))
    return zb_fail(err,
                   "convert it to F32; if it is quantized, the config.json beside must say how, by "
                   "quantization_config",
                   "%s: tensor '%s' has dtype %s; F32, BF16 and F16 can be read", w->name, zb_show(t->path),
                   t->dtype);
  return zx_shape_is(w->name, &info, want, "the model", "was it saved with other sizes (-D)?", err);
}

int64_t zx_weights_find(const ZxWeights *w, const ZxTensorInfo *want, ZbErr *err) {
  int64_t at = zx_weights_at(w, want->path);
  if (at < 0) return not_found(w, want->path, err);
  return zx_weights_fits(w, at, want, err) ? at : -1;
}

bool zx_weights_read(const ZxWeights *w, int64_t i, uint64_t at, uint64_t n, float *out, ZbErr *err) {
  ZB_ASSERT(i >= 0 && (uint64_t)i < w->count);
  const Tensor *t = &w->tensor[i];
  ZB_ASSERT(zx_is_file_elem(t->elem) && at <= t->n && n <= t->n - at);
  if (t->elem == ZK_F32)
    return zb_read_at(w->fd, w->name, out, zk_bytes(ZK_F32, n), t->begin + zk_bytes(ZK_F32, at), err);
  uint16_t piece[PIECE];
  for (uint64_t done = 0; done < n;) {
    uint64_t m = n - done < PIECE ? n - done : PIECE;
    if (!zb_read_at(w->fd, w->name, piece, 2 * m, t->begin + 2 * (at + done), err)) return false;
    for (uint64_t k = 0; k < m; k++)
      out[done + k] = t->elem == ZK_BF16 ? zb_bf16_to_f32(piece[k]) : zb_f16_to_f32(piece[k]);
    done += m;
  }
  return true;
}

void zx_weights_ahead(const ZxWeights *w, int64_t i) {
  enum { MORE = 64 << 20 };
  const Tensor *t = &w->tensor[i];
  posix_fadvise(w->fd, (off_t)t->begin, (off_t)(t->end - t->begin) + MORE, POSIX_FADV_WILLNEED);
}

bool zx_weights_bytes(const ZxWeights *w, int64_t i, uint64_t at, uint64_t n, void *out, ZbErr *err) {
  ZB_ASSERT(i >= 0 && (uint64_t)i < w->count);
  const Tensor *t = &w->tensor[i];
  ZB_ASSERT(at <= t->end - t->begin && n <= t->end - t->begin - at);
  return zb_read_at(w->fd, w->name, out, n, t->begin + at, err);
}

bool zx_weights_write(ZxWeights *w, int64_t i, uint64_t at, uint64_t n, const float *in, ZbErr *err) {
  ZB_ASSERT(w->write && i >= 0 && (uint64_t)i < w->count);
  const Tensor *t = &w->tensor[i];
  ZB_ASSERT(t->elem == ZK_F32 && at <= t->n && n <= t->n - at);
  return zb_write_at(w->fd, w->name, in, zk_bytes(ZK_F32, n), t->begin + zk_bytes(ZK_F32, at), err);
}

bool zx_weights_close(ZxWeights *w, ZbErr *err) {
  if (!w) return true;
  bool ok = true;
  if (w->write && fsync(w->fd) < 0) ok = zb_out_failed(w->name, errno, err);
  if (w->fd >= 0 && close(w->fd) < 0 && ok && w->write) ok = zb_out_failed(w->name, errno, err);
  for (uint64_t i = 0; i < w->count; i++) free(w->tensor[i].path);
  free(w->tensor);
  free(w->name);
  free(w);
  return ok;
}
