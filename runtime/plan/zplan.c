/* zplan: what zrun would do, without MPI and without devices: for any number of ranks, on any machine. */
#include "kernels/devices.h"
#include "runtime/machine/machine.h"
#include "runtime/plan/output/page.h"
#include "runtime/plan/text.h"
#include "runtime/plan/search/search.h"
#include "runtime/plan/output/compare.h"
#include "runtime/plan/time/time.h"

#include <getopt.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: zplan COMMAND GRAPH.zsg --recipe FILE:NAME [options]\n"
    "  show       mesh, stages, memory ledger, schedule\n"
    "  explain    what ranks send each other: count, bytes, mesh dims, tensor, cause\n"
    "  programs   every instruction of every stage; with --calls the calls within one\n"
    "  check      only make the plan and its proofs\n"
    "  sim        how long a step will take on the cluster, and where the time goes\n"
    "  compare    what was predicted beside what a run did, by the trace that it wrote (zrun --trace)\n"
    "  report     all of it as one page for a browser, with drawings: -o FILE.html\n"
    "  search     the fastest recipes on the cluster; with a recipe, which completes what it says `?` for\n"
    "  --cluster FILE:NAME  check against a cluster's memory; show: which ranks are where, and what links\n"
    "                       carry; sim: with its constants. `auto`: this machine, a rank a core\n"
    "  --device WORD        where zrun will compute: cpu (default) or cuda, for which no GPU need be here\n"
    "  --ckpt               with the host's memory that checkpoints take (zrun --ckpt)\n"
    "  --repeatable         with the scratch of kernels that give the same bits in every run (zrun "
    "--repeatable)\n"
    "  --threads T          threads of a rank, as zrun will be given (default 1): some scratch depends on "
    "it\n"
    "  --eval               the plan of an evaluation, which only goes forward\n"
    "  -I DIR               where imported recipe files are searched too\n"
    "  --calls NAME         programs: not instructions but the calls of a layer, or of another segment\n"
    "                       that stages hold (show), in order: operands, types, shapes, FLOPs, bytes\n"
    "  --run FILE           compare: the trace of a run of this recipe\n"
    "  --trace FILE         sim: the step as a trace for Perfetto, with a rank of each stage; compare: both "
    "in "
    "one\n"
    "  --with FILE:NAME     report: a second recipe, to compare\n"
    "  --batch N, --seq S   search, without a recipe: samples of a step, and their length;\n"
    "  --bind AXIS=N        and sizes of other data axes that the model has\n"
    "  --ranks R            search: for so many devices, and not for all of the cluster\n"
    "  --keep K             search: list the best K (default 10)\n"
    "  -o FILE              search: write the best as a recipe, with reasons; report: the page\n"
    "  --all                search: write all that are listed there, as best, best_2 and so on\n"
    "  --json               show, explain, programs and sim as JSON, whose keys stay: "
    "runtime/plan/output/JSON.md\n"
    "  --exact              all digits of bytes, which people read as 5.3 GB; JSON always has them\n"
    "  --diag json          messages as JSON lines\n"
    "  --version            of Zug\n";

typedef struct {
  const char *command, *graph, *recipe, *cluster, *trace, *run, *with, *out, *calls, *include[16];
  uint32_t ninclude;
  int64_t batch, seq, ranks, keep; /* 0: not given */
  ZpSize bind[16];                 /* batch and seq, too */
  uint32_t nbind;
  int threads;
  const ZkDevice *device;
  bool ckpt, repeatable, eval, diag_json, json, all;
} Options;

static void say(const ZbErr *err) {
  fprintf(stderr, "zplan: error: %s%s%s\n", err->text, *err->help ? "; " : "", err->help);
}

static void refuse_device(void) {
  const ZkDevice *d = zk_devices;
  while (d->name) d++;
  fprintf(stderr, "zplan: --device takes ");
  for (const char * or = ""; d-- > zk_devices; or = " or ") fprintf(stderr, "%s`%s`", or, d->name);
  fprintf(stderr, "\n");
}

/* A whole number behind an option. */
static bool count(const char *option, long most, int64_t *to) {
  char *end;
  *to = strtol(optarg, &end, 10);
  if (*optarg && !*end && *to >= 1 && *to <= most) return true;
  return fprintf(stderr, "zplan: %s takes 1 to %ld\n", option, most), false;
}

