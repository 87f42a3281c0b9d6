/* Rows of experts that other ranks have: dispatch and combine over the ranks that share the experts.
 *
 * A rank's rows are sorted by expert, so what goes to an owner is a run of them, and of a round a run of
 * that: rows of a lower slot come first. How many rows every rank has for every expert is gathered before the
 * first round. From these counts alone each rank knows every row's slot, what each message of each round has
 * in it, and how many rounds there are: as many as the busiest owner needs. An expert's rows are those of the
 * first rank, then of the second, and so on. An owner never receives more than a round's rows, nor does a
 * rank send more than it has: there is memory for both in the node's scratch. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

/* Apart from those of transfers between stages, which count from 0. Fits into 23 bits, as some MPI have. */
enum { TAG = (1 << 23) - 2 };

typedef struct {
  int64_t members, mine;
  int *rank; /* of each member */
} Peers;

struct ZxRows {
  Peers *of[1 << ZP_MAX_DIMS];
  const Peers *p; /* of the region that is played */
  /* By source and expert: rows, and the slot of the first, counted through all rounds. By expert: the slot
   * behind its last. */
  int32_t *count;
  int64_t *first, *end;
  int64_t experts, own, each, round; /* own: experts of a rank; each: rows of a round */
  int32_t *mine;                     /* by expert, of this rank; then what all have */
  ZxRequest *request;
};

/* ---- set-up -------------------------------------------------------------------------------------------- */
static Peers *peers_of(ZxEngine *e, ZpDims dims) {
  const ZpMesh *m = &e->p->mesh;
  Peers *p = ZB_NEW(e->a, Peers);
  p->members = zp_group_size(m, dims);
  p->mine = zp_group_index(m, e->rank, dims);
  p->rank = ZB_NEWN(e->a, int, p->members);
  int64_t color = zp_group_color(m, e->rank, dims);
  for (int64_t r = 0; r < m->nranks; r++)
    if (zp_group_color(m, r, dims) == color) p->rank[zp_group_index(m, r, dims)] = (int)r;
  return p;
}

void zx_open_rows(ZxEngine *e) {
  int64_t members = 0, experts = 0;
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t j = 0; j < e->p->segments[i].list[k].n; j++) {
        const ZpNode *n = &e->p->segments[i].list[k].nodes[j];
        if (n->call.op != ZG_OP_ROUND || !n->dims) continue;
        if (!e->rows) e->rows = ZB_NEW(e->a, ZxRows);
        if (!e->rows->of[n->dims]) e->rows->of[n->dims] = peers_of(e, n->dims);
        int64_t m = e->rows->of[n->dims]->members, x = n->call.in[0].size[0];
        if (m > members) members = m;
        if (x > experts) experts = x;
      }
  ZxRows *r = e->rows;
  if (!r) return;
  r->count = ZB_NEWN(e->a, int32_t, members * experts);
  r->first = ZB_NEWN(e->a, int64_t, members * experts);
  r->end = ZB_NEWN(e->a, int64_t, experts);
  r->mine = ZB_NEWN(e->a, int32_t, experts);
  r->request = ZB_NEWN(e->a, ZxRequest, 2 * members);
}

/* ---- rounds -------------------------------------------------------------------------------------------- */
int64_t zx_gather_rows(ZxEngine *e, const ZpNode *n, const int32_t *ends) {
  ZxRows *r = e->rows;
  const Peers *p = r->p = r->of[n->dims];
  r->experts = n->call.in[0].size[0];
  r->own = r->experts / p->members;
  r->each = n->call.opt[1];
  for (int64_t x = 0; x < r->experts; x++) r->mine[x] = ends[x] - (x ? ends[x - 1] : 0);
  zx_await(e, e->c->t->all_gather(e->c, e->node_group[n->dims], r->mine, (size_t)r->experts * sizeof *r->mine,
                                  r->count));
  int64_t most = 1;
  for (int64_t owner = 0, slot; owner < p->members; owner++) {
    slot = 0;
    for (int64_t x = owner * r->own; x < (owner + 1) * r->own; x++) {
      for (int64_t source = 0; source < p->members; source++) {
        r->first[source * r->experts + x] = slot;
        slot += r->count[source * r->experts + x];
      }
      r->end[x] = slot;
    }
    if (slot > most) most = slot;
  }
  return (most + r->each - 1) / r->each;
}

static int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

void zx_begin_round(ZxEngine *e, const ZkCall *c) {
  ZxRows *r = e->rows;
  r->round = c->opt[0];
  int32_t *now = c->out[0].data;
  for (int64_t x = 0; x < r->own; x++)
    now[x] = (int32_t)within(r->end[r->p->mine * r->own + x] - r->round * r->each, r->each);
}

/* Which of a source's rows of an expert this round has: from..from+n; the first has slot `at` of the round. */
typedef struct {
  int64_t from, n, at;
} Part;

