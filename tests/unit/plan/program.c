/* Programs of made-up plans: all of them pass the proofs, hold what they should and no more, and are
 * printed. */
#include "tests/unit/plan/fake.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t count(const ZpPlan *p, uint32_t stage, ZpInstrOp op, const char *bucket) {
  const ZpStage *st = &p->programs.stages[stage];
  uint32_t n = 0;
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    n += in->op == op && (!bucket || !strcmp(p->programs.buckets[st->held[in->held].bucket].name, bucket));
  }
  return n;
}

static void passes(Fake f) {
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZpPlan *p = fake_programs(a, f);
  if (!zp_check(p, &err))
    cr_assert_fail("%s P=%u M=%u level %d%s%s%s%s: %s", f.schedule, f.stages, f.nmicro, f.level,
                   f.keep ? " keep" : "", f.tied ? " tied" : "", f.shared ? " shared" : "",
                   f.saves_carry ? " saves" : "", err.text);
  bool gpipe = !strcmp(f.schedule, "gpipe");
  for (uint32_t s = 0; s < f.stages; s++)
    cr_assert_eq(p->programs.stages[s].prog.live, f.forward_only ? 1
                                                  : gpipe        ? f.nmicro
                                                                 : min_u32(f.stages - s, f.nmicro));
  zb_arena_free(a);
}

static void sizes(const char *schedule, int level, bool keep, bool forward_only) {
  for (uint32_t P = 1; P <= 8; P++)
    for (uint32_t M = 1; M <= 8; M++)
      for (int k = 0; k < 32; k++)
        passes((Fake){.schedule = schedule,
                      .forward_only = forward_only,
                      .stages = P,
                      .nmicro = M,
                      .layers = 8,
                      .level = level,
                      .keep = keep,
                      .tied = k & 1,
                      .shared = k & 2,
                      .saves_carry = k & 4,
                      .counts = k & 8,
                      .costs = k & 16,
                      .alone = k & 8,
                      .bf16 = k & 4});
}

static void all_sizes(const char *schedule, int level, bool keep) { sizes(schedule, level, keep, false); }

Test(program, f1b_zero0) { all_sizes("1f1b", 0, false); }
Test(program, f1b_zero1) { all_sizes("1f1b", 1, false); }
Test(program, f1b_zero2) { all_sizes("1f1b", 2, false); }
Test(program, f1b_zero3) { all_sizes("1f1b", 3, false); }
Test(program, f1b_keep) { all_sizes("1f1b", 3, true); }
Test(program, gpipe_zero0) { all_sizes("gpipe", 0, false); }
Test(program, gpipe_zero1) { all_sizes("gpipe", 1, false); }
Test(program, gpipe_zero2) { all_sizes("gpipe", 2, false); }
Test(program, gpipe_zero3) { all_sizes("gpipe", 3, false); }
Test(program, gpipe_keep) { all_sizes("gpipe", 3, true); }

Test(program, forward_only) {
  for (int level = 0; level <= 3; level++) sizes("1f1b", level, false, true);
  sizes("gpipe", 3, true, true);
}

Test(program, frozen) {
  for (int level = 0; level <= 3; level++)
    for (uint32_t P = 1; P <= 4; P++)
      for (int k = 0; k < 64; k++)
        passes((Fake){.schedule = k & 32 ? "gpipe" : "1f1b",
                      .stages = P,
                      .nmicro = 3,
                      .layers = 6,
                      .level = level,
                      .keep = level == 3 && k & 1,
                      .tied = k & 2,
                      .shared = k & 4,
                      .saves_carry = k & 8,
                      .bf16 = k & 16,
                      .checkpoints = k & 4,
                      .frozen = 1 + k % 3});
}

