/* A kernel's time is the larger of its arithmetic and its traffic, and its launch. */
#include "runtime/plan/time/internal.h"

#include <math.h>

static double peak(const ZlCluster *c, ZkElem elem) { return elem == ZK_BF16 ? c->flops_bf16 : c->flops_f32; }
/* In a plan that has no tf32 the cluster has none (zp_cost_new). */
static double products_peak(const ZlCluster *c, ZkElem elem) {
  return elem == ZK_F32 && c->flops_tf32 > 0 ? c->flops_tf32 : peak(c, elem);
}

/* ---- bounds -------------------------------------------------------------------------------------------- */
/* Shares of products' peak that attention reaches where a cluster does not say: those of an H100. */
#define ATTENTION 0.33
#define ATTENTION_GRAD 0.8
/* Backward makes the scores again: five products where its FLOPs count four. */
#define GRAD_PRODUCTS 1.25

ZpPeaks zp_peaks(const ZlCluster *c, ZkElem elem) {
  double attend = c->flops_bf16 * (c->attention > 0 ? c->attention : ATTENTION);
  return (ZpPeaks){.flops = products_peak(c, elem),
                   .bytes = c->hbm > 0 ? c->hbm : c->stream,
                   .attend = attend,
                   .attend_grad =
                       attend * (c->attention_grad > 0 ? c->attention_grad : ATTENTION_GRAD) / GRAD_PRODUCTS};
}

double zp_bound(const ZpPeaks *p, int op, double flops, double bytes) {
  bool grad = op == ZG_OP_ATTEND_GRAD || op == ZG_OP_ATTEND_BIAS_GRAD;
  double own = op == ZG_OP_ATTEND ? p->attend : grad ? p->attend_grad : 0, rate = own > 0 ? own : p->flops;
  return fmax(rate > 0 ? flops / rate : 0, p->bytes > 0 ? bytes / p->bytes : 0);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
/* Returns the seconds of products or attention at this rate. */
static double kernel_seconds(const ZlCluster *c, double rate, double flops, double bytes) {
  return zp_bound(&(ZpPeaks){.flops = rate, .bytes = c->stream}, ZG_OP_DOT, flops, bytes) + c->launch;
}

double zp_stream_seconds(const ZlCluster *c, double bytes) { return kernel_seconds(c, 0, 0, bytes); }

/* Tiles that libraries have, and how fast each is per element: small ones read more for what they
 * multiply. */
static const struct {
  int m, n;
  double speed;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, .95}, {256, 64, .9}, {128, 64, .82}, {64, 64, .65}};

/* Returns the elements of the result that one multiprocessor makes, in units of the fastest tile's. */
static double share_of_one(double sms, double m, double n, double batch) {
  double best = INFINITY;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    double count = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
    double size = ceil(count / sms) * tiles[i].m * tiles[i].n / tiles[i].speed;
    if (size < best) best = size;
  }
  return best;
}

double zp_product_flops(double sms, double m, double n, double k, double batch, double *fill) {
  *fill = sms > 0 ? 2 * share_of_one(sms, m, n, batch) * sms : 2 * batch * (m * n + n * k + m * k);
  return sms > 0 ? *fill * k : 2 * batch * m * n * k;
}

double zp_product_seconds(const ZlCluster *c, ZkElem elem, double m, double n, double k, double batch,
                          double bytes) {
  double rate = products_peak(c, elem) * c->products, fill;
  double flops = zp_product_flops(c->sms, m, n, k, batch, &fill);
  return kernel_seconds(c, rate, flops + c->tile_fill * fill, bytes);
}

double zp_attention_rate(const ZlCluster *c, ZkElem elem) { return peak(c, elem) * c->attention; }

/* Backward is three kernels. */
double zp_attention_seconds(const ZlCluster *c, ZkElem elem, double flops, bool backward) {
  double forward = flops / zp_attention_rate(c, elem);
  return backward ? GRAD_PRODUCTS * forward / c->attention_grad + 3 * c->launch : forward + c->launch;
}

/* ---- calls --------------------------------------------------------------------------------------------- */
double zp_view_elems(const ZkView *v) {
  double n = 1;
  for (int i = 0; i < v->rank; i++) n *= (double)v->size[i];
  return n;
}
static double view_bytes(const ZkView *v) { return zp_view_elems(v) * zk_mean_bytes((ZkElem)v->elem); }

double zp_call_bytes(const ZkCall *k) {
  int added = k->op == ZG_OP_NORMALIZE_GRAD_SUMS ? k->nout - zk_sums(k) : 0; /* the first that is added to */
  double bytes = k->accumulate ? view_bytes(&k->out[added]) : 0;
  for (int i = 0; i < k->nin; i++) bytes += view_bytes(&k->in[i]);
  for (int i = 0; i < k->nout; i++) bytes += view_bytes(&k->out[i]);
  if (k->op == ZG_OP_LOOKUP)
    return bytes - view_bytes(&k->in[0]) + view_bytes(&k->out[0]); /* only the rows it takes */
  if (k->op != ZG_OP_LOOKUP_GRAD) return bytes;
  double rows =
      2 * zp_view_elems(&k->in[0]) * zk_mean_bytes((ZkElem)k->out[0].elem); /* read, added to, written */
  return bytes - (k->accumulate ? 2 : 1) * view_bytes(&k->out[0]) +
         (k->accumulate ? rows : view_bytes(&k->out[0]) + rows);
}

