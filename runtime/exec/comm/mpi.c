/* The communicator over MPI, and the only file that knows MPI.
 *
 * Collectives of a group whose members all live on one node go through memory that they share: comm/shm.c. What
 * follows is about transfers, and about groups that span nodes.
 *
 * Everything is non-blocking, and nothing progresses but inside `test` and `wait`. A wait tests some dozens
 * of times, giving the core away in between, and then sleeps (wait.c): MPI's own blocking calls spin.
 *
 * Transfers, gathers, broadcasts and all-to-alls are MPI's. Reductions are ours, since MPI's non-blocking
 * ones go through a root or many dependent hops and promise no order of additions. They exchange directly,
 * in rounds over a staging buffer. For 3 ranks and one round of 6 elements, rank 1's view:
 *
 *                 rank 0      rank 1      rank 2
 *     exchange    a0..a5      b0..b5      c0..c5      rank i receives everybody's block i
 *                             [b2 b3] <- a2 a3, c2 c3
 *     combine                 s2 = a2 + b2 + c2, ...  always in rank order: the same bits on any layout
 *     spread      s0 s1  ->   s0..s5   <- s4 s5       everybody sends its block to all (all-reduce only)
 *
 * So every element is summed by one rank, and all members get the same bits. A vector that fits is simply
 * sent whole to everybody, which is one hop instead of two.
 *
 * Rounds of a group are started in the order in which its reductions were, and every group has its own
 * staging, so groups never wait for each other. */
#include "runtime/exec/comm/comm.h"
#include "runtime/exec/comm/shm.h"

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
  SLOTS = 3,                /* rounds of a group in flight: some travel while one is combined */
  STAGE_BYTES = 512 << 10,  /* staging of a round */
  WHOLE_BYTES = 4 << 10,    /* vectors up to this size are sent whole, ... */
  WHOLE_TRAFFIC = 16 << 10, /* ... unless all copies together are more than this */
  ADDRESSES = 192 << 20     /* what MPI and the libraries map at least */
};

typedef enum { FREE, PLAIN, REDUCE_SCATTER, ALL_REDUCE, SHARED } Kind;

typedef struct {
  Kind kind;
  int32_t next;     /* in the list of free operations, or in a group's queue; -1: the last */
  MPI_Request req;  /* PLAIN */
  const char *what; /* for messages: */
  size_t bytes;
  int peer; /* -1: a collective, of: */
  ZxGroup group;
  /* reductions */
  char *in, *out;
  size_t n, started, finished; /* elements of a block (REDUCE_SCATTER) or of the vector (ALL_REDUCE) */
  ZxCommElem elem;
  ZxReduce reduce;
  /* SHARED */
  uint64_t number;
} Op;

typedef enum { IDLE, EXCHANGE, EXCHANGE_WHOLE, SPREAD } Phase;

typedef struct {
  Phase phase;
  int32_t op;
  size_t at, n; /* the round's elements of the operation's n */
  int tag, nreq;
  MPI_Request *req; /* 2 * (size - 1) */
  int *from;        /* of each: the member that it receives from; -1: it sends */
  char *stage;      /* the others' parts, in rank order */
} Slot;

typedef struct {
  MPI_Comm comm;
  int rank, size;
  int32_t head, tail; /* queue of reductions that have rounds to start; -1: empty */
  int busy;           /* slots in flight, and one while `sharing` */
  uint32_t rounds;    /* started so far: gives tags */
  Slot slot[SLOTS];
  const void **part; /* one pointer a member, for combining */
  ZxShm *shm;        /* NULL: not all members are on one node */
  void *window;
  bool sharing; /* operations are open in `shm` */
} Group;

typedef struct {
  ZxComm base;
  MPI_Comm world; /* of transfers; the ranks are its own */
  int rank, size, ngroup, busy; /* busy: groups with reductions in flight */
  Group *group;
  Op *op;
  int32_t nop, free_op;
  size_t limit; /* counts larger than this go by a derived type */
  bool apart;   /* shared memory is not to be used */
  int *node;    /* of each rank of the world: the first rank there */
  uint64_t moves;
} Mpi;

static Mpi *mpi(ZxComm *c) { return (Mpi *)c; }

/* ---- errors ---- */
static __attribute__((noreturn)) void mpi_abort(ZxComm *c, int code) {
  (void)c;
  fflush(stderr);
  zb_out_discard_all();
  MPI_Abort(MPI_COMM_WORLD, code);
  abort(); /* MPI_Abort has no _Noreturn */
}

