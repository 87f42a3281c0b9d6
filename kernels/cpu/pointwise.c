/* pointwise: a pointwise function on all elements. The iteration space is cut into blocks: some rows of the
 * fastest loop, or a piece of one; a block is a number of tiles, and all steps of the function run on one
 * tile after the other (pointwise.h).
 *
 * Operands are classed by their strides. `same` ones have one value everywhere: they are constants of the
 * code. `row` ones have one value along a row. `direct` ones lie contiguous and are read where they lie;
 * others are gathered into a block of f32 first. Results are written where they lie, or into a block that is
 * scattered. A last tile that is not whole works on copies.
 *
 * The code depends on the classes: numbers are folded, and a product and a sum are one step, with one
 * rounding, if their operands lie in f32. In a batch-invariant call classes do not depend on sizes,
 * therefore: only what has no axes is `same`, and bf16 is `direct` only where it lies as the first result
 * does. */
#include "kernels/cpu/pointwise.h"

#define BLOCK 1024 /* elements, whole tiles */
#define SHORT 256  /* rows up to this length are worked on several at once */

typedef enum { SAME, ROW, DIRECT, GATHER } Class;

typedef struct {
  const ZkPointwiseSet *set;
  int nin, nout, nmoves;
  bool invariant;             /* what the code is like depends on no size */
  ZkView view[ZK_NEST_VIEWS]; /* operands, then results: as the places of the code */
  Class class[ZK_NEST_VIEWS];
  ZkMove move[ZK_NEST_VIEWS];
  ZkNest outer; /* its views are results, then operands */
  ZkLoop run;
  int64_t rows;   /* rows of `run` in a block; 1: a block is (a piece of) a row */
  int64_t pieces; /* blocks of a row when rows is 1 */
  int64_t nouter, blocks;
  ZkPointwiseCode code;
} Pointwise;

/* The nest's number of view k. */
static int nest_view(const Pointwise *c, int k) { return k < c->nin ? c->nout + k : k - c->nin; }

/* Do all loops make one contiguous range of the nest's view v? */
static bool dense(const Pointwise *c, int v) {
  int64_t expect = c->run.n;
  if (c->run.n > 1 && c->run.s[v] != 1) return false;
  for (int l = c->outer.nloops - 1; l >= 0; l--) {
    if (c->outer.loop[l].s[v] != expect) return false;
    expect *= c->outer.loop[l].n;
  }
  return true;
}

/* Returns whether the view lies as result 0 does, without gaps. */
static bool lies_as_result(const Pointwise *c, const ZkView *v) {
  const ZkView *result = &c->view[c->nin];
  int64_t stride = 1;
  if (v->rank != result->rank) return false;
  for (int i = v->rank - 1; i >= 0; stride *= v->size[i--])
    if (v->axis[i] != result->axis[i] || v->stride[i] != stride) return false;
  return true;
}

static Class class_of(const Pointwise *c, int k) {
  int v = nest_view(c, k);
  const ZkView *view = &c->view[k];
  if (c->invariant && k < c->nin && view->rank == 0) return SAME;
  if (c->invariant && (k >= c->nin || view->elem == ZK_BF16))
    return view->elem != ZK_I32 && lies_as_result(c, view) ? DIRECT : GATHER;
  bool flat = c->run.s[v] == 0 || c->run.n == 1, same = flat;
  for (int l = 0; l < c->outer.nloops; l++) same &= c->outer.loop[l].s[v] == 0;
  if (k < c->nin && same && !c->invariant) return SAME;
  if (c->view[k].elem != ZK_I32 && (c->rows > 1 ? dense(c, v) : c->run.s[v] == 1 || c->run.n == 1))
    return DIRECT;
  return k < c->nin && c->rows == 1 && flat ? ROW : GATHER;
}

