/* zrun: trains a stage graph on the ranks that mpirun started, or evaluates it. Every rank reads the same
 * files and makes the same plan, and all make sure of that before they go on (comm/same.h); what is wrong
 * with them is wrong everywhere, so rank 0 says it and all leave in order. What goes wrong on one rank alone
 * is said there, and the job is aborted. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/device/memory.h"
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/epochs.h"
#include "runtime/exec/evaluate.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/facts.h"
#include "runtime/exec/health.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/exec/log/log.h"
#include "runtime/exec/options.h"
#include "runtime/exec/recipe.h"
#include "runtime/exec/report.h"
#include "runtime/exec/saves.h"
#include "runtime/exec/stop.h"
#include "runtime/exec/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
  ZbArena *a;
  ZxOptions o;
  ZxComm *c;
  int rank;
  ZlSources *sources;
  ZlDiags *diags;
  ZgGraph *graph;
  const ZlRecipe *recipe;
  const ZlCluster *cluster;
  ZpPlan *plan;
  ZxMix *data;
  ZpPlan *eval_plan; /* in the arena of `plan`, with --eval; as are these */
  ZxMix *eval_data;
  ZkEnv env;
  bool opened; /* the device, in env */
  ZxEngine *engine;
  ZxEngine *eval_engine;
  ZxEval eval; /* where there is one, of the one engine or the other */
  ZxPredict *predict;
  ZxLog *log;
  ZxTrace *trace; /* not written yet; NULL: there is none */
  ZbText memory;  /* what is said of it */
  ZbText plan_text;
  ZxEpochs epochs;
  double began, peak;
  ZxPeaks own;       /* of this rank, while all are busy */
  int64_t timed;     /* the first step that the table of times has */
  ZxStepTimes times; /* on rank 0 */
  const char *command;
  ZxFacts facts; /* of what checkpoints are of */
  /* The checkpoint that the run goes on from, or NULL; the steps made before it. */
  const char *from;
  ZxManifest *manifest;
  int64_t before;
  ZxSaves saves;
  ZxHealth health;
  ZxStop stop;
  int stopping; /* why all ranks stop after this step (zx_stop_why); 0: they go on */
  int failed;   /* the code with which it ends if it does not go on */
} Run;

/* A mistake that every rank sees alike. */
static bool same_everywhere(Run *r, const ZbErr *err) {
  if (r->rank == 0)
    fprintf(stderr, "zrun: error: %s\n%s%s%s", err->text, *err->help ? "  help: " : "", err->help,
            *err->help ? "\n" : "");
  return false;
}

/* The lowest rank for which `mine` is true, on all ranks; -1: none. */
static int lowest(Run *r, bool mine) { return (int)zx_lowest(r->c, mine ? r->rank : -1); }

/* One that some ranks may have and others not: the lowest rank that knows it says it; nobody goes on. */
static bool agree(Run *r, bool ok, const ZbErr *err) {
  bool mine = lowest(r, !ok && *err->text) == r->rank;
  if (mine) zx_say(r->rank, "error: %s%s%s", err->text, *err->help ? "; " : "", err->help);
  return zx_agree(r->c, ok);
}

static void print_diags(Run *r) {
  ZbText t = {0};
  zl_print_text(r->diags, &t);
  if (t.s && r->rank) fprintf(stderr, "[rank %d] ", r->rank);
  if (t.s) fputs(t.s, stderr);
  zb_text_free(&t);
}

/* As `agree`, for source texts: the lowest rank that is not content prints what it has to say of them. */
static bool agree_diags(Run *r, bool ok) {
  int first = lowest(r, !ok);
  if (first == r->rank) print_diags(r);
  return first < 0;
}

/* ---- whether ranks were started alike ---- */
/* `auto` is another device where a GPU or its driver is missing; those ranks say so. */
static bool same_options(Run *r) {
  ZxFacts f = {.a = r->a};
  zx_option_facts(&f, &r->o);
  zx_module_facts(&f, r->o.device);
  if (zx_same_or_say(r->c, &f)) return true;
  if (*r->o.device_note.text) zx_say(r->rank, "note: computing on the CPU, %s", r->o.device_note.text);
  return false;
}

/* Ranks whose CPUs or libraries are others round other sums otherwise. That is no mistake, but should be
 * known. */
static void note_means(Run *r) {
  ZxFacts f = {.a = r->a};
  ZbText t = {0};
  zx_fact(&f, ZX_MEANS, "device", "%s", r->o.device->describe(&r->env));
  if (!zx_same(r->c, &f, &t) && r->rank == 0)
    printf("note: sums will be rounded differently: %s", t.s ? t.s : "");
  zb_text_free(&t);
}

