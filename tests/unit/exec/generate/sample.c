/* Choosing tokens: the distribution, the order of filters, what penalties count, parts, and what cannot be
 * chosen. */
#include "runtime/exec/generate/generate.h"
#include "tests/unit/breadth.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { MOST = 6000 };
static ZbErr err;
static uint64_t drawn;
static double unit(void) { return zb_random_unit(47, 1, drawn++); }
static uint32_t draw(uint32_t n) { return (uint32_t)(unit() * n); }

/* ---- how it is said, by the shortest code: masks over all words, as transformers makes them ---- */
static int down(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

static void penalized(const ZxRow *row, const float *logits, uint32_t n, double *z) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t all = 0, answer = 0;
    for (uint32_t k = 0; k < row->n; k++) {
      all += row->id[k] == i;
      answer += row->id[k] == i && k >= row->nprompt;
    }
    z[i] = (double)logits[i];
    if (all) z[i] = z[i] > 0 ? z[i] / row->how->repetition : z[i] * row->how->repetition;
    if (answer) z[i] -= row->how->frequency * answer + row->how->presence;
    for (uint32_t k = 0; k < row->how->nbias; k++)
      if (row->how->bias[k].id == i) z[i] += (double)row->how->bias[k].by;
    for (uint32_t k = 0; k < row->nhold; k++)
      if (row->hold[k] == i) z[i] = -INFINITY;
    if (row->allow && !(row->allow[i / 64] >> i % 64 & 1)) z[i] = -INFINITY;
  }
}

/* Probabilities of z that are left: softmax. */
static void softmax(const double *z, uint32_t n, double *p) {
  double most = -INFINITY, sum = 0;
  for (uint32_t i = 0; i < n; i++) most = fmax(most, z[i]);
  for (uint32_t i = 0; i < n; i++) sum += p[i] = exp(z[i] - most);
  for (uint32_t i = 0; i < n; i++) p[i] /= sum;
}

static void filtered(const ZxSampling *how, uint32_t n, double *z) {
  static double p[MOST], sorted[MOST];
  for (uint32_t i = 0; i < n; i++) z[i] /= how->temperature;
  if (how->top_k && how->top_k < n) {
    memcpy(sorted, z, n * sizeof *z);
    qsort(sorted, n, sizeof *z, down);
    for (uint32_t i = 0; i < n; i++)
      if (z[i] < sorted[how->top_k - 1]) z[i] = -INFINITY;
  }
  if (how->top_p < 1) { /* those go that, with all that are less likely, have no more than 1 - top_p */
    softmax(z, n, p);
    double most = -INFINITY;
    for (uint32_t i = 0; i < n; i++) most = fmax(most, z[i]);
    memcpy(sorted, p, n * sizeof *p);
    qsort(sorted, n, sizeof *p, down);
    double below = 0, cut = 0;
    for (uint32_t i = n; i--;) {
      below += sorted[i];
      if (below > 1 - how->top_p) break;
      cut = sorted[i];
    }
    for (uint32_t i = 0; i < n; i++)
      if (p[i] <= cut && z[i] < most) z[i] = -INFINITY;
  }
  if (how->min_p > 0) {
    double most = 0;
    softmax(z, n, p);
    for (uint32_t i = 0; i < n; i++) most = fmax(most, p[i]);
    for (uint32_t i = 0; i < n; i++)
      if (p[i] < how->min_p * most) z[i] = -INFINITY;
  }
}

static double gumbel(const ZxRow *row, uint32_t id) {
  uint64_t bits = zb_random_u64(zb_random_u64(row->how->seed, row->choice, row->n), 0, id) >> 12;
  return -log(-log(((double)bits + 0.5) / 4503599627370496.0));
}

static uint32_t plain(const ZxRow *row, const float *logits, uint32_t n) {
  static double z[MOST];
  penalized(row, logits, n, z);
  bool noise = row->how->temperature > 0;
  if (noise) filtered(row->how, n, z);
  uint32_t best = 0;
  double most = -INFINITY;
  for (uint32_t i = 0; i < n; i++) {
    double y = noise && z[i] > -INFINITY ? z[i] + gumbel(row, i) : z[i];
    if (y > most) most = y, best = i;
  }
  return best;
}

