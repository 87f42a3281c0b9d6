/* Waits that last, what the watchdog of a rank says and does, what rank 0 says of all, and what a launcher
 * says of a process. */
#include "runtime/exec/comm/watch.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a communicator of which nothing is needed but what is here ---- */
enum { RANKS = 7, NAME = 64 };
static int rank, tests_left, moves_at; /* moves_at: when so many tests are left */
static uint64_t moves;
static char box[256]; /* as rank 0 sends it around */

static int my_rank(ZxComm *c) { return (void)c, rank; }
static int my_size(ZxComm *c) { return (void)c, RANKS; }
static uint64_t my_moves(ZxComm *c) { return (void)c, moves; }
static void my_wait(ZxComm *c, ZxRequest r) { (void)c, (void)r; }
static ZxRequest my_broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  (void)c, (void)g, (void)root;
  cr_assert(bytes <= sizeof box);
  memcpy(rank ? p : box, rank ? box : p, bytes);
  return -1;
}
static ZxRequest my_all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  (void)c, (void)g, (void)part;
  cr_assert_eq(bytes, NAME);
  for (int i = 0; i < RANKS; i++) snprintf((char *)out + i * NAME, NAME, i < 4 ? "one" : "two");
  return -1;
}
/* Moves once; complete in the end. */
static bool my_test(ZxComm *c, ZxRequest r) {
  (void)c, (void)r;
  moves += tests_left == moves_at;
  return --tests_left < 0;
}
static void my_explain(ZxComm *c, ZxRequest r, ZbText *out) { (void)c, zb_text_add(out, "request %d", r); }
static const ZxCommTable table = {.rank = my_rank,
                                  .size = my_size,
                                  .moves = my_moves,
                                  .wait = my_wait,
                                  .broadcast = my_broadcast,
                                  .all_gather = my_all_gather,
                                  .test = my_test,
                                  .explain = my_explain};
static ZxComm comm = {&table};

/* ---- waits ---- */
static double patience = 0.1;
double zx_patience(void) { return patience; }

/* Pauses until one says something else, for at most `seconds`. */
static ZxWaited pause_for(ZxWait *w, ZxComm *c, double seconds) {
  ZxWaited said = ZX_WAITS;
  for (double end = zb_now() + seconds; said == ZX_WAITS && zb_now() < end;) said = zx_pause(w, c);
  return said;
}

Test(hang, waits_that_last) {
  ZxWait w = {0}, alone = {0};
  double start = zb_now();
  cr_expect_eq(pause_for(&w, &comm, 20), ZX_STALLS);
  cr_expect_geq(zb_now() - start, patience);
  cr_expect_leq(w.tries, 64 + (zb_now() - start) / 50e-6, "it sleeps in between");
  cr_expect_eq(pause_for(&w, &comm, 0.2), ZX_WAITS, "it says so once");
  moves++;
  cr_expect_eq(pause_for(&w, &comm, 20), ZX_GOES_ON);
  start = zb_now();
  cr_expect_eq(pause_for(&w, &comm, 20), ZX_STALLS, "and again when it stalls again");
  cr_expect_geq(zb_now() - start, patience - 0.05); /* it was looked at before */
  cr_expect_eq(pause_for(&alone, NULL, 20), ZX_STALLS, "nothing is known of moves");
}

/* A pause in which the clock is looked at. */
static ZxWaited look(ZxWait *w) {
  w->tries |= 0xffff;
  return zx_pause(w, &comm);
}

/* A process that was stopped has not waited for others meanwhile. */
Test(hang, what_was_stopped_does_not_stall) {
  for (int k = 0; k < 2; k++) {
    double gone = k ? 1.5 : 0.5; /* what takes less than a second may be anything else */
    ZxWait w = {0};
    cr_expect_eq(look(&w), ZX_WAITS);
    w.since -= gone;
    w.seen -= gone;
    cr_expect_eq(look(&w), k ? ZX_WAITS : ZX_STALLS);
    w.since -= patience;
    cr_expect_eq(look(&w), k ? ZX_STALLS : ZX_WAITS);
  }
}

