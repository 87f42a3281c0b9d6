/* linear_attend and its gradient: a matrix as state that goes along the tokens of a row, a chunk at a time
 * (linear.h). Rows are the points of the axes that are neither tokens nor features; an operand may lack some
 * of them, which then share it.
 *
 * Forward, a task is a row. Backward, rows that share an operand with each other are a task, or a few where
 * there would be too few tasks for threads: their gradients of it are added up, and then those of the tasks,
 * in an order that does not depend on the number of threads. A row's states at the starts of its chunks are
 * made first and kept in scratch, so that between forward and backward nothing is kept but the operands. */
#include "kernels/cpu/linear.h"

#define TASKS 8 /* of backward, if there are so many rows */

enum { Q, K, V, G, A, K2, V2, ROLES, O = ROLES, D, VIEWS = D + ROLES }; /* D + role: its gradient */

typedef struct {
  ZkLinear shape;
  bool grad, has[VIEWS];
  ZkView v[VIEWS];
  int64_t ss[VIEWS], hs[VIEWS], width[VIEWS]; /* strides of tokens and of features; features */
  int64_t tokens, chunks;
  ZkNest outer, inner;           /* rows: axes that all operands have; others. Views as above */
  int64_t nouter, ninner, parts; /* parts: tasks of which each has a share of the inner rows */
  bool apart;         /* all tokens have one decay: each row's share is kept until all rows are done */
  bool shared[ROLES]; /* operands that rows share: their gradients are added up */
  int64_t own[ROLES]; /* of a shared one: how often it is there within a task */
  int64_t step[ROLES][ZK_NEST_LOOPS]; /* and strides of that along inner's loops */
  size_t sums[ROLES], sum_bytes;      /* where a task adds them up */
  size_t per_thread, states, chunk_bytes;
  char *scratch, *summed; /* summed: of all tasks */
} Job;

/* ---- what the call says -------------------------------------------------------------------------------- */
static void find_views(Job *j, const ZkCall *c) {
  int n = j->grad, k = 0;
  for (int role = Q; role < ROLES; role++) {
    int bit = zg_linear_bit(role - Q);
    if (bit && !(c->opt[0] & bit)) continue;
    j->has[role] = true;
    j->v[role] = c->in[n++];
    if (!j->grad) continue;
    j->has[D + role] = true;
    j->v[D + role] = c->out[k++];
  }
  j->has[O] = true;
  j->v[O] = j->grad ? c->in[0] : c->out[0];
}

static bool lacked(const Job *j, uint16_t axis) {
  for (int role = Q; role < ROLES; role++)
    if (j->has[role] && !(role == G && j->apart) && zk_axis_find(&j->v[role], axis) < 0) return true;
  return false;
}

static void find_rows(Job *j, uint16_t s, uint16_t v) {
  const ZkView *views[VIEWS], *o = &j->v[O];
  for (int i = 0; i < VIEWS; i++) views[i] = &j->v[i];
  j->outer.nviews = j->inner.nviews = VIEWS;
  for (int i = 0; i < o->rank; i++) {
    uint16_t axis = o->axis[i];
    if (axis == s || axis == v) continue;
    bool in = j->grad && lacked(j, axis);
    zk_nest_add(in ? &j->inner : &j->outer, views, VIEWS, axis, o->size[i]);
    if (!in) continue;
    for (int role = Q; role < ROLES; role++) {
      bool has = zk_axis_find(&j->v[role], axis) >= 0;
      j->shared[role] |= j->has[role] && !has && !(role == G && j->apart);
      j->step[role][j->inner.nloops - 1] = has ? j->own[role] : 0;
      if (has) j->own[role] *= o->size[i];
    }
  }
  j->nouter = zk_nest_count(&j->outer);
  j->ninner = zk_nest_count(&j->inner);
}

