/* Codes of files as f32: they are read a few rows at a time, unpacked to bytes, and these get their zero
 * points and scales. Nothing here knows who published them; quantized.c does. */
#include "runtime/exec/hub/coded.h"

#include <math.h>
#include <stdlib.h>

enum { AHEAD = 1 << 16 /* bytes read at once, or a row */, PART = 512 /* numbers decoded at once */ };

/* ---- what is read ---- */
typedef bool Fetch(const void *of, uint64_t at, uint64_t n, void *out, ZbErr *err);

/* Returns n words from `first` of a row: those that are there, or what is read now. A whole row brings those
 * behind it up to `last`. A matrix has `cols` words of `size` bytes a row. */
static const void *seen(ZxSeen *s, Fetch *fetch, const void *of, int64_t cols, size_t size, int64_t row,
                        int64_t last, int64_t first, int64_t n, ZbErr *err) {
  bool there = row >= s->row && row < s->row + s->rows && first >= s->first && first + n <= s->first + s->n;
  if (!there) {
    int64_t rows = first == 0 && n == cols ? AHEAD / (int64_t)(size * (size_t)n) : 1;
    if (rows > last - row + 1) rows = last - row + 1;
    if (rows < 1) rows = 1;
    size_t bytes = size * (size_t)n * (size_t)rows;
    s->rows = 0;
    if (bytes > s->room) {
      free(s->at);
      if (!(s->at = malloc(bytes))) zb_out_of_memory(bytes);
      s->room = bytes;
    }
    if (!fetch(of, (uint64_t)(row * cols + first), (uint64_t)(n * rows), s->at, err)) return NULL;
    *s = (ZxSeen){s->at, s->room, row, rows, first, n};
  }
  return (const char *)s->at + size * (size_t)((row - s->row) * s->n + first - s->first);
}

void zx_decoder_free(ZxDecoder *d) {
  free(d->code.at);
  free(d->zero.at);
  free(d->factor.at);
}

/* ---- packed numbers ---- */
static size_t word_bytes(const ZxPacked *p) { return (size_t)(p->bits * p->each / 8); }

static bool fetch_words(const void *of, uint64_t at, uint64_t n, void *out, ZbErr *err) {
  const ZxPacked *p = of;
  size_t size = word_bytes(p);
  return zx_weights_bytes(p->file, p->tensor, at * size, n * size, out, err);
}

/* Returns the words that have numbers first .. first + n of a row, and perhaps those of rows up to `last`. */
static const uint8_t *words(const ZxPacked *p, ZxSeen *s, int64_t row, int64_t last, int64_t first, int64_t n,
                            ZbErr *err) {
  int64_t cols = p->down ? p->cols : (p->cols + p->each - 1) / p->each, from = first, to = first + n;
  if (p->down) row /= p->each, last /= p->each;
  else from = first / p->each, to = (first + n - 1) / p->each + 1;
  return seen(s, fetch_words, p, cols, word_bytes(p), row, last, from, to - from, err);
}

static uint32_t word(const uint8_t *at, int64_t i, size_t size) {
  uint32_t w;
  if (size == 1) return at[i];
  memcpy(&w, at + 4 * i, 4);
  return w;
}

/* Unpacks numbers at .. at + n of a row; `from` are words of which the first has number `first`. */
static void unpack(const ZxPacked *p, const uint8_t *from, int64_t row, int64_t first, int64_t at, int64_t n,
                   uint8_t *out) {
  size_t size = word_bytes(p);
  uint32_t mask = (1u << p->bits) - 1;
  if (p->each == 1) {
    memcpy(out, from + at - first, (size_t)n);
    return;
  }
  if (p->down) {
    int shift = p->place[row % p->each] * p->bits;
    for (int64_t k = 0; k < n; k++) out[k] = (uint8_t)(word(from, at - first + k, size) >> shift & mask);
    return;
  }
  int64_t skipped = first / p->each, k = 0;
  while (k < n) {
    int64_t i = (at + k) % p->each, w = (at + k) / p->each - skipped;
    uint32_t bits = word(from, w, size);
    for (; i < p->each && k < n; i++) out[k++] = (uint8_t)(bits >> p->place[i] * p->bits & mask);
  }
}

/* ---- factors ---- */
static bool fetch_factors(const void *of, uint64_t at, uint64_t n, void *out, ZbErr *err) {
  const ZxFactors *f = of;
  float *x = out;
  if (f->coded) {
    ZxDecoder d = {0};
    bool ok = zx_coded_read(f->coded, &d, at, n, x, err);
    zx_decoder_free(&d);
    if (!ok) return false;
  } else if (f->powers) {
    uint8_t *e = (uint8_t *)(x + n) - n; /* the last of the room: they are taken from the front */
    if (!zx_weights_bytes(f->file, f->tensor, at, n, e, err)) return false;
    for (uint64_t i = 0; i < n; i++) {
      int power = e[i];
      x[i] = power == 255 ? NAN : ldexpf(1, power - 127);
    }
  } else if (!zx_weights_read(f->file, f->tensor, at, n, x, err)) return false;
  for (uint64_t i = 0; i < n && (f->times != 1 || f->plus != 0); i++) x[i] = x[i] * f->times + f->plus;
  return true;
}

