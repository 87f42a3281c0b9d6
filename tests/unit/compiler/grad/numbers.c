/* Operations of the language that become several of the graph's: their numbers, played in f64, against
 * formulas written here in another way, and their gradients against central differences. */
#include <criterion/criterion.h>
#include <math.h>

#include "compiler/compiler.h"
#include "tests/unit/compiler/grad/interp.h"

#define GRADIENT 1e-7 /* as in ops.c */
#define NUMBERS 1e-12 /* of some f64 operations; speeds of rope have another formula */

typedef struct {
  ZbArena *a;
  Interp *m;
} Played;

/* `body` in a model of the inputs x, n and i, and of a parameter w; `y` is its output. Data axes have 3. */
static Played play(const char *body) {
  ZbArena *a = zb_arena_new();
  const char *text = zb_printf(a,
                               "model M {\n  axis batch, s, a = 8, b = 4, v = 5, k = 2, slot\n"
                               "  input x: real[batch, s, a, b]\n  input i: index(v)[batch, s]\n"
                               "  param w[a, b] ~ normal(1)\n%s\n  loss y * cos(y) per known(i)\n}\n",
                               body);
  Interp *m = interp_new(interp_compile(a, text), a, 3, 7);
  double error = interp_check(m, 20);
  cr_expect(error < GRADIENT, "%s: the gradient is off by %g", body, error);
  interp_run(m, false);
  return (Played){a, m};
}

/* Of x w at (batch, s), element (a, b). */
static double xw(const Interp *m, int row, int a, int b) {
  return m->input[0][(row * 8 + a) * 4 + b] * m->param[0][a * 4 + b];
}

static void near(double got, double want, const char *what, int at) {
  cr_expect(fabs(got - want) <= NUMBERS * fmax(1, fabs(want)), "%s: element %d is %.17g, not %.17g", what, at,
            got, want);
}

/* Tokens that go to two of eight experts and back: what all experts do to all of them, where weights say what
 * counts. */
Test(numbers, experts) {
  Played p = play("  p = dot[b](x, w)\n  some, e = topk[a, k](p)\n  z = dot[a](x, w)\n"
                  "  param up[a, b, v], down[a, v, b] ~ normal(1)\n"
                  "  rows = dispatch[a, slot](z, e)\n"
                  "  rows = dot[v](sin(dot[b](rows, up)) * 0.5, down)\n"
                  "  y = combine[a, slot, k](softmax[b](rows), e, some)\n"
                  "  all = softmax[b](dot[v](sin(dot[b](z, up)) * 0.5, down))\n"
                  "  output o = y\n"
                  "  output d = dot[a](all, dot[k](onehot[a](e), some))\n");
  for (int i = 0; i < 9 * 4; i++) near(p.m->output[0][i], p.m->output[1][i], "combine", i);
  zb_arena_free(p.a);
}

/* Biases and scales of experts meet rows element by element: this is what all experts do to all tokens, as
 * above, and what a product with a dispatched 1 comes to. Weights without experts are those of each. Gradients
 * are compared with differences by play(). */
Test(numbers, biases_of_experts) {
  Played p = play("  axis one = 1\n  p = dot[b](x, w)\n  some, e = topk[a, k](p)\n  z = dot[a](x, w)\n"
                  "  param up[a, b, v], down[a, v, b] ~ normal(1)\n"
                  "  param ub[a, v], us[a], db[b], dd[a, b], turn[v] ~ normal(1)\n"
                  "  rows = dispatch[a, slot](z, e)\n"
                  "  h = max(dot[b](rows, up) + ub, us) * sin(turn)\n  h = select(us < 0, h, h * 2) - us\n"
                  "  y = combine[a, slot, k](softmax[b](db + dot[v](h, down) / (2 + dd * dd)), e, some)\n"
                  "  h = max(dot[b](z, up) + ub, us) * sin(turn)\n  h = select(us < 0, h, h * 2) - us\n"
                  "  each = softmax[b](dot[v](h, down) / (2 + dd * dd) + db)\n"
                  "  output o = y\n"
                  "  output d = dot[a](each, dot[k](onehot[a](e), some))\n"
                  "  unit = dispatch[a, slot](spread[batch, s, one](1), e)\n"
                  "  u = dot[b](rows, up) + dot[one](unit, spread[one](ub))\n"
                  "  g = dot[b](rows, up) + ub\n"
                  "  output with = combine[a, slot, k](u, e, some)\n"
                  "  output plain = combine[a, slot, k](g, e, some)\n");
  for (int i = 0; i < 9 * 4; i++) near(p.m->output[0][i], p.m->output[1][i], "combine", i);
  for (int i = 0; i < 9 * 5; i++) near(p.m->output[3][i], p.m->output[2][i], "a bias", i);
  zb_arena_free(p.a);
}