/* ---- the sampler, by parts ---- */
typedef struct {
  ZbArena *a;
  ZxTokenSampler *x;
  ZxFound found[8];
  uint32_t parts, rounds;
} Rank;

static Rank ranks(uint32_t vocabulary, uint32_t words, uint32_t parts) {
  Rank r = {.a = zb_arena_new(), .parts = parts};
  r.x = zx_sampler_new(r.a, vocabulary, words);
  for (uint32_t i = 0, first = 0, end; i < parts; i++, first = end) {
    end = i + 1 == parts ? vocabulary : first + draw((vocabulary - first) * 2 / (parts - i));
    zx_found_new(r.a, &r.found[i], first, end - first, vocabulary);
  }
  return r;
}

static ZxSampled choose(Rank *r, const ZxRow *row, const float *logits, ZxChoice *out) {
  ZxSampled was;
  r->rounds = 0;
  for (uint32_t i = 0; i < r->parts; i++) zx_found_begin(&r->found[i], row);
  do {
    for (uint32_t i = 0; i < r->parts; i++)
      zx_sample_part(r->x, row, logits + r->found[i].first, &r->found[i]);
    was = zx_sample_choose(r->x, row, r->found, r->parts, out, &err);
    r->rounds++;
  } while (was == ZX_MORE);
  return was;
}

static bool same(const ZxChoice *a, const ZxChoice *b) {
  bool is = a->id == b->id && !memcmp(&a->logprob, &b->logprob, sizeof a->logprob) && a->ntop == b->ntop;
  for (uint32_t i = 0; i < a->ntop && is; i++)
    is = a->top[i].id == b->top[i].id && !memcmp(&a->top[i].logprob, &b->top[i].logprob, sizeof a->logprob);
  return is;
}

static ZxSampling settings(void) {
  static const double temperature[] = {0, 0.3, 0.7, 1, 1.5}, top_p[] = {1, 1, 0.05, 0.5, 0.9, 0.99, 0.9999},
                      min_p[] = {0, 0, 0.02, 0.3, 1};
  static const uint32_t top_k[] = {0, 0, 0, 1, 3, 40, 1000, 100000};
  ZxSampling how = ZX_GREEDY;
  how.temperature = temperature[draw(5)];
  how.top_p = top_p[draw(7)];
  how.min_p = min_p[draw(5)];
  how.top_k = top_k[draw(8)];
  how.logprobs = draw(2) ? draw(ZX_TOP_LOGPROBS + 1) : ZX_NONE;
  how.seed = draw(1000) * 0x123456789ull;
  if (draw(2)) how.repetition = 0.5 + unit();
  if (draw(3) == 0) how.presence = 4 * unit() - 2;
  if (draw(3) == 0) how.frequency = 4 * unit() - 2;
  return how;
}

