/* Where values live: appending nodes, and bringing a value into a later segment. A model's segments alternate
 * straight and repeat. A value of an earlier segment is either made again where it is used (parameters, inputs,
 * constants) or carried through every boundary in between:
 *
 *   0 straight   x = ...; m = ...       carry_out 0 x, carry_out 1 m
 *   1 repeat     x' = carry 0           the body rebinds x: carry_out 0 is its last value
 *                m' = carry 1           merely used: carry_out 1 is m' itself
 *   2 straight   carry 0, carry 1       what x and m are after it
 */
#include "compiler/elab.h"

#include <string.h>

static ZgSegment *segment(Elab *e, uint32_t i) { return &e->g->segments[i]; }
static ZgNode *maker(Elab *e, uint32_t seg, uint32_t id) {
  ZgSegment *s = segment(e, seg);
  return &s->nodes[s->values[id].node];
}

/* ---- places in the text ---- */
/* A graph names files without their folders: the same source gives the same graph wherever it lies. */
static const char *file_name(Elab *e, int32_t file) {
  const char *path = zl_source_name(e->src, file), *slash = strrchr(path, '/');
  return zb_strdup(e->arena, zb_show(slash ? slash + 1 : path));
}

static bool in_library(const Elab *e, ZlSpan s) {
  return s.file >= 0 && zl_source_name(e->src, s.file)[0] == '<';
}

/* What a library block does is said of the place that calls it. */
static uint32_t loc_of(Elab *e, ZlSpan span) {
  for (const Frame *f = e->frame; f && f->block && in_library(e, span); f = f->caller) span = f->call;
  if (span.file < 0) return 0;
  uint32_t line, col;
  zl_source_place(e->src, span, &line, &col);
  uint32_t loc = zg_loc_add(e->g, file_name(e, span.file), line, col);
  while (e->nloc_span <= loc) ZB_PUSH(e->arena, e->loc_span, e->nloc_span, ZL_NOWHERE);
  if (e->loc_span[loc].file < 0) e->loc_span[loc] = span;
  return loc;
}

ZlSpan place_span(const Elab *e, uint32_t loc) { return loc < e->nloc_span ? e->loc_span[loc] : ZL_NOWHERE; }

/* ---- carrying ---- */
static uint32_t add(Elab *e, uint32_t seg, ZgNode n, const ZgType *hint) {
  return zg_node_add(e->g, segment(e, seg), n, hint);
}

static void add_carry_out(Elab *e, uint32_t seg, uint32_t slot, uint32_t id) {
  const ZgNode *from = maker(e, seg, id);
  ZgNode n = {.op = ZG_OP_CARRY_OUT,
              .nin = 1,
              .in = {id},
              .opt = {slot},
              .region = segment(e, seg)->region,
              .loc = from->loc};
  add(e, seg, n, NULL);
}

static uint32_t add_carry(Elab *e, uint32_t seg, uint32_t slot, uint32_t loc) {
  ZgNode n = {.op = ZG_OP_CARRY, .opt = {slot}, .region = segment(e, seg)->region, .loc = loc};
  return add(e, seg, n, NULL);
}

static void push_in(Elab *e, uint32_t seg, ZgType t) {
  ZgSegment *s = segment(e, seg);
  ZB_PUSH(e->g->arena, s->carry_in, s->ncarry_in, t);
}
static void push_out(Elab *e, uint32_t seg, ZgType t) {
  ZgSegment *s = segment(e, seg);
  ZB_PUSH(e->g->arena, s->carry_out, s->ncarry_out, t);
}

/* A new position on the way from straight segment `to` - 1 into `to`, fed by value `id` of the former. A repeat
 * carries out what it carries in, so there the position exists behind it too. */
static uint32_t new_slot(Elab *e, uint32_t to, uint32_t id) {
  ZgType t = segment(e, to - 1)->values[id].type;
  uint32_t slot = segment(e, to)->ncarry_in;
  push_out(e, to - 1, t);
  push_in(e, to, t);
  if (segment(e, to)->repeat) {
    push_out(e, to, t);
    if (to + 1 < e->g->nsegments) push_in(e, to + 1, t);
  }
  add_carry_out(e, to - 1, slot, id);
  return slot;
}

static const Import *find_import(const Elab *e, uint32_t seg, uint32_t id, uint32_t to) {
  for (uint32_t i = e->nimports; i-- > 0;) {
    const Import *m = &e->imports[i];
    if (m->to == to && m->id == id && m->seg == seg) return m;
  }
  return NULL;
}

static void remember(Elab *e, uint32_t seg, uint32_t id, uint32_t to, uint32_t local) {
  Import m = {seg, id, to, local};
  ZB_PUSH(e->arena, e->imports, e->nimports, m);
}

