/* The CUDA runtime as far as zrun uses it, on a GPU that is a thread. ZUG_TEST_GPUS: how many there are (8).
 * ZUG_TEST_GPU_MEMORY: bytes of each. ZUG_TEST_NO_WAIT=1: streams ignore events; numbers must then be others,
 * or the test sees nothing. ZUG_TEST_GPU_FAIL=N: the N-th piece of work breaks the device.
 *
 * What the real one may do, and a program must live with: ZUG_TEST_ONE_QUEUE=1: streams do not run side by
 * side, all is done in the order in which hosts gave it (CUDA promises no concurrency). ZUG_TEST_SYNC=1: now
 * and then a call first waits for all that the device has to do, as one that loads a kernel may. A GPU that
 * has work and does none for long ends the program.
 *
 * What the real one refuses is refused: see `unsafe`, `broken`, cudaStreamEndCapture. */
#include "tests/scenarios/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

/* What is done, by one item or, in a graph, by many. */
typedef struct {
  bool (*go)(void *);
  void (*drop)(void *);
  void *arg;
  int refs;
} Deed;

typedef struct Item {
  struct Item *next;
  Deed *deed;
  uint64_t number;
  double from; /* not before */
} Item;

struct CUstream_st {
  Item *head, **tail;
  struct CUstream_st *next;
  /* while it is captured: */
  struct CUgraph_st *graph;
  bool origin;
  uint64_t given, joined; /* how much it was given; up to where the origin waits for it */
};

struct CUevent_st {
  uint64_t wanted, reached; /* how often it was recorded; how often that was reached */
  /* the latest record was captured: */
  uint64_t capture; /* its number; 0: it was not */
  struct CUstream_st *stream;
  uint64_t given;
  struct Node *latest;
  double at; /* when it was reached */
};

/* Work, records and waits in the order in which streams were given them. Events are those of the graph
 * alone. */
typedef enum { WORK, RECORD, WAIT } Step;
typedef struct Node {
  struct Node *next;
  Step step;
  struct CUstream_st *stream;
  Deed *deed;
  struct Node *record; /* WAIT: for which */
  struct Node *copy;   /* while a graph is made runnable */
  struct CUevent_st event;
} Node;
struct CUgraph_st {
  uint64_t number;
  Node *head, **tail;
  bool spoilt;
};

typedef struct Memory {
  struct Memory *next;
  char *p;
  size_t bytes;
  bool pinned;
} Memory;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  bool running, quit, broken;
  struct CUstream_st *streams;
  Memory *memory;
  size_t taken;
  uint64_t drawn, given, captures;
  long done;
  double moved;               /* when it did something, or had nothing to do */
  struct CUgraph_st *capture; /* that goes on */
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local cudaError_t last;
enum { PATIENCE_S = 30 };

long gpu_setting(const char *name, long otherwise) {
  const char *s = getenv(name);
  return s && *s ? strtol(s, NULL, 10) : otherwise;
}

static cudaError_t say(cudaError_t e) {
  if (e != cudaSuccess) last = e;
  return e;
}

/* ---- the thread ---------------------------------------------------------------------------------------- */
static uint64_t draw(void) { return zb_mix64(gpu.drawn++ + ((uint64_t)getpid() << 32)); }

/* The device's memory is there for the thread while it works, and for nobody else. */
static void protect(int how) {
  for (Memory *m = gpu.memory; m; m = m->next)
    if (!m->pinned) mprotect(m->p, m->bytes, how);
}

static void release(Deed *d) {
  if (--d->refs) return;
  if (d->drop) d->drop(d->arg);
  free(d);
}

/* Does what stands first in stream s, if it can be done now. Holds the lock but while it works. */
static bool serve(struct CUstream_st *s) {
  Item *i = s->head;
  if (!i || zb_now() < i->from) return false;
  for (struct CUstream_st *k = gpu.streams; k && gpu_setting("ZUG_TEST_ONE_QUEUE", 0); k = k->next)
    if (k->head && k->head->number < i->number) return false;
  protect(PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&gpu.lock);
  bool done = i->deed->go(i->deed->arg);
  pthread_mutex_lock(&gpu.lock);
  protect(PROT_NONE);
  if (!done) return false;
  if (!(s->head = i->next)) s->tail = &s->head;
  release(i->deed);
  free(i);
  if (++gpu.done == gpu_setting("ZUG_TEST_GPU_FAIL", -1)) gpu.broken = true;
  pthread_cond_broadcast(&gpu.changed);
  return true;
}

