/* Ranks and their coordinates. Rank = ((c0 * n1 + c1) * n2 + c2) ...: the first dim of the mesh varies
 * slowest, so that the last one lands on neighbouring ranks, inside a node. Example: mesh pipe = 2, data = 2,
 * tensor = 2; rank 5 has pipe 1, data 0, tensor 1; its group along {data} is ranks 5 and 7, along {data,
 * tensor} ranks 4, 5, 6, 7. */
#include "runtime/plan/plan.h"

static int64_t stride_of(const ZpMesh *m, int dim) {
  int64_t s = 1;
  for (int d = m->ndims - 1; d > dim; d--) s *= m->dim[d].size;
  return s;
}

int64_t zp_coord(const ZpMesh *m, int64_t rank, int dim) {
  return rank / stride_of(m, dim) % m->dim[dim].size;
}

int64_t zp_group_index(const ZpMesh *m, int64_t rank, ZpDims dims) {
  int64_t i = 0;
  for (int d = 0; d < m->ndims; d++)
    if (dims >> d & 1) i = i * m->dim[d].size + zp_coord(m, rank, d);
  return i;
}

int64_t zp_group_member(const ZpMesh *m, int64_t rank, ZpDims dims, int64_t index) {
  for (int d = m->ndims; d-- > 0;) {
    if (!(dims >> d & 1)) continue;
    rank += (index % m->dim[d].size - zp_coord(m, rank, d)) * stride_of(m, d);
    index /= m->dim[d].size;
  }
  return rank;
}

int64_t zp_group_size(const ZpMesh *m, ZpDims dims) {
  int64_t n = 1;
  for (int d = 0; d < m->ndims; d++)
    if (dims >> d & 1) n *= m->dim[d].size;
  return n;
}

int64_t zp_group_color(const ZpMesh *m, int64_t rank, ZpDims dims) {
  return zp_group_index(m, rank, ~dims & ((1u << m->ndims) - 1));
}

int64_t zp_rank_of_stage(const ZpMesh *m, int64_t rank, int64_t stage) {
  if (m->pipe < 0) return rank;
  return rank + (stage - zp_coord(m, rank, m->pipe)) * stride_of(m, m->pipe);
}

bool zp_dim_splits(const ZpDim *d, uint32_t axis) {
  for (uint32_t i = 0; i < d->naxes; i++)
    if (d->axes[i] == axis) return true;
  return false;
}

ZpDims zp_all_dims(const ZpMesh *m) {
  ZpDims all = (1u << m->ndims) - 1;
  return m->pipe < 0 ? all : all & ~(1u << m->pipe);
}

const char *zp_dims_text(const ZpMesh *m, ZbArena *a, ZpDims dims) {
  const char *s = "";
  for (int d = 0; d < m->ndims; d++)
    if (dims >> d & 1) s = zb_printf(a, "%s%s%s", s, *s ? " x " : "", m->dim[d].name);
  return *s ? s : "nothing";
}
