/* A matrix of a parameter that is optimised whole (Muon), in a buffer that has a block of each rank of a group: where
 * its elements lie. For hosts and devices. */
#ifndef ZUG_KERNELS_MATRIX_H
#define ZUG_KERNELS_MATRIX_H

#include "kernels/everywhere.h"

#include <stdint.h>

/* The parameter has naxes axes, slowest first; along one that numbers matrices there is one index, `fixed`. An axis of
 * `size` is several ranks' `local` ones, one after the other. The group's dims, slowest first: each has n ranks, and
 * either cuts blocks into shards (axis < 0), or splits an axis. */
#define ZK_MATRIX_AXES 8
#define ZK_MATRIX_DIMS 8
typedef struct {
  int naxes, ndims;
  int64_t size[ZK_MATRIX_AXES], local[ZK_MATRIX_AXES];
  int64_t fixed[ZK_MATRIX_AXES];  /* -1: all indices */
  int64_t stride[ZK_MATRIX_AXES]; /* in the slice, as a rank has it, */
  int64_t place[ZK_MATRIX_AXES];  /* and in the matrix */
  int64_t dim[ZK_MATRIX_DIMS];
  int axis[ZK_MATRIX_DIMS];  /* of a dim that splits one; -1: of shards; -2: it is not the group's */
  int64_t at, own, elements; /* where the slice begins; elements of a block, of the matrix */
} ZkMatrix;

/* Returns where element e of the matrix lies in the blocks; *x: where in the matrix. */
ZK_EVERYWHERE int64_t zk_matrix_place(const ZkMatrix *m, int64_t e, int64_t *x) {
  int64_t part[ZK_MATRIX_AXES], coord[ZK_MATRIX_DIMS], elem = m->at, to = 0, block = 0;
  for (int i = m->naxes - 1; i >= 0; i--) {
    int64_t index = m->fixed[i];
    if (index < 0) {
      index = e % m->size[i];
      e /= m->size[i];
      to += index * m->place[i];
    }
    elem += index % m->local[i] * m->stride[i];
    part[i] = index / m->local[i];
  }
  int64_t shard = elem / m->own;
  for (int d = m->ndims - 1; d >= 0; d--) {
    int64_t n = m->dim[d], *from = m->axis[d] >= 0 ? &part[m->axis[d]] : &shard;
    coord[d] = 0;
    if (m->axis[d] == -2) continue;
    coord[d] = *from % n;
    *from /= n;
  }
  for (int d = 0; d < m->ndims; d++)
    if (m->axis[d] != -2) block = block * m->dim[d] + coord[d];
  *x = to;
  return block * m->own + elem % m->own;
}

#endif
