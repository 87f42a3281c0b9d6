/* zrun calibrate as a whole, on a machine whose constants are known: its file to the letter, how it ends. */
#include "runtime/exec/exit.h"
#include "graph/graph.h"
#include "runtime/plan/time/time.h"
#include "tests/unit/exec/calibrate/machine.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* In the test's folder. */
const char zx_system[] = "system";
SCRATCH_SUITE(command);

#define CALIBRATE(...) calibrate((char *[]){"zrun", "calibrate", __VA_ARGS__, NULL})
static int calibrate(char **argv) {
  int argc = 0;
  while (argv[argc]) argc++;
  return zx_calibrate(&world, argc, argv, NULL);
}

static void begin(int rank, int size, const int *nodes) {
  machine_ranks(rank, size, nodes);
  cr_assert_eq(chdir(scratch(".")), 0);
  fflush(stdout);
  int out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0600),
      err = open("err", O_CREAT | O_TRUNC | O_WRONLY, 0600);
  cr_assert(dup2(out, 1) == 1 && dup2(err, 2) == 2 && close(out) == 0 && close(err) == 0);
}

/* All that was written there since it was begun. */
static void expect_said(const char *name, const char *text) {
  size_t n;
  fflush(stdout);
  char *said = scratch_read(name, &n);
  cr_expect_str_eq(said, text, "%s", said);
  free(said);
}

/* What is said of the device, and before it: MEMORY is a line or nothing. */
#define DEVICE(RANKS, THREADS, MEMORY)                                                                       \
  "# Measured by zrun calibrate with " RANKS " of " THREADS " at once: a virtual device.\n"                  \
  "cluster here {\n" MEMORY                                                                                  \
  "  device f32 73.13 GFLOPS, bf16 204.8 GFLOPS  # the best product; as fast beside it as all of bf16 are\n" \
  "  device products 1.09, tile_fill 24  # fifteen products, forward and backward\n"                         \
  "  device attention 0.273, attention_f32 0.82, attention_grad 0.7, attention_fill 16  # causal, 128 and "  \
  "512 positions, 4 heads of 64\n"                                                                           \
  "  device stream 11 GB/s, cached 90 GB/s, cache 4.227 MB  # sums of two tensors of 16 MB; of rows and a "  \
  "bias, in 0.5 MB; in how much they become slower\n"                                                        \
  "  device simple 40 GFLOPS, special 6 GFLOPS  # chains of products and sums; of exponentials and tanh\n"   \
  "  device update 7 GB/s  # AdamW of 4 M parameters\n"                                                      \
  "  device launch 2 us  # a sum of two tensors of 64 elements\n"
#define LEVEL(CONSTANTS)                                                                                     \
  "  level " CONSTANTS "  # all-gather and all-reduce of five sizes, messages of 64 bytes; the last two: "   \
  "products and an all-reduce\n"

/* The constants are the machine's, to the digits that are said, and all that times are made from. */
static void expect_cluster(const char *path, int levels) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  const char *name;
  ZlProgram *p = zl_load_named(a, s, d, path, &(ZlOptions){0}, &name);
  cr_assert(p && !zl_errors(d));
  const ZlCluster *c = zl_cluster(p, d, NULL);
  cr_assert(c && !zl_errors(d));
  cr_expect_eq(c->nlevels, levels);
#define SAID(x, y) cr_expect_float_eq(x, y, 5e-3 * fabs(y), "%s: %g", #x, x);
  SAID(c->flops_f32 * c->products, machine.is.flops_f32 * machine.is.products)
  SAID(c->flops_bf16 * c->products, machine.is.flops_bf16 * machine.is.products)
  SAID(c->flops_f32 * c->attention_f32, machine.is.flops_f32 * machine.is.attention_f32)
  SAID(c->flops_bf16 * c->attention, machine.is.flops_bf16 * machine.is.attention)
  ZpNode nodes[4] = {{.call = {.op = ZG_OP_DOT, .in = {{.elem = ZK_F32}}}},
                     {.call = {.op = ZG_OP_DOT, .in = {{.elem = ZK_BF16}}}},
                     {.call = {.op = ZG_OP_ATTEND}},
                     {.call = {.op = ZG_OP_ATTEND_GRAD}}};
  ZpSegment segment = {.list = {[ZP_FWD] = {.nodes = nodes, .n = 4}}};
  ZgGraph graph = {.nsegments = 1};
  ZpPlan plan = {.graph = &graph, .segments = &segment};
  cr_expect(zp_cluster_suffices(&plan, machine.size, c, d), "it lacks something");
}

