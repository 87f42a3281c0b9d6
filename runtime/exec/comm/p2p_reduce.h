/* Reductions among the members of a group by messages between two members. Knows no transport: whoever makes
 * a group says how a message is sent. See p2p_reduce.c. */
#ifndef ZUG_COMM_P2P_REDUCE_H
#define ZUG_COMM_P2P_REDUCE_H

#include "runtime/exec/comm/comm.h"

enum { ZX_P2P_SLOTS = 3 }; /* rounds of a group in flight: some travel while one is combined */

/* A message to (from) a member. Of two members, messages of one tag arrive in the order in which they were
 * sent. */
typedef struct {
  const char *what; /* the operation, for messages to people */
  bool send;
  void *p;
  size_t bytes;
  int peer, tag;
} ZxP2pMessage;
typedef struct {
  /* Starts a message of slot 0..ZX_P2P_SLOTS-1. At most 2 * (size - 1) of a slot are under way at once. */
  void (*post)(void *group, int slot, const ZxP2pMessage *m);
  /* Whether all messages of the slot are complete; then it has none any more. */
  bool (*complete)(void *group, int slot, const char *what, size_t bytes);
} ZxP2pTransport;

/* ---- one member of a group ---- */
typedef struct ZxP2p ZxP2p;
ZxP2p *zx_p2p_new(const ZxP2pTransport *t, int rank, int size);
void zx_p2p_free(ZxP2p *r);

/* Operations are numbered 0, 1, 2, ... as they start. They mean what their namesakes in ZxCommTable mean;
 * nothing is empty. `group` goes to the transport. */
uint64_t zx_p2p_all_reduce(ZxP2p *r, void *group, void *p, size_t n, ZkElem elem, ZxReduce reduce);
uint64_t zx_p2p_reduce_scatter(ZxP2p *r, void *group, void *in, size_t n, ZkElem elem, ZxReduce reduce,
                               void *out);
/* Does what can be done without waiting for another member. */
void zx_p2p_progress(ZxP2p *r, void *group);
bool zx_p2p_done(const ZxP2p *r, uint64_t op);
bool zx_p2p_idle(const ZxP2p *r);      /* all are done */
uint64_t zx_p2p_moves(const ZxP2p *r); /* grows as operations get on */

#endif