Test(program, odd_sizes) {
  static const uint32_t sizes[][3] = {{16, 3, 30}, {13, 40, 24}, {32, 64, 40}, {2, 100, 7}, {1, 33, 5}};
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 8; k++)
      passes((Fake){.schedule = k & 1 ? "gpipe" : "1f1b",
                    .stages = sizes[i][0],
                    .nmicro = sizes[i][1],
                    .layers = sizes[i][2],
                    .level = 3,
                    .tied = true,
                    .shared = k & 4,
                    .saves_carry = k & 2,
                    .costs = true});
}

/* A hundred thousand instructions and more in well under a second, so nothing is quadratic in them. */
Test(program, big_and_fast) {
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  struct timespec from, to;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
  ZpPlan *p = fake_programs(
      a, (Fake){.stages = 16, .nmicro = 256, .layers = 126, .level = 3, .saves_carry = true, .counts = true});
  cr_assert(zp_check(p, &err), "%s", err.text);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
  uint32_t n = 0;
  for (uint32_t s = 0; s < 16; s++) n += p->programs.stages[s].prog.ninstrs;
  double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
  cr_log_info("%u instructions planned and proved in %.2f s", n, seconds);
  cr_assert_gt(n, 150000);
  cr_assert_lt(seconds, 20); /* sanitizers and a busy machine included */
  zb_arena_free(a);
}

/* The same plan twice is the same program: it depends on nothing but the plan. */
Test(program, deterministic) {
  ZbArena *a = zb_arena_new();
  ZbText x = {0}, y = {0};
  Fake f = {.stages = 3, .nmicro = 5, .layers = 9, .level = 3, .tied = true, .shared = true, .costs = true};
  fake_print(fake_programs(a, f), &x);
  fake_print(fake_programs(a, f), &y);
  cr_assert_str_eq(x.s, y.s);
  zb_text_free(&x);
  zb_text_free(&y);
  zb_arena_free(a);
}

/* The example at the top of zero.c: two gathers are saved where the step turns around. */
Test(program, gathers) {
  ZbArena *a = zb_arena_new();
  ZpPlan *p = fake_programs(a, (Fake){.stages = 1, .nmicro = 1, .layers = 4, .level = 3});
  cr_assert_eq(count(p, 0, ZP_I_GATHER_PARAMS, "layer.*"), 4 + 2);
  cr_assert_eq(count(p, 0, ZP_I_GATHER_PARAMS, "wte"), 1); /* a buffer of its own: stays */
  p = fake_programs(a, (Fake){.stages = 1, .nmicro = 2, .layers = 4, .level = 3});
  cr_assert_eq(count(p, 0, ZP_I_GATHER_PARAMS, "layer.*"), 4 + 2 + 2 + 2);
  p = fake_programs(a, (Fake){.stages = 1, .nmicro = 2, .layers = 4, .level = 3, .keep = true});
  cr_assert_eq(count(p, 0, ZP_I_GATHER_PARAMS, "layer.*"), 4);
  /* None ahead: what comes next waits for the one before. Two: three are still there where the step turns. */
  static const uint32_t again[] = {3, 2, 1, 0, 0};
  for (int ahead = 0; ahead < 5; ahead++) {
    p = fake_programs(a, (Fake){.stages = 1, .nmicro = 1, .layers = 4, .level = 3, .further = ahead - 1});
    cr_expect_eq(count(p, 0, ZP_I_GATHER_PARAMS, "layer.*"), 4 + again[ahead], "%d ahead", ahead);
    uint32_t bufs = 0, staged = 0, want = ahead < 3 ? (uint32_t)ahead + 1 : 4;
    for (uint32_t i = 0; i < p->programs.stages[0].prog.nbufs; i++) {
      const ZpBuf *b = &p->programs.stages[0].prog.bufs[i];
      if (b->kind != ZP_B_GATHER && b->kind != ZP_B_STAGING) continue;
      if (p->programs.buckets[b->pool].segment == ZP_NONE) continue;
      ++*(b->kind == ZP_B_GATHER ? &bufs : &staged);
    }
    cr_expect_eq(bufs, want, "%d ahead: %u buffers", ahead, bufs);
    cr_expect_eq(staged, want, "%d ahead: %u staging buffers", ahead, staged);
  }
  for (int level = 0; level < 3; level++) {
    p = fake_programs(a, (Fake){.stages = 1, .nmicro = 2, .layers = 4, .level = level});
    cr_assert_eq(count(p, 0, ZP_I_GATHER_PARAMS, NULL), 0);
    cr_assert_eq(count(p, 0, ZP_I_PUBLISH_PARAMS, NULL), level ? 6 : 0);
  }
  zb_arena_free(a);
}

