/* Optimizer groups: which parameters are updated by what, and what of that is proved. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/models/faults.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "-D layers=4 -D heads=4 -D width=16 -D context=16 -D words=32";
static const char bind[] = "bind batch = 8, seq = 16 micro 1 ";

static uint32_t param_of(const ZgGraph *g, const char *path) {
  uint32_t i = 0;
  while (strcmp(g->params[i].path, path)) i++;
  return i;
}

static const ZpGroup *group_of(const ZpPlan *p, const char *path) {
  return &p->asked.groups[p->asked.group[param_of(p->graph, path)]];
}

/* What the group of a parameter is, with one recipe. */
Test(groups, which) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_of(
      m.g,
      zb_printf(m.c.a,
                "%soptimizer adamw(lr = 1) decay 0.1 except norm, bias, rate 0.5 for wte, layer.mlp, "
                "decay 0.2 for attn.wq, attn.bq, rate 2 for norm   optimizer sgd(lr = 0.2, momentum = 0.5) "
                "for wpe decay 0.3 rate 4 for wpe",
                bind));
  static const struct {
    const char *path;
    uint32_t optimizer;
    double rate, decay;
  } want[] = {{"wte", 0, 0.5, 0.1},
              {"wpe", 1, 4, 0.3},
              {"layer.*.mlp.w1", 0, 0.5, 0.1},
              {"layer.*.mlp.b1", 0, 0.5, 0},
              {"layer.*.attn.wq", 0, 1, 0.2},
              {"layer.*.attn.bq", 0, 1, 0.2},
              {"layer.*.attn.wk", 0, 1, 0.1},
              {"layer.*.attn.bk", 0, 1, 0},
              {"layer.*.ln1.g", 0, 2, 0},
              {"ln_f.b", 0, 2, 0}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const ZpGroup *g = group_of(q.p, want[i].path);
    cr_expect(g->optimizer == want[i].optimizer && g->rate == want[i].rate && g->decay.num == want[i].decay,
              "%s: optimizer %u, rate %g, decay %g", want[i].path, g->optimizer, g->rate, g->decay.num);
  }
  cr_expect_eq(q.p->asked.noptimizers, 2);
  cr_expect(q.p->asked.optimizers[0].states == 2 && q.p->asked.optimizers[1].states == 1);
  plan_close(&q);
  model_close(&m);
}

/* `zplan show` lists groups: each by its decay, with all its elements and some names; nothing where nothing
 * tells parameters apart. As JSON every parameter is in one group. */
static void shows(const Model *m, const char *recipe, const char *const *lines, size_t n) {
  Plan q = plan_of(m->g, zb_printf(m->c.a, "%s%s", bind, recipe));
  ZbText t = {0}, json = {0};
  zp_show(q.p, &t);
  const char *table = strstr(t.s, "\noptimizer     rate");
  cr_expect_eq(table != NULL, n > 0, "%s:\n%s", recipe, t.s);
  for (size_t i = 0; i < n && table; i++)
    cr_expect(strstr(table, lines[i]), "no `%s` in:\n%s", lines[i], table);
  zp_show_json(q.p, &json);
  cJSON *o = cJSON_Parse(json.s);
  const cJSON *group, *groups = cJSON_GetObjectItem(o, "groups");
  double elements = 0;
  int parameters = 0;
  cJSON_ArrayForEach(group, groups) {
    elements += cJSON_GetObjectItem(group, "elements")->valuedouble;
    parameters += cJSON_GetArraySize(cJSON_GetObjectItem(group, "parameters"));
    cr_expect_eq(cJSON_GetObjectItem(group, "bytes")->valuedouble,
                 4 * cJSON_GetObjectItem(group, "elements")->valuedouble);
  }
  cr_expect(elements == q.p->notes.trained && cJSON_GetArraySize(groups) == (int)q.p->asked.ngroups,
            "%s: %g elements", recipe, elements);
  if (!q.p->asked.frozen) cr_expect_eq(parameters, (int)m->g->nparams);
  cJSON_Delete(o);
  zb_text_free(&t);
  zb_text_free(&json);
  plan_close(&q);
}

Test(groups, shown) {
  Model m = model_open("gpt2", NULL, sizes);
  /* wte 32 x 16, wpe 16 x 16; a layer: 4 x 16 x 16 of attention, 2 x 16 x 64 of the MLP. */
  shows(&m, "optimizer adamw(lr = 1) decay 0.1 except norm, bias",
        (const char *const[]){"adamw     x 1        0.1       13056 ",
                              " wte, wpe, layer.*.attn.wq, layer.*.attn.wk, 4 more\n",
                              "adamw     x 1        0         "},
        3);
  shows(&m, "optimizer adamw(lr = 1) decay 0.1", (const char *const[]){"adamw     x 1        0.1 "}, 1);
  shows(&m, "optimizer adamw(lr = 1)", NULL, 0);
  shows(&m, "optimizer adamw(lr = 1) decay 0.1   optimizer sgd(lr = 1) for wpe   freeze wte",
        (const char *const[]){"sgd       x 1        0         256 ", "        768  wpe\n", "  layer.*."}, 3);
  model_close(&m);
}

