/* Packed weights: who may have them, how they lie, who reads them. Sizes are counted here again: 16 columns
 * make a panel, 64 groups a unit. */
#include "runtime/plan/check/layout.h"

static const ZpPacked *packed_of(const ZpPlan *p, uint32_t param) {
  return param < p->graph->nparams && p->asked.packed && p->asked.packed[param].elem != ZK_NONE
             ? &p->asked.packed[param]
             : NULL;
}

static uint64_t up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* Returns the elements that columns by so many elements take. */
static uint64_t takes(ZkElem elem, int64_t columns, int64_t sum) {
  return up(up((uint64_t)columns, 16) * (uint64_t)sum, 64 * (uint64_t)zk_elem_info[elem].block);
}

/* Returns the place of an axis among those of a declared parameter. */
static int declared(const ZgParam *q, uint16_t axis) {
  int i = 0;
  while (q->type.axis[q->order[i]] != axis) i++;
  return i;
}

ZkElem zp_packed_elem(const ZpPlan *p, uint32_t param) {
  const ZpPacked *k = packed_of(p, param);
  return k ? (ZkElem)k->elem : ZK_NONE;
}

uint64_t zp_slice_takes(const ZpPlan *p, const ZpSlice *s) {
  const ZpPacked *k = packed_of(p, s->param);
  int64_t columns = 1, sum = 1;
  if (!k) return s->n;
  for (int i = 0; i < s->naxes; i++) *(k->role[i] == ZP_COLS ? &sum : &columns) *= s->size[i];
  return takes((ZkElem)k->elem, columns, sum);
}

bool zp_packed_fits(const Local *l, const ZpValue *v) {
  const ZpPacked *k = packed_of(l->c->p, v->param);
  int64_t columns = 1, sum = 1, rows = 1;
  bool each = false;
  if (!k || k->elem != v->elem || v->summed > v->type.naxes) return false;
  const ZgParam *q = &l->c->p->graph->params[v->param];
  for (int a = 0, before = -1; a < v->type.naxes; a++) {
    int i = declared(q, v->axis[a]), rank = k->role[i] * ZG_MAX_AXES + i;
    if (rank <= before || (k->role[i] == ZP_COLS) != (a >= v->type.naxes - v->summed)) return false;
    before = rank;
    *(k->role[i] == ZP_COLS ? &sum : &columns) *= v->size[a];
    if (k->role[i] == ZP_ROWS) rows *= v->size[a];
    each |= k->role[i] == ZP_EACH;
  }
  return sum % zk_elem_info[k->elem].block == 0 && !(each && rows % 16) &&
         v->bytes == zk_bytes((ZkElem)v->elem, takes((ZkElem)k->elem, columns, sum));
}

/* Returns whether a value that is packed is what the call multiplies by, or looks up in. */
const char *zp_packed_wrong(const Local *l, const ZpNode *n) {
  for (int i = 0; i < n->call.nin + n->call.nout; i++) {
    const ZpValue *v = &l->s->values[i < n->call.nin ? n->in[i] : n->out[i - n->call.nin]];
    bool weights = (n->call.op == ZG_OP_DOT || n->call.op == ZG_OP_GROUPED_DOT) && i < 2;
    if (!zk_is_packed((ZkElem)v->elem) || n->call.op == ZG_OP_PARAM) continue;
    if (i >= n->call.nin || v->nmembers || !(weights || (n->call.op == ZG_OP_LOOKUP && i == 0)))
      return "reads packed weights, which it does not know";
  }
  return NULL;
}

/* Checks that what is packed is not trained, and that products of the model sum over its columns, and come
 * out by its rows. */
bool zp_check_packed(const Check *c) {
  const ZpPlan *p = c->p;
  const ZgGraph *g = p->graph;
  for (uint32_t i = 0; p->asked.packed && i < g->nparams; i++)
    if (packed_of(p, i) && !p->asked.forward_only && !(p->asked.frozen && p->asked.frozen[i]))
      return zb_fail(c->err, NULL, "parameter %s is trained, and packed", g->params[i].path);
  for (uint32_t s = 0; p->asked.packed && s < g->nsegments; s++) {
    const ZgSegment *x = &g->segments[s];
    uint32_t *made = ZB_NEWN(c->a, uint32_t, x->nvalues + 1); /* by which parameter, and 1 */
    for (uint32_t i = 0; i < x->nforward; i++) {
      const ZgNode *n = &x->nodes[i];
      if (n->op == ZG_OP_PARAM) made[n->out] = (uint32_t)n->opt[0] + 1;
      for (int j = 0; j < n->nin; j++) {
        const ZpPacked *k = made[n->in[j]] ? packed_of(p, made[n->in[j]] - 1) : NULL;
        const ZgParam *q = k ? &g->params[made[n->in[j]] - 1] : NULL;
        for (int a = 0; k && a < q->type.naxes; a++) {
          bool sums = false, named = n->op == ZG_OP_LOOKUP;
          for (int t = 0; t < n->nax; t++) sums |= n->ax[t] == q->type.axis[a];
          if ((k->role[declared(q, q->type.axis[a])] == ZP_COLS) != (sums != named))
            return zb_fail(c->err, NULL, "parameter %s is packed along axes that %s does not sum over",
                           q->path, zg_op_info[n->op].text);
        }
      }
    }
  }
  return true;
}
