/* linear_attend and its gradient: a matrix as state that goes along the tokens of a row, a chunk at a time
 * (linear.cuh). Rows are the points of the axes that are neither tokens nor features; an operand may lack some
 * of them, which then share it. A row is a block's, which goes along its chunks.
 *
 * Backward, rows that share an operand are one task, or a few where there would be too few tasks to fill a
 * device: a task adds up their gradients of it in f32, then those of all tasks are added, in their order.
 * How many there are depends on shapes only, and so do all sums. A row's states at the starts of its chunks
 * are made again first and kept in scratch. */
#include "kernels/cuda/linear.cuh"

#define TASKS 256 /* of backward, if there are so many rows; and blocks that have memory of their own */

/* ---- kernels ------------------------------------------------------------------------------------------- */
template <int N> ZK_DEVICE long long offset_in(const LinearNest<N> &nest, long long at, int view) {
  long long off = 0;
  for (int l = nest.nloops - 1; l >= 0; l--) {
    long long n = nest.div[l].n, i = l ? at % n : at;
    off += i * nest.stride[l][view];
    at /= n;
  }
  return off;
}

ZK_DEVICE bool has_role(unsigned roles, int role) { return roles >> role & 1; }

/* To chunk i, when all threads are done with another. */
ZK_DEVICE void go_to(const Linear &p, Chunk &c, int i) {
  __syncthreads();
  if (threadIdx.x == 0) c.from = i * p.C, c.m = min(p.C, p.tokens - i * p.C);
  __syncthreads();
}

static __global__ void __launch_bounds__(ZKC_TEAM) linear_forward(const __grid_constant__ Linear p) {
  ZK_SHARED(ZkTiles, tiles, [1]);
  ZK_SHARED(long long, off, [VIEWS]);
  ZK_SHARED(Chunk, chunk, [1]);
  Chunk &c = chunk[0];
  if (threadIdx.x == 0) {
    c.tiles = tiles, c.off = off;
    linear_place(p, false, p.scratch + blockIdx.x * p.per_team, c);
  }
  for (long long row = blockIdx.x; row < p.tasks; row += gridDim.x) {
    __syncthreads(); /* of the row before */
    if (threadIdx.x < VIEWS) off[threadIdx.x] = offset_in(p.outer, row, (int)threadIdx.x);
    for (int u = (int)threadIdx.x; u < p.K * p.V; u += ZKC_TEAM) c.S[u] = 0;
    __syncthreads();
    for (int i = 0; i < p.chunks; i++) {
      go_to(p, c, i);
      linear_decays(p, c);
      if (p.sides > 1) linear_feed(p, c, c.S);
      linear_query(p, c, c.S);
      linear_advance(p, c, c.S, c.S);
    }
  }
}

/* x(t, i) of each of a chunk's tokens: to where the gradient of the role belongs, or onto the task's sum. */
template <class F> ZK_DEVICE void give(const Linear &p, const Chunk &c, int role, int n, float *sums, F x) {
  if (!has_role(p.given, role)) return;
  float *sum = sums + p.sums[role] + c.own[role] + (long long)c.from * n;
  long long to = c.off[D + role] + (long long)c.from * p.token[D + role];
  for (int u = (int)threadIdx.x; u < c.m * n; u += ZKC_TEAM) {
    int t = u / n, i = u % n;
    if (has_role(p.shared, role)) sum[u] += x(t, i);
    else
      zk_store(p.data[D + role], p.elem[D + role], to + t * p.token[D + role] + i * p.feature[D + role],
               x(t, i));
  }
}

/* The row's share of the gradient of decays that all tokens have. */
ZK_DEVICE void add_shares(const Linear &p, const Chunk &c, bool first) {
  double *share = (double *)p.data[SHARES] + c.off[SHARES];
  int lane = (int)threadIdx.x % 32;
  for (int k = (int)threadIdx.x / 32; k < p.D; k += ZKC_TEAM / 32) {
    double sum = 0;
    for (int t = lane; t < c.m; t += 32) sum += c.dG[t * p.D + k];
    sum = zk_warp(sum, ZkSum());
    if (lane == 0) share[k] = first ? sum : share[k] + sum;
  }
}

