/* Is the loss separable over `batch`? Then, and only then, a step may cut its samples into micro-batches of
 * any size and onto any ranks. Along `batch` every value on the way to the loss is
 *
 *   constant    the same for all samples
 *   per sample  has the axis, and sample i of it depends on sample i of the inputs alone
 *   summed      a sum over samples, used linearly from there on
 *   count       the number of samples of a micro-batch, times a constant
 *   mean        a sum divided by a count, used linearly from there on, or with a constant added
 *
 * or it mixes samples in another way. The loss must be a sum; what else it is is the mistake reported here,
 * at the first operation that mixes. An aux term is averaged over micro-batches, so a constant or a mean is
 * the same however samples are cut; others depend on how many a micro-batch has, and are warned of. What
 * reaches neither (outputs) is free. */
#include "compiler/elab.h"

#include <string.h>

typedef enum { CONST, SAMPLE, SUMMED, COUNT, MEAN, MIXED } Kind;
typedef struct {
  Kind kind;
  uint32_t loc; /* from COUNT on: of the operation that mixes */
} State;

typedef struct {
  const ZgGraph *g;
  uint16_t batch;
  State **value;  /* by segment, value */
  State **inflow; /* by segment, carried position: what arrives at its start */
  bool changed;
} Sep;

/* Of a value that comes on two ways. What is a mean on one is none if it is a sum on the other. */
static State join(State a, State b) {
  if (a.kind > b.kind) return join(b, a);
  if (b.kind >= COUNT && a.kind != b.kind && !(b.kind == MEAN && a.kind == CONST)) b.kind = MIXED;
  return b;
}

/* Whether a sum of samples stays one: the op is linear in its summed operands. */
static bool linear(const ZgNode *n, const State *in) {
  uint8_t in_which = zg_op_info[n->op].linear, summed = 0;
  int count = 0;
  for (int i = 0; i < n->nin; i++)
    if (in[i].kind == SUMMED) summed |= (uint8_t)(1 << i), count++;
  if (n->op == ZG_OP_SELECT) return in[0].kind == CONST && count == 2;
  if (in_which == ZG_TOGETHER) return count == n->nin;
  return count == 1 && n->nout == 1 && summed & in_which;
}

/* The same of means and counts; ops that take a constant besides it give the same again. */
static Kind linear_mean(const ZgNode *n, const State *in) {
  const ZgOpInfo *o = &zg_op_info[n->op];
  bool means = true;        /* all of them means or constants */
  int count = 0, which = 0; /* operands that are no constants, the last of them */
  for (int i = 0; i < n->nin; i++) {
    means &= in[i].kind == CONST || in[i].kind == MEAN;
    if (in[i].kind != CONST) count++, which = i;
  }
  if (n->op == ZG_OP_SELECT) return means && in[0].kind == CONST ? MEAN : MIXED;
  if (n->op == ZG_OP_DIV && in[0].kind == SUMMED && in[1].kind == COUNT) return MEAN;
  if (o->linear == ZG_TOGETHER && o->kind == ZG_EW && n->nin == 1) return in[0].kind;
  if (o->linear == ZG_TOGETHER) return means ? MEAN : MIXED;
  return count == 1 && n->nout == 1 && o->linear >> which & 1 ? in[which].kind : MIXED;
}

/* What the results of a node are, given its operands. */
static State step(const Sep *s, const ZgSegment *seg, const ZgNode *n, const State *in) {
  ZgType tin[ZG_MAX_IN], tout[ZG_MAX_OUT];
  State mixed = {MIXED, n->loc};
  State whole = {CONST, 0};
  bool sample = false, summed = false;
  for (int i = 0; i < n->nin; i++) {
    if (in[i].kind == MIXED) return in[i];
    sample |= in[i].kind == SAMPLE;
    summed |= in[i].kind == SUMMED;
    if (in[i].kind >= COUNT) whole = in[i];
    tin[i] = seg->values[n->in[i]].type;
  }
  for (int i = 0; i < n->nout; i++) tout[i] = seg->values[n->out + (uint32_t)i].type;
  if (n->op == ZG_OP_AXSIZE && n->ax[0] == s->batch) return (State){COUNT, n->loc};
  bool grows = n->op == ZG_OP_BROADCAST && zg_type_has(&tout[0], s->batch);
  if (grows && (summed || whole.kind >= COUNT)) return mixed; /* as often as a micro-batch has samples */
  if (whole.kind >= COUNT) return (State){linear_mean(n, in), whole.loc};
  if (summed) return !sample && linear(n, in) ? (State){SUMMED, 0} : mixed;
  if (n->op == ZG_OP_DISPATCH && sample) return (State){SAMPLE, 0};
  switch (zg_axis_class(n, tin, tout, s->batch)) {
  case ZG_AXIS_ABSENT: return (State){sample ? SAMPLE : CONST, 0}; /* rows of experts are samples' */
  case ZG_AXIS_PAR: return (State){SAMPLE, 0};
  case ZG_AXIS_SUM: return (State){SUMMED, 0};
  default: return mixed;
  }
}

