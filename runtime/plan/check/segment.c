/* The local programs, of which instructions know no more than how many bytes they take.
 *
 * A value has the bytes of its sizes and its type, lies inside the block in which it is said to lie, and the
 * view that a call has of it is that. What a call reads has been made and nothing has been written over it
 * since; what it writes is nothing that it still reads, unless element by element, and belongs to its list:
 * forward saves, backward adds to gradients, the count has its temporaries alone. What is carried is made,
 * all of it, where the instance on the other side looks for it. What collectives read and make that go beside
 * calls, and their scratch, is nobody else's until they are complete.
 *
 * Shares nothing with memory.c and its like: all is derived again from the node lists, the mesh and the
 * graph. */
#include "graph/ragged.h"
#include "runtime/plan/check/layout.h"
#include "runtime/plan/text.h"

#include <string.h>

/* The spans of one place, which share no bytes, in the order of their offsets. */
typedef struct {
  uint64_t from, to;
  uint32_t value;
} Span;
typedef struct {
  Span *span;
  uint32_t n;
} Memory;

typedef struct {
  Local l;
  ZpPhase phase;
  const ZpNode *nodes, *n; /* the list's; the node that is looked at */
  uint32_t nnodes, at;     /* how many; its number */
  Memory memory[ZP_AT_SEED + 1];
  bool again;                        /* a second round of a region */
  const ZpNode *open[ZP_MOST_ASYNC]; /* collectives that are not complete */
  uint32_t nopen;
  bool *set; /* per parameter: something has been added to its gradient in this list */
} Walk;

