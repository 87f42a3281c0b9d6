/* Weights by other names: the maps of a model (`weights hf for M { ... }`) become parts of parameters in
 * foreign tensors, by the parameters that the model came to have. Checked both ways: every parameter and
 * every foreign tensor is covered once. */
#include "compiler/elab.h"
#include "graph/adapter.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *place, *is; /* "{i}", "*" */
} Bound;
enum { MAX_PLACES = 16 };

typedef struct {
  Elab *e;
  const ZlWeights *w;
  const char *without;    /* what foreign names lose, of rules that another map has; or "" */
  const ZlMapRule **rule; /* by parameter: which one says where it is */
  ZbNames tensors;        /* foreign names so far, and by their numbers */
  const ZlMapRule **tensor_rule;
  uint32_t ntensors;
  uint64_t count; /* of tensors, over all iterations */
  ZlSpan beyond;  /* the pattern that is one too many */
} Map;

/* The rule being applied, and what its places are in one match. */
typedef struct {
  Map *m;
  const ZlMapRule *r;
  Bound bound[MAX_PLACES];
  uint32_t n;
} Match;

/* ---- places -------------------------------------------------------------------------------------------- */
static const char *place_find(const Match *x, const char *place, size_t n) {
  for (uint32_t i = 0; i < x->n; i++)
    if (!strncmp(x->bound[i].place, place, n) && !x->bound[i].place[n]) return x->bound[i].is;
  return NULL;
}

/* False if the place is something else already. */
static bool place_bind(Match *x, const char *place, const char *is) {
  const char *before = place_find(x, place, strlen(place));
  if (before) return !strcmp(before, is);
  if (x->n == MAX_PLACES) return false;
  x->bound[x->n++] = (Bound){place, is};
  return true;
}

static bool is_place(const ZlName *part) { return part->s[0] == '{'; }

static const char *path_with(const Match *x, const ZlPath *p) {
  ZbText t = {0};
  for (uint32_t i = 0; i < p->n; i++) {
    const char *s = p->part[i].s, *is = is_place(&p->part[i]) ? place_find(x, s, strlen(s)) : s;
    zb_text_add(&t, "%s%s", i ? "." : "", is ? is : s);
  }
  const char *s = zb_strdup(x->m->e->arena, t.s);
  zb_text_free(&t);
  return s;
}

/* Is `path` what the rule says, with an iteration, `*` or a number, for each place? */
static bool path_matches(Match *x, const ZlPath *p, const char *path) {
  x->n = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    size_t n = strcspn(path, ".");
    const char *s = p->part[i].s;
    if (!is_place(&p->part[i])) {
      if (strlen(s) != n || memcmp(s, path, n)) return false;
    } else {
      bool iteration = (n == 1 && *path == '*') || (n && strspn(path, "0123456789") >= n);
      if (!iteration || !place_bind(x, s, zb_strndup(x->m->e->arena, path, n))) return false;
    }
    path += n;
    if (i + 1 < p->n && *path++ != '.') return false;
  }
  return *path == 0;
}

/* ---- foreign names: "h.{i}.w", "h.{6*g+k}.w" ------------------------------------------------------------- */
/* What stands in braces is a sum of places, multiples of them, and numbers: the next of its terms. */
typedef struct {
  uint64_t times;    /* or the number */
  const char *place; /* its name, without braces, or NULL */
  size_t n;
} Term;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void skip_blanks(const char **s, const char *end) {
  while (*s < end && **s == ' ') ++*s;
}

/* False if there is none before `end`. */
static bool next_term(const char **s, const char *end, Term *t) {
  *t = (Term){.times = 1};
  skip_blanks(s, end);
  const char *from = *s;
  while (*s < end && is_digit(**s)) ++*s;
  if (*s - from > 6) return false;
  bool number = *s > from;
  if (number) t->times = strtoull(from, NULL, 10);
  skip_blanks(s, end);
  bool times = number && *s < end && **s == '*';
  *s += times;
  if (!number || times) {
    skip_blanks(s, end);
    t->place = *s;
    while (*s < end && is_word(**s)) ++*s;
    t->n = (size_t)(*s - t->place);
    if (!t->n || is_digit(*t->place)) return false;
    skip_blanks(s, end);
  }
  if (*s == end) return true;
  return *(*s)++ == '+' && *s < end;
}

