/* The next token of a row of logits, found by parts of the words.
 *
 * A part looks for what the settings need: at temperature 0 its largest logit; without filters its largest
 * of logit and noise; with filters its largest candidates, of which more are asked for if the filters' cut
 * lies beyond what is sure. Exponentials are added as integers, of one unit and over the largest number of
 * all parts, so that sums have the same bits in any parts. */
#include "runtime/exec/generate/generate.h"

#include <math.h>

enum { FIRST_CANDIDATES = 32, FEW = 1024, STRETCH = 64 /* ids that are looked at together */ };

struct ZxTokenSampler {
  uint32_t vocabulary, words;
  double *score;          /* by id of the part */
  uint32_t *seen, *count; /* by id of the part: the row in which it was seen; how often in the answer */
  uint32_t row;
};

/* ---- settings ---- */
static bool in_range(const char *what, double x, double least, double most, ZbErr *err) {
  return (x >= least && x <= most) ||
         zb_fail(err, NULL, "%s is %g; %g to %g are possible", what, x, least, most);
}

bool zx_sampling_check(const ZxSampling *how, uint32_t vocabulary, ZbErr *err) {
  for (uint32_t i = 0; i < how->nbias; i++) {
    if (how->bias[i].id >= vocabulary)
      return zb_fail(err, NULL, "logit_bias: id %u; the model has %u", how->bias[i].id, vocabulary);
    if (!in_range("a value of logit_bias", (double)how->bias[i].by, -100, 100, err)) return false;
  }
  if (how->logprobs != ZX_NONE && !in_range("logprobs", how->logprobs, 0, ZX_TOP_LOGPROBS, err)) return false;
  return in_range("temperature", how->temperature, 0, 1e6, err) && in_range("top_p", how->top_p, 0, 1, err) &&
         in_range("min_p", how->min_p, 0, 1, err) &&
         in_range("repetition_penalty", how->repetition, 1e-6, 1e6, err) &&
         in_range("presence_penalty", how->presence, -2, 2, err) &&
         in_range("frequency_penalty", how->frequency, -2, 2, err);
}

typedef enum { LARGEST, NOISE, FILTERS } Kind;
static Kind kind_of(const ZxRow *row) {
  const ZxSampling *how = row->how;
  if (how->temperature < 1e-9) return LARGEST;
  return how->top_k || how->top_p < 1 || how->min_p > 0 ? FILTERS : NOISE;
}
static bool chooses(const ZxRow *row) { return row->given == ZX_NONE; }
static bool sums(const ZxRow *row) {
  return chooses(row) && kind_of(row) == FILTERS && row->how->top_p < 1 && !row->how->top_k;
}
static bool has_logprobs(const ZxRow *row) { return row->how->logprobs != ZX_NONE; }

/* Returns what may come behind n tokens of prompt and answer; behind a wrong draft token, of which no row is taken,
 * anything. */
static const uint64_t *allowed(const ZxSequence *q, uint32_t n) {
  ZxShaped at = q->shaped;
  if (!zx_shape_follow(q->shape, &at, q->id + q->nprompt, n - q->nprompt)) return NULL;
  return zx_shape_mask(q->shape, &at, q->end, q->nend);
}

ZxRow zx_row(const ZxSequence *q, uint32_t position) {
  bool next = position + 1 >= q->n;
  uint32_t n = next ? position + 1 : q->n;
  bool early = n - q->nprompt < q->min_tokens;
  return (ZxRow){.how = &q->sampling,
                 .id = q->id,
                 .n = n,
                 .nprompt = q->nprompt,
                 .choice = q->choice,
                 .hold = q->end,
                 .nhold = early ? q->nend : 0,
                 .given = next ? ZX_NONE : q->id[position + 1],
                 .allow = next && q->shape ? allowed(q, n) : NULL};
}

