/* metrics.jsonl is JSON whatever the numbers are; the line for people; learning rates. */
#define _GNU_SOURCE /* pipe2 */
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/log/sinks.h"
#include "tests/unit/exec/scratch.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(log, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;
static ZxLog *open_log(const char *dir) { return zx_log_open(&(ZxLogOptions){.dir = dir}, &err); }
static const ZxMetrics step = {.step = 7,
                               .steps = 100,
                               .loss = 3.25,
                               .grad_norm = 0.5,
                               .lr = 3e-4,
                               .tokens = 4096,
                               .step_ms = 12.5,
                               .tokens_per_s = 327680,
                               .flops = 1e12,
                               .peak_share = 0.41,
                               .bubble = 0.1,
                               .wait_ms = 1,
                               .planned_bytes = 12300000,
                               .used_bytes = 12300000};

static double field(const cJSON *o, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
  return cJSON_IsNumber(x) ? x->valuedouble : cJSON_IsNull(x) ? NAN : -77;
}

Test(log, lines_of_json) {
  cr_redirect_stdout();
  ZxLog *l = open_log(scratch("deep/er/log"));
  cr_assert(l, "%s", err.text);
  ZxMetrics m = step;
  ZxClassMetrics c[2] = {{0, 10, 10, 5, 1, 2}, {1, 20, 19, -1, NAN, 3}};
  cr_assert(zx_log_step(l, &m, c, 2, &err));
  m.epochs = (double[]){1.25, 1e-3};
  m.nepochs = 2;
  m.loss = NAN;
  m.grad_norm = INFINITY;
  m.peak_share = m.bubble = m.wait_ms = m.lr = -1;
  cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  size_t n;
  char *text = scratch_read("deep/er/log/metrics.jsonl", &n), *second = strchr(text, '\n') + 1;
  cr_assert(text[n - 1] == '\n' && strchr(second, '\n') == text + n - 1,
            "two lines, there before the log closes");
  second[-1] = 0;
  cJSON *a = cJSON_Parse(text), *b = cJSON_Parse(second);
  cr_assert(a && b, "%s %s", text, second);
  cr_expect(field(a, "step") == 7 && field(a, "steps") == 100 && field(a, "loss") == 3.25);
  cr_expect(field(a, "grad_norm") == 0.5 && field(a, "lr") == 3e-4 && field(a, "tokens") == 4096);
  cr_expect(field(a, "step_ms") == 12.5 && field(a, "tokens_per_s") == 327680 && field(a, "flops") == 1e12);
  cr_expect(field(a, "peak_share") == 0.41 && field(a, "bubble") == 0.1 && field(a, "wait_ms") == 1);
  cr_expect(field(a, "planned_bytes") == 12300000 && field(a, "used_bytes") == 12300000);
  const cJSON *classes = cJSON_GetObjectItem(a, "classes"), *one = cJSON_GetArrayItem(classes, 1);
  cr_expect_eq(cJSON_GetArraySize(classes), 2);
  cr_expect(field(one, "stage") == 1 && field(one, "planned_bytes") == 20 && field(one, "used_bytes") == 19);
  cr_expect(field(one, "compute_ms") == -77 && isnan(field(one, "wait_ms")) &&
            field(one, "wait_max_ms") == 3);
  cr_expect(isnan(field(b, "loss")) && isnan(field(b, "grad_norm")) && field(b, "lr") == -77);
  const cJSON *epochs = cJSON_GetObjectItem(b, "epochs");
  cr_expect(!cJSON_GetObjectItem(a, "epochs") && cJSON_GetArraySize(epochs) == 2);
  cr_expect(cJSON_GetArrayItem(epochs, 0)->valuedouble == 1.25 &&
            cJSON_GetArrayItem(epochs, 1)->valuedouble == 1e-3);
  cr_expect(!cJSON_GetObjectItem(b, "classes") && field(b, "bubble") == -77);
  cJSON_Delete(a);
  cJSON_Delete(b);
  free(text);
  zx_log_close(l);
}

Test(log, the_line_for_people) {
  cr_redirect_stdout();
  ZxLog *l = open_log(NULL);
  cr_assert(zx_log_step(l, &step, NULL, 0, &err));
  zx_log_close(l);
  cr_expect_stdout_eq_str(
      "step   7/100  loss 3.2500  grad 0.5  lr 3.00e-04  327680 tok/s  12.5 ms  41% of peak  "
      "10% idle  12.3 MB of 12.3 MB\n");
}

