#include "tests/unit/plan/models/plan.h"

#include "kernels/kernels.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <string.h>

/* Plans are made and dropped by the thousand: what is free stays with the process. Most of the time went to
 * pages that were given back and asked for again. */
__attribute__((constructor)) static void keep_memory(void) {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
}

Model model_open(const char *name, const char *text, const char *options) {
  Model m = {0};
  if (text) {
    m.c = load_text(text);
  } else {
    char path[512];
    snprintf(path, sizeof path, "%s/examples/%s.zug", ZUG_SRC, name);
    m.c = load_file(path);
  }
  if (options) set_options(&m.c, options);
  m.g = compile(&m.c);
  if (!m.g) cr_assert_fail("%s does not compile: %s", name ? name : "the model", messages(&m.c));
  return m;
}

void model_close(Model *m) { done(&m->c); }

static Plan make(const ZgGraph *g, const char *recipe, ZpOptions o) {
  Plan q = {.a = zb_arena_new()};
  ZlSources *s = zl_sources_new(q.a);
  q.d = zl_diags_new(q.a, s);
  const char *optimizer = strstr(recipe, "optimizer") ? "" : "optimizer adamw(lr = 1e-3)";
  const char *text = zb_printf(q.a, "recipe r {\n%s\n%s\n}\n", recipe, optimizer);
  ZlProgram *program = zl_load_text(q.a, s, q.d, "test.zug", text, strlen(text), NULL);
  if (program && !zl_errors(q.d)) q.r = zl_recipe(program, q.d, "r");
  if (q.r && !zl_errors(q.d)) q.p = zp_plan(q.a, g, q.r, q.d, &o);
  return q;
}

Plan plan_as(const ZgGraph *g, const char *recipe, const ZpOptions *o) { return make(g, recipe, *o); }
Plan plan_try(const ZgGraph *g, const char *recipe) {
  return make(g, recipe, (ZpOptions){.scratch = zk_cpu_scratch, .threads = 2});
}

const char *plan_messages(Plan *q) {
  zb_text_free(&q->text);
  q->text = (ZbText){0};
  zl_print_text(q->d, &q->text);
  return q->text.s ? q->text.s : "";
}

static Plan made(Plan q, const char *recipe) {
  if (!q.p) cr_assert_fail("no plan for\n%s\n%s", recipe, plan_messages(&q));
  return q;
}
Plan plan_of(const ZgGraph *g, const char *recipe) { return made(plan_try(g, recipe), recipe); }
Plan plan_forward(const ZgGraph *g, const char *recipe, const ZpPlan *beside) {
  ZpOptions o = {
      .scratch = zk_cpu_scratch, .threads = 2, .forward_only = true, .beside = beside, .outputs = !beside};
  return made(make(g, recipe, o), recipe);
}
Plan plan_try_steps(const ZgGraph *g, const char *recipe, const ZpPlan *beside) {
  static const ZpGenerating steps = {.step = 8, .sequences = 2, .length = 8, .page = 4};
  return make(g, recipe,
              (ZpOptions){.scratch = zk_cpu_scratch, .threads = 2, .beside = beside, .generates = &steps});
}
Plan plan_bare(const ZgGraph *g, const char *recipe) {
  return made(make(g, recipe, (ZpOptions){.threads = 1}), recipe);
}

Plan plan_try_pinned(const ZgGraph *g, const char *recipe) {
  return make(g, recipe, (ZpOptions){.threads = 1, .pins = true});
}
Plan plan_pinned(const ZgGraph *g, const char *recipe) { return made(plan_try_pinned(g, recipe), recipe); }

Plan plan_kept(const ZgGraph *g, const char *recipe) {
  return made(make(g, recipe, (ZpOptions){.threads = 1, .checkpoints = true}), recipe);
}

bool supports_norms(const ZkCall *call) {
  return call->op == ZG_OP_NORMALIZE || call->op == ZG_OP_NORMALIZE_GRAD;
}
bool supports_norm_sums(const ZkCall *call) {
  return supports_norms(call) || call->op == ZG_OP_NORMALIZE_GRAD_SUMS;
}
bool supports_bias_grads(const ZkCall *call) { return call->op == ZG_OP_DOT_BIAS_GRAD; }
static size_t scratch_of_all(const ZkCall *call, int threads) {
  ZkUnfused u;
  size_t most = 0;
  zk_unfuse(call, &u);
  for (int i = 0; i < u.n; i++) {
    size_t bytes = zk_cpu_scratch(&u.call[i], threads);
    most = bytes > most ? bytes : most;
  }
  return u.room + most;
}
bool supports_batched(const ZkCall *call) { return call->op == ZG_OP_DOT && !call->pointwise; }
bool supports_xent_max(const ZkCall *call) { return call->op == ZG_OP_XENT_MAX_SUMS; }
bool supports_xent_grad(const ZkCall *call) { return call->op == ZG_OP_XENT_SUMS_GRAD; }
bool supports_all(const ZkCall *call) { return (void)call, true; }
bool supports_single(const ZkCall *call) { return call->pointwise && call->nout == 1; }
Plan plan_fused(const ZgGraph *g, const char *recipe, bool (*supports)(const ZkCall *)) {
  return made(make(g, recipe, (ZpOptions){.scratch = scratch_of_all, .threads = 2, .supports = supports}),
              recipe);
}