static void add_bind(Options *o, const char *axis, int64_t size) {
  uint32_t i = 0;
  while (i < o->nbind && strcmp(o->bind[i].axis, axis) != 0) i++;
  if (i == sizeof o->bind / sizeof *o->bind) return; /* more than any model has */
  o->bind[i] = (ZpSize){axis, size};
  if (i == o->nbind) o->nbind++;
}

/* "AXIS=N" */
static bool bind_axis(Options *o) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  char *axis = optarg;
  size_t n = strspn(axis, letters);
  int64_t size;
  if (!n || axis[n] != '=') return fprintf(stderr, "zplan: --bind takes AXIS=N, N from 1 on\n"), false;
  axis[n] = 0;
  optarg = axis + n + 1;
  if (!count("--bind AXIS=N", INT32_MAX, &size)) return false;
  add_bind(o, axis, size);
  return true;
}

static int parse(int argc, char **argv, Options *o) {
  enum {
    RECIPE = 256,
    CLUSTER,
    DEVICE,
    THREADS,
    EVAL,
    DIAG,
    CKPT,
    REPEATABLE,
    JSON,
    EXACT,
    TRACE,
    BATCH,
    SEQ,
    RANKS,
    KEEP,
    BIND,
    RUN,
    WITH,
    CALLS,
    ALL
  };
  /* clang-format off */
  static const struct option list[] = {
      {"recipe", 1, NULL, RECIPE},   {"cluster", 1, NULL, CLUSTER}, {"device", 1, NULL, DEVICE},
      {"threads", 1, NULL, THREADS}, {"diag", 1, NULL, DIAG},       {"ckpt", 0, NULL, CKPT},
      {"eval", 0, NULL, EVAL},       {"json", 0, NULL, JSON},       {"trace", 1, NULL, TRACE},
      {"exact", 0, NULL, EXACT},     {"help", 0, NULL, 'h'},
      {"run", 1, NULL, RUN},         {"with", 1, NULL, WITH},       {"batch", 1, NULL, BATCH},
      {"seq", 1, NULL, SEQ},         {"ranks", 1, NULL, RANKS},     {"keep", 1, NULL, KEEP},
      {"all", 0, NULL, ALL},         {"bind", 1, NULL, BIND},       {"repeatable", 0, NULL, REPEATABLE},
      {"calls", 1, NULL, CALLS},     {NULL, 0, NULL, 0}};
  /* clang-format on */
  ZbErr err;
  *o = (Options){.device = zk_device("cpu"), .threads = 1};
  opterr = 0;
  for (int k; (k = getopt_long(argc, argv, ":I:o:h", list, NULL)) != -1;) {
    switch (k) {
    case RECIPE: o->recipe = optarg; break;
    case CLUSTER: o->cluster = optarg; break;
    case DEVICE:
      if (!(o->device = zk_device(optarg))) return refuse_device(), 2;
      break;
    case THREADS: {
      char *end;
      long n = strtol(optarg, &end, 10);
      if (*end || n < 1 || n > 1024) return fprintf(stderr, "zplan: --threads takes 1 to 1024\n"), 2;
      o->threads = (int)n;
      break;
    }
    case EVAL: o->eval = true; break;
    case BATCH:
      if (!count("--batch", INT32_MAX, &o->batch)) return 2;
      add_bind(o, "batch", o->batch);
      break;
    case SEQ:
      if (!count("--seq", INT32_MAX, &o->seq)) return 2;
      add_bind(o, "seq", o->seq);
      break;
    case BIND:
      if (!bind_axis(o)) return 2;
      break;
    case RANKS:
      if (!count("--ranks", 1 << 24, &o->ranks)) return 2;
      break;
    case KEEP:
      if (!count("--keep", 1000, &o->keep)) return 2;
      break;
    case ALL: o->all = true; break;
    case 'o': o->out = optarg; break;
    case DIAG:
      if (strcmp(optarg, "json")) return fprintf(stderr, "zplan: --diag takes `json`\n"), 2;
      o->diag_json = true;
      break;
    case JSON: o->json = true; break;
    case TRACE: o->trace = optarg; break;
    case WITH: o->with = optarg; break;
    case RUN: o->run = optarg; break;
    case CALLS: o->calls = optarg; break;
    case EXACT: zb_bytes_exactly(true); break;
    case CKPT: o->ckpt = true; break;
    case REPEATABLE: o->repeatable = true; break;
    case 'I':
      if (o->ninclude == 16) return fprintf(stderr, "zplan: at most 16 folders with -I\n"), 2;
      o->include[o->ninclude++] = optarg;
      break;
    case 'h': return fputs(usage, stdout), 1;
    default: zb_option_failed(k, argv, list, &err); return say(&err), 2;
    }
  }
  if (optind + 2 != argc) return fputs(usage, stderr), 2;
  o->command = argv[optind];
  o->graph = argv[optind + 1];
  return 0;
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
                      .forward_only = o->eval};
  return p != NULL;
}

