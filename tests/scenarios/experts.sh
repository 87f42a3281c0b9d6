# Choices by topk are the same in every layout: losses and norms are those of one rank.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/experts.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o experts.zsg
for recipe in one data_2 zero3_4 experts_2 tokens_2 pipe_2 all_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train experts.zsg --recipe "$model:$recipe" --data text.bin --steps 5 --log $recipe
  # f32 sums in another order, as tests/scenarios/layouts.sh has them. A choice that they turn would show as more.
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-9s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done
# another choice trains otherwise
sed 's/take = 2/take = 1/' "$model" >fewer.zug
ok zc fewer.zug -o fewer.zsg
ok timeout -k 5 100 zrun train fewer.zsg --recipe "$model:one" --data text.bin --steps 5 --log fewer
"$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 fewer/metrics.jsonl one/metrics.jsonl >diff.txt && fail "groups are nothing"
exit 0
