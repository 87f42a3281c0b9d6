/* Random requests at random times for a model that is a function of the tokens: each gets the tokens that
 * it would get alone, and its last one in time. The model reads the tokens through the tables of pages and
 * from slots' states, so that a page too early given back, a wrong part, or another's state would give
 * other tokens. */
#include "runtime/exec/generate/generate.h"
#include "tests/unit/breadth.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { WORDS = 61, REQUESTS = 14, LONGEST = 700, SEATS = 8, GROUPS = 2, PAGES = 260, POSITIONS = 16 };

typedef struct {
  uint32_t prompt[LONGEST], nprompt, max, min, choices, stop, nstop;
  bool ignore_end, logprobs, taken;
  uint64_t number;
  uint32_t rows;          /* of the prompt, that came */
  uint32_t ended;         /* choices */
  bool cut[ZX_CHOICES];   /* it was cancelled, or stopped */
  uint64_t comes, leaves; /* before which step */
} Request;

typedef struct {
  ZxScheduling how;
  ZxPageGroup group[GROUPS];
  uint32_t end, words;   /* ends a text; the model writes words below this only */
  ZxScheduler *s, *twin; /* which is another rank's */
  Request request[REQUESTS];
  uint32_t nrequests;
  uint32_t *memory[GROUPS]; /* [page, position within]: position << 8 | token */
  uint64_t state[SEATS];
  double more; /* seconds of a token more */
  uint64_t key, drawn;
  uint64_t all_positions; /* no more steps than these */
} World;

static ZbErr err;
static uint32_t draw(World *w, uint32_t n) { return (uint32_t)(zb_random_u64(w->key, 1, w->drawn++) % n); }

/* ---- the model ---- */
static uint64_t mix(uint64_t h, uint64_t x) { return zb_mix64(h * 0x9e3779b97f4a7c15ull + x + 1); }

/* A state's bits are of the parts in which it was made, as long as these do not begin at multiples of 128. */
static uint64_t go_on(uint64_t h, const uint32_t *id, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to;) {
    uint32_t end = i - i % ZX_STATE_CHUNK + ZX_STATE_CHUNK, begin = i;
    uint64_t part = 0;
    for (; i < end && i < to; i++) part = mix(part, id[i]);
    h = mix(h, mix(part, i - begin));
  }
  return h;
}

static uint32_t word(const World *w, uint64_t h, uint32_t choice, uint32_t made, uint32_t min) {
  uint32_t id = (uint32_t)(mix(h, choice) % w->words);
  return made < min && id == w->end ? id + 1 : id; /* no end yet */
}

static uint32_t first_seen(const World *w, uint32_t g, uint32_t position) {
  uint32_t window = w->group[g].window;
  return window && position + 1 > window ? position + 1 - window : 0;
}

/* All tokens of a choice, alone: the prompt at once, then one token after the other. */
static uint32_t alone(const World *w, const Request *r, uint32_t choice, uint32_t *id) {
  uint32_t n = r->nprompt, made;
  memcpy(id, r->prompt, n * sizeof *id);
  uint64_t state = go_on(0, id, 0, n);
  for (made = 0; made < r->max; made++) {
    uint64_t h = w->how.states ? state : 0;
    for (uint32_t g = 0; g < w->how.ngroups; g++)
      for (uint32_t i = first_seen(w, g, n - 1); i < n; i++) h = mix(h, id[i]);
    id[n] = word(w, h, choice, made, r->min);
    n++;
    bool ends = (id[n - 1] == w->end && !r->ignore_end) || (r->nstop && id[n - 1] == r->stop);
    if (ends && made + 1 > r->min) break;
    state = go_on(state, id, n - 1, n);
  }
  return n;
}

static uint32_t *cell(World *w, uint32_t g, uint32_t slot, uint32_t position) {
  uint32_t page = zx_table(w->s, g, slot)[position / w->how.page];
  cr_assert(page < w->group[g].pages);
  return &w->memory[g][page * POSITIONS + position % w->how.page];
}

/* Logits of a row, as far as this model has them. */
static uint64_t row_of(World *w, const ZxSequence *q, uint32_t position) {
  uint64_t h = w->how.states ? w->state[q->slot] : 0;
  for (uint32_t g = 0; g < w->how.ngroups; g++)
    for (uint32_t i = first_seen(w, g, position); i <= position; i++) {
      uint32_t has = *cell(w, g, q->slot, i);
      cr_assert(has >> 8 == i, "position %u reads another one's key of position %u", position, has >> 8);
      h = mix(h, has & 255);
    }
  return h;
}

