/* The scheduler, in cases that can be said: tokens of a step, who is preempted, what is refused. (Random
 * ones: traces.c.) */
#include "runtime/exec/generate/generate.h"

#include <criterion/criterion.h>
#include <malloc.h>

enum { END = 9, WORDS = 100 };
static ZbErr err;
static const uint32_t end_token = END;
static uint32_t prompt[2000]; /* all 1 */
static ZxPageGroup group[1];

static ZxScheduling how(uint32_t tokens, uint32_t slots, uint32_t pages) {
  for (uint32_t i = 0; i < 2000; i++) prompt[i] = 1;
  group[0] = (ZxPageGroup){.pages = pages};
  return (ZxScheduling){.tokens = tokens,
                        .rows = tokens,
                        .slots = slots,
                        .length = 1000,
                        .page = 16,
                        .group = group,
                        .ngroups = 1,
                        .vocabulary = WORDS,
                        .queue = 4,
                        .nend = 1,
                        .end = &end_token};
}

static ZxScheduler *scheduler(ZxScheduling x) {
  ZxScheduler *s = zx_scheduler_new(&x, &err);
  cr_assert(s, "%s", err.text);
  return s;
}

static ZxGenRequest request(uint32_t nprompt, uint32_t max_tokens) {
  return (ZxGenRequest){
      .prompt = prompt, .nprompt = nprompt, .max_tokens = max_tokens, .choices = 1, .sampling = ZX_GREEDY};
}

static uint64_t ask(ZxScheduler *s, ZxGenRequest r) {
  uint64_t number;
  cr_assert(zx_submit(s, &r, &number, &err), "%s", err.text);
  return number;
}

/* The next step as "request: from + tokens", with a star if it chooses; each choice is `id`. */
static const char *next(ZxScheduler *s, uint32_t id) {
  static ZbText text;
  static uint32_t chosen[2000];
  const ZxGenStep *x = zx_next_step(s);
  text.len = 0;
  zb_text_put(&text, "", 0);
  for (uint32_t i = 0; i < x->nparts; i++)
    zb_text_add(&text, "%s%llu: %u+%u%s", i ? ", " : "", (unsigned long long)x->part[i].sequence->request,
                x->part[i].from, x->part[i].n, x->part[i].chooses ? "*" : "");
  for (uint32_t i = 0; i < x->nrows; i++) chosen[i] = id;
  cr_assert(zx_scheduler_check(s, &err), "%s", err.text);
  if (x->ntokens) zx_step_done(s, chosen);
  cr_assert(zx_scheduler_check(s, &err), "%s", err.text);
  return text.s;
}

#define EXPECT(s, want)                                                                                      \
  do {                                                                                                       \
    const char *got = next(s, 1);                                                                            \
    cr_expect(!strcmp(got, want), "'%s' instead of '%s'", got, want);                                        \
  } while (0)

/* Who decodes has a token in each step; prompts have what is left, the oldest first, cut at pages. */
Test(scheduler, a_long_prompt_stops_nobody) {
  ZxScheduler *s = scheduler(how(40, 4, 100));
  ask(s, request(5, 50));
  EXPECT(s, "0: 0+5*");
  ask(s, request(100, 50));
  ask(s, request(7, 50));
  EXPECT(s, "0: 5+1*, 1: 0+32, 2: 0+7*");
  EXPECT(s, "0: 6+1*, 1: 32+32, 2: 7+1*");
  ask(s, request(60, 50));
  EXPECT(s, "0: 7+1*, 1: 64+36*, 2: 8+1*, 3: 0+2");
  EXPECT(s, "0: 8+1*, 1: 100+1*, 2: 9+1*, 3: 2+30");
  zx_scheduler_free(s);
}