Test(hang, what_moves_does_not_stall) {
  ZxWait w = {0};
  for (double end = zb_now() + 3 * patience; zb_now() < end; moves++)
    cr_expect_eq(pause_for(&w, &comm, patience / 20), ZX_WAITS);
}

Test(hang, a_wait_says_for_what) {
  cr_redirect_stderr();
  ZxCommTable less = table;
  patience = 0.05;
  tests_left = 70; /* naps that are too few to last */
  zx_wait(&comm, 3);
  tests_left = 3000, moves_at = 1500;
  zx_wait(&comm, 3);
  less.explain = NULL, comm.t = &less;
  rank = 5;
  tests_left = 3000, moves_at = -1;
  zx_wait(&comm, 3);
  cr_expect_stderr_eq_str("[rank 0] note: has waited 0 s for request 3\n[rank 0] note: it goes on\n"
                          "[rank 0] note: has waited 0 s for request 3\n[rank 0] note: it goes on\n"
                          "[rank 5] note: has waited 0 s for an operation of the communicator\n"
                          "[rank 5] note: it goes on\n");
}

/* ---- what rank 0 is told ---- */
typedef struct {
  int rank, hangs, stands;
  const char *text;
} Told;

/* What is sent, is heard; false: nobody hangs. */
static bool hears(ZxPostbox *to, ZxPostbox **from, const Told *told, int n) {
  bool hangs = false;
  for (int i = 0; i < n; i++) {
    ZxPost p = {.rank = told[i].rank, .hangs = told[i].hangs, .stands = told[i].stands, .speaks = true};
    snprintf(p.text, sizeof p.text, "%s", told[i].text);
    zx_post_send(from[told[i].rank], &p);
  }
  for (int tries = 0; tries < 50; tries++, usleep(1000)) hangs |= zx_post_receive(to, 0).hangs;
  return hangs;
}

static void post(const Told *told, int n, bool hangs, bool complete, const char *report) {
  ZxPostbox *all[RANKS];
  for (rank = 0; rank < RANKS; rank++) all[rank] = zx_postbox_new(&comm);
  cr_expect_eq(hears(all[0], all, told, n), hangs);
  cr_expect_eq(zx_post_complete(all[0]), complete);
  fflush(stderr);
  zx_post_report(all[0]);
  for (int i = 0; i < RANKS; i++) zx_postbox_free(all[i]);
  ZbText t = {0};
  zb_text_add(&t, "[rank 0] error: the run hangs; where its ranks are:\n%s", report);
  cr_expect_stderr_eq_str(t.s);
  zb_text_free(&t);
}

Test(hang, all_wait_for_each_other) {
  cr_redirect_stderr();
  post((Told[]){{0, 1, 0, "a"},
                {1, 1, 0, "a"},
                {2, 1, 0, "b"},
                {3, 1, 0, "a"},
                {4, 1, 0, "a"},
                {5, 1, 0, "a"},
                {6, 1, 0, "b"}},
       7, true, true,
       "[rank 0]   ranks 0, 1, 3 (one): a\n[rank 0]   rank 2 (one): b\n[rank 0]   ranks 4, 5 (two): a\n"
       "[rank 0]   rank 6 (two): b\n"
       "[rank 0] error: all ranks wait for each other: messages between them are lost or held up\n");
}

Test(hang, one_waits_for_nobody) {
  cr_redirect_stderr();
  post((Told[]){{0, 0, 0, "a"},
                {1, 0, 0, "a"},
                {2, 0, 0, "a"},
                {3, 0, 0, "a"},
                {4, 0, 0, "a"},
                {5, 0, 0, "a"},
                {6, 0, 1, "b"}},
       7, false, false,
       "[rank 0]   ranks 0 to 3 (one): a\n[rank 0]   ranks 4, 5 (two): a\n[rank 0]   rank 6 (two): b\n"
       "[rank 0] error: held up by rank 6, which waits for nobody\n");
}

