/* Adds up the time of an instruction: its calls and collectives, one after the other, as the engine does
 * them. */
#include "runtime/plan/time/internal.h"

#include <math.h>

Cost zp_cost_new(const ZpPlan *p, const ZlCluster *c, bool spans, ZbArena *a) {
  size_t sets = (size_t)1 << p->layout.mesh.ndims;
  ZlCluster *as_used = ZB_NEW(a, ZlCluster);
  *as_used = *c;
  if (!p->asked.tf32) as_used->flops_tf32 = 0;
  return (Cost){.p = p,
                .c = as_used,
                .spans = spans,
                .a = a,
                .place = ZB_NEWN(a, ZpPlace *, (p->programs.nstages ? p->programs.nstages : 1) * sets)};
}

/* Makes this list the current one. */
static void begin_list(Cost *x, const ZpSegment *s, const ZpList *l) {
  x->segment = s;
  x->list = l;
}

/* Returns how often it is played: what is between dispatch and combine if experts are chosen alike. */
static double times(const Cost *x, const ZpNode *n) {
  double all = (double)zp_rounds(x->p, x->segment, x->list, (uint32_t)(n - x->list->nodes)).even;
  return x->load ? ceil(all * zp_step_tokens(x)) : all;
}

static double call_seconds(const Cost *x, const ZpNode *n) {
  if (x->load) return zp_step_call_seconds(x, n);
  double rounds = n->rounds ? times(x, n) : 1;
  ZpNode one = *n; /* whose FLOPs are those of all rounds */
  one.flops /= rounds;
  return rounds * zp_call_seconds(x->c, &one);
}

/* ---- where groups lie ---------------------------------------------------------------------------------- */
/* Returns the stage's first rank, which stands for the others. */
static int64_t rank_of(const ZpPlan *p, uint32_t stage) {
  return p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->layout.mesh, 0, stage);
}

static const ZpPlace *place_of(Cost *x, uint32_t stage, ZpDims dims) {
  const ZpMesh *m = &x->p->layout.mesh;
  ZpPlace **at = &x->place[((size_t)stage << m->ndims) + dims];
  if (*at) return *at;
  int64_t n = zp_group_size(m, dims), *member = ZB_NEWN(x->a, int64_t, n), first = rank_of(x->p, stage);
  int64_t stride[ZP_MAX_DIMS], size = 1;
  for (int d = m->ndims; d-- > 0; size *= m->dim[d].size) {
    stride[d] = size;
    if (dims >> d & 1) first -= zp_coord(m, first, d) * size;
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t left = i;
    member[i] = first;
    for (int d = m->ndims; d-- > 0;)
      if (dims >> d & 1) {
        member[i] += left % m->dim[d].size * stride[d];
        left /= m->dim[d].size;
      }
  }
  *at = ZB_NEW(x->a, ZpPlace);
  **at = zp_place(x->c, member, n);
  return *at;
}

static ZpPlace place_of_stages(Cost *x, const uint32_t *stage, uint32_t n) {
  int64_t *member = ZB_NEWN(x->a, int64_t, n);
  for (uint32_t i = 0; i < n; i++) member[i] = rank_of(x->p, stage[i]);
  return zp_place(x->c, member, n);
}

/* ---- a list -------------------------------------------------------------------------------------------- */
/* Returns the bytes of a collective's whole tensor. */
static double bytes_of(const Cost *x, const ZpSegment *s, const ZpNode *n) {
  double bytes = (double)zp_node_bytes(s, n);
  if (!x->load) return bytes;
  bool rows = n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE;
  return bytes * (rows ? zp_step_tokens(x) : zp_step_share(x, zp_node_whole(s, n)));
}

/* Returns the seconds in which a collective's blocks are packed and unpacked. */
static double packing(const Cost *x, const ZpSegment *s, const ZpNode *n) {
  double bytes = 2 * bytes_of(x, s, n);
  return n->packs && !zp_is_halo(n) ? zp_stream_seconds(x->c, bytes) : 0;
}

