/* Attention and its gradient, with and without groups of query heads. */
#include <stdlib.h>

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

static Case forward(const AttendShape *shape, int mask, char *row) {
  return (Case){.op = ZG_OP_ATTEND,
                .dims = shape->dims,
                .ax = "sd",
                .num = {shape->scale},
                .opt = {mask},
                .in = {{shape->q}, {shape->k}, {shape->k}},
                .out = {{shape->q}, {without(row, shape->q, 'd'), EXACT}},
                .tol = TOL,
                .half_tol = HALF_TOL};
}

void attend_forward(const AttendShape *shape, int mask) {
  char row[16];
  Case c = forward(shape, mask, row);
  conform(__FILE__, __LINE__, &c);
}

Test(attend, forward) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++) attend_forward(&shapes[i], mask);
}

/* Scores far apart and far from zero: the running maximum must do its work. */
Test(attend, large_scores) {
  char row[16];
  for (int mask = 0; mask < 2; mask++) {
    Case c = forward(&shapes[3], mask, row);
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

void attend_gradient(const AttendShape *shape, int mask) {
  char row[16];
  Case f = forward(shape, mask, row);
  double *o[ZK_MAX_OUT] = {0};
  int64_t nq = count_of(&f, f.in[0].axes), nk = count_of(&f, f.in[1].axes);
  double *q = malloc((size_t)(nq + 2 * nk) * sizeof *q), *k = q + nq, *v = k + nk;
  for (int64_t e = 0; e < nq + 2 * nk; e++) q[e] = (float)((double)((e * 7919 + 13) % 1009) / 504 - 1);
  f.in[0].value = q;
  f.in[1].value = k;
  f.in[2].value = v;
  reference(&f, o);
  Case g = {.op = ZG_OP_ATTEND_GRAD,
            .dims = f.dims,
            .ax = f.ax,
            .num = {f.num[0]},
            .opt = {mask},
            .in = {{f.in[0].axes},
                   {f.in[0].axes, .value = o[0]},
                   {f.out[1].axes, EXACT, .value = o[1]},
                   f.in[0],
                   f.in[1],
                   f.in[2]},
            .out = {{f.in[0].axes}, {f.in[1].axes}, {f.in[1].axes}},
            .tol = GRAD_TOL,
            .half_tol = HALF_GRAD_TOL,
            .floor = GRAD_FLOOR};
  conform(__FILE__, __LINE__, &g);
  free(q);
  free(o[0]);
  free(o[1]);
}

Test(attend, gradient) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++) attend_gradient(&shapes[i], mask);
}