Test(scheduler, parts_of_states_end_at_multiples_of_128) {
  ZxScheduling x = how(200, 4, 100);
  x.states = true;
  ZxScheduler *s = scheduler(x);
  ask(s, request(400, 5));
  EXPECT(s, "0: 0+128");
  ask(s, request(100, 5));
  EXPECT(s, "0: 128+128");
  EXPECT(s, "0: 256+144*");
  EXPECT(s, "0: 400+1*, 1: 0+100*");
  EXPECT(s, "0: 401+1*, 1: 100+1*");
  zx_scheduler_free(s);
  x.tokens = 130;
  cr_expect(!zx_scheduler_new(&x, &err) && strstr(err.text, "130 tokens") && strstr(err.text, "131") &&
                *err.help,
            "%s", err.text);
}

/* Three sequences of one page each, and three pages: at the second page of the oldest the youngest goes,
 * and starts again, with all of its tokens, when there is room for them. */
Test(scheduler, the_youngest_is_preempted) {
  ZxScheduler *s = scheduler(how(64, 3, 3));
  for (uint32_t i = 0; i < 3; i++) ask(s, request(14 - i, 20));
  EXPECT(s, "0: 0+14*, 1: 0+13*, 2: 0+12*");
  EXPECT(s, "0: 14+1*, 1: 13+1*, 2: 12+1*");
  EXPECT(s, "0: 15+1*, 1: 14+1*, 2: 13+1*");
  EXPECT(s, "0: 16+1*, 1: 15+1*");
  ZxCounts c = zx_scheduler_counts(s);
  cr_expect(c.preempted == 1 && c.lost == 14 && c.running == 2 && c.waiting == 1);
  EXPECT(s, "0: 17+1*"); /* the second is the youngest now, and waits as well */
  ask(s, request(3, 3));
  for (uint32_t i = 18; i < 32; i++) next(s, 1);
  EXPECT(s, "0: 32+1*");
  EXPECT(s, "1: 0+17*, 2: 0+15*");
  cr_expect(zx_next_ended(s)->request == 0);
  zx_scheduler_free(s);
}

Test(scheduler, reserved_pages_are_never_missing) {
  ZxScheduling x = how(64, 3, 3);
  x.reserve = true;
  ZxScheduler *s = scheduler(x);
  for (uint32_t i = 0; i < 3; i++) ask(s, request(14 - i, i ? 4 : 20));
  EXPECT(s, "0: 0+14*");
  for (uint32_t i = 14; i < 32; i++) next(s, 1);
  EXPECT(s, "0: 32+1*");
  EXPECT(s, "1: 0+13*, 2: 0+12*");
  cr_expect_eq(zx_scheduler_counts(s).preempted, 0);
  zx_scheduler_free(s);
}

/* The prompt is made once; the others have its two full pages, a copy of the third, and make its last
 * token. */
Test(scheduler, choices_share_their_prompt) {
  ZxScheduler *s = scheduler(how(64, 8, 100));
  ZxGenRequest r = request(40, 4);
  r.choices = 3;
  r.prompt_logprobs = true;
  ask(s, r);
  const ZxGenStep *x = zx_next_step(s);
  uint32_t chosen[64] = {0};
  cr_expect(x->nparts == 1 && x->nrows == 40 && !x->ncopies);
  zx_step_done(s, chosen);
  x = zx_next_step(s);
  cr_expect(x->nparts == 3 && x->ntokens == 3 && x->nrows == 3 && x->ncopies == 2);
  cr_expect(x->copy[0].from == zx_table(s, 0, x->part[0].sequence->slot)[2]);
  for (uint32_t i = 1; i < 3; i++) {
    const ZxSequence *q = x->part[i].sequence;
    cr_expect(q->choice == i && x->part[i].from == 39 && x->part[i].chooses);
    cr_expect_eq(x->copy[i - 1].to, zx_table(s, 0, q->slot)[2]);
    cr_expect_eq(zx_table(s, 0, q->slot)[1], zx_table(s, 0, x->part[0].sequence->slot)[1]);
  }
  cr_expect_eq(zx_scheduler_free_pages(s, 0), 100 - 5);
  zx_step_done(s, chosen);
  for (uint32_t i = 0; i < 3; i++) next(s, 1);
  EXPECT(s, "");
  cr_expect_eq(zx_scheduler_counts(s).prompt_tokens, 42);
  cr_expect_eq(zx_scheduler_counts(s).answer_tokens, 12);
  cr_expect_eq(zx_scheduler_free_pages(s, 0), 100);
  zx_scheduler_free(s);
}