ZK_DEVICE void give_all(const Linear &p, const Chunk &c, float *sums) {
  int K_ = p.K, V_ = p.V;
  give(p, c, Q, K_, sums, [&](int t, int k) { return c.dx[t * K_ + k]; });
  give(p, c, A, K_, sums, [&](int t, int k) { return c.dx[((long long)p.C + t) * K_ + k]; });
  give(p, c, K, K_, sums, [&](int t, int k) { return c.dy[t * K_ + k]; });
  give(p, c, K2, K_, sums, [&](int t, int k) { return c.dy[((long long)p.C + t) * K_ + k]; });
  give(p, c, V, V_, sums, [&](int t, int v) { return c.dw[t * V_ + v]; });
  give(p, c, V2, V_, sums, [&](int t, int v) { return c.dw[((long long)p.C + t) * V_ + v]; });
  if (p.apart) add_shares(p, c, c.from + c.m == p.tokens);
  else give(p, c, G, p.D, sums, [&](int t, int k) { return (float)c.dG[t * p.D + k]; });
}

ZK_DEVICE void backward_row(const Linear &p, Chunk &c, float *sums) {
  long long size = (long long)p.K * p.V;
  for (int u = (int)threadIdx.x; u < size; u += ZKC_TEAM) c.S[u] = c.dS[u] = 0;
  __syncthreads();
  for (int i = 0; i + 1 < p.chunks; i++) {
    go_to(p, c, i);
    linear_decays(p, c);
    if (p.sides > 1) linear_feed(p, c, c.S + i * size);
    linear_advance(p, c, c.S + i * size, c.S + (i + 1) * size);
  }
  for (int i = p.chunks - 1; i >= 0; i--) {
    go_to(p, c, i);
    linear_decays(p, c);
    linear_backward(p, c, c.S + i * size, i + 1 < p.chunks ? c.S + (i + 1) * size : NULL);
    give_all(p, c, sums);
  }
}

static __global__ void __launch_bounds__(ZKC_TEAM) linear_grad(const __grid_constant__ Linear p) {
  ZK_SHARED(ZkTiles, tiles, [1]);
  ZK_SHARED(double, part, [ZKC_TEAM / 32]);
  ZK_SHARED(long long, off, [VIEWS]);
  ZK_SHARED(long long, own, [ROLES]);
  ZK_SHARED(Chunk, chunk, [1]);
  Chunk &c = chunk[0];
  if (threadIdx.x == 0) {
    c.tiles = tiles, c.part = part, c.off = off, c.own = own;
    linear_place(p, true, p.scratch + p.shares + blockIdx.x * p.per_team, c);
  }
  for (long long task = blockIdx.x; task < p.tasks; task += gridDim.x) {
    long long outer = task / p.parts, share = task % p.parts, rows = p.inner.count;
    float *sums = (float *)(p.scratch + p.shares + p.teams * p.per_team) + task * p.sum_floats;
    for (long long u = threadIdx.x; u < p.sum_floats; u += ZKC_TEAM) sums[u] = 0;
    for (long long i = rows * share / p.parts; i < rows * (share + 1) / p.parts; i++) {
      int view = (int)threadIdx.x;
      __syncthreads(); /* of the row before */
      if (view < VIEWS) off[view] = offset_in(p.outer, outer, view) + offset_in(p.inner, i, view);
      if (view < ROLES) own[view] = offset_in(p.own, i, view);
      __syncthreads();
      backward_row(p, c, sums);
    }
  }
}

/* What tasks, or rows, have of one element of a gradient, added up in their order. */
typedef struct {
  void *to;
  int elem;
  const char *from; /* f32; of shares f64 */
  bool shares;
  ZkcNest outer; /* points of outer. Views: O, the gradient */
  ZkcNest rest;  /* elements of one. Views: the gradient, what is added up */
  ZkcNest added; /* of shares: the rows of an element. View: what is added up */
  long long parts, each, count;
} Join;

static __global__ void __launch_bounds__(ZKC_TEAM) linear_join(const __grid_constant__ Join p) {
  for (long long u = blockIdx.x * (long long)ZKC_TEAM + threadIdx.x; u < p.count;
       u += gridDim.x * (long long)ZKC_TEAM) {
    long long outer = u / p.rest.count, o[2], at[2], row[1];
    double sum = 0;
    zkc_seek(p.outer, (unsigned)outer, o);
    zkc_seek(p.rest, (unsigned)(u % p.rest.count), at);
    if (p.shares) {
      for (unsigned i = 0; i < p.added.count; i++) {
        zkc_seek(p.added, i, row);
        sum += ((const double *)p.from)[at[1] + row[0]];
      }
    } else {
      float some = 0;
      const float *from = (const float *)p.from + outer * p.parts * p.each + at[1];
      for (long long i = 0; i < p.parts; i++) some += from[i * p.each];
      sum = some;
    }
    zk_store(p.to, p.elem, o[1] + at[0], (float)sum);
  }
}

/* ---- what the call says -------------------------------------------------------------------------------- */
typedef struct {
  Linear p;
  bool grad;
  uint16_t s, k, v, outer[ZK_MAX_AXES], inner[ZK_MAX_AXES];
  int nouter, ninner;
  ZkView view[VIEWS], sums[ROLES]; /* sums: those of a task */
} Job;

