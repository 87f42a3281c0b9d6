/* Rows of experts that other ranks have, as rounds play them (engine/rows.c): an expert's rows are those of
 * the first rank of a group, then of the second, and so on; a rank's are in the order that its places say. In a step of
 * generation the ranks of a group have the same tokens, and of each there is one row. */
#include <string.h>

#include "runtime/plan/meaning/meaning.h"

/* A row that an expert has: of which member, and which of that member's places; -1: none. */
typedef struct {
  int member;
  int64_t place;
} Row;
typedef struct {
  int members, mine, *rank;
  bool same;            /* all have the same tokens */
  int64_t experts, own; /* all, and those of a member */
  const int32_t **ends, **places;
  int64_t nplaces;
} Peers;

static Peers peers(Eval *e, const Round *r, int rank) {
  const ZpMesh *m = &e->w->mesh;
  ZpDims dims = r->round->dims;
  Peers p = {.members = (int)zp_group_size(m, dims), .mine = (int)zp_group_index(m, rank, dims)};
  p.same = e->w->p->stream != NULL;
  p.rank = ZB_NEWN(e->a, int, p.members);
  p.ends = ZB_NEWN(e->a, const int32_t *, p.members);
  p.places = ZB_NEWN(e->a, const int32_t *, p.members);
  p.experts = e->v[r->round->in[0]].size[0];
  p.own = p.experts / p.members;
  p.nplaces = zp_local_elements(e, r->slots->out[0]);
  for (int i = 0; i < p.members; i++) {
    p.rank[i] = (int)zp_group_member(m, rank, dims, i);
    p.ends[i] = zp_local_at(e, r->round->in[0], p.rank[i]);
    p.places[i] = zp_local_at(e, r->slots->out[0], p.rank[i]);
  }
  return p;
}

/* Returns how many rows the member brings. */
static int64_t rows_of(const Peers *p, int member, int64_t expert) {
  if (p->same && member != p->mine) return 0;
  return p->ends[member][expert] - (expert ? p->ends[member][expert - 1] : 0);
}

/* Returns where the rows of the owner's experts up to this one end among its own. */
static int64_t end_of(const Peers *p, int owner, int64_t expert) {
  int64_t n = 0;
  for (int64_t x = owner * p->own; x <= expert; x++)
    for (int i = 0; i < p->members; i++) n += rows_of(p, i, x);
  return n;
}

int64_t zp_eval_rounds(Eval *e, const Round *r) {
  int64_t most = 1;
  for (int rank = 0; rank < e->ranks; rank++) {
    Peers p = peers(e, r, rank);
    for (int owner = 0; owner < p.members; owner++) {
      int64_t rows = end_of(&p, owner, (owner + 1) * p.own - 1), rounds = (rows + r->rows - 1) / r->rows;
      if (rounds > most) most = rounds;
    }
  }
  return most;
}

/* Returns what is in the slots of an owner in this round. */
static Row *slots_of(Eval *e, const Peers *p, const Round *r, int owner) {
  Row *slot = ZB_NEWN(e->a, Row, r->rows + 1);
  int64_t at = -r->number * r->rows;
  for (int64_t i = 0; i < r->rows; i++) slot[i].place = -1;
  for (int64_t x = owner * p->own; x < (owner + 1) * p->own; x++)
    for (int i = 0; i < p->members; i++)
      for (int64_t row = p->same && i != p->mine ? p->ends[i][x]
                         : x                     ? p->ends[i][x - 1]
                                                 : 0;
           row < p->ends[i][x]; row++, at++)
        for (int64_t k = 0; k < p->nplaces && at >= 0 && at < r->rows; k++)
          if (p->places[i][k] == row) slot[at] = (Row){i, k};
  return slot;
}

/* ---- rows and tokens ----------------------------------------------------------------------------------- */
/* A row's features: axes that both its tokens and it have, beside those of places. */
typedef struct {
  ZkView rows, tokens, places;
  int64_t features;
} Sides;

