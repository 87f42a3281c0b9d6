/* keep: starts a run, and restarts it as long as that helps. It knows a run only by its command and its exit code
 * (runtime/exec/exit.h), and does not use MPI: it must outlive what MPI does not.
 *
 * zkeep.c    the program: options, and start after start
 * policy.c   whether to restart, and when; what progress is
 * server.c   whether a server has come to serve, which is its progress
 * hosts.c    which hosts answer, and how many ranks fit on them
 * child.c    a command with all processes that it starts: starting, waiting, killing
 * orphan.c   a launcher that does not notice that its processes are dead */
#ifndef ZUG_KEEP_H
#define ZUG_KEEP_H

#include "base/base.h"

/* ---- policy.c ------------------------------------------------------------------------------------------ */
typedef struct {
  int most;               /* starts in a row without progress */
  double wait, wait_most; /* seconds before the next start: at first, and at most, since it doubles */
} KeepLimits;
typedef struct {
  int stalled;  /* starts in a row without progress */
  int64_t step; /* the newest checkpoint's; -1: none, or not known */
} KeepState;
typedef enum { KEEP_DONE, KEEP_MISTAKE, KEEP_RESTART, KEEP_GIVE_UP } KeepVerdict;
/* Decides what follows a command that exited with `code` when the newest checkpoint was that of `step` (-1: none, or
 * not known; of a server the number of starts that came to serve). KEEP_RESTART: after *wait seconds. */
KeepVerdict keep_judge(const KeepLimits *l, KeepState *s, int code, int64_t step, double *wait);
/* Returns the step of the newest complete checkpoint in that folder, DIR/step-N; -1 if there is none. */
int64_t keep_newest(const char *dir);
/* Returns the folder of the command's checkpoints, its --ckpt DIR; NULL if it has none. */
const char *keep_checkpoints(char *const *command);

/* ---- server.c ------------------------------------------------------------------------------------------ */
typedef struct {
  const char *host;
  int port;
} KeepServer;
/* Returns whether the command is a `zrun serve`, and where on this machine it listens. */
bool keep_server(char *const *command, KeepServer *out);
/* Returns whether it says by /health that it serves. Takes a few seconds at most. */
bool keep_answers(const KeepServer *s);

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
/* Reads a host file of mpirun: a line per host, "NAME slots=N" or "NAME:N" or "NAME" (one slot); # begins a
 * comment. */
bool keep_read_hosts(ZbArena *a, const char *path, KeepHosts *out, ZbErr *err);
/* Reads "8,4,2" into numbers that end with 0. */
bool keep_read_ranks(ZbArena *a, const char *text, int **out, ZbErr *err);
/* Runs `probe` for every host, with HOST replaced by its name, many at a time; the host answers if that exits
 * with 0 within `limit` seconds. */
void keep_probe(ZbArena *a, KeepHosts *h, const char *probe, double limit);
/* Returns the largest of these numbers of ranks for which the hosts that answer have slots; 0: none. */
int keep_ranks(const KeepHosts *h, const int *ranks);
/* Returns the command with "-np N --host A:2,B:2" after its first word. */
char **keep_on_hosts(ZbArena *a, char *const *command, const KeepHosts *h, int ranks);

/* ---- child.c ------------------------------------------------------------------------------------------- */
/* Must come first: from now on the signals that stop zkeep are waited for, and processes that a command leaves
 * behind become zkeep's. */
void keep_take_signals(void);
/* Starts a command in a new process group, without standard input; -1: it cannot be started. */
int keep_start(char *const *command, ZbErr *err);
/* Waits until that process ends, a number of seconds is over (below 0: never), or a signal tells zkeep to stop. */
typedef enum { KEEP_ENDED, KEEP_TIME, KEEP_SIGNAL } KeepEvent;
KeepEvent keep_wait(int pid, double seconds, int *code_or_signal);
/* Kills every process that a command has left, in whatever process group. */
void keep_sweep(int pid);

/* ---- orphan.c ------------------------------------------------------------------------------------------ */
typedef struct {
  double since, cpu; /* when it was first seen orphaned (0: it is not), and its CPU seconds at that time */
} KeepOrphaned;
/* Returns whether for `limit` seconds all processes that a command started have been dead without being waited for,
 * while the command itself was idle. *b keeps what the last call saw ({0} at first). */
bool keep_orphaned(KeepOrphaned *b, int pid, double limit);

#endif
