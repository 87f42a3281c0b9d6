/* The CPU as a device: what it clips, what it says of what is lost, and what it does by itself. */
#include "graph/graph.h"
#include "runtime/exec/device/device.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/kernels/update.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static ZkEnv env;
static ZbErr err;

static void device_by(ZkOptimizerKind kind, const By *p, const ZxScalars *clip, int64_t n, const float *g,
                      float *w, ZkFlat m, ZkFlat v, uint16_t *w16) {
  float s[ZK_MOST_SCALARS];
  ZkOptimizer x = call_by(kind, p, m, v, s);
  if (!w16) {
    zx_device_cpu.optimize(&env, &x, clip, n, IN_F32((void *)(uintptr_t)g), (ZkMaster){.f32 = w});
    return;
  }
  ZkMaster halves = in_halves(n, w, w16, malloc((size_t)n * sizeof *halves.low));
  zx_device_cpu.optimize(&env, &x, clip, n, IN_F32((void *)(uintptr_t)g), halves);
  zk_cpu_join(&env, halves, n, w);
  free(halves.low);
}

Test(cpu, clipping) {
  static const struct {
    float most;
    double squares, sums[2];
    float left; /* of w = 1 after a step of lr 1 with g = 0.25 */
  } cases[] = {{0, 16, {1, 2}, 0.75f},  {8, 16, {1, 2}, 0.75f},    {4, 16, {1, 2}, 0.75f},
               {2, 16, {1, 2}, 0.875f}, {0.5f, 1, {1, 2}, 0.875f}, {1, 0, {0, 0}, 0.75f},
               {0, 16, {NAN, 2}, 1},    {0, 16, {1, INFINITY}, 1}};
  const ZxDeviceTable *d = &zx_device_cpu;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double lost = 0;
    ZxScalars s = {&cases[i].squares, cases[i].most, &lost, cases[i].sums, 2, NULL, 0};
    float g[] = {0.25f, 0.25f}, w[] = {1, 1};
    device_by(ZK_BY_PLAIN, &(By){.lr = 1}, &s, 1, g, w, (ZkFlat){0}, (ZkFlat){0}, NULL);
    cr_expect_float_eq(w[0], cases[i].left, 1e-6, "%zu: %g", i, (double)w[0]);
    cr_expect(w[1] == 1 && lost == 0);
    float a[] = {3, 3};
    d->average(&env, &s, 1, 0.5f, (ZkMaster){.f32 = g}, a);
    cr_expect(a[0] == (i < 6 ? 1.625f : 3) && a[1] == 3);
    float m[] = {0, 0}, u[] = {7, 7};
    device_by(ZK_BY_MUON, &(By){.momentum = 0.5f}, &s, 1, g, u, IN_F32(m), (ZkFlat){0}, NULL);
    cr_expect_float_eq(u[0], i < 6 ? 1 - cases[i].left : 0, 1e-6, "%zu: %g", i, (double)u[0]);
    cr_expect(u[1] == 7);
  }
}

/* As many threads as may be say the same, of each bit. */
Test(cpu, digest) {
  enum { BYTES = 700000 };
  char *p = calloc(1, BYTES);
  ZkEnv one = {.pool = zk_pool_new(1)}, three = {.pool = zk_pool_new(3)};
  for (int i = 0; i < BYTES; i++) p[i] = (char)(i * 7 + i / 999);
  uint64_t of[3] = {0};
  zx_device_cpu.digest(&one, p, BYTES, 1, &of[0]);
  zx_device_cpu.digest(&three, p, BYTES, 1, &of[1]);
  zx_device_cpu.digest(&three, p, BYTES, 2, &of[2]);
  cr_expect(of[0] == of[1] && of[0] != of[2]);
  for (int at = 0; at < BYTES; at += 99991) {
    uint64_t other = 0;
    p[at] ^= 16;
    zx_device_cpu.digest(&three, p, BYTES, 1, &other);
    p[at] ^= 16;
    cr_expect_neq(other, of[0], "a bit of byte %d", at);
  }
  zk_pool_free(one.pool);
  zk_pool_free(three.pool);
  free(p);
}

