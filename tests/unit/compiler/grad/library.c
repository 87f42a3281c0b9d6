/* Blocks of the library where their formulas may break: at 0, at ties, near 0, and where exp overflows in f32. Graphs are played in
 * f64 with what each node makes rounded to f32. */
#include <criterion/criterion.h>
#include <math.h>

#include "compiler/compiler.h"
#include "lang/internal.h"
#include "tests/unit/compiler/grad/interp.h"

typedef struct {
  ZbArena *a;
  Interp *m;
} Played;

static Played load(const char *text, int64_t data) {
  ZbArena *a = zb_arena_new();
  return (Played){a, interp_new(interp_compile(a, text), a, data, 3)};
}

/* ---- functions of an element: closed forms ----------------------------------------------------------------- */
static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return fmax(x, 0); }
static double relu_slope(double x) { return x > 0; } /* 0 at 0, as PyTorch has it */
static double logistic_slope(double x) { return logistic(x) * logistic(-x); }
static double silu(double x) { return x * logistic(x); }
static double silu_slope(double x) { return logistic(x) + x * logistic_slope(x); }
static double gelu(double x) { return x * erfc(-x * M_SQRT1_2) / 2; }
static double gelu_slope(double x) { return erfc(-x * M_SQRT1_2) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI); }
static double inner(double x) { return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }
static double gelu_tanh(double x) { return x * logistic(2 * inner(x)); }
static double gelu_tanh_slope(double x) {
  double slope = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return logistic(2 * inner(x)) + x * logistic_slope(2 * inner(x)) * 2 * slope;
}
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double log_logistic(double x) { return -softplus(-x); }
static double log_logistic_slope(double x) { return logistic(-x); }
static double quick(double x) { return x * logistic(1.702 * x); }
static double quick_slope(double x) { return logistic(1.702 * x) + x * 1.702 * logistic_slope(1.702 * x); }
static double tanh_slope(double x) { return 1 / (cosh(x) * cosh(x)); }
static double capped(double x) { return 30 * tanh(x / 30); }
static double capped_slope(double x) { return tanh_slope(x / 30); }

static const struct {
  const char *call;
  double (*value)(double), (*slope)(double);
} functions[] = {{"nn.relu(z)", relu, relu_slope},
                 {"sigmoid(z)", logistic, logistic_slope},
                 {"nn.sigmoid(z)", logistic, logistic_slope},
                 {"nn.silu(z)", silu, silu_slope},
                 {"nn.gelu(z)", gelu, gelu_slope},
                 {"nn.gelu_tanh(z)", gelu_tanh, gelu_tanh_slope},
                 {"rec.softplus(z)", softplus, logistic},
                 {"rec.log_sigmoid(z)", log_logistic, log_logistic_slope},
                 {"z * sigmoid(1.702 * z)", quick, quick_slope},
                 {"tanh(z)", tanh, tanh_slope},
                 {"30 * tanh(z / 30)", capped, capped_slope}};

static const double points[] = {0,    1e-30, -1e-30, 1e-3, -1e-3, 1,     -1,  5,    -5,  17,  -17,
                                87.5, -87.5, 88,     -88,  89.5,  -89.5, 104, -104, 1e4, -1e4};
enum { NPOINTS = sizeof points / sizeof *points };

/* A dozen roundings of 6e-8. What is near 0 because 1 - 1 is, to the left of where a function begins, is so to the roundings of 1
 * times x, up to where exp(x) is 0. */
static void close_to(const char *call, const char *what, double x, double got, double want) {
  double most = 8e-7 * fabs(want) + (fabs(x) >= 1 ? 4e-7 * fmin(fabs(x), 104) : 1e-37);
  cr_expect(fabs(got - want) <= most, "%s at %g: the %s is %.9g, not %.9g", call, x, what, got, want);
}

Test(library, functions_of_an_element) {
  for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
    ZbText t = {0};
    zb_text_add(&t,
                "use std.nn as nn use std.recurrent as rec\nmodel M {\n  axis batch, a = %d\n  input x: "
                "real[batch, a]\n"
                "  param b[a] = 0\n  z = x + b\n  output y = %s\n  loss sum[a](y) per samples()\n}\n",
                NPOINTS, functions[k].call);
    Played p = load(t.s, 1);
    zb_text_free(&t);
    p.m->rounds = true;
    for (int i = 0; i < NPOINTS; i++) p.m->input[0][i] = points[i], p.m->param[0][i] = 0;
    interp_run(p.m, true);
    for (int i = 0; i < NPOINTS; i++) {
      double x = (float)points[i];
      close_to(functions[k].call, "value", x, p.m->output[0][i], functions[k].value(x));
      close_to(functions[k].call, "slope", x, p.m->grad[0][i], functions[k].slope(x));
    }
    zb_arena_free(p.a);
  }
}