/* ---- files and plans ---- */
static bool read_recipe(Run *r, ZbErr *err) {
  const char *name;
  r->sources = zl_sources_new(r->a);
  r->diags = zl_diags_new(r->a, r->sources);
  ZlOptions lo = {r->o.include, r->o.ninclude};
  ZlProgram *p = zl_load_named(r->a, r->sources, r->diags, r->o.recipe, &lo, &name);
  if (p) r->recipe = zx_recipe_for(p, r->diags, r->a, name, r->c->t->size(r->c), err);
  if (r->o.cluster && p && (p = zl_load_named(r->a, r->sources, r->diags, r->o.cluster, &lo, &name)))
    r->cluster = zl_cluster(p, r->diags, name);
  return (r->recipe || *err->text) && (r->cluster || !r->o.cluster) && !zl_errors(r->diags);
}

static bool read_mix(Run *r, const char *text, ZxFactKind kind, ZxMix **data, ZxFacts *f, ZbText *note) {
  ZbErr err = {0};
  if (!text) return true; /* for no steps, or no evaluation */
  *data = zx_mix_open(text, &err);
  bool held_out = kind == ZX_EVAL_DATA || r->o.evaluates;
  bool ok = *data && (!held_out || zx_mix_files(*data) == 1 ||
                      zb_fail(&err, "evaluate on one after the other", "%s: an evaluation is of one file",
                              zb_show(text)));
  return agree(r, ok, &err) && agree(r, zx_data_facts(f, kind, r->c, *data, note, &err), &err);
}

static bool read_data(Run *r, ZxFacts *f, ZbText *note) {
  return read_mix(r, r->o.data, ZX_DATA, &r->data, f, note) &&
         read_mix(r, r->o.eval, ZX_EVAL_DATA, &r->eval_data, f, note);
}

/* A safetensors file, a checkpoint's folder, or one of another program's weights. */
static bool read_init(Run *r, ZxFacts *f, ZbText *note) {
  ZbErr err = {0};
  struct stat st;
  bool folder = stat(r->o.init, &st) == 0 && S_ISDIR(st.st_mode);
  if (!r->o.names && !zx_agree(r->c, !folder)) {
    const char **files;
    uint32_t n;
    r->manifest = zx_manifest_read(r->a, r->o.init, &err);
    if (!r->manifest && zx_shards_list(r->a, r->o.init, &files, &n, NULL))
      snprintf(err.help, sizeof err.help, "if it holds another program's weights, give their --names, too");
    if (r->manifest) zx_fact(f, ZX_INIT, "checkpoint's checksum", "%016" PRIx64, r->manifest->checksum);
    return agree(r, r->manifest, &err);
  }
  return agree(r, zx_init_facts(f, r->c, r->o.init, note, &err), &err);
}

static bool read_files(Run *r) {
  ZbErr err = {0};
  ZbText note = {0};
  ZxFacts f = {.a = r->a};
  r->graph = zg_read_file(r->a, r->o.graph, &err);
  if (!agree(r, r->graph, &err) || !agree_diags(r, read_recipe(r, &err)) || !agree(r, r->recipe, &err))
    return false;
  ZxMap names;
  if (!agree(r, zx_map_open(&names, r->a, r->graph, r->o.names, &err), &err)) return false;
  zx_graph_facts(&f, r->graph);
  zx_recipe_facts(&f, r->recipe);
  if (r->cluster) zx_cluster_facts(&f, r->cluster);
  bool ok = r->o.dry_run || read_data(r, &f, &note);
  if (ok) ok = agree(r, zx_saves_find(r->a, r->c, &r->o, &r->from, &r->manifest, &err), &err);
  if (ok && r->from) zx_fact(&f, ZX_INIT, "checkpoint's checksum", "%016" PRIx64, r->manifest->checksum);
  if (ok && r->o.init && !r->from && !r->o.dry_run) ok = read_init(r, &f, &note);
  if (ok && note.s) fputs(note.s, stdout);
  zb_text_free(&note);
  zx_fact(&f, ZX_OPTIONS, "--seed", "%" PRIu64, r->o.seed);
  zx_fact(&f, ZX_OPTIONS, "--order", "%s", r->o.order == ZX_ORDER_SEQUENTIAL ? "sequential" : "shuffled");
  r->facts = f;
  return ok && zx_same_or_say(r->c, &f);
}

/* Its warnings have been heard. */
static bool make_eval_plan(Run *r, ZpOptions po) {
  ZxFacts f = {.a = r->a};
  po.forward_only = true;
  po.beside = r->plan;
  po.checkpoints = false;
  r->diags = zl_diags_new(r->a, r->sources);
  r->eval_plan = zp_plan(r->a, r->graph, r->recipe, r->diags, &po);
  if (!agree_diags(r, r->eval_plan)) return false;
  zx_plan_facts(&f, r->eval_plan);
  return zx_same_or_say(r->c, &f);
}

