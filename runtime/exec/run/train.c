/* The steps, and what comes between them. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"

#include <inttypes.h>
#include <string.h>

/* ---- steps ---- */
/* FLOP/s of all ranks' products, measured at once: ranks that share cores share their peak. */
static double measure_peak(ZxRun *r) {
  r->c->t->barrier(r->c);
  double peak = r->own.flops =
      r->o.device->measure_flops(&r->env, zp_precision_elem(r->plan->asked.recipe->precision.compute), 40);
  r->c->t->wait(r->c, r->c->t->all_reduce(r->c, 0, &peak, 1, ZK_F64, ZX_SUM));
  return peak;
}

/* The first step touches all memory for the first time: where others follow, the table of times has those. */
static void begin_times(ZxRun *r) {
  r->timed = r->before + 1;
  if (!r->o.times || r->o.steps < r->before + 3) return;
  r->c->t->barrier(r->c);
  if (r->o.device->measure_copy) r->own.bytes = r->o.device->measure_copy(&r->env, 40);
  zx_engine_count_anew(r->engine, &r->own);
  r->timed = r->before + 2;
}

/* Stages of which metrics tell apart. */
enum { MAX_CLASSES = 64 };
static uint32_t classes(const ZxRun *r) {
  return r->plan->programs.nstages < MAX_CLASSES ? r->plan->programs.nstages : MAX_CLASSES;
}

/* What differs between ranks, of the whole step and of each stage: means, and the most of any rank. What one
 * rank knows and all must do alike comes with it. */
static void gather(ZxRun *r, ZxStep *s, ZxMetrics *m, ZxClassMetrics *c, double saves[ZX_SAVES_FLAGS]) {
  enum { MOST = MAX_CLASSES, WAIT = 2 * MOST, STEP, LOST, STOP, SAVES, TOPS = SAVES + ZX_SAVES_FLAGS };
  const ZpPlan *p = r->plan;
  double sum[STEP + 1] = {0}, top[TOPS] = {0};
  uint32_t n = classes(r), mine = p->layout.mesh.pipe < 0
                                      ? 0
                                      : (uint32_t)zp_coord(&p->layout.mesh, r->rank, p->layout.mesh.pipe);
  double ranks = (double)p->layout.mesh.nranks, each = ranks / p->programs.nstages;
  bool known = s->wait_ms >= 0;
  if (mine < n) sum[mine] = s->compute_ms, sum[MOST + mine] = s->wait_ms;
  if (mine < n) top[mine] = (double)s->used_bytes, top[MOST + mine] = s->wait_ms;
  sum[WAIT] = top[WAIT] = s->wait_ms;
  sum[STEP] = s->compute_ms + s->wait_ms;
  top[LOST] = s->lost;
  top[STOP] = zx_stop_wanted(&r->stop);
  zx_saves_flags(&r->saves, top + SAVES);
  ZxRequest one = r->c->t->all_reduce(r->c, 0, sum, sizeof sum / sizeof *sum, ZK_F64, ZX_SUM);
  ZxRequest two = r->c->t->all_reduce(r->c, 0, top, sizeof top / sizeof *top, ZK_F64, ZX_MAX);
  r->c->t->wait(r->c, one);
  r->c->t->wait(r->c, two);
  m->wait_ms = known ? sum[WAIT] / ranks : -1;
  m->wait_max_ms = known ? top[WAIT] : -1;
  m->bubble = known && sum[STEP] > 0 ? sum[WAIT] / sum[STEP] : -1;
  s->lost = top[LOST] > 0;
  r->stopping = (int)top[STOP];
  memcpy(saves, top + SAVES, ZX_SAVES_FLAGS * sizeof *saves);
  for (uint32_t i = 0; i < n; i++)
    c[i] = (ZxClassMetrics){.stage = (int)i,
                            .planned_bytes = p->programs.stages[i].ledger.total[ZP_DEVICE],
                            .used_bytes = (uint64_t)top[i],
                            .compute_ms = known ? sum[i] / each : -1,
                            .wait_ms = known ? sum[MOST + i] / each : -1,
                            .wait_max_ms = known ? top[MOST + i] : -1};
}

/* All ranks see the same, so all leave together, or none. What a run that ends here has come to is not
 * saved. */
static bool sound(ZxRun *r, int64_t step, const ZxStep *s) {
  ZbErr err = {0};
  ZbText note = {0};
  bool ok = zx_health_step(&r->health, r->engine, step, s, r->saves.good, &note, &err);
  if (note.s && r->rank == 0) printf("note: %s\n", note.s);
  zb_text_free(&note);
  if (ok) return true;
  return zx_run_refuse(r, &err);
}

/* Compares replicas, once a step. A checkpoint that is still being written is of a step after which they were
 * alike: it is completed before the run ends. */
static bool compare(void *run, int64_t step) {
  ZxRun *r = run;
  ZbErr err = {0};
  if (!r->alike || r->compared == step) return true;
  r->compared = step;
  if (zx_alike(r->alike, step, &err)) return true;
  zx_saves_settle(&r->saves);
  if (r->saves.good) zb_fail_more(&err, "; the last good checkpoint is %s", zb_show(r->saves.good));
  return zx_run_fail(r, &err);
}

