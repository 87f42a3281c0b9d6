/* Broken plans, as in check.c: operands, contents, arena. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/broken.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(check_memory, .init = arena_setup, .fini = arena_teardown);

/* `in` no longer waits for anything of kind `op`. */
static void forget_waits(const ZpPlan *p, uint32_t s, ZpInstr *in, ZpInstrOp op) {
  uint32_t n = 0, before = in->nwait;
  for (uint32_t k = 0; k < in->nwait; k++)
    if (p->programs.stages[s].prog.instrs[in->wait[k]].op != op) in->wait[n++] = in->wait[k];
  in->nwait = n;
  cr_assert_lt(n, before, "did not wait for it");
}

/* ---- 7 operands ---------------------------------------------------------------------------------------- */
Test(check_memory, operands) {
  ZpPlan *p = good(rich);
  find_instr(p, 1, ZP_I_FWD, 1, 1)->naccess--;
  rejects(p, "but does not");
  p = good(rich);
  ZpInstr *in = find_instr(p, 1, ZP_I_BWD, 1, 1);
  ZpAccess *more = ZB_NEWN(arena, ZpAccess, in->naccess + 1);
  memcpy(more, in->access, in->naccess * sizeof *more);
  more[in->naccess++] = (ZpAccess){0, ZP_READ, 0};
  in->access = more;
  rejects(p, "stage 1 BWD(layer.3, mb 1) has ");
  p = good(rich);
  in = find_instr(p, 1, ZP_I_FWD, 2, 0);
  for (uint32_t k = 0; k < in->naccess; k++)
    if (p->programs.stages[1].prog.bufs[in->access[k].buf].kind == ZP_B_RECV_ACT)
      in->access[k].tag = zp_tag(ZP_TAG_CARRY, 1, 2, 1);
  rejects(p, "stage 1 FWD(layer.2, mb 2) should read the tuple into layer.2, micro-batch 2 (activation "
             "receive buffer)");
}

/* What goes to and fro between instances is where the engine looks for it, by the instance's number. */
Test(check_memory, boundaries_exchanged) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2});
  ZpProgram *g = &p->programs.stages[0].prog;
  uint32_t first = (uint32_t)(find_buffer(p, 0, ZP_B_BOUNDARY, 0, 0) - g->bufs);
  for (uint32_t i = 0; i < g->ninstrs; i++)
    for (uint32_t k = 0; k < g->instrs[i].naccess; k++) {
      uint32_t *b = &g->instrs[i].access[k].buf;
      if (*b == first || *b == first + 1) *b = 2 * first + 1 - *b;
    }
  rejects(p,
          "stage 0 FWD(part 0, mb 0) should write the tuple into layer.0, micro-batch 0 (boundary buffer), "
          "but does not");
}

Test(check_memory, count_of_the_loss) {
  ZpPlan *p = good(rich);
  find_instr(p, 2, ZP_I_COUNT, 1, ANY)->inst = 0;
  rejects(p, "stage 2 COUNT(mb 1) counts a part of the model that has no loss");
  find_instr(p, 2, ZP_I_COUNT, 1, ANY)->inst = 9;
  rejects(p, "(COUNT) names something that does not exist");
}

/* A scatter leaves nothing of use where it took the gradient from, not in another buffer. */
Test(check_memory, changed_in_place) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find_instr(p, 1, ZP_I_SCATTER_GRADS, 0, 2);
  uint32_t from = ZP_NONE;
  for (uint32_t k = 0; k < in->naccess; k++)
    if (p->programs.stages[1].prog.bufs[in->access[k].buf].kind == ZP_B_STAGING &&
        in->access[k].mode == ZP_READ)
      from = in->access[k].buf;
  uint32_t first = (uint32_t)(find_buffer(p, 1, ZP_B_STAGING, 1, 0) - p->programs.stages[1].prog.bufs);
  for (uint32_t k = 0; k < in->naccess; k++)
    if (in->access[k].buf == from && in->access[k].mode == ZP_WRITE) in->access[k].buf = 2 * first + 1 - from;
  rejects(p, "stage 1 SCATTER_GRADS(layer.4, mb 0) reads staging buffer 0 of layer.*, but writes staging "
             "buffer 1 of layer.*");
}

