/* Nodes of a step that carry something over along time, and their caches. Their operands are there, in the
 * forms in which they are taken. */
#include "runtime/plan/stream/derive.h"

/* ---- what a step is told ------------------------------------------------------------------------------- */
uint32_t zp_step_told(ZpDerive *d, uint32_t input) {
  for (uint32_t i = 0; i < d->out->nnodes; i++)
    if (d->out->nodes[i].op == ZG_OP_INPUT && d->out->nodes[i].opt[0] == input) return d->out->nodes[i].out;
  return zp_step_node(d, (ZgNode){.op = ZG_OP_INPUT, .opt = {input}}, NULL, 0, &d->g->inputs[input].type, 1);
}
static uint32_t positions(ZpDerive *d) { return zp_step_told(d, d->to->position); }
static uint32_t sequences(ZpDerive *d) { return zp_step_told(d, d->to->sequence); }

uint32_t zp_step_rows(ZpDerive *d, uint32_t v, uint16_t from, uint32_t ids, ZgType to) {
  return zp_step_node(d, (ZgNode){.op = ZG_OP_ROWS, .nax = 1, .ax = {from}}, (uint32_t[]){v, ids}, 2, &to, 1);
}

uint32_t zp_step_sequences(ZpDerive *d, ZpForm form) {
  ZgType rows = zg_type(ZG_INDEX, &d->to->axis.row, 1);
  rows.of = d->to->axis.sequence;
  if (form != ZP_AS_ROWS) return sequences(d);
  return zp_step_rows(d, sequences(d), d->to->axis.token, zp_step_told(d, d->to->row), rows);
}

/* ---- caches -------------------------------------------------------------------------------------------- */
static uint32_t add_cache(ZpDerive *d, ZpCache c) {
  ZpStream *to = d->to;
  if (c.type.naxes > ZG_MAX_AXES) {
    zp_derive_fail(d, "its cache would have too many axes");
    c.type.naxes = 0;
  }
  ZB_PUSH(d->a, to->caches, to->ncaches, c);
  return zp_step_node(d, (ZgNode){.op = ZG_OP_KEPT, .opt = {to->ncaches - 1}}, NULL, 0, &c.type, 1);
}

/* Returns a cache of what `t`, of tokens, has besides, and of the `n` axes `more`. */
static uint32_t kept(ZpDerive *d, ZpCacheKind kind, uint32_t group, const ZgType *t, const uint16_t *more,
                     int n) {
  ZpStream *to = d->to;
  ZgType rest = zg_type_minus(t, &to->axis.token, 1), add = zg_type((ZgElem)t->elem, more, n);
  ZpCache c = {.kind = (uint8_t)kind, .segment = d->k, .group = group, .value = ZG_NONE, .loc = d->from->loc};
  c.type = zg_type_union(&rest, &add);
  return add_cache(d, c);
}

/* Finds the pages of a window, or adds them. */
static uint32_t page_group(ZpDerive *d, int64_t window) {
  ZpStream *to = d->to;
  for (uint32_t i = 0; i < to->ngroups; i++)
    if (to->groups[i].window == window) return i;
  const char *suffix = window ? zb_printf(d->a, ".%lld", (long long)window) : "";
  ZgType table = zg_type(ZG_I32, (uint16_t[]){to->axis.sequence, to->axis.entry}, 2);
  ZpPageGroup g = {.window = window, .page = zp_step_axis(d, zb_printf(d->a, "step.page%s", suffix), 0)};
  d->bound[g.page] = true;
  g.input = zp_step_input(d, zb_printf(d->a, "step.pages%s", suffix), table);
  ZB_PUSH(d->a, to->groups, to->ngroups, g);
  return to->ngroups - 1;
}

/* ---- attention ----------------------------------------------------------------------------------------- */
/* Puts x into its pages, where all attends find it that see it through one window. */
static uint32_t put(ZpDerive *d, uint32_t x, uint32_t group) {
  const ZpStreamAxes *ax = &d->to->axis;
  const ZpPageGroup *g = &d->to->groups[group];
  for (uint32_t i = 0; i < d->out->nnodes; i++) {
    const ZgNode *n = &d->out->nodes[i];
    if (n->op == ZG_OP_PUT_PAGES && n->in[0] == x && n->ax[3] == g->page) return n->out;
  }
  uint32_t c = kept(d, ZP_CACHE_PAGES, group, zp_step_type(d, x), (uint16_t[]){g->page, ax->within}, 2);
  ZgNode n = {
      .op = ZG_OP_PUT_PAGES, .nax = 5, .ax = {ax->token, ax->sequence, ax->entry, g->page, ax->within}};
  uint32_t in[] = {x, c, zp_step_told(d, g->input), sequences(d), positions(d)};
  ZgType t = *zp_step_type(d, c);
  return zp_step_node(d, n, in, 5, &t, 1);
}

