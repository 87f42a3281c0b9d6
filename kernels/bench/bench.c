/* bench-kernels [THREADS [WORD]]: times every CPU kernel whose line contains WORD at shapes of GPT-2,
 * small and 124M, against the peaks that the same run measures: matrix products for what multiplies, a
 * copy for what moves. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/base.h"
#include "graph/ops.h"
#include "kernels/optimize.h"

/* An axis is a letter; its number is the letter, its size is in a model's table. */
typedef struct {
  const char *name;
  int64_t size[128];
} Model;

static const Model models[] = {
    {"384",
     {['b'] = 8,
      ['s'] = 256,
      ['e'] = 384,
      ['f'] = 1536,
      ['h'] = 6,
      ['k'] = 6,
      ['g'] = 1,
      ['d'] = 64,
      ['v'] = 256}},
    {"768",
     {['b'] = 8,
      ['s'] = 256,
      ['e'] = 768,
      ['f'] = 3072,
      ['h'] = 12,
      ['k'] = 4,
      ['g'] = 3,
      ['d'] = 64,
      ['v'] = 2048}},
    {"large",
     {['b'] = 1,
      ['s'] = 1024,
      ['e'] = 768,
      ['f'] = 3072,
      ['h'] = 12,
      ['k'] = 3,
      ['g'] = 4,
      ['d'] = 64,
      ['v'] = 50257}},
};

/* Views are words of axes in memory order, operands, then "->", then results; a word ending in # is i32. */
typedef struct {
  uint16_t op;
  const char *views, *ax;
  double num;
  int64_t opt;
  bool accumulate;
  const char *pointwise; /* the name of a pointwise function */
} Case;

