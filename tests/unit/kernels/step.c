/* Plays of sequences through a step's operations. See step.h. */
#include "tests/unit/kernels/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { MOST_TOKENS = 1024 };

typedef struct {
  int sequence; /* -1: nobody's */
  int64_t position;
} Token;

typedef struct {
  const StepCase *c;
  const StepWay *way;
  const char *what;
  int64_t size[128], length[STEP_SEQUENCES], done[STEP_SEQUENCES];
  Token token[MOST_TOKENS];
  int64_t ntokens, draws;
  ZkView view[STEP_TENSORS], wide[STEP_TENSORS]; /* of the kernels, of the reference */
  double **results;                              /* of each sequence: all that its tokens' results are */
  int64_t per_token;
} Play;

/* Memory that kernels see: exactly as much as is there, for AddressSanitizer, if it is the host's own. */
static void *room_new(size_t bytes) { return backend.get ? memory_new(bytes) : malloc(bytes); }
static void room_free(void *p) {
  if (!p) return;
  if (backend.get) memory_free(p);
  else free(p);
}

static int64_t draw(Play *p, int64_t n) {
  return (int64_t)(zb_random_unit(p->way->cut, 77, (uint64_t)p->draws++) * (double)n);
}

/* ---- elements ------------------------------------------------------------------------------------------ */
static double load(const ZkView *v, int64_t at) {
  if (v->elem == ZK_F64) return ((double *)v->data)[at];
  if (v->elem == ZK_F32) return ((float *)v->data)[at];
  if (v->elem == ZK_I32) return ((int32_t *)v->data)[at];
  return (double)zb_bf16_to_f32(((uint16_t *)v->data)[at]);
}

static void store(const ZkView *v, int64_t at, double x) {
  if (v->elem == ZK_F64) ((double *)v->data)[at] = x;
  else if (v->elem == ZK_F32) ((float *)v->data)[at] = (float)x;
  else if (v->elem == ZK_I32) ((int32_t *)v->data)[at] = (int32_t)x;
  else ((uint16_t *)v->data)[at] = zb_f32_to_bf16((float)x);
}

static bool is_id(StepKind k) {
  return k == STEP_DOC || k == STEP_DOCS || k == STEP_PAGES || k == STEP_SEQUENCE || k == STEP_POSITION ||
         k == STEP_LENGTH || k == STEP_DOCS_OWN || k == STEP_IDS;
}
static bool is_kept(StepKind k) { return k == STEP_CACHE || k == STEP_DOCS || k == STEP_STATE; }

static int64_t count(const Play *p, const char *axes) {
  int64_t n = 1;
  for (; *axes; axes++) n *= p->size[(int)*axes];
  return n;
}

/* Position on axis `axis` of element k in declared order; 0 if there is no such axis. */
static int64_t at_axis(const Play *p, const char *axes, int64_t k, char axis) {
  for (size_t i = strlen(axes); i-- > 0; k /= p->size[(int)axes[i]])
    if (axes[i] == axis) return k % p->size[(int)axes[i]];
  return 0;
}

static int64_t offset(const Play *p, const char *axes, const ZkView *v, int64_t k) {
  int64_t at = 0;
  for (int i = 0; i < v->rank; i++) at += at_axis(p, axes, k, (char)v->axis[i]) * v->stride[i];
  return at;
}

/* Lays a tensor out, the axes in another order if asked for. */
static void lay_out(const Play *p, int tensor, ZkView *v, ZkElem elem, int shuffle) {
  const StepTensor *t = &p->c->tensor[tensor];
  void *data = v->data;
  *v = (ZkView){.data = data, .elem = elem, .rank = (uint8_t)strlen(t->axes)};
  for (int i = 0; i < v->rank; i++) v->axis[i] = (uint16_t)t->axes[i];
  for (int i = v->rank - 1; shuffle > 0 && i > 0; i--) {
    int j = (int)(zb_random_u64((uint64_t)shuffle, (uint64_t)tensor, (uint64_t)i) % (uint64_t)(i + 1));
    uint16_t swap = v->axis[i];
    v->axis[i] = v->axis[j], v->axis[j] = swap;
  }
  int64_t stride = 1;
  for (int i = v->rank - 1; i >= 0; i--) {
    v->size[i] = v->whole[i] = p->size[v->axis[i]];
    v->stride[i] = stride;
    stride *= v->size[i];
  }
}

