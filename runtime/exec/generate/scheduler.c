/* Decides which tokens the next step has: a function of the state and of the events that came, the same on
 * all ranks. */
#include "runtime/exec/generate/generate.h"

#include <stdlib.h>

typedef struct Entry Entry;
struct Entry {
  ZxSequence is; /* is.id, is.end and is.sampling.bias are the arrays below */
  uint64_t age;
  uint32_t *id, *end, idcap, endcap, biascap;
  ZxBias *bias;
  uint32_t *source, sourcecap;
  ZxPrefix *prefix; /* by page of the text, as far as they were needed: nprefixes */
  uint32_t nprefixes, prefixcap;
  uint32_t known;  /* so many of its entries were made known, or were there */
  uint32_t take;   /* tokens in the step that is being made */
  uint32_t drafts; /* so many of them are draft tokens */
  /* The text's own guess of the next token, also where it was not checked; ZX_NONE: there was none. */
  uint32_t guess, kind;
  double rate[ZX_DRAFT_KINDS]; /* so often it was right */
  Entry *next;                 /* among those that have ended, or are free */
};

struct ZxScheduler {
  ZxScheduling how;
  ZbArena *a;
  ZxPages *pages;
  Entry **line; /* by age: the first `running` have slots */
  uint32_t n, running;
  uint32_t *slot, nslots; /* free ones, a stack */
  Entry *ended, **last_ended, *shown, *spare;
  uint64_t requests, ages, digest;
  ZxCounts counts;
  ZxStepCost cost;
  double rate[ZX_DRAFT_KINDS]; /* of all sequences, what new ones begin with */
  uint32_t *promised;          /* by group: pages of those that run, if they are reserved */
  /* the step */
  ZxGenStep step;
  uint32_t *id, *position, *slots, *row;
  ZxGenPart *part;
  Entry **of; /* by part; NULL: it has ended since */
  ZxPageCopy *copy;
  const ZxSequence **start;
  uint32_t left, rows; /* while it is made: room for tokens and rows */
  bool preempts;       /* somebody was preempted */
  bool decodes;        /* nobody makes a prompt */
  bool under_way;
};

/* Before anything was checked: n-grams of two or three tokens, and longer ones. */
static const double first_rate[ZX_DRAFT_KINDS] = {0.4, 0.7};

/* ---- opening ---- */
static bool check_sizes(const ZxScheduling *how, ZbErr *err) {
  ZB_ASSERT(how->tokens && how->rows && how->slots && how->length && how->page);
  uint32_t least = ZX_STATE_CHUNK + how->slots - 1;
  if (how->states && how->tokens < least)
    return zb_fail(
        err, "let a step have more tokens, or fewer sequences at once",
        "a step of %u tokens is too small for %u sequences of a model with recurrent states: a part of "
        "a prompt is %d tokens beside one of each other, %u",
        how->tokens, how->slots, ZX_STATE_CHUNK, least);
  ZB_ASSERT(!(how->prefixes || how->drafts) || !how->states);
  for (uint32_t g = 0; g < how->ngroups; g++)
    if (!how->group[g].pages) return zb_fail(err, NULL, "no memory is left for pages");
  return true;
}

ZxScheduler *zx_scheduler_new(const ZxScheduling *how, ZbErr *err) {
  if (!check_sizes(how, err)) return NULL;
  ZbArena *a = zb_arena_new();
  ZxScheduler *s = ZB_NEW(a, ZxScheduler);
  ZxPageGroup *group = ZB_NEWN(a, ZxPageGroup, how->ngroups + 1);
  uint32_t *end = ZB_NEWN(a, uint32_t, how->nend + 1), slots = how->slots;
  memcpy(group, how->group, how->ngroups * sizeof *group);
  memcpy(end, how->end, how->nend * sizeof *end);
  *s = (ZxScheduler){.how = *how,
                     .a = a,
                     .digest = how->tokens,
                     .cost = zx_step_cost(),
                     .rate = {first_rate[0], first_rate[1]}};
  s->how.group = group;
  s->how.end = end;
  s->pages = zx_pages_new(a, &(ZxPaging){.group = group,
                                         .ngroups = how->ngroups,
                                         .page = how->page,
                                         .slots = slots,
                                         .length = how->length,
                                         .tokens = how->tokens,
                                         .keeps = how->prefixes});
  s->line = ZB_NEWN(a, Entry *, (size_t)slots + how->queue);
  s->slot = ZB_NEWN(a, uint32_t, slots);
  while (s->nslots < slots) {
    s->slot[s->nslots] = slots - 1 - s->nslots;
    s->nslots++;
  }
  s->last_ended = &s->ended;
  s->promised = ZB_NEWN(a, uint32_t, how->ngroups + 1);
  s->id = ZB_NEWN(a, uint32_t, how->tokens);
  s->position = ZB_NEWN(a, uint32_t, how->tokens);
  s->slots = ZB_NEWN(a, uint32_t, how->tokens);
  s->row = ZB_NEWN(a, uint32_t, how->rows);
  s->part = ZB_NEWN(a, ZxGenPart, slots);
  s->of = ZB_NEWN(a, Entry *, slots);
  s->start = ZB_NEWN(a, const ZxSequence *, slots);
  s->copy = ZB_NEWN(a, ZxPageCopy, (size_t)slots * how->ngroups + 1);
  return s;
}