static const Case cases[] = {
    {ZG_OP_DOT, "bse ef -> bsf", "e", 0, 0, false, NULL},
    {ZG_OP_DOT, "bsf fe -> bse", "f", 0, 0, false, NULL},
    {ZG_OP_DOT, "bsf ef -> bse", "f", 0, 0, false, NULL},
    {ZG_OP_DOT, "bse bsf -> ef", "bs", 0, 0, true, NULL},
    {ZG_OP_DOT, "bsf bse -> ef", "bs", 0, 0, true, NULL},
    {ZG_OP_DOT, "bse ehd -> bshd", "e", 0, 0, false, NULL},
    {ZG_OP_DOT, "bse ehd -> bsdh", "e", 0, 0, false, NULL},
    {ZG_OP_DOT, "bse ve -> bsv", "e", 0, 0, false, NULL},
    {ZG_OP_DOT, "bshd bthd -> bhst", "d", 0, 0, false, NULL},
    {ZG_OP_DOT, "bse bse -> e", "bs", 0, 0, true, NULL},
    {ZG_OP_ATTEND, "bskgd bskd bskd -> bskgd bskg", "sd", 0.125, 1, false, NULL},
    {ZG_OP_ATTEND, "bskgd bskd bskd -> bskgd bskg", "sd", 0.125, 0, false, NULL},
    {ZG_OP_ATTEND, "bsdkg bsdk bsdk -> bsdkg bskg", "sd", 0.125, 1, false, NULL},
    {ZG_OP_ATTEND_GRAD, "bskgd bskgd bskg bskgd bskd bskd -> bskgd bskd bskd", "sd", 0.125, 1, false, NULL},
    {ZG_OP_ATTEND_GRAD, "bskgd bskgd bskg bskgd bskd bskd -> bskgd bskd bskd", "sd", 0.125, 0, false, NULL},
    {ZG_OP_NORMALIZE, "bse -> bse bs", "e", 1e-5, 1, false, NULL},
    {ZG_OP_NORMALIZE_GRAD, "bse bse bs -> bse", "e", 1e-5, 1, false, NULL},
    {ZG_OP_SOFTMAX, "bse -> bse", "e", 0, 0, false, NULL},
    {ZG_OP_SOFTMAX_GRAD, "bse bse -> bse", "e", 0, 0, false, NULL},
    {ZG_OP_ROPE, "bskgd -> bskgd", "sd", 10000, 0, false, NULL},
    {ZG_OP_LOOKUP, "ve bs# -> bse", "v", 0, 0, false, NULL},
    {ZG_OP_LOOKUP_GRAD, "bse bs# -> ve", "v", 0, 0, true, NULL},
    {ZG_OP_PEAK, "bsv -> bs", "v", 0, 0, false, NULL},
    {ZG_OP_XENT_SUMS, "bsv bs bs# -> bs bs", "v", 0, 0, false, NULL},
    {ZG_OP_XENT_GRAD, "bsv bs bs# bs bs -> bsv", "v", 0, 0, false, NULL},
    {ZG_OP_SUM, "bse -> e", "bs", 0, 0, true, NULL},
    {ZG_OP_SUM, "bse -> bs", "e", 0, 0, false, NULL},
    {ZG_OP_SUM, "bse -> .", "bse", 0, 0, false, NULL},
    {ZG_OP_CUMSUM, "bse -> bse", "e", 0, 0, false, NULL},
    {ZG_OP_CUMSUM, "bse -> bse", "s", 0, 0, false, NULL},
    {ZG_OP_POINTWISE, "bse bse -> bse", "", 0, 0, false, "add"},
    {ZG_OP_POINTWISE, "bse e e -> bse", "", 0, 0, false, "affine"},
    {ZG_OP_POINTWISE, "bsf f -> bsf", "", 0, 0, false, "bias+gelu"},
    {ZG_OP_POINTWISE, "bsf bsf -> bsf", "", 0, 0, false, "gelu'"},
    {ZG_OP_POINTWISE, "bsf bsf -> bsf", "", 0, 0, false, "silu*"},
    {ZG_OP_POINTWISE, "bsf -> bsf", "", 0, 0, false, "erf"},
    {ZG_OP_POINTWISE, "bs bs bs -> bs", "", 0, 0, false, "xent"},
    {ZG_OP_RANDOM, "-> bse", "", 0.9, 7, false, NULL},
    {ZG_OP_COPY, "bse -> bse", "", 0, 0, false, NULL},
    {ZG_OP_COPY, "bse -> ebs", "", 0, 0, false, NULL},
    {ZG_OP_COPY, "bshd -> bhsd", "", 0, 0, false, NULL},
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory: one mapping that asks for huge pages, as in a run ----------------------------------------- */
typedef struct {
  char *base;
  size_t used, size;
} Memory;

static Memory memory_new(size_t size) {
  Memory m = {.size = size};
  m.base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ZB_ASSERT(m.base != MAP_FAILED);
  madvise(m.base, size, MADV_HUGEPAGE);
  return m;
}

static void *take_memory(Memory *m, size_t bytes) {
  void *p = m->base + m->used;
  m->used += zb_round_up(bytes, 64);
  ZB_ASSERT(m->used <= m->size);
  return p;
}

/* ---- cases --------------------------------------------------------------------------------------------- */
static ZkView view(Memory *m, const Model *model, const char *word, size_t len) {
  ZkView v = {.elem = ZK_F32};
  if (len && word[len - 1] == '#') v.elem = ZK_I32, len--;
  if (len == 1 && word[0] == '.') len = 0; /* a scalar */
  int64_t n = 1;
  v.rank = (uint8_t)len;
  for (size_t i = len; i-- > 0;) {
    v.axis[i] = (uint16_t)word[i];
    v.size[i] = v.whole[i] = model->size[word[i] == 't' ? 's' : (int)word[i]];
    v.stride[i] = n;
    n *= v.size[i];
  }
  v.data = take_memory(m, (size_t)n * 4);
  for (int64_t i = 0; i < n; i++) {
    double u = zb_random_unit(1, 2, (uint64_t)i);
    if (v.elem == ZK_I32) ((int32_t *)v.data)[i] = (int32_t)(u * (double)model->size['v']);
    else ((float *)v.data)[i] = (float)(2 * u - 1);
  }
  return v;
}

static int64_t count(const ZkView *v) {
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->size[i];
  return n;
}

typedef struct {
  ZkPointwise fn;
  ZkPointwiseOp ops[ZK_POINTWISE_MAX_OPS];
  int nin;
} Function;

static uint16_t emit(Function *c, int op, int a, int b) {
  c->ops[c->fn.nops] = (ZkPointwiseOp){.op = (uint16_t)op, .a = (uint16_t)a, .b = (uint16_t)b};
  return (uint16_t)(c->nin + c->fn.nops++);
}
static uint16_t fill(Function *c, float x) {
  uint16_t r = emit(c, ZG_OP_FILL, 0, 0);
  c->ops[r - c->nin].num = x;
  return r;
}

/* tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
static uint16_t gelu_tanh(Function *c, int x) {
  int cube = emit(c, ZG_OP_MUL, emit(c, ZG_OP_MUL, x, x), x);
  int sum = emit(c, ZG_OP_ADD, x, emit(c, ZG_OP_MUL, fill(c, 0.044715f), cube));
  return emit(c, ZG_OP_TANH, emit(c, ZG_OP_MUL, fill(c, 0.7978845608f), sum), 0);
}

static int function_of(Function *c, const char *name) {
  if (!strcmp(name, "add")) return emit(c, ZG_OP_ADD, 0, 1);
  if (!strcmp(name, "affine")) return emit(c, ZG_OP_ADD, emit(c, ZG_OP_MUL, 0, 1), 2);
  if (!strcmp(name, "erf")) return emit(c, ZG_OP_ERF, 0, 0);
  if (!strcmp(name, "bias+gelu")) {
    int x = emit(c, ZG_OP_ADD, 0, 1);
    return emit(c, ZG_OP_MUL, emit(c, ZG_OP_MUL, fill(c, 0.5f), x),
                emit(c, ZG_OP_ADD, fill(c, 1), gelu_tanh(c, x)));
  }
  if (!strcmp(name, "gelu'")) { /* g (0.5 (1 + t) + 0.5 x (1 - t^2) sqrt(2/pi) (1 + 3 0.044715 x^2)) */
    int x = 0, t = gelu_tanh(c, x), one = fill(c, 1), half = fill(c, 0.5f);
    int inner = emit(c, ZG_OP_ADD, one, emit(c, ZG_OP_MUL, fill(c, 0.134145f), emit(c, ZG_OP_MUL, x, x)));
    int slope = emit(c, ZG_OP_MUL, emit(c, ZG_OP_SUB, one, emit(c, ZG_OP_MUL, t, t)),
                     emit(c, ZG_OP_MUL, fill(c, 0.7978845608f), inner));
    int right = emit(c, ZG_OP_MUL, emit(c, ZG_OP_MUL, half, x), slope);
    return emit(c, ZG_OP_MUL, 1,
                emit(c, ZG_OP_ADD, emit(c, ZG_OP_MUL, half, emit(c, ZG_OP_ADD, one, t)), right));
  }
  if (!strcmp(name, "silu*")) {
    int e = emit(c, ZG_OP_EXP, emit(c, ZG_OP_NEG, 0, 0), 0);
    return emit(c, ZG_OP_MUL, emit(c, ZG_OP_DIV, 0, emit(c, ZG_OP_ADD, fill(c, 1), e)), 1);
  }
  int loss = emit(c, ZG_OP_SUB, emit(c, ZG_OP_ADD, emit(c, ZG_OP_EXP, 0, 0), 1), 2);
  return emit(c, ZG_OP_LOG, emit(c, ZG_OP_EXP, loss, 0), 0);
}

