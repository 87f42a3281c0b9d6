/* Traces in Chrome's and Perfetto's JSON format of what ranks do, or are predicted to do: a process per rank, its
 * queues as threads, instructions as slices, arrows from sends to receives, and the arena's bytes in use.
 *
 * Chrome's format wants slices of a thread to lie within each other or apart; instructions of the transfer
 * and the collective queue may be under way together, so each of these queues has as many threads as it
 * needs. Text in it is the plan's: names of the model, without quotes. */
#include "runtime/plan/output/tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 1000 }; /* numbers of a queue's threads are apart by so many */
const char zp_trace_head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", zp_trace_tail[] = "\n]}\n";
bool zp_is_trace(const uint8_t *begin, size_t n) { return n >= 16 && !memcmp(begin, zp_trace_head, 16); }

static const char *const queue_text[ZP_QUEUES] = {"compute", "transfers", "collectives",
                                                  "collectives within forward and backward"};

typedef struct {
  const ZpPlan *p;
  const ZpStage *st;
  int64_t rank, process;
  uint32_t stage;
  double clock, zero;
  bool predicted;
  ZbArena *a;
  ZbJson json;
  ZbText text;
  const ZpSpan *of;     /* spans of the step, ... */
  const ZpSpan **instr; /* ... and of its instructions; NULL: it was not come to */
} Trace;

/* Microseconds, in whole nanoseconds: what lies within another slice, or behind it, does so when it is
 * printed. */
static double us(const Trace *t, double at) { return rint(1e9 * (at + t->clock - t->zero)) / 1e3; }

static const char *instr_text(Trace *t, const ZpInstr *in) {
  t->text.len = 0;
  zp_instr_text(t->p, t->stage, in, &t->text);
  return t->text.s;
}

/* ---- events ---- */
static void begin_event(Trace *t, const char *kind, const char *category, const char *name) {
  ZbJson *j = &t->json;
  if (j->more) zb_json_line(j, 0);
  zb_json_object(j, NULL);
  zb_json_string(j, "ph", kind);
  if (category) zb_json_string(j, "cat", category);
  if (name) zb_json_string(j, "name", name);
}

static void put_track(Trace *t, uint32_t thread) {
  zb_json_int(&t->json, "pid", t->process);
  zb_json_count(&t->json, "tid", thread);
}

static void put_us(Trace *t, const char *key, double us) { zb_json_raw(&t->json, key, "%.3f", us); }

/* Ends the event and its arguments. */
static void end_event(Trace *t) {
  zb_json_end(&t->json);
  zb_json_end(&t->json);
}

/* ---- names ---- */
/* Names a process or a thread, or says where it is sorted. */
static void put_meta(Trace *t, const char *what, uint32_t thread, const char *name, uint32_t sort) {
  begin_event(t, "M", NULL, what);
  put_track(t, thread);
  zb_json_object(&t->json, "args");
  if (name) zb_json_string(&t->json, "name", name);
  else zb_json_count(&t->json, "sort_index", sort);
  end_event(t);
}

static void put_process(Trace *t) {
  const char *name =
      zb_printf(t->a, "rank %" PRId64 ", stage %u%s", t->rank, t->stage, t->predicted ? ", predicted" : "");
  put_meta(t, "process_name", 0, name, 0);
  put_meta(t, "process_sort_index", 0, NULL, (uint32_t)t->rank);
}

static void put_thread(Trace *t, ZpQueue q, uint32_t lane) {
  uint32_t id = (uint32_t)q * THREADS + lane + 1;
  put_meta(t, "thread_name", id, lane ? zb_printf(t->a, "%s %u", queue_text[q], lane + 1) : queue_text[q], 0);
  put_meta(t, "thread_sort_index", id, NULL, id);
}

/* ---- slices ---- */
/* Returns the instruction that was complete last among those that it waited for; NULL: it waited for none. */
static const ZpInstr *waited_for(const Trace *t, const ZpInstr *in) {
  const ZpSpan *last = NULL;
  for (uint32_t i = 0; i < in->nwait; i++) {
    const ZpSpan *s = t->instr[in->wait[i]];
    if (s && (!last || s->end > last->end)) last = s;
  }
  return last ? &t->st->prog.instrs[last->instr] : NULL;
}

