/* zkeep: keeps a run going. */
#include "runtime/exec/exit.h"
#include "runtime/keep/keep.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: zkeep [options] -- COMMAND...\n"
    "  Runs the command, [mpirun ...] zrun train ... --ckpt DIR --resume, and again when it ends with a "
    "code\n"
    "  that is not 0 (done) or 2 (what was given is wrong, and would be again). SIGTERM, SIGINT, SIGHUP and "
    "SIGUSR1\n"
    "  end it: the command gets SIGUSR1, at which all ranks save and stop, and then nothing of it is "
    "left.\n"
    "  --restarts N       end after N starts in a row without a new checkpoint (default 10)\n"
    "  --wait D           before another start; twice as long after each one in vain (default 5s)\n"
    "  --wait-most D      but no longer (default 5m)\n"
    "  --grace D          how long the command may take to stop when zkeep is to end (default 5m)\n"
    "  --bereft D         how long it may stay when all that it started is dead, as mpirun at times does "
    "(default "
    "1m)\n"
    "  --progress DIR     the folder of checkpoints (default: that of the command's --ckpt)\n"
    "  --hosts FILE       mpirun's hosts, as in its host files: NAME slots=N. Those that do not answer are "
    "left out,\n"
    "                     and the command, which begins with mpirun, is told -np and --host\n"
    "  --ranks N,N,...    with it: the numbers of ranks for which the command's --recipe has recipes\n"
    "  --probe CMD        with it: how a host is asked, as HOST (default: ssh -o BatchMode=yes\n"
    "                     -o ConnectTimeout=5 HOST true)\n"
    "  --version, --help\n"
    "Its code is that of the last run; 75 if it was told to end before the run was done.\n";

typedef struct {
  ZbArena *a;
  char *const *command;
  KeepLimits limits;
  double grace, bereft;
  const char *progress, *hosts_file, *ranks_text, *probe;
  KeepHosts hosts;
  int *ranks;
  KeepState state;
  int starts;
} Keep;

enum { PROBE_S = 20 };

/* ---- what it says ---- */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...) {
  char when[32], text[2048];
  time_t t = time(NULL);
  struct tm tm;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  zb_show_all(text, sizeof text);
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm));
  fprintf(stderr, "zkeep %s: %s\n", when, text);
}

static void say_start(Keep *k, char *const *command) {
  ZbText t = {0};
  for (int i = 0; command[i]; i++) zb_text_add(&t, "%s%s", i ? " " : "", command[i]);
  say("start %d: %s", ++k->starts, t.s);
  zb_text_free(&t);
}

/* ---- options ---- */
static bool wrong(const ZbErr *err) {
  fprintf(stderr, "zkeep: error: %s%s%s\n", err->text, *err->help ? "; " : "", err->help);
  return false;
}

static bool check(Keep *k) {
  ZbErr err = {0};
  if (!k->command[0]) {
    zb_fail(&err, "zkeep --help lists all options", "give a command after --");
    return wrong(&err);
  }
  if (!k->progress) k->progress = keep_checkpoints(k->command);
  if (!k->hosts_file) return true;
  for (char *const *c = k->command; *c; c++)
    if (!strcmp(*c, "-np") || !strcmp(*c, "-n") || !strcmp(*c, "--host") || !strcmp(*c, "--hostfile")) {
      zb_fail(&err, "leave it out", "with --hosts zkeep says %s itself", *c);
      return wrong(&err);
    }
  if (!k->ranks_text) {
    zb_fail(&err, "--ranks 8,4,2", "--hosts wants the numbers of ranks for which there are recipes");
    return wrong(&err);
  }
  return (keep_read_ranks(k->a, k->ranks_text, &k->ranks, &err) &&
          keep_read_hosts(k->a, k->hosts_file, &k->hosts, &err)) ||
         wrong(&err);
}

static bool parse(Keep *k, int argc, char **argv) {
  enum { RESTARTS = 256, WAIT, WAIT_MOST, GRACE, BEREFT, PROGRESS, HOSTS, RANKS, PROBE };
  static const struct option list[] = {{"restarts", 1, NULL, RESTARTS},   {"wait", 1, NULL, WAIT},
                                       {"wait-most", 1, NULL, WAIT_MOST}, {"grace", 1, NULL, GRACE},
                                       {"bereft", 1, NULL, BEREFT},       {"progress", 1, NULL, PROGRESS},
                                       {"hosts", 1, NULL, HOSTS},         {"ranks", 1, NULL, RANKS},
                                       {"probe", 1, NULL, PROBE},         {NULL, 0, NULL, 0}};
  ZbErr err = {0};
  opterr = 0;
  int at = 0;
  for (int c; (c = getopt_long(argc, argv, "+:", list, &at)) != -1;) {
    bool good = true;
    char *end;
    switch (c) {
    case RESTARTS:
      k->limits.most = (int)strtol(optarg, &end, 10);
      good = *optarg >= '0' && *optarg <= '9' && !*end && strlen(optarg) < 9;
      break;
    case WAIT: good = zb_duration(optarg, &k->limits.wait); break;
    case WAIT_MOST: good = zb_duration(optarg, &k->limits.wait_most); break;
    case GRACE: good = zb_duration(optarg, &k->grace); break;
    case BEREFT: good = zb_duration(optarg, &k->bereft); break;
    case PROGRESS: k->progress = optarg; break;
    case HOSTS: k->hosts_file = optarg; break;
    case RANKS: k->ranks_text = optarg; break;
    case PROBE: k->probe = optarg; break;
    default: zb_option_failed(c, argv, list, &err); return wrong(&err);
    }
    if (good) continue;
    zb_fail(&err, "zkeep --help lists what is meant", "wrong value `%s` for --%s", zb_show(optarg),
            list[at].name);
    return wrong(&err);
  }
  k->command = argv + optind;
  return check(k);
}

