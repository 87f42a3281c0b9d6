/* Which of a cluster's constants a plan's times are made from: an unknown one is never taken to be
 * nothing. */
#include "runtime/plan/time/internal.h"

typedef struct {
  const ZlCluster *c;
  ZbText missing;
  uint32_t n;
} Needs;

static void need(Needs *x, double value, const char *of, const char *word, const char *meaning) {
  if (value > 0) return;
  zb_text_add(&x->missing, "%s`%s` of its %s (%s)", x->n++ ? ", " : "", word, of, meaning);
}

/* Requires a field of the cluster's device, by its name. */
static void need_device(Needs *x, const double *field) {
#define DEVICE(f, word, unit, meaning)                                                                       \
  if (field == &x->c->f) need(x, x->c->f, "device", word, meaning);
#include "lang/cluster.def"
}

/* The kinds of calls that a plan has. */
typedef struct {
  bool bf16, f32, products, attention, attention_grad;
} Seen;

static void look(const ZpPlan *p, Seen *s) {
  for (uint32_t g = 0; g < p->graph->nsegments; g++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[g].list[k].n; i++) {
        const ZkCall *c = &p->programs.segments[g].list[k].nodes[i].call;
        ZpTimePart part = zp_call_part(c->op);
        if (part == ZP_T_MEMORY) continue;
        *(zp_product_elem(c, 0) == ZK_BF16 ? &s->bf16 : &s->f32) = true;
        s->products |= part == ZP_T_PRODUCTS;
        s->attention |= part == ZP_T_ATTENTION;
        s->attention_grad |= c->op == ZG_OP_ATTEND_GRAD;
      }
}

/* Requires the levels that are used: nothing is sent within a level of one member. */
static void need_levels(Needs *x, int64_t nranks) {
  int64_t size = 1;
  for (uint32_t i = 0; i < x->c->nlevels && i < ZP_MOST_LEVELS && size < nranks; i++) {
    const ZlLevel *l = &x->c->levels[i];
    char of[80];
    snprintf(of, sizeof of, "level `%.60s`", l->name.s);
    size *= l->size;
    if (l->size < 2) continue;
    need(x, l->latency, of, "latency", "a step of a ring or a tree");
    need(x, l->start, of, "start", "of a collective or a transfer, before anything moves");
    need(x, l->ramp, of, "ramp", "until a link is full");
  }
  if (!x->c->nlevels && nranks > 1) need(x, 0, "devices", "level", "how they are connected");
}

static void report(Needs *x, ZlDiags *d) {
  ZlDiag *g =
      zl_report(d, ZL_Z0813, x->c->span, "cluster `%s` does not say what times are made from", x->c->name);
  zl_note(g, "it lacks %s", x->missing.s);
  zl_help(g, "examples/clusters.zug has such constants, and where they are from");
}

bool zp_cluster_suffices(const ZpPlan *p, int64_t nranks, const ZlCluster *c, ZlDiags *d) {
  Seen s = {0};
  Needs x = {.c = c};
  look(p, &s);
  for (uint32_t i = 0; i < p->asked.noptimizers; i++)
    if (p->asked.optimizers[i].kind == ZK_BY_MUON && !p->asked.forward_only) s.f32 = s.products = true;
  if (s.bf16) need_device(&x, &c->flops_bf16);
  if (s.f32) need_device(&x, &c->flops_f32);
  if (s.products) need_device(&x, &c->products);
  if (s.products && c->sms > 0) need_device(&x, &c->tile_fill);
  if (s.attention) need_device(&x, &c->attention);
  if (s.attention_grad) need_device(&x, &c->attention_grad);
  need_device(&x, &c->stream);
  need_device(&x, &c->launch);
  if (nranks > 1) need_device(&x, &c->steal);
  need_levels(&x, nranks);
  if (x.n) report(&x, d);
  zb_text_free(&x.missing);
  return !x.n;
}
