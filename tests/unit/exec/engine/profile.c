/* What operations had to do is counted: FLOPs, bytes and bounds of two steps of a small model, by hand. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(profile, .init = scratch_make, .fini = scratch_remove);

static const char text[] = "model W {\n"
                           "  axis batch, seq\n"
                           "  axis vocab = 12, a = 8, b = 4\n"
                           "  param e[vocab, a], w[a, b] ~ normal(0.1)\n"
                           "  input tokens: index(vocab)[batch, seq]\n"
                           "  y = dot[a](lookup(e, tokens), w)\n"
                           "  s = dot[b](y, y)\n"
                           "  loss s per known(tokens)\n"
                           "}\n";

/* Two steps with batch 4, seq 16, in two micro-batches, after one that is not counted; and then a look. */
static ZpPeaks peak;
static const ZlCluster *cluster; /* by which times are predicted; or NULL */
static void two_steps(Player *p) {
  void (*look)(const ZxEngine *) = p->job->ctx;
  p->ok = zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 1);
  zx_engine_count_anew(p->e, &peak);
  double began = zb_now(), sum = 0;
  job_steps(p, 2, 3);
  for (int i = 0; i < ZG_OP_COUNT + 1; i++) sum += zx_engine_times(p->e)[i];
  cr_expect(sum > 0 && sum <= zb_now() - began, "%g s", sum);
  for (int i = 0; p->job->o.times && i < ZG_OP_COUNT; i++)
    cr_expect((zx_engine_times(p->e)[i] > 0) == (zx_engine_work(p->e)[i].bytes > 0), "%s",
              zg_op_info[i].text);
  if (p->ok) look(p->e);
}

static void run(const char *model, const char *more, bool times, ZpPeaks of, void (*look)(const ZxEngine *)) {
  Model m = job_model(NULL, model, NULL);
  Job j =
      job_of(&m, "bind batch = 4 micro 2 optimizer adamw(lr = 0.001) ", more, &zx_device_cpu, (ZpOptions){0});
  peak = of;
  j.o.times = times;
  j.o.cluster = cluster;
  j.ctx = (void *)(uintptr_t)look;
  job_play(&j, two_steps);
  job_close(&j);
  model_close(&m);
}

#define NEAR(x, y)                                                                                           \
  cr_expect(fabs((x) - (double)(y)) <= 1e-9 * fabs((double)(y)), "%s is %.17g, not %.17g", #x, x, (double)(y))

enum { TIMES = 4, N = 32 }; /* micro-batches; positions of one */
static void expect_work(const ZxEngine *e) {
  const ZxWork *w = zx_engine_work(e);
  const double *t = zx_engine_times(e);
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
}
Test(profile, work_by_hand) {
  run(text, "bind seq = 16", true, (ZpPeaks){.flops = 1e9, .bytes = 1e9}, expect_work);
}

/* A gradient that is larger than what it is summed from: read and written whole where it is added to. */
static void expect_whole(const ZxEngine *e) {
  double x = 4 * 2 * 8, w = 4 * 8 * 4, y = 4 * 2 * 4, s = 4 * 2; /* of two samples */
  NEAR(zx_engine_work(e)[ZG_OP_DOT].bytes, TIMES * ((x + w + y) + (y + s) + (x + y + 1.5 * w)));
}
Test(profile, large_gradient) { run(job_line, "", true, (ZpPeaks){0}, expect_whole); }

/* Of a large table the rows that are asked for. */
static void expect_rows(const ZxEngine *e) {
  const ZxWork *w = zx_engine_work(e);
  double x = 4 * N * 8;
  NEAR(w[ZG_OP_LOOKUP].bytes, TIMES * (x + 4 * N + x));
  NEAR(w[ZG_OP_LOOKUP_GRAD].bytes, TIMES * (x + 4 * N + 2 * x));
}
Test(profile, rows_of_a_table) {
  static const char large[] = "model W {\n"
                              "  axis batch, seq, vocab = 1000, a = 8\n"
                              "  param e[vocab, a] ~ normal(0.1)\n"
                              "  input tokens: index(vocab)[batch, seq]\n"
                              "  y = lookup(e, tokens)\n"
                              "  loss dot[a](y, y) per known(tokens)\n"
                              "}\n";
  run(large, "bind seq = 16", true, (ZpPeaks){0}, expect_rows);
}

/* What the lines of an operation come to. */
static ZxCallTime sum_of(const ZxCallTime *c, uint32_t n, int op) {
  ZxCallTime x = {.op = op};
  for (uint32_t i = 0; i < n; i++) {
    if (c[i].op != op) continue;
    x.calls += c[i].calls, x.seconds += c[i].seconds;
    x.work.flops += c[i].work.flops, x.work.bytes += c[i].work.bytes, x.work.bound += c[i].work.bound;
    x.work.bound_by_flops += c[i].work.bound_by_flops, x.work.predicted += c[i].work.predicted;
  }
  return x;
}

static void expect_calls(const ZxEngine *e) {
  ZxCallTime c[64];
  const double *t = zx_engine_times(e);
  const ZxWork *w = zx_engine_work(e);
  uint32_t n = zx_engine_calls(e, c, 64), forward = 0, backward = 0, count = 0;
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
    ZxCallTime x = sum_of(c, n, op);
    cr_expect(fabs(x.seconds - t[op]) <= 1e-9, "%s: %g s of %g", zg_op_info[op].text, x.seconds, t[op]);
    NEAR(x.work.flops, w[op].flops);
    NEAR(x.work.bytes, w[op].bytes);
  }
  ZxCallTime few[2], behind = {.op = -7};
  few[1] = behind;
  cr_expect_eq(zx_engine_calls(e, few, 1), 1);
  cr_expect(few[0].op == c[0].op && few[0].loc == c[0].loc && few[1].op == behind.op);
}
Test(profile, calls) { run(text, "bind seq = 16", true, (ZpPeaks){0}, expect_calls); }

