/* What kernels of steps of generation share: whose a token is and where, and runs of elements that go from one view
 * to another. The tokens of a sequence are neighbours, in order. */
#ifndef ZUG_KERNELS_CUDA_STEPS_CUH
#define ZUG_KERNELS_CUDA_STEPS_CUH

#include "kernels/cuda/common.cuh"

/* ---- tokens -------------------------------------------------------------------------------------------- */
typedef struct {
  const int *sequence, *position;
  long long by_sequence, by_position; /* strides of tokens */
  int n;
} Tokens;

/* Returns what a call's operands say of tokens; without positions, if they are NULL. */
static inline Tokens tokens_of(const ZkView *sequence, const ZkView *position, uint16_t token) {
  Tokens t = {};
  ZB_ASSERT(sequence->elem == ZK_I32 && (!position || position->elem == ZK_I32));
  t.sequence = (const int *)sequence->data, t.by_sequence = zkc_stride(sequence, token);
  t.n = (int)zkc_size(sequence, token);
  if (!position) return t;
  t.position = (const int *)position->data, t.by_position = zkc_stride(position, token);
  return t;
}

/* Returns the sequence of a token; below 0: nobody's. */
ZK_DEVICE int sequence_at(const Tokens &t, long long token) { return t.sequence[token * t.by_sequence]; }
ZK_DEVICE int position_at(const Tokens &t, long long token) { return t.position[token * t.by_position]; }
/* Says whether a token is of the same sequence as the one before it; nobody's tokens are each alone. */
ZK_DEVICE bool goes_on(const Tokens &t, long long token, int sequence) {
  return token > 0 && sequence >= 0 && sequence_at(t, token - 1) == sequence;
}

/* ---- runs ------------------------------------------------------------------------------------------------
 * What one token (a row, a tap) has, as units of 16 bytes where all views lie so, else of an element. View 0 is
 * written, one of the others is read. */
enum { RUN_VIEWS = 3 };
typedef struct {
  void *p[RUN_VIEWS];
  int elem[RUN_VIEWS], width; /* elements of a unit */
  ZkcNest rest;
  ZkcRun run;
  ZkcUnits places; /* points of the rest, for each token */
  ZkcUnits units;  /* units of the run, for each of these */
} Runs;

/* Returns the runs of the axes of v[0] that are not among `ax`; `beside` has n strides by which runs are apart along
 * those that are. */
static inline Runs runs_of(const ZkView *const *v, int views, const uint16_t *ax, int nax, long long points,
                           const int64_t *beside, int n) {
  Runs r = {};
  int64_t bytes = (int64_t)zk_plain_bytes((ZkElem)v[0]->elem), each = 16 / bytes;
  r.rest = zkc_nest_run(v, views, ax, nax, false, &r.run);
  bool wide = r.run.n % each == 0;
  for (int i = 0; i < views; i++) {
    r.p[i] = v[i]->data, r.elem[i] = v[i]->elem;
    wide = wide && v[i]->elem == v[0]->elem && zkc_aligned(v[i], &r.rest, i, r.run.stride[i]);
  }
  for (int i = 0; i < n; i++) wide = wide && beside[i] * bytes % 16 == 0;
  r.width = wide ? (int)each : 1;
  r.places = zkc_units(points, r.rest.count);
  r.units = zkc_units(r.places.total, r.run.n / r.width);
  ZB_ASSERT(r.places.total < (int64_t)1 << 32);
  return r;
}

/* Returns whose unit u is, and where it is from the beginning of that token's, in each view. */
ZK_DEVICE unsigned seek_run(const Runs &r, long long u, long long (&off)[RUN_VIEWS]) {
  long long at, place;
  unsigned point = zkc_row(r.places, zkc_row(r.units, u, at), place);
  zkc_seek(r.rest, (unsigned)place, off);
#pragma unroll
  for (int v = 0; v < RUN_VIEWS; v++) off[v] += at * r.width * r.run.stride[v];
  return point;
}

/* Moves a unit from view v: the same bits, where types are the same. */
ZK_DEVICE void move_run(const Runs &r, int v, long long to, long long from) {
  int size = r.elem[0] == ZK_BF16 ? 2 : 4;
  if (r.width > 1) zk_store16((char *)r.p[0] + to * size, zk_load16((const char *)r.p[v] + from * size));
  else if (r.elem[0] != r.elem[v]) zk_store(r.p[0], r.elem[0], to, zk_load(r.p[v], r.elem[v], from));
  else if (size == 2) ((unsigned short *)r.p[0])[to] = ((const unsigned short *)r.p[v])[from];
  else ((unsigned *)r.p[0])[to] = ((const unsigned *)r.p[v])[from];
}

/* Stores a unit of equal numbers. */
ZK_DEVICE void fill_run(const Runs &r, long long to, float x) {
  for (int i = 0; i < r.width; i++) zk_store(r.p[0], r.elem[0], to + i, x);
}

#endif
