/* The programs of normalize and its gradient with prologues and epilogues: their text, that NVRTC compiles
 * it, and what it computes in the emulator. */
#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/pointwise.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/breadth.h"
#include "tests/unit/kernels/cuda/norm_fused.h"
#include "tests/unit/kernels/cuda/programs.h"

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

Test(norm_pointwise, text) {
  char *text = NULL;
  each_call(&norm_fused[0], first_text, &text);
  programs_expect(text, "norm_text.txt");
  free(text);
}

static void collect(const ZkCall *call, void *arg) {
  (void)arg;
  programs_add(text_of(call));
}

#ifdef HAVE_NVRTC
/* Of the nine calls of a case, two or three, in turn. */
static void collect_some(const ZkCall *call, void *arg) {
  int *n = arg;
  if ((*n)++ % 4 == 0) collect(call, NULL);
}

Test(norm_pointwise, nvrtc) {
  int n = 0;
  for (size_t i = 0; i < nnorm_joined; i += at_night() ? 3 : 60) each_call(&norm_fused[i], collect_some, &n);
  programs_compile();
  programs_drop();
}
#endif

Test(norm_pointwise, emulated) {
  int tried = 0;
  for (size_t i = 0; i < nnorm_joined; i++)
    if (breadth_tries(i, 7)) each_made(&norm_fused[i], collect, NULL), tried++;
  cr_assert_geq(programs_count(), tried / 2);
  programs_build("ZkcRows");
  for (size_t i = 0; i < nnorm_joined; i++)
    if (breadth_tries(i, 7)) conform(__FILE__, (int)i, &norm_fused[i]);
  cr_assert(programs_launched() >= tried, "not by programs");
  programs_drop();
}
