/* A predicted step beside measured ones, by their traces. */
#include "runtime/plan/output/page.h"
#include "runtime/plan/output/compare.h"
#include "runtime/plan/text.h"
#include "tests/unit/golden.h"
#include "tests/unit/plan/models/plan.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char cluster[] = "cluster c { device f32 1 GFLOPS, products 0.8, attention 0.4, attention_grad "
                              "0.7, stream 1 GB/s, launch 2 us, steal 0.5\n"
                              "  level box 8, link 1 GB/s, latency 5 us, start 10 us, ramp 1 us }\n";

typedef struct {
  Model m;
  Plan q;
  const ZpTime *t;
} Predicted;

static Predicted predict(void) {
  Predicted x = {
      .m = model_open("gpt2", NULL, "-D layers=12 -D heads=2 -D width=8 -D context=16 -D words=16")};
  x.q = plan_bare(x.m.g,
                  "mesh pipe = 2, data = 2, tensor = 2 split batch over data split head, ffn over tensor\n"
                  "stages over pipe by cost bind batch = 8, seq = 16 micro 2");
  ZlProgram *p = zl_load_text(x.q.a, zl_sources_new(x.q.a), x.q.d, "c.zug", cluster, strlen(cluster), NULL);
  x.t = zp_time(x.q.a, x.q.p, zl_cluster(p, x.q.d, "c"), true, x.q.d);
  cr_assert(x.t);
  return x;
}

static void close(Predicted *x) {
  plan_close(&x->q);
  model_close(&x->m);
}

/* What a run of two steps would write: each kind of instruction takes another multiple of what is predicted, and in
 * the second step half as much more. */
static ZbText measured(const Predicted *x, double clock) {
  ZbText out = {0};
  const ZpPlan *p = x->q.p;
  zb_text_add(&out, "%s", zp_trace_head);
  for (int64_t rank = 0; rank < p->layout.mesh.nranks; rank++) {
    uint32_t s = (uint32_t)zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe),
             n = (uint32_t)x->t->stages[s].nspans;
    ZpSpan *spans = ZB_NEWN(x->q.a, ZpSpan, 2 * n);
    for (uint32_t i = 0; i < 2 * n; i++) {
      ZpSpan *to = &spans[i];
      *to = x->t->stages[s].spans[i % n];
      const ZpInstr *in = &p->programs.stages[s].prog.instrs[to->instr];
      double times = (.6 + .1 * in->op + .3 * s) * (i < n ? 1 : 1.5);
      if (in->op == ZP_I_RECV_GRAD) times = .2;
      if (rank % 2) times = 9; /* of each stage the first rank is looked at */
      double takes = times * (to->end - to->begin);
      to->step = i < n ? 1 : 2;
      to->begin += i < n ? 0 : 2 * x->t->seconds;
      to->end = to->begin + takes;
    }
    if (rank) zb_text_add(&out, ",\n");
    zp_trace_events(p, rank, spans, 2 * n, clock, 0, false, &out);
  }
  zb_text_add(&out, "%s", zp_trace_tail);
  return out;
}

Test(compare, steps) {
  Predicted x = predict();
  const ZpPlan *p = x.q.p;
  ZbText trace = measured(&x, 5), out = {0}, both = {0}, events = {0};
  ZbErr err;
  cr_assert(zp_compare(p, x.t, trace.s, &out, &both, &err));
  expect_text(
      &out,
      "a step: 8.372 ms predicted, 41.78 ms measured (+399.0 %)\n"
      "\n"
      "the largest differences, of the first rank of each stage; milliseconds a step\n"
      "  stage  what                                       times   predicted    measured  difference\n"
      "      0  RECV_GRAD                                      2       6.141       1.228      -4.913\n"
      "      1  REDUCE_TIED(wte)                               1       1.959       6.122      +4.163\n"
      "      1  RECV_ACT                                       2       2.693       6.396      +3.703\n"
      "      1  REDUCE_GRADS(layer)                           18       1.379       4.137      +2.758\n"
      "      0  REDUCE_GRADS(layer)                           18       1.443       3.789      +2.345\n"
      "      1  BWD(layer)                                    12       3.338       5.007      +1.669\n"
      "      1  FWD(layer)                                    12       1.717       2.361      +0.644\n"
      "      1  all_reduce in forward or backward             48       1.106       1.590      +0.484\n"
      "      0  BWD(layer)                                    12       3.324       3.739      +0.415\n"
      "      1  REDUCE_STEP                                    1       0.081       0.273      +0.192\n",
      "what they differ in");
  /* To look at beside each other: the predicted step begins with the first measured one, behind its ranks. */
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    if (s) zb_text_add(&events, ",\n");
    zp_trace_events(p, zp_rank_of_stage(&p->layout.mesh, 0, s), x.t->stages[s].spans, x.t->stages[s].nspans,
                    5, 0, true, &events);
  }
  ZbText want = {0};
  zb_text_add(&want, "%.*s,\n%.*s%s", (int)(strstr(trace.s, zp_trace_tail) - trace.s), trace.s,
              (int)events.len, events.s, zp_trace_tail);
  const char *wrong = difference(x.q.a, want.s, both.s);
  cr_expect(!wrong, "%s", wrong);
  zb_text_free(&trace), zb_text_free(&both), zb_text_free(&events), zb_text_free(&want);
  close(&x);
}

