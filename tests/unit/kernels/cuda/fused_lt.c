/* Fused products and gradients of biases through cuBLASLt's epilogues, with another cuBLASLt behind them
 * (fake_lt.h). */
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "tests/unit/breadth.h"
#include "tests/unit/kernels/cuda/emu.h"
#include "tests/unit/kernels/cuda/fake_lt.h"
#include "tests/unit/kernels/cuda/fused.h"

static int64_t followed(void) {
  return fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT] + fake_lt.added + fake_lt.scaled;
}

/* Each case that is fused reaches an epilogue, or adds, or scales; the others are a product and a pointwise
 * call. */
Test(fused, lt) {
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < nfused; i++) {
    int64_t before = followed();
    conform(fused_cases[i].what, 0, &fused_cases[i].c);
    cr_expect_eq(followed() > before, fused_cases[i].bf16 && !fused_cases[i].two, "%s", fused_cases[i].what);
  }
  static const uint32_t kinds[] = {CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,
                                   CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                   CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                   CUBLASLT_EPILOGUE_DGELU};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    cr_expect_gt(fake_lt.with[kinds[i]], 0, "epilogue %u", kinds[i]);
  cr_expect(fake_lt.added > 0 && fake_lt.scaled > 0);
  cr_assert_eq(fake_lt.misuses, 0);
}

/* What some versions of cuBLASLt compute wrongly is not asked of any: a bias of one row or column, GELU' of
 * single terms. */
Test(fused, lt_known_wrong) {
  static const struct {
    const char *what, *dims;
  } odd[] = {{"bias", "b=1 s=1 e=16 f=24"},
             {"bias along m", "m=24 n=1 k=9"},
             {"ReLU and bias", "b=1 s=1 e=16 f=24"},
             {"GELU's slope", "b=2 s=5 e=1 f=24"}};
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    for (size_t k = 0; k < nfused; k++) {
      if (strcmp(fused_cases[k].what, odd[i].what) != 0) continue;
      Case c = fused_cases[k].c;
      int64_t before = fake_lt.products;
      c.dims = odd[i].dims;
      conform(odd[i].what, 0, &c);
      cr_assert_gt(fake_lt.products, before, "the product of %s went elsewhere", odd[i].what);
    }
  cr_assert(fake_lt.wrong == 0 && fake_lt.misuses == 0);
}

/* ---- addresses: only whether they are multiples of 16 is looked at, and nothing is read or written ---- */
typedef struct {
  int calls;
  ZkCall call;
} First;
static void keep_bf16(const ZkCall *call, void *arg) { /* in the order that the case says */
  First *f = arg;
  if (f->calls++ == 3) f->call = *call;
}

static int64_t with_epilogue(const ZkCall *call) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  int64_t before = fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT];
  fake_lt_open(cu);
  zk_cuda_prepare(&env, call);
  cr_assert(zk_cuda_error(cu) == NULL, "%s", zk_cuda_error(cu));
  zk_cuda_free(cu);
  return fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT] - before;
}

/* Bias and aux are read 16 bytes at a time: at other addresses the epilogue is a call of its own. */
Test(fused, lt_addresses) {
  static const struct {
    const char *what;
    bool out; /* the view that is moved */
    int number;
  } moved[] = {{"bias", false, 2},
               {"GELU and bias", false, 2},
               {"GELU, what it is of kept", true, 0},
               {"GELU, the product kept", true, 1},
               {"GELU's slope", false, 2}};
  for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
    for (size_t k = 0; k < nfused; k++) {
      if (strcmp(fused_cases[k].what, moved[i].what) != 0) continue;
      First f = {.calls = 0};
      each_call(&fused_cases[k].c, keep_bf16, &f);
      for (int n = 0; n < f.call.nin; n++) f.call.in[n].data = (void *)(uintptr_t)4096;
      for (int n = 0; n < f.call.nout; n++) f.call.out[n].data = (void *)(uintptr_t)4096;
      cr_expect_gt(with_epilogue(&f.call), 0, "%s", moved[i].what);
      ZkView *v = moved[i].out ? &f.call.out[moved[i].number] : &f.call.in[moved[i].number];
      v->data = (void *)(uintptr_t)4098;
      cr_expect_eq(with_epilogue(&f.call), 0, "%s at an odd address", moved[i].what);
    }
  cr_assert_eq(fake_lt.misuses, 0);
}

/* Activations only where they gain. */
Test(fused, lt_generations) {
  static const struct {
    int arch;
    bool activations;
  } known[] = {{80, false}, {86, false}, {89, false}, {90, true}, {100, true}, {120, false}};
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    FakeLt before = fake_lt;
    if (!breadth_tries(i, 3)) continue;
    emu_use_arch(known[i].arch);
    for (size_t k = 0; k < nfused; k++) conform(fused_cases[k].what, 0, &fused_cases[k].c);
    int64_t sums = fake_lt.with[CUBLASLT_EPILOGUE_BIAS] - before.with[CUBLASLT_EPILOGUE_BIAS];
    int64_t plain = fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT] - before.with[CUBLASLT_EPILOGUE_DEFAULT];
    cr_expect(sums > 0 && (fake_lt.products - before.products > sums + plain) == known[i].activations,
              "on %d", known[i].arch);
  }
}

