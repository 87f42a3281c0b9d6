/* Collectives over groups of ranks, by size; and what computation loses beside one. */
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>

enum { SMALL = 64, MIDDLE = 256 << 10, LARGE = 16 << 20 }; /* bytes of a whole tensor */

typedef struct {
  const ZxMeasure *m;
  ZxGroup group; /* -1: this rank is in none */
  char *part, *whole;
} Link;

typedef enum { GATHER, SUMS, MESSAGE } Kind;

static void exchange(const Link *l, Kind kind, size_t bytes) {
  ZxComm *c = l->m->c;
  if (kind == GATHER) {
    size_t part = bytes / (size_t)c->t->group_size(c, l->group);
    c->t->wait(c, c->t->all_gather(c, l->group, l->part, part, l->whole));
  } else c->t->wait(c, c->t->all_reduce(c, l->group, l->whole, bytes / 4, ZX_F32, ZX_SUM));
}

/* The least of some rounds; of all ranks the most. Ranks of no group wait. */
static double time_exchange(const Link *l, Kind kind, size_t bytes) {
  double least = INFINITY;
  int n = bytes > MIDDLE ? 3 : 50;
  for (int round = 0; round < 5; round++) {
    l->m->c->t->barrier(l->m->c);
    double from = zb_now();
    for (int i = 0; i < n && l->group >= 0; i++) exchange(l, kind, bytes);
    if (round && (zb_now() - from) / n < least) least = (zb_now() - from) / n; /* the first sets up */
  }
  return zx_measured(l->m, l->group >= 0 ? least : 0);
}

/* One way of a message between the first two of a group; peer < 0: this rank is neither. */
static double time_message(const Link *l, int peer, bool first) {
  ZxComm *c = l->m->c;
  double least = INFINITY;
  for (int round = 0; round < 5; round++) {
    c->t->barrier(c);
    double from = zb_now();
    for (int i = 0; i < 50 && peer >= 0; i++)
      for (int way = 0; way < 2; way++) {
        bool sends = (way == 0) == first;
        c->t->wait(c,
                   sends ? c->t->send(c, l->part, SMALL, peer, 0) : c->t->recv(c, l->whole, SMALL, peer, 0));
      }
    if ((zb_now() - from) / 100 < least) least = (zb_now() - from) / 100;
  }
  return zx_measured(l->m, peer >= 0 ? least : 0);
}

/* Of t = fixed + x + 2 sqrt(ramp x), x = moved / rate, of two sizes one `times` as large as the other. */
static void fit(double middle, double large, double times, double moved, double *rate, double *ramp) {
  double root = sqrt(times), x = (large - root * middle) / (times - root);
  if (!(x > 0) || x > middle) x = large / times;
  double q = (middle - x) / sqrt(x);
  *rate = moved / x;
  *ramp = fmax(1e-9, q > 0 ? q * q / 4 : 0);
}

static ZxLinkRates measure(Link *l, int size, int peer, bool first) {
  ZxLinkRates r = {.size = size};
  if (size < 2) return r;
  double n = size, gather[3], sums[3], message = time_message(l, peer, first), nothing;
  const size_t bytes[] = {SMALL * 16, MIDDLE, LARGE};
  for (int i = 0; i < 3; i++) {
    size_t whole = bytes[i] / (size_t)(4 * size) * (size_t)(4 * size);
    gather[i] = time_exchange(l, GATHER, whole);
    sums[i] = time_exchange(l, SUMS, whole);
  }
  double pass = MIDDLE * (n - 1) / n, times = (double)LARGE / MIDDLE;
  r.latency = fmax(1e-8, (sums[0] - message) / (2 * n - 3));
  r.start = fmax(1e-8, message - r.latency);
  double fixed = r.start + (n - 1) * r.latency;
  fit(fmax(1e-9, gather[1] - fixed), fmax(2e-9, gather[2] - fixed), times, pass, &r.link, &r.ramp);
  fixed += (n - 1) * r.latency;
  fit(fmax(1e-9, sums[1] - fixed), fmax(2e-9, sums[2] - fixed), times, 2 * pass, &r.sums, &nothing);
  return r;
}