/* What calls take at the least is what their op does. */
static void expect_bounds(const ZxEngine *e) {
  ZxCallTime c[64];
  const ZxWork *w = zx_engine_work(e);
  uint32_t n = zx_engine_calls(e, c, 64);
  bool by_flops = false, by_bytes = false;
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    ZxWork x = sum_of(c, n, op).work;
    NEAR(x.bound, w[op].bound);
    NEAR(x.bound_by_flops, w[op].bound_by_flops);
    by_flops |= x.bound_by_flops > 0;
    by_bytes |= x.bound > x.bound_by_flops;
  }
  cr_expect(by_flops && by_bytes);
}
Test(profile, bounds_of_calls) { /* some are bounded by the one, some by the other */
  run(text, "bind seq = 16", true, (ZpPeaks){.flops = 1e8, .bytes = 1e9}, expect_bounds);
}

/* Where one of the peaks is not known there are no bounds. */
static void expect_no_bounds(const ZxEngine *e) {
  for (int i = 0; i < ZG_OP_COUNT + 1; i++)
    cr_expect(zx_engine_work(e)[i].bound == 0 && zx_engine_work(e)[i].bound_by_flops == 0);
}
Test(profile, one_peak) {
  run(text, "bind seq = 16", true, (ZpPeaks){.flops = 1e9}, expect_no_bounds);
  run(text, "bind seq = 16", true, (ZpPeaks){.bytes = 1e9}, expect_no_bounds);
}

/* What is predicted of calls is what is predicted of their op. */
static void expect_predictions(const ZxEngine *e) {
  ZxCallTime c[64];
  const ZxWork *w = zx_engine_work(e);
  uint32_t n = zx_engine_calls(e, c, 64);
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    ZxCallTime x = sum_of(c, n, op);
    NEAR(x.work.predicted, w[op].predicted);
    if (op == ZG_OP_DOT)
      cr_expect(x.calls > 0 && x.work.predicted > 1e-6 * (double)x.calls, "each is started");
  }
  cr_expect_geq(w[ZG_OP_COUNT].predicted, w[ZG_OP_COUNT].bytes / 10e9);
}
static const ZlCluster *small(ZbArena *a) {
  static const char text_of[] =
      "cluster c { device memory 1 GB, f32 10 GFLOPS, bf16 10 GFLOPS, products 0.9, "
      "attention 0.5, attention_grad 1, stream 10 GB/s, launch 1 us, steal 0.1 }\n";
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  const ZlCluster *c = zl_cluster(zl_load_text(a, s, d, "c", text_of, sizeof text_of - 1, NULL), d, NULL);
  cr_assert(c && !zl_errors(d));
  return c;
}
Test(profile, predictions_of_calls) {
  ZbArena *a = zb_arena_new();
  cluster = small(a);
  run(text, "bind seq = 16", true, (ZpPeaks){0}, expect_predictions);
  zb_arena_free(a);
}

