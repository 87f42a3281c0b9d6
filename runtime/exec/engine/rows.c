/* Rows of experts that other ranks have: dispatch and combine over the ranks that share the experts.
 *
 * A rank's rows are sorted by expert, so what goes to an owner is a run of them, and of a round a run of
 * that: rows of a lower slot come first. How many rows every rank has for every expert is gathered before the
 * first round. From these counts alone each rank knows every row's slot, what each message of each round has
 * in it, and how many rounds there are: as many as the busiest owner needs. An expert's rows are those of the
 * first rank, then of the second, and so on. An owner never receives more than a round's rows, nor does a
 * rank send more than it has: there is memory for both in the node's scratch.
 *
 * In a step of generation the ranks have the same tokens, and there is one round: a rank takes the rows of its own
 * experts, which follow each other, and in the end all get all rows, so that each adds up a token's choices in their
 * order, as one rank would.
 *
 * Hosts know the counts, since messages have their sizes. On a device the counts of a region are waited for,
 * once; all else is queued: what goes where is tables that hosts make and that go up before their use. A table
 * is written again when its last upload is done, which within a region of one round is long ago. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

/* Apart from those of transfers between stages, which count from 0. Fits into 23 bits, as some MPI have. */
enum { TAG = (1 << 23) - 2 };

typedef struct {
  int64_t members, mine;
  int *rank; /* of each member */
} Peers;

/* Where rows go in a dispatch, and in a combine. */
typedef struct {
  int32_t *packed; /* by row of this rank: its number among those that travel, from 1; 0: it does not */
  int32_t *map;    /* rows of an owner: by slot which of those that came, or by those that go which slot; -1:
                      none. Behind the last of a round: how many of this rank's rows travel */
} Tables;

struct ZxRows {
  Peers *of[1 << ZP_MAX_DIMS];
  const Peers *p; /* of the region that is played */
  /* By source and expert: the last row's end, rows, and the slot of the first, counted through all rounds. By
   * expert: the slot behind its last. */
  int32_t *ends, *count;
  int64_t *first, *end;
  uint64_t moved;                    /* bytes of this rank's rows of the last exchange */
  int64_t experts, own, each, round; /* own: experts of a rank; each: rows of a round */
  int32_t *now;                      /* by own expert: where its rows of the round end */
  Tables tables[2];                  /* of dispatch, of combine */
  char *pinned;                      /* that ends, now and tables lie in */
  ZxMessage *message;
  ZxRequest *request;
};
enum { EVENTS_NOW = 2 }; /* of uploads: those of tables, and of now */

/* ---- set-up -------------------------------------------------------------------------------------------- */
static Peers *peers_of(ZxEngine *e, ZpDims dims) {
  const ZpMesh *m = &e->p->layout.mesh;
  Peers *p = ZB_NEW(e->a, Peers);
  p->members = zp_group_size(m, dims);
  p->mine = zp_group_index(m, e->rank, dims);
  p->rank = ZB_NEWN(e->a, int, p->members);
  int64_t color = zp_group_color(m, e->rank, dims);
  for (int64_t r = 0; r < m->nranks; r++)
    if (zp_group_color(m, r, dims) == color) p->rank[zp_group_index(m, r, dims)] = (int)r;
  return p;
}

/* The most that any region's tables have. */
typedef struct {
  uint64_t members, experts, rows, each;
} Most;

static uint64_t count_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return n;
}

static void widen(uint64_t *most, uint64_t n) {
  if (n > *most) *most = n;
}

static void look_at_node(ZxEngine *e, const ZpNode *n, Most *most) {
  bool travels = n->dims && (n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE);
  if (travels) widen(&most->rows, count_of(&n->call.in[1]));
  if (n->call.op != ZG_OP_ROUND || (!n->dims && e->dev->host)) return;
  if (!e->rows) e->rows = ZB_NEW(e->a, ZxRows);
  if (n->dims && !e->rows->of[n->dims]) e->rows->of[n->dims] = peers_of(e, n->dims);
  widen(&most->members, n->dims ? (uint64_t)e->rows->of[n->dims]->members : 1);
  widen(&most->experts, (uint64_t)n->call.in[0].size[0]);
  widen(&most->each, (uint64_t)n->call.opt[1]);
}

