/* Attention and its gradient, with and without groups of query heads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/attend.h"

/* Scores are sums of up to 64 products, then an exponential and a mean over the keys. */
#define TOL 5e-6
/* With bf16 operands probabilities, and their gradients, may be rounded to bf16 before they are multiplied:
 * each is off by
 * up to 2^-9 of itself. The mean over keys is then off by up to 2^-9 of the largest |v|, which is at most
 * twice the largest result here; in gradients, terms up to four times the result cancel. */
#define HALF_TOL 0x1p-8
#define HALF_GRAD_TOL 0x1p-7
/* Gradients subtract nearly equal numbers, dp - g.o of size 1 (with one key the difference is 0), and sum
 * over queries. */
#define GRAD_TOL 1e-5
#define GRAD_FLOOR 1e-6

static const AttendShape shapes[] = {
    {"b=2 s=17 h=3 d=8", "bshd", "bshd", 0.4},
    {"b=1 s=1 h=1 d=2", "bshd", "bshd", 0.4},
    {"b=3 s=5 k=2 g=3 d=6", "bskgd", "bskd", 0.4},
    {"b=1 s=65 k=1 g=2 d=4", "bskgd", "bskd", 0.4},
    {"b=1 s=200 k=1 g=2 d=3", "bskgd", "bskd", 0.4},
    {"s=33 d=64", "sd", "sd", 0.4},
    {"g=5 s=3 b=2 d=17", "bsgd", "bsd", 0.4},
    {"b=1 s=64 h=2 d=5", "bhsd", "bhsd", 0.4},
    {"s=66 d=72", "sd", "sd", 0.1},
    {"s=34 d=136", "sd", "sd", 0.1},
    {"s=4 g=2 d=264", "sgd", "sd", 0.1},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

static const char *without(char *buf, const char *axes, char axis) {
  char *to = buf;
  for (; *axes; axes++)
    if (*axes != axis) *to++ = *axes;
  *to = 0;
  return buf;
}

static const AttendKind plain[] = {{0}, {.causal = 1}};

/* The axes of o: those of q with the values' features in place of its own. */
static const char *result_axes(char *buf, const AttendShape *shape, const AttendKind *kind) {
  strcpy(buf, shape->q);
  if (kind->ax) *strchr(buf, kind->ax[1]) = kind->ax[3];
  return buf;
}

static Case forward(const AttendShape *shape, const AttendKind *kind, char *row, char *result) {
  Case c = {.op = ZG_OP_ATTEND,
            .dims = shape->dims,
            .ax = kind->ax ? kind->ax : "sd",
            .num = {shape->scale, kind->cap},
            .opt = {kind->causal, kind->window},
            .in = {{shape->q}, {shape->k}, {kind->v ? kind->v : shape->k}},
            .out = {{result_axes(result, shape, kind)},
                    {without(row, shape->q, kind->ax ? kind->ax[1] : 'd'), EXACT}},
            .tol = TOL,
            .half_tol = HALF_TOL};
  int n = 3;
  for (int i = 0; i < 3; i++)
    if (kind->f32 >> i & 1) c.in[i].kind = EXACT;
  if (kind->bias) c.in[n++] = (Tensor){.axes = kind->bias};
  for (int i = 0; i < 2; i++)
    if (kind->docs[i]) c.in[n++] = (Tensor){kind->docs[i], ID, -1, kind->few ? kind->few : 2, NULL};
  if (kind->prefix) c.in[n++] = (Tensor){kind->prefix, ID, 0, (double)kind->most, NULL};
  if (kind->sinks) c.in[n++] = (Tensor){.axes = kind->sinks};
  return c;
}

/* Documents one after another, the last of them padding: the axis of positions is the last one. */
static double *runs(const Case *c, const char *axes, int64_t length) {
  int64_t n = count_of(c, axes), last[] = {axes[strlen(axes) - 1], 0};
  int64_t size = count_of(c, (char[]){(char)last[0], 0});
  double *id = malloc((size_t)n * sizeof *id);
  for (int64_t i = 0; i < n; i++)
    id[i] = i % size / length * length > size * 4 / 5 ? -1 : (double)(i % size / length);
  return id;
}

static bool is_id(const Tensor *t) { return t->kind == ID; }
static bool is_prefix(const Tensor *t) { return is_id(t) && t->lo == 0; }

/* Operands as every way of computing has them: ids in runs, if the kind says so. */
static void give_ids(Case *c, const AttendKind *kind) {
  for (int i = 3; c->in[i].axes; i++)
    if (is_id(&c->in[i]) && !is_prefix(&c->in[i]) && kind->run)
      c->in[i].value = runs(c, c->in[i].axes, kind->run);
}

static void take_ids(const Case *c, int from) {
  for (int i = from; c->in[i].axes; i++)
    if (is_id(&c->in[i])) free(c->in[i].value);
}

void attend_forward_of(const AttendShape *shape, const AttendKind *kind) {
  char row[16], result[16];
  Case c = forward(shape, kind, row, result);
  give_ids(&c, kind);
  conform(__FILE__, __LINE__, &c);
  take_ids(&c, 3);
}

void attend_forward(const AttendShape *shape, int mask) { attend_forward_of(shape, &plain[mask]); }

Test(attend, forward) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++)
      if (breadth_tries(i + (size_t)mask, 2)) attend_forward(&shapes[i], mask);
}

