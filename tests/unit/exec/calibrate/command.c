/* zrun calibrate on machines whose constants are known: the file has them, and how it ends where it cannot. */
#include "graph/graph.h"
#include "runtime/exec/device/memory.h"
#include "runtime/exec/exit.h"
#include "runtime/plan/time/time.h"
#include "tests/unit/exec/calibrate/machine.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the test's folder. */
const char zx_system[] = "system";
SCRATCH_SUITE(command);

static int calibrate(const char *out, const char *device) {
  return zx_calibrate(&world, zx_device(device, NULL), 1, out, NULL);
}

static void begin(bool host, int rank, int size, const int *nodes) {
  machine_start(host, rank, size, nodes);
  cr_assert_eq(chdir(scratch(".")), 0);
  fflush(stdout);
  int out = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0600),
      err = open("err", O_CREAT | O_TRUNC | O_WRONLY, 0600);
  cr_assert(dup2(out, 1) == 1 && dup2(err, 2) == 2 && close(out) == 0 && close(err) == 0);
}
static void begin_two(void) { begin(true, 0, 2, (int[]){0, 0}); }

static void expect_said(const char *name, const char *words) {
  size_t n;
  fflush(stdout);
  char *said = scratch_read(name, &n);
  cr_expect(*words ? strstr(said, words) != NULL : !n, "no '%s' in '%s'", words, said);
  free(said);
}

/* What was taken is given back. */
static void expect_end(int code, int wants, const char *words) {
  cr_expect_eq(code, wants, "%d instead of %d", code, wants);
  expect_said("err", words);
  int failed = machine.alloc_fails && machine.allocs >= machine.alloc_fails;
  cr_expect(machine.opened == machine.closed && machine.allocs == machine.frees + failed && !machine.comms);
}

/* ---- constants ----------------------------------------------------------------------------------------- */
static const ZlCluster *read_cluster(void) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load(a, s, d, "here.zug", NULL);
  const ZlCluster *c = p ? zl_cluster(p, d, "here") : NULL;
  cr_assert(c && !zl_errors(d));
  ZpNode nodes[4] = {{.call = {.op = ZG_OP_DOT, .in = {{.elem = ZK_F32}}}},
                     {.call = {.op = ZG_OP_DOT, .in = {{.elem = ZK_BF16}}}},
                     {.call = {.op = ZG_OP_ATTEND}},
                     {.call = {.op = ZG_OP_ATTEND_GRAD}}};
  ZpSegment segment = {.list = {[ZP_FWD] = {.nodes = nodes, .n = 4}}};
  ZgGraph graph = {.nsegments = 1};
  ZpPlan plan = {.graph = &graph, .programs.segments = &segment};
  cr_expect(zp_cluster_suffices(&plan, machine.size, c, d), "no plan can be timed on it");
  return c;
}

/* Three digits are written. */
#define NEAR(x, y)                                                                                           \
  cr_expect_float_eq((x), (y), 6e-3 * fabs((double)(y)), "%s: %.9g instead of %.9g", #x, (double)(x),        \
                     (double)(y))

static void expect_level(const ZlLevel *l, const ZlLevel *is) {
  cr_expect_eq(l->size, is->size);
  NEAR(l->bandwidth, is->bandwidth / machine.slower);
  NEAR(l->sums, is->sums / machine.slower);
  NEAR(l->latency, is->latency * machine.slower);
  NEAR(l->start, is->start * machine.slower);
  NEAR(l->ramp, is->ramp * machine.slower);
}

