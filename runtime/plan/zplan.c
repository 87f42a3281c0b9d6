/* zplan: what zrun would do, without MPI and without devices: for any number of ranks, on any machine. */
#include "base/options.h"
#include "kernels/devices.h"
#include "runtime/machine/machine.h"
#include "runtime/plan/output/page.h"
#include "runtime/plan/text.h"
#include "runtime/plan/search/search.h"
#include "runtime/plan/output/compare.h"
#include "runtime/plan/time/time.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
  uint32_t command;
  const char *graph, *recipe, *cluster, *trace, *run, *with, *out, *calls;
  ZbTexts include, sizes;
  int64_t batch, seq, ranks, keep; /* 0: not given */
  ZpSize bind[16];                 /* batch and seq, too */
  uint32_t nbind;
  int threads;
  const ZkDevice *device;
  bool ckpt, repeatable, eval, generate, exact, json, all;
  ZpGenerating generates;
  int64_t prompt; /* tokens; 0: half of the length */
  double latency; /* seconds; 0: not given */
  enum { IN_BF16, IN_F32 } precision;
  const char *weights[ZP_MOST_WEIGHTS]; /* of zl_packed_formats, or "none" */
  uint32_t nweights;
  int64_t group;
  enum { DIAG_TEXT, DIAG_JSON } diag;
} Options;

static void say(const ZbErr *err) {
  fprintf(stderr, "zplan: error: %s%s%s\n", err->text, *err->help ? "; " : "", err->help);
}

/* ---- options ---- */
enum { SHOW, EXPLAIN, PROGRAMS, CHECK, SIM, COMPARE, REPORT, SEARCH };
/* clang-format off */
static const ZbCommand commands[] = {
  [SHOW] = {"show", "GRAPH.zsg", 1, 1,
   "mesh, stages, memory ledger, schedule; with a cluster also which ranks are where, and what links carry"},
  [EXPLAIN] = {"explain", "GRAPH.zsg", 1, 1,
   "what ranks send each other: count, bytes, mesh dims, tensor, cause"},
  [PROGRAMS] = {"programs", "GRAPH.zsg", 1, 1,
   "every instruction of every stage; with --calls the calls within one"},
  [CHECK] = {"check", "GRAPH.zsg", 1, 1, "only make the plan and its proofs"},
  [SIM] = {"sim", "GRAPH.zsg", 1, 1, "predict the time of a step on the cluster, and show where it goes"},
  [COMPARE] = {"compare", "GRAPH.zsg", 1, 1,
   "compare the prediction with a run, by the trace that zrun --trace wrote"},
  [REPORT] = {"report", "GRAPH.zsg", 1, 1,
   "everything as one page for a browser, with drawings; or the timeline alone as a picture"},
  [SEARCH] = {"search", "GRAPH.zsg", 1, 1,
   "find the fastest recipes on the cluster; a recipe is completed where it says `?`"},
};

static bool take_device(void *options, const char *name, ZbErr *err) {
  ZbText t = {0};
  const ZkDevice *d = zk_devices;
  if ((((Options *)options)->device = zk_device(name))) return true;
  while (d->name) d++;
  while (d-- > zk_devices) zb_text_add(&t, "%s`%s`", t.len ? " or " : "", d->name);
  zb_fail(err, "", "there is no device `%s`: give %s", zb_show(name), t.s);
  zb_text_free(&t);
  return false;
}

/* "50ms", "0.2s" */
static bool take_latency(void *options, const char *text, ZbErr *err) {
  char *unit;
  double n = strtod(text, &unit), scale = !strcmp(unit, "ms") ? 1e-3 : !strcmp(unit, "s") ? 1 : 0;
  (void)err;
  ((Options *)options)->latency = n * scale;
  return *text >= '0' && *text <= '9' && n * scale > 0 && n * scale < 1e6;
}

static bool add_weights(Options *o, const char *format) {
  for (uint32_t i = 0; i < o->nweights; i++)
    if (!strcmp(o->weights[i], format)) return false;
  o->weights[o->nweights++] = format;
  return true;
}

/* Returns whether steps multiply by such weights in integers. */
static bool is_integer(const char *format) {
  char name[32];
  snprintf(name, sizeof name, "%s group 64", format);
  return zk_elem_info[zk_elem_named(name)].codes == ZK_CODES_INTEGER;
}

