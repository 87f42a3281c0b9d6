/* Orders a list so that its async collectives overlap with its calls, and says where each is awaited.
 *
 * Needs fused lists. A small model of a device, the same for all, plays the list: calls one after the other,
 * collectives one after the other during them. A call that would wait for a collective lets calls pass that
 * need not; a collective begins when what it sends is made, but not much earlier than it has to, since what
 * it reads and writes keeps its memory meanwhile. Bits stay: what adds to the same bytes does so in the order
 * that it had.
 *
 * Backward of a split product, before and after; `<` where its result is awaited:
 *   dx = dot(dy, w)  all_reduce(dx) < norm_grad(dx) ..  dw += dot(x, dy)
 *   dx = dot(dy, w)  all_reduce(dx)   dw += dot(x, dy) < norm_grad(dx) ..
 *
 * All ranks of a stage have one list, so they begin collectives in one order, which the engine keeps. */
#include "runtime/plan/local/lower.h"

#include <string.h>

/* The device, in bytes that its memory moves meanwhile. Of GPUs of the last generations
 * (examples/clusters.zug): 150 to 215 FLOPs of products and 1/7 to 1/11 byte over links of a node; calls
 * and collectives have a least time. What they are only decides about orders. */
enum { FLOPS = 200, LINK = 8, CALL = 5 << 20, COLLECTIVE = 50 << 20 };

/* ---- units --------------------------------------------------------------------------------------------- */
uint32_t zp_unit_end(const ZpLocal *c, const ZpNode *nodes, uint32_t i) {
  uint32_t group = zp_group_of(&c->groups, &nodes[i]);
  return i + (group ? group : 1);
}

/* Nodes that stay neighbours: a group of GEMMs, what is played in rounds. */
typedef struct {
  uint32_t from, to;
  bool async, sends; /* it overlaps with calls; or it sends, and they wait */
  bool done;
  uint32_t reader;      /* the first unit that needs it; number of units: none does */
  uint32_t kept;        /* is_last: it is kept until this unit has begun; 0: it is not */
  uint64_t takes, ends; /* ends: once it is done */
} Unit;

typedef struct {
  ZpLocal *c;
  const ZpList *l;
  ZbArena *tmp;
  Unit *unit;
  uint32_t n;
  bool *needs;            /* needs[a * n + b]: a comes behind b */
  uint64_t compute, link; /* when each is free */
  ZpNode *out;
  uint32_t nout;
} Order;

static const ZpValue *value(const Order *o, uint32_t v) { return &o->c->s->values[v]; }

static uint64_t bytes_of(const Order *o, const ZpNode *n) {
  uint64_t bytes = 0;
  for (int k = 0; k < n->call.nin; k++) bytes += value(o, n->in[k])->bytes;
  for (int k = 0; k < n->call.nout; k++) bytes += value(o, n->out[k])->bytes;
  return bytes;
}

static uint64_t time_of(const Order *o, const ZpNode *n) {
  uint64_t flops = (uint64_t)(n->flops / FLOPS), bytes = bytes_of(o, n);
  if (!zp_sends(n)) return CALL + (flops > bytes ? flops : bytes);
  bool twice = n->call.op == ZG_OP_ALL_REDUCE;
  return COLLECTIVE + zp_node_bytes(o->c->s, n) * LINK * (twice ? 2 : 1);
}

static void find_units(Order *o) {
  const ZpNode *nodes = o->l->nodes;
  o->unit = ZB_NEWN(o->tmp, Unit, o->l->n);
  for (uint32_t i = 0; i < o->l->n;) {
    Unit *u = &o->unit[o->n++];
    u->from = i;
    u->to = zp_unit_end(o->c, nodes, i);
    while (nodes[i].rounds && u->to < o->l->n && nodes[u->to].rounds == nodes[i].rounds) u->to++;
    u->async = zp_is_async(&nodes[i]);
    for (; i < u->to; i++) {
      u->takes += time_of(o, &nodes[i]);
      u->sends |= !u->async && zp_sends(&nodes[i]);
    }
  }
}

/* ---- what comes behind what ---------------------------------------------------------------------------- */
/* Returns the bytes that have a place already and may change within the list. */
static bool changes(const ZpValue *v) {
  return v->at.space == ZP_AT_GRAD || v->at.space == ZP_AT_SAVED || v->at.space == ZP_AT_CARRY_OUT ||
         v->at.space == ZP_AT_DCARRY_IN;
}

