/* Digests of all that a plan says, a part at a time, so that ranks can find out whether they made the same
 * one, and where not. Field by field: structures have holes. Left out is what the engine fills in (pointers),
 * and what only planning uses. */
#include "runtime/plan/text.h"

#include <string.h>

typedef uint64_t Hash;

static void add(Hash *h, uint64_t x) { *h = zb_mix64((*h ^ x) + 0x9e3779b97f4a7c15ull); }
static void add_double(Hash *h, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  add(h, bits);
}
static void add_text(Hash *h, const char *s) { add(h, s ? zb_stream(s) : 1); }
static void add_u32s(Hash *h, const uint32_t *x, uint32_t n) {
  add(h, n);
  for (uint32_t i = 0; i < n; i++) add(h, x[i]);
}
#define ADD(h, ...)                                                                                          \
  do {                                                                                                       \
    const uint64_t x_[] = {__VA_ARGS__};                                                                     \
    for (size_t i_ = 0; i_ < sizeof x_ / sizeof *x_; i_++) add((h), x_[i_]);                                 \
  } while (0)
#define U(x) ((uint64_t)(x))

/* ---- mesh, sizes, parameters --------------------------------------------------------------------------- */
static Hash mesh(const ZpPlan *p) {
  const ZpMesh *m = &p->layout.mesh;
  Hash h = 0;
  ADD(&h, U(m->ndims), U(m->pipe), U(m->nranks));
  for (int d = 0; d < m->ndims; d++) {
    add_text(&h, m->dim[d].name);
    ADD(&h, U(m->dim[d].size), m->dim[d].directive, m->dim[d].naxes, m->dim[d].zigzag, m->dim[d].zigzag_up);
    for (uint32_t i = 0; i < m->dim[d].naxes; i++) add(&h, m->dim[d].axes[i]);
  }
  return h;
}

static void add_update(Hash *h, const ZgUpdate *u) {
  add(h, u ? u->n : 0);
  for (uint32_t i = 0; u && i < u->n; i++) {
    ADD(h, u->steps[i].op, u->steps[i].a, u->steps[i].b, u->steps[i].c);
    add_double(h, u->steps[i].num);
  }
}

static void add_amount(Hash *h, const ZlAmount *x) {
  add_double(h, x->num);
  add(h, x->nthen);
  for (uint32_t i = 0; i < x->nthen; i++) add_double(h, x->then[i].to), add_double(h, x->then[i].over);
}

static void add_optimizer(Hash *h, const ZpOptimizer *o) {
  uint64_t kind = o->kind == ZP_UPDATE ? UINT8_MAX : o->kind; /* however many optimizers there are */
  ADD(h, kind, U(o->states), U(o->rate.anneal), U(o->rate.warmup), U(o->rate.stable), U(o->rate.until));
  add_double(h, o->rate.lr), add_double(h, o->rate.final);
  if (o->kind == ZP_UPDATE) return;
  ADD(h, o->cautious, U(o->every), o->rms, U(o->iterations), U(o->coefficients));
  if (o->second) add(h, o->second);
  for (int i = 0; i < o->states; i++) add(h, zk_elem_info[o->state_elem[i]].bits);
  for (int i = 0; i < zk_optimizer_info[o->kind].nsettings; i++) add_amount(h, &o->set[i]);
}

static Hash sizes(const ZpPlan *p) {
  Hash h = 0;
  for (uint32_t i = 0; i < p->graph->naxes; i++)
    ADD(&h, U(p->layout.axis_size[i]), U(p->layout.axis_valid[i]), p->layout.experts[i],
        p->layout.lies ? p->layout.lies[i] : i);
  ADD(&h, p->asked.batch, U(p->asked.global_batch), U(p->asked.nmicro),
      zp_precision_elem(p->asked.recipe->precision.compute), p->asked.tf32,
      zp_precision_elem(p->asked.recipe->precision.grads),
      zp_precision_elem(p->asked.recipe->precision.reduce), p->asked.noptimizers, p->asked.ngroups,
      p->asked.pins, p->asked.checkpoints, p->asked.forward_only, p->asked.outputs);
  add_text(&h, p->asked.schedule);
  for (uint32_t i = 0; i < p->asked.noptimizers; i++) add_optimizer(&h, &p->asked.optimizers[i]);
  for (uint32_t i = 0; i < p->asked.ngroups; i++) {
    add(&h, p->asked.groups[i].optimizer);
    add_double(&h, p->asked.groups[i].rate), add_amount(&h, &p->asked.groups[i].decay);
    add_update(&h, p->asked.groups[i].update);
  }
  for (uint32_t i = 0; i < p->graph->nparams; i++) add(&h, p->asked.group[i]);
  add_double(&h, p->asked.clip);
  add_double(&h, p->asked.average);
  ADD(&h, p->asked.zero.over, p->asked.zero.what, p->asked.zero.keep, p->asked.zero.ahead,
      p->layout.chunk.classes, p->layout.chunk.rows, p->layout.chunk.up);
  for (uint32_t i = 0; i < zg_losses(p->graph); i++)
    ADD(&h, p->layout.num_partial[i], p->layout.den_partial[i]);
  add_double(&h, p->notes.model_flops);
  add_double(&h, p->notes.params);
  add_double(&h, p->notes.trained);
  add(&h, p->programs.ninputs);
  for (uint32_t i = 0; i < p->programs.ninputs; i++) {
    const ZpInputUse *u = &p->programs.inputs[i];
    ADD(&h, u->input, u->value_segment, u->value, u->at);
  }
  return h;
}

