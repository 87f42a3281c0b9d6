/* Every proof is provoked by breaking a good plan, and says what is wrong in words: form, ownership,
 * completeness, reductions, pairs, deadlock. The others: check_memory.c. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/broken.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(check, .init = arena_setup, .fini = arena_teardown);

/* ---- 1 form -------------------------------------------------------------------------------------------- */
Test(check, waits_point_backward) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find_instr(p, 0, ZP_I_SEND_ACT, 0, ANY);
  in->wait[0] = fake_find(p, 0, ZP_I_OPT_STEP, ANY, 0);
  rejects(p, "stage 0 SEND_ACT(mb 0) waits for stage 0 OPT_STEP(wte), which is listed after it");
}

Test(check, queues_list_all) {
  ZpPlan *p = good(rich);
  p->programs.stages[1].prog.nqueue[ZP_Q_COLL]--;
  rejects(p, "stage 1: an instruction is in no queue");
  p = good(rich);
  uint32_t *q = p->programs.stages[1].prog.queue[ZP_Q_P2P], first = q[0];
  q[0] = q[1], q[1] = first;
  rejects(p, "stage 1: queue 1 does not list its instructions in order");
  p = good(rich);
  find_instr(p, 1, ZP_I_SEND_ACT, 0, ANY)->queue = ZP_Q_COLL;
  rejects(p, "of no known kind or in another's queue");
}

Test(check, indices_in_range) {
  ZpPlan *p = good(rich);
  find_instr(p, 1, ZP_I_FWD, 1, 0)->inst = 77;
  rejects(p, "names something that does not exist");
  p = good(rich);
  find_instr(p, 1, ZP_I_FWD, 1, 0)->access[0].buf = 9999;
  rejects(p, "is not a buffer of this stage");
}

Test(check, mesh_and_stages) {
  ZpPlan *p = good(rich);
  p->layout.mesh.dim[0].size = 4;
  rejects(p, "the plan has 3 stages, but not its mesh");
  p->layout.mesh.pipe = -1;
  rejects(p, "the plan has 3 stages, but not its mesh");
  p = good(rich);
  p->asked.nmicro = 0;
  rejects(p, "the plan has no stages or no micro-batches");
  p = good(rich);
  p->programs.nstages = 0;
  rejects(p, "the plan has no stages or no micro-batches");
  p = good(rich);
  p->programs.stages[2].prog.ninstrs = UINT32_MAX / 2;
  rejects(p, "the programs are too long");
}

