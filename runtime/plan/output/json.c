/* Plans as JSON: what the tables for people say, with all digits. JSON.md has the keys; they stay. */
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

/* ---- values ---- */
/* Bytes and counts keep all digits, which cJSON's own numbers, doubles, may not. */
static void put_count(cJSON *o, const char *key, uint64_t n) {
  char digits[24];
  snprintf(digits, sizeof digits, "%" PRIu64, n);
  cJSON_AddRawToObject(o, key, digits);
}

static cJSON *add_object(cJSON *list) {
  cJSON *o = cJSON_CreateObject();
  cJSON_AddItemToArray(list, o);
  return o;
}

static void put_dims(cJSON *o, const char *key, const ZpPlan *p, ZpDims dims) {
  cJSON *list = cJSON_AddArrayToObject(o, key);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (dims >> d & 1) cJSON_AddItemToArray(list, cJSON_CreateString(p->layout.mesh.dim[d].name));
}

static void put_numbers(cJSON *o, const char *key, const uint32_t *at, uint32_t n) {
  cJSON *list = cJSON_AddArrayToObject(o, key);
  for (uint32_t i = 0; i < n; i++) cJSON_AddItemToArray(list, cJSON_CreateNumber(at[i]));
}

static cJSON *begin(const ZpPlan *p) {
  cJSON *o = cJSON_CreateObject();
  cJSON_AddStringToObject(o, "format", "zug plan");
  cJSON_AddNumberToObject(o, "version", 1);
  cJSON_AddStringToObject(o, "recipe", p->asked.recipe->name);
  cJSON_AddStringToObject(o, "model", p->graph->model);
  put_count(o, "ranks", (uint64_t)p->layout.mesh.nranks);
  return o;
}

static void end(cJSON *o, ZbText *out) {
  char *text = cJSON_Print(o);
  if (!text) zb_out_of_memory(0);
  zb_text_add(out, "%s\n", text);
  cJSON_free(text);
  cJSON_Delete(o);
}

/* ---- show ---- */
static void put_mesh(cJSON *o, const ZpPlan *p) {
  cJSON *list = cJSON_AddArrayToObject(o, "mesh");
  for (int d = 0; d < p->layout.mesh.ndims; d++) {
    const ZpDim *dim = &p->layout.mesh.dim[d];
    cJSON *x = add_object(list);
    cJSON_AddStringToObject(x, "name", dim->name);
    put_count(x, "size", (uint64_t)dim->size);
    cJSON_AddBoolToObject(x, "stages", d == p->layout.mesh.pipe);
    cJSON *axes = cJSON_AddArrayToObject(x, "axes");
    for (uint32_t i = 0; i < dim->naxes; i++)
      if (dim->axes[i] < p->model->naxes)
        cJSON_AddItemToArray(axes, cJSON_CreateString(p->graph->axes[dim->axes[i]].name));
    if (dim->zigzag != ZP_NO_AXIS) cJSON_AddStringToObject(x, "zigzag", p->graph->axes[dim->zigzag].name);
  }
}

static void put_batch(cJSON *o, const ZpPlan *p) {
  if (p->asked.batch != ZP_NONE) {
    cJSON *x = cJSON_AddObjectToObject(o, "batch");
    put_count(x, "samples", (uint64_t)p->asked.global_batch);
    put_count(x, "micro_batches", (uint64_t)p->asked.nmicro);
    put_count(x, "samples_of_micro_batch", (uint64_t)p->layout.axis_size[p->asked.batch]);
  }
  cJSON_AddStringToObject(o, "compute", zp_compute_text(p));
  cJSON_AddBoolToObject(o, "forward_only", p->asked.forward_only);
  cJSON_AddNumberToObject(o, "flop", p->notes.model_flops);
}

static void put_schedule(cJSON *o, const ZpPlan *p, const ZpTimeline *t) {
  cJSON *x = cJSON_AddObjectToObject(o, "schedule");
  cJSON_AddStringToObject(x, "name", p->asked.schedule);
  cJSON_AddNumberToObject(x, "idle", zp_idle(p, t));
  put_count(x, "units", t->span);
}

static void put_holds(cJSON *o, const ZpPlan *p, const ZpStage *st) {
  cJSON *list = cJSON_AddArrayToObject(o, "holds");
  for (uint32_t i = 0, n; i < st->ninsts; i += n) {
    const ZgSegment *g = &p->graph->segments[st->insts[i].segment];
    cJSON *x = add_object(list);
    n = zp_run_of(st, i);
    cJSON_AddNumberToObject(x, "segment", st->insts[i].segment);
    if (!g->repeat) continue;
    cJSON_AddStringToObject(x, "repeat", g->label);
    cJSON_AddNumberToObject(x, "from", st->insts[i].iter);
    cJSON_AddNumberToObject(x, "to", st->insts[i].iter + n - 1);
  }
}

