/* The page of `zplan report`: page.html, with its data in the place that it has for them. They are what `show`,
 * `explain` and `sim` say as JSON, and what is drawn besides: passes and transfers over the step, what of the arena is in
 * use over the step, what a segment costs. Boxes that would be too narrow to be seen are left out. */
#include "runtime/plan/output/page.h"
#include "runtime/plan/output/tables.h"

#include <math.h>

extern const char *const zp_page[]; /* name and text of page.html */
static const double wide = 884;     /* pixels of the step there, ... */
static const double closest =
    8; /* ... and how many times as many, zoomed in, have all that is wide enough to be seen */

/* ---- the timeline --------------------------------------------------------------------------------------- */
static void put_box(ZbJson *j, int sort, double begin, double end) {
  zb_json_list(j, NULL);
  zb_json_int(j, NULL, sort);
  zb_json_number(j, NULL, begin);
  zb_json_number(j, NULL, end);
}

/* Puts a list a box: its sort, begin, end, and its micro-batch or what it is. */
static void put_timeline(ZbJson *j, const ZpPlan *p, uint32_t s, const ZpTime *t) {
  ZbArena *a = zb_arena_new();
  uint32_t n;
  const ZpBox *box = zp_boxes(a, p, s, t, closest * wide, &n);
  zb_json_list(j, NULL);
  for (uint32_t i = 0; i < n; i++) {
    put_box(j, (int)box[i].sort, box[i].begin, box[i].end);
    if (box[i].sort <= ZP_S_BACKWARD) zb_json_count(j, NULL, box[i].instr->mb);
    else {
      ZbText what = {0};
      zp_instr_text(p, s, box[i].instr, &what);
      zb_json_string(j, NULL, what.s);
      zb_text_free(&what);
    }
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_arena_free(a);
}

/* ---- memory over the step ------------------------------------------------------------------------------- */
static void put_use(ZbJson *j, const ZpUse *u) {
  zb_json_list(j, NULL);
  zb_json_number(j, NULL, u->at);
  for (int i = 0; i < ZP_USES; i++) zb_json_int(j, NULL, u->bytes[i]);
  zb_json_end(j);
}

/* Puts a list a moment: its time, and what of each use is in use from there on. */
static void put_memory(ZbJson *j, const ZpPlan *p, uint32_t s, const ZpTime *t) {
  ZbArena *a = zb_arena_new();
  const ZpStageTime *st = &t->stages[s];
  const ZpSpan **spans = ZB_NEWN(a, const ZpSpan *, p->programs.stages[s].prog.ninstrs);
  size_t n;
  for (uint64_t i = 0; i < st->nspans; i++)
    if (st->spans[i].node == ZP_NONE) spans[st->spans[i].instr] = &st->spans[i];
  const ZpUse *uses = zp_uses(a, &p->programs.stages[s], spans, &n), *last = NULL;
  zb_json_object(j, NULL);
  zb_json_count(j, "stage", s);
  zb_json_list(j, "uses");
  for (size_t i = 0; i < n; i++) {
    bool seen = !last || last->at <= 0 || uses[i].at - last->at >= .5 * t->seconds / wide;
    if (!seen || (last && !memcmp(last->bytes, uses[i].bytes, sizeof last->bytes))) continue;
    last = &uses[i];
    put_use(j, last);
  }
  zb_json_end(j);
  zb_json_end(j);
  zb_arena_free(a);
}

/* ---- the page ------------------------------------------------------------------------------------------- */
static void put_segments(ZbJson *j, const ZpPlan *p) {
  zb_json_list(j, "segments");
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    ZbText name = {0};
    zp_segment_text(p, i, &name);
    zb_json_object(j, NULL);
    zb_json_string(j, "name", name.s);
    zb_json_number(j, "cost", p->programs.segments[i].cost);
    zb_json_end(j);
    zb_text_free(&name);
  }
  zb_json_end(j);
}

static void put_plan(ZbJson *j, const ZpPlan *p, const ZpTime *t, const ZlCluster *c) {
  zb_json_line(j, 0);
  zb_json_object(j, NULL);
  zb_json_object(j, "show");
  zp_json_show(j, p);
  zb_json_end(j);
  zb_json_line(j, 0);
  zb_json_object(j, "explain");
  zp_json_explain(j, p);
  zb_json_end(j);
  zb_json_line(j, 0);
  zb_json_object(j, "sim");
  zp_json_time(j, p, c, t);
  zb_json_end(j);
  zb_json_line(j, 0);
  put_segments(j, p);
  zb_json_line(j, 0);
  zb_json_list(j, "timeline");
  for (uint32_t s = 0; s < p->programs.nstages; s++) put_timeline(j, p, s, t);
  zb_json_end(j);
  zb_json_line(j, 0);
  zb_json_list(j, "memory");
  put_memory(j, p, 0, t);
  if (p->programs.nstages > 1) put_memory(j, p, p->programs.nstages - 1, t);
  zb_json_end(j);
  zb_json_end(j);
}

void zp_page_data(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out) {
  ZbJson j = {.text = out, .script = true};
  zb_json_object(&j, NULL);
  zb_json_bool(&j, "exact", zb_bytes_exact());
  zb_json_list(&j, "uses");
  for (int i = 0; i < ZP_USES; i++) zb_json_string(&j, NULL, zp_use_text[i]);
  zb_json_end(&j);
  zb_json_list(&j, "parts");
  for (int i = 0; i < ZP_T_PARTS; i++) zb_json_string(&j, NULL, zp_part_word[i]);
  zb_json_end(&j);
  zb_json_list(&j, "plans");
  for (uint32_t i = 0; i < n; i++) put_plan(&j, of[i].plan, of[i].time, c);
  zb_json_end(&j);
  zb_json_end(&j);
}

void zp_show_page(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out) {
  static const char place[] = "/*DATA*/null";
  const char *page = zp_page[1], *at = strstr(page, place);
  ZB_ASSERT(at);
  zb_text_put(out, page, (size_t)(at - page));
  zp_page_data(of, n, c, out);
  zb_text_add(out, "%s", at + sizeof place - 1);
}
