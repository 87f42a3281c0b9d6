/* Every proof is provoked by breaking a good plan, and says what is wrong in words. */
#include "tests/unit/plan/fake.h"

#include <criterion/criterion.h>
#include <string.h>

#define ANY UINT32_MAX

/* Three stages, ZeRO-3, tied ends, denominator from inputs: has every instruction but PUBLISH_PARAMS. */
static const Fake rich = {
    .stages = 3, .nmicro = 4, .layers = 7, .level = 3, .tied = true, .saves_carry = true, .counts = true};

static ZbArena *arena;
static void setup(void) { arena = zb_arena_new(); }
static void teardown(void) { zb_arena_free(arena); }
TestSuite(check, .init = setup, .fini = teardown);

static ZpPlan *good(Fake f) {
  ZbErr err = {0};
  ZpPlan *p = fake_programs(arena, f);
  cr_assert(zp_check(p, &err), "%s", err.text);
  return p;
}

static void rejects(const ZpPlan *p, const char *text) {
  ZbErr err = {0};
  cr_assert(!zp_check(p, &err), "accepted, but: %s", text);
  cr_assert(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
}

static ZpInstr *find(const ZpPlan *p, uint32_t s, ZpInstrOp op, uint32_t mb, uint32_t what) {
  return &p->stages[s].prog.instrs[fake_find(p, s, op, mb, what)];
}

static ZpBuf *buffer(const ZpPlan *p, uint32_t s, ZpBufKind kind, uint32_t pool, uint32_t index) {
  const ZpProgram *g = &p->stages[s].prog;
  for (uint32_t b = 0; b < g->nbufs; b++)
    if (g->bufs[b].kind == kind && g->bufs[b].index == index && g->bufs[b].pool == pool) return &g->bufs[b];
  cr_assert_fail("no such buffer");
  return NULL;
}

/* `in` no longer waits for anything of kind `op`. */
static void forget(const ZpPlan *p, uint32_t s, ZpInstr *in, ZpInstrOp op) {
  uint32_t n = 0, before = in->nwait;
  for (uint32_t k = 0; k < in->nwait; k++)
    if (p->stages[s].prog.instrs[in->wait[k]].op != op) in->wait[n++] = in->wait[k];
  in->nwait = n;
  cr_assert_lt(n, before, "did not wait for it");
}

/* Instruction `from` moves to place `to`. */
static void move(ZpPlan *p, uint32_t s, uint32_t from, uint32_t to) {
  uint32_t n = p->stages[s].prog.ninstrs, *now = ZB_NEWN(arena, uint32_t, n), k = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (k == to) now[k++] = from;
    if (i != from) now[k++] = i;
  }
  if (k == to) now[k++] = from;
  fake_reorder(p, s, now);
}

/* ---- 1 form -------------------------------------------------------------------------------------------- */
Test(check, waits_point_backward) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find(p, 0, ZP_I_SEND_ACT, 0, ANY);
  in->wait[0] = fake_find(p, 0, ZP_I_OPT_STEP, ANY, 0);
  rejects(p, "stage 0 SEND_ACT(mb 0) waits for stage 0 OPT_STEP(wte), which is listed after it");
}

Test(check, queues_list_all) {
  ZpPlan *p = good(rich);
  p->stages[1].prog.nqueue[ZP_Q_COLL]--;
  rejects(p, "stage 1: an instruction is in no queue");
  p = good(rich);
  uint32_t *q = p->stages[1].prog.queue[ZP_Q_P2P], first = q[0];
  q[0] = q[1], q[1] = first;
  rejects(p, "stage 1: queue 1 does not list its instructions in order");
  p = good(rich);
  find(p, 1, ZP_I_SEND_ACT, 0, ANY)->queue = ZP_Q_COLL;
  rejects(p, "of no known kind or in another's queue");
}

Test(check, indices_in_range) {
  ZpPlan *p = good(rich);
  find(p, 1, ZP_I_FWD, 1, 0)->inst = 77;
  rejects(p, "names something that does not exist");
  p = good(rich);
  find(p, 1, ZP_I_FWD, 1, 0)->access[0].buf = 9999;
  rejects(p, "is no buffer of this stage");
}

Test(check, mesh_and_stages) {
  ZpPlan *p = good(rich);
  p->mesh.dim[0].size = 4;
  rejects(p, "the plan has 3 stages, but not its mesh");
  p->mesh.pipe = -1;
  rejects(p, "the plan has 3 stages, but not its mesh");
}

/* The engine finds buffers by kind, pool and index, and of several the first. */
Test(check, buffers_numbered) {
  ZpPlan *p = good(rich);
  buffer(p, 1, ZP_B_STAGING, 1, 1)->index = 0;
  rejects(p, "stage 1: staging buffer 0 of layer.* is not numbered as it is listed");
  p = good(rich);
  buffer(p, 1, ZP_B_BOUNDARY, 0, 1)->pool = 1;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  buffer(p, 1, ZP_B_STATE, 1, 0)->pool = p->stages[1].nheld;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  buffer(p, 1, ZP_B_GATHER, 1, 0)->pool = p->nbuckets;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  buffer(p, 1, ZP_B_GATHER, 1, 0)->kind = ZP_B_KINDS;
  rejects(p, "is of no known kind or pool");
}

