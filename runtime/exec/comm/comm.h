/* What the communicators share: the arithmetic of reductions. Knows nothing of MPI. */
#ifndef ZUG_COMM_H
#define ZUG_COMM_H

#include "runtime/exec/exec.h"

static inline size_t zx_elem_bytes(ZxCommElem e) { return e == ZX_F64 ? 8 : e == ZX_F32 ? 4 : e == ZX_BF16 ? 2 : 1; }

/* combine.c: out[0..n) = part[0] + part[1] + ... + part[count-1] (or their maximum), combined in exactly this order, so
 * the result does not depend on which rank computes it. bf16 is summed in f32 and rounded once. `out` may be one of the
 * parts. A NaN in any part gives NaN, for the maximum too: a diverged rank must not disappear in a reduction. */
void zx_combine(void *out, const void *const *part, int count, size_t n, ZxCommElem elem, ZxReduce op);

/* For tests: messages of more than `bytes` bytes take the road of those too large for MPI's int counts. */
void zx_comm_mpi_limit(ZxComm *comm, size_t bytes);
/* For tests: collectives started from now on go by messages, as if every rank were on a node of its own. The same on
 * all ranks, while nothing is open. */
void zx_comm_mpi_apart(ZxComm *comm, bool apart);
/* For tests, before zx_comm_mpi: ranks of one machine for which this gives other numbers are on other nodes. */
void zx_comm_mpi_parts(int (*part)(int rank));

#endif
