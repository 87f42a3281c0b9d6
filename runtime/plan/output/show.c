/* Plans as text for people. */
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

/* ---- the timeline ---- */
ZpTimeline zp_timeline(const ZpPlan *p) {
  ZbArena *a = zb_arena_new();
  ZpTimeline t = {a, ZB_NEWN(a, ZpOrder, p->programs.nstages), 0};
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    ZpOrder *o = &t.order[s];
    for (uint32_t k = 0; k < st->prog.nqueue[ZP_Q_COMPUTE]; k++) {
      const ZpInstr *in = &st->prog.instrs[st->prog.queue[ZP_Q_COMPUTE][k]];
      const ZpVirtualStage *v = in->vstage == ZP_NONE ? NULL : &p->programs.vstages[in->vstage];
      bool forward = in->op == ZP_I_FWD && in->inst == v->first,
           backward = in->op == ZP_I_BWD && in->inst + 1 == v->first + v->ninsts;
      ZpScheduleItem x = {forward ? ZP_FORWARD : ZP_BACKWARD, in->vstage, in->mb};
      if (forward || backward) ZB_PUSH(a, o->item, o->n, x);
    }
    o->start = ZB_NEWN(a, uint64_t, o->n);
    o->end = ZB_NEWN(a, uint64_t, o->n);
  }
  t.span = zp_order_clock(p, a, t.order);
  return t;
}

double zp_idle(const ZpTimeline *t) {
  uint64_t busy = 0;
  for (uint32_t i = 0; i < t->order->n; i++) busy += zp_item_info[t->order->item[i].kind].units;
  return 1 - (double)busy / (double)t->span;
}

const char *zp_compute_text(const ZpPlan *p) {
  return p->asked.recipe->precision.compute ? p->asked.recipe->precision.compute : zk_elem_info[ZK_F32].text;
}

/* ---- generation ---------------------------------------------------------------------------------------- */
/* Adds what pages of a group hold, and how many sequences that is. */
static void show_pages(const ZpPlan *p, uint32_t group, ZbText *out) {
  const ZpGenerating *g = &p->generating;
  const ZpPageGroup *x = &p->stream->groups[group];
  char token[24], all[24], rank[24];
  uint64_t bytes =
      zp_cache_bytes(p->stream, ZP_CACHE_PAGES, group, zp_precision_elem(p->asked.recipe->precision.compute));
  int64_t pages = p->pages[group], each = zp_pages_of(g, x->window), whole = pages / each;
  zb_text_add(out, "cache: %s a token", zb_bytes(token, bytes));
  if (x->window) zb_text_add(out, ", of which the last %lld are kept", (long long)x->window);
  uint64_t own = 0, total = bytes * (uint64_t)(pages * g->page);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    uint64_t of = zp_stage_cache_bytes(p, s, ZP_CACHE_PAGES, group);
    if (of > own) own = of;
  }
  zb_text_add(out, "; %lld pages of %lld tokens, %s", (long long)pages, (long long)g->page,
              zb_bytes(all, total));
  if (own != total) zb_text_add(out, " (at most %s a rank)", zb_bytes(rank, own));
  zb_text_add(out, ": ");
  if (whole >= g->sequences) zb_text_add(out, "all %lld sequences at full length", (long long)g->sequences);
  else
    zb_text_add(out, "%lld sequence%s of %lld at once, or %lld of %lld", (long long)whole,
                whole == 1 ? "" : "s", (long long)g->length, (long long)g->sequences,
                (long long)(pages / g->sequences * g->page));
  zb_text_add(out, "\n");
}

