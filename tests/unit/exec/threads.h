/* Ranks that are threads, and a communicator that is memory which they share: what several ranks do
 * together, in a program without MPI. */
#ifndef ZUG_TEST_THREADS_H
#define ZUG_TEST_THREADS_H

#include "runtime/exec/comm/comm.h"

enum { THREADS_MOST = 12 };
typedef struct {
  ZxComm base;
  int rank;
} ThreadRank;

/* Each of n ranks plays, with its ThreadRank as the argument; all have when it returns. Reductions are of at
 * most eight f64; there is no group but the world. */
void together(int n, void *(*play)(void *rank));
/* On which node each rank is, by the first rank there; rank 0's all, until it is said. */
extern int threads_node[THREADS_MOST];

#endif
