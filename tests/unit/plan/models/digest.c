/* Digests of plans: the same plan made again has the same, and no field can change without one of them. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const char recipe[] =
    "mesh pipe = 2, data = 2, tensor = 2\n split batch over data\n split head, ffn, vocab over tensor\n"
    "stages over pipe by cost\n shard params, grads, states over data unit layer\n"
    "bind batch = 8, seq = 16\n micro 2";

static void add(void *ctx, const char *what, uint64_t digest) {
  zb_text_add(ctx, "%s %llx\n", what, (unsigned long long)digest);
}

static ZbText digests(const ZpPlan *p) {
  ZbText t = {0};
  ZbArena *a = zb_arena_new();
  zp_digest(p, a, add, &t);
  zb_arena_free(a);
  return t;
}

static bool same(const ZpPlan *p, const ZbText *before) {
  ZbText now = digests(p);
  bool eq = !strcmp(now.s, before->s);
  zb_text_free(&now);
  return eq;
}

/* A changed field changes what is said of `part`, and of no other; it is then put back. */
static void change(const ZpPlan *p, const ZbText *before, void *field, const char *name, const char *part) {
  unsigned char was = *(unsigned char *)field;
  *(unsigned char *)field ^= 1; /* the lowest bit, or the lowest of a fraction */
  ZbText now = digests(p);
  char *a = before->s, *b = now.s;
  bool seen = false;
  while (*a && *b) {
    size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
    bool differs = na != nb || strncmp(a, b, na);
    bool here = !strncmp(b, part, strlen(part));
    cr_expect(!differs || here, "%s changes %.*s", name, (int)nb, b);
    seen |= differs;
    a += na + 1;
    b += nb + 1;
  }
  cr_expect(seen, "%s changes nothing", name);
  *(unsigned char *)field = was;
  zb_text_free(&now);
}
#define CHANGE(part, field) change(p, &before, (void *)(uintptr_t) & (field), #field, part) /* const or not */

