/* On a device whose calls only queue their work, on streams that are threads (tests/scenarios/tools/device_threads.c),
 * all is as on the CPU, bit by bit: losses, norms, parameters, evaluations and checkpoints. Ranks exchange
 * by way of the host there; a rank alone plays its steps from the third on as they were captured in the
 * second. */
#include "tests/scenarios/tools/device_threads.h"
#include "tests/unit/exec/engine/job.h"
#include "tests/unit/exec/engine/queued.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(streams, .init = scratch_make, .fini = scratch_remove);

enum { STEPS = 4 };
#define SGD                                                                                                  \
  "bind batch = 8, seq = 8 micro 2 pad vocab to 4 optimizer sgd(lr = 0.1, momentum = 0.9, warmup = 4) clip " \
  "1.0 "
#define GPT2 "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11"

#define BY_HOST "ranks exchange by way of the host's memory: there is no communicator for this device; "
#define CAPTURED "steps are captured: the third and all that follow are played from the second\n"
#define QUEUED "each step is queued anew: ranks exchange by way of the host; that is about "

/* how: what is said of it. */
static void same_on(const ZxDeviceTable *device, const Model *m, const char *base, const char *body,
                    const char *how) {
  /* Kernels of attention add up in another order where they have threads. */
  double tolerance = strstr(body, "ring") ? 1e-6 : 0;
  Job cpu = job_of(m, base, body, &zx_device_cpu, (ZpOptions){0});
  Job dev = job_of(m, base, body, device, (ZpOptions){0});
  char path[2][400];
  for (int i = 0; i < 2; i++) snprintf(path[i], sizeof *path, "%s", scratch(i ? "dev" : "cpu"));
  cpu.save = path[0], dev.save = path[1];
  cpu.steps = dev.steps = STEPS;
  job_play(&cpu, job_train);
  job_play(&dev, job_train);
  for (int r = 0; r < dev.ranks; r++)
    for (int k = 1; k <= STEPS; k++) {
      const ZxStep *a = &dev.player[r].step[k];
      cr_expect(a->wait_ms == -1 && a->compute_ms == -1 && a->used_bytes == dev.player[r].planned &&
                a->aux == cpu.player[r].step[k].aux && a->weight[0] == cpu.player[r].step[k].weight[0]);
    }
  job_compare(&cpu, &dev, tolerance, body);
  for (int r = 0; r < dev.ranks; r++) {
    cr_expect(strstr(dev.player[r].told, how), "%s: no '%s' in '%s'", body, how, dev.player[r].told);
    cr_expect(strstr(dev.player[r].told, "device memory beside the arena"), "%s", dev.player[r].told);
    cr_expect(strstr(dev.player[r].told, ": 100.0 MB taken at first, 50.0 MB for prepared calls, 10.0 MB for "
                                         "communicators; 690.0 MB of 1.0 GB left\n"));
    cr_expect_eq((strstr(dev.player[r].told, ", with that of other ranks there: ") != NULL),
                 dev.ranks > 1 && !device->comm);
    cr_expect_str_eq(cpu.player[r].told, "");
  }
  job_close(&cpu);
  job_close(&dev);
}

static void same(const Model *m, const char *base, const char *body, const char *how) {
  same_on(zx_devices[0], m, base, body, how);
}
/* Where ranks exchange on streams, and steps are captured. */
static void same_queued(const Model *m, const char *base, const char *body) {
  same_on(queued_device(), m, base, body, "ranks exchange by streams of threads\n" CAPTURED);
}

Test(streams, gpt2) {
  Model m = job_model("examples/gpt2.zug", NULL, GPT2);
  same(&m, SGD, "", CAPTURED);
  same(&m, SGD, "micro 8", CAPTURED);
  same(&m, SGD, "optimizer adamw(lr = 1e-2, warmup = 5)", CAPTURED);
  same(&m, SGD,
       "optimizer lion(lr = 1e-3, warmup = 5) rate 0.5 for wte optimizer adamw(lr = 1e-2, warmup = 4) for "
       "norm rate 2 for ln_f",
       CAPTURED);
  model_close(&m);
}

