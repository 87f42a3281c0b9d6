/* See threads.h. */
#include "tests/unit/exec/threads.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int threads_node[THREADS_MOST];

static pthread_barrier_t all;
static int ranks;
static const void *given[THREADS_MOST];

static int rank_of(ZxComm *c) { return ((ThreadRank *)c)->rank; }
static int size_of(ZxComm *c) { return (void)c, ranks; }
static const int *nodes_of(ZxComm *c) { return (void)c, threads_node; }
static void done(ZxComm *c, ZxRequest r) { (void)c, (void)r; }
static void barrier(ZxComm *c) { (void)c, pthread_barrier_wait(&all); }

static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  double x[8] = {0};
  cr_assert(g == 0 && n <= 8 && elem == ZK_F64);
  given[rank_of(c)] = p;
  pthread_barrier_wait(&all);
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < ranks; k++) {
      double y = ((const double *)given[k])[i];
      x[i] = how == ZX_SUM ? x[i] + y : k && x[i] > y ? x[i] : y;
    }
  pthread_barrier_wait(&all);
  memcpy(p, x, n * sizeof *x);
  return -1;
}

static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  cr_assert_eq(g, 0);
  given[rank_of(c)] = part;
  pthread_barrier_wait(&all);
  for (int k = 0; k < ranks; k++) memcpy((char *)out + (size_t)k * bytes, given[k], bytes);
  pthread_barrier_wait(&all);
  return -1;
}

static ZxRequest broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  cr_assert_eq(g, 0);
  if (rank_of(c) == root) given[root] = p;
  pthread_barrier_wait(&all);
  if (rank_of(c) != root) memcpy(p, given[root], bytes);
  pthread_barrier_wait(&all);
  return -1;
}

/* ---- messages: one at a time between two ranks, which both are there for ---- */
static struct {
  const void *p;
  size_t bytes;
  int tag;
} under_way[THREADS_MOST][THREADS_MOST]; /* from, to */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static ZxRequest send_to(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  int me = rank_of(c);
  pthread_mutex_lock(&mutex);
  under_way[me][peer].p = p;
  under_way[me][peer].bytes = bytes;
  under_way[me][peer].tag = tag;
  pthread_cond_broadcast(&changed);
  while (under_way[me][peer].p) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  return -1;
}

static ZxRequest recv_from(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  int me = rank_of(c);
  pthread_mutex_lock(&mutex);
  while (!under_way[peer][me].p) pthread_cond_wait(&changed, &mutex);
  cr_assert(under_way[peer][me].bytes == bytes && under_way[peer][me].tag == tag);
  memcpy(p, under_way[peer][me].p, bytes);
  under_way[peer][me].p = NULL;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  return -1;
}

static const ZxCommTable table = {.name = "threads",
                                  .rank = rank_of,
                                  .size = size_of,
                                  .nodes = nodes_of,
                                  .send = send_to,
                                  .recv = recv_from,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .broadcast = broadcast,
                                  .barrier = barrier,
                                  .wait = done};

void together(int n, void *(*play)(void *)) {
  static ThreadRank r[THREADS_MOST];
  pthread_t thread[THREADS_MOST];
  ranks = n;
  pthread_barrier_init(&all, NULL, (unsigned)n);
  for (int i = 0; i < n; i++) {
    r[i] = (ThreadRank){{&table}, i};
    cr_assert_eq(pthread_create(&thread[i], NULL, play, &r[i]), 0);
  }
  for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
  pthread_barrier_destroy(&all);
}
