/* Recurrences with a matrix as state, token by token, as OPS.md has them. */
#include <stdlib.h>

#include "base/base.h"
#include "graph/linear.h"
#include "kernels/ref/ref.h"

enum { Q, K, V, G, A, K2, V2, ROLES };
typedef struct {
  uint16_t s, k, v;
  const ZkView *in[ROLES], *out[ROLES]; /* NULL: there is none */
  int64_t tokens, keys, values;
} Linear;

static Linear linear(const ZkCall *c) {
  Linear l = {.s = c->ax[0], .k = c->ax[1], .v = c->ax[2]};
  int n = c->op == ZG_OP_LINEAR_ATTEND_GRAD, first = n;
  for (int role = Q; role < ROLES; role++) {
    int bit = zg_linear_bit(role - Q);
    if (bit && !(c->opt[0] & bit)) continue;
    l.in[role] = &c->in[n];
    l.out[role] = &c->out[n++ - first];
  }
  l.tokens = ref_size(l.in[Q], l.s), l.keys = ref_size(l.in[Q], l.k), l.values = ref_size(l.in[V], l.v);
  return l;
}

static Num at(const Linear *l, int role, RefIndex *i, int64_t k, int64_t v) {
  if (!l->in[role]) return NUM_0;
  ref_move(i, l->k, k), ref_move(i, l->v, v);
  return ref_get(l->in[role], i);
}

static void add(const Linear *l, int role, RefIndex *i, int64_t k, int64_t v, Num x) {
  if (!l->out[role]) return;
  ref_move(i, l->k, k), ref_move(i, l->v, v);
  ref_add(l->out[role], i, x);
}

/* What a state decays by: e^g, 1 without g. */
static Num decay(const Linear *l, RefIndex *i, int64_t k, int64_t v) {
  return l->in[G] ? num_exp(at(l, G, i, k, v)) : NUM_1;
}

static void gain(Num *sum, Num a, Num b) { *sum = num_add(*sum, num_mul(a, b)); }

#define EACH_KV                                                                                              \
  for (int64_t k = 0; k < l->keys; k++)                                                                      \
    for (int64_t v = 0; v < l->values; v++)

/* S becomes the state after the token; `decayed`, unless NULL, what it was before anything is added, and u
 * what is added with the key. */
static void token(const Linear *l, RefIndex *i, Num *S, Num *decayed, Num *u) {
  int64_t nv = l->values;
  EACH_KV S[k * nv + v] = num_mul(S[k * nv + v], decay(l, i, k, v));
  if (decayed) EACH_KV decayed[k * nv + v] = S[k * nv + v];
  for (int64_t v = 0; v < nv; v++) u[v] = at(l, V, i, 0, v);
  EACH_KV gain(&u[v], S[k * nv + v], at(l, A, i, k, v));
  EACH_KV gain(&S[k * nv + v], at(l, K, i, k, v), u[v]);
  EACH_KV gain(&S[k * nv + v], at(l, K2, i, k, v), at(l, V2, i, k, v));
}

/* The axes of the result but tokens and values: rows. */
static RefAxes rows_of(RefIndex *i, const Linear *l, const ZkView *o) {
  return ref_axes(i, o, (uint16_t[]){l->s, l->v}, 2);
}

static Num *numbers(int64_t n) {
  Num *x = calloc((size_t)(n > 0 ? n : 1), sizeof *x);
  ZB_ASSERT(x);
  return x;
}

void REF(linear_attend)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  Linear of = linear(c), *l = &of;
  int64_t nv = l->values, size = l->keys * nv;
  Num *S = numbers(size), *u = numbers(nv);
  RefIndex i = {0};
  RefAxes rows = rows_of(&i, l, &c->out[0]);
  REF_EACH(&i, rows) {
    for (int64_t e = 0; e < size; e++) S[e] = NUM_0;
    for (int64_t t = 0; t < l->tokens; t++) {
      RefIndex it = ref_with(&i, l->s, t);
      token(l, &it, S, NULL, u);
      for (int64_t v = 0; v < nv; v++) {
        RefIndex iv = ref_with(&it, l->v, v);
        Num o = NUM_0;
        for (int64_t k = 0; k < l->keys; k++) gain(&o, S[k * nv + v], at(l, Q, &it, k, v));
        ref_put(&c->out[0], &iv, o);
      }
    }
  }
  free(S);
  free(u);
}

