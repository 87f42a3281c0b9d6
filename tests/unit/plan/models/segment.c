/* The proof of local programs: faults that are planted one at a time are refused, in words; of thousands of
 * changes of single fields, brute force (brute.c) finds nothing wrong with those that are accepted. */
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/faults.h"

static const char rows[] =
    "model M { axis batch, a = 7  input x: real[batch, a]  input y: real[batch]  param w[a] ~ normal(1)\n"
    "  loss dot[a](x, w) per y }";

/* ---- one at a time ------------------------------------------------------------------------------------- */
static ZpNode *node_of(ZpSegment *s, ZpPhase phase, ZgOp op) {
  uint32_t n;
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  for (uint32_t i = 0; i < n; i++)
    if (nodes[i].call.op == op) return (ZpNode *)&nodes[i];
  cr_assert_fail("no %s", zg_op_info[op].text);
  return NULL;
}

/* The model whose inputs in bf16 were written over each other: of the plan each byte is looked at. */
Test(segment, bytes_and_types) {
  Model m = model_open(NULL, rows, NULL);
  Plan q = plan_of(m.g, "bind batch = 4 precision compute bf16");
  ZpSegment *s = &q.p->programs.segments[0];
  ZpNode *dot = node_of(s, ZP_FWD, ZG_OP_DOT), *sum = node_of(s, ZP_COUNT, ZG_OP_SUM);
  ZpValue *x = &s->values[dot->in[0]], *w = &s->values[dot->in[1]], *y = &s->values[dot->out[0]];
  accepts(q.p);
  cr_assert(x->at.space == ZP_AT_INPUT && x->bytes == 56 && w->at.space == ZP_AT_PARAM);
  WITH(x->elem, ZK_F32, "sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].elem, ZK_F32,
       "part 0, forward, dot (test.zug:2) sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].size[1], 8, "sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].stride[0], 8, "sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].whole[0], 8, "sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].axis[0], 1, "sees operand 0 otherwise than it lies");
  WITH(dot->call.in[0].rank, 1, "sees operand 0 otherwise than it lies");
  WITH(x->bytes, 55, "has not the bytes of its sizes");
  WITH(x->type.axis[0], 1, "is of another type than the data");
  WITH(y->type.axis[0], 1, "has a result of other axes than its operation makes");
  WITH(y->type.elem, ZG_F32, "is not of its type's elements");
  WITH(x->at.offset, x->at.offset - 64, "input 1 is not where its value is said to lie");
  WITH(x->at.offset, x->at.offset + 64, "input 1 is not where its value is said to lie");
  WITH(w->at.offset, 8, "does not lie in the block");
  WITH(w->at.index, 1, "does not lie in the block");
  WITH(w->param, 1, "does not lie in the block");
  WITH(y->at.space, ZP_AT_NOWHERE, "does not lie in the block");
  WITH(y->at.space, ZP_AT_INPUT, "");
  WITH(s->values[sum->in[0]].at.space, ZP_AT_SAVED, "does not lie in the block");
  plan_close(&q);
  model_close(&m);
}