Test(digest, every_field_counts) {
  Model m = model_open("gpt2", NULL, "-D layers=4 -D heads=4 -D width=32 -D context=16 -D words=128");
  Plan q = plan_of(m.g, recipe), again = plan_of(m.g, recipe);
  ZpPlan *p = q.p;
  ZbText before = digests(p);
  cr_assert(same(again.p, &before), "the same plan, made again, is another");
  CHANGE("mesh", p->layout.mesh.dim[1].size);
  CHANGE("mesh", p->layout.mesh.dim[1].axes[0]);
  CHANGE("mesh", p->layout.mesh.dim[1].directive);
  CHANGE("mesh", p->layout.mesh.dim[1].zigzag);
  CHANGE("mesh", p->layout.mesh.dim[1].zigzag_up);
  CHANGE("mesh", p->layout.mesh.dim[2].name);
  CHANGE("mesh", p->layout.mesh.pipe);
  CHANGE("mesh", p->layout.mesh.nranks);
  CHANGE("sizes", p->layout.axis_size[0]);
  CHANGE("sizes", p->layout.axis_valid[0]);
  CHANGE("sizes", p->asked.global_batch);
  CHANGE("sizes", p->asked.nmicro);
  ZlRecipe other = *p->asked.recipe;
  const ZlRecipe *own = p->asked.recipe;
  p->asked.recipe = &other;
  other.precision.compute = "bf16";
  cr_expect(!same(p, &before));
  other.precision.compute = NULL, other.precision.reduce = "bf16";
  cr_expect(!same(p, &before));
  p->asked.recipe = own;
  CHANGE("sizes", p->asked.schedule);
  CHANGE("sizes", p->asked.clip);
  CHANGE("sizes", p->asked.average);
  CHANGE("sizes", p->asked.optimizers[0].kind);
  CHANGE("sizes", p->asked.optimizers[0].set[0].num);
  CHANGE("sizes", p->asked.optimizers[0].set[2].num);
  CHANGE("sizes", p->asked.optimizers[0].cautious);
  CHANGE("sizes", p->asked.optimizers[0].every);
  CHANGE("sizes", p->asked.optimizers[0].coefficients);
  CHANGE("sizes", p->asked.optimizers[0].rms);
  CHANGE("sizes", p->asked.optimizers[0].iterations);
  CHANGE("sizes", p->asked.optimizers[0].state_elem[0]);
  CHANGE("sizes", p->asked.groups[0].decay.num);
  CHANGE("sizes", p->asked.groups[0].rate);
  CHANGE("sizes", p->asked.optimizers[0].states);
  CHANGE("sizes", p->asked.optimizers[0].rate.lr);
  CHANGE("sizes", p->asked.optimizers[0].rate.stable);
  CHANGE("sizes", p->asked.optimizers[0].rate.anneal);
  CHANGE("sizes", p->asked.group[0]);
  CHANGE("sizes", p->asked.pins);
  CHANGE("sizes", p->asked.checkpoints);
  CHANGE("sizes", p->asked.forward_only);
  CHANGE("sizes", p->asked.outputs);
  CHANGE("sizes", p->asked.zero.over);
  CHANGE("sizes", p->asked.zero.what);
  CHANGE("sizes", p->asked.zero.keep);
  CHANGE("sizes", p->asked.zero.ahead);
  CHANGE("sizes", p->layout.chunk.classes);
  CHANGE("sizes", p->layout.chunk.rows);
  CHANGE("sizes", p->layout.chunk.up);
  CHANGE("sizes", p->layout.den_partial[0]);
  CHANGE("sizes", p->notes.model_flops);
  CHANGE("sizes", p->asked.batch);
  CHANGE("sizes", p->notes.params);
  CHANGE("sizes", p->notes.trained);
  CHANGE("cotangents", p->layout.cotangents[1].in[0]);
  CHANGE("cotangents", p->layout.cotangents[0].out[0]);
  CHANGE("sizes", p->programs.inputs[0].at);
  CHANGE("sizes", p->programs.inputs[0].value);

  ZpBucket *b = &p->programs.buckets[0];
  CHANGE("parameters", b->elems);
  CHANGE("parameters", b->shard);
  CHANGE("parameters", b->partial);
  CHANGE("parameters", b->replicas);
  CHANGE("parameters", b->gathers);
  CHANGE("parameters", b->keeps);
  CHANGE("parameters", b->scatters);
  CHANGE("parameters", b->republishes);
  CHANGE("parameters", b->reduces);
  CHANGE("parameters", b->matrices);
  CHANGE("parameters", b->slices[0].role[0]);
  CHANGE("parameters", b->frozen);
  CHANGE("parameters", b->users[0]);
  CHANGE("parameters", b->slices[0].param);
  CHANGE("parameters", b->slices[0].at);
  CHANGE("parameters", b->slices[0].group);
  CHANGE("parameters", b->slices[0].size[0]);
  CHANGE("parameters", b->slices[0].state[1].kind);
  CHANGE("parameters", b->name);
  CHANGE("parameters", b->segment);
  CHANGE("parameters", b->slices[0].n);
  CHANGE("parameters", b->slices[0].axis[1]);
  CHANGE("parameters", b->slices[0].whole[1]);
  CHANGE("parameters", b->slices[0].valid[0]);
  CHANGE("parameters", b->slices[0].state[2].max);
  cr_assert(p->programs.ntied > 0);
  CHANGE("parameters", p->programs.tied[0].bucket);
  CHANGE("parameters", p->programs.tied[0].stages[0]);

  uint32_t layer = segment_of(p, "layer", 0);
  ZpSegment *s = &p->programs.segments[layer];
  char values[32], forward[32], backward[32];
  snprintf(values, sizeof values, "part %u's values", layer);
  snprintf(forward, sizeof forward, "part %u's forward", layer);
  snprintf(backward, sizeof backward, "part %u's backward", layer);
  CHANGE(values, s->values[3].bytes);
  CHANGE(values, s->values[3].at.space);
  CHANGE(values, s->values[3].at.offset);
  CHANGE(values, s->values[3].state[2].kind);
  CHANGE(values, s->values[3].elem);
  CHANGE(values, s->values[3].type.elem);
  CHANGE(values, s->values[3].type.axis[0]);
  CHANGE(values, s->values[3].state[2].axis);
  CHANGE(values, s->values[3].axis[1]);
  CHANGE(values, s->values[3].size[0]);
  CHANGE(values, s->values[3].at.index);
  CHANGE(values, s->values[3].param);
  CHANGE(values, s->saved_bytes);
  for (int k = 0; k < ZP_PHASES; k++) CHANGE(values, s->list[k].temp);
  CHANGE(values, s->model_flops);
  CHANGE(values, s->carry_bytes);
  CHANGE(values, s->buckets[0]);
  CHANGE(values, s->cost);
  const ZpList *l = &s->list[ZP_FWD];
  ZpNode *last = &l->nodes[l->n - 1];
  CHANGE(forward, last->call.op);
  CHANGE(forward, last->call.in[0].size[0]);
  CHANGE(forward, last->call.in[0].stride[0]);
  CHANGE(forward, last->call.in[0].axis[0]);
  CHANGE(forward, last->call.out[0].elem);
  CHANGE(forward, last->call.num[0]);
  CHANGE(forward, last->call.opt[0]);
  CHANGE(forward, last->in[0]);
  CHANGE(forward, last->out[0]);
  CHANGE(forward, last->dims);
  CHANGE(forward, last->packs);
  CHANGE(forward, last->scratch_at);
  for (uint32_t i = 0; i < l->n; i++)
    if (l->nodes[i].call.pointwise) {
      const ZkPointwise *c = l->nodes[i].call.pointwise;
      const ZkPointwiseOp *o = &c->ops[c->nops - 1];
      CHANGE(forward, c->ops[0].op);
      CHANGE(forward, o->a);
      CHANGE(forward, o->b);
      CHANGE(forward, o->elem);
      CHANGE(forward, o->num);
      CHANGE(forward, c->out[c->nout - 1]);
      CHANGE(forward, c->prologue);
      CHANGE(forward, c->operand);
    } else if (l->nodes[i].call.nax) {
      CHANGE(forward, l->nodes[i].call.ax[0]);
    }
  ZkView *view = &last->call.out[last->call.nout - 1];
  CHANGE(forward, view->axis[view->rank - 1]);
  CHANGE(forward, view->start[0]);
  CHANGE(forward, view->whole[view->rank - 1]);
  CHANGE(forward, last->call.num[1]);
  CHANGE(forward, last->call.opt[1]);
  CHANGE(forward, last->loc);
  ZpNode *first = s->list[ZP_BWD].nodes;
  CHANGE(backward, first->call.accumulate);
  CHANGE(backward, first->flops);
  CHANGE(backward, first->overwrites);

  ZpStage *st = &p->programs.stages[1];
  ZpInstr *in = &st->prog.instrs[st->prog.ninstrs - 1];
  CHANGE("stage 1's instructions", in->op);
  CHANGE("stage 1's instructions", in->mb);
  CHANGE("stage 1's instructions", in->held);
  CHANGE("stage 1's instructions", in->peer);
  CHANGE("stage 1's instructions", in->pair);
  CHANGE("stage 1's instructions", in->dims);
  CHANGE("stage 1's instructions", in->bytes);
  CHANGE("stage 1's instructions", in->coll);
  CHANGE("stage 1's instructions", in->in_place);
  const ZpInstr *waits = in;
  while (!waits->nwait) waits--;
  CHANGE("stage 1's instructions", waits->wait[0]);
  CHANGE("stage 1's instructions", in->access[0].tag);
  CHANGE("stage 1's instructions", in->access[0].mode);
  CHANGE("stage 1's instructions", st->prog.queue[0][0]);
  CHANGE("stage 1's instructions", st->prog.queue[2][0]);
  CHANGE("stage 1's instructions", st->prog.live);
  CHANGE("stage 1's instructions", st->prog.npinned);
  CHANGE("stage 1's instructions", in->access[0].buf);
  CHANGE("stage 1's memory", st->prog.bufs[0].offset);
  CHANGE("stage 1's memory", st->prog.bufs[0].bytes);
  CHANGE("stage 1's memory", st->ledger.bytes[ZP_LEDGER_LINES - 1]);
  CHANGE("stage 1's memory", q.p->programs.vstages[1].dcarry_bytes);
  CHANGE("stage 1's parts", st->insts[0].iter);
  CHANGE("stage 1's parts", st->held[st->nheld - 1].bucket);
  CHANGE("stage 1's parts", st->cost);
  CHANGE("stage 1's memory", st->prog.bufs[0].pool);
  CHANGE("stage 1's memory", st->ledger.bytes[0]);
  CHANGE("stage 1's memory", st->ledger.total[ZP_DEVICE]);
  CHANGE("stage 1's memory", st->ledger.total[ZP_HOST]);
  CHANGE("stage 1's memory", st->prog.bufs[0].memory);
  CHANGE("stage 1's memory", q.p->programs.vstages[1].carry_bytes);
  CHANGE("stage 1's parts", st->insts[0].segment);
  CHANGE("stage 1's parts", st->insts[0].held[0]);
  CHANGE("stage 1's parts", st->saved_at[0]);
  CHANGE("stage 1's parts", st->held[0].norm_owner);

  cr_assert(same(p, &before), "a field was not put back");
  zb_text_free(&before);
  plan_close(&q);
  plan_close(&again);
  model_close(&m);
}
