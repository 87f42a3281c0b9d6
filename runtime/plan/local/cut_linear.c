/* linear_attend in chunks, and its gradient. With S the state with which a chunk begins, it ends with p S + e,
 * where e is what it would end with from 0, and p is its decay: of all its tokens, e^(sum of g), of each
 * feature or of all. So
 *
 *   e = sum over its tokens of k e^(g of those after it) v      likewise of k2 and v2
 *
 * and S follows from the e and p of the chunks before (cut_sequences.c). Then the chunk goes over its tokens beginning
 * with S: as many tokens as k has features stand before them, whose keys are unit vectors and whose values are
 * the rows of S. Backward, X is the cotangent of what a chunk ends with. It follows likewise, in the other
 * order, from the cotangents of what chunks begin with that their own results alone make,
 *
 *   z = sum over its tokens of q e^(g up to it) g_o             and p X from those after it
 *
 * and as many tokens again stand behind the chunk's, whose queries are unit vectors and whose results have the
 * rows of X as cotangents. Exponents are of sums that begin at the chunk's end, or at its beginning: what is
 * far from there, and inexact, is 0.
 *
 * With a feedback p is a matrix of k and k. It and e are what the chunk ends with when it goes over its tokens
 * with columns of v for both: for p they are 0, and the state before them is one of unit vectors. The results
 * in these columns are the queries as they read S, in place of q e^g; backward makes both again. */
#include "runtime/plan/local/cut.h"

#include <string.h>

enum { Q, K, V, G, A, K2, V2, ROLES };

typedef struct {
  uint16_t k, v;
  uint16_t row; /* tokens that stand for the rows of a state */
  int64_t rows;
  uint32_t in[ROLES];  /* in chunks; ZG_NONE: not there */
  uint32_t own[ROLES]; /* of the old segment */
} Linear;

/* A chunk's contribution to the state: its end state when it starts from 0, the factor by which it multiplies
 * S, and the queries that read S. */
typedef struct {
  uint32_t end, queries;
  ZpFactor by;
} Ends;

/* ---- operands ------------------------------------------------------------------------------------------ */
static Linear read_operands(ZpCut *x) {
  const ZgNode *n = x->node;
  ZpPlan *p = x->p;
  int at = n->op == ZG_OP_LINEAR_ATTEND_GRAD;
  Linear l = {.k = n->ax[1], .v = n->ax[2], .rows = p->layout.axis_size[n->ax[1]]};
  l.row = zp_cut_axis(x, zb_printf(p->arena, "%s.%s", p->graph->axes[x->s].name, p->graph->axes[l.k].name),
                      l.rows, x->s);
  for (int r = 0; r < ROLES; r++) {
    int bit = zg_linear_bit(r);
    bool there = !bit || n->opt[0] & bit;
    l.own[r] = there ? n->in[at++] : ZG_NONE;
    l.in[r] = there ? zp_cut_part(x, l.own[r]) : ZG_NONE;
  }
  if (l.in[G] == ZG_NONE) return l;
  ZgType each = zg_type(ZG_F32, (uint16_t[]){x->chunk, x->in}, 2); /* also what all tokens have alike */
  l.in[G] = zp_cut_fit(x, l.in[G], &each);
  return l;
}

/* Logarithms of decays as the operation takes them. */
static uint32_t decays(ZpCut *x, const Linear *l) {
  uint32_t least = zp_cut_number(x, -100, zp_cut_type(x, l->in[G])->elem);
  return zp_cut_two(x, ZG_OP_MAX, l->in[G], least);
}

/* v times e^(g of all tokens after its own), or (upto) up to it and with it. */
static uint32_t decayed(ZpCut *x, const Linear *l, uint32_t v, bool upto) {
  ZgNode sum = {.op = ZG_OP_CUMSUM, .nax = 1, .ax = {x->in}, .opt = {!upto}};
  if (l->in[G] == ZG_NONE) return v;
  uint32_t g = decays(x, l), all = zp_cut_node(x, sum, 1, &g, NULL);
  if (!upto) all = zp_cut_two(x, ZG_OP_SUB, all, g);
  return zp_cut_two(x, ZG_OP_MUL, v, zp_cut_one(x, ZG_OP_EXP, all));
}