/* What uses a bucket more than once on a stage adds up its gradient, which is scattered once a
 * micro-batch. */
Test(program, scatters_once_a_micro_batch) {
  ZbArena *a = zb_arena_new();
  for (int level = 2; level <= 3; level++) {
    ZpPlan *p = fake_programs(
        a, (Fake){.stages = 1, .nmicro = 3, .layers = 4, .level = level, .tied = true, .shared = true});
    cr_assert_eq(count(p, 0, ZP_I_SCATTER_GRADS, "wte"), 3);
    cr_assert_eq(count(p, 0, ZP_I_SCATTER_GRADS, "scale"), 3); /* of four layers */
    cr_assert_eq(count(p, 0, ZP_I_SCATTER_GRADS, "layer.*"), 4 * 3);
    uint32_t embed = fake_find(p, 0, ZP_I_BWD, 1, 0);
    const ZpInstr *scatter = &p->programs.stages[0].prog.instrs[fake_find(p, 0, ZP_I_SCATTER_GRADS, 1, 0)];
    cr_assert_eq(p->programs.stages[0].held[scatter->held].bucket, 0);
    cr_assert_eq(scatter->wait[0], embed); /* the last that adds to it */
    p = fake_programs(
        a, (Fake){.stages = 2, .nmicro = 3, .layers = 4, .level = level, .tied = true, .shared = true});
    for (uint32_t s = 0; s < 2; s++) {
      cr_assert_eq(count(p, s, ZP_I_SCATTER_GRADS, "wte"), 3);
      cr_assert_eq(count(p, s, ZP_I_SCATTER_GRADS, "scale"), 3);
    }
  }
  zb_arena_free(a);
}

/* A gather never has to wait for the computation right before the one that needs it: there is time to hide
 * it. */
Test(program, gathers_are_early) {
  ZbArena *a = zb_arena_new();
  for (uint32_t M = 1; M < 6; M++) {
    ZpPlan *p =
        fake_programs(a, (Fake){.schedule = "gpipe", .stages = 2, .nmicro = M, .layers = 9, .level = 3});
    const ZpProgram *g = &p->programs.stages[0].prog;
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      for (uint32_t k = 0; k < g->instrs[i].nwait; k++) {
        const ZpInstr *w = &g->instrs[g->instrs[i].wait[k]];
        if (w->op != ZP_I_GATHER_PARAMS || !w->nwait) continue;
        uint32_t between = 0;
        for (uint32_t j = w->wait[0] + 1; j < i; j++)
          between += g->instrs[j].op == ZP_I_FWD || g->instrs[j].op == ZP_I_BWD;
        cr_assert_gt(between, 0);
      }
    }
  }
  zb_arena_free(a);
}

/* Without what it saves, a stage keeps what it receives only until its forward: two buffers. Else as many as
 * micro-batches are live, and one more to receive into. */
Test(program, rings) {
  ZbArena *a = zb_arena_new();
  for (int saves = 0; saves < 2; saves++) {
    ZpPlan *p = fake_programs(a, (Fake){.stages = 4, .nmicro = 8, .layers = 6, .saves_carry = saves});
    for (uint32_t s = 0; s < 4; s++) {
      const ZpProgram *g = &p->programs.stages[s].prog;
      cr_assert_eq(g->nslots, 4 - s);
      cr_assert_eq(g->nrecv_act, s == 0 ? 0 : saves ? 4 - s + 1 : 2);
      cr_assert_eq(g->nsend_act, s == 3 ? 0 : 2);
      cr_assert_eq(g->nrecv_grad, s == 3 ? 0 : 2);
      cr_assert_eq(g->nsend_grad, s == 0 ? 0 : 2);
    }
  }
  zb_arena_free(a);
}

