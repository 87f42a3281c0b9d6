/* Kernels, timed with all ranks at work: what shares cores, caches or memory is slower for it. */
#include "graph/attend.h"
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>

/* ---- timing -------------------------------------------------------------------------------------------- */
double zx_measured(const ZxMeasure *m, double seconds) {
  m->c->t->wait(m->c, m->c->t->all_reduce(m->c, 0, &seconds, 1, ZX_F64, ZX_MAX));
  return seconds;
}

/* The least of three rounds, each of as many calls as take a while. */
static double time_call(const ZxMeasure *m, const ZkCall *call) {
  double least = INFINITY;
  m->d->run(m->env, call); /* the first touches memory, and makes what libraries keep */
  for (int round = 0; round < 3; round++) {
    int n = 0;
    m->c->t->barrier(m->c);
    double from = zb_now(), now;
    do {
      m->d->run(m->env, call);
      n++;
    } while ((now = zb_now()) - from < m->ms * 1e-3);
    if ((now - from) / n < least) least = (now - from) / n;
  }
  return zx_measured(m, least);
}

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

static size_t bytes_of(const ZkView *v) {
  size_t n = zk_elem_bytes((ZkElem)v->elem);
  for (int i = 0; i < v->rank; i++) n *= (size_t)v->size[i];
  return zb_round_up(n, 64);
}

/* Room for the call's tensors and scratch, filled with numbers about 1. */
static bool give_memory(const ZxMeasure *m, ZkCall *c, ZxProduct *w, ZbErr *err) {
  size_t scratch = m->d->scratch(c, zk_pool_threads(m->env->pool)), at = 0;
  w->bytes = zb_round_up(scratch, 64);
  for (int i = 0; i < c->nin + c->nout; i++)
    w->bytes += bytes_of(i < c->nin ? &c->in[i] : &c->out[i - c->nin]);
  w->memory = m->d->alloc(m->env, w->bytes, err);
  if (!w->memory) return false;
  for (int i = 0; i < c->nin + c->nout; i++) {
    ZkView *v = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
    v->data = (char *)w->memory + at;
    for (size_t k = 0; k < bytes_of(v) / zk_elem_bytes((ZkElem)v->elem); k++) {
      float x = (float)zb_random_normal(1, (uint64_t)i, k % 4096);
      if (v->elem == ZK_BF16) ((uint16_t *)v->data)[k] = zb_f32_to_bf16(x);
      else ((float *)v->data)[k] = x;
    }
    at += bytes_of(v);
  }
  c->scratch = (char *)w->memory + at;
  w->call = *c;
  return true;
}

void zx_product_free(const ZxMeasure *m, ZxProduct *w) {
  if (w->memory) m->d->free(m->env, w->memory, w->bytes);
  w->memory = NULL;
}

bool zx_product_new(const ZxMeasure *m, int64_t rows, int64_t columns, int64_t depth, ZkElem elem,
                    ZxProduct *w, ZbErr *err) {
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  c.in[0] = view(elem, 2, (uint16_t[]){'m', 'k'}, (int64_t[]){rows, depth});
  c.in[1] = view(elem, 2, (uint16_t[]){'k', 'n'}, (int64_t[]){depth, columns});
  c.out[0] = view(elem, 2, (uint16_t[]){'m', 'n'}, (int64_t[]){rows, columns});
  return give_memory(m, &c, w, err);
}

static bool attention(const ZxMeasure *m, bool grad, double *seconds, double *flops, ZbErr *err) {
  enum { HEADS = 4, SEQ = 512, HD = 64 };
  const uint16_t q[] = {'h', 's', 'd'};
  const int64_t size[] = {HEADS, SEQ, HD};
  ZkCall c = {.op = grad ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND, .nax = 2, .ax = {'s', 'd'}};
  c.num[0] = 0.125;
  c.opt[0] = 1; /* causal */
  ZkView full = view(ZK_F32, 3, q, size), rows = view(ZK_F32, 2, q, size);
  for (int i = 0; i < (grad ? 6 : 3); i++) c.in[c.nin++] = grad && i == 2 ? rows : full;
  for (int i = 0; i < (grad ? 3 : 1); i++) c.out[c.nout++] = full;
  if (!grad) c.out[c.nout++] = rows;
  ZxProduct w = {0};
  if (!give_memory(m, &c, &w, err)) return false;
  *seconds = time_call(m, &w.call);
  *flops = (grad ? 8 : 4) * HEADS * HD * zg_attend_pairs(true, 0, SEQ, SEQ);
  zx_product_free(m, &w);
  return true;
}

/* Adds two tensors of n elements. */
static bool pass(const ZxMeasure *m, int64_t n, double *seconds, ZbErr *err) {
  static ZkPointwiseOp add = {.op = ZG_OP_ADD, .a = 0, .b = 1};
  static const ZkPointwise sum = {.nops = 1, .nout = 1, .out = {2}, .ops = &add};
  ZkCall c = {.op = ZG_OP_POINTWISE, .nin = 2, .nout = 1, .pointwise = &sum};
  c.in[0] = c.in[1] = c.out[0] = view(ZK_F32, 1, (uint16_t[]){'x'}, &n);
  ZxProduct w = {0};
  if (!give_memory(m, &c, &w, err)) return false;
  *seconds = time_call(m, &w.call);
  zx_product_free(m, &w);
  return true;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */
/* Of projections of small models, and one that is large. */
static const int64_t shape[][3] = {
    {512, 768, 768}, {512, 3072, 768}, {512, 768, 3072}, {768, 768, 512}, {1024, 1024, 1024}};
enum { SHAPES = sizeof shape / sizeof *shape };

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Rates of the shapes, the least first. */
static bool products(const ZxMeasure *m, ZkElem elem, double *rate, ZbErr *err) {
  for (int i = 0; i < SHAPES; i++) {
    ZxProduct w = {0};
    if (!zx_product_new(m, shape[i][0], shape[i][1], shape[i][2], elem, &w, err)) return false;
    rate[i] = 2.0 * (double)(shape[i][0] * shape[i][1] * shape[i][2]) / time_call(m, &w.call);
    zx_product_free(m, &w);
  }
  qsort(rate, SHAPES, sizeof *rate, ascending);
  return true;
}

bool zx_measure_kernels(const ZxMeasure *m, ZxKernelRates *out, ZbErr *err) {
  double f32[SHAPES], bf16[SHAPES], large, small, forward, flops, backward, more;
  const int64_t far = 4 << 20; /* elements: more than caches hold */
  if (!products(m, ZK_F32, f32, err) || !products(m, ZK_BF16, bf16, err)) return false;
  if (!pass(m, far, &large, err) || !pass(m, 64, &small, err)) return false;
  if (!attention(m, false, &forward, &flops, err) || !attention(m, true, &backward, &more, err)) return false;
  *out = (ZxKernelRates){.f32 = f32[SHAPES - 1],
                         .bf16 = bf16[SHAPES - 1],
                         .products = f32[SHAPES / 2] / f32[SHAPES - 1],
                         .stream = 12 * (double)far / large,
                         .launch = small};
  out->attention = flops / forward / out->f32;
  /* As plan/time reads it: five products backward where FLOPs count four. */
  out->attention_grad = 1.25 * more / (out->f32 * out->attention) / backward;
  return true;
}
