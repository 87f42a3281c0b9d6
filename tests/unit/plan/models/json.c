/* Plans as JSON hold what the plan holds, under the keys of runtime/plan/output/JSON.md, with all digits. */
#include "tests/unit/plan/models/plan.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static cJSON *parsed(void (*put)(const ZpPlan *, ZbText *), const ZpPlan *p, char **text) {
  ZbText t = {0};
  put(p, &t);
  cJSON *o = cJSON_Parse(t.s);
  cr_assert(o, "no JSON: %s", t.s);
  *text = t.s;
  return o;
}

static const cJSON *get(const cJSON *o, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
  cr_assert(x, "no key `%s`", key);
  return x;
}
static uint64_t number(const cJSON *o, const char *key) {
  return (uint64_t)cJSON_GetNumberValue(get(o, key));
}
static const char *word(const cJSON *o, const char *key) { return cJSON_GetStringValue(get(o, key)); }
static int length(const cJSON *o, const char *key) { return cJSON_GetArraySize(get(o, key)); }
static const cJSON *item(const cJSON *o, const char *key, int i) {
  return cJSON_GetArrayItem(get(o, key), i);
}

static void expect_ledger(const ZpPlan *p, const ZpLedger *l, const cJSON *x, ZpMemory m, const char *total) {
  uint64_t sum = 0;
  for (int i = 0; i < ZP_LEDGER_LINES; i++) {
    if (zp_ledger_info[i].memory != m || (i == ZP_L_TRAINING && !p->beside)) continue;
    cr_expect_eq(number(x, zp_ledger_info[i].text), l->bytes[i]);
    sum += number(x, zp_ledger_info[i].text);
  }
  cr_expect_eq(number(x, total), sum);
  cr_expect_eq(sum, l->total[m]);
}

static void expect_kept(const ZpPlan *p, const cJSON *o) {
  cr_assert_eq(length(o, "kept"), (int)p->nkept);
  cr_expect_eq(number(o, "not_kept"), p->nleft);
  for (uint32_t i = 0; i < p->nkept; i++) {
    const cJSON *x = item(o, "kept", (int)i);
    cr_expect_eq(number(x, "segment"), p->kept[i].segment);
    cr_expect_eq(number(x, "bytes"), p->kept[i].bytes);
    cr_expect_eq(number(x, "moves"), p->kept[i].moves);
    cr_expect(strstr(word(x, "tensor"), "batch, seq") && strstr(word(x, "place"), "gpt2.zug:"));
  }
  for (uint32_t s = 0; s < p->nstages; s++) { /* of layers, and of the head on the last stage */
    const ZpStage *st = &p->stages[s];
    uint64_t bytes = 0, moves = 0;
    for (uint32_t i = 0; i < st->ninsts; i++) {
      bytes += p->segments[st->insts[i].segment].kept_bytes;
      moves += p->segments[st->insts[i].segment].kept_moves;
    }
    cr_expect_eq(number(item(o, "stages", (int)s), "kept_bytes"), bytes * st->prog.nslots);
    cr_expect_eq(number(item(o, "stages", (int)s), "kept_moves"), moves * (uint64_t)p->nmicro);
  }
}

static const char options[] = "-D layers=3 -D heads=4 -D width=16 -D context=32 -D words=12";
static const char recipe[] = "mesh pipe = 2, data = 2, tensor = 2 bind batch = 8, seq = 16 micro 1\n"
                             "split batch over data split head, ffn, vocab over tensor else seq\n"
                             "stages over pipe = [2, 1] shard grads, states over data";