static void add_states(Hash *h, const ZpState *s, int ndims) {
  for (int d = 0; d < ndims; d++) ADD(h, s[d].kind, s[d].max, s[d].axis);
}

static void add_slice(Hash *h, const ZpSlice *s, int ndims) {
  ADD(h, s->param, s->at, s->n, s->takes, U(s->naxes), s->group);
  for (int i = 0; i < s->naxes; i++)
    ADD(h, s->axis[i], U(s->size[i]), U(s->whole[i]), U(s->valid[i]), s->role[i]);
  add_states(h, s->state, ndims);
}

static Hash buckets(const ZpPlan *p) {
  Hash h = 0;
  add(&h, p->programs.nbuckets);
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *b = &p->programs.buckets[i];
    add_text(&h, b->name);
    ADD(&h, b->segment, b->elems, b->shard, b->partial, b->replicas, b->nslices, b->frozen, b->optimizer,
        b->matrices);
    ADD(&h, b->gathers, b->keeps, U(b->scatters), b->republishes, b->reduces);
    add_u32s(&h, b->users, b->nusers);
    for (uint32_t k = 0; k < b->nslices; k++) add_slice(&h, &b->slices[k], p->layout.mesh.ndims);
  }
  add(&h, p->programs.ntied);
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    add(&h, p->programs.tied[i].bucket);
    add_u32s(&h, p->programs.tied[i].stages, p->programs.tied[i].nstages);
  }
  return h;
}

static Hash cotangents(const ZpPlan *p) {
  Hash h = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    for (uint32_t k = 0; k < p->graph->segments[i].ncarry_in; k++) add(&h, p->layout.cotangents[i].in[k]);
    for (uint32_t k = 0; k < p->graph->segments[i].ncarry_out; k++) add(&h, p->layout.cotangents[i].out[k]);
  }
  for (uint32_t i = 0; p->asked.frozen && i < p->graph->nparams; i++) add(&h, p->asked.frozen[i]);
  return h;
}

/* ---- segments ------------------------------------------------------------------------------------------ */
static void add_type(Hash *h, const ZgType *t) {
  ADD(h, t->elem, t->naxes, t->of);
  for (int i = 0; i < t->naxes; i++) add(h, t->axis[i]);
}

static Hash values(const ZpPlan *p, const ZpSegment *s) {
  Hash h = 0;
  add(&h, s->nvalues);
  for (uint32_t i = 0; i < s->nvalues; i++) {
    const ZpValue *v = &s->values[i];
    add_type(&h, &v->type);
    add_states(&h, v->state, p->layout.mesh.ndims);
    for (int k = 0; k < v->type.naxes; k++) ADD(&h, v->axis[k], U(v->size[k]));
    ADD(&h, v->elem, v->summed, v->bytes, v->at.space, v->at.index, v->at.offset, v->param, v->nmembers);
    for (int k = 0; k < v->nmembers; k++) add(&h, v->member[k]);
  }
  for (int k = 0; k < ZP_PHASES; k++) add(&h, s->list[k].temp);
  ADD(&h, s->saved_bytes, s->saves_carry, s->carry_bytes, s->dcarry_bytes, s->carry_out_bytes,
      s->dcarry_out_bytes, s->has_loss);
  add_u32s(&h, s->buckets, s->nbuckets);
  add_double(&h, s->model_flops);
  add_double(&h, s->cost);
  return h;
}

static void add_view(Hash *h, const ZkView *v) {
  ADD(h, v->elem, v->rank, v->summed);
  for (int i = 0; i < v->rank; i++)
    ADD(h, v->axis[i], U(v->size[i]), U(v->stride[i]), U(v->start[i]), U(v->whole[i]));
}

static void add_pointwise(Hash *h, const ZkPointwise *c) {
  add(h, c != NULL);
  if (!c) return;
  ADD(h, c->nops, c->nout, c->prologue, c->operand);
  for (int i = 0; i < c->nout; i++) add(h, c->out[i]);
  for (int i = 0; i < c->nops; i++) {
    ADD(h, c->ops[i].op, c->ops[i].a, c->ops[i].b, c->ops[i].c, c->ops[i].elem);
    add_double(h, c->ops[i].num);
  }
}

