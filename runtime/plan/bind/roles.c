/* How the model uses a parameter forward: which of its axes products sum over, and which come out of them.
 *
 * The rule is that of the product in which the model uses the parameter: axes that it sums over are columns
 * (what comes in), axes that come out of it and are the parameter's alone are rows (what goes out), axes
 * that both operands and the result have number matrices of their own (`expert`). A table of which rows are
 * looked up has these as rows, and all else as columns: so has a product with the table of a tied model. */
#include "runtime/plan/bind/bind.h"

#include <string.h>

static bool summed(const ZgNode *n, uint16_t axis) {
  for (int i = 0; i < n->nax; i++)
    if (n->ax[i] == axis) return true;
  return false;
}

/* Takes the roles of a use, unless those of another differ. */
static void take(ZpParamUses *u, const uint8_t *role, uint32_t loc) {
  if ((u->product || u->table) && memcmp(u->role, role, sizeof u->role)) u->other = true, u->loc = loc;
  memcpy(u->role, role, sizeof u->role);
}

static void look_at_product(const ZgGraph *g, const ZgSegment *s, const ZgNode *n, int operand,
                            uint32_t param, ZpParamUses *u) {
  const ZgParam *q = &g->params[param];
  const ZgType *beside = &s->values[n->in[!operand]].type;
  uint8_t role[ZG_MAX_AXES] = {0};
  for (int i = 0; i < q->type.naxes; i++) {
    uint16_t axis = q->type.axis[q->order[i]];
    role[i] = summed(n, axis) ? ZP_COLS : zg_type_has(beside, axis) ? ZP_EACH : ZP_ROWS;
  }
  take(u, role, n->loc);
  u->product = true;
}

static void look_at_table(const ZgGraph *g, const ZgNode *n, uint32_t param, ZpParamUses *u) {
  const ZgParam *q = &g->params[param];
  uint8_t role[ZG_MAX_AXES] = {0};
  for (int i = 0; i < q->type.naxes; i++) role[i] = summed(n, q->type.axis[q->order[i]]) ? ZP_ROWS : ZP_COLS;
  take(u, role, n->loc);
  if (!u->other) u->loc = n->loc;
  u->table = true;
}

void zp_param_uses(const ZgGraph *g, ZbArena *scratch, uint32_t param, ZpParamUses *u) {
  *u = (ZpParamUses){0};
  for (uint32_t k = 0; k < g->nsegments; k++) {
    const ZgSegment *s = &g->segments[k];
    bool *is = ZB_NEWN(scratch, bool, s->nvalues + 1);
    for (uint32_t i = 0; i < s->nforward; i++) {
      const ZgNode *n = &s->nodes[i];
      if (n->op == ZG_OP_PARAM && n->opt[0] == param) is[n->out] = true;
      for (int j = 0; j < n->nin; j++) {
        if (!is[n->in[j]]) continue;
        if (n->op == ZG_OP_DOT) look_at_product(g, s, n, j, param, u);
        else if (n->op == ZG_OP_LOOKUP && j == 0) look_at_table(g, n, param, u);
        else u->other = true, u->loc = n->loc;
      }
    }
  }
}

bool zp_is_matrix(const ZgParam *q, const ZpParamUses *u) {
  bool rows = false, cols = false;
  for (int i = 0; i < q->type.naxes; i++) rows |= u->role[i] == ZP_ROWS, cols |= u->role[i] == ZP_COLS;
  return (u->product || u->table) && !u->other && rows && cols;
}
