/* A shift along an axis that ranks share: each hands on the elements at its borders that neighbours want (ZpHalo).
 * The kernel shifts what stays on the rank and puts the edge where nothing of it goes; over that comes what
 * others have sent. At the ends of the axis there are no others, and the edge stays.
 *
 * Where borders do not lie one element behind the other they are put together in the node's scratch: what goes
 * of both parts, then what comes. */
#include "runtime/exec/engine/internal.h"

typedef struct {
  ZxRequest sent, got;
  ZkView to;  /* in the result, where what comes lies */
  ZkView box; /* where it arrives */
  bool comes;
} Part;

/* The rank so many farther on; -1: there is none. */
static int peer(const ZxEngine *e, const ZpNode *n, int64_t farther) {
  const ZpMesh *m = &e->p->layout.mesh;
  int64_t index = zp_group_index(m, e->rank, n->dims) + farther;
  bool none = index < 0 || index >= zp_group_size(m, n->dims);
  return none ? -1 : (int)zp_group_member(m, e->rank, n->dims, index);
}

/* Sends part i, of which `box` has room for what goes and for what comes. */
static Part begin(ZxEngine *e, const ZpNode *n, const ZkCall *c, const ZpHalo *h, int i, char *box) {
  Part p = {.sent = -1, .got = -1};
  int64_t hop = h->part[i].hop, count = h->part[i].count;
  if (!count) return p;
  int to = peer(e, n, hop), from = peer(e, n, -hop);
  ZkView goes = zx_slice_view(&c->in[0], n->axis, h->part[i].from, count);
  p.to = p.box = zx_slice_view(&c->out[0], n->axis, h->part[i].to, count);
  p.comes = from >= 0;
  if (n->packs) {
    ZkView packed = zx_dense_view(&goes, box, (ZkElem)goes.elem);
    p.box = zx_dense_view(&p.to, box + zb_round_up(h->part[i].bytes, 64), (ZkElem)p.to.elem);
    if (to >= 0) zx_copy_view(e, goes, packed);
    goes = packed;
  }
  if (to >= 0) p.sent = e->c->t->send(e->c, goes.data, h->part[i].bytes, to, i);
  return p;
}

void zx_halo(ZxEngine *e, const ZpNode *n, const ZkCall *call) {
  ZpHalo h = zp_halo(n);
  Part part[2];
  char *box = call->scratch;
  for (int i = 0; i < 2; i++) {
    part[i] = begin(e, n, call, &h, i, box);
    box += 2 * zb_round_up(h.part[i].bytes, 64);
  }
  e->dev->run(e->env, call);
  for (int i = 0; i < 2; i++)
    if (part[i].comes)
      part[i].got = e->c->t->recv(e->c, part[i].box.data, h.part[i].bytes, peer(e, n, -h.part[i].hop), i);
  for (int i = 0; i < 2; i++) {
    if (part[i].comes) zx_await(e, part[i].got);
    if (part[i].comes && n->packs) zx_copy_view(e, part[i].box, part[i].to);
    if (part[i].sent >= 0) zx_await(e, part[i].sent);
  }
}
