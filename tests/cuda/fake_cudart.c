/* The CUDA runtime as far as zrun uses it, on a GPU that is a thread. ZUG_TEST_GPUS: how many there are (8).
 * ZUG_TEST_GPU_MEMORY: bytes of each. ZUG_TEST_NO_WAIT=1: streams ignore events; numbers must then be others, or the test
 * sees nothing. ZUG_TEST_GPU_FAIL=N: the N-th piece of work breaks the device. */
#include "tests/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/exec/exec.h"

typedef struct Item {
  struct Item *next;
  bool (*go)(void *);
  void *arg;
  double from; /* not before */
} Item;

struct CUstream_st {
  Item *head, **tail;
  struct CUstream_st *next;
};

struct CUevent_st {
  uint64_t wanted, reached; /* how often it was recorded; how often that was reached */
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
  uint64_t drawn;
  long done;
  int device;
} gpu = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static _Thread_local cudaError_t last;

long gpu_setting(const char *name, long otherwise) {
  const char *s = getenv(name);
  return s && *s ? strtol(s, NULL, 10) : otherwise;
}

static cudaError_t say(cudaError_t e) {
  if (e != cudaSuccess) last = e;
  return e;
}

/* ---- the thread ---- */
static uint64_t draw(void) { return zb_mix64(gpu.drawn++ + ((uint64_t)getpid() << 32)); }

/* The device's memory is there for the thread while it works, and for nobody else. */
static void protect(int how) {
  for (Memory *m = gpu.memory; m; m = m->next)
    if (!m->pinned) mprotect(m->p, m->bytes, how);
}

/* Does what stands first in stream s, if it can be done now. Holds the lock but while it works. */
static bool serve(struct CUstream_st *s) {
  Item *i = s->head;
  if (!i || zx_now() < i->from) return false;
  protect(PROT_READ | PROT_WRITE);
  pthread_mutex_unlock(&gpu.lock);
  bool done = i->go(i->arg);
  pthread_mutex_lock(&gpu.lock);
  protect(PROT_NONE);
  if (!done) return false;
  if (!(s->head = i->next)) s->tail = &s->head;
  free(i);
  if (++gpu.done == gpu_setting("ZUG_TEST_GPU_FAIL", -1)) gpu.broken = true;
  pthread_cond_broadcast(&gpu.changed);
  return true;
}

static void *work(void *arg) {
  (void)arg;
  pthread_mutex_lock(&gpu.lock);
  while (!gpu.quit) {
    int n = 0, skip;
    for (struct CUstream_st *s = gpu.streams; s; s = s->next) n++;
    bool moved = false;
    skip = n ? (int)(draw() % (uint64_t)n) : 0;
    for (int turn = 0; turn < 2 && !moved; turn++) { /* from a stream drawn by chance to the end, then from the first */
      int at = 0;
      for (struct CUstream_st *s = gpu.streams; s && !moved; s = s->next)
        if (turn || at++ >= skip) moved = serve(s);
    }
    if (moved) continue;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += 100000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&gpu.changed, &gpu.lock, &t);
  }
  pthread_mutex_unlock(&gpu.lock);
  return NULL;
}

void gpu_push(struct CUstream_st *s, bool (*go)(void *), void *arg) {
  Item *i = malloc(sizeof *i);
  ZB_ASSERT(i != NULL);
  pthread_mutex_lock(&gpu.lock);
  uint64_t x = draw();
  *i = (Item){NULL, go, arg, x % 8 ? 0 : zx_now() + 4e-4 * (double)(x >> 40) / (1 << 24)};
  *s->tail = i;
  s->tail = &i->next;
  pthread_cond_broadcast(&gpu.changed);
  pthread_mutex_unlock(&gpu.lock);
}

/* ---- kernels ---- */
extern void (*zk_emu_queue)(struct CUstream_st *stream, void (*run)(void *arg), void *arg);
typedef struct {
  void (*run)(void *);
  void *arg;
} Launch;

static bool launch(void *arg) {
  Launch *l = arg;
  l->run(l->arg);
  free(l);
  return true;
}