/* ---- tokens before and behind a chunk's ---------------------------------------------------------------- */
static uint32_t position(ZpCut *x, uint16_t axis) {
  return zp_cut_node(x, (ZgNode){.op = ZG_OP_POSITION, .nax = 1, .ax = {axis}}, 0, NULL, NULL);
}

/* Type t with rows in place of the chunk's tokens. */
static ZgType of_rows(const ZpCut *x, const Linear *l, const ZgType *t) {
  ZgType row = zg_type((ZgElem)t->elem, &l->row, 1), rest = zg_type_minus(t, &x->in, 1);
  return zg_type_union(&rest, &row);
}

static uint32_t zeros(ZpCut *x, const ZgType *t) { return zp_cut_fit(x, zp_cut_number(x, 0, t->elem), t); }

static uint32_t units(ZpCut *x, const Linear *l, uint16_t col, const ZgType *t) {
  ZgType both = zg_type(ZG_I32, (uint16_t[]){l->row, col}, 2);
  uint32_t row = zp_cut_fit(x, position(x, l->row), &both);
  return zp_cut_fit(x, zp_cut_cast(x, zp_cut_two(x, ZG_OP_EQUAL, row, position(x, col)), t->elem), t);
}

/* Returns the rows of a state as tokens of type t. */
static uint32_t rows_of(ZpCut *x, const Linear *l, uint32_t state, const ZgType *t) {
  return zp_cut_fit(x, zp_cut_rename(x, zp_cut_cast(x, state, t->elem), l->k, l->row), t);
}

static uint32_t joined(ZpCut *x, const Linear *l, uint16_t tokens, uint32_t before, uint32_t v,
                       uint32_t behind) {
  bool two = behind == ZG_NONE;
  ZgNode n = {.op = ZG_OP_CONCAT, .nax = two ? 3 : 4, .ax = {tokens, l->row, x->in, l->row}};
  return zp_cut_node(x, n, two ? 2 : 3, (uint32_t[]){before, v, behind}, NULL);
}

/* Operand r with the tokens that bring the state `start`, and (back) those that ask for the last one. */
static uint32_t with_rows(ZpCut *x, const Linear *l, int r, uint32_t start, bool back, uint16_t tokens) {
  uint32_t v = l->in[r];
  if (r == V) { /* each state has values of its own */
    ZgType each = zg_type_minus(zp_cut_type(x, start), &l->k, 1);
    v = zp_cut_fit(x, v, &each);
  }
  ZgType t = of_rows(x, l, zp_cut_type(x, v));
  uint32_t before = r == K ? units(x, l, l->k, &t) : r == V ? rows_of(x, l, start, &t) : zeros(x, &t);
  uint32_t behind = !back ? ZG_NONE : r == Q ? units(x, l, l->k, &t) : zeros(x, &t);
  return joined(x, l, tokens, before, v, behind);
}

static uint16_t tokens_axis(ZpCut *x, const Linear *l, int states) {
  const ZgAxis *axes = x->g->axes;
  const char *name = zb_printf(x->p->arena, "%s.%d%s", axes[x->in].name, states, axes[l->k].name);
  return zp_cut_axis(x, name, x->own + states * l->rows, x->s);
}

/* ---- states -------------------------------------------------------------------------------------------- */
static uint32_t written(ZpCut *x, const Linear *l, int key, int value) {
  ZgNode dot = {.op = ZG_OP_DOT, .nax = 1, .ax = {x->in}};
  return zp_cut_node(x, dot, 2, (uint32_t[]){decayed(x, l, l->in[key], false), l->in[value]}, NULL);
}

