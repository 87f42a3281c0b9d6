# The examples: every recipe of examples/recipes.zug trains a small version of its model, or is planned if it is for more
# ranks than one machine's; the large models compile and plan at once; and a classifier does learn.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
recipes=$ZUG_SRC/examples/recipes.zug
published=$ZUG_SRC/examples/published.zug

# ---- a table to classify: three clusters of points, the labels in words ----
awk 'BEGIN {
  srand(7)
  print "a,b,c,d,kind"
  split("red green blue", kind, " ")
  for (i = 0; i < 384; i++) {
    k = i % 3
    for (j = 0; j < 4; j++) printf "%.3f,", (j == k ? 1.5 : -0.5) + rand() - 0.5
    print kind[k + 1]
  }
}' >points.csv
ok zdata table points.csv --label kind --label-field label --field image -o points.bin
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/mlp.zug" -o mlp.zsg -D inputs=4 -D hidden=16 -D classes=3
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=12 -D heads=4 -D width=16 -D context=128 -D words=128
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=32 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=128

# Recipes of MODEL, with the number of their ranks.
of_model() {
  awk -v model="$1" '$1 == "recipe" && $3 == "for" && $4 == model { print $2 }' "$recipes"
}

# train GRAPH RECIPE DATA STEPS: and all of the memory that was planned is used, and no more
train() {
  ok zplan show "$1.zsg" --recipe "$2"
  ranks=$(sed -n 's/^recipe .* M parameters, \([0-9]*\) rank.*/\1/p' out.txt)
  name=${2##*:}
  [ "$ranks" ] || { cat out.txt; fail "zplan does not say the number of ranks"; }
  if [ "$ranks" -gt "$most" ]; then
    echo "$name: $ranks ranks, planned only"
    return
  fi
  ok timeout -k 5 100 $(on "$ranks") zrun train "$1.zsg" --recipe "$2" --data "$3" --steps "$4" --log "$name"
  [ "$(wc -l <"$name/metrics.jsonl")" -eq "$4" ] || fail "$name: not $4 steps in its log"
  tail -n 1 "$name/metrics.jsonl" | grep -o '"planned_bytes":[0-9]*,"used_bytes":[0-9]*' | tr -c '0-9\n' ' ' |
    awk '$1 != $2 || $1 == 0 { exit 1 }' || fail "$name: planned and used bytes differ"
  loss=$(sed -n 's/.*"loss":\([0-9.e+-]*\).*/\1/p' "$name/metrics.jsonl" | tail -n 1)
  echo "$name: $ranks ranks, loss $loss"
}

at_night && most=8 || most=2 # ranks of a recipe that is played, too
n=0
for recipe in $(of_model MLP); do train mlp "$recipes:$recipe" points.bin 2 && n=$((n + 1)); done
for recipe in $(of_model GPT2); do train gpt2 "$recipes:$recipe" text.bin 2 && n=$((n + 1)); done
for recipe in $(of_model Llama3 | grep -vxE 'llama_gqa|llama_least'); do train llama3 "$recipes:$recipe" text.bin 2 && n=$((n + 1)); done
[ $n -ge 30 ] || fail "only $n recipes were found"

# ---- models of full size: compiled and planned at once, not run ----
# Each takes well under a second; the limit here is for machines that do much else.
at_once() {
  start=$(date +%s%N)
  ok "$@"
  ms=$((($(date +%s%N) - start) / 1000000))
  echo "$ms ms: $*"
  [ $ms -lt 5000 ] || fail "$ms ms for: $*"
}
at_once zc "$ZUG_SRC/examples/llama3.zug" -o 8b.zsg
at_once zplan show 8b.zsg --recipe "$published:llama8b" --cluster "$ZUG_SRC/examples/clusters.zug:h100"
says '256 ranks'
at_once zplan show 8b.zsg --recipe "$published:llama8b_long" --cluster "$ZUG_SRC/examples/clusters.zug:h100"
says '256 ranks'
at_once zplan show 8b.zsg --recipe "$recipes:llama_least"
at_once zplan explain 8b.zsg --recipe "$recipes:llama_gqa"
says 'tensor.grp'
at_once zc "$ZUG_SRC/examples/llama3.zug" -o 405b.zsg -D layers=126 -D heads=128 -D width=16384 -D inner=53248
at_once zplan show 405b.zsg --recipe "$published:llama405b" --cluster "$ZUG_SRC/examples/clusters.zug:h100"
says '16,?384 ranks'
at_once zplan sim 405b.zsg --recipe "$published:llama405b" --cluster "$ZUG_SRC/examples/clusters.zug:h100"
says 'MFU'
at_once zc "$ZUG_SRC/examples/gpt2.zug" -o 124m.zsg
at_once zplan show 124m.zsg --recipe "$recipes:train3d"

# ---- learning: points so far apart are told apart, whatever the layout ----
cat >learn.zug <<'END'
recipe one for MLP { bind batch = 96   micro 24   optimizer adamw(lr = 0.02, warmup = 5) decay 0.01 except bias }
recipe four for MLP from one { mesh data = 2, tensor = 2   split batch over data   split h1 over tensor   shard grads, states over data }
END
most=8
for recipe in one four; do
  train mlp learn.zug:$recipe points.bin 60
  awk -v loss="$loss" 'BEGIN { exit !(loss < 0.01) }' || fail "$recipe: a loss of $loss after 60 steps; chance is 1.1"
done
"$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-3 --norm 1e-2 one/metrics.jsonl four/metrics.jsonl >out.txt ||
  { cat out.txt; fail "the two layouts learn differently"; }
exit 0
