/* Whether a run goes on from a step. */
#include "runtime/exec/health.h"

#include <inttypes.h>
#include <math.h>

/* ---- losses that jump ---- */
/* Mean and mean distance of about FADE steps, once there are as many. Far is FAR such distances, and at least
 * a twentieth of the mean: late in a run losses hardly differ. */
enum { FADE = 50, KNOWN = 20, FAR = 8 };

void zx_health_loss(ZxHealth *h, int64_t step, double loss, ZbText *note) {
  if (!h->nloss) h->mean = loss;
  double weight = h->nloss < FADE ? 1.0 / (double)(h->nloss + 1) : 1.0 / FADE, off = fabs(loss - h->mean);
  double far = FAR * h->width > fabs(h->mean) / 20 ? FAR * h->width : fabs(h->mean) / 20;
  bool jumps = h->nloss >= KNOWN && loss > h->mean + far;
  if (jumps && (!h->told || step - h->told > KNOWN)) {
    zb_text_add(note, "step %" PRId64 ": the loss is %.4g, far above the %.4g of late", step, loss, h->mean);
    h->told = step;
  }
  if (jumps) off = far; /* one step does not make jumps usual */
  h->mean += weight * (loss > h->mean ? off : -off);
  h->width += weight * (off - h->width);
  h->nloss++;
}

/* ---- steps without an update ---- */
static bool end_with(const char *good, ZbErr *err) {
  if (good) zb_fail_more(err, "; the last good checkpoint is %s", zb_show(good));
  return false;
}

static bool end_now(const char *good, ZbErr *err) {
  zb_fail_more(err, "; the run ends (--on-nan end)");
  return end_with(good, err);
}

static bool skipped(ZxHealth *h, const char *good, ZbText *note, ZbErr *err) {
  bool end = h->on_nan == ZX_ON_NAN_END || (h->on_nan == ZX_ON_NAN_FEW && h->skipped + 1 >= ZX_MOST_SKIPPED);
  h->skipped++;
  if (!end) {
    zb_text_add(note, "%s", err->text);
    return true;
  }
  if (h->on_nan == ZX_ON_NAN_END) return end_now(good, err);
  zb_fail_more(err, "; the run ends, since these are %d steps in a row", h->skipped);
  return end_with(good, err);
}

/* Goes on: such steps are no fault. But a run of nothing else learns nothing, so they are noted; of many in a
 * row fewer and fewer are. */
static bool unknown(ZxHealth *h, const char *good, ZbText *note, ZbErr *err) {
  int64_t n = ++h->unknown;
  if (h->on_nan == ZX_ON_NAN_END) return end_now(good, err);
  if (n > ZX_MOST_SKIPPED && n & (n - 1)) return true;
  zb_text_add(note, "%s", err->text);
  if (n > ZX_MOST_SKIPPED) zb_text_add(note, "; these are %" PRId64 " such steps in a row", n);
  return true;
}

bool zx_health_goes_on(ZxHealth *h, ZxSoundness sound, int64_t step, double loss, const char *good,
                       ZbText *note, ZbErr *err) {
  switch (sound) {
  case ZX_SKIPPED: return skipped(h, good, note, err);
  case ZX_UNKNOWN: return unknown(h, good, note, err);
  case ZX_BROKEN: return end_with(good, err);
  default: break;
  }
  h->skipped = 0;
  h->unknown = 0;
  zx_health_loss(h, step, loss, note);
  return true;
}

bool zx_health_step(ZxHealth *h, ZxEngine *e, int64_t step, const ZxStep *s, const char *good, ZbText *note,
                    ZbErr *err) {
  return zx_health_goes_on(h, zx_engine_sound(e, s, err), step, s->loss, good, note, err);
}