/* Random rows: the token is the one that the text above says, and 1, 2, 4 and 8 parts give the same bits. */
Test(sample, as_it_is_said_by_any_parts) {
  static const uint32_t sizes[] = {8, 37, 64, 512, 1000, 5003};
  static float logits[MOST];
  static uint64_t allow[MOST / 64 + 1];
  uint32_t more = 0;
  for (uint32_t s = 0; s < 6; s++) {
    uint32_t n = sizes[s];
    Rank rank[4];
    for (uint32_t i = 0; i < 4; i++) rank[i] = ranks(n, n, 1u << i);
    for (uint32_t trial = 0; trial < breadth_many(n > 1000 ? 60 : 300); trial++) {
      uint32_t id[20], hold[3] = {draw(n), draw(n), draw(n)};
      ZxBias bias[4];
      ZxSampling how = settings();
      double wide = (double[]){0.01, 1, 4}[draw(3)];
      for (uint32_t i = 0; i < n; i++)
        logits[i] = draw(50) ? (float)(wide * zb_random_normal(5, trial + 1000 * s, i)) : -INFINITY;
      uint32_t possible = draw(n); /* whatever is held */
      logits[possible] = 1;
      for (uint32_t i = 0; i <= n / 64; i++)
        allow[i] = zb_random_u64(7, trial, i) | (draw(2) ? UINT64_MAX : 0);
      allow[possible / 64] |= 1ull << possible % 64;
      for (uint32_t i = 0; i < n; i++)
        for (uint32_t i = 0; i < 4; i++) bias[i] = (ZxBias){draw(n), (float)(4 * unit() - 2)};
      for (uint32_t i = 0; i < 20; i++) id[i] = draw(n < 60 ? n : 60);
      how.bias = bias;
      how.nbias = draw(5);
      uint32_t known = draw(21);
      ZxRow row = {&how,
                   id,
                   known,
                   draw(known + 1),
                   draw(4),
                   hold,
                   n > 8 && !draw(4) ? 3 : 0,
                   ZX_NONE,
                   draw(3) ? NULL : allow};
      ZxChoice choice[4];
      for (uint32_t i = 0; i < 4; i++) {
        cr_assert_eq(choose(&rank[i], &row, logits, &choice[i]), ZX_CHOSEN, "%s", err.text);
        more += rank[i].rounds > 1;
        cr_assert(same(&choice[0], &choice[i]), "%u words by %u parts", n, 1u << i);
      }
      ZxChoice all;
      cr_assert(zx_sample(rank[0].x, &row, logits, &rank[0].found[0], &all, &err) && same(&choice[0], &all));
      uint32_t want = plain(&row, logits, n);
      cr_assert_eq(choice[0].id, want, "%u words, temperature %g, top_k %u, top_p %g, min_p %g", n,
                   how.temperature, how.top_k, how.top_p, how.min_p);
    }
    for (uint32_t i = 0; i < 4; i++) zb_arena_free(rank[i].a);
  }
  cr_expect(more > 20, "%u times the first candidates were too few", more);
}

/* ---- distributions ---- */
/* Pearson's sum of `draws` of a row against probabilities: it is above the limit, 0.9999 of chi-square,
 * once in 10,000 seeds, of which this is one. */
static double chi_square(const ZxSampling *how, const float *logits, uint32_t n, uint32_t draws,
                         uint32_t choice) {
  static double z[MOST], p[MOST];
  uint32_t *count = calloc(n, sizeof *count), *id = calloc(draws, sizeof *id);
  Rank r = ranks(n, n, 2);
  ZxRow row = {how, id, 0, 0, choice, NULL, 0, ZX_NONE, NULL};
  penalized(&row, logits, n, z);
  filtered(how, n, z);
  softmax(z, n, p);
  for (uint32_t k = 0; k < draws; k++) {
    ZxChoice c;
    row.n = row.nprompt = k;
    choose(&r, &row, logits, &c);
    count[c.id]++;
  }
  double chi = 0;
  for (uint32_t i = 0; i < n; i++) {
    cr_expect(p[i] > 0 || !count[i], "token %u must not come", i);
    if (p[i] > 0) chi += (count[i] - draws * p[i]) * (count[i] - draws * p[i]) / (draws * p[i]);
  }
  free(count);
  free(id);
  zb_arena_free(r.a);
  return chi;
}

Test(sample, distributions) {
  float logits[16];
  for (uint32_t i = 0; i < 16; i++) logits[i] = (float)(1.2 * zb_random_normal(3, 0, i));
  ZxSampling how = ZX_GREEDY;
  how.seed = 12345;
  how.temperature = 1;
  cr_expect(chi_square(&how, logits, 16, 20000, 0) < 44.3); /* 15 degrees of freedom */
  how.seed = 12346;
  cr_expect(chi_square(&how, logits, 16, 20000, 3) < 44.3);
  how.temperature = 1.7;
  how.top_k = 8;
  cr_expect(chi_square(&how, logits, 16, 20000, 0) < 29.9); /* 7 */
  how.top_k = 0;
  how.top_p = 0.8;
  cr_expect(chi_square(&how, logits, 16, 20000, 1) < 33.8); /* at most 9 */
}