static bool is_remade(ZgOp op) {
  return op == ZG_OP_PARAM || op == ZG_OP_INPUT || op == ZG_OP_FILL || op == ZG_OP_AXSIZE ||
         op == ZG_OP_POSITION;
}

/* The number in segment `to` of value `id` of segment `seg`. */
static uint32_t bring(Elab *e, uint32_t seg, uint32_t id, uint32_t to) {
  if (seg == to) return id;
  const Import *m = find_import(e, seg, id, to);
  if (m) return m->local;
  ZB_ASSERT(seg < to);
  uint32_t local;
  ZgNode n = *maker(e, seg, id);
  if (is_remade((ZgOp)n.op)) {
    ZgType t = segment(e, seg)->values[id].type;
    if (segment(e, to)->repeat) n.region = segment(e, to)->region;
    local = add(e, to, n, &t);
  } else {
    uint32_t before = bring(e, seg, id, to - 1);
    uint32_t slot;
    if (segment(e, to - 1)->repeat) { /* it came in by a carry and leaves unchanged */
      ZB_ASSERT(maker(e, to - 1, before)->op == ZG_OP_CARRY);
      slot = (uint32_t)maker(e, to - 1, before)->opt[0];
    } else {
      slot = new_slot(e, to, before);
    }
    local = add_carry(e, to, slot, n.loc);
    if (segment(e, to)->repeat) add_carry_out(e, to, slot, local);
  }
  remember(e, seg, id, to, local);
  return local;
}

/* ---- nodes ---- */
static Val poison(void) { return (Val){.kind = VAL_POISON}; }

Val place_node(Elab *e, ZlSpan span, ZgNode n, const Val *in, const ZgType *hint) {
  ZgType types[ZG_MAX_IN], out[ZG_MAX_OUT];
  for (int i = 0; i < n.nin; i++)
    if (in[i].kind == VAL_POISON) return poison();
  for (int i = 0; i < n.nin; i++) {
    ZB_ASSERT(in[i].kind == VAL_TENSOR);
    n.in[i] = bring(e, in[i].seg, in[i].id, e->seg);
    types[i] = in[i].type;
  }
  n.region = e->frame->region;
  n.loc = loc_of(e, span);
  ZbErr err;
  if (!zg_infer(e->g, &n, types, hint, out, &err)) {
    ZlDiag *d = complain(e, ZL_Z0202, span, "%s", err.text);
    if (err.help[0]) zl_help(d, "%s", err.help);
    return poison();
  }
  if (segment(e, e->seg)->nnodes >= ELAB_MAX_NODES) {
    complain(e, ZL_Z0111, span, "the model has more than %d operations", ELAB_MAX_NODES);
    return poison();
  }
  uint32_t id = add(e, e->seg, n, hint);
  if (zg_op_info[n.op].nout == 0) return poison(); /* a sink: there is nothing to use */
  return (Val){.kind = VAL_TENSOR, .type = out[0], .seg = e->seg, .id = id};
}

Val val_result(Elab *e, Val first, int i) {
  if (first.kind != VAL_TENSOR) return first;
  first.id += (uint32_t)i;
  first.type = segment(e, first.seg)->values[first.id].type;
  return first;
}

Val val_tensor(Elab *e, ZlSpan span, Val v, ZgElem elem) {
  ZgType t = {.elem = (uint8_t)elem};
  if (v.kind == VAL_NUM) return place_node(e, span, (ZgNode){.op = ZG_OP_FILL, .num = {v.num.v}}, NULL, &t);
  if (v.kind == VAL_SIZE)
    return place_node(e, span, (ZgNode){.op = ZG_OP_AXSIZE, .nax = 1, .ax = {v.axis}}, NULL, &t);
  return v;
}

Val val_cast(Elab *e, ZlSpan span, Val v, ZgElem elem) {
  v = val_tensor(e, span, v, elem);
  if (v.kind != VAL_TENSOR || v.type.elem == elem) return v;
  ZgType t = v.type;
  t.elem = (uint8_t)elem;
  t.of = 0;
  return place_node(e, span, (ZgNode){.op = ZG_OP_CAST, .nin = 1}, &v, &t);
}

Val val_stand_in(Elab *e, ZgType t) {
  ZgNode n = {.op = ZG_OP_CARRY, .region = e->frame->region};
  return (Val){.kind = VAL_TENSOR, .type = t, .seg = e->seg, .id = add(e, e->seg, n, &t)};
}

/* ---- repeats ---- */
static void begin_segment(Elab *e, const char *label, uint32_t region, bool repeat, uint32_t trip) {
  zg_segment_add(e->g, label, region, repeat, trip);
  e->seg = e->g->nsegments - 1;
}

