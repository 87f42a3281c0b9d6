/* replica: the ranks that play the same steps of generation. Dense replicas, ranks that differ in samples alone, are
 * independent of each other; beside a plan that trains all ranks are one. Of one, all ranks have the same scheduler, are
 * given the same requests and so come to the same steps; ranks of the last stage have logits, each those of its words,
 * and say to the others what was chosen. */
#ifndef ZUG_EXEC_REPLICA_H
#define ZUG_EXEC_REPLICA_H

#include "runtime/exec/comm/comm.h"
#include "runtime/plan/plan.h"

typedef struct {
  ZxComm *c;
  ZxGroup words;       /* ranks of a stage that share the words */
  int size, rank;      /* of its ranks */
  const int *world;    /* by rank of the replica */
  const bool *of_last; /* by rank of the replica: it is of the last stage */
  int root;            /* the first of the last stage, which tells the others what was chosen */
  int part, parts;     /* of the words */
  bool last;           /* this rank is of the last stage */
  bool staged;         /* there are others, which are told what the last one's root chose */
  int index, count;    /* which replica this is, of how many */
  const int *leaders;  /* by replica: the rank in the world of its first */
} ZxReplica;
/* Finds this rank's. Collective over the world. */
ZxReplica zx_replica_of(ZxComm *c, const ZpPlan *p, ZbArena *a);
/* Gives ranks of the last stage that share the words what each of them has (ZxGather). Collective over them. */
void zx_replica_gather(void *replica, const void *own, size_t bytes, void *all);

#endif
