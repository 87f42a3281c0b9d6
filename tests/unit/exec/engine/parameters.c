/* Parameters in every layout: what is drawn from the seed, read from a file and written to one, and what is
 * said of files that are another model's. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(parameters, .init = scratch_make, .fini = scratch_remove);

enum { A = 31, B = 21, C = 6 };
static const char all[] =
    "model All(layers = 2, c = 6, more = 0) {\n"
    "  axis batch, a = 31, b = 21, cc = c, u = 1\n"
    "  input x: real[batch, a]\n"
    "  param normal[a, b] ~ normal(0.5)\n"
    "  param uniform[b] ~ uniform(-1, 2)\n"
    "  param cut[a, cc] ~ trunc_normal(3)\n"
    "  param flat[cc] = 1.5\n"
    "  param one[u] = 0.25\n"
    "  y = dot[b](dot[a](x, normal), uniform) * peak[u](one)\n"
    "  z = dot[a](x, cut)\n"
    "  repeat layers as layer { param w[b, cc] ~ normal(2)  z = z + dot[b](dot[a](x, normal), w) * 0.1 }\n"
    "  if more { param extra[b] = 1  y = y + dot[b](dot[a](x, normal), extra) }\n"
    "  loss y * y + dot[cc](z, flat) per samples()\n"
    "}\n";
#define BASE "bind batch = 4 micro 2 pad b to 22 pad cc to 8 optimizer adamw(lr = 0.01) "
static const char *const layouts[] = {
    "",
    "mesh data = 2 split batch over data micro 1",
    "mesh data = 2 split batch over data micro 1 shard states over data",
    "mesh data = 2 split batch over data micro 1 shard params, grads, states over data unit layer",
    "mesh tensor = 2 split b, cc over tensor",
    "mesh data = 2, tensor = 2 split batch over data split b over tensor micro 1 shard grads, states over "
    "data",
    "mesh pipe = 2, tensor = 2 split cc over tensor stages over pipe by cost",
    "mesh data = 2 split batch over data micro 1 shard params, grads, states over data precision compute "
    "bf16"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* ---- files ---- */
static float *tensor(const char *file, const char *name, uint64_t n) {
  ZbErr err = {0};
  ZxWeights *w = zx_weights_open(file, false, &err);
  cr_assert(w, "%s", err.text);
  int64_t i = zx_weights_at(w, name);
  float *x = malloc(n * sizeof *x);
  cr_assert(i >= 0, "no %s", name);
  cr_assert(zx_weights_read(w, i, 0, n, x, &err), "%s", err.text);
  zx_weights_close(w, NULL);
  return x;
}

static bool same_files(const char *one, const char *other) {
  size_t n, m;
  char *a = scratch_read(one, &n), *b = scratch_read(other, &m);
  bool same = n == m && !memcmp(a, b, n);
  free(a);
  free(b);
  return same;
}

/* ---- drawn ---- */
static double normal_of(const char *path, uint64_t i) { return zb_random_normal(7, zb_stream(path), i); }
static double drawn(const char *path, uint64_t i) {
  if (!strcmp(path, "normal")) return 0.5 * normal_of(path, i);
  if (!strcmp(path, "flat")) return 1.5;
  if (!strcmp(path, "one")) return 0.25;
  if (!strcmp(path, "uniform")) return -1 + 3 * zb_random_unit(7, zb_stream(path), i);
  if (*path == 'l') return 2 * normal_of(path, i);
  double x = normal_of(path, i);
  for (uint64_t salt = 1; fabs(x) > 2; salt++) x = zb_random_normal(7, zb_stream(path) + zb_mix64(salt), i);
  return 3 * x;
}

static void check_drawn(const char *file, const char *path, uint64_t n) {
  float *x = tensor(file, path, n);
  for (uint64_t i = 0; i < n; i++)
    cr_assert_eq(x[i], (float)drawn(path, i), "%s[%d] is %.9g, not %.9g", path, (int)i, (double)x[i],
                 drawn(path, i));
  free(x);
}

static void draw(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  job_save(p);
}

/* Plays in a layout; what is saved gets this name. */
static Job in_layout(const Model *m, const char *layout, const char *name, void (*act)(Player *), void *ctx) {
  Job j = job_of(m, BASE, layout, &zx_device_cpu, (ZpOptions){0});
  j.save = zb_strdup(j.q.a, scratch(name));
  j.ctx = ctx;
  job_try(&j, act);
  return j;
}
static void content(const Job *j) {
  for (int r = 0; r < j->ranks; r++) cr_assert(j->player[r].ok, "rank %d: %s", r, j->player[r].err.text);
}