/* Scores far apart and far from zero: the running maximum must do its work. */
Test(attend, large_scores) {
  char row[16], result[16];
  for (int mask = 0; mask < 2; mask++) {
    Case c = forward(&shapes[3], &plain[mask], row, result);
    c.num[0] = 20;
    c.tol =
        3e-5; /* a score of 200 has an absolute error of 1e-5, and so has the logarithm of its exponential */
    conform(__FILE__, __LINE__, &c);
  }
}

/* Later keys score higher, over more keys than any tile holds: sums made so far must shrink. */
Test(attend, rising_scores) {
  double k[200 * 4];
  for (int i = 0; i < 200 * 4; i++) k[i] = (double)(i / 4) / 50 + (double)(i % 7) / 4;
  for (int mask = 0; mask < 2; mask++)
    CONFORM(.op = ZG_OP_ATTEND, .dims = "s=200 d=4", .ax = "sd", .num = {0.5}, .opt = {mask},
            .in = {{"sd", REAL, 0.5, 1, NULL}, {"sd", .value = k}, {"sd"}}, .out = {{"sd"}, {"s", EXACT}},
            /* A mean of 200 values of both signs is small beside them. */
            .tol = TOL, .half_tol = 4 * HALF_TOL);
}

/* Operands of the gradients: g, then what attend made, then what it took but sinks, which are in l. */
static void gradient_operands(const AttendShape *shape, const AttendKind *kind, const Case *f,
                              double *const *o, Case *g) {
  int n = 0, nf = 0;
  while (f->in[nf].axes) nf++;
  g->in[n++] = (Tensor){.axes = f->out[0].axes, .kind = kind->f32 >> 3 & 1 ? EXACT : REAL};
  g->in[n++] = (Tensor){.axes = f->out[0].axes, .value = o[0]};
  g->in[n++] = (Tensor){.axes = f->out[1].axes, .kind = EXACT, .value = o[1]};
  for (int i = 0; i < nf - (kind->sinks != NULL); i++) g->in[n++] = f->in[i];
  g->dims = f->dims, g->ax = f->ax;
  memcpy(g->num, f->num, sizeof g->num);
  memcpy(g->opt, f->opt, sizeof g->opt);
  g->tol = GRAD_TOL, g->half_tol = HALF_GRAD_TOL, g->floor = GRAD_FLOOR;
  (void)shape;
}

void attend_gradient_of(const AttendShape *shape, const AttendKind *kind) {
  char row[16], result[16];
  Case f = forward(shape, kind, row, result);
  double *o[ZK_MAX_OUT] = {0}, *given[ZK_MAX_IN] = {0};
  give_ids(&f, kind);
  for (int i = 0, at = 0; f.in[i].axes; i++) {
    if (is_id(&f.in[i]) && f.in[i].value) continue;
    int64_t n = count_of(&f, f.in[i].axes);
    f.in[i].value = given[i] = malloc((size_t)n * sizeof **given);
    for (int64_t e = 0; e < n; e++, at++)
      given[i][e] = is_prefix(&f.in[i]) ? (double)(at * 5 % (kind->most + 1))
                    : is_id(&f.in[i])   ? (kind->few < 0 ? -1 : at % 7 % 4 - 1)
                                        : (float)((double)((at * 7919 + 13) % 1009) / 504 - 1);
  }
  reference(&f, o);
  Case g = {.op = ZG_OP_ATTEND_GRAD, .out = {{f.in[0].axes}, {f.in[1].axes}, {f.in[2].axes}}};
  gradient_operands(shape, kind, &f, o, &g);
  conform(__FILE__, __LINE__, &g);
  if (kind->bias) {
    Case b = {.op = ZG_OP_ATTEND_BIAS_GRAD, .out = {{kind->bias}}};
    gradient_operands(shape, kind, &f, o, &b);
    conform(__FILE__, __LINE__, &b);
  }
  for (int i = 0; f.in[i].axes; i++) free(f.in[i].value);
  free(o[0]);
  free(o[1]);
}