static bool go_on(ZxRun *r, int64_t step, const ZxStep *s, const double saves[ZX_SAVES_FLAGS]) {
  int64_t every = r->o.compare_every;
  if (!sound(r, step, s) || (every && step % every == 0 && !compare(r, step))) return false;
  if (!zx_saves_step(&r->saves, step, saves)) return false;
  if (r->saves.seconds > 0) zx_stop_saved(&r->stop, r->saves.seconds);
  return true;
}

/* The others wait for what this rank cannot do: it ends them all. */
static _Noreturn void give_up(ZxRun *r, int code, int64_t step, const ZbErr *err) {
  zx_die_of(r->c, code, "step %" PRId64 ": %s%s%s", step, err->text, *err->help ? "; " : "", err->help);
}

/* While nothing is printed: a step, an evaluation. */
static void draw(ZxRun *r) {
  if (r->log) zx_log_draw(r->log);
}

static bool one_step(ZxRun *r, int64_t step) {
  ZbErr err = {0};
  ZxStep s;
  draw(r);
  double from = zb_now(), lr = zp_rate(&r->plan->asked.optimizers[0].rate, step);
  if (!zx_engine_step(r->engine, step, &s, &err))
    give_up(r, s.unfed && !err.passing ? ZX_EXIT_MISTAKE : ZX_EXIT_FAILED, step, &err);
  double ms = 1e3 * (zb_now() - from);
  if (s.used_bytes != zx_engine_bytes(r->engine))
    ZB_BUG("rank %d planned %" PRIu64 " bytes and used %" PRIu64, r->rank, zx_engine_bytes(r->engine),
           s.used_bytes);
  double tokens = zx_tokens_per_step(r->plan), flops = r->plan->notes.model_flops;
  ZxMetrics m = {.step = step,
                 .steps = r->o.steps,
                 .unknown = zx_unknown(zg_losses(r->plan->graph), s.weight),
                 .loss = s.loss,
                 .grad_norm = s.grad_norm,
                 .lr = lr,
                 .tokens = tokens,
                 .step_ms = ms,
                 .predicted_ms = r->predicted ? 1e3 * r->predicted->seconds : -1,
                 .tokens_per_s = tokens / ms * 1e3,
                 .flops = flops,
                 .peak_share = r->peak > 0 ? flops / ms * 1e3 / r->peak : -1,
                 .planned_bytes = zx_engine_bytes(r->engine),
                 .used_bytes = s.used_bytes};
  m.nparts = zx_loss_parts(r->plan, s.loss_sum, s.weight, s.aux, m.part);
  ZxClassMetrics c[MAX_CLASSES];
  double saves[ZX_SAVES_FLAGS];
  zx_stop_step(&r->stop, ms * 1e-3);
  gather(r, &s, &m, c, saves);
  zx_log_erase(r->log);
  if (r->rank) return go_on(r, step, &s, saves);
  m.epochs = zx_epochs_so_far(&r->epochs, zx_run_taken(r, step));
  m.nepochs = r->epochs.n;
  r->times.last = step;
  r->times.ms[r->times.made++ % ZX_STEPS_KEPT] = ms;
  if (step > r->before + 1) r->times.known++, r->times.step += ms, r->times.waited += m.bubble * ms;
  if (step == r->before + 1 && !r->o.quiet)
    printf("first step %.0f ms after the start\n", 1e3 * (zb_now() - r->began));
  zx_run_logged(r, zx_log_step(r->log, &m, c, (int)classes(r), &err), step, &err);
  ZbText note = {0};
  zx_epochs_note(&r->epochs, step, zx_run_taken(r, step - 1), zx_run_taken(r, step), &note);
  zx_run_say(&note);
  return go_on(r, step, &s, saves);
}

static void conclude(ZxRun *r) {
  char text[24];
  ZbErr err = {0};
  if (r->rank) return;
  if (!zx_log_end(r->log, &err)) give_up(r, ZX_EXIT_FAILED, r->times.last, &err);
  if (r->o.times && r->o.quiet && r->before < r->o.steps)
    zx_report_times(r->engine, r->plan, &r->own, r->timed, r->times.last);
  if (r->o.quiet) return;
  if (r->before >= r->o.steps) {
    if (r->from) printf("no steps: %s is of step %" PRId64 "\n", zb_show(r->from), r->before);
    else printf("no steps: the parameters are as they began\n");
    return;
  }
  printf("planned == used: %s on rank 0, and equal on every rank\n",
         zb_bytes(text, zx_engine_bytes(r->engine)));
  ZbText epochs = {0};
  zx_epochs_end(&r->epochs, zx_run_taken(r, r->times.last), &epochs);
  zx_run_say(&epochs);
  zx_report_speed(&r->times, r->plan, r->peak);
  if (r->predicted) zx_report_prediction(&r->times, r->predicted);
  if (r->o.times) zx_report_times(r->engine, r->plan, &r->own, r->timed, r->times.last);
}

