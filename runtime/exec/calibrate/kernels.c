/* Kernels, timed with all ranks at work: what shares cores, caches or memory is slower for it. Constants are
 * those with which plan/time says the measured times again, or nearly. */
#include "graph/attend.h"
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>

/* ---- calls --------------------------------------------------------------------------------------------- */
static ZkView view(ZkElem elem, int rank, const uint16_t *axis, const int64_t *size) {
  ZkView v = {.elem = (uint8_t)elem, .rank = (uint8_t)rank};
  int64_t n = 1;
  for (int i = rank - 1; i >= 0; i--) {
    v.axis[i] = axis[i];
    v.size[i] = v.whole[i] = size[i];
    v.stride[i] = n;
    n *= size[i];
  }
  return v;
}

/* As layers have them: x w, g w' and x' g, the last added up. */
typedef enum { FORWARD, INPUT_GRAD, WEIGHT_GRAD, USES } Use;
typedef struct {
  int64_t m, n, k;
} Shape;

ZkCall zx_product(ZkElem elem, int64_t rows, int64_t columns, int64_t depth) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  c.in[0] = view(elem, 2, (uint16_t[]){'m', 'k'}, (int64_t[]){rows, depth});
  c.in[1] = view(elem, 2, (uint16_t[]){'k', 'n'}, (int64_t[]){depth, columns});
  c.out[0] = view(elem, 2, (uint16_t[]){'m', 'n'}, (int64_t[]){rows, columns});
  return c;
}

static ZkCall product(Use use, ZkElem elem, const Shape *s) {
  ZkCall c = zx_product(elem, s->m, s->n, s->k);
  ZkView x = c.in[0], w = c.in[1], g = c.out[0];
  if (use == INPUT_GRAD) c.in[0] = g, c.in[1] = w, c.out[0] = x, c.ax[0] = 'n';
  if (use != WEIGHT_GRAD) return c;
  c.in[0] = x, c.in[1] = g, c.out[0] = w, c.ax[0] = 'm';
  c.out[0].elem = ZK_F32;
  c.accumulate = true;
  return c;
}

enum { HEADS = 4, HD = 64 };
static ZkCall attention(bool grad, ZkElem elem, int64_t seq) {
  const uint16_t q[] = {'h', 's', 'd'};
  const int64_t size[] = {HEADS, seq, HD};
  ZkCall c = {.op = grad ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND, .nax = 2, .ax = {'s', 'd'}};
  c.num[0] = 0.125;
  c.opt[0] = 1; /* causal */
  ZkView full = view(elem, 3, q, size), rows = view(ZK_F32, 2, q, size);
  for (int i = 0; i < (grad ? 6 : 3); i++) c.in[c.nin++] = grad && i == 2 ? rows : full;
  for (int i = 0; i < (grad ? 3 : 1); i++) c.out[c.nout++] = full;
  if (!grad) c.out[c.nout++] = rows;
  return c;
}

/* x + y, or a chain of operations on that. */
enum { CHAIN = 16 };
static ZkPointwiseOp sum_op = {.op = ZG_OP_ADD, .a = 0, .b = 1}, simple_op[CHAIN], special_op[CHAIN];
static const ZkPointwise sum = {.nops = 1, .nout = 1, .out = {2}, .ops = &sum_op},
                         simple = {.nops = CHAIN, .nout = 1, .out = {CHAIN + 1}, .ops = simple_op},
                         special = {.nops = CHAIN, .nout = 1, .out = {CHAIN + 1}, .ops = special_op};
/* Simple ones as in activations and their gradients: every second value is needed again, and every third is a
 * sum. */
static void make_chains(void) {
  for (uint16_t i = 0; i < CHAIN; i++) {
    simple_op[i] = (ZkPointwiseOp){.op = i % 3 == 2 ? ZG_OP_ADD : ZG_OP_MUL,
                                   .a = i ? (uint16_t)(i + 1) : 0,
                                   .b = i > 1 && i % 2 == 0 ? i : 1};
    special_op[i] = (ZkPointwiseOp){.op = i % 2 ? ZG_OP_EXP : ZG_OP_TANH, .a = i ? (uint16_t)(i + 1) : 0};
  }
}

