/* Few rows by weights in memory, for vectors of LANES floats: included by invariant_rows.c once for each
 * instruction set. Some rows of weights are read side by side; sums stay in the nearest cache. */
typedef float NAME(V) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t NAME(H) __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t NAME(U) __attribute__((vector_size(4 * LANES)));

/* Reads weights, n of them if that is not 0. */
ZK_INLINE NAME(V) NAME(weights)(const char *w, const bool half, int64_t n) {
  if (!half) {
    NAME(V) v = {0};
    if (!n) return *(const NAME(V) *)w;
    memcpy(&v, w, (size_t)n * sizeof(float));
    return v;
  }
  NAME(H) h = {0};
  if (!n) h = *(const NAME(H) *)w;
  else memcpy(&h, w, (size_t)n * sizeof(uint16_t));
  return (NAME(V))(__builtin_convertvector(h, NAME(U)) << 16);
}

/* Adds `deep` elements of k to the sums of a vector of columns; n: as many are there, or 0 for all. `rows`,
 * `half` and `deep` are constants where this is expanded. */
ZK_INLINE void NAME(column)(const char *w, int64_t apart, const float *x, int64_t ldx, float *sum,
                            int64_t ldsum, const int rows, const bool half, const int deep, int64_t n,
                            bool add) {
  NAME(V) b[DEEP];
#pragma GCC unroll 16
  for (int d = 0; d < deep; d++) b[d] = NAME(weights)(w + d * apart, half, n);
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    NAME(V) *to = (NAME(V) *)(sum + i * ldsum), s = {0};
    if (add) s = *to;
#pragma GCC unroll 16
    for (int d = 0; d < deep; d++) s = FMA(x[i * ldx + d], b[d], s);
    *to = s;
  }
}

ZK_INLINE void NAME(deep)(const ZkFewRows *x, int64_t p, Ahead *ahead, const int rows, const bool half,
                          const int deep) {
  const int bytes = half ? 2 : 4;
  const char *w = (const char *)x->w + p * x->ldw * bytes;
  const float *a = (const float *)x->x + p;
  int64_t j = 0, apart = x->ldw * bytes, ldx = x->ldx, ldsum = x->ldsum;
  bool add = x->add || p > 0;
  for (; j + LANES <= x->n; j += LANES) {
    ask_rows(x, ahead, bytes, LANES * bytes * DEEP / LINE);
    NAME(column)(w + j * bytes, apart, a, ldx, x->sum + j, ldsum, rows, half, deep, 0, add);
  }
  if (j < x->n)
    NAME(column)(w + j * bytes, apart, a, ldx, x->sum + j, ldsum, rows, half, deep, x->n - j, add);
}

ZK_INLINE void NAME(few)(const ZkFewRows *x, const int rows, const bool half) {
  int64_t p = 0;
  Ahead ahead = rows_ahead(x, half ? 2 : 4, DEEP), none = {0};
  for (; p + DEEP <= x->k; p += DEEP) NAME(deep)(x, p, &ahead, rows, half, DEEP);
  for (; p < x->k; p++) NAME(deep)(x, p, &none, rows, half, 1);
}

#ifdef TRANSPOSE
/* Returns element d of k of the columns in t, transposed words of f32 or of pairs of bf16. */
ZK_INLINE NAME(V) NAME(element)(const NAME(V) * t, int d, const bool half) {
  if (!half) return t[d];
  NAME(U) pair = (NAME(U))t[d / 2];
  return (NAME(V))(d % 2 ? pair & 0xffff0000u : pair << 16);
}

/* Columns that run along k: LANES of them, as many words of each at a time, are transposed in registers. */
ZK_INLINE void NAME(columns)(ZkFewColumns *x, int64_t j0, const int rows, const bool half) {
  const int64_t bytes = half ? 2 : 4, n = zk_min(LANES, x->n - j0), ldw = x->ldw * bytes;
  const int step = half ? 2 * LANES : LANES;
  NAME(V) sum[ZK_FEW];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
    sum[i] = x->add ? *(const NAME(V) *)(x->sum + i * x->ldsum + j0) : (NAME(V)){0};
  Ahead ahead = j0 && x->from == 0 ? (Ahead){x->ahead, x->ahead_end, 15} : columns_ahead(x, bytes);
  for (int64_t k = 0; k < x->k; k += step) {
    const char *from = (const char *)x->w + j0 * ldw + k * bytes;
    const float *a = (const float *)x->x + k;
    int64_t left = zk_min(step, x->k - k);
    NAME(V) t[LANES];
    ask_columns(x, &ahead, bytes, LANES * LANES * 4 / LINE);
    if (left == step && n == LANES) {
#pragma GCC unroll 16
      for (int j = 0; j < LANES; j++) t[j] = *(const NAME(V) *)(from + j * ldw);
    } else {
      memset(t, 0, sizeof t);
      for (int64_t j = 0; j < n; j++) memcpy(&t[j], from + j * ldw, (size_t)(left * bytes));
    }
    TRANSPOSE(t);
    if (left == step) {
#pragma GCC unroll 32
      for (int d = 0; d < step; d++) {
        NAME(V) w = NAME(element)(t, d, half);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) sum[i] = FMA(a[i * x->ldx + d], w, sum[i]);
      }
    } else {
      for (int d = 0; d < left; d++) {
        NAME(V) w = NAME(element)(t, d, half);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) sum[i] = FMA(a[i * x->ldx + d], w, sum[i]);
      }
    }
  }
  x->ahead = ahead.at, x->ahead_end = ahead.end;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) *(NAME(V) *)(x->sum + i * x->ldsum + j0) = sum[i];
}

ZK_INLINE void NAME(along)(ZkFewColumns *x, const int rows, const bool half) {
  for (int64_t j = 0; j < x->n; j += LANES) NAME(columns)(x, j, rows, half);
}
#endif

#define FEW(n)                                                                                               \
  static void NAME(plain##n)(const ZkFewRows *x) { NAME(few)(x, n, false); }                                 \
  static void NAME(half##n)(const ZkFewRows *x) { NAME(few)(x, n, true); }
ZK_EACH_FEW(FEW)
#undef FEW
#define FEW(n) {NAME(plain##n), NAME(half##n)},
static FewFn *const NAME(fns)[ZK_FEW][2] = {ZK_EACH_FEW(FEW)};
#undef FEW
#ifdef TRANSPOSE
#define FEW(n)                                                                                               \
  static void NAME(along##n)(ZkFewColumns * x) { NAME(along)(x, n, false); }                                 \
  static void NAME(along_half##n)(ZkFewColumns * x) { NAME(along)(x, n, true); }
ZK_EACH_FEW(FEW)
#undef FEW
#define FEW(n) {NAME(along##n), NAME(along_half##n)},
static AlongFn *const NAME(along_fns)[ZK_FEW][2] = {ZK_EACH_FEW(FEW)};
#undef FEW
#endif