Plan plan_try_streams(const ZgGraph *g, const char *recipe, bool (*supports)(const ZkCall *)) {
  return make(g, recipe,
              (ZpOptions){.scratch = scratch_of_all, .threads = 2, .supports = supports, .pins = true});
}

void plan_close(Plan *q) {
  zb_text_free(&q->text);
  zb_arena_free(q->a);
}

const ZpNode *phase_nodes(const ZpSegment *s, ZpPhase phase, uint32_t *n) {
  *n = s->list[phase].n;
  return s->list[phase].nodes;
}

uint32_t segment_of(const ZpPlan *p, const char *label, uint32_t part) {
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    const ZgSegment *s = &p->graph->segments[i];
    if (label ? s->repeat && !strcmp(s->label, label) : !s->repeat && part-- == 0) return i;
  }
  cr_assert_fail("no segment %s", label ? label : "with this number");
  return 0;
}

void put_collectives(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out) {
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment];
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  ZbArena *a = zb_arena_new();
  for (uint32_t i = 0; i < n; i++) {
    const ZpNode *k = &nodes[i];
    if (!k->dims) continue;
    bool along = k->call.op != ZG_OP_ALL_REDUCE && k->axis != ZP_NO_AXIS;
    zb_text_add(out, "%s%s %s: %s", zg_op_info[k->call.op].text, k->call.opt[0] && !along ? "(max)" : "",
                zp_dims_text(&p->layout.mesh, a, k->dims),
                zg_type_text(p->graph, a, &s->values[k->in[0]].type));
    if (along) zb_text_add(out, " %s", p->graph->axes[k->axis].name);
    if (k->call.op == ZG_OP_ALL_TO_ALL) zb_text_add(out, " to %s", p->graph->axes[k->axis2].name);
    zb_text_add(out, "\n");
  }
  zb_arena_free(a);
}

void put_saved(const ZpPlan *p, uint32_t segment, ZbText *out) {
  const ZpSegment *s = &p->programs.segments[segment];
  ZbArena *a = zb_arena_new();
  if (s->saves_carry) zb_text_add(out, "carry\n");
  for (uint32_t i = 0; i < s->list[ZP_FWD].n; i++) {
    const ZpNode *k = &s->list[ZP_FWD].nodes[i];
    for (int j = 0; j < k->call.nout; j++) {
      const ZpValue *v = &s->values[k->out[j]];
      if (v->at.space != ZP_AT_SAVED) continue;
      zb_text_add(out, "%s", zg_op_info[k->call.op].text);
      if (k->call.op == ZG_OP_POINTWISE)
        zb_text_add(out, "/%s",
                    zg_op_info[k->call.pointwise->ops[k->call.pointwise->out[j] - k->call.nin].op].text);
      zb_text_add(out, ": %s\n", zg_type_text(p->graph, a, &v->type));
    }
  }
  zb_arena_free(a);
}

void put_pointwise(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out) {
  uint32_t n;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[segment], phase, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZkCall *k = &nodes[i].call;
    if (k->op != ZG_OP_POINTWISE) continue;
    for (uint32_t j = 0; j < k->pointwise->nops; j++)
      zb_text_add(out, "%s%s", j ? " " : "", zg_op_info[k->pointwise->ops[j].op].text);
    zb_text_add(out, ", %d in, %d out\n", k->nin, k->nout);
  }
}

void expect_text(ZbText *got, const char *expect, const char *what) {
  const char *s = got->s ? got->s : "";
  bool same = !strcmp(s, expect);
  if (!same) cr_log_error("%s:\n%sexpected:\n%s", what, s, expect);
  zb_text_free(got);
  cr_assert(same, "%s differ", what);
}

void expect_collectives(const ZpPlan *p, const char *label, uint32_t part, ZpPhase phase,
                        const char *expect) {
  ZbText t = {0};
  char what[64];
  snprintf(what, sizeof what, "collectives of %s %u %s", label ? label : "part", part, zp_phase_text[phase]);
  put_collectives(p, segment_of(p, label, part), phase, &t);
  expect_text(&t, expect, what);
}

void expect_saved(const ZpPlan *p, const char *label, uint32_t part, const char *expect) {
  ZbText t = {0};
  put_saved(p, segment_of(p, label, part), &t);
  expect_text(&t, expect, "saved values");
}

uint32_t count_collectives(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZgOp op, const char *dims) {
  uint32_t n, count = 0;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[segment], phase, &n);
  ZbArena *a = zb_arena_new();
  for (uint32_t i = 0; i < n; i++)
    count += nodes[i].dims && nodes[i].call.op == op &&
             (!*dims || !strcmp(zp_dims_text(&p->layout.mesh, a, nodes[i].dims), dims));
  zb_arena_free(a);
  return count;
}

const ZpBucket *bucket_with(const ZpPlan *p, const char *param) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    for (uint32_t k = 0; k < p->programs.buckets[i].nslices; k++)
      if (!strcmp(p->graph->params[p->programs.buckets[i].slices[k].param].path, param))
        return &p->programs.buckets[i];
  cr_assert_fail("no bucket has %s", param);
  return NULL;
}