Test(hang, two_wait_for_nobody) {
  cr_redirect_stderr();
  post((Told[]){{0, 1, 1, "a"},
                {1, 1, 0, "a"},
                {2, 1, 0, "a"},
                {3, 1, 1, "a"},
                {4, 1, 0, "a"},
                {5, 1, 0, "a"},
                {6, 0, 0, "a"}},
       7, true, false,
       "[rank 0]   ranks 0 to 3 (one): a\n[rank 0]   ranks 4 to 6 (two): a\n"
       "[rank 0] error: held up by ranks 0, 3, which wait for nobody\n");
}

Test(hang, some_are_not_heard_of) {
  cr_redirect_stderr();
  post((Told[]){{0, 1, 0, "a"}, {2, 1, 1, "b"}, {2, 1, 1, "a"}, {5, 0, 0, ""}}, 4, true, false,
       "[rank 0]   ranks 0, 2 (one): a\n[rank 0]   ranks 1, 3 (one): nothing is heard from there\n"
       "[rank 0]   ranks 4, 6 (two): nothing is heard from there\n[rank 0]   rank 5 (two): \n"
       "[rank 0] error: held up by ranks 1, 3, 4, 6: stopped or dead, or cut off from this node\n");
}

/* Datagrams of others, and of ranks that there are not. */
Test(hang, what_is_not_ours) {
  cr_redirect_stderr();
  ZxPostbox *all[2], *other;
  rank = 0;
  all[0] = zx_postbox_new(&comm);
  rank = 1;
  all[1] = zx_postbox_new(&comm);
  box[0] ^= 1; /* another job */
  other = zx_postbox_new(&comm);
  box[0] ^= 1;
  ZxPost p = {.rank = 1, .hangs = 1};
  zx_post_send(other, &p);
  for (int i = 0; i < 2; i++) {
    p.rank = i ? RANKS : -1;
    zx_post_send(all[1], &p);
    zx_post_send(all[0], &p);
  }
  cr_expect(!hears(all[0], all, NULL, 0));
  p.rank = 6;
  memset(p.text, 'x', sizeof p.text);
  zx_post_send(all[1], &p);
  cr_expect(hears(all[0], all, NULL, 0));
  cr_expect(!hears(all[0], all, NULL, 0), "it was told before");
  for (int i = 0; i < 2; i++) zx_postbox_free(all[i]);
  zx_postbox_free(other);
  zx_postbox_free(NULL);
}

/* ---- the watchdog ---- */
static void where(const void *of, uint32_t instr, ZbText *out) {
  zb_text_add(out, "%s %u", (const char *)of, instr);
}

/* What a process of one rank does. Until ENDED it does nothing for too long: first those that wait for
 * nobody. */
enum {
  STANDS,
  WITHOUT_INSTR,
  WITHOUT_WHERE,
  WITHOUT_STEP,
  HAS_WAITED,
  SAYS_PAUSES,
  PAUSES,
  SAYS_WAITS,
  WAITS,
  WAITS_IN_PHASE,
  WAITS_BEFORE_IT_MEETS,
  ENDED,
  HAS_NO_LIMIT = ENDED,
  WORKS_IN_PHASE,
  MOVES,
  MOVES_IN_PAUSES,
  WAITS_SHORTLY,
  IS_OVER,
  WAYS
};

