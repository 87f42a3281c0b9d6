/* Batch-invariant calls: right, and each row has the bits that it has in a call of its own, by
 * any number of threads, on every instruction set that this machine has. Axis t, of tokens, is
 * the slowest of what has it. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/invariant.h"
#include "tests/unit/kernels/bgemm.h"
#include "tests/unit/kernels/conform.h"

#define MOST 130 /* tokens */
static const int64_t token_counts[] = {1, 2, 3, 7, 8, 9, 64, MOST};

/* ---- calls of some tokens ------------------------------------------------------------------------------ */

typedef struct {
  int op;
  const char *in[3], *out[2], *ax; /* a letter for each axis, slowest first; "#": numbers of rows of axis v */
  int64_t size[128];               /* by letter */
  ZkElem elem, out_elem;           /* of f32 or bf16 operands and results */
  double num;
  int64_t opt;
  const ZkPointwise *pointwise;
  int64_t parts; /* ax[0] is split into so many */
  float value;   /* of the first operand, and that of others negated; 0: normally distributed */
} Rows;

static int64_t elements(const Rows *r, const char *axes, bool of_token) {
  int64_t n = 1;
  for (; *axes && *axes != '#'; axes++)
    if (!of_token || *axes != 't') n *= r->size[(int)*axes];
  return n;
}

static ZkView view(const Rows *r, const char *axes, int64_t tokens, void *data, ZkElem elem) {
  ZkView v = {.data = data, .elem = (uint8_t)elem};
  for (; axes[v.rank] && axes[v.rank] != '#'; v.rank++) {
    v.axis[v.rank] = (uint16_t)axes[v.rank];
    v.size[v.rank] = v.whole[v.rank] = axes[v.rank] == 't' ? tokens : r->size[(int)axes[v.rank]];
    if (r->parts > 1 && axes[v.rank] == r->ax[0]) v.whole[v.rank] *= r->parts;
  }
  int64_t stride = 1;
  for (int i = v.rank - 1; i >= 0; stride *= v.size[i--]) v.stride[i] = stride;
  return v;
}

static size_t bytes_of(ZkElem e, int64_t n) { return zk_bytes(e, (uint64_t)n); }

static void *operand(const Rows *r, int i) {
  int64_t n = elements(r, r->in[i], false);
  char *x = malloc(bytes_of(ZK_F32, n));
  for (int64_t k = 0; k < n; k++) {
    float value = (float)zb_random_normal(7, (uint64_t)i, (uint64_t)k);
    if (r->value != 0) value = i ? -r->value : r->value;
    if (strchr(r->in[i], '#'))
      ((int32_t *)(void *)x)[k] = (int32_t)((uint64_t)(k * 7 + 3) % (uint64_t)r->size['v']);
    else if (r->elem == ZK_BF16) ((uint16_t *)(void *)x)[k] = zb_f32_to_bf16(value);
    else ((float *)(void *)x)[k] = value;
  }
  return x;
}

static char scratch[8 << 20] __attribute__((aligned(64)));

/* Runs the call on `tokens` tokens from `first` on, with as much scratch as the most tokens need. */
static void run(const Rows *r, void *const *in, void *const *out, int64_t first, int64_t tokens,
                int threads) {
  static ZkEnv env[4];
  if (!env[threads].pool) env[threads].pool = zk_pool_new(threads);
  ZkCall c = {
      .op = (uint16_t)r->op, .num = {r->num}, .opt = {r->opt}, .pointwise = r->pointwise, .invariant = true};
  ZkCall most = c;
  for (int k = 0; k < 2; k++) {
    ZkCall *to = k ? &most : &c;
    for (to->nin = 0; to->nin < 3 && r->in[to->nin]; to->nin++) {
      const char *axes = r->in[to->nin];
      ZkElem elem = strchr(axes, '#') ? ZK_I32 : r->elem;
      int64_t at = axes[0] == 't' ? first * elements(r, axes, true) : 0;
      to->in[to->nin] = view(r, axes, k ? MOST : tokens, (char *)in[to->nin] + bytes_of(elem, at), elem);
    }
    for (to->nout = 0; to->nout < 2 && r->out[to->nout]; to->nout++) {
      const char *axes = r->out[to->nout];
      ZkElem elem = strchr(axes, '#') ? ZK_I32 : r->out_elem;
      to->out[to->nout] = view(r, axes, k ? MOST : tokens, out[to->nout], elem);
    }
    for (; r->ax[to->nax]; to->nax++) to->ax[to->nax] = (uint16_t)r->ax[to->nax];
  }
  size_t bytes = zk_cpu_scratch(&most, threads);
  EACH_ASSERT(zk_cpu_scratch(&c, threads) <= bytes, "%lld tokens need more scratch than %d",
              (long long)tokens, MOST);
  EACH_ASSERT(bytes <= sizeof scratch, "%zu bytes", bytes);
  c.scratch = scratch;
  zk_cpu_kernel(r->op)(&env[threads], &c);
}

