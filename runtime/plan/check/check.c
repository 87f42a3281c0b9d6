/* The proofs of a plan. Each either holds for every possible timing of the run, or names the instructions
 * that break it. Cost is linear in the number of instructions (but for one sort of the buffers).
 *
 *  1 form          indices in range, every instruction once in the queue of its kind, waits point backward;
 *                  none of backward or optimizer in a plan that only goes forward
 *  2 ownership     every part of the model in exactly one virtual stage, in order, these on the stages that the
 *                  schedule says; every bucket where it is used
 *  3 completeness  every micro-batch forward and (but for a plan that only goes forward) backward exactly
 *                  once, in order; backward of a virtual stage in the order of micro-batches
 *  4 reductions    every gradient over exactly the dims where it is partial, once; every bucket stepped once;
 *                  collectives move the bytes that they are said to
 *  5 pairs         sends and receives, and collectives of several stages, fit each other
 *  6 deadlock      queues, waits and pairs together have no cycle, even if every queue ran strictly one by
 *                  one; so all collectives fit one total order, and two stages never meet the same ones in
 *                  different order; nor have the lists, if every stage does all of its own one by one
 *  7 operands      each instruction reads and writes what it must, no more
 *  8 contents      what is read was written, completely, and is not overwritten before
 *  9 arena         buffers have the bytes that their contents take, lie inside it where the engine looks for
 *                  them, overlap only when one is dead; the ledger adds up
 * 10 segments      in the local programs every value lies inside its block, as calls see it; what is read was
 *                  made before and is not overwritten (zp_check_segments), by nobody while a collective that
 *                  goes beside calls still has it; in each call an axis has one size
 * 11 beside        a plan in another's arena finds its parameters there and touches nothing else that the
 *                  other one keeps from step to step (beside.c)
 * 12 meaning       the local programs of all ranks together compute what the graph says (meaning/), which is asked
 *                  last: a call that is not well-formed has no meaning */
#include "runtime/plan/check/check.h"

/* ---- 1 form -------------------------------------------------------------------------------------------- */
static bool of_bucket(int op) {
  return op == ZP_I_OPT_STEP || op == ZP_I_GATHER_PARAMS || op == ZP_I_SCATTER_GRADS ||
         op == ZP_I_REDUCE_GRADS || op == ZP_I_REDUCE_TIED || op == ZP_I_PUBLISH_PARAMS ||
         op == ZP_I_MOMENTUM || op == ZP_I_ORTHOGONALIZE || op == ZP_I_GATHER_UPDATES ||
         op == ZP_I_SCATTER_UPDATES;
}

static bool of_mode(const ZpPlan *p, int op) {
  switch ((ZpInstrOp)op) {
  case ZP_I_ZERO_SUMS: return p->asked.forward_only;
  case ZP_I_LOAD:
  case ZP_I_COUNT:
  case ZP_I_FWD:
  case ZP_I_SEND_ACT:
  case ZP_I_RECV_ACT:
  case ZP_I_GATHER_PARAMS:
  case ZP_I_REDUCE_COUNT:
  case ZP_I_REDUCE_STEP: return true;
  default: return !p->asked.forward_only;
  }
}

static bool instr_form(const Check *c, uint32_t s, uint32_t i) {
  const ZpStage *st = &c->p->programs.stages[s];
  const ZpInstr *in = &st->prog.instrs[i];
  if (in->op >= ZP_INSTRS || in->queue != zp_instr_info[in->op].queue)
    return zb_fail(c->err, NULL, "stage %u: instruction %u is of no known kind or in another's queue", s, i);
  if (!of_mode(c->p, in->op))
    return zb_fail(c->err, NULL, "stage %u: instruction %u (%s) is not one of a plan that %s", s, i,
                   zp_instr_info[in->op].text, c->p->asked.forward_only ? "only goes forward" : "trains");
  bool inst = in->op == ZP_I_FWD || in->op == ZP_I_BWD || in->op == ZP_I_COUNT, p2p = in->queue == ZP_Q_P2P;
  bool vstage = inst || in->op == ZP_I_LOAD;
  const ZpVirtualStage *v = in->vstage < c->p->programs.nvstages ? &c->p->programs.vstages[in->vstage] : NULL;
  if (in->mb >= c->p->asked.nmicro || ((vstage || p2p) && !v) || (vstage && v->stage != s) ||
      (inst && (in->inst < v->first || in->inst - v->first >= v->ninsts)) || (p2p && !in->vstage) ||
      (of_bucket(in->op) && in->held >= st->nheld) || (p2p && in->peer >= c->p->programs.nstages) ||
      (in->op == ZP_I_REDUCE_TIED && in->tied >= c->p->programs.ntied))
    return zb_fail(c->err, NULL, "stage %u: instruction %u (%s) names something that does not exist", s, i,
                   zp_instr_info[in->op].text);
  for (uint32_t k = 0; k < in->naccess; k++)
    if (in->access[k].buf >= st->prog.nbufs || !in->access[k].mode ||
        in->access[k].mode > (ZP_READ | ZP_WRITE))
      return zb_fail(c->err, NULL, "%s: operand %u is not a buffer of this stage", zp_say(c, s, i), k);
  for (uint32_t k = 0; k < in->nwait; k++) {
    if (in->wait[k] >= st->prog.ninstrs)
      return zb_fail(c->err, NULL, "%s waits for an instruction that does not exist", zp_say(c, s, i));
    if (in->wait[k] >= i)
      return zb_fail(c->err, NULL, "%s waits for %s, which is listed after it", zp_say(c, s, i),
                     zp_say(c, s, in->wait[k]));
  }
  return true;
}

