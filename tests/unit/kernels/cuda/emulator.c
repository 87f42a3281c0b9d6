/* The emulator finds the mistakes that are planted in faults.cu. */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "kernels/cuda/cuda.h"
#include "tests/unit/kernels/conform.h"

void emu_reverse(ZkCuda *cu, const float *x, float *y, bool wait);
void emu_twice(ZkCuda *cu, float *y, bool wait);
void emu_fault(ZkCuda *cu, int which, float *y);
void emu_sums(ZkCuda *cu, float *y);

static bool reverses(int order, bool wait) {
  float x[64], y[64];
  ZkCuda *cu = zk_cuda_new(0, NULL);
  zk_cuda_emulate(order);
  for (int i = 0; i < 64; i++) x[i] = (float)i;
  emu_reverse(cu, x, y, wait);
  zk_cuda_free(cu);
  for (int i = 0; i < 64; i++)
    if (y[i] != (float)(63 - i)) return false;
  return true;
}

Test(emulator, barriers) {
  for (int order = 0; order < 5; order++) {
    cr_assert(reverses(order, true), "order %d", order);
    cr_assert(!reverses(order, false), "order %d did not show the missing barrier", order);
  }
}

/* A missing barrier after the last read shows where one warp runs ahead of the other. */
static bool twice(int order, bool wait) {
  float y[64];
  ZkCuda *cu = zk_cuda_new(0, NULL);
  zk_cuda_emulate(order);
  emu_twice(cu, y, wait);
  zk_cuda_free(cu);
  for (int i = 0; i < 64; i++)
    if (y[i] != 11 * 32) return false;
  return true;
}

Test(emulator, barriers_after_reading) {
  for (int order = 0; order < 5; order++) cr_assert(twice(order, true), "order %d", order);
  cr_assert(!twice(1, false) && !twice(3, false), "no order showed the missing barrier");
}

Test(emulator, sums) {
  float y[128 * 3];
  ZkCuda *cu = zk_cuda_new(0, NULL);
  for (int order = 0; order < 4; order++) {
    zk_cuda_emulate(order);
    emu_sums(cu, y);
    for (int t = 0; t < 128; t++) {
      int warp = t / 32 * 32, half = t / 16 * 16;
      EACH_ASSERT(y[3 * t] == (float)(32 * warp + 31 * 16), "warp of %d: %g", t, (double)y[3 * t]);
      EACH_ASSERT(y[3 * t + 1] == 127 * 64, "block: %g", (double)y[3 * t + 1]);
      EACH_ASSERT(y[3 * t + 2] == (float)(16 * half + 15 * 8), "half of %d: %g", t, (double)y[3 * t + 2]);
    }
  }
  zk_cuda_free(cu);
}

static void fault(int which) {
  _Alignas(16) float y[128] = {0};
  cr_assert(freopen("/dev/null", "w", stderr) != NULL); /* its complaint is expected */
  ZkCuda *cu = zk_cuda_new(0, NULL);
  emu_fault(cu, which, y);
}

Test(emulator, some_wait, .signal = SIGABRT) { fault(0); }
Test(emulator, two_barriers, .signal = SIGABRT) { fault(1); }
Test(emulator, lanes_missing, .signal = SIGABRT) { fault(2); }
Test(emulator, odd_vector, .signal = SIGABRT) { fault(3); }

Test(emulator, shared_memory_is_not_kept) {
  float y[128];
  ZkCuda *cu = zk_cuda_new(0, NULL);
  emu_fault(cu, 4, y);
  zk_cuda_free(cu);
  for (int i = 0; i < 64; i++) cr_assert(y[i] == 1 && isnan(y[64 + i]));
}
