/* Chooses which dims split `attend` and its gradients. Each is split like any node by the first axis of a
 * dim's list, if that axis counts samples or heads. If it is the queries' axis, of whose keys the operation
 * needs all, the work can still be split in three ways:
 *
 *   gather  queries stay where they are; keys and values are all-gathered, and their gradients, to which all
 *           ranks add, are reduce-scattered
 *   heads   ranks exchange positions for heads (all-to-all), attend to the whole sequence with a part of the
 *           heads (Jacobs et al. 2023, DeepSpeed Ulysses), and exchange the results back
 *   ring    queries stay; keys and values go from rank to rank, and in backward the sums of their gradients
 *           with them (Liu et al. 2023, Ring Attention). A rank computes with one of two chunks while the
 *           next arrives. Steps at which every pair is masked are skipped. In a zigzag sequence (pieces.c)
 *           ranks have two chunks each, and a chunk that no later rank needs is not passed on
 *
 * Unless the recipe chooses, heads are taken if the dim divides them and that sends fewer bytes. With a the
 * bytes of a rank's q and o, b of its k and v, and n ranks, all of them send
 *
 *   gather  3 (n - 1) b            k and v in forward and again in backward; their gradients
 *   heads   3 (n - 1) / n (a + b)  q, k, v and o in forward and again in backward; their gradients
 *
 * so that small groups whose heads share keys gather. Keys and values computed from narrower values gather
 * less (narrow.c): 2 of the 3 b. A ring sends as much as a gather, except for sums in f32, and needs memory
 * for 2 b instead of n b. */
#include "runtime/plan/local/shard.h"
#include "runtime/plan/text.h"

/* Returns whether dim d can split `axis`, which counts heads, instead of the sequence, as the fastest cut of
 * that axis. */
static bool takes_heads(const ZpShard *h, const ZgType *q, int d, uint16_t axis, const uint32_t *x) {
  const ZpPlan *p = h->p;
  ZpState state[ZP_MAX_DIMS];
  int64_t parts = p->layout.mesh.dim[d].size;
  zp_layout(p, q, state);
  for (int e = 0; e < p->layout.mesh.ndims; e++) {
    bool splits = e < d ? x[e] == axis : state[e].kind == 'S' && state[e].axis == axis;
    if (e == d || !splits || p->layout.mesh.dim[e].size == 1) continue;
    if (e > d) return false;
    parts *= p->layout.mesh.dim[e].size;
  }
  return p->layout.axis_size[axis] % parts == 0;
}

static uint32_t heads_of(const ZpShard *h, const ZgNode *n, const ZgType *in, int d, const uint32_t *x) {
  int first = zg_attend_first(n->op);
  const ZgType *q = &in[first], *k = &in[first + 1];
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  for (int i = 0; i < k->naxes; i++) {
    uint16_t a = k->axis[i];
    if (a != ax.k && a != ax.h && a != h->p->asked.batch && zg_type_has(q, a) && takes_heads(h, q, d, a, x))
      return a;
  }
  return ZG_NONE;
}

/* Returns the bytes of a rank's part of a value. */
static double part_of(const ZpPlan *p, const ZgType *t) {
  ZpState state[ZP_MAX_DIMS];
  double bytes = zk_mean_bytes(zp_store_elem(p, t));
  zp_layout(p, t, state);
  for (int i = 0; i < t->naxes; i++) bytes *= (double)zp_local_size(p, t->axis[i], state);
  return bytes;
}

static bool heads_send_less(const ZpShard *h, const ZgNode *n, const ZgType *in, int d) {
  int first = zg_attend_first(n->op);
  double size = (double)h->p->layout.mesh.dim[d].size, k = part_of(h->p, &in[first + 1]),
         v = part_of(h->p, &in[first + 2]);
  const int64_t *axes = h->p->layout.axis_size;
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  double q = part_of(h->p, &in[first]), o = q / (double)axes[ax.h] * (double)axes[ax.w];
  double less = zp_narrow_bytes(h, n->in[first + 1], d, ax.k) + zp_narrow_bytes(h, n->in[first + 2], d, ax.k);
  if (ax.q != ax.k || less > k + v) less = k + v;
  return 3 * (q + o + k + v) < size * (2 * less + k + v);
}

