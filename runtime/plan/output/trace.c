/* What a rank does, or is predicted to do, as a trace of Chrome's and Perfetto's JSON format: a process a
 * rank, queues as its threads, instructions as slices, arrows from sends to receives, and what of the arena
 * is in use.
 *
 * Chrome's format wants slices of a thread to lie within each other or apart; instructions of the transfer
 * and the collective queue may be under way together, so each of these queues has as many threads as it
 * needs. Text in it is the plan's: names of the model, without quotes. */
#include "runtime/plan/text.h"

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
  ZbText *out, text;
  const ZpSpan *of;     /* spans of the step, ... */
  const ZpSpan **instr; /* ... and of its instructions; NULL: it was not come to */
} Json;

/* Microseconds, in whole nanoseconds: what lies within another slice, or behind it, does so when it is
 * printed. */
static double us(const Json *j, double t) { return rint(1e9 * (t + j->clock - j->zero)) / 1e3; }

static const char *instr_text(Json *j, const ZpInstr *in) {
  j->text.len = 0;
  zp_instr_text(j->p, j->stage, in, &j->text);
  return j->text.s;
}

/* ---- names ---- */
static void put_meta(Json *j, const char *what, uint32_t thread, const char *key, const char *value,
                     uint32_t sort) {
  zb_text_add(j->out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%u,\"args\":{\"%s\":", what,
              j->process, thread, key);
  if (value) zb_text_json(j->out, value);
  else zb_text_add(j->out, "%u", sort);
  zb_text_add(j->out, "}},\n");
}

static void put_process(Json *j) {
  const char *name =
      zb_printf(j->a, "rank %" PRId64 ", stage %u%s", j->rank, j->stage, j->predicted ? ", predicted" : "");
  put_meta(j, "process_name", 0, "name", name, 0);
  put_meta(j, "process_sort_index", 0, "sort_index", NULL, (uint32_t)j->rank);
}

static void put_thread(Json *j, ZpQueue q, uint32_t lane) {
  uint32_t id = (uint32_t)q * THREADS + lane + 1;
  put_meta(j, "thread_name", id, "name",
           lane ? zb_printf(j->a, "%s %u", queue_text[q], lane + 1) : queue_text[q], 0);
  put_meta(j, "thread_sort_index", id, "sort_index", NULL, id);
}

/* ---- slices ---- */
/* Which of those that it waited for was complete last; NULL: it waited for none. */
static const ZpInstr *waited_for(const Json *j, const ZpInstr *in) {
  const ZpSpan *last = NULL;
  for (uint32_t i = 0; i < in->nwait; i++) {
    const ZpSpan *s = j->instr[in->wait[i]];
    if (s && (!last || s->end > last->end)) last = s;
  }
  return last ? &j->st->prog.instrs[last->instr] : NULL;
}

static void begin_slice(Json *j, const ZpSpan *s, const char *name, const char *kind, uint32_t thread) {
  zb_text_add(
      j->out,
      "{\"ph\":\"X\",\"cat\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":", kind,
      j->process, thread, us(j, s->begin), us(j, s->end) - us(j, s->begin));
  zb_text_json(j->out, name);
  zb_text_add(j->out, ",\"args\":{\"step\":%" PRId64, s->step);
}

