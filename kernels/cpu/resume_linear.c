/* resume_linear: a matrix S[k, v] as state that goes on along each sequence of a step, token by token, so
 * that it does not matter where a prompt is cut. Columns of a state do not meet: a task has some of a row's,
 * and adds over keys in their order. */
#include "graph/linear.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/step.h"

#define COLUMNS 64 /* of a task: with 128 keys they stay in the first cache */

enum { Q, K, V, G, A, K2, V2, O, S, VIEWS };
typedef struct {
  bool has[VIEWS];
  ZkView v[VIEWS];
  ZkNest rows; /* of all views */
  ZkTokens tokens;
  int64_t ntokens, keys, values, pieces;
  int64_t by_token[VIEWS], by_key[VIEWS], by_value[VIEWS]; /* strides; of S by_token is of sequences */
  char *scratch;
  size_t per_thread;
} Resume;

/* The room of a thread: one token, and columns of the state if these do not lie side by side. */
typedef struct {
  float *q, *k, *a, *k2, *decay, *state, v[COLUMNS], v2[COLUMNS], o[COLUMNS];
} Token;

static size_t floats(int64_t keys) { return (size_t)(keys * (5 + COLUMNS)); }

static Token token_in(const Resume *r, int part) {
  Token t = {.q = (float *)(r->scratch + (size_t)part * r->per_thread)};
  t.k = t.q + r->keys, t.a = t.k + r->keys, t.k2 = t.a + r->keys;
  t.decay = t.k2 + r->keys, t.state = t.decay + r->keys;
  return t;
}

/* Loads what an operand has of a token along keys, or columns. */
static void load(const Resume *r, int role, const ZkWalk *w, int64_t t, int64_t first, int64_t n, float *to) {
  bool values = role == V || role == V2;
  int64_t s = values ? r->by_value[role] : r->by_key[role];
  if (r->has[role]) zk_load(to, &r->v[role], w->off[role] + t * r->by_token[role] + first * s, s, n);
  else zk_run_fill(to, 0, n);
}

ZK_SIMD static void exponentials(float *x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) x[i] = zk_exp(x[i] < -100.0f ? -100.0f : x[i]);
}

/* S' = e^g S, v += S'^T a. */
ZK_SIMD static void decay_and_feed(Token *t, float *S, int64_t ld, int64_t keys, int64_t n) {
  for (int64_t k = 0; k < keys; k++) {
    float *row = S + k * ld, e = t->decay[k], a = t->a[k];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
      row[i] *= e;
      t->v[i] += row[i] * a;
    }
  }
}

/* S = e^g S + k v^T, and + k2 v2^T; o = S^T q. */
ZK_SIMD static void add_and_read(Token *t, float *S, int64_t ld, int64_t keys, int64_t n, bool decay,
                                 bool pair) {
  for (int64_t i = 0; i < n; i++) t->o[i] = 0;
  for (int64_t j = 0; j < keys; j++) {
    float *row = S + j * ld, e = t->decay[j], k = t->k[j], k2 = t->k2[j], q = t->q[j];
    if (decay)
#pragma omp simd
      for (int64_t i = 0; i < n; i++) row[i] *= e;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) row[i] += k * t->v[i];
    if (pair)
#pragma omp simd
      for (int64_t i = 0; i < n; i++) row[i] += k2 * t->v2[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) t->o[i] += row[i] * q;
  }
}

/* Columns of a sequence's state: where they lie, or a copy. */
static float *state_of(const Resume *r, const ZkWalk *w, Token *to, int64_t sequence, int64_t first,
                       int64_t n, bool fresh, int64_t *ld) {
  int64_t at = w->off[S] + sequence * r->by_token[S] + first * r->by_value[S];
  bool in_place = r->by_value[S] == 1 || n == 1;
  float *x = in_place ? (float *)r->v[S].data + at : to->state;
  *ld = in_place ? r->by_key[S] : COLUMNS;
  for (int64_t k = 0; k < r->keys; k++) {
    if (fresh) zk_run_fill(x + k * *ld, 0, n);
    else if (!in_place) zk_load(x + k * *ld, &r->v[S], at + k * r->by_key[S], r->by_value[S], n);
  }
  return x;
}

static void leave(const Resume *r, const ZkWalk *w, const Token *t, const float *x, int64_t sequence,
                  int64_t first, int64_t n) {
  int64_t at = w->off[S] + sequence * r->by_token[S] + first * r->by_value[S];
  for (int64_t k = 0; k < r->keys && x == t->state; k++)
    zk_store(&r->v[S], at + k * r->by_key[S], r->by_value[S], n, x + k * COLUMNS, false);
}

