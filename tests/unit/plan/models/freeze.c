/* Frozen parameters: which those are, what backward still does, and that every layout passes the proofs. */
#include "tests/unit/plan/models/faults.h"

#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "-D layers=4 -D heads=4 -D width=16 -D context=16 -D words=32";
static const char bind[] = "bind batch = 8, seq = 16 micro 1 ";

static const ZpBucket *bucket_of(const ZpPlan *p, const char *path) {
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    for (uint32_t k = 0; k < p->programs.buckets[b].nslices; k++)
      if (!strcmp(p->graph->params[p->programs.buckets[b].slices[k].param].path, path))
        return &p->programs.buckets[b];
  cr_assert_fail("no parameter %s", path);
  return NULL;
}

/* The words mean: a tag, a label anywhere in the path, a path of them, the parameter itself. */
Test(freeze, which) {
  Model m = model_open("gpt2", NULL, sizes);
  static const struct {
    const char *words;
    const char *frozen, *trained; /* some of each */
  } cases[] = {{"norm", "layer.*.ln1.g", "wte"},
               {"bias", "layer.*.mlp.b1", "layer.*.mlp.w1"},
               {"layer", "layer.*.attn.wq", "ln_f.g"},
               {"layer.attn", "layer.*.attn.wo", "layer.*.mlp.w1"},
               {"attn.wq", "layer.*.attn.wq", "layer.*.attn.wk"},
               {"wte", "wte", "wpe"},
               {"wte, mlp.w2", "layer.*.mlp.w2", "layer.*.mlp.w1"},
               {"all except ln_f", "wte", "ln_f.b"},
               {"all except layer.attn, wpe", "layer.*.mlp.w1", "wpe"},
               {"layer except norm", "layer.*.attn.wq", "layer.*.ln2.g"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%sfreeze %s", bind, cases[i].words));
    cr_expect(bucket_of(q.p, cases[i].frozen)->frozen, "freeze %s", cases[i].words);
    cr_expect(!bucket_of(q.p, cases[i].trained)->frozen, "freeze %s", cases[i].words);
    cr_expect(q.p->notes.trained < q.p->notes.params);
    plan_close(&q);
  }
  model_close(&m);
}

Test(freeze, wrong_words) {
  Model m = model_open("gpt2", NULL, sizes);
  static const struct {
    const char *words, *said;
  } cases[] = {{"wtf", "no parameter of model GPT2 has the tag `wtf`, or it in its path"},
               {"attn.w1", "no parameter of model GPT2 has the tag `w1`, and none has such a path"},
               {"wte except lyer", "did you mean `layer`?"},
               {"all", "all 20 parameters of model GPT2 are frozen"},
               {"layer, wte, wpe, ln_f", "all 20 parameters of model GPT2 are frozen"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_try(m.g, zb_printf(m.c.a, "%sfreeze %s", bind, cases[i].words));
    cr_expect(!q.p && strstr(plan_messages(&q), cases[i].said), "%s", plan_messages(&q));
    plan_close(&q);
  }
  model_close(&m);
}

/* Backward ends where nothing before it is trained, keeps nothing for what it does not compute, and sends
 * nothing. */
Test(freeze, backward_ends) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q =
      plan_of(m.g, zb_printf(m.c.a, "%smesh pipe = 2 stages over pipe by cost freeze all except ln_f", bind));
  const ZpSegment *embed = &q.p->programs.segments[0],
                  *layer = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  cr_expect_eq(embed->list[ZP_BWD].n + layer->list[ZP_BWD].n, 0);
  cr_expect_eq(layer->saved_bytes + layer->dcarry_bytes + layer->dcarry_out_bytes, 0);
  cr_expect(!layer->saves_carry);
  for (uint32_t s = 0; s < 2; s++)
    cr_expect_eq(q.p->programs.vstages[s].dcarry_out_bytes + q.p->programs.vstages[s].dcarry_bytes, 0);
  plan_close(&q);
  q = plan_of(m.g, zb_printf(m.c.a, "%sfreeze wte, wpe", bind));
  embed = &q.p->programs.segments[0];
  cr_expect_eq(embed->list[ZP_BWD].n, 0); /* though the layers pass a cotangent on */
  cr_expect_gt(embed->dcarry_out_bytes, 0);
  plan_close(&q);
  model_close(&m);
}

/* A product with a frozen matrix keeps its operand for no gradient: half of the products of backward go. */
Test(freeze, half_of_backward) {
  Model m = model_open("mlp", NULL, NULL);
  Plan q = plan_of(m.g, "bind batch = 8"), r = plan_of(m.g, "bind batch = 8 freeze all except fc1, bias");
  cr_expect_lt(r.p->notes.model_flops, q.p->notes.model_flops);
  cr_expect_lt(r.p->programs.stages[0].ledger.bytes[ZP_L_STATES],
               q.p->programs.stages[0].ledger.bytes[ZP_L_STATES]);
  cr_expect_lt(r.p->programs.stages[0].ledger.bytes[ZP_L_GRADS],
               q.p->programs.stages[0].ledger.bytes[ZP_L_GRADS]);
  plan_close(&q);
  plan_close(&r);
  model_close(&m);
}

/* In bf16 a frozen parameter takes 2 bytes, a trained one 16: these, what is missing to f32, its gradient, two states. */
Test(freeze, bytes) {
  Model m = model_open("gpt2", NULL, "-D layers=4 -D heads=4 -D width=32 -D context=16 -D words=32");
  Plan q = plan_kept(m.g, zb_printf(m.c.a, "%sprecision compute bf16 freeze all except ln_f", bind));
  const uint64_t *bytes = q.p->programs.stages[0].ledger.bytes;
  double frozen = q.p->notes.params - q.p->notes.trained, trained = q.p->notes.trained;
  cr_expect_eq(trained, 64);
  cr_expect_eq(bytes[ZP_L_PARAMS], 2 * (uint64_t)(frozen + trained));
  cr_expect_eq(bytes[ZP_L_MASTER], 2 * (uint64_t)trained);
  cr_expect_eq(bytes[ZP_L_GRADS], 4 * (uint64_t)trained);
  cr_expect_eq(bytes[ZP_L_STATES], 8 * (uint64_t)trained);
  cr_expect_eq(bytes[ZP_L_SNAPSHOT], 4 * (uint64_t)(frozen + 3 * trained)); /* checkpoints hold all values */
  plan_close(&q);
  model_close(&m);
}

/* What is proved of it. */
Test(freeze, wrong_plans) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_of(m.g, zb_printf(m.c.a, "%sfreeze wte, wpe, layer.attn", bind));
  uint32_t wpe = 0, wq = 0;
  while (strcmp(m.g->params[wpe].path, "wpe")) wpe++;
  while (strcmp(m.g->params[wq].path, "layer.*.attn.wq")) wq++;
  uint32_t layer = segment_of(q.p, "layer", 0);
  WITH(q.p->asked.frozen[wpe], false, "is frozen, but the recipe trains it");
  WITH(q.p->layout.cotangents[layer].in[0], false,
       "carries cotangents that nothing is made from, or lacks some");
  WITH(q.p->layout.cotangents[0].out[0], false,
       "carries cotangents that nothing is made from, or lacks some");
  ZpBucket *b = (ZpBucket *)bucket_of(q.p, "wpe");
  WITH(b->frozen, false, "is trained, but the recipe trains it not");
  plan_close(&q);
  q = plan_of(m.g, zb_printf(m.c.a, "%sfreeze all except layer.mlp", bind));
  WITH(q.p->asked.frozen[wq], false, "is frozen, but the recipe trains it");
  plan_close(&q);
  model_close(&m);
}

