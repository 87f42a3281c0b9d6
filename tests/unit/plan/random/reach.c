/* Nodes that reach over ranks in other ways than collectives: attend around a ring, rows of experts. */
#include "tests/unit/plan/random/player.h"

#include <criterion/criterion.h>
#include <string.h>

static int axis_at(const ZkView *v, uint16_t axis) {
  for (int a = 0; a < v->rank; a++)
    if (v->axis[a] == axis) return a;
  return -1;
}

static int64_t elements(const ZkView *v) {
  int64_t n = 1;
  for (int a = 0; a < v->rank; a++) n *= v->size[a];
  return n;
}

static bool same_group(const Play *y, int q, int r, ZpDims dims) {
  return zp_group_color(&y->p->layout.mesh, y->rank[q].id, dims) ==
         zp_group_color(&y->p->layout.mesh, y->rank[r].id, dims);
}

/* ---- attend around a ring ------------------------------------------------------------------------------ */
/* A view like `one`, as long as those of the group together, of zeros. */
static ZkView joined(const At *n, const ZkView *one) {
  ZkView all = *one;
  int64_t stride = 1;
  int k = axis_at(one, n->k->axis);
  all.size[k] *= zp_group_size(&n->y->p->layout.mesh, n->k->dims);
  all.start[k] = 0;
  for (int a = all.rank; a-- > 0; stride *= all.size[a]) all.stride[a] = stride;
  all.data = zb_alloc(n->y->a, (uint64_t)stride * 4 + 64);
  return all;
}

/* Copies a rank's elements to where they are among all (out), or adds those from there to the rank's. */
static void move(const At *n, const Rank *r, const ZkView *own, const ZkView *all, bool out) {
  int k = axis_at(own, n->k->axis);
  ZbArena *a = zb_arena_new();
  const int64_t *to = held(a, n->y->p, n->k->dims, r->id, n->k->axis, own->size[k]);
  float *x = own->data, *y = all->data;
  for (int64_t i = elements(own); i-- > 0;) {
    int64_t at = 0, rest = i;
    for (int b = own->rank; b-- > 0; rest /= own->size[b]) {
      int64_t e = rest % own->size[b];
      at += (b == k ? to[e] : e) * all->stride[b];
    }
    if (out) y[at] = x[i];
    else x[i] += y[at];
  }
  zb_arena_free(a);
}

/* Each rank's queries meet all keys at once. The gradients of these are what all ranks make, added up. */
void play_ring(const At *n) {
  Play *y = n->y;
  bool back = n->k->call.op == ZG_OP_ATTEND_GRAD;
  int key = zg_attend_first(n->k->call.op) + 1;
  ZkView *sum = ZB_NEWN(y->a, ZkView, 2 * y->nranks);
  for (int r = 0; r < y->nranks; r++) {
    ZkCall c = call_of(n, &y->rank[r]);
    for (int i = 0; i < 2; i++) {
      c.in[key + i] = joined(n, &c.in[key + i]);
      for (int q = 0; q < y->nranks; q++) {
        ZkCall other = call_of(n, &y->rank[q]);
        if (same_group(y, q, r, n->k->dims)) move(n, &y->rank[q], &other.in[key + i], &c.in[key + i], true);
      }
      if (back) sum[2 * r + i] = c.out[1 + i] = joined(n, &c.out[1 + i]);
    }
    c.scratch = zb_alloc(y->a, zk_cpu_scratch(&c, 1) + 64);
    run_call(n, &y->rank[r], &c);
  }
  for (int r = 0; r < y->nranks && back; r++)
    for (int i = 0; i < 2; i++) {
      ZkCall c = call_of(n, &y->rank[r]);
      memset(c.out[1 + i].data, 0, (size_t)elements(&c.out[1 + i]) * 4);
      for (int q = 0; q < y->nranks; q++)
        if (same_group(y, q, r, n->k->dims)) move(n, &y->rank[r], &c.out[1 + i], &sum[2 * q + i], false);
    }
}

/* ---- experts ------------------------------------------------------------------------------------------- */
/* The rows of a group, in the order in which experts have them: expert by expert, member by member. */
typedef struct {
  int64_t expert, place; /* which of the rank's choices */
  int rank;
} Row;
typedef struct {
  Row *row;
  int64_t n, first, end; /* first, end: those of one owner */
  int64_t own, owner;    /* experts of a rank; its number in the group */
} Rows;

static const ZpNode *slots_of(const At *first) {
  const ZpSegment *s = segment_at(first);
  for (int k = 0; k < ZP_PHASES; k++)
    for (uint32_t i = 0; i < s->list[k].n; i++) {
      const ZpNode *n = &s->list[k].nodes[i];
      if (n->call.op == ZG_OP_SLOTS && n->out[1] == first->k->in[0]) return n;
    }
  cr_assert_fail("rounds without places");
  return NULL;
}

static const int32_t *ints(const At *n, int rank, uint32_t v) {
  return (const int32_t *)(void *)address(n->y, &n->y->rank[rank], n->inst, &segment_at(n)->values[v]);
}

