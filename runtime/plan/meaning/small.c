/* A world in which a segment is evaluated in a moment: few ranks, few elements along each axis.
 *
 * Ranks: those of a stage if there are at most 16; else each dim has as many as its size has as smallest
 * prime. All ranks play the same program, so a program that is wrong is wrong here.
 *
 * Axes: sizes that belong together are a family: axes that are renames of each other, a slice and what it is
 * cut from. If all axes of a family have one size, a few elements per part will do. If nodes speak of several
 * numbers along them, all are divided by a common divisor, or all large ones made less by the same amount. An
 * axis that others are merged into has the product of these; where it has numbers of its own, it is scaled as
 * the slowest of them. Where nothing of that works out, axes keep their sizes, which costs time and nothing
 * else. */
#include "runtime/plan/meaning/meaning.h"

#include <string.h>

enum { MOST_RANKS = 16, FEW = 3, LITTLE = 8, LARGE = 12, MOST_MOVED = 64 };

typedef struct {
  uint32_t up;    /* union-find: an axis of the same family */
  int64_t parts;  /* the small size is a multiple of this */
  int64_t least;  /* and at least this, if it is as good as any */
  int64_t forced; /* and this, if it is not 0 */
  bool real;      /* the family keeps its sizes */
  bool undivided; /* little numbers along it stay as they are */
} Axis;
typedef struct {
  uint16_t axis;
  int64_t n;
} Said;
typedef struct {
  Small *w;
  Axis *axis;
  uint32_t naxes;
  Said *said; /* numbers along axes */
  uint32_t nsaid;
} Sizes;

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }
static int64_t lcm(int64_t a, int64_t b) { return a / gcd(a, b) * b; }
static int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* ---- the mesh ------------------------------------------------------------------------------------------ */
static int64_t smallest_prime(int64_t n) {
  for (int64_t k = 2; k * k <= n; k++)
    if (n % k == 0) return k;
  return n;
}

static ZpMesh small_mesh(const ZpMesh *from) {
  ZpMesh m = *from;
  bool all = zp_group_size(from, zp_all_dims(from)) <= MOST_RANKS;
  m.nranks = 1;
  for (int d = 0; d < m.ndims; d++) {
    if (d == m.pipe) m.dim[d].size = 1;
    else if (!all && m.dim[d].size > 1) m.dim[d].size = smallest_prime(m.dim[d].size);
    m.nranks *= m.dim[d].size;
  }
  return m;
}

/* ---- families ------------------------------------------------------------------------------------------ */
static uint32_t root(const Sizes *z, uint32_t axis) {
  while (z->axis[axis].up != axis) axis = z->axis[axis].up;
  return axis;
}

static void join(Sizes *z, uint32_t a, uint32_t b) {
  uint32_t x = root(z, a), y = root(z, b);
  if (x != y) z->axis[y].up = x;
}

static void say(Sizes *z, uint16_t axis, int64_t n) {
  Said s = {axis, n < 0 ? -n : n};
  if (s.n) ZB_PUSH(z->w->a, z->said, z->nsaid, s);
}

static void need(Sizes *z, uint16_t axis, int64_t parts, int64_t least) {
  Axis *a = &z->axis[axis];
  a->parts = lcm(a->parts, parts);
  if (least > a->least) a->least = least;
}

static const uint16_t *regrouped(const ZgNode *n, uint16_t *whole, int *parts) {
  bool merge = n->op == ZG_OP_MERGE;
  if (!merge && n->op != ZG_OP_PART) return NULL;
  *whole = n->ax[merge ? 0 : n->nax - 1];
  *parts = n->nax - 1;
  return n->ax + merge;
}

/* Where a convolution is cut into chunks, these are brought as many of their neighbours' elements as a window
 * reaches over. */
static void look_at_conv(Sizes *z, const ZgNode *n) {
  const int64_t *size = z->w->p->layout.axis_size;
  for (int d = 0; d < n->nax / 3; d++) {
    uint16_t x = zg_conv_axis(n->ax, d, ZG_CONV_X), w = zg_conv_axis(n->ax, d, ZG_CONV_W),
             y = zg_conv_axis(n->ax, d, ZG_CONV_Y);
    int64_t reach = (size[w] - 1) * (int64_t)n->num[0];
    bool chunks = x >= z->w->p->model->naxes;
    z->axis[w].real = true;
    z->axis[x].real |= chunks && reach > LITTLE;
    z->axis[x].undivided |= chunks;
    join(z, x, y);
    need(z, x, 1, reach + 2);
  }
}