/* A block's calls are at one place wherever it is used: one line, with what they did in all segments. */
static const char twice[] = "block Mix[a](y: real[.., a], w: real[a]) -> real[.., a] { return tanh(y * w) }\n"
                            "block Turn[a, b](y: real[.., a], w: real[a, b]) -> real[.., b] {\n"
                            "  return dot[a](y, w)\n"
                            "}\n"
                            "model Twice {\n"
                            "  axis batch, seq, a = 8, b = 4, vocab = 12\n"
                            "  param e[vocab, a] ~ normal(0.1)\n"
                            "  param u[a], v[a] ~ normal(1)\n"
                            "  input tokens: index(vocab)[batch, seq]\n"
                            "  x = Mix[a](lookup(e, tokens), u)\n"
                            "  repeat 2 as layer { param w[a] ~ normal(1)  x = Mix[a](x, w) }\n"
                            "  x = Mix[a](x, v)\n"
                            "  param s[a, b], t[a, b] ~ normal(1)\n"
                            "  z = Turn[a, b](x, s) * Turn[a, b](tanh(x), t)\n"
                            "  loss dot[a](x, x) + dot[b](z, z) per known(tokens)\n"
                            "}\n";
static void expect_merged(const ZxEngine *e) {
  ZxCallTime c[200];
  const ZxWork *w = zx_engine_work(e);
  const double *t = zx_engine_times(e);
  uint32_t n = zx_engine_calls(e, c, 200), merged = 0, products = 0;
  cr_assert_lt(n, 200);
  for (uint32_t i = 0; i < n; i++) {
    merged += c[i].op == ZG_OP_POINTWISE && c[i].calls == 4 * TIMES && *c[i].phase == 'f';
    products +=
        c[i].op == ZG_OP_DOT && c[i].calls == 2 * TIMES && *c[i].phase == 'f' && c[i].work.bound_by_flops > 0;
    for (uint32_t k = 0; k < i; k++)
      cr_expect(c[i].op != c[k].op || c[i].loc != c[k].loc || c[i].phase != c[k].phase ||
                    c[i].fused != c[k].fused || !zg_type_eq(c[i].type, c[k].type),
                "%s in two lines", zg_op_info[c[i].op].text);
  }
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    ZxCallTime x = sum_of(c, n, op);
    NEAR(x.work.flops, w[op].flops);
    NEAR(x.work.bytes, w[op].bytes);
    NEAR(x.work.bound, w[op].bound);
    NEAR(x.work.bound_by_flops, w[op].bound_by_flops);
    NEAR(x.work.predicted, w[op].predicted);
    cr_expect(fabs(x.seconds - t[op]) <= 1e-9, "%s: %g s of %g", zg_op_info[op].text, x.seconds, t[op]);
  }
  cr_expect(merged == 1 && products == 1, "%u, %u", merged, products);
}
Test(profile, calls_of_a_block) {
  ZbArena *a = zb_arena_new();
  cluster = small(a);
  run(twice, "bind seq = 16", true, (ZpPeaks){.flops = 1e8, .bytes = 1e9}, expect_merged);
  zb_arena_free(a);
}

/* Attention has rates of its own; where none is known those of products. */
static const char attends[] = "model A {\n"
                              "  axis batch, seq, h = 2, d = 4, vocab = 12\n"
                              "  param e[vocab, h, d] ~ normal(0.1)\n"
                              "  input tokens: index(vocab)[batch, seq]\n"
                              "  x = lookup(e, tokens)\n"
                              "  y = attend[seq, d](x, x, x, mask = none)\n"
                              "  loss dot[h, d](y, y) per known(tokens)\n"
                              "}\n";
