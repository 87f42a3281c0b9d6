/* A device whose calls take what plan/time says, in place of the CPU. */
#include "graph/attend.h"
#include "runtime/plan/time/internal.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory: four areas and scratch, in the order in which they are asked for -------------------------- */
enum { F32, BF16, RESULTS, UPDATED, SCRATCH, AREAS, LINE = 64, HUGE = 2 << 20 };
/* Kept for the next measurement: most of a test's time is the system's, which clears it. */
static struct {
  char *p;
  size_t bytes; /* 0: nobody has it */
  size_t size;
  double *end; /* a line: bytes that had gone by after it was touched; 0: never */
} area[AREAS];
static double gone = 1;
static size_t scratch_asked;

void device_forget(void) {
  for (int i = 0; i < AREAS; i++) area[i].bytes = 0;
  gone += 1e12; /* more than a cache has */
  scratch_asked = 0;
}

static void *allocate(const ZkEnv *env, size_t bytes, ZbErr *err) {
  int i = machine.allocs++;
  (void)env;
  cr_assert(i < AREAS && bytes > 0);
  if (machine.allocs == machine.alloc_fails) return zb_fail(err, "less", "no memory for %d", i), NULL;
  if (area[i].size < bytes) {
    free(area[i].p);
    free(area[i].end);
    area[i].size = zb_round_up(bytes, HUGE);
    area[i].p = aligned_alloc(HUGE, area[i].size);
    area[i].end = calloc(area[i].size / LINE, sizeof(double));
    madvise(area[i].p, area[i].size, MADV_HUGEPAGE);
  }
  area[i].bytes = bytes;
  memset(area[i].p + bytes - LINE, 0xff, LINE); /* what is not written shows */
  return area[i].p;
}

static void release(const ZkEnv *env, void *p, size_t bytes) {
  int i = 0;
  (void)env;
  while (i < AREAS && area[i].p != p) i++;
  cr_assert(i < AREAS && bytes > 0 && area[i].bytes == bytes, "%zu bytes are freed that nobody has", bytes);
  area[i].bytes = 0;
  machine.frees++;
}

/* Where p lies, and the `bytes` behind it. */
static size_t offset(int i, const void *p, size_t bytes) {
  cr_assert(area[i].bytes && (const char *)p >= area[i].p, "not in area %d", i);
  size_t at = (size_t)((const char *)p - area[i].p);
  cr_assert(at % LINE == 0 && at + bytes <= area[i].bytes, "%zu bytes at %zu of area %d", bytes, at, i);
  return at;
}

