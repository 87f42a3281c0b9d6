/* comm: communicators of the host's memory, and what ranks do together by way of them. A communicator is a
 * table of functions; who uses one does not know which it is. This room knows no plan, no device and no
 * engine.
 *
 * self.c         a world of one rank
 * mpi*.c         MPI: transfers, groups, and by which of the following a collective goes (mpi.h)
 * shm.c          collectives inside a node, through memory that its ranks share (shm.h)
 * p2p_reduce.c   reductions by messages between two ranks (p2p_reduce.h)
 * combine.c      the arithmetic of reductions
 * launch.c       what a launcher says of this process
 * wait.c         waits that poll: how they pause, and what is said when one lasts
 * watch.c        a thread that ends a run that hangs (watch.h), with vigil.c, post.c and reap.c
 * agree.c        whether all ranks are content
 * same.c         whether all ranks were given the same (same.h)
 * say.c          what a single rank says, and the end of a job
 *
 * Communicators of a device's memory, which stand on these, are in device/. */
#ifndef ZUG_EXEC_COMM_H
#define ZUG_EXEC_COMM_H

#include "base/base.h"
#include "kernels/elem.h"

/* ---- the table --------------------------------------------------------------------------------------------
 * One world of ranks and its subgroups. All operations are non-blocking: a function that starts one returns a
 * request, `test` says whether it is complete and makes progress on all. Buffers must stay untouched until
 * then. Collectives of one group must be started in the same order by all its members; the plan guarantees
 * it.
 *
 * What is moved is what is handed over. f32, f64 and bf16 can be reduced; bf16 is reduced by exchanging bf16.
 * It is summed in f32, as a binary tree in the order of ranks (combine.c), and rounded once; but by NCCL, which rounds
 * where it adds. */
typedef struct ZxComm ZxComm;
typedef enum { ZX_SUM, ZX_MAX } ZxReduce;
typedef int32_t ZxRequest; /* index into the communicator's table of requests; -1: complete */
typedef int32_t ZxGroup;   /* 0: the world */
typedef struct {
  void *p; /* sent from there, or received */
  size_t bytes;
  int member; /* of the group */
  bool send;
} ZxMessage;

typedef struct {
  const char *name; /* "self", "mpi" */
  /* May be NULL: its name says it. For people. */
  const char *(*describe)(ZxComm *);
  int (*rank)(ZxComm *);
  int (*size)(ZxComm *);
  int (*node_rank)(ZxComm *);    /* this rank's number among those of its node */
  const int *(*nodes)(ZxComm *); /* of each rank, the first rank of its node */
  /* May be NULL. Collective, before anything but the world is used: what was rank order[i] is rank i from now
   * on. */
  void (*reorder)(ZxComm *, const int *order);
  /* Collective over the world: ranks with the same color form a group, ordered by world rank; color < 0: this
   * rank is in none and gets -1. Groups are made at start-up, in the same order on all ranks. */
  ZxGroup (*split)(ZxComm *, int color);
  int (*group_rank)(ZxComm *, ZxGroup);
  int (*group_size)(ZxComm *, ZxGroup);
  /* May be NULL. Collective, before the first send and recv: the peers that this rank will have. */
  void (*connect)(ZxComm *, const int *world_peers, int n);

  ZxRequest (*send)(ZxComm *, const void *p, size_t bytes, int world_peer, int tag);
  ZxRequest (*recv)(ZxComm *, void *p, size_t bytes, int world_peer, int tag);
  ZxRequest (*all_reduce)(ZxComm *, ZxGroup, void *p, size_t n, ZkElem, ZxReduce); /* in place */
  /* Member i contributes `bytes` bytes, found at `part` (which may be out + i*bytes: in place). */
  ZxRequest (*all_gather)(ZxComm *, ZxGroup, const void *part, size_t bytes, void *out);
  /* `in` holds group_size blocks of n elements; block i summed over members arrives at member i. `in` stays
   * as it is, but for its own block if that is `out`. */
  ZxRequest (*reduce_scatter)(ZxComm *, ZxGroup, void *in, size_t n, ZkElem, ZxReduce, void *out);
  ZxRequest (*all_to_all)(ZxComm *, ZxGroup, const void *in, size_t bytes, void *out); /* bytes per pair */
  ZxRequest (*broadcast)(ZxComm *, ZxGroup, void *p, size_t bytes, int root);
  /* May be NULL: by send and recv. All of these messages between members at once; of two members, both have
   * those between them, in one order. None is to oneself. */
  ZxRequest (*exchange)(ZxComm *, ZxGroup, const ZxMessage *m, int n);
  bool (*test)(ZxComm *, ZxRequest); /* true: complete, and the request is given back */
  void (*wait)(ZxComm *, ZxRequest); /* tests, yields and then sleeps: never spins a core dry */
  void (*barrier)(ZxComm *);

  /* May be NULL: no. Whether all operations are complete (-1) for the host when they start, and a device's
   * streams do the rest. Ranks must then start them in one order of all. */
  bool (*stream_ordered)(ZxComm *);
  /* May be NULL. Why such operations cannot be captured; NULL: they can. */
  const char *(*capture_blocker)(ZxComm *);
  /* May be NULL. Collective, after a capture that failed on some rank and is forgotten: operations work
   * again. */
  void (*rebuild)(ZxComm *);
  /* May be NULL. Called now and then while a rank waits for its device: lets go on what others wait for, and
   * ends the job if what was begun has failed. */
  void (*progress)(ZxComm *);

  /* May be NULL, both. For people: what an open request is, and whom it waits for as far as that is known:
   * "receive of 1.2 MB from rank 3". A number that grows as open requests get on. */
  void (*explain)(ZxComm *, ZxRequest, ZbText *out);
  uint64_t (*moves)(ZxComm *);
  /* May be NULL. What says more about a wait of its own that lasts: "NCCL_DEBUG=INFO says more". */
  const char *stall_hint;
  /* May be NULL: yes. Whether this rank is the first of its node to ask. */
  bool (*claim)(ZxComm *);
  /* Ends the whole job with `code`; the one place that does. Flushes nothing but stderr; unfinished files are
   * removed. */
  void (*abort)(ZxComm *, int code) __attribute__((noreturn));
  void (*free)(ZxComm *);
} ZxCommTable;
struct ZxComm {
  const ZxCommTable *t;
};