static void begin_slice(Trace *t, const ZpSpan *s, const char *name, const char *kind, uint32_t thread) {
  begin_event(t, "X", kind, NULL);
  put_track(t, thread);
  put_us(t, "ts", us(t, s->begin));
  put_us(t, "dur", us(t, s->end) - us(t, s->begin));
  zb_json_string(&t->json, "name", name);
  zb_json_object(&t->json, "args");
  zb_json_int(&t->json, "step", s->step);
}

static bool has_microbatch(const ZpInstr *in) {
  switch ((ZpInstrOp)in->op) {
  case ZP_I_LOAD:
  case ZP_I_COUNT:
  case ZP_I_FWD:
  case ZP_I_BWD:
  case ZP_I_SEND_ACT:
  case ZP_I_RECV_ACT:
  case ZP_I_SEND_GRAD:
  case ZP_I_RECV_GRAD: return true;
  case ZP_I_SCATTER_GRADS: return !in->in_place;
  default: return false;
  }
}

static void put_instr(Trace *t, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &t->st->prog.instrs[s->instr], *cause = waited_for(t, in);
  ZbJson *j = &t->json;
  begin_slice(t, s, instr_text(t, in), queue_text[in->queue], thread);
  if (has_microbatch(in)) zb_json_count(j, "micro-batch", in->mb);
  uint64_t bytes = zp_instr_bytes(t->p, in);
  if (bytes) zb_json_count(j, "bytes", bytes);
  if (in->queue == ZP_Q_P2P) zb_json_int(j, "peer", zp_rank_of_stage(&t->p->layout.mesh, t->rank, in->peer));
  if (bytes && in->queue == ZP_Q_COLL && in->dims) {
    zb_json_string(j, "collective", zg_op_info[in->coll].text);
    zb_json_string(j, "over", zp_dims_text(&t->p->layout.mesh, t->a, in->dims));
  }
  if (cause) zb_json_string(j, "cause", zb_printf(t->a, "after %s", instr_text(t, cause)));
  end_event(t);
}

static const ZpNode *node_of(const Trace *t, const ZpSpan *s) {
  const ZpInstr *in = &t->st->prog.instrs[s->instr];
  return &t->p->programs.segments[t->st->insts[in->inst].segment].list[zp_phase(in->op)].nodes[s->node];
}

static void put_node(Trace *t, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &t->st->prog.instrs[s->instr];
  const ZpNode *n = node_of(t, s);
  ZbJson *j = &t->json;
  begin_slice(t, s, zg_op_info[n->call.op].text, "node", thread);
  zb_json_count(j, "micro-batch", in->mb);
  zb_json_count(j, "bytes", s->bytes);
  zb_json_string(j, "over", zp_dims_text(&t->p->layout.mesh, t->a, n->dims));
  zb_json_string(j, "source", zp_loc_text(t->p, n->loc));
  if (n->cause) zb_json_string(j, "cause", n->cause);
  end_event(t);
}

/* Puts an arrow's end: a transfer has the same step, pair and sender on both ranks. */
static void put_arrow(Trace *t, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &t->st->prog.instrs[s->instr];
  ZbJson *j = &t->json;
  bool sends = in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD,
       grad = in->op == ZP_I_SEND_GRAD || in->op == ZP_I_RECV_GRAD;
  int64_t sender = sends ? t->rank : zp_rank_of_stage(&t->p->layout.mesh, t->rank, in->peer);
  sender += t->process - t->rank;
  double end = us(t, s->end) - (us(t, s->end) > us(t, s->begin) ? 1e-3 : 0); /* within the slice */
  begin_event(t, sends ? "s" : "f", NULL, NULL);
  if (!sends) zb_json_string(j, "bp", "e");
  zb_json_string(j, "cat", "transfer");
  zb_json_string(j, "name", grad ? "gradient" : "activation");
  zb_json_raw(j, "id", "\"%" PRId64 ".%u.%" PRId64 "\"", s->step, in->pair, sender);
  put_track(t, thread);
  put_us(t, "ts", sends ? us(t, s->begin) : end);
  zb_json_end(j);
}

