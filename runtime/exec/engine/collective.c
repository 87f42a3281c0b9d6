/* Collectives of local programs.
 *
 * A collective along an axis moves contiguous blocks, one per member, of the tensor's own type. Where the
 * axis is the slowest of the tensor the blocks are the tensor; elsewhere (ZpNode's `packs`) they are packed
 * or unpacked in the node's scratch.
 *
 * Example: all_gather of x[batch, seq] along seq over 2 ranks, batch = 2, seq = 4: rank 0 has b0 s01, b1 s01.
 * The blocks arrive as (b0 s01, b1 s01)(b0 s23, b1 s23); unpacking block i writes columns 2i..2i+1 of every
 * row. Of an axis that is split zigzag a block is two pieces of the tensor, and always packed.
 *
 * They go beside calls where the plan says so (ZpNode's `until`): on a queue of their own, in the order of
 * the list. Packing and unpacking is compute's: before one begins, and once it is waited for. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

static uint64_t count_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return n;
}

/* Both have the same axes: a parameter in declared order, what is gathered of it in axis order. */
static bool same_order(const ZkView *v, const ZkView *w) {
  return !memcmp(v->axis, w->axis, (size_t)v->rank * sizeof *v->axis);
}

/* The pieces of an axis that are `member`'s: of `part`, from their places in it to those in `whole`; or back. */
static void copy_pieces(ZxEngine *e, ZpDims dims, uint16_t axis, int64_t member, ZkView part, ZkView whole,
                        bool back) {
  ZpPiece piece[ZP_PIECES];
  int n = zp_pieces(&e->p->layout.mesh, dims, axis, member, part.size[zx_axis_of(&part, axis)], piece);
  for (int i = 0; i < n; i++) {
    ZkView of = zx_slice_view(&part, axis, piece[i].from, piece[i].n);
    ZkView in = zx_slice_view(&whole, axis, piece[i].to, piece[i].n);
    if (back) zx_copy_view(e, in, of);
    else zx_copy_view(e, of, in);
  }
}

/* ---- collectives ---- */
typedef struct {
  ZxEngine *e;
  const ZpNode *n;
  const ZkView *in, *out;
  char *scratch;
  ZxGroup g;
  int64_t members, mine;
  uint64_t bytes; /* as the plan has it: of the whole tensor, as it travels */
} Coll;

/* Says whether a collective moves as much as the plan has it: of a step of generation what its tokens are. */
static bool as_planned(const Coll *c, uint64_t bytes) {
  return c->e->sizes ? bytes <= c->bytes : bytes == c->bytes;
}

/* A sum in f32 that becomes what is computed in, once it is complete. */
static bool rounds(const Coll *c) { return c->in->elem != c->out->elem; }

static ZxReduce how(const ZpNode *n) { return n->call.opt[0] ? ZX_MAX : ZX_SUM; }

static ZxRequest all_reduce(Coll *c) {
  uint64_t n = count_of(c->in);
  uint64_t bytes = zk_bytes((ZkElem)c->in->elem, n);
  void *to = rounds(c) ? c->scratch : c->out->data;
  ZB_ASSERT(same_order(c->in, c->out) && as_planned(c, bytes) && rounds(c) <= c->n->packs);
  if (c->in->data != to) c->e->dev->copy(c->e->env, to, c->in->data, bytes);
  zx_enter_nodes(c->e);
  return c->e->c->t->all_reduce(c->e->c, c->g, to, n, (ZkElem)c->in->elem, how(c->n));
}

static void take_reduced(Coll *c) {
  if (rounds(c)) zx_copy_view(c->e, zx_dense_view(c->in, c->scratch, (ZkElem)c->in->elem), *c->out);
}