/* The engine finds buffers by kind, pool and index, and of several the first. */
Test(check, buffers_numbered) {
  ZpPlan *p = good(rich);
  find_buffer(p, 1, ZP_B_STAGING, 1, 1)->index = 0;
  rejects(p, "stage 1: staging buffer 0 of layer.* is not numbered as it is listed");
  p = good(rich);
  find_buffer(p, 1, ZP_B_BOUNDARY, 0, 1)->pool = 1;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  find_buffer(p, 1, ZP_B_STATE, 1, 0)->pool = p->programs.stages[1].nheld;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  find_buffer(p, 1, ZP_B_GATHER, 1, 0)->pool = p->programs.nbuckets;
  rejects(p, "is of no known kind or pool");
  p = good(rich);
  find_buffer(p, 1, ZP_B_GATHER, 1, 0)->kind = ZP_B_KINDS;
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
    cr_assert(p->programs.stages[1].nheld == 3 && p->programs.stages[1].ninsts == 3);
    *(uint32_t *)(void *)((char *)find_instr(p, 1, ends[i].op, ANY, ANY) + ends[i].field) = ends[i].end;
    rejects(p, "names something that does not exist");
  }
  ZpPlan *p = good(rich);
  find_instr(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->tied = p->programs.ntied;
  rejects(p, "(REDUCE_TIED) names something that does not exist");
  p = good(rich);
  find_instr(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->held = p->programs.stages[0].nheld;
  rejects(p, "(REDUCE_TIED) names something that does not exist");
}

/* ---- 2 ownership --------------------------------------------------------------------------------------- */
Test(check, bucket_dims) {
  ZpPlan *p = good(rich);
  p->programs.buckets[1].shard = 1u << 3; /* tensor: it is split there, not copied */
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is not a copy");
  p = good(rich);
  p->programs.buckets[1].partial |= 1u << 3;
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is not a copy");
  p = good(rich);
  p->programs.buckets[1].replicas |= 1u << 0; /* pipe */
  rejects(p, "bucket layer.* is cut or reduced over dims along which it is not a copy");
  p = good(rich);
  p->programs.buckets[1].shard = 1u << 1; /* replica: a copy, but the recipe cuts over data */
  rejects(p, "bucket layer.* is stored otherwise than the recipe says");
}

/* What a bucket does follows from the recipe and from its copies, one by one. */
Test(check, bucket_does) {
  static const char *const text = "bucket layer.* is stored otherwise than the recipe says";
  for (int level = 0; level < 4; level++) {
    Fake f = {.stages = 2, .nmicro = 2, .layers = 2, .level = level, .keep = true};
    ZpPlan *p = good(f);
    ZpBucket *k = &p->programs.buckets[1], was = *k;
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
  ZpSlice s[2] = {{.n = 500, .takes = 500, .naxes = 2, .size = {50, 10}},
                  {.at = 512, .n = 512, .takes = 512, .naxes = 1, .size = {512}}};
  ZbErr err = {0};
  p->programs.buckets[1].slices = s;
  p->programs.buckets[1].nslices = 2;
  cr_assert(zp_check(p, &err), "%s", err.text);
  s[0].n = s[0].takes = s[0].size[0] = 513, s[0].naxes = 1;
  rejects(p, "bucket layer.*: slice 1 has 512 elements at 512, but the one before ends at 513");
  s[0].n = s[0].takes = 500;
  rejects(p, "bucket layer.*: slice 0 has 500 elements at 0");
  s[0].size[0] = 500, s[1].at = 504;
  rejects(p, "bucket layer.*: slice 1 has 512 elements at 504");
  s[1].at = 512, s[1].n = s[1].takes = s[1].size[0] = 513;
  rejects(p, "bucket layer.* has 1024 elements for slices of 1025, in 2 parts");
  s[1].n = s[1].takes = s[1].size[0] = 512, p->programs.buckets[1].elems = 1040;
  rejects(p, "bucket layer.* has 1040 elements for slices of 1024, in 2 parts");
  s[0].takes = 512;
  rejects(p, "bucket layer.*: slice 0 has 500 elements at 0");
}

Test(check, every_layer_once) {
  ZpPlan *p = good(rich);
  p->programs.stages[1].insts[0].iter = 1;
  rejects(p, "layer.1 is on stage 0 and again on stage 1");
  p = good(rich);
  p->programs.stages[2].ninsts--;
  rejects(p, "part 2 is on no stage");
  p = good(rich);
  ZpInst x = p->programs.stages[1].insts[0];
  p->programs.stages[1].insts[0] = p->programs.stages[1].insts[1], p->programs.stages[1].insts[1] = x;
  rejects(p, "not on the stages in their order");
}

Test(check, buckets_where_used) {
  ZpPlan *p = good(rich);
  p->programs.stages[1].held[0].iter = 6;
  rejects(p, "stage 1 does not hold the parameters of layer.2");
  p = good(rich);
  p->programs.stages[2].held[p->programs.stages[2].nheld - 1].tied = ZP_NONE;
  rejects(p, "wte is on 2 stages, but stage 2 does not know that it is tied");
  p = good(rich);
  p->programs.stages[2].held[p->programs.stages[2].nheld - 1].norm_owner = true;
  rejects(p, "the norm of wte counts on 2 stages");
  p = good(rich);
  ZpStage *st = &p->programs.stages[1];
  ZpStageBucket *held = ZB_NEWN(arena, ZpStageBucket, st->nheld + 1);
  memcpy(held, st->held, st->nheld * sizeof *held);
  held[st->nheld] = held[0], held[st->nheld++].iter = 6;
  st->held = held;
  rejects(p, "stage 1 holds layer.6 but does not use it");
  p = good((Fake){.stages = 1, .nmicro = 1, .layers = 2, .shared = true}); /* each layer has a copy of it */
  st = p->programs.stages;
  ZpStageBucket *scale = &st->held[st->insts[2].held[1]];
  ZB_PUSH(arena, st->held, st->nheld, *scale);
  st->insts[2].held[1] = st->nheld - 1;
  rejects(p, "stage 0 holds scale twice");
}

Test(check, tuples_fit) {
  ZpPlan *p = good(rich);
  p->programs.segments[2].carry_bytes = 1024;
  rejects(p, "layer.6 carries out 512 bytes and takes back 512, but part 2 takes in 1024");
}

/* ---- 3 completeness ------------------------------------------------------------------------------------ */
Test(check, forward_twice) {
  ZpPlan *p = good(rich);
  find_instr(p, 0, ZP_I_FWD, 1, 1)->mb = 0;
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
  rejects(p, "stage 2 counts the denominators of micro-batch 1 0 times instead of 1");
  p = good(rich);
  fake_remove(p, 0, fake_find(p, 0, ZP_I_LOAD, 1, ANY));
  rejects(p, "stage 0 loads micro-batch 1 0 times instead of 1");
  p = good(rich);
  fake_remove(p, 0, fake_find(p, 0, ZP_I_ZERO_GRADS, ANY, ANY));
  rejects(p, "stage 0 has 0 ZERO_GRADS and 1 NORM_LOCAL instead of one each");
  p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_NORM_LOCAL, ANY, ANY));
  rejects(p, "stage 1 has 1 ZERO_GRADS and 0 NORM_LOCAL instead of one each");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 2, .forward_only = true});
  fake_remove(p, 1, fake_find(p, 1, ZP_I_ZERO_SUMS, ANY, ANY));
  rejects(p, "stage 1 has 0 ZERO_SUMS instead of one");
}

