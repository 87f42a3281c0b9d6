/* Times that can be worked out by hand: kernels, collectives, and steps of made-up plans. */
#include "runtime/plan/text.h"
#include "runtime/plan/time/internal.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/unit/plan/fake.h"

#define NEAR(x, y)                                                                                           \
  cr_expect_float_eq((x), (y), 1e-9 * fabs((double)(y)) + 1e-12, "%.12g instead of %.12g", (double)(x),      \
                     (double)(y))
/* Constants are never 0. */
#define TINY 1e-18
#define HUGE_RATE 1e24

/* Two levels: four devices a node, eight nodes. */
static ZlLevel levels[2];
static ZlCluster two_levels(void) {
  levels[0] = (ZlLevel){
      .name = {.s = "node"}, .size = 4, .bandwidth = 100e9, .latency = 2e-6, .start = 5e-6, .ramp = 1e-5};
  levels[1] = (ZlLevel){
      .name = {.s = "pod"}, .size = 8, .bandwidth = 20e9, .latency = 4e-6, .start = 6e-6, .ramp = 2e-5};
  return (ZlCluster){.name = "c", .levels = levels, .nlevels = 2};
}

/* ---- kernels ---- */
Test(time, products) {
  ZlCluster c = {
      .flops_bf16 = 100e12, .products = .8, .sms = 100, .tile_fill = 128, .stream = 1e12, .launch = 2e-6};
  /* 2560 x 1280 in 256 x 128: 100 tiles, one a multiprocessor; no other tile is better. */
  NEAR(zp_product_seconds(&c, ZK_BF16, 2560, 1280, 1024, 1, 0),
       2.0 * 256 * 128 * 100 * (1024 + 128) / 80e12 + 2e-6);
  /* One row more, and each of the large tiles needs a second wave; 420 of 128 x 64 need five, which is
   * sooner. */
  NEAR(zp_product_seconds(&c, ZK_BF16, 2561, 1280, 1024, 1, 0),
       2.0 * 5 * 128 * 64 / .82 * 100 * (1024 + 128) / 80e12 + 2e-6);
  /* Bound by what it moves. */
  NEAR(zp_product_seconds(&c, ZK_BF16, 64, 64, 64, 1, 1e9), 1e-3 + 2e-6);
  c.sms = 0;
  c.flops_f32 = 10e12;
  double all = 100 * 10 * 7, sides = 100 * 10 + 10 * 7 + 100 * 7;
  NEAR(zp_product_seconds(&c, ZK_F32, 100, 10, 7, 3, 0), 2 * 3 * (all + 128 * sides) / 8e12 + 2e-6);
  c.tile_fill = 0;
  NEAR(zp_product_seconds(&c, ZK_F32, 100, 10, 7, 3, 0), 2 * 3 * all / 8e12 + 2e-6);
}

/* A convolution takes as long as its product: by positions of y, whatever those of x are. */
Test(time, convolutions) {
  enum { N = 1, I, O, R, P, K, L };
  static const int64_t size[] = {[N] = 2, [I] = 3, [O] = 5, [R] = 9, [P] = 4, [K] = 3, [L] = 2};
  static const uint16_t tensor[3][4] = {{N, I, R}, {I, O, K, L}, {N, O, P, L}};
  static const int rank[3] = {3, 3, 3};
  static const int ops[3] = {ZG_OP_CONV, ZG_OP_CONV_TRANSPOSE, ZG_OP_CONV_GRAD};
  static const double product[3][3] = {{2 * 4, 5, 3 * 3}, {2 * 4, 3, 5 * 3}, {3 * 3, 5, 2 * 4}};
  ZlCluster c = {.flops_f32 = 1e9, .products = .5, .stream = 1e15};
  for (int i = 0; i < 3; i++)
    for (int groups = 0; groups < 2; groups++) { /* with L in all three: groups */
      ZpNode n = {.call = {.op = (uint16_t)ops[i], .nin = 2, .nout = 1, .nax = 3, .ax = {R, K, P}}};
      for (int k = 0; k < 3; k++) {
        ZgConvTensor t = zg_conv_tensor(ops[i], k);
        ZkView *v = k < 2 ? &n.call.in[k] : &n.call.out[0];
        for (int a = 0; a < rank[t]; a++)
          v->axis[v->rank] = tensor[t][a], v->size[v->rank++] = size[tensor[t][a]];
        if (groups) v->axis[v->rank] = L, v->size[v->rank++] = size[L];
      }
      double m = product[i][0], k = product[i][2];
      NEAR(zp_call_seconds(&c, &n), 2 * m * product[i][1] * k * (groups ? 2 : 1) / .5e9);
    }
}

