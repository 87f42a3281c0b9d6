/* Which checkpoint a run goes on from, and whether it may; when it writes one; what its end says of a
 * prediction. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/report.h"
#include "runtime/exec/saves.h"
#include "tests/unit/exec/manifest_file.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SCRATCH_SUITE(saves);

static ZbErr err;

/* ---- which one ---- */
/* A checkpoint's folder; serial 0: without a manifest. */
static void add(int64_t folder, int64_t step, int64_t serial) {
  const char *path = zx_ckpt_path(a, scratch("."), folder);
  if (serial) manifest_file(a, path, step, serial);
  else cr_assert(mkdir(path, 0777) == 0);
}

/* What is gone on from, or the words of the refusal, and of its help. */
static void finds(ZxOptions o, int64_t step, const char *words, const char *help) {
  ZxComm *c = zx_comm_self();
  const char *path = "";
  ZxManifest *m = NULL;
  err = (ZbErr){0};
  if (!o.ckpt) o.ckpt = scratch(".");
  cr_expect_eq(zx_saves_find(a, c, &o, &path, &m, &err), !words, "%s", err.text);
  if (words) {
    says(err, words);
    cr_expect_str_eq(err.help, help);
  } else if (step < 0) cr_expect(!path);
  else cr_expect(path && m && m->step == step && zx_ckpt_step(path) == step, "%s", path ? path : "none");
  c->t->free(c);
}

Test(saves, which_one) {
  ZxOptions resume = {.resume = true};
  static const char beside[] = "go on from that with --resume-from, or remove the other";
  finds((ZxOptions){0}, -1, NULL, NULL);
  finds(resume, -1, NULL, NULL); /* a beginning */
  add(5, 5, 1);
  finds((ZxOptions){0}, -1, NULL, NULL);
  finds(resume, 5, NULL, NULL);
  add(9, 9, 2);
  finds(resume, 9, NULL, NULL);
  add(7, 7, 3); /* of a run that went back */
  finds(resume, 7, NULL, NULL);
  finds((ZxOptions){.resume_from = zx_ckpt_path(a, scratch("."), 5)}, 5, NULL, NULL);
  finds((ZxOptions){.resume_from = zx_ckpt_path(a, scratch("."), 5), .resume = true}, 5, NULL, NULL);
  finds((ZxOptions){.resume_from = zx_ckpt_path(a, scratch("."), 6)}, 0, "is not a complete checkpoint",
        "`zckpt list` names the checkpoints that there are");
  add(6, 6, 0); /* an earlier one that is broken does not matter */
  finds(resume, 7, NULL, NULL);
  add(8, 4, 4);
  finds(resume, 0,
        "step-00000008 is by its manifest the checkpoint of step 4: a copy, or renamed; complete is ",
        beside);
  says(err, "step-00000007");
  scratch_write("step-00000008/manifest.json", "", 0);
  finds(resume, 0,
        "it is not a manifest of a zug checkpoint; is it altered, or another program's?; complete is ",
        beside);
  static char name[5000];
  memset(name, 'x', sizeof name - 1);
  finds((ZxOptions){.resume_from = name}, 0, "is too long a name", "");
  scratch_write("file", "", 0);
  finds((ZxOptions){.resume = true, .ckpt = scratch("file")}, 0, "cannot read the folder", "");
}

Test(saves, none_that_is_whole) {
  add(8, 8, 0);
  finds((ZxOptions){.resume = true}, 0, "step-00000008 is not a complete checkpoint: cannot open",
        "remove it to begin anew");
  cr_expect(!strstr(err.text, "complete is "));
}

/* ---- whether it fits ---- */
static ZxFacts facts(const ZxFact *list, uint32_t n) {
  return (ZxFacts){.a = a, .fact = (ZxFact *)list, .n = n};
}

