/* zrun's options: what they become, their limits, and what one needs of another. */
#include "lang/lang.h"
#include "runtime/exec/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { MOST = 64 };
static ZbArena *a;
static ZxOptions o;
static ZbErr err;

/* Parses words with a blank between them. */
static bool parse(const char *line) {
  static char text[2048];
  char *argv[MOST + 1], *rest = NULL;
  int argc = 0;
  if (!a) a = zb_arena_new();
  err = (ZbErr){0};
  snprintf(text, sizeof text, "zrun %s", line);
  for (char *w = strtok_r(text, " ", &rest); w && argc < MOST; w = strtok_r(NULL, " ", &rest))
    argv[argc++] = w;
  argv[argc] = NULL;
  errno = ERANGE; /* of something else */
  return zx_parse_options(a, argc, argv, &o, &err);
}
#define GOOD(line) cr_assert(parse("train g.zsg --recipe r.zug:a " line), "%s: %s", line, err.text)
#define BAD(line) cr_expect(!parse("train g.zsg --recipe r.zug:a " line), "%s", line)
static void says(const char *line, const char *text, const char *help) {
  cr_expect(!parse(line), "%s", line);
  cr_expect_str_eq(err.text, text);
  cr_expect_str_eq(err.help, help);
}

Test(options, what_they_become) {
  GOOD("--data d.bin --steps 7");
  cr_expect(!strcmp(o.graph, "g.zsg") && !strcmp(o.recipe, "r.zug:a") && !strcmp(o.data, "d.bin"));
  cr_expect(o.steps == 7 && o.seed == 1 && o.threads == 1 && o.order == ZX_ORDER_SHUFFLED);
  cr_expect(!o.init && !o.save && !o.log && !o.cluster && !o.include.n && !o.times && !o.dry_run && o.device);
  GOOD("--dry-run --times --init i --save s --log l --cluster c -I one -Itwo --order sequential --seed 0 "
       "--threads 1024 --device cpu");
  cr_expect(o.dry_run && o.times && !strcmp(o.init, "i") && !strcmp(o.save, "s") && !strcmp(o.log, "l"));
  cr_expect(!strcmp(o.cluster, "c") && o.include.n == 2 && !strcmp(o.include.s[0], "one") &&
            !strcmp(o.include.s[1], "two"));
  cr_expect(o.order == ZX_ORDER_SEQUENTIAL && o.seed == 0 && o.threads == 1024 &&
            !strcmp(o.device->name, "cpu"));
  GOOD("--steps 9223372036854775807 --data d --order shuffled");
  cr_expect(o.steps == INT64_MAX && o.order == ZX_ORDER_SHUFFLED);
}

Test(options, generate) {
  cr_assert(parse("generate dir --prompt A --prompt B --max-tokens 7 --temperature 0.5 -n 2 --stop x "
                  "--logit-bias 5=-2 "
                  "--stop-token-id 9 --seed 8"),
            "%s", err.text);
  cr_expect(o.command == ZX_GENERATE && o.prompt.n == 2 && o.query.max_tokens == 7 &&
            o.query.temperature == 0.5);
  cr_expect(o.query.choices == 2 && o.query.stop.n == 1 && o.query.nbias == 1 && o.query.end[0] == 9);
  cr_expect(o.query.seed == 8 && o.seed == 1 && !strcmp(o.device->name, "cpu"));
  cr_assert(parse("generate dir --prompts a.jsonl -o b.jsonl"));
  cr_expect(o.query.max_tokens == ZX_UNSAID && o.query.top_p == 1 && o.query.repetition == 1 &&
            o.query.choices == 1 && o.query.logprobs == ZX_UNSAID && o.query.seed == ZX_UNSAID);
  says("generate dir", "zrun generate needs --prompt TEXT, --prompt-file FILE, --prompts FILE or --chat",
       "zrun --help shows all commands and options");
  cr_expect(parse("generate dir --chat"));
  cr_expect(parse("generate dir --chat --prompt A -n 2 --system B"));
  says("generate dir --chat -n 2", "-n is not for a conversation", "give --prompt, too, or leave it out");
  says("generate dir --prompt A --system B", "--system begins a conversation", "give --chat, too");
  says("generate dir --prompts a.jsonl", "--prompts needs -o FILE, where the results go",
       "zrun --help shows all commands and options");
  says("generate dir --prompt A --prompts a.jsonl -o b",
       "zrun generate takes --prompts, or --prompt and --prompt-file", "give one of them");
  says("generate dir --prompt A --top-p 3", "--top-p cannot be '3'", "give a number from 0 to 1");
  says("generate dir --prompt A --min-tokens 9 --max-tokens 4", "`min_tokens` is 9, and `max_tokens` 4",
       "ask for more tokens, or let it end sooner");
  says("train g.zsg --recipe r:a --prompt-file A", "zrun train takes no option --prompt-file",
       "it belongs to generate");
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
  cr_expect(!parse("trains g.zsg --recipe r --dry-run"));
  cr_expect(!parse("train --recipe r --dry-run"));
  cr_expect(!parse("train g.zsg --dry-run"));
  BAD("--dry-run -o x");
  cr_expect(!parse("calibrate -o x --recipe r") && !parse("calibrate") && !parse("calibrate -o x y"));
  cr_expect(!parse("calibrate -o x --threads 1025") && !parse("calibrate -o x --hang-after 5"));
  cr_expect(parse("calibrate -o x --threads 2 --device cpu --hang-after 5s"));
  cr_expect(o.command == ZX_CALIBRATE && !strcmp(o.out, "x") && o.threads == 2 && o.hang_after == 5);
}