static bool common(const ZpValue *x, const ZpValue *y) {
  return changes(x) && x->at.space == y->at.space && x->at.index == y->at.index &&
         x->at.offset < y->at.offset + y->bytes && y->at.offset < x->at.offset + x->bytes;
}

static bool clash(const Order *o, const ZpNode *a, const ZpNode *b) {
  for (int k = 0; k < a->call.nout; k++) {
    for (int j = 0; j < b->call.nin; j++)
      if (a->out[k] == b->in[j] || common(value(o, a->out[k]), value(o, b->in[j]))) return true;
    for (int j = 0; j < b->call.nout; j++)
      if (common(value(o, a->out[k]), value(o, b->out[j]))) return true;
  }
  for (int k = 0; k < a->call.nin; k++)
    for (int j = 0; j < b->call.nout; j++)
      if (common(value(o, a->in[k]), value(o, b->out[j]))) return true;
  return zp_is_kind(a, ZG_SINK) && zp_is_kind(b, ZG_SINK);
}

/* Returns whether b, which is behind a, must stay there. */
static bool behind(const Order *o, const Unit *a, const Unit *b) {
  if ((a->sends && (b->sends || b->async)) || (a->async && b->sends)) return true;
  for (uint32_t i = a->from; i < a->to; i++)
    for (uint32_t k = b->from; k < b->to; k++)
      if (clash(o, &o->l->nodes[i], &o->l->nodes[k])) return true;
  return false;
}

static void find_needs(Order *o) {
  o->needs = ZB_NEWN(o->tmp, bool, (size_t)o->n * o->n);
  for (uint32_t a = 0; a < o->n; a++) {
    o->unit[a].reader = o->n;
    for (uint32_t b = a + 1; b < o->n; b++) {
      bool needs = o->needs[(size_t)b * o->n + a] = behind(o, &o->unit[a], &o->unit[b]);
      if (needs && o->unit[a].reader == o->n) o->unit[a].reader = b;
    }
  }
}

/* ---- the order ----------------------------------------------------------------------------------------- */
/* When all that it needs is complete; UINT64_MAX: not all of it has its place yet. */
static uint64_t ready(const Order *o, uint32_t u) {
  uint64_t at = 0;
  for (uint32_t b = 0; b < u; b++) {
    if (!o->needs[(size_t)u * o->n + b]) continue;
    if (!o->unit[b].done) return UINT64_MAX;
    if (o->unit[b].ends > at) at = o->unit[b].ends;
  }
  return at;
}

static void put(Order *o, uint32_t u, uint64_t begin) {
  Unit *x = &o->unit[u];
  x->done = true;
  x->ends = begin + x->takes;
  if (x->async) o->link = x->ends;
  else o->compute = x->ends;
  if (x->sends) o->link = x->ends;
  memcpy(&o->out[o->nout], &o->l->nodes[x->from], (x->to - x->from) * sizeof *o->out);
  o->nout += x->to - x->from;
}

/* Returns whether nothing in the list needs the call's result: it is the gradient of a weight. */
static bool is_last(const Order *o, const Unit *u) { return !u->async && !u->sends && u->reader == o->n; }

/* Calls from unit `from` on and before `to` that others need. */
static uint64_t calls_between(const Order *o, uint32_t from, uint32_t to) {
  uint64_t time = 0;
  for (uint32_t i = from; i < to; i++)
    if (!o->unit[i].async && !is_last(o, &o->unit[i])) time += o->unit[i].takes;
  return time;
}

/* Returns how long calls would wait for the collective u if there were no such calls. */
static uint64_t exposed(const Order *o, uint32_t u) {
  uint32_t from = 0; /* where it can begin */
  for (uint32_t b = 0; b < u; b++)
    if (o->needs[(size_t)u * o->n + b]) from = b + 1;
  uint64_t during = calls_between(o, from, o->unit[u].reader), takes = o->unit[u].takes;
  return takes > during ? takes - during : 0;
}

/* For each collective those before it that are nearest and not kept for another, as many as it has time
 * for. */
static void keep_calls(Order *o) {
  for (uint32_t u = 0; u < o->n; u++) {
    uint64_t time = o->unit[u].async ? exposed(o, u) : 0;
    for (uint32_t b = u; b-- > 0 && time;) {
      Unit *x = &o->unit[b];
      if (!is_last(o, x) || x->kept) continue;
      x->kept = o->unit[u].reader;
      time -= x->takes < time ? x->takes : time;
    }
  }
}