static void look_at_topk(Sizes *z, const ZgNode *n) {
  int64_t groups = n->opt[0] ? n->opt[0] : 1, take = n->opt[0] ? n->opt[1] : 1;
  int64_t k = z->w->p->layout.axis_size[n->ax[1]];
  z->axis[n->ax[1]].real = true;
  need(z, n->ax[0], groups, groups * ((k + take - 1) / take + 1));
}

static void look_at_window(Sizes *z, const ZgNode *n) {
  Small *w = z->w;
  uint32_t at = 0;
  while (at < w->nwindows && w->window[at] < n->opt[1]) at++;
  if (!n->opt[1]) return;
  need(z, n->ax[0], 1, w->nwindows + 3);
  if (at < w->nwindows && w->window[at] == n->opt[1]) return;
  ZB_PUSH(w->a, w->window, w->nwindows, 0);
  memmove(&w->window[at + 1], &w->window[at], (w->nwindows - 1 - at) * sizeof *w->window);
  w->window[at] = n->opt[1];
}

static void look_at_node(Sizes *z, const ZgNode *n) {
  switch (n->op) {
  case ZG_OP_RENAME: join(z, n->ax[0], n->ax[1]); break;
  case ZG_OP_SLICE: say(z, n->ax[0], n->opt[1]); /* fall through */
  case ZG_OP_PAD: join(z, n->ax[0], n->ax[1]), say(z, n->ax[0], n->opt[0]); break;
  case ZG_OP_CONCAT:
    for (int k = 1; k < n->nax; k++) join(z, n->ax[0], n->ax[k]);
    break;
  case ZG_OP_SHIFT: need(z, n->ax[0], 1, (n->opt[0] < 0 ? -n->opt[0] : n->opt[0]) + 2); break;
  case ZG_OP_ROPE: say(z, n->ax[1], z->w->p->layout.axis_size[n->ax[1]] / 2); break;
  case ZG_OP_ROTATE: say(z, n->ax[0], n->opt[1] / 2); break;
  case ZG_OP_TOPK: look_at_topk(z, n); break;
  case ZG_OP_POSITION: need(z, n->ax[0], 1, FEW); break; /* 0 and 1 are their own squares */
  case ZG_OP_CONV:
  case ZG_OP_CONV_TRANSPOSE:
  case ZG_OP_CONV_GRAD: look_at_conv(z, n); break;
  case ZG_OP_ATTEND: look_at_window(z, n); break;
  default: break;
  }
}

static void look_at_graph(Sizes *z, const ZgGraph *g) {
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) look_at_node(z, &g->segments[i].nodes[k]);
}

/* Lets axes have as many elements as ranks' parts of a value need. */
static void look_at_states(Sizes *z, const ZpState *state, int naxes, const uint16_t *axis) {
  const ZpMesh *m = &z->w->mesh;
  for (int a = 0; a < naxes; a++) {
    int64_t parts = 1;
    for (int d = 0; d < m->ndims; d++)
      if (state[d].kind == 'S' && state[d].axis == axis[a])
        parts *= m->dim[d].size * (zp_dim_zigzags(&m->dim[d], axis[a]) ? 2 : 1);
    need(z, axis[a], parts, 1);
  }
}

static void look_at_plan(Sizes *z) {
  const ZpPlan *p = z->w->p;
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    const ZpSegment *s = &p->programs.segments[i];
    for (uint32_t v = 0; v < s->nvalues; v++)
      look_at_states(z, s->values[v].state, s->values[v].type.naxes, s->values[v].axis);
  }
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    for (uint32_t i = 0; i < p->programs.buckets[b].nslices; i++) {
      const ZpSlice *s = &p->programs.buckets[b].slices[i];
      look_at_states(z, s->state, s->naxes, s->axis);
    }
  look_at_graph(z, p->graph);
  look_at_graph(z, p->given);
}

/* ---- sizes --------------------------------------------------------------------------------------------- */
/* The facts that hold of all axes of a family together. */
typedef struct {
  int64_t parts, least, forced;
  int64_t n;                    /* the one number along them; 0: there are several */
  int64_t divisor;              /* of all their numbers */
  int64_t largest, least_large; /* of these; INT64_MAX: none is large */
  bool real, padded, undivided;
} Family;

