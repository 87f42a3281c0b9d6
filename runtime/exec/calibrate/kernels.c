/* Kernels, timed with all ranks at work: what shares cores, caches or memory is slower for it. Constants are
 * those with which plan/time says the measured times again, or nearly. */
#include "graph/attend.h"
#include "runtime/exec/calibrate/calibrate.h"
#include "runtime/plan/time/time.h"

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
/* Of a result m x n, over k. */
typedef struct {
  int64_t m, n, k;
} Shape;

static Shape of_use(Shape s, Use use) {
  return use == FORWARD ? s : use == INPUT_GRAD ? (Shape){s.m, s.k, s.n} : (Shape){s.k, s.n, s.m};
}

static ZkCall product(Use use, ZkElem elem, const Shape *s) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  ZkView x = view(elem, 2, (uint16_t[]){'m', 'k'}, (int64_t[]){s->m, s->k}),
         w = view(elem, 2, (uint16_t[]){'k', 'n'}, (int64_t[]){s->k, s->n}),
         g = view(elem, 2, (uint16_t[]){'m', 'n'}, (int64_t[]){s->m, s->n});
  c.in[0] = x, c.in[1] = w, c.out[0] = g;
  if (use == INPUT_GRAD) c.in[0] = g, c.in[1] = w, c.out[0] = x, c.ax[0] = 'n';
  if (use != WEIGHT_GRAD) return c;
  c.in[0] = x, c.in[1] = g, c.out[0] = w, c.ax[0] = 'm';
  c.out[0].elem = ZK_F32;
  c.accumulate = true;
  return c;
}

enum { HEADS = 4, HD = 64 };
static ZkCall attention(bool grad, ZkElem elem, int64_t heads, int64_t seq) {
  const uint16_t q[] = {'h', 's', 'd'};
  const int64_t size[] = {heads, seq, HD};
  ZkCall c = {.op = grad ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND, .nax = 2, .ax = {'s', 'd'}};
  c.num[0] = 0.125;
  c.opt[0] = 1; /* causal */
  ZkView full = view(elem, 3, q, size), rows = view(ZK_F32, 2, q, size);
  for (int i = 0; i < (grad ? 6 : 3); i++) c.in[c.nin++] = grad && i == 2 ? rows : full;
  for (int i = 0; i < (grad ? 3 : 1); i++) c.out[c.nout++] = full;
  if (!grad) c.out[c.nout++] = rows;
  return c;
}

/* x + y */
static ZkCall pass(int64_t n) {
  static ZkPointwiseOp op = {.op = ZG_OP_ADD, .a = 0, .b = 1};
  static const ZkPointwise sum = {.nops = 1, .nout = 1, .out = {2}, .ops = &op};
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 2, .nout = 1, .pointwise = &sum};
  c.in[0] = c.in[1] = c.out[0] = view(ZK_F32, 1, (uint16_t[]){'x'}, &n);
  return c;
}

/* ---- what is measured ---------------------------------------------------------------------------------- */
/* At scale 1, where a core of a CPU takes milliseconds. On a faster device all sizes are larger. */
static const Shape shape[] = {
    {512, 1024, 1024}, {512, 256, 256}, {512, 1024, 256}, {512, 256, 1024}, {128, 128, 128}};
static const int64_t length[] = {128, 512};
/* Rows of steps of generation: a text, some, a part of a prompt. */
static const int64_t step_rows[ZX_STEP_ROWS] = {1, 8, 16, 128};
enum { SHAPES = sizeof shape / sizeof *shape, LENGTHS = 2, TINY = 64, FAR = 4 << 20, MOST_SCALE = 8 };
#define SHOWS 5e-4 /* seconds that the largest product in bf16 should take */

typedef struct {
  ZkElem used; /* what attention is mostly in: on a host f32 */
  uint32_t product[2][SHAPES][USES], step[2][ZX_STEP_ROWS], attend[2][LENGTHS], far, tiny;
} Asked;

static Shape scaled(int i, int scale) {
  return (Shape){shape[i].m * scale, shape[i].n * scale, shape[i].k * scale};
}

static Shape step_of(int i, int scale) { return (Shape){step_rows[i], (int64_t)1024 * scale, 1024}; }

/* The largest one in bf16 is there. */
static Asked ask(ZxTrials *t) {
  Asked x = {.used = t->m->d->host ? ZK_F32 : ZK_BF16};
  for (int e = 0; e < 2; e++)
    for (int i = 0; i < SHAPES; i++)
      for (int use = 0; use < USES; use++) {
        Shape s = scaled(i, t->scale);
        ZkCall c = product((Use)use, e ? ZK_BF16 : ZK_F32, &s);
        x.product[e][i][use] = e && !i && !use ? 0 : zx_trial_add(t, &c);
      }
  for (int e = 0; e < 2; e++)
    for (int i = 0; i < ZX_STEP_ROWS; i++) {
      Shape s = step_of(i, t->scale);
      ZkCall c = product(FORWARD, e ? ZK_BF16 : ZK_F32, &s);
      c.invariant = true;
      x.step[e][i] = zx_trial_add(t, &c);
    }
  for (int grad = 0; grad < 2; grad++)
    for (int i = 0; i < LENGTHS; i++) {
      ZkCall c = attention(grad, x.used, (int64_t)HEADS * t->scale, length[i] * t->scale);
      x.attend[grad][i] = zx_trial_add(t, &c);
    }
  ZkCall far = pass((int64_t)FAR * t->scale), tiny = pass(TINY);
  x.far = zx_trial_add(t, &far);
  x.tiny = zx_trial_add(t, &tiny);
  return x;
}