Test(check, live_micro_batches) {
  ZpPlan *p = good(rich);
  p->programs.stages[0].prog.live = 2;
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
  ZpInstr *in = find_instr(p, 1, ZP_I_REDUCE_GRADS, ANY, 1);
  in->held = 0;
  rejects(p, "stage 1: reducing the gradient of layer.2 happens 2 times in a step instead of 1");
}

Test(check, gradient_over_wrong_dims) {
  ZpPlan *p = good(rich);
  find_instr(p, 1, ZP_I_REDUCE_GRADS, ANY, 1)->dims = 1u << 2;
  rejects(p, "stage 1 REDUCE_GRADS(layer.3) goes over data, but has to go over replica");
  p = good(rich);
  find_instr(p, 1, ZP_I_GATHER_PARAMS, ANY, 1)->dims = 1u << 3;
  rejects(p, "GATHER_PARAMS(layer.3) goes over tensor, but has to go over data");
}

/* What an instruction says it moves is what has to move: `explain` prints it and the engine goes by it. */
Test(check, collective_bytes) {
  ZpPlan *p = good(rich);
  find_instr(p, 1, ZP_I_REDUCE_GRADS, ANY, 1)->bytes *= 2; /* 1024 elements, of which a rank has half */
  rejects(p, "stage 1 REDUCE_GRADS(layer.3) is all_reduce of 4096 bytes, but has to be all_reduce of 2048");
  p = good(rich);
  find_instr(p, 1, ZP_I_SCATTER_GRADS, 1, 1)->coll = ZG_OP_ALL_REDUCE;
  rejects(p, "stage 1 SCATTER_GRADS(layer.3, mb 1) is all_reduce of 4096 bytes, but has to be reduce_scatter "
             "of 4096");
  p = good(rich);
  find_instr(p, 1, ZP_I_GATHER_PARAMS, ANY, 1)->bytes = 2048;
  rejects(p, "GATHER_PARAMS(layer.3) is all_gather of 2048 bytes, but has to be all_gather of 4096");
  p = good(rich);
  find_instr(p, 2, ZP_I_REDUCE_COUNT, ANY, ANY)->bytes = 4;
  rejects(p, "stage 2 REDUCE_COUNT is all_reduce of 4 bytes, but has to be all_reduce of 8");
  p = good(rich);
  for (uint32_t s = 0; s < 3; s++) find_instr(p, s, ZP_I_REDUCE_STEP, ANY, ANY)->bytes = 64;
  rejects(p, "stage 0 REDUCE_STEP is all_reduce of 64 bytes, but has to be all_reduce of 32");
  p = good(rich);
  find_instr(p, 0, ZP_I_REDUCE_TIED, ANY, ANY)->bytes = 4096;
  rejects(p, "stage 0 REDUCE_TIED(wte) is all_reduce of 4096 bytes, but has to be all_reduce of 2048");
  p = good((Fake){.stages = 1, .nmicro = 2, .layers = 2, .level = 1, .bf16 = true});
  find_instr(p, 0, ZP_I_PUBLISH_PARAMS, ANY, 1)->bytes = 4096;
  rejects(p, "PUBLISH_PARAMS(layer.0) is all_gather of 4096 bytes, but has to be all_gather of 2048");
}