static Part part_of(const ZxRows *r, int64_t source, int64_t expert) {
  int64_t i = source * r->experts + expert, begin = r->round * r->each - r->first[i];
  int64_t from = within(begin, r->count[i]), to = within(begin + r->each, r->count[i]);
  return (Part){from, to - from, from - begin};
}

/* Rows from a source to an owner. */
static int64_t rows_between(const ZxRows *r, int64_t source, int64_t owner) {
  int64_t n = 0;
  for (int64_t x = owner * r->own; x < (owner + 1) * r->own; x++) n += part_of(r, source, x).n;
  return n;
}

/* ---- exchange ------------------------------------------------------------------------------------------ */
/* All rows of this round between members: to their owners, or home from there. In both buffers what is
 * another member's lies together, in the order of members. */
static void exchange(ZxEngine *e, char *send, char *recv, size_t row, bool home) {
  ZxRows *r = e->rows;
  const ZxCommTable *t = e->c->t;
  const Peers *p = r->p;
  int64_t n = 0;
  for (int64_t i = 0; i < p->members; i++) {
    int64_t out = rows_between(r, p->mine, i), in = rows_between(r, i, p->mine);
    size_t sends = (size_t)(home ? in : out) * row, gets = (size_t)(home ? out : in) * row;
    if (i == p->mine) memcpy(recv, send, sends);
    else {
      if (gets) r->request[n++] = t->recv(e->c, recv, gets, p->rank[i], TAG);
      if (sends) r->request[n++] = t->send(e->c, send, sends, p->rank[i], TAG);
    }
    send += sends;
    recv += gets;
  }
  for (int64_t i = 0; i < n; i++) zx_await(e, r->request[i]);
}

/* An owner's rows: between slots and the order in which they travel. */
static void sort_slots(const ZxRows *r, char *slots, char *travels, size_t row, bool home) {
  for (int64_t source = 0; source < r->p->members; source++)
    for (int64_t x = r->p->mine * r->own; x < (r->p->mine + 1) * r->own; x++) {
      Part q = part_of(r, source, x);
      char *slot = slots + (size_t)q.at * row;
      if (q.n) memcpy(home ? travels : slot, home ? slot : travels, (size_t)q.n * row);
      travels += (size_t)q.n * row;
    }
}

/* The place of each of this rank's rows among those that travel in this round, or -1. Returns how many do. */
static int64_t places(const ZxRows *r, const ZkView *place, int32_t *packed, int32_t *to) {
  int64_t n = 1, row = 0, count = 0;
  for (int i = 0; i < place->rank; i++) n *= place->size[i];
  for (int64_t x = 0; x < r->experts; x++) {
    Part q = part_of(r, r->p->mine, x);
    int64_t all = r->count[r->p->mine * r->experts + x];
    for (int64_t i = 0; i < all; i++) packed[row++] = i >= q.from && i < q.from + q.n ? (int32_t)count++ : -1;
  }
  const int32_t *from = place->data;
  for (int64_t i = 0; i < n; i++) to[i] = from[i] < 0 ? -1 : packed[from[i]];
  return count;
}

void zx_exchange_rows(ZxEngine *e, const ZkCall *c) {
  ZxRows *r = e->rows;
  bool home = c->op == ZG_OP_COMBINE;
  const ZkView *slots = home ? &c->in[0] : &c->out[0], *place = &c->in[1];
  size_t row = zk_elem_bytes((ZkElem)slots->elem);
  uint64_t n = 1;
  for (int i = 2; i < slots->rank; i++) row *= (size_t)slots->size[i];
  for (int i = 0; i < place->rank; i++) n *= (uint64_t)place->size[i];
  char *own = c->scratch, *others = own + zb_round_up(n * row, 64); /* rows of this rank; of a round */
  int32_t *packed = (int32_t *)(others + zb_round_up((uint64_t)r->each * row, 64));
  int32_t *to = packed + zb_round_up(n, 16), count = (int32_t)places(r, place, packed, to);
  ZkCall k = *c; /* between tokens and the rows that travel, which are as many slots of one expert */
  ZkView *rows = home ? &k.in[0] : &k.out[0];
  rows->data = own;
  rows->size[0] = 1;
  rows->size[1] = count ? count : 1;
  rows->stride[0] = rows->size[1] * rows->stride[1];
  k.in[1].data = to;
  k.in[2].data = &count;
  k.in[2].size[0] = 1;
  k.opt[1] = 0;
  if (!home) {
    e->dev->run(e->env, &k);
    exchange(e, own, others, row, false);
    sort_slots(r, slots->data, others, row, false);
    int64_t used = within(r->end[(r->p->mine + 1) * r->own - 1] - r->round * r->each, r->each);
    memset((char *)slots->data + (size_t)used * row, 0, (size_t)(r->each - used) * row);
    return;
  }
  sort_slots(r, slots->data, others, row, true);
  exchange(e, others, own, row, true);
  e->dev->run(e->env, &k);
}
