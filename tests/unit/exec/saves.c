/* Which checkpoint a run goes on from, and whether it may; when a run stops; what its end says of a prediction. */
#include "runtime/exec/report.h"
#include "runtime/exec/saves.h"
#include "runtime/exec/stop.h"
#include "tests/unit/exec/manifest_file.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
        "it is no manifest of a zug checkpoint; is it altered, or another program's?; complete is ", beside);
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
      {ZX_BUILD, "version", "1"}, {ZX_RECIPE, "clip", "1"},    {ZX_OPTIONS, "--order", "x"},
      {ZX_DATA, "tokens", "12"},  {ZX_GRAPH, "hash", "ff"},    {ZX_OPTIONS, "--steps", "3"},
      {ZX_EVAL_DATA, "t", "4"},   {ZX_OPTIONS, "--seed", "7"}, {ZX_GRAPH, "model", "M"},
      {ZX_CLUSTER, "c", "4"},     {ZX_INIT, "i", "4"},         {ZX_PLAN, "p", "4"}};
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
  static ZxCkptFact kept[] = {{"model", "hash", "ff"}, {"data", "tokens", "12"}, {"options", "--seed", "7"},
                              {"recipe", "clip", "1"}, {"recipe", "mesh", "2"},  {"recipe", "lr", "3"}};
  static const struct {
    ZxFact run[6];
    uint32_t n;
    const char *note, *words, *help; /* one of them, or none */
  } cases[] = {
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "mesh", "4"},
        {ZX_RECIPE, "lr", "3"}},
       6,
       NULL,
       NULL,
       NULL},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "2"},
        {ZX_RECIPE, "micro", "4"},
        {ZX_RECIPE, "new", "5"}},
       6,
       "note: the recipe is another than the checkpoint's: clip, was 1, is 2; lr, was 3; new, is 5\n",
       NULL,
       NULL},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_RECIPE, "new", "5"}},
       6,
       "note: the recipe is another than the checkpoint's: new, is 5\n",
       NULL,
       NULL},
      {{{ZX_GRAPH, "hash", "fe"}, {ZX_DATA, "tokens", "12"}},
       2,
       NULL,
       "p is of a run with other model: hash ff; this run has fe",
       "compile the same model with the same sizes"},
      {{{ZX_GRAPH, "hash", "ff"}, {ZX_DATA, "tokens", "13"}},
       2,
       NULL,
       "p is of a run with other data: tokens 12; this run has 13",
       "give the same data; other data begin a new run with --init"},
      {{{ZX_GRAPH, "hash", "ff"}, {ZX_DATA, "bytes", "12"}},
       2,
       NULL,
       "p is of a run with other data: tokens 12; this run has none",
       "give the same data; other data begin a new run with --init"},
      {{{ZX_GRAPH, "hash", "ff"}, {ZX_DATA, "tokens", "12"}, {ZX_OPTIONS, "--seed", "8"}},
       3,
       NULL,
       "p is of a run with --seed 7; this run has 8",
       "give the same as before"},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_DATA, "documents", "5"}},
       6,
       NULL,
       "p is of a run with other data: documents none; this run has 5",
       "give the same data; other data begin a new run with --init"},
      {{{ZX_GRAPH, "hash", "ff"},
        {ZX_DATA, "tokens", "12"},
        {ZX_OPTIONS, "--seed", "7"},
        {ZX_RECIPE, "clip", "1"},
        {ZX_RECIPE, "lr", "3"},
        {ZX_OPTIONS, "--steps", "5"}},
       6,
       NULL,
       NULL,
       NULL}};
  const ZxManifest m = {.facts = kept, .nfacts = 6};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxFacts f = facts(cases[i].run, cases[i].n);
    ZbText note = {0};
    err = (ZbErr){0};
    cr_expect_eq(zx_saves_fit(&m, "p", &f, &note, &err), !cases[i].words, "%zu", i);
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
                                 "schedule", "pad", "limit", NULL};
       *name; name++) {
    ZxFact now = {ZX_RECIPE, *name, "1"};
    ZxFacts f = facts(&now, 1), none = facts(NULL, 0);
    ZxManifest m = {.facts = &(ZxCkptFact){"recipe", *name, "2"}, .nfacts = 1}, empty = {0};
    ZbText note = {0};
    cr_expect(zx_saves_fit(&m, "p", &f, &note, &err) && zx_saves_fit(&m, "p", &none, &note, &err) &&
                  zx_saves_fit(&empty, "p", &f, &note, &err) && !note.s,
              "%s", *name);
  }
}