/* "int8,int4", "any" */
static bool take_weights(void *options, const char *text, ZbErr *err) {
  Options *o = options;
  (void)err;
  if (!strcmp(text, "any")) {
    add_weights(o, "none");
    for (int i = 0; zl_packed_formats[i]; i++)
      if (is_integer(zl_packed_formats[i])) add_weights(o, zl_packed_formats[i]);
    return true;
  }
  for (size_t n; n = strcspn(text, ","), true; text += n + 1) {
    const char *format = n == 4 && !strncmp(text, "none", n) ? "none" : NULL;
    for (int i = 0; zl_packed_formats[i]; i++)
      if (strlen(zl_packed_formats[i]) == n && !strncmp(text, zl_packed_formats[i], n)) format = zl_packed_formats[i];
    if (!format || !add_weights(o, format)) return false;
    if (!text[n]) return true;
  }
}

#define FIELD(f) ZB_AT(Options, f)
#define ON(command) .commands = 1 << command
enum { ALL = (1 << (SEARCH + 1)) - 1, TIMED = 1 << SIM | 1 << COMPARE | 1 << REPORT | 1 << SEARCH, STEPS = ALL & ~(1 << COMPARE | 1 << REPORT) };
static const ZbOption options[] = {
  {"recipe", 0, ZB_TEXT, FIELD(recipe), "FILE:NAME", .needed = ALL & ~(1 << SEARCH),
   .help = "the recipe to plan"},
  {"cluster", 0, ZB_TEXT, FIELD(cluster), "FILE:NAME", .needed = TIMED,
   .help = "check against the cluster's memory, and predict times by its constants: clusters.zug:h100, say, "
           "or a file of zrun calibrate; `auto`: this machine, one rank per core"},
  {"device", 0, ZB_OTHER, FIELD(device), "WORD", .usual = "cpu", .take = take_device,
   .help = "where zrun will compute: cpu or cuda, which needs no GPU here"},
  {"threads", 0, ZB_WHOLE, FIELD(threads), "T", .usual = "1", .least = 1, .most = 1024,
   .help = "threads per rank, as zrun will be given: some scratch depends on it"},
  {"ckpt", 0, ZB_FLAG, FIELD(ckpt), .help = "include the host memory of checkpoints (zrun --ckpt)"},
  {"repeatable", 0, ZB_FLAG, FIELD(repeatable),
   .help = "include the scratch of kernels that give the same bits in every run (zrun --repeatable)"},
  {"eval", 0, ZB_FLAG, FIELD(eval), .help = "plan an evaluation, which only goes forward"},
  {"generate", 0, ZB_FLAG, FIELD(generate), .commands = STEPS,
   .help = "plan a step of generation: tokens of several sequences at once, with caches"},
  {"sequences", 0, ZB_WHOLE, FIELD(generates.sequences), "N", .commands = STEPS, .least = 1, .most = 1 << 20,
   .help = "with --generate: sequences that run at once (default: the recipe's `batch`)"},
  {"length", 0, ZB_WHOLE, FIELD(generates.length), "L", .commands = STEPS, .least = 1, .most = INT32_MAX,
   .help = "with --generate: tokens of a sequence, prompt and answer (default: the recipe's)"},
  {"prompt", 0, ZB_WHOLE, FIELD(prompt), "P", ON(SIM) | 1 << SEARCH, .least = 1, .most = INT32_MAX,
   .help = "with --generate: how many of these are the prompt's (default: half of them)"},
  {"precision", 0, ZB_WORD, FIELD(precision), "bf16|f32", ON(SEARCH), .usual = "bf16",
   .help = "with --generate: what is computed in, and weights are stored in without --weights"},
  {"weights", 0, ZB_OTHER, FIELD(weights), "LIST", ON(SEARCH), .take = take_weights,
   .expects = "any, or some of none|" ZL_PACKED_FORMATS " with commas, each once",
   .help = "with --generate: weigh recipes that store the weights of products in these formats of 8 and 4 bits: int8, or "
           "none,int8,int4; `none` is as they are computed with, `any` that and all formats of integers"},
  {"group", 0, ZB_WHOLE, FIELD(group), "G", ON(SEARCH), .usual = "64", .least = 32, .most = 128,
   .help = "of --weights: so many weights share a scale: 32, 64 or 128"},
  {"latency", 0, ZB_OTHER, FIELD(latency), "D", ON(SEARCH), .take = take_latency,
   .expects = "a time, as 50ms or 0.2s",
   .help = "with --generate: the most time between two tokens of a text. The recipe is sought that writes most tokens a "
           "second within it, with as many texts at once as that takes"},
  {"step-tokens", 0, ZB_WHOLE, FIELD(generates.step), "T", .commands = STEPS, .usual = "256", .least = 1, .most = 1 << 20,
   .help = "with --generate: the most tokens of a step"},
  {"page", 0, ZB_WHOLE, FIELD(generates.page), "P", .commands = STEPS, .usual = "32", .least = 1, .most = 1 << 16,
   .help = "with --generate: positions of a page of the caches"},
  {NULL, 'I', ZB_TEXTS, FIELD(include), "DIR",
   .help = "search imported recipe files here, too; may be repeated"},
  {"json", 0, ZB_FLAG, FIELD(json),
   .help = "show, explain, programs, sim and search as JSON, with stable keys: runtime/plan/output/JSON.md"},
  {"exact", 0, ZB_FLAG, FIELD(exact),
   .help = "print bytes with all digits, not as 5.3 GB; JSON always has them"},
  {"diag", 0, ZB_WORD, FIELD(diag), "text|json", .usual = "text",
   .help = "format of messages; json: one object per line"},

  {"calls", 0, ZB_TEXT, FIELD(calls), "NAME", ON(PROGRAMS),
   .help = "not instructions but the calls of a layer, or of another segment that stages hold (see show), in "
           "order: operands, types, shapes, FLOPs, bytes"},

  {"run", 0, ZB_TEXT, FIELD(run), "FILE", ON(COMPARE), .needed = 1 << COMPARE,
   .help = "the trace of a run of this recipe"},

  {"trace", 0, ZB_TEXT, FIELD(trace), "FILE", ON(SIM) | 1 << COMPARE,
   .help = "sim: write the step as a trace for Perfetto, with a rank of each stage; compare: both traces in "
           "one"},

  {"with", 0, ZB_TEXT, FIELD(with), "FILE:NAME", ON(REPORT), .help = "a second recipe, to compare"},

  {NULL, 'o', ZB_TEXT, FIELD(out), "FILE", ON(REPORT) | 1 << SEARCH, .needed = 1 << REPORT,
   .help = "report: the page, FILE.html, or the timeline alone, FILE.svg; search: write the best recipe here, "
           "with reasons"},

  {"batch", 0, ZB_WHOLE, FIELD(batch), "N", ON(SEARCH), .least = 1, .most = INT32_MAX,
   .help = "without a recipe: samples per step"},
  {"seq", 0, ZB_WHOLE, FIELD(seq), "S", ON(SEARCH), .least = 1, .most = INT32_MAX,
   .help = "without a recipe: their length"},
  {"bind", 0, ZB_TEXTS, FIELD(sizes), "AXIS=N", ON(SEARCH),
   .help = "without a recipe: size of another data axis of the model"},
  {"ranks", 0, ZB_WHOLE, FIELD(ranks), "R", ON(SEARCH), .least = 1, .most = 1 << 24,
   .help = "search for R devices (default: all of the cluster)"},
  {"keep", 0, ZB_WHOLE, FIELD(keep), "K", ON(SEARCH), .usual = "10", .least = 1, .most = 1000,
   .help = "list the best K"},
  {"all", 0, ZB_FLAG, FIELD(all), ON(SEARCH),
   .help = "write all listed recipes to -o, as best, best_2 and so on"},
};