static double number(const ZxMeasure *m, double x, ZxReduce op) {
  m->c->t->wait(m->c, m->c->t->all_reduce(m->c, 0, &x, 1, ZX_F64, op));
  return x;
}

/* Ranks of the node, ascending. */
static int near(const ZxMeasure *m, int *peer, bool *first) {
  ZxComm *c = m->c;
  int rank = c->t->rank(c), size = c->t->size(c), n = 0, at = 0, other[2] = {-1, -1};
  const int *node = c->t->nodes(c);
  for (int i = 0; i < size; i++) {
    if (node[i] != node[rank]) continue;
    if (i == rank) at = n;
    if (n < 2) other[n] = i;
    n++;
  }
  *first = at == 0;
  *peer = n > 1 && at < 2 ? other[1 - at] : -1;
  return n;
}

static int far(const ZxMeasure *m, int *peer, bool *first) {
  ZxComm *c = m->c;
  int rank = c->t->rank(c), size = c->t->size(c), n = 0, at = -1, leader[2] = {-1, -1};
  const int *node = c->t->nodes(c);
  for (int i = 0; i < size; i++) {
    if (node[i] != i) continue;
    if (i == rank) at = n;
    if (n < 2) leader[n] = i;
    n++;
  }
  *first = at == 0;
  *peer = n > 1 && (at == 0 || at == 1) ? leader[1 - at] : -1;
  return n;
}

void zx_measure_links(const ZxMeasure *m, ZxLinkRates level[2]) {
  ZxComm *c = m->c;
  int rank = c->t->rank(c), peer;
  const int *node = c->t->nodes(c);
  bool first;
  Link l = {.m = m, .part = calloc(1, LARGE), .whole = calloc(1, LARGE)};
  if (!l.part || !l.whole) zb_out_of_memory(LARGE);
  int size = (int)number(m, near(m, &peer, &first), ZX_MAX);
  l.group = c->t->split(c, node[rank]);
  level[0] = measure(&l, size, peer, first);
  size = far(m, &peer, &first);
  l.group = c->t->split(c, node[rank] == rank ? 0 : -1);
  level[1] = measure(&l, size, peer, first);
  free(l.part);
  free(l.whole);
}

/* As the engine does: between calls it looks whether the collective has got on. */
static double beside(const ZxMeasure *m, const ZxProduct *w, int calls, float *sums) {
  ZxComm *c = m->c;
  c->t->barrier(c);
  double from = zb_now();
  ZxRequest r = sums ? c->t->all_reduce(c, 0, sums, LARGE / 4, ZX_F32, ZX_SUM) : -1;
  bool open = r >= 0;
  for (int i = 0; i < calls; i++) {
    m->d->run(m->env, &w->call);
    if (open && c->t->test(c, r)) open = false;
  }
  if (open) c->t->wait(c, r);
  return zx_measured(m, zb_now() - from);
}

double zx_measure_steal(const ZxMeasure *m) {
  ZxProduct w = {0};
  ZbErr err;
  float *sums = calloc(1, LARGE);
  if (!sums) zb_out_of_memory(LARGE);
  if (m->c->t->size(m->c) < 2 || !zx_product_new(m, 128, 128, 128, ZK_F32, &w, &err)) return free(sums), 0;
  double alone = INFINITY, both = INFINITY, sent = INFINITY;
  beside(m, &w, 1, sums);
  for (int i = 0; i < 4; i++) sent = fmin(sent, beside(m, &w, 0, sums));
  double one = beside(m, &w, 20, NULL) / 20;
  int calls = (int)fmin(1e6, 1 + 2 * sent / one); /* twice as long as the collective */
  for (int i = 0; i < 4; i++)
    alone = fmin(alone, beside(m, &w, calls, NULL)), both = fmin(both, beside(m, &w, calls, sums));
  zx_product_free(m, &w);
  free(sums);
  double lost = fmin(.95, fmax(.01, (both - alone) / sent));
  return lost / (1 - lost);
}
