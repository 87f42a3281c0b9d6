/* Which paddings cannot change the result, and why others could: by every rule of pad.c once on each side. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#define NO "cannot be padded"
#define SIZE "needs its true size"
#define SUM "would count added entries that are not zero"
#define GRAD "is not zero for the added entries"

/* f is padded from 6 to 8. h[batch, f] and hk[batch, f, k] are zero there; x[batch, g] and s[batch] lack the
 * axis. */
static const char *const head =
    "model P {\n"
    "  axis batch, f = 6, g = 4, k = 2, k2 = 4, f2 = 6, half = 3, v = 5, few = 1\n"
    "  input x: real[batch, g]\n  input s: real[batch]\n  input t: index(v)[batch]\n"
    "  param w[g, f], wk[g, f, k], c[f], ck[f, k], ck2[f, k2], e[v, f], q[f2], p[half] ~ normal(1)\n"
    "  h = dot[g](x, w)\n  hk = dot[g](x, wk)\n";

static void expect(const char *body, const char *pad, const char *text) {
  ZbText t = {0};
  zb_text_add(&t, "%s  %s\n}\n", head, body);
  Model m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  zb_text_add(&t, "bind batch = 4 pad %s", pad);
  Plan q = plan_try(m.g, t.s);
  const char *said = plan_messages(&q);
  if (!text) cr_expect(q.p, "%s: refused: %s", body, said);
  else
    cr_expect(!q.p && strstr(said, "Z0308") && strstr(said, text), "%s: %s\n%s", body, text,
              q.p ? "accepted" : said);
  zb_text_free(&t);
  plan_close(&q);
  model_close(&m);
}

/* y is summed against the parameter c, whose gradient is y: y must be zero where c is padded. */
static void expect_zero(const char *y, const char *text) {
  ZbText t = {0};
  zb_text_add(&t, "y = %s  loss dot[f](y, c) per known(t)", y);
  expect(t.s, "f to 8", text);
  zb_text_free(&t);
}

Test(pad, functions) {
  static const struct {
    const char *zero[3], *one[3]; /* at h = 0: zero, or not */
  } f[] = {
      {{"h * h", "-h", "tanh(h)"}, {"h + 1", "1 - h", "tanh(h + 1)"}},
      {{"erf(h)", "sin(h)", "cos(h) - 1"}, {"erf(h + 1)", "sin(h + 1)", "cos(h)"}},
      {{"exp(h) - 1", "log(h + 1)", "sqrt(h + 1) - 1"}, {"exp(h)", "log(h + 2)", "sqrt(h + 1)"}},
      {{"rsqrt(h + 1) - 1", "h / (h + 1)", "h / s"}, {"rsqrt(h + 4)", "(h + 1) / (h + 2)", "(h + 1) / s"}},
      {{"max(h, 0)", "min(h, 1)", "max(h, 0 - 1)"}, {"max(h, 1)", "min(h, 0 - 1)", "min(h + 3, 2)"}},
      {{"select(less(h, 1), h, h + 1)", "select(less(h, 0), h + 1, h)", "h * s"},
       {"select(less(h, 1), h + 1, h)", "select(less(h, 0), h, h + 1)", "s + h"}},
      {{"select(equal(h, 0), h, h + 1)", "select(less(s, 1), h, h * 2)", "stop(h)"},
       {"select(equal(h, 1), h, h + 1)", "select(less(s, 1), h, h + 1)", "stop(h) + 1"}},
      {{"sign(h)", "h * sign(s)", "sign(h) * s"}, {"sign(h + 1)", "sign(h - 1)", "sign(s) + h"}},
      {{"abs(h)", "abs(h) * s", "h * abs(s)"}, {"abs(h + 1)", "abs(h - 1)", "abs(s) + h"}},
      {{"floor(h)", "floor(h + 0.5)", "h * floor(s)"}, {"floor(h + 1)", "floor(h - 0.5)", "floor(s) + h"}},
      {{"sigmoid(h) - 0.5", "h * sigmoid(h)", "h * sigmoid(s)"},
       {"sigmoid(h)", "sigmoid(h) * s", "sigmoid(h + 1)"}},
      {{"log1p(h)", "log1p(h) * s", "log1p(h * h)"}, {"log1p(h + 1)", "log1p(h) + 1", "s + log1p(h)"}},
      {{"pow(h, 2)", "pow(h + 1, 2) - 1", "h * pow(s, 2)"},
       {"pow(h + 1, 2)", "pow(h + 2, h)", "pow(s, 2) + h"}}};
  for (size_t i = 0; i < sizeof f / sizeof *f; i++)
    for (int k = 0; k < 3; k++) {
      expect_zero(f[i].zero[k], NULL);
      expect_zero(f[i].one[k], NO);
    }
}

