/* Weights of 8 and 4 bits: how they lie, how exact they are, and products by them. */
#include "kernels/packed.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "kernels/cpu/packed.h"
#include "tests/unit/kernels/conform.h"

static const ZkEnv alone;

/* ---- numbers ------------------------------------------------------------------------------------------- */
/* Heavier tails: Student's t with 5 degrees of freedom. */
static float student(uint64_t i) {
  double chi = 0, x = zb_random_normal(3, 1, i);
  for (uint64_t k = 0; k < 5; k++) {
    double y = zb_random_normal(3, 2 + k, i);
    chi += y * y;
  }
  return (float)(x / sqrt(chi / 5));
}
static float normal(uint64_t i) { return (float)zb_random_normal(3, 0, i); }

static ZkView view_of(ZkElem e, int64_t columns, int64_t k, void *at) {
  ZkView v = {.data = at, .elem = (uint8_t)e, .rank = 2, .summed = zk_is_packed(e)};
  v.axis[0] = 'n', v.size[0] = v.whole[0] = columns, v.stride[0] = k;
  v.axis[1] = 'k', v.size[1] = v.whole[1] = k, v.stride[1] = 1;
  return v;
}
static void *room_of(ZkElem e, int64_t columns, int64_t k) {
  size_t bytes = zb_round_up(zk_bytes(e, zk_packed_elems(e, columns, k)), 64);
  char *p = aligned_alloc(64, bytes);
  memset(p, 0xee, bytes);
  return p;
}

/* Packs columns of k numbers; they lie one behind the other in x. */
static ZkView packed(ZkElem e, int64_t columns, int64_t k, float *x) {
  ZkView from = view_of(ZK_F32, columns, k, x), to = view_of(e, columns, k, room_of(e, columns, k));
  zk_cpu_pack(&alone, &from, &to);
  return to;
}

/* ---- how they lie -------------------------------------------------------------------------------------- */
Test(packed, bytes) {
  /* The example of packed.h: 2 panels of 512 bytes and 64 scales, then up to a unit of 64 groups. */
  cr_expect_eq(zk_packed_elems(ZK_INT4_32, 20, 64), 64 * 32);
  cr_expect_eq(zk_bytes(ZK_INT4_32, 64 * 32), 1024 + 2 * 64);
  cr_expect_eq(zk_packed_elems(ZK_INT8_64, 4096, 4096), 4096 * 4096);
  cr_expect_eq(zk_bytes(ZK_INT8_64, 4096), 4096 + 128, "8.25 bits");
  cr_expect_eq(zk_bytes(ZK_INT4_128, 4096), 2048 + 64, "4.125 bits");
  cr_expect_eq(zk_bytes(ZK_INT4Z_128, 4096), 2048 + 64 + 32);
  float x[64 * 20];
  for (int c = 0; c < 20; c++)
    for (int k = 0; k < 64; k++) x[64 * c + k] = (float)((k + c) % 16 - 8);
  ZkView v = packed(ZK_INT4_32, 20, 64, x);
  ZkPacked p = zk_packed_of(&v);
  for (int c = 0; c < 20; c++)
    for (int k = 0; k < 64; k++) {
      uint8_t two = ((uint8_t *)v.data)[c / 16 * 512 + (k / 8 * 16 + c % 16) * 4 + k % 4];
      EACH_ASSERT((k % 8 < 4 ? two & 15 : two >> 4) == (k + c) % 16, "column %d, element %d", c, k);
      EACH_ASSERT(zk_packed_code(&p, c, k) == (k + c) % 16, "column %d, element %d", c, k);
    }
  const uint16_t *scales = (const uint16_t *)(const void *)((char *)v.data + 1024);
  for (int i = 0; i < 64; i++)
    EACH_ASSERT(scales[i] == (i < 32 || i % 16 < 4 ? 0x3c00 : 0), "scale %d is %x", i, scales[i]);
  free(v.data);
}