static ZlSpan way_span(const ZpPlan *p, int d) {
  const ZlAttention *a = zp_attention(p, &p->layout.mesh.dim[d]);
  return a ? a->span : zp_split_span(p, &p->layout.mesh.dim[d]);
}

static void report_heads(const ZpShard *h, const ZgNode *n, int d) {
  const ZpDim *dim = &h->p->layout.mesh.dim[d];
  ZlDiag *e = zl_report(h->b->d, ZL_Z0301, way_span(h->p, d),
                        "no axis of the keys' heads divides over `%s` (%lld) at attend (%s)", dim->name,
                        (long long)dim->size, zp_loc_text(h->p, n->loc));
  zl_note(e, "what splits an axis of heads, too, must come before `%s` in the mesh", dim->name);
  zl_help(e, "write `attention gather over %s`", h->p->asked.recipe->mesh[dim->directive].name.s);
}

/* Returns whether keys can go round a ring: they belong to the queries' own sequence, and there is no bias,
 * whose gradient would depend on all keys. */
static bool may_go_round(const ZgNode *n, const ZgType *in) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  bool bias = n->op == ZG_OP_ATTEND_BIAS_GRAD;
  for (int i = zg_attend_first(n->op) + 3; i < n->nin; i++)
    bias |= zg_type_has(&in[i], ax.k) && in[i].elem != ZG_INDEX && in[i].elem != ZG_I32;
  return ax.q == ax.k && !bias;
}

/* Returns whether the dims make one ring: all of them split zigzag, or none does. */
static bool is_one_ring(const ZpMesh *m, ZpDims dims, uint16_t axis) {
  ZpDims zigzag = 0;
  for (int d = 0; d < m->ndims; d++)
    if (dims >> d & 1 && m->dim[d].zigzag == axis) zigzag |= 1u << d;
  return !zigzag || zigzag == dims;
}

ZpDims zp_choose_attend(const ZpShard *h, const ZgNode *n, uint32_t *x) {
  const ZpPlan *p = h->p;
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  for (int i = 0; i < n->nin; i++) in[i] = h->s->values[n->in[i]].type;
  for (int i = 0; i < n->nout; i++) out[i] = h->s->values[n->out + (uint32_t)i].type;
  ZpDims split = 0;
  bool ring = false;
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    x[d] = zp_attended_axis(p, n, in, out, d, ax.q);
    if (x[d] != ax.q) continue;
    const ZlAttention *said = zp_attention(p, &p->layout.mesh.dim[d]);
    ZlAttentionWay way = said ? said->way : ZL_ATTENTION_AUTO;
    h->b->attended |= 1u << d;
    if (p->layout.mesh.dim[d].size == 1) continue;
    split |= 1u << d;
    ring |= way == ZL_ATTENTION_RING;
    if (way == ZL_ATTENTION_GATHER || way == ZL_ATTENTION_RING) continue;
    uint32_t heads = heads_of(h, n, in, d, x);
    if (way == ZL_ATTENTION_HEADS && heads == ZG_NONE && !zl_errors(h->b->d)) report_heads(h, n, d);
    if (heads != ZG_NONE && (way == ZL_ATTENTION_HEADS || heads_send_less(h, n, in, d))) {
      x[d] = heads;
      split &= ~(1u << d);
    }
  }
  return ring && may_go_round(n, in) && is_one_ring(&p->layout.mesh, split, ax.q) ? split : 0;
}

bool zp_attend_of_keys(const ZgNode *n, bool result, int i, const ZgType *t, bool ring) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  int first = zg_attend_first(n->op);
  if (ax.q != ax.k || !zg_type_has(t, ax.k)) return false;
  if (ring) return !result && i > first + 2; /* documents */
  return result ? n->op != ZG_OP_ATTEND && (n->op == ZG_OP_ATTEND_BIAS_GRAD || i > 0) : i > first;
}

/* ---- around a ring ------------------------------------------------------------------------------------- */
bool zp_ring_sees(const ZpNode *n, int64_t length, int64_t q, int64_t k) {
  int64_t window = n->call.opt[1], apart = q > k ? q - k : k - q;
  if (n->call.opt[0] == 1 && k > q) return false;
  return window == 0 || apart == 0 || (apart - 1) * length + 1 < window;
}

