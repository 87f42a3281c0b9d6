/* The timeline of a step: the boxes that are drawn of it, on the page and here, and a picture of it, SVG. */
#include "runtime/plan/output/page.h"

#include <math.h>
#include <stdlib.h>

const char *const zp_sort_text[ZP_SORTS] = {"forward", "backward", "loads, counts, update",
                                            "transfers between stages",
                                            "collectives of parameters and gradients"};

/* ---- boxes ---------------------------------------------------------------------------------------------- */
static ZpSort sort_of(const ZpInstr *in) {
  return in->queue == ZP_Q_P2P    ? ZP_S_TRANSFER
         : in->queue == ZP_Q_COLL ? ZP_S_COLLECTIVE
         : in->op == ZP_I_FWD     ? ZP_S_FORWARD
         : in->op == ZP_I_BWD     ? ZP_S_BACKWARD
                                  : ZP_S_UPDATE;
}

/* Spans are kept in the order in which they end. */
static int by_begin(const void *a, const void *b) {
  const ZpSpan *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Returns where the passes of one micro-batch through the layers of a stage end, of which spans[*i - 1] is
 * the first. */
static double end_of_passes(const ZpProgram *g, const ZpStageTime *st, const ZpInstr *in, uint64_t *i) {
  double end = st->spans[*i - 1].end;
  for (; *i < st->nspans; ++*i) {
    const ZpInstr *next = &g->instrs[st->spans[*i].instr];
    if (st->spans[*i].node != ZP_NONE || next->queue != ZP_Q_COMPUTE) continue;
    if (next->op != in->op || next->mb != in->mb) break;
    end = st->spans[*i].end;
  }
  return end;
}

ZpBox *zp_boxes(ZbArena *a, const ZpPlan *p, uint32_t s, const ZpTime *t, double pixels, uint32_t *n) {
  const ZpStageTime *st = &t->stages[s];
  const ZpProgram *g = &p->programs.stages[s].prog;
  double drawn[ZP_SORTS] = {-1, -1, -1, -1, -1};
  ZpBox *box = NULL;
  *n = 0;
  qsort(st->spans, st->nspans, sizeof *st->spans, by_begin);
  for (uint64_t i = 0; i < st->nspans;) {
    const ZpSpan *x = &st->spans[i++];
    if (x->node != ZP_NONE) continue;
    const ZpInstr *in = &g->instrs[x->instr];
    ZpBox b = {sort_of(in), x->begin, x->end, in};
    if (b.sort <= ZP_S_BACKWARD) b.end = end_of_passes(g, st, in, &i);
    if (b.end < drawn[b.sort] + .15 * t->seconds / pixels) continue;
    drawn[b.sort] = b.end;
    ZB_PUSH(a, box, *n, b);
  }
  return box;
}

/* ---- the picture ---------------------------------------------------------------------------------------- */
enum { WIDTH = 960, MARGIN = 16, LEFT = 80, ROW = 22, PITCH = 36, HEAD = 30, AXIS = 26, LEGEND = 30 };

typedef struct {
  ZbArena *a;
  ZbText *out;
  double seconds, scale; /* of the axis; pixels a second */
  bool has[ZP_SORTS];
} Drawing;

/* Names of a model and a recipe are words; a path of a message may have anything. */
static void put_escaped(ZbText *t, const char *s) {
  for (; *s; s++)
    if (*s == '<') zb_text_add(t, "&lt;");
    else if (*s == '>') zb_text_add(t, "&gt;");
    else if (*s == '&') zb_text_add(t, "&amp;");
    else zb_text_put(t, s, 1);
}

static double place(const Drawing *d, double at) { return LEFT + at * d->scale; }

static const char *what_text(const Drawing *d, const ZpPlan *p, uint32_t stage, const ZpBox *b) {
  if (b->sort <= ZP_S_BACKWARD)
    return zb_printf(d->a, "%s of micro-batch %u", zp_sort_text[b->sort], b->instr->mb);
  ZbText t = {0};
  zp_instr_text(p, stage, b->instr, &t);
  const char *text = zb_strndup(d->a, t.s, t.len);
  zb_text_free(&t);
  return text;
}

static void put_box(Drawing *d, const ZpPlan *p, uint32_t stage, double top, const ZpBox *b) {
  ZbText *t = d->out;
  double x = place(d, b->begin), w = place(d, b->end) - x;
  char from[24], to[24];
  bool pass = b->sort <= ZP_S_BACKWARD;
  double y = top + (b->sort < ZP_S_TRANSFER ? 2 : b->sort == ZP_S_TRANSFER ? ROW - 3 : ROW + 3);
  d->has[b->sort] = true;
  if (pass && w > 3) w--; /* apart from the next */
  zb_text_add(t, "<rect class=\"s%d\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\"><title>",
              (int)b->sort, x, y, fmax(w, .3), b->sort < ZP_S_TRANSFER ? ROW - 6 : 5);
  put_escaped(t, what_text(d, p, stage, b));
  zb_text_add(t, ", %s to %s</title></rect>\n", zb_seconds_text(from, b->begin), zb_seconds_text(to, b->end));
  const char *number = zb_printf(d->a, "%u", b->instr->mb);
  if (pass && w > 8 + 7 * (double)strlen(number))
    zb_text_add(t, "<text class=\"n%d\" x=\"%.1f\" y=\"%.0f\">%s</text>\n", (int)b->sort, x + w / 2, y + 12,
                number);
}

/* Puts ticks at 1, 2 or 5 x 10^n of one unit; lines: those over the rows of a plan, else the numbers below
 * all. */
static void put_axis(Drawing *d, double top, double bottom, bool lines) {
  double step = zb_round_step(d->seconds, 7), unit = d->seconds < 1e-3 ? 1e6 : d->seconds < 1 ? 1e3 : 1;
  int digits = (int)fmax(0, -floor(log10(step * unit) + 1e-6));
  for (int i = 0; i * step <= d->seconds * (1 + 1e-9); i++) {
    double x = fmin(place(d, i * step), WIDTH - MARGIN);
    if (lines) {
      zb_text_add(d->out, "<path class=\"grid\" d=\"M%.1f %.0fV%.0f\"/>\n", x, top, bottom);
      continue;
    }
    zb_text_add(d->out, "<text class=\"word\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">", x, top,
                x > WIDTH - MARGIN - 24 ? "end" : "middle");
    if (i) zb_text_add(d->out, "%.*f %s", digits, i * step * unit, unit > 1e3 ? "us" : unit > 1 ? "ms" : "s");
    else zb_text_add(d->out, "0");
    zb_text_add(d->out, "</text>\n");
  }
}

/* Puts what a plan is, and below it a row for each stage. */
static void put_plan(Drawing *d, const ZpPaged *of, const ZlCluster *c, double top) {
  const ZpPlan *p = of->plan;
  ZbText *t = d->out;
  char step[24];
  zb_text_add(t, "<text class=\"word\" x=\"%d\" y=\"%.0f\"><tspan font-weight=\"600\">", MARGIN, top + 18);
  put_escaped(t, p->asked.recipe->name);
  zb_text_add(t, "</tspan>: ");
  put_escaped(t, p->graph->model);
  zb_text_add(t, " on %lld ranks of ", (long long)p->layout.mesh.nranks);
  put_escaped(t, c->name);
  zb_text_add(t, ", a step takes %s</text>\n", zb_seconds_text(step, of->time->seconds));
  top += HEAD;
  put_axis(d, top, top + PITCH * (double)p->programs.nstages, true);
  for (uint32_t s = 0; s < p->programs.nstages; s++, top += PITCH) {
    uint32_t n;
    const ZpBox *box = zp_boxes(d->a, p, s, of->time, WIDTH - LEFT - MARGIN, &n);
    zb_text_add(t, "<text class=\"word\" x=\"%d\" y=\"%.0f\">stage %u</text>\n", MARGIN, top + 14, s);
    for (uint32_t i = 0; i < n; i++) put_box(d, p, s, top, &box[i]);
  }
}

static void put_legend(Drawing *d, double y) {
  double x = LEFT;
  for (int i = 0; i < ZP_SORTS; i++) {
    if (!d->has[i]) continue;
    zb_text_add(d->out, "<rect class=\"s%d\" x=\"%.0f\" y=\"%.0f\" width=\"10\" height=\"10\"/>", i, x,
                y - 9);
    zb_text_add(d->out, "<text class=\"word\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", x + 15, y, zp_sort_text[i]);
    x += 36 + 5.8 * (double)strlen(zp_sort_text[i]);
  }
}

/* Colours stand on both grounds; which one it is, and its words, follow what the reader's machine prefers.
 * A program that knows no such preference shows the light one. */
static const char style[] =
    "<style>.ground{fill:#fff}.word{fill:#2b3036}.grid{stroke:#dfe2e6;fill:none}\n"
    ".s0{fill:#4477aa}.s1{fill:#ee6677}.s2{fill:#228833}.s3{fill:#ccbb44}.s4{fill:#66ccee}\n"
    ".n0,.n1{font-size:11px;text-anchor:middle;pointer-events:none}.n0{fill:#fff}.n1{fill:#1b1f24}\n"
    "@media "
    "(prefers-color-scheme:dark){.ground{fill:#16181b}.word{fill:#d6dae0}.grid{stroke:#3a3f46}}</style>"
    "\n";

void zp_show_picture(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out) {
  Drawing d = {.a = zb_arena_new(), .out = out};
  double height = MARGIN / 2. + AXIS + LEGEND, top = MARGIN / 2.;
  for (uint32_t i = 0; i < n; i++) {
    d.seconds = fmax(d.seconds, of[i].time->seconds);
    height += HEAD + PITCH * (double)of[i].plan->programs.nstages;
  }
  d.scale = (WIDTH - LEFT - MARGIN) / d.seconds;
  zb_text_add(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" "
      "role=\"img\"\n     font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif\" "
      "font-size=\"12\">\n<title>Timeline of a step</title>\n%s"
      "<rect class=\"ground\" width=\"100%%\" height=\"100%%\" rx=\"6\"/>\n",
      WIDTH, height, WIDTH, height, style);
  for (uint32_t i = 0; i < n; i++) {
    put_plan(&d, &of[i], c, top);
    top += HEAD + PITCH * (double)of[i].plan->programs.nstages;
  }
  put_axis(&d, top + 14, 0, false);
  put_legend(&d, top + AXIS + 14);
  zb_text_add(out, "</svg>\n");
  zb_arena_free(d.a);
}
