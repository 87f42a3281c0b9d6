/* Attention: what the CPU's cases do not reach. */
#include "tests/unit/kernels_cuda/emu.h"

/* A head of any size, over more keys than a block has threads. Tolerance as in attend.c. */
Test(attend_cuda, long_head) {
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "s=130 d=257", .ax = "sd", .num = {0.05}, .opt = {mask},
            .f32_only = true, .in = {{"sd"}, {"sd"}, {"sd"}}, .out = {{"sd"}, {"s", EXACT}}, .tol = 5e-6);
}

Test(attend_cuda, nothing) {
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "b=3 s=0 d=8", .ax = "sd", .num = {1}, .opt = {mask},
            .in = {{"bsd"}, {"bsd"}, {"bsd"}}, .out = {{"bsd"}, {"bs", EXACT}});
}