static void free_all(Entry *q) {
  for (Entry *next; q; q = next) {
    next = q->next;
    free(q->id);
    free(q->end);
    free(q->bias);
    free(q->prefix);
    zx_shape_release(q->is.shape);
    free(q->source);
    free(q);
  }
}

void zx_scheduler_free(ZxScheduler *s) {
  if (!s) return;
  for (uint32_t i = 0; i < s->n; i++) s->line[i]->next = i + 1 < s->n ? s->line[i + 1] : NULL;
  if (s->n) free_all(s->line[0]);
  free_all(s->ended);
  free_all(s->shown);
  free_all(s->spare);
  zb_arena_free(s->a);
}

/* ---- requests ---- */
/* Counts the positions that are made of a sequence: its last token is not looked at by another. */
static uint32_t positions(uint32_t most) { return most > 1 ? most - 1 : 1; }

static bool check_pages(const ZxScheduler *s, uint32_t total, ZbErr *err) {
  for (uint32_t g = 0; g < s->how.ngroups; g++) {
    uint32_t need = zx_pages_most(s->pages, g, positions(total));
    if (need > s->how.group[g].pages)
      return zb_fail(err, "ask for fewer tokens",
                     "prompt and answer of %u tokens need %u pages of %u tokens, and there are %u", total,
                     need, s->how.page, s->how.group[g].pages);
  }
  return true;
}

static bool check_ids(const ZxScheduler *s, const uint32_t *id, uint32_t n, const char *what, ZbErr *err) {
  for (uint32_t i = 0; i < n; i++)
    if (id[i] >= s->how.vocabulary)
      return zb_fail(err, NULL, "%s: id %u; the model has %u", what, id[i], s->how.vocabulary);
  return true;
}

static bool check_request(const ZxScheduler *s, const ZxGenRequest *r, ZbErr *err) {
  uint64_t total = (uint64_t)r->nprompt + r->max_tokens;
  if (!r->nprompt) return zb_fail(err, "begin with a token that begins texts", "the prompt has no tokens");
  if (!r->choices || r->choices > ZX_CHOICES)
    return zb_fail(err, NULL, "%u choices; 1 to %d are possible", r->choices, ZX_CHOICES);
  if (r->min_tokens > r->max_tokens)
    return zb_fail(err, NULL, "at least %u tokens, and at most %u", r->min_tokens, r->max_tokens);
  if (total > s->how.length)
    return zb_fail(err, "ask for fewer tokens",
                   "a prompt of %u tokens and an answer of up to %u are %llu; a sequence has at most %u",
                   r->nprompt, r->max_tokens, (unsigned long long)total, s->how.length);
  uint32_t chunk = r->nprompt < ZX_STATE_CHUNK ? r->nprompt : ZX_STATE_CHUNK;
  if (s->how.states && r->prompt_logprobs && chunk + s->how.slots - 1 > s->how.rows)
    return zb_fail(
        err, "let a step have more rows, or fewer sequences at once",
        "log-probabilities of a prompt take %u rows of a step beside one of each other sequence, and it "
        "has %u for %u sequences",
        chunk, s->how.rows, s->how.slots);
  return check_pages(s, (uint32_t)total, err) && check_ids(s, r->prompt, r->nprompt, "the prompt", err) &&
         check_ids(s, r->source, r->nsource, "the source", err) &&
         check_ids(s, r->stop, r->nstop, "tokens that end the text", err) &&
         zx_sampling_check(&r->sampling, s->how.vocabulary, err);
}

