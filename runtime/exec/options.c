/* zrun's options: what they are, reading them, and what of them ranks compare. */
#include "lang/lang.h"
#include "runtime/exec/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char zx_usage[] =
    "usage: zrun train GRAPH.zsg --recipe FILE:NAME --data FILE.bin --steps K [options]\n"
    "       zrun eval GRAPH.zsg --recipe FILE:NAME --data FILE.bin --init FILE [options]\n"
    "       zrun calibrate -o FILE.zug [--device WORD] [--threads T] [--hang-after D]\n"
    "                                measures this machine, or its GPUs: a cluster for plans\n"
    "One rank is started like this, N by `mpirun -np N zrun ...`.\n"
    "  --recipe FILE:NAME   how to spread the model over the ranks, and how to train it; of FILE:A,B,C the "
    "first\n"
    "                       that is for as many ranks as were started\n"
    "  --data FILE          a token or record file made by zdata, or a folder of them; or several, mixed by "
    "weights:\n"
    "                       A.bin:0.7,B.bin:0.3\n"
    "  --steps K            optimizer steps to make; 0: none, which with --save writes the initial weights "
    "and needs no data\n"
    "  --seed S             of initial values, dropout and the order of samples (default 1)\n"
    "  --order WORD         shuffled (default) or sequential\n"
    "  --init FILE          start from the weights of a safetensors file, or of a checkpoint, which is a "
    "folder\n"
    "  --names MAP          --init's file, or its folder of shards, has the names that `weights MAP for` the "
    "model gives\n"
    "  --init-partial       draw from the seed what --init's file lacks, and leave out what else it has\n"
    "  --save FILE          write the weights to a safetensors file at the end; one that exists is replaced "
    "then (if it is\n"
    "                       such a file), and room for it is taken at the start, in a folder that all nodes "
    "share\n"
    "  --log DIR            write metrics.jsonl there, and event files for TensorBoard; metrics.jsonl of an "
    "earlier run\n"
    "                       becomes metrics.jsonl.1, .2, ...\n"
    "  --print-every N      a line every N steps (default 1; on a terminal one line that is kept up to "
    "date)\n"
    "  --quiet              print nothing but notes, warnings and errors\n"
    "  --exact              all digits of bytes, which people read as 5.3 GB\n"
    "  --trace FILE         write what every rank did in some steps, for ui.perfetto.dev\n"
    "  --trace-steps A-B    in these (default: in the second and the third that the run makes)\n"
    "  --ckpt DIR           write checkpoints there, of all that the run needs to go on, at its end and "
    "every\n"
    "  --ckpt-every N       N steps, or a time: 90s, 30m, 2h (default 30m)\n"
    "  --ckpt-keep K        keep the K latest checkpoints, and remove those before (default: all stay)\n"
    "  --ckpt-file-size S   bytes of tensors in a file, with K, M, G behind the number (default 4G)\n"
    "  --ckpt-fail WORD     go-on (default) or end: what to do when a checkpoint cannot be written\n"
    "  --resume             go on from the latest checkpoint of --ckpt, if there is one; else begin\n"
    "  --resume-from DIR    go on from that checkpoint\n"
    "  --eval FILE          evaluate on these held-out data after the last step, without changing anything\n"
    "  --eval-every N       ... and after every N steps\n"
    "  --eval-batches K     evaluate on the first K batches (default: all whole batches)\n"
    "  --predict FILE       of `eval`: write the model's outputs, each a tensor of its name, to a "
    "safetensors "
    "file\n"
    "  --threads T          threads of each rank (default 1)\n"
    "  --device WORD        where to compute: cpu, cuda, or auto, the fastest that is there (default auto)\n"
    "  --cluster FILE:NAME  check the plan against a cluster's memory, and predict the step's time by its "
    "constants;\n"
    "                       `auto`: the machines that the launcher gave\n"
    "  -I DIR               where imported recipe files are searched too\n"
    "  --times              print the time by operation at the end, and what it reaches of its bound\n"
    "                       (a GPU is waited for after every call, so such a run is slower)\n"
    "  --time-limit D       stop so early that all is written D after the start: 90s, 10m, 3h50m\n"
    "  --on-nan WORD        a step whose loss or gradients are not finite updates nothing. The run goes on, "
    "and ends\n"
    "                       after 3 such steps in a row; end: at the first; skip: it goes on in any case. "
    "After a "
    "step\n"
    "                       that knows no target it goes on, too, but with end\n"
    "  --compare-every N    compare what ranks must hold alike, bit for bit, after every N steps (default "
    "100; 0: "
    "never)\n"
    "                       and before every checkpoint; where they differ the run ends, and that is not "
    "written\n"
    "  --hang-after D       end the run when a rank has not got on for so long, with all that waits for it\n"
    "                       (default 10m; 0s: never); while it starts and ends six times as long, up to 10m\n"
    "  --dry-run            make and show the plan, and stop; of a GPU also what it does in slower ways, and "
    "why\n"
    "  --repeatable         the same bits in every run on a GPU: of the algorithms of libraries, among which "
    "the\n"
    "                       fastest is chosen, only those that round as the first does; no sums in any "
    "order\n"
    "  --debug NAME=VALUE   tries something out on a GPU, as often as it is given:\n"