/* One more than there are of each. */
Test(check, indices_at_their_ends) {
  static const struct {
    ZpInstrOp op;
    size_t field;
    uint32_t end;
  } ends[] = {{ZP_I_GATHER_PARAMS, offsetof(ZpInstr, held), 3},
              {ZP_I_SCATTER_GRADS, offsetof(ZpInstr, held), 3},
              {ZP_I_REDUCE_GRADS, offsetof(ZpInstr, held), 3},
              {ZP_I_OPT_STEP, offsetof(ZpInstr, held), 3},
              {ZP_I_SEND_ACT, offsetof(ZpInstr, peer), 3},
              {ZP_I_RECV_GRAD, offsetof(ZpInstr, peer), 3},
              {ZP_I_FWD, offsetof(ZpInstr, inst), 3},
              {ZP_I_BWD, offsetof(ZpInstr, inst), 3},
              {ZP_I_FWD, offsetof(ZpInstr, mb), 4},
              {ZP_I_SEND_GRAD, offsetof(ZpInstr, mb), 4}};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    ZpPlan *p = good(rich);
    cr_assert(p->stages[1].nheld == 3 && p->stages[1].ninsts == 3);
    *(uint32_t *)(void *)((char *)find(p, 1, ends[i].op, ANY, ANY) + ends[i].field) = ends[i].end;
    rejects(p, "names something that does not exist");
  }
  ZpPlan *p = good(rich);
  find(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->tied = p->ntied;
  rejects(p, "(REDUCE_TIED) names something that does not exist");
  p = good(rich);
  find(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->held = p->stages[0].nheld;
  rejects(p, "(REDUCE_TIED) names something that does not exist");
}

/* ---- 2 ownership --------------------------------------------------------------------------------------- */
Test(check, bucket_dims) {
  ZpPlan *p = good(rich);
  p->buckets[1].shard = 1u << 3; /* tensor: it is split there, not copied */
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is no copy");
  p = good(rich);
  p->buckets[1].partial |= 1u << 3;
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is no copy");
  p = good(rich);
  p->buckets[1].replicas |= 1u << 0; /* pipe */
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is no copy");
  p = good(rich);
  p->buckets[1].shard = 1u << 1; /* replica: a copy, but the recipe cuts over data */
  rejects(p, "bucket layer.* is stored otherwise than the recipe says");
}

/* What a bucket does follows from the recipe and from its copies, one by one. */
Test(check, bucket_does) {
  static const char *const text = "bucket layer.* is stored otherwise than the recipe says";
  for (int level = 0; level < 4; level++) {
    Fake f = {.stages = 2, .nmicro = 2, .layers = 2, .level = level, .keep = true};
    ZpPlan *p = good(f);
    ZpBucket *k = &p->buckets[1], was = *k;
    cr_expect(k->gathers == (level == 3) && k->keeps == (level == 3));
    cr_expect(k->scatters == (level == 0   ? ZP_SCATTER_NEVER
                              : level == 1 ? ZP_SCATTER_AT_END
                                           : ZP_SCATTER_EACH_MICROBATCH));
    cr_expect(k->republishes == (level == 1 || level == 2));
    cr_expect_eq(k->reduces, level ? 1u << 1 : 1u << 1 | 1u << 2);
    cr_expect_eq(zp_zero_stage(k), level);
    k->gathers = !was.gathers, rejects(p, text), *k = was;
    k->keeps = !was.keeps, rejects(p, text), *k = was;
    k->republishes = !was.republishes, rejects(p, text), *k = was;
    for (int s = ZP_SCATTER_NEVER; s <= ZP_SCATTER_EACH_MICROBATCH; s++)
      if (s != (int)was.scatters) k->scatters = (ZpScatter)s, rejects(p, text), *k = was;
    for (int d = 1; d < 3; d++) k->reduces ^= 1u << d, rejects(p, text), *k = was;
    k->shard ^= 1u << 2, rejects(p, text), *k = was;
  }
}

Test(check, bucket_slices) {
  ZpPlan *p = good(rich);
  ZpSlice s[2] = {{.n = 500, .naxes = 2, .size = {50, 10}}, {.at = 512, .n = 512, .naxes = 1, .size = {512}}};
  ZbErr err = {0};
  p->buckets[1].slices = s;
  p->buckets[1].nslices = 2;
  cr_assert(zp_check(p, &err), "%s", err.text);
  s[0].n = 513, s[0].size[0] = 513, s[0].naxes = 1;
  rejects(p, "bucket layer.*: slice 1 has 512 elements at 512, but the one before ends at 513");
  s[0].n = 500;
  rejects(p, "bucket layer.*: slice 0 has 500 elements at 0");
  s[0].size[0] = 500, s[1].at = 504;
  rejects(p, "bucket layer.*: slice 1 has 512 elements at 504");
  s[1].at = 512, s[1].n = s[1].size[0] = 513;
  rejects(p, "bucket layer.* has 1024 elements for slices of 1025, in 2 parts");
  s[1].n = s[1].size[0] = 512, p->buckets[1].elems = 1040;
  rejects(p, "bucket layer.* has 1040 elements for slices of 1024, in 2 parts");
}

Test(check, every_layer_once) {
  ZpPlan *p = good(rich);
  p->stages[1].insts[0].iter = 1;
  rejects(p, "layer.1 is on stage 0 and again on stage 1");
  p = good(rich);
  p->stages[2].ninsts--;
  rejects(p, "part 2 is on no stage");
  p = good(rich);
  ZpInst x = p->stages[1].insts[0];
  p->stages[1].insts[0] = p->stages[1].insts[1], p->stages[1].insts[1] = x;
  rejects(p, "not on the stages in their order");
}

Test(check, buckets_where_used) {
  ZpPlan *p = good(rich);
  p->stages[1].held[0].iter = 6;
  rejects(p, "stage 1 does not hold the parameters of layer.2");
  p = good(rich);
  p->stages[2].held[p->stages[2].nheld - 1].tied = ZP_NONE;
  rejects(p, "wte is on 2 stages, but stage 2 does not know that it is tied");
  p = good(rich);
  p->stages[2].held[p->stages[2].nheld - 1].norm_owner = true;
  rejects(p, "the norm of wte counts on 2 stages");
}

Test(check, tuples_fit) {
  ZpPlan *p = good(rich);
  p->segments[2].carry_bytes = 1024;
  rejects(p, "layer.6 carries out 512 bytes and takes back 512, but part 2 takes in 1024");
}

/* ---- 3 completeness ------------------------------------------------------------------------------------ */
Test(check, forward_twice) {
  ZpPlan *p = good(rich);
  find(p, 0, ZP_I_FWD, 1, 1)->mb = 0;
  rejects(p, "stage 0 FWD(layer.0, mb 0) runs twice");
}

Test(check, forward_missing) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_FWD, 2, 2));
  rejects(p, "stage 1 BWD(layer.4, mb 2) runs before the forward of layer.4");
}

