/* Writes normalize, or its gradient, with its prologue and epilogue as one CUDA program. T threads (a warp or
 * a block) take a row: they load it once, or compute it of what they load, keep it in registers while they
 * sum over it, and apply the epilogue to what comes out. The arithmetic of the op itself is in rows.cuh.
 *
 * y, r = normalize(x); z = y * w (bf16, w along the row and f32; y and r are wanted too; 768 in a row)
 * becomes
 *
 *   extern "C" __global__ void __launch_bounds__(256) zk_pointwise(const __grid_constant__ ZkcRows c) {
 *     ZK_SHARED(float, part, [1]);
 *     for (long long row = (blockIdx.x * 256ll + threadIdx.x) / 32; row < c.rest.count; row += gridDim.x *
 *         8ll) {
 *       long long off[5];
 *       zkc_seek(c.rest, (unsigned)row, off);
 *       const auto load = [&](long long first, int step, float (&x)[1][8], bool again) {
 *         zkc_load_row(c.in[0], 1, off[3], c.stride[3], true, first, step, c.n, 0, x[0]);
 *       };
 *       const auto store = [&](long long first, int step, const float (&y)[8], float r1) {
 *         float x2[8];
 *         zkc_load_row(c.in[1], 0, off[4], c.stride[4], true, first, step, c.n, 0, x2);
 *         float y0[8];
 *         float y1[8];
 *   #pragma unroll
 *         for (int j = 0; j < 8; j++) {
 *           const float r0 = y[j];
 *           const float r2 = x2[j];
 *           const float r3 = zk_MUL(r0, r2);
 *           y0[j] = r3;
 *           y1[j] = r0;
 *         }
 *         zkc_store_row(c.out[0], 1, off[0], c.stride[0], true, first, step, c.n, y0);
 *         zkc_store_row(c.out[1], 1, off[1], c.stride[1], true, first, step, c.n, y1);
 *       };
 *       const float r = zk_normalize<32, 3>(c.n, true, false, c.eps, part, load, store);
 *       if (threadIdx.x % 32 == 0) zk_store(c.out[2], 0, off[2], r);
 *     }
 *   }
 *
 * Sums (normalize_grad_sums) are cleared before the rows; `load` adds what is summed to them in place of a
 * store; behind the rows the block writes its own, for norm.cu to join. */
#include "kernels/cuda/pointwise.h"

#define MOST_KEPT 8 /* values of a row in a thread's registers, in eights */

extern const char *const zk_cuda_texts[]; /* name and text of shape.h, device.cuh and rows.cuh */

/* ---- the shape ----------------------------------------------------------------------------------------- */
/* Rows whose columns are summed are a warp's or a whole block's, and of at most four eights each. */
static int sum_threads(int64_t n) { return n <= 4 * 8 * 32 ? 32 : n <= 4 * 8 * 128 ? 128 : 256; }
bool zk_norm_sums_fit(int64_t n, int sums) {
  const int64_t most = 48 << 10, part = 256; /* of static shared memory; of sums over a row */
  ZkNormShape s = {.threads = sum_threads(n), .sums = sums};
  int64_t eights = zk_ceil_of(n, 8 * s.threads);
  return eights <= 4 && sums * eights * 8 * zk_norm_block(&s) * (int64_t)sizeof(float) + part <= most;
}

/* A thread keeps up to four eights of a row; with a block's threads, up to MOST_KEPT; more is loaded again.
 * Gradients are of two such rows. */
static void share_row(ZkNormShape *s, int rows) {
  int64_t n = s->args.n;
  if (s->sums) {
    s->threads = sum_threads(n), s->keep = (int)zk_ceil_of(n, 8 * s->threads);
    return;
  }
  for (s->threads = 32; s->threads < ZK_POINTWISE_THREADS && zk_ceil_of(n, 8 * s->threads) > 4;)
    s->threads *= 2;
  int64_t eights = zk_ceil_of(n, 8 * s->threads);
  s->keep = eights * rows <= MOST_KEPT ? (int)eights : 0;
}

static bool has(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}

