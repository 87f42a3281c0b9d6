/* By which dims `attend` and its gradients are split. Like any node by the first axis of a dim's list, if
 * that is one of samples or heads. But where it is the axis of the queries, which the operation needs whole
 * of the keys alone, there are ways to split the work all the same:
 *
 *   gather  queries stay where they are; keys and values are all-gathered, and the gradients of these, to which
 *           all ranks add, are reduced and scattered
 *   heads   ranks exchange positions for heads (all-to-all), attend to all of the sequence in a part of the heads
 *           (Jacobs et al. 2023, DeepSpeed Ulysses), and exchange the results back
 *   ring    queries stay; keys and values go from rank to rank, and with them, backward, the sums of their gradients
 *           (Liu et al. 2023, Ring Attention): of two chunks a rank computes with one while the next arrives. Steps at
 *           which nobody would see anything are left out. Of a zigzag sequence (zigzag.c) ranks have two chunks each,
 *           and what one of them takes no part in it does not go on
 *
 * Unless the recipe says which, it is heads where these divide and that sends fewer bytes. With a the bytes
 * of a rank's q and o, b of its k and v, and n ranks, all of them send
 *
 *   gather  3 (n - 1) b            k and v forward and again backward; their gradients
 *   heads   3 (n - 1) / n (a + b)  q, k, v and o forward and again backward; gradients of q, k, v, and of o
 *
 * so that heads that share keys make gathering the better way of small groups. Of keys and values that were made
 * of less it is less that is gathered (narrow.c), 2 of the 3 b. A ring sends as much as
 * gathering, but for sums in f32, and needs room for 2 b instead of n b. */
#include "runtime/plan/local/shard.h"
#include "runtime/plan/text.h"

/* Whether dim d can split `axis`, of heads, in place of the sequence: as the fastest of all that do. */
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

/* Bytes of a rank's part of a value. */
static double part_of(const ZpPlan *p, const ZgType *t) {
  ZpState state[ZP_MAX_DIMS];
  double bytes = (double)zk_elem_bytes(zp_store_elem(p, t));
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

/* Around a ring go keys of the queries' own sequence, without a bias, whose gradient would be of all keys. */
static bool may_go_round(const ZgNode *n, const ZgType *in) {
  ZgAttendAxes ax = zg_attend_axes(n->ax, n->nax);
  bool bias = n->op == ZG_OP_ATTEND_BIAS_GRAD;
  for (int i = zg_attend_first(n->op) + 3; i < n->nin; i++)
    bias |= zg_type_has(&in[i], ax.k) && in[i].elem != ZG_INDEX && in[i].elem != ZG_I32;
  return ax.q == ax.k && !bias;
}

/* Chunks that go round are of one kind: all of these dims split zigzag, or none does. */
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

/* Bits of a rank's chunks that somebody sees any of, `t` ranks farther on. */
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

static uint64_t elements(const ZpValue *v) { return v->bytes / zk_elem_bytes((ZkElem)v->elem); }

ZpRing zp_ring(const ZpSegment *s, const ZpNode *n) {
  bool back = n->call.op == ZG_OP_ATTEND_GRAD;
  const ZpValue *k = &s->values[n->in[back ? 4 : 1]], *v = &s->values[n->in[back ? 5 : 2]];
  const ZpValue *made = &s->values[n->out[0]];
  ZpRing r = {.v = zb_round_up(k->bytes, 64), .dv = zb_round_up(4 * elements(k), 64)};
  uint64_t sums = r.dv + zb_round_up(4 * elements(v), 64);
  for (int i = 0; i < 2; i++) r.chunk[i] = r.bytes, r.bytes += r.v + zb_round_up(v->bytes, 64);
  for (int i = 0; back && i < 2; i++) r.sums[i] = r.bytes, r.bytes += sums;
  r.queries = r.bytes;
  if (made->elem != ZK_F32) r.bytes += zb_round_up(4 * elements(made), 64);
  r.kernel = r.bytes;
  return r;
}

/* Of a chunk's k and v at every step of its own but the first; of the sums of their gradients as often, and
 * once more: home. */
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
  uint64_t sums = back ? (hops + home) * 4 * (elements(k) + elements(v)) : 0;
  return (hops * (k->bytes + v->bytes) + sums) / chunks;
}
