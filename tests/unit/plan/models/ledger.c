/* The arena, byte by byte: against figures worked by hand and published ones. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

static void expect_ledger(const ZpPlan *p, uint32_t stage, const uint64_t want[ZP_LEDGER_LINES]) {
  const ZpLedger *l = &p->programs.stages[stage].ledger;
  uint64_t total[ZP_MEMORIES] = {0};
  for (int i = 0; i < ZP_LEDGER_LINES; i++) {
    cr_expect_eq(l->bytes[i], want[i], "%s: %llu, by hand %llu", zp_ledger_info[i].text,
                 (unsigned long long)l->bytes[i], (unsigned long long)want[i]);
    total[zp_ledger_info[i].memory] += want[i];
  }
  for (int m = 0; m < ZP_MEMORIES; m++) cr_expect_eq(l->total[m], total[m]);
}

/* Everything starts at a multiple of 64 bytes, and slices of a bucket at 16 elements.
 *
 * Parameters: fc1 12 x 8 = 96, 8 -> 16; fc2 8 x 8 = 64, 16; fc3 8 x 6 = 48, 6 -> 16: 256 elements, one bucket
 * (all are used by the one segment). Four samples at once:
 *   slot     image 4 x 12 x 4 = 192, label 4 x 4 -> 64; saved: products 4 x 8 x 4 = 128 twice, 4 x 6 x 4 = 96
 *            -> 128, the loss's maximum and sum 16 -> 64 each: 256 + 512 = 768; one slot, since one stage
 *            never has two in flight
 *   scratch  most is alive in backward at the second relu: the gradient of its result, whose place that of
 *            what goes into it takes, and the relu again: 128 each = 256. The gradient of the logits takes
 *            the logits' place.
 *   scalars  64 twice */
Test(ledger, by_hand) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  Plan q = plan_bare(m.g, "bind batch = 16 micro 4");
  uint64_t want[ZP_LEDGER_LINES] = {[ZP_L_PARAMS] = 1024,     [ZP_L_GRADS] = 1024,  [ZP_L_STATES] = 2048,
                                    [ZP_L_ACTIVATIONS] = 768, [ZP_L_SCRATCH] = 256, [ZP_L_OTHER] = 128};
  expect_ledger(q.p, 0, want);
  plan_close(&q);
  q = plan_bare(m.g, "bind batch = 16 micro 4 optimizer sgd(lr = 0.1)");
  want[ZP_L_STATES] = 0;
  expect_ledger(q.p, 0, want);
  plan_close(&q);
  q = plan_bare(m.g, "bind batch = 16 micro 4 optimizer sgd(lr = 0.1, momentum = 0.9)");
  want[ZP_L_STATES] = 1024;
  expect_ledger(q.p, 0, want);
  plan_close(&q);
  model_close(&m);
}

/* For a device with memory of its own, beside the same arena: inputs of four micro-batches, 192 + 64 bytes
 * each, and two blocks of scalars. Of large inputs, as many blocks as 256 MiB hold: (262,144 x 12 + 262,144)
 * x 4 bytes are 13 MiB. */
Test(ledger, pinned) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  Plan q = plan_pinned(m.g, "bind batch = 16 micro 4"), bare = plan_bare(m.g, "bind batch = 16 micro 4");
  uint64_t want[ZP_LEDGER_LINES] = {0};
  memcpy(want, bare.p->programs.stages[0].ledger.bytes, sizeof want);
  want[ZP_L_PINNED] = 4 * 256 + 2 * 64;
  expect_ledger(q.p, 0, want);
  ZbText with = {0}, without = {0};
  zp_show(q.p, &with);
  zp_show(bare.p, &without);
  const char *table =
      "\nbytes of one rank in the host's memory\nstage        pinned      snapshot          host\n"
      "    0        1.2 kB           0 B        1.2 kB\n";
  cr_expect(strstr(with.s, table), "%s", with.s);
  cr_expect(!strstr(without.s, "host"));
  zb_text_free(&with);
  zb_text_free(&without);
  plan_close(&bare);
  plan_close(&q);
  q = plan_pinned(m.g, "bind batch = 8388608 micro 262144");
  cr_expect_eq(q.p->programs.stages[0].prog.npinned, 19);
  cr_expect_eq(q.p->programs.stages[0].ledger.bytes[ZP_L_PINNED], 19 * (13ull << 20) + 128);
  plan_close(&q);
  model_close(&m);
}