static void put_memory(cJSON *o, const char *key, const char *total, const ZpPlan *p, const ZpLedger *l,
                       ZpMemory m) {
  cJSON *x = cJSON_AddObjectToObject(o, key);
  for (int i = 0; i < ZP_LEDGER_LINES; i++)
    if (zp_ledger_shows(p, i, m)) put_count(x, zp_ledger_info[i].text, l->bytes[i]);
  put_count(x, total, l->total[m]);
}

static void put_timeline(cJSON *o, const ZpPlan *p, const ZpTimeline *t, uint32_t stage) {
  cJSON *list = cJSON_AddArrayToObject(o, "timeline");
  for (uint32_t i = 0; i < 2 * (uint32_t)p->asked.nmicro; i++) {
    cJSON *x = add_object(list);
    cJSON_AddStringToObject(x, "pass", t->work[stage][i].backward ? "backward" : "forward");
    cJSON_AddNumberToObject(x, "micro_batch", t->work[stage][i].mb);
    put_count(x, "start", t->start[stage][i]);
  }
}

static void put_stages(cJSON *o, const ZpPlan *p, const ZpTimeline *t) {
  cJSON *list = cJSON_AddArrayToObject(o, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    cJSON *x = add_object(list);
    cJSON_AddNumberToObject(x, "stage", s);
    cJSON_AddNumberToObject(x, "cost", zp_stage_cost(p, s));
    cJSON_AddNumberToObject(x, "live", st->prog.live);
    cJSON_AddNumberToObject(x, "instructions", st->prog.ninstrs);
    put_holds(x, p, st);
    put_count(x, "kept_bytes", zp_kept_bytes(p, s));
    put_count(x, "kept_moves", zp_kept_moves(p, s));
    put_memory(x, "device_bytes", "arena", p, &st->ledger, ZP_DEVICE);
    put_memory(x, "host_bytes", "host", p, &st->ledger, ZP_HOST);
    if (t) put_timeline(x, p, t, s);
  }
}

static void put_buckets(cJSON *o, const ZpPlan *p) {
  cJSON *list = cJSON_AddArrayToObject(o, "buckets");
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    const ZpBucket *k = &p->programs.buckets[i];
    cJSON *x = add_object(list);
    cJSON_AddStringToObject(x, "name", k->name);
    put_count(x, "elements", k->elems);
    cJSON_AddNumberToObject(x, "zero", zp_zero_stage(k));
    put_dims(x, "cut_over", p, k->shard);
    put_dims(x, "partial_over", p, k->partial);
    put_count(x, "gradient_bytes", k->elems * 4);
  }
  list = cJSON_AddArrayToObject(o, "tied");
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    cJSON *x = add_object(list);
    cJSON_AddStringToObject(x, "bucket", p->programs.buckets[p->programs.tied[i].bucket].name);
    put_numbers(x, "stages", p->programs.tied[i].stages, p->programs.tied[i].nstages);
  }
}

static void put_groups(cJSON *o, const ZpPlan *p) {
  cJSON *list = cJSON_AddArrayToObject(o, "groups");
  for (uint32_t i = 0; i < p->asked.ngroups; i++) {
    const ZpGroup *g = &p->asked.groups[i];
    cJSON *x = add_object(list);
    uint64_t n = (uint64_t)zp_group_elements(p, i);
    cJSON_AddStringToObject(x, "optimizer", zp_optimizer_text[p->asked.optimizers[g->optimizer].kind]);
    cJSON_AddNumberToObject(x, "rate", g->rate);
    cJSON_AddNumberToObject(x, "decay", g->decay);
    put_count(x, "elements", n);
    put_count(x, "bytes", n * 4);
    cJSON *names = cJSON_AddArrayToObject(x, "parameters");
    for (uint32_t k = 0; k < p->graph->nparams; k++)
      if (zp_in_group(p, k, i)) cJSON_AddItemToArray(names, cJSON_CreateString(p->graph->params[k].path));
  }
}