/* ---- 8 contents ---------------------------------------------------------------------------------------- */
Test(check_memory, wait_for_receive) {
  ZpPlan *p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_FWD, 1, 0), ZP_I_RECV_ACT);
  rejects(p, "stage 1 FWD(layer.2, mb 1) may read activation receive buffer 1 before stage 1 RECV_ACT(mb 1) "
             "has written it");
}

Test(check_memory, receive_waits_for_reader) {
  ZpPlan *p = good(rich);
  forget_waits(p, 0, find_instr(p, 0, ZP_I_RECV_GRAD, 3, ANY), ZP_I_BWD);
  rejects(p, "stage 0 RECV_GRAD(mb 3) may overwrite gradient receive buffer 1 before stage 0 BWD(layer.1, mb "
             "1) has read");
}

Test(check_memory, send_buffer_reused) {
  ZpPlan *p = good(rich);
  forget_waits(p, 0, find_instr(p, 0, ZP_I_FWD, 2, 2), ZP_I_SEND_ACT);
  rejects(p, "stage 0 FWD(layer.1, mb 2) may overwrite activation send buffer 0 before stage 0 SEND_ACT(mb "
             "0) has read");
}

Test(check_memory, send_waits_for_data) {
  ZpPlan *p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_SEND_GRAD, 1, ANY), ZP_I_BWD);
  rejects(p, "stage 1 SEND_GRAD(mb 1) may read gradient send buffer 1 before stage 1 BWD(layer.2, mb 1) has "
             "written it");
}

Test(check_memory, staging_reused) {
  ZpPlan *p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_BWD, 0, 0), ZP_I_SCATTER_GRADS);
  rejects(p,
          "may write staging buffer 0 of layer.* while stage 1 SCATTER_GRADS(layer.4, mb 0) still uses it");
}

/* A tied table on one stage: the head's backward begins its gradient, the embedding's adds to it, one scatter
 * follows. */
static const Fake tied_ends = {.stages = 1, .nmicro = 2, .layers = 2, .level = 2, .tied = true};

static ZpAccess *staged(const ZpPlan *p, ZpInstr *in, uint32_t bucket) {
  for (uint32_t k = 0; k < in->naccess; k++) {
    const ZpBuf *b = &p->programs.stages[0].prog.bufs[in->access[k].buf];
    if (b->kind == ZP_B_STAGING && b->pool == bucket) return &in->access[k];
  }
  cr_assert_fail("no staged gradient");
  return NULL;
}

Test(check_memory, tied_gradient_added_up) {
  ZpPlan *p = good(tied_ends);
  staged(p, find_instr(p, 0, ZP_I_BWD, 1, 0), 0)->mode = ZP_WRITE;
  rejects(p, "stage 0 BWD(part 0, mb 1) should update the gradient of wte, micro-batch 1 (staging buffer)");
  p = good(tied_ends);
  staged(p, find_instr(p, 0, ZP_I_BWD, 1, 3), 0)->mode = ZP_READ | ZP_WRITE;
  rejects(p, "stage 0 BWD(part 2, mb 1) should write the gradient of wte, micro-batch 1 (staging buffer)");
}

Test(check_memory, tied_gradient_scattered_too_early) {
  ZpPlan *p = good(tied_ends);
  uint32_t head = fake_find(p, 0, ZP_I_BWD, 0, 3), scatter = fake_find(p, 0, ZP_I_SCATTER_GRADS, 0, 0);
  p->programs.stages[0].prog.instrs[scatter].wait[0] = head;
  move_instr(p, 0, scatter, head + 1);
  rejects(p, "stage 0 BWD(part 0, mb 0) reads the gradient of wte, micro-batch 0 from staging buffer 0 of "
             "wte, but stage 0 "
             "SCATTER_GRADS(wte, mb 0) has put nothing of use there");
}

Test(check_memory, tied_gradient_scattered_twice) {
  ZpPlan *p = good(tied_ends);
  ZpInstr *in = find_instr(p, 0, ZP_I_SCATTER_GRADS, 1, 0),
          *other = find_instr(p, 0, ZP_I_SCATTER_GRADS, 1, 1);
  other->held = in->held;
  rejects(p, "stage 0: scattering a gradient of wte happens 3 times in a step instead of 2");
}

Test(check_memory, gather_waits_for_reader) {
  ZpPlan *p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_GATHER_PARAMS, ANY, 2), ZP_I_FWD);
  rejects(p, "stage 1 GATHER_PARAMS(layer.4) may overwrite gather buffer 0 of layer.* before stage 1 "
             "FWD(layer.2, mb 0) has read");
}

