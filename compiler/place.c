/* Where values live: appending nodes, and bringing a value into a later segment. A model's segments alternate
 * straight and repeat. A value of an earlier segment is either made again where it is used (parameters,
 * inputs, constants) or carried through every boundary in between:
 *
 *   0 straight   x = ...; m = ...       carry_out 0 x, carry_out 1 m
 *   1 repeat     x' = carry 0           the body rebinds x: carry_out 0 is its last value
 *                m' = carry 1           merely used: carry_out 1 is m' itself
 *   2 straight   carry 0, carry 1       what x and m are after it
 */
#include "compiler/elab.h"
#include "graph/ragged.h"

#include <stdlib.h>
#include <string.h>

static ZgSegment *segment(Elab *e, uint32_t i) { return &e->g->segments[i]; }
static ZgNode *maker(Elab *e, uint32_t seg, uint32_t id) {
  ZgSegment *s = segment(e, seg);
  return &s->nodes[s->values[id].node];
}

/* ---- places in the text -------------------------------------------------------------------------------- */
static bool in_library(const Elab *e, ZlSpan s) {
  return s.file >= 0 && zl_source_name(e->src, s.file)[0] == '<';
}

/* What a library block does is said of the place that calls it. */
static uint32_t loc_of(Elab *e, ZlSpan span) {
  for (const Frame *f = e->frame; f && f->block && in_library(e, span); f = f->caller) span = f->call;
  if (span.file < 0) return 0;
  uint32_t line, col;
  zl_source_place(e->src, span, &line, &col);
  uint32_t loc = zg_loc_add(e->g, e->file[span.file], line, col);
  while (e->nloc_span <= loc) ZB_PUSH(e->arena, e->loc_span, e->nloc_span, ZL_NOWHERE);
  if (e->loc_span[loc].file < 0) e->loc_span[loc] = span;
  return loc;
}

uint32_t place_at(Elab *e, ZlSpan span) { return loc_of(e, span); }
ZlSpan place_span(const Elab *e, uint32_t loc) { return loc < e->nloc_span ? e->loc_span[loc] : ZL_NOWHERE; }

/* ---- carrying ------------------------------------------------------------------------------------------ */
/* A node counts even where a report is due: what it is to be an operand of is not made any more. */
static uint32_t add_node(Elab *e, uint32_t seg, ZgNode n, const ZgType *hint) {
  elab_spend(e, ELAB_NODES, 1, place_span(e, n.loc));
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
  add_node(e, seg, n, NULL);
}

static uint32_t add_carry(Elab *e, uint32_t seg, uint32_t slot, uint32_t loc) {
  ZgNode n = {.op = ZG_OP_CARRY, .opt = {slot}, .region = segment(e, seg)->region, .loc = loc};
  return add_node(e, seg, n, NULL);
}

static void push_in(Elab *e, uint32_t seg, ZgType t) {
  ZgSegment *s = segment(e, seg);
  ZB_PUSH(e->g->arena, s->carry_in, s->ncarry_in, t);
}
static void push_out(Elab *e, uint32_t seg, ZgType t) {
  ZgSegment *s = segment(e, seg);
  ZB_PUSH(e->g->arena, s->carry_out, s->ncarry_out, t);
}

/* A new position on the way from straight segment `to` - 1 into `to`, fed by value `id` of the former. A
 * repeat carries out what it carries in, so there the position exists behind it too. */
static uint32_t new_slot(Elab *e, uint32_t to, uint32_t id) {
  ZgType t = segment(e, to - 1)->values[id].type;
  uint32_t slot = segment(e, to)->ncarry_in;
  if (slot == ELAB_MAX_CARRIED && !e->stopped) {
    ZlDiag *d = complain(e, ZL_Z0111, place_span(e, maker(e, to - 1, id)->loc),
                         "a `repeat` uses more than %d values from before it", ELAB_MAX_CARRIED);
    zl_note(d, "each is carried from one iteration to the next");
    zl_help(d, "make them inside of the `repeat`, or give one tensor an axis instead of many tensors");
    e->stopped = true;
  }
  push_out(e, to - 1, t);
  push_in(e, to, t);
  if (segment(e, to)->repeat) {
    push_out(e, to, t);
    if (to + 1 < e->g->nsegments) push_in(e, to + 1, t);
  }
  add_carry_out(e, to - 1, slot, id);
  return slot;
}

/* ---- imports ------------------------------------------------------------------------------------------- */
enum { BY_ORIGIN, BY_LOCAL };

static uint32_t *import_bucket(const Elab *e, int table, const Import *m) {
  uint64_t place = table == BY_ORIGIN ? (uint64_t)m->seg << 32 | m->id : m->local;
  return &e->import_head[table][zb_mix64(zb_mix64(place) + m->to) & (e->import_size - 1)];
}