static void put_kept(cJSON *o, const ZpPlan *p) {
  cJSON *list = cJSON_AddArrayToObject(o, "kept");
  ZbArena *a = zb_arena_new();
  for (uint32_t i = 0; i < p->programs.nkept; i++) {
    const ZpKeep *k = &p->programs.kept[i];
    cJSON *x = add_object(list);
    cJSON_AddNumberToObject(x, "segment", k->segment);
    cJSON_AddStringToObject(x, "tensor", zg_type_text(p->graph, a, &k->type));
    cJSON_AddStringToObject(x, "place", zp_loc_text(p, k->loc));
    put_count(x, "bytes", k->bytes);
    put_count(x, "moves", k->moves);
  }
  cJSON_AddNumberToObject(o, "not_kept", p->notes.nleft);
  zb_arena_free(a);
}

void zp_show_json(const ZpPlan *p, ZbText *out) {
  cJSON *o = begin(p);
  ZpTimeline t = {0};
  if (!p->asked.forward_only) t = zp_timeline(p);
  put_count(o, "parameters", (uint64_t)p->notes.params);
  put_mesh(o, p);
  put_batch(o, p);
  if (t.a) put_schedule(o, p, &t);
  put_stages(o, p, t.a ? &t : NULL);
  put_kept(o, p);
  put_count(o, "beside_bytes", p->notes.async_bytes);
  put_count(o, "scratch_room", p->layout.room);
  put_buckets(o, p);
  put_groups(o, p);
  end(o, out);
  zb_arena_free(t.a);
}

/* ---- explain ---- */
static void put_sent(cJSON *list, const ZpPlan *p, const ZpSent *r) {
  cJSON *x = add_object(list);
  cJSON_AddNumberToObject(x, "from_stage", r->from);
  cJSON_AddNumberToObject(x, "to_stage", r->to);
  put_count(x, "count", r->count);
  if (r->most > r->count) put_count(x, "most", r->most);
  put_count(x, "bytes", r->bytes);
  put_count(x, "sent", (uint64_t)zp_sent_bytes(r));
  cJSON_AddStringToObject(x, "collective", zp_sent_op(r->op));
  cJSON_AddStringToObject(x, "over", r->over);
  put_dims(x, "dims", p, r->dims);
  put_count(x, "members", (uint64_t)r->members);
  cJSON_AddStringToObject(x, "tensor", r->what);
  cJSON_AddStringToObject(x, "cause", r->why);
}

void zp_explain_json(const ZpPlan *p, ZbText *out) {
  ZbArena *a = zb_arena_new();
  ZpSents t = zp_sents(p, a);
  cJSON *o = begin(p), *list = cJSON_AddArrayToObject(o, "messages");
  for (uint32_t i = 0; i < t.n; i++) put_sent(list, p, &t.rows[i]);
  list = cJSON_AddArrayToObject(o, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    double by[ZP_SEND + 1], all = zp_sent_of_stage(t, s, by);
    cJSON *x = add_object(list);
    cJSON_AddNumberToObject(x, "stage", s);
    put_count(x, "sent", (uint64_t)all);
    cJSON *each = cJSON_AddObjectToObject(x, "by");
    for (uint32_t op = 0; op <= ZP_SEND; op++)
      if (by[op] > 0) put_count(each, zp_sent_op(op), (uint64_t)by[op]);
  }
  end(o, out);
  zb_arena_free(a);
}

/* ---- programs ---- */
static void put_instr(cJSON *list, const ZpPlan *p, uint32_t s, const ZpInstr *in) {
  ZbText text = {0};
  cJSON *x = add_object(list);
  zp_instr_text(p, s, in, &text);
  cJSON_AddStringToObject(x, "queue", zp_queue_text[in->queue]);
  cJSON_AddStringToObject(x, "op", zp_instr_info[in->op].text);
  cJSON_AddStringToObject(x, "text", text.s);
  if (in->queue == ZP_Q_P2P) cJSON_AddNumberToObject(x, "peer", in->peer);
  uint64_t bytes = zp_instr_bytes(p, in);
  if (bytes && in->queue == ZP_Q_COLL && in->dims) {
    cJSON_AddStringToObject(x, "collective", zp_sent_op(in->coll));
    put_dims(x, "dims", p, in->dims);
  }
  if (bytes) put_count(x, "bytes", bytes);
  put_numbers(x, "after", in->wait, in->nwait);
  zb_text_free(&text);
}

void zp_show_programs_json(const ZpPlan *p, ZbText *out) {
  cJSON *o = begin(p), *list = cJSON_AddArrayToObject(o, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpProgram *g = &p->programs.stages[s].prog;
    cJSON *x = add_object(list);
    cJSON_AddNumberToObject(x, "stage", s);
    cJSON *instrs = cJSON_AddArrayToObject(x, "instructions");
    for (uint32_t i = 0; i < g->ninstrs; i++) put_instr(instrs, p, s, &g->instrs[i]);
  }
  end(o, out);
}

