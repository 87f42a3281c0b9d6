/* Parts of tensors, where collectives take them from and put them. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

int zx_axis_of(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return i;
  ZB_BUG("along an axis that its tensor lacks");
}

ZkView zx_slice_view(const ZkView *v, uint16_t axis, int64_t from, int64_t n) {
  ZkView w = *v;
  int i = zx_axis_of(v, axis);
  w.data = zk_at(v, from * v->stride[i]);
  w.size[i] = n;
  return w;
}

ZkView zx_dense_view(const ZkView *v, void *p, ZkElem elem) {
  ZkView w = *v;
  int64_t stride = 1;
  w.data = p;
  w.elem = (uint8_t)elem;
  for (int i = w.rank; i-- > 0;) {
    w.stride[i] = stride;
    stride *= w.size[i];
  }
  return w;
}

void zx_copy_view(ZxEngine *e, ZkView from, ZkView to) {
  ZkCall c = {.op = ZG_OP_COPY, .nin = 1, .nout = 1};
  memset(from.start, 0, sizeof from.start);
  memset(to.start, 0, sizeof to.start);
  c.in[0] = from;
  c.out[0] = to;
  e->dev->run(e->env, &c);
}
