/* attend_pages and attend_own: each token of a step with the keys of its sequence, which lie in pages, or are the
 * sequence's own.
 *
 * Keys are split: a block has a token, a head of keys with some of the queries that share it, and a span of positions,
 * counted from the first of the sequence. It makes the span's peak, sum of exponentials and values weighed by them
 * (Dao et al. 2022, FlashAttention), in f32; a second kernel joins spans in their order (Dao et al. 2023,
 * Flash-Decoding). Where there is one span alone the first writes results. Blocks whose span the token does not see do
 * nothing.
 *
 * Eight threads have a key; their sums of eight features a time are added up by shuffles. Of values each thread has
 * eight features of every so many'th key.
 *
 * Tokens that are many of their sequence in a tile are a prompt's, and left to tensor cores where these can have them
 * (attend_pages_mma.cu). */
#include "kernels/cuda/attend_pages.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define KEYS 128    /* that are looked at together */
#define LANES 8     /* threads of a key */
#define MOST_ROWS 8 /* queries of a block */
#define MOST_SPANS 64
#define SPANS_ROOM (32 << 20) /* bytes of what spans leave, beyond one for each row */

/* What a block knows of its span. */
typedef struct {
  int page[KEYS], within[KEYS];
  float peak[MOST_ROWS], sum[MOST_ROWS], fade[MOST_ROWS];
} HeldSpan;

ZK_DEVICE long long key_at(const AttendPages &a, const HeldSpan &s, int view, int key) {
  return s.page[key] * a.by_page[view] + s.within[key] * a.by_within[view];
}

/* ---- a piece of a span --------------------------------------------------------------------------------- */
ZK_DEVICE void find_keys(const AttendPages &a, HeldSpan &s, int sequence, int first, int n) {
  for (int j = threadIdx.x; j < n; j += THREADS) {
    int at = first + j;
    s.page[j] = a.table ? a.table[sequence * a.table_sequence + at / a.within * a.table_entry] : sequence;
    s.within[j] = a.table ? at % a.within : at;
  }
}

