/* Adapters beside the matrices of a model: y = x W becomes y + scale x A B (Hu et al. 2021). Which
 * parameter is a matrix is said by the products in which the model uses it, and by the map of its weights,
 * which has it as a tensor of two axes, what the products sum over and what comes out of them. So whatever
 * family has a map can have adapters. Several parameters of one tensor, the queries, keys and values of
 * GPT-2, share A, and each has its rows of B. */
#include "compiler/adapt.h"
#include "graph/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How the model uses a parameter. */
typedef enum { UNUSED, IN_PRODUCTS, OTHERWISE } Use;

typedef struct {
  Use use;
  ZgType in;   /* IN_PRODUCTS: the axes that are summed over */
  ZgType both; /* those that both operands have and the result keeps: experts */
  bool adapted;
  uint32_t a, b; /* its parameters, if so */
  uint16_t low;  /* the axis of the rank */
  double scale;
} Matrix;

/* How one tensor has a parameter as a matrix. */
typedef struct {
  bool ok, transposed; /* transposed: [in, out] */
  int64_t in, out;     /* sizes of the tensor */
} Lie;

typedef struct {
  ZgGraph *g;
  ZbArena *tmp;
  ZlDiags *d;
  uint32_t which, of;        /* this adapter, and how many there are */
  const char *mark, *config; /* what its names begin with; the map of its config */
  double keep;               /* dropout keeps a number of x with this probability; 1: there is none */
  uint32_t input;            /* that says which one counts; ZG_NONE: this one */
  const char *(*prefix_of)(void *, const char *map);
  void *arg;
  Matrix *matrix;  /* by parameter */
  const char *map; /* whose names modules have */
  bool *seen;      /* by target: some module has that name */
  const char **target;
  uint32_t ntargets;
  const char **module, **plain; /* modules with adapters, and without */
  uint32_t nmodule, nplain;
  bool strict; /* each name must be some module's */
  bool all;    /* every matrix but tables, heads and routers */
  uint32_t nmodules;
} Adapt;

