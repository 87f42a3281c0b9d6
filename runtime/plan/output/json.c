/* Plans as JSON: what the tables for people say, with all digits. JSON.md has the keys; they stay. */
#include "runtime/plan/output/tables.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- values ---- */
/* Puts a number in 15 digits, or in 17 if it needs them. */
static void put_real(ZbJson *j, const char *key, double x) {
  char text[32];
  snprintf(text, sizeof text, "%.15g", x);
  double read = strtod(text, NULL);
  bool same = fabs(read - x) <= DBL_EPSILON * fmax(fabs(read), fabs(x));
  zb_json_rounded(j, key, same ? 15 : 17, x);
}

static void put_dims(ZbJson *j, const char *key, const ZpPlan *p, ZpDims dims) {
  zb_json_list(j, key);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (dims >> d & 1) zb_json_string(j, NULL, p->layout.mesh.dim[d].name);
  zb_json_end(j);
}

static void put_numbers(ZbJson *j, const char *key, const uint32_t *at, uint32_t n) {
  zb_json_list(j, key);
  for (uint32_t i = 0; i < n; i++) zb_json_count(j, NULL, at[i]);
  zb_json_end(j);
}

static void put_head(ZbJson *j, const ZpPlan *p) {
  zb_json_string(j, "format", "zug plan");
  zb_json_int(j, "version", 1);
  zb_json_string(j, "recipe", p->asked.recipe->name);
  zb_json_string(j, "model", p->graph->model);
  zb_json_int(j, "ranks", p->layout.mesh.nranks);
}

static ZbJson begin(ZbText *out) {
  ZbJson j = {.text = out, .indent = "\t"};
  zb_json_object(&j, NULL);
  return j;
}

static void end(ZbJson *j) {
  zb_json_end(j);
  zb_text_add(j->text, "\n");
}