static void hint(const char *word, ZbErr *err) {
  if (!strcmp(word, "calibrate"))
    snprintf(err->help, sizeof err->help, "measuring takes ranks: mpirun -np N zrun calibrate -o FILE.zug");
}

static const ZbNote codes[] = {
  {"0", "done"},
  {"1", "there is no such plan, or a file is wrong; messages say why"},
  {"2", "wrong options"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zplan show gpt2.zsg --recipe recipes.zug:demo", "mesh, stages, memory and schedule of a run"},
  {"zplan sim llama.zsg --recipe published.zug:llama8b --cluster clusters.zug:h100", "the time of a step, and where it goes"},
  {"zplan report llama.zsg --recipe published.zug:llama8b --cluster clusters.zug:h100 -o timeline.svg", "its timeline as a picture"},
  {"zplan search llama.zsg --cluster clusters.zug:h100 --batch 1024 --seq 8192 -o best.zug", "find the fastest recipe"},
  {"zplan search llama.zsg --generate --cluster clusters.zug:h100 --ranks 8 --length 4096 --latency 50ms -o best.zug",
   "find how 8 devices write most tokens a second"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"*.zug", "recipes and clusters; those that are installed: PREFIX/share/zug/examples"},
  {"*.zsg", "stage graphs that zc made"},
  {"*.html, *.svg", "a page or a picture of report"},
  {"*.trace", "a trace for Perfetto, of sim or of zrun --trace"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zplan", .what = "show, explain, check and time the plan of a run",
  ZB_TABLES(commands, options), .hint = hint, .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */

static void add_bind(Options *o, const char *axis, int64_t size) {
  uint32_t i = 0;
  while (i < o->nbind && strcmp(o->bind[i].axis, axis) != 0) i++;
  if (i == sizeof o->bind / sizeof *o->bind) return; /* more than any model has */
  o->bind[i] = (ZpSize){axis, size};
  if (i == o->nbind) o->nbind++;
}

/* Reads each AXIS=N. */
static bool bind_axes(ZbArena *a, Options *o, ZbErr *err) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (o->batch) add_bind(o, "batch", o->batch);
  if (o->seq) add_bind(o, "seq", o->seq);
  for (uint32_t i = 0; i < o->sizes.n; i++) {
    const char *axis = o->sizes.s[i];
    size_t n = strspn(axis, letters);
    char *end;
    int64_t size = n && axis[n] == '=' ? strtol(axis + n + 1, &end, 10) : 0;
    if (size < 1 || size > INT32_MAX || *end) return zb_fail(err, "", "--bind takes AXIS=N, N from 1 on");
    add_bind(o, zb_strndup(a, axis, n), size);
  }
  return true;
}

/* Checks a search for recipes that generate, which takes no sizes but a sequence's. */
static bool check_generating(const Options *o, ZbErr *err) {
  if (o->recipe)
    return zb_fail(err, "leave it out: all meshes are tried",
                   "search --generate takes no --recipe in this version");
  if (o->batch || o->seq)
    return zb_fail(err, "", "--batch and --seq are for training: give --sequences and --length");
  if (!o->generates.length)
    return zb_fail(err, "", "search --generate needs --length L, the tokens of a text, prompt and answer");
  return true;
}

static bool check_options(const Options *o, ZbErr *err) {
  if (o->all && !o->out) return zb_fail(err, "", "--all needs -o FILE, where the recipes are written");
  if (o->command == REPORT && o->eval) return zb_fail(err, "", "report is for training, not for --eval");
  if (!o->generate && (o->prompt || o->latency > 0 || o->nweights))
    return zb_fail(err, "", "--prompt, --latency and --weights belong to --generate");
  if (o->command != SEARCH) return true;
  if (o->generate) return check_generating(o, err);
  if (o->eval) return zb_fail(err, "", "search is for training, not for --eval");
  if (o->recipe && o->nbind)
    return zb_fail(err, "give it, or --batch, --seq and --bind, not both", "--recipe binds the sizes");
  return o->recipe || o->batch ||
         zb_fail(err, "",
                 "search needs --batch N, the samples per step, or --recipe FILE:NAME, which binds them");
}

static bool parse(ZbArena *a, int argc, char **argv, Options *o, ZbErr *err) {
  ZbArgs args;
  *o = (Options){.command = SHOW};
  if (!zb_parse(&program, a, argc, argv, o, &args, err)) return false;
  o->command = args.command;
  o->graph = args.operand[0];
  zb_bytes_exactly(o->exact);
  return bind_axes(a, o, err) && check_options(o, err);
}

static bool ask_device(const Options *o, ZpOptions *po, ZbErr *err) {
  const ZkPlanning *p = zk_planning(o->device, err);
  if (p)
    *po = (ZpOptions){.scratch = p->scratch,
                      .threads = o->threads,
                      .supports = p->supports,
                      .pins = p->pins,
                      .checkpoints = o->ckpt,
                      .repeatable = o->repeatable,
                      .forward_only = o->eval,
                      .generates = o->generate ? &o->generates : NULL};
  return p != NULL;
}

/* `auto`: this machine, with a rank a core. */
static const ZlCluster *load_cluster(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o) {
  const char *name = NULL;
  ZlOptions lo = {o->include.s, o->include.n};
  ZlProgram *p;
  if (!strcmp(o->cluster, "auto")) {
    ZbText t = {0};
    const ZmMachine *m = zm_look(a);
    zm_cluster(m, 1, m->cores, &t);
    const char *text = zb_strndup(a, t.s, t.len);
    zb_text_free(&t);
    p = zl_load_text(a, s, d, "auto", text, strlen(text), NULL);
  } else {
    p = zl_load_named(a, s, d, o->cluster, &lo, &name);
  }
  return p && !zl_errors(d) ? zl_cluster(p, d, name) : NULL;
}

static ZpPlan *plan(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o, const char *recipe, ZpOptions *po,
                    const ZgGraph *g) {
  const char *name;
  const ZlRecipe *r = NULL;
  ZlOptions lo = {o->include.s, o->include.n};
  ZlProgram *p = zl_load_named(a, s, d, recipe, &lo, &name);
  if (p) r = zl_recipe(p, d, name);
  if (r && o->cluster) po->cluster = load_cluster(a, s, d, o);
  return r && !zl_errors(d) ? zp_plan(a, g, r, d, po) : NULL;
}

/* ---- sim ---- */
static bool write_trace(const char *path, const ZpPlan *p, const ZpTime *t, ZbErr *err) {
  static const ZbKind kind = {"a trace", zp_is_trace};
  ZbText out = {0};
  zb_text_add(&out, "%s", zp_trace_head);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    int64_t rank = p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->layout.mesh, 0, s);
    if (s) zb_text_add(&out, ",\n");
    zp_trace_events(p, rank, t->stages[s].spans, t->stages[s].nspans, 0, 0, true, &out);
  }
  zb_text_add(&out, "%s", zp_trace_tail);
  bool ok = zb_write_file(path, &kind, out.s, out.len, err);
  zb_text_free(&out);
  return ok;
}