static bool make_plan(Run *r) {
  ZxFacts f = {.a = r->a};
  const ZxDeviceTable *d = r->o.device;
  ZpOptions po = {.scratch = d->scratch,
                  .threads = r->o.threads,
                  .cluster = r->cluster,
                  .supports = d->supports,
                  .pins = !d->host,
                  .checkpoints = r->o.ckpt != NULL,
                  .forward_only = r->o.evaluates,
                  .outputs = r->o.predict != NULL};
  r->plan = zp_plan(r->a, r->graph, r->recipe, r->diags, &po);
  if (!agree_diags(r, r->plan)) return false;
  if (r->rank == 0) print_diags(r); /* warnings */
  zx_plan_facts(&f, r->plan);
  return zx_same_or_say(r->c, &f) && (!r->o.eval || make_eval_plan(r, po));
}

static bool check_size(Run *r) {
  int n = r->c->t->size(r->c);
  if (n == r->plan->mesh.nranks) return true;
  ZbErr err = {0};
  const char *dims = "";
  for (uint32_t i = 0; i < r->recipe->nmesh; i++)
    dims = zb_printf(r->a, "%s%s%s = %" PRId64, dims, i ? ", " : "", r->recipe->mesh[i].name.s,
                     r->recipe->mesh[i].size);
  zb_fail(&err, "", "recipe %s is for %" PRId64 " rank%s (%s); mpirun started %d [Z0310]", r->recipe->name,
          r->plan->mesh.nranks, r->plan->mesh.nranks == 1 ? "" : "s", *dims ? dims : "no mesh", n);
  snprintf(err.help, sizeof err.help, "mpirun -np %" PRId64 " zrun ...", r->plan->mesh.nranks);
  return same_everywhere(r, &err);
}

/* The mesh's fast dims go inside nodes, whatever order the launcher dealt the ranks out in. */
static void place_ranks(Run *r) {
  ZbText t = {0};
  int *order = ZB_NEWN(r->a, int, r->plan->mesh.nranks);
  const int *node = r->c->t->nodes(r->c);
  bool other = zp_order_ranks(&r->plan->mesh, r->a, node, order);
  zp_show_nodes(&r->plan->mesh, r->a, node, order, &t);
  if (t.s && r->rank == 0 && !r->o.quiet) fputs(t.s, stdout);
  zb_text_free(&t);
  if (!other) return;
  r->c->t->reorder(r->c, order);
  r->rank = r->c->t->rank(r->c);
  zb_bug_rank(r->rank);
}

/* Samples that steps 1 to `step` take. */
static uint64_t taken(const Run *r, int64_t step) { return (uint64_t)zx_engine_samples(r->engine, step); }

static void say(ZbText *t) {
  if (t->s) fputs(t->s, stdout);
  zb_text_free(t);
}

/* What is evaluated; while training, what of the arena that takes, which is free between steps. */
static void tell_eval(const Run *r, ZbText *out) {
  char text[24], more[24];
  if (!r->eval.engine) return;
  zx_eval_tell(&r->eval, r->o.eval ? r->o.eval : r->o.data, out);
  for (uint32_t s = 0; r->eval_plan && s < r->eval_plan->nstages; s++) {
    const ZpLedger *l = &r->eval_plan->stages[s].ledger;
    uint64_t arena = r->plan->stages[s].ledger.total[ZP_DEVICE], all = l->total[ZP_DEVICE];
    zb_text_add(out, "stage %u: evaluation takes %s of the arena beside parameters", s,
                zb_bytes(text, all - l->bytes[ZP_L_PARAMS] - l->bytes[ZP_L_TRAINING]));
    if (all > arena) zb_text_add(out, ", which is %s larger for it", zb_bytes(more, all - arena));
    zb_text_add(out, "\n");
  }
}

static void introduce(Run *r) {
  if (r->rank) return;
  if (*r->o.device_note.text) printf("note: computing on the CPU, %s\n", r->o.device_note.text);
  if (r->o.quiet) return;
  const ZpPlan *p = r->plan;
  char text[24];
  printf("model %s, %.4g M parameters; recipe %s: %" PRId64 " ranks, %u stage%s, %" PRId64
         " micro-batches; %s\n",
         r->graph->model, p->params / 1e6, r->recipe->name, p->mesh.nranks, p->nstages,
         p->nstages > 1 ? "s" : "", p->nmicro, r->o.device->describe(&r->env));
  for (uint32_t s = 0; s < p->nstages; s++)
    printf("stage %u: arena %s a rank, %u part%s\n", s, zb_bytes(text, p->stages[s].ledger.total[ZP_DEVICE]),
           p->stages[s].ninsts, p->stages[s].ninsts > 1 ? "s" : "");
  ZbText t = {0};
  tell_eval(r, &t);
  zx_engine_tell(r->engine, &t);
  if (r->memory.s) zb_text_put(&t, r->memory.s, r->memory.len);
  if (r->o.steps && !r->o.evaluates) zx_epochs_begin(&r->epochs, r->o.steps, taken(r, r->o.steps), &t);
  say(&t);
  fflush(stdout);
}

