/* All recipes of a space: what fits by the ledger's formula, ranked by the formula of time. */
#include "runtime/plan/search/internal.h"

#include <string.h>

/* ---- layouts that people know --------------------------------------------------------------------------- */
#define D(NAME) (1u << DIM_##NAME)
const Kind kinds[] = {{"data", D(DATA), 0, 0},
                      {"data, ZeRO-1", D(DATA), 1, 1},
                      {"data, ZeRO-3 (FSDP)", D(DATA), 3, 3},
                      {"data, ZeRO-3 within replicas (HSDP)", D(DATA) | D(REPLICA), 3, 3},
                      {"data and tensor, ZeRO-0 or 1", D(DATA) | D(TENSOR), 0, 1},
                      {"data and tensor, ZeRO-3", D(DATA) | D(TENSOR), 3, 3},
                      {"data and pipe, ZeRO-0 or 1", D(DATA) | D(PIPE), 0, 1},
                      {"data, tensor and pipe, ZeRO-0 or 1", D(DATA) | D(TENSOR) | D(PIPE), 0, 1}};
const uint32_t nkinds = sizeof kinds / sizeof *kinds;

static bool is_of(const Kind *k, const Candidate *c) {
  for (int d = 0; d < DIMS; d++)
    if ((c->size[d] > 1) != (k->dims >> d & 1)) return false;
  return c->zero >= k->least && c->zero <= k->most;
}

/* ---- the best ------------------------------------------------------------------------------------------- */
/* Faster; of the same time, with less memory. */
static bool before(const Candidate *a, const Candidate *b) {
  return a->seconds != b->seconds ? a->seconds < b->seconds : a->bytes < b->bytes;
}

static void keep_best(Weighed *w, const Candidate *c) {
  if (w->nbest == w->most && !before(c, &w->best[w->nbest - 1])) return;
  uint32_t at = w->nbest < w->most ? w->nbest++ : w->nbest - 1;
  for (; at && before(c, &w->best[at - 1]); at--) w->best[at] = w->best[at - 1];
  w->best[at] = *c;
}

static void keep_known(Weighed *w, const Candidate *c, bool fits) {
  for (uint32_t k = 0; k < nkinds; k++) {
    if (!is_of(&kinds[k], c)) continue;
    Candidate *fastest = &w->fastest[k], *smallest = &w->smallest[k];
    if (fits && (!fastest->size[0] || before(c, fastest))) *fastest = *c;
    if (!smallest->size[0] || c->bytes < smallest->bytes) *smallest = *c;
  }
}

typedef struct {
  const Space *x;
  Layouts *all;
  Weighed *w;
  bool only_memory;
} Walk;

/* Whether it would not even fit if so many samples kept no more than one does: not worth making its layout. */
static bool hopeless(const Walk *k, const Candidate *c) {
  if (c->micro == 1) return false;
  const Layout *l = layout_of(k->all, c->size[DIM_TENSOR], c->other, 1, c->set);
  return l->refused || memory_of(k->x, c, l, layout_stages(k->x, l, c->size[DIM_PIPE])) > k->x->limit;
}

/* Of those that weigh alike but for how ranks of data are grouped, the best goes on. */
static void weigh_one(Walk *k, Candidate c, const Layout *l, const Stages *s, Candidate *best) {
  const Space *x = k->x;
  Weighed *w = k->w;
  w->recipes++;
  c.bytes = memory_of(x, &c, l, s);
  bool fits = c.bytes <= x->limit;
  w->fit += fits;
  if (!w->nearest.size[0] || c.bytes < w->nearest.bytes) w->nearest = c;
  if (k->only_memory) return;
  if (fits) {
    c.seconds = closed_seconds(x, &c, l, s);
    if (!best->size[0] || before(&c, best)) *best = c;
  }
  keep_known(w, &c, fits);
}

static bool done(const Walk *k) { return k->only_memory && k->w->fit; }