/* `auto`: this machine, with a rank a core. */
static const ZlCluster *load_cluster(ZbArena *a, ZlSources *s, ZlDiags *d, const Options *o) {
  const char *name = NULL;
  ZlOptions lo = {o->include, o->ninclude};
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
  ZlOptions lo = {o->include, o->ninclude};
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

static bool sim(ZbArena *a, const Options *o, const ZpPlan *p, const ZlCluster *c, ZlDiags *d, ZbText *out,
                ZbErr *err) {
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

/* other: the second plan, or NULL */
static bool report(ZbArena *a, const Options *o, const ZpPlan *p, const ZpPlan *other, const ZlCluster *c,
                   ZlDiags *d, ZbErr *err) {
  static const ZbKind kind = {"a page", is_page};
  ZpPaged of[2] = {{p, zp_time(a, p, c, true, d)}, {other, other ? zp_time(a, other, c, true, d) : NULL}};
  if (!of[0].time || (other && !of[1].time)) return false;
  ZbText page = {0};
  zp_show_page(of, other ? 2 : 1, c, &page);
  bool ok = zb_write_file(o->out, &kind, page.s, page.len, err);
  zb_text_free(&page);
  if (!ok) say(err);
  return ok;
}

/* ---- search ---- */
/* Whether the sizes are those of the model's data axes; else says which is not, or is not there. */
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

/* What is searched without a recipe: all. */
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
  ZlOptions lo = {o->include, o->ninclude};
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
  ZpSearchOptions so = {
      .cluster = c, .ranks = o->ranks, .keep = o->keep ? (uint32_t)o->keep : 10, .whole = !o->recipe};
  return r && !zl_errors(d) ? zp_search(a, g, r, &so, po, d) : NULL;
}

static bool is_ours(const uint8_t *head, size_t n) {
  return n == 16 && !memcmp(head, "# The fastest of", 16);
}

static bool write_recipes(ZbArena *a, const char *path, const ZpSearch *found, bool all, ZbErr *err) {
  static const ZbKind kind = {"a recipe of zplan search", is_ours};
  ZbText raw = {0}, text = {0};
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  zp_search_recipes(found, all ? found->nbest : 1, &raw);
  if (!zl_format(a, s, d, path, raw.s, raw.len, &text))
    ZB_BUG("search wrote a recipe that does not parse:\n%s", raw.s);
  bool ok = zb_write_file(path, &kind, text.s, text.len, err);
  zb_text_free(&raw);
  zb_text_free(&text);
  return ok;
}

static void show(const ZpPlan *p, ZbText *out) {
  zp_show(p, out);
  zp_show_schedule(p, out);
}

typedef struct {
  const char *name;
  void (*text)(const ZpPlan *, ZbText *), (*json)(const ZpPlan *, ZbText *);
} Command;

static const Command *command(const char *name) {
  static const Command commands[] = {{"show", show, zp_show_json},
                                     {"explain", zp_explain, zp_explain_json},
                                     {"programs", zp_show_programs, zp_show_programs_json},
                                     {"check", NULL, NULL},
                                     {"sim", NULL, NULL},
                                     {"search", NULL, NULL},
                                     {"compare", NULL, NULL},
                                     {"report", NULL, NULL}};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(name, commands[i].name)) return &commands[i];
  if (!strcmp(name, "calibrate"))
    return fprintf(stderr, "zplan: measuring takes ranks: mpirun -np N zrun calibrate -o FILE.zug\n"), NULL;
  fprintf(stderr,
          "zplan: no command `%s`; there are show, explain, programs, check, sim, search, compare, report\n",
          zb_show(name));
  return NULL;
}

