/* Weights of a block into panels of f32. */
#include "kernels/cpu/invariant.h"
#include "kernels/cpu/packed.h"

#define AHEAD 16 /* rows of weights: no CPU foresees steps across rows */
#define SOME 256 /* columns, or elements of k, at once */

/* Columns lie side by side: a row of them for each k. */
static void pack_across(const ZkWeights *w, float *to, int64_t panel) {
  float buf[SOME];
  int64_t size = (int64_t)zk_plain_bytes((ZkElem)w->v->elem);
  for (int64_t p = 0; p < w->nk; p++) {
    const char *next = zk_at(w->v, w->base + w->n[0] + w->k[zk_min(p + AHEAD, w->nk - 1)]);
    for (int64_t j = 0; j < w->nn * size; j += 64) __builtin_prefetch(next + j, 0, 2);
    for (int64_t j0 = 0; j0 < w->nn; j0 += SOME) {
      int64_t n = zk_min(SOME, w->nn - j0), j = 0;
      const float *row = zk_row_in(w->v, w->base + w->n[0] + w->k[p] + j0, 1, n, buf);
      float *at = to + j0 / ZK_FPANEL * panel + p * ZK_FPANEL;
      for (; j + ZK_FPANEL <= n; j += ZK_FPANEL, at += panel) memcpy(at, row + j, ZK_FPANEL * sizeof *at);
      for (int64_t i = 0; j < n && i < ZK_FPANEL; i++) at[i] = j + i < n ? row[j + i] : 0;
    }
  }
}

/* k lies side by side: f32 are transposed as bgemm.h transposes pairs of bf16, which are words of 32 bits,
 * too. */
static void pack_words(const ZkWeights *w, float *to, int64_t panel) {
  int64_t n[SOME], k = 0;
  ZkPiece p = {.data = (const uint16_t *)(const void *)zk_at(w->v, w->base + w->k[0]), .x = n, .k = &k};
  p.nk = 2 * w->nk, p.k_runs = true;
  for (int64_t j = 0; j < w->nn; j += SOME) {
    p.nx = zk_min(SOME, w->nn - j);
    for (int64_t i = 0; i < p.nx; i++) n[i] = 2 * w->n[j + i];
    zk_bgemm_pack_b(&p, (uint16_t *)(void *)(to + j / ZK_FPANEL * panel), 2 * panel);
  }
}

ZK_SIMD static void transpose(float *to, const float *from, int64_t ld, int64_t columns, int64_t k) {
  for (int64_t j = 0; j < columns; j++)
    for (int64_t l = 0; l < k; l++) to[l * ZK_FPANEL + j] = from[j * ld + l];
}

/* k lies side by side: 16 of k of all columns of a panel at a time, which the nearest cache holds. */
static void pack_along(const ZkWeights *w, float *to, int64_t panel) {
  enum { STEP = 16 };
  float buf[STEP];
  for (int64_t j0 = 0; j0 < w->nn; j0 += ZK_FPANEL, to += panel) {
    int64_t columns = zk_min(ZK_FPANEL, w->nn - j0);
    if (columns < ZK_FPANEL) zk_run_fill(to, 0, w->nk * ZK_FPANEL);
    for (int64_t p = 0; p < w->nk; p += STEP)
      for (int64_t j = 0; j < columns; j++) {
        int64_t n = zk_min(STEP, w->nk - p), at = w->base + w->n[j0 + j] + w->k[p];
        const float *from = zk_row_in(w->v, at, 1, n, buf);
        if (p + 4 * STEP < w->nk) __builtin_prefetch(zk_at(w->v, at + 4 * STEP));
        transpose(to + p * ZK_FPANEL + j, from, STEP, 1, n);
      }
  }
}

static void pack_scattered(const ZkWeights *w, float *to, int64_t panel) {
  for (int64_t j = 0; j < zk_up(w->nn, ZK_FPANEL); j++)
    for (int64_t p = 0; p < w->nk; p++)
      to[j / ZK_FPANEL * panel + p * ZK_FPANEL + j % ZK_FPANEL] =
          j < w->nn ? zk_get(w->v, w->base + w->n[j] + w->k[p]) : 0;
}

static bool has_words(const ZkWeights *w) {
#ifdef ZK_BGEMM_X86
  return w->v->elem == ZK_F32 && zk_cpu_has(ZK_X86_V4);
#else
  return (void)w, false;
#endif
}

/* Packed weights: their panels have half as many columns, and begin at any multiple of that. */
static void pack_packed(const ZkWeights *w, float *to, int64_t panel) {
  ZkPacked p = zk_packed_of(w->v);
  bool whole = w->k_runs;
  for (int64_t j = 0; j < w->nn; j++) whole &= w->n[j] == w->n[0] + j * p.k;
  int64_t first = w->base + w->n[0] + w->k[0], column = first / p.k;
  if (!whole || column % ZK_COLUMNS) {
    pack_scattered(w, to, panel);
    return;
  }
  for (int64_t j = 0; j < zk_up(w->nn, ZK_FPANEL); j += ZK_COLUMNS) {
    float *at = to + j / ZK_FPANEL * panel + j % ZK_FPANEL;
    if (j < w->nn) zk_packed_decode_panel(&p, (column + j) / ZK_COLUMNS, first % p.k, w->nk, at, ZK_FPANEL);
    else
      for (int64_t i = 0; i < w->nk; i++) zk_run_fill(at + i * ZK_FPANEL, 0, ZK_COLUMNS);
  }
}

void zk_pack_weights(const ZkWeights *w, float *to, int64_t panel) {
  if (zk_is_packed((ZkElem)w->v->elem)) pack_packed(w, to, panel);
  else if (w->n_runs) pack_across(w, to, panel);
  else if (w->k_runs && has_words(w)) pack_words(w, to, panel);
  else if (w->k_runs) pack_along(w, to, panel);
  else pack_scattered(w, to, panel);
}
