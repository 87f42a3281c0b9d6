/* Rewriting node lists: see rewrite.h. */
#include "runtime/plan/local/rewrite.h"

#include <string.h>

void zp_find_makers(const ZpNode *nodes, uint32_t n, uint32_t *maker) {
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < nodes[i].call.nout; k++) maker[nodes[i].out[k]] = i;
}

/* The tables of a list as it is now. */
static void begin_list(ZpRewrite *r) {
  if (!r->maker || r->s->nvalues > r->nvalues)
    r->nvalues = r->s->nvalues, r->maker = ZB_NEWN(r->tmp, uint32_t, r->nvalues + 1);
  memset(r->dropped, 0, r->n * sizeof *r->dropped);
  memset(r->behind, 0, r->n * sizeof *r->behind);
  memset(r->maker, 0xff, r->nvalues * sizeof *r->maker);
  zp_find_makers(r->nodes, r->n, r->maker);
}

void zp_rewrite_begin(ZpRewrite *r, ZpBuild *b, ZpSegment *s, ZpPhase phase, const bool *needed_later) {
  ZpList *l = &s->list[phase];
  *r =
      (ZpRewrite){.b = b, .s = s, .phase = phase, .nodes = l->nodes, .n = l->n, .needed_later = needed_later};
  r->tmp = zb_arena_new();
  r->dropped = ZB_NEWN(r->tmp, bool, l->n + 1);
  r->behind = ZB_NEWN(r->tmp, ZpNode *, l->n + 1);
  begin_list(r);
}

void zp_rewrite_end(ZpRewrite *r) {
  r->s->list[r->phase].nodes = r->nodes, r->s->list[r->phase].n = r->n;
  zb_arena_free(r->tmp);
}

void zp_set_nodes(ZpRewrite *r, ZpNode *nodes, uint32_t n) {
  ZB_ASSERT(n <= r->n);
  r->nodes = nodes, r->n = n;
  begin_list(r);
}

/* ---- changes ---- */
void zp_replace(ZpRewrite *r, uint32_t i, const ZpNode *by) {
  r->nodes[i] = *by;
  for (int k = 0; k < by->call.nout; k++) r->maker[by->out[k]] = i;
}

void zp_put_behind(ZpRewrite *r, uint32_t i, const ZpNode *rest) {
  r->behind[i] = ZB_NEW(r->tmp, ZpNode);
  *r->behind[i] = *rest;
}

void zp_compact(ZpRewrite *r) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < r->n; i++) {
    if (!r->dropped[i]) r->nodes[kept++] = r->nodes[i];
    if (r->behind[i]) r->nodes[kept++] = *r->behind[i];
    ZB_ASSERT(kept <= i + 1);
  }
  r->n = kept;
  begin_list(r);
}

/* ---- questions ---- */
bool zp_results_free(const ZpRewrite *r, const ZpNode *n) {
  for (int k = 0; k < n->call.nout; k++) {
    uint8_t elem = zp_value(r, n->out[k])->elem;
    if ((elem != ZK_F32 && elem != ZK_BF16) || !zp_unplaced(r, n->out[k])) return false;
  }
  return true;
}

static bool reads(const ZpRewrite *r, uint32_t i, uint32_t value) {
  return !r->dropped[i] && (zp_reads(&r->nodes[i], value) || (r->behind[i] && zp_reads(r->behind[i], value)));
}

bool zp_read_between(const ZpRewrite *r, uint32_t from, uint32_t to, uint32_t value) {
  for (uint32_t i = from + 1; i < to; i++)
    if (reads(r, i, value)) return true;
  return false;
}

bool zp_collective_between(const ZpRewrite *r, uint32_t from, uint32_t to) {
  for (uint32_t i = from + 1; i < to; i++)
    if (r->nodes[i].dims && !r->dropped[i]) return true;
  return false;
}

bool zp_read_elsewhere(const ZpRewrite *r, uint32_t from, uint32_t reader, uint32_t value) {
  return r->needed_later[value] || zp_read_between(r, from, reader, value) ||
         zp_read_between(r, reader, r->n, value);
}

bool zp_made_before(const ZpRewrite *r, uint32_t value, uint32_t i) {
  uint32_t m = r->maker[value];
  return m == ZP_NONE || m < i || zg_op_info[r->nodes[m].call.op].kind == ZG_SOURCE;
}

bool zp_adds_to_gradient(const ZpRewrite *r, const ZpNode *n, ZgOp op) {
  return n->call.op == op && n->call.accumulate && !n->call.pointwise && !n->dims &&
         zp_value(r, n->out[0])->at.space == ZP_AT_GRAD;
}

bool zp_begin_together(const ZpRewrite *r, uint32_t x, uint32_t y) {
  const ZpBucket *buckets = r->b->p->programs.buckets;
  const ZpBucket *a = &buckets[r->s->buckets[zp_value(r, x)->at.index]];
  const ZpBucket *b = &buckets[r->s->buckets[zp_value(r, y)->at.index]];
  bool same_users = a->nusers == b->nusers && !memcmp(a->users, b->users, a->nusers * sizeof *a->users);
  return a->segment == b->segment && same_users && zp_stages_grads(a) == zp_stages_grads(b);
}

bool zp_supported(const ZpRewrite *r, ZpNode *n) {
  zp_views(r->b->p, r->s, n);
  return r->b->o->supports(&n->call);
}
