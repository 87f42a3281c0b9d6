/* Many queries at once: the scheduler says what a step has, the engine makes its logits, each row of them
 * becomes a token, and tokens become text. */
#include "runtime/exec/answer/answer.h"

#include <stdlib.h>

/* ---- what is under way -------------------------------------------------------------------------------------- */
typedef struct {
  ZtDetokenizer *d;
  ZtIds id; /* prompt and answer */
  ZxChoice *logprob;
  size_t nlogprobs, logprobcap;
  bool stopped;
  const char *finish;
  ZxPacked told;
} Choice;

typedef struct Asked Asked;
struct Asked {
  Asked *next;
  const ZxQuery *q;
  uint64_t number, request; /* the caller's, and the scheduler's */
  uint64_t seed;
  uint32_t nprompt, left; /* choices that have not ended */
  uint32_t cached, prompt_tokens;
  Choice choice[ZX_CHOICES];
  ZbErr broken;
  ZxAnswer answer[ZX_CHOICES];
  ZxAnswered is;
};

/* What is chosen from the rows of a step, as ranks tell it to each other. */
typedef struct {
  ZbErr why;
  ZxChosen row[];
} ChosenRows;

struct ZxAnswers {
  ZxAnswering how;
  ZbArena *a;
  ZxScheduler *s;
  ZxShared *shared;
  ZxWanted *wanted;      /* rows of a step */
  const ZxGenStep *step; /* that is played */
  const float *logits;
  ChosenRows *chosen_rows;
  size_t chosen_bytes; /* of the step's */
  double seconds;
  uint32_t *chosen; /* by row of a step */
  bool *is_new, *is_end;
  ZxSequence *sequence_of; /* by part, as it was before the step */
  Asked *first, **last;    /* under way */
  Asked *answered, **last_answered, *shown;
  uint32_t nchoices; /* under way */
  ZtIds id;          /* of the query that comes */
  ZtDetokenizer **spare;
  uint32_t nspare;
};

/* ---- opening ------------------------------------------------------------------------------------------------ */
ZxAnswers *zx_answers_new(const ZxAnswering *how, ZbErr *err) {
  ZxScheduling sizes = how->sizes;
  sizes.vocabulary = how->words->vocabulary;
  sizes.end = how->words->end;
  sizes.nend = how->words->nend;
  sizes.queue = sizes.slots + ZX_CHOICES;
  ZxScheduler *s = zx_scheduler_new(&sizes, err);
  if (!s) return NULL;
  ZbArena *a = zb_arena_new();
  ZxAnswers *x = ZB_NEW(a, ZxAnswers);
  *x = (ZxAnswers){.how = *how, .a = a, .s = s};
  x->how.sizes = sizes;
  x->shared = zx_shared_new(a, &how->share, sizes.vocabulary, how->words->words);
  x->wanted = ZB_NEWN(a, ZxWanted, sizes.rows);
  x->chosen = ZB_NEWN(a, uint32_t, sizes.rows);
  x->chosen_rows = zb_alloc(a, sizeof *x->chosen_rows + sizes.rows * sizeof *x->chosen_rows->row);
  x->sequence_of = ZB_NEWN(a, ZxSequence, sizes.slots);
  x->is_new = ZB_NEWN(a, bool, sizes.rows);
  x->is_end = ZB_NEWN(a, bool, sizes.rows);
  x->spare = ZB_NEWN(a, ZtDetokenizer *, sizes.slots + sizes.queue + ZX_CHOICES);
  x->last = &x->first;
  x->last_answered = &x->answered;
  return x;
}

/* Keeps the memory of a detokenizer for the next sequence. */
static void put_aside(ZxAnswers *x, ZtDetokenizer *d) {
  if (d && x->nspare < x->how.sizes.slots + x->how.sizes.queue) x->spare[x->nspare++] = d;
  else zt_detokenizer_free(d);
}

static void forget(ZxAnswers *x, Asked *q) {
  if (!q) return;
  for (uint32_t c = 0; c < ZX_CHOICES; c++) {
    put_aside(x, q->choice[c].d);
    zt_ids_free(&q->choice[c].id);
    free(q->choice[c].logprob);
  }
  free(q);
}

static void forget_all(ZxAnswers *x, Asked *q) {
  for (Asked *next; q; q = next) {
    next = q->next;
    forget(x, q);
  }
}

void zx_answers_free(ZxAnswers *x) {
  if (!x) return;
  forget_all(x, x->first);
  forget_all(x, x->answered);
  forget(x, x->shown);
  while (x->nspare) zt_detokenizer_free(x->spare[--x->nspare]);
  zt_ids_free(&x->id);
  zx_scheduler_free(x->s);
  zb_arena_free(x->a);
}