Test(segment, inputs_and_facts) {
  Model m = model_open(NULL, rows, NULL);
  Plan q = plan_of(m.g, "bind batch = 4 precision compute bf16");
  cr_assert_eq(q.p->programs.ninputs, 2);
  WITH(q.p->programs.inputs[1].at, 0, "input 1 lies over the one before");
  WITH(q.p->programs.inputs[1].at, 128, "input 1 is not where its value is said to lie");
  WITH(q.p->programs.inputs[1].input, q.p->programs.inputs[0].input,
       "input 1 is not where its value is said to lie");
  WITH(q.p->programs.inputs[1].input, 2, "input 1 does not exist");
  WITH(q.p->programs.inputs[1].value, 99, "input 1 does not exist");
  WITH(q.p->programs.inputs[1].value_segment, 1, "input 1 does not exist");
  WITH(q.p->programs.vstages[0].input_bytes, 64, "stage 0 has 64 bytes for inputs of 120");
  WITH(q.p->asked.global_batch, 8, "a step's samples are not those of its micro-batches");
  WITH(q.p->asked.nmicro, 2, "a step's samples are not those of its micro-batches");
  WITH(q.p->layout.mesh.nranks, 2, "a mesh of 1 ranks has 2");
  WITH(q.p->asked.optimizers[0].states, 1, "1 states of the optimizer instead of 2");
  ZpBucket *k = &q.p->programs.buckets[0];
  WITH(k->nslices, 0, "0 of 1 parameters are in buckets");
  WITH(k->slices[0].param, 1, "slice 0 is not the parameter that it is said to be");
  WITH(k->slices[0].size[0], 8, "slice 0 is not the parameter that it is said to be");
  WITH(k->slices[0].whole[0], 8, "slice 0 is not the parameter that it is said to be");
  WITH(k->slices[0].valid[0], 6, "slice 0 is not the parameter that it is said to be");
  WITH(k->segment, 0, "slice 0 is not the parameter that it is said to be");
  plan_close(&q);
  q = plan_of(m.g, "bind batch = 4 optimizer sgd(lr = 0.1, momentum = 0.9)");
  WITH(q.p->asked.optimizers[0].states, 0, "0 states of the optimizer instead of 1");
  plan_close(&q);
  model_close(&m);
}

/* Parameters with one of the tags that are named do not decay: the first, one of others, the last. */
Test(segment, decay_but_of_tags) {
  Model m = model_open(
      NULL,
      "model M { axis batch, a = 16  input x: real[batch, a]  input y: real[batch]\n"
      "  param p[a] = 1 tag first  param q[a] = 1 tag second  param r[a] = 1 tag last  param s[a] = 1\n"
      "  loss dot[a](x, p * q * r * s) per y }",
      NULL);
  static const struct {
    const char *except;
    bool decays[4];
  } cases[] = {{"first", {false, true, true, true}},
               {"second", {true, false, true, true}},
               {"first, last", {false, true, false, true}},
               {"second, norm", {true, false, true, true}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_of(
        m.g, zb_printf(m.c.a, "bind batch = 4 optimizer sgd(lr = 1) decay 0.1 except %s", cases[i].except));
    static const char *const param[] = {"p", "q", "r", "s"};
    for (int k = 0; k < 4; k++) {
      const ZpBucket *b = bucket_with(q.p, param[k]);
      for (uint32_t j = 0; j < b->nslices; j++)
        if (!strcmp(m.g->params[b->slices[j].param].path, param[k]))
          cr_expect_eq(q.p->asked.groups[b->slices[j].group].decay.num > 0, cases[i].decays[k],
                       "%s with `except %s`", param[k], cases[i].except);
    }
    plan_close(&q);
  }
  model_close(&m);
}

Test(segment, what_is_carried) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_of(m.g, "mesh d = 2 split head, ffn, vocab over d else seq bind batch = 2, seq = 16");
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  WITH(s->carry_bytes, s->carry_bytes + 64, "a carried tuple has not the bytes of its values");
  WITH(s->dcarry_bytes, s->dcarry_bytes - 64, "a carried tuple has not the bytes of its values");
  WITH(s->carry_out_bytes, 0, "a carried tuple has not the bytes of its values");
  WITH(s->dcarry_out_bytes, s->dcarry_out_bytes + 1, "a carried tuple has not the bytes of its values");
  WITH(s->list[ZP_FWD].n, s->list[ZP_FWD].n - 1, "");
  WITH(s->list[ZP_BWD].n, s->list[ZP_BWD].n - 1, "");
  for (uint32_t i = 0; i < s->nvalues; i++)
    if (s->values[i].at.space == ZP_AT_CARRY_OUT) {
      WITH(s->values[i].at.offset, 64, "does not lie in the block");
      WITH(s->values[i].at.index, 1, "does not lie in the block");
      WITH(s->values[i].at.space, ZP_AT_TEMP, ""); /* not there, or where another is */
    }
  plan_close(&q);
  model_close(&m);
}

