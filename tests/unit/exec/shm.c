/* Collectives through shared memory, their members played by threads of one process: what tests/mpi/comm.c
 * sees from outside, here in a window of plain memory, where -fsanitize=thread can watch. */
#include "kernels/kernels.h"
#include "runtime/exec/comm/shm.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, OPEN = 40 };

typedef struct {
  void *window;
  int rank, size, wrong;
} Member;

static float value(int r, size_t i) { return (float)((i * 7 + (size_t)r * 13) % 101) - 50; }

static void wait_for(ZxShm *s, uint64_t op) {
  for (zx_shm_progress(s); !zx_shm_done(s, op); zx_shm_progress(s)) sched_yield();
}

static float sum(int size, size_t i) {
  float x = 0;
  for (int r = 0; r < size; r++) x += value(r, i);
  return x;
}

/* One of each kind on vectors of `size` blocks of n floats. */
static void each(Member *m, ZxShm *s, size_t n) {
  size_t all = n * (size_t)m->size, own = n * (size_t)m->rank;
  float *a = malloc(all * 4), *b = malloc(all * 4), *c = malloc(all * 4), *d = malloc(all * 4);
  for (size_t i = 0; i < all; i++) a[i] = b[i] = value(m->rank, i);
  uint64_t reduced = zx_shm_all_reduce(s, a, all, ZX_F32, ZX_SUM);
  uint64_t exchanged = zx_shm_all_to_all(s, b, n * 4, c);
  wait_for(s, exchanged);
  m->wrong += !zx_shm_done(s, reduced); /* in the order in which they began */
  wait_for(s, zx_shm_reduce_scatter(s, b, n, ZX_F32, ZX_SUM, b + own));
  wait_for(s, zx_shm_all_gather(s, b + own, n * 4, d));
  for (size_t i = 0; i < all; i++) {
    m->wrong += a[i] != sum(m->size, i) || d[i] != a[i];
    m->wrong += c[i] != value((int)(i / n), own + i % n);
  }
  for (int root = 0; root < m->size; root++) {
    for (size_t i = 0; i < n; i++) a[i] = m->rank == root ? value(root, i) : -1;
    wait_for(s, zx_shm_broadcast(s, a, n * 4, root));
    for (size_t i = 0; i < n; i++) m->wrong += a[i] != value(root, i);
  }
  free(a);
  free(b);
  free(c);
  free(d);
}

/* The same of bf16, blocks of an odd number of them too. */
static void halves(Member *m, ZxShm *s, size_t n) {
  size_t all = n * (size_t)m->size, own = n * (size_t)m->rank;
  uint16_t *a = malloc(all * 2), *b = malloc(all * 2), *c = malloc(n * 2);
  for (size_t i = 0; i < all; i++) a[i] = b[i] = zb_f32_to_bf16(value(m->rank, i));
  zx_shm_all_reduce(s, a, all, ZX_BF16, ZX_SUM);
  wait_for(s, zx_shm_reduce_scatter(s, b, n, ZX_BF16, ZX_SUM, c));
  for (size_t i = 0; i < all; i++) {
    m->wrong += a[i] != zb_f32_to_bf16(sum(m->size, i));
    m->wrong += b[i] != zb_f32_to_bf16(value(m->rank, i)); /* left as it was */
  }
  m->wrong += memcmp(c, a + own, n * 2) != 0;
  free(a);
  free(b);
  free(c);
}

/* More at once than the table first holds. */
static void many(Member *m, ZxShm *s) {
  static const size_t n = 700;
  double *p = malloc(OPEN * n * sizeof *p);
  uint64_t last = 0;
  for (size_t i = 0; i < OPEN * n; i++) p[i] = (double)value(m->rank, i);
  for (size_t k = 0; k < OPEN; k++) last = zx_shm_all_reduce(s, p + k * n, n, ZX_F64, ZX_SUM);
  wait_for(s, last);
  for (size_t i = 0; i < OPEN * n; i++) m->wrong += p[i] != (double)sum(m->size, i);
  free(p);
}

static void *play(void *arg) {
  Member *m = arg;
  ZxShm *s = zx_shm_new(m->window, m->rank, m->size);
  static const size_t sizes[] = {1, 33, 5000, 70001, 150000};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    each(m, s, sizes[k]);
    halves(m, s, sizes[k]);
  }
  many(m, s);
  zx_shm_free(s);
  return NULL;
}

static void play_all(int size) {
  void *window = aligned_alloc(4096, zx_shm_bytes(size));
  cr_assert(window);
  memset(window, 0, zx_shm_bytes(size));
  pthread_t thread[MOST];
  Member member[MOST];
  for (int i = 0; i < size; i++) {
    member[i] = (Member){.window = window, .rank = i, .size = size};
    cr_assert_eq(pthread_create(&thread[i], NULL, play, &member[i]), 0);
  }
  for (int i = 0; i < size; i++) {
    pthread_join(thread[i], NULL);
    cr_expect_eq(member[i].wrong, 0, "member %d of %d: %d wrong", i, size, member[i].wrong);
  }
  free(window);
}

Test(shm, two) { play_all(2); }
Test(shm, three) { play_all(3); }
Test(shm, eight) { play_all(8); }

Test(shm, the_first_to_ask_has_it) {
  void *window = aligned_alloc(4096, zx_shm_bytes(2));
  cr_assert(window);
  memset(window, 0, zx_shm_bytes(2));
  ZxShm *a = zx_shm_new(window, 0, 2), *b = zx_shm_new(window, 1, 2);
  cr_expect(zx_shm_claim(b) && !zx_shm_claim(a) && !zx_shm_claim(b));
  zx_shm_free(a);
  zx_shm_free(b);
  free(window);
}

Test(shm, a_file_is_one_memory) {
  ZxShmFile f = zx_shm_create(2);
  char *a = zx_shm_map(&f, 0), *b = zx_shm_map(&f, 1);
  cr_assert(a && b && a != b);
  size_t last = zx_shm_bytes(2) - 1;
  cr_expect_eq(b[last], 0);
  a[last] = 7;
  zx_shm_close(&f);
  cr_expect_eq(b[last], 7);
  zx_shm_unmap(a, 2);
  zx_shm_unmap(b, 2);
}

Test(shm, another_file_is_not_mapped) {
  ZxShmFile f = zx_shm_create(2), g = f;
  g.key++;
  cr_expect_null(zx_shm_map(&g, 0));
  g = f;
  g.size = 3;
  cr_expect_null(zx_shm_map(&g, 0));
  g = f;
  g.fd = -1;
  cr_expect_null(zx_shm_map(&g, 0));
  zx_shm_close(&f);
  cr_expect_null(zx_shm_map(&f, 0));
}
