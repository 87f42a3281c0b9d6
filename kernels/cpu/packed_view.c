/* Packed views: weights that lie densely, in any order, into panels and back. */
#include "kernels/cpu/packed.h"

#define SOME 256 /* elements at once */

typedef struct {
  ZkView packed;
  ZkPacked matrix;
  ZkNest columns, k; /* views: packed, plain */
  const ZkView *plain;
} Pack;

static ZkNest nest_of(const ZkView *packed, const ZkView *plain, bool summed) {
  const ZkView *views[] = {packed, plain};
  ZkNest n = {.nviews = 2};
  for (int i = 0; i < packed->rank; i++)
    if ((i >= packed->rank - packed->summed) == summed)
      zk_nest_add(&n, views, 2, packed->axis[i], packed->size[i]);
  zk_nest_merge(&n);
  return n;
}

/* ---- into panels --------------------------------------------------------------------------------------- */
static void pack_panels(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Pack *p = arg;
  int64_t group = zk_packed_group(p->matrix.elem);
  float x[SOME];
  ZB_ASSERT(group <= SOME);
  for (int64_t c = from * ZK_COLUMNS; c < zk_min(to * ZK_COLUMNS, p->matrix.columns); c++) {
    ZkWalk column, k;
    zk_walk_seek(&p->columns, &column, c);
    zk_walk_seek(&p->k, &k, 0);
    for (int64_t g = 0; g < p->matrix.k / group; g++) {
      for (int64_t i = 0; i < group; i++, zk_walk_next(&p->k, &k))
        x[i] = ((const float *)p->plain->data)[column.off[1] + k.off[1]];
      zk_packed_encode(&p->matrix, c, g, x);
    }
  }
}

void zk_cpu_pack(const ZkEnv *env, const ZkView *plain, const ZkView *packed) {
  ZB_ASSERT(plain->elem == ZK_F32);
  Pack p = {*packed, zk_packed_of(packed), nest_of(packed, plain, false), nest_of(packed, plain, true),
            plain};
  zk_for(env, zk_packed_panels(p.matrix.columns), 1, pack_panels, &p);
  zk_packed_finish(&p.matrix);
}

/* ---- and back ------------------------------------------------------------------------------------------ */
typedef struct {
  const ZkView *packed, *plain;
  int64_t first, n;
  float *x;
} Unpack;

/* Elements by their number in the plain view, in runs along its last axis. */
static void unpack_some(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Unpack *u = arg;
  const ZkView *v = u->plain;
  int64_t last = v->rank ? v->size[v->rank - 1] : 1;
  int64_t stride = v->rank ? zk_axis_stride(u->packed, v->axis[v->rank - 1]) : 1;
  for (int64_t i = u->first + from, run; i < u->first + to; i += run) {
    int64_t rest = i, at = 0;
    for (int a = v->rank; a-- > 0; rest /= v->size[a])
      at += rest % v->size[a] * zk_axis_stride(u->packed, v->axis[a]);
    run = zk_min(last - i % last, u->first + to - i);
    zk_load(u->x + (i - u->first), u->packed, at, stride, run);
  }
}

void zk_cpu_unpack(const ZkEnv *env, const ZkView *packed, const ZkView *plain, int64_t first, int64_t n,
                   float *x) {
  Unpack u = {packed, plain, first, n, x};
  zk_for(env, n, 1 << 14, unpack_some, &u);
}

/* ---- elements ------------------------------------------------------------------------------------------ */
/* Loads from a packed view at the offsets that it would have if columns lay one behind the other. */
void zk_load_packed(float *to, const ZkView *v, int64_t at, int64_t stride, int64_t n) {
  ZkPacked p = zk_packed_of(v);
  if (stride == 1)
    for (int64_t i = 0, run; i < n; i += run) {
      int64_t k = (at + i) % p.k;
      run = zk_min(n - i, p.k - k);
      zk_packed_decode(&p, (at + i) / p.k, k, run, to + i);
    }
  else if (stride == p.k) zk_packed_decode_row(&p, at % p.k, at / p.k, n, to);
  else
    for (int64_t i = 0; i < n; i++)
      zk_packed_decode(&p, (at + i * stride) / p.k, (at + i * stride) % p.k, 1, to + i);
}
