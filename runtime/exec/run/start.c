/* Everything up to the first step. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/device/memory.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"
#include "runtime/exec/state/grow.h"
#include "runtime/plan/text.h"

#include <inttypes.h>
#include <string.h>

/* ---- what is said of it ---- */
/* Ranks whose CPUs or libraries are others round other sums otherwise. That is no mistake, but should be
 * known. */
static void note_means(ZxRun *r) {
  ZxFacts f = {.a = r->a};
  ZbText t = {0};
  zx_fact(&f, ZX_MEANS, "device", "%s", r->o.device->describe(&r->env));
  if (!zx_same(r->c, &f, &t) && r->rank == 0)
    printf("note: sums will be rounded differently: %s", t.s ? t.s : "");
  zb_text_free(&t);
}

uint64_t zx_run_taken(const ZxRun *r, int64_t step) { return (uint64_t)zx_engine_samples(r->engine, step); }

static void tell_beside(const ZxRun *r, const ZpPlan *p, const char *what, ZbText *out) {
  char text[24], more[24];
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpLedger *l = &p->programs.stages[s].ledger;
    uint64_t arena = r->plan->programs.stages[s].ledger.total[ZP_DEVICE], all = l->total[ZP_DEVICE];
    zb_text_add(out, "stage %u: %s takes %s of the arena beside parameters", s, what,
                zb_bytes(text, all - l->bytes[ZP_L_PARAMS] - l->bytes[ZP_L_TRAINING]));
    if (all > arena) zb_text_add(out, ", which is %s larger for it", zb_bytes(more, all - arena));
    zb_text_add(out, "\n");
  }
}

/* What is evaluated; while training, what of the arena that takes, which is free between steps. */
static void tell_eval(const ZxRun *r, ZbText *out) {
  if (!r->eval.engine) return;
  zx_eval_tell(&r->eval, r->o.eval ? r->o.eval : r->o.data, out);
  if (r->eval_plan) tell_beside(r, r->eval_plan, "evaluation", out);
}

static void tell_samples(const ZxRun *r, ZbText *out) {
  uint32_t n = r->prompts.nqueries;
  if (!r->watching) return;
  zb_text_add(out, "samples: %u prompt%s after every %" PRId64 " step%s\n", n, n == 1 ? "" : "s",
              r->o.sample_every, r->o.sample_every == 1 ? "" : "s");
  tell_beside(r, r->sample_plan, "a sample", out);
}

static void tell_debug(const ZkDebug *d) {
  char text[24];
  for (ZkDebugName n = 0; n < ZK_DEBUGS; n++)
    if (d->given >> n & 1) printf("debug: %s=%s\n", zk_debug_name(n), zk_debug_text(d, n, text));
}

/* Two places say how long a run is: the recipe's rate and --steps. */
static void note_rates(const ZxRun *r) {
  const char *said = "";
  if (r->o.evaluates || r->before >= r->o.steps) return;
  for (uint32_t i = 0; i < r->plan->asked.noptimizers; i++) {
    ZbText t = {0};
    const ZpOptimizer *o = &r->plan->asked.optimizers[i];
    if (o->kind != ZP_UPDATE && zp_rate_note(&o->rate, r->o.steps, &t) && strcmp(t.s, said)) {
      said = zb_strdup(r->a, t.s);
      printf("note: %s\n", said);
    }
    zb_text_free(&t);
  }
}

static void introduce(ZxRun *r) {
  if (r->rank) return;
  note_rates(r);
  if (*r->o.device_note.text) printf("note: computing on the CPU, %s\n", r->o.device_note.text);
  if (r->o.quiet) return;
  const ZpPlan *p = r->plan;
  char text[24];
  tell_debug(&r->o.debug);
  printf("model %s, %.4g M parameters", r->graph->model, p->notes.params / 1e6);
  if (p->asked.frozen) printf(", %.4g M of them trained", p->notes.trained / 1e6);
  printf("; recipe %s: %" PRId64 " ranks, %u stage%s, %" PRId64 " micro-batches; %s\n", r->recipe->name,
         p->layout.mesh.nranks, p->programs.nstages, p->programs.nstages > 1 ? "s" : "", p->asked.nmicro,
         r->o.device->describe(&r->env));
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    printf("stage %u: arena %s a rank, %u part%s\n", s,
           zb_bytes(text, p->programs.stages[s].ledger.total[ZP_DEVICE]), p->programs.stages[s].ninsts,
           p->programs.stages[s].ninsts > 1 ? "s" : "");
  ZbText t = {0};
  tell_eval(r, &t);
  tell_samples(r, &t);
  zx_engine_tell(r->engine, r->cluster, &t);
  if (r->memory.s) zb_text_put(&t, r->memory.s, r->memory.len);
  if (r->o.steps && !r->o.evaluates) zx_epochs_begin(&r->epochs, r->o.steps, zx_run_taken(r, r->o.steps), &t);
  zx_run_say(&t);
  fflush(stdout);
}

