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

/* Also with noise, and as what the slowest rank takes. */
Test(kernels, constants) {
  for (int i = 0; i < 3; i++) {
    machine_start();
    machine.noisy = i == 1;
    machine.slower = i == 2 ? 1.25 : 1;
    ZxKernelRates k = measure();
    expect_constants(&k, machine.slower);
  }
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
  machine_start();
  machine.is.cached = machine.is.stream / 2; /* no faster than memory */
  ZxKernelRates k = measure();
  NEAR(k.cached, machine.is.stream);
  NEAR(k.cache, BLOCK);
}

/* ---- times that no constants say, as on a machine that does other things ---- */
static double factor;
static double long_ones(const ZkCall *c, double seconds) {
  return c->op == ZG_OP_ATTEND && c->in[0].size[1] == 512 ? seconds * factor : seconds;
}
static double large_ones(const ZkCall *c, double seconds) {
  double n = (double)(c->in[0].size[0] * c->in[0].size[1] * c->out[0].size[1]);
  return c->op == ZG_OP_DOT ? 1e-12 * n * sqrt(n) : seconds;
}

static double small_ones(const ZkCall *c, double seconds) {
  return c->op == ZG_OP_POINTWISE && c->in[0].size[0] <= 64 ? factor : seconds;
}

/* A launch that seems to take longer than what is launched: no rate is negative or endless for it. */
Test(kernels, launches) {
  for (factor = 1e-5; factor < 1; factor *= 100) {
    machine_start();
    machine.takes = small_ones;
    ZxKernelRates k = measure();
    double all[] = {k.f32,           k.bf16,           k.products,       k.tile_fill, k.attention,
                    k.attention_f32, k.attention_grad, k.attention_fill, k.stream,    k.cached,
                    k.cache,         k.simple,         k.special,        k.update,    k.launch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
      cr_expect(all[i] >= 0 && isfinite(all[i]), "a launch of %g s: value %zu is %g", factor, i, all[i]);
    cr_expect(k.simple > 0 && k.special > 0 && k.update > 0 && k.stream > 0 && k.cached > 0);
  }
}

Test(kernels, fills) {
  double flops = 4. * 4 * 64 * 512 * 512 / 2;
  machine_start();
  machine.takes = long_ones;
  factor = .25; /* no longer than four times as long as a quarter of the positions: by these alone, then */
  ZxKernelRates k = measure();
  double is = flops * (1 + 16. * 512 / (512 * 512 / 2)) / (machine.is.flops_f32 * machine.is.attention_f32);
  double whole = factor * (is + machine.is.launch) - machine.is.launch;
  NEAR(k.f32 * k.attention_f32, flops / whole);
  cr_expect_eq(k.attention_fill, 0);
  machine_start();
  machine.takes = long_ones;
  factor = 3; /* longer than pairs say */
  k = measure();
  cr_expect_eq(k.attention_fill, 0);
  cr_expect(k.attention_f32 > 0 && isfinite(k.attention_f32));
  machine_start();
  machine.takes = large_ones;
  k = measure();
  cr_expect_eq(k.tile_fill, 0);
  cr_expect(k.products > 0 && isfinite(k.products) && k.bf16 > 0 && isfinite(k.bf16));
}

/* ---- trials ---- */
/* Each is run twice to know how long it takes, then for 3 ms in each of 15 rounds; windows are gone through
 * once before. */
Test(kernels, trials) {
  ZxTrials t;
  machine_start();
  ZxMeasure m = machine_measure();
  measured(&t, &m);
  cr_expect_eq(machine.barriers, 15 * t.n);
  cr_expect_eq(machine.nran, t.n - 1);
  uint64_t updates = 0;
  int walks = 0, products[3] = {0};
  for (uint32_t i = 0; i < t.n; i++) {
    const ZxTrial *x = &t.trial[i];
    const Ran *r = NULL;
    uint64_t runs = 15 * (uint64_t)(x->before + x->calls) + 2 * (uint64_t)(x->before + 1);
    for (uint32_t k = 0; k < machine.nran; k++)
      if (machine.ran[k].call == &x->call) r = &machine.ran[k];
    /* One call of 2 us says it to 1 ns. Those whose operands move on find less of them the first time. */
    double few = x->calls - 3e-3 / x->seconds;
    if (x->before) cr_expect(x->calls == 1 || (few > -2 && few < 2), "%d calls of trial %u", x->calls, i);
    cr_expect(few < 2 && x->calls * x->seconds > 1.5e-3, "%d calls of trial %u", x->calls, i);
    if (!r) {
      updates += runs;
      continue;
    }
    cr_expect_eq(r->runs, runs, "%zu runs of trial %u", r->runs, i);
    if (x->call.op == ZG_OP_DOT) cr_expect_eq(x->window, 4 << 20); /* where a step's operands lie */
    if (x->call.op == ZG_OP_DOT) products[x->call.ax[0] == 'k' ? 0 : x->call.ax[0] == 'n' ? 1 : 2]++;
    if (x->call.op == ZG_OP_ATTEND) cr_expect_lt(x->window, 8 * r->of_call); /* as what was just made */
    if (x->stays) cr_expect(r->places == 1 && x->before == 1);
    if (x->window) cr_expect(r->in_end <= x->window && r->out_end <= x->window, "trial %u", i);
    if (x->window && x->before) { /* all of it */
      cr_expect(r->places == 1 << walks && x->before == 1 << walks, "%d places of trial %u", r->places, i);
      cr_expect_eq(r->in_end, x->window);
      cr_expect_gt(r->out_end + 512 * 1024, x->window);
      walks++;
    }
    if (x->window && !x->before && 2 * r->of_call < x->window) cr_expect(r->places > 1, "trial %u stays", i);
  }
  cr_expect_eq(machine.updates, updates);
  cr_expect_eq(walks, 6);
  for (int i = 0; i < 3; i++) cr_expect_eq(products[i], 2 * 5); /* x w, g w' and x' g, in both types */
  zx_trials_close(&t);
  zb_arena_free(m.a);
}

/* It is what the file says of how it measured. */
Test(kernels, shapes) {
  ZxTrials t;
  int attends[2] = {0}, sums[3] = {0}, chains = 0;
  machine_start();
  ZxMeasure m = machine_measure();
  measured(&t, &m);
  for (uint32_t i = 0; i < t.n; i++) {
    const ZkCall *c = &t.trial[i].call;
    const int64_t *size = c->in[0].size;
    if (c->op == ZG_OP_ATTEND || c->op == ZG_OP_ATTEND_GRAD) {
      cr_expect(size[0] == 4 && (size[1] == 128 || size[1] == 512) && size[2] == 64);
      attends[size[1] == 512]++;
    }
    if (c->op != ZG_OP_POINTWISE) continue;
    if (c->pointwise->nops > 1) chains += size[0] == 2048 && c->pointwise->nops == 16;
    else if (c->in[0].rank == 2) sums[0] += size[0] == 64 && size[1] == 1024;
    else sums[size[0] == 64 ? 1 : 2] += size[0] == 64 || size[0] * 4 == 16 << 20;
  }
  cr_expect(attends[0] == 4 && attends[1] == 4 && sums[0] == 6 && sums[1] == 1 && sums[2] == 1 &&
            chains == 2);
  cr_expect_eq(t.trial[t.n - 1].updates, 4 << 20);
  zx_trials_close(&t);
  zb_arena_free(m.a);
}

/* Three rounds at least; no more behind 10 s, by the slowest rank's clock. */
Test(kernels, busy) {
  static const int slower[] = {1000, 8};
  for (int i = 0; i < 2; i++) {
    ZxTrials t;
    machine_start();
    machine.slower = slower[i];
    ZxMeasure m = machine_measure();
    measured(&t, &m);
    uint64_t rounds = machine.barriers / t.n;
    const Reduced *began = &machine.reduced[t.n]; /* behind how long each takes */
    if (i == 0) cr_expect_eq(rounds, 3);
    else cr_expect(rounds > 4 && rounds < 15, "%zu rounds", rounds);
    for (uint64_t r = 3; r <= rounds; r++) cr_expect_eq(began[r - 3].value >= 10, r == rounds);
    cr_expect_eq(machine.nreduced, t.n + rounds - 2 + t.n);
    zx_trials_close(&t);
    zb_arena_free(m.a);
  }
}

/* Numbers about 1, in both types; results and states are nothing. */
Test(kernels, memory) {
  ZxTrials t;
  ZbErr err = {0};
  machine_start();
  ZxMeasure m = machine_measure();
  cr_assert(zx_trials_open(&t, &m, &err));
  for (size_t i = 0, n = t.bytes[0] / 4; i < n; i += i < 5000 || i > n - 5000 ? 1 : 4099) {
    float x = (float)zb_random_normal(1, 0, i % 4096);
    cr_assert_eq(((float *)(void *)t.area[0])[i], x, "%zu", i);
    cr_assert_eq(((uint16_t *)(void *)t.area[1])[i], zb_f32_to_bf16(x), "%zu", i);
  }
  for (int k = 0; k < 4; k++) cr_expect_eq(t.bytes[k], 48 << 20); /* more than caches hold */
  for (int k = 2; k < 4; k++)
    for (size_t i = 0, n = t.bytes[k]; i < n; i += i + 64 < n ? 63 : 1) cr_assert_eq(t.area[k][i], 0);
  zx_trials_close(&t);
  cr_expect_eq(machine.frees, 4);
  zb_arena_free(m.a);
}

/* Whichever allocation fails, what there was is given back; another rank's failure is everybody's. */
Test(kernels, without_memory) {
  for (int k = 1; k <= 6; k++) {
    ZxTrials t;
    ZxKernelRates rates;
    ZbErr err = {0};
    machine_start();
    machine.alloc_fails = k;
    machine.others_fail = k == 6;
    ZxMeasure m = machine_measure();
    bool opened = zx_trials_open(&t, &m, &err);
    cr_expect_eq(opened, k > 4, "%d", k);
    if (opened) {
      cr_expect(!zx_measure_kernels(&t, &rates, &err));
      zx_trials_close(&t);
    }
    cr_expect_eq(*err.text != 0, k < 6);
    cr_expect_eq(machine.allocs, k < 6 ? k : 5);
    cr_expect_eq(machine.frees, k < 6 ? k - 1 : 5);
    cr_expect_eq(machine.runs, 0);
    zb_arena_free(m.a);
  }
}

/* ---- what is made of times ---- */
Test(kernels, medians) {
  cr_expect_eq(zx_median((double[]){5}, 1), 5);
  cr_expect_eq(zx_median((double[]){4, 1}, 2), 2.5);
  cr_expect_eq(zx_median((double[]){9, 1, 5}, 3), 5);
  cr_expect_eq(zx_median((double[]){9, 1, 1, 7, 2, 8}, 6), 4.5);
  cr_expect_eq(zx_median((double[]){3, 3, 9, -2, 9}, 5), 3);
}

/* Of the least relative errors: where one of both would be less than nothing, the other alone. */
Test(kernels, lines) {
  static const double rows[][3][3] = {{{1, 2, 8}, {5, 1, 13}, {4, 4, 20}}, /* 2 x + 3 y */
                                      {{1, 1, 1}, {2, 1, 3}, {4, 1, 9}},   /* grows faster than x */
                                      {{1, 1, 9}, {2, 1, 8}, {4, 1, 7}}};  /* falls */
  for (int i = 0; i < 3; i++) {
    ZxFit f = {.x = 0};
    double a, b, sum = 0, squares = 0;
    for (int k = 0; k < 3; k++) {
      const double *r = rows[i][k], of = i == 1 ? r[0] : r[1];
      zx_fit_row(&f, r[0], r[1], r[2]);
      sum += of / r[2], squares += of / r[2] * of / r[2];
    }
    zx_fit(&f, &a, &b);
    cr_expect_float_eq(a, i == 0 ? 2 : i == 1 ? sum / squares : 0, 1e-12);
    cr_expect_float_eq(b, i == 0 ? 3 : i == 1 ? 0 : sum / squares, 1e-12);
  }
}
