#!/bin/bash
# A run of weeks in jobs of four hours: sbatch slurm.sh. Five minutes before the end Slurm sends SIGUSR1; the run writes a
# checkpoint and stops with code 75, and the job is queued again. Within a job zkeep starts the run again after a crash, on the
# nodes that still answer.
#SBATCH --job-name=zug
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/$/ slots=$SLURM_NTASKS_PER_NODE/" >"hosts.$SLURM_JOB_ID"
zkeep --hosts "hosts.$SLURM_JOB_ID" --ranks 32,16,8 --grace 4m --probe 'srun --overlap --nodes=1 --ntasks=1 --nodelist=HOST true' -- \
  mpirun zrun train model.zsg --recipe recipes.zug:nodes4,nodes2,node1 --data train.bin --steps 1000000 \
  --ckpt checkpoints --resume --log log &
keep=$!
trap 'told=$((told + 1)); kill -USR1 $keep' USR1 TERM

# A signal ends `wait` early.
told=0 before=-1
until [ $told -eq $before ]; do
  before=$told
  wait $keep
  code=$?
done
[ $code -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
