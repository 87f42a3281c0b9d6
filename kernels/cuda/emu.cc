/* The emulator behind emu.h: threads of a block as fibers, and a context without a device. */
#include "kernels/cuda/common.cuh"

#include <sys/mman.h>
#include <algorithm>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* ---- switching stacks ----------------------------------------------------------------------------------
 * A fiber is a stack that runs threads one after another until one of them has to wait; then it belongs to
 * that thread until the thread returns. */
#if defined(__x86_64__) && !defined(ZK_EMU_UCONTEXT)
extern "C" void zk_emu_switch(void **save, void *load);
asm(".text\n.type zk_emu_switch,@function\nzk_emu_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size zk_emu_switch,.-zk_emu_switch\n");
struct Context {
  void *sp;
};
static void context_make(Context *c, char *stack, size_t size, void (*entry)()) {
  void **sp = (void **)(stack + size); /* 16-byte aligned; a call pushes 8 bytes */
  *--sp = nullptr;
  *--sp = (void *)entry;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  c->sp = sp;
}
static void context_switch(Context *from, Context *to) { zk_emu_switch(&from->sp, to->sp); }
#else
#include <ucontext.h>
struct Context {
  ucontext_t u;
};
static void context_make(Context *c, char *stack, size_t size, void (*entry)()) {
  getcontext(&c->u);
  c->u.uc_stack.ss_sp = stack;
  c->u.uc_stack.ss_size = size;
  makecontext(&c->u, entry, 0);
}
static void context_switch(Context *from, Context *to) { swapcontext(&from->u, &to->u); }
#endif

zk_emu_take *zk_emu_queue;

namespace zk_emu {

enum { STACK = 256 << 10, PAGE = 4096, MAX_SHARED = 227 << 10, MAX_STATIC = 48 << 10 };

struct Fiber {
  Context context;
  char *stack;
  void *fake; /* AddressSanitizer's */
};

enum State { NEW, READY, AT_BARRIER, AT_MEETING, DONE };
struct Thread {
  State state;
  Fiber *fiber; /* while it waits */
  unsigned mask;
  void *mine;
  Combine *combine;
  Place at;
};

struct Shared {
  const void *tag;
  void *p;
  size_t bytes;
};

Now now;

static struct {
  const char *name;
  Body *body;
  void *arg;
  unsigned n, done, started, waiting; /* threads; waiting: at the barrier */
  unsigned current;
  Thread thread[1024];
  unsigned turn[1024];  /* the order in which threads get the processor */
  unsigned rank[1024];  /* which turn a thread has */
  unsigned first;       /* no thread whose turn is earlier is READY */
  unsigned missing[32]; /* of each warp, the lane for which a meeting waited last: it is looked at first */
  Fiber pool[1024], *idle[1024];
  unsigned nfibers, nidle; /* made; of these idle */
  Fiber *fiber;            /* that runs */
  Fiber scheduler;
  const void *scheduler_bottom;
  size_t scheduler_size;
  std::vector<Shared> shared;
  char *dynamic;
  size_t dynamic_bytes, shared_bytes;
  int order;
  /* Whoever is first in turn runs as far as it can, so that some warps are a barrier ahead of others. */
  bool greedy;
  bool ready; /* some thread may be READY */
  uint64_t random;
} s;

void stop(const char *why, Place at) {
  fprintf(stderr, "emulated kernel %s, block (%u, %u, %u): %s", s.name, now.block.x, now.block.y, now.block.z,
          why);
  if (at.line) fprintf(stderr, " (%s:%d)", at.file, at.line);
  fputc('\n', stderr);
  unsigned shown = 0;
  for (unsigned i = 0; i < s.n && shown < 8; i++) {
    const Thread *t = &s.thread[i];
    if (t->state != AT_BARRIER && t->state != AT_MEETING) continue;
    fprintf(stderr, "  thread %u waits at %s:%d\n", i, t->at.file, t->at.line);
    shown++;
  }
  abort();
}

/* ---- fibers -------------------------------------------------------------------------------------------- */
static void enter(unsigned i) {
  s.current = i;
  unsigned x = now.block_dim.x, y = now.block_dim.y;
  now.thread = dim3(i % x, i / x % y, i / (x * y));
}

static void to_scheduler() {
  Fiber *me = s.fiber;
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(&me->fake, s.scheduler_bottom, s.scheduler_size);
#endif
  context_switch(&me->context, &s.scheduler.context);
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(me->fake, nullptr, nullptr);
#endif
}

static void to_fiber(Fiber *f) {
  s.fiber = f;
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(&s.scheduler.fake, f->stack + PAGE, STACK);
#endif
  context_switch(&s.scheduler.context, &f->context);
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(s.scheduler.fake, nullptr, nullptr);
#endif
}

/* Runs threads that have not begun. A thread that waits leaves this loop in the middle of its body, on this
 * stack, and comes back to it later. */
static void fiber_main() {
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &s.scheduler_bottom, &s.scheduler_size);
#endif
  for (;;) {
    while (s.started < s.n && !(s.greedy && s.ready)) {
      unsigned i = s.turn[s.started++];
      enter(i);
      s.body(s.arg);
      s.thread[s.current].state = DONE; /* the one that returned here may be another than began */
      s.done++;
    }
    s.idle[s.nidle++] = s.fiber;
    to_scheduler();
  }
}