/* Returns the tokens of prompts and answers that a plan is timed with: all that it has room for. */
static bool writing_of(const Options *o, const ZpPlan *p, ZpWriting *w, ZbErr *err) {
  const ZpGenerating *g = &p->generating;
  int64_t prompt = o->prompt ? o->prompt : (g->length + 1) / 2;
  if (prompt >= g->length)
    return zb_fail(err, "give a shorter --prompt, or a longer --length",
                   "a prompt of %lld tokens leaves nothing to write in %lld", (long long)prompt,
                   (long long)g->length);
  *w = (ZpWriting){g->sequences * g->replicas, prompt, g->length - prompt};
  return true;
}

static bool sim_steps(ZbArena *a, const Options *o, const ZpPlan *p, const ZlCluster *c, ZlDiags *d,
                      ZbText *out, ZbErr *err) {
  ZpWriting w;
  if (!writing_of(o, p, &w, err)) return say(err), false;
  ZpGenerationTime *t = zp_predict(a, p, c, &w, d);
  if (t) (o->json ? zp_show_generation_json : zp_show_generation)(p, c, &w, t, out);
  return t != NULL;
}

static bool sim(ZbArena *a, const Options *o, const ZpPlan *p, const ZlCluster *c, ZlDiags *d, ZbText *out,
                ZbErr *err) {
  if (o->generate) return sim_steps(a, o, p, c, d, out, err);
  ZpTime *t = zp_time(a, p, c, o->trace != NULL, d);
  if (!t) return false;
  (o->json ? zp_show_time_json : zp_show_time)(p, c, t, out);
  if (!o->trace || write_trace(o->trace, p, t, err)) return true;
  say(err);
  return false;
}