/* Of two and four ranks. */
static const char *const layouts[] = {
    "mesh data = 2 split batch over data micro 2 shard params, grads, states over data unit layer",
    "mesh data = 2 split batch over data micro 2 shard states over data average 0.5",
    "mesh data = 2 split batch over data precision compute bf16 freeze all except layer.attn average 0.75",
    "mesh tensor = 2 split head, ffn, vocab over tensor else seq",
    "mesh context = 2 split seq over context attention ring",
    "mesh pipe = 2 stages over pipe by cost micro 1",
    ("mesh pipe = 2, data = 2 split batch over data stages over pipe by cost micro 2 shard params, grads, "
     "states over data")};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

Test(streams, exchanges) {
  Model m = job_model("examples/gpt2.zug", NULL, GPT2);
  for (int i = 0; i < LAYOUTS; i++) same(&m, SGD, layouts[i], QUEUED);
  model_close(&m);
}

Test(streams, exchanges_of_streams) {
  Model m = job_model("examples/gpt2.zug", NULL, GPT2);
  for (int i = 0; i < LAYOUTS; i++) same_queued(&m, SGD, layouts[i]);
  model_close(&m);
}

static const char drops[] =
    "use std.nn as nn\n"
    "model Drops {\n"
    "  axis batch, seq, embed = 8, vocab = 12\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  input weight: real[batch]\n"
    "  param wte[vocab, embed] ~ normal(0.5)\n"
    "  state seen[embed] = 0\n"
    "  update seen = 0.9 * seen + 0.1 * mean[batch, seq](f32(lookup(wte, tokens)))\n"
    "  x = lookup(wte, tokens)\n"
    "  repeat 2 as layer { param w[embed] = 1  x = x + nn.dropout(lookup(wte, tokens) * w - seen, p = 0.3) "
    "}\n"
    "  loss weight * weight * xent[vocab](dot[embed](x, wte), targets) per known(targets)\n"
    "}\n";

/* Whatever differs from step to step comes from memory. */
Test(streams, dropout) {
  Model m = job_model(NULL, drops, NULL);
  same(&m, SGD, "", CAPTURED);
  same(&m, SGD, "precision compute bf16", CAPTURED);
  model_close(&m);
}

Test(streams, experts) {
  Model m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  static const char base[] = "bind batch = 8, seq = 8 micro 2 optimizer sgd(lr = 0.1) ";
  same(&m, base, "", "each step is queued anew: hosts must know how many rows experts have; that is about ");
  static const char two[] = "mesh ep = 2 split batch, expert over ep bind slot = 0.7",
                    anew[] = "each step is queued anew: hosts must know how many rows experts have";
  same(&m, base, "bind slot = 0.3", anew);
  /* All rows are those of the last expert. */
  Model hot = job_model("tests/data/models/moe.zug", NULL,
                        "-D layers=1 -D words=16 -D width=8 -D hot=100 -D active=1");
  same(&hot, base, "bind slot = 0.3", anew);
  model_close(&hot);
  same(&m, base, two, anew);
  same_on(queued_device(), &m, base, two, anew);
  model_close(&m);
}

/* A device's memory needs no first touch. */
static void look_untouched(Player *p) { cr_expect_eq(zx_engine_untouched(p->e), 0); }
Test(streams, untouched) {
  Model m = job_model(NULL, job_line, NULL);
  Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0.1)", "", zx_devices[0], (ZpOptions){0});
  job_play(&j, look_untouched);
  job_close(&j);
  model_close(&m);
}

