/* What every graph satisfies, whoever made it: see zg_verify in graph.h for the list. Called after each pass
 * of the compiler and at the end of loading a file, so it trusts the arrays' lengths and nothing else. */
#include "graph/ragged.h"

#include <math.h>
#include <string.h>

typedef struct {
  const ZgGraph *g;
  ZbErr *err;
  ZbArena *tmp;            /* tables for the names and flags of one call */
  uint32_t *used, *graded; /* by parameter: 1 + the last segment that used it, that has its gradient */
  uint8_t *outputs;        /* by output: how often it is made */
  uint16_t *experts;       /* by axis: whose slots it counts */
  /* By loss: 1 + the segment of its numerator, of its denominator. */
  uint32_t num[ZG_MAX_LOSSES], den[ZG_MAX_LOSSES];
} Ctx;

#define FAIL(c, ...) zb_fail((c)->err, NULL, __VA_ARGS__)

/* ---- names --------------------------------------------------------------------------------------------- */
#define MAX_NAME 255

/* Names of axes, tags, inputs, blocks: letters, digits, `_`; `.` joins the parts of paths and of labels of
 * unrolled repeats, `*` is an iteration. Nothing here can be a path out of a folder or break a log line. */
static bool name_ok(const char *s, bool may_be_empty, const char *more) {
  size_t n = strlen(s);
  if (n == 0) return may_be_empty;
  if (n > MAX_NAME || s[0] == '.' || s[n - 1] == '.' || strstr(s, "..")) return false;
  for (; *s; s++) {
    bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_';
    if (!word && !(strchr(more, *s))) return false;
  }
  return true;
}

/* File names are shown to people: any text without control bytes. */
static bool file_ok(const char *s) {
  if (strlen(s) > MAX_NAME) return false;
  for (; *s; s++)
    if ((unsigned char)*s < 0x20 || *s == 0x7f) return false;
  return true;
}

static bool check_name(Ctx *c, const char *what, uint32_t i, const char *s, const char *more) {
  if (name_ok(s, false, more)) return true;
  return FAIL(c, "%s %u has a name that is not well-formed", what, i);
}

/* True if all n names differ; a hash table of twice the size. */
static bool check_unique(Ctx *c, const char *what, const char *const *names, uint32_t n) {
  uint32_t size = 16;
  while (size < 2 * n) size *= 2;
  const char **table = ZB_NEWN(c->tmp, const char *, size);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t h = (uint32_t)zb_mix64(zb_stream(names[i])) & (size - 1);
    for (; table[h]; h = (h + 1) & (size - 1))
      if (!strcmp(table[h], names[i])) return FAIL(c, "the %s name %s occurs twice", what, names[i]);
    table[h] = names[i];
  }
  return true;
}

#define CHECK_UNIQUE(c, what, array, n, field, names)                                                        \
  const char **names = ZB_NEWN((c)->tmp, const char *, (n) + 1);                                             \
  for (uint32_t i_ = 0; i_ < (n); i_++) names[i_] = (array)[i_].field;                                       \
  if (!check_unique((c), what, names, (n))) return false

/* ---- tables -------------------------------------------------------------------------------------------- */
static bool type_ok(const ZgGraph *g, const ZgType *t) {
  if (t->elem >= ZG_ELEMS || t->naxes > ZG_MAX_AXES) return false;
  if (t->elem == ZG_INDEX ? t->of >= g->naxes : t->of != 0) return false;
  for (int i = 0; i < t->naxes; i++)
    if (t->axis[i] >= g->naxes || (i > 0 && t->axis[i] <= t->axis[i - 1])) return false;
  return true;
}

static bool check_axes(Ctx *c) {
  const ZgGraph *g = c->g;
  if (g->naxes > ZG_MAX_GRAPH_AXES)
    return FAIL(c, "%u axes, at most %d are possible", g->naxes, ZG_MAX_GRAPH_AXES);
  for (uint32_t i = 0; i < g->naxes; i++) {
    if (!check_name(c, "axis", i, g->axes[i].name, "")) return false;
    if (g->axes[i].size < 0 || g->axes[i].size > INT32_MAX)
      return FAIL(c, "axis %s has size %lld", g->axes[i].name, (long long)g->axes[i].size);
  }
  CHECK_UNIQUE(c, "axis", g->axes, g->naxes, name, names);
  for (uint32_t i = 0; i < g->ntags; i++)
    if (!check_name(c, "tag", i, g->tags[i], "")) return false;
  if (g->ntags > 32) return FAIL(c, "%u tags, at most 32 are possible", g->ntags);
  return check_unique(c, "tag", g->tags, g->ntags);
}

