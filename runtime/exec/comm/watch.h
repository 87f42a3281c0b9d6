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
 * watch.c. It runs from before the beginning of MPI to behind its end.
 *
 * Steps are watched with the limit itself. Phases before and after them are slow ones (zx_watch_phase): files
 * are opened, plans made, checkpoints read. There
 *
 *   - the limit is six times as long, up to ten minutes, or as long as that of steps;
 *   - a rank that waits for nobody is at work, and that lasts an hour at most;
 *   - ranks tell rank 0 now and then when they last got something done, by the same datagrams, and it tells
 *     them when any rank did: nobody gives up while another reads a large file. A rank that is stopped tells
 *     nothing, and neither does one behind a cut link. Where no datagrams get through, and
 *     before MPI has begun, a rank knows of itself alone. */
#ifndef ZUG_COMM_WATCH_H
#define ZUG_COMM_WATCH_H

#include "runtime/exec/comm/comm.h"

/* limit: seconds; 0: there is no watchdog, and the functions below do nothing. code: that of the process when
 * it hangs. rank: as far as it is known. False if the thread cannot be started. */
bool zx_watch_start(int rank, double limit, int code, ZbErr *err);
/* Collective, with or without a watchdog: ranks can tell each other how they get on from now on. Again when
 * they have got other numbers. */
void zx_watch_meet(ZxComm *c);
void zx_watch_close(void);

/* ---- the rank's thread ---- */
/* Something got done. */
void zx_watch_moved(void);
/* A slow phase begins: "planning", which is said of a rank that hangs there; "": its steps are said. NULL:
 * steps are made from now on. */
void zx_watch_phase(const char *name);
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
  int32_t stands;      /* it waits for nobody: it is inside its instruction */
  int32_t speaks;      /* its limit is near, and `text` says where it is */
  double age;          /* seconds since it got something done */
  char text[ZX_POST_TEXT];
} ZxPost;
typedef struct ZxPostbox ZxPostbox;
/* Collective. */
ZxPostbox *zx_postbox_new(ZxComm *c);
void zx_postbox_free(ZxPostbox *b);
void zx_post_send(ZxPostbox *b, const ZxPost *p); /* to rank 0, which takes its own at once */
typedef struct {
  bool hangs; /* some rank */
  double age; /* of the latest that got done; INFINITY: nothing is heard */
} ZxNews;
/* Takes in what has come. Rank 0 answers with the least of these ages and its own, `age`. */
ZxNews zx_post_receive(ZxPostbox *b, double age);
bool zx_post_complete(const ZxPostbox *b); /* it has heard of all ranks */
void zx_post_report(const ZxPostbox *b);   /* says who is where, and who holds up whom */

/* ---- vigil.c: how long nothing has got done ---- */
typedef struct {
  double limit;        /* of steps */
  double moved, works; /* when the count changed here; when that or work of its own was seen */
  double others, seen; /* the latest that others got done; when it was looked at */
  unsigned long moves;
} ZxVigil;
typedef struct {
  unsigned long moves;
  bool waits, slow; /* it waits for others; in a slow phase */
} ZxSigns;
typedef enum { ZX_FINE, ZX_LATE, ZX_OVER } ZxVerdict;
ZxVigil zx_vigil_new(double limit, double now);
double zx_vigil_limit(const ZxVigil *v, bool slow);
double zx_vigil_tick(const ZxVigil *v); /* how often it is looked at */
/* To be called every tick; a longer gap does not count. */
ZxVerdict zx_vigil_look(ZxVigil *v, const ZxSigns *s, double now);
void zx_vigil_hear(ZxVigil *v, double age, double now); /* others got something done so long ago */
double zx_vigil_since(const ZxVigil *v);                /* when any rank did, as far as it is known */

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
