/* A plan as a page: where a step's time goes, the timeline, the ledger, memory over the step, what is sent,
 * the model cut into stages. Drawings are SVG within the page, so that it needs no program and no network. */
#include "runtime/plan/output/page.h"
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 960, LEFT = 76, ROW = 22, PITCH = 36 }; /* pixels; of a stage's row, and in the timeline */
static const char *const colours[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377",
                                      "#bbbbbb", "#ee8866", "#44bb99", "#99ddff", "#dddddd", "#777777"};
enum { COLOURS = sizeof colours / sizeof *colours };

typedef struct {
  const ZpPlan *p;
  const ZpTime *t;
  ZbArena *a;
  ZbText *out;
} Page;

/* ---- pieces of a page ----------------------------------------------------------------------------------- */
static void put(Page *g, const char *text) { /* as HTML has it */
  for (; *text; text++) {
    if (*text == '<') zb_text_add(g->out, "&lt;");
    else if (*text == '>') zb_text_add(g->out, "&gt;");
    else if (*text == '&') zb_text_add(g->out, "&amp;");
    else if (*text == '"') zb_text_add(g->out, "&quot;");
    else zb_text_put(g->out, text, 1);
  }
}

/* Where there is less room than a drawing is wide, it is moved within its frame, and stays readable. */
static void begin_drawing(Page *g, const char *id, int height) {
  zb_text_add(g->out,
              "<div class=\"frame\"><svg id=\"%s\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n", id,
              WIDE, height, WIDE, height);
}
static void end_drawing(Page *g) { zb_text_add(g->out, "</svg></div>\n"); }

/* A box with what it is when it is pointed at. */
static void box(Page *g, double x, double y, double w, double h, const char *colour, const char *what) {
  w = fmax(w, .01), h = fmax(h, .01); /* little as it may be, it is there */
  zb_text_add(g->out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"><title>", x, y,
              w, h, colour);
  put(g, what);
  zb_text_add(g->out, "</title></rect>\n");
}

static void label(Page *g, double x, double y, const char *what) {
  zb_text_add(g->out, "<text x=\"%.1f\" y=\"%.1f\">", x, y);
  put(g, what);
  zb_text_add(g->out, "</text>\n");
}

/* As wide as w, but for what keeps it apart from the next, if there is room for that. */
static double apart(double w) { return w > 3 ? w - 1 : w; }

/* What a row is of, at its left. */
static void row_label(Page *g, double y, uint32_t stage) {
  label(g, 0, y, zb_printf(g->a, "stage %u", stage));
}

static void legend(Page *g, const char *const *word, const bool *has, int n) {
  zb_text_add(g->out, "<p class=\"legend\">");
  for (int i = 0; i < n; i++) {
    if (!has[i]) continue;
    zb_text_add(g->out, "<span class=\"entry\"><span style=\"background:%s\"></span>", colours[i % COLOURS]);
    put(g, word[i]);
    zb_text_add(g->out, "</span> ");
  }
  zb_text_add(g->out, "</p>\n");
}

/* ---- stacked bars, one per stage ------------------------------------------------------------------------ */
typedef struct {
  const char *const *word;
  int n;
  double most;
  bool bytes;
  bool *has;
} Bars;

static void bar(Page *g, const Bars *b, uint32_t stage, const double *value) {
  double x = LEFT, y = (double)stage * ROW, sum = 0;
  char text[24];
  row_label(g, y + 14, stage);
  for (int i = 0; i < b->n; i++) {
    double w = b->most > 0 ? (WIDE - LEFT - 90) * value[i] / b->most : 0;
    sum += value[i];
    if (value[i] <= 0) continue;
    b->has[i] = true;
    const char *amount = b->bytes ? zb_bytes(text, (uint64_t)value[i]) : zp_seconds_text(text, value[i]);
    box(g, x, y + 2, w, ROW - 5, colours[i % COLOURS],
        zb_printf(g->a, "stage %u, %s: %s", stage, b->word[i], amount));
    x += w;
  }
  label(g, x + 6, y + 14, b->bytes ? zb_bytes(text, (uint64_t)sum) : zp_seconds_text(text, sum));
}

