/* A predicted step beside a measured one, from their traces: both are read back as text, so whatever a trace
 * says is compared alike. Of each stage the first rank is looked at, for which the prediction is made. */
#include "runtime/plan/time/time.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------------------------------------- */
typedef struct {
  const char *what; /* "FWD(layer)": of all iterations and micro-batches */
  int64_t process, step;
  double begin, seconds;
} Event;
typedef struct {
  Event *at;
  size_t n;
  int64_t processes; /* the highest number, and one */
} Events;

/* "FWD(layer.3, mb 1)" is of "FWD(layer)", a node's "all_reduce" of "all_reduce in forward or backward". */
static const char *kind_of(ZbArena *a, const char *category, const char *name, size_t n) {
  ZbText t = {0};
  for (size_t i = 0; i < n; i++) {
    if (name[i] == ',' && i + 4 < n && !strncmp(name + i, ", mb", 4)) {
      zb_text_add(&t, ")");
      break;
    }
    if (name[i] == '.' && i + 1 < n && name[i + 1] >= '0' && name[i + 1] <= '9') {
      while (i + 1 < n && name[i + 1] >= '0' && name[i + 1] <= '9') i++;
      continue;
    }
    zb_text_put(&t, name + i, 1);
  }
  const char *text = t.s ? t.s : "";
  bool micro = !strncmp(text, "LOAD(", 5) || strstr(text, "(mb "); /* named by their micro-batch alone */
  text = zb_printf(a, "%.*s%s", micro ? (int)strcspn(text, "(") : (int)strlen(text), text,
                   strcmp(category, "node") ? "" : " in forward or backward");
  zb_text_free(&t);
  return text;
}

/* A line of a trace that is a slice. */
static bool read_event(ZbArena *a, const char *line, Event *e) {
  static const char form[] =
      "{\"ph\":\"X\",\"cat\":\"%15[a-z]\",\"pid\":%lld,\"tid\":%*u,\"ts\":%lf,\"dur\":%lf,\"name\":\"%n";
  char category[16];
  long long process, step;
  double ts, dur;
  int at = 0;
  if (sscanf(line, form, category, &process, &ts, &dur, &at) < 4 || !at) return false;
  if (process < 0 || process > INT32_MAX || !isfinite(ts) || !isfinite(dur)) return false;
  const char *name = line + at, *end = strchr(name, '"'), *args = end ? strstr(end, "\"step\":") : NULL;
  if (!args || sscanf(args, "\"step\":%lld", &step) != 1) return false;
  *e = (Event){kind_of(a, category, name, (size_t)(end - name)), process, step, ts * 1e-6, dur * 1e-6};
  return true;
}

/* Each line is looked at by itself: sscanf takes as long as all that is left of a text. */
static Events read_events(ZbArena *a, const char *text) {
  Events all = {0};
  ZbText line = {0};
  for (const char *at = text; at && *at; at = (at = strchr(at, '\n')) ? at + 1 : NULL) {
    Event e;
    if (*at != '{') continue;
    line.len = 0;
    zb_text_put(&line, at, strcspn(at, "\n"));
    if (!read_event(a, line.s, &e)) continue;
    ZB_PUSH(a, all.at, all.n, e);
    if (e.process >= all.processes) all.processes = e.process + 1;
  }
  zb_text_free(&line);
  return all;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */
typedef struct {
  uint32_t stage;
  const char *what;
  double seconds[2]; /* predicted, measured; of a step */
  double times[2];
} Row;

typedef struct {
  Row *at;
  uint32_t n;
  ZbNames names; /* of each: its stage and what it is */
} Rows;

static Row *row_of(ZbArena *a, Rows *rows, uint32_t stage, const char *what) {
  const char *name = zb_printf(a, "%u %s", stage, what);
  uint32_t i = zb_names_find(&rows->names, name);
  if (i != ZB_NO_NAME) return &rows->at[i];
  Row r = {.stage = stage, .what = what};
  ZB_PUSH(a, rows->at, rows->n, r);
  return &rows->at[zb_names_add(a, &rows->names, name)];
}

typedef struct {
  int64_t step;
  double begin, end; /* of its first slice, of its last */
} Step;

static int by_step(const void *a, const void *b) {
  const Step *x = a, *y = b;
  return x->step < y->step ? -1 : x->step > y->step;
}

/* The steps that there are, in their order. */
static uint32_t steps_in(ZbArena *a, const Events *e, Step **out) {
  Step *s = ZB_NEWN(a, Step, e->n + 1);
  uint32_t n = 0;
  for (size_t i = 0; i < e->n; i++)
    s[i] = (Step){e->at[i].step, e->at[i].begin, e->at[i].begin + e->at[i].seconds};
  qsort(s, e->n, sizeof *s, by_step);
  for (size_t i = 0; i < e->n; i++) {
    if (!n || s[n - 1].step != s[i].step) {
      s[n++] = s[i];
      continue;
    }
    s[n - 1].begin = fmin(s[n - 1].begin, s[i].begin);
    s[n - 1].end = fmax(s[n - 1].end, s[i].end);
  }
  *out = s;
  return n;
}

/* Adds the slices of the first rank of each stage, divided by the steps that there are. */
static void add(const ZpPlan *p, ZbArena *a, const Events *e, int which, Rows *rows) {
  Step *steps;
  double each = 1 / (double)steps_in(a, e, &steps);
  for (size_t i = 0; i < e->n; i++) {
    int64_t rank = e->at[i].process - (which ? 0 : p->mesh.nranks);
    uint32_t stage = p->mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->mesh, rank, p->mesh.pipe);
    if (rank != (p->mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->mesh, 0, stage))) continue;
    Row *r = row_of(a, rows, stage, e->at[i].what);
    r->seconds[which] += e->at[i].seconds * each;
    r->times[which] += each;
  }
}