Test(check, backward_missing) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_BWD, 3, 0));
  rejects(p, "stage 1 never runs the backward of layer.2 for micro-batch 3");
}

Test(check, counted_and_loaded_once) {
  ZpPlan *p = good(rich);
  fake_remove(p, 2, fake_find(p, 2, ZP_I_COUNT, 1, ANY));
  rejects(p, "stage 2 counts the loss denominator of micro-batch 1 0 times");
  p = good(rich);
  fake_remove(p, 0, fake_find(p, 0, ZP_I_LOAD, 1, ANY));
  rejects(p, "stage 0 loads micro-batch 1 0 times instead of 1");
  p = good(rich);
  fake_remove(p, 0, fake_find(p, 0, ZP_I_ZERO_GRADS, ANY, ANY));
  rejects(p, "stage 0 has 0 ZERO_GRADS");
}

Test(check, live_micro_batches) {
  ZpPlan *p = good(rich);
  p->stages[0].prog.live = 2;
  rejects(p, "stage 0 holds 3 micro-batches at once; its plan says 2, in 3 slots");
}

/* ---- 4 reductions -------------------------------------------------------------------------------------- */
Test(check, gradient_never_scattered) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_SCATTER_GRADS, 2, 0));
  rejects(p, "stage 1: scattering a gradient of layer.2 happens 3 times in a step instead of 4");
}

Test(check, gradient_never_reduced) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_REDUCE_GRADS, ANY, 1));
  rejects(p, "stage 1: reducing the gradient of layer.3 happens 0 times in a step instead of 1");
  p = good(rich);
  fake_remove(p, 2, fake_find(p, 2, ZP_I_REDUCE_TIED, ANY, ANY));
  rejects(p, "stage 2: reducing the gradient with tied copies of wte happens 0 times");
}

Test(check, gradient_reduced_twice) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find(p, 1, ZP_I_REDUCE_GRADS, ANY, 1);
  in->held = 0;
  rejects(p, "stage 1: reducing the gradient of layer.2 happens 2 times in a step instead of 1");
}

Test(check, gradient_over_wrong_dims) {
  ZpPlan *p = good(rich);
  find(p, 1, ZP_I_REDUCE_GRADS, ANY, 1)->dims = 1u << 2;
  rejects(p, "stage 1 REDUCE_GRADS(layer.3) goes over data, but has to go over replica");
  p = good(rich);
  find(p, 1, ZP_I_GATHER_PARAMS, ANY, 1)->dims = 1u << 3;
  rejects(p, "GATHER_PARAMS(layer.3) goes over tensor, but has to go over data");
}

/* What an instruction says it moves is what has to move: `explain` prints it and the engine goes by it. */
Test(check, collective_bytes) {
  ZpPlan *p = good(rich);
  find(p, 1, ZP_I_REDUCE_GRADS, ANY, 1)->bytes *= 2; /* 1024 elements, of which a rank has half */
  rejects(p, "stage 1 REDUCE_GRADS(layer.3) is all_reduce of 4096 bytes, but has to be all_reduce of 2048");
  p = good(rich);
  find(p, 1, ZP_I_SCATTER_GRADS, 1, 1)->coll = ZG_OP_ALL_REDUCE;
  rejects(p, "stage 1 SCATTER_GRADS(layer.3, mb 1) is all_reduce of 4096 bytes, but has to be reduce_scatter "
             "of 4096");
  p = good(rich);
  find(p, 1, ZP_I_GATHER_PARAMS, ANY, 1)->bytes = 2048;
  rejects(p, "GATHER_PARAMS(layer.3) is all_gather of 2048 bytes, but has to be all_gather of 4096");
  p = good(rich);
  find(p, 2, ZP_I_REDUCE_COUNT, ANY, ANY)->bytes = 4;
  rejects(p, "stage 2 REDUCE_COUNT is all_reduce of 4 bytes, but has to be all_reduce of 8");
  p = good(rich);
  for (uint32_t s = 0; s < 3; s++) find(p, s, ZP_I_REDUCE_STEP, ANY, ANY)->bytes = 64;
  rejects(p, "stage 0 REDUCE_STEP is all_reduce of 64 bytes, but has to be all_reduce of 32");
  p = good(rich);
  find(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->bytes = 4096;
  rejects(p, "stage 0 REDUCE_TIED(wte) is all_reduce of 4096 bytes, but has to be all_reduce of 2048");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 1, .bf16 = true});
  find(p, 0, ZP_I_PUBLISH_PARAMS, ANY, 1)->bytes = 4096;
  rejects(p, "PUBLISH_PARAMS(layer.0) is all_gather of 4096 bytes, but has to be all_gather of 2048");
}

/* A gradient that is complete along the shards' dim, or along one of two, is not summed along it once more.
 * */