Test(saves, facts_that_count) {
  static const ZxFact run[] = {
      {ZX_BUILD, "version", "1"},       {ZX_RECIPE, "clip", "1"},    {ZX_OPTIONS, "--order", "x"},
      {ZX_DATA, "tokens", "12"},        {ZX_GRAPH, "hash", "ff"},    {ZX_OPTIONS, "--steps", "3"},
      {ZX_EVAL_DATA, "t", "4"},         {ZX_OPTIONS, "--seed", "7"}, {ZX_GRAPH, "model", "M"},
      {ZX_CLUSTER, "c", "4"},           {ZX_INIT, "i", "4"},         {ZX_PLAN, "p", "4"},
      {ZX_DATA, "behind the last", "1"}};
  static const char *const want[][3] = {{"model", "hash", "ff"},    {"model", "model", "M"},
                                        {"data", "tokens", "12"},   {"options", "--order", "x"},
                                        {"options", "--seed", "7"}, {"recipe", "clip", "1"}};
  ZxManifest m = {0};
  ZxFacts f = facts(run, 12);
  zx_saves_facts(a, &f, &m);
  cr_assert_eq(m.nfacts, 6);
  for (int i = 0; i < 6; i++)
    cr_expect(!strcmp(m.facts[i].kind, want[i][0]) && !strcmp(m.facts[i].name, want[i][1]) &&
                  !strcmp(m.facts[i].value, want[i][2]),
              "%d: %s %s", i, m.facts[i].kind, m.facts[i].name);
}

Test(saves, what_fits) {
  static ZxCkptFact kept[] = {{"model", "hash", "ff"},  {"model", "source", "a"},
                              {"data", "tokens", "12"}, {"options", "--seed", "7"},
                              {"recipe", "clip", "1"},  {"recipe", "mesh", "2"},
                              {"recipe", "lr", "3"},    {"model", "attend window", "2"}};
  static const struct {
    ZxFact run[7];
    uint32_t n;
    const char *note, *words, *help; /* one of them, or none */
    bool same_model;
  } cases[] = {
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "mesh", "4"},
        {ZX_RECIPE, "lr", "3"}},
       7,
       NULL,
       NULL,
       NULL,
       false},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "2"},
        {ZX_RECIPE, "micro", "4"},
        {ZX_RECIPE, "new", "5"}},
       7,
       "note: the recipe is another than the checkpoint's: clip, was 1, is 2; lr, was 3; new, is 5\n",
       NULL,
       NULL,
       false},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_RECIPE, "new", "5"}},
       7,
       "note: the recipe is another than the checkpoint's: new, is 5\n",
       NULL,
       NULL,
       false},
      {{{ZX_GRAPH, "hash", "fe"}, {ZX_DATA, "tokens", "12"}},
       2,
       NULL,
       "p is of a run with other model: hash ff; this run has fe",
       "compile the same model with the same sizes",
       true},
      /* Another window. */
      {{{ZX_GRAPH, "hash", "fe"},
        {ZX_GRAPH, "source", "b"},
        {ZX_GRAPH, "attend window", "3"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"}},
       7,
       "note: the model computes something else than the checkpoint's, of the same parameters: hash, was ff, "
       "is "
       "fe; attend window, was 2, is 3\n",
       NULL,
       NULL,
       false},
      {{{ZX_GRAPH, "hash", "ff"}, {ZX_GRAPH, "source", "a"}, {ZX_DATA, "tokens", "13"}},
       3,
       NULL,
       "p is of a run with other data: tokens 12; this run has 13",
       "give the same data; other data begin a new run with --init",
       false},
      {{{ZX_GRAPH, "hash", "ff"}, {ZX_GRAPH, "source", "a"}, {ZX_DATA, "bytes", "12"}},
       3,
       NULL,
       "p is of a run with other data: tokens 12; this run has none",
       "give the same data; other data begin a new run with --init",
       false},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "8"}},
       4,
       NULL,
       "p is of a run with --seed 7; this run has 8",
       "give the same as before",
       false},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_DATA, "documents", "5"}},
       7,
       NULL,
       "p is of a run with other data: documents none; this run has 5",
       "give the same data; other data begin a new run with --init",
       false},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "a"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_OPTIONS, "--steps", "5"}},
       7,
       NULL,
       NULL,
       NULL,
       false},
      /* Another comment. */
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_GRAPH, "source", "b"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "4"}},
       6,
       "note: the model's source differs from the checkpoint's; what it computes is the same\n"
       "note: the recipe is another than the checkpoint's: lr, was 3, is 4\n",
       NULL,
       NULL,
       false}};
  const ZxManifest m = {.facts = kept, .nfacts = 8};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxFacts f = facts(cases[i].run, cases[i].n);
    ZbText note = {0};
    err = (ZbErr){0};
    cr_expect_eq(zx_saves_fit(&m, "p", &f, cases[i].same_model, &note, &err), !cases[i].words, "%zu", i);
    if (!cases[i].words) cr_expect_str_eq(note.s ? note.s : "", cases[i].note ? cases[i].note : "", "%zu", i);
    cr_expect_str_eq(err.text, cases[i].words ? cases[i].words : "");
    cr_expect_str_eq(err.help, cases[i].help ? cases[i].help : "");
    zb_text_free(&note);
  }
}