/* ---- programs --calls ---- */
static bool show_calls(const Options *o, const ZpPlan *p, ZbText *out, ZbErr *err) {
  uint32_t segment = zp_segment_named(p, o->calls, err);
  if (segment == ZP_NONE) return say(err), false;
  (o->json ? zp_show_calls_json : zp_show_calls)(p, segment, out);
  return true;
}

/* ---- compare ---- */
static bool compare(ZbArena *a, const Options *o, const ZpPlan *p, const ZlCluster *c, ZlDiags *d,
                    ZbText *out, ZbErr *err) {
  static const ZbKind kind = {"a trace", zp_is_trace};
  size_t n;
  const ZpTime *t = zp_time(a, p, c, true, d);
  if (!t) return false;
  const char *trace = zb_read_file(a, o->run, (uint64_t)1 << 32, &n, err);
  ZbText both = {0};
  bool ok = trace && (!o->trace || zb_spares("--trace", o->trace, o->run, err)) &&
            (zp_is_trace((const uint8_t *)trace, n) || zb_fail(err, "write it by zrun train --trace FILE",
                                                               "%s is not a trace of zrun", zb_show(o->run)));
  ok = ok && zp_compare(p, t, trace, out, &both, err);
  ok = ok && (!o->trace || zb_write_file(o->trace, &kind, both.s, both.len, err));
  zb_text_free(&both);
  if (!ok) say(err);
  return ok;
}

