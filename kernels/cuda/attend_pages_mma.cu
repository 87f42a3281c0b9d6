/* attend_pages on tensor cores, for prompts: tokens of a sequence that are many in a tile read its keys together. bf16, with
 * heads of up to 128 elements; scores are summed in f32, and weights rounded to bf16 before they meet values, as by cuDNN
 * in training's forward.
 *
 * A block has a tile of tokens, and a head of keys with the queries that share it: 64 rows at the most, of which a
 * warp has 16. It goes over the sequences that are in the tile, and over the keys of each, with the peak and sum of each
 * row so far (Dao et al. 2022, FlashAttention). Tokens that are few in a tile are left to attend_pages.cu. */
#include "kernels/cuda/attend_pages.cuh"
#include "kernels/cuda/attend_tiles.cuh"

#define LOG2E 1.44269504f

/* What a lane knows of its two rows. */
typedef struct {
  int token, group, from, to; /* keys that it sees; to 0: it is not a row of this sequence */
  float peak, sum;
} Mine;

/* Where C keys lie; page below 0: there is none. */
template <int C> struct Places { int page[C], within[C]; };

template <int D, int C>
ZK_DEVICE void load_keys(const AttendPages &a, const Places<C> &at, int view, int width, long long off,
                         unsigned short *tile) {
  for (int u = threadIdx.x; u < C * D / 8; u += THREADS) {
    int j = u / (D / 8), c = u % (D / 8) * 8;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (at.page[j] >= 0 && c < width)
      x = zk_load16((const unsigned short *)a.p[view] + off + at.page[j] * a.by_page[view] +
                    at.within[j] * a.by_within[view] + c);
    *(uint4 *)&tile[j * Row<D>::LD + c] = x;
  }
}

/* Loads the queries of tokens [first, end) of the tile; zeros in other rows. */
template <int D>
ZK_DEVICE void load_queries(const AttendPages &a, int tile, int first, int end, unsigned head, int groups,
                            unsigned short *to) {
  for (int u = threadIdx.x; u < ROWS * D / 8; u += THREADS) {
    int r = u / (D / 8), c = u % (D / 8) * 8, token = tile + r / groups;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (token >= first && token < end && c < a.H) {
      long long off[VIEWS];
      seek(a, token, head, r % groups, off);
      x = zk_load16((const unsigned short *)a.p[Q] + off[Q] + c);
    }
    *(uint4 *)&to[r * Row<D>::LD + c] = x;
  }
}