static double forward, backward; /* FLOPS */
static void expect_rates(const ZxEngine *e) {
  const ZxWork *w = zx_engine_work(e);
  NEAR(w[ZG_OP_ATTEND].bound, w[ZG_OP_ATTEND].flops / forward);
  NEAR(w[ZG_OP_ATTEND_GRAD].bound, w[ZG_OP_ATTEND_GRAD].flops / backward);
  NEAR(w[ZG_OP_DOT].bound, w[ZG_OP_DOT].flops / 1e6);
  cr_expect(w[ZG_OP_ATTEND].flops > 0 && w[ZG_OP_ATTEND_GRAD].flops > w[ZG_OP_ATTEND].flops);
}
Test(profile, rates_of_attention) {
  ZpPeaks p = {.flops = 1e6, .bytes = 1e15};
  forward = backward = 1e6;
  run(attends, "bind seq = 16", true, p, expect_rates);
  p.attend = forward = 5e5;
  run(attends, "bind seq = 16", true, p, expect_rates);
  p.attend_grad = backward = 2e5;
  run(attends, "bind seq = 16", true, p, expect_rates);
}

/* Of what is cut only the part is read. */
static const char cuts[] = "model C {\n"
                           "  axis batch, a = 8, b = 2\n"
                           "  input x: real[batch, a]\n"
                           "  param w[a] ~ normal(1)\n"
                           "  y = slice[a, b](tanh(x * w), start = 3)\n"
                           "  loss dot[b](y, y) per samples()\n"
                           "}\n";
static void expect_part(const ZxEngine *e) {
  NEAR(zx_engine_work(e)[ZG_OP_SLICE].bytes, 4 * TIMES * (4 * 2));
}
Test(profile, parts) { run(cuts, "", true, (ZpPeaks){0}, expect_part); }

/* A round has room for so many rows, and there are no more rounds than the rows take. */
static const char experts[] = "model X {\n"
                              "  axis batch, s = 4, a = 4, expert = 4, choice = 2, slot\n"
                              "  input x: real[batch, s, a]\n"
                              "  param r[a, expert] ~ normal(1)\n"
                              "  w, e = topk[expert, choice](softmax[expert](f32(dot[a](x, r))))\n"
                              "  y = combine[expert, slot, choice](dispatch[expert, slot](x, e), e, w)\n"
                              "  loss dot[a](y, y) per samples()\n"
                              "}\n";
static int rounds; /* of forward, in a micro-batch */
static void expect_rounds(const ZxEngine *e) {
  ZxCallTime c[200];
  uint32_t n = zx_engine_calls(e, c, 200), found = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (c[i].op != ZG_OP_DISPATCH || strcmp(c[i].phase, "forward")) continue;
    cr_expect_eq(c[i].calls, (uint64_t)(TIMES * rounds), "%d rounds", (int)c[i].calls / TIMES);
    found++;
  }
  cr_expect_gt(found, 0);
}
Test(profile, rounds) { /* 2 samples of 4 places with two choices are 16 rows, and 4 of an expert */
  static const char *const slots[] = {"bind slot = 0.25", "bind slot = 0.5", "bind slot = 0.75",
                                      "bind slot = 1", "bind slot = 3"};
  static const int wanted[] = {4, 2, 2, 1, 1};
  for (int i = 0; i < 5; i++) {
    rounds = wanted[i];
    run(experts, slots[i], true, (ZpPeaks){0}, expect_rounds);
  }
}

/* Rows of experts go to other ranks in rounds. Over all rounds each row, and each count of rows, is sent
 * once. */
