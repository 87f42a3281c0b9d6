/* The way through cuBLASLt, with another one behind it (fake_lt.h). */
#include <string.h>
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#endif

#include "base/base.h"
#include "tests/unit/kernels/cuda/emu.h"
#include "tests/unit/kernels/cuda/fake_lt.h"
#include "tests/unit/kernels/cuda/fused.h"
#include "tests/unit/kernels/cuda/products.h"

#define DOT_TOL 3e-6 /* as in reduce.c */

/* ---- through cuBLASLt ---------------------------------------------------------------------------------- */
#ifdef HAVE_CUBLASLT
static int64_t products_of(const Case *c) {
  int64_t before = fake_lt.products;
  conform(__FILE__, __LINE__, c);
  return fake_lt.products - before;
}

Test(dot_lt, random) {
  emu_use_blas(fake_lt_handle());
  for (uint64_t seed = 1; seed <= 100; seed++) random_product(seed);
  cr_assert(fake_lt.products > 500, "only %lld", (long long)fake_lt.products);
  cr_assert_eq(fake_lt.misuses, 0);
}

static const Case usual[] = {
    {.op = ZG_OP_DOT,
     .dims = "b=2 s=5 e=16 f=9",
     .ax = "e",
     .in = {{"bse"}, {"ef"}},
     .out = {{"bsf"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "b=2 s=5 e=8 h=2 d=8",
     .ax = "bs",
     .in = {{"bse"}, {"bshd"}},
     .out = {{"ehd", EXACT}},
     .accumulate = true,
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "b=2 h=3 s=17 t=4 d=8",
     .ax = "d",
     .in = {{"bhsd"}, {"bhtd"}},
     .out = {{"bhst"}},
     .tol = DOT_TOL},
    {.op = ZG_OP_DOT,
     .dims = "m=3 n=260 k=5",
     .ax = "k",
     .in = {{"mk"}, {"kn"}},
     .out = {{"mn"}},
     .tol = DOT_TOL}, /* rows of 5, used 260 times */
    {.op = ZG_OP_DOT,
     .dims = "m=1 n=6 k=7",
     .ax = "k",
     .in = {{"mk"}, {"kn"}},
     .out = {{"mn"}},
     .tol = DOT_TOL},
};
#define USUAL (sizeof usual / sizeof *usual)

Test(dot_lt, usual) {
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) >= 9, "case %zu went elsewhere", i);
  fake_lt.no_memory = true; /* no trials */
  for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) == 9, "case %zu went elsewhere", i);
  fake_lt.knows_nothing = true; /* our own kernels take over */
  for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) == 0);
  cr_assert_eq(fake_lt.misuses, 0);
}

/* Whatever words it finds for it, and whatever it does not run: no product fails for that. */
Test(dot_lt, refuses) {
  emu_use_blas(fake_lt_handle());
  fake_lt.first_does_not_run = true;
  for (size_t i = 0; i < USUAL; i++) products_of(&usual[i]);
  cr_assert(fake_lt.products > 0);
  fake_lt.runs_nothing = true;
  for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) == 0);
  fake_lt.no_memory = true; /* found out by the run */
  for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) == 0);
  static const int says[] = {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE,
                             CUBLAS_STATUS_ARCH_MISMATCH};
  fake_lt.knows_nothing = true;
  for (int k = 0; k < 3; k++) {
    fake_lt.says = says[k];
    for (size_t i = 0; i < USUAL; i++) cr_assert(products_of(&usual[i]) == 0);
  }
}

typedef struct {
  size_t scratch;
  int calls;
} Scratch;
static void note_scratch(const ZkCall *call, void *arg) {
  Scratch *s = arg;
  if (s->calls++ == 0)
    s->scratch = zk_cuda_scratch(call, 1); /* the first is in the order that the case says */
}
static size_t scratch_of(const Case *c) {
  Scratch s = {0};
  each_call(c, note_scratch, &s);
  return s.scratch;
}

/* Each by products of one operand in common, not by one whose rows are copied first: nothing lies so that it
 * must be. */
Test(dot_lt, batched) {
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < nbatched; i++)
    cr_assert((scratch_of(&batched_cases[i]) > 0) == (i == nbatched - 1), "case %zu: %zu bytes", i,
              scratch_of(&batched_cases[i]));
  fake_lt.batched = 0;
  for (size_t i = 0; i < nbatched; i++) products_of(&batched_cases[i]);
  /* As written, in all types. */
  cr_assert(fake_lt.batched >= 3 * (int64_t)nbatched, "%lld", (long long)fake_lt.batched);
}

/* What a transformer computes needs no copies; a class that is not one loop does, of the smallest operand it
 * can be. */
