/* Adds up what ranks send each other in one step, and why, from what they play: the instruction lists, and
 * the collectives among the nodes that FWD, BWD and COUNT run, those between dispatch and combine once per
 * round. So what is printed is what is done; zp_check proves the instructions' dims and bytes, and the engine
 * moves exactly these. */
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows: what is alike, with how often --------------------------------------------------------------- */
enum { BY_NODE, BY_TRANSFER, BY_BUCKET, BY_SCALARS }; /* in this order in the table */

typedef struct {
  const ZpPlan *p;
  ZbArena *a;
  ZpSent *rows;
  uint32_t nrows;
  uint32_t *first; /* per bucket (none: the last) and kind of instruction: a row of this stage, or ZP_NONE */
} Explain;

static uint64_t key_of(uint64_t by, uint64_t a, uint64_t b, uint64_t c) {
  return by << 60 | a << 40 | b << 24 | c;
}

static void add_row(Explain *x, ZpSent r) { ZB_PUSH(x->a, x->rows, x->nrows, r); }

/* ---- instructions -------------------------------------------------------------------------------------- */
static int64_t members_of(const ZpPlan *p, const ZpInstr *in) {
  return in->op == ZP_I_REDUCE_TIED ? p->programs.tied[in->tied].nstages
                                    : zp_group_size(&p->layout.mesh, in->dims);
}

uint64_t zp_instr_bytes(const ZpPlan *p, const ZpInstr *in) {
  bool moves = in->queue == ZP_Q_P2P || (in->queue == ZP_Q_COLL && members_of(p, in) > 1);
  return moves ? in->bytes : 0;
}

static const char *over_of(const Explain *x, const ZpInstr *in) {
  if (in->queue == ZP_Q_P2P) {
    bool several = x->p->programs.nvstages > x->p->programs.nstages, act = in->op == ZP_I_SEND_ACT;
    return several ? act ? "next virtual" : "virtual before" : act ? "next stage" : "stage before";
  }
  if (in->op == ZP_I_REDUCE_STEP)
    return zb_printf(x->a, "all ranks (%lld)", (long long)x->p->layout.mesh.nranks);
  if (in->op != ZP_I_REDUCE_TIED)
    return zb_printf(x->a, "%s (%lld)", zp_dims_text(&x->p->layout.mesh, x->a, in->dims),
                     (long long)members_of(x->p, in));
  const ZpTied *t = &x->p->programs.tied[in->tied];
  const char *s = "stages";
  for (uint32_t k = 0; k < t->nstages; k++) s = zb_printf(x->a, "%s%s %u", s, k ? "," : "", t->stages[k]);
  return s;
}

static const char *what_of(const Explain *x, const ZpInstr *in, const ZpBucket *k) {
  switch ((ZpInstrOp)in->op) {
  case ZP_I_SEND_ACT: return "activations";
  case ZP_I_SEND_GRAD: return "their gradients";
  case ZP_I_REDUCE_COUNT: return zg_losses(x->p->graph) > 1 ? "loss denominators" : "loss denominator";
  case ZP_I_REDUCE_STEP: return zb_printf(x->a, "%u sums", zp_step_sums(x->p));
  case ZP_I_REDUCE_GRADS:
  case ZP_I_REDUCE_TIED: return in->bytes < k->elems * 4 ? zb_printf(x->a, "shard of %s", k->name) : k->name;
  default: return k->name;
  }
}

static const char *why_of(const Explain *x, const ZpInstr *in, const ZpBucket *k) {
  const char *whole =
      in->coll == ZG_OP_ALL_REDUCE ? "; whole, since not all owners have a part of the sum" : "";
  switch ((ZpInstrOp)in->op) {
  case ZP_I_SEND_ACT: return "what a stage carries to the one after it";
  case ZP_I_SEND_GRAD: return "what a stage sends back to the one before it";
  case ZP_I_REDUCE_COUNT: return "each rank counts its own part; gradients are divided by all of it";
  case ZP_I_REDUCE_STEP: return "loss, its denominator and the squared gradient norm";
  case ZP_I_GATHER_PARAMS:
    return k->keeps ? "ZeRO-3: parameters are gathered before use, and kept"
                    : "ZeRO-3: parameters are gathered before use";
  case ZP_I_SCATTER_GRADS:
    if (in->in_place) return zb_printf(x->a, "ZeRO-1: gradients to the owners of the states%s", whole);
    return zb_printf(x->a, "ZeRO-%d: every micro-batch's gradients to their owners%s", zp_zero_stage(k),
                     whole);
  case ZP_I_REDUCE_GRADS: return "each of these ranks has a part of the gradient's sum";
  case ZP_I_REDUCE_TIED:
    return zb_printf(x->a, "held by %lld stages: their gradients add up", (long long)members_of(x->p, in));
  case ZP_I_GATHER_UPDATES: return "Muon: a matrix is orthogonalised whole, by one rank";
  case ZP_I_SCATTER_UPDATES: return "Muon: what is orthogonal to where it is applied";
  case ZP_I_PUBLISH_PARAMS: return zb_printf(x->a, "ZeRO-%d: updated parameters to all", zp_zero_stage(k));
  default: ZB_BUG("%s sends nothing", zp_instr_info[in->op].text);
  }
}

