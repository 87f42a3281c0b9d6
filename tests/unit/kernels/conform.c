/* The harness of the conformance tests. See conform.h. */
#include "tests/unit/kernels/conform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define GUARD 64
#define GUARD_BYTE 0xA5
#define SHUFFLES 3

/* ---- memory -------------------------------------------------------------------------------------------- */
void *memory_new(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  void *p = backend.get ? backend.get(bytes) : aligned_alloc(64, bytes);
  cr_assert(p != NULL);
  return p;
}

void memory_free(void *p) {
  if (backend.get) backend.give_back(p);
  else free(p);
}

/* ---- buffers between guards ---------------------------------------------------------------------------- */
typedef struct {
  char *block;
  size_t before, bytes, size; /* bytes of the guard before; size: of the block, with guards */
} Buffer;

static void *buffer_data(const Buffer *b) { return b->block + b->before; }

/* With AddressSanitizer, reading a guard is a mistake too. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static void buffer_close(const Buffer *b) {
  __asan_poison_memory_region(b->block, b->before);
  __asan_poison_memory_region(b->block + b->before + b->bytes, b->size - b->before - b->bytes);
}
static void buffer_open(const Buffer *b) { __asan_unpoison_memory_region(b->block, b->size); }
#else
static void buffer_close(const Buffer *b) { (void)b; }
static void buffer_open(const Buffer *b) { (void)b; }
#endif

static Buffer buffer_new(size_t bytes, size_t shift) {
  Buffer b = {
      .before = GUARD + shift, .bytes = bytes, .size = (GUARD + shift + bytes + GUARD + 63) / 64 * 64};
  b.block = memory_new(b.size);
  memset(b.block, GUARD_BYTE, b.size);
  buffer_close(&b);
  return b;
}

static bool buffer_intact(const Buffer *b) {
  buffer_open(b);
  for (size_t i = 0; i < b->size; i++) {
    if (i == b->before) i += b->bytes;
    if (i < b->size && (unsigned char)b->block[i] != GUARD_BYTE) return false;
  }
  return true;
}

static void buffer_free(const Buffer *b) {
  buffer_open(b);
  memory_free(b->block);
}

/* ---- dims and views ------------------------------------------------------------------------------------ */
static void dims_find(const Case *c, char axis, int64_t *size, int64_t *start, int64_t *whole) {
  for (const char *p = c->dims; p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
    if (*p != axis) continue;
    long long n, at = 0, all = -1;
    int got = sscanf(p + 1, "=%lld@%lld/%lld", &n, &at, &all);
    cr_assert(got == 1 || got == 3, "bad dims %s", c->dims);
    *size = n;
    *start = at;
    *whole = got == 3 ? all : n;
    return;
  }
  cr_assert_fail("axis %c is not in dims %s", axis, c->dims);
}

int64_t count_of(const Case *c, const char *axes) {
  int64_t n = 1, size, start, whole;
  for (; *axes; axes++) {
    dims_find(c, *axes, &size, &start, &whole);
    n *= size;
  }
  return n;
}

/* A dense view whose axes lie in declared order (shuffle 0) or another one. */
static ZkView make_view(const Case *c, const Tensor *t, ZkElem elem, int shuffle, uint64_t salt) {
  ZkView v = {.elem = elem, .rank = (uint8_t)strlen(t->axes)};
  char axes[ZK_MAX_AXES + 1];
  strcpy(axes, t->axes);
  for (int i = v.rank - 1; shuffle > 0 && i > 0; i--) {
    int j = (int)(zb_random_u64((uint64_t)shuffle, salt, (uint64_t)i) % (uint64_t)(i + 1));
    char swap = axes[i];
    axes[i] = axes[j];
    axes[j] = swap;
  }
  int64_t stride = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    v.axis[i] = (uint16_t)axes[i];
    dims_find(c, axes[i], &v.size[i], &v.start[i], &v.whole[i]);
    v.stride[i] = stride;
    stride *= v.size[i];
  }
  return v;
}

/* Offset in view `v` of element k of the tensor in declared order. */
static int64_t offset_of(const Tensor *t, const ZkView *v, int64_t k) {
  int64_t at = 0;
  for (int i = v->rank - 1; i >= 0; i--) {
    int j = 0;
    while (v->axis[j] != (uint16_t)t->axes[i]) j++;
    at += k % v->size[j] * v->stride[j];
    k /= v->size[j];
  }
  return at;
}

