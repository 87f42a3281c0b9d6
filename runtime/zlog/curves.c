/* What of runs is drawn. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <string.h>

/* Eight colors that people with any eyes tell apart, darker than Okabe's and Ito's where white is behind
 * them. */
static const char *const colors[] = {"#0b6fb8", "#d95f02", "#1a9c6b", "#b5468f",
                                     "#7a5fc0", "#b08800", "#3aa6c9", "#6b6b6b"};
enum { COLORS = sizeof colors / sizeof *colors };
/* The same, for a dark ground. */
static const char *const dark[COLORS] = {"#4fa3e0", "#f08a3c", "#3cc493", "#d873b4",
                                         "#a08be6", "#d4ac2b", "#63c3e3", "#a8a8a8"};
/* Lines and gaps that tell more curves apart than there are colors, in points of the picture; "": no gaps.
 * Ends of lines are round, so that a gap looks smaller by their width, and a line longer. */
static const char *const dashes[] = {"", "7 5", "0.5 4.5", "9 5 0.5 5"};
enum { DASHES = sizeof dashes / sizeof *dashes };

static void give_look(ZvCurve *c, size_t i) {
  c->color = colors[i % COLORS];
  c->dark = dark[i % COLORS];
  c->dash = dashes[i / COLORS % DASHES];
  c->filled = i / COLORS % 2;
}

/* Returns whether a curve would hide one that was drawn before: where both have points, and there are three
 * at least, no two are further apart than `near`. */
static bool lies_on(const ZvCurve *a, const ZvCurve *b, double near) {
  size_t both = 0;
  for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
    if (a->smooth[i].x != b->smooth[k].x) {
      if (a->smooth[i].x < b->smooth[k].x) i++;
      else k++;
      continue;
    }
    double apart = fabs(a->smooth[i++].y - b->smooth[k++].y);
    if (apart > near) return false;
    both += !isnan(apart);
  }
  return both >= 3;
}

/* Gives curves gaps that lie on one without: what is below is seen through them. */
static void part_looks(ZvCurve *c, size_t n) {
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < c[i].n; k++) {
      low = fmin(low, c[i].smooth[k].y);
      high = fmax(high, c[i].smooth[k].y);
    }
  for (size_t i = 1; i < n; i++)
    for (size_t k = 0; k < i && !*c[i].dash; k++)
      if (!*c[k].dash && lies_on(&c[i], &c[k], .005 * (high - low))) c[i].dash = "6 8";
}

static double x_of(const ZvPoint *p, ZvX x) {
  return x == ZV_STEPS ? (double)p->step : x == ZV_TOKENS ? p->tokens : p->hours;
}

/* Of hours that are few: minutes or seconds. */
static double unit(const ZvRun *runs, size_t n, ZvX x, const char **label) {
  double longest = 0;
  *label = x == ZV_STEPS ? "step" : x == ZV_TOKENS ? "tokens" : "hours";
  if (x != ZV_HOURS) return 1;
  for (size_t i = 0; i < n; i++) longest = fmax(longest, runs[i].step[runs[i].nstep - 1].hours);
  if (longest > 2) return 1;
  *label = longest > 2. / 60 ? "minutes" : "seconds";
  return longest > 2. / 60 ? 60 : 3600;
}

static void smooth(const ZvXY *raw, size_t n, double by, ZvXY *out) {
  double sum = 0, weight = 0;
  for (size_t i = 0; i < n; i++) {
    out[i] = raw[i];
    if (!isfinite(raw[i].y)) continue;
    sum = by * sum + (1 - by) * raw[i].y;
    weight = by * weight + (1 - by);
    out[i].y = sum / weight;
  }
}

/* A log scale has no place for what is not positive; and no scale for what overflows when it is added to. */
static const double most = 1e250;
static double drawn(double y, bool log) { return fabs(y) < most && (!log || y > 1 / most) ? y : NAN; }

static size_t curve(ZbArena *a, const ZvRun *r, ZvX x, double scale, double by, bool log, ZvCurve *c) {
  size_t seen = 0;
  c->name = r->name;
  c->raw = ZB_NEWN(a, ZvXY, r->nstep);
  c->eval = ZB_NEWN(a, ZvXY, r->neval);
  for (size_t i = 0; i < r->nstep; i++) {
    c->raw[c->n] = (ZvXY){scale * x_of(&r->step[i], x), drawn(r->step[i].y[0], log)};
    seen += !isnan(c->raw[c->n++].y);
  }
  for (size_t i = 0; i < r->neval; i++) {
    ZvXY e = {scale * x_of(&r->eval[i], x), drawn(r->eval[i].y[0], log)};
    if (!isnan(e.y)) c->eval[c->neval++] = e;
  }
  c->smooth = c->raw;
  if (by > 0) smooth(c->raw, c->n, by, c->smooth = ZB_NEWN(a, ZvXY, c->n));
  return seen + c->neval;
}

bool zv_figure(ZbArena *a, const ZvRun *runs, size_t n, ZvX x, const char *y, double by, bool log,
               ZvFigure *f, ZbErr *err) {
  *f = (ZvFigure){.y = y, .smooth = by, .log = log, .curve = ZB_NEWN(a, ZvCurve, n), .n = n};
  double scale = unit(runs, n, x, &f->xlabel);
  for (size_t i = 0; i < n; i++) {
    if (x == ZV_TOKENS && !(fabs(runs[i].step[runs[i].nstep - 1].tokens) < most))
      return zb_fail(err, "leave --x out, which draws against steps",
                     "%s does not say how many tokens its steps take", zb_show(runs[i].name));
    give_look(&f->curve[i], i);
    if (!curve(a, &runs[i], x, scale, by, log, &f->curve[i]))
      return zb_fail(err, "--y names a number of metrics.jsonl", "%s has no %s that can be drawn%s",
                     zb_show(runs[i].name), zb_show(y), log ? " on a log scale" : "");
  }
  part_looks(f->curve, n);
  return true;
}

/* Of `each` in width; all in one where they have none. */
static double column(const ZvXY *p, double from, double each) {
  return each > 0 ? floor((p->x - from) / each) : 0;
}

size_t zv_thin(ZbArena *a, const ZvXY *p, size_t n, size_t columns, ZvXY **out) {
  ZvXY *q = *out = ZB_NEWN(a, ZvXY, n);
  size_t m = 0;
  if (n <= 4 * columns) return memcpy(q, p, n * sizeof *p), n;
  double from = p[0].x, each = (p[n - 1].x - from) / (double)columns;
  for (size_t i = 0; i < n;) {
    size_t low = i, high = i, first = i;
    double here = column(&p[i], from, each);
    for (; i < n && column(&p[i], from, each) == here; i++) {
      if (p[i].y < p[low].y || isnan(p[low].y)) low = i;
      if (p[i].y > p[high].y || isnan(p[high].y)) high = i;
    }
    const size_t pick[] = {first, low < high ? low : high, low < high ? high : low, i - 1};
    for (int k = 0; k < 4; k++)
      if (!k || pick[k] != pick[k - 1]) q[m++] = p[pick[k]];
  }
  return m;
}