/* What is carried besides that has no gradient: which entries are positive, of 7 samples of 9. */
Test(segment, what_is_carried_one_way) {
  Model m = model_open(NULL,
                       "model M { axis batch, a = 9  input x: real[batch, a]  y = x * x  there = less(0, x)\n"
                       "  repeat 2 as layer { param w[a] ~ normal(1)  y = select(there, y * w, y) }\n"
                       "  loss sum[a](y) per sum[a](x * x) }",
                       NULL);
  Plan q = plan_of(m.g, "bind batch = 7");
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  cr_assert(s->carry_bytes == 512 && s->dcarry_bytes == 256 && s->carry_out_bytes == 512);
  WITH(s->dcarry_bytes, 512, "a carried tuple has not the bytes of its values");
  uint32_t copy = (uint32_t)(node_of(s, ZP_FWD, ZG_OP_COPY) - s->list[ZP_FWD].nodes);
  cr_assert_eq(copy, s->list[ZP_FWD].n - 1);
  WITH(s->list[ZP_FWD].n, copy, "makes 1 of 2 values that it carries");
  for (uint32_t i = 0; i < m.g->nsegments; i++) {
    const ZpCotangents *x = &q.p->layout.cotangents[i];
    for (uint32_t k = 0; k < m.g->segments[i].ncarry_in; k++)
      WITH(x->in[k], !x->in[k], "carries cotangents that nothing is made from, or lacks some");
    for (uint32_t k = 0; k < m.g->segments[i].ncarry_out; k++)
      WITH(x->out[k], !x->out[k], "carries cotangents that nothing is made from, or lacks some");
  }
  plan_close(&q);
  model_close(&m);
}

/* An input of two parts lies once, and both see it as it lies: whole on all ranks of t. */
Test(segment, inputs_of_two_parts) {
  Model m =
      model_open(NULL,
                 "model M { axis batch, a = 8  input x: real[batch, a]  input z: real[batch]  y = x * z\n"
                 "  repeat 2 as layer { param w[a] ~ normal(1)  y = y * w * z }\n"
                 "  loss sum[a](y) per sum[a](x * x) }",
                 NULL);
  Plan q = plan_of(m.g, "mesh d = 2, t = 2 split batch over d split a over t bind batch = 4");
  uint32_t layer = segment_of(q.p, "layer", 0);
  ZpSegment *s = &q.p->programs.segments[layer];
  ZpValue *z = NULL;
  for (uint32_t i = 0; i < s->nvalues && !z; i++)
    if (s->values[i].at.space == ZP_AT_INPUT) z = &s->values[i];
  cr_assert(z && z->state[0].kind == 'S' && z->state[1].kind == 'R');
  for (uint32_t i = 0; i < q.p->programs.ninputs; i++)
    cr_assert_neq(q.p->programs.inputs[i].value_segment, layer);
  WITH(z->at.offset, 640, "does not lie in the block");
  WITH(z->state[1].kind, 'P', "does not lie in the block");
  plan_close(&q);
  model_close(&m);
}

/* Sums that stay partial until the end of the step must be reduced then, and only those. */
Test(segment, sums_and_gradients) {
  Model m = model_open(NULL, rows, NULL);
  Plan q = plan_of(m.g, "mesh d = 2 split batch over d bind batch = 4");
  WITH(q.p->layout.num_partial[0], 0,
       "part 0, forward, loss_num (test.zug:2) takes out what is reduced over other dims");
  WITH(q.p->layout.den_partial[0], 0,
       "part 0, count, loss_den (test.zug:2) takes out what is reduced over other dims");
  WITH(q.p->programs.buckets[0].partial, 0, "does not lie in the block");
  ZpSegment *s = &q.p->programs.segments[0];
  ZpNode *dot = node_of(s, ZP_BWD, ZG_OP_DOT), *sum = node_of(s, ZP_FWD, ZG_OP_LOSS_NUM);
  cr_assert(dot->overwrites && dot->call.accumulate && s->values[dot->out[0]].at.space == ZP_AT_GRAD);
  WITH(dot->call.accumulate, false, "overwrites a gradient");
  WITH(dot->call.op, ZG_OP_LOOKUP_GRAD, "names axes that its operands have not");
  WITH(dot->call.op, ZG_OP_NORMALIZE, "goes along other axes than the model");
  WITH(s->values[dot->out[0]].at.space, ZP_AT_PARAM, "");
  WITH(s->list[ZP_BWD].n, (uint32_t)(dot - s->list[ZP_BWD].nodes), "makes no gradient of w");
  WITH(node_of(s, ZP_FWD, ZG_OP_DOT)->call.accumulate, true, "adds to what is not a gradient");
  WITH(sum->call.op, ZG_OP_CARRY_OUT, "is nothing that is taken out");
  WITH(s->values[sum->in[0]].elem, ZK_I32, "");
  plan_close(&q);
  model_close(&m);
}