/* Memory that the device can reach, for what goes up and comes down. */
static bool open_tables(ZxEngine *e, const Most *m, ZbErr *err) {
  ZxRows *r = e->rows;
  uint64_t all = m->members * m->experts, table = m->rows + m->each + 1;
  r->pinned = e->dev->pinned(e->env, (all + m->experts + 2 * table) * sizeof(int32_t), err);
  if (!r->pinned) return false;
  r->ends = (int32_t *)(void *)r->pinned;
  r->now = r->ends + all;
  for (int home = 0; home < 2; home++) {
    r->tables[home].packed = r->now + m->experts + (uint64_t)home * table;
    r->tables[home].map = r->tables[home].packed + m->rows;
  }
  return true;
}

bool zx_open_rows(ZxEngine *e, ZbErr *err) {
  Most most = {0};
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t j = 0; j < e->p->programs.segments[i].list[k].n; j++)
        look_at_node(e, &e->p->programs.segments[i].list[k].nodes[j], &most);
  ZxRows *r = e->rows;
  if (!r) return true;
  r->count = ZB_NEWN(e->a, int32_t, most.members * most.experts);
  r->first = ZB_NEWN(e->a, int64_t, most.members * most.experts);
  r->end = ZB_NEWN(e->a, int64_t, most.experts);
  r->message = ZB_NEWN(e->a, ZxMessage, 2 * most.members);
  r->request = ZB_NEWN(e->a, ZxRequest, 2 * most.members);
  return open_tables(e, &most, err);
}

void zx_close_rows(ZxEngine *e) {
  if (e->rows && e->rows->pinned) e->dev->unpin(e->env, e->rows->pinned);
}

/* Says whether the ranks that share experts have the same tokens. */
static bool same_tokens(const ZxEngine *e) { return e->p->stream != NULL; }

/* ---- rounds -------------------------------------------------------------------------------------------- */
/* The numbers of all members, on the host; a region of the rank's own experts, or of tokens that all have: its own. */
static void gather_ends(ZxEngine *e, const ZpNode *n, const ZkCall *c) {
  ZxRows *r = e->rows;
  size_t bytes = (size_t)r->experts * sizeof(int32_t);
  bool others = n->dims && !same_tokens(e);
  void *all = e->dev->host ? r->ends : others ? c->scratch : c->in[0].data;
  if (others) {
    zx_enter_nodes(e);
    ZxRequest q = e->c->t->all_gather(e->c, e->node_group[n->dims], c->in[0].data, bytes, all);
    zx_leave_nodes(e, ZP_MOST_ASYNC);
    zx_join_nodes(e, ZP_MOST_ASYNC, q);
  }
  if (e->dev->host) {
    if (!others) memcpy(r->ends, c->in[0].data, bytes);
    return;
  }
  e->dev->download(e->env, r->ends, all, bytes * (others ? (size_t)r->p->members : 1));
  e->dev->record(e->env, e->call_event);
  zx_await_event(e, e->call_event);
}

/* Of all members' rows, or of tokens that all have, one row each: rows of an owner's experts follow each other. */
static int64_t first_row(const ZxRows *r, int64_t owner) { return owner ? r->ends[owner * r->own - 1] : 0; }
static int64_t rows_owned(const ZxRows *r, int64_t owner) {
  return first_row(r, owner + 1) - first_row(r, owner);
}

static int64_t begin_same(ZxRows *r) {
  for (int64_t owner = 0; owner < r->p->members; owner++) {
    ZB_ASSERT(rows_owned(r, owner) <= r->each);
    for (int64_t x = owner * r->own; x < (owner + 1) * r->own; x++)
      r->end[x] = r->ends[x] - first_row(r, owner);
  }
  return 1;
}

/* No rows take 0 rounds; zx_run_list plays a region once at least. */
static int64_t rounds_for(const ZxRows *r, int64_t rows) { return (rows + r->each - 1) / r->each; }

int64_t zx_count_rounds(ZxEngine *e, const ZpNode *n, const ZkCall *c) {
  ZxRows *r = e->rows;
  if (!n->dims && e->dev->host) { /* nothing to gather, nor to keep */
    ZxRows own = {.each = c->opt[1]};
    return rounds_for(&own, ((const int32_t *)c->in[0].data)[c->in[0].size[0] - 1]);
  }
  r->p = r->of[n->dims];
  r->experts = c->in[0].size[0];
  r->each = c->opt[1];
  gather_ends(e, n, c);
  if (!n->dims) return rounds_for(r, r->ends[r->experts - 1]);
  const Peers *p = r->p;
  r->own = r->experts / p->members;
  if (same_tokens(e)) return begin_same(r);
  for (int64_t i = 0; i < p->members * r->experts; i++)
    r->count[i] = r->ends[i] - (i % r->experts ? r->ends[i - 1] : 0);
  int64_t most = 0;
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
  return rounds_for(r, most);
}

static int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x > most ? most : x; }