/* Makes room for n of an entry's own array, which stays for the next sequence. */
static void *room(void *p, uint32_t *cap, size_t n, size_t size) {
  if (*cap >= n && p) return p;
  *cap = (uint32_t)n;
  free(p);
  p = malloc(zb_array_bytes(n + 1, size));
  if (!p) zb_out_of_memory((n + 1) * size);
  return p;
}

static Entry *entry_of(ZxScheduler *s, const ZxGenRequest *r, uint32_t choice) {
  Entry *q = s->spare;
  if (q) s->spare = q->next;
  else if (!(q = calloc(1, sizeof *q))) zb_out_of_memory(sizeof *q);
  uint32_t most = r->nprompt + r->max_tokens, nend = r->ignore_end ? 0 : s->how.nend;
  q->id = room(q->id, &q->idcap, most, sizeof *q->id);
  q->end = room(q->end, &q->endcap, (size_t)nend + r->nstop, sizeof *q->end);
  q->bias = room(q->bias, &q->biascap, r->sampling.nbias, sizeof *q->bias);
  q->prefix = room(q->prefix, &q->prefixcap, s->how.prefixes ? most / s->how.page : 0, sizeof *q->prefix);
  q->source = room(q->source, &q->sourcecap, r->nsource, sizeof *q->source);
  if (r->nsource) memcpy(q->source, r->source, r->nsource * sizeof *q->source);
  memcpy(q->id, r->prompt, r->nprompt * sizeof *q->id);
  memcpy(q->end, s->how.end, nend * sizeof *q->end);
  if (r->nstop) memcpy(q->end + nend, r->stop, r->nstop * sizeof *q->end);
  if (r->sampling.nbias) memcpy(q->bias, r->sampling.bias, r->sampling.nbias * sizeof *q->bias);
  q->is = (ZxSequence){.request = s->requests,
                       .choice = choice,
                       .id = q->id,
                       .n = r->nprompt,
                       .nprompt = r->nprompt,
                       .source = q->source,
                       .nsource = r->nsource,
                       .adapter = r->adapter,
                       .most = most,
                       .min_tokens = r->shape ? 0 : r->min_tokens,
                       .end = q->end,
                       .nend = nend + r->nstop,
                       .row_from = r->prompt_logprobs && !choice ? 0 : r->nprompt - 1,
                       .slot = ZX_NONE,
                       .sampling = r->sampling,
                       .shape = zx_shape_keep(r->shape)};
  q->is.sampling.bias = q->bias;
  q->age = s->ages++;
  q->take = q->drafts = q->nprefixes = q->known = 0;
  q->guess = ZX_NONE;
  memcpy(q->rate, s->rate, sizeof q->rate);
  return q;
}

static void end(ZxScheduler *s, Entry *q, ZxEnding why) {
  q->is.ending = why;
  q->next = NULL;
  *s->last_ended = q;
  s->last_ended = &q->next;
}

/* Positions that are wanted of what is known: of the last token only if another one comes. */
static uint32_t goal(const ZxSequence *q) { return q->n - (q->n == q->most); }
static bool nothing_to_make(const ZxSequence *q) { return q->n == q->most && q->row_from >= goal(q); }

bool zx_submit(ZxScheduler *s, const ZxGenRequest *r, uint64_t *number, ZbErr *err) {
  if (!check_request(s, r, err)) return false;
  uint32_t waiting = s->n - s->running;
  if (r->choices > s->how.slots + s->how.queue - s->n) {
    zb_fail(err, "try again later", "%u sequences wait, and %u more do not fit the queue of %u", waiting,
            r->choices, s->how.queue);
    if (err) err->passing = true;
    return false;
  }
  for (uint32_t choice = 0; choice < r->choices; choice++) {
    Entry *q = entry_of(s, r, choice);
    if (nothing_to_make(&q->is)) end(s, q, ZX_BY_LENGTH);
    else s->line[s->n++] = q;
  }
  *number = s->requests++;
  return true;
}

/* ---- slots and pages ---- */
static void promise(ZxScheduler *s, const Entry *q, bool more) {
  for (uint32_t g = 0; g < s->how.ngroups; g++) {
    uint32_t pages = zx_pages_most(s->pages, g, positions(q->is.most));
    s->promised[g] += more ? pages : -pages;
  }
}

