/* Constants of links, found again in what exchanges take. */
#include "graph/graph.h"
#include "runtime/plan/time/time.h"
#include "tests/unit/exec/calibrate/machine.h"

#include <criterion/criterion.h>
#include <math.h>

#define NEAR(x, y, share)                                                                                    \
  cr_expect_float_eq((x), (y), (share)*fabs((double)(y)), "%s: %.9g instead of %.9g", #x, (double)(x),       \
                     (double)(y))

enum { ROWS = 64, SIDE = 128 };
static double one_product(void) { return zp_product_seconds(&machine.is, ZK_F32, ROWS, SIDE, SIDE, 1, 0); }

static void measure(ZxLinkRates level[2]) {
  enum { WINDOW = 1 << 20 };
  ZxMeasure m = machine_measure();
  ZxTrials t = {.m = &m, .scratch_bytes = 64}; /* as zx_trials_open, but for little memory */
  ZkCall c = zx_product(ZK_F32, ROWS, SIDE, SIDE);
  ZbErr err = {0};
  level[0] = level[1] = (ZxLinkRates){0};
  for (int i = 0; i < ZX_AREAS; i++) t.area[i] = m.d->alloc(m.env, t.bytes[i] = WINDOW, &err);
  uint32_t product = zx_trial_call(&t, &c, false);
  t.trial[product].window = WINDOW;
  cr_assert(zx_trials_ready(&t, &err));
  zx_measure_links(&t, product, level);
  zx_trials_close(&t);
  zb_arena_free(m.a);
}

/* The clock has nanoseconds, and what is shared with computation is looked at between calls, of which there
 * are a hundred at least. */
static void expect_level(const ZxLinkRates *r, int i) {
  const ZlLevel *l = &machine.level[i];
  cr_expect_eq(r->size, l->size);
  NEAR(r->link, l->bandwidth, 1e-5);
  NEAR(r->sums, l->sums, l->burst > 0 ? 1e-3 : 1e-5); /* the first of several finds what a gather left */
  NEAR(r->latency, l->latency, 1e-5);
  NEAR(r->start, l->start, 1e-5);
  NEAR(r->ramp, l->ramp, 1e-5);
  NEAR(r->burst, l->burst, 1e-5);
  NEAR(r->steal, l->steal, 1e-2);
  NEAR(r->beside, l->beside, 1e-2);
}

static void expect_counts(const Exchanged *e, uint32_t n) {
  cr_expect_eq(machine.nexchanged, n);
  for (uint32_t i = 0; i < n; i++) {
    int count = 0;
    for (uint32_t k = 0; k < machine.nexchanged; k++) {
      const Exchanged *x = &machine.exchanged[k];
      if (x->group == e[i].group && x->op == e[i].op && x->bytes == e[i].bytes) count = x->count;
    }
    cr_expect_eq(count, e[i].count, "%d exchanges of %zu bytes instead of %d", count, e[i].bytes, e[i].count);
  }
}

enum { GATHER = ZG_OP_ALL_GATHER, SUMS = ZG_OP_ALL_REDUCE, KB = 1024, MB = 1024 * KB };

/* Ten times each, of which the first sets up: small ones 20 at once, others two. Two more of 1 MB say how
 * large the largest may be. Nine sums go alone, nine beside. */
Test(links, node) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 0});
  measure(level);
  expect_level(&level[0], 0);
  cr_expect_eq(level[1].size, 1);
  static const Exchanged counts[] = {{1, GATHER, KB, 200},       {1, SUMS, KB, 200},
                                     {1, GATHER, 256 * KB, 200}, {1, SUMS, 256 * KB, 200},
                                     {1, GATHER, MB, 20 + 2},    {1, SUMS, MB, 20},
                                     {1, GATHER, 4 * MB, 20},    {1, SUMS, 4 * MB, 20},
                                     {1, GATHER, 16 * MB, 20},   {1, SUMS, 16 * MB, 20 + 18}};
  expect_counts(counts, 10);
  cr_expect_eq(machine.messages, 9 * 100);
  cr_expect_eq(machine.naps, 0);
  /* Ranks meet before each message's round, exchange or several, and whatever goes beside. */
  cr_expect_eq(machine.barriers, 9 + 2 + 10 * 10 + 4 * 9);
  /* Of four products, and of twice as many as the sums take, alone and beside them. */
  const ZlLevel *l = &machine.level[0];
  double x = 16 * MB / l->sums, sum = l->start + 2 * l->latency + x + 2 * sqrt(l->ramp * x);
  uint64_t calls = (uint64_t)(1 + 2 * sum / one_product());
  cr_expect_eq(machine.runs, 9 * 4 + 2 * 9 * calls);
}

