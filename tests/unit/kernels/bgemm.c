/* Products of bf16 matrices by vdpbf16ps, and how they are cut. bgemm_amx.c: by AMX; bgemm_dot.c: the op. */
#define _GNU_SOURCE
#include "tests/unit/breadth.h"
#include "tests/unit/kernels/bgemm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cpu/bgemm.h"

/* Criterion sends a message for every assertion, passed ones too: too many of them. */
#define MUST(cond, ...)                                                                                      \
  do {                                                                                                       \
    if (!(cond)) cr_assert_fail(__VA_ARGS__);                                                                \
  } while (0)

void use_path(const char *name) {
  const ZkBgemmPath *const paths[] = {&zk_bgemm_avx512, &zk_bgemm_amx};
  const char *const names[] = {"avx512", "amx"};
  for (int i = 0; i < 2; i++)
    if (strcmp(name, names[i]) == 0) {
      if (!paths[i]->here()) cr_skip_test("no %s here", paths[i]->text);
      zk_bgemm_use(paths[i]);
      return;
    }
  zk_bgemm_use(NULL);
}

const void *swap_path(const void *path) {
  const void *old = zk_bgemm_path();
  zk_bgemm_use(path);
  return old;
}

/* ---- exact products ------------------------------------------------------------------------------ */

#define MARK 0x5a
typedef struct {
  char *map, *data;
  size_t size, bytes;
} Memory;