Test(time, attention) {
  ZlCluster c = {.flops_bf16 = 100e12, .attention = .5, .attention_grad = .8, .launch = 1e-6};
  NEAR(zp_attention_seconds(&c, ZK_BF16, 1e9, false), 1e9 / 50e12 + 1e-6);
  NEAR(zp_attention_seconds(&c, ZK_BF16, 2e9, true), 2.5e9 / 50e12 / .8 + 3e-6); /* five products for four */
  c.flops_f32 = 10e12;
  NEAR(zp_attention_seconds(&c, ZK_F32, 1e9, false), 1e9 / 5e12 + 1e-6);
}

/* All else is as fast as memory, whatever it computes. */
Test(time, passes) {
  ZlCluster c = {.stream = 1e9, .launch = 1e-6};
  ZpNode n = {.call = {.op = ZG_OP_SOFTMAX, .nin = 1, .nout = 1}};
  n.call.in[0] = n.call.out[0] = (ZkView){.elem = ZK_F32, .rank = 1, .size = {1000}};
  NEAR(zp_call_seconds(&c, &n), 8000 / 1e9 + 1e-6);
  NEAR(zp_stream_seconds(&c, 1e6), 1e-3 + 1e-6);
}

/* ---- links ---- */
Test(time, places) {
  ZlCluster c = two_levels();
  int64_t one[] = {5}, near[] = {4, 5, 6, 7}, far[] = {0, 4, 8}, both[] = {0, 1, 4, 5};
  ZpPlace p = zp_place(&c, one, 1);
  cr_expect(p.level == 0 && p.units[0] == 1);
  p = zp_place(&c, near, 4);
  cr_expect(p.level == 0 && p.units[0] == 1 && p.n == 4);
  p = zp_place(&c, far, 3);
  cr_expect(p.level == 1 && p.units[0] == 3 && p.units[1] == 1);
  p = zp_place(&c, both, 4);
  cr_expect(p.level == 1 && p.units[0] == 2);
  /* Beyond the last node: by the outermost links, whatever lies behind the table of levels. */
  int64_t beyond[] = {0, 32};
  c.nlevels = 1;
  p = zp_place(&c, beyond, 2);
  cr_expect(p.level == 0 && p.units[0] == 2 && p.units[1] == 0);
  p = zp_place_of_dim(&c, 2, 32);
  cr_expect(p.level == 0 && p.units[0] == 2 && p.units[1] == 0);
  p = zp_place_of_dim(&c, 4, 1);
  cr_expect(p.level == 0 && p.units[0] == 1);
}

static double filled(double moving, double ramp) { return moving + 2 * sqrt(ramp * moving); }