/* A gradient that is complete along the shards' dim, or along one of two, is not summed along it once
 * more. */
Test(check, scatter_of_what_is_complete) {
  Fake f = {.stages = 1, .nmicro = 2, .layers = 2, .level = 2};
  ZpPlan *p = fake_plan(arena, f);
  ZpDims data = 1u << 2, tensor = 1u << 3;
  p->asked.zero.over = data | tensor;
  p->programs.buckets[0].partial = tensor; /* the others': replica and data */
  p->programs.buckets[2].partial = data | tensor;
  for (uint32_t b = 0; b < p->programs.nbuckets; b++) {
    p->programs.buckets[b].replicas |= tensor;
    zp_bucket_storage(p, &p->programs.buckets[b]);
  }
  zp_program(p);
  fake_arena(p);
  ZbErr err = {0};
  cr_assert(zp_check(p, &err), "%s", err.text);
  ZpInstr *wte = find_instr(p, 0, ZP_I_SCATTER_GRADS, 0, 0),
          *layer = find_instr(p, 0, ZP_I_SCATTER_GRADS, 0, 1),
          *out = find_instr(p, 0, ZP_I_SCATTER_GRADS, 0, 3);
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

/* Half as many bytes where the plan sums gradients in bf16, of all but measures of states. */
Test(check, bytes_of_sums) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 2, .level = 2, .alone = true});
  ZlRecipe r = *p->asked.recipe;
  r.precision.reduce = "bf16";
  p->asked.recipe = &r;
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) p->programs.buckets[i].reduce = ZK_BF16;
  rejects(p, "is reduce_scatter of 4096 bytes, but has to be reduce_scatter of 2048");
}

/* A bucket has the formats that the recipe says. */
Test(check, formats_of_buckets) {
  ZpPlan *p = good(rich);
  p->programs.buckets[0].elem ^= 1;
  rejects(p, "is stored otherwise than the recipe says");
  p = good(rich);
  p->programs.buckets[0].reduce = ZK_BF16;
  rejects(p, "is stored otherwise than the recipe says");
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
      ZpInstr *in = find_instr(p, 1, want[i].op, ANY, ANY);
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

/* ---- virtual stages ------------------------------------------------------------------------------------ */
Test(check, virtual_stages_are_placed) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4});
  p->programs.vstages[0].stage = 1;
  rejects(p, "virtual stage 0 is not on stage 0 as its number 0");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4});
  p->programs.nvstages = 1;
  rejects(p, "the plan has 1 virtual stages, but schedule 1f1b has 2");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4});
  p->programs.vstages[1].ninsts--;
  rejects(p, "stage 1 has parts of the model that are in no virtual stage");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4});
  p->programs.vstages[1].carry_bytes = 64;
  rejects(p, "virtual stage 1 does not take in what layer.2 does");
}

