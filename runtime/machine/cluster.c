/* A machine in words, and as a cluster. */
#include "runtime/machine/machine.h"

#include <stdlib.h>
#include <string.h>

static void add_devices(const ZmMachine *m, bool gpu, ZbText *out) {
  const char *before = gpu ? "; GPUs " : "; NICs ";
  for (uint32_t i = 0; i < m->ndevices; i++) {
    if (m->devices[i].gpu != gpu) continue;
    zb_text_add(out, "%s%s", before, m->devices[i].name);
    before = ", ";
  }
}

void zm_show(const ZmMachine *m, ZbText *out) {
  char bytes[24];
  zb_text_add(out, "machine %s%s%u package%s, %u NUMA node%s, %u core%s, %u thread%s, memory %s",
              m->model ? m->model : "", m->model ? ": " : "", m->packages, m->packages == 1 ? "" : "s",
              m->numa, m->numa == 1 ? "" : "s", m->cores, m->cores == 1 ? "" : "s", m->threads,
              m->threads == 1 ? "" : "s", zb_bytes(bytes, m->memory));
  const char *before = "; caches ";
  for (int i = 0; i < ZM_CACHES; i++) {
    if (!m->cache[i].bytes) continue;
    zb_text_add(out, "%sL%d %s", before, i + 1, zb_bytes(bytes, m->cache[i].bytes));
    before = ", ";
    if (m->cache[i].cores > 1) zb_text_add(out, " of %u cores", m->cache[i].cores);
  }
  add_devices(m, true, out);
  add_devices(m, false, out);
  zb_text_add(out, "%s\n", m->hwloc ? "" : " (built without hwloc, which would say more)");
}

/* Bytes a second: the best of a few copies, as ranks of a machine make. */
static double copy_rate(void) {
  enum { BYTES = 32 << 20, TIMES = 4 };
  char *from = malloc(BYTES), *to = malloc(BYTES);
  if (!from || !to) zb_out_of_memory(BYTES);
  memset(from, 1, BYTES);
  memset(to, 2, BYTES);
  double best = 1e-9;
  for (int i = 0; i < TIMES; i++) {
    double begin = zb_now();
    memcpy(to, from, BYTES);
    from[i] = to[BYTES - 1 - i]; /* read, so that it is done */
    double rate = BYTES / (zb_now() - begin + 1e-9);
    if (rate > best) best = rate;
  }
  free(from);
  free(to);
  return best;
}

/* Bytes a second of the fastest NIC that says its rate; else of Ethernet. */
static double nic_rate(const ZmMachine *m) {
  double best = 0;
  for (uint32_t i = 0; i < m->ndevices; i++) {
    char path[256], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", m->devices[i].name);
    FILE *f = m->devices[i].gpu ? NULL : fopen(path, "r");
    if (!f) continue;
    double rate = fgets(text, sizeof text, f) ? strtod(text, NULL) * 1e6 / 8 : 0; /* it says Mbit/s */
    if (rate > best) best = rate;
    fclose(f);
  }
  return best > 0 ? best : 125e6;
}

static void level(ZbText *out, const char *name, int64_t size, double rate) {
  zb_text_add(out, "  level %s %lld, link %.0f MB/s\n", name, (long long)size, rate < 1e6 ? 1 : rate / 1e6);
}

void zm_cluster(const ZmMachine *m, int64_t machines, int64_t ranks, ZbText *out) {
  double copies = copy_rate();
  zb_text_add(out, "cluster auto {\n  device memory %lld MB\n  host memory %lld MB\n",
              (long long)(m->memory / 1000000 / (uint64_t)ranks), (long long)(m->memory / 1000000));
  bool numa = zm_numa_of(m->numa, ranks, 0) >= 0;
  if (numa) level(out, "numa", ranks / m->numa, copies);
  level(out, "machine", numa ? m->numa : ranks, copies);
  if (machines > 1) level(out, "network", machines, nic_rate(m));
  zb_text_add(out, "}\n");
}