/* A failed call ends the job here, where operation, peer and size are known. */
static void check(Mpi *m, int rc, const char *what, size_t bytes, int peer) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;
  MPI_Error_string(rc, text, &n);
  if (peer >= 0) zx_die(&m->base, "MPI %s of %zu bytes with rank %d failed: %s", what, bytes, peer, text);
  zx_die(&m->base, "MPI %s of %zu bytes failed: %s", what, bytes, text);
}

/* ---- operations ---- */
static int32_t op_new(Mpi *m, Kind kind, const char *what, size_t bytes, int peer) {
  if (m->free_op < 0) { /* happens while the first steps find out how many are ever open */
    int32_t more = m->nop ? m->nop : 256;
    m->op = zx_need(realloc(m->op, zb_array_bytes((size_t)m->nop + (size_t)more, sizeof *m->op)));
    for (int32_t i = m->nop + more - 1; i >= m->nop; i--) {
      m->op[i] = (Op){.kind = FREE, .next = m->free_op};
      m->free_op = i;
    }
    m->nop += more;
  }
  int32_t r = m->free_op;
  m->free_op = m->op[r].next;
  m->op[r] =
      (Op){.kind = kind, .next = -1, .req = MPI_REQUEST_NULL, .what = what, .bytes = bytes, .peer = peer};
  return r;
}

static void op_free(Mpi *m, int32_t r) {
  m->op[r].kind = FREE;
  m->op[r].next = m->free_op;
  m->free_op = r;
}

/* `bytes` bytes as a type and a count; counts are ints in MPI 3. `parts` of them must be countable, because
 * Open MPI multiplies counts by ranks in int. The type is freed by `drop` once the call that uses it is made. */
static MPI_Datatype type_of(Mpi *m, size_t bytes, int parts, int *count) {
  size_t limit = m->limit / (size_t)parts;
  if (bytes <= limit) {
    *count = (int)bytes;
    return MPI_BYTE;
  }
  MPI_Datatype block, type;
  int length[2] = {(int)(bytes / limit), (int)(bytes % limit)};
  MPI_Aint place[2] = {0, (MPI_Aint)(bytes - bytes % limit)};
  ZB_ASSERT(bytes / limit <= INT_MAX);
  check(m, MPI_Type_contiguous((int)limit, MPI_BYTE, &block), "type", bytes, -1);
  MPI_Datatype types[2] = {block, MPI_BYTE};
  check(m, MPI_Type_create_struct(2, length, place, types, &type), "type", bytes, -1);
  check(m, MPI_Type_commit(&type), "type", bytes, -1);
  check(m, MPI_Type_free(&block), "type", bytes, -1);
  *count = 1;
  return type;
}

static void drop(Mpi *m, MPI_Datatype type) {
  if (type != MPI_BYTE) check(m, MPI_Type_free(&type), "type", 0, -1);
}

/* ---- reductions ---- */
/* Element offsets of member i's block of an all-reduce's round of n elements; i = size gives the end. */
static size_t block_at(const Group *g, size_t n, int i) {
  size_t each = zb_round_up((n + (size_t)g->size - 1) / (size_t)g->size, 16);
  size_t at = each * (size_t)i;
  return at < n ? at : n;
}

static void post(Mpi *m, Group *g, Slot *s, bool send, void *p, size_t bytes, int peer) {
  if (!bytes) return;
  s->from[s->nreq] = send ? -1 : peer;
  MPI_Request *req = &s->req[s->nreq++];
  int rc = send ? MPI_Isend(p, (int)bytes, MPI_BYTE, peer, s->tag, g->comm, req)
                : MPI_Irecv(p, (int)bytes, MPI_BYTE, peer, s->tag, g->comm, req);
  check(m, rc, m->op[s->op].what, bytes, peer);
}

/* Where member i's part of the round begins before the exchange, at this rank, and its elements. */
static char *part_of(const Group *g, const Op *o, const Slot *s, int i, size_t *n) {
  size_t size = zx_elem_bytes(o->elem), at = s->at;
  *n = s->n;
  if (o->kind == REDUCE_SCATTER) {
    at += (size_t)i * o->n;
  } else if (s->phase != EXCHANGE_WHOLE) {
    size_t from = block_at(g, s->n, i);
    *n = block_at(g, s->n, i + 1) - from;
    at += from;
  }
  return o->in + at * size;
}