/* Each number of a loss is taken out as that, once, where a step wants it. */
Test(segment, losses) {
  Model m = model_open(NULL,
                       "model M { axis batch, a = 7  input x: real[batch, a]  param w[a] ~ normal(1)\n"
                       "  y = dot[a](x, w)  aux 0.1 * mean[batch](y)  aux mean[batch](y * y)\n"
                       "  loss y * y per x * x  loss more = 0.5 * y per abs(x) }",
                       NULL);
  Plan q = plan_of(m.g, "bind batch = 4");
  ZpSegment *s = &q.p->programs.segments[0];
  ZpNode *num = node_of(s, ZP_FWD, ZG_OP_LOSS_NUM), *den = node_of(s, ZP_COUNT, ZG_OP_LOSS_DEN);
  ZpNode *aux = node_of(s, ZP_FWD, ZG_OP_AUX), *next = num;
  while ((++next)->call.op != ZG_OP_LOSS_NUM) {}
  cr_assert(num->sink == 0 && next->sink == 1 && den->sink == 0);
  WITH(num->sink, 1, "takes out 0 of 1 `loss_num 0`");
  WITH(next->sink, 0, "takes out 2 of 1 `loss_num 0`");
  WITH(den->sink, 1, "takes out 0 of 1 `loss_den 0`");
  WITH(aux->call.op, ZG_OP_LOSS_NUM, "takes out 1 of 2 `aux 0`");
  WITH(num->call.op, ZG_OP_AUX, "takes out 3 of 2 `aux 0`");
  WITH(num->call.op, ZG_OP_LOSS_DEN, "takes out 0 of 1 `loss_num 0`");
  WITH(s->list[ZP_COUNT].n, s->list[ZP_COUNT].n - 1, "takes out 0 of 1 `loss_den 1`");
  WITH(s->list[ZP_BWD], s->list[ZP_COUNT], "takes out 2 numbers and outputs instead of 0");
  plan_close(&q);
  model_close(&m);
}

/* What is wrong with a plan is reported as a fault of the planner. */
Test(segment, is_reported) {
  Model m = model_open(NULL, rows, NULL);
  Plan q = plan_of(m.g, "bind batch = 4");
  cr_assert(zp_prove(q.p, q.d));
  q.p->layout.mesh.nranks = 2;
  cr_assert(!zp_prove(q.p, q.d));
  const char *text = plan_messages(&q);
  cr_expect(strstr(text, "error[Z0999]: the plan of recipe r failed its proof (please report)"), "%s", text);
  cr_expect(strstr(text, "note: a mesh of 1 ranks has 2"), "%s", text);
  plan_close(&q);
  model_close(&m);
}

/* A plan that only goes forward has to take out and to carry as much. */
Test(segment, forward_only) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_forward(m.g, "bind batch = 2, seq = 16", NULL);
  ZpSegment *layer = &q.p->programs.segments[segment_of(q.p, "layer", 0)],
            *last = &q.p->programs.segments[m.g->nsegments - 1];
  WITH(layer->list[ZP_FWD].n, layer->list[ZP_FWD].n - 1, "makes 0 of 1 values that it carries");
  WITH(last->list[ZP_FWD].n, last->list[ZP_FWD].n - 1, "takes out ");
  plan_close(&q);
  model_close(&m);
}

