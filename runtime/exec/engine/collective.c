/* Collectives of local programs.
 *
 * A collective along an axis moves contiguous blocks, one per member, of the tensor's own type. Where the
 * axis is the slowest of the tensor the blocks are the tensor; elsewhere (ZpNode's `packs`) they are packed
 * or unpacked in the node's scratch.
 *
 * Example: all_gather of x[batch, seq] along seq over 2 ranks, batch = 2, seq = 4: rank 0 has b0 s01, b1 s01.
 * The blocks arrive as (b0 s01, b1 s01)(b0 s23, b1 s23); unpacking block i writes columns 2i..2i+1 of every
 * row. Of an axis that is split zigzag a block is two pieces of the tensor, and always packed. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

static uint64_t count_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return n;
}

/* A parameter lies in declared order, what is gathered of it in axis order. */
static bool same_order(const ZkView *v, const ZkView *w) {
  return v->rank == w->rank && !memcmp(v->axis, w->axis, (size_t)v->rank * sizeof *v->axis);
}

/* The pieces of an axis that are `member`'s: of `part`, from their places in it to those in `whole`; or back. */
static void copy_pieces(ZxEngine *e, ZpDims dims, uint16_t axis, int64_t member, ZkView part, ZkView whole,
                        bool back) {
  ZpPiece piece[ZP_PIECES];
  int n = zp_pieces(&e->p->mesh, dims, axis, member, part.size[zx_axis_of(&part, axis)], piece);
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

/* What a collective reduces travels as it lies: no more bytes than the plan says. */
static ZxCommElem moved_as(const ZkView *v) {
  ZB_ASSERT(v->elem == ZK_F32 || v->elem == ZK_BF16);
  return v->elem == ZK_BF16 ? ZX_BF16 : ZX_F32;
}

static ZxReduce how(const ZpNode *n) { return n->call.opt[0] ? ZX_MAX : ZX_SUM; }

static void all_reduce(Coll *c) {
  uint64_t n = count_of(c->in);
  ZB_ASSERT(c->in->elem == c->out->elem && same_order(c->in, c->out));
  ZB_ASSERT(c->bytes == n * zk_elem_bytes((ZkElem)c->in->elem));
  if (c->in->data != c->out->data) c->e->dev->copy(c->e->env, c->out->data, c->in->data, c->bytes);
  zx_await(c->e, c->e->c->t->all_reduce(c->e->c, c->g, c->out->data, n, moved_as(c->in), how(c->n)));
}

static void all_gather(Coll *c) {
  uint16_t axis = c->n->axis;
  uint64_t bytes = count_of(c->in) * zk_elem_bytes((ZkElem)c->in->elem);
  ZB_ASSERT(c->bytes == bytes * (uint64_t)c->members);
  char *all = c->n->packs ? c->scratch : c->out->data;
  zx_await(c->e, c->e->c->t->all_gather(c->e->c, c->g, c->in->data, bytes, all));
  for (int64_t i = 0; c->n->packs && i < c->members; i++)
    copy_pieces(c->e, c->n->dims, axis, i,
                zx_dense_view(c->in, all + (uint64_t)i * bytes, (ZkElem)c->in->elem), *c->out, false);
}

static void reduce_scatter(Coll *c) {
  uint16_t axis = c->n->axis;
  ZkElem elem = (ZkElem)c->in->elem;
  uint64_t n = count_of(c->out), bytes = n * zk_elem_bytes(elem);
  ZB_ASSERT(c->out->elem == elem && c->bytes == bytes * (uint64_t)c->members);
  char *all = c->n->packs ? c->scratch : c->in->data;
  for (int64_t i = 0; c->n->packs && i < c->members; i++)
    copy_pieces(c->e, c->n->dims, axis, i, zx_dense_view(c->out, all + (uint64_t)i * bytes, elem), *c->in,
                true);
  zx_await(c->e, c->e->c->t->reduce_scatter(c->e->c, c->g, all, n, moved_as(c->in), how(c->n), c->out->data));
}

/* From split along `axis` to split along `axis2`: block j is what member j will own. Blocks travel in the
 * order of axes that the operand has, which may be another than the result's (a parameter's). */
static void all_to_all(Coll *c) {
  uint16_t from = c->n->axis, to = c->n->axis2;
  ZkElem elem = (ZkElem)c->in->elem;
  uint64_t bytes = count_of(c->in) * zk_elem_bytes(elem), block = bytes / (uint64_t)c->members;
  ZB_ASSERT(c->bytes == bytes);
  char *sent = c->scratch, *got = c->scratch + zb_round_up(bytes, 64);
  ZkView travels = zx_slice_view(c->in, to, 0, c->out->size[zx_axis_of(c->out, to)]);
  for (int64_t i = 0; i < c->members; i++)
    copy_pieces(c->e, c->n->dims, to, i, zx_dense_view(&travels, sent + (uint64_t)i * block, elem), *c->in,
                true);
  zx_await(c->e, c->e->c->t->all_to_all(c->e->c, c->g, sent, block, got));
  for (int64_t i = 0; i < c->members; i++)
    copy_pieces(c->e, c->n->dims, from, i, zx_dense_view(&travels, got + (uint64_t)i * block, elem), *c->out,
                false);
}

/* A part of a sum: zeros but for what this rank gives to it. May be in place where that is all or nothing. */
static void local_pad(Coll *c) {
  bool split = c->n->axis != ZP_NO_AXIS && c->members > 1, gives = split || c->mine == 0;
  if (split || !gives)
    c->e->dev->zero(c->e->env, c->out->data, count_of(c->out) * zk_elem_bytes((ZkElem)c->out->elem));
  if (split) copy_pieces(c->e, c->n->dims, c->n->axis, c->mine, *c->in, *c->out, false);
  else if (gives && c->out->data != c->in->data) zx_copy_view(c->e, *c->in, *c->out);
}

void zx_collective(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *call) {
  if (zp_is_ring(n)) {
    zx_ring(e, s, n, call);
    return;
  }
  if (zp_is_halo(n)) {
    zx_halo(e, n, call);
    return;
  }
  Coll c = {e, n, &call->in[0],       &call->out[0], call->scratch, e->node_group[n->dims],
            0, 0, zp_node_bytes(s, n)};
  c.members = zp_group_size(&e->p->mesh, n->dims);
  c.mine = zp_group_index(&e->p->mesh, e->rank, n->dims);
  switch (call->op) {
  case ZG_OP_ALL_REDUCE: all_reduce(&c); break;
  case ZG_OP_ALL_GATHER: all_gather(&c); break;
  case ZG_OP_REDUCE_SCATTER: reduce_scatter(&c); break;
  case ZG_OP_ALL_TO_ALL: all_to_all(&c); break;
  case ZG_OP_LOCAL_SLICE: copy_pieces(e, n->dims, n->axis, c.mine, *c.out, *c.in, true); break;
  case ZG_OP_LOCAL_PAD: local_pad(&c); break;
  default: ZB_BUG("`%s` over mesh dims", zg_op_info[call->op].text);
  }
}