static Request *request_of(World *w, const ZxSequence *q) {
  for (uint32_t i = 0; i < w->nrequests; i++)
    if (w->request[i].taken && w->request[i].number == q->request) return &w->request[i];
  cr_assert(false, "nobody asked for that");
  return NULL;
}

static void play_part(World *w, const ZxGenStep *x, const ZxGenPart *p, uint32_t *chosen) {
  const ZxSequence *q = p->sequence;
  Request *r = request_of(w, q);
  cr_assert(p->n && p->from == q->done && p->from + p->n - p->ndrafts <= q->n && p->ndrafts <= w->how.drafts);
  cr_assert(!p->ndrafts || (p->from + 1 == q->n && q->n + p->ndrafts < q->most));
  cr_assert(!w->how.states || !((p->from + p->n) % ZX_STATE_CHUNK) || p->from + p->n == q->nprompt ||
            p->from + p->n == q->nprompt - 1 || p->from >= q->nprompt);
  for (uint32_t i = 0; i < p->n; i++) {
    cr_assert(x->id[p->token + i] == q->id[p->from + i] && x->position[p->token + i] == p->from + i &&
              x->slot[p->token + i] == q->slot);
    for (uint32_t g = 0; g < w->how.ngroups; g++)
      *cell(w, g, q->slot, p->from + i) = (p->from + i) << 8 | x->id[p->token + i];
  }
  w->state[q->slot] = go_on(p->from ? w->state[q->slot] : 0, q->id, p->from, p->from + p->n);
  for (uint32_t k = 0; k < p->nrows; k++) {
    uint32_t token = p->token + p->n - p->nrows + k, position = x->position[token];
    cr_assert_eq(x->row[p->row + k], token);
    if (position + 1 < q->nprompt) cr_assert(r->logprobs && !q->choice && position == r->rows++);
    if (p->chooses && k + 1 + p->ndrafts >= p->nrows) {
      ZxRow row = zx_row(q, position);
      uint32_t made = position + 1 - q->nprompt;
      cr_assert(position + 1 >= q->n && row.n == position + 1 && row.given == ZX_NONE &&
                (row.nhold > 0) == (made < q->min_tokens && q->nend));
      chosen[p->row + k] = word(w, row_of(w, q, position), q->choice, made, r->min);
      if (!zx_goes_on(p, p->row + k, chosen[p->row + k])) break;
    }
  }
}

/* ---- the trace ---- */
static bool same_steps(const ZxGenStep *a, const ZxGenStep *b) {
  return a->ntokens == b->ntokens && a->nrows == b->nrows && a->nparts == b->nparts &&
         !memcmp(a->id, b->id, a->ntokens * sizeof *a->id) &&
         !memcmp(a->slot, b->slot, a->ntokens * sizeof *a->slot);
}

static void ended(World *w) {
  const ZxSequence *q, *twin;
  uint32_t id[LONGEST + 100];
  while ((q = zx_next_ended(w->s))) {
    twin = zx_next_ended(w->twin);
    cr_assert(twin && twin->request == q->request && twin->choice == q->choice && twin->n == q->n);
    Request *r = request_of(w, q);
    uint32_t n = alone(w, r, q->choice, id), end = q->n ? q->id[q->n - 1] : 0;
    r->ended++;
    cr_assert(!memcmp(id, q->id, q->n * sizeof *id), "request %llu has other tokens than alone",
              (unsigned long long)q->request);
    cr_assert((q->ending == ZX_BY_CANCEL || q->ending == ZX_BY_STOP) == r->cut[q->choice]);
    if (r->cut[q->choice]) continue;
    cr_assert_eq(q->n, n);
    bool by_end = r->max && ((end == w->end && !r->ignore_end) || (r->nstop && end == r->stop)) &&
                  q->n - q->nprompt > r->min;
    cr_assert_eq(q->ending, by_end ? ZX_BY_END : ZX_BY_LENGTH);
    if (r->logprobs && !q->choice) cr_assert_eq(r->rows, r->nprompt - 1);
  }
  cr_assert_null(zx_next_ended(w->twin));
}

static void submit(World *w, Request *r) {
  ZxGenRequest ask = {.prompt = r->prompt,
                      .nprompt = r->nprompt,
                      .max_tokens = r->max,
                      .min_tokens = r->min,
                      .choices = r->choices,
                      .stop = &r->stop,
                      .nstop = r->nstop,
                      .ignore_end = r->ignore_end,
                      .prompt_logprobs = r->logprobs,
                      .sampling = ZX_GREEDY};
  uint64_t twin;
  r->taken = zx_submit(w->s, &ask, &r->number, &err);
  cr_assert_eq(r->taken, zx_submit(w->twin, &ask, &twin, &err));
  if (r->taken) w->all_positions += (uint64_t)r->choices * (r->nprompt + r->max);
  r->rows = r->ended = 0;
}