static void geometry(Pointwise *c) {
  const ZkView *views[ZK_NEST_VIEWS];
  int n = c->nin + c->nout;
  for (int k = 0; k < n; k++) views[nest_view(c, k)] = &c->view[k];
  for (int i = 0; i < c->nout; i++) ZB_ASSERT(views[i]->rank == views[0]->rank);
  c->outer = zk_nest(views, n, NULL, 0, false);
  zk_nest_order(&c->outer, 0);
  c->run = zk_nest_pop(&c->outer);
  c->nouter = zk_nest_count(&c->outer);
  c->rows = c->run.n > 0 && c->run.n <= SHORT && c->nouter > 1 ? zk_min(BLOCK / c->run.n, c->nouter) : 1;
  c->pieces = c->rows > 1 ? 1 : zk_ceil_div(c->run.n, BLOCK);
  c->blocks = c->rows > 1 ? zk_ceil_div(c->nouter, c->rows) : c->nouter * c->pieces;
  for (int k = 0; k < n; k++) {
    c->class[k] = class_of(c, k);
    if (c->class[k] == DIRECT || c->class[k] == GATHER)
      c->move[c->nmoves++] =
          (ZkMove){(uint8_t)k, c->class[k] == DIRECT ? (uint8_t)zk_plain_bytes((ZkElem)c->view[k].elem) : 4};
  }
}

static ZkPointwiseLayout layout_of(const Pointwise *c) {
  ZkPointwiseLayout l = {0};
  for (int i = 0; i < c->nin; i++) {
    bool bf16 = c->class[i] == DIRECT && c->view[i].elem == ZK_BF16;
    l.in[i] = c->class[i] == SAME ? ZK_LIES_SAME : bf16 ? ZK_LIES_BF16 : ZK_LIES_F32;
    if (c->class[i] == SAME && c->blocks > 0) l.value[i] = zk_get(&c->view[i], 0);
  }
  for (int o = 0; o < c->nout; o++) {
    const ZkView *y = &c->view[c->nin + o];
    bool direct = c->class[c->nin + o] == DIRECT;
    l.out[o] = direct && y->elem == ZK_BF16 ? ZK_LIES_BF16 : ZK_LIES_F32;
    for (int i = 0; i < c->nin; i++)
      if (direct && c->class[i] == DIRECT && c->view[i].data == y->data) l.shares[o] |= (uint16_t)(1 << i);
  }
  return l;
}

/* ---- doing it -------------------------------------------------------------------------------- */

typedef float Tile[ZK_TILE_MAX];

/* Memory of one thread. */
typedef struct {
  char *place[ZK_POINTWISE_PLACES];
  Tile tile[ZK_NEST_VIEWS]
      __attribute__((aligned(64))); /* values of rows; copies of a tile that is not whole */
  Tile constant[ZK_POINTWISE_REGS], temp[ZK_POINTWISE_PLACES - ZK_POINTWISE_REGS];
  float block[ZK_NEST_VIEWS][BLOCK];
} Memory;

static void set_up(const Pointwise *c, Memory *m) {
  const ZkPointwiseCode *code = &c->code;
  for (int k = 0; k < c->nin + c->nout; k++) {
    m->place[k] = (char *)m->tile[k];
    zk_run_fill(m->tile[k], 0, ZK_TILE_MAX); /* what is beyond the end is computed with, too */
    if (c->class[k] == GATHER) zk_run_fill(m->block[k], 0, BLOCK);
  }
  for (int i = 0; i < code->ntemps; i++) m->place[code->temp + i] = (char *)m->temp[i];
  for (int i = 0; i < code->nconstants; i++) {
    zk_run_fill(m->constant[i], code->number[i], c->set->tile);
    m->place[code->constant + i] = (char *)m->constant[i];
  }
}

/* The last n elements of a block, less than a tile: on copies of what lies direct. */
static void last_tile(const Pointwise *c, Memory *m, int64_t n) {
  char *at[ZK_NEST_VIEWS];
  for (int k = 0; k < c->nin + c->nout; k++) {
    at[k] = m->place[k];
    if (c->class[k] != DIRECT) continue;
    m->place[k] = (char *)m->tile[k];
    if (k < c->nin) memcpy(m->tile[k], at[k], zk_bytes((ZkElem)c->view[k].elem, (uint64_t)n));
  }
  c->set->run(c->code.step, m->place, NULL, 0, 1);
  for (int k = c->nin; k < c->nin + c->nout; k++)
    if (c->class[k] == DIRECT) memcpy(at[k], m->tile[k], zk_bytes((ZkElem)c->view[k].elem, (uint64_t)n));
}