/* The place in the staging for member i's contribution to my part of n elements. */
static char *stage_of(const Group *g, const Op *o, const Slot *s, int i, size_t n) {
  return s->stage + (size_t)(i - (i > g->rank)) * n * zx_elem_bytes(o->elem);
}

/* Starts the next round of the operation at the head of the queue. */
static void round_start(Mpi *m, Group *g, Slot *s) {
  Op *o = &m->op[g->head];
  size_t size = zx_elem_bytes(o->elem), others = (size_t)g->size - 1;
  size_t most = STAGE_BYTES / others / size & ~(size_t)15; /* elements of a part */
  if (!most) most = 16;
  size_t left = o->n - o->started;
  *s = (Slot){.phase = EXCHANGE, .op = g->head, .at = o->started, .req = s->req, .from = s->from, .stage = s->stage};
  bool whole = o->n * size <= WHOLE_BYTES && o->n * size * others <= WHOLE_TRAFFIC;
  if (o->kind == ALL_REDUCE && whole) s->phase = EXCHANGE_WHOLE;
  else if (o->kind == ALL_REDUCE) most *= (size_t)g->size;
  s->n = left < most ? left : most;
  s->tag = (int)(g->rounds++ % 16384); /* far below MPI_TAG_UB; few are ever in flight */
  if (!g->busy++) m->busy++;
  o->started += s->n;
  if (o->started == o->n) g->head = o->next;

  size_t n;
  part_of(g, o, s, g->rank, &n);
  for (int k = 1; k < g->size; k++) {
    int peer = (g->rank + g->size - k) % g->size;
    post(m, g, s, false, stage_of(g, o, s, peer, n), n * size, peer);
  }
  for (int k = 1; k < g->size; k++) {
    int peer = (g->rank + k) % g->size;
    char *p = part_of(g, o, s, peer, &n);
    post(m, g, s, true, p, n * size, peer);
  }
}

static void combine(Mpi *m, Group *g, Slot *s) {
  Op *o = &m->op[s->op];
  size_t n;
  char *mine = part_of(g, o, s, g->rank, &n);
  for (int i = 0; i < g->size; i++) g->part[i] = i == g->rank ? mine : stage_of(g, o, s, i, n);
  char *out = o->kind == REDUCE_SCATTER ? o->out + s->at * zx_elem_bytes(o->elem) : mine;
  zx_combine(out, g->part, g->size, n, o->elem, o->reduce);
}

static void spread(Mpi *m, Group *g, Slot *s) {
  Op *o = &m->op[s->op];
  size_t size = zx_elem_bytes(o->elem), n;
  s->phase = SPREAD;
  s->nreq = 0;
  for (int k = 1; k < g->size; k++) {
    int peer = (g->rank + g->size - k) % g->size;
    char *p = part_of(g, o, s, peer, &n);
    post(m, g, s, false, p, n * size, peer);
  }
  char *mine = part_of(g, o, s, g->rank, &n);
  for (int k = 1; k < g->size; k++) post(m, g, s, true, mine, n * size, (g->rank + k) % g->size);
}

static void round_progress(Mpi *m, Group *g, Slot *s) {
  int done = 0;
  Op *o = &m->op[s->op];
  check(m, MPI_Testall(s->nreq, s->req, &done, MPI_STATUSES_IGNORE), o->what, o->bytes, -1);
  if (!done) return;
  m->moves++;
  if (s->phase != SPREAD) combine(m, g, s);
  if (s->phase == EXCHANGE && o->kind == ALL_REDUCE) {
    spread(m, g, s);
    return;
  }
  o->finished += s->n;
  s->phase = IDLE;
  if (!--g->busy) m->busy--;
}

/* Rounds are started after all slots were looked at, in queue order: the same order on all members. */
static void group_progress(Mpi *m, Group *g) {
  for (int i = 0; i < SLOTS; i++)
    if (g->slot[i].phase != IDLE) round_progress(m, g, &g->slot[i]);
  for (int i = 0; i < SLOTS && g->head >= 0; i++)
    if (g->slot[i].phase == IDLE) round_start(m, g, &g->slot[i]);
}

static void shm_progress(Mpi *m, Group *g) {
  zx_shm_progress(g->shm);
  if (!zx_shm_idle(g->shm)) return;
  g->sharing = false;
  if (!--g->busy) m->busy--;
}

