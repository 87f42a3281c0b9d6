/* Whole plans, their tables and their times, against what they were: no change of the planner goes unseen. A line of
 * plans.expect is a plan, as digests of what it is made of; one of times.expect a step of it, in seconds. `make
 * regenerate-whole` writes them anew: lines that change without a reason are a mistake. */
#include "runtime/plan/output/page.h"
#include "runtime/plan/text.h"
#include "tests/unit/golden.h"
#include "tests/unit/compiler/load.h"
#include "tests/unit/plan/models/recipes.h"
#include "tests/unit/plan/whole/whole.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is planned ----------------------------------------------------------------------------------- */
/* Some scratch, by the call alone: that of a machine's kernels would make the lines those of that machine. */
static size_t some_scratch(const ZkCall *call, int threads) {
  return (size_t)threads * 96 * (size_t)(call->nin + 2 * call->nout + call->op % 5);
}

/* As a device that fuses what devices do. */
static bool some_support(const ZkCall *call) {
  switch (call->op) {
  case ZG_OP_POINTWISE:
  case ZG_OP_DOT:
  case ZG_OP_DOT_BIAS_GRAD:
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_NORMALIZE_GRAD_SUMS:
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return true;
  default: return false;
  }
}

/* How a recipe is planned: as for a CPU, or for a device that has streams and fused kernels. */
typedef struct {
  const char *name;
  ZpOptions o;
} Way;
static const Way ways[] = {
    {"cpu", {.scratch = some_scratch, .threads = 2}},
    {"gpu",
     {.scratch = some_scratch, .threads = 1, .supports = some_support, .pins = true, .checkpoints = true}},
    {"eval", {.scratch = some_scratch, .threads = 1, .forward_only = true, .outputs = true}},
};
enum { NWAYS = sizeof ways / sizeof *ways };

/* Recipes of a file, each for the model that it names. */
typedef struct {
  ZbArena *a;
  ZlSources *s;
  ZlDiags *d;
  ZlProgram *p;
  ZlNames names;
} Recipes;

static Recipes recipes_open(const char *file) {
  Recipes r = {.a = zb_arena_new()};
  r.s = zl_sources_new(r.a);
  r.d = zl_diags_new(r.a, r.s);
  cr_assert(chdir(ZUG_SRC) == 0); /* messages say where the file is */
  r.p = zl_load(r.a, r.s, r.d, file, NULL);
  cr_assert(r.p && !zl_errors(r.d), "%s", file);
  r.names = zl_recipe_names(r.p);
  return r;
}

/* Few layers where each says the same. */
static const struct {
  const char *model, *options;
} small[] = {{"Mamba2", "-D layers=4"},
             {"DeepSeek", "-D layers=6 -D dense=2"},
             {"DeltaNet", "-D layers=4"},
             {"Mixtral", "-D layers=4"},
             {"Mistral", "-D layers=4"}};

static const ZgGraph *graph_of(const ZlRecipe *r) {
  static Model open[32];
  static const char *name[32];
  static int n;
  for (int i = 0; i < n; i++)
    if (!strcmp(name[i], r->model)) return open[i].g;
  char file[32];
  size_t len = strlen(r->model);
  cr_assert(len < sizeof file && n < 32);
  for (size_t i = 0; i <= len; i++)
    file[i] = (char)(r->model[i] | (r->model[i] >= 'A' && r->model[i] <= 'Z' ? 32 : 0));
  name[n] = strdup(r->model); /* the recipe goes before the graph */
  const char *options = NULL;
  for (size_t i = 0; i < sizeof small / sizeof *small; i++)
    if (!strcmp(small[i].model, r->model)) options = small[i].options;
  open[n] = model_open(file, NULL, options);
  return open[n++].g;
}

/* ---- a plan as digests --------------------------------------------------------------------------------- */
typedef struct {
  uint64_t whole, values, nodes, instances, instructions, memory;
} Digests;