static ZkPointwiseClass class_of(const ZkNormShape *s, const ZkView *v, int n, uint16_t axis) {
  if (!has(v, axis)) return ZK_POINTWISE_SCALAR;
  return zkc_wide(v, &s->args.rest, n, s->args.n, s->args.stride[n]) ? ZK_POINTWISE_WIDE : ZK_POINTWISE_ANY;
}

ZkNormShape zk_norm_shape(const ZkCall *call) {
  const ZkView *views[ZKC_VIEWS];
  bool sums = call->op == ZG_OP_NORMALIZE_GRAD_SUMS, grad = sums || call->op == ZG_OP_NORMALIZE_GRAD;
  ZkNormShape s = {.operands = (grad ? 3 : 1) - (call->pointwise->prologue > 0),
                   .results = grad ? 1 : 2,
                   .sums = sums ? zk_sums(call) : 0,
                   .wide = true};
  uint16_t axis = call->ax[0];
  int n = 0;
  ZB_ASSERT((grad || call->op == ZG_OP_NORMALIZE) && call->pointwise->nout == call->nout &&
            call->nin >= s.operands && call->pointwise->nops <= ZK_POINTWISE_MAX_OPS);
  ZB_ASSERT(call->nout > 0 && has(&call->out[0], axis)); /* those that store no result come first */
  for (int k = 0; k < call->nout; k++) views[n++] = &call->out[k];
  for (int k = 0; k < call->nin; k++) views[n++] = &call->in[k];
  s.args.n = zkc_size(views[0], axis);
  s.args.rest = zkc_nest(views, n, &axis, 1, false);
  s.args.eps = (float)call->num[0];
  for (int v = 0; v < n; v++) s.args.stride[v] = zkc_stride(views[v], axis);
  for (int v = 0; v < n; v++) s.class_of[v] = class_of(&s, views[v], v, axis);
  for (int k = 0; k < call->nout - s.sums; k++) {
    s.wide &= s.class_of[k] != ZK_POINTWISE_ANY;
    ZB_ASSERT(s.class_of[k] != ZK_POINTWISE_SCALAR || (!grad && call->pointwise->out[k] == 1)); /* r */
  }
  share_row(&s, grad ? 2 : 1);
  return s;
}

/* ---- the text ------------------------------------------------------------------------------------------ */
static const char *yes(bool x) { return x ? "true" : "false"; }

static void put_load(ZbText *t, const ZkNormShape *s, const ZkCall *call, int k, const char *to) {
  int v = call->nout + k;
  zb_text_add(t, "      zkc_load_row(c.in[%d], %d, off[%d], c.stride[%d], %s, first, step, c.n, 0, %s);\n", k,
              call->in[k].elem, v, v, yes(s->wide && s->class_of[v] == ZK_POINTWISE_WIDE), to);
}

static bool along(const ZkNormShape *s, int view) { return s->class_of[view] != ZK_POINTWISE_SCALAR; }

/* The register of input k, which is no operand: the op's results come first. */
static int reg(const ZkNormShape *s, int k) { return s->results + k - s->operands; }

static bool is_sum(const ZkNormShape *s, const ZkCall *call, int k) { return k >= call->nout - s->sums; }

/* A part of the function: what some registers need. */
typedef struct {
  const ZkNormShape *s;
  const ZkCall *call;
  bool need[ZK_MAX_IN + ZK_POINTWISE_MAX_OPS];
  bool stores[ZK_POINTWISE_OUT]; /* which results are this part's, along rows or added up */
} Part;

static void need(Part *p, int r) {
  int from = r - reg(p->s, p->call->nin);
  if (p->need[r]) return;
  p->need[r] = true;
  if (from < 0) return;
  const ZkPointwiseOp *o = &p->call->pointwise->ops[from];
  const uint16_t arg[3] = {o->a, o->b, o->c};
  for (int k = 0; k < zg_op_info[o->op].min_in; k++) need(p, arg[k]);
}