static void queue_launch(struct CUstream_st *stream, void (*run)(void *), void *arg) {
  Launch *l = malloc(sizeof *l);
  ZB_ASSERT(l != NULL);
  *l = (Launch){run, arg};
  gpu_push(stream, launch, l);
}

__attribute__((constructor)) static void begin(void) { zk_emu_queue = queue_launch; }

/* ---- devices, errors ---- */
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

cudaError_t cudaGetLastError(void) {
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}

const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess            ? "no error"
         : e == cudaErrorNoDevice    ? "no CUDA-capable device is detected"
         : e == cudaErrorMemoryAllocation ? "out of memory"
         : e == cudaErrorIllegalAddress   ? "an illegal memory access was encountered"
                                          : "another error";
}

size_t cublasLtGetVersion(void);
size_t cublasLtGetVersion(void) { return 0; }

/* ---- memory ---- */
static size_t size_of_memory(void) { return (size_t)gpu_setting("ZUG_TEST_GPU_MEMORY", 1l << 34); }

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
  *total = size_of_memory();
  *left = *total - gpu.taken;
  return cudaSuccess;
}

static cudaError_t get(void **out, size_t bytes, bool pinned) {
  if (!pinned && bytes > size_of_memory() - gpu.taken) return say(cudaErrorMemoryAllocation);
  Memory *m = malloc(sizeof *m);
  ZB_ASSERT(m != NULL);
  bytes = zb_round_up(bytes, 4096);
  char *p = mmap(NULL, bytes, pinned ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ZB_ASSERT(p != MAP_FAILED);
  pthread_mutex_lock(&gpu.lock);
  *m = (Memory){gpu.memory, p, bytes, pinned};
  gpu.memory = m;
  if (!pinned) gpu.taken += bytes;
  pthread_mutex_unlock(&gpu.lock);
  *out = p;
  return cudaSuccess;
}

static cudaError_t give_back(void *p) {
  if (!p) return cudaSuccess;
  pthread_mutex_lock(&gpu.lock);
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
  free(m);
  return true;
}

static cudaError_t push_move(cudaStream_t stream, void *to, const void *from, size_t bytes) {
  Move *m = malloc(sizeof *m);
  ZB_ASSERT(m != NULL);
  *m = (Move){to, from, bytes};
  gpu_push(stream, move, m);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  bool down = kind == cudaMemcpyDeviceToHost, up = kind == cudaMemcpyHostToDevice;
  if (!inside(to, bytes, down) || !inside(from, bytes, up)) ZB_BUG("a copy of %zu bytes from or to the wrong memory", bytes);
  return push_move(stream, to, from, bytes);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  if (value || !inside(p, bytes, false)) ZB_BUG("clearing %zu bytes of the wrong memory", bytes);
  return push_move(stream, p, NULL, bytes);
}

/* ---- streams ---- */
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
  pthread_mutex_lock(&gpu.lock);
  while (!idle(s)) pthread_cond_wait(&gpu.changed, &gpu.lock);
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
  pthread_mutex_lock(&gpu.lock);
  bool yes = idle(s);
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : yes ? cudaSuccess : say(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void) {
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

/* ---- events ---- */
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
  pthread_mutex_unlock(&gpu.lock);
  free(m);
  return true;
}

static bool wait_for(void *arg) {
  Mark *m = arg;
  if (m->event->reached < m->count) return false; /* only this thread changes it */
  free(m);
  return true;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  ZB_ASSERT(flags == cudaEventDisableTiming);
  *e = calloc(1, sizeof **e);
  return *e ? cudaSuccess : say(cudaErrorMemoryAllocation);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  free(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  gpu_push(s, reach, mark(e, ++e->wanted));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  (void)flags;
  if (!gpu_setting("ZUG_TEST_NO_WAIT", 0)) gpu_push(s, wait_for, mark(e, e->wanted));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  pthread_mutex_lock(&gpu.lock);
  bool yes = e->reached == e->wanted;
  pthread_mutex_unlock(&gpu.lock);
  return gpu.broken ? say(cudaErrorIllegalAddress) : yes ? cudaSuccess : say(cudaErrorNotReady);
}
