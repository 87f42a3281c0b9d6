/* Event files byte by byte, and the line that a terminal has while a run goes on. */
#define _GNU_SOURCE /* posix_openpt */
#include "runtime/exec/log/sinks.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

TestSuite(sinks, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* ---- event files ---------------------------------------------------------------------------------------- */
/* Bit by bit, without a table. */
static uint32_t masked_crc(const uint8_t *p, size_t n) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < 8 * n; i++) c = (c ^ p[i / 8] >> i % 8) & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
  c = ~c;
  return (c >> 15 | c << 17) + 0xa282ead8u;
}

static uint32_t u32(const uint8_t *p) {
  uint32_t x;
  memcpy(&x, p, 4);
  return x;
}

/* The events of a file, one a line: what is behind the time, and is no letter or digit, in hexadecimal. */
static void events_are(const char *name, const char *want) {
  ZbText t = {0};
  size_t n;
  uint8_t *p = (uint8_t *)scratch_read(name, &n);
  zb_text_add(&t, "%s", "");
  for (size_t at = 0, len; at < n; at += 16 + len) {
    double when;
    cr_assert(at + 16 + 9 <= n);
    len = u32(p + at);
    cr_assert(!u32(p + at + 4) && len <= n - at - 16, "the length at %zu", at);
    cr_assert_eq(u32(p + at + 8), masked_crc(p + at, 8), "the CRC of a length at %zu", at);
    cr_assert_eq(u32(p + at + 12 + len), masked_crc(p + at + 12, len), "the CRC at %zu", at);
    memcpy(&when, p + at + 13, 8);
    cr_expect(p[at + 12] == 0x09 && fabs(when - (double)time(NULL)) < 60, "%f is not now", when);
    for (size_t i = 9; i < len; i++) {
      uint8_t c = p[at + 12 + i];
      zb_text_add(&t, c >= ' ' && c < 127 ? "%c" : "<%02x>", c);
    }
    zb_text_add(&t, "\n");
  }
  cr_expect_str_eq(t.s, want, "%s has\n%s", name, t.s);
  zb_text_free(&t);
  free(p);
}

Test(sinks, events) {
  cr_redirect_stdout();
  int before = open_files();
  ZxLogOptions o = {.dir = scratch("log"), .text = {{"plan", "as it is"}}, .ntext = 1};
  ZxMetrics m = {.step = 1,
                 .steps = 300,
                 .loss = 1.5,
                 .grad_norm = 0,
                 .lr = -1,
                 .tokens = 9,
                 .step_ms = -1,
                 .predicted_ms = -1,
                 .tokens_per_s = -1,
                 .peak_share = -1,
                 .bubble = NAN,
                 .planned_bytes = 3};
  ZxEvalMetrics v = {.step = 300, .steps = 300, .loss = 2, .perplexity = -1, .tokens = 7, .ms = 1};
  ZxLog *l = zx_log_open(&o, &err);
  cr_assert(l, "%s", err.text);
  m.part[0] = (ZxLossPart){"main", 1.25}, m.part[1] = (ZxLossPart){"z", 0.25}, m.nparts = 2;
  v.part[0] = (ZxLossPart){"main", 2}, v.nparts = 1;
  /* Names are in the order of files, whatever clocks say; what has another name is no event file. */
  scratch_write("log/events.out.tfevents.4000000000.host", "", 0);
  scratch_write("log/events.out.tfevents.0000000001.zug", "", 0);
  scratch_write("log/events.out.tfevents.4000000007", "", 0);
  scratch_write("log/more_events.out.4000000008.zug", "", 0);
  scratch_write("log/events.out.tfevents-4000000100.zug", "", 0);
  scratch_write("log/events.out.tfevents.40000000051.zug", "", 0); /* its first ten digits count */
  cr_assert(zx_log_step(l, &m, NULL, 0, &err) && zx_log_eval(l, &v, &err), "%s", err.text);
  zx_log_close(l);
  events_are(
      "log/events.out.tfevents.4000000008.zug",
      "<10><00><1a><0d>brain.Event:2\n"
      "<10><00>:<02><08><01>\n"
      "<10><00>*3<0a>1<0a><04>planB<1d><08><07><12><04><12><02><08><01>B<13>~~~~<0a>as it is<0a>~~~~<0a>"
      "J<0a><0a><06><0a><04>text <02>\n"
      "<10><01>*<a8><01><0a><11><0a><0a>loss/train<15><00><00><c0>?"
      "<0a><1a><0a><13>optimizer/grad_norm<15><00><00><00><00><0a><13><0a><0c>speed/"
      "bubble<15><00><00><c0><7f>"
      "<0a><1b><0a><14>memory/planned_bytes<15><00><00>@@<0a><18><0a><11>memory/"
      "used_bytes<15><00><00><00><00>"
      "<0a><16><0a><0f>loss/train_main<15><00><00><a0>?<0a><13><0a><0c>loss/train_z<15><00><00><80>>\n"
      "<10><ac><02>*?<0a><10><0a><09>loss/eval<15><00><00><00>@<0a><14><0a><0d>speed/eval_ms<15><00><00><80>?"
      "<0a><15><0a><0e>loss/eval_main<15><00><00><00>@\n");
  o.before = 299, o.ntext = 0;
  l = zx_log_open(&o, &err);
  cr_assert(l && zx_log_eval(l, &v, &err), "%s", err.text);
  zx_log_close(l);
  cr_expect_eq(open_files(), before);
  events_are(
      "log/events.out.tfevents.4000000009.zug",
      "<10><00><1a><0d>brain.Event:2\n"
      "<10><ac><02>:<02><08><01>\n"
      "<10><ac><02>*?<0a><10><0a><09>loss/eval<15><00><00><00>@<0a><14><0a><0d>speed/eval_ms<15><00><00><80>?"
      "<0a><15><0a><0e>loss/eval_main<15><00><00><00>@\n");
}

