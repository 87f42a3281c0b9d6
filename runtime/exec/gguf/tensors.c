/* Tensors of a GGUF file as the hub has them: names, the order of rows, factors of norms. */
#include "runtime/exec/gguf/names.h"

typedef struct {
  ZxTensorInfo info;
  const ZxGgufTensor *is;
  uint64_t first; /* element there with which it begins: of an expert */
  int64_t head;   /* rows of a head whose pairs follow each other; 0: rows are in order */
  float plus;
} Own;

struct ZxGguf {
  ZxGgufFile f;
  Own *own;
  uint32_t n;
};

enum { MOST_EXPERTS = 4096 };

bool zx_is_gguf(const char *path) { return zb_ends(path, ".gguf"); }

/* ---- opening ---- */
/* Refuses a model whose parts are in several files. */
static bool is_whole(const ZxGgufFile *f, ZbErr *err) {
  double parts = zx_gguf_number(f, "split.count", 1);
  return parts <= 1 || zb_fail(err, "put them together: llama-gguf-split --merge FIRST.gguf OUT.gguf",
                               "%s is one of %g parts", zb_show(f->path), parts);
}

/* Finds how many rows a head has, if they are in another order. */
static bool find_head(const ZxGgufFile *f, const ZxFamily *of, Own *o, const char *name, ZbErr *err) {
  const char *part = strrchr(name, '.');
  bool q = part && part - name >= 6 && !memcmp(part - 6, "attn_q", 6),
       k = part && part - name >= 6 && !memcmp(part - 6, "attn_k", 6);
  if (!of->pairs || (!q && !k)) return true;
  int64_t heads = zx_gguf_count_of(f, of, "attention.head_count", 0, err);
  if (heads && k) heads = zx_gguf_count_of(f, of, "attention.head_count_kv", heads, err);
  if (!heads) return false;
  o->head = o->info.shape[0] / heads;
  return (o->head >= 2 && o->head % 2 == 0 && o->info.shape[0] % heads == 0) ||
         zb_fail(err, "is it a GGUF file? copy or make it again",
                 "%s: tensor '%s' of %lld rows has %lld heads", zb_show(f->path), zb_show(name),
                 (long long)o->info.shape[0], (long long)heads);
}

/* Adds a matrix for each expert. */
static bool add_experts(ZxGguf *g, const ZxFamily *of, const Own *all, const char *name, ZbErr *err) {
  int64_t n = zx_gguf_count_of(&g->f, of, "expert_count", 0, err);
  if (!n) return false;
  if (all->info.nshape != 3 || all->info.shape[0] != n || n > MOST_EXPERTS)
    return zb_fail(err, "is it a GGUF file? copy or make it again",
                   "%s: tensor '%s' is not one of %lld experts", zb_show(g->f.path), zb_show(name),
                   (long long)n);
  for (int64_t e = 0; e < n; e++) {
    Own o = {.is = all->is, .info.nshape = 2, .info.shape = {all->info.shape[1], all->info.shape[2]}};
    o.info.path = zx_gguf_hub_name(of, g->f.a, name, e);
    o.first = (uint64_t)(e * o.info.shape[0] * o.info.shape[1]);
    ZB_PUSH(g->f.a, g->own, g->n, o);
  }
  return true;
}

static bool add(ZxGguf *g, const ZxFamily *of, uint32_t i, ZbErr *err) {
  const char *name = g->f.names.name[i];
  if (!strcmp(name, "rope_freqs.weight")) return true; /* a matter of config.c */
  Own o = {.is = &g->f.tensor[i]};
  o.info.nshape = (int)o.is->naxes;
  for (int k = 0; k < o.info.nshape; k++) o.info.shape[k] = (int64_t)o.is->axis[o.info.nshape - 1 - k];
  if (zb_ends(name, "norm.weight")) o.plus = of->plus;
  if (zx_gguf_has_experts(of, name)) return add_experts(g, of, &o, name, err);
  o.info.path = zx_gguf_hub_name(of, g->f.a, name, 0);
  if (!find_head(&g->f, of, &o, name, err)) return false;
  ZB_PUSH(g->f.a, g->own, g->n, o);
  return true;
}

ZxGguf *zx_gguf_open(ZbArena *a, const char *path, ZbErr *err) {
  ZxGguf *g = ZB_NEW(a, ZxGguf);
  if (!zx_gguf_file_open(&g->f, a, path, err)) return NULL;
  const ZxFamily *of = is_whole(&g->f, err) ? zx_gguf_family(&g->f, err) : NULL;
  bool ok = of != NULL;
  for (uint32_t i = 0; i < g->f.names.n && ok; i++) ok = add(g, of, i, err);
  if (ok) return g;
  zx_gguf_close(g);
  return NULL;
}

void zx_gguf_close(ZxGguf *g) {
  if (g) zx_gguf_file_close(&g->f);
}

uint32_t zx_gguf_count(const ZxGguf *g) { return g->n; }

ZxTensorInfo zx_gguf_info(const ZxGguf *g, uint32_t tensor, const char **format) {
  *format = g->own[tensor].is->format->name;
  return g->own[tensor].info;
}

/* ---- reading ---- */
/* Reads n elements from `at`, as they lie: whole blocks are decoded, and of the first and the last what is
 * wanted. */
static bool read_flat(const ZxGgufFile *f, const ZxGgufTensor *t, uint64_t at, uint64_t n, float *out,
                      ZbErr *err) {
  enum { AHEAD = 1 << 14 };
  const ZxFormat *is = t->format;
  uint8_t bytes[AHEAD];
  float block[ZX_GGUF_BLOCK];
  uint64_t each = is->elements, first = at / each, last = (at + n + each - 1) / each,
           most = AHEAD / is->bytes;
  for (uint64_t b = first, more; b < last; b += more) {
    more = last - b < most ? last - b : most;
    if (!zb_read_at(f->fd, f->path, bytes, more * is->bytes, t->at + b * is->bytes, err)) return false;
    for (uint64_t k = b; k < b + more; k++) {
      uint64_t lo = k * each < at ? at - k * each : 0,
               hi = (k + 1) * each > at + n ? at + n - k * each : each;
      float *to = out + (k * each + lo - at);
      bool whole = lo == 0 && hi == each;
      is->decode(bytes + (k - b) * is->bytes, whole ? to : block);
      if (!whole) memcpy(to, block + lo, (hi - lo) * sizeof *to);
    }
  }
  return true;
}

/* Returns where a row of the hub lies. */
static uint64_t row_of(const Own *o, uint64_t row) {
  uint64_t head = (uint64_t)o->head, i = row % head;
  return row - i + 2 * (i % (head / 2)) + i / (head / 2);
}

bool zx_gguf_read(const ZxGguf *g, uint32_t tensor, uint64_t at, uint64_t n, float *out, ZbErr *err) {
  const Own *o = &g->own[tensor];
  uint64_t cols = o->info.nshape > 1 ? (uint64_t)o->info.shape[o->info.nshape - 1] : 1;
  if (!o->head && !read_flat(&g->f, o->is, o->first + at, n, out, err)) return false;
  for (uint64_t done = 0, more; o->head && done < n; done += more) {
    uint64_t row = (at + done) / cols, first = (at + done) % cols;
    more = n - done < cols - first ? n - done : cols - first;
    if (!read_flat(&g->f, o->is, row_of(o, row) * cols + first, more, out + done, err)) return false;
  }
  for (uint64_t i = 0; i < n && o->plus != 0; i++) out[i] -= o->plus;
  return true;
}