static bool fails(const Adapt *x, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool fails(const Adapt *x, const char *help, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  ZlDiag *d = zl_report(x->d, ZL_Z1013, ZL_NOWHERE, "adapters of model %s: %s", x->g->model, text);
  if (help) zl_help(d, "%s", help);
  return false;
}

/* ---- what is a matrix ---------------------------------------------------------------------------------- */
/* Returns the parameter that a value is, or ZG_NONE. */
static uint32_t param_of(const ZgSegment *s, uint32_t value) {
  const ZgNode *n = &s->nodes[s->values[value].node];
  return n->op == ZG_OP_PARAM ? (uint32_t)n->opt[0] : ZG_NONE;
}

static void note_use(Adapt *x, const ZgSegment *s, const ZgNode *n, int operand) {
  uint32_t p = param_of(s, n->in[operand]);
  if (p == ZG_NONE) return;
  Matrix *m = &x->matrix[p];
  ZgType in = zg_type(ZG_REAL, n->ax, n->nax), both = {.elem = ZG_REAL};
  if (n->op == ZG_OP_DOT) {
    const ZgType *w = &x->g->params[p].type, *other = &s->values[n->in[!operand]].type;
    for (int i = 0; i < w->naxes; i++)
      if (!zg_type_has(&in, w->axis[i]) && zg_type_has(other, w->axis[i]))
        both.axis[both.naxes++] = w->axis[i];
  }
  bool same = m->use == UNUSED || (zg_type_eq(&m->in, &in) && zg_type_eq(&m->both, &both));
  bool product = n->op == ZG_OP_DOT && in.naxes && same && param_of(s, n->in[!operand]) == ZG_NONE;
  m->use = product && m->use != OTHERWISE ? IN_PRODUCTS : OTHERWISE;
  m->in = in;
  m->both = both;
}

static void note_uses(Adapt *x) {
  for (uint32_t s = 0; s < x->g->nsegments; s++)
    for (uint32_t i = 0; i < x->g->segments[s].nnodes; i++) {
      const ZgNode *n = &x->g->segments[s].nodes[i];
      for (int k = 0; k < n->nin; k++) note_use(x, &x->g->segments[s], n, k);
    }
}

static int64_t size_of(const ZgGraph *g, const ZgParam *p, int declared) {
  return g->axes[p->type.axis[p->order[declared]]].size;
}

static bool is_in(const Matrix *m, const ZgParam *p, int declared) {
  return zg_type_has(&m->in, p->type.axis[p->order[declared]]);
}

/* Says how a part lies, if it is one: along one axis of the tensor what is summed over, all of it, along
 * the other the rest. */
static Lie lie_of(const Adapt *x, const ZgForeign *f) {
  const ZgParam *p = &x->g->params[f->param];
  const Matrix *m = &x->matrix[f->param];
  int64_t columns = f->dims[1], in = 1;
  bool plain = f->ndims == 2 && m->use == IN_PRODUCTS && !p->state && m->both.naxes == (f->fixed >= 0);
  bool rows = f->first % (columns ? columns : 1) == 0, transposed = f->first < columns;
  for (int i = 0; plain && i < p->type.naxes; i++) {
    int64_t size = size_of(x->g, p, i), step = f->stride[i];
    bool along = step * (size - 1) < columns, whole = columns && step % columns == 0;
    if (i == f->fixed) plain = zg_type_has(&m->both, p->type.axis[p->order[i]]);
    if (i == f->fixed) continue;
    if (is_in(m, p, i)) in *= size;
    if (size == 1) continue;
    rows &= is_in(m, p, i) ? along : whole;
    transposed &= is_in(m, p, i) ? whole : along;
  }
  if (plain && rows && in == columns) return (Lie){true, false, in, f->dims[0]};
  if (plain && transposed && in == f->dims[0]) return (Lie){true, true, in, columns};
  return (Lie){.ok = false};
}

/* ---- which of them have adapters ----------------------------------------------------------------------- */
/* Returns the module of a tensor, NULL if it is none's matrix. */
static const char *module_of(const Adapt *x, const char *map, const char *tensor) {
  size_t n = strlen(tensor), e = strlen(ZG_ADAPTER_MATRIX);
  if (n <= e || strcmp(tensor + n - e, ZG_ADAPTER_MATRIX)) return NULL;
  if (zb_ends(tensor, ZG_ADAPTER_A) || zb_ends(tensor, ZG_ADAPTER_B)) return NULL; /* another adapter's */
  return zb_printf(x->tmp, "%s%.*s", x->prefix_of(x->arg, map), (int)(n - e), tensor);
}

/* A table or a head, by its words, or a router, by its experts: `all-linear` leaves them out. */
static bool is_special(const Adapt *x, const ZgForeign *f) {
  const ZgType *t = &x->g->params[f->param].type;
  for (int i = 0; i < t->naxes; i++) {
    if (zg_axis_is_looked_up(x->g, t->axis[i])) return true;
    if (zg_type_has(&x->matrix[f->param].both, t->axis[i])) continue;
    for (uint32_t s = 0; s < x->g->nsegments; s++)
      for (uint32_t k = 0; k < x->g->segments[s].nnodes; k++) {
        const ZgNode *n = &x->g->segments[s].nodes[k];
        if (n->op == ZG_OP_DISPATCH && n->ax[0] == t->axis[i]) return true;
      }
  }
  return false;
}

static bool is_wanted(Adapt *x, const ZgForeign *f, const char *module) {
  bool wanted = false;
  if (x->all) return lie_of(x, f).ok && !is_special(x, f);
  for (uint32_t i = 0; i < x->ntargets; i++)
    if (zg_adapter_names(x->target[i], module)) x->seen[i] = wanted = true;
  return wanted;
}

static bool read_targets(Adapt *x) {
  const char *json = zg_adapter_value(x->g, x->mark, "target_modules");
  if ((x->all = !json || *json != '[')) return true;
  for (const char *s = json + 1; *s == '"' || *s == ',' || *s == ' ';) { /* names, which need no escapes */
    size_t n = *s == '"' ? strcspn(s + 1, "\"") : 0;
    if (*s == '"') {
      const char *name = zb_strndup(x->tmp, s + 1, n);
      ZB_PUSH(x->tmp, x->target, x->ntargets, name);
      s += n + 1;
    }
    s++;
  }
  x->seen = ZB_NEWN(x->tmp, bool, x->ntargets + 1);
  return true;
}

/* ---- their parameters ---------------------------------------------------------------------------------- */
static uint16_t rank_axis(Adapt *x, int64_t rank) {
  ZgGraph *g = x->g;
  const char *name = zb_printf(x->tmp, "rank%lld", (long long)rank);
  uint32_t axis = zg_axis_find(g, name);
  if (axis != ZG_NONE && g->axes[axis].size == rank) return (uint16_t)axis;
  for (int i = 2; zg_axis_find(g, name) != ZG_NONE; i++)
    name = zb_printf(x->tmp, "rank%lld_%d", (long long)rank, i);
  return (uint16_t)zg_axis_add(g, name, rank);
}

/* The declared axes of a parameter beside `p`: those that both operands have, then `low` among the others
 * that are wanted. */
typedef struct {
  uint16_t axis[ZG_MAX_AXES];
  int from[ZG_MAX_AXES]; /* the declared axis of `p`; -1: low */
  int n;
} Axes;

static Axes axes_of(const Adapt *x, uint32_t param, uint16_t low, bool in) {
  const ZgParam *p = &x->g->params[param];
  const Matrix *m = &x->matrix[param];
  Axes a = {.n = 0};
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < p->type.naxes; i++) {
      uint16_t axis = p->type.axis[p->order[i]];
      bool both = zg_type_has(&m->both, axis);
      if (turn ? both || is_in(m, p, i) != in : !both) continue;
      a.axis[a.n] = axis;
      a.from[a.n++] = i;
    }
    if (turn != in) continue; /* A: low comes last; B: before what comes out */
    a.axis[a.n] = low;
    a.from[a.n++] = -1;
  }
  return a;
}

