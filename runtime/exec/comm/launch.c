/* What the launcher says of this process, before MPI is asked: rank and number of processes. */
#include "runtime/exec/comm/comm.h"

#include <limits.h>
#include <stdlib.h>

static int number_in(const char *variable) {
  const char *text = getenv(variable);
  char *end;
  long n = text ? strtol(text, &end, 10) : -1;
  return n >= 0 && n < INT_MAX && end != text && !*end ? (int)n : -1;
}

/* Open MPI's mpirun and prun, other PMIx launchers, MPICH's and Intel's, MVAPICH's, HPE's, Cray's, Flux. */
static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",   "PMI_RANK",
                                    "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "ALPS_APP_PE",
                                    "FLUX_TASK_RANK",       NULL};
static const char *const sizes[] = {
    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE", "SLURM_STEP_NUM_TASKS", NULL};

ZxLaunch zx_launch(void) {
  ZxLaunch l = {-1, -1, true};
  for (const char *const *v = ranks; *v && l.rank < 0; v++) l.rank = number_in(*v);
  /* Scripts that Slurm starts, outside of any step, have a rank, too. */
  if (l.rank < 0 && number_in("SLURM_STEP_NUM_TASKS") >= 0) l.rank = number_in("SLURM_PROCID");
  for (const char *const *v = sizes; *v; v++) {
    int n = number_in(*v);
    if (l.size < 0) l.size = n;
    l.alone &= n <= 1;
  }
  l.alone &= l.rank < 0 || l.size == 1;
  return l;
}