/* ---- how exact they are -------------------------------------------------------------------------------- */
static double error_of(ZkElem e, float (*draw)(uint64_t)) {
  enum { COLUMNS = 64, K = 1024 };
  float *x = malloc(COLUMNS * K * sizeof *x), *y = malloc(COLUMNS * K * sizeof *y);
  for (uint64_t i = 0; i < COLUMNS * K; i++) x[i] = .02f * draw(i);
  ZkView v = packed(e, COLUMNS, K, x), plain = view_of(ZK_F32, COLUMNS, K, NULL);
  zk_cpu_unpack(&alone, &v, &plain, 0, COLUMNS * K, y);
  double d = 0, s = 0;
  for (int i = 0; i < COLUMNS * K; i++) d += (x[i] - y[i]) * (double)(x[i] - y[i]), s += x[i] * (double)x[i];
  /* What is packed already stays as it is. */
  ZkView again = packed(e, COLUMNS, K, y);
  zk_cpu_unpack(&alone, &again, &plain, 0, COLUMNS * K, x);
  for (int i = 0; i < COLUMNS * K; i++)
    EACH_ASSERT(x[i] == y[i], "%s: %g became %g", zk_elem_info[e].text, (double)y[i], (double)x[i]);
  free(x), free(y), free(v.data), free(again.data);
  return 100 * sqrt(d / s);
}

/* Relative errors in per cent, of normal numbers and of heavier tails, measured with numpy by the same
 * rules; a tenth more is another rule. */
Test(packed, errors) {
  static const struct {
    ZkElem e;
    double normal, student;
  } rows[] = {{ZK_INT8_64, 0.6, 0.8},    {ZK_INT4_32, 8.1, 10.3}, {ZK_INT4_64, 9.0, 12.2},
              {ZK_INT4_128, 9.7, 14.0},  {ZK_INT4Z_32, 7.7, 9.0}, {ZK_INT4Z_64, 8.7, 10.8},
              {ZK_INT4Z_128, 9.5, 12.7}, {ZK_NF4_32, 7.7, 8.4},   {ZK_NF4_64, 8.4, 9.7},
              {ZK_NF4_128, 8.9, 11.0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double a = error_of(rows[i].e, normal), b = error_of(rows[i].e, student);
    cr_expect(a < 1.1 * rows[i].normal && b < 1.1 * rows[i].student,
              "%s: %.2f and %.2f %% in place of %.1f and %.1f", zk_elem_info[rows[i].e].text, a, b,
              rows[i].normal, rows[i].student);
    cr_expect(a > 0.8 * rows[i].normal, "%s: %.2f %%", zk_elem_info[rows[i].e].text, a);
  }
}

/* Weights that somebody else has rounded to 4 bits keep their codes, whatever the largest one of a group is: in int4 those
 * of one more scale, in int8 and int4z also those with a zero point. */
Test(packed, codes_of_others) {
  static const ZkElem formats[] = {ZK_INT4_32, ZK_INT4_64, ZK_INT4_128, ZK_INT8_64, ZK_INT4Z_64};
  for (int f = 0; f < 5; f++) {
    enum { COLUMNS = 40, K = 256 };
    float *x = malloc(COLUMNS * K * sizeof *x), y[K];
    bool eight = zk_elem_info[formats[f]].bits == 8;
    for (int c = 0; c < COLUMNS; c++)
      for (int k = 0; k < K; k++) {
        int most = c % 8 + 1,
            of = (int)(zb_random_u64(1, 2, (uint64_t)(c * K + k)) % (uint64_t)(2 * most + 1)) - most,
            code = eight     ? of * 15 / 8
                   : of == 8 ? 7
                             : of;
        if (zk_elem_info[formats[f]].zero == ZK_ZERO_POINT) code += most / 2;
        x[c * K + k] = (float)code * zb_f16_to_f32((uint16_t)(0x1800 + 37 * c + k / 128 * (c % 3)));
      }
    ZkView v = packed(formats[f], COLUMNS, K, x);
    ZkPacked p = zk_packed_of(&v);
    for (int c = 0; c < COLUMNS; c++) {
      zk_packed_decode(&p, c, 0, K, y);
      for (int k = 0; k < K; k++)
        EACH_ASSERT(y[k] == x[c * K + k], "%s, column %d, element %d: %g is %g",
                    zk_elem_info[formats[f]].text, c, k, (double)x[c * K + k], (double)y[k]);
    }
    free(v.data);
    free(x);
  }
}

/* Groups of nothing, of one number, and of what is not finite. */
Test(packed, odd_groups) {
  static const ZkElem formats[] = {ZK_INT8_32, ZK_INT4_32, ZK_INT4Z_32, ZK_NF4_32};
  for (int f = 0; f < 4; f++) {
    float x[96] = {0}, y[96];
    x[40] = -3, x[70] = NAN;
    ZkView v = packed(formats[f], 1, 96, x), plain = view_of(ZK_F32, 1, 96, NULL);
    zk_cpu_unpack(&alone, &v, &plain, 0, 96, y);
    for (int i = 0; i < 64; i++)
      EACH_ASSERT(fabsf(y[i] - x[i]) < .002f, "%s: %g", zk_elem_info[formats[f]].text, (double)y[i]);
    cr_expect(isnan(y[70]), "%s", zk_elem_info[formats[f]].text);
    free(v.data);
  }
}

/* ---- products ------------------------------------------------------------------------------------------ */
/* y[m, n] of x[m, k] by packed weights; k is one of `parts` parts of a longer sum. */
static void multiply(const ZkView *w, const void *x, ZkElem elem, int64_t m, int parts, int threads,
                     float *y) {
  static ZkEnv env[4];
  static char scratch[1 << 20] __attribute__((aligned(64)));
  if (!env[threads].pool) env[threads].pool = zk_pool_new(threads);
  ZkCall c = {
      .op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}, .invariant = true, .scratch = scratch};
  int64_t n = w->size[0], k = w->size[1];
  c.in[0] = (ZkView){.data = (void *)x,
                     .elem = (uint8_t)elem,
                     .rank = 2,
                     .axis = {'m', 'k'},
                     .size = {m, k},
                     .whole = {m, k * parts},
                     .stride = {k, 1}};
  c.in[1] = *w;
  c.in[1].whole[1] = k * parts;
  c.out[0] =
      (ZkView){.data = y, .rank = 2, .axis = {'m', 'n'}, .size = {m, n}, .whole = {m, n}, .stride = {n, 1}};
  EACH_ASSERT(zk_cpu_scratch(&c, threads) <= sizeof scratch, "scratch");
  zk_cpu_dot(&env[threads], &c);
}