static void leave_slot(ZxScheduler *s, Entry *q) {
  zx_pages_give(s->pages, q->is.slot);
  s->slot[s->nslots++] = q->is.slot;
  q->is.slot = ZX_NONE;
  promise(s, q, false);
}

static void take_slot(ZxScheduler *s, Entry *q) {
  q->is.slot = s->slot[--s->nslots];
  promise(s, q, true);
}

static void remove_at(ZxScheduler *s, uint32_t i, ZxEnding why) {
  Entry *q = s->line[i];
  if (i < s->running) {
    leave_slot(s, q);
    s->running--;
  }
  s->n--;
  memmove(s->line + i, s->line + i + 1, (s->n - i) * sizeof *s->line);
  for (uint32_t k = 0; k < s->step.nparts && s->under_way; k++)
    if (s->of[k] == q) s->of[k] = NULL;
  end(s, q, why);
}

void zx_end_request(ZxScheduler *s, uint64_t request, uint32_t choice, ZxEnding why) {
  for (uint32_t i = s->n; i--;) {
    const ZxSequence *q = &s->line[i]->is;
    if (q->request == request && (choice == ZX_NONE || q->choice == choice)) remove_at(s, i, why);
  }
}

/* ---- prefixes ---- */
/* Returns the prefixes of at least the first n pages of a sequence's text. */
static const ZxPrefix *prefixes(ZxScheduler *s, Entry *q, uint32_t n) {
  uint32_t page = s->how.page;
  for (; q->nprefixes < n; q->nprefixes++) {
    uint32_t i = q->nprefixes;
    q->prefix[i] =
        zx_prefix(i ? q->prefix[i - 1] : (ZxPrefix){.low = q->is.adapter}, q->id + (size_t)i * page, page);
  }
  return q->prefix;
}

/* Makes pages known that are full now. */
static void keep_pages(ZxScheduler *s, Entry *q) {
  uint32_t full = s->how.prefixes ? q->is.done / s->how.page : 0;
  for (; q->known < full; q->known++)
    zx_pages_keep(s->pages, q->is.slot, q->known, prefixes(s, q, full)[q->known],
                  q->id + (size_t)q->known * s->how.page);
}

/* Says whether a sequence that runs is to make more of this one's text, in its prompt, than the `kept` pages
 * that are there. */
static bool is_made(const ZxScheduler *s, const ZxSequence *q, uint32_t kept) {
  for (uint32_t i = 0; i < s->running; i++) {
    const ZxSequence *other = &s->line[i]->is;
    uint32_t n = q->row_from < other->nprompt ? q->row_from : other->nprompt, same = 0;
    while (same < n && q->id[same] == other->id[same]) same++;
    same -= same % s->how.page;
    if (same > kept * s->how.page && other->done < same) return true;
  }
  return false;
}

/* ---- a step is filled ---- */
/* Counts the rows that a sequence needs if its part of the step ends before `to`. */
static uint32_t rows_of(const ZxSequence *q, uint32_t to) {
  uint32_t from = q->row_from > q->done ? q->row_from : q->done;
  return to > from ? to - from : 0;
}

/* The youngest that runs gives all back, and is the first that waits. */
static void preempt(ZxScheduler *s) {
  Entry *q = s->line[--s->running];
  s->left += q->take;
  s->rows += rows_of(&q->is, q->is.done + q->take);
  s->counts.preempted++;
  s->counts.lost += q->is.done;
  s->preempts = true;
  leave_slot(s, q);
  q->is.done = q->take = 0;
  q->is.preempted++;
}

/* Returns where the next part of a sequence ends, as far as the step has room; q->done: there is none. */
static uint32_t part_end(const ZxScheduler *s, const ZxSequence *q) {
  uint32_t whole = goal(q), cut = s->how.states ? ZX_STATE_CHUNK : s->how.page;
  if (s->how.states && q->n > q->nprompt) whole = q->done < q->nprompt ? q->nprompt : q->done + 1;
  uint32_t to = whole - q->done > s->left ? q->done + s->left : whole, rows = rows_of(q, to);
  if (rows > s->rows) to -= rows - s->rows;
  if (to == whole) return to;
  uint32_t at_cut = to - to % cut;
  if (at_cut > q->done) return at_cut;
  return s->how.states ? q->done : to; /* a page may be cut, if that is all the room there is */
}

