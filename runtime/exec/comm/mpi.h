/* What the files that know MPI share: mpi.c, mpi_group.c, mpi_ops.c, each of which calls the later ones. */
#ifndef ZUG_COMM_MPI_H
#define ZUG_COMM_MPI_H

#include <mpi.h>

#include "runtime/exec/comm/comm.h"
#include "runtime/exec/comm/p2p_reduce.h"
#include "runtime/exec/comm/shm.h"

typedef enum { FREE, PLAIN, P2P, SHARED } Kind;

typedef struct {
  Kind kind;
  int32_t next;     /* in the list of free operations; -1: the last */
  MPI_Request req;  /* PLAIN */
  uint64_t number;  /* P2P, SHARED: in the group's `p2p` or `shm` */
  const char *what; /* for messages: */
  size_t bytes;
  int peer; /* -1: a collective, of: */
  ZxGroup group;
} Op;

/* Messages of a round of a reduction. */
typedef struct {
  int nreq;
  MPI_Request *req; /* 2 * (size - 1) */
  int *from;        /* of each: the member that it receives from; -1: it sends */
} Messages;

typedef struct Mpi Mpi;
typedef struct {
  Mpi *mpi;
  MPI_Comm comm;
  int rank, size;
  ZxP2p *p2p; /* NULL: a member alone */
  Messages messages[ZX_P2P_SLOTS];
  ZxShm *shm; /* NULL: not all members are on one node */
  void *window;
  bool reducing, sharing; /* operations are open in `p2p`, in `shm` */
} Group;

struct Mpi {
  ZxComm base;
  MPI_Comm world;               /* of transfers; the ranks are its own */
  int rank, size, ngroup, busy; /* busy: what is `reducing` or `sharing`, of all groups */
  Group *group;
  Op *op;
  int32_t nop, free_op;
  size_t limit; /* counts larger than this go by a derived type */
  bool apart;   /* shared memory is not to be used */
  int *node;    /* of each rank of the world: the first rank there */
};

static inline Mpi *zx_mpi(ZxComm *c) { return (Mpi *)c; }

/* ---- mpi_group.c ---- */
/* Ranks, nodes and group 0 of a world that has just got its communicator. */
void zx_mpi_open_world(Mpi *m);
ZxGroup zx_mpi_split(ZxComm *c, int color);
void zx_mpi_reorder(ZxComm *c, const int *order);
void zx_mpi_free_groups(Mpi *m); /* and the world's own communicator */

/* ---- mpi_ops.c ---- */
/* A failed call ends the job here, where operation, peer (below 0: none) and size are known. */
void zx_mpi_check(Mpi *m, int rc, const char *what, size_t bytes, int peer);
/* All members of `comm` come to it. A wait that lasts is told, unlike those of MPI's own that block. */
void zx_mpi_meet(Mpi *m, MPI_Comm comm, const char *what);
/* As ZxCommTable has them. */
ZxRequest zx_mpi_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag);
ZxRequest zx_mpi_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag);
ZxRequest zx_mpi_all_reduce(ZxComm *c, ZxGroup gi, void *p, size_t n, ZkElem e, ZxReduce op);
ZxRequest zx_mpi_all_gather(ZxComm *c, ZxGroup gi, const void *part, size_t bytes, void *out);
ZxRequest zx_mpi_reduce_scatter(ZxComm *c, ZxGroup gi, void *in, size_t n, ZkElem e, ZxReduce op, void *out);
ZxRequest zx_mpi_all_to_all(ZxComm *c, ZxGroup gi, const void *in, size_t bytes, void *out);
ZxRequest zx_mpi_broadcast(ZxComm *c, ZxGroup gi, void *p, size_t bytes, int root);
bool zx_mpi_test(ZxComm *c, ZxRequest r);
void zx_mpi_progress(ZxComm *c);
void zx_mpi_explain(ZxComm *c, ZxRequest r, ZbText *out);
uint64_t zx_mpi_moves(ZxComm *c);

extern const ZxP2pTransport zx_mpi_transport; /* of p2p_reduce.c: its groups are Groups */

#endif
