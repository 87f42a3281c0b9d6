/* Packed weights on a device. Products, rows of experts and rows that are looked up are held against sums
 * in f64 of the weights as they are when they are unpacked; a result may be off by a share of the sum of
 * its products' sizes:
 *
 *   2^-18   sums in f32, each a rounding of 2^-24
 *   2^-8    weights that are rounded to bf16 on the way, each by up to 2^-9: NORMAL ones, and those of many
 *           rows in bf16
 *
 * and by the rounding of results in bf16. */
#include "kernels/packed.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/packed.h"
#include "tests/unit/kernels/conform.h"

/* ---- views --------------------------------------------------------------------------------------------- */
/* A product's axes and their sizes. */
typedef struct {
  const char *axes;
  int64_t size[8];
} Sizes;
static int64_t size_of(const Sizes *s, int axis) { return s->size[strchr(s->axes, axis) - s->axes]; }

static int64_t count(const Sizes *s, const char *axes) {
  int64_t n = 1;
  for (; *axes; axes++) n *= size_of(s, *axes);
  return n;
}

static ZkView view(const Sizes *s, void *data, ZkElem e, const char *axes) {
  ZkView v = {.data = data, .elem = (uint8_t)e, .rank = (uint8_t)strlen(axes)};
  int64_t stride = 1;
  for (int i = v.rank; i-- > 0; stride *= v.size[i]) {
    v.axis[i] = (uint16_t)axes[i], v.stride[i] = stride;
    v.size[i] = v.whole[i] = size_of(s, axes[i]);
  }
  return v;
}

static void put(const ZkView *v, int64_t at, float x) {
  if (v->elem == ZK_BF16) ((uint16_t *)v->data)[at] = zb_f32_to_bf16(x);
  else ((float *)v->data)[at] = x;
}
static float get(const ZkView *v, int64_t at) {
  return v->elem == ZK_BF16 ? zb_bf16_to_f32(((const uint16_t *)v->data)[at]) : ((const float *)v->data)[at];
}

/* A view of random numbers. */
static ZkView random_view(const Sizes *s, ZkElem e, const char *axes, uint64_t stream) {
  ZkView v = view(s, memory_new((size_t)count(s, axes) * zk_plain_bytes(e)), e, axes);
  for (int64_t i = 0; i < count(s, axes); i++) put(&v, i, (float)zb_random_normal(1, stream, (uint64_t)i));
  return v;
}

/* Weights in columns of the axes behind the bar: packed, and what they are then. */
typedef struct {
  ZkView packed, plain;
} Weights;
static Weights weights_of(const Sizes *s, ZkElem e, const char *axes, int summed) {
  static const ZkEnv alone;
  Weights w = {.plain = random_view(s, ZK_F32, axes, 3)};
  int64_t k = count(s, axes + strlen(axes) - summed), n = count(s, axes);
  w.packed = view(s, memory_new(zk_bytes(e, zk_packed_elems(e, n / k, k))), e, axes);
  w.packed.summed = (uint8_t)summed;
  zk_cpu_pack(&alone, &w.plain, &w.packed);
  zk_cpu_unpack(&alone, &w.packed, &w.plain, 0, n, w.plain.data);
  return w;
}
static void weights_free(Weights *w) { memory_free(w->packed.data), memory_free(w->plain.data); }

/* ---- products ------------------------------------------------------------------------------------------ */
/* Offsets of a point of the axes in views. */
static void seek(const Sizes *s, const char *axes, int64_t at, const ZkView *const *v, int n, int64_t *off) {
  for (int i = 0; i < n; i++) off[i] = 0;
  for (int a = (int)strlen(axes); a-- > 0; at /= size_of(s, axes[a]))
    for (int i = 0; i < n; i++)
      for (int d = 0; d < v[i]->rank; d++)
        if (v[i]->axis[d] == axes[a]) off[i] += at % size_of(s, axes[a]) * v[i]->stride[d];
}