/* Whatever says how a model is spread is no difference. */
Test(saves, layouts) {
  for (const char *const *name =
           (const char *const[]){"name", "mesh", "split embed", "stages", "shard", "micro", "recompute",
                                 "schedule", "pad", "limit", "model", "attention", "prefetch", "chunk", NULL};
       *name; name++) {
    ZxFact now = {ZX_RECIPE, *name, "1"};
    ZxFacts f = facts(&now, 1), none = facts(NULL, 0);
    ZxManifest m = {.facts = &(ZxCkptFact){"recipe", *name, "2"}, .nfacts = 1}, empty = {0};
    ZbText note = {0};
    cr_expect(zx_saves_fit(&m, "p", &f, true, &note, &err) &&
                  zx_saves_fit(&m, "p", &none, true, &note, &err) &&
                  zx_saves_fit(&empty, "p", &f, true, &note, &err) && !note.s,
              "%s", *name);
  }
}

/* ---- when one is written ---- */
/* By a rank alone, of a model without parameters, into the folder `kept`. */
static ZxEngine engine;
static ZxSaves writes;

static void begin(const ZxOptions *o) {
  static ZgGraph graph;
  static ZpBuf snapshot = {.kind = ZP_B_SNAPSHOT};
  static ZpStage stage = {.prog = {.bufs = &snapshot, .nbufs = 1}};
  static const ZpPlan plan = {
      .graph = &graph, .programs.stages = &stage, .programs.nstages = 1, .layout.mesh = {.nranks = 1}};
  const ZxCheckpointsOptions c = {
      .dir = "kept", .most = 100, .base = {.version = "1", .model = "M", .command = "c", .recipe = "r"}};
  cr_redirect_stdout();
  cr_redirect_stderr();
  cr_assert(chdir(scratch(".")) == 0);
  engine = (ZxEngine){.a = a, .p = &plan, .st = &stage, .world = zx_comm_self(), .dev = &zx_device_cpu};
  writes = (ZxSaves){.o = o, .c = zx_checkpoints_open(&engine, &c, &err), .a = a, .since = zb_now()};
  cr_assert(writes.c, "%s", err.text);
}

/* What the thread is about, when it is done. */
static void ready(double flags[ZX_SAVES_FLAGS]) {
  do zx_saves_flags(&writes, flags);
  while (flags[0] > 0);
}