static Rows rows_of(const At *first, int rank, ZbArena *a) {
  Play *y = first->y;
  const ZpMesh *m = &y->p->layout.mesh;
  const ZpNode *slots = slots_of(first);
  int64_t experts = first->k->call.in[0].size[0], places = elements(&slots->call.out[0]);
  ZpDims dims = first->k->dims;
  Rows x = {.owner = zp_group_index(m, y->rank[rank].id, dims), .own = experts / zp_group_size(m, dims)};
  for (int64_t e = 0; e < experts; e++) {
    if (e == x.owner * x.own) x.first = x.n;
    for (int64_t i = 0; i < zp_group_size(m, dims); i++)
      for (int q = 0; q < y->nranks; q++) {
        if (!same_group(y, q, rank, dims) || zp_group_index(m, y->rank[q].id, dims) != i) continue;
        const int32_t *ends = ints(first, q, first->k->in[0]), *place = ints(first, q, slots->out[0]);
        for (int64_t at = e ? ends[e - 1] : 0; at < ends[e]; at++)
          for (int64_t k = 0; k < places; k++)
            if (place[k] == at) {
              Row row = {e, k, q};
              ZB_PUSH(a, x.row, x.n, row);
            }
      }
    if (e + 1 == (x.owner + 1) * x.own) x.end = x.n;
  }
  return x;
}

int64_t play_rounds(const At *first) {
  int64_t most = 1, each = first->k->call.opt[1];
  for (int r = 0; r < first->y->nranks; r++) {
    ZbArena *a = zb_arena_new();
    Rows x = rows_of(first, r, a);
    int64_t rounds = (x.end - x.first + each - 1) / each;
    if (rounds > most) most = rounds;
    zb_arena_free(a);
  }
  return most;
}

/* Returns where feature `f` of the token of a choice is: rows have the axes expert, slot and features. */
static int64_t token(const ZkView *tokens, const ZkView *rows, const ZkView *places, int64_t place,
                     int64_t f) {
  int64_t at = 0;
  for (int a = places->rank; a-- > 0; place /= places->size[a]) {
    int k = axis_at(tokens, places->axis[a]);
    if (k >= 0) at += place % places->size[a] * tokens->stride[k];
  }
  for (int a = rows->rank; a-- > 2; f /= rows->size[a])
    at += f % rows->size[a] * tokens->stride[axis_at(tokens, rows->axis[a])];
  return at;
}

/* Moves each row of an owner's round between its slot and its token. */
static void travel(const At *n, const ZpNode *first, int64_t round, int owner) {
  ZbArena *a = zb_arena_new();
  At begin = *n;
  begin.k = first;
  bool out = n->k->call.op == ZG_OP_DISPATCH;
  Rows x = rows_of(&begin, owner, a);
  int64_t each = first->call.opt[1];
  ZkCall here = call_of(n, &n->y->rank[owner]);
  const ZkView *rows = out ? &here.out[0] : &here.in[0];
  int64_t features = elements(rows) / (rows->size[0] * rows->size[1]);
  float *row = rows->data;
  if (out) memset(row, 0, (size_t)elements(rows) * 4);
  for (int64_t i = x.first + round * each; i < x.end && i < x.first + (round + 1) * each;
       i++, row += features) {
    ZkCall there = call_of(n, &n->y->rank[x.row[i].rank]);
    const ZkView *tokens = out ? &there.in[0] : &there.out[0];
    for (int64_t f = 0; f < features; f++) {
      float *t = (float *)tokens->data + token(tokens, rows, &there.in[1], x.row[i].place, f);
      if (out) row[f] = *t;
      else *t += row[f];
    }
  }
  zb_arena_free(a);
}

static void begin_round(const At *n, int64_t round, int rank) {
  ZbArena *a = zb_arena_new();
  Rows x = rows_of(n, rank, a);
  ZkCall c = call_of(n, &n->y->rank[rank]);
  int32_t *now = c.out[0].data;
  int64_t each = n->k->call.opt[1], at = x.first;
  for (int64_t e = 0; e < x.own; e++) {
    while (at < x.end && x.row[at].expert <= x.owner * x.own + e) at++;
    int64_t end = at - x.first - round * each;
    now[e] = (int32_t)(end < 0 ? 0 : end > each ? each : end);
  }
  zb_arena_free(a);
}

void play_in_round(const At *n, const ZpNode *first, int64_t round) {
  Play *y = n->y;
  int64_t each = first->call.opt[1];
  bool home = n->k->call.op == ZG_OP_COMBINE;
  for (int r = 0; r < y->nranks; r++) {
    ZkCall c = call_of(n, &y->rank[r]);
    if (n->k->dims && home && round == 0) memset(c.out[0].data, 0, (size_t)elements(&c.out[0]) * 4);
    if (n->k->dims) continue;
    if (c.op == ZG_OP_ROUND) c.opt[0] = round;
    else if (c.op != ZG_OP_GROUPED_OUTER) c.opt[1] = round * each;
    if (home || c.op == ZG_OP_GROUPED_OUTER) c.accumulate |= round > 0;
    run_call(n, &y->rank[r], &c);
  }
  for (int r = 0; r < y->nranks && n->k->dims; r++)
    if (n->k->call.op == ZG_OP_ROUND) begin_round(n, round, r);
    else travel(n, first, round, r);
}