/* Where a device cannot say what its memory has nothing is said of it. */
Test(streams, of_unknown_memory) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable silent = *zx_devices[0];
  silent.memory = NULL;
  Job j = job_of(&m, "bind batch = 8 micro 4 optimizer sgd(lr = 0.1)", "", &silent, (ZpOptions){0});
  job_play(&j, job_train);
  cr_expect(strstr(j.player[0].told, CAPTURED) && !strstr(j.player[0].told, "device memory"));
  job_close(&j);
  model_close(&m);
}

/* ---- steps that are queued anew ---- */
#define LINE "bind batch = 8 micro 4 optimizer sgd(lr = 0.1, warmup = 3) "

static double calls_of(const char *told) {
  const char *at = strstr(told, "that is about ");
  return at ? atof(at + strlen("that is about ")) : 0;
}

/* Nodes of the lists, each in both micro-batches. */
static double nodes_of(const ZpPlan *p) {
  double n = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++) n += p->programs.segments[i].list[k].n;
  return 2 * n;
}

static void told(const Model *m, bool times, double most_nodes, const char *how) {
  Job j = job_of(m, LINE, "", zx_devices[0], (ZpOptions){0});
  j.o.times = times;
  cr_assert(zk_debug_take(&j.debug, zb_printf(m->c.a, "graph-nodes=%.0f", most_nodes), NULL));
  j.steps = STEPS;
  job_play(&j, job_train);
  cr_expect(strstr(j.player[0].told, how), "no '%s' in '%s'", how, j.player[0].told);
  if (calls_of(j.player[0].told) > 0) cr_expect_eq(calls_of(j.player[0].told), nodes_of(j.p));
  job_close(&j);
}

Test(streams, queued_anew) {
  Model m = job_model(NULL, job_line, NULL);
  told(&m, true, 65536, "each step is queued anew: every call is timed; that is about ");
  Job j = job_of(&m, LINE, "", zx_devices[0], (ZpOptions){0});
  double calls = nodes_of(j.p);
  job_close(&j);
  told(&m, false, calls, CAPTURED);
  told(&m, false, calls - 1,
       zb_printf(
           m.c.a,
           "each step is queued anew: its graph would have more than %g nodes (--debug graph-nodes); that "
           "is about %g calls, and at 4 us each %.3g ms of the host's time\n",
           calls - 1, calls, 4e-3 * calls));
  /* What turns out in the second step is said then, once; numbers are the same. */
  setenv("ZUG_TEST_NO_CAPTURE", "1", 1);
  cr_redirect_stderr();
  same(&m, LINE, "", CAPTURED);
  cr_expect_stderr_eq_str(zb_printf(
      m.c.a,
      "[rank 0] note: each step is queued anew: there is no room for it; that is about %g calls, and at 4 us "
      "each %.3g ms of the host's time\n",
      calls, 4e-3 * calls));
  model_close(&m);
}

/* ... and communicators that were captured are made again. */
Test(streams, queued_anew_by_all) {
  static const char two[] = "mesh d = 2 split batch over d micro 2";
  Model m = job_model(NULL, job_line, NULL);
  Job j = job_of(&m, LINE, two, queued_device(), (ZpOptions){0});
  double calls = nodes_of(j.p);
  job_close(&j);
  setenv("ZUG_TEST_NO_CAPTURE", "1", 1);
  cr_redirect_stderr();
  same_queued(&m, LINE, two);
  cr_expect_stderr_eq_str(zb_printf(
      m.c.a,
      "[rank 0] note: each step is queued anew: there is no room for it; that is about %g calls, and at 4 us "
      "each %.3g ms of the host's time\n",
      calls, 4e-3 * calls));
  cr_expect_eq(queued_rebuilt, 2);
  model_close(&m);
}