static void add(void *ctx, const char *what, uint64_t digest) {
  Digests *d = ctx;
  static const char *const ends[] = {" values", " parts", " instructions", " memory"};
  uint64_t *const to[] = {&d->values, &d->instances, &d->instructions, &d->memory};
  uint64_t *at = strncmp(what, "part ", 5) ? &d->whole : &d->nodes;
  for (int i = 0; i < 4; i++) {
    size_t n = strlen(what), k = strlen(ends[i]);
    if (n > k && !strcmp(what + n - k, ends[i])) at = to[i];
  }
  *at = zb_mix64(*at + digest);
}

static void put_table(const ZpPlan *p, void (*table)(const ZpPlan *, ZbText *), ZbText *out) {
  ZbText t = {0};
  table(p, &t);
  zb_text_add(out, " %08x", (unsigned)zb_stream(t.s ? t.s : ""));
  zb_text_free(&t);
}

static void put_plan(const ZpPlan *p, ZbText *out) {
  Digests d = {0};
  ZbArena *a = zb_arena_new();
  zp_digest(p, a, add, &d);
  const uint64_t all[] = {d.whole, d.values, d.nodes, d.instances, d.instructions, d.memory};
  for (int i = 0; i < 6; i++) zb_text_add(out, " %08x", (unsigned)all[i]);
  static void (*const tables[])(const ZpPlan *, ZbText *) = {
      zp_show,      zp_show_schedule,      zp_show_programs, zp_explain,
      zp_show_json, zp_show_programs_json, zp_explain_json};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) put_table(p, tables[i], out);
  zb_text_add(out, "\n");
  zb_arena_free(a);
}

static void put_refusal(ZlDiags *d, ZbText *out) {
  ZbText t = {0};
  zl_print_text(d, &t);
  const char *code = t.s ? strstr(t.s, "[Z") : NULL;
  cr_assert(code, "no plan, and no reason");
  zb_text_add(out, " %.5s %08x\n", code + 1, (unsigned)zb_stream(t.s ? t.s : ""));
  zb_text_free(&t);
}

/* ---- against the file ---------------------------------------------------------------------------------- */
void whole_expect(ZbText *got, const char *name) {
  ZbArena *a = zb_arena_new();
  golden_file(zb_printf(a, "%s/tests/unit/plan/whole/%s", ZUG_SRC, name), got->s);
  zb_text_free(got);
  zb_arena_free(a);
}

static int64_t ranks_of(const ZlRecipe *r) {
  int64_t n = 1;
  for (uint32_t i = 0; i < r->nmesh; i++) n *= r->mesh[i].size;
  return n;
}

/* ---- plans --------------------------------------------------------------------------------------------- */
static void put_plans(const char *file, ZbText *out) {
  Recipes r = recipes_open(file);
  zb_text_add(out, "== %s\n", file);
  for (uint32_t i = 0; i < r.names.n; i++) {
    const ZlRecipe *recipe = zl_recipe(r.p, r.d, r.names.at[i].s);
    cr_assert(recipe, "%s", r.names.at[i].s);
    if (!recipe->model || ranks_of(recipe) > 32) continue;
    for (int k = 0; k < NWAYS; k++) {
      ZbArena *a = zb_arena_new();
      ZlDiags *d = zl_diags_new(a, r.s);
      zb_text_add(out, "%s %s", recipe->name, ways[k].name);
      const ZpPlan *p = zp_plan(a, graph_of(recipe), recipe, d, &ways[k].o);
      if (p) put_plan(p, out);
      else put_refusal(d, out);
      zb_arena_free(a);
    }
  }
  zb_arena_free(r.a);
}

static const char columns[] =
    "recipe way: sizes values nodes | parts, instructions, memory of stages | show schedule "
    "programs explain, the same but schedule as JSON\n";

Test(whole, plans) {
  ZbText t = {0};
  zb_text_add(&t, "%s", columns);
  put_plans("examples/recipes.zug", &t);
  put_plans("tests/unit/plan/whole/recipes.zug", &t);
  whole_expect(&t, "plans.expect");
}