/* ---- report ---- */
static bool is_page(const uint8_t *head, size_t n) { return n >= 15 && !memcmp(head, "<!DOCTYPE html>", 15); }
static bool is_picture(const uint8_t *head, size_t n) { return n >= 4 && !memcmp(head, "<svg", 4); }

static bool ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && !strcasecmp(s + n - m, end);
}

/* other: the second plan, or NULL */
static bool report(ZbArena *a, const Options *o, const ZpPlan *p, const ZpPlan *other, const ZlCluster *c,
                   ZlDiags *d, ZbErr *err) {
  static const ZbKind page = {"a page", is_page}, picture = {"an SVG picture", is_picture};
  bool svg = ends(o->out, ".svg");
  ZpPaged of[2] = {{p, zp_time(a, p, c, true, d)}, {other, other ? zp_time(a, other, c, true, d) : NULL}};
  if (!of[0].time || (other && !of[1].time)) return false;
  ZbText out = {0};
  (svg ? zp_show_picture : zp_show_page)(of, other ? 2 : 1, c, &out);
  bool ok = zb_write_file(o->out, svg ? &picture : &page, out.s, out.len, err);
  zb_text_free(&out);
  if (!ok) say(err);
  return ok;
}

/* ---- search ---- */
/* Returns whether the sizes are given for exactly the model's data axes; else reports which is wrong or
 * missing. */
static bool binds_all(const Options *o, const ZgGraph *g) {
  ZbText have = {0};
  const char *wrong = zp_search_lacks(g, o->bind, o->nbind);
  if (wrong)
    fprintf(stderr, "zplan: model %s has a data axis `%s`; add %s%s%sN, its size\n", g->model, wrong,
            strcmp(wrong, "seq") ? "--bind " : "--", wrong, strcmp(wrong, "seq") ? "=" : " ");
  for (uint32_t i = 0; i < g->naxes; i++)
    if (!g->axes[i].size) zb_text_add(&have, "%s`%s`", have.len ? ", " : "", g->axes[i].name);
  for (uint32_t i = 0; i < o->nbind && !wrong; i++) {
    uint32_t a = zg_axis_find(g, o->bind[i].axis);
    if (a == ZG_NONE || g->axes[a].size)
      fprintf(stderr, "zplan: model %s has no data axis `%s`; it has %s\n", g->model, wrong = o->bind[i].axis,
              have.len ? have.s : "none");
  }
  zb_text_free(&have);
  return !wrong;
}

/* Returns a recipe that leaves everything to the search. */
static const ZlRecipe *all_open(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o, const ZgGraph *g,
                                const ZlCluster *c) {
  ZbText t = {0};
  if (!binds_all(o, g)) return NULL;
  zp_search_open(g, c, o->bind, o->nbind, &t);
  const char *text = zb_strndup(a, t.s, t.len);
  ZlProgram *p = zl_load_text(a, s, d, "search", text, strlen(text), NULL);
  zb_text_free(&t);
  return p && !zl_errors(d) ? zl_recipe_open(p, d, NULL) : NULL;
}

