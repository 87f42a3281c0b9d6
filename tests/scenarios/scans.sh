# scan and linear_attend: heads and values may be split, and of a sequence ranks exchange what their chunks end with; every layout
# trains the same, with the bytes that were planned.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/scans.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o scans.zsg
for recipe in one data_2 zero3_4 heads_2 values_2 seq_2 seq_4 heads_seq_2 pipe_2 all_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train scans.zsg --recipe "$model:$recipe" --data text.bin --steps 3 --log $recipe
  says "planned == used"
  # f32 sums in another order, as tests/scenarios/layouts.sh has them
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-11s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
done

# however long the sequence is; a chunk that is shorter than its state is put together
long() { sed -n "/^recipe base/,/^}/p; /^recipe $1 /p" "$model" | sed "s/seq = 32/seq = $2/" >long.zug; }
for seq in 64 256; do
  long seq_4 $seq
  ok zplan explain scans.zsg --recipe long.zug:seq_4
  grep -E "all_gather|all_to_all" out.txt && fail "a sequence of $seq is put together"
  grep -o "[0-9.]* .B by halo" out.txt >sent.$seq
done
cmp sent.64 sent.256 || fail "chunks of another length end with more"
long seq_4 4
ok zplan explain scans.zsg --recipe long.zug:seq_4
says "all_gather .*linear_attend.* needs it whole"

# convolutions over a picture of which ranks have strips; weights show what a norm of all gradients does not
model=$ZUG_SRC/tests/data/models/pictures.zug
ok zc "$model" -o pictures.zsg
for recipe in one rows_4 cols_4 chan_4 rows_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  rm -rf log
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train pictures.zsg --recipe "$model:$recipe" --data text.bin --steps 3 --log log \
    --save $recipe.safetensors
  says "planned == used"
  ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --abs 1e-6 --rel 1e-5 $recipe.safetensors one.safetensors
  printf '%-11s %s\n' "$recipe" "$(tail -n 1 out.txt)"
done
ok zplan explain pictures.zsg --recipe "$model:rows_4"
grep "all_gather .*conv" out.txt && fail "rows are put together"
exit 0
