/* The CPU's kernels as a back end, with 1 and 3 threads. */
#include "tests/unit/kernels/conform.h"

static bool lacks(int op) {
  (void)op;
  return false;
}

static int open_pool(ZkEnv *env, int way) {
  int threads = way == 0 ? 1 : 3;
  env->pool = zk_pool_new(threads);
  return threads;
}

static void close_pool(ZkEnv *env) { zk_pool_free(env->pool); }

const Backend backend = {.name = "cpu",
                         .kernel = zk_cpu_kernel,
                         .scratch = zk_cpu_scratch,
                         .lacks = lacks,
                         .ways = 2,
                         .open = open_pool,
                         .close = close_pool};
