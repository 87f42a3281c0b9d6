/* The head of a GGUF file, front to back: values by key, then tensors by name. Lists stay where they are:
 * a vocabulary has megabytes that not every rank needs. */
#include "runtime/exec/gguf/file.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

enum {
  AHEAD = 1 << 16,      /* bytes read at once */
  MOST_NAME = 1 << 10,  /* bytes of a key, of a tensor's name */
  MOST_TEXT = 16 << 20, /* of a text */
  MOST_KEYS = 1 << 16,
  MOST_TENSORS = 1 << 18,
};
static const char broken[] = "is it a GGUF file? copy or make it again";

/* ---- reading front to back ---- */
typedef struct {
  const ZxGgufFile *f;
  uint64_t at;
  uint64_t lo, hi; /* bytes of the file that are in buf */
  uint8_t buf[AHEAD];
  ZbErr *err;
} Cursor;

static bool ends(const Cursor *c, uint64_t n, const char *what) {
  return zb_fail(c->err, broken,
                 "%s: its head ends in %s: byte %" PRIu64 " and %" PRIu64 " more, of %" PRIu64,
                 zb_show(c->f->path), what, c->at, n, c->f->size);
}

static bool take(Cursor *c, void *out, uint64_t n, const char *what) {
  if (n > c->f->size - c->at) return ends(c, n, what);
  for (uint64_t done = 0, more; done < n; done += more, c->at += more) {
    if (c->at < c->lo || c->at >= c->hi) {
      c->lo = c->at;
      c->hi = c->f->size - c->at < AHEAD ? c->f->size : c->at + AHEAD;
      if (!zb_read_at(c->f->fd, c->f->path, c->buf, c->hi - c->lo, c->lo, c->err)) return false;
    }
    more = c->hi - c->at < n - done ? c->hi - c->at : n - done;
    memcpy((char *)out + done, c->buf + (c->at - c->lo), more);
  }
  return true;
}

static bool skip(Cursor *c, uint64_t n, const char *what) {
  if (n > c->f->size - c->at) return ends(c, n, what);
  c->at += n;
  return true;
}

/* Takes a text of at most `most` bytes, in the arena; without NULs. */
static const char *text(Cursor *c, ZbArena *a, uint64_t most, const char *what) {
  uint64_t n;
  if (!take(c, &n, 8, what)) return NULL;
  if (n > c->f->size - c->at || n > most) {
    ends(c, n, what);
    return NULL;
  }
  char *s = zb_alloc(a, n + 1);
  if (!take(c, s, n, what)) return NULL;
  if (memchr(s, 0, n)) return zb_fail(c->err, broken, "%s: %s has a NUL", zb_show(c->f->path), what), NULL;
  return s;
}

/* ---- values ---- */
static const uint8_t type_bytes[ZX_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static double number_of(ZxGgufType type, const uint8_t *b) {
  union {
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    float f32;
    uint64_t u64;
    int64_t i64;
    double f64;
  } x;
  memcpy(&x, b, type_bytes[type]);
  switch (type) {
  case ZX_GGUF_U8:
  case ZX_GGUF_BOOL: return *b;
  case ZX_GGUF_I8: return x.i8;
  case ZX_GGUF_U16: return x.u16;
  case ZX_GGUF_I16: return x.i16;
  case ZX_GGUF_U32: return x.u32;
  case ZX_GGUF_I32: return x.i32;
  case ZX_GGUF_F32: return (double)x.f32;
  case ZX_GGUF_U64: return (double)x.u64;
  case ZX_GGUF_I64: return (double)x.i64;
  default: return x.f64;
  }
}

static bool skip_text(Cursor *c, const char *what) {
  uint64_t n;
  return take(c, &n, 8, what) && skip(c, n, what);
}

static bool read_list(Cursor *c, ZxValue *v, const char *key) {
  uint32_t item;
  if (!take(c, &item, 4, key) || !take(c, &v->n, 8, key)) return false;
  if (item >= ZX_GGUF_TYPES || item == ZX_GGUF_LIST)
    return zb_fail(c->err, broken,
                   "%s: items of list '%s' are of type %" PRIu32 ", which is not one of a list's",
                   zb_show(c->f->path), zb_show(key), item);
  v->item = (ZxGgufType)item;
  v->at = c->at;
  uint64_t each = item == ZX_GGUF_TEXT ? 8 : type_bytes[item];
  if (v->n > (c->f->size - c->at) / each) return ends(c, v->n, key);
  if (item != ZX_GGUF_TEXT) return skip(c, v->n * each, key);
  for (uint64_t i = 0; i < v->n; i++)
    if (!skip_text(c, key)) return false;
  return true;
}

static bool read_value(Cursor *c, ZxValue *v, const char *key) {
  uint32_t type;
  uint8_t b[8];
  if (!take(c, &type, 4, key)) return false;
  if (type >= ZX_GGUF_TYPES)
    return zb_fail(c->err, broken, "%s: '%s' is of type %" PRIu32 ", which is not known", zb_show(c->f->path),
                   zb_show(key), type);
  v->type = (ZxGgufType)type;
  if (type == ZX_GGUF_LIST) return read_list(c, v, key);
  if (type == ZX_GGUF_TEXT) {
    if (!take(c, &v->n, 8, key)) return false;
    v->at = c->at;
    return skip(c, v->n, key);
  }
  if (!take(c, b, type_bytes[type], key)) return false;
  v->number = number_of((ZxGgufType)type, b);
  return true;
}

static bool read_values(ZxGgufFile *f, Cursor *c, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    const char *key = text(c, f->a, MOST_NAME, "a key");
    ZxValue v = {0};
    if (!key || !read_value(c, &v, key)) return false;
    if (zb_names_find(&f->keys, key) != ZB_NO_NAME)
      return zb_fail(c->err, broken, "%s has the key '%s' twice", zb_show(f->path), zb_show(key));
    f->value = zb_grow(f->a, f->value, f->keys.n, sizeof *f->value);
    f->value[f->keys.n] = v;
    zb_names_add(f->a, &f->keys, key);
  }
  return true;
}

