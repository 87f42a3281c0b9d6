/* Plans as text for people. */
#include "runtime/plan/impl.h"

#include <string.h>

static const char *const line_name[] = {
#define L(NAME, text) text,
#include "runtime/plan/ledger.def"
};

static void show_mesh(const ZpPlan *p, ZbText *out) {
  const ZpMesh *m = &p->mesh;
  zb_text_add(out, "recipe %s for model %s: %.4g M parameters, %lld rank%s", p->recipe->name, p->graph->model, p->params / 1e6,
              (long long)m->nranks, m->nranks == 1 ? "" : "s");
  for (int d = 0; d < m->ndims; d++) {
    zb_text_add(out, "%s%s %lld", d ? " x " : " = ", m->dim[d].name, (long long)m->dim[d].size);
    if (d == m->pipe) zb_text_add(out, " (stages)");
    for (uint32_t i = 0; i < m->dim[d].naxes; i++)
      zb_text_add(out, "%s%s%s", i ? ", " : " (", p->graph->axes[m->dim[d].axes[i]].name, i + 1 == m->dim[d].naxes ? ")" : "");
  }
  zb_text_add(out, "\n");
  if (p->batch != ZP_NONE)
    zb_text_add(out, "batch %lld = %lld micro-batches x %lld samples; compute %s; %.3g TFLOP a step (forward + backward)\n",
                (long long)p->global_batch, (long long)p->nmicro, (long long)p->axis_size[p->batch],
                p->compute == ZK_BF16 ? "bf16" : "f32", p->model_flops / 1e12);
  const char *schedule = p->recipe->schedule.name.s ? p->recipe->schedule.name.s : "1f1b";
  if (p->nstages > 1) {
    ZbArena *tmp = zb_arena_new();
    zb_text_add(out, "schedule %s: %.1f %% idle by the schedule alone\n", schedule,
                100 * zp_bubble(tmp, schedule, p->nstages, (uint32_t)p->nmicro));
    zb_arena_free(tmp);
  }
}

/* "layer.0-3, part 2": runs of iterations together. */
static void show_insts(const ZpPlan *p, const ZpStage *st, ZbText *out) {
  for (uint32_t i = 0; i < st->ninsts;) {
    uint32_t n = 1;
    while (i + n < st->ninsts && st->insts[i + n].segment == st->insts[i].segment) n++;
    const ZgSegment *g = &p->graph->segments[st->insts[i].segment];
    if (i) zb_text_add(out, ", ");
    if (!g->repeat) zb_text_add(out, "part %u", st->insts[i].segment);
    else if (n == 1) zb_text_add(out, "%s.%u", g->label, st->insts[i].iter);
    else zb_text_add(out, "%s.%u-%u", g->label, st->insts[i].iter, st->insts[i].iter + n - 1);
    i += n;
  }
}

static void show_stages(const ZpPlan *p, ZbText *out) {
  double max = 0, sum = 0;
  for (uint32_t s = 0; s < p->nstages; s++) {
    sum += p->stages[s].cost;
    if (p->stages[s].cost > max) max = p->stages[s].cost;
  }
  zb_text_add(out, "\nstage   cost  live  instructions  holds\n");
  for (uint32_t s = 0; s < p->nstages; s++) {
    const ZpStage *st = &p->stages[s];
    zb_text_add(out, "%5u  %5.2f  %4u  %12u  ", s, sum > 0 ? st->cost * p->nstages / sum : 0, st->prog.live, st->prog.ninstrs);
    show_insts(p, st, out);
    zb_text_add(out, "\n");
  }
  for (uint32_t i = 0; i < p->ntied; i++) {
    zb_text_add(out, "%s is held by stages", p->buckets[p->tied[i].bucket].name);
    for (uint32_t k = 0; k < p->tied[i].nstages; k++) zb_text_add(out, "%s %u", k ? "," : "", p->tied[i].stages[k]);
    zb_text_add(out, "; its gradients are summed over them\n");
  }
}

static void show_ledger(const ZpPlan *p, ZbText *out) {
  char text[24];
  zb_text_add(out, "\nbytes of one rank\nstage");
  for (int i = 0; i < ZP_L_COUNT_; i++) zb_text_add(out, " %13s", line_name[i]);
  zb_text_add(out, " %13s\n", "arena");
  for (uint32_t s = 0; s < p->nstages; s++) {
    const ZpLedger *l = &p->stages[s].ledger;
    zb_text_add(out, "%5u", s);
    for (int i = 0; i < ZP_L_COUNT_; i++) zb_text_add(out, " %13llu", (unsigned long long)l->bytes[i]);
    zb_text_add(out, " %13llu  %s\n", (unsigned long long)l->total, zb_bytes(text, l->total));
  }
}

