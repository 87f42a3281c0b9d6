/* One node of a local program: pointers into the call, then a kernel, a collective, or a scalar taken out. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <stdio.h>
#include <string.h>

/* ---- pointers ---- */
static char *place(ZxEngine *e, const ZxFrame *f, const ZpValue *v) {
  char *p = NULL;
  switch (v->at.space) {
  case ZP_AT_TEMP: p = f->scratch; break;
  case ZP_AT_SAVED: p = f->saved; break;
  case ZP_AT_INPUT: p = f->inputs; break;
  case ZP_AT_CACHE: p = f->caches; break;
  case ZP_AT_PARAM: p = f->held[v->at.index].param; break;
  case ZP_AT_GRAD: p = f->held[v->at.index].grad; break;
  case ZP_AT_CARRY_IN: p = f->carry_in; break;
  case ZP_AT_CARRY_OUT: p = f->carry_out; break;
  case ZP_AT_DCARRY_OUT: p = f->dcarry_out; break;
  case ZP_AT_DCARRY_IN: p = f->dcarry_in; break;
  case ZP_AT_SEED: return (char *)&e->count.seed[v->at.index];
  default: break;
  }
  if (!p) ZB_BUG("a value at place %d has no memory", v->at.space);
  p += v->at.offset;
  uint64_t end = (uint64_t)(p - e->arena) + v->bytes;
  if (end > e->high) e->high = end;
  return p;
}

/* ---- nodes ---- */
static void take_scalar(ZxEngine *e, const ZpNode *n, const ZkCall *c) {
  const float *x = c->in[0].data;
  switch (c->op) {
  case ZG_OP_LOSS_NUM: e->dev->add_scalar(e->env, x, &e->sums.loss[n->sink]); break;
  case ZG_OP_AUX: e->dev->add_scalar(e->env, x, e->sums.aux); break;
  case ZG_OP_LOSS_DEN: e->dev->add_scalar(e->env, x, &e->count.denominator[n->sink]); break;
  default: ZB_BUG("sink `%s`", zg_op_info[c->op].text);
  }
}

/* To the host, if it is not there, for whoever takes it; of generation when the step is queued (zx_bring_logits). */
static void take_output(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c, const ZxFrame *f) {
  const ZpValue *v = &s->values[n->in[0]];
  ZxOutput x = {n->sink, v, f->mb, f->iter, c->in[0].data};
  if (!e->take_output || e->failed) return;
  if (!e->dev->host && !e->sizes) {
    e->dev->download(e->env, e->output_room, c->in[0].data, v->bytes);
    if (!zx_finish(e, e->err)) e->failed = true;
    x.data = e->output_room;
  }
  if (!e->failed && !e->take_output(e, &x)) e->failed = true;
}

/* Global starts of split axes, once: they depend on the rank only. `random` counts samples through the whole
 * step, and no padding. */
static void set_starts(const ZxEngine *e, const ZpSegment *s, const ZpNode *n, ZkCall *c) {
  for (int k = 0; k < c->nin + c->nout; k++) {
    bool in = k < c->nin;
    ZkView *w = in ? &c->in[k] : &c->out[k - c->nin];
    const ZpValue *v = &s->values[in ? n->in[k] : n->out[k - c->nin]];
    for (int a = 0; a < w->rank; a++) {
      uint16_t axis = w->axis[a];
      w->start[a] = zp_view_start(&e->p->layout.mesh, v, e->rank, axis, w->size[a]);
      if (c->op == ZG_OP_RANDOM)
        w->whole[a] = axis == e->p->asked.batch ? e->p->asked.global_batch : e->p->layout.axis_valid[axis];
    }
  }
}

static bool runs(const ZxEngine *e, uint32_t segment) {
  for (uint32_t i = 0; i < e->st->ninsts; i++)
    if (e->st->insts[i].segment == segment) return true;
  return false;
}

void zx_make_calls(ZxEngine *e) {
  e->calls = ZB_NEWN(e->a, ZxCalls, e->p->graph->nsegments);
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++)
    for (int k = 0; runs(e, i) && k < ZP_PHASES; k++) {
      const ZpSegment *s = &e->p->programs.segments[i];
      const ZpList *l = &s->list[k];
      ZkCall *call = e->calls[i].of[k] = ZB_NEWN(e->a, ZkCall, l->n);
      ZxCut *cut = e->calls[i].cut[k] = ZB_NEWN(e->a, ZxCut, l->n);
      for (uint32_t j = 0; j < l->n; j++) {
        call[j] = l->nodes[j].call;
        cut[j] = zx_cut(e, s, &l->nodes[j]);
        set_starts(e, s, &l->nodes[j], &call[j]);
      }
    }
}

