/* Warns of computation in f32 that spreads under `compute bf16`: where an f32 value meets activations the
 * result is f32, and so is everything made from it, through all layers. One forgotten `real(...)` costs twice
 * the memory and most of the speed, and nothing fails. Warnings name products and values that a repeat
 * carries.
 *
 * * Requested f32 gets no warning: `f32(...)` around the operand of a product, or around a value that a
 * repeat carries as it is; f32 inside norms, losses and routers; values without samples. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

/* The origin of an f32 value: `f32(...)`, an input, or an operation that combined it with another type. */
typedef enum { NOWHERE, ASKED, READ, MET } From;
typedef struct {
  From from;
  bool far;     /* it was carried into a repeat */
  uint32_t loc; /* where */
} Wide;

/* The f32 values that spread from one place. */
typedef struct {
  Wide wide;
  uint32_t products, product; /* how many, and where the first is */
  const char *repeat;         /* that carries it, by its label; NULL: none */
} Spread;

typedef struct {
  ZpBuild *b;
  const ZgGraph *g;
  const ZgSegment *s;
  Wide *wide;    /* by value of the segment */
  Wide *carried; /* by position carried into it */
  Spread *spread;
  uint32_t nspread;
} Search;

static bool is_float(const ZgType *t) {
  return t->elem == ZG_REAL || t->elem == ZG_F32 || t->elem == ZG_BF16;
}
static bool of_samples(const Search *c, const ZgType *t) {
  return is_float(t) && zg_type_has(t, c->b->p->asked.batch);
}

/* Returns which of two operands tells more about where to look. */
static Wide stronger(Wide a, Wide b) {
  bool spreads = b.from > ASKED || b.far;
  return a.from == NOWHERE || (spreads && a.from == ASKED && !a.far) ? b : a;
}

static Wide made_by(const Search *c, const ZgNode *n) {
  Wide w = {NOWHERE, false, n->loc};
  bool narrow = false, wide = false;
  for (int k = 0; k < n->nin; k++) {
    const ZgType *t = &c->s->values[n->in[k]].type;
    if (of_samples(c, t) && t->elem == ZG_F32) w = stronger(w, c->wide[n->in[k]]);
    wide |= t->elem == ZG_F32;
    narrow |= of_samples(c, t) && t->elem != ZG_F32;
  }
  if (n->op == ZG_OP_CAST) return narrow ? (Wide){ASKED, false, n->loc} : w;
  return narrow && wide ? (Wide){MET, false, n->loc} : w;
}

static Wide wide_of(const Search *c, const ZgNode *n) {
  const ZgType *t = &c->s->values[n->out].type;
  if (t->elem != ZG_F32 || !of_samples(c, t)) return (Wide){NOWHERE, false, 0};
  if (n->op == ZG_OP_INPUT) return (Wide){READ, false, c->g->inputs[n->opt[0]].loc};
  if (n->op != ZG_OP_CARRY) return made_by(c, n);
  Wide w = c->carried[n->opt[0]];
  w.far |= c->s->repeat;
  return w;
}

static Spread *spread_from(Search *c, Wide w) {
  for (uint32_t i = 0; i < c->nspread; i++)
    if (c->spread[i].wide.loc == w.loc && c->spread[i].wide.from == w.from) return &c->spread[i];
  ZB_PUSH(c->b->p->arena, c->spread, c->nspread, ((Spread){.wide = w}));
  return &c->spread[c->nspread - 1];
}

static void note_product(Search *c, const ZgNode *n) {
  Wide w = {NOWHERE, false, 0};
  if (!zg_op_info[n->op].products || c->s->values[n->out].type.elem != ZG_F32) return;
  for (int k = 0; k < n->nin; k++) w = stronger(w, c->wide[n->in[k]]);
  if (w.from < READ && !(w.from == ASKED && w.far)) return;
  Spread *s = spread_from(c, w);
  if (!s->products++) s->product = n->loc;
}

static void search_segment(Search *c, const ZgSegment *s) {
  ZbArena *a = c->b->p->arena;
  Wide *out = ZB_NEWN(a, Wide, s->ncarry_out + 1);
  c->s = s;
  c->wide = ZB_NEWN(a, Wide, s->nvalues + 1);
  for (uint32_t k = 0; s->repeat && k < s->ncarry_in; k++)
    if (c->carried[k].from >= READ) spread_from(c, c->carried[k])->repeat = s->label[0] ? s->label : "repeat";
  for (uint32_t i = 0; i < s->nforward; i++) {
    const ZgNode *n = &s->nodes[i];
    if (n->nout) c->wide[n->out] = wide_of(c, n), note_product(c, n);
    if (n->op == ZG_OP_CARRY_OUT) out[n->opt[0]] = c->wide[n->in[0]];
  }
  c->carried = out;
}

static void warn(const Search *c, const Spread *s) {
  static const char *const how[] = {[ASKED] = "`f32(...)`", [READ] = "an input", [MET] = "an f32 operand"};
  ZpPlan *p = c->b->p;
  const char *place = zp_loc_text(p, s->wide.loc);
  ZlDiag *d = zl_report(
      c->b->d, ZL_Z0210, p->asked.recipe->precision.span,
      "f32 spreads from %s, where %s makes a result f32: `compute bf16` does not hold for what is made of it",
      place, how[s->wide.from]);
  if (s->products)
    zl_note(d, "%u product%s of it %s in f32, the first at %s", s->products, s->products == 1 ? "" : "s",
            s->products == 1 ? "runs" : "run", zp_loc_text(p, s->product));
  if (s->repeat) zl_note(d, "the repeat `%s` carries it, as do pipeline stages: twice the bytes", s->repeat);
  zl_help(d,
          s->wide.from == MET ? "write `real(...)` around the f32 operand at %s"
                              : "write `real(...)` around what products take of it, after %s",
          place);
}

void zp_warn_wide(ZpBuild *b) {
  Search c = {.b = b, .g = b->g, .carried = ZB_NEW(b->p->arena, Wide)};
  if (zp_precision_elem(b->p->asked.recipe->precision.compute) == ZK_F32 || b->p->asked.batch == ZP_NONE)
    return;
  for (uint32_t i = 0; i < b->g->nsegments; i++) search_segment(&c, &b->g->segments[i]);
  for (uint32_t i = 0; i < c.nspread; i++) warn(&c, &c.spread[i]);
}
