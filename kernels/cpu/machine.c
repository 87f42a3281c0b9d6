/* What this machine can do: the measured peak of matrix products, and which libraries and instructions
 * do them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/bgemm.h"

#define SIDE 384 /* three matrices of it fit a second-level cache */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
  double seconds;
  double *rate; /* of each thread */
} Peak;

/* Products of one size for a while: work over time, so that threads and ranks that share cores share the
 * peak too. */
static void run_peak(void *arg, int part, int parts) {
  (void)parts;
  const Peak *p = arg;
  float *x = calloc(2 * SIDE * SIDE, sizeof *x), *y = x + SIDE * SIDE; /* products are as fast on zeros */
  ZB_ASSERT(x != NULL);
  double start = 0, end = 0;
  long done = -1; /* the first one is to warm up */
  while (done < 1 || end - start < p->seconds) {
    zk_sgemm(false, false, SIDE, SIDE, SIDE, 1, x, SIDE, x, SIDE, 0, y, SIDE);
    end = now();
    if (++done == 0) start = end;
  }
  p->rate[part] = 2.0 * SIDE * SIDE * SIDE * (double)done / (end - start);
  free(x);
}

double zk_cpu_peak(const ZkEnv *env, int ms) {
  int threads = zk_threads(env);
  double rate[threads], sum = 0;
  Peak p = {.seconds = ms * 1e-3, .rate = rate};
  if (env->pool) zk_pool_run(env->pool, run_peak, &p);
  else run_peak(&p, 0, 1);
  for (int i = 0; i < threads; i++) sum += rate[i];
  return sum;
}

static const char *instructions(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  return "sse2";
#else
  return "portable";
#endif
}

static char description[256]; /* made once, then constant */

static void describe(void) {
  zk_sgemm_describe(description, sizeof description);
  size_t n = strlen(description);
  snprintf(description + n, sizeof description - n, ", %s, bf16 by %s", instructions(), zk_bgemm_text());
}

const char *zk_cpu_describe(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, describe);
  return description;
}
