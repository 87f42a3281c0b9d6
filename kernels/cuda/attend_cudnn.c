/* Attention by cuDNN's fused kernels, through its backend interface: bf16, with f32 sums and l.
 *
 * A graph of products, pointwise operations and reductions says what is meant; cuDNN recognises it and
 * answers with one fused kernel, or with "not supported", and then our own kernels are used. Tensors are
 * [batch, head, s, h] with any strides. cuDNN's `stats` are our l, log sum exp of the scaled scores, but
 * dense; where l lies otherwise it is copied. Between the two products p and ds are bf16.
 *
 * The gradient is one of two graphs, which differ in how dq is summed over the tiles of keys. They are what
 * NVIDIA's own frontend asks for without and with `use_deterministic_algorithm`:
 *   dq goes to an f32 tensor of ours, and from there to bf16. cuDNN's kernels add to it with atomics, so that
 *     its last bits are others each time. This is the fastest way, and takes 4 bytes for an element of dq.
 *   dq is a product of ds and k like any other. There is no sum to add to, so cuDNN stores ds in its
 *     workspace, [head, s, s] in bf16, and multiplies from there, in one order. A call that is `repeatable` is
 *     done so. (Up to Hopper: later devices use our kernels.)
 * Versions and lengths that are known to go wrong are left to our kernels: see whole_tiles and distrusted.
 *
 * Either takes memory for every head, and all heads at once can take gigabytes. They are then done in equal
 * pieces, as large as the call's room allows: with less than a few tiles for each multiprocessor, the longest
 * tile of a causal mask is waited for by all others. Pieces change no bit of a repeatable gradient. */
#include "kernels/cuda/attend.h"

#ifdef HAVE_CUDNN
#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes for which heads are put together, unless the call has less room. Tests have a smaller one. */
#ifndef ZK_ATTEND_ROOM
#define ZK_ATTEND_ROOM ((int64_t)1 << 30)
#endif
#ifndef ZK_ATTEND_TILE /* likewise */
#define ZK_ATTEND_TILE 128
#endif
/* What plans ask for besides, in bytes. */
#ifndef ZK_ATTEND_SPARE
#define ZK_ATTEND_SPARE ((int64_t)1 << 20)
#endif
#define LARGEST ((int64_t)1 << 30) /* bytes for a single head; with more it is not done at all */
#define CONFIGS 8

/* ---- heads as cuDNN sees them -------------------------------------------------------------------------- */
/* Query head h of a batch element uses key head h / groups. Strides of the batch, of heads (of queries or
 * keys, whichever the view has), of positions. */
typedef struct {
  int64_t batch, keys, groups, S, H; /* keys: heads of k and v */
  int64_t sb[ZKA_VIEWS], sh[ZKA_VIEWS], ss[ZKA_VIEWS];
  int64_t pbatch, pkeys;      /* batch elements and key heads of a piece */
  bool grad, causal, ordered; /* ordered: dq in one order, by way of ds */
  bool twice;                 /* not ordered: cuDNN has a dq in f32 of its own, too, in its workspace */
  float scale;
} Heads;

static bool is_keys(int v) { return v == ZKA_K || v == ZKA_V || v == ZKA_DK || v == ZKA_DV; }

static int64_t largest_divisor(int64_t n, int64_t most) {
  int64_t d = most < n ? most : n;
  while (d > 1 && n % d != 0) d--;
  return d < 1 ? 1 : d;
}

/* Bytes for each head of queries: ds, padded, in the workspace; or dq in f32, which is ours. */
static int64_t square_bytes(const Heads *h) {
  int64_t S = (h->S + 127) / 128 * 128;
  return S * S * 2;
}
static int64_t sum_bytes(const Heads *h) { return h->S * h->H * (int64_t)sizeof(float); }

/* Bytes for each key head with its queries'. Where there are several, dk and dv of each are in the workspace. */
static int64_t head_bytes(const Heads *h) {
  if (!h->grad) return 0;
  int64_t shared = h->groups > 1 ? 2 * h->S * h->H * 2 : 0;
  return h->groups * ((h->ordered ? square_bytes(h) : sum_bytes(h) * (h->twice ? 2 : 1)) + shared);
}

