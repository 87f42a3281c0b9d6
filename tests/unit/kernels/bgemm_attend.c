/* Attention of bf16 operands by every path against f32 products of the same operands: what
 * differs is the rounding of probabilities and of gradients of scores. attend.c compares the path
 * in use with the reference. */
#include "tests/unit/kernels/bgemm.h"

#include <math.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "kernels/cpu/cpu.h"

enum { BATCH = 1, SEQ = 280, HEADS = 2, GROUPS = 2, HD = 24, ROWS = BATCH * SEQ * HEADS * GROUPS };
enum { LARGE = ROWS * HD, SMALL = LARGE / GROUPS }; /* elements with and without groups */

static ZkView view(const char *axes, ZkElem elem, void *data) {
  static const int64_t size[128] = {['b'] = BATCH, ['s'] = SEQ, ['h'] = HEADS, ['g'] = GROUPS, ['d'] = HD};
  ZkView v = {.data = data, .elem = (uint8_t)elem, .rank = (uint8_t)strlen(axes)};
  int64_t n = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    v.axis[i] = (uint16_t)axes[i];
    v.size[i] = v.whole[i] = size[(int)axes[i]];
    v.stride[i] = n;
    n *= v.size[i];
  }
  return v;
}

typedef struct { /* results; o is rounded for the gradient */
  float o[LARGE], l[ROWS], dq[LARGE], dk[SMALL], dv[SMALL];
} Results;

typedef struct {
  uint16_t q[LARGE], g[LARGE], o[LARGE], k[SMALL], v[SMALL];
} Operands;

static void run(const ZkEnv *env, ZkCall *c) {
  c->scratch = aligned_alloc(64, zb_round_up(zk_cpu_scratch(c, zk_threads(env)), 64));
  zk_cpu_kernel(c->op)(env, c);
  free(c->scratch);
}

static void attend(const ZkEnv *env, Operands *x, Results *r, int mask) {
  ZkView q = view("bshgd", ZK_BF16, x->q), k = view("bshd", ZK_BF16, x->k), v = view("bshd", ZK_BF16, x->v);
  ZkView l = view("bshg", ZK_F32, r->l), g = view("bshgd", ZK_BF16, x->g), o = view("bshgd", ZK_BF16, x->o);
  ZkCall f = {.nin = 3, .nout = 2, .nax = 2, .ax = {'s', 'd'}, .num = {0.3}, .opt = {mask}}, b = f;
  f.op = ZG_OP_ATTEND;
  f.in[0] = q, f.in[1] = k, f.in[2] = v;
  f.out[0] = view("bshgd", ZK_F32, r->o), f.out[1] = l;
  run(env, &f);
  b.op = ZG_OP_ATTEND_GRAD;
  b.nin = 6, b.nout = 3;
  b.in[0] = g, b.in[1] = o, b.in[2] = l, b.in[3] = q, b.in[4] = k, b.in[5] = v;
  b.out[0] = view("bshgd", ZK_F32, r->dq);
  b.out[1] = view("bshd", ZK_F32, r->dk), b.out[2] = view("bshd", ZK_F32, r->dv);
  run(env, &b);
}

/* Operands, and o of these operands for the gradient. */
static Operands *operands(void) {
  Operands *x = malloc(sizeof *x);
  for (int i = 0; i < LARGE; i++) {
    x->q[i] = zb_f32_to_bf16((float)zb_random_normal(5, 1, (uint64_t)i));
    x->g[i] = zb_f32_to_bf16((float)zb_random_normal(5, 2, (uint64_t)i));
    x->o[i] = zb_f32_to_bf16((float)zb_random_normal(5, 3, (uint64_t)i) / 4);
    if (i < SMALL) x->k[i] = zb_f32_to_bf16((float)zb_random_normal(5, 4, (uint64_t)i));
    if (i < SMALL) x->v[i] = zb_f32_to_bf16((float)zb_random_normal(5, 5, (uint64_t)i));
  }
  return x;
}

static void near(const char *what, const float *got, const float *want, int n, double tol) {
  double largest = 0;
  for (int i = 0; i < n; i++) largest = fmax(largest, fabsf(want[i]));
  for (int i = 0; i < n; i++)
    if (!(fabs((double)got[i] - want[i]) <= tol * largest))
      cr_assert_fail("%s: element %d is %.7g, not %.7g", what, i, got[i], want[i]);
}

void attention_as_by_f32(const ZkEnv *env) {
  const double TOL16 =
      0x1p-8; /* factors are off by up to 2^-9 of themselves, and sums by less than their largest */
  Operands *x = operands();
  Results *got = malloc(sizeof *got), *want = malloc(sizeof *want);
  for (int mask = 0; mask < 2; mask++) {
    attend(env, x, got, mask);
    const void *path = swap_path(NULL);
    attend(env, x, want, mask);
    swap_path(path);
    near("o", got->o, want->o, LARGE, TOL16);
    near("l", got->l, want->l, ROWS, 1e-6); /* of f32 sums */
    near("dq", got->dq, want->dq, LARGE, TOL16);
    near("dk", got->dk, want->dk, SMALL, TOL16);
    near("dv", got->dv, want->dv, SMALL, TOL16);
  }
  free(x);
  free(got);
  free(want);
}

Test(bgemm_attend, avx512) {
  ZkEnv alone = {0};
  use_path("avx512");
  attention_as_by_f32(&alone);
}

Test(bgemm_attend, amx) {
  ZkEnv alone = {0};
  use_path("amx");
  attention_as_by_f32(&alone);
}

/* By heads, and by tiles of queries and of keys. */
Test(bgemm_attend, threads_change_nothing) {
  use_path("avx512");
  Operands *x = operands();
  Results *one = malloc(sizeof *one), *three = malloc(sizeof *three);
  ZkEnv alone = {0}, env = {.pool = zk_pool_new(3)};
  for (int mask = 0; mask < 2; mask++) {
    attend(&alone, x, one, mask);
    attend(&env, x, three, mask);
    cr_assert(memcmp(one, three, sizeof *one) == 0);
  }
  zk_pool_free(env.pool);
  free(x);
  free(one);
  free(three);
}