static void show_generating(const ZpPlan *p, ZbText *out) {
  const ZpGenerating *g = &p->generating;
  const ZgStream *along = &p->stream->along;
  char text[24];
  zb_text_add(out,
              "generates along `%s`: %s -> %s; %lld sequence%s of %lld tokens%s, at most %lld tokens a step; "
              "compute %s\n",
              p->graph->axes[along->time].name, p->stream->model->inputs[along->tokens].name,
              p->stream->model->outputs[along->output].name, (long long)g->sequences,
              g->sequences == 1 ? "" : "s", (long long)g->length, g->replicas > 1 ? " a replica" : "",
              (long long)g->step, zp_compute_text(p));
  if (g->replicas > 1)
    zb_text_add(out, "%lld replicas, each with steps of its own; of each:\n", (long long)g->replicas);
  for (uint32_t i = 0; i < p->stream->ngroups; i++) show_pages(p, i, out);
  ZkElem real = zp_precision_elem(p->asked.recipe->precision.compute);
  uint64_t state = zp_cache_bytes(p->stream, ZP_CACHE_STATE, 0, real) +
                   zp_cache_bytes(p->stream, ZP_CACHE_RECENT, 0, real),
           own = zp_cache_bytes(p->stream, ZP_CACHE_OWN, 0, real);
  if (own)
    zb_text_add(out, "cache: %s a token of the `%s` of a sequence, of which there are up to %lld\n",
                zb_bytes(text, own),
                p->stream->source == ZG_NONE ? "inputs" : p->stream->model->inputs[p->stream->source].name,
                p->stream->source == ZG_NONE ? 1 : (long long)p->layout.axis_size[p->stream->length]);
  if (state)
    zb_text_add(out, "cache: %s a sequence, of recurrences and recent tokens\n", zb_bytes(text, state));
  const char *other = zp_other_bits(p);
  if (other) zb_text_add(out, "last bits of logits are not those of one rank: %s\n", other);
}

static void show_mesh(const ZpPlan *p, ZbText *out) {
  const ZpMesh *m = &p->layout.mesh;
  zb_text_add(out, "recipe %s for model %s: %.4g M parameters", p->asked.recipe->name, p->graph->model,
              p->notes.params / 1e6);
  if (p->asked.frozen) zb_text_add(out, " (%.4g M trained)", p->notes.trained / 1e6);
  zb_text_add(out, ", %lld rank%s", (long long)m->nranks, m->nranks == 1 ? "" : "s");
  for (int d = 0; d < m->ndims; d++) {
    zb_text_add(out, "%s%s %lld", d ? " x " : " = ", m->dim[d].name, (long long)m->dim[d].size);
    if (d == m->pipe) zb_text_add(out, " (stages)");
    const char *before = " (", *behind = "";
    for (uint32_t i = 0; i < m->dim[d].naxes; i++)
      if (m->dim[d].axes[i] < p->model->naxes) {
        zb_text_add(out, "%s%s", before, p->graph->axes[m->dim[d].axes[i]].name);
        before = ", ", behind = ")";
      }
    zb_text_add(out, "%s", behind);
  }
  zb_text_add(out, "\n");
  if (p->stream) show_generating(p, out);
  if (p->asked.batch != ZP_NONE)
    zb_text_add(out, "batch %lld = %lld micro-batches x %lld samples; compute %s; %.3g TFLOP a %s\n",
                (long long)p->asked.global_batch, (long long)p->asked.nmicro,
                (long long)p->layout.axis_size[p->asked.batch], zp_compute_text(p),
                p->notes.model_flops / 1e12,
                p->asked.forward_only ? "batch (forward only)" : "step (forward + backward)");
  if (p->programs.nstages > 1 && !p->asked.forward_only) {
    ZpTimeline t = zp_timeline(p);
    zb_text_add(out, "schedule %s: %.1f %% idle by the schedule alone\n", p->asked.schedule,
                100 * zp_idle(&t));
    zb_arena_free(t.a);
  }
}

uint32_t zp_run_of(const ZpStage *st, uint32_t from) {
  uint32_t n = 1;
  while (from + n < st->ninsts && st->insts[from + n].segment == st->insts[from].segment &&
         st->insts[from + n].iter == st->insts[from].iter + n)
    n++;
  return n;
}

