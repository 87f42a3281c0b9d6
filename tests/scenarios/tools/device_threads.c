/* A device that is the CPU but asynchronous, for tests: a stream is a thread that takes one piece of work
 * after another, each after a pause of some length, so that what is not ordered by an event happens in
 * another order than the host's and gives other numbers. Its memory is the host's, but nobody outside may
 * know that. A step that is captured is kept as the list of its work, and queued from there; what of it was
 * not in memory would be an old step's.
 *
 * ZUG_TEST_NO_WAIT=1 makes streams ignore events: a run that still gives the right numbers would show that
 * the test sees nothing. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "runtime/exec/device/device.h"
#include "runtime/plan/plan.h"
#include "tests/scenarios/tools/device_threads.h"

typedef struct Work {
  struct Work *next;
  void (*fn)(const void *args);
  int stream;
  size_t bytes;
  max_align_t args[];
} Work;

typedef struct {
  pthread_t thread;
  pthread_cond_t wanted; /* there is work */
  Work *head, **tail;
  bool busy;
} Stream;

typedef struct {
  uint64_t wanted, reached; /* how often it was recorded; how often that was reached */
} Event;

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* an event was reached, or a stream has nothing left */
  Stream stream[ZP_QUEUES];
  Event *event;
  bool quit, no_wait, capturing;
  int current;
  Work *noted[ZX_GRAPHS], **noted_tail; /* captured steps */
  uint32_t graph;                       /* the one in use */
  size_t asked;                         /* for its memory */
} Device;

static Device *device(const ZkEnv *env) { return env->device; }

/* ---- streams ---- */
static _Atomic uint64_t drawn;

static void dawdle(void) {
  uint64_t x = zb_mix64(atomic_fetch_add(&drawn, 1));
  struct timespec t = {0, x % 8 ? 0 : (long)(x >> 32) % 400000};
  if (t.tv_nsec) nanosleep(&t, NULL);
}

typedef struct {
  Device *d;
  Stream *s;
} Start;

static void *serve(void *arg) {
  Start start = *(Start *)arg;
  free(arg);
  Device *d = start.d;
  Stream *s = start.s;
  pthread_mutex_lock(&d->lock);
  for (;;) {
    while (!s->head && !d->quit) pthread_cond_wait(&s->wanted, &d->lock);
    if (!s->head) break;
    Work *w = s->head;
    s->head = w->next;
    if (!s->head) s->tail = &s->head;
    s->busy = true;
    pthread_mutex_unlock(&d->lock);
    dawdle();
    w->fn(w->args);
    free(w);
    pthread_mutex_lock(&d->lock);
    s->busy = false;
    if (!s->head) pthread_cond_broadcast(&d->changed);
  }
  pthread_mutex_unlock(&d->lock);
  return NULL;
}

static Work *work(int stream, void (*fn)(const void *), const void *args, size_t bytes) {
  Work *w = malloc(sizeof *w + bytes);
  ZB_ASSERT(w != NULL);
  *w = (Work){.fn = fn, .stream = stream, .bytes = bytes};
  memcpy(w->args, args, bytes);
  return w;
}

static void push(const ZkEnv *env, void (*fn)(const void *), const void *args, size_t bytes) {
  Device *d = device(env);
  Work *w = work(d->current, fn, args, bytes);
  if (d->capturing) {
    *d->noted_tail = w;
    d->noted_tail = &w->next;
    return;
  }
  pthread_mutex_lock(&d->lock);
  Stream *s = &d->stream[d->current];
  *s->tail = w;
  s->tail = &w->next;
  pthread_cond_signal(&s->wanted);
  pthread_mutex_unlock(&d->lock);
}

void threads_push(const ZkEnv *env, void (*fn)(const void *), const void *args, size_t bytes) {
  push(env, fn, args, bytes);
}