/* Neither the choice, the position nor the seed, in all of its bits, says what another one draws. */
Test(sample, draws_are_independent) {
  float logits[64] = {0};
  uint32_t id[400] = {0};
  Rank r = ranks(64, 64, 1);
  ZxSampling how = ZX_GREEDY, other = ZX_GREEDY;
  how.temperature = other.temperature = 1;
  how.seed = 7;
  for (uint32_t what = 0; what < 4; what++) {
    uint32_t equal = 0;
    for (uint32_t k = 0; k < 390; k++) {
      ZxChoice a, b;
      other.seed = what == 0 ? 8 : what == 1 ? 7 + (1ull << 32) : 7;
      ZxRow one = {&how, id, k, k, 0, NULL, 0, ZX_NONE, NULL},
            two = {&other, id, k, k, 0, NULL, 0, ZX_NONE, NULL};
      if (what == 2) two.choice = 1;
      if (what == 3) two.n = two.nprompt = k + 1;
      choose(&r, &one, logits, &a);
      choose(&r, &two, logits, &b);
      equal += a.id == b.id;
    }
    cr_expect(equal < 20, "%u of 390 are equal, 6 would be usual", equal); /* 6 + 5.7 of its deviations */
  }
  zb_arena_free(r.a);
}

/* ---- single rules ---- */
static ZxChoice one(const ZxRow *row, const float *logits, uint32_t n) {
  Rank r = ranks(n, n, 1);
  ZxChoice c;
  cr_assert(zx_sample(r.x, row, logits, &r.found[0], &c, &err), "%s", err.text);
  zb_arena_free(r.a);
  return c;
}

/* Repetition counts prompt and answer, once each; presence and frequency the answer. The numbers are the
 * model's. */
Test(sample, penalties) {
  static const float above[] = {2, 1.9f, 1.5f, 1}, below[] = {-1, -1.2f, -1.45f, -1.7f};
  static const uint32_t id[] = {0, 0, 1, 1};
  const struct {
    const float *logits;
    double repetition, presence, frequency;
    uint32_t nprompt, want;
  } t[] = {{above, 1.3, 0, 0, 4, 0}, /* 1.54, 1.46, 1.5 */
           {above, 1.35, 0, 0, 4, 2}, {above, 1.35, 0, 0, 0, 2},
           {above, 1, 0.6, 0, 4, 0},  {above, 1, 0.6, 0, 2, 0},
           {above, 1, 0.6, 0, 1, 2},  {above, 1, 0, 0.3, 1, 0}, /* 1.7, 1.3, 1.5 */
           {above, 1, 0, 0.51, 1, 2}, {above, 1, -0.5, 0, 2, 1},
           {below, 1.3, 0, 0, 4, 0}, /* -1.3, -1.56, -1.45 */
           {below, 1.5, 0, 0, 4, 2},  {below, 1.1, 0.4, 0.3, 0, 2}};
  for (uint32_t i = 0; i < sizeof t / sizeof *t; i++) {
    ZxSampling how = ZX_GREEDY;
    how.repetition = t[i].repetition;
    how.presence = t[i].presence;
    how.frequency = t[i].frequency;
    how.logprobs = 4;
    ZxChoice c = one(&(ZxRow){&how, id, 4, t[i].nprompt, 0, NULL, 0, ZX_NONE, NULL}, t[i].logits, 4);
    cr_expect_eq(c.id, t[i].want, "case %u: %u", i, c.id);
    double sum = 0;
    for (uint32_t k = 0; k < 4; k++) sum += exp((double)t[i].logits[k]);
    cr_expect_float_eq(c.logprob, (double)t[i].logits[c.id] - log(sum), 1e-14);
    for (uint32_t k = 0; k < 4; k++) {
      cr_expect(c.top[k].id == k && fabs(c.top[k].logprob - ((double)t[i].logits[k] - log(sum))) < 1e-14);
      if (k == c.id) cr_expect(c.top[k].logprob == c.logprob, "the same token, and another number");
    }
  }
}