/* Checks results, which were added to `before` (may be NULL), against sums over the axes. */
static void check(const Sizes *s, const ZkView *x, const ZkView *w, const ZkView *y, const float *before,
                  const char *over, double share, const char *what) {
  char out[ZK_MAX_AXES + 1] = "";
  for (int i = 0; i < y->rank; i++) out[i] = (char)y->axis[i];
  for (int64_t i = 0; i < count(s, out); i++) {
    const ZkView *v[3] = {y, x, w};
    int64_t at[3], off[3];
    seek(s, out, i, v, 3, at);
    double sum = before ? before[at[0]] : 0, sizes = fabs(sum);
    for (int64_t k = 0; k < count(s, over); k++) {
      seek(s, over, k, v, 3, off);
      double product = (double)get(x, at[1] + off[1]) * (double)get(w, at[2] + off[2]);
      sum += product, sizes += fabs(product);
    }
    double got = get(y, at[0]), room = share * sizes + (y->elem == ZK_BF16 ? 0x1p-8 * fabs(sum) : 0);
    EACH_ASSERT(fabs(got - sum) <= room, "%s: element %lld is %.9g, not %.9g within %.2g", what, (long long)i,
                got, sum, room);
  }
}

typedef struct {
  Sizes sizes;
  const char *x, *w, *y, *over;
  int summed;
  bool rows, accumulate; /* rows: it is done where weights lie */
} Product;

static double share_of(const Product *p, ZkElem e, ZkElem as) {
  bool rounded = as == ZK_BF16 && (!p->rows || zk_elem_info[e].codes == ZK_CODES_NORMAL);
  return rounded ? 0x1p-8 : 0x1p-18;
}

static void multiply(const Product *p, ZkElem e, ZkElem as, ZkElem to) {
  char what[128];
  snprintf(what, sizeof what, "%s . %s by %s in %s", p->x, p->w, zk_elem_info[e].text, zk_elem_info[as].text);
  const Sizes *s = &p->sizes;
  Weights w = weights_of(s, e, p->w, p->summed);
  ZkView x = random_view(s, as, p->x, 2), y = random_view(s, to, p->y, 4);
  float *before = memory_new((size_t)count(s, p->y) * sizeof *before);
  for (int64_t i = 0; i < count(s, p->y); i++) before[i] = get(&y, i);
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .accumulate = p->accumulate};
  for (const char *a = p->over; *a; a++) c.ax[c.nax++] = (uint16_t)*a;
  bool swapped = count(s, p->y) % 2; /* which operand is packed: either */
  c.in[swapped] = x, c.in[!swapped] = w.packed, c.out[0] = y;
  cr_expect_eq(zk_cuda_packed_is_rows(&c), p->rows, "%s", what);
  run_call(&c, 0);
  check(s, &x, &w.plain, &y, p->accumulate ? before : NULL, p->over, share_of(p, e, as), what);
  memory_free(before), memory_free(x.data), memory_free(y.data), weights_free(&w);
}

/* Formats of each kind, and of each size of group, with the elements of a column that they divide. */
static const ZkElem formats[] = {ZK_INT8_32, ZK_INT4_64, ZK_INT4Z_32, ZK_NF4_32, ZK_INT4_128, ZK_NF4_64};

/* One row and some; columns that end within a panel, and within a pair of panels; k that is cut, and that
 * ends within a unit; each expert's matrix; rows that do not lie along k; axes that count together; what
 * is added to. */
static const Product few[] = {
    {{"mkn", {1, 128, 40}}, "mk", "nk", "mn", "k", 1, true, false},
    {{"mkn", {5, 2304, 33}}, "mk", "nk", "mn", "k", 1, true, true},
    {{"mkn", {13, 384, 16}}, "km", "nk", "nm", "k", 1, true, false},
    {{"emkn", {2, 2, 2048, 48}}, "emk", "enk", "men", "k", 1, true, false},
    {{"bshdnp", {2, 3, 4, 32, 3, 32}}, "bshd", "nphd", "bnsp", "hd", 2, true, false},
};
Test(packed, few_rows) {
  for (size_t i = 0; i < sizeof few / sizeof *few; i++)
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
      if (!breadth_tries(i + f, 2)) continue;
      multiply(&few[i], formats[f], ZK_BF16, f % 2 ? ZK_BF16 : ZK_F32);
      multiply(&few[i], formats[f], ZK_F32, ZK_F32);
    }
}

