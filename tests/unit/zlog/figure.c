/* Runs as they are read; axes, smoothing, and points that are left out. */
#include "runtime/zlog/zlog.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Tokens and time are those of the steps and evaluations so far; an evaluation alone is not a part of a run. */
Test(run, what_a_line_takes) {
  static const char text[] = "{\"step\":1,\"steps\":9,\"loss\":4,\"tokens\":512,\"step_ms\":3600000}\n"
                             "{\"step\":1,\"eval_batches\":2,\"eval_loss\":3,\"eval_ms\":1800000}\n"
                             "{\"eval_batches\":2,\"eval_loss\":1,\"eval_ms\":9}\n"
                             "{\"step\":2,\"loss\":3,\"tokens\":100,\"step_ms\":-5}\n"
                             "{\"step\":2,\"eval_batches\":2,\"eval_loss\":null}\n"
                             "{\"step\":3,\"loss\":2,\"tokens\":1,\"step_ms\":1e15,\"steps\":0}\n"
                             "{\"step\":9007199254740991,\"loss\":1,\"steps\":9007199254740992}\n";
  static const char *const keys[] = {"loss", "none"};
  static const ZvPoint want[] = {{.step = 1, .tokens = 512, .hours = 1, .y = {4}},
                                 {.step = 2, .tokens = 612, .hours = 1.5, .y = {3}},
                                 {.step = 3, .tokens = 613, .hours = 1.5, .y = {2}},
                                 {.step = 9007199254740991, .tokens = NAN, .hours = 1.5, .y = {1}}};
  char path[] = "/tmp/zug-run-XXXXXX";
  int fd = mkstemp(path);
  ZbArena *a = zb_arena_new();
  ZvRun r;
  ZbErr err;
  cr_assert(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
  cr_assert(zv_run_read(a, path, keys, 2, &r, &err), "%s", err.text);
  cr_assert(r.nstep == 4 && r.neval == 1 && r.steps == 9);
  for (int i = 0; i < 4; i++) {
    const ZvPoint *p = &r.step[i], *q = &want[i];
    cr_expect(p->step == q->step && p->hours == q->hours && p->y[0] == q->y[0] && isnan(p->y[1]) &&
                  (p->tokens == q->tokens || (i == 3 && isnan(p->tokens))),
              "step %d: %g tokens, %g hours, %g", (int)p->step, p->tokens, p->hours, p->y[0]);
  }
  cr_expect(r.eval->step == 1 && r.eval->tokens == 512 && r.eval->hours == 1.5 && r.eval->y[0] == 3);
  close(fd);
  unlink(path);
  zb_arena_free(a);
}

/* The latest step says what a loss is made of, in its order; files of before say nothing. */
Test(run, what_a_loss_is_made_of) {
  static const char *const texts[] = {
      "{\"step\":1,\"loss\":4,\"tokens\":2}\n", "{\"step\":1,\"loss\":4,\"losses\":1,\"eval_loss_x\":1}\n",
      ("{\"step\":1,\"loss\":4,\"loss_main\":1,\"loss_aux\":null}\n"
       "{\"step\":1,\"eval_batches\":1,\"eval_loss_z\":1}\n"),
      "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":4,\"loss_b\":1,\"loss_a\":2,\"lr\":1}\n",
      "{\"step\":1,\"loss\":4,\"loss_b\":1,\"loss_a\":2}\n{\"step\":2,\"loss\":4,\"loss_b\":1}\n"};
  static const char *const want[] = {"", "", "loss_main loss_aux ", "loss_b loss_a ", "loss_b "};
  static const char *const keys[] = {"loss"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char path[] = "/tmp/zug-run-XXXXXX";
    int fd = mkstemp(path);
    ZbArena *a = zb_arena_new();
    ZbText t = {0};
    ZvRun r;
    ZbErr err;
    cr_assert(fd >= 0 && write(fd, texts[i], strlen(texts[i])) == (ssize_t)strlen(texts[i]));
    cr_assert(zv_run_read(a, path, keys, 1, &r, &err), "%s", err.text);
    zb_text_add(&t, "%s", "");
    for (size_t k = 0; k < r.nparts; k++) zb_text_add(&t, "%s ", r.part[k]);
    cr_expect_str_eq(t.s, want[i], "%zu: %s", i, t.s);
    zb_text_free(&t);
    zb_arena_free(a);
    close(fd);
    unlink(path);
  }
}

/* A disk that gives no more is no end of the run. */
Test(run, what_cannot_be_read) {
  static const char *const keys[] = {"loss"};
  ZbArena *a = zb_arena_new();
  ZvRun r;
  ZbErr err = {0};
  cr_expect(!zv_run_read(a, "/proc/self/mem", keys, 1, &r, &err)); /* its first page is none: EIO */
  cr_expect_str_eq(err.text, "cannot read /proc/self/mem");
  zb_arena_free(a);
}

static void ticks(double lo, double hi, bool log, int about, const char *want) {
  ZvScale s = zv_scale(lo, hi, log, about);
  ZbText t = {0};
  zb_text_add(&t, "%s", "");
  for (int i = 0; i < s.n; i++) zb_text_add(&t, "%s%s", i ? " " : "", s.text[i]);
  cr_expect_str_eq(t.s, want, "%g to %g: %s", lo, hi, t.s);
  zb_text_free(&t);
}

Test(scale, ticks_are_readable) {
  ticks(0, 10, false, 6, "0 2 4 6 8 10");
  ticks(0.3, 0.9, false, 6, "0.3 0.4 0.5 0.6 0.7 0.8 0.9");
  ticks(0, 1.2, false, 6, "0.0 0.2 0.4 0.6 0.8 1.0 1.2");
  ticks(0, 1.2000001, false, 6, "0.0 0.5 1.0");
  ticks(0, 2000, false, 6, "0 500 1k 1.5k 2k");
  ticks(1, 60, false, 6, "10 20 30 40 50 60");
  ticks(-1, 1, false, 6, "-1.0 -0.5 0.0 0.5 1.0");
  ticks(-1e-7, 1, false, 6, "0.0 0.2 0.4 0.6 0.8 1.0");
  ticks(100, 200, false, 1, "100 200");
  ticks(900, 1500, false, 6, "900 1k 1.1k 1.2k 1.3k 1.4k 1.5k");
  ticks(1000, 1300, false, 6, "1000 1050 1100 1150 1200 1250 1300");
  ticks(9000, 9300, false, 6, "9000 9050 9100 9150 9200 9250 9300");
  ticks(10000, 10300, false, 6, "10k 10.05k 10.1k 10.15k 10.2k 10.25k 10.3k");
  ticks(-3e6, 3e6, false, 6, "-3M -2M -1M 0 1M 2M 3M");
  ticks(0, 1.1e9, false, 6, "0 200M 400M 600M 800M 1B");
  ticks(1e12, 5e12, false, 6, "1T 2T 3T 4T 5T");
  ticks(0, 1e15, false, 5, "0 200T 400T 600T 800T 1e+15");
  ticks(2e-5, 8e-5, false, 6, "2e-05 3e-05 4e-05 5e-05 6e-05 7e-05 8e-05");
  ticks(2.001, 2.002, false, 6, "2.0010 2.0012 2.0014 2.0016 2.0018 2.0020");
  ticks(1, 100, true, 6, "1 2 5 10 20 50 100");
  ticks(1, 9.9, true, 6, "1 2 3 4 5 6 7 8 9");
  ticks(1, 10, true, 6, "1 2 5 10");
  ticks(3, 30, true, 6, "5 10 20");
  ticks(1, 1000, true, 6, "1 10 100 1k");
  ticks(1, 1000, true, 7, "1 2 5 10 20 50 100 200 500 1k");
  ticks(1e-3, 1e6, true, 6, "0.001 0.01 0.1 1 10 100 1k 10k 100k 1M");
  ticks(1, 1e25, true, 6, "1 100 10k 1M 100M 10B 1T 100T 1e+16 1e+18 1e+20 1e+22 1e+24");
}

Test(scale, one_value_has_some_around_it) {
  static const double cases[][3] = {{5, 4.5, 5.5}, {0, -1, 1}, {-3, -3.3, -2.7}};
  for (int i = 0; i < 3; i++) {
    ZvScale s = zv_scale(cases[i][0], cases[i][0], false, 6);
    cr_expect(s.lo == cases[i][1] && s.hi == cases[i][2], "%g: %g to %g", cases[i][0], s.lo, s.hi);
  }
}

Test(scale, no_range_is_too_odd, .timeout = 20) {
  const double odd[][2] = {{5, 5},          {0, 0},           {-3, -3},   {1e17, 1e17 + 16},
                           {-1e308, 1e308}, {1e-320, 1e-310}, {0, 5e-324}};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    ZvScale s = zv_scale(odd[i][0], odd[i][1], false, 6);
    cr_expect(s.lo < s.hi && s.n <= ZV_TICKS);
  }
  ZvScale s = zv_scale(1e-300, 1e300, true, 6);
  cr_expect(s.n > 3 && s.n <= ZV_TICKS);
  s = zv_scale(2, 1e9, true, 40); /* full in the middle of a decade */
  cr_expect(s.n == ZV_TICKS && s.tick[ZV_TICKS - 1] == 1e8);
}

