/* Whether a model can be made token by token: a fixed point over segments and carried values, as the
 * compiler's sep.c has one over samples. See stream.h. */
#include "graph/stream.h"

#include <string.h>

#include "graph/ragged.h"

typedef struct {
  const ZgGraph *g;
  ZbArena *a;
  ZgStream *to;
  ZgAlong **inflow; /* by segment and carried position: what arrives at its start */
  bool *length;     /* by axis: how long it is differs from sequence to sequence; not batch and time */
  bool changed;
} Walk;

int zg_stream_axes(const ZgStream *s, const ZgType *t) {
  int n = 0;
  for (int i = 0; i < t->naxes; i++) n += s->names[t->axis[i]];
  return n;
}

/* ---- what the output depends on ------------------------------------------------------------------------ */
/* Marks what node `n` of segment k takes, if something that it makes is marked or is itself a way out. */
static void mark_operands(ZgStream *to, uint32_t k, const ZgNode *n, const bool *leaves, bool *enters) {
  bool *needed = to->needed[k], live = false;
  if (n->op == ZG_OP_OUTPUT) live = (uint32_t)n->opt[0] == to->output;
  if (n->op == ZG_OP_CARRY_OUT) live = leaves[n->opt[0]];
  for (int i = 0; i < n->nout; i++) live |= needed[n->out + (uint32_t)i];
  if (!live) return;
  for (int i = 0; i < n->nin; i++) needed[n->in[i]] = true;
  if (n->op == ZG_OP_INPUT) to->asked[n->opt[0]] = true;
  if (n->op == ZG_OP_CARRY) enters[n->opt[0]] = true;
}

/* Goes over the chain from its end. A repeat is gone over until no further position is carried around it. */
static void mark_needed(const ZgGraph *g, ZbArena *a, ZgStream *to) {
  bool *leaves = NULL;
  to->needed = ZB_NEWN(a, bool *, g->nsegments);
  to->asked = ZB_NEWN(a, bool, g->ninputs + 1);
  for (uint32_t k = g->nsegments; k-- > 0;) {
    const ZgSegment *s = &g->segments[k];
    bool *enters = ZB_NEWN(a, bool, s->ncarry_in + 1), again;
    to->needed[k] = ZB_NEWN(a, bool, s->nvalues + 1);
    do {
      again = false;
      for (uint32_t i = s->nforward; i-- > 0;) mark_operands(to, k, &s->nodes[i], leaves, enters);
      for (uint32_t i = 0; s->repeat && i < s->ncarry_in; i++)
        if (enters[i] && !leaves[i]) leaves[i] = again = true;
    } while (again);
    leaves = enters;
  }
}

/* ---- which axis is time -------------------------------------------------------------------------------- */
static const char *list_outputs(const ZgGraph *g, ZbArena *a) {
  ZbText t = {0};
  for (uint32_t i = 0; i < g->noutputs; i++) {
    zb_text_add(&t, "%s%s ", i ? ", " : "", g->outputs[i].name);
    zg_io_put(g, &t, &g->outputs[i]);
  }
  const char *s = zb_strdup(a, t.s ? t.s : "none");
  zb_text_free(&t);
  return s;
}

static bool known_name(const ZgIo *io, uint32_t n, const char *name) {
  bool known = name == NULL;
  for (uint32_t i = 0; i < n; i++) known |= name && !strcmp(io[i].name, name);
  return known;
}

/* Says whether output o is [batch, S, v] and input i index(v)[batch, S], and what S and v are. */
static bool fits(const ZgGraph *g, uint32_t o, uint32_t i, ZgStream *to) {
  const ZgType *out = &g->outputs[o].type, *in = &g->inputs[i].type;
  if (in->elem != ZG_INDEX || in->naxes != 2 || out->naxes != 3 || !zg_type_has(out, in->of)) return false;
  if (!zg_type_has(in, to->batch) || !zg_type_contains(out, in) || zg_type_has(in, in->of)) return false;
  to->time = in->axis[in->axis[0] == to->batch];
  to->words = in->of;
  to->output = o;
  to->tokens = i;
  return true;
}