/* After a step: whether the run goes on, and of which step a checkpoint was begun last. */
static void step(int64_t number, bool goes_on, int64_t begun) {
  double flags[ZX_SAVES_FLAGS];
  ready(flags);
  cr_expect_eq(zx_saves_step(&writes, number, flags), goes_on, "step %d", (int)number);
  cr_expect_eq(writes.begun, begun, "step %d: %d, not %d", (int)number, (int)writes.begun, (int)begun);
}

static void are_there(const char *steps) {
  ZxCkptEntry *all;
  ZbText t = {0};
  uint32_t n = zx_ckpt_list(a, "kept", &all, &err);
  for (uint32_t i = 0; i < n; i++) zb_text_add(&t, "%s%d", i ? " " : "", (int)all[i].step);
  cr_expect_str_eq(t.s ? t.s : "", steps, "%s", t.s);
  zb_text_free(&t);
}

/* What was printed at once, without the digits of times. */
static void printed(const char *want) {
  static char text[2000];
  size_t n = 0;
  for (int c; n < sizeof text - 1 && (c = fgetc(cr_get_redirected_stdout())) != EOF; n++) text[n] = (char)c;
  for (char *s = text; (s = strstr(s, " s")); s++)
    for (char *digit = s; digit > text && strchr("0123456789.#", digit[-1]); digit--)
      if (digit[-1] != '.') digit[-1] = '#';
  cr_expect_str_eq(text, want, "%s", text);
}
#define SAVED(step)                                                                                          \
  "checkpoint kept/step-0000000" step                                                                        \
  ": 0 B, at most 0 B by one rank, written in #.## s, complete after #.## s\n"

Test(saves, every_so_many_steps) {
  ZxOptions o = {.ckpt_steps = 2};
  const double works[ZX_SAVES_FLAGS] = {1};
  begin(&o);
  step(1, true, 0);
  step(2, true, 2);
  cr_expect(zx_saves_step(&writes, 4, works) && writes.begun == 2, "it is still written");
  step(4, true, 2); /* it gets its name, and so the next one is late */
  step(5, true, 5);
  cr_expect_str_eq(writes.good, "kept/step-00000002");
  cr_expect(writes.seconds > 0 && writes.since <= zb_now());
  step(6, true, 5);
  o.quiet = true;
  step(7, true, 7);
  cr_expect(zx_saves_end(&writes, 7));
  cr_expect_str_eq(writes.good, "kept/step-00000007");
  are_there("2 5 7");
  o.quiet = false;
  cr_expect(zx_saves_end(&writes, 7), "that of the last step is there");
  are_there("2 5 7");
  cr_expect(zx_saves_end(&writes, 8));
  writes.rank = 1; /* which says nothing */
  cr_expect(zx_saves_end(&writes, 9));
  cr_expect_str_eq(writes.good, "kept/step-00000009");
  are_there("2 5 7 8 9");
  zx_checkpoints_close(writes.c);
  printed(SAVED("2") SAVED("8"));
}

Test(saves, every_so_many_seconds) {
  static const struct {
    double every, passed;
    int rank;
    bool due;
  } cases[] = {
      {100, 200, 0, true}, {0.5, 1, 0, true}, {300, 200, 0, false}, {100, 200, 1, false}, {0, 200, 0, false}};
  ZxOptions o = {0};
  double flags[ZX_SAVES_FLAGS];
  begin(&o);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    o.ckpt_seconds = cases[i].every;
    writes.rank = cases[i].rank;
    writes.since = zb_now() - cases[i].passed;
    zx_saves_flags(&writes, flags);
    cr_expect(flags[0] == 0 && flags[1] == 0 && flags[2] == cases[i].due, "%zu", i);
  }
  step(1, true, 0);
  cr_expect(zx_saves_step(&writes, 2, (double[]){0, 0, 1}) && writes.begun == 2);
  cr_expect_float_eq(writes.since, zb_now(), 50, "from then on time counts anew");
  cr_expect(zx_saves_end(&writes, 2));
  are_there("2");
  zx_checkpoints_close(writes.c);
  writes.c = NULL; /* a run without */
  flags[0] = flags[1] = flags[2] = 1;
  zx_saves_flags(&writes, flags);
  cr_expect(flags[0] == 0 && flags[1] == 0 && flags[2] == 0);
  cr_expect(zx_saves_step(&writes, 9, (double[]){0, 1, 1}) && zx_saves_end(&writes, 9));
  are_there("2");
}