Test(scale, places) {
  ZvScale s = zv_scale(10, 20, false, 5), l = zv_scale(1, 100, true, 5);
  s.at = 100, s.size = 50;
  l.at = 300, l.size = -200;
  cr_expect(zv_place(&s, 10) == 100 && zv_place(&s, 20) == 150 && zv_place(&s, 15) == 125);
  cr_expect_float_eq(zv_place(&l, 10), 200, 1e-9);
}

/* Weight 0.5: the first is itself; then (0.5 * 0.5 * 2 + 0.5 * 4) / 0.75. What is not a number is passed over. */
Test(curves, smoothing_is_not_drawn_to_0) {
  ZbArena *a = zb_arena_new();
  ZvPoint p[] = {
      {.step = 1, .y = {2}}, {.step = 2, .y = {4}}, {.step = 3, .y = {NAN}}, {.step = 4, .y = {4}}};
  ZvRun r = {.name = "r", .step = p, .nstep = 4};
  ZvFigure f;
  ZbErr err;
  cr_assert(zv_figure(a, &r, 1, ZV_STEPS, "loss", 0.5, false, &f, &err));
  const ZvXY *s = f.curve[0].smooth;
  cr_expect(s[0].y == 2 && f.curve[0].raw[1].y == 4 && isnan(s[2].y));
  cr_expect_float_eq(s[1].y, 10. / 3, 1e-12);
  cr_expect_float_eq(s[3].y, (0.125 * 2 + 0.25 * 4 + 0.5 * 4) / 0.875, 1e-12);
  cr_assert(zv_figure(a, &r, 1, ZV_STEPS, "loss", 0, false, &f, &err));
  cr_expect(f.curve[0].smooth == f.curve[0].raw);
  zb_arena_free(a);
}

