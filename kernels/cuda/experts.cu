/* Rows of experts: which row each token and choice has, which of them a round has, and rows there and back.
 *
 * A warp numbers the rows of an expert: it goes through all ids in order, 32 at a time, and a row's number is
 * how many of its expert came before. What combine adds up of a token is a thread's, in the order of rows. */
#include "kernels/cuda/common.cuh"

#define THREADS 256

typedef struct {
  const int *ids;
  int *place, *ends;
  ZkcNest at; /* tokens; views: ids, place */
  int k, experts;
  long long n, se, sp, send;
} Slots;

/* Number i of the ids, a token's choices together. */
ZK_DEVICE long long id_at(const Slots &p, long long i, int view) {
  long long off[2];
  zkc_seek(p.at, (unsigned)(i / p.k), off);
  return off[view] + i % p.k * (view ? p.sp : p.se);
}

static __global__ void __launch_bounds__(32) slots_count(const __grid_constant__ Slots p) {
  int expert = (int)blockIdx.x, count = 0;
  for (long long i = 0; i < p.n; i += 32) {
    bool mine = i + threadIdx.x < p.n && p.ids[id_at(p, i + threadIdx.x, 0)] == expert;
    count += __popc(__ballot_sync(0xffffffffu, mine));
  }
  if (threadIdx.x == 0) p.ends[expert * p.send] = count;
}

static __global__ void __launch_bounds__(32) slots_ends(const __grid_constant__ Slots p) {
  int sum = 0;
  for (int i = 0; i < p.experts && threadIdx.x == 0; i++) p.ends[i * p.send] = sum += p.ends[i * p.send];
}

/* One block more is of ids that are no expert's. */
static __global__ void __launch_bounds__(32) slots_place(const __grid_constant__ Slots p) {
  int expert = (int)blockIdx.x, next = expert && expert < p.experts ? p.ends[(expert - 1) * p.send] : 0;
  for (long long i = 0; i < p.n; i += 32) {
    bool there = i + threadIdx.x < p.n;
    int id = there ? p.ids[id_at(p, i + threadIdx.x, 0)] : -1;
    bool mine = there && (expert < p.experts ? id == expert : id < 0 || id >= p.experts);
    unsigned all = __ballot_sync(0xffffffffu, mine);
    int row = expert < p.experts ? next + __popc(all & ((1u << threadIdx.x) - 1)) : -1;
    if (mine) p.place[id_at(p, i + threadIdx.x, 1)] = row;
    next += __popc(all);
  }
}

extern "C" void zk_cuda_slots(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *e = &c->in[0], *place = &c->out[0], *ends = &c->out[1], *views[] = {e, place};
  Slots p = {};
  p.ids = (const int *)e->data, p.place = (int *)place->data, p.ends = (int *)ends->data;
  p.at = zkc_nest(views, 2, &c->ax[2], 1, false);
  p.k = (int)zkc_size(e, c->ax[2]), p.experts = (int)zkc_size(ends, c->ax[0]);
  p.se = zkc_stride(e, c->ax[2]), p.sp = zkc_stride(place, c->ax[2]), p.send = zkc_stride(ends, c->ax[0]);
  p.n = (long long)p.at.count * p.k;
  ZK_LAUNCH(cu, c, slots_count, (unsigned)p.experts, 32, 0, p);
  ZK_LAUNCH(cu, c, slots_ends, 1, 32, 0, p);
  ZK_LAUNCH(cu, c, slots_place, (unsigned)p.experts + 1, 32, 0, p);
}

/* ---- rounds -------------------------------------------------------------------------------------------- */
static __global__ void __launch_bounds__(THREADS)
    round_of(const int *ends, int *now, long long n, long long first, long long rows) {
  for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < n;
       i += gridDim.x * (long long)THREADS) {
    long long end = ends[i] - first;
    now[i] = (int)(end < 0 ? 0 : end > rows ? rows : end);
  }
}