static bool open_device(ZkEnv *env, int node_rank, ZbErr *err) {
  (void)node_rank, (void)err;
  Device *d = calloc(1, sizeof *d);
  ZB_ASSERT(d != NULL);
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->changed, NULL);
  const char *no_wait = getenv("ZUG_TEST_NO_WAIT");
  d->no_wait = no_wait && *no_wait == '1';
  env->device = d;
  for (int i = 0; i < ZP_QUEUES; i++) {
    Start *start = malloc(sizeof *start);
    ZB_ASSERT(start != NULL);
    *start = (Start){d, &d->stream[i]};
    d->stream[i].tail = &d->stream[i].head;
    pthread_cond_init(&d->stream[i].wanted, NULL);
    int rc = pthread_create(&d->stream[i].thread, NULL, serve, start);
    ZB_ASSERT(rc == 0);
  }
  return true;
}

static void close_device(ZkEnv *env) {
  Device *d = device(env);
  pthread_mutex_lock(&d->lock);
  d->quit = true;
  for (int i = 0; i < ZP_QUEUES; i++) pthread_cond_signal(&d->stream[i].wanted);
  pthread_mutex_unlock(&d->lock);
  for (int i = 0; i < ZP_QUEUES; i++) {
    pthread_join(d->stream[i].thread, NULL);
    pthread_cond_destroy(&d->stream[i].wanted);
  }
  pthread_mutex_destroy(&d->lock);
  pthread_cond_destroy(&d->changed);
  free(d->event);
  free(d);
}

static void set_stream(ZkEnv *env, int queue) { device(env)->current = queue; }
static int current(const ZkEnv *env) { return device(env)->current; }

static bool finish(const ZkEnv *env, ZbErr *err) {
  (void)err;
  Device *d = device(env);
  ZB_ASSERT(!d->capturing);
  pthread_mutex_lock(&d->lock);
  for (int i = 0; i < ZP_QUEUES; i++)
    while (d->stream[i].head || d->stream[i].busy) pthread_cond_wait(&d->changed, &d->lock);
  pthread_mutex_unlock(&d->lock);
  return true;
}

static bool idle(const ZkEnv *env) {
  Device *d = device(env);
  ZB_ASSERT(!d->capturing);
  pthread_mutex_lock(&d->lock);
  bool yes = true;
  for (int i = 0; i < ZP_QUEUES; i++) yes &= !d->stream[i].head && !d->stream[i].busy;
  pthread_mutex_unlock(&d->lock);
  return yes;
}

/* ---- events ---- */
typedef struct {
  Device *d;
  uint32_t event;
  uint64_t count;
} Mark;

static bool events(ZkEnv *env, uint32_t n, ZbErr *err) {
  (void)err;
  device(env)->event = calloc(n, sizeof(Event));
  return device(env)->event != NULL;
}

static void do_record(const void *args) {
  const Mark *m = args;
  pthread_mutex_lock(&m->d->lock);
  m->d->event[m->event].reached = m->count;
  pthread_cond_broadcast(&m->d->changed);
  pthread_mutex_unlock(&m->d->lock);
}

static void do_wait(const void *args) {
  const Mark *m = args;
  pthread_mutex_lock(&m->d->lock);
  while (m->d->event[m->event].reached < m->count) pthread_cond_wait(&m->d->changed, &m->d->lock);
  pthread_mutex_unlock(&m->d->lock);
}

/* A mark's count is set when it is given to a stream, which a captured one is again and again. */
static void record(const ZkEnv *env, uint32_t event) {
  Device *d = device(env);
  push(env, do_record, &(Mark){d, event, d->capturing ? 0 : ++d->event[event].wanted}, sizeof(Mark));
}

static void wait_event(const ZkEnv *env, uint32_t event) {
  Device *d = device(env);
  if (!d->no_wait) push(env, do_wait, &(Mark){d, event, d->event[event].wanted}, sizeof(Mark));
}

static bool reached(const ZkEnv *env, uint32_t event) {
  Device *d = device(env);
  ZB_ASSERT(!d->capturing);
  pthread_mutex_lock(&d->lock);
  bool yes = d->event[event].reached == d->event[event].wanted;
  pthread_mutex_unlock(&d->lock);
  return yes;
}

