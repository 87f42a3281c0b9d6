/* How much of held-out data an evaluation takes, and what it makes of the sums of its batches: on an engine
 * whose steps compute nothing, of which a device that brings sums says what came of them. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/evaluate.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/stream_file.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(evaluate, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* ---- a plan of two samples of four tokens, and what of an engine a step looks at ---- */
enum { BATCH, SEQ, EACH = 2, LENGTH = 4 };
static uint16_t axes[] = {BATCH, SEQ};
static int64_t sizes[] = {EACH, LENGTH};
static ZgIo input = {.name = "tokens"};
static ZgLoss losses[] = {{.name = "main"}, {.name = "other"}};
static ZgSegment parts[2];
static ZgGraph graph = {.inputs = &input, .ninputs = 1, .segments = parts, .nsegments = 2};
static ZpInputUse use;
static ZpValue value = {
    .elem = ZK_I32, .axis = {BATCH, SEQ}, .size = {EACH, LENGTH}, .bytes = 4 * EACH * LENGTH};
static ZpSegment segment = {.values = &value};
static ZpStage stage;
static ZpPlan plan = {.graph = &graph,
                      .programs.segments = &segment,
                      .programs.stages = &stage,
                      .programs.nstages = 1,
                      .programs.inputs = &use,
                      .programs.ninputs = 1,
                      .asked.nmicro = 1,
                      .layout.axis_size = sizes,
                      .layout.axis_valid = sizes,
                      .asked.batch = BATCH,
                      .asked.global_batch = EACH,
                      .layout.mesh = {.nranks = 1}};

static const double (*sums)[5]; /* of each batch: of two losses, their weights, what is added */
static double loss[2], weight[2], aux, squares, lost;
static int batches;
static void brings(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env, (void)to, (void)from, (void)bytes;
  const double *x = sums[batches++];
  loss[0] = x[0], loss[1] = x[1], weight[0] = x[2], weight[1] = x[3], aux = x[4];
}

static ZkEnv env;
static ZkStepState now, then;
static ZxDeviceTable device;
static bool done[1];
static ZxEngine engine(void) {
  device = zx_device_cpu;
  device.download = brings;
  value.type = input.type = zg_type(ZG_INDEX, axes, 2);
  batches = 0;
  return (ZxEngine){
      .p = &plan,
      .st = &stage,
      .dev = &device,
      .env = &env,
      .world = zx_comm_self(),
      .c = zx_comm_self(),
      .in_order = true,
      .done = done,
      .capture = {ZX_CAPTURE_NEVER},
      .step_state = &now,
      .count = {.step_state = &then},
      .nlosses = zg_losses(&graph),
      .step_sums = {.loss = loss, .aux = &aux, .squares = &squares, .denominator = weight, .lost = &lost}};
}

/* ---- how much ---- */
static void opens(int samples, int64_t most, int64_t want, uint64_t left_out, const char *words,
                  const char *help) {
  uint8_t ids[64] = {0};
  ZbText t = {0};
  ZxEval v;
  ZxEngine e = engine();
  stream_file("d", ZX_DATA_U8, ids, (size_t)(samples * LENGTH + 1), 0);
  e.o.data = zx_mix_open(scratch("d"), &err);
  cr_assert(e.o.data, "%s", err.text);
  err = (ZbErr){0};
  bool ok = zx_eval_open(&v, &e, &plan, "D\n", most, &err);
  cr_expect_eq(ok, want > 0, "%d, %d: %s", samples, (int)most, err.text);
  if (ok) {
    cr_expect(v.batches == want && v.left_out == left_out && v.best_step == -1 && v.engine == &e &&
              v.plan == &plan);
    zx_eval_tell(&v, "D\n", &t);
    cr_expect_str_eq(t.s, words, "%s", t.s);
  } else {
    cr_expect_str_eq(err.text, words, "%s", err.text);
    cr_expect_str_eq(err.help, help);
  }
  zb_text_free(&t);
  zx_mix_close((ZxMix *)e.o.data);
}

Test(evaluate, whole_batches) {
  opens(
      5, 0, 2, 1,
      "evaluation of D\\n: 2 batches of 2 samples; the last 1 samples make no whole batch and are left out\n",
      NULL);
  opens(
      5, 2, 2, 1,
      "evaluation of D\\n: 2 batches of 2 samples; the last 1 samples make no whole batch and are left out\n",
      NULL);
  opens(5, 1, 1, 3, "evaluation of D\\n: 1 batch of 2 samples; the other 3 samples are left out\n", NULL);
  opens(4, 1, 1, 2, "evaluation of D\\n: 1 batch of 2 samples; the other 2 samples are left out\n", NULL);
  opens(4, 0, 2, 0, "evaluation of D\\n: 2 batches of 2 samples\n", NULL);
  opens(2, 0, 1, 0, "evaluation of D\\n: 1 batch of 2 samples\n", NULL);
  opens(5, 3, 0, 0, "--eval-batches 3: D\\n has 2 whole batches of 2 samples",
        "leave --eval-batches out to take them all");
  opens(1, 0, 0, 0, "D\\n has 1 samples; an evaluation takes whole batches of 2",
        "use more data, or `bind` a smaller batch");
}

