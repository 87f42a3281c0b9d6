/* runtime/machine: what this machine is: cores, caches, memories, GPUs and NICs. As hwloc sees them, if this was
 * built with it; else as the operating system counts them. And that as a cluster, for plans.
 *
 * look.c     what there is
 * cluster.c  that as a cluster of the language, and in words
 * bind.c     a process kept on a part of it, and threads that must share what there is of it */
#ifndef ZUG_MACHINE_H
#define ZUG_MACHINE_H

#include "base/base.h"

enum { ZM_CACHES = 3 }; /* L1 of data, L2, L3 */
typedef struct {
  uint64_t bytes; /* of one; 0: there is none, or nobody says */
  uint32_t cores; /* that share it */
} ZmCache;
typedef struct {
  const char *name; /* "cuda0", "mlx5_0", "eth0" */
  bool gpu;         /* else it joins machines */
} ZmDevice;
typedef struct {
  bool hwloc;        /* else of what follows only cores, threads and memory are known */
  const char *model; /* of its processors; NULL: unknown */
  uint32_t packages, numa, cores, threads;
  uint64_t memory;
  ZmCache cache[ZM_CACHES];
  ZmDevice *devices;
  uint32_t ndevices;
} ZmMachine;
const ZmMachine *zm_look(ZbArena *a);

/* "2 packages, 4 NUMA nodes, 64 cores ..., memory 512.0 GB, caches ..., GPUs ..., NICs ..." */
void zm_show(const ZmMachine *m, ZbText *out);
/* Cluster `auto` in the language: so many such machines with so many ranks each. It has memories and levels, whose
 * links are as fast as this machine copies memory, and as its NIC says. What times are made from it has not. */
void zm_cluster(const ZmMachine *m, int64_t machines, int64_t ranks, ZbText *out);

/* The NUMA node, of `numa`, for a machine's rank number `rank` of `ranks`; -1: there is no reason to choose one. */
int zm_numa_of(uint32_t numa, int64_t ranks, int64_t rank);
/* Keeps this process on that node's cores, if it may use all of the machine's now: whoever started it has bound it to
 * none. Returns how many cores these are; 0: nothing was done. */
uint32_t zm_bind(int64_t ranks, int64_t rank);
/* Adds a note where `ranks` ranks of `threads` threads each have no more than these CPUs together. launched: by
 * mpirun or the like, which may have bound them. */
void zm_show_turns(int threads, int64_t ranks, ZbCpus cpus, bool launched, ZbText *out);

#endif