Test(time, rings) {
  ZlCluster c = two_levels();
  int64_t near[] = {0, 1, 2, 3}, far[] = {0, 4, 8, 12}, both[] = {0, 1, 4, 5, 8, 9};
  ZpPlace p = zp_place(&c, near, 4);
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_GATHER, 1e9, &p), 5e-6 + 3 * 2e-6 + filled(.75e9 / 100e9, 1e-5));
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_REDUCE, 1e9, &p),
       5e-6 + 2 * 3 * 2e-6 + filled(1.5e9 / 100e9, 1e-5));
  levels[0].sums = 150e9; /* switches add */
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_REDUCE, 1e9, &p),
       5e-6 + 2 * 3 * 2e-6 + filled(1.5e9 / 150e9, 1e-5));
  NEAR(zp_collective_seconds(&c, ZG_OP_REDUCE_SCATTER, 1e9, &p),
       5e-6 + 3 * 2e-6 + filled(.75e9 / 100e9, 1e-5));
  p = zp_place(&c, far, 4); /* one link a node; a tree takes 2 steps, a ring 3 */
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_GATHER, 1e9, &p), 6e-6 + 3 * 4e-6 + filled(.75e9 / 20e9, 2e-5));
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_REDUCE, 1e9, &p),
       6e-6 + 2 * 2 * 4e-6 + filled(1.5e9 / 20e9, 2e-5));
  levels[1].sums = 25e9;
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_REDUCE, 1e9, &p),
       6e-6 + 2 * 2 * 4e-6 + filled(1.5e9 / 25e9, 2e-5));
  p = zp_place(&c, both, 6); /* two links a node; 3 steps within nodes, 2 between */
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_GATHER, 6e8, &p),
       6e-6 + 3 * 2e-6 + 2 * 4e-6 + filled(5e8 / 40e9, 2e-5));
  /* Of the six parts of a rank four leave the node. */
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_TO_ALL, 6e8, &p),
       6e-6 + 3 * 2e-6 + 2 * 4e-6 + filled(5e8 / 30e9, 2e-5));
  NEAR(zp_collective_seconds(&c, ZG_OP_ALL_GATHER, 0, &p), 0);
  NEAR(zp_transfer_seconds(&c, 1e6, &p), 6e-6 + 4e-6 + filled(1e6 / 20e9, 2e-5));
}

/* ---- steps ---- */
/* Nothing takes time but what a test makes take some. */
static ZlCluster weightless(void) {
  levels[0] = (ZlLevel){.name = {.s = "all"},
                        .size = 1 << 20,
                        .bandwidth = HUGE_RATE,
                        .latency = TINY,
                        .start = TINY,
                        .ramp = TINY};
  return (ZlCluster){.name = "c", .stream = 1e9, .launch = TINY, .steal = .5, .levels = levels, .nlevels = 1};
}

/* One node that passes over so many bytes, in each list of a segment. */
static void works(ZpPlan *p, uint32_t segment, double forward, double backward) {
  for (int k = 0; k < ZP_PHASES; k++) {
    ZpList *l = &p->programs.segments[segment].list[k];
    double bytes = k == ZP_FWD ? forward : k == ZP_BWD ? backward : 4;
    l->n = 1;
    l->nodes = ZB_NEW(p->arena, ZpNode);
    ZkCall c = {
        .op = ZG_OP_COPY, .nin = 1, .in = {{.elem = ZK_F32, .rank = 1, .size = {(int64_t)bytes / 4}}}};
    l->nodes->call = c;
  }
}

static ZpTime *time_of(ZbArena *a, ZpPlan *p, const ZlCluster *c) {
  ZpTime *t = zp_time(a, p, c, true, zl_diags_new(a, zl_sources_new(a)));
  cr_assert(t);
  for (uint32_t s = 0; s < p->programs.nstages; s++) { /* every moment has a cause */
    double sum = 0;
    for (int k = 0; k < ZP_T_PARTS; k++) sum += t->stages[s].part[k];
    cr_expect_float_eq(sum, t->seconds, 1e-9 * t->seconds, "stage %u: %g instead of %g", s, sum, t->seconds);
    cr_expect(t->stages[s].nspans >= p->programs.stages[s].prog.ninstrs);
  }
  return t;
}

static ZpTime *step(ZbArena *a, Fake f, const ZlCluster *c, ZpPlan **p) {
  *p = fake_programs(a, f);
  for (uint32_t k = 0; k < 3; k++) works(*p, k, 1e9, 2e9); /* each part: a second forward, two backward */
  return time_of(a, *p, c);
}

/* Of optimizers, and of the parts that hardly compute: microseconds. */
#define ABOUT(x, y) cr_expect_float_eq((x), (y), 1e-3, "%.9g instead of %.9g", (double)(x), (double)(y))

