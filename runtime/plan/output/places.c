/* Where ranks are on a cluster, and what they send each other over links of which level. Rank r is device r:
 * the dims of the mesh that vary fastest are on neighbouring devices.
 *
 * What is sent is what explain.c adds up. A collective is a ring in the order of the group's ranks: each
 * sends to the next, over a link of the lowest level of which both are in one member. An all-to-all sends
 * each other rank an equal part, and so go rows of experts. */
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

#include <string.h>

typedef struct {
  uint16_t op;
  const char *over;
  uint32_t level;
  double *sent; /* by each rank, bytes a step */
} Flow;

typedef struct {
  const ZpPlan *p;
  const ZlCluster *c;
  ZbArena *a;
  Flow *flows;
  uint32_t nflows;
  double **sent; /* by level and rank */
} Places;

/* Returns the lowest level within one member of which both are; the outermost if they are within none. */
static uint32_t level_of(const ZlCluster *c, int64_t x, int64_t y) {
  int64_t size = 1;
  for (uint32_t l = 0; l < c->nlevels; l++) {
    size *= c->levels[l].size;
    if (x / size == y / size) return l;
  }
  return c->nlevels - 1;
}

/* Returns the rank `by` further in rank's group along `dims`, in a circle. */
static int64_t further(const ZpMesh *m, int64_t rank, ZpDims dims, int64_t by) {
  int64_t i = (zp_group_index(m, rank, dims) + by) % zp_group_size(m, dims), stride = 1;
  for (int d = m->ndims; d-- > 0; stride *= m->dim[d].size) {
    if (!(dims >> d & 1)) continue;
    rank += (i % m->dim[d].size - zp_coord(m, rank, d)) * stride;
    i /= m->dim[d].size;
  }
  return rank;
}

static int64_t next_of(const ZpPlan *p, const ZpSent *r, int64_t rank) {
  const ZpMesh *m = &p->layout.mesh;
  int64_t stage = m->pipe < 0 ? 0 : zp_coord(m, rank, m->pipe);
  if (r->op == ZP_SEND) return zp_rank_of_stage(m, rank, (stage + r->hops) % p->programs.nstages);
  if (!r->tied) return further(m, rank, r->dims, 1);
  for (uint32_t k = 0; k < r->tied->nstages; k++)
    if (r->tied->stages[k] == stage)
      return zp_rank_of_stage(m, rank, r->tied->stages[(k + 1) % r->tied->nstages]);
  return rank;
}

static Flow *flow_of(Places *x, const ZpSent *r, uint32_t level) {
  for (uint32_t i = 0; i < x->nflows; i++) {
    Flow *f = &x->flows[i];
    if (f->level == level && f->op == r->op && !strcmp(f->over, r->over)) return f;
  }
  Flow f = {r->op, r->over, level, ZB_NEWN(x->a, double, x->p->layout.mesh.nranks)};
  ZB_PUSH(x->a, x->flows, x->nflows, f);
  return &x->flows[x->nflows - 1];
}

static void add_row(Places *x, const ZpSent *r) {
  const ZpMesh *m = &x->p->layout.mesh;
  bool all_to_all = r->op == ZG_OP_ALL_TO_ALL || r->op == ZG_OP_DISPATCH || r->op == ZG_OP_COMBINE;
  int64_t others = all_to_all ? r->members - 1 : 1;
  for (int64_t rank = 0; rank < m->nranks; rank++) {
    uint32_t stage = m->pipe < 0 ? 0 : (uint32_t)zp_coord(m, rank, m->pipe);
    if (stage < r->from || stage > r->to) continue;
    for (int64_t k = 1; k <= others; k++) {
      int64_t to = all_to_all ? further(m, rank, r->dims, k) : next_of(x->p, r, rank);
      uint32_t level = level_of(x->c, rank, to);
      double bytes = zp_sent_bytes(r) / (double)others;
      flow_of(x, r, level)->sent[rank] += bytes;
      x->sent[level][rank] += bytes;
    }
  }
}