#define SETTING(id, name, unit, least, most, usual, what)                                                    \
  "                       " name "=" unit ": " what "\n"
#include "kernels/debug.def"
    "  --version, --help\n"
    "SIGTERM, SIGUSR1 and Ctrl-C stop a run after the step, too; a second Ctrl-C ends it at once.\n"
    "Codes: 0 done; 75 stopped before the last step, to be started again; 2 what was given is wrong; 69 it "
    "hung; others: it failed.\n";

static bool duration(const char *text, double *out) { return zb_duration(text, out) && *out > 0; }

/* What stands before `stop` is a number, and nothing else. */
static bool number_before(const char *text, const char *stop, int64_t least, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || end != stop || errno || n < least) return false;
  *out = n;
  return true;
}

static bool number(const char *text, int64_t least, int64_t *out) {
  return number_before(text, text + strlen(text), least, out);
}

/* "5-8", "5". */
static bool steps(const char *text, int64_t *from, int64_t *to) {
  const char *dash = strchr(text, '-');
  return number_before(text, dash ? dash : text + strlen(text), 1, from) &&
         number(dash ? dash + 1 : text, *from, to);
}

/* Steps, or a time. */
static bool interval(const char *text, ZxOptions *o) {
  o->ckpt_steps = 0;
  o->ckpt_seconds = 0;
  return number(text, 1, &o->ckpt_steps) || duration(text, &o->ckpt_seconds);
}

/* An option of other frameworks: which one it is here, or how the recipe says it. */
static void help_elsewhere(const char *option, ZbErr *err) {
  static const struct {
    const char *word, *help;
  } rows[] = {
#define OPTION(word, help) {word, help},
#include "runtime/exec/elsewhere.def"
  };
  char word[64];
  size_t n = strcspn(option, "=");
  if (strncmp(option, "--", 2) || n - 2 >= sizeof word) return;
  snprintf(word, sizeof word, "%.*s", (int)n - 2, option + 2);
  const char *recipe = zl_said_elsewhere(word);
  if (recipe) snprintf(err->help, sizeof err->help, "the recipe says it: `%s`", recipe);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (zl_same_word(rows[i].word, word)) snprintf(err->help, sizeof err->help, "%s", rows[i].help);
}

enum {
  RECIPE = 256,
  DATA,
  STEPS,
  SEED,
  ORDER,
  INIT,
  NAMES,
  INIT_PARTIAL,
  SAVE,
  LOG,
  PRINT_EVERY,
  QUIET,
  REPEATABLE,
  DEBUG_SETTING,
  EXACT,
  TRACE,
  TRACE_STEPS,
  THREADS,
  DEVICE,
  CLUSTER,
  TIMES,
  DRY,
  TIME_LIMIT,
  ON_NAN,
  COMPARE_EVERY,
  HANG_AFTER,
  HELP,
  CKPT,
  CKPT_EVERY,
  CKPT_KEEP,
  CKPT_FILE_SIZE,
  CKPT_FAIL,
  RESUME,
  RESUME_FROM,
  EVAL,
  EVAL_EVERY,
  EVAL_BATCHES,
  PREDICT
};
static const struct option list[] = {{"recipe", 1, NULL, RECIPE},
                                     {"data", 1, NULL, DATA},
                                     {"steps", 1, NULL, STEPS},
                                     {"seed", 1, NULL, SEED},
                                     {"order", 1, NULL, ORDER},
                                     {"init", 1, NULL, INIT},
                                     {"names", 1, NULL, NAMES},
                                     {"init-partial", 0, NULL, INIT_PARTIAL},
                                     {"save", 1, NULL, SAVE},
                                     {"log", 1, NULL, LOG},
                                     {"print-every", 1, NULL, PRINT_EVERY},
                                     {"quiet", 0, NULL, QUIET},
                                     {"repeatable", 0, NULL, REPEATABLE},
                                     {"debug", 1, NULL, DEBUG_SETTING},
                                     {"exact", 0, NULL, EXACT},
                                     {"trace", 1, NULL, TRACE},
                                     {"trace-steps", 1, NULL, TRACE_STEPS},
                                     {"threads", 1, NULL, THREADS},
                                     {"device", 1, NULL, DEVICE},
                                     {"cluster", 1, NULL, CLUSTER},
                                     {"times", 0, NULL, TIMES},
                                     {"dry-run", 0, NULL, DRY},
                                     {"time-limit", 1, NULL, TIME_LIMIT},
                                     {"on-nan", 1, NULL, ON_NAN},
                                     {"compare-every", 1, NULL, COMPARE_EVERY},
                                     {"hang-after", 1, NULL, HANG_AFTER},
                                     {"help", 0, NULL, HELP},
                                     {"ckpt", 1, NULL, CKPT},
                                     {"ckpt-every", 1, NULL, CKPT_EVERY},
                                     {"ckpt-keep", 1, NULL, CKPT_KEEP},
                                     {"ckpt-file-size", 1, NULL, CKPT_FILE_SIZE},
                                     {"ckpt-fail", 1, NULL, CKPT_FAIL},
                                     {"resume", 0, NULL, RESUME},
                                     {"resume-from", 1, NULL, RESUME_FROM},
                                     {"eval", 1, NULL, EVAL},
                                     {"eval-every", 1, NULL, EVAL_EVERY},
                                     {"eval-batches", 1, NULL, EVAL_BATCHES},
                                     {"predict", 1, NULL, PREDICT},
                                     {NULL, 0, NULL, 0}};