/* As plan/time/cache.c: what of a value a cache has, if only so much went through since. */
static double cached(int i, size_t at, double bytes, double before, double cache) {
  double end = area[i].end[at / LINE];
  return end > 0 && before - end + bytes <= cache ? bytes : 0;
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static int64_t elems(const ZkView *v) {
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->size[i];
  return n;
}
static size_t bytes_of(const ZkView *v) { return (size_t)elems(v) * zk_elem_bytes((ZkElem)v->elem); }

static Ran *ran(const ZkCall *c) {
  for (uint32_t i = 0; i < machine.nran; i++)
    if (machine.ran[i].call == c) return &machine.ran[i];
  cr_assert_lt(machine.nran, MOST_KINDS);
  machine.ran[machine.nran].call = c;
  return &machine.ran[machine.nran++];
}

static void note_place(Ran *r, void *p) {
  for (int i = 0; i < r->places; i++)
    if (r->place[i] == p) return;
  if (r->places < 64) r->place[r->places++] = p;
}

static int64_t size_of(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return v->size[i];
  return 0;
}

/* Dense, and all of the tensor. */
static void check_view(const ZkView *v) {
  int64_t n = 1;
  for (int i = v->rank - 1; i >= 0; i--) {
    cr_assert(v->stride[i] == n && v->whole[i] == v->size[i] && v->start[i] == 0);
    n *= v->size[i];
    for (int k = 0; k < i; k++) cr_assert_neq(v->axis[k], v->axis[i]);
  }
}

/* Rows and columns of whole tiles, as a layer has them: x[m k], w[k n] and g[m n]. Sums are over what both
 * have; gradients of weights, over m, are added up in f32. */
static void check_product(const ZkCall *c) {
  const ZkView *x = &c->in[0], *y = &c->in[1], *z = &c->out[0];
  cr_assert(c->nin == 2 && c->nout == 1 && c->nax == 1 && x->elem == y->elem);
  cr_assert(size_of(x, c->ax[0]) && size_of(x, c->ax[0]) == size_of(y, c->ax[0]) && !size_of(z, c->ax[0]));
  for (int i = 0; i < 2; i++) {
    cr_assert(c->in[i].rank == 2 && z->rank == 2);
    for (int k = 0; k < 2; k++) {
      uint16_t axis = c->in[i].axis[k];
      cr_assert_eq(c->in[i].size[k] % 64, 0);
      if (axis != c->ax[0]) cr_assert_eq(size_of(z, axis), c->in[i].size[k]);
    }
  }
  for (int i = 0; i < 3; i++) {
    const ZkView *v = i < 2 ? &c->in[i] : z;
    cr_assert(v->axis[0] != 'n' && v->axis[1] != 'm' && (i || v->axis[0] == 'm'), "view %d", i);
  }
  cr_assert_eq(c->accumulate, c->ax[0] == 'm');
  cr_assert_eq(z->elem, c->accumulate ? ZK_F32 : x->elem);
}

/* Heads of positions of width hd; sums of rows are f32, and backward has them third. */
static double check_attention(const ZkCall *c) {
  bool grad = c->op == ZG_OP_ATTEND_GRAD;
  const ZkView *q = &c->in[0];
  cr_assert(c->nin == (grad ? 6 : 3) && c->nout == (grad ? 3 : 2) && !c->accumulate);
  cr_assert(q->rank == 3 && c->nax == 2 && c->ax[0] == q->axis[1] && c->ax[1] == q->axis[2]);
  cr_assert_eq(q->size[1] % 64, 0);
  cr_assert(c->opt[0] == 1 && c->opt[1] == 0 && c->num[0] * c->num[0] * (double)q->size[2] == 1);
  for (int i = 0; i < c->nin + c->nout; i++) {
    const ZkView *v = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
    bool rows = i == (grad ? 2 : 4);
    cr_assert(v->rank == (rows ? 2 : 3) && v->elem == (rows ? ZK_F32 : q->elem), "operand %d", i);
    for (int k = 0; k < v->rank; k++) cr_assert(v->axis[k] == q->axis[k] && v->size[k] == q->size[k]);
  }
  double pairs = zg_attend_pairs(true, 0, q->size[1], q->size[1]);
  return (grad ? 8. : 4.) * (double)(q->size[0] * q->size[2]) * pairs;
}

/* Seconds of the arithmetic of a chain: of the ends, registers are inputs and what instructions made. */
static double check_chain(const ZkCall *c) {
  const ZkPointwise *f = c->pointwise;
  double simple = 0, special = 0, points = (double)elems(&c->out[0]);
  cr_assert(f && c->nin == 2 && c->nout == 1 && f->nout == 1 && f->nops >= 1 && !f->prologue);
  cr_assert_eq(f->out[0], c->nin + f->nops - 1);
  for (int i = 0; i < f->nops; i++) {
    const ZkPointwiseOp *o = &f->ops[i];
    int made = c->nin + i; /* the register */
    cr_assert(o->a < made && o->b < made && o->c < made);
    if (f->nops > 1) cr_assert_eq(o->a, i ? made - 1 : 0, "a chain"); /* each waits for the one before */
    switch (o->op) {
    case ZG_OP_ADD:
    case ZG_OP_MUL:
      simple++;
      if (f->nops == 1) cr_assert(o->a == 0 && o->b == 1 && o->op == ZG_OP_ADD);
      else cr_assert_eq(o->b, i > 1 && i % 2 == 0 ? made - 2 : 1, "operation %d", i);
      if (f->nops > 1) cr_assert_eq(o->op == ZG_OP_ADD, i % 3 == 2);
      break;
    case ZG_OP_EXP: special += .85; break;
    case ZG_OP_TANH: special += 1.15; break;
    default: cr_assert_fail("op %d in a chain", o->op);
    }
  }
  cr_assert(!simple || special == 0);
  if (f->nops == 1) return 0; /* a sum goes beside what is read for it */
  return points * (simple / machine.is.simple + special / machine.is.special);
}

typedef struct {
  double bytes, cached, l1; /* of all operands; found in the cache; in the first one */
} Found;

/* What it finds is of before the call. */
static Found touch(const ZkCall *c, Ran *r) {
  double before = gone;
  Found found = {0};
  size_t at[ZK_MAX_IN + ZK_MAX_OUT];
  int where[ZK_MAX_IN + ZK_MAX_OUT], n = c->nin + c->nout;
  r->of_call = 0;
  for (int i = 0; i < n; i++) {
    const ZkView *v = i < c->nin ? &c->in[i] : &c->out[i - c->nin];
    size_t bytes = bytes_of(v), *end = i < c->nin ? &r->in_end : &r->out_end;
    check_view(v);
    where[i] = i >= c->nin ? RESULTS : v->elem == ZK_BF16 ? BF16 : F32;
    at[i] = offset(where[i], v->data, bytes);
    if (at[i] + bytes > *end) *end = at[i] + bytes;
    for (int k = c->nin; k < i; k++)
      cr_assert(at[i] >= at[k] + bytes_of(&c->out[k - c->nin]) || at[k] >= at[i] + bytes, "results overlap");
    found.bytes += (double)bytes;
    found.cached += cached(where[i], at[i], (double)bytes, before, machine.is.cache);
    found.l1 += cached(where[i], at[i], (double)bytes, before, L1);
    gone += (double)bytes;
    r->of_call += i < c->nin ? bytes : 0;
  }
  for (int i = 0; i < n; i++) area[where[i]].end[at[i] / LINE] = gone;
  note_place(r, c->in[0].data);
  return found;
}

static double pass_seconds(const ZkCall *c, const Found *f) {
  double work = check_chain(c);
  if (f->l1 == f->bytes) return machine.is.launch + work;
  return work + zp_stream_seconds(&machine.is, f->bytes, f->cached);
}

static size_t scratch(const ZkCall *c, int threads) {
  size_t bytes = c->op == ZG_OP_ATTEND_GRAD ? (size_t)threads * 1000 * (size_t)c->in[0].size[1] : 0;
  cr_assert_eq(machine.allocs, SCRATCH, "scratch is asked for when it is given");
  if (bytes > scratch_asked) scratch_asked = bytes;
  return bytes;
}

static void run(const ZkEnv *env, const ZkCall *c) {
  Ran *r = ran(c);
  ZpNode node = {.call = *c};
  Found found = touch(c, r);
  double seconds;
  r->runs++;
  machine.runs++;
  offset(SCRATCH, c->scratch, scratch_asked);
  cr_assert(area[SCRATCH].bytes < scratch_asked + 4 * LINE && env->pool);
  switch (c->op) {
  case ZG_OP_DOT:
    check_product(c);
    seconds = zp_call_seconds(&machine.is, &node, 0);
    break;
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
    node.busiest = check_attention(c);
    seconds = zp_call_seconds(&machine.is, &node, 0);
    break;
  case ZG_OP_POINTWISE: seconds = pass_seconds(c, &found); break;
  default: cr_assert_fail("op %d", c->op);
  }
  world_compute(machine.takes ? machine.takes(c, seconds) : seconds);
}

static void adamw(const ZkEnv *env, const ZkAdamW *p, const ZxScalars *clip, int64_t n, const float *g,
                  float *w, float *m, float *v, uint16_t *w16) {
  size_t bytes = 4 * (size_t)n,
         at[3] = {offset(UPDATED, w, bytes), offset(UPDATED, m, bytes), offset(UPDATED, v, bytes)};
  offset(F32, g, bytes);
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < i; k++) cr_assert(at[i] >= at[k] + bytes || at[k] >= at[i] + bytes);
  cr_assert(env->pool && !w16 && p->step == 1 && p->times == 1 && p->lr > 0 && p->lr < .1F && p->decay == 0);
  cr_assert(p->b1 > 0 && p->b1 < 1 && p->b2 > 0 && p->b2 < 1 && p->eps > 0 && p->eps < 1e-6F);
  cr_assert(clip->squares && clip->lost && clip->most == 0);
  cr_assert(clip->nsums == 1 && isfinite(clip->sums[0]), "or nothing is updated");
  gone += 28 * (double)n;
  machine.updates++;
  world_compute(zp_update_seconds(&machine.is, 28 * (double)n));
}

/* ---- what it is ---------------------------------------------------------------------------------------- */
static bool open_device(ZkEnv *env, int node_rank, ZbErr *err) {
  int first = machine.node[machine.rank];
  machine.opened++;
  cr_assert_eq(node_rank, machine.rank - first);
  return env->pool || zb_fail(err, "", "no threads");
}
static void close_device(ZkEnv *env) {
  cr_assert(env->pool);
  machine.closed++;
}
static const char *describe(const ZkEnv *env) { return (void)env, "a virtual device"; }

const ZxDeviceTable zx_device_cpu = {.name = "cpu",
                                     .host = true,
                                     .open = open_device,
                                     .close = close_device,
                                     .describe = describe,
                                     .scratch = scratch,
                                     .alloc = allocate,
                                     .free = release,
                                     .run = run,
                                     .adamw = adamw};

ZxMeasure machine_measure(void) {
  static ZkEnv env;
  if (!env.pool) env.pool = zk_pool_new(2);
  return (ZxMeasure){.a = zb_arena_new(), .c = &world, .d = &zx_device_cpu, .env = &env};
}