/* Reports slow paths, however quiet a run is. */
static void tell_fallbacks(ZxRun *r) {
  ZbText t = {0};
  if (r->rank == 0 && r->o.device->host && r->plan->asked.tf32)
    printf("note: tf32 is f32 on a CPU: operands are not rounded\n");
  zx_engine_fallbacks(r->engine, r->cluster, &t);
  zx_run_say_once(r, &t);
  fflush(stdout);
}

/* ---- what it writes ---- */
static bool open_files(ZxRun *r) {
  ZbErr err = {0};
  bool ok = true;
  size_t n;
  ZxLogOptions lo = {
      .dir = r->o.log, .before = r->before, .print_every = r->o.print_every, .quiet = r->o.quiet, .ntext = 3};
  if (r->rank == 0 && lo.dir) {
    zp_show(r->plan, &r->plan_text);
    lo.text[0] = (struct ZxLogText){"command", r->command};
    lo.text[1] = (struct ZxLogText){"recipe", zl_source_text(r->sources, r->recipe->span.file, &n)};
    lo.text[2] = (struct ZxLogText){"plan", r->plan_text.s};
  }
  if (r->rank == 0) ok = (r->log = zx_log_open(&lo, &err)) != NULL;
  if (!zx_run_accept(r, ok, &err)) return false;
  zx_say_over_line(zx_run_lowest(r, r->rank == 0 && zx_log_on_screen(r->log)) == 0);
  return true;
}

static bool inputs_fit(ZxRun *r) {
  ZbErr err = {0};
  bool ok = zx_inputs_fit(r->plan, r->data, &err) &&
            (!r->eval_plan || zx_inputs_fit(r->eval_plan, r->eval_data, &err));
  return zx_run_accept(r, ok, &err);
}

static bool open_eval(ZxRun *r) {
  ZbErr err = {0};
  const ZpPlan *p = r->eval_plan ? r->eval_plan : r->plan;
  ZxEngineOptions eo = {.data = r->eval_data, .order = ZX_ORDER_SEQUENTIAL};
  if (!r->o.eval && !r->o.evaluates) return true;
  if (r->o.eval) {
    r->eval_engine = zx_engine_beside(r->engine, r->eval_plan, r->a, &eo, &err);
    if (!zx_run_agree(r, r->eval_engine, &err)) return false;
  }
  ZxEngine *e = r->eval_engine ? r->eval_engine : r->engine;
  const char *data = r->o.eval ? r->o.eval : r->o.data;
  if (!zx_run_accept(r, zx_eval_open(&r->eval, e, p, data, r->o.eval_batches, &err), &err)) return false;
  if (!r->o.predict) return true;
  r->predict = zx_predict_open(e, r->o.predict, (uint64_t)(r->eval.batches * p->asked.global_batch), &err);
  return zx_run_accept(r, r->predict, &err);
}

/* ---- parameters, and where they are kept ---- */
static bool resume(ZxRun *r) {
  ZbErr err = {0};
  ZxResumed read;
  ZbText note = {0};
  char all[24], most[24];
  double from = zb_now();
  bool ok =
      (zx_resume_copies(r->engine, r->from, r->manifest, &r->o.resume_copy, &err) &&
       zx_resume_fits(r->engine, r->from, r->manifest, true, &err) &&
       zx_saves_fit(r->manifest, r->from, &r->facts, r->o.resume_model == ZX_MODEL_SAME, &note, &err)) ||
      zx_run_refuse(r, &err);
  if (ok && note.s && r->rank == 0) fputs(note.s, stdout);
  zb_text_free(&note);
  if (!ok || !zx_run_accept(r, zx_engine_resume(r->engine, r->from, r->manifest, &read, &err), &err))
    return false;
  if (r->rank == 0 && !r->o.quiet)
    printf("resumed from %s: step %" PRId64 ", sample %" PRId64
           "; read %s, at most %s by one rank, in %.2f s\n",
           zb_show(r->from), r->manifest->step, r->manifest->samples, zb_bytes(all, read.bytes),
           zb_bytes(most, read.most), zb_now() - from);
  return true;
}

