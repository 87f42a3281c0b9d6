/* Checkpoints of a run of several ranks: one goes on from them in any layout as if it had never ended, and
 * what is not the run's, or was altered, is refused. */
#include "runtime/exec/state/snapshot.h"
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(checkpoints, .init = scratch_make, .fini = scratch_remove);

#define LAST "  param last[b] = 0.5\n"
#define NET(early, late)                                                                                     \
  "model Net(layers = 2, c = 6) {\n"                                                                         \
  "  axis batch, a = 7, b = 5, cc = c\n"                                                                     \
  "  input x: real[batch, a]\n" early "  param first[a, b] ~ normal(0.5)\n"                                  \
  "  y = dot[a](x, first)\n"                                                                                 \
  "  repeat layers as layer {\n"                                                                             \
  "    param up[b, cc], down[cc, b] ~ normal(0.5)\n"                                                         \
  "    y = y + dot[cc](tanh(dot[b](y, up)), down)\n"                                                         \
  "  }\n" late "  z = dot[b](y, last)\n"                                                                     \
  "  loss z * z per samples()\n"                                                                             \
  "}\n"
#define MORE "  param more[b] = 0.5\n  y = y + more\n"
static const char net[] = NET("", LAST), turned[] = NET(LAST, ""), longer[] = NET("", LAST MORE);
#define BASE "bind batch = 4 micro 2 pad b to 6 optimizer adamw(lr = 0.01, warmup = 5) clip 1.0 "
static const char *const layouts[] = {
    "",
    "mesh data = 2 split batch over data micro 1",
    "mesh data = 2 split batch over data micro 1 shard states over data",
    "mesh data = 2 split batch over data micro 1 shard params, grads, states over data unit layer",
    ("mesh data = 2, tensor = 2 split batch over data split b over tensor micro 1 shard grads, states over "
     "data"),
    "mesh pipe = 2, tensor = 2 split cc over tensor stages over pipe by cost"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, TWO = 2, FOUR = 4, MOST = 300 };

/* What a player does with them; nothing of it is to be NULL or 0 but what a test leaves out. */
typedef struct {
  const char *dir;
  uint32_t keep;
  ZxBest best;
  const char *from; /* a checkpoint that it goes on from, or takes parameters of */
  bool params;
  ZxManifest *manifest;
  ZxCheckpointReport report[WORLD_MOST];
  ZxResumed resumed[WORLD_MOST];
} Ctx;

static Job job_at(const Model *m, const char *base, const char *layout, const char *save, Ctx *ctx) {
  Job j = job_of(m, base, layout, &zx_device_cpu, (ZpOptions){.checkpoints = true});
  j.steps = FOUR;
  j.save = zb_strdup(j.q.a, scratch(save));
  j.ctx = ctx;
  return j;
}

static void keep_one(Player *p, ZxCheckpoints *c, int64_t step) {
  Ctx *x = p->job->ctx;
  zx_checkpoints_begin(c, step);
  p->ok = p->ok && zx_checkpoints_busy(c);
  if (x->best.data) zx_checkpoints_best(c, &x->best);
  x->report[p->rank] = zx_checkpoints_wait(c);
  p->ok = p->ok && !strcmp(x->report[p->rank].path, zx_ckpt_path(p->a, x->dir, step));
  p->ok = p->ok && !zx_checkpoints_busy(c) && x->report[p->rank].news == ZX_CKPT_SAVED;
}

/* A beginning; NULL, and the player is not content: no checkpoints can be written. */
static ZxCheckpoints *begins(Player *p) {
  const Ctx *x = p->job->ctx;
  ZxCheckpointsOptions o = {.dir = x->dir, .keep = x->keep, .most = MOST};
  o.base = (ZxManifest){.version = "1", .model = "Net", .command = "zrun", .recipe = "r"};
  p->ok = zx_engine_init(p->e, &p->err);
  ZxCheckpoints *c = zx_checkpoints_open(p->e, &o, &p->err);
  p->ok = p->ok && c;
  return c;
}