static bool fail(const Walk *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(const Walk *w, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  const char *op = w->n && w->n->call.op < ZG_OP_COUNT ? zg_op_info[w->n->call.op].text : "";
  return zb_fail(w->l.c->err, NULL, "part %u, %s, %s (%s) %s", w->l.index, zp_phase_text[w->phase], op,
                 zp_loc_text(w->l.c->p, w->n ? w->n->loc : 0), text);
}

static const ZpValue *value(const Walk *w, uint32_t v) { return &w->l.s->values[v]; }
static bool is_row(const Walk *w, uint32_t v) {
  return zg_slot_axis(w->l.c->p->layout.experts, &value(w, v)->type) != ZG_NO_AXIS;
}
static uint64_t end_of(const ZpValue *v) { return v->at.offset + v->bytes; }
static bool same_place(const ZpValue *x, const ZpValue *y) {
  bool bucket = x->at.space == ZP_AT_GRAD || x->at.space == ZP_AT_PARAM;
  return x->at.space == y->at.space && (!bucket || x->at.index == y->at.index);
}
static bool overlap(const ZpValue *x, const ZpValue *y) {
  return same_place(x, y) && x->at.offset < end_of(y) && y->at.offset < end_of(x);
}
static bool same_bytes(const ZpValue *x, const ZpValue *y) {
  return same_place(x, y) && x->at.offset == y->at.offset && x->bytes == y->bytes;
}
static bool lie_alike(const ZpValue *x, const ZpValue *y) {
  bool same = x->elem == y->elem && x->type.naxes == y->type.naxes;
  for (int i = 0; same && i < x->type.naxes; i++) same = x->axis[i] == y->axis[i] && x->size[i] == y->size[i];
  return same;
}

/* ---- memory -------------------------------------------------------------------------------------------- */
/* Returns the first span that ends behind `at`. */
static uint32_t span_at(const Memory *m, uint64_t at) {
  uint32_t lo = 0, hi = m->n;
  while (lo < hi) {
    uint32_t mid = (lo + hi) / 2;
    if (m->span[mid].to <= at) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/* From now on `value` is there, and whatever had any of these bytes is not; ZP_NONE: nothing is. There
 * are bytes: no value has none. */
static void put(Walk *w, uint8_t place, uint64_t from, uint64_t to, uint32_t value) {
  Memory *m = &w->memory[place];
  uint32_t first = span_at(m, from), last = first, more = value != ZP_NONE;
  while (last < m->n && m->span[last].from < to) last++;
  if (!more && first == last) return;
  if (first == last) {
    Span none = {0};
    ZB_PUSH(w->l.c->a, m->span, m->n, none);
    memmove(&m->span[first + 1], &m->span[first], (m->n - 1 - first) * sizeof *m->span);
  } else {
    memmove(&m->span[first + more], &m->span[last], (m->n - last) * sizeof *m->span);
    m->n -= last - first - more;
  }
  if (more) m->span[first] = (Span){from, to, value};
}

static bool holds(const Walk *w, uint32_t v) {
  const ZpValue *x = value(w, v);
  const Memory *m = &w->memory[x->at.space];
  uint32_t i = span_at(m, x->at.offset);
  return i < m->n && m->span[i].value == v && m->span[i].from == x->at.offset && m->span[i].to == end_of(x);
}

/* ---- collectives beside calls -------------------------------------------------------------------------- */
static bool within(const Walk *w, uint32_t v, const ZpValue *x) { return overlap(value(w, v), x); }

/* Returns whether x may be written: no collective that is under way uses it. */
static bool is_free(const Walk *w, const ZpValue *x) {
  for (uint32_t k = 0; k < w->nopen; k++) {
    const ZpNode *n = w->open[k];
    bool meets = x->at.space == ZP_AT_TEMP && x->at.offset < n->scratch_at + n->scratch_bytes &&
                 n->scratch_at < end_of(x);
    for (int i = 0; i < n->call.nin; i++) meets |= within(w, n->in[i], x);
    for (int i = 0; i < n->call.nout; i++) meets |= within(w, n->out[i], x);
    if (meets)
      return fail(w, "writes over what `%s` (%s) still has", zg_op_info[n->call.op].text,
                  zp_loc_text(w->l.c->p, n->loc));
  }
  return true;
}

/* Returns whether compute goes on behind node n while it is under way. */
static bool goes_on(const Walk *w, const ZpNode *n) { return zp_is_async(n) && n->until > w->at + 1; }

/* Until when it may be under way. Those that wait for others of their group in between let nobody go on. */
static bool ends_well(const Walk *w) {
  const ZpNode *n = w->n;
  bool may = zp_is_async(n), one = may && !w->l.c->p->asked.pins;
  if (may ? n->until <= w->at || n->until > w->nnodes || (one && n->until != w->at + 1) : n->until != 0)
    return fail(w, "is complete when it cannot be: before node %u", n->until);
  if (w->nopen && (n->rounds || (zp_sends(n) && !may)))
    return fail(w, "waits for other ranks while a collective is under way");
  return !goes_on(w, n) || w->nopen < ZP_MOST_ASYNC || fail(w, "is one too many at the same time");
}

/* The result is there for those that come from now on. */
static void complete(Walk *w) {
  uint32_t left = 0;
  for (uint32_t k = 0; k < w->nopen; k++) {
    const ZpNode *n = w->open[k];
    if (n->until > w->at) {
      w->open[left++] = n;
      continue;
    }
    for (int j = 0; j < n->call.nout; j++) {
      const ZpValue *x = value(w, n->out[j]);
      put(w, x->at.space, x->at.offset, end_of(x), n->out[j]);
    }
  }
  w->nopen = left;
}

/* ---- operands ------------------------------------------------------------------------------------------ */
static bool may_read(const Walk *w, const ZpValue *v) {
  switch ((ZpSpace)v->at.space) {
  case ZP_AT_TEMP:
  case ZP_AT_INPUT: return true;
  case ZP_AT_SAVED:
  case ZP_AT_PARAM: return w->phase != ZP_COUNT;
  case ZP_AT_CARRY_IN: return w->phase == ZP_FWD || (w->phase == ZP_BWD && w->l.s->saves_carry);
  case ZP_AT_CARRY_OUT:
  case ZP_AT_CACHE: return w->phase == ZP_FWD;
  case ZP_AT_GRAD:
    return w->phase == ZP_BWD && w->n->call.op == ZG_OP_POINTWISE; /* to add to it: reads_gradient */
  case ZP_AT_DCARRY_IN:
  case ZP_AT_DCARRY_OUT: return w->phase == ZP_BWD;
  case ZP_AT_SEED: /* forward then waits for the count: operands.c */
    return w->phase != ZP_COUNT && !w->l.c->p->asked.forward_only;
  case ZP_AT_NOWHERE: break;
  }
  return false;
}

static bool is_made(uint8_t place) {
  return place == ZP_AT_TEMP || place == ZP_AT_SAVED || place == ZP_AT_CARRY_OUT || place == ZP_AT_DCARRY_IN;
}

static bool reads_one(const Walk *w, int i, uint32_t v) {
  const ZpValue *x = value(w, v);
  if (!zp_value_fits(&w->l, v)) return false;
  if (!may_read(w, x)) return fail(w, "reads operand %d where this list has nothing to read", i);
  if (is_made(x->at.space) && !holds(w, v))
    return fail(w, "reads operand %d (value %u), which is not there, or not any more", i, v);
  if (!zp_selects_as_the_model(&w->l, w->n, i))
    return fail(w, "selects by operand %d, an input by which the model does not", i);
  return true;
}

static bool reads(const Walk *w, int i) {
  const ZpValue *x = value(w, w->n->in[i]);
  for (int k = 0; k < x->nmembers; k++)
    if (!reads_one(w, i, x->member[k])) return false;
  return x->nmembers ? zp_group_fits(&w->l, w->n->in[i]) : reads_one(w, i, w->n->in[i]);
}

/* ---- results ------------------------------------------------------------------------------------------- */
/* Reads each element before it writes there; of cross-entropy's gradient, that of the logits. */
static bool in_place(const ZpNode *n, int operand) {
  if (n->call.op == ZG_OP_PUT_PAGES) return operand == 1; /* rows of tokens; the rest stays */
  if (n->call.op == ZG_OP_XENT_GRAD || n->call.op == ZG_OP_XENT_SUMS_GRAD)
    return operand == 0 && !n->call.pointwise;
  return n->call.op == ZG_OP_POINTWISE || n->call.op == ZG_OP_ALL_REDUCE || n->call.op == ZG_OP_LOCAL_PAD;
}

static bool may_write(const Walk *w, const ZpValue *x) {
  bool there = false;
  switch ((ZpSpace)x->at.space) {
  case ZP_AT_TEMP: return true;
  case ZP_AT_CARRY_OUT: return w->phase == ZP_FWD;
  case ZP_AT_CACHE: return w->n->call.op == ZG_OP_PUT_PAGES && same_bytes(x, value(w, w->n->in[1]));
  case ZP_AT_DCARRY_IN:
  case ZP_AT_GRAD: return w->phase == ZP_BWD;
  case ZP_AT_SAVED: /* what is read for the last time leaves its place to what is made of it */
    for (int i = 0; i < w->n->call.nin; i++) there |= same_bytes(x, value(w, w->n->in[i]));
    return w->phase == ZP_FWD || (w->phase == ZP_BWD && there);
  default: return false;
  }
}

/* Makes every element of its results. */
static bool makes_all(const ZpNode *n) {
  return n->call.op == ZG_OP_DOT || n->call.op == ZG_OP_GROUPED_OUTER || n->call.op == ZG_OP_DOT_BIAS_GRAD ||
         n->call.op == ZG_OP_CONV_GRAD || n->call.op == ZG_OP_SUM || n->call.op == ZG_OP_NORMALIZE_GRAD_SUMS;
}

/* Returns whether an accumulating call adds to result j; normalize_grad_sums adds to those that lack axes. */
static bool accumulates(const Walk *w, int j) {
  const ZpNode *n = w->n;
  bool sum = value(w, n->out[j])->type.naxes < value(w, n->out[0])->type.naxes;
  return n->call.accumulate && (n->call.op != ZG_OP_NORMALIZE_GRAD_SUMS || sum);
}

/* Result j adds to a gradient: by itself, or by a pointwise node that reads it. */
static bool adds(const Walk *w, int j, const ZpValue *x) {
  const ZpNode *n = w->n;
  if (accumulates(w, j)) return makes_all(n) || n->call.op == ZG_OP_LOOKUP_GRAD;
  for (int i = 0; n->call.op == ZG_OP_POINTWISE && i < n->call.nin; i++)
    if (same_bytes(x, value(w, n->in[i]))) return true;
  return false;
}

static bool writes_one(const Walk *w, int j, uint32_t v) {
  const ZpNode *n = w->n;
  const ZpValue *x = value(w, v);
  if (!zp_value_fits(&w->l, v)) return false;
  if (w->again && !is_row(w, v) && is_made(x->at.space) && !holds(w, v))
    return fail(w, "adds result %d to what is not there any more", j);
  if (!may_write(w, x)) return fail(w, "writes result %d where this list has nothing to write", j);
  if (!is_free(w, x)) return false;
  if (x->at.space == ZP_AT_GRAD ? !adds(w, j, x) : accumulates(w, j))
    return fail(w, "%s", accumulates(w, j) ? "adds to what is not a gradient" : "overwrites a gradient");
  for (int i = 0; i < n->call.nin; i++) {
    const ZpValue *y = value(w, n->in[i]);
    if (overlap(x, y) && !(in_place(n, i) && same_bytes(x, y) && lie_alike(x, y)))
      return fail(w, "writes result %d over operand %d", j, i);
  }
  for (int i = 0; i < j; i++)
    if (overlap(x, value(w, n->out[i]))) return fail(w, "writes results %d and %d into common bytes", i, j);
  return true;
}

static bool writes(Walk *w, int j) {
  uint32_t v = w->n->out[j];
  const ZpValue *x = value(w, v);
  if (!x->nmembers) {
    if (!writes_one(w, j, v)) return false;
    put(w, x->at.space, x->at.offset, end_of(x), goes_on(w, w->n) ? ZP_NONE : v);
    return true;
  }
  for (int k = 0; k < x->nmembers; k++)
    if (!writes_one(w, j, x->member[k])) return false;
  if (!zp_group_fits(&w->l, v)) return false;
  for (int k = 0; k < x->nmembers; k++)
    put(w, x->at.space, value(w, x->member[k])->at.offset, end_of(value(w, x->member[k])), x->member[k]);
  return true;
}

/* Checks that a call that writes a gradient instead of adding to it is the first to do so; the engine then
 * clears nothing. */
static bool begins(Walk *w) {
  const ZpNode *n = w->n;
  const ZpBucket *first = NULL;
  for (int j = 0; j < n->call.nout; j++) {
    const ZpValue *x = value(w, n->out[j]);
    uint32_t m = x->nmembers ? x->nmembers : 1;
    bool adds = accumulates(w, j);
    if (n->overwrites && (!makes_all(n) || !n->call.accumulate || adds != (x->at.space == ZP_AT_GRAD)))
      return fail(w, "begins what is not a gradient, or not all of one");
    if (x->at.space != ZP_AT_GRAD) continue;
    for (uint32_t k = 0; k < m; k++) {
      bool *set = &w->set[zp_slice_at(&w->l, x->nmembers ? value(w, x->member[k]) : x)->param];
      if (n->overwrites && *set) return fail(w, "begins a gradient to which something has been added");
      *set = true;
    }
    const ZpBucket *b = &w->l.c->p->programs.buckets[w->l.s->buckets[x->at.index]];
    bool together = !first || (first->segment == b->segment && zp_stages_grads(first) == zp_stages_grads(b) &&
                               first->nusers == b->nusers &&
                               !memcmp(first->users, b->users, b->nusers * sizeof *b->users));
    if (n->overwrites && !together) return fail(w, "begins two gradients that do not begin together");
    first = b;
  }
  return true;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
/* Checks that a call has the operands and scratch that its kernel takes, as the engine makes it: it writes
 * where nothing is there yet, and adds in later rounds. Shapes say it of collectives. */
static bool kernel_fits(const Walk *w) {
  const ZpNode *n = w->n;
  ZkCall call = n->call;
  bool again = n->rounds && (call.op == ZG_OP_COMBINE || call.op == ZG_OP_GROUPED_OUTER), fits = true;
  if (n->dims || zg_op_info[call.op].kind == ZG_SINK) return true;
  for (int adds = 0; adds < 2; adds++) {
    call.accumulate = adds;
    bool made = adds == n->call.accumulate || (adds ? again : n->overwrites);
    fits &= !made || n->scratch_bytes >= zp_kernel_scratch(&w->l, &call);
  }
  return fits;
}

/* Returns whether ranks along some dim make the same gradient of attention, which a device may add up in any
 * order: then all must get the same bits. */
static bool drifts(const Walk *w) {
  const ZpNode *n = w->n;
  const ZpMesh *m = &w->l.c->p->layout.mesh;
  if (n->dims || n->call.op != ZG_OP_ATTEND_GRAD || n->call.repeatable) return false;
  for (int d = 0; d < m->ndims; d++) {
    bool same = d != m->pipe && m->dim[d].size > 1;
    for (int i = 0; same && i < n->call.nin + n->call.nout; i++)
      same = value(w, i < n->call.nin ? n->in[i] : n->out[i - n->call.nin])->state[d].kind == 'R';
    if (same) return true;
  }
  return false;
}

static bool scratch(Walk *w) {
  const ZpNode *n = w->n;
  uint64_t end;
  if (!n->scratch_bytes) return true;
  if (n->scratch_at % 64 || !zb_add_u64(n->scratch_at, n->scratch_bytes, &end) || end > w->l.temp)
    return fail(w, "has its scratch outside of the temporaries");
  for (int i = 0; i < n->call.nin + n->call.nout; i++) {
    const ZpValue *x = value(w, i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]);
    if (x->at.space == ZP_AT_TEMP && x->at.offset < end && n->scratch_at < end_of(x))
      return fail(w, "has its scratch over an operand or result");
  }
  ZpValue all = {.bytes = n->scratch_bytes, .at = {.space = ZP_AT_TEMP, .offset = n->scratch_at}};
  if (!is_free(w, &all)) return false;
  put(w, ZP_AT_TEMP, n->scratch_at, end, ZP_NONE);
  return true;
}

static bool form(const Walk *w) {
  const ZpNode *n = w->n;
  if (w->l.c->p->asked.forward_only &&
      (w->phase == ZP_BWD || (n->call.op == ZG_OP_RANDOM && n->call.opt[1] == ZG_COIN)))
    return fail(w, "is nothing that a plan which only goes forward does");
  if (n->call.op < ZG_OP_COUNT && zg_op_info[n->call.op].steps && !w->l.c->p->stream)
    return fail(w, "is of steps of generation alone");
  if (n->call.op >= ZG_OP_COUNT || n->call.nin > ZK_MAX_IN || n->call.nout > ZK_MAX_OUT)
    return fail(w, "is not a call");
  if (n->dims & ~zp_all_dims(&w->l.c->p->layout.mesh)) return fail(w, "is not a collective within a stage");
  ZgOpKind class = zg_op_info[n->call.op].kind;
  if (class == ZG_SOURCE || class == ZG_EW) return fail(w, "is nothing that can be called");
  for (int i = 0; i < n->call.nin + n->call.nout; i++) {
    bool in = i < n->call.nin;
    uint32_t v = in ? n->in[i] : n->out[i - n->call.nin];
    if (v >= w->l.s->nvalues) return fail(w, "names a value that does not exist");
    if (!zp_view_fits(&w->l, v, in ? &n->call.in[i] : &n->call.out[i - n->call.nin]))
      return fail(w, "sees %s %d otherwise than it lies", in ? "operand" : "result",
                  in ? i : i - n->call.nin);
  }
  return true;
}

/* Checks that all values of a batched call are groups of one size, except for the shared operand. */
static bool group_sizes(const Walk *w) {
  const ZpNode *n = w->n;
  uint8_t size = n->call.nout ? value(w, n->out[0])->nmembers : 0;
  for (int i = 0; i < n->call.nin; i++)
    if (value(w, n->in[i])->nmembers && value(w, n->in[i])->nmembers != size)
      return fail(w, "has groups of different sizes");
  for (int j = 0; j < n->call.nout; j++)
    if (value(w, n->out[j])->nmembers != size) return fail(w, "has groups of different sizes");
  bool gemm = n->call.op == ZG_OP_DOT || n->call.op == ZG_OP_DOT_BIAS_GRAD;
  return !size || gemm || fail(w, "is a group of others than GEMMs");
}

static bool node(Walk *w) {
  const ZpNode *n = w->n;
  complete(w);
  if (!form(w) || !group_sizes(w)) return false;
  for (int i = 0; i < n->call.nin; i++)
    if (!reads(w, i)) return false;
  bool sink = zg_op_info[n->call.op].kind == ZG_SINK;
  const char *wrong = sink ? NULL : zp_axes_wrong(&w->l, n);
  if (!wrong) wrong = zp_packed_wrong(&w->l, n);
  if (!wrong)
    wrong = sink                        ? zp_sink_wrong(&w->l, n)
            : n->dims && !zp_is_ring(n) ? zp_collective_wrong(&w->l, n)
                                        : zp_sizes_wrong(&w->l, n);
  if (wrong) return fail(w, "%s", wrong);
  if (!ends_well(w) || !scratch(w)) return false;
  for (int j = 0; j < n->call.nout; j++)
    if (!writes(w, j)) return false;
  if (!kernel_fits(w)) return fail(w, "has not the scratch that its kernel takes");
  if (drifts(w)) return fail(w, "is made by several ranks, which may get other bits each");
  if (goes_on(w, n)) w->open[w->nopen++] = n;
  return w->again || begins(w);
}

/* ---- lists --------------------------------------------------------------------------------------------- */
/* Checks that all that leaves the instance is there. */
static bool leaves_all(Walk *w, uint8_t place, const ZgType *types, uint32_t n, const bool *has) {
  const Memory *m = &w->memory[place];
  uint32_t found = 0, want = 0;
  for (uint32_t k = 0; k < n; k++) want += !has || has[k];
  for (uint32_t i = 0; i < m->n; i++)
    found += m->span[i].from == zp_tuple_at(&w->l, types, value(w, m->span[i].value)->at.index, has);
  w->n = NULL;
  return found == want || fail(w, "makes %u of %u values that it carries", found, want);
}

/* Checks that every gradient that the graph makes is added to that of its parameter, and none to a frozen
 * one's. */
static bool adds_all(Walk *w) {
  const ZgSegment *g = w->l.gs;
  w->n = NULL;
  for (uint32_t i = 0; i < g->nnodes; i++) {
    if (g->nodes[i].op != ZG_OP_PARAM_GRAD) continue;
    int64_t k = g->nodes[i].opt[0];
    bool frozen = w->l.c->p->asked.frozen && w->l.c->p->asked.frozen[k];
    if (w->set[k] == frozen)
      return fail(w, "makes %s gradient of %s", frozen ? "a" : "no", w->l.c->p->graph->params[k].path);
  }
  return true;
}

/* Returns whether a list has to take that out: denominators where they are counted, all else in forward;
 * outputs if they are wanted. */
static bool is_taken_out(const Walk *w, ZgOp op) {
  if (w->phase == ZP_COUNT) return op == ZG_OP_LOSS_DEN;
  if (w->phase == ZP_BWD) return false;
  return op == ZG_OP_LOSS_NUM || op == ZG_OP_AUX || (op == ZG_OP_OUTPUT && w->l.c->p->asked.outputs);
}

/* Checks that each loss and output of the graph's segment is taken out once, under its own number. */
static bool takes_out_all(Walk *w) {
  const ZgSegment *g = w->l.gs;
  uint32_t want = 0, found = 0;
  for (uint32_t i = 0; i < w->nnodes; i++) found += zg_op_info[w->nodes[i].call.op].kind == ZG_SINK;
  w->n = NULL;
  for (uint32_t i = 0; i < g->nnodes; i++) {
    const ZgNode *n = &g->nodes[i];
    uint32_t same = 0, alike = 0;
    if (!is_taken_out(w, n->op)) continue;
    for (uint32_t k = 0; k < w->nnodes; k++)
      same += w->nodes[k].call.op == n->op && w->nodes[k].sink == (uint32_t)n->opt[0];
    for (uint32_t k = 0; k < g->nnodes; k++)
      alike += g->nodes[k].op == n->op && g->nodes[k].opt[0] == n->opt[0];
    if (same != alike)
      return fail(w, "takes out %u of %u `%s %u`", same, alike, zg_op_info[n->op].text, (uint32_t)n->opt[0]);
    want++;
  }
  return found == want || fail(w, "takes out %u numbers and outputs instead of %u", found, want);
}

/* ---- rounds -------------------------------------------------------------------------------------------- */
/* Rows of experts are gone when a round is over. */
static void forget_rows(Walk *w) {
  for (int place = 0; place <= ZP_AT_SEED; place++) {
    Memory *m = &w->memory[place];
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++)
      if (!is_row(w, m->span[i].value)) m->span[n++] = m->span[i];
    m->n = n;
  }
}

/* Returns the node that gives a region's rows their places: it counts the ends that the region's `round`
 * reads. */
static const ZpNode *slots_of(const Walk *w, const ZpNode *first) {
  const ZpNode *n = first;
  while (n-- > w->nodes)
    if (n->call.op == ZG_OP_SLOTS && n->call.nin == 1 && n->call.nout == 2 && n->out[1] == first->in[0])
      return n;
  return NULL;
}

/* Ranks play as many rounds as each other if they have gathered what they count, or have the same choices. */
static bool same_rounds(const Walk *w, const ZpNode *first, const ZpNode *slots) {
  const ZpMesh *m = &w->l.c->p->layout.mesh;
  const ZpValue *choices = value(w, slots->in[0]);
  for (int d = 0; d < m->ndims; d++)
    if ((w->n->dims & ~first->dims) >> d & 1 && m->dim[d].size > 1 && choices->state[d].kind != 'R')
      return false;
  return true;
}

/* Checks a node inside a region. Only the ranks that share rows know which are in a round, and how many
 * rounds there are: no other rank may be waited for, and what is added up must be linear in the rows. */
static bool in_round(Walk *w, const ZpNode *first, const ZpNode *slots) {
  const ZpNode *n = w->n;
  ZgOp op = n->call.op;
  if ((op == ZG_OP_ROUND) != (n == first))
    return fail(w, n == first ? "begins rounds without saying which" : "begins a round within one");
  if (!slots) return fail(w, "counts rows that have no places");
  if (!same_rounds(w, first, slots)) return fail(w, "waits for ranks that have other rounds");
  bool travels = op == ZG_OP_DISPATCH || op == ZG_OP_COMBINE;
  if (travels && n->in[1] != slots->out[0]) return fail(w, "has rows at other places than its round counts");
  if ((travels || op == ZG_OP_GROUPED_DOT || op == ZG_OP_GROUPED_OUTER) && n->in[2] != first->out[0])
    return fail(w, "has the rows of another round");
  for (int j = 0; j < n->call.nout; j++)
    if (!is_row(w, n->out[j]) && n != first && n->call.op != ZG_OP_COMBINE &&
        n->call.op != ZG_OP_GROUPED_OUTER)
      return fail(w, "gives out of rounds what is of the last one alone");
  const ZpValue *rows = n->call.op == ZG_OP_DISPATCH  ? value(w, n->out[0])
                        : n->call.op == ZG_OP_COMBINE ? value(w, n->in[0])
                                                      : NULL;
  if (rows && rows->size[0] * rows->size[1] != first->call.opt[1])
    return fail(w, "has another number of rows than its round");
  if (rows && n->dims != first->dims) return fail(w, "exchanges rows with others than those that it counts");
  return zg_op_info[n->call.op].kind != ZG_SINK || fail(w, "is taken out in every round");
}

/* Plays a region twice: what the second round reads and adds to must have outlived the first. */
static bool region(Walk *w, const ZpNode *first, const ZpNode *end) {
  const ZpNode *slots = slots_of(w, first);
  for (int round = 0; round < 2; round++) {
    forget_rows(w);
    w->again = round > 0;
    for (w->n = first, w->at = (uint32_t)(first - w->nodes); w->n < end; w->n++, w->at++)
      if (!form(w) || !in_round(w, first, slots) || !node(w)) return false;
  }
  w->again = false;
  forget_rows(w);
  return true;
}

static bool only_in_rounds(const Walk *w) {
  const ZpNode *n = w->n;
  for (int i = 0; i < n->call.nin + n->call.nout; i++)
    if (is_row(w, i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]))
      return fail(w, "has rows of experts outside of rounds");
  return true;
}

static bool list(Walk *w, ZpPhase phase) {
  const ZpList *l = &w->l.s->list[phase];
  w->phase = phase;
  w->l.temp = l->temp;
  w->nodes = l->nodes, w->nnodes = l->n;
  w->memory[ZP_AT_TEMP].n = 0;
  for (uint32_t i = 0, end; i < l->n; i = end) {
    w->n = &l->nodes[i];
    w->at = i;
    for (end = i + 1; w->n->rounds && end < l->n && l->nodes[end].rounds == w->n->rounds; end++) {}
    bool ok =
        w->n->rounds ? region(w, &l->nodes[i], &l->nodes[end]) : form(w) && only_in_rounds(w) && node(w);
    if (!ok) return false;
  }
  w->at = l->n;
  complete(w);
  const ZgSegment *g = w->l.gs;
  if (phase == ZP_BWD && w->l.c->p->asked.forward_only) return true;
  if (!takes_out_all(w)) return false;
  if (phase == ZP_FWD) return leaves_all(w, ZP_AT_CARRY_OUT, g->carry_out, g->ncarry_out, NULL);
  return phase != ZP_BWD ||
         (leaves_all(w, ZP_AT_DCARRY_IN, g->carry_in, g->ncarry_in, w->l.cotangents->in) && adds_all(w));
}

static bool segment(Check *c, uint32_t index) {
  const ZpSegment *s = &c->p->programs.segments[index];
  Walk w = {.l = {c, index, s, &c->p->graph->segments[index], &c->cotangents[index]}};
  w.set = ZB_NEWN(c->a, bool, c->p->graph->nparams);
  bool ok = zp_tuples_fit(&w.l);
  for (int k = 0; ok && k < ZP_PHASES; k++) ok = list(&w, (ZpPhase)k);
  return ok;
}

bool zp_check_segments(const ZpPlan *p, ZbErr *err) {
  Check c = {.p = p, .err = err, .a = zb_arena_new()};
  c.bound = *p->graph;
  c.bound.axes = ZB_NEWN(c.a, ZgAxis, p->graph->naxes + 1);
  for (uint32_t i = 0; i < p->graph->naxes; i++)
    c.bound.axes[i] = (ZgAxis){p->graph->axes[i].name, p->layout.axis_size[i]};
  bool ok = zp_check_facts(&c) && zp_check_cotangents(&c);
  for (uint32_t i = 0; ok && i < p->graph->nsegments; i++) ok = segment(&c, i);
  zb_arena_free(c.a);
  return ok;
}
