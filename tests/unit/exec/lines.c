/* What a step prints, to the letter: what is known, what is not, and how many digits. */
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/log/log.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(lines, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;
static ZxLog *open_log(const char *dir) { return zx_log_open(&(ZxLogOptions){.dir = dir}, &err); }

static const ZxMetrics nothing = {.step = 1,
                                  .steps = 9,
                                  .loss = 2,
                                  .grad_norm = -1,
                                  .lr = -1,
                                  .tokens = -1,
                                  .step_ms = -1,
                                  .predicted_ms = -1,
                                  .tokens_per_s = -1,
                                  .flops = -1,
                                  .peak_share = -1,
                                  .bubble = -1,
                                  .wait_ms = -1,
                                  .wait_max_ms = -1};
static const ZxMetrics zero = {.step = 10, .steps = 1000};

static ZxMetrics with_ms(double ms) {
  ZxMetrics m = nothing;
  m.step_ms = ms;
  return m;
}

static const ZxEvalMetrics evaluation = {.step = 20,
                                         .steps = 1000,
                                         .batches = 3,
                                         .loss = 2.5,
                                         .perplexity = 12.1825,
                                         .tokens = 123456789,
                                         .ms = 83.1,
                                         .best = 2.25,
                                         .best_step = 10};

/* Without training, without a perplexity, of what has no loss. */
static void put_evaluations(ZxLog *l) {
  ZxEvalMetrics alone = evaluation, nothing_known = evaluation;
  alone.step = alone.steps = 0;
  alone.perplexity = -1;
  nothing_known.loss = nothing_known.perplexity = NAN;
  nothing_known.best_step = -1;
  cr_assert(zx_log_eval(l, &evaluation, &err) && zx_log_eval(l, &alone, &err));
  cr_assert(zx_log_eval(l, &nothing_known, &err));
}

Test(lines, evaluations) {
  cr_redirect_stdout();
  ZxLog *l = open_log(scratch("log"));
  put_evaluations(l);
  zx_log_close(l);
  cr_expect_stdout_eq_str("eval   20/1000  loss 2.5000  perplexity 12.182  123456789 targets  83.1 ms  best "
                          "2.2500 after step 10\n"
                          "eval  loss 2.5000  83.1 ms\n"
                          "eval   20/1000  loss nan  perplexity nan  123456789 targets  83.1 ms\n");
  size_t n;
  char *text = scratch_read("log/metrics.jsonl", &n);
  cr_expect_str_eq(
      text, "{\"step\":20,\"steps\":1000,\"eval_batches\":3,\"eval_loss\":2.5,\"eval_perplexity\":12.1825,"
            "\"eval_tokens\":123456789,\"eval_ms\":83.1,\"eval_best_loss\":2.25,\"eval_best_step\":10}\n"
            "{\"eval_batches\":3,\"eval_loss\":2.5,\"eval_tokens\":123456789,\"eval_ms\":83.1}\n"
            "{\"step\":20,\"steps\":1000,\"eval_batches\":3,\"eval_loss\":null,\"eval_perplexity\":null,"
            "\"eval_tokens\":123456789,\"eval_ms\":83.1}\n");
  free(text);
}

Test(lines, evaluations_at_the_edges) {
  static const double ms[] = {9.994, 10, 10.5, 99.9, 100, 100.4};
  ZxEvalMetrics m = evaluation;
  cr_redirect_stdout();
  ZxLog *l = zx_log_open(&(ZxLogOptions){0}, &err),
        *quiet = zx_log_open(&(ZxLogOptions){.quiet = true}, &err);
  m.perplexity = -1, m.best_step = 0;
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    m.ms = ms[i];
    cr_assert(zx_log_eval(l, &m, &err) && zx_log_eval(quiet, &m, &err));
  }
  zx_log_close(l);
  zx_log_close(quiet);
#define LINE(ms) "eval   20/1000  loss 2.5000  " ms " ms  best 2.2500 after step 0\n"
  cr_expect_stdout_eq_str(LINE("9.99") LINE("10.0") LINE("10.5") LINE("99.9") LINE("100") LINE("100"));
}

Test(lines, for_people) {
  cr_redirect_stdout();
  ZxLog *l = open_log(NULL);
  ZxMetrics odd = nothing;
  odd.grad_norm = odd.loss = NAN;
  odd.peak_share = 0.999;
  odd.bubble = 0.904;
  odd.planned_bytes = 1;
  const double ms[] = {0, 9.994, 10, 99.94, 100, 12345.6};
  cr_assert(zx_log_step(l, &nothing, NULL, 0, &err) && zx_log_step(l, &zero, NULL, 0, &err));
  for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
    ZxMetrics m = with_ms(ms[i]);
    cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  }
  cr_assert(zx_log_step(l, &odd, NULL, 0, &err));
  zx_log_close(l);
  cr_expect_stdout_eq_str(
      "step 1/9  loss 2.0000\n"
      "step   10/1000  loss 0.0000  grad 0  lr 0.00e+00  0 tok/s  0.00 ms  0% of peak  0% idle\n"
      "step 1/9  loss 2.0000  0.00 ms\n"
      "step 1/9  loss 2.0000  9.99 ms\n"
      "step 1/9  loss 2.0000  10.0 ms\n"
      "step 1/9  loss 2.0000  99.9 ms\n"
      "step 1/9  loss 2.0000  100 ms\n"
      "step 1/9  loss 2.0000  12346 ms\n"
      "step 1/9  loss nan  grad nan  100% of peak  90% idle  0 B of 1 B\n");
}

