/* The interface between the files of this room; nobody outside includes it. */
#ifndef ZUG_PLAN_SEARCH_INTERNAL_H
#define ZUG_PLAN_SEARCH_INTERNAL_H

#include "runtime/plan/search/search.h"

/* ---- dims.c -------------------------------------------------------------------------------------------- */
/* The purpose of a mesh dim. A new kind of parallelism is one more of these: it has a size, splits something
 * and has its place in the mesh. */
typedef enum { DIM_PIPE, DIM_REPLICA, DIM_DATA, DIM_EP, DIM_CONTEXT, DIM_TENSOR, DIMS } Dim;
#define BIT(NAME) (1u << DIM_##NAME)
#define ONE_RANK                                                                                             \
  { .size = {1, 1, 1, 1, 1, 1}, .micro = 1 }
enum { MOST_BLOCKS = 8, MOST_SETS = 64 };

typedef struct {
  uint32_t blocks; /* bit per block of the space */
  ZlPath *path;    /* as `recompute` lists them */
  uint32_t n;
} RecomputeSet;

/* A schedule of so many ranks of pipe and micro-batches (zp_rehearse); by[1]: what a stage takes in is
 * kept. */
typedef struct {
  int64_t nmicro;
  ZpRehearsal by[2];
} Rehearsed;
typedef struct {
  Rehearsed *at;
  uint32_t n;
} Rehearsals;

typedef struct {
  ZbArena *a;
  const ZgGraph *g;
  const ZlRecipe *base;
  const ZlCluster *c;
  const ZpOptions *plan; /* without cluster */
  int64_t ranks, batch;  /* samples of a step; 0: the model has none */
  uint64_t limit;
  const char *name[DIMS];
  int64_t given[DIMS]; /* size by the recipe; 0: to be found; -1: the mesh has no such dim */
  Dim order[DIMS];     /* slowest first */
  uint32_t norder;
  bool whole;     /* nothing is given, so that the order is free, too */
  unsigned zero;  /* bit per Dim: over which `shard` is */
  uint8_t way[3]; /* ZlAttentionWay: of attention over DIM_CONTEXT; free_way: to be found among them */
  uint32_t nways;
  bool free_way;
  uint32_t items;        /* what stages are cut between: iterations of the model's repeats */
  Rehearsals *rehearsed; /* by ranks of pipe, up to `items` */
  /* Axes over `tensor`: one of products[k] for each k, as far as it divides; then the others. */
  ZlSplit split, split_product; /* kv, ffn ...; kv*grp, ffn ...; nprods 0: there is none */
  ZlNames otherwise;            /* data axes of what is carried: `else` */
  RecomputeSet *sets;
  uint32_t nsets, smallest_set; /* that with most recomputation */
  bool free_micro, free_sets, free_shard, free_else, free_stages;
} Space;

/* One recipe of the space. */
typedef struct {
  int64_t size[DIMS], micro;
  uint32_t set;     /* of the space's recompute sets */
  uint8_t way;      /* ZlAttentionWay; without DIM_CONTEXT 0 */
  uint8_t zero;     /* 0: nothing is sharded; 1, 2, 3 */
  bool keep, other; /* gathered once a step; `else` */
  double seconds;   /* closed form */
  uint64_t bytes;
} Candidate;

/* Finds the purposes of a recipe's dims; returns false with reports. Returns its split over one, or NULL. */
bool space_dims(Space *x, ZlDiags *d);
const ZlSplit *space_split(const ZlRecipe *r, const char *dim);
/* Size of an axis, padded; 0: it has none. */
int64_t space_axis(const Space *x, const char *name);
/* Returns whether the axes that DIM_EP or DIM_CONTEXT splits divide over so many ranks, and it is worth
 * while. */
bool space_divides_over(const Space *x, Dim k, int64_t by);

/* ---- space.c ------------------------------------------------------------------------------------------- */
/* False with reports. */
bool space_make(Space *x, const ZpSearchOptions *o, ZlDiags *d);
/* Returns the recipe of a candidate; stages: items of each, or NULL for `by cost`. */
const ZlRecipe *space_recipe(const Space *x, const Candidate *c, const int64_t *stages, ZbArena *a);
/* The same with a batch of one micro-batch. */
const ZlRecipe *space_probe(const Space *x, const Candidate *c, ZbArena *a);
/* Its dims, slowest first. */
void space_order(const Space *x, const Candidate *c, Dim order[DIMS]);
/* Ranks that share what is alike along these dims (bits); ranks that have samples of their own. */
int64_t space_shards(const Space *x, const Candidate *c, unsigned dims);
int64_t space_samples(const Candidate *c);
/* Returns what divides n, ascending. */
int64_t *space_divisors(ZbArena *a, int64_t n, uint32_t *count);
/* Returns why so many ranks of `tensor` cannot split the model's axes; NULL: they can. */
const char *space_indivisible(const Space *x, int64_t tensor);