/* Sizes of what is stored, per ZeRO stage: 1024 elements, two shards. */
Test(program, stored_bytes) {
  ZbArena *a = zb_arena_new();
  static const uint64_t want[4][2][4] = {{{4096, 0, 4096, 8192}, {2048, 2048, 4096, 8192}},
                                         {{4096, 0, 4096, 4096}, {2048, 1024, 4096, 4096}},
                                         {{4096, 0, 2048, 4096}, {2048, 1024, 2048, 4096}},
                                         {{2048, 0, 2048, 4096}, {1024, 1024, 2048, 4096}}};
  for (int level = 0; level < 4; level++) {
    for (int bf16 = 0; bf16 < 2; bf16++) {
      const uint64_t *w = want[level][bf16];
      ZpPlan *p = fake_plan(a, (Fake){.stages = 1, .nmicro = 1, .layers = 1, .level = level, .bf16 = bf16});
      cr_assert_eq(zp_param_bytes(p, 0), w[0], "level %d", level);
      cr_assert_eq(zp_master_bytes(p, 0), w[1], "level %d", level);
      cr_assert_eq(zp_grad_bytes(p, 0), w[2], "level %d", level);
      cr_assert_eq(zp_state_bytes(p, 0), w[3], "level %d", level);
    }
  }
  zb_arena_free(a);
}

/* Of what is frozen there is what is computed with, 2 bytes in bf16; ZeRO-3 cuts that, the others nothing. */
Test(program, frozen_bytes) {
  ZbArena *a = zb_arena_new();
  for (int level = 0; level < 4; level++)
    for (int bf16 = 0; bf16 < 2; bf16++) {
      Fake f = {
          .stages = 2, .nmicro = 2, .layers = 2, .level = level, .bf16 = bf16, .tied = true, .frozen = 3};
      ZpPlan *p = fake_programs(a, f);
      uint64_t whole = bf16 ? 2048 : 4096;
      cr_assert_eq(zp_param_bytes(p, 0), level == 3 ? whole / 2 : whole, "level %d", level);
      cr_assert_eq(zp_master_bytes(p, 0) + zp_grad_bytes(p, 0) + zp_state_bytes(p, 0), 0);
      for (uint32_t s = 0; s < 2; s++) {
        cr_assert_eq(count(p, s, ZP_I_OPT_STEP, NULL) + count(p, s, ZP_I_REDUCE_TIED, NULL), 0);
        cr_assert_eq(count(p, s, ZP_I_SCATTER_GRADS, NULL) + count(p, s, ZP_I_REDUCE_GRADS, NULL), 0);
        cr_assert_eq(count(p, s, ZP_I_PUBLISH_PARAMS, NULL), 0);
        cr_assert_eq(count(p, s, ZP_I_GATHER_PARAMS, "wte"), level == 3); /* once: it stays */
      }
    }
  zb_arena_free(a);
}

/* Frozen layers that backward does not read are gathered for forward alone. */
Test(program, frozen_gathers) {
  ZbArena *a = zb_arena_new();
  Fake f = {.stages = 1, .nmicro = 1, .layers = 4, .level = 3, .frozen = 1};
  cr_assert_eq(count(fake_programs(a, f), 0, ZP_I_GATHER_PARAMS, "layer.*"), 4);
  f.frozen = 2;
  cr_assert_eq(count(fake_programs(a, f), 0, ZP_I_GATHER_PARAMS, "layer.*"), 4 + 2);
  zb_arena_free(a);
}

/* Forward alone wants parameters as they compute, one slot, two buffers between stages; and of a layer under
 * ZeRO-3 the one that computes and the next one. */
