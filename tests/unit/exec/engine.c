/* Parts of the engine that need no model: what a rank says when a step stalls, gradients that are made half
 * as wide where they lie, and what is noted for a trace. What engines compute: tests/unit/plan/random/play.c
 * and scenarios. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- stalls ---- */
enum { INSTRS = 6 };
static uint64_t moves;
static int progressed;
static uint64_t my_moves(ZxComm *c) { return (void)c, moves; }
static void my_explain(ZxComm *c, ZxRequest r, ZbText *out) { (void)c, zb_text_add(out, "request %d", r); }
static void my_progress(ZxComm *c) { (void)c, progressed++; }
static bool first_two(const ZkEnv *env, uint32_t event) { return (void)env, event < 2; }
static const ZxDeviceTable device = {.reached = first_two};

/* Waits until something is said. */
static void relax(ZxEngine *e, ZxRequest r) {
  ZxWait w = {0};
  progressed = 0;
  for (uint64_t i = 1; !w.told; i++) {
    zx_relax(e, &w, r);
    cr_assert_eq((uint64_t)progressed, i);
  }
  zx_moved(e, &w);
  cr_assert(!w.told && !w.tries);
  zx_moved(e, &w); /* a wait that nobody heard of ends in silence */
}

Test(engine, what_a_stalled_step_waits_for) {
  static ZpInstr instrs[INSTRS] = {
      {.op = ZP_I_LOAD},     {.op = ZP_I_COUNT},     {.op = ZP_I_RECV_ACT, .mb = 3},
      {.op = ZP_I_SEND_ACT}, {.op = ZP_I_RECV_GRAD}, {.op = ZP_I_SEND_GRAD, .mb = 9}};
  static bool done[INSTRS] = {true, true, true, true};
  static ZxRequest request[INSTRS] = {0, 1, 22, 33, 44, 55};
  static uint32_t flight[] = {2, 3, 4, 5};
  ZpStage stage = {.prog = {.instrs = instrs, .ninstrs = INSTRS}};
  ZgLoc locs[] = {{"", 0, 0}, {"m.zug", 31, 7}};
  ZgGraph graph = {.locs = locs, .nlocs = 2};
  ZpPlan plan = {.graph = &graph, .programs.stages = &stage, .programs.nstages = 1, .arena = zb_arena_new()};
  ZpNode node = {.call.op = ZG_OP_ALL_REDUCE, .loc = 1};
  ZxCommTable table = {.moves = my_moves, .explain = my_explain, .progress = my_progress};
  ZxComm comm = {&table};
  ZxEngine e = {.p = &plan,
                .st = &stage,
                .c = &comm,
                .dev = &device,
                .rank = 2,
                .step = 12,
                .at = ZP_NONE,
                .done = done,
                .request = request,
                .flight = flight,
                .nflight = 2};
  cr_redirect_stderr();
  relax(&e, ZX_FOR_QUEUES);
  e.nflight = 4, e.at = 0;
  relax(&e, ZX_FOR_QUEUES);
  e.nflight = 3;
  relax(&e, ZX_FOR_QUEUES);
  e.nflight = 0, e.step = 0;
  relax(&e, ZX_FOR_QUEUES);
  e.at = ZP_NONE;
  relax(&e, 7);
  e.at = 0, e.node = &node, e.step = 12;
  relax(&e, 7);
  table.explain = NULL;
  relax(&e, 7);
  e.at = ZP_NONE;
  relax(&e, ZX_FOR_DEVICE);
  done[2] = false;
  table.stall_hint = "A says more", table.progress = NULL;
  progressed = 0;
  ZxWait w = {0};
  while (!w.told) zx_relax(&e, &w, ZX_FOR_DEVICE);
  moves++;
  while (w.told) zx_relax(&e, &w, ZX_FOR_DEVICE);
  cr_expect_eq(progressed, 0);
  e.capture[e.class] = ZX_CAPTURED;
  while (!w.told) zx_relax(&e, &w, ZX_FOR_DEVICE);
  e.capture[e.class] = ZX_CAPTURE_NEVER, e.step = 0;
  w = (ZxWait){0};
  while (!w.told) zx_relax(&e, &w, ZX_FOR_DEVICE);
  cr_expect_stderr_eq_str(
      "[rank 2] note: step 12: has waited 0 s for RECV_ACT(mb 3): request 22; SEND_ACT(mb 0): request 33\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: LOAD(mb 0) has waited 0 s for RECV_ACT(mb 3): request 22; SEND_ACT(mb 0): "
      "request 33; "
      "RECV_GRAD(mb 0): request 44; and 1 more\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: LOAD(mb 0) has waited 0 s for RECV_ACT(mb 3): request 22; SEND_ACT(mb 0): "
      "request 33; "
      "RECV_GRAD(mb 0): request 44\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: LOAD(mb 0) has waited 0 s for nothing that is under way\n"
      "[rank 2] note: it goes on\n"
      "[rank 2] note: has waited 0 s for request 7\n"
      "[rank 2] note: it goes on\n"
      "[rank 2] note: step 12: LOAD(mb 0) has waited 0 s for `all_reduce` at m.zug:31: request 7\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: LOAD(mb 0) has waited 0 s for `all_reduce` at m.zug:31: an operation of the "
      "communicator\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: has waited 0 s for the device, which has not done RECV_ACT(mb 3)\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: has waited 0 s for the device, which has not done RECV_ACT(mb 3); A says "
      "more, or the ranks that "
      "say nothing\n"
      "[rank 2] note: step 12: it goes on\n"
      "[rank 2] note: step 12: has waited 0 s for the device; A says more, or the ranks that say nothing\n"
      "[rank 2] note: has waited 0 s for the device; A says more, or the ranks that say nothing\n");
  zb_arena_free(plan.arena);
}

