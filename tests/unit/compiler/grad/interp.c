/* See interp.h. */
#include "tests/unit/compiler/grad/interp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "compiler/compiler.h"
#include "graph/ragged.h"
#include "kernels/kernels.h"

int64_t interp_elements(const Interp *m, const ZgType *t) {
  int64_t n = 1;
  for (int i = 0; i < t->naxes; i++) n *= m->size[t->axis[i]];
  return n;
}

static ZkView view_of(const Interp *m, const ZgType *t, void *data) {
  ZkView v = {
      .data = data, .elem = t->elem == ZG_INDEX || t->elem == ZG_I32 ? ZK_I32 : ZK_F64, .rank = t->naxes};
  int64_t stride = 1;
  for (int i = t->naxes; i-- > 0;) {
    v.axis[i] = t->axis[i];
    v.size[i] = v.whole[i] = m->size[t->axis[i]];
    v.stride[i] = stride;
    stride *= v.size[i];
  }
  return v;
}

Interp *interp_empty(const ZgGraph *g, ZbArena *a) {
  Interp *m = ZB_NEW(a, Interp);
  *m = (Interp){.g = g,
                .a = a,
                .size = ZB_NEWN(a, int64_t, g->naxes + 1),
                .param = ZB_NEWN(a, double *, g->nparams + 1),
                .grad = ZB_NEWN(a, double *, g->nparams + 1),
                .input = ZB_NEWN(a, double *, g->ninputs + 1),
                .output = ZB_NEWN(a, double *, g->noutputs + 1),
                .nparam = ZB_NEWN(a, int64_t, g->nparams + 1)};
  for (uint32_t i = 0; i < g->naxes; i++) m->size[i] = g->axes[i].size;
  return m;
}

void interp_draw_params(Interp *m, uint64_t seed, double mean, double sigma) {
  const ZgGraph *g = m->g;
  for (uint32_t i = 0; i < g->nparams; i++) {
    const ZgParam *p = &g->params[i];
    m->nparam[i] = interp_elements(m, &p->type) * (p->segment == ZG_NONE ? 1 : g->segments[p->segment].trip);
    m->param[i] = ZB_NEWN(m->a, double, m->nparam[i]);
    m->grad[i] = ZB_NEWN(m->a, double, m->nparam[i]);
    for (int64_t k = 0; k < m->nparam[i]; k++)
      m->param[i][k] = mean + sigma * zb_random_normal(seed, i, (uint64_t)k);
  }
}

void interp_draw_inputs(Interp *m, uint64_t seed) {
  const ZgGraph *g = m->g;
  for (uint32_t i = 0; i < g->ninputs; i++) {
    const ZgType *t = &g->inputs[i].type;
    int64_t n = interp_elements(m, t);
    m->input[i] = ZB_NEWN(m->a, double, n);
    for (int64_t k = 0; k < n; k++) {
      double u = zb_random_unit(seed, 1000 + i, (uint64_t)k);
      m->input[i][k] = t->elem == ZG_INDEX ? floor(u * (double)(m->size[t->of] + 1)) - 1 : 2 * u - 1;
    }
  }
  for (uint32_t i = 0; i < g->noutputs; i++)
    m->output[i] = ZB_NEWN(m->a, double, interp_elements(m, &g->outputs[i].type));
}

Interp *interp_new(const ZgGraph *g, ZbArena *a, int64_t data, uint64_t seed) {
  Interp *m = interp_empty(g, a);
  const uint16_t *experts = zg_slot_axes(g, a, NULL);
  for (uint32_t i = 0; i < g->naxes; i++) {
    if (!g->axes[i].size) m->size[i] = data;
    if (experts[i] != ZG_NO_AXIS) m->size[i] = data * data; /* as many as an expert may get */
  }
  interp_draw_params(m, seed, 0.1, 0.7);
  interp_draw_inputs(m, seed);
  return m;
}

/* The values of one iteration of one segment. */
typedef struct {
  void **value;
} Frame;

/* What is carried between iterations: one array a position. */
typedef struct {
  double **at;
} Carried;

typedef struct {
  Interp *m;
  ZbArena *a; /* of one run */
} Run;

static void copy_out(const Run *r, const ZgType *t, const void *from, double *to) {
  const InterpNumbers *other = r->m->numbers;
  int64_t n = interp_elements(r->m, t);
  bool ints = t->elem == ZG_INDEX || t->elem == ZG_I32;
  for (int64_t i = 0; i < n; i++) {
    const double *x = (const double *)from + i;
    to[i] = ints ? ((const int32_t *)from)[i] : other ? other->read(x) : *x;
  }
}

