/* What is kept of when a rank did what: in each step that is traced one span for each instruction, and in it
 * one for each message of its nodes, with its bytes. */
#include "runtime/plan/text.h"
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(traces, .init = scratch_make, .fini = scratch_remove);

enum { FROM = 2, TO = 3 };

/* Counts the spans of a node in an instruction of a step, and adds up their bytes. Each lies in the span of
 * the instruction, `within`. */
static uint64_t count(const ZxEngine *e, int64_t step, uint32_t instr, uint32_t node, const ZpSpan *within,
                      uint64_t *bytes) {
  uint64_t n, found = 0;
  const ZpSpan *s = zx_engine_spans(e, &n);
  *bytes = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (s[i].step != step || s[i].instr != instr || s[i].node != node) continue;
    found++;
    *bytes += s[i].bytes;
    cr_expect(s[i].begin <= s[i].end && within->begin <= s[i].begin && s[i].end <= within->end);
  }
  return found;
}

static const ZpSpan *span_of(const ZxEngine *e, int64_t step, uint32_t instr) {
  uint64_t n;
  const ZpSpan *s = zx_engine_spans(e, &n), *found = NULL;
  for (uint64_t i = 0; i < n; i++)
    if (s[i].step == step && s[i].instr == instr && s[i].node == ZP_NONE) {
      cr_expect(!found, "step %d: %d is there twice", (int)step, (int)instr);
      found = &s[i];
    }
  cr_expect(found, "step %d: %d is not there", (int)step, (int)instr);
  return found;
}

/* Messages of the nodes of an instruction. In rounds: as many as there were, with bytes of all rows. */
static uint64_t expect_nodes(const ZxEngine *e, int64_t step, uint32_t instr, uint64_t *most) {
  const ZpInstr *in = &e->st->prog.instrs[instr];
  ZpPhase phase = zp_phase(in->op);
  const ZpSpan *within = span_of(e, step, instr);
  uint64_t found = 0;
  if (phase == ZP_PHASES) return 0;
  const ZpSegment *s = &e->p->programs.segments[e->st->insts[in->inst].segment];
  const ZpList *l = &s->list[phase];
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    uint64_t bytes, times = count(e, step, instr, i, within, &bytes);
    if (!zp_sends(n)) {
      cr_expect_eq(times, 0);
      continue;
    }
    uint64_t rounds = zp_rounds(e->p, s, l, i).most, each = zp_node_bytes(s, n);
    *most += rounds;
    found += times;
    cr_expect(n->rounds ? times > 0 && times <= rounds : times == 1, "%d of %d", (int)times, (int)rounds);
    if (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE) {
      const ZpValue *slots = &s->values[n->call.op == ZG_OP_DISPATCH ? n->out[0] : n->in[0]],
                    *place = &s->values[n->in[1]];
      uint64_t row = zk_plain_bytes((ZkElem)slots->elem);
      for (int k = 2; k < slots->type.naxes; k++) row *= (uint64_t)slots->size[k];
      cr_expect_eq(bytes, place->bytes / 4 * row, "rows of all tokens, %d B of %d", (int)bytes,
                   (int)(place->bytes / 4 * row));
    } else cr_expect_eq(bytes, n->call.op == ZG_OP_ROUND ? each : each * times);
  }
  return found;
}

static void train_and_look(Player *p) {
  job_train(p);
  const ZxEngine *e = p->e;
  uint64_t all, found = 0, most = 0;
  const ZpSpan *s = zx_engine_spans(e, &all);
  double last = 0;
  for (int64_t step = FROM; step <= TO; step++)
    for (uint32_t i = 0; i < e->st->prog.ninstrs; i++) {
      found += 1 + expect_nodes(e, step, i, &most);
      most++;
    }
  cr_expect_eq(all, found);
  cr_expect_eq(most, e->spans_most, "room for %d, of %d", (int)e->spans_most, (int)most);
  for (uint64_t i = 0; i < all; i++) { /* instructions in the order in which they began */
    cr_expect(s[i].node != ZP_NONE || s[i].begin >= last);
    if (s[i].node == ZP_NONE) last = s[i].begin;
  }
}

static void trace(Job j) {
  j.o.trace_from = FROM;
  j.o.trace_to = TO;
  j.steps = 4;
  job_play(&j, train_and_look);
  job_close(&j);
}

Test(traces, all_that_was_done) {
  static const char base[] = "bind batch = 8, seq = 8 micro 2 pad vocab to 4 optimizer sgd(lr = 0.1) ";
  static const char *const layouts[] = {
      "", "mesh tensor = 2 split head, ffn, vocab over tensor else seq",
      "mesh context = 2 split seq over context attention ring",
      ("mesh pipe = 2, data = 2 split batch over data stages over pipe by cost shard params, grads, states "
       "over data")};
  Model m =
      job_model("examples/gpt2.zug", NULL, "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11");
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    trace(job_of(&m, base, layouts[i], &zx_device_cpu, (ZpOptions){0}));
  model_close(&m);
}

Test(traces, rounds_of_experts) {
  static const char *const recipes[] = {"experts_2", "experts_4", "sums_2", "beside_4"};
  Model m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
    trace(job_named(&m, recipes[i], &zx_device_cpu, (ZpOptions){0}));
  model_close(&m);
}

/* What cannot be traced is said before anything is done. */
static void nothing(Player *p) { (void)p; }
static void refused(const Model *m, const ZxDeviceTable *dev, int64_t to, const char *said) {
  Job j = job_of(m, "bind batch = 8 micro 4 optimizer sgd(lr = 0.1)", "", dev, (ZpOptions){0});
  j.o.trace_from = 1;
  j.o.trace_to = to;
  job_try(&j, nothing);
  cr_expect(!j.player[0].ok && strstr(j.player[0].err.text, said), "no '%s' in '%s'", said,
            j.player[0].err.text);
  job_close(&j);
}
Test(traces, refused) {
  Model m = job_model(NULL, job_line, NULL);
  refused(&m, zx_devices[0], 1, "--trace: on device");
  refused(&m, &zx_device_cpu, ZX_MOST_SPANS, "instructions are too many");
  refused(&m, &zx_device_cpu, INT64_MAX / 2, "instructions are too many");
  model_close(&m);
}
