/* All recipes of a space: what fits by the ledger's formula, ranked by the formula of time.
 *
 * * What a recipe weighs depends on its local programs, and making one of these takes as long as weighing
 * some hundred recipes. So recipes are taken by families: those of one mesh and one size of micro-batch,
 * which differ in what is recomputed and in what is sharded. Nothing is faster than the family's without any
 * recomputation, whether that fits or not, and nothing takes less than what most recomputation leaves.
 * Families come in the order of that least time, and those at the end that cannot be among the best are only
 * counted. */
#include "runtime/plan/search/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best ------------------------------------------------------------------------------------------- */
/* Faster; of the same time, with less memory. */
static bool before(const Candidate *a, const Candidate *b) {
  return a->seconds != b->seconds ? a->seconds < b->seconds : a->bytes < b->bytes;
}

/* They differ in what is recomputed: of these a few are listed, so that others are seen, too. */
enum { ALIKE = 2 };
static bool same_mesh(const Candidate *a, const Candidate *b) {
  bool same = a->micro == b->micro && a->zero == b->zero && a->keep == b->keep && a->other == b->other;
  return same && a->way == b->way && !memcmp(a->size, b->size, sizeof a->size);
}

static void keep_faster(Candidate *best, const Candidate *c) {
  if (!best->size[0] || before(c, best)) *best = *c;
}

static void drop(Weighed *w, uint32_t at) {
  memmove(&w->best[at], &w->best[at + 1], (--w->nbest - at) * sizeof *w->best);
}

static void keep_best(Weighed *w, const Candidate *c) {
  uint32_t alike = 0, last = 0;
  for (uint32_t i = 0; i < w->nbest; i++)
    if (same_mesh(c, &w->best[i])) alike++, last = i;
  if (alike == ALIKE && !before(c, &w->best[last])) return;
  if (alike == ALIKE) drop(w, last);
  if (w->nbest == w->most && !before(c, &w->best[w->nbest - 1])) return;
  uint32_t at = w->nbest < w->most ? w->nbest++ : w->nbest - 1;
  for (; at && before(c, &w->best[at - 1]); at--) w->best[at] = w->best[at - 1];
  w->best[at] = *c;
}

/* ---- the best of each set of dims ------------------------------------------------------------------------ */
/* The formula errs alike for recipes that are alike. So of each set of dims with more than one rank the
 * fastest is simulated, too, unless the formula says that it takes so many times as long as the best. */
#define ERRS 1.3

static uint32_t dims_of(const Candidate *c) {
  uint32_t set = 0;
  for (int k = 0; k < DIMS; k++) set |= (uint32_t)(c->size[k] > 1) << k;
  return set;
}

static bool far_from_best(const Weighed *w, double seconds) {
  return w->nbest && seconds > ERRS * w->best[0].seconds;
}

/* Appends them, but those of which a recipe that is as fast is there. */
static void add_of_dims(Weighed *w) {
  for (uint32_t i = 0; i < SETS_OF_DIMS; i++) {
    const Candidate *c = &w->of_dims[i];
    bool there = !c->size[0] || far_from_best(w, c->seconds);
    for (uint32_t k = 0; k < w->nbest; k++) there |= dims_of(&w->best[k]) == i && !before(c, &w->best[k]);
    if (!there) w->best[w->nbest++] = *c;
  }
}

/* ---- a recipe ------------------------------------------------------------------------------------------- */
typedef struct {
  const Space *x;
  Layouts *all;
  Weighed *w;
  const int64_t *size; /* what divides the ranks, ascending: no dim has another size */
  uint32_t nsizes;
} Walk;

/* Called for each way to shard and to group. */
typedef void Each(Walk *k, Candidate c, const Layout *l, const Stages *s, void *to);

