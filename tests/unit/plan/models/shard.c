/* The textbook schemes fall out of the rule: exactly their collectives, over exactly their
 * dims, and no more. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#define X "real[batch, seq, embed]"
static const char small_gpt[] = "-D layers=4 -D words=1024", small_llama[] = "-D layers=4";
static const char sizes[] = "bind batch = 8, seq = 128 micro 1\n";

static Plan plan_with(Model *m, const char *name, const char *options, const char *recipe) {
  *m = model_open(name, NULL, options);
  return plan_of(m->g, zb_printf(m->c.a, "%s%s", sizes, recipe));
}

static void close_both(Plan *q, Model *m) {
  plan_close(q);
  model_close(m);
}

static void expect_partial(const Plan *q, const char *param, const char *dims) {
  const char *got = zp_dims_text(&q->p->layout.mesh, q->a, bucket_with(q->p, param)->partial);
  cr_expect_str_eq(got, dims, "gradient of %s is partial over %s, not %s", param, got, dims);
}

static void expect_quiet(const ZpPlan *p) {
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (ZpPhase k = 0; k < ZP_PHASES; k++) {
      ZbText t = {0};
      put_collectives(p, s, k, &t);
      expect_text(&t, "", "collectives");
    }
}

/* No value as large as the logits is ever moved, nor exists whole. */
static void expect_logits_split(const ZpPlan *p) {
  uint32_t vocab = zg_axis_find(p->graph, "vocab");
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (ZpPhase k = ZP_FWD; k <= ZP_BWD; k++) {
      uint32_t n;
      const ZpNode *nodes = phase_nodes(&p->programs.segments[s], k, &n);
      for (uint32_t i = 0; i < n; i++)
        for (int j = 0; j < nodes[i].call.nout; j++) {
          const ZpValue *v = &p->programs.segments[s].values[nodes[i].out[j]];
          if (!zg_type_has(&v->type, (uint16_t)vocab)) continue;
          cr_expect(nodes[i].dims == 0, "%s moves %s", zg_op_info[nodes[i].call.op].text, "logits or table");
          for (int a = 0; a < v->type.naxes; a++)
            cr_expect(v->axis[a] != vocab || v->size[a] < p->layout.axis_size[vocab],
                      "vocab is whole somewhere");
        }
    }
}