/* Finds the one output, and the one input of tokens that it depends on. */
static bool find_time(const ZgGraph *g, ZbArena *a, const char *output, const char *tokens, ZgStream *to,
                      ZbErr *err) {
  ZbText which = {0};
  uint32_t found = 0, outputs = 0, last = ZG_NONE;
  ZgStream one = *to;
  if (!known_name(g->outputs, g->noutputs, output))
    return zb_fail(err, NULL, "%s has no output %s; its outputs: %s", g->model, output, list_outputs(g, a));
  if (!known_name(g->inputs, g->ninputs, tokens))
    return zb_fail(err, NULL, "%s has no input %s", g->model, tokens);
  for (uint32_t o = 0; o < g->noutputs; o++)
    for (uint32_t i = 0; i < g->ninputs; i++) {
      if ((output && strcmp(g->outputs[o].name, output)) || (tokens && strcmp(g->inputs[i].name, tokens)))
        continue;
      if (!fits(g, o, i, &one)) continue;
      mark_needed(g, a, &one);
      if (!one.asked[i]) continue;
      outputs += o != last, last = o;
      zb_text_add(&which, "%s%s from %s", found++ ? ", " : "", g->outputs[o].name, g->inputs[i].name);
      *to = one;
    }
  bool ok = found == 1;
  if (found > 1)
    zb_fail(err, outputs > 1 ? "--output NAME" : "--tokens NAME", "%s can write more than one text: %s",
            g->model, which.s);
  if (!found)
    zb_fail(err,
            "it takes `input tokens: index(vocab)[batch, seq]` and `output logits` of [batch, seq, vocab]",
            "%s does not write text: no output has `batch`, a time axis and the words of an input of tokens; "
            "its outputs: %s",
            g->model, list_outputs(g, a));
  zb_text_free(&which);
  return ok;
}

/* Finds the other names of time, forwards and backwards through `rename`. */
static void find_names(const ZgGraph *g, ZbArena *a, ZgStream *to) {
  bool more;
  to->names = ZB_NEWN(a, bool, g->naxes + 1);
  to->names[to->time] = true;
  do {
    more = false;
    for (uint32_t k = 0; k < g->nsegments; k++)
      for (uint32_t i = 0; i < g->segments[k].nforward; i++) {
        const ZgNode *n = &g->segments[k].nodes[i];
        if (n->op != ZG_OP_RENAME || to->names[n->ax[0]] == to->names[n->ax[1]]) continue;
        to->names[n->ax[0]] = to->names[n->ax[1]] = more = true;
      }
  } while (more);
}

/* ---- the rule ------------------------------------------------------------------------------------------ */
#define BY_HAND "let `attend[q, k, h](.., mask = causal, bias = ..)` compare them"

static const char *name(const Walk *w, uint16_t axis) { return w->g->axes[axis].name; }

static ZgAlong highest(ZgAlong a, ZgAlong b) {
  ZgAlong most = b.time > a.time ? b : a;
  most.sample = a.sample || b.sample;
  return most;
}

static bool along_keys(const Walk *w, const ZgType *t) {
  return zg_stream_axes(w->to, t) > zg_type_has(t, w->to->time);
}

/* Says what is in the way of an attend that goes along time; NULL: nothing. */
static const char *attend_blocked(const Walk *w, const ZgNode *n, const ZgType *in, const ZgAlong *st) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  const bool *time = w->to->names;
  if (!time[ax.q] && !time[ax.k])
    return zb_printf(w->a, "attend has `%s` as a feature", name(w, w->to->time));
  if (!time[ax.q])
    return zb_printf(w->a, "attend of `%s` looks at all of `%s`", name(w, ax.q), name(w, ax.k));
  if (ax.q != w->to->time || time[ax.h] || time[ax.w]) return "attend along keys";
  for (int i = 0; i < 3; i++)
    if (zg_stream_axes(w->to, &in[i]) > 1) return "attend of pairs of tokens";
  if (!time[ax.k]) { /* keys of another sequence, which is there as a whole */
    if (n->opt[0] || n->opt[1])
      return zb_printf(w->a, "attend compares positions of `%s` with those of `%s`", name(w, ax.q),
                       name(w, ax.k));
    for (int i = 1; i < n->nin; i++)
      if (zg_type_has(&in[i], ax.k) && st[i].time != ZG_TIMELESS)
        return zb_printf(w->a, "attend along `%s` has keys that change with the tokens", name(w, ax.k));
    return NULL;
  }
  if (!n->opt[0] && n->opt[1]) return "attend with a window on both sides sees later tokens";
  if (!n->opt[0]) return "attend with mask = none sees later tokens";
  return n->opt[0] == 2 ? "attend with mask = prefix sees later tokens of the prefix" : NULL;
}