/* ---- noise ---- */
/* The noise of an id in a row is -log(-log u), u a hash of both. */
static uint64_t noise_key(const ZxRow *row) { return zb_random_u64(row->how->seed, row->choice, row->n); }
static uint64_t noise_bits(uint64_t key, uint32_t id) { return zb_random_u64(key, 0, id); }
/* 52 bits: u is never 1. */
static double noise(uint64_t bits) { return -log(-log(((double)(bits >> 12) + 0.5) * 0x1p-52)); }
/* No noise of these bits is larger, since -log(-log u) < -log(1 - u), and 1 - u > 2^-(k + 1) if u begins
 * with k ones. */
static double noise_at_most(uint64_t bits) {
  int ones = ~bits ? __builtin_clzll(~bits) : 64;
  return (ones + 1) * 0.6931471805599454 + 1e-9;
}

/* ---- sums ---- */
/* e^x for x <= 0, plain arithmetic of which the compiler makes vectors: x = k ln 2 + r, and Taylor's
 * series of r, at most 0.35, to r^13: what it leaves is below 2^-57. Below e^-700 all is 0. */
static inline double exp_below(double x) {
  const double round = 0x1.8p52, high = 0x1.62e42feep-1, low = 0x1.a39ef35793c76p-33; /* of ln 2 */
  double y = x < -700 ? -700 : x, shifted = y * 1.4426950408889634 + round, k = shifted - round;
  double r = (y - k * high) - k * low, p = 1.0 / 6227020800;
  p = p * r + 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = (p * r + 1) * r + 1;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits); /* its last bits are k */
  bits = (bits + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return x < -700 ? 0 : p * power;
}

enum { LANES = 8 }; /* number i of a block is added to sum i % 8 */
ZB_WIDE static double largest_of(const double *x, size_t n) {
  double most[LANES], all = -INFINITY;
  for (int k = 0; k < LANES; k++) most[k] = -INFINITY;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
  for (int k = 0; k < LANES; k++) all = most[k] > all ? most[k] : all;
  for (; i < n; i++) all = x[i] > all ? x[i] : all;
  return all;
}

/* Returns the unit of sums, a power of two: one of all words fits 63 bits, and an exponential 52. */
static double unit_of(uint32_t vocabulary) {
  int bits = 32 - __builtin_clz(vocabulary | 1);
  return ldexp(1, bits > 11 ? 62 - bits : 51);
}

/* Adds up exp(x - over), each rounded to a whole number of 1 / unit: 2^52 more, its last bits are that number. */
ZB_WIDE static uint64_t sum_over(const double *x, size_t n, double over, double unit) {
  const uint64_t low = (1ull << 52) - 1;
  uint64_t sum = 0;
  if (over == -INFINITY) return 0;
  for (size_t i = 0; i < n; i++) {
    double y = exp_below(x[i] - over) * unit + 0x1p52;
    uint64_t bits;
    memcpy(&bits, &y, sizeof bits);
    sum += bits & low;
  }
  return sum;
}

/* Sums a part over the largest of all, as far as that is known: at first the part's own. */
static void sum_part(const ZxTokenSampler *x, uint32_t n, ZxSum *s) {
  s->most = largest_of(x->score, n);
  if (s->over < s->most) s->over = s->most;
  s->sum = sum_over(x->score, n, s->over, unit_of(x->vocabulary));
}

typedef enum { OF_SCORES, OF_MODEL } Which;
static ZxSum *sum_of(ZxFound *f, Which which) { return which == OF_MODEL ? &f->model : &f->sum; }

/* Adds the sums of all parts. False: some were over less than the largest of all, which they know now. */
static bool add_parts(ZxFound *f, uint32_t parts, Which which, ZxSum *all) {
  bool right = true;
  *all = (ZxSum){.most = -INFINITY};
  for (uint32_t i = 0; i < parts; i++) {
    const ZxSum *s = sum_of(&f[i], which);
    if (s->most > all->most) all->most = s->most;
    all->sum += s->sum;
  }
  for (uint32_t i = 0; i < parts; i++) {
    ZxSum *s = sum_of(&f[i], which);
    right &= s->over == all->most;
    s->over = all->over = all->most;
  }
  return right;
}

/* ---- the largest ---- */
static uint32_t least_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

