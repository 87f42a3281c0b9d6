# Weights from folders as the Hugging Face hub has them, and back: the logits and losses that transformers computed, in
# every layout; the same bytes after an import and an export; the same bits after an export and an import; and what is
# wrong with a folder is said before anything is trained. tests/data/hf/README.md says how the data were made.
#
# Tolerances: transformers' f32 and this one add up in other orders. NumPy's f32 is at most 1.1e-6 from the stored logits
# (their values go up to 2), so 1e-6 and 1e-5 of the value is no more than rounding.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs
hf=$ZUG_SRC/tests/data/hf

recipes() { # HEADS: the axis over which heads are split
  cat <<END
recipe one_1 {
  bind batch = 2, seq = 16
  optimizer adamw(lr = 0.01)
  clip 1.0
}
recipe grid_4 from one_1 {
  mesh data = 2, tensor = 2
  split batch over data
  split $1, ffn, vocab over tensor
  shard params, grads, states over data
}
recipe pipe_4 from one_1 {
  mesh pipe = 2, tensor = 2
  split $1, ffn, vocab over tensor else seq
  pad vocab to 8
  stages over pipe by cost
}
recipe zero_2 from one_1 { mesh data = 2   split batch over data   shard params, grads, states over data }
END
}
run() { # train|eval RECIPE OPTION...; the number of ranks ends its name
  word=$1 recipe=$2
  shift 2
  ok timeout -k 5 100 $(on "${recipe#*_}") zrun "$word" "$family.zsg" --recipe "$family.zug:$recipe" --data "$family.bin" "$@"
}
near() { # A B TOLERANCE WHAT
  awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = (a - b) / b; exit !(a ~ /^-?[0-9]/ && b ~ /^-?[0-9]/ && d <= t && -d <= t) }' ||
    fail "$4: $1, wanted $2"
}
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# What transformers computed, from what it saved.
numbers() {
  for recipe in one_1 $(at_night && echo grid_4 pipe_4 zero_2); do
    run eval $recipe --init "$hf/$family" --names hf --log log --predict logits.safetensors
    near "$(sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' log/metrics.jsonl)" "$(cat "$hf/$family/loss")" 1e-5 "$family $recipe"
    ok "$compare" --abs 1e-6 --rel 1e-5 logits.safetensors "$hf/$family/logits.safetensors"
    echo "$family $recipe: $(tail -n 1 out.txt)"
    rm -r log
  done
}

# Read in one layout, written: the same bytes, and in two shards the same tensors.
there_and_back() {
  run train grid_4 --init "$hf/$family" --names hf --steps 0 --save read.safetensors
  run train one_1 --init "$hf/$family" --names hf --steps 0 --save read1.safetensors
  same read.safetensors read1.safetensors
  ok zckpt export read.safetensors --graph "$family.zsg" --names hf -o "$family" --like "$hf/$family"
  [ ! -f "$hf/$family/model.safetensors" ] || same "$family/model.safetensors" "$hf/$family/model.safetensors"
  ok zckpt export read.safetensors --graph "$family.zsg" --names hf -o "$family.shards" --shard-size 100K
  [ -f "$family.shards/model-00003-of-0000"?.safetensors ] || { ls "$family.shards"; fail "no shards"; }
  run train pipe_4 --init "$family.shards" --names hf --steps 0 --save again.safetensors
  same again.safetensors read.safetensors
  # What is said there of the model makes the same model, also without what the first folder said beside.
  for folder in "$family" "$family.shards"; do
    ok zc "$model" --config "$folder/config.json" -o again.zsg
    same again.zsg "$family.zsg"
  done
}

# In bf16, of 8 bits: rounded once by 2^-8 at most, and then the same bits however often.
rounded() {
  ok zckpt export read.safetensors --graph "$family.zsg" --names hf -o half --dtype bf16 --force
  run train pipe_4 --init half --names hf --steps 0 --save half.safetensors
  ok "$compare" --abs 0 --rel 0.00390625 half.safetensors read.safetensors
  cmp -s half.safetensors read.safetensors && fail "nothing is rounded"
  ok zckpt export half.safetensors --graph "$family.zsg" --names hf -o half2 --dtype bf16 --force
  same half/model.safetensors half2/model.safetensors
  refuses '-o half2 holds half2/model.safetensors, from which it is made' \
    zckpt export half2/model.safetensors --graph "$family.zsg" --names hf -o half2 --force
  refuses 'a folder without a name' zckpt export half.safetensors --graph "$family.zsg" --names hf -o ''
}