static void parts(Page *g, const char *id) {
  bool has[ZP_T_PARTS] = {false};
  Bars b = {zp_part_word, ZP_T_PARTS, g->t->seconds, false, has};
  begin_drawing(g, id, (int)g->p->programs.nstages * ROW);
  for (uint32_t s = 0; s < g->p->programs.nstages; s++) bar(g, &b, s, g->t->stages[s].part);
  end_drawing(g);
  legend(g, zp_part_word, has, ZP_T_PARTS);
}

static void ledger(Page *g, const char *id) {
  bool has[ZP_LEDGER_LINES] = {false};
  const char *word[ZP_LEDGER_LINES];
  Bars b = {word, ZP_LEDGER_LINES, 0, true, has};
  for (int i = 0; i < ZP_LEDGER_LINES; i++) word[i] = zp_ledger_info[i].text;
  b.most = (double)zp_fullest(g->p)->ledger.total[ZP_DEVICE];
  begin_drawing(g, id, (int)g->p->programs.nstages * ROW);
  for (uint32_t s = 0; s < g->p->programs.nstages; s++) {
    double value[ZP_LEDGER_LINES] = {0};
    for (int i = 0; i < ZP_LEDGER_LINES; i++)
      if (zp_ledger_info[i].memory == ZP_DEVICE) value[i] = (double)g->p->programs.stages[s].ledger.bytes[i];
    bar(g, &b, s, value);
  }
  end_drawing(g);
  legend(g, word, has, ZP_LEDGER_LINES);
}

/* ---- the timeline --------------------------------------------------------------------------------------- */
enum { FORWARD, BACKWARD, UPDATE, TRANSFER, COLLECTIVE, SORTS };
static const char *const sort_text[] = {"forward", "backward", "loads, counts, update",
                                        "transfers between stages",
                                        "collectives of parameters and gradients"};

static int sort_of(const ZpInstr *in) {
  return in->queue == ZP_Q_P2P    ? TRANSFER
         : in->queue == ZP_Q_COLL ? COLLECTIVE
         : in->op == ZP_I_FWD     ? FORWARD
         : in->op == ZP_I_BWD     ? BACKWARD
                                  : UPDATE;
}

/* Passes of one micro-batch through the layers of a stage are one box; what would be too narrow to be seen is
 * left out. */
static void stage_timeline(Page *g, uint32_t s, bool has[SORTS]) {
  const ZpStageTime *st = &g->t->stages[s];
  double y = (double)s * PITCH, scale = (WIDE - LEFT) / g->t->seconds, drawn[SORTS] = {0};
  row_label(g, y + 14, s);
  for (uint64_t i = 0; i < st->nspans;) {
    const ZpSpan *x = &st->spans[i++];
    if (x->node != ZP_NONE) continue;
    const ZpInstr *in = &g->p->programs.stages[s].prog.instrs[x->instr];
    int sort = sort_of(in);
    double begin = x->begin, end = x->end;
    for (; i < st->nspans && sort <= BACKWARD; i++) {
      const ZpInstr *next = &g->p->programs.stages[s].prog.instrs[st->spans[i].instr];
      if (st->spans[i].node != ZP_NONE || next->queue != ZP_Q_COMPUTE) continue;
      if (next->op != in->op || next->mb != in->mb) break;
      end = st->spans[i].end;
    }
    double at = LEFT + begin * scale, w = (end - begin) * scale;
    if (at + w < drawn[sort] + .15) continue;
    drawn[sort] = at + w;
    has[sort] = true;
    char a[24], b[24];
    ZbText what = {0};
    if (sort <= BACKWARD) zb_text_add(&what, "%s of micro-batch %u", sort_text[sort], in->mb);
    else zp_instr_text(g->p, s, in, &what);
    double row = sort <= UPDATE ? 2 : sort == TRANSFER ? ROW - 3 : ROW + 3;
    box(g, at, y + row, fmax(sort <= BACKWARD ? apart(w) : w, .3), sort <= UPDATE ? ROW - 6 : 5,
        colours[sort],
        zb_printf(g->a, "%s, from %s to %s", what.s, zp_seconds_text(a, begin), zp_seconds_text(b, end)));
    zb_text_free(&what);
  }
}