Test(links, nodes) {
  ZxLinkRates level[2];
  machine_ranks(0, 4, (int[]){0, 1, 2, 3});
  measure(level);
  cr_expect_eq(level[0].size, 1);
  expect_level(&level[1], 1);
}

/* Sizes are whole words of each rank. */
Test(links, three) {
  ZxLinkRates level[2];
  machine_ranks(1, 3, (int[]){0, 0, 0});
  measure(level);
  expect_level(&level[0], 0);
}

Test(links, noise) {
  ZxLinkRates level[2];
  machine_ranks(0, 4, (int[]){0, 0, 2, 2});
  machine.noisy = true;
  measure(level);
  expect_level(&level[0], 0);
  expect_level(&level[1], 1);
}

/* What the slowest rank takes. */
Test(links, slower) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 0});
  machine.slower = 1.25;
  measure(level);
  ZlLevel *l = &machine.level[0];
  l->bandwidth /= 1.25, l->sums /= 1.25;
  l->latency *= 1.25, l->start *= 1.25, l->ramp *= 1.25;
  expect_level(&level[0], 0);
}

/* A token bucket, as links of rented machines have: 10 ms of the link after a pause. Exchanges are smaller,
 * so that none takes more than 50 ms, and others empty the bucket before. */
static void make_slow(double burst) {
  machine.level[1].bandwidth = 25e6;
  machine.level[1].sums = 20e6;
  machine.level[1].burst = burst;
}

Test(links, bucket) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 1});
  make_slow(250e3);
  measure(level);
  expect_level(&level[1], 1);
  /* Pairs behind nine pauses say whether there is a bucket. */
  static const Exchanged counts[] = {
      {2, GATHER, KB, 200},           {2, SUMS, KB, 200},       {2, GATHER, 16 * KB, 200},
      {2, SUMS, 16 * KB, 200},        {2, GATHER, 64 * KB, 80}, {2, SUMS, 64 * KB, 80},
      {2, GATHER, 256 * KB, 40 + 18}, {2, SUMS, 256 * KB, 40},  {2, GATHER, MB, 20 + 2 + 18 + 80 + 36},
      {2, SUMS, MB, 20 + 18}}; /* 80 and 36 empty it */
  expect_counts(counts, 10);
  cr_expect_eq(machine.naps, 18 + 20);
}

Test(links, buckets) {
  static const double found[][2] = {{0, 0}, {2e3, 0}, {20e3, 20e3}, {100e3, 100e3}, {450e3, 450e3}};
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
    ZxLinkRates level[2];
    machine_ranks(1, 4, (int[]){0, 1, 2, 3});
    make_slow(found[i][0]);
    measure(level);
    NEAR(level[1].burst, found[i][1], 1e-5);
  }
}

/* All ranks meet at as many barriers, and come to the same constants: what rank `from` got of each maximum is
 * what rank `to` is given of others. */
static void expect_alike(int n, const int *nodes, int from, int to, double burst) {
  static Machine first;
  ZxLinkRates level[2], other[2];
  machine_ranks(from, n, nodes);
  if (burst > 0) make_slow(burst);
  measure(level);
  first = machine;
  machine_ranks(to, n, nodes);
  if (burst > 0) make_slow(burst);
  machine.replays = first.reduced;
  measure(other);
  cr_expect_eq(machine.nreduced, first.nreduced);
  cr_expect_eq(machine.barriers, first.barriers);
  cr_expect_eq(machine.naps, first.naps);
  for (int i = 0; i < 2; i++) {
    cr_expect_eq(other[i].size, level[i].size);
#define ALIKE(field) NEAR(other[i].field, level[i].field, 1e-5);
    ALIKE(link) ALIKE(sums) ALIKE(latency) ALIKE(start) ALIKE(ramp) ALIKE(burst) ALIKE(steal) ALIKE(beside)
  }
}

Test(links, ranks) {
  static const int nodes[] = {0, 0, 0, 3, 3, 3, 6, 6};
  for (int to = 1; to < 8; to++) expect_alike(8, nodes, 0, to, to % 2 ? 0 : 250e3);
}

/* The slowest node is the largest, whose first rank also leads the pair of nodes. */
Test(links, uneven) {
  static const int nodes[] = {0, 1, 1, 1}, other[] = {0, 0, 0, 3};
  for (int to = 0; to < 4; to++) {
    expect_alike(4, nodes, 1, to, 0);
    cr_expect_eq(machine.reduced[0].value, 3);
    expect_alike(4, other, 0, to, 0);
    cr_expect_eq(machine.reduced[0].value, 3);
  }
}

