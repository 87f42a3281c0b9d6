/* What a model makes of data without training: outputs that are written, and evaluations beside training. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(outputs, .init = scratch_make, .fini = scratch_remove);

/* Outputs of two and three axes, of whole numbers, and one that only a rank of each stage has. */
static const char text[] = "model Out {\n"
                           "  axis batch, r = 3, a = 4, k = 2, c = 5\n"
                           "  input x: real[batch, r, a]\n"
                           "  input t: index(a)[batch, r]\n"
                           "  param w[a] ~ normal(1)\n"
                           "  param u[a, c] ~ normal(1)\n"
                           "  output early = x * w\n"
                           "  output z = dot[a](x, u)\n"
                           "  y = dot[a](x, w) + dot[c](z, z)\n"
                           "  repeat 2 as layer { param v[r] = 0.5  y = y + v }\n"
                           "  best, which = topk[a, k](x)\n"
                           "  output ids = which\n"
                           "  output y = y\n"
                           "  loss y * y per known(t)\n"
                           "}\n";
/* The same with axes that are declared in another order than inputs and outputs are written. */
static const char turned[] = "model Out {\n"
                             "  axis batch, k = 2, c = 5, a = 4, r = 3\n"
                             "  input x: real[batch, r, a]\n"
                             "  input t: index(a)[batch, r]\n"
                             "  param w[a] ~ normal(1)\n"
                             "  param u[a, c] ~ normal(1)\n"
                             "  output early = w * x\n"
                             "  output z: real[batch, r, c] = dot[a](x, u)\n"
                             "  y = dot[a](x, w) + dot[c](z, z)\n"
                             "  repeat 2 as layer { param v[r] = 0.5  y = y + v }\n"
                             "  best, which = topk[a, k](x)\n"
                             "  output ids: index(a)[r, batch, k] = which\n"
                             "  output y = y\n"
                             "  loss y * y per known(t)\n"
                             "}\n";
enum { R = 3, A = 4, C = 5, K = 2, SAMPLES = 12 };
#define BASE "bind batch = 4 micro 2 pad c to 6 optimizer sgd(lr = 0.01) "

static void predict(Player *p) {
  ZxPredict *t = NULL;
  p->ok = zx_engine_init(p->e, &p->err) && (t = zx_predict_open(p->e, p->job->save, SAMPLES, &p->err));
  for (int k = 1; p->ok && k <= SAMPLES / 4; k++) p->ok = zx_engine_step(p->e, k, &p->step[k], &p->err);
  if (t) p->ok = zx_predict_close(t, &p->err) && p->ok;
}

static void step_alone(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 1);
}

static float x_of(uint64_t s, uint64_t i) { return job_real("x", s, i); }
static double w_of(uint64_t i) { return zb_random_normal(7, zb_stream("w"), i); }

static void expect(const char *file, const char *name, int n, const int64_t *shape,
                   double (*want)(uint64_t s, uint64_t i), double tolerance) {
  ZbErr err = {0};
  ZxWeights *w = zx_weights_open(scratch(file), false, &err);
  cr_assert(w, "%s", err.text);
  ZxTensorInfo info = {.path = name, .nshape = n, .shape = {SAMPLES}};
  uint64_t each = 1;
  for (int i = 1; i < n; i++) info.shape[i] = shape[i - 1], each *= (uint64_t)shape[i - 1];
  int64_t at = zx_weights_find(w, &info, &err);
  float *x = malloc(SAMPLES * each * sizeof *x);
  cr_assert(at >= 0 && zx_weights_read(w, at, 0, SAMPLES * each, x, &err), "%s", err.text);
  for (uint64_t s = 0; s < SAMPLES; s++)
    for (uint64_t i = 0; i < each; i++)
      cr_assert(fabs((double)x[s * each + i] - want(s, i)) <= tolerance,
                "%s of sample %d at %d is %g, not %g", name, (int)s, (int)i, (double)x[s * each + i],
                want(s, i));
  free(x);
  zx_weights_close(w, NULL);
}