Test(parameters, drawn) {
  Model m = job_model(NULL, all, NULL);
  for (int i = 0; i < LAYOUTS; i++) {
    Job j = in_layout(&m, layouts[i], i ? "other" : "one", draw, NULL);
    content(&j);
    if (i) cr_assert(same_files("other", "one"), "%s", layouts[i]);
    job_close(&j);
  }
  check_drawn(scratch("one"), "normal", A * B);
  check_drawn(scratch("one"), "uniform", B);
  check_drawn(scratch("one"), "cut", A * C);
  check_drawn(scratch("one"), "flat", C);
  check_drawn(scratch("one"), "one", 1);
  check_drawn(scratch("one"), "layer.0.w", B * C);
  check_drawn(scratch("one"), "layer.1.w", B * C);
  cr_expect_eq(scratch_files(), 2);
  model_close(&m);
}

/* Such as are frozen, and those of a plan that only goes forward, are bf16 alone. */
Test(parameters, rounded) {
  Model m = job_model(NULL, all, NULL);
  for (int i = 0; i < 2; i++) {
    Job j = job_of(&m, BASE "precision compute bf16 ", i ? "" : "freeze layer, normal, cut", &zx_device_cpu,
                   (ZpOptions){.forward_only = i});
    j.save = zb_strdup(j.q.a, scratch("half"));
    job_play(&j, draw);
    float *x = tensor(scratch("half"), "normal", A * B);
    for (uint64_t k = 0; k < A * B; k++)
      cr_assert_eq(x[k], zb_bf16_to_f32(zb_f32_to_bf16((float)drawn("normal", k))));
    free(x);
    x = tensor(scratch("half"), "uniform", B);
    for (uint64_t k = 0; k < B; k++)
      cr_assert_eq(x[k], i ? zb_bf16_to_f32(zb_f32_to_bf16((float)drawn("uniform", k)))
                           : (float)drawn("uniform", k));
    free(x);
    job_close(&j);
  }
  model_close(&m);
}

/* What is not a number in f32 is said of the first such element, of one rank at least. */
Test(parameters, too_large) {
  Model m =
      job_model(NULL,
                "model Huge { axis batch, a = 4, b = 3\n  input x: real[batch, a]\n"
                "  param w[a, b] ~ normal(3e38)\n  y = dot[a](x, w)\n  loss dot[b](y, y) per samples()\n}\n",
                NULL);
  static const char *const bodies[] = {
      "", "mesh d = 2 split batch over d micro 1 shard params, grads, states over d"};
  for (int i = 0; i < 2; i++) {
    Job j =
        job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", bodies[i], &zx_device_cpu, (ZpOptions){0});
    job_try(&j, draw);
    int said = 0;
    for (int r = 0; r < j.ranks; r++) {
      cr_expect(!j.player[r].ok);
      if (!*j.player[r].err.text) continue;
      uint64_t at = 0; /* the first that this rank has; half of 12 elements each */
      for (at = 6 * (uint64_t)r; isfinite((float)(3e38 * normal_of("w", at))); at++)
        ;
      const char *want = zb_printf(m.c.a, "the initial value of w[%d, %d] is %sinf (parameter at test.zug:3)",
                                   (int)(at / 3), (int)(at % 3), normal_of("w", at) < 0 ? "-" : "");
      cr_expect_str_eq(j.player[r].err.text, want);
      cr_expect_str_eq(j.player[r].err.help, "its values must fit f32, below 3.4e38");
      said++;
    }
    cr_expect_geq(said, 1);
    job_close(&j);
  }
  model_close(&m);
}

/* ---- read ---- */
typedef struct {
  const char *path;
  bool partial;
  ZxLoaded x[WORLD_MOST];
} Read;

static void load(Player *p) {
  Read *r = p->job->ctx;
  ZxLoaded *x = &r->x[p->rank];
  p->ok = zx_engine_load(p->e, &(ZxFrom){.path = r->path, .partial = r->partial}, x, &p->err);
  x->names = x->names ? zb_strdup(p->job->q.a, x->names) : "";
  x->first_extra = x->first_extra ? zb_strdup(p->job->q.a, x->first_extra) : "";
  job_save(p);
}