static Fiber *fiber_take() {
  if (s.nidle) return s.idle[--s.nidle];
  Fiber *f = &s.pool[s.nfibers++]; /* never more than threads */
  f->stack = (char *)mmap(nullptr, PAGE + STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (f->stack == MAP_FAILED) stop("no memory for stacks", {"", 0});
  mprotect(f->stack, PAGE, PROT_NONE); /* an overflow faults */
  context_make(&f->context, f->stack + PAGE, STACK, fiber_main);
  return f;
}

/* The running thread gives up the processor until its state is READY and its turn comes. */
static void wait_here(State state, Place at) {
  unsigned me = s.current;
  s.thread[me].state = state;
  s.thread[me].at = at;
  s.thread[me].fiber = s.fiber;
  to_scheduler();
  enter(me);
}

/* ---- barriers and meetings ----------------------------------------------------------------------------- */
void barrier(Place at) {
  static Place first; /* where the threads that are here already wait */
  if (s.waiting == 0) first = at;
  if (first.line != at.line || strcmp(first.file, at.file) != 0)
    stop("threads wait at two different barriers", at);
  s.waiting++;
  wait_here(AT_BARRIER, at);
}

unsigned lane() { return s.current & 31; }

static void make_ready(unsigned i) {
  s.thread[i].state = READY;
  s.ready = true;
  s.first = std::min(s.first, s.rank[i]);
}

/* Whether a lane of the mask is still to come. */
static bool is_missing(unsigned me, unsigned lane, Place at) {
  unsigned i = (me & ~31u) + lane;
  const Thread *t = &s.thread[me], *o = &s.thread[i];
  if (i >= s.n || o->state == DONE) stop("a lane of the mask does not exist or has returned", at);
  return i != me && (o->state != AT_MEETING || o->mask != t->mask || o->combine != t->combine);
}

void meet(unsigned mask, void *mine, Combine *combine, Place at) {
  unsigned me = s.current, base = me & ~31u, *missing = &s.missing[me / 32];
  if (!(mask >> (me & 31) & 1)) stop("a lane is not in the mask that it gives", at);
  Thread *t = &s.thread[me];
  t->mask = mask;
  t->mine = mine;
  t->combine = combine;
  t->at = at;
  void *lane[32] = {};
  for (unsigned k = 0; k < 32; k++) {
    unsigned l = (*missing + k) & 31;
    if (!(mask >> l & 1)) continue;
    if (is_missing(me, l, at)) {
      *missing = l;
      wait_here(AT_MEETING, at);
      return;
    }
    lane[l] = s.thread[base + l].mine;
  }
  combine(lane);
  for (unsigned l = 0; l < 32; l++)
    if ((mask >> l & 1) && base + l != me) make_ready(base + l);
}

/* ---- shared memory ------------------------------------------------------------------------------------- */
void *shared(const void *tag, size_t bytes) {
  for (const Shared &v : s.shared)
    if (v.tag == tag) return v.p;
  s.shared_bytes += bytes;
  if (s.shared_bytes > MAX_STATIC) stop("too much shared memory in variables", {"", 0});
  void *p = aligned_alloc(16, (bytes + 15) & ~(size_t)15);
  memset(p, 0xff, bytes);
  s.shared.push_back({tag, p, bytes});
  return p;
}

void *shared_dynamic() { return s.dynamic; }

/* ---- a launch ------------------------------------------------------------------------------------------ */
static void make_turns() {
  for (unsigned i = 0; i < s.n; i++) s.turn[i] = s.order == 1 ? s.n - 1 - i : i;
  for (unsigned i = s.n - 1; s.order >= 2 && s.order != 3 && i > 0; i--) {
    s.random = s.random * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(s.turn[i], s.turn[(s.random >> 33) % (i + 1)]);
  }
  for (unsigned i = 0; i < s.n; i++) s.rank[s.turn[i]] = i;
}

/* Gives every READY thread a turn, or (greedy) the first of them. */
static bool run_ready() {
  bool ran = false;
  unsigned k = s.first;
  s.ready = false;
  s.first = s.n;
  for (; k < s.n; k++) {
    Thread *t = &s.thread[s.turn[k]];
    if (t->state != READY) continue;
    if (ran && s.greedy) {
      s.ready = true;
      s.first = std::min(s.first, k);
      break;
    }
    ran = true;
    to_fiber(t->fiber);
  }
  return ran;
}

static void run_block() {
  s.done = s.started = s.waiting = 0;
  s.ready = false;
  s.first = s.n;
  for (unsigned i = 0; i < s.n; i++) s.thread[i] = {};
  for (const Shared &v : s.shared) memset(v.p, 0xff, v.bytes);
  if (s.dynamic) memset(s.dynamic, 0xff, s.dynamic_bytes);
  while (s.done < s.n) {
    if (run_ready()) continue;
    if (s.started < s.n) {
      to_fiber(fiber_take());
    } else if (s.waiting && s.waiting == s.n - s.done) {
      if (s.done) stop("a barrier after some threads have returned", {"", 0});
      for (unsigned i = 0; i < s.n; i++) s.thread[i].state = READY;
      s.waiting = 0;
      s.first = 0;
      make_turns();
    } else if (s.done < s.n) {
      stop("threads wait for others that will not come", {"", 0});
    }
  }
}

void run(const char *name, dim3 grid, dim3 block, size_t shared, Body *body, void *arg) {
  s.name = name;
  s.body = body;
  s.arg = arg;
  s.n = block.x * block.y * block.z;
  now.block_dim = block;
  now.grid_dim = grid;
  if (s.n == 0 || s.n > 1024) stop("a block of no or of more than 1024 threads", {"", 0});
  if (grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffffu) stop("too large a grid", {"", 0});
  s.dynamic = shared ? (char *)aligned_alloc(16, (shared + 15) & ~(size_t)15) : nullptr;
  s.dynamic_bytes = shared;
  s.shared_bytes = 0;
  s.random = (uint64_t)s.order;
  s.greedy = s.order % 2 == 1;
  make_turns();
  for (unsigned z = 0; z < grid.z; z++)
    for (unsigned y = 0; y < grid.y; y++)
      for (unsigned x = 0; x < grid.x; x++) {
        now.block = dim3(x, y, z);
        run_block();
      }
  if (s.shared_bytes + shared > MAX_SHARED) stop("too much shared memory", {"", 0});
  for (const Shared &v : s.shared) free(v.p);
  s.shared.clear();
  free(s.dynamic);
}

} // namespace zk_emu

