/* A communicator of a device's memory by way of the host's: what is sent is copied to the host on the stream
 * of its queue, goes through the communicator of the host's memory, and what arrives is copied back on that
 * stream. So many ranks can share a device, and nothing but MPI is needed.
 *
 * Operations that start on one stream reach the inner communicator in that order, as its collectives
 * require. */
#include "runtime/exec/device/device.h"

#include <stdlib.h>

typedef enum { FREE, OUT, INNER, BACK } State; /* to the host; in the inner communicator; to the device */
typedef enum { SEND, RECV, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST } Kind;

typedef struct {
  State state;
  Kind kind;
  int queue, peer, tag; /* peer: or root */
  ZxGroup group;
  ZkElem elem;
  ZxReduce how;
  void *to;       /* on the device */
  size_t n, back; /* elements or bytes of the operation; bytes to the device */
  char *host;     /* what goes out, and what comes back: in its place, or after it */
  size_t size;    /* of the room at `host` */
  char *result;
  uint64_t order;
  ZxRequest request;
} Op;

typedef struct {
  ZxComm base;
  ZxComm *inner;
  const ZxDeviceTable *d;
  ZkEnv *env;
  uint32_t event;
  uint64_t order;
  Op op[ZX_STAGED_EVENTS];
} Staged;

static Staged *staged(ZxComm *c) { return (Staged *)c; }
static uint32_t event_of(const Staged *s, const Op *o) { return s->event + (uint32_t)(o - s->op); }

/* Rooms are kept: after the first step every slot has what it needs. */
static void need_room(Staged *s, Op *o, size_t size) {
  if (size <= o->size) return;
  ZbErr err = {0};
  if (o->host) s->d->unpin(s->env, o->host);
  o->host = s->d->pinned(s->env, size, &err);
  o->size = size;
  if (!o->host) zx_die(s->inner, "%s", err.text);
}

/* Starts operation `like`: `out` bytes at `from` go to the host. apart: what comes back must not lie over
 * them. */
static ZxRequest begin(Staged *s, Op like, const void *from, size_t out, bool apart) {
  Op *o = NULL;
  for (int i = 0; i < ZX_STAGED_EVENTS && !o; i++)
    if (s->op[i].state == FREE) o = &s->op[i];
  if (!o) ZB_BUG("more than %d operations of a communicator in flight", ZX_STAGED_EVENTS);
  size_t room = zb_round_up(out, 64);
  need_room(s, o, apart ? room + like.back : out > like.back ? out : like.back);
  like.host = o->host, like.size = o->size;
  like.result = o->host + (apart ? room : 0);
  like.queue = s->d->current(s->env);
  like.order = s->order++;
  like.state = OUT;
  *o = like;
  if (out) s->d->download(s->env, o->host, from, out);
  s->d->record(s->env, event_of(s, o));
  return (ZxRequest)(o - s->op);
}

static ZxRequest start_inner(Staged *s, Op *o) {
  ZxComm *c = s->inner;
  switch (o->kind) {
  case SEND: return c->t->send(c, o->host, o->n, o->peer, o->tag);
  case RECV: return c->t->recv(c, o->host, o->n, o->peer, o->tag);
  case ALL_REDUCE: return c->t->all_reduce(c, o->group, o->host, o->n, o->elem, o->how);
  case ALL_GATHER: return c->t->all_gather(c, o->group, o->host, o->n, o->result);
  case REDUCE_SCATTER: return c->t->reduce_scatter(c, o->group, o->host, o->n, o->elem, o->how, o->result);
  case ALL_TO_ALL: return c->t->all_to_all(c, o->group, o->host, o->n, o->result);
  case BROADCAST: return c->t->broadcast(c, o->group, o->host, o->n, o->peer);
  }
  ZB_BUG("operation %d", (int)o->kind);
}

static bool first_of_its_queue(const Staged *s, const Op *o) {
  for (int i = 0; i < ZX_STAGED_EVENTS; i++)
    if (s->op[i].state == OUT && s->op[i].queue == o->queue && s->op[i].order < o->order) return false;
  return true;
}

/* Moves on what can; several states in one call. */
static void advance(Staged *s, Op *o) {
  if (o->state == OUT && first_of_its_queue(s, o) && s->d->reached(s->env, event_of(s, o))) {
    o->request = start_inner(s, o);
    o->state = INNER;
  }
  if (o->state == INNER && s->inner->t->test(s->inner, o->request)) {
    int current = s->d->current(s->env);
    s->d->stream(s->env, o->queue);
    if (o->back) s->d->upload(s->env, o->to, o->result, o->back);
    s->d->record(s->env, event_of(s, o));
    s->d->stream(s->env, current);
    o->state = BACK;
  }
}

static bool staged_test(ZxComm *c, ZxRequest r) {
  if (r < 0) return true;
  Staged *s = staged(c);
  Op *o = &s->op[r];
  for (int i = 0; i < ZX_STAGED_EVENTS; i++) /* those before this one may be what it waits for */
    if (s->op[i].state == OUT || s->op[i].state == INNER) advance(s, &s->op[i]);
  if (o->state != BACK || !s->d->reached(s->env, event_of(s, o))) return false;
  o->state = FREE;
  return true;
}

static void staged_explain(ZxComm *c, ZxRequest r, ZbText *out) {
  const Staged *s = staged(c);
  const Op *o = &s->op[r];
  if (o->state == INNER && s->inner->t->explain) s->inner->t->explain(s->inner, o->request, out);
  else zb_text_add(out, "the device, to copy what is %s", o->state == BACK ? "received" : "sent");
}

