/* What is computed in chunks of rows: never whole, in any list of any layout, and nothing else of it kept. */
#include "tests/unit/plan/models/faults.h"

#include <criterion/criterion.h>
#include <string.h>

static bool has_axis(const ZpPlan *p, const ZpValue *v, const char *name) {
  for (int a = 0; a < v->type.naxes; a++)
    if (!strcmp(p->graph->axes[v->type.axis[a]].name, name)) return true;
  return false;
}

/* Elements of the largest value of samples that has the axis. */
static uint64_t largest(const ZpPlan *p, const char *axis) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (uint32_t i = 0; i < p->programs.segments[s].nvalues; i++) {
      const ZpValue *v = &p->programs.segments[s].values[i];
      uint64_t n = v->bytes / zk_plain_bytes(v->elem);
      if (v->at.space != ZP_AT_NOWHERE && has_axis(p, v, "batch") && has_axis(p, v, axis) && n > most)
        most = n;
    }
  return most;
}

static void expect_largest(const ZgGraph *g, const char *recipe, uint64_t want) {
  Plan q = plan_of(g, recipe);
  cr_expect_eq(largest(q.p, "vocab"), want, "%s: %llu, by hand %llu", recipe,
               (unsigned long long)largest(q.p, "vocab"), (unsigned long long)want);
  cr_expect_str_eq(plan_wrong(q.p, q.a), "");
  plan_close(&q);
}

/* Logits of a rank: 2 samples of 32 tokens and 128 words, whole; of half the words; of half the tokens. */
Test(chunk, logits_never_exist_whole) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=32 -D context=32 -D words=128");
  static const struct {
    const char *recipe;
    uint64_t n;
  } cases[] = {
      {"", 2 * 32 * 128},
      {"chunk vocab = 1", 2 * 32 * 128},
      {"chunk vocab = 8", 2 * 32 * 128 / 8},
      {"chunk vocab = 32", 2 * 32 * 128 / 32},
      {"chunk vocab = 8 recompute Layer precision compute bf16", 2 * 32 * 128 / 8},
      {"chunk vocab = 8 mesh t = 2 split head, ffn, vocab over t else seq", 2 * 32 * 64 / 8},
      {"chunk vocab = 16 mesh c = 2 split seq over c", 2 * 16 * 128 / 16},
      {"chunk vocab = 4 mesh d = 2 split batch over d shard params, grads, states over d", 2 * 32 * 32}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbText t = {0};
    zb_text_add(&t, "bind batch = 8, seq = 32 micro 2 %s", cases[i].recipe);
    expect_largest(m.g, t.s, cases[i].n);
    zb_text_free(&t);
  }
  model_close(&m);
}

/* A device that batches products does not batch those of chunks, which would all be there at once. */
Test(chunk, fused_and_batched) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=32 -D context=32 -D words=128");
  static const char recipe[] = "bind batch = 8, seq = 32 micro 2 chunk vocab = 8";
  bool (*const supports[])(const ZkCall *) = {supports_all, supports_batched, supports_xent_max};
  for (size_t i = 0; i < sizeof supports / sizeof *supports; i++) {
    Plan q = plan_fused(m.g, recipe, supports[i]);
    cr_expect_eq(largest(q.p, "vocab"), 2 * 32 * 128 / 8, "%zu: %llu", i,
                 (unsigned long long)largest(q.p, "vocab"));
    cr_expect_str_eq(plan_wrong(q.p, q.a), "");
    plan_close(&q);
  }
  model_close(&m);
}

/* Of each chunk its maximum, and all sums of exponentials, which the loss divides by; no logits. */
Test(chunk, keeps_no_logits) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=32 -D context=32 -D words=128");
  Plan q = plan_of(m.g, "bind batch = 8, seq = 32 micro 2 chunk vocab = 2");
  expect_saved(q.p, NULL, 1,
               "normalize: real[batch, seq, embed]\nnormalize: f32[batch, seq]\n"
               "peak: real[batch, seq.rows, seq.one]\npeak: real[batch, seq.rows, seq.one]\n"
               "merge: f32[batch, seq]\n");
  plan_close(&q);
  model_close(&m);
}