/* ---- prefixes ---- */
static ZxScheduler *with_prefixes(uint32_t slots, uint32_t pages) {
  ZxScheduling x = how(64, slots, pages);
  x.prefixes = true;
  return scheduler(x);
}

static ZxSequence run_out(ZxScheduler *s) {
  const ZxSequence *q;
  while (!(q = zx_next_ended(s))) next(s, 1);
  return *q;
}

/* The second begins behind two full pages of the first, which has ended; the third, which has another token
 * in its second page, behind one. */
Test(scheduler, a_prompt_goes_on_behind_what_is_kept) {
  ZxScheduler *s = with_prefixes(2, 100);
  ask(s, request(40, 4));
  cr_expect_eq(run_out(s).cached, 0);
  cr_expect_eq(zx_scheduler_free_pages(s, 0), 100);
  ask(s, request(40, 4));
  EXPECT(s, "1: 32+8*");
  cr_expect_eq(run_out(s).cached, 32);
  prompt[20] = 2;
  ask(s, request(40, 4));
  EXPECT(s, "2: 16+24*");
  run_out(s);
  ask(s, request(33, 4));
  EXPECT(s, "3: 32+1*");
  run_out(s);
  ask(s, request(32, 4)); /* its last token's logits are wanted */
  EXPECT(s, "4: 16+16*");
  cr_expect_eq(zx_scheduler_counts(s).cached_tokens, 32 + 16 + 32 + 16);
  zx_scheduler_free(s);
}

/* Prompt and answer are the beginning of what is asked next. */
Test(scheduler, answers_are_kept) {
  ZxScheduler *s = with_prefixes(2, 100);
  ask(s, request(40, 30));
  run_out(s);
  ask(s, request(80, 4));
  EXPECT(s, "1: 64+16*");
  zx_scheduler_free(s);
}

/* What is being made is not made twice; but it is not waited for an answer that has not been written yet. */
Test(scheduler, waits_for_what_is_being_made) {
  ZxScheduler *s = with_prefixes(4, 100);
  ask(s, request(90, 4));
  ask(s, request(40, 4));
  EXPECT(s, "0: 0+64");
  EXPECT(s, "0: 64+26*, 1: 32+8*");
  run_out(s), run_out(s);
  zx_scheduler_free(s);
  s = with_prefixes(4, 100);
  ask(s, request(20, 200));
  EXPECT(s, "0: 0+20*");
  ask(s, request(60, 4));
  EXPECT(s, "0: 20+1*, 1: 16+44*");
  zx_scheduler_free(s);
}

Test(scheduler, log_probabilities_of_a_prompt_are_made) {
  ZxScheduler *s = with_prefixes(2, 100);
  ZxGenRequest r = request(40, 4);
  ask(s, r);
  run_out(s);
  r.prompt_logprobs = true;
  ask(s, r);
  EXPECT(s, "1: 0+40*");
  zx_scheduler_free(s);
}

/* Four pages: what was used last is there; a sequence that was preempted goes on behind what is left of it. */
Test(scheduler, the_longest_unused_pages_go) {
  ZxScheduler *s = with_prefixes(2, 4);
  for (uint32_t i = 0; i < 3; i++) {
    prompt[0] = i % 2 + 1;
    ask(s, request(33, 1));
    run_out(s);
  }
  ask(s, request(33, 1));
  EXPECT(s, "3: 32+1*");
  run_out(s);
  prompt[0] = 2;
  ask(s, request(33, 1));
  EXPECT(s, "4: 16+17*");
  zx_scheduler_free(s);
  s = with_prefixes(2, 3);
  ask(s, request(15, 10));
  prompt[0] = 3;
  ask(s, request(17, 4));
  EXPECT(s, "0: 0+15*, 1: 0+17*");
  EXPECT(s, "0: 15+1*, 1: 17+1*");
  EXPECT(s, "0: 16+1*");
  cr_expect_eq(zx_scheduler_counts(s).preempted, 1);
  cr_expect_eq(run_out(s).request, 0);
  EXPECT(s, "1: 16+3*");
  cr_expect_eq(run_out(s).cached, 0, "its prompt was made");
  zx_scheduler_free(s);
}