extern "C" void zk_cuda_round(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  long long n = zkc_size(&c->in[0], c->ax[0]);
  ZK_LAUNCH(cu, c, round_of, zk_blocks(cu, zk_ceil_of(n, THREADS)), THREADS, 0, (const int *)c->in[0].data,
            (int *)c->out[0].data, n, (long long)(c->opt[0] * c->opt[1]), (long long)c->opt[1]);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */
typedef struct {
  void *tokens, *rows;
  const int *place, *now;
  int telem, relem, keep, add;
  ZkcNest at;   /* tokens; views: place, tokens */
  ZkcNest rest; /* of a row; views: rows, tokens */
  int k;
  long long sp, st, first, n, slots, per_expert, per_slot, last; /* last: where in `now` the last end is */
} Rows;

ZK_DEVICE long long row_of(const Rows &p, long long place, int choice) {
  long long row = p.place[place + choice * p.sp], at = row - p.first;
  return row >= 0 && at >= 0 && at < p.n ? at : -1;
}
ZK_DEVICE long long row_offset(const Rows &p, long long row) {
  return row / p.slots * p.per_expert + row % p.slots * p.per_slot;
}

static __global__ void __launch_bounds__(THREADS) dispatch(const __grid_constant__ Rows p) {
  long long count = (long long)p.at.count * p.k * p.rest.count;
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < count;
       u += gridDim.x * (long long)THREADS) {
    long long t[2], r[2], choice = u / p.rest.count % p.k;
    zkc_seek(p.at, (unsigned)(u / p.rest.count / p.k), t);
    long long row = row_of(p, t[0], (int)choice);
    if (row < 0) continue;
    zkc_seek(p.rest, (unsigned)(u % p.rest.count), r);
    float x = zk_load(p.tokens, p.telem, t[1] + choice * p.st + r[1]);
    zk_store(p.rows, p.relem, row_offset(p, row) + r[0], x);
  }
}

/* Rows that no token has. */
static __global__ void __launch_bounds__(THREADS) clear_rows(const __grid_constant__ Rows p) {
  long long from = p.now[p.last], count = (p.n - from) * p.rest.count;
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < count;
       u += gridDim.x * (long long)THREADS) {
    long long r[2];
    zkc_seek(p.rest, (unsigned)(u % p.rest.count), r);
    zk_store(p.rows, p.relem, row_offset(p, from + u / p.rest.count) + r[0], 0);
  }
}

static __global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Rows p) {
  long long each = p.keep ? p.k : 1, count = (long long)p.at.count * each * p.rest.count;
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < count;
       u += gridDim.x * (long long)THREADS) {
    long long t[2], r[2], choice = u / p.rest.count % each, last = -1;
    zkc_seek(p.at, (unsigned)(u / p.rest.count / each), t);
    zkc_seek(p.rest, (unsigned)(u % p.rest.count), r);
    long long to = t[1] + (p.keep ? choice * p.st : 0) + r[1];
    float sum = p.add ? zk_load(p.tokens, p.telem, to) : 0;
    for (;;) { /* the next row of the token's in this round */
      long long next = p.n;
      for (int i = 0; i < p.k; i++) {
        long long row = row_of(p, t[0], i);
        if (row > last && row < next && (!p.keep || i == choice)) next = row;
      }
      if (next == p.n) break;
      float x = zk_load(p.rows, p.relem, row_offset(p, next) + r[0]);
      sum = p.keep ? x : sum + x;
      last = next;
    }
    zk_store(p.tokens, p.telem, to, sum);
  }
}