Test(time, one_stage) {
  ZbArena *a = zb_arena_new();
  ZlCluster c = weightless();
  ZpPlan *p;
  ZpTime *t = step(a, (Fake){.stages = 1, .nmicro = 5, .layers = 2}, &c, &p);
  ABOUT(t->seconds, 5 * 4 * 3.0);
  ABOUT(t->stages[0].part[ZP_T_MEMORY], t->seconds);
  cr_expect(t->stages[0].part[ZP_T_OPTIMIZER] > 0);
  zb_arena_free(a);
}

/* The bubble of 1F1B, and of GPipe: (P - 1) (F + B). */
Test(time, bubbles) {
  ZlCluster c = weightless();
  static const char *const schedule[] = {"1f1b", "gpipe"};
  for (uint32_t stages = 2; stages <= 8; stages *= 2)
    for (uint32_t m = 1; m <= 17; m += 4)
      for (int k = 0; k < 2; k++) {
        ZbArena *a = zb_arena_new();
        ZpPlan *p;
        Fake f = {.schedule = schedule[k], .stages = stages, .nmicro = m, .layers = 2 * stages - 2};
        ZpTime *t = step(a, f, &c, &p);
        ABOUT(t->seconds, (m + stages - 1) * 2 * 3.0);
        for (uint32_t s = 0; s < stages; s++) ABOUT(t->stages[s].part[ZP_T_IDLE], (stages - 1) * 2 * 3.0);
        zb_arena_free(a);
      }
}

/* Transfers are on the way of the first micro-batch to the last stage, and of its gradient back. */
Test(time, transfers) {
  ZbArena *a = zb_arena_new();
  ZlCluster c = weightless();
  ZpPlan *p;
  c.steal = TINY;
  levels[0].start = .25; /* of the reductions at the end, too */
  ZpTime *slow = step(a, (Fake){.stages = 4, .nmicro = 1, .layers = 2}, &c, &p);
  levels[0].start = TINY;
  ZpTime *fast = step(a, (Fake){.stages = 4, .nmicro = 1, .layers = 2}, &c, &p);
  double more = (slow->seconds - fast->seconds) / .25;
  ABOUT(fmod(more + .5, 1), .5);        /* whole starts */
  cr_expect(more >= 6 + 2, "%g", more); /* six transfers, gradients, the sums of the step */
  zb_arena_free(a);
}

/* ZeRO-3 behind computation: what is hidden slows it by `steal`, what is not is waited for. */
Test(time, overlap) {
  ZbArena *a = zb_arena_new();
  ZlCluster c = weightless();
  ZpPlan *p;
  Fake f = {.stages = 1, .nmicro = 1, .layers = 8, .level = 3, .alone = true};
  double free_of_it = step(a, f, &c, &p)->seconds, exchanged = 0;
  levels[0].start = .125;
  ZpTime *t = step(a, f, &c, &p);
  for (uint64_t i = 0; i < t->stages[0].nspans; i++) {
    const ZpSpan *s = &t->stages[0].spans[i];
    const ZpInstr *in = &p->programs.stages[0].prog.instrs[s->instr];
    if (in->op == ZP_I_GATHER_PARAMS || in->op == ZP_I_SCATTER_GRADS) exchanged += .125;
  }
  const double *part = t->stages[0].part;
  cr_expect(part[ZP_T_SLOWED] > 0 && part[ZP_T_DATA] > 0);
  /* A third of what is hidden: at 1 / 1.5 of the speed computation is late by half of what it then does. */
  cr_expect(part[ZP_T_SLOWED] <= (exchanged - part[ZP_T_DATA]) / 3 + 1e-3 + .125, "%g of %g",
            part[ZP_T_SLOWED], exchanged);
  ABOUT(t->seconds, free_of_it + part[ZP_T_SLOWED] + part[ZP_T_DATA]);
  zb_arena_free(a);
}

/* ---- collectives beside calls ---- */
static ZpNode copies(double bytes) {
  ZkCall c = {.op = ZG_OP_COPY, .nin = 1, .in = {{.elem = ZK_F32, .rank = 1, .size = {(int64_t)bytes / 4}}}};
  return (ZpNode){.call = c};
}