/* Returns how many pools there are of a kind of buffers. */
static uint32_t pools_of(const Check *c, uint32_t s, int kind) {
  const ZpStage *st = &c->p->programs.stages[s];
  return zp_is_stored(kind)                            ? st->nheld
         : kind == ZP_B_GATHER || kind == ZP_B_STAGING ? c->p->programs.nbuckets
         : zp_is_of_vstage(kind)                       ? st->nvstages
                                                       : 1;
}

/* Buffers of a kind and pool follow each other and are numbered so: the engine finds them by that. What is
 * stored of a bucket is one. */
static bool buffers_form(const Check *c, uint32_t s) {
  const ZpProgram *g = &c->p->programs.stages[s].prog;
  uint32_t pools = 1;
  for (int k = 0; k < ZP_B_KINDS; k++) pools = pools_of(c, s, k) > pools ? pools_of(c, s, k) : pools;
  uint32_t *next = ZB_NEWN(c->a, uint32_t, (size_t)ZP_B_KINDS * (pools + 1));
  for (uint32_t b = 0; b < g->nbufs; b++) {
    const ZpBuf *x = &g->bufs[b];
    if (x->kind >= ZP_B_KINDS || x->pool >= pools_of(c, s, x->kind))
      return zb_fail(c->err, NULL, "stage %u: buffer %u is of no known kind or pool", s, b);
    if (zp_is_stored(x->kind) && x->index)
      return zb_fail(c->err, NULL, "stage %u has a second %s", s, zp_say_buf(c, s, b));
    bool follows = b && x[-1].kind == x->kind && x[-1].pool == x->pool;
    if (x->index != next[x->kind * (pools + 1) + x->pool]++ || (x->index && !follows))
      return zb_fail(c->err, NULL, "stage %u: %s is not numbered as it is listed", s, zp_say_buf(c, s, b));
  }
  return true;
}

static bool form(const Check *c, uint32_t s) {
  const ZpProgram *g = &c->p->programs.stages[s].prog;
  uint64_t queued = 0;
  if (!buffers_form(c, s)) return false;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    if (!instr_form(c, s, i)) return false;
  for (int q = 0; q < ZP_QUEUES; q++) {
    queued += g->nqueue[q];
    for (uint32_t k = 0; k < g->nqueue[q]; k++) {
      uint32_t i = g->queue[q][k];
      if (i >= g->ninstrs || g->instrs[i].queue != q || (k && i <= g->queue[q][k - 1]))
        return zb_fail(c->err, NULL, "stage %u: queue %d does not list its instructions in order, entry %u",
                       s, q, k);
      c->pos[c->base[s] + i] = k;
    }
  }
  if (queued != g->ninstrs) return zb_fail(c->err, NULL, "stage %u: an instruction is in no queue", s);
  return true;
}

/* ---- 2 ownership --------------------------------------------------------------------------------------- */
static bool bucket_copies(const Check *c, uint32_t *at);

