/* A predicted step beside a measured one, from their traces: both are read back as text, so whatever a trace
 * says is compared alike. Of each stage the first rank is looked at, for which the prediction is made. */
#include "runtime/plan/output/compare.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------------------
 * A trace may be gigabytes, and anybody's: each byte is looked at a few times at most, and what is kept of a
 * slice is smaller than its line. */
typedef struct {
  uint32_t what; /* among the names: "FWD(layer)", of all iterations and micro-batches */
  int64_t process, step;
  double begin, seconds;
} Event;
typedef struct {
  Event *at;
  size_t n;
  int64_t processes; /* the highest number, and one */
} Events;

/* Returns the number of a text, of which there is one copy. */
static uint32_t number_of(ZbArena *a, ZbNames *names, const char *text) {
  uint32_t i = zb_names_find(names, text);
  return i == ZB_NO_NAME ? zb_names_add(a, names, zb_strdup(a, text)) : i;
}

/* Writes the kind of a slice into `t`: that of "FWD(layer.3, mb 1)" is "FWD(layer)", that of a node's
 * "all_reduce" is "all_reduce in forward or backward". */
static void put_kind(ZbText *t, bool node, const char *name, const char *end) {
  t->len = 0;
  zb_text_add(t, "%s", "");
  for (const char *c = name; c < end; c++) {
    if (*c == ',' && end - c > 4 && !strncmp(c, ", mb", 4)) {
      zb_text_add(t, ")");
      break;
    }
    if (*c == '.' && c + 1 < end && c[1] >= '0' && c[1] <= '9') {
      while (c + 1 < end && c[1] >= '0' && c[1] <= '9') c++;
      continue;
    }
    zb_text_put(t, c, 1);
  }
  bool micro = !strncmp(t->s, "LOAD(", 5) || strstr(t->s, "(mb "); /* named by their micro-batch alone */
  if (micro) t->len = strcspn(t->s, "("), t->s[t->len] = 0;
  if (node) zb_text_add(t, " in forward or backward");
}

/* The rest of a line. */
typedef struct {
  const char *at, *end;
} Rest;

static bool skip(Rest *r, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n)) return false;
  r->at += n;
  return true;
}

/* A number, as far as it is one. */
static bool take_number(Rest *r, double *x) {
  char text[40], *end;
  size_t n = 0;
  while (n < sizeof text - 1 && r->at + n < r->end && strchr("+-.0123456789eE", r->at[n])) n++;
  memcpy(text, r->at, n);
  text[n] = 0;
  *x = strtod(text, &end);
  r->at += end - text;
  return end != text && isfinite(*x);
}

static bool take_whole(Rest *r, int64_t *x) {
  double number;
  if (!take_number(r, &number) || number != floor(number) || fabs(number) > 0x1p53) return false;
  *x = (int64_t)number;
  return true;
}

/* Takes a line of a trace that is a slice; `t` is room. */
static bool read_event(ZbArena *a, ZbNames *names, ZbText *t, Rest r, Event *e) {
  int64_t thread;
  double ts, dur;
  if (!skip(&r, "{\"ph\":\"X\",\"cat\":\"")) return false;
  Rest category = r;
  bool node = skip(&category, "node\"");
  while (r.at < r.end && *r.at >= 'a' && *r.at <= 'z') r.at++;
  if (!skip(&r, "\",\"pid\":") || !take_whole(&r, &e->process) || e->process < 0 || !skip(&r, ",\"tid\":") ||
      !take_whole(&r, &thread) || !skip(&r, ",\"ts\":") || !take_number(&r, &ts) || !skip(&r, ",\"dur\":") ||
      !take_number(&r, &dur) || !skip(&r, ",\"name\":\""))
    return false;
  const char *name = r.at, *end = memchr(name, '"', (size_t)(r.end - name));
  if (!end) return false;
  for (r.at = end; r.at < r.end && !skip(&r, "\"step\":"); r.at++) continue;
  if (!take_whole(&r, &e->step)) return false;
  put_kind(t, node, name, end);
  e->what = number_of(a, names, t->s);
  e->begin = ts * 1e-6;
  e->seconds = dur * 1e-6;
  return true;
}

static Events read_events(ZbArena *a, ZbNames *names, const char *text) {
  Events all = {0};
  ZbText t = {0};
  for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
    Event e;
    end = line + strcspn(line, "\n");
    if (!read_event(a, names, &t, (Rest){line, end}, &e)) continue;
    ZB_PUSH(a, all.at, all.n, e);
    if (e.process >= all.processes) all.processes = e.process + 1;
  }
  zb_text_free(&t);
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
  ZbNames keys; /* of the same numbers: stage and what */
} Rows;

static Row *row_of(ZbArena *a, Rows *rows, uint32_t stage, const char *what) {
  char stages[16];
  ZbText key = {0};
  snprintf(stages, sizeof stages, "%u ", stage);
  zb_text_add(&key, "%s", stages);
  zb_text_put(&key, what, strlen(what));
  uint32_t i = number_of(a, &rows->keys, key.s);
  zb_text_free(&key);
  if (i == rows->n) ZB_PUSH(a, rows->at, rows->n, ((Row){.stage = stage, .what = what}));
  return &rows->at[i];
}