static void progress(Mpi *m) {
  if (!m->busy) return;
  for (int i = 0; i < m->ngroup; i++) {
    Group *g = &m->group[i];
    if (g->sharing) shm_progress(m, g);
    if (g->busy > g->sharing) group_progress(m, g);
  }
}

static ZxRequest reduce_start(Mpi *m, Group *g, Kind kind, void *in, size_t n, ZxCommElem elem,
                              ZxReduce reduce, void *out) {
  ZB_ASSERT(elem != ZX_BYTES);
  size_t size = zx_elem_bytes(elem);
  if (!n) return -1;
  if (g->size == 1) {
    if (out != in) memcpy(out, in, n * size);
    return -1;
  }
  int32_t r = op_new(m, kind, kind == ALL_REDUCE ? "all-reduce" : "reduce-scatter", n * size, -1);
  Op *o = &m->op[r];
  o->group = (ZxGroup)(g - m->group);
  o->in = in;
  o->out = out;
  o->n = n;
  o->elem = elem;
  o->reduce = reduce;
  if (g->head < 0) g->head = r;
  else m->op[g->tail].next = r;
  g->tail = r;
  for (int i = 0; i < SLOTS && g->head >= 0; i++)
    if (g->slot[i].phase == IDLE) round_start(m, g, &g->slot[i]);
  return r;
}

/* ---- shared memory ---- */
static bool use_shm(const Mpi *m, const Group *g, size_t bytes) { return g->shm && !m->apart && bytes; }

/* The request for operation `number`, which the group's `shm` has just started. */
static ZxRequest shared(Mpi *m, Group *g, uint64_t number, const char *what, size_t bytes) {
  if (!zx_shm_idle(g->shm) && !g->sharing) {
    g->sharing = true;
    if (!g->busy++) m->busy++;
  }
  if (zx_shm_done(g->shm, number)) return -1;
  int32_t r = op_new(m, SHARED, what, bytes, -1);
  m->op[r].group = (ZxGroup)(g - m->group);
  m->op[r].number = number;
  return r;
}

/* What this rank has sent, and is rid of, may still want it to call MPI. */
static void mpi_keep_going(ZxComm *c) {
  int found; /* looks for what nobody sends, and so gets to MPI's progress */
  check(mpi(c), MPI_Iprobe(0, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE), "progress", 0, -1);
}

/* Transfers of this rank may be what the others wait for before they join in: MPI must go on as well. */
static bool shared_test(Mpi *m, const Op *o) {
  if (zx_shm_done(m->group[o->group].shm, o->number)) return true;
  mpi_keep_going(&m->base);
  return false;
}

static ZxRequest mpi_all_reduce(ZxComm *c, ZxGroup gi, void *p, size_t n, ZxCommElem e, ZxReduce op) {
  Mpi *m = mpi(c);
  Group *g = &m->group[gi];
  if (!use_shm(m, g, n)) return reduce_start(m, g, ALL_REDUCE, p, n, e, op, p);
  return shared(m, g, zx_shm_all_reduce(g->shm, p, n, e, op), "all-reduce", n * zx_elem_bytes(e));
}

static ZxRequest mpi_reduce_scatter(ZxComm *c, ZxGroup gi, void *in, size_t n, ZxCommElem e, ZxReduce op,
                                    void *out) {
  Mpi *m = mpi(c);
  Group *g = &m->group[gi];
  if (!use_shm(m, g, n)) return reduce_start(m, g, REDUCE_SCATTER, in, n, e, op, out);
  return shared(m, g, zx_shm_reduce_scatter(g->shm, in, n, e, op, out), "reduce-scatter",
                n * zx_elem_bytes(e));
}

/* ---- MPI's own ---- */
static int32_t plain(Mpi *m, ZxGroup g, const char *what, size_t bytes) {
  int32_t r = op_new(m, PLAIN, what, bytes, -1);
  m->op[r].group = g;
  return r;
}

static ZxRequest mpi_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  Mpi *m = mpi(c);
  int count, r = op_new(m, PLAIN, "send", bytes, peer);
  MPI_Datatype type = type_of(m, bytes, 1, &count);
  check(m, MPI_Isend(p, count, type, peer, tag, m->world, &m->op[r].req), "send", bytes, peer);
  drop(m, type);
  return r;
}

