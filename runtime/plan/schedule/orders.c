/* Compute orders of pipeline schedules, as data: a pure function of (ranks, micro-batches, rank). Knows nothing of
 * models, buffers or messages; a new schedule is a function here and a row of lang/schedules.def, which also says how
 * many virtual stages a rank has, and which.
 *
 * Rank 0 of 3 with 4 micro-batches, one character per unit of time; a backward takes two:
 *   gpipe  0123......00112233   every forward first: 4 micro-batches are held at once
 *   1f1b   012....00311.22.33   a backward as soon as it can run: ranks 0, 1, 2 hold 3, 2, 1
 *   interleaved                 1f1b with two virtual stages: half of the time that ranks wait at begin and end */
#include "runtime/plan/plan.h"

#include <string.h>

const ZpItemInfo zp_item_info[ZP_ITEM_KINDS] = {[ZP_FORWARD] = {"forward", "F", 1},
                                                [ZP_BACKWARD] = {"backward", "B", 2},
                                                [ZP_INPUT_HALF] = {"input half", "I", 1},
                                                [ZP_WEIGHT_HALF] = {"weight half", "W", 1}};

/* A rank, and its order in the making. */
typedef struct {
  uint32_t ranks, nmicro, rank;
  uint32_t *vstage, nvstages; /* by index: numbers of the rank's virtual stages */
  ZpOrder order;
} Rank;

static void put(Rank *r, ZpItemKind kind, uint32_t index, uint32_t mb) {
  r->order.item[r->order.n++] = (ZpScheduleItem){(uint8_t)kind, r->vstage[index], mb};
}

static void gpipe(Rank *r) {
  for (uint32_t m = 0; m < r->nmicro; m++) put(r, ZP_FORWARD, 0, m);
  for (uint32_t m = 0; m < r->nmicro; m++) put(r, ZP_BACKWARD, 0, m);
}

/* Narayanan et al. 2019 (PipeDream-Flush): a rank runs ahead by one forward for every rank after it. */
static void one_f_one_b(Rank *r) {
  uint32_t f = 0, b = 0, ahead = r->ranks - r->rank - 1;
  while (f < ahead && f < r->nmicro) put(r, ZP_FORWARD, 0, f++);
  while (b < r->nmicro) {
    if (f < r->nmicro) put(r, ZP_FORWARD, 0, f++);
    put(r, ZP_BACKWARD, 0, b++);
  }
}

/* Narayanan et al. 2021: 1f1b over several virtual stages, each for as many micro-batches in turn as there
 * are ranks. Made for a multiple of that; micro-batches that are not there are left out, and nothing waits
 * for them. */
static void interleaved(Rank *r) {
  uint32_t n = r->nvstages, turn = r->ranks * n, all = (r->nmicro + r->ranks - 1) / r->ranks * turn;
  uint32_t ahead = 2 * (r->ranks - r->rank - 1) + (n - 1) * r->ranks;
  for (uint32_t f = 0, b = 0; b < all;) {
    bool forward = f < all && f <= b + ahead;
    uint32_t k = forward ? f++ : b++, index = k % turn / r->ranks, mb = k / turn * r->ranks + k % r->ranks;
    if (mb >= r->nmicro) continue;
    if (forward) put(r, ZP_FORWARD, index, mb);
    else put(r, ZP_BACKWARD, n - 1 - index, mb);
  }
}

/* In the order of zl_schedules. */
static void (*const fill[])(Rank *) = {
#define S(word, function, placement, vstages, halves) function,
#include "lang/schedules.def"
};

ZpOrder zp_order(ZbArena *a, const char *schedule, uint32_t ranks, uint32_t nmicro, uint32_t rank) {
  const ZlSchedule *s = zl_schedule_info(schedule);
  ZB_ASSERT(s && rank < ranks);
  uint32_t n, most = (s->halves ? 3 : 2) * s->vstages * nmicro;
  const ZpVirtualStage *v = zp_place_vstages(a, schedule, ranks, &n);
  Rank r = {ranks, nmicro, rank, ZB_NEWN(a, uint32_t, s->vstages), s->vstages, {0}};
  for (uint32_t i = 0; i < n; i++)
    if (v[i].stage == rank) r.vstage[v[i].index] = i;
  r.order.item = ZB_NEWN(a, ZpScheduleItem, most);
  for (uint32_t i = 0; zl_schedules[i]; i++)
    if (!strcmp(zl_schedules[i], schedule)) fill[i](&r);
  ZB_ASSERT(r.order.n <= most);
  r.order.start = ZB_NEWN(a, uint64_t, most);
  r.order.end = ZB_NEWN(a, uint64_t, most);
  return r.order;
}

uint32_t zp_order_live(const ZpOrder *o) {
  uint32_t live = 0, most = 0;
  for (uint32_t i = 0; i < o->n; i++) {
    live += o->item[i].kind == ZP_FORWARD;
    if (live > most) most = live;
    live -= zp_item_is(&o->item[i], ZP_FREE_SLOT);
  }
  return most;
}
