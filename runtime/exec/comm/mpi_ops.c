/* Operations over MPI: who does a collective, requests, and what a wait that lasts is for. */
#include "runtime/exec/comm/mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void zx_mpi_check(Mpi *m, int rc, const char *what, size_t bytes, int peer) {
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
 * Open MPI multiplies counts by ranks in int. The type is freed by `drop` once the call that uses it is
 * made. */
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
  zx_mpi_check(m, MPI_Type_contiguous((int)limit, MPI_BYTE, &block), "type", bytes, -1);
  MPI_Datatype types[2] = {block, MPI_BYTE};
  zx_mpi_check(m, MPI_Type_create_struct(2, length, place, types, &type), "type", bytes, -1);
  zx_mpi_check(m, MPI_Type_commit(&type), "type", bytes, -1);
  zx_mpi_check(m, MPI_Type_free(&block), "type", bytes, -1);
  *count = 1;
  return type;
}

static void drop(Mpi *m, MPI_Datatype type) {
  if (type != MPI_BYTE) zx_mpi_check(m, MPI_Type_free(&type), "type", 0, -1);
}

/* ---- reductions: messages of p2p_reduce.c ---- */
static void post_message(void *group, int slot, const ZxP2pMessage *x) {
  Group *g = group;
  Messages *s = &g->messages[slot];
  s->from[s->nreq] = x->send ? -1 : x->peer;
  MPI_Request *req = &s->req[s->nreq++];
  int rc = x->send ? MPI_Isend(x->p, (int)x->bytes, MPI_BYTE, x->peer, x->tag, g->comm, req)
                   : MPI_Irecv(x->p, (int)x->bytes, MPI_BYTE, x->peer, x->tag, g->comm, req);
  zx_mpi_check(g->mpi, rc, x->what, x->bytes, x->peer);
}

static bool complete(void *group, int slot, const char *what, size_t bytes) {
  Group *g = group;
  Messages *s = &g->messages[slot];
  int done = 0;
  zx_mpi_check(g->mpi, MPI_Testall(s->nreq, s->req, &done, MPI_STATUSES_IGNORE), what, bytes, -1);
  if (done) s->nreq = 0;
  return done;
}

const ZxP2pTransport zx_mpi_transport = {post_message, complete};

static void set_busy(Mpi *m, bool *flag, bool now) {
  m->busy += now - *flag;
  *flag = now;
}

static void progress(Mpi *m) {
  for (int i = 0; m->busy && i < m->ngroup; i++) {
    Group *g = &m->group[i];
    if (g->sharing) {
      zx_shm_progress(g->shm);
      set_busy(m, &g->sharing, !zx_shm_idle(g->shm));
    }
    if (g->reducing) {
      zx_p2p_progress(g->p2p, g);
      set_busy(m, &g->reducing, !zx_p2p_idle(g->p2p));
    }
  }
}

/* The request for operation `number`, which the group's `p2p` or `shm` has just started. */
static ZxRequest numbered(Mpi *m, Group *g, Kind kind, uint64_t number, const char *what, size_t bytes) {
  int32_t r = op_new(m, kind, what, bytes, -1);
  m->op[r].group = (ZxGroup)(g - m->group);
  m->op[r].number = number;
  return r;
}

static ZxRequest reducing(Mpi *m, Group *g, uint64_t number, const char *what, size_t bytes) {
  set_busy(m, &g->reducing, true);
  return numbered(m, g, P2P, number, what, bytes);
}

/* ---- shared memory ---- */
static bool use_shm(const Mpi *m, const Group *g, size_t bytes) { return g->shm && !m->apart && bytes; }

static ZxRequest shared(Mpi *m, Group *g, uint64_t number, const char *what, size_t bytes) {
  set_busy(m, &g->sharing, !zx_shm_idle(g->shm));
  return zx_shm_done(g->shm, number) ? -1 : numbered(m, g, SHARED, number, what, bytes);
}

/* What this rank has sent, and is rid of, may still want it to call MPI. */
void zx_mpi_progress(ZxComm *c) {
  int found; /* looks for what nobody sends, and so gets to MPI's progress */
  zx_mpi_check(zx_mpi(c), MPI_Iprobe(0, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE), "progress", 0, -1);
}

/* Transfers of this rank may be what the others wait for before they join in: MPI must go on as well. */
static bool shared_test(Mpi *m, const Op *o) {
  if (zx_shm_done(m->group[o->group].shm, o->number)) return true;
  zx_mpi_progress(&m->base);
  return false;
}

ZxRequest zx_mpi_all_reduce(ZxComm *c, ZxGroup gi, void *p, size_t n, ZkElem e, ZxReduce op) {
  Mpi *m = zx_mpi(c);
  Group *g = &m->group[gi];
  size_t bytes = zk_bytes(e, n);
  if (!n || g->size == 1) return -1;
  if (use_shm(m, g, n)) return shared(m, g, zx_shm_all_reduce(g->shm, p, n, e, op), "all-reduce", bytes);
  return reducing(m, g, zx_p2p_all_reduce(g->p2p, g, p, n, e, op), "all-reduce", bytes);
}