/* ---- starts ---- */
/* The command for the hosts that answer now; NULL: they are too few. */
static char *const *command_now(Keep *k) {
  if (!k->hosts_file) return k->command;
  ZbErr err = {0};
  KeepHosts again;
  if (keep_read_hosts(k->a, k->hosts_file, &again, &err)) k->hosts = again; /* it may have been edited */
  else say("%s: the hosts are those of before", err.text);
  keep_probe(k->a, &k->hosts, k->probe, PROBE_S);
  for (uint32_t i = 0; i < k->hosts.n; i++)
    if (!k->hosts.host[i].answers) say("host %s does not answer and is left out", k->hosts.host[i].name);
  int ranks = keep_ranks(&k->hosts, k->ranks);
  if (!ranks) say("the hosts that answer are too few for any of %s ranks", k->ranks_text);
  return ranks ? keep_on_hosts(k->a, k->command, &k->hosts, ranks) : NULL;
}

/* zkeep is to end: the command stops by itself, or is ended. */
static int stop(Keep *k, int pid, int sig) {
  char text[24];
  int got, code = ZX_EXIT_AGAIN; /* of a command that has to be ended: it is not done */
  say("%s: the command gets SIGUSR1 and %s to stop", strsignal(sig), zb_duration_text(text, k->grace));
  kill(pid, SIGUSR1);
  double until = zb_now() + k->grace;
  for (KeepEvent e; (e = keep_wait(pid, until - zb_now(), &got)) != KEEP_TIME;) {
    if (e == KEEP_ENDED) {
      say("the command has ended with code %d", code = got);
      break;
    }
    if (got == SIGINT) break; /* a second Ctrl-C */
  }
  keep_sweep(pid);
  return code;
}

/* Until the command ends, zkeep is to end, or a launcher waits for the dead. */
static KeepEvent wait_for(Keep *k, int pid, int *code_or_signal) {
  KeepBereft b = {0};
  char text[24];
  for (KeepEvent e;;) {
    if ((e = keep_wait(pid, fmin(k->bereft / 4, 10), code_or_signal)) != KEEP_TIME) return e;
    if (!keep_bereft(&b, pid, k->bereft)) continue;
    say("all that the command started has been dead for %s, and it does not notice: it is ended",
        zb_duration_text(text, k->bereft));
    keep_sweep(pid);
    *code_or_signal = 128 + SIGKILL;
    return KEEP_ENDED;
  }
}

/* One start: its code. *over: zkeep was told to end. */
static int one_start(Keep *k, bool *over) {
  ZbErr err = {0};
  int code = 0;
  char *const *command = command_now(k);
  if (!command) return 1; /* as a run that fails: hosts may come back */
  say_start(k, command);
  double from = zb_now();
  int pid = keep_start(command, &err);
  if (pid < 0) {
    wrong(&err);
    return ZX_EXIT_MISTAKE;
  }
  if (wait_for(k, pid, &code) == KEEP_SIGNAL) {
    *over = true;
    return stop(k, pid, code);
  }
  char text[24];
  say("it has ended with code %d after %s", code, zb_duration_text(text, zb_now() - from));
  keep_sweep(pid);
  return code;
}

static int keep(Keep *k) {
  k->state.step = keep_newest(k->progress);
  for (;;) {
    bool over = false;
    double wait;
    char text[24];
    int sig, code = one_start(k, &over);
    if (over) return code;
    switch (keep_judge(&k->limits, &k->state, code, keep_newest(k->progress), &wait)) {
    case KEEP_DONE: return say("done"), 0;
    case KEEP_MISTAKE: return say("it would end the same way again: look at what it says"), code;
    case KEEP_ENOUGH:
      say("%d starts in a row without a new checkpoint%s%s: that is enough", k->state.in_vain,
          k->progress ? " in " : "", k->progress ? k->progress : "");
      return code;
    default: break;
    }
    if (k->state.step >= 0) say("the newest checkpoint is that of step %" PRId64, k->state.step);
    if (wait > 0) say("another start in %s", zb_duration_text(text, wait));
    if (wait > 0 && keep_wait(-1, wait, &sig) == KEEP_SIGNAL)
      return say("%s: the end", strsignal(sig)), ZX_EXIT_AGAIN;
  }
}

static int help(const char *text) {
  ZbErr err;
  fputs(text, stdout);
  return zb_close_stdout(&err) ? 0 : (wrong(&err), ZX_EXIT_FAILED);
}

int main(int argc, char **argv) {
  if (zb_asks_help(argc, argv)) return help(usage);
  if (zb_tells_version(argc, argv, "zkeep")) return help("");
  Keep k = {.a = zb_arena_new(),
            .limits = {10, 5, 300},
            .grace = 300,
            .bereft = 60,
            .probe = "ssh -o BatchMode=yes -o ConnectTimeout=5 HOST true"};
  zb_begin();
  keep_take_signals();
  int code = parse(&k, argc, argv) ? keep(&k) : ZX_EXIT_MISTAKE;
  zb_arena_free(k.a);
  return code;
}
