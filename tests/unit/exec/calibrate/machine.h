/* A machine in a time of its own, of constants that the test knows: each call, exchange and pause takes what
 * plan/time says that it takes (runtime/plan/time), and what measures it must find the constants again.
 *
 * clock.c     the time: clock_gettime and nanosleep in place of the library's
 * device.c    a device: what calls take, and whether they are given what they should be
 * world.c     one rank's view of its world: what exchanges take, alone and beside computation
 *
 * Where plan/time leaves open what a constant is the least of, the machine says so: a call whose operands lie
 * in L1 moves nothing, a message of up to EAGER bytes takes its start and latencies only, and a lone sum goes
 * beside what is read for it. */
#ifndef ZUG_TEST_CALIBRATE_MACHINE_H
#define ZUG_TEST_CALIBRATE_MACHINE_H

#include "runtime/exec/calibrate/calibrate.h"

enum { MOST_RANKS = 8, MOST_KINDS = 64, MOST_REDUCED = 2048, L1 = 32 << 10, EAGER = 1024 };

/* A call that was run, and where its operands lay. */
typedef struct {
  const ZkCall *call;
  uint64_t runs;
  size_t in_end, out_end; /* of all places, in the area */
  size_t of_call;         /* bytes of its operands */
  void *place[64];        /* of its first operand, all that there were */
  int places;
} Ran;

/* Collectives of one group, kind and size. */
typedef struct {
  ZxGroup group;
  int op; /* ZG_OP_ALL_GATHER, ZG_OP_ALL_REDUCE */
  size_t bytes;
  int count;
} Exchanged;

typedef struct {
  double value;
  uint64_t barriers;
} Reduced;

typedef struct {
  /* ---- what it is ---- */
  ZlCluster is;
  ZlLevel level[2]; /* `is.levels`: within nodes, between them */
  int rank, size, node[MOST_RANKS];
  double slower; /* how much longer all takes on the slowest other rank, where here it is 1 */
  /* May be NULL: what a call takes, if that is not what the constants say; what an exchange takes more. */
  double (*takes)(const ZkCall *call, double seconds);
  double (*more)(int op, size_t bytes);
  bool noisy; /* now and then all takes four times as long */
  int alloc_fails, others_fail,
      others_lack; /* the how manieth allocation; agreement; MAX of -1 for no rank */
  /* ---- what was asked of it ---- */
  int allocs, frees, opened, closed;
  uint64_t barriers, runs, updates, naps, messages, agreed;
  double digest; /* of what ranks compared */
  Ran ran[MOST_KINDS];
  Exchanged exchanged[MOST_KINDS];
  uint32_t nran, nexchanged;
  /* Of each MAX: what came out, and how many barriers there were. `replays`: another rank's, that this one
   * is with. */
  Reduced reduced[MOST_REDUCED], *replays;
  uint32_t nreduced;
} Machine;
extern Machine machine;

/* Begins: one rank on one node. */
void machine_start(void);
/* nodes: of each rank its node's first one. */
void machine_ranks(int rank, int size, const int *nodes);
ZxMeasure machine_measure(void);
extern ZxComm world;

/* ---- for each other ---- */
double clock_now(void);
void clock_start(void);
void clock_add(double seconds);
void device_forget(void);
void world_forget(void);
/* A rank computes for so long, were it alone. */
void world_compute(double seconds);
/* Factor of all times now. */
double world_noise(void);

#endif
