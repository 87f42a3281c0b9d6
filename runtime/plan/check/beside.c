/* A plan in the arena of another: the two are played in turns. So between two steps of one the other may have
 * written everywhere but into what the first keeps from step to step, and reads of that its parameters. */
#include "runtime/plan/check/check.h"

#include <string.h>

/* ---- the same parameters ------------------------------------------------------------------------------- */
static bool same_slice(const ZpSlice *x, const ZpSlice *y) {
  bool same =
      x->param == y->param && x->at == y->at && x->n == y->n && x->takes == y->takes && x->naxes == y->naxes;
  for (int i = 0; same && i < x->naxes; i++) same = x->axis[i] == y->axis[i] && x->size[i] == y->size[i];
  return same;
}

static bool same_bucket(const ZpBucket *x, const ZpBucket *y) {
  bool same = x->elems == y->elems && x->shard == y->shard && x->nslices == y->nslices &&
              x->gathers == y->gathers && x->frozen == y->frozen && x->elem == y->elem;
  for (uint32_t i = 0; same && i < x->nslices; i++) same = same_slice(&x->slices[i], &y->slices[i]);
  return same;
}

static bool same_stage(const ZpStage *x, const ZpStage *y) {
  bool same = x->nheld == y->nheld;
  for (uint32_t h = 0; same && h < x->nheld; h++)
    same = x->held[h].bucket == y->held[h].bucket && x->held[h].iter == y->held[h].iter;
  return same;
}

static bool same_parameters(const Check *c) {
  const ZpPlan *p = c->p, *q = p->asked.eval_of;
  bool same = p->asked.forward_only && (!q->asked.forward_only || (q->admits && p->admits)) &&
              (p->stream ? p->given == q->given : p->model == q->model) &&
              p->layout.mesh.nranks == q->layout.mesh.nranks &&
              p->programs.nbuckets == q->programs.nbuckets && p->programs.nstages == q->programs.nstages;
  for (uint32_t b = 0; same && b < p->programs.nbuckets; b++)
    same = same_bucket(&p->programs.buckets[b], &q->programs.buckets[b]);
  for (uint32_t s = 0; same && s < p->programs.nstages; s++)
    same = same_stage(&p->programs.stages[s], &q->programs.stages[s]);
  return same || zb_fail(c->err, NULL, "the two plans of one arena do not hold the same parameters");
}

/* ---- the same places ----------------------------------------------------------------------------------- */
static bool is_kept(const ZpBuf *b) {
  return b->kind == ZP_B_PARAM || b->kind == ZP_B_STATE || b->kind == ZP_B_SCALARS ||
         b->kind == ZP_B_SNAPSHOT; /* which is written while others go on */
}

/* That buffer is the other plan's of its kind: parameters, and the engine's own numbers. */
static bool is_shared(const ZpBuf *b, const ZpBuf *theirs) {
  return b->kind == theirs->kind && b->kind != ZP_B_STATE && b->kind != ZP_B_SNAPSHOT &&
         b->pool == theirs->pool && b->index == theirs->index && b->offset == theirs->offset &&
         b->bytes <= theirs->bytes;
}

static bool overlap(const ZpBuf *x, const ZpBuf *y) {
  return x->memory == y->memory && x->bytes && y->bytes && x->offset < y->offset + y->bytes &&
         y->offset < x->offset + x->bytes;
}

static bool places_fit(const Check *c, uint32_t s) {
  const ZpProgram *g = &c->p->programs.stages[s].prog,
                  *theirs = &c->p->asked.eval_of->programs.stages[s].prog;
  for (uint32_t b = 0; b < g->nbufs; b++) {
    bool shared = false;
    for (uint32_t k = 0; k < theirs->nbufs; k++) {
      const ZpBuf *x = &theirs->bufs[k];
      if (!is_kept(x) || !overlap(&g->bufs[b], x)) continue;
      if (!is_shared(&g->bufs[b], x))
        return zb_fail(c->err, NULL, "stage %u: %s lies over what the other plan of the arena keeps", s,
                       zp_say_buf(c, s, b));
      shared = true;
    }
    bool own = c->p->stream && g->bufs[b].kind == ZP_B_SCALARS; /* of steps without losses */
    if (is_kept(&g->bufs[b]) && g->bufs[b].bytes && !shared && !own)
      return zb_fail(c->err, NULL, "stage %u: %s is not where the other plan of the arena has it", s,
                     zp_say_buf(c, s, b));
  }
  return true;
}

bool zp_check_beside(const Check *c) {
  if (!same_parameters(c)) return false;
  for (uint32_t s = 0; s < c->p->programs.nstages; s++)
    if (!places_fit(c, s)) return false;
  return true;
}