/* What is none of these is as little as a cluster can say. */
Test(links, limits) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 0});
  ZlLevel *l = &machine.level[0];
  l->latency = l->start = l->ramp = l->steal = 0, l->beside = 1;
  measure(level);
  NEAR(level[0].link, l->bandwidth, 1e-3); /* 30 ns of what takes 26 us */
  NEAR(level[0].latency, 1e-8, 1e-5);
  NEAR(level[0].start, 1e-8, 1e-5);
  NEAR(level[0].ramp, 1e-9, 1e-3);
  NEAR(level[0].steal, .01 / .99, 1e-5);
  NEAR(level[0].beside, 1, 1e-2);
  machine_ranks(0, 2, (int[]){0, 0});
  l->steal = 50, l->beside = .01;
  measure(level);
  NEAR(level[0].steal, .95 / .05, 1e-5);
  NEAR(level[0].beside, .05, 1e-5);
}

/* Which gather it is behind a pause, from 1. 0: another exchange, or there was no pause yet. */
static int behind_pause(int op) {
  static uint64_t naps;
  static int n;
  if (machine.naps != naps) naps = machine.naps, n = 0;
  return op == GATHER && naps ? ++n : 0;
}

/* The first exchange behind a pause is late in so many of nine rounds, the next one in so many others. */
static struct {
  int first, next;
  double by; /* seconds */
} late_rounds;
static double late(int op, size_t bytes) {
  (void)bytes;
  int n = behind_pause(op), round = (int)(machine.naps % 9);
  bool is_late = (n == 1 && round < late_rounds.first) || (n == 2 && 8 - round < late_rounds.next);
  return is_late ? late_rounds.by : 0;
}

static double burst_in_traffic(int first, int next, double by, double burst) {
  ZxLinkRates level[2];
  late_rounds.by = by;
  late_rounds.first = first;
  late_rounds.next = next;
  machine_ranks(0, 2, (int[]){0, 1});
  if (burst > 0) make_slow(burst);
  machine.more = late;
  measure(level);
  return level[1].burst;
}

/* Other traffic in up to six rounds of nine makes no bucket of a link without one. In up to two it hides
 * none: what delays a first exchange lets the bucket fill for the next one. */
Test(links, traffic) {
  for (int n = 0; n < 10; n++) {
    double found = burst_in_traffic(0, n, 5e-3, 0);
    cr_expect_eq(found > 0, n >= 7, "%g with %d late rounds", found, n);
    cr_expect_eq(burst_in_traffic(n, 0, 5e-3, 0), 0);
  }
  for (int n = 0; n < 3; n++) NEAR(burst_in_traffic(n, n, 5e-3, 250e3), 250e3, 1e-5);
  cr_expect_eq(burst_in_traffic(3, 2, 5e-3, 250e3), 0);
  cr_expect_eq(burst_in_traffic(0, 9, 90e-6, 0), 0); /* of a quarter, which takes 3.6 ms */
  cr_expect_gt(burst_in_traffic(0, 9, 130e-6, 0), 0);
  /* It is what the soonest find; the median of all is a tenth less here, where the next ones are as late. */
  NEAR(burst_in_traffic(6, 9, 1e-3, 250e3), 250e3, .04);
}

/* A bucket that has enough for two quarters does not show in them, whatever makes the second one later.
 * Here it does not show in the large ones, either: half of them find it empty. */
static double late_quarter(int op, size_t bytes) {
  int n = behind_pause(op);
  if (machine.naps > 18) return 0;
  if (bytes == 256 * KB) return n == 2 ? 50e-6 : 0;
  return bytes == MB && n == 1 && machine.naps % 2 ? 13e-3 : 0;
}
Test(links, two_in_a_bucket) {
  ZxLinkRates level[2];
  machine_ranks(0, 2, (int[]){0, 1});
  make_slow(300e3);
  machine.more = late_quarter;
  measure(level);
  cr_expect_eq(level[1].burst, 0, "%g", level[1].burst);
}

/* A machine on which every exchange takes 5 ms, and little more for more bytes. The largest is of 4 MB
 * then, and what it took is all that is known. */