/* ---- a row ---- */
typedef struct {
  const ZxCoded *c;
  int64_t row, first, n;      /* of elements that are decoded */
  int64_t group, group_first; /* row and first column of their factors */
  const uint8_t *code, *zero; /* words of these, from the first on */
  const float *factor;
} Row;

/* Returns what stands for 0 in group g of the row. */
static float zero_of(const Row *r, int64_t g) {
  const ZxCoded *c = r->c;
  uint8_t z;
  if (!r->zero) return (float)c->none;
  unpack(&c->zero, r->zero, r->group, r->group_first, g, 1, &z);
  return (float)((z + c->more) & ((1 << c->zero.bits) - 1));
}

ZB_WIDE static void scale_by_one(float *restrict x, int64_t n, float zero, float factor) {
  for (int64_t k = 0; k < n; k++) x[k] = (x[k] - zero) * factor;
}

ZB_WIDE static void scale_by_each(float *restrict x, int64_t n, const float *restrict zero,
                                  const float *restrict factor) {
  for (int64_t k = 0; k < n; k++) x[k] = (x[k] - zero[k]) * factor[k];
}

static void scale_groups(const Row *r, int64_t at, int64_t n, float *x) {
  const ZxCoded *c = r->c;
  for (int64_t k = 0, more; k < n; k += more) {
    int64_t g = (at + k) / c->across, end = (g + 1) * c->across - at;
    more = (end < n ? end : n) - k;
    scale_by_one(x + k, more, zero_of(r, g), r->factor[g - r->group_first]);
  }
}

/* Scales elements that have a factor and a zero point each. */
static void scale_columns(const Row *r, int64_t at, int64_t n, float *x) {
  const ZxCoded *c = r->c;
  uint8_t z[PART];
  float zero[PART];
  int mask = c->zero.file ? (1 << c->zero.bits) - 1 : 0;
  if (r->zero) unpack(&c->zero, r->zero, r->group, r->group_first, at, n, z);
  for (int64_t k = 0; k < n; k++) zero[k] = (float)(r->zero ? (z[k] + c->more) & mask : c->none);
  scale_by_each(x, n, zero, r->factor + (at - r->group_first));
}

static void decode(const Row *r, float *out) {
  const ZxCoded *c = r->c;
  for (int64_t k = 0; k < r->n; k += PART) {
    uint8_t code[PART];
    int64_t at = r->first + k, n = r->n - k < PART ? r->n - k : PART;
    unpack(&c->code, r->code, r->row, r->first, at, n, code);
    for (int64_t i = 0; i < n; i++) out[k + i] = c->value ? c->value[code[i]] : (float)code[i];
    if (c->across == 1) scale_columns(r, at, n, out + k);
    else scale_groups(r, at, n, out + k);
  }
}

/* Reads n elements of a row from `first`; `last`: the last row that this reader will want. */
static bool read_row(const ZxCoded *c, ZxDecoder *d, int64_t row, int64_t last, int64_t first, int64_t n,
                     float *out, ZbErr *err) {
  Row r = {.c = c, .row = row, .first = first, .n = n, .group = row / c->down};
  r.group_first = first / c->across;
  int64_t groups = (first + n - 1) / c->across + 1 - r.group_first, group_last = last / c->down;
  r.code = words(&c->code, &d->code, row, last, first, n, err);
  if (!r.code) return false;
  r.factor = seen(&d->factor, fetch_factors, &c->factor, c->factor.cols, sizeof(float), r.group, group_last,
                  r.group_first, groups, err);
  if (!r.factor) return false;
  if (c->zero.file && !(r.zero = words(&c->zero, &d->zero, r.group, group_last, r.group_first, groups, err)))
    return false;
  decode(&r, out);
  return true;
}

bool zx_coded_read(const ZxCoded *c, ZxDecoder *d, uint64_t at, uint64_t n, float *out, ZbErr *err) {
  if (!n) return true;
  int64_t last = (int64_t)(at + n - 1) / c->cols;
  for (uint64_t done = 0, more; done < n; done += more) {
    int64_t row = (int64_t)(at + done) / c->cols, first = (int64_t)(at + done) % c->cols;
    more = n - done < (uint64_t)(c->cols - first) ? n - done : (uint64_t)(c->cols - first);
    if (!read_row(c, d, row, last, first, (int64_t)more, out + done, err)) return false;
  }
  return true;
}

/* ---- order ---- */
void zx_coded_turn(const ZxCoded *c, ZxBox *b) {
  if (!c->turned) return;
  int64_t x = c->info.shape[c->info.nshape - 2], y = c->info.shape[c->info.nshape - 1], in_row = b->from % y;
  b->from = b->from - b->from % (x * y) + b->from % y * x + b->from / y % x;
  for (int a = 0; a < b->naxes; a++) {
    int64_t s = b->stride[a];
    if (b->count[a] <= 1 || s % (x * y) == 0) continue;
    b->stride[a] = s % y == 0 ? s / y : s * x;
    if (s % y) in_row += (b->count[a] - 1) * s;
  }
  ZB_ASSERT(in_row < y);
}