/* Shoeybi et al. 2019: two all-reduces a layer forward, two backward. */
Test(shard, megatron) {
  static const struct {
    const char *name, *options, *recipe;
  } cases[] = {
      {"gpt2", small_gpt, "mesh tensor = 2 split head, ffn, vocab over tensor"},
      {"gpt2", small_gpt, "mesh tensor = 4 split head, ffn, vocab over tensor"},
      {"llama3", small_llama, "mesh tensor = 8 split kv, ffn, vocab over tensor"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m;
    Plan q = plan_with(&m, cases[i].name, cases[i].options, cases[i].recipe);
    expect_collectives(q.p, "layer", 0, ZP_FWD, "all_reduce tensor: " X "\nall_reduce tensor: " X "\n");
    expect_collectives(q.p, "layer", 0, ZP_BWD, "all_reduce tensor: " X "\nall_reduce tensor: " X "\n");
    expect_collectives(q.p, NULL, 0, ZP_FWD, "all_reduce tensor: " X "\n"); /* the table's rows */
    expect_collectives(q.p, NULL, 0, ZP_BWD, "");
    /* the loss: maximum, sum and the target's logit, one number a token each */
    expect_collectives(q.p, NULL, 1, ZP_FWD,
                       "all_reduce(max) tensor: real[batch, seq]\n"
                       "all_reduce tensor: f32[batch, seq]\n"
                       "all_reduce tensor: f32[batch, seq]\n");
    expect_collectives(q.p, NULL, 1, ZP_BWD, "all_reduce tensor: " X "\n");
    expect_logits_split(q.p);
    close_both(&q, &m);
  }
}

/* Korthikanti et al. 2022: each all-reduce becomes an all-gather and a reduce-scatter; backward gathers two
 * inputs again rather than keep them whole, and norm gains are partial over the dim. */
Test(shard, sequence_parallel) {
#define AG "all_gather tensor: " X " seq\n"
#define RS "reduce_scatter tensor: " X " seq\n"
  static const struct {
    const char *name, *options, *recipe;
  } cases[] = {
      {"gpt2", small_gpt, "mesh tensor = 2 split head, ffn, vocab over tensor else seq"},
      {"llama3", small_llama, "mesh tensor = 4 split kv, ffn, vocab over tensor else seq"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m;
    Plan q = plan_with(&m, cases[i].name, cases[i].options, cases[i].recipe);
    expect_collectives(q.p, "layer", 0, ZP_FWD, AG RS AG RS);
    expect_collectives(q.p, "layer", 0, ZP_BWD, AG AG RS AG AG RS);
    expect_collectives(q.p, NULL, 0, ZP_FWD, RS);
    expect_collectives(q.p, NULL, 0, ZP_BWD, AG);
    expect_collectives(q.p, NULL, 1, ZP_FWD,
                       AG "all_reduce(max) tensor: real[batch, seq]\n"
                          "reduce_scatter tensor: f32[batch, seq] seq\n"
                          "local_slice tensor: real[batch, seq] seq\n"
                          "reduce_scatter tensor: f32[batch, seq] seq\n");
    expect_collectives(
        q.p, NULL, 1, ZP_BWD,
        "all_gather tensor: f32[batch, seq] seq\nall_gather tensor: f32[batch, seq] seq\n" AG RS);
    expect_logits_split(q.p);
    close_both(&q, &m);
  }
}

Test(shard, sequence_parallel_gains) {
  Model m;
  Plan q =
      plan_with(&m, "llama3", small_llama,
                "mesh data = 2, tensor = 4 split batch over data split kv, ffn, vocab over tensor else seq");
  expect_partial(&q, "layer.*.norm1.g", "data x tensor");
  expect_partial(&q, "layer.*.norm2.g", "data x tensor");
  expect_partial(&q, "norm.g", "data x tensor");
  expect_partial(&q, "layer.*.attn.wq", "data");
  expect_partial(&q, "layer.*.mlp.down", "data");
  expect_partial(&q, "embed_in", "data");
  close_both(&q, &m);
  q = plan_with(&m, "llama3", small_llama,
                "mesh data = 2, tensor = 4 split batch over data split kv, ffn, vocab over tensor");
  expect_partial(&q, "layer.*.norm1.g", "data"); /* without seq every rank of the dim saw all of it */
  close_both(&q, &m);
}

/* Biases of a split product are split with it; those of a summed one see complete gradients. */
Test(shard, biases) {
  Model m;
  Plan q = plan_with(&m, "gpt2", small_gpt, "mesh tensor = 2 split head, ffn, vocab over tensor else seq");
  const ZpPlan *p = q.p;
  uint32_t head = zg_axis_find(p->graph, "head");
  const ZpBucket *k = bucket_with(p, "layer.*.attn.bq");
  for (uint32_t i = 0; i < k->nslices; i++)
    if (!strcmp(p->graph->params[k->slices[i].param].path, "layer.*.attn.bq")) {
      cr_assert_eq(k->slices[i].state[0].kind, 'S');
      cr_assert_eq(k->slices[i].state[0].axis, head);
      cr_assert_eq(k->slices[i].n, 768 / 2);
    }
  cr_assert_eq(k->replicas, 0);
  expect_partial(&q, "layer.*.attn.bo", "tensor");
  expect_partial(&q, "layer.*.mlp.b2", "tensor");
  expect_partial(&q, "wpe", "tensor");
  close_both(&q, &m);
}

/* Li et al. 2020: nothing moves within a micro-batch; every gradient is partial over data. */
Test(shard, data_parallel) {
  static const struct {
    const char *name, *options, *recipe, *dims;
  } cases[] = {
      {"gpt2", small_gpt, "mesh data = 4 split batch over data", "data"},
      {"llama3", small_llama, "mesh data = 8 split batch over data shard states over data", "data"},
      {"llama3", small_llama,
       "mesh replica = 2, data = 4 split batch over replica, data shard params, grads, states over data",
       "replica x data"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m;
    Plan q = plan_with(&m, cases[i].name, cases[i].options, cases[i].recipe);
    expect_quiet(q.p);
    for (uint32_t b = 0; b < q.p->programs.nbuckets; b++)
      cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, q.p->programs.buckets[b].partial), cases[i].dims);
    cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, q.p->layout.num_partial[0]), cases[i].dims);
    cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, q.p->layout.den_partial[0]), cases[i].dims);
    close_both(&q, &m);
  }
}