static double slope[2];      /* of gathers and sums: by how many times that 4 MB take longer */
static double small, second; /* seconds more of 1 KB; of the second exchange behind a pause */
static double hides(int op, size_t bytes) {
  if (op != GATHER && op != SUMS) return 0;
  double x = (double)bytes / (4 * MB) * slope[op == SUMS];
  bool is_second = behind_pause(op) == 2 && machine.naps <= 18;
  return 5e-3 * (1 + x) + (bytes == KB ? small : 0) + (is_second ? second : 0);
}
static void measure_hidden(int of, double gather, double sums, ZxLinkRates level[2]) {
  machine_ranks(0, 2, of ? (int[]){0, 1} : (int[]){0, 0});
  ZlLevel *l = &machine.level[of];
  l->bandwidth = l->sums = 1e15, l->ramp = l->latency = l->start = 1e-9;
  slope[0] = gather, slope[1] = sums;
  machine.more = hides;
  measure(level);
}

Test(links, hidden) {
  static const double slopes[] = {-.1, 0, .5, .9, 5};
  ZxLinkRates level[2];
  for (int i = 0; i < 5; i++) {
    double x = slopes[i];
    measure_hidden(0, x, x, level);
    cr_expect_eq(level[0].hidden, x < 1, "%g", x);
    if (x < 1) NEAR(level[0].link, 2 * MB / (5e-3 * (1 + x)), 1e-3);
    if (x < 1) NEAR(level[0].sums, 4 * MB / (5e-3 * (1 + x)), 1e-3);
    NEAR(level[0].start, 1e-8, 1e-5); /* a message takes next to nothing */
    NEAR(level[0].latency, 2.5e-3, 1e-2);
  }
  measure_hidden(0, 0, 5, level); /* one of both is enough */
  cr_expect(level[0].hidden);
  measure_hidden(0, 5, 0, level);
  cr_expect(level[0].hidden);
}

/* Nothing is known of a bucket then, either. */
Test(links, hidden_bucket) {
  ZxLinkRates level[2];
  second = 1e-3;
  measure_hidden(1, 0, 0, level);
  cr_expect(level[1].hidden && level[1].burst == 0, "%g", level[1].burst);
}

/* What is fixed is measured with small ones. Where these take longer than larger ones rates are near
 * enough. */
Test(links, slow_small_ones) {
  ZxLinkRates level[2];
  small = .6e-3;
  measure_hidden(0, 5, 5, level);
  cr_expect(!level[0].hidden && level[0].sums > 80e6 && level[0].sums < 350e6, "%g instead of %g",
            level[0].sums, 4 * MB / 25e-3);
}

/* The largest takes no longer than 50 ms, by what 1 MB takes, unless it is as small as a 64th. */
Test(links, sizes) {
  static const struct {
    double ms;
    size_t most;
  } sizes[] = {{3.1, 16 * MB}, {3.2, 4 * MB},  {12.4, 4 * MB}, {12.6, MB},
               {49, MB},       {51, 256 * KB}, {250, 256 * KB}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    ZxLinkRates level[2];
    size_t most = 0;
    machine_ranks(0, 2, (int[]){0, 1});
    ZlLevel *l = &machine.level[1];
    l->ramp = 0;
    l->bandwidth = l->sums = MB / 2 / (1e-3 * sizes[i].ms - l->start - l->latency);
    measure(level);
    NEAR(level[1].link, l->bandwidth, 1e-5);
    for (uint32_t k = 0; k < machine.nexchanged; k++)
      if (machine.exchanged[k].op == SUMS && machine.exchanged[k].bytes > most)
        most = machine.exchanged[k].bytes;
    cr_expect_eq(most, sizes[i].most, "%zu bytes of %g ms", most, sizes[i].ms);
  }
}

/* All sizes but the smallest are what a line is laid through, by their relative errors. */
static size_t odd_bytes;
static double odd(int op, size_t bytes) { return op == GATHER && bytes == odd_bytes ? 20e-6 : 0; }
Test(links, line) {
  for (odd_bytes = KB; odd_bytes <= 16 * MB; odd_bytes = odd_bytes == KB ? 256 * KB : 4 * odd_bytes) {
    ZxLinkRates level[2];
    ZxFit f = {.x = 0};
    double a, b;
    machine_ranks(0, 2, (int[]){0, 0});
    machine.more = odd;
    const ZlLevel *l = &machine.level[0];
    measure(level);
    for (size_t bytes = 256 * KB; bytes <= 16 * MB; bytes *= 4) {
      double moved = (double)bytes / 2, x = moved / l->bandwidth;
      zx_fit_row(&f, moved, 2 * sqrt(moved), x + 2 * sqrt(l->ramp * x) + odd(GATHER, bytes));
    }
    zx_fit(&f, &a, &b);
    NEAR(level[0].link, 1 / a, 1e-5);
    NEAR(level[0].ramp, b * b / a, 1e-5);
  }
}