/* Gradients are added up in one order in every schedule. */
Test(check, backwards_in_order) {
  ZpPlan *p = good((Fake){.schedule = "gpipe", .stages = 1, .nmicro = 2, .layers = 2});
  move_instr(p, 0, fake_find(p, 0, ZP_I_BWD, 1, 3), fake_find(p, 0, ZP_I_BWD, 0, 3));
  rejects(p, "stage 0 BWD(part 2, mb 1) runs before the backward of an earlier micro-batch");
}

/* ---- 5 pairs ------------------------------------------------------------------------------------------- */
Test(check, receive_dropped) {
  ZpPlan *p = good(rich);
  fake_remove(p, 1, fake_find(p, 1, ZP_I_RECV_ACT, 1, ANY));
  rejects(p, "stage 0 SEND_ACT(mb 1) has no partner: stage 1 has no RECV_ACT(mb 1)");
}

Test(check, bytes_differ) {
  ZpPlan *p = good(rich);
  find_instr(p, 1, ZP_I_RECV_GRAD, 1, ANY)->bytes = 516;
  rejects(p, "stage 1 RECV_GRAD(mb 1) has 516 bytes, but stage 2 SEND_GRAD(mb 1) has 512");
  find_instr(p, 2, ZP_I_SEND_GRAD, 1, ANY)->bytes = 516;
  rejects(p, "moves 516 bytes, but its cotangent has 512");
}

Test(check, partners_mirror) {
  ZpPlan *p = good(rich);
  find_instr(p, 0, ZP_I_SEND_ACT, 1, ANY)->peer = 2;
  rejects(p, "are a pair, but do not mirror each other");
  p = good(rich);
  find_instr(p, 0, ZP_I_SEND_ACT, 1, ANY)->mb = 2;
  rejects(p, "are a pair, but do not mirror each other");
  p = good(rich);
  find_instr(p, 0, ZP_I_SEND_ACT, 1, ANY)->pair = find_instr(p, 0, ZP_I_SEND_ACT, 0, ANY)->pair;
  rejects(p, "3 transfers have the same pair number");
}

/* Activations go to the next stage and gradients to the one before, never further. */
Test(check, neighbours) {
  ZpPlan *p = good(rich);
  ZpInstr *send = find_instr(p, 0, ZP_I_SEND_ACT, 1, ANY), *get = find_instr(p, 2, ZP_I_RECV_ACT, 1, ANY);
  find_instr(p, 1, ZP_I_RECV_ACT, 1, ANY)->pair = get->pair; /* its partner gets another */
  get->pair = send->pair, send->peer = 2, get->peer = 0;
  rejects(p, "stage 0 SEND_ACT(mb 1) goes to stage 2, which is not the next");
  p = good(rich);
  send = find_instr(p, 0, ZP_I_SEND_ACT, 1, ANY), get = find_instr(p, 1, ZP_I_RECV_ACT, 1, ANY);
  send->op = ZP_I_SEND_GRAD, get->op = ZP_I_RECV_GRAD;
  rejects(p, "stage 0 SEND_GRAD(mb 1) goes to stage 1, which is not the next");
}

Test(check, collective_of_other_stages) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true, .shared = true});
  ZpInstr *one = find_instr(p, 1, ZP_I_REDUCE_TIED, ANY, ANY);
  cr_assert_eq(one[1].op, ZP_I_REDUCE_TIED);
  one->pair = one[1].pair;
  rejects(p, "are parts of one collective");
  p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true, .shared = true});
  one = find_instr(p, 1, ZP_I_REDUCE_TIED, ANY, ANY);
  uint32_t held = one->held;
  one->held = one[1].held, one[1].held = held;
  rejects(p, "stage 1 REDUCE_TIED(scale) is none of the stages with a copy of wte");
}

