/* zlog compare: where two runs part, and by how much. */
#include "runtime/zlog/zlog.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What says first why runs part: another rate comes before another loss. */
static const char *const keys[ZV_KEYS] = {"loss", "grad_norm", "lr"};

/* |a - b| of the larger of both; what is no number in both is the same. */
static double apart(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INFINITY;
  double most = fmax(fabs(a), fabs(b));
  return most > 0 ? fabs(a - b) / most : 0;
}

typedef struct {
  const ZvPoint *a, *b; /* of one step; NULL: there is none */
  double by;
} Pair;

typedef struct {
  uint64_t both; /* steps that both have */
  Pair first, most, last;
} Found;

static Found compare(const ZvRun *a, const ZvRun *b, int key, double tolerance) {
  Found f = {0};
  for (size_t i = 0, k = 0; i < a->nstep && k < b->nstep;) {
    if (a->step[i].step != b->step[k].step) {
      if (a->step[i].step < b->step[k].step) i++;
      else k++;
      continue;
    }
    Pair p = {&a->step[i++], &b->step[k++], 0};
    p.by = apart(p.a->y[key], p.b->y[key]);
    if (p.by > tolerance && !f.first.a) f.first = p;
    if (p.by > f.most.by || !f.most.a) f.most = p;
    f.last = p;
    f.both++;
  }
  return f;
}

static void print_pair(const char *what, const Pair *p, int key) {
  double a = zb_plain_nan(p->a->y[key]), b = zb_plain_nan(p->b->y[key]);
  printf("  %-24s step %-8" PRId64 "  %.9g and %.9g", what, p->a->step, a, b);
  if (p->by == 0) printf(", the same\n");
  else printf(", %.2g apart (%.3g %%)\n", b - a, 100 * p->by);
}

static void print_run(const ZvRun *r, const char *name) {
  printf("%s: %s, steps %" PRId64 " to %" PRId64, name, zb_show(r->name), r->step[0].step,
         r->step[r->nstep - 1].step);
  if (r->steps) printf(" of %" PRId64, r->steps);
  printf("\n");
}

/* One number of two runs; false: it differs. */
static bool print_key(const ZvRun r[2], const char *name, int key, double tolerance) {
  Found f = compare(&r[0], &r[1], key, tolerance);
  if (!f.first.a) {
    printf("%s: the same in all %" PRIu64 " steps that both have", name, f.both);
    if (tolerance > 0) printf(", within %g of itself (at most %.2g)", tolerance, f.most.by);
    printf("\n");
    return true;
  }
  printf("%s:\n", name);
  print_pair("they part at", &f.first, key);
  print_pair("furthest apart at", &f.most, key);
  print_pair("the last of both", &f.last, key);
  return false;
}

static bool has_part(const ZvRun *r, const char *name) {
  for (size_t i = 0; i < r->nparts; i++)
    if (!strcmp(r->part[i], name)) return true;
  return false;
}

/* Compares what losses are made of, where both runs say it. Runs of before say nothing of it. */
static bool compare_parts(const ZvOptions *o, ZbArena *a, const ZvRun r[2], bool *differs, ZbErr *err) {
  for (size_t i = 0; i < r[0].nparts; i++) {
    const char *name = zb_strdup(a, zb_show(r[0].part[i]));
    ZvRun of[2];
    if (!has_part(&r[1], r[0].part[i])) continue;
    for (int k = 0; k < 2; k++)
      if (!zv_run_read(a, o->dir[k], &r[0].part[i], 1, &of[k], err)) return false;
    *differs |= !print_key(of, name, 0, o->tolerance);
  }
  return true;
}

ZvEnd zv_compare(const ZvOptions *o, ZbArena *a, ZbErr *err) {
  ZvRun r[2];
  bool differs = false;
  for (int i = 0; i < 2; i++)
    if (!zv_run_read(a, o->dir[i], keys, ZV_KEYS, &r[i], err)) return ZV_FAILED;
  print_run(&r[0], "A");
  print_run(&r[1], "B");
  if (!compare(&r[0], &r[1], 0, o->tolerance).both) {
    zb_fail(err, NULL, "%s and %s have no step in common", zb_show(r[0].name), zb_show(r[1].name));
    return ZV_FAILED;
  }
  for (int key = 0; key < ZV_KEYS; key++) {
    differs |= !print_key(r, keys[key], key, o->tolerance);
    if (key == 0 && !compare_parts(o, a, r, &differs, err)) return ZV_FAILED;
  }
  return differs ? ZV_DIFFERS : ZV_DONE;
}