static bool add_param(Adapt *x, uint32_t param, const Axes *axes, const char *name, double bound,
                      uint32_t *out) {
  const ZgParam *w = &x->g->params[param];
  ZgParam p = {.path = zb_printf(x->tmp, x->which ? "%s.%s_%u" : "%s.%s", w->path, name, x->which + 1),
               .type = zg_type(ZG_REAL, axes->axis, axes->n),
               .init = bound > 0 ? ZG_INIT_UNIFORM : ZG_INIT_CONST,
               .num = {-bound, bound},
               .segment = w->segment,
               .loc = w->loc};
  if (bound <= 0) p.num[0] = p.num[1] = 0;
  uint32_t tag = zg_tag_add(x->g, "lora");
  if (strlen(p.path) > 255) return fails(x, NULL, "the path of parameter %s is too long", p.path);
  if (tag == ZG_NONE) return fails(x, NULL, "a model has at most 32 tags");
  p.tags = 1u << tag;
  for (int i = 0; i < axes->n; i++)
    for (int k = 0; k < p.type.naxes; k++)
      if (p.type.axis[k] == axes->axis[i]) p.order[i] = (uint8_t)k;
  *out = zg_param_add(x->g, p);
  return true;
}

/* ---- their places -------------------------------------------------------------------------------------- */
/* The part of A, [rank, in], or of B, [out, rank], beside a part of W. */
static ZgForeign part_beside(const Adapt *x, const ZgForeign *f, const Lie *l, bool in, int64_t rank) {
  const char *name = zb_printf(x->tmp, "%s" ZG_ADAPTER_PREFIX "%s%s", x->mark, module_of(x, f->map, f->name),
                               in ? ZG_ADAPTER_A : ZG_ADAPTER_B);
  const Matrix *m = &x->matrix[f->param];
  Axes axes = axes_of(x, f->param, m->low, in);
  int64_t over = l->transposed == in ? f->dims[1] : 1; /* W's strides are over whole rows along this axis */
  int64_t times = in ? 1 : rank;
  ZgForeign p = {
      .map = f->map, .param = in ? m->a : m->b, .name = name, .ndims = 2, .fixed = -1, .at = f->at};
  p.dims[0] = in ? rank : l->out;
  p.dims[1] = in ? l->in : rank;
  if (!in) p.first = f->first / over * times;
  for (int i = 0; i < axes.n; i++) {
    if (axes.from[i] < 0) p.stride[i] = in ? l->in : 1;
    else if (axes.from[i] == f->fixed) p.fixed = (int8_t)i;
    else p.stride[i] = f->stride[axes.from[i]] / over * times;
  }
  return p;
}

/* Returns the first part of the tensor that record i is of: its parameter has A. */
static uint32_t first_of(const ZgGraph *g, uint32_t i) {
  for (uint32_t k = 0; k < i; k++)
    if (!strcmp(g->foreign[k].map, g->foreign[i].map) && !strcmp(g->foreign[k].name, g->foreign[i].name))
      return k;
  return i;
}

