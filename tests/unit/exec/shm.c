/* Collectives through shared memory, their members played by threads of one process: what tests/scenarios/tools/comm.c
 * sees from outside, here in a window of plain memory, where -fsanitize=thread can watch. Then one thread
 * plays all of them, who come as late as is wanted; and the memory itself. */
#define _GNU_SOURCE /* posix_openpt */
#include "kernels/kernels.h"
#include "runtime/exec/comm/shm.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
  uint64_t reduced = zx_shm_all_reduce(s, a, all, ZK_F32, ZX_SUM);
  uint64_t exchanged = zx_shm_all_to_all(s, b, n * 4, c);
  wait_for(s, exchanged);
  m->wrong += !zx_shm_done(s, reduced); /* in the order in which they began */
  wait_for(s, zx_shm_reduce_scatter(s, b, n, ZK_F32, ZX_SUM, b + own));
  wait_for(s, zx_shm_all_gather(s, b + own, n * 4, d));
  for (size_t i = 0; i < all; i++) {
    m->wrong += a[i] != sum(m->size, i) || d[i] != a[i];
    m->wrong += c[i] != value((int)(i / n), own + i % n);
  }
  for (int root = 0; root < m->size; root++) {
    for (size_t i = 0; i < n; i++) a[i] = m->rank == root ? value(root, i) : -1;
    a[n] = (float)m->rank; /* which nobody sends */
    wait_for(s, zx_shm_broadcast(s, a, n * 4, root));
    for (size_t i = 0; i < n; i++) m->wrong += a[i] != value(root, i);
    m->wrong += a[n] != (float)m->rank;
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
  zx_shm_all_reduce(s, a, all, ZK_BF16, ZX_SUM);
  wait_for(s, zx_shm_reduce_scatter(s, b, n, ZK_BF16, ZX_SUM, c));
  for (size_t i = 0; i < all; i++) {
    m->wrong += a[i] != zb_f32_to_bf16(sum(m->size, i));
    m->wrong += b[i] != zb_f32_to_bf16(value(m->rank, i)); /* left as it was */
  }
  m->wrong += memcmp(c, a + own, n * 2) != 0;
  free(a);
  free(b);
  free(c);
}

/* Blocks of whole lines, and one element more. */
static void uneven(Member *m, ZxShm *s) {
  size_t n = 6400 * (size_t)m->size + 1;
  float *p = malloc(n * sizeof *p);
  for (size_t i = 0; i < n; i++) p[i] = value(m->rank, i);
  wait_for(s, zx_shm_all_reduce(s, p, n, ZK_F32, ZX_SUM));
  for (size_t i = 0; i < n; i++) m->wrong += p[i] != sum(m->size, i);
  free(p);
}

