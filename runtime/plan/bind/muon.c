/* The matrices that Muon orthogonalises (Jordan et al. 2024): which axes of a parameter are rows and columns,
 * how many matrices a bucket has, and which rank does which.
 *
 * The rule is that of the product in which the model uses the parameter: axes that it sums over are columns
 * (what comes in), axes that come out of it and are the parameter's alone are rows (what goes out), axes that
 * both operands and the result have number matrices of their own (`expert`), and so do those after `each`. Of
 * wq[embed, head, hd] in dot[embed](x, wq) that is one matrix of head*hd rows and embed columns; with
 * `each = head` there is one of hd rows for each head.
 *
 * A bucket's update is gathered whole over the dims that cut its matrices: those of its shards and those that
 * split rows or columns. Each matrix is orthogonalised by one rank of that group. A dim that splits only axes
 * that number matrices is none of these. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <string.h>

/* ---- what the recipe says ------------------------------------------------------------------------------ */
/* Axes after `each` number matrices; one that no parameter of the optimizer has is a mistake. */
static void take_each(ZpBuild *b, const ZlOptimizer *o, uint32_t which) {
  ZpPlan *p = b->p;
  const ZgGraph *g = p->graph;
  for (uint32_t k = 0; k < o->n; k++) {
    if (strcmp(o->kws[k].key.s, "each")) continue;
    bool found = false;
    for (uint32_t i = 0; i < g->nparams; i++) {
      const ZgParam *q = &g->params[i];
      if ((p->asked.frozen && p->asked.frozen[i]) || p->asked.groups[p->asked.group[i]].optimizer != which)
        continue;
      for (int j = 0; j < q->type.naxes; j++) {
        if (strcmp(g->axes[q->type.axis[q->order[j]]].name, o->kws[k].word)) continue;
        p->layout.roles[i][j] = ZP_EACH;
        found = true;
      }
    }
    if (found) continue;
    ZlDiag *e = zl_report(b->d, ZL_Z0304, o->kws[k].span,
                          "no parameter that this optimizer updates has an axis `%s`", o->kws[k].word);
    zl_help(
        e,
        "`each` names an axis that numbers matrices, such as `head`; leave it out if each parameter is one");
  }
}

/* Returns the first word after `for` that names more than the parameter called so: the label of a part that
 * this one is in; or NULL. */
static const char *label_of(const ZlOptimizer *o, const char *path) {
  const char *last = strrchr(path, '.');
  size_t n = last ? (size_t)(last - path) : 0;
  for (uint32_t i = 0; i < o->of.n; i++) {
    const ZlPath *words = &o->of.at[i];
    const char *word = words->part[words->n - 1].s;
    for (const char *at = path; n && at < path + n; at += strcspn(at, ".") + 1)
      if (strlen(word) == strcspn(at, ".") && !strncmp(at, word, strlen(word))) return word;
  }
  return NULL;
}

/* One report an optimizer: `already` is that of a parameter before. */
static ZlDiag *refuse(ZpBuild *b, const ZlOptimizer *o, uint32_t param, const ZpParamUses *u,
                      ZlDiag *already) {
  const ZgParam *q = &b->p->graph->params[param];
  if (already) {
    zl_note(already, "nor is `%s`", q->path);
    return already;
  }
  ZlDiag *e =
      zl_report(b->d, ZL_Z0805, o->span, "Muon updates matrices, and parameter `%s` is not one", q->path);
  const char *label = label_of(o, q->path);
  if (label)
    zl_note(e,
            "`%s` is a label, so `for %s` names all parameters in what is labelled so; `for %s.w` would name "
            "its `w` alone",
            label, label, label);
  if ((u->other || u->table) && u->product)
    zl_note(e, "it is in a product, and used otherwise at %s", zp_loc_text(b->p, u->loc));
  else if (u->other || u->table) zl_note(e, "it is in no product, but used at %s", zp_loc_text(b->p, u->loc));
  else zl_note(e, "a matrix has an axis that its product sums over, and one that comes out of it");
  zl_help(e, "name, after `for`, the parameters that are matrices, and leave this one to another optimizer");
  return e;
}

/* The roles of a parameter's axes. For Adafactor what is no matrix is one of a single row, whose columns' second moments are
 * those of its elements. */
static bool take_roles(ZpBuild *b, ZbArena *a, uint32_t param, const ZpOptimizer *o, ZpParamUses *u) {
  ZpPlan *p = b->p;
  bool factor = o->kind == ZK_BY_ADAFACTOR;
  zp_param_uses(p->graph, a, param, u);
  bool is = (factor || !u->table) && zp_is_matrix(&p->graph->params[param], u);
  if (is) memcpy(p->layout.roles[param], u->role, sizeof u->role);
  else memset(p->layout.roles[param], ZP_COLS, sizeof u->role);
  return is || factor;
}

