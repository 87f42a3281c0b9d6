/* What this machine can do: the measured peak of matrix products, and which libraries and instructions do them. */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/cpu.h"

#define SIDE 384 /* three matrices of it fit a second-level cache */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
  double seconds;
  double *best; /* of each thread */
} Peak;

/* The best of repeated products, each long enough to time: what the machine can do when nobody disturbs it. */
static void run_peak(void *arg, int part, int parts) {
  (void)parts;
  const Peak *p = arg;
  float *x = calloc(2 * SIDE * SIDE, sizeof *x), *y = x + SIDE * SIDE; /* products are as fast on zeros */
  ZB_ASSERT(x != NULL);
  double best = 0, start = now(), before = start;
  while (before - start < p->seconds || best == 0) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, x, SIDE, x, SIDE, 0, y, SIDE);
    double after = now(), rate = 2.0 * SIDE * SIDE * SIDE / (after - before);
    if (rate > best) best = rate;
    before = after;
  }
  p->best[part] = best;
  free(x);
}

double zk_cpu_peak(const ZkEnv *env, int ms) {
  int threads = zk_threads(env);
  double best[threads], sum = 0;
  Peak p = {.seconds = ms * 1e-3, .best = best};
  if (env->pool) zk_pool_run(env->pool, run_peak, &p);
  else run_peak(&p, 0, 1);
  for (int i = 0; i < threads; i++) sum += best[i];
  return sum;
}

static const char *instructions(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return "avx512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
  return "sse2";
#else
  return "portable";
#endif
}

static char description[128]; /* made once, then constant */

static void describe(void) {
  const char *config = openblas_get_config(); /* "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." */
  size_t name = strcspn(config, " "), version = config[name] ? strcspn(config + name + 1, " ") + 1 : 0;
  snprintf(description, sizeof description, "%.*s %s, %s", (int)(name + version), config, openblas_get_corename(),
           instructions());
}

const char *zk_cpu_describe(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, describe);
  return description;
}
