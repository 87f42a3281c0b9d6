/* Packed views: weights that lie densely, in any order, into panels and back. */
#include "kernels/cpu/packed.h"

enum { SOME = 256 /* elements at once */, AT_ONCE = 4 /* panels */, MOST_GROUP = 128 };

typedef struct {
  ZkView packed;
  ZkPacked matrix;
  ZkNest columns, k; /* views: packed, plain */
  const ZkView *plain;
} Pack;

static ZkNest nest_of(const ZkView *packed, const ZkView *plain, bool summed) {
  const ZkView *views[] = {packed, plain};
  ZkNest n = {.nviews = 2};
  for (int i = 0; i < packed->rank; i++)
    if ((i >= packed->rank - packed->summed) == summed)
      zk_nest_add(&n, views, 2, packed->axis[i], packed->size[i]);
  zk_nest_merge(&n);
  return n;
}

/* ---- into panels --------------------------------------------------------------------------------------- */
/* Takes a group of some columns: x[group][ZK_COLUMNS]. Those that follow each other in memory come together, and the
 * next group, whose elements lie far apart then, is asked for. */
static void take_group(const float *data, const int64_t *at, int64_t n, ZkWalk *k, const ZkNest *ks,
                       int64_t group, float *x) {
  bool beside = n == ZK_COLUMNS;
  for (int64_t c = 1; c < n; c++) beside &= at[c] == at[0] + c;
  for (int64_t i = 0; i < group; i++, zk_walk_next(ks, k), x += ZK_COLUMNS) {
    const float *from = data + k->off[1];
    if (beside) memcpy(x, from + at[0], ZK_COLUMNS * sizeof *x);
    for (int64_t c = 0; c < n && !beside; c++) x[c] = from[at[c]];
  }
  ZkWalk next = *k;
  for (int64_t i = 0; i < group && beside; i++, zk_walk_next(ks, &next))
    __builtin_prefetch(data + next.off[1] + at[0]);
}

/* Some panels a group at a time: neighbours in memory are in one of both directions. */
static void pack_panels(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Pack *p = arg;
  int64_t group = zk_packed_group(p->matrix.elem), at[AT_ONCE][ZK_COLUMNS], panels = to - from;
  float x[MOST_GROUP * ZK_COLUMNS] = {0};
  ZB_ASSERT(group <= MOST_GROUP && panels <= AT_ONCE);
  for (int64_t i = 0; i < panels; i++) {
    ZkWalk column;
    zk_walk_seek(&p->columns, &column, (from + i) * ZK_COLUMNS);
    for (int64_t c = 0; c < ZK_COLUMNS; c++, zk_walk_next(&p->columns, &column)) at[i][c] = column.off[1];
  }
  ZkWalk k, here;
  zk_walk_seek(&p->k, &k, 0);
  for (int64_t g = 0; g < p->matrix.k / group; g++, k = here)
    for (int64_t i = 0; i < panels; i++) {
      int64_t n = zk_min(ZK_COLUMNS, p->matrix.columns - (from + i) * ZK_COLUMNS);
      if (n < ZK_COLUMNS) memset(x, 0, sizeof x);
      here = k;
      take_group(p->plain->data, at[i], n, &here, &p->k, group, x);
      zk_packed_encode(&p->matrix, from + i, g, x);
    }
}

static void pack_some(void *arg, int64_t from, int64_t to, int part) {
  for (int64_t i = from; i < to; i += AT_ONCE) pack_panels(arg, i, zk_min(i + AT_ONCE, to), part);
}

void zk_cpu_pack(const ZkEnv *env, const ZkView *plain, const ZkView *packed) {
  ZB_ASSERT(plain->elem == ZK_F32);
  Pack p = {*packed, zk_packed_of(packed), nest_of(packed, plain, false), nest_of(packed, plain, true),
            plain};
  zk_for(env, zk_packed_panels(p.matrix.columns), AT_ONCE, pack_some, &p);
}

/* ---- and back ------------------------------------------------------------------------------------------ */
typedef struct {
  const ZkView *packed, *plain;
  int64_t first, n;
  float *x;
} Unpack;

/* Elements by their number in the plain view, in runs along its last axis. */
static void unpack_some(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Unpack *u = arg;
  const ZkView *v = u->plain;
  int64_t last = v->rank ? v->size[v->rank - 1] : 1;
  int64_t stride = v->rank ? zk_axis_stride(u->packed, v->axis[v->rank - 1]) : 1;
  for (int64_t i = u->first + from, run; i < u->first + to; i += run) {
    int64_t rest = i, at = 0;
    for (int a = v->rank; a-- > 0; rest /= v->size[a])
      at += rest % v->size[a] * zk_axis_stride(u->packed, v->axis[a]);
    run = zk_min(last - i % last, u->first + to - i);
    zk_load(u->x + (i - u->first), u->packed, at, stride, run);
  }
}