/* Thousands of plans are made, one after the other. Their memory is kept for the next: faulting it in anew takes
 * longer than planning. */
static void keep_memory(void) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

static ZpSearch *search(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o, const ZpOptions *po,
                        const ZgGraph *g) {
  const char *name;
  ZlOptions lo = {o->include.s, o->include.n};
  const ZlCluster *c = load_cluster(a, s, d, o);
  const ZlRecipe *r = NULL;
  ZlProgram *p;
  if (!c) return NULL;
  keep_memory();
  if (!o->recipe) r = all_open(a, s, d, o, g, c);
  else if ((p = zl_load_named(a, s, d, o->recipe, &lo, &name))) r = zl_recipe_open(p, d, name);
  ZbErr err = {0};
  if (r && o->recipe && o->out && !zb_spares("-o", o->out, zl_source_name(s, r->span.file), &err))
    return say(&err), NULL;
  ZpSearchOptions so = {.cluster = c, .ranks = o->ranks, .keep = (uint32_t)o->keep, .whole = !o->recipe};
  return r && !zl_errors(d) ? zp_search(a, g, r, &so, po, d) : NULL;
}

static bool write_text(ZbArena *a, const char *path, const ZbText *raw, ZbErr *err) {
  static const ZbKind kind = {"a recipe of zplan search", zp_is_searched};
  ZbText text = {0};
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  if (!zl_format(a, s, d, path, raw->s, raw->len, &text))
    ZB_BUG("search wrote a recipe that does not parse:\n%s", raw->s);
  bool ok = zb_write_file(path, &kind, text.s, text.len, err);
  zb_text_free(&text);
  return ok;
}

static bool write_recipes(ZbArena *a, const char *path, const ZpSearch *found, bool all, ZbErr *err) {
  ZbText raw = {0};
  zp_search_recipes(found, all ? found->nbest : 1, &raw);
  bool ok = write_text(a, path, &raw, err);
  zb_text_free(&raw);
  return ok;
}

/* Finds, shows and writes recipes that generate; returns whether there is one. */
static bool search_steps(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o, const ZpOptions *po,
                         const ZgGraph *g, ZbText *out, ZbErr *err) {
  const ZlCluster *c = load_cluster(a, s, d, o);
  int64_t length = o->generates.length, prompt = o->prompt ? o->prompt : (length + 1) / 2;
  if (prompt >= length)
    return zb_fail(err, "give a shorter --prompt, or a longer --length",
                   "a prompt of %lld tokens leaves nothing to write in %lld", (long long)prompt,
                   (long long)length),
           say(err), false;
  ZpStepsAsked asked = {.cluster = c,
                        .ranks = o->ranks,
                        .keep = (uint32_t)o->keep,
                        .sequences = o->generates.sequences,
                        .prompt = prompt,
                        .answer = length - prompt,
                        .latency = o->latency,
                        .step = o->generates.step,
                        .page = o->generates.page,
                        .bind = o->bind,
                        .nbind = o->nbind,
                        .bf16 = o->precision == IN_BF16};
  const char *formats[ZP_MOST_WEIGHTS];
  for (uint32_t i = 0; i < o->nweights; i++)
    formats[i] = strcmp(o->weights[i], "none")
                     ? zb_printf(a, "%s group %lld", o->weights[i], (long long)o->group)
                     : o->weights[i];
  asked.weights = formats, asked.nweights = o->nweights;
  if (!c) return false;
  keep_memory();
  ZpStepsSearch *found = zp_search_steps(a, g, &asked, po, d);
  if (!found) return false;
  (o->json ? zp_show_steps_search_json : zp_show_steps_search)(found, out);
  if (!found->nbest || !o->out) return found->nbest > 0;
  ZbText raw = {0};
  zp_steps_recipes(found, o->all ? found->nbest : 1, &raw);
  bool ok = write_text(a, o->out, &raw, err) || (say(err), false);
  zb_text_free(&raw);
  return ok;
}