/* ---- dimensions ----------------------------------------------------------------------------------------- */
static bool allowed(const Space *x, Dim k, int64_t size) {
  return x->given[k] > 0 ? x->given[k] == size : size == 1 || x->given[k] == 0;
}

/* What the recipe shards. */
static void give_zero(const Space *x, Candidate *c) {
  c->zero = 0;
  for (uint32_t i = 0; i < x->base->nshards && c->size[DIM_DATA] > 1; i++) {
    unsigned what = x->base->shards[i].what;
    c->zero = what & ZL_SHARD_PARAMS ? 3 : what & ZL_SHARD_GRADS ? 2 : 1;
    c->keep = x->base->shards[i].keep;
  }
}

/* Ways in which so many ranks take samples: replicas of groups that shard, and what they shard. Without
 * sharding a replica is no different. */
static void weigh_groups(Walk *k, Candidate c, int64_t ways, const Layout *l, const Stages *s) {
  const Space *x = k->x;
  Candidate best = {0};
  for (int64_t data = ways; data >= 1; data--) {
    if (ways % data || !allowed(x, DIM_DATA, data) || !allowed(x, DIM_REPLICA, ways / data)) continue;
    c.size[DIM_DATA] = data;
    c.size[DIM_REPLICA] = ways / data;
    if (!x->free_shard) give_zero(x, &c);
    if (c.zero && data == 1) continue;
    weigh_one(k, c, l, s, &best);
    if (!c.zero) break;
  }
  if (best.size[0]) keep_best(k->w, &best);
}

static void weigh_zero(Walk *k, Candidate c, int64_t ways, const Layout *l, const Stages *s) {
  for (int z = 0; z <= (k->x->free_shard ? 4 : 0); z++) {
    c.zero = (uint8_t)(z > 3 ? 3 : z);
    c.keep = z == 4;
    weigh_groups(k, c, ways, l, s);
  }
}

static void weigh_micro(Walk *k, Candidate c, int64_t ways) {
  const Space *x = k->x;
  int64_t each = x->batch ? x->batch / ways : 1;
  for (c.micro = 1; c.micro <= each && c.micro <= 64; c.micro++) {
    if (each % c.micro || each / c.micro > 65535) continue;
    if (!x->free_micro && x->batch && c.micro != (x->base->micro ? x->base->micro : each)) continue;
    for (c.set = 0; c.set < x->nsets; c.set++)
      for (int other = 0; other < 2; other++) {
        c.other = other;
        if (other && (c.size[DIM_TENSOR] < 2 || !x->free_else || !x->otherwise.n)) continue;
        Candidate least = c; /* of memory, but for recomputation */
        least.size[DIM_DATA] = ways;
        least.size[DIM_REPLICA] = 1;
        least.zero = ways > 1 && x->free_shard ? 3 : 0;
        if (x->free_micro && hopeless(k, &least)) continue;
        const Layout *l = layout_of(k->all, c.size[DIM_TENSOR], c.other, c.micro, c.set);
        if (l->refused) continue;
        weigh_zero(k, c, ways, l, layout_stages(x, l, c.size[DIM_PIPE]));
        if (done(k)) return;
      }
  }
}

void weigh(const Space *x, Layouts *all, Weighed *w, bool only_memory) {
  Walk k = {x, all, w, only_memory};
  int64_t node = x->c->nlevels ? x->c->levels[0].size : 1;
  for (int64_t t = 1; t <= x->ranks; t++) {
    if (x->ranks % t || !allowed(x, DIM_TENSOR, t)) continue;
    if (x->given[DIM_TENSOR] == 0 && (t > node || space_indivisible(x, t))) continue;
    for (int64_t p = 1; p <= x->items && p <= x->ranks / t; p++) {
      int64_t ways = x->ranks / t / p;
      if (x->ranks / t % p || !allowed(x, DIM_PIPE, p) || (x->batch ? x->batch % ways : ways > 1)) continue;
      Candidate c = {.size = {p, 1, ways, t}};
      w->meshes++;
      weigh_micro(&k, c, ways);
      if (done(&k)) return;
    }
  }
}