static ZxRequest mpi_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  Mpi *m = mpi(c);
  int count, r = op_new(m, PLAIN, "receive", bytes, peer);
  MPI_Datatype type = type_of(m, bytes, 1, &count);
  check(m, MPI_Irecv(p, count, type, peer, tag, m->world, &m->op[r].req), "receive", bytes, peer);
  drop(m, type);
  return r;
}

static ZxRequest mpi_all_gather(ZxComm *c, ZxGroup gi, const void *part, size_t bytes, void *out) {
  Mpi *m = mpi(c);
  Group *g = &m->group[gi];
  bool in_place = part == (char *)out + bytes * (size_t)g->rank;
  if (!bytes) return -1;
  if (g->size == 1) {
    if (!in_place) memcpy(out, part, bytes);
    return -1;
  }
  if (use_shm(m, g, bytes))
    return shared(m, g, zx_shm_all_gather(g->shm, part, bytes, out), "all-gather", bytes);
  int count, r = plain(m, gi, "all-gather", bytes);
  MPI_Datatype type = type_of(m, bytes, g->size, &count);
  int rc =
      MPI_Iallgather(in_place ? MPI_IN_PLACE : part, count, type, out, count, type, g->comm, &m->op[r].req);
  check(m, rc, "all-gather", bytes, -1);
  drop(m, type);
  return r;
}

static ZxRequest mpi_all_to_all(ZxComm *c, ZxGroup gi, const void *in, size_t bytes, void *out) {
  Mpi *m = mpi(c);
  Group *g = &m->group[gi];
  ZB_ASSERT(in != out);
  if (!bytes) return -1;
  if (g->size == 1) {
    memcpy(out, in, bytes);
    return -1;
  }
  if (use_shm(m, g, bytes))
    return shared(m, g, zx_shm_all_to_all(g->shm, in, bytes, out), "all-to-all", bytes);
  int count, r = plain(m, gi, "all-to-all", bytes);
  MPI_Datatype type = type_of(m, bytes, g->size, &count);
  int rc = MPI_Ialltoall(in, count, type, out, count, type, g->comm, &m->op[r].req);
  check(m, rc, "all-to-all", bytes, -1);
  drop(m, type);
  return r;
}

static ZxRequest mpi_broadcast(ZxComm *c, ZxGroup gi, void *p, size_t bytes, int root) {
  Mpi *m = mpi(c);
  Group *g = &m->group[gi];
  if (!bytes || g->size == 1) return -1;
  if (use_shm(m, g, bytes)) return shared(m, g, zx_shm_broadcast(g->shm, p, bytes, root), "broadcast", bytes);
  int count, r = plain(m, gi, "broadcast", bytes);
  MPI_Datatype type = type_of(m, bytes, g->size, &count);
  check(m, MPI_Ibcast(p, count, type, root, g->comm, &m->op[r].req), "broadcast", bytes, -1);
  drop(m, type);
  return r;
}

/* ---- completion ---- */
static bool mpi_test(ZxComm *c, ZxRequest r) {
  Mpi *m = mpi(c);
  if (r < 0) return true;
  ZB_ASSERT(r < m->nop && m->op[r].kind != FREE);
  progress(m);
  Op *o = &m->op[r];
  int done = 0;
  if (o->kind == SHARED) done = shared_test(m, o);
  else if (o->kind != PLAIN) done = o->finished == o->n;
  else check(m, MPI_Test(&o->req, &done, MPI_STATUS_IGNORE), o->what, o->bytes, o->peer);
  if (done) op_free(m, r);
  return done;
}

/* ---- waits that last ---- */
static void add_members(Mpi *m, ZxGroup gi, bool (*is)(const Group *, int), ZbText *out) {
  const Group *g = gi < m->ngroup ? &m->group[gi] : NULL; /* before there are any it is all */
  int n = 0, size = g ? g->size : m->size, all = 0;
  MPI_Group world, group;
  MPI_Comm_group(m->world, &world);
  MPI_Comm_group(g ? g->comm : m->world, &group);
  for (int i = 0; i < size; i++) all += !is || is(g, i);
  zb_text_add(out, all == 1 ? "rank" : "ranks");
  for (int i = 0; i < size && n < 8; i++) {
    int r = i;
    if (is && !is(g, i)) continue;
    MPI_Group_translate_ranks(group, 1, &i, world, &r);
    zb_text_add(out, "%s%d", n++ ? ", " : " ", r);
  }
  if (all > n) zb_text_add(out, ", ... (%d)", all);
  MPI_Group_free(&world);
  MPI_Group_free(&group);
}