/* ---- measure.c ----------------------------------------------------------------------------------------- */
/* Measures of a segment, per micro-batch, that do not depend on pipe, data and ZeRO. */
typedef struct {
  double count, forward, backward; /* seconds */
  uint64_t saved, carry, dcarry, carry_out, dcarry_out, temp;
  bool saves_carry, inputs;
} SegmentNeeds;
typedef struct {
  uint64_t elems; /* of a rank, if nothing is sharded */
  ZkElem elem, grad, reduce;
  uint32_t segment; /* ZP_NONE: once a stage that uses it */
  const uint32_t *users;
  uint32_t nusers;
  double states; /* bytes per element */
  bool frozen;
  unsigned alike, partial; /* dims, by bits: along which it is, and its gradients are partial */
  double update;           /* bytes per element */
} BucketNeeds;
/* Stages for so many ranks of pipe: of each segment so many instances, from first to last. */
typedef struct {
  uint32_t *count; /* stage x nsegments */
  uint32_t *first, *last;
  int64_t *items;
  uint64_t *slot, *boundary, *temp, *inputs; /* bytes of a micro-batch; boundary: one of two */
  double *forward, *backward, *counting;
} Stages;
typedef struct {
  const char *refused; /* why there is no such plan; else NULL */
  uint32_t nsegments, nbuckets;
  SegmentNeeds *segment;
  BucketNeeds *bucket;
  uint64_t input_bytes;
  double clip;
  Stages **stages; /* by ranks of pipe, made when asked for */
} Layout;

/* Everything of a kind that was made, to be asked again. */
typedef struct Layouts Layouts;
Layouts *layouts_new(const Space *x);
const Layout *layout_of(Layouts *all, const Candidate *c); /* whatever its other dims and its shards */
/* The report of the space's first: a recipe that is wrong anyhow. False: it has been reported. */
bool layouts_begin(Layouts *all, int64_t ranks, ZlDiags *d);
const Stages *layout_stages(const Space *x, const Layout *l, int64_t pipe);

/* Returns the recipe's schedule, rehearsed once; keeps: as in Rehearsed. Not valid after the next call. */
const ZpRehearsal *rehearsal(const Space *x, int64_t pipe, int64_t nmicro, bool keeps);

/* ---- bytes.c ------------------------------------------------------------------------------------------- */
/* Returns the bytes of the fullest stage; as if what depends on a micro-batch took `scale` times as much:
 * 1. */
uint64_t memory_of(const Space *x, const Candidate *c, const Layout *l, const Stages *s, double scale);

/* ---- closed.c ------------------------------------------------------------------------------------------ */
double closed_seconds(const Space *x, const Candidate *c, const Layout *l, const Stages *s);
int64_t nmicro_of(const Space *x, const Candidate *c);

/* ---- weigh.c ------------------------------------------------------------------------------------------- */
/* ---- found.c ------------------------------------------------------------------------------------------- */
void add_mesh(const ZlRecipe *r, ZbText *out);   /* "pipe 8, data 24, tensor 8" */
void add_ledger(const ZpLedger *l, ZbText *out); /* " params 1.2 GB, master 2.4 GB" */
/* "idle +0.31 s, tensor +0.12 s": the parts that are longer than the best's, the most first, as far as they are more
 * than a thousandth of `of`. Returns how many there are. */
int add_longer(const double *part, const double *best, double of, ZbText *out);
void put_mesh(ZbJson *j, const ZlRecipe *r);

enum { SETS_OF_DIMS = 1 << DIMS };
typedef struct {
  uint64_t meshes, recipes, weighed, fit;
  const char *refused; /* why some layout cannot be planned */
  Candidate
      *best; /* by the formula, fastest first, at most `most`; behind them the best of other sets of dims */
  uint32_t nbest, most;
  Candidate of_dims[SETS_OF_DIMS]; /* the fastest of each set; size[0] == 0: none */
  Candidate nearest;               /* the one that needs least; size[0] == 0: none */
} Weighed;
void weigh(const Space *x, Layouts *all, Weighed *w);

#endif