Test(check, scatter_of_what_is_complete) {
  Fake f = {.stages = 1, .nmicro = 2, .layers = 2, .level = 2};
  ZpPlan *p = fake_plan(arena, f);
  ZpDims data = 1u << 2, tensor = 1u << 3;
  p->zero.over = data | tensor;
  p->buckets[0].partial = tensor; /* the others': replica and data */
  p->buckets[2].partial = data | tensor;
  for (uint32_t b = 0; b < p->nbuckets; b++) {
    p->buckets[b].replicas |= tensor;
    zp_bucket_storage(p, &p->buckets[b]);
  }
  zp_program(p);
  fake_arena(p);
  ZbErr err = {0};
  cr_assert(zp_check(p, &err), "%s", err.text);
  ZpInstr *wte = find(p, 0, ZP_I_SCATTER_GRADS, 0, 0), *layer = find(p, 0, ZP_I_SCATTER_GRADS, 0, 1),
          *out = find(p, 0, ZP_I_SCATTER_GRADS, 0, 3);
  cr_assert(wte->dims == tensor && wte->coll == ZG_OP_ALL_REDUCE && wte->bytes == 4096);
  cr_assert(layer->dims == data && layer->coll == ZG_OP_ALL_REDUCE && layer->bytes == 4096);
  cr_assert(out->dims == (data | tensor) && out->coll == ZG_OP_REDUCE_SCATTER && out->bytes == 4096);
  wte->coll = ZG_OP_REDUCE_SCATTER;
  rejects(
      p,
      "stage 0 SCATTER_GRADS(wte, mb 0) is reduce_scatter of 4096 bytes, but has to be all_reduce of 4096");
  wte->coll = ZG_OP_ALL_REDUCE;
  layer->dims = data | tensor;
  rejects(p, "stage 0 SCATTER_GRADS(layer.0, mb 0) goes over data x tensor, but has to go over data");
}

Test(check, optimizer_once) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_OPT_STEP, ANY, 2));
  rejects(p, "stage 1: the optimizer step of layer.4 happens 0 times");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 2, .level = 1});
  fake_remove(p, 0, fake_find(p, 0, ZP_I_PUBLISH_PARAMS, ANY, 1));
  rejects(p, "stage 0: publishing the parameters of layer.0 happens 0 times");
  p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_REDUCE_STEP, ANY, ANY));
  rejects(p, "stage 1 has 0 REDUCE_STEP instead of 1");
}

/* By hand: 1024 elements in 2 parts. What a rank gathers and scatters is whole, what it reduces then is its
 * part. */
Test(check, bytes_of_collectives) {
  static const struct {
    ZpInstrOp op;
    uint64_t bytes[4]; /* by level, in bf16; 0: there is none */
  } want[] = {{ZP_I_GATHER_PARAMS, {0, 0, 0, 2048}},        {ZP_I_PUBLISH_PARAMS, {0, 2048, 2048, 0}},
              {ZP_I_SCATTER_GRADS, {0, 4096, 4096, 4096}},  {ZP_I_REDUCE_GRADS, {4096, 2048, 2048, 2048}},
              {ZP_I_REDUCE_TIED, {4096, 2048, 2048, 2048}}, {ZP_I_REDUCE_COUNT, {8, 8, 8, 8}},
              {ZP_I_REDUCE_STEP, {32, 32, 32, 32}}};
  for (int level = 0; level < 4; level++) {
    ZpPlan *p = good((Fake){
        .stages = 2, .nmicro = 2, .layers = 2, .level = level, .tied = true, .counts = true, .bf16 = true});
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
      uint64_t bytes = want[i].bytes[level];
      if (!bytes) continue;
      ZpInstr *in = find(p, 1, want[i].op, ANY, ANY);
      cr_expect_eq(in->bytes, bytes, "%s, level %d: %llu bytes", zp_instr_info[in->op].text, level,
                   (unsigned long long)in->bytes);
      in->bytes = bytes + 64;
      const char *coll = zg_op_info[in->coll].text;
      rejects(p, zb_printf(arena, "is %s of %llu bytes, but has to be %s of %llu", coll,
                           (unsigned long long)bytes + 64, coll, (unsigned long long)bytes));
      in->bytes = bytes;
    }
  }
}

/* ---- 5 pairs ------------------------------------------------------------------------------------------- */
Test(check, receive_dropped) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_RECV_ACT, 1, ANY));
  rejects(p, "stage 0 SEND_ACT(mb 1) has no partner: stage 1 has no RECV_ACT(mb 1)");
}

Test(check, bytes_differ) {
  ZpPlan *p = good(rich);
  find(p, 1, ZP_I_RECV_GRAD, 1, ANY)->bytes = 516;
  rejects(p, "stage 1 RECV_GRAD(mb 1) has 516 bytes, but stage 2 SEND_GRAD(mb 1) has 512");
  find(p, 2, ZP_I_SEND_GRAD, 1, ANY)->bytes = 516;
  rejects(p, "moves 516 bytes, but its cotangent has 512");
}

Test(check, partners_mirror) {
  ZpPlan *p = good(rich);
  find(p, 0, ZP_I_SEND_ACT, 1, ANY)->peer = 2;
  rejects(p, "are a pair, but do not mirror each other");
  p = good(rich);
  find(p, 0, ZP_I_SEND_ACT, 1, ANY)->mb = 2;
  rejects(p, "are a pair, but do not mirror each other");
  p = good(rich);
  find(p, 0, ZP_I_SEND_ACT, 1, ANY)->pair = find(p, 0, ZP_I_SEND_ACT, 0, ANY)->pair;
  rejects(p, "3 transfers have the same pair number");
}

Test(check, collective_of_stages_incomplete) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find(p, 2, ZP_I_REDUCE_TIED, ANY, ANY);
  in->pair = 5000;
  rejects(p, "stage 2 REDUCE_TIED(wte) has no pair number");
  in->pair = find(p, 2, ZP_I_REDUCE_STEP, ANY, ANY)->pair + 1;
  rejects(p, "stage 0 REDUCE_TIED(wte) meets 0 stages instead of 1");
}