/* score[row][key] = q.k */
template <int ROWS>
ZK_DEVICE void products(const AttendPages &a, const HeldSpan &s, long long koff, int n, int width,
                        const float *q, float *score) {
  int lane = threadIdx.x % LANES;
  for (int j = threadIdx.x / LANES; j < KEYS; j += THREADS / LANES) {
    float sum[ROWS] = {};
    long long at = j < n ? koff + key_at(a, s, K, j) : 0;
    for (int c = lane * 8; c < a.H && j < n; c += LANES * 8) {
      float k[8];
      if (a.wide[0]) zk_load8(a.p[K], a.elem[K], at + c, k);
      else {
#pragma unroll
        for (int i = 0; i < 8; i++)
          k[i] = c + i < a.H ? zk_load(a.p[K], a.elem[K], at + (c + i) * a.by_feature[K]) : 0;
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) sum[r] = fmaf(q[r * width + c + i], k[i], sum[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      for (int d = LANES / 2; d > 0; d >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d);
      if (lane == 0 && j < n) score[r * KEYS + j] = sum[r];
    }
  }
}

/* q.k to the score in powers of two; below all others where the key is of another document. */
ZK_DEVICE float score_of(const AttendPages &a, const HeldSpan &s, const long long (&off)[VIEWS], int key,
                         int position, float x) {
  x *= a.scale;
  if (a.cap > 0) x = a.cap * tanhf(x / a.cap);
  if (a.has[BIAS])
    x += zk_load(a.p[BIAS], a.elem[BIAS], off[BIAS] + key_at(a, s, BIAS, key) + position * a.by_position);
  if (a.has[DOCS_K]) {
    int doc = ((const int *)a.p[DOCS_K])[off[DOCS_K] + key_at(a, s, DOCS_K, key)];
    if (doc < 0 || (a.has[DOCS_Q] && doc != ((const int *)a.p[DOCS_Q])[off[DOCS_Q]])) return -INFINITY;
  }
  return x * 1.44269504f;
}

/* Turns scores into exponentials; how far what was made before is to fade. A warp has a row. */
ZK_DEVICE void soften(const AttendPages &a, HeldSpan &s, unsigned token, unsigned head, unsigned group,
                      int rows, int first, int n, float *score) {
  int lane = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < rows; r += WARPS) {
    long long off[VIEWS];
    float peak = (float)ZK_ATTEND_LOW, sum = 0, was = s.peak[r];
    seek(a, token, head, group + r, off);
    for (int j = lane; j < n; j += 32) {
      float x = score[r * KEYS + j] = score_of(a, s, off, j, first + j, score[r * KEYS + j]);
      peak = fmaxf(peak, x);
    }
    peak = fmaxf(zk_warp(peak, ZkMax()), was);
    for (int j = lane; j < n; j += 32) {
      float x = zk_exp2(score[r * KEYS + j] - peak);
      score[r * KEYS + j] = x;
      sum += x;
    }
    sum = zk_warp(sum, ZkSum());
    if (lane) continue;
    s.fade[r] = zk_exp2(was - peak);
    s.sum[r] = s.sum[r] * s.fade[r] + sum;
    s.peak[r] = peak;
  }
}

/* Which features and which keys of a piece a thread has. */
typedef struct {
  int feature, key, step; /* the first of eight; every so many'th; step 0: none */
} Own;
ZK_DEVICE Own own_of(const AttendPages &a) {
  int each = (a.W + 7) / 8, step = THREADS / each, t = threadIdx.x;
  return {t % each * 8, t / each, t < each * step ? step : 0};
}

template <int ROWS>
ZK_DEVICE void weigh(const AttendPages &a, const HeldSpan &s, const Own &own, long long voff, int n,
                     const float *score, float (&sum)[ROWS][8]) {
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int i = 0; i < 8; i++) sum[r][i] *= s.fade[r];
  for (int j = own.key; own.step && j < n; j += own.step) {
    float v[8];
    long long at = voff + key_at(a, s, V, j);
    if (a.wide[1]) zk_load8(a.p[V], a.elem[V], at + own.feature, v);
    else {
#pragma unroll
      for (int i = 0; i < 8; i++)
        v[i] =
            own.feature + i < a.W ? zk_load(a.p[V], a.elem[V], at + (own.feature + i) * a.by_feature[V]) : 0;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < 8; i++) sum[r][i] = fmaf(score[r * KEYS + j], v[i], sum[r][i]);
  }
}

/* ---- results ------------------------------------------------------------------------------------------- */
/* Joins a span's peak and sum to those so far: returns by how much its values count, and sets how far those so far
 * fade. */
ZK_DEVICE float join(float *peak, float *sum, float span_peak, float span_sum, float *fade) {
  float now = fmaxf(*peak, span_peak), counts = zk_exp2(span_peak - now);
  *fade = zk_exp2(*peak - now);
  *sum = *sum * *fade + span_sum * counts;
  *peak = now;
  return counts;
}

ZK_DEVICE long long row_at(const AttendPages &a, unsigned token, unsigned head, unsigned group) {
  return ((long long)token * a.heads.count + head) * a.groups.count + group;
}