static void add_instr(Explain *x, uint32_t s, const ZpInstr *in) {
  const ZpPlan *p = x->p;
  bool send = in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD,
       scalars = in->op == ZP_I_REDUCE_COUNT || in->op == ZP_I_REDUCE_STEP;
  if (!send && (in->queue != ZP_Q_COLL || members_of(p, in) < 2)) return;
  uint32_t b = send || scalars ? p->programs.nbuckets : p->programs.stages[s].held[in->held].bucket, nth = 0;
  uint32_t *first = &x->first[b * ZP_INSTRS + in->op];
  uint16_t op = send ? ZP_SEND : in->coll;
  uint32_t P = p->programs.nstages, hops = send ? (in->peer + P - s) % P : 0;
  for (uint32_t r = *first; r != ZP_NONE; r = x->rows[r].next, nth++) {
    ZpSent *q = &x->rows[r];
    if (q->op == op && q->dims == in->dims && q->bytes == in->bytes && q->hops == hops) {
      q->most = ++q->count;
      q->all += in->bytes;
      return;
    }
  }
  const ZpBucket *k = b < p->programs.nbuckets ? &p->programs.buckets[b] : NULL;
  uint64_t by = send ? BY_TRANSFER : scalars ? BY_SCALARS : BY_BUCKET;
  add_row(x, (ZpSent){.key = key_of(by, b, in->op, nth),
                      .from = s,
                      .to = s,
                      .next = *first,
                      .op = op,
                      .dims = in->dims,
                      .members = send ? 2 : members_of(p, in),
                      .bytes = in->bytes,
                      .count = 1,
                      .all = in->bytes,
                      .most = 1,
                      .tied = in->op == ZP_I_REDUCE_TIED ? &p->programs.tied[in->tied] : NULL,
                      .hops = hops,
                      .over = over_of(x, in),
                      .what = what_of(x, in, k),
                      .why = why_of(x, in, k)});
  *first = x->nrows - 1;
}

/* ---- nodes: of each segment as often as it is run ------------------------------------------------------ */
/* Returns how often at most, where tokens say it. */
static const char *most_text(ZbArena *a, uint64_t runs, ZpRounds n) {
  if (n.most == n.even) return "";
  return zb_printf(a, "; %llu times if tokens choose one rank's experts",
                   (unsigned long long)(runs * n.most));
}

static void add_nodes(Explain *x, uint32_t s, uint32_t segment, ZpPhase phase, uint64_t runs) {
  const ZpPlan *p = x->p;
  const ZgSegment *g = &p->graph->segments[segment];
  const ZpList *l = &p->programs.segments[segment].list[phase];
  for (uint32_t i = 0; i < l->n && runs; i++) {
    const ZpNode *k = &l->nodes[i];
    int64_t members = zp_group_size(&p->layout.mesh, k->dims);
    if (members < 2 || !zp_sends(k)) continue;
    const ZpSegment *of = &p->programs.segments[segment];
    ZpRounds n = k->call.op == ZG_OP_ROUND ? (ZpRounds){1, 1} : zp_rounds(p, of, l, i); /* gathered once */
    uint64_t bytes = zp_run_bytes(p, of, l, i);
    add_row(x, (ZpSent){.key = key_of(BY_NODE, segment, phase, i),
                        .from = s,
                        .to = s,
                        .op = zp_is_ring(k) ? ZG_OP_ATTEND : k->call.op,
                        .dims = k->dims,
                        .members = members,
                        .bytes = (bytes + n.even - 1) / n.even,
                        .count = runs * n.even,
                        .all = runs * bytes,
                        .most = runs * n.most,
                        .over = zb_printf(x->a, "%s (%lld)", zp_dims_text(&p->layout.mesh, x->a, k->dims),
                                          (long long)members),
                        .what = zg_type_text(p->graph, x->a, &zp_node_whole(of, k)->type),
                        .why = zb_printf(x->a, "%s %s: %s (%s)%s", g->repeat ? g->label : "part",
                                         zp_phase_text[phase], k->cause, zp_loc_text(p, k->loc),
                                         most_text(x->a, runs, n))});
  }
}

static void add_stage(Explain *x, uint32_t s) {
  const ZpPlan *p = x->p;
  const ZpStage *st = &p->programs.stages[s];
  uint32_t nsegments = p->graph->nsegments;
  typedef uint64_t Runs[ZP_PHASES];
  Runs *runs = ZB_NEWN(x->a, Runs, nsegments);
  memset(x->first, 0xff, (p->programs.nbuckets + 1) * ZP_INSTRS * sizeof *x->first);
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    ZpPhase phase = zp_phase(in->op);
    if (phase < ZP_PHASES) runs[st->insts[in->inst].segment][phase]++;
    else add_instr(x, s, in);
  }
  for (uint32_t i = 0; i < nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++) add_nodes(x, s, i, (ZpPhase)k, runs[i][k]);
}

