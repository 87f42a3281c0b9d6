/* Why a run ends before its last step although nothing is wrong: a signal asks for it, or its time is up. A
 * rank only finds out that it wants to stop; all of them stop after the same step, by what zrun reduces over
 * all ranks at the end of every step. */
#ifndef ZUG_EXEC_STOP_H
#define ZUG_EXEC_STOP_H

#include "base/base.h"

typedef struct {
  double until;      /* by zb_now; 0: there is no limit */
  double limit;      /* seconds of the whole run */
  double step, save; /* usual seconds of a step and of a checkpoint; below 0: there was none yet */
  int64_t nsteps;
} ZxStop;

/* From now on SIGTERM, SIGUSR1 and SIGINT (Ctrl-C) ask for a stop instead of ending the program; SIGINT after
 * another of them ends it at once. What is printed waits for a reader of the standard output as ever. After a
 * signal it is lost if nobody reads: mpirun reads nothing any more from the ranks that it ends. */
void zx_stop_on_signals(void);
/* `began`: when the run did, by zb_now; limit: its seconds, 0 if there is no limit. `saves`: something is
 * written at a stop, for which time must be left. */
ZxStop zx_stop_new(double began, double limit, bool saves);
/* A step, what a stop writes (here at another time) took so many seconds. */
void zx_stop_step(ZxStop *s, double seconds);
void zx_stop_saved(ZxStop *s, double seconds);
/* Why this rank wants to stop now, for zx_stop_why; 0: it does not. The number fits a double. */
int zx_stop_wanted(const ZxStop *s);
/* Forgets a SIGINT that asked for it, which has ended something smaller than the run. */
void zx_stop_forget_interrupt(void);
const char *zx_stop_why(int wanted); /* "SIGTERM", "its time limit" */

#endif