/* The same, from the states of sequences, which the last tokens of this step leave. */
void REF(resume_linear)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  Linear of = linear(c), *l = &of;
  const ZkView *state = &c->in[c->nin - 3], *whose = &c->in[c->nin - 2], *position = &c->in[c->nin - 1];
  Num *S = numbers(l->keys * l->values), *u = numbers(l->values);
  RefIndex i = {0};
  RefAxes rows = rows_of(&i, l, &c->out[0]);
  REF_EACH(&i, rows) {
    for (int64_t t = 0; t < l->tokens; t++) {
      RefIndex it = ref_with(&i, l->s, t);
      int64_t sequence = ref_id(whose, &it), nv = l->values;
      bool first = sequence >= 0 && ref_id(position, &it) == 0;
      if (sequence >= 0) ref_move(&it, c->ax[3], sequence);
      EACH_KV {
        RefIndex ikv = ref_with(&it, l->k, k);
        ref_move(&ikv, l->v, v);
        S[k * nv + v] = first || sequence < 0 ? NUM_0 : ref_get(state, &ikv);
      }
      token(l, &it, S, NULL, u);
      for (int64_t v = 0; v < nv; v++) {
        RefIndex iv = ref_with(&it, l->v, v);
        Num o = NUM_0;
        for (int64_t k = 0; k < l->keys; k++) gain(&o, S[k * nv + v], at(l, Q, &it, k, v));
        ref_put(&c->out[0], &iv, sequence < 0 ? NUM_0 : o);
      }
      if (sequence < 0) continue;
      EACH_KV {
        RefIndex ikv = ref_with(&it, l->k, k);
        ref_move(&ikv, l->v, v);
        ref_put(state, &ikv, S[k * nv + v]);
      }
    }
  }
  free(S);
  free(u);
}

/* The token's gradients. D is the cotangent of the state after it, then of that before it. */
static void token_back(const Linear *l, RefIndex *i, const ZkView *o, const Num *S, const Num *decayed,
                       const Num *u, Num *D, Num *du) {
  int64_t nv = l->values;
  for (int64_t v = 0; v < nv; v++) {
    RefIndex iv = ref_with(i, l->v, v);
    Num g = ref_get(o, &iv);
    for (int64_t k = 0; k < l->keys; k++) {
      add(l, Q, i, k, v, num_mul(S[k * nv + v], g));
      gain(&D[k * nv + v], at(l, Q, i, k, v), g);
    }
    du[v] = NUM_0;
  }
  EACH_KV {
    Num d = D[k * nv + v];
    add(l, K, i, k, v, num_mul(d, u[v]));
    gain(&du[v], d, at(l, K, i, k, v));
    add(l, K2, i, k, v, num_mul(d, at(l, V2, i, k, v)));
    add(l, V2, i, k, v, num_mul(d, at(l, K2, i, k, v)));
  }
  for (int64_t v = 0; v < nv; v++) add(l, V, i, 0, v, du[v]);
  EACH_KV {
    add(l, A, i, k, v, num_mul(decayed[k * nv + v], du[v]));
    gain(&D[k * nv + v], at(l, A, i, k, v), du[v]);
    add(l, G, i, k, v, num_mul(D[k * nv + v], decayed[k * nv + v]));
    D[k * nv + v] = num_mul(D[k * nv + v], decay(l, i, k, v));
  }
}

void REF(linear_attend_grad)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  Linear of = linear(c), *l = &of;
  int64_t nv = l->values, size = l->keys * nv;
  Num *S = numbers((l->tokens + 1) * size), *decayed = numbers(l->tokens * size),
      *u = numbers(l->tokens * nv), *D = numbers(size), *du = numbers(nv);
  for (int k = 0; k < c->nout; k++) ref_zero(&c->out[k]);
  RefIndex i = {0};
  RefAxes rows = rows_of(&i, l, &c->in[0]);
  REF_EACH(&i, rows) {
    for (int64_t e = 0; e < size; e++) S[e] = D[e] = NUM_0;
    for (int64_t t = 0; t < l->tokens; t++) {
      RefIndex it = ref_with(&i, l->s, t);
      Num *after = S + (t + 1) * size;
      for (int64_t e = 0; e < size; e++) after[e] = S[t * size + e];
      token(l, &it, after, decayed + t * size, u + t * nv);
    }
    for (int64_t t = l->tokens; t-- > 0;) {
      RefIndex it = ref_with(&i, l->s, t);
      token_back(l, &it, &c->in[0], S + (t + 1) * size, decayed + t * size, u + t * nv, D, du);
    }
  }
  free(S);
  free(decayed);
  free(u);
  free(D);
  free(du);
}