/* Arithmetic of products; 0 for ops that memory bounds. */
static double flops(const ZkCall *call) {
  double n = 1;
  const ZkView *a = &call->in[0];
  if (call->op == ZG_OP_DOT) {
    for (int i = 0; i < a->rank; i++) n *= (double)a->size[i];
    for (int i = 0; i < call->in[1].rank; i++) {
      bool shared = false;
      for (int j = 0; j < a->rank; j++) shared |= a->axis[j] == call->in[1].axis[i];
      if (!shared) n *= (double)call->in[1].size[i];
    }
    return call->out[0].rank > 1 ? 2 * n : 0;
  }
  if (call->op != ZG_OP_ATTEND && call->op != ZG_OP_ATTEND_GRAD) return 0;
  n = (double)count(a) * (double)a->size[1]; /* [batch, seq, ..]: every query times every key */
  return (call->op == ZG_OP_ATTEND ? 4 : 10) * n / (call->opt[0] == 1 ? 2 : 1);
}

static double bytes(const ZkCall *call) {
  double n = 0;
  if (call->op == ZG_OP_LOOKUP) return 8.0 * (double)count(&call->out[0]); /* of a table only some rows */
  if (call->op == ZG_OP_LOOKUP_GRAD) return 12.0 * (double)count(&call->in[0]);
  for (int i = 0; i < call->nin; i++) n += 4.0 * (double)count(&call->in[i]);
  for (int i = 0; i < call->nout; i++) n += (call->accumulate ? 8.0 : 4.0) * (double)count(&call->out[i]);
  return n;
}