Test(parameters, read) {
  Model two = job_model(NULL, all, NULL), three = job_model(NULL, all, "-D layers=3 -D more=1");
  Job j = in_layout(&two, "", "two", draw, NULL);
  job_close(&j);
  j = in_layout(&three, "", "three", draw, NULL);
  job_close(&j);
  for (int i = 0; i < LAYOUTS; i++) {
    Read r = {.path = scratch("two")};
    j = in_layout(&two, layouts[i], "again", load, &r);
    content(&j);
    cr_assert(same_files("two", "again"), "%s", layouts[i]);
    cr_expect(r.x[0].read == 7 && !r.x[0].drawn && !r.x[0].extra && !*r.x[0].names);
    job_close(&j);
    r = (Read){.path = scratch("two"), .partial = true}; /* what it lacks is drawn from the same seed */
    j = in_layout(&three, layouts[i], "again", load, &r);
    content(&j);
    cr_assert(same_files("three", "again"), "%s", layouts[i]);
    cr_expect(r.x[0].read == 7 && r.x[0].drawn == 2 && !r.x[0].extra);
    cr_expect(strstr(r.x[0].names, "layer.2.w") && strstr(r.x[0].names, "extra") &&
                  strlen(r.x[0].names) == 16,
              "%s", r.x[0].names);
    job_close(&j);
    r = (Read){.path = scratch("three"), .partial = true}; /* and what it has besides is left out */
    j = in_layout(&two, layouts[i], "again", load, &r);
    content(&j);
    cr_assert(same_files("two", "again"), "%s", layouts[i]);
    cr_expect(r.x[0].read == 7 && !r.x[0].drawn && r.x[0].extra == 2);
    cr_expect_str_eq(r.x[0].first_extra, "extra");
    job_close(&j);
  }
  model_close(&two);
  model_close(&three);
}

/* Of another seed, so that it shows where values come from. */
Test(parameters, read_and_drawn) {
  Model two = job_model(NULL, all, NULL), three = job_model(NULL, all, "-D layers=3");
  Job j = job_of(&two, BASE, "", &zx_device_cpu, (ZpOptions){0});
  j.o.seed = 8;
  j.save = zb_strdup(j.q.a, scratch("two"));
  job_play(&j, draw);
  job_close(&j);
  for (int i = 0; i < LAYOUTS; i++) {
    Read r = {.path = scratch("two"), .partial = true};
    j = in_layout(&three, layouts[i], "three", load, &r);
    content(&j);
    job_close(&j);
    check_drawn(scratch("three"), "layer.2.w", B * C);
    static const char *const names[] = {"normal", "layer.1.w", "cut"};
    for (int k = 0; k < 3; k++) {
      uint64_t n = k == 0 ? A * B : k == 1 ? B * C : A * C;
      float *a = tensor(scratch("two"), names[k], n), *b = tensor(scratch("three"), names[k], n);
      cr_assert(!memcmp(a, b, n * sizeof *a) && a[0] != (float)drawn(names[k], 0), "%s: %s", layouts[i],
                names[k]);
      free(a);
      free(b);
    }
  }
  model_close(&two);
  model_close(&three);
}

static void refused(const Model *m, const char *layout, const char *file, bool partial, const char *text,
                    const char *help) {
  Read r = {.path = scratch(file), .partial = partial};
  Job j = in_layout(m, layout, "again", load, &r);
  int said = 0;
  for (int k = 0; k < j.ranks; k++) {
    const ZbErr *err = &j.player[k].err;
    cr_expect(!j.player[k].ok);
    if (!*err->text) continue;
    const char *place = zb_printf(m->c.a, "%s%s", scratch(file), text);
    cr_expect_str_eq(err->text, place, "'%s', not '%s'", err->text, place);
    cr_expect_str_eq(err->help, help, "'%s', not '%s'", err->help, help);
    said++;
  }
  cr_expect_geq(said, 1);
  job_close(&j);
}

/* A file of these tensors of one value each. */
static void file_of(const char *name, const char *const *tensors, int n, int64_t size) {
  ZxTensorInfo t[12];
  ZbErr err = {0};
  for (int i = 0; i < n; i++) t[i] = (ZxTensorInfo){.path = tensors[i], .nshape = 1, .shape = {size}};
  ZbOut *o = zx_weights_create(scratch(name), t, (size_t)n, &err);
  cr_assert(o && zb_out_commit(o, &err), "%s", err.text);
}