/* Whether a message of that member is missing in some round. */
static bool missing(const Group *g, int member) {
  for (int i = 0; i < SLOTS; i++)
    for (int k = 0; g->slot[i].phase != IDLE && k < g->slot[i].nreq; k++) {
      int there = 1;
      if (g->slot[i].from[k] != member) continue;
      MPI_Request_get_status(g->slot[i].req[k], &there, MPI_STATUS_IGNORE);
      if (!there) return true;
    }
  return false;
}

static bool late(const Group *g, int member) { return zx_shm_late(g->shm, member); }

static void mpi_explain(ZxComm *c, ZxRequest r, ZbText *out) {
  Mpi *m = mpi(c);
  const Op *o = &m->op[r];
  char size[24];
  zb_text_add(out, "%s", o->what);
  if (o->bytes) zb_text_add(out, " of %s", zb_bytes(size, o->bytes));
  if (o->peer >= 0) {
    zb_text_add(out, " %s rank %d", strcmp(o->what, "send") ? "from" : "to", o->peer);
    return;
  }
  zb_text_add(out, " among ");
  add_members(m, o->group, NULL, out);
  if (o->kind == PLAIN) return;
  zb_text_add(out, "; not there yet: ");
  add_members(m, o->group, o->kind == SHARED ? late : missing, out);
}

static uint64_t mpi_moves(ZxComm *c) {
  const Mpi *m = mpi(c);
  uint64_t moves = m->moves;
  for (int i = 0; i < m->ngroup; i++)
    if (m->group[i].shm) moves += zx_shm_moves(m->group[i].shm);
  return moves;
}

/* Before what MPI has only in a way that waits without a word, all meet in one that has words. */
static void meet(Mpi *m, MPI_Comm comm, const char *what) {
  int r = plain(m, 0, what, 0);
  check(m, MPI_Ibarrier(comm, &m->op[r].req), what, 0, -1);
  zx_wait(&m->base, r);
}

static void mpi_barrier(ZxComm *c) { meet(mpi(c), mpi(c)->group[0].comm, "barrier"); }

/* Ranks of several nodes share no window: each of them is the first. */
static bool mpi_claim(ZxComm *c) {
  Mpi *m = mpi(c);
  return !m->ngroup || !m->group[0].shm || zx_shm_claim(m->group[0].shm);
}

/* ---- groups ---- */
static bool on_one_node(Mpi *m, const Group *g) {
  MPI_Group world, group;
  MPI_Comm_group(m->world, &world);
  MPI_Comm_group(g->comm, &group);
  bool one = true;
  for (int i = 0; i < g->size; i++) {
    int r;
    check(m, MPI_Group_translate_ranks(group, 1, &i, world, &r), "translation", 0, -1);
    one &= m->node[r] == m->node[m->rank];
  }
  MPI_Group_free(&world);
  MPI_Group_free(&group);
  return one;
}

/* Gives the group a window, or no member one: then it works as if it spanned nodes. */
static void share(Mpi *m, Group *g) {
  if (g->size == 1 || !on_one_node(m, g)) return;
  ZxShmFile f;
  if (g->rank == 0) f = zx_shm_create(g->size);
  check(m, MPI_Bcast(&f, sizeof f, MPI_BYTE, 0, g->comm), "broadcast", sizeof f, -1);
  g->window = zx_shm_map(&f, g->rank);
  int all = g->window != NULL;
  check(m, MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, g->comm), "all-reduce", sizeof all, -1);
  if (g->rank == 0) zx_shm_close(&f);
  if (all) g->shm = zx_shm_new(g->window, g->rank, g->size);
  else if (g->window) zx_shm_unmap(g->window, g->size);
}

ZB_REPLACEABLE int zx_comm_mpi_part(int rank) { return (void)rank, 0; }

/* Who is on which node, named by its first rank. */
static void find_nodes(Mpi *m) {
  MPI_Comm node, part;
  check(m, MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, m->rank, MPI_INFO_NULL, &node), "split", 0, -1);
  check(m, MPI_Comm_split(node, zx_comm_mpi_part(m->rank), m->rank, &part), "split", 0, -1);
  int first = m->rank;
  check(m, MPI_Bcast(&first, 1, MPI_INT, 0, part), "broadcast", sizeof first, -1);
  check(m, MPI_Allgather(&first, 1, MPI_INT, m->node, 1, MPI_INT, m->world), "all-gather", sizeof first, -1);
  check(m, MPI_Comm_free(&part), "split", 0, -1);
  check(m, MPI_Comm_free(&node), "split", 0, -1);
}

