/* Attention of parts of a sequence: queries that begin anywhere, with all keys or with keys that begin
 * elsewhere, of which one call goes on from what another made. All together it is attention of the whole, by
 * the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/conform.h"

/* As in attend.c; results of several calls are rounded as often, gradients of them added. */
#define TOL 2e-5
#define HALF_TOL 0x1p-6

enum { Q, K, V, MORE, TENSORS = 8, CUTS = 6 };

/* The sequence is `s`; of two, the keys' is `t`, as long. */
typedef struct {
  const char *axes[TENSORS]; /* q, k, v, bias or NULL, documents or NULL, prefix or NULL, sinks or NULL */
  const char *ax;            /* axis arguments */
  int64_t causal, window;
  double cap;
  int64_t cut[CUTS]; /* where parts begin; the last is the length */
  int64_t run;       /* length of a document */
} Parted;

enum { B = 2, H = 2, G = 2, D = 8, W = 5 };
static int64_t length_of(const Parted *k) {
  int64_t n = 0;
  for (int i = 0; i < CUTS; i++) n = k->cut[i] > n ? k->cut[i] : n;
  return n;
}
static int64_t size_of(const Parted *k, char axis) {
  return axis == 'b'   ? B
         : axis == 'h' ? H
         : axis == 'g' ? G
         : axis == 'd' ? D
         : axis == 'w' ? W
                       : length_of(k);
}

/* A tensor of [from, to) of its positions, of which there are `all`. */
typedef struct {
  ZkView v;
  int64_t n;
} Part;

static bool is_ids(int i) { return i == MORE + 1 || i == MORE + 2; }

static double drawn(const Parted *k, int i, int64_t at, int64_t position) {
  if (i == MORE + 2) return (double)(at % 7 * 5);
  if (i == MORE + 1) return position % 11 == 10 ? -1 : (double)(position / k->run);
  double x = zb_random_normal(5, (uint64_t)i, (uint64_t)at);
  return (float)(i == MORE || i == MORE + 3 ? x : x / 2);
}

/* Elements are numbered as in the whole, whatever part of it this is. */
static void each(const Parted *k, const Part *p,
                 void (*fn)(const Part *, int64_t local, int64_t whole, int64_t position, void *),
                 void *arg) {
  for (int64_t i = 0; i < p->n; i++) {
    int64_t rest = i, whole = 0, times = 1, position = 0;
    for (int a = p->v.rank; a-- > 0;) {
      int64_t at = rest % p->v.size[a] + p->v.start[a];
      rest /= p->v.size[a];
      whole += at * times;
      times *= size_of(k, (char)p->v.axis[a]);
      if (p->v.axis[a] == 's' || p->v.axis[a] == 't') position = at;
    }
    fn(p, i, whole, position, arg);
  }
}

static void put(const ZkView *v, int64_t i, double x) {
  if (v->elem == ZK_F64) ((double *)v->data)[i] = x;
  else if (v->elem == ZK_I32) ((int32_t *)v->data)[i] = (int32_t)x;
  else if (v->elem == ZK_F32) ((float *)v->data)[i] = (float)x;
  else ((uint16_t *)v->data)[i] = zb_f32_to_bf16((float)x);
}
static double got(const ZkView *v, int64_t i) {
  return v->elem == ZK_F64   ? ((double *)v->data)[i]
         : v->elem == ZK_F32 ? (double)((float *)v->data)[i]
                             : (double)zb_bf16_to_f32(((uint16_t *)v->data)[i]);
}

static Part part(const Parted *k, const char *axes, ZkElem elem, char axis, int64_t from, int64_t to) {
  Part p = {.v = {.elem = (uint8_t)elem, .rank = (uint8_t)strlen(axes)}, .n = 1};
  for (int a = p.v.rank; a-- > 0;) {
    p.v.axis[a] = (uint16_t)axes[a];
    p.v.whole[a] = size_of(k, axes[a]);
    p.v.start[a] = axes[a] == axis ? from : 0;
    p.v.size[a] = axes[a] == axis ? to - from : p.v.whole[a];
    p.v.stride[a] = p.n;
    p.n *= p.v.size[a];
  }
  p.v.data = memory_new((size_t)(p.n + 1) * zk_plain_bytes(elem));
  return p;
}
static void drop(Part *p) { memory_free(p->v.data); }

typedef struct {
  const Parted *k;
  int i;
  double *from; /* instead of drawn numbers */
  double *to;   /* elements are added here */
} Fill;
static void fill_one(const Part *p, int64_t local, int64_t whole, int64_t position, void *arg) {
  const Fill *f = arg;
  put(&p->v, local, f->from ? f->from[whole] : drawn(f->k, f->i, whole, position));
}
static void take_one(const Part *p, int64_t local, int64_t whole, int64_t position, void *arg) {
  (void)position;
  ((const Fill *)arg)->to[whole] += got(&p->v, local);
}