#define WITHOUT                                                                                              \
  "--init-partial draws from the seed what is not there; if it was saved without, compile the model "        \
  "without (-D)"
Test(parameters, refused) {
  Model two = job_model(NULL, all, NULL), three = job_model(NULL, all, "-D layers=3 -D more=1"),
        wide = job_model(NULL, all, "-D c=5");
  Job j = in_layout(&two, "", "two", draw, NULL);
  job_close(&j);
  j = in_layout(&three, "", "three", draw, NULL);
  job_close(&j);
  file_of("other", (const char *const[]){"zebra", "aardvark"}, 2, 3);
  file_of("single", (const char *const[]){"one2", "flat"}, 2, C);
  file_of("sizes", (const char *const[]){"norma", "normals", "one", "uniform", "cut", "abnormal"}, 6, 1);
  file_of("near", (const char *const[]){"norma", "normals", "one", "abnormal"}, 4, 1);
  for (int i = 0; i < 4; i += 3) {
    const char *layout = layouts[i];
    refused(&two, layout, "near", false, " lacks 'normal' and 5 more of the 7 parameters of model All",
            "the nearest names in it are 'norma', 'normals', 'abnormal'; " WITHOUT);
    refused(&two, layout, "sizes", false, ": tensor 'uniform' has shape [1]; the model wants [21]",
            "was it saved with other sizes (-D)?");
    refused(&three, layout, "two", false, " lacks 'layer.2.w' and 1 more of the 9 parameters of model All",
            WITHOUT);
    refused(&two, layout, "three", false, " holds 2 tensors that model All has not; the first is 'extra'",
            "--init-partial leaves them out");
    refused(&two, layout, "other", true,
            " has none of the 7 parameters of model All; its first tensor is 'aardvark'",
            "is it the file of another model?");
    refused(&two, layout, "single", false, " lacks 'normal' and 5 more of the 7 parameters of model All",
            WITHOUT);
    refused(&wide, layout, "two", true, ": tensor 'cut' has shape [31, 6]; the model wants [31, 5]",
            "was it saved with other sizes (-D)?");
  }
  model_close(&two);
  model_close(&three);
  model_close(&wide);
}

/* A value of it that is not a number is named, by a rank that has it. */
Test(parameters, not_finite) {
  Model m = job_model(NULL, all, NULL);
  Job j = in_layout(&m, "", "two", draw, NULL);
  job_close(&j);
  for (int i = 0; i < 3; i++) {
    static const char *const path[] = {"normal", "layer.1.w", "one"}, *const said[] = {"normal[30, 20]",
                                                                                       "layer.1.w[7, 3]",
                                                                                       "one[0]"};
    static const uint64_t at[] = {A * B - 1, 7 * C + 3, 0};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    ZbErr err = {0};
    float was, *x = tensor(scratch("two"), path[i], at[i] + 1);
    was = x[at[i]];
    free(x);
    ZxWeights *w = zx_weights_open(scratch("two"), true, &err);
    cr_assert(w && zx_weights_write(w, zx_weights_at(w, path[i]), at[i], 1, &bad[i], &err), "%s", err.text);
    for (int k = 0; k < LAYOUTS; k++)
      refused(&m, layouts[k], "two", k % 2, zb_printf(m.c.a, ": %s is %g", said[i], (double)bad[i]),
              "take a file of an earlier state");
    cr_assert(zx_weights_write(w, zx_weights_at(w, path[i]), at[i], 1, &was, &err) &&
              zx_weights_close(w, &err));
  }
  model_close(&m);
}

/* ---- a file that is reserved ---- */
static void reserve(Player *p) { p->ok = zx_engine_reserve(p->e, p->job->save, &p->err); }

Test(parameters, cannot_be_saved) {
  Model m = job_model(NULL, all, NULL);
  Job j = in_layout(&m, layouts[3], "none/x", reserve, NULL);
  for (int r = 0; r < j.ranks; r++) cr_expect(!j.player[r].ok && (r == 0) == (*j.player[r].err.text != 0));
  says(j.player[0].err, "none/x");
  job_close(&j);
  j = in_layout(&m, layouts[3], "x", reserve, NULL); /* it goes with the engine */
  content(&j);
  cr_expect_eq(scratch_files(), 0);
  job_close(&j);
  model_close(&m);
}