/* Fails unless each row of every call has the bits that it has alone. */
static void same_rows(const char *what, Rows r) {
  void *in[3] = {0}, *alone[2] = {0}, *among[2] = {0};
  size_t row[2] = {0};
  r.size['t'] = MOST;
  memset(scratch, 0xff, sizeof scratch); /* NaN */
  for (int i = 0; i < 3 && r.in[i]; i++) in[i] = operand(&r, i);
  for (int i = 0; i < 2 && r.out[i]; i++) {
    row[i] = bytes_of(ZK_F32, elements(&r, r.out[i], true));
    alone[i] = malloc(MOST * row[i]), among[i] = malloc(MOST * row[i]);
    row[i] = bytes_of(strchr(r.out[i], '#') ? ZK_I32 : r.out_elem, elements(&r, r.out[i], true));
  }
  for (int64_t t = 0; t < MOST; t++) {
    void *to[2] = {(char *)alone[0] + (size_t)t * row[0],
                   alone[1] ? (char *)alone[1] + (size_t)t * row[1] : NULL};
    run(&r, in, to, t, 1, 1);
  }
  for (size_t k = 0; k < sizeof token_counts / sizeof *token_counts; k++)
    for (int threads = 1; threads <= 3; threads++) {
      int64_t m = token_counts[k], first = (int64_t)(k * 5 + (size_t)threads) % (MOST - m + 1);
      run(&r, in, among, first, m, threads);
      for (int64_t t = 0; t < m; t++)
        for (int i = 0; i < 2 && r.out[i]; i++)
          EACH_ASSERT(!memcmp((char *)among[i] + (size_t)t * row[i],
                              (char *)alone[i] + (size_t)(first + t) * row[i], row[i]),
                      "%s, %s -> %s, %s operands: row %lld of %lld, %d threads, is not what it is alone",
                      what, r.in[1], r.out[0], r.elem == ZK_BF16 ? "bf16" : "f32", (long long)t, (long long)m,
                      threads);
    }
  for (int i = 0; i < 3; i++) free(in[i]);
  for (int i = 0; i < 2; i++) free(alone[i]), free(among[i]);
}

static void same_rows_of(const char *what, Rows r) {
  r.elem = r.out_elem = ZK_F32;
  if (!zk_bgemm_here()) same_rows(what, r); /* else as by another set */
  r.elem = r.out_elem = ZK_BF16;
  same_rows(what, r);
}

/* ---- by every instruction set -------------------------------------------------------------------------- */

/* Shows fn each way that this machine has to multiply: f32 sets, then bf16 instructions. */
static void each_set(void (*fn)(const char *what)) {
  static const char *const names[] = {"any x86", "AVX2", "AVX-512"};
  const ZkBgemmPath *const paths[] = {&zk_bgemm_avx512, &zk_bgemm_amx};
  const void *own = swap_path(NULL);
  for (int set = 0; set < 3; set++)
    if (zk_fgemm_use(set) && zk_few_rows_use(set)) fn(names[set]);
  for (int i = 0; i < 2; i++)
    if (paths[i]->here()) {
      swap_path(paths[i]);
      fn(paths[i]->text);
    }
  swap_path(own);
}

