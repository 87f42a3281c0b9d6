/* Answers to prompts: those of options go to the standard output as they come, those of lines to a file, in order. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"
#include "runtime/exec/stepper.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- steps --------------------------------------------------------------------------------------------------- */
typedef struct {
  ZxStepper *stepper;
  const ZxReplica *replica;
} Player;

static const float *play(void *player, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err) {
  zx_watch_moved();
  return zx_stepper_play(((Player *)player)->stepper, s, step, err);
}

static bool share(void *player, bool ok, ZxChoice *choice, ZbErr *err) {
  return zx_replica_choice(((Player *)player)->replica, ok, choice, err);
}

static double took(void *player, double seconds) {
  zx_replica_tell(((Player *)player)->replica, &seconds, sizeof seconds, 0);
  return seconds;
}

/* Collective: what rank 0 knows before a step, for all. False if it has failed, which it has said. What ranks have
 * decided so far is compared. If somebody wants the run to end, all that is under way is cancelled. */
static bool goes_on(ZxRun *r, ZxAnswers *x, bool ok) {
  struct {
    uint64_t digest;
    int32_t stopping, failed;
  } said = {zx_answers_digest(x), r->stopping, ok ? 0 : r->failed};
  if (!r->rank && !said.stopping) said.stopping = zx_stop_wanted(&r->stop);
  zx_replica_tell(&r->replica, &said, sizeof said, 0);
  if (said.digest != zx_answers_digest(x))
    ZB_BUG("rank %d has come to other steps or tokens than rank 0", r->rank);
  r->stopping = said.stopping;
  if (r->stopping) zx_answers_cancel(x);
  if (said.failed) r->failed = said.failed;
  return !said.failed;
}

/* Plays a step. If it fails on one rank, others wait for it. */
static bool step(ZxRun *r, ZxAnswers *x) {
  ZbErr err = {0};
  if (zx_answers_step(x, &err)) return true;
  if (r->replica.size > 1) zx_die(r->c, "%s", err.text);
  return zx_run_fail(r, &err);
}

/* Where a query says no seed, it has one that is the same on all ranks. */
static void give_seed(const ZxRun *r, ZxQuery *q, uint64_t number) {
  if (q->seed == ZX_UNSAID) q->seed = (int64_t)(zb_random_u64(r->prompts.seed, 0, number) >> 1);
}

static void tell(const ZxRun *r, const ZxAnswers *x, uint64_t answers, double seconds) {
  ZxCounts c = zx_answers_counts(x);
  if (r->o.quiet || r->rank || !answers) return;
  fprintf(stderr, "%" PRIu64 " tokens of prompts, %" PRIu64 " written in %.3f s: %.1f tokens/s",
          c.prompt_tokens, c.answer_tokens, seconds, seconds > 0 ? (double)c.answer_tokens / seconds : 0);
  if (c.cached_tokens) fprintf(stderr, "; %" PRIu64 " more tokens of prompts were shared", c.cached_tokens);
  if (c.drafts)
    fprintf(stderr, "; %" PRIu64 " of %" PRIu64 " draft tokens were right", c.right_drafts, c.drafts);
  fputc('\n', stderr);
}

/* ---- texts as they come ---------------------------------------------------------------------------------------- */
/* Texts are shown one after the other, by prompts and choices. One comes as it is made; others wait. */
typedef struct {
  ZbText waits;
  bool done;
} Shown;
typedef struct {
  ZxRun *r;
  Shown *text; /* [prompt][choice] */
  uint32_t n, choices, at;
  bool begun; /* `at` has its head */
  char last;  /* what was written last */
} Screen;

static void put(Screen *s, const char *text, size_t n) {
  if (!n || s->r->rank) return;
  fwrite(text, 1, n, stdout);
  fflush(stdout);
  s->last = text[n - 1];
}

static void put_head(Screen *s) {
  if (s->n > 1 && !s->r->rank) {
    printf("%s==> prompt %u", s->at ? "\n" : "", s->at / s->choices + 1);
    if (s->choices > 1) printf(", choice %u", s->at % s->choices + 1);
    printf(" <==\n");
  }
  s->begun = true;
  s->last = '\n';
}