/* ---- a call --------------------------------------------------------------------------------------------- */
typedef struct {
  ZkElem elem;        /* of real tensors but l */
  int64_t q[2], k[2]; /* [from, to) of both sequences */
  bool grad;
} Shape;
typedef struct { /* of the whole: o, l; dq, dk, dv */
  double *of[5];
} Results;

static const char *axes_of_result(char *buf, const Parted *k, int r) {
  strcpy(buf, k->axes[r < 3 ? Q : r - 2]);
  if (r == 0 && strlen(k->ax) > 2) *strchr(buf, 'd') = k->ax[3];
  if (r == 1) *strchr(buf, 'd') = buf[strlen(buf) - 1], buf[strlen(buf) - 1] = 0;
  if (r == 2) strcpy(buf, k->axes[Q]);
  return buf;
}

/* g is drawn like the rest; o and l are those of `whole`. */
static Part operand(const Parted *k, const Shape *s, int i, const Results *whole) {
  char buf[16];
  const char *axes = i < 0 ? axes_of_result(buf, k, i == -1 ? 1 : 0) : k->axes[i];
  bool of_keys = i == K || i == V, fixed = i >= MORE && k->ax[0] == (strlen(k->ax) > 2 ? k->ax[2] : k->ax[0]);
  ZkElem elem = i >= 0 && is_ids(i) ? ZK_I32 : s->elem == ZK_F64 ? ZK_F64 : i == -1 ? ZK_F32 : s->elem;
  char key = strlen(k->ax) > 2 ? k->ax[2] : k->ax[0], axis = of_keys ? key : 's';
  /* Of one sequence, what more there is has all positions; of two, those of queries. */
  Part p = part(k, axes, elem, fixed ? '-' : axis, of_keys ? s->k[0] : s->q[0], of_keys ? s->k[1] : s->q[1]);
  Fill f = {k, i < 0 ? 20 : i, i == -1 ? whole->of[1] : i == -2 ? whole->of[0] : NULL, NULL};
  each(k, &p, fill_one, &f);
  return p;
}

static void give(ZkCall *c, Part *p, Part with) {
  p[c->nin] = with;
  c->in[c->nin++] = with.v;
}

static ZkCall call_of(const Parted *k, const Shape *s, const Results *whole, Part *p) {
  ZkCall c = {
      .op = s->grad ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND, .num = {0.5, k->cap}, .opt = {k->causal, k->window}};
  for (const char *a = k->ax; *a; a++) c.ax[c.nax++] = (uint16_t)*a;
  if (s->grad)
    give(&c, p, operand(k, s, -3, whole)), give(&c, p, operand(k, s, -2, whole)),
        give(&c, p, operand(k, s, -1, whole));
  for (int i = 0; i < TENSORS - 1; i++)
    if (k->axes[i] && !(s->grad && i == MORE + 3)) give(&c, p, operand(k, s, i, whole));
  return c;
}

static Part result(const Parted *k, const Shape *s, int r) {
  char buf[16];
  bool of_keys = r > 2;
  char key = strlen(k->ax) > 2 ? k->ax[2] : k->ax[0];
  ZkElem elem = s->elem == ZK_F64 ? ZK_F64 : ZK_F32; /* of what goes on */
  return part(k, axes_of_result(buf, k, r), elem, of_keys ? key : 's', of_keys ? s->k[0] : s->q[0],
              of_keys ? s->k[1] : s->q[1]);
}

static void whole_of(const Parted *k, Results *to) {
  int64_t n = length_of(k);
  ZkEnv env = {0};
  for (int grad = 0; grad < 2; grad++) {
    Shape s = {ZK_F64, {0, n}, {0, n}, grad};
    Part in[ZK_MAX_IN], out[3];
    ZkCall c = call_of(k, &s, to, in);
    for (int r = 0; r < (grad ? 3 : 2); r++) {
      out[r] = result(k, &s, 2 * grad + r);
      c.out[c.nout++] = out[r].v;
      to->of[2 * grad + r] = calloc((size_t)out[r].n, sizeof(double));
    }
    zk_ref_run(&env, &c);
    for (int r = 0; r < c.nout; r++) {
      Fill f = {k, 0, NULL, to->of[2 * grad + r]};
      each(k, &out[r], take_one, &f);
      drop(&out[r]);
    }
    for (int i = 0; i < c.nin; i++) drop(&in[i]);
  }
}

