/* zrun's options: what they become, their limits, and what is said of each that is wrong. */
#include "lang/lang.h"
#include "runtime/exec/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>

enum { MOST = 64 };
static ZxOptions o;

/* Of words with a blank between them. */
static bool parse(const char *line, const char *who) {
  static char text[2048];
  char *argv[MOST + 1], *rest = NULL;
  int argc = 0;
  snprintf(text, sizeof text, "zrun %s", line);
  for (char *w = strtok_r(text, " ", &rest); w && argc < MOST; w = strtok_r(NULL, " ", &rest))
    argv[argc++] = w;
  argv[argc] = NULL;
  errno = ERANGE; /* of something else */
  return zx_parse_options(argc, argv, &o, who);
}
#define GOOD(line) cr_assert(parse("train g.zsg --recipe r.zug:a " line, NULL), "%s", line)
#define BAD(line) cr_expect(!parse("train g.zsg --recipe r.zug:a " line, NULL), "%s", line)

Test(options, what_they_become) {
  GOOD("--data d.bin --steps 7");
  cr_expect(!strcmp(o.graph, "g.zsg") && !strcmp(o.recipe, "r.zug:a") && !strcmp(o.data, "d.bin"));
  cr_expect(o.steps == 7 && o.seed == 1 && o.threads == 1 && o.order == ZX_ORDER_SHUFFLED);
  cr_expect(!o.init && !o.save && !o.log && !o.cluster && !o.ninclude && !o.times && !o.dry_run && o.device);
  GOOD("--dry-run --times --init i --save s --log l --cluster c -I one -Itwo --order sequential --seed 0 "
       "--threads 1024 --device cpu");
  cr_expect(o.dry_run && o.times && !strcmp(o.init, "i") && !strcmp(o.save, "s") && !strcmp(o.log, "l"));
  cr_expect(!strcmp(o.cluster, "c") && o.ninclude == 2 && !strcmp(o.include[0], "one") &&
            !strcmp(o.include[1], "two"));
  cr_expect(o.order == ZX_ORDER_SEQUENTIAL && o.seed == 0 && o.threads == 1024 &&
            !strcmp(o.device->name, "cpu"));
  GOOD("--steps 9223372036854775807 --data d --order shuffled");
  cr_expect(o.steps == INT64_MAX && o.order == ZX_ORDER_SHUFFLED);
}

Test(options, limits) {
  GOOD("--steps 0");
  BAD("--steps 1");
  GOOD("--steps 1 --dry-run");
  BAD("--data d");
  BAD("--data d --steps -1");
  BAD("--data d --steps 9223372036854775808");
  BAD("--data d --steps 3x");
  BAD("--data d --steps 1 --seed -1");
  BAD("--data d --steps 1 --threads 0");
  BAD("--data d --steps 1 --threads 1025");
  BAD("--data d --steps 1 --threads 4294967297");
  BAD("--data d --steps 1 --order random");
  BAD("--data d --steps 1 --device gpu");
  BAD("--data d --steps 1 more");
  BAD("--dry-run --debug attend-piece=0");
  BAD("--dry-run --debug attend-piece=1048577");
  GOOD("--dry-run --debug attend-piece=1048576");
  BAD("--dry-run --debug graph-nodes=-1");
  BAD("--dry-run --debug graph-nodes=0x10");
  BAD("--dry-run --debug graph-nodes=99999999999999999999");
  BAD("--dry-run --debug epilogues=1");
  BAD("--dry-run --debug epilogues=");
  BAD("--dry-run --debug graph-node=1");
  GOOD("--dry-run -I a -I b -I c -I d -I e -I f -I g -I h -I i -I j -I k -I l -I m -I n -I o -I p");
  cr_expect(o.ninclude == 16 && !strcmp(o.include[15], "p"));
  BAD("--dry-run -I a -I b -I c -I d -I e -I f -I g -I h -I i -I j -I k -I l -I m -I n -I o -I p -I q");
  cr_expect(!parse("trains g.zsg --recipe r --dry-run", NULL));
  cr_expect(!parse("train --recipe r --dry-run", NULL));
  cr_expect(!parse("train g.zsg --dry-run", NULL));
}

