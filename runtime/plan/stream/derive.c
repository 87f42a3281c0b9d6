/* Which values a step wants in which forms, found from the output back, and the nodes that make them. See
 * stream.h for the forms. */
#include "runtime/plan/stream/derive.h"

#include <string.h>

typedef struct {
  ZpDerive d;
  uint32_t rows_from; /* the first segment in which values can be made of rows alone */
  uint8_t **want;     /* by segment and value: bit f: in form f */
  uint8_t **carry;    /* by segment and position carried in: the same */
  bool **feeds;       /* by segment and value: something that mixes tokens depends on it there */
  uint32_t **made;    /* by form and value of the segment at hand: value of the step, or ZG_NONE */
} Demand;

#define BIT(form) (1u << (form))

static const ZgType *type_of(const Demand *x, uint32_t v) { return &x->d.s->values[v].type; }
static const ZgNode *maker(const Demand *x, uint32_t v) { return &x->d.s->nodes[x->d.s->values[v].node]; }
static const ZgAlong *along(const Demand *x, uint32_t v) { return &x->d.to->along.of[x->d.k][v]; }

/* ---- what mixes tokens --------------------------------------------------------------------------------- */
static bool is_time(const ZpStream *to, uint16_t axis) { return to->along.names[axis]; }

/* Says whether a node carries something over along time. */
static bool mixes(const ZpStream *to, const ZgNode *n) {
  if (!zg_op_info[n->op].carries) return false;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  if (n->op == ZG_OP_ATTEND) return is_time(to, ax.q) && is_time(to, ax.k);
  bool time = is_time(to, n->ax[0]);
  for (int i = 0; n->op == ZG_OP_CONV && i < n->nax; i++) time |= is_time(to, n->ax[i]);
  return time;
}

/* Finds what feeds them, and the last segment that has some. */
static void find_mixing(Demand *x) {
  const ZgGraph *m = x->d.to->model;
  uint32_t last = 0;
  for (uint32_t k = 0; k < m->nsegments; k++) {
    const ZgSegment *s = &m->segments[k];
    bool *feeds = x->feeds[k] = ZB_NEWN(x->d.a, bool, s->nvalues + 1);
    for (uint32_t i = s->nforward; i-- > 0;) {
      const ZgNode *n = &s->nodes[i];
      bool needed = false, on = false;
      for (int j = 0; j < n->nout; j++) {
        needed |= x->d.to->along.needed[k][n->out + (uint32_t)j];
        on |= feeds[n->out + (uint32_t)j];
      }
      if (!needed || !(on || mixes(x->d.to, n))) continue;
      last = k;
      for (int j = 0; j < n->nin; j++) feeds[n->in[j]] = true;
    }
  }
  while (m->segments[last].repeat) last++; /* what a repeat carries is the same before and behind it */
  x->rows_from = last;
}

/* ---- forms --------------------------------------------------------------------------------------------- */
/* Returns the form that a value has by itself. */
static ZpForm natural(const Demand *x, uint32_t v) {
  const ZgAlong *st = along(x, v);
  if (st->time == ZG_TIMELESS) return st->sample ? ZP_AS_OWN : ZP_AS_CONSTANT;
  return zg_stream_axes(&x->d.to->along, type_of(x, v)) > 1 ? ZP_AS_PAIRS : ZP_AS_TOKENS;
}

/* Says whether a value can be made of rows alone, since nothing after it mixes tokens. */
static bool made_in_rows(const Demand *x, uint32_t v) {
  const ZgNode *n = maker(x, v);
  if (x->d.k < x->rows_from || x->feeds[x->d.k][v] || mixes(x->d.to, n)) return false;
  if (n->op == ZG_OP_CARRY) return x->d.k > x->rows_from;
  return n->nin > 0 && n->op != ZG_OP_ROPE; /* positions are of tokens */
}

/* Returns the form in which a value is made that is wanted in `form`. */
static ZpForm source_form(const Demand *x, uint32_t v, ZpForm form) {
  const ZgStream *st = &x->d.to->along;
  const ZgType *t = type_of(x, v);
  ZpForm own = natural(x, v);
  if (own == ZP_AS_CONSTANT || own == ZP_AS_OWN) return own;
  ZB_ASSERT(form != ZP_AS_OWN);
  if (form == ZP_AS_PAIRS)
    return own == ZP_AS_PAIRS ? own : zg_stream_has_time(st, t) ? ZP_AS_TOKENS : ZP_AS_TABLE;
  return form == ZP_AS_ROWS && !made_in_rows(x, v) ? ZP_AS_TOKENS : form;
}