/* ---- all other blocks: their examples, rounded against not rounded ----------------------------------------- */
static const char *model_of(ZbArena *a, const char *example) {
  return zb_printf(
      a,
      "use std.nn as nn use std.recurrent as rec\n"
      "model Block {\n"
      "  axis batch, seq, key, embed = 12, other = 12, head = 2, kv = 2, grp = 2, hd = 4, ffn = 8, cond = 6, "
      "vocab = 16\n"
      "  axis channel = 3, py = 2, px = 2, bucket = 6, expert = 6, choice = 2, pq = 4, hv = 3, lq = 5, lk = "
      "4\n"
      "  axis chan = 6, more = 8, group = 2, half = 4, row = 4, col = 4, row2 = 2, col2 = 2\n"
      "  input tokens: index(vocab)[batch, seq]\n"
      "  param table[vocab, embed], conditions[vocab, cond], pixels[vocab, channel, py, px] ~ normal(1)\n"
      "  param photos[vocab, chan, row, col], router[embed, expert], weight[embed] ~ normal(1)\n"
      "  x = lookup(table, tokens)\n  c = mean[seq](lookup(conditions, tokens))\n"
      "  image = lookup(pixels, tokens)\n  photo = lookup(photos, tokens)\n"
      "  z = dot[embed](x, router)\n  p = softmax[expert](z)\n  w, e = topk[expert, choice](p)\n"
      "  %s\n  output out = y\n  loss sum[embed](y * weight) per samples()\n}\n",
      example);
}

/* Of the largest element: up to some hundred roundings of 6e-8, and slopes of what is nearly flat. */
#define NUMBERS 1e-4
enum { TABLES = 4 }; /* the first parameters: those that x, c, image and photo are of */

static double largest(const double *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(x[i]) <= most)) most = fabs(x[i]);
  return most;
}

static void alike(const char *where, const char *what, const double *got, const double *want, int64_t n,
                  double apart) {
  for (int64_t i = 0; i < n; i++) {
    if (isfinite(got[i]) && fabs(got[i] - want[i]) <= apart) continue;
    cr_expect_fail("%s: %s, element %lld is %.9g, not %.9g (+- %.3g)", where, what, (long long)i, got[i],
                   want[i], apart);
    return;
  }
}

/* The same numbers for both: those of `base`, and the tables `scale` times them, or all `scale`. */
static void set(Interp *m, double *const *base, double scale, bool tied) {
  for (uint32_t k = 0; k < m->g->nparams; k++)
    for (int64_t i = 0; i < m->nparam[k]; i++)
      m->param[k][i] = (float)(k >= TABLES ? base[k][i] : tied ? scale : base[k][i] * scale);
}

static void play(Interp *exact, Interp *round, double *const *base, const char *example, double scale,
                 bool tied, double part) {
  ZbArena *a = zb_arena_new();
  const ZgGraph *g = exact->g;
  const char *where = zb_printf(a, "%s, x about %g%s", example, scale, tied ? ", all alike" : "");
  set(exact, base, scale, tied);
  set(round, base, scale, tied);
  interp_run(exact, true);
  interp_run(round, true);
  int64_t n = interp_elements(exact, &g->outputs[0].type);
  alike(where, "the result", round->output[0], exact->output[0], n, part * largest(exact->output[0], n));
  double all = 1;
  for (uint32_t k = 0; k < g->nparams; k++) all = fmax(all, largest(exact->grad[k], exact->nparam[k]));
  for (uint32_t k = 0; k < g->nparams; k++)
    alike(where, zb_printf(a, "the gradient of %s", g->params[k].path), round->grad[k], exact->grad[k],
          exact->nparam[k], part * largest(exact->grad[k], exact->nparam[k]) + part / 10 * all);
  zb_arena_free(a);
}

/* At 1e4 these are finite, and no more: the squares of what Mamba2 norms are beyond f32, the slope of Rwkv7's sigmoids is what
 * is left of 1 - 1, and logits of 1e9 have no digits behind the point. */
static double precision(const char *example) {
  static const char *const coarse[] = {"rec.Mamba2[", "rec.Rwkv7[", "nn.smoothed["};
  for (size_t i = 0; i < sizeof coarse / sizeof *coarse; i++)
    if (strstr(example, coarse[i])) return 1e300;
  return NUMBERS;
}

Test(library, examples) {
  ZbArena *a = zb_arena_new();
  static const char mark[] = "\n# Example: ";
  static const struct {
    double scale;
    bool tied;
  } at[] = {{0, true}, {1, true}, {1e-30, false}, {-88, false}, {88, false}, {-1e4, false}, {1e4, true}};
  int n = 0;
  for (const char *const *e = zl_stdlib; *e; e += 2)
    for (const char *text = e[1]; (text = strstr(text, mark));) {
      text += strlen(mark);
      const char *example = zb_strndup(a, text, strcspn(text, "\n"));
      Played p = load(model_of(a, example), 3);
      Interp *round = interp_new(p.m->g, p.a, 3, 3), *base = interp_new(p.m->g, p.a, 3, 3);
      round->rounds = true;
      for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        play(p.m, round, base->param, example, at[k].scale, at[k].tied,
             fabs(at[k].scale) < 1e3 ? NUMBERS : precision(example));
      zb_arena_free(p.a);
      n++;
    }
  cr_expect(n > 30, "only %d examples were found", n);
  zb_arena_free(a);
}
