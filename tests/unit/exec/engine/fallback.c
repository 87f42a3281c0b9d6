/* What people are told of slow paths. Devices are the CPU's, with some of it replaced. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(fallback, .init = scratch_make, .fini = scratch_remove);

#define BASE "bind batch = 8 micro 4 optimizer sgd(lr = 0.01) "
static ZxDeviceTable device;

static ZkFallback how;
static int slow_op;
static bool falls_back(const ZkEnv *env, const ZkCall *c, ZkFallback *out) {
  (void)env;
  *out = how;
  if (c->op == ZG_OP_DOT) out->why = c->out[0].rank == 2 ? "they are matrices" : "they are none";
  return c->op == slow_op;
}
static ZkRates rates;
static void rates_of(const ZkEnv *env, ZkRates *out) { (void)env, *out = rates; }

static const ZlCluster *cluster;
static char lines[2048];
static void tell_fallbacks(Player *p) {
  ZbText t = {0}, u = {0};
  zx_engine_fallbacks(p->e, cluster, &t);
  zx_plan_fallbacks(p->job->p, 0, &device, &p->env, cluster, &u);
  p->ok = !strcmp(t.s ? t.s : "", u.s ? u.s : "");
  if (!p->rank) snprintf(lines, sizeof lines, "%s", t.s ? t.s : "");
  zb_text_free(&t);
  zb_text_free(&u);
}

static void expect_lines(const Model *m, const char *recipe, const char *want) {
  Job j = job_of(m, BASE, recipe, &device, (ZpOptions){0});
  job_play(&j, tell_fallbacks);
  cr_expect_str_eq(lines, want, "%s%s", lines, want);
  job_close(&j);
}

static bool makes_biases(const ZkCall *c) { return c->op == ZG_OP_DOT_BIAS_GRAD; }
static size_t no_scratch(const ZkCall *c, int threads) { return (void)c, (void)threads, 0; }

/* 544 FLOPs a micro-batch, of which there are two; 784 bytes go in and out, 320, 144 and 320,
 * and the 128 of a gradient are read to be added to. */