static _Atomic int more_rounds;
static void expect_sent(const ZxEngine *e) {
  static const int ops[] = {ZG_OP_ROUND, ZG_OP_DISPATCH, ZG_OP_COMBINE};
  for (int k = 0; k < 3; k++) {
    double once = 0;
    uint64_t calls = 0;
    for (uint32_t i = 0; i < e->st->ninsts; i++) {
      const ZpSegment *s = &e->p->programs.segments[e->st->insts[i].segment];
      for (int phase = 0; phase < ZP_PHASES; phase++)
        for (uint32_t j = 0; j < s->list[phase].n; j++) {
          const ZpNode *n = &s->list[phase].nodes[j];
          if (n->call.op != ops[k]) continue;
          cr_expect(zp_sends(n));
          once += 2 * e->p->asked.nmicro * (double)zp_node_bytes(s, n);
          calls += 2 * e->p->asked.nmicro;
        }
    }
    ZxCallTime c[400];
    cr_expect(once > 0);
    NEAR(zx_engine_work(e)[ops[k]].bytes, once);
    cr_expect_eq(zx_engine_work(e)[ops[k]].bound, 0); /* that of links is not known here */
    more_rounds += sum_of(c, zx_engine_calls(e, c, 400), ops[k]).calls > calls;
  }
}
Test(profile, sent_in_rounds) {
  Model m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  static const char *const recipes[] = {"experts_2", "experts_4"};
  for (int i = 0; i < 2; i++) {
    Job j = job_named(&m, recipes[i], &zx_device_cpu, (ZpOptions){0});
    j.o.times = true;
    j.ctx = (void *)(uintptr_t)expect_sent;
    peak = (ZpPeaks){.flops = 1e9, .bytes = 1e9};
    job_play(&j, two_steps);
    job_close(&j);
  }
  cr_expect_gt(more_rounds, 0);
  model_close(&m);
}

/* Moments of 8 bits: of each element a byte and a 64th more, twice, read and written; with gradient and
 * parameter. */
static const char many[] = "model M { axis batch, a = 512\n  input x: real[batch, a]\n"
                           "  param w[a] ~ normal(1)\n  loss dot[a](x, w) per samples() }\n";
static double more; /* bytes of an element */
static void expect_update(const ZxEngine *e) {
  NEAR(zx_engine_work(e)[ZG_OP_COUNT].bytes, 2 * 512 * (4 + 4 + 8 + more));
}
Test(profile, states) {
  static const char *const by[] = {"optimizer adamw(lr = 1)",
                                   "optimizer adamw(lr = 1, bits = 8)",
                                   "optimizer adamw(lr = 1, bits = 8) average 0.5",
                                   "optimizer sgd(lr = 1)",
                                   "optimizer lion(lr = 1) average 0.5",
                                   "optimizer sgd(lr = 1) precision compute bf16"}; /* in halves */
  static const double bytes[] = {16, 4 * (1 + 4.0 / 256), 8 + 4 * (1 + 4.0 / 256), 0, 16, 0};
  for (int i = 0; i < 6; i++) {
    more = bytes[i];
    run(many, by[i], true, (ZpPeaks){0}, expect_update);
  }
}

/* Two steps of Muon, of a matrix of 8 columns and 4 rows in five iterations: of each x x', its square, and
 * the product of what both come to with x. In f32, the norm reads gradients; momentum is read and written, a
 * gradient read and an update written; products read updates and write them; the last pass has updates to
 * read, and w to read and write. */
static void expect_muon(const ZxEngine *e) {
  const ZxWork *w = zx_engine_work(e);
  NEAR(w[ZG_OP_COUNT].flops, 2 * 5 * (2.0 * 4 * 4 * 8 + 2.0 * 4 * 4 * 4 + 2.0 * 4 * 4 * 8));
  NEAR(w[ZG_OP_COUNT].bytes, 2 * 4 * 32 * (1 + 4 + 2 + 3.0));
}
Test(profile, muon) {
  run(job_line, "optimizer muon(lr = 0.02) for w", true, (ZpPeaks){.flops = 1e9, .bytes = 1e9}, expect_muon);
}

/* Without `times` nothing is counted, and calls have no entries. */
static void expect_nothing(const ZxEngine *e) {
  ZxCallTime c[4];
  cr_expect_eq(zx_engine_calls(e, c, 4), 0);
  cr_expect(!e->timed && !e->timed_at);
  for (int i = 0; i < ZG_OP_COUNT + 2; i++)
    cr_expect(zx_engine_work(e)[i].bytes == 0 && zx_engine_work(e)[i].flops == 0);
}
Test(profile, not_asked_for) {
  run(text, "bind seq = 16", false, (ZpPeaks){.flops = 1e9, .bytes = 1e9}, expect_nothing);
  run(job_line, "optimizer muon(lr = 0.02) for w", false, (ZpPeaks){.flops = 1e9, .bytes = 1e9},
      expect_nothing);
}
