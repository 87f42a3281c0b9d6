/* Compute orders of pipeline schedules, as data: a pure function of (stages, micro-batches, stage). Knows
 * nothing of models, buffers or messages; a new schedule is a function here and a row of lang/schedules.def.
 *
 * Stage 0 of 3 with 4 micro-batches, one character per unit of time; a backward takes two:
 *   gpipe  0123......00112233   every forward first: 4 micro-batches are held at once
 *   1f1b   012....00311.22.33   a backward as soon as it can run: stages 0, 1, 2 hold 3, 2, 1 */
#include "runtime/plan/plan.h"

#include <string.h>

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void gpipe(ZpWork *w, uint32_t stages, uint32_t nmicro, uint32_t stage) {
  (void)stages, (void)stage;
  for (uint32_t m = 0; m < nmicro; m++) {
    w[m] = (ZpWork){false, m};
    w[nmicro + m] = (ZpWork){true, m};
  }
}

/* Narayanan et al. 2019 (PipeDream-Flush): stage s runs ahead by one forward for every stage after it. */
static void one_f_one_b(ZpWork *w, uint32_t stages, uint32_t nmicro, uint32_t stage) {
  uint32_t f = 0, b = 0, ahead = min_u32(stages - stage - 1, nmicro);
  while (f < ahead) *w++ = (ZpWork){false, f++};
  while (b < nmicro) {
    if (f < nmicro) *w++ = (ZpWork){false, f++};
    *w++ = (ZpWork){true, b++};
  }
}

static const struct {
  const char *name;
  void (*fill)(ZpWork *w, uint32_t stages, uint32_t nmicro, uint32_t stage);
} schedules[] = {
#define S(word, function) {word, function},
#include "lang/schedules.def"
};
enum { NSCHEDULES = sizeof schedules / sizeof *schedules };

ZpWork *zp_order(ZbArena *a, const char *schedule, uint32_t stages, uint32_t nmicro, uint32_t stage) {
  ZB_ASSERT(stage < stages);
  ZpWork *w = ZB_NEWN(a, ZpWork, 2 * (size_t)nmicro);
  for (int i = 0; i < NSCHEDULES; i++) {
    if (strcmp(schedule, schedules[i].name)) continue;
    schedules[i].fill(w, stages, nmicro, stage);
    return w;
  }
  ZB_BUG("unknown schedule '%s'", schedule);
}

uint32_t zp_order_live(const ZpWork *w, uint32_t n) {
  uint32_t live = 0, most = 0;
  for (uint32_t i = 0; i < n; i++) {
    live += w[i].backward ? -1u : 1u;
    if (live > most) most = live;
  }
  return most;
}

/* Work whose inputs are not there yet waits: forward needs the stage before, backward the stage after. */
uint64_t zp_order_times(ZbArena *a, ZpWork *const *w, uint32_t stages, uint32_t nmicro, uint64_t **start) {
  size_t P = stages, M = nmicro;
  uint64_t *now = ZB_NEWN(a, uint64_t, P);              /* stage's clock */
  size_t *next = ZB_NEWN(a, size_t, P);                 /* its next item */
  uint64_t *done = ZB_NEWN(a, uint64_t, P * M * 2 + 1); /* end of (stage, backward, mb); 0: not yet */
  uint64_t span = 0;
  for (size_t left = P * M * 2, before = 0; left != before;) {
    before = left;
    for (size_t s = 0; s < P; s++) {
      for (; next[s] < 2 * M; next[s]++, left--) {
        ZpWork x = w[s][next[s]];
        bool free_to_go = x.backward ? s + 1 == P : s == 0;
        size_t from = x.backward ? s + 1 : s - 1;
        uint64_t in = free_to_go ? 0 : done[(from * 2 + x.backward) * M + x.mb];
        if (!free_to_go && !in) break;
        start[s][next[s]] = in > now[s] ? in : now[s];
        now[s] = start[s][next[s]] + (x.backward ? 2 : 1);
        done[(s * 2 + x.backward) * M + x.mb] = now[s];
        if (now[s] > span) span = now[s];
      }
    }
    if (!left) return span;
  }
  ZB_BUG("this order of %u stages and %u micro-batches cannot run", stages, nmicro);
}
