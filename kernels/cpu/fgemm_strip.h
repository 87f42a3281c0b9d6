/* The strip of ROWS rows by two vectors, for an instruction set: included by fgemm.c once for each. Its sums stay
 * in registers while k goes by: a step is two vectors of b, and of each row one element of a. The panels of b
 * stay in the second cache, the strip of a in the first. */
#define COLUMNS (2 * LANES)

typedef float NAME(V) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* `rows` and `runs` are constants where this is expanded. runs: rows of a lie side by side, else k does. */
ZK_INLINE void NAME(strip)(const Strip *x, const int rows, const bool runs) {
  typedef NAME(V) V;
  const float *a = x->a, *b = x->b;
  int64_t a_step = x->a_step, b_step = x->b_step;
  V sum[ROWS][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    const V *from = (const V *)(x->c + i * x->ldc);
    sum[i][0] = x->add ? from[0] : (V){0};
    sum[i][1] = x->add ? from[1] : (V){0};
  }
#pragma GCC unroll 1
  for (int64_t k = x->k; k > 0; k--, b += b_step, a += runs ? a_step : 1) {
    V b0 = ((const V *)b)[0], b1 = ((const V *)b)[1];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      float w = a[runs ? i : i * a_step];
      sum[i][0] = w * b0 + sum[i][0];
      sum[i][1] = w * b1 + sum[i][1];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    V *to = (V *)(x->c + i * x->ldc);
    to[0] = sum[i][0];
    to[1] = sum[i][1];
  }
}

/* One for each number of rows. */
#if ROWS == 4
#define EACH(X) X(1) X(2) X(3) X(4)
#elif ROWS == 6
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#endif
#define STRIP(n)                                                                                             \
  static void NAME(across##n)(const Strip *x) { NAME(strip)(x, n, true); }                                   \
  static void NAME(along##n)(const Strip *x) { NAME(strip)(x, n, false); }
EACH(STRIP)
#undef STRIP

static StripFn *NAME(strip_of)(bool runs, int64_t rows) {
#define STRIP(n) {NAME(along##n), NAME(across##n)},
  static StripFn *const strips[ROWS][2] = {EACH(STRIP)};
#undef STRIP
  return strips[rows - 1][runs];
}

/* Of the last columns there are only n: they go through rows that have as many as vectors hold. */
static void NAME(edge)(StripFn *strip, const Strip *x, int64_t rows, int64_t n, bool runs) {
  enum { STEPS = 64 };
  float sums[ROWS * COLUMNS] = {0}, panel[STEPS * COLUMNS] = {0};
  Strip part = {
      .a = x->a, .b = panel, .c = sums, .a_step = x->a_step, .b_step = COLUMNS, .ldc = COLUMNS, .add = true};
  for (int64_t i = 0; x->add && i < rows; i++)
    memcpy(sums + i * COLUMNS, x->c + i * x->ldc, (size_t)n * sizeof *sums);
  for (int64_t p = 0; p < x->k; p += STEPS) {
    part.k = zk_min(STEPS, x->k - p);
    for (int64_t l = 0; l < part.k; l++)
      memcpy(panel + l * COLUMNS, x->b + (p + l) * x->b_step, (size_t)n * sizeof *panel);
    strip(&part);
    part.a += STEPS * (runs ? x->a_step : 1);
  }
  for (int64_t i = 0; i < rows; i++) memcpy(x->c + i * x->ldc, sums + i * COLUMNS, (size_t)n * sizeof *sums);
}

static void NAME(block)(const ZkFblock *x) {
  bool runs = x->a_row == 1;
  Strip s = {
      .a_step = runs ? x->a_step : x->a_row, .b_step = x->b_step, .ldc = x->ldc, .k = x->k, .add = x->add};
  int64_t cached = zk_max(1, CACHED / zk_max(1, x->k) / ZK_FPANEL) * ZK_FPANEL;
  ZB_ASSERT(runs || x->a_step == 1);
  for (int64_t j0 = 0; j0 < x->n; j0 += cached)
    for (int64_t i = 0; i < x->m; i += ROWS) {
      int64_t rows = zk_min(ROWS, x->m - i);
      StripFn *strip = NAME(strip_of)(runs, rows);
      s.a = x->a + i / ZK_FSTRIP * x->a_strip + i % ZK_FSTRIP * x->a_row;
      for (int64_t j = j0; j < zk_min(x->n, j0 + cached); j += COLUMNS) {
        s.b = x->b + j / ZK_FPANEL * x->b_panel + j % ZK_FPANEL;
        s.c = x->c + i * x->ldc + j;
        if (x->n - j >= COLUMNS) strip(&s);
        else NAME(edge)(strip, &s, rows, x->n - j, runs);
      }
    }
}
#undef EACH
#undef COLUMNS
