/* What a run says at its end. */
#include "runtime/exec/report.h"
#include "runtime/plan/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

double zx_tokens_per_step(const ZpPlan *p) {
  uint32_t seq = zg_axis_find(p->graph, "seq");
  bool fixed = seq == ZG_NONE || p->graph->axes[seq].size;
  return (double)p->asked.global_batch * (fixed ? 1 : (double)p->layout.axis_size[seq]);
}

/* ---- how fast ---- */
static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The first step touches all memory for the first time. */
void zx_report_speed(ZxStepTimes *t, const ZpPlan *p, double peak) {
  if (t->made < 3) return;
  int64_t from = t->made <= ZX_STEPS_KEPT, n = from ? t->made - 1 : ZX_STEPS_KEPT;
  qsort(t->ms + from, (size_t)n, sizeof *t->ms, by_size);
  double ms = t->ms[from + n / 2], flops = p->notes.model_flops / ms * 1e3;
  printf("median step %.1f ms: %.0f tokens/s, %.1f GFLOP/s", ms, zx_tokens_per_step(p) / ms * 1e3,
         flops / 1e9);
  if (peak > 0)
    printf(", %.1f %% of the %.1f GFLOP/s that products reach here", 100 * flops / peak, peak / 1e9);
  printf("\n");
}

/* ", computing 11.8 ms of 10 (+18 %)" */
static void print_part(const char *what, double predicted, double measured) {
  printf(", %s %.4g ms of %.4g (%+.0f %%)", what, measured, predicted,
         predicted > 0 ? 100 * (measured / predicted - 1) : 0);
}

void zx_report_prediction(const ZxStepTimes *t, const ZpTime *predicted) {
  double ms = 1e3 * predicted->seconds, wait = 0;
  static const ZpTimePart waits[] = {ZP_T_TENSOR, ZP_T_DATA, ZP_T_IDLE};
  if (!t->known) return;
  for (size_t k = 0; k < sizeof waits / sizeof *waits; k++) wait += 1e3 * predicted->mean[waits[k]];
  double step = t->step / (double)t->known, waited = t->waited / (double)t->known;
  printf("predicted %.4g ms a step; in the mean it took %.4g (%+.0f %%)", ms, step, 100 * (step / ms - 1));
  if (waited >= 0) {
    bool waiting = fabs(waited - wait) > fabs(step - waited - ms + wait);
    print_part("computing", ms - wait, step - waited);
    print_part("waiting for others", wait, waited);
    printf(": mostly %s was off", waiting ? "waiting" : "computing");
  }
  printf("\n");
}

/* ---- where time went ---- */
/* "      95.1 GFLOP/s       3.2 GB/s   78 % of its bound (FLOPs)" */
static void print_work(double t, const ZxWork *w) {
  if (w->flops > 0) printf("  %10.1f GFLOP/s", w->flops / t / 1e9);
  else if (w->bytes > 0) printf("  %18s", "");
  if (w->bytes > 0) printf("  %8.1f GB/s", w->bytes / t / 1e9);
  if (w->bound > 0)
    printf("  %3.0f %% of its bound (%s)", 100 * w->bound / t,
           2 * w->bound_by_flops > w->bound ? "FLOPs" : "bytes");
  if (w->predicted > 0) printf("  %+4.0f %% on its prediction", 100 * (t / w->predicted - 1));
  printf("\n");
}

/* "  dot             backward  gpt2.zug:31        bf16[batch, seq, ffn]        0.812 ms x 480   12.1 %
 * ..." */
static void print_calls(const ZxEngine *e, const ZpPlan *p, double sum) {
  ZbArena *a = zb_arena_new();
  ZxCallTime c[16];
  uint32_t n = zx_engine_calls(e, c, 16);
  if (n) printf("of that the longest calls:\n");
  for (uint32_t i = 0; i < n; i++) {
    const char *op = zb_printf(a, "%s%s", zg_op_info[c[i].op].text, c[i].fused ? "+pointwise" : "");
    printf("  %-20s %-8s  %-18s %-28s %9.3f ms x %-5" PRIu64 " %5.1f %%", op, c[i].phase,
           zp_loc_text(p, c[i].loc), zg_type_text(p->graph, a, c[i].type),
           1e3 * c[i].seconds / (double)c[i].calls, c[i].calls, 100 * c[i].seconds / sum);
    print_work(c[i].seconds, &c[i].work);
  }
  zb_arena_free(a);
}

void zx_report_times(const ZxEngine *e, const ZpPlan *p, const ZpPeaks *own, int64_t from, int64_t to) {
  const double *t = zx_engine_times(e);
  const ZxWork *w = zx_engine_work(e);
  double sum = 0, bounded = 0, bound = 0;
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    sum += t[i];
    if (w[i].bound > 0) bounded += t[i], bound += w[i].bound;
  }
  if (sum <= 0) return;
  printf("time by operation on rank 0 in steps %" PRId64 " to %" PRId64
         " (waiting inside collectives is theirs):\n",
         from, to);
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    bool small = t[i] <= 0.001 * sum && i != ZG_OP_COUNT; // the optimizer's row is there in every run
    if (small || t[i] <= 0) continue;
    printf("  %-16s %8.3f s  %5.1f %%",
           i < ZG_OP_COUNT    ? zg_op_info[i].text
           : i == ZG_OP_COUNT ? "optimizer"
                              : "waiting",
           t[i], 100 * t[i] / sum);
    print_work(t[i], &w[i]);
  }
  if (bounded > 0)
    printf("at the %.1f GFLOP/s of large products and the %.1f GB/s of large copies these take %.3f of %.3f "
           "s, %.0f %%\n",
           own->flops / 1e9, own->bytes / 1e9, bound, bounded, 100 * bound / bounded);
  print_calls(e, p, sum);
}
