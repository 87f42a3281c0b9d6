/* What of a step is done in a slower way than such a device might, why, and what that costs: for people.
 *
 * A device says of each call how it is done (ZkWay). Costs are lower bounds: the FLOPs and the bytes of the
 * plan's nodes by what a cluster says of its device, or by the device's own data sheet, each call the longer
 * of the two. Attention, which no kernel does at the rate of products, has a share of that. What launches and
 * partly filled waves take comes on top of both. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <string.h>

/* Shares of products' peak: 350 and 250 of an H100's 989 TFLOP/s, measured by others with good kernels. */
#define ATTENTION 0.354
#define ATTENTION_GRAD 0.253
#define LAUNCH 4e-6 /* of the host's time, a call */

typedef struct {
  int op;
  ZkWay way;
  double calls, now, best; /* of a step; seconds */
} Line;

typedef struct {
  const ZpPlan *p;
  uint32_t stage;
  const ZxDeviceTable *dev;
  const ZkEnv *env;
  const ZxCalls *calls; /* NULL: the plan's own */
  ZkRates rates;
  double attention, attention_grad; /* shares */
  ZbArena *a;
  Line *line;
  uint32_t n;
  double f32; /* FLOPs of products of f32 */
} Ways;

static void take_rates(Ways *w, const ZlCluster *c) {
  w->dev->rates(w->env, &w->rates);
  w->attention = ATTENTION, w->attention_grad = ATTENTION_GRAD;
  if (!c) return;
  if (c->flops_bf16 > 0) w->rates.bf16 = c->flops_bf16;
  if (c->flops_f32 > 0) w->rates.f32 = c->flops_f32;
  if (c->flops_tf32 > 0) w->rates.tf32 = c->flops_tf32;
  if (c->hbm > 0) w->rates.bytes = c->hbm;
  if (c->host_link > 0) w->rates.link = c->host_link;
  if (c->attention > 0) w->attention = c->attention;
  if (c->attention > 0 && c->attention_grad > 0) w->attention_grad = c->attention * c->attention_grad;
}

static double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

static bool is_attention(int op) {
  return op == ZG_OP_ATTEND || op == ZG_OP_ATTEND_GRAD || op == ZG_OP_ATTEND_BIAS_GRAD;
}
static bool is_product(int op) { return op == ZG_OP_DOT || op == ZG_OP_DOT_BIAS_GRAD; }

/* FLOP/s at best. Attention in f32 has no kernels of its own; in bf16 it would have. */
static double best_rate(const Ways *w, const ZkCall *c) {
  if (c->op == ZG_OP_ATTEND) return w->attention * w->rates.bf16;
  if (is_attention(c->op)) return w->attention_grad * w->rates.bf16;
  return c->in[0].elem == ZK_BF16 ? w->rates.bf16 : w->p->asked.tf32 ? w->rates.tf32 : w->rates.f32;
}

static double bytes_of(const ZpSegment *s, const ZpNode *n) {
  double bytes = 0;
  for (int i = 0; i < n->call.nin; i++) bytes += (double)s->values[n->in[i]].bytes;
  for (int i = 0; i < n->call.nout; i++) bytes += (double)s->values[n->out[i]].bytes;
  return bytes;
}

static Line *line_for(Ways *w, int op, const ZkWay *way) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->line[i].op == op && !strcmp(w->line[i].way.what, way->what) &&
        !strcmp(w->line[i].way.why, way->why))
      return &w->line[i];
  ZB_PUSH(w->a, w->line, w->n, ((Line){.op = op, .way = *way}));
  return &w->line[w->n - 1];
}