static void dots(const char *what) {
  same_rows(what, (Rows){.op = ZG_OP_DOT,
                         .in = {"tk", "kn"},
                         .out = {"tn"},
                         .ax = "k",
                         .elem = ZK_BF16,
                         .size = {['k'] = 77, ['n'] = 37},
                         .out_elem = ZK_F32});
#define DOT(a, b, c, axes, ...)                                                                              \
  same_rows_of(what, (Rows){.op = ZG_OP_DOT, .in = {a, b}, .out = {c}, .ax = axes, .size = {__VA_ARGS__}})
  DOT("tk", "kn", "tn", "k", ['k'] = 77, ['n'] = 37);
  DOT("tk", "nk", "tn", "k", ['k'] = 77, ['n'] = 37);
  DOT("tk", "kn", "tn", "k", ['k'] = 2500, ['n'] = 5);   /* chunks of several pieces */
  DOT("tk", "nk", "tn", "k", ['k'] = 2500, ['n'] = 3);   /* the same */
  DOT("tk", "kn", "tn", "k", ['k'] = 33, ['n'] = 1100);  /* several blocks of columns */
  DOT("tk", "kn", "tn", "k", ['k'] = 400, ['n'] = 1100); /* threads share out chunks */
  DOT("tk", "nk", "tn", "k", ['k'] = 400, ['n'] = 300);  /* and columns along k */
  DOT("tk", "khd", "tdh", "k", ['k'] = 130, ['h'] = 3, ['d'] = 19);
  DOT("thd", "hdn", "tn", "hd", ['h'] = 6, ['d'] = 24, ['n'] = 33);
  DOT("tdh", "hdn", "tn", "hd", ['h'] = 6, ['d'] = 24, ['n'] = 33); /* rows across k */
  DOT("thd", "nhd", "tn", "dh", ['h'] = 6, ['d'] = 24, ['n'] = 33);
  DOT("thd", "dnh", "tn", "dh", ['h'] = 5, ['d'] = 7, ['n'] = 3);   /* nothing runs */
  DOT("thk", "nhk", "thn", "k", ['h'] = 3, ['k'] = 40, ['n'] = 21); /* heads are batched: latent attention */
  DOT("thn", "nhk", "thk", "n", ['h'] = 3, ['k'] = 40, ['n'] = 21);
  DOT("tk", "k", "t", "k", ['k'] = 300); /* one column: operands swap roles */
  same_rows_of(what, (Rows){.op = ZG_OP_DOT,
                            .in = {"tk", "kn"},
                            .out = {"tn"},
                            .ax = "k",
                            .value = 1e-30f,
                            .size = {['k'] = 40, ['n'] = 33}}); /* products are -0 */
  DOT("thk", "thk", "th", "k", ['h'] = 3, ['k'] = 4100);        /* no axis is one operand's */
}

/* Each row has its bits whatever the number of rows, in all layouts. */
Test(invariant, dot_rows) { each_set(dots); }

/* ---- the order of summation ---------------------------------------------------------------------------- */

enum { K = 213, N = 21 };

static float add_chunk(const float *x, const float *w, int k, int n, bool fused) {
  float sum = 0;
  for (; n > 0; k++, n--) sum = fused ? fmaf(x[k], w[k * N], sum) : x[k] * w[k * N] + sum;
  return sum;
}
/* Adds n terms from k on, halved so often. */
static float add_chunks(const float *x, const float *w, int k, int n, int times, bool fused) {
  if (!times) return add_chunk(x, w, k, n, fused);
  return add_chunks(x, w, k, n / 2, times - 1, fused) +
         add_chunks(x, w, k + n / 2, n - n / 2, times - 1, fused);
}

/* It is that of invariant.h. */
Test(invariant, order) {
  Rows r = {
      .op = ZG_OP_DOT, .in = {"tk", "kn"}, .out = {"tn"}, .ax = "k", .elem = ZK_F32, .out_elem = ZK_F32};
  r.size['t'] = 9, r.size['k'] = K, r.size['n'] = N;
  float *in[2] = {operand(&r, 0), operand(&r, 1)}, y[9 * N];
  for (int set = 0; set < 3; set++)
    for (int t = 1; zk_fgemm_use(set) && zk_few_rows_use(set) && t <= 9; t += 4) {
      run(&r, (void *[]){in[0], in[1]}, (void *[]){y}, 0, t, 2);
      for (int i = 0; i < t * N; i++) {
        float sum = add_chunks(in[0] + i / N * K, in[1] + i % N, 0, K, 3, set > 0);
        EACH_ASSERT(!memcmp(&y[i], &sum, sizeof sum), "set %d, row %d of %d: %a for %a", set, i / N, t, y[i],
                    sum);
      }
    }
  free(in[0]), free(in[1]);
}

/* Ranks with neighbouring parts of k make subtrees: of products, and (`w` NULL) of sums over k. */
static void parts_of(const char *what, Rows r, size_t k, size_t most) {
  enum { M = 9 };
  size_t bytes = r.elem == ZK_BF16 ? 2 : 4, columns = r.in[1] ? N : 1;
  r.size['t'] = M, r.size['k'] = (int64_t)k, r.size['n'] = N;
  char *x = operand(&r, 0), *w = r.in[1] ? operand(&r, 1) : NULL;
  float whole[M * N], part[8][M * N];
  run(&r, (void *[]){x, w}, (void *[]){whole}, 0, M, 2);
  for (size_t n = 2; n <= most; n *= 2) {
    size_t each = k / n;
    Rows own = r;
    own.size['k'] = (int64_t)each, own.parts = (int64_t)n;
    char *mine = malloc(M * each * bytes);
    for (size_t i = 0; i < n; i++) {
      for (size_t t = 0; t < M; t++)
        memcpy(mine + t * each * bytes, x + (t * k + i * each) * bytes, each * bytes);
      run(&own, (void *[]){mine, w ? w + i * each * N * bytes : NULL}, (void *[]){part[i]}, 0, M, 2);
    }
    free(mine);
    for (size_t step = 1; step < n; step *= 2)
      for (size_t i = 0; i < n; i += 2 * step)
        for (size_t j = 0; j < M * columns; j++) part[i][j] += part[i + step][j];
    cr_assert(!memcmp(part[0], whole, M * columns * sizeof *whole), "%s, %zu parts of %zu, %s", what, n, k,
              r.elem == ZK_BF16 ? "bf16" : "f32");
  }
  free(x), free(w);
}