static void do_watched(int how) {
  ZxWait w = {0};
  zx_watch_where(how == WITHOUT_WHERE ? NULL : where, "FWD");
  zx_watch_step(how == WITHOUT_STEP ? 0 : 12);
  if (how != WITHOUT_INSTR) zx_watch_instr(7);
  bool slow = how == WORKS_IN_PHASE || how == WAITS_IN_PHASE || how == WAITS_BEFORE_IT_MEETS;
  zx_watch_phase(slow ? "planning" : NULL);
  if (how == SAYS_PAUSES) zx_watch_pauses();
  if (how == SAYS_WAITS || (slow && how != WORKS_IN_PHASE)) zx_watch_waits("x of rank 3");
  if (how == IS_OVER) zx_watch_close();
  tests_left = how == HAS_WAITED ? 3 : 1000000;
  if (how == HAS_WAITED || how == WAITS) zx_wait(&comm, 3);
  for (int i = 0; i < (how == WORKS_IN_PHASE ? 300 : 100); i++) {
    if (how == MOVES) zx_watch_moved();
    moves += how == MOVES_IN_PAUSES;
    tests_left = 3;
    if (how == WAITS_SHORTLY) zx_wait(&comm, 3);
    if (how == PAUSES || how == MOVES_IN_PAUSES) pause_for(&w, &comm, 0.01);
    else usleep(10000);
  }
}

/* What it says comes from *said. */
static pid_t begin_watched(int how, int *said) {
  int p[2];
  cr_assert(pipe(p) == 0);
  pid_t child = fork();
  if (child == 0) {
    ZbErr err;
    dup2(p[1], STDERR_FILENO);
    if (!zx_watch_start(0, how == HAS_NO_LIMIT ? 0 : 0.4, 9, &err)) _exit(77);
    if (how != WAITS_BEFORE_IT_MEETS) zx_watch_meet(zx_comm_self());
    do_watched(how);
    if (how >= ENDED) _exit(3);
    for (;;) pause();
  }
  close(p[1]);
  *said = p[0];
  return child;
}