static bool is_order(const uint8_t *order, int n) {
  unsigned seen = 0;
  for (int i = 0; i < n; i++)
    if (order[i] < n) seen |= 1u << order[i];
  return seen == (1u << n) - 1;
}

static bool check_io(Ctx *c, const char *what, const ZgIo *io, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (!check_name(c, what, i, io[i].name, "")) return false;
    if (!type_ok(c->g, &io[i].type) || io[i].loc >= c->g->nlocs)
      return FAIL(c, "%s %s has no valid type", what, io[i].name);
    if (io[i].order && !is_order(io[i].order, io[i].type.naxes))
      return FAIL(c, "%s %s: the order of its axes is not an order", what, io[i].name);
  }
  CHECK_UNIQUE(c, what, io, n, name, names);
  return true;
}

static bool check_regions(Ctx *c) {
  const ZgGraph *g = c->g;
  uint8_t *depth = ZB_NEWN(c->tmp, uint8_t, g->nregions + 1);
  for (uint32_t i = 0; i < g->nregions; i++) {
    const ZgRegion *r = &g->regions[i];
    bool model = r->kind == ZG_REGION_MODEL;
    if (r->kind > ZG_REGION_REPEAT || model != (i == 0) || (model ? r->parent != ZG_NONE : r->parent >= i))
      return FAIL(c, "region %u has the wrong kind or parent", i);
    depth[i] = model ? 0 : depth[r->parent] + 1;
    if (depth[i] > ZG_MAX_DEPTH) return FAIL(c, "region %u is more than %d deep", i, ZG_MAX_DEPTH);
    if (!name_ok(r->label, true, ".") || !name_ok(r->block, true, "."))
      return FAIL(c, "region %u has a name that is not well-formed", i);
  }
  return g->nregions > 0 || FAIL(c, "no region for the model");
}

static bool check_locs(Ctx *c) {
  const ZgGraph *g = c->g;
  for (uint32_t i = 0; i < g->nlocs; i++)
    if (!file_ok(g->locs[i].file)) return FAIL(c, "place %u has a file name that is not well-formed", i);
  return g->nlocs > 0 || FAIL(c, "no place number 0");
}

static bool init_ok(const ZgParam *p, const double num[2]) {
  bool cut = p->init == ZG_INIT_TRUNC_NORMAL && num[1] != 0;
  return p->init <= ZG_INIT_TRUNC_NORMAL && isfinite(num[0]) && isfinite(num[1]) &&
         (!cut || num[1] >= ZG_LEAST_CUT);
}

static bool check_param(Ctx *c, uint32_t i) {
  const ZgGraph *g = c->g;
  const ZgParam *p = &g->params[i];
  if (!check_name(c, "parameter", i, p->path, ".*")) return false;
  if (!type_ok(g, &p->type) || p->type.elem != ZG_REAL)
    return FAIL(c, "parameter %s has no valid type", p->path);
  for (int a = 0; a < p->type.naxes; a++)
    if (g->axes[p->type.axis[a]].size == 0)
      return FAIL(c, "parameter %s has the data axis %s", p->path, g->axes[p->type.axis[a]].name);
  uint64_t elements;
  if (!zg_elements(g, &p->type, &elements))
    return FAIL(c, "parameter %s has more than 2^48 elements", p->path);
  if (!is_order(p->order, p->type.naxes))
    return FAIL(c, "parameter %s: the order of its axes is not an order", p->path);
  if (!init_ok(p, p->num)) return FAIL(c, "parameter %s has no valid initialiser", p->path);
  if (g->ntags < 32 && p->tags >> g->ntags)
    return FAIL(c, "parameter %s has a tag that does not exist", p->path);
  if (p->loc >= g->nlocs) return FAIL(c, "parameter %s has no valid place", p->path);
  if (p->segment != ZG_NONE && (p->segment >= g->nsegments || !g->segments[p->segment].repeat))
    return FAIL(c, "parameter %s belongs to a repeat that does not exist", p->path);
  for (uint32_t k = 0; p->each && p->segment != ZG_NONE && k < g->segments[p->segment].trip; k++)
    if (!init_ok(p, p->each[k]))
      return FAIL(c, "parameter %s has no valid initialiser in iteration %u", p->path, k);
  const char *star = strchr(p->path, '*');
  if ((p->each && p->segment == ZG_NONE))
    return FAIL(c, "parameter %s has initial values by iteration, and is of no repeat", p->path);
  if ((star != NULL) != (p->segment != ZG_NONE) || (star && strchr(star + 1, '*')))
    return FAIL(c, "parameter %s: a path has one * in a repeat and none elsewhere", p->path);
  return true;
}