/* ---- half as wide, and as wide again ---- */
Test(engine, narrow_where_they_lie) {
  enum { MOST = 70 };
  ZkEnv env = {0};
  ZxEngine e = {.dev = &zx_device_cpu, .env = &env};
  for (uint64_t n = 0; n <= MOST; n++) {
    float x[MOST + 1];
    for (uint64_t i = 0; i <= MOST; i++) x[i] = (float)i * 1.001f;
    zx_narrow(&e, x, n);
    uint16_t half[MOST];
    memcpy(half, x, n * sizeof *half);
    for (uint64_t i = 0; i < n; i++)
      cr_assert_eq(half[i], zb_f32_to_bf16((float)i * 1.001f), "%d of %d", (int)i, (int)n);
    zx_widen(&e, (const uint16_t *)(const void *)x, x, n);
    for (uint64_t i = 0; i < n; i++) cr_assert_eq(x[i], zb_bf16_to_f32(half[i]), "%d of %d", (int)i, (int)n);
    cr_assert_eq(x[n], (float)n * 1.001f, "what is behind %d", (int)n);
    struct {
      uint16_t half[MOST];
      float x[MOST + 1];
    } room = {.x = {0}};
    memcpy(room.half, half, sizeof half);
    zx_widen(&e, room.half, room.x, n);
    for (uint64_t i = 0; i < n; i++) cr_assert_eq(room.x[i], zb_bf16_to_f32(half[i]));
    cr_assert_eq(room.x[n], 0);
  }
}

/* ---- traces ---- */
Test(engine, what_a_trace_has) {
  static ZpInstr instrs[3] = {{.op = ZP_I_LOAD}, {.op = ZP_I_SEND_ACT}, {.op = ZP_I_ZERO_GRADS}};
  ZbErr err = {0};
  ZpStage stage = {.prog = {.instrs = instrs, .ninstrs = 3}};
  ZxEngine e = {.a = zb_arena_new(), .st = &stage, .dev = &zx_device_cpu, .at = 1};
  uint64_t n = 7;
  cr_expect(zx_trace_room(&e, &err) && !zx_engine_spans(&e, &n) && n == 0);
  zx_trace_step(&e);
  zx_trace_begin(&e, 0); /* nothing is traced */
  zx_trace_end(&e, 0);
  zx_trace_node(&e, 0, 24, 1, 2);
  e.o.trace_from = 3, e.o.trace_to = 4;
  cr_assert(zx_trace_room(&e, &err), "%s", err.text);
  cr_expect_eq(e.spans_most, 6);
  for (e.step = 2; e.step <= 5; e.step++) {
    zx_trace_step(&e);
    cr_expect_eq(e.tracing, e.step == 3 || e.step == 4);
    double before = zb_now();
    zx_trace_begin(&e, 2);
    zx_trace_begin(&e, 0);
    zx_trace_node(&e, 5, 24, 1.5, 2.5);
    double between = zb_now();
    zx_trace_end(&e, 2);
    const ZpSpan *s = zx_engine_spans(&e, &n);
    cr_expect_eq(n, e.step < 3 ? 0 : e.step == 3 ? 3 : 6);
    if (!e.tracing) continue;
    s += n - 3;
    cr_expect(s[0].step == e.step && s[0].instr == 2 && s[0].node == ZP_NONE && s[1].instr == 0 &&
              s[1].node == ZP_NONE);
    cr_expect(s[0].begin >= before && s[0].begin <= s[1].begin && s[1].end == s[1].begin &&
              s[1].end <= between);
    cr_expect(s[0].end >= between && s[0].end <= zb_now());
    cr_expect(s[2].step == e.step && s[2].instr == 1 && s[2].node == 5 && s[2].bytes == 24 &&
              s[2].begin == 1.5 && s[2].end == 2.5);
  }
  e.o.trace_to = 3 + ZX_MOST_SPANS / 3;
  cr_expect(!zx_trace_room(&e, &err));
  cr_expect(strstr(err.text, " steps of 3 instructions are too many"), "%s", err.text);
  e.dev = &device;
  cr_expect(!zx_trace_room(&e, &err));
  cr_expect(strstr(err.text, "instructions begin and end without the host"), "%s", err.text);
  zb_arena_free(e.a);
}