/* The step's time, below. */
static void axis(Page *g, double y) {
  enum { TICKS = 5 };
  char text[24];
  for (int i = 0; i <= TICKS; i++) {
    double x = LEFT + (double)(WIDE - LEFT) * i / TICKS;
    zb_text_add(g->out, "<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%.1f\"/>", fmin(x, WIDE - .5),
                fmin(x, WIDE - .5), y + 4);
    zb_text_add(g->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y + 17,
                !i           ? "start"
                : i == TICKS ? "end"
                             : "middle",
                i ? zp_seconds_text(text, g->t->seconds * i / TICKS) : "0");
  }
}

/* Spans are kept in the order in which they end. */
static int by_begin(const void *a, const void *b) {
  const ZpSpan *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static void timeline(Page *g, const char *id) {
  bool has[SORTS] = {false};
  int rows = (int)g->p->programs.nstages * PITCH;
  begin_drawing(g, id, rows + ROW);
  axis(g, rows);
  for (uint32_t s = 0; s < g->p->programs.nstages; s++) {
    qsort(g->t->stages[s].spans, g->t->stages[s].nspans, sizeof(ZpSpan), by_begin);
    stage_timeline(g, s, has);
  }
  end_drawing(g);
  legend(g, sort_text, has, SORTS);
}

/* ---- memory over the step ------------------------------------------------------------------------------- */
/* As traces have it: what of the arena is in use, at each moment at which that changes. */
enum { USES = 6, TALL = 120 };
static const char *const use_text[USES] = {"stored",   "activations", "boundaries",
                                           "gathered", "staging",     "scratch"};

static bool read_use(const char *line, double *at, double use[USES]) {
  static const char form[] =
      "{\"ph\":\"C\",\"name\":\"arena\",\"pid\":%*d,\"ts\":%lf,\"args\":{\"stored\":%lf,\"activations\":%lf,"
      "\"boundaries\":%lf,\"gathered\":%lf,\"staging\":%lf,\"scratch\":%lf";
  return sscanf(line, form, at, &use[0], &use[1], &use[2], &use[3], &use[4], &use[5]) == 7;
}

/* What was in use from x to `to`, where `most` is as high as there is room. */
static void put_use(Page *g, const double use[USES], double most, double x, double to, double y,
                    bool has[USES]) {
  char text[24];
  for (int u = 0; u < USES; u++) {
    double h = most > 0 ? (TALL - 4) * use[u] / most : 0;
    if (h <= 0) continue;
    has[u] = true;
    y -= h;
    box(g, x, y, to - x, h, colours[u],
        zb_printf(g->a, "%s %s", use_text[u], zb_bytes(text, (uint64_t)use[u])));
  }
}

static void stage_memory(Page *g, uint32_t s, double top, bool has[USES]) {
  ZbText events = {0};
  int64_t rank = g->p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&g->p->layout.mesh, 0, s);
  double most = (double)g->p->programs.stages[s].ledger.total[ZP_DEVICE], x = LEFT, last[USES] = {0}, at,
         use[USES];
  zp_trace_events(g->p, rank, g->t->stages[s].spans, g->t->stages[s].nspans, 0, 0, true, &events);
  char text[24];
  row_label(g, top + 14, s);
  label(g, 0, top + 30, zb_bytes(text, (uint64_t)most));
  for (const char *line = events.s; line && *line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
    if (!read_use(line, &at, use)) continue;
    double to = LEFT + (WIDE - LEFT) * at * 1e-6 / g->t->seconds;
    if (to - x < .5 && x > LEFT) continue; /* too short to be seen */
    if (!memcmp(last, use, sizeof use)) continue;
    put_use(g, last, most, x, to, top + TALL, has);
    memcpy(last, use, sizeof last);
    x = to;
  }
  if (x < WIDE - 1) put_use(g, last, most, x, WIDE, top + TALL, has);
  zb_text_free(&events);
}