/* Sums of what comes before padding are right, whatever that holds; what comes after it is not zero. */
Test(pad, running_sums) {
  expect_zero("h * cumsum[f](h)", NULL);
  expect_zero("h * cumsum[f](h + 1)", NULL); /* what comes back through h is zero there */
  expect_zero("h * cumsum[f](1 / h)", NO);
  expect_zero("cumsum[f](h)", NO);
  expect_zero("cumsum[f](h, order = reverse)", NO);
  expect_zero("stop(cumsum[f](h, order = reverse))", NULL);
  expect_zero("stop(cumsum[f](h + 1, order = reverse))", SUM);
  expect_zero("sum[k](cumsum[k](hk))", NULL);
  expect_zero("sum[k](cumsum[k](hk + 1, order = reverse))", NO);
}

/* Padded channels are summed against zeros, go by, or come out as zeros; positions are counted. */
Test(pad, convolutions) {
  expect("param a[g, f, half] ~ normal(1)  loss conv[f, k, half](hk, a) per known(t)", "f to 8", NULL);
  expect("param a[g, f, half] ~ normal(1)  loss conv[f, k, half](hk + 1, a) per known(t)", "f to 8", GRAD);
  expect("param a[g, half] ~ normal(1)  loss conv[f, k, half](hk + 1, spread[f](a)) per known(t)", "f to 8",
         SUM);
  expect("param a[f, half] ~ normal(1)  loss dot[f](conv[k, half](hk, a), c) per known(t)", "f to 8", NULL);
  expect("param a[g, f, half] ~ normal(1)  y = conv[f, k, half](hk, a)  loss conv_transpose[g, k, half](y, "
         "a) * hk per known(t)",
         "f to 8", NULL);
  expect("loss conv[f, half](h, p) per known(t)", "f to 8", SIZE);
}

/* So are recurrences. Along other axes they give zeros for terms, or queries, that are zero. */
Test(pad, recurrences) {
  expect_zero("h * scan[f](s, h + 1)", NULL);
  expect_zero("scan[f](s, h)", NO);
  expect_zero("stop(scan[f](s, h, order = reverse))", NULL);
  expect_zero("stop(scan[f](s, h + 1, order = reverse))", SUM);
  expect_zero("sum[k](scan[k](s, hk))", NULL);
  expect_zero("sum[k](scan[k](s, hk + 1))", NO);
}

/* Positions of padding are numbers like others. What is shifted along the axis, or an entry of it, needs
 * its size. */
Test(pad, positions) {
  expect_zero("h * real(place[f]())", NULL);
  expect_zero("h + real(place[f]())", NO);
  expect("loss dot[f](shift[f](h), c) per known(t)", "f to 8", SIZE);
  expect("loss lse[v](dot[f](h, e)) per known(t)", "v to 8", NULL);
  expect("loss dot[f](spread[f](s), c) per known(t)", "f to 8", NO);
}

/* What an update makes of added entries need not be zero. */
Test(pad, states) {
  const char *state = "state r[f] = 0 update r = r + 1 loss dot[f](%s, c) per known(t)";
  static const struct {
    const char *y, *text;
  } with[] = {{"h * r", NULL}, {"h + r", GRAD}, {"stop(h + r)", GRAD}};
  char text[200];
  for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
    snprintf(text, sizeof text, state, with[i].y);
    expect(text, "f to 8", with[i].text);
  }
  expect("state r[f] = 0 update r = r + mean[batch](h + 1) loss dot[f](h * r, c) per known(t)", "f to 8",
         NULL);
}

/* The largest entries of an axis are of its true ones; of other axes, padding may be chosen from and comes to
 * nothing. Nobody is chosen that was added. */