/* "layer.0-3, part 2": runs of iterations together. */
static void show_insts(const ZpPlan *p, const ZpStage *st, ZbText *out) {
  for (uint32_t i = 0; i < st->ninsts;) {
    uint32_t n = zp_run_of(st, i);
    const ZgSegment *g = &p->graph->segments[st->insts[i].segment];
    if (i) zb_text_add(out, ", ");
    if (!g->repeat) zb_text_add(out, "part %u", st->insts[i].segment);
    else if (n == 1) zb_text_add(out, "%s.%u", g->label, st->insts[i].iter);
    else zb_text_add(out, "%s.%u-%u", g->label, st->insts[i].iter, st->insts[i].iter + n - 1);
    i += n;
  }
}

double zp_stage_cost(const ZpPlan *p, uint32_t stage) {
  double sum = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) sum += p->programs.stages[s].cost;
  return sum > 0 ? p->programs.stages[stage].cost * p->programs.nstages / sum : 0;
}

static void show_stages(const ZpPlan *p, ZbText *out) {
  zb_text_add(out, "\nstage   cost  live  instructions  holds\n");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    zb_text_add(out, "%5u  %5.2f  %4u  %12u  ", s, zp_stage_cost(p, s), st->prog.live, st->prog.ninstrs);
    show_insts(p, st, out);
    zb_text_add(out, "\n");
  }
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    zb_text_add(out, "%s is held by stages", p->programs.buckets[p->programs.tied[i].bucket].name);
    for (uint32_t k = 0; k < p->programs.tied[i].nstages; k++)
      zb_text_add(out, "%s %u", k ? "," : "", p->programs.tied[i].stages[k]);
    zb_text_add(out, "%s\n",
                p->asked.forward_only || p->programs.buckets[p->programs.tied[i].bucket].frozen
                    ? ""
                    : "; its gradients are summed over them");
  }
}

bool zp_ledger_shows(const ZpPlan *p, int line, ZpMemory m) {
  return zp_ledger_info[line].memory == m && (line != ZP_L_TRAINING || p->asked.eval_of) &&
         (line != ZP_L_CACHE || p->stream);
}

static void show_memory(const ZpPlan *p, ZpMemory m, const char *title, const char *total, ZbText *out) {
  char text[24];
  zb_text_add(out, "\n%s\nstage", title);
  for (int i = 0; i < ZP_LEDGER_LINES; i++)
    if (zp_ledger_shows(p, i, m)) zb_text_add(out, " %13s", zp_ledger_info[i].text);
  zb_text_add(out, " %13s\n", total);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpLedger *l = &p->programs.stages[s].ledger;
    zb_text_add(out, "%5u", s);
    for (int i = 0; i < ZP_LEDGER_LINES; i++)
      if (zp_ledger_shows(p, i, m)) zb_text_add(out, " %13s", zb_bytes(text, l->bytes[i]));
    zb_text_add(out, " %13s\n", zb_bytes(text, l->total[m]));
  }
}

uint64_t zp_stashed_bytes(const ZpPlan *p, uint32_t stage) {
  const ZpStage *st = &p->programs.stages[stage];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < st->ninsts; i++) bytes += p->programs.segments[st->insts[i].segment].stashed_bytes;
  return bytes * st->prog.nslots;
}

uint64_t zp_stashed_moves(const ZpPlan *p, uint32_t stage) {
  const ZpStage *st = &p->programs.stages[stage];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < st->ninsts; i++) bytes += p->programs.segments[st->insts[i].segment].stashed_moves;
  return bytes * (uint64_t)p->asked.nmicro;
}