/* Before a table of the host's is written again: its last upload is done. */
static void free_table(ZxEngine *e, uint32_t which) {
  if (!e->dev->host) zx_await_event(e, e->rows_event + which);
}

void zx_begin_round(ZxEngine *e, const ZkCall *c) {
  ZxRows *r = e->rows;
  r->round = c->opt[0];
  free_table(e, EVENTS_NOW);
  for (int64_t x = 0; x < r->own; x++)
    r->now[x] = (int32_t)within(r->end[r->p->mine * r->own + x] - r->round * r->each, r->each);
  e->dev->upload(e->env, c->out[0].data, r->now, (size_t)r->own * sizeof *r->now);
  e->dev->record(e->env, e->rows_event + EVENTS_NOW);
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
/* Ranks come to their peers in ascending order, so that waiting for some of them ends. */
enum { AT_ONCE = ZX_STAGED_EVENTS / 2 };
static void send_all(ZxEngine *e, const ZpNode *n, int64_t count) {
  ZxRows *r = e->rows;
  const ZxCommTable *t = e->c->t;
  if (t->exchange) {
    zx_enter_nodes(e);
    ZxRequest q = t->exchange(e->c, e->node_group[n->dims], r->message, (int)count);
    zx_leave_nodes(e, ZP_MOST_ASYNC);
    zx_join_nodes(e, ZP_MOST_ASYNC, q);
    return;
  }
  for (int64_t from = 0, to = 0; from < count; from = to) {
    for (; to < count && to - from < AT_ONCE; to++) {
      const ZxMessage *m = &r->message[to];
      int peer = r->p->rank[m->member];
      r->request[to] =
          m->send ? t->send(e->c, m->p, m->bytes, peer, TAG) : t->recv(e->c, m->p, m->bytes, peer, TAG);
    }
    for (int64_t i = from; i < to; i++) zx_await(e, r->request[i]);
  }
}

/* All rows of this round between members: to their owners, or home from there. In both buffers what is
 * another member's lies together, in the order of members. */
static void exchange(ZxEngine *e, const ZpNode *node, char *send, char *recv, size_t row, bool home) {
  ZxRows *r = e->rows;
  const Peers *p = r->p;
  int64_t n = 0;
  for (int64_t i = 0; i < p->members; i++) {
    int64_t out = rows_between(r, p->mine, i), in = rows_between(r, i, p->mine);
    size_t sends = (size_t)(home ? in : out) * row, gets = (size_t)(home ? out : in) * row;
    if (i == p->mine) e->dev->copy(e->env, recv, send, sends);
    else {
      if (gets) r->message[n++] = (ZxMessage){recv, gets, (int)i, false};
      if (sends) r->message[n++] = (ZxMessage){send, sends, (int)i, true};
    }
    send += sends;
    recv += gets;
  }
  send_all(e, node, n);
}

/* Which of an owner's slots go with which of the rows that travel, in the order in which they do: by slot, or
 * home by row. Returns how many rows travel. */
static int64_t map_slots(const ZxRows *r, int32_t *map, bool home) {
  int64_t row = 0;
  for (int64_t s = 0; s < r->each && !home; s++) map[s] = -1;
  for (int64_t source = 0; source < r->p->members; source++)
    for (int64_t x = r->p->mine * r->own; x < (r->p->mine + 1) * r->own; x++) {
      Part q = part_of(r, source, x);
      for (int64_t i = 0; i < q.n; i++, row++) map[home ? row : q.at + i] = (int32_t)(home ? q.at + i : row);
    }
  return row;
}

/* The number of each of this rank's rows among those that travel in this round. Returns how many do. */
static int32_t number_rows(const ZxRows *r, int32_t *packed) {
  int64_t row = 0;
  int32_t count = 0;
  for (int64_t x = 0; x < r->experts; x++) {
    Part q = part_of(r, r->p->mine, x);
    int64_t all = r->count[r->p->mine * r->experts + x];
    for (int64_t i = 0; i < all; i++) packed[row++] = i >= q.from && i < q.from + q.n ? ++count : 0;
  }
  return count;
}

/* Where a device reads what the host has at `from`. */
static const int32_t *bring(ZxEngine *e, int32_t *room, const int32_t *from, uint64_t n) {
  if (e->dev->host) return from;
  e->dev->upload(e->env, room, from, n * sizeof *from);
  return room;
}

/* ---- of tokens that all have ---- */
/* Brings the rows of all owners to `all`, in the order of experts. */
static void gather_rows(ZxEngine *e, const ZpNode *node, const char *own, char *all, size_t row) {
  ZxRows *r = e->rows;
  int64_t n = 0, mine = r->p->mine;
  size_t sends = (size_t)rows_owned(r, mine) * row;
  for (int64_t i = 0; i < r->p->members; i++) {
    size_t gets = (size_t)rows_owned(r, i) * row;
    char *to = all + (size_t)first_row(r, i) * row;
    if (i == mine) {
      e->dev->copy(e->env, to, own, sends);
      continue;
    }
    if (gets) r->message[n++] = (ZxMessage){to, gets, (int)i, false};
    if (sends) r->message[n++] = (ZxMessage){(char *)(uintptr_t)own, sends, (int)i, true};
  }
  r->moved = sends * (uint64_t)(r->p->members - 1);
  send_all(e, node, n);
}

/* By which number of the rank's own rows a token's choice goes, from 0 on; -1: to another rank. */
static void number_own(const ZxRows *r, const int32_t *place, uint64_t n, int32_t *own) {
  int64_t first = first_row(r, r->p->mine), rows = rows_owned(r, r->p->mine);
  for (uint64_t i = 0; i < n; i++)
    own[i] = place[i] >= first && place[i] - first < rows ? (int32_t)(place[i] - first) : -1;
}

static void exchange_same(ZxEngine *e, const ZpNode *node, const ZkCall *c, size_t row) {
  ZxRows *r = e->rows;
  bool home = c->op == ZG_OP_COMBINE;
  ZkCall k = *c;
  ZkView *rows = home ? &k.in[0] : &k.out[0];
  uint64_t n = count_of(&c->in[1]);
  int32_t *count = &r->tables[home].map[r->each];
  *count = (int32_t)(home ? r->ends[r->experts - 1] : rows_owned(r, r->p->mine));
  if (home) {
    gather_rows(e, node, c->in[0].data, c->scratch, row);
    rows->data = c->scratch;
  } else {
    k.in[1].data = (char *)c->scratch + zb_round_up(n * row, 64);
    number_own(r, c->in[1].data, n, k.in[1].data);
  }
  rows->size[0] = 1, rows->size[1] = *count ? *count : 1;
  rows->stride[0] = rows->size[1] * rows->stride[1];
  k.in[2].data = count;
  k.in[2].size[0] = 1;
  e->dev->run(e->env, &k);
}

void zx_exchange_rows(ZxEngine *e, const ZpNode *node, const ZkCall *c) {
  ZxRows *r = e->rows;
  bool home = c->op == ZG_OP_COMBINE;
  const Tables *t = &r->tables[home];
  const ZkView *slots = home ? &c->in[0] : &c->out[0], *place = &c->in[1];
  size_t row = zk_plain_bytes((ZkElem)slots->elem);
  uint64_t n = count_of(place), each = (uint64_t)r->each;
  for (int i = 2; i < slots->rank; i++) row *= (size_t)slots->size[i];
  if (same_tokens(e)) {
    exchange_same(e, node, c, row);
    return;
  }
  char *own = c->scratch, *others = own + zb_round_up(n * row, 64); /* rows of this rank; of a round */
  int32_t *room = (int32_t *)(void *)(others + zb_round_up(each * row, 64));
  int32_t *to = room + zb_round_up(n, 16);
  free_table(e, home);
  int32_t count = t->map[each] = number_rows(r, t->packed);
  uint64_t travel = (uint64_t)map_slots(r, t->map, home);
  r->moved = (uint64_t)count * row;
  const int32_t *packed = bring(e, room, t->packed, n),
                *map = bring(e, to + zb_round_up(n, 16), t->map, each + 1);
  e->dev->record(e->env, e->rows_event + home);
  e->dev->gather(e->env, n, sizeof *to, place->data, packed, to);
  ZkCall k = *c; /* between tokens and the rows that travel, which are as many slots of one expert, from 1 */
  ZkView *rows = home ? &k.in[0] : &k.out[0];
  rows->data = own;
  rows->size[0] = 1;
  rows->size[1] = count ? count : 1;
  rows->stride[0] = rows->size[1] * rows->stride[1];
  k.in[1].data = to;
  k.in[2].data = (int32_t *)(uintptr_t)(map + each);
  k.in[2].size[0] = 1;
  k.opt[1] = 1;
  if (home) {
    e->dev->gather(e->env, travel, row, map, slots->data, others);
    exchange(e, node, others, own, row, true);
    e->dev->run(e->env, &k);
    return;
  }
  e->dev->run(e->env, &k);
  exchange(e, node, own, others, row, false);
  e->dev->gather(e->env, each, row, map, others, slots->data);
}

uint64_t zx_rows_moved(const ZxEngine *e) { return e->rows->moved; }