/* Gets pages for line[i], if need be of younger ones. */
static bool get_pages(ZxScheduler *s, uint32_t i, uint32_t to) {
  const ZxSequence *q = &s->line[i]->is;
  while (!zx_pages_take(s->pages, q->slot, q->done, to)) {
    if (i + 1 == s->running) return false;
    preempt(s);
  }
  return true;
}

static void put(ZxScheduler *s, Entry *q, uint32_t to) {
  q->take = to - q->is.done;
  s->left -= q->take;
  s->rows -= rows_of(&q->is, to);
}

static bool decodes(const ZxSequence *q) { return q->n > q->nprompt && q->n - q->done == 1; }

/* Sequences that run get their next tokens, those that decode or the others. */
static void go_on(ZxScheduler *s, bool decoding) {
  for (uint32_t i = 0; i < s->running; i++) {
    Entry *q = s->line[i];
    if (decoding != decodes(&q->is)) continue;
    uint32_t to = part_end(s, &q->is);
    if (to > q->is.done && get_pages(s, i, to)) put(s, q, to);
  }
}

/* First those that decode; but if the oldest does not, it too has a token and a row at least. */
static void go_on_all(ZxScheduler *s) {
  uint32_t kept = s->running && !decodes(&s->line[0]->is);
  s->left -= kept;
  s->rows -= kept;
  go_on(s, true);
  s->left += kept;
  s->rows += kept;
  go_on(s, false);
}

/* Says whether there are pages for a sequence to be started: if it was preempted, for all that is known of
 * it, so that it is not preempted again at once. */
static bool pages_to_start(const ZxScheduler *s, const ZxSequence *q) {
  for (uint32_t g = 0; g < s->how.ngroups; g++) {
    uint32_t all = zx_pages_most(s->pages, g, positions(q->most));
    if (s->how.reserve && all > s->how.group[g].pages - s->promised[g]) return false;
    if (q->preempted && zx_pages_most(s->pages, g, q->n) > zx_pages_free(s->pages, g)) return false;
  }
  return true;
}

/* Returns a slot with the prompt that another choice of the request has made, but for its last token,
 * whose row is wanted; ZX_NONE: there is none. *wait: it is being made. */
static uint32_t same_prompt(const ZxScheduler *s, const ZxSequence *q, bool *wait) {
  if (s->how.states || q->nprompt < 2) return ZX_NONE;
  for (uint32_t i = 0; i < s->running; i++) {
    const ZxSequence *other = &s->line[i]->is;
    if (other->request != q->request) continue;
    *wait |= other->done < q->nprompt;
    if (!*wait && zx_pages_can_share(s->pages, other->slot, q->nprompt - 1)) return other->slot;
  }
  return ZX_NONE;
}

/* Gives a sequence what is there of its text. False: that takes more pages than there are. */
static bool begin_behind(ZxScheduler *s, Entry *q, uint32_t other, uint32_t kept) {
  ZxSequence *x = &q->is;
  bool ok = true;
  if (other != ZX_NONE) {
    ok = zx_pages_share(s->pages, x->slot, other, x->nprompt - 1, s->copy, &s->step.ncopies);
    x->done = ok ? x->nprompt - 1 : 0;
  } else if (kept) {
    zx_pages_resume(s->pages, x->slot, q->prefix, q->id, kept);
    x->done = kept * s->how.page;
  }
  q->known = x->done / s->how.page;
  return ok;
}

/* Finds what is there of a sequence's text: another's slot, or kept pages. False: it is sooner to wait for
 * what another one makes. */
static bool find_begun(ZxScheduler *s, Entry *q, uint32_t *other, uint32_t *kept) {
  bool wait = false;
  uint32_t most = s->how.prefixes ? q->is.row_from / s->how.page : 0;
  *other = ZX_NONE;
  *kept = most ? zx_pages_kept(s->pages, prefixes(s, q, most), q->id, most) : 0;
  if (*kept * s->how.page + 1 < q->is.nprompt) *other = same_prompt(s, &q->is, &wait);
  if (*other != ZX_NONE) *kept = 0;
  return !wait && (!most || *other != ZX_NONE || !is_made(s, &q->is, *kept));
}