/* Without that. */
static double moving(Cost *x, uint32_t stage, const ZpSegment *s, const ZpNode *n, const ZpPlace **at) {
  *at = place_of(x, stage, n->dims);
  if (zp_is_ring(n)) { /* sends each of n - 1 times, as a gather does, and computes beside that */
    double ranks = (double)(*at)->n, bytes = (double)zp_ring_bytes(s, n) * ranks / (ranks - 1);
    double sends = n->nsteps > 1 ? zp_collective_seconds(x->c, ZG_OP_ALL_GATHER, bytes, *at) : 0;
    return fmax(0, sends - call_seconds(x, n));
  }
  if (zp_is_halo(n)) /* first the kernel, of what stays on the rank */
    return call_seconds(x, n) + zp_transfer_seconds(x->c, (double)zp_halo_bytes(n), *at);
  int op = n->call.op;
  if (x->load && op == ZG_OP_COMBINE) op = ZG_OP_ALL_GATHER; /* rows of all experts come to all ranks */
  if (x->load && (op == ZG_OP_DISPATCH || op == ZG_OP_ROUND))
    return call_seconds(x, n); /* all have the tokens */
  double bytes = bytes_of(x, s, n);
  if (op == ZG_OP_DISPATCH || op == ZG_OP_COMBINE) op = ZG_OP_ALL_TO_ALL, bytes /= times(x, n);
  if (op == ZG_OP_ROUND) op = ZG_OP_ALL_GATHER;
  return zp_collective_seconds(x->c, op, bytes, *at);
}

/* In all rounds; what ranks have of each expert is gathered once for all. */
static double collective(Cost *x, uint32_t stage, const ZpSegment *s, const ZpNode *n, const ZpPlace **at) {
  double rounds = n->call.op == ZG_OP_ROUND ? 1 : times(x, n);
  return rounds * (moving(x, stage, s, n, at) + packing(x, s, n));
}

static Piece *add_piece(Cost *x, Pieces *to, Piece p) {
  ZB_PUSH(x->a, to->piece, to->n, p);
  return &to->piece[to->n - 1];
}

static void add_call(Cost *x, Pieces *to, const ZpNode *n) {
  Piece *last = to->n ? &to->piece[to->n - 1] : NULL;
  if (!last || last->level != ZP_NONE || last->kind != PIECE_ALONE)
    last = add_piece(x, to, (Piece){.level = ZP_NONE, .node = ZP_NONE});
  double t = call_seconds(x, n);
  last->seconds += t;
  last->part[zp_call_part(n->call.op)] += t;
  if (n->recomputed) to->recomputed += t;
}

static void add_collective(Cost *x, Pieces *to, double seconds, uint32_t level, uint32_t node) {
  add_piece(x, to, (Piece){.seconds = seconds, .part[ZP_T_TENSOR] = seconds, .level = level, .node = node});
}

/* The engine packs and unpacks among calls, before what it sends goes and when it is waited for. */
static void pack(Cost *x, Pieces *to, const ZpSegment *s, const ZpNode *n, bool before) {
  bool first = n->call.op == ZG_OP_REDUCE_SCATTER, both = n->call.op == ZG_OP_ALL_TO_ALL;
  double t = packing(x, s, n) / (both ? 2 : 1);
  if (t > 0 && (both || first == before))
    add_piece(x, to, (Piece){.seconds = t, .part[ZP_T_TENSOR] = t, .level = ZP_NONE, .node = ZP_NONE});
}

/* Pieces of a list that are under way: of each node, and of its collectives in their order. */
typedef struct {
  uint32_t node, piece;
} Open;

/* Waits for those that are to be complete before node i. */
static void join(Cost *x, Pieces *to, const ZpSegment *s, const ZpList *l, Open *open, uint32_t *n,
                 uint32_t i) {
  uint32_t left = 0;
  for (uint32_t k = 0; k < *n; k++) {
    const ZpNode *node = &l->nodes[open[k].node];
    if (node->until > i) {
      open[left++] = open[k];
      continue;
    }
    add_piece(x, to, (Piece){.kind = PIECE_WAITS, .level = ZP_NONE, .node = ZP_NONE, .waits = open[k].piece});
    pack(x, to, s, node, false);
  }
  *n = left;
}

static Pieces in_order(Cost *x, uint32_t stage, const ZpSegment *s, const ZpList *l) {
  Pieces all = {0};
  Open open[ZP_MOST_ASYNC];
  uint32_t nopen = 0;
  for (uint32_t i = 0; i <= l->n; i++) {
    join(x, &all, s, l, open, &nopen, i);
    if (i == l->n) break;
    const ZpNode *n = &l->nodes[i];
    if (!zp_sends(n)) {
      add_call(x, &all, n);
      continue;
    }
    const ZpPlace *at;
    if (zp_is_async(n) && n->until > i + 1) {
      double t = moving(x, stage, s, n, &at);
      pack(x, &all, s, n, true);
      add_collective(x, &all, t, at->level, i);
      all.piece[all.n - 1].kind = PIECE_BESIDE;
      open[nopen++] = (Open){i, all.n - 1};
      continue;
    }
    double t = collective(x, stage, s, n, &at);
    if (zp_is_ring(n)) add_call(x, &all, n);
    add_collective(x, &all, t, at->level, i);
  }
  return all;
}