Test(program, forward_only_holds_little) {
  ZbArena *a = zb_arena_new();
  for (int level = 0; level < 4; level++) {
    Fake f = {.stages = 4, .nmicro = 8, .layers = 14, .level = level, .bf16 = true, .forward_only = true};
    ZpPlan *p = fake_programs(a, f);
    cr_assert_eq(zp_param_bytes(p, 0), level == 3 ? 1024 : 2048);
    cr_assert_eq(zp_master_bytes(p, 0) + zp_grad_bytes(p, 0) + zp_state_bytes(p, 0), 0);
    for (uint32_t s = 0; s < 4; s++) {
      const ZpProgram *g = &p->programs.stages[s].prog;
      cr_assert_eq(g->nslots, 1);
      cr_assert_eq(g->nrecv_act, s == 0 ? 0 : 2);
      cr_assert_eq(g->nsend_act, s == 3 ? 0 : 2);
      cr_assert_eq(g->nrecv_grad + g->nsend_grad, 0);
      uint32_t gathers = 0;
      for (uint32_t b = 0; b < g->nbufs; b++) {
        uint8_t kind = g->bufs[b].kind;
        cr_assert(kind != ZP_B_GRAD && kind != ZP_B_STATE && kind != ZP_B_STAGING);
        gathers += kind == ZP_B_GATHER && p->programs.buckets[g->bufs[b].pool].segment != ZP_NONE;
      }
      cr_assert_eq(gathers, level == 3 ? 2 : 0);
    }
  }
  zb_arena_free(a);
}

/* What the listing says of what: an instruction, and `<` the numbers of those it waits for. */
static void golden(Fake f, const char *want) {
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  fake_print(fake_programs(a, f), &t);
  cr_assert_str_eq(t.s, want);
  zb_text_free(&t);
  zb_arena_free(a);
}

Test(program, golden_data_parallel) {
  golden((Fake){.stages = 2, .nmicro = 3, .layers = 2}, "stage 0\n"
                                                        "  0 ZERO_GRADS\n"
                                                        "  1 LOAD(mb 0)\n"
                                                        "  2 FWD(part 0, mb 0)\n"
                                                        "  3 FWD(layer.0, mb 0)\n"
                                                        "  4   p2p  SEND_ACT(mb 0) < 3\n"
                                                        "  5 LOAD(mb 1)\n"
                                                        "  6 FWD(part 0, mb 1)\n"
                                                        "  7 FWD(layer.0, mb 1)\n"
                                                        "  8   p2p  SEND_ACT(mb 1) < 7\n"
                                                        "  9   p2p  RECV_GRAD(mb 0)\n"
                                                        " 10 BWD(layer.0, mb 0) < 9\n"
                                                        " 11 BWD(part 0, mb 0)\n"
                                                        " 12 LOAD(mb 2)\n"
                                                        " 13 FWD(part 0, mb 2)\n"
                                                        " 14 FWD(layer.0, mb 2) < 4\n"
                                                        " 15   p2p  SEND_ACT(mb 2) < 14\n"
                                                        " 16   p2p  RECV_GRAD(mb 1)\n"
                                                        " 17 BWD(layer.0, mb 1) < 16\n"
                                                        " 18 BWD(part 0, mb 1)\n"
                                                        " 19   p2p  RECV_GRAD(mb 2) < 10\n"
                                                        " 20 BWD(layer.0, mb 2) < 19\n"
                                                        " 21   coll REDUCE_GRADS(layer.0) < 20\n"
                                                        " 22 BWD(part 0, mb 2)\n"
                                                        " 23   coll REDUCE_GRADS(wte) < 22\n"
                                                        " 24 NORM_LOCAL < 23,21\n"
                                                        " 25   coll REDUCE_STEP < 24\n"
                                                        " 26 OPT_STEP(wte) < 25\n"
                                                        " 27 OPT_STEP(layer.0)\n"
                                                        "stage 1\n"
                                                        "  0 ZERO_GRADS\n"
                                                        "  1   p2p  RECV_ACT(mb 0)\n"
                                                        "  2 LOAD(mb 0)\n"
                                                        "  3 FWD(layer.1, mb 0) < 1\n"
                                                        "  4 FWD(part 2, mb 0)\n"
                                                        "  5   p2p  RECV_ACT(mb 1)\n"
                                                        "  6 BWD(part 2, mb 0)\n"
                                                        "  7 BWD(layer.1, mb 0)\n"
                                                        "  8   p2p  SEND_GRAD(mb 0) < 7\n"
                                                        "  9 LOAD(mb 1)\n"
                                                        " 10 FWD(layer.1, mb 1) < 5\n"
                                                        " 11 FWD(part 2, mb 1)\n"
                                                        " 12 BWD(part 2, mb 1)\n"
                                                        " 13 BWD(layer.1, mb 1)\n"
                                                        " 14   p2p  RECV_ACT(mb 2) < 3\n"
                                                        " 15   p2p  SEND_GRAD(mb 1) < 13\n"
                                                        " 16 LOAD(mb 2)\n"
                                                        " 17 FWD(layer.1, mb 2) < 14\n"
                                                        " 18 FWD(part 2, mb 2)\n"
                                                        " 19 BWD(part 2, mb 2)\n"
                                                        " 20   coll REDUCE_GRADS(out) < 19\n"
                                                        " 21 BWD(layer.1, mb 2) < 8\n"
                                                        " 22   p2p  SEND_GRAD(mb 2) < 21\n"
                                                        " 23   coll REDUCE_GRADS(layer.1) < 21\n"
                                                        " 24 NORM_LOCAL < 23,20\n"
                                                        " 25   coll REDUCE_STEP < 24\n"
                                                        " 26 OPT_STEP(layer.1) < 25\n"
                                                        " 27 OPT_STEP(out)\n");
}