/* ---- tensors ---- */
static bool read_shape(Cursor *c, ZxGgufTensor *t, const char *name) {
  if (!take(c, &t->naxes, 4, name)) return false;
  if (t->naxes < 1 || t->naxes > 4)
    return zb_fail(c->err, broken, "%s: tensor '%s' has %" PRIu32 " axes", zb_show(c->f->path), zb_show(name),
                   t->naxes);
  t->elements = 1;
  for (uint32_t i = 0; i < t->naxes; i++) {
    if (!take(c, &t->axis[i], 8, name)) return false;
    if (!t->axis[i] || t->axis[i] > INT32_MAX || !zb_mul_u64(t->elements, t->axis[i], &t->elements))
      return zb_fail(c->err, broken, "%s: tensor '%s' has an impossible shape", zb_show(c->f->path),
                     zb_show(name));
  }
  return true;
}

static bool read_tensor(ZxGgufFile *f, Cursor *c) {
  ZxGgufTensor t = {0};
  uint32_t format;
  const char *name = text(c, f->a, MOST_NAME, "a tensor's name");
  if (!name || !read_shape(c, &t, name) || !take(c, &format, 4, name) || !take(c, &t.at, 8, name))
    return false;
  t.format = zx_gguf_format(format);
  if (!t.format || !t.format->decode) {
    const char *is = t.format ? t.format->name : zb_printf(f->a, "format %" PRIu32, format);
    return zb_fail(c->err, zb_printf(f->a, "take one of %s", zx_gguf_formats(f->a)),
                   "%s: tensor '%s' is in %s, which cannot be read", zb_show(f->path), zb_show(name), is);
  }
  if (t.axis[0] % t.format->elements)
    return zb_fail(c->err, broken,
                   "%s: rows of tensor '%s' have %" PRIu64 " elements, which are not whole blocks of %s",
                   zb_show(f->path), zb_show(name), t.axis[0], t.format->name);
  if (zb_names_find(&f->names, name) != ZB_NO_NAME)
    return zb_fail(c->err, broken, "%s has tensor '%s' twice", zb_show(f->path), zb_show(name));
  f->tensor = zb_grow(f->a, f->tensor, f->names.n, sizeof *f->tensor);
  f->tensor[f->names.n] = t;
  zb_names_add(f->a, &f->names, name);
  return true;
}

/* Makes of places behind the head places in the file. */
static bool place(ZxGgufFile *f, uint64_t head, ZbErr *err) {
  double align = zx_gguf_number(f, "general.alignment", 32);
  if (!(align >= 1 && align <= 1 << 20) || align != (double)(uint64_t)align ||
      ((uint64_t)align & ((uint64_t)align - 1)))
    return zb_fail(err, broken, "%s: general.alignment is not a power of two", zb_show(f->path));
  uint64_t from = zb_round_up(head, (uint64_t)align);
  for (uint32_t i = 0; i < f->names.n; i++) {
    ZxGgufTensor *t = &f->tensor[i];
    uint64_t bytes = t->elements / t->format->elements, end;
    if (t->at % (uint64_t)align || !zb_mul_u64(bytes, t->format->bytes, &bytes) ||
        !zb_add_u64(t->at, from, &t->at) || !zb_add_u64(t->at, bytes, &end) || end > f->size)
      return zb_fail(err, "the file is truncated or altered",
                     "%s: tensor '%s' lies outside of the file, which has %" PRIu64 " bytes",
                     zb_show(f->path), zb_show(f->names.name[i]), f->size);
  }
  return true;
}