/* More rows, by tensor cores. */
static const Product some[] = {
    {{"mkn", {40, 128, 32}}, "mk", "nk", "mn", "k", 1, true, false},
    {{"mkn", {75, 256, 48}}, "mk", "nk", "mn", "k", 1, true, false},
};
Test(packed, some_rows) {
  for (size_t i = 0; i < sizeof some / sizeof *some; i++)
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
      if (breadth_tries(i + f, 3)) multiply(&some[i], formats[f], ZK_BF16, ZK_F32);
}

/* Many rows, and sums over columns, which are unpacked some at a time. Here that is 8 KiB: these
 * are cut, but for the last two, whose parts would begin within a panel. */
static const Product many[] = {
    {{"mkn", {130, 128, 80}}, "mk", "nk", "mn", "k", 1, false, false},
    {{"mknp", {17, 128, 5, 32}}, "mk", "npk", "nmp", "k", 1, false, true},
    {{"mknh", {3, 128, 16, 6}}, "mhn", "hnk", "mk", "hn", 1, false, true},
    {{"mnhd", {3, 80, 4, 32}}, "mn", "nhd", "hmd", "n", 2, false, false},
    {{"emnk", {3, 2, 32, 128}}, "emn", "enk", "emk", "n", 1, false, false},
    {{"mkpn", {17, 128, 3, 40}}, "mk", "pnk", "pmn", "k", 1, false, false},
    {{"emkn", {2, 3, 128, 24}}, "emk", "enk", "emn", "k", 1, false, false},
};
Test(packed, many_rows) {
  for (size_t i = 0; i < sizeof many / sizeof *many; i++)
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
      ZkElem as = (i + f) % 2 && size_of(&many[i].sizes, 'm') != 17 ? ZK_BF16 : ZK_F32;
      if (breadth_tries(i + f, 3)) multiply(&many[i], formats[f], as, ZK_F32);
    }
}

/* ---- company ------------------------------------------------------------------------------------------- */
/* Makes the call twice on one device: what the first leaves there, the second finds. */
static void run_twice(const Sizes *s, const ZkCall *call) {
  ZkEnv env = {0};
  ZkCall c = *call;
  int threads = backend.open(&env, 0);
  c.scratch = memory_new(backend.scratch(&c, threads));
  backend.kernel(c.op)(&env, &c);
  ZkView other = random_view(s, (ZkElem)c.out[0].elem, "mn", 5);
  c.out[0].data = other.data;
  backend.kernel(c.op)(&env, &c);
  backend.close(&env);
  bool same = !memcmp(other.data, call->out[0].data,
                      (size_t)(c.out[0].size[0] * c.out[0].size[1]) * zk_plain_bytes((ZkElem)other.elem));
  cr_expect(same, "the second time it is another result");
  memory_free(other.data);
  memory_free(c.scratch);
}

/* A row has the same bits whatever rows are beside it, and scratch that serves many serves fewer. K is
 * cut. */
Test(packed, a_row_has_the_same_bits_in_any_company) {
  enum { M = ZK_CUDA_PACKED_MOST, N = 16, K = 2304 };
  static const int ms[] = {1, 7, 12, 30, 65};
  Sizes s = {"mkn", {M, K, N}};
  float *all = memory_new(M * N * sizeof *all);
  for (int f = 0; f < 2; f++) {
    ZkElem as = f ? ZK_F32 : ZK_BF16;
    int64_t most = f ? ZK_CUDA_PACKED_MOST_F32 : M;
    Weights w = weights_of(&s, f ? ZK_INT8_32 : ZK_INT4_64, "nk", 1);
    ZkView x = random_view(&s, as, "mk", 2);
    ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}, .in = {x, w.packed}};
    c.out[0] = random_view(&s, ZK_F32, "mn", 4);
    c.in[0].size[0] = c.out[0].size[0] = most;
    run_call(&c, 0);
    memcpy(all, c.out[0].data, (size_t)most * N * sizeof *all);
    size_t scratch = backend.scratch(&c, 1);
    cr_expect_gt(scratch, 0, "K is not cut");
    for (size_t i = 0; i < sizeof ms / sizeof *ms && ms[i] < most; i++) {
      c.in[0].size[0] = c.out[0].size[0] = ms[i];
      cr_expect_leq(backend.scratch(&c, 1), scratch, "%d rows", ms[i]);
      run_twice(&s, &c);
      cr_expect(!memcmp(all, c.out[0].data, (size_t)ms[i] * N * 4), "%d rows in %s", ms[i],
                zk_elem_info[as].text);
    }
    memory_free(x.data), memory_free(c.out[0].data), weights_free(&w);
  }
  memory_free(all);
}