static void *work(void *arg) {
  (void)arg;
  pthread_mutex_lock(&gpu.lock);
  gpu.moved = zb_now();
  while (!gpu.quit) {
    int n = 0, skip;
    for (struct CUstream_st *s = gpu.streams; s; s = s->next) n++;
    bool moved = false;
    skip = n ? (int)(draw() % (uint64_t)n) : 0;
    /* From a stream drawn by chance to the end, then from the first. */
    for (int turn = 0; turn < 2 && !moved; turn++) {
      int at = 0;
      for (struct CUstream_st *s = gpu.streams; s && !moved; s = s->next)
        if (turn || at++ >= skip) moved = serve(s);
    }
    bool idle = true;
    for (struct CUstream_st *s = gpu.streams; s; s = s->next) idle &= !s->head;
    if (moved || idle) gpu.moved = zb_now();
    if (moved) continue;
    if (zb_now() - gpu.moved > PATIENCE_S)
      ZB_BUG("the GPU has work and does none of it since %d s", PATIENCE_S);
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 100000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&gpu.changed, &gpu.lock, &t);
  }
  pthread_mutex_unlock(&gpu.lock);
  return NULL;
}

/* Holds the lock. */
static void enqueue(struct CUstream_st *s, Deed *d) {
  Item *i = malloc(sizeof *i);
  ZB_ASSERT(i != NULL);
  uint64_t x = draw();
  d->refs++;
  *i = (Item){NULL, d, gpu.given++, x % 8 ? 0 : zb_now() + 4e-4 * (double)(x >> 40) / (1 << 24)};
  *s->tail = i;
  s->tail = &i->next;
  pthread_cond_broadcast(&gpu.changed);
}

static Node *note(struct CUstream_st *s, Step step) {
  Node *n = calloc(1, sizeof *n);
  ZB_ASSERT(n != NULL);
  n->step = step;
  n->stream = s;
  s->given++;
  *s->graph->tail = n;
  s->graph->tail = &n->next;
  return n;
}

/* Holds the lock. */
static void wait_for_all(void) {
  for (bool busy = true; busy;) {
    busy = false;
    for (struct CUstream_st *s = gpu.streams; s; s = s->next) busy |= s->head != NULL;
    if (busy) pthread_cond_wait(&gpu.changed, &gpu.lock);
  }
}

bool gpu_capturing(const struct CUstream_st *s) { return s->graph != NULL; }

void gpu_push(struct CUstream_st *s, bool (*go)(void *), void (*drop)(void *), void *arg) {
  Deed *d = malloc(sizeof *d);
  ZB_ASSERT(d != NULL);
  *d = (Deed){go, drop, arg, 0};
  pthread_mutex_lock(&gpu.lock);
  if (!s->graph && gpu_setting("ZUG_TEST_SYNC", 0) && draw() % 4 == 0) wait_for_all();
  if (s->graph && s->graph->spoilt) last = cudaErrorStreamCaptureInvalidated;
  if (s->graph) note(s, WORK)->deed = d, d->refs++;
  else enqueue(s, d);
  pthread_mutex_unlock(&gpu.lock);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
extern void (*zk_emu_queue)(struct CUstream_st *stream, void (*run)(void *arg), void (*drop)(void *arg),
                            void *arg);
typedef struct {
  void (*run)(void *), (*drop)(void *);
  void *arg;
} Launch;

static bool launch(void *arg) {
  Launch *l = arg;
  l->run(l->arg);
  return true;
}

static void drop_launch(void *arg) {
  Launch *l = arg;
  l->drop(l->arg);
  free(l);
}

static void queue_launch(struct CUstream_st *stream, void (*run)(void *), void (*drop)(void *), void *arg) {
  Launch *l = malloc(sizeof *l);
  ZB_ASSERT(l != NULL);
  *l = (Launch){run, drop, arg};
  gpu_push(stream, launch, drop_launch, l);
}

__attribute__((constructor)) static void begin(void) { zk_emu_queue = queue_launch; }

/* ---- devices, errors ----------------------------------------------------------------------------------- */
cudaError_t cudaGetDeviceCount(int *n) {
  *n = (int)gpu_setting("ZUG_TEST_GPUS", 8);
  return *n ? cudaSuccess : say(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "a GPU of one thread");
  p->uuid.bytes[0] = (char)(device + 1);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  return *version = (int)gpu_setting("ZUG_TEST_DRIVER", 13000), cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess                         ? "no error"
         : e == cudaErrorNoDevice                 ? "no CUDA-capable device is detected"
         : e == cudaErrorMemoryAllocation         ? "out of memory"
         : e == cudaErrorIllegalAddress           ? "an illegal memory access was encountered"
         : e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
         : e == cudaErrorStreamCaptureInvalidated ? "operation failed due to a previous error during capture"
         : e == cudaErrorStreamCaptureUnjoined    ? "capture sequence contains an unjoined subsequence"
         : e == cudaErrorCapturedEvent
             ? "operation not permitted on an event last recorded in a capturing stream"
         : e == cudaErrorInvalidValue           ? "invalid argument"
         : e == cudaErrorStreamCaptureIsolation ? "dependency created on uncaptured work in another stream"
                                                : "another error";
}

/* ---- what a thread that captures may not do ---------------------------------------------------------------
 * Calls that do not only queue, with a capture that is not cudaStreamCaptureModeRelaxed
 * (cudaThreadExchangeStreamCaptureMode:
 * "potentially unsafe"): they are refused, and the capture is of no use any more. */
static bool unsafe(void) {
  if (!gpu.capture) return false;
  gpu.capture->spoilt = true;
  return true;
}

/* ---- memory -------------------------------------------------------------------------------------------- */
static size_t size_of_memory(void) { return (size_t)gpu_setting("ZUG_TEST_GPU_MEMORY", 1l << 34); }

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *total = size_of_memory();
  *left = *total - gpu.taken;
  return cudaSuccess;
}

