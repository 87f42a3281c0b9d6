/* Stops before the last step. */
#include "runtime/exec/stop.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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

void zx_stop_on_signals(void) {
  static const int those[] = {SIGTERM, SIGUSR1, SIGINT};
  struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
  for (size_t i = 0; i < sizeof those / sizeof *those; i++) sigaction(those[i], &act, NULL);
}

/* A pipe can be written to while a line of 4 kB has room in it. */
void zx_stop_before_output(void) {
  struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
  for (bool late = false; !late;) {
    bool soon = asked;
    int n = poll(&out, 1, 100);
    if (n > 0) return; /* or it is broken, which whoever writes will see */
    late = soon && n == 0;
  }
  int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0) return;
  dup2(nothing, STDOUT_FILENO);
  close(nothing);
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

const char *zx_stop_why(int wanted) {
  return wanted == TIME      ? "its time limit"
         : wanted == SIGTERM ? "SIGTERM"
         : wanted == SIGUSR1 ? "SIGUSR1"
                             : "SIGINT";
}