/* Starts the first that waits. False if there is no room for it in the step, or no pages. */
static bool start(ZxScheduler *s) {
  Entry *q = s->line[s->running];
  uint32_t other, kept, copies = s->step.ncopies;
  if (!s->nslots || !s->left || !pages_to_start(s, &q->is) || !find_begun(s, q, &other, &kept)) return false;
  take_slot(s, q);
  bool ok = begin_behind(s, q, other, kept);
  uint32_t from = q->is.done, to = part_end(s, &q->is);
  if (ok && to > from && zx_pages_take(s->pages, q->is.slot, from, to)) {
    uint32_t cached = from < q->is.nprompt ? from : q->is.nprompt;
    if (!q->is.preempted) s->counts.cached_tokens += q->is.cached = cached;
    put(s, q, to);
    s->start[s->step.nstarts++] = &q->is;
    s->running++;
    return true;
  }
  s->step.ncopies = copies;
  q->is.done = 0;
  leave_slot(s, q);
  return false;
}

/* ---- draft tokens ---- */
/* Gives line[i] draft tokens, as far as they are worth it and the step has room. */
static void add_drafts_of(ZxScheduler *s, Entry *q, ZxStepGain *step) {
  ZxSequence *x = &q->is;
  uint32_t most = x->most - 1 - x->n, n;
  if (most > s->how.drafts) most = s->how.drafts;
  if (!most || !(most = zx_draft(q->id, x->n, most, &q->kind))) return;
  q->guess = q->id[x->n];
  if (most > s->left) most = s->left;
  if (most > s->rows) most = s->rows;
  n = zx_drafts_worth(&s->cost, q->rate[q->kind], most, step);
  while (n && !zx_pages_take(s->pages, x->slot, x->done, x->done + 1 + n)) n--;
  if (!n) zx_pages_take(s->pages, x->slot, x->done, x->done + 1); /* which it has */
  q->drafts = n;
  q->take += n;
  s->left -= n;
  s->rows -= n;
}

/* Only where all decode: beside a prompt tokens are bound by arithmetic, and steps come anyway. One step of 32
 * has none, so that it is known what they take. */
static void add_drafts(ZxScheduler *s) {
  ZxStepGain step = {0};
  s->decodes = true;
  for (uint32_t i = 0; i < s->running; i++) {
    step.tokens += s->line[i]->take;
    s->decodes &= !s->line[i]->take || decodes(&s->line[i]->is);
  }
  step.gain = step.tokens;
  bool wanted = s->decodes && s->how.drafts && s->step.number % 32;
  for (uint32_t i = 0; i < s->running && wanted; i++)
    if (s->line[i]->take) add_drafts_of(s, s->line[i], &step);
}

/* ---- a step is written down ---- */
static void mix(ZxScheduler *s, uint64_t x) {
  s->digest = zb_mix64(s->digest * 0x9e3779b97f4a7c15ull + x + 1);
}

static void write_part(ZxScheduler *s, Entry *q) {
  ZxGenStep *x = &s->step;
  uint32_t nrows = rows_of(&q->is, q->is.done + q->take), from = q->is.done;
  s->of[x->nparts] = q;
  s->part[x->nparts++] =
      (ZxGenPart){.sequence = &q->is,
                  .from = from,
                  .token = x->ntokens,
                  .n = q->take,
                  .row = x->nrows,
                  .nrows = nrows,
                  .ndrafts = q->drafts,
                  .chooses = from + q->take == q->is.n + q->drafts && q->is.n < q->is.most};
  for (uint32_t i = 0; i < q->take; i++) {
    if (i + nrows >= q->take) s->row[x->nrows++] = x->ntokens;
    s->id[x->ntokens] = q->id[from + i];
    s->position[x->ntokens] = from + i;
    s->slots[x->ntokens++] = q->is.slot;
    mix(s, (uint64_t)q->id[from + i] << 32 | (from + i));
  }
}