# Trained from there in two layouts; the end of one is exported, imported and trained on.
trained() {
  for recipe in one_1 grid_4; do
    rm -rf "kept_$recipe"
    run train $recipe --init "$hf/$family" --names hf --steps 3 --log $recipe --ckpt "kept_$recipe" --save $recipe.safetensors
  done
  ok "$compare" --loss 1e-5 --norm 1e-5 one_1/metrics.jsonl grid_4/metrics.jsonl
  first=$(sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' one_1/metrics.jsonl | head -n 1)
  near "$first" "$(cat "$hf/$family/loss")" 1e-5 "$family, first step"
  ok zckpt export kept_grid_4/step-00000003 --names hf -o trained --like "$hf/$family" --force
  says "^trained: the parameters of step 3 as [0-9]* tensors"
  mv "$family.zsg" elsewhere
  refuses "cannot open $family.zsg: No such file or directory; it is the graph that kept_grid_4/step-00000003 names" \
    zckpt export kept_grid_4/step-00000003 --names hf -o none
  says 'help: say with --graph where it is$'
  refuses 'cannot open none.zsg: No such file' zckpt export kept_grid_4/step-00000003 --graph none.zsg --names hf -o none
  grep -q 'it is the graph that' out.txt && fail 'the checkpoint does not name it'
  mv elsewhere "$family.zsg"
  run train pipe_4 --init trained --names hf --steps 0 --save back.safetensors
  same back.safetensors grid_4.safetensors
  rm -r one_1 grid_4
}

family() { # NAME MODEL HEADS [whole|brief]: a model of one iteration is not cut into stages; brief: read and written alone
  family=$1 model=$ZUG_SRC/examples/$2.zug
  recipes "$3" >"$family.zug"
  [ "${4:-}" != whole ] || sed -i 's/pipe = 2/data = 2/; s/stages over pipe by cost/split batch over data/' "$family.zug"
  ok zc "$model" --config "$hf/$family/config.json" -o "$family.zsg"
  ok zdata records "$hf/$family/records.i32" -o "$family.bin" --field tokens:i32:16 --field targets:i32:16
  numbers
  there_and_back
  [ "${4:-}" = brief ] && return
  rounded
  trained
}

family gpt2 gpt2 head
family llama llama3 kv
at_night && more= || more=brief
family llama_tied llama3 kv $more # its positions are those of Llama 3.1
family qwen2 qwen2 kv brief
family qwen3 qwen3 kv $more
family gemma2 gemma2 kv whole # 2 layers are one pair

# ---- of models whose weights are not here: what is written has transformers' names and shapes ----
shapes() { # NAME BIND FIELD...: the fields are ids, 16 of a sample
  name=$1 bind=$2 options=
  shift 2
  for field; do options="$options --field $field:i32:16"; done
  # shellcheck disable=SC2086 # words are wanted
  ok zc "$ZUG_SRC/examples/$name.zug" --config "$hf/$name/config.json" -o "$name.zsg" ${with:-}
  head -c $((2 * 64 * $#)) /dev/zero >"$name.i32"
  # shellcheck disable=SC2086 # words are wanted
  ok zdata records "$name.i32" -o "$name.bin" $options
  recipes head | sed "s/seq = 16/$bind/" >"$name.zug"
  family=$name run train one_1 --steps 0 --save drawn.safetensors
  ok zckpt export drawn.safetensors --graph "$name.zsg" --names hf -o "$name"
  grep -ao '"[^"]*":{"dtype":"F32","shape":\[[0-9,]*\]' "$name/model.safetensors" | sed 's/":{.*:/ /; s/"//' |
    LC_ALL=C sort >shapes.txt
  diff shapes.txt "$hf/$name/shapes" || fail "$name is written with other names"
}
shapes bert "seq = 16" tokens kinds targets
shapes t5 "src = 16, src2 = 16, tgt = 16, tgt2 = 16" source before targets
shapes mistral "seq = 16" tokens targets
shapes gemma3 "seq = 16" tokens targets # of its two layers none sees all: the left-over ones of a pattern
shapes mixtral "seq = 16, slot = 1" tokens targets
shapes mamba2 "seq = 16" tokens targets
with="-D ahead=0" # transformers has no layer that predicts further ahead
shapes deepseek "seq = 16, slot = 1" tokens targets
with=

# ---- of models that write no text: what transformers makes of records, from weights in bf16 ----
made() { # FOLDER MODEL BIND FIELD...
  name=$1 model=$2 options=
  printf 'recipe one {\n  bind batch = 2, %s\n  optimizer sgd(lr = 1)\n}\n' "$3" >made.zug
  shift 3
  for field; do options="$options --field $field"; done
  # shellcheck disable=SC2086 # words are wanted
  ok zc "$ZUG_SRC/examples/$model.zug" --config "$hf/small/$name/config.json" -o made.zsg ${with:-}
  [ ! -s out.txt ] || ! grep warning out.txt || fail "$name: the folder's own config.json has a warning"
  # shellcheck disable=SC2086 # words are wanted
  ok zdata records "$hf/small/$name/records.i32" -o made.bin $options
  ok timeout -k 5 100 zrun eval made.zsg --recipe made.zug:one --data made.bin --init "$hf/small/$name" --names hf --log log --predict made.safetensors
  near "$(sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' log/metrics.jsonl)" "$(cat "$hf/small/$name/loss")" 1e-5 "$name"
  ok "$compare" --abs 2e-6 --rel 1e-5 made.safetensors "$hf/small/$name/outputs.safetensors"
  echo "$name: $(tail -n 1 out.txt)"
  rm -r log
}
made minilm minilm "seq = 16" tokens:i32:32 mask:i32:32 score:f32:1
for name in t5 t5v10; do
  made $name t5 "src = 16, src2 = 16, tgt = 8, tgt2 = 8" source:i32:16 before:i32:8 targets:i32:8
done

# ---- a map made from another: the names of 2019 lack their first part; blanks keep the header as long as it was ----
cp -r "$hf/gpt2" bare_gpt2
LC_ALL=C sed -i 's/"transformer\./            "/g' bare_gpt2/model.safetensors
family=gpt2 run train zero_2 --init bare_gpt2 --names bare --steps 0 --save bare.safetensors
family=gpt2 run train zero_2 --init "$hf/gpt2" --names hf --steps 0 --save full.safetensors
same bare.safetensors full.safetensors

# ---- what is refused, by both ranks at once, in one line ----
refused() { # PATTERN FOLDER OPTION...
  pattern=$1 folder=$2
  shift 2
  mistake "$pattern" $MPIRUN -np 2 zrun train "${graph:-llama.zsg}" --recipe llama.zug:zero_2 --data llama.bin --steps 1 \
    --init "$folder" "$@"
  [ "$(grep -Ec -- "$pattern" out.txt)" -eq 1 ] || { cat out.txt; fail "not said once"; }
  grep -q '^step' out.txt && fail "trained before it was said: $pattern"
  return 0
}
broken() { # PATTERN SED-COMMAND FILE...: what is put in place of another is as long, so that headers stay what they are
  pattern=$1 command=$2
  shift 2
  rm -rf broken
  cp -r "$hf/llama" broken
  for file; do
    LC_ALL=C sed -i "$command" "broken/$file"
    cmp -s "broken/$file" "$hf/llama/$file" && fail "nothing is broken: $command"
  done
  refused "$pattern" broken --names hf
}
extra() { # NAME: the same with one tensor more, in a file of its own
  rm -rf broken
  cp -r "$hf/llama" broken
  head='{"'$1'":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
  { printf "\\$(printf %o ${#head})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$head"; } >broken/more.safetensors
  sed -i 's|"weight_map": {|&"'"$1"'": "more.safetensors",|' broken/model.safetensors.index.json
}
index=model.safetensors.index.json one=model-00001-of-00002.safetensors two=model-00002-of-00002.safetensors
broken "broken lacks 'lm_head.weight' of the 21 parameters of model Llama3; the nearest names in it are 'lm_hexd.weight'; --init-partial" \
  s/lm_head/lm_hexd/ $index $two
broken "$index: tensor 'lm_head.weight' is said to be in $two, which does not have it" s/lm_head/lm_hexd/ $two
broken "$one: tensor 'model.layers.0.mlp.(gate|up)_proj.weight' has shape \[64, 96\]; the model wants \[96, 64\]" 's/\[96,64\]/[64,96]/g' $one
broken "$two: tensor 'lm_head.weight' has dtype I32; F32, BF16 and F16 can be read; convert it to F32" \
  's/\("lm_head.weight":{"dtype":"\)F32/\1I32/' $two
broken "tensor 'lm_head.weight' is said to be in '../$two', which is not a safetensors file beside it" "s|\(lm_head.weight\": \"\)|\1../|" $index
broken "$index: it is not JSON" '$d' $index
broken "model-00003-of-00002.safetensors" 's/model-00002/model-00003/' $index
rm -rf broken
cp -r "$hf/llama" broken
truncate -s 150000 broken/$two
refused "$two: .*truncated" broken --names hf
rm broken/$two
refused "$two" broken --names hf
extra lm_head.weight
refused "$index names tensor 'lm_head.weight' twice" broken --names hf
sed -i '/^ *"lm_head.weight": "model-/d' broken/$index
refused "tensor 'lm_head.weight' is in broken/.*.safetensors and in broken/.*.safetensors" broken --names hf
extra model.layers.2.input_layernorm.weight
refused "broken holds 1 tensor that model Llama3 has not; the first is 'model.layers.2.input_layernorm.weight'; --init-partial" broken --names hf
family=llama run train zero_2 --init broken --names hf --init-partial --steps 0 --save partial.safetensors
says "^parameters: 21 from broken, 0 drawn from the seed$"
says "^note: broken holds 1 tensor that model Llama3 has not; the first is 'model.layers.2.input_layernorm.weight'$"
extra model.layers.1.self_attn.rotary_emb.inv_freq # of no interest
family=llama run train zero_2 --init broken --names hf --steps 0 --save again.safetensors
same again.safetensors partial.safetensors
refused 'model Llama3 has no names `gguf`; it has hf' "$hf/llama" --names gguf
refused 'llama is not a complete checkpoint: .*; if it holds another program.s weights, give their --names, too' "$hf/llama"
refused 'the folder . has neither model.safetensors nor model.safetensors.index.json' . --names hf
refused 'cannot open none' none --names hf
ok zc "$ZUG_SRC/examples/mlp.zug" -o mlp.zsg
refuses 'error: model MLP has no names `hf`' zckpt export again.safetensors --graph mlp.zsg --names hf -o none
refuses "zckpt: error: llama is there already" zckpt export again.safetensors --graph llama.zsg --names hf -o llama
[ ! -e none ] || fail "something is left"
ls -d ./*.tmp 2>/dev/null && fail "something is left"

# ---- copies: a tensor that the map leaves out as a copy of another is compared with it, by each rank a part ----
copies() { # VALUE: of b, where a is 1; makes the folder `copies`
  cat >two.zug <<END
model Two { axis batch, v = 40, e = 5  input x: real[batch, e]  param a[v, e] = 1  param b[v, e] = $1  loss sum[v](dot[e](x, a + b)) per sum[e](x * x) }
weights hf for Two { a = "a.w"[v, e]  b = "b.w"[v, e]  config { n = 1 } }
recipe two { bind batch = 2  optimizer sgd(lr = 1) }
END
  ok zc two.zug -q -o two.zsg
  ok $MPIRUN -np 1 zrun train two.zsg --recipe two.zug:two --steps 0 --save two.safetensors
  ok zckpt export two.safetensors --graph two.zsg --names hf -o copies --force
}
cat >tied.zug <<'END'
model Two { axis batch, v = 40, e = 5  input x: real[batch, e]  param a[v, e] = 7  loss sum[v](dot[e](x, a)) per sum[e](x * x) }
weights hf for Two { a = "a.w"[v, e]  ignore "b.w" as "a.w"  config { n = 1 } }
recipe one { bind batch = 2  optimizer sgd(lr = 1) }
recipe two from one { mesh data = 2  split batch over data }
END
ok zc tied.zug -q -o tied.zsg
copies 1
ok $MPIRUN -np 1 zrun train tied.zsg --recipe tied.zug:one --init copies --names hf --steps 0
copies 2
mistake "copies: 'b.w' differs from 'a.w', of which model Two takes it for a copy" $MPIRUN -np 2 zrun train tied.zsg --recipe tied.zug:two \
  --init copies --names hf --steps 0
exit 0
