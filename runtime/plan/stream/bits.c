/* Says whether a step over ranks has one rank's bits.
 *
 * Sums are cut into chunks by halving what is summed, and chunks are added as a binary tree (kernels/cpu/invariant.h). A
 * rank makes a branch of it if it has a half, a quarter or an eighth of what is summed, one range of it, and if no padding
 * moved where that is halved. */
#include "runtime/plan/text.h"

/* Returns into how many parts the sum over those axes of an operand is split; 0: into none that are branches. */
static int64_t branches(const ZpPlan *p, const ZkView *v, const uint16_t *ax, int nax) {
  int64_t parts = 1;
  bool inner = false; /* what comes now lies within a part of a slower axis */
  for (int a = 0; a < v->rank; a++) {
    bool summed = false;
    for (int i = 0; i < nax; i++) summed |= ax[i] == v->axis[a];
    if (!summed) continue;
    bool split = v->size[a] < v->whole[a];
    if (split && (inner || p->layout.axis_size[v->axis[a]] != p->layout.axis_valid[v->axis[a]])) return 0;
    parts *= v->whole[a] / v->size[a];
    inner |= v->size[a] > 1;
  }
  return parts == 1 || parts == 2 || parts == 4 || parts == 8 ? parts : 0;
}

static bool has_branches(const ZpPlan *p, const ZkCall *c) {
  int from = c->op == ZG_OP_GROUPED_DOT ? 2 : 0;
  if (c->op == ZG_OP_SUM) return branches(p, &c->in[0], c->ax, c->nax);
  if (c->op != ZG_OP_DOT && c->op != ZG_OP_GROUPED_DOT) return true;
  return branches(p, &c->in[1], c->ax + from, c->nax - from);
}

const char *zp_other_bits(const ZpPlan *p) {
  for (uint32_t i = 0; p->stream && i < p->graph->nsegments; i++) {
    const ZpList *l = &p->programs.segments[i].list[ZP_FWD];
    for (uint32_t k = 0; k < l->n; k++)
      if (!has_branches(p, &l->nodes[k].call))
        return zb_printf(p->arena, "`%s` at %s is split into other parts than halves, quarters or eighths",
                         zg_op_info[l->nodes[k].call.op].text, zp_loc_text(p, l->nodes[k].loc));
  }
  return NULL;
}