Test(dot_lt, copies) {
  cr_assert(scratch_of(&usual[0]) == 0 && scratch_of(&usual[1]) == 0 && scratch_of(&usual[2]) == 0);
  Case split = {
      .op = ZG_OP_DOT, .dims = "b=2 s=5 e=4 f=3", .ax = "bs", .in = {{"bse"}, {"sbf"}}, .out = {{"ef"}}};
  cr_assert(scratch_of(&split) == 192, "%zu",
            scratch_of(&split)); /* 10 rows of 3 floats, 16 bytes apart: up to 64 */
  Case outer = {
      .op = ZG_OP_DOT, .dims = "b=2 s=5 e=4 f=3", .ax = "e", .in = {{"ebs"}, {"ef"}}, .out = {{"sbf"}}};
  cr_assert(scratch_of(&outer) == 192, "%zu",
            scratch_of(&outer)); /* the result, 30 floats in rows of 4, not the 40 of ebs */
}

static Case plain(const char *dims) {
  return (Case){.op = ZG_OP_DOT,
                .dims = dims,
                .ax = "k",
                .in = {{"mk"}, {"kn"}},
                .out = {{"mn"}},
                .f32_only = true,
                .tol = DOT_TOL};
}

/* The fastest algorithm that is right; with `repeatable` of those that give the bits of the first, and the
 * first where nothing would show. */
Test(dot_lt, choice) {
  emu_use_blas(fake_lt_handle());
  Case large = plain("m=16 n=17 k=40"), small = plain("m=3 n=17 k=40");
  products_of(&large);
  cr_assert(fake_lt.last == 2, "%d", fake_lt.last);
  products_of(&small);
  cr_assert(fake_lt.last == 2, "%d", fake_lt.last);
  emu_use_flags(false, true);
  products_of(&large);
  cr_assert(fake_lt.last == 1, "%d", fake_lt.last);
  products_of(&small);
  cr_assert(fake_lt.last == 0, "%d", fake_lt.last);
  fake_lt.no_memory = true;
  products_of(&large);
  cr_assert(fake_lt.last == 0, "%d", fake_lt.last);
}

/* Operands in f32 are rounded where the run says so, those in bf16 are what they are. */
Test(dot_lt, tf32) {
  Case c = plain("m=16 n=17 k=40");
  emu_use_blas(fake_lt_handle());
  products_of(&c);
  cr_assert(fake_lt.tf32 == 0);
  emu_use_flags(true, false);
  products_of(&c);
  int64_t of_f32 = fake_lt.tf32;
  c.f32_only = false; /* once in f32, and in bf16 */
  products_of(&c);
  cr_assert(of_f32 > 0 && fake_lt.tf32 > of_f32 && fake_lt.tf32 < 4 * of_f32, "%lld",
            (long long)fake_lt.tf32);
}

/* ---- what ranks choose alike: two contexts, of which one measured with other times ---- */
static const float ones[64 * 64];
static ZkCuda *context(ZkEnv *env) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  fake_lt_open(cu);
  *env = (ZkEnv){.device = cu};
  return cu;
}

static ZkCall square(float *to) {
  ZkView v = {.elem = ZK_F32, .rank = 2, .axis = {'m', 'k'}, .size = {64, 64}, .stride = {64, 1}};
  memcpy(v.whole, v.size, sizeof v.whole);
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}, .in = {v, v}, .out = {v}};
  c.in[1].axis[0] = 'k', c.in[1].axis[1] = 'n', c.out[0].axis[1] = 'n';
  c.in[0].data = c.in[1].data = (void *)(uintptr_t)ones, c.out[0].data = to;
  return c;
}

Test(dot_lt, choices) {
  static float out[64 * 64];
  ZkEnv env[2];
  ZkCuda *cu[2] = {context(&env[0]), context(&env[1])};
  ZkCall c = square(out), other = c;
  ZkCudaChoice list[2];
  zk_cuda_prepare(&env[0], &c);
  fake_lt.no_memory = true; /* no trial: its first proposal */
  c.in[0].start[0] = 64;    /* another rank's part of an axis */
  zk_cuda_prepare(&env[1], &c);
  fake_lt.no_memory = false;
  other.in[0].stride[0] = 128;
  zk_cuda_prepare(&env[1], &other); /* which the first does not have */
  cr_assert(zk_cuda_choices(cu[0], list, 2) == 1 && zk_cuda_choices(cu[1], NULL, 0) == 2);
  zk_cuda_kernel(ZG_OP_DOT)(&env[1], &c);
  cr_assert(fake_lt.last == 0);
  zk_cuda_choose(cu[1], list, 1);
  zk_cuda_choose(cu[0], list, 1);
  cr_assert(zk_cuda_choices(cu[0], NULL, 0) == 0 && zk_cuda_choices(cu[1], NULL, 0) == 1);
  zk_cuda_kernel(ZG_OP_DOT)(&env[1], &c);
  cr_assert(fake_lt.last == 2, "%d", fake_lt.last);
  list[0].usable = false, zk_cuda_choices(cu[1], list, 1), list[0].usable = false;
  zk_cuda_choose(cu[1], list, 1);
  ZkFallback how;
  cr_assert(zk_cuda_fallback(&env[1], &other, &how) && strstr(how.why, "another rank"), "%s", how.why);
  cr_assert(!zk_cuda_fallback(&env[1], &c, &how) && fake_lt.misuses == 0);
  zk_cuda_free(cu[0]), zk_cuda_free(cu[1]);
}
#endif