static void parts(const char *what) {
  static const size_t sizes[] = {640, 24, 8, 1000, 4104};
  for (int half = 0; half < 2; half++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      Rows r = {.op = ZG_OP_DOT, .in = {"tk", "kn"}, .out = {"tn"}, .ax = "k", .out_elem = ZK_F32};
      r.elem = half ? ZK_BF16 : ZK_F32;
      parts_of(what, r, sizes[i], 8);
      parts_of(what, r, sizes[i] / 8 * 4 + 4, 4);
      r.op = ZG_OP_SUM, r.in[1] = NULL, r.out[0] = "t";
      parts_of(what, r, sizes[i], 8);
    }
}
Test(invariant, parts) { each_set(parts); }

/* ---- experts ------------------------------------------------------------------------------------------- */

/* A row of an expert alone has the bits that dot gives it, and that it has among others. */
static void experts(const char *what) {
  enum { E = 3, ROWS = 40 };
  static const char *const layouts[] = {"ekn", "enk"};
  static int32_t ends[E] = {1, 12, 37};
  for (int l = 0; l < 2; l++)
    for (int half = 0; half < 2; half++) {
      Rows one = {
          .op = ZG_OP_DOT, .in = {"tk", layouts[l] + 1}, .out = {"tn"}, .ax = "k", .out_elem = ZK_F32};
      one.elem = half ? ZK_BF16 : ZK_F32;
      one.size['t'] = ROWS, one.size['k'] = 133, one.size['n'] = 37, one.size['e'] = E;
      Rows all = one;
      all.in[1] = layouts[l];
      char *x = operand(&one, 0), *w = operand(&all, 1);
      float y[ROWS * 37], z[37];
      ZkEnv env = {.pool = zk_pool_new(2)};
      ZkCall c = {
          .op = ZG_OP_GROUPED_DOT, .nin = 3, .nout = 1, .nax = 3, .ax = {'e', 't', 'k'}, .invariant = true};
      c.in[0] = view(&one, "tk", ROWS, x, one.elem), c.in[1] = view(&all, layouts[l], ROWS, w, one.elem);
      c.in[2] = view(&all, "e", ROWS, ends, ZK_I32), c.out[0] = view(&one, "tn", ROWS, y, ZK_F32);
      c.scratch = scratch;
      EACH_ASSERT(zk_cpu_scratch(&c, 2) <= sizeof scratch, "scratch");
      zk_cpu_kernel(c.op)(&env, &c);
      zk_pool_free(env.pool);
      for (int e = 0, t = 0; t < ROWS; t++) {
        while (e < E && t >= ends[e]) e++;
        memset(z, 0, sizeof z);
        char *mine = w + bytes_of(one.elem, e * 133 * 37);
        if (e < E) run(&one, (void *[]){x, mine}, (void *[]){z}, t, 1, 1);
        cr_assert(!memcmp(z, y + t * 37, sizeof z), "%s, %s, %s: row %d", what, layouts[l],
                  half ? "bf16" : "f32", t);
      }
      free(x), free(w);
    }
}
Test(invariant, grouped) { each_set(experts); }

