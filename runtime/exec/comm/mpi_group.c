/* Groups over MPI: who is on which node, and the window that members of one node share. */
#include "runtime/exec/comm/mpi.h"
#include "runtime/exec/comm/watch.h"

#include <stdlib.h>

static bool on_one_node(Mpi *m, const Group *g) {
  MPI_Group world, group;
  MPI_Comm_group(m->world, &world);
  MPI_Comm_group(g->comm, &group);
  bool one = true;
  for (int i = 0; i < g->size; i++) {
    int r;
    zx_mpi_check(m, MPI_Group_translate_ranks(group, 1, &i, world, &r), "translation", 0, -1);
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
  zx_mpi_check(m, MPI_Bcast(&f, sizeof f, MPI_BYTE, 0, g->comm), "broadcast", sizeof f, -1);
  g->window = zx_shm_map(&f, g->rank);
  int all = g->window != NULL;
  zx_mpi_check(m, MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, g->comm), "all-reduce", sizeof all,
               -1);
  if (g->rank == 0) zx_shm_close(&f);
  if (all) g->shm = zx_shm_new(g->window, g->rank, g->size);
  else if (g->window) zx_shm_unmap(g->window, g->size);
}

ZB_REPLACEABLE int zx_comm_mpi_part(int rank) { return (void)rank, 0; }

/* Who is on which node, named by its first rank. */
static void find_nodes(Mpi *m) {
  MPI_Comm node, part;
  zx_mpi_check(m, MPI_Comm_split_type(m->world, MPI_COMM_TYPE_SHARED, m->rank, MPI_INFO_NULL, &node), "split",
               0, -1);
  zx_mpi_check(m, MPI_Comm_split(node, zx_comm_mpi_part(m->rank), m->rank, &part), "split", 0, -1);
  int first = m->rank;
  zx_mpi_check(m, MPI_Bcast(&first, 1, MPI_INT, 0, part), "broadcast", sizeof first, -1);
  zx_mpi_check(m, MPI_Allgather(&first, 1, MPI_INT, m->node, 1, MPI_INT, m->world), "all-gather",
               sizeof first, -1);
  zx_mpi_check(m, MPI_Comm_free(&part), "split", 0, -1);
  zx_mpi_check(m, MPI_Comm_free(&node), "split", 0, -1);
}

/* Takes over `comm`. */
static ZxGroup group_add(Mpi *m, MPI_Comm comm) {
  m->group = zx_need(realloc(m->group, zb_array_bytes((size_t)m->ngroup + 1, sizeof *m->group)));
  Group *g = &m->group[m->ngroup];
  *g = (Group){.mpi = m, .comm = comm};
  zx_mpi_check(m, MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "error handler", 0, -1);
  MPI_Comm_rank(comm, &g->rank);
  MPI_Comm_size(comm, &g->size);
  if (g->size > 1) g->p2p = zx_p2p_new(&zx_mpi_transport, g->rank, g->size);
  for (int i = 0; i < ZX_P2P_SLOTS && g->size > 1; i++) {
    size_t most = 2 * ((size_t)g->size - 1);
    g->messages[i].req = zx_need(calloc(most, sizeof(MPI_Request)));
    g->messages[i].from = zx_need(calloc(most, sizeof(int)));
  }
  share(m, g);
  return m->ngroup++;
}

ZxGroup zx_mpi_split(ZxComm *c, int color) {
  Mpi *m = zx_mpi(c);
  MPI_Comm comm;
  zx_mpi_meet(m, m->group[0].comm, "making a group");
  zx_watch_waits("making a group");
  int rc = MPI_Comm_split(m->world, color < 0 ? MPI_UNDEFINED : color, m->rank, &comm);
  zx_mpi_check(m, rc, "split", 0, -1);
  ZxGroup made = comm == MPI_COMM_NULL ? -1 : group_add(m, comm);
  zx_watch_moved();
  return made;
}

static void group_free(Group *g) {
  for (int k = 0; k < ZX_P2P_SLOTS; k++) {
    free(g->messages[k].req);
    free(g->messages[k].from);
  }
  zx_p2p_free(g->p2p);
  if (g->shm) zx_shm_unmap(g->window, g->size);
  zx_shm_free(g->shm);
  MPI_Comm_free(&g->comm);
}

void zx_mpi_open_world(Mpi *m) {
  MPI_Comm_rank(m->world, &m->rank);
  zx_watch_waits("finding who is on which node");
  find_nodes(m);
  MPI_Comm world; /* a copy: reductions' tags must not meet those of send and recv */
  zx_mpi_check(m, MPI_Comm_dup(m->world, &world), "duplicate", 0, -1);
  group_add(m, world);
  zx_watch_moved();
}

void zx_mpi_reorder(ZxComm *c, const int *order) {
  Mpi *m = zx_mpi(c);
  MPI_Comm world;
  int now = 0;
  ZB_ASSERT(m->ngroup == 1 && !m->busy);
  while (order[now] != m->rank) now++;
  zx_watch_waits("putting ranks in another order");
  zx_mpi_check(m, MPI_Comm_split(m->world, 0, now, &world), "split", 0, -1);
  zx_mpi_check(m, MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "error handler", 0, -1);
  group_free(&m->group[--m->ngroup]);
  if (m->world != MPI_COMM_WORLD) MPI_Comm_free(&m->world);
  m->world = world;
  zx_mpi_open_world(m);
}

void zx_mpi_free_groups(Mpi *m) {
  for (int i = m->ngroup - 1; i >= 0; i--) group_free(&m->group[i]);
  if (m->world != MPI_COMM_WORLD) MPI_Comm_free(&m->world);
}
