/* See world.h. */
#include "tests/unit/exec/engine/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, MESSAGE } Kind;

/* One operation: of a group, its members' number `seq` there; or a message. */
typedef struct Op Op;
struct Op {
  Op *next;
  Kind kind;
  int members, arrived, left; /* left: who has not been told that it is done */
  int patience;               /* it is done when so many have asked for it in vain */
  bool done;
  ZxGroup group;
  int color;
  uint64_t seq;
  size_t n; /* elements, or bytes */
  ZkElem elem;
  ZxReduce how;
  int root;
  const void *in[WORLD_MOST];
  void *out[WORLD_MOST];
  bool has[WORLD_MOST];
  int from, to, tag; /* of a message: in[0], out[0] */
};

enum { GROUPS = 256, REQUESTS = 512 };
typedef struct {
  int n, left;
  ZxRequest request[2 * WORLD_MOST];
} Exchange;
typedef struct {
  ZxComm base;
  World *w;
  int rank;
  int ngroups;
  uint64_t seq[GROUPS];
  Op *open[REQUESTS];
  Exchange *exchange[REQUESTS]; /* in place of an operation */
} Rank;

struct World {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int n;
  Rank rank[WORLD_MOST];
  int color[GROUPS][WORLD_MOST];
  int told[GROUPS]; /* ranks that have said their color */
  Op *ops;
  uint64_t done, drawn;
};

static Rank *of(ZxComm *c) { return (Rank *)c; }

/* ---- groups ---- */
static int rank_of(ZxComm *c) { return of(c)->rank; }
static int size_of(ZxComm *c) { return of(c)->w->n; }
static const int *nodes(ZxComm *c) {
  static const int one[WORLD_MOST];
  return (void)c, one;
}

static ZxGroup split(ZxComm *c, int color) {
  Rank *r = of(c);
  World *w = r->w;
  int g = ++r->ngroups;
  ZB_ASSERT(g < GROUPS);
  pthread_mutex_lock(&w->lock);
  w->color[g][r->rank] = color;
  w->told[g]++;
  pthread_cond_broadcast(&w->changed);
  while (w->told[g] < w->n) pthread_cond_wait(&w->changed, &w->lock);
  pthread_mutex_unlock(&w->lock);
  return color < 0 ? -1 : g;
}

/* The members of r's group, in their order; its own number among them. */
static int members_of(const Rank *r, ZxGroup g, int *mine) {
  int n = 0;
  for (int i = 0; i < r->w->n; i++) {
    if (r->w->color[g][i] != r->w->color[g][r->rank]) continue;
    if (i == r->rank) *mine = n;
    n++;
  }
  return n;
}
static int group_rank(ZxComm *c, ZxGroup g) {
  int mine = -1;
  members_of(of(c), g, &mine);
  return mine;
}
static int group_size(ZxComm *c, ZxGroup g) {
  int mine;
  return members_of(of(c), g, &mine);
}

/* ---- what is done ---- */
static void *scratch_of(size_t bytes) { return zx_need(malloc(bytes + 1)); }

static void reduce(const Op *o, size_t at, size_t n, void *out) {
  const void *part[WORLD_MOST];
  for (int k = 0; k < o->members; k++) part[k] = (const char *)o->in[k] + zk_bytes(o->elem, at);
  zx_combine(out, part, o->members, n, o->elem, o->how);
}

static void carry_out(Op *o) {
  size_t m = (size_t)o->members, bytes = zk_bytes(o->elem, o->n);
  char *all = scratch_of(m * m * bytes);
  switch (o->kind) {
  case ALL_REDUCE:
    reduce(o, 0, o->n, all);
    for (size_t k = 0; k < m; k++) memcpy(o->out[k], all, bytes);
    break;
  case REDUCE_SCATTER:
    for (size_t k = 0; k < m; k++) reduce(o, k * o->n, o->n, all + k * bytes);
    for (size_t k = 0; k < m; k++) memcpy(o->out[k], all + k * bytes, bytes);
    break;
  case ALL_GATHER:
    for (size_t k = 0; k < m; k++) memcpy(all + k * bytes, o->in[k], bytes);
    for (size_t k = 0; k < m; k++) memcpy(o->out[k], all, m * bytes);
    break;
  case ALL_TO_ALL:
    for (size_t k = 0; k < m; k++)
      for (size_t i = 0; i < m; i++)
        memcpy(all + (k * m + i) * bytes, (const char *)o->in[i] + k * bytes, bytes);
    for (size_t k = 0; k < m; k++) memcpy(o->out[k], all + k * m * bytes, m * bytes);
    break;
  case BROADCAST:
    for (int k = 0; k < o->members; k++)
      if (k != o->root) memcpy(o->out[k], o->in[o->root], bytes);
    break;
  case MESSAGE: memcpy(o->out[0], o->in[0], bytes); break;
  }
  free(all);
  o->done = true;
}