/* Checkpoints after steps 2 and 4. */
static void train(Player *p) {
  ZxCheckpoints *c = begins(p);
  if (!c) return;
  job_steps(p, 1, TWO);
  keep_one(p, c, TWO);
  job_steps(p, TWO + 1, FOUR);
  keep_one(p, c, FOUR);
  zx_checkpoints_close(c);
  job_save(p);
}

static void go_on(Player *p) {
  Ctx *x = p->job->ctx;
  p->ok = zx_resume_fits(p->e, x->from, x->manifest, !x->params, &p->err);
  if (x->params)
    p->ok = p->ok && zx_engine_take_params(p->e, x->from, x->manifest, &x->resumed[p->rank], &p->err);
  else p->ok = p->ok && zx_engine_resume(p->e, x->from, x->manifest, &x->resumed[p->rank], &p->err);
  if (!x->params) job_steps(p, TWO + 1, FOUR);
  job_save(p);
}

static ZxManifest *manifest_of(ZbArena *a, const char *path) {
  ZbErr err = {0};
  ZxManifest *m = zx_manifest_read(a, path, &err);
  cr_assert(m, "%s", err.text);
  return m;
}

/* Bytes of values: parameters and two states of each, by 4. */
enum { VALUES = 7 * 5 + 2 * (5 * 6 + 6 * 5) + 5 };

static void expect_report(const Ctx *x, const Job *j, const ZxManifest *m) {
  for (int r = 0; r < j->ranks; r++) {
    const ZxCheckpointReport *q = &x->report[r];
    cr_expect(q->step == FOUR && q->bytes == m->c.bytes && q->most <= q->bytes &&
              q->most * (uint64_t)j->ranks >= q->bytes);
    cr_expect(q->write > 0 && q->seconds > 0 && q->seconds < 60 && q->write == x->report[0].write);
    cr_expect(j->ranks > 1 || q->seconds >= q->write); /* of this rank; another may have begun before it */
    cr_expect_eq(q->most, x->report[0].most);
  }
}

static void train_in(const Model *m, const char *layout, const char *dir, const char *save) {
  Ctx x = {.dir = scratch(dir), .best = {"eval.bin", 1.5, TWO}};
  Job j = job_at(m, BASE, layout, save, &x);
  job_play(&j, train);
  const char *two = zx_ckpt_path(j.q.a, x.dir, TWO), *four = zx_ckpt_path(j.q.a, x.dir, FOUR);
  const ZxManifest *a = manifest_of(j.q.a, two), *b = manifest_of(j.q.a, four);
  cr_expect(a->step == TWO && a->samples == 4 * TWO && a->serial == 1 && b->step == FOUR &&
            b->samples == 4 * FOUR && b->serial == 2);
  cr_expect(a->best.step == TWO && a->best.loss == 1.5 && b->best.step == TWO &&
            !strcmp(b->best.data, "eval.bin"));
  cr_expect(a->c.nparams == 6 && a->c.nstates == 2 && a->c.ntensors == 18);
  cr_expect_str_eq(a->c.state[0], "exp_avg");
  cr_expect_str_eq(a->c.state[1], "exp_avg_sq");
  expect_report(&x, &j, b);
  job_close(&j);
}

static void resume_in(const Model *m, const char *layout, const char *from) {
  Ctx x = {.from = from};
  int open = open_files();
  Job j = job_at(m, BASE, layout, "other", &x);
  x.manifest = manifest_of(j.q.a, from);
  job_play(&j, go_on);
  uint64_t all = 0;
  for (int r = 0; r < j.ranks; r++) {
    cr_expect(x.resumed[r].bytes == x.resumed[0].bytes && x.resumed[r].most == x.resumed[0].most);
    all = x.resumed[r].bytes;
  }
  cr_expect(all >= 4 * 3 * VALUES && x.resumed[0].most * (uint64_t)j.ranks >= all &&
            x.resumed[0].most <= 4 * 3 * VALUES);
  if (j.ranks == 1) cr_expect_eq(all, 4 * 3 * VALUES);
  uint64_t n, k;
  float *a = job_saved("one", &n), *b = job_saved("other", &k);
  cr_assert_eq(n, k);
  for (uint64_t i = 0; i < n; i++)
    cr_assert(a[i] - b[i] < 1e-5f && b[i] - a[i] < 1e-5f, "%s: value %d is %.9g, not %.9g", layout, (int)i,
              (double)b[i], (double)a[i]);
  free(a);
  free(b);
  job_close(&j);
  cr_expect_eq(open_files(), open, "%s: a file stays open", layout);
}