static int64_t pieces_of(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int64_t piece_begin(int64_t i, int64_t size, int64_t n) {
  return i * size < n - size ? i * size : n - size;
}

/* The size of equal pieces of n things, of which `most` fit at once. Where they do not come out even, the last
 * piece begins earlier, and does some again: rather that than pieces of half the size or less. */
static int64_t piece_size(int64_t n, int64_t most) {
  if (most >= n) return n;
  if (most < 1) return 1;
  int64_t even = largest_divisor(n, most), pieces = pieces_of(n, most);
  return 2 * even > most ? even : pieces_of(n, pieces);
}

/* `room`: bytes for which heads are put together. A piece is of whole batch elements, or of heads of one; of l
 * it begins at 16 bytes, since these are whole tiles. */
static void cut(Heads *h, int64_t room) {
  int64_t most = h->grad ? room / head_bytes(h) : INT64_MAX;
  h->pkeys = piece_size(h->keys, most);
  h->pbatch = h->pkeys == h->keys ? piece_size(h->batch, most / h->keys) : 1;
}

static int64_t count_pieces(const Heads *h) {
  return pieces_of(h->batch, h->pbatch) * pieces_of(h->keys, h->pkeys);
}

/* The strides of view v; false if its heads are not evenly spaced. */
static bool stride(Heads *h, const ZkcAttend *a, int v) {
  const ZkcNest *n = &a->heads, *g = &a->groups;
  int64_t group = g->nloops ? g->stride[0][v] : 0, key = h->keys > 1 ? n->stride[n->nloops - 1][v] : 0;
  h->ss[v] = a->ss[v];
  h->sb[v] = h->batch > 1 ? n->stride[0][v] : h->S * h->ss[v];
  if (is_keys(v) || h->groups == 1) h->sh[v] = key;
  else if (h->keys > 1 && key != h->groups * group) return false;
  else h->sh[v] = group;
  if (h->sh[v] == 0) h->sh[v] = h->H; /* a single head: any */
  return (h->sb[v] | h->sh[v] | h->ss[v]) % 8 == 0 && a->hs[v] == 1 && a->v[v]->elem == ZK_BF16;
}

/* A single position is refused by most versions and crashes one (9.26: cudnn-frontend, issue 1071). Gradients
 * are left to cuDNN for whole tiles only: what a kernel makes of the rest of the last one was not masked, and
 * is NaN where all scores are far below 0. (Up to 9.15.0 its frontend therefore asks for another graph;
 * without a causal mask it was seen on Hopper with 9.20 and 9.30: cudnn-frontend, issue 160 and pull request
 * 628, pytorch, issue 196678.) */
static bool whole_tiles(const ZkcAttend *a) { return a->S > 1 && (!a->grad || a->S % ZK_ATTEND_TILE == 0); }

/* What is left to our own kernels whatever cuDNN says. */
static const char *ours(const ZkcAttend *a) {
  if (a->bias_grad || a->v[ZKA_BIAS]) return "scores have a bias";
  if (a->v[ZKA_DOCS_K]) return "documents hide keys from each other";
  if (a->window) return "it has a window";
  if (a->more) return "scores are capped, have sinks or a prefix, or come in parts";
  if (!a->one || a->S != a->K || a->ahead) return "queries and keys are of two sequences or two widths";
  return a->v[ZKA_Q]->elem == ZK_BF16 ? NULL : "it is in f32, and cuDNN's kernels are of bf16";
}

/* NULL, and the heads; or why cuDNN is not asked. `most`: of the room that the call leaves; 0: all. */
static const char *heads_of(Heads *h, const ZkcAttend *a, int64_t most) {
  static const char uneven[] = "its heads are not evenly spaced, or not at multiples of 16 bytes";
  *h = (Heads){.batch = 1, .keys = 1, .groups = a->groups.count, .S = a->S, .H = a->H, .scale = a->scale};
  h->grad = a->grad, h->causal = a->causal, h->ordered = a->repeatable;
  const char *why = ours(a);
  if (why) return why;
  if (a->H % 8 != 0 || a->H > 256) return "its heads have no multiple of 8 elements, or more than 256";
  if (a->S <= 1 || a->S > INT32_MAX) return "it has a single position";
  if (!whole_tiles(a))
    return "its length is not a multiple of 128, and gradients of the rest are not trusted";
  if (a->heads.nloops > 2 || a->groups.nloops > 1) return uneven;
  if (a->heads.nloops == 2) h->batch = a->heads.div[0].n, h->keys = a->heads.div[1].n;
  else if (a->heads.nloops == 1 && h->groups == 1) h->keys = a->heads.div[0].n;
  else if (a->heads.nloops == 1) h->batch = a->heads.div[0].n;
  if (h->batch > 65535 || h->keys * h->groups > 65535 || a->v[ZKA_L]->elem != ZK_F32)
    return "it has too many heads";
  for (int v = 0; v < ZKA_DELTA; v++)
    if (v != ZKA_L && a->v[v] && !stride(h, a, v)) return uneven;
  int64_t room = a->room && a->room < ZK_ATTEND_ROOM ? a->room : ZK_ATTEND_ROOM;
  if (head_bytes(h) > LARGEST) return "the scores of one head take more than 1 GiB";
  cut(h, most && most < room ? most : room);
  return NULL;
}

/* l as [heads, groups, s], dense. True if it lies so. */
static bool dense_l(const ZkcAttend *a, ZkView *dense) {
  const ZkView *l = a->v[ZKA_L], *q = a->v[ZKA_Q];
  int64_t next = 1;
  bool same = true;
  uint64_t done = 0;
  *dense = *l;
  for (int i = 0; i < l->rank; i++) { /* positions fastest, then groups, then heads, each as q has them */
    int best = -1, best_class = 3;
    int64_t best_stride = 0;
    for (int k = 0; k < l->rank; k++) {
      int64_t s = zkc_stride(q, l->axis[k]);
      int class = l->axis[k] == a->ax.q ? 0 : zkc_stride(a->v[ZKA_K], l->axis[k]) ? 2 : 1;
      if (done >> k & 1 || class > best_class || (class == best_class && s >= best_stride)) continue;
      best = k, best_class = class, best_stride = s;
    }
    done |= 1ull << best;
    dense->stride[best] = next;
    same = same && (l->size[best] == 1 || l->stride[best] == next);
    next *= l->size[best];
  }
  return same;
}

/* ---- graphs -------------------------------------------------------------------------------------------- */
enum { MADE = 256, TENSORS = 64, OPS = 32 };
/* After 1 + view, the names of tensors. */
enum { SCALE = ZKA_VIEWS + 1, MASKED, ONE, SUMS, DQ_SUM, FIRST_VIRTUAL };
enum { VIRTUAL = 1, BY_VALUE = 2 };

typedef struct {
  cudnnBackendDescriptor_t made[MADE], tensor[TENSORS], op[OPS];
  int nmade, ntensors, nops;
  cudnnStatus_t status; /* the first that was not good; nothing is done after it */
} Graph;

static cudnnBackendDescriptor_t make(Graph *g, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t d = NULL;
  ZB_ASSERT(g->nmade < MADE);
  if (!g->status) g->status = cudnnBackendCreateDescriptor(type, &d);
  if (d) g->made[g->nmade++] = d;
  return d;
}
static void set_attribute(Graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t n, const void *value) {
  if (!g->status) g->status = cudnnBackendSetAttribute(d, name, type, n, value);
}
static void set_desc(Graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value) {
  set_attribute(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void finish_descriptor(Graph *g, cudnnBackendDescriptor_t d) {
  if (!g->status) g->status = cudnnBackendFinalize(d);
}
static void graph_free(Graph *g) {
  while (g->nmade > 0) cudnnBackendDestroyDescriptor(g->made[--g->nmade]);
}

typedef struct {
  int64_t n[4];
} Four; /* [batch, head, row, column] */

static int tensor(Graph *g, int uid, cudnnDataType_t type, Four dims, Four strides, int flags) {
  cudnnBackendDescriptor_t d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  int64_t id = uid, align = 16;
  bool yes = true;
  ZB_ASSERT(uid < TENSORS);
  set_attribute(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set_attribute(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.n);
  set_attribute(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.n);
  set_attribute(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  set_attribute(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
  if (flags & VIRTUAL) set_attribute(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  if (flags & BY_VALUE) set_attribute(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
  finish_descriptor(g, d);
  g->tensor[uid] = d;
  return uid;
}
static int between(Graph *g, cudnnDataType_t type, Four dims, Four strides) {
  return tensor(g, g->ntensors++, type, dims, strides, VIRTUAL);
}
static Four dense(Four d) { return (Four){{d.n[1] * d.n[2] * d.n[3], d.n[2] * d.n[3], d.n[3], 1}}; }

static void add_operation(Graph *g, cudnnBackendDescriptor_t op) {
  finish_descriptor(g, op);
  ZB_ASSERT(g->nops < OPS);
  g->op[g->nops++] = op;
}

static void matmul(Graph *g, int a, int b, int c) {
  const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set_attribute(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
  finish_descriptor(g, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, g->tensor[a]);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, g->tensor[b]);
  set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, g->tensor[c]);
  add_operation(g, op);
}

/* y = mode(x, b), or t ? x : b; b and t may be -1. `axis` is what GEN_INDEX counts along. */
static void pointwise(Graph *g, cudnnPointwiseMode_t mode, int x, int b, int t, int y, int64_t axis) {
  cudnnDataType_t type = mode == CUDNN_POINTWISE_CMP_GE      ? CUDNN_DATA_BOOLEAN
                         : mode == CUDNN_POINTWISE_GEN_INDEX ? CUDNN_DATA_INT32
                                                             : CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_attribute(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set_attribute(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
  if (mode == CUDNN_POINTWISE_GEN_INDEX)
    set_attribute(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  finish_descriptor(g, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[x]);
  if (b >= 0) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, g->tensor[b]);
  if (t >= 0) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, g->tensor[t]);
  set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g->tensor[y]);
  add_operation(g, op);
}

static void reduce(Graph *g, cudnnReduceTensorOp_t mode, int x, int y) {
  const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set_attribute(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  set_attribute(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
  finish_descriptor(g, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
  set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, g->tensor[x]);
  set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, g->tensor[y]);
  add_operation(g, op);
}

static void reshape(Graph *g, int x, int y) {
  cudnnBackendDescriptor_t op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, g->tensor[x]);
  set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, g->tensor[y]);
  add_operation(g, op);
}

/* ---- the two graphs ------------------------------------------------------------------------------------ */
static const cudnnDataType_t BF16 = CUDNN_DATA_BFLOAT16, F32 = CUDNN_DATA_FLOAT;
static const Four one = {{1, 1, 1, 1}};

static Four turned(Four f) { return (Four){{f.n[0], f.n[1], f.n[3], f.n[2]}}; }
static Four scores_dims(const Heads *h) { return (Four){{h->pbatch, h->pkeys * h->groups, h->S, h->S}}; }
static Four rows_dims(const Heads *h) { return (Four){{h->pbatch, h->pkeys * h->groups, h->S, 1}}; }
static Four view_dims(const Heads *h, int v) {
  return (Four){{h->pbatch, is_keys(v) ? h->pkeys : h->pkeys * h->groups, h->S, h->H}};
}
static Four view_strides(const Heads *h, int v) { return (Four){{h->sb[v], h->sh[v], h->ss[v], 1}}; }

static int view(Graph *g, const Heads *h, int v, bool turn) {
  Four d = view_dims(h, v), s = view_strides(h, v);
  return tensor(g, 1 + v, BF16, turn ? turned(d) : d, turn ? turned(s) : s, 0);
}
/* l lies as for all heads, of which a piece is a part. */
static int stats(Graph *g, const Heads *h) {
  Four strides = {{h->keys * h->groups * h->S, h->S, 1, 1}};
  return tensor(g, 1 + ZKA_L, F32, rows_dims(h), strides, 0);
}
static int number(Graph *g, int uid) { return tensor(g, uid, F32, one, one, BY_VALUE); }
static int scores(Graph *g, const Heads *h, cudnnDataType_t type) {
  return between(g, type, scores_dims(h), dense(scores_dims(h)));
}
static int rows(Graph *g, const Heads *h) { return between(g, F32, rows_dims(h), dense(rows_dims(h))); }

/* x where the key is not after the query, else what masks it */
static int masked(Graph *g, const Heads *h, int x) {
  if (!h->causal) return x;
  int q = scores(g, h, CUDNN_DATA_INT32), k = scores(g, h, CUDNN_DATA_INT32),
      seen = scores(g, h, CUDNN_DATA_BOOLEAN);
  int y = scores(g, h, F32);
  pointwise(g, CUDNN_POINTWISE_GEN_INDEX, x, -1, -1, q, 2);
  pointwise(g, CUDNN_POINTWISE_GEN_INDEX, x, -1, -1, k, 3);
  pointwise(g, CUDNN_POINTWISE_CMP_GE, q, k, -1, seen, 0);
  pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, x, number(g, MASKED), seen, y, 0);
  return y;
}

/* o = (e / sum e) v, l = peak + log sum e, e = exp(s - peak), s = scale q k' */
static void forward(Graph *g, const Heads *h) {
  int q = view(g, h, ZKA_Q, false), k = view(g, h, ZKA_K, true), v = view(g, h, ZKA_V, false);
  int o = view(g, h, ZKA_O, false), l = stats(g, h), product = scores(g, h, F32), scaled = scores(g, h, F32);
  matmul(g, q, k, product);
  pointwise(g, CUDNN_POINTWISE_MUL, product, number(g, SCALE), -1, scaled, 0);
  int s = masked(g, h, scaled), peak = rows(g, h), from_peak = scores(g, h, F32), e = scores(g, h, F32);
  int sum = rows(g, h), log_sum = rows(g, h), p = scores(g, h, BF16);
  reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, peak);
  pointwise(g, CUDNN_POINTWISE_SUB, s, peak, -1, from_peak, 0);
  pointwise(g, CUDNN_POINTWISE_EXP, from_peak, -1, -1, e, 0);
  reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
  pointwise(g, CUDNN_POINTWISE_LOG, sum, -1, -1, log_sum, 0);
  pointwise(g, CUDNN_POINTWISE_ADD, peak, log_sum, -1, l, 0);
  pointwise(g, CUDNN_POINTWISE_DIV, e, sum, -1, p, 0);
  matmul(g, p, v, o);
}

/* to (dk or dv) = x' y, summed over the heads of queries that share a head of keys */
static void to_keys(Graph *g, const Heads *h, int x, int y, int to) {
  Four dims = scores_dims(h), strides = dense(dims), all = view_dims(h, ZKA_Q);
  int across = between(g, BF16, turned(dims), turned(strides));
  reshape(g, x, across);
  if (h->groups == 1) {
    matmul(g, across, y, to);
  } else {
    int each = between(g, BF16, all, dense(all));
    matmul(g, across, y, each);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, to);
  }
}

/* D = sum_h do o;  p = exp(s - l), ds = scale p (do v' - D);  dv = p' do, dk = ds' q, dq = ds k */
static void gradient(Graph *g, const Heads *h) {
  int q = view(g, h, ZKA_Q, false), k = view(g, h, ZKA_K, true), v = view(g, h, ZKA_V, true);
  int o = view(g, h, ZKA_O, false), l = stats(g, h), dout = view(g, h, ZKA_G, false),
      scale = number(g, SCALE);
  int dq = view(g, h, ZKA_DQ, false), dk = view(g, h, ZKA_DK, false), dv = view(g, h, ZKA_DV, false);
  Four heads = view_dims(h, ZKA_Q), rdims = rows_dims(h);
  int product = between(g, F32, heads, dense(heads)), sum = rows(g, h);
  int delta = tensor(g, SUMS, F32, rdims, dense(rdims), 0);
  pointwise(g, CUDNN_POINTWISE_MUL, dout, o, -1, product, 0);
  reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
  pointwise(g, CUDNN_POINTWISE_MUL, sum, number(g, ONE), -1, delta, 0);
  int s = scores(g, h, F32), scaled = scores(g, h, F32), less = scores(g, h, F32), p = scores(g, h, F32);
  matmul(g, q, k, s);
  pointwise(g, CUDNN_POINTWISE_MUL, s, scale, -1, scaled, 0);
  pointwise(g, CUDNN_POINTWISE_SUB, scaled, l, -1, less, 0);
  pointwise(g, CUDNN_POINTWISE_EXP, masked(g, h, less), -1, -1, p, 0);
  to_keys(g, h, p, dout, dv);
  int dp = scores(g, h, F32), centred = scores(g, h, F32), weighted = scores(g, h, F32),
      ds = scores(g, h, F32);
  matmul(g, dout, v, dp);
  pointwise(g, CUDNN_POINTWISE_SUB, dp, delta, -1, centred, 0);
  pointwise(g, CUDNN_POINTWISE_MUL, centred, p, -1, weighted, 0);
  pointwise(g, CUDNN_POINTWISE_MUL, weighted, scale, -1, ds, 0);
  to_keys(g, h, ds, q, dk);
  int rows_of_k = between(g, F32, view_dims(h, ZKA_K), view_strides(h, ZKA_K));
  reshape(g, k, rows_of_k);
  if (h->ordered) {
    matmul(g, ds, rows_of_k, dq);
  } else {
    int sum_of_dq = tensor(g, DQ_SUM, F32, heads, dense(heads), 0);
    matmul(g, ds, rows_of_k, sum_of_dq);
    pointwise(g, CUDNN_POINTWISE_IDENTITY, sum_of_dq, -1, -1, dq, 0);
  }
}

/* ---- plans --------------------------------------------------------------------------------------------- */
typedef struct {
  bool usable;
  const char *why; /* it is not; NULL: it is */
  Heads heads;
  Graph graph; /* all that was made for the plan, and the plan */
  cudnnBackendDescriptor_t plan;
  int64_t workspace;
} Plan;

static int64_t heads_in_piece(const Heads *h) { return h->pbatch * h->pkeys * h->groups; } /* of queries */

/* A graph for the gradient in one order whose plan has no room for ds gets dq in some other way. */
static int64_t workspace_least(const Heads *h) {
  return h->grad && h->ordered ? heads_in_piece(h) * h->S * h->S * 2 : 0;
}
static int64_t dq_bytes(const Heads *h) {
  return h->grad && !h->ordered ? heads_in_piece(h) * sum_bytes(h) : 0;
}
/* Where a sum of cuDNN's own may be, there is room for that of one key head. */
static int64_t workspace_most(const Heads *h) {
  int64_t own = h->grad && !h->ordered && !h->twice ? h->groups * sum_bytes(h) : 0;
  return head_bytes(h) * h->pbatch * h->pkeys - dq_bytes(h) + own + ZK_ATTEND_SPARE;
}

/* Before Hopper cuDNN adds to a dq of its own, and takes that for two: fewer heads go into the same scratch. */
static void cut_for(Heads *h, int arch) {
  int64_t planned = head_bytes(h) * h->pbatch * h->pkeys;
  h->twice = h->grad && !h->ordered && arch < 90;
  if (h->twice) cut(h, planned);
}

/* Makes the plan of one configuration. False if cuDNN cannot, or if its workspace is not what it should
 * be. */
static bool plan_one(Plan *p, cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                     cudnnBackendDescriptor_t config) {
  Graph *g = &p->graph;
  int64_t n;
  p->plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (handle) set_attribute(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  else set_desc(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  set_desc(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  finish_descriptor(g, p->plan);
  if (!g->status)
    g->status = cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                         1, &n, &p->workspace);
  bool good =
      !g->status && p->workspace >= workspace_least(&p->heads) && p->workspace <= workspace_most(&p->heads);
  g->status = CUDNN_STATUS_SUCCESS; /* the next one may be better */
  return good;
}

/* For a handle's device, or for one that is described. */
static bool plan_for(Plan *p, cudnnHandle_t handle, cudnnBackendDescriptor_t device) {
  Graph *g = &p->graph;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptor_t config[CONFIGS];
  int64_t n = 0;
  g->ntensors = FIRST_VIRTUAL;
  if (p->heads.grad) gradient(g, &p->heads);
  else forward(g, &p->heads);
  cudnnBackendDescriptor_t graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->nops, g->op);
  if (handle) set_attribute(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  finish_descriptor(g, graph);
  cudnnBackendDescriptor_t heur = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set_attribute(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device) set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  finish_descriptor(g, heur);
  for (int i = 0; i < CONFIGS; i++) config[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (!g->status)
    g->status = cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         CONFIGS, &n, config);
  for (int64_t i = 0; i < n && !g->status && !p->usable; i++)
    p->usable = plan_one(p, handle, device, config[i]);
  return p->usable;
}

/* As NVIDIA's own frontend has it: 9.10.0 and 9.10.1 have known bugs; gradients in one order (what its
 * support matrix calls deterministic) are there for Hopper, and since 9.18 for Ampere and Ada. Before 9.0
 * other things differ too. */
static const char *distrusted(int arch, size_t version, const Heads *h) {
  if (version < 90000) return "cuDNN is older than 9.0";
  if (version == 91000 || version == 91001) return "cuDNN 9.10.0 and 9.10.1 are known to go wrong";
  if (!h->grad || (arch >= 90 && arch < 100)) return NULL;
  if (arch >= 100) return "cuDNN's gradients are not trusted on GPUs after Hopper";
  return !h->ordered || version >= 91800
             ? NULL
             : "cuDNN has gradients in one order from 9.18 on, on GPUs before Hopper";
}

static const char *declined(const ZkCuda *cu, const ZkcAttend *a, Heads *h) {
  for (int v = 0; v < ZKA_DELTA; v++)
    if (a->v[v] && (uintptr_t)a->v[v]->data % 16 != 0) return "operands lie at odd addresses";
  const char *why = heads_of(h, a, (int64_t)cu->attend_piece);
  if (why) return why;
  cut_for(h, cu->arch);
  return distrusted(cu->arch, cudnnGetVersion(), h);
}

static void make_plan(ZkCuda *cu, const ZkCall *call, void *memo) {
  Plan *p = memo;
  ZkcAttend a;
  zkc_attend_of(call, &a);
  p->why = declined(cu, &a, &p->heads);
  if (!p->why && !cu->pretend && !plan_for(p, cu->dnn, NULL)) p->why = "cuDNN has no plan for it";
}

static void drop_plan(void *memo) { graph_free(&((Plan *)memo)->graph); }

const char *zk_attend_dnn_why(ZkCuda *cu, const ZkCall *call) {
  if (!cu->dnn && !cu->pretend) return *cu->no_dnn ? cu->no_dnn : "there is no cuDNN";
  return ((const Plan *)zk_cuda_memo(cu, call, sizeof(Plan), make_plan, drop_plan))->why;
}

void zk_attend_dnn_prepare(ZkCuda *cu, const ZkCall *call) {
  if (cu->dnn) zk_cuda_memo(cu, call, sizeof(Plan), make_plan, drop_plan);
}

/* ---- run ----------------------------------------------------------------------------------------------- */
/* Scratch: the workspace, dq in f32, D, and l if it must be copied; from a multiple of 256 on, as memory of the driver's
 * own is and workspaces of NVIDIA's libraries are expected to be. */
#define BEGIN 256
static size_t rounded(int64_t bytes) { return (size_t)zb_round_up((uint64_t)bytes, BEGIN); }
static char *begin(const ZkCall *call) {
  return (char *)(uintptr_t)zb_round_up((uintptr_t)call->scratch, BEGIN);
}
static size_t dq_at(const Heads *h) { return rounded(workspace_most(h)); }
static size_t sums_at(const Heads *h) { return dq_at(h) + rounded(dq_bytes(h)); }
static size_t l_at(const Heads *h) {
  return sums_at(h) + (h->grad ? rounded(heads_in_piece(h) * h->S * (int64_t)sizeof(float)) : 0);
}

size_t zk_attend_dnn_scratch(const ZkcAttend *a) {
  Heads h;
  ZkView l;
  if (heads_of(&h, a, 0)) return 0; /* a setting may make pieces smaller, but not larger */
  return BEGIN + l_at(&h) + (dense_l(a, &l) ? 0 : (size_t)zkc_attend_rows(a) * sizeof(float));
}

static void copy(const ZkEnv *env, const ZkView *to, const ZkView *from) {
  ZkCall c = {.op = ZG_OP_COPY, .nin = 1, .nout = 1, .in = {*from}, .out = {*to}};
  zk_cuda_copy(env, &c);
}

typedef struct {
  int64_t uid[ZKA_VIEWS + 4];
  void *p[ZKA_VIEWS + 4];
  int n;
} Pack;
static void bind(Pack *k, int uid, void *p) {
  k->uid[k->n] = uid;
  k->p[k->n++] = p;
}

/* From 9.6 on cuDNN's kernels set what they add to to zero themselves (likewise the frontend). */
static void clear_dq(const ZkEnv *env, const Heads *h, char *scratch) {
  if (dq_bytes(h) && cudnnGetVersion() < 90600) zk_cuda_zero(env, scratch + dq_at(h), (size_t)dq_bytes(h));
}

/* The piece that begins at batch element b and key head h. */
static cudnnStatus_t run_piece(ZkCuda *cu, const ZkcAttend *a, const Plan *p, float *l, char *scratch,
                               int64_t b, int64_t head) {
  const Heads *h = &p->heads;
  float scale = h->scale, unit = 1;
  float low = cudnnGetVersion() < 91000 ? -3.402823466e38f : -INFINITY; /* as the frontend has it */
  Pack k = {.n = 0};
  Graph g = {0};
  for (int v = 0; v < ZKA_DELTA; v++) {
    if (!a->v[v] || v == ZKA_L) continue;
    int64_t at = b * h->sb[v] + head * (is_keys(v) ? 1 : h->groups) * h->sh[v];
    bind(&k, 1 + v, (uint16_t *)a->v[v]->data + at);
  }
  bind(&k, 1 + ZKA_L, l + (b * h->keys + head) * h->groups * h->S);
  bind(&k, SCALE, &scale);
  if (h->causal) bind(&k, MASKED, &low);
  if (h->grad) bind(&k, ONE, &unit), bind(&k, SUMS, scratch + sums_at(h));
  if (h->grad && !h->ordered) bind(&k, DQ_SUM, scratch + dq_at(h));
  cudnnBackendDescriptor_t pack = make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void *workspace = scratch;
  set_attribute(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, k.n, k.uid);
  set_attribute(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, k.n, k.p);
  set_attribute(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finish_descriptor(&g, pack);
  if (!g.status) g.status = cudnnBackendExecute(cu->dnn, p->plan, pack);
  graph_free(&g);
  return g.status;
}

bool zk_attend_dnn(const ZkEnv *env, const ZkCall *call, const ZkcAttend *a) {
  ZkCuda *cu = env->device;
  if (!cu->dnn || cu->failed) return false;
  Plan *p = zk_cuda_memo(cu, call, sizeof *p, make_plan, drop_plan);
  if (!p->usable) return false;
  const Heads *h = &p->heads;
  ZkView l;
  bool lies_so = dense_l(a, &l);
  if (!lies_so) l.data = begin(call) + l_at(h);
  if (!lies_so && h->grad) copy(env, &l, a->v[ZKA_L]);
  cudnnStatus_t status = cudnnSetStream(cu->dnn, cu->stream);
  int64_t across = pieces_of(h->keys, h->pkeys);
  for (int64_t i = 0; i < count_pieces(h) && !status && !cu->failed; i++) {
    clear_dq(env, h, begin(call));
    status = run_piece(cu, a, p, l.data, begin(call), piece_begin(i / across, h->pbatch, h->batch),
                       piece_begin(i % across, h->pkeys, h->keys));
  }
  if (status) { /* whatever pieces were done are done again: they have their results alone */
    p->usable = false, p->why = "cuDNN refused it in a step";
    return zk_cuda_refused(cu, call, "cuDNN", "by our own kernels", cudnnGetErrorString(status));
  }
  if (!lies_so && !h->grad) copy(env, a->v[ZKA_L], &l);
  return true;
}

/* ds is written and read, where the mask lets something through. dq in f32 is set to zero, read into the cache,
 * where blocks add to it, and written again, and read. dk and dv of each head of queries are written and read. */
bool zk_attend_dnn_pieces(const ZkcAttend *a, ZkcPieces *p) {
  Heads h;
  if (heads_of(&h, a, 0)) return false;
  int64_t dq = h.ordered ? square_bytes(&h) / (h.causal ? 2 : 1) : 2 * sum_bytes(&h);
  int64_t shared = h.groups > 1 ? 2 * h.S * h.H * 2 : 0;
  *p = (ZkcPieces){heads_in_piece(&h), count_pieces(&h), 0};
  if (h.grad) p->bytes = 2 * (double)(dq + shared) * (double)(h.batch * h.keys * h.groups);
  return true;
}

/* ---- for tests ----------------------------------------------------------------------------------------- */
bool zk_attend_dnn_plan(const ZkCall *call, const char *device, int64_t *workspace, int *pieces) {
  Plan p = {.usable = false};
  Graph g = {.nmade = 0};
  ZkcAttend a;
  zkc_attend_of(call, &a);
  const char *generation = strstr(device, "\"deviceVer\":"); /* 900 for 9.0 */
  int arch = generation ? atoi(strchr(generation, ':') + 1) / 10 : 0;
  if (heads_of(&p.heads, &a, 0) || distrusted(arch, cudnnGetVersion(), &p.heads)) return false;
  cut_for(&p.heads, arch);
  cudnnBackendDescriptor_t prop = make(&g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set_attribute(&g, prop, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device),
                device);
  finish_descriptor(&g, prop);
  if (!g.status) plan_for(&p, NULL, prop);
  *workspace = p.workspace;
  *pieces = (int)count_pieces(&p.heads);
  drop_plan(&p);
  graph_free(&g);
  return p.usable;
}

#else
bool zk_attend_dnn(const ZkEnv *env, const ZkCall *call, const ZkcAttend *a) {
  (void)env, (void)call, (void)a;
  return false;
}
const char *zk_attend_dnn_why(ZkCuda *cu, const ZkCall *call) {
  (void)cu, (void)call;
  return "this build has no cuDNN";
}
void zk_attend_dnn_prepare(ZkCuda *cu, const ZkCall *call) { (void)cu, (void)call; }
size_t zk_attend_dnn_scratch(const ZkcAttend *a) {
  (void)a;
  return 0;
}
bool zk_attend_dnn_pieces(const ZkcAttend *a, ZkcPieces *p) {
  (void)a, (void)p;
  return false;
}
#endif
