/* zrun: trains a stage graph on the ranks that mpirun started. Every rank reads the same files and makes the same plan,
 * and all make sure of that before they go on (same.h); what is wrong with them is wrong everywhere, so rank 0 says it
 * and all leave in order. What goes wrong on one rank alone is said there, and the job is aborted. */
#include "runtime/exec/device/memory.h"
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/facts.h"
#include "runtime/exec/log.h"
#include "runtime/exec/state/state.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *graph, *recipe, *cluster, *data, *init, *save, *log;
  const char *include[16];
  uint32_t ninclude;
  int64_t steps;
  uint64_t seed;
  int threads;
  const ZxDeviceTable *device;
  ZbErr device_note; /* `auto`: why it is not one whose driver is there */
  ZxOrder order;
  bool dry_run, times;
} Options;

static const char usage[] =
    "usage: mpirun -np N zrun train GRAPH.zsg --recipe FILE:NAME --data FILE.bin --steps K [options]\n"
    "  --recipe FILE:NAME   how to spread the model over the ranks, and how to train it\n"
    "  --data FILE          a token or record file made by zdata\n"
    "  --steps K            optimizer steps to make; 0: none, which with --save writes the initial weights and needs no data\n"
    "  --seed S             of initial values, dropout and the order of samples (default 1)\n"
    "  --order WORD         shuffled (default) or sequential\n"
    "  --init FILE          start from the weights of a safetensors file\n"
    "  --save FILE          write the weights to a safetensors file at the end; one that exists is replaced then (if it is\n"
    "                       such a file), and room for it is taken at the start, in a folder that all nodes share\n"
    "  --log DIR            write metrics.jsonl there; that of an earlier run becomes metrics.jsonl.1, .2, ...\n"
    "  --threads T          threads of each rank (default 1)\n"
    "  --device WORD        where to compute: cpu, cuda, or auto, the fastest that is there (default auto)\n"
    "  --cluster FILE:NAME  check the plan against a cluster's memory\n"
    "  -I DIR               where imported recipe files are searched too\n"
    "  --times              print the time by operation at the end, and what it reaches of its bound\n"
    "                       (a GPU is waited for after every call, so such a run is slower)\n"
    "  --dry-run            make and show the plan, and stop\n";

static bool number(const char *text, int64_t least, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || *end || errno || n < least) return false;
  *out = n;
  return true;
}