Test(log, what_is_not_known_is_left_out) {
  cr_redirect_stdout();
  ZxLog *l = open_log(NULL);
  ZxMetrics m = {.step = 1,
                 .steps = 1,
                 .loss = -NAN, /* as x86 makes it of 0 / 0 */
                 .grad_norm = -1,
                 .lr = -1,
                 .step_ms = -1,
                 .tokens_per_s = -1,
                 .peak_share = -1,
                 .bubble = -1};
  cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  zx_log_close(l);
  cr_expect_stdout_eq_str("step 1/1  loss nan\n");
}

Test(log, some_lines_or_none) {
  cr_redirect_stdout();
  ZxMetrics m = {.steps = 7,
                 .loss = 1,
                 .grad_norm = -1,
                 .lr = -1,
                 .step_ms = -1,
                 .tokens_per_s = -1,
                 .peak_share = -1,
                 .bubble = -1};
  for (int quiet = 0; quiet < 2; quiet++) {
    ZxLog *l = zx_log_open(&(ZxLogOptions){.print_every = 3, .quiet = quiet}, &err);
    for (m.step = 2; m.step <= 5; m.step++) cr_assert(zx_log_step(l, &m, NULL, 0, &err));
    cr_assert(zx_log_end(l, &err) && zx_log_end(l, &err));
    for (; m.step <= 7; m.step++) cr_assert(zx_log_step(l, &m, NULL, 0, &err));
    cr_assert(zx_log_end(l, &err));
    zx_log_close(l);
  }
  cr_expect_stdout_eq_str("step 2/7  loss 1.0000\nstep 3/7  loss 1.0000\nstep 5/7  loss 1.0000\n"
                          "step 6/7  loss 1.0000\nstep 7/7  loss 1.0000\n");
}

Test(log, folders_that_do_not_work) {
  scratch_write("file", "", 0);
  cr_expect(!open_log(scratch("file/log")));
  says(err, "cannot make the log folder");
  cr_expect(!open_log(scratch("file")));
  says(err, "cannot write");
  cr_expect(!open_log(""));
  says(err, "has no name");
  cr_expect(!open_log("/proc/zug"));
  says(err, "cannot make the log folder /proc/zug");
}

static void has(const char *name, const char *want) {
  size_t n;
  char *text = scratch_read(name, &n);
  cr_expect_str_eq(text, want);
  free(text);
}

/* A run that fails before its first step leaves all as it was; one that does not keeps it under another
 * name. */
Test(log, lines_of_earlier_runs_are_kept) {
  cr_redirect_stdout();
  zx_log_close(open_log(scratch("log"))); /* makes the folder, and an empty file */
  cr_expect_eq(scratch_files(), 1);
  static const char *const old[] = {"one", "two", "three"};
  for (int i = 0; i < 3; i++) {
    scratch_write("log/metrics.jsonl", old[i], strlen(old[i]));
    ZxLog *l = open_log(scratch("log"));
    cr_assert(l, "%s", err.text);
    has("log/metrics.jsonl", old[i]);
    if (i < 2)
      cr_assert(zx_log_step(l, &step, NULL, 0, &err) && zx_log_step(l, &step, NULL, 0, &err), "%s", err.text);
    zx_log_close(l);
  }
  has("log/metrics.jsonl", "three");
  has("log/metrics.jsonl.1", "one");
  has("log/metrics.jsonl.2", "two");
}