Test(options, what_is_said) {
  cr_redirect_stderr();
  cr_expect(parse("train g --recipe r --dry-run", "zrun"));
  cr_expect(!parse("train g --recipe r --dry-run --steps", NULL));
  cr_expect(!parse("train g --recipe r --dry-run --seed 1 --steps x", "zrun"));
  cr_expect(!parse("train g --recipe r --device none", "zrun"));
  cr_expect(!parse("train g --recipe r --step", "zrun"));
  cr_expect(!parse("train g --recipe r --stepz", "zrun"));
  cr_expect(!parse("train g --recipe r --data d", "zrun"));
  cr_expect(!parse("train g --recipe r --steps 1", "zrun"));
  cr_expect(!parse("train g", "zrun"));
  cr_expect(!parse("g --recipe r", "zrun"));
  cr_expect(!parse("train g --recipe r --debug piece=4", "zrun"));
  cr_expect(!parse("train g --recipe r --debug graph-nodes", "zrun"));
  cr_expect(!parse("train g --recipe r --debug epilogues=none", "zrun"));
  cr_expect(!parse("train g --recipe r --debug attend-piece=0", "zrun"));
  cr_expect(
      !parse("-I 1 -I 2 -I 3 -I 4 -I 5 -I 6 -I 7 -I 8 -I 9 -I 10 -I 11 -I 12 -I 13 -I 14 -I 15 -I 16 -I 17",
             "zrun"));
  fflush(stderr);
  cr_expect_stderr_eq_str("zrun: wrong value `x` for --steps; zrun --help lists what is meant\n"
                          "zrun: wrong value `none` for --device; zrun --help lists what is meant\n"
                          "zrun: option '--steps' requires an argument\n"
                          "zrun: unrecognized option '--stepz'; did you mean --steps?\n"
                          "zrun: give --steps K; zrun --help lists all options\n"
                          "zrun: give --data FILE; zrun --help lists all options\n"
                          "zrun: give --recipe FILE:NAME; zrun --help lists all options\n"
                          "zrun: give train GRAPH.zsg or eval GRAPH.zsg; zrun --help lists all options\n"
                          "zrun: --debug: there is no setting `piece`; there are attend-piece=MIB, "
                          "epilogues=on|off, graph-nodes=N, nccl-alone=on|off\n"
                          "zrun: --debug: graph-nodes lacks its value: give graph-nodes=N\n"
                          "zrun: --debug: epilogues is on or off, not `none`\n"
                          "zrun: --debug: attend-piece is a whole number from 1 to 1048576, not `0`\n"
                          "zrun: at most 16 folders with -I\n");
}

/* Options of other frameworks lead to what says it here. None of them is one of ours, and what is to be
 * given instead is. */
Test(options, of_other_frameworks) {
  static const struct {
    const char *option, *help;
  } cases[] = {
      {"--lr", "the recipe says it: `optimizer adamw(lr = 3e-4)`"},
      {"--learning-rate=0.1", "the recipe says it: `optimizer adamw(lr = 3e-4)`"},
      {"--weight_decay", "the recipe says it: `optimizer adamw(lr = 3e-4) decay 0.1 except norm, bias`"},
      {"--batch-size", "the recipe says it: `bind batch = 64`"},
      {"--BF16", "the recipe says it: `precision compute bf16`"},
      {"--epochs", "--steps K: how many optimizer steps; the run says how often that goes through the data"},
      {"--max-steps", "--steps K"},
      {"--random_seed", "--seed S"}};
  ZbText want = {0};
  cr_redirect_stderr();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[64];
    snprintf(line, sizeof line, "train g --recipe r %s 0.1", cases[i].option);
    cr_expect(!parse(line, "zrun"));
    zb_text_add(&want, "zrun: unrecognized option '%s'; %s\n", cases[i].option, cases[i].help);
  }
  fflush(stderr);
  cr_expect_stderr_eq_str(want.s);
  zb_text_free(&want);
}

static const char *const elsewhere[][2] = {
#define OPTION(word, help) {word, help},
#include "runtime/exec/elsewhere.def"
};
Test(options, of_others_are_none_of_ours) {
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
    const char *word = elsewhere[i][0], *help = elsewhere[i][1];
    char name[64];
    snprintf(name, sizeof name, "\n  --%s ", word);
    for (char *c = name; *c; c++) *c = *c == '_' ? '-' : *c;
    cr_expect(!strstr(zx_usage, name) && !zl_said_elsewhere(word), "%s", word);
    for (size_t k = 0; k < i; k++) cr_expect(strcmp(word, elsewhere[k][0]), "%s is there twice", word);
    if (strncmp(help, "--", 2)) continue;
    snprintf(name, sizeof name, "\n  %.*s ", (int)strcspn(help, " ,:"), help);
    cr_expect(strstr(zx_usage, name), "%s: %s", word, help);
  }
}

Test(options, help) {
  static char *asks[][4] = {{"zrun", "train", "--help"}, {"zrun", "-h"}, {"zrun", "--he"}, {"zrun", "-hx"}};
  static char *does_not[][4] = {{"zrun", "train", "help"}, {"zrun", "--"}, {"--help"}, {"zrun", "--helper"}};
  for (int i = 0; i < 4; i++) {
    int a = 0, b = 0;
    while (asks[i][a]) a++;
    while (does_not[i][b]) b++;
    cr_expect(zx_asks_help(a, asks[i]), "%d", i);
    cr_expect(!zx_asks_help(b, does_not[i]), "%d", i);
  }
}

