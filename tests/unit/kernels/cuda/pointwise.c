/* The programs that pointwise functions become: their text, that NVRTC compiles them for GPUs that are not
 * here, and what they compute, compiled by the C++ compiler for the emulator. */
#include "base/base.h"
#include "graph/graph.h"

#define ZUG_KERNELS_CPU_H /* graph.h has the numbers of ops */
#include "kernels/cuda/pointwise.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/kernels/cuda/pointwise_cases.h"
#include "tests/unit/kernels/cuda/programs.h"

static char *text_of(const ZkCall *call) {
  ZbText t = {0};
  ZkPointwiseShape shape = zk_pointwise_shape(call, true);
  zk_pointwise_text(&t, call, &shape);
  return t.s;
}

static void first_text(const ZkCall *call, void *arg) {
  char **text = arg;
  if (!*text) *text = text_of(call);
}

Test(pointwise, text) {
  char *text = NULL;
  each_call(&pointwise_cases[0], first_text, &text);
  programs_expect(text, "pointwise.txt");
  free(text);
}

static void collect(const ZkCall *call, void *arg) {
  (void)arg;
  programs_add(text_of(call));
}

static void collect_all(void) {
  for (size_t i = 0; i < npointwise; i++) each_made(&pointwise_cases[i], collect, NULL);
  cr_assert(programs_count() >= 10);
}

#ifdef HAVE_NVRTC
Test(pointwise, nvrtc) {
  collect_all();
  programs_compile();
  programs_drop();
  void *cubin;
  size_t bytes;
  ZbErr err;
  cr_assert(!zk_cuda_compile("int f( {", 90, &cubin, &bytes, &err) && strstr(err.text, "error"), "%s",
            err.text);
}
#endif

Test(pointwise, emulated) {
  collect_all();
  programs_build("ZkcPointwise");
  for (size_t i = 0; i < npointwise; i++) conform(__FILE__, (int)i, &pointwise_cases[i]);
  cr_assert(programs_launched() >= (int)npointwise, "not by programs");
  programs_drop();
}
