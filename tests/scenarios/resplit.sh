# Parameters that are re-split for what uses them: the same losses and norms in every layout.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/resplit.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o resplit.zsg
for recipe in $(sed -n 's/^recipe \([a-z0-9_]*\) .*/\1/p' "$model"); do
  [ "$recipe" = base ] && continue
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train resplit.zsg --recipe "$model:$recipe" --data text.bin --steps 4 --log "$recipe"
  says "planned == used"
  # f32 sums in another order, as tests/scenarios/layouts.sh has them; elements of another place are off by 2e-4 in the first step
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$recipe/metrics.jsonl" one/metrics.jsonl >diff.txt || {
    cat diff.txt
    fail "$recipe"
  }
  printf '%-9s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done
for recipe in embed_2 ffn_2 zero_4; do
  zplan explain resplit.zsg --recipe "$model:$recipe" 2>/dev/null | grep -q ' all_to_all ' || fail "$recipe re-splits nothing"
done
