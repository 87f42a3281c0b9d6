/* The programs of normalize and its gradient joined with chains: their text, that NVRTC compiles it, and what it computes in
 * the emulator. */
#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/chain.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels_cuda/norm_joined.h"
#include "tests/unit/kernels_cuda/programs.h"

static char *text_of(const ZkCall *call) {
  ZbText t = {0};
  ZkNormShape shape = zk_norm_shape(call);
  zk_norm_text(&t, call, &shape);
  return t.s;
}

static void first_text(const ZkCall *call, void *arg) {
  char **text = arg;
  if (!*text) *text = text_of(call);
}

Test(norm_chain, text) {
  char *text = NULL;
  each_call(&norm_joined[0], first_text, &text);
  programs_expect(text, "norm_chain.txt");
  free(text);
}

static void collect(const ZkCall *call, void *arg) {
  (void)arg;
  programs_add(text_of(call));
}

#ifdef HAVE_NVRTC
Test(norm_chain, nvrtc) {
  for (size_t i = 0; i < nnorm_joined; i += 4) each_call(&norm_joined[i], collect, NULL);
  programs_compile();
  programs_drop();
}
#endif

static void run_program(const ZkEnv *env, const ZkCall *call) {
  ZkNormShape shape = zk_norm_shape(call);
  char *text = text_of(call);
  int i = programs_find(text);
  for (int k = 0; k < call->nin; k++) shape.args.in[k] = call->in[k].data;
  for (int k = 0; k < call->nout; k++) shape.args.out[k] = call->out[k].data;
  unsigned blocks = zk_norm_blocks(&shape, 1);
  if (blocks > 0) programs_launch(i, env->device, blocks, (unsigned)zk_norm_block(&shape), &shape.args);
  free(text);
}

Test(norm_chain, emulated) {
  for (size_t i = 0; i < nnorm_joined; i++) each_call(&norm_joined[i], collect, NULL);
  cr_assert(programs_count() >= 20);
  programs_build("ZkcRows");
  emu_use(ZG_OP_NORMALIZE, run_program);
  emu_use(ZG_OP_NORMALIZE_GRAD, run_program);
  for (size_t i = 0; i < nnorm_joined; i++) conform(__FILE__, (int)i, &norm_joined[i]);
  programs_drop();
}