/* One layer whose forward is: a call of 1 s, a gather of 2 s at 1 GB/s, `calls` of 1 s each, and
 * one that reads what was gathered; where it does not go beside, it is waited for at once. */
static ZpPlan *gathers_beside(ZbArena *a, uint32_t calls, bool beside) {
  ZpPlan *p = fake_programs(a, (Fake){.stages = 1, .nmicro = 1, .layers = 1});
  for (uint32_t k = 0; k < 3; k++) works(p, k, 4, 4);
  ZpList *l = &p->programs.segments[1].list[ZP_FWD];
  l->n = calls + 3;
  l->nodes = ZB_NEWN(a, ZpNode, l->n);
  for (uint32_t i = 0; i < l->n; i++) l->nodes[i] = copies(1e9);
  p->programs.segments[1].values = ZB_NEWN(a, ZpValue, 2);
  p->programs.segments[1].values[1].bytes = (uint64_t)4e9; /* of two ranks: half of it comes */
  l->nodes[1].call = (ZkCall){.op = ZG_OP_ALL_GATHER, .nin = 1, .nout = 1};
  l->nodes[1].out[0] = 1;
  l->nodes[1].dims = 1u << (p->layout.mesh.ndims - 1);
  l->nodes[1].until = beside ? l->n - 1 : 2;
  return p;
}

/* What is left of it when the calls are over is waited for, and while it moves they are slower by a half. */
Test(time, beside_calls) {
  static const double waits[] = {2, 2 - 1.5, 0, 0}, slowed[] = {0, .5, 2. / 3, 2. / 3};
  for (uint32_t calls = 0; calls < 4; calls++) {
    ZbArena *a = zb_arena_new();
    ZlCluster c = weightless();
    levels[0].bandwidth = 1e9;
    ZpTime *t = time_of(a, gathers_beside(a, calls, true), &c);
    ABOUT(t->stages[0].part[ZP_T_TENSOR], waits[calls]);
    ABOUT(t->stages[0].part[ZP_T_SLOWED], slowed[calls]);
    ABOUT(t->stages[0].part[ZP_T_MEMORY], calls + 2);
    ZpPlan *p = gathers_beside(a, calls, false);
    t = time_of(a, p, &c);
    ABOUT(t->stages[0].part[ZP_T_TENSOR], 2);
    ABOUT(t->stages[0].part[ZP_T_SLOWED], 0);
    zb_arena_free(a);
  }
}

/* Apart from other lists a pass takes as long, but that what slows calls does not move meanwhile. */
Test(time, beside_calls_alone) {
  ZbArena *a = zb_arena_new();
  ZlCluster c = weightless();
  levels[0].bandwidth = 1e9;
  ABOUT(zp_pass_seconds(gathers_beside(a, 1, true), &c, 1, ZP_FWD), 3 + 1 + (2 - 1) / 3.);
  ABOUT(zp_pass_seconds(gathers_beside(a, 1, false), &c, 1, ZP_FWD), 3 + 2);
  zb_arena_free(a);
}

/* Collectives that are under way together share their links: where nothing else takes time, a step takes as
 * long as all of them one after the other. */
Test(time, shared_links) {
  for (uint32_t layers = 1; layers <= 8; layers++) {
    ZbArena *a = zb_arena_new();
    ZlCluster c = weightless();
    uint32_t n = 0, together = 0;
    levels[0].start = .125;
    ZpPlan *p = fake_programs(a, (Fake){.stages = 1, .nmicro = 2, .layers = layers, .level = 3});
    for (uint32_t k = 0; k < 3; k++) works(p, k, 4, 4);
    ZpStageTime *t = time_of(a, p, &c)->stages;
    double end = 0;
    for (uint64_t i = 0; i < t->nspans; i++) {
      const ZpSpan *s = &t->spans[i];
      const ZpInstr *in = &p->programs.stages[0].prog.instrs[s->instr];
      n += in->queue == ZP_Q_COLL && in->dims;
      together += s->end - s->begin > .2; /* it waited for its links, or shared them */
      if (s->end > end) end = s->end;
    }
    ABOUT(end, n * .125);
    cr_expect(together > 0);
    zb_arena_free(a);
  }
}