/* The next part of a name in braces, from the brace on; *end: after it. NULL if there is none. */
static const char *next_braces(const char *s, const char **end) {
  const char *open = strchr(s, '{'), *close = open ? strchr(open, '}') : NULL;
  if (close) *end = close + 1;
  return close ? open : NULL;
}

static bool names_place(const char *text, const char *place) {
  for (const char *s = text, *in; (in = next_braces(s, &s));) {
    Term t;
    for (in++; next_term(&in, s - 1, &t);)
      if (t.place && !strncmp(t.place, place + 1, t.n) && !strcmp(place + 1 + t.n, "}")) return true;
  }
  return false;
}

static bool has_only(const char *name, const char *refused) { /* outside of braces */
  for (const char *s = name, *end, *in;; s = end) {
    in = next_braces(s, &end);
    size_t n = in ? (size_t)(in - s) : strlen(s);
    if (strcspn(s, refused) < n) return false;
    if (!in) return true;
  }
}

/* Every place of the left in the name, and none else; nothing that a name cannot hold. */
static bool check_name(Elab *e, const ZlMapRule *r) {
  const char *name = r->tensor.s;
  for (uint32_t k = 0; k < r->nours; k++)
    for (uint32_t i = 0; i < r->ours[k].n; i++) {
      const ZlName *part = &r->ours[k].part[i];
      if (!is_place(part) || names_place(name, part->s)) continue;
      ZlDiag *d =
          complain(e, ZL_Z1006, r->tensor.span, "the foreign name does not say where `%s` goes", part->s);
      zl_help(d, "each iteration has a tensor of its own: write `%s` in its name", part->s);
      return false;
    }
  if (r->index.s && !names_place(name, r->index.s)) {
    complain(e, ZL_Z1006, r->tensor.span, "the foreign name does not say where `%s` goes", r->index.s);
    return false;
  }
  if (*name && has_only(name, " *")) return true;
  complain(e, ZL_Z1006, r->tensor.span, "a foreign name is not empty and has no blanks and no `*`");
  return false;
}

static const char *shorter(const Map *m, const char *name) {
  size_t n = strlen(m->without);
  return strncmp(name, m->without, n) ? name : name + n;
}

/* What a term is a multiple of: `*`, or a number; NULL if it is neither a place of the left nor a static. */
static const char *term_of(const Match *x, const Term *t) {
  Elab *e = x->m->e;
  if (!t->place) return "1";
  const char *name = zb_printf(e->arena, "{%.*s}", (int)t->n, t->place), *is = place_find(x, name, t->n + 2);
  if (is) return is;
  const Bind *b = name_find(e, zb_strndup(e->arena, t->place, t->n));
  int64_t n;
  bool whole = b && b->val.kind == VAL_NUM && num_is_int(b->val.num, &n) && n >= 0 && n < ZG_MAX_FOREIGN;
  return whole ? zb_printf(e->arena, "%lld", (long long)n) : NULL;
}

/* What stands in braces, as a number or with the iteration; NULL if something in it is neither. */
static const char *sum_of(const Match *x, const char *s, const char *end) {
  uint64_t times = 0, plus = 0;
  for (Term t; s < end;) {
    if (!next_term(&s, end, &t)) return NULL;
    const char *is = term_of(x, &t);
    if (!is) return NULL;
    if (*is == '*') times += t.times;
    else plus += t.times * strtoull(is, NULL, 10);
  }
  if (times == 0) return zb_printf(x->m->e->arena, "%llu", (unsigned long long)plus);
  if (times == 1 && plus == 0) return "*";
  return zb_printf(x->m->e->arena, "%llu*+%llu", (unsigned long long)times, (unsigned long long)plus);
}