static bool before(const ZxCandidate *a, const ZxCandidate *b) {
  return a->score > b->score || (a->score == b->score && a->id < b->id);
}

static void swap(ZxCandidate *a, ZxCandidate *b) {
  ZxCandidate x = *a;
  *a = *b;
  *b = x;
}

/* Puts the first `most` of c[0..n) in order, and the others behind them: quicksort, which leaves alone
 * what is wholly behind (Hoare 1961). */
static void order(ZxCandidate *c, uint32_t n, uint32_t most) {
  while (n > 1) {
    ZxCandidate *last = &c[n - 1], *half = &c[(n - 1) / 2];
    if (before(half, c)) swap(half, c);
    if (before(last, c)) swap(last, c);
    if (before(last, half)) swap(last, half);
    const ZxCandidate middle = *half;
    uint32_t i = 0, k = n - 1;
    for (;; i++, k--) {
      while (before(&c[i], &middle)) i++;
      while (before(&middle, &c[k])) k--;
      if (i >= k) break;
      swap(&c[i], &c[k]);
    }
    uint32_t left = k + 1; /* all up to k come before all behind it */
    if (left >= most) {
      n = left;
    } else if (left < n - left) {
      order(c, left, left);
      c += left;
      n -= left;
      most -= left;
    } else {
      order(c + left, n - left, most - left);
      n = most = left;
    }
  }
}

/* The largest candidates so far: a heap whose root is the last in order, once there are `most`. */
typedef struct {
  ZxCandidate *c;
  uint32_t most, found;
  bool left; /* others were left out */
} Heap;

static void sink(const Heap *h, uint32_t i) {
  for (ZxCandidate x = h->c[i];; h->c[i] = x) {
    uint32_t down = 2 * i + 1;
    if (down >= h->found) return;
    down += down + 1 < h->found && before(&h->c[down], &h->c[down + 1]);
    if (!before(&x, &h->c[down])) return;
    h->c[i] = h->c[down];
    i = down;
  }
}

static void offer(Heap *h, ZxCandidate x) {
  if (h->found < h->most) {
    h->c[h->found++] = x;
    for (uint32_t k = h->found == h->most ? h->found / 2 : 0; k--;) sink(h, k);
    return;
  }
  h->left = true;
  if (!before(&x, h->c)) return;
  h->c[0] = x;
  sink(h, 0);
}

/* Puts the `most` largest scores into c, in order; -infinity is none. Returns how many there are. A few
 * are found by a heap; of many c must have room for all n. */
static uint32_t largest(const double *score, const float *logits, uint32_t first, uint32_t n, uint32_t most,
                        ZxCandidate *c, bool *all) {
  Heap h = {c, most > FEW ? n + 1 : most, 0, false};
  for (uint32_t at = 0; at < n && most; at += STRETCH) {
    uint32_t end = at + STRETCH < n ? at + STRETCH : n;
    double best = largest_of(score + at, end - at);
    if (best == -INFINITY) continue;
    /* Ids only rise, so of an equal score the one that is there comes first. */
    if (h.found == h.most && best <= c[0].score) h.left = true;
    else
      for (uint32_t i = at; i < end; i++)
        if (score[i] > -INFINITY) offer(&h, (ZxCandidate){score[i], logits[i], first + i});
  }
  uint32_t found = least_of(h.found, most);
  order(c, h.found, found);
  *all = !h.left && found == h.found;
  return found;
}

/* Hashes of neighbouring ids; returns the largest. */
ZB_WIDE static uint64_t draw_bits(uint64_t key, uint32_t first, uint32_t n, uint64_t *bits) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    bits[i] = noise_bits(key, first + i);
    most = bits[i] > most ? bits[i] : most;
  }
  return most;
}

