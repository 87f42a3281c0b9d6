/* Rows and columns of matrices: sums of their squares, and products by a number each. Sums are in f64, and do not depend on
 * the number of threads. */
#include "kernels/cpu/cpu.h"
#include "kernels/optimize.h"

enum { GRAIN = 32768, STRIP = 64 };

typedef struct {
  int64_t rows, cols;
  float *x;
  bool columns;
  float *sums;
  const float *by;
} Sides;

static void sum_rows(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Sides *p = arg;
  for (int64_t r = from; r < to; r++) {
    const float *x = p->x + r * p->cols;
    double sum = 0;
    for (int64_t c = 0; c < p->cols; c++) sum += (double)x[c] * (double)x[c];
    p->sums[r] = (float)sum;
  }
}

/* Strips of columns, of which all rows are read. */
static void sum_columns(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Sides *p = arg;
  for (int64_t s = from; s < to; s++) {
    double sum[STRIP] = {0};
    int64_t at = s * STRIP, n = zk_min(STRIP, p->cols - at);
    for (int64_t r = 0; r < p->rows; r++) {
      const float *x = p->x + r * p->cols + at;
      for (int64_t c = 0; c < n; c++) sum[c] += (double)x[c] * (double)x[c];
    }
    for (int64_t c = 0; c < n; c++) p->sums[at + c] = (float)sum[c];
  }
}

void zk_cpu_side_squares(const ZkEnv *env, int64_t rows, int64_t cols, const float *x, bool columns,
                         float *sums) {
  Sides p = {.rows = rows, .cols = cols, .x = (float *)(uintptr_t)x, .sums = sums};
  if (columns) zk_for(env, (cols + STRIP - 1) / STRIP, GRAIN / STRIP / rows + 1, sum_columns, &p);
  else zk_for(env, rows, GRAIN / cols + 1, sum_rows, &p);
}

static void scale_rows(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Sides *p = arg;
  for (int64_t r = from; r < to; r++) {
    float *x = p->x + r * p->cols;
    for (int64_t c = 0; c < p->cols; c++) x[c] *= p->by[p->columns ? c : r];
  }
}

void zk_cpu_side_scale(const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns,
                       const float *by) {
  Sides p = {.rows = rows, .cols = cols, .x = x, .columns = columns, .by = by};
  zk_for(env, rows, GRAIN / cols + 1, scale_rows, &p);
}

void zk_cpu_side_factors(const ZkSides *p, bool acts, float *squares, float *moments) {
  float decay = p->s[ZK_MOMENTS_DECAY], none = 0;
  double total = 0, second = 0;
#define MOMENT(i) (moments ? &moments[i] : &none)
  if (!acts || p->s[ZK_ACTS] == 0) {
    memset(squares, 0, (size_t)p->n * sizeof *squares);
    return;
  }
  for (int64_t i = 0; i < p->n; i++) total += zk_side_first(p, decay, squares[i], MOMENT(i));
  for (int64_t i = 0; i < p->n; i++) second += zk_side_second(p, decay, total, squares[i], MOMENT(i));
  for (int64_t i = 0; i < p->n; i++)
    squares[i] = (float)zk_side_factor(p, total, second, squares[i], *MOMENT(i));
#undef MOMENT
}