/* Returns the form in which node n, made in `form`, takes operand i. */
static ZpForm operand_form(const Demand *x, const ZgNode *n, int i, ZpForm form) {
  const ZgStream *st = &x->d.to->along;
  const ZgType *t = type_of(x, n->in[i]);
  bool id = t->elem == ZG_I32 || t->elem == ZG_INDEX, key;
  if (n->op != ZG_OP_ATTEND || !is_time(x->d.to, n->ax[0])) return form;
  key = zg_type_has(t, zg_attend_axes(n->ax, n->nax).k);
  if (!mixes(x->d.to, n)) return key ? natural(x, n->in[i]) : form; /* timeless, as the rule has it */
  if (i < 3) return form;
  if (id || !key) return form;
  if (zg_stream_axes(st, t) > 1) return ZP_AS_PAIRS;
  return along(x, n->in[i])->time == ZG_POSITIONAL && !along(x, n->in[i])->sample ? ZP_AS_TABLE : form;
}

/* ---- demand -------------------------------------------------------------------------------------------- */
static void want(Demand *x, uint32_t v, ZpForm form) {
  x->want[x->d.k][v] |= (uint8_t)BIT(source_form(x, v, form));
}

static void want_operands(Demand *x, const ZgNode *n, uint8_t leaves) {
  uint32_t k = x->d.k;
  uint8_t forms = 0;
  if (n->op == ZG_OP_OUTPUT && (uint32_t)n->opt[0] == x->d.to->along.output) want(x, n->in[0], ZP_AS_ROWS);
  if (n->op == ZG_OP_CARRY_OUT) forms = leaves;
  for (int i = 0; i < n->nout; i++) forms |= x->want[k][n->out + (uint32_t)i];
  if (n->op == ZG_OP_CARRY) x->carry[k][n->opt[0]] |= forms & (uint8_t)~BIT(ZP_AS_OWN);
  for (int form = 0; form < ZP_FORMS; form++)
    for (int i = 0; i < n->nin && forms >> form & 1 && form != ZP_AS_OWN; i++)
      want(x, n->in[i], operand_form(x, n, i, (ZpForm)form));
}

/* Adds what is carried at one boundary to what is at another; says whether that is more. */
static bool carry_too(uint8_t *to, const uint8_t *from, uint32_t n) {
  bool more = false;
  for (uint32_t i = 0; i < n; i++) more |= (from[i] | to[i]) != to[i], to[i] |= from[i];
  return more;
}

/* From the last segment to the first. A repeat carries the same before, around and behind it: what more it
 * wants of itself, or the next one of it, is looked for until there is nothing. */
static void demand(Demand *x) {
  const ZgGraph *m = x->d.to->model;
  bool more;
  for (uint32_t k = 0; k < m->nsegments; k++) {
    x->carry[k] = ZB_NEWN(x->d.a, uint8_t, m->segments[k].ncarry_in + 1);
    x->want[k] = ZB_NEWN(x->d.a, uint8_t, m->segments[k].nvalues + 1);
  }
  do {
    more = false;
    for (uint32_t k = m->nsegments; k-- > 0;) {
      const ZgSegment *s = x->d.s = &m->segments[k];
      uint8_t *enters = x->carry[k], *next = k + 1 < m->nsegments ? x->carry[k + 1] : NULL;
      x->d.k = k;
      if (s->repeat) carry_too(enters, next, s->ncarry_in);
      for (uint32_t i = s->nforward; i-- > 0;) {
        const ZgNode *n = &s->nodes[i];
        want_operands(x, n, n->op == ZG_OP_CARRY_OUT ? next[n->opt[0]] : 0);
      }
      if (s->repeat) more |= carry_too(next, enters, s->ncarry_in);
    }
  } while (more);
}

/* ---- carried values ------------------------------------------------------------------------------------ */
/* Numbers what is carried in a form: positions of the model in order, and of one the forms in order. */
static uint32_t carried_number(const uint8_t *forms, int64_t position, ZpForm form) {
  uint32_t n = 0;
  for (int64_t i = 0; i < position; i++) n += (uint32_t)__builtin_popcount(forms[i]);
  return n + (uint32_t)__builtin_popcount(forms[position] & (BIT(form) - 1));
}

static ZgType *carried_types(Demand *x, const ZgType *of, const uint8_t *forms, uint32_t n, uint32_t *count) {
  ZgType *types = NULL;
  *count = 0;
  for (uint32_t i = 0; i < n; i++)
    for (int form = 0; form < ZP_FORMS; form++)
      if (forms[i] >> form & 1) {
        ZgType t = zp_form_type(&x->d, &of[i], (ZpForm)form);
        ZB_PUSH(x->d.a, types, *count, t);
      }
  return types;
}