static Rows rows_of(const ZkCall *c, const ZkView *tokens, const ZkView *rows) {
  const ZkView *place = &c->in[1], *now = &c->in[2], *of_tokens[] = {place, tokens},
               *of_rows[] = {rows, tokens};
  Rows p = {};
  p.tokens = tokens->data, p.telem = tokens->elem, p.rows = rows->data, p.relem = rows->elem;
  p.place = (const int *)place->data, p.now = (const int *)now->data;
  p.at = zkc_nest(of_tokens, 2, &c->ax[2], 1, false);
  p.rest = zkc_nest(of_rows, 2, c->ax, 2, false);
  p.k = (int)zkc_size(place, c->ax[2]);
  p.sp = zkc_stride(place, c->ax[2]), p.st = zkc_stride(tokens, c->ax[2]);
  p.slots = zkc_size(rows, c->ax[1]);
  p.n = p.slots * zkc_size(rows, c->ax[0]);
  p.per_expert = zkc_stride(rows, c->ax[0]), p.per_slot = zkc_stride(rows, c->ax[1]);
  p.first = c->opt[1];
  p.last = (zkc_size(now, c->ax[0]) - 1) * zkc_stride(now, c->ax[0]);
  p.keep = c->opt[0] == 1, p.add = c->accumulate;
  return p;
}

extern "C" void zk_cuda_dispatch(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Rows p = rows_of(c, &c->in[0], &c->out[0]);
  int64_t count = (int64_t)p.at.count * p.k * p.rest.count;
  ZK_LAUNCH(cu, c, dispatch, zk_blocks(cu, zk_ceil_of(count, THREADS)), THREADS, 0, p);
  ZK_LAUNCH(cu, c, clear_rows, zk_blocks(cu, zk_ceil_of(p.n * p.rest.count, THREADS)), THREADS, 0, p);
}

extern "C" void zk_cuda_combine(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  Rows p = rows_of(c, &c->out[0], &c->in[0]);
  int64_t count = (int64_t)p.at.count * (p.keep ? p.k : 1) * p.rest.count;
  ZK_LAUNCH(cu, c, combine, zk_blocks(cu, zk_ceil_of(count, THREADS)), THREADS, 0, p);
}

/* ---- rows as they lie ---------------------------------------------------------------------------------- */
typedef struct {
  const int *map;
  const char *from;
  char *to;
  long long n, row; /* row: in units */
} Gather;

/* By units of W bytes; `from` NULL: zeros. */
template <int W> ZK_DEVICE void move_unit(char *to, const char *from) {
  if (W == 16) zk_store16(to, from ? zk_load16(from) : make_uint4(0, 0, 0, 0));
  else if (W == 4) *(unsigned *)to = from ? *(const unsigned *)from : 0;
  else *(unsigned short *)to = from ? *(const unsigned short *)from : (unsigned short)0;
}

template <int W>
static __global__ void __launch_bounds__(THREADS) gather_rows(const __grid_constant__ Gather p) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.n * p.row;
       u += gridDim.x * (long long)THREADS) {
    long long i = u / p.row, at = u - i * p.row, from = p.map[i];
    move_unit<W>(p.to + u * W, from < 0 ? NULL : p.from + (from * p.row + at) * W);
  }
}

extern "C" void zk_cuda_gather_rows(const ZkEnv *env, size_t n, size_t row, const int32_t *map,
                                    const void *from, void *to) {
  ZkCuda *cu = zk_cu(env);
  size_t odd = row | (uintptr_t)from | (uintptr_t)to, unit = odd % 16 == 0 ? 16 : odd % 4 == 0 ? 4 : 2;
  ZB_ASSERT(odd % 2 == 0);
  Gather p = {map, (const char *)from, (char *)to, (long long)n, (long long)(row / unit)};
  unsigned blocks = zk_blocks(cu, zk_ceil_of(p.n * p.row, THREADS));
  if (unit == 16) ZK_LAUNCH(cu, NULL, gather_rows<16>, blocks, THREADS, 0, p);
  else if (unit == 4) ZK_LAUNCH(cu, NULL, gather_rows<4>, blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, NULL, gather_rows<2>, blocks, THREADS, 0, p);
}