/* Takes over `comm`. The staging's pages cost nothing until a reduction touches them. */
static ZxGroup group_add(Mpi *m, MPI_Comm comm) {
  m->group = zx_need(realloc(m->group, zb_array_bytes((size_t)m->ngroup + 1, sizeof *m->group)));
  Group *g = &m->group[m->ngroup];
  *g = (Group){.comm = comm, .head = -1, .tail = -1};
  check(m, MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "error handler", 0, -1);
  MPI_Comm_rank(comm, &g->rank);
  MPI_Comm_size(comm, &g->size);
  g->part = zx_need(calloc((size_t)g->size, sizeof *g->part));
  for (int i = 0; i < SLOTS && g->size > 1; i++) {
    size_t others = (size_t)g->size - 1, least = others * 16 * sizeof(double);
    g->slot[i].req = zx_need(calloc(2 * others, sizeof(MPI_Request)));
    g->slot[i].from = zx_need(calloc(2 * others, sizeof(int)));
    g->slot[i].stage = zx_need(malloc(least > STAGE_BYTES ? least : STAGE_BYTES));
  }
  share(m, g);
  return m->ngroup++;
}

static ZxGroup mpi_split(ZxComm *c, int color) {
  Mpi *m = mpi(c);
  MPI_Comm comm;
  meet(m, m->group[0].comm, "making a group");
  int rc = MPI_Comm_split(m->world, color < 0 ? MPI_UNDEFINED : color, m->rank, &comm);
  check(m, rc, "split", 0, -1);
  return comm == MPI_COMM_NULL ? -1 : group_add(m, comm);
}

static void group_free(Group *g) {
  for (int k = 0; k < SLOTS; k++) {
    free(g->slot[k].req);
    free(g->slot[k].from);
    free(g->slot[k].stage);
  }
  free(g->part);
  if (g->shm) zx_shm_unmap(g->window, g->size);
  zx_shm_free(g->shm);
  MPI_Comm_free(&g->comm);
}

/* Ranks, nodes and group 0 of a world that has just got its communicator. */
static void world_open(Mpi *m) {
  MPI_Comm_rank(m->world, &m->rank);
  find_nodes(m);
  MPI_Comm world; /* a copy: reductions' tags must not meet those of send and recv */
  check(m, MPI_Comm_dup(m->world, &world), "duplicate", 0, -1);
  group_add(m, world);
}

static void mpi_reorder(ZxComm *c, const int *order) {
  Mpi *m = mpi(c);
  MPI_Comm world;
  int now = 0;
  ZB_ASSERT(m->ngroup == 1 && !m->busy);
  while (order[now] != m->rank) now++;
  check(m, MPI_Comm_split(m->world, 0, now, &world), "split", 0, -1);
  check(m, MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "error handler", 0, -1);
  group_free(&m->group[--m->ngroup]);
  if (m->world != MPI_COMM_WORLD) MPI_Comm_free(&m->world);
  m->world = world;
  world_open(m);
}

static int mpi_rank(ZxComm *c) { return mpi(c)->rank; }
static int mpi_node_rank(ZxComm *c) {
  int n = 0;
  for (int r = 0; r < mpi(c)->rank; r++) n += mpi(c)->node[r] == mpi(c)->node[mpi(c)->rank];
  return n;
}
static const int *mpi_nodes(ZxComm *c) { return mpi(c)->node; }
static int mpi_size(ZxComm *c) { return mpi(c)->size; }
static int mpi_group_rank(ZxComm *c, ZxGroup g) { return mpi(c)->group[g].rank; }
static int mpi_group_size(ZxComm *c, ZxGroup g) { return mpi(c)->group[g].size; }

static void mpi_free(ZxComm *c) {
  Mpi *m = mpi(c);
  for (int32_t i = 0; i < m->nop; i++)
    if (m->op[i].kind != FREE) ZB_BUG("rank %d ends while its %s is open", m->rank, m->op[i].what);
  meet(m, m->group[0].comm, "the end");
  for (int i = m->ngroup - 1; i >= 0; i--) group_free(&m->group[i]);
  if (m->world != MPI_COMM_WORLD) MPI_Comm_free(&m->world);
  MPI_Finalize();
  free(m->group);
  free(m->node);
  free(m->op);
  free(m);
}