Test(pad, choices) {
  expect("w, e = topk[f, k](h) loss sum[k](w) per known(t)", "f to 8", SIZE);
  expect("w, e = topk[k, few](hk) loss dot[f](sum[few](w), c) per known(t)", "f to 8", NULL);
  expect("w, e = topk[k, few](hk + 1) loss dot[f](sum[few](w), c) per known(t)", "f to 8", GRAD);
  expect("w, e = topk[k, few](hk + 1) loss sum[f](sum[few](w)) per known(t)", "f to 8", SUM);
  expect("loss dot[v](onehot[v](t), dot[f](h, e)) per known(t)", "v to 8", NULL);
}

/* What may be no number at all is not zero when multiplied by zero. */
Test(pad, not_finite) {
  static const char *const bad[] = {"1 / h",
                                    "log(h)",
                                    "rsqrt(h)",
                                    "log(h * s + s)",
                                    "s / (h * s + s)",
                                    "s / h",
                                    "-(1 / h)",
                                    "tanh(1 / h)",
                                    "1 / h + s",
                                    "s + 1 / h",
                                    "s * log(h)",
                                    "sqrt(h * s + s)",
                                    "rsqrt(h * s + s)",
                                    "log(h) * 0",
                                    "0 * log(h)",
                                    "select(less(s, 1), h, log(h))",
                                    "select(less(s, 1), log(h), h)",
                                    "select(less(h, 1), log(h), h)",
                                    "log1p(h * s + s)",
                                    "pow(h * s + s, 2)",
                                    "pow(2, log(h))"};
  static const char *const good[] = {"1 / (h + 1)",
                                     "s / (h + 1)",
                                     "log(s)",
                                     "log1p(s)",
                                     "pow(s, 2)",
                                     "rsqrt(s)",
                                     "exp(h * s + s)",
                                     "sigmoid(h * s + s)",
                                     "1 / s",
                                     "s / s",
                                     "tanh(h * s + s)",
                                     "select(less(h, 0), log(h), h)",
                                     "select(less(s, 1), h, h + 1)"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ZbText t = {0};
    zb_text_add(&t, "h * stop(%s)", bad[i]);
    expect_zero(t.s, NO);
    zb_text_free(&t);
  }
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    ZbText t = {0};
    zb_text_add(&t, "h * stop(%s)", good[i]);
    expect_zero(t.s, NULL);
    zb_text_free(&t);
  }
}

/* Fused, what is padded must hold the same in all parts; what one part lacks the whole does. */
Test(pad, fused) {
  static const struct {
    const char *a, *b, *y;
    const char *text;
  } c[] = {{"hk", "hk * 2", "j", NULL},
           {"exp(hk)", "exp(hk * 2)", "j - 1", NULL},
           {"exp(hk)", "hk", "j", GRAD},
           {"hk", "exp(hk)", "j", GRAD},
           {"hk", "exp(hk) * s", "j", GRAD},
           {"exp(hk) * s", "hk", "j", GRAD},
           {"exp(hk) * s", "exp(hk) * s", "j * hkk", NULL},
           {"hk", "exp(hk) * s", "j * hkk", NULL},
           {"hk", "stop(1 / hk)", "j * hkk", NO},
           {"stop(1 / hk)", "hk", "j * hkk", NO},
           {"exp(hk) * s", "stop(1 / hk)", "j * hkk", NO},
           {"stop(1 / hk)", "exp(hk) * s", "j * hkk", NO}};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    ZbText t = {0};
    zb_text_add(&t,
                "hkk = concat[k2, k, k](hk, hk)  j = concat[k2, k, k](%s, %s)  y = %s  loss dot[f, k2](y, "
                "ck2) per known(t)",
                c[i].a, c[i].b, c[i].y);
    expect(t.s, "f to 8", c[i].text);
    zb_text_free(&t);
  }
}

/* Along the axis, softmax masks what was added: it is 0 there, of whatever it is made, and so is its gradient. */
Test(pad, softmax) {
  expect_zero("softmax[f](h)", NULL);
  expect_zero("softmax[f](h + 1)", NULL);
  expect_zero("softmax[f](log(h))", NO); /* its gradient is 0 / 0 there */
  expect_zero("softmax[f](stop(log(h)))", NULL);
  expect_zero("softmax[f](h) + 1", NO);
  expect_zero("sum[k](softmax[k](hk))", NO); /* 1/2 in each of a row of zeros */
  expect("loss sum[f](softmax[f](h) * stop(h + 1)) per known(t)", "f to 8", NULL);
  expect("loss sum[f](softmax[f](h) * log(softmax[f](h))) per known(t)", "f to 8", NO);
  expect("loss sum[f, k](softmax[f, k](hk) * ck) per known(t)", "f to 8", NO); /* made of a sum */
}