static double most_of(const Places *x, const double *sent, double *all) {
  double most = 0;
  *all = 0;
  for (int64_t r = 0; r < x->p->layout.mesh.nranks; r++) {
    *all += sent[r];
    if (sent[r] > most) most = sent[r];
  }
  return most;
}

/* ---- as text ------------------------------------------------------------------------------------------- */
static void put_range(ZbText *out, int64_t from, int64_t to) {
  zb_text_add(out, from == to ? "%lld" : "%lld-%lld", (long long)from, (long long)to);
}

/* "node 1  ranks 8-15  data 1, tensor 0-7", of the innermost level. */
static void put_nodes(const Places *x, ZbText *out) {
  enum { SHOWN = 16 };
  const ZpMesh *m = &x->p->layout.mesh;
  const ZlLevel *l = &x->c->levels[0];
  int64_t nodes = (m->nranks + l->size - 1) / l->size;
  for (int64_t k = 0; k < nodes && k < SHOWN; k++) {
    int64_t from = k * l->size, to = from + l->size < m->nranks ? from + l->size : m->nranks;
    zb_text_add(out, "%s %lld  ranks ", l->name.s, (long long)k);
    put_range(out, from, to - 1);
    for (int d = 0; d < m->ndims; d++) {
      int64_t least = m->dim[d].size, most = 0;
      for (int64_t r = from; r < to; r++) {
        int64_t at = zp_coord(m, r, d);
        if (at < least) least = at;
        if (at > most) most = at;
      }
      zb_text_add(out, "%s%s ", d ? ", " : "  ", m->dim[d].name);
      put_range(out, least, most);
    }
    zb_text_add(out, "\n");
  }
  if (nodes > SHOWN) zb_text_add(out, "... and %lld more\n", (long long)(nodes - SHOWN));
}

static void put_flows(const Places *x, ZbText *out) {
  char most[24], all[24];
  double sum;
  zb_text_add(out, "\n%-10s %-14s  %-20s %14s %14s\n", "link of", "collective", "over", "a rank sends",
              "all ranks");
  for (uint32_t l = 0; l < x->c->nlevels; l++) {
    const ZlLevel *level = &x->c->levels[l];
    for (uint32_t i = 0; i < x->nflows; i++) {
      const Flow *f = &x->flows[i];
      if (f->level != l) continue;
      zb_bytes(most, (uint64_t)most_of(x, f->sent, &sum));
      zb_text_add(out, "%-10s %-14s  %-20s %14s %14s\n", level->name.s, zp_sent_op(f->op), f->over, most,
                  zb_bytes(all, (uint64_t)sum));
    }
    double busiest = most_of(x, x->sent[l], &sum);
    if (busiest > 0)
      zb_text_add(out, "%-10s at most %s a step from one rank: %.3g ms at %.4g GB/s\n", level->name.s,
                  zb_bytes(most, (uint64_t)busiest), 1e3 * busiest / level->bandwidth,
                  level->bandwidth / 1e9);
  }
}

void zp_show_places(const ZpPlan *p, const ZlCluster *c, ZbText *out) {
  if (p->layout.mesh.nranks < 2 || !c->nlevels) return;
  ZbArena *a = zb_arena_new();
  Places x = {.p = p, .c = c, .a = a, .sent = ZB_NEWN(a, double *, c->nlevels)};
  for (uint32_t l = 0; l < c->nlevels; l++) x.sent[l] = ZB_NEWN(a, double, p->layout.mesh.nranks);
  ZpSents t = zp_sents(p, a);
  for (uint32_t i = 0; i < t.n; i++) add_row(&x, &t.rows[i]);
  zb_text_add(out, "\non cluster %s, rank r on device r, what links carry in one step\n", c->name);
  put_nodes(&x, out);
  put_flows(&x, out);
  zb_arena_free(a);
}
