/* Convolutions: x's axes, the window's and y's are three axis arguments for each spatial axis. */
#include "tests/unit/kernels/conform.h"

/* Sums of up to some thousand products in f32, as those of dot. */
#define TOL 2e-5

/* x, w and y of one convolution, each made of the other two; the gradient of w by itself and onto another. */
typedef struct {
  const char *dims, *ax, *x, *w, *y;
  int stride, dilate, pad;
} Conv;
static void all_three(int line, const Conv *c) {
  Case k = {.dims = c->dims,
            .ax = c->ax,
            .num = {c->dilate ? c->dilate : 1},
            .opt = {c->stride ? c->stride : 1, c->pad},
            .tol = TOL};
  k.op = ZG_OP_CONV, k.in[0].axes = c->x, k.in[1].axes = c->w, k.out[0].axes = c->y;
  conform(__FILE__, line, &k);
  k.op = ZG_OP_CONV_TRANSPOSE, k.in[0].axes = c->y, k.out[0].axes = c->x;
  conform(__FILE__, line, &k);
  k.op = ZG_OP_CONV_GRAD, k.in[0].axes = c->x, k.in[1].axes = c->y, k.out[0].axes = c->w;
  conform(__FILE__, line, &k);
  k.accumulate = true, k.out[0].kind = EXACT;
  conform(__FILE__, line, &k);
}
#define ALL(...) all_three(__LINE__, &(Conv){__VA_ARGS__})

Test(conv, same_size) {
  ALL("b=2 i=3 o=5 h=6 w=7 k=3 l=3", "hkhwlw", "bihw", "oikl", "bohw", .pad = ZG_CONV_SAME);
  ALL("b=2 i=3 o=5 h=6 w=7 k=5 l=2", "hkhwlw", "bhwi", "klio", "bhwo", .pad = ZG_CONV_SAME);
  ALL("b=2 i=3 o=5 h=6 w=7 k=3 l=1", "hkhwlw", "bihw", "oikl", "bohw", .pad = ZG_CONV_SAME, .dilate = 2);
  ALL("b=2 i=3 o=5 s=11 k=4", "sks", "bsi", "iok", "bso", .pad = ZG_CONV_CAUSAL);
}

/* Windows that go two or more steps at once, some of which end within the zeros; of windows shorter than that
 * x has elements in none. */
Test(conv, strides) {
  ALL("b=2 i=3 o=4 h=8 w=7 k=3 l=3 p=4 q=4", "hkpwlq", "bihw", "oikl", "bopq", .stride = 2,
      .pad = ZG_CONV_SAME);
  ALL("b=2 i=3 o=4 h=9 w=7 k=3 l=4 p=4 q=2", "hkpwlq", "bhwi", "klio", "bpqo", .stride = 2);
  ALL("i=3 o=4 h=11 w=10 k=1 l=2 p=4 q=4", "hkpwlq", "ihw", "oikl", "opq", .stride = 3);
  ALL("b=3 i=2 o=3 s=9 k=3 t=4", "skt", "bis", "oik", "bot", .stride = 3, .pad = 2);
  ALL("b=3 i=2 o=3 s=19 k=3 t=5", "skt", "bis", "oik", "bot", .stride = 4, .dilate = 2,
      .pad = ZG_CONV_CAUSAL);
  ALL("b=3 i=2 o=3 s=19 k=4 t=4", "skt", "bis", "oik", "bot", .stride = 6, .dilate = 4, .pad = 6);
  ALL("i=2 o=3 s=2 k=5 t=1", "skt", "is", "oik", "ot", .stride = 7, .pad = 2);
}

/* Axes that all three have: each channel by itself, groups, heads. */
Test(conv, groups) {
  ALL("b=2 c=9 h=6 w=7 k=3 l=3", "hkhwlw", "bchw", "ckl", "bchw", .pad = ZG_CONV_SAME);
  ALL("b=2 c=33 s=7 k=4", "sks", "bsc", "ck", "bsc", .pad = ZG_CONV_CAUSAL);
  ALL("b=2 g=2 i=3 o=5 h=6 w=7 k=3 l=3 p=3 q=4", "hkpwlq", "bgihw", "goikl", "bgopq", .stride = 2, .pad = 1);
  ALL("b=2 i=3 h=6 w=7 k=3 l=3", "hkhwlw", "bihw", "ikl", "bhw",
      .pad = ZG_CONV_SAME);                                              /* no channels come out */
  ALL("b=2 o=3 h=6 k=3", "hkh", "bh", "ok", "boh", .pad = ZG_CONV_SAME); /* nor go in */
}

Test(conv, three_axes) {
  ALL("b=2 i=3 o=2 d=4 h=3 w=5 j=3 k=2 l=3 p=2 q=2 r=3", "djphkqwlr", "bidhw", "oijkl", "bopqr", .stride = 2,
      .pad = 1);
  ALL("i=3 o=2 d=4 h=3 w=5 j=3 k=1 l=3", "djdhkhwlw", "dhwi", "jklio", "dhwo", .pad = ZG_CONV_SAME);
}

/* Past the edges of tiles of positions, features and windows, and of parts of long sums. */
Test(conv, beyond_tiles) {
  ALL("b=3 i=40 o=5 h=9 w=8 k=5 l=3", "hkhwlw", "bihw", "oikl", "bohw", .pad = ZG_CONV_SAME);
  if (!at_night()) return;
  ALL("b=1 i=2 o=530 h=5 w=3 k=3 l=3", "hkhwlw", "bhwi", "oikl", "bhwo", .pad = ZG_CONV_SAME);
  ALL("b=3 i=2 o=3 h=41 w=40 k=3 l=3", "hkhwlw", "bihw", "oikl", "bohw", .pad = ZG_CONV_SAME);
  /* and within an inner one of two axes that do not lie together */
  ALL("o=20 p=27 h=5 k=2", "hkh", "h", "okp", "ohp", .pad = ZG_CONV_SAME);
  ALL("i=4 j=9 o=2 h=5 k=15", "hkh", "ihj", "iojk", "ho", .pad = ZG_CONV_SAME);
  ALL("b=9 c=5 i=2 o=2 h=7 k=2", "hkh", "bihc", "iok", "cbho", .pad = ZG_CONV_SAME);
}
