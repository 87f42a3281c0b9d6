/* Proof 12: the local programs of all ranks together compute what the graph says. Both are evaluated on
 * residues modulo a prime, with few elements along each axis and few ranks along each dim of the mesh, and
 * what comes out is compared exactly. Sums of residues are equal in whatever order ranks make them; what is
 * not polynomial is a hash of its arguments. A wrong program agrees by chance only: for each number that is
 * compared at most its degree over 2^31 (Schwartz, Zippel), below 10 between two hashes.
 *
 * small.c     how large axes and the mesh are here, and what numbers of nodes become
 * graph.c     a segment of the graph, evaluated whole
 * ranks.c     values of its local program: what each rank has of them; a call on a rank
 * exchange.c  ... collectives
 * rows.c      ... rows of experts
 * run.c       its lists, node by node
 * meaning.c   what must be equal, and what is said where it is not
 *
 * Nothing here knows how local programs are made. Each operation means what kernels/ref says
 * (kernels/residue.h). That nodes find in memory what they name, and that instances get what others made, is
 * the business of the proofs of check/: here a value is its number. */
#ifndef ZUG_PLAN_MEANING_H
#define ZUG_PLAN_MEANING_H

#include "kernels/residue.h"
#include "runtime/plan/plan.h"

/* ---- small.c ------------------------------------------------------------------------------------------- */
typedef struct {
  const ZpPlan *p;
  ZbArena *a;
  ZpMesh mesh;           /* without a pipeline: the ranks of one stage */
  int64_t *size, *valid; /* per axis, as p->layout has them */
  int64_t *whole;        /* per axis, in the graph: `valid`, but for slots, of which there is one per row */
  /* Per axis: numbers along it are divided by `scale`, or if they are large made less by `moved`, unless that
   * is 0. scale 0: nobody speaks of any but its size. */
  int64_t *scale, *moved;
  /* Per segment and position: what it takes in, or gets back as cotangents, has more than zeros in
   * padding. */
  bool **dirty_carry, **dirty_dcarry;
  uint32_t nwindows; /* of attends in the graph, ascending */
  int64_t *window;
} Small;

/* real: axes keep their sizes. */
Small zp_small(const ZpPlan *p, ZbArena *a, bool real);
/* Counts the points at which the graph's segment is evaluated: of each node, those of all axes that it has. A
 * million take some hundredths of a second. */
double zp_points(const Small *w, uint32_t segment);
enum { ZP_MOST_POINTS = 200000000 }; /* a segment with more is left out */
/* Turns what a node says along its axes into numbers of the small world; false: they cannot be the
 * graph's. */
bool zp_small_numbers(const Small *w, uint16_t op, const uint16_t *ax, int64_t *opt);
/* Returns how much of an axis a rank has in these states. */
int64_t zp_small_size(const Small *w, const ZpState *state, uint16_t axis);
/* Returns the elements of a tensor of the graph. */
int64_t zp_whole_elements(const Small *w, const ZgType *t);

/* ---- a segment ----------------------------------------------------------------------------------------- */
/* Elements are ZkResidue, or int32_t of types that are integers. */
typedef struct {
  const Small *w;
  ZbArena *a;
  uint32_t index;
  const ZgSegment *g;
  const ZpSegment *s;
  void **whole; /* of the graph, by value: all of it, axes in the order of its type */
  int ranks;
  ZpValue *v; /* those of s with small sizes */
  /* By value and rank, number * ranks + rank: its elements, and a hash of where they are in the whole. What
   * ranks have alike they may share. */
  void **at;
  uint64_t *part;
  void **grad; /* by parameter and rank: its gradient so far; at first `base` */
  void **base; /* by parameter */
  /* The graph's nodes that add to a parameter's gradient: by parameter the first of them, by node the next; ZP_NONE:
   * no more. */
  uint32_t *first_grad, *next_grad;
  uint64_t seed;
} Eval;

static inline bool zp_is_ints(const ZgType *t) { return t->elem == ZG_INDEX || t->elem == ZG_I32; }
static inline size_t zp_cell(const ZgType *t) { return zp_is_ints(t) ? sizeof(int32_t) : sizeof(ZkResidue); }

/* ---- graph.c ------------------------------------------------------------------------------------------- */
/* Makes what a source brings (PARAM, INPUT, CARRY, DCARRY number k), the same whenever it is asked for. */
void *zp_leaf(Eval *e, uint16_t op, int64_t k, const ZgType *t);
ZkResidue zp_leaf_seed(const Eval *e, uint32_t index); /* as zp_seed_index counts them */
/* Evaluates so many nodes of the graph's segment. */
void zp_eval_graph(Eval *e, uint32_t nnodes);

/* ---- ranks.c ------------------------------------------------------------------------------------------- */
/* Where the elements of a rank's part of a tensor are in all of it: element i along axis a is at to[a][i]. */
typedef struct {
  int naxes;
  const uint16_t *axis;
  const int64_t *size;
  int64_t *to[ZG_MAX_AXES];
  int64_t elements;
} Part;
Part zp_part(const Eval *e, const ZpValue *v, int rank);
/* Returns where element `i` of a part is in a whole tensor of this type; -1: it is padding. */
int64_t zp_whole_place(const Eval *e, const Part *x, const ZgType *t, int64_t i);

/* Return the elements of a value on a rank, and room for them; NULL: nothing has made it. */
void *zp_local_at(Eval *e, uint32_t v, int rank);
void *zp_local_new(Eval *e, uint32_t v);
void zp_local_put(Eval *e, uint32_t v, int rank, void *x);
/* Returns where a view has an axis; -1: it lacks it. */
static inline int zp_axis_at(const ZkView *v, uint16_t axis) {
  for (int a = 0; a < v->rank; a++)
    if (v->axis[a] == axis) return a;
  return -1;
}
/* Returns a number that is equal for equal parts. */
uint64_t zp_local_part(Eval *e, uint32_t v, int rank);
ZkView zp_local_view(Eval *e, uint32_t v, int rank); /* without its elements */
int64_t zp_local_elements(const Eval *e, uint32_t v);
/* Returns the parameter that lies there, or whose gradient does, and its slice. */
uint32_t zp_slice_of(const Eval *e, const ZpLoc *at, const ZpSlice **slice);
/* Runs a node's call on a rank, whose views are filled. NULL, or why it cannot be. */
const char *zp_eval_call(Eval *e, const ZpNode *n, int rank, ZkCall *c);

/* ---- exchange.c, rows.c -------------------------------------------------------------------------------- */
void zp_eval_collective(Eval *e, const ZpNode *n);
const char *zp_eval_ring(Eval *e, const ZpNode *n);
/* Nodes of a region over ranks in a round: ROUND, DISPATCH, COMBINE. */
typedef struct {
  const ZpNode *round, *slots;
  int64_t rows, number; /* of each round; which it is */
} Round;
int64_t zp_eval_rounds(Eval *e, const Round *r); /* how many there are */
void zp_eval_rows(Eval *e, const ZpNode *n, const Round *r);

/* ---- run.c --------------------------------------------------------------------------------------------- */
/* Evaluates a list on all ranks. NULL, or why it cannot be: *where is the node. */
const char *zp_eval_list(Eval *e, ZpPhase phase, const ZpNode **where);

#endif
