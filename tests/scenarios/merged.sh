# merge and part: what a recipe splits of them is put together where it must be whole, so every layout trains the same.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/merged.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o merged.zsg
for recipe in one data_2 zero3_4 heads_2 rows_2 pipe_2 all_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train merged.zsg --recipe "$model:$recipe" --data text.bin --steps 5 --log $recipe
  # f32 sums in another order, as tests/scenarios/layouts.sh has them
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-8s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done
# a split of the slowest part is one of the whole: nothing is gathered where a recipe names both
gathered() { # RECIPE: how often
  ok zplan explain merged.zsg --recipe "$model:$1"
  grep -c all_gather out.txt
}
[ "$(gathered heads_2)" -eq 0 ] || { cat out.txt; fail "heads_2 gathers what it merges"; }
sed 's/split head, joined, vocab over tensor }/split head, vocab over tensor }/' "$model" >half.zug
model=half.zug
[ "$(gathered heads_2)" -gt 0 ] || { cat out.txt; fail "the other axis is split, too"; }
model=$ZUG_SRC/tests/data/models/merged.zug

# the order of the parts matters
sed 's/part\[row, column, seq\]/part[column, row, seq]/' "$model" >turned.zug
ok zc turned.zug -o turned.zsg
ok timeout -k 5 100 zrun train turned.zsg --recipe "$model:one" --data text.bin --steps 5 --log turned
"$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 turned/metrics.jsonl one/metrics.jsonl >diff.txt && fail "the order of parts is nothing"
exit 0
