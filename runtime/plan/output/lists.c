/* The calls of a segment in order, with their operands: what a layer does, forward and backward. */
#include "runtime/plan/output/tables.h"
#include "runtime/plan/text.h"

#include <string.h>

/* ---- segments ------------------------------------------------------------------------------------------ */
uint32_t zp_segment_named(const ZpPlan *p, const char *name, ZbErr *err) {
  ZbText have = {0}, text = {0};
  uint32_t found = ZP_NONE;
  for (uint32_t i = 0; i < p->graph->nsegments && found == ZP_NONE; i++) {
    text.len = 0;
    zp_segment_text(p, i, &text);
    if (!strcmp(text.s, name)) found = i;
    zb_text_add(&have, "%s`%s`", i ? ", " : "", text.s);
  }
  if (found == ZP_NONE)
    zb_fail(err, zb_printf(p->arena, "it has %s", have.s), "model %s has no segment `%s`", p->graph->model,
            zb_show(name));
  zb_text_free(&have);
  zb_text_free(&text);
  return found;
}

/* ---- what a call has ----------------------------------------------------------------------------------- */
ZpRow zp_row(const ZpPlan *p, uint32_t segment, ZpPhase phase, uint32_t i) {
  const ZpSegment *s = &p->programs.segments[segment];
  const ZpNode *n = &s->list[phase].nodes[i];
  /* of a later micro-batch, if there is one */
  bool adds = n->call.accumulate && !(n->overwrites && p->asked.nmicro == 1);
  return (ZpRow){.node = n,
                 .adds = adds,
                 .sends = zp_sends(n),
                 .beside = zp_is_async(n) && n->until > i + 1,
                 .bytes = zp_sends(n) ? (double)zp_run_bytes(p, s, &s->list[phase], i)
                                      : zp_moved_bytes(s, n, adds)};
}

bool zp_row_adds_to(const ZpPlan *p, uint32_t segment, const ZpRow *r, int i) {
  return r->adds && zp_adds_to(&p->programs.segments[segment], r->node, i);
}

const char *zp_space_text(const ZpValue *v) {
  static const char *const text[] = {[ZP_AT_NOWHERE] = "unused",
                                     [ZP_AT_TEMP] = "scratch",
                                     [ZP_AT_SAVED] = "activations",
                                     [ZP_AT_INPUT] = "input",
                                     [ZP_AT_PARAM] = "parameter",
                                     [ZP_AT_GRAD] = "gradient",
                                     [ZP_AT_CARRY_IN] = "carried in",
                                     [ZP_AT_CARRY_OUT] = "carried out",
                                     [ZP_AT_DCARRY_OUT] = "gradient of what is carried out",
                                     [ZP_AT_DCARRY_IN] = "gradient of what is carried in",
                                     [ZP_AT_CACHE] = "cache",
                                     [ZP_AT_SEED] = "seed"};
  return text[v->at.space];
}

/* An input as the model calls it, a parameter by its path; others by their number in the segment. */
static void put_name(const ZpPlan *p, uint32_t segment, uint32_t value, ZbText *out) {
  const ZpSegment *s = &p->programs.segments[segment];
  const ZpValue *v = &s->values[value];
  for (uint32_t i = 0; i < p->programs.ninputs && v->at.space == ZP_AT_INPUT; i++)
    if (p->programs.inputs[i].at == v->at.offset) {
      zb_text_add(out, "%s", p->graph->inputs[p->programs.inputs[i].input].name);
      return;
    }
  if (v->at.space == ZP_AT_PARAM || v->at.space == ZP_AT_GRAD)
    zb_text_add(out, "%s", p->graph->params[zp_param_at(p, s, v->at)].path);
  else zb_text_add(out, "%%%u", value);
}

void zp_value_text(const ZpPlan *p, uint32_t segment, uint32_t value, ZbText *out) {
  const ZpValue *v = &p->programs.segments[segment].values[value];
  for (int k = 0; k < v->nmembers; k++) {
    if (k) zb_text_add(out, " ");
    put_name(p, segment, v->member[k], out);
  }
  if (!v->nmembers) put_name(p, segment, value, out);
}

bool zp_value_cut(const ZpPlan *p, const ZpValue *v, int i) {
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (v->state[d].kind == 'S' && v->state[d].axis == v->axis[i] && p->layout.mesh.dim[d].size > 1)
      return true;
  return false;
}

ZpDims zp_value_partial(const ZpPlan *p, const ZpValue *v) {
  ZpDims dims = 0;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (v->state[d].kind == 'P' && p->layout.mesh.dim[d].size > 1) dims |= 1u << d;
  return dims;
}

/* ---- for people ---------------------------------------------------------------------------------------- */
/* "bf16[batch 2, head 6 of 12]", of a group "3 x bf16[...]". */
static void put_type(const ZpPlan *p, const ZpValue *v, ZbText *out) {
  if (v->nmembers) zb_text_add(out, "%u x ", v->nmembers);
  zb_text_add(out, "%s[", zk_elem_info[v->elem].text);
  for (int i = 0; i < v->type.naxes; i++) {
    zb_text_add(out, "%s%s %lld", i ? ", " : "", p->graph->axes[v->axis[i]].name, (long long)v->size[i]);
    if (zp_value_cut(p, v, i)) zb_text_add(out, " of %lld", (long long)p->layout.axis_size[v->axis[i]]);
  }
  zb_text_add(out, "]");
}