/* Every instruction set, number of rows and of threads gives the reference's bits. */
static void same_bits(ZkElem e, int64_t n, int64_t k, int parts) {
  static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};
  enum { MOST = 33 };
  float *w = malloc((size_t)(n * k) * sizeof *w), *x = malloc((size_t)(MOST * k) * sizeof *x);
  float *y = malloc((size_t)(MOST * n) * sizeof *y), *must = malloc((size_t)(MOST * n) * sizeof *must);
  for (int64_t i = 0; i < n * k; i++) w[i] = student((uint64_t)i);
  for (int64_t i = 0; i < MOST * k; i++) x[i] = normal((uint64_t)i) * (i % 7 == 3 ? 10 : 1);
  ZkView v = packed(e, n, k, w);
  ZkPacked p = zk_packed_of(&v);
  for (int64_t r = 0; r < MOST; r++) zk_ref_packed_row(&p, x + r * k, 8 / parts, must + r * n);
  for (int set = 0; set < 4; set++) {
    if (!zk_packed_rows_use(set)) continue;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      for (int threads = 1; threads < 4; threads += 2) {
        multiply(&v, x, ZK_F32, rows[i], parts, threads, y);
        EACH_ASSERT(!memcmp(y, must, (size_t)(rows[i] * n) * sizeof *y), "%s, %lld x %lld, %lld rows, set %d",
                    zk_elem_info[e].text, (long long)k, (long long)n, (long long)rows[i], set);
      }
  }
  free(w), free(x), free(y), free(must), free(v.data);
}