/* ---- asking ------------------------------------------------------------------------------------------------- */
static void add_id(ZtIds *ids, uint32_t id) {
  if (ids->n == ids->cap) {
    ids->cap = ids->cap ? 2 * ids->cap : 64;
    ids->id = realloc(ids->id, ids->cap * sizeof *ids->id);
    if (!ids->id) zb_out_of_memory(ids->cap * sizeof *ids->id);
  }
  ids->id[ids->n++] = id;
}

static void add_logprob(Choice *c, const ZxChoice *one) {
  if (c->nlogprobs == c->logprobcap) {
    c->logprobcap = c->logprobcap ? 2 * c->logprobcap : 16;
    c->logprob = realloc(c->logprob, c->logprobcap * sizeof *c->logprob);
    if (!c->logprob) zb_out_of_memory(c->logprobcap * sizeof *c->logprob);
  }
  c->logprob[c->nlogprobs++] = *one;
}

static void send_piece(ZxAnswers *x, const Asked *q, uint32_t choice) {
  size_t n;
  const char *text = zt_detokenized(q->choice[choice].d, &n);
  if (n && x->how.piece) x->how.piece(x->how.ctx, q->number, choice, text, n);
}

static bool begin_choice(ZxAnswers *x, Asked *q, uint32_t choice, const ZxGenRequest *r, ZbErr *err) {
  Choice *c = &q->choice[choice];
  ZtWriting w = {.flags = (q->q->keep_special ? 0 : ZT_SKIP_SPECIAL) | (q->q->echo ? ZT_ECHO : 0),
                 .stop = q->q->stop.s,
                 .nstop = q->q->stop.n,
                 .min_tokens = r->min_tokens};
  c->d = x->nspare ? x->spare[--x->nspare] : zt_detokenizer_new(x->how.words->t);
  for (size_t i = 0; i < r->nprompt; i++) add_id(&c->id, r->prompt[i]);
  return zt_detokenize_begin(c->d, x->how.words->coder, &w, r->prompt, r->nprompt, err);
}

bool zx_answers_ask(ZxAnswers *x, const ZxQuery *q, uint64_t number, ZbErr *err) {
  ZxGenRequest r;
  if (err) *err = (ZbErr){0};
  if (x->nchoices && x->nchoices + (uint32_t)q->choices > x->how.sizes.queue) {
    zb_fail(err, "try again later", "%u sequences are under way", x->nchoices);
    if (err) err->passing = true;
    return false;
  }
  x->id.n = 0;
  if (!zx_words_of(x->how.words, q, &x->id, err) ||
      !zx_words_request(x->how.words, q, &x->id, x->how.sizes.length, &r, err))
    return false;
  Asked *new = calloc(1, sizeof *new);
  if (!new) zb_out_of_memory(sizeof *new);
  *new = (Asked){.q = q, .number = number, .seed = r.sampling.seed, .nprompt = r.nprompt, .left = r.choices};
  new->prompt_tokens = (uint32_t)x->id.n;
  bool ok = true;
  for (uint32_t c = 0; c < r.choices && ok; c++) ok = begin_choice(x, new, c, &r, err);
  ok = ok && zx_submit(x->s, &r, &new->request, err);
  zx_shape_release(r.shape);
  if (!ok) {
    forget(x, new);
    return false;
  }
  *x->last = new;
  x->last = &new->next;
  x->nchoices += r.choices;
  for (uint32_t c = 0; c < r.choices; c++) send_piece(x, new, c);
  return true;
}

bool zx_answers_idle(const ZxAnswers *x) { return !x->first; }

/* ---- a step ------------------------------------------------------------------------------------------------- */
static Asked *asked(ZxAnswers *x, uint64_t request) {
  Asked *q = x->first;
  while (q && q->request != request) q = q->next;
  ZB_ASSERT(q);
  return q;
}

static bool ends(const ZxSequence *q, uint32_t id) {
  for (uint32_t i = 0; i < q->nend; i++)
    if (q->end[i] == id) return true;
  return false;
}

/* Takes the choice of a row: of a token of the prompt its log-probability, or a new token. False: there is none. */
static bool take_row(ZxAnswers *x, const ZxSequence *q, uint32_t row, bool next) {
  const ZxChosen *c = &x->chosen_rows->row[row];
  Asked *of = asked(x, q->request);
  if (!c->ok) {
    of->broken = x->chosen_rows->why;
    zx_end_request(x->s, q->request, ZX_NONE, ZX_BY_NAN);
    return false;
  }
  if (!next) {
    add_logprob(&of->choice[q->choice], &c->choice);
    return true;
  }
  x->chosen[row] = c->choice.id;
  x->is_new[row] = true;
  x->is_end[row] = ends(q, c->choice.id);
  return true;
}