/* Why a sequence ends; what it has then. */
static void ends(ZxGenRequest r, const uint32_t *id, uint32_t n, ZxEnding why) {
  ZxScheduler *s = scheduler(how(64, 2, 100));
  ask(s, r);
  for (uint32_t i = 0; i < n; i++) {
    cr_expect_null(zx_next_ended(s), "after %u tokens", i);
    next(s, id[i]);
  }
  const ZxSequence *q = zx_next_ended(s);
  cr_assert(q && q->ending == why && q->n == r.nprompt + n);
  cr_expect(!memcmp(q->id + q->nprompt, id, n * sizeof *id));
  cr_expect_null(zx_next_ended(s));
  zx_scheduler_free(s);
}

Test(scheduler, endings) {
  static const uint32_t stop[] = {5}, text[] = {1, END, 5, 1, 1};
  ZxGenRequest r = request(3, 5);
  ends(r, text, 2, ZX_BY_END);
  r.max_tokens = 2;
  ends(r, text, 2, ZX_BY_END);
  r.max_tokens = 1;
  ends(r, text, 1, ZX_BY_LENGTH);
  r.max_tokens = 5;
  r.ignore_end = true;
  ends(r, text, 5, ZX_BY_LENGTH);
  r.stop = stop;
  r.nstop = 1;
  ends(r, text, 3, ZX_BY_END);
  r.ignore_end = false;
  r.min_tokens = 2; /* the sampler holds ends back; if it did not, they would be tokens */
  ends(r, text, 3, ZX_BY_END);
}

Test(scheduler, nothing_to_write) {
  ZxScheduler *s = scheduler(how(64, 2, 100));
  uint64_t number = ask(s, request(30, 0));
  const ZxSequence *q = zx_next_ended(s);
  cr_expect(q && q->request == number && q->ending == ZX_BY_LENGTH && q->n == 30);
  EXPECT(s, "");
  ZxGenRequest r = request(30, 0);
  r.prompt_logprobs = true;
  ask(s, r);
  const ZxGenStep *x = zx_next_step(s);
  uint32_t none[64] = {0};
  cr_expect(x->ntokens == 29 && x->nrows == 29 && !x->part[0].chooses);
  cr_expect_eq(zx_row(x->part[0].sequence, 3).given, 1);
  zx_step_done(s, none);
  cr_expect(zx_next_ended(s)->ending == ZX_BY_LENGTH);
  zx_scheduler_free(s);
}

/* A request that ends while its step is played gets no more tokens, and its pages are free for the next. */
Test(scheduler, finished_while_a_step_is_played) {
  ZxScheduler *s = scheduler(how(64, 2, 4));
  uint64_t one = ask(s, request(20, 10)), two = ask(s, request(20, 10));
  uint32_t chosen[2] = {1, 1};
  zx_next_step(s);
  zx_end_request(s, one, ZX_NONE, ZX_BY_CANCEL);
  zx_step_done(s, chosen);
  const ZxSequence *q = zx_next_ended(s);
  cr_expect(q && q->request == one && q->n == 20 && q->ending == ZX_BY_CANCEL);
  EXPECT(s, "1: 20+1*");
  zx_end_request(s, one, ZX_NONE, ZX_BY_CANCEL);
  cr_expect(!zx_next_ended(s) && zx_scheduler_free_pages(s, 0) == 2);
  zx_end_request(s, two, 1, ZX_BY_CANCEL);
  cr_expect(!zx_next_ended(s), "there is no second choice");
  zx_end_request(s, two, 0, ZX_BY_STOP);
  EXPECT(s, "");
  zx_scheduler_free(s);
}