static void show_buckets(const ZpPlan *p, ZbText *out) {
  char text[24];
  zb_text_add(out, "\nbucket                        elements  ZeRO  cut over            gradients partial over\n");
  for (uint32_t i = 0; i < p->nbuckets; i++) {
    const ZpBucket *k = &p->buckets[i];
    ZbArena *tmp = zb_arena_new();
    zb_text_add(out, "%-26s %11llu  %4d  %-18s  %s (%s of gradients)\n", k->name, (unsigned long long)k->elems, k->level,
                zp_dims_text(&p->mesh, tmp, k->shard), zp_dims_text(&p->mesh, tmp, k->partial), zb_bytes(text, k->elems * 4));
    zb_arena_free(tmp);
  }
}

void zp_show(const ZpPlan *p, ZbText *out) {
  show_mesh(p, out);
  show_stages(p, out);
  show_ledger(p, out);
  show_buckets(p, out);
}

/* ---- the timeline: a row a stage, a column a unit of time; forward takes 1, backward 2 ---- */
void zp_show_schedule(const ZpPlan *p, ZbText *out) {
  const char *name = p->recipe->schedule.name.s ? p->recipe->schedule.name.s : "1f1b";
  uint32_t P = p->nstages, M = (uint32_t)p->nmicro;
  if (M > 64) {
    zb_text_add(out, "the timeline of %u micro-batches is too wide to draw; `programs` lists every instruction\n", M);
    return;
  }
  ZbArena *a = zb_arena_new();
  ZpWork **w = ZB_NEWN(a, ZpWork *, P);
  uint32_t *next = ZB_NEWN(a, uint32_t, P), *free_at = ZB_NEWN(a, uint32_t, P);
  uint32_t *done[2], left = P * 2 * M, width = 0;
  for (int b = 0; b < 2; b++) done[b] = ZB_NEWN(a, uint32_t, P * M); /* end times; 0: not yet */
  ZbText *row = ZB_NEWN(a, ZbText, P);
  for (uint32_t s = 0; s < P; s++) w[s] = zp_order(a, name, P, M, s);
  while (left)
    for (uint32_t s = 0; s < P; s++) {
      for (; next[s] < 2 * M; next[s]++, left--) {
        ZpWork x = w[s][next[s]];
        uint32_t need = 0;
        bool ready = true;
        if (!x.backward && s > 0) need = done[0][(s - 1) * M + x.mb], ready = need > 0;
        if (x.backward && s + 1 < P) need = done[1][(s + 1) * M + x.mb], ready = need > 0;
        if (!ready) break;
        uint32_t from = need > free_at[s] ? need : free_at[s], len = x.backward ? 2 : 1;
        for (uint32_t k = free_at[s]; k < from; k++) zb_text_add(&row[s], "    ");
        zb_text_add(&row[s], x.backward ? " B%-6u" : " F%-2u", x.mb);
        free_at[s] = done[x.backward][s * M + x.mb] = from + len;
        if (free_at[s] > width) width = free_at[s];
      }
    }
  zb_text_add(out, "\nschedule %s, %u stages, %u micro-batches: %u units of time (F 1, B 2)\n", name, P, M, width);
  for (uint32_t s = 0; s < P; s++) {
    zb_text_add(out, "%5u %s\n", s, row[s].s ? row[s].s : "");
    zb_text_free(&row[s]);
  }
  zb_arena_free(a);
}

void zp_show_programs(const ZpPlan *p, ZbText *out) {
  for (uint32_t s = 0; s < p->nstages; s++) {
    const ZpProgram *g = &p->stages[s].prog;
    zb_text_add(out, "\nstage %u\n", s);
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      const ZpInstr *in = &g->instrs[i];
      static const char *const queue[] = {"compute", "p2p", "coll"};
      zb_text_add(out, "%6u  %-8s", i, queue[in->queue]);
      zp_instr_text(p, s, in, out);
      if (in->queue == ZP_Q_P2P) zb_text_add(out, " stage %u", in->peer);
      if (in->bytes) zb_text_add(out, " %llu bytes", (unsigned long long)in->bytes);
      for (uint32_t k = 0; k < in->nwait; k++) zb_text_add(out, "%s%u", k ? "," : "  after ", in->wait[k]);
      zb_text_add(out, "\n");
    }
  }
}