void attend_gradient(const AttendShape *shape, int mask) { attend_gradient_of(shape, &plain[mask]); }

Test(attend, gradient) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++)
      if (breadth_tries(i + (size_t)mask, 3)) attend_gradient(&shapes[i], mask);
}

/* ---- what masks, caps, biases and documents make of it ------------------------------------------------- */
/* One operand in f32 where the others are in bf16; windows of one key, within a tile, of whole tiles, and
 * of all keys; biases of every part of the axes; ids in runs that end within tiles and at their borders,
 * mixed, and none at all; two sequences, values of a width of their own; and everything together. */
static const struct {
  AttendShape shape;
  AttendKind kind;
} kinds[] = {
    {{"s=34 d=40", "sd", "sd", 0.2}, {.f32 = 1}},
    {{"s=34 d=40", "sd", "sd", 0.2}, {.f32 = 2}},
    {{"s=34 d=40", "sd", "sd", 0.2}, {.f32 = 4}},
    {{"s=34 d=40", "sd", "sd", 0.2}, {.f32 = 8}},
    {{"b=2 s=17 h=3 d=8", "bshd", "bshd", 0.4}, {.causal = 1, .window = 1}},
    {{"b=2 s=17 h=3 d=8", "bshd", "bshd", 0.4}, {.window = 1}},
    {{"b=1 s=200 k=1 g=2 d=3", "bskgd", "bskd", 0.4}, {.causal = 1, .window = 64}},
    {{"b=1 s=200 k=1 g=2 d=3", "bskgd", "bskd", 0.4}, {.window = 33}},
    {{"s=600 d=4", "sd", "sd", 0.4}, {.causal = 1, .window = 256}},
    {{"s=330 d=8", "sd", "sd", 0.4}, {.window = 100}},
    {{"s=290 d=4", "sd", "sd", 0.4}, {.causal = 1, .window = 17, .cap = 3}},
    {{"b=3 s=5 k=2 g=3 d=6", "bskgd", "bskd", 0.4}, {.causal = 1, .window = 100}},
    {{"b=1 s=65 k=1 g=2 d=4", "bskgd", "bskd", 0.9}, {.cap = 2}},
    {{"b=3 s=5 k=2 g=3 d=6", "bskgd", "bskd", 0.4}, {.causal = 1, .cap = 1.5}},
    {{"b=2 s=17 h=3 d=8", "bshd", "bshd", 0.4}, {.causal = 1, .bias = "hs"}},
    {{"b=1 s=300 h=2 d=4", "bshd", "bshd", 0.4}, {.bias = "s"}},
    {{"b=2 s=17 t=9 h=3 d=8", "bshd", "bthd", 0.4}, {.ax = "sdtd", .bias = "hst"}},
    {{"b=2 s=17 t=9 h=3 d=8", "bshd", "bthd", 0.4}, {.ax = "sdtd", .bias = "ts", .docs = {NULL, "bt"}}},
    {{"b=2 s=40 t=300 k=2 g=2 d=5", "bskgd", "btkd", 0.4}, {.ax = "sdtd", .bias = "gbt", .sinks = "kg"}},
    {{"b=1 s=280 t=280 g=2 d=5", "bsgd", "btd", 0.4},
     {.ax = "sdtd", .causal = 1, .bias = "gst", .window = 50}},
    {{"s=300 t=1 d=4", "sd", "td", 0.4}, {.ax = "sdtd"}},
    {{"s=1 t=300 d=4", "sd", "td", 0.4}, {.ax = "sdtd", .cap = 2}},
    {{"b=2 s=17 h=3 d=8 w=5", "bshd", "bshd", 0.4}, {.ax = "sdsw", .v = "bshw", .causal = 1}},
    {{"b=1 s=66 k=1 g=2 d=4 w=40", "bskgd", "bskd", 0.4}, {.ax = "sdsw", .v = "bskw", .window = 40}},
    {{"b=2 s=9 t=35 h=2 d=8 w=24", "bshd", "bthd", 0.4}, {.ax = "sdtw", .v = "bthw", .bias = "t"}},
    {{"b=3 s=40 h=2 d=4", "bshd", "bshd", 0.4}, {.docs = {"bs"}}},
    {{"b=3 s=40 h=2 d=4", "bshd", "bshd", 0.4}, {.causal = 1, .docs = {"s"}, .sinks = "h"}},
    {{"b=1 s=330 h=1 d=4", "bshd", "bshd", 0.4}, {.causal = 1, .docs = {"bs"}, .run = 77}},
    {{"b=1 s=330 g=2 d=4", "bsgd", "bsd", 0.4}, {.docs = {"bs"}, .run = 64}},
    {{"b=2 s=300 h=1 d=4", "bshd", "bshd", 0.4}, {.causal = 1, .docs = {"bs"}, .run = 130, .window = 40}},
    {{"b=2 s=20 t=70 h=2 d=4", "bshd", "bthd", 0.4}, {.ax = "sdtd", .docs = {"bs", "bt"}}},
    {{"b=2 s=20 t=70 h=2 d=4", "bshd", "bthd", 0.4}, {.ax = "sdtd", .docs = {NULL, "bt"}, .few = -1}},
    {{"b=2 s=17 h=3 d=8", "bshd", "bshd", 0.4}, {.sinks = "h", .causal = 1}},
    {{"b=4 s=17 h=3 d=8", "bshd", "bshd", 0.4}, {.causal = 2, .prefix = "b", .most = 20}},
    {{"b=2 s=300 g=2 d=4", "bsgd", "bsd", 0.4}, {.causal = 2, .prefix = "b", .most = 290, .window = 70}},
    {{"b=2 s=40 k=2 g=2 d=4", "bskgd", "bskd", 0.4},
     {.causal = 2, .prefix = "kb", .most = 30, .bias = "ks", .docs = {"bs"}, .sinks = "g", .run = 13}},
    {{"b=2 s=30 t=30 d=4", "bsd", "btd", 0.4}, {.ax = "sdtd", .causal = 2, .prefix = "", .most = 9}},
    {{"b=2 s=100 t=100 k=2 g=2 d=8 w=6", "bskgd", "btkd", 0.4},
     {.ax = "sdtw",
      .v = "btkw",
      .causal = 1,
      .window = 37,
      .cap = 2,
      .bias = "kst",
      .docs = {"bs", "bt"},
      .sinks = "gk",
      .run = 23}},
};

