/* A box of a tensor is read in the order in which it lies in the file, piece by piece, and put where its
 * elements belong. A piece has all of the axes that lie closest together, as far as they fit, and a part of
 * the next. What lies here as in the file is read to its place; else a piece is so small that a cache keeps
 * it until it is put, which is the longer way where rows become columns. */
#include "runtime/exec/hub/coded.h"

#include <stdlib.h>
#include <string.h>

enum {
  PIECE = 1 << 17, /* elements read at once */
  GAP = 4 << 10,   /* elements: to read so many more takes no longer than to begin anew */
};

typedef struct { /* an axis of the box, with more than one index */
  int64_t count, stride, step;
} Axis;

typedef struct {
  Axis axis[ZG_MAX_AXES]; /* the widest stride first */
  int n, inner;           /* axes from `inner` on are in a piece as a whole */
  int64_t span, part;     /* elements from the first of those to the last; of axis `inner - 1`: indices */
  int64_t from, to;       /* of its first element: in the file, here */
  float *out;
  int64_t size; /* of out */
} Walk;

/* ---- which pieces ---- */
static int wider_first(const void *a, const void *b) {
  const Axis *x = a, *y = b;
  return x->stride > y->stride ? -1 : x->stride < y->stride;
}

/* Makes one axis of two whose elements follow each other here as in the file. */
static void merge(Walk *w) {
  int n = 0;
  for (int i = 0; i < w->n; i++) {
    const Axis *x = &w->axis[i];
    Axis *wide = n ? &w->axis[n - 1] : NULL;
    if (wide && wide->stride == x->count * x->stride && wide->step == x->count * x->step)
      *wide = (Axis){wide->count * x->count, x->stride, x->step};
    else w->axis[n++] = *x;
  }
  w->n = n;
}

/* Takes a part of the widest axis that has as many indices. False: nothing is left. */
static bool take_part(Walk *w, int part, int parts) {
  int k = 0;
  for (int i = 1; i < w->n; i++)
    if (w->axis[k].count < parts && w->axis[i].count > w->axis[k].count) k = i;
  if (!w->n) return part == 0;
  Axis *x = &w->axis[k];
  int64_t each = (x->count + parts - 1) / parts, first = each * part;
  if (first >= x->count) return false;
  w->from += first * x->stride;
  w->to += first * x->step;
  x->count = x->count - first < each ? x->count - first : each;
  return true;
}

static void divide(Walk *w) {
  w->inner = w->n;
  w->span = w->part = 1;
  while (w->inner > 0) {
    const Axis *x = &w->axis[w->inner - 1];
    if (x->stride - w->span > GAP) return;
    int64_t all = (x->count - 1) * x->stride + w->span;
    if (all > PIECE) {
      w->part = (PIECE - w->span) / x->stride + 1;
      return;
    }
    w->span = all;
    w->inner--;
  }
}

/* ---- where they belong ---- */
/* Puts elements x[i * stride] of an axis. */
static void put_axis(const Walk *w, const Axis *a, int64_t count, const float *x, int64_t to) {
  if (a->stride == 1 && a->step == 1) {
    int64_t lo = to < 0 ? -to : 0, hi = w->size - to < count ? w->size - to : count;
    if (lo < hi) memcpy(w->out + to + lo, x + lo, (size_t)(hi - lo) * sizeof *x);
    return;
  }
  for (int64_t i = 0; i < count; i++, to += a->step)
    if (to >= 0 && to < w->size) w->out[to] = x[i * a->stride];
}

enum { SIDE = 4 };
typedef float Row __attribute__((vector_size(SIDE * sizeof(float)), aligned(4), may_alias));

/* Puts SIDE columns of rows x[r * stride]: they become rows, `step` apart. */
static void turn(const float *x, int64_t stride, int64_t rows, float *out, int64_t step) {
  int64_t r = 0;
  for (; r + SIDE <= rows; r += SIDE) {
    const float *from = x + r * stride;
    Row a = *(const Row *)from, b = *(const Row *)(from + stride), c = *(const Row *)(from + 2 * stride),
        d = *(const Row *)(from + 3 * stride);
    Row ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
        ba = __builtin_shufflevector(a, b, 2, 6, 3, 7), dc = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(Row *)(out + r) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(Row *)(out + r + step) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(Row *)(out + r + 2 * step) = __builtin_shufflevector(ba, dc, 0, 1, 4, 5);
    *(Row *)(out + r + 3 * step) = __builtin_shufflevector(ba, dc, 2, 3, 6, 7);
  }
  for (; r < rows; r++)
    for (int64_t k = 0; k < SIDE; k++) out[r + k * step] = x[r * stride + k];
}

