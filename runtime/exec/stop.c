/* Stops before the last step. */
#define _GNU_SOURCE /* fopencookie, dup3 */
#include "runtime/exec/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TIME = 1000 }; /* above all signals */

/* ---- signals ---- */
static volatile sig_atomic_t asked; /* the first signal that asked; 0: none */

static void on_signal(int sig) {
  if (asked && sig == SIGINT) {
    zb_out_discard_all();
    signal(sig, SIG_DFL);
    raise(sig); /* comes when this handler has returned */
  }
  if (!asked) asked = sig;
}

/* On a stack of their own: oneDNN's products by AVX-512 use the stack pointer for other things meanwhile, and
 * a signal then would be put into the heap. Room for the registers of any CPU, and the handler. */
static char stack[64 << 10];

static void catch_signals(void) {
  static const int those[] = {SIGTERM, SIGUSR1, SIGINT};
  struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
  for (size_t i = 0; i < sizeof those / sizeof *those; i++) sigaction(those[i], &act, NULL);
}

/* ---- output ---- */
/* A pipe or a terminal is opened anew: our writes do not wait then, those of others who have it still do.
 * Anything else is the descriptor itself: what is written to a file waits for nobody. */
static int open_output(void) {
  struct stat st;
  bool waits = fstat(STDOUT_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || isatty(STDOUT_FILENO));
  int fd = waits ? open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
  return fd >= 0 ? fd : STDOUT_FILENO;
}

static void lose_output(int fd) {
  int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0) return;
  dup3(nothing, fd, O_CLOEXEC);
  close(nothing);
}

/* A terminal may have room for less than a line end, and says that it has room: then the nap is all. */
static void wait_for_room(int fd) {
  poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* fopencookie(3): all that was written, 0: an error. */
static ssize_t put(void *output, const char *bytes, size_t n) {
  enum { PATIENCE_MS = 200 };
  int fd = *(int *)output;
  double since = -1; /* when a stop was asked for and there was no room */
  for (size_t at = 0; at < n;) {
    ssize_t wrote = write(fd, bytes + at, n - at);
    if (wrote >= 0) at += (size_t)wrote, since = -1;
    else if (errno == EAGAIN) {
      if (asked && since < 0) since = zb_now();
      if (since >= 0 && zb_now() > since + 1e-3 * PATIENCE_MS) lose_output(fd);
      wait_for_room(fd);
    } else if (errno != EINTR) return 0;
  }
  return (ssize_t)n;
}

static void print_without_waiting(void) {
  static int fd;
  fflush(stdout);
  FILE *f = fopencookie(&fd, "w", (cookie_io_functions_t){.write = put});
  if (!f) return;
  fd = open_output();
  setvbuf(f, NULL, isatty(fd) ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = f;
}

void zx_stop_on_signals(void) {
  print_without_waiting();
  catch_signals();
}

/* ---- time ---- */
ZxStop zx_stop_new(double began, double limit, bool saves) {
  return (ZxStop){.until = limit > 0 ? began + limit : 0, .limit = limit, .step = -1, .save = saves ? -1 : 0};
}

/* The longest of late: a slow step is forgotten after some dozens. The first one sets up what others find. */
void zx_stop_step(ZxStop *s, double seconds) {
  double faded = 0.95 * s->step;
  s->step = ++s->nsteps <= 2 || seconds > faded ? seconds : faded;
}

void zx_stop_saved(ZxStop *s, double seconds) {
  double faded = 0.8 * s->save;
  s->save = seconds > faded ? seconds : faded;
}

/* What is left for the end of the run, beside the next step. A checkpoint takes half as long again now and
 * then; before the first one nobody knows. */
static double room(const ZxStop *s) {
  double tenth = s->limit / 10, save = s->save < 0 ? (tenth < 60 ? tenth : 60) : 1.5 * s->save;
  return save + (tenth < 2 ? tenth : 2);
}

static bool time_is_up(const ZxStop *s) {
  return s->until > 0 && zb_now() + (s->step > 0 ? s->step : 0) + room(s) > s->until;
}

/* ---- both ---- */
int zx_stop_wanted(const ZxStop *s) { return asked ? asked : time_is_up(s) ? TIME : 0; }

void zx_stop_forget_interrupt(void) {
  if (asked == SIGINT) asked = 0;
}

const char *zx_stop_why(int wanted) {
  return wanted == TIME      ? "its time limit"
         : wanted == SIGTERM ? "SIGTERM"
         : wanted == SIGUSR1 ? "SIGUSR1"
                             : "SIGINT";
}
