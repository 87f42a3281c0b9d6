/* Operations of steps of generation that move what tokens have: put_pages, rows, recent; and resume_scan. */
#include "kernels/cuda/steps.cuh"

#define THREADS 256

#define EACH_UNIT(u, runs)                                                                                   \
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < (runs).units.total;                  \
       u += gridDim.x * (long long)THREADS)

static unsigned blocks_of(const ZkCuda *cu, const Runs &r) {
  return zk_blocks(cu, zk_ceil_of(r.units.total, THREADS));
}

/* ---- put_pages ----------------------------------------------------------------------------------------- */
typedef struct {
  Runs r; /* views: c, x */
  Tokens tokens;
  const int *table;
  long long by_sequence, by_entry; /* strides of the table */
  long long token, page, within;   /* strides of x; of c */
  int size;                        /* positions of a page */
} PutPages;

static __global__ void __launch_bounds__(THREADS) put_pages(const __grid_constant__ PutPages p) {
  EACH_UNIT(u, p.r) {
    long long off[RUN_VIEWS];
    unsigned token = seek_run(p.r, u, off);
    int sequence = sequence_at(p.tokens, token);
    if (sequence < 0) continue;
    int position = position_at(p.tokens, token);
    long long page = p.table[sequence * p.by_sequence + position / p.size * p.by_entry];
    move_run(p.r, 1, off[0] + page * p.page + position % p.size * p.within, off[1] + token * p.token);
  }
}

extern "C" void zk_cuda_put_pages(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  uint16_t token = c->ax[0], own[] = {c->ax[3], c->ax[4]};
  const ZkView *x = &c->in[0], *to = &c->out[0], *table = &c->in[2], *views[] = {to, x};
  PutPages p = {};
  ZB_ASSERT(to->data == c->in[1].data && table->elem == ZK_I32);
  p.tokens = tokens_of(&c->in[3], &c->in[4], token);
  p.table = (const int *)table->data;
  p.by_sequence = zkc_stride(table, c->ax[1]), p.by_entry = zkc_stride(table, c->ax[2]);
  p.token = zkc_stride(x, token), p.page = zkc_stride(to, own[0]), p.within = zkc_stride(to, own[1]);
  p.size = (int)zkc_size(to, own[1]);
  const int64_t beside[] = {p.token, p.page, p.within};
  p.r = runs_of(views, 2, own, 2, p.tokens.n, beside, 3);
  ZK_LAUNCH(cu, c, put_pages, blocks_of(cu, p.r), THREADS, 0, p);
}

/* ---- rows ---------------------------------------------------------------------------------------------- */
typedef struct {
  Runs r;        /* views: y, x */
  ZkcNest outer; /* of ids; views: y, x, ids */
  const int *ids;
  long long from; /* stride of x */
} TokenRows;

static __global__ void __launch_bounds__(THREADS) rows(const __grid_constant__ TokenRows p) {
  EACH_UNIT(u, p.r) {
    long long off[RUN_VIEWS], at[3];
    zkc_seek(p.outer, seek_run(p.r, u, off), at);
    int id = p.ids[at[2]];
    if (id < 0) fill_run(p.r, at[0] + off[0], 0);
    else move_run(p.r, 1, at[0] + off[0], at[1] + off[1] + id * p.from);
  }
}

/* Takes an axis out of a view. */
static ZkView without(ZkView v, uint16_t axis) {
  int at = zkc_find(&v, axis);
  ZB_ASSERT(at >= 0);
  for (int i = at; i + 1 < v.rank; i++)
    v.axis[i] = v.axis[i + 1], v.size[i] = v.size[i + 1], v.stride[i] = v.stride[i + 1];
  v.rank--;
  return v;
}

extern "C" void zk_cuda_rows(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  ZkView x = without(c->in[0], c->ax[0]);
  const ZkView *y = &c->out[0], *ids = &c->in[1], *views[] = {y, &x, ids};
  int64_t beside[2 * ZK_MAX_AXES + 1];
  int n = 0;
  TokenRows p = {};
  ZB_ASSERT(ids->elem == ZK_I32);
  p.ids = (const int *)ids->data;
  p.outer = zkc_nest(views, 3, ids->axis, ids->rank, true);
  p.from = beside[n++] = zkc_stride(&c->in[0], c->ax[0]);
  for (int l = 0; l < p.outer.nloops; l++)
    for (int v = 0; v < 2; v++) beside[n++] = p.outer.stride[l][v];
  p.r = runs_of(views, 2, ids->axis, ids->rank, p.outer.count, beside, n);
  ZK_LAUNCH(cu, c, rows, blocks_of(cu, p.r), THREADS, 0, p);
}

/* ---- recent -------------------------------------------------------------------------------------------- */
enum { Y, X, R };
typedef struct {
  Runs r;
  Tokens tokens;
  long long token[2], tap, sequence,
      at;              /* strides of tokens: of y, of x; of taps; of r: of sequences, places */
  int taps, by, reach; /* taps 0: there is no such axis */
  float edge;
} RecentTokens;

static __global__ void __launch_bounds__(THREADS) read_recent(const __grid_constant__ RecentTokens p) {
  int taps = max(1, p.taps);
  EACH_UNIT(u, p.r) {
    long long off[RUN_VIEWS];
    unsigned point = seek_run(p.r, u, off);
    int t = (int)(point / taps), tap = (int)(point % taps), ago = p.taps ? (taps - 1 - tap) * p.by : p.by;
    int sequence = sequence_at(p.tokens, t);
    long long to = off[Y] + t * p.token[0] + tap * p.tap;
    int before = sequence < 0 ? -1 : position_at(p.tokens, t) - ago;
    if (before < 0) fill_run(p.r, to, sequence < 0 ? 0 : p.edge);
    else if (t >= ago && sequence_at(p.tokens, t - ago) == sequence)
      move_run(p.r, X, to, off[X] + (t - ago) * p.token[1]);
    else move_run(p.r, R, to, off[R] + sequence * p.sequence + before % p.reach * p.at);
  }
}