static void chain_import(Elab *e, uint32_t i) {
  for (int table = BY_ORIGIN; table <= BY_LOCAL; table++) {
    uint32_t *head = import_bucket(e, table, &e->imports[i]);
    e->imports[i].next[table] = *head;
    *head = i;
  }
}

static void remember(Elab *e, uint32_t seg, uint32_t id, uint32_t to, uint32_t local) {
  Import m = {seg, id, to, local, {0}};
  ZB_PUSH(e->arena, e->imports, e->nimports, m);
  if (e->nimports <= e->import_size) {
    chain_import(e, e->nimports - 1);
    return;
  }
  e->import_size = e->import_size ? 2 * e->import_size : 64;
  for (int table = BY_ORIGIN; table <= BY_LOCAL; table++) {
    e->import_head[table] = ZB_NEWN(e->arena, uint32_t, e->import_size);
    memset(e->import_head[table], 0xff, e->import_size * sizeof(uint32_t));
  }
  for (uint32_t i = 0; i < e->nimports; i++) chain_import(e, i);
}

static const Import *find_import(const Elab *e, uint32_t seg, uint32_t id, uint32_t to) {
  if (!e->nimports) return NULL;
  uint32_t i = *import_bucket(e, BY_ORIGIN, &(Import){.seg = seg, .id = id, .to = to});
  for (; i != ZG_NONE; i = e->imports[i].next[BY_ORIGIN]) {
    const Import *m = &e->imports[i];
    if (m->to == to && m->id == id && m->seg == seg) return m;
  }
  return NULL;
}