Test(check_memory, forward_waits_for_gather) {
  ZpPlan *p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_FWD, 0, 2), ZP_I_GATHER_PARAMS);
  rejects(p, "stage 1 FWD(layer.4, mb 0) may read gather buffer 0 of layer.* before stage 1 "
             "GATHER_PARAMS(layer.4) has written it");
}

Test(check_memory, gather_removed) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_GATHER_PARAMS, ANY, 2));
  rejects(
      p,
      "stage 1 FWD(layer.4, mb 0) reads parameters of layer.4 from gather buffer 0 of layer.*, but stage 1 "
      "GATHER_PARAMS(layer.2) has put parameters of layer.2 there");
  p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_GATHER_PARAMS, ANY, 0));
  rejects(p, "stage 1 FWD(layer.2, mb 0) reads parameters of layer.2 from gather buffer 0 of layer.*, where "
             "nobody has put it");
}

Test(check_memory, denominator) {
  ZpPlan *p = good(rich);
  forget_waits(p, 2, find_instr(p, 2, ZP_I_BWD, 0, p->programs.stages[2].ninsts - 1), ZP_I_REDUCE_COUNT);
  rejects(p, "BWD(part 2, mb 0) may read scalars 0 before stage 2 REDUCE_COUNT has written it");
}

Test(check_memory, end_of_step_in_order) {
  ZpPlan *p = good(rich);
  forget_waits(p, 0, find_instr(p, 0, ZP_I_OPT_STEP, ANY, 0), ZP_I_REDUCE_STEP);
  rejects(p, "stage 0 OPT_STEP(wte) may run before REDUCE_STEP is complete");
  p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_REDUCE_STEP, ANY, ANY), ZP_I_NORM_LOCAL);
  rejects(p, "stage 1 REDUCE_STEP may run before NORM_LOCAL is complete");
  p = good(rich);
  forget_waits(p, 1, find_instr(p, 1, ZP_I_NORM_LOCAL, ANY, ANY), ZP_I_REDUCE_GRADS);
  rejects(p, "stage 1 NORM_LOCAL may read gradient accumulator of");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 2});
  forget_waits(p, 0, find_instr(p, 0, ZP_I_FWD, 0, 1), ZP_I_PUBLISH_PARAMS);
  rejects(p, "stage 0 FWD(layer.0, mb 0) may read parameter store of layer.0 before stage 0 "
             "PUBLISH_PARAMS(layer.0) has written it");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2});
  move_instr(p, 0, fake_find(p, 0, ZP_I_NORM_LOCAL, ANY, ANY), fake_find(p, 0, ZP_I_BWD, 1, 0));
  rejects(p, ""); /* whichever proof comes first */
}

/* Where all is frozen the norm reads nothing that backward makes. */
Test(check_memory, norm_of_nothing) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 2, .frozen = 3});
  move_instr(p, 0, fake_find(p, 0, ZP_I_NORM_LOCAL, ANY, ANY), fake_find(p, 0, ZP_I_BWD, 1, 0));
  rejects(p, "stage 0 NORM_LOCAL may run before stage 0 BWD(part 0, mb 1) is complete");
}

/* Nobody reads a store again once it has been gathered; but the next step does. */
Test(check_memory, parameters_outlive_the_step) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .level = 3, .forward_only = true});
  find_buffer(p, 0, ZP_B_SCRATCH, 0, 0)->offset = find_buffer(p, 0, ZP_B_PARAM, 0, 0)->offset;
  rejects(p, "stage 0: at the end of the step parameter store of wte holds nothing of use instead of "
             "parameters of wte");
}

Test(check_memory, reduced_before_the_last_backward) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 0});
  uint32_t at = fake_find(p, 0, ZP_I_BWD, 1, 3);
  ZpInstr *in = find_instr(p, 0, ZP_I_REDUCE_GRADS, ANY, 0);
  uint32_t from = (uint32_t)(in - p->programs.stages[0].prog.instrs);
  in->wait[0] = at - 1;
  move_instr(p, 0, from, at);
  rejects(p, "accumulated gradient of wte after 0 reductions");
}

/* No wait is there for nothing: whichever one is dropped, a proof fails, unless an earlier entry of the same
 * queue waits for it too. */