static bool read_head(ZxGgufFile *f, Cursor *c) {
  struct {
    char magic[4];
    uint32_t version;
    uint64_t tensors, values;
  } h;
  if (f->size < sizeof h || !take(c, &h, sizeof h, "its beginning"))
    return f->size < sizeof h ? zb_fail(c->err, broken, "%s is not a GGUF file: it has %" PRIu64 " bytes",
                                        zb_show(f->path), f->size)
                              : false;
  if (memcmp(h.magic, "GGUF", 4))
    return zb_fail(c->err, broken, "%s is not a GGUF file, by its first bytes", zb_show(f->path));
  if (h.version != 2 && h.version != 3)
    return zb_fail(
        c->err, h.version & 0xffff ? "make it again with a llama.cpp of today" : "take the little-endian one",
        "%s: GGUF of version %" PRIu32 "; 2 and 3 can be read", zb_show(f->path), h.version);
  if (h.tensors > MOST_TENSORS || h.values > MOST_KEYS)
    return zb_fail(c->err, broken, "%s says that it has %" PRIu64 " tensors and %" PRIu64 " keys",
                   zb_show(f->path), h.tensors, h.values);
  if (!read_values(f, c, h.values)) return false;
  for (uint64_t i = 0; i < h.tensors; i++)
    if (!read_tensor(f, c)) return false;
  return place(f, c->at, c->err);
}

bool zx_gguf_file_open(ZxGgufFile *f, ZbArena *a, const char *path, ZbErr *err) {
  *f = (ZxGgufFile){.a = a, .path = path};
  f->fd = zb_open_file(path, false, &f->size, err);
  if (f->fd < 0) return false;
  Cursor *c = ZB_NEW(a, Cursor);
  c->f = f;
  c->err = err;
  if (read_head(f, c)) return true;
  zx_gguf_file_close(f);
  return false;
}

void zx_gguf_file_close(ZxGgufFile *f) {
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
}

/* ---- what others ask for ---- */
static const ZxValue *find(const ZxGgufFile *f, const char *key) {
  uint32_t i = zb_names_find(&f->keys, key);
  return i == ZB_NO_NAME ? NULL : &f->value[i];
}

double zx_gguf_number(const ZxGgufFile *f, const char *key, double usual) {
  const ZxValue *v = find(f, key);
  return !v ? usual : v->type == ZX_GGUF_TEXT || v->type == ZX_GGUF_LIST ? NAN : v->number;
}

const char *zx_gguf_string(const ZxGgufFile *f, const char *key, const char *usual, ZbErr *err) {
  const ZxValue *v = find(f, key);
  if (!v) return usual;
  if (v->type != ZX_GGUF_TEXT || v->n > MOST_TEXT)
    return zb_fail(err, broken, "%s: '%s' is not a text, or a long one", zb_show(f->path), zb_show(key)),
           NULL;
  char *s = zb_alloc(f->a, v->n + 1);
  if (!zb_read_at(f->fd, f->path, s, v->n, v->at, err)) return NULL;
  if (memchr(s, 0, v->n))
    return zb_fail(err, broken, "%s: '%s' has a NUL", zb_show(f->path), zb_show(key)), NULL;
  return s;
}

uint64_t zx_gguf_items(const ZxGgufFile *f, const char *key) {
  const ZxValue *v = find(f, key);
  return v && v->type == ZX_GGUF_LIST ? v->n : 0;
}

bool zx_gguf_list(const ZxGgufFile *f, const char *key, bool texts, ZxEachItem *each, void *ctx, ZbErr *err) {
  const ZxValue *v = find(f, key);
  if (!v) return true;
  if (v->type != ZX_GGUF_LIST || (v->item == ZX_GGUF_TEXT) != texts)
    return zb_fail(err, broken, "%s: '%s' is not a list of %s", zb_show(f->path), zb_show(key),
                   texts ? "texts" : "numbers");
  ZbArena *a = zb_arena_new();
  Cursor *c = ZB_NEW(a, Cursor);
  *c = (Cursor){.f = f, .at = v->at, .err = err};
  char room[MOST_NAME];
  bool ok = true;
  for (uint64_t i = 0; i < v->n && ok; i++) {
    ZxItem item = {.s = room};
    uint64_t n = 0;
    uint8_t b[8];
    ok = texts ? take(c, &n, 8, key) : take(c, b, type_bytes[v->item], key);
    if (ok && n > sizeof room)
      ok = zb_fail(err, broken, "%s: item %" PRIu64 " of '%s' has %" PRIu64 " bytes", zb_show(f->path), i,
                   zb_show(key), n);
    if (ok && texts) ok = take(c, room, n, key);
    item.n = (size_t)n;
    if (ok && !texts) item.number = number_of(v->item, b);
    ok = ok && each(ctx, i, &item);
  }
  zb_arena_free(a);
  return ok;
}