/* ---- a context without a device ------------------------------------------------------------------------ */
ZkCuda *zk_cuda_new(int device, ZbErr *err) {
  (void)err;
  ZkCuda *cu = (ZkCuda *)calloc(1, sizeof *cu);
  cu->device = device;
  cu->sms = 1;
  cu->most_blocks = 3; /* so that small cases go round the kernels' loops */
  cu->arch = 90;
  cu->l2 = 50 << 20;
  cu->rates = {989e12, 494e12, 67e12, 3.35e12, 55e9, 132}; /* an H100's */
  cu->parts = (double *)malloc(ZK_CUDA_PARTS * sizeof(double));
  cu->arrived = (unsigned *)calloc(ZK_CUDA_ARRIVALS, sizeof(unsigned));
  return cu;
}

ZkCuda *zk_cuda_pretend(void) {
  ZkCuda *cu = zk_cuda_new(0, NULL);
  cu->pretend = true;
  return cu;
}

void zk_cuda_free(ZkCuda *cu) {
  if (!cu) return;
  zk_cuda_forget(cu);
  free(cu->arrived);
  free(cu->parts);
  free(cu);
}

const char *zk_cuda_error(ZkCuda *cu) { return cu->failed ? cu->error : NULL; }
const char *zk_cuda_describe(ZkCuda *cu) { return (void)cu, "emulated"; }

void zk_cuda_emulate(int order) { zk_emu::s.order = order; }
