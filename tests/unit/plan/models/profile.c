/* What operations had to do is counted: FLOPs, bytes and bounds of two steps of a small model, by hand. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/state/state.h"
#include "tests/unit/plan/models/plan.h"
#include "tests/unit/plan/models/stream.h"

#include <criterion/criterion.h>
#include <math.h>

static const char text[] = "model W {\n"
                           "  axis batch, seq\n"
                           "  axis vocab = 12, a = 8, b = 4\n"
                           "  param e[vocab, a], w[a, b] ~ normal(0.1)\n"
                           "  input tokens: index(vocab)[batch, seq]\n"
                           "  y = dot[a](lookup(e, tokens), w)\n"
                           "  s = dot[b](y, y)\n"
                           "  loss s per known(tokens)\n"
                           "}\n";

typedef struct {
  Model m;
  Plan q;
  ZkEnv env;
  ZxMix *data;
  ZxEngine *e;
} Run;

/* Two steps with batch 4, seq 16, in two micro-batches. */
static Run run(bool times, const ZxPeaks *peak) {
  Run r = {.m = model_open("w", text, "")};
  ZbErr err = {0};
  ZxStep step;
  r.q = plan_of(r.m.g, "bind batch = 4, seq = 16 micro 2");
  r.env = (ZkEnv){.pool = zk_pool_new(1)};
  r.data = stream_of_tokens(r.q.a);
  cr_assert(zx_device_cpu.open(&r.env, 0, &err), "%s", err.text);
  ZxEngineOptions o = {.device = &zx_device_cpu, .env = &r.env, .data = r.data, .times = times};
  r.e = zx_engine_new(r.q.a, r.q.p, zx_comm_self(), &o, &err);
  cr_assert(r.e, "%s", err.text);
  cr_assert(zx_engine_init(r.e, &err) && zx_engine_step(r.e, 1, &step, &err), "%s", err.text);
  zx_engine_count_anew(r.e, peak);
  for (uint64_t n = 2; n < 4; n++) cr_assert(zx_engine_step(r.e, n, &step, &err), "%s", err.text);
  return r;
}

static void end(Run *r) {
  ZxComm *c = r->e->c;
  zx_engine_free(r->e);
  c->t->free(c);
  zx_device_cpu.close(&r->env);
  zk_pool_free(r->env.pool);
  zx_mix_close(r->data);
  plan_close(&r->q);
  model_close(&r->m);
}

