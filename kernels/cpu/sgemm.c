/* f32 matrix products on one thread, by the library that is faster for the shape and the CPU.
 *
 * Measured, GFLOP/s on one core: EPYC (Zen 4) from 128^3 on oneDNN 104-116, OpenBLAS 100-107; products of up
 * to about 64^3 OpenBLAS 110-117 by its kernels that do not pack, oneDNN 76-108.
 * Xeon (Sapphire Rapids) 1024 x 3072 x 768: 118, 124; 256 x 1024 x 256: 123, 114.
 * EPYC (Zen 3, no AVX-512) 70 shapes: oneDNN 1.0 to 1.4 times as fast, but where it goes along k through rows
 * that lie 1024, 512 or 256 elements apart (their multiples, too): there 0.5, 0.75 and 1.0 times.
 *
 * The choice depends on nothing but shape and CPU, so that a run gives the same bits again. */
#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/cpu/cpu.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
void omp_set_num_threads(int n); /* omp.h is only there with the compiler's OpenMP */

static int64_t small, large; /* m n k in [small, large) is oneDNN's */
static int64_t apart = 1;    /* but not where rows along k lie a multiple of so many elements apart */

static void choose(void) {
  if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_OMP && dnnl_version()->cpu_runtime != DNNL_RUNTIME_SEQ)
    return; /* a pool that we could not keep to one thread */
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return; /* oneDNN's kernels for older ones are not tuned */
  small = 700 * 1000;
  large = __builtin_cpu_is("intel") ? 1 << 28 : INT64_MAX;
  apart = __builtin_cpu_supports("avx512f") ? INT64_MAX : 256;
#endif
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* rows: what lies between those of a (of b) that are gone through along k; 1: it lies along k itself. */
static bool by_dnnl(int64_t work, int64_t rows_a, int64_t rows_b) {
  static _Thread_local bool ready;
  if (!ready) {
    pthread_once(&once, choose);
    omp_set_num_threads(1); /* of products that this thread starts: the rank's pool is the only one */
    ready = true;
  }
  return work >= small && work < large && rows_a % apart != 0 && rows_b % apart != 0;
}

void zk_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
              const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  if (by_dnnl(m * n * k, ta ? lda : 1, tb ? 1 : ldb)) {
    dnnl_status_t rc =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    ZB_ASSERT(rc == dnnl_success);
    return;
  }
#else
void zk_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
              const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
#endif
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n,
              (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* ---- what OpenBLAS keeps for itself -----------------------------------------------------------------------
 * A buffer for each thread that multiplies, taken at the first product. Where that cannot be had, its
 * allocation tries for ever (0.3.21, memory.c): so it is tried here before, and then taken. Only a part of a
 * buffer is ever touched. */
enum { BUFFER = (128 << 20) + (1 << 20) };
void *blas_memory_alloc(int) __attribute__((weak)); /* exported, though in no header */
void blas_memory_free(void *) __attribute__((weak));

static void multiply(void *arg, int part, int parts) {
  enum { N = 96 };
  static const float x[N * N];
  float y[N * N];
  (void)arg, (void)part, (void)parts;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1, x, N, x, N, 0, y, N);
}

const char *zk_cpu_take(const ZkEnv *env) {
  int threads = zk_threads(env);
  size_t bytes = (size_t)threads * BUFFER;
  void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) return "the 128 MiB of address space that OpenBLAS wants for each thread";
  munmap(probe, bytes);
  void **buffer = calloc((size_t)threads, sizeof *buffer);
  for (int i = 0; buffer && blas_memory_alloc && i < threads; i++) buffer[i] = blas_memory_alloc(0);
  for (int i = 0; buffer && blas_memory_alloc && i < threads; i++) blas_memory_free(buffer[i]);
  free(buffer);
  if (env->pool) zk_pool_run(env->pool, multiply, NULL);
  return NULL;
}

void zk_sgemm_describe(char *text, size_t size) {
  const char *config = openblas_get_config(); /* "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." */
  size_t name = strcspn(config, " "), version = config[name] ? strcspn(config + name + 1, " ") + 1 : 0;
  int n = snprintf(text, size, "%.*s %s", (int)(name + version), config, openblas_get_corename());
#ifdef HAVE_DNNL
  if (by_dnnl(1 << 27, 1, 1) && n > 0 && (size_t)n < size)
    snprintf(text + n, size - (size_t)n, " and oneDNN %d.%d.%d", dnnl_version()->major, dnnl_version()->minor,
             dnnl_version()->patch);
#else
  (void)n;
#endif
}