static void show(const ZpPlan *p, ZbText *out) {
  zp_show(p, out);
  zp_show_schedule(p, out);
}

/* Says what was proved; with the time that it took where nobody compares two plans by their text. */
static void show_proofs(const ZpPlan *p, bool times, ZbText *out) {
  const double ms = 1e3;
  zb_text_add(out, "proved");
  if (times) zb_text_add(out, " in %.3g ms", ms * p->notes.proof_seconds);
  zb_text_add(out, ": queues end, contents are there, bytes and places fit, ");
  if (times) zb_text_add(out, "and (%.3g ms) ", ms * p->notes.meaning_seconds);
  zb_text_add(out, "%sall local programs compute the graph", times ? "" : "and ");
  uint32_t unproved = zp_parts_unproved(p);
  if (unproved)
    zb_text_add(out, ", but for %u of %u parts of the model, whose sizes have no common divisors", unproved,
                p->graph->nsegments);
  zb_text_add(out, "\n");
}

/* The commands that only print a plan. */
static const struct {
  void (*text)(const ZpPlan *, ZbText *), (*json)(const ZpPlan *, ZbText *);
} prints[SEARCH + 1] = {[SHOW] = {show, zp_show_json},
                        [EXPLAIN] = {zp_explain, zp_explain_json},
                        [PROGRAMS] = {zp_show_programs, zp_show_programs_json}};

int main(int argc, char **argv) {
  zb_begin();
  Options o;
  ZbErr err = {0};
  if (argc < 2) return zb_help(&program, stderr), 2;
  if (zb_tells(&program, argc, argv)) return zb_close_stdout(&err) ? 0 : (say(&err), 1);
  ZbArena *a = zb_arena_new();
  if (!parse(a, argc, argv, &o, &err)) return say(&err), zb_arena_free(a), 2;
  ZbText out = {0}, messages = {0};
  ZgGraph *g = zg_read_file(a, o.graph, &err);
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZpOptions po;
  bool ok = g && ask_device(&o, &po, &err);
  bool generates = o.command == SEARCH && o.generate;
  ZpSearch *found = ok && o.command == SEARCH && !generates ? search(a, s, d, &o, &po, g) : NULL;
  ZpPlan *p = ok && o.command != SEARCH ? plan(a, s, d, &o, o.recipe, &po, g) : NULL;
  if (!ok) say(&err);
  bool wrote = ok && generates && search_steps(a, s, d, &o, &po, g, &out, &err);
  if (found) (o.json ? zp_show_search_json : zp_show_search)(found, &out);
  if (found && found->nbest && o.out && !(ok = write_recipes(a, o.out, found, o.all, &err))) say(&err);
  if (p && o.command == SIM) ok = sim(a, &o, p, po.cluster, d, &out, &err);
  if (p && o.command == REPORT) {
    ZpPlan *other = o.with ? plan(a, s, d, &o, o.with, &po, g) : NULL;
    ok = (other || !o.with) && report(a, &o, p, other, po.cluster, d, &err);
  }
  if (p && o.command == COMPARE) ok = compare(a, &o, p, po.cluster, d, &out, &err);
  (o.diag == DIAG_JSON ? zl_print_json : zl_print_text)(d, &messages);
  if (messages.s) fputs(messages.s, stderr);
  if (p && o.calls) ok = show_calls(&o, p, &out, &err);
  else if (p && prints[o.command].text) (o.json ? prints[o.command].json : prints[o.command].text)(p, &out);
  bool places = p && po.cluster && o.command == SHOW && !o.json;
  if (places && !strcmp(o.cluster, "auto")) zm_show(zm_look(a), &out);
  if (places) zp_show_places(p, po.cluster, &out);
  if (p && !o.json && (o.command == SHOW || o.command == CHECK)) show_proofs(p, o.command == CHECK, &out);
  if (out.s) fputs(out.s, stdout);
  bool done = generates             ? wrote
              : o.command == SEARCH ? found && found->nbest
                                    : p != NULL,
       written = zb_close_stdout(&err);
  if (!written) say(&err);
  zb_text_free(&out);
  zb_text_free(&messages);
  zb_arena_free(a);
  return ok && done && written ? 0 : 1;
}