static void put_operand(const ZpPlan *p, uint32_t segment, uint32_t value, const char *how, ZbText *out) {
  const ZpValue *v = &p->programs.segments[segment].values[value];
  ZbArena *tmp = zb_arena_new();
  ZbText name = {0}, type = {0};
  char bytes[24];
  zp_value_text(p, segment, value, &name);
  put_type(p, v, &type);
  zb_text_add(out, "        %-7s %-22s %-46s %9s  %s", how, name.s, type.s, zb_bytes(bytes, v->bytes),
              zp_space_text(v));
  ZpDims partial = zp_value_partial(p, v);
  if (partial) zb_text_add(out, ", partial over %s", zp_dims_text(&p->layout.mesh, tmp, partial));
  zb_text_add(out, "\n");
  zb_text_free(&name);
  zb_text_free(&type);
  zb_arena_free(tmp);
}

/* Operations of a pointwise function in order, but for constants: "(mul tanh add)". */
static void put_function(const ZkPointwise *f, int from, int to, ZbText *out) {
  const char *before = "(";
  for (int i = from; i < to; i++) {
    if (f->ops[i].op == ZG_OP_FILL) continue;
    zb_text_add(out, "%s%s", before, zg_op_info[f->ops[i].op].text);
    before = " ";
  }
  zb_text_add(out, *before == '(' ? "()" : ")");
}

/* "dot[embed]", "(add) normalize[embed] (cast)": a prologue stands before, an epilogue behind. */
static void put_op(const ZpPlan *p, const ZkCall *c, ZbText *out) {
  const ZkPointwise *f = c->pointwise;
  if (f && f->prologue) put_function(f, 0, f->prologue, out), zb_text_add(out, " ");
  zb_text_add(out, "%s", zg_op_info[c->op].text);
  for (int i = 0; i < c->nax; i++) zb_text_add(out, "%s%s", i ? ", " : "[", p->graph->axes[c->ax[i]].name);
  if (c->nax) zb_text_add(out, "]");
  if (f && f->prologue < f->nops) zb_text_add(out, " "), put_function(f, f->prologue, f->nops, out);
}

static void put_flop(double flop, ZbText *out) {
  static const char unit[] = " kMGT";
  int i = 0;
  for (; i < 4 && flop >= 1000; i++) flop /= 1000;
  if (flop > 0) zb_text_add(out, "  %.4g %.*sFLOP", flop, i > 0, &unit[i]);
}

static void put_row(const ZpPlan *p, uint32_t segment, uint32_t i, const ZpRow *r, ZbText *out) {
  const ZpNode *n = r->node;
  ZbArena *tmp = zb_arena_new();
  ZbText op = {0};
  char bytes[24];
  put_op(p, &n->call, &op);
  zb_text_add(out, "%5u  %-30s  %s", i, op.s, zp_loc_text(p, n->loc));
  put_flop(n->flops, out);
  zb_text_add(out, "  %s", zb_bytes(bytes, (uint64_t)r->bytes));
  if (r->sends) zb_text_add(out, " over %s", zp_dims_text(&p->layout.mesh, tmp, n->dims));
  if (r->beside) zb_text_add(out, ", beside calls until %u", n->until);
  if (n->rounds) zb_text_add(out, ", in rounds");
  if (n->recomputed) zb_text_add(out, ", recomputed");
  if (n->cause) zb_text_add(out, ": %s", n->cause);
  zb_text_add(out, "\n");
  for (int k = 0; k < n->call.nin; k++) put_operand(p, segment, n->in[k], "reads", out);
  for (int k = 0; k < n->call.nout; k++)
    put_operand(p, segment, n->out[k], zp_row_adds_to(p, segment, r, k) ? "adds to" : "writes", out);
  zb_text_free(&op);
  zb_arena_free(tmp);
}

static void put_list(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out) {
  const ZpList *l = &p->programs.segments[segment].list[phase];
  double flop = 0, moved = 0, sent = 0;
  char bytes[24];
  for (uint32_t i = 0; i < l->n; i++) {
    ZpRow r = zp_row(p, segment, phase, i);
    flop += r.node->flops;
    *(r.sends ? &sent : &moved) += r.bytes;
  }
  zb_text_add(out, "\n%s, %u call%s:", zp_phase_text[phase], l->n, l->n == 1 ? "" : "s");
  put_flop(flop, out);
  zb_text_add(out, "  %s read and written", zb_bytes(bytes, (uint64_t)moved));
  if (sent > 0) zb_text_add(out, ", collectives of %s", zb_bytes(bytes, (uint64_t)sent));
  zb_text_add(out, "\n");
  for (uint32_t i = 0; i < l->n; i++) {
    ZpRow r = zp_row(p, segment, phase, i);
    put_row(p, segment, i, &r, out);
  }
}

void zp_show_calls(const ZpPlan *p, uint32_t segment, ZbText *out) {
  const ZgSegment *g = &p->graph->segments[segment];
  zp_segment_text(p, segment, out);
  if (g->repeat) zb_text_add(out, ", %u iteration%s", g->trip, g->trip == 1 ? "" : "s");
  zb_text_add(out, "; what a rank calls%s for a micro-batch\n", g->repeat ? " in one of them" : "");
  for (int phase = 0; phase < ZP_PHASES; phase++)
    if (p->programs.segments[segment].list[phase].n) put_list(p, segment, (ZpPhase)phase, out);
}