static void go_on(const Resume *r, const ZkWalk *w, Token *x, int64_t t, int64_t first, int64_t n, float *S_,
                  int64_t ld) {
  load(r, Q, w, t, 0, r->keys, x->q);
  load(r, K, w, t, 0, r->keys, x->k);
  load(r, V, w, t, first, n, x->v);
  if (r->has[G]) load(r, G, w, t, 0, r->keys, x->decay), exponentials(x->decay, r->keys);
  else zk_run_fill(x->decay, 1, r->keys);
  load(r, K2, w, t, 0, r->keys, x->k2);
  load(r, V2, w, t, first, n, x->v2);
  if (r->has[A]) load(r, A, w, t, 0, r->keys, x->a), decay_and_feed(x, S_, ld, r->keys, n);
  add_and_read(x, S_, ld, r->keys, n, r->has[G] && !r->has[A], r->has[K2]);
}

static void columns(const Resume *r, const ZkWalk *w, Token *x, int64_t first, int64_t n) {
  int64_t now = -1, ld = 0;
  float *state = NULL;
  for (int64_t t = 0; t < r->ntokens; t++) {
    int64_t sequence = zk_sequence(&r->tokens, t);
    int64_t o = w->off[O] + t * r->by_token[O] + first * r->by_value[O];
    if (now >= 0 && sequence != now) leave(r, w, x, state, now, first, n);
    bool fresh = sequence >= 0 && zk_position(&r->tokens, t) == 0;
    if (sequence >= 0 && (fresh || sequence != now))
      state = state_of(r, w, x, sequence, first, n, fresh, &ld);
    now = sequence;
    if (sequence < 0) {
      zk_fill_run(&r->v[O], o, r->by_value[O], 0, n);
      continue;
    }
    go_on(r, w, x, t, first, n, state, ld);
    zk_store(&r->v[O], o, r->by_value[O], n, x->o, false);
  }
  if (now >= 0) leave(r, w, x, state, now, first, n);
}

static void run_columns(void *arg, int64_t from, int64_t to, int part) {
  const Resume *r = arg;
  Token x = token_in(r, part);
  for (int64_t i = from; i < to; i++) {
    ZkWalk w;
    int64_t first = i % r->pieces * COLUMNS;
    zk_walk_seek(&r->rows, &w, i / r->pieces);
    columns(r, &w, &x, first, zk_min(COLUMNS, r->values - first));
  }
}

static size_t thread_bytes(int64_t keys) { return zb_round_up(floats(keys) * sizeof(float), 64); }

void zk_cpu_resume_linear(const ZkEnv *env, const ZkCall *c) {
  Resume r = {.scratch = c->scratch};
  uint16_t token = c->ax[0], key = c->ax[1], value = c->ax[2];
  const ZkView *views[VIEWS];
  int n = 0;
  for (int role = Q; role <= V2; role++) {
    int bit = zg_linear_bit(role - Q);
    r.has[role] = !bit || c->opt[0] & bit;
    if (r.has[role]) r.v[role] = c->in[n++];
  }
  r.v[O] = c->out[0], r.v[S] = c->in[n];
  ZB_ASSERT(n == c->nin - 3 && r.v[S].elem == ZK_F32);
  r.tokens = zk_tokens(&c->in[n + 1], &c->in[n + 2], token);
  for (int i = 0; i < VIEWS; i++) {
    views[i] = &r.v[i];
    r.by_token[i] = zk_axis_stride(views[i], i == S ? c->ax[3] : token);
    r.by_key[i] = zk_axis_stride(views[i], key), r.by_value[i] = zk_axis_stride(views[i], value);
  }
  r.ntokens = zk_axis_size(&r.v[O], token);
  r.keys = zk_axis_size(&r.v[Q], key), r.values = zk_axis_size(&r.v[V], value);
  r.pieces = zk_ceil_div(r.values, COLUMNS);
  r.per_thread = thread_bytes(r.keys);
  r.rows.nviews = VIEWS;
  for (int i = 0; i < r.v[O].rank; i++)
    if (r.v[O].axis[i] != token && r.v[O].axis[i] != value)
      zk_nest_add(&r.rows, views, VIEWS, r.v[O].axis[i], r.v[O].size[i]);
  int64_t work = zk_max(1, r.ntokens * r.keys * zk_min(r.values, COLUMNS));
  zk_for(env, zk_nest_count(&r.rows) * r.pieces, zk_max(1, 16384 / work), run_columns, &r);
}

size_t zk_scratch_resume_linear(const ZkCall *c, int threads) {
  return (size_t)threads * thread_bytes(zk_axis_size(&c->in[0], c->ax[1]));
}