static Job job(const ZkCall *c) {
  Job j = {.grad = c->op == ZG_OP_LINEAR_ATTEND_GRAD};
  uint16_t s = c->ax[0], k = c->ax[1], v = c->ax[2];
  find_views(&j, c);
  j.tokens = zk_axis_size(&j.v[Q], s);
  ZkLinear *l = &j.shape;
  l->K = zk_axis_size(&j.v[Q], k), l->V = zk_axis_size(&j.v[V], v);
  l->C = zk_max(1, zk_min(j.tokens, c->opt[1] ? c->opt[1] : zg_linear_chunk(c->opt[0], j.tokens)));
  l->D = !j.has[G] ? 0 : zk_axis_find(&j.v[G], k) >= 0 ? l->K : 1;
  l->sides = j.has[A] ? 2 : 1, l->keys = j.has[K2] ? 2 : 1;
  j.chunks = zk_ceil_div(j.tokens, l->C);
  j.apart = j.grad && j.has[G] && zk_axis_find(&j.v[G], s) < 0;
  for (int i = 0; i < VIEWS; i++) {
    int role = i < ROLES ? i : i - D;
    bool values = i == O || role == V || role == V2;
    j.ss[i] = zk_axis_stride(&j.v[i], s);
    j.hs[i] = zk_axis_stride(&j.v[i], values ? v : k);
    j.width[i] = role == G && i != O ? l->D : values ? l->V : l->K;
    if (i < ROLES) j.own[i] = 1;
  }
  find_rows(&j, s, v);
  j.chunk_bytes = j.per_thread = zk_linear_bytes(l, j.grad);
  if (!j.grad) return j;
  j.states = (size_t)(j.chunks * l->K * l->V) * sizeof(float);
  j.per_thread += zb_round_up(j.states, 64);
  for (int role = Q; role < ROLES; role++) {
    if (!j.shared[role]) continue;
    j.sums[role] = j.sum_bytes;
    j.sum_bytes += zb_round_up((size_t)(j.own[role] * j.tokens * j.width[role]) * sizeof(float), 64);
  }
  j.parts = j.nouter && j.nouter < TASKS ? zk_max(1, zk_min(j.ninner, zk_ceil_div(TASKS, j.nouter))) : 1;
  if (j.parts == 1) j.per_thread += j.sum_bytes;
  return j;
}

/* Of decays that all tokens share: a row's gradients, in f64. */
static size_t apart_bytes(const Job *j) {
  return j->apart ? zb_round_up((size_t)(j->nouter * j->ninner * j->shape.D) * sizeof(double), 64) : 0;
}

size_t zk_scratch_linear_attend(const ZkCall *c, int threads) {
  Job j = job(c);
  size_t summed = j.parts > 1 ? (size_t)(j.nouter * j.parts) * j.sum_bytes : 0;
  return apart_bytes(&j) + (size_t)threads * j.per_thread + summed;
}

/* ---- a chunk of a row ---------------------------------------------------------------------------------- */
static void load(const Job *j, int i, const int64_t *off, int64_t from, int64_t m, float *to) {
  for (int64_t t = 0; j->has[i] && t < m; t++)
    zk_load(to + t * j->width[i], &j->v[i], off[i] + (from + t) * j->ss[i], j->hs[i], j->width[i]);
}

static void load_chunk(const Job *j, ZkLinear *l, const int64_t *off, int64_t chunk) {
  int64_t from = chunk * l->C;
  l->m = zk_min(l->C, j->tokens - from);
  load(j, Q, off, from, l->m, l->x[ZK_LQ]);
  load(j, A, off, from, l->m, l->x[ZK_LA]);
  load(j, K, off, from, l->m, l->y[0]);
  load(j, K2, off, from, l->m, l->y[1]);
  load(j, V, off, from, l->m, l->w[0]);
  load(j, V2, off, from, l->m, l->w[1]);
  load(j, G, off, from, l->m, l->up); /* where its exponentials will be */
  for (int64_t i = 0; i < l->m * l->D; i++) l->G[i] = l->up[i];
  zk_linear_decays(l);
}

