/* What libraries do, which the emulator does not have: products that are large enough for cuBLASLt's ways of dividing
 * them, and programs that NVRTC compiles. */
#include "tests/scenarios/gpu/backend.h"
#include "tests/unit/kernels/cuda/norm_fused.h"
#include "tests/unit/kernels/cuda/pointwise_cases.h"

#define DOT_TOL 3e-6  /* as in reduce.c */
#define LONG_TOL 2e-5 /* and its long sums */

/* Sums that are worth splitting among multiprocessors, with few tiles of results and with odd ends. */
Test(libraries, long_sums) {
  CONFORM(.op = ZG_OP_DOT, .dims = "m=64 n=128 k=16384", .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
          .tol = LONG_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=72 n=40 k=9001", .ax = "k", .in = {{"mk"}, {"nk"}}, .out = {{"mn"}},
          .tol = LONG_TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=4 s=2048 e=64 f=96", .ax = "bs", .in = {{"bse"}, {"bsf"}},
          .out = {{"ef", EXACT}}, .accumulate = true, .tol = LONG_TOL);
}

/* Results that end within a tile of 64 to 256, along each side; of whole tiles; and in batches. */
Test(libraries, edges_of_tiles) {
  static const char *const dims[] = {"m=257 n=136 k=200", "m=136 n=520 k=72", "m=512 n=256 k=128",
                                     "m=8 n=5003 k=64"};
  for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
    CONFORM(.op = ZG_OP_DOT, .dims = dims[i], .ax = "k", .in = {{"mk"}, {"kn"}}, .out = {{"mn"}},
            .tol = DOT_TOL);
    CONFORM(.op = ZG_OP_DOT, .dims = dims[i], .ax = "k", .in = {{"mk"}, {"nk"}}, .out = {{"mn"}},
            .tol = DOT_TOL);
    CONFORM(.op = ZG_OP_DOT, .dims = dims[i], .ax = "k", .in = {{"km"}, {"kn"}}, .out = {{"mn", EXACT}},
            .accumulate = true, .tol = DOT_TOL);
  }
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 h=2 s=200 t=136 d=64", .ax = "d", .in = {{"bshd"}, {"bthd"}},
          .out = {{"bhst"}}, .tol = DOT_TOL);
}

/* Where they do not compile or load an interpreter takes over, with the right results: this says so. */
Test(libraries, programs) {
  conform(__FILE__, __LINE__, &pointwise_cases[0]);
  conform(__FILE__, __LINE__, &norm_fused[0]);
#ifdef HAVE_NVRTC
  const char *why = gpu_context()->no_programs;
  cr_assert(!*why, "%s", why);
#else
  cr_skip_test("this build has no NVRTC, so there are no programs");
#endif
}