static uint64_t staged_moves(ZxComm *c) {
  ZxComm *inner = staged(c)->inner;
  return staged(c)->order + (inner->t->moves ? inner->t->moves(inner) : 0);
}

/* ---- operations ---- */
static size_t members(const Staged *s, ZxGroup g) { return (size_t)s->inner->t->group_size(s->inner, g); }

/* A member alone has what it gets, but perhaps elsewhere. */
static ZxRequest alone(const Staged *s, void *to, const void *from, size_t bytes) {
  if (to != from) s->d->copy(s->env, to, from, bytes);
  return -1;
}

static ZxRequest staged_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  return begin(staged(c), (Op){.kind = SEND, .n = bytes, .peer = peer, .tag = tag}, p, bytes, false);
}
static ZxRequest staged_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  return begin(staged(c), (Op){.kind = RECV, .n = bytes, .peer = peer, .tag = tag, .to = p, .back = bytes},
               NULL, 0, false);
}
static ZxRequest staged_all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  size_t bytes = zk_bytes(elem, n);
  if (members(staged(c), g) == 1) return -1;
  Op o = {.kind = ALL_REDUCE, .group = g, .n = n, .elem = elem, .how = how, .to = p, .back = bytes};
  return begin(staged(c), o, p, bytes, false);
}
static ZxRequest staged_all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  if (members(staged(c), g) == 1) return alone(staged(c), out, part, bytes);
  Op o = {.kind = ALL_GATHER, .group = g, .n = bytes, .to = out, .back = bytes * members(staged(c), g)};
  return begin(staged(c), o, part, bytes, true);
}
static ZxRequest staged_reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem elem, ZxReduce how,
                                       void *out) {
  size_t bytes = zk_bytes(elem, n);
  if (members(staged(c), g) == 1) return alone(staged(c), out, in, bytes);
  Op o = {.kind = REDUCE_SCATTER, .group = g, .n = n, .elem = elem, .how = how, .to = out, .back = bytes};
  return begin(staged(c), o, in, bytes * members(staged(c), g), true);
}
static ZxRequest staged_all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  size_t all = bytes * members(staged(c), g);
  if (all == bytes) return alone(staged(c), out, in, bytes);
  return begin(staged(c), (Op){.kind = ALL_TO_ALL, .group = g, .n = bytes, .to = out, .back = all}, in, all,
               true);
}
static ZxRequest staged_broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  bool mine = staged(c)->inner->t->group_rank(staged(c)->inner, g) == root;
  if (members(staged(c), g) == 1) return -1;
  Op o = {.kind = BROADCAST, .group = g, .n = bytes, .peer = root, .to = p, .back = mine ? 0 : bytes};
  return begin(staged(c), o, p, mine ? bytes : 0, false);
}

/* ---- the rest is the inner one's ---- */
/* Only of a rank alone. */
static bool staged_stream_ordered(ZxComm *c) { return members(staged(c), 0) == 1; }
static int staged_rank(ZxComm *c) { return staged(c)->inner->t->rank(staged(c)->inner); }
static int staged_size(ZxComm *c) { return staged(c)->inner->t->size(staged(c)->inner); }
static int staged_node_rank(ZxComm *c) { return staged(c)->inner->t->node_rank(staged(c)->inner); }
static const int *staged_nodes(ZxComm *c) { return staged(c)->inner->t->nodes(staged(c)->inner); }
static ZxGroup staged_split(ZxComm *c, int color) {
  return staged(c)->inner->t->split(staged(c)->inner, color);
}
static int staged_group_rank(ZxComm *c, ZxGroup g) {
  return staged(c)->inner->t->group_rank(staged(c)->inner, g);
}
static int staged_group_size(ZxComm *c, ZxGroup g) {
  return staged(c)->inner->t->group_size(staged(c)->inner, g);
}
static void staged_barrier(ZxComm *c) { staged(c)->inner->t->barrier(staged(c)->inner); }
static void staged_progress(ZxComm *c) {
  ZxComm *inner = staged(c)->inner;
  if (inner->t->progress) inner->t->progress(inner);
}
static __attribute__((noreturn)) void staged_abort(ZxComm *c, int code) {
  staged(c)->inner->t->abort(staged(c)->inner, code);
}

/* The inner communicator is not ours to free. */
static void staged_free(ZxComm *c) {
  Staged *s = staged(c);
  for (int i = 0; i < ZX_STAGED_EVENTS; i++)
    if (s->op[i].host) s->d->unpin(s->env, s->op[i].host);
  free(s);
}

static const ZxCommTable table = {
    .name = "staged",
    .rank = staged_rank,
    .size = staged_size,
    .node_rank = staged_node_rank,
    .nodes = staged_nodes,
    .split = staged_split,
    .group_rank = staged_group_rank,
    .group_size = staged_group_size,
    .send = staged_send,
    .recv = staged_recv,
    .all_reduce = staged_all_reduce,
    .all_gather = staged_all_gather,
    .reduce_scatter = staged_reduce_scatter,
    .all_to_all = staged_all_to_all,
    .broadcast = staged_broadcast,
    .test = staged_test,
    .wait = zx_wait,
    .explain = staged_explain,
    .moves = staged_moves,
    .barrier = staged_barrier,
    .stream_ordered = staged_stream_ordered,
    .progress = staged_progress,
    .abort = staged_abort,
    .free = staged_free,
};

ZxComm *zx_comm_staged(ZxComm *inner, const ZxDeviceTable *d, ZkEnv *env, uint32_t event) {
  Staged *s = zx_need(calloc(1, sizeof *s));
  *s = (Staged){.base.t = &table, .inner = inner, .d = d, .env = env, .event = event};
  return &s->base;
}