static ZxRequest all_gather(Coll *c) {
  uint64_t bytes = zk_bytes((ZkElem)c->in->elem, count_of(c->in));
  ZB_ASSERT(as_planned(c, bytes * (uint64_t)c->members));
  char *all = c->n->packs ? c->scratch : c->out->data;
  zx_enter_nodes(c->e);
  return c->e->c->t->all_gather(c->e->c, c->g, c->in->data, bytes, all);
}

static void take_gathered(Coll *c) {
  uint64_t bytes = zk_bytes((ZkElem)c->in->elem, count_of(c->in));
  for (int64_t i = 0; c->n->packs && i < c->members; i++)
    copy_pieces(c->e, c->n->dims, c->n->axis, i,
                zx_dense_view(c->in, c->scratch + (uint64_t)i * bytes, (ZkElem)c->in->elem), *c->out, false);
}

/* Returns where this rank's part of a sum is made that becomes another type: behind all parts. */
static char *scattered(const Coll *c) {
  return c->scratch + zb_round_up(zk_bytes((ZkElem)c->in->elem, count_of(c->in)), 64);
}

static ZxRequest reduce_scatter(Coll *c) {
  uint16_t axis = c->n->axis;
  ZkElem elem = (ZkElem)c->in->elem;
  uint64_t n = count_of(c->out), bytes = zk_bytes(elem, n);
  ZB_ASSERT(as_planned(c, bytes * (uint64_t)c->members));
  char *all = c->n->packs ? c->scratch : c->in->data;
  for (int64_t i = 0; c->n->packs && i < c->members; i++)
    copy_pieces(c->e, c->n->dims, axis, i, zx_dense_view(c->out, all + (uint64_t)i * bytes, elem), *c->in,
                true);
  zx_enter_nodes(c->e);
  return c->e->c->t->reduce_scatter(c->e->c, c->g, all, n, elem, how(c->n),
                                    rounds(c) ? scattered(c) : c->out->data);
}

static void take_scattered(Coll *c) {
  if (rounds(c)) zx_copy_view(c->e, zx_dense_view(c->out, scattered(c), (ZkElem)c->in->elem), *c->out);
}

/* From split along `axis` to split along `axis2`: block j is what member j will own. Blocks travel in the
 * order of axes that the operand has, which may be another than the result's (a parameter's). */
typedef struct {
  uint64_t bytes, block; /* of all blocks, of each */
  char *sent, *got;
  ZkView travels;
} Exchange;

static Exchange exchange_of(const Coll *c) {
  ZkElem elem = (ZkElem)c->in->elem;
  uint64_t bytes = zk_bytes(elem, count_of(c->in));
  Exchange x = {.bytes = bytes, .block = bytes / (uint64_t)c->members, .sent = c->scratch};
  x.got = x.sent + zb_round_up(bytes, 64);
  x.travels = zx_slice_view(c->in, c->n->axis2, 0, c->out->size[zx_axis_of(c->out, c->n->axis2)]);
  ZB_ASSERT(as_planned(c, bytes));
  return x;
}

static ZxRequest all_to_all(Coll *c) {
  Exchange x = exchange_of(c);
  for (int64_t i = 0; i < c->members; i++)
    copy_pieces(c->e, c->n->dims, c->n->axis2, i,
                zx_dense_view(&x.travels, x.sent + (uint64_t)i * x.block, (ZkElem)c->in->elem), *c->in, true);
  zx_enter_nodes(c->e);
  return c->e->c->t->all_to_all(c->e->c, c->g, x.sent, x.block, x.got);
}

static void take_exchanged(Coll *c) {
  Exchange x = exchange_of(c);
  for (int64_t i = 0; i < c->members; i++)
    copy_pieces(c->e, c->n->dims, c->n->axis, i,
                zx_dense_view(&x.travels, x.got + (uint64_t)i * x.block, (ZkElem)c->in->elem), *c->out,
                false);
}