/* ---- every collective and why ---- */
static void explain_nodes(const ZpPlan *p, ZbArena *a, uint32_t seg, const char *phase, const ZpNode *nodes, uint32_t n, ZbText *out) {
  const ZpSegment *s = &p->segments[seg];
  const ZgSegment *g = &p->graph->segments[seg];
  char text[24];
  for (uint32_t i = 0; i < n; i++) {
    const ZpNode *k = &nodes[i];
    if (!k->dims || k->call.op == ZG_OP_LOCAL_SLICE) continue;
    const ZpValue *v = &s->values[k->call.op == ZG_OP_ALL_GATHER ? k->out[0] : k->in[0]];
    long long count = (long long)(g->trip * (uint64_t)p->nmicro);
    zb_text_add(out, "%-14s over %-14s %-34s %10s  x %-7lld %s %s: %s (%s)\n", zg_op_info[k->call.op].text,
                zp_dims_text(&p->mesh, a, k->dims), zg_type_text(p->graph, a, &v->type), zb_bytes(text, v->bytes), count,
                g->repeat ? g->label : "part", phase, k->cause, zp_loc_text(p, k->loc));
  }
}

static void explain_bucket(const ZpPlan *p, ZbArena *a, const ZpBucket *k, ZbText *out) {
  char text[24];
  ZpDims rest = k->partial & ~k->shard;
  long long held = k->segment == ZP_NONE ? 1 : (long long)p->graph->segments[k->segment].trip;
  const char *over = zp_dims_text(&p->mesh, a, k->shard);
#define ROW(op, over, elem_bytes, count, why)                                                                             \
  zb_text_add(out, "%-14s over %-14s %-34s %10s  x %-7lld %s\n", op, over, k->name, zb_bytes(text, k->elems * (elem_bytes)), \
              (long long)(count), why)
  if (k->level == 3) {
    long long gathers = 0;
    for (uint32_t s = 0; s < p->nstages; s++)
      for (uint32_t i = 0; i < p->stages[s].prog.ninstrs; i++) {
        const ZpInstr *in = &p->stages[s].prog.instrs[i];
        gathers += in->op == ZP_I_GATHER_PARAMS && &p->buckets[p->stages[s].held[in->held].bucket] == k;
      }
    ROW("all_gather", over, zk_elem_bytes(p->compute), gathers, "ZeRO-3: parameters are gathered before use");
  }
  if (k->level >= 2) ROW("reduce_scatter", over, 4, held * p->nmicro, "ZeRO-2: every micro-batch's gradients go to their owners");
  if (k->level == 1) ROW("reduce_scatter", over, 4, held, "ZeRO-1: gradients to the owners of the states");
  if (rest) ROW("all_reduce", zp_dims_text(&p->mesh, a, rest), 4, held, "gradients are partial where ranks saw different parts of the data or sequence");
  if (k->level == 1 || k->level == 2) ROW("all_gather", over, zk_elem_bytes(p->compute), held, "updated parameters to all");
#undef ROW
}

void zp_explain(const ZpPlan *p, ZbText *out) {
  ZbArena *a = zb_arena_new();
  zb_text_add(out, "collectives of one step; bytes are of one rank's tensor\n");
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    const ZpSegment *s = &p->segments[i];
    explain_nodes(p, a, i, "count", s->count, s->ncount, out);
    explain_nodes(p, a, i, "forward", s->fwd, s->nfwd, out);
    explain_nodes(p, a, i, "backward", s->bwd, s->nbwd, out);
  }
  for (uint32_t i = 0; i < p->nbuckets; i++) explain_bucket(p, a, &p->buckets[i], out);
  char text[24];
  for (uint32_t i = 0; i < p->ntied; i++) {
    const ZpBucket *k = &p->buckets[p->tied[i].bucket];
    zb_text_add(out, "%-14s over %-14s %-34s %10s  x 1       held by %u stages: their gradients add up\n", "all_reduce", "stages",
                k->name, zb_bytes(text, k->elems * 4), p->tied[i].nstages);
  }
  zb_text_add(out, "%-14s over %-14s %-34s %10s  x 1       loss sums and squared gradient norm\n", "all_reduce", "all ranks", "4 numbers", "32 B");
  zb_arena_free(a);
}
