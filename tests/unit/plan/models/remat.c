/* Which forward values are kept for backward: exactly these. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#define X "real[batch, seq, embed]"
static const char sizes[] = "bind batch = 8, seq = 128 micro 1\n";

/* `loss` of one layer is behind `y`, a function of x and of parameters: what is kept of it, for a device that
 * supports that. */
static void expect_on(bool (*supports)(const ZkCall *), const char *body, const char *recipe,
                      const char *expect) {
  Model m = {0};
  ZbText t = {0};
  zb_text_add(&t,
              "use std.nn as nn\nmodel M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, vocab = 8\n"
              "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
              "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
              "  repeat 3 as layer {\n"
              "    param w[embed, ffn], u[embed, ffn], v[ffn, embed] ~ normal(1)\n"
              "    param b[ffn], c[ffn] = 0\n    param r[embed] ~ normal(1)\n    %s\n  }\n"
              "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n",
              body);
  m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  zb_text_add(&t, "%s%s", sizes, recipe);
  Plan q = supports ? plan_fused(m.g, t.s, supports) : plan_of(m.g, t.s);
  zb_text_free(&t);
  t = (ZbText){0};
  put_saved(q.p, segment_of(q.p, "layer", 0), &t);
  expect_text(&t, expect, body);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  plan_close(&q);
  model_close(&m);
}

static void expect_of(const char *body, const char *recipe, const char *expect) {
  expect_on(NULL, body, recipe, expect);
}

/* What the product's gradient needs besides: x, which is carried in. */
Test(remat, activations) {
  expect_of("x = dot[ffn](nn.gelu_tanh(dot[embed](x, w)), v)", "", "carry\ndot: real[batch, seq, ffn]\n");
  expect_of("x = dot[ffn](nn.gelu_tanh(dot[embed](x, w) + b), v)", "", "carry\ndot: real[batch, seq, ffn]\n");
  expect_of("x = dot[ffn](nn.gelu(dot[embed](x, w)), v)", "", "carry\ndot: real[batch, seq, ffn]\n");
  expect_of("x = dot[ffn](nn.relu(dot[embed](x, w)), v)", "", "carry\ndot: real[batch, seq, ffn]\n");
  /* two factors, two tensors */
  expect_of("x = dot[ffn](nn.silu(dot[embed](x, w)) * dot[embed](x, u), v)", "",
            "carry\ndot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n");
  /* an activation of what is carried in keeps nothing more */
  expect_of("x = dot[ffn](dot[embed](nn.silu(x), w), v)", "", "carry\ndot: real[batch, seq, ffn]\n");
  /* what is linear keeps nothing of itself */
  expect_of("x = x + 2 * dot[ffn](dot[embed](x, w) * b, v)", "", "carry\ndot: real[batch, seq, ffn]\n");
}

/* A sum of two products is one tensor instead of two; whoever is kept anyway is used again. */
Test(remat, several_operands) {
  expect_of("x = dot[ffn](nn.silu(dot[embed](x, w) + dot[embed](x, u)), v)", "",
            "carry\npointwise/add: real[batch, seq, ffn]\n");
  expect_of("a = dot[embed](x, w) c = dot[embed](x, u) x = dot[ffn](nn.silu(a + c) * a * c, v)", "",
            "carry\ndot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n");
}

/* What a parameter makes of a product is kept in its place, if it is no larger and goes into no other sum. */
Test(remat, product_or_sum) {
  expect_on(supports_norms, "x = dot[ffn](nn.silu(dot[embed](x, w) + b), v)", "",
            "carry\npointwise/add: real[batch, seq, ffn]\n");
  expect_on(supports_norms, "x = dot[ffn](dot[embed](x, nn.silu(dot[embed](r, w) + u)), v)", "",
            "carry\ndot: real[ffn]\ndot: real[batch, seq, ffn]\n");
  expect_on(supports_norms, "x = dot[ffn](nn.silu(dot[embed](x, w) + b + c), v)", "",
            "carry\ndot: real[batch, seq, ffn]\n");
  expect_on(supports_norms, "x = dot[ffn](nn.silu(dot[embed](x, w) + b * 2), v)", "",
            "carry\ndot: real[batch, seq, ffn]\n");
}

Test(remat, dropout_is_drawn_again) {
  expect_of("x = dot[ffn](nn.dropout(nn.relu(dot[embed](x, w)), p = 0.5), v)", "",
            "carry\ndot: real[batch, seq, ffn]\n");
}