typedef struct {
  int64_t step;
  double begin, end;
} Slice;

static int by_step(const void *a, const void *b) {
  const Slice *x = a, *y = b;
  return (x->step > y->step) - (x->step < y->step);
}

/* Returns how many steps there are, and how long one takes in the mean: from its first slice to the end of
 * its last. */
static uint64_t steps_in(ZbArena *a, const Events *e, double *seconds) {
  Slice *all = ZB_NEWN(a, Slice, e->n + 1);
  uint64_t n = 0;
  double sum = 0;
  for (size_t i = 0; i < e->n; i++)
    all[i] = (Slice){e->at[i].step, e->at[i].begin, e->at[i].begin + e->at[i].seconds};
  qsort(all, e->n, sizeof *all, by_step);
  for (size_t i = 0, k; i < e->n; i = k, n++) {
    double from = INFINITY, to = 0;
    for (k = i; k < e->n && all[k].step == all[i].step; k++)
      from = fmin(from, all[k].begin), to = fmax(to, all[k].end);
    sum += to - from;
  }
  *seconds = sum / (double)n;
  return n;
}

/* Adds the slices of the first rank of each stage, divided by the steps that there are. */
static void add(const ZpPlan *p, ZbArena *a, const ZbNames *names, const Events *e, uint64_t steps, int which,
                Rows *rows) {
  double each = 1 / (double)steps;
  for (size_t i = 0; i < e->n; i++) {
    int64_t rank = e->at[i].process - (which ? 0 : p->layout.mesh.nranks);
    uint32_t stage =
        p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe);
    if (rank != (p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->layout.mesh, 0, stage))) continue;
    Row *r = row_of(a, rows, stage, names->name[e->at[i].what]);
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

static void show(const Row *rows, uint32_t n, double predicted, double measured, ZbText *out) {
  zb_text_add(out, "a step: %.4g ms predicted, %.4g ms measured (%+.1f %%)\n", 1e3 * predicted,
              1e3 * measured, 100 * (measured / predicted - 1));
  zb_text_add(out, "\nthe largest differences, of the first rank of each stage; milliseconds a step\n");
  zb_text_add(out, "  %5s  %-40s %7s %11s %11s %11s\n", "stage", "what", "times", "predicted", "measured",
              "difference");
  for (uint32_t i = 0; i < n && i < 10; i++)
    zb_text_add(out, "  %5u  %-40s %7.4g %11.3f %11.3f %+11.3f\n", rows[i].stage, zb_show(rows[i].what),
                fmax(rows[i].times[0], rows[i].times[1]), 1e3 * rows[i].seconds[0], 1e3 * rows[i].seconds[1],
                1e3 * (rows[i].seconds[1] - rows[i].seconds[0]));
}

static void predicted_events(const ZpPlan *p, const ZpTime *t, double clock, ZbText *out) {
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    int64_t rank = p->layout.mesh.pipe < 0 ? 0 : zp_rank_of_stage(&p->layout.mesh, 0, s);
    if (s) zb_text_add(out, ",\n");
    zp_trace_events(p, rank, t->stages[s].spans, t->stages[s].nspans, clock, 0, true, out);
  }
}

bool zp_compare(const ZpPlan *p, const ZpTime *t, const char *trace, ZbText *out, ZbText *both, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  ZbNames names = {0};
  Events measured = read_events(a, &names, trace);
  const char *tail = strstr(trace, zp_trace_tail);
  bool fits = measured.n && tail && measured.processes == p->layout.mesh.nranks;
  if (!measured.n || !tail) {
    zb_fail(err, "write it by zrun train --trace FILE", "there is no step in the trace");
  } else if (!fits) {
    zb_fail(err, "give the recipe that the run had", "the trace is of %lld ranks, recipe %s is for %lld",
            (long long)measured.processes, p->asked.recipe->name, (long long)p->layout.mesh.nranks);
  } else {
    ZbText events = {0};
    double first = INFINITY;
    for (size_t i = 0; i < measured.n; i++) first = fmin(first, measured.at[i].begin);
    predicted_events(p, t, first, &events);
    Events predicted = read_events(a, &names, events.s);
    Rows rows = {0};
    double of_one, takes;
    uint64_t one = steps_in(a, &predicted, &of_one), steps = steps_in(a, &measured, &takes);
    add(p, a, &names, &predicted, one, 0, &rows);
    add(p, a, &names, &measured, steps, 1, &rows);
    qsort(rows.at, rows.n, sizeof *rows.at, farthest_first);
    show(rows.at, rows.n, t->seconds, takes, out);
    zb_text_put(both, trace, (size_t)(tail - trace));
    zb_text_add(both, ",\n");
    zb_text_put(both, events.s, events.len);
    zb_text_add(both, "%s", zp_trace_tail);
    zb_text_free(&events);
  }
  zb_arena_free(a);
  return fits;
}