static ZxRate rate_of(const ZlRecipe *r) {
  const ZlKw *k = r->optimizer.kws;
  uint32_t n = r->optimizer.n;
  const char *anneal = zl_kw(k, n, "anneal")->word;
  return (ZxRate){.lr = zl_kw(k, n, "lr")->num,
                  .warmup = (int64_t)zl_kw(k, n, "warmup")->num,
                  .until = (int64_t)zl_kw(k, n, "until")->num,
                  .final = zl_kw(k, n, "final")->num,
                  .anneal = !strcmp(anneal, "cosine")   ? ZX_COSINE
                            : !strcmp(anneal, "linear") ? ZX_LINEAR
                                                        : ZX_CONSTANT};
}

/* FLOP/s of all ranks' products, measured at once: ranks that share cores share their peak. */
static double measure_peak(Run *r) {
  r->c->t->barrier(r->c);
  double peak = r->own.flops = r->o.device->measure_flops(&r->env, (ZkElem)r->plan->compute, 40);
  r->c->t->wait(r->c, r->c->t->all_reduce(r->c, 0, &peak, 1, ZX_F64, ZX_SUM));
  return peak;
}

/* The first step touches all memory for the first time: where others follow, the table of times has those. */
static void begin_times(Run *r) {
  r->timed = r->before + 1;
  if (!r->o.times || r->o.steps < r->before + 3) return;
  r->c->t->barrier(r->c);
  if (r->o.device->measure_copy) r->own.bytes = r->o.device->measure_copy(&r->env, 40);
  zx_engine_count_anew(r->engine, &r->own);
  r->timed = r->before + 2;
}

/* Stages of which metrics tell apart. */
enum { MAX_CLASSES = 64 };
static uint32_t classes(const Run *r) {
  return r->plan->nstages < MAX_CLASSES ? r->plan->nstages : MAX_CLASSES;
}

/* What differs between ranks, of the whole step and of each stage: means, and the most of any rank. What one
 * rank knows and all must do alike comes with it. */
static void gather(Run *r, ZxStep *s, ZxMetrics *m, ZxClassMetrics *c, double saves[ZX_SAVES_FLAGS]) {
  enum { MOST = MAX_CLASSES, WAIT = 2 * MOST, LOST, STOP, SAVES, TOPS = SAVES + ZX_SAVES_FLAGS };
  const ZpPlan *p = r->plan;
  double sum[WAIT + 1] = {0}, top[TOPS] = {0};
  uint32_t n = classes(r), mine = p->mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->mesh, r->rank, p->mesh.pipe);
  double ranks = (double)p->mesh.nranks, each = ranks / p->nstages;
  bool known = s->wait_ms >= 0;
  if (mine < n) sum[mine] = s->compute_ms, sum[MOST + mine] = s->wait_ms;
  if (mine < n) top[mine] = (double)s->used_bytes, top[MOST + mine] = s->wait_ms;
  sum[WAIT] = top[WAIT] = s->wait_ms;
  top[LOST] = s->lost;
  top[STOP] = zx_stop_wanted(&r->stop);
  zx_saves_flags(&r->saves, top + SAVES);
  ZxRequest one = r->c->t->all_reduce(r->c, 0, sum, sizeof sum / sizeof *sum, ZX_F64, ZX_SUM);
  ZxRequest two = r->c->t->all_reduce(r->c, 0, top, sizeof top / sizeof *top, ZX_F64, ZX_MAX);
  r->c->t->wait(r->c, one);
  r->c->t->wait(r->c, two);
  m->wait_ms = known ? sum[WAIT] / ranks : -1;
  m->wait_max_ms = known ? top[WAIT] : -1;
  s->lost = top[LOST] > 0;
  r->stopping = (int)top[STOP];
  memcpy(saves, top + SAVES, ZX_SAVES_FLAGS * sizeof *saves);
  for (uint32_t i = 0; i < n; i++)
    c[i] = (ZxClassMetrics){.stage = (int)i,
                            .planned_bytes = p->stages[i].ledger.total[ZP_DEVICE],
                            .used_bytes = (uint64_t)top[i],
                            .compute_ms = known ? sum[i] / each : -1,
                            .wait_ms = known ? sum[MOST + i] / each : -1,
                            .wait_max_ms = known ? top[MOST + i] : -1};
}