const ZxGenStep *zx_next_step(ZxScheduler *s) {
  ZB_ASSERT(!s->under_way);
  s->step = (ZxGenStep){.number = s->step.number + 1,
                        .id = s->id,
                        .position = s->position,
                        .slot = s->slots,
                        .row = s->row,
                        .part = s->part,
                        .copy = s->copy,
                        .start = s->start};
  s->left = s->how.tokens;
  s->rows = s->how.rows;
  s->preempts = false;
  for (uint32_t i = 0; i < s->n; i++) {
    s->line[i]->take = s->line[i]->drafts = 0;
    s->line[i]->guess = ZX_NONE;
  }
  go_on_all(s);
  while (!s->preempts && s->running < s->n && start(s)) continue;
  add_drafts(s);
  mix(s, s->step.number);
  for (uint32_t i = 0; i < s->running; i++)
    if (s->line[i]->take) write_part(s, s->line[i]);
  ZB_ASSERT(s->step.ntokens || !s->n); /* the oldest always goes on */
  s->under_way = s->step.ntokens;
  s->counts.steps += s->under_way;
  return &s->step;
}

/* ---- a step was played ---- */
/* Says whether a text of n tokens ends with the last of them. */
static bool ends_with(const ZxSequence *q, uint32_t id, uint32_t n) {
  bool is = false;
  for (uint32_t i = 0; i < q->nend; i++) is |= q->end[i] == id;
  return is && n - q->nprompt > q->min_tokens;
}

/* Says whether a text of n tokens is all that its shape lets be; *at is where that was known. */
static bool is_whole(const ZxSequence *q, ZxShaped *at, uint32_t n) {
  return q->shape && zx_shape_follow(q->shape, at, q->id + q->nprompt, n - q->nprompt) &&
         zx_shape_whole(q->shape, at);
}

static bool goes_on(const ZxSequence *q, uint32_t position, uint32_t left, uint32_t id) {
  ZxShaped at = q->shaped;
  return left && q->id[position + 1] == id && !ends_with(q, id, position + 2) &&
         !is_whole(q, &at, position + 2);
}

bool zx_goes_on(const ZxGenPart *p, uint32_t row, uint32_t id) {
  uint32_t left = p->row + p->nrows - 1 - row;
  return left <= p->ndrafts && goes_on(p->sequence, p->from + p->n - 1 - left, left, id);
}

/* What the text itself said comes next was right or not, also if it was not checked. */
static void judge(ZxScheduler *s, Entry *q, uint32_t first, uint32_t right) {
  if (q->guess == ZX_NONE) return;
  uint32_t hits = q->drafts ? right : first == q->guess, wrong = q->drafts ? right < q->drafts : !hits;
  zx_draft_rate(&q->rate[q->kind], hits, wrong, 8);
  zx_draft_rate(&s->rate[q->kind], hits, wrong, 64);
  s->counts.drafts += q->drafts;
  s->counts.right_drafts += q->drafts ? right : 0;
}

static void take_chosen(ZxScheduler *s, Entry *q, const ZxGenPart *p, const uint32_t *chosen) {
  ZxSequence *x = &q->is;
  const uint32_t *id = chosen + p->row + p->nrows - 1 - p->ndrafts;
  uint32_t n = 0;
  for (bool more = true; more; n++) {
    ZB_ASSERT(id[n] < s->how.vocabulary);
    more = goes_on(x, x->n - 1, p->ndrafts - n, id[n]);
    q->id[x->n++] = id[n];
    mix(s, id[n]);
    if (ends_with(x, id[n], x->n)) x->ending = ZX_BY_END;
    else if (is_whole(x, &x->shaped, x->n)) x->ending = ZX_BY_SHAPE;
  }
  x->done += n - 1;
  s->counts.answer_tokens += n;
  judge(s, q, id[0], n - 1);
}

static void take_tokens(ZxScheduler *s, Entry *q, const ZxGenPart *p, const uint32_t *chosen) {
  ZxSequence *x = &q->is;
  uint32_t of_prompt = x->done < x->nprompt ? x->nprompt - x->done : 0, n = p->n - p->ndrafts;
  s->counts.prompt_tokens += of_prompt < n ? of_prompt : n;
  x->done += n;
  if (p->chooses) take_chosen(s, q, p, chosen);
  if (x->row_from < x->done) x->row_from = x->done;
  if (!x->ending && x->n == x->most && (p->chooses || x->done >= goal(x))) x->ending = ZX_BY_LENGTH;
}

void zx_step_done(ZxScheduler *s, const uint32_t *chosen) {
  ZB_ASSERT(s->under_way);
  s->under_way = false;
  for (uint32_t k = 0; k < s->step.nparts; k++)
    if (s->of[k]) {
      take_tokens(s, s->of[k], &s->part[k], chosen);
      keep_pages(s, s->of[k]);
    }
  for (uint32_t i = 0; i < s->running;) {
    ZxEnding why = s->line[i]->is.ending;
    if (why) remove_at(s, i, why);
    else i++;
  }
}