/* ---- draft tokens ---- */
static ZxScheduler *with_drafts(uint32_t slots, uint32_t pages) {
  ZxScheduling x = how(64, slots, pages);
  x.drafts = 4;
  return scheduler(x);
}

/* A text of ones goes on with ones: as many as four at once, as far as max_tokens and pages allow; the last
 * token needs no draft. */
Test(scheduler, draft_tokens) {
  ZxScheduler *s = with_drafts(2, 2);
  ask(s, request(5, 14));
  EXPECT(s, "0: 0+5*");
  EXPECT(s, "0: 5+5*");
  EXPECT(s, "0: 10+5*");
  ask(s, request(14, 9));
  EXPECT(s, "0: 15+1*, 1: 0+14*"); /* beside a prompt there are none */
  EXPECT(s, "0: 16+2*");           /* the other one was preempted */
  EXPECT(s, "1: 0+15*");
  EXPECT(s, "1: 15+5*");
  ZxCounts c = zx_scheduler_counts(s);
  cr_expect(c.drafts == c.right_drafts && c.drafts == 4 + 4 + 1 + 4);
  const ZxSequence *q = zx_next_ended(s);
  cr_assert(q && q->n == 19 && q->ending == ZX_BY_LENGTH);
  EXPECT(s, "1: 20+2*");
  q = zx_next_ended(s);
  cr_assert(q && q->n == 23 && q->ending == ZX_BY_LENGTH);
  zx_scheduler_free(s);
}

/* A wrong draft token leaves no trace, and what is behind an end is not taken. */
Test(scheduler, wrong_draft_tokens) {
  ZxScheduler *s = with_drafts(1, 3);
  ask(s, request(14, 20)); /* the draft tokens reach into another page */
  next(s, 1);
  const ZxGenStep *x = zx_next_step(s);
  const ZxGenPart *p = x->part;
  uint32_t chosen[64] = {1, 1, 7, 1, 1};
  cr_assert(x->nrows == 5 && p->ndrafts == 4 && p->chooses && p->from == 14);
  cr_expect(zx_goes_on(p, 0, 1) && zx_goes_on(p, 1, 1) && !zx_goes_on(p, 2, 7) && !zx_goes_on(p, 4, 1));
  cr_expect_eq(zx_row(p->sequence, 16).n, 17);
  cr_expect_eq(zx_scheduler_free_pages(s, 0), 1);
  zx_step_done(s, chosen);
  cr_expect(zx_scheduler_check(s, &err), "%s", err.text);
  EXPECT(s, "0: 17+1*"); /* after 1 1 7 nothing is known */
  EXPECT(s, "0: 18+1*");
  x = zx_next_step(s); /* 1 1 came before, and was followed by 7 1 1 */
  cr_assert(x->part[0].ndrafts >= 2);
  uint32_t ends[64] = {7, END, 1, 1, 1};
  zx_step_done(s, ends);
  const ZxSequence *q = zx_next_ended(s);
  static const uint32_t wanted[] = {1, 1, 1, 7, 1, 1, 7, END};
  cr_assert(q && q->ending == ZX_BY_END && q->n == 14 + 8 && !memcmp(q->id + 14, wanted, sizeof wanted));
  zx_scheduler_free(s);
}

/* What the text itself says comes next, or something else. */
static uint32_t said(const ZxSequence *q, bool like) {
  uint32_t id[1000], kind;
  memcpy(id, q->id, q->n * sizeof *id);
  uint32_t first = zx_draft(id, q->n, 1, &kind) ? id[q->n] : 1;
  return like ? first : 3 - first;
}

/* They are not taken where they are never right, nor, if they are right every other time, where a step takes
 * as much longer as it has more tokens. */