Test(segment, collectives) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_of(m.g, "mesh pipe = 2, d = 2 stages over pipe by cost split head, ffn, vocab over d else "
                        "seq bind batch = 2, seq = 16");
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  ZpNode *k = node_of(s, ZP_FWD, ZG_OP_ALL_GATHER), *r = node_of(s, ZP_FWD, ZG_OP_REDUCE_SCATTER);
  WITH(k->dims, k->dims | 1u, "is not a collective within a stage");
  WITH(k->dims, 4, "is not a collective within a stage");
  WITH(k->call.op, ZG_OP_COUNT, "is not a call");
  WITH(k->call.nin, ZK_MAX_IN + 1, "is not a call");
  WITH(k->call.nout, ZK_MAX_OUT + 1, "is not a call");
  ZpValue *y = &s->values[node_of(s, ZP_FWD, ZG_OP_DOT)->out[0]];
  WITH(y->state[0].kind, 'P', "is not whole on its stage");
  WITH(k->dims, 0, "goes over no ranks");
  WITH(k->axis, 0, "has a result of other sizes than its ranks make");
  WITH(k->axis, 9, "");
  WITH(r->axis, 0, "has a result of other sizes than its ranks make");
  cr_assert(k->packs && r->packs); /* two samples: blocks of a sequence do not lie one behind the other */
  WITH(k->packs, false, "does not pack what does not lie in blocks");
  WITH(r->packs, false, "does not pack what does not lie in blocks");
  WITH(k->scratch_bytes, s->values[k->out[0]].bytes - 1, "has not the scratch to pack");
  WITH(r->scratch_bytes, s->values[r->in[0]].bytes - 1, "has not the scratch to pack");
  WITH(r->call.op, ZG_OP_ALL_GATHER, "has a result of other sizes than its ranks make");
  WITH(r->call.op, ZG_OP_COPY, "goes over ranks, but is not a collective");
  WITH(r->call.op, ZG_OP_LOCAL_SLICE, "does not make of its operand what its result is said to be");
  WITH(r->call.opt[0], 1, "does not make of its operand what its result is said to be");
  /* Whole numbers are not summed, whoever makes and reads them: no kernel does. */
  q.p->asked.scratch = NULL;
  const uint32_t sum[] = {r->in[0], r->out[0]};
  for (int j = 0; j < 2; j++) {
    s->values[sum[j]].elem = ZK_I32, s->values[sum[j]].type.elem = ZG_I32;
    for (int phase = 0; phase < ZP_PHASES; phase++)
      for (uint32_t i = 0; i < s->list[phase].n; i++) {
        ZpNode *n = (ZpNode *)&s->list[phase].nodes[i];
        for (int x = 0; x < n->call.nin; x++)
          if (n->in[x] == sum[j]) n->call.in[x].elem = ZK_I32;
        for (int x = 0; x < n->call.nout; x++)
          if (n->out[x] == sum[j]) n->call.out[x].elem = ZK_I32;
      }
  }
  rejects(q.p, "sums what is neither f32 nor bf16");
  plan_close(&q);
  model_close(&m);
}

/* What is made a part of a sum has the sizes of the sum. */
Test(segment, pads) {
  Model m =
      model_open("llama3", NULL, "-D layers=1 -D heads=4 -D kv_heads=2 -D width=16 -D inner=16 -D words=32");
  for (int seq = 0; seq < 2; seq++) {
    Plan q =
        plan_of(m.g, zb_printf(m.c.a, "mesh d = 4 split kv*grp, ffn, vocab over d%s bind batch = 2, seq = 16",
                               seq ? " else seq" : ""));
    ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
    ZpNode *k = node_of(s, ZP_BWD, ZG_OP_LOCAL_PAD);
    cr_assert_eq(k->axis == ZP_NO_AXIS, seq == 0);
    WITH(k->dims, 0, "goes over no ranks");
    WITH(k->axis, seq ? ZP_NO_AXIS : 0, "has a result of other sizes than its ranks make");
    WITH(k->axis, 99, "has a result of another kind than its operand");
    /* d.kv, of as many ranks. */
    if (!seq) WITH(k->dims, 1, "does not make of its operand what its result is said to be");
    if (seq) WITH(k->dims, 3, "has a result of other sizes than its ranks make");
    for (int d = 0; d < q.p->layout.mesh.ndims; d++)
      if (k->dims >> d & 1) /* a sum, and no largest value */
        WITH(s->values[k->out[0]].state[d].max, true,
             "does not make of its operand what its result is said to be");
    plan_close(&q);
  }
  model_close(&m);
}