/* All ranks see the same, so all leave together, or none. What a run that ends here has come to is not
 * saved. */
static bool sound(Run *r, int64_t step, const ZxStep *s) {
  ZbErr err = {0};
  ZbText note = {0};
  bool ok = zx_health_step(&r->health, r->engine, step, s, r->saves.good, &note, &err);
  if (note.s && r->rank == 0) printf("note: %s\n", note.s);
  zb_text_free(&note);
  if (ok) return true;
  r->failed = ZX_EXIT_MISTAKE;
  return same_everywhere(r, &err);
}

static bool go_on(Run *r, int64_t step, const ZxStep *s, const double saves[ZX_SAVES_FLAGS]) {
  if (!sound(r, step, s) || !zx_saves_step(&r->saves, step, saves)) return false;
  if (r->saves.seconds > 0) zx_stop_saved(&r->stop, r->saves.seconds);
  return true;
}

/* The others wait for what this rank cannot do: it ends them all. */
static _Noreturn void give_up(Run *r, int64_t step, const ZbErr *err) {
  zx_die(r->c, "step %" PRId64 ": %s%s%s", step, err->text, *err->help ? "; " : "", err->help);
}

/* While nothing is printed: a step, an evaluation. */
static void draw(Run *r) {
  if (!r->log) return;
  zx_stop_before_output();
  zx_log_draw(r->log);
}

static bool one_step(Run *r, int64_t step, const ZxRate *rate) {
  ZbErr err = {0};
  ZxStep s;
  draw(r);
  double from = zb_now(), lr = zx_rate(rate, step);
  if (!zx_engine_step(r->engine, step, lr, &s, &err)) give_up(r, step, &err);
  double ms = 1e3 * (zb_now() - from);
  if (s.used_bytes != zx_engine_bytes(r->engine))
    ZB_BUG("rank %d planned %" PRIu64 " bytes and used %" PRIu64, r->rank, zx_engine_bytes(r->engine),
           s.used_bytes);
  double tokens = zx_tokens_per_step(r->plan), flops = r->plan->model_flops;
  ZxMetrics m = {.step = step,
                 .steps = r->o.steps,
                 .loss = s.loss,
                 .grad_norm = s.grad_norm,
                 .lr = lr,
                 .tokens = tokens,
                 .step_ms = ms,
                 .tokens_per_s = tokens / ms * 1e3,
                 .flops = flops,
                 .peak_share = r->peak > 0 ? flops / ms * 1e3 / r->peak : -1,
                 .planned_bytes = zx_engine_bytes(r->engine),
                 .used_bytes = s.used_bytes,
                 .epochs = zx_epochs_so_far(&r->epochs, taken(r, step)),
                 .nepochs = r->epochs.n};
  ZxClassMetrics c[MAX_CLASSES];
  double saves[ZX_SAVES_FLAGS];
  zx_stop_step(&r->stop, ms * 1e-3);
  gather(r, &s, &m, c, saves);
  zx_log_erase(r->log);
  m.bubble = ms > 0 && m.wait_ms >= 0 ? m.wait_ms / ms : -1;
  if (r->rank) return go_on(r, step, &s, saves);
  r->times.last = step;
  r->times.ms[step % ZX_STEPS_KEPT] = ms;
  if (step == r->before + 1 && !r->o.quiet)
    printf("first step %.0f ms after the start\n", 1e3 * (zb_now() - r->began));
  zx_stop_before_output();
  if (!zx_log_step(r->log, &m, c, (int)classes(r), &err)) give_up(r, step, &err);
  ZbText note = {0};
  zx_epochs_note(&r->epochs, step, taken(r, step - 1), taken(r, step), &note);
  say(&note);
  return go_on(r, step, &s, saves);
}

static void conclude(Run *r) {
  char text[24];
  ZbErr err = {0};
  if (r->rank) return;
  if (!zx_log_end(r->log, &err)) give_up(r, r->times.last, &err);
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
  zx_epochs_end(&r->epochs, taken(r, r->times.last), &epochs);
  say(&epochs);
  zx_report_speed(&r->times, r->plan, r->peak);
  if (r->o.times) zx_report_times(r->engine, r->plan, &r->own, r->timed, r->times.last);
}

static bool save(Run *r) {
  ZbErr err = {0};
  return !r->o.save || agree(r, zx_engine_save(r->engine, &err), &err);
}