static bool is_kept(const Order *o, uint32_t u) {
  uint32_t until = o->unit[u].kept;
  return until && (until == o->n || !o->unit[until].done);
}

/* Returns whether it would be complete long before it is needed, even if all calls that may be kept come
 * later. */
static bool early(const Order *o, const Unit *u) {
  uint64_t before = 0, wait = o->link > o->compute ? o->link - o->compute : 0;
  for (uint32_t i = 0; i < u->reader; i++)
    if (!o->unit[i].done && !o->unit[i].async && !is_last(o, &o->unit[i])) before += o->unit[i].takes;
  return before > wait + 2 * u->takes;
}

static bool begin_one(Order *o) {
  for (uint32_t u = 0; u < o->n; u++) {
    if (!o->unit[u].async || o->unit[u].done) continue;
    uint64_t at = ready(o, u);
    if (at == UINT64_MAX || early(o, &o->unit[u])) continue;
    if (at < o->compute) at = o->compute;
    put(o, u, at > o->link ? at : o->link);
    return true;
  }
  return false;
}

/* Returns the first call that need not wait and is not kept for later, else one that need not wait, else the
 * call that can begin soonest. */
static uint32_t next_call(const Order *o, uint64_t *begin) {
  uint32_t best = ZP_NONE;
  *begin = UINT64_MAX;
  for (uint32_t u = 0; u < o->n; u++) {
    if (o->unit[u].async || o->unit[u].done) continue;
    uint64_t at = ready(o, u);
    if (at == UINT64_MAX) continue;
    if (o->unit[u].sends && at < o->link) at = o->link;
    if (at < o->compute) at = o->compute;
    bool now = at == o->compute && !is_kept(o, u);
    if (at < *begin || now) *begin = at, best = u;
    if (now) break;
  }
  return best;
}

void zp_overlap(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  bool any = false;
  for (uint32_t i = 0; i < l->n; i++) any |= zp_is_async(&l->nodes[i]);
  if (!any || !c->b->o->pins || c->b->variant.awaits) return;
  Order o = {.c = c, .l = l, .tmp = zb_arena_new(), .out = ZB_NEWN(c->p->arena, ZpNode, l->n)};
  find_units(&o);
  find_needs(&o);
  keep_calls(&o);
  while (o.nout < l->n) {
    while (begin_one(&o)) {}
    if (o.nout == l->n) break;
    uint64_t begin;
    uint32_t u = next_call(&o, &begin);
    ZB_ASSERT(u != ZP_NONE); /* what the first call that is left waits for has begun: it is not early */
    put(&o, u, begin);
  }
  l->nodes = o.out;
  zb_arena_free(o.tmp);
}

/* ---- until when ---------------------------------------------------------------------------------------- */
static bool reads(const ZpSegment *s, const ZpNode *n, uint32_t v) {
  for (int k = 0; k < n->call.nin; k++) {
    const ZpValue *x = &s->values[n->in[k]];
    for (int m = 0; m < x->nmembers; m++)
      if (x->member[m] == v) return true;
    if (n->in[k] == v) return true;
  }
  return false;
}

uint32_t zp_join(const ZpLocal *c, const ZpList *l, uint32_t i) {
  const ZpNode *nodes = l->nodes;
  uint32_t others = 0; /* begun behind it */
  if (!c->b->o->pins || c->b->variant.awaits) return i + 1;
  for (uint32_t k = i + 1, end; k < l->n; k = end) {
    end = zp_unit_end(c, nodes, k);
    for (uint32_t q = k; q < end; q++) {
      bool waits = nodes[q].rounds || (zp_sends(&nodes[q]) && !zp_is_async(&nodes[q]));
      others += zp_is_async(&nodes[q]);
      if (waits || others == ZP_MOST_ASYNC || reads(c->s, &nodes[q], nodes[i].out[0])) return k;
    }
  }
  return l->n;
}

void zp_mark_joins(ZpLocal *c, ZpPhase phase) {
  ZpList *l = &c->s->list[phase];
  for (uint32_t i = 0; i < l->n; i++)
    if (zp_is_async(&l->nodes[i])) l->nodes[i].until = zp_join(c, l, i);
}