/* Registers of pointwise functions, of nodes of their own and of fused ones: only what is there already, only
 * what is made. */
static void break_pointwise(Plan *pq, const ZkCall *k) {
  Plan q = *pq;
  ZkPointwise *c = (ZkPointwise *)k->pointwise;
  ZkPointwiseOp *last = &c->ops[c->nops - 1];
  bool fused = k->op != ZG_OP_POINTWISE;
  int results = fused ? zg_op_info[k->op].nout : 0,
      own = fused ? zg_op_info[k->op].max_in - (c->prologue > 0) : 0;
  int first = results + k->nin - own;
  cr_assert(zg_op_info[last->op].max_in > 0);
  WITH(last->a, (uint16_t)(first + c->nops - 1), "has a pointwise function that reads what is not made yet");
  WITH(last->op, ZG_OP_DOT, "has a pointwise function of what is not element by element");
  WITH(last->op, ZG_OP_COUNT, "has a pointwise function of what is not element by element");
  WITH(c->out[0], (uint16_t)(first + c->nops),
       "has a pointwise function that gives out what it does not make");
  WITH(c->nout, c->nout + 1, "has a pointwise function that does not fit the call");
  WITH(c->prologue, c->nops + 1, "");
  if (!c->prologue) return;
  WITH(c->operand, (uint16_t)(first + c->prologue), "is fed by what is not made yet");
  WITH(c->operand, 0, "is fed by what is not made yet");
  WITH(c->ops[0].a, 0, "has a pointwise function that reads what is not made yet");
}

Test(segment, pointwise) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_fused(m.g, "bind batch = 2, seq = 16", supports_norms);
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  int alone = 0, amid = 0, after = 0;
  const ZpList *f = &s->list[ZP_FWD], *b = &s->list[ZP_BWD];
  for (uint32_t i = 0; i < f->n + b->n; i++) {
    ZpNode *n = i < f->n ? &f->nodes[i] : &b->nodes[i - f->n];
    const ZkPointwise *c = n->call.pointwise;
    if (!c || !c->nops) continue;
    break_pointwise(&q, &n->call);
    if (n->call.op == ZG_OP_POINTWISE) {
      if (s->values[n->in[0]].at.space == ZP_AT_GRAD)
        WITH(n->call.op, ZG_OP_CONCAT, "reads operand 0 where this list has nothing to read");
      WITH(n->call.pointwise, NULL, "has no pointwise function");
      alone++;
    } else if (c->prologue) amid++;
    else after++;
  }
  cr_assert(alone && amid && after);
  plan_close(&q);
  model_close(&m);
}

/* All of a batched call are groups of as many: in products, and in those whose bias has a gradient, too. */
static bool supports_groups(const ZkCall *k) { return supports_batched(k) || supports_bias_grads(k); }

Test(segment, groups) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_fused(m.g, "bind batch = 2, seq = 16", supports_groups);
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  int results = 0;
  for (int phase = ZP_FWD; phase <= ZP_BWD; phase++)
    for (uint32_t i = 0; i < s->list[phase].n; i++) {
      ZpNode *n = &s->list[phase].nodes[i];
      for (int j = 0; j < n->call.nin + n->call.nout; j++) {
        bool in = j < n->call.nin;
        int k = in ? j : j - n->call.nin;
        ZpValue *v = &s->values[in ? n->in[k] : n->out[k]];
        ZkView *w = in ? &n->call.in[k] : &n->call.out[k];
        if (!v->nmembers) continue;
        v->nmembers--, w->size[0]--;
        rejects(q.p, "has groups of different sizes");
        v->nmembers++, w->size[0]++;
        accepts(q.p);
        results += k > 0 && !in;
      }
    }
  cr_expect_gt(results, 0);
  plan_close(&q);
  model_close(&m);
}

/* A device whose products take more to write a gradient than to add to it. */
static size_t more_to_write(const ZkCall *c, int threads) {
  return zk_cpu_scratch(c, threads) +
         (c->op == ZG_OP_DOT && !c->accumulate && c->out[0].elem == ZK_F32 ? 1 << 20 : 0);
}