/* The spatial axis of a convolution that is time, if it is causal and as long as it was. */
static bool conv_is_causal(const Walk *w, const ZgNode *n) {
  for (int d = 0; d < n->nax / 3; d++) {
    uint16_t x = zg_conv_axis(n->ax, d, ZG_CONV_X), y = zg_conv_axis(n->ax, d, ZG_CONV_Y);
    uint16_t window = zg_conv_axis(n->ax, d, ZG_CONV_W);
    if (w->to->names[window]) return false;
    if (!w->to->names[x] && !w->to->names[y]) continue;
    bool sees_no_later = n->opt[1] == ZG_CONV_CAUSAL || w->g->axes[window].size == 1;
    if (x != y || n->opt[0] != 1 || !sees_no_later) return false;
  }
  return true;
}

/* The same of another operation that is pinned along `axis`, a name of time. */
static const char *pinned_blocked(const Walk *w, const ZgNode *n, const ZgType *types, int ntypes,
                                  uint16_t axis) {
  const char *op = zg_op_info[n->op].text, *at = name(w, axis);
  if (n->op == ZG_OP_RENAME) return NULL;
  if (!zg_op_info[n->op].carries)
    return zb_printf(w->a,
                     zg_op_info[n->op].kind == ZG_MOVE ? "%s along `%s` moves positions"
                                                       : "%s along `%s` needs all tokens at once",
                     op, at);
  if (n->op == ZG_OP_CONV) {
    if (!conv_is_causal(w, n)) return zb_printf(w->a, "conv along `%s` is not causal with stride 1", at);
  } else if (axis != n->ax[0]) {
    return zb_printf(w->a, "%s has `%s` as a feature", op, at);
  }
  if ((n->op == ZG_OP_CUMSUM || n->op == ZG_OP_SCAN) && n->opt[0])
    return zb_printf(w->a, "%s in reverse begins with the last token", op);
  if (n->op == ZG_OP_SCAN && n->opt[1]) return "scan with late factors belongs to a gradient";
  if (n->op == ZG_OP_SHIFT && n->opt[0] < 0)
    return zb_printf(w->a, "shift by %lld looks at later tokens", (long long)n->opt[0]);
  for (int i = 0; i < ntypes; i++)
    if (along_keys(w, &types[i])) return zb_printf(w->a, "%s along keys", op);
  return NULL;
}

/* Says what is in the way of node n along the names of time; NULL: nothing. types: operands, then results. */
static const char *time_blocked(const Walk *w, const ZgNode *n, const ZgType *types, const ZgAlong *st) {
  for (uint16_t axis = 0; axis < w->g->naxes; axis++) {
    if (!w->to->names[axis]) continue;
    ZgAxisClass c = zg_axis_class(n, types, types + n->nin, axis);
    const char *why = NULL, *op = zg_op_info[n->op].text;
    if ((n->op == ZG_OP_LOOKUP || n->op == ZG_OP_ONEHOT) && n->ax[0] == axis)
      return zb_printf(w->a, "%s along `%s` takes any token", op, name(w, axis));
    if ((c == ZG_AXIS_SUM || c == ZG_AXIS_MAX) && n->op != ZG_OP_DISPATCH)
      return zb_printf(w->a, "%s over `%s` takes in later tokens", op, name(w, axis));
    if (c == ZG_AXIS_PIN && n->op == ZG_OP_ATTEND) why = attend_blocked(w, n, types, st);
    else if (c == ZG_AXIS_PIN) why = pinned_blocked(w, n, types, n->nin + n->nout, axis);
    if (why) return why;
  }
  return NULL;
}