static cudaError_t get(void **out, size_t bytes, bool pinned) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  if (!pinned && bytes > size_of_memory() - gpu.taken) return say(cudaErrorMemoryAllocation);
  Memory *m = malloc(sizeof *m);
  ZB_ASSERT(m != NULL);
  bytes = zb_round_up(bytes, 4096);
  char *p =
      mmap(NULL, bytes, pinned ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ZB_ASSERT(p != MAP_FAILED);
  pthread_mutex_lock(&gpu.lock);
  *m = (Memory){gpu.memory, p, bytes, pinned};
  gpu.memory = m;
  if (!pinned) gpu.taken += bytes;
  pthread_mutex_unlock(&gpu.lock);
  *out = p;
  return cudaSuccess;
}

/* Waits for the device, as the real one does. */
static cudaError_t give_back(void *p) {
  if (!p) return cudaSuccess;
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  pthread_mutex_lock(&gpu.lock);
  wait_for_all();
  Memory **at = &gpu.memory;
  while (*at && (*at)->p != (char *)p) at = &(*at)->next;
  Memory *m = *at;
  ZB_ASSERT(m != NULL);
  *at = m->next;
  if (!m->pinned) gpu.taken -= m->bytes;
  pthread_mutex_unlock(&gpu.lock);
  munmap(m->p, m->bytes);
  free(m);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return get(p, bytes, false); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return get(p, bytes, true); }
cudaError_t cudaFree(void *p) { return give_back(p); }
cudaError_t cudaFreeHost(void *p) { return give_back(p); }

static bool inside(const void *p, size_t bytes, bool pinned) {
  pthread_mutex_lock(&gpu.lock);
  bool yes = false;
  for (Memory *m = gpu.memory; m; m = m->next)
    yes |= m->pinned == pinned && (const char *)p >= m->p && (const char *)p + bytes <= m->p + m->bytes;
  pthread_mutex_unlock(&gpu.lock);
  return yes;
}

typedef struct {
  void *to;
  const void *from; /* NULL: cleared */
  size_t bytes;
} Move;

static bool move(void *arg) {
  Move *m = arg;
  if (m->from) memmove(m->to, m->from, m->bytes);
  else memset(m->to, 0, m->bytes);
  return true;
}

static cudaError_t push_move(cudaStream_t stream, void *to, const void *from, size_t bytes) {
  if (stream->graph && stream->graph->spoilt) return say(cudaErrorStreamCaptureInvalidated);
  Move *m = malloc(sizeof *m);
  ZB_ASSERT(m != NULL);
  *m = (Move){to, from, bytes};
  gpu_push(stream, move, free, m);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
  bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
  if (down &&
      bytes == sizeof(int)) { /* a trial's verdict, into memory that is not pinned: done when it returns */
    push_move(stream, to, from, bytes);
    return cudaStreamSynchronize(stream);
  }
  if (!inside(to, bytes, down) || !inside(from, bytes, up))
    ZB_BUG("a copy of %zu bytes from or to the wrong memory", bytes);
  return push_move(stream, to, from, bytes);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  if (value || !inside(p, bytes, false)) ZB_BUG("clearing %zu bytes of the wrong memory", bytes);
  return push_move(stream, p, NULL, bytes);
}