int zp_ring_chunks(const ZpMesh *m, const ZpNode *n) { return zp_is_zigzag(m, n->dims, n->axis) ? 2 : 1; }

int64_t zp_ring_chunk(int chunks, int64_t ranks, int64_t rank, int c) {
  return chunks == 1 ? rank : c ? 2 * ranks - 1 - rank : rank;
}

/* Returns a bit for each of a rank's chunks that a rank `t` places farther on attends to. */
static uint8_t chunks_seen(const ZpNode *n, int chunks, int64_t ranks, int64_t length, int64_t t) {
  uint8_t seen = 0;
  for (int64_t r = 0; r < ranks; r++)
    for (int i = 0; i < chunks * chunks; i++) {
      int64_t q = zp_ring_chunk(chunks, ranks, (r + t) % ranks, i / chunks);
      if (zp_ring_sees(n, length, q, zp_ring_chunk(chunks, ranks, r, i % chunks))) seen |= 1 << i % chunks;
    }
  return t ? seen : (uint8_t)((1 << chunks) - 1);
}

void zp_ring_steps(const ZpShard *h, ZpNode *n) {
  const ZpValue *q = &h->out->values[n->in[zg_attend_first(n->call.op)]];
  int chunks = zp_ring_chunks(&h->p->layout.mesh, n);
  int64_t ranks = zp_group_size(&h->p->layout.mesh, n->dims);
  int64_t length = zp_local_size(h->p, n->call.ax[0], q->state) / chunks;
  uint32_t *steps = NULL, nsteps = 0, nseen = 0;
  uint8_t *seen = NULL;
  for (int64_t t = 0; t < ranks; t++) {
    uint8_t some = chunks_seen(n, chunks, ranks, length, t);
    if (!some) continue;
    ZB_PUSH(h->p->arena, steps, nsteps, (uint32_t)t);
    ZB_PUSH(h->p->arena, seen, nseen, some);
  }
  n->steps = steps;
  n->chunks = seen;
  n->nsteps = nsteps;
}

static uint64_t elements(const ZpValue *v) { return zk_elems((ZkElem)v->elem, v->bytes); }

ZpRing zp_ring(const ZpSegment *s, const ZpNode *n) {
  bool back = n->call.op == ZG_OP_ATTEND_GRAD;
  const ZpValue *k = &s->values[n->in[back ? 4 : 1]], *v = &s->values[n->in[back ? 5 : 2]];
  const ZpValue *made = &s->values[n->out[0]];
  ZpRing r = {.v = zb_round_up(k->bytes, 64), .dv = zb_round_up(zk_bytes(ZK_F32, elements(k)), 64)};
  uint64_t sums = r.dv + zb_round_up(zk_bytes(ZK_F32, elements(v)), 64);
  for (int i = 0; i < 2; i++) r.chunk[i] = r.bytes, r.bytes += r.v + zb_round_up(v->bytes, 64);
  for (int i = 0; back && i < 2; i++) r.sums[i] = r.bytes, r.bytes += sums;
  r.queries = r.bytes;
  if (made->elem != ZK_F32) r.bytes += zb_round_up(zk_bytes(ZK_F32, elements(made)), 64);
  r.kernel = r.bytes;
  return r;
}

/* Returns what a rank sends: a chunk's k and v at each of its steps but the first; the sums of their
 * gradients as often, and once more to return to their rank. */
uint64_t zp_ring_bytes(const ZpSegment *s, const ZpNode *n) {
  bool back = n->call.op == ZG_OP_ATTEND_GRAD;
  const ZpValue *k = &s->values[n->in[back ? 4 : 1]], *v = &s->values[n->in[back ? 5 : 2]];
  uint64_t hops = 0, home = 0, chunks = n->chunks[0] == 3 ? 2 : 1;
  for (uint64_t c = 0; c < chunks; c++) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < n->nsteps; i++) steps += n->chunks[i] >> c & 1;
    hops += steps - 1;
    home += steps > 1;
  }
  uint64_t sums = back ? (hops + home) * zk_bytes(ZK_F32, elements(k) + elements(v)) : 0;
  return (hops * (k->bytes + v->bytes) + sums) / chunks;
}