/* The prologue, or the epilogue. */
static Part fused_part(const ZkNormShape *s, const ZkCall *call, bool prologue) {
  Part p = {.s = s, .call = call};
  const ZkPointwise *pointwise = call->pointwise;
  int ops = reg(s, call->nin), middle = ops + pointwise->prologue;
  if (prologue) need(&p, pointwise->operand);
  for (int k = 0; k < call->nout; k++) {
    bool made_before = pointwise->out[k] >= ops && pointwise->out[k] < middle;
    if (is_sum(s, call, k)) made_before = pointwise->prologue > 0; /* where its inputs are read anyway */
    p.stores[k] = along(s, k) && made_before == prologue;
    if (p.stores[k]) need(&p, pointwise->out[k]);
  }
  return p;
}

static void put_result(ZbText *t, const ZkNormShape *s, const ZkCall *call, int k, const char *when) {
  if (is_sum(s, call, k))
    zb_text_add(t, "      zk_add_columns<%d, %d>(sums[%d][team], first, y%d);\n", s->threads, s->keep,
                k - (call->nout - s->sums), k);
  else
    zb_text_add(t,
                "      %szkc_store_row(c.out[%d], %d, off[%d], c.stride[%d], %s, first, step, c.n, y%d);\n",
                when, k, call->out[k].elem, k, k, yes(s->wide), k);
}

/* It on eight elements: loads, the loop, with `line` at its end, and the stores, each after `when`. (Rows
 * whose columns are summed are loaded once.) */
static void put_part(ZbText *t, const Part *p, const char *line, const char *when) {
  const ZkNormShape *s = p->s;
  const ZkCall *call = p->call;
  int ops = reg(s, call->nin);
  char to[16];
  for (int k = s->operands; k < call->nin; k++) {
    if (!p->need[reg(s, k)] || !along(s, call->nout + k)) continue;
    snprintf(to, sizeof to, "x%d", reg(s, k));
    zb_text_add(t, "      float %s[8];\n", to);
    put_load(t, s, call, k, to);
  }
  for (int k = 0; k < call->nout; k++)
    if (p->stores[k]) zb_text_add(t, "      float y%d[8];\n", k);
  zb_text_add(t, "#pragma unroll\n      for (int j = 0; j < 8; j++) {\n");
  if (p->need[0]) zb_text_add(t, "        const float r0 = y[j];\n");
  for (int k = s->operands; k < call->nin; k++)
    if (p->need[reg(s, k)] && along(s, call->nout + k))
      zb_text_add(t, "        const float r%d = x%d[j];\n", reg(s, k), reg(s, k));
  for (int i = 0; i < call->pointwise->nops; i++)
    if (p->need[ops + i]) zk_pointwise_put_op(t, &call->pointwise->ops[i], ops + i, 8);
  for (int k = 0; k < call->nout; k++)
    if (p->stores[k]) zb_text_add(t, "        y%d[j] = r%d;\n", k, call->pointwise->out[k]);
  zb_text_add(t, "%s      }\n", line);
  for (int k = 0; k < call->nout; k++)
    if (p->stores[k]) put_result(t, s, call, k, when);
}

/* What the op is given and what becomes of its results, as functions. Where there are no elements, its
 * operand is 0 whatever the prologue makes of zeros. */
static void put_neighbours(ZbText *t, const ZkNormShape *s, const ZkCall *call) {
  bool grad = call->op != ZG_OP_NORMALIZE, prologue = call->pointwise->prologue > 0;
  Part first = fused_part(s, call, true), rest = fused_part(s, call, false);
  char line[96];
  zb_text_add(t, "    const auto load = [&](long long first, int step, float (&x)[%d][8], bool again) {\n",
              grad ? 2 : 1);
  if (!prologue) put_load(t, s, call, 0, "x[0]");
  if (grad) put_load(t, s, call, 1 - prologue, "x[1]");
  snprintf(line, sizeof line, "        x[0][j] = zkc_there(%s, first, step, j, c.n) ? r%d : 0;\n",
           yes(s->wide), call->pointwise->operand);
  if (prologue) put_part(t, &first, line, "if (!again) ");
  zb_text_add(t, "    };\n    const auto store = [&](long long first, int step, const float (&y)[8]%s) {\n",
              grad ? "" : ", float r1");
  put_part(t, &rest, "", "");
  zb_text_add(t, "    };\n");
}

