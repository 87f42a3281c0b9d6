# Weights files: the same whatever the layout that saves them, and the same to whatever layout reads them.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

cat >recipes.zug <<'END'
recipe one {
  bind batch = 16, seq = 32
  micro 4
  optimizer sgd(lr = 0.1) decay 0.1 except norm, bias
  clip 1.0
  pad vocab to 4
}
recipe zero3_2 from one { mesh data = 2   split batch over data   shard params, grads, states over data unit layer }
recipe keep_2 from zero3_2 { shard params, grads, states over data unit layer keep }
recipe uneven_3 from one { mesh pipe = 3   stages over pipe = [1, 2, 1] }
recipe seq_2 from one { mesh tensor = 2   split head, ffn, vocab over tensor else seq   pad vocab to 8 }
recipe hsdp_4 from one {
  mesh replica = 2, data = 2
  split batch over replica, data
  shard params, grads, states over data
}
recipe all_8 from one {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split head, ffn, vocab over tensor else seq
  stages over pipe by cost
  micro 2
  shard params, grads, states over data unit layer
}
recipe half_8 from all_8 { precision compute bf16 }
recipe adam from one { optimizer adamw(lr = 0.01) }
END
sed 's/lr = 0.1/lr = 0/; s/from /from still_/; s/^recipe /recipe still_/; s/adamw(lr = 0.01)/adamw(lr = 0)/' recipes.zug >still.zug
cat still.zug >>recipes.zug
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

train() { # RECIPE STEPS OPTION...; the number of ranks ends its name
  name=$1 steps=$2
  shift 2
  ranks=$(echo "$name" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train gpt2.zsg --recipe recipes.zug:"$name" --data text.bin --steps "$steps" "$@"
}
same() {
  cmp "$1" "$2" && return
  "$compare" --abs 0 --rel 0 "$1" "$2"
  fail "$1 and $2 differ"
}

# ---- initial values, saved after a step that changes nothing: the same bytes from every layout ----
train still_one 1 --save still_one.safetensors
for recipe in all_8 uneven_3 $(at_night && echo zero3_2 keep_2 seq_2 hsdp_4 half_8); do
  train still_$recipe 1 --save still_$recipe.safetensors
  same still_$recipe.safetensors still_one.safetensors
done
train still_one 1 --seed 2 --save other.safetensors
cmp -s other.safetensors still_one.safetensors && fail "the seed changes nothing"

# A header for other programs: names and shapes as declared, without the rows that `pad` adds.
head -c 4000 still_all_8.safetensors | tr -d '\0' | grep -aoq '"wte":{"dtype":"F32","shape":\[127,32\]' || fail "no wte of 127 x 32"
head -c 8000 still_all_8.safetensors | tr -d '\0' | grep -aoq '"layer.3.attn.wq":{"dtype":"F32","shape":\[32,4,8\]' || fail "no layer.3.attn.wq"

# ---- read and written again: the same bytes ----
train still_all_8 1 --init other.safetensors --save again.safetensors
same again.safetensors other.safetensors
train still_keep_2 1 --init other.safetensors --save again.safetensors
same again.safetensors other.safetensors

# ---- trained in one layout, continued alike in others ----
train all_8 3 --save three.safetensors --log first
train one 3 --save three_one.safetensors
ok "$compare" --abs 1e-6 --rel 1e-5 three.safetensors three_one.safetensors
train one 3 --init three.safetensors --log one --save end.safetensors --seed 5
for recipe in uneven_3 $(at_night && echo all_8 seq_2 zero3_2); do
  train $recipe 3 --init three.safetensors --log $recipe --save end_$recipe.safetensors --seed 5
  ok "$compare" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl
  ok "$compare" --abs 1e-6 --rel 1e-5 end_$recipe.safetensors end.safetensors
done
ok "$compare" --loss 1 --norm 1 first/metrics.jsonl one/metrics.jsonl
last=$(sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' first/metrics.jsonl | tail -n 1)
next=$(sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' one/metrics.jsonl | head -n 1)
awk -v a="$last" -v b="$next" 'BEGIN { exit !(b < a) }' || fail "continued at a loss of $next after $last"

# ---- a run that is ended by force leaves the file before it ----
cp three.safetensors kept.safetensors
$MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --steps 10000000 --save three.safetensors --log ended >out.txt 2>&1 &
job=$!
trap 'kill $job 2>/dev/null' EXIT
tries=0
until [ -s ended/metrics.jsonl ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat out.txt; fail "the ranks do not start"; }
done
kill -KILL $(cat /proc/$job/task/$job/children) # asked kindly it would save what it has
wait "$job" && fail "an ended run is no success"
same three.safetensors kept.safetensors
train still_one 1 --save three.safetensors # what it left behind is in nobody's way
same three.safetensors still_one.safetensors
ls ./*.tmp 2>/dev/null && fail "something is left"
exit 0