static bool parts_owned(const Check *c) {
  const ZpPlan *p = c->p;
  uint32_t *at = ZB_NEWN(c->a, uint32_t, p->graph->nsegments + 1), n = 0;
  for (uint32_t g = 0; g < p->graph->nsegments; g++) at[g] = n, n += p->graph->segments[g].trip;
  uint32_t *owner = ZB_NEWN(c->a, uint32_t, n); /* stage + 1; 0: none */
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    if (!p->programs.stages[s].ninsts) return zb_fail(c->err, NULL, "stage %u has no part of the model", s);
    for (uint32_t i = 0; i < p->programs.stages[s].ninsts; i++) {
      const ZpInst *x = &p->programs.stages[s].insts[i];
      if (x->segment >= p->graph->nsegments || x->iter >= p->graph->segments[x->segment].trip)
        return zb_fail(c->err, NULL, "stage %u: instance %u is not a part of the model", s, i);
      uint32_t *o = &owner[at[x->segment] + x->iter];
      if (*o)
        return zb_fail(c->err, NULL, "%s is on stage %u and again on stage %u",
                       zp_say_inst(c, x->segment, x->iter), *o - 1, s);
      *o = s + 1;
    }
  }
  for (uint32_t g = 0; g < p->graph->nsegments; g++)
    for (uint32_t i = 0; i < p->graph->segments[g].trip; i++)
      if (!owner[at[g] + i]) return zb_fail(c->err, NULL, "%s is on no stage", zp_say_inst(c, g, i));
  return true;
}

/* Checks that virtual stages are where the schedule places them, and that a stage's instances are those of
 * its virtual stages, one after the other. */
static bool vstages_placed(const Check *c) {
  const ZpPlan *p = c->p;
  uint32_t n, P = p->programs.nstages, *end = ZB_NEWN(c->a, uint32_t, P), *has = ZB_NEWN(c->a, uint32_t, P);
  if (!zl_schedule_info(p->asked.schedule)) return zb_fail(c->err, NULL, "the plan has no known schedule");
  const ZpVirtualStage *want = zp_place_vstages(c->a, p->asked.schedule, P, &n);
  if (p->programs.nvstages != n)
    return zb_fail(c->err, NULL, "the plan has %u virtual stages, but schedule %s has %u",
                   p->programs.nvstages, p->asked.schedule, n);
  for (uint32_t v = 0; v < n; v++) {
    const ZpVirtualStage *x = &p->programs.vstages[v];
    uint32_t s = want[v].stage;
    if (x->stage != s || x->index != want[v].index)
      return zb_fail(c->err, NULL, "virtual stage %u is not on stage %u as its number %u", v, s,
                     want[v].index);
    const ZpStage *st = &p->programs.stages[s];
    if (!x->ninsts) return zb_fail(c->err, NULL, "stage %u has no part of the model", s);
    if (x->index != has[s] || x->first != end[s] || x->ninsts > st->ninsts - end[s] ||
        x->index >= st->nvstages || st->vstages[x->index] != v)
      return zb_fail(c->err, NULL,
                     "stage %u does not list virtual stage %u, or its parts, after those before", s, v);
    has[s]++, end[s] += x->ninsts;
  }
  for (uint32_t s = 0; s < P; s++)
    if (end[s] != p->programs.stages[s].ninsts || has[s] != p->programs.stages[s].nvstages)
      return zb_fail(c->err, NULL, "stage %u has parts of the model that are in no virtual stage", s);
  return true;
}

/* Checks that virtual stages follow each other in the model, and so do their instances. */
static bool parts_ordered(const Check *c) {
  const ZpPlan *p = c->p;
  uint32_t segment = 0, iter = 0;
  for (uint32_t v = 0; v < p->programs.nvstages; v++) {
    const ZpVirtualStage *vs = &p->programs.vstages[v];
    for (uint32_t i = 0; i < vs->ninsts; i++) {
      const ZpInst *x = &p->programs.stages[vs->stage].insts[vs->first + i];
      if (x->segment != segment || x->iter != iter)
        return zb_fail(c->err, NULL, "the parts of the model are not on the stages in their order");
      if (++iter == p->graph->segments[segment].trip) segment++, iter = 0;
    }
  }
  return true;
}