static double early(uint64_t s, uint64_t i) { return (double)x_of(s, i) * (double)(float)w_of(i % A); }
static double z(uint64_t s, uint64_t i) {
  double sum = 0;
  for (uint64_t k = 0; k < A; k++)
    sum += (double)x_of(s, i / C * A + k) * zb_random_normal(7, zb_stream("u"), k * C + i % C);
  return sum;
}
static double y(uint64_t s, uint64_t i) {
  double sum = 1;
  for (uint64_t k = 0; k < C; k++) sum += z(s, i * C + k) * z(s, i * C + k);
  for (uint64_t k = 0; k < A; k++) sum += early(s, i * A + k);
  return sum;
}
/* Of what is equal the lower comes first. */
static double which(uint64_t s, uint64_t i) {
  uint64_t taken = A;
  for (uint64_t n = 0;; n++) {
    uint64_t best = A;
    for (uint64_t k = 0; k < A; k++)
      if (k != taken && (best == A || x_of(s, i / K * A + k) > x_of(s, i / K * A + best))) best = k;
    if (n == i % K) return (double)best;
    taken = best;
  }
}

static void in_every_layout(const char *model) {
  static const char *const layouts[] = {
      "",
      "micro 4",
      "mesh data = 2 split batch over data",
      "mesh tensor = 2 split a over tensor",
      "mesh tensor = 2 split c over tensor",
      "mesh tensor = 3 split r over tensor",
      "mesh data = 2, tensor = 2 split batch over data split c over tensor micro 1",
      "mesh data = 2 split batch over data shard states over data",
      "mesh copy = 2, data = 2 split batch over copy, data micro 1 shard states over data",
      "mesh data = 2 split batch over data shard params, grads, states over data",
      "mesh pipe = 2, data = 2 split batch over data stages over pipe by cost"};
  Model m = job_model(NULL, model, NULL);
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    for (int half = 0; half < 2; half++) {
      Job j = job_of(&m, BASE, zb_printf(m.c.a, "%s%s", layouts[i], half ? " precision compute bf16" : ""),
                     &zx_device_cpu, (ZpOptions){.forward_only = true, .outputs = true});
      j.save = zb_strdup(j.q.a, scratch("out"));
      job_play(&j, predict);
      expect("out", "early", 3, (const int64_t[]){R, A}, early, half ? 2e-2 : 1e-6);
      expect("out", "ids", 3, (const int64_t[]){R, K}, which, 0);
      expect("out", "z", 3, (const int64_t[]){R, C}, z, half ? 6e-2 : 3e-6);
      expect("out", "y", 2, (const int64_t[]){R}, y, half ? 0.5 : 3e-5);
      cr_expect_eq(scratch_files(), 1);
      job_close(&j);
    }
  model_close(&m);
}

Test(outputs, in_every_layout) { in_every_layout(text); }
Test(outputs, as_they_are_written) { in_every_layout(turned); }

/* On a device they come to the host first. */
Test(outputs, on_streams) {
  Model m = job_model(NULL, text, NULL);
  Job j = job_of(&m, BASE, "", zx_devices[0], (ZpOptions){.forward_only = true, .outputs = true});
  j.save = zb_strdup(j.q.a, scratch("out"));
  job_play(&j, predict);
  cr_expect(strstr(j.player[0].told, "each step is queued anew: outputs are taken out of it"), "%s",
            j.player[0].told);
  expect("out", "early", 3, (const int64_t[]){R, A}, early, 1e-6);
  expect("out", "y", 2, (const int64_t[]){R}, y, 1e-5);
  job_close(&j);
  model_close(&m);
}

