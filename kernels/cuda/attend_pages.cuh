/* What the kernels of attend_pages and attend_own share: a call on the device, and what tokens see. */
#ifndef ZUG_KERNELS_CUDA_ATTEND_PAGES_CUH
#define ZUG_KERNELS_CUDA_ATTEND_PAGES_CUH

#include "kernels/cuda/steps.cuh"
extern "C" {
#include "kernels/attend.h"
}

enum { Q, K, V, O, BIAS, DOCS_Q, DOCS_K, SINK, LENGTH, VIEWS };

typedef struct {
  void *p[VIEWS];
  int elem[VIEWS];
  bool has[VIEWS], wide[2]; /* wide: keys, values can be loaded 16 bytes a time */
  ZkcNest heads, groups;    /* axes of q that keys have, and have not */
  Tokens tokens;
  long long by_token[VIEWS], by_feature[VIEWS], by_page[VIEWS], by_within[VIEWS], by_position;
  const int *table; /* NULL: keys are the sequence's own */
  long long table_sequence, table_entry, length_sequence;
  int H, W, within, most, window,
      part; /* features; positions of a page, of a sequence; part: of keys, where values are */
  float scale, cap;
  unsigned nparts, spans, total; /* groups are cut into parts; positions into spans; blocks' units */
  int span;
  float *left; /* [token, head, group][span][peak, sum, values] */
  /* Tokens of a tile of attend_pages_mma.cu, and how many of one sequence in it are left to that; 0: none. */
  int tile, many;
} AttendPages;

/* ---- what is seen -------------------------------------------------------------------------------------- */
typedef struct {
  int from, to;
} Seen;

/* Returns which keys a token sees, documents apart. */
ZK_DEVICE Seen seen_by(const AttendPages &a, long long token, int sequence) {
  if (sequence < 0) return {0, 0};
  if (a.table) {
    int last = position_at(a.tokens, token);
    return {a.window > 0 ? max(0, last - a.window + 1) : 0, last + 1};
  }
  if (!a.has[LENGTH]) return {0, a.most};
  return {0, ((const int *)a.p[LENGTH])[sequence * a.length_sequence]};
}

/* A token, with a head of keys and a group. */
ZK_DEVICE void seek(const AttendPages &a, unsigned token, unsigned head, unsigned group,
                    long long (&off)[VIEWS]) {
  long long g[VIEWS];
  zkc_seek(a.heads, head, off);
  zkc_seek(a.groups, group, g);
#pragma unroll
  for (int v = 0; v < VIEWS; v++) off[v] += g[v] + token * a.by_token[v];
}

/* Says whether a token is one of so many of its sequence in a tile that tensor cores have them. */
ZK_DEVICE bool among_many(const AttendPages &a, int token, int sequence) {
  if (!a.many || sequence < 0) return false;
  int first = token / a.tile * a.tile, end = min(first + a.tile, a.tokens.n), n = 1;
  for (int t = token - 1; t >= first && n < a.many && sequence_at(a.tokens, t) == sequence; t--) n++;
  for (int t = token + 1; t < end && n < a.many && sequence_at(a.tokens, t) == sequence; t++) n++;
  return n >= a.many;
}

/* Peak and sum before any key, in powers of two. */
ZK_DEVICE void begin(const AttendPages &a, long long sink, float *peak, float *sum) {
  *peak = a.has[SINK] ? zk_load(a.p[SINK], a.elem[SINK], sink) * 1.44269504f : (float)ZK_ATTEND_LOW;
  *sum = a.has[SINK] ? 1 : 0;
}

/* ---- attend_pages_mma.cu ------------------------------------------------------------------------------- */
/* Sets `tile` and `many` of a call that tensor cores can have tokens of: of bf16, with heads of up to 128 elements that
 * lie 16 bytes at a time, no bias and no documents. */
void zk_pages_mma_choose(AttendPages *a, const ZkView *q);
void zk_pages_mma(ZkCuda *cu, const ZkCall *call, const AttendPages &a);

#endif