/* Numbers of one, two and three groups of seven bits. */
Test(sinks, steps_of_events) {
  static const int64_t steps[] = {127, 128, 16383, 16384};
  cr_redirect_stdout();
  ZxLogOptions o = {.dir = scratch("log")};
  ZxLog *l = zx_log_open(&o, &err);
  cr_assert(l, "%s", err.text);
  scratch_write("log/events.out.tfevents.4000000000.host", "", 0);
  for (int i = 0; i < 4; i++) {
    ZxEvalMetrics v = {.step = steps[i], .steps = 20000, .loss = 2, .perplexity = -1, .tokens = -1, .ms = -1};
    cr_assert(zx_log_eval(l, &v, &err), "%s", err.text);
  }
  zx_log_close(l);
#define LOSS "*<12><0a><10><0a><09>loss/eval<15><00><00><00>@\n"
  events_are("log/events.out.tfevents.4000000001.zug",
             "<10><00><1a><0d>brain.Event:2\n<10><00>:<02><08><01>\n"
             "<10><7f>" LOSS "<10><80><01>" LOSS "<10><ff><7f>" LOSS "<10><80><80><01>" LOSS);
}

/* ---- a terminal ----------------------------------------------------------------------------------------- */
/* The standard output becomes a terminal of so many columns; what is sent there is read from what is returned. */
static int terminal(unsigned short columns, bool errors) {
  int host = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  cr_assert(host >= 0 && grantpt(host) == 0 && unlockpt(host) == 0);
  int fd = open(ptsname(host), O_RDWR | O_NOCTTY);
  struct winsize w = {.ws_row = 24, .ws_col = columns};
  struct termios raw;
  cr_assert(fd >= 0 && ioctl(fd, TIOCSWINSZ, &w) == 0 && tcgetattr(fd, &raw) == 0);
  cfmakeraw(&raw);
  cr_assert(tcsetattr(fd, TCSANOW, &raw) == 0);
  cr_assert(dup2(fd, STDOUT_FILENO) >= 0 && (!errors || dup2(fd, STDERR_FILENO) >= 0));
  close(fd);
  cr_assert(fcntl(host, F_SETFL, O_NONBLOCK) == 0);
  return host;
}

static void on_screen(int host, const char *want) {
  char got[4096];
  size_t n = 0;
  for (ssize_t more = 1; n < strlen(want) && more > 0; n += more > 0 ? (size_t)more : 0)
    more = poll(&(struct pollfd){.fd = host, .events = POLLIN}, 1, 5000) > 0
               ? read(host, got + n, sizeof got - 1 - n)
               : 0;
  ssize_t rest = read(host, got + n, sizeof got - 1 - n);
  got[n + (rest > 0 ? (size_t)rest : 0)] = 0;
  cr_expect_str_eq(got, want, "'%s', not '%s'", got, want);
}

static const ZxMetrics shown = {.steps = 12,
                                .loss = 4.5,
                                .grad_norm = -1,
                                .lr = -1,
                                .step_ms = -1,
                                .tokens_per_s = 100,
                                .peak_share = -1,
                                .bubble = -1};

Test(sinks, one_line_is_kept_up_to_date) {
  ZxEvalMetrics v = {.step = 11, .steps = 12, .loss = 2, .perplexity = -1, .ms = 1, .best_step = -1};
  ZxMetrics m = shown;
  int host = terminal(40, false);
  ZxLog *l = zx_log_open(&(ZxLogOptions){0}, &err);
  cr_assert(l, "%s", err.text);
  zx_log_draw(l);
  on_screen(host, ""); /* no step yet */
  m.step = 10;
  cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  zx_log_draw(l);
  on_screen(host, "\rstep 10/12  loss 4.5000  100 tok/s\033[K\r"); /* when it ends is not known yet */
  zx_log_erase(l);
  zx_log_erase(l);
  cr_assert(zx_log_eval(l, &v, &err));
  on_screen(host, "\r\033[Keval 11/12  loss 2.0000  1.00 ms\n");
  m.step = 12, m.tokens_per_s = 0, m.loss = -NAN;
  cr_assert(zx_log_step(l, &m, NULL, 0, &err));
  zx_log_draw(l);
  on_screen(host, "step 12/12  loss nan  0 tok/s\n\rstep 12/12  loss nan  0 tok/s  0s left\033[K\r");
  cr_assert(zx_log_end(l, &err));
  zx_log_close(l);
  fflush(stdout);
  on_screen(host, "\r\033[K");
}

