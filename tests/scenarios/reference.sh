# Against PyTorch: tiny gpt2 and llama3 from stored initial weights, five AdamW steps; losses, gradient norms and final
# parameters, on one rank and in three dimensions. Tolerances: PyTorch's own f32 against f64 differs by 2e-7 (loss), 2e-6
# (norm) and 1e-5 (parameters, absolute), see tests/data/reference/README.md; five times that.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
ref=$ZUG_SRC/tests/data/reference
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

sizes() { # the -D options of a case, from its JSON
  awk '/"sizes"/ { on = 1; next } on && /}/ { exit } on { gsub(/[",: ]+/, " "); printf "-D %s=%s ", $1, $2 }' "$ref/$1.json"
}

check() { # CASE RECIPE RANKS: trains and compares
  ok $(on "$3") zrun train "$1.zsg" --recipe "$case.zug:$2" --data "$1.bin" --order sequential --steps 5 \
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

# ---- records of several axes: each value is read from its place, whatever is split ----
cat >rows.zug <<'END'
model Rows {
  axis batch, r = 4, c = 2, a = 6
  input x: real[batch, r, c, a]
  param w[r, c, a] ~ normal(1)
  loss x * w per samples()
}
END
cat >flat.zug <<'END'
model Flat {
  axis batch, a = 48
  input x: real[batch, a]
  param w[a] ~ normal(1)
  loss x * w per samples()
}
END
cat >recipes.zug <<'END'
recipe one_1 { bind batch = 4   optimizer sgd(lr = 0.01) }
recipe half_1 from one_1 { precision compute bf16 }
recipe rows_2 for Rows from one_1 { mesh d = 2   split r over d }
recipe last_2 for Rows from one_1 { mesh d = 2   split a over d }
recipe both_4 for Rows from one_1 { mesh d = 2, e = 2   split c over d   split a over e }
END
awk 'BEGIN { for (i = 0; i < 2 * 4 * 48; i++) printf "%s", i % 7 ? "\\000\\000\\200\\077" : i % 3 ? "\\000\\000\\000\\100" : "\\000\\000\\000\\300" }' >values.txt
printf "$(cat values.txt)" >records.raw # 1, 2 and -2
ok zdata records records.raw --field x:f32:48 -o records.bin
for name in flat rows; do ok zc $name.zug -o $name.zsg; done
for run in flat:one_1 rows:one_1 rows:half_1 rows:rows_2 rows:last_2 rows:both_4; do
  ok $(on "${run##*_}") zrun train "${run%:*}.zsg" --recipe "recipes.zug:${run#*:}" --data records.bin --order sequential --steps 2 --log "$run"
  case $run in *half*) tolerance=1e-2 ;; *) tolerance=1e-5 ;; esac # bf16 has 8 bits, of w
  ok "$compare" --loss $tolerance --norm $tolerance "$run/metrics.jsonl" flat:one_1/metrics.jsonl
done
