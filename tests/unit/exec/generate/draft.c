/* Draft tokens: what a text goes on with, what steps take, and what is worth it. */
#include "runtime/exec/generate/generate.h"

#include <criterion/criterion.h>

static uint32_t drafts(const char *text, uint32_t most, const char *want) {
  uint32_t id[100], n = (uint32_t)strlen(text), kind = 9;
  for (uint32_t i = 0; i < n; i++) id[i] = (uint8_t)text[i];
  uint32_t got = zx_draft(id, n, most, &kind);
  char is[100] = {0};
  for (uint32_t i = 0; i < got; i++) is[i] = (char)id[n + i];
  cr_expect_str_eq(is, want, "%s", text);
  return kind;
}

Test(draft, goes_on_as_it_did_before) {
  cr_expect_eq(drafts("one two. one t", 4, "wo. "), 1);
  cr_expect_eq(drafts("abXbcY bc", 3, "Y b"), 0);
  drafts("abXbcY bd", 3, "");
  drafts("abX abY ab", 1, "Y");      /* the latest */
  drafts("cabX ab ab cab", 2, "X "); /* the longest */
  drafts("xyabab", 5, "ababa");      /* what repeats itself goes on */
  drafts("aaaa", 3, "aaa");
  drafts("ab", 3, "");
  drafts("a", 3, "");
  drafts("12345678a12345678", 1, "a");
}

/* seconds = 3 + tokens. */
Test(draft, learns_what_a_token_takes) {
  ZxStepCost c = zx_step_cost();
  for (uint32_t i = 0; i < 200; i++) zx_step_cost_add(&c, 1, 4);
  cr_expect_float_eq(c.more, 0.4, 1e-9, "steps of one size say nothing: %g", c.more);
  for (uint32_t i = 0; i < 200; i++) zx_step_cost_add(&c, 1 + i % 3, 4 + i % 3);
  cr_expect_float_eq(c.tokens, 2, 0.1);
  cr_expect_float_eq(c.more, 1, 0.05);
  for (uint32_t i = 0; i < 200; i++) zx_step_cost_add(&c, 1, 4);
  cr_expect_float_eq(c.more, 1, 0.05, "what was learned stays: %g", c.more);
  zx_step_cost_add(&c, 2, 1000);
  cr_expect_float_eq(c.more, 1, 0.25, "an interruption: %g", c.more);
  zx_step_cost_add(&c, 2, 0);
  cr_expect_float_eq(c.more, 1, 0.25, "a clock that stands");
}

static uint32_t worth(double more, double rate, uint32_t sequences) {
  ZxStepCost c = {.tokens = sequences, .seconds = 1, .more = more};
  ZxStepGain step = {sequences, sequences};
  return zx_drafts_worth(&c, rate, 16, &step);
}

/* The best number by hand: the most of (1 + rate + .. rate^n) / (1 + more n). */
Test(draft, worth_it) {
  for (int i = 1; i < 20; i++)
    for (int k = 1; k <= 20; k++) {
      double rate = i / 20.0, more = k / 20.0, gain = 1, right = 1, best = 1;
      uint32_t want = 0;
      for (uint32_t n = 1; n <= 16; n++) {
        gain += right *= rate;
        if (gain / (1 + more * n) > best + 1e-9) best = gain / (1 + more * n), want = n;
      }
      cr_expect_eq(worth(more, rate, 1), want, "rate %g, more %g: %u, not %u", rate, more,
                   worth(more, rate, 1), want);
    }
  cr_expect_eq(worth(0.1, 0, 1), 0);
  cr_expect_eq(worth(0.005, 1, 1), 16);
  cr_expect_eq(worth(0.1, 0.7, 8), 0); /* eight tokens more are 0.8 of a step */
}
