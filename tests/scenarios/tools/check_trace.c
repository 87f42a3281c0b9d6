/* check_trace FILE: whether it is a trace by the rules of the trace event format: every event has what its
 * phase needs, threads and processes have names, slices of a thread come in order and lie within each other
 * or apart, arrows have both ends, in slices, the later one behind the earlier. Prints what there is, a line
 * a rank and step:
 *
 *   rank 0 stage 0 step 2 slices 44 nodes 8 arrows 8 arena 1437824 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct {
  int pid, tid, step;
  double ts, end;
  bool node;
} Slice;
typedef struct {
  const char *id;
  int pid, tid;
  double ts;
  bool starts;
} Arrow;
typedef struct {
  ZbArena *a;
  Slice *slice;
  size_t nslice;
  Arrow *arrow;
  size_t narrow;
  bool process[1024];
  int stage[1024];
  struct {
    int pid, tid;
  } * thread;
  size_t nthread;
  double counted[1024], most[1024];
} Trace;

static _Noreturn void bad(const char *what, const cJSON *e) {
  char *text = e ? cJSON_PrintUnformatted(e) : NULL;
  printf("check_trace: %s: %s\n", what, text ? text : "");
  free(text);
  exit(1);
}

static double number(const cJSON *e, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(e, key);
  if (!cJSON_IsNumber(x) || !isfinite(x->valuedouble)) bad(key, e);
  return x->valuedouble;
}
static int whole(const cJSON *e, const char *key) {
  double x = number(e, key);
  if (x != floor(x) || x < 0 || x > 1e9) bad(key, e);
  return (int)x;
}
static const char *string(const cJSON *e, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(e, key);
  if (!cJSON_IsString(x) || !*x->valuestring) bad(key, e);
  return x->valuestring;
}

static void take(Trace *t, const cJSON *e) {
  const char *ph = string(e, "ph"), *name = string(e, "name");
  const cJSON *args = cJSON_GetObjectItemCaseSensitive(e, "args");
  int pid = whole(e, "pid");
  if (pid >= 1024 || strlen(ph) != 1) bad("pid, ph", e);
  switch (*ph) {
  case 'M':
    if (!strcmp(name, "process_name")) {
      if (t->process[pid] || sscanf(string(args, "name"), "rank %*d, stage %d", &t->stage[pid]) != 1)
        bad("a process", e);
      t->process[pid] = true;
    } else if (!strcmp(name, "thread_name")) {
      string(args, "name");
      t->thread = zb_grow(t->a, t->thread, t->nthread, sizeof *t->thread);
      t->thread[t->nthread].pid = pid;
      t->thread[t->nthread++].tid = whole(e, "tid");
    } else if (strcmp(name, "process_sort_index") && strcmp(name, "thread_sort_index"))
      bad("a name of nothing", e);
    else whole(args, "sort_index");
    break;
  case 'X': {
    Slice s = {
        pid, whole(e, "tid"), whole(args, "step"), number(e, "ts"), 0, !strcmp(string(e, "cat"), "node")};
    s.end = s.ts + number(e, "dur");
    if (s.end < s.ts) bad("a slice that ends before it begins", e);
    if (s.node) whole(args, "bytes"), string(args, "over"), string(args, "source");
    ZB_PUSH(t->a, t->slice, t->nslice, s);
    break;
  }
  case 's':
  case 'f': {
    if (*ph == 'f' && strcmp(string(e, "bp"), "e")) bad("an arrow that ends at the next slice", e);
    Arrow x = {string(e, "id"), pid, whole(e, "tid"), number(e, "ts"), *ph == 's'};
    string(e, "cat");
    ZB_PUSH(t->a, t->arrow, t->narrow, x);
    break;
  }
  case 'C': {
    double ts = number(e, "ts"), sum = 0;
    if (ts < t->counted[pid]) bad("a counter that goes back", e);
    t->counted[pid] = ts;
    for (const cJSON *x = args ? args->child : NULL; x; x = x->next) {
      if (!cJSON_IsNumber(x) || x->valuedouble < 0) bad("a count", e);
      sum += x->valuedouble;
    }
    t->most[pid] = fmax(t->most[pid], sum);
    break;
  }
  default: bad("a phase", e);
  }
}

/* In the order in which they are in the file. A stack of those that have not ended. */
static void check_slices(Trace *t) {
  for (size_t k = 0; k < t->nthread; k++) {
    double open[64], at = -INFINITY;
    int n = 0;
    for (size_t i = 0; i < t->nslice; i++) {
      const Slice *s = &t->slice[i];
      if (s->pid != t->thread[k].pid || s->tid != t->thread[k].tid) continue;
      if (s->ts < at) bad("slices out of order", NULL);
      at = s->ts;
      while (n && open[n - 1] <= s->ts + 1e-6) n--; /* a thousandth of what is printed */
      if (n && s->end > open[n - 1] + 1e-6) bad("slices that overlap", NULL);
      if (n == 64) bad("slices too deep", NULL);
      open[n++] = s->end;
    }
  }
  for (size_t i = 0; i < t->nslice; i++) {
    bool named = t->process[t->slice[i].pid];
    size_t k = 0;
    while (k < t->nthread && (t->thread[k].pid != t->slice[i].pid || t->thread[k].tid != t->slice[i].tid))
      k++;
    if (!named || k == t->nthread) bad("a slice of a process or a thread without a name", NULL);
  }
}