/* Of a run that goes on after step 10: what is behind its line, or not whole, is made again. */
Test(log, lines_of_later_steps_are_cut_off) {
  cr_redirect_stdout();
  static const struct {
    const char *old, *kept; /* NULL: there is no file */
  } cases[] = {
      {NULL, ""},
      {"", ""},
      {"{\"step\":1,\"a\":2}\n", "{\"step\":1,\"a\":2}\n"},
      {"{\"step\":9,}\n{\"step\":10,}\n{\"step\":10,\"eval\":1}\n{\"step\":11,}\n{\"step\":3,}\n",
       "{\"step\":9,}\n{\"step\":10,}\n{\"step\":10,\"eval\":1}\n"},
      {"{\"step\":9,}\n{\"step\":1", "{\"step\":9,}\n"},
      {"{\"step\":9,}\n{\"step\":1,\"half\":", "{\"step\":9,}\n"},
      {"{\"step\":9,}\nsomething\n{\"step\":10,}\n", "{\"step\":9,}\n"},
      {"{\"step\":11,}\n", ""},
  };
  ZxMetrics m = {.step = 11, .steps = 12, .epochs = (double[]){0.5, 1.25, 3}, .nepochs = 3};
  m.grad_norm = m.lr = m.tokens = m.step_ms = m.predicted_ms = m.tokens_per_s = m.flops = m.peak_share = -1;
  m.bubble = m.wait_ms = m.wait_max_ms = -1;
  int before = open_files();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[16];
    snprintf(name, sizeof name, "%zu", i);
    cr_assert(mkdir(scratch(name), 0777) == 0);
    snprintf(name, sizeof name, "%zu/metrics.jsonl", i);
    if (cases[i].old) scratch_write(name, cases[i].old, strlen(cases[i].old));
    ZxLog *l = zx_log_open(&(ZxLogOptions){.dir = scratch((char[]){name[0], 0}), .before = 10}, &err);
    cr_assert(l, "%s", err.text);
    if (cases[i].old) has(name, cases[i].old);
    else cr_assert(unlink(scratch(name)) == 0);
    cr_assert(zx_log_step(l, &m, NULL, 0, &err), "%s", err.text);
    zx_log_close(l);
    ZbText want = {0};
    zb_text_add(&want,
                "%s{\"step\":11,\"steps\":12,\"loss\":0,\"planned_bytes\":0,\"used_bytes\":0,"
                "\"epochs\":[0.5,1.25,3]}\n",
                cases[i].kept);
    has(name, want.s);
    zb_text_free(&want);
  }
  cr_expect_eq(open_files(), before);
}

/* Of what is no file there is nothing to be cut off. */
Test(log, a_run_that_goes_on_without_a_file) {
  cr_redirect_stdout();
  scratch_folder("log");
  cr_assert(symlink("/dev/null", scratch("log/metrics.jsonl")) == 0);
  ZxLog *l = zx_log_open(&(ZxLogOptions){.dir = scratch("log"), .before = 10}, &err);
  cr_assert(l, "%s", err.text);
  cr_expect(zx_log_step(l, &step, NULL, 0, &err), "%s", err.text);
  zx_log_close(l);
}

Test(log, links_are_followed) {
  cr_redirect_stdout();
  cr_assert(mkdir(scratch("log"), 0777) == 0 && symlink("../there", scratch("log/metrics.jsonl")) == 0);
  scratch_write("there", "old", 3);
  ZxLog *l = open_log(scratch("log"));
  cr_assert(l && zx_log_step(l, &step, NULL, 0, &err), "%s", err.text);
  zx_log_close(l);
  has("there.1", "old");
  struct stat st;
  cr_expect(lstat(scratch("log/metrics.jsonl"), &st) == 0 && S_ISLNK(st.st_mode));
  cr_expect(stat(scratch("there"), &st) == 0 && st.st_size > 100);
}

/* What could be written when the log was opened, and cannot be when there is something to write. */
Test(log, files_that_cannot_be_begun) {
  cr_redirect_stdout();
  ZxEvalMetrics v = {.step = 1, .steps = 2};
  cr_assert(mkdir(scratch("log"), 0777) == 0 && symlink("../there", scratch("log/metrics.jsonl")) == 0);
  for (int eval = 0; eval < 2; eval++) {
    ZxLog *l = open_log(scratch("log"));
    cr_assert(l && unlink(scratch("there")) == 0 && mkdir(scratch("there"), 0777) == 0, "%s", err.text);
    cr_expect(!(eval ? zx_log_eval(l, &v, &err) : zx_log_step(l, &step, NULL, 0, &err)));
    says(err, "metrics.jsonl: Is a directory");
    zx_log_close(l);
    cr_assert(rmdir(scratch("there")) == 0);
  }
  for (int eval = 0; eval < 2; eval++) {
    mkdir(scratch("gone"), 0777);
    cr_assert(symlink(scratch("there"), scratch("gone/metrics.jsonl")) == 0);
    ZxLog *l = open_log(scratch("gone"));
    cr_assert(l && unlink(scratch("gone/metrics.jsonl")) == 0 && rmdir(scratch("gone")) == 0, "%s", err.text);
    cr_expect(!(eval ? zx_log_eval(l, &v, &err) : zx_log_step(l, &step, NULL, 0, &err)));
    says(err, "/gone/events.out.tfevents.");
    says(err, ".zug: No such file");
    zx_log_close(l);
  }
}

Test(log, a_pipe_without_a_reader, .timeout = 20) {
  cr_assert(mkdir(scratch("log"), 0777) == 0 && mkfifo(scratch("log/metrics.jsonl"), 0666) == 0);
  cr_expect(!open_log(scratch("log")));
  says(err, "metrics.jsonl: nobody reads from it");
}