/* ---- 6 deadlock ---------------------------------------------------------------------------------------- */
Test(check, sends_swapped) {
  ZpPlan *p = good((Fake){.schedule = "gpipe", .stages = 2, .nmicro = 3, .layers = 2});
  move(p, 0, fake_find(p, 0, ZP_I_SEND_ACT, 0, ANY), fake_find(p, 0, ZP_I_SEND_ACT, 1, ANY));
  rejects(p, "deadlock: stage 1 RECV_ACT(mb 1) waits for stage 1 RECV_ACT(mb 0), whose partner stage 0 "
             "SEND_ACT(mb 0) waits "
             "for stage 0 SEND_ACT(mb 1), the partner of stage 1 RECV_ACT(mb 1)");
}

Test(check, both_send_first) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 3, .layers = 2});
  move(p, 1, fake_find(p, 1, ZP_I_RECV_ACT, 1, ANY), fake_find(p, 1, ZP_I_SEND_GRAD, 0, ANY));
  rejects(p, "deadlock: stage 1 RECV_ACT(mb 1) waits for stage 1 SEND_GRAD(mb 0), whose partner stage 0 "
             "RECV_GRAD(mb 0) waits "
             "for stage 0 SEND_ACT(mb 1), the partner of stage 1 RECV_ACT(mb 1)");
}

Test(check, tied_in_different_order) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true, .shared = true});
  const ZpProgram *g = &p->stages[1].prog;
  uint32_t first = fake_find(p, 1, ZP_I_REDUCE_TIED, ANY, ANY), second = first + 1;
  cr_assert_eq(g->instrs[second].op, ZP_I_REDUCE_TIED);
  move(p, 1, first, second);
  rejects(p, "deadlock: stage 1 REDUCE_TIED(scale) waits for stage 1 REDUCE_TIED(wte), whose partner stage 0 "
             "REDUCE_TIED(wte) waits for ");
}

/* Of different queues, which may go on side by side; a device that does one thing after another may not. */
Test(check, lists_in_different_order) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true});
  move(p, 1, fake_find(p, 1, ZP_I_REDUCE_TIED, ANY, ANY), fake_find(p, 1, ZP_I_SEND_GRAD, 1, ANY));
  rejects(p, "deadlock: in the order of the lists stage 0 RECV_GRAD(mb 1) waits for its partner for ever");
}

/* ---- 7 operands ---------------------------------------------------------------------------------------- */
Test(check, operands) {
  ZpPlan *p = good(rich);
  find(p, 1, ZP_I_FWD, 1, 1)->naccess--;
  rejects(p, "but does not");
  p = good(rich);
  ZpInstr *in = find(p, 1, ZP_I_BWD, 1, 1);
  ZpAccess *more = ZB_NEWN(arena, ZpAccess, in->naccess + 1);
  memcpy(more, in->access, in->naccess * sizeof *more);
  more[in->naccess++] = (ZpAccess){0, ZP_READ, 0};
  in->access = more;
  rejects(p, "stage 1 BWD(layer.3, mb 1) has ");
  p = good(rich);
  in = find(p, 1, ZP_I_FWD, 2, 0);
  for (uint32_t k = 0; k < in->naccess; k++)
    if (p->stages[1].prog.bufs[in->access[k].buf].kind == ZP_B_RECV_ACT)
      in->access[k].tag = zp_tag(ZP_TAG_CARRY, 1, 2, 1);
  rejects(p, "stage 1 FWD(layer.2, mb 2) should read the tuple into layer.2, micro-batch 2 (activation "
             "receive buffer)");
}

/* What goes to and fro between instances is where the engine looks for it, by the instance's number. */
Test(check, boundaries_exchanged) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2});
  ZpProgram *g = &p->stages[0].prog;
  uint32_t first = (uint32_t)(buffer(p, 0, ZP_B_BOUNDARY, 0, 0) - g->bufs);
  for (uint32_t i = 0; i < g->ninstrs; i++)
    for (uint32_t k = 0; k < g->instrs[i].naccess; k++) {
      uint32_t *b = &g->instrs[i].access[k].buf;
      if (*b == first || *b == first + 1) *b = 2 * first + 1 - *b;
    }
  rejects(p,
          "stage 0 FWD(part 0, mb 0) should write the tuple into layer.0, micro-batch 0 (boundary buffer), "
          "but does not");
}

Test(check, count_of_the_loss) {
  ZpPlan *p = good(rich);
  find(p, 2, ZP_I_COUNT, 1, ANY)->inst = 0;
  rejects(p, "stage 2 COUNT(mb 1) counts a part of the model that has no loss");
  find(p, 2, ZP_I_COUNT, 1, ANY)->inst = 9;
  rejects(p, "(COUNT) names something that does not exist");
}

/* A scatter leaves nothing of use where it took the gradient from, not in another buffer. */
Test(check, changed_in_place) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find(p, 1, ZP_I_SCATTER_GRADS, 0, 2);
  uint32_t from = ZP_NONE;
  for (uint32_t k = 0; k < in->naccess; k++)
    if (p->stages[1].prog.bufs[in->access[k].buf].kind == ZP_B_STAGING && in->access[k].mode == ZP_READ)
      from = in->access[k].buf;
  uint32_t first = (uint32_t)(buffer(p, 1, ZP_B_STAGING, 1, 0) - p->stages[1].prog.bufs);
  for (uint32_t k = 0; k < in->naccess; k++)
    if (in->access[k].buf == from && in->access[k].mode == ZP_WRITE) in->access[k].buf = 2 * first + 1 - from;
  rejects(p, "stage 1 SCATTER_GRADS(layer.4, mb 0) reads staging buffer 0 of layer.*, but writes staging "
             "buffer 1 of layer.*");
}