Test(curves, few_points_with_the_same_looks, .timeout = 20) {
  enum { N = 10000, COLUMNS = 50 };
  ZbArena *a = zb_arena_new();
  ZvXY *p = ZB_NEWN(a, ZvXY, N), *q;
  for (int i = 0; i < N; i++) p[i] = (ZvXY){i, sin(i * 0.7)};
  p[4321].y = 9; /* one that must not be lost */
  p[77].y = NAN;
  size_t n = zv_thin(a, p, N, COLUMNS, &q);
  bool peak = false;
  cr_expect(n <= 4 * (COLUMNS + 1) && q[0].x == 0 && q[n - 1].x == N - 1);
  for (size_t i = 0; i < n; i++) {
    peak |= q[i].y == 9;
    cr_expect(!i || q[i].x > q[i - 1].x);
  }
  cr_expect(peak);
  for (int i = 0; i < N; i++) p[i].x = 1; /* no width at all */
  cr_expect_leq(zv_thin(a, p, N, COLUMNS, &q), 4);
  cr_expect_eq(zv_thin(a, p, 4 * COLUMNS, COLUMNS, &q), 4 * COLUMNS);
  zb_arena_free(a);
}

/* Of each part the first, the lowest, the highest and the last, each once; what is not a number is neither. */
Test(curves, which_points_stay) {
  static const double y[] = {3, 1, 4, 9, 0, 2, NAN, 7, NAN, 2, 6, 5};
  static const int stay[] = {0, 3, 4, 5, 6, 7, 9, 10, 11};
  ZbArena *a = zb_arena_new();
  ZvXY p[12], *q;
  for (int i = 0; i < 12; i++) p[i] = (ZvXY){i, y[i]};
  size_t n = zv_thin(a, p, 12, 2, &q); /* parts of 5.5; the last begins with 11 */
  cr_assert_eq(n, sizeof stay / sizeof *stay, "%zu", n);
  for (size_t i = 0; i < n; i++) cr_expect_eq(q[i].x, stay[i], "%zu: %g", i, q[i].x);
  cr_expect_eq(zv_thin(a, p, 8, 2, &q), 8); /* four a part */
  zb_arena_free(a);
}

