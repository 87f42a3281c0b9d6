/* A rank's threads, and what the CPU is said to be. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "tests/unit/kernels/conform.h"

/* ---- threads ------------------------------------------------------------------------------------------- */
static void count_part(void *arg, int part, int parts) {
  int *seen = arg;
  seen[part]++;
  seen[7] = parts;
}

Test(pool, every_part_once) {
  for (int threads = 1; threads <= 5; threads++) {
    ZkPool *p = zk_pool_new(threads);
    cr_assert(zk_pool_threads(p) == threads);
    for (int round = 0; round < 200; round++) {
      int seen[8] = {0};
      zk_pool_run(p, count_part, seen);
      for (int i = 0; i < 5; i++)
        EACH_ASSERT(seen[i] == (i < threads), "part %d of %d ran %d times", i, threads, seen[i]);
    }
    zk_pool_free(p);
  }
}

/* Signals are the main thread's business. */
static void note_signals(void *arg, int part, int parts) {
  sigset_t blocked;
  (void)parts;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  ((bool *)arg)[part] = sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGUSR1) == 1;
}

Test(pool, signals) {
  bool blocked[3] = {true};
  ZkPool *pool = zk_pool_new(3);
  zk_pool_run(pool, note_signals, blocked);
  cr_expect(!blocked[0] && blocked[1] && blocked[2]);
  zk_pool_free(pool);
}

Test(pool, threads_that_cannot_be_started) { /* nobody has so much memory for their stacks */
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  cr_assert(pthread_attr_setstacksize(&attr, (size_t)1 << 46) == 0 && pthread_setattr_default_np(&attr) == 0);
  cr_expect_null(zk_pool_new(3));
  zk_pool_free(NULL);
}

#ifndef __SANITIZE_ADDRESS__ /* which takes address space of its own */
/* OpenBLAS would try for ever to get its buffers: that they cannot be had is said before. */
Test(machine, room_for_products) {
  const ZkEnv alone = {0}, env = {.pool = zk_pool_new(3)};
  cr_expect_null(zk_cpu_take(&alone));
  cr_expect_null(zk_cpu_take(&env));
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  cr_assert(f && fscanf(f, "%ld", &pages) == 1);
  fclose(f);
  struct rlimit limit;
  cr_assert(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (200u << 20); /* one buffer, not three */
  cr_assert(setrlimit(RLIMIT_AS, &limit) == 0);
  cr_expect_null(zk_cpu_take(&alone));
  const char *lacks = zk_cpu_take(&env);
  cr_expect(lacks && strstr(lacks, "128 MiB of address space"), "%s", lacks ? lacks : "nothing is said");
  zk_pool_free(env.pool);
}
#endif

/* ---- the machine --------------------------------------------------------------------------------------- */
Test(machine, speed) {
  const ZkEnv env[] = {{0}, {.pool = zk_pool_new(1)}};
  for (int i = 0; i < 2; i++) {
    for (ZkElem e = ZK_F32; e <= ZK_BF16; e++) {
      double peak = zk_cpu_measure_flops(&env[i], e, 20);
      cr_assert(peak > 1e8 && peak < 1e14, "%g", peak);
    }
    zk_pool_free(env[i].pool);
  }
}

#if defined(__x86_64__)
/* Whether the kernel says that this CPU has all of these. */
static bool has_all(const char *const *words) {
  char line[8192] = "";
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5)) continue;
  if (f) fclose(f);
  line[strcspn(line, "\n")] = ' ';
  for (; *words; words++)
    if (!strstr(line, *words)) return false;
  return true;
}

Test(machine, instructions) {
  static const char *const v3[] = {" avx2 ", " fma ", " bmi1 ", " bmi2 ", " f16c ", " abm ", " movbe ", NULL};
  static const char *const v4[] = {" avx512f ", " avx512dq ", " avx512bw ", " avx512vl ", " avx512cd ", NULL};
  cr_expect_eq(zk_cpu_has(ZK_X86_V3), has_all(v3));
  cr_expect_eq(zk_cpu_has(ZK_X86_V4), has_all(v4));
  const char *text = zk_cpu_describe();
  cr_expect(strstr(text, has_all(v4)   ? ", avx512, bf16 by "
                         : has_all(v3) ? ", avx2, bf16 by "
                                       : ", sse2, bf16 by "),
            "%s", text);
  cr_expect(strncmp(text, "OpenBLAS ", 9) == 0, "%s", text);
}
#endif