static void count(Family *x, int64_t n) {
  if (n != x->n) x->n = 0;
  x->divisor = gcd(x->divisor, n);
  if (n > LITTLE && n < x->least_large) x->least_large = n;
  if (n > x->largest) x->largest = n;
}

static Family family_of(const Sizes *z, uint32_t f) {
  const ZpPlan *p = z->w->p;
  Family x = {.parts = 1, .least = 1, .n = p->layout.axis_size[f], .least_large = INT64_MAX};
  for (uint32_t i = 0; i < z->naxes; i++) {
    const Axis *a = &z->axis[i];
    if (root(z, i) != f) continue;
    x.parts = lcm(x.parts, a->parts);
    if (a->least > x.least) x.least = a->least;
    if (a->forced) x.forced = a->forced;
    x.real |= a->real;
    x.undivided |= a->undivided;
    x.padded |= p->layout.axis_valid[i] != p->layout.axis_size[i];
    count(&x, p->layout.axis_size[i]);
  }
  for (uint32_t i = 0; i < z->nsaid; i++)
    if (root(z, z->said[i].axis) == f) count(&x, z->said[i].n);
  return x;
}

/* The ways of making the numbers of a family small: n / scale; or n, and n - moved of large ones. */
static int64_t smaller(int64_t n, int64_t scale, int64_t moved) {
  return moved ? n > LITTLE ? n - moved : n : n / scale;
}

/* large: each axis should have two elements, and those that it needs, if the plan's has. */
static bool suits(const Sizes *z, uint32_t f, int64_t scale, int64_t moved, bool large) {
  const int64_t *size = z->w->p->layout.axis_size;
  for (uint32_t i = 0; i < z->naxes; i++) {
    const Axis *a = &z->axis[i];
    if (root(z, i) != f) continue;
    int64_t n = smaller(size[i], scale, moved), least = !large ? 1 : a->least > 2 ? a->least : 2;
    if (n % a->parts || (n < least && n < size[i])) return false;
  }
  return true;
}

static int64_t scale_of(const Sizes *z, uint32_t f, const Family *x) {
  int64_t best = 1;
  for (int large = 1; large >= 0 && x->largest / best > LARGE; large--)
    for (int64_t k = 1; k * k <= x->divisor; k++) {
      if (x->divisor % k) continue;
      const int64_t pair[] = {k, x->divisor / k};
      for (int i = 0; i < 2; i++)
        if (pair[i] > best && suits(z, f, pair[i], 0, large)) best = pair[i];
    }
  return best;
}

static int64_t move_of(const Sizes *z, uint32_t f, const Family *x) {
  if (x->least_large == INT64_MAX) return 0;
  for (int64_t to = LITTLE + 1; to < x->least_large && to <= MOST_MOVED; to++)
    if (suits(z, f, 1, x->least_large - to, false)) return x->least_large - to;
  return 0;
}

/* At least two per part, since of one a sum and a maximum are the same; but not more than there are: a plan
 * may count them (chunks of a recurrence). */
static int64_t few(const Family *x) {
  int64_t n = x->parts > 1 ? 2 * x->parts : FEW;
  if (n < x->least) n = up_to(x->least, x->parts);
  return n < x->n ? n : x->n;
}

static void choose_sizes(Sizes *z) {
  Small *w = z->w;
  const ZpLayout *l = &w->p->layout;
  for (uint32_t f = 0; f < z->naxes; f++) {
    if (root(z, f) != f) continue;
    Family x = family_of(z, f);
    int64_t free = x.real || !x.n ? 0 : x.forced ? x.forced : few(&x);
    int64_t scale = free ? 0 : x.real || x.padded || x.undivided ? 1 : scale_of(z, f, &x);
    int64_t moved = scale == 1 && !x.real ? move_of(z, f, &x) : 0;
    for (uint32_t i = 0; i < z->naxes; i++) {
      if (root(z, i) != f) continue;
      w->scale[i] = scale;
      w->moved[i] = moved;
      w->size[i] = free ? free : smaller(l->axis_size[i], scale, moved);
      bool padded = l->axis_valid[i] < l->axis_size[i];
      w->valid[i] = free ? free - (padded && free > 1) : smaller(l->axis_valid[i], scale, moved);
    }
  }
}

/* Lets the families of these axes keep their sizes; false: they all did before. */
static bool keep(Sizes *z, const uint16_t *ax, int n) {
  bool more = false;
  for (int k = 0; k < n; k++) {
    Axis *a = &z->axis[root(z, ax[k])];
    more |= !a->real;
    a->real = true;
  }
  return more;
}