/* Adds the places of all adapters to all maps, whose records stay together. */
static bool place_all(Adapt *x, uint32_t nparams) {
  ZgGraph *g = x->g;
  const ZgForeign *old = g->foreign;
  uint32_t n = g->nforeign;
  ZgForeign *all = ZB_NEWN(g->arena, ZgForeign, 3 * (size_t)n + 1);
  uint32_t to = 0;
  for (uint32_t i = 0, next; i < n; i = next) {
    for (next = i; next < n && !strcmp(old[next].map, old[i].map); next++) all[to++] = old[next];
    for (uint32_t k = i; k < next; k++) {
      if (old[k].param >= nparams || !x->matrix[old[k].param].adapted) continue;
      Lie l = lie_of(x, &old[k]);
      if (!l.ok || !module_of(x, old[k].map, old[k].name))
        return fails(x, "map it as [out, in]", "weights %s have no matrix '%s'", old[k].map, old[k].name);
      int64_t rank = g->axes[x->matrix[old[k].param].low].size;
      for (int in = 1; in >= 0; in--) {
        if (in && first_of(g, k) != k) continue; /* its A is another's */
        ZgForeign p = part_beside(x, &old[k], &l, in, rank);
        if (strlen(p.name) > 255) return fails(x, NULL, "the name of tensor %s is too long", p.name);
        p.name = zb_strdup(g->arena, p.name);
        all[to++] = p;
      }
    }
  }
  g->foreign = all;
  g->nforeign = to;
  return true;
}

/* ---- modules ------------------------------------------------------------------------------------------- */
static bool no_matrix(const Adapt *x, const char *module, uint32_t param) {
  const ZgParam *p = &x->g->params[param];
  return fails(x, "leave it out of target_modules",
               "`%s`, parameter %s, is not a matrix that the model multiplies by and uses in no other way",
               module, p->path);
}

/* Makes the adapter of parameters that lie in one tensor: records `first` and, of the same name, others
 * behind it. */
static bool adapt_tensor(Adapt *x, uint32_t first, const char *module) {
  ZgGraph *g = x->g;
  const ZgForeign *f = &g->foreign[first];
  int64_t rank = zg_adapter_rank(g, x->mark, module);
  uint32_t a = ZG_NONE;
  if (rank < 1) return fails(x, NULL, "`%s` has no rank", module);
  for (uint32_t k = first; k < g->nforeign; k++) {
    const ZgForeign *o = &g->foreign[k];
    if (strcmp(o->map, f->map) || strcmp(o->name, f->name)) continue;
    Matrix *m = &x->matrix[o->param];
    Lie l = lie_of(x, o);
    if (!l.ok) return no_matrix(x, module, o->param);
    if (m->both.naxes && x->keep < 1)
      return fails(x, "leave dropout out", "`%s` is of experts, beside which dropout is not done", module);
    if (l.transposed != zg_adapter_transposed(g, x->mark) && x->nmodules)
      return fails(x, NULL, "`%s` is [%s], and others are not", module, l.transposed ? "in, out" : "out, in");
    if (l.transposed && !x->nmodules) zg_config_add(g, x->config, "fan_in_fan_out", "true");
    x->nmodules++;
    if (m->adapted) continue; /* another expert's part of it */
    m->low = rank_axis(x, rank);
    m->scale = zg_adapter_scale(g, x->mark, module);
    Axes in = axes_of(x, o->param, m->low, true), out = axes_of(x, o->param, m->low, false);
    if (a == ZG_NONE && !add_param(x, o->param, &in, "lora_a", 1 / sqrt((double)l.in), &a)) return false;
    if (!zg_type_eq(&m->in, &x->matrix[f->param].in)) return no_matrix(x, module, o->param);
    m->a = a;
    if (!add_param(x, o->param, &out, "lora_b", 0, &m->b)) return false;
    m->adapted = true;
  }
  return true;
}

/* All parts of a parameter are alike: an expert has an adapter if all have. */
static bool check_parts(const Adapt *x, const ZgForeign *f, const char *module, bool wanted) {
  const Matrix *m = &x->matrix[f->param];
  bool fits = !m->adapted || (wanted && x->g->axes[m->low].size == zg_adapter_rank(x->g, x->mark, module) &&
                              m->scale == zg_adapter_scale(x->g, x->mark, module));
  return fits ||
         fails(x, "name modules by their last parts: w1",
               "`%s` is to have another adapter than other parts of %s", module, x->g->params[f->param].path);
}