/* Few hours are minutes or seconds, of the longest run. */
Test(curves, hours) {
  static const struct {
    double hours, x;
    const char *label;
  } cases[] = {{2.5, 2.5, "hours"},
               {2, 120, "minutes"},
               {0.05, 3, "minutes"},
               {2. / 60, 120, "seconds"},
               {0.001, 3.6, "seconds"}};
  ZbArena *a = zb_arena_new();
  ZbErr err;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZvPoint p[] = {{.step = 1, .hours = cases[i].hours, .y = {1}}, {.step = 1, .hours = 1e-4, .y = {1}}};
    ZvRun r[] = {{.name = "a", .step = p, .nstep = 1}, {.name = "b", .step = p + 1, .nstep = 1}};
    ZvFigure f;
    cr_assert(zv_figure(a, r, 2, ZV_HOURS, "loss", 0, false, &f, &err));
    cr_expect_str_eq(f.xlabel, cases[i].label);
    cr_expect_float_eq(f.curve[0].raw[0].x, cases[i].x, 1e-12);
  }
  zb_arena_free(a);
}

/* What a scale has no place for is left out, of evaluations too. */
Test(curves, what_cannot_be_drawn) {
  static const double y[] = {1,        9e249,   1.1e-250, 1 / 1e250, 0,  -1,
                             0.9e-250, 1.1e250, -1.1e250, INFINITY,  NAN};
  enum { N = sizeof y / sizeof *y, LOG = 3, LINEAR = 7 }; /* the first that each cannot draw */
  ZvPoint p[N];
  ZbArena *a = zb_arena_new();
  ZbErr err;
  for (int i = 0; i < N; i++) p[i] = (ZvPoint){.step = i, .y = {y[i]}};
  ZvRun r = {.name = "r", .step = p, .eval = p, .nstep = N, .neval = N},
        none = {.name = "r", .step = p + LOG, .nstep = 1};
  for (int log = 0; log < 2; log++) {
    ZvFigure f;
    cr_assert(zv_figure(a, &r, 1, ZV_STEPS, "loss", 0, log, &f, &err));
    for (int i = 0; i < N; i++) cr_expect_eq(!isnan(f.curve->raw[i].y), i < (log ? LOG : LINEAR), "%g", y[i]);
    cr_expect_eq(f.curve->neval, log ? LOG : LINEAR);
    cr_expect_eq(zv_figure(a, &none, 1, ZV_STEPS, "loss", 0, log, &f, &err), !log);
  }
  cr_expect(strstr(err.text, "r has no loss that can be drawn on a log scale"), "%s", err.text);
  zb_arena_free(a);
}

/* The look of each of the lines that begin with `begin`: what is said of it but for where it is. */
static size_t looks_of(ZbArena *a, const char *svg, const char *begin, const char *until,
                       const char *const *from, char **look) {
  size_t n = 0;
  for (const char *s = svg; (s = strstr(s, begin)); n++) {
    const char *stroke = strstr(s, from[0]), *more = strstr(stroke, from[1]), *end = strstr(more, until);
    look[n] = zb_printf(a, "%.*s|%.*s", (int)(strcspn(stroke, ">\n")), stroke, (int)(end - more), more);
    s = end;
  }
  return n;
}

static void all_differ(char **look, size_t n, size_t want, const char *where) {
  cr_expect_eq(n, want, "%zu %s", n, where);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < i; k++)
      cr_expect(strcmp(look[i], look[k]), "%s %zu and %zu both look like %s", where, k, i, look[i]);
}