/* More at once than the table first holds. */
static void many(Member *m, ZxShm *s) {
  static const size_t n = 700;
  double *p = malloc(OPEN * n * sizeof *p);
  uint64_t last = 0;
  for (size_t i = 0; i < OPEN * n; i++) p[i] = (double)value(m->rank, i);
  for (size_t k = 0; k < OPEN; k++) last = zx_shm_all_reduce(s, p + k * n, n, ZK_F64, ZX_SUM);
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
  uneven(m, s);
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

/* ---- three members that one thread plays in turn ---- */
enum {
  THREE = 3,
  WHOLE = 4096,
  LARGE = 4097
}; /* floats: the most that is summed by every member, and more */
typedef enum { SUM_WHOLE, SCATTER, GATHER, EXCHANGE, KINDS, SUM_LARGE, FROM } Kind;

static void *window;
static ZxShm *member[THREE];
static float from[THREE][THREE * LARGE], to[THREE][THREE * LARGE];

static void make_three(void) {
  window = aligned_alloc(4096, zx_shm_bytes(THREE));
  cr_assert(window);
  memset(window, 0, zx_shm_bytes(THREE));
  for (int i = 0; i < THREE; i++) member[i] = zx_shm_new(window, i, THREE);
}

static void free_three(void) {
  for (int i = 0; i < THREE * THREE; i++) zx_shm_progress(member[i % THREE]);
  for (int i = 0; i < THREE; i++) {
    cr_expect(zx_shm_idle(member[i]), "member %d", i);
    zx_shm_free(member[i]);
  }
  zx_shm_free(NULL);
  free(window);
}

static void begin(int i, Kind kind, int root) {
  uint64_t moves = zx_shm_moves(member[i]);
  switch (kind) {
  case SUM_WHOLE: zx_shm_all_reduce(member[i], from[i], WHOLE, ZK_F32, ZX_SUM); break;
  case SUM_LARGE: zx_shm_all_reduce(member[i], from[i], LARGE, ZK_F32, ZX_SUM); break;
  case SCATTER: zx_shm_reduce_scatter(member[i], from[i], WHOLE, ZK_F32, ZX_SUM, to[i]); break;
  case GATHER: zx_shm_all_gather(member[i], from[i], WHOLE, to[i]); break;
  case EXCHANGE: zx_shm_all_to_all(member[i], from[i], WHOLE, to[i]); break;
  case FROM: zx_shm_broadcast(member[i], from[i], WHOLE, root); break;
  case KINDS: break;
  }
  cr_expect_gt(zx_shm_moves(member[i]), moves);
}

static void goes_on(int i) {
  uint64_t moves = zx_shm_moves(member[i]);
  zx_shm_progress(member[i]);
  cr_expect_gt(zx_shm_moves(member[i]), moves);
}

/* `i` is in an operation that waits for `whom`, a bit a member. */
#define WAITS(i, whom) waits(i, whom, __LINE__)
static void waits(int i, int whom, int line) {
  cr_expect(!zx_shm_idle(member[i]), "line %d: %d", line, i);
  for (int k = 0; k < THREE; k++)
    cr_expect_eq(zx_shm_late(member[i], k), whom >> k & 1, "line %d: %d for %d", line, i, k);
}

Test(shm, who_is_late_to_what) {
  make_three();
  for (int a = 0; a < THREE; a++) {
    int b = (a + 1) % THREE, c = (a + 2) % THREE;
    for (Kind kind = SUM_WHOLE; kind < KINDS; kind++) {
      begin(a, kind, 0);
      WAITS(a, 1 << b | 1 << c);
      begin(b, kind, 0);
      WAITS(a, 1 << c);
      WAITS(b, 1 << c);
      begin(c, kind, 0);
      cr_expect(zx_shm_idle(member[c]));
      WAITS(a, 0); /* it has only to look */
      goes_on(a);
      goes_on(b);
    }
    begin(a, SUM_LARGE, 0);
    WAITS(a, 1 << b | 1 << c);
    begin(b, SUM_LARGE, 0);
    WAITS(a, 1 << c);
    begin(c, SUM_LARGE, 0);
    WAITS(a, 0);
    WAITS(c, 1 << a | 1 << b); /* for their sums */
    goes_on(a);
    WAITS(a, 1 << b);
    WAITS(c, 1 << b);
    goes_on(b);
    cr_expect(zx_shm_idle(member[b]));
    WAITS(a, 0);
    goes_on(a);
    goes_on(c);
    begin(a, FROM, b); /* for nobody but the root, which waits for nobody */
    WAITS(a, 1 << b);
    begin(c, FROM, b);
    WAITS(c, 1 << b);
    begin(b, FROM, b);
    cr_expect(zx_shm_idle(member[b]));
    WAITS(a, 0);
    goes_on(a);
    goes_on(c);
  }
  free_three();
}

/* Two rounds are under way: the next one waits for those who have not taken the one before them. */
Test(shm, who_is_late_to_take) {
  static float x[THREE][4];
  make_three();
  for (int k = 0; k < 4; k++) x[1][k] = (float)(k + 1);
  for (int k = 0; k < 3; k++) zx_shm_broadcast(member[1], &x[1][k], 4, 1);
  cr_expect(zx_shm_done(member[1], 1) && !zx_shm_done(member[1], 2));
  WAITS(1, 1 << 0 | 1 << 2);
  for (int k = 0; k < 2; k++) zx_shm_broadcast(member[0], &x[0][k], 4, 1);
  WAITS(1, 1 << 2);
  zx_shm_broadcast(member[2], &x[2][0], 4, 1);
  WAITS(1, 0);
  goes_on(1);
  cr_expect(zx_shm_idle(member[1]));
  zx_shm_broadcast(member[1], &x[1][3], 4, 1);
  WAITS(1, 1 << 2);
  for (int k = 2; k < 4; k++) zx_shm_broadcast(member[0], &x[0][k], 4, 1);
  for (int k = 1; k < 4; k++) zx_shm_broadcast(member[2], &x[2][k], 4, 1);
  free_three();
  for (int i = 0; i < THREE; i++) cr_expect(!memcmp(x[i], x[1], sizeof x[i]), "member %d", i);
}

/* What is known of the others is that of the last among them. */
Test(shm, some_are_ahead) {
  make_three();
  for (int i = 0; i < THREE; i++)
    for (int k = 0; k < 2; k++) begin(i, GATHER, 0);
  cr_expect(zx_shm_idle(member[2]));
  for (int i = 0; i < 2; i++) goes_on(i);
  begin(0, GATHER, 0);
  begin(1, GATHER, 0);
  begin(1, GATHER, 0);
  WAITS(1, 1 << 2);
  begin(2, GATHER, 0);
  goes_on(1);
  WAITS(1, 1 << 0 | 1 << 2);
  goes_on(0);
  begin(0, GATHER, 0);
  begin(2, GATHER, 0);
  free_three();
}

/* One call sums and takes all that the others have. */
Test(shm, all_that_can_be_done_is_done) {
  make_three();
  for (int i = 0; i < THREE; i++)
    for (int k = 0; k < 2; k++) begin(i, SUM_LARGE, 0);
  goes_on(0);
  goes_on(1);
  cr_expect(zx_shm_idle(member[1]));
  goes_on(0);
  cr_expect(zx_shm_idle(member[0]));
  free_three();
}

Test(shm, the_first_to_ask_has_it) {
  make_three();
  cr_expect(zx_shm_claim(member[1]) && !zx_shm_claim(member[0]) && !zx_shm_claim(member[1]));
  free_three();
}

/* ---- the memory ---- */
/* A page or more of counters, and two slots a member, in which a round of all members has room. */
Test(shm, sizes) {
  cr_expect_eq(zx_shm_bytes(2), 4096 + 2 * 2 * 262144);
  cr_expect_eq(zx_shm_bytes(1000), 32 * 4096 + 1000 * 2 * 262144);
  cr_expect_eq(zx_shm_bytes(5000), 157 * 4096 + (size_t)5000 * 2 * 79 * 4096);
}

/* Of the file. */
static size_t real_bytes(const ZxShmFile *f) {
  struct stat st;
  cr_assert_eq(fstat(f->fd, &st), 0);
  return 512 * (size_t)st.st_blocks;
}

Test(shm, a_file_is_one_memory) {
  int before = open_files();
  ZxShmFile f = zx_shm_create(2);
  char *a = zx_shm_map(&f, 1);
  cr_expect_geq(real_bytes(&f), zx_shm_bytes(1));
  char *b = zx_shm_map(&f, 0);
  cr_expect_geq(real_bytes(&f), zx_shm_bytes(2));
  cr_assert(a && b && a != b);
  size_t last = zx_shm_bytes(2) - 1;
  cr_expect_eq(b[last], 0);
  a[last] = 7;
  zx_shm_close(&f);
  cr_expect_eq(b[last], 7);
  cr_expect_eq(open_files(), before);
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
  zx_shm_close(&g);
  cr_assert_eq(ftruncate(f.fd, 8), 0); /* not even a key */
  cr_expect_null(zx_shm_map(&f, 0));
  zx_shm_close(&f);
  cr_expect_null(zx_shm_map(&f, 0));
  g = zx_shm_create(2); /* under the same number */
  cr_expect(g.fd == f.fd && g.key != f.key);
  cr_expect_null(zx_shm_map(&f, 0));
  zx_shm_close(&g);
}

/* A terminal under that number does not become the one of this process. */
Test(shm, a_terminal_is_left_alone) {
  pid_t child = fork();
  int status;
  if (child == 0) {
    int other = setsid() < 0 ? -1 : posix_openpt(O_RDWR | O_NOCTTY);
    if (other < 0 || grantpt(other) || unlockpt(other)) _exit(2);
    ZxShmFile f = {.pid = getpid(), .fd = open(ptsname(other), O_RDWR | O_NOCTTY), .size = 2};
    _exit(f.fd < 0 || zx_shm_map(&f, 0) || open("/dev/tty", O_RDONLY) >= 0 || errno != ENXIO);
  }
  cr_assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) cr_skip_test("this system has no terminals");
  cr_expect_eq(WEXITSTATUS(status), 0);
}

Test(shm, memory_that_cannot_be_had) {
  int before = open_files();
  scratch_full_at(4096);
  ZxShmFile f = zx_shm_create(2);
  cr_expect_eq(f.fd, -1);
  cr_expect_eq(open_files(), before);
}