/* Says whether row k of a part gives something: a new token (*next), or a log-probability of the prompt. */
static bool is_wanted(const ZxGenPart *part, uint32_t k, bool *next) {
  *next = part->chooses && k + 1 + part->ndrafts >= part->nrows;
  return *next || part->from + part->n - part->nrows + k + 1 < part->sequence->n;
}

static bool is_broken(ZxAnswers *x, const ZxGenPart *part) {
  return *asked(x, part->sequence->request)->broken.text;
}

/* Takes what was chosen from a part's rows. */
static void take_rows(ZxAnswers *x, const ZxGenPart *part) {
  bool next;
  if (is_broken(x, part)) return;
  for (uint32_t k = 0; k < part->nrows; k++) {
    uint32_t row = part->row + k;
    if (!is_wanted(part, k, &next)) continue;
    if (!take_row(x, part->sequence, row, next)) return;
    if (next && !zx_goes_on(part, row, x->chosen[row])) return;
  }
}

/* Puts the new token of a row behind its sequence's text. A stop string ends it, and what follows is not its
 * any more. */
static bool write_token(ZxAnswers *x, uint64_t request, uint32_t choice, uint32_t row, ZbErr *err) {
  Asked *q = asked(x, request);
  Choice *c = &q->choice[choice];
  const ZxChoice *new = &x->chosen_rows->row[row].choice;
  if (*q->broken.text || c->stopped) return true;
  add_id(&c->id, new->id);
  if (q->q->logprobs != ZX_UNSAID) add_logprob(c, new);
  if (x->is_end[row]) return true;
  if (!zt_detokenize(c->d, x->how.words->coder, new->id, err)) return false;
  c->stopped = zt_detokenizer_stopped(c->d) >= 0;
  if (c->stopped) zx_end_request(x->s, request, choice, ZX_BY_STOP);
  send_piece(x, q, choice);
  return true;
}

static void take_out(ZxAnswers *x, Asked *q) {
  Asked **at = &x->first;
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  if (!q->next) x->last = at;
  q->next = NULL;
  *x->last_answered = q;
  x->last_answered = &q->next;
}

static const char *finish_of(const Choice *c, ZxEnding why) {
  return c->stopped || why == ZX_BY_END || why == ZX_BY_STOP || why == ZX_BY_SHAPE ? "stop"
         : why == ZX_BY_LENGTH                                                     ? "length"
                                                                                   : "cancelled";
}

/* Ends a choice: what was held of its text is sure now. */
static bool end_choice(ZxAnswers *x, const ZxSequence *s, ZbErr *err) {
  Asked *q = asked(x, s->request);
  Choice *c = &q->choice[s->choice];
  if (!c->stopped) {
    if (!zt_detokenize_end(c->d, x->how.words->coder, err)) return false;
    c->stopped = zt_detokenizer_stopped(c->d) >= 0;
    send_piece(x, q, s->choice);
  }
  c->finish = finish_of(c, s->ending);
  if (!s->choice) q->cached = s->cached;
  x->nchoices--;
  if (!--q->left) take_out(x, q);
  return true;
}

static bool end_choices(ZxAnswers *x, ZbErr *err) {
  bool ok = true;
  for (const ZxSequence *s; ok && (s = zx_next_ended(x->s));) ok = end_choice(x, s, err);
  return ok;
}

bool zx_answers_play(ZxAnswers *x, bool *played, ZbErr *err) {
  double from = zb_now();
  const ZxGenStep *step = x->step = zx_next_step(x->s);
  *played = step->ntokens > 0;
  if (!*played) return end_choices(x, err);
  x->logits = x->how.play(x->how.player, x->s, step, err);
  if (!x->logits) return false;
  for (uint32_t p = 0; p < step->nparts; p++) x->sequence_of[p] = *step->part[p].sequence;
  memset(x->is_new, 0, step->nrows * sizeof *x->is_new);
  x->chosen_bytes = sizeof *x->chosen_rows + step->nrows * sizeof *x->chosen_rows->row;
  memset(x->chosen_rows, 0, x->chosen_bytes);
  x->seconds = zb_now() - from;
  return true;
}