/* Whether the options are the command's; else says which are not, or which it lacks. */
static bool fits_command(const Options *o, const char *name) {
  bool simulates = !strcmp(name, "sim"), searches = !strcmp(name, "search"),
       compares = !strcmp(name, "compare");
  bool reports = !strcmp(name, "report");
  const char *wrong = NULL;
  if (!searches && !o->recipe) return fputs(usage, stderr), false;
  if (!simulates && o->trace && !compares) wrong = "--trace belongs to `sim`";
  else if (o->calls && strcmp(name, "programs")) wrong = "--calls belongs to `programs`";
  else if (!compares && o->run) wrong = "--run belongs to `compare`";
  else if (compares && !o->run) wrong = "compare wants --run FILE, the trace of a run";
  else if (compares && !o->cluster)
    wrong = "compare wants a cluster: --cluster here.zug, say, by zrun calibrate";
  else if (!searches && (o->nbind || o->ranks || o->keep || o->all || (o->out && !reports)))
    wrong = "--batch, --seq, --bind, --ranks, --keep, --all and -o belong to `search`";
  else if (o->all && !o->out) wrong = "--all wants -o FILE, where to write the recipes";
  else if (!reports && o->with) wrong = "--with belongs to `report`";
  else if (reports && (!o->out || !o->cluster))
    wrong = "report wants -o FILE.html and a cluster: --cluster clusters.zug:h100, say";
  else if (reports && o->eval) wrong = "report is of training, not of --eval";
  else if (simulates && !o->cluster) wrong = "sim wants a cluster: --cluster clusters.zug:h100, say";
  else if (searches && !o->cluster) wrong = "search wants a cluster: --cluster clusters.zug:h100, say";
  else if (searches && o->recipe && o->nbind)
    wrong = "--recipe binds the sizes: give it, or --batch, --seq and --bind, not both";
  else if (searches && !o->recipe && !o->batch)
    wrong = "search wants --batch N, the samples of a step, or --recipe FILE:NAME, which says them";
  else if (searches && o->eval) wrong = "search is for training, not for --eval";
  if (wrong) fprintf(stderr, "zplan: %s\n", wrong);
  return !wrong;
}

int main(int argc, char **argv) {
  zb_begin();
  Options o;
  bool version = zb_tells_version(argc, argv, "zplan");
  int code = version ? 1 : parse(argc, argv, &o);
  ZbErr err = {0};
  if (code == 1 && zb_close_stdout(&err)) return 0;
  if (code == 1) return say(&err), 1;
  if (code) return code;
  const Command *c = command(o.command);
  if (!c) return 2;
  bool simulates = !strcmp(c->name, "sim"), compares = !strcmp(c->name, "compare"),
       searches = !strcmp(c->name, "search");
  bool reports = !strcmp(c->name, "report");
  if (!fits_command(&o, c->name)) return 2;
  ZbArena *a = zb_arena_new();
  ZbText out = {0}, messages = {0};
  ZgGraph *g = zg_read_file(a, o.graph, &err);
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZpOptions po;
  bool ok = g && ask_device(&o, &po, &err);
  ZpSearch *found = ok && searches ? search(a, s, d, &o, &po, g) : NULL;
  ZpPlan *p = ok && !searches ? plan(a, s, d, &o, o.recipe, &po, g) : NULL;
  if (!ok) say(&err);
  if (found) (o.json ? zp_show_search_json : zp_show_search)(found, &out);
  if (found && found->nbest && o.out && !(ok = write_recipes(a, o.out, found, o.all, &err))) say(&err);
  if (p && simulates) ok = sim(a, &o, p, po.cluster, d, &out, &err);
  if (p && reports) {
    ZpPlan *other = o.with ? plan(a, s, d, &o, o.with, &po, g) : NULL;
    ok = (other || !o.with) && report(a, &o, p, other, po.cluster, d, &err);
  }
  if (p && compares) ok = compare(a, &o, p, po.cluster, d, &out, &err);
  (o.diag_json ? zl_print_json : zl_print_text)(d, &messages);
  if (messages.s) fputs(messages.s, stderr);
  if (p && o.calls) ok = show_calls(&o, p, &out, &err);
  else if (p && c->text) (o.json ? c->json : c->text)(p, &out);
  bool places = p && po.cluster && !strcmp(c->name, "show") && !o.json;
  if (places && !strcmp(o.cluster, "auto")) zm_show(zm_look(a), &out);
  if (places) zp_show_places(p, po.cluster, &out);
  if (out.s) fputs(out.s, stdout);
  bool done = searches ? found && found->nbest : p != NULL, written = zb_close_stdout(&err);
  if (!written) say(&err);
  zb_text_free(&out);
  zb_text_free(&messages);
  zb_arena_free(a);
  return ok && done && written ? 0 : 1;
}
