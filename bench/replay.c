/* bench-replay: how fast a training step would be if it were nothing but its matrix products, each by the
 * library that is fastest for it. See replay.h and README.md. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/options.h"
#include "bench/plan.h"
#include "bench/replay.h"

typedef struct {
  const char *recipe, *choice;
  int threads, steps;
  bool verbose;
} Options;

/* clang-format off */
#define FIELD(f) ZB_AT(Options, f)
static const ZbCommand commands[] = {{NULL, "GRAPH.zsg", 1, 1, "play all matrix products of a step, and nothing else"}};
static const ZbOption options[] = {
  {"recipe", 0, ZB_TEXT, FIELD(recipe), "FILE:NAME", .needed = 1, .help = "the recipe to plan"},
  {"threads", 0, ZB_WHOLE, FIELD(threads), "T", .usual = "1", .least = 1, .most = 1024, .help = "threads"},
  {"steps", 0, ZB_WHOLE, FIELD(steps), "K", .usual = "3", .least = 1, .most = 1 << 20,
   .help = "replays, of which the median counts"},
  {"choice", 0, ZB_TEXT, FIELD(choice), "FILE",
   .help = "which library makes which product: read if it is there, else written"},
  {NULL, 'v', ZB_FLAG, FIELD(verbose), .help = "list the products, and the rate of every library and of Zug at each"},
};
static const ZbProgram program = {.name = "bench-replay", .what = "time the matrix products of a step alone",
                                  ZB_TABLES(commands, options)};
/* clang-format on */

enum { MAX_LIBRARIES = 8, PAUSE_MS = 80 };
static const uint64_t ROTATED = (uint64_t)1 << 29; /* bytes of operands of one shape at most */

typedef struct {
  Products all;
  const Library *lib[MAX_LIBRARIES];
  int nlibs, threads;
  void *(*state)[MAX_LIBRARIES]; /* of a product by a library */
  bool (*opened)[MAX_LIBRARIES];
  size_t (*bytes)[3];
  int *choice;
  char *inputs[2], *outputs; /* inputs: f32, bf16 */
  ZkPool *pool;              /* of Zug's own kernels */
  void *scratch;
} Replay;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A library's threads may spin for a while after their last product; the next one's should not meet them. */
static void pause_between(void) {
  struct timespec t = {0, PAUSE_MS * 1000000};
  nanosleep(&t, NULL);
}

/* ---- memory ---- */
static uint64_t aligned(uint64_t n) { return zb_round_up(n, 64); }

/* How many instances of a product have operands of their own: all of the step, if they fit. */
static uint64_t sets_of(const Replay *r, uint32_t i) {
  uint64_t one = aligned(r->bytes[i][A]) + aligned(r->bytes[i][B]) + aligned(r->bytes[i][C]);
  uint64_t n = ROTATED / one, count = (uint64_t)r->all.p[i].count;
  return n < 1 ? 1 : n < count ? n : count;
}