/* From each layout into the same, and from each into another. */
Test(checkpoints, any_layout) {
  Model m = job_model(NULL, net, NULL);
  for (int i = 0; i < LAYOUTS; i++) {
    const char *dir = zb_printf(m.c.a, "ckpt-%d", i);
    train_in(&m, layouts[i], dir, i ? "again" : "one");
    const char *from = zx_ckpt_path(m.c.a, zb_strdup(m.c.a, scratch(dir)), TWO);
    resume_in(&m, layouts[i], from);
    resume_in(&m, layouts[(i + 2) % LAYOUTS], from);
  }
  model_close(&m);
}

/* The same bits, where nothing is added up in another order. */
Test(checkpoints, to_the_bit) {
  static const char *const more[] = {
      "",
      "precision compute bf16",
      "average 0.75 freeze layer",
      "precision compute bf16 freeze first, last average 0.5",
      "optimizer adamw(lr = 0.01, bits = 8)",
      "optimizer sgd(lr = 0.01, momentum = 0.9) for first optimizer lion(lr = 0.01) for last average 0.5",
      "optimizer sgd(lr = 0.01)"};
  Model m = job_model(NULL, net, NULL);
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    for (int k = 0; k < LAYOUTS; k += 3) {
      Ctx x = {.dir = zb_printf(m.c.a, "%s-%d-%d", scratch("c"), (int)i, k)};
      const char *body = zb_printf(m.c.a, "%s %s", layouts[k], more[i]);
      Job j = job_at(&m, BASE, body, "one", &x);
      job_play(&j, train);
      for (int params = 0; params < 2; params++) { /* all of step 2, and then the parameters of step 4 */
        Ctx y = {.from = zx_ckpt_path(j.q.a, x.dir, params ? FOUR : TWO), .params = params};
        Job g = job_at(&m, BASE, body, "other", &y);
        y.manifest = manifest_of(g.q.a, y.from);
        job_play(&g, go_on);
        uint64_t n, l;
        float *a = job_saved("one", &n), *b = job_saved("other", &l);
        cr_assert(n == l && !memcmp(a, b, n * sizeof *a), "%s, parameters %d", body, params);
        for (int s = TWO + 1; s <= FOUR && !params; s++)
          cr_assert_eq(g.player[0].step[s].loss, j.player[0].step[s].loss, "%s", body);
        if (params) cr_expect_lt(y.resumed[0].bytes, 2 * 4 * VALUES);
        free(a);
        free(b);
        job_close(&g);
      }
      job_close(&j);
    }
  model_close(&m);
}

/* Of as many as are to be kept the last are there. */
Test(checkpoints, kept) {
  Model m = job_model(NULL, net, NULL);
  Ctx x = {.dir = zb_strdup(m.c.a, scratch("c")), .keep = 1};
  Job j = job_at(&m, BASE, layouts[2], "one", &x);
  ZxCkptEntry *all;
  job_play(&j, train);
  cr_assert_eq(zx_ckpt_list(m.c.a, x.dir, &all, NULL), 1);
  cr_expect_eq(all[0].step, FOUR);
  job_close(&j);
  model_close(&m);
}

/* ---- what is refused ---- */
static void refuse(const Model *m, const char *base, const char *from, bool params, const char *text,
                   const char *help) {
  Ctx x = {.from = from, .params = params};
  Job j = job_at(m, base, "mesh data = 2 split batch over data micro 1 shard states over data", "other", &x);
  x.manifest = manifest_of(j.q.a, from);
  job_try(&j, go_on);
  const ZbErr *err = &j.player[*j.player[0].err.text ? 0 : 1].err;
  cr_expect(!j.player[0].ok && !j.player[1].ok);
  cr_expect(strstr(err->text, text), "no '%s' in '%s'", text, err->text);
  cr_expect_str_eq(err->help, help, "'%s', not '%s'", err->help, help);
  job_close(&j);
}