/* ---- elements ------------------------------------------------------------------------------------------ */
static uint16_t bf16_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  if (isnan(x)) return 0x7fc0;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static double load(const ZkView *v, int64_t at) {
  if (v->elem == ZK_F64) return ((double *)v->data)[at];
  if (v->elem == ZK_F32) return ((float *)v->data)[at];
  if (v->elem == ZK_I32) return ((int32_t *)v->data)[at];
  uint32_t u = (uint32_t)((uint16_t *)v->data)[at] << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

static void store(const ZkView *v, int64_t at, double x) {
  if (v->elem == ZK_F64) ((double *)v->data)[at] = x;
  else if (v->elem == ZK_F32) ((float *)v->data)[at] = (float)x;
  else if (v->elem == ZK_I32) ((int32_t *)v->data)[at] = isnan(x) ? INT32_MIN : (int32_t)x;
  else ((uint16_t *)v->data)[at] = bf16_bits((float)x);
}

static double round_to(ZkElem e, double x) {
  union {
    double d;
    float f;
    int32_t i;
    uint16_t h;
  } space;
  ZkView v = {.data = &space, .elem = e};
  store(&v, 0, x);
  return load(&v, 0);
}

static double draw(const Tensor *t, uint64_t salt, int64_t k) {
  double u = zb_random_unit(7, salt, (uint64_t)k);
  if (t->value) return t->value[k];
  if (t->kind == ID) return floor(t->lo + u * (t->hi - t->lo + 1));
  if (t->lo < t->hi) return t->lo + u * (t->hi - t->lo);
  return zb_random_normal(7, salt, (uint64_t)k);
}

/* ---- one way to run a case ----------------------------------------------------------------------------- */
typedef enum { ALL_F32, ALL_BF16, BF16_IN, MODES } Mode;
static const char *const mode_name[MODES] = {"f32", "bf16", "bf16 to f32"};

static ZkElem elem_of(const Tensor *t, Mode mode, bool result) {
  if (t->kind == ID) return ZK_I32;
  if (t->kind == EXACT || mode == ALL_F32 || (mode == BF16_IN && result)) return ZK_F32;
  return ZK_BF16;
}

static ZkCall make_call(const Case *c) {
  ZkCall call = {.op = (uint16_t)c->op, .pointwise = c->pointwise, .accumulate = c->accumulate};
  call.repeatable = conform_repeatable;
  call.invariant = conform_invariant;
  while (c->in[call.nin].axes) call.nin++;
  while (c->out[call.nout].axes) call.nout++;
  for (const char *a = c->ax; a && *a; a++) call.ax[call.nax++] = (uint16_t)*a;
  memcpy(call.num, c->num, sizeof call.num);
  memcpy(call.opt, c->opt, sizeof call.opt);
  return call;
}

/* What operands hold and results begin with, in declared order: drawn once for all that a mode runs. */
typedef struct {
  int64_t n[ZK_MAX_IN + ZK_MAX_OUT];
  double *x[ZK_MAX_IN + ZK_MAX_OUT];
} Numbers;

static Numbers numbers_new(const Case *c, Mode mode) {
  Numbers d = {0};
  ZkCall call = make_call(c);
  for (int k = 0; k < call.nin + call.nout; k++) {
    bool result = k >= call.nin;
    const Tensor *t = result ? &c->out[k - call.nin] : &c->in[k];
    ZkElem elem = elem_of(t, mode, result);
    d.n[k] = count_of(c, t->axes);
    d.x[k] = malloc((size_t)(d.n[k] + 1) * sizeof(double));
    for (int64_t i = 0; i < d.n[k]; i++)
      d.x[k][i] = result && !c->accumulate ? NAN : round_to(elem, draw(t, (uint64_t)k + 100, i));
  }
  return d;
}

static void numbers_free(Numbers *d) {
  for (int k = 0; k < ZK_MAX_IN + ZK_MAX_OUT; k++) free(d->x[k]);
}

/* Views and their buffers: operands filled, results prefilled. */
static void set_up(const Case *c, ZkCall *call, const Numbers *d, Mode mode, bool f64, int shuffle,
                   Buffer *buf) {
  for (int k = 0; k < call->nin + call->nout; k++) {
    bool result = k >= call->nin;
    const Tensor *t = result ? &c->out[k - call->nin] : &c->in[k];
    ZkView *v = result ? &call->out[k - call->nin] : &call->in[k];
    ZkElem elem = elem_of(t, mode, result);
    *v = make_view(c, t, f64 && elem != ZK_I32 ? ZK_F64 : elem, shuffle, (uint64_t)k);
    size_t bytes = zk_plain_bytes((ZkElem)v->elem);
    buf[k] = buffer_new((size_t)d->n[k] * bytes, backend.odd && shuffle == SHUFFLES - 1 ? bytes : 0);
    v->data = buffer_data(&buf[k]);
    for (int64_t i = 0; i < d->n[k]; i++) store(v, offset_of(t, v, i), d->x[k][i]);
  }
}

static void tear_down(const ZkCall *call, Buffer *buf) {
  for (int k = 0; k < call->nin + call->nout; k++) buffer_free(&buf[k]);
}

static void run_reference(const Case *c, const Numbers *d, Mode mode, double *result[ZK_MAX_OUT]) {
  ZkCall call = make_call(c);
  Buffer buf[ZK_MAX_IN + ZK_MAX_OUT];
  ZkEnv env = {.seed = 11, .step = 3};
  set_up(c, &call, d, mode, true, 0, buf);
  zk_ref_run(&env, &call);
  for (int k = 0; k < call.nout; k++) {
    int64_t n = d->n[call.nin + k];
    result[k] = malloc((size_t)(n + 1) * sizeof(double));
    for (int64_t i = 0; i < n; i++) result[k][i] = load(&call.out[k], i);
  }
  tear_down(&call, buf);
}

void reference(const Case *c, double *result[ZK_MAX_OUT]) {
  Numbers d = numbers_new(c, ALL_F32);
  run_reference(c, &d, ALL_F32, result);
  numbers_free(&d);
}

/* Compares one result; returns an index that is off, or -1. */
static int64_t wrong_at(const Tensor *t, const ZkView *v, const double *want, int64_t n, double tol,
                        double floor) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(want[i])) largest = fmax(largest, fabs(want[i]));
  for (int64_t i = 0; i < n; i++) {
    double got = load(v, offset_of(t, v, i)), w = want[i];
    double limit = tol * largest + floor + (v->elem == ZK_BF16 ? ldexp(fabs(w), -8) : 0);
    if (!(got == w || fabs(got - w) <= limit)) return i;
  }
  return -1;
}

