/* replica: the ranks that play the same steps of generation. Dense replicas, ranks that differ in samples alone, are
 * independent of each other. Of one, all ranks have the same scheduler, are given the same requests and so come to the
 * same steps; ranks of the last stage have logits, each those of its words, and say to the others what was chosen. */
#ifndef ZUG_EXEC_REPLICA_H
#define ZUG_EXEC_REPLICA_H

#include "runtime/exec/comm/comm.h"
#include "runtime/exec/generate/generate.h"
#include "runtime/plan/plan.h"

typedef struct {
  ZxComm *c;
  ZxGroup all, words; /* its ranks, by number; those of a stage that share the words */
  int size, rank;     /* of its ranks */
  int root;           /* the first of the last stage, which tells the others */
  int part, parts;    /* of the words */
  bool last;          /* this rank is of the last stage */
  bool staged;        /* there are others */
  int index, count;   /* which replica this is, of how many */
} ZxReplica;
/* Finds this rank's. Collective over the world. */
ZxReplica zx_replica_of(ZxComm *c, const ZpPlan *p);
/* Collective: what member 0 has comes to all. */
void zx_replica_tell(const ZxReplica *r, void *p, size_t bytes, int from);
/* Collective: a choice, or why there is none, from the last stage to all. Returns whether there is one. */
bool zx_replica_choice(const ZxReplica *r, bool ok, ZxChoice *choice, ZbErr *err);
/* Collective over the last stage: own[row][word] of each part to all[row][word], `words` of them without padding; room
 * has parts x rows x own_words. */
void zx_replica_gather(const ZxReplica *r, const float *own, uint32_t rows, uint32_t own_words, float *room,
                       float *all, uint32_t words);

#endif