/* False if they are wrong; as `who` it says why, and NULL says nothing. What is added here is added to option_facts. */
static bool parse(int argc, char **argv, Options *o, const char *who) {
  enum { RECIPE = 256, DATA, STEPS, SEED, ORDER, INIT, SAVE, LOG, THREADS, DEVICE, CLUSTER, TIMES, DRY, HELP };
  static const struct option list[] = {
      {"recipe", 1, NULL, RECIPE}, {"data", 1, NULL, DATA},       {"steps", 1, NULL, STEPS},     {"seed", 1, NULL, SEED},
      {"order", 1, NULL, ORDER},   {"init", 1, NULL, INIT},       {"save", 1, NULL, SAVE},       {"log", 1, NULL, LOG},
      {"threads", 1, NULL, THREADS}, {"device", 1, NULL, DEVICE}, {"cluster", 1, NULL, CLUSTER}, {"times", 0, NULL, TIMES},
      {"dry-run", 0, NULL, DRY},   {"help", 0, NULL, HELP},       {NULL, 0, NULL, 0}};
  *o = (Options){.steps = -1, .seed = 1, .threads = 1};
  optind = 0;
  opterr = 0;
  int long_one = -1;
  for (int k; (k = getopt_long(argc, argv, ":I:h", list, &long_one)) != -1;) {
    int64_t n = 0;
    bool good = true;
    ZbErr err = {0};
    switch (k) {
    case RECIPE: o->recipe = optarg; break;
    case DATA: o->data = optarg; break;
    case STEPS: good = number(optarg, 0, &o->steps); break;
    case SEED: good = number(optarg, 0, &n), o->seed = (uint64_t)n; break;
    case ORDER:
      good = !strcmp(optarg, "shuffled") || !strcmp(optarg, "sequential");
      o->order = !strcmp(optarg, "sequential") ? ZX_ORDER_SEQUENTIAL : ZX_ORDER_SHUFFLED;
      break;
    case INIT: o->init = optarg; break;
    case SAVE: o->save = optarg; break;
    case LOG: o->log = optarg; break;
    case THREADS: good = number(optarg, 1, &n) && n <= 1024, o->threads = (int)n; break;
    case DEVICE:
      good = (o->device = zx_device(optarg, &err)) != NULL;
      o->device_note = err;
      break;
    case CLUSTER: o->cluster = optarg; break;
    case TIMES: o->times = true; break;
    case DRY: o->dry_run = true; break;
    case 'I':
      good = o->ninclude < 16;
      if (good) o->include[o->ninclude++] = optarg;
      break;
    default: /* help was asked for before */
      zb_option_failed(k, argv, list, &err);
      if (who) fprintf(stderr, "%s: %s%s%s\n", who, err.text, *err.help ? "; " : "", err.help);
      return false;
    }
    if (!good) {
      const char *name = k == 'I' ? "I" : list[long_one].name;
      if (who && k == 'I') fprintf(stderr, "%s: at most 16 folders with -I\n", who);
      else if (who && *err.text) fprintf(stderr, "%s: --%s: %s%s%s\n", who, name, err.text, *err.help ? "; " : "", err.help);
      else if (who) fprintf(stderr, "%s: wrong value `%s` for --%s; zrun --help lists what is meant\n", who, zb_show(optarg), name);
      return false;
    }
  }
  const char *missing = NULL;
  if (optind + 2 != argc || strcmp(argv[optind], "train")) missing = "train GRAPH.zsg";
  else if (!o->recipe) missing = "--recipe FILE:NAME";
  else if (!o->data && o->steps && !o->dry_run) missing = "--data FILE";
  else if (o->steps < 0 && !o->dry_run) missing = "--steps K";
  if (missing && who) fprintf(stderr, "%s: give %s; zrun --help lists all options\n", who, missing);
  if (missing) return false;
  if (!o->device) o->device = zx_device("auto", &o->device_note);
  o->graph = argv[optind + 1];
  return true;
}

enum { MS_KEPT = 1000 }; /* steps */

typedef struct {
  ZbArena *a;
  Options o;
  ZxComm *c;
  int rank;
  ZlSources *sources;
  ZlDiags *diags;
  ZgGraph *graph;
  const ZlRecipe *recipe;
  const ZlCluster *cluster;
  ZpPlan *plan;
  ZxData *data;
  ZkEnv env;
  bool opened; /* the device, in env */
  ZxEngine *engine;
  ZxLog *log;
  ZbText memory; /* what is said of it */
  double began, peak;
  ZxPeaks own;    /* of this rank, while all are busy */
  int64_t timed;  /* the first step that the table of times has */
  double ms[MS_KEPT]; /* of the last steps, on rank 0 */
} Run;

