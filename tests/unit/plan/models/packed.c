/* Weights in 8 and 4 bits: which parameters have them, how many bytes that is, what is refused, and that plans which
 * say it otherwise are rejected. */
#include "tests/unit/plan/models/faults.h"

#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "-D layers=4 -D heads=4 -D width=64 -D context=32 -D words=48";
static const char bind[] = "bind batch = 8, seq = 32 micro 1 ";

static ZpBucket *bucket_of(const ZpPlan *p, const char *path) {
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    for (uint32_t k = 0; k < p->programs.buckets[b].nslices; k++)
      if (!strcmp(p->graph->params[p->programs.buckets[b].slices[k].param].path, path))
        return &p->programs.buckets[b];
  cr_assert_fail("no parameter %s", path);
  return NULL;
}

/* Matrices have the format, and nothing else; lists name them, and others are said of the rest. */
Test(packed, which) {
  Model m = model_open("gpt2", NULL, sizes);
  static const struct {
    const char *said, *path;
    ZkElem elem;
  } cases[] = {{"weights int4", "layer.*.attn.wq", ZK_INT4_64},
               {"weights int4", "layer.*.mlp.w2", ZK_INT4_64},
               {"weights int4", "layer.*.mlp.b1", ZK_F32},
               {"weights int4", "ln_f.g", ZK_F32},
               {"weights int4", "wte", ZK_INT8_64}, /* it is looked up */
               {"weights int4 group 32 for wte", "wte", ZK_INT4_32},
               {"weights int4 group 32 for wte", "layer.*.attn.wq", ZK_F32},
               {"weights int8 group 32 for layer except mlp", "layer.*.attn.wo", ZK_INT8_32},
               {"weights int8 group 32 for layer except mlp", "layer.*.mlp.w1", ZK_F32},
               {"weights nf4, weights int8 for attn", "layer.*.attn.wk", ZK_INT8_64},
               {"weights nf4, weights int8 for attn", "layer.*.mlp.w1", ZK_NF4_64},
               {"compute bf16, weights nf4 except attn", "layer.*.attn.wk", ZK_BF16}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_forward(m.g, zb_printf(m.c.a, "%sprecision %s", bind, cases[i].said), NULL);
    ZkElem e = (ZkElem)bucket_of(q.p, cases[i].path)->elem;
    cr_expect_eq(e, cases[i].elem, "%s: %s is %s", cases[i].said, cases[i].path, zk_elem_info[e].text);
    plan_close(&q);
  }
  model_close(&m);
}

/* A matrix for each expert is packed, that which chooses among them only where it is named. */
Test(packed, experts) {
  Model m =
      model_open("mixtral", NULL,
                 "-D layers=2 -D heads=4 -D kv_heads=2 -D width=64 -D inner=96 -D words=64 -D experts=4");
  for (int named = 0; named < 2; named++) {
    const char *words = named ? "for router" : "";
    Plan q = plan_forward(
        m.g, zb_printf(m.c.a, "bind batch = 2, seq = 8 precision weights int4 group 32 %s", words), NULL);
    for (uint32_t i = 0; i < q.p->graph->nparams; i++) {
      const char *path = q.p->graph->params[i].path;
      bool router = strstr(path, "router"), expert = strstr(path, "gate");
      if (!router && !expert) continue;
      cr_expect_eq(bucket_of(q.p, path)->elem, router == named ? ZK_INT4_32 : ZK_F32, "%s %s", path, words);
    }
    plan_close(&q);
  }
  model_close(&m);
}

/* Of 64 elements of a column int4 takes 34 bytes, int8 66; a rank of two has half of each matrix, or half of the bytes of
 * all, which travel as they are, and all layouts pass the proofs. */
