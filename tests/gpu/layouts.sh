# Layouts on one GPU: 1, 2, 4 and 8 ranks share it, and exchange by way of the host. The loss is that of the CPU in the same
# layout (3 steps in f32, sums in other orders: 1e-5, norms 1e-4), and the same bits in two runs.
. "$ZUG_SRC/tests/lib.sh"
need_gpu
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
[ -n "$CUDA_VISIBLE_DEVICES" ] || export CUDA_VISIBLE_DEVICES=0
compare="$ZUG_BUILD/tests/tools/compare_runs"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
sed 's/ kv,//' "$ZUG_SRC/tests/mpi/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug

run() { # LOG DEVICE RECIPE RANKS
  rm -rf "$1"
  ok timeout -k 5 200 $MPIRUN -np "$4" zrun train gpt2.zsg --recipe "recipes.zug:$3" --data text.bin --steps 3 --device "$2" --log "$1" --repeatable
}
for each in one:1 zero1_2:2 zero3_2:2 keep_4:4 tensor2:2 seq2:2 pipe2:2 few4:4 all8:8; do
  recipe=${each%:*} ranks=${each#*:}
  run cpu cpu "$recipe" "$ranks"
  run cuda cuda "$recipe" "$ranks"
  [ "$ranks" -eq 1 ] || says "by way of the host's memory"
  run again cuda "$recipe" "$ranks"
  $compare --loss 1e-5 --norm 1e-4 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe: not the CPU's numbers"; }
  echo "$recipe $(tail -1 diff.txt)"
  $compare --loss 0 --norm 0 cuda/metrics.jsonl again/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe: not the same twice"; }
done
exit 0