/* Checks that an instance takes in what the one before hands on, and that virtual stages say the same. */
static bool tuples_fit(const Check *c) {
  const ZpPlan *p = c->p;
  const ZpInst *before = NULL;
  for (uint32_t v = 0; v < p->programs.nvstages; v++) {
    const ZpVirtualStage *vs = &p->programs.vstages[v];
    const ZpSegment *b = NULL;
    for (uint32_t i = 0; i < vs->ninsts; i++) {
      const ZpInst *x = &p->programs.stages[vs->stage].insts[vs->first + i];
      const ZpSegment *g = &p->programs.segments[x->segment];
      b = before ? &p->programs.segments[before->segment] : NULL;
      if (b && (b->carry_out_bytes != g->carry_bytes || b->dcarry_out_bytes != g->dcarry_bytes))
        return zb_fail(c->err, NULL,
                       "%s carries out %llu bytes and takes back %llu, but %s takes in %llu and returns %llu",
                       zp_say_inst(c, before->segment, before->iter), (unsigned long long)b->carry_out_bytes,
                       (unsigned long long)b->dcarry_out_bytes, zp_say_inst(c, x->segment, x->iter),
                       (unsigned long long)g->carry_bytes, (unsigned long long)g->dcarry_bytes);
      if (!i && (vs->carry_bytes != g->carry_bytes || vs->dcarry_bytes != g->dcarry_bytes))
        return zb_fail(c->err, NULL, "virtual stage %u does not take in what %s does", v,
                       zp_say_inst(c, x->segment, x->iter));
      before = x;
    }
    b = &p->programs.segments[before->segment];
    if (vs->carry_out_bytes != b->carry_out_bytes || vs->dcarry_out_bytes != b->dcarry_out_bytes)
      return zb_fail(c->err, NULL, "virtual stage %u does not hand on what %s does", v,
                     zp_say_inst(c, before->segment, before->iter));
  }
  return true;
}

static bool inst_buckets(const Check *c, uint32_t s, uint32_t inst) {
  const ZpPlan *p = c->p;
  const ZpStage *st = &p->programs.stages[s];
  const ZpInst *x = &st->insts[inst];
  const ZpSegment *g = &p->programs.segments[x->segment];
  bool fit = x->nheld == g->nbuckets;
  for (uint32_t k = 0; fit && k < x->nheld; k++) {
    const ZpStageBucket *h = x->held[k] < st->nheld ? &st->held[x->held[k]] : NULL;
    fit = h && h->bucket == g->buckets[k] &&
          h->iter == (p->programs.buckets[h->bucket].segment == ZP_NONE ? 0 : x->iter);
    if (fit) c->last_user[s][zp_vstage_of(p, st, inst)->index * st->nheld + x->held[k]] = inst;
  }
  if (!fit)
    return zb_fail(c->err, NULL, "stage %u does not hold the parameters of %s", s,
                   zp_say_inst(c, x->segment, x->iter));
  return true;
}

/* Counts the virtual stages of a stage that use a held bucket. */
static uint32_t users(const Check *c, uint32_t s, uint32_t held) {
  const ZpStage *st = &c->p->programs.stages[s];
  uint32_t n = 0;
  for (uint32_t k = 0; k < st->nvstages; k++) n += c->last_user[s][k * st->nheld + held] != ZP_NONE;
  return n;
}

static bool buckets_owned(const Check *c) {
  const ZpPlan *p = c->p;
  uint32_t *at = ZB_NEWN(c->a, uint32_t, p->programs.nbuckets + 1);
  for (uint32_t b = 0; b < p->programs.nbuckets; b++) {
    uint32_t seg = p->programs.buckets[b].segment;
    at[b + 1] = at[b] + (seg == ZP_NONE ? 1 : p->graph->segments[seg].trip);
  }
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    c->last_user[s] = ZB_NEWN(c->a, uint32_t, (size_t)st->nheld * st->nvstages);
    for (uint32_t i = 0; i < st->nheld * st->nvstages; i++) c->last_user[s][i] = ZP_NONE;
    for (uint32_t h = 0; h < st->nheld; h++) {
      const ZpStageBucket *x = &st->held[h];
      if (x->bucket >= p->programs.nbuckets || x->iter >= at[x->bucket + 1] - at[x->bucket] ||
          (x->tied != ZP_NONE && x->tied >= p->programs.ntied))
        return zb_fail(c->err, NULL, "stage %u: held bucket %u does not exist", s, h);
    }
    for (uint32_t i = 0; i < st->ninsts; i++)
      if (!inst_buckets(c, s, i)) return false;
    for (uint32_t h = 0; h < st->nheld; h++)
      if (!users(c, s, h))
        return zb_fail(c->err, NULL, "stage %u holds %s but does not use it", s,
                       zp_say_held(c, st->held[h].bucket, st->held[h].iter));
  }
  return bucket_copies(c, at);
}

