# Convolutions: channels may be split, positions are put together, and every layout trains the same.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/conv.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o conv.zsg
for recipe in one data_2 zero3_4 inner_2 outer_2 rows_2 pipe_2 all_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train conv.zsg --recipe "$model:$recipe" --data text.bin --steps 5 --log $recipe
  # f32 sums in another order, as tests/scenarios/layouts.sh has them
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-8s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done

# ---- channels inside are split and summed: nothing is gathered for them ----
ok zplan explain conv.zsg --recipe "$model:inner_2"
[ "$(grep -c all_gather out.txt)" -eq 0 ] || { cat out.txt; fail "inner_2 gathers"; }

# ---- what is padded counts nothing: channels may be, positions not ----
sed 's/^recipe one from base {.*/recipe one from base { pad mid to 16 }/' "$model" >padded.zug
ok timeout -k 5 100 zrun train conv.zsg --recipe padded.zug:one --data text.bin --steps 5 --log padded
ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 padded/metrics.jsonl one/metrics.jsonl
sed 's/^recipe one from base {.*/recipe one from base { pad half_row to 4 }/' "$model" >padded.zug
refuses Z0308 zplan show conv.zsg --recipe padded.zug:one