/* ---- threads ---- */
static int by_begin(const void *a, const void *b) {
  const ZpSpan *x = *(const ZpSpan *const *)a, *y = *(const ZpSpan *const *)b;
  if (x->begin != y->begin) return (x->begin > y->begin) - (x->begin < y->begin);
  if (x->end != y->end)
    return (x->end < y->end) - (x->end > y->end); /* what holds others comes before them */
  return (x->node < y->node) - (x->node > y->node);
}

typedef struct {
  double *end; /* of the latest slice of each */
  uint32_t n;
} Lanes;

static uint32_t lane_of(Trace *t, Lanes *l, ZpQueue q, const ZpSpan *s) {
  uint32_t k = 0;
  while (k < l->n && l->end[k] > s->begin) k++;
  if (k == l->n) {
    ZB_PUSH(t->a, l->end, l->n, 0);
    put_thread(t, q, k);
  }
  l->end[k] = s->end;
  return k;
}

static void put_slices(Trace *t, const ZpSpan **s, uint64_t n, Lanes lanes[ZP_QUEUES]) {
  for (uint64_t i = 0; i < n; i++) {
    const ZpInstr *in = &t->st->prog.instrs[s[i]->instr];
    ZpQueue q = (ZpQueue)in->queue;
    uint32_t thread = (uint32_t)q * THREADS + 1;
    if (s[i]->node != ZP_NONE) {
      if (node_of(t, s[i])->until > s[i]->node + 1)
        thread = ZP_Q_NODES * THREADS + 1 + lane_of(t, &lanes[ZP_Q_NODES], ZP_Q_NODES, s[i]);
      put_node(t, s[i], thread);
      continue;
    }
    if (q == ZP_Q_COMPUTE) {
      if (!lanes[q].n) lane_of(t, &lanes[q], q, s[i]);
    } else thread += lane_of(t, &lanes[q], q, s[i]);
    put_instr(t, s[i], thread);
    if (q == ZP_Q_P2P) put_arrow(t, s[i], thread);
  }
}

/* ---- the arena ---- */
static void put_use(Trace *t, const ZpUse *u) {
  begin_event(t, "C", NULL, "arena");
  zb_json_int(&t->json, "pid", t->process);
  put_us(t, "ts", us(t, u->at));
  zb_json_object(&t->json, "args");
  for (int i = 0; i < ZP_USES; i++) zb_json_int(&t->json, zp_use_text[i], u->bytes[i]);
  end_event(t);
}

static void put_arena(Trace *t) {
  size_t n;
  const ZpUse *uses = zp_uses(t->a, t->st, t->instr, &n);
  for (size_t i = 0; i < n; i++) put_use(t, &uses[i]);
}

/* ---- a rank ---- */
/* Spans of one step. */
static void put_step(Trace *t, const ZpSpan *spans, uint64_t n, Lanes lanes[ZP_QUEUES]) {
  const ZpSpan **s = ZB_NEWN(t->a, const ZpSpan *, n);
  memset(t->instr, 0, t->st->prog.ninstrs * sizeof *t->instr);
  for (uint64_t i = 0; i < n; i++) {
    s[i] = &spans[i];
    if (spans[i].node == ZP_NONE) t->instr[spans[i].instr] = s[i];
  }
  qsort(s, n, sizeof *s, by_begin);
  put_slices(t, s, n, lanes);
  put_arena(t);
}

void zp_trace_events(const ZpPlan *p, int64_t rank, const ZpSpan *spans, uint64_t n, double clock,
                     double zero, bool predicted, ZbText *out) {
  uint32_t stage =
      p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe);
  Trace t = {.p = p,
             .st = &p->programs.stages[stage],
             .rank = rank,
             .process = rank + (predicted ? p->layout.mesh.nranks : 0),
             .stage = stage,
             .clock = clock,
             .zero = zero,
             .predicted = predicted,
             .a = zb_arena_new(),
             .json = {.text = out}};
  Lanes lanes[ZP_QUEUES] = {0};
  t.instr = ZB_NEWN(t.a, const ZpSpan *, t.st->prog.ninstrs);
  put_process(&t);
  for (uint64_t i = 0; i < n;) {
    uint64_t from = i;
    while (i < n && spans[i].step == spans[from].step) i++;
    put_step(&t, spans + from, i - from, lanes);
  }
  zb_text_free(&t.text);
  zb_arena_free(t.a);
}