/* Their folder goes away and comes back. */
Test(saves, what_cannot_be_written) {
  ZxOptions o = {.ckpt_steps = 1};
  double flags[ZX_SAVES_FLAGS];
  begin(&o);
  cr_assert(rename("kept", "gone") == 0);
  step(1, true, 1);
  ready(flags);
  cr_expect(flags[0] == 0 && flags[1] == 1);
  cr_assert(rename("gone", "kept") == 0);
  step(2, true, 2); /* and so the next one is begun */
  step(3, true, 2);
  ready(flags);
  cr_assert(rename("kept", "gone") == 0);
  step(4, true, 4);
  cr_expect_str_eq(writes.good, "kept/step-00000002");
  o.ckpt_fail = ZX_CKPT_FAIL_END;
  o.quiet = true;
  step(5, false, 4);
  cr_expect_str_eq(writes.good, "kept/step-00000002");
  o.quiet = false;
  cr_expect(!zx_saves_end(&writes, 5) && writes.begun == 5);
  step(6, true, 6);
  ready(flags);
  cr_assert(rename("gone", "kept") == 0);
  cr_expect(zx_saves_end(&writes, 6), "it is written once more");
  are_there("2 6");
  zx_checkpoints_close(writes.c);
  printed("note: the checkpoint of step 1 failed, and there is no other\n" SAVED(
      "2") "note: the checkpoint of step 4 failed; complete is kept/step-00000002\n"
           "note: the checkpoint of step 5 failed; complete is kept/step-00000002\n"
           "note: the checkpoint of step 6 failed; complete is kept/step-00000002\n" SAVED("6"));
}

/* ---- predictions ---- */
Test(saves, what_was_off) {
  cr_redirect_stdout();
  ZpTime p = {.seconds = 0.01};
  p.mean[ZP_T_TENSOR] = 0.001, p.mean[ZP_T_DATA] = 0.0005, p.mean[ZP_T_IDLE] = 0.0005,
  p.mean[ZP_T_OPTIMIZER] = 0.003;
  zx_report_prediction(&(ZxStepTimes){0}, &p);
  zx_report_prediction(&(ZxStepTimes){.known = 2, .step = 24, .waited = -2}, &p);
  zx_report_prediction(&(ZxStepTimes){.known = 2, .step = 24, .waited = 5}, &p);
  zx_report_prediction(&(ZxStepTimes){.known = 2, .step = 24, .waited = 8}, &p);
  p.mean[ZP_T_TENSOR] = p.mean[ZP_T_DATA] = p.mean[ZP_T_IDLE] = 0;
  zx_report_prediction(&(ZxStepTimes){.known = 1, .step = 5, .waited = 0}, &p);
  fflush(stdout);
  cr_expect_stdout_eq_str(
      "predicted 10 ms a step; in the mean it took 12 (+20 %)\n"
      "predicted 10 ms a step; in the mean it took 12 (+20 %), computing 9.5 ms of 8 (+19 %), "
      "waiting for others 2.5 ms of 2 (+25 %): mostly computing was off\n"
      "predicted 10 ms a step; in the mean it took 12 (+20 %), computing 8 ms of 8 (+0 %), "
      "waiting for others 4 ms of 2 (+100 %): mostly waiting was off\n"
      "predicted 10 ms a step; in the mean it took 5 (-50 %), computing 5 ms of 10 (-50 %), "
      "waiting for others 0 ms of 0 (+0 %): mostly computing was off\n");
}
