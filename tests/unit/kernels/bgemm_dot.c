/* dot of bf16 operands against the reference, by every path that this machine has. */
#include "tests/unit/kernels/bgemm.h"

#include "tests/unit/kernels/conform.h"

#define TOL 3e-6 /* as in reduce.c: f32 sums of up to about a thousand products */

static void dots(void) {
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33 f=5", .ax = "e", .in = {{"bse"}, {"ef"}}, .out = {{"bsf"}},
          .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=32 h=3 d=16", .ax = "e", .in = {{"bse"}, {"ehd"}},
          .out = {{"bshd"}}, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=33 h=3 d=8", .ax = "hd", .in = {{"bshd"}, {"hde"}},
          .out = {{"bse"}}, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=43 e=65 f=34", .ax = "bs", .in = {{"bse"}, {"bsf"}},
          .out = {{"ef", EXACT}}, .accumulate = true, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 s=17 e=17 h=3 d=5", .ax = "bs", .in = {{"bshd"}, {"bse"}},
          .out = {{"ehd", EXACT}}, .accumulate = true, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=3 h=5 s=17 t=33 d=8", .ax = "d", .in = {{"bshd"}, {"bthd"}},
          .out = {{"sbth"}}, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=35 n=41 j=43 k=29", .ax = "kj", .in = {{"jmk"}, {"kjn"}},
          .out = {{"mn"}}, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "b=40 s=5 t=3 d=2", .ax = "d", .in = {{"bsd"}, {"btd"}}, .out = {{"bst"}},
          .tol = TOL);
}

Test(bgemm_dot, avx512) {
  use_path("avx512");
  dots();
}

Test(bgemm_dot, amx) {
  use_path("amx");
  dots();
}

Test(bgemm_dot, f32) {
  use_path("f32");
  dots();
}

/* The result's rows are scattered and the sums do not fit into one round's scratch. */
Test(bgemm_dot, rounds_of_sums) {
  use_path("avx512");
  CONFORM(.op = ZG_OP_DOT, .dims = "m=19 p=17 n=4200 k=2", .ax = "k", .in = {{"mpk"}, {"kn"}},
          .out = {{"pmn"}}, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "m=3 p=2 n=5 k=4200", .ax = "k", .in = {{"mpk"}, {"kn"}}, .out = {{"pmn"}},
          .tol = 1e-5); /* longer sums */
}