void zk_cpu_unpack(const ZkEnv *env, const ZkView *packed, const ZkView *plain, int64_t first, int64_t n,
                   float *x) {
  Unpack u = {packed, plain, first, n, x};
  zk_for(env, n, 1 << 14, unpack_some, &u);
}

/* ---- elements ------------------------------------------------------------------------------------------ */
/* Loads from a packed view at the offsets that it would have if columns lay one behind the other. */
void zk_load_packed(float *to, const ZkView *v, int64_t at, int64_t stride, int64_t n) {
  ZkPacked p = zk_packed_of(v);
  if (stride == 1)
    for (int64_t i = 0, run; i < n; i += run) {
      int64_t k = (at + i) % p.k;
      run = zk_min(n - i, p.k - k);
      zk_packed_decode(&p, (at + i) / p.k, k, run, to + i);
    }
  else if (stride == p.k) zk_packed_decode_row(&p, at % p.k, at / p.k, n, to);
  else
    for (int64_t i = 0; i < n; i++)
      zk_packed_decode(&p, (at + i * stride) / p.k, (at + i * stride) % p.k, 1, to + i);
}

/* ---- panels -------------------------------------------------------------------------------------------- */
static void panel_any(const ZkPacked *p, int64_t panel, int64_t k, int64_t n, float *to, int64_t ld) {
  float x[SOME];
  for (int64_t c = 0; c < ZK_COLUMNS; c++)
    for (int64_t i = 0, some; i < n; i += some) {
      some = zk_min(SOME, n - i);
      zk_packed_decode(p, panel * ZK_COLUMNS + c, k + i, some, x);
      for (int64_t j = 0; j < some; j++) to[(i + j) * ld + c] = x[j];
    }
}

#if defined(__x86_64__) && !defined(__clang__)
#include <immintrin.h>
#define V4 __attribute__((target("arch=x86-64-v4")))

/* A load of 64 bytes has a word of each column, with one element in each byte, or in each half of one. */
V4 static void panel_v4(const ZkPacked *p, int64_t panel, int64_t k, int64_t n, float *to, int64_t ld) {
  const ZkElemInfo *e = &zk_elem_info[p->elem];
  const int bits = e->bits, step = 32 / bits;
  const __m512i low = _mm512_set1_epi32((1 << bits) - 1);
  const float *table = zk_code_values(p->elem);
  const __m512 values = table ? _mm512_loadu_ps(table) : _mm512_setzero_ps();
  const uint8_t *codes = zk_packed_codes(p, panel) + k / step * 64;
  for (int64_t i = 0; i < n; i += step, codes += 64) {
    int64_t at = (k + i) / e->block * ZK_COLUMNS;
    const void *scales = zk_packed_scales(p, panel) + at;
    __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)scales));
    __m512i zero = _mm512_set1_epi32(zk_packed_zero(p->elem));
    if (e->zero == ZK_ZERO_POINT)
      zero = _mm512_cvtepu8_epi32(
          _mm_loadu_si128((const __m128i *)(const void *)(zk_packed_zeros(p, panel) + at)));
    __m512i words = _mm512_loadu_si512(codes);
    for (int j = 0; j < step; j++) {
      int byte = j % 4 * 8 + j / 4 * 4; /* the second four are in the high halves */
      __m512i code = _mm512_and_si512(_mm512_srl_epi32(words, _mm_cvtsi32_si128(byte)), low);
      __m512 value =
          table ? _mm512_permutexvar_ps(code, values) : _mm512_cvtepi32_ps(_mm512_sub_epi32(code, zero));
      _mm512_storeu_ps(to + (i + j) * ld, _mm512_mul_ps(value, scale));
    }
  }
}
#endif

void zk_packed_decode_panel(const ZkPacked *p, int64_t panel, int64_t k, int64_t n, float *to, int64_t ld) {
#if defined(__x86_64__) && !defined(__clang__)
  if (k % 8 == 0 && n % 8 == 0 && zk_cpu_has(ZK_X86_V4)) {
    panel_v4(p, panel, k, n, to, ld);
    return;
  }
#endif
  panel_any(p, panel, k, n, to, ld);
}