static void put_normalize(ZbText *t, const ZkNormShape *s, const ZkCall *call) {
  zb_text_add(t, "    const float r = zk_normalize<%d, %d>(c.n, %s, %s, c.eps, part, load, store);\n",
              s->threads, s->keep, yes(s->wide), yes(call->opt[0] == 1));
  for (int k = 0; k < call->nout; k++)
    if (!along(s, k))
      zb_text_add(t, "    if (threadIdx.x %% %d == 0) zk_store(c.out[%d], %d, off[%d], r);\n", s->threads, k,
                  call->out[k].elem, k);
}

static void put_normalize_grad(ZbText *t, const ZkNormShape *s, const ZkCall *call) {
  int k = s->operands - 1;
  zb_text_add(t, "    const float r = zk_load(c.in[%d], %d, off[%d]);\n", k, call->in[k].elem,
              call->nout + k);
  zb_text_add(t, "    zk_normalize_grad<%d, %d>(c.n, %s, %s, r, part, load, store);\n", s->threads, s->keep,
              yes(s->wide), yes(call->opt[0] == 1));
}

/* Before the rows and behind them: what is added up of their columns. */
static void put_begin_sums(ZbText *t, const ZkNormShape *s) {
  if (!s->sums) return;
  zb_text_add(t, "  ZK_SHARED(float4, sums, [%d][%d][%d]);\n  const int team = threadIdx.x / %d;\n", s->sums,
              zk_norm_block(s) / s->threads, 2 * s->threads * s->keep, s->threads);
  for (int i = 0; i < s->sums; i++)
    zb_text_add(t, "  zk_clear_columns<%d, %d>(sums[%d][team]);\n", s->threads, s->keep, i);
}
static void put_end_sums(ZbText *t, const ZkNormShape *s) {
  if (!s->sums) return;
  zb_text_add(t, "  __syncthreads();\n");
  for (int i = 0; i < s->sums; i++)
    zb_text_add(t,
                "  zk_put_columns<%d, %d, %d>(sums[%d], %s, (int)c.n, c.partial + (blockIdx.x * %dll + %d) * "
                "c.n);\n",
                s->threads, s->keep, zk_norm_block(s) / s->threads, i, yes(s->wide), s->sums, i);
}

static void put_head(ZbText *t, const ZkNormShape *s) {
  char resident[16] = "";
  if (s->sums && zk_norm_block(s) == ZK_SUMS_THREADS)
    snprintf(resident, sizeof resident, ", %d", ZK_SUMS_RESIDENT);
  zb_text_add(
      t, "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const __grid_constant__ ZkcRows c) {\n",
      zk_norm_block(s), resident, ZK_POINTWISE_NAME);
  zb_text_add(t, "  ZK_SHARED(float, part, [%d]);\n", s->threads / 32);
}

void zk_norm_text(ZbText *t, const ZkCall *call, const ZkNormShape *s) {
  int block = zk_norm_block(s);
  zb_text_add(t, "%s%s%s%s", zk_cuda_elems, zk_cuda_texts[1], zk_cuda_texts[3], zk_cuda_texts[5]);
  zk_pointwise_put_ops(t, call->pointwise);
  put_head(t, s);
  put_begin_sums(t, s);
  zb_text_add(t,
              "  for (long long row = (blockIdx.x * %dll + threadIdx.x) / %d; row < c.rest.count; "
              "row += gridDim.x * %dll) {\n",
              block, s->threads, block / s->threads);
  zb_text_add(t, "    long long off[%d];\n    zkc_seek(c.rest, (unsigned)row, off);\n",
              call->nin + call->nout);
  for (int k = s->operands; k < call->nin; k++) /* what is the same all along a row */
    if (!along(s, call->nout + k))
      zb_text_add(t, "    const float r%d = zk_load(c.in[%d], %d, off[%d]);\n", reg(s, k), k,
                  call->in[k].elem, call->nout + k);
  put_neighbours(t, s, call);
  if (call->op == ZG_OP_NORMALIZE) put_normalize(t, s, call);
  else put_normalize_grad(t, s, call);
  zb_text_add(t, "  }\n");
  put_end_sums(t, s);
  zb_text_add(t, "}\n");
}