void zx_answers_sample(ZxAnswers *x) {
  double from = zb_now();
  uint32_t n = 0;
  bool next;
  for (uint32_t p = 0; p < x->step->nparts; p++) {
    const ZxGenPart *part = &x->step->part[p];
    if (is_broken(x, part)) continue;
    for (uint32_t k = 0; k < part->nrows; k++)
      if (is_wanted(part, k, &next))
        x->wanted[n++] = (ZxWanted){part->sequence, part->from + part->n - part->nrows + k, part->row + k};
  }
  zx_shared_choose(x->shared, x->wanted, n, x->logits, x->chosen_rows->row, &x->chosen_rows->why);
  x->seconds += zb_now() - from;
}

void *zx_answers_chosen(ZxAnswers *x, size_t *bytes) {
  *bytes = x->chosen_bytes;
  return x->chosen_rows;
}

bool zx_answers_take(ZxAnswers *x, ZbErr *err) {
  const ZxGenStep *step = x->step;
  bool ok = true;
  for (uint32_t p = 0; p < step->nparts; p++) take_rows(x, &step->part[p]);
  zx_step_done(x->s, x->chosen);
  for (uint32_t p = 0; p < step->nparts && ok; p++) {
    const ZxGenPart *part = &step->part[p];
    for (uint32_t row = part->row; row < part->row + part->nrows && ok; row++)
      if (x->is_new[row]) ok = write_token(x, x->sequence_of[p].request, x->sequence_of[p].choice, row, err);
  }
  return ok && end_choices(x, err);
}

void zx_answers_took(ZxAnswers *x, double seconds) { zx_step_took(x->s, seconds); }
double zx_answers_seconds(const ZxAnswers *x) { return x->seconds; }

bool zx_answers_step(ZxAnswers *x, ZbErr *err) {
  bool played;
  if (!zx_answers_play(x, &played, err)) return false;
  if (!played) return true;
  zx_answers_sample(x);
  if (!zx_answers_take(x, err)) return false;
  zx_answers_took(x, x->seconds);
  return true;
}

void zx_answers_cancel(ZxAnswers *x) {
  for (Asked *q = x->first; q; q = q->next) zx_end_request(x->s, q->request, ZX_NONE, ZX_BY_CANCEL);
  end_choices(x, NULL);
}

bool zx_answers_end(ZxAnswers *x, uint64_t number, ZbErr *err) {
  Asked *q = x->first;
  while (q && q->number != number) q = q->next;
  if (q) zx_end_request(x->s, q->request, ZX_NONE, ZX_BY_CANCEL);
  return end_choices(x, err);
}

/* ---- what is answered --------------------------------------------------------------------------------------- */
static ZxAnswer answer_of(const Asked *q, uint32_t choice) {
  const Choice *c = &q->choice[choice];
  ZxAnswer out = {.choice = choice,
                  .id = c->id.id,
                  .n = (uint32_t)c->id.n,
                  .nprompt = q->nprompt,
                  .logprob = q->q->logprobs == ZX_UNSAID ? NULL : c->logprob,
                  .first = (uint32_t)(c->id.n - c->nlogprobs),
                  .finish = c->finish,
                  .stop = zt_detokenizer_stopped(c->d)};
  out.text = zt_detokenized_text(c->d, &out.length);
  return out;
}

void zx_answers_news(ZxAnswers *x, uint64_t number, uint32_t choice, ZbText *to) {
  Asked *q = x->shown && x->shown->number == number ? x->shown : x->first;
  while (q && q->number != number) q = q->next;
  ZB_ASSERT(q);
  ZxAnswer now = answer_of(q, choice);
  zx_pack_news(&now, &q->choice[choice].told, to);
}

const ZxAnswered *zx_answers_next(ZxAnswers *x) {
  forget(x, x->shown);
  Asked *q = x->shown = x->answered;
  if (!q) return NULL;
  x->answered = q->next;
  if (!x->answered) x->last_answered = &x->answered;
  q->next = NULL;
  for (uint32_t i = 0; i < (uint32_t)q->q->choices; i++) q->answer[i] = answer_of(q, i);
  q->is = (ZxAnswered){.number = q->number,
                       .query = q->q,
                       .seed = q->seed,
                       .answer = q->answer,
                       .prompt_tokens = q->prompt_tokens,
                       .cached = q->cached,
                       .broken = *q->broken.text ? &q->broken : NULL};
  return &q->is;
}

ZxCounts zx_answers_counts(const ZxAnswers *x) { return zx_scheduler_counts(x->s); }
uint64_t zx_answers_digest(const ZxAnswers *x) { return zx_scheduler_digest(x->s); }
