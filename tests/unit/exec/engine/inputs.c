/* What a step is fed with: whether data have it, which sample is which, and what is said of numbers that
 * bf16 rounds. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

TestSuite(inputs, .init = scratch_make, .fini = scratch_remove);

static const char text[] = "model In {\n"
                           "  axis batch, a = 3, b = 2\n"
                           "  input x: real[batch, a, b]\n"
                           "  input t: index(a)[batch]\n"
                           "  input n: i32[batch, b]\n"
                           "  param w[a] = 1\n"
                           "  y = dot[a](x, w) + f32(n)\n"
                           "  loss sum[b](y) per known(t)\n"
                           "}\n";
#define BASE "bind batch = 4 micro 2 optimizer sgd(lr = 0) "

/* ---- whole numbers that bf16 rounds ---- */
static struct {
  uint64_t sample, at;
  float x, rest;
} whole;
static float real(const char *name, uint64_t s, uint64_t i) {
  (void)name;
  return s == whole.sample && i == whole.at ? whole.x : whole.rest;
}
static int32_t ids(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)s, (void)i, (void)limit;
  return *name == 't' ? 1 : 300;
}
static void nothing(Player *p) { (void)p; }

static void play(const Model *m, const char *recipe, uint64_t sample, uint64_t at, float x, float rest,
                 bool forward) {
  Job j = job_of(m, BASE, recipe, &zx_device_cpu, (ZpOptions){.forward_only = forward});
  whole.sample = sample, whole.at = at, whole.x = x, whole.rest = rest;
  job_data(&j, ids, real);
  job_play(&j, nothing);
  job_close(&j);
}

Test(inputs, numbers_that_bf16_rounds) {
#define HALF "precision compute bf16 "
#define SAID(x, y)                                                                                           \
  "[rank 0] warning: input `x` is `real`, computed with in bf16, and has whole numbers beyond 256: " x       \
  " becomes " y "; declare it `f32[..]`, or `i32[..]` if all are whole\n"
  Model m = job_model(NULL, text, NULL);
  cr_redirect_stderr();
  play(&m, HALF, 0, 0, 257, 1, false);
  play(&m, HALF "mesh d = 2 split batch over d micro 1", 7, 5, -259, 1, false); /* rank 0 alone says it */
  play(&m, HALF, 3, 2, 1 << 24, 1, false);
  play(&m, HALF, 3, 2, (1 << 24) - 1, 1, false);
  play(&m, HALF, 3, 2, (1 << 24) + 2, 1, false); /* no such number is a word's, */
  play(&m, HALF, 3, 2, 257, 0.5f, false);        /* nor where some are not whole */
  play(&m, HALF, 8, 0, 257, 1, false);           /* of the first samples alone */
  play(&m, HALF, 3, 2, 256, 1, false);
  play(&m, HALF, 3, 2, 258, 1, false);
  play(&m, "", 3, 2, 257, 1, false);
  play(&m, HALF, 3, 2, 257, 1, true);
  model_close(&m);
  /* Once, though it is read as a part and as a whole. */
  m = job_model(NULL,
                "model In { axis batch, a = 4, b = 2\n  input f: index(a)[batch]\n"
                "  input x: real[batch, a]\n  param e[a], w[a], v[b] = 1\n"
                "  loss lookup(e, f) + sum[a](x * w) + sum[b](slice[a, b](x, start = 1) * v) per samples() "
                "}\n",
                NULL);
  play(&m, HALF "mesh t = 2 split a over t", 0, 0, 257, 1, false);
  cr_expect_stderr_eq_str(SAID("257", "256") SAID("-259", "-260") SAID("16777215", "16777216")
                              SAID("257", "256"));
  model_close(&m);
}

/* ---- whether data fit ---- */
static void fits(const char *model, const char *others, const char *text_, const char *help) {
  Model m = job_model(NULL, model, NULL), o = job_model(NULL, others, NULL);
  Job j = job_of(&m, BASE, "", &zx_device_cpu, (ZpOptions){0}),
      k = job_of(&o, BASE, "", &zx_device_cpu, (ZpOptions){0});
  ZbErr err = {0};
  ZxData *d = zx_data_of_bytes(k.bytes, k.nbytes, "others", &err);
  ZxMix *mix = zx_mix_one(d);
  bool ok = zx_inputs_fit(j.p, mix, &err);
  cr_expect_eq(ok, !*text_, "%s, %s: %s", model, others, err.text);
  if (!ok) cr_expect(strstr(err.text, text_), "no '%s' in '%s'", text_, err.text);
  if (!ok && help) cr_expect_str_eq(err.help, help);
  cr_expect(zx_inputs_fit(j.p, NULL, &err)); /* a run without steps has none */
  zx_mix_close(mix);
  job_close(&j);
  job_close(&k);
  model_close(&m);
  model_close(&o);
}