/* ---- evaluations ---- */
static bool open_eval(Run *r) {
  ZbErr err = {0};
  const ZpPlan *p = r->eval_plan ? r->eval_plan : r->plan;
  ZxEngineOptions eo = {.data = r->eval_data, .order = ZX_ORDER_SEQUENTIAL};
  if (!r->o.eval && !r->o.evaluates) return true;
  if (r->o.eval) {
    r->eval_engine = zx_engine_beside(r->engine, &eo, &err);
    if (!agree(r, r->eval_engine, &err)) return false;
  }
  ZxEngine *e = r->eval_engine ? r->eval_engine : r->engine;
  const char *data = r->o.eval ? r->o.eval : r->o.data;
  if (!agree(r, zx_eval_open(&r->eval, e, p, data, r->o.eval_batches, &err), &err)) return false;
  if (!r->o.predict) return true;
  r->predict = zx_predict_open(e, r->o.predict, (uint64_t)(r->eval.batches * p->global_batch), &err);
  return agree(r, r->predict, &err);
}

/* `steps` 0: nothing is trained. */
static void evaluate(Run *r, int64_t step, int64_t steps) {
  ZbErr err = {0};
  ZxEvalMetrics m;
  draw(r);
  bool ok = zx_eval_run(&r->eval, step, steps, &m, &err);
  zx_log_erase(r->log);
  zx_stop_before_output();
  if (!ok || (!r->rank && !zx_log_eval(r->log, &m, &err)))
    zx_die(r->c, "evaluation: %s%s%s", err.text, *err.help ? "; " : "", err.help);
  if (r->saves.c && m.best_step == step) zx_checkpoints_best(r->saves.c, &(ZxBest){r->o.eval, m.best, step});
}

/* Of what nothing is trained with: the data are to blame, or the weights. */
static bool evaluate_once(Run *r) {
  evaluate(r, 0, 0);
  ZbErr err = {0};
  ZxPredict *predict = r->predict;
  r->predict = NULL;
  if (predict && !agree(r, zx_predict_close(predict, &err), &err)) return false;
  return r->eval.best_step >= 0 ||
         (zb_fail(&err, "look at the targets, and at the weights",
                  "the loss of %s is not finite, or nothing in it is known", zb_show(r->o.data)),
          same_everywhere(r, &err));
}

/* After which steps. */
static bool evaluates_after(const Run *r, int64_t step) {
  return r->o.eval && (step == r->o.steps || (r->o.eval_every && step % r->o.eval_every == 0));
}

/* ---- stops ---- */
static void say_stop(const Run *r, const char *when) {
  if (r->rank == 0 && !r->o.quiet)
    printf("stopped %s by %s; code %d: the same command may be given again\n", when, zx_stop_why(r->stopping),
           ZX_EXIT_AGAIN);
}

/* What asked while the run was being made ready. */
static bool stop_at_once(Run *r) {
  double most = zx_stop_wanted(&r->stop);
  r->c->t->wait(r->c, r->c->t->all_reduce(r->c, 0, &most, 1, ZX_F64, ZX_MAX));
  r->stopping = (int)most;
  if (r->stopping) say_stop(r, "before the first step");
  return r->stopping;
}

/* After its last step, or after `step`, which is the run's. */
static bool write_trace(Run *r, int64_t step) {
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
  return agree(r, ok, &err);
}

static bool stop(Run *r, int64_t step) {
  zx_stop_before_output();
  conclude(r);
  if (!write_trace(r, step) || !zx_saves_end(&r->saves, step) || !save(r)) return false;
  say_stop(r, zb_printf(r->a, "after step %" PRId64, step));
  return true;
}

static bool open_files(Run *r) {
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
  if (!agree(r, ok, &err)) return false;
  zx_say_over_line(lowest(r, r->rank == 0 && zx_log_on_screen(r->log)) == 0);
  return true;
}

/* ---- parameters, and where they are kept ---- */
static bool resume(Run *r) {
  ZbErr err = {0};
  ZxResumed read;
  ZbText note = {0};
  char all[24], most[24];
  double from = zb_now();
  bool ok = (zx_resume_fits(r->engine, r->from, r->manifest, true, &err) &&
             zx_saves_fit(r->manifest, r->from, &r->facts, &note, &err)) ||
            same_everywhere(r, &err);
  if (ok && note.s && r->rank == 0) fputs(note.s, stdout);
  zb_text_free(&note);
  r->failed = ZX_EXIT_MISTAKE;
  if (!ok || !agree(r, zx_engine_resume(r->engine, r->from, r->manifest, &read, &err), &err)) return false;
  r->failed = ZX_EXIT_FAILED;
  if (r->rank == 0 && !r->o.quiet)
    printf("resumed from %s: step %" PRId64 ", sample %" PRId64
           "; read %s, at most %s by one rank, in %.2f s\n",
           zb_show(r->from), r->manifest->step, r->manifest->samples, zb_bytes(all, read.bytes),
           zb_bytes(most, read.most), zb_now() - from);
  return true;
}