static void leave(World *w, Request *r) {
  uint32_t choice = draw(w, 2) ? ZX_NONE : draw(w, r->choices);
  ZxEnding why = draw(w, 2) ? ZX_BY_CANCEL : ZX_BY_STOP;
  ZxCounts before = zx_scheduler_counts(w->s);
  zx_end_request(w->s, r->number, choice, why);
  zx_end_request(w->twin, r->number, choice, why);
  ZxCounts after = zx_scheduler_counts(w->s);
  uint32_t gone = before.running + before.waiting - after.running - after.waiting;
  for (uint32_t i = 0; i < r->choices && gone; i++)
    if (choice == ZX_NONE || choice == i) r->cut[i] = true;
}

#define CHECKED(s) cr_assert(zx_scheduler_check(s, &err), "%s", err.text)

/* The oldest that has not ended is in each step. */
static void oldest_goes_on(const World *w, const ZxGenStep *x) {
  for (uint32_t i = 0; i < w->nrequests; i++) {
    const Request *r = &w->request[i];
    if (!r->taken || r->ended == r->choices) continue;
    cr_assert(x->nparts && x->part[0].sequence->request == r->number, "request %llu waits",
              (unsigned long long)r->number);
    return;
  }
}

static bool step(World *w) {
  uint32_t chosen[LONGEST];
  const ZxGenStep *x = zx_next_step(w->s), *twin = zx_next_step(w->twin);
  CHECKED(w->s);
  cr_assert(same_steps(x, twin) && x->ntokens <= w->how.tokens && x->nrows <= w->how.rows &&
            x->nparts <= w->how.slots);
  if (!x->ntokens) return false;
  oldest_goes_on(w, x);
  for (uint32_t i = 0; i < x->ncopies; i++) {
    const ZxPageCopy *c = &x->copy[i];
    memcpy(&w->memory[c->group][c->to * POSITIONS], &w->memory[c->group][c->from * POSITIONS],
           POSITIONS * sizeof(uint32_t));
  }
  uint32_t tokens = 0, rows = 0;
  for (uint32_t k = 0; k < x->nparts; k++) {
    cr_assert(x->part[k].token == tokens && x->part[k].row == rows);
    tokens += x->part[k].n;
    rows += x->part[k].nrows;
    play_part(w, x, &x->part[k], chosen);
  }
  cr_assert(tokens == x->ntokens && rows == x->nrows);
  for (uint32_t i = 0; i < w->nrequests; i++) /* some events come while a step is played */
    if (w->request[i].taken && w->request[i].leaves == x->number) leave(w, &w->request[i]);
  zx_step_done(w->s, chosen);
  zx_step_done(w->twin, chosen);
  double seconds = 1 + draw(w, 8) + x->ntokens * w->more;
  zx_step_took(w->s, seconds);
  zx_step_took(w->twin, seconds);
  cr_assert_eq(zx_scheduler_digest(w->s), zx_scheduler_digest(w->twin));
  CHECKED(w->s);
  return true;
}

static void make_request(World *w, Request *r, uint32_t most) {
  *r = (Request){.nprompt = 1 + draw(w, draw(w, 4) ? 1 + most / 4 : most),
                 .max = draw(w, most / 3 + 1),
                 .choices = draw(w, 3) ? 1 : 1 + draw(w, 4),
                 .stop = draw(w, WORDS),
                 .nstop = draw(w, 2),
                 .ignore_end = !draw(w, 4),
                 .logprobs = !draw(w, 5),
                 .comes = draw(w, 40),
                 .leaves = draw(w, 5) ? UINT64_MAX : 1 + draw(w, 80)};
  if (r->nstop && r->stop == w->end + 1) r->nstop = 0; /* what `word` gives in place of the end */
  if (r->max && !draw(w, 3)) r->min = draw(w, r->max + 1);
  uint32_t words = draw(w, 2) ? WORDS : w->words;
  const Request *like = r > w->request && draw(w, 2) ? &w->request[draw(w, (uint32_t)(r - w->request))] : r;
  uint32_t same = like == r ? 0 : draw(w, r->nprompt < like->nprompt ? r->nprompt : like->nprompt);
  for (uint32_t i = 0; i < r->nprompt; i++) r->prompt[i] = i < same ? like->prompt[i] : draw(w, words);
  if (r->nstop) r->min = 0;
}