/* A peak and a share of it are measured as their product, so far as no data sheet says the peak. */
static void expect_constants(const ZlCluster *c, bool host) {
  const ZlCluster *is = &machine.is;
  NEAR(c->flops_f32 * c->products, is->flops_f32 * is->products / machine.slower);
  NEAR(c->flops_bf16 * c->products, is->flops_bf16 * is->products / machine.slower);
  NEAR(c->tile_fill, is->tile_fill);
  if (host) NEAR(c->flops_f32 * c->attention, is->flops_f32 * is->attention / machine.slower);
  else NEAR(c->flops_bf16 * c->attention, is->flops_bf16 * is->attention / machine.slower);
  NEAR(c->attention_grad, is->attention_grad);
  NEAR(c->stream, is->stream / machine.slower);
  NEAR(c->launch, is->launch * machine.slower);
  NEAR(c->weights1, is->weights1 / machine.slower);
  NEAR(c->weights1_bf16, is->weights1_bf16 / machine.slower);
  if (host) {
    NEAR(c->weights8, is->weights8 / machine.slower);
    NEAR(c->weights128, is->weights128 / machine.slower);
    NEAR(c->weights16_bf16, is->weights16_bf16 / machine.slower);
  }
  if (machine.size > 1) cr_expect_float_eq(c->steal, is->steal, .02, "steal %g", c->steal);
}

static const ZlCluster *expect_cluster(bool host, char *device) {
  expect_end(calibrate("here.zug", device), ZX_EXIT_DONE, "");
  const ZlCluster *c = read_cluster();
  expect_constants(c, host);
  expect_said("out", "cluster here {");
  return c;
}

Test(command, host) {
  begin(true, 0, 1, (int[]){0});
  cr_expect_eq(expect_cluster(true, "cpu")->nlevels, 0);
  begin(true, 0, 4, (int[]){0, 0, 2, 2});
  machine.noisy = true;
  const ZlCluster *c = expect_cluster(true, "cpu");
  cr_assert_eq(c->nlevels, 2);
  expect_level(&c->levels[0], &machine.level[0]);
  expect_level(&c->levels[1], &machine.level[1]);
  begin(true, 0, 3, (int[]){0, 1, 1}); /* what the second node's ranks measure is the same */
  cr_expect_eq(expect_cluster(true, "cpu")->nlevels, 2);
  begin(true, 0, 2, (int[]){0, 1}); /* each has a node for itself, and a slow link to the other */
  machine.level[1].bandwidth = 25e6, machine.level[1].sums = 20e6;
  c = expect_cluster(true, "cpu");
  cr_expect(c->nlevels == 2 && c->levels[0].size == 1 && machine.longest < .2);
  expect_level(&c->levels[1], &machine.level[1]);
}

/* Times are those of the slowest rank. */
Test(command, slower) {
  begin_two();
  machine.slower = 1.25;
  const ZlCluster *c = expect_cluster(true, "cpu");
  expect_level(&c->levels[0], &machine.level[0]);
}

/* A launch that seems to take longer than what is launched, as on a busy machine: still a cluster. */
Test(command, launches) {
  for (double tiny = 1e-5; tiny < 1; tiny *= 100) {
    begin_two();
    machine.tiny = tiny;
    expect_end(calibrate("here.zug", "cpu"), ZX_EXIT_DONE, "");
    read_cluster();
  }
}

/* Calls and collectives are queued, and the host cannot touch what they work on. */
Test(command, queued) {
  begin(false, 0, 2, (int[]){0, 0});
  const ZlCluster *c = expect_cluster(false, "gpu");
  cr_expect(c->sms == 132 && c->flops_bf16 == 1e15 && c->flops_tf32 == 5e14 && c->hbm == 3.3e12);
  cr_expect_eq(c->device_memory, 79000000000);
  NEAR(c->host_link, 0 + c->host_link);
  expect_level(&c->levels[0], &machine.level[0]);
}

/* A node's memory is shared by its ranks. */
Test(command, memory) {
  static const char text[] = "MemAvailable: 9000000 kB\n";
  begin_two();
  scratch_folder("system");
  scratch_folder("system/proc");
  scratch_write("system/proc/meminfo", text, sizeof text - 1);
  expect_cluster(true, "cpu");
  cr_expect_eq(read_cluster()->device_memory, 4608000000);
}