/* ---- what comes of it ---- */
static ZxEvalMetrics runs(ZxEval *v, int64_t step, const double (*of)[5]) {
  ZxEvalMetrics m;
  sums = of, batches = 0;
  cr_assert(zx_eval_run(v, step, 9, &m, &err), "%s", err.text);
  cr_expect(batches == 2 && m.step == step && m.steps == 9 && m.batches == 2 && m.ms >= 0 && m.ms < 60e3);
  return m;
}

/* Sums are divided when all are added up, and what is added to the loss is a mean. */
Test(evaluate, sums_of_batches) {
  static const double one[][5] = {{6, 1, 2, 1, 0.5}, {2, 5, 2, 3, 0.25}}, /* 2 + 1.5 + 0.375 */
      better[][5] = {{1, 1, 2, 1, 0}, {1, 5, 2, 3, 0}}, equal[][5] = {{1, 2, 2, 1, 0}, {1, 4, 2, 3, 0}},
                      broken[][5] = {{-INFINITY, 1, 2, 1, 0}, {1, 5, 2, 3, 0}};
  graph.losses = losses, graph.nlosses = 2;
  ZxEngine e = engine();
  ZxEval v = {.engine = &e, .plan = &plan, .batches = 2, .best_step = -1};
  ZxEvalMetrics m = runs(&v, 2, broken);
  cr_expect(!isfinite(m.loss) && m.best_step == -1, "none was finite");
  m = runs(&v, 3, one);
  cr_expect_eq(m.loss, 3.875, "%g", m.loss);
  cr_expect(m.perplexity == -1 && m.tokens == 4 && m.best == 3.875 && m.best_step == 3);
  cr_expect(m.nparts == 2 && !strcmp(m.part[0].name, "main") && !strcmp(m.part[1].name, "other"));
  cr_expect(m.part[0].value == 2 && m.part[1].value == 1.5);
  m = runs(&v, 4, better);
  cr_expect(m.loss == 2 && m.best == 2 && m.best_step == 4);
  m = runs(&v, 5, equal);
  cr_expect(m.loss == 2 && m.best == 2 && m.best_step == 4, "the first of those that are as good");
  m = runs(&v, 6, one);
  cr_expect(m.loss == 3.875 && m.best == 2 && m.best_step == 4);
  m = runs(&v, 7, broken);
  cr_expect(m.best == 2 && m.best_step == 4);
}

/* Whoever adds `aux` terms sees the losses without them, and the terms without the losses; where nothing is
 * added a loss without a name is said once, and so are terms that are added to nothing. Those of backward
 * are none. */
static ZgNode made_of[] = {{.op = ZG_OP_DOT}, {.op = ZG_OP_LOSS_NUM}, {.op = ZG_OP_AUX}};
static ZgValue made = {.node = 0};
static void has_parts(uint32_t named, ZgOp what, uint32_t nforward, const char *names) {
  static const double sum[] = {6, 4}, weight[] = {2, 1};
  ZxLossPart part[ZX_MOST_PARTS];
  ZbText t = {0};
  made_of[0].op = what;
  graph.losses = losses, graph.nlosses = named;
  parts[0] = (ZgSegment){.nodes = made_of, .nnodes = 3, .nforward = nforward, .values = &made, .nvalues = 1};
  uint32_t n = zx_loss_parts(&plan, sum, weight, 0.5, part);
  zb_text_add(&t, "%s", "");
  for (uint32_t i = 0; i < n; i++) zb_text_add(&t, "%s %g ", part[i].name, part[i].value);
  cr_expect_str_eq(t.s, names, "%s", t.s);
  zb_text_free(&t);
}

Test(evaluate, what_a_loss_is_made_of) {
  has_parts(0, ZG_OP_DOT, 3, "main 3 aux 0.5 ");
  has_parts(0, ZG_OP_DOT, 2, "");
  has_parts(0, ZG_OP_FILL, 3, "");
  has_parts(2, ZG_OP_DOT, 2, "main 3 other 4 ");
  has_parts(2, ZG_OP_DOT, 3, "main 3 other 4 aux 0.5 ");
  double sums[ZG_MAX_LOSSES] = {0};
  ZgLoss many[ZG_MAX_LOSSES];
  for (int i = 0; i < ZG_MAX_LOSSES; i++) many[i].name = "one";
  ZxLossPart part[ZX_MOST_PARTS];
  graph.losses = many, graph.nlosses = ZG_MAX_LOSSES;
  cr_expect_eq(zx_loss_parts(&plan, sums, sums, 0, part), ZG_MAX_LOSSES + 1);
}