Test(remat, gpt2_layer) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_of(m.g, sizes);
  expect_saved(
      q.p, "layer", 0,
      "normalize: " X "\nnormalize: f32[batch, seq]\n"
      "dot: real[batch, seq, head, hd]\ndot: real[batch, seq, head, hd]\ndot: real[batch, seq, head, hd]\n"
      "attend: real[batch, seq, head, hd]\nattend: f32[batch, seq, head]\n"
      "normalize: " X "\nnormalize: f32[batch, seq]\n"
      "dot: real[batch, seq, ffn]\n");
  expect_saved(q.p, NULL, 0, ""); /* lookups keep their ids, which are inputs */
  expect_saved(q.p, NULL, 1,
               "normalize: " X "\nnormalize: f32[batch, seq]\n"
               "dot: real[batch, seq, vocab]\npeak: real[batch, seq]\nxent_sums: f32[batch, seq]\n");
  /* in bytes: 5 of [batch, seq, embed] and the wide one, in f32 */
  const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  uint64_t tokens = 128, x = tokens * 768 * 4;
  cr_assert_eq(s->saved_bytes, 6 * x + 4 * x + 2 * tokens * 4 + 12 * tokens * 4);
  plan_close(&q);
  model_close(&m);
}

Test(remat, llama3_layer) {
  Model m = model_open("llama3", NULL, "-D layers=4");
  Plan q = plan_of(m.g, sizes);
  const char *q_type =
      "rope: real[batch, seq, kv, grp, hd]\nrope: real[batch, seq, kv, hd]\ndot: real[batch, seq, kv, hd]\n";
  expect_saved(q.p, "layer", 0,
               zb_printf(q.a,
                         "normalize: " X "\nnormalize: f32[batch, seq]\n%s"
                         "attend: real[batch, seq, kv, grp, hd]\nattend: f32[batch, seq, kv, grp]\n"
                         "normalize: " X "\nnormalize: f32[batch, seq]\n"
                         "dot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n",
                         q_type));
  plan_close(&q);
  model_close(&m);
}

static uint32_t count_again(const ZpPlan *p, ZgOp op) {
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  uint32_t n = 0;
  const ZpList *l = &s->list[ZP_BWD];
  for (uint32_t i = 0; i < l->n; i++) n += l->nodes[i].recomputed && l->nodes[i].call.op == op;
  return n;
}

/* All of a layer again: only what it takes in is kept; every product but the last is made twice. */
Test(remat, recompute_layer) {
  static const struct {
    const char *name, *recipe;
    uint32_t dots;
  } cases[] = {{"gpt2", "recompute Layer", 5},
               {"gpt2", "recompute layer", 5},
               {"llama3", "recompute Layer", 6},
               {"llama3", "recompute Layer.attn, Layer.mlp, norm1, norm2", 6}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_open(cases[i].name, NULL, "-D layers=4");
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%s%s", sizes, cases[i].recipe));
    if (i < 3) {
      expect_saved(q.p, "layer", 0, "carry\n");
      cr_expect_eq(q.p->programs.segments[1].saved_bytes, 0);
    }
    cr_expect_eq(count_again(q.p, ZG_OP_DOT), cases[i].dots, "%s %s: %u products again", cases[i].name,
                 cases[i].recipe, count_again(q.p, ZG_OP_DOT));
    cr_expect_eq(count_again(q.p, ZG_OP_ATTEND), 1);
    plan_close(&q);
    model_close(&m);
  }
}

/* A part of it: what enters and leaves stays. */
Test(remat, recompute_part) {
  Model m = model_open("llama3", NULL, "-D layers=4");
  Plan q = plan_of(m.g, zb_printf(m.c.a, "%srecompute Layer.attn", sizes));
  expect_saved(q.p, "layer", 0,
               "normalize: " X "\nnormalize: f32[batch, seq]\nnormalize: " X "\nnormalize: f32[batch, seq]\n"
               "dot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n");
  cr_assert_eq(count_again(q.p, ZG_OP_DOT),
               3); /* q, k, v; the output product is only needed for its result */
  cr_assert_eq(count_again(q.p, ZG_OP_ROPE), 2);
  plan_close(&q);
  q = plan_of(m.g, zb_printf(m.c.a, "%srecompute Layer.mlp", sizes));
  expect_saved(
      q.p, "layer", 0,
      "normalize: " X "\nnormalize: f32[batch, seq]\n"
      "rope: real[batch, seq, kv, grp, hd]\nrope: real[batch, seq, kv, hd]\ndot: real[batch, seq, kv, hd]\n"
      "attend: real[batch, seq, kv, grp, hd]\nattend: f32[batch, seq, kv, grp]\n"
      "normalize: " X "\nnormalize: f32[batch, seq]\n");
  cr_assert_eq(count_again(q.p, ZG_OP_DOT), 2);
  plan_close(&q);
  model_close(&m);
}

