/* Every rule of zg_verify, broken one at a time in a graph that holds otherwise; and the text form. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/graph/make.h"

Test(verify, sample_holds) {
  Make m = make_sample();
  ZbErr err;
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  cr_expect(zg_verify(m.g, NULL));
  cr_expect_eq(zg_param_count(m.g), 9 * 4 + 3 * 4 * 4);
  zb_arena_free(m.a);
}

/* Breaks a fresh sample with CODE (g: the graph; s0, s1, s2: its segments) and expects `why`. */
#define BROKEN(NAME, WHY, ...)                                                                               \
  do {                                                                                                       \
    Make m = make_sample();                                                                                  \
    ZgGraph *g = m.g;                                                                                        \
    ZgSegment *s0 = &g->segments[0], *s1 = &g->segments[1], *s2 = &g->segments[2];                           \
    (void)s0, (void)s1, (void)s2;                                                                            \
    ZbErr err = {0};                                                                                         \
    __VA_ARGS__;                                                                                             \
    cr_expect(!zg_verify(g, &err), "%s", #NAME);                                                             \
    cr_expect(strstr(err.text, WHY), "%s: got '%s', want '%s'", #NAME, err.text, WHY);                       \
    zb_arena_free(m.a);                                                                                      \
  } while (0)

/* The first node of an op in a segment. */
static ZgNode *node(ZgSegment *s, ZgOp op) {
  for (uint32_t i = 0; i < s->nnodes; i++)
    if (s->nodes[i].op == op) return &s->nodes[i];
  cr_assert_fail("no %s", zg_op_info[op].text);
  return NULL;
}

/* Takes a node without results out of a segment. */
static void remove_sink(ZgSegment *s, ZgOp op) {
  ZgNode *n = node(s, op);
  uint32_t i = (uint32_t)(n - s->nodes);
  memmove(n, n + 1, (s->nnodes - i - 1) * sizeof *n);
  s->nnodes--;
  if (i < s->nforward) s->nforward--;
  for (uint32_t v = 0; v < s->nvalues; v++) s->values[v].node -= s->values[v].node > i;
}

/* Leaves out a segment's backward part, so that nodes are added to what is forward. */
static void only_forward(Make *m, ZgSegment *s) {
  m->s = s;
  s->nnodes = s->nforward;
  s->nvalues = 0;
  for (uint32_t i = 0; i < s->nnodes; i++) s->nvalues += s->nodes[i].nout;
  s->backward = false;
}

/* A measure of this parameter in the first segment. */
static void measured(Make *m, int64_t param) {
  only_forward(m, &m->g->segments[0]);
  uint32_t x = make_typed(m, ZG_OP_BROADCAST, make_fill(m, 1), m->g->params[param].type);
  make_with(m, (ZgNode){.op = ZG_OP_MEASURE, .opt = {param, ZG_MEASURE_NONE}}, "", 1, &x);
}

/* Rows of experts: what a file may do to them, which the compiler would not. */
Test(verify, rows_of_experts) {
  for (int wrong = 0; wrong < 4; wrong++) {
    Make made = make_graph(), *m = &made;
    make_axis(m, "batch", 0);
    make_axis(m, "slot", 0);
    static const char *const sized[] = {"expert", "few", "choice", "embed", "ffn"};
    for (int i = 0; i < 5; i++) make_axis(m, sized[i], i == 2 ? 2 : 4);
    uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch embed ffn"));
    uint32_t in[] = {x, make_ids(m, "ids", "expert", "batch choice")};
    uint32_t rows = make_with(m, (ZgNode){.op = ZG_OP_DISPATCH}, "expert slot choice", 2, in);
    in[1] = make_ids(m, "others", "few", "batch choice");
    const char *want = "";
    if (wrong == 0) {
      make_sum(m, rows, "slot");
      want = "sum over slot: how many rows each expert has is known at run time only";
    } else if (wrong == 1) {
      make_with(m, (ZgNode){.op = ZG_OP_DISPATCH}, "few slot choice", 2, in);
      want = "slot counts the slots of few and of expert";
    } else {
      uint32_t w = make_input(m, "w", make_type(m, ZG_REAL, "expert embed ffn"));
      make_with(m, (ZgNode){.op = ZG_OP_DOT}, wrong == 2 ? "ffn" : "", 2, (uint32_t[]){rows, w});
      want = "share the axis embed, which is not summed";
    }
    ZbErr err = {0};
    cr_expect(!zg_verify(m->g, &err) && strstr(err.text, want), "%s, want %s", err.text, want);
    zb_arena_free(m->a);
  }
}

Test(verify, every_rule) {
  BROKEN(model_name, "the model has no well-formed name", g->model = "");
  BROKEN(axis_name, "axis 2 has a name that is not well-formed", g->axes[2].name = "../x");
  BROKEN(axis_names_differ, "the axis name embed occurs twice", g->axes[3].name = "embed");
  BROKEN(axis_size, "axis embed has size -1", g->axes[2].size = -1);
  BROKEN(axis_size_of_an_id, "axis vocab has size", g->axes[4].size = 1ll << 31);
  BROKEN(tag_names_differ, "the tag name bias occurs twice", g->tags = (const char *[]){"bias", "bias"};
         g->ntags = 2);
  BROKEN(input_names_differ, "the input name tokens occurs twice", g->inputs[1].name = "tokens");
  BROKEN(input_type, "input tokens has no valid type", g->inputs[0].type.of = 77);
  BROKEN(valid_of_peak, "`valid` is set, which only plans do", node(s2, ZG_OP_PEAK)->opt[1] = 3);
  BROKEN(valid_of_sums, "`valid` is set, which only plans do", node(s2, ZG_OP_XENT_SUMS)->opt[1] = 11);
  BROKEN(valid_of_grad, "`valid` is set, which only plans do", node(s2, ZG_OP_XENT_GRAD)->opt[1] = 1);
  BROKEN(output_not_made, "output logits is not made", remove_sink(s2, ZG_OP_OUTPUT));
  BROKEN(second_output_not_made, "output more is not made",
         ZB_PUSH(m.a, g->outputs, g->noutputs, ((ZgIo){.name = "more", .type = g->outputs[0].type})));
  BROKEN(place_name, "place 1 has a file name that is not well-formed", g->locs[1].file = "a\nb");
  BROKEN(region_parent, "region 1 has the wrong kind or parent", g->regions[1].parent = 1);
  BROKEN(region_kind, "region 1 has the wrong kind or parent", g->regions[1].kind = ZG_REGION_MODEL);
  BROKEN(region_label, "region 1 has a name that is not well-formed", g->regions[1].label = "a b");
  BROKEN(region_depth, "more than 64 deep", {
    uint32_t r = 0;
    for (int i = 0; i < 65; i++) r = zg_region_add(g, ZG_REGION_BLOCK, r, "deep", "");
  });
  BROKEN(param_path, "parameter 0 has a name that is not well-formed", g->params[0].path = "a..b");
  BROKEN(param_paths_differ, "the parameter name table occurs twice", { g->params[1] = g->params[0]; });
  BROKEN(param_type, "parameter table has no valid type", g->params[0].type.elem = ZG_F32);
  BROKEN(param_axes_ascend, "parameter table has no valid type", g->params[0].type.axis[0] = 4);
  BROKEN(param_data_axis, "parameter table has the data axis batch", g->params[0].type.axis[0] = 0);
  BROKEN(param_order, "the order of its axes is not an order", g->params[0].order[0] = g->params[0].order[1]);
  BROKEN(param_size, "parameter table has more than 2^48 elements",
         g->axes[2].size = g->axes[4].size = INT32_MAX);
  BROKEN(param_init, "parameter table has no valid initialiser", g->params[0].num[0] = __builtin_nan(""));
  BROKEN(param_tags, "parameter table has a tag that does not exist", g->params[0].tags = 2);
  BROKEN(param_segment, "belongs to a repeat that does not exist", g->params[1].segment = 0);
  BROKEN(param_star, "a path has one * in a repeat", g->params[1].path = "layer.w");
  BROKEN(param_two_stars, "a path has one * in a repeat", g->params[1].path = "layer.*.*.w");
  BROKEN(no_segments, "no segments", g->nsegments = g->nparams = 0);
  BROKEN(segment_region, "its region is not its repeat's", s1->region = 0);
  BROKEN(trip_zero, "segment 1 runs 0 times", s1->trip = 0);
  BROKEN(trip_many, "segment 1 runs 4097 times", s1->trip = 4097);
  BROKEN(trip_straight, "segment 0 runs 2 times", s0->trip = 2);
  BROKEN(forward_count, "forward nodes", s0->nforward = s0->nnodes + 1);
  BROKEN(carried_type, "carries something without a valid type", s1->carry_in[0].axis[0] = 99);
  BROKEN(no_such_op, "no such op", s0->nodes[0].op = ZG_OP_COUNT);
  BROKEN(planned_op, "is made by the planner", { s1->nodes[3].op = ZG_OP_COPY; });
  BROKEN(results_in_order, "its results are not the next values", s1->nodes[2].out = 1);
  BROKEN(place_exists, "no such place or region", s1->nodes[2].loc = 99);
  BROKEN(region_exists, "no such place or region", s1->nodes[2].region = 99);
  BROKEN(region_outside, "outside of its segment's region", s1->nodes[2].region = 0);
  BROKEN(attribute, "an attribute that it does not have is set", s1->nodes[2].opt[0] = 1);
  BROKEN(attribute_number, "an attribute that it does not have is set", s1->nodes[2].num[1] = 1);
  BROKEN(operand_before_use, "operand 0 is not defined before it", s1->nodes[2].in[0] = 2);
  BROKEN(type_stored, "result 0 is f32[batch, seq, wide], its operands make it real[batch, seq, wide]",
         s1->values[2].type.elem = ZG_F32);
  BROKEN(type_formed, "result 0 has no valid type", s1->values[2].type.elem = 200);
  BROKEN(type_error, "segment 1, node 2 (dot): dot[batch]: the second operand has no axis batch",
         node(s1, ZG_OP_DOT)->ax[0] = 0);
  BROKEN(backward_op_forward, "does not belong among the forward nodes", s1->nforward = s1->nnodes);
  BROKEN(forward_op_backward, "does not belong among the backward nodes", s1->nforward = 1);
  BROKEN(carry_position, "position 1 of 1", node(s1, ZG_OP_CARRY)->opt[0] = 1);
  BROKEN(carry_type, "position 0 carries f32[batch, seq, embed], not real[batch, seq, embed]",
         s1->carry_in[0].elem = ZG_F32);
  BROKEN(carry_out_missing, "segment 0 carries nothing out at position 0", remove_sink(s0, ZG_OP_CARRY_OUT));
  BROKEN(first_carries_in, "the first segment carries something in", {
    s0->ncarry_in = 1;
    s0->carry_in = s0->carry_out;
  });
  BROKEN(chain_types, "segment 0 does not carry out what segment 1 carries in", {
    s0->ncarry_out = 0;
    remove_sink(s0, ZG_OP_CARRY_OUT);
    s0->nnodes = s0->nforward;
    s0->nvalues = 3;
  });
  BROKEN(repeat_types, "a repeat that does not carry out what it carries in", {
    s1->carry_out = ZB_NEWN(m.a, ZgType, 2);
    s1->carry_out[0] = s1->carry_out[1] = s1->carry_in[0];
    s1->ncarry_out = 2;
    s1->backward = false;
    m.s = s1;
    s1->nnodes = s1->nforward;
    s1->nvalues = 5;
    make_with(&m, (ZgNode){.op = ZG_OP_CARRY_OUT, .opt = {1}}, "", 1, (uint32_t[]){0});
  });
  BROKEN(last_repeats, "the last segment carries something out or is a repeat", {
    g->nsegments = 2;
    g->noutputs = 0;
  });
  BROKEN(cotangents_across, "segments 1 and 2 do not agree on a cotangent at position 0",
         remove_sink(s2, ZG_OP_DCARRY_IN));
  BROKEN(cotangents_around, "the iterations of segment 1 do not agree", {
    remove_sink(s1, ZG_OP_DCARRY_IN);
    s0->nnodes = s0->nforward;
    s0->nvalues = 3;
  });
  BROKEN(no_numerator, "the loss is in another segment", remove_sink(s2, ZG_OP_LOSS_NUM));
  BROKEN(no_denominator, "loss 0 does not have its numerator and its denominator in one segment",
         remove_sink(s2, ZG_OP_LOSS_DEN));
  BROKEN(loss_of_no_number, "loss_den: the loss number is 1, must be 0 to 0",
         node(s2, ZG_OP_LOSS_DEN)->opt[0] = 1);
  static ZgUpdateStep add[] = {{ZG_OP_ADD, 0, 1, 0, 0}}, late[] = {{ZG_OP_ADD, 0, 2, 0, 0}},
                      cast[] = {{ZG_OP_CAST, 0, 0, 0, 0}};
  static const ZgUpdate adds = {1, add}, lates = {1, late}, casts = {1, cast}, nothing = {0, add};
  BROKEN(update_of_no_state, "has an update of 1 steps", g->params[0].update = &adds);
  BROKEN(update_empty, "has an update of 0 steps", g->params[0].state = true; g->params[0].update = &nothing);
  BROKEN(update_of_later, "step 0 of its update is none", g->params[0].state = true;
         g->params[0].update = &lates);
  BROKEN(update_by_cast, "step 0 of its update is none", g->params[0].state = true;
         g->params[0].update = &casts);
  BROKEN(loss_name, "loss 0 has a name that is not well-formed", zg_loss_add(g, "a.b", 0));
  BROKEN(loss_place, "loss a has no valid place", zg_loss_add(g, "a", 99));
  BROKEN(loss_missing, "loss 1 does not have its numerator and its denominator in one segment", {
    zg_loss_add(g, "a", 0);
    zg_loss_add(g, "b", 0);
  });
  BROKEN(loss_names_differ, "the loss name a occurs twice", {
    zg_loss_add(g, "a", 0);
    zg_loss_add(g, "a", 0);
  });
  BROKEN(losses_many, "17 losses, at most 16 are possible",
         for (int i = 0; i < 17; i++) zg_loss_add(g, zb_printf(m.a, "l%d", i), 0));
  BROKEN(loss_in_repeat, "a loss inside of a repeat", {
    m.s = s1;
    s1->nnodes = s1->nforward;
    s1->nvalues = 5;
    s1->backward = false;
    make_sink(&m, ZG_OP_LOSS_NUM, make_fill(&m, 1));
  });
  BROKEN(loss_twice, "a second one of loss 0", {
    m.s = s0;
    s0->nnodes = s0->nforward;
    s0->nvalues = 3;
    s0->backward = false;
    make_sink(&m, ZG_OP_LOSS_NUM, make_fill(&m, 1));
  });
  BROKEN(denominator_of_inputs, "the denominator of the loss may depend on inputs only",
         node(s2, ZG_OP_LOSS_DEN)->in[0] = node(s2, ZG_OP_LOSS_NUM)->in[0]);
  BROKEN(param_of_another_segment, "parameter layer.*.w belongs to another segment", {
    node(s0, ZG_OP_PARAM)->opt[0] = 1;
    s0->values[1].type = g->params[1].type;
  });
  BROKEN(gradient_without_use, "parameter layer.*.w is not used here", {
    node(s0, ZG_OP_PARAM_GRAD)->opt[0] = 1;
    g->params[1].type = g->params[0].type;
  });
  BROKEN(gradient_twice, "a second one of table", {
    m.s = s0;
    ZgNode again = s0->nodes[s0->nnodes - 1];
    zg_node_add(g, s0, again, NULL);
  });
  BROKEN(output_in_repeat, "an output inside of a repeat", {
    g->outputs[0].type = s1->values[0].type;
    ZgNode *out = node(s1, ZG_OP_CARRY_OUT);
    out->op = ZG_OP_OUTPUT;
  });
  BROKEN(output_twice, "a second one of logits", {
    ZgNode *n = node(s2, ZG_OP_LOSS_DEN);
    n->op = ZG_OP_OUTPUT;
    n->in[0] = 2;
  });
  BROKEN(seed_of_the_loss, "the loss is in another segment", {
    m.s = s0;
    make_with(&m, (ZgNode){.op = ZG_OP_SEED}, "", 0, NULL);
  });
  BROKEN(seed_without_aux, "a cotangent for an aux term and no such term", {
    m.s = s0;
    make_with(&m, (ZgNode){.op = ZG_OP_SEED, .opt = {1}}, "", 0, NULL);
  });
  static ZgUpdateStep stop[] = {{ZG_OP_STOP, 1, 0, 0, 0}};
  static const ZgUpdate stops = {1, stop};
  BROKEN(measure_of_no_state, "parameter table is not updated", measured(&m, 0));
  BROKEN(measure_of_no_update, "parameter table is not updated", g->params[0].state = true; measured(&m, 0));
  BROKEN(measure_of_another_repeat, "parameter layer.*.w is of another repeat", g->params[1].state = true;
         g->params[1].update = &stops; measured(&m, 1));
  BROKEN(values_without_node, "segment 2 has 1 values that no node makes", s2->nvalues++);
}

/* The rest of conditions that have several parts. */
Test(verify, every_part_of_a_rule) {
  BROKEN(second_number, "no valid initialiser", g->params[0].num[1] = __builtin_inf());
  BROKEN(no_such_initialiser, "no valid initialiser", g->params[0].init = ZG_INIT_TRUNC_NORMAL + 1);
  BROKEN(region_block, "region 1 has a name that is not well-formed", g->regions[1].block = "a b");
  BROKEN(no_model_first, "region 0 has the wrong kind or parent", g->regions[0].kind = ZG_REGION_BLOCK);
  BROKEN(model_with_parent, "region 0 has the wrong kind or parent", g->regions[0].parent = 0);
  BROKEN(no_such_kind, "region 1 has the wrong kind or parent", g->regions[1].kind = ZG_REGION_REPEAT + 1);
  BROKEN(operands_many, "no such op", s1->nodes[2].nin = ZG_MAX_IN + 1);
  BROKEN(axes_many, "no such op", s1->nodes[2].nax = ZG_MAX_AXARG + 1);
  BROKEN(results_many, "its results are not the next values", s1->nodes[2].nout = 2);
  BROKEN(results_beyond, "its results are not the next values", s1->nvalues = 2);
  BROKEN(type_axes, "result 0 has no valid type", s1->values[2].type.naxes = ZG_MAX_AXES + 1);
  BROKEN(value_of_another, "result 0 has no valid type", s1->values[2].node = 1);
  BROKEN(first_number, "an attribute that it does not have", s1->nodes[2].num[0] = 1);
  BROKEN(second_attribute, "an attribute that it does not have", s1->nodes[2].opt[1] = 1);
  BROKEN(segment_label, "segment 1 has a label that is not well-formed", s1->label = "a b");
  BROKEN(segment_region_none, "segment 1: its region is not its repeat's", s1->region = g->nregions);
  BROKEN(straight_in_repeat, "segment 0: its region is not its repeat's", s0->region = 1);
  BROKEN(carried_out_type, "segment 0 carries something without a valid type",
         s0->carry_out[0].naxes = ZG_MAX_AXES + 1);
  BROKEN(carry_before, "carry: the position is -1, must be 0", node(s1, ZG_OP_CARRY)->opt[0] = -1);
  BROKEN(carry_twice, "a second one at position 0", only_forward(&m, s2);
         make_with(&m, (ZgNode){.op = ZG_OP_CARRY}, "", 0, NULL));
  BROKEN(carry_out_twice, "a second one at position 0", only_forward(&m, s0);
         make_sink(&m, ZG_OP_CARRY_OUT, 2));
  BROKEN(cotangent_twice, "a second one at position 0", m.s = s1;
         make_with(&m, (ZgNode){.op = ZG_OP_DCARRY}, "", 0, NULL));
  BROKEN(cotangent_in_twice, "a second one at position 0", m.s = s1;
         make_sink(&m, ZG_OP_DCARRY_IN, node(s1, ZG_OP_DCARRY_IN)->in[0]));
  BROKEN(seed_twice, "a second one of its kind", m.s = s2;
         make_with(&m, (ZgNode){.op = ZG_OP_SEED}, "", 0, NULL));
  BROKEN(denominator_of_carried, "the denominator of the loss may depend on inputs only", {
    only_forward(&m, s0), only_forward(&m, s1), only_forward(&m, s2);
    remove_sink(s2, ZG_OP_LOSS_DEN);
    make_sink(&m, ZG_OP_LOSS_DEN, make_sum(&m, 0, "batch seq embed"));
  });
  BROKEN(denominator_of_params, "the denominator of the loss may depend on inputs only", {
    only_forward(&m, s0), only_forward(&m, s1), only_forward(&m, s2);
    remove_sink(s2, ZG_OP_LOSS_DEN);
    make_sink(&m, ZG_OP_LOSS_DEN, make_sum(&m, 1, "vocab embed"));
  });
  static ZgUpdateStep wrong[] = {
      {ZG_OP_AXSIZE, 0, 0, 0, 0}, {ZG_OP_KNOWN, 0, 0, 0, 0},  {ZG_OP_SUM, 0, 0, 0, 0},
      {ZG_OP_COUNT, 0, 0, 0, 0},  {ZG_OP_FILL, 1, 0, 0, 1},   {ZG_OP_FILL, 0, 1, 0, 1},
      {ZG_OP_NEG, 0, 1, 0, 0},    {ZG_OP_NEG, 0, 0, 1, 0},    {ZG_OP_ADD, 0, 1, 1, 0},
      {ZG_OP_ADD, 0, 1, 0, 1},    {ZG_OP_NEG, 0, 0, 0, -0.0}, {ZG_OP_NEG, 2, 0, 0, 0},
      {ZG_OP_ADD, 0, 2, 0, 0},    {ZG_OP_SELECT, 0, 0, 2, 0}, {ZG_OP_FILL, 0, 0, 0, __builtin_nan("")}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    BROKEN(update, "step 0 of its update is none", g->params[0].state = true;
           g->params[0].update = &((const ZgUpdate){1, &wrong[i]}));
  static ZgUpdateStep many[ZG_MAX_UPDATE + 1];
  for (int i = 0; i <= ZG_MAX_UPDATE; i++) many[i] = (ZgUpdateStep){ZG_OP_NEG, 1, 0, 0, 0};
  BROKEN(update_long, "has an update of 33 steps", g->params[0].state = true;
         g->params[0].update = &((const ZgUpdate){ZG_MAX_UPDATE + 1, many}));
  Make m = make_sample();
  m.g->params[0].state = true;
  m.g->params[0].update = &((const ZgUpdate){ZG_MAX_UPDATE, many});
  cr_expect(zg_verify(m.g, NULL));
  zb_arena_free(m.a);
}

Test(print, sample) {
  Make m = make_sample();
  ZbText t = {0};
  size_t n;
  ZbErr err;
  zg_print(m.g, ZG_NONE, &t);
  char *want = zb_read_file(m.a, ZUG_SRC "/tests/unit/graph/sample.txt", 1 << 20, &n, &err);
  cr_assert(want, "%s", err.text);
  cr_expect_str_eq(t.s, want);
  zb_text_free(&t);
  zg_print(m.g, 1, &t);
  cr_expect(!strncmp(t.s, "segment 1 repeat 3 as layer region 1\n", 37));
  zb_text_free(&t);
  zb_arena_free(m.a);
}