static void refuses(const Predicted *x, const char *trace, const char *text, const char *remedy) {
  ZbText out = {0}, both = {0};
  ZbErr err;
  cr_expect(!zp_compare(x->q.p, x->t, trace, &out, &both, &err));
  cr_expect(strstr(err.text, text) && strstr(err.help, remedy), "%s; %s", err.text, err.help);
  cr_expect(!out.s && !both.s);
}

Test(compare, other_traces) {
  Predicted x = predict();
  ZbText trace = measured(&x, 0);
  const char *none = zb_printf(x.q.a, "%s%s", zp_trace_head, zp_trace_tail);
  refuses(&x, none, "there is no step in the trace", "zrun train --trace FILE");
  *strstr(trace.s, zp_trace_tail) = 0; /* a run that was killed */
  refuses(&x, trace.s, "there is no step in the trace", "zrun train --trace FILE");
  zb_text_free(&trace);
  trace = measured(&x, 0);
  x.q.p->layout.mesh.nranks = 16;
  refuses(&x, trace.s, "the trace is of 8 ranks, recipe r is for 16", "give the recipe that the run had");
  zb_text_free(&trace);
  close(&x);
}

/* A slice as runs write them, of rank 7 of 8, so that a trace has them all, or of rank 0. */
static void put_slice(ZbText *t, int rank, const char *name, int64_t step, double ms) {
  zb_text_add(
      t,
      "{\"ph\":\"X\",\"cat\":\"compute\",\"pid\":%d,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
      "\"args\":{\"step\":%lld}},\n",
      rank, 1e3 * (double)step, 1e3 * ms, name, (long long)step);
}
static void end_trace(ZbText *t) {
  t->len -= 2;
  zb_text_add(t, "%s", zp_trace_tail);
}

/* What a trace says is anybody's text. */
Test(compare, names_are_shown) {
  Predicted x = predict();
  ZbText trace = {0}, out = {0}, both = {0};
  ZbErr err;
  zb_text_add(&trace, "%s", zp_trace_head);
  put_slice(&trace, 7, "FWD", 1, 1);
  put_slice(&trace, 0, "a\x1b[2Jb\r\x07\xff", 1, 1e6);
  end_trace(&trace);
  cr_assert(zp_compare(x.q.p, x.t, trace.s, &out, &both, &err));
  cr_expect(strstr(out.s, "a\\x1b[2Jb\\r\\x07\\xff"), "%s", out.s);
  for (const char *c = out.s; *c; c++) cr_assert(*c == '\n' || (*c >= ' ' && *c < 0x7f), "%s", out.s);
  zb_text_free(&trace), zb_text_free(&out), zb_text_free(&both);
  close(&x);
}

/* Lines that are no slices, or of which a part is missing, are passed over, and nothing behind a line's end is taken
 * for a part of it. */
Test(compare, lines_that_are_none) {
  static const char *const lines[] = {
      "",
      "{",
      "{\"ph\":\"X\"",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":-1,\"tid\":1,\"ts\":1,\"dur\":9e9,\"name\":\"N\",\"step\":1}",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":1e300,\"tid\":1,\"ts\":1,\"dur\":9e9,\"name\":\"N\",\"step\":1}",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":nan,\"dur\":9e9,\"name\":\"N\",\"step\":1}",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":9e999,\"name\":\"N\",\"step\":1}",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":9e9,\"name\":\"N",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":9e9,\"name\":\"N\"",
      "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":9e9,\"name\":\"N\",\"step\":"};
  Predicted x = predict();
  ZbText trace = {0}, out = {0}, both = {0};
  ZbErr err;
  zb_text_add(&trace, "%s", zp_trace_head);
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) zb_text_add(&trace, "%s\n", lines[i]);
  put_slice(&trace, 7, "FWD", 1, 1);
  put_slice(&trace, 0, "Z", 1, 25);
  end_trace(&trace);
  cr_assert(zp_compare(x.q.p, x.t, trace.s, &out, &both, &err));
  cr_expect(strstr(out.s, " 25 ms measured") && strstr(out.s, "      0  Z  ") && !strstr(out.s, "0  N "),
            "%s", out.s);
  zb_text_free(&trace), zb_text_free(&out), zb_text_free(&both);
  close(&x);
}