static void find_views(Job *j, const ZkCall *c) {
  int n = j->grad, k = 0;
  for (int role = Q; role < ROLES; role++) {
    int bit = zg_linear_bit(role - Q);
    if (bit && !(c->opt[0] & bit)) continue;
    j->p.given |= 1u << role;
    j->view[role] = c->in[n++];
    if (j->grad) j->view[D + role] = c->out[k++];
  }
  j->view[O] = j->grad ? c->in[0] : c->out[0];
}

static bool given(const Job *j, int role) { return j->p.given >> role & 1; }

static bool lacked(const Job *j, uint16_t axis) {
  for (int role = Q; role < ROLES; role++)
    if (given(j, role) && !(role == G && j->p.apart) && zkc_find(&j->view[role], axis) < 0) return true;
  return false;
}

static void find_rows(Job *j) {
  const ZkView *o = &j->view[O];
  for (int i = 0; i < o->rank; i++) {
    uint16_t axis = o->axis[i];
    if (axis == j->s || axis == j->v) continue;
    if (!j->grad || !lacked(j, axis)) {
      j->outer[j->nouter++] = axis;
      continue;
    }
    j->inner[j->ninner++] = axis;
    for (int role = Q; role < ROLES; role++)
      if (given(j, role) && !(role == G && j->p.apart) && zkc_find(&j->view[role], axis) < 0)
        j->p.shared |= 1u << role;
  }
}

static void add_axis(ZkView *v, uint16_t axis, int64_t size) {
  for (int i = 0; i < v->rank; i++) v->stride[i] *= size;
  v->axis[v->rank] = axis, v->size[v->rank] = v->whole[v->rank] = size, v->stride[v->rank++] = 1;
}

/* Where a task adds up the gradients of a role that rows share, and where rows put their shares: dense. */
static void make_sums(Job *j) {
  for (int role = Q; role < ROLES; role++) {
    const ZkView *x = &j->view[D + role];
    ZkView *sum = &j->sums[role];
    uint16_t feature = role == V || role == V2 ? j->v : j->k;
    if (!(j->p.shared >> role & 1)) continue;
    sum->elem = ZK_F32;
    for (int i = 0; i < j->ninner; i++)
      if (zkc_find(x, j->inner[i]) >= 0) add_axis(sum, j->inner[i], zkc_size(x, j->inner[i]));
    add_axis(sum, j->s, j->p.tokens);
    if (zkc_find(x, feature) >= 0) add_axis(sum, feature, zkc_size(x, feature));
    j->p.sums[role] = j->p.sum_floats;
    j->p.sum_floats += zk_ceil_of(zkc_count(sum), 16) * 16;
  }
  if (!j->p.apart) return;
  ZkView *shares = &j->view[SHARES];
  const ZkView *o = &j->view[O];
  shares->elem = ZK_F64;
  for (int i = 0; i < o->rank; i++)
    if (o->axis[i] != j->s && o->axis[i] != j->v) add_axis(shares, o->axis[i], o->size[i]);
  if (zkc_find(&j->view[G], j->k) >= 0) add_axis(shares, j->k, j->p.D);
  j->p.shares = zk_ceil_of(zkc_count(shares) * (int64_t)sizeof(double), 64) * 64;
}

template <int N> static LinearNest<N> fit(const ZkcNest &n) {
  LinearNest<N> to = {};
  to.nloops = n.nloops, to.count = n.count;
  for (int l = 0; l < n.nloops; l++) {
    to.div[l] = n.div[l];
    for (int v = 0; v < N; v++) to.stride[l][v] = n.stride[l][v];
  }
  return to;
}

static void set_nests(Job *j) {
  const ZkView *views[VIEWS], *own[ROLES] = {&j->view[O]};
  for (int i = 0; i < VIEWS; i++) views[i] = &j->view[i];
  for (int role = Q; role < ROLES; role++) own[role] = &j->sums[role];
  j->p.outer = fit<VIEWS>(zkc_nest(views, VIEWS, j->outer, j->nouter, true));
  j->p.inner = fit<VIEWS>(zkc_nest(views, VIEWS, j->inner, j->ninner, true));
  j->p.own = fit<ROLES>(zkc_nest(own, ROLES, j->inner, j->ninner, true));
  long long rows = j->p.outer.count, all = j->p.inner.count;
  long long parts = rows > 0 && rows < TASKS ? zk_ceil_of(TASKS, rows) : 1;
  j->p.parts = (int)(parts < all ? parts : all < 1 ? 1 : all);
  j->p.tasks = rows * j->p.parts;
  j->p.teams = j->p.tasks < TASKS ? j->p.tasks : TASKS;
}