/* ---- how it ends --------------------------------------------------------------------------------------- */
/* Before anything is measured: a file of somebody else stays, and one that cannot be written is told. */
Test(command, files) {
  static const char other[] = "# My own cluster\n";
  size_t n;
  begin_two();
  scratch_write("here.zug", other, sizeof other - 1);
  expect_end(calibrate("here.zug", "cpu"), ZX_EXIT_MISTAKE, "exists and is not a cluster of zrun calibrate");
  char *left = scratch_read("here.zug", &n);
  cr_expect_str_eq(left, other);
  free(left);
  expect_end(calibrate("nowhere/here.zug", "cpu"), ZX_EXIT_MISTAKE, "cannot create nowhere/here.zug");
  cr_expect_eq(machine.runs, 0);
  begin_two(); /* its own it may replace */
  expect_end(calibrate("own.zug", "cpu"), ZX_EXIT_DONE, "");
  begin_two();
  expect_end(calibrate("own.zug", "cpu"), ZX_EXIT_DONE, "");
  begin(true, 1, 2, (int[]){0, 0}); /* the first rank writes it */
  expect_end(calibrate("there.zug", "cpu"), ZX_EXIT_DONE, "");
  cr_expect(access("there.zug", F_OK));
}

/* All of the memory or nothing; the device fails; and what fails on another rank ends this one, too. */
Test(command, failures) {
  for (int k = 1; k <= 5; k++) {
    begin(k % 2, 0, 2, (int[]){0, 0});
    machine.alloc_fails = k;
    expect_end(calibrate("here.zug", k % 2 ? "cpu" : "gpu"), ZX_EXIT_FAILED,
               "[rank 0] error: no memory here; less");
    cr_expect(access("here.zug", F_OK));
  }
  begin(false, 0, 2, (int[]){0, 0});
  machine.finish_fails = 100;
  expect_end(calibrate("here.zug", "gpu"), ZX_EXIT_FAILED, "the device has failed");
  cr_expect(access("here.zug", F_OK));
  for (int k = 2; k <= 6; k++) {
    begin_two();
    machine.others_fail = k;
    expect_end(calibrate("here.zug", "cpu"), ZX_EXIT_FAILED, "");
    cr_expect(access("here.zug", F_OK), "agreement %d", k);
  }
}

/* ---- what is made of times ----------------------------------------------------------------------------- */
Test(fits, medians) {
  cr_expect_eq(zx_median((double[]){5}, 1), 5);
  cr_expect_eq(zx_median((double[]){9, 1, 5}, 3), 5);
  cr_expect_eq(zx_median((double[]){9, 1, 1, 7, 2, 8}, 6), 4.5);
}

/* Of the least relative errors: where one of both would be less than nothing, the other alone. */
Test(fits, lines) {
  static const double rows[][3][3] = {{{1, 2, 8}, {5, 1, 13}, {4, 4, 20}}, /* 2 x + 3 y */
                                      {{1, 1, 1}, {2, 1, 3}, {4, 1, 9}},   /* grows faster than x */
                                      {{1, 1, 9}, {2, 1, 8}, {4, 1, 7}}};  /* falls */
  for (int i = 0; i < 3; i++) {
    ZxFit f = {.x = 0};
    double x, y, sum = 0, squares = 0;
    for (int k = 0; k < 3; k++) {
      const double *r = rows[i][k], of = i == 1 ? r[0] : r[1];
      zx_fit_row(&f, r[0], r[1], r[2]);
      sum += of / r[2], squares += of / r[2] * of / r[2];
    }
    zx_fit(&f, &x, &y);
    cr_expect_float_eq(x, i == 0 ? 2 : i == 1 ? sum / squares : 0, 1e-12);
    cr_expect_float_eq(y, i == 0 ? 3 : i == 1 ? 0 : sum / squares, 1e-12);
  }
}