/* Its code. */
static int end_watched(pid_t child, int from, char said[2000]) {
  int status;
  size_t n = 0;
  for (ssize_t more = 1; more > 0; n += more > 0 ? (size_t)more : 0) more = read(from, said + n, 1999 - n);
  said[n] = 0;
  close(from);
  cr_assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

Test(hang, the_watchdog) {
  static const char *const text[ENDED] = {[STANDS] = "stands still in step 12: FWD 7",
                                          [WITHOUT_INSTR] = "stands still in step 12",
                                          [WITHOUT_WHERE] = "stands still in step 12",
                                          [WITHOUT_STEP] = "stands still",
                                          [HAS_WAITED] = "stands still in step 12: FWD 7",
                                          [SAYS_PAUSES] = "waits in step 12: FWD 7",
                                          [PAUSES] = "waits in step 12: FWD 7",
                                          [SAYS_WAITS] = "waits in x of rank 3",
                                          [WAITS] = "waits in request 3",
                                          [WAITS_IN_PHASE] = "waits in planning: x of rank 3",
                                          [WAITS_BEFORE_IT_MEETS] = "waits in planning: x of rank 3"};
  static const char *const why[] = {
      "held up by rank 0, which waits for nobody",
      "all ranks wait for each other: messages between them are lost or held up"};
  char said[2000], want[400], host[64] = "";
  pid_t child[WAYS];
  int from[WAYS];
  gethostname(host, sizeof host - 1);
  for (int how = 0; how < WAYS; how++) child[how] = begin_watched(how, &from[how]);
  for (int how = 0; how < WAYS; how++) {
    int code = end_watched(child[how], from[how], said);
    cr_expect_eq(code, how < ENDED ? 9 : 3, "%d: code %d, %s", how, code, said);
    if (how >= ENDED) cr_expect_str_eq(said, "");
    if (how >= ENDED) continue;
    snprintf(want, sizeof want, "%s[rank 0] error: %s; since ",
             how == WAITS ? "[rank 0] note: has waited 0 s for request 3\n" : "", text[how]);
    cr_expect(!strncmp(said, want, strlen(want)), "%s", said);
    cr_expect(strstr(said, "s: the run ends (--hang-after)\n"), "%s", said);
    if (how == WAITS_BEFORE_IT_MEETS) continue;
    snprintf(want, sizeof want,
             "\n[rank 0] error: the run hangs; where its ranks are:\n"
             "[rank 0]   rank 0 (%s): %s\n[rank 0] error: %s\n",
             host, text[how], why[how >= SAYS_PAUSES]);
    cr_expect(strlen(said) > strlen(want) && !strcmp(said + strlen(said) - strlen(want), want), "%s, not %s",
              said, want);
  }
}

/* It looks every half second; a run that is done does not wait for it. */
Test(hang, a_run_that_is_done_does_not_wait) {
  enum { TIMES = 12 }; /* 6 s if each waited */
  ZbErr err;
  double start = zb_now();
  for (int i = 0; i < TIMES; i++) {
    cr_assert(zx_watch_start(0, 60, 1, &err));
    zx_watch_meet(zx_comm_self());
    zx_watch_phase(NULL);
    usleep(1000); /* it sleeps by now */
    zx_watch_close();
  }
  cr_expect_lt(zb_now() - start, 3);
}

Test(hang, patience_is_half_of_the_limit) {
  ZbErr err;
  patience = 30;
  cr_expect_eq(zx_stall_after(), 30);
  cr_assert(zx_watch_start(0, 40, 1, &err));
  cr_expect_eq(zx_stall_after(), 30, "of six times the limit");
  zx_watch_phase(NULL);
  cr_expect_eq(zx_stall_after(), 20);
  patience = 15;
  cr_expect_eq(zx_stall_after(), 15);
  zx_watch_close();
  zx_watch_close();
  patience = 30;
  cr_expect_eq(zx_stall_after(), 30);
}

/* ---- launchers ---- */
Test(hang, launchers) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                      "PMIX_RANK",
                                      "PMI_RANK",
                                      "SLURM_PROCID",
                                      "OMPI_COMM_WORLD_SIZE",
                                      "PMI_SIZE",
                                      "SLURM_STEP_NUM_TASKS",
                                      "MV2_COMM_WORLD_RANK"};
  enum { NAMES = sizeof names / sizeof *names };
  static const struct {
    const char *set[NAMES];
    int rank, size;
    bool alone;
  } cases[] = {{{NULL}, -1, -1, true},
               {{"3", "4", "5", "6", "7", "8", "9"}, 3, 7, false},
               {{NULL, "4", "5", "6", NULL, "8", "9"}, 4, 8, false},
               {{NULL, NULL, "5", "6", NULL, NULL, "9"}, 5, 9, false},
               {{NULL, NULL, NULL, "0", "x", "", "1"}, 0, 1, true},
               {{"-1", "2147483647", "1x", "2147483646", "4294967297", NULL, "2147483646"},
                2147483646,
                2147483646,
                false},
               {{"0", "0", NULL, NULL, "1"}, 0, 1, true},               /* mpirun -np 1 */
               {{NULL, "0"}, 0, -1, false},                             /* prun: nobody knows how many */
               {{NULL, NULL, NULL, "0"}, -1, -1, true},                 /* a batch script */
               {{NULL, NULL, NULL, "0", NULL, NULL, "4"}, 0, 4, false}, /* srun -n 4 */
               {{"0", "0", NULL, "0", "1", NULL, "4"},
                0,
                1,
                false}, /* srun -n 4 in a shell of mpirun's, or the reverse */
               {{NULL, NULL, NULL, NULL, NULL, NULL, NULL, "2"}, 2, -1, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int k = 0; k < NAMES; k++)
      if (cases[i].set[k]) setenv(names[k], cases[i].set[k], 1);
      else unsetenv(names[k]);
    ZxLaunch l = zx_launch();
    cr_expect(l.rank == cases[i].rank && l.size == cases[i].size && l.alone == cases[i].alone,
              "%zu: %d of %d%s", i, l.rank, l.size, l.alone ? ", alone" : "");
  }
}