/* ---- the table ----------------------------------------------------------------------------------------- */
static int in_table(const void *a, const void *b) {
  const ZpSent *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->from < y->from ? -1 : x->from > y->from;
}

/* Neighbouring stages that do the same share a row. */
static void join_stages(Explain *x) {
  uint32_t n = 0;
  if (x->nrows) qsort(x->rows, x->nrows, sizeof *x->rows, in_table);
  for (uint32_t i = 0; i < x->nrows; i++) {
    ZpSent *r = &x->rows[i], *q = n ? &x->rows[n - 1] : NULL;
    if (q && q->key == r->key && q->to + 1 == r->from && q->op == r->op && q->members == r->members &&
        q->bytes == r->bytes && q->count == r->count && q->most == r->most && q->hops == r->hops &&
        !strcmp(q->over, r->over))
      q->to = r->to;
    else x->rows[n++] = *r;
  }
  x->nrows = n;
}

double zp_sent_bytes(const ZpSent *r) {
  double others = (double)(r->members - 1) / (double)r->members, all = (double)r->all;
  bool own = r->op == ZP_SEND || r->op == ZG_OP_ATTEND || r->op == ZG_OP_SHIFT; /* its bytes are those sent */
  return own ? all : r->op == ZG_OP_ALL_REDUCE ? 2 * others * all : others * all;
}

const char *zp_sent_op(uint32_t op) {
  return op == ZP_SEND        ? "send"
         : op == ZG_OP_ATTEND ? "ring"
         : op == ZG_OP_SHIFT  ? "halo"
                              : zg_op_info[op].text;
}

double zp_sent_of_stage(ZpSents t, uint32_t stage, double by[ZP_SEND + 1]) {
  double all = 0;
  for (uint32_t op = 0; op <= ZP_SEND; op++) by[op] = 0;
  for (uint32_t i = 0; i < t.n; i++) {
    const ZpSent *r = &t.rows[i];
    if (r->from <= stage && stage <= r->to) all += zp_sent_bytes(r), by[r->op] += zp_sent_bytes(r);
  }
  return all;
}

ZpSents zp_sents(const ZpPlan *p, ZbArena *a) {
  Explain x = {.p = p, .a = a};
  x.first = ZB_NEWN(a, uint32_t, (p->programs.nbuckets + 1) * (size_t)ZP_INSTRS);
  for (uint32_t s = 0; s < p->programs.nstages; s++) add_stage(&x, s);
  join_stages(&x);
  return (ZpSents){x.rows, x.nrows};
}

/* ---- as text ---- */
static const char *stages_text(ZbArena *a, uint32_t from, uint32_t to) {
  return from == to ? zb_printf(a, "%u", from) : zb_printf(a, "%u-%u", from, to);
}

static void put_sums(const ZpPlan *p, ZpSents t, ZbText *out) {
  char text[24];
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    double by[ZP_SEND + 1], all = zp_sent_of_stage(t, s, by);
    zb_text_add(out, "a rank of stage %u sends %s a step", s, zb_bytes(text, (uint64_t)all));
    for (uint32_t op = 0, n = 0; op <= ZP_SEND; op++)
      if (by[op] > 0)
        zb_text_add(out, "%s %s by %s", n++ ? "," : ":", zb_bytes(text, (uint64_t)by[op]), zp_sent_op(op));
    zb_text_add(out, "\n");
  }
}

/* Returns whether tokens say how often something is sent. */
static bool any_in_rounds(ZpSents t) {
  bool any = false;
  for (uint32_t i = 0; i < t.n; i++) any |= t.rows[i].most > t.rows[i].count;
  return any;
}

void zp_explain(const ZpPlan *p, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZpSents t = zp_sents(p, a);
  char bytes[24], sent[24];
  zb_text_add(out, "what ranks send each other in one step\n"
                   "count: of one rank of each of these stages\n"
                   "bytes: of its whole tensor each time, as gathered, or before it is reduced or exchanged\n"
                   "sent: by such a rank in all of them, as rings do it\n");
  if (any_in_rounds(t)) zb_text_add(out, "both, in rounds of experts: if tokens choose all experts alike\n");
  zb_text_add(out, "\n");
  zb_text_add(out, "%-6s %7s %14s %14s  %-14s  %-16s  %-30s  cause\n", "stages", "count", "bytes", "sent",
              "collective", "over", "tensor");
  for (uint32_t i = 0; i < t.n; i++) {
    const ZpSent *r = &t.rows[i];
    zb_text_add(out, "%-6s %7llu %14s %14s  %-14s  %-16s  %-30s  %s\n", stages_text(a, r->from, r->to),
                (unsigned long long)r->count, zb_bytes(bytes, r->bytes),
                zb_bytes(sent, (uint64_t)zp_sent_bytes(r)), zp_sent_op(r->op), r->over, r->what, r->why);
  }
  zb_text_add(out, "\n");
  put_sums(p, t, out);
  if (p->notes.order) zb_text_add(out, "%s\n", p->notes.order);
  zb_arena_free(a);
}