static char *map(uint64_t bytes) {
  char *p =
      mmap(NULL, bytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  madvise(p, bytes, MADV_HUGEPAGE); /* as in a run */
  return p;
}

/* Numbers of about 1, of either type. */
static void fill(char *p, uint64_t bytes, bool bf16) {
  for (uint64_t i = 0; i < bytes / 4; i++) {
    uint32_t x = (uint32_t)zb_mix64(i);
    uint32_t half = 0x3f00 | (x & 0x80ff),
             word = bf16 ? half | (0x3f00 | (x >> 16 & 0x80ff)) << 16 : half << 16;
    memcpy(p + 4 * i, &word, 4);
  }
}

static bool make_memory(Replay *r) {
  uint64_t in[2] = {0}, out = 0;
  for (uint32_t i = 0; i < r->all.n; i++) {
    const Product *p = &r->all.p[i];
    uint64_t n = sets_of(r, i), ab = n * (aligned(r->bytes[i][A]) + aligned(r->bytes[i][B])),
             c = n * aligned(r->bytes[i][C]);
    int kind = p->shape.elem[A] == ZK_BF16;
    if (ab > in[kind]) in[kind] = ab;
    if (c > out) out = c;
  }
  for (int k = 0; k < 2; k++) {
    if (!in[k]) continue;
    if (!(r->inputs[k] = map(in[k]))) return false;
    fill(r->inputs[k], in[k], k == 1);
  }
  return (r->outputs = map(out)) != NULL;
}

static void set_at(const Replay *r, uint32_t i, uint64_t set, void *data[3]) {
  uint64_t ab = aligned(r->bytes[i][A]) + aligned(r->bytes[i][B]);
  data[A] = r->inputs[r->all.p[i].shape.elem[A] == ZK_BF16] + set * ab;
  data[B] = (char *)data[A] + aligned(r->bytes[i][A]);
  data[C] = r->outputs + set * aligned(r->bytes[i][C]);
}

/* ---- libraries ---- */
static void open_all(Replay *r, ZbArena *a) {
  for (int k = 0; replay_blas[k]; k++) r->lib[r->nlibs++] = replay_blas[k];
  for (int k = 0; replay_dnnl[k]; k++) r->lib[r->nlibs++] = replay_dnnl[k];
  r->state = zb_alloc(a, r->all.n * sizeof *r->state);
  r->opened = zb_alloc(a, r->all.n * sizeof *r->opened);
  r->bytes = zb_alloc(a, r->all.n * sizeof *r->bytes);
  r->choice = ZB_NEWN(a, int, r->all.n);
  for (uint32_t i = 0; i < r->all.n; i++) {
    const Shape *s = &r->all.p[i].shape;
    for (int k = 0; k < 3; k++) r->bytes[i][k] = zk_bytes((ZkElem)s->elem[k], (uint64_t)replay_elems(s, k));
    r->choice[i] = -1;
  }
  for (int k = 0; k < r->nlibs; k++) {
    r->lib[k]->start(r->threads);
    for (uint32_t i = 0; i < r->all.n; i++)
      r->opened[i][k] = r->lib[k]->open(&r->all.p[i].shape, r->threads, &r->state[i][k], r->bytes[i]);
  }
}

static void close_all(Replay *r) {
  for (uint32_t i = 0; i < r->all.n; i++)
    for (int k = 0; k < r->nlibs; k++)
      if (r->opened[i][k]) r->lib[k]->close(r->state[i][k]);
}

/* Seconds of one product: the fastest of some runs after a first one, which other users of the machine
 * disturb least. */
typedef void RunOnce(const Replay *r, uint32_t i, int lib, void *const data[3]);

static double fastest(const Replay *r, uint32_t i, int lib, RunOnce *f) {
  double best = 0, start = 0;
  for (int n = -1; n < 4 || (n < 100 && now() - start < 0.1); n++) {
    void *data[3];
    set_at(r, i, (uint64_t)(n + 1) % sets_of(r, i), data);
    double from = now();
    f(r, i, lib, data);
    double t = now() - from;
    if (n < 0) start = now();
    else if (n == 0 || t < best) best = t;
  }
  return best;
}

static void run_library(const Replay *r, uint32_t i, int lib, void *const data[3]) {
  r->lib[lib]->run(r->state[i][lib], &r->all.p[i].shape, data);
}

static void run_zug(const Replay *r, uint32_t i, int lib, void *const data[3]) {
  ZkCall c = *r->all.p[i].call;
  ZkEnv env = {.pool = r->pool, .seed = 1, .step = 1};
  (void)lib;
  c.scratch = r->scratch;
  c.accumulate = false;
  bool swapped = r->all.p[i].swapped;
  c.in[0].data = data[swapped ? B : A], c.in[1].data = data[swapped ? A : B], c.out[0].data = data[C];
  zk_cpu_kernel(c.op)(&env, &c);
}

/* The same by Zug's kernel: a dot's alone. 0: it has none. */
static double time_zug(Replay *r, uint32_t i) {
  if (!r->all.p[i].call) return 0;
  size_t bytes = zk_cpu_scratch(r->all.p[i].call, r->threads);
  r->scratch = bytes ? aligned_alloc(64, aligned(bytes)) : NULL;
  double t = fastest(r, i, 0, run_zug);
  free(r->scratch);
  return t;
}

/* ---- choosing ---- */
static void print_shape(FILE *f, const Product *p) {
  const Shape *s = &p->shape;
  fprintf(f, "%lld x %lld x %lld %s%s", (long long)s->M, (long long)s->N, (long long)s->K,
          s->cs[A] == 1 ? "n" : "t", s->cs[B] == 1 ? "n" : "t");
  if (replay_batch(s) > 1) fprintf(f, " x %lld", (long long)replay_batch(s));
}

static void print_head(const Replay *r) {
  printf("%6s %-34s", "times", "product: M x N x K, n/t x batch");
  for (int k = 0; k < r->nlibs; k++) printf(" %15s", r->lib[k]->name);
  printf(" %9s   GFLOP/s\n", "Zug");
}

static void print_row(const Replay *r, uint32_t i, const double *seconds) {
  const Product *p = &r->all.p[i];
  printf("%6lld %-12s ", (long long)p->count, p->what);
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  print_shape(f, p);
  fclose(f);
  printf("%-21s", text);
  free(text);
  double gf = 1e-9 * replay_flops(&p->shape);
  for (int k = 0; k <= r->nlibs; k++) {
    int width = k < r->nlibs ? 15 : 9;
    if (seconds[k] > 0) printf(" %*.1f%s", width - 1, gf / seconds[k], k == r->choice[i] ? "*" : " ");
    else printf(" %*s", width, "-");
  }
  printf("%s%s\n", p->shape.weights ? "  weights" : "", p->shape.packed ? "  copied" : "");
  fflush(stdout);
}

/* Times every product by every library and takes the fastest; in -v, prints all. */
static bool choose(Replay *r, ZbArena *a, bool verbose) {
  double(*seconds)[MAX_LIBRARIES + 1] = zb_alloc(a, r->all.n * sizeof *seconds);
  for (int k = 0; k < r->nlibs; k++) {
    r->lib[k]->start(r->threads);
    for (uint32_t i = 0; i < r->all.n; i++) {
      if (!r->opened[i][k]) continue;
      double t = seconds[i][k] = fastest(r, i, k, run_library);
      if (r->choice[i] < 0 || t < seconds[i][r->choice[i]]) r->choice[i] = k;
    }
    pause_between();
  }
  if (verbose) print_head(r);
  for (uint32_t i = 0; i < r->all.n; i++) {
    if (r->choice[i] < 0)
      return fprintf(stderr, "bench-replay: no library here makes product %u\n", i), false;
    if (!verbose) continue;
    seconds[i][r->nlibs] = time_zug(r, i);
    print_row(r, i, seconds[i]);
  }
  if (verbose) pause_between();
  return true;
}

static bool read_choice(Replay *r, const char *path) {
  FILE *f = path ? fopen(path, "r") : NULL;
  if (!f) return false;
  bool ok = true;
  for (uint32_t i = 0; i < r->all.n && ok; i++)
    ok = fscanf(f, "%d%*[^\n]", &r->choice[i]) == 1 && r->choice[i] >= 0 && r->choice[i] < r->nlibs &&
         r->opened[i][r->choice[i]];
  fclose(f);
  for (uint32_t i = 0; i < r->all.n && !ok; i++) r->choice[i] = -1;
  return ok;
}

static void write_choice(const Replay *r, const char *path) {
  FILE *f = path ? fopen(path, "w") : NULL;
  for (uint32_t i = 0; i < r->all.n && f; i++) {
    fprintf(f, "%d %s, %lld times ", r->choice[i], r->lib[r->choice[i]]->name, (long long)r->all.p[i].count);
    print_shape(f, &r->all.p[i]);
    fprintf(f, "\n");
  }
  if (f) fclose(f);
}

/* ---- the replay ---- */
static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of all products of a step, those of a library together. */
static double replay(const Replay *r, double *seconds) {
  double all = 0;
  for (int k = 0; k < r->nlibs; k++) {
    bool any = false;
    for (uint32_t i = 0; i < r->all.n; i++) any |= r->choice[i] == k;
    if (!any) continue;
    r->lib[k]->start(r->threads);
    for (uint32_t i = 0; i < r->all.n; i++) {
      if (r->choice[i] != k) continue;
      uint64_t sets = sets_of(r, i);
      double from = now();
      for (int64_t j = 0; j < r->all.p[i].count; j++) {
        void *data[3];
        set_at(r, i, (uint64_t)j % sets, data);
        r->lib[k]->run(r->state[i][k], &r->all.p[i].shape, data);
      }
      seconds[i] = now() - from;
      all += seconds[i];
    }
    pause_between();
  }
  return all;
}

static double tokens(const ZpPlan *p) {
  uint32_t seq = zg_axis_find(p->graph, "seq");
  return (double)p->asked.global_batch *
         (seq == ZG_NONE || p->graph->axes[seq].size ? 1 : (double)p->layout.axis_size[seq]);
}

static void run(Replay *r, ZbArena *a, const ZpPlan *p, const Options *o) {
  double *t = ZB_NEWN(a, double, o->steps + 1), *by = ZB_NEWN(a, double, r->all.n), attention = 0, flops = 0,
         last = 0;
  for (int i = 0; i <= o->steps; i++) t[i] = last = replay(r, by);
  qsort(t + 1, (size_t)o->steps, sizeof *t, by_size); /* the first one warms up */
  double ms = 1e3 * t[1 + o->steps / 2];
  for (uint32_t i = 0; i < r->all.n; i++) {
    if (!strncmp(r->all.p[i].what, "attend", 6)) attention += by[i];
    flops += (double)r->all.p[i].count * replay_flops(&r->all.p[i].shape);
  }
  printf("replay %.1f ms: %.0f tokens/s, %.1f GFLOP/s, attention %.1f %%\n", ms, tokens(p) / ms * 1e3,
         flops / ms * 1e-6, 100 * attention / last);
}

/* ---- the program ---- */
static ZpPlan *plan(ZbArena *a, const char *graph, const Options *o) {
  ZpOptions po = {.scratch = zk_cpu_scratch, .threads = o->threads};
  ZpPlan *p = bench_plan(a, "bench-replay", graph, o->recipe, &po);
  if (!p || p->layout.mesh.nranks == 1) return p;
  return fprintf(stderr, "bench-replay: error: recipe %s is for %lld ranks; the replay is of one\n",
                 p->asked.recipe->name, (long long)p->layout.mesh.nranks),
         NULL;
}

static int run_command(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err) {
  const Options *o = options;
  ZpPlan *p = plan(a, args->operand[0], o);
  if (!p) return 1;
  Replay r = {.all = replay_list(a, p), .threads = o->threads, .pool = zk_pool_new(o->threads)};
  open_all(&r, a);
  bool ok = make_memory(&r) || zb_fail(err, "", "not enough memory");
  if (ok && (o->verbose || !read_choice(&r, o->choice))) {
    ok = choose(&r, a, o->verbose);
    if (ok) write_choice(&r, o->choice);
  }
  if (ok) run(&r, a, p, o);
  close_all(&r);
  zk_pool_free(r.pool);
  return ok ? 0 : *err->text ? 2 : 1;
}

int main(int argc, char **argv) {
  /* Read when a program is loaded; OpenMP's threads shall not spin into others. */
  if (!getenv("OMP_WAIT_POLICY")) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
  }
  return zb_main(&program, argc, argv, &(Options){0}, run_command);
}
