/* Every field of a few programs changed in turn: a plan that is not refused then must still do the same, in
 * whatever order things happen to start and end. machine.c plays it as the engine would. */
#include "tests/unit/breadth.h"
#include "tests/unit/plan/fake.h"
#include "tests/unit/plan/machine.h"

#include <criterion/criterion.h>
#include <string.h>

#define ORDERS 4 /* in which a changed plan is played */

typedef struct {
  ZpPlan *p;
  uint64_t result; /* of the good plan */
  uint32_t tried, passed;
  const char *what; /* is being changed */
  uint32_t stage, number;
} Mutants;

static void judge(Mutants *t, uint64_t from, uint64_t to) {
  ZbErr err = {0};
  t->tried++;
  if (!zp_check(t->p, &err)) {
    cr_assert(*err.text);
    return;
  }
  t->passed++;
  for (uint64_t order = 0; order < ORDERS; order++) {
    uint64_t result;
    const char *wrong = machine_play(t->p, order, &result);
    if (wrong || result != t->result)
      cr_assert_fail("stage %u, %s %u changed from %llx to %llx: accepted, but %s", t->stage, t->what,
                     t->number, (unsigned long long)from, (unsigned long long)to,
                     wrong ? wrong : "the step ends with other numbers");
  }
}

#define MUTATE(t, name, field, ...)                                                                          \
  do {                                                                                                       \
    const uint64_t values_[] = {__VA_ARGS__};                                                                \
    (t)->what = name;                                                                                        \
    for (size_t v_ = 0; v_ < sizeof values_ / sizeof *values_; v_++) {                                       \
      __typeof__(field) was_ = (field), now_ = (__typeof__(field))values_[v_];                               \
      if (now_ == was_) continue;                                                                            \
      (field) = now_;                                                                                        \
      judge(t, (uint64_t)was_, (uint64_t)now_);                                                              \
      (field) = was_;                                                                                        \
    }                                                                                                        \
  } while (0)
/* The neighbours of a number, and none. */
#define NEAR(x) (uint64_t)(x) + 1, (uint64_t)(x)-1, 0, ZP_NONE

static void mutate_access(Mutants *t, ZpAccess *x) {
  MUTATE(t, "operand's buffer of instruction", x->buf, NEAR(x->buf), x->buf + 2u);
  MUTATE(t, "operand's mode of instruction", x->mode, x->mode ^ 1u, x->mode ^ 2u);
  MUTATE(t, "operand's tag of instruction", x->tag, x->tag ^ 1, x->tag ^ 1 << 24, x->tag ^ 1ull << 40,
         x->tag ^ 1ull << 56);
}

static void mutate_instr(Mutants *t, ZpInstr *in) {
  MUTATE(t, "op of instruction", in->op, NEAR(in->op), in->op + 2u);
  MUTATE(t, "queue of instruction", in->queue, 0, 1, 2, 3);
  MUTATE(t, "in_place of instruction", in->in_place, !in->in_place);
  MUTATE(t, "micro-batch of instruction", in->mb, NEAR(in->mb));
  MUTATE(t, "instance of instruction", in->inst, NEAR(in->inst));
  MUTATE(t, "held bucket of instruction", in->held, NEAR(in->held));
  MUTATE(t, "peer of instruction", in->peer, NEAR(in->peer));
  MUTATE(t, "virtual stage of instruction", in->vstage, NEAR(in->vstage));
  MUTATE(t, "pair of instruction", in->pair, NEAR(in->pair));
  MUTATE(t, "dims of instruction", in->dims, in->dims ^ 1u, in->dims ^ 2u, in->dims ^ 4u, in->dims ^ 8u,
         in->dims ^ 1u << 9);
  MUTATE(t, "collective of instruction", in->coll, ZG_OP_ALL_REDUCE, ZG_OP_REDUCE_SCATTER, ZG_OP_ALL_GATHER,
         0);
  MUTATE(t, "tied bucket of instruction", in->tied, NEAR(in->tied));
  MUTATE(t, "bytes of instruction", in->bytes, in->bytes + 64, in->bytes - 64, 0);
  MUTATE(t, "number of waits of instruction", in->nwait, in->nwait ? in->nwait - 1 : 0);
  MUTATE(t, "number of operands of instruction", in->naccess, in->naccess - 1);
  for (uint32_t k = 0; k < in->nwait; k++)
    MUTATE(t, "wait of instruction", in->wait[k], NEAR(in->wait[k]), t->number);
  for (uint32_t k = 0; k < in->naccess; k++) mutate_access(t, &in->access[k]);
}