static void drop_each_wait(Fake f) {
  ZpPlan *p = good(f);
  uint32_t dropped = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpProgram *g = &p->programs.stages[s].prog;
    uint32_t latest[ZP_QUEUES] = {0}; /* last computation that an entry of the queue waited for, + 1 */
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      ZpInstr *in = &g->instrs[i];
      for (uint32_t k = 0; k < in->nwait; k++) {
        ZpInstr was = *in;
        uint32_t wait = in->wait[k];
        bool implied = g->instrs[wait].queue == ZP_Q_COMPUTE && wait < latest[in->queue];
        in->wait = ZB_NEWN(arena, uint32_t, in->nwait);
        in->nwait = 0;
        for (uint32_t j = 0; j < was.nwait; j++)
          if (j != k) in->wait[in->nwait++] = was.wait[j];
        ZbErr err = {0};
        ZbText t = {0};
        zp_instr_text(p, s, in, &t);
        if (!implied) cr_assert(!zp_check(p, &err), "stage %u %s need not wait for %u", s, t.s, wait);
        zb_text_free(&t);
        *in = was;
        dropped += !implied;
      }
      for (uint32_t k = 0; k < in->nwait; k++)
        if (g->instrs[in->wait[k]].queue == ZP_Q_COMPUTE && in->wait[k] >= latest[in->queue])
          latest[in->queue] = in->wait[k] + 1;
    }
  }
  cr_assert_gt(dropped, 10);
}

Test(check_memory, no_wait_is_idle) {
  for (int level = 0; level < 4; level++)
    for (int k = 0; k < 2; k++) {
      drop_each_wait((Fake){.stages = 3,
                            .nmicro = 4,
                            .layers = 7,
                            .level = level,
                            .tied = k,
                            .saves_carry = true,
                            .counts = true});
      drop_each_wait(
          (Fake){.schedule = "gpipe", .stages = 2, .nmicro = 3, .layers = 4, .level = level, .shared = k});
    }
}

/* ---- 9 arena ------------------------------------------------------------------------------------------- */
Test(check_memory, slots_overlap) {
  ZpPlan *p = good(rich);
  find_buffer(p, 0, ZP_B_SLOT, 0, 1)->offset = find_buffer(p, 0, ZP_B_SLOT, 0, 0)->offset;
  rejects(p, "stage 0 FWD(layer.1, mb 0) writes values of micro-batch 0 into slot 0, but nobody reads it "
             "before stage 0 "
             "LOAD(mb 1) overwrites it");
}

Test(check_memory, stored_things_overlap) {
  ZpPlan *p = good(rich);
  ZpBuf *b = find_buffer(p, 0, ZP_B_GRAD, 1, 0);
  b->offset = find_buffer(p, 0, ZP_B_STATE, 1, 0)->offset;
  rejects(p, "stage 0: gradient accumulator of layer.0 and optimizer state of layer.0 overlap in the arena");
}

/* Scratch begins below both, and may lie on either: they are seen all the same. */
Test(check_memory, stored_things_overlap_in_scratch) {
  ZpPlan *p = good(rich);
  ZpBuf *b = find_buffer(p, 0, ZP_B_GRAD, 1, 0), *state = find_buffer(p, 0, ZP_B_STATE, 1, 0);
  find_buffer(p, 0, ZP_B_SCRATCH, 0, 0)->offset = state->offset - 64;
  b->offset = state->offset;
  rejects(p, "stage 0: gradient accumulator of layer.0 and optimizer state of layer.0 overlap in the arena");
}

/* With one micro-batch the boundary is dead once embed's gradient is staged; with two it is alive again. */
Test(check_memory, overlap_in_turn) {
  for (uint32_t M = 1; M <= 2; M++) {
    ZpPlan *p = good((Fake){.stages = 1, .nmicro = M, .layers = 2, .level = 2, .alone = true});
    find_buffer(p, 0, ZP_B_BOUNDARY, 0, 0)->offset = find_buffer(p, 0, ZP_B_STAGING, 0, 0)->offset;
    ZbErr err = {0};
    if (M == 1) cr_assert(zp_check(p, &err), "%s", err.text);
    else rejects(p, "stage 0 FWD(layer.0, mb 1) may ");
  }
}

/* Buffers that nobody uses, one of them in the first bytes of scratch: it is met once, whatever else has
 * ended before. */
