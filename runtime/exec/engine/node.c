/* One node of a local program: pointers into the call, then a kernel, a collective, or a scalar taken out. */
#include "runtime/exec/engine/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- pointers ---- */
static char *place(ZxEngine *e, const ZxFrame *f, const ZpValue *v) {
  char *p = NULL;
  switch (v->at.place) {
  case ZP_AT_TEMP: p = f->scratch; break;
  case ZP_AT_SAVED: p = f->saved; break;
  case ZP_AT_INPUT: p = f->inputs; break;
  case ZP_AT_PARAM: p = f->held[v->at.index].param; break;
  case ZP_AT_GRAD: p = f->held[v->at.index].grad; break;
  case ZP_AT_CARRY_IN: p = f->carry_in; break;
  case ZP_AT_CARRY_OUT: p = f->carry_out; break;
  case ZP_AT_DCARRY_OUT: p = f->dcarry_out; break;
  case ZP_AT_DCARRY_IN: p = f->dcarry_in; break;
  case ZP_AT_SEED: return (char *)&e->count->seed[v->at.index];
  default: break;
  }
  if (!p) ZB_BUG("a value at place %d has no memory", v->at.place);
  p += v->at.offset;
  uint64_t end = (uint64_t)(p - e->arena) + v->bytes;
  if (end > e->high) e->high = end;
  return p;
}

/* ---- nodes ---- */
static void take_scalar(ZxEngine *e, const ZpNode *n) {
  const float *x = n->call.in[0].data;
  switch (n->call.op) {
  case ZG_OP_LOSS_NUM: e->dev->add_scalar(e->env, x, &e->sums->loss); break;
  case ZG_OP_AUX: e->dev->add_scalar(e->env, x, &e->sums->aux); break;
  case ZG_OP_LOSS_DEN: e->dev->add_scalar(e->env, x, &e->count->denominator); break;
  default: ZB_BUG("sink `%s`", zg_op_info[n->call.op].text);
  }
}

/* Global starts of split axes, once: they depend on the rank only. `random` counts samples through the whole
 * step, and no padding. */
static void bind_list(ZxEngine *e, const ZpSegment *s, ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *n = &l->nodes[i];
    ZkCall *c = &n->call;
    for (int k = 0; k < c->nin + c->nout; k++) {
      bool in = k < c->nin;
      ZkView *w = in ? &c->in[k] : &c->out[k - c->nin];
      const ZpValue *v = &s->values[in ? n->in[k] : n->out[k - c->nin]];
      for (int a = 0; a < w->rank; a++) {
        w->start[a] = zp_view_start(&e->p->mesh, v, e->rank, w->axis[a], w->size[a]);
        if (c->op == ZG_OP_RANDOM) w->whole[a] = w->axis[a] == e->p->batch ? e->p->global_batch : e->p->axis_valid[w->axis[a]];
      }
    }
  }
}

void zx_bind_calls(ZxEngine *e) {
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++) {
    ZpSegment *s = &e->p->segments[i];
    for (int k = 0; k < ZP_PHASES; k++) bind_list(e, s, &s->list[k]);
  }
}

/* A call as a step will make it, as far as a device may look: of pointers, how they are aligned. There is no arena yet;
 * where the parts of an instruction will begin is a multiple of 64. */
static void prepared(const ZpSegment *s, const ZpNode *n, ZkCall *c) {
  char *anywhere = (char *)(uintptr_t)256;
  *c = n->call;
  for (int i = 0; i < c->nin; i++) c->in[i].data = anywhere + s->values[n->in[i]].at.offset;
  for (int i = 0; i < c->nout; i++) c->out[i].data = anywhere + s->values[n->out[i]].at.offset;
  c->scratch = anywhere;
  if (!n->dims) return;
  c->op = ZG_OP_COPY; /* a collective packs and unpacks */
  c->nin = c->nout = 1;
  c->out[0] = c->in[0];
}

bool zx_prepare_nodes(ZxEngine *e, const ZpSegment *s, ZpNode *nodes, uint32_t n, ZbErr *err) {
  for (uint32_t i = 0; i < n; i++) {
    ZkCall c;
    if (zg_op_info[nodes[i].call.op].kind == ZG_SINK) continue;
    prepared(s, &nodes[i], &c);
    bool ok = e->dev->prepare(e->env, &c, err);
    if (ok && nodes[i].sets) {
      c.accumulate = !c.accumulate;
      ok = e->dev->prepare(e->env, &c, err);
    }
    if (ok) continue;
    size_t len = err ? strlen(err->text) : 0;
    if (err) snprintf(err->text + len, sizeof err->text - len, " (%s)", zp_loc_text(e->p, nodes[i].loc));
    return false;
  }
  return true;
}

/* Every iteration of a repeat draws its own numbers; backward draws those of its forward again. */
static void run_random(ZxEngine *e, const ZpNode *n, const ZxFrame *f) {
  ZkCall c = n->call;
  c.opt[0] = (int64_t)zb_random_u64((uint64_t)c.opt[0], f->iter, 0);
  for (int a = 0; a < c.out[0].rank; a++)
    if (c.out[0].axis[a] == e->p->batch) c.out[0].start[a] += (int64_t)f->mb * e->p->axis_size[e->p->batch];
  e->dev->run(e->env, &c);
}

void zx_run_nodes(ZxEngine *e, const ZpSegment *s, ZpNode *nodes, uint32_t n, const ZxFrame *f) {
  double t = zb_now();
  for (uint32_t i = 0; i < n; i++) {
    ZpNode *k = &nodes[i];
    for (int j = 0; j < k->call.nin; j++) k->call.in[j].data = place(e, f, &s->values[k->in[j]]);
    for (int j = 0; j < k->call.nout; j++) k->call.out[j].data = place(e, f, &s->values[k->out[j]]);
    if (k->sets) k->call.accumulate = !f->held[s->values[k->out[0]].at.index].first_write;
    char *scratch = f->scratch + k->scratch_at;
    if (k->scratch_bytes) {
      uint64_t end = (uint64_t)(scratch - e->arena) + k->scratch_bytes;
      if (end > e->high) e->high = end;
      k->call.scratch = scratch;
    }
    e->node = k->dims ? k : NULL;
    if (k->dims) zx_collective(e, s, k, scratch);
    else if (zg_op_info[k->call.op].kind == ZG_SINK) take_scalar(e, k);
    else if (k->call.op == ZG_OP_RANDOM) run_random(e, k, f);
    else e->dev->run(e->env, &k->call);
    zx_finish_call(e);
    zx_poll(e);
    double now = zb_now();
    e->times[k->call.op] += now - t;
    zx_profile_node(e, s, k, now - t);
    t = now;
  }
}