/* ... where there is room for the largest, whatever else is computed. */
static int rooms;
static void *count_rooms(const ZkEnv *env, size_t bytes, ZbErr *err) {
  rooms += bytes == 2 * 50 * sizeof(float); /* z of a micro-batch */
  return zx_devices[0]->pinned(env, bytes, err);
}
static void *count_host_rooms(const ZkEnv *env, size_t bytes, ZbErr *err) {
  rooms++;
  return zx_device_cpu.pinned(env, bytes, err);
}
/* What is brought are other numbers than what the device has: who reads its memory has those. */
static int brought;
static void bring_negative(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  ZbErr err;
  zx_devices[0]->download(env, to, from, bytes);
  zx_devices[0]->finish(env, &err);
  if (bytes != 2 * 50 * sizeof(float)) return;
  brought++;
  for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)to)[i] *= -1;
}
static double negative(uint64_t s, uint64_t i) {
  double sum = 0;
  for (uint64_t k = 0; k < A; k++) sum -= early(s, k) * zb_random_normal(7, zb_stream("u"), k * 50 + i);
  return sum;
}
Test(outputs, room_for_the_largest) {
  Model m = job_model(NULL,
                      "model Two { axis batch, a = 4, c = 50\n  input x: real[batch, a]\n"
                      "  param w[a], u[a, c] ~ normal(1)\n  y = x * w\n  output y = y\n"
                      "  output z = dot[a](y, u)\n  output v = tanh(y)\n  loss y * y per samples() }\n",
                      NULL);
  ZxDeviceTable device = *zx_devices[0];
  device.pinned = count_rooms;
  device.download = bring_negative;
  for (int written = 0; written < 2; written++) {
    Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", "", &device,
                   (ZpOptions){.forward_only = true, .outputs = written});
    j.save = zb_strdup(j.q.a, scratch("two"));
    rooms = 0;
    job_play(&j, written ? predict : step_alone);
    cr_expect_eq(rooms, written);
    if (written) expect("two", "z", 2, (const int64_t[]){50}, negative, 1e-5);
    job_close(&j);
  }
  /* On the host no room is pinned for them. */
  ZxDeviceTable host = zx_device_cpu;
  host.pinned = count_host_rooms;
  rooms = 0;
  Job at_home = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", "", &host,
                       (ZpOptions){.forward_only = true, .outputs = true});
  job_play(&at_home, step_alone);
  cr_expect_eq(rooms, 0);
  job_close(&at_home);
  /* Where nobody takes them they are not brought. */
  brought = 0;
  Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", "", &device,
                 (ZpOptions){.forward_only = true, .outputs = true});
  job_play(&j, step_alone);
  cr_expect_eq(brought, 0);
  job_close(&j);
  model_close(&m);
}

/* More than are written at once. */
Test(outputs, many_values) {
  Model m =
      job_model(NULL,
                "model Wide { axis batch, a = 20000\n  input x: real[batch, a]\n  param w[a] ~ normal(1)\n"
                "  output early = x * w\n  loss x * w per samples() }\n",
                NULL);
  Job j = job_of(&m, "bind batch = 4 micro 4 optimizer sgd(lr = 1)", "", &zx_device_cpu,
                 (ZpOptions){.forward_only = true, .outputs = true});
  j.save = zb_strdup(j.q.a, scratch("out"));
  job_play(&j, predict);
  ZbErr err = {0};
  ZxWeights *w = zx_weights_open(j.save, false, &err);
  float *x = malloc(20000 * sizeof *x);
  for (uint64_t s = 0; s < SAMPLES; s++) {
    cr_assert(zx_weights_read(w, zx_weights_at(w, "early"), 20000 * s, 20000, x, &err), "%s", err.text);
    for (uint64_t i = 0; i < 20000; i++)
      cr_assert_eq(x[i], x_of(s, i) * (float)w_of(i), "%d, %d", (int)s, (int)i);
  }
  free(x);
  zx_weights_close(w, NULL);
  job_close(&j);
  model_close(&m);
}

