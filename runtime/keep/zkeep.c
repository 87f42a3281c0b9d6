/* zkeep: keeps a run going. */
#include "base/options.h"
#include "runtime/exec/exit.h"
#include "runtime/keep/keep.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
  ZbArena *a;
  char *const *command;
  KeepLimits limits;
  double grace, orphan_timeout;
  const char *progress, *hosts_file, *ranks_text, *probe;
  KeepHosts hosts;
  int *ranks;
  KeepState state;
  int starts;
  KeepServer server;
  bool serves;      /* the command is a server */
  bool answers;     /* this start of it has come to serve */
  int64_t answered; /* so have so many starts */
} Keep;

enum { PROBE_S = 20 };

/* ---- messages ---- */
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
    zb_fail(&err, "zkeep --help shows all options", "give a command after --");
    return wrong(&err);
  }
  if (!k->progress) k->progress = keep_checkpoints(k->command);
  k->serves = keep_server(k->command, &k->server);
  if (!k->hosts_file) return true;
  for (char *const *c = k->command; *c; c++)
    if (!strcmp(*c, "-np") || !strcmp(*c, "-n") || !strcmp(*c, "--host") || !strcmp(*c, "--hostfile")) {
      zb_fail(&err, "leave it out", "with --hosts zkeep gives %s itself", *c);
      return wrong(&err);
    }
  if (!k->ranks_text) {
    zb_fail(&err, "--ranks 8,4,2", "--hosts needs --ranks, the numbers of ranks for which there are recipes");
    return wrong(&err);
  }
  return (keep_read_ranks(k->a, k->ranks_text, &k->ranks, &err) &&
          keep_read_hosts(k->a, k->hosts_file, &k->hosts, &err)) ||
         wrong(&err);
}

