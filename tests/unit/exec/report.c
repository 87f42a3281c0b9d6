/* What is said at the end of a run, to the letter. */
#include "runtime/exec/report.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

#include "runtime/exec/engine/internal.h"

static ZgAxis axes[] = {{"batch", 0}, {"seq", 0}};
static ZgLoc locs[] = {{"", 0, 0}, {"m.zug", 31, 7}};
static ZgGraph graph = {.axes = axes, .naxes = 2, .locs = locs, .nlocs = 2};
static int64_t sizes[] = {4, 16};
static ZpPlan plan = {
    .graph = &graph, .layout.axis_size = sizes, .asked.global_batch = 8, .notes.model_flops = 3e6};

TestSuite(report, .init = cr_redirect_stdout);

/* A sequence of the recipe's length makes tokens of samples. */
Test(report, tokens) {
  cr_expect_eq(zx_tokens_per_step(&plan), 8 * 16);
  axes[1].size = 16;
  cr_expect_eq(zx_tokens_per_step(&plan), 8);
  graph.naxes = 1;
  cr_expect_eq(zx_tokens_per_step(&plan), 8);
}

/* Of step 1 nothing is said, nor of two steps. */
Test(report, the_median_step) {
  ZxStepTimes t = {.made = 2, .ms = {900, 2}};
  zx_report_speed(&t, &plan, 0);
  t = (ZxStepTimes){.made = 3, .last = 70, .ms = {900, 4, 2}}; /* resumed from step 67 */
  zx_report_speed(&t, &plan, 0);
  t = (ZxStepTimes){.made = 6, .ms = {900, 3, 1, 2, 9, 8}};
  zx_report_speed(&t, &plan, 4e9);
  t.made = ZX_STEPS_KEPT;
  for (int i = 0; i < ZX_STEPS_KEPT; i++) t.ms[i] = i ? i + 1 : 9000; /* 2 to 1000 */
  zx_report_speed(&t, &plan, 0);
  t.made = ZX_STEPS_KEPT + 1;
  for (int i = 0; i < ZX_STEPS_KEPT; i++) t.ms[i] = ZX_STEPS_KEPT - i; /* 1 to 1000, all kept */
  zx_report_speed(&t, &plan, 0);
  fflush(stdout);
  cr_expect_stdout_eq_str(
      "median step 4.0 ms: 32000 tokens/s, 0.8 GFLOP/s\n"
      "median step 3.0 ms: 42667 tokens/s, 1.0 GFLOP/s, 25.0 % of the 4.0 GFLOP/s that products reach here\n"
      "median step 501.0 ms: 255 tokens/s, 0.0 GFLOP/s\n"
      "median step 501.0 ms: 255 tokens/s, 0.0 GFLOP/s\n");
}