/* HSDP: shards within data, and what is left over is reduced over the replicas. */
Test(shard, hsdp) {
  Model m;
  Plan q = plan_with(
      &m, "llama3", small_llama,
      "mesh replica = 2, data = 4 split batch over replica, data shard params, grads, states over data");
  for (uint32_t b = 0; b < q.p->programs.nbuckets; b++) {
    const ZpBucket *k = &q.p->programs.buckets[b];
    cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, k->shard), "data");
    cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, k->reduces), "replica");
    cr_expect(k->gathers && k->scatters == ZP_SCATTER_EACH_MICROBATCH && !k->republishes);
  }
  uint32_t scattered = 0, reduced = 0;
  const ZpStage *st = &q.p->programs.stages[0];
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    bool scatter = in->op == ZP_I_SCATTER_GRADS, reduce = in->op == ZP_I_REDUCE_GRADS;
    scattered += scatter;
    reduced += reduce;
    if (scatter || reduce)
      cr_expect_str_eq(zp_dims_text(&q.p->layout.mesh, q.a, in->dims), scatter ? "data" : "replica");
  }
  cr_expect_eq(reduced, st->nheld);   /* once a step */
  cr_expect_eq(scattered, st->nheld); /* one micro-batch: 8 = 1 x 2 x 4 */
  close_both(&q, &m);
}

/* More ranks than kv heads: kv over the first factor, query heads that share one over the second. Keys and
 * values are computed alike by the ranks that share them (or each for its part of the sequence), and their
 * cotangents summed over these. */
Test(shard, grouped_queries) {
#define KV "real[batch, seq, kv, hd]"
#define BOTH "tensor.kv x tensor.grp: "
  Model m;
  Plan q = plan_with(&m, "llama3", small_llama, "mesh tensor = 16 split kv*grp, ffn, vocab over tensor");
  cr_assert_eq(q.p->layout.mesh.ndims, 2);
  cr_assert_str_eq(q.p->layout.mesh.dim[0].name, "tensor.kv");
  cr_assert_eq(q.p->layout.mesh.dim[0].size, 8);
  cr_assert_str_eq(q.p->layout.mesh.dim[1].name, "tensor.grp");
  cr_assert_eq(q.p->layout.mesh.dim[1].size, 2);
  expect_collectives(q.p, "layer", 0, ZP_FWD, "all_reduce " BOTH X "\nall_reduce " BOTH X "\n");
  expect_collectives(q.p, "layer", 0, ZP_BWD,
                     "all_reduce " BOTH X "\n"
                     "all_reduce tensor.grp: " KV "\n"
                     "all_reduce tensor.grp: " KV "\n"
                     "local_pad tensor.grp: " X
                     "\n" /* the ways of k and v, complete over grp; then with that of q */
                     "all_reduce " BOTH X "\n");
  expect_partial(&q, "layer.*.attn.wk", "nothing");
  close_both(&q, &m);
  q = plan_with(&m, "llama3", small_llama, "mesh tensor = 16 split kv*grp, ffn, vocab over tensor else seq");
  expect_collectives(q.p, "layer", 0, ZP_FWD,
                     "all_gather " BOTH X " seq\n"
                     "local_slice tensor.grp: " X " seq\n"
                     "all_gather tensor.grp: " KV " seq\n"
                     "all_gather tensor.grp: " KV " seq\n"
                     "reduce_scatter " BOTH X " seq\n"
                     "all_gather " BOTH X " seq\n"
                     "reduce_scatter " BOTH X " seq\n");
  expect_collectives(q.p, "layer", 0, ZP_BWD,
                     "all_gather " BOTH X " seq\n"
                     "all_gather " BOTH X " seq\n"
                     "reduce_scatter " BOTH X " seq\n"
                     "all_gather " BOTH X " seq\n"
                     "all_gather tensor.grp: " KV " seq\n"
                     "all_gather tensor.grp: " KV " seq\n"
                     "reduce_scatter tensor.grp: " KV " seq\n"
                     "all_gather " BOTH X " seq\n"
                     "local_slice tensor.grp: " X " seq\n"
                     "reduce_scatter tensor.grp: " KV " seq\n"
                     "local_pad tensor.grp: " X " seq\n" /* the ways of k and v */
                     "reduce_scatter " BOTH X " seq\n");
  expect_partial(&q, "layer.*.attn.wk", "tensor.grp");
  expect_partial(&q, "layer.*.attn.wq", "nothing");
  expect_partial(&q, "layer.*.norm1.g", "tensor.kv x tensor.grp");
  expect_logits_split(q.p);
  close_both(&q, &m);
}