Test(fallback, of_products) {
  Model m = job_model(NULL, job_line, NULL);
  ZlCluster fast = {.flops_f32 = 2e6, .flops_tf32 = 4e6, .flops_bf16 = 8e6, .hbm = 2e12};
  device = zx_device_cpu;
  expect_lines(&m, "", "");
  device.fallback = falls_back;
  device.rates = rates_of;
  rates = (ZkRates){.bf16 = 4e6, .tf32 = 2e6, .f32 = 1e6, .bytes = 1e12, .link = 1};
  slow_op = -1;
#define PRODUCTS(f32, tf32, bf16)                                                                            \
  "note: products in f32 take at least " f32 " a step; with `precision compute tf32` " tf32                  \
  ", with `bf16` " bf16 "\n"
  expect_lines(&m, "", PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms"));
  expect_lines(&m, "micro 8", PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms"));
  expect_lines(
      &m, "precision compute tf32",
      "note: products in tf32 take at least 0.544 ms a step; with `precision compute bf16` 0.272 ms\n");
  expect_lines(&m, "precision compute bf16", "");
  cluster = &fast;
  expect_lines(&m, "", PRODUCTS("0.544 ms", "0.272 ms", "0.136 ms"));
  ZlCluster part = {.flops_f32 = 2e6}, rest = {.flops_tf32 = 4e6, .flops_bf16 = 8e6};
  cluster = &part; /* what it does not say is the device's */
  expect_lines(&m, "", PRODUCTS("0.544 ms", "0.544 ms", "0.272 ms"));
  cluster = &rest;
  expect_lines(&m, "", PRODUCTS("1.09 ms", "0.272 ms", "0.136 ms"));
  cluster = NULL;
  slow_op = ZG_OP_DOT;
  how = (ZkFallback){.what = "by hand", .work = 2};
#define DONE(n, why) "note: " n " `dot` a step are done by hand: " why "; "
  expect_lines(&m, "",
               PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms")
                   DONE("4", "they are matrices") "at least 2.05 ms instead of 1.02 ms\n" DONE(
                       "2", "they are none") "at least 0.128 ms instead of 0.064 ms\n");
  how = (ZkFallback){.what = "by hand", .unknown = true};
  expect_lines(
      &m, "",
      PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms")
          DONE("4", "they are matrices") "1.02 ms at best, and so takes several times as long, which no "
                                         "bound tells\n" DONE(
                                             "2", "they are none") "0.064 ms at best, and so takes several "
                                                                   "times as long, which no bound tells\n");
  rates.bytes = 1e6;
  how = (ZkFallback){.what = "by hand", .work = 2, .unknown = true};
  expect_lines(
      &m, "",
      PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms")
          DONE("4", "they are matrices") "at least 2.05 ms instead of 1.54 ms, and more than this bound "
                                         "tells\n" DONE(
                                             "2", "they are none") "0.288 ms at best, and so takes several "
                                                                   "times as long, which no bound tells\n");
  rates.bytes = 1e12;
  how = (ZkFallback){.what = "by hand", .scalar = true, .work = 3};
  expect_lines(&m, "precision compute bf16",
               DONE("4", "they are matrices") "at least 3.07 ms instead of 0.256 ms\n" DONE(
                   "2", "they are none") "at least 0.192 ms instead of 0.016 ms\n");
  rates = (ZkRates){0};
  expect_lines(&m, "",
               PRODUCTS("0 ms", "0 ms", "0 ms") DONE("4", "they are matrices") "0 ms at best\n" DONE(
                   "2", "they are none") "0 ms at best\n");
  model_close(&m);
  /* A bias's gradient, which is made with the product's, is no other. */
  m = job_model(NULL,
                "model Bias { axis batch, a = 8, b = 4\n  input x: real[batch, a]\n"
                "  param w[a, b], c[b] ~ normal(0.1)\n  y = dot[a](x, w) + c\n"
                "  loss dot[b](y, y) per samples() }\n",
                NULL);
  rates = (ZkRates){.bf16 = 4e6, .tf32 = 2e6, .f32 = 1e6};
  slow_op = -1;
  expect_lines(&m, "", PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms"));
  device.supports = makes_biases;
  device.scratch = no_scratch;
  device.prepare = job_prepares;
  expect_lines(&m, "", PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms"));
  /* Made one after the other they read y's gradient, of 64 bytes, twice; and that of the bias, to add to it. */
  slow_op = ZG_OP_DOT_BIAS_GRAD;
  rates.bytes = 4e5;
  how = (ZkFallback){.what = "by hand", .why = "", .parts = true};
  expect_lines(&m, "",
               PRODUCTS("1.09 ms", "0.544 ms", "0.272 ms") "note: 2 `dot_bias_grad` a step are done by hand: "
                                                           "; at least 2.72 ms instead of 2.32 ms\n");
  model_close(&m);
}

/* Attention has a share of the rate of products, backward one of that for five products where its FLOPs are those of
 * four, and a bias's gradient is backward.
 * Where ranks exchange, what is packed is not a copy of the model's. */
static double flops_a_step(const ZpPlan *p, int op) {
  double flops = 0;
  for (uint32_t i = 0; i < p->programs.stages[0].ninsts; i++)
    for (int k = 0; k < ZP_PHASES; k++) {
      const ZpList *l = &p->programs.segments[p->programs.stages[0].insts[i].segment].list[k];
      for (uint32_t j = 0; j < l->n; j++)
        if (l->nodes[j].call.op == op) flops += p->asked.nmicro * l->nodes[j].flops;
    }
  return flops;
}
static void expect_attention(const Model *m, int op, double rate) {
  Job j = job_of(m, "bind batch = 8, s = 4 micro 4 optimizer sgd(lr = 0.01) precision compute bf16", "",
                 &device, (ZpOptions){0});
  slow_op = op;
  job_play(&j, tell_fallbacks);
  double best = 1e3 * flops_a_step(j.p, op) / rate;
  cr_expect(best > 0);
  cr_expect_str_eq(lines,
                   zb_printf(m->c.a,
                             "note: 2 `%s` a step are done by hand: ; at least %.3g ms instead of %.3g ms\n",
                             zg_op_info[op].text, 2 * best, best));
  job_close(&j);
}
Test(fallback, of_attention) {
  Model m = job_model(NULL,
                      "model At { axis batch, s, past = 4, e = 4, h = 2, d = 8\n"
                      "  input x: real[batch, s, e]\n  input y: real[batch, past, e]\n"
                      "  param wq[e, h, d], wk[e, h, d], wb[e, h] ~ normal(1)\n  k = dot[e](y, wk)\n"
                      "  z = attend[s, past, d](dot[e](x, wq), k, k, mask = none, bias = dot[e](y, wb))\n"
                      "  loss dot[h, d](z, z) per samples() }\n",
                      NULL);
  device = zx_device_cpu;
  device.fallback = falls_back;
  device.rates = rates_of;
  rates = (ZkRates){.bf16 = 4e6, .tf32 = 2e6, .f32 = 1e6, .bytes = 1e12};
  how = (ZkFallback){.what = "by hand", .why = "", .work = 2};
  expect_attention(&m, ZG_OP_ATTEND, 0.33 * 4e6);
  expect_attention(&m, ZG_OP_ATTEND_GRAD, 0.33 * 0.8 / 1.25 * 4e6);
  expect_attention(&m, ZG_OP_ATTEND_BIAS_GRAD, 0.33 * 0.8 / 1.25 * 4e6);
  ZlCluster c = {.attention = 0.5}; /* backward's share of which is not known */
  cluster = &c;
  expect_attention(&m, ZG_OP_ATTEND, 0.5 * 4e6);
  expect_attention(&m, ZG_OP_ATTEND_GRAD, 0.5 * 0.8 / 1.25 * 4e6);
  c.attention_grad = 0.25;
  expect_attention(&m, ZG_OP_ATTEND_GRAD, 0.5 * 0.25 / 1.25 * 4e6);
  expect_attention(&m, ZG_OP_ATTEND_BIAS_GRAD, 0.5 * 0.25 / 1.25 * 4e6);
  cluster = NULL;
  model_close(&m);
  m = job_model(NULL, job_line, NULL);
  slow_op = ZG_OP_COPY;
  expect_lines(&m, "precision compute bf16 mesh t = 2 split a over t", "");
  model_close(&m);
}