/* ---- captured steps ---- */
static bool capture(ZkEnv *env, ZbErr *err) {
  (void)err;
  Device *d = device(env);
  ZB_ASSERT(!d->capturing && !d->noted[d->graph] && d->current == ZP_Q_COMPUTE);
  d->noted_tail = &d->noted[d->graph];
  return d->capturing = true;
}

static void forget(ZkEnv *env) {
  Device *d = device(env);
  for (Work *w = d->noted[d->graph], *next; w; w = next) {
    next = w->next;
    free(w);
  }
  d->noted[d->graph] = NULL;
}

static void use_graph(ZkEnv *env, uint32_t n) {
  ZB_ASSERT(n < ZX_GRAPHS && !device(env)->capturing);
  device(env)->graph = n;
}

/* ZUG_TEST_NO_CAPTURE=1: it cannot be done, as is known at the end. */
static bool captured(ZkEnv *env, ZbErr *err) {
  const char *no = getenv("ZUG_TEST_NO_CAPTURE");
  device(env)->capturing = false;
  if (!no || *no != '1') return true;
  forget(env);
  return zb_fail(err, "", "there is no room for it");
}

static void replay(const ZkEnv *env) {
  Device *d = device(env);
  int current = d->current;
  ZB_ASSERT(current == ZP_Q_COMPUTE && d->noted[d->graph]);
  for (const Work *w = d->noted[d->graph]; w; w = w->next) {
    d->current = w->stream;
    const Mark *mark = (const void *)&w->args;
    if (w->fn == do_record) record(env, mark->event);
    else if (w->fn == do_wait) wait_event(env, mark->event);
    else push(env, w->fn, w->args, w->bytes);
  }
  d->current = current;
}

/* ---- work: arguments are kept, and the CPU's function is called with them ----
 * The step, and the rate that goes with it, are as they are in memory when the work is done. */
static ZkEnv alone(const ZkEnv *env) {
  return (ZkEnv){.seed = env->seed, .step = env->step, .step_state = env->step_state};
}
static ZkEnv at_now(const ZkEnv *env) {
  return (ZkEnv){.seed = env->seed, .step = env->step_state ? env->step_state->step : env->step};
}
/* The scalars of its group as they are in memory now. */
static ZkOptimizer *optimizer_now(const ZkEnv *env, const ZkOptimizer *p, ZkOptimizer *out) {
  *out = *p;
  out->s = zk_scalars_of(env->step_state, p->group);
  return out;
}

static ZkSides *sides_now(const ZkEnv *env, const ZkSides *p, ZkSides *out) {
  *out = *p;
  out->s = zk_scalars_of(env->step_state, p->group);
  return out;
}

