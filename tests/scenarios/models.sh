# The examples against tests/data/reference/zoo.py, models that know nothing of named axes: tiny ones from stored initial
# weights, five AdamW steps; losses, gradient norms and final parameters, on one rank and in layouts of two and eight.
# The stored numbers are f64's. What f32 may differ from them by, and why, is in tests/data/reference/README.md.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
ref=$ZUG_SRC/tests/data/reference
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs
micro= # samples of a micro-batch, where they matter

sizes() { # the -D options of a model, from its JSON
  awk '/"sizes"/ { on = 1; next } on && /}/ { exit } on { gsub(/[",: ]+/, " "); printf "-D %s=%s ", $1, $2 }' "$ref/$1.json"
}
fields() { # and the --field options
  for field in $(sed -n 's/.*"fields": "\(.*\)",/\1/p' "$ref/$1.json"); do echo "--field $field"; done
}

recipes() { # MODEL BIND SPLIT RECOMPUTE PAD EPS: what make_numbers.py does, in layouts whose names end in their ranks
  cat <<END
recipe one_1 for $1 {
  optimizer adamw(lr = 0.01, b1 = 0.9, b2 = 0.95, eps = $6) decay 0.1 except norm, bias
  clip 1.0
  bind batch = 8$2
  micro ${micro:-4}
  $5
}
recipe zero_2 for $1 from one_1 { mesh data = 2   split batch over data   micro 4   shard params, grads, states over data }
recipe tensor_2 for $1 from one_1 { mesh tensor = 2   split $3 }
recipe pipe_2 for $1 from one_1 { mesh pipe = 2   stages over pipe by cost   schedule 1f1b   micro ${micro:-2}   recompute $4 }
recipe all_8 for $1 from one_1 {
  mesh pipe = 2, data = 2, tensor = 2
  micro $([ -n "$micro" ] && echo 4 || echo 2)
  split batch over data
  split $3
  stages over pipe by cost
  schedule 1f1b
  shard params, grads, states over data
}
END
}

# What an example draws comes from the data instead, in the model that is compared.
given() { sed 's/^  noise = .*normal\[\(.*\)\]().*/  input noise: real[\1]/; s/^  time = uniform.*/  input time: f32[batch]/' "$1"; }

model() { # NAME MODEL BIND SPLIT RECOMPUTE PAD
  name=$1
  shift
  given "$ZUG_SRC/examples/$name.zug" >"$name-given.zug"
  recipes "$1" "$2" "$3" "$4" "${5:-}" "$(sed -n 's/.*"eps": \([0-9.e-]*\).*/\1/p' "$ref/$name.json" | tail -n 1)" >"$name.zug"
  # shellcheck disable=SC2046 # words are wanted
  ok zc "$name-given.zug" -o "$name.zsg" $(sizes "$name")
  # shellcheck disable=SC2046
  ok zdata records "$ref/$name.records" -o "$name.bin" $(fields "$name")
  for recipe in one_1 $(at_night && echo zero_2 tensor_2 pipe_2 all_8); do
    run=$name-$recipe
    train "$recipe" --init "$ref/$name.init.safetensors" --save "$run.safetensors"
    ok "$compare" --loss 1e-6 --norm 1e-5 "$run/metrics.jsonl" "$ref/$name.json"
    line=$(tail -n 1 out.txt)
    ok "$compare" --abs 5e-5 --rel 1e-5 "$run.safetensors" "$ref/$name.final.safetensors"
    printf '%-8s %-9s %s; %s\n' "$name" "$recipe" "$line" "$(tail -n 1 out.txt)"
  done
  transformers "$name-one_1"
}

# What Hugging Face's transformers made of the same, where it has the model.
transformers() { # RUN
  theirs=$ref/$name.transformers.json
  [ -f "$theirs" ] || return 0
  statics=$(sed -n 's/.*"statics": "\(.*\)",/\1/p' "$theirs")
  run=$1
  if [ -n "$statics" ]; then
    run=$name-transformers
    # shellcheck disable=SC2046,SC2086 # words are wanted
    ok zc "$name-given.zug" -o "$name.zsg" $(sizes "$name") $statics
    train one_1 --init "$ref/$name.init.safetensors" --init-partial
  fi
  ok "$compare" --loss 1e-6 --norm 1e-5 "$run/metrics.jsonl" "$theirs"
  echo "$name transformers $(tail -n 1 out.txt)"
}

train() { # RECIPE OPTION...
  recipe=$1
  shift
  ok timeout -k 5 100 $(on "${recipe#*_}") zrun train "$name.zsg" --recipe "$name.zug:$recipe" --data "$name.bin" \
    --order sequential --steps 5 --log "$run" "$@"
}

model bert Bert ", seq = 16" "head, ffn, vocab over tensor else seq" Layer "pad vocab to 4"
model mistral Mistral ", seq = 16" "kv, ffn, vocab over tensor else seq" Layer "pad vocab to 4"
model mixtral Mixtral ", seq = 16, slot = 0.8" "kv, ffn, vocab over tensor else seq" Layer "pad vocab to 4"
model deepseek DeepSeek ", seq = 16, slot = 0.8" "head, ffn, sffn, vocab over tensor" Sparse "pad vocab to 4"
model mamba2 Mamba2 ", seq = 16" "head, vocab over tensor else seq" Layer "pad vocab to 4"
model deltanet DeltaNet ", seq = 16" "head, ffn, vocab over tensor else seq" Layer "pad vocab to 4"
model gemma3 Gemma3 ", seq = 16" "kv, ffn, vocab over tensor else seq" Layer "pad vocab to 4"
model t5 T5 ", src = 12, src2 = 12, tgt = 8, tgt2 = 8" "head, ffn, vocab over tensor else src, tgt" "Encoder, Decoder" \
  "pad vocab to 4"
model vit ViT "" "head, ffn, class over tensor" Layer
model dit DiT "" "head, ffn over tensor else token" Layer
model resnet ResNet "" "inner1, inner2, inner3, inner4, inner_group, class over tensor" "Widen, Keep"
model unet UNet "" "inner1, inner2, inner_group over tensor" "Change, See"
micro=8 # a step is one micro-batch: its samples are compared
model clip CLIP ", others = 8" "head, thead, ffn, tffn, vocab over tensor" "See, Read"
micro=

# Drawn by the example itself: the same in all layouts, as tests/scenarios/layouts.sh has it.
name=dit
# shellcheck disable=SC2046
ok zc "$ZUG_SRC/examples/dit.zug" -o dit.zsg $(sizes dit)
for recipe in one_1 all_8; do
  run=drawn-$recipe
  train "$recipe" --init "$ref/dit.init.safetensors"
done
ok "$compare" --loss 1e-5 --norm 1e-5 drawn-all_8/metrics.jsonl drawn-one_1/metrics.jsonl
cmp -s drawn-one_1/metrics.jsonl dit-one_1/metrics.jsonl && fail "nothing is drawn"
exit 0