/* ---- operands ------------------------------------------------------------------------------------------ */
/* Returns value v of the model as something of `form` takes it. */
static uint32_t take(Demand *x, uint32_t v, ZpForm form) {
  ZpDerive *d = &x->d;
  ZpForm from = source_form(x, v, form);
  uint32_t got = x->made[from][v];
  ZB_ASSERT(got != ZG_NONE);
  bool of_tokens = from == ZP_AS_TOKENS && form == ZP_AS_ROWS, of_own = from == ZP_AS_OWN && form != from;
  if (of_own && !zg_type_has(type_of(x, v), d->to->along.batch))
    zp_derive_fail(d, zb_printf(d->a, "%s takes a length that differs from sequence to sequence",
                                zg_op_info[d->from->op].text));
  if (of_tokens && !zg_type_has(zp_step_type(d, got), d->to->axis.token))
    zp_derive_fail(d, "the rows of experts go on in two ways");
  if (of_tokens || of_own) { /* once in each form */
    ZgType to = zp_form_type(d, type_of(x, v), form);
    uint32_t *rows = &x->made[form][v];
    if (*rows == ZG_NONE && of_tokens)
      *rows = zp_step_rows(d, got, d->to->axis.token, zp_step_told(d, d->to->row), to);
    else if (*rows == ZG_NONE)
      *rows = zp_step_rows(d, got, d->to->axis.sequence, zp_step_sequences(d, form), to);
    got = *rows;
  }
  return zp_spread(d, got, zp_form_type(d, type_of(x, v), form));
}

