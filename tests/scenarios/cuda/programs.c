/* All programs that plans would have NVRTC make for a GPU, in one: programs.sm_80.cubin and
 * programs.sm_90.cubin, for tests/scenarios/cuda/machine_code.sh to look at. programs GRAPH.zsg FILE:NAME [GRAPH.zsg
 * FILE:NAME]... Kernels are named by op: pointwise_3, normalize_5, normalize_grad_7. */
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/engine/internal.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/pointwise.h"

extern const char *const zk_cuda_texts[];

/* ---- texts --------------------------------------------------------------------------------------------- */
static const char *own_part(const char *text) {
  if (strncmp(text, zk_cuda_elems, strlen(zk_cuda_elems)) == 0) text += strlen(zk_cuda_elems);
  for (int i = 1; zk_cuda_texts[i - 1]; i += 2) {
    size_t n = strlen(zk_cuda_texts[i]);
    if (strncmp(text, zk_cuda_texts[i], n) == 0) text += n;
  }
  return text;
}

/* The program of a call; empty if it has none. */
static ZbText text_of(const ZkCall *call) {
  ZbText t = {0};
  if (call->op == ZG_OP_POINTWISE) {
    ZkPointwiseShape s = zk_pointwise_shape(call, true);
    zk_pointwise_text(&t, call, &s);
  } else if (call->pointwise && (call->op == ZG_OP_NORMALIZE || call->op == ZG_OP_NORMALIZE_GRAD ||
                                 call->op == ZG_OP_NORMALIZE_GRAD_SUMS)) {
    ZkNormShape s = zk_norm_shape(call);
    zk_norm_text(&t, call, &s);
  }
  return t;
}

#define MOST 256
typedef struct {
  int n;
  ZbText text[MOST];
  const char *op[MOST];
} List;

static void collect(List *l, const ZpList *list) {
  for (uint32_t i = 0; i < list->n; i++) {
    ZbText t = text_of(&list->nodes[i].call);
    int k = 0;
    if (!t.s) continue;
    while (k < l->n && strcmp(l->text[k].s, t.s) != 0) k++;
    if (k < l->n || k == MOST) {
      zb_text_free(&t);
    } else {
      l->op[k] = zg_op_info[list->nodes[i].call.op].text;
      l->text[l->n++] = t;
    }
  }
}

/* ---- plans --------------------------------------------------------------------------------------------- */
static bool collect_plan(ZbArena *a, List *l, const char *graph, const char *recipe) {
  ZbErr err = {0};
  ZbText messages = {0};
  const char *name;
  ZlOptions lo = {0};
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZgGraph *g = zg_read_file(a, graph, &err);
  if (!g) return fprintf(stderr, "programs: error: %s\n", err.text), false;
  ZlProgram *program = zl_load_named(a, s, d, recipe, &lo, &name);
  const ZlRecipe *r = program ? zl_recipe(program, d, name) : NULL;
  ZpOptions po = {.scratch = zk_cuda_scratch, .threads = 1, .supports = zk_cuda_supports};
  ZpPlan *p = r && !zl_errors(d) ? zp_plan(a, g, r, d, &po) : NULL;
  zl_print_text(d, &messages);
  if (messages.s) fputs(messages.s, stderr);
  zb_text_free(&messages);
  for (uint32_t i = 0; p && i < g->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++) collect(l, &p->programs.segments[i].list[k]);
  return p != NULL;
}

/* ---- one program of all -------------------------------------------------------------------------------- */
static void put_all(ZbText *t, const List *l) {
  zb_text_add(t, "%s", zk_cuda_elems);
  for (int i = 1; zk_cuda_texts[i - 1]; i += 2) zb_text_add(t, "%s", zk_cuda_texts[i]);
  for (int i = 0; i < l->n; i++)
    zb_text_add(t,
                "#define " ZK_POINTWISE_NAME " %s_%d\nnamespace n%d {\n%s}\n#undef " ZK_POINTWISE_NAME "\n",
                l->op[i], i, i, own_part(l->text[i].s));
}

static bool write_cubin(const char *text, int arch) {
  char path[64];
  void *cubin;
  size_t bytes;
  ZbErr err;
  if (!zk_cuda_compile(text, arch, &cubin, &bytes, &err))
    return fprintf(stderr, "programs: error: %s\n", err.text), false;
  snprintf(path, sizeof path, "programs.sm_%d.cubin", arch);
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(cubin, 1, bytes, f) == bytes;
  if (f) ok &= fclose(f) == 0;
  free(cubin);
  return ok;
}

int main(int argc, char **argv) {
  static List list;
  ZbText text = {0};
  ZbArena *a = zb_arena_new();
  bool ok = argc > 2;
  for (int i = 1; ok && i + 1 < argc; i += 2) ok = collect_plan(a, &list, argv[i], argv[i + 1]);
  if (ok) put_all(&text, &list);
  ok = ok && write_cubin(text.s, 80) && write_cubin(text.s, 90);
  printf("%d programs\n", list.n);
  zb_text_free(&text);
  for (int i = 0; i < list.n; i++) zb_text_free(&list.text[i]);
  zb_arena_free(a);
  return ok ? 0 : 1;
}