/* Says whether node n mixes samples. Rows of experts are tokens', whoever is beside them. */
static bool mixes_samples(const Walk *w, const ZgNode *n, const ZgType *types) {
  ZgAxisClass c = zg_axis_class(n, types, types + n->nin, w->to->batch);
  return c != ZG_AXIS_ABSENT && c != ZG_AXIS_PAR && n->op != ZG_OP_DISPATCH;
}

/* Says what is in the way of a value that is made of no other. */
static const char *source_blocked(const Walk *w, const ZgNode *n, const ZgType *t) {
  uint16_t batch = w->to->batch;
  if (n->op == ZG_OP_AXSIZE && n->ax[0] == batch) return "size counts samples";
  if (n->op == ZG_OP_POSITION && n->ax[0] == batch) return "position numbers samples";
  if (n->op == ZG_OP_AXSIZE && w->to->names[n->ax[0]])
    return zb_printf(w->a, "size needs the length of `%s`", name(w, n->ax[0]));
  if (n->op == ZG_OP_RANDOM && n->opt[1] != ZG_COIN) return "random draws noise";
  if (n->op == ZG_OP_INPUT && !zg_type_has(t, batch) && !zg_stream_axes(w->to, t))
    return zb_printf(w->a, "input %s is of all samples at once", w->g->inputs[n->opt[0]].name);
  return NULL;
}

/* Says whether a value is as long as something of its sequence. */
static bool has_length(const Walk *w, const ZgNode *n, const ZgType *t) {
  bool has = n->op == ZG_OP_AXSIZE && w->length[n->ax[0]];
  for (int i = 0; i < t->naxes; i++) has |= w->length[t->axis[i]];
  return has;
}

static ZgAlong blocked(const ZgNode *n, const char *why, const char *help) {
  return (ZgAlong){.time = ZG_NONCAUSAL, .sample = true, .why = why, .help = help, .loc = n->loc};
}

/* What the results of a node are, given its operands. */
static ZgAlong step(const Walk *w, const ZgSegment *s, const ZgNode *n, const ZgAlong *st) {
  ZgType types[ZG_MAX_IN + ZG_MAX_OUT];
  ZgAlong most = {0};
  bool keys_differ = false; /* from token to token, in a way that no position says */
  int time = 0;             /* names of time that a result has */
  for (int i = 0; i < n->nin; i++) {
    if (st[i].time == ZG_NONCAUSAL) return st[i];
    most = highest(most, st[i]);
    types[i] = s->values[n->in[i]].type;
    bool keys = zg_stream_axes(w->to, &types[i]) == 1 && !zg_stream_has_time(w->to, &types[i]);
    keys_differ |= keys && (st[i].time == ZG_CAUSAL || st[i].sample);
  }
  for (int i = 0; i < n->nout; i++) {
    types[n->nin + i] = s->values[n->out + (uint32_t)i].type;
    int axes = zg_stream_axes(w->to, &types[n->nin + i]);
    most.sample |= has_length(w, n, &types[n->nin + i]);
    if (axes > time) time = axes;
    if (axes > 2 || (axes == 2 && !zg_stream_has_time(w->to, &types[n->nin + i])))
      keys_differ = true, time = 2;
  }
  const char *why = n->nin || !n->nout ? NULL : source_blocked(w, n, &types[0]);
  if (why) return blocked(n, why, NULL);
  if (mixes_samples(w, n, types))
    return blocked(n, zb_printf(w->a, "%s mixes samples", zg_op_info[n->op].text), NULL);
  why = time_blocked(w, n, types, st);
  if (why) return blocked(n, why, NULL);
  if (time > 1 && keys_differ)
    return blocked(n, zb_printf(w->a, "%s compares each token with all others", zg_op_info[n->op].text),
                   BY_HAND);
  bool attends = n->op == ZG_OP_ATTEND && w->to->names[n->ax[0]];
  if (n->op == ZG_OP_INPUT) return (ZgAlong){.time = time ? ZG_CAUSAL : ZG_TIMELESS, .sample = true};
  if (attends) return (ZgAlong){.time = ZG_CAUSAL, .sample = true};
  if (time && most.time == ZG_TIMELESS) most.time = ZG_POSITIONAL;
  return most;
}