Test(packed, products) {
  for (ZkElem e = ZK_INT8_32; e <= ZK_INT4Z_128; e++) {
    int64_t g = zk_packed_group(e);
    same_bits(e, 16, g, 1);
    same_bits(e, 37, 3 * g, 1);
    same_bits(e, 64, 11 * g, 1);
    same_bits(e, 20, 5 * g, 4);
  }
}

/* The largest codes everywhere: nothing saturates. */
Test(packed, extremes) {
  enum { K = 256, N = 16 };
  for (ZkElem e = ZK_INT8_32; e <= ZK_INT4_128; e++) {
    float w[N * K], x[K], y[N];
    for (int i = 0; i < N * K; i++) w[i] = i / K % 2 ? 1 : -1;
    for (int i = 0; i < K; i++) x[i] = 1;
    ZkView v = packed(e, N, K, w);
    for (int set = 0; set < 4; set++) {
      if (!zk_packed_rows_use(set)) continue;
      multiply(&v, x, ZK_F32, 1, 1, 1, y);
      for (int c = 0; c < N; c++)
        EACH_ASSERT(fabsf(y[c] - (c % 2 ? K : -K)) < .02f * K, "%s, set %d: %g", zk_elem_info[e].text, set,
                    (double)y[c]);
    }
    free(v.data);
  }
}

/* Ranks that have halves of a sum and add them get the whole's bits; rows in bf16 are those in f32 of the
 * same numbers; a row of zeros is zeros, and one with something that is not finite is not. */
Test(packed, parts) {
  enum { K = 512, N = 48, M = 3 };
  float *w = malloc(N * K * sizeof *w), *half = malloc(N * K * sizeof *half), x[M * K], y[M * N], z[2][M * N];
  uint16_t x16[M * K];
  for (int i = 0; i < N * K; i++) w[i] = student((uint64_t)i);
  for (int i = 0; i < M * K; i++) x16[i] = zb_f32_to_bf16(normal((uint64_t)i)), x[i] = zb_bf16_to_f32(x16[i]);
  ZkView v = packed(ZK_INT4_64, N, K, w);
  multiply(&v, x, ZK_F32, M, 1, 1, y);
  multiply(&v, x16, ZK_BF16, M, 1, 1, z[0]);
  cr_expect_arr_eq(y, z[0], sizeof y);
  for (int h = 0; h < 2; h++) {
    float part[M * K / 2];
    for (int c = 0; c < N; c++) memcpy(half + c * K / 2, w + c * K + h * K / 2, K / 2 * sizeof *half);
    for (int r = 0; r < M; r++) memcpy(part + r * K / 2, x + r * K + h * K / 2, K / 2 * sizeof *part);
    ZkView own = packed(ZK_INT4_64, N, K / 2, half);
    multiply(&own, part, ZK_F32, M, 2, 1, z[h]);
    free(own.data);
  }
  for (int i = 0; i < M * N; i++) z[0][i] += z[1][i];
  cr_expect_arr_eq(y, z[0], sizeof y);
  memset(x, 0, K * sizeof *x), x[K + 5] = INFINITY;
  multiply(&v, x, ZK_F32, M, 1, 1, z[0]);
  for (int i = 0; i < N; i++) {
    EACH_ASSERT(z[0][i] == 0 && isnan(z[0][N + i]), "column %d: %g and %g", i, (double)z[0][i],
                (double)z[0][N + i]);
    EACH_ASSERT(z[0][2 * N + i] == y[2 * N + i], "column %d", i);
  }
  free(w), free(half), free(v.data);
}