static void memory(Page *g, const char *id) {
  bool has[USES] = {false};
  uint32_t last = g->p->programs.nstages - 1;
  begin_drawing(g, id, (last ? 2 : 1) * (TALL + 8));
  stage_memory(g, 0, 0, has);
  if (last) stage_memory(g, last, TALL + 8, has);
  end_drawing(g);
  legend(g, use_text, has, USES);
}

/* ---- what is sent, and the stages ----------------------------------------------------------------------- */
static int by_bytes(const void *a, const void *b) {
  double x = zp_sent_bytes(a), y = zp_sent_bytes(b);
  return (x < y) - (x > y);
}

static void sent_row(Page *g, const ZpSent *r, double most) {
  char each[24], all[24];
  double bytes = zp_sent_bytes(r);
  zb_text_add(g->out, "<tr><td>");
  zb_text_add(g->out, r->from == r->to ? "%u" : "%u-%u", r->from, r->to);
  zb_text_add(g->out, "<td>%llu<td>%s<td>%s<td><div style=\"width:%.0fpx\"></div><td>%s<td>",
              (unsigned long long)r->count, zb_bytes(each, r->bytes), zb_bytes(all, (uint64_t)bytes),
              most > 0 ? 120 * bytes / most : 0, zp_sent_op(r->op));
  put(g, r->over);
  zb_text_add(g->out, "<td>");
  put(g, r->what);
  zb_text_add(g->out, "<td>");
  put(g, r->why);
  zb_text_add(g->out, "</tr>\n");
}

static void sent_table(Page *g, const ZpSent *rows, uint32_t n, double most) {
  zb_text_add(g->out,
              "<div class=\"frame\"><table class=\"sent\"><tr><th>stages<th>times<th>bytes each<th>a rank "
              "sends<th><th>what<th>over<th>tensor<th>cause</tr>\n");
  for (uint32_t i = 0; i < n; i++) sent_row(g, &rows[i], most);
  zb_text_add(g->out, "</table></div>\n");
}

/* All together, by what is done over which dims. */
typedef struct {
  const char *what;
  double bytes;
} Sum;