static State source(const Sep *s, uint32_t segment, const ZgNode *n) {
  const ZgSegment *seg = &s->g->segments[segment];
  if (n->op == ZG_OP_CARRY) return s->inflow[segment][n->opt[0]];
  if (n->nout == 0) return (State){CONST, 0};
  if (n->op == ZG_OP_POSITION && n->nax == 1 && n->ax[0] == s->batch) return (State){MIXED, n->loc};
  return (State){zg_type_has(&seg->values[n->out].type, s->batch) ? SAMPLE : CONST, 0};
}

static void flow_into(Sep *s, uint32_t segment, int64_t slot, State v) {
  State *at = &s->inflow[segment][slot], now = join(*at, v);
  if (now.kind == at->kind) return;
  *at = now;
  s->changed = true;
}

static void walk_segment(Sep *s, uint32_t k) {
  const ZgSegment *seg = &s->g->segments[k];
  for (uint32_t i = 0; i < seg->nnodes; i++) {
    const ZgNode *n = &seg->nodes[i];
    State in[ZG_MAX_IN], out;
    for (int j = 0; j < n->nin; j++) in[j] = s->value[k][n->in[j]];
    if (n->op == ZG_OP_CARRY_OUT) {
      if (k + 1 < s->g->nsegments) flow_into(s, k + 1, n->opt[0], in[0]);
      if (seg->repeat) flow_into(s, k, n->opt[0], in[0]);
      continue;
    }
    out = n->nin || n->op == ZG_OP_AXSIZE ? step(s, seg, n, in) : source(s, k, n);
    for (int j = 0; j < n->nout; j++) s->value[k][n->out + (uint32_t)j] = out;
  }
}

static void report(Elab *e, const ZgNode *sink, State st) {
  bool num = sink->op == ZG_OP_LOSS_NUM;
  ZlSpan at = num ? e->loss[sink->opt[0]].num : e->loss[sink->opt[0]].den;
  if (st.kind == SUMMED) return;
  if (st.kind == CONST) {
    ZlDiag *d = complain(e, ZL_Z0701, at, "%s is not a sum over the samples of `batch`",
                         num ? "the loss" : "the term after `per`");
    zl_note(d, "it would be counted once for every micro-batch");
    zl_help(d, num ? "put a term that is not per sample under `aux`" : "`per known(targets)`, for example");
    return;
  }
  ZlSpan mix = place_span(e, st.loc);
  ZlDiag *d = complain(e, ZL_Z0701, mix.file < 0 ? at : mix,
                       "loss is not separable over `batch`: this mixes samples");
  zl_also(d, at, "on the way to this");
  zl_note(d, "the result would depend on how many samples a micro-batch has");
  zl_help(d, "put the term under `aux`, where it is of the samples of one micro-batch");
}

/* Once for a place in the text: repeats may have unrolled it. */
static void report_aux(Elab *e, const ZgNode *sink, State st, ZlSpan *last) {
  ZlSpan at = place_span(e, sink->loc);
  if (st.kind == CONST || st.kind == MEAN || (at.file == last->file && at.start == last->start)) return;
  *last = at;
  ZlDiag *d = zl_report(e->diags, ZL_Z0705, at, "this term depends on how many samples a micro-batch has");
  zl_note(d, "that is `micro` x the ranks that split `batch`; recipes with another number train differently");
  zl_help(d, st.kind == SUMMED ? "take `mean[batch]` of it"
                               : "a mean over `batch`, used linearly, is the same in every layout");
}

typedef struct {
  const Sep *s;
  uint32_t segment;
} Place;

static UpdateKind kind_of(void *arg, uint32_t value) {
  const Place *p = arg;
  switch (p->s->value[p->segment][value].kind) {
  case CONST: return UPDATE_CONST;
  case MEAN: return UPDATE_MEAN;
  case SUMMED: return UPDATE_SUM;
  default: return UPDATE_OTHER;
  }
}

void sep_check(Elab *e, uint16_t batch) {
  Sep s = {.g = e->g, .batch = batch};
  uint32_t n = e->g->nsegments;
  s.value = ZB_NEWN(e->arena, State *, n);
  s.inflow = ZB_NEWN(e->arena, State *, n);
  for (uint32_t k = 0; k < n; k++) {
    s.value[k] = ZB_NEWN(e->arena, State, e->g->segments[k].nvalues + 1);
    s.inflow[k] = ZB_NEWN(e->arena, State, e->g->segments[k].ncarry_in + 1);
  }
  do { /* until a repeat's carried values settle: each can only rise, so soon */
    s.changed = false;
    for (uint32_t k = 0; k < n; k++) walk_segment(&s, k);
  } while (s.changed);
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < e->g->segments[k].nnodes; i++) {
      const ZgNode *m = &e->g->segments[k].nodes[i];
      if (m->op == ZG_OP_LOSS_NUM || m->op == ZG_OP_LOSS_DEN) report(e, m, s.value[k][m->in[0]]);
    }
  for (uint32_t k = 0; k < n; k++) update_split(e, k, kind_of, &(Place){&s, k});
  ZlSpan last_aux = ZL_NOWHERE;
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t i = 0; i < e->g->segments[k].nnodes; i++) {
      const ZgNode *m = &e->g->segments[k].nodes[i];
      if (m->op == ZG_OP_AUX) report_aux(e, m, s.value[k][m->in[0]], &last_aux);
    }
}
