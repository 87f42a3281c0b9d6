/* Samples of a step over ranks and micro-batches. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

/* global batch = micro x dims that split it x micro-batches */
void zp_bind_batch(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  p->asked.global_batch = p->asked.nmicro = 1;
  if (p->asked.batch == ZP_NONE) {
    if (r->micro_span.file >= 0 && !p->stream)
      zl_help(zl_report(b->d, ZL_Z0304, r->micro_span,
                        "`micro` counts samples, but model %s has no data axis `batch`", p->graph->model),
              "leave `micro` out");
    return;
  }
  int64_t split = 1, n = p->layout.axis_size[p->asked.batch];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (zp_dim_splits(&p->layout.mesh.dim[d], p->asked.batch)) split *= p->layout.mesh.dim[d].size;
  int64_t micro = r->micro ? r->micro : n / split ? n / split : 1;
  if (n % (micro * split)) {
    ZlDiag *e = zl_report(b->d, ZL_Z0403, zp_bind_span(r, "batch"),
                          "global batch %lld is not a multiple of micro %lld x ranks that split it %lld",
                          (long long)n, (long long)micro, (long long)split);
    zl_help(e, "bind batch = %lld", (long long)zb_round_up((uint64_t)n, (uint64_t)(micro * split)));
    return;
  }
  p->asked.global_batch = n;
  p->asked.nmicro = n / (micro * split);
  if (p->asked.nmicro > 65535)
    zl_report(b->d, ZL_Z0403, r->span, "a step has at most 65535 micro-batches, here %lld",
              (long long)p->asked.nmicro);
  p->layout.axis_size[p->asked.batch] = p->layout.axis_valid[p->asked.batch] = micro * split;
}
