/* What a machine is in words and as a cluster, for machines of files and of our own; and which part a rank
 * gets. */
#define _GNU_SOURCE
#include "runtime/machine/machine.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ZbArena *a;
static ZbText text;
static void start(void) { a = zb_arena_new(); }
static void stop(void) {
  zb_text_free(&text);
  zb_arena_free(a);
}
TestSuite(machine, .init = start, .fini = stop);

/* Consecutive ranks share a node, as many each; otherwise none is chosen. */
Test(machine, nodes_of_ranks) {
  static const struct {
    int numa, ranks, node[8];
  } cases[] = {{2, 2, {0, 1}},       {2, 4, {0, 0, 1, 1}},     {4, 8, {0, 0, 1, 1, 2, 2, 3, 3}},
               {2, 3, {-1, -1, -1}}, {1, 4, {-1, -1, -1, -1}}, {0, 2, {-1, -1}},
               {2, 1, {-1}},         {4, 2, {-1, -1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int r = 0; r < cases[i].ranks; r++)
      cr_expect_eq(zm_numa_of((uint32_t)cases[i].numa, cases[i].ranks, r), cases[i].node[r],
                   "case %zu, rank %d", i, r);
    cr_expect_eq(zm_numa_of((uint32_t)cases[i].numa, cases[i].ranks, cases[i].ranks), -1);
    cr_expect_eq(zm_numa_of((uint32_t)cases[i].numa, cases[i].ranks, -1), -1);
  }
}

/* Said where threads have no CPU each, with how many they have and how many would do. */
Test(machine, threads_that_take_turns) {
  static const struct {
    int threads, ranks;
    uint32_t cpus;
    bool launched;
    const char *note;
  } cases[] = {
      {1, 8, 2, true, ""}, /* ranks on a laptop are meant */
      {4, 1, 4, true, ""},
      {2, 2, 4, true, ""},
      {4, 1, 1, true,
       "note: 4 threads (--threads) take turns on 1 CPU, all that a rank is bound to: give --threads 1, or "
       "ranks "
       "more CPUs, as by `mpirun --bind-to none`\n"},
      {4, 1, 3, false,
       "note: 4 threads (--threads) take turns on 3 CPUs, all that this process may use: give --threads 3\n"},
      {4, 2, 4, true,
       "note: 2 ranks with 4 threads each (--threads) take turns on 4 CPUs: give --threads 2\n"},
      {2, 8, 2, true,
       "note: 8 ranks with 2 threads each (--threads) take turns on 2 CPUs: give --threads 1\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text.len = 0;
    zm_show_turns(cases[i].threads, cases[i].ranks, (ZbCpus){cases[i].cpus, 7}, cases[i].launched, &text);
    cr_expect_str_eq(text.len ? text.s : "", cases[i].note, "%s", text.s);
  }
}

static void shows(const ZmMachine *m, const char *want) {
  text.len = 0;
  zm_show(m, &text);
  cr_expect_str_eq(text.s, want, "%s", text.s);
}

Test(machine, words) {
  ZmDevice d[] = {{"eth0", false}, {"cuda0", true}, {"mlx5_0", false}, {"cuda1", true}};
  ZmMachine one = {.packages = 1, .numa = 1, .cores = 1, .threads = 1, .memory = 2000000000},
            two = {.hwloc = true,
                   .model = "CPU 7",
                   .packages = 2,
                   .numa = 4,
                   .cores = 16,
                   .threads = 32,
                   .memory = 64000000000,
                   .cache = {{32768, 1}, {0, 0}, {16777216, 8}},
                   .devices = d,
                   .ndevices = 4};
  shows(
      &one,
      "machine 1 package, 1 NUMA node, 1 core, 1 thread, memory 2.0 GB (built without hwloc, which would say "
      "more)\n");
  shows(
      &two,
      "machine CPU 7: 2 packages, 4 NUMA nodes, 16 cores, 32 threads, memory 64.0 GB; caches L1 32.8 kB, L3 "
      "16.8 MB of 8 cores; GPUs cuda0, cuda1; NICs eth0, mlx5_0\n");
}

/* Levels within the machine have the rate at which this machine copies memory: between 10 MB/s and 10
 * TB/s. */
static void is_cluster(const ZmMachine *m, int64_t machines, int64_t ranks, const char *before,
                       const char *after) {
  text.len = 0;
  zm_cluster(m, machines, ranks, &text);
  const char *at = strstr(text.s, "link ");
  double rate = at ? strtod(at + 5, NULL) : 0;
  cr_expect(rate > 10 && rate < 1e7, "%s", text.s);
  char link[32];
  snprintf(link, sizeof link, ", link %.0f MB/s\n", rate);
  const char *numa = m->numa > 1 && ranks > 1 && ranks % m->numa == 0 ? link : "";
  cr_expect_str_eq(text.s,
                   zb_printf(a, "cluster auto {\n%s%s%s%s}\n", before, *numa ? numa : link,
                             *numa ? zb_printf(a, "  level machine %u%s", m->numa, link) : "", after),
                   "%s", text.s);
}

Test(machine, clusters) {
  ZmMachine m = {.numa = 1, .memory = 8000000000};
  is_cluster(&m, 1, 4, "  device memory 2000 MB\n  host memory 8000 MB\n  level machine 4", "");
  is_cluster(&m, 1, 1, "  device memory 8000 MB\n  host memory 8000 MB\n  level machine 1", "");
  is_cluster(&m, 3, 2, "  device memory 4000 MB\n  host memory 8000 MB\n  level machine 2",
             "  level network 3, link 125 MB/s\n");
  m.numa = 2;
  is_cluster(&m, 1, 8, "  device memory 1000 MB\n  host memory 8000 MB\n  level numa 4", "");
  is_cluster(&m, 1, 5, "  device memory 1600 MB\n  host memory 8000 MB\n  level machine 5", "");
}

/* Of NICs the fastest counts that says what it carries; where the names lead, files stand for those of
 * /sys. */
Test(machine, networks) {
  char dir[] = "/tmp/zug-nic-XXXXXX";
  static const char *const mbit[] = {"25000\n", "100000\n", "-1\n", "400000\n", "4\n"};
  ZmDevice d[6] = {{"no_such_nic", false}};
  cr_assert(mkdtemp(dir));
  for (int i = 0; i < 5; i++) {
    char *path = zb_printf(a, "%s/%d", dir, i);
    cr_assert(mkdir(path, 0700) == 0);
    FILE *f = fopen(zb_printf(a, "%s/speed", path), "w");
    cr_assert(f && fputs(mbit[i], f) >= 0 && fclose(f) == 0);
    d[i + 1] = (ZmDevice){zb_printf(a, "../../..%s", path), i == 3}; /* a GPU is no NIC */
  }
  ZmMachine m = {.numa = 1, .memory = 8000000000, .devices = d, .ndevices = 5};
  is_cluster(&m, 2, 1, "  device memory 8000 MB\n  host memory 8000 MB\n  level machine 1",
             "  level network 2, link 12500 MB/s\n");
  ZmMachine slow = {.numa = 1, .memory = 8000000000, .devices = d + 5, .ndevices = 1}; /* half a MB/s */
  is_cluster(&slow, 2, 1, "  device memory 8000 MB\n  host memory 8000 MB\n  level machine 1",
             "  level network 2, link 1 MB/s\n");
  for (int i = 0; i < 5; i++) {
    unlink(zb_printf(a, "%s/%d/speed", dir, i));
    rmdir(zb_printf(a, "%s/%d", dir, i));
  }
  rmdir(dir);
}

#ifdef HAVE_HWLOC
Test(machine, of_a_file) {
  setenv("HWLOC_XMLFILE", ZUG_SRC "/tests/unit/machine/machine.xml", 1);
  shows(zm_look(a),
        "machine Some CPU: 1 package, 1 NUMA node, 2 cores, 4 threads, memory 2.0 GB; caches L2 1.0 MB; "
        "GPUs cuda0, card0; NICs eth7, mlx5_0\n");
  cr_expect_eq(zm_bind(2, 0), 0); /* another machine than this one */
}

/* A file that does not say how much memory there is: then it is this machine's. */
Test(machine, memory_that_nobody_says) {
  char path[] = "/tmp/zug-machine-XXXXXX";
  size_t n;
  ZbErr err;
  char *xml = zb_read_file(a, ZUG_SRC "/tests/unit/machine/machine.xml", 1 << 20, &n, &err), *says = NULL;
  cr_assert(xml && (says = strstr(xml, "local_memory=\"2000000000\"")));
  memset(says, ' ', strlen("local_memory=\"2000000000\""));
  int fd = mkstemp(path);
  cr_assert(fd >= 0 && write(fd, xml, n) == (ssize_t)n && close(fd) == 0);
  setenv("HWLOC_XMLFILE", path, 1);
  cr_expect_eq(zm_look(a)->memory, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
  unlink(path);
}

Test(machine, of_a_formula) {
  setenv("HWLOC_SYNTHETIC", "package:2 numa:2 l3:1 core:4 pu:2", 1);
  const ZmMachine *m = zm_look(a);
  cr_expect(m->hwloc && !m->model && m->packages == 2 && m->numa == 4 && m->cores == 16 && m->threads == 32);
  cr_expect(!m->cache[0].bytes && !m->cache[1].bytes && m->cache[2].bytes > 0 && m->cache[2].cores == 4);
  cr_expect_eq(m->ndevices, 0);
  setenv("HWLOC_SYNTHETIC", "core:3 pu:1", 1); /* no package, no node but the one that all have */
  m = zm_look(a);
  cr_expect(m->packages == 1 && m->numa == 1 && m->cores == 3 && m->threads == 3);
  setenv("HWLOC_SYNTHETIC", "l1:2 core:3 pu:1", 1);
  m = zm_look(a);
  cr_expect(m->cache[0].bytes > 0 && m->cache[0].cores == 3 && !m->cache[1].bytes);
  setenv("HWLOC_SYNTHETIC", "l3:1 core:2 pu:1", 1); /* one for all */
  m = zm_look(a);
  cr_expect(m->cache[2].bytes > 0 && m->cache[2].cores == 2);
  setenv("HWLOC_SYNTHETIC", "l2:2 pu:2", 1); /* no cores */
  m = zm_look(a);
  cr_expect(m->cores == 4 && m->threads == 4 && m->cache[1].cores == 1);
}

/* As if this machine had a node for each of its first two cores. */
static void two_nodes(void) {
  cpu_set_t all, now;
  cr_assert(sched_getaffinity(0, sizeof all, &all) == 0);
  if (!CPU_ISSET(0, &all) || !CPU_ISSET(1, &all)) cr_skip_test("two cores are needed");
  setenv("HWLOC_SYNTHETIC", "numa:2 core:1 pu:1", 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);
  CPU_ZERO(&now);
  CPU_SET(0, &now), CPU_SET(1, &now);
  cr_assert(sched_setaffinity(0, sizeof now, &now) == 0);
}

Test(machine, bound_to_the_first) {
  cpu_set_t now;
  two_nodes();
  cr_expect_eq(zm_bind(2, 0), 1);
  cr_expect(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 && CPU_ISSET(0, &now));
}

Test(machine, bound_once) {
  cpu_set_t now;
  two_nodes();
  cr_expect_eq(zm_bind(1, 0), 0);
  cr_expect_eq(zm_bind(3, 0), 0);
  cr_expect(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 2);
  cr_expect_eq(zm_bind(2, 1), 1);
  cr_expect(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 && CPU_ISSET(1, &now));
  cr_expect_eq(zm_bind(2, 0), 0); /* whoever is bound stays there */
}
#endif