Test(sample, bias_ends_and_words_of_no_tokenizer) {
  static const float logits[] = {5, 4, 3, 2, 1, 9, 9, 9};
  static const ZxBias bias[] = {{3, 2.5f}, {0, -100}};
  static const uint32_t hold[] = {0, 1};
  Rank r = ranks(8, 5, 1);
  ZxSampling how = ZX_GREEDY;
  ZxRow row = {&how, NULL, 0, 0, 0, hold, 0, ZX_NONE, NULL};
  ZxChoice c;
  how.logprobs = 8;
  cr_assert(zx_sample(r.x, &row, logits, &r.found[0], &c, &err));
  cr_expect(c.id == 0 && c.ntop == 5, "%u, %u", c.id, c.ntop);
  cr_expect_float_eq(c.logprob, 5 - log(exp(5) + exp(4) + exp(3) + exp(2) + exp(1) + 3 * exp(9)), 1e-12);
  row.nhold = 2;
  cr_assert(zx_sample(r.x, &row, logits, &r.found[0], &c, &err) && c.id == 2);
  how.bias = bias;
  how.nbias = 2;
  cr_assert(zx_sample(r.x, &row, logits, &r.found[0], &c, &err) && c.id == 3);
  how.temperature = 50; /* nearly even */
  how.top_p = 0.999;
  uint32_t seen = 0;
  for (how.seed = 0; how.seed < 300; how.seed++) {
    cr_assert(zx_sample(r.x, &row, logits, &r.found[0], &c, &err));
    seen |= 1u << c.id;
  }
  cr_expect_eq(seen, 0x1c, "%x", seen);
  zb_arena_free(r.a);
}

/* The most likely one: of equal ones the lowest id, by any parts. */
Test(sample, ties) {
  float logits[64];
  for (uint32_t i = 0; i < 64; i++) logits[i] = i % 16 == 7 || i % 16 == 11 ? 3 : -2;
  for (uint32_t parts = 1; parts <= 8; parts *= 2) {
    Rank r = ranks(64, 64, parts);
    ZxSampling how = ZX_GREEDY;
    ZxRow row = {&how, NULL, 0, 0, 0, NULL, 0, ZX_NONE, NULL};
    ZxChoice c;
    how.logprobs = 3;
    cr_assert(choose(&r, &row, logits, &c) == ZX_CHOSEN);
    cr_expect(c.id == 7 && c.top[0].id == 7 && c.top[1].id == 11 && c.top[2].id == 23);
    how.temperature = 1;
    how.top_k = 2;
    for (how.seed = 0; how.seed < 50; how.seed++) {
      cr_assert(choose(&r, &row, logits, &c) == ZX_CHOSEN);
      cr_expect(c.id == 7 || c.id == 11);
    }
    zb_arena_free(r.a);
  }
}

/* Settings that leave one token leave the most likely one. */
Test(sample, the_ends_of_ranges) {
  static const float logits[] = {1, 2.5f, 2.4f, -3};
  ZxSampling how[5];
  for (uint32_t i = 0; i < 5; i++) {
    how[i] = ZX_GREEDY;
    how[i].temperature = 1;
  }
  how[0].top_p = 0;
  how[1].min_p = 1;
  how[2].top_k = 1;
  how[3].temperature = 1e-6;
  how[4].temperature = 1e-300;
  for (uint32_t i = 0; i < 5; i++)
    for (how[i].seed = 0; how[i].seed < 20; how[i].seed++)
      cr_expect_eq(one(&(ZxRow){&how[i], NULL, 0, 0, 0, NULL, 0, ZX_NONE, NULL}, logits, 4).id, 1,
                   "settings %u", i);
}

/* A token of a prompt has the log-probability that it has without being chosen. */
Test(sample, given_tokens) {
  static const float logits[] = {1, 2.5f, -INFINITY, -3};
  ZxSampling how = ZX_GREEDY;
  how.logprobs = 1;
  ZxRow row = {&how, NULL, 0, 0, 0, NULL, 0, 3, NULL};
  ZxChoice c = one(&row, logits, 4);
  double sum = log(exp(1) + exp(2.5) + exp(-3));
  cr_expect(c.id == 3 && c.ntop == 1 && c.top[0].id == 1);
  cr_expect_float_eq(c.logprob, -3 - sum, 1e-14);
  row.given = 1;
  c = one(&row, logits, 4);
  cr_expect(c.logprob == c.top[0].logprob);
  row.given = 2;
  cr_expect(one(&row, logits, 4).logprob == -INFINITY);
  how.logprobs = 0;
  row.given = 3;
  c = one(&row, logits, 4);
  cr_expect(!c.ntop && fabs(c.logprob - (-3 - sum)) < 1e-14);
}

