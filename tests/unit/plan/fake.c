/* See fake.h. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/fake.h"

#include <criterion/criterion.h>
#include <string.h>

enum { EMBED, LAYERS, HEAD, NSEGMENTS };
enum { PIPE, REPLICA, DATA, TENSOR, NDIMS };
enum { WTE, LAYER, OUT, SHARED }; /* buckets; OUT is wte again if tied, SHARED may be missing */

static void fill_mesh(ZpPlan *p, const Fake *f) {
  static const char *const name[NDIMS] = {"pipe", "replica", "data", "tensor"};
  p->layout.mesh.ndims = NDIMS;
  p->layout.mesh.pipe = PIPE;
  p->layout.mesh.nranks = 1;
  for (int d = 0; d < NDIMS; d++) {
    p->layout.mesh.dim[d] = (ZpDim){.name = name[d],
                                    .size = d == PIPE                  ? f->stages
                                            : d == REPLICA && f->alone ? 1
                                                                       : 2};
    p->layout.mesh.nranks *= p->layout.mesh.dim[d].size;
  }
}

static void fill_graph(ZpPlan *p, const Fake *f) {
  ZgGraph *g = ZB_NEW(p->arena, ZgGraph);
  g->model = "fake";
  g->nsegments = NSEGMENTS;
  g->segments = ZB_NEWN(p->arena, ZgSegment, NSEGMENTS);
  for (uint32_t i = 0; i < NSEGMENTS; i++)
    g->segments[i] = (ZgSegment){.label = i == LAYERS ? "layer" : "", .trip = 1};
  g->segments[LAYERS].trip = f->layers;
  g->segments[LAYERS].repeat = true;
  p->graph = g;
  p->model = g;
}

static void add_bucket(ZpPlan *p, const Fake *f, const char *name, uint32_t segment) {
  ZpDims partial = (f->alone ? 0 : 1u << REPLICA) | 1u << DATA;
  ZpBucket b = {.name = name, .segment = segment, .elems = 1024, .partial = partial, .replicas = partial};
  b.elem = (uint8_t)zp_precision_elem(p->asked.recipe->precision.compute);
  b.nslices = 1;
  b.slices = ZB_NEW(p->arena, ZpSlice);
  *b.slices = (ZpSlice){.n = 1024, .takes = 1024, .naxes = 1, .size = {1024}};
  b.frozen = (segment == LAYERS && f->frozen && name[0] == 'l') || (f->frozen == 3 && name[0] == 'w');
  if (b.frozen) b.partial = 0;
  zp_bucket_storage(p, &b);
  ZB_PUSH(p->arena, p->programs.buckets, p->programs.nbuckets, b);
}

/* Backward reads the segment's first bucket. */
static void read_back(ZpPlan *p, ZpSegment *s) {
  s->nvalues = 1;
  s->values = ZB_NEW(p->arena, ZpValue);
  *s->values = (ZpValue){.at = {ZP_AT_PARAM, 0, 0}};
  s->list[ZP_BWD].n = 1;
  s->list[ZP_BWD].nodes = ZB_NEW(p->arena, ZpNode);
  *s->list[ZP_BWD].nodes = (ZpNode){.call.nin = 1};
}

static void fill_segments(ZpPlan *p, const Fake *f) {
  p->programs.segments = ZB_NEWN(p->arena, ZpSegment, NSEGMENTS);
  for (uint32_t i = 0; i < NSEGMENTS; i++) {
    ZpSegment *s = &p->programs.segments[i];
    s->list[ZP_FWD].temp = 128;
    s->carry_bytes = i == EMBED ? 0 : 512;
    s->carry_out_bytes = i == HEAD ? 0 : 512;
    if (!f->forward_only) {
      s->saved_bytes = 256;
      s->list[ZP_BWD].temp = 128;
      s->saves_carry = i == LAYERS && f->saves_carry;
      s->dcarry_bytes = s->carry_bytes;
      s->dcarry_out_bytes = s->carry_out_bytes;
    }
    s->has_loss = i == HEAD;
    s->list[ZP_COUNT].n = i == HEAD && f->counts;
    s->cost = f->costs ? (i == LAYERS ? 7 : 1) : 0;
    uint32_t own = i == EMBED ? WTE : i == LAYERS ? LAYER : f->tied ? WTE : OUT;
    ZB_PUSH(p->arena, s->buckets, s->nbuckets, own);
    uint32_t shared = p->programs.nbuckets - 1;
    if (i == LAYERS && f->shared) ZB_PUSH(p->arena, s->buckets, s->nbuckets, shared);
    if (i == LAYERS && f->frozen > 1) read_back(p, s);
  }
}

