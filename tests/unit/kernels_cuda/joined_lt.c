/* Joined products through cuBLASLt's epilogues, with another cuBLASLt behind them (fake_lt.h). */
#ifdef HAVE_CUBLASLT
#include <cublasLt.h>

#include "tests/unit/kernels_cuda/emu.h"
#include "tests/unit/kernels_cuda/fake_lt.h"
#include "tests/unit/kernels_cuda/joined.h"

static int64_t followed(void) {
  return fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT] + fake_lt.added + fake_lt.scaled;
}

/* Each case that is joined reaches an epilogue, or adds, or scales; the others are a product and a chain. */
Test(joined, lt) {
  emu_use_blas(fake_lt_handle());
  for (size_t i = 0; i < njoined; i++) {
    int64_t before = followed();
    conform(joined_cases[i].what, 0, &joined_cases[i].c);
    cr_expect_eq(followed() > before, joined_cases[i].bf16 && !joined_cases[i].two, "%s",
                 joined_cases[i].what);
  }
  static const uint32_t kinds[] = {CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,
                                   CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                   CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                   CUBLASLT_EPILOGUE_DGELU};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    cr_expect_gt(fake_lt.with[kinds[i]], 0, "epilogue %u", kinds[i]);
  cr_expect(fake_lt.added > 0 && fake_lt.scaled > 0);
}

static void all(void) {
  for (size_t i = 0; i < njoined; i++) conform(joined_cases[i].what, 0, &joined_cases[i].c);
}

/* With epilogues that do not run, without trials, without epilogues. */
Test(joined, lt_refuses) {
  emu_use_blas(fake_lt_handle());
  fake_lt.runs_no_epilogue = true;
  all();
  fake_lt.runs_no_epilogue = false;
  fake_lt.no_memory = true;
  all();
  fake_lt.knows_no_epilogue = true;
  int64_t with = fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT];
  all();
  cr_assert_eq(fake_lt.products - fake_lt.with[CUBLASLT_EPILOGUE_DEFAULT], with);
  fake_lt.knows_nothing = true;
  all();
}
#endif