static void put_text(Json *j, const char *key, const char *value) {
  zb_text_add(j->out, ",\"%s\":", key);
  zb_text_json(j->out, value);
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

static void put_instr(Json *j, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &j->st->prog.instrs[s->instr], *cause = waited_for(j, in);
  begin_slice(j, s, instr_text(j, in), queue_text[in->queue], thread);
  if (has_microbatch(in)) zb_text_add(j->out, ",\"micro-batch\":%u", in->mb);
  uint64_t bytes = zp_instr_bytes(j->p, in);
  if (bytes) zb_text_add(j->out, ",\"bytes\":%" PRIu64, bytes);
  if (in->queue == ZP_Q_P2P)
    zb_text_add(j->out, ",\"peer\":%" PRId64, zp_rank_of_stage(&j->p->layout.mesh, j->rank, in->peer));
  if (bytes && in->queue == ZP_Q_COLL && in->dims) {
    put_text(j, "collective", zg_op_info[in->coll].text);
    put_text(j, "over", zp_dims_text(&j->p->layout.mesh, j->a, in->dims));
  }
  if (cause) put_text(j, "cause", zb_printf(j->a, "after %s", instr_text(j, cause)));
  zb_text_add(j->out, "}},\n");
}

static const ZpNode *node_of(const Json *j, const ZpSpan *s) {
  const ZpInstr *in = &j->st->prog.instrs[s->instr];
  return &j->p->programs.segments[j->st->insts[in->inst].segment].list[zp_phase(in->op)].nodes[s->node];
}

static void put_node(Json *j, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &j->st->prog.instrs[s->instr];
  const ZpNode *n = node_of(j, s);
  begin_slice(j, s, zg_op_info[n->call.op].text, "node", thread);
  zb_text_add(j->out, ",\"micro-batch\":%u,\"bytes\":%" PRIu64, in->mb, s->bytes);
  put_text(j, "over", zp_dims_text(&j->p->layout.mesh, j->a, n->dims));
  put_text(j, "source", zp_loc_text(j->p, n->loc));
  if (n->cause) put_text(j, "cause", n->cause);
  zb_text_add(j->out, "}},\n");
}

/* An arrow's end: of a transfer that both ranks call by step, pair and sender. */
static void put_arrow(Json *j, const ZpSpan *s, uint32_t thread) {
  const ZpInstr *in = &j->st->prog.instrs[s->instr];
  bool sends = in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD,
       grad = in->op == ZP_I_SEND_GRAD || in->op == ZP_I_RECV_GRAD;
  int64_t sender = sends ? j->rank : zp_rank_of_stage(&j->p->layout.mesh, j->rank, in->peer);
  sender += j->process - j->rank;
  double end = us(j, s->end) - (us(j, s->end) > us(j, s->begin) ? 1e-3 : 0); /* within the slice */
  zb_text_add(j->out,
              "{\"ph\":\"%s\",\"cat\":\"transfer\",\"name\":\"%s\",\"id\":\"%" PRId64 ".%u.%" PRId64
              "\",\"pid\":%" PRId64 ",\"tid\":%u,\"ts\":%.3f},\n",
              sends ? "s" : "f\",\"bp\":\"e", grad ? "gradient" : "activation", s->step, in->pair, sender,
              j->process, thread, sends ? us(j, s->begin) : end);
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

static uint32_t lane_of(Json *j, Lanes *l, ZpQueue q, const ZpSpan *s) {
  uint32_t k = 0;
  while (k < l->n && l->end[k] > s->begin) k++;
  if (k == l->n) {
    ZB_PUSH(j->a, l->end, l->n, 0);
    put_thread(j, q, k);
  }
  l->end[k] = s->end;
  return k;
}

static void put_slices(Json *j, const ZpSpan **s, uint64_t n, Lanes lanes[ZP_QUEUES]) {
  for (uint64_t i = 0; i < n; i++) {
    const ZpInstr *in = &j->st->prog.instrs[s[i]->instr];
    ZpQueue q = (ZpQueue)in->queue;
    uint32_t thread = (uint32_t)q * THREADS + 1;
    if (s[i]->node != ZP_NONE) {
      if (node_of(j, s[i])->until > s[i]->node + 1)
        thread = ZP_Q_NODES * THREADS + 1 + lane_of(j, &lanes[ZP_Q_NODES], ZP_Q_NODES, s[i]);
      put_node(j, s[i], thread);
      continue;
    }
    if (q == ZP_Q_COMPUTE) {
      if (!lanes[q].n) lane_of(j, &lanes[q], q, s[i]);
    } else thread += lane_of(j, &lanes[q], q, s[i]);
    put_instr(j, s[i], thread);
    if (q == ZP_Q_P2P) put_arrow(j, s[i], thread);
  }
}

/* ---- the arena ---- */
enum { STORED, ACTIVATIONS, BOUNDARIES, GATHERED, STAGING, SCRATCH, USES };
static const char *const use_text[USES] = {"stored",   "activations", "boundaries",
                                           "gathered", "staging",     "scratch"};
static int use_of(const ZpBuf *b) {
  switch ((ZpBufKind)b->kind) {
  case ZP_B_SLOT: return ACTIVATIONS;
  case ZP_B_GATHER: return GATHERED;
  case ZP_B_STAGING:
  case ZP_B_UPDATE: return STAGING;
  case ZP_B_SCRATCH: return SCRATCH;
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
  case ZP_B_SCALARS: return STORED;
  default: return BOUNDARIES;
  }
}

typedef struct {
  double at;
  int use;
  int64_t bytes; /* more in use from here on */
} Change;
typedef struct {
  Change *list;
  size_t n;
} Changes;
/* Of a buffer: contents that are in use. */
typedef struct {
  bool alive;
  uint64_t tag;
  double begin, end;
} Life;

static void end_life(Json *j, Changes *c, const ZpBuf *b, Life *l) {
  if (!l->alive) return;
  int64_t bytes = (int64_t)b->bytes;
  Change begin = {l->begin, use_of(b), bytes}, end = {l->end, use_of(b), -bytes};
  ZB_PUSH(j->a, c->list, c->n, begin);
  ZB_PUSH(j->a, c->list, c->n, end);
  l->alive = false;
}

static bool reads(const ZpInstr *in, uint32_t buf) {
  for (uint32_t i = 0; i < in->naccess; i++)
    if (in->access[i].buf == buf && in->access[i].mode & ZP_READ) return true;
  return false;
}

/* What is written by an instruction that does not read it begins anew, unless it is more of the same. */
static void access(Json *j, Changes *c, const ZpInstr *in, const ZpSpan *s, Life *lives) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpAccess *x = &in->access[i];
    const ZpBuf *b = &j->st->prog.bufs[x->buf];
    Life *l = &lives[x->buf];
    if (b->memory != ZP_DEVICE || use_of(b) == STORED) continue;
    if (x->tag != l->tag && !reads(in, x->buf)) end_life(j, c, b, l);
    if (b->kind == ZP_B_SCRATCH) end_life(j, c, b, l);
    if (!l->alive) *l = (Life){true, x->tag, s->begin, s->end};
    l->tag = x->tag; /* who only reads finds the tag that it has */
    if (s->end > l->end) l->end = s->end;
  }
}