/* Opens trials at the scale at which kernels take longer than their starts. */
static bool open_at_scale(const ZxMeasure *m, ZxTrials *t) {
  for (int scale = 1;; scale *= 2) {
    Shape s = scaled(0, scale);
    ZkCall c = product(FORWARD, ZK_BF16, &s);
    if (!zx_agree(m->c, zx_trials_open(t, m, scale))) return false;
    zx_trial_add(t, &c);
    if (!zx_agree(m->c, zx_trials_ready(t))) return false;
    if (scale == MOST_SCALE || zx_trial_try(t, 0) >= SHOWS) return true;
    zx_trials_close(t);
  }
}

/* ---- constants from it --------------------------------------------------------------------------------- */
/* Of the type whose peak is known share and fill; of the other one the peak with which they say its times. A
 * CPU's is taken to be that of its best product in f32. */
static void fit_products(const ZxTrials *t, const Asked *asked, ZxKernelRates *out) {
  const ZkRates *sheet = &t->m->sheet;
  ZxFit n[2] = {{.x = 0}, {.x = 0}};
  double best = 0, a, b;
  for (int e = 0; e < 2; e++)
    for (int i = 0; i < SHAPES; i++)
      for (int use = 0; use < USES; use++) {
        Shape s = of_use(scaled(i, t->scale), (Use)use);
        double is = t->trial[asked->product[e][i][use]].seconds, fill,
               flops =
                   zp_product_flops(sheet->multiprocessors, (double)s.m, (double)s.n, (double)s.k, 1, &fill);
        zx_fit_row(&n[e], flops, fill, fmax(is / 10, is - out->launch));
        if (!e) best = fmax(best, 2 * (double)s.m * (double)s.n * (double)s.k / is);
      }
  bool known = sheet->bf16 > 0;
  const ZxFit *one = &n[known], *other = &n[!known];
  double peak = known ? sheet->bf16 : best;
  zx_fit(one, &a, &b);
  if (!(a > 0)) a = one->x / one->xx, b = 0; /* on a busy machine */
  double f = out->tile_fill = b / a;
  out->products = 1 / (a * peak);
  double x = other->x + f * other->y, xx = other->xx + 2 * f * other->xy + f * f * other->yy,
         peak_of_other = xx / x / out->products;
  out->f32 = known ? peak_of_other : peak;
  out->bf16 = known ? peak : peak_of_other;
}

/* Steps have products of their own, whose bits do not depend on how many rows there are. */
static void fit_steps(const ZxTrials *t, const Asked *asked, ZxKernelRates *out) {
  for (int e = 0; e < 2; e++)
    for (int i = 0; i < ZX_STEP_ROWS; i++) {
      Shape s = step_of(i, t->scale);
      double all = t->trial[asked->step[e][i]].seconds, size = e ? 2 : 4,
             others = size * (double)(s.m * (s.k + s.n)) / out->stream;
      out->weights[e][i] = size * (double)(s.n * s.k) / fmax(all / 10, all - others - out->launch);
    }
}

/* Backward is three kernels, and makes five products where its FLOPs count four. */
static void fit_attention(const ZxTrials *t, const Asked *x, ZxKernelRates *out) {
  double rate[2] = {0};
  for (int grad = 0; grad < 2; grad++)
    for (int i = 0; i < LENGTHS; i++) {
      int64_t seq = length[i] * t->scale;
      double is = t->trial[x->attend[grad][i]].seconds, starts = (grad ? 3 : 1) * out->launch;
      double flops = 4. * HEADS * t->scale * HD * zg_attend_pairs(true, 0, seq, seq) * (grad ? 2.5 : 1);
      rate[grad] += flops / fmax(is / 10, is - starts) / LENGTHS;
    }
  out->attention = rate[0] / (x->used == ZK_F32 ? out->f32 : out->bf16);
  out->attention_grad = rate[1] / rate[0];
}

bool zx_measure_kernels(const ZxMeasure *m, ZxTrials *t, ZxKernelRates *out) {
  if (!open_at_scale(m, t)) return false;
  Asked x = ask(t);
  if (!zx_agree(m->c, zx_trials_ready(t))) return false;
  zx_trials_run(t);
  *out = (ZxKernelRates){.launch = t->trial[x.tiny].seconds,
                         .product = x.product[x.used == ZK_BF16][2][FORWARD]};
  double far = t->trial[x.far].seconds;
  out->stream = 12. * FAR * t->scale / fmax(far / 10, far - out->launch);
  fit_products(t, &x, out);
  fit_steps(t, &x, out);
  fit_attention(t, &x, out);
  return true;
}