Test(inputs, fit) {
#define TWO(x, t)                                                                                            \
  "model M { axis batch, a = 3, b = 4\n  input x: " x "\n  input t: " t "\n  param w[a] = 1\n"               \
  "  loss sum[a](f32(x) * w) per f32(t) * 0 + 1 }\n"
  fits(TWO("real[batch, a]", "i32[batch]"), TWO("real[batch, a]", "i32[batch]"), "", NULL);
  fits(TWO("real[batch, a]", "i32[batch]"), TWO("i32[batch, a]", "i32[batch]"), "", NULL); /* as numbers */
  fits(TWO("i32[batch, a]", "i32[batch]"), TWO("real[batch, a]", "i32[batch]"), "x", NULL);
  fits(TWO("real[batch, a]", "i32[batch]"), TWO("real[batch, a]", "real[batch]"),
       "the model wants indices in 't'", NULL);
  fits(TWO("real[batch, a]", "real[batch]"),
       "model M { axis batch, a = 2\n  input x: real[batch, a]\n  input t: real[batch]\n  param w[a] = 1\n"
       "  loss sum[a](x * w) per f32(t) * 0 + 1 }\n",
       "x", NULL);
  fits("model M { axis a = 3, batch\n  input x: real[a, batch]\n  param w[a] = 1\n  loss sum[a](x * w) per "
       "samples() }\n",
       "model M { axis batch, a = 3\n  input x: real[batch, a]\n  param w[a] = 1\n  loss sum[a](x * w) per "
       "samples() }\n",
       "input `x`: samples are not its slowest axis", "declare the axis `batch` first");
}

/* No source says this; an altered graph may. */
Test(inputs, without_samples) {
  Model m = job_model(NULL, text, NULL);
  Job j = job_of(&m, BASE, "", &zx_device_cpu, (ZpOptions){0});
  ZxMix *mix = zx_mix_one(zx_data_of_bytes(j.bytes, j.nbytes, "records", NULL));
  const ZpInputUse *u = &j.p->programs.inputs[0];
  ZbErr err = {0};
  cr_expect(zx_inputs_fit(j.p, mix, &err));
  j.p->programs.segments[u->value_segment].values[u->value].type.naxes = 0;
  cr_expect(!zx_inputs_fit(j.p, mix, &err) && strstr(err.text, "samples are not its slowest axis"));
  zx_mix_close(mix);
  job_close(&j);
  model_close(&m);
}

/* ---- which samples a step takes ---- */
typedef struct {
  int64_t samples, values;
  uint64_t data;
} Taken;
static void count(Player *p) {
  Taken *t = p->job->ctx;
  t->data = zx_engine_data_samples(p->e);
  t->values = zx_sample_values(p->e->p);
  p->ok = zx_engine_init(p->e, &p->err);
  zx_engine_goes_on(p->e, 10, 100); /* step 11 begins with sample 100 */
  t->samples = zx_engine_samples(p->e, 12);
  job_steps(p, 1, 1);
  zx_engine_goes_on(p->e, 1, 5);
  job_steps(p, 2, 3);
}
static float by_sample(const char *name, uint64_t s, uint64_t i) { return (void)name, (void)i, (float)s; }
static int32_t no_ids(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)s, (void)i, (void)limit;
  return *name == 't' ? 1 : 0;
}

Test(inputs, which_samples) {
  Model m = job_model(NULL, text, NULL);
  Taken t;
  Job j = job_of(&m, BASE, "", &zx_device_cpu, (ZpOptions){0});
  job_data(&j, no_ids, by_sample);
  j.ctx = &t;
  job_play(&j, count);
  cr_expect(t.samples == 108 && t.values == 1 && t.data == JOB_RECORDS, "%d, %d, %d", (int)t.samples,
            (int)t.values, (int)t.data);
  /* Of four samples a step, the mean of 6 s: steps 2 and 3 have 5 to 8 and 9 to 12; ten steps
   * before sample 100 are 60 to 63. */
  cr_expect_eq(j.player[0].step[2].loss, 6 * 6.5);
  cr_expect_eq(j.player[0].step[3].loss, 6 * 10.5);
  cr_expect_eq(j.player[0].step[1].loss, 6 * 61.5);
  job_close(&j);
  model_close(&m);
}

/* Of a model without inputs nothing is read. */
Test(inputs, none) {
  Model m = job_model(NULL,
                      "model None { axis batch, a = 3\n  param w[a] = 2\n  loss spread[batch](dot[a](w, w)) "
                      "per samples() }\n",
                      NULL);
  Job j = job_of(&m, BASE, "", &zx_device_cpu, (ZpOptions){0});
  job_play(&j, job_train);
  cr_expect(j.player[0].step[1].loss == 12 && zx_sample_values(j.p) == 0);
  job_close(&j);
  model_close(&m);
}

/* A run without steps has no data, whatever its inputs would be. */
static void set_up(Player *p) { p->ok = zx_engine_init(p->e, &p->err); }
Test(inputs, no_data) {
  Model m = job_model(NULL, job_line, NULL);
  Job j = job_of(&m, BASE, "precision compute bf16", &zx_device_cpu, (ZpOptions){0});
  j.bytes = NULL;
  job_play(&j, set_up);
  job_close(&j);
  model_close(&m);
}
