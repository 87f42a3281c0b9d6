/* The watchdog of a rank: a thread of its own, which ends a run that hangs. MPI and NCCL wait for ever, for a
 * rank that stands still as for a node whose network is cut, and then mpirun does so too.
 *
 * The rank counts what it gets done; where the count stays for longer than the limit,
 *
 *   - the rank says which instruction it is in, whom it waits for and since when;
 *   - it sends that to rank 0 by UDP, which needs neither MPI nor that anybody waits for it, and rank 0 says of
 *     all ranks where they are, and of which it has heard nothing (post.c);
 *   - the process ends, and so does what had started it, should that hang (reap.c): within 10 seconds of the
 *     limit nothing is left on any node, whatever of the network still works.
 *
 * Counting costs a store; nothing is looked at in a step. One process has one watchdog: its state is in
 * watch.c. Before zx_watch_begin, while a run is made ready, it watches nothing. */
#ifndef ZUG_COMM_WATCH_H
#define ZUG_COMM_WATCH_H

#include "runtime/exec/comm/comm.h"

/* Collective. limit: seconds; 0: there is no watchdog, and the functions below do nothing. code: that of the
 * process when it hangs. False if the thread cannot be started. */
bool zx_watch_open(ZxComm *c, double limit, int code, ZbErr *err);
void zx_watch_begin(void);
void zx_watch_close(void);

/* ---- the rank's thread ---- */
/* Something got done. */
void zx_watch_moved(void);
/* The instruction that comes now, and how it reads: `where` is called by another thread, and `of` does not
 * change. */
typedef void ZxWhere(const void *of, uint32_t instr, ZbText *out);
void zx_watch_where(ZxWhere *where, const void *of); /* NULL: before `of` is freed */
void zx_watch_step(int64_t step);
void zx_watch_instr(uint32_t instr);
/* It waits, which it will say more of when that lasts; until something gets done. */
void zx_watch_pauses(void);
/* A wait has lasted: "step 12: RECV_ACT(mb 3): receive of 1.2 MB from rank 3"; until something gets done. */
void zx_watch_waits(const char *what);
/* The job is being aborted: should that not end this process, it is ended with `code`, and what had started
 * it as well. */
void zx_watch_abort(int code);

/* ---- post.c: what ranks tell rank 0 ---- */
enum { ZX_POST_TEXT = 400 };
typedef struct {
  uint64_t job;
  int32_t rank, hangs; /* hangs: its limit is over */
  int32_t stands, pad; /* it waits for nobody: it is inside its instruction */
  char text[ZX_POST_TEXT];
} ZxPost;
typedef struct ZxPostbox ZxPostbox;
/* Collective. */
ZxPostbox *zx_postbox_new(ZxComm *c);
void zx_postbox_free(ZxPostbox *b);
void zx_post_send(ZxPostbox *b, const ZxPost *p); /* to rank 0, which takes its own at once */
/* Rank 0: takes in what has come; true if some rank hangs. */
bool zx_post_receive(ZxPostbox *b);
bool zx_post_complete(const ZxPostbox *b); /* it has heard of all ranks */
void zx_post_report(const ZxPostbox *b);   /* says who is where, and who holds up whom */

/* ---- reap.c: the processes that started this one ---- */
typedef struct {
  int launcher, self; /* handles of processes; -1: none, or not known */
  int pid;            /* the launcher's */
} ZxReaper;
/* mpirun or its daemon on this node, if it is one that serves this job alone. */
ZxReaper zx_reaper_new(void);
/* Leaves a process behind that ends this one, if it is still there after `self_s` seconds, and after `all_s`
 * the launcher with all it has started. */
void zx_reap(const ZxReaper *r, int self_s, int all_s);

#endif