/* Each line a step and a name of its own, and a line that does not end: where each is looked for among all others, or
 * the rest of the file is measured for each, this takes minutes. */
Test(compare, large_traces) {
  enum { LINES = 200000, LONG = 20 << 20, SECONDS = 20, TIMES = 12 };
  Predicted x = predict();
  ZbText trace = {0}, out = {0}, both = {0};
  ZbErr err;
  char name[40];
  struct rusage before, after;
  zb_text_add(&trace, "%s", zp_trace_head);
  for (int i = 0; i < LINES; i++) {
    snprintf(name, sizeof name, "N%d", i);
    put_slice(&trace, i ? 0 : 7, name, i, 1);
  }
  zb_text_add(&trace, "{\"ph\":\"X\",\"cat\":\"c\",\"pid\":0,\"tid\":1,\"ts\":1,\"dur\":1,\"name\":\"");
  for (int i = 0; i < LONG / 10; i++) zb_text_put(&trace, "\"step\" : .", 10);
  end_trace(&trace);
  getrusage(RUSAGE_SELF, &before);
  clock_t from = clock();
  cr_assert(zp_compare(x.q.p, x.t, trace.s, &out, &both, &err));
  cr_expect_lt(clock() - from, (clock_t)SECONDS * CLOCKS_PER_SEC);
  getrusage(RUSAGE_SELF, &after);
  cr_expect_lt((double)(after.ru_maxrss - before.ru_maxrss) * 1024, TIMES * (double)trace.len);
  zb_text_free(&trace), zb_text_free(&out), zb_text_free(&both);
  close(&x);
}

/* The page of two plans has what `show`, `explain` and `sim` say of each, and what is drawn besides, in its one place for
 * data; nothing in it ends the script. */
Test(compare, on_a_page) {
  Predicted x = predict();
  const ZpPaged of[] = {{x.q.p, x.t}, {x.q.p, x.t}};
  const ZlCluster c = {.name = "a</script>&b"};
  ZbText page = {0}, data = {0};
  zp_show_page(of, 2, &c, &page);
  zp_page_data(of, 2, &c, &data);
  const char *at = strstr(page.s, data.s), *script = strstr(page.s, "</script>");
  cr_assert(at && script > at + data.len && !strstr(script + 1, "</script>"));
  cJSON *root = cJSON_ParseWithOpts(data.s, NULL, true), *plans = cJSON_GetObjectItem(root, "plans");
  cr_assert_eq(cJSON_GetArraySize(plans), 2);
  for (int i = 0; i < 2; i++) {
    static const char *const said[] = {"show", "explain", "sim"};
    cJSON *plan = cJSON_GetArrayItem(plans, i), *sim = cJSON_GetObjectItem(plan, "sim");
    for (int k = 0; k < 3; k++)
      cr_expect_str_eq(
          cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(plan, said[k]), "recipe")), "r");
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(sim, "seconds")), x.t->seconds);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(sim, "cluster")), c.name);
    cr_expect_eq((uint32_t)cJSON_GetArraySize(cJSON_GetObjectItem(plan, "timeline")),
                 x.q.p->programs.nstages);
    cr_expect_eq((uint32_t)cJSON_GetArraySize(cJSON_GetObjectItem(plan, "segments")),
                 x.q.p->graph->nsegments);
  }
  cJSON_Delete(root);
  zb_text_free(&page), zb_text_free(&data);
  close(&x);
}

/* Numbers of processes and times that are none. */
Test(compare, odd_numbers) {
  Predicted x = predict();
  ZbText trace = {0};
  zb_text_add(
      &trace,
      "%s{\"ph\":\"X\",\"cat\":\"instr\",\"pid\":9223372036854775807,\"tid\":0,\"ts\":1,\"dur\":3,\"name\":"
      "\"F\","
      "\"args\":{\"step\":1}},\n{\"ph\":\"X\",\"cat\":\"instr\",\"pid\":7,\"tid\":0,\"ts\":inf,\"dur\":nan,"
      "\"name\":\"F\",\"args\":{\"step\":1}}%s",
      zp_trace_head, zp_trace_tail);
  refuses(&x, trace.s, "there is no step in the trace", "zrun train --trace");
  zb_text_free(&trace);
  close(&x);
}