/* Every way to freeze in every kind of layout. */
Test(freeze, layouts) {
  static const char *const freezes[] = {
      "wte",        "wte, wpe",        "layer",          "all except layer.attn",
      "bias, norm", "all except ln_f", "all except wte", "mlp.w1, attn except bias"};
  static const char *const layouts[] = {
      "",
      "mesh d = 2 split batch over d",
      "mesh d = 2 split batch over d shard states over d",
      "mesh d = 2 split batch over d shard grads, states over d",
      "mesh d = 2 split batch over d shard params, grads, states over d",
      "mesh d = 2 split batch over d shard params, grads, states over d keep",
      "mesh t = 2 split head, ffn, vocab over t else seq",
      "mesh p = 2 stages over p by cost",
      "mesh p = 3 stages over p = [1, 2, 1] schedule gpipe",
      "mesh p = 2, d = 2, t = 2 split batch over d split head, ffn, vocab over t else seq stages over p by "
      "cost "
      "shard params, grads, states over d recompute Layer"};
  Model m = model_open("gpt2", NULL, sizes);
  for (size_t i = 0; i < sizeof freezes / sizeof *freezes; i++)
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
      const char *recipe = zb_printf(m.c.a, "%s%s freeze %s%s", bind, layouts[k], freezes[i],
                                     k % 2 ? " precision compute bf16" : "");
      Plan q = plan_of(m.g, recipe), e = plan_forward(m.g, recipe, q.p);
      plan_close(&e);
      plan_close(&q);
    }
  model_close(&m);
}