Test(scheduler, draft_tokens_that_do_not_pay) {
  for (uint32_t dear = 0; dear < 2; dear++) {
    ZxScheduler *s = with_drafts(1, 60);
    ask(s, request(20, 900));
    uint64_t early = 0;
    for (uint32_t i = 0; i < 200; i++) {
      const ZxGenStep *x = zx_next_step(s);
      uint32_t n = x->ntokens, chosen[64];
      for (uint32_t k = 0; k < 64; k++) chosen[k] = said(x->part->sequence, dear && i % 2);
      if (i == 150) early = zx_scheduler_counts(s).drafts;
      zx_step_done(s, chosen);
      zx_step_took(s, dear ? n : 1 + 0.1 * n);
    }
    cr_expect(early && zx_scheduler_counts(s).drafts == early, "%s: %lu draft tokens, %lu of them late",
              dear ? "dear" : "wrong", zx_scheduler_counts(s).drafts, zx_scheduler_counts(s).drafts - early);
    zx_scheduler_free(s);
  }
}

/* Once requests have come no step takes memory, nor do requests of a size that was there before. */
Test(scheduler, takes_no_memory_for_tokens) {
  ZxScheduler *s = scheduler(how(64, 4, 30));
  size_t taken = 0;
  for (uint32_t round = 0; round < 3; round++) {
    ZxGenRequest r = request(50, 200);
    r.choices = 4;
    ask(s, r);
    if (!round) taken = mallinfo2().uordblks;
    while (zx_scheduler_counts(s).running + zx_scheduler_counts(s).waiting) {
      uint32_t chosen[64] = {0};
      zx_next_step(s);
      zx_step_done(s, chosen);
      while (zx_next_ended(s)) continue;
    }
    cr_expect_eq(mallinfo2().uordblks, taken);
  }
  zx_scheduler_free(s);
}

/* ---- what is refused ---- */
static void refused(ZxScheduler *s, ZxGenRequest r, bool passing, const char *one, const char *two) {
  uint64_t number;
  ZxCounts before = zx_scheduler_counts(s);
  cr_assert(!zx_submit(s, &r, &number, &err));
  cr_expect(strstr(err.text, one) && strstr(err.text, two) && err.passing == passing, "%s", err.text);
  cr_expect_eq(zx_scheduler_counts(s).waiting, before.waiting);
}

Test(scheduler, refused) {
  ZxScheduler *s = scheduler(how(64, 2, 20));
  refused(s, request(700, 301), false, "1001", "1000");
  refused(s, request(300, 23), false, "323", "21 pages");
  refused(s, request(1, UINT32_MAX), false, "4294967296", "1000");
  cr_expect(ask(s, request(300, 21)) == 0, "its last token needs no page");
  refused(s, request(0, 5), false, "no tokens", "");
  ZxGenRequest r = request(3, 5);
  r.choices = 17;
  refused(s, r, false, "17", "16");
  r.choices = 1;
  r.min_tokens = 6;
  refused(s, r, false, "6", "5");
  r.min_tokens = 0;
  r.stop = (const uint32_t[]){WORDS};
  r.nstop = 1;
  refused(s, r, false, "100", "end the text");
  r.nstop = 0;
  r.sampling.top_p = 1.5;
  refused(s, r, false, "top_p", "1.5");
  prompt[2] = WORDS;
  refused(s, request(3, 5), false, "prompt", "100");
  prompt[2] = 1;
  r = request(3, 5);
  r.choices = 6;
  refused(s, r, true, "6 more", "4");
  r.choices = 5;
  ask(s, r);
  refused(s, request(3, 5), true, "6 sequences wait", "4");
  next(s, 1);
  zx_scheduler_free(s);
  ZxScheduling x = how(140, 2, 20);
  x.states = true;
  x.rows = 100;
  s = scheduler(x);
  r = request(200, 5);
  r.prompt_logprobs = true;
  refused(s, r, false, "128 rows", "100");
  zx_scheduler_free(s);
  x = how(8, 2, 0);
  cr_expect(!zx_scheduler_new(&x, &err) && strstr(err.text, "pages"), "%s", err.text);
}