static void flip(const char *path, off_t at) {
  int fd = open(path, O_RDWR);
  uint8_t x;
  cr_assert(fd >= 0 && pread(fd, &x, 1, at) == 1);
  x ^= 1;
  cr_assert(pwrite(fd, &x, 1, at) == 1 && close(fd) == 0);
}

static void train_more(const Model *m) {
  Ctx x = {.dir = zb_strdup(m->c.a, scratch("more"))};
  Job j = job_at(m, BASE, "", "more.safetensors", &x);
  job_play(&j, train);
  job_close(&j);
}

Test(checkpoints, refused) {
  Model m = job_model(NULL, net, NULL), deep = job_model(NULL, net, "-D layers=3"),
        flat = job_model(NULL, net, "-D layers=1"), wide = job_model(NULL, net, "-D c=5"),
        order = job_model(NULL, turned, NULL), more = job_model(NULL, longer, NULL);
  train_in(&m, layouts[3], "c", "one");
  const char *from = zx_ckpt_path(m.c.a, zb_strdup(m.c.a, scratch("c")), FOUR);
#define AGAIN "take another checkpoint with --resume-from; `zckpt list` names those that there are"
#define KEEP "keep the optimizer, or begin anew from its parameters: `zckpt weights`, --init"
  refuse(&deep, BASE, from, true, "has no parameter 'layer.2.up'; it has 6",
         "the nearest name in it is 'layer.0.up'");
  refuse(&flat, BASE, from, true, "has parameter 'layer.1.up', and 5 others; model Net has 4, and not this",
         "was it made with other sizes (-D)?");
  train_more(&more);
  refuse(&m, BASE, zx_ckpt_path(m.c.a, zb_strdup(m.c.a, scratch("more")), FOUR), true,
         "has 7 parameters; model Net has 6", "is it another model's?");
  refuse(&more, BASE, from, true, "has no parameter 'more'; it has 6", "is it another model's?");
  refuse(&order, BASE, from, true, "has parameter 'first' where model Net has 'last'",
         "declare them in that order");
  refuse(&wide, BASE, from, true, ": parameter 'layer.0.up' has shape [5, 6]; the model wants [5, 5]",
         "was it made with other sizes (-D)?");
  refuse(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 0.1, momentum = 0.9)", from, false,
         "has no optimizer state `momentum_buffer`, which the recipe's optimizer needs", KEEP);
  refuse(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 0.1)", from, false,
         "has optimizer state `exp_avg`, for which the recipe's optimizer has no use", KEEP);
  refuse(&m, BASE "average 0.5 ", from, false,
         "has no optimizer state `average`, which the recipe's optimizer needs", KEEP);
  refuse(&m, BASE "freeze last ", from, false, "has 2 optimizer states of 'last', and the recipe keeps 0",
         "keep what is frozen, or begin anew from its parameters: `zckpt weights`, --init");
  const ZxManifest *q = manifest_of(m.c.a, from);
  for (uint32_t t = 0; t < q->c.ntensors;
       t += 5) { /* parameters are read first, and alone where they are all */
    const char *file = zb_printf(m.c.a, "%s/%s", from, q->c.files[q->c.tensors[t].file].name);
    off_t at = (off_t)(q->c.tensors[t].at + 4 * (q->c.tensors[t].n - 1));
    flip(file, at);
    refuse(&m, BASE, from, false, q->c.tensors[t].info.path, AGAIN);
    if (t < q->c.nparams) refuse(&m, BASE, from, true, q->c.tensors[t].info.path, AGAIN);
    flip(file, at);
  }
  const char *last = zb_printf(m.c.a, "%s/%s", from, q->c.files[q->c.nfiles - 1].name);
  cr_assert(truncate(last, 7) == 0);
  refuse(&m, BASE, from, true, q->c.files[q->c.nfiles - 1].name, AGAIN);
  model_close(&m);
  model_close(&deep);
  model_close(&flat);
  model_close(&wide);
  model_close(&order);
  model_close(&more);
}