/* ---- programs --calls ---- */
static void put_value(cJSON *list, const ZpPlan *p, uint32_t segment, uint32_t value) {
  const ZpValue *v = &p->programs.segments[segment].values[value];
  ZbText name = {0};
  cJSON *x = add_object(list);
  zp_value_text(p, segment, value, &name);
  cJSON_AddStringToObject(x, "name", name.s);
  cJSON_AddStringToObject(x, "type", zk_elem_info[v->elem].text);
  cJSON_AddNumberToObject(x, "tensors", v->nmembers ? v->nmembers : 1);
  cJSON *axes = cJSON_AddArrayToObject(x, "axes");
  for (int i = 0; i < v->type.naxes; i++) {
    cJSON *a = add_object(axes);
    cJSON_AddStringToObject(a, "name", p->graph->axes[v->axis[i]].name);
    put_count(a, "size", (uint64_t)v->size[i]);
    if (zp_value_cut(p, v, i)) put_count(a, "of", (uint64_t)p->layout.axis_size[v->axis[i]]);
  }
  put_count(x, "bytes", v->bytes);
  cJSON_AddStringToObject(x, "at", zp_space_text(v));
  put_dims(x, "partial_over", p, zp_value_partial(p, v));
  zb_text_free(&name);
}

static void put_function(cJSON *o, const char *key, const ZkPointwise *f, int from, int to) {
  cJSON *ops = cJSON_AddArrayToObject(o, key);
  for (int i = from; i < to; i++)
    cJSON_AddItemToArray(ops, cJSON_CreateString(zg_op_info[f->ops[i].op].text));
}

static void put_call(cJSON *list, const ZpPlan *p, uint32_t segment, const ZpRow *r) {
  const ZpNode *n = r->node;
  const ZkPointwise *f = n->call.pointwise;
  cJSON *x = add_object(list);
  cJSON_AddStringToObject(x, "op", zg_op_info[n->call.op].text);
  cJSON *axes = cJSON_AddArrayToObject(x, "axes");
  for (int i = 0; i < n->call.nax; i++)
    cJSON_AddItemToArray(axes, cJSON_CreateString(p->graph->axes[n->call.ax[i]].name));
  if (f && f->prologue) put_function(x, "prologue", f, 0, f->prologue);
  if (f) put_function(x, n->call.op == ZG_OP_POINTWISE ? "function" : "epilogue", f, f->prologue, f->nops);
  cJSON_AddStringToObject(x, "place", zp_loc_text(p, n->loc));
  put_count(x, "flop", (uint64_t)n->flops);
  put_count(x, "bytes", (uint64_t)r->bytes);
  if (r->sends) put_dims(x, "dims", p, n->dims);
  if (n->cause) cJSON_AddStringToObject(x, "cause", n->cause);
  if (r->beside) cJSON_AddNumberToObject(x, "until", n->until);
  cJSON_AddBoolToObject(x, "in_rounds", n->rounds != 0);
  cJSON_AddBoolToObject(x, "recomputed", n->recomputed);
  cJSON *reads = cJSON_AddArrayToObject(x, "reads"), *writes = cJSON_AddArrayToObject(x, "writes");
  for (int i = 0; i < n->call.nin; i++) put_value(reads, p, segment, n->in[i]);
  for (int i = 0; i < n->call.nout; i++) {
    put_value(writes, p, segment, n->out[i]);
    cJSON_AddBoolToObject(cJSON_GetArrayItem(writes, i), "adds", zp_row_adds_to(p, segment, r, i));
  }
}

void zp_show_calls_json(const ZpPlan *p, uint32_t segment, ZbText *out) {
  cJSON *o = begin(p), *list;
  ZbText name = {0};
  zp_segment_text(p, segment, &name);
  cJSON_AddStringToObject(o, "segment", name.s);
  cJSON_AddNumberToObject(o, "iterations", p->graph->segments[segment].trip);
  list = cJSON_AddArrayToObject(o, "phases");
  for (int phase = 0; phase < ZP_PHASES; phase++) {
    uint32_t n = p->programs.segments[segment].list[phase].n;
    if (!n) continue;
    cJSON *x = add_object(list);
    cJSON_AddStringToObject(x, "phase", zp_phase_text[phase]);
    cJSON *calls = cJSON_AddArrayToObject(x, "calls");
    for (uint32_t i = 0; i < n; i++) {
      ZpRow r = zp_row(p, segment, (ZpPhase)phase, i);
      put_call(calls, p, segment, &r);
    }
  }
  end(o, out);
  zb_text_free(&name);
}