/* Every call has the scratch that its kernel takes: with a line less it is refused. So is a gradient's
 * first product, which writes where its call says that it adds, if that takes more. */
Test(segment, kernels_have_their_scratch) {
  Model m =
      model_open("llama3", NULL, "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=32");
  Plan q = plan_of(m.g, "bind batch = 4, seq = 16 micro 2 precision compute bf16");
  uint32_t tried[ZP_PHASES] = {0}, first = 0;
  for (uint32_t g = 0; g < q.p->graph->nsegments; g++)
    for (ZpPhase phase = 0; phase < ZP_PHASES; phase++)
      for (uint32_t i = 0; i < q.p->programs.segments[g].list[phase].n; i++) {
        ZpNode *n = &q.p->programs.segments[g].list[phase].nodes[i];
        first += n->overwrites && n->call.op == ZG_OP_DOT;
        if (!n->scratch_bytes) continue;
        WITH(n->scratch_bytes, n->scratch_bytes - 64, "has not the scratch that its kernel takes");
        tried[phase]++;
      }
  cr_expect(tried[ZP_FWD] > 1 && tried[ZP_BWD] > 1 && first);
  WITH(q.p->asked.scratch, more_to_write, "backward, dot (llama3.zug");
  plan_close(&q);
  model_close(&m);
}

/* ---- thousands ----------------------------------------------------------------------------------------- */
typedef struct {
  Plan *q;
  uint32_t tried, refused;
} Mutants;

static void judge(Mutants *t, const char *what, uint32_t number) {
  ZbErr err = {0};
  t->tried++;
  if (!zp_check_segments(t->q->p, &err)) {
    t->refused++;
    return;
  }
  ZbArena *a = zb_arena_new();
  const char *wrong = plan_wrong(t->q->p, a);
  if (*wrong) cr_assert_fail("%s %u: accepted, but by brute force: %s", what, number, wrong);
  zb_arena_free(a);
}

#define MUTATE(t, what, number, field, ...)                                                                  \
  do {                                                                                                       \
    const uint64_t values_[] = {__VA_ARGS__};                                                                \
    for (size_t v_ = 0; v_ < sizeof values_ / sizeof *values_; v_++) {                                       \
      __typeof__(field) was_ = (field);                                                                      \
      (field) = (__typeof__(field))values_[v_];                                                              \
      if ((field) != was_) judge(t, what, number);                                                           \
      (field) = was_;                                                                                        \
    }                                                                                                        \
  } while (0)
#define NEAR(x) (uint64_t)(x) + 1, (uint64_t)(x)-1, 0
#define LESS(x) ((x) < 64 ? 0 : (x)-64)