Test(options, what_is_said) {
  static const char see[] = "zrun --help shows all commands and options";
  says("train g --recipe r --dry-run --seed 1 --steps x", "--steps cannot be 'x'",
       "give a whole number from 0 on");
  says("train g --recipe r --device none", "--device cannot be 'none'", "give auto, cpu or cuda");
  says("train g --recipe r --data d", "zrun train needs --steps K", see);
  says("train g --recipe r --steps 1", "zrun train needs --data FILE", see);
  says("train g", "zrun train needs --recipe FILE:NAME", see);
  says("train g --recipe r --ckpt-every x", "--ckpt-every cannot be 'x'",
       "give a number of steps, or a duration: 90s, 30m, 2h");
  says("train g --recipe r --debug piece=4",
       "--debug: there is no setting `piece`; there are attend-piece=MIB, epilogues=on|off, graph-nodes=N, "
       "nccl-alone=on|off, nccl-capture=on|off",
       "");
  says("train g --recipe r --debug graph-nodes", "--debug: graph-nodes lacks its value: give graph-nodes=N",
       "");
  says("train g --recipe r --debug epilogues=none", "--debug: epilogues is on or off, not `none`", "");
  says("train g --recipe r --debug attend-piece=0",
       "--debug: attend-piece is a whole number from 1 to 1048576, not `0`", "");
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
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char line[64], text[64];
    snprintf(line, sizeof line, "train g --recipe r %s 0.1", cases[i].option);
    snprintf(text, sizeof text, "unrecognized option '%s'", cases[i].option);
    says(line, text, cases[i].help);
  }
}

