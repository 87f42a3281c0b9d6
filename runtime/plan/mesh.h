/* Ranks and their coordinates along the dims of a mesh, and the nodes of a cluster that they are on. */
#ifndef ZUG_PLAN_MESH_H
#define ZUG_PLAN_MESH_H

#include "base/base.h"

#define ZP_MAX_DIMS 8
#define ZP_MAX_GROUP 4
#define ZP_NONE UINT32_MAX
#define ZP_NO_AXIS UINT16_MAX
typedef uint32_t ZpDims; /* set of mesh dims, bit d */

/* ---- mesh ---------------------------------------------------------------------------------------------- */
/* Dims slowest-varying first. A dim split by a product (`split kv*grp over tensor`) is two dims here,
 * "tensor.kv" and "tensor.grp". pipe: the dim of `stages over`, or -1. */
typedef struct {
  const char *name;
  int64_t size;
  uint32_t directive; /* dim of the recipe it comes from */
  uint16_t *axes;     /* ordered list of the axes it splits; `else` axes last */
  uint32_t naxes;
  /* The axis that it splits zigzag, or ZP_NO_AXIS: pieces.c; and the one that stands for it in chunks of
   * logits (ZpChunk's `up`), or ZP_NO_AXIS. */
  uint16_t zigzag, zigzag_up;
} ZpDim;
typedef struct {
  ZpDim dim[ZP_MAX_DIMS];
  int ndims, pipe;
  int64_t nranks;
} ZpMesh;
int64_t zp_coord(const ZpMesh *m, int64_t rank, int dim);
/* Rank's index within, and size of, its group along `dims`; row-major in mesh order. */
int64_t zp_group_index(const ZpMesh *m, int64_t rank, ZpDims dims);
int64_t zp_group_size(const ZpMesh *m, ZpDims dims);
/* Returns the member of its group that has this index. */
int64_t zp_group_member(const ZpMesh *m, int64_t rank, ZpDims dims, int64_t index);
/* Returns a number that is equal for two ranks exactly if they are in the same group along `dims`. */
int64_t zp_group_color(const ZpMesh *m, int64_t rank, ZpDims dims);
bool zp_dim_splits(const ZpDim *d, uint32_t axis); /* whether it may: it lists the axis */
static inline bool zp_dim_zigzags(const ZpDim *d, uint32_t axis) {
  return axis != ZP_NO_AXIS && d->size > 1 && (d->zigzag == axis || d->zigzag_up == axis);
}
ZpDims zp_all_dims(const ZpMesh *m); /* all but the one of pipeline stages */
int64_t zp_rank_of_stage(const ZpMesh *m, int64_t rank, int64_t stage); /* same coordinates, other stage */
/* "data x tensor" */
const char *zp_dims_text(const ZpMesh *m, ZbArena *a, ZpDims dims);

/* ---- nodes.c: ranks on the nodes of a cluster ---------------------------------------------------------- */
/* The order in which the mesh should have the ranks that a launcher started: its rank i is to be the
 * launcher's order[i]. node[r]: which node the launcher's rank r is on, by any numbers. Groups of the dims
 * that vary fastest are on one node as far as that can be; rank 0 stays rank 0. False: the launcher's own
 * order is as good. */
bool zp_order_ranks(const ZpMesh *m, ZbArena *a, const int *node, int *order);
/* Lines on which dims are inside nodes in that order, which ranks are where, and why it is not better. One
 * node: none. */
void zp_show_nodes(const ZpMesh *m, ZbArena *a, const int *node, const int *order, ZbText *out);

#endif