/* Finds the largest score with noise. Noise is made only where it may be enough. */
static uint32_t noisiest(const ZxRow *row, const double *score, const float *logits, uint32_t first,
                         uint32_t n, ZxCandidate *c) {
  uint64_t key = noise_key(row), bits[STRETCH];
  uint32_t found = 0;
  double best = -INFINITY;
  for (uint32_t at = 0; at < n; at += STRETCH) {
    uint32_t end = at + STRETCH < n ? at + STRETCH : n;
    uint64_t most = draw_bits(key, first + at, end - at, bits);
    if (largest_of(score + at, end - at) + noise_at_most(most) <= best) continue;
    for (uint32_t i = at; i < end; i++) {
      if (score[i] + noise_at_most(bits[i - at]) <= best) continue;
      double y = score[i] + noise(bits[i - at]);
      if (!(y > best)) continue;
      best = y;
      c[0] = (ZxCandidate){y, logits[i], first + i};
      found = 1;
    }
  }
  return found;
}

/* ---- a part ---- */
/* Takes the model's logits as they are. False: one of them is not a number, or infinite. */
ZB_WIDE static bool take_logits(double *restrict score, const float *restrict logits, uint32_t n) {
  uint32_t bad = 0;
  for (uint32_t i = 0; i < n; i++) {
    score[i] = (double)logits[i];
    bad += !(logits[i] < INFINITY);
  }
  return !bad;
}

static uint32_t first_broken(const float *logits, uint32_t first) {
  for (uint32_t i = 0;; i++)
    if (!(logits[i] < INFINITY)) return first + i;
}

static void penalize(ZxTokenSampler *x, const ZxRow *row, uint32_t first, uint32_t n) {
  const ZxSampling *how = row->how;
  if (how->repetition == 1 && how->presence == 0 && how->frequency == 0) return;
  if (!++x->row) memset(x->seen, 0, x->vocabulary * sizeof *x->seen);
  x->row += !x->row;
  for (uint32_t k = 0; k < row->n; k++) {
    uint32_t i = row->id[k] - first;
    if (i >= n) continue; /* another part's, too */
    if (x->seen[i] != x->row) {
      x->seen[i] = x->row;
      x->count[i] = 0;
      x->score[i] = x->score[i] > 0 ? x->score[i] / how->repetition : x->score[i] * how->repetition;
    }
    x->count[i] += k >= row->nprompt;
  }
  for (uint32_t k = row->nprompt; k < row->n; k++) {
    uint32_t i = row->id[k] - first;
    if (i >= n || !x->count[i]) continue;
    x->score[i] -= how->frequency * x->count[i] + how->presence;
    x->count[i] = 0;
  }
}

/* Takes away what may not come, 64 ids at a time where all or none may. */
static void mask(double *score, const uint64_t *allow, uint32_t first, uint32_t n) {
  for (uint32_t i = 0, end; i < n; i = end) {
    uint64_t bits = allow[(first + i) / 64];
    end = i + 64 - (first + i) % 64 < n ? i + 64 - (first + i) % 64 : n;
    if (bits == UINT64_MAX) continue;
    for (uint32_t k = i; k < end; k++)
      if (!(bits >> (first + k) % 64 & 1)) score[k] = -INFINITY;
  }
}

/* Logits become scores: what may not come has -infinity. */
static void score(ZxTokenSampler *x, const ZxRow *row, uint32_t first, uint32_t n) {
  const ZxSampling *how = row->how;
  penalize(x, row, first, n);
  for (uint32_t k = 0; k < how->nbias; k++)
    if (how->bias[k].id - first < n) x->score[how->bias[k].id - first] += (double)how->bias[k].by;
  for (uint32_t k = 0; k < row->nhold; k++)
    if (row->hold[k] - first < n) x->score[row->hold[k] - first] = -INFINITY;
  if (row->allow) mask(x->score, row->allow, first, n);
  for (uint32_t i = x->words > first ? x->words - first : 0; i < n; i++) x->score[i] = -INFINITY;
  if (kind_of(row) != LARGEST)
    for (uint32_t i = 0; i < n; i++) x->score[i] /= how->temperature;
}

static void find_model(ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *f) {
  bool all;
  uint32_t words = x->words > f->first ? x->words - f->first : 0;
  sum_part(x, f->n, &f->model);
  f->nbest =
      largest(x->score, logits, f->first, words < f->n ? words : f->n, row->how->logprobs, f->best, &all);
  if (row->given - f->first < f->n) f->given = logits[row->given - f->first];
}

