/* A segment of the graph on residues: every value whole, every node one call. */
#include <string.h>

#include "graph/ragged.h"
#include "runtime/plan/meaning/meaning.h"

/* ---- what comes from outside --------------------------------------------------------------------------- */
enum { IDS = 5 };

/* Ids of an axis are positions on it; other integers are few, so that some are equal. */
static int32_t integer(const Small *w, const ZgType *t, uint64_t h) {
  int64_t n = t->elem == ZG_INDEX ? w->valid[t->of] : IDS;
  return h >> 61 ? (int32_t)((h & UINT32_MAX) % (uint64_t)n) : -1;
}

/* Returns the axis on which an integer input of a step counts, from *first on: pages in tables, positions of
 * tokens, lengths. ZG_NO_AXIS: it is not such an input. */
static uint16_t counted(const ZpStream *s, uint16_t op, int64_t k, int32_t *first) {
  *first = 0;
  if (!s || op != ZG_OP_INPUT) return ZG_NO_AXIS;
  for (uint32_t i = 0; i < s->nlengths; i++)
    if (s->lengths[i].input == k) {
      *first = 1;
      return s->lengths[i].axis;
    }
  for (uint32_t i = 0; i < s->ngroups; i++)
    if (s->groups[i].input == k) return s->groups[i].page;
  return s->position == k ? s->axis.position : ZG_NO_AXIS;
}

/* One id at least is unknown, another one for each seed. */
void *zp_leaf(Eval *e, uint16_t op, int64_t k, const ZgType *t) {
  int64_t n = zp_whole_elements(e->w, t), unknown = (int64_t)e->seed % n;
  int32_t first;
  uint16_t on = counted(e->w->p->stream, op, k, &first);
  char *x = zb_alloc(e->a, (size_t)n * zp_cell(t) + 1);
  for (int64_t i = 0; i < n; i++) {
    uint64_t h = zb_random_u64(e->seed, (uint64_t)op << 32 | (uint64_t)k, (uint64_t)i);
    if (on != ZG_NO_AXIS) ((int32_t *)(void *)x)[i] = first + (int32_t)(h % (uint64_t)e->w->valid[on]);
    else if (zp_is_ints(t)) ((int32_t *)(void *)x)[i] = i == unknown ? -1 : integer(e->w, t, h);
    else ((ZkResidue *)(void *)x)[i] = zk_residue_reduced(h >> 33);
  }
  return x;
}

ZkResidue zp_leaf_seed(const Eval *e, uint32_t index) {
  return zk_residue_reduced(zb_random_u64(e->seed, ZG_OP_SEED, index) >> 33);
}

/* ---- calls --------------------------------------------------------------------------------------------- */
static ZkView view_of(const Eval *e, uint32_t v) {
  const ZgType *t = &e->g->values[v].type;
  ZkView w = {.data = e->whole[v], .elem = zp_is_ints(t) ? ZK_I32 : ZK_F64, .rank = t->naxes};
  int64_t stride = 1;
  for (int a = t->naxes; a-- > 0; stride *= w.size[a]) {
    w.axis[a] = t->axis[a];
    w.size[a] = w.whole[a] = e->w->whole[t->axis[a]];
    w.stride[a] = stride;
  }
  return w;
}

/* Gives every id a row of its expert's: with room for all there is nothing ragged, and rows that are nobody's
 * are zero. */
static int32_t *places(Eval *e, const ZgNode *n) {
  const ZgType *t = &e->g->values[n->in[1]].type;
  const int32_t *ids = e->whole[n->in[1]];
  int64_t count = zp_whole_elements(e->w, t), slots = e->w->whole[n->ax[1]];
  int32_t *place = ZB_NEWN(e->a, int32_t, count + 1), *used = ZB_NEWN(e->a, int32_t, e->w->whole[n->ax[0]]);
  for (int64_t i = 0; i < count; i++) place[i] = ids[i] < 0 ? -1 : (int32_t)(ids[i] * slots + used[ids[i]]++);
  return place;
}

static void compute(Eval *e, const ZgNode *n) {
  const ZpAsked *asked = &e->w->p->asked;
  ZkEnv env = {.seed = e->seed, .step = 1};
  ZkCall c = {.op = n->op, .nin = n->nin, .nout = n->nout, .nax = n->nax, .num = {n->num[0], n->num[1]}};
  memcpy(c.ax, n->ax, sizeof n->ax);
  memcpy(c.opt, n->opt, sizeof n->opt);
  if (!zp_small_numbers(e->w, n->op, n->ax, c.opt)) ZB_BUG("numbers of `%s`", zg_op_info[n->op].text);
  for (int i = 0; i < n->nin; i++) c.in[i] = view_of(e, n->in[i]);
  for (int i = 0; i < n->nout; i++) c.out[i] = view_of(e, n->out + (uint32_t)i);
  if (n->op == ZG_OP_DISPATCH || n->op == ZG_OP_COMBINE) c.in[1].data = places(e, n), c.opt[1] = 0;
  if (n->op == ZG_OP_PUT_PAGES) e->whole[n->out] = c.out[0].data = c.in[1].data; /* the cache itself */
  if (n->op == ZG_OP_AXSIZE) c.num[0] = (double)e->w->p->layout.axis_valid[n->ax[0]];
  if (n->op == ZG_OP_RANDOM && n->opt[1] == ZG_COIN && asked->forward_only) c.op = ZG_OP_FILL;
  zk_residue_run(&env, &c);
}

void zp_eval_graph(Eval *e, uint32_t nnodes) {
  for (uint32_t i = 0; i < nnodes; i++) {
    const ZgNode *n = &e->g->nodes[i];
    const ZgType *t = &e->g->values[n->out].type;
    switch (n->op == ZG_OP_KEPT ? ZG_SOURCE : zg_op_info[n->op].kind) {
    case ZG_SINK: continue;
    case ZG_SOURCE: break;
    default:
      for (int k = 0; k < n->nout; k++) {
        const ZgType *r = &e->g->values[n->out + (uint32_t)k].type;
        e->whole[n->out + (uint32_t)k] = zb_alloc(e->a, (size_t)zp_whole_elements(e->w, r) * zp_cell(r) + 1);
      }
      compute(e, n);
      continue;
    }
    if (n->op != ZG_OP_SEED) {
      e->whole[n->out] = zp_leaf(e, n->op, n->opt[0], t);
      continue;
    }
    ZkResidue *seed = ZB_NEW(e->a, ZkResidue);
    *seed = zp_leaf_seed(e, zp_seed_index(n->opt[0], (uint32_t)n->opt[1]));
    e->whole[n->out] = seed;
  }
}