/* ---- show ---- */
static void put_mesh(ZbJson *j, const ZpPlan *p) {
  zb_json_list(j, "mesh");
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    zb_json_object(j, NULL);
    zb_json_string(j, "name", dim->name);
    zb_json_int(j, "size", dim->size);
    zb_json_bool(j, "stages", d == p->layout.mesh.pipe);
    zb_json_list(j, "axes");
    for (uint32_t i = 0; i < dim->naxes; i++)
      if (dim->axes[i] < p->model->naxes) zb_json_string(j, NULL, p->graph->axes[dim->axes[i]].name);
    zb_json_end(j);
    if (dim->zigzag != ZP_NO_AXIS) zb_json_string(j, "zigzag", p->graph->axes[dim->zigzag].name);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_batch(ZbJson *j, const ZpPlan *p) {
  if (p->asked.batch != ZP_NONE) {
    zb_json_object(j, "batch");
    zb_json_int(j, "samples", p->asked.global_batch);
    zb_json_int(j, "micro_batches", p->asked.nmicro);
    zb_json_int(j, "samples_of_micro_batch", p->layout.axis_size[p->asked.batch]);
    zb_json_end(j);
  }
  zb_json_string(j, "compute", zp_compute_text(p));
  zb_json_bool(j, "forward_only", p->asked.forward_only);
  put_real(j, "flop", p->notes.model_flops);
}

/* The sizes of a step of generation, and what its caches hold. */
static void put_generates(ZbJson *j, const ZpPlan *p) {
  const ZpStream *s = p->stream;
  ZkElem real = zp_precision_elem(p->asked.recipe->precision.compute);
  zb_json_object(j, "generates");
  zb_json_string(j, "along", p->graph->axes[s->along.time].name);
  zb_json_string(j, "tokens", s->model->inputs[s->along.tokens].name);
  zb_json_string(j, "output", s->model->outputs[s->along.output].name);
  zb_json_int(j, "sequences", p->generating.sequences);
  zb_json_int(j, "length", p->generating.length);
  zb_json_int(j, "step_tokens", p->generating.step);
  zb_json_int(j, "page", p->generating.page);
  zb_json_list(j, "pages");
  for (uint32_t i = 0; i < s->ngroups; i++) {
    zb_json_object(j, NULL);
    zb_json_int(j, "window", s->groups[i].window);
    zb_json_int(j, "pages", p->pages[i]);
    zb_json_int(j, "of_a_sequence", zp_pages_of(&p->generating, s->groups[i].window));
    zb_json_count(j, "bytes_a_token", zp_cache_bytes(s, ZP_CACHE_PAGES, i, real));
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_count(j, "bytes_a_sequence",
                zp_cache_bytes(s, ZP_CACHE_STATE, 0, real) + zp_cache_bytes(s, ZP_CACHE_RECENT, 0, real));
  zb_json_end(j);
}

static void put_schedule(ZbJson *j, const ZpPlan *p, const ZpTimeline *t) {
  zb_json_object(j, "schedule");
  zb_json_string(j, "name", p->asked.schedule);
  put_real(j, "idle", zp_idle(t));
  zb_json_count(j, "units", t->span);
  zb_json_end(j);
}

static void put_holds(ZbJson *j, const ZpPlan *p, const ZpStage *st) {
  zb_json_list(j, "holds");
  for (uint32_t i = 0, n; i < st->ninsts; i += n) {
    const ZgSegment *g = &p->graph->segments[st->insts[i].segment];
    n = zp_run_of(st, i);
    zb_json_object(j, NULL);
    zb_json_count(j, "segment", st->insts[i].segment);
    if (g->repeat) {
      zb_json_string(j, "repeat", g->label);
      zb_json_count(j, "from", st->insts[i].iter);
      zb_json_count(j, "to", st->insts[i].iter + n - 1);
    }
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_memory(ZbJson *j, const char *key, const char *total, const ZpPlan *p, const ZpLedger *l,
                       ZpMemory m) {
  zb_json_object(j, key);
  for (int i = 0; i < ZP_LEDGER_LINES; i++)
    if (zp_ledger_shows(p, i, m)) zb_json_count(j, zp_ledger_info[i].text, l->bytes[i]);
  zb_json_count(j, total, l->total[m]);
  zb_json_end(j);
}

static void put_timeline(ZbJson *j, const ZpPlan *p, const ZpTimeline *t, uint32_t stage) {
  const ZpOrder *o = &t->order[stage];
  zb_json_list(j, "timeline");
  for (uint32_t i = 0; i < o->n; i++) {
    zb_json_object(j, NULL);
    zb_json_string(j, "pass", zp_item_info[o->item[i].kind].text);
    zb_json_count(j, "micro_batch", o->item[i].mb);
    if (p->programs.nvstages > p->programs.nstages) zb_json_count(j, "virtual_stage", o->item[i].vstage);
    zb_json_count(j, "start", o->start[i]);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_stages(ZbJson *j, const ZpPlan *p, const ZpTimeline *t) {
  zb_json_list(j, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    zb_json_object(j, NULL);
    zb_json_count(j, "stage", s);
    put_real(j, "cost", zp_stage_cost(p, s));
    zb_json_count(j, "live", st->prog.live);
    zb_json_count(j, "instructions", st->prog.ninstrs);
    put_holds(j, p, st);
    zb_json_count(j, "kept_bytes", zp_stashed_bytes(p, s));
    zb_json_count(j, "kept_moves", zp_stashed_moves(p, s));
    put_memory(j, "device_bytes", "arena", p, &st->ledger, ZP_DEVICE);
    put_memory(j, "host_bytes", "host", p, &st->ledger, ZP_HOST);
    if (t) put_timeline(j, p, t, s);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_buckets(ZbJson *j, const ZpPlan *p) {
  zb_json_list(j, "buckets");
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[i];
    zb_json_object(j, NULL);
    zb_json_string(j, "name", k->name);
    zb_json_count(j, "elements", k->elems);
    zb_json_string(j, "stored", zk_elem_info[k->elem].text);
    zb_json_int(j, "zero", zp_zero_stage(k));
    put_dims(j, "cut_over", p, k->shard);
    put_dims(j, "partial_over", p, k->partial);
    zb_json_count(j, "gradient_bytes", k->elems * 4);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_list(j, "tied");
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    zb_json_object(j, NULL);
    zb_json_string(j, "bucket", p->programs.buckets[p->programs.tied[i].bucket].name);
    put_numbers(j, "stages", p->programs.tied[i].stages, p->programs.tied[i].nstages);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_groups(ZbJson *j, const ZpPlan *p) {
  zb_json_list(j, "groups");
  for (uint32_t i = 0; i < p->asked.ngroups; i++) {
    const ZpGroup *g = &p->asked.groups[i];
    ZpGroupCost c = zp_group_cost(p, i);
    uint64_t n = (uint64_t)c.elements;
    zb_json_object(j, NULL);
    zb_json_string(j, "optimizer", zp_optimizer_text(p->asked.optimizers[g->optimizer].kind));
    put_real(j, "rate", g->rate);
    put_real(j, "decay", g->decay.num);
    zb_json_count(j, "elements", n);
    zb_json_count(j, "bytes", n * 4);
    zb_json_count(j, "state_bytes", (uint64_t)c.states);
    zb_json_count(j, "step_bytes", (uint64_t)c.moved);
    put_real(j, "step_flops", c.flops);
    zb_json_list(j, "parameters");
    for (uint32_t k = 0; k < p->graph->nparams; k++)
      if (zp_in_group(p, k, i)) zb_json_string(j, NULL, p->graph->params[k].path);
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_kept(ZbJson *j, const ZpPlan *p) {
  ZbArena *a = zb_arena_new();
  zb_json_list(j, "kept");
  for (uint32_t i = 0; i < p->programs.nstashed; i++) {
    const ZpStash *k = &p->programs.stashed[i];
    zb_json_object(j, NULL);
    zb_json_count(j, "segment", k->segment);
    zb_json_string(j, "tensor", zg_type_text(p->graph, a, &k->type));
    zb_json_string(j, "place", zp_loc_text(p, k->loc));
    zb_json_count(j, "bytes", k->bytes);
    zb_json_count(j, "moves", k->moves);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_count(j, "not_kept", p->notes.not_stashed);
  zb_arena_free(a);
}

void zp_json_show(ZbJson *j, const ZpPlan *p) {
  ZpTimeline t = {0};
  if (!p->asked.forward_only) t = zp_timeline(p);
  put_head(j, p);
  zb_json_count(j, "parameters", (uint64_t)p->notes.params);
  put_mesh(j, p);
  put_batch(j, p);
  if (p->stream) put_generates(j, p);
  if (t.a) put_schedule(j, p, &t);
  put_stages(j, p, t.a ? &t : NULL);
  put_kept(j, p);
  zb_json_count(j, "async_bytes", p->notes.async_bytes);
  zb_json_count(j, "scratch_room", p->layout.room);
  put_buckets(j, p);
  put_groups(j, p);
  zb_arena_free(t.a);
}

void zp_show_json(const ZpPlan *p, ZbText *out) {
  ZbJson j = begin(out);
  zp_json_show(&j, p);
  end(&j);
}

/* ---- explain ---- */
static void put_sent(ZbJson *j, const ZpPlan *p, const ZpSent *r) {
  zb_json_object(j, NULL);
  zb_json_count(j, "from_stage", r->from);
  zb_json_count(j, "to_stage", r->to);
  zb_json_count(j, "count", r->count);
  if (r->most > r->count) zb_json_count(j, "most", r->most);
  zb_json_count(j, "bytes", r->bytes);
  zb_json_count(j, "sent", (uint64_t)zp_sent_bytes(r));
  zb_json_string(j, "collective", zp_sent_op(r->op));
  zb_json_string(j, "over", r->over);
  put_dims(j, "dims", p, r->dims);
  zb_json_int(j, "members", r->members);
  zb_json_string(j, "tensor", r->what);
  zb_json_string(j, "cause", r->why);
  zb_json_end(j);
}

void zp_json_explain(ZbJson *j, const ZpPlan *p) {
  ZbArena *a = zb_arena_new();
  ZpSents t = zp_sents(p, a);
  put_head(j, p);
  zb_json_list(j, "messages");
  for (uint32_t i = 0; i < t.n; i++) put_sent(j, p, &t.rows[i]);
  zb_json_end(j);
  zb_json_list(j, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    double by[ZP_SEND + 1], all = zp_sent_of_stage(t, s, by);
    zb_json_object(j, NULL);
    zb_json_count(j, "stage", s);
    zb_json_count(j, "sent", (uint64_t)all);
    zb_json_object(j, "by");
    for (uint32_t op = 0; op <= ZP_SEND; op++)
      if (by[op] > 0) zb_json_count(j, zp_sent_op(op), (uint64_t)by[op]);
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_arena_free(a);
}

void zp_explain_json(const ZpPlan *p, ZbText *out) {
  ZbJson j = begin(out);
  zp_json_explain(&j, p);
  end(&j);
}

/* ---- programs ---- */
static void put_instr(ZbJson *j, const ZpPlan *p, uint32_t s, const ZpInstr *in) {
  ZbText text = {0};
  zp_instr_text(p, s, in, &text);
  zb_json_object(j, NULL);
  zb_json_string(j, "queue", zp_queue_text[in->queue]);
  zb_json_string(j, "op", zp_instr_info[in->op].text);
  zb_json_string(j, "text", text.s);
  if (in->queue == ZP_Q_P2P) zb_json_count(j, "peer", in->peer);
  uint64_t bytes = zp_instr_bytes(p, in);
  if (bytes && in->queue == ZP_Q_COLL && in->dims) {
    zb_json_string(j, "collective", zp_sent_op(in->coll));
    put_dims(j, "dims", p, in->dims);
  }
  if (bytes) zb_json_count(j, "bytes", bytes);
  put_numbers(j, "after", in->wait, in->nwait);
  zb_json_end(j);
  zb_text_free(&text);
}

void zp_show_programs_json(const ZpPlan *p, ZbText *out) {
  ZbJson j = begin(out);
  put_head(&j, p);
  zb_json_list(&j, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpProgram *g = &p->programs.stages[s].prog;
    zb_json_object(&j, NULL);
    zb_json_count(&j, "stage", s);
    zb_json_list(&j, "instructions");
    for (uint32_t i = 0; i < g->ninstrs; i++) put_instr(&j, p, s, &g->instrs[i]);
    zb_json_end(&j);
    zb_json_end(&j);
  }
  zb_json_end(&j);
  end(&j);
}

/* ---- programs --calls ---- */
/* Leaves the operand open for what is said of results alone. */
static void begin_value(ZbJson *j, const ZpPlan *p, uint32_t segment, uint32_t value) {
  const ZpValue *v = &p->programs.segments[segment].values[value];
  ZbText name = {0};
  zp_value_text(p, segment, value, &name);
  zb_json_object(j, NULL);
  zb_json_string(j, "name", name.s);
  zb_json_string(j, "type", zk_elem_info[v->elem].text);
  zb_json_count(j, "tensors", v->nmembers ? v->nmembers : 1);
  zb_json_list(j, "axes");
  for (int i = 0; i < v->type.naxes; i++) {
    zb_json_object(j, NULL);
    zb_json_string(j, "name", p->graph->axes[v->axis[i]].name);
    zb_json_int(j, "size", v->size[i]);
    if (zp_value_cut(p, v, i)) zb_json_int(j, "of", p->layout.axis_size[v->axis[i]]);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_count(j, "bytes", v->bytes);
  zb_json_string(j, "at", zp_space_text(v));
  put_dims(j, "partial_over", p, zp_value_partial(p, v));
  zb_text_free(&name);
}

static void put_function(ZbJson *j, const char *key, const ZkPointwise *f, int from, int to) {
  zb_json_list(j, key);
  for (int i = from; i < to; i++) zb_json_string(j, NULL, zg_op_info[f->ops[i].op].text);
  zb_json_end(j);
}

static void put_operands(ZbJson *j, const ZpPlan *p, uint32_t segment, const ZpRow *r) {
  const ZpNode *n = r->node;
  zb_json_list(j, "reads");
  for (int i = 0; i < n->call.nin; i++) {
    begin_value(j, p, segment, n->in[i]);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_list(j, "writes");
  for (int i = 0; i < n->call.nout; i++) {
    begin_value(j, p, segment, n->out[i]);
    zb_json_bool(j, "adds", zp_row_adds_to(p, segment, r, i));
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_call(ZbJson *j, const ZpPlan *p, uint32_t segment, const ZpRow *r) {
  const ZpNode *n = r->node;
  const ZkPointwise *f = n->call.pointwise;
  zb_json_object(j, NULL);
  zb_json_string(j, "op", zg_op_info[n->call.op].text);
  zb_json_list(j, "axes");
  for (int i = 0; i < n->call.nax; i++) zb_json_string(j, NULL, p->graph->axes[n->call.ax[i]].name);
  zb_json_end(j);
  if (f && f->prologue) put_function(j, "prologue", f, 0, f->prologue);
  if (f) put_function(j, n->call.op == ZG_OP_POINTWISE ? "function" : "epilogue", f, f->prologue, f->nops);
  zb_json_string(j, "place", zp_loc_text(p, n->loc));
  zb_json_count(j, "flop", (uint64_t)n->flops);
  zb_json_count(j, "bytes", (uint64_t)r->bytes);
  if (r->sends) put_dims(j, "dims", p, n->dims);
  if (n->cause) zb_json_string(j, "cause", n->cause);
  if (r->beside) zb_json_count(j, "until", n->until);
  zb_json_bool(j, "in_rounds", n->rounds != 0);
  zb_json_bool(j, "recomputed", n->recomputed);
  put_operands(j, p, segment, r);
  zb_json_end(j);
}

void zp_show_calls_json(const ZpPlan *p, uint32_t segment, ZbText *out) {
  ZbJson j = begin(out);
  ZbText name = {0};
  put_head(&j, p);
  zp_segment_text(p, segment, &name);
  zb_json_string(&j, "segment", name.s);
  zb_json_int(&j, "iterations", p->graph->segments[segment].trip);
  zb_json_list(&j, "phases");
  for (int phase = 0; phase < ZP_PHASES; phase++) {
    uint32_t n = p->programs.segments[segment].list[phase].n;
    if (!n) continue;
    zb_json_object(&j, NULL);
    zb_json_string(&j, "phase", zp_phase_text[phase]);
    zb_json_list(&j, "calls");
    for (uint32_t i = 0; i < n; i++) {
      ZpRow r = zp_row(p, segment, (ZpPhase)phase, i);
      put_call(&j, p, segment, &r);
    }
    zb_json_end(&j);
    zb_json_end(&j);
  }
  zb_json_end(&j);
  end(&j);
  zb_text_free(&name);
}