/* Whatever the plan: it ends, and slower links do not make it faster. */
Test(time, all_plans) {
  for (uint32_t k = 0; k < 96; k++) {
    ZbArena *a = zb_arena_new();
    ZlCluster c = weightless();
    ZpPlan *p;
    Fake f = {.stages = 1 + k % 4,
              .nmicro = 1 + k % 7,
              .layers = 4 + k % 3,
              .level = (int)(k / 4 % 4),
              .keep = k % 5 == 0,
              .tied = k % 2,
              .shared = k % 3 == 1,
              .saves_carry = k % 5 < 2,
              .bf16 = k % 2,
              .alone = k % 3 == 2,
              .costs = k % 7 == 3};
    double before = step(a, f, &c, &p)->seconds;
    levels[0].bandwidth = 1e5;
    double after = step(a, f, &c, &p)->seconds;
    cr_expect(after >= before * (1 - 1e-9), "plan %u: %g after %g", k, after, before);
    zb_arena_free(a);
  }
}

/* What a cluster lacks is said by name. */
Test(time, constants) {
  ZbArena *a = zb_arena_new();
  ZlCluster c = weightless();
  ZpPlan *p = fake_programs(a, (Fake){.stages = 2, .nmicro = 2, .layers = 2});
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  for (uint32_t s = 0; s < 3; s++) works(p, s, 4, 4);
  c.span = ZL_NOWHERE;
  c.stream = levels[0].ramp = 0;
  cr_expect_null(zp_time(a, p, &c, false, d));
  ZbText t = {0};
  zl_print_text(d, &t);
  cr_expect(strstr(t.s, "Z0813") && strstr(t.s, "`stream` of its device") &&
                strstr(t.s, "`ramp` of its level `all`"),
            "%s", t.s);
  cr_expect(!strstr(t.s, "launch") && !strstr(t.s, "attention"), "%s", t.s);
  /* Nothing is sent within a level of one. */
  ZlLevel alone[] = {{.name = {.s = "node"}, .size = 1, .bandwidth = 1}, levels[0]};
  alone[1].ramp = TINY;
  c.stream = 1e9, c.levels = alone, c.nlevels = 2;
  cr_expect(zp_time(a, p, &c, false, d));
  zb_text_free(&t);
  zb_arena_free(a);
}

/* ---- products of steps of generation -------------------------------------------------------------------- */
static double rows_seconds(const ZlCluster *c, double rows, ZkElem elem) {
  double size = elem == ZK_BF16 ? 2 : 4;
  ZpStepProduct p = {
      .rows = rows, .columns = 1000, .depth = 1000, .batch = 1, .weights = 1e6 * size, .elem = elem};
  return zp_step_product_seconds(c, &p);
}

/* Rates of some numbers of rows are said; between them, and behind the last, times grow evenly. */
Test(time, rows_as_measured) {
  ZlCluster c = {.flops_f32 = 1e12, .flops_bf16 = 1e12, .products = 1, .stream = 1e12, .launch = 1e-6};
  c.weights1 = 4e9, c.weights8 = 2e9, c.weights16 = 1e9, c.weights128 = .1e9; /* 1, 2, 4 and 40 ms */
  const double rows[] = {1, 8, 12, 16, 72, 128, 240}, ms[] = {1, 2, 3, 4, 22, 40, 76};
  for (int i = 0; i < 7; i++)
    cr_expect_float_eq(rows_seconds(&c, rows[i], ZK_F32), ms[i] * 1e-3 + 1e-6, 1e-9, "%g rows", rows[i]);
  /* Of bf16 nothing is said but how it is read: as fast as that, or as it can be multiplied. */
  c.weights1_bf16 = 2e9;
  cr_expect_float_eq(rows_seconds(&c, 1, ZK_BF16), 1e-3 + 1e-6, 1e-9);
  cr_expect_float_eq(rows_seconds(&c, 400, ZK_BF16), 1e-3 + 1e-6, 1e-9);
  cr_expect_float_eq(rows_seconds(&c, 1000, ZK_BF16), 2e-3 + 1e-6, 1e-9);
}