/* Elementwise steps, of `first` registers and of what was computed before. */
static bool check_steps(Ctx *c, const ZgParam *p, const ZgUpdate *u, uint32_t first, const char *what) {
  for (uint32_t i = 0; i < u->n; i++) {
    const ZgUpdateStep *s = &u->steps[i];
    bool none = s->op >= ZG_OP_COUNT || zg_op_info[s->op].kind != ZG_EW || s->op == ZG_OP_CAST ||
                s->op == ZG_OP_AXSIZE || s->op == ZG_OP_KNOWN;
    int operands = none ? 0 : zg_op_info[s->op].max_in;
    bool idle = (s->a && operands < 1) || (s->b && operands < 2) || (s->c && operands < 3) ||
                (s->op != ZG_OP_FILL && (s->num != 0 || signbit(s->num)));
    if (none || idle || s->a >= first + i || s->b >= first + i || s->c >= first + i || !isfinite(s->num))
      return FAIL(c, "parameter %s: step %u of its %s is none", p->path, i, what);
  }
  return true;
}

/* An update is of a state, and of what was computed before. */
static bool check_update(Ctx *c, const ZgParam *p) {
  if (!p->update) return true;
  const ZgUpdate *u = p->update;
  if (!p->state || u->n < 1 || u->n > ZG_MAX_UPDATE)
    return FAIL(c, "parameter %s has an update of %u steps", p->path, u->n);
  return check_steps(c, p, u, 2, "update");
}

/* Places along axes, the iteration, and what was computed before. Nothing else says what the value is. */
static bool check_formula(Ctx *c, const ZgParam *p) {
  if (!p->formula) return true;
  if (p->formula->n < 1 || p->formula->n > ZG_MAX_FORMULA || p->init != ZG_INIT_CONST || p->num[0] != 0 ||
      p->each)
    return FAIL(c, "parameter %s has no valid initial value by position", p->path);
  return check_steps(c, p, p->formula, p->type.naxes + 1u, "initial value");
}

static bool check_params(Ctx *c) {
  const ZgGraph *g = c->g;
  for (uint32_t i = 0; i < g->nparams; i++)
    if (!check_param(c, i) || !check_update(c, &g->params[i]) || !check_formula(c, &g->params[i]))
      return false;
  if (zg_param_count(g) > ZG_MAX_ELEMENTS) return FAIL(c, "the parameters have more than 2^48 elements");
  CHECK_UNIQUE(c, "parameter", g->params, g->nparams, path, names);
  return true;
}

/* ---- segments ------------------------------------------------------------------------------------------ */
/* What the nodes of one segment said, by position or number: how often. */
typedef struct {
  uint8_t *carry, *carry_out, *dcarry, *dcarry_in;
  uint32_t aux, measures, seeds[1 + ZG_MAX_LOSSES]; /* seeds[0]: of aux terms */
} Seen;