/* kv alone, and kv*grp where kv is enough, are the same plan. */
Test(shard, product_of_one) {
  Model m;
  Plan q = plan_with(&m, "llama3", small_llama, "mesh tensor = 8 split kv*grp, ffn, vocab over tensor");
  cr_assert_eq(q.p->layout.mesh.ndims, 1);
  cr_assert_str_eq(q.p->layout.mesh.dim[0].name, "tensor");
  expect_collectives(q.p, "layer", 0, ZP_BWD, "all_reduce tensor: " X "\nall_reduce tensor: " X "\n");
  close_both(&q, &m);
}

/* One op needs seq whole, the next one embed: the tensor is re-split there and back, with a warning, and
 * backward. */
Test(shard, all_to_all) {
  Model m = model_open(NULL,
                       "model M() {\n"
                       "  axis batch, seq\n  axis embed = 16, vocab = 8\n"
                       "  input x: real[batch, seq, embed]\n  input t: index(vocab)[batch, seq]\n"
                       "  param g[embed] = 1\n  param v[embed, vocab] ~ normal(1)\n"
                       "  y = softmax[embed](softmax[seq](x * g))\n"
                       "  loss xent[vocab](dot[embed](y, v), t) per known(t)\n}\n",
                       NULL);
  Plan q = plan_of(m.g, "mesh d = 4 split seq, embed over d bind batch = 8, seq = 128");
  /* the parameters are laid out by embed and wanted whole where seq is split */
  expect_collectives(q.p, NULL, 0, ZP_FWD,
                     "all_gather d: real[embed] embed\n"
                     "all_to_all d: " X " seq to embed\n"
                     "all_to_all d: " X " embed to seq\n"
                     "all_gather d: real[embed, vocab] embed\n");
  expect_collectives(q.p, NULL, 0, ZP_BWD,
                     "all_gather d: real[embed, vocab] embed\n"
                     "reduce_scatter d: real[embed, vocab] embed\n"
                     "all_to_all d: " X " seq to embed\n"
                     "all_to_all d: " X " embed to seq\n"
                     "reduce_scatter d: real[embed] embed\n");
  cr_assert(strstr(plan_messages(&q), "Z0611"));
  cr_assert_eq(zl_errors(q.d), 0);
  const ZpValue *v = NULL; /* an all_to_all keeps the number of elements */
  const ZpList *l = &q.p->programs.segments[0].list[ZP_FWD];
  for (uint32_t i = 0; i < l->n; i++)
    if (l->nodes[i].call.op == ZG_OP_ALL_TO_ALL) {
      const ZpNode *k = &l->nodes[i];
      v = &q.p->programs.segments[0].values[k->out[0]];
      cr_assert_eq(v->bytes, q.p->programs.segments[0].values[k->in[0]].bytes);
      cr_assert_eq(k->scratch_bytes, 2 * v->bytes);
    }
  close_both(&q, &m);
}