/* ---- rows of experts, and those that are looked up ----------------------------------------------------- */
/* With columns in the order of the weights', and in another one. */
static void grouped(ZkElem e, ZkElem as, const char *to) {
  Sizes s = {"eskno", {3, 5, 96, 12, 4}};
  Weights w = weights_of(&s, e, "enok", 1);
  ZkView x = random_view(&s, as, "sk", 2), y = random_view(&s, ZK_F32, to, 4);
  int32_t *ends = memory_new(3 * sizeof *ends);
  ends[0] = 2, ends[1] = 2, ends[2] = 5;
  ZkCall c = {.op = ZG_OP_GROUPED_DOT, .nin = 3, .nout = 1, .nax = 3, .ax = {'e', 's', 'k'}};
  c.in[0] = x, c.in[1] = w.packed, c.in[2] = view(&s, ends, ZK_I32, "e"), c.out[0] = y;
  cr_expect_eq(backend.scratch(&c, 1), 0);
  run_call(&c, 0);
  for (int i = 0, from = 0; i < 3; from = ends[i++]) {
    Sizes own = {"skno", {ends[i] - from, 96, 12, 4}};
    ZkView xe = x, ye = y, we = w.plain;
    xe.data = zk_at(&x, from * 96), ye.data = zk_at(&y, from * 48), we.data = zk_at(&we, i * 96 * 48);
    check(&own, &xe, &we, &ye, NULL, "k", 0x1p-18, zk_elem_info[e].text);
  }
  memory_free(x.data), memory_free(y.data), memory_free(ends), weights_free(&w);
}
Test(packed, rows_of_experts) {
  static const ZkElem kinds[] = {ZK_INT8_32, ZK_INT4_32, ZK_INT4Z_32, ZK_NF4_32};
  for (int f = 0; f < 4; f++) {
    grouped(kinds[f], f % 2 ? ZK_F32 : ZK_BF16, "sno");
    grouped(kinds[f], f % 2 ? ZK_BF16 : ZK_F32, "son");
  }
}

/* To the bit what they are when they are unpacked. */
Test(packed, rows_that_are_looked_up) {
  Sizes s = {"enkt", {3, 48, 96, 4}};
  for (int f = 0; f < 4; f++) {
    Weights w = weights_of(&s, (ZkElem[]){ZK_INT8_32, ZK_INT4_32, ZK_INT4Z_32, ZK_NF4_32}[f], "enk", 1);
    int32_t *ids = memory_new(4 * sizeof *ids);
    for (int i = 0; i < 4; i++) ids[i] = (int[]){47, 0, 16, -1}[i];
    ZkView y = random_view(&s, ZK_F32, "tek", 4);
    ZkCall c = {.op = ZG_OP_LOOKUP, .nin = 2, .nout = 1, .nax = 1, .ax = {'n'}};
    c.in[0] = w.packed, c.in[1] = view(&s, ids, ZK_I32, "t"), c.out[0] = y;
    run_call(&c, 0);
    for (int64_t i = 0; i < 4 * 3 * 96; i++) {
      int id = ids[i / (3 * 96)];
      float must = id < 0 ? 0 : get(&w.plain, (i / 96 % 3 * 48 + id) * 96 + i % 96);
      EACH_ASSERT(get(&y, i) == must, "%s, element %lld", zk_elem_info[w.packed.elem].text, (long long)i);
    }
    memory_free(ids), memory_free(y.data), weights_free(&w);
  }
}