void zp_bind_matrices(ZpBuild *b, const ZlOptimizer *const *o) {
  ZpPlan *p = b->p;
  bool any = false;
  for (uint32_t i = 0; i < p->asked.noptimizers; i++) any |= zp_takes_matrices(&p->asked.optimizers[i]);
  if (!any || p->asked.forward_only) return;
  ZbArena *a = zb_arena_new();
  ZlDiag **said = ZB_NEWN(a, ZlDiag *, p->asked.noptimizers);
  p->layout.roles = (void *)ZB_NEWN(p->arena, uint8_t, (size_t)p->graph->nparams * ZG_MAX_AXES);
  for (uint32_t i = 0; i < p->graph->nparams; i++) {
    uint32_t which = p->asked.groups[p->asked.group[i]].optimizer;
    const ZpOptimizer *by = &p->asked.optimizers[which];
    ZpParamUses u;
    if ((p->asked.frozen && p->asked.frozen[i]) || !zp_takes_matrices(by)) continue;
    if (!take_roles(b, a, i, by, &u)) said[which] = refuse(b, o[which], i, &u, said[which]);
  }
  zb_arena_free(a);
  for (uint32_t i = 0; i < p->asked.noptimizers; i++)
    if (p->asked.optimizers[i].kind == ZK_BY_MUON) take_each(b, o[i], i);
}

/* ---- the matrices of a bucket -------------------------------------------------------------------------- */
int64_t zp_gathered_size(const ZpPlan *p, const ZpBucket *k, const ZpSlice *s, int i) {
  int64_t n = s->size[i];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (k->matrices >> d & 1 && s->state[d].kind == 'S' && s->state[d].axis == s->axis[i])
      n *= p->layout.mesh.dim[d].size;
  return n;
}

static double valid(const ZpSlice *s, ZpRole role) {
  double n = 1;
  for (int i = 0; i < s->naxes; i++)
    if (s->role[i] == role) n *= (double)s->valid[i];
  return n;
}

static int64_t product(const ZpPlan *p, const ZpBucket *k, const ZpSlice *s, ZpRole role) {
  int64_t n = 1;
  for (int i = 0; i < s->naxes; i++)
    if (s->role[i] == role) n *= zp_gathered_size(p, k, s, i);
  return n;
}

double zp_matrix_flops(const ZpOptimizer *o, const ZpMatrix *m) {
  double r = (double)(m->rows < m->cols ? m->rows : m->cols),
         c = (double)(m->rows < m->cols ? m->cols : m->rows);
  double sweeps = o->second == ZP_SECOND_BOTH ? 9 : 3 * o->even + 3 * (o->snapped || o->second);
  return o->iterations * (4 * r * r * c + 2 * r * r * r) + sweeps * r * c;
}

/* Sums of squares read; products by factors read and write. Adafactor sums three times, and multiplies as often. */
double zp_matrix_bytes(const ZpOptimizer *o, const ZpMatrix *m) {
  double passes = o->second == ZP_SECOND_BOTH ? 9 : 3 * o->even + 3 * (o->snapped || o->second);
  return 4 * passes * (double)m->rows * (double)m->cols;
}

bool zp_keeps_side(const ZpOptimizer *o, double rows, double cols, int side) {
  switch (o->second) {
  case ZP_SECOND_OFF: return false;
  case ZP_SECOND_ROWS: return side == 0;
  case ZP_SECOND_LONGER: return side == (rows < cols);
  case ZP_SECOND_BOTH: return true;
  }
  return false;
}

/* Each to the rank of the group that has least to do so far, in their order. */
ZpMatrix *zp_matrices(const ZpPlan *p, const ZpBucket *k, ZbArena *a, uint32_t *n) {
  uint32_t ranks = (uint32_t)zp_group_size(&p->layout.mesh, k->matrices);
  double *load = ZB_NEWN(a, double, ranks);
  ZpMatrix *all = NULL;
  const ZpOptimizer *o = &p->asked.optimizers[k->optimizer];
  uint64_t moments = 0;
  *n = 0;
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    ZpMatrix m = {.slice = i,
                  .rows = product(p, k, s, ZP_ROWS),
                  .cols = product(p, k, s, ZP_COLS),
                  .valid = {valid(s, ZP_ROWS), valid(s, ZP_COLS)}};
    uint64_t own = zp_keeps_side(o, m.valid[0], m.valid[1], 0) ? (uint64_t)m.rows : 0;
    if (zp_keeps_side(o, m.valid[0], m.valid[1], 1)) own += (uint64_t)m.cols;
    uint64_t count = (uint64_t)product(p, k, s, ZP_EACH);
    for (; m.index < count; m.index++, moments += own) {
      m.owner = 0;
      m.moments = moments;
      for (uint32_t r = 1; r < ranks; r++)
        if (load[r] < load[m.owner]) m.owner = r;
      load[m.owner] += zp_matrix_flops(o, &m);
      ZB_PUSH(a, all, *n, m);
    }
  }
  return all;
}