/* A mistake that every rank sees alike. */
static bool same_everywhere(Run *r, const ZbErr *err) {
  if (r->rank == 0) fprintf(stderr, "zrun: error: %s\n%s%s%s", err->text, *err->help ? "  help: " : "", err->help, *err->help ? "\n" : "");
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
/* Files to read are compared by what is in them, wherever they lie: nodes may have copies. Files to write are one for all
 * ranks. -I only says where to look. */
static void option_facts(ZxFacts *f, const Options *o) {
  static const char *const no_yes[] = {"no", "yes"};
  zx_fact(f, ZX_OPTIONS, "--device", "%s", o->device->name);
  zx_fact(f, ZX_OPTIONS, "--steps", "%" PRId64, o->steps);
  zx_fact(f, ZX_OPTIONS, "--seed", "%" PRIu64, o->seed);
  zx_fact(f, ZX_OPTIONS, "--order", "%s", o->order == ZX_ORDER_SEQUENTIAL ? "sequential" : "shuffled");
  zx_fact(f, ZX_OPTIONS, "--threads", "%d", o->threads);
  zx_fact(f, ZX_OPTIONS, "--times", "%s", no_yes[o->times]);
  zx_fact(f, ZX_OPTIONS, "--dry-run", "%s", no_yes[o->dry_run]);
  zx_fact(f, ZX_OPTIONS, "a file for --data", "%s", no_yes[o->data != NULL]);
  zx_fact(f, ZX_OPTIONS, "a file for --init", "%s", no_yes[o->init != NULL]);
  zx_fact(f, ZX_OPTIONS, "a --cluster", "%s", no_yes[o->cluster != NULL]);
  zx_fact(f, ZX_OPTIONS, "--save", "%s", o->save ? o->save : "none");
  zx_fact(f, ZX_OPTIONS, "--log", "%s", o->log ? o->log : "none");
}

/* `auto` is another device where a GPU or its driver is missing; those ranks say so. */
static bool same_options(Run *r) {
  ZxFacts f = {.a = r->a};
  option_facts(&f, &r->o);
  zx_module_facts(&f, r->o.device);
  if (zx_same_or_say(r->c, &f)) return true;
  if (*r->o.device_note.text) zx_say(r->rank, "note: computing on the CPU, %s", r->o.device_note.text);
  return false;
}

/* Ranks whose CPUs or libraries are others round other sums otherwise. That is no mistake, but should be known. */
static void note_means(Run *r) {
  ZxFacts f = {.a = r->a};
  ZbText t = {0};
  zx_fact(&f, ZX_MEANS, "device", "%s", r->o.device->describe(&r->env));
  if (!zx_same(r->c, &f, &t) && r->rank == 0) printf("note: sums will be rounded differently: %s", t.s ? t.s : "");
  zb_text_free(&t);
}

/* ---- files and plans ---- */
static bool read_recipe(Run *r) {
  const char *name;
  r->sources = zl_sources_new(r->a);
  r->diags = zl_diags_new(r->a, r->sources);
  ZlOptions lo = {r->o.include, r->o.ninclude};
  ZlProgram *p = zl_load_named(r->a, r->sources, r->diags, r->o.recipe, &lo, &name);
  if (p) r->recipe = zl_recipe(p, r->diags, name);
  if (r->recipe && r->o.cluster && (p = zl_load_named(r->a, r->sources, r->diags, r->o.cluster, &lo, &name)))
    r->cluster = zl_cluster(p, r->diags, name);
  return r->recipe && (r->cluster || !r->o.cluster) && !zl_errors(r->diags);
}

static bool read_data(Run *r, ZxFacts *f, ZbText *note) {
  ZbErr err = {0};
  if (!r->o.data) return true; /* for no steps */
  r->data = zx_data_open(r->o.data, &err);
  return agree(r, r->data, &err) && agree(r, zx_data_facts(f, r->c, r->data, r->o.data, note, &err), &err);
}

static bool read_files(Run *r) {
  ZbErr err = {0};
  ZbText note = {0};
  ZxFacts f = {.a = r->a};
  r->graph = zg_read_file(r->a, r->o.graph, &err);
  if (!agree(r, r->graph, &err) || !agree_diags(r, read_recipe(r))) return false;
  zx_graph_facts(&f, r->graph);
  zx_recipe_facts(&f, r->recipe);
  if (r->cluster) zx_cluster_facts(&f, r->cluster);
  bool ok = r->o.dry_run || read_data(r, &f, &note);
  if (ok && r->o.init && !r->o.dry_run) ok = agree(r, zx_init_facts(&f, r->c, r->o.init, &note, &err), &err);
  if (ok && note.s) fputs(note.s, stdout);
  zb_text_free(&note);
  return ok && zx_same_or_say(r->c, &f);
}

static bool make_plan(Run *r) {
  ZxFacts f = {.a = r->a};
  ZpOptions po = {r->o.device->scratch, r->o.threads, r->cluster, r->o.device->joins};
  r->plan = zp_plan(r->a, r->graph, r->recipe, r->diags, &po);
  if (!agree_diags(r, r->plan)) return false;
  if (r->rank == 0) print_diags(r); /* warnings */
  zx_plan_facts(&f, r->plan);
  return zx_same_or_say(r->c, &f);
}

static bool check_size(Run *r) {
  int n = r->c->t->size(r->c);
  if (n == r->plan->mesh.nranks) return true;
  ZbErr err = {0};
  const char *dims = "";
  for (uint32_t i = 0; i < r->recipe->nmesh; i++)
    dims = zb_printf(r->a, "%s%s%s = %" PRId64, dims, i ? ", " : "", r->recipe->mesh[i].name.s, r->recipe->mesh[i].size);
  zb_fail(&err, "", "recipe %s is for %" PRId64 " rank%s (%s); mpirun started %d [Z0310]", r->recipe->name, r->plan->mesh.nranks,
          r->plan->mesh.nranks == 1 ? "" : "s", *dims ? dims : "no mesh", n);
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
  if (t.s && r->rank == 0) fputs(t.s, stdout);
  zb_text_free(&t);
  if (!other) return;
  r->c->t->reorder(r->c, order);
  r->rank = r->c->t->rank(r->c);
  zb_bug_rank(r->rank);
}

static void introduce(Run *r) {
  if (r->rank) return;
  if (*r->o.device_note.text) printf("note: computing on the CPU, %s\n", r->o.device_note.text);
  const ZpPlan *p = r->plan;
  char text[24];
  printf("model %s, %.4g M parameters; recipe %s: %" PRId64 " ranks, %u stage%s, %" PRId64 " micro-batches; %s\n", r->graph->model,
         p->params / 1e6, r->recipe->name, p->mesh.nranks, p->nstages, p->nstages > 1 ? "s" : "", p->nmicro,
         r->o.device->describe(&r->env));
  for (uint32_t s = 0; s < p->nstages; s++)
    printf("stage %u: arena %s a rank, %u part%s\n", s, zb_bytes(text, p->stages[s].ledger.total), p->stages[s].ninsts,
           p->stages[s].ninsts > 1 ? "s" : "");
  ZbText t = {0};
  zx_engine_tell(r->engine, &t);
  if (t.s) fputs(t.s, stdout);
  if (r->memory.s) fputs(r->memory.s, stdout);
  zb_text_free(&t);
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
                  .anneal = !strcmp(anneal, "cosine") ? ZX_COSINE : !strcmp(anneal, "linear") ? ZX_LINEAR : ZX_CONSTANT};
}