static void check_operands(const Case *c, const ZkCall *call, const Numbers *d, const char *where) {
  for (int k = 0; k < call->nin; k++) {
    const Tensor *t = &c->in[k];
    for (int64_t i = 0; i < d->n[k]; i++) {
      double x = d->x[k][i], now = load(&call->in[k], offset_of(t, &call->in[k], i));
      EACH_ASSERT(now == x || (isnan(now) && isnan(x)), "%s: operand %d changed", where, k);
    }
  }
}

/* Runs the kernel with scratch of exactly the size it asked for, which it may not overrun. */
static bool run_kernel(ZkCall call, ZkKernel *kernel, int way) {
  ZkEnv env = {.seed = 11, .step = 3};
  int threads = backend.open(&env, way);
  ZkCall shapes = call; /* pointers are not looked at: there are none */
  for (int k = 0; k < call.nin; k++) shapes.in[k].data = NULL;
  for (int k = 0; k < call.nout; k++) shapes.out[k].data = NULL;
  Buffer scratch = buffer_new(backend.scratch(&shapes, threads), 0);
  memset(buffer_data(&scratch), 0xff, scratch.bytes); /* NaN */
  call.scratch = buffer_data(&scratch);
  kernel(&env, &call);
  backend.close(&env);
  bool intact = buffer_intact(&scratch);
  buffer_free(&scratch);
  return intact;
}

void run_call(const ZkCall *call, int way) {
  if (backend.lacks(call->op)) cr_skip_test("%s has no %s yet", backend.name, zg_op_info[call->op].text);
  ZkKernel *kernel = backend.kernel(call->op);
  cr_assert(kernel != NULL);
  cr_assert(run_kernel(*call, kernel, way), "wrote outside of its scratch");
}

