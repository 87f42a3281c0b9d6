/* Calls along an axis that is split zigzag (plan/mesh/pieces.c): what a rank has of it is two pieces of the whole, one
 * behind the other. Kernels that know places by where a view begins are called once for each piece. */
#include "runtime/exec/engine/internal.h"

static bool knows_places(int op) {
  return op == ZG_OP_POSITION || op == ZG_OP_RANDOM || op == ZG_OP_ROPE || zg_is_attend(op);
}

ZxCut zx_cut(const ZxEngine *e, const ZpSegment *s, const ZpNode *n) {
  ZxCut cut = {.axis = ZP_NO_AXIS};
  for (int k = 0; knows_places(n->call.op) && k < n->call.nin + n->call.nout; k++) {
    const ZpValue *v = &s->values[k < n->call.nin ? n->in[k] : n->out[k - n->call.nin]];
    for (int a = 0; a < v->type.naxes && cut.axis == ZP_NO_AXIS; a++)
      if (zp_view_pieces(&e->p->layout.mesh, v, e->rank, v->axis[a], v->size[a], cut.piece) == ZP_PIECES)
        cut.axis = v->axis[a], cut.size = v->size[a];
  }
  return cut;
}

static void cut_view(ZkView *v, const ZxCut *cut, int i) {
  for (int a = 0; a < v->rank; a++) {
    if (v->axis[a] != cut->axis || v->size[a] != cut->size) continue;
    v->data = zk_at(v, cut->piece[i].from * v->stride[a]);
    v->start[a] = cut->piece[i].to;
    v->size[a] = cut->piece[i].n;
  }
}

ZkCall zx_cut_call(const ZkCall *c, const ZxCut *cut, int i) {
  ZkCall one = *c;
  for (int k = 0; k < c->nin; k++) cut_view(&one.in[k], cut, i);
  for (int k = 0; k < c->nout; k++) cut_view(&one.out[k], cut, i);
  return one;
}
