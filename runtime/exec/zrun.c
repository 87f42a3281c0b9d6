/* zrun: trains, evaluates, generates or serves with a stage graph on the ranks that mpirun started, or alone. Every
 * rank reads the same files and makes the same plan, and ranks verify that before they go on (comm/same.h). A
 * mistake in these is the same everywhere, so rank 0 reports it and all ranks exit in order. An error of one
 * rank is reported there, and the job is aborted. */
#include "runtime/exec/calibrate/calibrate.h"
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"
#include "runtime/plan/text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* Lists slow paths as a run would, for its device or for the GPU that this build assumes. Rank 0 speaks for all. */
static bool show_fallbacks(ZxRun *r, ZbText *t, ZbErr *err) {
  const ZxDeviceTable *d = r->o.device;
  if (!d->fallback || r->rank) return true;
  bool here = !d->available || d->available(NULL);
  r->env = (ZkEnv){
      .seed = r->o.seed, .tf32 = r->plan->asked.tf32, .repeatable = r->o.repeatable, .debug = r->o.debug};
  r->opened = here ? d->open(&r->env, 0, err) : d->pretend(&r->env, err);
  if (!r->opened) return false;
  zb_text_add(t, "\n");
  if (!here)
    zb_text_add(t, "no such device is here: what follows is as of an H100 with this build's libraries\n");
  for (uint32_t s = 0; s < r->plan->programs.nstages; s++) {
    if (r->plan->programs.nstages > 1) zb_text_add(t, "stage %u\n", s);
    zx_plan_fallbacks(r->plan, s, d, &r->env, r->cluster, t);
  }
  if (d->comm_missing && r->plan->layout.mesh.nranks > 1)
    zb_text_add(t, "note: ranks exchange by way of the host's memory: %s\n", d->comm_missing);
  return true;
}

static bool dry_run(ZxRun *r) {
  ZbText t = {0};
  ZbErr err = {0};
  zp_show(r->plan, &t);
  if (r->eval_plan) {
    zb_text_add(&t, "\nevaluation, in the same arena:\n");
    zp_show(r->eval_plan, &t);
  }
  if (r->sample_plan) {
    zb_text_add(&t, "\nsamples, in the same arena:\n");
    zp_show(r->sample_plan, &t);
  }
  bool ok = zx_run_agree(r, show_fallbacks(r, &t, &err), &err);
  if (r->rank == 0 && t.s) fputs(t.s, stdout);
  zb_text_free(&t);
  return ok;
}

/* Compares builds before options are parsed: another build may have others. */
static bool same_program(ZxRun *r, bool help, bool version) {
  ZxFacts f = {.a = r->a};
  zx_build_facts(&f);
  zx_fact(&f, ZX_OPTIONS, "--help", "%s", help ? "yes" : "no");
  zx_fact(&f, ZX_OPTIONS, "--version", "%s", version ? "yes" : "no");
  return zx_same_or_say(r->c, &f);
}

/* Parses options on all ranks. If they are wrong on some, the lowest of these says why. */
static bool parse_all(ZxRun *r, int argc, char **argv) {
  ZbErr err = {0};
  int first = zx_run_lowest(r, !zx_parse_options(r->a, argc, argv, &r->o, &err));
  if (first == r->rank)
    fprintf(stderr, "%szrun: %s%s%s\n", r->rank ? zb_printf(r->a, "[rank %d] ", r->rank) : "", err.text,
            *err.help ? "; " : "", err.help);
  return first < 0;
}

static const char *command_line(ZbArena *a, int argc, char **argv) {
  const char *text = "zrun";
  for (int i = 1; i < argc; i++) text = zb_printf(a, "%s %s", text, zb_show(argv[i]));
  return text;
}

static int run(ZxRun *r, int argc, char **argv) {
  zx_watch_phase("comparing programs and options");
  bool help = zb_asks_help(argc, argv), version = zb_asks_version(argc, argv);
  if (!same_program(r, help, version)) return ZX_EXIT_MISTAKE;
  if ((help || version) && r->rank == 0) zb_tells(&zx_program, argc, argv);
  if (help || version) return ZX_EXIT_DONE;
  r->command = command_line(r->a, argc, argv);
  if (!parse_all(r, argc, argv)) return ZX_EXIT_MISTAKE;
  zb_bytes_exactly(r->o.exact);
  r->failed = ZX_EXIT_MISTAKE;
  if (!zx_run_same_options(r)) return r->failed;
  if (r->o.command == ZX_CALIBRATE)
    return zx_calibrate(r->c, r->o.device, r->o.threads, r->o.out, zx_run_note_threads);
  bool serves = r->o.command == ZX_SERVE, generates = serves || r->o.command == ZX_GENERATE;
  if (!(generates ? zx_run_read_model(r) : zx_run_read(r) && zx_run_read_samples(r))) return r->failed;
  if (!zx_run_plan(r) || !zx_run_fits(r)) return r->failed;
  r->failed = ZX_EXIT_FAILED;
  zx_watch_phase("making ready");
  zx_run_place(r);
  zx_run_bind(r);
  if (r->o.device->host) zx_run_note_threads(r->c, r->o.threads);
  r->health.on_nan = r->o.on_nan;
  r->stop = zx_stop_new(r->began, r->o.time_limit, r->o.save || r->o.ckpt);
  bool ok = r->o.dry_run ? dry_run(r)
            : serves     ? zx_run_open_server(r) && zx_run_start_generating(r) && zx_run_serve(r)
            : generates  ? zx_run_start_generating(r) && (zx_run_talks(r) ? zx_run_chat : zx_run_generate)(r)
                         : zx_run_start(r) && (r->o.evaluates ? zx_run_evaluate(r) : zx_run_train(r));
  return !ok ? r->failed : r->stopping ? ZX_EXIT_AGAIN : ZX_EXIT_DONE;
}