static void show_piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  Screen *s = ctx;
  uint32_t i = (uint32_t)number * s->choices + choice;
  if (i != s->at) {
    zb_text_put(&s->text[i].waits, text, n);
    return;
  }
  if (!s->begun) put_head(s);
  put(s, text, n);
}

/* Ends a text, and shows those that waited for it. Its table of log-probabilities goes behind it. */
static void end_text(Screen *s, const ZxAnswered *q) {
  for (uint32_t c = 0; c < s->choices; c++) {
    Shown *x = &s->text[(uint32_t)q->number * s->choices + c];
    bool now = s->at == (uint32_t)(x - s->text);
    ZbText t = {0};
    zx_result_table(&s->r->prompts.words, &q->answer[c], &t);
    if (now ? s->last != '\n' : !x->waits.len || x->waits.s[x->waits.len - 1] != '\n')
      zb_text_put(&x->waits, "\n", 1);
    if (t.len) zb_text_put(&x->waits, t.s, t.len);
    zb_text_free(&t);
    x->done = true;
    while (s->at < s->n && s->text[s->at].done) {
      Shown *next = &s->text[s->at];
      if (!s->begun) put_head(s);
      put(s, next->waits.s, next->waits.len);
      zb_text_free(&next->waits);
      s->at++;
      s->begun = false;
      if (s->at < s->n && s->text[s->at].waits.len) {
        put_head(s);
        put(s, s->text[s->at].waits.s, s->text[s->at].waits.len);
        s->text[s->at].waits.len = 0;
      }
    }
  }
}

static bool broken(ZxRun *r, const ZxAnswered *q, const char *name, uint64_t line) {
  ZbErr err = {0};
  if (name) zb_fail(&err, q->broken->help, "%s:%" PRIu64 ": %s", zb_show(name), line, q->broken->text);
  else err = *q->broken;
  return zx_run_refuse(r, &err);
}

/* Takes what is answered. */
static bool take_texts(Screen *s, ZxAnswers *x) {
  for (const ZxAnswered *q; (q = zx_answers_next(x));) {
    if (q->broken) return broken(s->r, q, NULL, 0);
    end_text(s, q);
  }
  return true;
}