Test(program, golden_forward_only) {
  golden((Fake){.stages = 2,
                .nmicro = 3,
                .layers = 2,
                .level = 3,
                .tied = true,
                .counts = true,
                .forward_only = true},
         "stage 0\n"
         "  0   coll GATHER_PARAMS(wte)\n"
         "  1   coll GATHER_PARAMS(layer.0)\n"
         "  2 ZERO_SUMS\n"
         "  3 LOAD(mb 0)\n"
         "  4 FWD(part 0, mb 0) < 0\n"
         "  5 FWD(layer.0, mb 0) < 1\n"
         "  6   p2p  SEND_ACT(mb 0) < 5\n"
         "  7 LOAD(mb 1)\n"
         "  8 FWD(part 0, mb 1)\n"
         "  9 FWD(layer.0, mb 1)\n"
         " 10   p2p  SEND_ACT(mb 1) < 9\n"
         " 11 LOAD(mb 2)\n"
         " 12 FWD(part 0, mb 2)\n"
         " 13 FWD(layer.0, mb 2) < 6\n"
         " 14   p2p  SEND_ACT(mb 2) < 13\n"
         " 15   coll REDUCE_STEP < 13\n"
         "stage 1\n"
         "  0   coll GATHER_PARAMS(layer.1)\n"
         "  1   coll GATHER_PARAMS(wte)\n"
         "  2 ZERO_SUMS\n"
         "  3   p2p  RECV_ACT(mb 0)\n"
         "  4 LOAD(mb 0)\n"
         "  5 COUNT(mb 0)\n"
         "  6 FWD(layer.1, mb 0) < 3,0\n"
         "  7   p2p  RECV_ACT(mb 1)\n"
         "  8 FWD(part 2, mb 0) < 1\n"
         "  9 LOAD(mb 1)\n"
         " 10 COUNT(mb 1)\n"
         " 11   p2p  RECV_ACT(mb 2) < 6\n"
         " 12 FWD(layer.1, mb 1) < 7\n"
         " 13 FWD(part 2, mb 1)\n"
         " 14 LOAD(mb 2)\n"
         " 15 COUNT(mb 2)\n"
         " 16   coll REDUCE_COUNT < 15\n"
         " 17 FWD(layer.1, mb 2) < 11\n"
         " 18 FWD(part 2, mb 2)\n"
         " 19   coll REDUCE_STEP < 18,16\n");
}