/* A push tries every fourth, of the emulator every eighth, in turn, and the last, which has everything. */
static bool tries_kind(size_t i, size_t turn) {
  return breadth_tries(i + turn, backend.odd ? 8 : 4) || i == sizeof kinds / sizeof *kinds - 1;
}

Test(attend, kinds_forward) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (tries_kind(i, 0)) attend_forward_of(&kinds[i].shape, &kinds[i].kind);
}

Test(attend, kinds_gradient) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (tries_kind(i, 2)) attend_gradient_of(&kinds[i].shape, &kinds[i].kind);
}

/* A row that sees nothing is 0, with the logarithm that says so; a bias of -inf hides as a mask does. */
Test(attend, rows_that_see_nothing) {
  double docs[] = {-1, 0, -1}, bias[] = {-INFINITY, -INFINITY, -INFINITY};
  for (int hidden = 0; hidden < 2; hidden++) {
    float *q = memory_new(6 * sizeof *q), *o = memory_new(6 * sizeof *o), *l = memory_new(3 * sizeof *l),
          *b = memory_new(3 * sizeof *b);
    int32_t *ids = memory_new(3 * sizeof *ids);
    for (int i = 0; i < 3; i++) ids[i] = (int32_t)docs[i], b[i] = (float)bias[i];
    for (int i = 0; i < 6; i++) q[i] = (float)(i + 1);
    ZkView x = {.data = q, .elem = ZK_F32, .rank = 2, .axis = {'s', 'd'}, .size = {3, 2}, .stride = {2, 1}};
    memcpy(x.whole, x.size, sizeof x.whole);
    ZkView row = {
        .data = l, .elem = ZK_F32, .rank = 1, .axis = {'s'}, .size = {3}, .stride = {1}, .whole = {3}};
    ZkCall c = {.op = ZG_OP_ATTEND, .nin = 4, .nout = 2, .nax = 2, .ax = {'s', 'd'}, .num = {1}};
    c.in[0] = c.in[1] = c.in[2] = c.out[0] = x;
    c.out[0].data = o;
    c.in[3] = c.out[1] = row;
    c.in[3].data = hidden ? (void *)b : (void *)ids;
    c.in[3].elem = hidden ? ZK_F32 : ZK_I32;
    run_call(&c, 0);
    for (int i = 0; i < 3; i++) {
      bool sees = !hidden && ids[i] >= 0;
      cr_expect_float_eq(o[2 * i], sees ? q[2 * i] : 0, 0, "row %d: %g", i, o[2 * i]);
      cr_expect(sees ? l[i] > 0 : l[i] == (float)-1e30, "row %d: %g", i, l[i]);
    }
    memory_free(q), memory_free(o), memory_free(l), memory_free(b), memory_free(ids);
  }
}