enum { HANG_AFTER_S = 600 };

/* What is added here is added to zx_option_facts. */
bool zx_parse_options(int argc, char **argv, ZxOptions *o, const char *who) {
  const char *device = NULL;
  const char *train_only = NULL; /* an option that `eval` does not have */
  *o = (ZxOptions){.steps = -1,
                   .seed = 1,
                   .threads = 1,
                   .compare_every = 100,
                   .hang_after = HANG_AFTER_S,
                   .ckpt_seconds = 30 * 60,
                   .ckpt_file_size = 4000000000};
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
    case NAMES: o->names = optarg; break;
    case INIT_PARTIAL: o->init_partial = true; break;
    case SAVE: o->save = optarg; break;
    case LOG: o->log = optarg; break;
    case PRINT_EVERY: good = number(optarg, 1, &o->print_every); break;
    case QUIET: o->quiet = true; break;
    case EXACT: o->exact = true; break;
    case TRACE: o->trace = optarg; break;
    case TRACE_STEPS: good = steps(optarg, &o->trace_from, &o->trace_to); break;
    case THREADS: good = number(optarg, 1, &n) && n <= 1024, o->threads = (int)n; break;
    case DEVICE: device = optarg; break;
    case CLUSTER: o->cluster = optarg; break;
    case TIMES: o->times = true; break;
    case DRY: o->dry_run = true; break;
    case REPEATABLE: o->repeatable = true; break;
    case DEBUG_SETTING: good = zk_debug_take(&o->debug, optarg, &err); break;
    case CKPT: o->ckpt = optarg; break;
    case CKPT_EVERY: good = interval(optarg, o); break;
    case CKPT_KEEP: good = number(optarg, 1, &o->ckpt_keep) && o->ckpt_keep < INT32_MAX; break;
    case CKPT_FILE_SIZE: good = zb_size(optarg, &o->ckpt_file_size); break;
    case CKPT_FAIL:
      o->ckpt_fail_ends = !strcmp(optarg, "end");
      good = o->ckpt_fail_ends || !strcmp(optarg, "go-on");
      break;
    case RESUME: o->resume = true; break;
    case RESUME_FROM: o->resume_from = optarg; break;
    case ON_NAN:
      good = !strcmp(optarg, "end") || !strcmp(optarg, "skip");
      o->on_nan = !strcmp(optarg, "end") ? ZX_ON_NAN_END : ZX_ON_NAN_SKIP;
      break;
    case COMPARE_EVERY: good = number(optarg, 0, &o->compare_every); break;
    case HANG_AFTER: good = zb_duration(optarg, &o->hang_after); break;
    case TIME_LIMIT: good = duration(optarg, &o->time_limit); break;
    case EVAL: o->eval = optarg; break;
    case EVAL_EVERY: good = number(optarg, 1, &o->eval_every); break;
    case PREDICT: o->predict = optarg; break;
    case EVAL_BATCHES: good = number(optarg, 1, &o->eval_batches); break;
    case 'I':
      good = o->ninclude < 16;
      if (good) o->include[o->ninclude++] = optarg;
      break;
    default: /* help was asked for before */
      zb_option_failed(k, argv, list, &err);
      if (k == '?' && !optopt) help_elsewhere(argv[optind - 1], &err);
      if (who) fprintf(stderr, "%s: %s%s%s\n", who, err.text, *err.help ? "; " : "", err.help);
      return false;
    }
    bool both = k == 'I' || k == RECIPE || k == DATA || k == INIT || k == NAMES || k == LOG || k == THREADS ||
                k == DEVICE || k == CLUSTER || k == DRY || k == EXACT || k == REPEATABLE ||
                k == DEBUG_SETTING || k == HANG_AFTER || k == EVAL_BATCHES || k == PREDICT;
    if (!both) train_only = list[long_one].name;
    if (!good) {
      const char *name = k == 'I' ? "I" : list[long_one].name;
      if (who && k == 'I') fprintf(stderr, "%s: at most 16 folders with -I\n", who);
      else if (who && *err.text)
        fprintf(stderr, "%s: --%s: %s%s%s\n", who, name, err.text, *err.help ? "; " : "", err.help);
      else if (who)
        fprintf(stderr, "%s: wrong value `%s` for --%s; zrun --help lists what is meant\n", who,
                zb_show(optarg), name);
      return false;
    }
  }
  if (device && o->dry_run) o->device = zx_device_to_plan(device, &o->device_note);
  else o->device = zx_device(device ? device : "auto", &o->device_note);
  if (!o->device) {
    const ZbErr *err = &o->device_note;
    if (who && *err->text)
      fprintf(stderr, "%s: --device: %s%s%s\n", who, err->text, *err->help ? "; " : "", err->help);
    else if (who)
      fprintf(stderr, "%s: wrong value `%s` for --device; zrun --help lists what is meant\n", who,
              zb_show(device));
    return false;
  }
  const char *missing = NULL;
  o->evaluates = optind + 2 == argc && !strcmp(argv[optind], "eval");
  if (o->evaluates && train_only) {
    if (who) fprintf(stderr, "%s: `eval` has no --%s; zrun --help lists all options\n", who, train_only);
    return false;
  }
  if (!o->evaluates && (optind + 2 != argc || strcmp(argv[optind], "train")))
    missing = "train GRAPH.zsg or eval GRAPH.zsg";
  else if (!o->recipe) missing = "--recipe FILE:NAME";
  else if (!o->data && o->steps && !o->dry_run) missing = "--data FILE";
  else if (o->evaluates && !o->init && !o->dry_run) missing = "--init FILE, the weights to evaluate";
  else if (o->steps < 0 && !o->dry_run && !o->evaluates) missing = "--steps K";
  else if (o->resume && !o->ckpt) missing = "--ckpt DIR, the folder to --resume from";
  else if (o->init_partial && !o->init) missing = "--init FILE, of which --init-partial takes what there is";
  else if (o->names && !o->init) missing = "--init DIR, the weights that have such --names";
  else if (!o->evaluates && !o->eval && (o->eval_every || o->eval_batches)) missing = "--eval FILE";
  if (!missing && o->trace_to && !o->trace) missing = "--trace FILE";
  if (!missing && o->predict && !o->evaluates) missing = "--predict to `eval` alone";
  if (missing && who) fprintf(stderr, "%s: give %s; zrun --help lists all options\n", who, missing);
  if (missing) return false;
  o->graph = argv[optind + 1];
  return true;
}

