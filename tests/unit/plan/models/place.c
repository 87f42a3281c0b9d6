/* Where values lie: every recipe of the examples by brute force (brute.c), all-reduces in place exactly where
 * their operand dies, and little room lost. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct {
  const char *name, *options;
} models[] = {
    {"mlp", "-D inputs=32 -D hidden=16 -D classes=8"},
    {"gpt2", "-D layers=12 -D heads=4 -D width=32 -D context=128 -D words=100"},
    {"llama3", "-D layers=32 -D heads=32 -D kv_heads=8 -D width=64 -D inner=32 -D words=96"},
};

/* `recipe` of examples/recipes.zug, if it is for this model. */
static ZpPlan *plan_example(ZbArena *a, const ZgGraph *g, const char *recipe) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *program = zl_load(a, s, d, ZUG_SRC "/examples/recipes.zug", NULL);
  const ZlRecipe *r = zl_recipe(program, d, recipe);
  cr_assert(r);
  if (!r->model || strcmp(r->model, g->model)) return NULL;
  ZpOptions o = {.threads = 1};
  ZpPlan *p = zp_plan(a, g, r, d, &o);
  ZbText t = {0};
  zl_print_text(d, &t);
  if (!p) cr_assert_fail("%s: %s", recipe, t.s);
  zb_text_free(&t);
  return p;
}

Test(place, examples) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *program = zl_load(a, s, d, ZUG_SRC "/examples/recipes.zug", NULL);
  ZlNames names = zl_recipe_names(program);
  uint32_t plans = 0;
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    Model x = model_open(models[m].name, NULL, models[m].options);
    for (uint32_t i = 0; i < names.n; i++) {
      if (!strncmp(names.at[i].s, "demo", 4)) continue; /* of another vocabulary */
      ZbArena *b = zb_arena_new();
      ZpPlan *p = plan_example(b, x.g, names.at[i].s);
      if (p) {
        const char *wrong = plan_wrong(p, b);
        cr_expect_str_eq(wrong, "", "%s: %s", names.at[i].s, wrong);
        plans++;
      }
      zb_arena_free(b);
    }
    model_close(&x);
  }
  cr_assert_geq(plans, 30);
  zb_arena_free(a);
}

static bool read_later(const ZpNode *nodes, uint32_t n, uint32_t from, uint32_t value) {
  for (uint32_t i = from; i < n; i++)
    for (int k = 0; k < nodes[i].call.nin; k++)
      if (nodes[i].in[k] == value) return true;
  return false;
}

Test(place, all_reduce_in_place) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D words=1024");
  Plan q = plan_of(m.g, "mesh d = 2 split head, ffn, vocab over d bind batch = 4, seq = 16");
  uint32_t in_place = 0;
  for (uint32_t s = 0; s < m.g->nsegments; s++)
    for (ZpPhase k = ZP_FWD; k <= ZP_BWD; k++) {
      uint32_t n;
      const ZpNode *nodes = phase_nodes(&q.p->programs.segments[s], k, &n);
      for (uint32_t i = 0; i < n; i++) {
        if (nodes[i].call.op != ZG_OP_ALL_REDUCE) continue;
        const ZpValue *x = &q.p->programs.segments[s].values[nodes[i].in[0]],
                      *y = &q.p->programs.segments[s].values[nodes[i].out[0]];
        bool dies = !read_later(nodes, n, i + 1, nodes[i].in[0]),
             temps = x->at.space == ZP_AT_TEMP && y->at.space == ZP_AT_TEMP;
        bool same = temps && x->at.offset == y->at.offset;
        cr_expect_eq(same, temps && dies);
        in_place += same;
      }
    }
  cr_assert_geq(in_place, 4);
  plan_close(&q);
  model_close(&m);
}