/* Checks that a bucket on several stages is tied on all of them; its norm counts on one. */
static bool bucket_copies(const Check *c, uint32_t *at) {
  const ZpPlan *p = c->p;
  uint32_t n = at[p->programs.nbuckets], *holders = ZB_NEWN(c->a, uint32_t, n),
           *counted = ZB_NEWN(c->a, uint32_t, n);
  uint32_t *last = ZB_NEWN(c->a, uint32_t, n); /* stage + 1 */
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    for (uint32_t h = 0; h < p->programs.stages[s].nheld; h++) {
      const ZpStageBucket *x = &p->programs.stages[s].held[h];
      uint32_t k = at[x->bucket] + x->iter;
      if (last[k] == s + 1)
        return zb_fail(c->err, NULL, "stage %u holds %s twice", s, zp_say_held(c, x->bucket, x->iter));
      last[k] = s + 1;
      holders[k]++;
      counted[k] += x->norm_owner;
    }
  }
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    for (uint32_t h = 0; h < p->programs.stages[s].nheld; h++) {
      const ZpStageBucket *x = &p->programs.stages[s].held[h];
      uint32_t k = at[x->bucket] + x->iter;
      const ZpTied *t = x->tied == ZP_NONE ? NULL : &p->programs.tied[x->tied];
      bool listed = false;
      for (uint32_t i = 0; t && i < t->nstages; i++) listed |= t->stages[i] == s;
      if (t ? !listed || t->bucket != x->bucket || t->nstages != holders[k] : holders[k] != 1)
        return zb_fail(c->err, NULL,
                       "%s is on %u stages, but stage %u does not know that it is tied to the others",
                       zp_say_held(c, x->bucket, x->iter), holders[k], s);
      if (counted[k] != 1)
        return zb_fail(c->err, NULL, "the norm of %s counts on %u stages", zp_say_held(c, x->bucket, x->iter),
                       counted[k]);
    }
  }
  return true;
}

/* ---- 3 completeness ------------------------------------------------------------------------------------ */
typedef struct {
  uint32_t counts, counted; /* counted: the last instance that was */
  uint32_t fwd, bwd;        /* instances done, of all virtual stages in the order of the model, or back */
  uint32_t *loads;          /* per virtual stage, by index */
} Progress;

static bool one_fwd_bwd(const Check *c, uint32_t s, uint32_t i, Progress *m) {
  const ZpStage *st = &c->p->programs.stages[s];
  const ZpInstr *in = &st->prog.instrs[i];
  bool back = in->op == ZP_I_BWD;
  uint32_t *done = back ? &m->bwd : &m->fwd, turn = back ? st->ninsts - 1 - in->inst : in->inst;
  if (turn < *done) return zb_fail(c->err, NULL, "%s runs twice", zp_say(c, s, i));
  if (turn > *done || (back && m->fwd < st->ninsts)) {
    uint32_t missing = turn == *done ? m->fwd : back ? st->ninsts - 1 - *done : *done;
    const char *what = turn == *done || !back ? "forward" : "backward";
    const ZpInst *x = &st->insts[missing];
    return zb_fail(c->err, NULL, "%s runs before the %s of %s", zp_say(c, s, i), what,
                   zp_say_inst(c, x->segment, x->iter));
  }
  ++*done;
  return true;
}

static bool all_done(const Check *c, uint32_t s, const Progress *m, uint32_t mb, uint32_t counts) {
  const ZpStage *st = &c->p->programs.stages[s];
  if (m->fwd < st->ninsts || (m->bwd < st->ninsts && !c->p->asked.forward_only)) {
    bool back = m->fwd == st->ninsts;
    const ZpInst *x = &st->insts[back ? st->ninsts - 1 - m->bwd : m->fwd];
    return zb_fail(c->err, NULL, "stage %u never runs the %s of %s for micro-batch %u", s,
                   back ? "backward" : "forward", zp_say_inst(c, x->segment, x->iter), mb);
  }
  if (m->counts != counts)
    return zb_fail(c->err, NULL, "stage %u counts the denominators of micro-batch %u %u times instead of %u",
                   s, mb, m->counts, counts);
  for (uint32_t k = 0; k < st->nvstages; k++) {
    const ZpVirtualStage *v = &c->p->programs.vstages[st->vstages[k]];
    bool twice = false; /* all is counted before the first forward */
    for (uint32_t i = 0; i < v->ninsts && !c->p->asked.forward_only; i++)
      twice |= zp_needs_denominator(c->p, &st->insts[v->first + i]);
    uint32_t loads = v->input_bytes ? 1 + twice : 0;
    if (m->loads[k] != loads)
      return zb_fail(c->err, NULL, "stage %u loads micro-batch %u %u times instead of %u", s, mb, m->loads[k],
                     loads);
  }
  return true;
}