/* The line stops before the last column, where a terminal would go on below. */
Test(sinks, narrow_terminals) {
  static const unsigned short columns[] = {24, 23, 2, 1};
  static const char *const want[] = {"\rstep 10/12  loss 4.5000\033[K\r", "\rstep 10/12  loss 4.500\033[K\r",
                                     "\rs\033[K\r", "\r\033[K\r"};
  ZxMetrics m = shown;
  m.step = 10, m.tokens_per_s = -1;
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    int host = terminal(columns[i], false);
    ZxLog *l = zx_log_open(&(ZxLogOptions){0}, &err);
    cr_assert(l && zx_log_step(l, &m, NULL, 0, &err));
    zx_log_draw(l);
    on_screen(host, want[i]);
    zx_log_close(l);
    fflush(stdout);
    on_screen(host, "\r\033[K");
    close(host);
  }
}

/* A step takes the mean of those of late: as many as there were, or about 30. */
Test(sinks, how_long_a_step_takes) {
  ZxLines l;
  ZxMetrics m = shown;
  double before[4], after[4];
  int host = terminal(80, false);
  zx_lines_open(&l, &(ZxLogOptions){0});
  for (int i = 0; i < 4; i++) {
    m.step = i + 1;
    before[i] = zb_now();
    cr_assert(zx_lines_step(&l, &m, &err));
    after[i] = zb_now();
    cr_expect(l.at >= before[i] && l.at <= after[i]);
    if (i) cr_expect(l.mean >= (before[i] - after[0]) / i && l.mean <= (after[i] - before[0]) / i, "%d", i);
    else cr_expect_eq(l.mean, 0);
    usleep(1000 << 2 * i); /* not the same for each */
  }
  static const struct {
    int n;
    double kept; /* of 3000 seconds; a step takes none */
  } late[] = {{1, 1500}, {28, 3000 * 28. / 29}, {29, 2900}, {30, 2900}, {1000, 2900}};
  for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
    l.n = late[i].n, l.mean = 3000;
    cr_assert(zx_lines_step(&l, &m, &err));
    cr_expect_float_eq(l.mean, late[i].kept, 3, "%zu: %g", i,
                       l.mean); /* a step takes less than 3 seconds here */
  }
  m.step = 2, l.n = 1 << 30, l.mean = 600 * 30. / 29;
  cr_assert(zx_lines_step(&l, &m, &err));
  zx_lines_draw(&l);
  on_screen(host, "\rstep 2/12  loss 4.5000  100 tok/s  1h40m left\033[K\r");
  zx_lines_close(&l);
}

Test(sinks, both_streams_on_one_terminal) {
  for (int both = 0; both < 2; both++) {
    int null = open("/dev/null", O_WRONLY), host;
    cr_assert(null >= 0 && dup2(null, STDERR_FILENO) >= 0);
    host = terminal(80, both);
    int before = open_files();
    ZxLog *l = zx_log_open(&(ZxLogOptions){0}, &err),
          *quiet = zx_log_open(&(ZxLogOptions){.quiet = true}, &err);
    cr_expect(zx_log_on_screen(l) == both && !zx_log_on_screen(quiet));
    zx_log_close(l);
    zx_log_close(quiet);
    cr_expect_eq(open_files(), before);
    close(host);
  }
}

/* What a launcher gives its ranks is of no size: its own counts. */
Test(sinks, behind_a_launcher) {
  for (unsigned short columns = 0; columns < 81; columns += 80) {
    int host = terminal(77, false), status;
    pid_t rank = fork();
    if (rank == 0) {
      terminal(columns, false);
      int before = open_files();
      ZxTerminal t = zx_terminal_find();
      _exit(t.fd < 0 || open_files() != before + 1 ? 1 : zx_terminal_columns(t.fd));
    }
    cr_assert(rank > 0 && waitpid(rank, &status, 0) == rank && WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), columns ? 80 : 77);
    close(host);
  }
  int p[2], status; /* the output of a launcher, or of the rank, that is no terminal */
  cr_assert_eq(pipe(p), 0);
  for (int launcher = 0; launcher < 2; launcher++) {
    int host = launcher ? dup2(p[1], STDOUT_FILENO) : terminal(77, false);
    cr_assert_geq(host, 0);
    pid_t rank = fork();
    if (rank == 0) {
      if (launcher) terminal(0, false);
      else dup2(p[1], STDOUT_FILENO);
      _exit(zx_terminal_find().fd < 0 ? 0 : 1);
    }
    cr_assert(rank > 0 && waitpid(rank, &status, 0) == rank && WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), 0, "%d", launcher);
  }
}