/* FLOP/s of all ranks' products, measured at once: ranks that share cores share their peak. */
static double measure_peak(Run *r) {
  r->c->t->barrier(r->c);
  double peak = r->own.flops = r->o.device->peak(&r->env, (ZkElem)r->plan->compute, 40);
  r->c->t->wait(r->c, r->c->t->all_reduce(r->c, 0, &peak, 1, ZX_F64, ZX_SUM));
  return peak;
}

/* The first step touches all memory for the first time: where others follow, the table of times has those. */
static void begin_times(Run *r) {
  r->timed = 1;
  if (!r->o.times || r->o.steps < 3) return;
  r->c->t->barrier(r->c);
  if (r->o.device->copy_peak) r->own.bytes = r->o.device->copy_peak(&r->env, 40);
  zx_engine_count_anew(r->engine, &r->own);
  r->timed = 2;
}

static double tokens_per_sample(const Run *r) {
  uint32_t seq = zg_axis_find(r->graph, "seq");
  return seq == ZG_NONE || r->graph->axes[seq].size ? 1 : (double)r->plan->axis_size[seq];
}

/* Stages of which metrics tell apart. */
enum { MAX_CLASSES = 64 };
static uint32_t classes(const Run *r) { return r->plan->nstages < MAX_CLASSES ? r->plan->nstages : MAX_CLASSES; }