static const Import *find_local(const Elab *e, uint32_t to, uint32_t local) {
  if (!e->nimports) return NULL;
  uint32_t i = *import_bucket(e, BY_LOCAL, &(Import){.to = to, .local = local});
  for (; i != ZG_NONE; i = e->imports[i].next[BY_LOCAL])
    if (e->imports[i].to == to && e->imports[i].local == local) return &e->imports[i];
  return NULL;
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
  bool number = n.op == ZG_OP_CAST && maker(e, seg, n.in[0])->op == ZG_OP_POSITION; /* place[s]() */
  if (number) n.in[0] = bring(e, seg, n.in[0], to);
  if (number || is_remade((ZgOp)n.op)) {
    ZgType t = segment(e, seg)->values[id].type;
    if (segment(e, to)->repeat) n.region = segment(e, to)->region;
    local = add_node(e, to, n, &t);
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

/* ---- nodes --------------------------------------------------------------------------------------------- */
static Val poison(void) { return (Val){.kind = VAL_POISON}; }

/* ---- sizes that are only assumed ----------------------------------------------------------------------- */
/* Of concat: the joined axis, or if that is known some operand's. */
static void fit_joined(Elab *e, const ZgNode *n) {
  ZgAxis *axes = e->g->axes;
  int64_t known = 0;
  for (int i = 1; i < n->nax; i++) {
    if (n->ax[i] >= e->assumed && n->ax[0] < e->assumed) axes[n->ax[i]].size = 1;
    known += axes[n->ax[i]].size;
  }
  if (n->ax[0] >= e->assumed) {
    axes[n->ax[0]].size = known;
    return;
  }
  int64_t more = axes[n->ax[0]].size - known;
  for (int i = 1; i < n->nax; i++) {
    int64_t times = 0; /* an axis may be that of several operands */
    for (int k = 1; k < n->nax; k++) times += n->ax[k] == n->ax[i];
    if (n->ax[i] < e->assumed || more < 0 || more % times) continue;
    axes[n->ax[i]].size += more / times;
    return;
  }
}

/* The whole gets the product of its parts; one that has a size is the first part that has none, others 1. */
static void fit_merged(Elab *e, const ZgNode *n) {
  ZgAxis *axes = e->g->axes;
  bool merge = n->op == ZG_OP_MERGE;
  uint16_t whole = merge ? n->ax[0] : n->ax[n->nax - 1];
  const uint16_t *part = merge ? n->ax + 1 : n->ax;
  int64_t product = 1;
  int open = -1;
  for (int i = 0; i < n->nax - 1; i++) {
    if (part[i] >= e->assumed) open = i, axes[part[i]].size = 1;
    product *= axes[part[i]].size;
  }
  if (whole >= e->assumed) axes[whole].size = product;
  else if (open >= 0 && product && axes[whole].size % product == 0)
    axes[part[open]].size = axes[whole].size / product;
}

/* A window that leaves the size as it is, unless it has one; then what it makes of x, or x of which it makes
 * y. */
static void fit_conv(Elab *e, const ZgNode *n) {
  ZgAxis *axes = e->g->axes;
  int64_t dilate = (int64_t)n->num[0], pad = n->opt[1];
  for (int d = 0; d < n->nax / 3; d++) {
    uint16_t x = zg_conv_axis(n->ax, d, ZG_CONV_X), w = zg_conv_axis(n->ax, d, ZG_CONV_W),
             y = zg_conv_axis(n->ax, d, ZG_CONV_Y);
    if (w >= e->assumed) axes[w].size = pad > 0 ? 2 * pad / dilate + 1 : 1;
    int64_t more = (axes[w].size - 1) * dilate, zeros = pad >= 0 ? 2 * pad : more;
    if (x >= e->assumed && x != y && y < e->assumed)
      axes[x].size = (axes[y].size - 1) * n->opt[0] + more + 1 - zeros;
    else if (x >= e->assumed) axes[x].size = more + 1;
    if (y >= e->assumed && x != y)
      axes[y].size = zg_conv_size(axes[x].size, axes[w].size, n->opt[0], dilate, pad);
  }
}

/* Gives the axes of a node whose sizes are only assumed such sizes that the node fits, if there are any: in a
 * block that nobody calls, a mistake is what is wrong whatever their sizes. `before`: what they were. */
static void assume_sizes(Elab *e, ZgNode *n, int64_t before[ZG_MAX_AXARG]) {
  ZgAxis *axes = e->g->axes;
  for (int i = 0; i < n->nax; i++) before[i] = axes[n->ax[i]].size;
  int64_t *a = n->nax > 1 && n->ax[0] >= e->assumed ? &axes[n->ax[0]].size : NULL;
  int64_t *b = n->nax > 1 && n->ax[1] >= e->assumed ? &axes[n->ax[1]].size : NULL;
  if (n->op == ZG_OP_CONCAT) {
    fit_joined(e, n);
  } else if (n->op == ZG_OP_RENAME) {
    if (a) *a = axes[n->ax[1]].size;
    else if (b) *b = axes[n->ax[0]].size;
  } else if (n->op == ZG_OP_MERGE || n->op == ZG_OP_PART) {
    fit_merged(e, n);
  } else if (zg_is_conv(n->op)) {
    fit_conv(e, n);
  } else if (n->op == ZG_OP_SLICE) {
    if (a) *a = INT32_MAX;
    if (b) n->opt[1] = *b = 1;
  } else if (n->op == ZG_OP_POSITION) {
    if (a) *a = 1;
    else if (b) *b = INT32_MAX;
  } else if (n->op == ZG_OP_TOPK) {
    if (b) *b = 1;
    if (a) *a = axes[n->ax[1]].size * (n->opt[0] ? n->opt[0] : 1);
  } else if (n->op == ZG_OP_DISPATCH || n->op == ZG_OP_COMBINE) {
    if (b) *b = 0;
  } else if (n->op == ZG_OP_ROPE && b) {
    *b = 2;
  } else if (n->op == ZG_OP_ROTATE && n->ax[0] >= e->assumed) {
    axes[n->ax[0]].size = n->opt[1];
  }
}

Val place_node(Elab *e, ZlSpan span, ZgNode n, const Val *in, const ZgType *hint) {
  ZgType types[ZG_MAX_IN], out[ZG_MAX_OUT];
  Val here[ZG_MAX_IN];
  for (int i = 0; i < n.nin; i++)
    if (in[i].kind == VAL_POISON) return poison();
  for (int i = 0; i < n.nin; i++) {
    ZB_ASSERT(in[i].kind == VAL_TENSOR);
    here[i] = in[i];
    here[i].id = bring(e, in[i].seg, in[i].id, e->seg), here[i].seg = e->seg;
  }
  weights_in_rows(e, span, &n, here);
  for (int i = 0; i < n.nin; i++) {
    if (here[i].kind == VAL_POISON) return poison();
    n.in[i] = here[i].id, types[i] = here[i].type;
  }
  n.region = e->frame->region;
  n.loc = loc_of(e, span);
  ZbErr err;
  int64_t sizes[ZG_MAX_AXARG];
  assume_sizes(e, &n, sizes);
  bool fits = zg_infer(e->g, &n, types, hint, out, &err), small = true;
  uint64_t elements;
  fits = fits && zg_count_slots(e->g, e->experts, &n, &err) &&
         zg_ragged_fits(e->g, segment(e, e->seg), e->experts, &n, out, false, &err);
  for (int i = 0; fits && i < zg_outs(n.op, n.opt); i++) small &= zg_elements(e->g, &out[i], &elements);
  uint32_t id = fits ? add_node(e, e->seg, n, hint) : 0;
  for (int i = n.nax; i-- > 0;) e->g->axes[n.ax[i]].size = sizes[i];
  if (!fits) {
    ZlDiag *d = complain(e, ZL_Z0202, span, "%s", err.text);
    bool own = false;
    for (int i = 0; i < n.nax; i++) own |= n.ax[i] >= e->assumed;
    if (own) zl_note(d, "nothing calls this block: a size of its axes is assumed, and none would do");
    if (err.help[0]) zl_help(d, "%s", err.help);
    return poison();
  }
  if (!small) {
    complain(e, ZL_Z0111, span, "the result has more than 2^48 elements");
    return poison();
  }
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
  if (v.kind == VAL_NUM && !static_fits(e, span, v.num)) return poison();
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
  return (Val){.kind = VAL_TENSOR, .type = t, .seg = e->seg, .id = add_node(e, e->seg, n, &t)};
}

/* ---- repeats ------------------------------------------------------------------------------------------- */
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

/* ---- remaking: the loss denominator -------------------------------------------------------------------- */
/* A value on the way; its operands are remade first. Values hang on each other in chains as long as the
 * model, so these wait in a list and not on the stack. */
typedef struct {
  uint32_t seg, id;
  ZgNode n; /* with `done` operands remade */
  int done;
} Remake;

typedef struct {
  Remake *at;
  uint32_t n, room;
} Remakes;

static void want_remade(Elab *e, Remakes *r, uint32_t seg, uint32_t id) {
  for (const Import *m; maker(e, seg, id)->op == ZG_OP_CARRY && (m = find_local(e, seg, id));) {
    seg = m->seg; /* carried here unchanged: look at what was carried */
    id = m->id;
  }
  r->at = zb_room(e->arena, r->at, r->n, sizeof *r->at, &r->room);
  r->at[r->n++] = (Remake){seg, id, *maker(e, seg, id), 0};
}

static bool made_before(Elab *e, const Remake *v, uint32_t *out) {
  const Import *m = find_import(e, v->seg, v->id, e->seg);
  if (!m || maker(e, e->seg, m->local)->op == ZG_OP_CARRY) return false;
  *out = m->local;
  return true;
}

/* Of the last segment stays what is made of inputs; what is made of carried values, which are remade, is made
 * anew too. */
static uint32_t finish_remake(Elab *e, const Remake *v) {
  uint32_t out = v->id;
  bool anew = v->seg != e->seg;
  for (int i = 0; i < v->n.nin; i++) anew |= v->n.in[i] != maker(e, v->seg, v->id)->in[i];
  if (anew) {
    ZgType t = segment(e, v->seg)->values[v->n.out].type;
    out = add_node(e, e->seg, v->n, &t) + (v->id - v->n.out);
  }
  remember(e, v->seg, v->id, e->seg, out);
  return out;
}

static bool remake(Elab *e, uint32_t seg, uint32_t id, uint32_t *out, ZlSpan *culprit) {
  Remakes r = {0};
  for (want_remade(e, &r, seg, id); r.n;) {
    Remake *v = &r.at[r.n - 1];
    if (v->n.op == ZG_OP_CARRY || v->n.op == ZG_OP_PARAM || v->n.op == ZG_OP_RANDOM) {
      *culprit = place_span(e, v->n.loc);
      return false;
    }
    if (!made_before(e, v, out)) {
      if (v->done < v->n.nin) {
        want_remade(e, &r, v->seg, v->n.in[v->done]);
        continue;
      }
      *out = finish_remake(e, v);
    }
    if (--r.n) r.at[r.n - 1].n.in[r.at[r.n - 1].done++] = *out;
  }
  return true;
}

bool place_remake(Elab *e, Val v, Val *out, ZlSpan *culprit) {
  *out = v;
  if (v.kind != VAL_TENSOR) return true;
  out->seg = e->seg;
  return remake(e, v.seg, v.id, &out->id, culprit);
}

/* ---- order --------------------------------------------------------------------------------------------- */
/* Before: 0. carries by position, 1. the rest as it stands, 2. carry_outs by position. */
static int group(const ZgNode *n) { return n->op == ZG_OP_CARRY ? 0 : n->op == ZG_OP_CARRY_OUT ? 2 : 1; }

static int by_position(const void *a, const void *b) {
  const ZgNode *x = a, *y = b; /* a position has one node of a kind */
  return (x->opt[0] > y->opt[0]) - (x->opt[0] < y->opt[0]);
}

static void settle_segment(Elab *e, ZgSegment *s) {
  uint32_t n = s->nnodes, at = 0;
  ZgNode *nodes = ZB_NEWN(e->g->arena, ZgNode, n + 1);
  for (int want = 0; want < 3; want++) {
    uint32_t start = at;
    for (uint32_t i = 0; i < n; i++)
      if (group(&s->nodes[i]) == want) nodes[at++] = s->nodes[i];
    if (want != 1) qsort(nodes + start, at - start, sizeof *nodes, by_position);
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