/* How far results may be from those of other kernels. */
static double half_tol(const StepCase *c, ZkElem elem) {
  return backend.prompts && elem == ZK_BF16 ? c->half_tol : 0;
}

static double number(const Play *p, int tensor, int64_t k) {
  const StepTensor *t = &p->c->tensor[tensor];
  bool of_token = strchr(t->axes, 't') != NULL;
  Token at = of_token ? p->token[at_axis(p, t->axes, k, 't')] : (Token){0};
  int64_t rest = k; /* an element's number within a token, which no number of tokens changes */
  if (of_token) {
    rest = 0;
    for (const char *a = t->axes; *a; a++)
      if (*a != 't') rest = rest * p->size[(int)*a] + at_axis(p, t->axes, k, *a);
  }
  uint64_t salt = (uint64_t)(tensor * 1000003 + (at.sequence + 1) * 10007 + at.position);
  double u = zb_random_unit(5, salt, (uint64_t)rest);
  int slot = (int)at_axis(p, t->axes, k, 's');
  switch (t->kind) {
  case STEP_SEQUENCE: return at.sequence;
  case STEP_POSITION: return (double)at.position;
  case STEP_DOC: return at.sequence < 0 ? 7 : (double)(at.position / 7 % 3) - (u < 0.1 ? 5 : 0);
  case STEP_DOCS_OWN: return (double)(at_axis(p, t->axes, k, 'j') / 5 % 4) - 1;
  case STEP_IDS: return u < 0.2 ? -1 : floor(u * (double)p->ntokens);
  case STEP_LENGTH: return slot == 1 ? 0 : floor(u * (double)(p->size['j'] + 1));
  case STEP_PAGES: { /* pages of sequences lie among each other, some tables' ends are not there */
    int64_t entry = at_axis(p, t->axes, k, 'e'), of = entry * STEP_SEQUENCES + slot;
    bool there = entry * p->size['w'] < p->length[slot];
    return there ? (double)((of * 7 + 3) % p->size['p']) : -1;
  }
  case STEP_TOKEN:
    if (at.sequence < 0) return NAN;
    if (p->c->low && tensor == p->c->low_tensor) return p->c->low * u;
    return zb_random_normal(5, salt, (uint64_t)rest);
  default: return zb_random_normal(5, salt, (uint64_t)rest);
  }
}

static ZkElem elem_of(const Play *p, StepKind kind) {
  return is_id(kind) ? ZK_I32 : kind == STEP_STATE ? ZK_F32 : p->way->elem;
}

/* ---- a step -------------------------------------------------------------------------------------------- */
static void prepare(Play *p, bool first) {
  for (int i = 0; i < STEP_TENSORS && p->c->tensor[i].axes; i++) {
    const StepTensor *t = &p->c->tensor[i];
    ZkElem elem = elem_of(p, t->kind);
    bool old = is_kept(t->kind) && !first;
    if (!old) room_free(p->view[i].data), free(p->wide[i].data);
    int64_t n = count(p, t->axes);
    if (!old) {
      p->view[i].data = room_new((size_t)n * zk_plain_bytes(elem) + 1);
      p->wide[i].data = malloc((size_t)(n + 1) * 8);
    }
    lay_out(p, i, &p->view[i], elem, p->way->shuffle);
    lay_out(p, i, &p->wide[i], is_id(t->kind) ? ZK_I32 : ZK_F64, 0);
    for (int64_t k = 0; !old && k < n; k++) {
      bool unknown = is_kept(t->kind) || t->kind == STEP_OUT || t->kind == STEP_ROWS;
      double x = !unknown ? number(p, i, k) : t->kind == STEP_DOCS ? 12345 : NAN;
      int64_t at = offset(p, t->axes, &p->view[i], k);
      store(&p->view[i], at, x);
      store(&p->wide[i], k, load(&p->view[i], at));
    }
  }
}