/* The place of element `a` of a row of 8 among those of groups that are in, the largest first. */
static int place_of(const double *s, const bool *in, int a) {
  int place = 0;
  for (int k = 0; k < 8; k++) place += in[k] && (s[k] > s[a] || (s[k] == s[a] && k < a));
  return place;
}

/* topk by other numbers than it returns, and of the best groups; y takes both results. */
static void choose(const char *call, bool by, int groups, int take) {
  const char *body =
      "  w8 = dot[b](x, w)\n  best, e = %s\n  output o = best\n  output c = sum[b](onehot[a](e))\n"
      "  y = sum[b](best * best) + 0.1 * dot[a](c, w8)";
  char text[512];
  snprintf(text, sizeof text, body, call);
  Played p = play(text);
  for (int row = 0; row < 9; row++) {
    double v[8], s[8], sum[8];
    bool in[8];
    for (int a = 0; a < 8; a++) {
      v[a] = 0;
      for (int b = 0; b < 4; b++) v[a] += xw(p.m, row, a, b);
      s[a] = by ? sin(5 * v[a]) : v[a];
    }
    for (int g = 0; g < groups; g++) { /* of two or more, of which the two largest count */
      double first = -INFINITY, second = -INFINITY;
      for (int a = g * 8 / groups; a < (g + 1) * 8 / groups; a++) {
        second = fmax(second, fmin(first, s[a]));
        first = fmax(first, s[a]);
      }
      sum[g] = first + second;
    }
    for (int a = 0; a < 8; a++) {
      int better = 0;
      for (int g = 0; g < groups; g++) better += sum[g] > sum[a * groups / 8];
      in[a] = better < take;
    }
    int count = 0;
    for (int a = 0; a < 8; a++) {
      int place = place_of(s, in, a);
      bool chosen = in[a] && place < 4;
      if (chosen) near(p.m->output[0][row * 4 + place], v[a], call, place);
      near(p.m->output[1][row * 8 + a], chosen, call, a);
      count += chosen;
    }
    cr_expect_eq(count, 4);
  }
  zb_arena_free(p.a);
}

Test(numbers, topk) {
  choose("topk[a, b](w8)", false, 1, 1);
  choose("topk[a, b](w8, by = sin(5 * w8))", true, 1, 1);
  choose("topk[a, b](w8, groups = 4, take = 2)", false, 4, 2);
  choose("topk[a, b](w8, by = sin(5 * w8), groups = 2, take = 1)", true, 2, 1);
}

Test(numbers, softmax_over_two_axes) {
  Played p = play("output o = softmax[a, b](x * w)\ny = sum[a, b](o * w)");
  for (int row = 0; row < 9; row++) {
    double sum = 0;
    for (int k = 0; k < 32; k++) sum += exp(xw(p.m, row, k / 4, k % 4));
    for (int k = 0; k < 32; k++)
      near(p.m->output[0][row * 32 + k], exp(xw(p.m, row, k / 4, k % 4)) / sum, "softmax", row * 32 + k);
  }
  zb_arena_free(p.a);
}

/* Of a data axis and one of the model. */
Test(numbers, normalize_over_two_axes) {
  for (int centred = 0; centred < 2; centred++) {
    Played p =
        play(centred ? "output o = normalize[s, b](x * w, mode = std, eps = 0.1)\ny = sum[a, b](o * w)"
                     : "output o = normalize[s, b](x * w, mode = rms, eps = 0.1)\ny = sum[a, b](o * w)");
    for (int batch = 0; batch < 3; batch++)
      for (int a = 0; a < 8; a++) {
        double mean = 0, square = 0;
        for (int k = 0; k < 12; k++) mean += centred ? xw(p.m, batch * 3 + k / 4, a, k % 4) / 12 : 0;
        for (int k = 0; k < 12; k++) square += pow(xw(p.m, batch * 3 + k / 4, a, k % 4) - mean, 2) / 12;
        for (int k = 0; k < 12; k++) {
          int row = batch * 3 + k / 4, at = (row * 8 + a) * 4 + k % 4;
          near(p.m->output[0][at], (xw(p.m, row, a, k % 4) - mean) / sqrt(square + 0.1), "normalize", at);
        }
      }
    zb_arena_free(p.a);
  }
}