/* Lets a table of positions have as many rows as there are positions. */
static bool reaches(Sizes *z, const ZgNode *n) {
  const Small *w = z->w;
  if (n->op != ZG_OP_POSITION || n->nax < 2 || w->valid[n->ax[1]] >= w->valid[n->ax[0]]) return true;
  if (z->axis[root(z, n->ax[1])].real) return true;
  need(z, n->ax[1], 1, w->size[n->ax[0]] + w->size[n->ax[1]] - w->valid[n->ax[1]]);
  return false;
}

/* Gives the axis that others are merged into, or parted from, their product. False: something else is
 * tried. */
static bool regroups(Sizes *z, const ZgNode *n) {
  uint16_t whole;
  int parts;
  const uint16_t *part = regrouped(n, &whole, &parts);
  int64_t product = 1;
  for (int k = 0; part && k < parts; k++) product *= z->w->size[part[k]];
  if (!part || product == z->w->size[whole]) return true;
  Axis *a = &z->axis[root(z, whole)], *last = &z->axis[root(z, part[parts - 1])];
  Family x = family_of(z, root(z, whole));
  int64_t lacks = x.parts / gcd(x.parts, product);
  if (lacks > 1 && !last->real) { /* the fastest makes up for it */
    need(z, part[parts - 1], z->w->size[part[parts - 1]] * lacks, 1);
    return last->real = z->w->scale[part[parts - 1]] > 0, false;
  }
  if (x.n && !x.real && !a->forced && product % x.parts == 0) return a->forced = product, false;
  bool joined = root(z, whole) == root(z, part[0]);
  join(z, part[0], whole);
  return !(keep(z, part + 1, parts - 1) || !joined || keep(z, n->ax, n->nax));
}

/* Returns whether the operation's rule says something about numbers of its axes. */
static bool has_numbers(uint16_t op) {
  return op == ZG_OP_SLICE || op == ZG_OP_PAD || op == ZG_OP_CONCAT || op == ZG_OP_ROPE ||
         op == ZG_OP_ROTATE || op == ZG_OP_TOPK || zg_is_conv(op);
}

static bool infers(const Sizes *z, const ZgGraph *bound, const ZgSegment *s, const ZgNode *n) {
  ZgNode m = *n;
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  if (!has_numbers(n->op)) return true;
  for (int i = 0; i < n->nin; i++) in[i] = s->values[n->in[i]].type;
  return zp_small_numbers(z->w, n->op, n->ax, m.opt) &&
         zg_infer(bound, &m, in, &s->values[n->out].type, out, NULL);
}

/* Finds a node that the sizes do not suit and changes what they are made from; false: there is none. */
static bool improve(Sizes *z, const ZgGraph *g) {
  ZgGraph bound = *g;
  bound.axes = ZB_NEWN(z->w->a, ZgAxis, g->naxes + 1);
  for (uint32_t i = 0; i < g->naxes; i++) bound.axes[i] = (ZgAxis){g->axes[i].name, z->w->size[i]};
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgSegment *s = &g->segments[i];
      const ZgNode *n = &s->nodes[k];
      if (!regroups(z, n) || !reaches(z, n)) return true;
      if (!infers(z, &bound, s, n) && keep(z, n->ax, n->nax)) return true;
    }
  return false;
}

/* Leaves padding out of axes that are parted or merged: parts of a whole have all of it. */
static void fill_regrouped(Small *w, const ZgGraph *g) {
  uint16_t whole;
  int parts;
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      for (int a = 0; regrouped(n, &whole, &parts) && a < n->nax; a++) w->valid[n->ax[a]] = w->size[n->ax[a]];
    }
}

/* ---- slots --------------------------------------------------------------------------------------------- */
int64_t zp_small_size(const Small *w, const ZpState *state, uint16_t axis) {
  int64_t n = w->size[axis];
  for (int d = 0; d < w->mesh.ndims; d++)
    if (state[d].kind == 'S' && state[d].axis == axis) n /= w->mesh.dim[d].size;
  return n;
}

int64_t zp_whole_elements(const Small *w, const ZgType *t) {
  int64_t n = 1;
  for (int a = 0; a < t->naxes; a++) n *= w->whole[t->axis[a]];
  return n;
}

