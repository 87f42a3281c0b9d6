/* Which parameters are stored in 8 or 4 bits (kernels/packed.h), after `precision weights`: those that are
 * matrices in all that the model does with them, and are not trained. Norms, biases and whatever else is no
 * matrix stay as they are, also where their names are among those of the recipe.
 *
 * A list behind `for` says it of what it names; without one it is said of all other matrices but adapters, small
 * ones and those that choose experts. Then rows that are looked up are in 8 bits whatever the format, since a
 * token's whole input depends on them. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <string.h>

typedef struct {
  const ZlPacking *said;
  bool *of, *but;
  uint32_t packs; /* parameters */
  uint32_t trained,
      odd; /* the first that cannot be, since it is trained, or for what `uses` says; or ZP_NONE */
  ZpParamUses uses;
} Said;

static ZkElem format_of(const ZpPlan *p, const char *format, int64_t group) {
  ZkElem e = zk_elem_named(zb_printf(p->arena, "%s group %lld", format, (long long)group));
  ZB_ASSERT(e != ZK_NONE);
  return e;
}

/* Returns how many elements of an axis a rank has of tensors of a type. */
static int64_t local_size(const ZpPlan *p, const ZgType *t, uint16_t axis) {
  int64_t n = p->layout.axis_size[axis];
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    uint32_t first = 0;
    while (first < dim->naxes && !zg_type_has(t, dim->axes[first])) first++;
    if (d != p->layout.mesh.pipe && first < dim->naxes && dim->axes[first] == axis) n /= dim->size;
  }
  return n;
}

static const char *names_of(const ZpPlan *p, const ZgParam *q, const uint8_t *role, ZpRole which) {
  const char *text = "";
  for (int i = 0; i < q->type.naxes; i++)
    if (role[i] == which)
      text = zb_printf(p->arena, "%s%s`%s`", text, *text ? " x " : "",
                       p->graph->axes[q->type.axis[q->order[i]]].name);
  return text;
}

/* Returns whether the whole matrix has groups of some size: those of small ones are not worth a message. */
static bool fits_any(const ZpPlan *p, const ZgParam *q, const uint8_t *role) {
  int64_t n = 1, rows = 1;
  bool each = false;
  for (int i = 0; i < q->type.naxes; i++) {
    int64_t size = p->layout.axis_size[q->type.axis[q->order[i]]];
    if (role[i] == ZP_COLS) n *= size;
    if (role[i] == ZP_ROWS) rows *= size;
    each |= role[i] == ZP_EACH;
  }
  return n % 32 == 0 && !(each && rows % ZK_COLUMNS);
}

/* Returns whether a product with the matrix says which experts a token has: a rounding may choose others. */
static bool is_router(const ZpPlan *p, const ZgParam *q, const uint8_t *role) {
  bool is = false;
  for (int i = 0; i < q->type.naxes; i++)
    for (uint32_t slot = 0; role[i] == ZP_ROWS && slot < p->graph->naxes; slot++)
      is |= p->layout.experts[slot] == q->type.axis[q->order[i]];
  return is;
}

/* Reports a matrix of which a rank has no whole groups. */
static void check_groups(ZpBuild *b, const Said *s, uint32_t param, const ZpPacked *k) {
  const ZpPlan *p = b->p;
  const ZgParam *q = &p->graph->params[param];
  int64_t n = 1, rows = 1, whole = 1;
  bool each = false;
  for (int i = 0; i < q->type.naxes; i++) {
    uint16_t axis = q->type.axis[q->order[i]];
    int64_t size = local_size(p, &q->type, axis);
    if (k->role[i] == ZP_COLS) n *= size, whole *= p->layout.axis_size[axis];
    if (k->role[i] == ZP_ROWS) rows *= size;
    each |= k->role[i] == ZP_EACH;
  }
  int64_t group = zk_packed_group((ZkElem)k->elem);
  if (n % group) {
    ZlDiag *e = zl_report(b->d, ZL_Z0805, s->said->span,
                          "groups of %lld do not divide the %lld elements%s of %s "
                          "that a product with `%s` sums over",
                          (long long)group, (long long)n, n < whole ? " on a rank" : "",
                          names_of(p, q, k->role, ZP_COLS), q->path);
    int64_t less = group;
    while (less > 32 && n % less) less /= 2;
    if (n % less == 0) zl_help(e, "write `group %lld`", (long long)less);
    else if (n < whole && whole % group == 0) zl_help(e, "split less, or leave it out: `except %s`", q->path);
    else zl_help(e, "leave it out: `except %s`", q->path);
  }
  if (each && rows % ZK_COLUMNS)
    zl_help(zl_report(b->d, ZL_Z0805, s->said->span,
                      "`%s` has matrices of %lld rows (%s), which are not a multiple "
                      "of %d",
                      q->path, (long long)rows, names_of(p, q, k->role, ZP_ROWS), ZK_COLUMNS),
            "leave it out: `except %s`", q->path);
}