/* ---- what ranks must have alike ---- */
/* Each option changes what it should, in what it becomes and in what is compared; and whether `eval` has it. */
Test(options, each_by_itself) {
  static const struct {
    const char *line, *facts; /* that differ: "NAME: without -> with" */
    bool of_eval;
  } cases[] = {{"--seed 9", "--seed: 1 -> 9", false},
               {"--order sequential", "--order: shuffled -> sequential", false},
               {"--threads 3", "--threads: 1 -> 3", true},
               {"--hang-after 90s", "--hang-after: 600 s -> 90 s", true},
               {"--on-nan end", "--on-nan: not given -> end", false},
               {"--on-nan skip", "--on-nan: not given -> skip", false},
               {"--compare-every 0", "--compare-every: 100 -> 0", false},
               {"--time-limit 2h", "--time-limit: 0 s -> 7200 s", false},
               {"--times", "--times: no -> yes", false},
               {"--dry-run", "--dry-run: no -> yes", true},
               {"--names n", "--names: none -> n", true},
               {"--init-partial", "--init-partial: no -> yes", false},
               {"--cluster c", "--cluster: none -> of a file", true},
               {"--save s", "--save: none -> s", false},
               {"--ckpt c", "--ckpt: none -> c", false},
               {"--ckpt-every 5", "--ckpt-every: 0 steps, 1800 s -> 5 steps, 0 s", false},
               {"--ckpt-every 90s", "--ckpt-every: 0 steps, 1800 s -> 0 steps, 90 s", false},
               {"--ckpt-keep 2147483646", "--ckpt-keep: 0 -> 2147483646", false},
               {"--ckpt-file-size 20K", "--ckpt-file-size: 4000000000 -> 20000", false},
               {"--ckpt-fail end", "--ckpt-fail: go-on -> end", false},
               {"--ckpt-fail go-on", "", false},
               {"--ckpt c --resume", "--ckpt: none -> c, --resume: no -> yes", false},
               {"--resume-from p", "--resume-from: none -> p", false},
               {"--eval e", "a file for --eval: no -> yes", false},
               {"--eval e --eval-every 4", "a file for --eval: no -> yes, --eval-every: 0 -> 4", false},
               {"--eval e --eval-batches 4", "a file for --eval: no -> yes, --eval-batches: 0 -> 4", false},
               {"--trace t", "--trace: none -> t", false},
               {"--trace t --trace-steps 3-5", "--trace: none -> t, --trace-steps: 0 to 0 -> 3 to 5", false},
               {"--trace t --trace-steps 5", "--trace: none -> t, --trace-steps: 0 to 0 -> 5 to 5", false},
               {"--trace t --trace-steps 5-5", "--trace: none -> t, --trace-steps: 0 to 0 -> 5 to 5", false},
               {"--print-every 2", "--print-every: 0 -> 2", false},
               {"--quiet", "--quiet: no -> yes", false},
               {"--repeatable", "--repeatable: no -> yes", true},
               {"--exact", "--exact: no -> yes", true},
               {"--debug epilogues=off", "--debug epilogues: default -> off", true},
               {"--debug graph-nodes=0", "--debug graph-nodes: default -> 0", true},
               {"--debug attend-piece=1 --debug attend-piece=2", "--debug attend-piece: default -> 2", true},
               {"--log l", "--log: none -> l", true},
               {"-I one", "", true},
               {"--device cpu", "", true}};
  ZbArena *a = zb_arena_new();
  ZxFacts without = {.a = a};
  char line[256];
  cr_redirect_stderr();
  GOOD("--data d --steps 7 --init i");
  zx_option_facts(&without, &o);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxFacts with = {.a = a};
    ZbText t = {0};
    snprintf(line, sizeof line, "train g.zsg --recipe r.zug:a --data d --steps 7 --init i %s", cases[i].line);
    cr_assert(parse(line, NULL), "%s", line);
    zx_option_facts(&with, &o);
    cr_assert_eq(with.n, without.n);
    for (uint32_t k = 0; k < with.n; k++)
      if (with.fact[k].kind != ZX_OPTIONS || strcmp(with.fact[k].value, without.fact[k].value))
        zb_text_add(&t, "%s%s: %s -> %s", t.len ? ", " : "", with.fact[k].name, without.fact[k].value,
                    with.fact[k].value);
    cr_expect_str_eq(t.s ? t.s : "", cases[i].facts, "%s: %s", cases[i].line, t.s);
    zb_text_free(&t);
    snprintf(line, sizeof line, "eval g.zsg --recipe r.zug:a --data d --init i %s", cases[i].line);
    cr_expect_eq(parse(line, NULL), cases[i].of_eval, "%s", line);
  }
  ZxFacts bare = {.a = a};
  cr_assert(parse("eval g --recipe r --data d --init i --predict p --eval-batches 3", NULL));
  zx_option_facts(&bare, &o);
  cr_expect(!strcmp(bare.fact[0].value, "eval") && !strcmp(bare.fact[1].name, "--device") &&
            !strcmp(bare.fact[1].value, o.device->name));
  cr_expect(!strcmp(o.predict, "p") && o.eval_batches == 3 && o.evaluates);
  zb_arena_free(a);
}