Pieces zp_list_pieces(Cost *x, uint32_t stage, uint32_t segment, ZpPhase phase) {
  const ZpSegment *s = &x->p->programs.segments[segment];
  begin_list(x, s, &s->list[phase]);
  return in_order(x, stage, s, &s->list[phase]);
}

/* Returns the seconds of a pass, which goes on until it waits; its calls are slowed by transfers under
 * way. */
static double pass(Cost *x, uint32_t segment, ZpPhase phase) {
  ZbArena *scratch = x->a;
  const ZlCluster *c = x->c;
  Pieces all = zp_list_pieces(x, 0, segment, phase);
  double now = 0, link = 0, slowed = 0, share = c->steal / (1 + c->steal),
         *ends = ZB_NEWN(scratch, double, all.n);
  for (uint32_t i = 0; i < all.n; i++) {
    const Piece *at = &all.piece[i];
    double waits;
    switch (at->kind) {
    case PIECE_ALONE: now += at->seconds; break;
    case PIECE_BESIDE:
      link = ends[i] = fmax(now, link) + at->seconds;
      slowed += at->seconds * share; /* as far as it is not waited for */
      break;
    case PIECE_WAITS:
      waits = fmax(0, ends[at->waits] - now);
      slowed -= fmin(waits, all.piece[at->waits].seconds) * share;
      now += waits;
      break;
    }
  }
  return now + slowed;
}

double zp_pass_seconds(const ZpPlan *p, const ZlCluster *c, uint32_t segment, ZpPhase phase) {
  ZbArena *scratch = zb_arena_new();
  Cost x = zp_cost_new(p, c, false, scratch);
  double seconds = pass(&x, segment, phase);
  zb_arena_free(scratch);
  return seconds;
}

double zp_step_pass_seconds(const ZpPlan *p, const ZlCluster *c, const ZpStepLoad *load, uint32_t segment) {
  ZbArena *scratch = zb_arena_new();
  Cost x = zp_cost_new(p, c, false, scratch);
  x.load = load;
  double seconds = pass(&x, segment, ZP_FWD);
  zb_arena_free(scratch);
  return seconds;
}

void zp_list_seconds(const ZpPlan *p, const ZlCluster *c, uint32_t stage, uint32_t segment, ZpPhase phase,
                     double *seconds) {
  ZbArena *scratch = zb_arena_new();
  Cost x = zp_cost_new(p, c, false, scratch);
  const ZpSegment *s = &p->programs.segments[segment];
  const ZpList *l = &s->list[phase];
  begin_list(&x, s, l);
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    const ZpPlace *at;
    bool sends = zp_sends(n);
    seconds[i] = sends ? collective(&x, stage, s, n, &at) : 0;
    if (!sends || zp_is_ring(n)) seconds[i] += call_seconds(&x, n);
  }
  zb_arena_free(scratch);
}

/* ---- instructions -------------------------------------------------------------------------------------- */
static Pieces one_piece(Cost *x, ZpTimePart part, double seconds) {
  Pieces all = {0};
  Piece *p = add_piece(x, &all, (Piece){.seconds = seconds, .level = ZP_NONE, .node = ZP_NONE});
  p->part[part] = seconds;
  return all;
}

/* Returns the elements of a held bucket that this rank updates. */
static double owned(const ZpPlan *p, const ZpBucket *k) {
  return (double)k->elems / (double)zp_group_size(&p->layout.mesh, k->shard);
}

/* Returns the bytes that an update moves: it reads the gradient, reads and writes states and weights, which are of 32
 * bits in all, in halves or not. */
double zp_optimizer_bytes(const ZpPlan *p, const ZpBucket *k, double elems) {
  int n = zp_states(p, k);
  double states = 0;
  int made = zp_updates_whole(p, k) ? zk_optimizer_info[p->asked.optimizers[k->optimizer].kind].nstates : 0;
  for (int i = made; i < n; i++) /* a momentum was made before */
    states += zk_mean_bytes(zp_part_elem(p, k, 1 + i));
  return elems * (zk_mean_bytes((ZkElem)k->grad) + 2 * states + 8);
}