void zx_sample_part(ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *f) {
  f->found = f->nbest = 0;
  f->broken = take_logits(x->score, logits, f->n) ? ZX_NONE : first_broken(logits, f->first);
  if (f->broken != ZX_NONE) return;
  if (has_logprobs(row)) find_model(x, row, logits, f);
  if (!chooses(row)) return;
  score(x, row, f->first, f->n);
  if (sums(row)) sum_part(x, f->n, &f->sum);
  zx_sample_more(x, row, logits, f);
}

void zx_sample_more(const ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *f) {
  if (kind_of(row) == NOISE) f->found = noisiest(row, x->score, logits, f->first, f->n, f->candidate);
  else f->found = largest(x->score, logits, f->first, f->n, f->most, f->candidate, &f->all);
}

ZxTokenSampler *zx_sampler_new(ZbArena *a, uint32_t vocabulary, uint32_t words) {
  ZxTokenSampler *x = ZB_NEW(a, ZxTokenSampler);
  *x = (ZxTokenSampler){vocabulary,
                        words,
                        ZB_NEWN(a, double, vocabulary),
                        ZB_NEWN(a, uint32_t, vocabulary),
                        ZB_NEWN(a, uint32_t, vocabulary),
                        0};
  return x;
}

void zx_found_new(ZbArena *a, ZxFound *f, uint32_t first, uint32_t n, uint32_t widest) {
  *f = (ZxFound){.first = first, .n = n, .cap = widest, .candidate = ZB_NEWN(a, ZxCandidate, widest + 1)};
}

void zx_found_begin(ZxFound *f, const ZxRow *row) {
  uint32_t k = row->how->top_k, most = k ? k : FIRST_CANDIDATES;
  f->most = kind_of(row) == FILTERS ? least_of(most, f->cap) : 1;
  f->sum.over = f->model.over = -INFINITY;
}

/* ---- all parts ---- */
/* Goes through candidates of all parts in order. False at the end of what is sure; *more: there are others
 * behind it. */
typedef struct {
  const ZxFound *f;
  uint32_t parts, at[ZX_PARTS];
} Walk;
static bool next(Walk *w, const ZxCandidate **c, bool *more) {
  *c = NULL;
  for (uint32_t i = 0; i < w->parts; i++) {
    const ZxFound *f = &w->f[i];
    if (w->at[i] == f->found && !f->all) return !(*more = true);
    if (w->at[i] < f->found && (!*c || before(&f->candidate[w->at[i]], *c))) *c = &f->candidate[w->at[i]];
  }
  for (uint32_t i = 0; i < w->parts; i++)
    w->at[i] += w->at[i] < w->f[i].found && *c == &w->f[i].candidate[w->at[i]];
  return *c;
}

/* Returns the sum of exp(score - largest) that top_p takes its share of: of top_k's candidates, or of all. */
static double whole(const ZxRow *row, const ZxFound *f, uint32_t parts, double all, bool *more) {
  if (!row->how->top_k) return all;
  Walk w = {.f = f, .parts = parts};
  const ZxCandidate *c, *first = NULL;
  double sum = 0;
  for (uint32_t k = 0; k < row->how->top_k && next(&w, &c, more); k++) {
    if (!first) first = c;
    sum += exp(c->score - first->score);
  }
  return sum;
}

/* Returns the largest with noise among those that the filters leave. NULL: none, or *more are needed. */
static const ZxCandidate *filter(const ZxRow *row, const ZxFound *f, uint32_t parts, double all, bool *more) {
  const ZxSampling *how = row->how;
  Walk w = {.f = f, .parts = parts};
  const ZxCandidate *c, *first = NULL, *best = NULL;
  uint64_t key = noise_key(row);
  double most = -INFINITY, sum = 0, total = how->top_p < 1 ? whole(row, f, parts, all, more) : 0;
  for (uint32_t k = 0; !how->top_k || k < how->top_k; k++) {
    if (first && how->top_p < 1 && sum >= how->top_p * total) break;
    if (!next(&w, &c, more)) break;
    if (!first) first = c;
    if (how->min_p > 0 && c->score < first->score + log(how->min_p)) break;
    sum += exp(c->score - first->score);
    double y = c->score + noise(noise_bits(key, c->id));
    if (y < most || (y == most && best && c->id > best->id)) continue;
    most = y;
    best = c;
  }
  return *more ? NULL : best;
}