/* A part of a sum: zeros but for what this rank gives to it. May be in place where that is all or nothing. */
static void local_pad(Coll *c) {
  bool split = c->n->axis != ZP_NO_AXIS && c->members > 1, gives = split || c->mine == 0;
  if (split || !gives)
    c->e->dev->zero(c->e->env, c->out->data, zk_bytes((ZkElem)c->out->elem, count_of(c->out)));
  if (split) copy_pieces(c->e, c->n->dims, c->n->axis, c->mine, *c->in, *c->out, false);
  else if (gives && c->out->data != c->in->data) zx_copy_view(c->e, *c->in, *c->out);
}

static Coll coll_of(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call) {
  return (Coll){.e = e,
                .n = n,
                .in = &call->in[0],
                .out = &call->out[0],
                .scratch = call->scratch,
                .g = e->node_group[n->dims],
                .members = zp_group_size(&e->p->layout.mesh, n->dims),
                .mine = zp_group_index(&e->p->layout.mesh, e->rank, n->dims),
                .bytes = zp_node_bytes(s, n)};
}

/* ---- on their way -------------------------------------------------------------------------------------- */
/* What groups of nodes do is on one stream, begins when compute has come to it, and lets compute go on. */
void zx_enter_nodes(ZxEngine *e) {
  e->dev->record(e->env, e->node_event);
  e->dev->stream(e->env, ZP_Q_NODES);
  e->dev->wait(e->env, e->node_event);
}

void zx_leave_nodes(ZxEngine *e, uint32_t slot) {
  e->dev->record(e->env, e->node_event + 1 + slot);
  e->dev->stream(e->env, ZP_Q_COMPUTE);
}

void zx_join_nodes(ZxEngine *e, uint32_t slot, ZxRequest r) {
  zx_await(e, r);
  e->dev->wait(e->env, e->node_event + 1 + slot);
}

void zx_begin_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call, ZxBeside *to) {
  Coll c = coll_of(e, s, n, call);
  uint32_t taken = 0; /* slots, as bits */
  for (uint32_t k = 0; k < e->nbeside; k++) taken |= 1u << e->beside_calls[k].slot;
  *to = (ZxBeside){.segment = s, .node = n, .call = call};
  while (taken >> to->slot & 1) to->slot++;
  switch (call->op) {
  case ZG_OP_ALL_REDUCE: to->request = all_reduce(&c); break;
  case ZG_OP_ALL_GATHER: to->request = all_gather(&c); break;
  case ZG_OP_REDUCE_SCATTER: to->request = reduce_scatter(&c); break;
  case ZG_OP_ALL_TO_ALL: to->request = all_to_all(&c); break;
  default: ZB_BUG("`%s` beside calls", zg_op_info[call->op].text);
  }
  zx_leave_nodes(e, to->slot);
}

void zx_end_collective(ZxEngine *e, const ZxBeside *x) {
  Coll c = coll_of(e, x->segment, x->node, x->call);
  zx_join_nodes(e, x->slot, x->request);
  if (x->call->op == ZG_OP_ALL_REDUCE) take_reduced(&c);
  if (x->call->op == ZG_OP_REDUCE_SCATTER) take_scattered(&c);
  if (x->call->op == ZG_OP_ALL_GATHER) take_gathered(&c);
  if (x->call->op == ZG_OP_ALL_TO_ALL) take_exchanged(&c);
}

/* ---- at once ------------------------------------------------------------------------------------------- */
void zx_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call) {
  if (zp_is_ring(n)) {
    zx_ring(e, s, n, call);
    return;
  }
  if (zp_is_halo(n)) {
    zx_halo(e, n, call);
    return;
  }
  Coll c = coll_of(e, s, n, call);
  switch (call->op) {
  case ZG_OP_LOCAL_SLICE: copy_pieces(e, n->dims, n->axis, c.mine, *c.out, *c.in, true); break;
  case ZG_OP_LOCAL_PAD: local_pad(&c); break;
  default: ZB_BUG("`%s` over mesh dims", zg_op_info[call->op].text);
  }
}
