/* Reports slow paths, for people: which calls of a step a device does not do in the fastest way, why, and at the least what
 * that costs. A device says how it does a call (ZkFallback); plan/time says how long that takes by what a cluster says of
 * the device, or by its data sheet. Launches and waves that are partly filled come on top of both. */
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <string.h>

#define LAUNCH 4e-6 /* of the host's time, a call */

typedef struct {
  int op;
  ZkFallback how;
  double calls, now, best; /* per step; seconds */
} Line;

typedef struct {
  const ZpPlan *p;
  uint32_t stage;
  const ZxDeviceTable *dev;
  const ZkEnv *env;
  const ZxCalls *calls; /* NULL: the plan's own */
  ZlCluster device;
  ZbArena *a;
  Line *line;
  uint32_t n;
  double f32; /* FLOPs of products of f32 */
} Report;

/* What the cluster does not say is the data sheet's. */
static ZlCluster device_of(const ZxDeviceTable *dev, const ZkEnv *env, const ZlCluster *c) {
  ZlCluster d = c ? *c : (ZlCluster){0};
  ZkRates sheet;
  dev->rates(env, &sheet);
  if (d.flops_bf16 <= 0) d.flops_bf16 = sheet.bf16;
  if (d.flops_f32 <= 0) d.flops_f32 = sheet.f32;
  if (d.flops_tf32 <= 0) d.flops_tf32 = sheet.tf32;
  if (d.hbm <= 0) d.hbm = sheet.bytes;
  if (d.host_link <= 0) d.host_link = sheet.link;
  return d;
}

static bool is_product(int op) { return op == ZG_OP_DOT || op == ZG_OP_DOT_BIAS_GRAD; }

/* Bytes that the parts of a fused call move, and it does not. */
static double bytes_of_parts(const ZkCall *c) {
  ZkUnfused u;
  double bytes = -zp_call_bytes(c);
  zk_unfuse(c, &u);
  for (int i = 0; i < u.n; i++) bytes += zp_call_bytes(&u.call[i]);
  return fmax(bytes, 0);
}

static Line *line_for(Report *r, int op, const ZkFallback *how) {
  for (uint32_t i = 0; i < r->n; i++)
    if (r->line[i].op == op && !strcmp(r->line[i].how.what, how->what) &&
        !strcmp(r->line[i].how.why, how->why))
      return &r->line[i];
  ZB_PUSH(r->a, r->line, r->n, ((Line){.op = op, .how = *how}));
  return &r->line[r->n - 1];
}

static void add_node(Report *r, const ZpSegment *s, const ZpNode *n, ZkCall c, double times) {
  ZkFallback how;
  if (zg_op_info[c.op].kind == ZG_SINK || (n->dims && !zp_is_ring(n))) return;
  zx_give_addresses(s, n, &c);
  if (is_product(c.op) && c.in[0].elem == ZK_F32) r->f32 += times * n->flops;
  if (!r->dev->fallback(r->env, &c, &how)) return;
  Line *l = line_for(r, c.op, &how);
  ZlCluster device = r->device;
  if (!r->p->asked.tf32) device.flops_tf32 = 0;
  ZpPeaks peaks = zp_peaks(&device, (ZkElem)c.in[0].elem);
  ZpPeaks scalar = {.flops = device.flops_f32, .bytes = peaks.bytes};
  double bytes = zp_call_bytes(&c), more = how.parts ? bytes_of_parts(&c) : 0;
  double flops = n->flops * (how.work > 0 ? how.work : 1);
  l->calls += times;
  l->best += times * zp_bound(&peaks, c.op, n->flops, bytes);
  l->now += times * zp_bound(how.scalar ? &scalar : &peaks, c.op, flops, bytes + more);
  l->how.unknown |= how.unknown;
}

static void add_stage(Report *r) {
  const ZpStage *st = &r->p->programs.stages[r->stage];
  for (uint32_t i = 0; i < r->p->graph->nsegments; i++) {
    const ZpSegment *s = &r->p->programs.segments[i];
    double times = 0;
    for (uint32_t k = 0; k < st->ninsts; k++)
      if (st->insts[k].segment == i) times += (double)r->p->asked.nmicro;
    for (int k = 0; times > 0 && k < ZP_PHASES; k++)
      for (uint32_t j = 0; j < s->list[k].n; j++)
        add_node(r, s, &s->list[k].nodes[j], r->calls ? r->calls[i].of[k][j] : s->list[k].nodes[j].call,
                 times);
  }
}

/* ---- words ---- */
static const char *ms(char to[24], double seconds) {
  snprintf(to, 24, "%.3g ms", 1e3 * seconds);
  return to;
}