/* `rows` rows of n elements between views of class GATHER and their blocks, in or out. */
static void move_rows(const Pointwise *c, Memory *m, const ZkWalk *w, int64_t at, int64_t rows, int64_t n,
                      bool in) {
  ZkWalk each = *w;
  for (int64_t r = 0; r < rows; r++) {
    for (int k = in ? 0 : c->nin; k < (in ? c->nin : c->nin + c->nout); k++) {
      if (c->class[k] != GATHER) continue;
      int v = nest_view(c, k);
      int64_t s = c->run.s[v], off = each.off[v] + at * s;
      if (!in) zk_store(&c->view[k], off, s, n, m->block[k] + r * n, false);
      else if (s == 0) zk_run_fill(m->block[k] + r * n, zk_get(&c->view[k], off), n);
      else zk_load(m->block[k] + r * n, &c->view[k], off, s, n);
    }
    if (r + 1 < rows) zk_walk_next(&c->outer, &each);
  }
}

/* One block: `rows` rows from the walk's position, or `n` elements from `at` of one row. */
static void do_block(const Pointwise *c, Memory *m, const ZkWalk *w, int64_t at, int64_t rows, int64_t n) {
  bool gathers = false, scatters = false;
  for (int k = 0; k < c->nin + c->nout; k++) {
    int v = nest_view(c, k);
    int64_t off = w->off[v] + at * c->run.s[v];
    if (c->class[k] == DIRECT) {
      m->place[k] = zk_at(&c->view[k], off);
    } else if (c->class[k] == ROW) {
      zk_run_fill(m->tile[k], zk_get(&c->view[k], off), c->set->tile);
    } else if (c->class[k] == GATHER) {
      m->place[k] = (char *)m->block[k];
      if (k < c->nin) gathers = true;
      else scatters = true;
    }
  }
  int64_t count = rows * n, tiles = count / c->set->tile;
  if (gathers) move_rows(c, m, w, at, rows, n, true);
  c->set->run(c->code.step, m->place, c->move, c->nmoves, tiles);
  if (count % c->set->tile) last_tile(c, m, count % c->set->tile);
  if (scatters) move_rows(c, m, w, at, rows, n, false);
}

static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Pointwise *c = arg;
  Memory m;
  set_up(c, &m);
  ZkWalk w;
  zk_walk_seek(&c->outer, &w, c->rows > 1 ? from * c->rows : from / c->pieces);
  for (int64_t t = from; t < to; t++) {
    if (c->rows > 1) {
      int64_t rows = zk_min(c->rows, c->nouter - t * c->rows);
      do_block(c, &m, &w, 0, rows, c->run.n);
      for (int64_t r = 0; r < rows; r++) zk_walk_next(&c->outer, &w);
    } else {
      int64_t piece = t % c->pieces;
      do_block(c, &m, &w, piece * BLOCK, 1, zk_min(BLOCK, c->run.n - piece * BLOCK));
      if (piece + 1 == c->pieces) zk_walk_next(&c->outer, &w);
    }
  }
}

void zk_pointwise_run(const ZkEnv *env, const ZkCall *call, const ZkPointwiseSet *set) {
  const ZkPointwise *pointwise = call->pointwise;
  ZB_ASSERT(pointwise->nops <= ZK_POINTWISE_MAX_OPS && pointwise->nout == call->nout && pointwise->nout >= 1);
  Pointwise c;
  c.set = set;
  c.nin = call->nin;
  c.nout = call->nout;
  c.nmoves = 0;
  c.invariant = call->invariant;
  for (int i = 0; i < c.nin; i++) c.view[i] = call->in[i];
  for (int i = 0; i < c.nout; i++) c.view[c.nin + i] = call->out[i];
  geometry(&c);
  ZkPointwiseLayout layout = layout_of(&c);
  zk_pointwise_code(&c.code, pointwise, c.nin, &layout);
  zk_pointwise_link(&c.code, set);
  zk_for(env, c.blocks, 16, run_blocks, &c);
}

void zk_cpu_pointwise(const ZkEnv *env, const ZkCall *call) {
  const ZkPointwiseSet *set = NULL;
  for (int i = ZK_POINTWISE_SETS; !set; i--) set = zk_pointwise_set(i - 1);
  zk_pointwise_run(env, call, set);
}
