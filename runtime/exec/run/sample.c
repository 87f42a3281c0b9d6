/* Texts that the model writes while it trains: between two steps, by an engine in the arena of the one that trains, with
 * the parameters that are there. All ranks play the same steps of generation; rank 0 says what came of them. Each time
 * is a beginning: what caches held is of other weights. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ZxWatching {
  ZxEngine *engine;
  ZxStepper *stepper;
  ZxAnswering how;
};

static const float *play(void *player, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err) {
  zx_watch_moved();
  return zx_stepper_play(player, s, step, err);
}

bool zx_run_open_samples(ZxRun *r) {
  ZbErr err = {0};
  const ZpPlan *p = r->sample_plan;
  const ZxWave all = {0, 1};
  if (!p) return true;
  ZxWatching *s = r->watching = ZB_NEW(r->a, ZxWatching);
  *s = (ZxWatching){0};
  s->engine = zx_engine_beside(r->engine, p, r->a, &(ZxEngineOptions){0}, &err);
  if (!zx_run_agree(r, s->engine, &err)) return false;
  r->replica = zx_replica_of(r->c, p, r->a);
  s->stepper = zx_stepper_new(r->a, s->engine, p, &r->replica, all, NULL, &err);
  if (!zx_run_accept(r, s->stepper, &err)) return false;
  s->how = (ZxAnswering){
      .words = &r->prompts.words, .sizes = zx_scheduling(p, r->a, all), .play = play, .player = s->stepper};
  s->how.sizes.drafts = 0;
  s->how.share = zx_stepper_share(s->stepper);
  return true;
}

void zx_watching_free(ZxWatching *s) {
  if (s) zx_engine_free(s->engine);
}

/* ---- writing ------------------------------------------------------------------------------------------------- */
/* Asks what there is room for; the rest when something is answered. False with a message. */
static bool ask(const ZxRun *r, ZxAnswers *x, uint32_t *asked, ZbErr *err) {
  for (; *asked < r->prompts.nqueries; ++*asked)
    if (!zx_answers_ask(x, &r->prompts.query[*asked], *asked, err)) return err->passing;
  return true;
}

/* Says what came, in the order of the prompts: those that came sooner wait. */
typedef struct {
  ZbText text;
  ZxSampleMetrics is;
  bool done;
} Written;

static void take(Written *w, const ZxAnswered *q) {
  const ZxAnswer *x = &q->answer[0];
  w->done = true;
  if (q->broken) zb_text_add(&w->text, "%s", q->broken->text);
  else zb_text_put(&w->text, x->text, x->length);
  w->is.broken = q->broken ? w->text.s : NULL;
  w->is.text = w->text.s ? w->text.s : "", w->is.ntext = w->text.len;
  w->is.tokens = (int64_t)x->n - x->nprompt;
  w->is.finish = x->finish;
}

static bool write_all(ZxRun *r, ZxAnswers *x, Written *w, ZbErr *err) {
  uint32_t asked = 0;
  while (!r->stopping && (asked < r->prompts.nqueries || !zx_answers_idle(x))) {
    if (!ask(r, x, &asked, err) || !zx_run_step(r, x, err)) return false;
    (void)zx_run_goes_on(r, x, true);
    for (const ZxAnswered *q; (q = zx_answers_next(x));) take(&w[q->number], q);
  }
  return true;
}

void zx_run_sample(ZxRun *r, int64_t step) {
  ZbErr err = {0};
  ZxWatching *s = r->watching;
  uint32_t n = r->prompts.nqueries;
  Written *w = zx_need(calloc(n, sizeof *w));
  ZxAnswers *x = zx_answers_new(&s->how, &err);
  bool ok = x && zx_engine_publish(s->engine, &err) && write_all(r, x, w, &err);
  zx_log_erase(r->log);
  if (!ok)
    zx_die(r->c, "a sample after step %" PRId64 ": %s%s%s", step, err.text, *err.help ? "; " : "", err.help);
  uint64_t planned = zx_engine_bytes(s->engine), used = zx_stepper_used(s->stepper);
  if (used && used != planned) ZB_BUG("a sample planned %" PRIu64 " bytes and used %" PRIu64, planned, used);
  for (uint32_t i = 0; i < n; i++) {
    w[i].is.step = step, w[i].is.steps = r->o.steps;
    w[i].is.prompt = i + 1, w[i].is.asked = r->o.prompt.s[i], w[i].is.chat = r->o.chat;
    if (w[i].done && !r->rank) zx_run_logged(r, zx_log_sample(r->log, &w[i].is, &err), step, &err);
    zb_text_free(&w[i].text);
  }
  zx_answers_free(x);
  free(w);
}
