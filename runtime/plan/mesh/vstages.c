/* Virtual stages: their owners, their neighbours. A schedule says in which order ranks take them. Three ranks, two each, by number along the model:
 *   loop  rank 0: 0 3   rank 1: 1 4   rank 2: 2 5
 *   vee   rank 0: 0 5   rank 1: 1 4   rank 2: 2 3 */
#include "runtime/plan/plan.h"

ZpVirtualStage *zp_place_vstages(ZbArena *a, const char *schedule, uint32_t ranks, uint32_t *n) {
  const ZlSchedule *s = zl_schedule_info(schedule);
  ZpVirtualStage *v = ZB_NEWN(a, ZpVirtualStage, (size_t)ranks * s->vstages);
  *n = ranks * s->vstages;
  for (uint32_t i = 0; i < *n; i++) {
    v[i].index = i / ranks;
    v[i].stage = s->placement == ZL_VEE && v[i].index % 2 ? ranks - 1 - i % ranks : i % ranks;
  }
  return v;
}

uint32_t zp_vstage_before(const ZpPlan *p, uint32_t v) {
  return v && v < p->programs.nvstages ? v - 1 : ZP_NONE;
}

uint32_t zp_vstage_after(const ZpPlan *p, uint32_t v) {
  return v + 1 < p->programs.nvstages ? v + 1 : ZP_NONE;
}

uint32_t zp_owner(const ZpPlan *p, uint32_t v) {
  return v == ZP_NONE ? ZP_NONE : p->programs.vstages[v].stage;
}

const ZpVirtualStage *zp_vstage_of(const ZpPlan *p, const ZpStage *st, uint32_t inst) {
  uint32_t i = 0;
  while (i + 1 < st->nvstages && p->programs.vstages[st->vstages[i + 1]].first <= inst) i++;
  return &p->programs.vstages[st->vstages[i]];
}

uint64_t zp_input_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < st->nvstages; i++) {
    uint64_t bytes = p->programs.vstages[st->vstages[i]].input_bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}