/* In the graph every expert has room for all rows. */
static void make_slots(Small *w) {
  const ZgGraph *g = w->p->graph;
  memcpy(w->whole, w->valid, g->naxes * sizeof *w->whole);
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      if (n->op != ZG_OP_DISPATCH) continue;
      int64_t rows = zp_whole_elements(w, &g->segments[i].values[n->in[1]].type);
      if (rows > w->whole[n->ax[1]]) w->whole[n->ax[1]] = rows;
    }
}

/* ---- the world ----------------------------------------------------------------------------------------- */
Small zp_small(const ZpPlan *p, ZbArena *a, bool real) {
  uint32_t n = p->graph->naxes;
  Small w = {.p = p,
             .a = a,
             .mesh = small_mesh(&p->layout.mesh),
             .size = ZB_NEWN(a, int64_t, n + 1),
             .valid = ZB_NEWN(a, int64_t, n + 1),
             .whole = ZB_NEWN(a, int64_t, n + 1),
             .scale = ZB_NEWN(a, int64_t, n + 1),
             .moved = ZB_NEWN(a, int64_t, n + 1)};
  w.dirty_carry = ZB_NEWN(a, bool *, p->graph->nsegments);
  w.dirty_dcarry = ZB_NEWN(a, bool *, p->graph->nsegments);
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    w.dirty_carry[i] = ZB_NEWN(a, bool, p->graph->segments[i].ncarry_in + 1);
    w.dirty_dcarry[i] = ZB_NEWN(a, bool, p->graph->segments[i].ncarry_out + 1);
  }
  Sizes z = {.w = &w, .axis = ZB_NEWN(a, Axis, n + 1), .naxes = n};
  for (uint32_t i = 0; i < n; i++) z.axis[i] = (Axis){.up = i, .parts = 1, .least = 1, .real = real};
  look_at_plan(&z);
  do choose_sizes(&z);
  while (improve(&z, p->graph) || (p->given != p->graph && improve(&z, p->given)));
  fill_regrouped(&w, p->graph);
  make_slots(&w);
  return w;
}

double zp_points(const Small *w, uint32_t segment) {
  const ZgSegment *g = &w->p->graph->segments[segment];
  double all = 0;
  for (uint32_t i = 0; i < g->nnodes; i++) {
    const ZgNode *n = &g->nodes[i];
    ZgType space = {0};
    double p = 1;
    for (int k = 0; k < n->nin; k++) space = zg_type_union(&space, &g->values[n->in[k]].type);
    for (int k = 0; k < n->nout; k++) space = zg_type_union(&space, &g->values[n->out + (uint32_t)k].type);
    for (int a = 0; a < space.naxes && a < ZG_MAX_AXES; a++) p *= (double)w->whole[space.axis[a]];
    all += p;
  }
  return all;
}

/* ---- numbers of nodes ---------------------------------------------------------------------------------- */
static bool scaled(const Small *w, uint16_t axis, int64_t *n) {
  int64_t scale = w->scale[axis], moved = w->moved[axis];
  if (!scale) { /* nothing along this axis but all of it */
    bool all = *n == w->p->layout.axis_size[axis];
    *n = all ? w->size[axis] : 0;
    return all || *n == 0;
  }
  bool fits = moved || *n % scale == 0;
  *n = smaller(*n, scale, moved);
  return fits && *n >= 0;
}

bool zp_small_numbers(const Small *w, uint16_t op, const uint16_t *ax, int64_t *opt) {
  const ZpLayout *l = &w->p->layout;
  uint32_t k = 0;
  switch (op) {
  case ZG_OP_SLICE: return scaled(w, ax[0], &opt[0]) && scaled(w, ax[0], &opt[1]);
  case ZG_OP_PAD: return scaled(w, ax[0], &opt[0]);
  case ZG_OP_ROTATE:
    opt[1] /= 2;
    if (!scaled(w, ax[0], &opt[1])) return false;
    opt[1] *= 2;
    return true;
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD:
    if (!opt[1]) return true;
    while (k < w->nwindows && w->window[k] != opt[1]) k++;
    opt[1] = 2 + k; /* one that the graph does not have is unlike all of these */
    return true;
  case ZG_OP_PEAK:
  case ZG_OP_SOFTMAX:
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD:
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD:
    if (opt[1] == l->axis_valid[ax[0]]) opt[1] = w->valid[ax[0]];
    else if (opt[1]) opt[1] = 1;
    return true;
  default: return true;
  }
}