/* ---- requests ---- */
static ZxRequest place(const Rank *r) {
  for (int i = 0; i < REQUESTS; i++)
    if (!r->open[i] && !r->exchange[i]) return i;
  ZB_BUG("rank %d has %d open requests", r->rank, REQUESTS);
}
static ZxRequest open_request(Rank *r, Op *o) {
  ZxRequest q = place(r);
  r->open[q] = o;
  return q;
}

static Op *add(World *w, Op what) {
  Op *o = zx_need(malloc(sizeof *o));
  *o = what;
  o->next = w->ops;
  o->patience = (int)(zb_mix64(w->drawn++) % 4);
  return w->ops = o;
}

static void drop(World *w, Op *o) {
  Op **at = &w->ops;
  while (*at != o) at = &(*at)->next;
  *at = o->next;
  free(o);
}

static ZxRequest collective(ZxComm *c, Op what, const void *in, void *out) {
  Rank *r = of(c);
  World *w = r->w;
  int mine = -1;
  pthread_mutex_lock(&w->lock);
  what.members = what.left = members_of(r, what.group, &mine);
  what.color = w->color[what.group][r->rank];
  ZB_ASSERT(what.color >= 0 && mine >= 0);
  what.seq = r->seq[what.group]++;
  Op *o = w->ops;
  while (o && (o->kind == MESSAGE || o->group != what.group || o->color != what.color || o->seq != what.seq))
    o = o->next;
  if (!o) o = add(w, what);
  if (o->kind != what.kind || o->n != what.n || o->elem != what.elem || o->how != what.how ||
      o->root != what.root)
    ZB_BUG("rank %d does another operation than others of its group: %d of %zu, not %d of %zu", r->rank,
           what.kind, what.n, o->kind, o->n);
  ZB_ASSERT(!o->has[mine]);
  o->in[mine] = in;
  o->out[mine] = out;
  o->has[mine] = true;
  o->arrived++;
  pthread_cond_broadcast(&w->changed);
  ZxRequest q = open_request(r, o);
  pthread_mutex_unlock(&w->lock);
  return q;
}

static ZxRequest message(ZxComm *c, const void *in, void *out, size_t bytes, int from, int to, int tag) {
  Rank *r = of(c);
  World *w = r->w;
  bool sends = in != NULL;
  ZB_ASSERT(from != to && from >= 0 && to >= 0 && from < w->n && to < w->n);
  pthread_mutex_lock(&w->lock);
  Op *found = NULL;
  for (Op *o = w->ops; o; o = o->next) /* the oldest is the last */
    if (o->kind == MESSAGE && o->from == from && o->to == to && o->tag == tag && !o->has[!sends]) found = o;
  if (!found)
    found = add(w, (Op){.kind = MESSAGE,
                        .members = 2,
                        .left = 2,
                        .n = bytes,
                        .elem = ZK_U8,
                        .from = from,
                        .to = to,
                        .tag = tag});
  if (found->n != bytes) ZB_BUG("%d -> %d, tag %d: %zu bytes, and %zu", from, to, tag, bytes, found->n);
  if (sends) found->in[0] = in;
  else found->out[0] = out;
  found->has[!sends] = true;
  found->arrived++;
  pthread_cond_broadcast(&w->changed);
  ZxRequest q = open_request(r, found);
  pthread_mutex_unlock(&w->lock);
  return q;
}

static bool test(ZxComm *c, ZxRequest q);
static bool test_exchange(ZxComm *c, ZxRequest q) {
  Rank *r = of(c);
  Exchange *x = r->exchange[q];
  for (int i = 0; i < x->n; i++)
    if (x->request[i] >= 0 && test(c, x->request[i])) x->request[i] = -1, x->left--;
  if (x->left) return false;
  pthread_mutex_lock(&r->w->lock);
  r->exchange[q] = NULL;
  pthread_mutex_unlock(&r->w->lock);
  free(x);
  return true;
}

/* The lock is held: whether it is done, and then it is r's no more. */
static bool look(Rank *r, ZxRequest q, bool patient) {
  Op *o = r->open[q];
  ZB_ASSERT(o != NULL);
  if (!o->done && o->arrived == o->members && (!patient || o->patience-- <= 0)) carry_out(o), r->w->done++;
  if (!o->done) return false;
  r->open[q] = NULL;
  if (--o->left == 0) drop(r->w, o);
  return true;
}

static bool test(ZxComm *c, ZxRequest q) {
  Rank *r = of(c);
  if (q < 0) return true;
  ZB_ASSERT(q < REQUESTS);
  if (r->exchange[q]) return test_exchange(c, q);
  pthread_mutex_lock(&r->w->lock);
  bool done = look(r, q, true);
  pthread_mutex_unlock(&r->w->lock);
  return done;
}

void world_await(ZxComm *c, ZxRequest q) {
  Rank *r = of(c);
  Exchange *x = q < 0 ? NULL : r->exchange[q];
  if (x) {
    for (int i = 0; i < x->n; i++) world_await(c, x->request[i]), x->request[i] = -1;
    x->left = 0;
    test_exchange(c, q); /* gives it back */
    return;
  }
  pthread_mutex_lock(&r->w->lock);
  while (q >= 0 && !look(r, q, false)) pthread_cond_wait(&r->w->changed, &r->w->lock);
  pthread_mutex_unlock(&r->w->lock);
}