/* The largest tensors of a language model: the gradient of the logits lies where the logits were saved. */
Test(place, logits_and_their_gradient) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D words=1024");
  Plan q = plan_of(m.g, "bind batch = 2, seq = 64");
  int found = 0;
  for (uint32_t s = 0; s < m.g->nsegments; s++)
    for (uint32_t i = 0; i < q.p->programs.segments[s].list[ZP_BWD].n; i++) {
      const ZpNode *k = &q.p->programs.segments[s].list[ZP_BWD].nodes[i];
      if (k->call.op != ZG_OP_XENT_GRAD) continue;
      const ZpLoc *z = &q.p->programs.segments[s].values[k->in[0]].at,
                  *dz = &q.p->programs.segments[s].values[k->out[0]].at;
      cr_expect(z->space == ZP_AT_SAVED && dz->space == ZP_AT_SAVED && z->offset == dz->offset);
      found++;
    }
  cr_assert_eq(found, 1);
  plan_close(&q);
  model_close(&m);
}

/* No packing can do with less than what is alive at once; ours needs little more. */
static double loss_of(const ZpSegment *s, ZpPhase phase, uint64_t room) {
  uint32_t n;
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  uint64_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t live = zb_round_up(nodes[i].scratch_bytes, 64);
    for (uint32_t v = 0; v < s->nvalues; v++) {
      const ZpValue *x = &s->values[v];
      bool before = false;
      for (uint32_t k = 0; k <= i && x->at.space == ZP_AT_TEMP && !before; k++)
        for (int j = 0; j < nodes[k].call.nout; j++) before |= nodes[k].out[j] == v;
      bool mine = false, in_place = false;
      for (int j = 0; j < nodes[i].call.nin; j++) {
        const ZpValue *y = &s->values[nodes[i].in[j]];
        in_place |= nodes[i].in[j] != v && y->at.space == ZP_AT_TEMP && y->at.offset == x->at.offset;
      }
      for (int j = 0; j < nodes[i].call.nout; j++) mine |= nodes[i].out[j] == v;
      in_place &= mine; /* counted as the operand */
      if (before && !in_place && (mine || read_later(nodes, n, i, v))) live += zb_round_up(x->bytes, 64);
    }
    if (live > most) most = live;
  }
  cr_assert_leq(most, room);
  return most ? (double)room / (double)most : 1;
}

Test(place, packs_tightly) {
  static const char *const recipes[] = {"", "mesh d = 2 split %s, ffn, vocab over d",
                                        "mesh d = 2 split %s, ffn, vocab over d else seq",
                                        "precision compute bf16 recompute Layer.attn"};
  for (size_t m = 1; m < 3; m++) {
    Model x = model_open(models[m].name, NULL, m == 1 ? "-D layers=2 -D words=1024" : "-D layers=2");
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
      ZbText t = {0};
      zb_text_add(&t, "bind batch = 2, seq = 64\n");
      zb_text_add(&t, "%.*s", (int)strcspn(recipes[i], "%"), recipes[i]);
      if (strchr(recipes[i], '%'))
        zb_text_add(&t, "%s%s", m == 1 ? "head" : "kv", strchr(recipes[i], '%') + 2);
      Plan q = plan_of(x.g, t.s);
      for (uint32_t s = 0; s < x.g->nsegments; s++) {
        const ZpSegment *g = &q.p->programs.segments[s];
        double f = loss_of(g, ZP_FWD, g->list[ZP_FWD].temp), b = loss_of(g, ZP_BWD, g->list[ZP_BWD].temp);
        cr_expect(f < 1.15 && b < 1.15, "%s segment %u: %.2f forward, %.2f backward of what is alive", t.s, s,
                  f, b);
      }
      zb_text_free(&t);
      plan_close(&q);
    }
    model_close(&x);
  }
}

/* What is before a repeat that begins the model has no values, nor has an empty repeat. Only a sanitizer sees
 * what is done with tables of none. */
Test(place, segments_without_values) {
  Model m = model_open(NULL,
                       "model M { axis batch, a = 4 input x: real[batch, a] param w[a] = 1 h = x\n"
                       "repeat 2 { } loss h * w per samples() }",
                       NULL);
  Plan q = plan_of(m.g, "bind batch = 4");
  cr_assert(q.p->programs.segments[0].nvalues == 0 && q.p->programs.segments[1].nvalues == 0);
  cr_expect_str_eq(plan_wrong(q.p, m.c.a), "");
  plan_close(&q);
  model_close(&m);
}