Test(check_memory, overlap_with_what_is_idle) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .level = 2, .alone = true});
  ZpProgram *g = &p->programs.stages[0].prog;
  ZpLedger *l = &p->programs.stages[0].ledger;
  uint64_t *total = &l->total[ZP_DEVICE];
  /* Behind the arena's end; scratch goes to 256. */
  const uint64_t idle[3][2] = {{0, 64}, {64, 320}, {128, 192}};
  for (uint32_t i = 0; i < 3; i++) {
    ZpBuf b = {
        .kind = ZP_B_RECV_ACT, .index = i, .bytes = idle[i][1] - idle[i][0], .offset = *total + idle[i][0]};
    ZB_PUSH(arena, g->bufs, g->nbufs, b);
  }
  find_buffer(p, 0, ZP_B_SCRATCH, 0, 0)->offset = *total + 256;
  *total += 256 + 128, l->bytes[ZP_L_OTHER] = *total;
  ZbErr err = {0};
  cr_assert(zp_check(p, &err), "%s", err.text);
  g->bufs[g->nbufs - 1].offset = find_buffer(p, 0, ZP_B_STATE, 0, 0)->offset;
  rejects(p, "optimizer state of wte and activation receive buffer 2 overlap in the arena");
}

Test(check_memory, overlap_within_one_instruction) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .level = 2, .alone = true});
  find_buffer(p, 0, ZP_B_BOUNDARY, 0, 1)->offset = find_buffer(p, 0, ZP_B_STAGING, 0, 0)->offset;
  rejects(p, "stage 0 BWD(part 0, mb 0) uses boundary buffer 1 and staging buffer 0 of wte, which overlap in "
             "the arena");
}

Test(check_memory, arena_bounds) {
  ZpPlan *p = good(rich);
  p->programs.stages[2].prog.bufs[p->programs.stages[2].prog.nbufs - 1].offset += 64;
  rejects(p, "stage 2: staging buffer 1 of layer.* lies at bytes 49792 to ");
  p = good(rich);
  p->programs.stages[1].ledger.total[ZP_DEVICE] += 64;
  rejects(p, "stage 1: the lines of the ledger add up to ");
  p = good(rich);
  p->programs.stages[1].ledger.bytes[ZP_L_PARAMS] = UINT64_MAX;
  rejects(p, "stage 1: the ledger overflows");
  p = good(rich);
  find_buffer(p, 1, ZP_B_SCRATCH, 0, 0)->offset += 8;
  rejects(p, "stage 1: scratch 0 lies at bytes ");
  p = good(rich);
  find_buffer(p, 1, ZP_B_GATHER, 1, 0)->bytes = 64;
  rejects(p, "stage 1: gather buffer 0 of layer.* has 64 bytes, but needs 4096");
  p = good(rich);
  p->programs.stages[1].saved_at[1] -= 64;
  rejects(p, "stage 1: what layer.3 saves overlaps what lies before it in the slot");
}

/* Sizes worked by hand: 1024 elements cut in 2 by ZeRO-1 (states), -2 (gradients), -3 (parameters). A line
 * less is refused, wherever the planner takes its sizes from. */