/* The foreign name with places filled in; NULL and a report for a place that is not on the left. */
static const char *name_with(const Match *x) {
  ZbText t = {0};
  Elab *e = x->m->e;
  ZlSpan span = x->r->tensor.span;
  const char *s = shorter(x->m, x->r->tensor.s), *out = NULL, *unknown = NULL, *in, *end;
  bool beside = false;
  while ((in = next_braces(s, &end)) && !unknown) {
    const char *is = sum_of(x, in + 1, end - 1);
    if (!is) unknown = zb_strndup(e->arena, in, (size_t)(end - in));
    zb_text_put(&t, s, (size_t)(in - s));
    if (is && strchr(is, '*')) beside |= is_digit(*end) || (t.len && is_digit(t.s[t.len - 1]));
    zb_text_add(&t, "%s", is ? is : "");
    s = end;
  }
  if (!unknown && strchr(s, '{')) unknown = strchr(s, '{');
  if (!unknown) zb_text_add(&t, "%s", s);
  if (unknown) complain(e, ZL_Z1006, span, "the left side has no `%s`", unknown);
  else if (!t.len) complain(e, ZL_Z1006, span, "nothing is left of the foreign name `%s`", x->r->tensor.s);
  else if (t.len > 255) complain(e, ZL_Z1006, span, "the foreign name is longer than 255 bytes");
  else if (beside)
    complain(e, ZL_Z1006, span, "an iteration beside a digit: the names would not be told apart");
  else out = zb_strdup(e->arena, t.s);
  zb_text_free(&t);
  return out;
}

/* ---- where a parameter lies ---------------------------------------------------------------------------- */
/* An element's place along some of a tensor: first + sum of index * stride over the parameter's axes. */
typedef struct {
  int64_t size, first, stride[ZG_MAX_AXES];
} Lay;

/* Of the parameter that is number `k` of the rule's. */
typedef struct {
  Elab *e;
  const ZlMapRule *r;
  const ZgParam *p;
  uint32_t k;
  int fixed;
  unsigned seen;  /* its declared axes */
  uint32_t joins; /* where its place among several is said */
} Laying;

static int declared(const ZgParam *p, uint16_t axis) {
  for (int i = 0; i < p->type.naxes; i++)
    if (p->type.axis[p->order[i]] == axis) return i;
  return -1;
}

