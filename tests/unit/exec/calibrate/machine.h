/* A machine in a time of its own, of constants that the test knows: each call and exchange takes what plan/time
 * says that it takes (runtime/plan/time), and what measures it must find the constants again.
 *
 * clock.c     the time: clock_gettime in place of the library's
 * device.c    two devices: one of the host's, and one that queues calls, whose memory the host cannot touch
 * world.c     one rank's view of its world: what exchanges take, alone and during computation
 *
 * A message of up to EAGER bytes takes its start and latencies only. */
#ifndef ZUG_TEST_CALIBRATE_MACHINE_H
#define ZUG_TEST_CALIBRATE_MACHINE_H

#include "runtime/exec/calibrate/calibrate.h"

enum { MOST_RANKS = 8, EAGER = 1024 };

typedef struct {
  /* ---- what it is ---- */
  ZlCluster is;
  ZlLevel level[2]; /* `is.levels`: within nodes, between them */
  int rank, size, node[MOST_RANKS];
  double slower;                /* how much longer all takes on the slowest other rank, where here it is 1 */
  bool noisy;                   /* now and then all takes four times as long */
  double tiny;                  /* seconds of the smallest call, if not those of a launch */
  int alloc_fails, others_fail; /* the how manieth allocation; agreement */
  int finish_fails;             /* the how manieth wait for the device */
  /* ---- what was asked of it ---- */
  int allocs, frees, opened, closed, comms, finished;
  uint64_t barriers, runs, agreed;
  double longest; /* seconds of an exchange */
  double digest;  /* of what ranks compared */
} Machine;
extern Machine machine;

/* Begins: ranks of a host device, or of one of the other kind. nodes: of each rank its node's first one. */
void machine_start(bool host, int rank, int size, const int *nodes);
extern ZxComm world, queued_world;
extern const ZxDeviceTable device_here, device_queued;

/* ---- for each other ---- */
double clock_now(void);
void clock_start(void);
void clock_add(double seconds);
void device_forget(void);
void world_forget(void);
/* A rank computes for so long, were it alone. */
void world_compute(double seconds);
void world_end_exchange(void);
double world_noise(void); /* factor of all times now */

#endif