/* Returns the last parts of a module's name, as few as no module without adapters has. */
static const char *short_name(const Adapt *x, const char *module) {
  for (const char *s = module + strlen(module); s > module;) {
    for (s--; s > module && s[-1] != '.';) s--;
    bool other = false;
    for (uint32_t i = 0; i < x->nplain && !other; i++) other = zg_adapter_names(s, x->plain[i]);
    if (!other) return s;
  }
  return module;
}

/* `all-linear` becomes what it was here: elsewhere it may be other matrices. */
static bool name_targets(Adapt *x) {
  ZbNames names = {0};
  const char *list = "";
  for (uint32_t i = 0; i < x->nmodule; i++) {
    const char *name = short_name(x, x->module[i]);
    if (strchr(name, '*')) return fails(x, "list modules", "`%s` cannot be told from others by a name", name);
    if (zb_names_find(&names, name) != ZB_NO_NAME) continue;
    zb_names_add(x->tmp, &names, name);
    list = zb_printf(x->tmp, "%s%s\"%s\"", list, *list ? "," : "", name);
  }
  if (strlen(list) > 253)
    return fails(x, "list fewer modules", "the names of all matrices are longer than 253 bytes");
  for (uint32_t i = 0; i < x->g->nconfig; i++)
    if (!strcmp(x->g->config[i].map, x->config) && !strcmp(x->g->config[i].key, "target_modules"))
      x->g->config[i].value = zb_printf(x->g->arena, "[%s]", list);
  return true;
}

/* Says which names there are, the last parts of them. */
static bool no_module(const Adapt *x, const char *name) {
  ZbNames names = {0};
  const char *list = "";
  for (uint32_t i = 0; i < x->nmodule + x->nplain; i++) {
    const char *module = i < x->nmodule ? x->module[i] : x->plain[i - x->nmodule],
               *dot = strrchr(module, '.');
    const char *last = dot ? dot + 1 : module;
    if (zb_names_find(&names, last) != ZB_NO_NAME) continue;
    zb_names_add(x->tmp, &names, last);
    list = zb_printf(x->tmp, "%s%s%s", list, *list ? ", " : "", last);
  }
  const char *near = zb_nearest(name, names.name, names.n);
  return fails(
      x, near ? zb_printf(x->tmp, "did you mean `%s`?", near) : zb_printf(x->tmp, "there are %.300s", list),
      "no tensor of weights %s is `%s%s`", x->map, name, ZG_ADAPTER_MATRIX);
}

static bool adapt_all(Adapt *x) {
  ZgGraph *g = x->g;
  uint32_t n = g->nforeign;
  for (uint32_t i = 0; i < n; i++) {
    const ZgForeign *f = &g->foreign[i];
    const char *module = strcmp(f->map, x->map) ? NULL : module_of(x, f->map, f->name);
    if (!module || first_of(g, i) != i) continue;
    bool wanted = is_wanted(x, f, module);
    if (wanted) ZB_PUSH(x->tmp, x->module, x->nmodule, module);
    else ZB_PUSH(x->tmp, x->plain, x->nplain, module);
    if ((wanted && !adapt_tensor(x, i, module)) || !check_parts(x, f, module, wanted)) return false;
  }
  for (uint32_t i = 0; i < x->ntargets; i++) /* peft leaves out names that a model has not, if it has some */
    if (!x->seen[i] && (x->strict || !x->nmodules)) return no_module(x, x->target[i]);
  if (!x->nmodules) return fails(x, NULL, "it has no matrix that can have one");
  return !x->all || name_targets(x);
}

/* ---- nodes --------------------------------------------------------------------------------------------- */
typedef struct {
  ZgGraph *g;
  ZgSegment *s;
  uint32_t region, loc;
} Maker;

static uint32_t make(const Maker *m, ZgNode n, const uint32_t *in, int nin, const ZgType *hint) {
  n.nin = (uint8_t)nin;
  for (int i = 0; i < nin; i++) n.in[i] = in[i];
  n.region = m->region;
  n.loc = m->loc;
  return zg_node_add(m->g, m->s, n, hint);
}