static bool load(Run *r) {
  ZbErr err = {0};
  ZxLoaded x;
  if (!agree(r, zx_engine_load(r->engine, r->o.init, r->o.names, r->o.init_partial, &x, &err), &err))
    return false;
  if (r->rank || !r->o.init_partial) return true;
  if (!r->o.quiet)
    printf("parameters: %" PRIu64 " from %s, %" PRIu64 " drawn from the seed%s%s\n", x.read,
           zb_show(r->o.init), x.drawn, x.drawn ? ": " : "", x.names);
  if (x.extra)
    printf("note: %s holds %" PRIu64 " tensor%s that model %s has not; the first is '%s'\n",
           zb_show(r->o.init), x.extra, x.extra == 1 ? "" : "s", r->graph->model, zb_show(x.first_extra));
  return true;
}

static bool take_params(Run *r) {
  ZbErr err = {0};
  ZxResumed read;
  r->failed = ZX_EXIT_MISTAKE;
  bool ok = zx_resume_fits(r->engine, r->o.init, r->manifest, false, &err) || same_everywhere(r, &err);
  if (!ok || !agree(r, zx_engine_take_params(r->engine, r->o.init, r->manifest, &read, &err), &err))
    return false;
  r->failed = ZX_EXIT_FAILED;
  if (r->rank == 0 && !r->o.quiet)
    printf("parameters of %s, of step %" PRId64 "\n", zb_show(r->o.init), r->manifest->step);
  return true;
}

static bool begin_parameters(Run *r) {
  ZbErr err = {0};
  if (r->from) return resume(r);
  if (r->o.init) return r->manifest ? take_params(r) : load(r);
  return agree(r, zx_engine_init(r->engine, &err), &err);
}

static bool open_checkpoints(Run *r) {
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
  return agree(r, r->saves.c, &err);
}

/* The first step of a run sets up much. */
static bool open_trace(Run *r) {
  ZbErr err = {0};
  const int64_t first = r->before + 1, last = r->o.steps;
  if (!r->o.trace) return true;
  if (!r->o.trace_to) r->o.trace_from = first < last ? first + 1 : first, r->o.trace_to = r->o.trace_from + 1;
  if (r->o.trace_from < first || r->o.trace_from > last) {
    zb_fail(&err, "--trace-steps names steps that the run makes",
            "--trace: step %" PRId64 " is none of this run, which makes %" PRId64 " to %" PRId64,
            r->o.trace_from, first, last);
    return same_everywhere(r, &err);
  }
  if (r->o.trace_to > last) r->o.trace_to = last;
  r->trace = zx_trace_open(r->c, r->o.trace, &err);
  return agree(r, r->trace, &err);
}

/* Everything up to the first step. */
static bool start(Run *r) {
  ZbErr err = {0};
  r->before = r->from ? r->manifest->step : 0;
  if (!open_files(r) || !open_trace(r)) return false;
  r->env = (ZkEnv){.pool = zk_pool_new(r->o.threads), .seed = r->o.seed};
  r->opened = r->env.pool ? r->o.device->open(&r->env, r->c->t->node_rank(r->c), &err)
                          : zb_fail(&err, "raise the limit (ulimit -u, ulimit -v)",
                                    "%d threads cannot be started", r->o.threads);
  if (!agree(r, r->opened, &err)) return false;
  note_means(r);
  ZxEngineOptions eo = {.device = r->o.device,
                        .env = &r->env,
                        .seed = r->o.seed,
                        .data = r->data,
                        .order = r->o.evaluates ? ZX_ORDER_SEQUENTIAL : r->o.order,
                        .times = r->o.times,
                        .trace_from = r->o.trace_from,
                        .trace_to = r->o.trace_to,
                        .also = r->eval_plan};
  r->engine = zx_engine_new(r->a, r->plan, r->c, &eo, &err);
  if (!agree(r, r->engine, &err) || !open_eval(r)) return false;
  r->epochs = zx_epochs_new(r->a, r->data, zx_sample_values(r->plan), r->plan->global_batch);
  if (!agree(r, zx_check_memory(r->c, zx_engine_untouched(r->engine), &r->memory, &err), &err)) return false;
  if (!begin_parameters(r) || !open_checkpoints(r)) return false;
  if (r->o.save && !agree(r, zx_engine_reserve(r->engine, r->o.save, &err), &err)) return false;
  introduce(r);
  return agree(r, zx_watch_open(r->c, r->o.hang_after, ZX_EXIT_HANGS, &err), &err);
}

