# NCCL: with one rank, which has it only if asked, and with two, on two GPUs if there are two. On one GPU NCCL is told that the
# ranks are on two machines (it refuses two on one GPU), and goes by sockets: a smoke test of the calls, not of speed.
. "$ZUG_SRC/tests/lib.sh"
need_gpu
[ -x "$ZUG_BUILD/tests/gpu/apart.so" ] || { echo "this build has no NCCL"; exit 77; }
compare="$ZUG_BUILD/tests/tools/compare_runs"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
sed 's/ kv,//' "$ZUG_SRC/tests/mpi/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
run() { # LOG RANKS DEVICE RECIPE PROGRAM...
  log=$1 ranks=$2 device=$3 recipe=$4
  shift 4
  rm -rf "$log"
  ok timeout -k 5 200 $MPIRUN -np "$ranks" "$@" train gpt2.zsg --recipe "recipes.zug:$recipe" --data text.bin --steps 3 \
    --device "$device" --log "$log" --debug nccl-alone=on
}
same() {
  $compare --loss 1e-5 --norm 1e-4 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$1: not the CPU's numbers"; }
  echo "$1 $(tail -1 diff.txt)"
}
captured() { # by NCCL 2.26 and later
  says 'steps are captured|NCCL keeps its operations in order in a graph from 2.26 on only'
  grep 'note: each step is queued anew' out.txt && fail "$recipe: it could not be captured"
  return 0
}

recipe=one
run cpu 1 cpu one zrun
run cuda 1 cuda one zrun
says 'ranks exchange by NCCL'
captured
same one

cat >two.sh <<'END'
export NCCL_HOSTID=host$OMPI_COMM_WORLD_RANK NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_CTAS=4 NCCL_NVLS_ENABLE=0
export LD_PRELOAD="$ZUG_BUILD/tests/gpu/apart.so" # a GPU each
exec zrun "$@"
END
program=zrun
run probe 2 cuda zero3_2 zrun
grep -q 'ranks exchange by NCCL' out.txt || program="sh two.sh"
for recipe in zero3_2 tensor2 pipe2; do
  run cpu 2 cpu $recipe zrun
  run cuda 2 cuda $recipe $program
  says 'ranks exchange by NCCL'
  captured
  same $recipe
done

# Stages queue in one order of all (device/nccl.c): nothing may hang where a GPU does one thing after another, or where hosts
# wait for each.
for alone in CUDA_DEVICE_MAX_CONNECTIONS=1 CUDA_LAUNCH_BLOCKING=1 CUDA_MODULE_LOADING=EAGER; do
  run cuda 2 cuda pipe2 env $alone $program
  same "pipe2, $alone"
done
exit 0