/* Returns where among the keys' numbers the values are, if they are a part of them; or -1. */
static int64_t part_of_keys(const ZpDerive *d) {
  const ZgNode *n = d->from, *keys = &d->s->nodes[d->s->values[n->in[1]].node];
  ZgAttendAxes of = zg_attend_axes(n->ax, n->nax);
  int64_t at = 0;
  if (n->in[1] == n->in[2]) return 0;
  for (int i = 0; keys->op == ZG_OP_CONCAT && keys->ax[0] == of.h && i < keys->nin; i++) {
    if (keys->in[i] == n->in[2] && keys->ax[i + 1] == of.w) return at;
    at += d->g->axes[keys->ax[i + 1]].size;
  }
  return -1;
}

uint32_t zp_step_attend(ZpDerive *d, const uint32_t *in, ZgType to) {
  const ZgNode *n = d->from;
  const ZpStreamAxes *ax = &d->to->axis;
  ZgAttendAxes of = zg_attend_axes(n->ax, n->nax);
  uint32_t group = page_group(d, n->opt[1]), take[ZG_MAX_IN] = {in[0]}, count = 6;
  int64_t part = part_of_keys(d);
  take[1] = put(d, in[1], group);
  take[2] = part < 0 ? put(d, in[2], group) : take[1];
  take[3] = zp_step_told(d, d->to->groups[group].input);
  take[4] = sequences(d);
  take[5] = positions(d);
  for (int i = 3; i < n->nin; i++) {
    const ZgType *t = &d->s->values[n->in[i]].type, *here = zp_step_type(d, in[i]);
    bool id = t->elem == ZG_I32 || t->elem == ZG_INDEX, key = zg_type_has(t, of.k);
    if (id && (!key || of.k == of.q)) take[count++] = in[i]; /* queries' own documents */
    if (id && key) take[count++] = put(d, in[i], group);
    if (!id) take[count++] = key && !zg_type_has(here, ax->position) ? put(d, in[i], group) : in[i];
  }
  ZgNode a = {.op = ZG_OP_ATTEND_PAGES,
              .nax = 8,
              .ax = {ax->token, of.h, of.w, ax->sequence, ax->entry, d->to->groups[group].page, ax->within,
                     ax->position},
              .num = {n->num[0], n->num[1]},
              .opt = {0, n->opt[1]}};
  return zp_step_node(d, a, take, (int)count, &to, 1);
}

uint32_t zp_step_own(ZpDerive *d, uint32_t value) {
  ZpCache c = {.kind = ZP_CACHE_OWN, .segment = d->k, .value = value, .loc = d->from->loc};
  c.type = zp_form_type(d, &d->s->values[value].type, ZP_AS_OWN);
  return add_cache(d, c);
}

/* Returns the input that says how long sequences' own values are along an axis. */
static uint32_t own_length(ZpDerive *d, uint16_t axis) {
  ZpStream *to = d->to;
  for (uint32_t i = 0; i < to->nlengths; i++)
    if (to->lengths[i].axis == axis) return to->lengths[i].input;
  const char *name = zb_printf(d->a, "step.length.%s", d->g->axes[axis].name);
  ZpOwnLength length = {axis, zp_step_input(d, name, zg_type(ZG_I32, &to->axis.sequence, 1))};
  ZB_PUSH(d->a, to->lengths, to->nlengths, length);
  return length.input;
}

uint32_t zp_step_attend_own(ZpDerive *d, const uint32_t *in, ZpForm form, ZgType to) {
  const ZgNode *n = d->from;
  ZgAttendAxes of = zg_attend_axes(n->ax, n->nax);
  uint32_t take[ZG_MAX_IN] = {in[0], in[1], in[2], zp_step_sequences(d, form)}, count = 4;
  for (int i = 3; i < n->nin; i++) take[count++] = in[i];
  if (!d->g->axes[of.k].size) take[count++] = zp_step_told(d, own_length(d, of.k));
  ZgNode a = {.op = ZG_OP_ATTEND_OWN,
              .nax = 5,
              .ax = {zp_form_axis(d, form), of.h, of.w, d->to->axis.sequence, of.k},
              .num = {n->num[0], n->num[1]}};
  return zp_step_node(d, a, take, (int)count, &to, 1);
}

/* ---- recurrences --------------------------------------------------------------------------------------- */
/* A scalar 1, the factor of a running sum. */
static uint32_t one(ZpDerive *d) {
  ZgType t = zg_type(ZG_REAL, NULL, 0);
  return zp_step_node(d, (ZgNode){.op = ZG_OP_FILL, .num = {1}}, NULL, 0, &t, 1);
}