/* An evaluation says it, too: the mean of what its batches added. */
Test(evaluate, aux_by_itself) {
  static const double one[][5] = {{6, 1, 2, 1, 0.5}, {2, 5, 2, 3, 0.25}};
  parts[1] = (ZgSegment){.nodes = made_of, .nnodes = 3, .nforward = 3, .values = &made, .nvalues = 1};
  ZxEngine e = engine();
  ZxEval v = {.engine = &e, .plan = &plan, .batches = 2, .best_step = -1};
  ZxEvalMetrics m = runs(&v, 3, one);
  cr_expect(m.nparts == 2 && !strcmp(m.part[0].name, "main") && !strcmp(m.part[1].name, "aux"));
  cr_expect(m.part[0].value == 2 && m.part[1].value == 0.375 && m.loss == 2.375);
}

/* Data of which nothing is known have no loss, so not the best one. One loss of several may know nothing. */
Test(evaluate, unknown) {
  static const double none[][5] = {{0, 0, 0, 0, 0.5}, {7, 0, 0, 0, 0.25}},
                      second[][5] = {{7, 1, 0, 1, 0}, {0, 5, 0, 3, 0}};
  ZxEngine e = engine();
  for (uint32_t n = 0; n < 3; n += 2) {
    graph.losses = losses, graph.nlosses = n;
    e.nlosses = zg_losses(&graph);
    ZxEval v = {.engine = &e, .plan = &plan, .batches = 2, .best_step = -1, .likelihood = true};
    ZxEvalMetrics m = runs(&v, 2, none);
    cr_expect(isnan(m.loss) && m.unknown && m.perplexity == -1 && m.tokens == 0 && m.best_step == -1);
    for (uint32_t k = 0; k < m.nparts; k++) cr_expect(isnan(m.part[k].value));
    if (!n) continue;
    m = runs(&v, 3, second);
    cr_expect(m.loss == 1.5 && !m.unknown && m.perplexity == -1 && m.best_step == 3);
    cr_expect(isnan(m.part[0].value) && m.part[1].value == 1.5);
  }
}

static bool cannot_finish(const ZkEnv *e, ZbErr *why) {
  return (void)e, zb_fail(why, NULL, "the device is gone");
}

/* That of step 0 counts; what the engine that trains cannot hand out is not evaluated. */
Test(evaluate, beside_training) {
  static const double one[][5] = {{6, 1, 2, 1, 0.5}, {2, 5, 2, 3, 0.25}},
                      better[][5] = {{1, 1, 2, 1, 0}, {1, 5, 2, 3, 0}};
  ZxEngine e = engine(), trains = e;
  ZxDeviceTable broken = device;
  ZxEval v = {.engine = &e, .plan = &plan, .batches = 2, .best_step = -1};
  ZxEvalMetrics m;
  broken.finish = cannot_finish;
  e.beside = &trains;
  m = runs(&v, 0, better);
  cr_expect_eq(m.best_step, 0);
  m = runs(&v, 1, one);
  cr_expect(m.best_step == 0 && m.best < m.loss);
  trains.dev = &broken;
  batches = 0;
  cr_expect(!zx_eval_run(&v, 2, 9, &m, &err) && batches == 0);
  cr_expect_str_eq(err.text, "the device is gone");
}

/* It has a perplexity where the first loss and a cross-entropy are in one part of the model. */
Test(evaluate, perplexity) {
  static const double one[][5] = {{6, 1, 2, 1, 0.5}, {2, 5, 2, 3, 0.25}};
  static ZgNode num = {.op = ZG_OP_LOSS_NUM}, second = {.op = ZG_OP_LOSS_NUM, .opt = {1}},
                xent = {.op = ZG_OP_XENT_SUMS}, none = {.op = ZG_OP_DOT};
  const struct {
    ZgNode nodes[2][2];
    bool is;
  } cases[] = {{{{xent, num}, {none, none}}, true},  {{{none, none}, {num, xent}}, true},
               {{{num, none}, {xent, none}}, false}, {{{xent, second}, {none, none}}, false},
               {{{none, num}, {num, none}}, false},  {{{xent, none}, {xent, second}}, false},
               {{{num, xent}, {num, none}}, true}};
  uint8_t ids[4 * LENGTH + 1] = {0};
  stream_file("d", ZX_DATA_U8, ids, sizeof ids, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZxEngine e = engine();
    ZxEval v;
    for (int k = 0; k < 2; k++) parts[k].nodes = (ZgNode *)cases[i].nodes[k], parts[k].nforward = 2;
    e.o.data = zx_mix_open(scratch("d"), &err);
    cr_assert(e.o.data && zx_eval_open(&v, &e, &plan, "d", 0, &err), "%s", err.text);
    ZxEvalMetrics m = runs(&v, 1, one);
    cr_expect_eq(v.likelihood, cases[i].is, "%zu", i);
    cr_expect(cases[i].is ? fabs(m.perplexity - exp(2)) < 1e-12 : m.perplexity == -1, "%zu: %g", i,
              m.perplexity);
    cr_expect(m.nparts == 0 && m.loss == 2 + 0.375);
    zx_mix_close((ZxMix *)e.o.data);
  }
}