/* What differs between ranks, of the whole step and of each stage: means, and the most of any rank. */
static void gather(Run *r, ZxStep *s, ZxMetrics *m, ZxClassMetrics *c) {
  enum { MOST = MAX_CLASSES };
  const ZpPlan *p = r->plan;
  double sum[2 * MOST + 1] = {0}, top[2 * MOST + 2] = {0};
  uint32_t n = classes(r), mine = p->mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->mesh, r->rank, p->mesh.pipe);
  double ranks = (double)p->mesh.nranks, each = ranks / p->nstages;
  bool known = s->wait_ms >= 0;
  if (mine < n) sum[mine] = s->compute_ms, sum[MOST + mine] = s->wait_ms;
  if (mine < n) top[mine] = (double)s->used_bytes, top[MOST + mine] = s->wait_ms;
  sum[2 * MOST] = top[2 * MOST] = s->wait_ms;
  top[2 * MOST + 1] = s->lost;
  ZxRequest one = r->c->t->all_reduce(r->c, 0, sum, sizeof sum / sizeof *sum, ZX_F64, ZX_SUM);
  ZxRequest two = r->c->t->all_reduce(r->c, 0, top, sizeof top / sizeof *top, ZX_F64, ZX_MAX);
  r->c->t->wait(r->c, one);
  r->c->t->wait(r->c, two);
  m->wait_ms = known ? sum[2 * MOST] / ranks : -1;
  m->wait_max_ms = known ? top[2 * MOST] : -1;
  s->lost = top[2 * MOST + 1] > 0;
  for (uint32_t i = 0; i < n; i++)
    c[i] = (ZxClassMetrics){.stage = (int)i,
                            .planned_bytes = p->stages[i].ledger.total,
                            .used_bytes = (uint64_t)top[i],
                            .compute_ms = known ? sum[i] / each : -1,
                            .wait_ms = known ? sum[MOST + i] / each : -1,
                            .wait_max_ms = known ? top[MOST + i] : -1};
}

/* All ranks see the same, so all leave together. The weights are of no use any more and are not saved. */
static bool sound(Run *r, const ZxStep *s) {
  ZbErr err = {0};
  return zx_engine_sound(r->engine, s, &err) || same_everywhere(r, &err);
}

/* The others wait for what this rank cannot do: it ends them all. */
static _Noreturn void give_up(Run *r, int64_t step, const ZbErr *err) {
  zx_die(r->c, "step %" PRId64 ": %s%s%s", step, err->text, *err->help ? "; " : "", err->help);
}