static bool load(ZxRun *r) {
  ZbErr err = {0};
  ZxLoaded x;
  ZxNewWords words;
  ZxFrom from = {
      .path = r->o.init, .names = r->o.names, .partial = r->o.init_partial, .adapters = r->adapters};
  if (r->o.new_tokens) {
    from.words = &words;
    if (!zx_run_accept(r, zx_run_new_words(r, &words, &err), &err)) return false;
  }
  if (!zx_run_accept(r, zx_engine_load(r->engine, &from, &x, &err), &err)) return false;
  if (x.coded) r->coded = x.coded;
  if (r->coded && !r->rank && !r->o.quiet) printf("%s: %s\n", zb_show(r->o.init), r->coded);
  if (r->rank || !r->o.init_partial) return true;
  if (!r->o.quiet)
    printf("parameters: %" PRIu64 " from %s, %" PRIu64 " drawn from the seed%s%s\n", x.read,
           zb_show(r->o.init), x.drawn, x.drawn ? ": " : "", x.names);
  if (x.extra)
    printf("note: %s holds %" PRIu64 " tensor%s that model %s has not; the first is '%s'\n",
           zb_show(r->o.init), x.extra, x.extra == 1 ? "" : "s", r->graph->model, zb_show(x.first_extra));
  return true;
}

static bool take_params(ZxRun *r) {
  ZbErr err = {0};
  ZxResumed read;
  bool ok = zx_resume_fits(r->engine, r->o.init, r->manifest, false, &err) || zx_run_refuse(r, &err);
  if (!ok || !zx_run_accept(r, zx_engine_take_params(r->engine, r->o.init, r->manifest, &read, &err), &err))
    return false;
  if (r->rank == 0 && !r->o.quiet)
    printf("parameters of %s, of step %" PRId64 "\n", zb_show(r->o.init), r->manifest->step);
  return true;
}

static bool begin_parameters(ZxRun *r) {
  ZbErr err = {0};
  zx_watch_phase(r->from ? "reading the checkpoint" : r->o.init ? "reading weights" : "drawing parameters");
  if (r->from) return resume(r);
  if (r->o.init) return r->manifest ? take_params(r) : load(r);
  return zx_run_agree(r, zx_engine_init(r->engine, &err), &err);
}

static bool open_checkpoints(ZxRun *r) {
  ZbErr err = {0};
  r->saves = (ZxSaves){
      .o = &r->o, .rank = r->rank, .since = zb_now(), .begun = r->before, .a = r->a, .good = r->from};
  ZxBest best = r->from ? r->manifest->best : (ZxBest){0};
  if (!r->o.eval || !best.data || strcmp(best.data, r->o.eval)) best.data = NULL; /* of other data */
  if (best.data) r->eval.best = best.loss, r->eval.best_step = best.step;
  if (!r->o.ckpt) return true;
  size_t n;
  ZxCheckpointsOptions o = {
      .dir = r->o.ckpt, .keep = (uint32_t)r->o.ckpt_keep, .most = (uint64_t)r->o.ckpt_file_size};
  o.base = (ZxManifest){.version = PACKAGE_VERSION,
                        .model = r->graph->model,
                        .command = r->command,
                        .best = best,
                        .recipe = zl_source_text(r->sources, r->recipe->span.file, &n)};
  zx_saves_facts(r->a, &r->facts, &o.base);
  r->saves.c = zx_checkpoints_open(r->engine, &o, &err);
  return zx_run_accept(r, r->saves.c, &err);
}

static bool open_compare(ZxRun *r) {
  ZbErr err = {0};
  r->compared = -1;
  if (r->o.evaluates || !r->o.compare_every) return true;
  r->alike = zx_alike_open(r->engine, &err);
  return zx_run_agree(r, r->alike, &err);
}

/* The first step of a run sets up much. */
static bool open_trace(ZxRun *r) {
  ZbErr err = {0};
  const int64_t first = r->before + 1, last = r->o.steps;
  if (!r->o.trace) return true;
  if (!r->o.trace_to) r->o.trace_from = first < last ? first + 1 : first, r->o.trace_to = r->o.trace_from + 1;
  if (r->o.trace_from < first || r->o.trace_from > last) {
    zb_fail(&err, "--trace-steps names steps that the run makes",
            "--trace: step %" PRId64 " is none of this run, which makes %" PRId64 " to %" PRId64,
            r->o.trace_from, first, last);
    return zx_run_refuse(r, &err);
  }
  if (r->o.trace_to > last) r->o.trace_to = last;
  r->trace = zx_trace_open(r->c, r->o.trace, &err);
  return zx_run_accept(r, r->trace, &err);
}