/* Products that decode: not in a step, by other codes, and over columns, are those of weights unpacked. */
static void decodes(ZkElem e, int64_t n, bool back, bool steps, bool half) {
  enum { K = 640, N = 48, M = 9 };
  static char scratch[1 << 24] __attribute__((aligned(64)));
  float w[N * K], d[N * K], x[M * K], y[M * K], z[M * K];
  for (int i = 0; i < N * K; i++) w[i] = student((uint64_t)i);
  uint16_t x16[M * K];
  for (int i = 0; i < M * K; i++) {
    x16[i] = zb_f32_to_bf16(normal((uint64_t)i));
    x[i] = half ? zb_bf16_to_f32(x16[i]) : normal((uint64_t)i);
  }
  ZkView v = packed(e, n, K, w), plain = view_of(ZK_F32, n, K, d);
  zk_cpu_unpack(&alone, &v, &plain, 0, n * K, d);
  int64_t from = back ? n : K, to = back ? K : n;
  uint16_t in = back ? 'n' : 'k', out = back ? 'k' : 'n';
  ZkCall c = {
      .op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {in}, .invariant = steps, .scratch = scratch};
  c.in[0] = (ZkView){.data = x, .rank = 2, .axis = {'m', in}, .size = {M, from}, .stride = {from, 1}};
  c.out[0] = (ZkView){.data = y, .rank = 2, .axis = {'m', out}, .size = {M, to}, .stride = {to, 1}};
  c.in[1] = v;
  if (half) c.in[0].data = x16, c.in[0].elem = ZK_BF16;
  EACH_ASSERT(zk_cpu_scratch(&c, 1) <= sizeof scratch, "scratch");
  zk_cpu_dot(&alone, &c);
  c.in[1] = plain, c.out[0].data = z, c.in[0].data = x, c.in[0].elem = ZK_F32;
  EACH_ASSERT(zk_cpu_scratch(&c, 1) <= sizeof scratch, "scratch");
  zk_cpu_dot(&alone, &c);
  /* Sums of products of some 1, in another order; in bf16 of weights that are rounded to 8 bits. */
  float tol = (half ? 2e-2f : 1e-4f) * sqrtf((float)from);
  for (int64_t i = 0; i < M * to; i++)
    EACH_ASSERT(fabsf(y[i] - z[i]) <= tol, "%s, %lld columns: %g in place of %g", zk_elem_info[e].text,
                (long long)n, (double)y[i], (double)z[i]);
  free(v.data);
}

Test(packed, decoded) {
  static const ZkElem formats[] = {ZK_INT8_64, ZK_INT4_32, ZK_INT4Z_64, ZK_NF4_64};
  for (int f = 0; f < 4; f++)
    for (int n = 40; n <= 48; n += 8) { /* whole panels, and not */
      for (int half = 0; half < 2; half++) {
        decodes(formats[f], n, false, false, half);
        decodes(formats[f], n, true, false, half);
      }
      decodes(formats[f], n, true, true, false);
      if (zk_elem_info[formats[f]].codes != ZK_CODES_INTEGER) decodes(formats[f], n, false, true, false);
    }
}

/* Rows that are looked up are those of the table unpacked. */
Test(packed, lookups) {
  enum { K = 64, V = 21, N = 5 };
  float w[V * K], d[V * K], y[N * K];
  int32_t id[N] = {20, 0, 3, 16, 15};
  for (int i = 0; i < V * K; i++) w[i] = student((uint64_t)i);
  ZkView v = packed(ZK_INT8_64, V, K, w), plain = view_of(ZK_F32, V, K, d);
  zk_cpu_unpack(&alone, &v, &plain, 0, V * K, d);
  ZkCall c = {.op = ZG_OP_LOOKUP, .nin = 2, .nout = 1, .nax = 1, .ax = {'n'}};
  c.in[0] = v;
  c.in[1] = (ZkView){
      .data = id, .elem = ZK_I32, .rank = 1, .axis = {'t'}, .size = {N}, .whole = {N}, .stride = {1}};
  c.out[0] =
      (ZkView){.data = y, .rank = 2, .axis = {'t', 'k'}, .size = {N, K}, .whole = {N, K}, .stride = {K, 1}};
  zk_cpu_lookup(&alone, &c);
  for (int i = 0; i < N; i++) cr_expect_arr_eq(y + i * K, d + id[i] * K, K * sizeof *y, "row %d", i);
  free(v.data);
}