static void expect_file(const char *text, int levels) {
  expect_said("here.zug", text);
  expect_said("out", text);
  expect_said("err", "");
  expect_cluster("here.zug", levels);
  cr_expect(machine.opened == 1 && machine.closed == 1 && machine.allocs == machine.frees);
}

static void put(const char *path, const char *text) {
  char all[256];
  snprintf(all, sizeof all, "system%s", path);
  for (char *s = strchr(all, '/'); s; s = strchr(s + 1, '/')) {
    *s = 0;
    if (access(scratch(all), F_OK)) scratch_folder(all);
    *s = '/';
  }
  scratch_write(all, text, strlen(text));
}

#define MEMORY(GB) "  device memory " GB " GB  # what was free, by the ranks of a node\n"
#define NEAR                                                                                                 \
  "node 2, link 5 GB/s, sums 3 GB/s, latency 20 us, start 30 us, ramp 50 us, steal 0.351, beside 0.636"
#define FAR                                                                                                  \
  "nodes 2, link 1 GB/s, sums 0.8 GB/s, latency 70 us, start 110 us, ramp 200 us, steal 0.144, beside 0.435"

/* What the machine says of its memory: of it and of its control group, in kB and in bytes. */
static void put_memory(const char *free, const char *most, const char *used) {
  put("/proc/meminfo", free);
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", "31 30 0:27 / /cg rw - cgroup2 cgroup rw\n");
  put("/cg/memory.max", most);
  put("/cg/memory.current", used);
}

/* Behind a token bucket sums are 0.05 % slower, as the first of several finds less of it. */
#define LIMITED                                                                                              \
  "nodes 2, link 1 GB/s, sums 0.7996 GB/s, latency 70 us, start 110 us, ramp 200 us, burst 2000 KB, steal "  \
  "0.143, beside 0.433"
#define APART "  level node 1, link 1 GB/s  # a rank has its node for itself\n"

Test(command, clusters) {
  begin(0, 1, (int[]){0}); /* how much memory there is nobody knows yet */
  cr_expect_eq(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE);
  expect_file(DEVICE("1 rank", "1 thread", "") "}\n", 0);
  put_memory("MemAvailable: 9000000 kB\n", "max\n", "1000000000\n");
  begin(0, 2, (int[]){0, 0});
  cr_expect_eq(CALIBRATE("--threads", "12", "-o", "here.zug"), ZX_EXIT_DONE);
  expect_file(DEVICE("2 ranks", "12 threads", MEMORY("4.608")) LEVEL(NEAR) "}\n", 1);
  /* A node's memory is shared by its ranks, others have their own. */
  put_memory("MemAvailable: 9000000 kB\n", "5000000000\n", "1000000000\n");
  begin(0, 4, (int[]){0, 0, 2, 2});
  cr_expect_eq(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE);
  expect_file(DEVICE("4 ranks", "1 thread", MEMORY("2")) LEVEL(NEAR) LEVEL(FAR) "}\n", 2);
  put_memory("MemAvailable: 3000000 kB\n", "5000000000\n", "1000000000\n");
  begin(0, 3, (int[]){0, 1, 1}); /* of which the second node's say nothing here */
  machine.level[1].burst = 2e6;
  cr_expect_eq(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE);
  char text[4096];
  snprintf(text, sizeof text, "%s%s%s}\n", DEVICE("3 ranks", "1 thread", MEMORY("3.072")), APART,
           LEVEL(LIMITED));
  expect_file(text, 2);
  /* Of constants that do not show, as little as a cluster can say. */
  begin(0, 1, (int[]){0});
  machine.is.tile_fill = machine.is.attention_fill = 0;
  cr_expect_eq(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE);
  expect_cluster("here.zug", 0);
  size_t n;
  char *least = scratch_read("here.zug", &n);
  cr_expect(strstr(least, ", tile_fill 0.001 ") && strstr(least, ", attention_fill 0.001 "), "%s", least);
  free(least);
  /* Others write nothing. */
  begin(1, 2, (int[]){0, 0});
  cr_expect_eq(CALIBRATE("-o", "there.zug"), ZX_EXIT_DONE);
  expect_said("out", "");
  expect_said("err", "");
  cr_expect(access("there.zug", F_OK) && machine.closed == 1 && machine.allocs == machine.frees);
}