static int told_alone(void) {
  ZbErr err;
  if (zb_close_stdout(&err)) return ZX_EXIT_DONE;
  fprintf(stderr, "zrun: error: %s\n", err.text);
  return ZX_EXIT_FAILED;
}

/* Returns the exit code: a run whose output is lost has failed. */
static int after_output(int code, int rank) {
  bool lost = ferror(stdout);
  errno = 0;
  if ((fflush(stdout) == 0 && !lost) || code != ZX_EXIT_DONE) return code;
  zx_say(rank, "error: cannot write to the standard output: %s",
         errno ? strerror(errno) : "a part of it is lost");
  return ZX_EXIT_FAILED;
}

enum { ADDRESSES = 192 << 20 /* MPI and the libraries map more than this */ };

/* Checks for address space. Without it MPI crashes at its start, and BLAS libraries wait for it for ever. */
static bool has_addresses(ZbErr *err) {
  void *probe = mmap(NULL, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED)
    return zb_fail(err, "raise the limit (ulimit -v)",
                   "there are no %d MiB of address space left for libraries", ADDRESSES >> 20);
  munmap(probe, ADDRESSES);
  return true;
}

/* Opens MPI, or for a process alone a world without it, under a launcher or not: that starts at once, works without a
 * working MPI, and any number of times in a script that a launcher started. */
static ZxComm *open_world(const ZxLaunch *l, int *argc, char ***argv) {
  ZbErr err = {0};
  bool enough = has_addresses(&err);
  ZxComm *c = l->alone || !enough ? zx_comm_self() : zx_comm_mpi(argc, argv, &err);
  if (*err.text) zx_say(l->alone ? 0 : l->rank, "error: %s; %s", err.text, err.help);
  if (!enough) c->t->abort(c, ZX_EXIT_FAILED); /* a normal exit waits for threads of libraries */
  return c;
}

/* Starts the watchdog: a rank that never reaches the start of MPI would hold up all others, and mpirun as well. */
static bool watched(const ZxLaunch *l, double limit) {
  ZbErr err = {0};
  int rank = l->rank > 0 ? l->rank : 0;
  if (zx_watch_start(rank, limit, ZX_EXIT_HANGS, &err)) return true;
  zx_say(rank, "error: %s; %s", err.text, err.help);
  return false;
}

int main(int argc, char **argv) {
  ZxLaunch launch = zx_launch();
  if (!launch.alone)
    zb_bug_rank(launch.rank); /* --help is for later: other ranks would wait for MPI to start */
  else if (zb_tells(&zx_program, argc, argv)) return told_alone();
  ZxRun r = {.began = zb_now(), .a = zb_arena_new(), .failed = ZX_EXIT_FAILED};
  zb_begin();
  zx_stop_on_signals(); /* also while ranks wait for each other at the start */
  if (!watched(&launch, zx_hang_after(argc, argv))) return ZX_EXIT_FAILED;
  r.c = open_world(&launch, &argc, &argv);
  if (!r.c) return ZX_EXIT_FAILED;
  zx_watch_meet(r.c);
  r.rank = r.c->t->rank(r.c);
  int code = after_output(run(&r, argc, argv), r.rank);
  zx_watch_phase("the end");
  zx_server_close(r.server);
  zx_log_close(r.log);
  zx_trace_close(r.trace);
  zx_checkpoints_close(r.saves.c);
  zx_predict_abandon(r.predict);
  zx_alike_close(r.alike);
  zx_engine_free(r.eval_engine);
  zx_watching_free(r.watching);
  zx_admission_free(r.admission);
  zx_engine_free(r.engine);
  if (r.opened) r.o.device->close(&r.env);
  zk_pool_free(r.env.pool);
  zx_mix_close(r.data);
  zx_mix_close(r.eval_data);
  zx_words_close(&r.prompts.words);
  zb_text_free(&r.memory);
  zb_text_free(&r.plan_text);
  r.c->t->free(r.c);
  zx_watch_close(); /* not before: MPI waits for all ranks at its end */
  zb_arena_free(r.a);
  return code;
}
