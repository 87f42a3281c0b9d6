/* The CPU's kernels as a back end, with 1 and 3 threads, and with 3 that take turns. */
#include "kernels/cpu/cpu.h"
#include "tests/unit/kernels/conform.h"

/* Threads share out work as they are quick, and what is less than `grain` not at all. Here every part gets
 * some, always the same: a piece or two at a time, the last first. Linked with --wrap=zk_for. */
static ZkPool *turns;
void __real_zk_for(const ZkEnv *env, int64_t n, int64_t grain, ZkForFn *fn, void *arg);
void __wrap_zk_for(const ZkEnv *env, int64_t n, int64_t grain, ZkForFn *fn, void *arg);
void __wrap_zk_for(const ZkEnv *env, int64_t n, int64_t grain, ZkForFn *fn, void *arg) {
  if (!env->pool || env->pool != turns) {
    __real_zk_for(env, n, grain, fn, arg);
    return;
  }
  for (int64_t to = n, from, piece = 0; to > 0; to = from, piece++) {
    from = zk_max(0, to - 1 - piece % 2);
    fn(arg, from, to, (int)(2 - piece % 3));
  }
}

/* Whatever is shared out is done once, and shares follow each other. */
typedef struct {
  _Atomic int times[1000];
} Done;
static void note(void *arg, int64_t from, int64_t to, int part) {
  Done *d = arg;
  (void)part;
  for (int64_t i = from; i < to; i++) d->times[i]++;
}
Test(pool, every_index_once) {
  static const int64_t sizes[] = {1, 2, 7, 16, 63, 1000}, grains[] = {1, 3, 500};
  for (int threads = 1; threads <= 4; threads++) {
    ZkEnv env = {.pool = zk_pool_new(threads)};
    for (size_t k = 0; k < 18; k++) {
      int64_t n = sizes[k / 3], grain = grains[k % 3];
      Done d = {0};
      zk_for(&env, n, grain, note, &d);
      for (int64_t i = 0; i < n; i++)
        cr_assert(d.times[i] == 1, "%d threads, %lld by %lld: %lld is done %d times", threads, (long long)n,
                  (long long)grain, (long long)i, d.times[i]);
      cr_assert(zk_for_share(&env, n, grain, 0) == 0 && zk_for_share(&env, n, grain, threads) == n);
      for (int i = 0; i < threads; i++)
        cr_assert(zk_for_share(&env, n, grain, i) <= zk_for_share(&env, n, grain, i + 1));
    }
    zk_pool_free(env.pool);
  }
}

static bool lacks(int op) {
  (void)op;
  return false;
}

static int open_pool(ZkEnv *env, int way) {
  int threads = way == 0 ? 1 : 3;
  env->pool = zk_pool_new(threads);
  turns = way == 2 ? env->pool : NULL;
  return threads;
}

static void close_pool(ZkEnv *env) {
  zk_pool_free(env->pool);
  turns = NULL;
}

const Backend backend = {.name = "cpu",
                         .kernel = zk_cpu_kernel,
                         .scratch = zk_cpu_scratch,
                         .lacks = lacks,
                         .ways = 3,
                         .also = residues_agree,
                         .open = open_pool,
                         .close = close_pool};

Test(table, what_is_no_op_has_no_kernel) {
  cr_expect_null(zk_cpu_kernel(-1));
  cr_expect_null(zk_cpu_kernel(ZG_OP_COUNT));
  cr_expect_null(zk_cpu_kernel(ZG_OP_PARAM));
  cr_expect_not_null(zk_cpu_kernel(ZG_OP_DOT));
}

/* Later keys score higher, over more keys than a tile of the CPU's holds (256): what was summed must
 * shrink. */
Test(attend, beyond_a_tile_of_keys) {
  double k[300 * 4];
  for (int i = 0; i < 300 * 4; i++) k[i] = (double)(i / 4) / 50 + (double)(i % 7) / 4;
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "s=300 d=4", .ax = "sd", .num = {0.5}, .opt = {mask},
            .in = {{"sd", REAL, 0.5, 1, NULL}, {"sd", .value = k}, {"sd"}}, .out = {{"sd"}, {"s", EXACT}},
            .tol = 5e-6, .half_tol = 0x1p-6); /* as in attend.c */
}