/* ---- communicators ------------------------------------------------------------------------------------- */
ZxComm *zx_comm_self(void);
/* Initialises MPI (funneled), also for one rank. `argc`, `argv` as main's. */
ZxComm *zx_comm_mpi(int *argc, char ***argv, ZbErr *err);
/* What launchers say of this process before MPI does: its rank and how many were started; -1: nothing. Of
 * several (mpirun in a shell that srun started) the first in launch.c counts, but a process is `alone` only
 * where none of them speaks of others. */
typedef struct {
  int rank, size;
  bool alone;
} ZxLaunch;
ZxLaunch zx_launch(void);

/* For tests: messages of more than `bytes` bytes go the way of those too large for MPI's int counts. */
void zx_comm_mpi_limit(ZxComm *comm, size_t bytes);
/* For tests: collectives started from now on go by messages, as if every rank were on a node of its own. The
 * same on all ranks, while nothing is open. */
void zx_comm_mpi_apart(ZxComm *comm, bool apart);
/* A test program may replace it: ranks of one machine for which it gives other numbers are on other nodes. */
int zx_comm_mpi_part(int rank);

/* ---- waits --------------------------------------------------------------------------------------------- */
/* A wait that polls, 0 at its beginning. zx_pause: one more look was in vain. Pauses, shortly at first. When
 * nothing of `c` (may be NULL) has moved for zx_stall_after seconds it says once that the wait stalls, and if
 * so, when something moves. */
typedef struct {
  uint64_t tries, moves;
  double since, seen;
  bool told;
} ZxWait;
typedef enum { ZX_WAITS, ZX_STALLS, ZX_GOES_ON } ZxWaited;
ZxWaited zx_pause(ZxWait *w, ZxComm *c);
/* Waits for a request by testing it; a rank that waits for long says for what. A communicator's `wait`. */
void zx_wait(ZxComm *c, ZxRequest r);
/* How long a wait may last, in seconds, before a rank says what it waits for: zx_patience, which a test
 * program may replace, or half of the watchdog's limit if that is less. (Functions, since zplan loads modules
 * without them.) */
double zx_patience(void);
double zx_stall_after(void);

/* ---- agreement ----------------------------------------------------------------------------------------- */
/* Collective: true on all ranks if `ok` on all of them. */
bool zx_agree(ZxComm *c, bool ok);
/* Collective: the lowest number that a rank has; below 0: it has none. -1 if no rank has one. Exact up to
 * 2^53. */
int64_t zx_lowest(ZxComm *c, int64_t mine);

/* ---- single ranks -------------------------------------------------------------------------------------- */
/* "[rank 3] text" on stderr, one write call. */
void zx_say(int rank, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From now on such lines begin by erasing what is on the terminal's line. */
void zx_say_over_line(bool over);
/* Says why and ends the whole job, with code 1. Of ranks of a node that do so at one time one says it. */
_Noreturn void zx_die(ZxComm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void zx_die_of(ZxComm *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- for communicators --------------------------------------------------------------------------------- */
/* out[0..n) = (part[0] + part[1]) + (part[2] + part[3]) .. (or their maximum), the binary tree of combine.c, so the
 * result does not depend on which rank computes it. bf16 is summed in f32 and rounded once. `out` may be
 * one of the parts. A NaN in any part gives NaN, for the maximum too: a diverged rank must not disappear in a
 * reduction. */
void zx_combine(void *out, const void *const *part, int count, size_t n, ZkElem elem, ZxReduce op);
/* What calloc, malloc or realloc returned; without memory it ends the program. */
static inline void *zx_need(void *p) {
  if (!p) zb_out_of_memory(0);
  return p;
}

#endif
