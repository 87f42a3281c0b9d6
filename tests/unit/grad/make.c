/* See make.h. */
#include "tests/unit/grad/make.h"

#include <string.h>

Make make_graph(void) {
  Make m = {.a = zb_arena_new()};
  m.g = zg_graph_new(m.a, "Test");
  m.s = zg_segment_add(m.g, "", 0, false, 1);
  return m;
}

uint16_t make_axis(Make *m, const char *name, int64_t size) {
  uint32_t a = zg_axis_find(m->g, name);
  return (uint16_t)(a == ZG_NONE ? zg_axis_add(m->g, name, size) : a);
}

/* The axes named in `text`, in that order. */
static int axes_of(Make *m, const char *text, uint16_t *ax) {
  int n = 0;
  char *copy = zb_strdup(m->a, text), *save = NULL;
  for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
    uint32_t a = zg_axis_find(m->g, w);
    ZB_ASSERT(a != ZG_NONE && n < ZG_MAX_AXARG);
    ax[n++] = (uint16_t)a;
  }
  return n;
}

ZgType make_type(Make *m, ZgElem elem, const char *axes) {
  uint16_t ax[ZG_MAX_AXARG];
  int n = axes_of(m, axes, ax);
  return zg_type(elem, ax, n);
}

uint32_t make_param(Make *m, const char *path, const char *axes) {
  uint16_t ax[ZG_MAX_AXARG];
  ZgParam p = {.path = path, .init = ZG_INIT_NORMAL, .num = {0.02}, .segment = ZG_NONE};
  int n = axes_of(m, axes, ax);
  p.type = zg_type(ZG_REAL, ax, n);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < n; k++)
      if (p.type.axis[k] == ax[i]) p.order[i] = (uint8_t)k;
  if (strchr(path, '*')) p.segment = (uint32_t)(m->s - m->g->segments);
  ZgNode node = {.op = ZG_OP_PARAM, .region = m->s->region, .opt = {zg_param_add(m->g, p)}};
  return zg_node_add(m->g, m->s, node, NULL);
}

uint32_t make_input(Make *m, const char *name, ZgType t) {
  ZgIo io = {zb_strdup(m->a, name), t, 0};
  ZB_PUSH(m->a, m->g->inputs, m->g->ninputs, io);
  return make_with(m, (ZgNode){.op = ZG_OP_INPUT, .opt = {m->g->ninputs - 1}}, "", 0, NULL);
}

uint32_t make_ids(Make *m, const char *name, const char *of, const char *axes) {
  ZgType t = make_type(m, ZG_INDEX, axes);
  t.of = (uint16_t)zg_axis_find(m->g, of);
  return make_input(m, name, t);
}

uint32_t make_with(Make *m, ZgNode n, const char *axes, int nin, const uint32_t *in) {
  n.nax = (uint8_t)axes_of(m, axes, n.ax);
  n.nin = (uint8_t)nin;
  for (int i = 0; i < nin; i++) n.in[i] = in[i];
  n.region = m->s->region;
  return zg_node_add(m->g, m->s, n, NULL);
}

uint32_t make_fill(Make *m, double x) {
  return make_with(m, (ZgNode){.op = ZG_OP_FILL, .num = {x}}, "", 0, NULL);
}
uint32_t make1(Make *m, ZgOp op, uint32_t x) { return make_with(m, (ZgNode){.op = op}, "", 1, &x); }
uint32_t make2(Make *m, ZgOp op, uint32_t x, uint32_t y) {
  return make_with(m, (ZgNode){.op = op}, "", 2, (uint32_t[]){x, y});
}
uint32_t make3(Make *m, ZgOp op, uint32_t x, uint32_t y, uint32_t z) {
  return make_with(m, (ZgNode){.op = op}, "", 3, (uint32_t[]){x, y, z});
}
uint32_t make_sum(Make *m, uint32_t x, const char *axes) {
  return make_with(m, (ZgNode){.op = ZG_OP_SUM}, axes, 1, &x);
}
uint32_t make_typed(Make *m, ZgOp op, uint32_t x, ZgType t) {
  ZgNode n = {.op = op, .nin = 1, .in = {x}, .region = m->s->region};
  return zg_node_add(m->g, m->s, n, &t);
}

void make_sink(Make *m, ZgOp op, uint32_t x) { make1(m, op, x); }

uint32_t make_next(Make *m, uint32_t x, const char *label, uint32_t trip) {
  uint32_t region = trip ? zg_region_add(m->g, ZG_REGION_REPEAT, 0, label, "") : 0;
  ZgType *t = ZB_NEW(m->a, ZgType);
  *t = m->s->values[x].type;
  m->s->ncarry_out = 1;
  m->s->carry_out = t;
  make_sink(m, ZG_OP_CARRY_OUT, x);
  m->s = zg_segment_add(m->g, label, region, trip > 0, trip ? trip : 1);
  m->s->ncarry_in = 1;
  m->s->carry_in = t;
  return make_with(m, (ZgNode){.op = ZG_OP_CARRY}, "", 0, NULL);
}

void make_loss(Make *m, uint32_t y) {
  ZgType t = m->s->values[y].type;
  if (t.naxes) {
    ZgNode sum = {.op = ZG_OP_SUM, .nin = 1, .nax = t.naxes};
    for (int i = 0; i < t.naxes; i++) sum.ax[i] = t.axis[i];
    t.elem = ZG_REAL;
    sum.in[0] = make2(m, ZG_OP_MUL, y, make_input(m, "weights", t));
    y = zg_node_add(m->g, m->s, sum, NULL);
  }
  make_sink(m, ZG_OP_LOSS_NUM, y);
  make_sink(m, ZG_OP_LOSS_DEN, make_fill(m, 2));
}