#define NEAR(x, y)                                                                                           \
  cr_expect(fabs((x) - (double)(y)) <= 1e-9 * fabs((double)(y)), "%s is %.17g, not %.17g", #x, x, (double)(y))

Test(profile, work_by_hand) {
  enum { TIMES = 4, N = 32 }; /* micro-batches; positions of one */
  ZxPeaks peak = {.flops = 1e9, .bytes = 1e9};
  Run r = run(true, &peak);
  const ZxWork *w = zx_engine_work(r.e);
  const double *t = zx_engine_times(r.e);
  /* y; s, whose operands are one; of w and of y. The gradient of y is made by mul. */
  double flops = 2.0 * N * 8 * 4, x = 4 * N * 8, y = 4 * N * 4, table = 4 * 12 * 8, wb = 4 * 8 * 4;
  NEAR(w[ZG_OP_DOT].flops, TIMES * (3 * flops + 2.0 * N * 4));
  /* w's gradient is written by the first micro-batch of a step, and added to by the second. */
  NEAR(w[ZG_OP_DOT].bytes, TIMES * ((x + wb + y) + (y + 4 * N) + (x + y + 1.5 * wb) + (y + wb + x)));
  /* Of the table as many rows as are asked for, but all of it at most; ids are read. */
  NEAR(w[ZG_OP_LOOKUP].bytes, TIMES * (table + 4 * N + x));
  cr_expect_eq(w[ZG_OP_LOOKUP].flops, 0);
  /* Rows are always added to what is there. */
  NEAR(w[ZG_OP_LOOKUP_GRAD].bytes, TIMES * (x + 4 * N + 2 * table));
  /* Two steps: the norm reads 4 bytes an element, AdamW has gradient, parameter, m and v. 12 x 8 and 8 x 4
   * elements are whole slices. */
  NEAR(w[ZG_OP_COUNT].bytes, 2 * (4 + 28) * (12 * 8 + 8 * 4));
  for (int i = 0; i < ZG_OP_COUNT + 1; i++) {
    double bound = w[i].flops / peak.flops > w[i].bytes / peak.bytes ? w[i].flops : w[i].bytes;
    cr_expect(w[i].bytes == 0 || t[i] > 0, "%s takes no time", i < ZG_OP_COUNT ? zg_op_info[i].text : "");
    cr_expect_leq(w[i].bound_by_flops, w[i].bound);
    cr_expect_geq(w[i].bound, 1e-9 * bound * (1 - 1e-9));
  }
  NEAR(w[ZG_OP_LOOKUP].bound, 1e-9 * w[ZG_OP_LOOKUP].bytes);
  end(&r);
}

Test(profile, calls) {
  Run r = run(true, &(ZxPeaks){0});
  ZxCallTime c[64];
  const double *t = zx_engine_times(r.e);
  const ZxWork *w = zx_engine_work(r.e);
  uint32_t n = zx_engine_calls(r.e, c, 64), forward = 0, backward = 0, count = 0;
  cr_assert(n > 4 && n < 64);
  for (uint32_t i = 0; i < n; i++) {
    cr_expect(i == 0 || c[i - 1].seconds >= c[i].seconds, "the longest come first");
    cr_expect_eq(c[i].calls % 4, 0);
    cr_expect_eq(c[i].work.bound, 0, "no peaks are known");
    forward += c[i].op == ZG_OP_DOT && !strcmp(c[i].phase, "forward");
    backward += c[i].op == ZG_OP_DOT && !strcmp(c[i].phase, "backward");
    count += !strcmp(c[i].phase, "count");
  }
  cr_expect(forward == 2 && backward == 2 && count > 0, "%u %u %u", forward, backward, count);
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    double seconds = 0, flops = 0, bytes = 0;
    for (uint32_t i = 0; i < n; i++)
      if (c[i].op == op) seconds += c[i].seconds, flops += c[i].work.flops, bytes += c[i].work.bytes;
    cr_expect(fabs(seconds - t[op]) <= 1e-9, "%s: %g s of %g", zg_op_info[op].text, seconds, t[op]);
    NEAR(flops, w[op].flops);
    NEAR(bytes, w[op].bytes);
  }
  ZxCallTime few[2], behind = {.op = -7};
  few[1] = behind;
  cr_expect_eq(zx_engine_calls(r.e, few, 1), 1);
  cr_expect(few[0].op == c[0].op && few[0].loc == c[0].loc && few[1].op == behind.op);
  end(&r);
}

/* What calls take at the least is what their op does. */
Test(profile, bounds_of_calls) {
  Run r =
      run(true, &(ZxPeaks){.flops = 1e8, .bytes = 1e9}); /* some are bounded by the one, some by the other */
  ZxCallTime c[64];
  const ZxWork *w = zx_engine_work(r.e);
  uint32_t n = zx_engine_calls(r.e, c, 64);
  bool by_flops = false, by_bytes = false;
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    double bound = 0, flops = 0;
    for (uint32_t i = 0; i < n; i++)
      if (c[i].op == op) bound += c[i].work.bound, flops += c[i].work.bound_by_flops;
    NEAR(bound, w[op].bound);
    NEAR(flops, w[op].bound_by_flops);
    by_flops |= flops > 0;
    by_bytes |= bound > flops;
  }
  cr_expect(by_flops && by_bytes);
  end(&r);
}

/* Without `times` nothing is counted, and calls have no entries. */
Test(profile, not_asked_for) {
  Run r = run(false, &(ZxPeaks){.flops = 1e9, .bytes = 1e9});
  ZxCallTime c[4];
  cr_expect_eq(zx_engine_calls(r.e, c, 4), 0);
  cr_expect(!r.e->timed && !r.e->timed_at);
  for (int i = 0; i < ZG_OP_COUNT + 2; i++)
    cr_expect(zx_engine_work(r.e)[i].bytes == 0 && zx_engine_work(r.e)[i].flops == 0);
  end(&r);
}