#define WORK(NAME, FIELDS, CALL, PARAMS, ...)                                                                \
  typedef struct {                                                                                           \
    ZkEnv env;                                                                                               \
    FIELDS                                                                                                   \
  } NAME##Args;                                                                                              \
  static void do_##NAME(const void *p) {                                                                     \
    const NAME##Args *a = p;                                                                                 \
    ZkEnv env = at_now(&a->env);                                                                             \
    zx_device_cpu.CALL;                                                                                      \
  }                                                                                                          \
  static void NAME PARAMS {                                                                                  \
    push(env, do_##NAME, &(NAME##Args){alone(env), __VA_ARGS__}, sizeof(NAME##Args));                        \
  }

WORK(run, ZkCall call;, run(&env, &a->call), (const ZkEnv *env, const ZkCall *call), *call)
WORK(optimize, ZkOptimizer p; ZxScalars clip; int64_t n; ZkFlat g; ZkMaster w;
     , optimize(&env, optimizer_now(&a->env, &a->p, &(ZkOptimizer){0}), &a->clip, a->n, a->g, a->w),
     (const ZkEnv *env, const ZkOptimizer *p, const ZxScalars *clip, int64_t n, ZkFlat g, ZkMaster w), *p,
     *clip, n, g, w)
WORK(matrix, ZkMatrix m; ZkMatrixWay way; float *blocks; float *x;
     , matrix(&env, &a->m, a->way, a->blocks, a->x),
     (const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks, float *x), *m, way, blocks, x)
WORK(orthogonalize, int64_t rows; int64_t cols; int steps; ZkCoefficients which; float *x; float *scratch;
     , orthogonalize(&env, a->rows, a->cols, a->steps, a->which, a->x, a->scratch),
     (const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which, float *x,
      float *scratch),
     rows, cols, steps, which, x, scratch)
WORK(side_squares, int64_t rows; int64_t cols; const float *x; bool columns; float *sums;
     , side_squares(&env, a->rows, a->cols, a->x, a->columns, a->sums),
     (const ZkEnv *env, int64_t rows, int64_t cols, const float *x, bool columns, float *sums), rows, cols, x,
     columns, sums)
WORK(side_factors, ZkSides p; ZxScalars clip; float *squares; float *moments;
     , side_factors(&env, sides_now(&a->env, &a->p, &(ZkSides){0}), &a->clip, a->squares, a->moments),
     (const ZkEnv *env, const ZkSides *p, const ZxScalars *clip, float *squares, float *moments), *p, *clip,
     squares, moments)
WORK(side_scale, int64_t rows; int64_t cols; float *x; bool columns; const float *by;
     , side_scale(&env, a->rows, a->cols, a->x, a->columns, a->by),
     (const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns, const float *by), rows, cols, x,
     columns, by)
WORK(average, ZxScalars clip; int64_t n; float decay; ZkMaster w; float *to;
     , average(&env, &a->clip, a->n, a->decay, a->w, a->to),
     (const ZkEnv *env, const ZxScalars *clip, int64_t n, float decay, ZkMaster w, float *to), *clip, n,
     decay, w, to)
WORK(update, ZkUpdate p; ZxScalars clip; int64_t n; const float *g; ZkMaster w;
     , update(&env, &a->p, &a->clip, a->n, a->g, a->w),
     (const ZkEnv *env, const ZkUpdate *p, const ZxScalars *clip, int64_t n, const float *g, ZkMaster w), *p,
     *clip, n, g, w)
WORK(sumsq, int64_t n; ZkFlat x; double *sum;
     , sumsq(&env, a->n, a->x, a->sum), (const ZkEnv *env, int64_t n, ZkFlat x, double *sum), n, x, sum)
WORK(add_bf16, ZkDraws d; int64_t n; const float *x; uint16_t * y;
     , add_bf16(&env, &a->d, a->n, a->x, a->y),
     (const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y), *d, n, x, y)
WORK(axpy, int64_t n; float s; const float *x; float *y;
     , axpy(&env, a->n, a->s, a->x, a->y), (const ZkEnv *env, int64_t n, float s, const float *x, float *y),
     n, s, x, y)
WORK(swap, int64_t n; ZkMaster w; float *y;
     , swap(&env, a->n, a->w, a->y), (const ZkEnv *env, int64_t n, ZkMaster w, float *y), n, w, y)
WORK(sumsq_params, int64_t n; ZkMaster w; double *sum;, sumsq_params(&env, a->n, a->w, a->sum),
                                                      (const ZkEnv *env, int64_t n, ZkMaster w, double *sum),
                                                      n, w, sum)
WORK(to_bf16, int64_t n; const float *x; uint16_t * y;
     , to_bf16(&env, a->n, a->x, a->y), (const ZkEnv *env, int64_t n, const float *x, uint16_t *y), n, x, y)
WORK(from_bf16, int64_t n; const uint16_t *x; float *y;
     , from_bf16(&env, a->n, a->x, a->y), (const ZkEnv *env, int64_t n, const uint16_t *x, float *y), n, x, y)
WORK(zero, void *p; size_t n;, zero(&env, a->p, a->n), (const ZkEnv *env, void *p, size_t n), p, n)
WORK(copy, void *to; const void *from; size_t n;, copy(&env, a->to, a->from, a->n),
                                                (const ZkEnv *env, void *to, const void *from, size_t n), to,
                                                from, n)
WORK(gather, size_t n; size_t row; const int32_t *map; const void *from; void *to;
     , gather(&env, a->n, a->row, a->map, a->from, a->to),
     (const ZkEnv *env, size_t n, size_t row, const int32_t *map, const void *from, void *to), n, row, map,
     from, to)
WORK(add_scalar, const float *x; double *sum;
     , add_scalar(&env, a->x, a->sum), (const ZkEnv *env, const float *x, double *sum), x, sum)
WORK(reciprocal, const double *x; float *y;
     , reciprocal(&env, a->x, a->y), (const ZkEnv *env, const double *x, float *y), x, y)

WORK(digest, const void *p; size_t n; uint64_t salt; uint64_t * sum;
     , digest(&env, a->p, a->n, a->salt, a->sum),
     (const ZkEnv *env, const void *p, size_t n, uint64_t salt, uint64_t *sum), p, n, salt, sum)

static void *pinned(const ZkEnv *env, size_t bytes, ZbErr *err) {
  (void)env, (void)err;
  return calloc(1, bytes);
}
static void unpin(const ZkEnv *env, void *p) {
  (void)env;
  free(p);
}
/* As if calls took 50 MB, the arena 150 MB and communicators 10 MB: it is asked before and after each. */
static void memory(const ZkEnv *env, uint64_t *total, uint64_t *unused) {
  static const uint64_t left[] = {900000000, 850000000, 700000000, 690000000};
  Device *d = device(env);
  ZB_ASSERT(d->asked < sizeof left / sizeof *left);
  *total = 1000000000;
  *unused = left[d->asked++];
}
static void *alloc(const ZkEnv *env, size_t bytes, ZbErr *err) {
  return zx_device_cpu.alloc(env, bytes, err);
}
static void release(const ZkEnv *env, void *p, size_t bytes) { zx_device_cpu.free(env, p, bytes); }
static size_t scratch(const ZkCall *call, int threads) { return zx_device_cpu.scratch(call, threads); }
static double peak(const ZkEnv *env, ZkElem elem, int ms) {
  ZkEnv e = at_now(env);
  return zx_device_cpu.measure_flops(&e, elem, ms);
}
static const char *describe(const ZkEnv *env) { return (void)env, "the CPU, with threads as streams"; }

static const ZxDeviceTable threads = {
    .name = "threads",
    .open = open_device,
    .close = close_device,
    .alloc = alloc,
    .free = release,
    .memory = memory,
    .scratch = scratch,
    .describe = describe,
    .measure_flops = peak,
    .run = run,
    .optimize = optimize,
    .matrix = matrix,
    .orthogonalize = orthogonalize,
    .update = update,
    .side_squares = side_squares,
    .side_factors = side_factors,
    .side_scale = side_scale,
    .average = average,
    .swap = swap,
    .sumsq_params = sumsq_params,
    .sumsq = sumsq,
    .add_bf16 = add_bf16,
    .axpy = axpy,
    .to_bf16 = to_bf16,
    .from_bf16 = from_bf16,
    .zero = zero,
    .copy = copy,
    .gather = gather,
    .add_scalar = add_scalar,
    .reciprocal = reciprocal,
    .digest = digest,
    .pinned = pinned,
    .unpin = unpin,
    .upload = copy,
    .download = copy,
    .events = events,
    .stream = set_stream,
    .current = current,
    .record = record,
    .wait = wait_event,
    .reached = reached,
    .idle = idle,
    .finish = finish,
    .capture = capture,
    .end_capture = captured,
    .replay = replay,
    .drop_graph = forget,
    .graph = use_graph,
};

const ZxDeviceTable *const zx_devices[] = {&threads, NULL};
