/* Fuzz target: any bytes as the trace of a run, beside the predicted step of a plan of two stages. */
#include "compiler/compiler.h"
#include "runtime/plan/text.h"
#include "runtime/plan/output/compare.h"
#include "runtime/plan/time/time.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char text[] =
    "model M {\n"
    "  axis batch, w = 4\n"
    "  input x: real[batch, w]\n"
    "  block L(x: real[batch, w]) -> real[batch, w] {\n"
    "    axis v = 4\n"
    "    param p[w, v] ~ normal(0.02)\n"
    "    param q[v, w] ~ normal(0.02)\n"
    "    return dot[v](dot[w](x, p), q)\n"
    "  }\n"
    "  y = x\n"
    "  repeat 2 as layer { y = L(y) }\n"
    "  loss sum[w](y * y) per x\n"
    "}\n"
    "recipe r { mesh pipe = 2 stages over pipe by cost schedule 1f1b bind batch = 4 micro 2\n"
    "  optimizer adamw(lr = 1e-3) }\n"
    "cluster c { device f32 1 GFLOPS, products 0.8, attention 0.4, attention_grad 0.7, stream 1 GB/s, launch "
    "2 us, steal 0.5\n"
    "  level box 8, link 1 GB/s, latency 5 us, start 10 us, ramp 1 us }\n";

static const ZpPlan *plan;
static const ZpTime *predicted;

static void predict(void) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "trace.zug", text, sizeof text - 1, NULL);
  ZgGraph *g = p && !zl_errors(d) ? zc_compile(a, s, d, p, &(ZcOptions){0}) : NULL;
  const ZlRecipe *r = g ? zl_recipe(p, d, "r") : NULL;
  plan = r ? zp_plan(a, g, r, d, &(ZpOptions){.threads = 1}) : NULL;
  predicted = plan ? zp_time(a, plan, zl_cluster(p, d, "c"), true, d) : NULL;
  ZbText why = {0};
  zl_print_text(d, &why);
  if (!predicted) ZB_BUG("the plan of this target: %s", why.s);
  zb_text_free(&why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (!plan) predict();
  ZbArena *a = zb_arena_new();
  ZbText out = {0}, both = {0};
  ZbErr err = {0};
  const char *trace = zb_strndup(a, (const char *)data, n);
  zp_is_trace(data, n);
  if (!zp_compare(plan, predicted, trace, &out, &both, &err) && !*err.text)
    ZB_BUG("no comparison, and no message");
  zb_text_free(&out);
  zb_text_free(&both);
  zb_arena_free(a);
  return 0;
}
