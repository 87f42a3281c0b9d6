/* bench-read [THREADS [MB]]: how fast threads read memory that no cache holds, in GB/s: the median of several
 * passes over an array of 1024 MB, each thread over a part of its own. What a model that writes one token at a
 * time is held against. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "kernels/kernels.h"

enum { PASSES = 9, WIDE = 8, SUMS = 8 };
typedef uint64_t Wide __attribute__((vector_size(WIDE * sizeof(uint64_t))));

typedef struct {
  Wide *x;
  int64_t n;
  uint64_t sum[1024]; /* of each thread, so that nothing is left out */
} Memory;

static void part_of(const Memory *m, int part, int parts, int64_t *from, int64_t *to) {
  int64_t each = m->n / parts / SUMS * SUMS;
  *from = each * part;
  *to = *from + each;
}

static void fill(void *arg, int part, int parts) {
  Memory *m = arg;
  int64_t from, to;
  part_of(m, part, parts, &from, &to);
  memset(m->x + from, part + 1, (size_t)(to - from) * sizeof *m->x);
}

static void add(void *arg, int part, int parts) {
  Memory *m = arg;
  int64_t from, to;
  Wide sum[SUMS] = {0};
  part_of(m, part, parts, &from, &to);
  for (int64_t i = from; i < to; i += SUMS)
    for (int k = 0; k < SUMS; k++) sum[k] += m->x[i + k];
  for (int k = 1; k < SUMS; k++) sum[0] += sum[k];
  m->sum[part] += sum[0][0];
}

static int by_size(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  int64_t mb = argc > 2 ? atoll(argv[2]) : 1024;
  ZkPool *pool = threads >= 1 && threads <= 1024 && mb >= threads ? zk_pool_new(threads) : NULL;
  static Memory m;
  if (!pool) {
    fprintf(stderr, "usage: bench-read [THREADS [MB]]\n");
    return 2;
  }
  m.n = mb * 1000000 / (int64_t)sizeof *m.x;
  m.x = aligned_alloc(1 << 21, zb_round_up((uint64_t)m.n * sizeof *m.x, 1 << 21));
  if (!m.x) zb_out_of_memory((uint64_t)m.n * sizeof *m.x);
#ifdef MADV_HUGEPAGE /* as arenas have them (exec/device/cpu.c): small pages are read at four fifths of the speed */
  madvise(m.x, zb_round_up((uint64_t)m.n * sizeof *m.x, 1 << 21), MADV_HUGEPAGE);
#endif
  zk_pool_run(pool, fill, &m);
  int64_t from, to;
  double rate[PASSES];
  part_of(&m, threads - 1, threads, &from, &to);
  for (int i = 0; i < PASSES; i++) {
    double begin = zb_now();
    zk_pool_run(pool, add, &m);
    rate[i] = (double)to * sizeof *m.x / (zb_now() - begin) / 1e9;
  }
  qsort(rate, PASSES, sizeof *rate, by_size);
  uint64_t sum = 0;
  for (int i = 0; i < threads; i++) sum += m.sum[i];
  printf("%d threads read %.1f GB/s (%.1f to %.1f)%s\n", threads, rate[PASSES / 2], rate[0], rate[PASSES - 1],
         sum ? "" : "?");
  free(m.x);
  zk_pool_free(pool);
  return 0;
}