static World *begin(ZbArena *a, uint64_t key) {
  World *w = ZB_NEW(a, World);
  w->key = key;
  bool states = !draw(w, 4);
  uint32_t slots = 1 + draw(w, SEATS), least = states ? ZX_STATE_CHUNK + slots - 1 : 1;
  w->end = draw(w, WORDS - 1);
  w->words = draw(w, 2) ? WORDS : 1 + draw(w, 3);
  w->more = draw(w, 3) * 0.5;
  w->how = (ZxScheduling){.tokens = least + draw(w, draw(w, 2) ? 8 : 60),
                          .rows = 1 + draw(w, draw(w, 2) ? 4 : 200),
                          .slots = slots,
                          .length = states ? 600 : 90,
                          .page = 1 + draw(w, POSITIONS),
                          .group = w->group,
                          .ngroups = draw(w, states ? 3 : 2) + !states,
                          .vocabulary = WORDS,
                          .queue = 1 + draw(w, 40),
                          .end = &w->end,
                          .nend = 1,
                          .states = states,
                          .drafts = !states && draw(w, 3) ? draw(w, ZX_DRAFTS + 1) : 0,
                          .prefixes = !states && draw(w, 3),
                          .reserve = !draw(w, 5)};
  uint32_t whole = (w->how.length - 1) / w->how.page + 1;
  for (uint32_t g = 0; g < GROUPS; g++) {
    uint32_t pages = 1 + draw(w, draw(w, 2) ? 2 * whole : whole);
    w->group[g] = (ZxPageGroup){pages > PAGES ? PAGES : pages, draw(w, 2) ? 1 + draw(w, 40) : 0};
    w->memory[g] = ZB_NEWN(a, uint32_t, PAGES * POSITIONS);
  }
  w->s = zx_scheduler_new(&w->how, &err);
  w->twin = zx_scheduler_new(&w->how, &err);
  cr_assert(w->s && w->twin, "%s", err.text);
  w->nrequests = 1 + draw(w, REQUESTS);
  uint32_t most = w->how.length * 3 / 4;
  uint64_t comes = 0;
  for (uint32_t i = 0; i < w->nrequests; i++) {
    make_request(w, &w->request[i], most);
    comes += w->request[i].comes;
    w->request[i].comes = comes / 4;
  }
  return w;
}

static ZxCounts trace(uint64_t key) {
  ZbArena *a = zb_arena_new();
  World *w = begin(a, key);
  uint32_t came = 0;
  uint64_t steps = 0;
  bool goes_on = true;
  for (uint64_t now = 0; came < w->nrequests || goes_on; now++) {
    for (; came < w->nrequests && w->request[came].comes <= now; came++) submit(w, &w->request[came]);
    CHECKED(w->s);
    ended(w);
    goes_on = step(w);
    steps += goes_on;
    ended(w);
    cr_assert(steps <= w->all_positions, "trace %llu: somebody starves", (unsigned long long)key);
  }
  for (uint32_t i = 0; i < w->nrequests; i++)
    cr_assert(!w->request[i].taken || w->request[i].ended == w->request[i].choices);
  ZxCounts c = zx_scheduler_counts(w->s);
  cr_assert(!c.running && !c.waiting && c.steps == steps);
  cr_assert(!w->how.reserve || !c.preempted);
  for (uint32_t g = 0; g < w->how.ngroups; g++)
    cr_assert_eq(zx_scheduler_free_pages(w->s, g), w->group[g].pages);
  zx_scheduler_free(w->s);
  zx_scheduler_free(w->twin);
  zb_arena_free(a);
  return c;
}

static void traces(uint64_t first, uint32_t n) {
  uint64_t preempted = 0, answers = 0, cached = 0, drafts = 0, right = 0;
  for (uint64_t key = first; key < first + n; key++) {
    ZxCounts c = trace(key);
    preempted += c.preempted;
    answers += c.answer_tokens;
    cached += c.cached_tokens;
    drafts += c.drafts;
    right += c.right_drafts;
  }
  cr_expect(right > n && drafts > right + n, "%llu draft tokens, %llu right", (unsigned long long)drafts,
            (unsigned long long)right);
  cr_expect(cached > n, "%llu tokens of prompts were there", (unsigned long long)cached);
  cr_expect(preempted > n / 10 && answers > 10 * n, "%llu preemptions, %llu tokens",
            (unsigned long long)preempted, (unsigned long long)answers);
}

/* Four parts, which run at the same time. */
Test(traces, first) { traces(1000, breadth_many(600)); }
Test(traces, second) { traces(100000, breadth_many(600)); }
Test(traces, third) { traces(200000, breadth_many(600)); }
Test(traces, fourth) { traces(300000, breadth_many(600)); }