/* ---- streams ------------------------------------------------------------------------------------------- */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  ZB_ASSERT(flags == cudaStreamNonBlocking && priority <= 0);
  cudaStream_t s = calloc(1, sizeof *s);
  ZB_ASSERT(s != NULL);
  s->tail = &s->head;
  pthread_mutex_lock(&gpu.lock);
  s->next = gpu.streams;
  gpu.streams = s;
  if (!gpu.running) gpu.running = pthread_create(&gpu.thread, NULL, work, NULL) == 0;
  ZB_ASSERT(gpu.running);
  pthread_mutex_unlock(&gpu.lock);
  *out = s;
  return cudaSuccess;
}

static bool idle(const struct CUstream_st *s) { return !s->head; }

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  pthread_mutex_lock(&gpu.lock);
  while (!idle(s)) pthread_cond_wait(&gpu.changed, &gpu.lock);
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  pthread_mutex_lock(&gpu.lock);
  bool yes = idle(s);
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : yes ? cudaSuccess : say(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  for (struct CUstream_st *s = gpu.streams; s; s = s->next) cudaStreamSynchronize(s);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
  cudaStreamSynchronize(s);
  pthread_mutex_lock(&gpu.lock);
  struct CUstream_st **at = &gpu.streams;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  bool end = !gpu.streams;
  gpu.quit = end;
  pthread_cond_broadcast(&gpu.changed);
  pthread_mutex_unlock(&gpu.lock);
  if (end) {
    pthread_join(gpu.thread, NULL);
    gpu.running = gpu.quit = false;
  }
  free(s);
  return cudaSuccess;
}

/* On a stream of their own, as the default stream is; streams of zrun do not wait for it. */
static cudaError_t at_once(void *to, const void *from, size_t bytes) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  cudaStream_t s;
  cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0);
  push_move(s, to, from, bytes);
  cudaStreamSynchronize(s);
  return cudaStreamDestroy(s);
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  ZB_ASSERT(value == 0);
  return at_once(p, NULL, bytes);
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  return at_once(to, from, bytes);
}

/* ---- events -------------------------------------------------------------------------------------------- */
typedef struct {
  cudaEvent_t event;
  uint64_t count;
} Mark;

static Mark *mark(cudaEvent_t e, uint64_t count) {
  Mark *m = malloc(sizeof *m);
  ZB_ASSERT(m != NULL);
  *m = (Mark){e, count};
  return m;
}

static bool reach(void *arg) {
  Mark *m = arg;
  pthread_mutex_lock(&gpu.lock);
  m->event->reached = m->count;
  m->event->at = zb_now();
  pthread_mutex_unlock(&gpu.lock);
  return true;
}

static bool wait_for(void *arg) {
  Mark *m = arg;
  return m->event->reached >= m->count; /* only this thread changes it */
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  ZB_ASSERT(flags == cudaEventDisableTiming);
  *e = calloc(1, sizeof **e);
  return *e ? cudaSuccess : say(cudaErrorMemoryAllocation);
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
  return *e = calloc(1, sizeof **e), *e ? cudaSuccess : say(cudaErrorMemoryAllocation);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  pthread_mutex_lock(&gpu.lock);
  while (e->reached != e->wanted) pthread_cond_wait(&gpu.changed, &gpu.lock);
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  return *ms = (float)(1e3 * (to->at - from->at)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  /* Allowed; here it would be missed. */
  if (e->reached != e->wanted) ZB_BUG("an event goes that work is still to reach");
  free(e);
  return cudaSuccess;
}
/* Whether the event's latest record is of the capture that goes on; whether it was of one that is over. */
static bool captured(const struct CUevent_st *e) { return gpu.capture && e->capture == gpu.capture->number; }
static bool broken(const struct CUevent_st *e) { return e->capture && !captured(e); }

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (s->graph && s->graph->spoilt) return say(cudaErrorStreamCaptureInvalidated);
  e->capture = s->graph ? s->graph->number : 0;
  e->stream = s;
  if (s->graph) {
    e->latest = note(s, RECORD);
    e->given = s->given;
  } else gpu_push(s, reach, free, mark(e, ++e->wanted));
  return cudaSuccess;
}

