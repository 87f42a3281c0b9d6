# Positions, noise, shifts and log sums are the same numbers in every layout: some recipes of layouts.zug train
# numbers.zug, and losses and gradient norms must be those of one rank within 1e-5 relative (f32 sums in another order; seen:
# 1e-7). Padding does not count, and an evaluation draws the same noise in every layout, too.
. "$ZUG_SRC/tests/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/tools/compare_runs

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/tests/mpi/numbers.zug" -o numbers.zsg
sed 's/ kv,//' "$ZUG_SRC/tests/mpi/layouts.zug" >recipes.zug
sed '/pad vocab/d' recipes.zug >unpadded.zug
echo 'recipe half from one { precision compute bf16 }' >>recipes.zug

train() { # LOG FILE RECIPE OPTION...; the number of ranks ends the recipe's name
  log=$1 file=$2 recipe=$3
  shift 3
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $MPIRUN -np "${ranks:-1}" zrun train numbers.zsg --recipe "$file:$recipe" --data text.bin --steps 5 \
    --log "$log" "$@"
}
same() { # LOG TOLERANCE
  ok "$compare" --loss "$2" --norm "$2" "$1/metrics.jsonl" one/metrics.jsonl
}

train one recipes.zug one --save w.safetensors
for recipe in one_big one_recompute data2 zero3_2 tensor2 seq2 seq_alone2 pipe2 recompute2 zero3_tensor4; do
  train $recipe recipes.zug $recipe
  same $recipe 1e-5
done
train unpadded unpadded.zug one
same unpadded 1e-5
# bf16 has 8 bits (seen: 1.2e-4 and 3.5e-3).
train half recipes.zug half
ok "$compare" --loss 1e-3 --norm 2e-2 half/metrics.jsonl one/metrics.jsonl

# ---- the noise of an evaluation ----
evaluate() { # RECIPE RANKS: the loss
  rm -rf eval
  ok timeout -k 5 100 $MPIRUN -np "$2" zrun eval numbers.zsg --recipe "recipes.zug:$1" --data text.bin --init w.safetensors \
    --eval-batches 3 --log eval
  sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' eval/metrics.jsonl
}
want=$(evaluate one 1)
[ "$(evaluate one 1)" = "$want" ] || fail "the same evaluation gives other numbers"
for recipe in one_big zero3_2 seq2 pipe2; do
  loss=$(evaluate $recipe $(echo $recipe | sed 's/.*[^0-9]//; s/^$/1/'))
  awk -v a="$loss" -v b="$want" 'BEGIN { d = (a - b) / b; exit !(a != "" && d <= 1e-5 && -d <= 1e-5) }' ||
    fail "$recipe: an evaluation's loss is $loss, not $want"
done