/* ---- layers that are called one after another ---------------------------------------------------------------- */
static Model unrolled(const char *layers) {
  static const char head[] =
      "use std.nn as nn\nmodel M() {\n  axis batch, seq\n"
      "  axis embed = 16, ffn = 64, small = 2, kv = 2, grp = 1, hd = 8, vocab = 8\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed] ~ normal(1)\n"
      "  block Mlp(x: real[.., embed]) -> real[.., embed] {\n    param up[embed, ffn], down[ffn, embed] ~ "
      "normal(1)\n"
      "    h = max(dot[embed](x, up), 0)\n    return dot[ffn](h * h, down)\n  }\n"
      "  block Layer(x: real[.., embed]) -> real[.., embed] { return x + Mlp(x) as mlp }\n"
      "  block Wide(x: real[.., embed]) -> real[.., ffn] { param w[embed, ffn] ~ normal(1)  return "
      "dot[embed](x, w) }\n"
      "  block Narrow(x: real[.., ffn]) -> real[.., embed] { param w[ffn, embed] ~ normal(1)  return "
      "tanh(dot[ffn](x, w)) }\n"
      "  block Tight(x: real[.., embed]) -> real[.., embed] {\n    param a[embed, small], b[small, embed] ~ "
      "normal(1)\n"
      "    return dot[small](tanh(dot[embed](x, a)), b)\n  }\n"
      "  block Full(x: real[.., seq, embed]) -> real[.., seq, embed] {\n"
      "    x = x + nn.GroupedAttention[seq, embed, kv, grp, hd](nn.RMSNorm[embed](x) as norm1) as attn\n"
      "    return x + nn.SwiGLU[embed, ffn](nn.RMSNorm[embed](x) as norm2) as mlp\n  }\n"
      "  x = lookup(wte, tokens)\n%s\n"
      "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n";
  ZbText t = {0};
  zb_text_add(&t, head, layers);
  Model m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  return m;
}

/* `n` lines, each with its number for every #. */
static const char *lines(ZbArena *a, const char *line, int n) {
  ZbText t = {0};
  for (int i = 0; i < n; i++) {
    zb_text_add(&t, "  ");
    for (const char *c = line; *c; c++)
      if (*c == '#') zb_text_add(&t, "%d", i);
      else zb_text_put(&t, c, 1);
    zb_text_add(&t, "\n");
  }
  const char *s = zb_strdup(a, t.s);
  zb_text_free(&t);
  return s;
}

static uint64_t arena_of(const Model *m, const char *recipe) {
  Plan q = plan_of(m->g, recipe);
  uint64_t bytes = q.p->programs.stages[0].ledger.total[ZP_DEVICE];
  plan_close(&q);
  return bytes;
}

/* No part that is made again takes more memory than without, be parts layers, halves of layers with sums and norms outside, or
 * less inside than what enters. */
Test(remat, never_more_than_without) {
  static const struct {
    const char *line;
    int n;
    const char *parts[4];
  } cases[] = {
      {"x = Layer(x) as l#", 6, {"Layer", "Mlp"}},
      {"x = x + Mlp(x) as l#", 6, {"Mlp"}},
      {"x = x + Mlp(nn.RMSNorm[embed](x) as n#) as l#", 6, {"Mlp", "RMSNorm", "Mlp, RMSNorm"}},
      {"x = Full(x) as l#", 5, {"Full", "attn, mlp", "norm1", "norm2"}},
      {"x = x + Tight(nn.RMSNorm[embed](x) as n#) as l#", 5, {"Tight", "Tight, RMSNorm"}},
      {"x = x + Narrow(Wide(x) as w#) as n#", 5, {"Wide", "Narrow", "Wide, Narrow"}},
      {"x = x + nn.gelu(Mlp(x) as m#) as l#", 5, {"gelu", "gelu, Mlp"}},
      {"a = Full(x) as a# b = Full(a) as b# c = Full(b + x) as c# x = Full(c + a) as d#",
       1,
       {"Full", "norm1"}},
      {"repeat 3 as layer { repeat 4 as inner { x = Full(x) } }", 1, {"Full", "attn, mlp", "norm1"}}};
  static const char *const layouts[] = {"", "precision compute bf16",
                                        "micro 2 mesh t = 2 split ffn, kv, vocab over t else seq"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbArena *a = zb_arena_new();
    Model m = unrolled(lines(a, cases[i].line, cases[i].n));
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
      const char *base = zb_printf(a, "bind batch = 8, seq = 64 %s\n", layouts[k]);
      uint64_t without = arena_of(&m, base);
      for (int j = 0; j < 4 && cases[i].parts[j]; j++) {
        uint64_t with = arena_of(&m, zb_printf(a, "%srecompute %s", base, cases[i].parts[j]));
        cr_expect(with <= without, "%s: %s, recompute %s: %llu bytes, without %llu", cases[i].line,
                  layouts[k], cases[i].parts[j], (unsigned long long)with, (unsigned long long)without);
      }
    }
    model_close(&m);
    zb_arena_free(a);
  }
}

