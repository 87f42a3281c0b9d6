/* Asking for weights before they are read, by invariant_rows.c and invariant_tiles.c. A core has only so many lines under way, and what it foresees by itself follows few streams: where several
 * rows are read side by side it falls behind. So lines are asked for into the second cache in the order in
 * which they lie, some rows before they are read. */
#ifndef ZUG_KERNELS_INVARIANT_AHEAD_H
#define ZUG_KERNELS_INVARIANT_AHEAD_H

#include "kernels/cpu/invariant.h"

enum { LINE = 64, FAR = 32 << 10 }; /* bytes: of a cache line; that are asked for behind those rows */

/* What is asked for next, in a run of memory; `left` runs come behind it. NULL: there is no more. */
typedef struct {
  const char *at, *end;
  int64_t left;
} Ahead;

ZK_INLINE void ask(Ahead *a, const int64_t lines) {
#pragma GCC unroll 32
  for (int64_t i = 0; i < lines; i++) __builtin_prefetch(a->at + LINE * i, 0, 2);
  a->at += LINE * lines;
}

/* Goes on with the next run, `apart` from the one that has been asked for, as far behind its beginning as
 * that one's end has been passed. */
ZK_INLINE void next_run(Ahead *a, int64_t bytes, int64_t apart) {
  while (a->at >= a->end && a->left-- > 0) a->at += apart - bytes, a->end += apart;
  if (a->at >= a->end) a->at = NULL;
}

/* Returns how to ask for rows behind those that are read first, `deep` side by side; asks for these if they are cold. */
ZK_INLINE Ahead rows_ahead(const ZkFewRows *x, int64_t bytes, int64_t deep) {
  int64_t row = x->n * bytes, apart = x->ldw * bytes,
          far = zk_min(deep + FAR / zk_max(1, row), x->k + x->next);
  for (int64_t i = 0; x->cold && i < far; i++)
    for (int64_t b = 0; b < row; b += LINE) __builtin_prefetch((const char *)x->w + i * apart + b, 0, 2);
  Ahead a = {(const char *)x->w + far * apart, NULL, x->k + x->next - far - 1};
  a.end = a.at + row;
  if (a.left < 0) a.at = NULL;
  return a;
}
ZK_INLINE void ask_rows(const ZkFewRows *x, Ahead *a, int64_t bytes, const int64_t lines) {
  if (!a->at) return;
  ask(a, lines);
  if (a->at >= a->end) next_run(a, x->n * bytes, x->ldw * bytes);
}

/* The same for columns along k: 16 more, neighbours in memory, while 16 are read. */
ZK_INLINE Ahead columns_ahead(const ZkFewColumns *x, int64_t bytes) {
  if (x->from > 0) return (Ahead){x->ahead, x->ahead_end, 15};
  if (!x->next) return (Ahead){0};
  Ahead a = {(const char *)x->w + 16 * x->ldw * bytes, NULL, 15};
  a.end = a.at + x->whole * bytes;
  return a;
}
ZK_INLINE void ask_columns(const ZkFewColumns *x, Ahead *a, int64_t bytes, const int64_t lines) {
  if (!a->at) return;
  ask(a, lines);
  if (a->at >= a->end) next_run(a, x->whole * bytes, x->ldw * bytes);
}

#endif