static const ZxCommTable table = {
    .name = "mpi",
    .rank = mpi_rank,
    .size = mpi_size,
    .node_rank = mpi_node_rank,
    .nodes = mpi_nodes,
    .reorder = mpi_reorder,
    .split = mpi_split,
    .group_rank = mpi_group_rank,
    .group_size = mpi_group_size,
    .send = mpi_send,
    .recv = mpi_recv,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_to_all = mpi_all_to_all,
    .broadcast = mpi_broadcast,
    .test = mpi_test,
    .wait = zx_wait,
    .explain = mpi_explain,
    .moves = mpi_moves,
    .barrier = mpi_barrier,
    .progress = mpi_keep_going,
    .claim = mpi_claim,
    .abort = mpi_abort,
    .free = mpi_free,
};

void zx_comm_mpi_limit(ZxComm *c, size_t bytes) {
  ZB_ASSERT(c->t == &table && bytes > 0);
  mpi(c)->limit = bytes;
}

void zx_comm_mpi_apart(ZxComm *c, bool apart) {
  ZB_ASSERT(c->t == &table);
  mpi(c)->apart = apart;
}

/* ---- starting ---- */
static int number_in(const char *const *variables) {
  for (; *variables; variables++) {
    const char *text = getenv(*variables);
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (n >= 0 && n < INT_MAX && end != text && !*end) return (int)n;
  }
  return -1;
}

/* Open MPI's mpirun and prun, other PMIx launchers, MPICH's and Intel's, srun. */
ZxLaunch zx_launch(void) {
  static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
  static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
  return (ZxLaunch){number_in(rank), number_in(size)};
}

enum { SLOW_START = 10 }; /* seconds */

/* MPI_Init returns when all ranks have called it. A program that never does holds up all others, which cannot end it. */
static void slow(int sig) {
  static const char text[] = "zrun: MPI_Init waits since 10 s for ranks that have not called it: was every rank "
                             "started as `zrun train`, and does every node run?\n";
  (void)sig;
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return; /* nothing can be done here */
}

static int init(int *argc, char ***argv, const ZxLaunch *l, int *got) {
  struct sigaction act = {.sa_handler = slow, .sa_flags = SA_RESTART}, before;
  bool speaks = l->rank == 0 || l->rank == 1; /* one of them may be the other program */
  if (speaks) {
    sigaction(SIGALRM, &act, &before);
    alarm(SLOW_START);
  }
  int rc = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, got);
  if (speaks) {
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
  }
  return rc;
}

ZxComm *zx_comm_mpi(int *argc, char ***argv, ZbErr *err) {
  static const char launcher[] = "is this program started by the mpirun of the MPI it was built with?";
  /* Ranks may outnumber cores, and a host file turns off Open MPI's own detection of that. */
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  /* Without it MPI dies in its first steps, and libraries for products wait for it for ever. */
  void *probe = mmap(NULL, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) {
    zb_fail(err, "raise the limit (ulimit -v)", "there are no %d MiB of address space left for MPI and libraries", ADDRESSES >> 20);
    return NULL;
  }
  munmap(probe, ADDRESSES);
  ZxLaunch l = zx_launch();
  int got, size, rc = init(argc, argv, &l, &got);
  if (rc != MPI_SUCCESS || got < MPI_THREAD_FUNNELED) {
    zb_fail(err, launcher, "MPI cannot be initialised (code %d, thread level %d)", rc, got);
    return NULL;
  }
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (l.size > 1 && size == 1) {
    zb_fail(err, launcher, "the launcher started %d processes, and MPI knows of this one alone", l.size);
    MPI_Finalize();
    return NULL;
  }
  prctl(PR_SET_TIMERSLACK, 1ul); /* else the kernel rounds naps up by another 50 us */
  Mpi *m = zx_need(calloc(1, sizeof *m));
  m->base.t = &table;
  m->free_op = -1;
  m->limit = INT_MAX;
  m->world = MPI_COMM_WORLD;
  m->size = size;
  m->node = zx_need(calloc((size_t)size, sizeof *m->node));
  check(m, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler", 0, -1);
  MPI_Comm_rank(m->world, &m->rank);
  meet(m, m->world, "the start");
  world_open(m);
  return &m->base;
}
