/* Runs calls: takes fused ones apart, numbers axes, and finds the kernel. See ref.h. */
#include "kernels/ref/ref.h"

#include <stdlib.h>

static ZkKernel *kernel_of(int op) {
  static ZkKernel *const kernels[ZG_OP_COUNT] = {
#define KERNEL(NAME, name) [ZG_OP_##NAME] = REF(name),
#include "kernels/kernels.def"
      [ZG_OP_POINTWISE] = REF(pointwise),
      [ZG_OP_COPY] = REF(copy),
      [ZG_OP_GROUPED_DOT] = REF(grouped_dot),
      [ZG_OP_GROUPED_OUTER] = REF(grouped_outer),
      [ZG_OP_SLOTS] = REF(slots),
      [ZG_OP_ROUND] = REF(round),
      [ZG_OP_PUT_PAGES] = REF(put_pages),
      [ZG_OP_ATTEND_PAGES] = REF(attend_pages),
      [ZG_OP_ATTEND_OWN] = REF(attend_own),
      [ZG_OP_RESUME_SCAN] = REF(resume_scan),
      [ZG_OP_RESUME_LINEAR] = REF(resume_linear),
      [ZG_OP_RECENT] = REF(recent),
      [ZG_OP_ROPE_AT] = REF(rope_at),
      [ZG_OP_ROWS] = REF(rows),
  };
  if (op < 0 || op >= ZG_OP_COUNT) return NULL;
  return zg_op_info[op].kind == ZG_EW ? REF(ew) : kernels[op];
}

/* Axes of a call in ascending order: an axis' number is its place here. */
typedef struct {
  int n;
  uint16_t axis[REF_MAX_AXES];
} Numbers;

static void number(Numbers *to, const uint16_t *axes, int n) {
  for (int k = 0; k < n; k++) {
    if (ref_find(to->axis, to->n, axes[k]) >= 0) continue;
    ZB_ASSERT(to->n < REF_MAX_AXES);
    int at = to->n++;
    for (; at > 0 && to->axis[at - 1] > axes[k]; at--) to->axis[at] = to->axis[at - 1];
    to->axis[at] = axes[k];
  }
}

static void renumber(const Numbers *by, uint16_t *axes, int n) {
  for (int k = 0; k < n; k++) axes[k] = (uint16_t)ref_find(by->axis, by->n, axes[k]);
}

static void run(const ZkEnv *env, const ZkCall *call) {
  ZkKernel *kernel = kernel_of(call->op);
  if (!kernel) ZB_BUG("%s has no reference kernel", zg_op_info[call->op].text);
  ZkCall c = *call;
  Numbers by = {0};
  number(&by, c.ax, c.nax);
  for (int k = 0; k < c.nin; k++) number(&by, c.in[k].axis, c.in[k].rank);
  for (int k = 0; k < c.nout; k++) number(&by, c.out[k].axis, c.out[k].rank);
  renumber(&by, c.ax, c.nax);
  for (int k = 0; k < c.nin; k++) renumber(&by, c.in[k].axis, c.in[k].rank);
  for (int k = 0; k < c.nout; k++) renumber(&by, c.out[k].axis, c.out[k].rank);
  kernel(env, &c);
}

static void run_fused(const ZkEnv *env, const ZkCall *call) {
  ZkUnfused u;
  ZkCall c = *call;
  zk_unfuse(&c, &u);
  c.scratch = malloc(u.room + 1); /* reference kernels need none of their own */
  ZB_ASSERT(c.scratch);
  zk_unfuse(&c, &u);
  for (int i = 0; i < u.n; i++) run(env, &u.call[i]);
  free(c.scratch);
}

void REF(run)(const ZkEnv *env, const ZkCall *call) {
  bool fused = call->pointwise && call->op != ZG_OP_POINTWISE;
  if (fused || !kernel_of(call->op)) run_fused(env, call);
  else run(env, call);
}