/* Says whether a parameter is an adapter's: they are small, and what was trained last. */
static bool is_adapter(const ZgGraph *g, uint32_t param) {
  uint32_t tag = 0;
  while (tag < g->ntags && strcmp(g->tags[tag], "lora")) tag++;
  return tag < g->ntags && g->params[param].tags >> tag & 1;
}

/* Returns what is said of a parameter: by a list that names it, else, but for adapters, by what names none; NULL:
 * nothing. */
static Said *said_of(ZpBuild *b, Said *s, uint32_t n, uint32_t param) {
  Said *found = NULL, *rest = NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (s[i].but[param]) continue;
    if (!s[i].said->of.n) rest = &s[i];
    if (!s[i].of[param]) continue;
    if (found) {
      ZlDiag *e =
          zl_report(b->d, ZL_Z0803, s[i].said->span, "this and another precision both name parameter `%s`",
                    b->p->graph->params[param].path);
      zl_also(e, found->said->span, "the other");
      zl_help(e, "name each parameter once, or leave it out of one by `except`");
    }
    found = &s[i];
  }
  return found || is_adapter(b->p->graph, param) ? found : rest;
}

/* Returns whether what is not frozen is trained: also where a recipe that freezes is evaluated, or generates. */
static bool trains(const ZpPlan *p) {
  const ZlRecipe *r = p->asked.recipe;
  return !p->asked.forward_only || r->freeze.all || r->freeze.of.n;
}

static void pack(ZpBuild *b, Said *s, uint32_t param, ZbArena *scratch) {
  ZpPlan *p = b->p;
  const ZgParam *q = &p->graph->params[param];
  ZpParamUses u;
  zp_param_uses(p->graph, scratch, param, &u);
  if (q->state || !zp_is_matrix(q, &u) ||
      (!s->said->of.n && (!fits_any(p, q, u.role) || is_router(p, q, u.role)))) {
    if (s->odd == ZP_NONE) s->odd = param, s->uses = u;
    return;
  }
  if (trains(p) && !(p->asked.frozen && p->asked.frozen[param])) {
    if (s->trained == ZP_NONE) s->trained = param;
    return;
  }
  const char *format = u.table && !s->said->of.n ? "int8" : s->said->format;
  ZpPacked *k = &p->asked.packed[param];
  k->elem = (uint8_t)format_of(p, format, s->said->group);
  memcpy(k->role, u.role, sizeof u.role);
  s->packs++;
  check_groups(b, s, param, k);
}

/* Reports what was said of nothing that can be packed; and of what is trained, if that was named. */
static void check_said(ZpBuild *b, const Said *s) {
  const ZpPlan *p = b->p;
  if (s->trained != ZP_NONE && (s->said->of.n || !s->packs)) {
    const char *path = p->graph->params[s->trained].path;
    ZlDiag *e = zl_report(b->d, ZL_Z0805, s->said->span,
                          "parameter `%s` is trained, which needs more than %s has", path, s->said->format);
    zl_help(e, s->packs ? "add `except` with what is trained"
                        : "freeze it (`freeze all except ...`), or leave it out");
    return;
  }
  if (s->packs) return;
  ZlDiag *e =
      zl_report(b->d, ZL_Z0805, s->said->span, "nothing of this can be stored in %s", s->said->format);
  if (s->odd != ZP_NONE) {
    const char *path = p->graph->params[s->odd].path;
    if (s->uses.other)
      zl_note(e, "`%s` is used otherwise than as a matrix at %s", path, zp_loc_text(p, s->uses.loc));
    else zl_note(e, "`%s` is not a matrix that a product sums over", path);
  }
  zl_help(e, "name matrices, such as the weights of products, or tables that are looked up");
}

void zp_bind_packed(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZlRecipe *r = p->asked.recipe;
  uint32_t n = p->graph->nparams;
  if (!r->npacked) return;
  ZbArena *scratch = zb_arena_new();
  Said *s = ZB_NEWN(scratch, Said, r->npacked);
  p->asked.packed = ZB_NEWN(p->arena, ZpPacked, n + 1);
  for (uint32_t i = 0; i < n; i++) p->asked.packed[i].elem = ZK_NONE;
  for (uint32_t i = 0; i < r->npacked; i++) {
    s[i] = (Said){.said = &r->packed[i], .trained = ZP_NONE, .odd = ZP_NONE};
    s[i].of = ZB_NEWN(scratch, bool, n + 1), s[i].but = ZB_NEWN(scratch, bool, n + 1);
    zp_select(b, r->packed[i].of.at, r->packed[i].of.n, s[i].of);
    zp_select(b, r->packed[i].but.at, r->packed[i].but.n, s[i].but);
  }
  for (uint32_t i = 0; i < n && !zl_errors(b->d); i++) {
    Said *of = said_of(b, s, r->npacked, i);
    if (of) pack(b, of, i, scratch);
  }
  for (uint32_t i = 0; i < r->npacked && !zl_errors(b->d); i++) check_said(b, &s[i]);
  zb_arena_free(scratch);
}