static ZkCall pass(const ZkPointwise *f, int64_t n) {
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 2, .nout = 1, .pointwise = f};
  c.in[0] = c.in[1] = c.out[0] = view(ZK_F32, 1, (uint16_t[]){'x'}, &n);
  return c;
}

/* x[m, n] + b[n], as most are. */
static ZkCall pass_rows(const ZkPointwise *f, int64_t m, int64_t n) {
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 2, .nout = 1, .pointwise = f};
  c.in[0] = c.out[0] = view(ZK_F32, 2, (uint16_t[]){'m', 'n'}, (int64_t[]){m, n});
  c.in[1] = view(ZK_F32, 1, (uint16_t[]){'n'}, &n);
  return c;
}

/* ---- what is measured ---------------------------------------------------------------------------------- */
static const Shape shape[] = {
    {512, 256, 256}, {512, 1024, 256}, {512, 256, 1024}, {512, 1024, 1024}, {128, 128, 128}};
enum { SHAPES = sizeof shape / sizeof *shape, LENGTHS = 2, WINDOWS = 6, TINY = 64, CHAINED = 2048 };
static const int64_t length[LENGTHS] = {128, 512};

typedef struct {
  uint32_t product[2][SHAPES][USES], attend[2][2][LENGTHS], far, rows[WINDOWS], tiny, simple, special, update;
} Asked;
enum { FAR = 4 << 20, UPDATED = 4 << 20 }; /* elements: more than caches hold */
/* Of a pass that may find what another left: a window is of 1, 2, 4, ... places, gone through as a whole. */
enum { ROWS = 64, COLUMNS = 1024 };
enum { RESULT = 4 * ROWS * COLUMNS, LEAST = RESULT + 4 * COLUMNS }; /* bytes: of a call's result, operands */
enum { NEAR = 4 << 20 }; /* of a window in which a step's operands lie */

static Asked ask(ZxTrials *t) {
  Asked x;
  make_chains();
  for (int elem = 0; elem < 2; elem++)
    for (int i = 0; i < SHAPES; i++)
      for (int use = 0; use < USES; use++) {
        ZkCall c = product((Use)use, elem ? ZK_BF16 : ZK_F32, &shape[i]);
        x.product[elem][i][use] = zx_trial_call(t, &c, false);
        t->trial[x.product[elem][i][use]].window = NEAR;
      }
  for (int elem = 0; elem < 2; elem++)
    for (int grad = 0; grad < 2; grad++)
      for (int i = 0; i < LENGTHS; i++) {
        ZkCall c = attention(grad, elem ? ZK_BF16 : ZK_F32, length[i]);
        uint32_t k = x.attend[elem][grad][i] = zx_trial_call(t, &c, false);
        t->trial[k].window = NEAR >> (LENGTHS - i);
      }
  ZkCall far = pass(&sum, FAR), rows = pass_rows(&sum, ROWS, COLUMNS), tiny = pass(&sum, TINY),
         one = pass(&simple, CHAINED), other = pass(&special, CHAINED);
  x.far = zx_trial_call(t, &far, true);
  for (int i = 0; i < WINDOWS; i++) {
    x.rows[i] = zx_trial_call(t, &rows, false);
    t->trial[x.rows[i]].window = (size_t)LEAST << i;
    t->trial[x.rows[i]].before = 1 << i;
  }
  x.tiny = zx_trial_call(t, &tiny, true);
  x.simple = zx_trial_call(t, &one, true);
  x.special = zx_trial_call(t, &other, true);
  x.update = zx_trial_update(t, UPDATED);
  return x;
}

/* Returns a call's time without its launches: on a busy machine those may seem to take longer than the call. */
static double without(double seconds, double launches) { return fmax(seconds - launches, 0.05 * seconds); }