static bool one_step(Run *r, int64_t step, const ZxRate *rate) {
  ZbErr err = {0};
  ZxStep s;
  double from = zb_now(), lr = zx_rate(rate, step);
  if (!zx_engine_step(r->engine, step, lr, &s, &err)) give_up(r, step, &err);
  double ms = 1e3 * (zb_now() - from);
  if (s.used_bytes != zx_engine_bytes(r->engine))
    ZB_BUG("rank %d planned %" PRIu64 " bytes and used %" PRIu64, r->rank, zx_engine_bytes(r->engine), s.used_bytes);
  double tokens = (double)r->plan->global_batch * tokens_per_sample(r), flops = r->plan->model_flops;
  ZxMetrics m = {.step = step, .steps = r->o.steps, .loss = s.loss, .grad_norm = s.grad_norm, .lr = lr, .tokens = tokens,
                 .step_ms = ms, .tokens_per_s = tokens / ms * 1e3, .flops = flops,
                 .peak_share = r->peak > 0 ? flops / ms * 1e3 / r->peak : -1,
                 .planned_bytes = zx_engine_bytes(r->engine), .used_bytes = s.used_bytes};
  ZxClassMetrics c[MAX_CLASSES];
  gather(r, &s, &m, c);
  m.bubble = ms > 0 && m.wait_ms >= 0 ? m.wait_ms / ms : -1;
  if (r->rank) return sound(r, &s);
  r->ms[step % MS_KEPT] = ms;
  if (step == 1) printf("first step %.0f ms after the start\n", 1e3 * (zb_now() - r->began));
  if (!zx_log_step(r->log, &m, c, (int)classes(r), &err)) give_up(r, step, &err);
  return sound(r, &s);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median step, of those kept, without the first, which touches all memory for the first time. */
static void summarize(Run *r) {
  if (r->rank) return;
  char text[24];
  if (!r->o.steps) {
    printf("no steps: the parameters are as they began\n");
    return;
  }
  printf("planned == used: %s on rank 0, and equal on every rank\n", zb_bytes(text, zx_engine_bytes(r->engine)));
  if (r->o.steps < 3) return;
  int64_t from = r->o.steps < MS_KEPT ? 2 : 0, n = r->o.steps < MS_KEPT ? r->o.steps - 1 : MS_KEPT;
  qsort(r->ms + from, (size_t)n, sizeof *r->ms, by_size);
  double ms = r->ms[from + n / 2], flops = r->plan->model_flops / ms * 1e3;
  printf("median step %.1f ms: %.0f tokens/s, %.1f GFLOP/s", ms, (double)r->plan->global_batch * tokens_per_sample(r) / ms * 1e3,
         flops / 1e9);
  if (r->peak > 0) printf(", %.1f %% of the %.1f GFLOP/s that products reach here", 100 * flops / r->peak, r->peak / 1e9);
  printf("\n");
}

/* "      95.1 GFLOP/s       3.2 GB/s   78 % of its bound (FLOPs)" */
static void print_work(double t, const ZxWork *w) {
  if (w->flops > 0) printf("  %10.1f GFLOP/s", w->flops / t / 1e9);
  else if (w->bytes > 0) printf("  %18s", "");
  if (w->bytes > 0) printf("  %8.1f GB/s", w->bytes / t / 1e9);
  if (w->bound > 0) printf("  %3.0f %% of its bound (%s)", 100 * w->bound / t, 2 * w->bound_by_flops > w->bound ? "FLOPs" : "bytes");
  printf("\n");
}

/* "  dot             backward  gpt2.zug:31        bf16[batch, seq, ffn]        0.812 ms x 480   12.1 %  ..." */
static void print_calls(Run *r, double sum) {
  ZxCallTime c[16];
  uint32_t n = zx_engine_calls(r->engine, c, 16);
  if (n) printf("of that the longest calls:\n");
  for (uint32_t i = 0; i < n; i++) {
    const char *op = zb_printf(r->a, "%s%s", zg_op_info[c[i].op].text, c[i].joined ? "+chain" : "");
    printf("  %-20s %-8s  %-18s %-28s %9.3f ms x %-5" PRIu64 " %5.1f %%", op, c[i].phase, zp_loc_text(r->plan, c[i].loc),
           zg_type_text(r->graph, r->a, c[i].type), 1e3 * c[i].seconds / (double)c[i].calls, c[i].calls, 100 * c[i].seconds / sum);
    print_work(c[i].seconds, &c[i].work);
  }
}

static void print_times(Run *r) {
  const double *t = zx_engine_times(r->engine);
  const ZxWork *w = zx_engine_work(r->engine);
  double sum = 0, bounded = 0, bound = 0;
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    sum += t[i];
    if (w[i].bound > 0) bounded += t[i], bound += w[i].bound;
  }
  if (r->rank || sum <= 0) return;
  printf("time by operation on rank 0 in steps %" PRId64 " to %" PRId64 " (waiting inside collectives is theirs):\n", r->timed,
         r->o.steps);
  for (int i = 0; i < ZG_OP_COUNT + 2; i++) {
    if (t[i] <= 0.001 * sum) continue;
    printf("  %-16s %8.3f s  %5.1f %%", i < ZG_OP_COUNT ? zg_op_info[i].text : i == ZG_OP_COUNT ? "optimizer" : "waiting", t[i],
           100 * t[i] / sum);
    print_work(t[i], &w[i]);
  }
  if (bounded > 0)
    printf("at the %.1f GFLOP/s of large products and the %.1f GB/s of large copies these take %.3f of %.3f s, %.0f %%\n",
           r->own.flops / 1e9, r->own.bytes / 1e9, bound, bounded, 100 * bound / bounded);
  print_calls(r, sum);
}

static bool open_files(Run *r) {
  ZbErr err = {0};
  bool ok = true;
  if (r->rank == 0) ok = (r->log = zx_log_open(r->o.log, &err)) != NULL;
  return agree(r, ok, &err);
}

