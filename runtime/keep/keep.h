/* keep: starts a run, and starts it again for as long as that helps. It knows a run by its command and its
 * code only (runtime/exec/exit.h), and needs no MPI: it must outlive what MPI does not.
 *
 * zkeep.c    the program: options, and start after start
 * policy.c   whether to start again, and when; what of a run is progress
 * hosts.c    which hosts answer, and for how many ranks that does
 * child.c    a command with all that it starts: beginning, waiting, ending
 * orphan.c   a launcher that does not notice that its processes are dead */
#ifndef ZUG_KEEP_H
#define ZUG_KEEP_H

#include "base/base.h"

/* ---- policy.c ------------------------------------------------------------------------------------------ */
typedef struct {
  int most;               /* starts in a row that may come to nothing */
  double wait, wait_most; /* seconds before the next start: at first, and at the most, as it doubles */
} KeepLimits;
typedef struct {
  int in_vain;  /* starts in a row without progress */
  int64_t step; /* the newest checkpoint's; -1: none, or not known */
} KeepState;
typedef enum { KEEP_DONE, KEEP_MISTAKE, KEEP_AGAIN, KEEP_ENOUGH } KeepVerdict;
/* A command has ended with `code`, and the newest checkpoint is now that of `step` (-1: none, or not known).
 * KEEP_AGAIN: after *wait seconds. */
KeepVerdict keep_judge(const KeepLimits *l, KeepState *s, int code, int64_t step, double *wait);
/* The step of the newest complete checkpoint in that folder, DIR/step-N; -1 if there is none. */
int64_t keep_newest(const char *dir);
/* Where the command has its checkpoints: its --ckpt DIR; NULL if it has none. */
const char *keep_checkpoints(char *const *command);

/* ---- hosts.c ------------------------------------------------------------------------------------------- */
typedef struct {
  const char *name;
  int slots;
  bool answers;
} KeepHost;
typedef struct {
  KeepHost *host;
  uint32_t n;
} KeepHosts;
/* A host file as mpirun has them: a line each, "NAME slots=N" or "NAME:N" or "NAME" (one slot); # begins a
 * comment. */
bool keep_read_hosts(ZbArena *a, const char *path, KeepHosts *out, ZbErr *err);
/* "8,4,2" to numbers that end with 0. */
bool keep_read_ranks(ZbArena *a, const char *text, int **out, ZbErr *err);
/* Runs `probe` for every host, with HOST replaced by its name, many at a time; the host answers if that ends
 * with 0 within `limit` seconds. */
void keep_probe(ZbArena *a, KeepHosts *h, const char *probe, double limit);
/* The most of these numbers of ranks for which the hosts that answer have slots; 0: none. */
int keep_ranks(const KeepHosts *h, const int *ranks);
/* The command with "-np N --host A:2,B:2" after its first word. */
char **keep_on_hosts(ZbArena *a, char *const *command, const KeepHosts *h, int ranks);

/* ---- child.c ------------------------------------------------------------------------------------------- */
/* First of all: the signals that end zkeep are from now on waited for, and processes that a command leaves
 * behind become zkeep's. */
void keep_take_signals(void);
/* Starts a command in a process group of its own, without standard input; -1: it cannot be started. */
int keep_start(char *const *command, ZbErr *err);
/* Waits until that process ends, or for so many seconds (below 0: for ever), or for a signal that is to end
 * zkeep. */
typedef enum { KEEP_ENDED, KEEP_TIME, KEEP_SIGNAL } KeepEvent;
KeepEvent keep_wait(int pid, double seconds, int *code_or_signal);
/* Ends all that is left of a command that has ended, whatever process group it is in. */
void keep_sweep(int pid);

/* ---- orphan.c ------------------------------------------------------------------------------------------ */
typedef struct {
  double since, cpu; /* 0: not now; the CPU time that it had used then, in seconds */
} KeepOrphaned;
/* Looks at a command, whose last look is *b ({0} at first): true if for `limit` seconds all processes that it
 * started have been dead without being waited for, and itself has been idle. */
bool keep_orphaned(KeepOrphaned *b, int pid, double limit);

#endif