/* ... also where one of them could not capture, and the other has to let go of what it has. */
static ZxDeviceTable failing;
static _Atomic(const ZkEnv *) cannot, dropped;
static bool capture_but_one(ZkEnv *env, ZbErr *err) {
  const ZkEnv *none = NULL;
  if (!queued_device()->end_capture(env, err)) return false;
  if (!atomic_compare_exchange_strong(&cannot, &none, env)) return true;
  queued_device()->drop_graph(env);
  return zb_fail(err, "", "it is too small");
}
static void drop_and_count(ZkEnv *env) {
  cr_expect(!atomic_exchange(&dropped, env));
  queued_device()->drop_graph(env);
}
Test(streams, queued_anew_by_one) {
  Model m = job_model(NULL, job_line, NULL);
  failing = *queued_device();
  failing.end_capture = capture_but_one;
  failing.drop_graph = drop_and_count;
  cr_redirect_stderr();
  same_on(&failing, &m, LINE, "mesh d = 2 split batch over d micro 2",
          "ranks exchange by streams of threads\n" CAPTURED);
  cr_expect(cannot && dropped && cannot != dropped);
  cr_expect_eq(queued_rebuilt, 2);
  model_close(&m);
}

/* A device may find out in a step that a call is done otherwise, and how much libraries launch: both are
 * said. */
static const char *refused_late(const ZkEnv *env) {
  static const ZkEnv *asked;
  const ZkEnv *before = asked;
  asked = env;
  return before == env ? NULL : "a library refused `dot`";
}
static uint64_t nodes_of_libraries(const ZkEnv *env) { return (void)env, 12345; }
static bool capture_none(ZkEnv *env, ZbErr *err) {
  if (!queued_device()->end_capture(env, err)) return false;
  queued_device()->drop_graph(env);
  return zb_fail(err, "", "it is too large");
}
Test(streams, news_of_a_step) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable device = *queued_device();
  device.late = refused_late;
  device.graph_nodes = nodes_of_libraries;
  device.end_capture = capture_none;
  cr_redirect_stderr();
  same_on(&device, &m, LINE, "", CAPTURED);
  cr_expect_stderr_eq_str(
      "[rank 0] note: a library refused `dot`\n"
      "[rank 0] note: each step is queued anew: it is too large; that is 12345 launches, and "
      "at 4 us each 49.4 ms of the host's time\n");
  model_close(&m);
}

/* The first step is queued; what is captured in the second is played in it and in all that follow. */
static int captures, replays, fed;
static uint32_t pinned_event; /* that inputs were read: who captures a step does not feed it */
static bool noting;
static bool capture_and_count(ZkEnv *env, ZbErr *err) {
  captures++;
  return noting = zx_devices[0]->capture(env, err);
}
static bool end_and_count(ZkEnv *env, ZbErr *err) {
  noting = false;
  return zx_devices[0]->end_capture(env, err);
}
static void record_and_count(const ZkEnv *env, uint32_t event) {
  fed += noting && event == pinned_event;
  zx_devices[0]->record(env, event);
}
static void replay_and_count(const ZkEnv *env) {
  replays++;
  zx_devices[0]->replay(env);
}
Test(streams, captured_in_the_second_step) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable counting = *zx_devices[0];
  counting.capture = capture_and_count;
  counting.end_capture = end_and_count;
  counting.record = record_and_count;
  counting.replay = replay_and_count;
  Job j = job_of(&m, LINE, "", &counting, (ZpOptions){0});
  pinned_event = j.p->programs.stages[0].prog.ninstrs;
  job_close(&j);
  same_on(&counting, &m, LINE, "", CAPTURED);
  cr_expect(captures == 1 && replays == STEPS - 1 && fed == 0, "%d, %d, %d", captures, replays, fed);
  model_close(&m);
}