/* ---- constants from it --------------------------------------------------------------------------------- */
static void fit_products(const ZxTrials *t, const Asked *asked, ZxKernelRates *out) {
  ZxFit n[2] = {{.x = 0}, {.x = 0}};
  double best[2] = {0};
  for (int e = 0; e < 2; e++)
    for (int i = 0; i < SHAPES; i++)
      for (int use = 0; use < USES; use++) {
        double m = (double)shape[i].m, c = (double)shape[i].n, k = (double)shape[i].k, /* of each use */
            is = t->trial[asked->product[e][i][use]].seconds;
        zx_fit_row(&n[e], 2 * m * c * k, 2 * (m * c + c * k + m * k), without(is, out->launch));
        best[e] = fmax(best[e], 2 * m * c * k / is);
      }
  double a, b;
  zx_fit(&n[0], &a, &b);
  out->tile_fill = b / a;
  out->f32 = best[0];
  out->products = 1 / (a * best[0]);
  /* bf16: with the same share and fill, the peak that says its times. */
  double f = out->tile_fill, x = n[1].x + f * n[1].y, xx = n[1].xx + 2 * f * n[1].xy + f * f * n[1].yy;
  out->bf16 = xx / x / out->products;
}

/* Of attention without its launches: backward is three kernels. */
static double attention_seconds(const ZxTrials *t, const Asked *x, int elem, int grad, int i, double launch) {
  return without(t->trial[x->attend[elem][grad][i]].seconds, (grad ? 3 : 1) * launch);
}

/* Two lengths: what grows with pairs, and what grows with queries. */
static void fit_attention(const ZxTrials *t, const Asked *x, ZxKernelRates *out) {
  double flops[LENGTHS], rows[LENGTHS], is[2][2][LENGTHS], ratio = 0, slower = 0, a, b;
  ZxFit fit = {.x = 0};
  for (int i = 0; i < LENGTHS; i++) {
    flops[i] = 4. * HEADS * HD * zg_attend_pairs(true, 0, length[i], length[i]);
    rows[i] = 4. * HEADS * HD * (double)length[i];
    for (int k = 0; k < 4; k++) is[k / 2][k % 2][i] = attention_seconds(t, x, k / 2, k % 2, i, out->launch);
    zx_fit_row(&fit, flops[i], rows[i], is[0][0][i]);
  }
  zx_fit(&fit, &a, &b);
  if (!(a > 0)) a = is[0][0][1] / flops[1], b = 0; /* on a busy machine */
  out->attention_fill = b / a;
  out->attention_f32 = 1 / (a * out->f32);
  for (int i = 0; i < LENGTHS; i++) { /* five products backward where FLOPs count four */
    double work = 2 * (flops[i] + out->attention_fill * rows[i]) * a;
    ratio += 1.25 * work / is[0][1][i] / LENGTHS;
    for (int grad = 0; grad < 2; grad++) /* bf16: all of it with the same fill and backward */
      slower += is[1][grad][i] / is[0][grad][i] / (2 * LENGTHS);
  }
  out->attention = out->attention_f32 * out->f32 / (out->bf16 * slower);
  out->attention_grad = ratio;
}

/* The cache ends where passes are nearer to memory's rate than to that of the smallest window: of operands and
 * as much of results. */
static void fit_passes(const ZxTrials *t, const Asked *x, ZxKernelRates *out) {
  double rate[WINDOWS];
  out->stream = 12. * FAR / without(t->trial[x->far].seconds, out->launch);
  for (int i = 0; i < WINDOWS; i++)
    rate[i] = (LEAST + RESULT) / without(t->trial[x->rows[i]].seconds, out->launch);
  out->cached = fmax(out->stream, rate[0]);
  out->cache = LEAST + RESULT;
  for (int i = 1; i < WINDOWS && rate[i] * rate[i] > out->stream * out->cached; i++) out->cache *= 2;
}

bool zx_measure_kernels(ZxTrials *t, ZxKernelRates *out, ZbErr *err) {
  Asked x = ask(t);
  if (!zx_agree(t->m->c, zx_trials_ready(t, err))) return false;
  zx_trials_run(t);
  *out = (ZxKernelRates){.launch = t->trial[x.tiny].seconds, .beside = x.product[0][1][FORWARD]};
  fit_products(t, &x, out);
  fit_attention(t, &x, out);
  fit_passes(t, &x, out);
  out->simple = (double)CHAINED * CHAIN / without(t->trial[x.simple].seconds, out->launch);
  out->special = (double)CHAINED * CHAIN / without(t->trial[x.special].seconds, out->launch);
  out->update = 28. * UPDATED / without(t->trial[x.update].seconds, out->launch);
  return true;
}