/* 256 elements, three values of each: of itself and AdamW's two states. Replicas and shards write half of
 * them each. */
Test(ledger, snapshot) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  static const struct {
    const char *recipe;
    uint64_t bytes;
  } cases[] = {{"bind batch = 16", 3072},
               {"bind batch = 16 optimizer sgd(lr = 1)", 1024},
               {"mesh d = 2 split batch over d bind batch = 16", 1536},
               {"mesh d = 2 split batch over d bind batch = 16 shard params, grads, states over d", 1536},
               {"mesh r = 2, d = 2 split batch over r, d bind batch = 16 precision compute bf16\n"
                "shard params, grads, states over d",
                768}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_kept(m.g, cases[i].recipe);
    cr_expect_eq(q.p->programs.stages[0].ledger.bytes[ZP_L_SNAPSHOT], cases[i].bytes, "%s: %llu",
                 cases[i].recipe, (unsigned long long)q.p->programs.stages[0].ledger.bytes[ZP_L_SNAPSHOT]);
    plan_close(&q);
  }
  model_close(&m);
}

/* bf16, and half of all that ZeRO-3 cuts: parameters 256 x 2 / 2, as much that is missing to f32; gradients
 * 256 x 4 / 2, states twice that; one whole bucket in bf16 to compute with, one in f32 for its gradient.
 * Slot: image 4 x 12 x 2 = 96 -> 128, label 64, products 64 twice and 4 x 6 x 2 = 48 -> 64, maximum (bf16, 8
 * bytes) and sum (f32, 16) 64 each. */
Test(ledger, by_hand_zero3) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  Plan q = plan_bare(m.g, "mesh d = 2 split batch over d bind batch = 16 micro 4 precision compute bf16\n"
                          "shard params, grads, states over d");
  cr_expect_eq(q.p->programs.buckets[0].elems, 256);
  const ZpLedger *l = &q.p->programs.stages[0].ledger;
  uint64_t want[ZP_LEDGER_LINES] = {
      [ZP_L_PARAMS] = 256,   [ZP_L_MASTER] = 256,      [ZP_L_GRADS] = 512,
      [ZP_L_STATES] = 1024,  [ZP_L_ACTIVATIONS] = 512, [ZP_L_GATHERED] = 512,
      [ZP_L_STAGING] = 1024, [ZP_L_OTHER] = 128,       [ZP_L_SCRATCH] = l->bytes[ZP_L_SCRATCH]};
  expect_ledger(q.p, 0, want);
  plan_close(&q);
  model_close(&m);
}

/* Pipeline of two, 1f1b, three micro-batches of one sample of 16 tokens, width 16 in f32: what travels is 16
 * x 16 x 4 = 1024 bytes either way. */
Test(ledger, pipeline) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q = plan_bare(m.g, "mesh pipe = 2 stages over pipe = [1, 1] bind batch = 3, seq = 16 micro 1");
  const ZpStage *a = &q.p->programs.stages[0], *b = &q.p->programs.stages[1];
  const ZpVirtualStage *av = &q.p->programs.vstages[0], *bv = &q.p->programs.vstages[1];
  cr_expect_eq(av->carry_out_bytes, 1024);
  cr_expect_eq(av->carry_bytes, 0);
  cr_expect_eq(av->dcarry_out_bytes, 1024);
  cr_expect_eq(bv->carry_bytes, 1024);
  cr_expect_eq(bv->dcarry_bytes, 1024);
  cr_expect_eq(a->ledger.bytes[ZP_L_COMM], 1024 * (a->prog.nsend_act + a->prog.nrecv_grad));
  cr_expect_eq(b->ledger.bytes[ZP_L_COMM], 1024 * (b->prog.nrecv_act + b->prog.nsend_grad));
  cr_expect_eq(a->prog.live, 2);
  cr_expect_eq(b->prog.live, 1);
  cr_expect_eq(a->ledger.bytes[ZP_L_ACTIVATIONS], a->prog.nslots * av->slot_bytes);
  cr_expect_eq(av->slot_bytes, av->input_bytes + q.p->programs.segments[0].saved_bytes +
                                   q.p->programs.segments[1].saved_bytes);
  cr_expect_eq(av->input_bytes, 128); /* 16 tokens, 16 targets, 4 bytes each */
  plan_close(&q);
  model_close(&m);
}