static void refuse(const char *model, const char *path, const char *words, const char *help) {
  Model m = job_model(NULL, model, NULL);
  Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", "mesh d = 2 split batch over d",
                 &zx_device_cpu, (ZpOptions){.forward_only = true, .outputs = true});
  j.save = zb_strdup(j.q.a, scratch(path));
  job_try(&j, predict);
  cr_expect(!j.player[0].ok && !j.player[1].ok && strstr(j.player[0].err.text, words), "no '%s' in '%s'",
            words, j.player[0].err.text);
  if (help) cr_expect_str_eq(j.player[0].err.help, help);
  cr_expect_eq(scratch_files(), 0);
  job_close(&j);
  model_close(&m);
}

Test(outputs, refused) {
#define HEAD "model M { axis batch, a = 4\n  input x: real[batch, a]\n  param w[a] = 1\n  y = x * w\n"
#define TAIL "  loss y per samples() }\n"
  refuse(HEAD TAIL, "out", "model M has no outputs", "name what is to be written: `output x = ...`");
  refuse(HEAD "  output z = y\n  output v = w\n" TAIL, "out",
         "output `v` cannot be written: samples are not its slowest axis",
         "give it the axis `batch`, declared before its others");
  refuse(HEAD "  output z = sum[a](mean[batch](y))\n" TAIL, "out",
         "output `z` cannot be written: samples are not its slowest axis", NULL);
  refuse(HEAD "  output z = y\n" TAIL, "none/out", "none/out", NULL);
}

/* Of what is given up nothing stays. */
static void give_up(Player *p) {
  ZxPredict *t = NULL;
  p->ok = zx_engine_init(p->e, &p->err) && (t = zx_predict_open(p->e, p->job->save, SAMPLES, &p->err)) &&
          zx_engine_step(p->e, 1, &p->step[1], &p->err);
  zx_predict_abandon(t);
}

Test(outputs, given_up) {
  Model m = job_model(NULL, HEAD "  output z = y\n" TAIL, NULL);
  Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 1)", "mesh d = 2 split batch over d",
                 &zx_device_cpu, (ZpOptions){.forward_only = true, .outputs = true});
  j.save = zb_strdup(j.q.a, scratch("out"));
  job_play(&j, give_up);
  cr_expect_eq(scratch_files(), 0);
  job_close(&j);
  model_close(&m);
}

/* Who does not take one ends the step, and is asked for no other. */
static int asked;
static bool refuse_output(ZxEngine *e, const ZxOutput *x) {
  (void)x, asked++;
  return zb_fail(e->err, "", "nobody takes it");
}
static void take_none(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  p->e->take_output = refuse_output;
  p->ok = p->ok && !zx_engine_step(p->e, 1, &p->step[1], &p->err);
  cr_expect_str_eq(p->err.text, "nobody takes it");
}
Test(outputs, not_taken) {
  Model m = job_model(NULL, text, NULL);
  Job j = job_of(&m, BASE, "", &zx_device_cpu, (ZpOptions){.forward_only = true, .outputs = true});
  job_play(&j, take_none);
  cr_expect_eq(asked, 1);
  job_close(&j);
  model_close(&m);
}

/* ---- beside training ---- */
typedef struct {
  double loss[WORLD_MOST][3], aux[WORLD_MOST][3];
  const char *weights;
} Eval;

/* Between steps 2 and 3, and after step 4, batches 1 and 2 of the same data. */
static void evaluate(Player *p, ZxEngine *x, int to) {
  Eval *v = p->job->ctx;
  ZxStep s = {0};
  p->ok = p->ok && zx_engine_publish(x, &p->err);
  v->loss[p->rank][to] = 0;
  for (int k = 1; p->ok && k <= 2; k++) {
    p->ok = zx_engine_step(x, k, &s, &p->err);
    v->loss[p->rank][to] += s.loss;
    p->ok = p->ok && s.used_bytes == zx_engine_bytes(x) && s.grad_norm == 0 && !s.lost;
  }
}

