/* One line on a terminal that says how far it is. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <unistd.h>

static const double every = 0.5; /* seconds */

ZdProgress zd_progress_new(uint64_t total) {
  double now = zb_now();
  return (ZdProgress){.on = isatty(2) == 1, .total = total, .begun = now, .next = now + every};
}

void zd_progress(ZdProgress *p, uint64_t done, uint64_t tokens) {
  double now = p->on ? zb_now() : 0;
  if (!p->on || now < p->next) return;
  char of[24], all[24], rate[24], left[24] = "";
  double seconds = now - p->begun;
  p->next = now + every;
  fprintf(stderr, "\r%s of %s, %.4g million tokens, %s/s", zb_bytes(of, done), zb_bytes(all, p->total),
          (double)tokens / 1e6, zb_bytes(rate, (uint64_t)((double)done / seconds)));
  if (done && done < p->total)
    fprintf(stderr, ", %s left", zb_duration_text(left, seconds * (double)(p->total - done) / (double)done));
  fprintf(stderr, "\033[K");
  p->shown = true;
}

void zd_progress_end(ZdProgress *p) {
  if (p->shown) fprintf(stderr, "\r\033[K");
  p->shown = false;
}