static void weigh_one(Walk *k, Candidate c, const Layout *l, const Stages *s, void *to) {
  const Space *x = k->x;
  Candidate *best = to; /* of those that weigh alike but for how ranks of data are grouped */
  Weighed *w = k->w;
  w->weighed++;
  c.bytes = memory_of(x, &c, l, s, 1);
  bool fits = c.bytes <= x->limit;
  w->fit += fits;
  if (!w->nearest.size[0] || c.bytes < w->nearest.bytes) w->nearest = c;
  if (!fits) return;
  c.seconds = closed_seconds(x, &c, l, s);
  keep_faster(best, &c);
  keep_faster(&w->of_dims[dims_of(&c)], &c);
}

/* ---- what is sharded, and how ranks are grouped ---------------------------------------------------------- */
static bool allowed(const Space *x, Dim k, int64_t size) {
  return x->given[k] > 0 ? x->given[k] == size : size == 1 || x->given[k] == 0;
}

/* Gives the candidate what the recipe shards. */
static void give_zero(const Space *x, Candidate *c) {
  c->zero = 0;
  for (uint32_t i = 0; i < x->base->nshards; i++) {
    unsigned what = x->base->shards[i].what;
    c->zero = what & ZL_SHARD_PARAMS ? 3 : what & ZL_SHARD_GRADS ? 2 : 1;
    c->keep = x->base->shards[i].keep;
  }
  if (space_shards(x, c, ~0u) < 2) c->zero = 0, c->keep = false;
}

/* Ways in which so many ranks take samples: replicas of groups that shard, and what they shard. Without
 * sharding a replica is no different. */
static void each_group(Walk *k, Candidate c, const Layout *l, const Stages *s, Each *each, void *to) {
  const Space *x = k->x;
  int64_t ways = space_samples(&c) / c.size[DIM_EP];
  for (uint32_t i = k->nsizes; i-- > 0;) {
    int64_t data = k->size[i];
    if (ways % data || !allowed(x, DIM_DATA, data) || !allowed(x, DIM_REPLICA, ways / data)) continue;
    c.size[DIM_DATA] = data;
    c.size[DIM_REPLICA] = ways / data;
    if (!x->free_shard) give_zero(x, &c);
    if (c.zero && space_shards(x, &c, ~0u) < 2) continue;
    each(k, c, l, s, to);
    if (!c.zero) break;
  }
}

/* c.size[DIM_DATA]: all ranks that take samples but those of ep. */
static void each_zero(Walk *k, Candidate c, const Layout *l, Each *each, void *to) {
  const Stages *s = layout_stages(k->x, l, c.size[DIM_PIPE]);
  for (int z = 0; z <= (k->x->free_shard ? 4 : 0); z++) {
    Candidate best = {0};
    c.zero = (uint8_t)(z > 3 ? 3 : z);
    c.keep = z == 4;
    each_group(k, c, l, s, each, to ? to : &best);
    if (!to && best.size[0]) keep_best(k->w, &best);
  }
}

/* ---- families ------------------------------------------------------------------------------------------- */
typedef struct {
  Candidate c;      /* its mesh and micro-batch, all ranks that take samples in data */
  double seconds;   /* nothing of it is faster */
  uint64_t recipes; /* that it has */
} Family;

static bool may_be_other(const Space *x, const Candidate *c, int other) {
  return !other || (c->size[DIM_TENSOR] > 1 && x->free_else && x->otherwise.n);
}

typedef struct {
  Family *f;
  const Layout
      *smallest; /* what most recomputation leaves of one sample, which at least so many bytes take */
  double scale;  /* bytes that depend on a micro-batch, over that */
} Bound;

static void count_one(Walk *k, Candidate c, const Layout *l, const Stages *s, void *to) {
  (void)c, (void)l, (void)s;
  ((Bound *)to)->f->recipes += k->x->nsets;
}

static void bound_one(Walk *k, Candidate c, const Layout *l, const Stages *s, void *to) {
  Bound *b = to;
  const Layout *m = b->smallest;
  if (memory_of(k->x, &c, m, layout_stages(k->x, m, c.size[DIM_PIPE]), b->scale) > k->x->limit) return;
  double seconds = closed_seconds(k->x, &c, l, s);
  if (seconds < b->f->seconds) b->f->seconds = seconds;
}