Test(packed, bytes) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=128 -D context=32 -D words=64");
  static const char *const layouts[] = {
      "", "mesh tensor = 2 split head, ffn, vocab over tensor else seq ",
      "mesh data = 2 split batch over data shard grads, states over data ",
      "mesh pipe = 2 stages over pipe by cost ",
      "mesh data = 2 split batch over data shard params, grads, states over data "};
  for (int i = 0; i < 5; i++) {
    Plan q =
        plan_of(m.g, zb_printf(m.c.a, "%s%sfreeze layer except norm, bias precision weights int4 for layer",
                               bind, layouts[i]));
    const ZpBucket *k = bucket_of(q.p, "layer.*.attn.wq");
    uint64_t elems = 12 * 128 * 128 / (i == 1 ? 2 : 1);
    cr_expect(k->frozen && k->elems == elems, "%llu elements", (unsigned long long)k->elems);
    cr_expect_eq(zp_param_bytes(q.p, (uint32_t)(k - q.p->programs.buckets)),
                 elems / 64 * 34 / (i == 4 ? 2 : 1));
    uint32_t gathers = 0;
    const ZpStage *st = &q.p->programs.stages[0];
    for (uint32_t n = 0; n < st->prog.ninstrs; n++) {
      const ZpInstr *in = &st->prog.instrs[n];
      if (in->op != ZP_I_GATHER_PARAMS || &q.p->programs.buckets[st->held[in->held].bucket] != k) continue;
      cr_expect_eq(in->bytes, elems / 64 * 34);
      gathers++;
    }
    cr_expect_eq(gathers > 0, i == 4);
    cr_expect_eq(zp_master_bytes(q.p, (uint32_t)(k - q.p->programs.buckets)), 0);
    plan_close(&q);
  }
  model_close(&m);
}

Test(packed, refused) {
  Model m = model_open("gpt2", NULL, sizes);
  static const struct {
    const char *recipe, *said, *help;
  } cases[] = {{"precision weights int8 for layer",
                "parameter `layer.*.attn.wq` is trained, which needs more than int8 has", "freeze it"},
               {"freeze attn precision weights int8 for layer", "parameter `layer.*.mlp.w1` is trained",
                "add `except`"},
               {"precision weights int8", "is trained, which needs more", "freeze it"},
               {"freeze layer precision weights int8 for ln1", "nothing of this can be stored in int8",
                "name matrices"},
               {"freeze layer precision weights int8 group 128 for layer",
                "groups of 128 do not divide the 64 elements of `embed`", "write `group 64`"},
               {"mesh tensor = 2 split head, ffn over tensor freeze layer precision weights int8 for layer",
                "groups of 64 do not divide the 32 elements on a rank of `head` x `hd`", "write `group 32`"},
               {"mesh tensor = 4 split head, ffn over tensor freeze layer precision weights int8 for layer",
                "groups of 64 do not divide the 16 elements on a rank of `head` x `hd`", "split less"},
               {"freeze layer precision weights int8 for attn, weights int4 for wq",
                "this and another precision both name parameter `layer.*.attn.wq`",
                "name each parameter once"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_try(m.g, zb_printf(m.c.a, "%s%s", bind, cases[i].recipe));
    const char *said = plan_messages(&q);
    cr_expect(!q.p && strstr(said, cases[i].said) && strstr(said, cases[i].help), "%s\n%s", cases[i].recipe,
              said);
    plan_close(&q);
  }
  model_close(&m);
}

/* Plans that say otherwise how packed weights lie, or who has them, are rejected. */
Test(packed, mutants) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_of(
      m.g, zb_printf(m.c.a, "%sfreeze layer except norm, bias precision weights int4 for layer", bind));
  ZpBucket *k = bucket_of(q.p, "layer.*.attn.wo");
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  ZpValue *v = NULL;
  for (uint32_t i = 0; i < s->nvalues; i++)
    if (s->values[i].param != ZP_NONE &&
        !strcmp(q.p->graph->params[s->values[i].param].path, "layer.*.attn.wo"))
      v = &s->values[i];
  cr_assert(v && v->summed == 2 && v->elem == ZK_INT4_64); /* it sums over heads and their elements */
  accepts(q.p);
  uint32_t param = v->param;
  WITH(v->summed, 1, "");
  WITH(v->bytes, v->bytes + 64, "");
  WITH(v->elem, ZK_INT4_32, "");
  WITH(v->elem, ZK_NF4_64, "");
  WITH(k->elem, ZK_INT4_32, "");
  WITH(k->slices[0].takes, k->slices[0].takes + 64 * 64, "");
  WITH(q.p->asked.packed[param].elem, ZK_INT4_32, "");
  WITH(q.p->asked.packed[param].elem, ZK_NONE, "");
  WITH(q.p->asked.packed[param].role[0], ZP_ROWS, "is packed along axes that dot does not sum over");
  WITH(q.p->asked.packed[param].role[2], ZP_COLS, "is packed along axes that dot does not sum over");
  WITH(q.p->asked.frozen[param], false, "");
  uint16_t axis = v->axis[1];
  v->axis[1] = v->axis[2], v->axis[2] = axis;
  rejects(q.p, "");
  plan_close(&q);
  model_close(&m);
}