/* ---- writing ---- */
static void try_to_train(Player *p) {
  Ctx *x = p->job->ctx;
  ZxCheckpoints *c = begins(p);
  if (!c) return;
  job_steps(p, 1, 1);
  zx_checkpoints_begin(c, 1);
  x->report[p->rank] = zx_checkpoints_wait(c);
  if (!x->from) zx_checkpoints_begin(c, 1); /* and ends meanwhile */
  zx_checkpoints_close(c);
}

Test(checkpoints, cannot_be_written) {
  Model m = job_model(NULL, net, NULL);
  Ctx x = {.dir = scratch("c"), .from = ""};
  Job j = job_at(&m, BASE, layouts[3], "none", &x);
  scratch_full_at(300);
  cr_redirect_stderr();
  job_play(&j, try_to_train);
  for (int r = 0; r < j.ranks; r++)
    cr_expect(x.report[r].news == ZX_CKPT_FAILED && x.report[r].step == 1, "%d", (int)x.report[r].news);
  char said[700] = "";
  FILE *f = cr_get_redirected_stderr();
  cr_expect_gt(fread(said, 1, sizeof said - 1, f), 0);
  cr_expect(strstr(said, "error: checkpoint of step 1: ") &&
                strstr(said, "File too large; check the free space"),
            "%s", said);
  cr_expect(!strstr(strstr(said, "error: ") + 1, "error: "), "it is said once: %s", said);
  ZxCkptEntry *all;
  cr_expect_eq(zx_ckpt_list(j.q.a, x.dir, &all, NULL), 0);
  cr_expect_eq(zx_ckpt_clean(x.dir), 0); /* nothing is left of it */
  job_close(&j);
  model_close(&m);
}

/* What is not complete goes when it ends; what a killed run has left goes when another begins, which counts
 * on. */
Test(checkpoints, unfinished) {
  Model m = job_model(NULL, net, NULL);
  Ctx x = {.dir = zb_strdup(m.c.a, scratch("c"))};
  for (int again = 0; again < 3; again++) {
    Job j = job_at(&m, BASE, again ? "precision compute bf16" : "", "none", &x);
    job_play(&j, try_to_train);
    cr_expect(x.report[0].news == ZX_CKPT_SAVED);
    const ZxManifest *q = manifest_of(j.q.a, zx_ckpt_path(j.q.a, x.dir, 1));
    cr_expect_eq(q->serial, again + 1);
    cr_expect_eq(q->samples, 4);
    cr_expect_eq(zx_ckpt_clean(x.dir), 0);
    if (again == 0)
      cr_assert(mkdir(zb_printf(j.q.a, "%s/step-00000005.0123456789abcdef.tmp", x.dir), 0777) == 0);
    job_close(&j);
  }
  model_close(&m);
}

Test(checkpoints, no_folder) {
  Model m = job_model(NULL, net, NULL);
  scratch_write("file", "", 0);
  Ctx x = {.dir = scratch("file/c")};
  Job j = job_at(&m, BASE, layouts[3], "none", &x);
  job_try(&j, try_to_train);
  for (int r = 0; r < 2; r++) cr_expect(!j.player[r].ok && (r == 0) == (*j.player[r].err.text != 0));
  says(j.player[0].err, "file");
  job_close(&j);
  /* Another run writes there. */
  x.dir = zb_strdup(m.c.a, scratch("c"));
  ZbErr err = {0};
  int lock = zx_ckpt_lock(x.dir, &err);
  cr_assert(lock >= 0, "%s", err.text);
  j = job_at(&m, BASE, layouts[3], "none", &x);
  job_try(&j, try_to_train);
  for (int r = 0; r < 2; r++) cr_expect(!j.player[r].ok && (r == 0) == (*j.player[r].err.text != 0));
  close(lock);
  job_close(&j);
  model_close(&m);
}