/* ---- gradients of weights and biases ---- */
static int64_t sums(void) {
  return fake_lt.with[CUBLASLT_EPILOGUE_BGRADA] + fake_lt.with[CUBLASLT_EPILOGUE_BGRADB];
}

static void all_bias_grads(void) {
  for (size_t i = 0; i < nbias_grad; i++) {
    Case set = bias_grad_cases[i];
    set.accumulate = false;
    conform("added", (int)i, &bias_grad_cases[i]);
    conform("set", (int)i, &set);
  }
}

Test(bias_grad, lt) {
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < nbias_grad; i++) {
    int64_t before = sums();
    conform("bias_grad", (int)i, &bias_grad_cases[i]);
    cr_expect_gt(sums(), before, "case %zu", i);
  }
  cr_expect(fake_lt.with[CUBLASLT_EPILOGUE_BGRADA] > 0 && fake_lt.with[CUBLASLT_EPILOGUE_BGRADB] > 0);
  all_bias_grads();
  cr_expect(fake_lt.wrong == 0 && fake_lt.misuses == 0);
}

/* Where B lacks the batch, every product of it would write the same sums: they are one apart. */
Test(bias_grad, shared) {
  Case shared = {BIAS_GRAD, .dims = "q=3 b=2 s=9 e=8 f=24", .ax = "bs", .in = {{"qbse"}, {"bsf"}},
                 .out = {{"qef", EXACT}, {"f", EXACT}}};
  emu_use_blas(fake_lt_handle());
  conform("shared", 0, &shared);
  cr_expect(fake_lt.products > 0 && sums() == 0);
  cr_expect(fake_lt.wrong == 0 && fake_lt.misuses == 0);
}

/* In two, where the sums do not lie as the product counts them, where cuBLASLt cannot, and without it. */
Test(bias_grad, in_two) {
  Case turned = {BIAS_GRAD, .dims = "b=2 s=9 e=8 h=2 d=8", .ax = "bs", .in = {{"bse"}, {"bshd"}},
                 .out = {{"ehd", EXACT}, {"dh", EXACT}}};
  all_bias_grads();
  emu_use_blas(fake_lt_handle());
  conform("turned", 0, &turned);
  fake_lt.runs_no_epilogue = true;
  all_bias_grads();
  fake_lt.runs_no_epilogue = false, fake_lt.version = 120303; /* which sums wrongly */
  int64_t before = sums();
  all_bias_grads();
  fake_lt.version = 0, fake_lt.knows_no_epilogue = true;
  all_bias_grads();
  cr_assert_eq(sums(), before);
  fake_lt.knows_nothing = true;
  all_bias_grads();
}

static void all(void) {
  for (size_t i = 0; i < nfused; i++) conform(fused_cases[i].what, 0, &fused_cases[i].c);
}

/* With epilogues that do not run, without trials, without epilogues. */
Test(fused, lt_refuses) {
  emu_use_blas(fake_lt_handle());
  fake_lt.runs_no_epilogue = true;
  all();
  fake_lt.runs_no_epilogue = false;
  fake_lt.no_memory = true;
  all();
  fake_lt.has_no_epilogue = true;
  int64_t with = fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT];
  all();
  fake_lt.has_no_epilogue = false, fake_lt.knows_no_epilogue = true;
  all();
  cr_assert_eq(fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT], with);
  fake_lt.knows_nothing = true;
  all();
  cr_assert_eq(fake_lt.misuses, 0);
}

/* ---- epilogues that are wrong: found out on noise, not used, and said ---- */
static int said;
static void ask(const ZkCall *call, void *arg) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  ZkEnv env = {.device = cu};
  ZkFallback how;
  const char *text = arg;
  fake_lt_open(cu);
  zk_cuda_prepare(&env, call);
  if (zk_cuda_fallback(&env, call, &how) && strstr(how.why, text)) said++;
  zk_cuda_free(cu);
}

Test(fused, lt_wrong) {
  static const uint32_t kinds[] = {CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU_BIAS,
                                   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_AUX,
                                   CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU};
  emu_use_blas(fake_lt_handle());
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    fake_lt.lies = kinds[k], said = 0;
    if (!breadth_tries(k, 3)) continue;
    for (size_t i = 0; i < nfused; i++) {
      int64_t before = fake_lt.with[kinds[k]];
      each_call(&fused_cases[i].c, ask, "computes it wrongly");
      if (fake_lt.with[kinds[k]] > before) conform(fused_cases[i].what, 0, &fused_cases[i].c);
    }
    cr_expect_gt(said, 0, "epilogue %u was used", kinds[k]);
  }
  cr_assert_eq(fake_lt.misuses, 0);
}

Test(bias_grad, lt_wrong) {
  emu_use_blas(fake_lt_handle());
  static const uint32_t kinds[] = {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
  for (int k = 0; k < 2; k++) {
    fake_lt.lies = kinds[k], said = 0;
    for (size_t i = 0; i < nbias_grad; i++) each_call(&bias_grad_cases[i], ask, "computes it wrongly");
    cr_expect_gt(said, 0, "epilogue %u was used", kinds[k]);
    all_bias_grads();
  }
}
#endif