/* Stashed values, which backward would recompute with less memory; only the best are named. */
#define NAMED 6
static void show_kept(const ZpPlan *p, ZbText *out) {
  uint32_t most = 0;
  char bytes[24], moves[24];
  if (!p->programs.nstashed && !p->notes.not_stashed) return;
  for (uint32_t s = 1; s < p->programs.nstages; s++)
    if (zp_stashed_bytes(p, s) > zp_stashed_bytes(p, most)) most = s;
  zb_text_add(out, "\nkept as `limit memory` allows: ");
  if (p->programs.nstashed)
    zb_text_add(out, "%s of activations of stage %u, which reads and writes %s less a step",
                zb_bytes(bytes, zp_stashed_bytes(p, most)), most, zb_bytes(moves, zp_stashed_moves(p, most)));
  else zb_text_add(out, "nothing");
  if (p->notes.not_stashed)
    zb_text_add(out, "; %u more value%s not fit", p->notes.not_stashed,
                p->notes.not_stashed == 1 ? " does" : "s do");
  ZbArena *a = zb_arena_new();
  for (uint32_t i = 0; i < p->programs.nstashed && i < NAMED; i++)
    zb_text_add(out, "%s%s (%s)", i ? ", " : "\n  ", zg_type_text(p->graph, a, &p->programs.stashed[i].type),
                zp_loc_text(p, p->programs.stashed[i].loc));
  if (p->programs.nstashed > NAMED) zb_text_add(out, " and %u more", p->programs.nstashed - NAMED);
  zb_text_add(out, "\n");
  zb_arena_free(a);
}

static void show_ledger(const ZpPlan *p, ZbText *out) {
  uint64_t host = 0;
  char bytes[24];
  for (uint32_t s = 0; s < p->programs.nstages; s++) host += p->programs.stages[s].ledger.total[ZP_HOST];
  show_memory(p, ZP_DEVICE, "bytes of one rank", "arena", out);
  if (host) show_memory(p, ZP_HOST, "bytes of one rank in the host's memory", "host", out);
  if (p->notes.async_bytes)
    zb_text_add(
        out, "\ncollectives within forward and backward are awaited: with async ones a rank would need %s\n",
        zb_bytes(bytes, p->notes.async_bytes));
  if (p->layout.room)
    zb_text_add(out, "\nkernels that can do with less scratch have %s each, in smaller pieces\n",
                zb_bytes(bytes, p->layout.room));
  show_kept(p, out);
}

static void show_buckets(const ZpPlan *p, ZbText *out) {
  char text[24];
  zb_text_add(out,
              "\nbucket                        elements  ZeRO  cut over            gradients partial over\n");
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[i];
    ZbArena *tmp = zb_arena_new();
    zb_text_add(out, "%-26s %11llu  %4d  %-18s  ", k->name, (unsigned long long)k->elems, zp_zero_stage(k),
                zp_dims_text(&p->layout.mesh, tmp, k->shard));
    if (zk_is_packed((ZkElem)k->elem))
      zb_text_add(out, "%s%s\n", k->frozen ? "frozen, " : "", zk_elem_info[k->elem].text);
    else if (k->frozen) zb_text_add(out, "frozen\n");
    else
      zb_text_add(out, "%s (%s of gradients)\n", zp_dims_text(&p->layout.mesh, tmp, k->partial),
                  zb_bytes(text, zk_bytes((ZkElem)k->grad, k->elems)));
    zb_arena_free(tmp);
  }
}

/* "wte, layer.*.attn.wq, ..., 9 more" */
static void put_members(const ZpPlan *p, uint32_t group, ZbText *out) {
  enum { NAMES = 4 };
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->graph->nparams; i++) {
    if (!zp_in_group(p, i, group)) continue;
    if (n++ < NAMES) zb_text_add(out, "%s%s", n > 1 ? ", " : "", p->graph->params[i].path);
  }
  if (n > NAMES) zb_text_add(out, ", %u more", n - NAMES);
}

/* Lists what the groups update, and with which decay; nothing where all parameters are updated alike, without
 * decay. */
static void show_groups(const ZpPlan *p, ZbText *out) {
  if (!p->asked.ngroups || p->stream ||
      (p->asked.ngroups == 1 && p->asked.groups[0].rate == 1 && p->asked.groups[0].decay.num == 0))
    return;
  zb_text_add(out, "\noptimizer     rate     decay     parameters          bytes       states   step moves   "
                   "   FLOPs  which\n");
  for (uint32_t i = 0; i < p->asked.ngroups; i++) {
    const ZpGroup *g = &p->asked.groups[i];
    ZpGroupCost c = zp_group_cost(p, i);
    char bytes[3][24], flops[24];
    const double of[] = {c.elements * 4, c.states, c.moved};
    for (int k = 0; k < 3; k++) zb_bytes(bytes[k], (uint64_t)of[k]);
    snprintf(flops, sizeof flops, "%.3g", c.flops);
    zb_text_add(out, "%-9s x %-7.4g  %-8.4g  %-13.12g  %11s  %11s  %11s  %9s  ",
                zp_optimizer_text(p->asked.optimizers[g->optimizer].kind), g->rate, g->decay.num, c.elements,
                bytes[0], bytes[1], bytes[2], flops);
    put_members(p, i, out);
    zb_text_add(out, "\n");
  }
}