/* Which half of a segment an op may stand in. */
static bool forward_only(uint16_t op) {
  switch (op) {
  case ZG_OP_PARAM:
  case ZG_OP_INPUT:
  case ZG_OP_CARRY:
  case ZG_OP_RANDOM:
  case ZG_OP_CARRY_OUT:
  case ZG_OP_MEASURE:
  case ZG_OP_LOSS_NUM:
  case ZG_OP_LOSS_DEN:
  case ZG_OP_AUX:
  case ZG_OP_OUTPUT: return true;
  }
  return false;
}
static bool backward_only(uint16_t op) {
  switch (op) {
  case ZG_OP_DCARRY:
  case ZG_OP_SEED:
  case ZG_OP_DCARRY_IN:
  case ZG_OP_PARAM_GRAD:
  case ZG_OP_SOFTMAX_GRAD:
  case ZG_OP_NORMALIZE_GRAD:
  case ZG_OP_CONV_GRAD:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD:
  case ZG_OP_LINEAR_ATTEND_GRAD:
  case ZG_OP_LOOKUP_GRAD:
  case ZG_OP_XENT_GRAD: return true;
  }
  return false;
}

static bool inside(const ZgGraph *g, uint32_t region, uint32_t of) {
  while (region != of && region != ZG_NONE) region = g->regions[region].parent;
  return region == of;
}