/* Each of many curves has a look of its own, the same in the plot and beside its name, in a picture and on a
 * page. */
Test(pictures, looks) {
  enum { N = 32 };
  ZbArena *a = zb_arena_new();
  ZbErr err;
  ZvPoint p[] = {{.step = 1, .y = {1}}, {.step = 2, .y = {2}}}, e[] = {{.step = 2, .y = {2}}};
  ZvRun r[N];
  ZvFigure f;
  ZbText svg = {0}, html = {0};
  char *look[N], *in_plot[N];
  for (int i = 0; i < N; i++) r[i] = (ZvRun){.name = "run", .step = p, .nstep = 2, .eval = e, .neval = 1};
  cr_assert(zv_figure(a, r, N, ZV_STEPS, "loss", 0.5, false, &f, &err), "%s", err.text);
  zv_svg(&f, &svg);
  size_t n = looks_of(a, strstr(svg.s, "<g clip-path"), "<g stroke=\"#", " d=\"M",
                      (const char *const[]){"stroke=\"#", "stroke-width=\"1.8\""}, in_plot);
  all_differ(in_plot, n, N, "curves");
  n = looks_of(a, svg.s, "h20\" ", "/>", (const char *const[]){"stroke=\"#", "stroke-linecap"}, look);
  all_differ(look, n, N, "names");
  for (int i = 0; i < N; i++) {
    const char *curve = strstr(in_plot[i], "dasharray"), *name = strstr(strchr(look[i], '|'), "dasharray");
    cr_expect(!curve == !name && (!curve || !strcmp(curve, name)), "%s; %s", in_plot[i], look[i]);
  }
  zv_html(&f, &html);
  n = 0;
  for (const char *s = html.s; (s = strstr(s, "\"color\":")) && n < N; s++, n++)
    look[n] = zb_printf(a, "%.*s", (int)(strstr(s, ",\"mark\"") - s), s);
  all_differ(look, n, N, "curves of the page");
  n = 0;
  for (const char *s = html.s; (s = strstr(s, "stroke-dasharray=\"${r.dash}\"")); s++) n++;
  cr_expect_eq(n, 2, "the page draws dashes in the plot and beside names");
  zb_text_free(&svg);
  zb_text_free(&html);
  zb_arena_free(a);
}

/* More runs than colors, and than the picture has lines for; a name of as many characters as are shown,
 * and of one more; a point alone. */
Test(pictures, of_many_runs) {
  ZbArena *a = zb_arena_new();
  ZbErr err;
  ZvPoint p[] = {
      {.step = 1, .y = {1}}, {.step = 2, .y = {NAN}}, {.step = 3, .y = {2}}, {.step = 4, .y = {3}}};
  ZvRun r[21];
  for (int i = 0; i < 21; i++) r[i] = (ZvRun){.name = "run", .step = p, .nstep = 4};
  r[1].name = "\u00e9bcdefghijklmnopqrstuvwxyz<>";
  r[2].name = "x\u00e9bcdefghijklmnopqrstuvwxyz&\"";
  for (size_t n = 20; n <= 21; n++) {
    ZvFigure f;
    ZbText t = {0};
    cr_assert(zv_figure(a, r, n, ZV_STEPS, "loss", 0, false, &f, &err), "%s", err.text);
    zv_svg(&f, &t);
    cr_expect(strstr(t.s, n == 20 ? "viewBox=\"0 0 960 540\"" : "viewBox=\"0 0 960 560\""), "%.300s", t.s);
    cr_expect(strstr(t.s, ">\u00e9bcdefghijklmnopqrstuvwxyz&lt;&gt;</text>"));
    cr_expect(strstr(t.s, ">\u2026bcdefghijklmnopqrstuvwxyz&amp;&quot;</text>"));
    cr_expect(strstr(t.s, " d=\"M72.0 464.6h0M492.0 271.0L702.0 77.4\"/>"));
    for (int i = 0; i < 8; i++) cr_expect_eq(strcmp(f.curve[i].color, f.curve[8].color) == 0, i == 0);
    zb_text_free(&t);
  }
  zb_arena_free(a);
}