Test(json, show) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_of(m.g, recipe);
  const ZpPlan *p = q.p;
  char *text;
  cJSON *o = parsed(zp_show_json, p, &text);
  cr_expect_str_eq(word(o, "format"), "zug plan");
  cr_expect_eq(number(o, "version"), 1);
  cr_expect_str_eq(word(o, "recipe"), p->recipe->name);
  cr_expect_str_eq(word(o, "model"), "GPT2");
  cr_expect_eq(number(o, "ranks"), 8);
  cr_expect_eq(number(o, "parameters"), (uint64_t)p->params);
  cr_expect_eq(length(o, "mesh"), 3);
  cr_expect_str_eq(word(item(o, "mesh", 2), "name"), "tensor");
  cr_expect_eq(length(item(o, "mesh", 2), "axes"), 4);
  cr_expect(cJSON_IsTrue(get(item(o, "mesh", 0), "stages")) &&
            cJSON_IsFalse(get(item(o, "mesh", 1), "stages")));
  cr_expect_eq(number(get(o, "batch"), "samples"), 8);
  cr_expect_eq(number(get(o, "batch"), "micro_batches"), 4);
  cr_expect_eq(number(get(o, "batch"), "samples_of_micro_batch"), 2);
  cr_expect_str_eq(word(o, "compute"), "f32");
  cr_expect(cJSON_IsFalse(get(o, "forward_only")));
  cr_expect_eq(number(o, "flop"), (uint64_t)p->model_flops);
  cr_expect_str_eq(word(get(o, "schedule"), "name"), "1f1b");
  cr_expect_eq(number(get(o, "schedule"), "units"), 15); /* 3 (M + P - 1) */
  cr_expect_float_eq(cJSON_GetNumberValue(get(get(o, "schedule"), "idle")), 0.2, 1e-12);
  cr_assert_eq(length(o, "stages"), 2);
  for (int s = 0; s < 2; s++) {
    const cJSON *x = item(o, "stages", s);
    const ZpStage *st = &p->stages[s];
    cr_expect_eq(number(x, "stage"), (uint64_t)s);
    cr_expect_eq(number(x, "live"), st->prog.live);
    cr_expect_eq(number(x, "instructions"), st->prog.ninstrs);
    cr_expect_eq(length(x, "holds"), 2);
    cr_expect_eq(length(x, "timeline"), 8);
    expect_ledger(p, &st->ledger, get(x, "device_bytes"), ZP_DEVICE, "arena");
    expect_ledger(p, &st->ledger, get(x, "host_bytes"), ZP_HOST, "host");
  }
  const cJSON *first = item(o, "stages", 0), *layers = item(first, "holds", 1);
  cr_expect_str_eq(word(layers, "repeat"), "layer");
  cr_expect_eq(number(layers, "from"), 0);
  cr_expect_eq(number(layers, "to"), 1);
  cr_expect_str_eq(word(item(first, "timeline", 1), "pass"), "forward");
  cr_expect_eq(number(item(first, "timeline", 1), "micro_batch"), 1);
  cr_expect_eq(number(item(first, "timeline", 1), "start"), 1);
  cr_assert_eq(length(o, "buckets"), (int)p->nbuckets);
  for (uint32_t i = 0; i < p->nbuckets; i++) {
    const cJSON *x = item(o, "buckets", (int)i);
    cr_expect_str_eq(word(x, "name"), p->buckets[i].name);
    cr_expect_eq(number(x, "elements"), p->buckets[i].elems);
    cr_expect_eq(number(x, "gradient_bytes"), 4 * p->buckets[i].elems);
    cr_expect_eq(number(x, "zero"), 2);
    cr_expect_eq(length(x, "cut_over"), __builtin_popcount(p->buckets[i].shard));
    cr_expect_eq(length(x, "partial_over"), __builtin_popcount(p->buckets[i].partial));
  }
  cr_assert_eq(length(o, "tied"), 1);
  cr_expect_str_eq(word(item(o, "tied", 0), "bucket"), "wte");
  cr_expect_eq(length(item(o, "tied", 0), "stages"), 2);
  cJSON_Delete(o);
  free(text);
  plan_close(&q);
  model_close(&m);
}

/* With everything kept, and with one byte less. */
Test(json, kept) {
  Model m = model_open("gpt2", NULL, options);
  uint64_t limit = 1000000000;
  for (int i = 0; i < 2; i++) {
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%s limit memory %llu B", recipe, (unsigned long long)limit));
    char *text;
    cJSON *o = parsed(zp_show_json, q.p, &text);
    expect_kept(q.p, o);
    cr_expect(q.p->nkept && (q.p->nleft > 0) == (i == 1));
    for (uint32_t s = 0; s < q.p->nstages; s++) {
      uint64_t arena = q.p->stages[s].ledger.total[ZP_DEVICE];
      if (!s || arena >= limit) limit = arena - 1;
    }
    cJSON_Delete(o);
    free(text);
    plan_close(&q);
  }
  model_close(&m);
}

/* Without backward there is no schedule to draw. */
Test(json, forward) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_forward(m.g, recipe, NULL);
  char *text;
  cJSON *o = parsed(zp_show_json, q.p, &text);
  cr_expect(cJSON_IsTrue(get(o, "forward_only")));
  cr_expect_null(cJSON_GetObjectItem(o, "schedule"));
  cr_expect_null(cJSON_GetObjectItem(item(o, "stages", 0), "timeline"));
  cJSON_Delete(o);
  free(text);
  plan_close(&q);
  model_close(&m);
}

Test(json, programs) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_of(m.g, recipe);
  char *text;
  cJSON *o = parsed(zp_show_programs_json, q.p, &text);
  for (uint32_t s = 0; s < 2; s++) {
    const ZpProgram *g = &q.p->stages[s].prog;
    const cJSON *x = item(o, "stages", (int)s);
    cr_assert_eq(length(x, "instructions"), (int)g->ninstrs);
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      const cJSON *in = item(x, "instructions", (int)i);
      cr_expect_str_eq(word(in, "op"), zp_instr_info[g->instrs[i].op].text);
      cr_expect_str_eq(word(in, "queue"), zp_queue_text[g->instrs[i].queue]);
      cr_expect_eq(strncmp(word(in, "text"), word(in, "op"), strlen(word(in, "op"))), 0);
      cr_expect_eq(length(in, "after"), (int)g->instrs[i].nwait);
      if (g->instrs[i].bytes) cr_expect_eq(number(in, "bytes"), g->instrs[i].bytes);
      if (g->instrs[i].queue == ZP_Q_P2P) cr_expect_eq(number(in, "peer"), 1 - s);
    }
  }
  cJSON_Delete(o);
  free(text);
  plan_close(&q);
  model_close(&m);
}

/* More bytes than a double counts. */
Test(json, digits) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_of(m.g, recipe);
  q.p->stages[0].ledger.total[ZP_DEVICE] = (1ull << 53) + 1;
  char *text;
  cJSON *o = parsed(zp_show_json, q.p, &text);
  cr_expect(strstr(text, "9007199254740993"), "%s", text);
  cJSON_Delete(o);
  free(text);
  plan_close(&q);
  model_close(&m);
}