/* Rank 0 says it. A cluster for its memory alone has not what times are made from. */
static void predict(ZxRun *r) {
  ZlDiags *d = zl_diags_new(r->a, zl_sources_new(r->a));
  if (r->rank || !r->cluster || r->o.evaluates) return;
  r->predicted = zp_time(r->a, r->plan, r->cluster, false, d);
  if (!r->predicted && !r->o.quiet)
    printf("note: cluster %s does not say what times are made from: `zplan sim` lists it\n",
           r->cluster->name);
}

static bool open_device(ZxRun *r, ZbErr *err) {
  r->env = (ZkEnv){.pool = zk_pool_new(r->o.threads),
                   .seed = r->o.seed,
                   .tf32 = r->plan->asked.tf32,
                   .repeatable = r->o.repeatable,
                   .debug = r->o.debug};
  r->opened = r->env.pool ? r->o.device->open(&r->env, r->c->t->node_rank(r->c), err)
                          : zb_fail(err, "raise the limit (ulimit -u, ulimit -v)",
                                    "%d threads cannot be started", r->o.threads);
  return zx_run_agree(r, r->opened, err);
}

bool zx_run_start(ZxRun *r) {
  ZbErr err = {0};
  r->before = r->from ? r->manifest->step : 0;
  if (!open_files(r) || !open_trace(r) || !inputs_fit(r) || !open_device(r, &err)) return false;
  note_means(r);
  predict(r);
  ZxEngineOptions eo = {.device = r->o.device,
                        .env = &r->env,
                        .seed = r->o.seed,
                        .data = r->data,
                        .order = r->o.evaluates ? ZX_ORDER_SEQUENTIAL : r->o.order,
                        .times = r->o.times,
                        .cluster = r->predicted ? r->cluster : NULL,
                        .trace_from = r->o.trace_from,
                        .trace_to = r->o.trace_to,
                        .also = {r->eval_plan, r->sample_plan}};
  r->engine = zx_engine_new(r->a, r->plan, r->c, &eo, &err);
  if (!zx_run_agree(r, r->engine, &err) || !open_eval(r) || !zx_run_open_samples(r)) return false;
  r->epochs = zx_epochs_new(r->a, r->data, zx_sample_values(r->plan), r->plan->asked.global_batch);
  if (!zx_run_agree(r, zx_check_memory(r->c, zx_engine_untouched(r->engine), &r->memory, &err), &err))
    return false;
  if (!begin_parameters(r) || !open_checkpoints(r) || !open_compare(r)) return false;
  if (r->o.save && !zx_run_accept(r, zx_engine_reserve(r->engine, r->o.save, &err), &err)) return false;
  zx_watch_phase("making ready");
  introduce(r);
  tell_fallbacks(r);
  return true;
}

bool zx_run_start_generating(ZxRun *r) {
  ZbErr err = {0};
  ZxEngineOptions eo = {.device = r->o.device, .env = &r->env, .seed = r->o.seed};
  if (zx_run_all_there(&r->prompts)) return true;
  if (!open_device(r, &err)) return false;
  bool own = r->plan->admission != NULL;
  if (own) r->admission = zx_admission_new(r->a, r->plan, &r->plan_options, r->sources, r->c, &eo, &err);
  if (!zx_run_agree(r, !own || r->admission, &err)) return false;
  r->engine = zx_engine_new(r->a, r->plan, r->c, &eo, &err);
  if (!zx_run_agree(r, r->engine, &err)) return false;
  bool quiet = r->o.quiet;
  r->o.quiet = true; /* the standard output is for texts */
  uint64_t bytes = zx_engine_untouched(r->engine);
  if (own) bytes += zx_engine_untouched(zx_admission_engine(r->admission));
  bool ok = zx_run_agree(r, zx_check_memory(r->c, bytes, &r->memory, &err), &err) && begin_parameters(r);
  if (ok && own) {
    ZxEngine *steps = r->engine;
    r->engine = zx_admission_engine(r->admission);
    ok = begin_parameters(r);
    r->engine = steps;
  }
  r->o.quiet = quiet;
  if (ok) zx_engine_touch(r->engine);
  return ok;
}