/* Adds up what threads have of a row's values, and puts it where it belongs. */
template <int ROWS>
ZK_DEVICE void put(const AttendPages &a, const HeldSpan &s, const Own &own, unsigned token, unsigned head,
                   unsigned group, int rows, unsigned span, const float (&sum)[ROWS][8], float *room) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (r >= rows) break;
    __syncthreads();
    for (int i = 0; i < 8 && own.step; i++)
      if (own.feature + i < a.W) room[own.key * a.W + own.feature + i] = sum[r][i];
    __syncthreads();
    float *left = a.left + (row_at(a, token, head, group + r) * a.spans + span) * (a.W + 2);
    long long off[VIEWS];
    float peak, all, fade, counts = 1;
    seek(a, token, head, group + r, off);
    begin(a, off[SINK], &peak, &all);
    if (a.spans == 1) counts = join(&peak, &all, s.peak[r], s.sum[r], &fade);
    for (int w = threadIdx.x; w < a.W; w += THREADS) {
      float x = room[w];
      for (int k = 1; k < THREADS / ((a.W + 7) / 8); k++) x += room[k * a.W + w];
      if (a.spans > 1) left[2 + w] = x;
      else zk_store(a.p[O], a.elem[O], off[O] + w * a.by_feature[O], all == 0 ? 0 : x * counts / all);
    }
    if (a.spans > 1 && threadIdx.x == 0) left[0] = s.peak[r], left[1] = s.sum[r];
  }
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
template <int ROWS>
static __global__ void __launch_bounds__(THREADS) attend_span(const __grid_constant__ AttendPages a) {
  ZK_SHARED(HeldSpan, held, [1]);
  ZK_SHARED_DYNAMIC(float,
                    q); /* [row][feature]; scores, [row][key]; or values of a row, [thread's keys][feature] */
  HeldSpan &s = held[0];
  int width = (a.H + 7) / 8 * 8;
  float *score = q + ROWS * width;
  for (unsigned u = blockIdx.x; u < a.total; u += gridDim.x) {
    unsigned rest = u / a.spans, span = u - rest * a.spans, next = rest / a.nparts;
    unsigned group = (rest - next * a.nparts) * ROWS, token = next / a.heads.count;
    unsigned head = next - token * a.heads.count;
    int rows = min(ROWS, (int)a.groups.count - (int)group), sequence = sequence_at(a.tokens, token);
    Seen seen = seen_by(a, token, sequence);
    int from = max(seen.from, (int)span * a.span), to = min(seen.to, ((int)span + 1) * a.span);
    if (from >= to && a.spans > 1) continue; /* all threads alike, here and below */
    if (among_many(a, (int)token, sequence)) continue;
    __syncthreads(); /* of the unit before */
    for (int i = threadIdx.x; i < ROWS * width; i += THREADS) {
      int r = i / width, c = i % width;
      long long off[VIEWS];
      if (r < rows) seek(a, token, head, group + r, off);
      q[i] = r < rows && c < a.H ? zk_load(a.p[Q], a.elem[Q], off[Q] + c * a.by_feature[Q]) : 0;
    }
    if (threadIdx.x < ROWS) s.peak[threadIdx.x] = (float)ZK_ATTEND_LOW, s.sum[threadIdx.x] = 0;
    if (threadIdx.x < ROWS) s.fade[threadIdx.x] = 1;
    Own own = own_of(a);
    float sum[ROWS][8] = {};
    long long off[VIEWS];
    zkc_seek(a.heads, head, off);
    for (int first = from; first < to; first += KEYS) {
      int n = min(KEYS, to - first);
      __syncthreads(); /* the piece before is in use until here */
      find_keys(a, s, sequence, first, n);
      __syncthreads();
      products<ROWS>(a, s, off[K], n, width, q, score);
      __syncthreads();
      soften(a, s, token, head, group, rows, first, n, score);
      __syncthreads();
      weigh<ROWS>(a, s, own, off[V] + a.part * a.by_feature[V], n, score, sum);
    }
    put<ROWS>(a, s, own, token, head, group, rows, span, sum, q);
  }
}

/* A warp has a row. */
static __global__ void __launch_bounds__(THREADS) join_spans(const __grid_constant__ AttendPages a) {
  unsigned rows = a.tokens.n * a.heads.count * a.groups.count;
  int lane = threadIdx.x % 32;
  for (unsigned row = blockIdx.x * WARPS + threadIdx.x / 32; row < rows; row += gridDim.x * WARPS) {
    unsigned rest = row / a.groups.count, group = row - rest * a.groups.count, token = rest / a.heads.count;
    unsigned head = rest - token * a.heads.count;
    long long off[VIEWS];
    const float *left = a.left + (long long)row * a.spans * (a.W + 2);
    int sequence = sequence_at(a.tokens, token);
    if (among_many(a, (int)token, sequence)) continue;
    Seen seen = seen_by(a, token, sequence);
    int first = seen.from / a.span, end = seen.to > seen.from ? (seen.to - 1) / a.span + 1 : first;
    seek(a, token, head, group, off);
    for (int w = lane; w < a.W; w += 32) {
      float peak, sum, fade, o = 0;
      begin(a, off[SINK], &peak, &sum);
      for (int k = first; k < end; k++) {
        const float *of = left + (long long)k * (a.W + 2);
        float counts = join(&peak, &sum, of[0], of[1], &fade);
        o = o * fade + of[2 + w] * counts;
      }
      zk_store(a.p[O], a.elem[O], off[O] + w * a.by_feature[O], sum == 0 ? 0 : o / sum);
    }
  }
}