static bool has_axis(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}
static bool is_summed(const ZkCall *k, uint16_t axis) {
  for (int i = 0; i < k->nax; i++)
    if (k->ax[i] == axis) return true;
  return false;
}

ZpProduct zp_product_of(const ZkCall *k) {
  ZpProduct p = {1, 1, 1, 1};
  const ZkView *x = &k->in[0], *y = &k->in[1];
  for (int i = 0; i < x->rank; i++) {
    double *to = is_summed(k, x->axis[i]) ? &p.depth : has_axis(y, x->axis[i]) ? &p.batch : &p.m;
    *to *= (double)x->size[i];
  }
  for (int i = 0; i < y->rank; i++)
    if (!has_axis(x, y->axis[i])) *(is_summed(k, y->axis[i]) ? &p.depth : &p.n) *= (double)y->size[i];
  return p;
}

static double product_seconds(const ZlCluster *c, const ZkCall *k) {
  ZpProduct p = zp_product_of(k);
  return zp_product_seconds(c, zp_product_elem(k, 0), p.m, p.n, p.depth, p.batch, zp_call_bytes(k));
}

/* Returns the seconds of a convolution, which is a product for each group, of windows gathered on the way:
 * positions of y (and samples) on one side. Axes that only the result has besides are the windows of a
 * weight's gradient. */
static double conv_seconds(const ZlCluster *c, const ZkCall *k) {
  double m = 1, n = 1, depth = 1, batch = 1;
  const ZkView *const view[3] = {&k->in[0], &k->in[1], &k->out[0]};
  for (int v = 0; v < 3; v++)
    for (int i = 0; i < view[v]->rank; i++) {
      uint16_t a = view[v]->axis[i];
      bool in[3], followed = false, positions = false;
      for (int j = 0; j < 3; j++) in[j] = has_axis(view[j], a);
      for (int d = 0; d < k->nax; d += 3) {
        followed |= k->ax[d] == a && k->ax[d + 2] != a;
        positions |= k->ax[d + 2] == a;
      }
      if (followed || (v > 0 && in[0]) || (v > 1 && in[1])) continue; /* or seen before */
      double *to = &m;
      if (positions ? k->op == ZG_OP_CONV_GRAD : !in[2]) to = &depth;
      else if (!positions && in[1]) to = in[0] ? &batch : &n;
      *to *= (double)view[v]->size[i];
    }
  return zp_product_seconds(c, k->in[0].elem, m, n, depth, batch, zp_call_bytes(k));
}

/* Products as fast as attention's, unless the operands take longer. Backward makes the states again: three
 * products where its FLOPs count two. */
static double recurrence_seconds(const ZlCluster *c, const ZpNode *n) {
  const ZkCall *k = &n->call;
  bool grad = k->op == ZG_OP_LINEAR_ATTEND_GRAD;
  return kernel_seconds(c, zp_attention_rate(c, (ZkElem)k->in[0].elem), n->flops * (grad ? 1.5 : 1),
                        zp_call_bytes(k));
}

static bool grouped(int op) { return op == ZG_OP_GROUPED_DOT || op == ZG_OP_GROUPED_OUTER; }

/* Returns the seconds of all rounds; rows fill their tiles except for each expert's last. */
static double grouped_seconds(const ZlCluster *c, const ZpNode *n) {
  return kernel_seconds(c, peak(c, n->call.in[0].elem) * c->products, n->flops, zp_call_bytes(&n->call));
}

ZpTimePart zp_call_part(int op) {
  bool product = op == ZG_OP_DOT || op == ZG_OP_DOT_BIAS_GRAD || zg_is_conv(op) || grouped(op);
  bool attention = op == ZG_OP_ATTEND || op == ZG_OP_ATTEND_GRAD || zg_is_linear_attend(op) ||
                   op == ZG_OP_ATTEND_PAGES || op == ZG_OP_ATTEND_OWN || op == ZG_OP_RESUME_LINEAR;
  return product ? ZP_T_PRODUCTS : attention ? ZP_T_ATTENTION : ZP_T_MEMORY;
}

double zp_call_seconds(const ZlCluster *c, const ZpNode *n) {
  const ZkCall *k = &n->call;
  if (zg_op_info[k->op].kind == ZG_SINK) return 0; /* a scalar on its way */
  switch (zp_call_part(k->op)) {
  case ZP_T_PRODUCTS:
    if (grouped(k->op)) return grouped_seconds(c, n);
    return zg_is_conv(k->op) ? conv_seconds(c, k) : product_seconds(c, k);
  case ZP_T_ATTENTION:
    if (zg_is_linear_attend(k->op)) return recurrence_seconds(c, n);
    /* The rank that has most decides: others wait. */
    return zp_attention_seconds(c, (ZkElem)k->in[0].elem, n->busiest, k->op == ZG_OP_ATTEND_GRAD);
  default: return zp_stream_seconds(c, zp_call_bytes(k));
  }
}
