/* Lines for people, one a step and one an evaluation, several a sample; on a terminal one line that says how far
 * the run is.
 *
 * That one is on the screen while nothing else is printed: from the end of one step to that of the next. The
 * cursor waits at its beginning, so that what another rank has to say meanwhile comes in its place. */
#include "runtime/exec/log/sinks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static bool say_text(const ZbText *t, ZbErr *err) {
  if (fwrite(t->s, 1, t->len, stdout) == t->len && fflush(stdout) == 0) return true;
  return zb_fail(err, NULL, "cannot write to the standard output: %s", strerror(errno));
}

static void put_loss(ZbText *t, bool unknown, double loss) {
  if (unknown) zb_text_add(t, "  loss -");
  else zb_text_add(t, "  loss %.4f", zb_plain_nan(loss));
}

/* " (main 3.1234, z 0.0182)", where there are several losses. */
static void put_parts(ZbText *t, const ZxLossPart *part, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    zb_text_add(t, "%s%s ", i ? ", " : " (", part[i].name);
    if (isnan(part[i].value)) zb_text_add(t, "-");
    else zb_text_add(t, "%.4f", part[i].value);
  }
  if (n) zb_text_add(t, ")");
}

/* "step  12/100  loss 3.1416  grad 0.52  lr 3.0e-04  41.2k tok/s  83 ms  41% peak  12.3 of 12.3 MB" */
static bool print_step(ZbText *t, const ZxMetrics *m, ZbErr *err) {
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  char used[24], planned[24];
  t->len = 0;
  zb_text_add(t, "step %*" PRId64 "/%" PRId64, width, m->step, m->steps);
  put_loss(t, m->unknown, m->loss);
  put_parts(t, m->part, m->nparts);
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
bool zx_lines_eval(ZxLines *l, const ZxEvalMetrics *m, ZbErr *err) {
  ZbText *t = &l->text;
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  if (l->quiet) return true;
  t->len = 0;
  zb_text_add(t, "eval");
  if (m->steps) zb_text_add(t, " %*" PRId64 "/%" PRId64, width, m->step, m->steps);
  put_loss(t, m->unknown, m->loss);
  put_parts(t, m->part, m->nparts);
  if (!(m->perplexity < 0)) zb_text_add(t, "  perplexity %.5g", zb_plain_nan(m->perplexity));
  if (m->unknown) zb_text_add(t, "  nothing is known");
  if (!(m->perplexity < 0)) zb_text_add(t, "  %.10g targets", m->tokens);
  zb_text_add(t, "  %.*f ms", m->ms < 10 ? 2 : m->ms < 100 ? 1 : 0, m->ms);
  if (m->steps && m->best_step >= 0) zb_text_add(t, "  best %.4f after step %" PRId64, m->best, m->best_step);
  zb_text_add(t, "\n");
  return say_text(t, err);
}

/* Adds s[0..n) with nothing in it that a terminal obeys, but lines and tabs. */
static void put_lines(ZbText *t, const char *s, size_t n) {
  while (n) {
    size_t plain = 0;
    while (plain < n && s[plain] != '\n' && s[plain] != '\t') plain++;
    zb_text_show(t, s, plain);
    if (plain < n) zb_text_put(t, s + plain++, 1);
    s += plain, n -= plain;
  }
}

void zx_put_sample(ZbText *t, const ZxSampleMetrics *m) {
  put_lines(t, m->asked, strlen(m->asked));
  if (m->chat) zb_text_put(t, "\n", 1);
  if (m->broken) zb_text_add(t, "\n(%s)", m->broken);
  else put_lines(t, m->text, m->ntext);
}

/* "sample  12/100  prompt 1  60 tokens", prompt and text below, each of their lines behind a bar. */
bool zx_lines_sample(ZxLines *l, const ZxSampleMetrics *m, ZbErr *err) {
  ZbText *t = &l->text, text = {0};
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  if (l->quiet) return true;
  t->len = 0;
  zb_text_add(t, "sample %*" PRId64 "/%" PRId64 "  prompt %u", width, m->step, m->steps, m->prompt);
  if (!m->broken) zb_text_add(t, "  %" PRId64 " token%s", m->tokens, m->tokens == 1 ? "" : "s");
  zb_text_put(t, "\n", 1);
  zx_put_sample(&text, m);
  if (!text.len || text.s[text.len - 1] != '\n') zb_text_put(&text, "\n", 1);
  for (const char *at = text.s, *end = text.s + text.len; at < end;) {
    const char *next = memchr(at, '\n', (size_t)(end - at)) + 1;
    zb_text_put(t, "  | ", 4);
    zb_text_put(t, at, (size_t)(next - at));
    at = next;
  }
  zb_text_free(&text);
  return say_text(t, err);
}

/* ---- the line on a terminal ---- */
/* "step 12/100  loss 3.1416  41216 tok/s  1m40s left" */
static void put_live(ZxLines *l, const ZxMetrics *m) {
  ZbText *t = &l->live;
  char left[24];
  t->len = 0;
  zb_text_add(t, "step %" PRId64 "/%" PRId64, m->step, m->steps);
  put_loss(t, m->unknown, m->loss);
  if (m->tokens_per_s >= 0) zb_text_add(t, "  %.0f tok/s", m->tokens_per_s);
  if (l->mean > 0)
    zb_text_add(t, "  %s left", zb_duration_text(left, l->mean * (double)(m->steps - m->step)));
}

/* With all that came between two steps, of about the FADE latest ones. */
static void take_time(ZxLines *l) {
  enum { FADE = 30 };
  double now = zb_now(), took = now - l->at;
  if (l->at > 0) l->mean += (took - l->mean) / (++l->n < FADE ? l->n : FADE);
  l->at = now;
}

/* What does not fit would be broken, and stay. A terminal that is gone takes nothing: no error, the run goes
 * on. */
void zx_lines_draw(ZxLines *l) {
  if (l->terminal.fd < 0 || !l->any) return;
  int columns = zx_terminal_columns(l->terminal.fd);
  size_t room = columns > 1 ? (size_t)columns - 1 : 0;
  printf("\r%.*s\033[K\r", (int)(l->live.len < room ? l->live.len : room), l->live.s);
  fflush(stdout);
  l->drawn = true;
}

/* Comes out with what is printed next. */
void zx_lines_erase(ZxLines *l) {
  if (l->drawn) printf("\r\033[K");
  l->drawn = false;
}

/* ---- steps ---- */
bool zx_lines_step(ZxLines *l, const ZxMetrics *m, ZbErr *err) {
  bool first = !l->any;
  take_time(l);
  l->any = true;
  l->last = *m;
  l->last.epochs = NULL;
  l->last.nepochs = 0;
  if (l->terminal.fd >= 0) put_live(l, m);
  l->told = l->quiet || m->step == m->steps || (l->every && (first || m->step % l->every == 0));
  return l->quiet || !l->told || print_step(&l->text, m, err);
}

bool zx_lines_end(ZxLines *l, ZbErr *err) {
  bool untold = l->any && !l->told;
  l->told = true;
  return !untold || print_step(&l->text, &l->last, err);
}

void zx_lines_open(ZxLines *l, const ZxLogOptions *o) {
  *l = (ZxLines){.quiet = o->quiet, .terminal = o->quiet ? (ZxTerminal){.fd = -1} : zx_terminal_find()};
  l->every = o->print_every ? o->print_every : l->terminal.fd < 0;
}

void zx_lines_close(ZxLines *l) {
  zx_lines_erase(l);
  if (l->terminal.fd >= 0) close(l->terminal.fd);
  zb_text_free(&l->text);
  zb_text_free(&l->live);
}