/* Backward makes one layer again at a time: an unrolled model takes as much as the same layers in a repeat, whose parameters lie
 * otherwise, and less than half of what it takes without. */
Test(remat, one_after_another) {
  static const char *const lines_[][2] = {{"x = Full(x) as l#", "Full"},
                                          {"x = Full(x) as l#", "attn, mlp"},
                                          {"x = x + Mlp(nn.RMSNorm[embed](x) as n#) as l#", "Mlp"}};
  for (size_t i = 0; i < sizeof lines_ / sizeof *lines_; i++) {
    ZbArena *a = zb_arena_new();
    const char *line = lines_[i][0], *base = "bind batch = 8, seq = 256\n";
    Model m = unrolled(lines(a, line, 8)),
          r = unrolled(zb_printf(a, "repeat 8 as layer { %s }", lines(a, line, 1)));
    const char *recipe = zb_printf(a, "%srecompute %s", base, lines_[i][1]);
    uint64_t with = arena_of(&m, recipe), repeated = arena_of(&r, recipe), without = arena_of(&m, base);
    cr_expect(with < 1.1 * (double)repeated && with < without / 2, "%s: %llu, in a repeat %llu, without %llu",
              line, (unsigned long long)with, (unsigned long long)repeated, (unsigned long long)without);
    model_close(&m);
    model_close(&r);
    zb_arena_free(a);
  }
}

/* A part that takes more than it saves is not made again, and that is said. */
Test(remat, part_that_costs) {
  ZbArena *a = zb_arena_new();
  Model m = unrolled(
      lines(a, "a = Full(x) as a# b = Full(a) as b# c = Full(b + x) as c# x = Full(c + a) as d#", 2));
  Plan q = plan_try(m.g, "bind batch = 8, seq = 64 recompute norm1");
  cr_assert(q.p);
  cr_expect(strstr(plan_messages(&q), "warning[Z0809]: `recompute` has no effect"), "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
  zb_arena_free(a);
}

/* The work of the model does not grow with what is done twice; a rank's cost does. */
Test(remat, flops) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_of(m.g, sizes), r = plan_of(m.g, zb_printf(m.c.a, "%srecompute Layer", sizes));
  cr_assert_float_eq(q.p->notes.model_flops, r.p->notes.model_flops, 1);
  cr_assert_gt(r.p->programs.stages[0].cost, 1.05 * q.p->programs.stages[0].cost);
  /* 6 a parameter and token in the products (the tied table once, as head; vectors and positions not at all),
   * and causal attention: 6 * layers * seq * width a token, forward 2, backward 4 */
  double vectors = 4 * (2 * 768 + 2 * 768 + 3 * 768 + 768 + 3072 + 768) + 2 * 768, tokens = 8 * 128;
  double products = q.p->notes.params - vectors - 1024 * 768;
  cr_assert_float_eq(q.p->notes.model_flops, 6 * tokens * (products + 4 * 128 * 768), 1);
  plan_close(&q);
  plan_close(&r);
  model_close(&m);
}

/* What is compared with what was selected from it is made again with it, and not kept: neither is more than
 * the product that both are made of. */
Test(remat, selected) {
  static const char two[] = "carry\ndot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n",
                    three[] = "carry\ndot: real[batch, seq, ffn]\ndot: real[batch, seq, ffn]\n"
                              "peak: real[batch, seq]\n";
  expect_of("x = x + dot[ffn](dot[embed](x, w) * peak[ffn](tanh(dot[embed](x, u))), v)", "", two);
  expect_of("x = x + dot[ffn](dot[embed](x, w) * peak[ffn](dot[embed](x, u)), v)", "", three);
  expect_of("x = x + dot[ffn](dot[embed](x, w) * stop(peak[ffn](tanh(dot[embed](x, u)))), v)", "",
            "carry\ndot: real[batch, seq, ffn]\npeak: real[batch, seq]\n");
  expect_of("h = tanh(dot[embed](x, u))\n"
            "  x = x + dot[ffn](dot[embed](x, w) * select(h >= -peak[ffn](h), 1, h), v)",
            "", two);
}