/* ---- several operands at once -------------------------------------------------------------------------- */
/* Operands in buffer x go to y; both: and the other way round. */
static bool redirect(ZpInstr *in, uint32_t x, uint32_t y, bool both) {
  bool any = false;
  for (uint32_t k = 0; k < in->naccess; k++) {
    uint32_t *buf = &in->access[k].buf, was = *buf;
    if (was == x) *buf = y;
    else if (both && was == y) *buf = x;
    any |= *buf != was;
  }
  return any;
}

/* A buffer for another of its kind: in one instruction, from one on to the end of the step, always. */
static void mutate_use(Mutants *t, ZpProgram *g, uint32_t x, uint32_t y, bool both) {
  uint32_t *was = NULL;
  uint64_t n = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    for (uint32_t k = 0; k < g->instrs[i].naccess; k++)
      ZB_PUSH(t->p->arena, was, n, g->instrs[i].access[k].buf);
  t->what = both ? "buffer exchanged at instruction" : "buffer replaced at instruction";
  for (t->number = 0; t->number < g->ninstrs; t->number++)
    for (int only = 0; only < 2; only++) {
      uint32_t end = only ? t->number + 1 : g->ninstrs;
      bool any = false;
      for (uint32_t i = t->number; i < end; i++) any |= redirect(&g->instrs[i], x, y, both) && i == t->number;
      if (any) judge(t, x, y);
      uint64_t at = 0;
      for (uint32_t i = 0; i < g->ninstrs; i++)
        for (uint32_t k = 0; k < g->instrs[i].naccess; k++) g->instrs[i].access[k].buf = was[at++];
    }
}

static void mutate_uses(Mutants *t, ZpProgram *g) {
  for (uint32_t x = 0; x < g->nbufs; x++)
    for (uint32_t y = 0; y < g->nbufs; y++) {
      if (x == y || g->bufs[x].kind != g->bufs[y].kind || g->bufs[x].pool != g->bufs[y].pool) continue;
      mutate_use(t, g, x, y, false);
      if (x < y) mutate_use(t, g, x, y, true);
    }
}

static void mutate_buf(Mutants *t, ZpBuf *b, const ZpBuf *other) {
  MUTATE(t, "kind of buffer", b->kind, NEAR(b->kind));
  MUTATE(t, "index of buffer", b->index, NEAR(b->index));
  MUTATE(t, "pool of buffer", b->pool, NEAR(b->pool));
  MUTATE(t, "bytes of buffer", b->bytes, b->bytes + 64, b->bytes - 64, 0, UINT64_MAX);
  MUTATE(t, "memory of buffer", b->memory, NEAR(b->memory));
  MUTATE(t, "place of buffer", b->offset, b->offset + 64, b->offset - 64, b->offset + 8, 0, other->offset,
         UINT64_MAX - 63);
}

static void mutate_held(Mutants *t, ZpStageBucket *h) {
  MUTATE(t, "bucket of held", h->bucket, NEAR(h->bucket));
  MUTATE(t, "iteration of held", h->iter, NEAR(h->iter));
  MUTATE(t, "tie of held", h->tied, NEAR(h->tied));
  MUTATE(t, "norm of held", h->norm_owner, !h->norm_owner);
}

static void mutate_vstage(Mutants *t, ZpVirtualStage *v) {
  MUTATE(t, "stage of virtual stage", v->stage, NEAR(v->stage));
  MUTATE(t, "index of virtual stage", v->index, NEAR(v->index));
  MUTATE(t, "first part of virtual stage", v->first, NEAR(v->first));
  MUTATE(t, "parts of virtual stage", v->ninsts, NEAR(v->ninsts));
  MUTATE(t, "bytes of inputs", v->input_bytes, v->input_bytes + 64, 0);
}

/* What a stage says of itself; sizes that only people read may be anything. */
static void mutate_stage(Mutants *t, ZpStage *st) {
  for (t->number = 0; t->number < st->ninsts; t->number++) {
    ZpInst *x = &st->insts[t->number];
    uint64_t *at = &st->saved_at[t->number];
    MUTATE(t, "segment of instance", x->segment, NEAR(x->segment));
    MUTATE(t, "iteration of instance", x->iter, NEAR(x->iter));
    MUTATE(t, "saved block of instance", *at, *at + 64, *at - 64, *at + 8, 0, UINT64_MAX - 63);
    for (uint32_t k = 0; k < x->nheld; k++)
      MUTATE(t, "held bucket of instance", x->held[k], NEAR(x->held[k]));
  }
  t->number = 0;
  for (uint32_t k = 0; k < st->nvstages; k++) mutate_vstage(t, &t->p->programs.vstages[st->vstages[k]]);
  MUTATE(t, "bytes of scratch", st->scratch_bytes, 0);
  MUTATE(t, "slots", st->prog.nslots, NEAR(st->prog.nslots));
  MUTATE(t, "pinned blocks", st->prog.npinned, NEAR(st->prog.npinned));
  MUTATE(t, "micro-batches alive", st->prog.live, NEAR(st->prog.live));
  for (int m = 0; m < ZP_MEMORIES; m++) {
    uint64_t *total = &st->ledger.total[m];
    MUTATE(t, "bytes of a memory", *total, *total + 64, *total - 64);
  }
}