static bool train(Run *r) {
  ZbErr err = {0};
  if (!open_files(r)) return false;
  r->env = (ZkEnv){.pool = zk_pool_new(r->o.threads), .seed = r->o.seed};
  r->opened = r->env.pool ? r->o.device->open(&r->env, r->c->t->node_rank(r->c), &err)
                          : zb_fail(&err, "raise the limit (ulimit -u, ulimit -v)", "%d threads cannot be started", r->o.threads);
  if (!agree(r, r->opened, &err)) return false;
  note_means(r);
  ZxEngineOptions eo = {r->o.device, &r->env, r->o.seed, r->data, r->o.order, r->o.times};
  r->engine = zx_engine_new(r->a, r->plan, r->c, &eo, &err);
  if (!agree(r, r->engine, &err)) return false;
  if (!agree(r, zx_check_memory(r->c, zx_engine_untouched(r->engine), &r->memory, &err), &err)) return false;
  if (!r->o.init) {
    if (!agree(r, zx_engine_init(r->engine, &err), &err)) return false;
  } else if (!agree(r, zx_engine_load(r->engine, r->o.init, &err), &err)) return false;
  if (r->o.save && !agree(r, zx_engine_reserve(r->engine, r->o.save, &err), &err)) return false;
  introduce(r);
  ZxRate rate = rate_of(r->recipe);
  for (int64_t step = 1; step <= r->o.steps; step++) {
    if (!one_step(r, step, &rate)) return false;
    if (step > 1) continue;
    r->peak = measure_peak(r); /* not before: the first step should come soon */
    begin_times(r);
  }
  summarize(r);
  if (r->o.times && r->o.steps) print_times(r);
  if (!r->o.save) return true;
  return agree(r, zx_engine_save(r->engine, &err), &err);
}

static bool dry_run(Run *r) {
  ZbText t = {0};
  zp_show(r->plan, &t);
  if (r->rank == 0 && t.s) fputs(t.s, stdout);
  zb_text_free(&t);
  return true;
}

/* Before any option is looked at, since help needs nothing of what the others do. */
static bool asks_help(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t n = strlen(argv[i]);
    if (!strncmp(argv[i], "-h", 2) || (n > 2 && !strncmp("--help", argv[i], n))) return true;
  }
  return false;
}

/* Nothing of the options has been looked at before: another build may know others. */
static bool same_program(Run *r, bool help) {
  ZxFacts f = {.a = r->a};
  zx_build_facts(&f);
  zx_fact(&f, ZX_OPTIONS, "--help", "%s", help ? "yes" : "no");
  return zx_same_or_say(r->c, &f);
}

/* As parse, on all ranks: if it is wrong on some, the lowest of them says what. */
static bool parse_all(Run *r, int argc, char **argv) {
  int first = lowest(r, !parse(argc, argv, &r->o, NULL));
  Options again;
  if (first == r->rank) parse(argc, argv, &again, r->rank ? zb_printf(r->a, "[rank %d] zrun", r->rank) : "zrun");
  return first < 0;
}

static int run(Run *r, int argc, char **argv) {
  bool help = asks_help(argc, argv);
  if (!same_program(r, help)) return 1;
  if (help) return fputs(r->rank ? "" : usage, stdout), 0;
  if (!parse_all(r, argc, argv)) return 2;
  if (!same_options(r) || !read_files(r) || !make_plan(r) || !check_size(r)) return 1;
  place_ranks(r);
  return (r->o.dry_run ? dry_run(r) : train(r)) ? 0 : 1;
}

int main(int argc, char **argv) {
  ZbErr err = {0};
  ZxLaunch launch = zx_launch();
  bool alone = launch.rank < 0 || launch.size == 1; /* else others would wait for ever for one that leaves before MPI */
  if (!alone) zb_bug_rank(launch.rank);
  if (alone && asks_help(argc, argv)) return fputs(usage, stdout), 0;
  Run r = {.began = zb_now(), .a = zb_arena_new()};
  zb_begin();
  r.c = zx_comm_mpi(&argc, &argv, &err);
  if (!r.c) {
    if (alone) fprintf(stderr, "zrun: error: %s\n  help: %s\n", err.text, err.help);
    else zx_say(launch.rank, "error: %s; %s", err.text, err.help);
    return 1;
  }
  r.rank = r.c->t->rank(r.c);
  int code = run(&r, argc, argv);
  zx_log_close(r.log);
  zx_engine_free(r.engine);
  if (r.opened) r.o.device->close(&r.env);
  zk_pool_free(r.env.pool);
  if (r.data) zx_data_close(r.data);
  zb_text_free(&r.memory);
  fflush(stdout);
  r.c->t->free(r.c);
  zb_arena_free(r.a);
  return code;
}