/* ---- what a call says ---------------------------------------------------------------------------------- */
static void set(AttendPages *a, ZkView *v, int view, const ZkView *x) {
  a->has[view] = true;
  a->p[view] = x->data, a->elem[view] = x->elem;
  v[view] = *x;
}

/* Tells operands from `first` on apart; keys have the axis `key`, or `position`. */
static void tell_more(AttendPages *a, ZkView *v, const ZkCall *c, int first, uint16_t key,
                      uint16_t position) {
  for (int i = first; i < c->nin; i++) {
    const ZkView *x = &c->in[i];
    bool keys = zkc_find(x, key) >= 0, tokens = zkc_find(x, c->ax[0]) >= 0;
    if (x->elem == ZK_I32) set(a, v, keys ? DOCS_K : tokens ? DOCS_Q : LENGTH, x);
    else set(a, v, keys || zkc_find(x, position) >= 0 ? BIAS : SINK, x);
  }
}

/* The axes of q but for tokens and features, as heads and groups. */
static void find_heads(AttendPages *a, const ZkView *v, const ZkCall *c) {
  const ZkView *views[VIEWS];
  uint16_t heads[ZK_MAX_AXES], groups[ZK_MAX_AXES];
  int nheads = 0, ngroups = 0;
  for (int i = 0; i < VIEWS; i++) views[i] = &v[i];
  for (int i = 0; i < v[Q].rank; i++) {
    uint16_t axis = v[Q].axis[i];
    if (axis == c->ax[0] || axis == c->ax[1]) continue;
    if (zkc_find(&v[K], axis) >= 0 || zkc_find(&v[V], axis) >= 0) heads[nheads++] = axis;
    else groups[ngroups++] = axis;
  }
  a->heads = zkc_nest(views, VIEWS, heads, nheads, true);
  a->groups = zkc_nest(views, VIEWS, groups, ngroups, true);
}

/* Can rows of n features of a view be loaded 16 bytes a time, from number `first` on? */
static bool is_wide(const AttendPages *a, const ZkView *v, int view, int n, int first) {
  int64_t bytes = (int64_t)zk_plain_bytes((ZkElem)v[view].elem);
  return zkc_wide(&v[view], &a->heads, view, n, a->by_feature[view]) && first * bytes % 16 == 0 &&
         a->by_page[view] * bytes % 16 == 0 && a->by_within[view] * bytes % 16 == 0;
}

/* Bytes that a span leaves of all rows of a token. */
static int64_t span_bytes(const AttendPages *a) {
  return (int64_t)a->heads.count * a->groups.count * (a->W + 2) * (int64_t)sizeof(float);
}

/* Cuts positions into as many spans as there is room for what they leave: none shorter than a piece. */
static void cut(AttendPages *a, int64_t tokens) {
  int64_t each = span_bytes(a) * (tokens > 0 ? tokens : 1), spans = SPANS_ROOM / (each > 0 ? each : 1);
  spans = spans < 1 ? 1 : spans > MOST_SPANS ? MOST_SPANS : spans;
  a->span = (int)zk_ceil_of(zk_ceil_of(a->most, spans), KEYS) * KEYS;
  a->spans = (unsigned)zk_ceil_of(a->most > 0 ? a->most : 1, a->span);
}

