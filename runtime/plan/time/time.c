/* A plan and a cluster to the time of a step. */
#include "runtime/plan/time/internal.h"

/* Values of the model's largest input of indexes in a step: of a language model, its tokens. */
static double tokens_of(const ZpPlan *p) {
  double most = 0;
  for (uint32_t i = 0; i < p->graph->ninputs; i++) {
    const ZgType *t = &p->graph->inputs[i].type;
    double n = (double)p->asked.nmicro;
    if (t->elem != ZG_INDEX) continue;
    for (int k = 0; k < t->naxes; k++) n *= (double)p->layout.axis_valid[t->axis[k]];
    if (n > most) most = n;
  }
  return most;
}

double zp_peak(const ZpPlan *p, const ZlCluster *c) {
  if (zp_precision_elem(p->asked.recipe->precision.compute) == ZK_BF16) return c->flops_bf16;
  return p->asked.tf32 && c->flops_tf32 > 0 ? c->flops_tf32 : c->flops_f32;
}

static void rates(const ZpPlan *p, const ZlCluster *c, ZpTime *t) {
  double peak = zp_peak(p, c);
  if (t->seconds <= 0) return;
  t->samples = (double)p->asked.global_batch / t->seconds;
  t->tokens = tokens_of(p) / t->seconds;
  t->flops = p->notes.model_flops / t->seconds / (double)p->layout.mesh.nranks;
  t->utilization = peak > 0 ? t->flops / peak : 0;
}

/* Plays a step, or one of generation with what is in it. */
static ZpTime *play(ZbArena *a, const ZpPlan *p, const ZlCluster *c, bool spans, const ZpStepLoad *load,
                    ZlDiags *d) {
  if (!zp_cluster_suffices(p, p->layout.mesh.nranks, c, d)) return NULL;
  ZpTime *t = ZB_NEW(a, ZpTime);
  t->stages = ZB_NEWN(a, ZpStageTime, p->programs.nstages);
  ZbArena *scratch = zb_arena_new();
  Cost x = zp_cost_new(p, c, spans, scratch);
  x.load = load;
  zp_time_loop(&x, a, t);
  zb_arena_free(scratch);
  for (int k = 0; k < ZP_T_PARTS; k++)
    for (uint32_t s = 0; s < p->programs.nstages; s++)
      t->mean[k] += t->stages[s].part[k] / p->programs.nstages;
  return t;
}

ZpTime *zp_time(ZbArena *a, const ZpPlan *p, const ZlCluster *c, bool spans, ZlDiags *d) {
  ZpTime *t = play(a, p, c, spans, NULL, d);
  if (t) rates(p, c, t);
  return t;
}

ZpTime *zp_step_time(ZbArena *a, const ZpPlan *p, const ZlCluster *c, const ZpStepLoad *load, ZlDiags *d) {
  ZB_ASSERT(p->stream);
  return play(a, p, c, false, load, d);
}