static bool save(ZxRun *r, int64_t step) {
  ZbErr err = {0};
  return !r->o.save || (compare(r, step) && zx_run_agree(r, zx_engine_save(r->engine, &err), &err));
}

/* ---- evaluations ---- */
/* `steps` 0: nothing is trained. */
static ZxEvalMetrics evaluate(ZxRun *r, int64_t step, int64_t steps) {
  ZbErr err = {0};
  ZxEvalMetrics m;
  draw(r);
  bool ok = zx_eval_run(&r->eval, step, steps, &m, &err);
  zx_log_erase(r->log);
  if (!ok) zx_die(r->c, "evaluation: %s%s%s", err.text, *err.help ? "; " : "", err.help);
  if (!r->rank) zx_run_logged(r, zx_log_eval(r->log, &m, &err), step, &err);
  if (r->saves.c && m.best_step == step) zx_checkpoints_best(r->saves.c, &(ZxBest){r->o.eval, m.best, step});
  return m;
}

bool zx_run_evaluate(ZxRun *r) {
  zx_watch_phase("the evaluation");
  ZxEvalMetrics m = evaluate(r, 0, 0);
  ZbErr err = {0};
  ZxPredict *predict = r->predict;
  r->predict = NULL;
  if (predict && !zx_run_agree(r, zx_predict_close(predict, &err), &err)) return false;
  if (r->eval.best_step >= 0) return true;
  const char *data = zb_show(r->o.data);
  if (m.unknown)
    zb_fail(&err, "look at the targets", "nothing in %s is known: what is after `per` adds up to 0", data);
  else zb_fail(&err, "look at the weights, and at the data", "the loss of %s is not finite", data);
  return zx_run_refuse(r, &err);
}

static void sample(ZxRun *r, int64_t step) {
  draw(r);
  zx_run_sample(r, step);
}

/* After which steps. */
static bool evaluates_after(const ZxRun *r, int64_t step) {
  return r->o.eval && (step == r->o.steps || (r->o.eval_every && step % r->o.eval_every == 0));
}

/* ---- stops ---- */
static void say_stop(const ZxRun *r, const char *when) {
  if (r->rank == 0 && !r->o.quiet)
    printf("stopped %s by %s; code %d: the same command may be given again\n", when, zx_stop_why(r->stopping),
           ZX_EXIT_AGAIN);
}

/* What asked while the run was being made ready. */
static bool stop_at_once(ZxRun *r) {
  double most = zx_stop_wanted(&r->stop);
  r->c->t->wait(r->c, r->c->t->all_reduce(r->c, 0, &most, 1, ZK_F64, ZX_MAX));
  r->stopping = (int)most;
  if (r->stopping) say_stop(r, "before the first step");
  return r->stopping;
}

/* After its last step, or after `step`, which is the run's. */
static bool write_trace(ZxRun *r, int64_t step) {
  ZbErr err = {0};
  ZxTrace *t = r->trace;
  r->trace = NULL;
  if (!t) return true;
  bool any = step >= r->o.trace_from, ok = !any || zx_trace_write(t, r->plan, r->engine, &err);
  int64_t last = step < r->o.trace_to ? step : r->o.trace_to;
  zx_trace_close(t);
  if (!r->rank && !any) printf("note: no trace: step %" PRId64 " was not come to\n", r->o.trace_from);
  else if (!r->rank && ok && !r->o.quiet)
    printf("trace of steps %" PRId64 " to %" PRId64 ": %s\n", r->o.trace_from, last, zb_show(r->o.trace));
  return zx_run_agree(r, ok, &err);
}

static void end_steps(ZxRun *r) {
  zx_watch_phase("writing what is left to write");
  conclude(r);
}

static bool stop(ZxRun *r, int64_t step) {
  end_steps(r);
  if (!write_trace(r, step) || !zx_saves_end(&r->saves, step) || !save(r, step)) return false;
  say_stop(r, zb_printf(r->a, "after step %" PRId64, step));
  return true;
}

/* ---- all of it ---- */
bool zx_run_train(ZxRun *r) {
  r->saves.before = compare;
  r->saves.run = r;
  zx_watch_phase(""); /* the first step sets up much, and so does measuring */
  if (stop_at_once(r)) return true;
  for (int64_t step = r->before + 1; step <= r->o.steps; step++) {
    if (!one_step(r, step)) return false;
    if (r->stopping && step < r->o.steps) return stop(r, step);
    if (step == r->before + 1) {
      r->peak = measure_peak(r); /* not before: the first step should come soon */
      begin_times(r);
      zx_watch_phase(NULL);
    }
    if (step == r->o.trace_to && !write_trace(r, step)) return false;
    if (evaluates_after(r, step)) evaluate(r, step, r->o.steps);
    if (r->watching && step % r->o.sample_every == 0) sample(r, step);
    if (r->stopping && step < r->o.steps) return stop(r, step);
  }
  r->stopping = 0; /* there is nothing to come again for */
  end_steps(r);
  int64_t last = r->before < r->o.steps ? r->o.steps : r->before;
  return zx_saves_end(&r->saves, last) && save(r, last);
}