/* Bytes that depend on a micro-batch grow with it, but for what is rounded up. */
#define GROWS 0.9

/* Returns whether no recipe fits even if everything is sharded that can be. */
static bool hopeless(const Walk *k, Candidate c, const Bound *b) {
  c.zero = 3;
  if (!k->x->free_shard) give_zero(k->x, &c);
  else if (space_shards(k->x, &c, ~0u) < 2) c.zero = 0;
  const Stages *s = layout_stages(k->x, b->smallest, c.size[DIM_PIPE]);
  return memory_of(k->x, &c, b->smallest, s, b->scale) > k->x->limit;
}

/* Returns whether the family has any recipe that may fit, and how fast that would be. What does not fit is
 * weighed all the same where it may come nearest: with one sample. */
static bool bound(Walk *k, Family *f) {
  const Space *x = k->x;
  bool first = f->c.micro == 1 || !x->free_micro;
  Bound b = {.f = f, .scale = first ? 1 : GROWS * (double)f->c.micro};
  f->seconds = INFINITY;
  for (int other = 0; other < 2; other++) {
    Candidate small = f->c, fast = f->c;
    if (!may_be_other(x, &f->c, other)) continue;
    small.other = fast.other = other;
    small.set = x->smallest_set;
    if (x->free_micro) small.micro = 1;
    b.smallest = layout_of(k->all, &small);
    if (b.smallest->refused) {
      k->w->refused = b.smallest->refused;
      continue;
    }
    each_zero(k, fast, b.smallest, count_one, &b);
    bool none = hopeless(k, fast, &b);
    if (first && none) each_zero(k, small, b.smallest, weigh_one, NULL);
    if (none) continue;
    const Layout *l = layout_of(k->all, &fast);
    if (!l->refused) each_zero(k, fast, l, bound_one, &b);
  }
  k->w->recipes += f->recipes;
  return f->seconds < INFINITY;
}

/* Returns whether no recipe of the family would be among the best, nor the best of its dims. */
static bool too_slow(const Weighed *w, const Family *f) {
  const Candidate *of_dims = &w->of_dims[dims_of(&f->c)];
  if (w->nbest < w->most || f->seconds < w->best[w->nbest - 1].seconds) return false;
  return of_dims->size[0] ? f->seconds >= of_dims->seconds : far_from_best(w, f->seconds);
}

/* Returns whether a smaller set fits: recomputing more than that is slower. */
static bool needless(const Space *x, const bool *fits, uint32_t set) {
  uint32_t blocks = x->sets[set].blocks;
  for (uint32_t i = 0; i < set; i++)
    if (fits[i] && (x->sets[i].blocks & blocks) == x->sets[i].blocks) return true;
  return false;
}

static void weigh_family(Walk *k, const Family *f) {
  Candidate c = f->c;
  bool fits[2][MOST_SETS] = {0};
  for (c.set = 0; c.set < k->x->nsets; c.set++)
    for (int other = 0; other < 2; other++) {
      if (!may_be_other(k->x, &c, other) || needless(k->x, fits[other], c.set)) continue;
      c.other = other;
      const Layout *l = layout_of(k->all, &c);
      if (l->refused) continue;
      uint64_t some = k->w->fit, of = k->w->weighed;
      each_zero(k, c, l, weigh_one, NULL);
      fits[other][c.set] = k->w->fit - some == k->w->weighed - of;
    }
}

typedef struct {
  Family *at;
  uint32_t n;
} Families;

/* The families of a mesh. */
static void add_families(Walk *k, Candidate c, Families *all) {
  const Space *x = k->x;
  int64_t each = x->batch ? x->batch / space_samples(&c) : 1;
  int64_t given = x->batch && x->base->micro ? x->base->micro : each;
  int64_t last = x->free_micro ? each : given;
  if (each % given)
    k->w->refused = zb_printf(x->a, "%lld samples of a rank are no multiple of a micro-batch of %lld",
                              (long long)each, (long long)given);
  /* All sizes up to 64 samples; of larger ones, from which small models gain, the powers of two. */
  for (c.micro = x->free_micro ? 1 : given; c.micro <= last; c.micro += c.micro < 64 ? 1 : c.micro) {
    if (each % c.micro || each / c.micro > 65535) continue;
    Family f = {.c = c};
    if (bound(k, &f)) ZB_PUSH(x->a, all->at, all->n, f);
  }
}