static void run_one(const Case *c, const Numbers *d, Mode mode, int shuffle, int way, double *const *want,
                    const char *place) {
  char where[256];
  snprintf(where, sizeof where, "%s: %s(%s) [%s], %s, order %d, %s way %d", place, zg_op_info[c->op].text,
           c->ax ? c->ax : "", c->dims, mode_name[mode], shuffle, backend.name, way);
  ZkCall call = make_call(c);
  Buffer buf[ZK_MAX_IN + ZK_MAX_OUT];
  set_up(c, &call, d, mode, false, shuffle, buf);
  ZkKernel *kernel = backend.kernel(c->op);
  cr_assert(kernel != NULL, "%s: no such kernel", where);
  cr_assert(run_kernel(call, kernel, way), "%s: wrote outside of its scratch", where);
  for (int k = 0; k < call.nout; k++) {
    const Tensor *t = &c->out[k];
    double tol = mode != ALL_F32 && t->kind == REAL ? fmax(c->tol, c->half_tol) : c->tol;
    int64_t i = wrong_at(t, &call.out[k], want[k], d->n[call.nin + k], tol, c->floor);
    cr_assert(i < 0, "%s: result %d, element %lld is %.9g, not %.9g", where, k, (long long)i,
              load(&call.out[k], offset_of(t, &call.out[k], i < 0 ? 0 : i)), want[k][i < 0 ? 0 : i]);
  }
  for (int k = 0; k < call.nin + call.nout; k++)
    cr_assert(buffer_intact(&buf[k]), "%s: wrote outside of view %d", where, k);
  check_operands(c, &call, d, where);
  tear_down(&call, buf);
}

/* A push runs a mode in one order of axes, which differs from case to case; nights run all. */
bool conform_leaves_none_out;
bool conform_repeatable;
bool conform_invariant;
static bool is_left_out(const Case *c, int mode, int shuffle) {
  unsigned x = (unsigned)c->op + (unsigned)c->opt[0];
  for (const char *p = c->dims; p && *p; p++) x = 31 * x + (unsigned char)*p;
  if (at_night() || conform_leaves_none_out) return false;
  /* the emulator takes its time: one of the two modes with bf16 */
  return (x / 7 + (unsigned)mode) % SHUFFLES != (unsigned)shuffle ||
         (backend.odd && mode && (x / 21 + (unsigned)mode) % 2);
}

void conform(const char *file, int line, const Case *c) {
  char place[128];
  const char *base = strrchr(file, '/');
  snprintf(place, sizeof place, "%s:%d", base ? base + 1 : file, line);
  if (backend.lacks(c->op)) cr_skip_test("%s has no %s yet", backend.name, zg_op_info[c->op].text);
  if (backend.also) backend.also(c);
  double *want[ZK_MAX_OUT] = {0};
  for (int mode = 0; mode < (c->f32_only ? 1 : MODES); mode++) {
    Numbers d = numbers_new(c, (Mode)mode);
    if (mode != BF16_IN || c->accumulate) { /* else its operands are those of the mode before */
      for (int k = 0; k < ZK_MAX_OUT; k++) free(want[k]);
      run_reference(c, &d, (Mode)mode, want);
    }
    for (int shuffle = 0; shuffle < SHUFFLES; shuffle++) {
      if (is_left_out(c, mode, shuffle)) continue;
      for (int way = 0; way < backend.ways; way++) run_one(c, &d, (Mode)mode, shuffle, way, want, place);
    }
    numbers_free(&d);
  }
  for (int k = 0; k < ZK_MAX_OUT; k++) free(want[k]);
}

static void show_calls(const Case *c, bool all, void (*fn)(const ZkCall *, void *), void *arg) {
  for (int mode = 0; mode < (c->f32_only ? 1 : MODES); mode++) {
    Numbers d = numbers_new(c, (Mode)mode);
    for (int shuffle = 0; shuffle < SHUFFLES; shuffle++) {
      if (!all && is_left_out(c, mode, shuffle)) continue;
      ZkCall call = make_call(c);
      Buffer buf[ZK_MAX_IN + ZK_MAX_OUT];
      set_up(c, &call, &d, (Mode)mode, false, shuffle, buf);
      fn(&call, arg);
      tear_down(&call, buf);
    }
    numbers_free(&d);
  }
}

void each_call(const Case *c, void (*fn)(const ZkCall *, void *), void *arg) { show_calls(c, true, fn, arg); }
void each_made(const Case *c, void (*fn)(const ZkCall *, void *), void *arg) {
  show_calls(c, false, fn, arg);
}
