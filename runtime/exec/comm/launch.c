/* What the launcher says of this process, before MPI is asked: rank and number of processes. */
#include "runtime/exec/comm/comm.h"

#include <limits.h>
#include <stdlib.h>

static int number_in(const char *const *variables) {
  for (; *variables; variables++) {
    const char *text = getenv(*variables);
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    if (n >= 0 && n < INT_MAX && end != text && !*end) return (int)n;
  }
  return -1;
}

/* Open MPI's mpirun and prun, other PMIx launchers, MPICH's and Intel's, srun. */
ZxLaunch zx_launch(void) {
  static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", NULL};
  static const char *const size[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL};
  return (ZxLaunch){number_in(rank), number_in(size)};
}
