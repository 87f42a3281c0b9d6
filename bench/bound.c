/* bench-bound: what a step takes at least on a device of given rates, by the plan alone: no such device is
 * needed. Every call takes the longer of its FLOPs at the rate of large products and its bytes at the rate of
 * large copies, as `zrun --times` counts them; so a change to the plan or to what is done in one can be
 * predicted before it is measured.
 *
 * Then with what such a bound leaves out: products and attention are done in tiles, of which each multiprocessor
 * has one at a time, and a kernel ends with the last one; the gradient of attention moves more than its operands
 * and results; between two kernels there is a gap. How calls are cut is what the device's module says (ZkTiling),
 * which is assumed there, not measured. */
#include <inttypes.h>

#include "base/options.h"
#include "kernels/devices.h"
#include "runtime/exec/engine/internal.h"
#include "bench/plan.h"
#include "runtime/plan/text.h"

typedef struct {
  const char *recipe;
  ZpPeaks peak;                                    /* of the four below */
  double products, copies, attention, attend_grad; /* TFLOP/s, but copies: GB/s */
  double gap, sheet;                               /* us, TFLOP/s */
  bool apart, repeatable;
  int calls, sms;
  int64_t piece; /* MiB; 0: as the plan has it */
} Options;

/* clang-format off */
#define FIELD(f) ZB_AT(Options, f)
static const ZbCommand commands[] = {{NULL, "GRAPH.zsg", 1, 1, "print a lower bound of the time of a step"}};
static const ZbOption options[] = {
  {"recipe", 0, ZB_TEXT, FIELD(recipe), "FILE:NAME", .needed = 1, .help = "the recipe to plan"},
  {"products", 0, ZB_REAL, FIELD(products), "T", .usual = "700", .least = 1e-6,
   .help = "rate of large products in TFLOP/s: about an H100 in bf16"},
  {"copies", 0, ZB_REAL, FIELD(copies), "G", .usual = "2900", .least = 1e-6,
   .help = "rate of large copies in GB/s, read and written"},
  {"attention", 0, ZB_REAL, FIELD(attention), "T", .usual = "350",
   .help = "rate of attention in TFLOP/s: about FlashAttention's on an H100; 0: as products"},
  {"attention-grad", 0, ZB_REAL, FIELD(attend_grad), "T", .usual = "250",
   .help = "rate of its gradient; 0: as products"},
  {"sms", 0, ZB_WHOLE, FIELD(sms), "N", .usual = "132", .least = 1, .most = 1 << 20, .help = "multiprocessors"},
  {"gap", 0, ZB_REAL, FIELD(gap), "US", .usual = "1", .help = "microseconds from kernel to kernel"},
  {"sheet", 0, ZB_REAL, FIELD(sheet), "T", .usual = "989", .least = 1e-6, .help = "TFLOP/s of the data sheet"},
  {"repeatable", 0, ZB_FLAG, FIELD(repeatable), .help = "as with zrun --repeatable"},
  {"piece", 0, ZB_WHOLE, FIELD(piece), "MIB", .most = 1 << 30,
   .help = "upper limit of a piece of attention's gradient (default: as planned)"},
  {"apart", 0, ZB_FLAG, FIELD(apart), .help = "as if the device could fuse nothing with what follows"},
  {"calls", 0, ZB_WHOLE, FIELD(calls), "N", .usual = "12", .most = 1 << 20, .help = "how many of the longest calls to list"},
};
static const ZbProgram program = {.name = "bench-bound", .what = "bound the time of a step by the plan alone",
                                  ZB_TABLES(commands, options)};
/* clang-format on */

/* For a GPU where CUDA is in this build, by the module that zrun loads; else for the CPU. */
static const ZkPlanning *ask_device(const Options *o, ZpOptions *po, ZbErr *err) {
#ifdef HAVE_CUDA
  const char *device = "cuda";
#else
  const char *device = "cpu";
#endif
  const ZkPlanning *p = zk_planning(zk_device(device), err);
  if (!p) return NULL;
  *po = (ZpOptions){.scratch = p->scratch,
                    .threads = 1,
                    .supports = o->apart ? NULL : p->supports,
                    .pins = p->pins,
                    .repeatable = o->repeatable};
  return p;
}

/* ---- tiles --------------------------------------------------------------------------------------------- */
/* Of a piece of attention's gradient: the sums of do o, the main one, what is made of dq. */
#define GRAD_KERNELS 3

typedef struct {
  const Options *o;
  const ZkPlanning *device;
  double busy;     /* in a product of which the rate of products is */
  ZkTiling *tiles; /* as the engine's `timed`: of each node of all lists; no tiles: it is not known */
  double *whole;   /* seconds of its calls in whole tiles */
} Tiled;

