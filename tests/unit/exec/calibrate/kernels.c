/* Constants of a device, found again in what its calls take. */
#include "runtime/plan/time/time.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>

/* The clock has nanoseconds: of a sample of 3 ms 3e-7, and ten times that of what is more than its launch. */
#define NEAR(x, y)                                                                                           \
  cr_expect_float_eq((x), (y), 1e-5 * fabs((double)(y)), "%s: %.9g instead of %.9g", #x, (double)(x),        \
                     (double)(y))

static ZxKernelRates measured(ZxTrials *t, const ZxMeasure *m) {
  ZbErr err = {0};
  ZxKernelRates k;
  cr_assert(zx_trials_open(t, m, &err));
  cr_assert(zx_measure_kernels(t, &k, &err));
  return k;
}

static ZxKernelRates measure(void) {
  ZxTrials t;
  ZxMeasure m = machine_measure();
  ZxKernelRates k = measured(&t, &m);
  zx_trials_close(&t);
  cr_expect_eq(machine.allocs, machine.frees);
  zb_arena_free(m.a);
  return k;
}

/* The peak is the best product's rate; what is a share of it is the machine's by its own peak. */
static void expect_constants(const ZxKernelRates *k, double slower) {
  const ZlCluster *c = &machine.is;
  double best = 2. * 512 * 1024 * 1024 / zp_product_seconds(c, ZK_F32, 512, 1024, 1024, 1, 0);
  NEAR(k->f32, best / slower);
  NEAR(k->f32 * k->products, c->flops_f32 * c->products / slower);
  NEAR(k->bf16 * k->products, c->flops_bf16 * c->products / slower);
  NEAR(k->tile_fill, c->tile_fill);
  NEAR(k->f32 * k->attention_f32, c->flops_f32 * c->attention_f32 / slower);
  NEAR(k->bf16 * k->attention, c->flops_bf16 * c->attention / slower);
  NEAR(k->attention_grad, c->attention_grad);
  NEAR(k->attention_fill, c->attention_fill);
  NEAR(k->stream, c->stream / slower);
  NEAR(k->cached, c->cached / slower);
  NEAR(k->simple, c->simple / slower);
  NEAR(k->special, c->special / slower);
  NEAR(k->update, c->update / slower);
  NEAR(k->launch, c->launch * slower);
}

Test(kernels, constants) {
  machine_start();
  ZxKernelRates k = measure();
  expect_constants(&k, 1);
}

/* Passes over 2^k blocks of this size each, as long as all of them are found. */
#define BLOCK (4. * (2 * 64 * 1024 + 1024))

Test(kernels, caches) {
  static const struct {
    double is, found; /* blocks */
  } sizes[] = {{.8, 1}, {2.1, 2}, {7, 4}, {8.1, 8}, {31.3, 16}, {31.7, 32}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    machine_start();
    machine.is.cache = sizes[i].is * BLOCK;
    ZxKernelRates k = measure();
    NEAR(k.cache, sizes[i].found * BLOCK);
    if (sizes[i].is > 1) NEAR(k.cached, machine.is.cached);
  }
}
