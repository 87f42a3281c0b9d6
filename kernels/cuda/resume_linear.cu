/* resume_linear: a matrix S[k, v] as state that goes on along each sequence of a step, token by token, so that it does
 * not matter where a prompt is cut.
 *
 * Columns of a state do not meet: a block has some of them, of a row of one sequence, in shared memory from its first
 * token of the step to its last. Threads have a column each, and every G-th key; sums over keys are those of the
 * threads, in their order. */
#include "kernels/cuda/steps.cuh"
extern "C" {
#include "graph/linear.h"
}

#define THREADS 256
#define ROOM 48000 /* bytes of shared memory */

enum { Q, K, V, G, A, K2, V2, O, S, VIEWS };
typedef struct {
  void *p[VIEWS];
  int elem[VIEWS];
  bool has[VIEWS];
  long long by_token[VIEWS], by_key[VIEWS], by_value[VIEWS]; /* of S by_token is of sequences */
  ZkcNest rows;
  Tokens tokens;
  int keys, values, columns; /* columns of a block */
  unsigned pieces;           /* of a row */
  unsigned total;            /* tokens x rows x pieces */
} ResumeLinear;

/* Loads what an operand has of a token along keys: 0 without it. */
ZK_DEVICE void load_keys(const ResumeLinear &p, int role, long long off, float *to) {
  for (int k = threadIdx.x; k < p.keys; k += THREADS)
    to[k] = p.has[role] ? zk_load(p.p[role], p.elem[role], off + k * p.by_key[role]) : 0;
}

/* The sum over the threads of a column, for all of them. */
ZK_DEVICE float over_keys(const ResumeLinear &p, float x, int column, int group, int groups, float *part) {
  __syncthreads();
  if (group < groups) part[group * p.columns + column] = x;
  __syncthreads();
  float sum = part[column];
  for (int g = 1; g < groups; g++) sum += part[g * p.columns + column];
  return sum;
}

static __global__ void __launch_bounds__(THREADS) resume_linear(const __grid_constant__ ResumeLinear p) {
  ZK_SHARED_DYNAMIC(float, state); /* [key][column]; then what a token has; then sums */
  float *q = state + p.keys * p.columns, *k = q + p.keys, *a = k + p.keys, *k2 = a + p.keys,
        *decay = k2 + p.keys, *part = decay + p.keys;
  int column = threadIdx.x % p.columns, group = threadIdx.x / p.columns, groups = THREADS / p.columns;
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    unsigned rest = u / p.pieces, first = rest / p.rows.count;
    int t = (int)first, v = (int)(u - rest * p.pieces) * p.columns + column,
        sequence = sequence_at(p.tokens, t);
    if (goes_on(p.tokens, t, sequence)) continue; /* all threads alike */
    bool there = v < p.values && group < groups;
    long long off[VIEWS];
    zkc_seek(p.rows, rest - first * p.rows.count, off);
    if (sequence < 0) {
      if (there && group == 0) zk_store(p.p[O], p.elem[O], off[O] + t * p.by_token[O] + v * p.by_value[O], 0);
      continue;
    }
    float *kept = (float *)p.p[S] + off[S] + sequence * p.by_token[S] + v * p.by_value[S];
    bool fresh = position_at(p.tokens, t) == 0;
    for (int i = group; there && i < p.keys; i += groups)
      state[i * p.columns + column] = fresh ? 0 : kept[i * p.by_key[S]];
    for (; t < p.tokens.n && sequence_at(p.tokens, t) == sequence; t++) {
      long long at[VIEWS];
#pragma unroll
      for (int i = 0; i < VIEWS; i++) at[i] = off[i] + t * p.by_token[i];
      __syncthreads(); /* what the token before has is in use until here */
      load_keys(p, Q, at[Q], q);
      load_keys(p, K, at[K], k);
      load_keys(p, A, at[A], a);
      load_keys(p, K2, at[K2], k2);
      load_keys(p, G, at[G], decay);
      __syncthreads();
      float x = there ? zk_load(p.p[V], p.elem[V], at[V] + v * p.by_value[V]) : 0;
      float x2 = there && p.has[V2] ? zk_load(p.p[V2], p.elem[V2], at[V2] + v * p.by_value[V2]) : 0;
      float feed = 0, o = 0;
      for (int i = group; there && i < p.keys; i += groups) {
        float *s = &state[i * p.columns + column];
        if (p.has[G]) *s *= zk_exp(fmaxf(decay[i], -100));
        feed = fmaf(*s, a[i], feed);
      }
      if (p.has[A]) x += over_keys(p, feed, column, group, groups, part);
      for (int i = group; there && i < p.keys; i += groups) {
        float s = fmaf(k[i], x, state[i * p.columns + column]);
        s = fmaf(k2[i], x2, s);
        state[i * p.columns + column] = s;
        o = fmaf(s, q[i], o);
      }
      o = over_keys(p, o, column, group, groups, part);
      if (there && group == 0) zk_store(p.p[O], p.elem[O], at[O] + v * p.by_value[O], o);
    }
    for (int i = group; there && i < p.keys; i += groups)
      kept[i * p.by_key[S]] = state[i * p.columns + column];
    __syncthreads(); /* the sums are in use until here */
  }
}