uint32_t zp_step_recurrence(ZpDerive *d, const uint32_t *in, ZgType to) {
  const ZgNode *n = d->from;
  const ZpStreamAxes *ax = &d->to->axis;
  uint32_t take[ZG_MAX_IN], count = 0;
  bool linear = n->op == ZG_OP_LINEAR_ATTEND;
  if (n->op == ZG_OP_CUMSUM) take[count++] = one(d);
  for (int i = 0; i < n->nin; i++) take[count++] = in[i];
  ZgType state = to;
  state.elem = ZG_F32;
  take[count++] = kept(d, ZP_CACHE_STATE, 0, &state, (uint16_t[]){ax->sequence, n->ax[1]}, linear ? 2 : 1);
  take[count++] = sequences(d);
  take[count++] = positions(d);
  ZgNode scan = {.op = ZG_OP_RESUME_SCAN, .nax = 2, .ax = {ax->token, ax->sequence}};
  ZgNode sum = {.op = ZG_OP_RESUME_LINEAR,
                .nax = 4,
                .ax = {ax->token, n->ax[1], n->ax[2], ax->sequence},
                .opt = {n->opt[0]}};
  return zp_step_node(d, linear ? sum : scan, take, (int)count, &to, 1);
}

/* ---- tokens before ------------------------------------------------------------------------------------- */
/* Takes x of tokens before, as n has it but for its first axes, from as far back as `reach`. */
static uint32_t recent(ZpDerive *d, uint32_t x, int64_t reach, ZgNode n, const ZgType *to, int nto) {
  const ZpStreamAxes *ax = &d->to->axis;
  uint16_t places = zp_step_axis(d, zb_printf(d->a, "step.recent.%lld", (long long)reach), reach);
  uint32_t r = kept(d, ZP_CACHE_RECENT, 0, zp_step_type(d, x), (uint16_t[]){ax->sequence, places}, 2);
  n.op = ZG_OP_RECENT;
  n.ax[0] = ax->token, n.ax[1] = ax->sequence, n.ax[2] = places;
  return zp_step_node(d, n, (uint32_t[]){x, r, sequences(d), positions(d)}, 4, to, nto);
}

uint32_t zp_step_shifts(ZpDerive *d, uint32_t x, uint64_t which, ZgType to) {
  ZgType types[ZG_MAX_OUT];
  int n = __builtin_popcountll(which);
  int64_t by = d->from->opt[0], reach = which ? 63 - __builtin_clzll(which) : by;
  for (int i = 0; i < ZG_MAX_OUT; i++) types[i] = to;
  ZgNode shift = {.nax = 3, .num = {d->from->num[0]}, .opt = {which ? 0 : by, (int64_t)which}};
  return by ? recent(d, x, reach, shift, types, n ? n : 1) : x;
}

/* Its windows along time become an axis of tokens before, which the product sums over as over features: a
 * convolution along the other axes, if there are some. */
uint32_t zp_step_conv(ZpDerive *d, uint32_t x, uint32_t w, ZgType to) {
  const ZgNode *n = d->from;
  const ZgStream *along = &d->to->along;
  ZgNode rest = {.op = ZG_OP_CONV, .num = {n->num[0]}, .opt = {n->opt[0], n->opt[1]}},
         dot = {.op = ZG_OP_DOT};
  uint16_t tap = 0;
  for (int i = 0; i < n->nax / 3; i++) {
    if (along->names[zg_conv_axis(n->ax, i, ZG_CONV_X)]) tap = zg_conv_axis(n->ax, i, ZG_CONV_W);
    else
      for (int j = 0; j < 3; j++) rest.ax[rest.nax++] = n->ax[3 * i + j];
  }
  ZgType one = zg_type((ZgElem)zp_step_type(d, x)->elem, &tap, 1),
         window = zg_type_union(zp_step_type(d, x), &one);
  int64_t dilate = (int64_t)n->num[0], reach = (d->g->axes[tap].size - 1) * dilate;
  ZgNode windows = {.nax = 4, .ax = {[3] = tap}, .opt = {dilate}};
  x = reach ? recent(d, x, reach, windows, &window, 1) : zp_spread(d, x, window);
  uint32_t in[] = {x, w};
  if (rest.nax) return zp_step_node(d, rest, in, 2, &to, 1);
  const ZgType *tw = zp_step_type(d, w);
  for (int i = 0; i < window.naxes; i++)
    if (zg_type_has(tw, window.axis[i]) && !zg_type_has(&to, window.axis[i]))
      dot.ax[dot.nax++] = window.axis[i];
  return zp_step_node(d, dot, in, 2, &to, 1);
}

/* ---- positions ----------------------------------------------------------------------------------------- */
uint32_t zp_step_rope(ZpDerive *d, uint32_t x, ZgType to) {
  const ZgNode *n = d->from;
  ZgNode at = {.op = ZG_OP_ROPE_AT,
               .nax = 2,
               .ax = {d->to->axis.token, n->ax[1]},
               .num = {n->num[0]},
               .opt = {n->opt[0]}};
  return zp_step_node(d, at, (uint32_t[]){x, positions(d)}, 2, &to, 1);
}
