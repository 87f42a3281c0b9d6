# The same loss in every layout, by MPI (tests/unit/exec/engine/layouts.c has many more, on threads): each recipe of layouts.zug trains a tiny model for five steps, and losses and gradient
# norms must be those of one rank within 1e-5 relative (f32 sums in another order; seen: up to about 1e-6).
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cp "$ZUG_SRC/tests/data/models/layouts.zug" recipes.txt
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin

run() { # MODEL RECIPE RANKS
  ok timeout -k 5 100 $(on "$3") zrun train "$1.zsg" --recipe "$1.zug:$2" --data text.bin --steps 5 --log "$1-$2"
}

# All but those that others start from; in a push those that use each collective, between few ranks and many.
recipes() {
  if at_night; then awk '$1 == "recipe" && $2 != "base" && $2 != "one" { print $2 }' "$1"
  else echo zero1_2 zero3_4 seq2 heads2 ring4 all_zero3_8
  fi
}

# layouts MODEL AXIS-TO-DROP RECIPE...: the recipes without the axis that this model lacks.
layouts() {
  model=$1
  sed "s/ $2,//" recipes.txt | awk -v drop="$3" '$1 == "recipe" && $2 ~ drop { skip = 1 } !skip { print }
    /}[^{]*$/ { skip = 0 }' >"$model.zug"
  run "$model" one 1
  for recipe in $(recipes "$model.zug"); do
    ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
    run "$model" "$recipe" "${ranks:-1}"
    "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$model-$recipe/metrics.jsonl" "$model-one/metrics.jsonl" \
      >diff.txt || { cat diff.txt; fail "$model: $recipe trains differently"; }
    printf '%-8s %-16s %s ranks  %s\n' "$model" "$recipe" "${ranks:-1}" "$(tail -n 1 diff.txt)"
    n=$((n + 1))
  done
}

n=0
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
layouts gpt2 kv '^gqa'
at_night || exit 0
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=4 -D heads=4 -D kv_heads=2 -D width=32 -D inner=48 -D words=127
layouts llama3 head '^none$'
[ $n -ge 64 ] || fail "only $n layouts were run"