static void mutate_value(Mutants *t, uint32_t i, ZpValue *v) {
  MUTATE(t, "place of value", i, v->at.space, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
  MUTATE(t, "index of value", i, v->at.index, NEAR(v->at.index));
  MUTATE(t, "offset of value", i, v->at.offset, v->at.offset + 64, v->at.offset - 64, 0, v->at.offset + 4);
  MUTATE(t, "bytes of value", i, v->bytes, v->bytes + 2, v->bytes / 2, 0);
  MUTATE(t, "elements of value", i, v->elem, ZK_F32, ZK_BF16, ZK_I32);
  for (int a = 0; a < v->type.naxes; a++) {
    MUTATE(t, "axis of value", i, v->axis[a], NEAR(v->axis[a]));
    MUTATE(t, "size of value", i, v->size[a], NEAR(v->size[a]));
  }
}

static void mutate_view(Mutants *t, uint32_t i, ZkView *w) {
  MUTATE(t, "elements of a view of node", i, w->elem, ZK_F32, ZK_BF16, ZK_I32);
  MUTATE(t, "rank of a view of node", i, w->rank, NEAR(w->rank));
  for (int a = 0; a < w->rank; a++) {
    MUTATE(t, "axis of a view of node", i, w->axis[a], NEAR(w->axis[a]));
    MUTATE(t, "size of a view of node", i, w->size[a], NEAR(w->size[a]));
    MUTATE(t, "stride of a view of node", i, w->stride[a], NEAR(w->stride[a]));
  }
}

static void mutate_node(Mutants *t, uint32_t i, ZpNode *n) {
  for (int k = 0; k < n->call.nin; k++) {
    MUTATE(t, "operand of node", i, n->in[k], NEAR(n->in[k]), ZP_NONE);
    mutate_view(t, i, &n->call.in[k]);
  }
  for (int k = 0; k < n->call.nout; k++) {
    MUTATE(t, "result of node", i, n->out[k], NEAR(n->out[k]), ZP_NONE);
    mutate_view(t, i, &n->call.out[k]);
  }
  if (n->dims) MUTATE(t, "axis of collective", i, n->axis, NEAR(n->axis));
  MUTATE(t, "dims of node", i, n->dims, NEAR(n->dims), 1u << 9);
  MUTATE(t, "sum of node", i, n->call.accumulate, !n->call.accumulate);
  if (n->scratch_bytes)
    MUTATE(t, "scratch of node", i, n->scratch_at, n->scratch_at + 64, 0, UINT64_MAX - 63);
  MUTATE(t, "bytes of scratch of node", i, n->scratch_bytes, n->scratch_bytes + 4096, UINT64_MAX);
}

static void mutate(const ZgGraph *g, const char *recipe, bool (*supports)(const ZkCall *)) {
  Plan q = supports ? plan_fused(g, recipe, supports) : plan_of(g, recipe);
  Mutants t = {.q = &q};
  for (uint32_t k = 0; k < g->nsegments; k++) {
    ZpSegment *s = &q.p->programs.segments[k];
    bool *used = ZB_NEWN(q.a, bool, s->nvalues);
    for (ZpPhase f = 0; f < ZP_PHASES; f++) {
      MUTATE(&t, "temporaries of part", k, s->list[f].temp, LESS(s->list[f].temp));
      uint32_t n;
      ZpNode *nodes = (ZpNode *)phase_nodes(s, f, &n);
      for (uint32_t i = 0; i < n; i++) {
        if (breadth_tries(i, 3)) mutate_node(&t, i, &nodes[i]);
        for (int j = 0; j < nodes[i].call.nin; j++) used[nodes[i].in[j]] = true;
        for (int j = 0; j < nodes[i].call.nout; j++) used[nodes[i].out[j]] = true;
      }
    }
    for (uint32_t i = 0; i < s->nvalues; i++)
      if (used[i] && breadth_tries(i, 3)) mutate_value(&t, i, &s->values[i]);
    MUTATE(&t, "saved bytes of part", k, s->saved_bytes, LESS(s->saved_bytes));
  }
  cr_log_info("%u changes, %u refused", t.tried, t.refused);
  cr_assert_gt(t.tried, at_night() ? 1000 : 300);
  cr_assert_gt(t.refused * 10, t.tried * 9);
  plan_close(&q);
}

Test(segment, mlp_changed) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  mutate(m.g,
         "mesh d = 2 split batch over d bind batch = 16 micro 4 precision compute bf16 shard grads, states "
         "over d",
         NULL);
  model_close(&m);
}
Test(segment, gpt2_changed) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=16 -D context=16 -D words=32");
  mutate(m.g, "mesh d = 2 split head, ffn, vocab over d else seq bind batch = 2, seq = 16", NULL);
  model_close(&m);
}
Test(segment, llama3_changed) { /* pads of both kinds: of parts of the sequence, and of a whole value */
  Model m =
      model_open("llama3", NULL, "-D layers=1 -D heads=4 -D kv_heads=2 -D width=16 -D inner=16 -D words=32");
  mutate(m.g, "mesh d = 4 split kv*grp, ffn, vocab over d else seq bind batch = 2, seq = 16", NULL);
  mutate(m.g, "mesh d = 4 split kv*grp, ffn, vocab over d bind batch = 2, seq = 16", NULL);
  model_close(&m);
}
Test(segment, stacks_changed) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=16 -D context=16 -D words=32");
  mutate(m.g, "bind batch = 2, seq = 16", supports_batched);
  mutate(m.g, "bind batch = 2, seq = 16", supports_xent_grad);
  model_close(&m);
}