/* ---- 8 contents ---------------------------------------------------------------------------------------- */
Test(check, wait_for_receive) {
  ZpPlan *p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_FWD, 1, 0), ZP_I_RECV_ACT);
  rejects(p, "stage 1 FWD(layer.2, mb 1) may read activation receive buffer 1 before stage 1 RECV_ACT(mb 1) "
             "has written it");
}

Test(check, receive_waits_for_reader) {
  ZpPlan *p = good(rich);
  forget(p, 0, find(p, 0, ZP_I_RECV_GRAD, 3, ANY), ZP_I_BWD);
  rejects(p, "stage 0 RECV_GRAD(mb 3) may overwrite gradient receive buffer 1 before stage 0 BWD(layer.1, mb "
             "1) has read");
}

Test(check, send_buffer_reused) {
  ZpPlan *p = good(rich);
  forget(p, 0, find(p, 0, ZP_I_FWD, 2, 2), ZP_I_SEND_ACT);
  rejects(p, "stage 0 FWD(layer.1, mb 2) may overwrite activation send buffer 0 before stage 0 SEND_ACT(mb "
             "0) has read");
}

Test(check, send_waits_for_data) {
  ZpPlan *p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_SEND_GRAD, 1, ANY), ZP_I_BWD);
  rejects(p, "stage 1 SEND_GRAD(mb 1) may read gradient send buffer 1 before stage 1 BWD(layer.2, mb 1) has "
             "written it");
}

Test(check, staging_reused) {
  ZpPlan *p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_BWD, 0, 0), ZP_I_SCATTER_GRADS);
  rejects(p,
          "may write staging buffer 0 of layer.* while stage 1 SCATTER_GRADS(layer.4, mb 0) still uses it");
}

/* A tied table on one stage: the head's backward begins its gradient, the embedding's adds to it, one scatter
 * follows. */
static const Fake tied_ends = {.stages = 1, .nmicro = 2, .layers = 2, .level = 2, .tied = true};

static ZpAccess *staged(const ZpPlan *p, ZpInstr *in, uint32_t bucket) {
  for (uint32_t k = 0; k < in->naccess; k++) {
    const ZpBuf *b = &p->stages[0].prog.bufs[in->access[k].buf];
    if (b->kind == ZP_B_STAGING && b->pool == bucket) return &in->access[k];
  }
  cr_assert_fail("no staged gradient");
  return NULL;
}

Test(check, tied_gradient_added_up) {
  ZpPlan *p = good(tied_ends);
  staged(p, find(p, 0, ZP_I_BWD, 1, 0), 0)->mode = ZP_WRITE;
  rejects(p, "stage 0 BWD(part 0, mb 1) should update the gradient of wte, micro-batch 1 (staging buffer)");
  p = good(tied_ends);
  staged(p, find(p, 0, ZP_I_BWD, 1, 3), 0)->mode = ZP_READ | ZP_WRITE;
  rejects(p, "stage 0 BWD(part 2, mb 1) should write the gradient of wte, micro-batch 1 (staging buffer)");
}

Test(check, tied_gradient_scattered_too_early) {
  ZpPlan *p = good(tied_ends);
  uint32_t head = fake_find(p, 0, ZP_I_BWD, 0, 3), scatter = fake_find(p, 0, ZP_I_SCATTER_GRADS, 0, 0);
  p->stages[0].prog.instrs[scatter].wait[0] = head;
  move(p, 0, scatter, head + 1);
  rejects(p, "stage 0 BWD(part 0, mb 0) reads the gradient of wte, micro-batch 0 from staging buffer 0 of "
             "wte, but stage 0 "
             "SCATTER_GRADS(wte, mb 0) has put nothing of use there");
}

Test(check, tied_gradient_scattered_twice) {
  ZpPlan *p = good(tied_ends);
  ZpInstr *in = find(p, 0, ZP_I_SCATTER_GRADS, 1, 0), *other = find(p, 0, ZP_I_SCATTER_GRADS, 1, 1);
  other->held = in->held;
  rejects(p, "stage 0: scattering a gradient of wte happens 3 times in a step instead of 2");
}

Test(check, gather_waits_for_reader) {
  ZpPlan *p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_GATHER_PARAMS, ANY, 2), ZP_I_FWD);
  rejects(p, "stage 1 GATHER_PARAMS(layer.4) may overwrite gather buffer 0 of layer.* before stage 1 "
             "FWD(layer.2, mb 0) has read");
}

Test(check, forward_waits_for_gather) {
  ZpPlan *p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_FWD, 0, 2), ZP_I_GATHER_PARAMS);
  rejects(p, "stage 1 FWD(layer.4, mb 0) may read gather buffer 0 of layer.* before stage 1 "
             "GATHER_PARAMS(layer.4) has written it");
}

Test(check, gather_removed) {
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

Test(check, denominator) {
  ZpPlan *p = good(rich);
  forget(p, 2, find(p, 2, ZP_I_BWD, 0, p->stages[2].ninsts - 1), ZP_I_REDUCE_COUNT);
  rejects(p, "BWD(part 2, mb 0) may read scalars 0 before stage 2 REDUCE_COUNT has written it");
}

Test(check, end_of_step_in_order) {
  ZpPlan *p = good(rich);
  forget(p, 0, find(p, 0, ZP_I_OPT_STEP, ANY, 0), ZP_I_REDUCE_STEP);
  rejects(p, "stage 0 OPT_STEP(wte) may run before REDUCE_STEP is complete");
  p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_REDUCE_STEP, ANY, ANY), ZP_I_NORM_LOCAL);
  rejects(p, "stage 1 REDUCE_STEP may run before NORM_LOCAL is complete");
  p = good(rich);
  forget(p, 1, find(p, 1, ZP_I_NORM_LOCAL, ANY, ANY), ZP_I_REDUCE_GRADS);
  rejects(p, "stage 1 NORM_LOCAL may read gradient accumulator of");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 2});
  forget(p, 0, find(p, 0, ZP_I_PUBLISH_PARAMS, ANY, 1), ZP_I_OPT_STEP);
  rejects(
      p,
      "stage 0 PUBLISH_PARAMS(layer.0) may read parameter store of layer.0 before stage 0 OPT_STEP(layer.0)");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2});
  move(p, 0, fake_find(p, 0, ZP_I_NORM_LOCAL, ANY, ANY), fake_find(p, 0, ZP_I_BWD, 1, 0));
  rejects(p, ""); /* whichever proof comes first */
}