static bool write_texts(ZxRun *r, ZxAnswers *x, Screen *s) {
  ZbErr err = {0};
  uint32_t asked = 0;
  ZxPrompts *p = &r->prompts;
  for (uint32_t i = 0; i < p->nqueries; i++) give_seed(r, &p->query[i], i);
  while (asked < p->nqueries || !zx_answers_idle(x)) {
    while (asked < p->nqueries && zx_answers_ask(x, &p->query[asked], asked, &err)) asked++;
    if (asked < p->nqueries && !err.passing) return zx_run_refuse(r, &err);
    if (!goes_on(r, x, true)) return false;
    if (!r->stopping && !step(r, x)) return false;
    if (!take_texts(s, x)) return false;
    if (r->stopping) break;
  }
  return true;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */
/* Results are written in the order of lines, and those that come too early wait: at most as many as `window`. */
typedef struct {
  ZxQuery query;
  ZbArena *a;
  ZbText result;
  bool done;
} Line;
typedef struct {
  ZxRun *r;
  Line *line; /* by number, modulo `window` */
  uint64_t window, asked, written;
  size_t at; /* of the next line in the text */
} Lines;

static Line *line_of(Lines *l, uint64_t number) { return &l->line[number % l->window]; }

/* Asks the next line; false with err->passing if there is no room for it now. */
static bool ask_line(Lines *l, ZxAnswers *x, ZbErr *err) {
  ZxRun *r = l->r;
  Line *line = line_of(l, l->asked);
  size_t at = l->at, n;
  const char *text = zx_run_line(&r->prompts, &at, &n);
  *line = (Line){.query = r->o.query, .a = zb_arena_new()};
  ZbErr why = {0};
  bool ok = zx_query_read(&line->query, line->a, text, n, &why);
  give_seed(r, &line->query, l->asked);
  if (ok && zx_answers_ask(x, &line->query, l->asked, &why)) {
    l->at = at;
    l->asked++;
    return true;
  }
  zb_arena_free(line->a);
  line->a = NULL;
  zb_fail(err, why.help, "%s:%" PRIu64 ": %s", zb_show(r->o.prompts), l->asked + 1, why.text);
  err->passing = why.passing;
  return false;
}

static bool ask_lines(Lines *l, ZxAnswers *x) {
  ZbErr err = {0};
  while (l->asked < l->r->prompts.nlines && l->asked - l->written < l->window)
    if (!ask_line(l, x, &err)) return err.passing || zx_run_refuse(l->r, &err);
  return true;
}

/* Writes results of which all before are written. */
static bool write_results(Lines *l, ZbErr *err) {
  for (Line *line; l->written < l->asked && (line = line_of(l, l->written))->done; l->written++) {
    bool ok = l->r->rank || zx_results_add(&l->r->prompts.results, line->result.s, line->result.len, err);
    zb_text_free(&line->result);
    line->done = false;
    if (!ok) return false;
  }
  return true;
}

static bool take_results(Lines *l, ZxAnswers *x) {
  ZxRun *r = l->r;
  ZbErr err = {0};
  for (const ZxAnswered *q; !r->stopping && (q = zx_answers_next(x));) {
    Line *line = line_of(l, q->number);
    if (q->broken) return broken(r, q, r->o.prompts, q->number + 1);
    zx_result(&r->prompts.words, q, &line->result);
    line->done = true;
    zb_arena_free(line->a);
    line->a = NULL;
  }
  return write_results(l, &err) || (err.passing ? zx_run_fail(r, &err) : zx_run_refuse(r, &err));
}

static bool write_lines(ZxRun *r, ZxAnswers *x, Lines *l) {
  bool ok = true;
  while (l->written < r->prompts.nlines) {
    if (!ask_lines(l, x) || !goes_on(r, x, ok)) return false;
    if (r->stopping) break; /* what is not whole is made again */
    if (!step(r, x)) return false;
    ok = take_results(l, x);
  }
  return goes_on(r, x, ok);
}

/* Begins behind the results that are there. */
static void skip_lines(Lines *l) {
  size_t n;
  ZxPrompts *p = &l->r->prompts;
  while (l->asked < p->results.done && zx_run_line(p, &l->at, &n)) l->asked++;
  l->written = l->asked;
  if (l->asked && !l->r->o.quiet && !l->r->rank)
    fprintf(stderr, "note: %s has %" PRIu64 " of %" PRIu64 " results: going on behind them\n",
            zb_show(p->results.path), l->asked, p->nlines);
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */
static bool generate_texts(ZxRun *r, ZxAnswering *how) {
  ZbErr err = {0};
  uint32_t choices = (uint32_t)r->o.query.choices, n = r->prompts.nqueries * choices;
  Screen s = {.r = r, .text = ZB_NEWN(r->a, Shown, n), .n = n, .choices = choices, .last = '\n'};
  how->piece = show_piece;
  how->ctx = &s;
  ZxAnswers *x = zx_answers_new(how, &err);
  if (!x) return zx_run_refuse(r, &err);
  double from = zb_now();
  bool ok = write_texts(r, x, &s);
  if (s.last != '\n') put(&s, "\n", 1); /* of a text that was not ended */
  if (ok && !r->stopping) tell(r, x, n, zb_now() - from);
  for (uint32_t i = 0; i < n; i++) zb_text_free(&s.text[i].waits);
  zx_answers_free(x);
  return ok;
}

static bool generate_lines(ZxRun *r, ZxAnswering *how) {
  ZbErr err = {0};
  Lines l = {.r = r, .window = 4 * (uint64_t)how->sizes.slots + 64};
  l.line = ZB_NEWN(r->a, Line, l.window);
  ZxAnswers *x = zx_answers_new(how, &err);
  if (!x) return zx_run_refuse(r, &err);
  skip_lines(&l);
  double from = zb_now();
  uint64_t before = l.written;
  bool ok = write_lines(r, x, &l);
  if (ok && l.written > before) tell(r, x, l.written - before, zb_now() - from);
  zx_answers_free(x);
  for (uint64_t i = 0; i < l.window; i++) {
    zb_text_free(&l.line[i].result);
    zb_arena_free(l.line[i].a);
  }
  bool closed = zx_results_close(&r->prompts.results, &err);
  return ok && (closed || zx_run_fail(r, &err));
}

static void introduce(const ZxRun *r, const ZxScheduling *s) {
  char text[24];
  ZbText t = {0};
  if (r->rank) return;
  fprintf(stderr, "model %s, %.4g M parameters; up to %u text%s of %u tokens at once; %s\n", r->graph->model,
          r->plan->notes.params / 1e6, s->slots, s->slots == 1 ? "" : "s", s->length,
          zb_bytes(text, zx_engine_bytes(r->engine)));
  zx_engine_tell(r->engine, r->cluster, &t);
  zx_engine_fallbacks(r->engine, r->cluster, &t);
  if (!r->o.device->host) fprintf(stderr, "%s\n%s", r->o.device->describe(&r->env), t.s ? t.s : "");
  zb_text_free(&t);
}

/* Ends the job if a step did not use what was planned for it. */
static void tell_used(const ZxRun *r, const ZxStepper *x) {
  char text[24];
  uint64_t planned = zx_engine_bytes(r->engine), used = zx_stepper_used(x);
  if (!used) return; /* there was no step */
  if (used != planned) ZB_BUG("%" PRIu64 " bytes were planned and %" PRIu64 " used", planned, used);
  if (!r->o.quiet && !r->rank) fprintf(stderr, "planned == used: %s\n", zb_bytes(text, used));
}

/* Plays steps with the other ranks of a replica. */
static bool join_replica(ZxRun *r, ZxAnswering *how) {
  ZbErr err = {0};
  Player *player = ZB_NEW(r->a, Player);
  r->replica = zx_replica_of(r->c, r->plan);
  if (r->replica.count > 1) {
    zb_fail(&err, "leave `split batch` out, or start each of them by itself",
            "recipe %s has %d independent replicas, which zrun generate does not play yet", r->recipe->name,
            r->replica.count);
    return zx_run_refuse(r, &err);
  }
  *player = (Player){zx_stepper_new(r->a, r->engine, r->plan, &r->replica, &err), &r->replica};
  if (!zx_run_agree(r, player->stepper, &err)) return false;
  *how = (ZxAnswering){.words = &r->prompts.words,
                       .sizes = zx_scheduling(r->plan, r->a),
                       .play = play,
                       .share = share,
                       .took = took,
                       .follows = !r->replica.last,
                       .player = player};
  r->prompts.seed = r->rank ? 0 : zx_new_seed();
  r->c->t->wait(r->c, r->c->t->broadcast(r->c, 0, &r->prompts.seed, sizeof r->prompts.seed, 0));
  return true;
}

bool zx_run_answering(ZxRun *r, ZxAnswering *how) {
  if (!join_replica(r, how)) return false;
  if (how->sizes.drafts > r->o.drafts) how->sizes.drafts = (uint32_t)r->o.drafts;
  if (!r->o.quiet) introduce(r, &how->sizes);
  return true;
}

/* Ranks may have been dealt out anew since the file of results was opened: it is rank 0's. */
static bool take_results_over(ZxRun *r) {
  ZbErr err = {0};
  ZxResults *x = &r->prompts.results;
  bool ok = r->prompts.query || !r->rank || zx_results_close(x, &err);
  r->c->t->barrier(r->c);
  if (!r->prompts.query && !r->rank && x->fd < 0) ok = zx_results_open(x, r->a, x->path, &err);
  return zx_run_accept(r, ok, &err);
}

bool zx_run_generate(ZxRun *r) {
  ZbErr err = {0};
  ZxPrompts *p = &r->prompts;
  if (zx_run_all_there(p)) {
    if (!r->o.quiet && !r->rank)
      fprintf(stderr, "note: %s has the results of all %" PRIu64 " lines: there is nothing to do\n",
              zb_show(p->results.path), p->nlines);
    return zx_results_close(&p->results, &err) || zx_run_fail(r, &err);
  }
  ZxAnswering how;
  if (!zx_run_answering(r, &how) || !take_results_over(r)) return false;
  zx_watch_phase(NULL);
  bool ok = p->query ? generate_texts(r, &how) : generate_lines(r, &how);
  if (ok) tell_used(r, ((Player *)how.player)->stepper);
  if (ok && r->stopping && !r->rank)
    fprintf(stderr, "stopped by %s; code %d: the same command may be given again\n", zx_stop_why(r->stopping),
            ZX_EXIT_AGAIN);
  return ok;
}