Test(report, where_time_went) {
  ZbArena *a = zb_arena_new();
  const ZgType type = {.elem = ZG_REAL, .naxes = 2, .axis = {0, 1}};
  ZxCallTime calls[] = {{.op = ZG_OP_DOT,
                         .fused = true,
                         .loc = 1,
                         .phase = "backward",
                         .type = &type,
                         .calls = 20,
                         .seconds = 0.5,
                         .work = {.flops = 1e9, .bytes = 2e8, .bound = 0.25, .bound_by_flops = 0.125}},
                        {.op = ZG_OP_SUM, .phase = "count", .type = &type, .calls = 1, .seconds = 1.0}};
  uint32_t timed_at[] = {0};
  ZxEngine e = {.a = a, .p = &plan, .timed = calls, .timed_at = timed_at};
  plan.arena = a;
  zx_report_times(&e, &plan, &(ZpPeaks){.flops = 2e9, .bytes = 1e9}, 2, 9); /* nothing took any time */
  e.times[ZG_OP_DOT] = 1, e.work[ZG_OP_DOT] = (ZxWork){1e9, 2e8, 0.98, 0.5, 0.8};
  e.times[ZG_OP_SUM] = 2, e.work[ZG_OP_SUM] = (ZxWork){.bytes = 1e9};
  e.times[ZG_OP_EXP] = 0.009; /* too little to be shown */
  e.times[ZG_OP_COUNT] = 5.991,
  e.work[ZG_OP_COUNT] = (ZxWork){.bytes = 3e9, .bound = 5.8, .bound_by_flops = 2.5};
  e.times[ZG_OP_COUNT + 1] = 1;
  zx_report_times(&e, &plan, &(ZpPeaks){.flops = 2e9, .bytes = 1e9}, 2, 9);
  e.ntimed = 2;
  e.work[ZG_OP_DOT].bound = e.work[ZG_OP_COUNT].bound = 0; /* no peaks were measured */
  e.work[ZG_OP_DOT].predicted = 0;
  calls[0].work.bound = 0;
  zx_report_times(&e, &plan, &(ZpPeaks){0}, 1, 2);
  calls[0].work = (ZxWork){.bytes = 2e8, .bound = 0.25};
  zx_report_times(&e, &plan, &(ZpPeaks){0}, 1, 2);
  zb_arena_free(a);
  fflush(stdout);
  /* clang-format off */
  cr_expect_stdout_eq_str(
      "time by operation on rank 0 in steps 2 to 9 (waiting inside collectives is theirs):\n"
      "  sum                 2.000 s   20.0 %                           0.5 GB/s\n"
      "  dot                 1.000 s   10.0 %         1.0 GFLOP/s       "
      "0.2 GB/s   98 % of its bound (FLOPs)   +25 % on its prediction\n"
      "  optimizer           5.991 s   59.9 %                           "
      "0.5 GB/s   97 % of its bound (bytes)\n"
      "  waiting             1.000 s   10.0 %\n"
      "at the 2.0 GFLOP/s of large products and the 1.0 GB/s of large copies these take "
      "6.780 of 6.991 s, 97 %\n"
      "time by operation on rank 0 in steps 1 to 2 (waiting inside collectives is theirs):\n"
      "  sum                 2.000 s   20.0 %                           0.5 GB/s\n"
      "  dot                 1.000 s   10.0 %         1.0 GFLOP/s       0.2 GB/s\n"
      "  optimizer           5.991 s   59.9 %                           0.5 GB/s\n"
      "  waiting             1.000 s   10.0 %\n"
      "of that the longest calls:\n"
      "  sum                  count     the model          real[batch, seq]     "
      "         1000.000 ms x 1      10.0 %\n"
      "  dot+pointwise        backward  m.zug:31           real[batch, seq]     "
      "           25.000 ms x 20      5.0 %         2.0 GFLOP/s       0.4 GB/s\n"
      "time by operation on rank 0 in steps 1 to 2 (waiting inside collectives is theirs):\n"
      "  sum                 2.000 s   20.0 %                           0.5 GB/s\n"
      "  dot                 1.000 s   10.0 %         1.0 GFLOP/s       0.2 GB/s\n"
      "  optimizer           5.991 s   59.9 %                           0.5 GB/s\n"
      "  waiting             1.000 s   10.0 %\n"
      "of that the longest calls:\n"
      "  sum                  count     the model          real[batch, seq]     "
      "         1000.000 ms x 1      10.0 %\n"
      "  dot+pointwise        backward  m.zug:31           real[batch, seq]     "
      "           25.000 ms x 20      5.0 %                           0.4 GB/s  "
      " 50 % of its bound (bytes)\n");
  /* clang-format on */
}

Test(report, each_operation) {
  static char text[16384];
  char want[64];
  const char *at = text;
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    ZxEngine e = {.p = &plan};
    e.times[i] = 2;
    zx_report_times(&e, &plan, &(ZpPeaks){0}, 1, 2);
  }
  fflush(stdout);
  text[fread(text, 1, sizeof text - 1, cr_get_redirected_stdout())] = 0;
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    const char *name = i < ZG_OP_COUNT ? zg_op_info[i].text : i == ZG_OP_COUNT ? "optimizer" : "waiting";
    snprintf(want, sizeof want, "\n  %-16s    2.000 s  100.0 %%\n", name);
    cr_assert(at = strstr(at, want), "%s", name);
    at++;
  }
}