/* Checks that gradients are added up in the order of micro-batches, whatever the schedule. */
static bool in_order(const Check *c, uint32_t s, uint32_t i, uint32_t *next) {
  const ZpInstr *in = &c->p->programs.stages[s].prog.instrs[i];
  if (in->op != ZP_I_BWD || in->mb == next[in->inst]++) return true;
  return zp_fail_at(c, s, i, "runs before the backward of an earlier micro-batch");
}

static bool completeness(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->programs.stages[s];
  const ZpProgram *g = &st->prog;
  uint32_t M = (uint32_t)c->p->asked.nmicro, live = 0, most = 0, zeros = 0, norms = 0;
  Progress *m = ZB_NEWN(c->a, Progress, M);
  uint32_t counts = 0, *back = ZB_NEWN(c->a, uint32_t, st->ninsts); /* per instance: micro-batches */
  for (uint32_t mb = 0; mb < M; mb++) m[mb].loads = ZB_NEWN(c->a, uint32_t, st->nvstages);
  for (uint32_t i = 0; i < st->ninsts; i++) counts += zp_needs_denominator(c->p, &st->insts[i]);
  for (uint32_t k = 0; k < g->nqueue[ZP_Q_COMPUTE]; k++) {
    uint32_t i = g->queue[ZP_Q_COMPUTE][k];
    const ZpInstr *in = &g->instrs[i];
    Progress *x = &m[in->mb];
    if (in->op == ZP_I_LOAD) x->loads[c->p->programs.vstages[in->vstage].index]++;
    if (in->op == ZP_I_COUNT) {
      if (!zp_needs_denominator(c->p, &st->insts[in->inst]))
        return zp_fail_at(c, s, i, "counts a part of the model that has no loss");
      if (x->counts && in->inst <= x->counted)
        return zp_fail_at(c, s, i, "counts what was counted before, or out of order");
      x->counted = in->inst;
      x->counts++;
    }
    zeros += in->op == (c->p->asked.forward_only ? ZP_I_ZERO_SUMS : ZP_I_ZERO_GRADS);
    norms += in->op == ZP_I_NORM_LOCAL;
    if (in->op != ZP_I_FWD && in->op != ZP_I_BWD) continue;
    if (!one_fwd_bwd(c, s, i, x) || !in_order(c, s, i, back)) return false;
    const ZpVirtualStage *v = &c->p->programs.vstages[in->vstage];
    bool ends = c->p->asked.forward_only ? in->inst + 1 == v->first + v->ninsts
                                         : in->op == ZP_I_BWD && in->inst == v->first;
    if (in->op == ZP_I_FWD && in->inst == v->first) live++;
    if (live > most) most = live;
    if (ends) live--;
  }
  for (uint32_t mb = 0; mb < M; mb++)
    if (!all_done(c, s, &m[mb], mb, counts)) return false;
  if (c->p->asked.forward_only && zeros != 1)
    return zb_fail(c->err, NULL, "stage %u has %u ZERO_SUMS instead of one", s, zeros);
  if (!c->p->asked.forward_only && (zeros != 1 || norms != 1))
    return zb_fail(c->err, NULL, "stage %u has %u ZERO_GRADS and %u NORM_LOCAL instead of one each", s, zeros,
                   norms);
  if (g->live != most || g->nslots < most)
    return zb_fail(c->err, NULL, "stage %u holds %u micro-batches at once; its plan says %u, in %u slots", s,
                   most, g->live, g->nslots);
  return true;
}

/* ---- 4 reductions -------------------------------------------------------------------------------------- */
typedef struct {
  uint32_t staged, in_place, reduced, tied, stepped, published;
  uint32_t momentum, gathered, orthogonal, scattered; /* of Muon */
} Tally;

static bool moves(const Check *c, uint32_t s, uint32_t i, ZgOp coll, ZpDims over, uint64_t bytes) {
  const ZpInstr *in = &c->p->programs.stages[s].prog.instrs[i];
  if (in->dims != over)
    return zb_fail(c->err, NULL, "%s goes over %s, but has to go over %s", zp_say(c, s, i),
                   zp_dims_text(&c->p->layout.mesh, c->a, in->dims),
                   zp_dims_text(&c->p->layout.mesh, c->a, over));
  if (in->bytes != (over ? bytes : 0) || in->coll != coll)
    return zb_fail(c->err, NULL, "%s is %s of %llu bytes, but has to be %s of %llu", zp_say(c, s, i),
                   in->coll < ZG_OP_COUNT ? zg_op_info[in->coll].text : "nothing known",
                   (unsigned long long)in->bytes, zg_op_info[coll].text,
                   (unsigned long long)(over ? bytes : 0));
  return true;
}