/* ---- plans of recipes that nobody would write ---------------------------------------------------------- */
Test(whole, random) {
  ZbText t = {0};
  zb_text_add(&t, "%s", columns);
  for (int m = 0; m < NMODELS; m++) {
    Model x = model_open(random_models[m].name, random_models[m].text, random_models[m].options);
    for (uint32_t i = 0; i < 96; i++) {
      ZbText recipe = {0};
      put_recipe(m, 5000 + i, &recipe);
      Plan q = plan_as(x.g, recipe.s, &ways[i % NWAYS].o);
      zb_text_add(&t, "%s %u %s", random_models[m].name, i, ways[i % NWAYS].name);
      if (q.p) put_plan(q.p, &t);
      else put_refusal(q.d, &t);
      plan_close(&q);
      zb_text_free(&recipe);
    }
    model_close(&x);
  }
  whole_expect(&t, "random.expect");
}

/* ---- times --------------------------------------------------------------------------------------------- */
/* What a step is made of in the mean of the stages, what of it is recomputed, and what lies where. */
static void put_time(const ZpPlan *p, const ZlCluster *c, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZpTime *t = zp_time(a, p, c, true, zl_diags_new(a, zl_sources_new(a)));
  cr_assert(t);
  double recomputed = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) recomputed += t->stages[s].recomputed;
  zb_text_add(out, "%.9g", t->seconds);
  for (int k = 0; k < ZP_T_PARTS; k++) zb_text_add(out, " %.7g", t->mean[k]);
  zb_text_add(out, " %.7g", recomputed);
  ZbText text = {0}, page = {0}, trace = {0};
  const ZpPaged of = {p, t};
  zp_show_time(p, c, t, &text);
  zp_show_time_json(p, c, t, &text);
  zp_show_places(p, c, &text);
  zp_page_data(&of, 1, c, &page);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    int64_t rank = p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->layout.mesh, 0, s);
    zp_trace_events(p, rank, t->stages[s].spans, t->stages[s].nspans, 0, 0, true, &trace);
  }
  zb_text_put(&trace, ",\n", 2); /* as behind the events of a rank that others follow */
  zb_text_add(out, " %08x %08x %08x\n", (unsigned)zb_stream(text.s), (unsigned)zb_stream(page.s),
              (unsigned)zb_stream(trace.s));
  zb_text_free(&text), zb_text_free(&page), zb_text_free(&trace);
  zb_arena_free(a);
}

Test(whole, times) {
  ZbText t = {0};
  zb_text_add(&t, "recipe way cluster: seconds");
  for (int k = 0; k < ZP_T_PARTS; k++) zb_text_add(&t, " %s", zp_part_word[k]);
  zb_text_add(&t, " recomputed | digests of tables, page, trace\n");
  Recipes r = recipes_open("tests/unit/plan/whole/recipes.zug");
  const ZlCluster *const on[] = {zl_cluster(r.p, r.d, "plain"), zl_cluster(r.p, r.d, "full")};
  cr_assert(on[0] && on[1]);
  for (uint32_t i = 0; i < r.names.n; i++) {
    const ZlRecipe *recipe = zl_recipe(r.p, r.d, r.names.at[i].s);
    for (int k = 0; recipe && recipe->model && k < 2; k++) {
      Plan q = {.a = zb_arena_new()};
      q.p = zp_plan_unproved(q.a, graph_of(recipe), recipe, zl_diags_new(q.a, r.s), &ways[k].o);
      for (int c = 0; q.p && c < 2; c++) {
        static const char *const on_what[] = {"plain", "full"};
        zb_text_add(&t, "%s %s %s: ", recipe->name, ways[k].name, on_what[c]);
        put_time(q.p, on[c], &t);
      }
      plan_close(&q);
    }
  }
  whole_expect(&t, "times.expect");
  zb_arena_free(r.a);
}
