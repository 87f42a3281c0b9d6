/* Whether all ranks are content, and which of them is the first that is not. */
#include "runtime/exec/comm/comm.h"

bool zx_agree(ZxComm *c, bool ok) {
  double bad = ok ? 0 : 1;
  c->t->wait(c, c->t->all_reduce(c, 0, &bad, 1, ZK_F64, ZX_SUM));
  return bad == 0;
}

int64_t zx_lowest(ZxComm *c, int64_t mine) {
  double first = mine < 0 ? -1e300 : -(double)mine; /* the maximum of the negatives is the lowest */
  c->t->wait(c, c->t->all_reduce(c, 0, &first, 1, ZK_F64, ZX_MAX));
  return first < -1e299 ? -1 : (int64_t)-first;
}
