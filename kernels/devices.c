#include "kernels/devices.h"

#include <string.h>

const ZkDevice zk_devices[] = {
    {"cuda", "CUDA", "zug-cuda.so", "libcuda.so.1"}, {.name = "cpu", .label = "CPU"}, {0}};

const ZkDevice *zk_device(const char *name) {
  for (const ZkDevice *d = zk_devices; d->name; d++)
    if (!strcmp(d->name, name)) return d;
  return NULL;
}

const ZkPlanning *zk_planning(const ZkDevice *d, ZbErr *err) {
  static const ZkPlanning cpu = {.scratch = zk_cpu_scratch};
  char symbol[64];
  if (!d->module) return &cpu;
  snprintf(symbol, sizeof symbol, "zk_planning_%s", d->name);
  void *module = zb_module(d->module, false, err);
  return module ? zb_symbol(module, symbol, err) : NULL;
}