static AttendPages attend(const ZkCall *c) {
  AttendPages a = {};
  ZkView v[VIEWS] = {};
  bool pages = c->op == ZG_OP_ATTEND_PAGES;
  uint16_t page = pages ? c->ax[5] : c->ax[3], within = pages ? c->ax[6] : c->ax[4];
  a.scale = (float)c->num[0], a.cap = (float)c->num[1];
  set(&a, v, Q, &c->in[0]), set(&a, v, K, &c->in[1]), set(&a, v, V, &c->in[2]), set(&a, v, O, &c->out[0]);
  tell_more(&a, v, c, pages ? 6 : 4, pages ? page : within, pages ? c->ax[7] : within);
  bool own = zkc_find(&v[V], c->ax[2]) >= 0;
  a.part = own ? 0 : (int)c->opt[0];
  for (int i = 0; i < VIEWS; i++) {
    a.by_token[i] = zkc_stride(&v[i], c->ax[0]);
    a.by_feature[i] = zkc_stride(&v[i], i == O || (i == V && own) ? c->ax[2] : c->ax[1]);
    a.by_page[i] = zkc_stride(&v[i], page), a.by_within[i] = zkc_stride(&v[i], within);
  }
  a.by_position = pages ? zkc_stride(&v[BIAS], c->ax[7]) : 0;
  a.length_sequence = zkc_stride(&v[LENGTH], c->ax[3]);
  a.within = a.most = (int)zkc_size(&v[K], within);
  a.tokens = tokens_of(&c->in[pages ? 4 : 3], pages ? &c->in[5] : NULL, c->ax[0]);
  if (pages) {
    ZB_ASSERT(c->in[3].elem == ZK_I32);
    a.window = (int)c->opt[1];
    a.most *= (int)zkc_size(&c->in[3], c->ax[4]);
    a.table = (const int *)c->in[3].data;
    a.table_sequence = zkc_stride(&c->in[3], c->ax[3]), a.table_entry = zkc_stride(&c->in[3], c->ax[4]);
  }
  find_heads(&a, v, c);
  a.H = (int)zkc_size(&v[Q], c->ax[1]), a.W = (int)zkc_size(&v[O], c->ax[2]);
  ZB_ASSERT(a.H <= 1024 && a.W <= 1024);
  a.wide[0] = is_wide(&a, v, K, a.H, 0), a.wide[1] = is_wide(&a, v, V, a.W, a.part);
  cut(&a, a.tokens.n);
  zk_pages_mma_choose(&a, &v[Q]);
  return a;
}

/* Of any number of tokens up to the call's. */
extern "C" size_t zk_cuda_attend_pages_scratch(const ZkCall *c) {
  AttendPages a = attend(c);
  int64_t one = span_bytes(&a), all = one * a.tokens.n, most = all * zk_ceil_of(a.most, KEYS);
  if (most > all * MOST_SPANS) most = all * MOST_SPANS;
  if (most > SPANS_ROOM) most = SPANS_ROOM;
  return (size_t)(all > most ? all : most);
}

template <int ROWS> static void run(ZkCuda *cu, const ZkCall *c, AttendPages a) {
  int width = (a.H + 7) / 8 * 8, each = (a.W + 7) / 8;
  size_t bytes = (size_t)(ROWS * (width + KEYS)) * sizeof(float);
  size_t values = (size_t)(THREADS / each) * (size_t)a.W * sizeof(float);
  a.nparts = (unsigned)zk_ceil_of(a.groups.count, ROWS);
  int64_t total = (int64_t)a.tokens.n * a.heads.count * a.nparts * a.spans;
  ZB_ASSERT(total < (int64_t)1 << 32);
  a.total = (unsigned)total;
  ZK_LAUNCH(cu, c, attend_span<ROWS>, zk_blocks(cu, total), THREADS, bytes > values ? bytes : values, a);
}

extern "C" void zk_cuda_attend_pages(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  AttendPages a = attend(c);
  int64_t rows = (int64_t)a.tokens.n * a.heads.count * a.groups.count;
  if (rows == 0 || a.W == 0) return;
  a.left = (float *)c->scratch;
  if (a.groups.count == 1) run<1>(cu, c, a);
  else if (a.groups.count <= 4) run<4>(cu, c, a);
  else run<MOST_ROWS>(cu, c, a);
  if (a.many) zk_pages_mma(cu, c, a);
  if (a.spans > 1) ZK_LAUNCH(cu, c, join_spans, zk_blocks(cu, zk_ceil_of(rows, WARPS)), THREADS, 0, a);
}
