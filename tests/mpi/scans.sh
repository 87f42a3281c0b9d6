# scan and linear_attend: heads and values may be split, a sequence is put together or changed for heads, and every layout
# trains the same.
. "$ZUG_SRC/tests/lib.sh"
need_mpi
model=$ZUG_SRC/tests/mpi/scans.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o scans.zsg
for recipe in one data_2 zero3_4 heads_2 values_2 seq_2 heads_seq_2 pipe_2 all_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $MPIRUN -np "${ranks:-1}" zrun train scans.zsg --recipe "$model:$recipe" --data text.bin --steps 5 --log $recipe
  # f32 sums in another order, as tests/mpi/layouts.sh has them
  "$ZUG_BUILD/tests/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-11s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done
exit 0