/* One part of the queries with all keys at once, or part by part, the last first (`apart`). */
static void queries(const Parted *k, ZkElem elem, int grad, int i, bool apart, int way, const Results *whole,
                    Results *to) {
  int last = 0;
  while (k->cut[last] < length_of(k)) last++;
  Part kept[3] = {0};
  for (int j = apart ? last : 1; j > 0; j--) {
    Shape s = {elem,
               {k->cut[i], k->cut[i + 1]},
               {apart ? k->cut[j - 1] : 0, apart ? k->cut[j] : length_of(k)},
               grad};
    Part in[ZK_MAX_IN];
    ZkCall c = call_of(k, &s, whole, in);
    bool first = !kept[0].n;
    c.accumulate = !first;
    for (int r = 0; r < (grad ? 3 : 2); r++) {
      bool keys = grad && r > 0;
      if (first || keys) kept[r] = result(k, &s, 2 * grad + r);
      if (keys && !first) memset(kept[r].v.data, 0, (size_t)kept[r].n * sizeof(float)); /* of other keys */
      c.out[c.nout++] = kept[r].v;
    }
    run_call(&c, way);
    for (int r = 0; r < c.nout; r++) {
      Fill f = {k, 0, NULL, to->of[2 * grad + r]};
      if (!(grad && r > 0) && j > 1 && apart) continue;
      each(k, &kept[r], take_one, &f);
      drop(&kept[r]);
    }
    for (int x = 0; x < c.nin; x++) drop(&in[x]);
  }
}

static void compare(const Parted *k, const Results *got, const Results *want, int grad, double tol,
                    const char *where) {
  for (int r = 2 * grad; r < (grad ? 5 : 2); r++) {
    char buf[16];
    int64_t n = 1;
    double largest = 0;
    for (const char *a = axes_of_result(buf, k, r); *a; a++) n *= size_of(k, *a);
    for (int64_t i = 0; i < n; i++)
      if (fabs(want->of[r][i]) < 1e29) largest = fmax(largest, fabs(want->of[r][i]));
    for (int64_t i = 0; i < n; i++) {
      double x = got->of[r][i], w = want->of[r][i];
      EACH_ASSERT(fabs(x - w) <= tol * (fabs(w) > 1e29 ? fabs(w) : largest),
                  "%s: result %d, element %lld is %.9g, not %.9g", where, r, (long long)i, x, w);
    }
  }
}

static const Parted kinds[] = {
    {{"bshgd", "bshd", "bshd"}, "sd", .causal = 1, .cut = {0, 16, 32, 48, 64}},
    {{"bshgd", "bshd", "bshd"}, "sd", .cut = {0, 40, 80}},
    {{"sd", "sd", "sd"}, "sd", .causal = 1, .cut = {0, 1, 67, 68, 270}},
    {{"shd", "shd", "shd"}, "sd", .causal = 1, .window = 9, .cut = {0, 30, 61, 90}},
    {{"shd", "shd", "shd"}, "sd", .causal = 1, .window = 70, .cut = {0, 60, 90, 200}},
    {{"shd", "shd", "shd"}, "sd", .window = 33, .cut = {0, 60, 90, 200}},
    {{"bshgd", "bshd", "bshw"}, "sdsw", .causal = 1, .cap = 2, .cut = {0, 33, 70}},
    {{"bshgd", "bshd", "bshd", NULL, "bs"}, "sd", .causal = 1, .cut = {0, 20, 40, 60}, .run = 13},
    {{"bshd", "bshd", "bshd", "hs", "bs", NULL, "h"}, "sd", .window = 20, .cut = {0, 35, 70}, .run = 30},
    {{"bshd", "bshd", "bshd", NULL, "s", "b"}, "sd", .causal = 2, .cut = {0, 25, 50}, .run = 40},
    {{"bshd", "bthd", "bthd", "hst"}, "sdtd", .causal = 1, .cut = {0, 25, 50}},
};

static void check(int grad, bool apart) {
  for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
    const Parted *k = &kinds[n];
    if (!breadth_tries(n + (size_t)grad + (apart ? 2 : 0), 4)) continue;
    Results want = {0};
    whole_of(k, &want);
    for (int half = 0; half < 2; half++)
      for (int way = 0; way < backend.ways; way++) {
        Results to = {0};
        char where[64], buf[16];
        snprintf(where, sizeof where, "kind %d, %s, way %d", (int)n, half ? "bf16" : "f32", way);
        for (int r = 0; r < 5; r++) {
          int64_t size = 1;
          for (const char *a = axes_of_result(buf, k, r); *a; a++) size *= size_of(k, *a);
          to.of[r] = calloc((size_t)size, sizeof(double));
        }
        for (int i = 0; i + 1 < CUTS && k->cut[i] < length_of(k); i++)
          queries(k, half ? ZK_BF16 : ZK_F32, grad, i, apart, way, &want, &to);
        compare(k, &to, &want, grad, half ? HALF_TOL : TOL, where);
        for (int r = 0; r < 5; r++) free(to.of[r]);
      }
    for (int r = 0; r < 5; r++) free(want.of[r]);
  }
}

Test(attend_parts, queries_forward) { check(0, false); }
Test(attend_parts, queries_gradient) { check(1, false); }
Test(attend_parts, keys_forward) { check(0, true); }
Test(attend_parts, keys_gradient) { check(1, true); }
