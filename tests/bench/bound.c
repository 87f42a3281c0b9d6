/* bench-bound: what a step takes at least on a device of given rates, by the plan alone: no such device is
 * needed. Every call takes the longer of its FLOPs at the rate of large products and its bytes at the rate of
 * large copies, as `zrun --times` counts them; so a change to the plan or to what is done in one can be
 * predicted before it is measured. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/devices.h"
#include "runtime/exec/engine/internal.h"
#include "tests/bench/plan.h"

static const char usage[] =
    "usage: bench-bound GRAPH.zsg --recipe FILE:NAME [options]\n"
    "  --products T   rate of large products in TFLOP/s (default 700: about an H100 in bf16)\n"
    "  --copies G     rate of large copies in GB/s, read and written (default 2900)\n"
    "  --attention T  rate of attention in TFLOP/s (default 350, about FlashAttention's on an H100)\n"
    "  --attention-grad T  and of its gradient (default 250); 0: as products\n"
    "  --apart        as if the device could do nothing together with what follows\n"
    "  --calls N      how many of the longest calls to list (default 12)\n";

typedef struct {
  const char *graph, *recipe;
  ZxPeaks peak;
  bool apart;
  int calls;
} Options;

static int parse(int argc, char **argv, Options *o) {
  enum { RECIPE = 256, PRODUCTS, COPIES, ATTENTION, ATTENTION_GRAD, APART, CALLS };
  static const struct option list[] = {{"recipe", 1, NULL, RECIPE},
                                       {"products", 1, NULL, PRODUCTS},
                                       {"copies", 1, NULL, COPIES},
                                       {"attention", 1, NULL, ATTENTION},
                                       {"attention-grad", 1, NULL, ATTENTION_GRAD},
                                       {"apart", 0, NULL, APART},
                                       {"calls", 1, NULL, CALLS},
                                       {"help", 0, NULL, 'h'},
                                       {NULL, 0, NULL, 0}};
  *o = (Options){.peak = {700e12, 2900e9, 350e12, 250e12}, .calls = 12};
  for (int k; (k = getopt_long(argc, argv, "h", list, NULL)) != -1;) {
    switch (k) {
    case RECIPE: o->recipe = optarg; break;
    case PRODUCTS: o->peak.flops = 1e12 * atof(optarg); break;
    case COPIES: o->peak.bytes = 1e9 * atof(optarg); break;
    case ATTENTION: o->peak.attend = 1e12 * atof(optarg); break;
    case ATTENTION_GRAD: o->peak.attend_grad = 1e12 * atof(optarg); break;
    case APART: o->apart = true; break;
    case CALLS: o->calls = atoi(optarg); break;
    case 'h': return fputs(usage, stdout), 1;
    default: return 2;
    }
  }
  if (optind + 1 != argc || !o->recipe || o->peak.flops <= 0 || o->peak.bytes <= 0 || o->calls < 0)
    return fputs(usage, stderr), 2;
  o->graph = argv[optind];
  return 0;
}

/* For a GPU where CUDA is in this build, by the module that zrun loads; else for the CPU. */
static bool ask_device(const Options *o, ZpOptions *po) {
#ifdef HAVE_CUDA
  const char *device = "cuda";
#else
  const char *device = "cpu";
#endif
  ZbErr err = {0};
  const ZkPlanning *p = zk_planning(zk_device(device), &err);
  if (!p) return fprintf(stderr, "bench-bound: error: %s; %s\n", err.text, err.help), false;
  *po = (ZpOptions){
      .scratch = p->scratch, .threads = 1, .supports = o->apart ? NULL : p->supports, .pins = p->pins};
  return true;
}

/* ---- a step of rank 0, counted and not played ---------------------------------------------------------- */
static uint64_t count_nodes(ZxEngine *e, uint32_t segment, ZpPhase phase, bool first) {
  const ZpList *l = &e->p->segments[segment].list[phase];
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    uint64_t sent = zp_sends(n) ? zp_node_bytes(&e->p->segments[segment], n) : 0;
    zx_profile_node(e, segment, phase, i, n->overwrites ? !first : n->call.accumulate, false, sent, 0);
  }
  return l->n;
}

static uint64_t count_step(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  uint64_t calls = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    const ZpInstr *in = &g->instrs[i];
    ZpPhase phase = zp_phase(in->op);
    if (phase < ZP_PHASES) calls += count_nodes(e, e->st->insts[in->inst].segment, phase, in->mb == 0);
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

static void print(const ZxEngine *e, uint64_t calls, uint32_t most) {
  const ZpPlan *p = e->p;
  double sum = 0;
  for (int i = 0; i <= ZG_OP_COUNT; i++) sum += e->work[i].bound;
  printf("at %.4g TFLOP/s and %.4g GB/s, attention at %.4g and %.4g, a step takes %.3f ms at least: %.0f "
         "samples/s, "
         "%.1f %% of those FLOP/s; %" PRIu64 " calls\n",
         e->peak.flops / 1e12, e->peak.bytes / 1e9,
         (e->peak.attend > 0 ? e->peak.attend : e->peak.flops) / 1e12,
         (e->peak.attend_grad > 0 ? e->peak.attend_grad : e->peak.flops) / 1e12, 1e3 * sum,
         (double)p->global_batch / sum, 100 * p->model_flops / (double)p->mesh.nranks / sum / e->peak.flops,
         calls);
  for (int i = 0; i <= ZG_OP_COUNT; i++) {
    const ZxWork *w = &e->work[i];
    if (w->bound > 5e-4 * sum)
      printf("  %-16s %10.3f ms %5.1f %%  %14.6f TFLOP %14.6f GB  %s\n",
             i < ZG_OP_COUNT ? zg_op_info[i].text : "optimizer", 1e3 * w->bound, 100 * w->bound / sum,
             w->flops / 1e12, w->bytes / 1e9, bounded_by(w));
  }
  ZxCallTime *c = ZB_NEWN(e->a, ZxCallTime, most + 1);
  uint32_t n = zx_engine_calls(e, c, most);
  for (uint32_t i = 0; i < n; i++)
    printf("  %-20s %-8s  %-18s %-28s %9.3f ms x %-5" PRIu64 " %5.1f %%  %s\n",
           zb_printf(e->a, "%s%s", zg_op_info[c[i].op].text, c[i].fused ? "+pointwise" : ""), c[i].phase,
           zp_loc_text(p, c[i].loc), zg_type_text(p->graph, e->a, c[i].type),
           1e3 * c[i].seconds / (double)c[i].calls, c[i].calls, 100 * c[i].seconds / sum,
           bounded_by(&c[i].work));
}

int main(int argc, char **argv) {
  Options o;
  int code = parse(argc, argv, &o);
  if (code) return code == 1 ? 0 : code;
  ZbArena *a = zb_arena_new();
  ZpOptions po;
  ZpPlan *p = ask_device(&o, &po) ? bench_plan(a, "bench-bound", o.graph, o.recipe, &po) : NULL;
  if (p) {
    ZxEngine e = {.a = a, .p = p, .st = &p->stages[0], .o.times = true, .peak = o.peak};
    zx_profile_open(&e);
    uint64_t calls = count_step(&e);
    print(&e, calls, (uint32_t)o.calls);
  }
  zb_arena_free(a);
  return p ? 0 : 1;
}