/* Rajbhandari et al. 2020, table 1: GB of model states a GPU for 7.5 B parameters, ZeRO-1, 2, 3. Theirs has
 * gradients of 2 bytes, ours of 4, sharded from ZeRO-2 on; and a master of 4, of which ours has the high half
 * in bf16, so 2; all else is the same: 2 for bf16, 8 Adam. */
Test(ledger, zero_paper) {
  static const struct {
    int ranks;
    double gb[3];
  } table[] = {{1, {120, 120, 120}},     {4, {52.5, 41.3, 30}},     {16, {35.6, 21.6, 7.5}},
               {64, {31.4, 16.6, 1.88}}, {256, {30.4, 15.4, 0.47}}, {1024, {30.1, 15.1, 0.12}}};
  static const char *const levels[] = {"states", "grads, states", "params, grads, states"};
  Model m = model_open("gpt2", NULL, "-D layers=36 -D heads=32 -D width=4096");
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    for (int level = 0; level < 3; level++) {
      int n = table[i].ranks;
      ZbText t = {0};
      zb_text_add(
          &t,
          "mesh data = %d split batch over data bind batch = %d, seq = 128 micro 1 precision compute bf16\n",
          n, n);
      zb_text_add(&t, "shard %s over data", levels[level]);
      Plan q = plan_bare(m.g, t.s);
      const uint64_t *l = q.p->programs.stages[0].ledger.bytes;
      double gb = (double)(l[ZP_L_PARAMS] + l[ZP_L_MASTER] + l[ZP_L_GRADS] + l[ZP_L_STATES]) / 1e9;
      double psi = q.p->notes.params / 1e9, theirs = table[i].gb[level] * psi / 7.5,
             more = 2 * psi / (level ? n : 1) - 2 * psi / n;
      cr_expect_float_eq(gb, theirs + more, 0.01 * theirs + 0.01,
                         "%d ranks, level %d: %.2f GB, by the paper %.2f", n, level + 1, gb, theirs + more);
      zb_text_free(&t);
      plan_close(&q);
    }
  model_close(&m);
}

/* Korthikanti et al. 2022, section 4: with tensor and sequence parallelism over t a layer keeps a t-th of
 * what it keeps alone; without seq, norms and carried values stay whole. */
Test(ledger, activations_over_tensor) {
  Model m = model_open("llama3", NULL, "-D layers=2");
  uint64_t saved[3];
  static const char *const recipes[] = {"", "mesh t = 8 split kv, ffn, vocab over t",
                                        "mesh t = 8 split kv, ffn, vocab over t else seq"};
  for (int i = 0; i < 3; i++) {
    Plan q = plan_bare(m.g, zb_printf(m.c.a, "bind batch = 1, seq = 4096 %s", recipes[i]));
    saved[i] = q.p->programs.segments[segment_of(q.p, "layer", 0)].saved_bytes;
    plan_close(&q);
  }
  uint64_t norms = 2 * (4096 * 4096 * 4 + 4096 * 4);
  cr_expect_eq(saved[2] * 8, saved[0]);
  cr_expect_eq((saved[1] - norms) * 8, saved[0] - norms);
  model_close(&m);
}

/* ---- big ones ------------------------------------------------------------------------------------------ */
static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double timed(const ZgGraph *g, const char *recipe, uint64_t limit) {
  double from = seconds();
  Plan q = plan_of(g, recipe);
  double took = seconds() - from;
  for (uint32_t s = 0; s < q.p->programs.nstages; s++)
    cr_expect_leq(q.p->programs.stages[s].ledger.total[ZP_DEVICE], limit);
  cr_log_info("%s, %lld ranks: %.2f s", g->model, (long long)q.p->layout.mesh.nranks, took);
  plan_close(&q);
  return took;
}