/* Where inputs of all micro-batches have no room at once a block is filled again when it has been read. */
static void nap(const void *ms) {
  nanosleep(&(struct timespec){.tv_nsec = 1000000L * *(const int *)ms}, NULL);
}
static void upload_late(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  threads_push(env, nap, &(int){5}, sizeof(int));
  zx_devices[0]->upload(env, to, from, bytes);
}
Test(streams, blocks_of_inputs) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable late = *zx_devices[0];
  late.upload = upload_late;
  static const char eight[] = "bind batch = 8 micro 1 optimizer sgd(lr = 0.1)";
  Job cpu = job_of(&m, eight, "", &zx_device_cpu, (ZpOptions){0});
  job_play(&cpu, job_train);
  for (uint32_t n = 1; n <= 3; n++) {
    Job j = job_of(&m, eight, "", &late, (ZpOptions){0});
    cr_assert_eq(j.q.p->programs.stages[0].prog.npinned, 8);
    j.q.p->programs.stages[0].prog.npinned = n;
    job_play(&j, job_train);
    job_compare(&cpu, &j, 0, "blocks");
    cr_expect(strstr(j.player[0].told, "each step is queued anew: its inputs are too large to be pinned at "
                                       "once; that is about "));
    job_close(&j);
  }
  job_close(&cpu);
  model_close(&m);
}

/* A call that is timed takes as long as the device has to do with it. */
enum { WORK_MS = 2 };
static void run_long(const ZkEnv *env, const ZkCall *c) {
  threads_push(env, nap, &(int){WORK_MS}, sizeof(int));
  zx_devices[0]->run(env, c);
}
static void step_with_times(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  zx_engine_count_anew(p->e, &(ZpPeaks){0});
  job_steps(p, 1, 1);
  cr_expect_geq(zx_engine_times(p->e)[ZG_OP_DOT], 6 * 1e-3 * WORK_MS); /* of two micro-batches */
}
Test(streams, timed) {
  Model m = job_model(NULL, job_line, NULL);
  ZxDeviceTable slow = *zx_devices[0];
  slow.run = run_long;
  Job j = job_of(&m, LINE, "", &slow, (ZpOptions){0});
  j.o.times = true;
  job_play(&j, step_with_times);
  job_close(&j);
  model_close(&m);
}

/* Where two ranks exchange by way of the host, what that moves. */
static ZxDeviceTable with_link;
static void link_of(const ZkEnv *env, ZkRates *out) { (void)env, *out = (ZkRates){.link = 1e6}; }
static void carries_by(const Model *m, const char *layout, uint64_t bytes, const ZlCluster *c, double ms) {
  Job j = job_of(m, LINE, layout, &with_link, (ZpOptions){0});
  j.o.cluster = c;
  job_play(&j, job_train);
  char x[24];
  bytes += 8 * zp_step_sums(j.p);
  const char *want = zb_printf(m->c.a, BY_HOST "%s a step go down and up the host's link, about %.3g ms\n",
                               zb_bytes(x, bytes), ms * (double)bytes);
  cr_expect(strstr(j.player[1].told, want), "no '%s' in '%s'", want, j.player[1].told);
  job_close(&j);
}
static void carries(const Model *m, const char *layout, uint64_t bytes) {
  ZlCluster other = {.host_link = 5e5}, silent = {.hbm = 1e12};
  carries_by(m, layout, bytes, NULL, 2e-3);
  carries_by(m, layout, bytes, &silent, 2e-3);
  carries_by(m, layout, bytes, &other, 4e-3);
}

Test(streams, what_the_link_carries) {
  Model m = job_model(NULL, job_line, NULL);
  with_link = *zx_devices[0];
  with_link.rates = link_of;
  carries(&m, "mesh d = 2 split batch over d micro 2",
          4 * 8 * 4 + 8);                                  /* gradients, and what is after `per` */
  carries(&m, "mesh t = 2 split a over t", 2 * 4 * 4 * 4); /* y, of both micro-batches */
  model_close(&m);
  /* The sum that is after `per`; it is counted before forward, which has it once more. */
  m = job_model(NULL,
                "model M { axis batch, a = 8, b = 4\n  input x: real[batch, a]\n  param w[b] ~ normal(1)\n"
                "  loss spread[batch](dot[b](w, w)) per exp(dot[a](x, x)) }\n",
                NULL);
  carries(&m, "mesh t = 2 split a over t", 2 * 4 * 4);
  model_close(&m);
}
