# Positions, noise, shifts and log sums are the same numbers in every layout: some recipes of layouts.zug train
# numbers.zug, and losses and gradient norms must be those of one rank within 1e-5 relative (f32 sums in another order; seen:
# 1e-7). Padding does not count, and an evaluation draws the same noise in every layout, too.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/tests/data/models/numbers.zug" -o numbers.zsg
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" >recipes.zug
sed '/pad vocab/d' recipes.zug >unpadded.zug
echo 'recipe half from one { precision compute bf16 }' >>recipes.zug

train() { # LOG FILE RECIPE OPTION...; the number of ranks ends the recipe's name
  log=$1 file=$2 recipe=$3
  shift 3
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train numbers.zsg --recipe "$file:$recipe" --data text.bin --steps 5 \
    --log "$log" "$@"
}
same() { # LOG TOLERANCE
  ok "$compare" --loss "$2" --norm "$2" "$1/metrics.jsonl" one/metrics.jsonl
}

train one recipes.zug one --save w.safetensors
for recipe in one_big seq2 $(at_night && echo one_recompute data2 zero3_2 tensor2 seq_alone2 pipe2 recompute2 zero3_tensor4); do
  train $recipe recipes.zug $recipe
  same $recipe 1e-5
done
train unpadded unpadded.zug one
same unpadded 1e-5
# bf16 has 8 bits (seen: 1.2e-4 and 3.5e-3).
train half recipes.zug half
ok "$compare" --loss 1e-3 --norm 2e-2 half/metrics.jsonl one/metrics.jsonl

# ---- zigzag, which shifts along the sequence would not let be: also cut again by a faster dim, in the middle of a piece ----
sed 's/shift\[seq\](h \* h, by = 2)/h * h/; s/shift\[seq\](tokens)/tokens/; s/shift\[seq\](targets, by = -1)/targets/' \
  "$ZUG_SRC/tests/data/models/numbers.zug" >still.zug
ok zc still.zug -o still.zsg
cat >>unpadded.zug <<'END'
recipe still from one { bind seq = 24 }
recipe zigzag4 from still { mesh context = 4   split seq over context zigzag   attention ring }
recipe zigzag6 from still {
  mesh context = 2, tensor = 3
  split seq over context zigzag
  split ffn over tensor else seq contiguous
  attention gather
}
END
for recipe in still zigzag4 zigzag6; do
  ranks=$(echo $recipe | sed 's/.*[^0-9]//')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train still.zsg --recipe unpadded.zug:$recipe --data text.bin --steps 3 --log $recipe
  says 'planned == used'
  ok "$compare" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl still/metrics.jsonl
done
ok zplan explain still.zsg --recipe unpadded.zug:zigzag6
says '^.seq. is split zigzag over context: of 4 chunks rank r has numbers r and 3 - r$'

# ---- the noise of an evaluation ----
evaluate() { # RECIPE RANKS: the loss
  rm -rf eval
  ok timeout -k 5 100 $(on "$2") zrun eval numbers.zsg --recipe "recipes.zug:$1" --data text.bin --init w.safetensors \
    --eval-batches 3 --log eval
  sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' eval/metrics.jsonl
}
want=$(evaluate one 1)
[ "$(evaluate one 1)" = "$want" ] || fail "the same evaluation gives other numbers"
for recipe in zero3_2 $(at_night && echo one_big seq2 pipe2); do
  loss=$(evaluate $recipe $(echo $recipe | sed 's/.*[^0-9]//; s/^$/1/'))
  awk -v a="$loss" -v b="$want" 'BEGIN { d = (a - b) / b; exit !(a ~ /^-?[0-9]/ && d <= 1e-5 && -d <= 1e-5) }' ||
    fail "$recipe: an evaluation's loss is $loss, not $want"
done
