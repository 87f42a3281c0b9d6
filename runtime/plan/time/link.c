/* Collectives as pipelined rings: every rank sends (n - 1) / n of the tensor to its neighbour, in steps.
 *
 * A ring enters and leaves every member of a level once. So of a group with k ranks in each node, k links of
 * the node work for it: groups beside it, of the other ranks of the node, use the other links. A step inside
 * a node is sooner than one to another node; nodes - 1 of the n - 1 steps are between nodes. */
#include "runtime/plan/time/internal.h"

#include <math.h>

ZpPlace zp_place(const ZlCluster *c, const int64_t *device, int64_t n) {
  ZpPlace at = {.n = n};
  int64_t size = 1; /* devices of a member of the level */
  for (at.level = 0; at.level < c->nlevels && at.level < ZP_MOST_LEVELS; at.level++) {
    size *= c->levels[at.level].size;
    for (int64_t i = 0; i < n; i++) at.units[at.level] += !i || device[i] / size != device[i - 1] / size;
    if (at.units[at.level] == 1) return at;
  }
  at.level--; /* larger than the cluster, which others report: its outermost links */
  return at;
}

ZpPlace zp_place_of_dim(const ZlCluster *c, int64_t n, int64_t stride) {
  ZpPlace at = {.n = n};
  int64_t size = 1;
  for (at.level = 0; at.level < c->nlevels && at.level < ZP_MOST_LEVELS; at.level++) {
    size *= c->levels[at.level].size;
    at.units[at.level] = stride >= size ? n : (n - 1) * stride / size + 1;
    if (at.units[at.level] == 1) return at;
  }
  at.level--;
  return at;
}

/* Members of level l within which (outside which) the group is whole; those of level -1 are its devices. */
static int64_t units_below(const ZpPlace *at, uint32_t level) { return level ? at->units[level - 1] : at->n; }

/* Bytes a second that a rank sends in a ring. */
static double ring_rate(const ZlCluster *c, const ZpPlace *at) {
  double rate = INFINITY;
  for (uint32_t l = 0; l <= at->level; l++) {
    double links = (double)at->n / (double)units_below(at, l);
    rate = fmin(rate, links * c->levels[l].bandwidth);
  }
  return rate;
}

static double ring_rate_of(const ZlCluster *c, int op, const ZpPlace *at) {
  const ZlLevel *l = &c->levels[at->level];
  double n = (double)at->n, nodes = (double)units_below(at, at->level), near = n / nodes;
  if (op == ZG_OP_ALL_REDUCE && near == 1 && l->sums > 0) return l->sums;
  /* Each rank has a part for every other, of which n - near are outside: those alone take the outer links. */
  if (op == ZG_OP_ALL_TO_ALL && at->level > 0)
    return fmin(c->levels[0].bandwidth, l->bandwidth * n / (n - near));
  return ring_rate(c, at);
}

/* Returns the latency of one pass: as a ring, step by step; as a tree, over the members of each level but the
 * innermost. */
static double ring_latency(const ZlCluster *c, const ZpPlace *at) {
  double sum = 0;
  for (uint32_t l = 0; l <= at->level; l++) {
    int64_t after = l == at->level ? 1 : at->units[l];
    sum += (double)(units_below(at, l) - after) * c->levels[l].latency;
  }
  return sum;
}
static double tree_latency(const ZlCluster *c, const ZpPlace *at) {
  double sum = 0;
  for (uint32_t l = 0; l <= at->level; l++) {
    double below = (double)units_below(at, l), after = l == at->level ? 1 : (double)at->units[l];
    sum += (l ? log2(below / after) : (below - after) / after) * c->levels[l].latency;
  }
  return sum;
}

static double filling(const ZlLevel *l, double moving) { return moving + 2 * sqrt(l->ramp * moving); }

double zp_collective_seconds(const ZlCluster *c, int op, double bytes, const ZpPlace *at) {
  if (at->n < 2 || bytes == 0) return 0;
  const ZlLevel *l = &c->levels[at->level];
  double wire = bytes * (double)(at->n - 1) / (double)at->n, latency = ring_latency(c, at);
  if (op == ZG_OP_ALL_REDUCE) { /* a reduce-scatter and an all-gather */
    wire *= 2;
    latency = 2 * fmin(latency, tree_latency(c, at));
  }
  return l->start + latency + filling(l, wire / ring_rate_of(c, op, at));
}

double zp_transfer_seconds(const ZlCluster *c, double bytes, const ZpPlace *at) {
  const ZlLevel *l = &c->levels[at->level];
  return bytes > 0 ? l->start + l->latency + filling(l, bytes / l->bandwidth) : 0;
}