/* Returns whether one reduce-scatter can take a full gradient to its owners: each of these ranks has a part
 * of the sum. */
/* Checks what a scatter moves: of a staged gradient nothing if the accumulator is whole. */
static bool goes_to_owners(const Check *c, uint32_t s, uint32_t i, const ZpBucket *b) {
  bool staged = !c->p->programs.stages[s].prog.instrs[i].in_place;
  ZpDims sums = staged && b->scatters != ZP_SCATTER_EACH_MICROBATCH ? 0 : b->shard & b->partial;
  ZkElem elem = (ZkElem)(!staged && b->grad != ZK_F32 ? b->grad : b->reduce);
  return moves(c, s, i, sums == b->shard ? ZG_OP_REDUCE_SCATTER : ZG_OP_ALL_REDUCE, sums,
               zk_bytes(elem, b->elems));
}

static bool tally_instr(const Check *c, uint32_t s, uint32_t i, Tally *all) {
  const ZpPlan *p = c->p;
  const ZpInstr *in = &p->programs.stages[s].prog.instrs[i];
  uint32_t losses = zg_losses(p->graph);
  if (in->op == ZP_I_REDUCE_COUNT) {
    ZpDims dims = 0;
    for (uint32_t k = 0; k < losses; k++) dims |= p->layout.den_partial[k];
    return moves(c, s, i, ZG_OP_ALL_REDUCE, dims, 8 * losses);
  }
  if (in->op == ZP_I_REDUCE_STEP)
    return moves(c, s, i, ZG_OP_ALL_REDUCE, p->stream ? 0 : (1u << p->layout.mesh.ndims) - 1,
                 8 * zp_summed_doubles(p));
  if (!of_bucket(in->op)) return true;
  const ZpBucket *b = &p->programs.buckets[p->programs.stages[s].held[in->held].bucket];
  Tally *t = &all[in->held];
  uint64_t params = zk_bytes((ZkElem)b->elem, b->elems);
  uint64_t own = zk_bytes((ZkElem)(b->grad != ZK_F32 ? b->grad : b->reduce),
                          b->elems / (uint64_t)zp_group_size(&p->layout.mesh, b->shard));
  switch ((ZpInstrOp)in->op) {
  case ZP_I_SCATTER_GRADS: ++*(in->in_place ? &t->in_place : &t->staged); return goes_to_owners(c, s, i, b);
  case ZP_I_REDUCE_GRADS: t->reduced++; return moves(c, s, i, ZG_OP_ALL_REDUCE, b->reduces, own);
  case ZP_I_REDUCE_TIED:
    t->tied++;
    return moves(c, s, i, ZG_OP_ALL_REDUCE, p->layout.mesh.pipe < 0 ? 0 : 1u << p->layout.mesh.pipe, own);
  case ZP_I_PUBLISH_PARAMS: t->published++; return moves(c, s, i, ZG_OP_ALL_GATHER, b->shard, params);
  case ZP_I_OPT_STEP: t->stepped++; return true;
  case ZP_I_MOMENTUM: t->momentum++; return true;
  case ZP_I_ORTHOGONALIZE: t->orthogonal++; return true;
  case ZP_I_GATHER_UPDATES:
    t->gathered++;
    return moves(c, s, i, ZG_OP_ALL_GATHER, b->matrices, zp_whole_update(p, b));
  case ZP_I_SCATTER_UPDATES:
    t->scattered++;
    return moves(c, s, i, ZG_OP_REDUCE_SCATTER, b->matrices, zp_whole_update(p, b));
  default: return moves(c, s, i, ZG_OP_ALL_GATHER, b->shard, params); /* GATHER_PARAMS */
  }
}

static bool times(const Check *c, uint32_t s, uint32_t held, const char *what, uint32_t found,
                  uint64_t want) {
  if (found == want) return true;
  const ZpStageBucket *h = &c->p->programs.stages[s].held[held];
  return zb_fail(c->err, NULL, "stage %u: %s of %s happens %u times in a step instead of %llu", s, what,
                 zp_say_held(c, h->bucket, h->iter), found, (unsigned long long)want);
}

