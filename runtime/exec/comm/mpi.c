/* The communicator over MPI. Only comm/mpi* know MPI: mpi_ops.c operations, mpi_group.c groups; here are its
 * start and end.
 *
 * A collective of a group whose members all live on one node goes through memory that they share: shm.c.
 * Elsewhere transfers, gathers, broadcasts and all-to-alls are MPI's. Reductions are ours (p2p_reduce.c),
 * since MPI's non-blocking ones go through a root or many dependent hops and promise no order of additions.
 *
 * Everything is non-blocking, and nothing progresses but inside `test` and `wait`. A wait tests some dozens
 * of times, giving the core away in between, and then sleeps (wait.c): MPI's own blocking calls spin. */
#include "runtime/exec/comm/mpi.h"
#include "runtime/exec/comm/watch.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- the table ---- */
static __attribute__((noreturn)) void mpi_abort(ZxComm *c, int code) {
  (void)c;
  fflush(stderr);
  zb_out_discard_all();
  zx_watch_abort(code);
  MPI_Abort(MPI_COMM_WORLD, code);
  abort(); /* MPI_Abort has no _Noreturn */
}

static void mpi_barrier(ZxComm *c) { zx_mpi_meet(zx_mpi(c), zx_mpi(c)->group[0].comm, "barrier"); }

/* Ranks of several nodes share no window: each of them is the first. */
static bool mpi_claim(ZxComm *c) {
  Mpi *m = zx_mpi(c);
  return !m->ngroup || !m->group[0].shm || zx_shm_claim(m->group[0].shm);
}

static int mpi_rank(ZxComm *c) { return zx_mpi(c)->rank; }
static int mpi_node_rank(ZxComm *c) {
  int n = 0;
  for (int r = 0; r < zx_mpi(c)->rank; r++) n += zx_mpi(c)->node[r] == zx_mpi(c)->node[zx_mpi(c)->rank];
  return n;
}
static const int *mpi_nodes(ZxComm *c) { return zx_mpi(c)->node; }
static int mpi_size(ZxComm *c) { return zx_mpi(c)->size; }
static int mpi_group_rank(ZxComm *c, ZxGroup g) { return zx_mpi(c)->group[g].rank; }
static int mpi_group_size(ZxComm *c, ZxGroup g) { return zx_mpi(c)->group[g].size; }

static void mpi_free(ZxComm *c) {
  Mpi *m = zx_mpi(c);
  for (int32_t i = 0; i < m->nop; i++)
    if (m->op[i].kind != FREE) ZB_BUG("rank %d ends while its %s is open", m->rank, m->op[i].what);
  zx_mpi_meet(m, m->group[0].comm, "the end");
  zx_watch_waits("MPI_Finalize");
  zx_mpi_free_groups(m);
  MPI_Finalize();
  zx_watch_moved();
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
    .reorder = zx_mpi_reorder,
    .split = zx_mpi_split,
    .group_rank = mpi_group_rank,
    .group_size = mpi_group_size,
    .send = zx_mpi_send,
    .recv = zx_mpi_recv,
    .all_reduce = zx_mpi_all_reduce,
    .all_gather = zx_mpi_all_gather,
    .reduce_scatter = zx_mpi_reduce_scatter,
    .all_to_all = zx_mpi_all_to_all,
    .broadcast = zx_mpi_broadcast,
    .test = zx_mpi_test,
    .wait = zx_wait,
    .explain = zx_mpi_explain,
    .moves = zx_mpi_moves,
    .barrier = mpi_barrier,
    .progress = zx_mpi_progress,
    .claim = mpi_claim,
    .abort = mpi_abort,
    .free = mpi_free,
};

void zx_comm_mpi_limit(ZxComm *c, size_t bytes) {
  ZB_ASSERT(c->t == &table && bytes > 0);
  zx_mpi(c)->limit = bytes;
}

void zx_comm_mpi_apart(ZxComm *c, bool apart) {
  ZB_ASSERT(c->t == &table);
  zx_mpi(c)->apart = apart;
}

/* ---- starting ---- */
enum { SLOW_START = 10 }; /* seconds */

/* MPI_Init returns when all ranks have called it. A program that never does holds up all others, which cannot
 * end it. */
static void slow(int sig) {
  static const char text[] =
      "zrun: MPI_Init waits since 10 s for ranks that have not called it: was every rank "
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
  zx_watch_waits("MPI_Init for ranks that have not called it: not started, stopped, or on a node cut off");
  int rc = MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, got);
  zx_watch_moved();
  if (speaks) {
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
  }
  return rc;
}

/* Of Open MPI, where the user has said nothing of them. */
static void prefer_settings(void) {
  /* Ranks may outnumber cores, and a host file turns off its own detection of that. */
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  /* TCP without "put": there a receiver asks for each part of a large message, and where two ranks send at
   * once the request waits behind what its own side has queued. Without it links carry 1.6 times as much in
   * both directions, all that they can (4.1.4, 0.2 and 1 Gbit/s); on 20 Gbit/s nothing changes. */
  setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
}

ZxComm *zx_comm_mpi(int *argc, char ***argv, ZbErr *err) {
  static const char launcher[] = "is this program started by the mpirun of the MPI it was built with?";
  prefer_settings();
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
  zx_mpi_check(m, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler", 0, -1);
  MPI_Comm_rank(m->world, &m->rank);
  zx_mpi_meet(m, m->world, "the start");
  zx_mpi_open_world(m);
  return &m->base;
}
