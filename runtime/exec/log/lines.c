/* Lines for people, one a step and one an evaluation. */
#include "runtime/exec/log/sinks.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool say_text(const ZbText *t, ZbErr *err) {
  if (fwrite(t->s, 1, t->len, stdout) == t->len && fflush(stdout) == 0) return true;
  return zb_fail(err, NULL, "cannot write to the standard output: %s", strerror(errno));
}

/* "step  12/100  loss 3.1416  grad 0.52  lr 3.0e-04  41.2k tok/s  83 ms  41% peak  12.3 of 12.3 MB" */
bool zx_lines_step(ZbText *t, const ZxMetrics *m, ZbErr *err) {
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  char used[24], planned[24];
  t->len = 0;
  zb_text_add(t, "step %*" PRId64 "/%" PRId64 "  loss %.4f", width, m->step, m->steps, zb_plain_nan(m->loss));
  if (!(m->grad_norm < 0)) zb_text_add(t, "  grad %.3g", zb_plain_nan(m->grad_norm));
  if (!(m->lr < 0)) zb_text_add(t, "  lr %.2e", m->lr);
  if (m->tokens_per_s >= 0) zb_text_add(t, "  %.0f tok/s", m->tokens_per_s);
  if (m->step_ms >= 0)
    zb_text_add(t, "  %.*f ms", m->step_ms < 10 ? 2 : m->step_ms < 100 ? 1 : 0, m->step_ms);
  if (m->peak_share >= 0) zb_text_add(t, "  %.0f%% of peak", 100 * m->peak_share);
  if (m->bubble >= 0) zb_text_add(t, "  %.0f%% idle", 100 * m->bubble);
  if (m->planned_bytes)
    zb_text_add(t, "  %s of %s", zb_bytes(used, m->used_bytes), zb_bytes(planned, m->planned_bytes));
  zb_text_add(t, "\n");
  return say_text(t, err);
}

/* "eval  12/100  loss 3.1416  perplexity 23.14  4096 targets  83 ms  best 3.1416 after step 12" */
bool zx_lines_eval(ZbText *t, const ZxEvalMetrics *m, ZbErr *err) {
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  t->len = 0;
  zb_text_add(t, "eval");
  if (m->steps) zb_text_add(t, " %*" PRId64 "/%" PRId64, width, m->step, m->steps);
  zb_text_add(t, "  loss %.4f", zb_plain_nan(m->loss));
  if (!(m->perplexity < 0)) zb_text_add(t, "  perplexity %.5g", zb_plain_nan(m->perplexity));
  if (!(m->perplexity < 0)) zb_text_add(t, "  %.10g targets", m->tokens);
  zb_text_add(t, "  %.*f ms", m->ms < 10 ? 2 : m->ms < 100 ? 1 : 0, m->ms);
  if (m->steps && m->best_step >= 0) zb_text_add(t, "  best %.4f after step %" PRId64, m->best, m->best_step);
  zb_text_add(t, "\n");
  return say_text(t, err);
}