/* clang-format off */
#define FIELD(f) ZB_AT(Keep, f)
static const ZbOption options[] = {
  {"restarts", 0, ZB_WHOLE, FIELD(limits.most), "N", .usual = "10", .most = 99999999,
   .help = "stop after N starts in a row without a new checkpoint; of a server, that did not come to serve"},
  {"wait", 0, ZB_SECONDS, FIELD(limits.wait), "D", .usual = "5s",
   .help = "wait before another start; doubled after each start that made no progress"},
  {"wait-most", 0, ZB_SECONDS, FIELD(limits.wait_most), "D", .usual = "5m", .help = "upper limit of --wait"},
  {"grace", 0, ZB_SECONDS, FIELD(grace), "D", .usual = "5m",
   .help = "how long the command may take to stop when zkeep is told to stop"},
  {"orphan-timeout", 0, ZB_SECONDS, FIELD(orphan_timeout), "D", .usual = "1m",
   .help = "how long mpirun may outlive its ranks"},
  {"progress", 0, ZB_TEXT, FIELD(progress), "DIR",
   .help = "the folder of checkpoints (default: the command's --ckpt)"},
  {"hosts", 0, ZB_TEXT, FIELD(hosts_file), "FILE",
   .help = "a host file of mpirun: NAME slots=N. Hosts that do not answer are left out, and the command, "
           "which begins with mpirun, gets -np and --host"},
  {"ranks", 0, ZB_TEXT, FIELD(ranks_text), "N,N,...",
   .help = "with --hosts: the numbers of ranks for which the command's --recipe has recipes"},
  {"probe", 0, ZB_TEXT, FIELD(probe), "CMD", .usual = "ssh -o BatchMode=yes -o ConnectTimeout=5 HOST true",
   .help = "with --hosts: the command that asks whether HOST answers"},
};
static const ZbCommand commands[] = {
  {NULL, "COMMAND...", 0, ZB_ANY_NUMBER,
   "run COMMAND, [mpirun ...] zrun train ... --ckpt DIR --resume or zrun serve ..., and restart it when it exits with a code "
   "other than 0 (done) or 2 (wrong options or inputs: it would fail the same way)"},
};
static const ZbNote codes[] = {
  {"75", "zkeep was stopped before the run was done"},
  {"others", "those of the last run"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zkeep -- mpirun -np 8 zrun train gpt2.zsg --recipe recipes.zug:demo --data corpus.bin --steps 400 --ckpt checkpoints --resume", "a run that goes on after a crash"},
  {"zkeep -- zrun serve Qwen3-0.6B --port 8080", "a server that is there again after a crash"},
  {"zkeep --hosts hosts --ranks 32,16,8 -- mpirun zrun train model.zsg --recipe recipes.zug:nodes4,nodes2,node1 --data train.bin --steps 1000000 --ckpt checkpoints --resume", "on those nodes that answer"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"DIR", "of --progress or of the command's --ckpt: a new checkpoint in it is progress"},
  {"hosts", "a host file of mpirun, for --hosts"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zkeep", .what = "keep a run going",
  ZB_TABLES(commands, options), .options_first = true,
  .notes = "SIGTERM, SIGINT, SIGHUP and SIGUSR1 stop zkeep: the command gets SIGUSR1, at which all ranks save and stop, and "
           "then none of its processes are left.",
  .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */

static bool parse(Keep *k, int argc, char **argv) {
  ZbErr err = {0};
  ZbArgs args;
  if (!zb_parse(&program, k->a, argc, argv, k, &args, &err)) return wrong(&err);
  k->command = argv + argc - args.noperands;
  return check(k);
}

/* ---- starts ---- */
/* Returns the command for the hosts that answer now; NULL: they are too few. */
static char *const *command_now(Keep *k) {
  if (!k->hosts_file) return k->command;
  ZbErr err = {0};
  KeepHosts edited;
  if (keep_read_hosts(k->a, k->hosts_file, &edited, &err)) k->hosts = edited;
  else say("%s: keeping the previous hosts", err.text);
  keep_probe(k->a, &k->hosts, k->probe, PROBE_S);
  for (uint32_t i = 0; i < k->hosts.n; i++)
    if (!k->hosts.host[i].answers) say("host %s does not answer and is left out", k->hosts.host[i].name);
  int ranks = keep_ranks(&k->hosts, k->ranks);
  if (!ranks) say("too few hosts answer for any of %s ranks", k->ranks_text);
  return ranks ? keep_on_hosts(k->a, k->command, &k->hosts, ranks) : NULL;
}

/* Stops the command: it saves and exits, or is killed after --grace. Returns its exit code. */
static int stop(Keep *k, int pid, int sig) {
  char text[24];
  int got, code = ZX_EXIT_AGAIN; /* if it has to be killed: it is not done */
  say("%s: the command gets SIGUSR1 and %s to stop", strsignal(sig), zb_duration_text(text, k->grace));
  kill(pid, SIGUSR1);
  double until = zb_now() + k->grace;
  for (KeepEvent e; (e = keep_wait(pid, until - zb_now(), &got)) != KEEP_TIME;) {
    if (e == KEEP_ENDED) {
      say("the command exited with code %d", code = got);
      break;
    }
    if (got == SIGINT) break; /* a second Ctrl-C */
  }
  keep_sweep(pid);
  return code;
}

/* Waits until the command ends, zkeep is told to stop, or the command is found orphaned. */
static KeepEvent wait_for(Keep *k, int pid, int *code_or_signal) {
  KeepOrphaned orphaned = {0};
  char text[24];
  for (KeepEvent e;;) {
    double wait = fmin(k->orphan_timeout / 4, 10);
    if ((e = keep_wait(pid, k->serves && !k->answers ? fmin(wait, 1) : wait, code_or_signal)) != KEEP_TIME)
      return e;
    if (k->serves && !k->answers) k->answered += k->answers = keep_answers(&k->server);
    if (!keep_orphaned(&orphaned, pid, k->orphan_timeout)) continue;
    say("all processes that the command started have been dead for %s: it is killed",
        zb_duration_text(text, k->orphan_timeout));
    keep_sweep(pid);
    *code_or_signal = 128 + SIGKILL;
    return KEEP_ENDED;
  }
}

/* Runs the command once, and returns its exit code. *over: zkeep was told to stop. */
static int one_start(Keep *k, bool *over) {
  ZbErr err = {0};
  int code = 0;
  char *const *command = command_now(k);
  if (!command) return 1; /* like a failed run: hosts may come back */
  say_start(k, command);
  k->answers = false;
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
  say("the command exited with code %d after %s", code, zb_duration_text(text, zb_now() - from));
  keep_sweep(pid);
  return code;
}

/* Returns how far it has come. */
static int64_t progress(const Keep *k) { return k->serves ? k->answered : keep_newest(k->progress); }

static int keep(Keep *k) {
  k->state.step = progress(k);
  for (;;) {
    bool over = false;
    double wait;
    char text[24];
    int sig, code = one_start(k, &over);
    if (over) return code;
    switch (keep_judge(&k->limits, &k->state, code, progress(k), &wait)) {
    case KEEP_DONE: return say("done"), 0;
    case KEEP_MISTAKE: return say("not restarted: it would fail the same way; see its messages"), code;
    case KEEP_GIVE_UP:
      say("%d starts in a row %s%s%s: giving up", k->state.stalled,
          k->serves ? "that did not come to serve" : "without a new checkpoint", k->progress ? " in " : "",
          k->progress ? k->progress : "");
      return code;
    default: break;
    }
    if (k->state.step >= 0 && !k->serves) say("the newest checkpoint is of step %" PRId64, k->state.step);
    if (wait > 0) say("restarting in %s", zb_duration_text(text, wait));
    if (wait > 0 && keep_wait(-1, wait, &sig) == KEEP_SIGNAL)
      return say("%s: stopped", strsignal(sig)), ZX_EXIT_AGAIN;
  }
}

int main(int argc, char **argv) {
  ZbErr err = {0};
  zb_begin();
  if (zb_tells(&program, argc, argv)) return zb_close_stdout(&err) ? 0 : (wrong(&err), ZX_EXIT_FAILED);
  Keep k = {.a = zb_arena_new()};
  keep_take_signals();
  int code = parse(&k, argc, argv) ? keep(&k) : ZX_EXIT_MISTAKE;
  zb_arena_free(k.a);
  return code;
}