static int by_sum(const void *a, const void *b) {
  const Sum *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void sent_sums(Page *g, const ZpSents *t, const char *id) {
  Sum *sum = ZB_NEWN(g->a, Sum, t->n);
  uint32_t n = 0, seen = 0;
  char text[24];
  for (uint32_t i = 0; i < t->n; i++) {
    const ZpSent *r = &t->rows[i];
    const char *what = zb_printf(g->a, "%s, %s", zp_sent_op(r->op), r->over);
    uint32_t k = 0;
    while (k < n && strcmp(sum[k].what, what)) k++;
    if (k == n) sum[n++].what = what;
    sum[k].bytes += zp_sent_bytes(r) * (r->to - r->from + 1) / g->p->programs.nstages;
  }
  qsort(sum, n, sizeof *sum, by_sum);
  while (seen < n && seen < 16 && sum[seen].bytes >= 1e-4 * sum[0].bytes) seen++;
  begin_drawing(g, id, (int)seen * ROW);
  for (uint32_t k = 0; k < seen; k++) {
    double w = sum[0].bytes > 0 ? (WIDE - 3 * LEFT - 90) * sum[k].bytes / sum[0].bytes : 0;
    const char *bytes = zb_bytes(text, (uint64_t)sum[k].bytes);
    label(g, 0, k * ROW + 14, sum[k].what);
    box(g, 3 * LEFT, k * ROW + 2, w, ROW - 5, colours[k % COLOURS],
        zb_printf(g->a, "%s: %s", sum[k].what, bytes));
    label(g, 3 * LEFT + w + 6, k * ROW + 14, bytes);
  }
  end_drawing(g);
}

/* The largest first; there may be hundreds. */
static void sent(Page *g, const char *id) {
  enum { SHOWN = 12 };
  ZpSents t = zp_sents(g->p, g->a);
  if (t.n) qsort(t.rows, t.n, sizeof *t.rows, by_bytes);
  double most = t.n ? zp_sent_bytes(&t.rows[0]) : 0;
  if (!t.n) {
    zb_text_add(g->out, "<p>nothing</p>\n");
    return;
  }
  sent_sums(g, &t, id);
  sent_table(g, t.rows, t.n < SHOWN ? t.n : SHOWN, most);
  if (t.n <= SHOWN) return;
  zb_text_add(g->out, "<details><summary>%u more, each with less</summary>\n", t.n - SHOWN);
  sent_table(g, t.rows + SHOWN, t.n - SHOWN, most);
  zb_text_add(g->out, "</details>\n");
}

/* Numbers of stages too narrow for them stand at every second, fourth ... one. */
static bool has_number(uint32_t stage, uint32_t nstages) {
  uint32_t every = 1;
  while ((double)WIDE / nstages * every < 26) every *= 2;
  return stage % every == 0;
}

static void cut(Page *g, const char *id) {
  double all = 0;
  for (uint32_t s = 0; s < g->p->programs.nstages; s++) all += g->p->programs.stages[s].cost;
  double x = 0;
  const char **word = ZB_NEWN(g->a, const char *, g->p->graph->nsegments + 1);
  bool *has = ZB_NEWN(g->a, bool, g->p->graph->nsegments + 1);
  begin_drawing(g, id, 62);
  for (uint32_t s = 0; s < g->p->programs.nstages; s++) {
    const ZpStage *st = &g->p->programs.stages[s];
    if (has_number(s, g->p->programs.nstages)) label(g, x + 2, 12, zb_printf(g->a, "%u", s));
    for (uint32_t i = 0; i < st->ninsts; i++) {
      uint32_t of = st->insts[i].segment;
      const ZpSegment *seg = &g->p->programs.segments[of];
      double w = all > 0 ? (WIDE - 2.0 * g->p->programs.nstages) * seg->cost / all : 0;
      ZbText what = {0};
      zp_inst_text(g->p, of, st->insts[i].iter, &what);
      box(g, x, 18, fmax(apart(w), .2), 40, colours[of % COLOURS],
          zb_printf(g->a, "stage %u: %s, %.1f %% of the cost", s, what.s,
                    all > 0 ? 100 * seg->cost / all : 0));
      if (!has[of]) word[of] = zb_printf(g->a, "%.*s", (int)strcspn(what.s, "."), what.s);
      has[of] = true;
      zb_text_free(&what);
      x += w;
    }
    x += 2;
  }
  end_drawing(g);
  legend(g, word, has, (int)g->p->graph->nsegments);
}

/* ---- the page ------------------------------------------------------------------------------------------- */
static void plan(Page *g, uint32_t k) {
  char text[24];
  zb_text_add(g->out, "<h2>recipe ");
  put(g, g->p->asked.recipe->name);
  zb_text_add(g->out, "</h2>\n<p>%lld ranks", (long long)g->p->layout.mesh.nranks);
  for (int d = 0; d < g->p->layout.mesh.ndims; d++)
    zb_text_add(g->out, "%s%s %lld", d ? ", " : ": ", g->p->layout.mesh.dim[d].name,
                (long long)g->p->layout.mesh.dim[d].size);
  zb_text_add(g->out, "; %lld micro-batches; a step is predicted to take <b>%s</b>",
              (long long)g->p->asked.nmicro, zp_seconds_text(text, g->t->seconds));
  if (g->t->utilization > 0) zb_text_add(g->out, ", MFU %.1f %%", 100 * g->t->utilization);
  zb_text_add(g->out, "</p>\n<h3>Where time goes</h3>\n");
  parts(g, zb_printf(g->a, "parts%u", k));
  zb_text_add(g->out, "<h3>The step</h3>\n");
  timeline(g, zb_printf(g->a, "timeline%u", k));
  zb_text_add(g->out, "<h3>Memory of a rank</h3>\n");
  ledger(g, zb_printf(g->a, "ledger%u", k));
  zb_text_add(g->out, "<h3>Memory in use over the step, of the first stage and the last</h3>\n");
  memory(g, zb_printf(g->a, "memory%u", k));
  zb_text_add(g->out, "<h3>The model cut into stages, by cost</h3>\n");
  cut(g, zb_printf(g->a, "cut%u", k));
  zb_text_add(g->out, "<h3>What ranks send each other in a step: a rank, on average of the stages</h3>\n");
  sent(g, zb_printf(g->a, "sent%u", k));
}

static const char *differs(char to[32], double seconds) {
  char text[24];
  snprintf(to, 32, "%s%s", seconds < 0 ? "-" : "+", zp_seconds_text(text, fabs(seconds)));
  return to;
}

static uint64_t fullest(const ZpPlan *p) { return zp_fullest(p)->ledger.total[ZP_DEVICE]; }

static void compare(Page *g, const ZpPaged *of) {
  char a[24], b[24], more[32];
  zb_text_add(g->out, "<h2>Compared</h2>\n<table id=\"compared\"><tr><th>");
  for (int i = 0; i < 2; i++) {
    zb_text_add(g->out, "<th>");
    put(g, of[i].plan->asked.recipe->name);
  }
  zb_text_add(g->out, "<th>difference</tr>\n");
  zb_text_add(g->out, "<tr><td>step<td>%s<td>%s<td>%+.1f %%</tr>\n", zp_seconds_text(a, of[0].time->seconds),
              zp_seconds_text(b, of[1].time->seconds), 100 * (of[1].time->seconds / of[0].time->seconds - 1));
  for (int k = 0; k < ZP_T_PARTS; k++)
    zb_text_add(g->out, "<tr><td>%s<td>%s<td>%s<td>%s</tr>\n", zp_part_word[k],
                zp_seconds_text(a, of[0].time->mean[k]), zp_seconds_text(b, of[1].time->mean[k]),
                differs(more, of[1].time->mean[k] - of[0].time->mean[k]));
  uint64_t x = fullest(of[0].plan), y = fullest(of[1].plan);
  zb_text_add(g->out, "<tr><td>memory of the fullest rank<td>%s<td>%s<td>%+.1f %%</tr>\n</table>\n",
              zb_bytes(a, x), zb_bytes(b, y), 100 * ((double)y / (double)x - 1));
}

/* Light or dark as the reader's machine is; colours of drawings stand on both. */
static const char style[] =
    ":root{color-scheme:light dark;--line:#ddd;--even:#f4f4f4}"
    "@media(prefers-color-scheme:dark){:root{--line:#444;--even:#262626}body{background:#181818;color:#ddd}}"
    "body{font:14px sans-serif;margin:24px;max-width:1000px}h2{margin-top:36px}"
    "@media(max-width:600px){body{margin:12px}h1{font-size:22px}}"
    ".frame{overflow-x:auto;margin:6px 0}svg{display:block}rect{shape-rendering:crispEdges}"
    "svg text{font-size:12px;fill:currentColor}svg line{stroke:var(--line)}"
    "table{border-collapse:collapse;font-size:12px}td,th{padding:2px 8px;text-align:left}"
    "tr:nth-child(even){background:var(--even)}.sent{min-width:960px}.sent div{background:#4477aa;height:9px}"
    ".sent td:nth-child(-n+7),.sent th{white-space:nowrap}"
    ".entry{display:inline-block;white-space:nowrap;margin-right:10px}"
    ".entry "
    "span{display:inline-block;width:10px;height:10px;margin-right:5px}summary{cursor:pointer;margin:8px 0}";

void zp_show_page(const ZpPaged *of, uint32_t n, const ZlCluster *c, ZbText *out) {
  Page g = {.a = zb_arena_new(), .out = out};
  zb_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
  put(&g, of[0].plan->graph->model);
  zb_text_add(out, "</title><style>%s</style></head><body>\n<h1>model ", style);
  put(&g, of[0].plan->graph->model);
  zb_text_add(out, " on cluster ");
  put(&g, c->name);
  zb_text_add(out, "</h1>\n");
  if (n > 1) compare(&g, of);
  for (uint32_t i = 0; i < n; i++) {
    g.p = of[i].plan;
    g.t = of[i].time;
    plan(&g, i);
  }
  zb_text_add(out, "</body></html>\n");
  zb_arena_free(g.a);
}