static void train_and_look(Player *p) {
  ZxEngineOptions o = {.data = p->data, .order = ZX_ORDER_SEQUENTIAL};
  p->ok = zx_engine_init(p->e, &p->err);
  ZxEngine *x = zx_engine_beside(p->e, p->job->also, p->a, &o, &p->err);
  if (!x) p->ok = false;
  job_steps(p, 1, 2);
  if (p->ok) evaluate(p, x, 0);
  job_steps(p, 3, 4);
  if (p->ok) evaluate(p, x, 1);
  zx_engine_free(x);
  job_save(p);
}

static void look_alone(Player *p) {
  Eval *v = p->job->ctx;
  ZxLoaded l;
  p->ok = zx_engine_load(p->e, &(ZxFrom){.path = v->weights}, &l, &p->err);
  evaluate(p, p->e, 1);
}

static Plan beside_of(const Model *m, const Job *j, const ZxDeviceTable *dev) {
  ZpOptions o = {.scratch = dev->scratch,
                 .threads = 1,
                 .supports = dev->supports,
                 .pins = !dev->host,
                 .forward_only = true,
                 .beside = j->p};
  Plan q = {.a = zb_arena_new()};
  q.d = zl_diags_new(q.a, zl_sources_new(q.a));
  q.p = zp_plan(q.a, m->g, j->q.r, q.d, &o);
  cr_assert(q.p);
  return q;
}

static void look_in(const Model *m, const char *base, const char *layout, const ZxDeviceTable *dev,
                    double tolerance) {
  Eval v = {.weights = NULL}, w = {.weights = zb_strdup(m->c.a, scratch("w"))};
  Job j = job_of(m, base, layout, dev, (ZpOptions){0}), plain = job_of(m, base, layout, dev, (ZpOptions){0});
  Plan also = beside_of(m, &j, dev);
  j.also = also.p;
  j.ctx = &v;
  j.steps = plain.steps = 4;
  j.save = w.weights;
  plain.save = zb_strdup(m->c.a, scratch("plain"));
  job_play(&plain, job_train); /* evaluations change nothing */
  job_play(&j, train_and_look);
  job_compare(&plain, &j, 0, layout);
  Job alone = job_of(m, base, "", &zx_device_cpu, (ZpOptions){.forward_only = true});
  alone.ctx = &w;
  job_play(&alone, look_alone);
  for (int r = 0; r < j.ranks; r++) {
    cr_expect(fabs(v.loss[r][1] - w.loss[0][1]) <= tolerance * w.loss[0][1], "%s: rank %d: %.9g, alone %.9g",
              layout, r, v.loss[r][1], w.loss[0][1]);
    cr_expect(v.loss[r][0] != v.loss[r][1] && v.loss[r][0] > 0);
  }
  job_close(&alone);
  plan_close(&also);
  job_close(&plain);
  job_close(&j);
}

Test(outputs, beside_training) {
  Model m =
      job_model("examples/gpt2.zug", NULL, "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11");
#define SGD "bind batch = 8, seq = 8 micro 2 pad vocab to 4 optimizer sgd(lr = 0.1, momentum = 0.9) clip 1.0 "
  static const char *const layouts[] = {
      "",
      "mesh data = 2 split batch over data shard states over data",
      "mesh data = 2 split batch over data shard grads, states over data",
      "mesh data = 2 split batch over data shard params, grads, states over data unit layer",
      "mesh data = 2 split batch over data shard params, grads, states over data unit layer keep",
      "mesh tensor = 2 split head, ffn, vocab over tensor else seq",
      "mesh pipe = 2, data = 2 split batch over data stages over pipe by cost shard states over data"};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    look_in(&m, SGD, layouts[i], &zx_device_cpu, 1e-6);
  look_in(&m, SGD, "", zx_devices[0], 1e-6);
  look_in(&m, SGD, layouts[1], zx_devices[0], 1e-6);
  look_in(&m, SGD "precision compute bf16 ", layouts[1], &zx_device_cpu, 5e-3);
  model_close(&m);
  m = job_model(NULL, job_line, NULL); /* whose inputs are rounded */
  look_in(&m, "bind batch = 8 micro 2 optimizer sgd(lr = 0.1) precision compute bf16 ",
          "mesh data = 2 split batch over data", &zx_device_cpu, 5e-3);
  model_close(&m);
  m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  look_in(&m, "bind batch = 8, seq = 8 micro 2 optimizer sgd(lr = 0.1) ",
          "mesh ep = 2 split batch, expert over ep bind slot = 0.5", &zx_device_cpu, 1e-6);
  model_close(&m);
}