static void forward_rows(void *arg, int64_t from, int64_t to, int part) {
  const Job *j = arg;
  ZkLinear l = j->shape;
  zk_linear_place(&l, false, j->scratch + (size_t)part * j->per_thread);
  for (int64_t row = from; row < to; row++) {
    ZkWalk w;
    zk_walk_seek(&j->outer, &w, row);
    zk_run_fill(l.S, 0, l.K * l.V);
    for (int64_t c = 0; c < j->chunks; c++) {
      load_chunk(j, &l, w.off, c);
      zk_linear_forward(&l, false);
      for (int64_t t = 0; t < l.m; t++)
        zk_store(&j->v[O], w.off[O] + (c * l.C + t) * j->ss[O], j->hs[O], l.V, l.o + t * l.V, false);
    }
  }
}

void zk_cpu_linear_attend(const ZkEnv *env, const ZkCall *c) {
  Job j = job(c);
  j.scratch = c->scratch;
  zk_for(env, j.nouter, 1, forward_rows, &j);
}

/* ---- backward ------------------------------------------------------------------------------------------ */
/* Gradients of a chunk: to where they belong, or onto the sum of those that rows share. */
static void give(const Job *j, int role, const ZkWalk *w, const int64_t *off, char *sums, int64_t from,
                 const ZkLinear *l, const float *d) {
  int64_t n = j->width[role], own = 0;
  if (!j->has[role]) return;
  if (!j->shared[role]) {
    for (int64_t t = 0; t < l->m; t++)
      zk_store(&j->v[D + role], off[D + role] + (from + t) * j->ss[D + role], j->hs[D + role], n, d + t * n,
               false);
    return;
  }
  for (int i = 0; i < j->inner.nloops; i++) own += w->i[i] * j->step[role][i];
  float *sum = (float *)(sums + j->sums[role]) + (own * j->tokens + from) * n;
  zk_run_add(sum, d, l->m * n);
}

static void give_decays(const Job *j, const ZkWalk *w, const int64_t *off, char *sums, int64_t row,
                        int64_t from, ZkLinear *l) {
  if (!l->D) return;
  if (j->apart) {
    double *sum = (double *)j->scratch + row * l->D;
    for (int64_t t = 0; t < l->m; t++)
      for (int64_t k = 0; k < l->D; k++) sum[k] += l->dG[t * l->D + k];
    return;
  }
  for (int64_t i = 0; i < l->m * l->D; i++) l->up[i] = (float)l->dG[i];
  give(j, G, w, off, sums, from, l, l->up);
}

static void backward_row(const Job *j, ZkLinear *l, const ZkWalk *w, const int64_t *off, char *memory,
                         char *sums, int64_t row) {
  float *states = (float *)(memory + j->chunk_bytes);
  int64_t size = l->K * l->V;
  zk_run_fill(l->S, 0, size);
  for (int64_t c = 0; c < j->chunks; c++) {
    memcpy(states + c * size, l->S, (size_t)size * sizeof *states);
    if (c + 1 == j->chunks) break;
    load_chunk(j, l, off, c);
    zk_linear_forward(l, true);
  }
  zk_run_fill(l->dS, 0, size);
  for (int64_t c = j->chunks; c-- > 0;) {
    int64_t from = c * l->C;
    load_chunk(j, l, off, c);
    load(j, O, off, from, l->m, l->o);
    memcpy(l->S, states + c * size, (size_t)size * sizeof *states);
    zk_linear_backward(l, c + 1 < j->chunks ? states + (c + 1) * size : NULL);
    give(j, Q, w, off, sums, from, l, l->dx[ZK_LQ]);
    give(j, A, w, off, sums, from, l, l->dx[ZK_LA]);
    give(j, K, w, off, sums, from, l, l->dy[0]);
    give(j, K2, w, off, sums, from, l, l->dy[1]);
    give(j, V, w, off, sums, from, l, l->dw[0]);
    give(j, V2, w, off, sums, from, l, l->dw[1]);
    give_decays(j, w, off, sums, row, from, l);
  }
}

/* Whether the row is the first of those that share an operand. */
static bool is_first(const Job *j, int role, const ZkWalk *w) {
  for (int i = 0; i < j->inner.nloops; i++)
    if (!j->step[role][i] && w->i[i]) return false;
  return true;
}