Test(ledger, thousands_of_ranks) {
  Model m = model_open("llama3", NULL, NULL);
  cr_expect_lt(
      timed(
          m.g,
          "mesh pipe = 4, data = 8, tensor = 8 bind batch = 1024, seq = 8192 micro 1 precision compute bf16\n"
          "split batch over data split kv, ffn, vocab over tensor else seq stages over pipe by cost\n"
          "shard states over data recompute Layer.attn limit memory 76 GB",
          76000000000),
      5.0);
  model_close(&m);
  m = model_open("llama3", NULL, "-D layers=126 -D heads=128 -D width=16384 -D inner=53248");
  cr_expect_lt(
      timed(m.g,
            "mesh pipe = 16, data = 128, tensor = 8 bind batch = 2048, seq = 8192 micro 1 precision compute "
            "bf16\n"
            "split batch over data split kv, ffn, vocab over tensor else seq stages over pipe by cost\n"
            "shard params, grads, states over data recompute Layer limit memory 76 GB",
            76000000000),
      5.0);
  model_close(&m);
}

/* Twice the layers take twice the time, about. */
Test(ledger, thousand_layers) {
  double took[2];
  for (int i = 0; i < 2; i++) {
    Model m = model_open("llama3", NULL, i ? "-D layers=2000" : "-D layers=1000");
    took[i] = timed(m.g,
                    "mesh pipe = 8, data = 2 split batch over data stages over pipe by cost bind batch = 16, "
                    "seq = 128 micro 1\n"
                    "shard params, grads, states over data",
                    UINT64_MAX);
    model_close(&m);
  }
  cr_expect_lt(took[1], 3 * took[0] + 0.2);
  cr_expect_lt(took[1], 5.0);
}

static void disbelieved(const ZpPlan *p, const char *text) {
  ZbErr err = {0};
  cr_assert(!zp_check(p, &err) && strstr(err.text, text), "%s, not: %s", err.text, text);
}

/* 8 bytes of each parameter: both halves of its f32 value, its gradient, and AdamW's codes with a scale of 4
 * bytes for 256 of each. Beside them the f32 gradient of a micro-batch of each template, once; under ZeRO-2
 * twice, as one is on its way. What a plan says otherwise is not believed. */
Test(ledger, eight_bytes) {
  static const char *const layouts[] = {"", "mesh d = 2 split batch over d",
                                        "mesh d = 2 split batch over d shard states over d",
                                        "mesh d = 2 split batch over d shard grads, states over d"};
  Model m = model_open("gpt2", NULL, "-D layers=3 -D heads=2 -D width=16 -D context=16 -D words=32");
  for (uint64_t level = 0; level < 4; level++) {
    Plan q = plan_bare(m.g, zb_printf(m.c.a,
                                      "bind batch = 8, seq = 16 micro 1 precision compute bf16, grads bf16\n"
                                      "optimizer adamw(lr = 1e-3, bits = 8) %s",
                                      layouts[level]));
    const uint64_t *l = q.p->programs.stages[0].ledger.bytes;
    uint64_t n = 0, staged = 0, codes = 0, states = level > 1 ? 2 : 1, grads = level == 3 ? 2 : 1;
    for (uint32_t b = 0; b < q.p->programs.nbuckets; b++) {
      const ZpBucket *k = &q.p->programs.buckets[b];
      uint64_t held = k->segment == ZP_NONE ? 1 : 3;
      n += held * k->elems;
      codes += held * zb_round_up(2 * (k->elems + k->elems / 256 * 4) / states, 64);
      staged += (held > 1 && level == 3 ? 2 : 1) * 4 * k->elems;
    }
    cr_expect_eq(l[ZP_L_PARAMS], 2 * n);
    cr_expect_eq(l[ZP_L_MASTER], 2 * n / states);
    cr_expect_eq(l[ZP_L_GRADS], 2 * n / grads);
    cr_expect_eq(l[ZP_L_STATES], codes);
    cr_expect_eq(l[ZP_L_STAGING], staged, "level %d: %llu", (int)level, (unsigned long long)l[ZP_L_STAGING]);
    q.p->programs.buckets[0].grad = ZK_F32;
    disbelieved(q.p, "is stored otherwise than the recipe says");
    plan_close(&q);
  }
  Plan q = plan_bare(m.g, "bind batch = 8, seq = 16 micro 1 precision grads bf16");
  ZpBuf *b = q.p->programs.stages[0].prog.bufs;
  while (b->kind != ZP_B_GRAD) b++;
  b->bytes--;
  disbelieved(q.p, "but needs");
  b->bytes++;
  ZpInstr *in = q.p->programs.stages[0].prog.instrs;
  while (in->op != ZP_I_SCATTER_GRADS) in++;
  in->in_place = true;
  disbelieved(q.p, "");
  plan_close(&q);
  model_close(&m);
}
