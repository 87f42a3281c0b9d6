/* What there is. */
#include "runtime/machine/machine.h"

#include <unistd.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>

static uint32_t count(hwloc_topology_t t, hwloc_obj_type_t type) {
  int n = hwloc_get_nbobjs_by_type(t, type);
  return n > 0 ? (uint32_t)n : 0;
}

static void look_at_caches(hwloc_topology_t t, ZmMachine *m) {
  static const hwloc_obj_type_t types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE};
  for (int i = 0; i < ZM_CACHES; i++) {
    hwloc_obj_t o = count(t, types[i]) ? hwloc_get_obj_by_type(t, types[i], 0) : NULL;
    if (!o) continue;
    int n = hwloc_get_nbobjs_inside_cpuset_by_type(t, o->cpuset, HWLOC_OBJ_CORE);
    m->cache[i] = (ZmCache){o->attr->cache.size, n > 0 ? (uint32_t)n : 1};
  }
}

static void look_at_devices(hwloc_topology_t t, ZbArena *a, ZmMachine *m) {
  for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));) {
    int type = (int)o->attr->osdev.type;
    bool gpu = type == HWLOC_OBJ_OSDEV_COPROC || type == HWLOC_OBJ_OSDEV_GPU;
    if (!gpu && type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) continue;
    ZmDevice d = {zb_strdup(a, o->name ? o->name : "?"), gpu};
    ZB_PUSH(a, m->devices, m->ndevices, d);
  }
}

static bool look(ZbArena *a, ZmMachine *m) {
  hwloc_topology_t t;
  if (hwloc_topology_init(&t)) return false;
  hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  bool ok = hwloc_topology_load(t) == 0;
  if (ok) {
    hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    *m = (ZmMachine){.hwloc = true,
                     .model = model ? zb_strdup(a, model) : NULL,
                     .packages = count(t, HWLOC_OBJ_PACKAGE),
                     .numa = count(t, HWLOC_OBJ_NUMANODE),
                     .cores = count(t, HWLOC_OBJ_CORE),
                     .threads = count(t, HWLOC_OBJ_PU),
                     .memory = hwloc_get_root_obj(t)->total_memory};
    look_at_caches(t, m);
    look_at_devices(t, a, m);
  }
  hwloc_topology_destroy(t);
  return ok;
}
#else
static bool look(ZbArena *a, ZmMachine *m) {
  (void)a, (void)m;
  return false;
}
#endif

const ZmMachine *zm_look(ZbArena *a) {
  ZmMachine *m = ZB_NEW(a, ZmMachine);
  bool seen = look(a, m);
  long n = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (!seen) *m = (ZmMachine){0};
  if (!m->threads) m->threads = n > 0 ? (uint32_t)n : 1;
  if (!m->cores) m->cores = m->threads;
  if (!m->memory && pages > 0 && page > 0) m->memory = (uint64_t)pages * (uint64_t)page;
  if (!m->numa) m->numa = 1;
  if (!m->packages) m->packages = 1;
  return m;
}
