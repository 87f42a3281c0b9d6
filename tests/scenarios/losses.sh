# Several losses: each with its own denominator over the whole global batch, wherever in a pipeline they stand, so that
# every layout trains the same and reports the same parts; in evaluation, too. And losses over pairs of samples, under `aux`.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
losses=$ZUG_SRC/tests/data/models/losses.zug
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
run() { # MODEL RECIPE OPTION...; the number of ranks ends the recipe's name
  graph=$1 recipe=$2
  shift 2
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train "$graph.zsg" --recipe "${recipes:-$losses}:$recipe" --data "${data:-text.bin}" \
    --log "$graph-$recipe" "$@"
}
value() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$2/metrics.jsonl"; } # KEY LOG: one a line
near() { # A B, relative: f32 sums in another order, as tests/scenarios/layouts.sh has them
  awk -v a="$1" -v b="$2" 'BEGIN { d = (a - b) / b; exit !(a ~ /^-?[0-9]/ && b ~ /^-?[0-9]/ && d <= 1e-5 && -d <= 1e-5) }' || fail "$3: $1, wanted $2"
}

# ---- layouts ----
ok zc "$losses" -m Losses -o several.zsg
run several one --steps 5 --save w.safetensors
says '^step 1/5  loss [0-9.]* \(length [0-9.]*, early [0-9.]*, main [0-9.]*, z [0-9.]*\)  grad '
for recipe in big_1 gpipe_4 $(at_night && echo data_2 zero3_4 seq_2 context_2 pipe_2 all_8 again_8); do
  run several $recipe --steps 5
  "$compare" --loss 1e-5 --norm 1e-5 several-$recipe/metrics.jsonl several-one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  for part in length early main z; do
    for step in 1 5; do
      near "$(value loss_$part several-$recipe | sed -n ${step}p)" "$(value loss_$part several-one | sed -n ${step}p)" "$recipe, $part, step $step"
    done
  done
done
# they add up
for step in 1 2 3 4 5; do
  sum=$(for part in length early main z; do value loss_$part several-one | sed -n ${step}p; done | awk '{ s += $1 } END { printf "%.9g", s }')
  near "$sum" "$(value loss several-one | sed -n ${step}p)" "the sum of step $step"
done

# ---- evaluation: as one batch of all samples ----
evaluate() { # RECIPE OPTION...
  recipe=$1
  shift
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun eval several.zsg --recipe "$losses:$recipe" --data text.bin --eval-batches 2 \
    --init w.safetensors --log eval-"$recipe" "$@"
}
evaluate one
says '^eval  loss [0-9.]* \(length [0-9.]*, early [0-9.]*, main [0-9.]*, z [0-9.]*\)  '
sed 's/bind batch = 16/bind batch = 32/; s/lr = 1e-3/lr = 0/; s/micro 16/micro 32/' "$losses" >twice.zug
rm -r several-big_1
recipes=twice.zug run several big_1 --steps 1 --order sequential --init w.safetensors
for recipe in one gpipe_4 $(at_night && echo data_2 all_8); do
  [ -d eval-$recipe ] || evaluate $recipe
  for part in length early main z; do
    near "$(value eval_loss_$part eval-$recipe)" "$(value loss_$part several-big_1 | tail -n 1)" "evaluation, $recipe, $part"
  done
  near "$(value eval_loss eval-$recipe)" "$(value loss several-big_1 | tail -n 1)" "evaluation, $recipe"
done
[ -z "$(value eval_perplexity eval-one)" ] || fail "a perplexity of the length"

# ---- one of them may know nothing of a step; if all know nothing, it updates nothing ----
cat >rare.zug <<'END'
use std.nn as nn
model Rare(all = 0) {
  axis batch, seq, vocab = 128, embed = 8
  input tokens: index(vocab)[batch, seq]
  input targets: index(vocab)[batch, seq]
  param w[vocab, embed] ~ normal(0.1)
  z = dot[embed](lookup(w, tokens), w)
  loss often = xent[vocab](z, targets) per known(targets) * (1 - all)
  loss rare = xent[vocab](z, targets) * 0 per known(targets) * 0
}
END
ok zc rare.zug -o rare.zsg
run rare data_2 --steps 2
says '^step 2/2  loss [0-9.]* \(often [0-9.]*, rare -\)  grad '
[ "$(value loss_rare rare-data_2 | tail -n 1)" = null ] || fail "$(value loss_rare rare-data_2)"
ok zc rare.zug -o rare.zsg -D all=1
run rare data_2 --steps 1
says '^note: step 1: all losses are divided by 0, the sum of what is after `per` \(rare.zug:8\).* so nothing is updated'
[ "$(value loss rare-data_2 | tail -n 1)" = null ] || fail "a loss of nothing: $(value loss rare-data_2)"

# ---- pairs of samples, of all ranks ----
ok zc "$losses" -m Pairs -o pairs.zsg
run pairs whole_1 --steps 5
for recipe in whole_zero3_4 $(at_night && echo whole_data_4 whole_tensor_4 whole_pipe_4); do
  run pairs $recipe --steps 5
  "$compare" --loss 1e-5 --norm 1e-5 pairs-$recipe/metrics.jsonl pairs-whole_1/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
done