/* Files to read are compared by what is in them, wherever they lie: nodes may have copies. Files to write are
 * one for all ranks. -I only says where to look. */
void zx_option_facts(ZxFacts *f, const ZxOptions *o) {
  static const char *const no_yes[] = {"no", "yes"}, *const on_nan[] = {"not given", "end", "skip"};
  zx_fact(f, ZX_OPTIONS, "the command", "%s", o->evaluates ? "eval" : "train");
  zx_fact(f, ZX_OPTIONS, "--device", "%s", o->device->name);
  zx_fact(f, ZX_OPTIONS, "--steps", "%" PRId64, o->steps);
  zx_fact(f, ZX_OPTIONS, "--seed", "%" PRIu64, o->seed);
  zx_fact(f, ZX_OPTIONS, "--order", "%s", o->order == ZX_ORDER_SEQUENTIAL ? "sequential" : "shuffled");
  zx_fact(f, ZX_OPTIONS, "--threads", "%d", o->threads);
  zx_fact(f, ZX_OPTIONS, "--hang-after", "%.0f s", o->hang_after);
  zx_fact(f, ZX_OPTIONS, "--on-nan", "%s", on_nan[o->on_nan]);
  zx_fact(f, ZX_OPTIONS, "--compare-every", "%" PRId64, o->compare_every);
  zx_fact(f, ZX_OPTIONS, "--time-limit", "%.0f s", o->time_limit);
  zx_fact(f, ZX_OPTIONS, "--times", "%s", no_yes[o->times]);
  zx_fact(f, ZX_OPTIONS, "--dry-run", "%s", no_yes[o->dry_run]);
  zx_fact(f, ZX_OPTIONS, "a file for --data", "%s", no_yes[o->data != NULL]);
  zx_fact(f, ZX_OPTIONS, "a file for --init", "%s", no_yes[o->init != NULL]);
  zx_fact(f, ZX_OPTIONS, "--names", "%s", o->names ? o->names : "none");
  zx_fact(f, ZX_OPTIONS, "--init-partial", "%s", no_yes[o->init_partial]);
  zx_fact(f, ZX_OPTIONS, "--cluster", "%s", zx_auto_cluster(o) ? "auto" : o->cluster ? "of a file" : "none");
  zx_fact(f, ZX_OPTIONS, "--save", "%s", o->save ? o->save : "none");
  zx_fact(f, ZX_OPTIONS, "--ckpt", "%s", o->ckpt ? o->ckpt : "none");
  zx_fact(f, ZX_OPTIONS, "--ckpt-every", "%" PRId64 " steps, %g s", o->ckpt_steps, o->ckpt_seconds);
  zx_fact(f, ZX_OPTIONS, "--ckpt-keep", "%" PRId64, o->ckpt_keep);
  zx_fact(f, ZX_OPTIONS, "--ckpt-file-size", "%" PRId64, o->ckpt_file_size);
  zx_fact(f, ZX_OPTIONS, "--ckpt-fail", "%s", o->ckpt_fail_ends ? "end" : "go-on");
  zx_fact(f, ZX_OPTIONS, "--resume", "%s", no_yes[o->resume]);
  zx_fact(f, ZX_OPTIONS, "--resume-from", "%s", o->resume_from ? o->resume_from : "none");
  zx_fact(f, ZX_OPTIONS, "a file for --eval", "%s", no_yes[o->eval != NULL]);
  zx_fact(f, ZX_OPTIONS, "--eval-every", "%" PRId64, o->eval_every);
  zx_fact(f, ZX_OPTIONS, "--eval-batches", "%" PRId64, o->eval_batches);
  zx_fact(f, ZX_OPTIONS, "--predict", "%s", o->predict ? o->predict : "none");
  zx_fact(f, ZX_OPTIONS, "--trace", "%s", o->trace ? o->trace : "none");
  zx_fact(f, ZX_OPTIONS, "--trace-steps", "%" PRId64 " to %" PRId64, o->trace_from, o->trace_to);
  zx_fact(f, ZX_OPTIONS, "--print-every", "%" PRId64, o->print_every);
  zx_fact(f, ZX_OPTIONS, "--quiet", "%s", no_yes[o->quiet]);
  zx_fact(f, ZX_OPTIONS, "--repeatable", "%s", no_yes[o->repeatable]);
  for (ZkDebugName n = 0; n < ZK_DEBUGS; n++) {
    char text[24];
    zx_fact(f, ZX_OPTIONS, zb_printf(f->a, "--debug %s", zk_debug_name(n)), "%s",
            zk_debug_text(&o->debug, n, text));
  }
  zx_fact(f, ZX_OPTIONS, "--exact", "%s", no_yes[o->exact]);
  zx_fact(f, ZX_OPTIONS, "--log", "%s", o->log ? o->log : "none");
}

double zx_hang_after(ZbArena *a, int argc, char **argv) {
  char **copy = ZB_NEWN(a, char *, argc + 1); /* whose order changes */
  double limit = HANG_AFTER_S, given;
  memcpy(copy, argv, (size_t)argc * sizeof *copy);
  optind = 0;
  opterr = 0;
  for (int k; (k = getopt_long(argc, copy, ":I:h", list, NULL)) != -1;)
    if (k == HANG_AFTER && zb_duration(optarg, &given)) limit = given;
  return limit;
}

bool zx_auto_cluster(const ZxOptions *o) { return o->cluster && !strcmp(o->cluster, "auto"); }

bool zx_asks_help(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t n = strlen(argv[i]);
    if (!strncmp(argv[i], "-h", 2) || (n > 2 && !strncmp("--help", argv[i], n))) return true;
  }
  return false;
}