/* Nor is there an update by what losses are divided by: some is negative, or nothing is known. */
Test(cpu, divisors) {
  static const struct {
    double x[2];
    int n;
    bool updates;
  } cases[] = {{{0, 0}, 0, true}, {{2, 0}, 1, true},  {{0, 2}, 1, false},  {{0, 2}, 2, true},
               {{2, 0}, 2, true}, {{0, 0}, 2, false}, {{2, -1}, 2, false}, {{-1, 2}, 2, false}};
  const ZxDeviceTable *d = &zx_device_cpu;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double lost = 0, sum = 1, squares = 1;
    ZxScalars s = {&squares, 0, &lost, &sum, 1, cases[i].x, cases[i].n};
    float g = 0.25f, w = 1, a = 3;
    device_by(ZK_BY_PLAIN, &(By){.lr = 1}, &s, 1, &g, &w, (ZkFlat){0}, (ZkFlat){0}, NULL);
    d->average(&env, &s, 1, 0.5f, (ZkMaster){.f32 = &g}, &a);
    cr_expect(w == (cases[i].updates ? 0.75f : 1) && a == (cases[i].updates ? 1.625f : 3) && lost == 0, "%zu",
              i);
  }
}

/* A step of each optimizer; of a parameter that is not finite afterwards it is said, unless there is no
 * update. */
enum { N = ZK_DYN8_BLOCK };
/* Number 2 k is optimizer k with states in f32, 2 k + 1 with codes; behind the last there is what updates states. */
static const By by = {.lr = 0.5f, .b1 = 0.5f, .b2 = 0.5f, .eps = 1, .momentum = 0.5f, .step = 1};
enum { CALLS = 2 * ZK_OPTIMIZERS };
static ZkFlat state_of(int which, int i, float *x, uint8_t *codes) {
  const ZkOptimizerInfo *info = &zk_optimizer_info[which / 2];
  bool coded = which % 2 && i < info->nstates && info->code[i] != ZK_F32;
  return (ZkFlat){coded ? info->code[i] : ZK_F32, coded ? (void *)codes : (void *)x};
}
static void update(int which, const ZxScalars *s, const float *g, float *w) {
  float m[N] = {0}, v[N] = {0}, third[N] = {0};
  By own = by;
  own.third = third;
  uint8_t codes[2][N + 4] = {0}; /* and a scale */
  if (which == CALLS)
    zx_device_cpu.update(&env, &(ZkUpdate){1, {{.op = ZG_OP_ADD, .a = 0, .b = 1}}}, s, N, g,
                         (ZkMaster){.f32 = w});
  else
    device_by((ZkOptimizerKind)(which / 2), &own, s, N, g, w, state_of(which, 0, m, codes[0]),
              state_of(which, 1, v, codes[1]), NULL);
}

Test(cpu, what_is_lost) {
  for (int which = 0; which <= CALLS; which++)
    for (int how = 0; how < 3; how++) {
      double squares = 1, sum = how == 2 ? NAN : 1, lost = 0;
      if (which < CALLS && zk_optimizer_info[which / 2].matrices) continue; /* does not read w */
      float g[N] = {0}, w[N] = {0};
      if (how) w[N - 1] = INFINITY;
      update(which, &(ZxScalars){&squares, 0, &lost, &sum, 1, NULL, 0}, g, w);
      cr_expect_eq(lost, how == 1, "%d, %d: %g", which, how, lost);
      if (how == 2) cr_expect_eq(w[N - 1], INFINITY);
    }
}

/* Of every optimizer: a step is the kernel's, of gradients that are clipped to a norm of 1 from one of 2. */
Test(cpu, every_optimizer_clips) {
  const double squares = 4, sum = 1;
  double lost = 0;
  const ZxScalars s = {&squares, 1, &lost, &sum, 1, NULL, 0};
  By clipped = by;
  clipped.scale = (float)(1 / (2 + 1e-6));
  for (int which = 0; which < CALLS; which++) {
    static float g[N], x[2][4][N]; /* by the device, by the kernel: w, m, v, a third state */
    static uint8_t codes[2][2][N + 4];
    static uint16_t w16[2][N];
    memset(x, 0, sizeof x), memset(codes, 0, sizeof codes), memset(w16, 0, sizeof w16);
    for (int i = 0; i < N; i++) g[i] = 0.01f * (float)i, x[0][0][i] = x[1][0][i] = 1;
    for (int k = 0; k < 2; k++) {
      ZkFlat m = state_of(which, 0, x[k][1], codes[k][0]), v = state_of(which, 1, x[k][2], codes[k][1]);
      ZkOptimizerKind kind = (ZkOptimizerKind)(which / 2);
      uint16_t *high = zk_optimizer_info[kind].matrices ? NULL : w16[k];
      By own = k ? clipped : by;
      own.third = x[k][3];
      if (k) cpu_by(&env, kind, &own, N, g, x[k][0], m, v, high);
      else device_by(kind, &own, &s, N, g, x[k][0], m, v, high);
    }
    cr_expect(!memcmp(x[0], x[1], sizeof *x) && !memcmp(codes[0], codes[1], sizeof *codes) &&
                  !memcmp(w16[0], w16[1], sizeof *w16) && x[0][0][N - 1] != 1 &&
                  (w16[0][N - 1] || zk_optimizer_info[which / 2].matrices),
              "%d", which);
  }
}