static void copy_in(const Run *r, const ZgType *t, const double *from, void *to) {
  const InterpNumbers *other = r->m->numbers;
  int64_t n = interp_elements(r->m, t);
  for (int64_t i = 0; i < n; i++) {
    double *x = (double *)to + i;
    if (t->elem == ZG_INDEX || t->elem == ZG_I32) ((int32_t *)to)[i] = (int32_t)from[i];
    else if (other) other->write(x, from[i]);
    else *x = from[i];
  }
}

static double *copied(const Run *r, const ZgType *t, const void *from) {
  double *p = ZB_NEWN(r->a, double, interp_elements(r->m, t));
  copy_out(r, t, from, p);
  return p;
}

static double *param_at(const Interp *m, double **of, int64_t p, uint32_t iteration) {
  bool own = m->g->params[p].segment != ZG_NONE;
  return of[p] + (own ? (int64_t)iteration * interp_elements(m, &m->g->params[p].type) : 0);
}

/* The rows that ids have, if each expert has as many as there are slots: then rows are no ragged axis but a
 * tensor with zeros, of which everything means what its axes say. */
static int32_t *places(const Run *r, const ZgType *t, const ZgNode *n, const int32_t *ids) {
  int64_t count = interp_elements(r->m, t), slots = r->m->size[n->ax[1]];
  int32_t *place = ZB_NEWN(r->a, int32_t, count), *used = ZB_NEWN(r->a, int32_t, r->m->size[n->ax[0]]);
  for (int64_t i = 0; i < count; i++) {
    place[i] = (int32_t)(ids[i] * slots + used[ids[i]]++);
    ZB_ASSERT(used[ids[i]] <= slots);
  }
  return place;
}

static void compute(const Run *r, const ZgSegment *s, const ZgNode *n, Frame *f) {
  ZkEnv env = {.seed = 7, .step = 1};
  ZkCall call = {.op = n->op,
                 .nin = n->nin,
                 .nout = n->nout,
                 .nax = n->nax,
                 .num = {n->num[0], n->num[1]},
                 .opt = {n->opt[0], n->opt[1]}};
  for (int i = 0; i < n->nax; i++) call.ax[i] = n->ax[i];
  for (int i = 0; i < n->nin; i++) call.in[i] = view_of(r->m, &s->values[n->in[i]].type, f->value[n->in[i]]);
  for (int i = 0; i < n->nout; i++)
    call.out[i] = view_of(r->m, &s->values[n->out + i].type, f->value[n->out + i]);
  if (n->op == ZG_OP_DISPATCH || n->op == ZG_OP_COMBINE)
    call.in[1].data = places(r, &s->values[n->in[1]].type, n, f->value[n->in[1]]);
  if (n->op == ZG_OP_AXSIZE) call.num[0] = (double)r->m->size[n->ax[0]];
  (r->m->numbers ? r->m->numbers->run : zk_ref_run)(&env, &call);
}

static size_t bytes(const Run *r, const ZgType *t) {
  return (size_t)interp_elements(r->m, t) * sizeof(double);
}

static void round_all(const Run *r, const ZgType *t, void *data) {
  if (t->elem == ZG_INDEX || t->elem == ZG_I32) return;
  double *x = data;
  for (int64_t i = interp_elements(r->m, t); i-- > 0;) x[i] = (float)x[i];
}

/* One node of iteration `it`; `in` and `out` are what is carried towards the node's half: values forward,
 * cotangents backward. */
static void play(Run *r, const ZgSegment *s, const ZgNode *n, Frame *f, uint32_t it, Carried *in,
                 Carried *out) {
  Interp *m = r->m;
  for (int i = 0; i < n->nout; i++)
    f->value[n->out + i] = ZB_NEWN(r->a, double, interp_elements(m, &s->values[n->out + i].type));
  const ZgType *t = n->nout ? &s->values[n->out].type : &s->values[n->in[0]].type;
  void *x = n->nout ? f->value[n->out] : f->value[n->in[0]];
  int64_t k = n->opt[0];
  switch (n->op) {
  case ZG_OP_PARAM: copy_in(r, t, param_at(m, m->param, k, it), x); break;
  case ZG_OP_INPUT: copy_in(r, t, m->input[k], x); break;
  case ZG_OP_CARRY:
  case ZG_OP_DCARRY:
    ZB_ASSERT(in->at[k]);
    copy_in(r, t, in->at[k], x);
    break;
  case ZG_OP_CARRY_OUT:
  case ZG_OP_DCARRY_IN: out->at[k] = copied(r, t, x); break;
  case ZG_OP_SEED: *(double *)x = k ? 1 : 1 / m->den[n->opt[1]]; break;
  case ZG_OP_PARAM_GRAD: {
    double *g = param_at(m, m->grad, k, it);
    for (int64_t i = interp_elements(m, t); i-- > 0;) g[i] += ((double *)x)[i];
    break;
  }
  case ZG_OP_LOSS_NUM: m->num[k] += *(double *)x; break;
  case ZG_OP_LOSS_DEN: m->den[k] += *(double *)x; break;
  case ZG_OP_AUX: m->aux += *(double *)x; break;
  case ZG_OP_OUTPUT: copy_out(r, t, x, m->output[k]); break;
  case ZG_OP_MEASURE: break;
  case ZG_OP_KEPT: f->value[n->out] = m->kept[k][it]; break;
  case ZG_OP_KEEP: m->kept[k][it] = memcpy(zb_alloc(m->a, bytes(r, t)), x, bytes(r, t)); break;
  case ZG_OP_PUT_PAGES: f->value[n->out] = f->value[n->in[1]], compute(r, s, n, f); break;
  case ZG_OP_RANDOM: {
    ZgNode mean = *n;
    if (m->means) mean.op = ZG_OP_FILL;
    compute(r, s, &mean, f);
    break;
  }
  default: compute(r, s, n, f);
  }
  for (int i = 0; m->rounds && i < n->nout; i++)
    round_all(r, &s->values[n->out + i].type, f->value[n->out + i]);
}