static Job job_of(const ZkCall *c) {
  Job j = {};
  Linear *p = &j.p;
  j.grad = c->op == ZG_OP_LINEAR_ATTEND_GRAD;
  j.s = c->ax[0], j.k = c->ax[1], j.v = c->ax[2];
  find_views(&j, c);
  int64_t tokens = zkc_size(&j.view[Q], j.s);
  int64_t chunk = c->opt[1] ? c->opt[1] : zg_linear_chunk(c->opt[0], tokens);
  p->tokens = (int)tokens;
  p->C = (int)(chunk < tokens ? chunk : tokens);
  if (p->C < 1) p->C = 1;
  p->chunks = (int)zk_ceil_of(tokens, p->C);
  p->K = (int)zkc_size(&j.view[Q], j.k), p->V = (int)zkc_size(&j.view[V], j.v);
  p->D = !given(&j, G) ? 0 : zkc_find(&j.view[G], j.k) >= 0 ? p->K : 1;
  p->sides = given(&j, A) ? 2 : 1, p->keys = given(&j, K2) ? 2 : 1;
  p->apart = j.grad && given(&j, G) && zkc_find(&j.view[G], j.s) < 0;
  find_rows(&j);
  make_sums(&j);
  for (int i = 0; i < VIEWS; i++) {
    int role = i < ROLES ? i : i - D;
    bool values = i == O || role == V || role == V2;
    p->data[i] = (char *)j.view[i].data, p->elem[i] = j.view[i].elem;
    p->token[i] = zkc_stride(&j.view[i], j.s);
    p->feature[i] = zkc_stride(&j.view[i], values ? j.v : j.k);
  }
  set_nests(&j);
  Chunk none = {};
  p->per_team = linear_place(*p, j.grad, NULL, none);
  p->scratch = (char *)c->scratch;
  p->data[SHARES] = p->scratch;
  return j;
}

extern "C" size_t zk_cuda_linear_attend_scratch(const ZkCall *c) {
  Job j = job_of(c);
  const Linear *p = &j.p;
  return (size_t)(p->shares + p->teams * p->per_team + p->tasks * p->sum_floats * (long long)sizeof(float));
}

extern "C" void zk_cuda_linear_attend(const ZkEnv *env, const ZkCall *c) {
  Job j = job_of(c);
  ZK_LAUNCH(zk_cu(env), c, linear_forward, (unsigned)j.p.teams, ZKC_TEAM, 0, j.p);
}

static void launch_join(const ZkEnv *env, const ZkCall *c, Join *p) {
  p->count = (long long)p->outer.count * p->rest.count;
  ZK_LAUNCH(zk_cu(env), c, linear_join, zk_blocks(zk_cu(env), zk_ceil_of(p->count, ZKC_TEAM)), ZKC_TEAM, 0,
            *p);
}

static void join_role(const ZkEnv *env, const ZkCall *c, const Job *j, int role) {
  const ZkView *x = &j->view[D + role], *views[] = {x, &j->sums[role]}, *rows[] = {&j->view[O], x};
  Join p = {};
  p.to = x->data, p.elem = x->elem;
  p.from =
      j->p.scratch + j->p.shares + j->p.teams * j->p.per_team + j->p.sums[role] * (long long)sizeof(float);
  p.outer = zkc_nest(rows, 2, j->outer, j->nouter, true);
  p.rest = zkc_nest(views, 2, j->outer, j->nouter, false);
  p.parts = j->p.parts, p.each = j->p.sum_floats;
  launch_join(env, c, &p);
}

static void join_shares(const ZkEnv *env, const ZkCall *c, const Job *j) {
  const ZkView *x = &j->view[D + G], *shares = &j->view[SHARES], *views[] = {x, shares};
  Join p = {};
  p.to = x->data, p.elem = x->elem, p.from = j->p.scratch, p.shares = true;
  p.outer.count = 1;
  p.rest = zkc_nest(views, 2, NULL, 0, false);
  p.added = zkc_nest(&shares, 1, x->axis, x->rank, false);
  launch_join(env, c, &p);
}

extern "C" void zk_cuda_linear_attend_grad(const ZkEnv *env, const ZkCall *c) {
  Job j = job_of(c);
  ZK_LAUNCH(zk_cu(env), c, linear_grad, (unsigned)j.p.teams, ZKC_TEAM, 0, j.p);
  for (int role = Q; role < ROLES; role++)
    if (j.p.shared >> role & 1) join_role(env, c, &j, role);
  if (j.p.apart) join_shares(env, c, &j);
}
