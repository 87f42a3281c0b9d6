/* calibrate: measures the machine that the ranks are on, and says it as a cluster of the language, from which
 * plans are timed. What is measured is what times are made from (lang/cluster.def), as steps use it: all
 * ranks at once, through the device's and the communicator's own tables.
 *
 * trials.c      kernels in turn, and the median of each
 * kernels.c     products over shapes, attention, passes over memory, optimizers, the start of a kernel
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
} ZxMeasure;

/* ---- trials.c ------------------------------------------------------------------------------------------ */
typedef struct {
  ZkCall call;     /* places and scratch are given when it runs */
  bool stays;      /* its operands are those of the call before */
  size_t window;   /* they go through so much memory; 0: through all there is */
  int before;      /* so many go before a sample, which finds what they left */
  int64_t updates; /* no call: AdamW, of so many elements */
  int calls;       /* of a sample */
  double seconds;  /* of a call: the median, of the slowest rank */
} ZxTrial;
enum { ZX_AREAS = 4 }; /* f32, bf16, results, what is updated */
typedef struct {
  const ZxMeasure *m;
  char *area[ZX_AREAS], *scratch;
  size_t bytes[ZX_AREAS], at[ZX_AREAS], scratch_bytes;
  ZxTrial *trial;
  uint32_t n;
} ZxTrials;
bool zx_trials_open(ZxTrials *t, const ZxMeasure *m, ZbErr *err); /* false: out of memory */
void zx_trials_close(ZxTrials *t);
uint32_t zx_trial_call(ZxTrials *t, const ZkCall *c, bool stays);
uint32_t zx_trial_update(ZxTrials *t, int64_t elems);
/* After all were asked for: their scratch. False: out of memory. */
bool zx_trials_ready(ZxTrials *t, ZbErr *err);
void zx_trials_run(ZxTrials *t); /* collective */
void zx_trial_run(ZxTrials *t, uint32_t i);
double zx_measured(const ZxMeasure *m, double mine); /* of all ranks the most */
double zx_median(double *x, int n);                  /* sorts them */
/* t = a x + b y over some rows, of least squares of t's relative errors, neither less than nothing. */
typedef struct {
  double xx, xy, yy, x, y;
} ZxFit;
void zx_fit_row(ZxFit *f, double x, double y, double t);
void zx_fit(const ZxFit *f, double *a, double *b);

/* ---- kernels.c ----------------------------------------------------------------------------------------- */
/* Constants of the device, as lang/cluster.def has them. */
typedef struct {
  double f32, bf16, products, tile_fill, attention, attention_f32, attention_grad, attention_fill;
  double stream, cache, cached, update, simple, special, launch;
  uint32_t beside; /* a trial to compute beside exchanges */
} ZxKernelRates;
/* Collective. False: out of memory. */
bool zx_measure_kernels(ZxTrials *t, ZxKernelRates *out, ZbErr *err);
ZkCall zx_product(ZkElem elem, int64_t rows, int64_t columns, int64_t depth);

/* ---- links.c ------------------------------------------------------------------------------------------- */
typedef struct {
  int size;                                                      /* members; 1: nothing to measure */
  double link, sums, latency, start, ramp, burst, steal, beside; /* burst: 0 where there is none */
  bool hidden; /* larger exchanges took no longer, for what else the machine does */
} ZxLinkRates;
/* Collective: those inside nodes, and those between them. `product`: a trial to compute beside them. */
void zx_measure_links(ZxTrials *t, uint32_t product, ZxLinkRates level[2]);

/* The command `zrun calibrate`: the code to end with. Collective. look_at_threads: is told how many a rank has, and
 * may be NULL. */
int zx_calibrate(ZxComm *c, int argc, char **argv, void (*look_at_threads)(ZxComm *, int threads));

#endif