/* A sequence is split zigzag where its chunks are whole rows of those of the logits, and not elsewhere. */
Test(chunk, of_a_zigzag_sequence) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=32 -D context=32 -D words=128");
  uint16_t seq = (uint16_t)zg_axis_find(m.g, "seq");
  Plan q = plan_of(m.g, "mesh c = 2 split seq over c chunk vocab = 8 bind batch = 2, seq = 32");
  cr_expect(q.p->layout.mesh.dim[0].zigzag == seq &&
            q.p->layout.mesh.dim[0].zigzag_up == q.p->layout.chunk.up);
  WITH(q.p->layout.mesh.dim[0].zigzag_up, ZP_NO_AXIS,
       "merges axes to one of another size, or split otherwise");
  plan_close(&q);
  q = plan_of(m.g, "mesh c = 2 split seq over c chunk vocab = 16 bind batch = 2, seq = 32");
  cr_expect_str_eq(q.p->notes.order,
                   "`seq` is split contiguously over c: `chunk vocab = 16` does not cut its "
                   "chunks of 8 positions without a rest");
  plan_close(&q);
  q = plan_try(m.g, "mesh c = 2 split seq over c zigzag chunk vocab = 16 bind batch = 2, seq = 32");
  cr_expect(!q.p &&
                strstr(plan_messages(&q), "`seq` cannot be split zigzag over `c`: `chunk vocab = 16` does"),
            "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

#define HEAD(axes)                                                                                           \
  "use std.nn as nn\nmodel M {\n  axis " axes "\n  axis embed = 16, vocab = 32\n"                            \
  "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"                    \
  "  param wte[vocab, embed], out[vocab, embed] ~ normal(1)\n  param lean[vocab] = 0\n"                      \
  "  x = lookup(wte, tokens)\n  z = dot[embed](x, out) + lean\n"

/* All that is elementwise in logits is in chunks with them, and what is read of them in two losses; what ends in
 * another sum is refused with its place. All of it whichever axis the model has first. */
Test(chunk, what_heads_do) {
  static const struct {
    const char *body, *wrong;
  } cases[] = {
      {"  z = 30 * tanh(z / 30)\n  loss xent[vocab](z, targets) per known(targets)\n}", NULL},
      {"  loss xent[vocab](z, targets) per known(targets)\n"
       "  loss z = 1e-4 * lse[vocab](z) * lse[vocab](z) per samples()\n}",
       NULL},
      {"  loss nn.smoothed[vocab](z, targets, smoothing = 0.1) per known(targets)\n}", NULL},
      {"  p = softmax[vocab](z)\n  aux mean[batch, seq](sum[vocab](p * p))\n"
       "  loss xent[vocab](z, targets) per known(targets)\n}",
       NULL},
      {"  loss xent[vocab](cumsum[seq](z), targets) per known(targets)\n}",
       "cannot be computed in chunks of `seq`: cumsum (test.zug:11) needs all of them at once"},
      {"  loss xent[vocab](z - mean[seq](z), targets) per known(targets)\n}",
       "is made of what all of them have together"},
  };
  static const char *const heads[] = {HEAD("batch, seq"), HEAD("seq, batch")};
  for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
    ZbText t = {0};
    zb_text_add(&t, "%s%s\n", heads[i % 2], cases[i / 2].body);
    Model m = model_open(NULL, t.s, NULL);
    if (!cases[i / 2].wrong)
      expect_largest(m.g, "bind batch = 4, seq = 16 micro 2 chunk vocab = 4", 2 * 16 * 32 / 4);
    Plan q = plan_try(m.g, "bind batch = 4, seq = 16 micro 2 chunk vocab = 4");
    if (cases[i / 2].wrong) {
      cr_expect_null(q.p);
      cr_expect(strstr(plan_messages(&q), cases[i / 2].wrong), "%s", plan_messages(&q));
    }
    plan_close(&q);
    model_close(&m);
    zb_text_free(&t);
  }
}