Test(program, golden_zero3_tied) {
  golden((Fake){.stages = 2,
                .nmicro = 3,
                .layers = 2,
                .level = 3,
                .saves_carry = true,
                .counts = true,
                .tied = true},
         "stage 0\n"
         "  0   coll GATHER_PARAMS(wte)\n"
         "  1   coll GATHER_PARAMS(layer.0)\n"
         "  2 ZERO_GRADS\n"
         "  3 LOAD(mb 0)\n"
         "  4 FWD(part 0, mb 0) < 0\n"
         "  5 FWD(layer.0, mb 0) < 1\n"
         "  6   p2p  SEND_ACT(mb 0) < 5\n"
         "  7 LOAD(mb 1)\n"
         "  8 FWD(part 0, mb 1)\n"
         "  9 FWD(layer.0, mb 1)\n"
         " 10   p2p  SEND_ACT(mb 1) < 9\n"
         " 11   p2p  RECV_GRAD(mb 0)\n"
         " 12 BWD(layer.0, mb 0) < 11\n"
         " 13   coll SCATTER_GRADS(layer.0, mb 0) < 12\n"
         " 14 BWD(part 0, mb 0)\n"
         " 15   coll SCATTER_GRADS(wte, mb 0) < 14\n"
         " 16 LOAD(mb 2)\n"
         " 17 FWD(part 0, mb 2)\n"
         " 18 FWD(layer.0, mb 2) < 6\n"
         " 19   p2p  SEND_ACT(mb 2) < 18\n"
         " 20   p2p  RECV_GRAD(mb 1)\n"
         " 21 BWD(layer.0, mb 1) < 20,13\n"
         " 22   coll SCATTER_GRADS(layer.0, mb 1) < 21\n"
         " 23 BWD(part 0, mb 1) < 15\n"
         " 24   coll SCATTER_GRADS(wte, mb 1) < 23\n"
         " 25   p2p  RECV_GRAD(mb 2) < 12\n"
         " 26 BWD(layer.0, mb 2) < 25,22\n"
         " 27   coll SCATTER_GRADS(layer.0, mb 2) < 26\n"
         " 28 BWD(part 0, mb 2) < 24\n"
         " 29   coll SCATTER_GRADS(wte, mb 2) < 28\n"
         " 30   coll REDUCE_GRADS(wte) < 29\n"
         " 31   coll REDUCE_GRADS(layer.0) < 27\n"
         " 32   coll REDUCE_TIED(wte) < 30\n"
         " 33 NORM_LOCAL < 32,31\n"
         " 34   coll REDUCE_STEP < 33\n"
         " 35 OPT_STEP(wte) < 34\n"
         " 36 OPT_STEP(layer.0)\n"
         "stage 1\n"
         "  0   coll GATHER_PARAMS(layer.1)\n"
         "  1   coll GATHER_PARAMS(wte)\n"
         "  2 ZERO_GRADS\n"
         "  3 LOAD(mb 0)\n"
         "  4 COUNT(mb 0)\n"
         "  5 LOAD(mb 1)\n"
         "  6   p2p  RECV_ACT(mb 0)\n"
         "  7 COUNT(mb 1)\n"
         "  8 LOAD(mb 2)\n"
         "  9 COUNT(mb 2)\n"
         " 10   p2p  RECV_ACT(mb 1)\n"
         " 11   coll REDUCE_COUNT < 9\n"
         " 12 LOAD(mb 0)\n"
         " 13 FWD(layer.1, mb 0) < 6,0\n"
         " 14 FWD(part 2, mb 0) < 1\n"
         " 15 BWD(part 2, mb 0) < 11\n"
         " 16   coll SCATTER_GRADS(wte, mb 0) < 15\n"
         " 17 BWD(layer.1, mb 0)\n"
         " 18   p2p  SEND_GRAD(mb 0) < 17\n"
         " 19   coll SCATTER_GRADS(layer.1, mb 0) < 17\n"
         " 20 LOAD(mb 1)\n"
         " 21 FWD(layer.1, mb 1) < 10\n"
         " 22 FWD(part 2, mb 1)\n"
         " 23 BWD(part 2, mb 1) < 16\n"
         " 24   coll SCATTER_GRADS(wte, mb 1) < 23\n"
         " 25 BWD(layer.1, mb 1) < 19\n"
         " 26   p2p  RECV_ACT(mb 2) < 17\n"
         " 27   p2p  SEND_GRAD(mb 1) < 25\n"
         " 28   coll SCATTER_GRADS(layer.1, mb 1) < 25\n"
         " 29 LOAD(mb 2)\n"
         " 30 FWD(layer.1, mb 2) < 26\n"
         " 31 FWD(part 2, mb 2)\n"
         " 32 BWD(part 2, mb 2) < 24\n"
         " 33   coll SCATTER_GRADS(wte, mb 2) < 32\n"
         " 34 BWD(layer.1, mb 2) < 18,28\n"
         " 35   p2p  SEND_GRAD(mb 2) < 34\n"
         " 36   coll SCATTER_GRADS(layer.1, mb 2) < 34\n"
         " 37   coll REDUCE_GRADS(layer.1) < 36\n"
         " 38   coll REDUCE_GRADS(wte) < 33\n"
         " 39   coll REDUCE_TIED(wte) < 38\n"
         " 40 NORM_LOCAL < 37,39\n"
         " 41   coll REDUCE_STEP < 40\n"
         " 42 OPT_STEP(layer.1) < 41\n"
         " 43 OPT_STEP(wte)\n");
}