static void add_call(Hash *h, const ZkCall *c) {
  ADD(h, c->op, c->nin, c->nout, c->nax, U(c->opt[0]), U(c->opt[1]), c->accumulate);
  for (int i = 0; i < c->nax; i++) add(h, c->ax[i]);
  for (int i = 0; i < 2; i++) add_double(h, c->num[i]);
  for (int i = 0; i < c->nin; i++) add_view(h, &c->in[i]);
  for (int i = 0; i < c->nout; i++) add_view(h, &c->out[i]);
  add_pointwise(h, c->pointwise);
}

static Hash nodes(const ZpList *l) {
  Hash h = 0;
  add(&h, l->n);
  for (const ZpNode *n = l->nodes; n < l->nodes + l->n; n++) {
    add_call(&h, &n->call);
    for (int k = 0; k < n->call.nin; k++) add(&h, n->in[k]);
    for (int k = 0; k < n->call.nout; k++) add(&h, n->out[k]);
    ADD(&h, n->dims, n->split, n->axis, n->axis2, n->packs, n->scratch_bytes, n->scratch_at, n->sink, n->loc,
        n->region, n->recomputed, n->overwrites, n->until, n->nsteps);
    for (uint32_t k = 0; k < n->nsteps; k++) ADD(&h, n->steps[k], n->chunks[k]);
    add_double(&h, n->flops), add_double(&h, n->busiest);
  }
  return h;
}

/* ---- stages -------------------------------------------------------------------------------------------- */
static Hash instructions(const ZpProgram *g) {
  Hash h = 0;
  ADD(&h, g->ninstrs, g->nslots, g->nrecv_act, g->nsend_act, g->nrecv_grad, g->nsend_grad, g->npinned,
      g->live);
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    const ZpInstr *in = &g->instrs[i];
    ADD(&h, in->op, in->queue, in->in_place, in->mb, in->inst, in->held, in->peer, in->pair, in->dims,
        in->coll, in->tied, in->bytes, in->naccess);
    add_u32s(&h, in->wait, in->nwait);
    for (uint32_t k = 0; k < in->naccess; k++)
      ADD(&h, in->access[k].buf, in->access[k].mode, in->access[k].tag);
  }
  for (int q = 0; q < ZP_QUEUES; q++) add_u32s(&h, g->queue[q], g->nqueue[q]);
  return h;
}

static Hash memory(const ZpPlan *p, const ZpStage *s) {
  Hash h = 0;
  add(&h, s->prog.nbufs);
  for (uint32_t i = 0; i < s->prog.nbufs; i++) {
    const ZpBuf *b = &s->prog.bufs[i];
    ADD(&h, b->kind, b->index, b->pool, b->bytes, b->memory, b->offset);
  }
  for (int i = 0; i < ZP_LEDGER_LINES; i++) add(&h, s->ledger.bytes[i]);
  for (int i = 0; i < ZP_MEMORIES; i++) add(&h, s->ledger.total[i]);
  for (uint32_t i = 0; i < s->nvstages; i++) {
    const ZpVirtualStage *v = &p->programs.vstages[s->vstages[i]];
    ADD(&h, v->input_bytes, v->slot_bytes, s->scratch_bytes, s->boundary_bytes, v->carry_bytes,
        v->carry_out_bytes, v->dcarry_out_bytes, v->dcarry_bytes);
  }
  return h;
}

static Hash instances(const ZpStage *s) {
  Hash h = 0;
  ADD(&h, s->ninsts, s->nheld);
  for (uint32_t i = 0; i < s->ninsts; i++) {
    ADD(&h, s->insts[i].segment, s->insts[i].iter, s->saved_at ? s->saved_at[i] : 0);
    add_u32s(&h, s->insts[i].held, s->insts[i].nheld);
  }
  for (uint32_t i = 0; i < s->nheld; i++) {
    const ZpStageBucket *k = &s->held[i];
    ADD(&h, k->bucket, k->iter, k->tied, k->norm_owner);
  }
  add_double(&h, s->cost);
  return h;
}

void zp_digest(const ZpPlan *p, ZbArena *a, ZpEachDigest *each, void *ctx) {
  each(ctx, "mesh", mesh(p));
  each(ctx, "sizes", sizes(p));
  each(ctx, "parameters", buckets(p));
  each(ctx, "cotangents", cotangents(p));
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    const ZpSegment *s = &p->programs.segments[i];
    each(ctx, zb_printf(a, "part %u's values", i), values(p, s));
    for (int k = 0; k < ZP_PHASES; k++)
      each(ctx, zb_printf(a, "part %u's %s", i, zp_phase_text[k]), nodes(&s->list[k]));
  }
  for (uint32_t i = 0; i < p->programs.nstages; i++) {
    each(ctx, zb_printf(a, "stage %u's parts", i), instances(&p->programs.stages[i]));
    each(ctx, zb_printf(a, "stage %u's instructions", i), instructions(&p->programs.stages[i].prog));
    each(ctx, zb_printf(a, "stage %u's memory", i), memory(p, &p->programs.stages[i]));
  }
}
