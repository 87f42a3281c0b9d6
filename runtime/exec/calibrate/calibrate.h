/* calibrate: measures the machine that the ranks are on, and says it as a cluster of the language, from which
 * plans are timed. What is measured is what times are made from (lang/cluster.def), as steps use it: all
 * ranks at once, through the device's and the communicator's own tables.
 *
 * kernels.c     products over shapes, attention, a pass over memory, the start of a kernel
 * links.c       collectives by size, inside nodes and between them, and beside computation
 * calibrate.c   the command: options, all of it in order, the file */
#ifndef ZUG_EXEC_CALIBRATE_H
#define ZUG_EXEC_CALIBRATE_H

#include "lang/lang.h"
#include "runtime/exec/device/device.h"

typedef struct {
  ZbArena *a;
  ZxComm *c;
  const ZxDeviceTable *d;
  ZkEnv *env;
  int ms; /* how long a measurement lasts */
} ZxMeasure;

/* A constant of the device; best, worst: of what. */
typedef struct {
  double f32, bf16; /* FLOP/s of the best shape */
  double products;  /* share of that, of the middle shape */
  double attention, attention_grad, stream, launch;
  const char *shapes; /* of products, for the comment */
} ZxKernelRates;
/* Collective. False: out of memory, or the device lacks a call. */
bool zx_measure_kernels(const ZxMeasure *m, ZxKernelRates *out, ZbErr *err);

typedef struct {
  int size; /* members; 1: nothing to measure */
  double link, sums, latency, start, ramp;
} ZxLinkRates;
/* Collective: those inside nodes, and those between them. */
void zx_measure_links(const ZxMeasure *m, ZxLinkRates level[2]);
/* Collective, over all ranks: how much longer computation takes beside a collective, as clusters say it. */
double zx_measure_steal(const ZxMeasure *m);

/* ---- for both ------------------------------------------------------------------------------------------ */
/* The least of some times, and of all ranks the most. */
double zx_measured(const ZxMeasure *m, double seconds);
/* A product of n x n x n, to compute with; freed by the arena of the measurement. */
typedef struct {
  ZkCall call;
  void *memory;
  size_t bytes;
} ZxProduct;
bool zx_product_new(const ZxMeasure *m, int64_t rows, int64_t columns, int64_t depth, ZkElem elem,
                    ZxProduct *w, ZbErr *err);
void zx_product_free(const ZxMeasure *m, ZxProduct *w);

/* The command `zrun calibrate`: the code to end with. Collective. */
int zx_calibrate(ZxComm *c, int argc, char **argv);
extern const char zx_calibrate_usage[];

#endif
