/* A process kept on a part of the machine. */
#include "runtime/machine/machine.h"

int zm_numa_of(uint32_t numa, int64_t ranks, int64_t rank) {
  /* Alone it may use all; more than one to a core, they are better moved about. */
  if (numa < 2 || ranks < 2 || ranks % numa || rank < 0 || rank >= ranks) return -1;
  return (int)(rank / (ranks / numa));
}

void zm_show_turns(int threads, int64_t ranks, ZbCpus cpus, bool launched, ZbText *out) {
  int64_t each = (int64_t)cpus.n / ranks;
  if (threads < 2 || threads * ranks <= cpus.n) return;
  if (ranks > 1)
    zb_text_add(out, "note: %lld ranks with %d threads each (--threads) take turns on %u CPU%s",
                (long long)ranks, threads, cpus.n, cpus.n > 1 ? "s" : "");
  else
    zb_text_add(out, "note: %d threads (--threads) take turns on %u CPU%s, all that %s", threads, cpus.n,
                cpus.n > 1 ? "s" : "", launched ? "a rank is bound to" : "this process may use");
  zb_text_add(out, ": give --threads %lld", (long long)(each > 1 ? each : 1));
  if (launched && ranks == 1) zb_text_add(out, ", or ranks more CPUs, as by `mpirun --bind-to none`");
  zb_text_add(out, "\n");
}

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* Whether the process may use all that the machine has. */
static bool is_free(hwloc_topology_t t) {
  hwloc_bitmap_t now = hwloc_bitmap_alloc();
  bool all = now && hwloc_get_cpubind(t, now, HWLOC_CPUBIND_PROCESS) == 0 &&
             hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(t), now);
  hwloc_bitmap_free(now);
  return all;
}

uint32_t zm_bind(int64_t ranks, int64_t rank) {
  hwloc_topology_t t;
  uint32_t cores = 0;
  if (ranks < 2 || hwloc_topology_init(&t)) return 0;
  if (hwloc_topology_load(t) == 0 && hwloc_topology_is_thissystem(t) && is_free(t)) {
    int numa = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE), which;
    which = zm_numa_of(numa > 0 ? (uint32_t)numa : 1, ranks, rank);
    hwloc_obj_t o = which < 0 ? NULL : hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, (unsigned)which);
    int n = o ? hwloc_get_nbobjs_inside_cpuset_by_type(t, o->cpuset, HWLOC_OBJ_CORE) : 0;
    if (n > 0 && hwloc_set_cpubind(t, o->cpuset, HWLOC_CPUBIND_PROCESS) == 0) cores = (uint32_t)n;
  }
  hwloc_topology_destroy(t);
  return cores;
}
#else
uint32_t zm_bind(int64_t ranks, int64_t rank) {
  (void)ranks, (void)rank;
  return 0;
}
#endif