Test(numbers, lse) {
  Played p = play("output o = lse[a](x * w)\ny = sum[b](o)");
  for (int row = 0; row < 9; row++)
    for (int b = 0; b < 4; b++) {
      double sum = 0;
      for (int a = 0; a < 8; a++) sum += exp(xw(p.m, row, a, b));
      near(p.m->output[0][row * 4 + b], log(sum), "lse", row * 4 + b);
    }
  zb_arena_free(p.a);
}

Test(numbers, shift) {
  static const int by[] = {1, -2, 3};
  for (int k = 0; k < 3; k++) {
    ZbText t = {0};
    zb_text_add(&t, "output o = shift[s](x * w, by = %d)\ny = sum[a, b](o * w)", by[k]);
    Played p = play(t.s);
    zb_text_free(&t);
    for (int at = 0; at < 9 * 32; at++) {
      int s = at / 32 % 3 - by[k];
      double want = s < 0 || s > 2 ? 0 : xw(p.m, at / 32 - by[k], at % 32 / 4, at % 4);
      near(p.m->output[0][at], want, "shift", at);
    }
    zb_arena_free(p.a);
  }
}

/* Distances of two axes, and T5's buckets of them (Raffel et al. 2020): exact up to 2, then by logarithm,
 * as its authors' program has it for 8 buckets up to distance 8. */
Test(numbers, buckets) {
  Played p = play("axis near = 8, bucket = 8\nparam t[bucket] ~ normal(1)\n"
                  "d = spread[near](place[a]()) - place[near]()\nn = abs(d)\n"
                  "far = 2 + log(max(n, 1) / 2) / log(4) * 2\n"
                  "j = index[bucket](min(select(less(n, 2), n, far), 3) + 4 * max(sign(d), 0))\n"
                  "output o = f32(j)\ny = sum[a, b](x * w) + sum[a, near](lookup(t, j))");
  for (int a = 0; a < 8; a++)
    for (int b = 0; b < 8; b++) {
      int d = a - b, n = abs(d), bucket = n;
      if (n >= 2) bucket = 2 + (int)(log(n / 2.0) / log(8.0 / 2) * 2);
      if (bucket > 3) bucket = 3;
      near(p.m->output[0][a * 8 + b], bucket + (d > 0 ? 4 : 0), "bucket", a * 8 + b);
    }
  zb_arena_free(p.a);
}

/* What is outside, and what is not a number, is none. */
Test(numbers, index) {
  Played p =
      play("q = place[a]() - 2\noutput o = f32(index[v](q + 0.5))\noutput nan = f32(index[v](log(q - 9)))\n"
           "output tiny = f32(index[v](q / 4))\ny = sum[a, b](x * w)");
  static const int want[8] = {-1, -1, 0, 1, 2, 3, 4, -1}, fourth[8] = {-1, -1, 0, 0, 0, 0, 1, 1};
  for (int k = 0; k < 8; k++) {
    near(p.m->output[0][k], want[k], "index", k);
    near(p.m->output[1][k], -1, "index of no number", k);
    near(p.m->output[2][k], fourth[k], "index of a fraction", k);
  }
  zb_arena_free(p.a);
}

Test(numbers, indices) {
  Played p = play(
      "output eq = f32(select(equal(i, shift[s](i)), 1, 0))\noutput first = select(less(i, 2), f32(i), 7)\n"
      "output both = f32(select(less(shift[s](i), i), i, index[v](f32(0 * i32(i)))))\ny = sum[a, b](x * w)");
  for (int at = 0; at < 9; at++) {
    double i = p.m->input[1][at], before = at % 3 ? p.m->input[1][at - 1] : -1;
    near(p.m->output[0][at], i == before, "equal", at);
    near(p.m->output[1][at], i < 2 ? i : 7, "less", at);
    near(p.m->output[2][at], before < i ? i : 0, "select", at);
  }
  zb_arena_free(p.a);
}