/* Where other work hides what exchanges take the file says so, behind the constants. */
static double same_for_all(int op, size_t bytes) { return op < 0 || !bytes ? 0 : 1; }
Test(command, hidden) {
  put_memory("MemAvailable: 9000000 kB\n", "max\n", "1000000000\n");
  begin(0, 2, (int[]){0, 0});
  machine.more = same_for_all;
  cr_expect_eq(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE);
  expect_cluster("here.zug", 1);
  size_t n;
  char *said = scratch_read("here.zug", &n);
  cr_expect(strstr(said, " and an all-reduce; larger ones took no longer: what else runs on this machine "
                         "hides their times, calibrate again without it\n"),
            "%s", said);
  free(said);
}

/* ---- how it ends ---- */
static void expect_end(int code, int wants, const char *text) {
  cr_expect_eq(code, wants, "%d instead of %d", code, wants);
  expect_said("err", text);
  cr_expect(machine.opened == machine.closed && machine.frees <= machine.allocs);
}

Test(command, options) {
#define MISTAKE(text, ...)                                                                                   \
  begin(0, 2, (int[]){0, 0});                                                                                \
  expect_end(CALIBRATE(__VA_ARGS__), ZX_EXIT_MISTAKE, "[rank 0] error: " text "\n");                         \
  cr_expect(machine.opened == 0 && access("here.zug", F_OK), "%s", text)
  MISTAKE("--threads takes 1 to 1024", "-o", "here.zug", "--threads", "0");
  MISTAKE("--threads takes 1 to 1024", "-o", "here.zug", "--threads", "1025");
  MISTAKE("--threads takes 1 to 1024", "-o", "here.zug", "--threads", "");
  MISTAKE("--threads takes 1 to 1024", "-o", "here.zug", "--threads", "2x");
  MISTAKE("--threads takes 1 to 1024", "-o", "here.zug", "--threads", "-1");
  MISTAKE("wrong value `5` for --hang-after; 10m, 90s; 0s: never", "-o", "here.zug", "--hang-after", "5");
  MISTAKE("calibrate wants -o FILE, and nothing else; zrun calibrate -o here.zug", "--threads", "2");
  MISTAKE("calibrate wants -o FILE, and nothing else; zrun calibrate -o here.zug", "-o", "here.zug", "x");
  MISTAKE("calibrate wants -o FILE, and nothing else; zrun calibrate -o here.zug", "--threads", "1", "-o",
          "x", "y");
  MISTAKE("calibrate wants -o FILE, and nothing else; zrun calibrate -o here.zug", "--threads", "1024");
  MISTAKE("option requires an argument -- 'o'", "-o");
  MISTAKE("invalid option -- 'x'", "-x");
}