Test(lines, for_programs) {
  cr_redirect_stdout();
  ZxLog *l = open_log(scratch("log"));
  cr_assert(l, "%s", err.text);
  ZxClassMetrics c[2] = {
      {.stage = 0, .planned_bytes = 5, .used_bytes = 4, .compute_ms = 0, .wait_ms = -1, .wait_max_ms = -1},
      {.stage = 1, .planned_bytes = 7, .used_bytes = 6, .compute_ms = -1, .wait_ms = 2.5, .wait_max_ms = 3}};
  cr_assert(zx_log_step(l, &nothing, c, 1, &err) && zx_log_step(l, &zero, c, 2, &err));
  size_t n;
  char *text = scratch_read("log/metrics.jsonl", &n);
  cr_expect_str_eq(
      text,
      "{\"step\":1,\"steps\":9,\"loss\":2,\"planned_bytes\":0,\"used_bytes\":0,\"classes\":["
      "{\"stage\":0,\"planned_bytes\":5,\"used_bytes\":4,\"compute_ms\":0}]}\n"
      "{\"step\":10,\"steps\":1000,\"loss\":0,\"grad_norm\":0,\"lr\":0,\"tokens\":0,\"step_ms\":0,"
      "\"predicted_ms\":0,\"tokens_per_s\":0,\"flops\":0,\"peak_share\":0,\"bubble\":0,\"wait_ms\":0,\"wait_"
      "max_ms\":0,"
      "\"planned_bytes\":0,"
      "\"used_bytes\":0,\"classes\":[{\"stage\":0,\"planned_bytes\":5,\"used_bytes\":4,\"compute_ms\":0},"
      "{\"stage\":1,\"planned_bytes\":7,\"used_bytes\":6,\"wait_ms\":2.5,\"wait_max_ms\":3}]}\n");
  free(text);
  zx_log_close(l);
}

/* Beside the loss that they add up to; one of which nothing was known is not a number. */
Test(lines, several_losses) {
  cr_redirect_stdout();
  ZxLog *l = open_log(scratch("log"));
  ZxMetrics m = nothing;
  ZxEvalMetrics v = evaluation;
  for (m.nparts = 1; m.nparts <= 3; m.nparts++) {
    m.part[m.nparts - 1] =
        (ZxLossPart){(const char *[]){"main", "z", "aux"}[m.nparts - 1], m.nparts == 2 ? NAN : 2};
    cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  }
  v.steps = 0, v.perplexity = 0, v.tokens = 1, v.ms = 0;
  v.part[0] = m.part[2], v.part[1] = m.part[1], v.nparts = 2;
  cr_assert(zx_log_eval(l, &v, &err));
  zx_log_close(l);
  cr_expect_stdout_eq_str("step 1/9  loss 2.0000 (main 2.0000)\n"
                          "step 1/9  loss 2.0000 (main 2.0000, z -)\n"
                          "step 1/9  loss 2.0000 (main 2.0000, z -, aux 2.0000)\n"
                          "eval  loss 2.5000 (aux 2.0000, z -)  perplexity 0  1 targets  0.00 ms\n");
  size_t n;
  char *text = scratch_read("log/metrics.jsonl", &n), *last = strstr(text, "{\"eval_batches\"");
  static const char bytes[] = "{\"step\":1,\"steps\":9,\"loss\":2,\"planned_bytes\":0,\"used_bytes\":0";
  cr_assert(last);
  cr_expect_str_eq(last, "{\"eval_batches\":3,\"eval_loss\":2.5,\"eval_perplexity\":0,\"eval_tokens\":1,"
                         "\"eval_ms\":0,\"eval_loss_aux\":2,\"eval_loss_z\":null}\n");
  *last = 0;
  ZbText want = {0};
  zb_text_add(&want, "%s,\"loss_main\":2}\n", bytes);
  zb_text_add(&want, "%s,\"loss_main\":2,\"loss_z\":null}\n", bytes);
  zb_text_add(&want, "%s,\"loss_main\":2,\"loss_z\":null,\"loss_aux\":2}\n", bytes);
  cr_expect_str_eq(text, want.s);
  zb_text_free(&want);
  free(text);
}

Test(lines, rates_at_the_edges) {
  ZpRate none = {.lr = 3, .anneal = ZP_CONSTANT}, one = {.lr = 3, .warmup = 1, .anneal = ZP_CONSTANT};
  ZpRate line = {.lr = 4, .until = 4, .anneal = ZP_LINEAR},
         wave = {.lr = 4, .until = 2, .anneal = ZP_COSINE, .final = 0.5};
  cr_expect(zp_rate(&none, 1) == 3 && zp_rate(&one, 1) == 3 && zp_rate(&one, 2) == 3);
  cr_expect(zp_rate(&line, 1) == 3 && zp_rate(&line, 3) == 1 && zp_rate(&line, 4) == 0 &&
            zp_rate(&line, 5) == 0);
  cr_expect_float_eq(zp_rate(&wave, 1), 3, 1e-12);
  cr_expect_float_eq(zp_rate(&wave, 2), 2, 1e-12);
}