typedef struct {
  ZkEnv env;
  double flops, bandwidth; /* peaks */
} Machine;

static double best_time(const Machine *m, ZkKernel *kernel, const ZkCall *call) {
  double best = 1e9, start = now();
  for (int i = 0; i < 3 || (now() - start < 0.15 && i < 1000); i++) {
    double t = now();
    kernel(&m->env, call);
    t = now() - t;
    if (t < best) best = t;
  }
  return best;
}

static void bench(Machine *m, Memory mem, const Model *model, const Case *c) {
  Function f = {.fn = {.nout = 1}};
  ZkCall call = {.op = c->op, .num = {c->num}, .opt = {c->opt}, .accumulate = c->accumulate};
  bool results = false;
  for (const char *p = c->views; *p;) {
    size_t len = strcspn(p, " ");
    if (len == 2 && !strncmp(p, "->", 2)) results = true;
    else if (results) call.out[call.nout++] = view(&mem, model, p, len);
    else call.in[call.nin++] = view(&mem, model, p, len);
    p += len + strspn(p + len, " ");
  }
  for (const char *p = c->ax; *p; p++) call.ax[call.nax++] = (uint16_t)*p;
  if (c->pointwise) {
    f.nin = call.nin;
    f.fn.ops = f.ops;
    f.fn.out[0] = (uint16_t)function_of(&f, c->pointwise);
    call.pointwise = &f.fn;
  }
  call.scratch = take_memory(&mem, zk_cpu_scratch(&call, zk_pool_threads(m->env.pool)));
  double t = best_time(m, zk_cpu_kernel(c->op), &call), work = flops(&call);
  printf("%-6s %-15s %-9s %-46s %9.3f ms ", model->name, zg_op_info[c->op].text,
         c->pointwise              ? c->pointwise
         : c->opt == 1 && work > 0 ? "causal"
                                   : "",
         c->views, t * 1e3);
  if (work > 0) printf("%7.1f GF/s %4.0f%%\n", work / t * 1e-9, 100 * work / t / m->flops);
  else printf("%7.1f GB/s %4.0f%%\n", bytes(&call) / t * 1e-9, 100 * bytes(&call) / t / m->bandwidth);
  fflush(stdout);
}

/* ---- flat kernels -------------------------------------------------------------------------------------- */
enum { FLAT = 1 << 23 };
typedef struct {
  float *x[4];
  uint16_t *h;
} Buffers;

/* An update by the row of an optimizer, with settings of 0.9 and a rate that changes little. */
static double run_optimizer(const ZkEnv *e, ZkOptimizerKind kind, const Buffers *b, ZkMaster w) {
  float s[ZK_MOST_SCALARS];
  double setting[ZK_MOST_SETTINGS];
  for (int i = 0; i < ZK_MOST_SETTINGS; i++) setting[i] = 0.9;
  zk_optimizer_scalars(kind, setting, &(ZkStepOf){1e-3, 0.1, 10, true, 0.1}, s);
  ZkOptimizer p = {.kind = kind, .scale = 1, .times = 1, .s = s};
  for (int i = 0; i < zk_optimizer_info[kind].nstates; i++) p.state[i] = (ZkFlat){ZK_F32, b->x[2 + i]};
  zk_cpu_optimize(e, &p, FLAT, (ZkFlat){ZK_F32, b->x[0]}, w);
  return 12 + 8 * zk_optimizer_info[kind].nstates;
}