static bool reductions(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->programs.stages[s];
  Tally *all = ZB_NEWN(c->a, Tally, st->nheld);
  uint32_t steps = 0, counts = 0, counted = 0;
  for (uint32_t i = 0; i < st->ninsts; i++) counted |= zp_needs_denominator(c->p, &st->insts[i]);
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    if (!tally_instr(c, s, i, all)) return false;
    steps += st->prog.instrs[i].op == ZP_I_REDUCE_STEP;
    counts += st->prog.instrs[i].op == ZP_I_REDUCE_COUNT;
  }
  for (uint32_t h = 0; h < st->nheld && !c->p->asked.forward_only;
       h++) { /* else the form says that there are none */
    const ZpBucket *b = &c->p->programs.buckets[st->held[h].bucket];
    uint64_t staged = zp_stages_grads(b) ? (uint64_t)c->p->asked.nmicro * users(c, s, h) : 0;
    bool muon = !b->frozen && zp_takes_matrices(&c->p->asked.optimizers[b->optimizer]),
         cut = muon && b->matrices;
    bool in_place = b->scatters == ZP_SCATTER_AT_END, tied = !b->frozen && st->held[h].tied != ZP_NONE;
    if (!times(c, s, h, "scattering a gradient", all[h].staged, staged) ||
        !times(c, s, h, "scattering the accumulated gradient", all[h].in_place, in_place) ||
        !times(c, s, h, "reducing the gradient", all[h].reduced, b->reduces != 0) ||
        !times(c, s, h, "reducing the gradient with tied copies", all[h].tied, tied) ||
        !times(c, s, h, "the momentum", all[h].momentum, muon) ||
        !times(c, s, h, "gathering the update", all[h].gathered, cut) ||
        !times(c, s, h, "orthogonalizing the update", all[h].orthogonal, muon) ||
        !times(c, s, h, "scattering the update", all[h].scattered, cut) ||
        !times(c, s, h, "the optimizer step", all[h].stepped, !b->frozen) ||
        !times(c, s, h, "publishing the parameters", all[h].published, b->republishes))
      return false;
  }
  if (steps != 1 || counts != counted)
    return zb_fail(c->err, NULL, "stage %u has %u REDUCE_STEP instead of 1 and %u REDUCE_COUNT instead of %u",
                   s, steps, counts, counted);
  return true;
}

/* ---- all of them --------------------------------------------------------------------------------------- */
static bool check_all(Check *c) {
  uint32_t P = c->p->programs.nstages;
  const ZpMesh *m = &c->p->layout.mesh;
  if (!P || c->p->asked.nmicro < 1)
    return zb_fail(c->err, NULL, "the plan has no stages or no micro-batches");
  if ((int64_t)P != (m->pipe < 0 ? 1 : m->dim[m->pipe].size))
    return zb_fail(c->err, NULL, "the plan has %u stages, but not its mesh", P);
  c->base = ZB_NEWN(c->a, uint32_t, P + 1);
  for (uint32_t s = 0; s < P; s++) {
    if (c->p->programs.stages[s].prog.ninstrs > UINT32_MAX / 2 - c->base[s])
      return zb_fail(c->err, NULL, "the programs are too long");
    c->base[s + 1] = c->base[s] + c->p->programs.stages[s].prog.ninstrs;
  }
  c->pos = ZB_NEWN(c->a, uint32_t, c->base[P]);
  c->last_user = ZB_NEWN(c->a, uint32_t *, P);
  if (!zp_check_buckets(c) || !parts_owned(c) || !vstages_placed(c) || !parts_ordered(c) || !tuples_fit(c) ||
      !buckets_owned(c))
    return false;
  for (uint32_t s = 0; s < P; s++)
    if (!form(c, s) || !completeness(c, s) || !reductions(c, s)) return false;
  if (!zp_check_pairs(c) || !zp_check_deadlock(c)) return false;
  for (uint32_t s = 0; s < P; s++)
    if (!zp_check_arena(c, s) || !zp_check_memory(c, s)) return false;
  return !c->p->asked.eval_of || zp_check_beside(c);
}

bool zp_check(const ZpPlan *p, ZbErr *err) {
  Check c = {.p = p, .err = err, .a = zb_arena_new()};
  bool ok = check_all(&c);
  zb_arena_free(c.a);
  return ok;
}

bool zp_prove(ZpPlan *p, ZlDiags *d) {
  ZbErr err = {0};
  double began = zb_now();
  bool ok = zp_check(p, &err) && zp_check_segments(p, &err);
  double between = zb_now();
  ok = ok && zp_check_meaning(p, &err);
  p->notes.proof_seconds = zb_now() - began;
  p->notes.meaning_seconds = zb_now() - between;
  if (ok) return true;
  const ZlRecipe *r = p->asked.recipe;
  ZlDiag *e =
      zl_report(d, ZL_Z0999, r->span, "the plan of recipe %s failed its proof (please report)", r->name);
  zl_note(e, "%s", err.text);
  return false;
}