static void add_node(Ways *w, const ZpSegment *s, const ZpNode *n, ZkCall c, double times) {
  ZkWay way;
  if (zg_op_info[c.op].kind == ZG_SINK || (n->dims && !zp_is_ring(n))) return;
  zx_give_addresses(s, n, &c);
  if (is_product(c.op) && c.in[0].elem == ZK_F32) w->f32 += times * n->flops;
  if (!w->dev->way(w->env, &c, &way)) return;
  Line *l = line_for(w, c.op, &way);
  double bytes = over(bytes_of(s, n), w->rates.bytes), more = over(way.bytes, w->rates.bytes);
  double best = over(n->flops, best_rate(w, &c)), work = way.work > 0 ? way.work : 1;
  double now = way.scalar ? over(work * n->flops, w->rates.f32) : work * best;
  l->calls += times;
  l->best += times * fmax(best, bytes);
  l->now += times * fmax(now, bytes + more);
  l->way.unknown |= way.unknown;
}

static void add_stage(Ways *w) {
  const ZpStage *st = &w->p->programs.stages[w->stage];
  for (uint32_t i = 0; i < w->p->graph->nsegments; i++) {
    const ZpSegment *s = &w->p->programs.segments[i];
    double times = 0;
    for (uint32_t k = 0; k < st->ninsts; k++)
      if (st->insts[k].segment == i) times += (double)w->p->asked.nmicro;
    for (int k = 0; times > 0 && k < ZP_PHASES; k++)
      for (uint32_t j = 0; j < s->list[k].n; j++)
        add_node(w, s, &s->list[k].nodes[j], w->calls ? w->calls[i].of[k][j] : s->list[k].nodes[j].call,
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
  zb_text_add(out, "note: %.0f `%s` a step are done %s: %s; ", l->calls, zg_op_info[l->op].text, l->way.what,
              l->way.why);
  if (l->now > l->best)
    zb_text_add(out, "at least %s instead of %s%s\n", ms(x[0], l->now), ms(x[1], l->best),
                l->way.unknown ? ", and more than this bound tells" : "");
  else
    zb_text_add(out, "%s at best%s\n", ms(x[0], l->best),
                l->way.unknown ? ", and so takes several times as long, which no bound tells" : "");
}

static void say_precision(const Ways *w, ZbText *out) {
  char x[3][24];
  if (w->f32 <= 0) return;
  const char *tf32 = ms(x[0], over(w->f32, w->rates.tf32)), *bf16 = ms(x[1], over(w->f32, w->rates.bf16));
  if (w->p->asked.tf32)
    zb_text_add(out, "note: products in tf32 take at least %s a step; with `precision compute bf16` %s\n",
                tf32, bf16);
  else
    zb_text_add(out,
                "note: products in f32 take at least %s a step; with `precision compute tf32` %s, "
                "with `bf16` %s\n",
                ms(x[2], over(w->f32, w->rates.f32)), tf32, bf16);
}

static void say_all(Ways *w, const ZlCluster *c, ZbText *out) {
  take_rates(w, c);
  add_stage(w);
  say_precision(w, out);
  for (uint32_t i = 0; i < w->n; i++) say_line(&w->line[i], out);
}

void zx_plan_ways(const ZpPlan *p, uint32_t stage, const ZxDeviceTable *dev, const ZkEnv *env,
                  const ZlCluster *c, ZbText *out) {
  if (!dev->way) return;
  Ways w = {.p = p, .stage = stage, .dev = dev, .env = env, .a = zb_arena_new()};
  say_all(&w, c, out);
  zb_arena_free(w.a);
}

void zx_engine_ways(const ZxEngine *e, const ZlCluster *c, ZbText *out) {
  if (!e->dev->way) return;
  Ways w = {.p = e->p, .stage = e->stage, .dev = e->dev, .env = e->env, .calls = e->calls};
  w.a = zb_arena_new();
  say_all(&w, c, out);
  zb_arena_free(w.a);
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
  Ways w = {.dev = e->dev, .env = e->env};
  double bytes = sent(e->p, e->st);
  if (bytes <= 0 || !e->dev->rates) return;
  take_rates(&w, c);
  zb_text_add(out, "; %s a step go down and up the host's link, about %s", zb_bytes(x[0], (uint64_t)bytes),
              ms(x[1], over(2 * bytes, w.rates.link)));
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