Test(check_memory, sizes_by_hand) {
  static const struct {
    ZpBufKind kind;
    uint32_t pool;
    uint64_t full[4], half[4]; /* in f32, in halves; by level */
  } want[] = {{ZP_B_PARAM, 1, {4096, 4096, 4096, 2048}, {2048 + 2048, 2048 + 1024, 2048 + 1024, 1024 + 1024}},
              {ZP_B_GRAD, 1, {4096, 4096, 2048, 2048}, {4096, 4096, 2048, 2048}},
              {ZP_B_STATE, 1, {8192, 4096, 4096, 4096}, {8192, 4096, 4096, 4096}},
              {ZP_B_STAGING, 1, {0, 0, 4096, 4096}, {0, 0, 4096, 4096}},
              {ZP_B_GATHER, 1, {0, 0, 0, 4096}, {0, 0, 0, 2048}},
              {ZP_B_SLOT, 0, {768, 768, 768, 768}, {768, 768, 768, 768}}, /* 3 x 256, no inputs */
              {ZP_B_RECV_ACT, 0, {512, 512, 512, 512}, {512, 512, 512, 512}},
              {ZP_B_SEND_ACT, 0, {512, 512, 512, 512}, {512, 512, 512, 512}},
              {ZP_B_RECV_GRAD, 0, {512, 512, 512, 512}, {512, 512, 512, 512}},
              {ZP_B_SEND_GRAD, 0, {512, 512, 512, 512}, {512, 512, 512, 512}},
              {ZP_B_BOUNDARY, 0, {512, 512, 512, 512}, {512, 512, 512, 512}},
              {ZP_B_SCRATCH, 0, {128, 128, 128, 128}, {128, 128, 128, 128}},
              {ZP_B_SCALARS, 0, {64, 64, 64, 64}, {64, 64, 64, 64}}};
  for (int level = 0; level < 4; level++)
    for (int half = 0; half < 2; half++) {
      ZpPlan *p = good((Fake){.stages = 3, .nmicro = 2, .layers = 7, .level = level, .bf16 = half});
      for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint64_t bytes = (half ? want[i].half : want[i].full)[level];
        if (!bytes) continue;
        ZpBuf *b = find_buffer(p, 1, want[i].kind, want[i].pool, 0);
        cr_expect_eq(b->bytes, bytes, "kind %d, level %d: %llu bytes", want[i].kind, level,
                     (unsigned long long)b->bytes);
        b->bytes--;
        rejects(p, zb_printf(arena, "has %llu bytes, but needs %llu", (unsigned long long)bytes - 1,
                             (unsigned long long)bytes));
        b->bytes++;
      }
    }
}

/* What is larger on this stage than elsewhere: temporaries of each kind, tuples of each instance. */
Test(check_memory, sizes_of_each_segment) {
  for (int k = 0; k < ZP_PHASES; k++) {
    ZpPlan *p = good(rich);
    p->programs.segments[1].list[k].temp = 192;
    rejects(p, "stage 0: scratch 0 has 128 bytes, but needs 192");
  }
  ZpPlan *p;
  for (int back = 0; back < 2; back++) { /* on one stage: nothing is sent */
    p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2});
    for (int i = 0; i < 3; i++) {
      if (back) p->programs.segments[i].dcarry_bytes = p->programs.segments[i].dcarry_out_bytes = 576;
      else p->programs.segments[i].carry_bytes = p->programs.segments[i].carry_out_bytes = 576;
    }
    ZpVirtualStage *v = p->programs.vstages;
    if (back) v->dcarry_bytes = v->dcarry_out_bytes = 576;
    else v->carry_bytes = v->carry_out_bytes = 576;
    rejects(p, "stage 0: boundary buffer 0 has 512 bytes, but needs 576");
  }
  p = good(rich); /* in the slot, behind what is saved: 3 x 256 and two tuples of 512 */
  find_buffer(p, 1, ZP_B_SLOT, 0, 0)->bytes = 1728;
  rejects(p, "stage 1: slot 0 has 1728 bytes, but needs 1792");
  p = good(rich);
  for (uint32_t s = 0; s < 3; s++) p->programs.stages[s].scratch_bytes = 0;
  rejects(p, "stage 0 has temporaries, but no scratch");
  p = good(rich);
  p->programs.stages[1].saved_at[1] += 8;
  rejects(p, "stage 1: what layer.3 saves overlaps");
  p = good(rich);
  p->programs.stages[1].saved_at[2] = UINT64_MAX - 63;
  rejects(p, "stage 1: what layer.4 saves overlaps");
}