/* A call, and what is opened for calls, or refused. */
Test(cpu, opens_and_computes) {
  const ZxDeviceTable *d = &zx_device_cpu;
  float x[] = {1, 2, 3}, y[] = {0, 0, 0};
  ZkPointwise negate = {.nops = 1, .nout = 1, .out = {1}, .ops = (ZkPointwiseOp[]){{.op = ZG_OP_NEG}}};
  ZkView v = {.data = x, .elem = ZK_F32, .rank = 1, .axis = {1}, .size = {3}, .stride = {1}, .whole = {3}};
  ZkCall call = {.op = ZG_OP_POINTWISE, .nin = 1, .nout = 1, .in = {v}, .out = {v}, .pointwise = &negate};
  struct rlimit was, none;
  call.out[0].data = y;
  cr_expect(d->open(&env, 0, &err), "%s", err.text);
  d->run(&env, &call);
  cr_expect(y[0] == -1 && y[1] == -2 && y[2] == -3);
  d->close(&env);
  cr_assert(getrlimit(RLIMIT_AS, &was) == 0);
  none = was, none.rlim_cur = 1;
  cr_assert(setrlimit(RLIMIT_AS, &none) == 0);
  bool opened = d->open(&env, 0, &err);
  cr_assert(setrlimit(RLIMIT_AS, &was) == 0);
  cr_expect(!opened);
  says(err, "a rank cannot have the 128 MiB of address space");
}

Test(cpu, what_it_does_by_itself) {
  const ZxDeviceTable *d = &zx_device_cpu;
  static const int32_t map[] = {2, -1, 0, 2};
  char from[] = "aabbcc", to[] = "12345678.";
  d->gather(&env, 4, 2, map, from, to);
  cr_expect(!memcmp(to, "cc\0\0aacc.", 10));
  d->gather(&env, 0, 2, map, from, to);
  cr_expect_eq(to[0], 'c');
  double sum = 3, none[] = {0, -1, 4};
  float x[] = {2, 3}, y[] = {9, 9, 9};
  d->add_scalar(&env, x, &sum);
  cr_expect_eq(sum, 5);
  d->sumsq(&env, 2, IN_F32(x), &sum);
  cr_expect_eq(sum, 18);
  for (int i = 0; i < 3; i++) d->reciprocal(&env, &none[i], &y[i]);
  cr_expect(y[0] == 0 && y[1] == 0 && y[2] == 0.25f);
  y[0] = 9;
  d->zero(&env, y, 4);
  d->copy(&env, y + 1, x, 4);
  cr_expect(y[0] == 0 && y[1] == 2 && y[2] == 0.25f);
  for (size_t n = 0; n < 130; n += 129) {
    char *p = d->alloc(&env, n, &err), *pinned = d->pinned(&env, n, &err);
    cr_assert(p && pinned && (uintptr_t)p % 64 == 0 && (uintptr_t)pinned % 64 == 0);
    for (size_t k = 0; k < n; k++) cr_assert_eq(p[k], 0);
    memset(pinned, 1, n);
    d->free(&env, p, n);
    d->unpin(&env, pinned);
  }
  cr_expect(!d->alloc(&env, (size_t)1 << 60, &err));
  says(err, "cannot allocate the arena of 1152.9 PB: Cannot allocate memory");
  err = (ZbErr){0};
#ifndef __SANITIZE_ADDRESS__ /* which ends who asks for so much */
  cr_expect(!d->pinned(&env, (size_t)1 << 60, &err));
  says(err, "cannot allocate 1152.9 PB");
#endif
  cr_expect(d->current(&env) == 0 && d->reached(&env, 0) && d->idle(&env) && d->finish(&env, &err) &&
            d->events(&env, 3, &err) && d->host);
  const char *why;
  ZxComm world;
  cr_expect_eq(d->comm(&world, &env, &why), &world);
  cr_expect(d->measure_copy(&env, 1) > 1e6);
}