#define NODE_FAIL(c, s, i, ...) node_fail((c), (s), (i), __VA_ARGS__)
static bool node_fail(Ctx *c, uint32_t s, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static bool node_fail(Ctx *c, uint32_t s, uint32_t i, const char *fmt, ...) {
  char why[768];
  const ZgNode *n = &c->g->segments[s].nodes[i];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  return FAIL(c, "segment %u, node %u (%s): %s", s, i, n->op < ZG_OP_COUNT ? zg_op_info[n->op].text : "?",
              why);
}

/* The node by itself: numbers in range, operands before, types as inferred. */
static bool check_node(Ctx *c, uint32_t si, uint32_t i, uint32_t values) {
  const ZgGraph *g = c->g;
  const ZgSegment *s = &g->segments[si];
  const ZgNode *n = &s->nodes[i];
  if (n->op >= ZG_OP_COUNT || n->nin > ZG_MAX_IN || n->nax > ZG_MAX_AXARG)
    return NODE_FAIL(c, si, i, "no such op");
  if (n->nout != zg_outs(n->op, n->opt) || n->out != values || n->nout > s->nvalues - values)
    return NODE_FAIL(c, si, i, "its results are not the next values");
  if (n->loc >= g->nlocs || n->region >= g->nregions) return NODE_FAIL(c, si, i, "no such place or region");
  if (!inside(g, n->region, s->region)) return NODE_FAIL(c, si, i, "it is outside of its segment's region");
  const ZgOpInfo *a = &zg_op_info[n->op];
  if ((!a->num && n->num[0] != 0) || (!a->num1 && n->num[1] != 0) || (!a->opt[0] && n->opt[0]) ||
      (!a->opt[1] && n->opt[1]))
    return NODE_FAIL(c, si, i, "an attribute that it does not have is set");
  for (int k = 0; k < 2; k++)
    if (a->plans >> k & 1 && n->opt[k])
      return NODE_FAIL(c, si, i, "`%s` is set, which only plans do", a->opt[k]);
  if (i < s->nforward ? backward_only(n->op) : forward_only(n->op))
    return NODE_FAIL(c, si, i, "it does not belong among the %s nodes",
                     i < s->nforward ? "forward" : "backward");

  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  for (int k = 0; k < n->nin; k++) {
    if (n->in[k] >= values) return NODE_FAIL(c, si, i, "operand %d is not defined before it", k);
    in[k] = s->values[n->in[k]].type;
  }
  for (int k = 0; k < n->nout; k++)
    if (!type_ok(g, &s->values[n->out + k].type) || s->values[n->out + k].node != i)
      return NODE_FAIL(c, si, i, "result %d has no valid type", k);
  uint64_t elements;
  for (int k = 0; k < n->nout; k++)
    if (!zg_elements(g, &s->values[n->out + k].type, &elements))
      return NODE_FAIL(c, si, i, "result %d has more than 2^48 elements", k);
  ZbErr why;
  if (!zg_infer(g, n, in, n->nout ? &s->values[n->out].type : NULL, out, &why))
    return NODE_FAIL(c, si, i, "%s", why.text);
  if (!zg_ragged_fits(g, s, c->experts, n, out, i >= s->nforward, &why))
    return NODE_FAIL(c, si, i, "%s", why.text);
  for (int k = 0; k < n->nout; k++)
    if (!zg_type_eq(&out[k], &s->values[n->out + k].type)) {
      return NODE_FAIL(c, si, i, "result %d is %s, its operands make it %s", k,
                       zg_type_text(g, c->tmp, &s->values[n->out + k].type),
                       zg_type_text(g, c->tmp, &out[k]));
    }
  return true;
}

/* One more node at carried position opt[0] of `n` positions. */
static bool at_position(Ctx *c, uint32_t si, uint32_t i, uint8_t *seen, uint32_t n, const ZgType *carried,
                        const ZgType *type) {
  int64_t k = c->g->segments[si].nodes[i].opt[0];
  if (k < 0 || k >= n) return NODE_FAIL(c, si, i, "position %lld of %u", (long long)k, n);
  if (seen[k]++) return NODE_FAIL(c, si, i, "a second one at position %lld", (long long)k);
  if (zg_type_eq(&carried[k], type)) return true;
  return NODE_FAIL(c, si, i, "position %lld carries %s, not %s", (long long)k,
                   zg_type_text(c->g, c->tmp, &carried[k]), zg_type_text(c->g, c->tmp, type));
}

/* The numerator or the denominator of a loss; `where` has the segment of each, plus 1. */
static bool at_loss(Ctx *c, uint32_t si, uint32_t i, uint32_t *where) {
  int64_t k = c->g->segments[si].nodes[i].opt[0];
  if (where[k]) return NODE_FAIL(c, si, i, "a second one of loss %lld", (long long)k);
  where[k] = si + 1;
  return true;
}

/* The node's part in what leaves and enters the segment. */
static bool check_role(Ctx *c, uint32_t si, uint32_t i, Seen *seen) {
  const ZgGraph *g = c->g;
  const ZgSegment *s = &g->segments[si];
  const ZgNode *n = &s->nodes[i];
  const ZgType *t = n->nout ? &s->values[n->out].type : n->nin ? &s->values[n->in[0]].type : NULL;
  int64_t k = n->opt[0];
  switch (n->op) {
  case ZG_OP_CARRY: return at_position(c, si, i, seen->carry, s->ncarry_in, s->carry_in, t);
  case ZG_OP_DCARRY_IN: return at_position(c, si, i, seen->dcarry_in, s->ncarry_in, s->carry_in, t);
  case ZG_OP_CARRY_OUT: return at_position(c, si, i, seen->carry_out, s->ncarry_out, s->carry_out, t);
  case ZG_OP_DCARRY: return at_position(c, si, i, seen->dcarry, s->ncarry_out, s->carry_out, t);
  case ZG_OP_PARAM:
    if (g->params[k].segment != ZG_NONE && g->params[k].segment != si)
      return NODE_FAIL(c, si, i, "parameter %s belongs to another segment", g->params[k].path);
    c->used[k] = si + 1;
    return true;
  case ZG_OP_PARAM_GRAD:
    seen->measures += g->params[k].state;
    if (c->used[k] != si + 1 && !g->params[k].state)
      return NODE_FAIL(c, si, i, "parameter %s is not used here", g->params[k].path);
    if (c->graded[k] == si + 1) return NODE_FAIL(c, si, i, "a second one of %s", g->params[k].path);
    c->graded[k] = si + 1;
    return true;
  case ZG_OP_OUTPUT:
    if (s->repeat) return NODE_FAIL(c, si, i, "an output inside of a repeat");
    if (c->outputs[k]++) return NODE_FAIL(c, si, i, "a second one of %s", g->outputs[k].name);
    return true;
  case ZG_OP_LOSS_NUM:
  case ZG_OP_LOSS_DEN:
    if (s->repeat) return NODE_FAIL(c, si, i, "a loss inside of a repeat");
    return at_loss(c, si, i, n->op == ZG_OP_LOSS_NUM ? c->num : c->den);
  case ZG_OP_AUX: seen->aux++; return true;
  case ZG_OP_MEASURE:
    if (!g->params[k].state || !g->params[k].update)
      return NODE_FAIL(c, si, i, "parameter %s is not updated", g->params[k].path);
    if (g->params[k].segment != ZG_NONE && g->params[k].segment != si)
      return NODE_FAIL(c, si, i, "parameter %s is of another repeat", g->params[k].path);
    return true;
  case ZG_OP_SEED:
    if (k == 0 && c->num[n->opt[1]] != si + 1) return NODE_FAIL(c, si, i, "the loss is in another segment");
    if (seen->seeds[k ? 0 : 1 + n->opt[1]]++) return NODE_FAIL(c, si, i, "a second one of its kind");
    return true;
  }
  return true;
}

/* A loss is numerator / denominator over a whole step, so the denominator must be known before training. */
static bool check_denominators(Ctx *c, uint32_t si) {
  const ZgSegment *s = &c->g->segments[si];
  bool *needed = ZB_NEWN(c->tmp, bool, s->nvalues + 1);
  for (uint32_t i = s->nforward; i-- > 0;) {
    const ZgNode *n = &s->nodes[i];
    bool use = n->op == ZG_OP_LOSS_DEN;
    for (int k = 0; k < n->nout; k++) use |= needed[n->out + k];
    if (!use) continue;
    if (n->op == ZG_OP_PARAM || n->op == ZG_OP_CARRY || n->op == ZG_OP_RANDOM)
      return NODE_FAIL(c, si, i, "the denominator of the loss may depend on inputs only");
    for (int k = 0; k < n->nin; k++) needed[n->in[k]] = true;
  }
  return true;
}

static bool check_segment(Ctx *c, uint32_t si, Seen *seen) {
  const ZgGraph *g = c->g;
  const ZgSegment *s = &g->segments[si];
  *seen = (Seen){.carry = ZB_NEWN(c->tmp, uint8_t, s->ncarry_in + 1),
                 .carry_out = ZB_NEWN(c->tmp, uint8_t, s->ncarry_out + 1),
                 .dcarry = ZB_NEWN(c->tmp, uint8_t, s->ncarry_out + 1),
                 .dcarry_in = ZB_NEWN(c->tmp, uint8_t, s->ncarry_in + 1)};
  if (!name_ok(s->label, true, ".")) return FAIL(c, "segment %u has a label that is not well-formed", si);
  if (s->region >= g->nregions || s->repeat != (g->regions[s->region].kind == ZG_REGION_REPEAT) ||
      (!s->repeat && s->region != 0))
    return FAIL(c, "segment %u: its region is not its repeat's", si);
  if (s->trip < 1 || s->trip > (s->repeat ? ZG_MAX_TRIP : 1))
    return FAIL(c, "segment %u runs %u times", si, s->trip);
  if (s->nforward > s->nnodes)
    return FAIL(c, "segment %u has %u forward nodes of %u", si, s->nforward, s->nnodes);
  for (uint32_t k = 0; k < s->ncarry_in + s->ncarry_out; k++)
    if (!type_ok(g, k < s->ncarry_in ? &s->carry_in[k] : &s->carry_out[k - s->ncarry_in]))
      return FAIL(c, "segment %u carries something without a valid type", si);
  uint32_t values = 0;
  for (uint32_t i = 0; i < s->nnodes; i++) {
    if (!check_node(c, si, i, values) || !check_role(c, si, i, seen)) return false;
    values += s->nodes[i].nout;
  }
  if (values != s->nvalues)
    return FAIL(c, "segment %u has %u values that no node makes", si, s->nvalues - values);
  for (uint32_t k = 0; k < s->ncarry_out; k++)
    if (!seen->carry_out[k]) return FAIL(c, "segment %u carries nothing out at position %u", si, k);
  if (seen->seeds[0] && !seen->aux && !seen->measures)
    return FAIL(c, "segment %u has a cotangent for an aux term and no such term", si);
  return true;
}

/* ---- the chain ----------------------------------------------------------------------------------------- */
static bool same_types(const ZgType *a, uint32_t na, const ZgType *b, uint32_t nb) {
  if (na != nb) return false;
  for (uint32_t k = 0; k < na; k++)
    if (!zg_type_eq(&a[k], &b[k])) return false;
  return true;
}

static bool check_chain(Ctx *c, const Seen *seen) {
  const ZgGraph *g = c->g;
  const ZgSegment *first = &g->segments[0], *last = &g->segments[g->nsegments - 1];
  if (first->ncarry_in) return FAIL(c, "the first segment carries something in");
  if (last->ncarry_out || last->repeat)
    return FAIL(c, "the last segment carries something out or is a repeat");
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i], *next = s + 1;
    if (s->repeat && !same_types(s->carry_in, s->ncarry_in, s->carry_out, s->ncarry_out))
      return FAIL(c, "segment %u is a repeat that does not carry out what it carries in", i);
    if (s != last && !same_types(s->carry_out, s->ncarry_out, next->carry_in, next->ncarry_in))
      return FAIL(c, "segment %u does not carry out what segment %u carries in", i, i + 1);
  }
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZgSegment *s = &g->segments[i];
    for (uint32_t k = 0; k < s->ncarry_out; k++) {
      if (seen[i].dcarry[k] != seen[i + 1].dcarry_in[k])
        return FAIL(c, "segments %u and %u do not agree on a cotangent at position %u", i, i + 1, k);
      if (s->repeat && seen[i].dcarry[k] != seen[i].dcarry_in[k])
        return FAIL(c, "the iterations of segment %u do not agree on a cotangent at position %u", i, k);
    }
  }
  return true;
}

