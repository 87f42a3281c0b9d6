#include "runtime/exec/epochs.h"

#include <inttypes.h>

ZxEpochs zx_epochs_new(ZbArena *a, const ZxMix *m, int64_t values, int64_t batch) {
  uint32_t n = m && values > 0 ? zx_mix_files(m) : 0;
  return (ZxEpochs){m, values, batch, ZB_NEWN(a, double, n), n};
}

static uint64_t samples(const ZxEpochs *e, uint32_t i) {
  return zx_data_samples(zx_mix_file(e->mix, i), e->values);
}

static double times(const ZxEpochs *e, uint32_t i, uint64_t taken) {
  return (double)zx_mix_before(e->mix, i, taken) / (double)samples(e, i);
}

const double *zx_epochs_so_far(ZxEpochs *e, uint64_t taken) {
  for (uint32_t i = 0; i < e->n; i++) e->so_far[i] = times(e, i, taken);
  return e->so_far;
}

/* A step takes one sample more or less than its share, as turns fall. */
static bool is_short(const ZxEpochs *e, uint32_t i) {
  double share = (double)zx_mix_share(e->mix, i) / zx_mix_period(e->mix);
  return (double)samples(e, i) <= share * (double)e->batch;
}

/* One tokenizer gives the same limit, or nearly: a limit that was not told is that of the ids there are. */
static void tell_limits(const ZxEpochs *e, ZbText *out) {
  for (uint32_t i = 1; i < e->n; i++) {
    const ZxDataInfo *one = zx_data_info(zx_mix_file(e->mix, 0)),
                     *other = zx_data_info(zx_mix_file(e->mix, i));
    for (uint32_t k = 0; k < one->nfield; k++) {
      uint64_t a = one->field[k].limit, b = other->field[k].limit;
      if (a == b) continue;
      zb_text_add(out,
                  "note: ids of '%s' are below %" PRIu64 " in %s, below %" PRIu64
                  " in %s: are they of one vocabulary?\n",
                  one->field[k].name, a, zb_show(zx_mix_path(e->mix, 0)), b, zb_show(zx_mix_path(e->mix, i)));
      return;
    }
  }
}

/* Windows of whole documents are never full. */
static void tell_windows(const ZxEpochs *e, ZbText *out) {
  for (uint32_t i = 0; i < e->n; i++) {
    const ZxData *d = zx_mix_file(e->mix, i);
    ZxFilled x = zx_data_filled(d);
    if (!x.windows) continue;
    bool shared = zx_data_info(d)->windows == ZX_WINDOWS_FIT, one = x.windows == x.documents;
    zb_text_add(
        out, "data: %s: %" PRIu64 " documents in %" PRIu64 " windows of %" PRId64 ", %.1f %% padding%s\n",
        zb_show(zx_mix_path(e->mix, i)), x.documents, x.windows, e->values, 100 * x.padding,
        shared && one && x.documents > 1 ? "; one each: the model has no input `doc`, or they are too long"
                                         : "");
  }
}

void zx_epochs_begin(const ZxEpochs *e, int64_t last, uint64_t taken, ZbText *out) {
  for (uint32_t i = 0; i < e->n; i++) {
    zb_text_add(out, "data: %s: ", zb_show(zx_mix_path(e->mix, i)));
    if (e->n > 1) {
      uint32_t share = zx_mix_share(e->mix, i), period = zx_mix_period(e->mix);
      zb_text_add(out, "%.4g of all samples (%u of %u); ", (double)share / period, share, period);
    }
    zb_text_add(out, "%" PRIu64 " samples, gone through %.3g times by step %" PRId64 "%s\n", samples(e, i),
                times(e, i, taken), last, is_short(e, i) ? "; no more than a step takes" : "");
  }
  tell_windows(e, out);
  tell_limits(e, out);
  if (e->n && zx_mix_rounded(e->mix))
    zb_text_add(out, "note: the weights of the files are rounded to %uths\n", zx_mix_period(e->mix));
}

void zx_epochs_note(const ZxEpochs *e, int64_t step, uint64_t before, uint64_t taken, ZbText *out) {
  for (uint32_t i = 0; i < e->n; i++) {
    uint64_t n = samples(e, i), from = zx_mix_before(e->mix, i, before), to = zx_mix_before(e->mix, i, taken);
    uint64_t epoch = (from + n - 1) / n; /* the first that begins at `from` or later */
    if (epoch && epoch * n < to && !is_short(e, i))
      zb_text_add(out, "note: epoch %" PRIu64 " of %s began in step %" PRId64 "\n", epoch + 1,
                  zb_show(zx_mix_path(e->mix, i)), step);
  }
}

void zx_epochs_end(ZxEpochs *e, uint64_t taken, ZbText *out) {
  const double *n = zx_epochs_so_far(e, taken);
  for (uint32_t i = 0; i < e->n; i++)
    zb_text_add(out, "%s%s %.4g", i ? ", " : "epochs: ", zb_show(zx_mix_path(e->mix, i)), n[i]);
  if (e->n) zb_text_add(out, "\n");
}