/* Where the device has its own memory, inputs and scalars pass through the host's. */
Test(check_memory, pinned) {
  Fake f = {.stages = 3, .nmicro = 4, .layers = 7, .level = 3, .pins = true};
  ZpPlan *p = good(f); /* 64 bytes of inputs on the first stage and the last */
  for (uint32_t s = 0; s < 3; s++) {
    const ZpStage *st = &p->programs.stages[s];
    cr_expect_eq(st->prog.npinned, s == 1 ? 0 : 4);
    cr_expect_eq(st->ledger.total[ZP_HOST], s == 1 ? 128 : 128 + 4 * 64);
  }
  find_buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->bytes = 32;
  rejects(p, "stage 0: pinned inputs 1 has 32 bytes, but needs 64");
  p = good(f);
  find_buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->memory = ZP_DEVICE;
  rejects(p, "stage 0: pinned inputs 1 is not in the host's memory");
  p = good(f);
  find_buffer(p, 0, ZP_B_SCALARS, 0, 1)->memory = ZP_HOST;
  rejects(p, "stage 0: scalars 1 is not in the device's memory");
  p = good(f);
  find_buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->offset = 0;
  rejects(p, "overlap in the host's memory");
  p = good(f);
  find_buffer(p, 1, ZP_B_PINNED_SCALARS, 0, 1)->offset = 128;
  rejects(p, "stage 1: pinned scalars 1 lies at bytes 128 to 192 of a host's memory of 128");
  p = good(f);
  p->programs.stages[0].prog.npinned = 3;
  rejects(p, "stage 0 pins 4 blocks of inputs (its plan says 3) and 2 of scalars");
  p = good(f);
  ZpBuf *between = find_buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 3), was = *between;
  between[0] = between[1], between[1] = was; /* and a block of scalars */
  rejects(p, "stage 0: pinned inputs 3 is not numbered as it is listed");
  p = good(f);
  p->asked.pins = false;
  rejects(p, "stage 0 pins 4 blocks of inputs (its plan says 4) and 2 of scalars");
  p = good(f);
  p->programs.stages[1].ledger.bytes[ZP_L_PINNED] -= 64;
  rejects(p, "stage 1: the lines of the ledger add up to 64 bytes, its total is 128");
}

/* What is written into checkpoints is copied into the host's memory, where it is asked for. */
Test(check_memory, snapshot) {
  Fake f = {.stages = 2, .nmicro = 2, .layers = 4, .level = 2, .tied = true, .checkpoints = true};
  ZpPlan *p = good(f);
  ZpBuf *b = find_buffer(p, 1, ZP_B_SNAPSHOT, 0, 0);
  uint64_t bytes = b->bytes;
  b->bytes -= 64;
  rejects(p, zb_printf(p->arena, "stage 1: the snapshot 0 has %llu bytes, but needs",
                       (unsigned long long)bytes - 64));
  p = good(f);
  find_buffer(p, 0, ZP_B_SNAPSHOT, 0, 0)->memory = ZP_DEVICE;
  rejects(p, "stage 0: the snapshot 0 is not in the host's memory");
  p = good(f);
  p->asked.checkpoints = false;
  rejects(p, "stage 0 has room for 1 snapshots");
}

/* The engine finds what is stored of a bucket by the bucket alone. */
Test(check_memory, stored_once) {
  static const struct {
    ZpBufKind kind;
    const char *text;
  } of[] = {{ZP_B_PARAM, "stage 1 has a second parameter store of layer.3"},
            {ZP_B_GRAD, "stage 1 has a second gradient accumulator of layer.3"},
            {ZP_B_STATE, "stage 1 has a second optimizer state of layer.3"}};
  for (int i = 0; i < 3; i++) {
    ZpPlan *p = good(rich);
    ZpProgram *g = &p->programs.stages[1].prog;
    ZpBuf b = *find_buffer(p, 1, of[i].kind, 1, 0);
    b.index = 1;
    ZB_PUSH(arena, g->bufs, g->nbufs, b);
    rejects(p, of[i].text);
  }
}

/* Sums of three kinds lie in one place, one after the other: every reader is told which it should find. */
Test(check_memory, sums_are_told_apart) {
  static const char *const name[] = {"this rank's loss sums (scalars), but does not",
                                     "this rank's sums with the norm (scalars), but does not",
                                     "the world's sums (scalars), but does not"};
  uint32_t readers[3] = {0};
  ZpPlan *p = good(rich);
  for (uint32_t i = 0; i < p->programs.stages[0].prog.ninstrs; i++) {
    ZpInstr *in = &p->programs.stages[0].prog.instrs[i];
    for (uint32_t k = 0; k < in->naccess; k++)
      for (uint32_t n = 0; n < 3; n++) {
        if (!(in->access[k].mode & ZP_READ) || in->access[k].tag != zp_tag(ZP_TAG_SUMS, 0, 0, n)) continue;
        in->access[k].tag = zp_tag(ZP_TAG_SUMS, 0, 0, (n + 1) % 3);
        rejects(p, name[n]);
        in->access[k].tag = zp_tag(ZP_TAG_SUMS, 0, 0, n);
        readers[n]++;
        break;
      }
  }
  cr_expect(readers[0] > 0 && readers[1] > 0 && readers[2] > 0);
}
