/* See queued.h. */
#include "tests/unit/exec/engine/queued.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "tests/scenarios/tools/device_threads.h"
#include "tests/unit/exec/engine/world.h"

typedef struct {
  ZxComm base;
  ZxComm *world;
  ZkEnv *env;
  ZxGroup all; /* who asks the world's own group is the host */
  int peer[2], npeers;
} Queued;
static Queued *of(ZxComm *c) { return (Queued *)c; }

_Atomic int queued_rebuilt;

/* ---- what a stream does ---- */
typedef enum { SEND, RECV, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, EXCHANGE } Kind;
enum { TAG = 7, MESSAGES = 16 };
typedef struct {
  Kind kind;
  ZxComm *world;
  ZxGroup g;
  const void *in;
  void *p;
  size_t n;
  int peer; /* or root, or the number of messages */
  ZkElem elem;
  ZxReduce how;
  ZxMessage message[MESSAGES];
} Op;

static ZxRequest start(const Op *o) {
  ZxComm *c = o->world;
  const ZxCommTable *t = c->t;
  switch (o->kind) {
  case SEND: return t->send(c, o->in, o->n, o->peer, TAG);
  case RECV: return t->recv(c, o->p, o->n, o->peer, TAG);
  case ALL_REDUCE: return t->all_reduce(c, o->g, o->p, o->n, o->elem, o->how);
  case ALL_GATHER: return t->all_gather(c, o->g, o->in, o->n, o->p);
  case REDUCE_SCATTER:
    return t->reduce_scatter(c, o->g, (void *)(uintptr_t)o->in, o->n, o->elem, o->how, o->p);
  case ALL_TO_ALL: return t->all_to_all(c, o->g, o->in, o->n, o->p);
  case BROADCAST: return t->broadcast(c, o->g, o->p, o->n, o->peer);
  case EXCHANGE: return t->exchange(c, o->g, o->message, o->peer);
  }
  ZB_BUG("no operation %d", o->kind);
}

static void do_op(const void *args) {
  const Op *o = args;
  world_await(o->world, start(o));
}

static ZxRequest queue(ZxComm *c, Op o) {
  o.world = of(c)->world;
  ZB_ASSERT(o.g >= 0); /* was made */
  if (!o.g) o.g = of(c)->all;
  threads_push(of(c)->env, do_op, &o, sizeof o);
  return -1;
}

/* ---- the table ---- */
static int rank_of(ZxComm *c) { return of(c)->world->t->rank(of(c)->world); }
static int size_of(ZxComm *c) { return of(c)->world->t->size(of(c)->world); }
static int node_rank(ZxComm *c) { return of(c)->world->t->node_rank(of(c)->world); }
static const int *nodes(ZxComm *c) { return of(c)->world->t->nodes(of(c)->world); }
static ZxGroup split(ZxComm *c, int color) { return of(c)->world->t->split(of(c)->world, color); }
static int group_rank(ZxComm *c, ZxGroup g) { return of(c)->world->t->group_rank(of(c)->world, g); }
static int group_size(ZxComm *c, ZxGroup g) { return of(c)->world->t->group_size(of(c)->world, g); }

static void connect_peers(ZxComm *c, const int *peer, int n) {
  ZB_ASSERT(!of(c)->npeers && n > 0 && n <= 2);
  for (int i = 0; i < n; i++) of(c)->peer[of(c)->npeers++] = peer[i];
}
static int known(ZxComm *c, int peer) {
  bool is = false;
  for (int i = 0; i < of(c)->npeers; i++) is |= of(c)->peer[i] == peer;
  if (!is) ZB_BUG("rank %d has no connection to rank %d", rank_of(c), peer);
  return peer;
}

static ZxRequest send_to(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  return (void)tag, queue(c, (Op){.kind = SEND, .in = p, .n = bytes, .peer = known(c, peer)});
}
static ZxRequest recv_from(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  return (void)tag, queue(c, (Op){.kind = RECV, .p = p, .n = bytes, .peer = known(c, peer)});
}
static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  return queue(c, (Op){.kind = ALL_REDUCE, .g = g, .p = p, .n = n, .elem = elem, .how = how});
}
static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  return queue(c, (Op){.kind = ALL_GATHER, .g = g, .in = part, .n = bytes, .p = out});
}
static ZxRequest reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem elem, ZxReduce how,
                                void *out) {
  return queue(c, (Op){.kind = REDUCE_SCATTER, .g = g, .in = in, .n = n, .elem = elem, .how = how, .p = out});
}
static ZxRequest all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  return queue(c, (Op){.kind = ALL_TO_ALL, .g = g, .in = in, .n = bytes, .p = out});
}
static ZxRequest broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  return queue(c, (Op){.kind = BROADCAST, .g = g, .p = p, .n = bytes, .peer = root});
}
static ZxRequest exchange(ZxComm *c, ZxGroup g, const ZxMessage *m, int n) {
  Op o = {.kind = EXCHANGE, .g = g, .peer = n};
  ZB_ASSERT(n <= MESSAGES);
  for (int i = 0; i < n; i++) o.message[i] = m[i];
  return queue(c, o);
}

static bool test(ZxComm *c, ZxRequest r) { return (void)c, r < 0; }
static void wait(ZxComm *c, ZxRequest r) { ZB_ASSERT(test(c, r)); }
static void barrier(ZxComm *c) { of(c)->world->t->barrier(of(c)->world); }
static bool ordered(ZxComm *c) { return (void)c, true; }
static const char *describe(ZxComm *c) { return (void)c, "streams of threads"; }
static void rebuild(ZxComm *c) { (void)c, queued_rebuilt++; }
static __attribute__((noreturn)) void end(ZxComm *c, int code) { of(c)->world->t->abort(of(c)->world, code); }
static void drop(ZxComm *c) { free(c); }

static const ZxCommTable table = {.name = "queued",
                                  .describe = describe,
                                  .rank = rank_of,
                                  .size = size_of,
                                  .node_rank = node_rank,
                                  .nodes = nodes,
                                  .split = split,
                                  .group_rank = group_rank,
                                  .group_size = group_size,
                                  .connect = connect_peers,
                                  .send = send_to,
                                  .recv = recv_from,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .reduce_scatter = reduce_scatter,
                                  .all_to_all = all_to_all,
                                  .broadcast = broadcast,
                                  .exchange = exchange,
                                  .test = test,
                                  .wait = wait,
                                  .barrier = barrier,
                                  .stream_ordered = ordered,
                                  .rebuild = rebuild,
                                  .abort = end,
                                  .free = drop};

static ZxComm *queued(ZxComm *world, ZkEnv *env, const char **why) {
  (void)why;
  Queued *q = zx_need(calloc(1, sizeof *q));
  q->base.t = &table;
  q->world = world;
  q->env = env;
  q->all = world->t->split(world, 0);
  return &q->base;
}

const ZxDeviceTable *queued_device(void) {
  static ZxDeviceTable t;
  t = *zx_devices[0];
  t.comm = queued;
  return &t;
}