static bool in_slice(const Trace *t, const Arrow *x) {
  for (size_t i = 0; i < t->nslice; i++) {
    const Slice *s = &t->slice[i];
    if (s->pid == x->pid && s->tid == x->tid && x->ts >= s->ts - 1e-6 && x->ts <= s->end + 1e-6) return true;
  }
  return false;
}

static void check_arrows(const Trace *t) {
  for (size_t i = 0; i < t->narrow; i++) {
    const Arrow *x = &t->arrow[i];
    int others = 0;
    for (size_t k = 0; k < t->narrow; k++) {
      const Arrow *y = &t->arrow[k];
      if (k == i || strcmp(x->id, y->id)) continue;
      others++;
      if (x->starts == y->starts || (x->starts && x->ts > y->ts) || x->pid == y->pid) bad(x->id, NULL);
    }
    if (others != 1) bad("an arrow without another end", NULL);
    if (!in_slice(t, x)) bad("an arrow beside its slice", NULL);
  }
}

static void print_ranks(const Trace *t) {
  for (int pid = 0; pid < 1024; pid++)
    for (int step = 0, last = -1; t->process[pid]; last = step) {
      int slices = 0, nodes = 0, arrows = 0;
      step = 1 << 30;
      for (size_t i = 0; i < t->nslice; i++)
        if (t->slice[i].pid == pid && t->slice[i].step > last && t->slice[i].step < step)
          step = t->slice[i].step;
      if (step == 1 << 30) break;
      for (size_t i = 0; i < t->nslice; i++)
        if (t->slice[i].pid == pid && t->slice[i].step == step)
          slices += !t->slice[i].node, nodes += t->slice[i].node;
      for (size_t i = 0; i < t->narrow; i++) arrows += t->arrow[i].pid == pid && atoi(t->arrow[i].id) == step;
      printf("rank %d stage %d step %d slices %d nodes %d arrows %d arena %.0f\n", pid, t->stage[pid], step,
             slices, nodes, arrows, t->most[pid]);
    }
}

int main(int argc, char **argv) {
  Trace *t = calloc(1, sizeof *t);
  ZbErr err = {0};
  size_t n;
  if (argc != 2 || !t) return 2;
  t->a = zb_arena_new();
  for (int i = 0; i < 1024; i++) t->counted[i] = -INFINITY;
  char *text = zb_read_file(t->a, argv[1], 1u << 30, &n, &err);
  if (!text) return printf("%s\n", err.text), 2;
  cJSON *o = cJSON_ParseWithOpts(text, NULL, true);
  const cJSON *events = cJSON_GetObjectItemCaseSensitive(o, "traceEvents"), *e;
  if (!cJSON_IsArray(events)) bad("no JSON with traceEvents", NULL);
  cJSON_ArrayForEach(e, events) take(t, e);
  check_slices(t);
  check_arrows(t);
  print_ranks(t);
  cJSON_Delete(o);
  zb_arena_free(t->a);
  free(t);
  return 0;
}