static void mutate_program(Mutants *t, ZpProgram *g) {
  for (t->number = 0; t->number < g->ninstrs; t->number++) mutate_instr(t, &g->instrs[t->number]);
  for (t->number = 0; t->number < g->nbufs; t->number++)
    mutate_buf(t, &g->bufs[t->number], &g->bufs[(t->number + 1) % g->nbufs]);
  for (int q = 0; q < ZP_QUEUES; q++) {
    MUTATE(t, "length of queue", g->nqueue[q], g->nqueue[q] ? g->nqueue[q] - 1 : 0);
    for (t->number = 0; t->number < g->nqueue[q]; t->number++)
      MUTATE(t, "entry of queue", g->queue[q][t->number], NEAR(g->queue[q][t->number]));
  }
}

static void mutate(Fake f) {
  ZbArena *a = zb_arena_new();
  Mutants t = {.p = fake_programs(a, f)};
  ZbErr err = {0};
  cr_assert(zp_check(t.p, &err), "%s", err.text);
  const char *wrong = machine_play(t.p, 0, &t.result);
  cr_assert(!wrong, "%s", wrong);
  for (uint64_t order = 1; order < 8 * ORDERS; order++) { /* a good plan ends with the same numbers always */
    uint64_t result;
    cr_assert(!machine_play(t.p, order, &result) && result == t.result);
  }
  for (t.stage = 0; t.stage < t.p->programs.nstages; t.stage++) {
    ZpStage *st = &t.p->programs.stages[t.stage];
    mutate_program(&t, &st->prog);
    mutate_uses(&t, &st->prog);
    for (t.number = 0; t.number < st->nheld; t.number++) mutate_held(&t, &st->held[t.number]);
    mutate_stage(&t, st);
  }
  cr_log_info("%u changes, %u accepted", t.tried, t.passed);
  cr_assert_gt(t.tried, 1000);
  zb_arena_free(a);
}

Test(mutate, zero3) {
  mutate((Fake){
      .stages = 2, .nmicro = 2, .layers = 3, .level = 3, .tied = true, .saves_carry = true, .counts = true});
}
Test(mutate, zero2) {
  mutate(
      (Fake){.stages = 2, .nmicro = 2, .layers = 3, .level = 2, .shared = true, .bf16 = true, .pins = true});
}
Test(mutate, zero1) { mutate((Fake){.stages = 2, .nmicro = 2, .layers = 2, .level = 1, .bf16 = true}); }
Test(mutate, plain) {
  mutate((Fake){.schedule = "gpipe", .stages = 3, .nmicro = 2, .layers = 4, .tied = true});
}
Test(mutate, forward_only) {
  mutate((Fake){.stages = 2,
                .nmicro = 2,
                .layers = 3,
                .level = 3,
                .tied = true,
                .counts = true,
                .bf16 = true,
                .forward_only = true});
}
Test(mutate, frozen) {
  mutate((Fake){.stages = 2, .nmicro = 2, .layers = 3, .level = 3, .tied = true, .bf16 = true, .frozen = 2});
}
Test(mutate, frozen_ends) {
  mutate((Fake){.stages = 2, .nmicro = 2, .layers = 3, .tied = true, .frozen = 3});
}
Test(mutate, one_stage) { mutate((Fake){.stages = 1, .nmicro = 2, .layers = 3, .counts = true}); }
Test(mutate, interleaved) {
  mutate(
      (Fake){.schedule = "interleaved", .stages = 2, .nmicro = 2, .layers = 4, .tied = true, .counts = true});
}
Test(mutate, interleaved_zero3) {
  if (!at_night()) cr_skip_test("at night");
  mutate((Fake){.schedule = "interleaved",
                .stages = 2,
                .nmicro = 2,
                .layers = 4,
                .level = 3,
                .shared = true,
                .saves_carry = true});
}
/* One rank hands its tuples on to itself. */
Test(mutate, interleaved_alone) {
  mutate((Fake){.schedule = "interleaved",
                .stages = 1,
                .nmicro = 3,
                .layers = 2,
                .level = 2,
                .tied = true,
                .saves_carry = true});
}