/* Returns whether the recipe has dims over which so many ranks take samples. */
static bool can_take_samples(const Walk *k, int64_t ways) {
  for (uint32_t i = 0; i < k->nsizes; i++) {
    int64_t data = k->size[i];
    if (ways % data == 0 && allowed(k->x, DIM_DATA, data) && allowed(k->x, DIM_REPLICA, ways / data))
      return true;
  }
  return false;
}

static void each_mesh(Walk *k, Candidate c, Families *all) {
  const Space *x = k->x;
  int64_t ranks = x->ranks / (c.size[DIM_TENSOR] * c.size[DIM_CONTEXT] * c.size[DIM_EP]);
  for (uint32_t i = 0; i < k->nsizes && k->size[i] <= x->items && k->size[i] <= ranks; i++) {
    int64_t p = k->size[i], data = ranks / p;
    c.size[DIM_PIPE] = p;
    c.size[DIM_DATA] = data;
    int64_t ways = space_samples(&c);
    if (ranks % p || !allowed(x, DIM_PIPE, p) || (x->batch ? x->batch % ways : ways > 1)) continue;
    if (!can_take_samples(k, data)) continue;
    k->w->meshes += c.way == 0 || c.way == x->way[0];
    add_families(k, c, all);
  }
}

static void each_way(Walk *k, Candidate c, Families *all) {
  const Space *x = k->x;
  bool some = c.size[DIM_CONTEXT] > 1;
  for (uint32_t i = 0; i < (some ? x->nways : 1); i++) {
    c.way = some ? x->way[i] : 0;
    each_mesh(k, c, all);
  }
}

/* All sizes of ep and of context beside so many ranks of tensor. */
static void each_size(Walk *k, Candidate c, Families *all) {
  const Space *x = k->x;
  int64_t ranks = x->ranks / c.size[DIM_TENSOR];
  for (uint32_t i = 0; i < k->nsizes; i++) {
    int64_t ep = k->size[i];
    if (ranks % ep || !allowed(x, DIM_EP, ep) || !space_divides_over(x, DIM_EP, ep)) continue;
    for (uint32_t j = 0; j < k->nsizes; j++) {
      int64_t n = k->size[j];
      if (ranks / ep % n || !allowed(x, DIM_CONTEXT, n) || !space_divides_over(x, DIM_CONTEXT, n)) continue;
      c.size[DIM_EP] = ep;
      c.size[DIM_CONTEXT] = n;
      each_way(k, c, all);
    }
  }
}

static int sooner(const void *a, const void *b) {
  const Family *x = a, *y = b;
  return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

void weigh(const Space *x, Layouts *layouts, Weighed *w) {
  Walk k = {.x = x, .all = layouts, .w = w};
  k.size = space_divisors(x->a, x->ranks, &k.nsizes);
  Families all = {0};
  int64_t node = x->c->nlevels ? x->c->levels[0].size : 1;
  for (uint32_t i = 0; i < k.nsizes; i++) {
    int64_t t = k.size[i];
    if (!allowed(x, DIM_TENSOR, t)) continue;
    if (x->given[DIM_TENSOR] == 0 && (t > node || space_indivisible(x, t))) continue;
    Candidate c = ONE_RANK;
    c.size[DIM_TENSOR] = t;
    each_size(&k, c, &all);
  }
  if (all.n) qsort(all.at, all.n, sizeof *all.at, sooner);
  for (uint32_t i = 0; i < all.n; i++)
    if (!too_slow(w, &all.at[i])) weigh_family(&k, &all.at[i]);
  add_of_dims(w);
}