/* ---- rope ---------------------------------------------------------------------------------------------- */
typedef struct {
  const char *args;
  double base, factor, context, low, high, scale;
  int rule, n;
  bool beside, at;
} Rope;

/* As Hugging Face's programs have them: by wavelengths. */
static double speed(const Rope *r, int p) {
  double f = 1 / pow(r->base, 2.0 * p / r->n), wave = 2 * M_PI / f;
  switch (r->rule) {
  case 1: return f / r->factor;
  case 4: return 1.0 / (p + 2);
  case 2:
    if (wave < r->context / r->high) return f;
    if (wave > r->context / r->low) return f / r->factor;
    {
      double smooth = (r->context / wave - r->low) / (r->high - r->low);
      return (1 - smooth) * f / r->factor + smooth * f;
    }
  case 3: {
    double from = fmax(floor(r->n * log(r->context / (r->high * 2 * M_PI)) / (2 * log(r->base))), 0);
    double to = fmin(ceil(r->n * log(r->context / (r->low * 2 * M_PI)) / (2 * log(r->base))), r->n - 1);
    if (from == to) to += 0.001;
    double between = fmin(fmax((p - from) / (to - from), 0), 1);
    return f / r->factor * between + f * (1 - between);
  }
  }
  return f;
}

Test(numbers, rope) {
  static const Rope r[] = {
      {"base = 100, rule = linear, factor = 2.5", 100, 2.5, 0, 0, 0, 1, 1, 8, false, false},
      {"base = 100, rule = llama3, factor = 4, context = 64", 100, 4, 64, 1, 4, 1, 2, 8, false, false},
      {"base = 100, rule = llama3, factor = 4, context = 40, low = 2, high = 3, at = at", 100, 4, 40, 2, 3, 1,
       2, 8, false, true},
      {"base = 100, rule = yarn, factor = 4, context = 640", 100, 4, 640, 1, 32, 1.1386294361119891, 3, 8,
       false, false},
      {"rule = yarn, factor = 1, context = 2, at = at", 10000, 1, 2, 1, 32, 1, 3, 8, false, true},
      {"base = 100, rule = yarn, factor = 4, context = 640, attention = 1, features = 6", 100, 4, 640, 1, 32,
       1, 3, 6, false, false},
      {"base = 50, features = 4", 50, 1, 0, 0, 0, 1, 0, 4, false, false},
      {"base = 50, pairs = neighbours", 50, 1, 0, 0, 0, 1, 0, 8, true, false},
      {"base = 50, pairs = neighbours, features = 6, attention = 2, at = at", 50, 1, 0, 0, 0, 2, 0, 6, true,
       true},
      {"speeds = 1 / (place[a]() + 2), pairs = neighbours", 1, 1, 0, 0, 0, 1, 4, 8, true, false},
      {"base = 50, pairs = halves, at = i", 50, 1, 0, 0, 0, 1, 0, 8, false, true}};
  for (size_t k = 0; k < sizeof r / sizeof *r; k++) {
    ZbText t = {0};
    zb_text_add(&t, "at = i32(i)\noutput o = rope[s, a](x * w, %s)\ny = sum[a, b](o * w)", r[k].args);
    Played p = play(t.s);
    zb_text_free(&t);
    for (int at = 0; at < 9 * 32; at++) {
      int row = at / 32, a = at % 32 / 4, b = at % 4, half = r[k].n / 2;
      double s = r[k].at ? p.m->input[1][row] : row % 3, want = xw(p.m, row, a, b);
      if (a < r[k].n) {
        int pair = r[k].beside ? a / 2 : a % half, upper = r[k].beside ? a % 2 : a / half;
        int other = r[k].beside ? a ^ 1 : upper ? a - half : a + half;
        double angle = s * speed(&r[k], pair), o = xw(p.m, row, other, b);
        want = r[k].scale * (want * cos(angle) + (upper ? o : -o) * sin(angle));
      }
      near(p.m->output[0][at], want, r[k].args, at);
    }
    zb_arena_free(p.a);
  }
}