Test(check, collective_of_stages_incomplete) {
  ZpPlan *p = good(rich);
  ZpInstr *in = find_instr(p, 2, ZP_I_REDUCE_TIED, ANY, ANY);
  in->pair = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) in->pair += p->programs.stages[s].prog.ninstrs;
  rejects(p, "stage 2 REDUCE_TIED(wte) has no pair number"); /* there are as many at most, from 0 */
  in->pair = find_instr(p, 2, ZP_I_REDUCE_STEP, ANY, ANY)->pair + 1;
  rejects(p, "stage 0 REDUCE_TIED(wte) meets 0 stages instead of 1");
}

/* ---- 6 deadlock ---------------------------------------------------------------------------------------- */
Test(check, sends_swapped) {
  ZpPlan *p = good((Fake){.schedule = "gpipe", .stages = 2, .nmicro = 3, .layers = 2});
  move_instr(p, 0, fake_find(p, 0, ZP_I_SEND_ACT, 0, ANY), fake_find(p, 0, ZP_I_SEND_ACT, 1, ANY));
  rejects(p, "deadlock: stage 1 RECV_ACT(mb 1) waits for stage 1 RECV_ACT(mb 0), whose partner stage 0 "
             "SEND_ACT(mb 0) waits "
             "for stage 0 SEND_ACT(mb 1), the partner of stage 1 RECV_ACT(mb 1)");
}

Test(check, both_send_first) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 3, .layers = 2});
  move_instr(p, 1, fake_find(p, 1, ZP_I_RECV_ACT, 1, ANY), fake_find(p, 1, ZP_I_SEND_GRAD, 0, ANY));
  rejects(p, "deadlock: stage 1 RECV_ACT(mb 1) waits for stage 1 SEND_GRAD(mb 0), whose partner stage 0 "
             "RECV_GRAD(mb 0) waits "
             "for stage 0 SEND_ACT(mb 1), the partner of stage 1 RECV_ACT(mb 1)");
}

/* Of the links of a cycle the first six are said, and the last; eight are all said. */
Test(check, long_cycle) {
#define CLOSED                                                                                               \
  "whose partner stage 0 SEND_ACT(mb 0) waits for stage 0 RECV_GRAD(mb 0), the partner of stage 1 "          \
  "SEND_GRAD(mb 0)"
  static const char *const said[] = {
      "stage 1 FWD(layer.2, mb 0), which waits for stage 1 RECV_ACT(mb 0), " CLOSED,
      "stage 1 FWD(layer.5, mb 0), and so on over 3 more, " CLOSED};
  for (uint32_t k = 0; k < 2; k++) {
    ZpPlan *p = good((Fake){.stages = 2, .nmicro = 1, .layers = 4 + 2 * k});
    move_instr(p, 0, fake_find(p, 0, ZP_I_RECV_GRAD, 0, ANY), fake_find(p, 0, ZP_I_SEND_ACT, 0, ANY));
    rejects(p, said[k]);
  }
}

Test(check, tied_in_different_order) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true, .shared = true});
  const ZpProgram *g = &p->programs.stages[1].prog;
  uint32_t first = fake_find(p, 1, ZP_I_REDUCE_TIED, ANY, ANY), second = first + 1;
  cr_assert_eq(g->instrs[second].op, ZP_I_REDUCE_TIED);
  move_instr(p, 1, first, second);
  rejects(p, "deadlock: stage 1 REDUCE_TIED(scale) waits for stage 1 REDUCE_TIED(wte), whose partner stage 0 "
             "REDUCE_TIED(wte) waits for ");
}

/* Of different queues, which may go on side by side; a device that does one thing after another may not. */
Test(check, lists_in_different_order) {
  ZpPlan *p = good((Fake){.stages = 2, .nmicro = 2, .layers = 4, .tied = true});
  move_instr(p, 1, fake_find(p, 1, ZP_I_REDUCE_TIED, ANY, ANY), fake_find(p, 1, ZP_I_SEND_GRAD, 1, ANY));
  rejects(p, "deadlock: in the order of the lists stage 0 RECV_GRAD(mb 1) waits for its partner for ever");
}