void zx_give_addresses(const ZpSegment *s, const ZpNode *n, ZkCall *c) {
  char *anywhere = (char *)(uintptr_t)256;
  for (int i = 0; i < c->nin; i++) c->in[i].data = anywhere + s->values[n->in[i]].at.offset;
  for (int i = 0; i < c->nout; i++) c->out[i].data = anywhere + s->values[n->out[i]].at.offset;
  c->scratch = anywhere;
  if (!n->dims || zp_is_ring(n)) return;
  c->op = ZG_OP_COPY; /* a collective packs and unpacks */
  c->nin = c->nout = 1;
  c->out[0] = c->in[0];
}

/* A call for each piece. Gradients of attend that are of all keys are sums over them. */
static bool adds_pieces(const ZkCall *c) {
  return c->op == ZG_OP_ATTEND_GRAD || c->op == ZG_OP_ATTEND_BIAS_GRAD;
}
static ZkCall piece(const ZkCall *c, const ZxCut *cut, int i) {
  ZkCall one = zx_cut_call(c, cut, i);
  one.accumulate |= adds_pieces(c);
  return one;
}

static bool prepare_call(ZxEngine *e, const ZpNode *n, const ZkCall *c, const ZxCut *cut, ZbErr *err) {
  bool ok = true;
  if (zp_is_ring(n)) return zx_prepare_ring(e, c, err);
  if (cut->axis == ZP_NO_AXIS) return e->dev->prepare(e->env, c, err);
  for (int i = 0; ok && i < ZP_PIECES; i++) {
    ZkCall one = piece(c, cut, i);
    ok = e->dev->prepare(e->env, &one, err);
  }
  return ok;
}

static bool prepare_list(ZxEngine *e, const ZpSegment *s, const ZpList *l, const ZkCall *calls,
                         const ZxCut *cut, ZbErr *err) {
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    ZkCall c = calls[i];
    if (zg_op_info[c.op].kind == ZG_SINK) continue;
    zx_give_addresses(s, n, &c);
    bool ok = prepare_call(e, n, &c, &cut[i], err);
    if (ok && n->overwrites) {
      c.accumulate = !c.accumulate;
      ok = e->dev->prepare(e->env, &c, err);
    }
    if (ok) continue;
    zb_fail_more(err, " (%s)", zp_loc_text(e->p, n->loc));
    return false;
  }
  return true;
}

bool zx_prepare_calls(ZxEngine *e, ZbErr *err) {
  bool ok = true;
  for (uint32_t i = 0; e->dev->prepare && i < e->p->graph->nsegments; i++)
    for (int k = 0; ok && runs(e, i) && k < ZP_PHASES; k++)
      ok = prepare_list(e, &e->p->programs.segments[i], &e->p->programs.segments[i].list[k],
                        e->calls[i].of[k], e->calls[i].cut[k], err);
  return ok;
}

/* Every iteration of a repeat draws its own numbers; backward draws those of its forward again. */
static void run_random(ZxEngine *e, const ZkCall *call, const ZxFrame *f) {
  ZkCall c = *call;
  c.opt[0] = (int64_t)zb_random_u64((uint64_t)c.opt[0], f->iter, 0);
  for (int a = 0; a < c.out[0].rank; a++)
    if (c.out[0].axis[a] == e->p->asked.batch)
      c.out[0].start[a] += (int64_t)f->mb * e->p->layout.axis_size[e->p->asked.batch];
  e->dev->run(e->env, &c);
}

/* The call of a node in this frame: its pointers, and whether a gradient begins with it. */
static void set_pointers(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZxFrame *f, ZkCall *c) {
  for (int j = 0; j < c->nin; j++) c->in[j].data = place(e, f, &s->values[n->in[j]]);
  for (int j = 0; j < c->nout; j++) c->out[j].data = place(e, f, &s->values[n->out[j]]);
  if (n->overwrites) /* gradients are the last results, and begin together */
    c->accumulate = !f->held[s->values[n->out[n->call.nout - 1]].at.index].first_write;
  c->scratch = f->scratch + n->scratch_at;
  uint64_t end = (uint64_t)(f->scratch - e->arena) + n->scratch_at + n->scratch_bytes;
  if (n->scratch_bytes && end > e->high) e->high = end;
}

static void compute(ZxEngine *e, const ZkCall *c, const ZxFrame *f) {
  if (c->op == ZG_OP_RANDOM) run_random(e, c, f);
  else e->dev->run(e->env, c);
}

static void compute_pieces(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c,
                           const ZxCut *cut, const ZxFrame *f) {
  for (int i = 0; adds_pieces(c) && i < c->nout; i++)
    e->dev->zero(e->env, c->out[i].data, s->values[n->out[i]].bytes);
  for (int i = 0; i < ZP_PIECES; i++) {
    ZkCall one = piece(c, cut, i);
    compute(e, &one, f);
  }
}

static void run_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c) {
  ZxBeside x;
  zx_begin_collective(e, s, n, c, &x);
  zx_end_collective(e, &x);
}