/* Rows begin with the experts and their slots. */
static Sides sides(Eval *e, const ZpNode *n, int rank) {
  bool home = n->call.op == ZG_OP_COMBINE;
  Sides s = {zp_local_view(e, home ? n->in[0] : n->out[0], rank),
             zp_local_view(e, home ? n->out[0] : n->in[0], rank), zp_local_view(e, n->in[1], rank), 1};
  for (int a = 2; a < s.rows.rank; a++) s.features *= s.rows.size[a];
  return s;
}

/* Returns the token's element for a place and one of its features. */
static int64_t token(const Sides *s, int64_t place, int64_t feature) {
  int64_t i = 0;
  for (int a = s->places.rank; a-- > 0; place /= s->places.size[a]) {
    int k = zp_axis_at(&s->tokens, s->places.axis[a]);
    if (k >= 0) i += place % s->places.size[a] * s->tokens.stride[k];
  }
  for (int a = s->rows.rank; a-- > 2; feature /= s->rows.size[a]) {
    int k = zp_axis_at(&s->tokens, s->rows.axis[a]);
    if (k >= 0) i += feature % s->rows.size[a] * s->tokens.stride[k];
  }
  return i;
}

static void dispatch(Eval *e, const ZpNode *n, const Round *r, int rank, ZkResidue *to) {
  Peers p = peers(e, r, rank);
  Sides s = sides(e, n, rank);
  const Row *slot = slots_of(e, &p, r, p.mine);
  for (int64_t i = 0; i < r->rows; i++)
    for (int64_t f = 0; f < s.features && slot[i].place >= 0; f++) {
      const ZkResidue *from = zp_local_at(e, n->in[0], p.rank[slot[i].member]);
      to[i * s.features + f] = from[token(&s, slot[i].place, f)];
    }
}

static void combine(Eval *e, const ZpNode *n, const Round *r, int rank, ZkResidue *to) {
  Peers p = peers(e, r, rank);
  Sides s = sides(e, n, rank);
  for (int owner = 0; owner < p.members; owner++) {
    const Row *slot = slots_of(e, &p, r, owner);
    const ZkResidue *from = zp_local_at(e, n->in[0], p.rank[owner]);
    for (int64_t i = 0; i < r->rows; i++)
      for (int64_t f = 0; f < s.features && slot[i].place >= 0 && slot[i].member == p.mine; f++) {
        ZkResidue *x = &to[token(&s, slot[i].place, f)];
        *x = zk_residue_add(*x, from[i * s.features + f]);
      }
  }
}

static void begin_round(Eval *e, const Round *r, int rank, int32_t *now) {
  Peers p = peers(e, r, rank);
  for (int64_t x = 0; x < p.own; x++) {
    int64_t end = end_of(&p, p.mine, p.mine * p.own + x) - r->number * r->rows;
    now[x] = (int32_t)(end < 0 ? 0 : end > r->rows ? r->rows : end);
  }
}

void zp_eval_rows(Eval *e, const ZpNode *n, const Round *r) {
  void **made = ZB_NEWN(e->a, void *, e->ranks);
  for (int rank = 0; rank < e->ranks; rank++) {
    made[rank] = zp_local_new(e, n->out[0]);
    bool adds = n->call.op == ZG_OP_COMBINE && r->number > 0;
    if (adds)
      memcpy(made[rank], zp_local_at(e, n->out[0], rank),
             (size_t)zp_local_elements(e, n->out[0]) * sizeof(ZkResidue));
    if (n->call.op == ZG_OP_ROUND) begin_round(e, r, rank, made[rank]);
    else if (n->call.op == ZG_OP_DISPATCH) dispatch(e, n, r, rank, made[rank]);
    else combine(e, n, r, rank, made[rank]);
  }
  for (int rank = 0; rank < e->ranks; rank++) zp_local_put(e, n->out[0], rank, made[rank]);
}