/* In a capture: an event of the same capture brings a stream in, or joins another to the origin. */
static cudaError_t wait_captured(cudaStream_t s, cudaEvent_t e) {
  struct CUgraph_st *g = gpu.capture;
  if (g->spoilt) return say(cudaErrorStreamCaptureInvalidated);
  if (!captured(e)) return unsafe(), say(cudaErrorStreamCaptureIsolation);
  if (!s->graph) s->graph = g, s->given = s->joined = 0;
  note(s, WAIT)->record = e->latest;
  if (s->origin && e->given > e->stream->joined) e->stream->joined = e->given;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  (void)flags;
  bool no_wait = gpu_setting("ZUG_TEST_NO_WAIT", 0);
  if (s->graph || captured(e)) return wait_captured(s, e);
  if (broken(e)) return say(cudaErrorCapturedEvent);
  if (!no_wait) gpu_push(s, wait_for, free, mark(e, e->wanted));
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  if (broken(e)) return say(cudaErrorCapturedEvent);
  pthread_mutex_lock(&gpu.lock);
  bool yes = e->reached == e->wanted;
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : yes ? cudaSuccess : say(cudaErrorNotReady);
}

/* ---- graphs -----------------------------------------------------------------------------------------------
 * ZUG_TEST_GRAPH_FAIL=1: none can be made. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
  ZB_ASSERT(mode == cudaStreamCaptureModeThreadLocal && !gpu.capture);
  s->graph = gpu.capture = calloc(1, sizeof *s->graph);
  ZB_ASSERT(s->graph != NULL);
  s->graph->number = ++gpu.captures;
  s->graph->tail = &s->graph->head;
  s->origin = true;
  s->given = s->joined = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  *status = !s->graph          ? cudaStreamCaptureStatusNone
            : s->graph->spoilt ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t origin, cudaGraph_t *out) {
  struct CUgraph_st *g = origin->graph;
  ZB_ASSERT(g != NULL && origin->origin);
  bool joined = true;
  for (struct CUstream_st *s = gpu.streams; s; s = s->next) {
    if (s->graph != g) continue;
    joined &= s->origin || s->joined == s->given;
    s->graph = NULL;
    s->origin = false;
  }
  gpu.capture = NULL;
  *out = NULL;
  if (joined && !g->spoilt) return *out = g, cudaSuccess;
  cudaError_t why = joined ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  cudaGraphDestroy(g);
  return say(why);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  for (Node *n = g->head, *next; n; n = next) {
    next = n->next;
    if (n->deed) release(n->deed);
    free(n);
  }
  free(g);
  return cudaSuccess;
}

struct CUgraphExec_st {
  struct CUgraph_st graph;
};

/* Records and waits become edges. */
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
  ZB_ASSERT(!nodes);
  *n = 0;
  for (Node *k = g->head; k; k = k->next) *n += k->step == WORK;
  return cudaSuccess;
}

/* A copy, since the graph itself may go. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
  ZB_ASSERT(flags == cudaGraphInstantiateFlagUseNodePriority);
  if (gpu_setting("ZUG_TEST_GRAPH_FAIL", 0)) return say(cudaErrorMemoryAllocation);
  struct CUgraphExec_st *x = calloc(1, sizeof *x);
  ZB_ASSERT(x != NULL);
  x->graph.tail = &x->graph.head;
  for (Node *n = g->head; n; n = n->next) {
    Node *copy = malloc(sizeof *copy);
    ZB_ASSERT(copy != NULL);
    *copy = *n;
    copy->next = NULL;
    if (n->deed) n->deed->refs++;
    n->copy = copy;
    if (n->record) copy->record = n->record->copy;
    *x->graph.tail = copy;
    x->graph.tail = &copy->next;
  }
  *out = x;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s) { return (void)x, (void)s, cudaSuccess; }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  if (unsafe()) return say(cudaErrorStreamCaptureUnsupported);
  cudaDeviceSynchronize();
  for (Node *n = x->graph.head, *next; n; n = next) {
    next = n->next;
    if (n->deed) release(n->deed);
    free(n);
  }
  free(x);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  if (!x) return say(cudaErrorInvalidValue);
  bool no_wait = gpu_setting("ZUG_TEST_NO_WAIT", 0);
  for (Node *n = x->graph.head; n; n = n->next) {
    if (n->step == WORK) {
      pthread_mutex_lock(&gpu.lock);
      enqueue(n->stream, n->deed);
      pthread_mutex_unlock(&gpu.lock);
    } else if (n->step == RECORD) gpu_push(n->stream, reach, free, mark(&n->event, ++n->event.wanted));
    else if (!no_wait) gpu_push(n->stream, wait_for, free, mark(&n->record->event, n->record->event.wanted));
  }
  return (void)s, cudaSuccess;
}