/* Before MPI is there, and whatever else is wrong; arguments stay in their order. */
Test(options, hang_after_alone) {
  static const struct {
    const char *argv[8];
    double limit;
  } cases[] = {{{"zrun", "train", "g.zsg"}, 600},
               {{"zrun", "train", "g.zsg", "--hang-after", "5s"}, 5},
               {{"zrun", "--hang-after=2m", "eval", "g.zsg"}, 120},
               {{"zrun", "eval", "--hang-a", "0s"}, 0},
               {{"zrun", "eval", "--log", "--hang-after", "7s"}, 600},
               {{"zrun", "train", "--wrong", "--steps", "x", "--hang-after", "7s"}, 7},
               {{"zrun", "train", "--hang-after", "5"}, 600},
               {{"zrun", "train", "--hang-after"}, 600},
               {{"zrun", "calibrate", "-o", "f", "--hang-after", "1h"}, 3600}};
  ZbArena *a = zb_arena_new();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *argv[8];
    int argc = 0;
    for (; argc < 8 && cases[i].argv[argc]; argc++) argv[argc] = zb_strdup(a, cases[i].argv[argc]);
    cr_expect_eq(zx_hang_after(a, argc, argv), cases[i].limit, "%zu", i);
    for (int k = 0; k < argc; k++) cr_expect_str_eq(argv[k], cases[i].argv[k]);
  }
  zb_arena_free(a);
}

/* What one option wants of others. */
Test(options, what_is_missing) {
  static const char *const cases[][2] = {
      {"eval g --recipe r --data d", "give --init FILE, the weights to evaluate"},
      {"eval g --recipe r --data d --init i --steps 3", "`eval` has no --steps"},
      {"train g --recipe r --data d --steps 1 --resume", "give --ckpt DIR, the folder to --resume from"},
      {"train g --recipe r --data d --steps 1 --init-partial",
       "give --init FILE, of which --init-partial takes what there is"},
      {"train g --recipe r --data d --steps 1 --names n",
       "give --init DIR, the weights that have such --names"},
      {"train g --recipe r --data d --steps 1 --eval-every 2", "give --eval FILE"},
      {"train g --recipe r --data d --steps 1 --eval-batches 2", "give --eval FILE"},
      {"train g --recipe r --data d --steps 1 --trace-steps 2-3", "give --trace FILE"},
      {"train g --recipe r --data d --steps 1 --predict p", "give --predict to `eval` alone"},
  };
  enum { N = sizeof cases / sizeof *cases };
  ZbText want = {0};
  cr_redirect_stderr();
  for (int i = 0; i < N; i++) {
    cr_expect(!parse(cases[i][0], "zrun"), "%s", cases[i][0]);
    zb_text_add(&want, "zrun: %s; zrun --help lists all options\n", cases[i][1]);
  }
  for (const char *const *line =
           (const char *const[]){
               "--steps 1 --on-nan x", "--steps 1 --compare-every -1", "--steps 1 --compare-every x",
               "--steps 1 --ckpt-fail x", "--steps 1 --ckpt-keep 0", "--steps 1 --ckpt-keep 2147483647",
               "--steps 1 --ckpt-every 0", "--steps 1 --print-every 0", "--steps 1 --eval-batches 0",
               "--steps 1 --eval-every 0", "--steps 1 --trace t --trace-steps 5-4",
               "--steps 1 --trace t --trace-steps 0-3", "--steps 1 --trace t --trace-steps 5-",
               "--steps 1 --trace t --trace-steps -5",
               "--steps 1 --trace t --trace-steps 1111111111111111111111111-5", NULL};
       *line; line++) {
    char all[128];
    snprintf(all, sizeof all, "train g --recipe r --data d %s", *line);
    cr_expect(!parse(all, NULL), "%s", all);
  }
  cr_expect(parse("eval g --recipe r --dry-run", NULL));
  fflush(stderr);
  cr_expect_stderr_eq_str(want.s);
  zb_text_free(&want);
}