static const ZxCandidate *first_of(const ZxFound *f, uint32_t parts) {
  const ZxCandidate *best = NULL;
  for (uint32_t i = 0; i < parts; i++)
    if (f[i].found && (!best || before(f[i].candidate, best))) best = f[i].candidate;
  return best;
}

/* Writes the model's log-probabilities: of the one that was chosen or given, and of the most likely ones. */
static void say_logprobs(const ZxRow *row, const ZxFound *f, uint32_t parts, double log_sum, float logit,
                         ZxChoice *out) {
  uint32_t at[ZX_PARTS] = {0};
  out->logprob = (double)logit - log_sum;
  for (out->ntop = 0; out->ntop < row->how->logprobs; out->ntop++) {
    uint32_t best = parts;
    for (uint32_t i = 0; i < parts; i++)
      if (at[i] < f[i].nbest && (best == parts || before(&f[i].best[at[i]], &f[best].best[at[best]])))
        best = i;
    if (best == parts) break;
    const ZxCandidate *c = &f[best].best[at[best]++];
    out->top[out->ntop].id = c->id;
    out->top[out->ntop].logprob = c->score - log_sum;
  }
}

static ZxSampled broken(const ZxFound *f, uint32_t parts, ZbErr *err) {
  for (uint32_t i = 0; i < parts; i++) {
    if (f[i].broken == ZX_NONE) continue;
    zb_fail(err, "were the weights read in the type they were written in?",
            "the model's logit of token %u is not a number, or infinite", f[i].broken);
    return ZX_WRONG;
  }
  return ZX_CHOSEN;
}

ZxSampled zx_sample_choose(const ZxTokenSampler *x, const ZxRow *row, ZxFound *f, uint32_t parts,
                           ZxChoice *out, ZbErr *err) {
  ZB_ASSERT(parts && parts <= ZX_PARTS);
  const double unit = unit_of(x->vocabulary);
  const ZxCandidate *c = NULL;
  ZxSum scores = {0}, model = {0};
  bool more = false;
  float logit = 0;
  *out = (ZxChoice){.id = row->given};
  if (broken(f, parts, err) == ZX_WRONG) return ZX_WRONG;
  if (has_logprobs(row)) more |= !add_parts(f, parts, OF_MODEL, &model);
  if (sums(row)) more |= !add_parts(f, parts, OF_SCORES, &scores);
  if (more) return ZX_MORE;
  if (chooses(row)) {
    c = kind_of(row) == FILTERS ? filter(row, f, parts, (double)scores.sum / unit, &more)
                                : first_of(f, parts);
    for (uint32_t i = 0; i < parts && more; i++) f[i].most = least_of(4 * f[i].most, f[i].cap);
    if (more) return ZX_MORE;
    if (!c) {
      zb_fail(err, "allow more tokens",
              "no token may come: the logits of all that are allowed are -infinity");
      return ZX_WRONG;
    }
    out->id = c->id;
    logit = c->logit;
  } else
    for (uint32_t i = 0; i < parts; i++)
      if (row->given - f[i].first < f[i].n) logit = f[i].given;
  if (has_logprobs(row)) say_logprobs(row, f, parts, model.most + log((double)model.sum / unit), logit, out);
  return ZX_CHOSEN;
}

bool zx_sample(ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *found, ZxChoice *out,
               ZbErr *err) {
  ZxSampled was;
  zx_found_begin(found, row);
  zx_sample_part(x, row, logits, found);
  while ((was = zx_sample_choose(x, row, found, 1, out, err)) == ZX_MORE)
    zx_sample_more(x, row, logits, found);
  return was == ZX_CHOSEN;
}