/* What goes by the axis itself needs its size. */
Test(pad, sizes) {
  expect("loss dot[f, k2](concat[k2, k, k](hk, hk), ck2) per known(t)", "k2 to 8", SIZE);
  expect("loss dot[f, k2](concat[k2, k, k](hk, hk), ck2) per known(t)", "k to 3", SIZE);
  expect("loss dot[f2](rename[f, f2](h), q) per known(t)", "f to 8", SIZE);
  expect("loss dot[f2](rename[f, f2](h), q) per known(t)", "f2 to 8", SIZE);
  expect("loss dot[half](slice[f, half](h), p) per known(t)", "half to 4", SIZE);
  expect("loss dot[half](slice[f, half](h), p) per known(t)", "f to 8", SIZE);
  expect("loss dot[f](normalize[f](h, mode = rms, eps = 1), c) per known(t)", "f to 8", SIZE);
  expect("loss mean[f](h) per known(t)", "f to 8", NO);
  expect("loss dot[f](h, c) per known(t)", "g to 8", SIZE);
}

Test(pad, sums) {
  expect("loss sum[f](h) per known(t)", "f to 8", GRAD);
  expect("loss sum[f](stop(h)) + dot[f](h, c) per known(t)", "f to 8", NULL);
  expect("loss sum[f](h + 1) per known(t)", "f to 8", SUM);
  expect("loss peak[f](h) per known(t)", "f to 8", SUM);
  expect("loss sum[f](stop(h * peak[k](hk))) + dot[f](h, c) per known(t)", "f to 8", NULL);
  expect("loss sum[f](peak[k](hk + 1)) per known(t)", "f to 8", SUM);
  expect("loss sum[f](stop(sum[k](hk))) + dot[f](h, c) per known(t)", "f to 8", NULL);
  expect("loss sum[f](stop(sum[k](hk + 1))) + dot[f](h, c) per known(t)", "f to 8", SUM);
  expect("loss dot[f](h + 1, h + 2) per known(t)", "f to 8", SUM);
  expect("loss dot[f](h + 1, c * 2) per known(t)", "f to 8", NO);
  expect("loss dot[f](lookup(e, t), c) per known(t)", "f to 8", NULL);
  expect("loss dot[f](lookup(e, t), c) per known(t)", "v to 8", NULL);
  expect("loss dot[f](lookup(e + 1, t), c) per known(t)", "f to 8", NO);
  expect("loss xent[v](dot[f](h, e), t) per known(t)", "v to 8", NULL);
  expect("loss xent[v](dot[f](h, e) + 1, t) per known(t)", "v to 8", NULL);
  expect("loss xent[v](dot[f](h, e), t) per known(t)", "f to 8", NULL);
}

/* The statistics of a norm along another axis are a second result; what its first operand holds stays
 * known. */
Test(pad, second_results) {
  expect("z = hk * 2  y = normalize[k](z, mode = rms, eps = 1) + z  loss dot[f, k](y, ck) per known(t)",
         "f to 8", NULL);
  expect("z = hk + 1  y = normalize[k](z, mode = rms, eps = 1)  loss dot[f, k](y, ck) per known(t)", "f to 8",
         NO);
}

/* One recipe for a family: sizes of axes that a model may lack, which are no excuse for those that it has. */
Test(pad, axes_that_may_lack) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=4 -D width=16 -D context=16 -D words=32");
  Plan q = plan_of(m.g, "bind batch = 8, seq? = 16, slot? = 1.5, frames? = 3 pad kv? to 8");
  cr_expect_eq(q.p->layout.axis_size[zg_axis_find(m.g, "seq")], 16);
  plan_close(&q);
  q = plan_try(m.g, "bind batch = 8, seq = 16, frames = 3");
  cr_expect(!q.p && strstr(plan_messages(&q), "frames"), "%s", plan_messages(&q));
  plan_close(&q);
  q = plan_try(m.g, "bind batch = 8, seq = 16, embed? = 3");
  cr_expect(!q.p && strstr(plan_messages(&q), "`embed` is 16 by the model"), "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}
