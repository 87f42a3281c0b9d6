/* What a run says of its data: how much of the samples each file gives, and how often it has been gone
 * through. All of it follows from how many samples were taken so far, `taken`. For rank 0. */
#ifndef ZUG_EXEC_EPOCHS_H
#define ZUG_EXEC_EPOCHS_H

#include "runtime/exec/data/data.h"

typedef struct {
  const ZxMix *mix;
  int64_t values, batch; /* of a sample; samples of a step */
  double *so_far;        /* what zx_epochs_so_far returns */
  uint32_t n;            /* files; 0: no data */
} ZxEpochs;
ZxEpochs zx_epochs_new(ZbArena *a, const ZxMix *m, int64_t values, int64_t batch); /* m may be NULL */
/* Lines for the start of a run, of which `last` is the last step. */
void zx_epochs_begin(const ZxEpochs *e, int64_t last, uint64_t taken, ZbText *out);
/* How often each file has been gone through; valid until the next call. */
const double *zx_epochs_so_far(ZxEpochs *e, uint64_t taken);
/* A line for each file of which another epoch began in this step, which has taken the samples from `before`
 * on; none for those that are shorter than a step's part. */
void zx_epochs_note(const ZxEpochs *e, int64_t step, uint64_t before, uint64_t taken, ZbText *out);
/* "epochs: web.bin 1.29, code.bin 0.30" and a newline. */
void zx_epochs_end(ZxEpochs *e, uint64_t taken, ZbText *out);

#endif
