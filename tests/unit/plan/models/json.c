/* Plans as JSON hold what the plan holds, under the keys of runtime/plan/output/JSON.md, with all digits. */
#include "runtime/plan/text.h"
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
    if (zp_ledger_info[i].memory != m || (i == ZP_L_TRAINING && !p->asked.eval_of)) continue;
    if (i == ZP_L_CACHE && !p->stream) continue;
    cr_expect_eq(number(x, zp_ledger_info[i].text), l->bytes[i]);
    sum += number(x, zp_ledger_info[i].text);
  }
  cr_expect_eq(number(x, total), sum);
  cr_expect_eq(sum, l->total[m]);
}

static void expect_kept(const ZpPlan *p, const cJSON *o) {
  cr_assert_eq(length(o, "kept"), (int)p->programs.nstashed);
  cr_expect_eq(number(o, "not_kept"), p->notes.not_stashed);
  for (uint32_t i = 0; i < p->programs.nstashed; i++) {
    const cJSON *x = item(o, "kept", (int)i);
    cr_expect_eq(number(x, "segment"), p->programs.stashed[i].segment);
    cr_expect_eq(number(x, "bytes"), p->programs.stashed[i].bytes);
    cr_expect_eq(number(x, "moves"), p->programs.stashed[i].moves);
    cr_expect(strstr(word(x, "tensor"), "batch, seq") && strstr(word(x, "place"), "gpt2.zug:"));
  }
  for (uint32_t s = 0; s < p->programs.nstages; s++) { /* of layers, and of the head on the last stage */
    const ZpStage *st = &p->programs.stages[s];
    uint64_t bytes = 0, moves = 0;
    for (uint32_t i = 0; i < st->ninsts; i++) {
      bytes += p->programs.segments[st->insts[i].segment].stashed_bytes;
      moves += p->programs.segments[st->insts[i].segment].stashed_moves;
    }
    cr_expect_eq(number(item(o, "stages", (int)s), "kept_bytes"), bytes * st->prog.nslots);
    cr_expect_eq(number(item(o, "stages", (int)s), "kept_moves"), moves * (uint64_t)p->asked.nmicro);
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
  cr_expect_str_eq(word(o, "recipe"), p->asked.recipe->name);
  cr_expect_str_eq(word(o, "model"), "GPT2");
  cr_expect_eq(number(o, "ranks"), 8);
  cr_expect_eq(number(o, "parameters"), (uint64_t)p->notes.params);
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
  cr_expect_eq(number(o, "flop"), (uint64_t)p->notes.model_flops);
  cr_expect_str_eq(word(get(o, "schedule"), "name"), "1f1b");
  cr_expect_eq(number(get(o, "schedule"), "units"), 15); /* 3 (M + P - 1) */
  cr_expect_float_eq(cJSON_GetNumberValue(get(get(o, "schedule"), "idle")), 0.2, 1e-12);
  cr_assert_eq(length(o, "stages"), 2);
  for (int s = 0; s < 2; s++) {
    const cJSON *x = item(o, "stages", s);
    const ZpStage *st = &p->programs.stages[s];
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
  cr_assert_eq(length(o, "buckets"), (int)p->programs.nbuckets);
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const cJSON *x = item(o, "buckets", (int)i);
    cr_expect_str_eq(word(x, "name"), p->programs.buckets[i].name);
    cr_expect_eq(number(x, "elements"), p->programs.buckets[i].elems);
    cr_expect_str_eq(cJSON_GetObjectItem(x, "stored")->valuestring,
                     zk_elem_info[p->programs.buckets[i].elem].text);
    cr_expect_eq(number(x, "gradient_bytes"), 4 * p->programs.buckets[i].elems);
    cr_expect_eq(number(x, "zero"), 2);
    cr_expect_eq(length(x, "cut_over"), __builtin_popcount(p->programs.buckets[i].shard));
    cr_expect_eq(length(x, "partial_over"), __builtin_popcount(p->programs.buckets[i].partial));
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
    cr_expect(q.p->programs.nstashed && (q.p->notes.not_stashed > 0) == (i == 1));
    for (uint32_t s = 0; s < q.p->programs.nstages; s++) {
      uint64_t arena = q.p->programs.stages[s].ledger.total[ZP_DEVICE];
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
    const ZpProgram *g = &q.p->programs.stages[s].prog;
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

/* ---- the calls of a segment ---- */
static cJSON *calls_of(const ZpPlan *p, const char *name) {
  ZbText t = {0};
  ZbErr err = {0};
  uint32_t segment = zp_segment_named(p, name, &err);
  cr_assert(segment != ZP_NONE, "%s; %s", err.text, err.help);
  zp_show_calls_json(p, segment, &t);
  cJSON *o = cJSON_Parse(t.s);
  cr_assert(o, "no JSON: %s", t.s);
  cr_expect_str_eq(word(o, "segment"), name);
  zb_text_free(&t);
  return o;
}

/* Bytes of an operand by its type and shape. */
static uint64_t bytes_by_shape(const cJSON *x) {
  uint64_t n = number(x, "tensors") * (strcmp(word(x, "type"), "bf16") ? 4 : 2);
  for (int i = 0; i < length(x, "axes"); i++) n *= number(item(x, "axes", i), "size");
  return n;
}

/* An operand of the calls of a phase that has this name; NULL: none has. */
static const cJSON *operand(const cJSON *phase, const char *side, const char *name) {
  for (int i = 0; i < length(phase, "calls"); i++)
    for (int k = 0; k < length(item(phase, "calls", i), side); k++) {
      const cJSON *x = item(item(phase, "calls", i), side, k);
      if (!strcmp(word(x, "name"), name)) return x;
    }
  return NULL;
}

/* What call i reads is there: it comes from elsewhere, or a call before has written it. */
static void expect_written_before(const cJSON *phase, int i, const cJSON *x) {
  bool found = strcmp(word(x, "at"), "scratch") != 0;
  for (int j = 0; j < i && !found; j++)
    for (int k = 0; k < length(item(phase, "calls", j), "writes"); k++)
      found |= !strcmp(word(item(item(phase, "calls", j), "writes", k), "name"), word(x, "name"));
  cr_expect(found, "call %d reads %s, which nobody has written", i, word(x, "name"));
}

static uint64_t expect_calls(const cJSON *phase) {
  uint64_t flop = 0;
  for (int i = 0; i < length(phase, "calls"); i++) {
    const cJSON *c = item(phase, "calls", i);
    uint64_t moved = 0;
    flop += number(c, "flop");
    for (int k = 0; k < length(c, "reads") + length(c, "writes"); k++) {
      int nreads = length(c, "reads");
      const cJSON *x = k < nreads ? item(c, "reads", k) : item(c, "writes", k - nreads);
      cr_expect_eq(number(x, "bytes"), bytes_by_shape(x));
      if (k < nreads) expect_written_before(phase, i, x);
      moved += number(x, "bytes") * (k >= nreads && cJSON_IsTrue(get(x, "adds")) ? 2 : 1);
    }
    if (!strcmp(word(c, "op"), "dot")) cr_expect_eq(number(c, "bytes"), moved);
    cr_expect(strstr(word(c, "place"), "gpt2.zug:"));
  }
  return flop;
}

/* One can read what a layer does: each parameter goes into forward, and its gradient comes out of backward; shapes
 * account for the bytes, and calls for the FLOPs that the plan counts. */
Test(json, calls) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_of(m.g, "bind batch = 8, seq = 16 micro 1 precision compute bf16");
  uint32_t layer = segment_of(q.p, "layer", 0);
  cJSON *o = calls_of(q.p, "layer");
  cr_expect_eq(number(o, "iterations"), 3);
  cr_assert_eq(length(o, "phases"), 2);
  const cJSON *forward = item(o, "phases", 0), *backward = item(o, "phases", 1);
  cr_expect_str_eq(word(forward, "phase"), "forward");
  cr_expect_str_eq(word(backward, "phase"), "backward");
  cr_expect_eq(length(backward, "calls"), (int)q.p->programs.segments[layer].list[ZP_BWD].n);
  cr_expect_eq(expect_calls(forward) + expect_calls(backward),
               (uint64_t)q.p->programs.segments[layer].model_flops);
  for (uint32_t i = 0; i < m.g->nparams; i++) {
    if (m.g->params[i].segment != layer) continue;
    const cJSON *x = operand(forward, "reads", m.g->params[i].path),
                *d = operand(backward, "writes", m.g->params[i].path);
    cr_assert(x && d, "%s", m.g->params[i].path);
    cr_expect(!strcmp(word(x, "at"), "parameter") && !strcmp(word(x, "type"), "bf16"));
    cr_expect(!strcmp(word(d, "at"), "gradient") && !strcmp(word(d, "type"), "f32"));
    cr_expect(cJSON_IsTrue(get(d, "adds")));
  }
  cJSON_Delete(o);
  o = calls_of(q.p, "part 0");
  cr_expect(operand(item(o, "phases", 0), "reads", "tokens"));
  cJSON_Delete(o);
  plan_close(&q);
  model_close(&m);
}

/* Where ranks have parts: of which whole, over which dims sums are to be completed, and which call does. */
Test(json, calls_of_parts) {
  Model m = model_open("gpt2", NULL, options);
  Plan q =
      plan_of(m.g, "mesh tensor = 2 bind batch = 8, seq = 16 micro 1 split head, ffn, vocab over tensor");
  cJSON *o = calls_of(q.p, "layer");
  const cJSON *forward = item(o, "phases", 0), *w = operand(forward, "reads", "layer.*.mlp.w1");
  cr_assert(w);
  cr_expect_str_eq(word(item(w, "axes", 1), "name"), "ffn");
  cr_expect(number(item(w, "axes", 1), "size") == 32 && number(item(w, "axes", 1), "of") == 64);
  cr_expect_null(cJSON_GetObjectItem(item(w, "axes", 0), "of"));
  int reduced = 0;
  for (int i = 0; i < length(forward, "calls"); i++) {
    const cJSON *c = item(forward, "calls", i);
    if (strcmp(word(c, "op"), "all_reduce")) continue;
    cr_expect_str_eq(item(c, "dims", 0)->valuestring, "tensor");
    cr_expect_eq(length(item(c, "reads", 0), "partial_over"), 1);
    cr_expect_eq(length(item(c, "writes", 0), "partial_over"), 0);
    cr_expect(strstr(word(c, "cause"), "partial sums over tensor"));
    reduced++;
  }
  cr_expect_eq(reduced, 2); /* of attention, and of the MLP */
  ZbErr err = {0};
  cr_expect_eq(zp_segment_named(q.p, "layers", &err), ZP_NONE);
  cr_expect(strstr(err.text, "`layers`") && strstr(err.help, "`part 0`, `layer`, `part 2`"), "%s; %s",
            err.text, err.help);
  cJSON_Delete(o);
  plan_close(&q);
  model_close(&m);
}

/* More bytes than a double counts. */
Test(json, digits) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_of(m.g, recipe);
  q.p->programs.stages[0].ledger.total[ZP_DEVICE] = (1ull << 53) + 1;
  char *text;
  cJSON *o = parsed(zp_show_json, q.p, &text);
  cr_expect(strstr(text, "9007199254740993"), "%s", text);
  cJSON_Delete(o);
  free(text);
  plan_close(&q);
  model_close(&m);
}