/* ---- the table ---- */
static ZxRequest send_to(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  return message(c, p, NULL, bytes, of(c)->rank, peer, tag);
}
static ZxRequest recv_from(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  return message(c, NULL, p, bytes, peer, of(c)->rank, tag);
}
static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  return collective(c, (Op){.kind = ALL_REDUCE, .group = g, .n = n, .elem = elem, .how = how}, p, p);
}
static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  return collective(c, (Op){.kind = ALL_GATHER, .group = g, .n = bytes, .elem = ZK_U8}, part, out);
}
static ZxRequest reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem elem, ZxReduce how,
                                void *out) {
  return collective(c, (Op){.kind = REDUCE_SCATTER, .group = g, .n = n, .elem = elem, .how = how}, in, out);
}
static ZxRequest all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  return collective(c, (Op){.kind = ALL_TO_ALL, .group = g, .n = bytes, .elem = ZK_U8}, in, out);
}
static ZxRequest broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  return collective(c, (Op){.kind = BROADCAST, .group = g, .n = bytes, .elem = ZK_U8, .root = root}, p, p);
}
/* By tags that nobody else has; those between two members are in one order. */
static ZxRequest exchange(ZxComm *c, ZxGroup g, const ZxMessage *m, int n) {
  Rank *r = of(c);
  Exchange *x = zx_need(malloc(sizeof *x));
  *x = (Exchange){.n = n, .left = n};
  ZB_ASSERT(n <= 2 * WORLD_MOST);
  for (int i = 0; i < n; i++) {
    int peer = 0;
    for (int k = 0, at = 0; k < r->w->n; k++)
      if (r->w->color[g][k] == r->w->color[g][r->rank] && at++ == m[i].member) peer = k;
    x->request[i] = m[i].send ? message(c, m[i].p, NULL, m[i].bytes, r->rank, peer, -1 - g)
                              : message(c, NULL, m[i].p, m[i].bytes, peer, r->rank, -1 - g);
  }
  pthread_mutex_lock(&r->w->lock);
  ZxRequest q = place(r);
  r->exchange[q] = x;
  pthread_mutex_unlock(&r->w->lock);
  return q;
}

static void barrier(ZxComm *c) {
  double x = 0;
  zx_wait(c, all_reduce(c, 0, &x, 1, ZK_F64, ZX_SUM));
}
static void nothing(ZxComm *c) { (void)c; }
static __attribute__((noreturn)) void end(ZxComm *c, int code) {
  (void)c, (void)code;
  abort();
}

static const ZxCommTable table = {.name = "threads",
                                  .rank = rank_of,
                                  .size = size_of,
                                  .node_rank = rank_of,
                                  .nodes = nodes,
                                  .split = split,
                                  .group_rank = group_rank,
                                  .group_size = group_size,
                                  .send = send_to,
                                  .recv = recv_from,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .reduce_scatter = reduce_scatter,
                                  .all_to_all = all_to_all,
                                  .broadcast = broadcast,
                                  .test = test,
                                  .wait = zx_wait,
                                  .barrier = barrier,
                                  .abort = end,
                                  .free = nothing};

/* ---- a world ---- */
static World *world_of(int ranks, const ZxCommTable *t) {
  ZB_ASSERT(ranks <= WORLD_MOST);
  World *w = zx_need(calloc(1, sizeof *w));
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, NULL);
  w->n = ranks;
  for (int i = 0; i < ranks; i++) {
    w->rank[i].base.t = t;
    w->rank[i].w = w;
    w->rank[i].rank = i;
  }
  return w;
}

World *world_new(int ranks) { return world_of(ranks, &table); }
World *world_exchanging(int ranks) {
  static ZxCommTable t;
  t = table;
  t.exchange = exchange;
  return world_of(ranks, &t);
}

void world_free(World *w) {
  ZB_ASSERT(!w->ops); /* what was started was waited for */
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  free(w);
}

ZxComm *world_rank(World *w, int rank) { return &w->rank[rank].base; }
uint64_t world_done(const World *w) { return w->done; }

typedef struct {
  void (*play)(void *);
  void *arg;
} Part;
static void *begin(void *arg) {
  const Part *p = arg;
  p->play(p->arg);
  return NULL;
}

void world_play(World *w, void (*play)(void *), void *args, size_t bytes) {
  pthread_t thread[WORLD_MOST];
  Part part[WORLD_MOST];
  for (int i = 0; i < w->n; i++) {
    part[i] = (Part){play, (char *)args + (size_t)i * bytes};
    int rc = pthread_create(&thread[i], NULL, begin, &part[i]);
    ZB_ASSERT(rc == 0);
  }
  for (int i = 0; i < w->n; i++) pthread_join(thread[i], NULL);
}