/* What moves between ranks says why, in words. */
static void expect_causes(const ZgGraph *g, const char *recipe, const char *label, uint32_t part,
                          const char *expect) {
  Plan q = plan_of(g, recipe);
  const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, label, part)];
  ZbText t = {0};
  const ZpList *l = &s->list[ZP_FWD];
  for (uint32_t i = 0; i < l->n; i++)
    if (l->nodes[i].dims)
      zb_text_add(&t, "%s: %s\n", zg_op_info[l->nodes[i].call.op].text,
                  l->nodes[i].cause ? l->nodes[i].cause : "-");
  expect_text(&t, expect, "causes");
  plan_close(&q);
}

Test(shard, causes) {
  Model m = model_open("gpt2", NULL, small_gpt);
  expect_causes(m.g, "mesh d = 2 split ffn over d bind batch = 8, seq = 128", "layer", 0,
                "all_reduce: dot[ffn] leaves partial sums over d; add needs them complete\n");
  expect_causes(m.g, "mesh d = 2 split ffn over d else seq bind batch = 8, seq = 128", "layer", 0,
                "all_gather: seq (of add) is split over d; attend[seq, hd] needs it whole\n"
                "all_gather: seq (of add) is split over d; attend[seq, hd] needs it whole\n"
                "all_gather: seq (of add) is split over d; dot[embed] needs it whole\n"
                "reduce_scatter: dot[ffn] leaves partial sums over d; add needs them complete\n");
  expect_causes(m.g, "mesh d = 2 split vocab over d bind batch = 8, seq = 128", NULL, 1,
                "all_reduce: peak[vocab] leaves partial maxima over d; xent_sums[vocab] needs them complete\n"
                "all_reduce: xent_sums[vocab] leaves partial sums over d; log needs them complete\n"
                "all_reduce: xent_sums[vocab] leaves partial sums over d; sub needs them complete\n");
  model_close(&m);
}

/* A warning points to the directive that splits, wherever that stands. */
Test(shard, resplit_is_shown) {
  Model m = model_open("gpt2", NULL, small_gpt);
  static const char *const recipes[] = {
      "mesh e = 2, d = 2\nsplit embed, seq over d\nsplit batch over e\nbind batch = 8, seq = 128",
      "mesh e = 2, d = 2\nsplit batch over e\nsplit embed, seq over d\nbind batch = 8, seq = 128"};
  for (int i = 0; i < 2; i++) {
    Plan q = plan_of(m.g, recipes[i]);
    cr_expect(strstr(plan_messages(&q), i ? "test.zug:4:1" : "test.zug:3:1"), "%s", plan_messages(&q));
    plan_close(&q);
  }
  model_close(&m);
}

/* seq over two dims, one of which splits something else in the product: the slower cut changes under the
 * faster one. */
Test(shard, cut_under_a_cut) {
  Model m = model_open("gpt2", NULL, small_gpt);
  Plan q = plan_of(m.g, "mesh d0 = 2, d1 = 2 split head, ffn, vocab over d0 else seq split seq over d1\n"
                        "bind batch = 8, seq = 128");
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "");
  /* x is S(seq) over both; the product with w1 wants seq whole over d0 and still split over d1 */
  ZbText t = {0};
  put_collectives(q.p, segment_of(q.p, "layer", 0), ZP_FWD, &t);
  cr_assert(strstr(t.s, "all_gather d0 x d1: " X " seq\nlocal_slice d1: " X " seq\n"), "%s", t.s);
  cr_assert(strstr(t.s, "reduce_scatter d0: " X " seq\n"), "%s", t.s);
  zb_text_free(&t);
  close_both(&q, &m);
}

