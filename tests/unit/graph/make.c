/* See make.h. */
#include "tests/unit/graph/make.h"

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
  ZgIo io = {.name = zb_strdup(m->a, name), .type = t};
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

static uint32_t source(Make *m, ZgOp op, int64_t k) {
  return make_with(m, (ZgNode){.op = op, .opt = {k}}, "", 0, NULL);
}
static void to(Make *m, ZgOp op, int64_t k, uint32_t x) {
  make_with(m, (ZgNode){.op = op, .opt = {k}}, "", 1, &x);
}
static uint32_t dot(Make *m, const char *axes, uint32_t x, uint32_t y) {
  return make_with(m, (ZgNode){.op = ZG_OP_DOT}, axes, 2, (uint32_t[]){x, y});
}
static uint32_t renamed(Make *m, const char *axes, uint32_t x) {
  return make_with(m, (ZgNode){.op = ZG_OP_RENAME}, axes, 1, &x);
}

/* The table has number 0, the repeat's matrix number 1. */
static void sample_backward(Make *m) {
  ZgSegment *s = m->s = &m->g->segments[2];
  s->backward = true; /* forward: 0 carry, 1 table, 2 logits, 3 peak, 4 targets, 5 s, 6 p, 7 log, ... */
  uint32_t g = make2(m, ZG_OP_DIV, source(m, ZG_OP_SEED, 0), 5),
           minus = make_typed(m, ZG_OP_BROADCAST, make_fill(m, -1), make_type(m, ZG_REAL, "batch seq"));
  uint32_t dz = make_with(m, (ZgNode){.op = ZG_OP_XENT_GRAD}, "vocab", 5, (uint32_t[]){2, 3, 4, g, minus});
  to(m, ZG_OP_PARAM_GRAD, 0, dot(m, "batch seq", 0, dz));
  to(m, ZG_OP_DCARRY_IN, 0, dot(m, "vocab", dz, 1));
  s = m->s = &m->g->segments[1];
  s->backward = true; /* forward: 0 carry, 1 w, 2 dot, 3 renamed, 4 sum */
  uint32_t d = source(m, ZG_OP_DCARRY, 0), back = renamed(m, "embed wide", d);
  to(m, ZG_OP_PARAM_GRAD, 1, dot(m, "batch seq", 0, back));
  to(m, ZG_OP_DCARRY_IN, 0, make2(m, ZG_OP_ADD, d, dot(m, "wide", back, 1)));
  s = m->s = &m->g->segments[0];
  s->backward = true; /* forward: 0 tokens, 1 table, 2 rows */
  d = source(m, ZG_OP_DCARRY, 0);
  to(m, ZG_OP_PARAM_GRAD, 0, make_with(m, (ZgNode){.op = ZG_OP_LOOKUP_GRAD}, "vocab", 2, (uint32_t[]){d, 0}));
}

Make make_sample(void) {
  Make made = make_graph(), *m = &made;
  make_axis(m, "batch", 0);
  make_axis(m, "seq", 0);
  make_axis(m, "embed", 4);
  make_axis(m, "wide", 4);
  make_axis(m, "vocab", 9);
  uint32_t ids = make_ids(m, "tokens", "vocab", "batch seq"), table = make_param(m, "table", "vocab embed");
  uint32_t x = make_with(m, (ZgNode){.op = ZG_OP_LOOKUP}, "vocab", 2, (uint32_t[]){table, ids});
  x = make_next(m, x, "layer", 3);
  uint32_t y = dot(m, "embed", x, make_param(m, "layer.*.w", "embed wide"));
  x = make_next(m, make2(m, ZG_OP_ADD, x, renamed(m, "wide embed", y)), "", 0);
  table = source(m, ZG_OP_PARAM, 0);
  uint32_t z = dot(m, "embed", x, table), top = make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "vocab", 1, &z);
  uint32_t targets = make_ids(m, "targets", "vocab", "batch seq");
  uint32_t s = make_with(m, (ZgNode){.op = ZG_OP_XENT_SUMS}, "vocab", 3, (uint32_t[]){z, top, targets});
  uint32_t nll = make2(m, ZG_OP_SUB, make1(m, ZG_OP_LOG, s), s + 1);
  make_sink(m, ZG_OP_LOSS_NUM, make_sum(m, nll, "batch seq"));
  make_sink(m, ZG_OP_LOSS_DEN, make_sum(m, make1(m, ZG_OP_KNOWN, targets), "batch seq"));
  ZgIo logits = {.name = "logits", .type = m->s->values[z].type};
  ZB_PUSH(m->a, m->g->outputs, m->g->noutputs, logits);
  to(m, ZG_OP_OUTPUT, 0, z);
  uint32_t tag = zg_tag_add(m->g, "bias");
  m->g->params[1].tags = 1u << tag;
  m->s->nodes[2].loc = zg_loc_add(m->g, "sample.zug", 12, 3);
  sample_backward(m);
  return made;
}

Make make_axes(void) {
  Make m = make_graph();
  static const struct {
    const char *name;
    int64_t size;
  } axes[] = {{"batch", 0}, {"seq", 0},   {"embed", 8}, {"head", 2}, {"hd", 4}, {"vocab", 11},
              {"odd", 3},   {"eight", 8}, {"x0", 2},    {"x1", 2},   {"x2", 2}, {"x3", 2},
              {"x4", 2},    {"x5", 2},    {"x6", 2},    {"x7", 2},   {"x8", 2}, {"wide", 16}};
  for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) make_axis(&m, axes[i].name, axes[i].size);
  ZgParam p = {.path = "w", .type = make_type(&m, ZG_REAL, "embed vocab"), .segment = ZG_NONE};
  zg_param_add(m.g, p);
  return m;
}

ZgType make_typed_text(Make *m, const char *text) {
  size_t n = strcspn(text, " (");
  ZgElem e = 0;
  while (e < ZG_ELEMS && (strlen(zg_elem_name[e]) != n || strncmp(text, zg_elem_name[e], n))) e++;
  ZB_ASSERT(e < ZG_ELEMS);
  const char *axes = strchr(text, ' ');
  ZgType t = make_type(m, e, axes ? axes : "");
  if (e == ZG_INDEX) {
    const char *of = zb_strndup(m->a, text + n + 1, strcspn(text + n + 1, ")"));
    t.of = (uint16_t)zg_axis_find(m->g, of);
  }
  return t;
}