Test(check, reduced_before_the_last_backward) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 0});
  uint32_t at = fake_find(p, 0, ZP_I_BWD, 1, 3);
  ZpInstr *in = find(p, 0, ZP_I_REDUCE_GRADS, ANY, 0);
  uint32_t from = (uint32_t)(in - p->stages[0].prog.instrs);
  in->wait[0] = at - 1;
  move(p, 0, from, at);
  rejects(p, "accumulated gradient of wte after 0 reductions");
}

/* No wait is there for nothing: whichever one is dropped, a proof fails, unless an earlier entry of the same
 * queue waits for it too. */
static void drop_each_wait(Fake f) {
  ZpPlan *p = good(f);
  uint32_t dropped = 0;
  for (uint32_t s = 0; s < p->nstages; s++) {
    const ZpProgram *g = &p->stages[s].prog;
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

Test(check, no_wait_is_idle) {
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
Test(check, slots_overlap) {
  ZpPlan *p = good(rich);
  buffer(p, 0, ZP_B_SLOT, 0, 1)->offset = buffer(p, 0, ZP_B_SLOT, 0, 0)->offset;
  rejects(p, "stage 0 FWD(layer.1, mb 0) writes values of micro-batch 0 into slot 0, but nobody reads it "
             "before stage 0 "
             "LOAD(mb 1) overwrites it");
}

Test(check, stored_things_overlap) {
  ZpPlan *p = good(rich);
  ZpBuf *b = buffer(p, 0, ZP_B_GRAD, 1, 0);
  b->offset = buffer(p, 0, ZP_B_STATE, 1, 0)->offset;
  rejects(p, "stage 0: gradient accumulator of layer.0 and optimizer state of layer.0 overlap in the arena");
}

/* Scratch begins below both, and may lie on either: they are seen all the same. */
Test(check, stored_things_overlap_in_scratch) {
  ZpPlan *p = good(rich);
  ZpBuf *b = buffer(p, 0, ZP_B_GRAD, 1, 0), *state = buffer(p, 0, ZP_B_STATE, 1, 0);
  buffer(p, 0, ZP_B_SCRATCH, 0, 0)->offset = state->offset - 64;
  b->offset = state->offset;
  rejects(p, "stage 0: gradient accumulator of layer.0 and optimizer state of layer.0 overlap in the arena");
}

/* With one micro-batch the boundary is dead once embed's gradient is staged; with two it is alive again. */
Test(check, overlap_in_turn) {
  for (uint32_t M = 1; M <= 2; M++) {
    ZpPlan *p = good((Fake){.stages = 1, .nmicro = M, .layers = 2, .level = 2, .alone = true});
    buffer(p, 0, ZP_B_BOUNDARY, 0, 0)->offset = buffer(p, 0, ZP_B_STAGING, 0, 0)->offset;
    ZbErr err = {0};
    if (M == 1) cr_assert(zp_check(p, &err), "%s", err.text);
    else rejects(p, "stage 0 FWD(layer.0, mb 1) may ");
  }
}

/* Buffers that nobody uses, one of them in the first bytes of scratch: it is met once, whatever else has
 * ended before. */
Test(check, overlap_with_what_is_idle) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .level = 2, .alone = true});
  ZpProgram *g = &p->stages[0].prog;
  ZpLedger *l = &p->stages[0].ledger;
  uint64_t *total = &l->total[ZP_DEVICE];
  /* Behind the arena's end; scratch goes to 256. */
  const uint64_t idle[3][2] = {{0, 64}, {64, 320}, {128, 192}};
  for (uint32_t i = 0; i < 3; i++) {
    ZpBuf b = {
        .kind = ZP_B_RECV_ACT, .index = i, .bytes = idle[i][1] - idle[i][0], .offset = *total + idle[i][0]};
    ZB_PUSH(arena, g->bufs, g->nbufs, b);
  }
  buffer(p, 0, ZP_B_SCRATCH, 0, 0)->offset = *total + 256;
  *total += 256 + 128, l->bytes[ZP_L_OTHER] = *total;
  ZbErr err = {0};
  cr_assert(zp_check(p, &err), "%s", err.text);
  g->bufs[g->nbufs - 1].offset = buffer(p, 0, ZP_B_STATE, 0, 0)->offset;
  rejects(p, "optimizer state of wte and activation receive buffer 2 overlap in the arena");
}

Test(check, overlap_within_one_instruction) {
  ZpPlan *p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .level = 2, .alone = true});
  buffer(p, 0, ZP_B_BOUNDARY, 0, 1)->offset = buffer(p, 0, ZP_B_STAGING, 0, 0)->offset;
  rejects(p, "stage 0 BWD(part 0, mb 0) uses boundary buffer 1 and staging buffer 0 of wte, which overlap in "
             "the arena");
}

