/* A plan as one page for a browser, to be looked at: page.html, which draws with a script of its own, and its data in
 * it; nothing that is loaded. */
#ifndef ZUG_PLAN_PAGE_H
#define ZUG_PLAN_PAGE_H

#include "runtime/plan/plan.h"
#include "runtime/plan/time/time.h"

/* ---- timeline.c ---- */
/* Kinds of what a stage does over a step, as page.html numbers and names them. */
typedef enum { ZP_S_FORWARD, ZP_S_BACKWARD, ZP_S_UPDATE, ZP_S_TRANSFER, ZP_S_COLLECTIVE, ZP_SORTS } ZpSort;
extern const char *const zp_sort_text[ZP_SORTS];
typedef struct {
  ZpSort sort;
  double begin, end;
  const ZpInstr *instr; /* of passes of a micro-batch through all layers of a stage the first */
} ZpBox;
/* Returns what is drawn of a stage where a step takes so many pixels, but for boxes too narrow to be seen. */
ZpBox *zp_boxes(ZbArena *a, const ZpPlan *p, uint32_t stage, const ZpTime *t, double pixels, uint32_t *n);

typedef struct {
  const ZpPlan *plan;
  const ZpTime *time; /* with spans */
} ZpPaged;
/* of: one plan, or two of one model to compare; all that is drawn is of each. */
void zp_show_page(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out);
/* The same plans' timelines as a picture, SVG: one below the other, with one axis. */
void zp_show_picture(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out);
/* Puts its data, JSON: for each plan what `show`, `explain` and `sim` have, and what is drawn besides. */
void zp_page_data(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out);

#endif