/* ---- the fixed point ----------------------------------------------------------------------------------- */
static void flow_into(Walk *w, uint32_t segment, int64_t position, ZgAlong v) {
  ZgAlong *at = &w->inflow[segment][position], now = highest(*at, v);
  if (now.time == at->time && now.sample == at->sample) return;
  *at = now;
  w->changed = true;
}

static void walk_segment(Walk *w, uint32_t k) {
  const ZgSegment *s = &w->g->segments[k];
  ZgAlong *of = w->to->of[k];
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    ZgAlong st[ZG_MAX_IN], made;
    for (int j = 0; j < n->nin; j++) st[j] = of[n->in[j]];
    if (n->op == ZG_OP_CARRY_OUT) {
      if (k + 1 < w->g->nsegments) flow_into(w, k + 1, n->opt[0], st[0]);
      if (s->repeat) flow_into(w, k, n->opt[0], st[0]);
    }
    if (!n->nout) continue;
    bool settled = of[n->out].time == ZG_NONCAUSAL; /* it can only rise, so it has its reason already */
    if (settled) continue;
    made = n->op == ZG_OP_CARRY ? w->inflow[k][n->opt[0]] : step(w, s, n, st);
    for (int j = 0; j < n->nout; j++) of[n->out + (uint32_t)j] = made;
  }
}

static bool check_output(const Walk *w, ZbErr *err) {
  const ZgGraph *g = w->g;
  for (uint32_t k = 0; k < g->nsegments; k++)
    for (uint32_t i = 0; i < g->segments[k].nforward; i++) {
      const ZgNode *n = &g->segments[k].nodes[i];
      if (n->op != ZG_OP_OUTPUT || (uint32_t)n->opt[0] != w->to->output) continue;
      ZgAlong st = w->to->of[k][n->in[0]];
      const ZgLoc *l = &g->locs[st.loc];
      if (st.time == ZG_NONCAUSAL)
        return zb_fail(err, st.help, "%s cannot be made token by token along `%s`: %s (%s:%u:%u)", g->model,
                       name(w, w->to->time), st.why, l->file, l->line, l->col);
    }
  return true;
}

bool zg_stream(const ZgGraph *g, ZbArena *a, const char *output, const char *tokens, ZgStream *to,
               ZbErr *err) {
  Walk w = {.g = g, .a = a, .to = to};
  uint32_t batch = zg_axis_find(g, "batch");
  *to = (ZgStream){.batch = (uint16_t)batch};
  if (batch == ZG_NONE) return zb_fail(err, NULL, "%s does not write text: it has no axis `batch`", g->model);
  if (!find_time(g, a, output, tokens, to, err)) return false;
  find_names(g, a, to);
  const uint16_t *slots = zg_slot_axes(g, a, NULL);
  w.length = ZB_NEWN(a, bool, g->naxes + 1);
  for (uint32_t i = 0; i < g->naxes; i++)
    w.length[i] = !g->axes[i].size && i != batch && !to->names[i] && slots[i] == ZG_NO_AXIS;
  to->of = ZB_NEWN(a, ZgAlong *, g->nsegments);
  w.inflow = ZB_NEWN(a, ZgAlong *, g->nsegments);
  for (uint32_t k = 0; k < g->nsegments; k++) {
    to->of[k] = ZB_NEWN(a, ZgAlong, g->segments[k].nvalues + 1);
    w.inflow[k] = ZB_NEWN(a, ZgAlong, g->segments[k].ncarry_in + 1);
  }
  do {
    w.changed = false;
    for (uint32_t k = 0; k < g->nsegments; k++) walk_segment(&w, k);
  } while (w.changed);
  return check_output(&w, err);
}
