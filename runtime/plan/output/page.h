/* A plan as one page for a browser, to be looked at: page.html, which draws with a script of its own, and its data in
 * it; nothing that is loaded. */
#ifndef ZUG_PLAN_PAGE_H
#define ZUG_PLAN_PAGE_H

#include "runtime/plan/plan.h"
#include "runtime/plan/time/time.h"

typedef struct {
  const ZpPlan *plan;
  const ZpTime *time; /* with spans */
} ZpPaged;
/* of: one plan, or two of one model to compare; all that is drawn is of each. */
void zp_show_page(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out);
/* Puts its data, JSON: for each plan what `show`, `explain` and `sim` have, and what is drawn besides. */
void zp_page_data(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out);

#endif