static void say_line(const Line *l, ZbText *out) {
  char x[2][24];
  zb_text_add(out, "note: %.0f `%s` a step are done %s: %s; ", l->calls, zg_op_info[l->op].text, l->how.what,
              l->how.why);
  if (l->now > l->best)
    zb_text_add(out, "at least %s instead of %s%s\n", ms(x[0], l->now), ms(x[1], l->best),
                l->how.unknown ? ", and more than this bound tells" : "");
  else
    zb_text_add(out, "%s at best%s\n", ms(x[0], l->best),
                l->how.unknown ? ", and so takes several times as long, which no bound tells" : "");
}

static double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

static void say_precision(const Report *r, ZbText *out) {
  char x[3][24];
  const ZlCluster *d = &r->device;
  if (r->f32 <= 0) return;
  const char *tf32 = ms(x[0], over(r->f32, d->flops_tf32)), *bf16 = ms(x[1], over(r->f32, d->flops_bf16));
  if (r->p->asked.tf32)
    zb_text_add(out, "note: products in tf32 take at least %s a step; with `precision compute bf16` %s\n",
                tf32, bf16);
  else
    zb_text_add(out,
                "note: products in f32 take at least %s a step; with `precision compute tf32` %s, "
                "with `bf16` %s\n",
                ms(x[2], over(r->f32, d->flops_f32)), tf32, bf16);
}

static void report(Report r, const ZlCluster *c, ZbText *out) {
  if (!r.dev->fallback) return;
  r.a = zb_arena_new();
  r.device = device_of(r.dev, r.env, c);
  add_stage(&r);
  say_precision(&r, out);
  for (uint32_t i = 0; i < r.n; i++) say_line(&r.line[i], out);
  zb_arena_free(r.a);
}

void zx_plan_fallbacks(const ZpPlan *p, uint32_t stage, const ZxDeviceTable *dev, const ZkEnv *env,
                       const ZlCluster *c, ZbText *out) {
  report((Report){.p = p, .stage = stage, .dev = dev, .env = env}, c, out);
}

void zx_engine_fallbacks(const ZxEngine *e, const ZlCluster *c, ZbText *out) {
  report((Report){.p = e->p, .stage = e->stage, .dev = e->dev, .env = e->env, .calls = e->calls}, c, out);
}

/* ---- what the host does in place of the device ---- */
static double sent(const ZpPlan *p, const ZpStage *st) {
  double bytes = 0;
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) bytes += (double)zp_instr_bytes(p, &st->prog.instrs[i]);
  for (uint32_t i = 0; i < st->ninsts; i++)
    for (int k = 0; k < ZP_PHASES; k++) {
      const ZpSegment *s = &p->programs.segments[st->insts[i].segment];
      for (uint32_t j = 0; j < s->list[k].n; j++)
        if (zp_sends(&s->list[k].nodes[j]))
          bytes += (double)p->asked.nmicro * (double)zp_run_bytes(p, s, &s->list[k], j);
    }
  return bytes;
}

void zx_say_staged(const ZxEngine *e, const ZlCluster *c, ZbText *out) {
  char x[2][24];
  double bytes = sent(e->p, e->st);
  if (bytes <= 0 || !e->dev->rates) return;
  zb_text_add(out, "; %s a step go down and up the host's link, about %s", zb_bytes(x[0], (uint64_t)bytes),
              ms(x[1], over(2 * bytes, device_of(e->dev, e->env, c).host_link)));
}

double zx_step_calls(const ZxEngine *e) {
  double calls = 0;
  for (uint32_t i = 0; i < e->st->ninsts; i++)
    for (int k = 0; k < ZP_PHASES; k++) {
      const ZpSegment *s = &e->p->programs.segments[e->st->insts[i].segment];
      for (uint32_t j = 0; j < s->list[k].n; j++)
        calls += (double)e->p->asked.nmicro * (double)zp_rounds(e->p, s, &s->list[k], j).even;
    }
  return calls;
}

void zx_say_queued(const ZxEngine *e, ZbText *out) {
  char x[24];
  double calls = zx_step_calls(e), nodes = e->dev->graph_nodes ? (double)e->dev->graph_nodes(e->env) : 0;
  if (nodes > 0) zb_text_add(out, "; that is %.0f launches", nodes);
  else zb_text_add(out, "; that is about %.0f calls", calls);
  zb_text_add(out, ", and at %.0f us each %s of the host's time", 1e6 * LAUNCH,
              ms(x, LAUNCH * (nodes > 0 ? nodes : calls)));
}