static void run_node(ZxEngine *e, const ZpSegment *s, const ZpNode *n, ZkCall *c, const ZxCut *cut,
                     const ZxFrame *f) {
  if (n->dims && c->op == ZG_OP_ROUND) zx_begin_round(e, c);
  else if (n->dims && (c->op == ZG_OP_DISPATCH || c->op == ZG_OP_COMBINE)) zx_exchange_rows(e, n, c);
  else if (zp_begins(n)) run_collective(e, s, n, c);
  else if (n->dims) zx_collective(e, s, n, c);
  else if (c->op == ZG_OP_OUTPUT) take_output(e, s, n, c, f);
  else if (zg_op_info[c->op].kind == ZG_SINK) take_scalar(e, n, c);
  else if (cut->axis != ZP_NO_AXIS) compute_pieces(e, s, n, c, cut, f);
  else compute(e, c, f);
  zx_finish_call(e);
}

/* ---- beside calls ---- */
/* Waits for those of the list that are to be complete before node i. */
static void join(ZxEngine *e, uint32_t i) {
  uint32_t left = 0;
  for (uint32_t k = 0; k < e->nbeside; k++) {
    ZxBeside x = e->beside_calls[k];
    if (x.node->until > i) {
      e->beside_calls[left++] = x;
      continue;
    }
    e->node = x.node;
    zx_end_collective(e, &x);
  }
  e->nbeside = left;
}

/* Keeps going what the host moves. */
static void poll(ZxEngine *e) {
  for (uint32_t k = 0; k < e->nbeside; k++) {
    ZxRequest *r = &e->beside_calls[k].request;
    if (*r >= 0 && e->c->t->test(e->c, *r)) *r = -1;
  }
  zx_poll(e);
}

/* Whether compute goes on while node i is under way. It waits where somebody looks at every call. A traced
 * step has none of these: only devices whose memory is the host's trace, and their plans have none. */
static bool goes_on(const ZxEngine *e, const ZpNode *n, uint32_t i) {
  return zp_is_async(n) && n->until > i + 1 && !e->o.times && !e->look;
}

static void begin_beside(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c) {
  ZB_ASSERT(e->nbeside < ZP_MOST_ASYNC);
  ZxBeside x;
  zx_begin_collective(e, s, n, c, &x);
  e->beside_calls[e->nbeside++] = x;
}

/* ---- rounds ---- */
/* What is added up begins with the first round. */
static void set_round(const ZpNode *n, ZkCall *c, int64_t round, int64_t rows) {
  if (c->op == ZG_OP_ROUND) c->opt[0] = round;
  if (c->op == ZG_OP_DISPATCH || c->op == ZG_OP_COMBINE) c->opt[1] = round * rows;
  if (c->op != ZG_OP_COMBINE && c->op != ZG_OP_GROUPED_OUTER) return;
  if (!n->overwrites) c->accumulate = n->call.accumulate;
  c->accumulate |= round > 0;
}

/* Bytes that a collective has moved by now; again: in a later round. Counts are gathered for all rounds by
 * the first. */
static uint64_t moved(const ZxEngine *e, const ZpSegment *s, const ZpNode *n, bool again) {
  if (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE) return zx_rows_moved(e);
  return again && n->call.op == ZG_OP_ROUND ? 0 : zp_node_bytes(s, n);
}

void zx_run_list(ZxEngine *e, uint32_t segment, ZpPhase phase, const ZxFrame *f) {
  const ZpSegment *s = &e->p->programs.segments[segment];
  const ZpList *l = &s->list[phase];
  double t = zb_now();
  uint32_t first = 0; /* of the region */
  int64_t round = 0, rounds = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    ZkCall *c = &e->calls[segment].of[phase][i];
    join(e, i);
    e->node = n;
    set_pointers(e, s, n, f, c);
    if (c->op == ZG_OP_ROUND && !rounds) first = i, round = 0, rounds = zx_count_rounds(e, n, c);
    if (n->rounds) set_round(n, c, round, l->nodes[first].call.opt[1]);
    bool beside = goes_on(e, n, i);
    if (beside) begin_beside(e, s, n, c);
    else run_node(e, s, n, c, &e->calls[segment].cut[phase][i], f);
    if (e->look) zx_look_node(e, s, n, c, phase, f);
    poll(e);
    double now = zb_now();
    e->times[c->op] += now - t;
    bool again = n->rounds && round > 0;
    bool told = (e->tracing || e->o.times) && zp_sends(n);
    uint64_t sent = told ? moved(e, s, n, again) : 0;
    if (told && e->tracing) zx_trace_node(e, i, sent, t, now);
    zx_profile_node(e, segment, phase, i, c->accumulate, again, sent, now - t);
    t = now;
    bool last = n->rounds && (i + 1 == l->n || l->nodes[i + 1].rounds != n->rounds);
    if (last && ++round < rounds) i = first - 1;
    else if (last) rounds = 0;
  }
  join(e, l->n);
}