void zx_step_took(ZxScheduler *s, double seconds) {
  if (s->decodes && s->how.drafts) zx_step_cost_add(&s->cost, s->step.ntokens, seconds);
}

const ZxSequence *zx_next_ended(ZxScheduler *s) {
  if (s->shown) {
    zx_shape_release(s->shown->is.shape);
    s->shown->is.shape = NULL;
    s->shown->next = s->spare;
    s->spare = s->shown;
  }
  Entry *q = s->shown = s->ended;
  if (!q) return NULL;
  s->ended = q->next;
  if (!s->ended) s->last_ended = &s->ended;
  q->next = NULL;
  return &q->is;
}

/* ---- what is asked ---- */
const uint32_t *zx_table(const ZxScheduler *s, uint32_t group, uint32_t slot) {
  return zx_pages_table(s->pages, group, slot);
}

ZxCounts zx_scheduler_counts(const ZxScheduler *s) {
  ZxCounts c = s->counts;
  c.running = s->running;
  c.waiting = s->n - s->running;
  for (uint32_t g = 0; g < s->how.ngroups; g++) {
    c.pages += s->how.group[g].pages;
    c.free_pages += zx_pages_free(s->pages, g);
  }
  return c;
}

void zx_counts_add(ZxCounts *to, const ZxCounts *c) {
  to->running += c->running, to->waiting += c->waiting;
  to->steps += c->steps, to->prompt_tokens += c->prompt_tokens, to->answer_tokens += c->answer_tokens;
  to->cached_tokens += c->cached_tokens;
  to->drafts += c->drafts, to->right_drafts += c->right_drafts;
  to->preempted += c->preempted, to->lost += c->lost;
  to->pages += c->pages, to->free_pages += c->free_pages;
}

uint32_t zx_scheduler_free_pages(const ZxScheduler *s, uint32_t group) {
  return zx_pages_free(s->pages, group);
}
uint64_t zx_scheduler_digest(const ZxScheduler *s) { return s->digest; }

static bool check_entry(const ZxScheduler *s, uint32_t i, ZbErr *err) {
  const Entry *q = s->line[i];
  const ZxSequence *x = &q->is;
  bool runs = i < s->running;
  if (i && q->age <= s->line[i - 1]->age) return zb_fail(err, NULL, "line %u is older than %u", i, i - 1);
  if (runs != (x->slot != ZX_NONE) || (!runs && x->done))
    return zb_fail(err, NULL, "line %u of %u that run has slot %u, and %u positions", i, s->running, x->slot,
                   x->done);
  for (uint32_t k = 0; k < i && runs; k++)
    if (s->line[k]->is.slot == x->slot) return zb_fail(err, NULL, "slot %u is taken twice", x->slot);
  for (uint32_t k = 0; k < s->nslots; k++)
    if (s->slot[k] == x->slot) return zb_fail(err, NULL, "slot %u is taken, and free", x->slot);
  return (x->done <= goal(x) && x->n <= x->most && x->n >= x->nprompt && !x->ending) ||
         zb_fail(err, NULL, "line %u: %u positions of %u tokens of %u", i, x->done, x->n, x->most);
}

bool zx_scheduler_check(const ZxScheduler *s, ZbErr *err) {
  if (s->nslots + s->running != s->how.slots)
    return zb_fail(err, NULL, "%u slots are free, and %u sequences run", s->nslots, s->running);
  for (uint32_t i = 0; i < s->n; i++)
    if (!check_entry(s, i, err)) return false;
  for (uint32_t g = 0; g < s->how.ngroups; g++) {
    uint32_t pages = 0;
    for (uint32_t i = 0; i < s->running; i++)
      pages += zx_pages_most(s->pages, g, positions(s->line[i]->is.most));
    if (pages != s->promised[g])
      return zb_fail(err, NULL, "group %u: %u pages are promised, not %u", g, s->promised[g], pages);
    if (!s->running && zx_pages_free(s->pages, g) != s->how.group[g].pages)
      return zb_fail(err, NULL, "group %u: nobody runs, and pages are taken", g);
  }
  return zx_pages_check(s->pages, err);
}