static uint32_t make_param(const Maker *m, uint32_t p) {
  return make(m, (ZgNode){.op = ZG_OP_PARAM, .opt = {p}}, NULL, 0, &m->g->params[p].type);
}

/* Returns 1 for tokens that have this adapter, else 0, in the type of `like`. */
static uint32_t make_choice(const Adapt *x, const Maker *k, ZgElem like) {
  ZgType t = x->g->inputs[x->input].type, number = zg_type(ZG_F32, NULL, 0);
  uint32_t v = make(k, (ZgNode){.op = ZG_OP_INPUT, .opt = {x->input}}, NULL, 0, &t);
  t = zg_type(ZG_F32, t.axis, t.naxes);
  v = make(k, (ZgNode){.op = ZG_OP_CAST}, &v, 1, &t);
  uint32_t this = make(k, (ZgNode){.op = ZG_OP_FILL, .num = {x->which}}, NULL, 0, &number);
  v = make(k, (ZgNode){.op = ZG_OP_EQUAL}, (uint32_t[]){v, this}, 2, NULL);
  t.elem = (uint8_t)like;
  return make(k, (ZgNode){.op = ZG_OP_CAST}, &v, 1, &t);
}

/* x with some numbers 0, the same for all parts of a module. */
static uint32_t make_dropped(const Adapt *x, const Maker *k, const Matrix *m, uint32_t of) {
  const char *stream = zb_printf(x->tmp, "%s.dropout", x->g->params[m->a].path);
  ZgType t = k->s->values[of].type;
  t.elem = ZG_REAL;
  ZgNode coin = {.op = ZG_OP_RANDOM, .num = {x->keep}, .opt = {(int64_t)(zb_stream(stream) >> 1), ZG_COIN}};
  uint32_t v = make(k, coin, NULL, 0, &t);
  return make(k, (ZgNode){.op = ZG_OP_MUL}, (uint32_t[]){of, v}, 2, NULL);
}

/* y + (x A scale) B, where y is node `n` of x and W, made already. */
static uint32_t make_adapter(const Adapt *x, const Maker *k, const Matrix *m, ZgNode n, uint32_t of,
                             uint32_t y) {
  n.op = ZG_OP_DOT;
  if (x->keep < 1) of = make_dropped(x, k, m, of);
  uint32_t h = make(k, n, (uint32_t[]){of, make_param(k, m->a)}, 2, NULL);
  ZgType t = k->s->values[h].type;
  double scale = m->scale / x->keep;
  if (scale != 1) {
    ZgType scalar = zg_type((ZgElem)t.elem, NULL, 0);
    uint32_t by = make(k, (ZgNode){.op = ZG_OP_FILL, .num = {scale}}, NULL, 0, &scalar);
    h = make(k, (ZgNode){.op = ZG_OP_MUL}, (uint32_t[]){h, by}, 2, NULL);
  }
  if (x->input != ZG_NONE)
    h = make(k, (ZgNode){.op = ZG_OP_MUL}, (uint32_t[]){h, make_choice(x, k, (ZgElem)t.elem)}, 2, NULL);
  ZgNode out = {.op = ZG_OP_DOT, .nax = 1, .ax = {m->low}};
  uint32_t d = make(k, out, (uint32_t[]){h, make_param(k, m->b)}, 2, NULL);
  return make(k, (ZgNode){.op = ZG_OP_ADD}, (uint32_t[]){y, d}, 2, NULL);
}

static void rewrite(const Adapt *x, ZgSegment *s) {
  ZgSegment old = *s;
  uint32_t *map = ZB_NEWN(x->tmp, uint32_t, old.nvalues + 1);
  s->nodes = NULL;
  s->values = NULL;
  s->nnodes = s->nforward = s->nvalues = 0;
  for (uint32_t i = 0; i < old.nnodes; i++) {
    ZgNode n = old.nodes[i];
    for (int k = 0; k < n.nin; k++) n.in[k] = map[n.in[k]];
    uint32_t v = zg_node_add(x->g, s, n, n.nout ? &old.values[n.out].type : NULL);
    for (uint32_t k = 0; k < n.nout; k++) map[n.out + k] = v + k;
    for (int k = 0; n.op == ZG_OP_DOT && k < 2; k++) {
      uint32_t p = param_of(s, n.in[k]);
      if (p == ZG_NONE || !x->matrix[p].adapted) continue;
      Maker m = {x->g, s, n.region, n.loc};
      map[n.out] = make_adapter(x, &m, &x->matrix[p], n, n.in[!k], v);
    }
  }
}