static Carried carried(const Run *r, uint32_t n) { return (Carried){ZB_NEWN(r->a, double *, n + 1)}; }

void interp_run(Interp *m, bool backward) {
  const ZgGraph *g = m->g;
  Run r = {m, zb_arena_new()};
  Frame **frames = ZB_NEWN(r.a, Frame *, g->nsegments);
  Carried now = {0};
  memset(m->num, 0, sizeof m->num);
  memset(m->den, 0, sizeof m->den);
  m->aux = 0;
  for (uint32_t si = 0; si < g->nsegments; si++) {
    const ZgSegment *s = &g->segments[si];
    frames[si] = ZB_NEWN(r.a, Frame, s->trip);
    for (uint32_t it = 0; it < s->trip; it++) {
      Carried next = carried(&r, s->ncarry_out);
      frames[si][it].value = ZB_NEWN(r.a, void *, s->nvalues + 1);
      for (uint32_t i = 0; i < s->nforward; i++) play(&r, s, &s->nodes[i], &frames[si][it], it, &now, &next);
      now = next;
    }
  }
  m->loss = m->aux;
  for (uint32_t k = 0; k < zg_losses(m->g); k++) m->loss += m->num[k] / m->den[k];
  for (uint32_t i = 0; backward && i < g->nparams; i++)
    memset(m->grad[i], 0, (size_t)m->nparam[i] * sizeof(double));
  now = carried(&r, 0);
  for (uint32_t si = g->nsegments; backward && si-- > 0;) {
    const ZgSegment *s = &g->segments[si];
    for (uint32_t it = s->trip; it-- > 0;) {
      Carried next = carried(&r, s->ncarry_in);
      for (uint32_t i = s->nforward; i < s->nnodes; i++)
        play(&r, s, &s->nodes[i], &frames[si][it], it, &now, &next);
      now = next;
    }
  }
  zb_arena_free(r.a);
}

static double loss_at(Interp *m, double *x, double value) {
  double keep = *x;
  *x = value;
  interp_run(m, false);
  *x = keep;
  return m->loss;
}

double interp_check(Interp *m, int per_param) {
  interp_run(m, true);
  double worst = 0;
  for (uint32_t p = 0; p < m->g->nparams; p++) {
    int64_t step = m->nparam[p] / per_param + 1;
    for (int64_t k = 0; k < m->nparam[p]; k += step) {
      /* Five points: truncated at h^4 f'''''/30, about 1e-17, rounded at about 1e-16 |loss| / h = 1e-12
       * |loss|. */
      double *x = &m->param[p][k], at = *x, h = 1e-4;
      double slope = (8 * (loss_at(m, x, at + h) - loss_at(m, x, at - h)) -
                      (loss_at(m, x, at + 2 * h) - loss_at(m, x, at - 2 * h))) /
                     (12 * h);
      double g = m->grad[p][k], error = fabs(slope - g) / fmax(1, fabs(g));
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

ZgGraph *interp_compile(ZbArena *a, const char *text) {
  ZlSources *sources = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, sources);
  ZcOptions opt = {0};
  ZlProgram *p = zl_load_text(a, sources, d, "test.zug", text, strlen(text), NULL);
  ZgGraph *g = p && !zl_errors(d) ? zc_compile(a, sources, d, p, &opt) : NULL;
  ZbText t = {0};
  zl_print_text(d, &t);
  cr_assert(g, "%s\n%s", text, t.s);
  zb_text_free(&t);
  return g;
}
