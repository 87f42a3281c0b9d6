/* What this machine can do: the measured peak of matrix products, and which libraries and instructions
 * do them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cpu/bgemm.h"

#define SIDE 384 /* three matrices of it fit a second-level cache */

typedef struct {
  double seconds;
  bool half;
  double *rate; /* of each thread */
} Peak;

/* One product of SIDE x SIDE matrices in memory `x`, as dot would make it. */
static void multiply_f32(float *x) {
  zk_sgemm(false, false, SIDE, SIDE, SIDE, 1, x, SIDE, x, SIDE, 0, x + SIDE * SIDE, SIDE);
}
static ZkBgemm half_product(uint16_t *x) {
  ZkPlain in = {x, SIDE, false}, out = {x + SIDE * SIDE, SIDE, false};
  return zk_bgemm_plain(SIDE, SIDE, SIDE, in, in, out, ZK_BF16, false);
}

/* Products of one size for a while: work over time, so that threads and ranks that share cores share the
 * peak too. */
static void run_peak(void *arg, int part, int parts) {
  (void)parts;
  static const ZkEnv alone;
  const Peak *p = arg;
  ZkBgemm g = half_product(NULL);
  size_t matrices = 2 * SIDE * SIDE * sizeof(float), more = p->half ? zk_bgemm_scratch(&g, 1) : 0;
  char *x = aligned_alloc(64, zb_round_up(matrices + more, 64));
  ZB_ASSERT(x != NULL);
  memset(x, 0, matrices + more); /* products are as fast on zeros */
  g = half_product((uint16_t *)(void *)x);
  double start = 0, end = 0;
  long done = -1; /* the first one is to warm up */
  while (done < 1 || end - start < p->seconds) {
    if (p->half) zk_bgemm(&alone, &g, x + matrices);
    else multiply_f32((float *)(void *)x);
    end = zb_now();
    if (++done == 0) start = end;
  }
  p->rate[part] = 2.0 * SIDE * SIDE * SIDE * (double)done / (end - start);
  free(x);
}

double zk_cpu_measure_flops(const ZkEnv *env, ZkElem elem, int ms) {
  int threads = zk_threads(env);
  double rate[threads], sum = 0;
  Peak p = {.seconds = ms * 1e-3, .half = elem == ZK_BF16 && zk_bgemm_here(), .rate = rate};
  if (env->pool) zk_pool_run(env->pool, run_peak, &p);
  else run_peak(&p, 0, 1);
  for (int i = 0; i < threads; i++) sum += rate[i];
  return sum;
}

bool zk_cpu_has(ZkX86 level) {
#if !defined(__x86_64__)
  return (void)level, false;
#else
  bool v4 = level == ZK_X86_V4;
  __builtin_cpu_init();
#ifdef __clang__ /* knows no levels by name */
  return v4 ? __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq")
            : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return v4 ? __builtin_cpu_supports("x86-64-v4") : __builtin_cpu_supports("x86-64-v3");
#endif
#endif
}

static const char *instructions(void) {
#if defined(__x86_64__)
  return zk_cpu_has(ZK_X86_V4) ? "avx512" : zk_cpu_has(ZK_X86_V3) ? "avx2" : "sse2";
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