void place_begin_repeat(Elab *e, const char *label, uint32_t region, uint32_t trip) {
  begin_segment(e, label, region, true, trip);
  e->in_repeat = true;
}

void place_end_repeat(Elab *e) {
  begin_segment(e, "", 0, false, 1);
  e->in_repeat = false;
  const ZgSegment *r = segment(e, e->seg - 1);
  for (uint32_t i = 0; i < r->ncarry_out; i++) push_in(e, e->seg, r->carry_out[i]);
}

Val place_carry_in(Elab *e, ZlSpan span, Val v, uint32_t *slot) {
  ZB_ASSERT(v.kind == VAL_TENSOR && segment(e, e->seg)->repeat);
  *slot = new_slot(e, e->seg, bring(e, v.seg, v.id, e->seg - 1));
  return place_carried(e, span, *slot);
}

void place_carry_back(Elab *e, Val v, uint32_t slot) {
  add_carry_out(e, e->seg, slot, bring(e, v.seg, v.id, e->seg));
}

Val place_carried(Elab *e, ZlSpan span, uint32_t slot) {
  ZgType t = segment(e, e->seg)->carry_in[slot];
  return (Val){
      .kind = VAL_TENSOR, .type = t, .seg = e->seg, .id = add_carry(e, e->seg, slot, loc_of(e, span))};
}

/* ---- remaking: the loss denominator ---- */
static bool remake(Elab *e, uint32_t seg, uint32_t id, uint32_t *out, ZlSpan *culprit) {
  ZgNode n = *maker(e, seg, id);
  if (n.op == ZG_OP_CARRY) { /* carried here unchanged: look at what was carried */
    for (uint32_t i = 0; i < e->nimports; i++) {
      Import m = e->imports[i];
      if (m.to == seg && m.local == id) return remake(e, m.seg, m.id, out, culprit);
    }
  }
  if (n.op == ZG_OP_CARRY || n.op == ZG_OP_PARAM || n.op == ZG_OP_RANDOM) {
    *culprit = place_span(e, n.loc);
    return false;
  }
  const Import *m = find_import(e, seg, id, e->seg);
  if (m && maker(e, e->seg, m->local)->op != ZG_OP_CARRY) { /* seen before */
    *out = m->local;
    return true;
  }
  for (int i = 0; i < n.nin; i++)
    if (!remake(e, seg, n.in[i], &n.in[i], culprit)) return false;
  *out = id;
  if (seg != e->seg) {
    ZgType t = segment(e, seg)->values[id].type;
    uint32_t first = maker(e, seg, id)->out;
    *out = add(e, e->seg, n, &t) + (id - first);
  }
  remember(e, seg, id, e->seg, *out);
  return true;
}

bool place_remake(Elab *e, Val v, Val *out, ZlSpan *culprit) {
  *out = v;
  if (v.kind != VAL_TENSOR) return true;
  out->seg = e->seg;
  return remake(e, v.seg, v.id, &out->id, culprit);
}

/* ---- order ---- */
/* Before: 0. carries by position, 1. the rest as it stands, 2. carry_outs by position. */
static int group(const ZgNode *n) { return n->op == ZG_OP_CARRY ? 0 : n->op == ZG_OP_CARRY_OUT ? 2 : 1; }

static void settle_segment(Elab *e, ZgSegment *s) {
  uint32_t n = s->nnodes, at = 0;
  ZgNode *nodes = ZB_NEWN(e->g->arena, ZgNode, n + 1);
  for (int want = 0; want < 3; want++) {
    uint32_t start = at;
    for (uint32_t i = 0; i < n; i++) {
      if (group(&s->nodes[i]) != want) continue;
      uint32_t k = at++; /* insertion, by position among carries */
      for (; want != 1 && k > start && nodes[k - 1].opt[0] > s->nodes[i].opt[0]; k--) nodes[k] = nodes[k - 1];
      nodes[k] = s->nodes[i];
    }
  }
  uint32_t *renamed = ZB_NEWN(e->arena, uint32_t, s->nvalues + 1);
  ZgValue *values = ZB_NEWN(e->g->arena, ZgValue, s->nvalues + 1);
  uint32_t next = 0;
  for (uint32_t i = 0; i < n; i++) {
    ZgNode *m = &nodes[i];
    uint32_t first = m->out;
    m->out = next;
    for (uint32_t k = 0; k < m->nout; k++, next++) {
      values[next] = (ZgValue){s->values[first + k].type, i};
      renamed[first + k] = next;
    }
    for (int k = 0; k < m->nin; k++) m->in[k] = renamed[m->in[k]];
  }
  s->nodes = nodes;
  s->values = values;
}

void place_settle(Elab *e) {
  for (uint32_t i = 0; i < e->g->nsegments; i++) settle_segment(e, segment(e, i));
}