void zp_show(const ZpPlan *p, ZbText *out) {
  show_mesh(p, out);
  show_stages(p, out);
  show_ledger(p, out);
  show_buckets(p, out);
  show_groups(p, out);
  if (!p->admission) return;
  zb_text_add(out, "\nadmission: made of a sequence's `%s` alone, once, and kept; with an arena of its own\n",
              p->admission->graph->inputs[0].name);
  zp_show(p->admission, out);
}

/* Puts "F3", "B3", with the micro-batch, or "F3.1", with the stage's virtual stage, if it has several. */
static void put_item(const ZpPlan *p, const ZpScheduleItem *x, int columns, ZbText *out) {
  const ZpItemInfo *info = &zp_item_info[x->kind];
  char text[40];
  int n = snprintf(text, sizeof text, " %s%u", info->letter, x->mb);
  if (p->programs.nvstages > p->programs.nstages)
    snprintf(text + n, sizeof text - (size_t)n, ".%u", p->programs.vstages[x->vstage].index);
  zb_text_add(out, "%-*s", columns * (int)info->units, text);
}

/* Draws a row per stage with four columns per unit of time; six, if stages have several virtual stages. */
void zp_show_schedule(const ZpPlan *p, ZbText *out) {
  uint32_t M = (uint32_t)p->asked.nmicro;
  int columns = p->programs.nvstages > p->programs.nstages ? 6 : 4;
  if (p->asked.forward_only) return; /* one forward after the other */
  if (M > 64) {
    zb_text_add(
        out, "the timeline of %u micro-batches is too wide to draw; `programs` lists every instruction\n", M);
    return;
  }
  ZpTimeline t = zp_timeline(p);
  zb_text_add(out, "\nschedule %s, %u stages, %u micro-batches: %llu units of time (F 1, B 2)\n",
              p->asked.schedule, p->programs.nstages, M, (unsigned long long)t.span);
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpOrder *o = &t.order[s];
    zb_text_add(out, "%5u ", s);
    for (uint32_t i = 0; i < o->n; i++) {
      uint64_t idle = o->start[i] - (i ? o->end[i - 1] : 0);
      zb_text_add(out, "%*s", columns * (int)idle, "");
      put_item(p, &o->item[i], columns, out);
    }
    zb_text_add(out, "\n");
  }
  zb_arena_free(t.a);
}

void zp_show_programs(const ZpPlan *p, ZbText *out) {
  char bytes[24];
  ZbArena *tmp = zb_arena_new();
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpProgram *g = &p->programs.stages[s].prog;
    zb_text_add(out, "\nstage %u\n", s);
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      const ZpInstr *in = &g->instrs[i];
      zb_text_add(out, "%6u  %-8s", i, zp_queue_text[in->queue]);
      zp_instr_text(p, s, in, out);
      if (in->queue == ZP_Q_P2P) zb_text_add(out, " stage %u", in->peer);
      uint64_t moved = zp_instr_bytes(p, in);
      if (moved && in->queue == ZP_Q_COLL && in->dims)
        zb_text_add(out, " %s over %s", zg_op_info[in->coll].text,
                    zp_dims_text(&p->layout.mesh, tmp, in->dims));
      if (moved) zb_text_add(out, " %s", zb_bytes(bytes, moved));
      for (uint32_t k = 0; k < in->nwait; k++) zb_text_add(out, "%s%u", k ? "," : "  after ", in->wait[k]);
      zb_text_add(out, "\n");
    }
  }
  zb_arena_free(tmp);
}