static ZkCall make_call(const StepCall *s, const ZkView *view) {
  ZkCall call = {.op = (uint16_t)s->op, .invariant = true};
  for (const char *a = s->ax; *a; a++) call.ax[call.nax++] = (uint16_t)*a;
  for (const char *a = s->in; *a; a++) call.in[call.nin++] = view[*a - 'a'];
  for (const char *a = s->out; *a; a++) call.out[call.nout++] = view[*a - 'a'];
  memcpy(call.num, s->num, sizeof call.num);
  memcpy(call.opt, s->opt, sizeof call.opt);
  return call;
}

/* Compares what calls made and left with the reference. */
static void judge(const Play *p) {
  double tol = (p->c->tol ? p->c->tol : 1e-5) + half_tol(p->c, p->way->elem);
  for (int i = 0; i < STEP_TENSORS && p->c->tensor[i].axes; i++) {
    const StepTensor *t = &p->c->tensor[i];
    double largest = 0;
    int64_t n = count(p, t->axes);
    for (int64_t k = 0; k < n; k++)
      if (isfinite(load(&p->wide[i], k))) largest = fmax(largest, fabs(load(&p->wide[i], k)));
    for (int64_t k = 0; k < n; k++) {
      double want = load(&p->wide[i], k), got = load(&p->view[i], offset(p, t->axes, &p->view[i], k));
      double limit = tol * largest + (p->view[i].elem == ZK_BF16 ? ldexp(fabs(want), -8) : 0);
      EACH_ASSERT(got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= limit,
                  "%s: tensor %c, element %lld is %.9g, not %.9g", p->what, 'a' + i, (long long)k, got, want);
    }
  }
}

static void keep_results(Play *p) {
  int64_t at[MOST_TOKENS] = {0};
  for (int i = 0; i < STEP_TENSORS && p->c->tensor[i].axes; i++) {
    const StepTensor *t = &p->c->tensor[i];
    if (t->kind != STEP_OUT) continue;
    for (int64_t k = 0; k < count(p, t->axes); k++) {
      int64_t token = at_axis(p, t->axes, k, 't');
      const Token *of = &p->token[token];
      double x = load(&p->view[i], offset(p, t->axes, &p->view[i], k));
      if (of->sequence < 0) EACH_ASSERT(x == 0, "%s: nobody's result is %g", p->what, x);
      else p->results[of->sequence][of->position * p->per_token + at[token]++] = x;
    }
  }
}

static void play_step(Play *p, bool first) {
  p->size['t'] = p->ntokens;
  prepare(p, first);
  for (int i = 0; i < STEP_CALLS && p->c->call[i].op; i++) {
    ZkCall mine = make_call(&p->c->call[i], p->view);
    run_call(&mine, p->way->way);
    if (!p->way->judged) continue;
    ZkCall call = make_call(&p->c->call[i], p->wide);
    zk_ref_run(&(ZkEnv){0}, &call);
  }
  if (p->way->judged) judge(p);
  keep_results(p);
}

/* Tokens of the next step; false if there are none left. */
static bool fill(Play *p) {
  int from = p->way->cut ? (int)draw(p, STEP_SEQUENCES) : 0;
  p->ntokens = 0;
  for (int i = 0; i < STEP_SEQUENCES; i++) {
    int s = (from + i) % STEP_SEQUENCES;
    int64_t left = p->length[s] - p->done[s], n = left;
    if (!left || (!p->way->cut && p->ntokens)) continue;
    if (p->way->cut) {
      if (draw(p, 4) == 0 && p->ntokens) continue;
      n = draw(p, 2) ? 1 : 1 + draw(p, left);
      for (int64_t k = draw(p, 3); k > 0; k--) p->token[p->ntokens++] = (Token){-1, 0};
    }
    for (int64_t k = 0; k < n; k++) p->token[p->ntokens++] = (Token){s, p->done[s]++};
  }
  return p->ntokens > 0;
}