Test(program, golden_zero1) {
  golden((Fake){.stages = 1, .nmicro = 2, .layers = 1, .level = 1}, "stage 0\n"
                                                                    "  0   coll PUBLISH_PARAMS(wte)\n"
                                                                    "  1   coll PUBLISH_PARAMS(layer.0)\n"
                                                                    "  2   coll PUBLISH_PARAMS(out)\n"
                                                                    "  3 ZERO_GRADS\n"
                                                                    "  4 LOAD(mb 0)\n"
                                                                    "  5 FWD(part 0, mb 0) < 0\n"
                                                                    "  6 FWD(layer.0, mb 0) < 1\n"
                                                                    "  7 FWD(part 2, mb 0) < 2\n"
                                                                    "  8 BWD(part 2, mb 0)\n"
                                                                    "  9 BWD(layer.0, mb 0)\n"
                                                                    " 10 BWD(part 0, mb 0)\n"
                                                                    " 11 LOAD(mb 1)\n"
                                                                    " 12 FWD(part 0, mb 1)\n"
                                                                    " 13 FWD(layer.0, mb 1)\n"
                                                                    " 14 FWD(part 2, mb 1)\n"
                                                                    " 15 BWD(part 2, mb 1)\n"
                                                                    " 16   coll SCATTER_GRADS(out) < 15\n"
                                                                    " 17 BWD(layer.0, mb 1)\n"
                                                                    " 18   coll SCATTER_GRADS(layer.0) < 17\n"
                                                                    " 19   coll REDUCE_GRADS(out) < 16\n"
                                                                    " 20 BWD(part 0, mb 1)\n"
                                                                    " 21   coll SCATTER_GRADS(wte) < 20\n"
                                                                    " 22   coll REDUCE_GRADS(wte) < 21\n"
                                                                    " 23   coll REDUCE_GRADS(layer.0) < 18\n"
                                                                    " 24 NORM_LOCAL < 22,23,19\n"
                                                                    " 25   coll REDUCE_STEP < 24\n"
                                                                    " 26 OPT_STEP(wte) < 25\n"
                                                                    " 27 OPT_STEP(layer.0)\n"
                                                                    " 28 OPT_STEP(out)\n");
}
