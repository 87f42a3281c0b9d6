/* Where a model is cut into pipeline stages: what cannot be cut, and the cuts that leave the busiest rank
 * least to do. */
#include "runtime/plan/plan.h"

#include <float.h>
#include <string.h>

uint32_t zp_stage_items(const ZgGraph *g, ZbArena *a, const double *cost, ZpStageItem **items) {
  uint32_t n = 0, inst = 0;
  bool has_iteration = false; /* the last item */
  *items = NULL;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].trip; i++, inst++) {
      bool repeat = g->segments[s].repeat;
      if (!n || (repeat && has_iteration)) {
        ZB_PUSH(a, *items, n, ((ZpStageItem){.first = inst}));
        has_iteration = false;
      }
      (*items)[n - 1].cost += cost[s];
      has_iteration |= repeat;
    }
  return n;
}

/* Sums that differ by less are equal: they are added up in different orders. */
static bool less(double x, double y) { return x < y * (1 - 1e-12); }

/* Stage k has items cut[k] to cut[k + 1] - 1; sum[i]: of the first i items. */
typedef struct {
  const double *sum;
  uint32_t n, stages, owners;
  const uint32_t *owner; /* per stage */
  uint32_t *cut;
  double *load; /* per owner: of its stages */
} Cuts;

/* Finds the least maximum over stages, by dynamic programming over (items, stages). Of equal cuts it takes
 * the last. */
static void cut_evenly(ZbArena *a, Cuts *c) {
  uint32_t n = c->n, row = n + 1;
  double *best = ZB_NEWN(a, double, row *(c->stages + 1));
  uint32_t *from = ZB_NEWN(a, uint32_t, row * (c->stages + 1));
  for (uint32_t i = 1; i <= n; i++) best[i] = DBL_MAX;
  for (uint32_t k = 1; k <= c->stages; k++) {
    const double *before = &best[(k - 1) * row];
    for (uint32_t i = 0; i <= n; i++) {
      double least = DBL_MAX;
      for (uint32_t j = i; j-- > k - 1;) {
        double last = c->sum[i] - c->sum[j], most = before[j] > last ? before[j] : last;
        if (less(most, least)) least = most, from[k * row + i] = j;
        if (less(least, last)) break; /* the last stage only grows */
      }
      best[k * row + i] = least;
    }
  }
  for (uint32_t k = c->stages, end = n; k-- > 0;) {
    c->cut[k + 1] = end;
    end = from[(k + 1) * row + end];
  }
}

/* Returns the owner that has most; *squares: the sum over owners, which falls with every step towards
 * balance. */
static uint32_t busiest(Cuts *c, double *squares) {
  uint32_t most = 0;
  memset(c->load, 0, c->owners * sizeof *c->load);
  for (uint32_t k = 0; k < c->stages; k++) c->load[c->owner[k]] += c->sum[c->cut[k + 1]] - c->sum[c->cut[k]];
  *squares = 0;
  for (uint32_t o = 0; o < c->owners; o++) {
    *squares += c->load[o] * c->load[o];
    if (c->load[o] > c->load[most]) most = o;
  }
  return most;
}

/* Stage `from` has one item less and `to` one more; those between move on by one. */
static void shift(Cuts *c, uint32_t from, uint32_t to) {
  for (uint32_t k = from + 1; k <= to; k++) c->cut[k]--;
  for (uint32_t k = to + 1; k <= from; k++) c->cut[k]++;
}

/* Takes the best of all shifts from a stage of the owner that has most. False: none is better. */
static bool relieve(Cuts *c) {
  double squares, least_squares;
  uint32_t most = busiest(c, &least_squares), best_from = 0, best_to = 0;
  double least = c->load[most];
  for (uint32_t from = 0; from < c->stages; from++)
    for (uint32_t to = 0; to < c->stages && c->owner[from] == most; to++) {
      if (c->cut[from + 1] - c->cut[from] < 2 || from == to) continue;
      shift(c, from, to);
      double load = c->load[busiest(c, &squares)];
      shift(c, to, from);
      if (!less(load, least) && (less(least, load) || !less(squares, least_squares))) continue;
      least = load, least_squares = squares, best_from = from, best_to = to;
    }
  if (best_from == best_to) return false;
  shift(c, best_from, best_to);
  return true;
}

double zp_cut_stages(const ZpStageItem *items, uint32_t n, uint32_t stages, const uint32_t *owner,
                     bool first_least, int64_t *counts) {
  ZbArena *a = zb_arena_new();
  double *sum = ZB_NEWN(a, double, n + 1), squares;
  uint32_t *owner_of = ZB_NEWN(a, uint32_t, stages);
  Cuts c = {.sum = sum, .n = n, .stages = stages, .owner = owner_of, .cut = ZB_NEWN(a, uint32_t, stages + 1)};
  for (uint32_t i = 0; i < n; i++) sum[i + 1] = sum[i] + items[first_least ? n - 1 - i : i].cost;
  for (uint32_t k = 0; k < stages; k++) {
    uint32_t at = first_least ? stages - 1 - k : k;
    owner_of[k] = owner ? owner[at] : at;
    if (owner_of[k] >= c.owners) c.owners = owner_of[k] + 1;
  }
  c.load = ZB_NEWN(a, double, c.owners);
  cut_evenly(a, &c);
  while (c.owners < stages && relieve(&c))
    ;
  for (uint32_t k = 0; k < stages; k++) counts[first_least ? stages - 1 - k : k] = c.cut[k + 1] - c.cut[k];
  double most = c.load[busiest(&c, &squares)];
  zb_arena_free(a);
  return most;
}