static size_t room(int64_t keys, int64_t columns) {
  return (size_t)(keys * columns + 5 * keys + THREADS) * sizeof(float);
}

extern "C" void zk_cuda_resume_linear(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  uint16_t token = c->ax[0], key = c->ax[1], value = c->ax[2], rows[ZK_MAX_AXES];
  ZkView none = {}, v[VIEWS] = {};
  const ZkView *views[VIEWS];
  int n = 0, nrows = 0;
  ResumeLinear p = {};
  for (int role = Q; role <= V2; role++) {
    int bit = zg_linear_bit(role - Q);
    p.has[role] = !bit || c->opt[0] & bit;
    v[role] = p.has[role] ? c->in[n++] : none;
  }
  v[O] = c->out[0], v[S] = c->in[n];
  ZB_ASSERT(n == c->nin - 3 && v[S].elem == ZK_F32);
  p.tokens = tokens_of(&c->in[n + 1], &c->in[n + 2], token);
  for (int i = 0; i < VIEWS; i++) {
    p.p[i] = v[i].data, p.elem[i] = v[i].elem;
    p.by_token[i] = zkc_stride(&v[i], i == S ? c->ax[3] : token);
    p.by_key[i] = zkc_stride(&v[i], key), p.by_value[i] = zkc_stride(&v[i], value);
    views[i] = &v[(i + O) % VIEWS]; /* the first one's axes are gone through */
  }
  for (int i = 0; i < v[O].rank; i++)
    if (v[O].axis[i] != token && v[O].axis[i] != value) rows[nrows++] = v[O].axis[i];
  ZkcNest nest = zkc_nest(views, VIEWS, rows, nrows, true);
  p.rows = nest;
  for (int l = 0; l < nest.nloops; l++)
    for (int i = 0; i < VIEWS; i++) p.rows.stride[l][(i + O) % VIEWS] = nest.stride[l][i];
  p.keys = (int)zkc_size(&v[Q], key), p.values = (int)zkc_size(&v[V], value);
  for (p.columns = 32; p.columns > 1 && room(p.keys, p.columns) > ROOM;) p.columns /= 2;
  ZB_ASSERT(room(p.keys, p.columns) <= ROOM);
  p.pieces = (unsigned)zk_ceil_of(p.values, p.columns);
  int64_t total = (int64_t)p.tokens.n * p.rows.count * p.pieces;
  ZB_ASSERT(total < (int64_t)1 << 32);
  p.total = (unsigned)total;
  ZK_LAUNCH(cu, c, resume_linear, zk_blocks(cu, p.total), THREADS, room(p.keys, p.columns), p);
}
