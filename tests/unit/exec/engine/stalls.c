/* What a rank says of a wait that lasts: in what, for whom or for what, once; and that it goes on. Rank 0
 * loses its patience soon, the last rank takes its time in one call. */
#include "tests/scenarios/tools/device_threads.h"
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>
#include <time.h>

TestSuite(stalls, .init = scratch_make, .fini = scratch_remove);

static _Thread_local bool impatient;
double zx_patience(void);
double zx_patience(void) { return impatient ? 0.25 : 300; }

/* ---- taking one's time: in the first product of a step ---- */
static int slow_step = 1;
static _Thread_local bool slow;
static void linger(const void *unused) {
  (void)unused;
  nanosleep(&(struct timespec){.tv_nsec = 900000000}, NULL);
}
static void run_slowly(const ZkEnv *env, const ZkCall *c) {
  if (slow && c->op == ZG_OP_DOT) slow = false, linger(NULL);
  zx_device_cpu.run(env, c);
}
static void queue_slowly(const ZkEnv *env, const ZkCall *c) {
  if (slow && c->op == ZG_OP_DOT) slow = false, threads_push(env, linger, &(char){0}, 1);
  zx_devices[0]->run(env, c);
}

/* ---- what is asked of its communicator ---- */
static ZxCommTable table;
static void explain(ZxComm *c, ZxRequest r, ZbText *out) {
  (void)c;
  zb_text_add(out, r >= 0 ? "somebody" : "nobody");
}

static bool explains, waits;
static void step_slowly(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  if (!p->rank) table = *p->e->c->t, table.explain = explain, table.stall_hint = "ask it";
  p->c->t->barrier(p->c);
  if (explains) p->e->c->t = &table;
  job_steps(p, 1, slow_step - 1);
  impatient = !p->rank;
  slow = p->rank == p->job->ranks - 1;
  double before = zx_engine_times(p->e)[ZG_OP_COUNT + 1];
  job_steps(p, slow_step, slow_step);
  double waited = zx_engine_times(p->e)[ZG_OP_COUNT + 1] - before;
  if (!p->rank && waits) cr_expect(waited > 0.8 && waited < 60, "%g s", waited);
}

static void stands(const Model *m, const char *layout, const ZxDeviceTable *dev, const char *want) {
  Job j = job_of(m, "bind batch = 4 micro 2 optimizer sgd(lr = 0.01)", layout, dev, (ZpOptions){0});
  j.steps = slow_step;
  waits = *want != 0;
  cr_redirect_stderr();
  job_play(&j, step_slowly);
  cr_expect_stderr_eq_str(want);
  job_close(&j);
}

static const char text[] = "model M { axis batch, a = 8, b = 4\n"
                           "  input x: real[batch, a]\n"
                           "  param u[a] = 1  y = x * u\n"
                           "  repeat 4 as layer { param w[a, b] ~ normal(0.1)  param v[b, a] ~ normal(0.1)\n"
                           "    y = y + dot[b](dot[a](y, w), v) }\n"
                           "  loss dot[a](y, y) per samples() }\n";
#define NOTE "[rank 0] note: step 1: "
#define AN "an operation of the communicator"
#define GOES_ON NOTE "it goes on\n"

static ZxDeviceTable device;
static void stands_on_cpu(const char *layout, const char *want) {
  Model m = job_model(NULL, text, NULL);
  device = zx_device_cpu;
  device.run = run_slowly;
  stands(&m, layout, &device, want);
  model_close(&m);
}

/* Another's part of a sum. */
Test(stalls, in_a_node) {
  stands_on_cpu("mesh t = 2 split b over t",
                NOTE "FWD(layer.0, mb 0) has waited 0 s for `all_reduce` at test.zug:5: " AN "\n" GOES_ON);
}
Test(stalls, in_a_node_explained) {
  explains = true;
  stands_on_cpu("mesh t = 2 split b over t",
                NOTE "FWD(layer.0, mb 0) has waited 0 s for `all_reduce` at test.zug:5: somebody\n" GOES_ON);
}

/* What an instruction waits for is under way: three at the most are named. */
Test(stalls, in_queues) {
  stands_on_cpu("mesh d = 2 split batch over d micro 1",
                NOTE "NORM_LOCAL has waited 0 s for REDUCE_GRADS(layer.3): " AN "; REDUCE_GRADS(layer.2): " AN
                     "; REDUCE_GRADS(layer.1): " AN "; and 2 more\n" GOES_ON);
}
Test(stalls, in_pipes) {
  stands_on_cpu("mesh p = 2 stages over p by cost micro 1",
                NOTE "BWD(layer.1, mb 0) has waited 0 s for RECV_GRAD(mb 0): " AN "; RECV_GRAD(mb 1): " AN
                     "\n" GOES_ON);
}

/* What a device has not done, as far as its events tell. */
static void stands_on_device(const char *want) {
  Model m = job_model(NULL, text, NULL);
  device = *zx_devices[0];
  device.run = queue_slowly;
  stands(&m, "", &device, want);
  model_close(&m);
}
Test(stalls, on_a_device) {
  stands_on_device(NOTE "has waited 0 s for the device, which has not done FWD(layer.0, mb 0)\n" GOES_ON);
}
Test(stalls, on_a_device_explained) {
  explains = true;
  stands_on_device(NOTE "has waited 0 s for the device, which has not done FWD(layer.0, mb 0); "
                        "ask it, or the ranks that say nothing\n" GOES_ON);
}
Test(stalls, on_a_device_captured) {
  slow_step = 2;
  stands_on_device("[rank 0] note: step 2: has waited 0 s for the device\n"
                   "[rank 0] note: step 2: it goes on\n");
}

/* Before the first step, though data were looked at. */
static void begin_slowly(Player *p) {
  impatient = true;
  p->ok = zx_engine_try_data(p->e, 1, &p->err);
  threads_push(&p->env, linger, &(char){0}, 1);
  p->ok = p->ok && zx_engine_init(p->e, &p->err);
}
Test(stalls, before_the_first_step) {
  Model m = job_model(NULL, text, NULL);
  Job j = job_of(&m, "bind batch = 4 micro 2 optimizer sgd(lr = 0.01)", "", zx_devices[0], (ZpOptions){0});
  cr_redirect_stderr();
  job_play(&j, begin_slowly);
  cr_expect_stderr_eq_str("[rank 0] note: has waited 0 s for the device\n[rank 0] note: it goes on\n");
  job_close(&j);
  model_close(&m);
}

/* Where nobody has to wait nothing is said. */
Test(stalls, nobody) {
  slow_step = 3; /* played as it was captured in the second */
  stands_on_device("");
}