static ZkView matrix(uint16_t rows, uint16_t cols, int64_t n) {
  return (ZkView){
      .elem = ZK_BF16, .rank = 2, .axis = {rows, cols}, .size = {n, n}, .whole = {n, n}, .stride = {n, 1}};
}

/* The rate of products is one of 8192 x 8192 x 8192 that was measured, which is cut into tiles itself. */
static double busy_at_rate(const Options *o, const ZkPlanning *device) {
  ZkCall large = {.op = ZG_OP_DOT,
                  .nin = 2,
                  .nout = 1,
                  .nax = 1,
                  .ax = {'k'},
                  .in = {matrix('m', 'k', 8192), matrix('k', 'n', 8192)}};
  large.out[0] = matrix('m', 'n', 8192);
  ZkTiling x;
  return device->tiles && device->tiles(&large, o->sms, &x) ? x.busy : 1;
}

static double rate_of(const ZpPeaks *p, int op) {
  double own = op == ZG_OP_ATTEND ? p->attend : op == ZG_OP_ATTEND_GRAD ? p->attend_grad : 0;
  return own > 0 ? own : p->flops;
}

/* A call of so many FLOPs, and what takes longer of them and its bytes. Collectives have none here. */
static void add_call(Tiled *t, uint32_t which, const ZpNode *n, double flops, double bound) {
  const ZpPeaks *p = &t->o->peak;
  ZkTiling *x = &t->tiles[which];
  ZkCall call = n->call;
  if (zp_sends(n)) return;
  uint64_t piece = (uint64_t)t->o->piece << 20;
  if (piece && (!call.room || piece < call.room)) call.room = piece;
  bool known = t->device->tiles && t->device->tiles(&call, t->o->sms, x);
  if (!known) *x = (ZkTiling){.launches = 1, .busy = 1};
  bool attends = call.op == ZG_OP_ATTEND || call.op == ZG_OP_ATTEND_GRAD;
  double by_flops = flops / rate_of(p, call.op) / (x->busy / (known && !attends ? t->busy : 1));
  double kernels = (double)x->launches * (known && call.op == ZG_OP_ATTEND_GRAD ? GRAD_KERNELS : 1);
  t->whole[which] +=
      (known && by_flops > bound ? by_flops : bound) + x->bytes / p->bytes + kernels * 1e-6 * t->o->gap;
}

/* ---- a step of rank 0, counted and not played ---------------------------------------------------------- */
static uint64_t count_nodes(ZxEngine *e, Tiled *t, uint32_t segment, ZpPhase phase, bool first) {
  const ZpList *l = &e->p->programs.segments[segment].list[phase];
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    uint64_t sent = zp_sends(n) ? zp_node_bytes(&e->p->programs.segments[segment], n) : 0;
    uint32_t which = e->timed_at[segment * ZP_PHASES + phase] + i;
    ZxWork before = e->timed[which].work;
    zx_profile_node(e, segment, phase, i, n->overwrites ? !first : n->call.accumulate, false, sent, 0);
    const ZxWork *now = &e->timed[which].work;
    add_call(t, which, n, now->flops - before.flops, now->bound - before.bound);
  }
  return l->n;
}

static uint64_t count_step(ZxEngine *e, Tiled *t) {
  const ZpProgram *g = &e->st->prog;
  uint64_t calls = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    const ZpInstr *in = &g->instrs[i];
    ZpPhase phase = zp_phase(in->op);
    if (phase < ZP_PHASES) calls += count_nodes(e, t, e->st->insts[in->inst].segment, phase, in->mb == 0);
    switch (in->op) {
    case ZP_I_NORM_LOCAL: zx_profile_norm(e); break;
    case ZP_I_OPT_STEP: zx_profile_update(e, &e->st->held[in->held]); break;
    default: break;
    }
  }
  /* The longest are listed. */
  for (uint32_t i = 0; i < e->ntimed; i++) e->timed[i].seconds = e->timed[i].work.bound;
  return calls;
}

static const char *bounded_by(const ZxWork *w) {
  return 2 * w->bound_by_flops > w->bound ? "FLOPs" : "bytes";
}

/* "  64x64, 4 x 2048 tiles, 15.5 waves, the last 52 %, busy 97 %" */
static const char *tiles_text(const ZxEngine *e, const Tiled *t, const ZxCallTime *c) {
  uint32_t i = 0;
  while (i < e->ntimed &&
         !(e->timed[i].op == c->op && e->timed[i].fused == c->fused && e->timed[i].loc == c->loc &&
           e->timed[i].phase == c->phase && e->timed[i].calls && zg_type_eq(e->timed[i].type, c->type)))
    i++;
  if (i == e->ntimed || !t->tiles[i].tiles) return "";
  const ZkTiling *x = &t->tiles[i];
  int64_t last = x->tiles % t->o->sms ? x->tiles % t->o->sms : t->o->sms;
  return zb_printf(e->a,
                   "  %" PRId64 "x%" PRId64 ", %" PRId64 " x %" PRId64
                   " tiles, %.1f waves, the last %.0f %%, busy %.0f %%",
                   x->rows, x->columns, x->launches, x->tiles, x->waves,
                   100 * (double)last / (double)t->o->sms, 100 * x->busy);
}