static const char *const elsewhere[][2] = {
#define OPTION(word, help) {word, help},
#include "runtime/exec/elsewhere.def"
};
Test(options, of_others_are_none_of_ours) {
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
    const char *word = elsewhere[i][0], *help = elsewhere[i][1];
    char name[64];
    snprintf(name, sizeof name, "%s", word);
    for (char *c = name; *c; c++) *c = *c == '_' ? '-' : *c;
    cr_expect(!zb_option_named(&zx_program, name) && !zl_said_elsewhere(word), "%s", word);
    for (size_t k = 0; k < i; k++) cr_expect(strcmp(word, elsewhere[k][0]), "%s is there twice", word);
    if (strncmp(help, "--", 2)) continue;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(help + 2, " ,:"), help + 2);
    cr_expect(zb_option_named(&zx_program, name), "%s: %s", word, help);
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
               {"--eval e --eval-batches 4", "--eval-batches: 0 -> 4, a file for --eval: no -> yes", false},
               {"--trace t", "--trace: none -> t", false},
               {"--trace t --trace-steps 3-5", "--trace: none -> t, --trace-steps: 0 to 0 -> 3 to 5", false},
               {"--trace t --trace-steps 5", "--trace: none -> t, --trace-steps: 0 to 0 -> 5 to 5", false},
               {"--trace t --trace-steps 5-5", "--trace: none -> t, --trace-steps: 0 to 0 -> 5 to 5", false},
               {"--print-every 2", "--print-every: 0 -> 2", false},
               {"--quiet", "--quiet: no -> yes", false},
               {"--repeatable", "--repeatable: no -> yes", true},
               {"--exact", "--exact: no -> yes", true},
               {"--debug epilogues=off", "--debug: none -> epilogues=off", true},
               {"--debug graph-nodes=0", "--debug: none -> graph-nodes=0", true},
               {"--debug attend-piece=1 --debug attend-piece=2", "--debug: none -> attend-piece=2", true},
               {"--log l", "--log: none -> l", true},
               {"-I one", "", true},
               {"--device cpu", "", true}};
  char line[256];
  GOOD("--data d --steps 7 --init i");
  ZxFacts without = {.a = a};
  zx_option_facts(&without, &o);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxFacts with = {.a = a};
    ZbText t = {0};
    snprintf(line, sizeof line, "train g.zsg --recipe r.zug:a --data d --steps 7 --init i %s", cases[i].line);
    cr_assert(parse(line), "%s", line);
    zx_option_facts(&with, &o);
    cr_assert_eq(with.n, without.n);
    for (uint32_t k = 0; k < with.n; k++)
      if (with.fact[k].kind != ZX_OPTIONS || strcmp(with.fact[k].value, without.fact[k].value))
        zb_text_add(&t, "%s%s: %s -> %s", t.len ? ", " : "", with.fact[k].name, without.fact[k].value,
                    with.fact[k].value);
    cr_expect_str_eq(t.s ? t.s : "", cases[i].facts, "%s: %s", cases[i].line, t.s);
    zb_text_free(&t);
    snprintf(line, sizeof line, "eval g.zsg --recipe r.zug:a --data d --init i %s", cases[i].line);
    cr_expect_eq(parse(line), cases[i].of_eval, "%s", line);
  }
  ZxFacts bare = {.a = a};
  cr_assert(parse("eval g --recipe r --data d --init i --predict p --eval-batches 3"));
  zx_option_facts(&bare, &o);
  cr_expect_str_eq(bare.fact[0].value, "eval");
  for (uint32_t i = 0; i < bare.n; i++)
    if (!strcmp(bare.fact[i].name, "--device")) cr_expect_str_eq(bare.fact[i].value, o.device->name);
  cr_expect(!strcmp(o.predict, "p") && o.eval_batches == 3 && o.evaluates);
}

/* Before MPI is there. */
Test(options, hang_after_alone) {
  cr_expect_eq(zx_hang_after(3, (char *[]){"zrun", "train", "g.zsg"}), 600);
  cr_expect_eq(zx_hang_after(4, (char *[]){"zrun", "train", "--hang-after", "5"}), 600);
  cr_expect_eq(zx_hang_after(4, (char *[]){"zrun", "eval", "--hang-a", "0s"}), 0);
  cr_expect_eq(zx_hang_after(6, (char *[]){"zrun", "calibrate", "-o", "f", "--hang-after", "1h"}), 3600);
}

/* What one option wants of others. */
Test(options, what_is_missing) {
  static const char *const cases[][2] = {
      {"eval g --recipe r --data d", "zrun eval needs --init FILE, the weights to evaluate"},
      {"eval g --recipe r --data d --init i --steps 3", "zrun eval takes no option --steps"},
      {"train g --recipe r --data d --steps 1 --resume",
       "zrun train needs --ckpt DIR, the folder to --resume from"},
      {"train g --recipe r --data d --steps 1 --init-partial",
       "zrun train needs --init FILE, which --init-partial completes"},
      {"train g --recipe r --data d --steps 1 --names n",
       "zrun train needs --init FILE, the weights with these --names"},
      {"train g --recipe r --data d --steps 1 --eval-every 2", "zrun train needs --eval FILE"},
      {"train g --recipe r --data d --steps 1 --eval-batches 2", "zrun train needs --eval FILE"},
      {"train g --recipe r --data d --steps 1 --trace-steps 2-3", "zrun train needs --trace FILE"},
      {"train g --recipe r --data d --steps 1 --predict p", "zrun train takes no option --predict"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    cr_expect(!parse(cases[i][0]), "%s", cases[i][0]);
    cr_expect_str_eq(err.text, cases[i][1]);
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
    cr_expect(!parse(all), "%s", all);
  }
  cr_expect(parse("eval g --recipe r --dry-run"));
}
