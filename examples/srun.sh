#!/bin/bash
# A run that Slurm starts itself, without mpirun: sbatch srun.sh. Slurm hands each rank its number by the protocol that the MPI
# speaks, so it must have that one; `srun --mpi=list` says which it has.
#   Open MPI 4 and 5   pmix    Slurm is built --with-pmix, of the version that Open MPI was built with, or a newer one
#   MPICH, MVAPICH     pmi2    MPICH is configured --with-pmi=slurm (or pmi2), or --with-pmix for pmix
#   Intel MPI          pmi2    with I_MPI_PMI_LIBRARY=/path/to/libpmi2.so, which is Slurm's
# With the wrong one every rank takes itself for the only one, and zrun says that the recipe wants more ranks.
#
# Five minutes before the end Slurm sends SIGUSR1 to all ranks; the run writes a checkpoint and stops with code 75, and the job is
# queued again. slurm.sh does the same by mpirun, and starts the run again after a crash.
#SBATCH --job-name=zug
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

srun --mpi="${ZUG_PMI:-pmix}" --kill-on-bad-exit=0 \
  zrun train model.zsg --recipe recipes.zug:nodes4 --data train.bin --steps 1000000 --ckpt checkpoints --resume --log log
code=$?
[ $code -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
