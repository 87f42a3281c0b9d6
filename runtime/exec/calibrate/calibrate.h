/* calibrate: measures the machine that the ranks are on, and writes it as a cluster of the language, from which
 * plans are timed. It measures what a cluster says (lang/cluster.def), as steps use it: all ranks at once,
 * through the tables of the device and of its communicator. It knows of plans only how their time is made.
 *
 * trials.c      kernels in turn, and the median of each
 * kernels.c     products over shapes, attention, passes over memory, the start of a kernel
 * links.c       collectives by size, inside nodes and between them, and what they take of computation
 * calibrate.c   the command: everything in order, the file */
#ifndef ZUG_EXEC_CALIBRATE_H
#define ZUG_EXEC_CALIBRATE_H

#include "lang/lang.h"
#include "runtime/exec/device/device.h"

typedef struct {
  ZbArena *a;
  ZxComm *c; /* of the host's memory */
  const ZxDeviceTable *d;
  ZkEnv *env;
  ZkRates sheet; /* the device by its data sheet; 0: not known */
  ZbErr *err;    /* the first thing that went wrong on this rank */
} ZxMeasure;

/* ---- trials.c ------------------------------------------------------------------------------------------ */
typedef struct {
  ZkCall call;    /* places and scratch are given when it runs */
  int calls;      /* of a sample */
  double seconds; /* of a call: the median, of the slowest rank */
} ZxTrial;
enum { ZX_F32_AREA, ZX_BF16_AREA, ZX_RESULTS, ZX_AREAS };
typedef struct {
  const ZxMeasure *m;
  int scale;     /* of operands, and of what they lie in */
  double upload; /* bytes a second from the host's memory */
  char *area[ZX_AREAS], *scratch;
  size_t bytes, at[ZX_AREAS], scratch_bytes; /* bytes: of each area */
  ZxTrial *trial;
  uint32_t n;
} ZxTrials;
/* All that return false have said in m->err why. Of trials that were not opened only zx_trials_close may be
 * called. */
bool zx_trials_open(ZxTrials *t, const ZxMeasure *m, int scale);
void zx_trials_close(ZxTrials *t);
uint32_t zx_trial_add(ZxTrials *t, const ZkCall *c);
bool zx_trials_ready(ZxTrials *t);                   /* after some were added: prepares them */
void zx_trials_run(ZxTrials *t);                     /* collective */
double zx_trial_try(ZxTrials *t, uint32_t i);        /* collective: the seconds of a call, roughly */
void zx_trial_run(ZxTrials *t, uint32_t i);          /* once; may only queue it */
void zx_await_device(const ZxMeasure *m);            /* waits for the device */
double zx_measured(const ZxMeasure *m, double mine); /* of all ranks the most */
double zx_median(double *x, int n);                  /* sorts them */
/* t = a x + b y over some rows, of least squares of t's relative errors, neither less than nothing. */
typedef struct {
  double xx, xy, yy, x, y;
} ZxFit;
void zx_fit_row(ZxFit *f, double x, double y, double t);
void zx_fit(const ZxFit *f, double *a, double *b);

/* ---- kernels.c ----------------------------------------------------------------------------------------- */
enum { ZX_STEP_ROWS = 4 }; /* 1, 8, 16 and 128 rows */
/* Constants of the device, as lang/cluster.def has them. */
typedef struct {
  double f32, bf16, products, tile_fill, attention, attention_grad, stream, launch;
  double weights[2][ZX_STEP_ROWS]; /* in f32, in bf16 */
  uint32_t product;                /* a trial to compute while exchanges go on */
} ZxKernelRates;
/* Collective. Opens the trials, too. */
bool zx_measure_kernels(const ZxMeasure *m, ZxTrials *t, ZxKernelRates *out);

/* ---- links.c ------------------------------------------------------------------------------------------- */
typedef struct {
  int size; /* members; 1: nothing to measure */
  double link, sums, latency, start, ramp;
} ZxLinkRates;
typedef struct {
  ZxLinkRates level[2]; /* inside nodes, and between them */
  double steal; /* how much longer computation takes while the inner one's ranks exchange, as a share */
} ZxLinks;
/* Collective. product: a trial to compute meanwhile. */
bool zx_measure_links(ZxTrials *t, uint32_t product, ZxLinks *out);

/* Measures, writes a cluster to `out`, and returns the exit code. Collective. look_at_threads: is told how many a rank
 * has, and may be NULL. */
int zx_calibrate(ZxComm *c, const ZxDeviceTable *d, int threads, const char *out,
                 void (*look_at_threads)(ZxComm *, int threads));

#endif