static void store_sums(const Job *j, const int64_t *outer, const char *sums) {
  ZkWalk w;
  for (int64_t i = 0; i < j->ninner; i++) {
    zk_walk_seek(&j->inner, &w, i);
    for (int role = Q; role < ROLES; role++) {
      int64_t own = 0, n = j->width[role];
      if (!j->shared[role] || !is_first(j, role, &w)) continue;
      for (int k = 0; k < j->inner.nloops; k++) own += w.i[k] * j->step[role][k];
      const float *sum = (const float *)(sums + j->sums[role]) + own * j->tokens * n;
      int64_t to = outer[D + role] + w.off[D + role];
      for (int64_t t = 0; t < j->tokens; t++)
        zk_store(&j->v[D + role], to + t * j->ss[D + role], j->hs[D + role], n, sum + t * n, false);
    }
  }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int part) {
  const Job *j = arg;
  ZkLinear l = j->shape;
  char *memory = j->scratch + apart_bytes(j) + (size_t)part * j->per_thread;
  zk_linear_place(&l, true, memory);
  for (int64_t task = from; task < to; task++) {
    ZkWalk o, w;
    int64_t outer = task / j->parts, share = task % j->parts;
    char *sums =
        j->parts > 1 ? j->summed + (size_t)task * j->sum_bytes : memory + j->per_thread - j->sum_bytes;
    zk_walk_seek(&j->outer, &o, outer);
    memset(sums, 0, j->sum_bytes);
    for (int64_t i = j->ninner * share / j->parts; i < j->ninner * (share + 1) / j->parts; i++) {
      int64_t off[VIEWS];
      zk_walk_seek(&j->inner, &w, i);
      for (int k = 0; k < VIEWS; k++) off[k] = o.off[k] + w.off[k];
      backward_row(j, &l, &w, off, memory, sums, outer * j->ninner + i);
    }
    if (j->parts == 1) store_sums(j, o.off, sums);
  }
}

/* What several tasks have of the same. */
static void join_parts(void *arg, int64_t from, int64_t to, int part) {
  const Job *j = arg;
  (void)part;
  for (int64_t outer = from; outer < to; outer++) {
    ZkWalk o;
    char *sums = j->summed + (size_t)(outer * j->parts) * j->sum_bytes;
    for (int64_t k = 1; k < j->parts; k++)
      zk_run_add((float *)sums, (const float *)(sums + (size_t)k * j->sum_bytes),
                 (int64_t)(j->sum_bytes / sizeof(float)));
    zk_walk_seek(&j->outer, &o, outer);
    store_sums(j, o.off, sums);
  }
}

/* Each row's share of the decays that all tokens have, added up row by row. */
static void store_apart(const Job *j) {
  const ZkView *g = &j->v[D + G];
  int64_t n = j->shape.D;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t row = 0; row < j->nouter * j->ninner; row++) {
      ZkWalk o, w;
      zk_walk_seek(&j->outer, &o, row / j->ninner);
      zk_walk_seek(&j->inner, &w, row % j->ninner);
      for (int64_t k = 0; k < n; k++) {
        int64_t at = o.off[D + G] + w.off[D + G] + k * j->hs[D + G];
        if (pass == 0) zk_set(g, at, 0);
        else zk_set(g, at, zk_get(g, at) + (float)((const double *)j->scratch)[row * n + k]);
      }
    }
}

void zk_cpu_linear_attend_grad(const ZkEnv *env, const ZkCall *c) {
  Job j = job(c);
  j.scratch = c->scratch;
  if (j.apart) memset(j.scratch, 0, apart_bytes(&j));
  j.summed = j.scratch + apart_bytes(&j) + (size_t)zk_threads(env) * j.per_thread;
  zk_for(env, j.nouter * j.parts, 1, backward_rows, &j);
  if (j.parts > 1) zk_for(env, j.nouter, 1, join_parts, &j);
  if (j.apart) store_apart(&j);
}