static Ends ends_of_decays(ZpCut *x, const Linear *l) {
  ZgNode sum = {.op = ZG_OP_SUM, .nax = 1, .ax = {x->in}};
  Ends e = {.end = written(x, l, K, V), .queries = decayed(x, l, l->in[Q], true), .by.v = ZG_NONE};
  if (l->in[K2] != ZG_NONE) e.end = zp_cut_two(x, ZG_OP_ADD, e.end, written(x, l, K2, V2));
  if (l->in[G] == ZG_NONE) return e;
  uint32_t g = decays(x, l);
  e.by.v = zp_cut_one(x, ZG_OP_EXP, zp_cut_node(x, sum, 1, &g, NULL));
  return e;
}

/* Axes that only a feedback has: columns of v and behind them those of the factor; k, as the factor's
 * columns. */
typedef struct {
  uint16_t wide, col, between, tokens;
  int64_t values;
} Wide;

static Wide wide_axes(ZpCut *x, const Linear *l) {
  const ZgAxis *axes = x->g->axes;
  const char *k = axes[l->k].name, *v = axes[l->v].name;
  ZbArena *a = x->p->arena;
  int64_t values = x->p->layout.axis_size[l->v];
  return (Wide){zp_cut_axis(x, zb_printf(a, "%s.and.%s", v, k), values + l->rows, l->v),
                zp_cut_axis(x, zb_printf(a, "%s.from", k), l->rows, l->k),
                zp_cut_axis(x, zb_printf(a, "%s.by", k), l->rows, l->k), tokens_axis(x, l, 2), values};
}

/* Values with columns for the factor, of the same type but for their axis. */
static uint32_t widened(ZpCut *x, const Wide *w, uint32_t v, uint32_t factor, uint16_t axis) {
  ZgNode n = {.op = ZG_OP_CONCAT, .nax = 3, .ax = {w->wide, axis, w->col}};
  return zp_cut_node(x, n, 2, (uint32_t[]){v, factor}, NULL);
}

/* Type t with columns of the factor in place of those of v. */
static ZgType of_factor(const Linear *l, const Wide *w, const ZgType *t) {
  ZgType col = zg_type((ZgElem)t->elem, &w->col, 1), rest = zg_type_minus(t, &l->v, 1);
  return zg_type_union(&rest, &col);
}

/* Values r over all tokens: of those before the chunk's the first pair has the unit vectors. */
static uint32_t wide_values(ZpCut *x, const Linear *l, const Wide *w, int r) {
  ZgType own = *zp_cut_type(x, l->in[r]), rows = of_rows(x, l, &own);
  ZgType own_factor = of_factor(l, w, &own), rows_factor = of_factor(l, w, &rows);
  uint32_t v = widened(x, w, l->in[r], zeros(x, &own_factor), l->v), none = zeros(x, &rows);
  uint32_t behind = widened(x, w, none, zeros(x, &rows_factor), l->v), before = behind;
  if (r == V) before = widened(x, w, none, units(x, l, w->col, &rows_factor), l->v);
  return joined(x, l, w->tokens, before, v, behind);
}

static Ends ends_of_feedback(ZpCut *x, const Linear *l) {
  const ZgNode *n = x->node;
  Wide w = wide_axes(x, l);
  ZgNode m = {.op = ZG_OP_LINEAR_ATTEND, .nax = 3, .ax = {w.tokens, l->k, w.wide}, .opt = {n->opt[0]}};
  uint32_t in[ZG_MAX_IN];
  int nin = 0;
  for (int r = 0; r < ROLES; r++)
    if (l->in[r] != ZG_NONE)
      in[nin++] = r == V || r == V2 ? wide_values(x, l, &w, r) : with_rows(x, l, r, ZG_NONE, true, w.tokens);
  uint32_t o = zp_cut_cast(x, zp_cut_node(x, m, nin, in, NULL), ZG_F32);
  uint32_t own = zp_cut_slice(x, o, w.tokens, x->in, l->rows, x->own);
  uint32_t last = zp_cut_slice(x, o, w.tokens, l->row, l->rows + x->own, l->rows);
  last = zp_cut_rename(x, last, l->row, l->k);
  Ends e = {.by = {.matrix = true, .row = l->k, .col = w.col, .between = w.between}};
  e.end = zp_cut_slice(x, last, w.wide, l->v, 0, w.values);
  e.by.v = zp_cut_slice(x, last, w.wide, w.col, w.values, l->rows);
  e.queries = zp_cut_rename(x, zp_cut_slice(x, own, w.wide, w.col, w.values, l->rows), w.col, l->k);
  return e;
}

