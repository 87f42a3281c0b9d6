/* With zrun.c: ranks that believe they are on several nodes. ZUG_TEST_NODES=ABAB: ranks 0 and 2 on one, 1 and
 * 3 on another. */
#include "runtime/exec/comm/comm.h"

#include <stdlib.h>
#include <string.h>

int zx_comm_mpi_part(int rank) {
  const char *nodes = getenv("ZUG_TEST_NODES");
  return nodes && rank < (int)strlen(nodes) ? nodes[rank] : 0;
}