static uint32_t take_operands(Demand *x, const ZgNode *n, ZpForm form, uint32_t *in) {
  for (int i = 0; i < n->nin; i++) in[i] = take(x, n->in[i], operand_form(x, n, i, form));
  return n->nin;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
/* A position along time, as a number or as a place along an axis. */
static uint32_t make_position(Demand *x, const ZgNode *n, ZgType to) {
  uint32_t p = zp_step_told(&x->d, x->d.to->position);
  return n->nax == 1 ? p : zp_step_node(&x->d, (ZgNode){.op = ZG_OP_CAST}, &p, 1, &to, 1);
}

/* A parameter along time: of its rows, which are positions, tokens take theirs; keys and tables have all. */
static uint32_t make_param(Demand *x, const ZgNode *n, ZpForm form) {
  ZpDerive *d = &x->d;
  const ZgType *t = type_of(x, n->out);
  uint16_t all = d->to->axis.position, token = d->to->axis.token;
  uint32_t p = zp_step_node(d, (ZgNode){.op = ZG_OP_PARAM, .opt = {n->opt[0]}}, NULL, 0, t, 1);
  for (int i = 0; i < t->naxes; i++) {
    uint16_t time = t->axis[i];
    if (!is_time(d->to, time)) continue;
    bool keys = form == ZP_AS_TABLE || (form == ZP_AS_PAIRS && time != d->to->along.time);
    ZgType rest = zg_type_minus(zp_step_type(d, p), &time, 1);
    ZgType here = zg_type((ZgElem)t->elem, keys ? &all : &token, 1), to = zg_type_union(&rest, &here);
    ZgNode rename = {.op = ZG_OP_RENAME, .nax = 2, .ax = {time, all}};
    p = keys ? zp_step_node(d, rename, &p, 1, &to, 1)
             : zp_step_rows(d, p, time, zp_step_told(d, d->to->position), to);
  }
  return p;
}

static uint32_t make_input(Demand *x, const ZgNode *n, ZgType to) {
  ZpDerive *d = &x->d;
  uint32_t i = zp_step_input(d, d->to->model->inputs[n->opt[0]].name, to);
  return zp_step_node(d, (ZgNode){.op = ZG_OP_INPUT, .opt = {i}}, NULL, 0, &to, 1);
}

/* A coin is its mean, as in an evaluation. */
static uint32_t make_mean(Demand *x, const ZgNode *n, ZgType to) {
  ZgType one = zg_type(ZG_REAL, NULL, 0);
  uint32_t p = zp_step_node(&x->d, (ZgNode){.op = ZG_OP_FILL, .num = {n->num[0]}}, NULL, 0, &one, 1);
  return zp_spread(&x->d, p, to);
}

/* The same operation in another form. */
static uint32_t make_same(Demand *x, const ZgNode *n, ZpForm form) {
  ZpDerive *d = &x->d;
  ZgNode to = {.op = n->op, .nax = n->nax, .num = {n->num[0], n->num[1]}, .opt = {n->opt[0], n->opt[1]}};
  ZgType types[ZG_MAX_OUT];
  uint32_t in[ZG_MAX_IN], nin = take_operands(x, n, form, in);
  for (int i = 0; i < n->nax; i++) to.ax[i] = is_time(d->to, n->ax[i]) ? zp_form_axis(d, form) : n->ax[i];
  for (int i = 0; i < n->nout; i++) types[i] = zp_form_type(d, type_of(x, n->out + (uint32_t)i), form);
  return zp_step_node(d, to, in, (int)nin, types, n->nout);
}

/* Makes a shift, and with it others of the same value: one cache holds the tokens before of all. */
static uint32_t make_shifts(Demand *x, const ZgNode *n, uint32_t v, ZgType to) {
  enum { MOST = 62 };
  const ZgSegment *s = x->d.s;
  const ZgNode *by[MOST + 1] = {NULL};
  uint64_t which = 0;
  uint32_t *made = x->made[ZP_AS_TOKENS];
  if (n->opt[0] < 1 || n->opt[0] > MOST) return zp_step_shifts(&x->d, v, 0, to);
  for (uint32_t i = 0; i < s->nforward && __builtin_popcountll(which) < ZG_MAX_OUT; i++) {
    const ZgNode *m = &s->nodes[i];
    bool like =
        m->op == ZG_OP_SHIFT && m->in[0] == n->in[0] && m->ax[0] == n->ax[0] && m->num[0] == n->num[0];
    if (!like || m->opt[0] < 1 || m->opt[0] > MOST || by[m->opt[0]]) continue;
    if (!(x->want[x->d.k][m->out] & BIT(ZP_AS_TOKENS)) || made[m->out] != ZG_NONE) continue;
    by[m->opt[0]] = m;
    which |= 1ull << m->opt[0];
  }
  uint32_t out = zp_step_shifts(&x->d, v, which, to);
  for (int b = 1; b <= MOST; b++)
    if (by[b]) made[by[b]->out] = out++;
  return made[n->out];
}

/* Makes what mixes tokens, of tokens. */
static uint32_t make_mixing(Demand *x, const ZgNode *n, ZgType to) {
  uint32_t in[ZG_MAX_IN];
  take_operands(x, n, ZP_AS_TOKENS, in);
  if (n->nout > 1 && x->want[x->d.k][n->out + 1]) zp_derive_fail(&x->d, "attend's second result is wanted");
  switch (n->op) {
  case ZG_OP_ATTEND: return zp_step_attend(&x->d, in, to);
  case ZG_OP_SHIFT: return make_shifts(x, n, in[0], to);
  case ZG_OP_CONV: return zp_step_conv(&x->d, in[0], in[1], to);
  default: return zp_step_recurrence(&x->d, in, to);
  }
}

/* Says whether a sequence has keys of its own for n, an attend of tokens with what is not along time. */
static bool has_own_keys(const Demand *x, const ZgNode *n) {
  uint16_t key = zg_attend_axes(n->ax, n->nax).k;
  for (int i = 1; i < n->nin; i++)
    if (zg_type_has(type_of(x, n->in[i]), key) && natural(x, n->in[i]) == ZP_AS_OWN) return true;
  return false;
}

static uint32_t make_node(Demand *x, const ZgNode *n, ZpForm form) {
  ZpDerive *d = &x->d;
  ZgType to = zp_form_type(d, type_of(x, n->out), form);
  bool time = n->nax && is_time(d->to, n->ax[0]);
  if (form != ZP_AS_TABLE && mixes(d->to, n)) return make_mixing(x, n, to);
  switch (n->op) {
  case ZG_OP_CARRY: {
    int64_t at = carried_number(x->carry[d->k], n->opt[0], form);
    return zp_step_node(d, (ZgNode){.op = ZG_OP_CARRY, .opt = {at}}, NULL, 0, &to, 1);
  }
  case ZG_OP_PARAM: return make_param(x, n, form);
  case ZG_OP_INPUT: return make_input(x, n, to);
  case ZG_OP_RANDOM: return make_mean(x, n, to);
  case ZG_OP_POSITION:
    if (time && form != ZP_AS_TABLE) return make_position(x, n, to);
    break;
  case ZG_OP_ROPE:
    if (time && form != ZP_AS_TABLE) return zp_step_rope(d, take(x, n->in[0], form), to);
    break;
  case ZG_OP_RENAME:
    if (time && is_time(d->to, n->ax[1])) return take(x, n->in[0], form);
    break;
  case ZG_OP_ATTEND:
    if (time && has_own_keys(x, n)) {
      uint32_t in[ZG_MAX_IN];
      take_operands(x, n, form, in);
      return zp_step_attend_own(d, in, form, to);
    }
    break;
  case ZG_OP_BROADCAST: return zp_spread(d, take(x, n->in[0], form), to);
  }
  return make_same(x, n, form);
}

static void make_sink(Demand *x, const ZgNode *n, const uint8_t *leaves) {
  ZpDerive *d = &x->d;
  if (n->op == ZG_OP_OUTPUT && (uint32_t)n->opt[0] == d->to->along.output) {
    uint32_t v = take(x, n->in[0], ZP_AS_ROWS);
    zp_step_node(d, (ZgNode){.op = ZG_OP_OUTPUT}, &v, 1, NULL, 0);
  }
  for (int form = 0; n->op == ZG_OP_CARRY_OUT && form < ZP_FORMS; form++) {
    if (!(leaves[n->opt[0]] >> form & 1)) continue;
    int64_t at = carried_number(leaves, n->opt[0], (ZpForm)form);
    uint32_t v = take(x, n->in[0], (ZpForm)form);
    zp_step_node(d, (ZgNode){.op = ZG_OP_CARRY_OUT, .opt = {at}}, &v, 1, NULL, 0);
  }
}

static void make_segment(Demand *x, uint32_t k) {
  const ZgGraph *m = x->d.to->model;
  const ZgSegment *s = x->d.s = &m->segments[k];
  ZgSegment *out = x->d.out = &x->d.g->segments[k];
  const uint8_t *leaves = k + 1 < m->nsegments ? x->carry[k + 1] : NULL;
  x->d.k = k;
  out->carry_in = carried_types(x, s->carry_in, x->carry[k], s->ncarry_in, &out->ncarry_in);
  if (leaves) out->carry_out = carried_types(x, s->carry_out, leaves, s->ncarry_out, &out->ncarry_out);
  for (int form = 0; form < ZP_FORMS; form++) {
    x->made[form] = ZB_NEWN(x->d.a, uint32_t, s->nvalues + 1);
    memset(x->made[form], 0xff, (s->nvalues + 1) * sizeof **x->made);
  }
  for (uint32_t i = 0; i < s->nforward && !x->d.failed; i++) {
    const ZgNode *n = x->d.from = &s->nodes[i];
    if (!n->nout) make_sink(x, n, leaves);
    for (int form = 0; form < ZP_FORMS; form++) {
      uint8_t wanted = 0;
      for (int j = 0; j < n->nout; j++) wanted |= x->want[k][n->out + (uint32_t)j] >> form & 1;
      if (!wanted || (n->nout == 1 && x->made[form][n->out] != ZG_NONE)) continue; /* or made with another */
      if (form == ZP_AS_OWN) { /* results are kept one by one */
        for (uint32_t j = 0; j < n->nout; j++)
          if (x->want[k][n->out + j] >> form & 1) x->made[form][n->out + j] = zp_step_own(&x->d, n->out + j);
        continue;
      }
      uint32_t made = make_node(x, n, (ZpForm)form);
      for (uint32_t j = 0; j < n->nout; j++) x->made[form][n->out + j] = made + j;
    }
  }
}

bool zp_stream(const ZgGraph *model, ZbArena *a, const char *output, const char *tokens, ZpStream *to,
               ZbErr *err) {
  *to = (ZpStream){.model = model};
  if (!zg_stream(model, a, output, tokens, &to->along, err)) return false;
  to->model = zp_absorb(model, a, &to->along);
  if (to->model != model && !zg_stream(to->model, a, output, tokens, &to->along, err)) return false;
  uint32_t n = model->nsegments;
  Demand x = {.d = {.to = to, .a = a, .err = err}};
  x.want = ZB_NEWN(a, uint8_t *, n);
  x.carry = ZB_NEWN(a, uint8_t *, n);
  x.feeds = ZB_NEWN(a, bool *, n);
  x.made = ZB_NEWN(a, uint32_t *, ZP_FORMS);
  zp_begin_step(&x.d);
  find_mixing(&x);
  demand(&x);
  for (uint32_t k = 0; k < n && !x.d.failed; k++) make_segment(&x, k);
  to->step = x.d.g;
  if (!x.d.failed) zp_derive_admit(to, a);
  return !x.d.failed;
}