/* Puts a matrix whose rows, `stride` apart, are columns here; rows of those are `step` apart. */
static void put_turned(const Walk *w, int64_t stride, int64_t rows, int64_t cols, int64_t step,
                       const float *x, int64_t to) {
  const Axis down = {rows, stride, 1};
  int64_t c = 0;
  while (c < cols) {
    int64_t at = to + c * step;
    if (step > 0 && c + SIDE <= cols && at >= 0 && at + (SIDE - 1) * step + rows <= w->size) {
      turn(x + c, stride, rows, w->out + at, step);
      c += SIDE;
    } else {
      put_axis(w, &down, rows, x + c++, at);
    }
  }
}

/* Puts elements x[i * stride], ... of axis `level` and those below it; `count` of this one. A box without
 * axes is one element of an axis of zeros. */
static void put(const Walk *w, int level, int64_t count, const float *x, int64_t to) {
  const Axis *a = &w->axis[level];
  if (level + 1 >= w->n) put_axis(w, a, count, x, to);
  else if (level + 2 == w->n && a[0].step == 1 && a[1].stride == 1)
    put_turned(w, a[0].stride, count, a[1].count, a[1].step, x, to);
  else
    for (int64_t i = 0; i < count; i++) put(w, level + 1, a[1].count, x + i * a->stride, to + i * a->step);
}

/* ---- reading ---- */
typedef struct {
  const ZxShards *files;
  uint32_t tensor;
  ZxDecoder decoder;
  size_t most; /* elements of a piece */
  float *room; /* NULL: not needed yet */
  bool *finite;
  ZbErr *err;
} Source;

static bool read_piece(Source *s, int64_t from, int64_t n, float *to) {
  if (!zx_shards_read(s->files, s->tensor, &s->decoder, (uint64_t)from, (uint64_t)n, to, s->err))
    return false;
  if (zb_not_finite(to, (uint64_t)n) >= 0) *s->finite = false;
  return true;
}

/* Reads a piece of `all` elements and puts it: `count` of axis `level`, and all of those below it. */
static bool take(const Walk *w, Source *s, int level, int64_t count, int64_t from, int64_t all, int64_t to) {
  int last = level + 1 < w->n && count == 1 ? level + 1 : level;
  const Axis *a = &w->axis[last];
  if (last + 1 == w->n && a->stride == 1 && a->step == 1) {
    int64_t lo = to < 0 ? -to : 0, hi = w->size - to < all ? w->size - to : all;
    return lo >= hi || read_piece(s, from + lo, hi - lo, w->out + to + lo);
  }
  if (!s->room && !(s->room = malloc(s->most * sizeof *s->room))) zb_out_of_memory(s->most * sizeof *s->room);
  if (!read_piece(s, from, all, s->room)) return false;
  put(w, level, count, s->room, to);
  return true;
}

/* Pieces of axis `level` and those below it, up to `inner`. */
static bool pieces(const Walk *w, Source *s, int level, int64_t from, int64_t to) {
  if (level == w->inner) /* only of a box that is one piece */
    return take(w, s, level, level < w->n ? w->axis[level].count : 1, from, w->span, to);
  const Axis *a = &w->axis[level];
  for (int64_t i = 0, n; i < a->count; i += n) {
    n = 1;
    int64_t at = from + i * a->stride, place = to + i * a->step;
    if (level + 1 < w->inner) {
      if (!pieces(w, s, level + 1, at, place)) return false;
      continue;
    }
    n = a->count - i < w->part ? a->count - i : w->part;
    if (!take(w, s, level, n, at, (n - 1) * a->stride + w->span, place)) return false;
  }
  return true;
}

bool zx_box_read_part(const ZxReading *r, int part, int parts, bool *finite, ZbErr *err) {
  const ZxPlace *stored = &r->files->at[r->tensor];
  ZxBox b = r->box;
  for (int a = 0; a < b.naxes; a++)
    if (b.count[a] <= 0) return true;
  if (stored->coded) zx_coded_turn(stored->coded, &b);
  Walk w = {.from = b.from, .to = b.to, .out = r->out, .size = (int64_t)r->n};
  for (int a = 0; a < b.naxes; a++)
    if (b.count[a] > 1) w.axis[w.n++] = (Axis){b.count[a], b.stride[a], b.step[a]};
  qsort(w.axis, (size_t)w.n, sizeof *w.axis, wider_first);
  merge(&w);
  if (!take_part(&w, part, parts)) return true;
  divide(&w);
  Source from = {.files = r->files, .tensor = r->tensor, .finite = finite, .err = err};
  from.most = (size_t)((w.inner ? (w.part - 1) * w.axis[w.inner - 1].stride : 0) + w.span);
  bool ok = pieces(&w, &from, 0, w.from, w.to);
  free(from.room);
  zx_decoder_free(&from.decoder);
  return ok;
}

bool zx_box_read(const ZxShards *s, uint32_t tensor, const ZxBox *b, float *out, uint64_t n, ZbErr *err) {
  bool finite;
  return zx_box_read_part(&(ZxReading){s, tensor, *b, out, n}, 0, 1, &finite, err);
}