static bool check_losses(Ctx *c) {
  const ZgGraph *g = c->g;
  if (g->nlosses > ZG_MAX_LOSSES)
    return FAIL(c, "%u losses, at most %d are possible", g->nlosses, ZG_MAX_LOSSES);
  for (uint32_t i = 0; i < g->nlosses; i++) {
    if (!check_name(c, "loss", i, g->losses[i].name, "")) return false;
    if (g->losses[i].loc >= g->nlocs) return FAIL(c, "loss %s has no valid place", g->losses[i].name);
  }
  CHECK_UNIQUE(c, "loss", g->losses, g->nlosses, name, names);
  return true;
}

/* After the segments. */
static bool check_parts(Ctx *c) {
  for (uint32_t i = 0; i < zg_losses(c->g); i++)
    if (!c->num[i] || c->num[i] != c->den[i])
      return FAIL(c, "loss %u does not have its numerator and its denominator in one segment", i);
  for (uint32_t i = 0; i < c->g->nsegments; i++)
    if (!check_denominators(c, i)) return false;
  return true;
}

static bool check_all(Ctx *c) {
  const ZgGraph *g = c->g;
  if (!name_ok(g->model, false, ".")) return FAIL(c, "the model has no well-formed name");
  if (!check_locs(c) || !check_axes(c) || !check_regions(c) || !check_params(c) ||
      !check_io(c, "input", g->inputs, g->ninputs) || !check_io(c, "output", g->outputs, g->noutputs) ||
      !check_losses(c))
    return false;
  if (g->nsegments == 0) return FAIL(c, "no segments");
  Seen *seen = ZB_NEWN(c->tmp, Seen, g->nsegments);
  c->used = ZB_NEWN(c->tmp, uint32_t, g->nparams + 1);
  c->graded = ZB_NEWN(c->tmp, uint32_t, g->nparams + 1);
  c->outputs = ZB_NEWN(c->tmp, uint8_t, g->noutputs + 1);
  c->experts = zg_slot_axes(g, c->tmp, c->err);
  if (!c->experts) return false;
  for (uint32_t i = 0; i < g->nsegments; i++)
    if (!check_segment(c, i, &seen[i])) return false;
  for (uint32_t i = 0; i < g->noutputs; i++)
    if (!c->outputs[i]) return FAIL(c, "output %s is not made", g->outputs[i].name);
  return check_chain(c, seen) && check_parts(c) && zg_verify_foreign(g, c->err);
}

bool zg_verify(const ZgGraph *g, ZbErr *err) {
  Ctx c = {.g = g, .err = err, .tmp = zb_arena_new()};
  bool ok = check_all(&c);
  zb_arena_free(c.tmp);
  return ok;
}