/* What needs a true size refuses a padded axis, and what cannot be split says so. */
Test(shard, refusals) {
  static const struct {
    const char *recipe, *code;
  } cases[] = {
      {"mesh d = 2 split hd over d", "Z0302"},
      {"mesh d = 2", "Z0306"},
      {"mesh d = 3 split embed over d", "Z0301"},
      {"mesh d = 16 split kv over d", "Z0303"},
      {"mesh d = 2 split heads over d", "Z0304"},
      {"mesh d = 2 split batch over d pad embed to 4095", "Z0308"},
      {"mesh d = 2 split batch over d micro 3", "Z0403"},
      {"mesh d = 8 stages over d by cost", "Z0404"},
      {"mesh d = 2 stages over d = [3, 2]", "Z0402"},
      {"recompute Layr", "Z0405"},
      {"limit memory 1 MB", "Z0501"},
  };
  Model m = model_open("llama3", NULL, small_llama);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *recipe =
        zb_printf(m.c.a, "%s%s", strstr(cases[i].recipe, "micro") ? "bind batch = 8, seq = 128\n" : sizes,
                  cases[i].recipe);
    Plan q = plan_try(m.g, recipe);
    cr_expect_null(q.p);
    cr_expect(strstr(plan_messages(&q), cases[i].code), "%s: %s", recipe, plan_messages(&q));
    plan_close(&q);
  }
  model_close(&m);
}

/* An operation is called as people call it. */
Test(shard, refused_by_its_name) {
  Model m = model_open(NULL,
                       "model M { axis batch, seq, d = 8\n  input x: real[batch, seq, d]\n  param g[d] = 1\n"
                       "  y = rope[seq, d](x * g, pairs = neighbours)\n  loss y * y per samples() }",
                       NULL);
  Plan q = plan_try(m.g, "mesh t = 2 split d over t bind batch = 4, seq = 8");
  cr_expect(!q.p && strstr(plan_messages(&q), "`d` cannot be split: rope (test.zug:4) needs it whole"), "%s",
            plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

/* Of many axes twelve are listed, and how many there are besides; of none more than twelve nothing is said. */
Test(shard, lists_axes) {
  static const struct {
    const char *more, *said;
  } cases[] = {{"", "its axes are `batch`, `b`, `c`, `d`, `e`, `f`, `g`, `h`, `i`, `j`, `k`, `l`\n"},
               {", m = 2", "`k`, `l` and 1 more\n"},
               {", m = 2, n = 2, o = 2", "`k`, `l` and 3 more\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbText t = {0};
    zb_text_add(&t,
                "model M { axis batch, b = 2, c = 2, d = 2, e = 2, f = 2, g = 2, h = 2, i = 2, j = 2, k = 2, "
                "l = 2%s\n"
                "  input x: real[batch, b]  param w[b] ~ normal(1)  loss x * w per samples() }",
                cases[i].more);
    Model m = model_open(NULL, t.s, NULL);
    Plan q = plan_try(m.g, "mesh r = 2 split zzz over r bind batch = 4");
    cr_expect(!q.p && strstr(plan_messages(&q), cases[i].said), "%s", plan_messages(&q));
    plan_close(&q);
    model_close(&m);
    zb_text_free(&t);
  }
}

/* Where a rank's part of an axis begins: cut by dims 0 and 2, of 2 and 5, another axis by dim 1. */
Test(shard, where_parts_begin) {
  const ZpMesh m = {.ndims = 3, .pipe = -1, .nranks = 30, .dim = {{.size = 2}, {.size = 3}, {.size = 5}}};
  ZpValue v = {.state = {{.kind = 'S', .axis = 7}, {.kind = 'S', .axis = 8}, {.kind = 'S', .axis = 7}}};
  for (int64_t rank = 0; rank < 30; rank++) {
    int64_t c[3] = {rank / 15, rank / 5 % 3, rank % 5};
    cr_expect_eq(zp_view_start(&m, &v, rank, 7, 4), (c[0] * 5 + c[2]) * 4);
    cr_expect_eq(zp_view_start(&m, &v, rank, 8, 9), c[1] * 9);
    cr_expect_eq(zp_view_start(&m, &v, rank, 6, 9), 0);
  }
  v.state[2].kind = 'R';
  cr_expect_eq(zp_view_start(&m, &v, 29, 7, 4), 4);
}