enum { OTHERS = 5 };
static double run_flat(const ZkEnv *e, int which, const Buffers *b) { /* bytes moved */
  switch (which) {
  case 0: return run_optimizer(e, ZK_BY_ADAMW, b, (ZkMaster){.high = b->h, .low = (int16_t *)b->h + FLAT});
  case 1: return zk_cpu_sumsq(e, FLAT, b->x[0]) >= 0 ? 4 : 0;
  case 2: zk_cpu_axpy(e, FLAT, 0.5f, b->x[0], b->x[1]); return 12;
  case 3: zk_cpu_to_bf16(e, FLAT, b->x[0], b->h); return 6;
  case 4: zk_cpu_from_bf16(e, FLAT, b->h, b->x[0]); return 6;
  default: return run_optimizer(e, (ZkOptimizerKind)(which - OTHERS), b, (ZkMaster){.f32 = b->x[1]});
  }
}

static void bench_flat(Machine *m, Memory mem, const char *word) {
  const char *names[OTHERS + ZK_OPTIMIZERS] = {"adamw, halves", "sumsq", "axpy", "to_bf16", "from_bf16"};
  for (int i = 0; i < ZK_OPTIMIZERS; i++) names[OTHERS + i] = zk_optimizer_info[i].word;
  Buffers b;
  for (int i = 0; i < 4; i++) {
    b.x[i] = take_memory(&mem, FLAT * sizeof(float));
    for (int j = 0; j < FLAT; j++) b.x[i][j] = 0.5f;
  }
  b.h = memset(take_memory(&mem, FLAT * 4), 0, FLAT * 4);
  for (int i = 0; i < OTHERS + ZK_OPTIMIZERS; i++) {
    if (word && !strstr(names[i], word)) continue;
    double best = 1e9, per = 0;
    for (int k = 0; k < 5; k++) {
      double t = now();
      per = run_flat(&m->env, i, &b);
      t = now() - t;
      if (t < best) best = t;
    }
    printf("%-6s %-15s %-56s %9.3f ms %7.1f GB/s %4.0f%%\n", "flat", names[i], "8M elements", best * 1e3,
           per * FLAT / best * 1e-9, 100 * per * FLAT / best / m->bandwidth);
  }
}

/* y += a x over buffers beyond any cache. */
static double measure_bandwidth(const ZkEnv *env, Memory mem) {
  int64_t n = 1 << 24;
  float *x = take_memory(&mem, (size_t)n * 4), *y = take_memory(&mem, (size_t)n * 4);
  double best = 1e9;
  for (int i = 0; i < 6; i++) {
    double t = now();
    zk_cpu_axpy(env, n, 0.5f, x, y);
    t = now() - t;
    if (i > 0 && t < best) best = t;
  }
  return 12.0 * (double)n / best;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  const char *word = argc > 2 ? argv[2] : NULL;
  if (threads < 1 || threads > 1024) {
    fprintf(stderr, "usage: bench-kernels [THREADS [WORD]]\n");
    return 2;
  }
  Memory mem = memory_new((size_t)2 << 30);
  Machine m = {.env = {.pool = zk_pool_new(threads), .seed = 1, .step = 1}};
  m.flops = zk_cpu_measure_flops(&m.env, ZK_F32, 200);
  m.bandwidth = measure_bandwidth(&m.env, mem);
  printf("%s; %d threads; products %.1f GF/s, memory %.1f GB/s\n", zk_cpu_describe(), threads, m.flops * 1e-9,
         m.bandwidth * 1e-9);
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
      char line[128];
      snprintf(line, sizeof line, "%s %s %s %s", models[i].name, zg_op_info[cases[j].op].text,
               cases[j].pointwise ? cases[j].pointwise : "", cases[j].views);
      if (!word || strstr(line, word)) bench(&m, mem, &models[i], &cases[j]);
    }
  bench_flat(&m, mem, word);
  zk_pool_free(m.env.pool);
  munmap(mem.base, mem.size);
  return 0;
}