static int farthest_first(const void *a, const void *b) {
  const Row *x = a, *y = b;
  double dx = fabs(x->seconds[1] - x->seconds[0]), dy = fabs(y->seconds[1] - y->seconds[0]);
  if (dx != dy) return dx < dy ? 1 : -1;
  return x->stage != y->stage ? (x->stage > y->stage ? 1 : -1) : strcmp(x->what, y->what);
}

/* From the first slice of a step to the end of its last, in the mean of the steps. */
static double step_seconds(ZbArena *a, const Events *e) {
  Step *steps;
  double sum = 0;
  uint32_t n = steps_in(a, e, &steps);
  for (uint32_t i = 0; i < n; i++) sum += steps[i].end - steps[i].begin;
  return sum / n;
}

static void show(const Row *rows, uint32_t n, double predicted, double measured, ZbText *out) {
  zb_text_add(out, "a step: %.4g ms predicted, %.4g ms measured (%+.1f %%)\n", 1e3 * predicted,
              1e3 * measured, 100 * (measured / predicted - 1));
  zb_text_add(out, "\nthe largest differences, of the first rank of each stage; milliseconds a step\n");
  zb_text_add(out, "  %5s  %-40s %7s %11s %11s %11s\n", "stage", "what", "times", "predicted", "measured",
              "difference");
  for (uint32_t i = 0; i < n && i < 10; i++)
    zb_text_add(out, "  %5u  %-40s %7.4g %11.3f %11.3f %+11.3f\n", rows[i].stage, rows[i].what,
                fmax(rows[i].times[0], rows[i].times[1]), 1e3 * rows[i].seconds[0], 1e3 * rows[i].seconds[1],
                1e3 * (rows[i].seconds[1] - rows[i].seconds[0]));
}

static void predicted_events(const ZpPlan *p, const ZpTime *t, double clock, ZbText *out) {
  for (uint32_t s = 0; s < p->nstages; s++) {
    int64_t rank = p->mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->mesh, 0, s);
    if (s) zb_text_add(out, ",\n");
    zp_trace_events(p, rank, t->stages[s].spans, t->stages[s].nspans, clock, 0, true, out);
  }
}

bool zp_compare(const ZpPlan *p, const ZpTime *t, const char *trace, ZbText *out, ZbText *both, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  Events measured = read_events(a, trace);
  const char *tail = strstr(trace, zp_trace_tail);
  bool fits = measured.n && tail && measured.processes == p->mesh.nranks;
  if (!measured.n || !tail) {
    zb_fail(err, "write it by zrun train --trace FILE", "there is no step in the trace");
  } else if (!fits) {
    zb_fail(err, "give the recipe that the run had", "the trace is of %lld ranks, recipe %s is for %lld",
            (long long)measured.processes, p->recipe->name, (long long)p->mesh.nranks);
  } else {
    ZbText events = {0};
    double first = INFINITY;
    for (size_t i = 0; i < measured.n; i++) first = fmin(first, measured.at[i].begin);
    predicted_events(p, t, first, &events);
    Events predicted = read_events(a, events.s);
    Rows rows = {0};
    add(p, a, &predicted, 0, &rows);
    add(p, a, &measured, 1, &rows);
    qsort(rows.at, rows.n, sizeof *rows.at, farthest_first);
    show(rows.at, rows.n, t->seconds, step_seconds(a, &measured), out);
    zb_text_put(both, trace, (size_t)(tail - trace));
    zb_text_add(both, ",\n");
    zb_text_put(both, events.s, events.len);
    zb_text_add(both, "%s", zp_trace_tail);
    zb_text_free(&events);
  }
  zb_arena_free(a);
  return fits;
}