Test(check, arena_bounds) {
  ZpPlan *p = good(rich);
  p->stages[2].prog.bufs[p->stages[2].prog.nbufs - 1].offset += 64;
  rejects(p, "stage 2: staging buffer 1 of layer.* lies at bytes 49792 to ");
  p = good(rich);
  p->stages[1].ledger.total[ZP_DEVICE] += 64;
  rejects(p, "stage 1: the lines of the ledger add up to ");
  p = good(rich);
  buffer(p, 1, ZP_B_SCRATCH, 0, 0)->offset += 8;
  rejects(p, "stage 1: scratch 0 lies at bytes ");
  p = good(rich);
  buffer(p, 1, ZP_B_GATHER, 1, 0)->bytes = 64;
  rejects(p, "stage 1: gather buffer 0 of layer.* has 64 bytes, but needs 4096");
  p = good(rich);
  p->stages[1].saved_at[1] -= 64;
  rejects(p, "stage 1: what layer.3 saves overlaps what lies before it in the slot");
}

/* Sizes worked by hand: 1024 elements cut in 2 by ZeRO-1 (states), -2 (gradients), -3 (parameters). A line
 * less is refused, wherever the planner takes its sizes from. */
Test(check, sizes_by_hand) {
  static const struct {
    ZpBufKind kind;
    uint32_t pool;
    uint64_t full[4], half[4]; /* in f32, in bf16 with a master; by level */
  } want[] = {{ZP_B_PARAM, 1, {4096, 4096, 4096, 2048}, {2048 + 4096, 2048 + 2048, 2048 + 2048, 1024 + 2048}},
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
        ZpBuf *b = buffer(p, 1, want[i].kind, want[i].pool, 0);
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
Test(check, sizes_of_each_segment) {
  for (int k = 0; k < ZP_PHASES; k++) {
    ZpPlan *p = good(rich);
    p->segments[1].list[k].temp = 192;
    rejects(p, "stage 0: scratch 0 has 128 bytes, but needs 192");
  }
  ZpPlan *p = good(rich);
  for (int i = 0; i < 3; i++) p->segments[i].dcarry_bytes = p->segments[i].dcarry_out_bytes = 576;
  rejects(p, "has 512 bytes, but needs 576");
  p = good(rich); /* in the slot, behind what is saved: 3 x 256 and two tuples of 512 */
  buffer(p, 1, ZP_B_SLOT, 0, 0)->bytes = 1728;
  rejects(p, "stage 1: slot 0 has 1728 bytes, but needs 1792");
  p = good(rich);
  for (uint32_t s = 0; s < 3; s++) p->stages[s].scratch_bytes = 0;
  rejects(p, "stage 0 has temporaries, but no scratch");
  p = good(rich);
  p->stages[1].saved_at[1] += 8;
  rejects(p, "stage 1: what layer.3 saves overlaps");
  p = good(rich);
  p->stages[1].saved_at[2] = UINT64_MAX - 63;
  rejects(p, "stage 1: what layer.4 saves overlaps");
}

/* Where the device has its own memory, inputs and scalars pass through the host's. */
Test(check, pinned) {
  Fake f = {.stages = 3, .nmicro = 4, .layers = 7, .level = 3, .pins = true};
  ZpPlan *p = good(f); /* 64 bytes of inputs on the first stage and the last */
  for (uint32_t s = 0; s < 3; s++) {
    const ZpStage *st = &p->stages[s];
    cr_expect_eq(st->prog.npinned, s == 1 ? 0 : 4);
    cr_expect_eq(st->ledger.total[ZP_HOST], s == 1 ? 128 : 128 + 4 * 64);
  }
  buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->bytes = 32;
  rejects(p, "stage 0: pinned inputs 1 has 32 bytes, but needs 64");
  p = good(f);
  buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->memory = ZP_DEVICE;
  rejects(p, "stage 0: pinned inputs 1 is not in the host's memory");
  p = good(f);
  buffer(p, 0, ZP_B_SCALARS, 0, 1)->memory = ZP_HOST;
  rejects(p, "stage 0: scalars 1 is not in the device's memory");
  p = good(f);
  buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 1)->offset = 0;
  rejects(p, "overlap in the host's memory");
  p = good(f);
  buffer(p, 1, ZP_B_PINNED_SCALARS, 0, 1)->offset = 128;
  rejects(p, "stage 1: pinned scalars 1 lies at bytes 128 to 192 of a host's memory of 128");
  p = good(f);
  p->stages[0].prog.npinned = 3;
  rejects(p, "stage 0 pins 4 blocks of inputs (its plan says 3) and 2 of scalars");
  p = good(f);
  ZpBuf *between = buffer(p, 0, ZP_B_PINNED_INPUTS, 0, 3), was = *between;
  between[0] = between[1], between[1] = was; /* and a block of scalars */
  rejects(p, "stage 0: pinned inputs 3 is not numbered as it is listed");
  p = good(f);
  p->pins = false;
  rejects(p, "stage 0 pins 4 blocks of inputs (its plan says 4) and 2 of scalars");
  p = good(f);
  p->stages[1].ledger.bytes[ZP_L_PINNED] -= 64;
  rejects(p, "stage 1: the lines of the ledger add up to 64 bytes, its total is 128");
}

/* The engine finds what is stored of a bucket by the bucket alone. */
Test(check, stored_once) {
  static const struct {
    ZpBufKind kind;
    const char *text;
  } of[] = {{ZP_B_PARAM, "stage 1 has a second parameter store of layer.3"},
            {ZP_B_GRAD, "stage 1 has a second gradient accumulator of layer.3"},
            {ZP_B_STATE, "stage 1 has a second optimizer state of layer.3"}};
  for (int i = 0; i < 3; i++) {
    ZpPlan *p = good(rich);
    ZpProgram *g = &p->stages[1].prog;
    ZpBuf b = *buffer(p, 1, of[i].kind, 1, 0);
    b.index = 1;
    ZB_PUSH(arena, g->bufs, g->nbufs, b);
    rejects(p, of[i].text);
  }
}