Pieces zp_compute_pieces(Cost *x, uint32_t stage, const ZpInstr *in) {
  const ZpPlan *p = x->p;
  const ZpStage *st = &p->programs.stages[stage];
  const ZpBucket *k;
  double bytes = 0, seconds = 0;
  switch ((ZpInstrOp)in->op) {
  case ZP_I_LOAD: {
    double rate = p->asked.pins && x->c->host_link > 0 ? x->c->host_link : x->c->stream;
    return one_piece(x, ZP_T_MEMORY,
                     (double)p->programs.vstages[in->vstage].input_bytes / rate + x->c->launch);
  }
  case ZP_I_ZERO_GRADS: /* one pass: accumulators lie side by side */
    for (uint32_t h = 0; h < st->nheld; h++) bytes += (double)zp_grad_bytes(p, st->held[h].bucket);
    return one_piece(x, ZP_T_OPTIMIZER, zp_stream_seconds(x->c, bytes));
  case ZP_I_NORM_LOCAL:
    for (uint32_t h = 0; h < st->nheld; h++) {
      k = &p->programs.buckets[st->held[h].bucket];
      if (!k->frozen) seconds += zp_stream_seconds(x->c, zk_mean_bytes((ZkElem)k->grad) * owned(p, k));
    }
    return one_piece(x, ZP_T_OPTIMIZER, seconds);
  case ZP_I_MOMENTUM: /* gradient in, momentum in and out, update out */
    k = &p->programs.buckets[st->held[in->held].bucket];
    bytes = (4 + zk_mean_bytes((ZkElem)k->grad) +
             8 * zk_optimizer_info[p->asked.optimizers[k->optimizer].kind].nstates) *
            owned(p, k);
    return one_piece(x, ZP_T_OPTIMIZER, zp_stream_seconds(x->c, bytes));
  case ZP_I_ORTHOGONALIZE: {
    k = &p->programs.buckets[st->held[in->held].bucket];
    seconds = zp_orthogonal_flops(p, k) / (x->c->flops_f32 * x->c->products);
    bytes = 2 * (double)zp_update_bytes(p, k) + zp_orthogonal_bytes(p, k);
    return one_piece(x, ZP_T_OPTIMIZER, seconds + zp_stream_seconds(x->c, bytes));
  }
  case ZP_I_OPT_STEP:
    k = &p->programs.buckets[st->held[in->held].bucket];
    bytes = zp_optimizer_bytes(p, k, owned(p, k));
    return one_piece(x, ZP_T_OPTIMIZER, zp_stream_seconds(x->c, bytes));
  default: return one_piece(x, ZP_T_OPTIMIZER, x->c->launch); /* ZERO_SUMS */
  }
}

static Exchange transfer(Cost *x, uint32_t stage, const ZpInstr *in) {
  uint32_t pair[2] = {stage < in->peer ? stage : in->peer, stage < in->peer ? in->peer : stage};
  ZpPlace at = place_of_stages(x, pair, 2);
  double bytes = (double)in->bytes * (x->load ? zp_step_tokens(x) : 1); /* what is carried is of tokens */
  return (Exchange){zp_transfer_seconds(x->c, bytes, &at), at.level, false};
}

/* Returns the seconds of adding a staged gradient to an accumulator in fewer bits than f32, where nothing travels. */
static double adding_seconds(Cost *x, uint32_t stage, const ZpInstr *in) {
  if (in->op != ZP_I_SCATTER_GRADS || in->in_place) return 0;
  const ZpBucket *k = &x->p->programs.buckets[x->p->programs.stages[stage].held[in->held].bucket];
  if (k->grad == ZK_F32) return 0;
  return zp_stream_seconds(x->c, (4 + 2 * zk_mean_bytes((ZkElem)k->grad)) * (double)k->elems);
}

Exchange zp_exchange(Cost *x, uint32_t stage, const ZpInstr *in) {
  if (in->queue == ZP_Q_P2P) return transfer(x, stage, in);
  if (in->op == ZP_I_REDUCE_TIED) {
    const ZpTied *t = &x->p->programs.tied[in->tied];
    ZpPlace at = place_of_stages(x, t->stages, t->nstages);
    return (Exchange){zp_collective_seconds(x->c, in->coll, (double)in->bytes, &at), at.level, true};
  }
  if (!in->dims || zp_group_size(&x->p->layout.mesh, in->dims) < 2)
    return (Exchange){.seconds = adding_seconds(x, stage, in)};
  const ZpPlace *at = place_of(x, stage, in->dims);
  bool heavy = in->op != ZP_I_REDUCE_STEP && in->op != ZP_I_REDUCE_COUNT;
  return (Exchange){zp_collective_seconds(x->c, in->coll, (double)in->bytes, at), at->level, heavy};
}