static uint32_t hold(ZpPlan *p, ZpStage *st, uint32_t bucket, uint32_t iter) {
  for (uint32_t h = 0; h < st->nheld; h++)
    if (st->held[h].bucket == bucket && st->held[h].iter == iter) return h;
  ZpStageBucket h = {.bucket = bucket, .iter = iter, .tied = ZP_NONE, .norm_owner = true};
  ZB_PUSH(p->arena, st->held, st->nheld, h);
  return st->nheld - 1;
}

static void add_inst(ZpPlan *p, ZpVirtualStage *v, uint32_t segment, uint32_t iter) {
  ZpStage *st = &p->programs.stages[v->stage];
  const ZpSegment *g = &p->programs.segments[segment];
  ZpInst x = {.segment = segment, .iter = iter};
  for (uint32_t k = 0; k < g->nbuckets; k++) {
    uint32_t single = p->programs.buckets[g->buckets[k]].segment == ZP_NONE,
             h = hold(p, st, g->buckets[k], single ? 0 : iter);
    ZB_PUSH(p->arena, x.held, x.nheld, h);
  }
  uint64_t end = v->ninsts ? v->slot_bytes : v->input_bytes, n = st->ninsts;
  ZB_PUSH(p->arena, st->saved_at, n, end);
  v->slot_bytes = end + g->saved_bytes + (v->ninsts && g->saves_carry ? g->carry_bytes : 0);
  if (!v->ninsts) v->carry_bytes = g->carry_bytes, v->dcarry_bytes = g->dcarry_bytes;
  v->carry_out_bytes = g->carry_out_bytes, v->dcarry_out_bytes = g->dcarry_out_bytes;
  st->boundary_bytes = v->ninsts++ ? 512 : st->boundary_bytes;
  ZB_PUSH(p->arena, st->insts, st->ninsts, x);
}

static void tie(ZpPlan *p, uint32_t bucket) {
  ZpTied t = {.bucket = bucket};
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t h = 0; h < p->programs.stages[s].nheld; h++)
      if (p->programs.stages[s].held[h].bucket == bucket) ZB_PUSH(p->arena, t.stages, t.nstages, s);
  for (uint32_t k = 0; k < t.nstages && t.nstages > 1; k++) {
    ZpStage *st = &p->programs.stages[t.stages[k]];
    for (uint32_t h = 0; h < st->nheld; h++) {
      if (st->held[h].bucket != bucket) continue;
      st->held[h].tied = p->programs.ntied;
      st->held[h].norm_owner = k == 0;
    }
  }
  if (t.nstages > 1) ZB_PUSH(p->arena, p->programs.tied, p->programs.ntied, t);
}

ZpPlan *fake_plan(ZbArena *a, Fake f) {
  ZpPlan *p = ZB_NEW(a, ZpPlan);
  p->arena = a;
  p->asked.schedule = f.schedule ? f.schedule : zl_schedules[0];
  p->asked.nmicro = f.nmicro;
  ZlRecipe *r = ZB_NEW(a, ZlRecipe);
  r->precision.compute = f.bf16 ? "bf16" : "f32";
  p->asked.recipe = r;
  p->asked.noptimizers = 1;
  p->asked.optimizers = ZB_NEW(a, ZpOptimizer);
  p->asked.optimizers->states = f.forward_only ? 0 : 2;
  p->asked.forward_only = f.forward_only;
  p->asked.pins = f.pins;
  p->asked.checkpoints = f.checkpoints;
  p->layout.den_partial[0] = 1u << DATA;
  static const unsigned what[] = {0, ZL_SHARD_STATES, ZL_SHARD_STATES | ZL_SHARD_GRADS,
                                  ZL_SHARD_STATES | ZL_SHARD_GRADS | ZL_SHARD_PARAMS};
  p->asked.zero = (ZpZero){.over = f.level ? 1u << DATA : 0,
                           .what = what[f.level],
                           .keep = f.keep,
                           .ahead = 1 + (uint32_t)f.further};
  fill_mesh(p, &f);
  fill_graph(p, &f);
  add_bucket(p, &f, "wte", ZP_NONE);
  add_bucket(p, &f, "layer.*", LAYERS);
  if (!f.tied) add_bucket(p, &f, "out", ZP_NONE);
  if (f.shared) add_bucket(p, &f, "scale", ZP_NONE);
  fill_segments(p, &f);
  p->programs.nstages = f.stages;
  p->programs.stages = ZB_NEWN(a, ZpStage, f.stages);
  uint32_t n = f.layers + 2, vs;
  p->programs.vstages = zp_place_vstages(a, p->asked.schedule, f.stages, &vs);
  p->programs.nvstages = vs;
  cr_assert_geq(n, vs);
  for (uint32_t k = 0; k < vs; k++) {
    ZpVirtualStage *v = &p->programs.vstages[k];
    ZpStage *st = &p->programs.stages[v->stage];
    ZB_PUSH(a, st->vstages, st->nvstages, k);
    v->first = st->ninsts;
    v->input_bytes = k == 0 || k + 1 == vs ? 64 : 0;
    for (uint32_t i = n * k / vs; i < n * (k + 1) / vs; i++)
      add_inst(p, v, i == 0 ? EMBED : i + 1 == n ? HEAD : LAYERS, i == 0 || i + 1 == n ? 0 : i - 1);
    st->scratch_bytes = 128;
  }
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    if (p->programs.buckets[b].segment == ZP_NONE) tie(p, b);
  return p;
}

