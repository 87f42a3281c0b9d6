/* Products by packed weights: which are of few rows, and how the others unpack some of a matrix at a time.
 *
 * What is unpacked at a time has up to SLAB bytes in the type of the other operand. It is cut along an
 * axis of the result, so that sums are whole: a product over the weights' columns takes some of these with
 * all of their elements, its gradient some elements of all columns.
 *
 * Assumed, and not measured: of more rows than ZK_CUDA_PACKED_MOST a library's product gains more than
 * unpacking takes. */
#include "kernels/cuda/packed.h"

#ifdef ZK_EMU
#define SLAB ((int64_t)8 << 10) /* so that small cases have several */
#else
#define SLAB ((int64_t)32 << 20) /* stays in the L2 cache of an H100 */
#endif

static bool contracted(const ZkCall *c, uint16_t axis) {
  for (int i = 0; i < c->nax; i++)
    if (c->ax[i] == axis) return true;
  return false;
}

bool zk_cuda_packed_forward(const ZkCall *c) {
  const ZkView *w = &c->in[zk_cuda_packed_operand(c)];
  for (int i = w->rank - w->summed; i < w->rank; i++)
    if (!contracted(c, w->axis[i])) return false;
  return w->summed == c->nax;
}

/* ---- slabs --------------------------------------------------------------------------------------------- */
/* The weights' axes from `begin` to `cut` are cut: `cut` into pieces, those before it into single ones. */
typedef struct {
  int operand, begin, cut; /* cut < begin: nothing is cut */
  int64_t each;            /* elements of a column; 1 where these are cut */
  int64_t piece, pieces, count;
} Slabs;

/* Cuts the last axis that must be, of those that begin at multiples of ZK_CUDA_PACKED_ALIGN. */
static Slabs slabs_of(const ZkCall *c) {
  Slabs s = {.operand = zk_cuda_packed_operand(c), .cut = -1, .pieces = 1, .count = 1};
  const ZkView *w = &c->in[s.operand];
  bool forward = zk_cuda_packed_forward(c);
  ZkPacked m = zk_packed_of(w);
  int columns = w->rank - w->summed, end = forward ? columns : w->rank;
  int64_t room = SLAB / (int64_t)zk_plain_bytes((ZkElem)c->in[!s.operand].elem);
  s.begin = forward ? 0 : columns, s.each = forward ? m.k : 1;
  room /= forward ? m.k : m.columns;
  for (int i = end; i-- > s.begin;) {
    int64_t n = w->size[i], inner = w->stride[i] / s.each, piece = room / inner;
    int64_t unit = inner % ZK_CUDA_PACKED_ALIGN ? ZK_CUDA_PACKED_ALIGN : 1;
    piece = piece < unit ? unit : piece / unit * unit;
    bool even = i == s.begin || inner * n % ZK_CUDA_PACKED_ALIGN == 0;
    if (n <= piece || !even || contracted(c, w->axis[i])) continue;
    s.cut = i, s.pieces = zk_ceil_of(n, piece);
    s.piece = zk_ceil_of(zk_ceil_of(n, s.pieces), unit) * unit;
    s.count = s.pieces = zk_ceil_of(n, s.piece);
    break;
  }
  for (int i = s.begin; i < s.cut; i++) s.count *= w->size[i];
  return s;
}

/* Cuts a view along an axis, if it has that. */
static void cut_view(ZkView *v, uint16_t axis, int64_t first, int64_t n) {
  int i = zkc_find(v, axis);
  if (i < 0) return;
  if (v->data && zk_is_plain((ZkElem)v->elem)) v->data = zk_at(v, first * v->stride[i]);
  v->start[i] += first, v->size[i] = n;
}

/* Makes the product by slab `number`, unpacked at the beginning of the scratch, of which it takes so many
 * bytes. */
static size_t slab_at(const ZkCall *c, const Slabs *s, int64_t number, ZkCall *plain,
                      ZkCudaPackedPart *part) {
  ZkView *w = &plain->in[s->operand];
  int64_t stride = 1, rest = number / s->pieces;
  *plain = *c, *part = (ZkCudaPackedPart){{0, 0}, {1, 1}};
  for (int i = s->cut; i >= s->begin; i--) {
    int64_t first = number % s->pieces * s->piece, left = w->size[i] - first;
    int64_t n = left < s->piece ? left : s->piece;
    if (i < s->cut) first = rest % w->size[i], rest /= w->size[i], n = 1;
    part->first[s->begin > 0] += first * w->stride[i] / s->each;
    cut_view(&plain->in[!s->operand], w->axis[i], first, n);
    cut_view(&plain->out[0], w->axis[i], first, n);
    cut_view(w, w->axis[i], first, n);
  }
  for (int i = w->rank; i-- > 0; stride *= w->size[i]) {
    part->n[i >= w->rank - w->summed] *= w->size[i];
    w->stride[i] = stride;
  }
  w->elem = c->in[!s->operand].elem, w->summed = 0, w->data = c->scratch;
  size_t bytes = zb_round_up(zk_bytes((ZkElem)w->elem, (uint64_t)stride), 256);
  if (c->scratch) plain->scratch = (char *)c->scratch + bytes;
  return bytes;
}

/* ---- calls --------------------------------------------------------------------------------------------- */
void zk_cuda_packed_dot(const ZkEnv *env, const ZkCall *c) {
  if (zk_cuda_packed_is_rows(c)) {
    zk_cuda_packed_rows(env, c);
    return;
  }
  Slabs s = slabs_of(c);
  for (int64_t i = 0; i < s.count; i++) {
    ZkCall plain;
    ZkCudaPackedPart part;
    slab_at(c, &s, i, &plain, &part);
    zk_cuda_packed_unpack(env->device, c, &c->in[s.operand], &part, (ZkElem)plain.in[s.operand].elem,
                          c->scratch);
    zk_cuda_dot(env, &plain);
  }
}

void zk_cuda_packed_dot_prepare(const ZkEnv *env, const ZkCall *c) {
  if (zk_cuda_packed_is_rows(c)) return;
  Slabs s = slabs_of(c);
  for (int64_t i = 0; i < s.count; i++) {
    ZkCall plain;
    ZkCudaPackedPart part;
    slab_at(c, &s, i, &plain, &part);
    zk_cuda_dot_prepare(env, &plain);
  }
}

bool zk_cuda_packed_dot_fallback(const ZkEnv *env, const ZkCall *c, ZkFallback *how) {
  ZkCall plain;
  ZkCudaPackedPart part;
  if (zk_cuda_packed_is_rows(c)) return false;
  Slabs s = slabs_of(c);
  slab_at(c, &s, 0, &plain, &part);
  return zk_cuda_dot_fallback(env, &plain, how);
}

/* Of any number of rows up to the call's. The slabs are of two shapes, of which the last one has the
 * other. */
size_t zk_cuda_packed_dot_scratch(const ZkCall *c) {
  size_t rows = zk_cuda_packed_rows_scratch(c), most = 0;
  if (zk_cuda_packed_is_rows(c)) return rows;
  Slabs s = slabs_of(c);
  for (int64_t i = 0; i<s.pieces; i += s.pieces> 1 ? s.pieces - 1 : 1) {
    ZkCall plain;
    ZkCudaPackedPart part;
    size_t bytes = slab_at(c, &s, i, &plain, &part);
    bytes += zk_cuda_dot_scratch(&plain);
    most = bytes > most ? bytes : most;
  }
  return rows > most ? rows : most;
}
