# One rank needs neither a launcher nor MPI: zrun by itself, and under launchers that started one process, is a world of one, and
# not a bit differs from what it does as MPI's. Where it is killed and stopped nothing is between it and zkeep.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe one { optimizer adamw(lr = 0.01)   bind batch = 8, seq = 16   micro 2 }
recipe late from one { optimizer adamw(lr = 0.01, warmup = 200) }
recipe two from one { mesh data = 2   split batch over data }
recipe long from one { bind batch = 64, seq = 16 } # a step takes some milliseconds
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
run="zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin"
no_mpi="env OMPI_MCA_pml=none" # with it no world of Open MPI begins
# Open MPI's ranks ask their daemon how many they are; without the size in the environment only MPI knows that there is one.
by_mpi="$MPIRUN -np 1 env -u OMPI_COMM_WORLD_SIZE"

# same NAME WORD...: after these words, a run with losses, norms and weights of the first one.
same() {
  name=$1
  shift
  ok "$@" $run --steps 4 --eval text.bin --eval-every 2 --eval-batches 2 --log "$name" --save "$name.safetensors"
  grep -Eo '"(step|loss|grad_norm|eval_loss)":[^,]*' "$name/metrics.jsonl" >"$name.txt"
  [ "$(grep -c loss "$name.txt")" -eq 6 ] || { cat "$name/metrics.jsonl"; fail "$name: not six losses"; }
  cmp "$name.txt" mpi.txt && cmp "$name.safetensors" mpi.safetensors || fail "$name: other numbers than MPI's world of one"
}
same mpi $by_mpi
refuses . $by_mpi $no_mpi $run --steps 1 # it is MPI indeed
same alone $no_mpi
same mpirun $MPIRUN -np 1 $no_mpi
same batch env SLURM_PROCID=0 SLURM_NTASKS=8 $no_mpi        # a script of Slurm's
same step env SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 $no_mpi # srun -n 1
mistake 'recipe two is for 2 ranks \(data = 2\); zrun was started alone' $no_mpi $run --recipe recipes.zug:two --steps 1
says 'help: mpirun -np 2 zrun'
mistake '--steps cannot be .x.' $MPIRUN -np 1 $no_mpi $run --steps x

# Two places say how long a run is: where they are at odds it says so.
ok $no_mpi $run --recipe recipes.zug:late --steps 1 --quiet
says '^note: the run has 1 step, .*warmup = 200.*5.00e-05 of 1.00e-02$'
ok $no_mpi $run --steps 1
! grep '^note: the run has' out.txt || fail "a note without a reason"

# ---- kept: it is killed, begins again where it was, and is told to stop ----
run="zrun train gpt2.zsg --recipe recipes.zug:long --data text.bin"
lasts="$run --steps 100000000 --ckpt ckpt --ckpt-every 10 --ckpt-keep 2 --resume"
until_there() { # PATTERN
  tries=0
  until grep -q "$1" keep.out; do
    sleep 0.05
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { tail keep.out; fail "no $1"; }
  done
}
kept_run() { cat "/proc/$job/task/$job/children"; }
$no_mpi zkeep --wait 0s -- $lasts --log log --save kept.safetensors >keep.out 2>&1 &
job=$!
trap 'kill -KILL $(kept_run) $job 2>/dev/null' EXIT
until_there '^checkpoint ckpt/'
kill -KILL $(kept_run)
until_there '^resumed from ckpt/step-'
kill -TERM $job
wait $job
code=$?
trap - EXIT
[ $code -eq 75 ] || { cat keep.out; fail "code $code of a run that was told to stop"; }
step=$(sed -n 's/^stopped after step \([0-9]*\) by SIGUSR1; code 75.*/\1/p' keep.out)
ok $run --steps "$step" --save w.safetensors
cmp w.safetensors kept.safetensors || fail "a run that was killed and stopped comes to other parameters"
exit 0