/* The largest of, or the sum over, the four lanes that have a row. */
template <class F> ZK_DEVICE float of_row(float x, F f) {
  x = f(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return f(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Turns scores of the keys from `first` on into weights about the new peaks; what was summed about old ones fades. */
template <int D, int C>
ZK_DEVICE void soften(const AttendPages &a, int first, Mine (&mine)[2], float (&s)[C / 8][4],
                      float (&o)[D / 8][4]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float peak = mine[i].peak, sum = 0;
#pragma unroll
    for (int j = 0; j < C / 8; j++)
#pragma unroll
      for (int e = 2 * i; e < 2 * i + 2; e++) {
        int key = first + j * 8 + column_at(e);
        float x = s[j][e] * a.scale;
        if (a.cap > 0) x = a.cap * tanhf(x / a.cap);
        s[j][e] = key >= mine[i].from && key < mine[i].to ? x * LOG2E : -INFINITY;
        peak = fmaxf(peak, s[j][e]);
      }
    peak = of_row(peak, ZkMax());
    float fade = zk_exp2(mine[i].peak - peak);
    mine[i].peak = peak;
#pragma unroll
    for (int j = 0; j < C / 8; j++)
#pragma unroll
      for (int e = 2 * i; e < 2 * i + 2; e++) sum += s[j][e] = zk_exp2(s[j][e] - peak);
    mine[i].sum = mine[i].sum * fade + of_row(sum, ZkSum());
#pragma unroll
    for (int n = 0; n < D / 8; n++) o[n][2 * i] *= fade, o[n][2 * i + 1] *= fade;
  }
}

template <int D>
ZK_DEVICE void store(const AttendPages &a, unsigned head, const Mine (&mine)[2], const float (&o)[D / 8][4]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    long long off[VIEWS];
    if (mine[i].to == 0) continue;
    seek(a, mine[i].token, head, mine[i].group, off);
    float factor = mine[i].sum == 0 ? 1 : 1 / mine[i].sum;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
      for (int e = 2 * i; e < 2 * i + 2; e++) {
        int w = n * 8 + column_at(e);
        if (w < a.W) zk_store(a.p[O], a.elem[O], off[O] + w * a.by_feature[O], o[n][e] * factor);
      }
  }
}

template <int D, int C>
static __global__ void __launch_bounds__(THREADS) attend_prompt(const __grid_constant__ AttendPages a) {
  ZK_SHARED_DYNAMIC(unsigned short, q);
  ZK_SHARED(Places<C>, held, [1]);
  unsigned short *k = q + ROWS * Row<D>::LD, *v = k + C * Row<D>::LD;
  unsigned tiles = blockIdx.x / a.heads.count, head = blockIdx.x - tiles * a.heads.count;
  int groups = (int)a.groups.count, tile = (int)tiles * a.tile, stop = min(tile + a.tile, a.tokens.n);
  long long off[VIEWS];
  zkc_seek(a.heads, head, off);
  for (int first = tile, end; first < stop; first = end) {
    int sequence = sequence_at(a.tokens, first);
    for (end = first + 1; end < stop && sequence_at(a.tokens, end) == sequence;) end++;
    if (sequence < 0 || end - first < a.many) continue; /* all threads alike */
    Mine mine[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int r = row_at(2 * i), token = tile + r / groups, g = r % groups;
      bool there = token >= first && token < end;
      Seen seen = there ? seen_by(a, token, sequence) : Seen{0, 0};
      long long at[VIEWS];
      mine[i].token = token, mine[i].group = g, mine[i].from = seen.from, mine[i].to = seen.to;
      if (there) seek(a, token, head, g, at);
      begin(a, there ? at[SINK] : 0, &mine[i].peak, &mine[i].sum);
    }
    __syncthreads(); /* the queries before are in use until here */
    load_queries<D>(a, tile, first, end, head, groups, q);
    float o[D / 8][4] = {}, s[C / 8][4];
    int to = seen_by(a, end - 1, sequence).to;
    for (int key = seen_by(a, first, sequence).from / C * C; key < to; key += C) {
      for (int j = threadIdx.x; j < C; j += THREADS) {
        int at = key + j;
        held->page[j] = at < to ? a.table[sequence * a.table_sequence + at / a.within * a.table_entry] : -1;
        held->within[j] = at % a.within;
      }
      __syncthreads();
      load_keys<D, C>(a, held[0], K, a.H, off[K], k);
      load_keys<D, C>(a, held[0], V, a.W, off[V] + a.part * a.by_feature[V], v);
      __syncthreads();
      scores<D, C>(q, k, s);
      soften<D, C>(a, key, mine, s, o);
      weigh<D, C>(s, v, o);
      __syncthreads();
    }
    store<D>(a, head, mine, o);
  }
}

/* ---- which calls, and how ------------------------------------------------------------------------------ */
/* Do rows of queries begin at multiples of 16 bytes? */
static bool is_wide(const AttendPages *a, const ZkView *q) {
  return a->by_token[Q] % 8 == 0 && zkc_wide(q, &a->heads, Q, a->H, a->by_feature[Q]) &&
         zkc_aligned(q, &a->groups, Q, a->by_feature[Q]);
}

void zk_pages_mma_choose(AttendPages *a, const ZkView *q) {
  bool half = a->elem[Q] == ZK_BF16 && a->elem[K] == ZK_BF16 && a->elem[V] == ZK_BF16;
  a->tile = a->many = 0;
  if (!half || !a->table || a->has[BIAS] || a->has[DOCS_K] || a->H > 128 || a->W > 128 ||
      a->groups.count > 16 || !a->wide[0] || !a->wide[1] || !is_wide(a, q) || a->tokens.n < 16)
    return;
  a->tile = ROWS / (int)a->groups.count;
  a->many = a->tile / 4;
}

template <int D, int C> static void run(ZkCuda *cu, const ZkCall *call, AttendPages a) {
  size_t bytes = sizeof(unsigned short) * (ROWS + 2 * C) * Row<D>::LD;
  int64_t grid = zk_ceil_of(a.tokens.n, a.tile) * a.heads.count;
  ZB_ASSERT(grid < (int64_t)1 << 31);
  auto kernel = attend_prompt<D, C>;
  ZK_LAUNCH(cu, call, kernel, (unsigned)grid, THREADS, bytes, a);
}

void zk_pages_mma(ZkCuda *cu, const ZkCall *call, const AttendPages &a) {
  if (a.H <= 64 && a.W <= 64) run<64, 64>(cu, call, a);
  else run<128, 32>(cu, call, a);
}