void fake_arena(ZpPlan *p) {
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    ZpStage *st = &p->programs.stages[s];
    uint64_t *at = st->ledger.total;
    at[ZP_DEVICE] = at[ZP_HOST] = 0;
    for (uint32_t b = 0; b < st->prog.nbufs; b++) {
      ZpBuf *x = &st->prog.bufs[b];
      bool pinned = x->kind == ZP_B_PINNED_INPUTS || x->kind == ZP_B_PINNED_SCALARS;
      x->memory = pinned || x->kind == ZP_B_SNAPSHOT ? ZP_HOST : ZP_DEVICE;
      x->offset = at[x->memory];
      at[x->memory] += x->bytes;
    }
    st->ledger.bytes[ZP_L_OTHER] = at[ZP_DEVICE];
    st->ledger.bytes[ZP_L_PINNED] = at[ZP_HOST];
  }
}

ZpPlan *fake_programs(ZbArena *a, Fake f) {
  ZpPlan *p = fake_plan(a, f);
  zp_program(p);
  fake_arena(p);
  return p;
}

uint32_t fake_find(const ZpPlan *p, uint32_t stage, ZpInstrOp op, uint32_t mb, uint32_t what) {
  const ZpProgram *g = &p->programs.stages[stage].prog;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    const ZpInstr *in = &g->instrs[i];
    bool inst = op == ZP_I_FWD || op == ZP_I_BWD;
    if (in->op != op || (mb != UINT32_MAX && in->mb != mb)) continue;
    if (what == UINT32_MAX || (inst ? in->inst : in->held) == what) return i;
  }
  cr_assert_fail("stage %u has no %s", stage, zp_instr_info[op].text);
  return 0;
}

static void requeue(ZpProgram *g) {
  memset(g->nqueue, 0, sizeof g->nqueue);
  for (uint32_t i = 0; i < g->ninstrs; i++) g->queue[g->instrs[i].queue][g->nqueue[g->instrs[i].queue]++] = i;
}

void fake_remove(ZpPlan *p, uint32_t stage, uint32_t instr) {
  ZpProgram *g = &p->programs.stages[stage].prog;
  ZpInstr gone = g->instrs[instr];
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    ZpInstr *in = &g->instrs[i];
    uint32_t *wait = NULL, n = 0;
    for (uint32_t k = 0; k < in->nwait; k++) {
      if (in->wait[k] != instr) {
        uint32_t w = in->wait[k] - (in->wait[k] > instr);
        ZB_PUSH(p->arena, wait, n, w);
        continue;
      }
      for (uint32_t j = 0; j < gone.nwait; j++) ZB_PUSH(p->arena, wait, n, gone.wait[j]);
    }
    in->wait = wait;
    in->nwait = n;
  }
  memmove(g->instrs + instr, g->instrs + instr + 1, (g->ninstrs - instr - 1) * sizeof *g->instrs);
  g->ninstrs--;
  requeue(g);
}

void fake_reorder(ZpPlan *p, uint32_t stage, const uint32_t *now) {
  ZpProgram *g = &p->programs.stages[stage].prog;
  ZpInstr *old = ZB_NEWN(p->arena, ZpInstr, g->ninstrs);
  uint32_t *place = ZB_NEWN(p->arena, uint32_t, g->ninstrs);
  memcpy(old, g->instrs, g->ninstrs * sizeof *old);
  for (uint32_t i = 0; i < g->ninstrs; i++) place[now[i]] = i;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    g->instrs[i] = old[now[i]];
    for (uint32_t k = 0; k < g->instrs[i].nwait; k++) g->instrs[i].wait[k] = place[g->instrs[i].wait[k]];
  }
  requeue(g);
}

void fake_print(const ZpPlan *p, ZbText *out) {
  static const char *const queue[ZP_QUEUES] = {"", "  p2p  ", "  coll "};
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpProgram *g = &p->programs.stages[s].prog;
    zb_text_add(out, "stage %u\n", s);
    for (uint32_t i = 0; i < g->ninstrs; i++) {
      zb_text_add(out, "%3u %s", i, queue[g->instrs[i].queue]);
      zp_instr_text(p, s, &g->instrs[i], out);
      for (uint32_t k = 0; k < g->instrs[i].nwait; k++)
        zb_text_add(out, "%s%u", k ? "," : " < ", g->instrs[i].wait[k]);
      zb_text_add(out, "\n");
    }
  }
}