/* An evaluation has calls of its own. Ranks agree on how they are done before the first one. */
static uint32_t choices_left;
static uint32_t choices(const ZkEnv *env, void *out, uint32_t most, size_t *bytes) {
  (void)env, (void)most;
  *bytes = 1;
  if (out) *(char *)out = 'x';
  return choices_left;
}
static void choose(const ZkEnv *env, const void *list, uint32_t n) {
  (void)env;
  cr_expect(n == 1 && *(const char *)list == 'x');
  choices_left = 0;
}
static bool prepares;
static bool prepare_if(const ZkEnv *env, const ZkCall *c, ZbErr *err) {
  return prepares ? job_prepares(env, c, err) : zb_fail(err, "", "no such call");
}
static void settle(Player *p) {
  ZxEngineOptions o = {.data = p->data, .order = ZX_ORDER_SEQUENTIAL};
  cr_expect_eq(choices_left, 0);
  choices_left = 1;
  ZxEngine *x = zx_engine_beside(p->e, p->job->also, p->a, &o, &p->err);
  cr_expect(x && choices_left == 0);
  zx_engine_free(x);
  prepares = false;
  x = zx_engine_beside(p->e, p->job->also, p->a, &o, &p->err);
  cr_expect(!x && !strcmp(p->err.text, "no such call (test.zug:6)"), "%s", p->err.text);
}
Test(outputs, beside_training_settled) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable device = zx_device_cpu;
  device.prepare = prepare_if;
  device.choices = choices;
  device.choose = choose;
  choices_left = 1;
  prepares = true;
  Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0.1)", "", &device, (ZpOptions){0});
  Plan also = beside_of(&m, &j, &device);
  j.also = also.p;
  job_play(&j, settle);
  plan_close(&also);
  job_close(&j);
  model_close(&m);
}

/* If one rank has no room for its tables of rows, no rank has an engine beside. */
static _Thread_local bool no_room;
static void *pinned_if_room(const ZkEnv *env, size_t bytes, ZbErr *err) {
  if (!no_room) return zx_device_cpu.pinned(env, bytes, err);
  zb_fail(err, "", "nothing is pinned");
  return NULL;
}
static void look_without_room(Player *p) {
  ZxEngineOptions o = {.data = p->data, .order = ZX_ORDER_SEQUENTIAL};
  no_room = p->rank == 1;
  cr_expect(!zx_engine_beside(p->e, p->job->also, p->a, &o, &p->err));
  cr_expect_str_eq(p->err.text, p->rank ? "nothing is pinned" : "");
}
Test(outputs, beside_training_without_room) {
  Model m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  ZxDeviceTable device = zx_device_cpu;
  device.pinned = pinned_if_room;
  Job j = job_of(&m, "bind batch = 8, seq = 8 micro 2 optimizer sgd(lr = 0.1) ",
                 "mesh ep = 2 split batch, expert over ep", &device, (ZpOptions){0});
  Plan also = beside_of(&m, &j, &device);
  j.also = also.p;
  job_play(&j, look_without_room);
  plan_close(&also);
  job_close(&j);
  model_close(&m);
}
