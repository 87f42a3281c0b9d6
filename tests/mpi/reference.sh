# Against PyTorch: tiny gpt2 and llama3 from stored initial weights, five AdamW steps; losses, gradient norms and final
# parameters, on one rank and in three dimensions. Tolerances: PyTorch's own f32 against f64 differs by 2e-7 (loss), 2e-6
# (norm) and 1e-5 (parameters, absolute), see tests/reference/README.md; five times that.
. "$ZUG_SRC/tests/lib.sh"
need_mpi
ref=$ZUG_SRC/tests/reference
compare=$ZUG_BUILD/tests/tools/compare_runs

sizes() { # the -D options of a case, from its JSON
  awk '/"sizes"/ { on = 1; next } on && /}/ { exit } on { gsub(/[",: ]+/, " "); printf "-D %s=%s ", $1, $2 }' "$ref/$1.json"
}

check() { # CASE RECIPE RANKS: trains and compares
  ok $MPIRUN -np "$3" zrun train "$1.zsg" --recipe "$case.zug:$2" --data "$1.bin" --order sequential --steps 5 \
    --init "$ref/$init.init.safetensors" --save "$1-$2.safetensors" --log "$1-$2"
  ok "$compare" --loss 1e-6 --norm 1e-5 "$1-$2/metrics.jsonl" "$ref/$1.json"
  echo "$1 $2: $(tail -n 1 out.txt)"
  ok "$compare" --abs 5e-5 --rel 1e-5 "$1-$2.safetensors" "$ref/$1.final.safetensors"
  echo "$1 $2: $(tail -n 1 out.txt)"
}

recipes() { # MODEL RECIPE AXES: one rank, and pipe x data x tensor with ZeRO-3
  cat "$ref/recipes.zug" - <<END
recipe all for $1 from $2 {
  mesh pipe = 2, data = 2, tensor = 2
  micro 2
  split batch over data
  split $3, ffn, vocab over tensor else seq
  pad vocab to 2
  stages over pipe by cost
  schedule 1f1b
  shard params, grads, states over data unit layer
}
END
}

recipes GPT2 gpt2 head >gpt2.zug
recipes Llama3 llama3 kv >llama3.zug
ok zdata pack --tokens u16 "$ref/gpt2.tokens.u16" -o gpt2.bin
ok zdata pack --tokens u16 "$ref/llama3.tokens.u16" -o llama3.bin
ok zdata records "$ref/llama3-unknown.records.i32" -o llama3-unknown.bin --field tokens:i32:16 --field targets:i32:16
for name in gpt2 llama3 llama3-unknown; do
  case=${name%-unknown} init=${name%-unknown}
  # shellcheck disable=SC2046 # words are wanted
  ok zc "$ZUG_SRC/examples/$case.zug" -o "$name.zsg" $(sizes $name)
  check $name $case 1
  check $name all 8
done