/* ---- which adapter counts ------------------------------------------------------------------------------ */
/* Finds the ids that are looked up as words: what numbers of adapters stand beside. */
static uint32_t tokens_of(const ZgGraph *g) {
  for (uint32_t i = 0; i < g->ninputs; i++)
    if (g->inputs[i].type.elem == ZG_INDEX && zg_axis_is_looked_up(g, g->inputs[i].type.of)) return i;
  return ZG_NONE;
}

/* Finds, or makes, the input that says so. */
static bool make_input(Adapt *x) {
  ZgGraph *g = x->g;
  static const char name[] = "adapter";
  uint32_t tokens = tokens_of(g);
  for (uint32_t i = 0; i < g->ninputs && x->which; i++)
    if (!strcmp(g->inputs[i].name, name)) x->input = i;
  if (x->of == 1 || x->which) return true;
  if (tokens == ZG_NONE || zg_axis_find(g, name) != ZG_NONE || g->naxes == ZG_MAX_GRAPH_AXES ||
      g->ninputs + g->noutputs == ZG_MAX_IO)
    return fails(x, "give one adapter",
                 "it cannot have several: it has no tokens, or an axis `%s` of its own", name);
  ZgIo io = g->inputs[tokens];
  io.name = name;
  io.type.of = (uint16_t)zg_axis_add(g, name, x->of);
  x->input = g->ninputs;
  ZB_PUSH(g->arena, g->inputs, g->ninputs, io);
  return true;
}

/* Rows of experts are no tokens any more, so nothing says there which adapter counts. */
static bool can_choose(const Adapt *x) {
  const ZgType *t = x->input != ZG_NONE ? &x->g->inputs[x->input].type : NULL;
  for (uint32_t s = 0; s < x->g->nsegments && t; s++)
    for (uint32_t i = 0; i < x->g->segments[s].nnodes; i++) {
      const ZgSegment *g = &x->g->segments[s];
      const ZgNode *n = &g->nodes[i];
      for (int k = 0; n->op == ZG_OP_DOT && k < 2; k++) {
        uint32_t p = param_of(g, n->in[k]);
        if (p != ZG_NONE && x->matrix[p].adapted && !zg_type_contains(&g->values[n->in[!k]].type, t))
          return fails(x, "give one adapter",
                       "it cannot have several beside %s, which is not of single tokens",
                       x->g->params[p].path);
      }
    }
  return true;
}

/* Returns the probability with which a number of x counts for an adapter while it is trained. */
static double kept_by(const ZgGraph *g, const char *mark, const ZcOptions *opt) {
  const char *dropout = opt->still ? NULL : zg_adapter_value(g, mark, "lora_dropout");
  return 1 - (dropout ? strtod(dropout, NULL) : 0);
}

bool adapt_graph(ZgGraph *g, ZbArena *tmp, ZlDiags *d, const ZcOptions *opt, uint32_t which,
                 const char *(*prefix_of)(void *, const char *map), void *arg) {
  uint32_t nparams = g->nparams;
  const char *mark = zg_adapter_mark(tmp, which);
  Adapt x = {.g = g,
             .tmp = tmp,
             .d = d,
             .which = which,
             .of = opt->lora ? 1 : opt->nadapters,
             .mark = mark,
             .config = zb_printf(tmp, "%s" ZG_ADAPTER, mark),
             .input = ZG_NONE,
             .strict = opt->lora != NULL,
             .keep = kept_by(g, mark, opt),
             .prefix_of = prefix_of,
             .arg = arg,
             .matrix = ZB_NEWN(tmp, Matrix, nparams + 1)};
  ZbErr err;
  if (!g->nforeign)
    return fails(&x, "say `weights hf for` the model beside it", "it has no names for its weights elsewhere");
  x.map = g->foreign[0].map;
  note_uses(&x);
  if (!read_targets(&x) || !adapt_all(&x) || !place_all(&x, nparams) || !make_input(&x) || !can_choose(&x))
    return false;
  for (uint32_t i = 0; i < g->nsegments; i++) rewrite(&x, &g->segments[i]);
  return zg_verify_foreign(g, &err) || fails(&x, NULL, "%s", err.text);
}