/* ---- stops ---- */
Test(saves, time_that_is_left) {
  double now = zb_now();
  static const struct {
    double limit, left; /* seconds */
    bool saves;
    double step, save; /* below 0: none yet */
    bool stops;
  } cases[] = {
      {0, 0, false, 5, -1, false},      {100, 9, false, -1, -1, false},  {100, 1.5, false, -1, -1, true},
      {100, 2.5, false, -1, -1, false}, {10, 1.5, false, -1, -1, false}, {10, 0.5, false, -1, -1, true},
      {100, 6, false, 5, -1, true},     {100, 8, false, 5, -1, false},   {100, 11, true, -1, -1, true},
      {100, 13, true, -1, -1, false},   {1000, 61, true, -1, -1, true},  {1000, 63, true, -1, -1, false},
      {1000, 31, true, -1, 20, true},   {1000, 33, true, -1, 20, false}, {1000, 36, true, 5, 20, true},
      {1000, 38, true, 5, 20, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxStop s = zx_stop_new(now + cases[i].left - cases[i].limit, cases[i].limit, cases[i].saves);
    if (cases[i].step >= 0) zx_stop_step(&s, cases[i].step);
    if (cases[i].save >= 0) zx_stop_saved(&s, cases[i].save);
    cr_expect_eq(zx_stop_wanted(&s) != 0, cases[i].stops, "%zu", i);
    if (cases[i].stops) cr_expect_str_eq(zx_stop_why(zx_stop_wanted(&s)), "its time limit");
  }
}

/* The first step is forgotten; a longer one counts at once, and fades. */
Test(saves, usual_times) {
  ZxStop s = zx_stop_new(0, 0, true);
  static const double took[] = {100, 4, 1, 1, 6}, step[] = {100, 4, 3.8, 3.61, 6};
  for (int i = 0; i < 5; i++) {
    zx_stop_step(&s, took[i]);
    cr_expect_float_eq(s.step, step[i], 1e-12, "%d: %g", i, s.step);
  }
  static const double save[] = {10, 8, 6.4, 9};
  for (int i = 0; i < 4; i++) {
    zx_stop_saved(&s, i == 0 ? 10 : i == 3 ? 9 : 1);
    cr_expect_float_eq(s.save, save[i], 1e-12, "%d: %g", i, s.save);
  }
}

Test(saves, signals) {
  static const int those[] = {SIGTERM, SIGUSR1, SIGINT};
  static const char *const names[] = {"SIGTERM", "SIGUSR1", "SIGINT"};
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      ZxStop s = zx_stop_new(0, 0, false);
      zx_stop_on_signals();
      if (zx_stop_wanted(&s)) _exit(1);
      raise(those[i]);
      raise(SIGTERM); /* the first one counts */
      if (zx_stop_wanted(&s) != those[i] || strcmp(zx_stop_why(those[i]), names[i])) _exit(2);
      int out[2];
      if (pipe(out) < 0 || dup2(out[1], STDOUT_FILENO) < 0) _exit(3);
      char room[1 << 16] = {0};
      zx_stop_before_output(); /* there is room */
      if (write(STDOUT_FILENO, "x", 1) != 1 || read(out[0], room, 1) != 1 || *room != 'x') _exit(4);
      if (write(STDOUT_FILENO, room, sizeof room) != sizeof room) _exit(5);
      zx_stop_before_output(); /* nobody reads: what is printed is lost */
      if (write(STDOUT_FILENO, room, sizeof room) != sizeof room) _exit(6);
      raise(SIGINT); /* another ends it */
      _exit(7);
    }
    int status;
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "%s: code %d", names[i],
              WEXITSTATUS(status));
  }
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
