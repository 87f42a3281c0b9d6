/* A box of a tensor is read in the order in which it lies in the file, piece by piece, and put where its
 * elements belong. A piece has all of the axes that lie closest together, as far as they fit, and a part of
 * the next. */
#include "runtime/exec/hub/hub.h"

#include <stdlib.h>
#include <string.h>

enum {
  PIECE = 1 << 20, /* elements read at once */
  GAP = 4 << 10,   /* elements: to read so many more takes no longer than to begin anew */
};

typedef struct { /* an axis of the box, with more than one index */
  int64_t count, stride, step;
} Axis;

typedef struct {
  Axis axis[ZG_MAX_AXES]; /* the widest stride first */
  int n, inner;           /* axes from `inner` on are in a piece as a whole */
  int64_t span, part;     /* elements from the first of those to the last; of axis `inner - 1`: indices */
  float *out;
  int64_t size; /* of out */
} Walk;

static int wider_first(const void *a, const void *b) {
  const Axis *x = a, *y = b;
  return x->stride > y->stride ? -1 : x->stride < y->stride;
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

/* Elements x[i * stride], ... of axis `level` and those below it; `count` of this one. A box without axes is
 * one element of an axis of zeros. */
static void put(const Walk *w, int level, int64_t count, const float *x, int64_t to) {
  const Axis *a = &w->axis[level];
  if (level + 1 < w->n)
    for (int64_t i = 0; i < count; i++) put(w, level + 1, a[1].count, x + i * a->stride, to + i * a->step);
  else if (a->stride == 1 && a->step == 1 && to >= 0 && to <= w->size - count)
    memcpy(w->out + to, x, (size_t)count * sizeof *x);
  else
    for (int64_t i = 0; i < count; i++, to += a->step)
      if (to >= 0 && to < w->size) w->out[to] = x[i * a->stride];
}

typedef struct {
  const ZxWeights *file;
  int64_t tensor;
  float *room;
  ZbErr *err;
} Source;

/* Pieces of axis `level` and those below it, up to `inner`. */
static bool pieces(const Walk *w, const Source *s, int level, int64_t from, int64_t to) {
  if (level == w->inner) { /* only of a box that is one piece */
    if (!zx_weights_read(s->file, s->tensor, (uint64_t)from, (uint64_t)w->span, s->room, s->err))
      return false;
    put(w, level, level < w->n ? w->axis[level].count : 1, s->room, to);
    return true;
  }
  const Axis *a = &w->axis[level];
  for (int64_t i = 0, n; i < a->count; i += n) {
    n = 1;
    int64_t at = from + i * a->stride, place = to + i * a->step;
    if (level + 1 < w->inner) {
      if (!pieces(w, s, level + 1, at, place)) return false;
      continue;
    }
    n = a->count - i < w->part ? a->count - i : w->part;
    uint64_t all = (uint64_t)((n - 1) * a->stride + w->span);
    if (!zx_weights_read(s->file, s->tensor, (uint64_t)at, all, s->room, s->err)) return false;
    put(w, level, n, s->room, place);
  }
  return true;
}

bool zx_box_read(const ZxShards *s, uint32_t tensor, const ZxBox *b, float *out, uint64_t n, ZbErr *err) {
  Walk w = {.out = out, .size = (int64_t)n};
  for (int a = 0; a < b->naxes; a++) {
    if (b->count[a] <= 0) return true;
    if (b->count[a] > 1) w.axis[w.n++] = (Axis){b->count[a], b->stride[a], b->step[a]};
  }
  qsort(w.axis, (size_t)w.n, sizeof *w.axis, wider_first);
  divide(&w);
  size_t most = sizeof(float) * (size_t)((w.inner ? (w.part - 1) * w.axis[w.inner - 1].stride : 0) + w.span);
  Source from = {s->file[s->in[tensor]], s->at[tensor], malloc(most), err};
  if (!from.room) zb_out_of_memory(most);
  bool ok = pieces(&w, &from, 0, b->from, b->to);
  free(from.room);
  return ok;
}