/* ---- what cannot be chosen ---- */
Test(sample, broken_logits) {
  float logits[64] = {0};
  static const float bad[] = {NAN, INFINITY};
  for (uint32_t kind = 0; kind < 4; kind++)
    for (uint32_t parts = 1; parts <= 4; parts *= 4)
      for (uint32_t i = 0; i < 2; i++) {
        Rank r = ranks(64, 32, parts);
        ZxSampling how = ZX_GREEDY;
        how.temperature = kind ? 1 : 0;
        how.top_p = kind == 2 ? 0.5 : 1;
        ZxRow row = {&how, NULL, 0, 0, 0, NULL, 0, kind == 3 ? 5 : ZX_NONE, NULL};
        ZxChoice c;
        logits[21] = logits[50] = bad[i];
        cr_expect(choose(&r, &row, logits, &c) == ZX_WRONG && strstr(err.text, "21") && *err.help, "%s",
                  err.text);
        logits[21] = 0; /* the other is no word, and a sign of something wrong all the same */
        cr_expect(choose(&r, &row, logits, &c) == ZX_WRONG && strstr(err.text, "50"), "%s", err.text);
        logits[50] = 0;
        cr_expect(choose(&r, &row, logits, &c) == ZX_CHOSEN);
        zb_arena_free(r.a);
      }
}

Test(sample, nothing_may_come) {
  float logits[8];
  static const uint32_t hold[] = {3};
  for (uint32_t kind = 0; kind < 4; kind++) {
    Rank r = ranks(8, 8, 2);
    ZxSampling how = ZX_GREEDY;
    ZxRow row = {&how, NULL, 0, 0, 0, hold, 1, ZX_NONE, NULL};
    ZxChoice c;
    how.temperature = kind ? 1 : 0;
    how.top_p = kind == 2 ? 0.5 : 1;
    how.min_p = kind == 3 ? 0.5 : 0;
    for (uint32_t i = 0; i < 8; i++) logits[i] = -INFINITY;
    cr_expect(choose(&r, &row, logits, &c) == ZX_WRONG && strstr(err.text, "no token"), "%s", err.text);
    logits[3] = 1; /* what is held does not come either */
    cr_expect(choose(&r, &row, logits, &c) == ZX_WRONG);
    logits[6] = -1e30f;
    cr_expect(choose(&r, &row, logits, &c) == ZX_CHOSEN && c.id == 6);
    zb_arena_free(r.a);
  }
}

Test(sample, settings_out_of_range) {
  static const ZxBias far[] = {{8, 1}}, large[] = {{1, 101}}, none[] = {{1, NAN}};
  ZxSampling good = ZX_GREEDY, x;
  cr_expect(zx_sampling_check(&good, 8, &err));
#define REFUSED(field, value, word)                                                                          \
  do {                                                                                                       \
    x = good;                                                                                                \
    x.field = value;                                                                                         \
    cr_expect(!zx_sampling_check(&x, 8, &err) && strstr(err.text, word), "%s", err.text);                    \
  } while (0)
  REFUSED(temperature, -1, "temperature");
  REFUSED(temperature, NAN, "temperature");
  REFUSED(top_p, 1.5, "top_p");
  REFUSED(top_p, -0.1, "top_p");
  REFUSED(min_p, 2, "min_p");
  REFUSED(repetition, 0, "repetition");
  REFUSED(presence, 2.5, "presence");
  REFUSED(frequency, -2.5, "frequency");
  REFUSED(logprobs, 21, "logprobs");
  good.nbias = 1;
  REFUSED(bias, far, "id 8");
  REFUSED(bias, large, "101");
  REFUSED(bias, none, "logit_bias");
}
