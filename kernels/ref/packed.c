/* What products of rows by packed weights are, to the bit: codes of rows and weights are multiplied and
 * added as integers, group by group; a group's sum counts by both scales, in f32. Groups are added in their
 * order within chunks, and chunks as a tree (kernels/cpu/invariant.h). */
#include <math.h>

#include "kernels/ref/ref.h"
#include "kernels/packed.h"

typedef struct {
  const ZkPacked *w;
  const int8_t *code; /* of a row */
  const float *scale;
  int64_t column;
} Row;

static int zero_of(const Row *r, int64_t group) {
  const ZkPacked *w = r->w;
  if (zk_elem_info[w->elem].zero != ZK_ZERO_POINT) return zk_packed_zero(w->elem);
  return zk_packed_zeros(w, r->column / ZK_COLUMNS)[group * ZK_COLUMNS + r->column % ZK_COLUMNS];
}

static float chunk(const Row *r, int64_t from, int64_t to) {
  const ZkPacked *w = r->w;
  const uint16_t *scales = zk_packed_scales(w, r->column / ZK_COLUMNS);
  int64_t n = zk_packed_group(w->elem);
  float all = 0;
  for (int64_t g = from; g < to; g++) {
    float scale = zb_f16_to_f32(scales[g * ZK_COLUMNS + r->column % ZK_COLUMNS]);
    int32_t sum = 0;
    for (int64_t k = g * n; k < (g + 1) * n; k++)
      sum += (zk_packed_code(w, r->column, k) - zero_of(r, g)) * r->code[k];
    all = fmaf((float)sum, r->scale[g] * scale, all);
  }
  return all;
}

/* Returns the sum of groups from .. to in so many chunks. */
static float tree(const Row *r, int64_t from, int64_t to, int chunks) {
  int64_t middle = from + (to - from) / 2;
  if (chunks == 1) return chunk(r, from, to);
  if (middle == from) return tree(r, middle, to, chunks / 2);
  return tree(r, from, middle, chunks / 2) + tree(r, middle, to, chunks / 2);
}

void zk_ref_packed_row(const ZkPacked *w, const float *x, int chunks, float *y) {
  enum { MOST = 1 << 16 };
  int64_t n = zk_packed_group(w->elem);
  int8_t code[MOST];
  float scale[MOST / 32];
  int32_t sum[MOST / 32];
  ZB_ASSERT(w->k <= MOST && zk_elem_info[w->elem].codes == ZK_CODES_INTEGER);
  zk_round_row(x, w->k, n, code, scale, sum);
  for (int64_t c = 0; c < w->columns; c++) y[c] = tree(&(Row){w, code, scale, c}, 0, w->k / n, chunks);
}