/* `bytes` whose end is the end of what may be touched; before them, marks. */
static Memory memory_new(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = zb_round_up(bytes + 256, page);
  Memory m = {.size = size + page, .bytes = bytes};
  m.map = mmap(NULL, m.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert(m.map != MAP_FAILED);
  mprotect(m.map + size, page, PROT_NONE);
  memset(m.map, MARK, size);
  m.data = m.map + size - bytes;
  return m;
}
static void memory_free(Memory *m) { munmap(m->map, m->size); }
static bool memory_intact(const Memory *m) {
  for (const char *p = m->map; p < m->data; p++)
    if (*p != MARK) return false;
  return true;
}

/* A whole number from -4 to 4. */
static float whole(uint32_t what, int64_t i, int64_t j) {
  uint32_t h = what * 0x9e3779b9u + (uint32_t)i * 0x85ebca6bu + (uint32_t)j * 0xc2b2ae35u;
  h = (h ^ h >> 15) * 0x2c1b3c6du;
  return (float)((h ^ h >> 13) % 9) - 4;
}

typedef struct {
  int64_t m, n, k, pad; /* pad: elements between the rows of the result that are not its own */
  bool ta, tb, add;
  ZkElem elem;
} Exact;

static Memory operand(uint32_t what, int64_t rows, int64_t cols, bool trans) {
  Memory mem = memory_new((size_t)(rows * cols) * 2);
  uint16_t *x = (uint16_t *)mem.data;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      x[trans ? j * rows + i : i * cols + j] = zb_f32_to_bf16(whole(what, i, j));
  return mem;
}

static void check_row(const Exact *e, const Memory *c, const char *where, int64_t i, const float *b,
                      float *sum) {
  ZkView v = {.data = c->data, .elem = (uint8_t)e->elem};
  int64_t ldc = e->n + e->pad;
  for (int64_t j = 0; j < e->n; j++) sum[j] = e->add ? whole(3, i, j) : 0;
  for (int64_t l = 0; l < e->k; l++) {
    float a = whole(1, i, l);
    for (int64_t j = 0; j < e->n; j++) sum[j] += a * b[l * e->n + j];
  }
  for (int64_t j = 0; j < (i + 1 < e->m ? ldc : e->n); j++) {
    float got = zk_get(&v, i * ldc + j);
    float want = j >= e->n ? -77 : e->elem == ZK_BF16 ? zb_bf16_to_f32(zb_f32_to_bf16(sum[j])) : sum[j];
    MUST(got == want, "%s: element %lld, %lld is %g, not %g", where, (long long)i, (long long)j, got, want);
  }
}

static void check(const Exact *e, const Memory *c, const char *where) {
  float *sum = malloc((size_t)(e->n + e->k * e->n) * sizeof *sum), *b = sum + e->n;
  for (int64_t l = 0; l < e->k; l++)
    for (int64_t j = 0; j < e->n; j++) b[l * e->n + j] = whole(2, l, j);
  for (int64_t i = 0; i < e->m; i++) check_row(e, c, where, i, b, sum);
  free(sum);
}

static void exact(const ZkEnv *env, const Exact *e) {
  char where[128];
  snprintf(where, sizeof where, "%s: %lld x %lld x %lld%s%s, %s%s", zk_bgemm_text(), (long long)e->m,
           (long long)e->n, (long long)e->k, e->ta ? ", a across" : "", e->tb ? ", b along" : "",
           e->elem == ZK_BF16 ? "bf16" : "f32", e->add ? ", added" : "");
  Memory a = operand(1, e->m, e->k, e->ta), b = operand(2, e->k, e->n, e->tb);
  int64_t ldc = e->n + e->pad;
  Memory c = memory_new((size_t)(e->m * ldc - e->pad) * zk_plain_bytes(e->elem));
  ZkView v = {.data = c.data, .elem = (uint8_t)e->elem};
  for (int64_t i = 0; i < e->m * ldc - e->pad; i++)
    zk_set(&v, i, i % ldc >= e->n ? -77 : e->add ? whole(3, i / ldc, i % ldc) : NAN);
  ZkBgemm g = zk_bgemm_plain(e->m, e->n, e->k, (ZkPlain){a.data, e->ta ? e->m : e->k, e->ta},
                             (ZkPlain){b.data, e->tb ? e->k : e->n, e->tb}, (ZkPlain){c.data, ldc, false},
                             e->elem, e->add);
  Memory scratch = memory_new(zb_round_up(zk_bgemm_scratch(&g, zk_threads(env)), 64));
  memset(scratch.data, 0xff, scratch.bytes);
  zk_bgemm(env, &g, scratch.data);
  check(e, &c, where);
  MUST(memory_intact(&a) && memory_intact(&b) && memory_intact(&c) && memory_intact(&scratch),
       "%s: wrote outside", where);
  memory_free(&a);
  memory_free(&b);
  memory_free(&c);
  memory_free(&scratch);
}

void exact_products(const ZkEnv *env, int64_t m, int64_t n, int64_t k) {
  for (int way = 0; way < 16; way++)
    exact(env, &(Exact){.m = m,
                        .n = n,
                        .k = k,
                        .ta = way & 1,
                        .tb = way & 2,
                        .add = way & 4,
                        .elem = way & 8 ? ZK_BF16 : ZK_F32,
                        .pad = way % 3});
}

static const int64_t awkward[] = {1, 2, 11, 12, 13, 15, 16, 17, 31, 32, 33, 63, 65, 97};
#define AWKWARD ((int)(sizeof awkward / sizeof *awkward))

/* Every m with every n and some k, and every k. */
static void awkward_sizes(const ZkEnv *env) {
  for (int i = 0; i < AWKWARD; i++)
    for (int j = 0; j < AWKWARD; j++) exact_products(env, awkward[i], awkward[j], awkward[(i + j) % AWKWARD]);
}

Test(bgemm, avx512) {
  use_path("avx512");
  ZkEnv alone = {0};
  awkward_sizes(&alone);
}

/* Several blocks of k, several rounds of columns, rows and k. */
Test(bgemm, rounds) {
  use_path("avx512");
  ZkEnv env = {.pool = zk_pool_new(3)};
  exact_products(&env, 2, 35, 2049);
  exact_products(&env, 2, 4000, 600);
  if (at_night()) {
    exact_products(&env, 2, 5, 40003);
    exact_products(&env, 1100, 3, 2000);
    exact_products(&env, 4, 1100, 4200);
  }
  zk_pool_free(env.pool);
}

/* ---- what must not depend on threads or machines -------------------------------------------------- */

static void product(int threads, const uint16_t *a, const uint16_t *b, float *c) {
  ZkEnv env = {.pool = zk_pool_new(threads)};
  ZkBgemm g = zk_bgemm_plain(300, 500, 3000, (ZkPlain){(void *)a, 300, true},
                             (ZkPlain){(void *)b, 500, false}, (ZkPlain){c, 500, false}, ZK_F32, false);
  void *scratch = aligned_alloc(64, zk_bgemm_scratch(&g, threads));
  zk_bgemm(&env, &g, scratch);
  free(scratch);
  zk_pool_free(env.pool);
}

Test(bgemm, threads_change_nothing) {
  use_path("avx512");
  uint16_t *a = malloc(300 * 3000 * 2), *b = malloc(500 * 3000 * 2);
  float *one = malloc(300 * 500 * 4), *many = malloc(300 * 500 * 4);
  for (int i = 0; i < 300 * 3000; i++) a[i] = zb_f32_to_bf16((float)zb_random_normal(1, 1, (uint64_t)i));
  for (int i = 0; i < 500 * 3000; i++) b[i] = zb_f32_to_bf16((float)zb_random_normal(1, 2, (uint64_t)i));
  product(1, a, b, one);
  for (int threads = 2; threads <= 5; threads++) {
    product(threads, a, b, many);
    cr_assert(memcmp(one, many, 300 * 500 * 4) == 0, "%d threads give other bits than one", threads);
  }
  free(a);
  free(b);
  free(one);
  free(many);
}

Test(bgemm, scratch_is_the_same_by_every_path) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  c.in[0] = (ZkView){NULL, ZK_BF16, 2, 0, {'m', 'k'}, {700, 3001}, {3001, 1}, {0}, {700, 3001}};
  c.in[1] = (ZkView){NULL, ZK_BF16, 2, 0, {'k', 'n'}, {3001, 900}, {900, 1}, {0}, {3001, 900}};
  c.out[0] = (ZkView){NULL, ZK_BF16, 2, 0, {'m', 'n'}, {700, 900}, {900, 1}, {0}, {700, 900}};
  zk_bgemm_use(NULL);
  size_t bytes = zk_cpu_scratch(&c, 4);
  zk_bgemm_use(&zk_bgemm_avx512);
  cr_assert_eq(zk_cpu_scratch(&c, 4), bytes);
  zk_bgemm_use(&zk_bgemm_amx);
  cr_assert_eq(zk_cpu_scratch(&c, 4), bytes);
}