static void print(const ZxEngine *e, const Tiled *t, uint64_t calls) {
  const ZpPlan *p = e->p;
  const Options *o = t->o;
  uint32_t most = (uint32_t)o->calls;
  char arena[24];
  double sum = 0, whole = e->work[ZG_OP_COUNT].bound;
  for (int i = 0; i <= ZG_OP_COUNT; i++) sum += e->work[i].bound;
  double by_op[ZG_OP_COUNT + 1] = {[ZG_OP_COUNT] = whole};
  for (uint32_t i = 0; i < e->ntimed; i++) {
    whole += t->whole[i];
    by_op[e->timed[i].op] += t->whole[i];
  }
  printf("at %.4g TFLOP/s and %.4g GB/s, attention at %.4g and %.4g, a step takes %.3f ms at least: %.0f "
         "samples/s, "
         "%.1f %% of those FLOP/s; %" PRIu64 " calls\n",
         e->peak.flops / 1e12, e->peak.bytes / 1e9,
         (e->peak.attend > 0 ? e->peak.attend : e->peak.flops) / 1e12,
         (e->peak.attend_grad > 0 ? e->peak.attend_grad : e->peak.flops) / 1e12, 1e3 * sum,
         (double)p->asked.global_batch / sum,
         100 * p->notes.model_flops / (double)p->layout.mesh.nranks / sum / e->peak.flops, calls);
  double flops = p->notes.model_flops / (double)p->layout.mesh.nranks;
  printf("in whole tiles on %d multiprocessors, %.4g us from kernel to kernel: %.3f ms, %.0f samples/s, "
         "%.1f %% of %.4g TFLOP/s (at least: %.1f %%); arena %s\n",
         o->sms, o->gap, 1e3 * whole, (double)p->asked.global_batch / whole,
         100e-12 * flops / whole / o->sheet, o->sheet, 100e-12 * flops / sum / o->sheet,
         zb_bytes(arena, zp_fullest(p)->ledger.total[ZP_DEVICE]));
  for (int i = 0; i <= ZG_OP_COUNT; i++) {
    const ZxWork *w = &e->work[i];
    if (w->bound > 5e-4 * sum)
      printf("  %-16s %10.3f ms %5.1f %%  %14.6f TFLOP %14.6f GB  %-5s  %10.3f ms in tiles\n",
             i < ZG_OP_COUNT ? zg_op_info[i].text : "optimizer", 1e3 * w->bound, 100 * w->bound / sum,
             w->flops / 1e12, w->bytes / 1e9, bounded_by(w), 1e3 * by_op[i]);
  }
  ZxCallTime *c = ZB_NEWN(e->a, ZxCallTime, most + 1);
  uint32_t n = zx_engine_calls(e, c, most);
  for (uint32_t i = 0; i < n; i++)
    printf("  %-20s %-8s  %-18s %-28s %9.3f ms x %-5" PRIu64 " %5.1f %%  %s%s\n",
           zb_printf(e->a, "%s%s", zg_op_info[c[i].op].text, c[i].fused ? "+pointwise" : ""), c[i].phase,
           zp_loc_text(p, c[i].loc), zg_type_text(p->graph, e->a, c[i].type),
           1e3 * c[i].seconds / (double)c[i].calls, c[i].calls, 100 * c[i].seconds / sum,
           bounded_by(&c[i].work), tiles_text(e, t, &c[i]));
}

static int run_command(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err) {
  Options *o = options;
  ZpOptions po;
  o->peak = (ZpPeaks){1e12 * o->products, 1e9 * o->copies, 1e12 * o->attention, 1e12 * o->attend_grad};
  const ZkPlanning *device = ask_device(o, &po, err);
  if (!device) return 2;
  ZpPlan *p = bench_plan(a, "bench-bound", args->operand[0], o->recipe, &po);
  if (!p) return 1;
  ZxEngine e = {.a = a, .p = p, .st = &p->programs.stages[0], .o.times = true, .peak = o->peak};
  zx_profile_open(&e);
  Tiled t = {o, device, busy_at_rate(o, device), ZB_NEWN(a, ZkTiling, e.ntimed),
             ZB_NEWN(a, double, e.ntimed)};
  uint64_t calls = count_step(&e, &t);
  print(&e, &t, calls);
  return 0;
}

int main(int argc, char **argv) { return zb_main(&program, argc, argv, &(Options){0}, run_command); }