double zp_muon_scale(const ZpOptimizer *o, const ZpSlice *s) {
  double rows = valid(s, ZP_ROWS), cols = valid(s, ZP_COLS);
  if (o->kind != ZK_BY_MUON) return 1;
  return o->rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
}

uint64_t zp_update_bytes(const ZpPlan *p, const ZpBucket *k) {
  uint64_t own = k->elems / (uint64_t)zp_group_size(&p->layout.mesh, k->shard);
  return own * (uint64_t)zp_group_size(&p->layout.mesh, k->matrices) * 4;
}

/* Returns the scratch: the matrix twice, twice its product with itself, and that of these products; without products the
 * matrix, and a number for each row and each column. */
static uint64_t matrix_scratch(const ZpPlan *p, const ZpOptimizer *o, int64_t rows, int64_t cols) {
  uint64_t products = 0, r = (uint64_t)rows, c = (uint64_t)cols;
  if (!o->iterations) return zb_round_up(r * c * 4, 64) + zb_round_up(r * 4, 64) + zb_round_up(c * 4, 64);
  for (int i = 0; i < ZK_ORTHOGONAL_PRODUCTS && p->asked.scratch; i++) {
    ZkCall call = zk_orthogonal_product(i, rows, cols);
    uint64_t n = p->asked.scratch(&call, p->asked.threads);
    if (n > products) products = n;
  }
  return 2 * zb_round_up(r * c * 4, 64) + 2 * zb_round_up(r * r * 4, 64) + zb_round_up(products, 64);
}

uint64_t zp_orthogonal_scratch(const ZpPlan *p, const ZpBucket *k) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < k->nslices; i++) {
    int64_t r = product(p, k, &k->slices[i], ZP_ROWS), c = product(p, k, &k->slices[i], ZP_COLS);
    uint64_t n = matrix_scratch(p, &p->asked.optimizers[k->optimizer], r < c ? r : c, r < c ? c : r);
    if (n > most) most = n;
  }
  return most;
}

/* Returns the sum over the matrices of the rank that has most of it. */
static double most_of(const ZpPlan *p, const ZpBucket *k,
                      double (*of)(const ZpOptimizer *o, const ZpMatrix *m)) {
  ZbArena *a = zb_arena_new();
  uint32_t n, ranks = (uint32_t)zp_group_size(&p->layout.mesh, k->matrices);
  const ZpMatrix *m = zp_matrices(p, k, a, &n);
  double *load = ZB_NEWN(a, double, ranks), most = 0;
  for (uint32_t i = 0; i < n; i++) load[m[i].owner] += of(&p->asked.optimizers[k->optimizer], &m[i]);
  for (uint32_t r = 0; r < ranks; r++) most = fmax(most, load[r]);
  zb_arena_free(a);
  return most;
}
double zp_orthogonal_flops(const ZpPlan *p, const ZpBucket *k) { return most_of(p, k, zp_matrix_flops); }
double zp_orthogonal_bytes(const ZpPlan *p, const ZpBucket *k) { return most_of(p, k, zp_matrix_bytes); }

/* ---- second moments of rows and columns ---------------------------------------------------------------- */
uint64_t zp_moments(const ZpPlan *p, const ZpBucket *k) {
  const ZpOptimizer *o = &p->asked.optimizers[k->optimizer];
  uint64_t n = 0;
  for (uint32_t i = 0; zp_updates_whole(p, k) && o->second && i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    for (int side = 0; side < 2; side++)
      if (zp_keeps_side(o, valid(s, ZP_ROWS), valid(s, ZP_COLS), side))
        n += (uint64_t)product(p, k, s, ZP_EACH) * (uint64_t)product(p, k, s, side ? ZP_COLS : ZP_ROWS);
  }
  return n;
}

/* ---- updates that are relative to the size of a parameter ---------------------------------------------- */
bool zp_is_relative(const ZpPlan *p, uint32_t param) {
  return !p->asked.forward_only && p->asked.ngroups && !(p->asked.frozen && p->asked.frozen[param]) &&
         p->asked.optimizers[p->asked.groups[p->asked.group[param]].optimizer].relative;
}

uint32_t zp_size_index(const ZpPlan *p, uint32_t param, uint32_t iter) {
  uint32_t n = iter;
  for (uint32_t i = 0; i < param; i++) {
    uint32_t segment = p->graph->params[i].segment;
    if (zp_is_relative(p, i)) n += segment == ZG_NONE ? 1 : p->graph->segments[segment].trip;
  }
  return n;
}

uint32_t zp_sizes(const ZpPlan *p) { return zp_size_index(p, p->graph->nparams, 0); }