static Ends ends_of(ZpCut *x, const Linear *l) {
  return l->in[A] == ZG_NONE ? ends_of_decays(x, l) : ends_of_feedback(x, l);
}

/* Returns the factor of what goes from chunk to chunk the other way. */
static ZpFactor transposed(ZpCut *x, ZpFactor by) {
  if (!by.matrix) return by;
  by.v = zp_cut_rename(x, by.v, by.row, by.between);
  by.v = zp_cut_rename(x, by.v, by.col, by.row);
  by.v = zp_cut_rename(x, by.v, by.between, by.col);
  return by;
}

/* Forward has made it, if it has gone over the same operands; ZG_NONE: it has not. */
static uint32_t known_start(const ZpCut *x) {
  const ZgNode *n = x->node;
  for (uint32_t i = 0; i < x->nstarts; i++) {
    const ZgNode *m = x->starts[i].node;
    bool same = m->opt[0] == n->opt[0] && !memcmp(m->ax, n->ax, 3 * sizeof *n->ax);
    if (same && !memcmp(m->in, n->in + 1, m->nin * sizeof *m->in)) return x->starts[i].start;
  }
  return ZG_NONE;
}

/* Returns what the cotangents `g` of a chunk's results say of the state with which it begins, of type t, by
 * the queries q that read that. */
static uint32_t back_to_start(ZpCut *x, uint32_t q, uint32_t g, const ZgType *t) {
  ZgNode dot = {.op = ZG_OP_DOT, .nax = 1, .ax = {x->in}};
  ZgType of_g = *zp_cut_type(x, g), of_q = *zp_cut_type(x, q);
  for (int i = 0; i < of_g.naxes; i++) /* rows that share a state */
    if (of_g.axis[i] != x->in && !zg_type_has(t, of_g.axis[i]) && zg_type_has(&of_q, of_g.axis[i]))
      dot.ax[dot.nax++] = of_g.axis[i];
  ZgType both = zg_type_union(&of_q, t);
  return zp_cut_node(x, dot, 2, (uint32_t[]){q, zp_cut_sum(x, g, &both)}, NULL);
}

/* ---- the operations ------------------------------------------------------------------------------------ */
static void cut_forward(ZpCut *x, const Linear *l) {
  const ZgNode *n = x->node;
  Ends e = ends_of(x, l);
  ZpStart s = {n, zp_cut_start(x, e.end, e.by, false)};
  uint16_t tokens = tokens_axis(x, l, 1);
  ZgNode m = {.op = n->op, .nax = 3, .ax = {tokens, l->k, l->v}, .opt = {n->opt[0]}};
  uint32_t in[ZG_MAX_IN];
  int nin = 0;
  for (int r = 0; r < ROLES; r++)
    if (l->in[r] != ZG_NONE) in[nin++] = with_rows(x, l, r, s.start, false, tokens);
  uint32_t o = zp_cut_slice(x, zp_cut_node(x, m, nin, in, NULL), tokens, x->in, l->rows, x->own);
  x->now[n->out] = zp_cut_merge(x, o, &x->from->values[n->out].type);
  ZB_PUSH(x->p->arena, x->starts, x->nstarts, s);
}

/* Returns the cotangents of results, `g`, with those of the last state, which all rows that share it have a
 * part of. */