static int earlier_first(const void *a, const void *b) {
  const Change *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

static void put_uses(Json *j, double at, const int64_t in_use[USES]) {
  zb_text_add(j->out, "{\"ph\":\"C\",\"name\":\"arena\",\"pid\":%" PRId64 ",\"ts\":%.3f,\"args\":{",
              j->process, us(j, at));
  for (int u = 0; u < USES; u++)
    zb_text_add(j->out, "%s\"%s\":%" PRId64, u ? "," : "", use_text[u], in_use[u]);
  zb_text_add(j->out, "}},\n");
}

static void put_arena(Json *j) {
  const ZpProgram *g = &j->st->prog;
  Life *lives = ZB_NEWN(j->a, Life, g->nbufs);
  Changes c = {0};
  int64_t in_use[USES] = {0};
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].memory == ZP_DEVICE && use_of(&g->bufs[i]) == STORED)
      in_use[STORED] += (int64_t)g->bufs[i].bytes;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    if (j->instr[i]) access(j, &c, &g->instrs[i], j->instr[i], lives);
  for (uint32_t i = 0; i < g->nbufs; i++) end_life(j, &c, &g->bufs[i], &lives[i]);
  if (c.n) qsort(c.list, c.n, sizeof *c.list, earlier_first);
  for (size_t i = 0; i < c.n;) {
    double at = c.list[i].at;
    for (; i < c.n && c.list[i].at == at; i++) in_use[c.list[i].use] += c.list[i].bytes;
    put_uses(j, at, in_use);
  }
}

/* ---- a rank ---- */
/* Spans of one step. */
static void put_step(Json *j, const ZpSpan *spans, uint64_t n, Lanes lanes[ZP_QUEUES]) {
  const ZpSpan **s = ZB_NEWN(j->a, const ZpSpan *, n);
  memset(j->instr, 0, j->st->prog.ninstrs * sizeof *j->instr);
  for (uint64_t i = 0; i < n; i++) {
    s[i] = &spans[i];
    if (spans[i].node == ZP_NONE) j->instr[spans[i].instr] = s[i];
  }
  qsort(s, n, sizeof *s, by_begin);
  put_slices(j, s, n, lanes);
  put_arena(j);
}

void zp_trace_events(const ZpPlan *p, int64_t rank, const ZpSpan *spans, uint64_t n, double clock,
                     double zero, bool predicted, ZbText *out) {
  uint32_t stage =
      p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe);
  Json j = {.p = p,
            .st = &p->programs.stages[stage],
            .rank = rank,
            .process = rank + (predicted ? p->layout.mesh.nranks : 0),
            .stage = stage,
            .clock = clock,
            .zero = zero,
            .predicted = predicted,
            .a = zb_arena_new(),
            .out = out};
  Lanes lanes[ZP_QUEUES] = {0};
  j.instr = ZB_NEWN(j.a, const ZpSpan *, j.st->prog.ninstrs);
  put_process(&j);
  for (uint64_t i = 0; i < n;) {
    uint64_t from = i;
    while (i < n && spans[i].step == spans[from].step) i++;
    put_step(&j, spans + from, i - from, lanes);
  }
  out->len -= 2; /* the last comma */
  zb_text_free(&j.text);
  zb_arena_free(j.a);
}