/* What a pipe does not take yet is what a full disk does not: nothing is lost, in either file, once there is room. */
Test(log, a_full_disk_for_a_while) {
  cr_redirect_stdout();
  char text[1 << 16], first[1 << 15];
  int ends[2];
  ZbAppend f = {0};
  cr_assert(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
  f.fd = ends[1];
  memset(text, 'x', sizeof text);
  cr_assert(zb_append(&f, "f", "a", 1, &err), "%s", err.text);
  cr_expect(!zb_append(&f, "f", text, 10000, &err));
  cr_expect(err.passing, "%s", err.text);
  cr_expect(!zb_append(&f, "f", "b", 1, &err));
  ssize_t n = 0;
  for (int tries = 0; tries < 10 && n < 10002; tries++) {
    ssize_t got = read(ends[0], first + n, sizeof first - (size_t)n);
    n += got > 0 ? got : 0;
    zb_append(&f, "f", "", 0, &err);
  }
  cr_expect_eq(n, 10002);
  cr_expect(first[0] == 'a' && first[1] == 'x' && first[10000] == 'x' && first[10001] == 'b');
  zb_append_close(&f);
  close(ends[0]);
}

Test(log, a_full_disk) {
  cr_redirect_stdout();
  ZxLog *l = open_log(scratch("log"));
  cr_assert(l);
  scratch_full_at(2000);
  bool ok = true;
  for (int i = 0; ok && i < 100; i++) ok = zx_log_step(l, &step, NULL, 0, &err);
  cr_expect(!ok);
  says(err, ": File too large");
  zx_log_close(l);
}

Test(log, nobody_reads_the_lines) {
  ZxLog *l = open_log(NULL);
  int full = open("/dev/full", O_WRONLY);
  cr_assert(full >= 0 && dup2(full, STDOUT_FILENO) >= 0);
  cr_expect(!zx_log_step(l, &step, NULL, 0, &err));
  says(err, "cannot write to the standard output: No space left");
  zx_log_close(l);
  close(full);
}

Test(log, messages_of_ranks) {
  cr_redirect_stderr();
  zx_say(3, "loss is %g", 1.5);
  zx_say(4, "no \033[1m%s", "\xff");
  zx_say_over_line(true);
  zx_say(5, "over");
  zx_say_over_line(false);
  cr_expect_stderr_eq_str("[rank 3] loss is 1.5\n[rank 4] no \\x1b[1m\\xff\n\r\033[K[rank 5] over\n");
}

/* ---- the end of a job ---- */
static int rank_3(ZxComm *c) { return (void)c, 3; }
static bool first(ZxComm *c) { return (void)c, true; }
/* The attribute, unlike _Noreturn, is part of the type, as the table has it. */
__attribute__((noreturn)) static void end_with(ZxComm *c, int code) { (void)c, _exit(code); }

/* The code of a process that ends so, and what it has said. */
static int end_of(bool claims, int code, char said[200]) {
  ZxCommTable t = {.rank = rank_3, .abort = end_with, .claim = claims ? first : NULL};
  ZxComm c = {&t};
  int p[2], status;
  cr_assert_eq(pipe(p), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(p[1], STDERR_FILENO);
    if (code) zx_die_of(&c, code, "no %s", "loss");
    zx_die(&c, "no %s in step %d", "data", 7);
  }
  close(p[1]);
  ssize_t n = read(p[0], said, 199);
  said[n > 0 ? n : 0] = 0;
  close(p[0]);
  cr_assert(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

Test(log, the_last_words) {
  char said[200];
  for (int claims = 0; claims < 2; claims++) {
    cr_expect_eq(end_of(claims, 0, said), 1);
    cr_expect_str_eq(said, "[rank 3] error: no data in step 7\n");
    cr_expect_eq(end_of(claims, 4, said), 4);
    cr_expect_str_eq(said, "[rank 3] error: no loss\n");
  }
}

Test(log, a_long_message_is_one_line) {
  char *long_text = calloc(1, 10000);
  memset(long_text, 'x', 9999);
  int p[2];
  cr_assert(pipe(p) == 0 && dup2(p[1], STDERR_FILENO) >= 0);
  zx_say(0, "%s", long_text);
  char got[4096];
  ssize_t n = read(p[0], got, sizeof got);
  cr_expect(n == 2048 && got[2047] == '\n' && got[2046] == 'x');
  free(long_text);
}