Test(groups, wrong_clauses) {
  Model m = model_open("gpt2", NULL, sizes);
  static const struct {
    const char *words, *said;
  } cases[] = {
      {"optimizer adamw(lr = 1) rate 2 for wte, rate 3 for norm, wte", "both name parameter `wte`"},
      {"optimizer adamw(lr = 1) decay 0.2 for bias, decay 0 for attn",
       "both name parameter `layer.*.attn.bq`"},
      {"optimizer adamw(lr = 1) optimizer sgd(lr = 1) for wte optimizer sgd(lr = 2) for wte, wpe",
       "both name parameter `wte`"},
      {"optimizer sgd(lr = 1) for wte", "error[Z0811]: recipe r has no optimizer for `wpe`"},
      {"# no optimizer", "error[Z0811]: recipe r has no optimizer\n"},
      {"optimizer adamw(lr = 1) rate 2 for lyer", "did you mean `layer`?"},
      {"optimizer adamw(lr = 1) optimizer sgd(lr = 1) for wtf", "has the tag `wtf`"},
      {"optimizer adamw(lr = 0.5) decay 1.5, rate 2 for wte", "a rate of 1 times a decay of 1.5 is 1.5"},
      {"optimizer adamw(lr = 0.5) decay 0 to 2 over 9", "a rate of 0.5 times a decay of 2 is 1, and must be"},
      {"optimizer adamw(lr = embed / wide)", "`wide`"},
      {"optimizer adamw(lr = 1, b1 = embed / 8)", "`b1` must be at least 0 and less than 1"},
      {"optimizer adamw(lr = 1) optimizer muon(lr = 1) for matrices, wpe", "parameter `wpe` is not one"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_try(m.g, zb_printf(m.c.a, "%s%s", bind, cases[i].words));
    cr_expect(!q.p && strstr(plan_messages(&q), cases[i].said), "%s", plan_messages(&q));
    plan_close(&q);
  }
  model_close(&m);
}

/* States of two sorts are in buckets of their own; the proofs see what is updated otherwise. */
Test(groups, buckets) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_of(
      m.g,
      zb_printf(m.c.a,
                "%smesh d = 2 split batch over d shard params, grads, states over d optimizer adamw(lr = 1) "
                "rate 2 for wte optimizer sgd(lr = 1) for bias",
                bind));
  double states = 0;
  for (uint32_t i = 0; i < m.g->nparams; i++) {
    double n = m.g->params[i].segment == ZG_NONE ? 2 : 2 * 4;
    for (int a = 0; a < m.g->params[i].type.naxes; a++)
      n *= (double)m.g->axes[m.g->params[i].type.axis[a]].size;
    if (q.p->asked.groups[q.p->asked.group[i]].optimizer == 0) states += n;
  }
  cr_expect_eq(q.p->programs.stages[0].ledger.bytes[ZP_L_STATES], 4 * (uint64_t)states / 2);
  ZpBucket *b = &q.p->programs.buckets[0];
  WITH(b->slices[0].group, b->slices[0].group + 1, "is updated otherwise than the recipe says");
  WITH(b->optimizer, b->optimizer + 1, "is updated otherwise than the recipe says");
  WITH(q.p->asked.group[b->slices[0].param], q.p->asked.ngroups - 1,
       "is updated otherwise than the recipe says");
  WITH(q.p->asked.optimizers[1].states, 1, "1 states of the optimizer instead of 0");
  plan_close(&q);
  model_close(&m);
}

/* States of 8 bits: blocks are cut nowhere, and take a byte an element, four a block, and an average. */
Test(groups, codes) {
  Model m = model_open("gpt2", NULL, sizes);
  for (int average = 0; average < 2; average++) {
    Plan q = plan_of(m.g, zb_printf(m.c.a,
                                    "%smesh d = 2 split batch over d shard params, grads, states over d %s "
                                    "optimizer adamw(lr = 1, bits = 8) optimizer sgd(lr = 1) for bias",
                                    bind, average ? "average 0.5" : ""));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < q.p->programs.nbuckets; i++) {
      ZpBucket *k = &q.p->programs.buckets[i];
      uint64_t n = k->elems / 2, copies = k->segment == ZP_NONE ? 1 : 4;
      bool coded = k->optimizer == 0;
      cr_expect((zp_part_elem(q.p, k, 1) == ZK_DYN8) == coded);
      for (uint32_t j = 0; j < k->nslices && coded; j++) cr_expect_eq(k->slices[j].at % 256, 0);
      cr_expect(!coded || n % 256 == 0);
      uint64_t each = (coded ? 2 * n + n / 32 : 0) + (average ? 4 * n : 0);
      cr_expect_eq(zp_state_bytes(q.p, i), (each + 63) / 64 * 64, "%s", k->name);
      bytes += copies * zp_state_bytes(q.p, i);
    }
    cr_expect_eq(q.p->programs.stages[0].ledger.bytes[ZP_L_STATES], bytes);
    ZpBuf *b = q.p->programs.stages[0].prog.bufs;
    while (b->kind != ZP_B_STATE) b++;
    ZbErr err = {0};
    b->bytes -= 64;
    cr_expect(!zp_check(q.p, &err) && strstr(err.text, "bytes, but needs"), "%s", err.text);
    plan_close(&q);
  }
  Plan q = plan_try(m.g, zb_printf(m.c.a, "%soptimizer adamw(lr = 1, bits = 16)", bind));
  cr_expect(!q.p && strstr(plan_messages(&q), "`bits` must be 32 or 8"));
  plan_close(&q);
  model_close(&m);
}