static bool train(Run *r) {
  if (stop_at_once(r)) return true;
  ZxRate rate = rate_of(r->recipe);
  for (int64_t step = r->before + 1; step <= r->o.steps; step++) {
    if (!one_step(r, step, &rate)) return false;
    if (r->stopping && step < r->o.steps) return stop(r, step);
    if (step == r->before + 1) {
      r->peak = measure_peak(r); /* not before: the first step should come soon */
      begin_times(r);
      zx_watch_begin(); /* the first step sets up much, and so does measuring */
    }
    if (step == r->o.trace_to && !write_trace(r, step)) return false;
    if (evaluates_after(r, step)) evaluate(r, step, r->o.steps);
  }
  r->stopping = 0; /* there is nothing to come again for */
  conclude(r);
  return zx_saves_end(&r->saves, r->before < r->o.steps ? r->o.steps : r->before) && save(r);
}

static bool dry_run(Run *r) {
  ZbText t = {0};
  zp_show(r->plan, &t);
  if (r->eval_plan) {
    zb_text_add(&t, "\nevaluation, in the same arena:\n");
    zp_show(r->eval_plan, &t);
  }
  if (r->rank == 0 && t.s) fputs(t.s, stdout);
  zb_text_free(&t);
  return true;
}

/* Nothing of the options has been looked at before: another build may know others. */
static bool same_program(Run *r, bool help) {
  ZxFacts f = {.a = r->a};
  zx_build_facts(&f);
  zx_fact(&f, ZX_OPTIONS, "--help", "%s", help ? "yes" : "no");
  return zx_same_or_say(r->c, &f);
}

/* As zx_parse_options, on all ranks: if it is wrong on some, the lowest of them says what. */
static bool parse_all(Run *r, int argc, char **argv) {
  int first = lowest(r, !zx_parse_options(argc, argv, &r->o, NULL));
  ZxOptions again;
  if (first == r->rank)
    zx_parse_options(argc, argv, &again, r->rank ? zb_printf(r->a, "[rank %d] zrun", r->rank) : "zrun");
  return first < 0;
}

static const char *command_line(ZbArena *a, int argc, char **argv) {
  const char *text = "zrun";
  for (int i = 1; i < argc; i++) text = zb_printf(a, "%s %s", text, zb_show(argv[i]));
  return text;
}

static int run(Run *r, int argc, char **argv) {
  bool help = zx_asks_help(argc, argv);
  if (!same_program(r, help)) return ZX_EXIT_MISTAKE;
  if (help) return fputs(r->rank ? "" : zx_usage, stdout), ZX_EXIT_DONE;
  r->command = command_line(r->a, argc, argv);
  if (!parse_all(r, argc, argv)) return ZX_EXIT_MISTAKE;
  if (!same_options(r) || !read_files(r) || !make_plan(r) || !check_size(r)) return ZX_EXIT_MISTAKE;
  place_ranks(r);
  r->health.on_nan = r->o.on_nan;
  r->stop = zx_stop_new(r->began, r->o.time_limit, r->o.save || r->o.ckpt);
  bool ok = r->o.dry_run ? dry_run(r) : start(r) && (r->o.evaluates ? evaluate_once(r) : train(r));
  return !ok ? r->failed : r->stopping ? ZX_EXIT_AGAIN : ZX_EXIT_DONE;
}

int main(int argc, char **argv) {
  ZbErr err = {0};
  ZxLaunch launch = zx_launch();
  bool alone = launch.rank < 0 ||
               launch.size == 1; /* else others would wait for ever for one that leaves before MPI */
  if (!alone) zb_bug_rank(launch.rank);
  if (alone && zx_asks_help(argc, argv)) return fputs(zx_usage, stdout), ZX_EXIT_DONE;
  Run r = {.began = zb_now(), .a = zb_arena_new(), .failed = ZX_EXIT_FAILED};
  zb_begin();
  r.c = zx_comm_mpi(&argc, &argv, &err);
  if (!r.c) {
    if (alone) fprintf(stderr, "zrun: error: %s\n  help: %s\n", err.text, err.help);
    else zx_say(launch.rank, "error: %s; %s", err.text, err.help);
    return ZX_EXIT_FAILED;
  }
  r.rank = r.c->t->rank(r.c);
  zx_stop_on_signals();
  int code = run(&r, argc, argv);
  zx_log_close(r.log);
  zx_trace_close(r.trace);
  zx_checkpoints_close(r.saves.c);
  zx_predict_abandon(r.predict);
  zx_engine_free(r.eval_engine);
  zx_engine_free(r.engine);
  if (r.opened) r.o.device->close(&r.env);
  zk_pool_free(r.env.pool);
  zx_mix_close(r.data);
  zx_mix_close(r.eval_data);
  zb_text_free(&r.memory);
  zb_text_free(&r.plan_text);
  fflush(stdout);
  r.c->t->free(r.c);
  zx_watch_close(); /* not before: MPI waits for all ranks at its end */
  zb_arena_free(r.a);
  return code;
}