static bool lay_fails(const Laying *l, ZlSpan span, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool lay_fails(const Laying *l, ZlSpan span, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  ZlDiag *d = complain(l->e, ZL_Z1004, span, "%s", text);
  ZbText t = {0};
  for (int i = 0; i < l->p->type.naxes; i++)
    zb_text_add(&t, "%s%s", i ? ", " : "", l->e->g->axes[l->p->type.axis[l->p->order[i]]].name);
  zl_note(d, "the parameter is `%s[%s]`", l->p->path, t.s);
  zb_text_free(&t);
  return false;
}

/* out = out, and c inside of it; false beyond what a tensor can have. */
static bool lay_merge(Lay *out, const Lay *c) {
  uint64_t size;
  if (!zb_mul_u64((uint64_t)out->size, (uint64_t)c->size, &size) || size > ZG_MAX_ELEMENTS) return false;
  out->size = (int64_t)size;
  out->first = out->first * c->size + c->first;
  for (int i = 0; i < ZG_MAX_AXES; i++) out->stride[i] = out->stride[i] * c->size + c->stride[i];
  return true;
}

static bool too_large(const Laying *l, ZlSpan span) {
  return lay_fails(l, span, "the foreign tensor would have more than 2^48 elements");
}

/* An axis by its name: the model's, or one that the block of the parameter declares. */
static bool axis_named(const Laying *l, ZlName name, uint16_t *out) {
  if (axis_find(l->e, name.s, out) && declared(l->p, *out) >= 0) return true;
  for (uint32_t i = 0; i < l->e->nlocal; i++) {
    *out = l->e->local[i].axis;
    if (declared(l->p, *out) >= 0 && !strcmp(l->e->local[i].name, name.s)) return true;
  }
  return axis_resolve(l->e, name, out);
}

/* How long a piece is, whosever axes it has. */
static bool dim_size(const Laying *l, const ZlDim *d, int64_t *out) {
  uint16_t axis;
  *out = d->kind == ZL_DIM_NUMBER ? d->number : d->kind == ZL_DIM_JOIN ? 0 : 1;
  if (d->kind == ZL_DIM_AXIS) {
    if (!axis_named(l, d->axis, &axis)) return false;
    *out = l->e->g->axes[axis].size;
  }
  for (uint32_t i = 0; i < d->n; i++) {
    int64_t size;
    if (!dim_size(l, d->at[i], &size)) return false;
    if (size > (int64_t)ZG_MAX_ELEMENTS || *out > (int64_t)ZG_MAX_ELEMENTS) return too_large(l, d->span);
    uint64_t made = d->kind == ZL_DIM_JOIN ? (uint64_t)(*out + size) : 0;
    bool fits = d->kind == ZL_DIM_JOIN || zb_mul_u64((uint64_t)*out, (uint64_t)size, &made);
    if (!fits || made > ZG_MAX_ELEMENTS) return too_large(l, d->span);
    *out = (int64_t)made;
  }
  return true;
}

static bool lay_axis(Laying *l, const ZlDim *d, Lay *out) {
  uint16_t axis;
  if (!axis_named(l, d->axis, &axis)) return false;
  int i = declared(l->p, axis);
  if (i < 0) return lay_fails(l, d->span, "parameter `%s` has no axis `%s`", l->p->path, d->axis.s);
  if (i == l->fixed) return lay_fails(l, d->span, "`%s` is one index here, `%s`", d->axis.s, l->r->index.s);
  if (l->seen >> i & 1) return lay_fails(l, d->span, "axis `%s` occurs twice", d->axis.s);
  l->seen |= 1u << i;
  out->size = l->e->g->axes[axis].size;
  out->stride[i] = 1;
  return true;
}

static bool lay_number(Laying *l, const ZlDim *d, Lay *out) {
  if (d->number == 1) return true;
  if (d->number != l->r->nours) {
    ZlDiag *g =
        complain(l->e, ZL_Z1004, d->span, "a number says how many parameters lie side by side; there %s %u",
                 l->r->nours == 1 ? "is" : "are", l->r->nours);
    zl_help(g, "a size is written as the name of its axis");
    return false;
  }
  l->joins++;
  out->size = d->number;
  out->first = l->k;
  return true;
}

static bool lay(Laying *l, const ZlDim *d, Lay *out);

static bool lay_join(Laying *l, const ZlDim *d, Lay *out) {
  if (d->n != l->r->nours) {
    ZlDiag *g = complain(l->e, ZL_Z1004, d->span, "%u pieces one after another, for %u parameter%s", d->n,
                         l->r->nours, l->r->nours == 1 ? "" : "s");
    zl_help(g, "name the parameters in a group: `layer.{i}.(a, b) = ...`");
    return false;
  }
  int64_t all = 0, first = 0, size;
  for (uint32_t i = 0; i < d->n; i++) {
    if (!dim_size(l, d->at[i], &size)) return false;
    if (i < l->k) first += size;
    all += size;
    if (all > (int64_t)ZG_MAX_ELEMENTS) return too_large(l, d->span);
  }
  l->joins++;
  if (!lay(l, d->at[l->k], out)) return false;
  out->size = all;
  out->first += first;
  return true;
}

static bool lay(Laying *l, const ZlDim *d, Lay *out) {
  *out = (Lay){.size = 1};
  if (!elab_spend(l->e, ELAB_WORK, 1, d->span)) return false;
  if (d->kind == ZL_DIM_AXIS) return lay_axis(l, d, out);
  if (d->kind == ZL_DIM_NUMBER) return lay_number(l, d, out);
  if (d->kind == ZL_DIM_JOIN) return lay_join(l, d, out);
  for (uint32_t i = 0; i < d->n; i++) {
    Lay c;
    if (!lay(l, d->at[i], &c)) return false;
    if (!lay_merge(out, &c)) return too_large(l, d->span);
  }
  return true;
}

/* All of the rule's axes for parameter `param`, number k of the rule's, into f; the index of a fixed axis is
 * left. */
static bool lay_param(Elab *e, const ZlMapRule *r, uint32_t param, uint32_t k, ZgForeign *f) {
  const ZgParam *p = &e->g->params[param];
  Laying l = {.e = e, .r = r, .p = p, .k = k, .fixed = -1};
  Lay all = {.size = 1}, c;
  uint16_t axis;
  if (r->axis.s) {
    if (!axis_named(&l, r->axis, &axis)) return false;
    l.fixed = declared(p, axis);
    if (l.fixed < 0)
      return lay_fails(&l, r->axis.span, "parameter `%s` has no axis `%s`", p->path, r->axis.s);
  }
  if (r->ndims > ZG_MAX_AXES) return lay_fails(&l, r->tensor.span, "more than %d axes", ZG_MAX_AXES);
  for (uint32_t i = 0; i < r->ndims; i++) {
    if (!lay(&l, r->dims[i], &c)) return false;
    if (!lay_merge(&all, &c)) return too_large(&l, r->dims[i]->span);
    f->dims[i] = c.size;
  }
  for (int i = 0; i < p->type.naxes; i++)
    if (i != l.fixed && !(l.seen >> i & 1))
      return lay_fails(&l, r->tensor.span, "axis `%s` of parameter `%s` is missing",
                       e->g->axes[p->type.axis[p->order[i]]].name, p->path);
  if (l.joins != (r->nours > 1)) {
    ZlDiag *d = complain(e, ZL_Z1004, r->tensor.span,
                         "how the %u parameters share the tensor is said %u times", r->nours, l.joins);
    zl_help(d, "write `%u` before the axes of one, or `+` between them, once", r->nours);
    return false;
  }
  f->param = param;
  f->ndims = (uint8_t)r->ndims;
  f->first = all.first;
  f->fixed = (int8_t)l.fixed;
  memcpy(f->stride, all.stride, sizeof f->stride);
  return true;
}

/* ---- rules --------------------------------------------------------------------------------------------- */
static void no_parameter(Map *m, const ZlPath *p, const char *path) {
  Elab *e = m->e;
  ZlDiag *d = complain(e, ZL_Z1001, p->span, "model %s has no parameter `%s`", m->w->model.s, path);
  const char *near = zl_full(e->diags) ? NULL : zb_nearest(path, e->param_paths.name, e->param_paths.n);
  if (!near) return;
  const char *star = strchr(near, '*');
  if (star) near = zb_printf(e->arena, "%.*s{i}%s", (int)(star - near), near, star + 1);
  zl_help(d, "did you mean `%s`?", near);
}

static bool take_param(Map *m, const ZlMapRule *r, const ZlPath *p, uint32_t param) {
  const ZlMapRule *before = m->rule[param];
  m->rule[param] = r;
  if (!before) return true;
  ZlDiag *d =
      complain(m->e, ZL_Z1002, p->span, "parameter `%s` is mapped twice", m->e->g->params[param].path);
  zl_also(d, before->span, "first here");
  return false;
}

static bool take_tensor(Map *m, const ZlMapRule *r, const char *name) {
  uint32_t before = zb_names_find(&m->tensors, name);
  if (before != ZB_NO_NAME) {
    ZlDiag *d = complain(m->e, ZL_Z1005, r->tensor.span, "foreign tensor `%s` is mapped twice", name);
    if (m->tensor_rule[before] != r) zl_also(d, m->tensor_rule[before]->tensor.span, "first here");
    zl_help(d, "where it holds several parameters, map them together: `layer.{i}.(a, b) = ...`");
    return false;
  }
  zb_names_add(m->e->arena, &m->tensors, name);
  ZB_PUSH(m->e->arena, m->tensor_rule, m->ntensors, r);
  return true;
}

/* Before any of them is made: an axis may be longer than all memory. */
static bool count_tensors(Map *m, const ZlMapRule *r, const ZgParam *p, int64_t times) {
  const ZgGraph *g = m->e->g;
  m->count += (uint64_t)times * (p->segment == ZG_NONE ? 1 : g->segments[p->segment].trip);
  if (m->count <= ZG_MAX_FOREIGN) return true;
  ZlDiag *d = complain(m->e, ZL_Z0111, r->span,
                       "with this rule weights %s have %llu foreign tensors, at most %u are possible",
                       m->w->name.s, (unsigned long long)m->count, ZG_MAX_FOREIGN);
  if (r->axis.s) zl_help(d, "`%s` as an axis of one foreign tensor needs no index", r->axis.s);
  return false;
}

/* One match of a rule: its parameters, whole or index by index. */
static bool apply(Match *x, const uint32_t *param, ZgForeign *f) {
  Map *m = x->m;
  Elab *e = m->e;
  const ZlMapRule *r = x->r;
  uint32_t places = x->n;
  int64_t times = 1;
  for (uint32_t k = 0; k < r->nours; k++) {
    f[k] = (ZgForeign){.map = m->w->name.s};
    if (!lay_param(e, r, param[k], k, &f[k])) return false;
    const ZgParam *p = &e->g->params[param[k]], *first = &e->g->params[param[0]];
    if (p->segment != first->segment) {
      complain(e, ZL_Z1004, r->ours[k].span, "`%s` is in another repeat than `%s`", p->path, first->path);
      return false;
    }
    if (r->axis.s) times = e->g->axes[p->type.axis[p->order[f[k].fixed]]].size;
  }
  if (!count_tensors(m, r, &e->g->params[param[0]], times)) return false;
  for (int64_t i = 0; i < times; i++) {
    if (!elab_spend(e, ELAB_WORK, r->nours, r->span)) return false;
    x->n = places;
    if (r->index.s && !place_bind(x, r->index.s, zb_printf(e->arena, "%lld", (long long)i))) {
      complain(e, ZL_Z1006, r->index.span, "`%s` is a place of the path already", r->index.s);
      return false;
    }
    const char *name = name_with(x);
    if (!name || !take_tensor(m, r, name)) return false;
    for (uint32_t k = 0; k < r->nours; k++) {
      f[k].name = name;
      f[k].at = i;
      zg_foreign_add(e->g, f[k]);
    }
  }
  return true;
}

static void do_rule(Map *m, const ZlMapRule *r) {
  Elab *e = m->e;
  Match x = {.m = m, .r = r};
  uint32_t *param = ZB_NEWN(e->arena, uint32_t, r->nours), matches = 0;
  ZgForeign *f = ZB_NEWN(e->arena, ZgForeign, r->nours);
  if (!elab_spend(e, ELAB_WORK, 1 + e->g->nparams / 16, r->span) || !check_name(e, r)) return;
  for (uint32_t i = 0; i < e->g->nparams; i++) {
    if (!path_matches(&x, &r->ours[0], e->g->params[i].path)) continue;
    matches++;
    for (uint32_t k = 0; k < r->nours; k++) {
      const char *path = path_with(&x, &r->ours[k]);
      param[k] = zb_names_find(&e->param_paths, path);
      if (param[k] == ZB_NO_NAME) {
        no_parameter(m, &r->ours[k], path);
        return;
      }
      if (!take_param(m, r, &r->ours[k], param[k])) return;
    }
    if (apply(&x, param, f)) continue;
    for (uint32_t k = 0; k < r->nours; k++) m->rule[param[k]] = NULL; /* so that no more is said of them */
    return;
  }
  x.n = 0;
  if (!matches) no_parameter(m, &r->ours[0], path_with(&x, &r->ours[0]));
}

/* ---- maps ---------------------------------------------------------------------------------------------- */
static void check_all_mapped(Map *m) {
  const ZgGraph *g = m->e->g;
  bool *mapped = ZB_NEWN(m->e->arena, bool, g->nparams + 1);
  for (uint32_t i = 0; i < g->nparams; i++) mapped[i] = m->rule[i] != NULL;
  if (zg_tags_of_map(g, mapped)) return; /* of these alone, such as adapters */
  for (uint32_t i = 0; i < g->nparams; i++) {
    if (m->rule[i]) continue;
    ZlDiag *d = complain(m->e, ZL_Z1003, m->w->span, "weights %s do not say where parameter `%s` is",
                         m->w->name.s, g->params[i].path);
    zl_also(d, m->e->param_span[i], "declared here");
  }
}

/* Returns the foreign tensor that an ignored one is a copy of, NULL if the map does not say. */
static const char *original(Map *m, const ZlIgnore *i) {
  const char *name = i->of.s ? shorter(m, i->of.s) : NULL;
  if (!name) return NULL;
  if (strchr(i->pattern.s, '*'))
    complain(m->e, ZL_Z1006, i->pattern.span, "a pattern with `*` is of many tensors, not the copy of one");
  else if (zb_names_find(&m->tensors, name) == ZB_NO_NAME)
    complain(m->e, ZL_Z1005, i->of.span, "no rule of these weights reads `%s`, so nothing is its copy", name);
  return name;
}

/* The rules of `w`, which is the map itself or the one that it is made from. */
static void do_rules(Map *m, const ZlWeights *w) {
  Elab *e = m->e;
  for (uint32_t i = 0; i < w->nrules && !e->stopped; i++)
    if (cond_holds(e, w->rules[i].cond)) do_rule(m, &w->rules[i]);
  for (uint32_t i = 0; i < w->nignored; i++) {
    const ZlName *p = &w->ignored[i].pattern;
    const char *pattern = shorter(m, p->s);
    if (!cond_holds(e, w->ignored[i].cond)) continue;
    if (!*pattern || strchr(pattern, ' '))
      complain(e, ZL_Z1006, p->span, "a pattern is not empty and has no blanks");
    else {
      if (e->g->nignored == ZG_MAX_KEYS) m->beyond = p->span;
      zg_ignored_add(e->g, m->w->name.s, pattern, original(m, &w->ignored[i]));
    }
  }
}

static void do_map(Elab *e, const ZlWeights *w, ZlSpan *beyond) {
  Map m = {
      .e = e, .w = w, .beyond = *beyond, .rule = ZB_NEWN(e->arena, const ZlMapRule *, e->g->nparams + 1)};
  size_t errors = zl_errors(e->diags);
  if (w->base) {
    m.without = w->without.s;
    do_rules(&m, w->base);
  }
  m.without = "";
  do_rules(&m, w);
  if (!e->g->nparams) complain(e, ZL_Z1001, w->span, "model %s has no parameters", w->model.s);
  if (zl_errors(e->diags) == errors) check_all_mapped(&m); /* else they may be what was meant */
  *beyond = m.beyond;
}

void weights_most(Elab *e, uint32_t n, const char *what, ZlSpan beyond, const char *help) {
  if (n <= ZG_MAX_KEYS) return;
  zl_help(complain(e, ZL_Z0111, beyond, "the weights of model %s have %u %s, at most %u are possible",
                   e->model->name.s, n, what, ZG_MAX_KEYS),
          "%s", help);
}

void weights_map(Elab *e) {
  const ZlFile *f = e->model->file;
  size_t errors = zl_errors(e->diags);
  ZlSpan last = ZL_NOWHERE, beyond = ZL_NOWHERE;
  for (uint32_t i = 0; i < f->nweights && !e->stopped; i++) {
    if (strcmp(f->weights[i]->model.s, e->model->name.s)) continue;
    do_map(e, f->weights[i], &beyond);
    last = f->weights[i]->span;
  }
  weights_most(e, e->g->nignored, "patterns to ignore", beyond, "one pattern with `*` stands for many names");
  ZbErr err;
  if (zl_errors(e->diags) == errors && !zg_verify_foreign(e->g, &err)) /* what only all rules together show */
    complain(e, ZL_Z1005, last, "%s", err.text);
}