ZxRequest zx_mpi_reduce_scatter(ZxComm *c, ZxGroup gi, void *in, size_t n, ZkElem e, ZxReduce op, void *out) {
  static const char what[] = "reduce-scatter";
  Mpi *m = zx_mpi(c);
  Group *g = &m->group[gi];
  size_t bytes = zk_bytes(e, n);
  if (g->size == 1 && n && out != in) memcpy(out, in, bytes);
  if (!n || g->size == 1) return -1;
  if (use_shm(m, g, n)) return shared(m, g, zx_shm_reduce_scatter(g->shm, in, n, e, op, out), what, bytes);
  return reducing(m, g, zx_p2p_reduce_scatter(g->p2p, g, in, n, e, op, out), what, bytes);
}

/* ---- MPI's own ---- */
static int32_t plain(Mpi *m, ZxGroup g, const char *what, size_t bytes) {
  int32_t r = op_new(m, PLAIN, what, bytes, -1);
  m->op[r].group = g;
  return r;
}

ZxRequest zx_mpi_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  Mpi *m = zx_mpi(c);
  int count, r = op_new(m, PLAIN, "send", bytes, peer);
  MPI_Datatype type = type_of(m, bytes, 1, &count);
  zx_mpi_check(m, MPI_Isend(p, count, type, peer, tag, m->world, &m->op[r].req), "send", bytes, peer);
  drop(m, type);
  return r;
}

ZxRequest zx_mpi_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  Mpi *m = zx_mpi(c);
  int count, r = op_new(m, PLAIN, "receive", bytes, peer);
  MPI_Datatype type = type_of(m, bytes, 1, &count);
  zx_mpi_check(m, MPI_Irecv(p, count, type, peer, tag, m->world, &m->op[r].req), "receive", bytes, peer);
  drop(m, type);
  return r;
}

ZxRequest zx_mpi_all_gather(ZxComm *c, ZxGroup gi, const void *part, size_t bytes, void *out) {
  Mpi *m = zx_mpi(c);
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
  zx_mpi_check(m, rc, "all-gather", bytes, -1);
  drop(m, type);
  return r;
}

ZxRequest zx_mpi_all_to_all(ZxComm *c, ZxGroup gi, const void *in, size_t bytes, void *out) {
  Mpi *m = zx_mpi(c);
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
  zx_mpi_check(m, rc, "all-to-all", bytes, -1);
  drop(m, type);
  return r;
}

ZxRequest zx_mpi_broadcast(ZxComm *c, ZxGroup gi, void *p, size_t bytes, int root) {
  Mpi *m = zx_mpi(c);
  Group *g = &m->group[gi];
  if (!bytes || g->size == 1) return -1;
  if (use_shm(m, g, bytes)) return shared(m, g, zx_shm_broadcast(g->shm, p, bytes, root), "broadcast", bytes);
  int count, r = plain(m, gi, "broadcast", bytes);
  MPI_Datatype type = type_of(m, bytes, g->size, &count);
  zx_mpi_check(m, MPI_Ibcast(p, count, type, root, g->comm, &m->op[r].req), "broadcast", bytes, -1);
  drop(m, type);
  return r;
}

/* ---- completion ---- */
bool zx_mpi_test(ZxComm *c, ZxRequest r) {
  Mpi *m = zx_mpi(c);
  if (r < 0) return true;
  ZB_ASSERT(r < m->nop && m->op[r].kind != FREE);
  progress(m);
  Op *o = &m->op[r];
  int done = 0;
  if (o->kind == SHARED) done = shared_test(m, o);
  else if (o->kind == P2P) done = zx_p2p_done(m->group[o->group].p2p, o->number);
  else zx_mpi_check(m, MPI_Test(&o->req, &done, MPI_STATUS_IGNORE), o->what, o->bytes, o->peer);
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
  for (int i = 0; i < ZX_P2P_SLOTS; i++)
    for (int k = 0; k < g->messages[i].nreq; k++) {
      int there = 1;
      if (g->messages[i].from[k] != member) continue;
      MPI_Request_get_status(g->messages[i].req[k], &there, MPI_STATUS_IGNORE);
      if (!there) return true;
    }
  return false;
}

static bool late(const Group *g, int member) { return zx_shm_late(g->shm, member); }

void zx_mpi_explain(ZxComm *c, ZxRequest r, ZbText *out) {
  Mpi *m = zx_mpi(c);
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

uint64_t zx_mpi_moves(ZxComm *c) {
  const Mpi *m = zx_mpi(c);
  uint64_t moves = 0;
  for (int i = 0; i < m->ngroup; i++) {
    if (m->group[i].p2p) moves += zx_p2p_moves(m->group[i].p2p);
    if (m->group[i].shm) moves += zx_shm_moves(m->group[i].shm);
  }
  return moves;
}

/* Before what MPI has only in a way that waits without a word, all meet in one that has words. */
void zx_mpi_meet(Mpi *m, MPI_Comm comm, const char *what) {
  int r = plain(m, 0, what, 0);
  zx_mpi_check(m, MPI_Ibarrier(comm, &m->op[r].req), what, 0, -1);
  zx_wait(&m->base, r);
}