void step_play(const char *what, const StepCase *c, const StepWay *way, double **results, int64_t *counts) {
  Play *p = calloc(1, sizeof *p);
  int64_t longest = c->longest ? c->longest : 40;
  *p = (Play){.c = c, .way = way, .what = what, .results = results};
  for (const char *d = c->dims; *d; d += strcspn(d, " "), d += strspn(d, " "))
    p->size[(int)*d] = atoll(d + 2);
  for (int s = 0; s < STEP_SEQUENCES; s++)
    p->length[s] = s == 0 ? longest : s == 1 ? 1 : longest * (s + 1) / (2 * STEP_SEQUENCES) + 1;
  p->size['s'] = STEP_SEQUENCES;
  p->size['x'] = longest;
  p->size['w'] = way->within;
  p->size['e'] = longest / way->within + 1;
  p->size['p'] = p->size['e'] * STEP_SEQUENCES;
  while (p->size['p'] % 7 == 0) p->size['p']++;
  for (int i = 0; i < STEP_TENSORS && c->tensor[i].axes; i++) {
    p->size['t'] = 1;
    if (c->tensor[i].kind == STEP_OUT) p->per_token += count(p, c->tensor[i].axes);
  }
  for (int s = 0; s < STEP_SEQUENCES; s++) {
    counts[s] = p->length[s] * p->per_token;
    results[s] = calloc((size_t)counts[s] + 1, sizeof(double));
  }
  for (bool first = true; fill(p); first = false) play_step(p, first);
  for (int i = 0; i < STEP_TENSORS; i++) room_free(p->view[i].data), free(p->wide[i].data);
  free(p);
}

void step_check(const char *what, const StepCase *c) {
  for (int half = 0; half < 2; half++) {
    ZkElem elem = half ? ZK_BF16 : ZK_F32;
    bool quick = c->longest < 100; /* the reference takes its time */
    const StepWay ways[] = {
        {.elem = elem, .within = 8, .judged = quick || !half},
        {.elem = elem, .cut = 3, .within = 8, .way = 1, .judged = quick && !half},
        {.elem = elem, .cut = 4, .within = 5, .way = 2, .shuffle = 1},
        {.elem = elem, .cut = 5, .within = 64, .way = 2, .shuffle = 2},
    };
    double *want[STEP_SEQUENCES];
    int64_t n[STEP_SEQUENCES];
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
      /* The emulator takes its time: at a push one way of tokens in company, another one of each type. */
      if (backend.odd && !at_night() && k && k != (half ? 3 : 1)) continue;
      double *got[STEP_SEQUENCES];
      char where[128];
      snprintf(where, sizeof where, "%s, %s, way %zu", what, half ? "bf16" : "f32", k);
      step_play(where, c, &ways[k], k ? got : want, n);
      for (int s = 0; k && s < STEP_SEQUENCES; s++) {
        double largest = 0;
        for (int64_t i = 0; i < n[s]; i++) largest = fmax(largest, fabs(want[s][i]));
        for (int64_t i = 0; i < n[s]; i++)
          EACH_ASSERT(!memcmp(&got[s][i], &want[s][i], sizeof(double)) ||
                          fabs(got[s][i] - want[s][i]) <= half_tol(c, elem) * largest,
                      "%s: sequence %d, result %lld is %.9g, alone %.9g", where, s, (long long)i, got[s][i],
                      want[s][i]);
        free(got[s]);
      }
    }
    for (int s = 0; s < STEP_SEQUENCES; s++) free(want[s]);
  }
}