static uint32_t results_with_rows(ZpCut *x, const Linear *l, uint32_t g, uint32_t last, uint16_t tokens) {
  ZgType t = of_rows(x, l, zp_cut_type(x, g));
  const ZgType *state = zp_cut_type(x, last);
  double share = 1;
  for (int i = 0; i < t.naxes; i++)
    if (t.axis[i] != l->row && !zg_type_has(state, t.axis[i]))
      share /= (double)x->p->layout.axis_size[t.axis[i]];
  if (share != 1) last = zp_cut_two(x, ZG_OP_MUL, last, zp_cut_number(x, share, state->elem));
  return joined(x, l, tokens, zeros(x, &t), g, rows_of(x, l, last, &t));
}

static void cut_backward(ZpCut *x, const Linear *l) {
  const ZgNode *n = x->node;
  uint32_t start = known_start(x), g = zp_cut_part(x, n->in[0]);
  Ends e = ends_of(x, l);
  if (start == ZG_NONE) start = zp_cut_start(x, e.end, e.by, false);
  ZgType state = *zp_cut_type(x, start);
  uint32_t last = zp_cut_start(x, back_to_start(x, e.queries, g, &state), transposed(x, e.by), true);
  uint16_t tokens = tokens_axis(x, l, 2);
  ZgNode m = {.op = n->op, .nax = 3, .ax = {tokens, l->k, l->v}, .opt = {n->opt[0]}};
  uint32_t in[ZG_MAX_IN] = {results_with_rows(x, l, g, last, tokens)}, old = n->out;
  int nin = 1;
  for (int r = 0; r < ROLES; r++)
    if (l->in[r] != ZG_NONE) in[nin++] = with_rows(x, l, r, start, true, tokens);
  uint32_t first = zp_cut_node(x, m, nin, in, NULL);
  for (int r = 0, i = 0; r < ROLES; r++) {
    if (l->in[r] == ZG_NONE) continue;
    const ZgType *was = &x->from->values[l->own[r]].type;
    uint32_t d = zp_cut_slice(x, first + (uint32_t)i++, tokens, x->in, l->rows, x->own);
    ZgType parts = zg_type((ZgElem)was->elem, (uint16_t[]){x->chunk, x->in}, 2);
    ZgType have = zg_type_has(was, x->s) ? zg_type_union(was, &parts) : *was;
    x->now[old++] = zp_cut_merge(x, zp_cut_sum(x, d, &have), &x->from->values[l->own[r]].type);
  }
}

/* Rows that share a state share what it becomes by a feedback: then queries must have no more than these. */
static bool reads_as_written(const ZgSegment *g, const ZgNode *n) {
  int q = n->op == ZG_OP_LINEAR_ATTEND_GRAD;
  ZgType rows = g->values[n->in[q + 1]].type;
  for (int i = q + 2; i < n->nin; i++) rows = zg_type_union(&rows, &g->values[n->in[i]].type);
  return zg_type_contains(&rows, &g->values[n->in[q]].type);
}

bool zp_linear_in_chunks(const ZpPlan *p, const ZgSegment *g, const ZgNode *n, int64_t ranks) {
  bool feed = n->opt[0] & ZG_LINEAR_FEED;
  double k = (double)p->layout.axis_size[n->ax[1]], v = (double)p->layout.axis_size[n->ax[2]],
         others = (double)(ranks - 1);
  double each = k * (feed ? k + v : v), states = each;
  for (int64_t far = 1; far < ranks - 1; far *= 2) states += each;
  double sequence = others * (double)(p->layout.axis_size[n->ax[0]] / ranks) * (2 * k + v);
  return states < sequence && (!feed || reads_as_written(g, n));
}

void zp_cut_linear(ZpCut *x) {
  Linear l = read_operands(x);
  if (x->node->op == ZG_OP_LINEAR_ATTEND) cut_forward(x, &l);
  else cut_backward(x, &l);
}
