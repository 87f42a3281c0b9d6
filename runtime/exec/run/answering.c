/* What plays steps of the engine for answers, with the other ranks of a replica. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/run/run.h"

#include <inttypes.h>

/* Returns how many parameters steps read, or the admission of their sequences. */
static double parameters(const ZpPlan *p) {
  double all = p->notes.params;
  for (uint32_t b = 0; p->admission && b < p->admission->programs.nbuckets; b++) {
    const ZpBucket *k = &p->admission->programs.buckets[b];
    double times = k->segment == ZP_NONE ? 1 : p->graph->segments[k->segment].trip;
    for (uint32_t i = 0; i < k->nslices; i++)
      if (!zp_has_param(p, k->slices[i].param)) all += times * (double)k->slices[i].n;
  }
  return all;
}

static void introduce(const ZxRun *r) {
  char text[24];
  const ZpGenerating *g = &r->plan->generating;
  int64_t all = g->sequences * g->replicas;
  ZbText t = {0};
  if (r->o.quiet || r->rank) return;
  fprintf(stderr,
          "model %s, %.4g M parameters; up to %" PRId64 " text%s of %" PRId64 " tokens at once; %s%s\n",
          r->graph->model, parameters(r->plan) / 1e6, all, all == 1 ? "" : "s", g->length,
          zb_bytes(text, zx_engine_bytes(r->engine) + zp_admission_bytes(r->plan)),
          r->c->t->size(r->c) > 1 ? " on rank 0" : "");
  if (r->coded)
    fprintf(stderr, "%s: %s%s\n", zb_show(r->o.init), r->coded,
            r->o.weights || r->o.recipe ? "" : "; in memory they are not: --weights stores them in few bits");
  zx_engine_tell(r->engine, r->cluster, &t);
  zx_engine_fallbacks(r->engine, r->cluster, &t);
  const char *other = r->o.device->host ? zp_other_bits(r->plan) : NULL;
  if (other) fprintf(stderr, "note: last bits of logits are not those of one rank: %s\n", other);
  if (!r->o.device->host) fprintf(stderr, "%s\n%s", r->o.device->describe(&r->env), t.s ? t.s : "");
  zb_text_free(&t);
}

static const float *play(void *player, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err) {
  zx_watch_moved();
  return zx_stepper_play(player, s, step, err);
}

/* Finds who plays the same steps, and what is the same for all. */
static void join_replica(ZxRun *r) {
  r->replica = zx_replica_of(r->c, r->plan, r->a);
  r->prompts.seed = r->rank ? 0 : zx_new_seed();
  r->c->t->wait(r->c, r->c->t->broadcast(r->c, 0, &r->prompts.seed, sizeof r->prompts.seed, 0));
  introduce(r);
}

bool zx_run_answering(ZxRun *r, ZxWave w, ZxAnswering *how) {
  ZbErr err = {0};
  if (!w.wave) join_replica(r);
  ZxStepper *stepper = zx_stepper_new(r->a, r->engine, r->plan, &r->replica, w, r->admission, &err);
  if (!zx_run_agree(r, stepper, &err)) return false;
  *how = (ZxAnswering){
      .words = &r->prompts.words, .sizes = zx_scheduling(r->plan, r->a, w), .play = play, .player = stepper};
  how->share = zx_stepper_share(stepper);
  if (how->sizes.drafts > r->o.drafts) how->sizes.drafts = (uint32_t)r->o.drafts;
  return true;
}

/* ---- one wave, and all ranks --------------------------------------------------------------------------------- */
bool zx_run_answering_together(ZxRun *r, ZxAnswering *how) {
  ZbErr err = {0};
  if (!zx_run_answering(r, (ZxWave){0, 1}, how)) return false;
  if (r->replica.count == 1) return true;
  zb_fail(&err, "leave `split batch` out of the recipe, or start each replica by itself",
          "%d replicas cannot share what is asked one by one; `zrun generate --prompts` can",
          r->replica.count);
  return zx_run_refuse(r, &err);
}

bool zx_run_goes_on(ZxRun *r, ZxAnswers *x, bool ok) {
  struct {
    uint64_t digest;
    int32_t stopping, failed;
  } said = {zx_answers_digest(x), r->stopping, ok ? 0 : r->failed};
  if (!r->rank && !said.stopping) said.stopping = zx_stop_wanted(&r->stop);
  zx_run_tell_all(r, &said, sizeof said);
  if (said.digest != zx_answers_digest(x))
    ZB_BUG("rank %d has come to other steps or tokens than rank 0", r->rank);
  r->stopping = said.stopping;
  if (r->stopping) zx_answers_cancel(x);
  if (said.failed) r->failed = said.failed;
  return !said.failed;
}

bool zx_run_step(ZxRun *r, ZxAnswers *x, ZbErr *err) {
  const ZxReplica *p = &r->replica;
  bool played;
  size_t bytes;
  if (p->size == 1) return zx_answers_step(x, err);
  if (!zx_answers_play(x, &played, err)) return false;
  if (!played) return true;
  void *chosen = zx_answers_chosen(x, &bytes);
  if (p->last) zx_answers_sample(x);
  if (p->staged) r->c->t->wait(r->c, r->c->t->broadcast(r->c, 0, chosen, bytes, p->world[p->root]));
  if (!zx_answers_take(x, err)) return false;
  double seconds = zx_answers_seconds(x);
  zx_run_tell_all(r, &seconds, sizeof seconds);
  zx_answers_took(x, seconds);
  return true;
}

void zx_run_tell_used(const ZxRun *r, const ZxAnswering *how, uint32_t n) {
  char text[24];
  uint64_t planned = zx_engine_bytes(r->engine), used = 0;
  for (uint32_t i = 0; i < n; i++)
    if (zx_stepper_used(how[i].player) > used) used = zx_stepper_used(how[i].player);
  if (!used) return; /* there was no step */
  if (used != planned) ZB_BUG("%" PRIu64 " bytes were planned and %" PRIu64 " used", planned, used);
  if (!r->o.quiet && !r->rank) fprintf(stderr, "planned == used: %s\n", zb_bytes(text, used));
}