/* Ranks compare what they were given: all of it. */
Test(command, alike) {
  static char *given[4][5] = {{"-o", "here.zug"},
                              {"-o", "there.zug"},
                              {"-o", "here.zug", "--threads", "2"},
                              {"-o", "here.zug", "--threads", "1"}};
  double digest[4];
  for (int i = 0; i < 4; i++) {
    char *argv[7] = {"zrun", "calibrate"};
    memcpy(argv + 2, given[i], sizeof given[i]);
    begin(0, 2, (int[]){0, 0});
    machine.others_fail = 1;
    expect_end(calibrate(argv), ZX_EXIT_MISTAKE, "");
    digest[i] = machine.digest;
  }
  cr_expect(digest[0] != digest[1] && digest[0] != digest[2] && digest[0] == digest[3]);
}

/* One rank of several is told what is wrong: the first that has it so. */
Test(command, others_mistake) {
  begin(0, 2, (int[]){0, 0});
  machine.others_lack = 1;
  expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_MISTAKE, "");
  begin(1, 2, (int[]){0, 0});
  expect_end(CALIBRATE("-o"), ZX_EXIT_MISTAKE, "[rank 1] error: option requires an argument -- 'o'\n");
}

Test(command, files) {
  static const char
      other[] = "[rank 0] error: here.zug exists and is not a cluster of zrun calibrate: it is not "
                "replaced; remove it, or choose another name\n",
      nowhere[] = "[rank 0] error: cannot create nowhere/here.zug: No such file or directory; check the "
                  "folder and its permissions\n";
  begin(0, 1, (int[]){0});
  scratch_write("here.zug", "# Measured by zx. Who?\n", 23);
  expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_MISTAKE, other);
  scratch_write("here.zug", "# Measured by zr", 15);
  begin(0, 1, (int[]){0});
  expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_MISTAKE, other);
  scratch_write("here.zug", "# Measured by zr", 16);
  begin(0, 1, (int[]){0});
  expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_DONE, "");
  begin(0, 1, (int[]){0});
  expect_end(CALIBRATE("-o", "nowhere/here.zug"), ZX_EXIT_MISTAKE, nowhere);
  begin(1, 2, (int[]){0, 0}); /* the first rank writes it */
  expect_end(CALIBRATE("-o", "nowhere/here.zug"), ZX_EXIT_DONE, "");
}

/* All of the memory or nothing: this rank fails, another does, or the file cannot be written at the end. */
Test(command, failures) {
  for (int k = 1; k <= 5; k++) {
    char text[80];
    snprintf(text, sizeof text, "[rank 0] error: no memory for %d; less\n", k - 1);
    begin(0, 2, (int[]){0, 0});
    machine.alloc_fails = k;
    expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_FAILED, text);
    cr_expect(machine.runs == 0 && machine.frees == k - 1);
  }
  /* May it be written; open; memory; scratch; and the file. */
  for (int k = 1; k <= 5; k++) {
    begin(0, 2, (int[]){0, 0});
    machine.others_fail = k;
    expect_end(CALIBRATE("-o", "here.zug"), k == 1 ? ZX_EXIT_MISTAKE : ZX_EXIT_FAILED, "");
    cr_expect_eq(machine.agreed, k == 4 ? 5 : k);
    cr_expect_eq(machine.allocs, k < 3 ? 0 : k < 4 ? 4 : 5);
    cr_expect_eq(machine.allocs, machine.frees);
    cr_expect_eq(machine.runs > 0, k == 5);
  }
}

/* What may go better another time is no mistake, here or on another rank. */
Test(command, passing) {
  struct rlimit all;
  begin(0, 2, (int[]){0, 0});
  cr_assert_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, all.rlim_max}), 0);
  int code = CALIBRATE("-o", "here.zug");
  cr_assert_eq(setrlimit(RLIMIT_NOFILE, &all), 0);
  expect_end(code, ZX_EXIT_FAILED,
             "[rank 0] error: cannot create here.zug: Too many open files; check the folder and its "
             "permissions\n");
  begin(0, 2, (int[]){0, 0});
  machine.others_fail = 1;
  machine.others_lack = 2; /* behind whether one was given something wrong */
  expect_end(CALIBRATE("-o", "here.zug"), ZX_EXIT_FAILED, "");
}