static void right_experts(const char *what) {
  (void)what;
  static double some[] = {0, 9, 9, 14}, all[] = {1, 20, 21, 64};
  double *ends[] = {some, all};
  for (int i = 0; i < 2; i++) {
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16 k=33 n=17", .ax = "esk",
            .in = {{"esk"}, {"ekn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"esn"}}, .tol = 3e-6);
    CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=64 k=3 l=5 n=7 m=4", .ax = "eslk",
            .in = {{"slk"}, {"elmkn"}, {"e", ID, 0, 0, ends[i]}}, .out = {{"smn"}}, .tol = 3e-6);
  }
  CONFORM(.op = ZG_OP_GROUPED_DOT, .dims = "e=4 s=16", .ax = "es",
          .in = {{"es"}, {"e"}, {"e", ID, 0, 0, all}}, .out = {{"es"}}, .tol = 3e-6);
}
Test(invariant, grouped_dot) {
  conform_invariant = true;
  each_set(right_experts);
}

/* ---- other kernels ------------------------------------------------------------------------------------- */

/* Functions of x[t, d], w[d] and r[t], such as a step's norms and activations are. */
enum { X, W, R };
#define DO(op, a, b)                                                                                         \
  { ZG_OP_##op, a, b, 0, 0, 0 }
static ZkPointwiseOp scaled[] = {DO(MUL, X, R), DO(MUL, 3, W), DO(ADD, 4, X)};
static ZkPointwiseOp folded[] = {
    DO(EXP, R, 0), {ZG_OP_FILL, 0, 0, 0, 0, 3}, DO(MUL, 3, 4), DO(MUL, W, X), DO(ADD, 5, 6)};
static ZkPointwiseOp large[] = {DO(EXP, X, 0), DO(EXP, 3, 0),
                                DO(SIN, 4, 0)}; /* some of the sines' arguments */
static const ZkPointwise functions[] = {{.nops = 3, .nout = 1, .out = {5}, .ops = scaled},
                                        {.nops = 5, .nout = 1, .out = {7}, .ops = folded},
                                        {.nops = 3, .nout = 1, .out = {5}, .ops = large}};

Test(invariant, pointwise_rows) {
  swap_path(NULL);
  static const int64_t sizes[] = {1, 5, 40, 1500};
  for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      Rows r = {
          .op = ZG_OP_POINTWISE, .in = {"td", "d", "t"}, .out = {"td"}, .ax = "", .size = {['d'] = sizes[i]}};
      r.pointwise = &functions[f];
      same_rows_of("pointwise", r);
      r.size['h'] = 3;
      r.in[0] = "thd", r.in[1] = "hd", r.out[0] = "tdh";
      if (sizes[i] < 100) same_rows_of("pointwise into another order", r);
    }
}

Test(invariant, other_rows) {
  swap_path(NULL);
#define OP(name, a, b, y, r, axes, ...)                                                                      \
  same_rows_of(#name, (Rows){.op = ZG_OP_##name, .in = {a, b}, .out = {y, r}, .ax = axes, __VA_ARGS__})
  OP(NORMALIZE, "td", NULL, "td", "t", "d", .num = 1e-5, .opt = 1, .size = {['d'] = 77});
  OP(NORMALIZE, "thd", NULL, "thd", "th", "d", .num = 1e-5, .size = {['h'] = 3, ['d'] = 40});
  OP(SOFTMAX, "td", NULL, "td", NULL, "d", .size = {['d'] = 77});
  OP(SUM, "td", NULL, "t", NULL, "d", .size = {['d'] = 5000});
  OP(SUM, "thd", NULL, "td", NULL, "h", .size = {['h'] = 600, ['d'] = 3});
  OP(SUM, "thd", NULL, "th", NULL, "d", .size = {['h'] = 3, ['d'] = 77});
  OP(PEAK, "td", NULL, "t", NULL, "d", .size = {['d'] = 5000});
  OP(LOOKUP, "vd", "t#", "td", NULL, "v", .size = {['v'] = 11, ['d'] = 19});
  OP(TOPK, "td", NULL, "tk", "tk#", "dk", .size = {['d'] = 33, ['k'] = 4, ['v'] = 33});
}

/* ---- right --------------------------------------------------------------------------------------------- */

#define TOL 3e-6
static void right_dots(const char *what) {
  (void)what;
  CONFORM(.op = ZG_OP_DOT, .dims = "t=5 e=133 f=35", .ax = "e", .in = {{"te"}, {"ef"}}, .out = {{"tf"}},
          .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "t=21 e=133 f=35", .ax = "e", .in = {{"te"}, {"fe"}}, .out = {{"tf"}},
          .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "t=3 h=3 d=40 e=17", .ax = "hd", .in = {{"thd"}, {"hde"}}, .out = {{"te"}},
          .accumulate = true, .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "t=9 h=3 d=40 r=17", .ax = "d", .in = {{"thd"}, {"rhd"}}, .out = {{"thr"}},
          .tol = TOL);
  CONFORM(.op = ZG_OP_DOT, .dims = "t=4 e=600", .ax = "e", .in = {{"te"}, {"e"}}, .out = {{"t"}}, .tol = TOL);
}

Test(invariant, dot) {
  conform_invariant = true;
  each_set(right_dots);
  conform_invariant = false;
}