/* Tokens whose place no later one of this step takes. Views: r, x. */
static __global__ void __launch_bounds__(THREADS) leave_recent(const __grid_constant__ RecentTokens p) {
  EACH_UNIT(u, p.r) {
    long long off[RUN_VIEWS];
    int t = (int)seek_run(p.r, u, off), sequence = sequence_at(p.tokens, t), later = t + p.reach;
    if (sequence < 0 || (later < p.tokens.n && sequence_at(p.tokens, later) == sequence)) continue;
    int place = position_at(p.tokens, t) % p.reach;
    move_run(p.r, 1, off[0] + sequence * p.sequence + place * p.at, off[1] + t * p.token[1]);
  }
}

extern "C" void zk_cuda_recent(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  uint16_t token = c->ax[0], kept[] = {c->ax[1], c->ax[2]}, own[] = {token, c->nax > 3 ? c->ax[3] : token};
  const ZkView *x = &c->in[0], *r = &c->in[1];
  RecentTokens p = {};
  p.tokens = tokens_of(&c->in[2], &c->in[3], token);
  p.edge = (float)c->num[0];
  p.reach = (int)zkc_size(r, kept[1]);
  p.sequence = zkc_stride(r, kept[0]), p.at = zkc_stride(r, kept[1]), p.token[1] = zkc_stride(x, token);
  for (int o = 0, b = 0; o < c->nout; o++, b++) {
    const ZkView *y = &c->out[o], *views[] = {y, x, r};
    while (c->opt[1] && !(c->opt[1] >> b & 1)) b++;
    p.by = c->opt[1] ? b : (int)c->opt[0];
    p.taps = c->nax > 3 ? (int)zkc_size(y, own[1]) : 0;
    p.tap = c->nax > 3 ? zkc_stride(y, own[1]) : 0;
    p.token[0] = zkc_stride(y, token);
    const int64_t beside[] = {p.token[0], p.token[1], p.tap, p.sequence, p.at};
    p.r = runs_of(views, 3, own, 2, (long long)p.tokens.n * (p.taps ? p.taps : 1), beside, 5);
    ZK_LAUNCH(cu, c, read_recent, blocks_of(cu, p.r), THREADS, 0, p);
  }
  const ZkView *views[] = {r, x};
  const int64_t beside[] = {p.token[1], p.sequence, p.at};
  p.r = runs_of(views, 2, kept, 2, p.tokens.n, beside, 3);
  ZK_LAUNCH(cu, c, leave_recent, blocks_of(cu, p.r), THREADS, 0, p);
}

/* ---- resume_scan: h = a h' + b ---------------------------------------------------------------------------
 * Token by token, and rounded as the state is each time, so that it does not matter where a prompt is cut. A
 * thread has a row of one sequence: the one at whose first token it begins. */
typedef struct {
  const void *a, *b;
  void *y;
  float *h;
  int aelem, belem, yelem;
  ZkcNest rest; /* [row]; views: b, y, a, h */
  ZkcUnits units;
  Tokens tokens;
  long long sa, sb, sy, sh; /* strides of tokens, of h of sequences */
} ResumeScan;

static __global__ void __launch_bounds__(THREADS) resume_scan(const __grid_constant__ ResumeScan p) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.units.total;
       u += gridDim.x * (long long)THREADS) {
    long long row, off[4];
    int t = (int)zkc_row(p.units, u, row), sequence = sequence_at(p.tokens, t);
    if (goes_on(p.tokens, t, sequence)) continue;
    zkc_seek(p.rest, (unsigned)row, off);
    if (sequence < 0) {
      zk_store(p.y, p.yelem, off[1] + t * p.sy, 0);
      continue;
    }
    float *kept = p.h + off[3] + sequence * p.sh, h = position_at(p.tokens, t) == 0 ? 0 : *kept;
    do {
      h = fmaf(zk_load(p.a, p.aelem, off[2] + t * p.sa), h, zk_load(p.b, p.belem, off[0] + t * p.sb));
      zk_store(p.y, p.yelem, off[1] + t * p.sy, h);
      t++;
    } while (t < p.tokens.n && sequence_at(p.tokens, t) == sequence);
    *kept = h;
  }
}

extern "C" void zk_cuda_resume_scan(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *a = &c->in[0], *b = &c->in[1], *h = &c->in[2], *y = &c->out[0], *views[] = {b, y, a, h};
  ResumeScan p = {};
  ZB_ASSERT(h->elem == ZK_F32);
  p.a = a->data, p.b = b->data, p.y = y->data, p.h = (float *)h->data;
  p.aelem = a->elem, p.belem = b->elem, p.yelem = y->elem;
  p.tokens = tokens_of(&c->in[3], &c->in[4], c->ax[0]);
  p.rest = zkc_nest(views, 4, c->ax, 1, false);
  p.units = zkc_units(p.tokens.n, p.rest.count);
  p.sa = zkc_stride(a, c->ax[0]), p.sb = zkc_stride(b, c->ax[0]), p.sy = zkc_stride(y, c->ax[0]);
  p.sh = zkc_stride(h, c->ax[1]);
  ZK_LAUNCH(cu, c, resume_scan, zk_blocks(cu, zk_ceil_of(p.units.total, THREADS)), THREADS, 0, p);
}
